"""SentencePiece models: the ids, the text and the offsets of `sentencepiece` itself."""

from __future__ import annotations

import base64
import functools
import importlib.util
import io
import json
import pickle
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools.formats import sentencepiece as reader

sentencepiece = need("sentencepiece")

# -- Models trained here ------------------------------------------------------

# The small models lack characters of ASCII, and loading them says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")

CORPUS = [
    "hello world, hello the wide world 1234 5678",
    "The quick brown fox jumps over the lazy dog 12 times",
    "  indented   code = foo(bar)  # x",
    "naïve café ﬁne １２３ Ⅷ ｶﾞ",
    "日本語 の 文章 です 日本 日本語",
    "привет мир, привет",
    "aaaa aaaa aa a",
    "<x> <xy> tag ab abc abcd",
] * 20
FALLBACK = {"byte_fallback": True, "vocab_size": 420}
SYMBOLS = ["<x>", "<xy>", "ab", "abcd", "bc"]
ODD_SYMBOLS = [" b", "a  b", "▁q", "ﬁ", "é", "Ａ", "  ", "x▁"]
IDENTITY, NFKC, CASEFOLD = (
    {"normalization_rule_name": name} for name in ("identity", "nmt_nfkc", "nmt_nfkc_cf")
)
KEEP_SPACE = {"remove_extra_whitespaces": False}
NO_PREFIX = {"add_dummy_prefix": False}
SUFFIX = {"treat_whitespace_as_suffix": True}
GRID: dict[str, dict[str, Any]] = {
    "plain": {},
    "llama": {**FALLBACK, **KEEP_SPACE},
    "keep": KEEP_SPACE,
    "bare": {**NO_PREFIX, **KEEP_SPACE},
    "trim": {**NO_PREFIX, **FALLBACK},
    "fallback": FALLBACK,
    "suffix": SUFFIX,
    "suffix-keep": {**SUFFIX, **KEEP_SPACE, **FALLBACK},
    "suffix-nfkc": {**SUFFIX, **NFKC, **FALLBACK},
    "suffix-bare": {**SUFFIX, **NO_PREFIX},
    "nfkc": {"normalization_rule_name": "nfkc"},
    "nmt_nfkc": NFKC,
    "nmt_nfkc-fallback": {**NFKC, **FALLBACK},
    "nmt_nfkc-keep": {**NFKC, **KEEP_SPACE},
    "nmt_nfkc_cf": CASEFOLD,
    "nmt_nfkc_cf-bare": {**CASEFOLD, **NO_PREFIX, **KEEP_SPACE},
    "symbols": {"user_defined_symbols": SYMBOLS, "control_symbols": ["<c>", "<d>"]},
    "symbols-bare": {"user_defined_symbols": SYMBOLS, **NO_PREFIX, **KEEP_SPACE},
    "symbols-nfkc": {"user_defined_symbols": SYMBOLS, **NFKC, **FALLBACK},
    "odd-symbols": {"user_defined_symbols": ODD_SYMBOLS},
    "odd-symbols-keep": {"user_defined_symbols": ODD_SYMBOLS, **KEEP_SPACE, **FALLBACK},
    "odd-symbols-cf": {"user_defined_symbols": ODD_SYMBOLS, **CASEFOLD},
    "runs": {
        "user_defined_symbols": ["\n", "\t", "▁▁", "▁▁▁▁"],
        **FALLBACK,
        **KEEP_SPACE,
        **NO_PREFIX,
    },
    "space-pieces": {"allow_whitespace_only_pieces": True, **KEEP_SPACE, **FALLBACK},
    "across-words": {"split_by_whitespace": False, **NFKC},
    "digits": {"split_digits": True, "character_coverage": 0.98, "unk_surface": "?"},
    "ids": {"pad_id": 3, "unk_id": 2, "bos_id": -1, "eos_id": -1, "unk_piece": "[UNK]"},
}


@functools.cache
def train(name: str) -> bytes:
    """Train one model of the grid."""
    model = io.BytesIO()
    options = {**IDENTITY, "vocab_size": 160, **GRID[name]}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        model_type="bpe",
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def load_oracle(data: bytes) -> Any:
    oracle = sentencepiece.SentencePieceProcessor()
    oracle.LoadFromSerializedProto(data)
    return oracle


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Path]:
    """Give a function that writes a model into a folder of its own."""

    def run(data: bytes) -> Path:
        path = tmp_path_factory.mktemp("model") / "tokenizer.model"
        path.write_bytes(data)
        return path

    return run


@pytest.fixture(scope="module", params=GRID)
def name(request: pytest.FixtureRequest) -> str:
    """Each model of the grid."""
    return str(request.param)


@pytest.fixture(scope="module")
def pair(engine: str, name: str, write: Callable[[bytes], Path]) -> tuple[BPETokenizer, Any]:
    """A model of the grid, loaded here and by its own library."""
    data = train(name)
    return BPETokenizer.from_file(write(data)), load_oracle(data)


BITS = [
    *[" "] * 6,
    *"abcdxyqABC<>▁▁1234\n\t\r\0\x01\x7f\u00a0\u3000\u200b\u2028éeﬁＡ①ｶﾞが日本語ж",
    *"\u0301\u0300가\u1100\u1161\u2047\U0001d400\U0001f600\ufdd0\ufffd\ufffe\U000e0001",
    *SYMBOLS,
    *ODD_SYMBOLS,
    *("hello", "world", "<s>", "</s>", "<unk>", "<c>", "<pad>", "[UNK]", "<0x41>", "   ", "aaa"),
]
CHARS = st.characters(exclude_categories=["Cs"])
TEXTS = st.lists(st.sampled_from(BITS) | CHARS, max_size=20).map("".join)


def is_own(tokenizer: BPETokenizer) -> bool:
    """Return whether a tokenizer uses the normalizer that tokenizer.json has not."""
    components = tokenizer.components or {}
    return bool(components["normalizer"]["type"] == "SentencePiece")


@settings(max_examples=examples(120))
@given(text=TEXTS)
@example("")
@example("   ")
@example("\x01")
@example(" \x01 ")
@example("▁")
@example("▁▁ a ▁ ▁")
@example("  a  b  ")
@example("abcd<xy>abcbc ab c")
@example("<s>hello</s><unk><0x41>")
def test_ids(pair: tuple[BPETokenizer, Any], text: str) -> None:
    tokenizer, oracle = pair
    assert tokenizer.encode(text) == oracle.encode(text)


@settings(max_examples=examples(120))
@given(text=TEXTS)
def test_decode(pair: tuple[BPETokenizer, Any], text: str) -> None:
    tokenizer, oracle = pair
    ids = oracle.encode(text)
    assert tokenizer.decode(ids) == oracle.decode(ids)
    assert "".join(tokenizer.decode_streaming(ids)) == oracle.decode(ids)


def test_decode_what_a_model_may_give(pair: tuple[BPETokenizer, Any]) -> None:
    """Any ids: those that no text gives, too, such as several markers at the start."""
    tokenizer, oracle = pair
    usual = [id_ for id_ in range(oracle.get_piece_size()) if not oracle.is_control(id_)]
    marked = [id_ for id_ in usual if "▁" in oracle.id_to_piece(id_)]
    odd = [id_ for id_ in usual if oracle.is_unknown(id_) or oracle.id_to_piece(id_) == "<0x20>"]
    generator = random.Random(0)
    rows = [generator.choices(marked, k=3) for _ in range(200)]
    for _ in range(examples(800)):
        parts = (generator.choice(generator.choice((usual, marked, odd))) for _ in range(6))
        rows.append(list(parts)[generator.randrange(6) :])
    for ids in rows:
        expected = oracle.decode(ids)
        assert tokenizer.decode(ids) == expected, [oracle.id_to_piece(id_) for id_ in ids]
        assert "".join(tokenizer.decode_streaming(ids)) == expected
    few = rows[:50]
    assert tokenizer.decode_batch(few, skip_padding=False) == [tokenizer.decode(row) for row in few]


@settings(max_examples=examples(120))
@given(
    raw=st.binary(max_size=8)
    | st.lists(
        st.sampled_from([b"\xf0\xa9", b"\xe4\xb8", b"\xc3", b"\x9f", b"a", "世é🌶".encode()])
    ).map(b"".join)
)
@example(b"\xf0\xa9")
@example(b"\xf0\xf0\x9f")
@example(b"\xe4\xb8a")
@example(b"\xe4\xb8\x96\xe4")
@example(b"\xef\xbf\xbd\xef")
@example(b"\xed\xa0\x80\xc0\x80\xf4\x90\x80\x80")
def test_each_broken_byte_becomes_one_replacement(
    with_fallback: tuple[BPETokenizer, Any], raw: bytes
) -> None:
    tokenizer, oracle = with_fallback
    ids = [oracle.piece_to_id(f"<0x{byte:02X}>") for byte in raw]
    letter = oracle.piece_to_id("a")
    for row in (ids, [letter, *ids, letter], [*ids, letter, *ids]):
        expected = oracle.decode(row)
        assert tokenizer.decode(row) == expected
        assert tokenizer.decode_batch([row, row]) == [expected] * 2
        assert "".join(tokenizer.decode_streaming(row)) == expected
        tokens = tokenizer.convert_ids_to_tokens(row)
        assert tokenizer.convert_tokens_to_string(tokens) == expected
    assert tokenizer.decode(ids, errors="ignore") == raw.decode("utf-8", "ignore")
    if raw.decode("utf-8", "ignore").encode() == raw:
        assert tokenizer.decode(ids, errors="strict") == raw.decode()
    else:
        for run in (tokenizer.decode, tokenizer.decode_streaming):
            with pytest.raises(ValueError, match="utf-8"):
                list(run(ids, errors="strict"))


@pytest.fixture(scope="module")
def with_fallback(engine: str, write: Callable[[bytes], Path]) -> tuple[BPETokenizer, Any]:
    return BPETokenizer.from_file(write(train("llama"))), load_oracle(train("llama"))


@pytest.fixture(scope="module")
def normalizer(engine: str, pair: tuple[BPETokenizer, Any]) -> reader.Normalizer | None:
    """The normalizer of a model, if it is this library's own."""
    component = (pair[0].components or {})["normalizer"]
    return reader.Normalizer(component) if is_own(pair[0]) else None


@settings(max_examples=examples(120))
@given(text=TEXTS)
@example("  hello  ﬁ world １ ")
@example(" \x01a\x01 \x01b  ")
@example("<x>")
def test_offsets(
    pair: tuple[BPETokenizer, Any], normalizer: reader.Normalizer | None, text: str
) -> None:
    """The normalizer's places are those of SentencePiece's own offsets."""
    oracle = pair[1]
    if normalizer is None:
        return
    normalized, spans = normalizer.align(text)
    assert normalizer(text) == normalized == oracle.Normalize(text)
    assert len(spans) == len(normalized)
    expected = oracle.encode_as_offset_mapping(text)
    done = 0
    for piece, offsets in zip(expected["pieces"], expected["offsets"]):
        if piece.startswith("<0x") and not normalized.startswith(piece, done):
            return  # bytes: SentencePiece gives all of a character to its last one
        part = spans[done : done + len(piece)]
        assert (part[0][0], part[-1][1]) == tuple(offsets)
        done += len(piece)
    assert done == len(normalized)


def test_offsets_of_tokens(write: Callable[[bytes], Path]) -> None:
    tokenizer = BPETokenizer.from_file(write(train("nmt_nfkc")))
    assert tokenizer.encode_with_offsets("  hello  ﬁ world").offsets == [
        (2, 7),  # the dummy prefix belongs to what it stands before
        (7, 10),
        (9, 10),
        (10, 16),
    ]


def test_plain_normalization_is_plain(pair: tuple[BPETokenizer, Any], name: str) -> None:
    """What tokenizer.json can say is said in its terms, and nothing else is."""
    options = GRID[name]
    plain = options.get("normalization_rule_name", "identity") == "identity"
    if options.get("add_dummy_prefix", True):
        plain = plain and not {"treat_whitespace_as_suffix", "user_defined_symbols"} & set(options)
    assert is_own(pair[0]) == (not plain)


def test_plain_form_in_tokenizers(
    pair: tuple[BPETokenizer, Any], name: str, tmp_path: Path
) -> None:
    """Saved as tokenizer.json it gives the same ids and text in HuggingFace's library."""
    tokenizers = need("tokenizers")
    tokenizer, oracle = pair
    if is_own(tokenizer):
        with pytest.raises(ValueError, match="SentencePiece"):
            tokenizer.save(tmp_path, verbose=False)
        return
    tokenizer.save(tmp_path, verbose=False)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.encode_special_tokens = True
    generator = random.Random(0)
    for _ in range(300):
        text = "".join(generator.choices(BITS, k=generator.randrange(12)))
        ids = oracle.encode(text)
        assert theirs.encode(text, add_special_tokens=False).ids == ids, text
        assert theirs.decode(ids, skip_special_tokens=False) == oracle.decode(ids), text


def test_pickle(pair: tuple[BPETokenizer, Any]) -> None:
    tokenizer, oracle = pair
    text = "hello <xy> ﬁ  abcd"
    assert pickle.loads(pickle.dumps(tokenizer)).encode(text) == oracle.encode(text)


# -- What the model says besides ----------------------------------------------


def test_roles(pair: tuple[BPETokenizer, Any], name: str) -> None:
    tokenizer, oracle = pair
    for role in ("bos", "eos", "pad", "unk"):
        id_ = getattr(oracle, f"{role}_id")()
        assert getattr(tokenizer, f"{role}_token_id") == (id_ if id_ >= 0 else None), role
    assert tokenizer.vocab_size == oracle.get_piece_size()
    for token in tokenizer.added_tokens:
        assert token.special == (oracle.is_control(token.id) or oracle.is_unknown(token.id))
        assert oracle.id_to_piece(token.id) == token.content
    symbols = {token.content for token in tokenizer.added_tokens if not token.special}
    assert symbols == set(GRID[name].get("user_defined_symbols", ()))


def test_nothing_around_a_text_but_what_the_configuration_says(
    write: Callable[[bytes], Path],
) -> None:
    path = write(train("llama"))
    ids = load_oracle(train("llama")).encode("hello")
    assert BPETokenizer.from_file(path).encode("hello", add_special_tokens=True) == ids
    config = path.with_name("tokenizer_config.json")
    config.write_text('{"add_bos_token": true, "add_eos_token": false, "chat_template": "x"}')
    tokenizer = BPETokenizer.from_file(path)
    assert tokenizer.encode("hello", add_special_tokens=True) == [1, *ids]
    assert tokenizer.encode("hello") == ids
    assert tokenizer.chat_template == "x"
    config.write_text('{"add_bos_token": null, "add_eos_token": true}')
    tokenizer = BPETokenizer.from_file(path.parent)  # the directory that holds it
    assert tokenizer.encode("hello", add_special_tokens=True) == [*ids, 2]
    config.write_text('{"tokenizer_class": "CodeLlamaTokenizer"}')  # adds it by default
    tokenizer = BPETokenizer.from_file(path)
    assert tokenizer.encode("hello", add_special_tokens=True) == [1, *ids]
    config.write_text('{"add_bos_token": 1}')
    with pytest.raises(FileFormatError, match="add_bos_token: expected bool"):
        BPETokenizer.from_file(path)


def test_the_configuration_names_the_tokens_around_a_text(
    write: Callable[[bytes], Path],
) -> None:
    path = write(train("symbols"))
    oracle = load_oracle(train("symbols"))
    config = path.with_name("tokenizer_config.json")
    ids, c, d = oracle.encode("hello"), oracle.piece_to_id("<c>"), oracle.piece_to_id("<d>")
    for bos in ('"<c>"', '{"content": "<c>", "lstrip": false}'):
        config.write_text(
            f'{{"bos_token": {bos}, "eos_token": "<d>", "add_bos_token": true,'
            ' "add_eos_token": true, "pad_token": "[not a piece]"}'
        )
        tokenizer = BPETokenizer.from_file(path)
        assert tokenizer.encode("hello", add_special_tokens=True) == [c, *ids, d]
        assert (tokenizer.bos_token, tokenizer.eos_token) == ("<c>", "<d>")
        # As in transformers, a token with a role that is no piece gets the next id.
        assert (tokenizer.pad_token, tokenizer.pad_token_id) == (
            "[not a piece]",
            oracle.get_piece_size(),
        )
    path = write(train("ids"))  # a model without a bos token
    config = path.with_name("tokenizer_config.json")
    config.write_text('{"add_bos_token": true}')
    tokenizer = BPETokenizer.from_file(path)  # transformers doesn't mind, either
    ids = load_oracle(train("ids")).encode("hello")
    assert tokenizer.encode("hello", add_special_tokens=True) == ids


@pytest.mark.parametrize("name", ["llama", "trim", "suffix-keep"], indirect=True)
@pytest.mark.parametrize(
    "options",
    [
        {"tokenizer_class": "LlamaTokenizer"},
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True},
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": False, "add_eos_token": True},
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": True},
        {"tokenizer_class": "CodeLlamaTokenizer"},
        {"tokenizer_class": "CodeLlamaTokenizer", "add_bos_token": False},
    ],
    ids=str,
)
def test_what_goes_around_a_text_is_as_in_transformers(
    options: dict[str, Any], name: str, write: Callable[[bytes], Path]
) -> None:
    transformers = need("transformers")
    if int(transformers.__version__.split(".")[0]) < 5:
        pytest.skip("transformers 4 takes everything from tokenizer.json")
    path = write(train(name))
    path.with_name("tokenizer_config.json").write_text(json.dumps(options))
    theirs = transformers.AutoTokenizer.from_pretrained(str(path.parent))
    ours = BPETokenizer.from_file(path.parent)

    def around(with_it: list[int], without: list[int]) -> tuple[bool, bool]:
        more = len(with_it) - len(without)
        return with_it != without and with_it[:1] == [1], more > 0 and with_it[-1:] == [2]

    texts = theirs.encode("hello"), theirs.encode("hello", add_special_tokens=False)
    own = ours.encode("hello", add_special_tokens=True), ours.encode("hello")
    assert around(*own) == around(*texts)


def test_control_symbols_in_text_when_asked_for(write: Callable[[bytes], Path]) -> None:
    tokenizer = BPETokenizer.from_file(write(train("symbols")))
    oracle = load_oracle(train("symbols"))
    assert tokenizer.encode("a<c>") == oracle.encode("a<c>")
    assert oracle.piece_to_id("<c>") in tokenizer.encode("a<c>", allowed_special="all")


def test_split_pattern_is_refused(write: Callable[[bytes], Path]) -> None:
    with pytest.raises(ValueError, match="no split pattern"):
        reader.read(write(train("plain")), "gpt2")


# -- Published models ---------------------------------------------------------


def published() -> list[Path]:
    spec = importlib.util.find_spec("mistral_common")
    if spec is None or spec.origin is None:
        return []
    return sorted((Path(spec.origin).parent / "data").glob("*.model*"))


@pytest.mark.parametrize("path", published(), ids=lambda path: path.name)
def test_published_models(path: Path, corpora: Callable[[str], str]) -> None:
    tokenizer, oracle = BPETokenizer.from_file(path), load_oracle(path.read_bytes())
    for corpus in ("english", "code", "multi"):
        text = corpora(corpus)[:60_000]
        ids = tokenizer.encode(text)
        assert ids == oracle.encode(text)
        assert tokenizer.decode(ids) == text
    for n in range(70):  # the runs of spaces have one score, and there is none of 15
        text = " " * n + "x" + " " * (n // 2)
        assert tokenizer.encode(text) == oracle.encode(text)
    generator = random.Random(path.name)
    for _ in range(1000):
        planes = generator.choices((0x80, 0x3000, 0x20000, 0x110000), k=generator.randrange(30))
        text = "".join(map(chr, map(generator.randrange, planes)))
        text = text.encode("utf-8", "ignore").decode()
        text = generator.choice(("", " ", "[INST] ", "<s>")) + text
        assert tokenizer.encode(text) == oracle.encode(text), text
        assert tokenizer.decode(oracle.encode(text)) == oracle.decode(oracle.encode(text))


def test_published_models_are_there() -> None:
    need("mistral_common")
    assert len(published()) >= 5


# -- Models written by hand ---------------------------------------------------

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, value: float | int | str | bytes) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def piece(text: str | bytes, score: float, kind: int = NORMAL) -> bytes:
    return field(1, field(1, text) + field(2, float(score)) + field(3, kind))


def make(
    scores: Mapping[str, float],
    trainer: Mapping[int, Any] | None = None,
    normalizer: Mapping[int, Any] | None = None,
    more: bytes = b"",
) -> bytes:
    """Write a model of normal pieces, by default without any normalization."""
    specs = {3: 2, **(trainer or {})}, {3: 0, 4: 0, **(normalizer or {})}
    pieces = [piece("<unk>", 0, UNKNOWN), *(piece(text, score) for text, score in scores.items())]
    written = [b"".join(field(*item) for item in spec.items()) for spec in specs]
    return b"".join(pieces) + more + field(2, written[0]) + field(3, written[1])


def make_map(rules: Mapping[bytes, bytes]) -> bytes:
    """Write a precompiled character map; every state of its trie has 256 units of its own."""
    strings, starts = b"", {}
    for key, new in rules.items():
        starts[key] = len(strings)
        strings += new + b"\0"
    states = sorted({key[:n] for key in rules for n in range(len(key) + 1)})
    base = {state: 256 * (i + 1) for i, state in enumerate(states)}
    units = [0xFF] * 256 * (len(states) + 1)
    units[0] = base[b""] << 10
    for state in states[1:]:
        at = base[state[:-1]] ^ state[-1]
        has_value = state in starts
        units[at] = (at ^ base[state]) << 10 | has_value << 8 | state[-1]
        if has_value:
            units[base[state]] = 2**31 | starts[state]
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + strings


LETTERS = {"a": -90.0, "b": -91.0, "c": -92.0, "▁": -93.0}


def assert_same(write: Callable[[bytes], Path], data: bytes, alphabet: str) -> None:
    tokenizer, oracle = BPETokenizer.from_file(write(data)), load_oracle(data)
    generator = random.Random(alphabet)
    for _ in range(400):
        text = "".join(generator.choices(alphabet, k=generator.randrange(24)))
        assert tokenizer.encode(text) == oracle.encode(text), text


@pytest.mark.parametrize(
    "scores",
    [
        {"bc": -1, "ab": -2, "abc": -3},  # "abc" is a and bc
        {"ab": -3, "abab": -1, "ba": -2},  # parts that rank after the whole
        {"aa": -1, "aaa": -1, "aaaa": -1},
        {"aa": -1, "aaaa": -1, "aaaaa": -1, "ab": -2, "aab": 0},
        {"▁▁": -9, "▁▁▁": -9, "▁▁▁▁▁": -9, "▁a": -1, "▁▁a": -2},
        {"ab": -1, "ca": -1, "cc": -2},  # equal, but never in each other's way
        {"ab": -1, "bc": -1.5, "abc": -1.5},
        {"ab": float("-inf"), "bc": float("inf")},
    ],
)
def test_scores(write: Callable[[bytes], Path], scores: dict[str, float]) -> None:
    if "ca" in scores:
        with pytest.raises(FileFormatError, match="'ca' and 'ab'"):
            BPETokenizer.from_file(write(make({**LETTERS, **scores})))
        scores = {"ab": -1, "cc": -1, "▁▁": -1, "aba": -2}
    assert_same(write, make({**LETTERS, **scores}), "aabbc ▁")


@pytest.mark.parametrize(
    "scores",
    [
        {"ab": -1, "bc": -1},  # abc: the leftmost is joined first
        {"aa": -1, "aab": -1},
        {"ab": -2, "aba": -1, "cc": -2},
        {"aa": -1, "aaa": -1, "bb": -1, "bbb": -1},
    ],
)
def test_equal_scores_that_matter_are_refused(
    write: Callable[[bytes], Path], scores: dict[str, float]
) -> None:
    with pytest.raises(FileFormatError, match="give them different scores"):
        BPETokenizer.from_file(write(make({**LETTERS, **scores})))


def test_pieces_that_cannot_be_made(write: Callable[[bytes], Path]) -> None:
    """They stay in the vocabulary; only what merging would pass by is refused."""
    more = piece("bab", -1, UNUSED) + piece("cc", 0, USER_DEFINED) + piece("ccb", -1)
    assert_same(write, make({**LETTERS, "aab": -3}, more=more), "abc")
    # "cab" is never made, because "ab" in it is found before that
    more = piece("ab", 0, USER_DEFINED) + piece("cab", -1, UNUSED)
    assert_same(write, make({**LETTERS, "ca": -2}, more=more), "abc")
    for data in (
        make({**LETTERS, "xa": -3}),  # x is no piece, yet is joined
        make({**LETTERS, "aab": -3}, more=piece("ab", -1, UNUSED)),
    ):
        with pytest.raises(FileFormatError, match="is joined from .* not supported"):
            BPETokenizer.from_file(write(data))


RULES = {
    "a": "b",
    "ab": "  ",
    "abc": "a  b",
    "b": " ",
    "c": "",
    "é": "e\u0301 ",
    "日本": "▁",
    "日": "<xy>",
    "\U0001f600": "",
}


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("remove", [0, 1])
@pytest.mark.parametrize("escape", [0, 1])
@pytest.mark.parametrize("suffix", [0, 1])
def test_character_map(
    write: Callable[[bytes], Path], prefix: int, remove: int, escape: int, suffix: int
) -> None:
    charsmap = make_map({key.encode(): new.encode() for key, new in RULES.items()})
    normalizer = {2: charsmap, 3: prefix, 4: remove, 5: escape}
    more = piece("<xy>", 0, USER_DEFINED) + piece(" x", 0, USER_DEFINED) + piece(" ", 0)
    data = make({**LETTERS, "e": -94, "▁b": -2}, {24: suffix}, normalizer, more)
    assert_same(write, data, "abbcé日日本本\U0001f600  ▁<xy>x")


def test_the_longest_key_and_symbols_win() -> None:
    component = {
        "charsmap": base64.b64encode(make_map({b"a": b"xy", b"ab": b"z"})).decode(),
        "user_defined": ["aba"],
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": True,
        "escape_whitespaces": True,
        "treat_whitespace_as_suffix": False,
    }
    normalizer = reader.Normalizer(component)
    assert normalizer("aab aba  ababa") == "xyz▁aba▁ababxy"
    assert normalizer.align("aab") == ("xyz", [(0, 0), (0, 1), (1, 3)])
    normalizer = reader.Normalizer({**component, "user_defined": ["ab", "aba"]})
    assert normalizer("aba aa") == "aba▁xyxy"


# -- Files that are something else, damaged or malicious ----------------------


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\n",
        b"\n" * 4096,
        b'{"model": {"type": "BPE"}}',
        b'\n\n{"model": 1}',
        b"\n\x0bhello there, this is text",
        b"GGUF\3\0\0\0",
        b"IQ== 0\nIg== 1\n",
        b"\n\x06\n\x03<s>",  # cut short
        b"\n\x00\n\x00",
        b"\n\x0d\n\x05<unk>\x15\0\0\0\0\x18",
        b"\n\x07\x12\x05hello",  # another message than a piece
    ],
)
def test_other_files_are_not_taken_for_models(tmp_path: Path, head: bytes) -> None:
    assert not reader.matches(tmp_path / "x", head)


def test_models_are_recognized(write: Callable[[bytes], Path]) -> None:
    path = write(train("nmt_nfkc"))
    assert reader.matches(path, path.read_bytes()[:4096])
    assert reader.matches(path, path.read_bytes()[:100])
    path.write_bytes(b"IQ== 0\n")  # Llama 3 has a tokenizer.model of another kind
    assert not reader.matches(path, path.read_bytes())


@pytest.mark.parametrize(("kind", "name"), [(1, "unigram"), (3, "word"), (4, "char"), (9, "9")])
def test_other_model_types_are_refused(
    write: Callable[[bytes], Path], kind: int, name: str
) -> None:
    with pytest.raises(FileFormatError, match=rf"model_type: expected BPE, got {name}"):
        BPETokenizer.from_file(write(make(LETTERS, {3: kind})))


def long_map(*units: int) -> bytes:
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + b"x\0"


def looping_map() -> bytes:
    """Write a map whose only state leads back to itself."""
    units = [256 << 10] + [0xFF] * 511
    units[256 ^ ord("a")] = ord("a") << 10 | ord("a")
    return long_map(*units)


def fan_map() -> bytes:
    """Write a map in which every character leads to one and the same next state, 30 times."""
    n = 40
    units = [256 << 10] + [0xFF] * 255
    for i in range(1, n):
        target = 256 * min(i + 1, n - 1)
        units += [(256 * i ^ byte ^ target) << 10 | byte for byte in range(256)]
    return long_map(*units)


def damaged_map(charsmap: bytes) -> bytes:
    return make(LETTERS, normalizer={2: charsmap})


def with_more(more: bytes) -> bytes:
    return make(LETTERS, more=more)


UNKNOWN_FIELD = 9 << 3  # of a number that is skipped
ALL_BYTES = b"".join(piece(f"<0x{byte:02X}>", 0, BYTE) for byte in range(256))
DAMAGED: dict[str, tuple[bytes, str]] = {
    "huge length": (with_more(varint(UNKNOWN_FIELD | 2) + varint(2**62)), "4,611,686,018"),
    "huge piece": (with_more(b"\x0a" + varint(2**62) + b"x"), "4,611,686,018"),
    "huge length inside": (with_more(field(1, b"\x0a" + varint(2**62))), "pieces.5.: .*4,611,686"),
    "negative length": (with_more(varint(UNKNOWN_FIELD | 2) + varint(-1)), "18,446,744,073"),
    "endless number": (with_more(varint(UNKNOWN_FIELD) + b"\xff" * 40), "more than 10 bytes"),
    "number cut short": (make(LETTERS) + varint(UNKNOWN_FIELD) + b"\xff", "ends within a number"),
    "group": (with_more(varint(UNKNOWN_FIELD | 3)), "field 9 of kind 3"),
    "field 0": (with_more(b"\x02\x00"), "field 0"),
    "field 0, a number": (with_more(b"\x00\x00"), "field 0"),
    "kind 7": (with_more(varint(UNKNOWN_FIELD | 7)), "kind 7"),
    "bad UTF-8": (with_more(piece(b"\xff\xfe", -1)), "UTF-8"),
    "surrogate": (with_more(piece(b"\xed\xa0\x80", -1)), "UTF-8"),
    "empty piece": (with_more(piece("", -1)), "empty"),
    "piece twice": (with_more(piece("a", -2)), "'a' appears twice"),
    "null character": (with_more(piece("\0", -2)), r"'\\x00' has a null character"),
    "null character, byte fallback": (
        make(LETTERS, {35: 1}, more=ALL_BYTES + piece("\0", -2)),
        r"'\\x00' has a null character",
    ),
    "null character inside": (with_more(piece("a\0b", -2)), "has a null character"),
    "piece is a number": (with_more(field(1, 7)), "expected a message"),
    "text is a number": (with_more(field(1, field(1, 7))), "piece: expected a field of kind 2"),
    "score is a number": (with_more(field(1, field(1, "x") + field(2, 7))), "score: expected"),
    "score is NaN": (with_more(piece("x", float("nan"))), "NaN"),
    "type is text": (with_more(field(1, field(1, "x") + field(3, "x"))), "type: expected"),
    "type 0": (with_more(piece("x", 0, 0)), "the type is 0"),
    "negative type": (with_more(piece("x", 0, -1)), "the type is 18"),
    "type 7": (with_more(piece("x", 0, 7)), "the type is 7"),
    "long piece": (with_more(piece("x" * 5000, 0)), "5,000 characters; the limit is"),
    "control character": (with_more(piece("x", 0, CONTROL)), "'x' is a control symbol of one"),
    "two unknown": (with_more(piece("<u>", 0, UNKNOWN)), "one of type UNKNOWN, got 2"),
    "no unknown": (piece("a", 0) + field(2, field(3, 2)), "one of type UNKNOWN, got 0"),
    "no trainer_spec": (piece("<unk>", 0, UNKNOWN), "expected BPE, got unigram"),
    "bytes unasked": (with_more(piece("<0x41>", 0, BYTE)), "expected 0 of type BYTE"),
    "bytes missing": (make(LETTERS, {35: 1}, more=piece("<0x41>", 0, BYTE)), "expected 256 of"),
    "no byte": (make(LETTERS, {35: 1}, more=piece("<0xZZ>", 0, BYTE)), "expected a byte such as"),
    "trainer_spec is a number": (with_more(field(2, 5)), "trainer_spec: expected a message"),
    "flag is text": (make(LETTERS, {35: "yes"}), "byte_fallback: expected a field of kind 0"),
    "denormalizer": (with_more(field(5, field(2, b"12345"))), "denormalizer_spec"),
    "map: short": (damaged_map(b"\1"), "a trie of 1 bytes"),
    "map: of no units": (damaged_map(struct.pack("<I", 0) + b"x\0"), "a trie of 0 bytes"),
    "map: huge": (damaged_map(struct.pack("<I", 2**32 - 1) + b"x" * 64), "a trie of 4,294,967,295"),
    "map: outside": (damaged_map(long_map(0xFF, 2**20 << 10 | 1)), "outside"),
    "map: far outside": (damaged_map(long_map(0xFF, (2**20 << 10) | 0x201)), "outside"),
    "map: loops": (damaged_map(looping_map()), "loops"),
    "map: large": (damaged_map(long_map(*[i << 10 | i for i in range(256)])), "too large"),
    "map: fans out": (damaged_map(fan_map()), "too large"),
    "map: no replacement": (damaged_map(make_map({b"a": b"x", b"b": b""})[:-2]), "doesn't exist"),
    "map: bad replacement": (damaged_map(make_map({b"a": b"\xff"})), "invalid UTF-8"),
    "map: half a character": (damaged_map(make_map({b"\xc3": b"x"})), "part of a character"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged(write: Callable[[bytes], Path], case: str) -> None:
    data, problem = DAMAGED[case]
    path = write(data)
    with pytest.raises(FileFormatError, match=problem) as caught:
        BPETokenizer.from_file(path)
    assert caught.value.path == str(path)


def test_damaged_within_bounds(tmp_path: Path) -> None:
    """All of them, and cut files, in a process with little memory and time."""
    resource = need("resource")
    del resource
    cases = [data for data, _ in DAMAGED.values()]
    for name, step in (("nmt_nfkc", 1000), ("llama", 100)):
        data = train(name)
        cases += [data[:end] for end in range(0, len(data), step)]
    for i, data in enumerate(cases):
        (tmp_path / f"{i}.model").write_bytes(data)
    program = (
        "import resource, sys; from pathlib import Path\n"
        "from bpe_tokenizer import BPETokenizer, FileFormatError\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (200 * 2**20,) * 2)\n"
        "for path in Path(sys.argv[1]).iterdir():\n"
        "    try: BPETokenizer.from_file(path)\n"
        "    except FileFormatError: pass\n"
        "    else: print('loaded', path.name)\n"
    )
    root = Path(reader.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.model"
    path.write_bytes(make(LETTERS))
    with open(path, "r+b") as file:
        file.truncate(2**24 + 1)
    with pytest.raises(FileFormatError, match="16,777,217 bytes; the limit is"):
        BPETokenizer.from_file(path)


def test_more_fields_than_any_model_has(
    write: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_MAX_FIELDS", 1000)
    skipped = (varint(UNKNOWN_FIELD) + b"\0") * 900
    BPETokenizer.from_file(write(with_more(skipped)))
    for more, place in ((skipped * 2, ""), (field(2, skipped * 2), "trainer_spec: ")):
        with pytest.raises(FileFormatError, match=f"{place}there are more than 1,000 fields"):
            BPETokenizer.from_file(write(with_more(more)))


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(data=st.data())
def test_changed_bytes(write_once: Callable[[bytes], Path], data: st.DataObject) -> None:
    """A file with a few other bytes is refused cleanly, or is another model."""
    raw = bytearray(train(data.draw(st.sampled_from(("symbols", "llama", "nfkc")))))
    for _ in range(data.draw(st.integers(1, 4))):
        end = data.draw(st.sampled_from((len(raw), 400, 4000)))
        raw[data.draw(st.integers(0, min(len(raw), end) - 1))] = data.draw(st.integers(0, 255))
    try:
        tokenizer = BPETokenizer.from_file(write_once(bytes(raw)))
    except FileFormatError:
        return
    tokenizer.decode(tokenizer.encode("hello <x> abcd ﬁ 日本"))


@pytest.fixture
def write_once(tmp_path: Path) -> Callable[[bytes], Path]:
    """Give a function that writes one file over and over."""
    path = tmp_path / "tokenizer.model"

    def run(data: bytes) -> Path:
        path.write_bytes(data)
        return path

    return run


@pytest.mark.parametrize(
    "change",
    [
        {"charsmap": 5},
        {"charsmap": "%%%"},
        {"charsmap": "AAAA"},
        {"user_defined": "ab"},
        {"user_defined": [""]},
        {"user_defined": [1]},
        {"add_dummy_prefix": None},
        {"escape_whitespaces": "yes"},
    ],
)
def test_normalizer_checks_its_component(change: dict[str, Any]) -> None:
    flags = (
        "add_dummy_prefix",
        "remove_extra_whitespaces",
        "escape_whitespaces",
        "treat_whitespace_as_suffix",
    )
    sound = {"charsmap": "", "user_defined": [], **dict.fromkeys(flags, True)}
    assert reader.Normalizer(sound)("a b") == "a▁b▁"
    with pytest.raises(ValueError, match=next(iter(change)) + "|character map"):
        reader.Normalizer({**sound, **change})
