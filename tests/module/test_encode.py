"""Encoding and decoding: against a naive encoder, tiktoken, tokenizers and transformers."""

from __future__ import annotations

import base64
import copy
import functools
import json
import random
import threading
import unicodedata
import warnings
from pathlib import Path
from typing import Any

import pytest
import reference
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer as bpe
from bpe_tokenizer import AddedToken, BPETokenizer

FORMS = ["NFC", "NFD", "NFKC", "NFKD"]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
# Marks of several combining classes, in any order, with bases that compose,
# compatibility characters, Hangul jamo and marks that are no marks by class.
MARKS = st.text(
    st.sampled_from(
        "aeoAÅﬁ①½ K한각각가\u0301\u0323\u0327\u0308\u0302\u0340\u0344\u1e69ệ"
        "\u0b47\u0b3e\u0f71\u0f72\u0f73\u05b4\u05bc\ufb1d①\U0001d15e\U00011099\U000110ba👍🏽\n"
    ),
    max_size=14,
)
SAMPLE = (
    "The quick brown fox's tail, isn't 12345 lazy.\n\n    def f(x):\n\treturn x * 2  # ok\r\n"
    "Grüße aus Köln! Crème brûlée, naïve café. 世界你好,今天天气很好。한국어 텍스트입니다. "
    "Привет, мир! नमस्ते दुनिया  שלום עולם مرحبا 🙂👍🏽👨‍👩‍👧 \u0301e\u0301 ﬁ ½ "
)


@pytest.fixture(scope="module")
def trained(engine: str) -> BPETokenizer:
    """A small tokenizer of real text, with the usual special tokens."""
    tokenizer = BPETokenizer("llama3", surround="bos+eos")  # in other libraries, too
    tokens = ["<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>"]
    return tokenizer.train(SAMPLE * 3, 600, special_tokens=tokens, verbose=False, num_workers=1)


def file_of(merges: list[tuple[bytes, bytes]], ids: dict[bytes, int], **parts: Any) -> str:
    """Write a tokenizer.json of merges, over whole texts unless `parts` says else."""
    byte_to_char = bpe.build_byte_to_char()

    def show(token: bytes) -> str:
        return "".join(byte_to_char[byte] for byte in token)

    flags = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model = {
        "type": "BPE",
        "vocab": {show(token): id_ for token, id_ in ids.items()},
        "merges": [[show(left), show(right)] for left, right in merges],
    }
    data = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **flags},
        "decoder": {"type": "ByteLevel", **flags},
        "model": {**model, **parts.pop("model", {})},
        **parts,
    }
    return json.dumps(data)


def load(folder: Path, text: str) -> BPETokenizer:
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    return BPETokenizer.from_pretrained(folder, verbose=False)


# -- Against the naive encoder ------------------------------------------------


@st.composite
def merge_lists(draw: Any, letters: bytes = b"abc\xc3\xa9\xe4") -> list[tuple[bytes, bytes]]:
    """Merges in any order, some of them unreachable, some giving a token twice."""
    tokens = [bytes([letter]) for letter in letters]
    merges: dict[tuple[bytes, bytes], None] = {}
    for _ in range(draw(st.integers(0, 25))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if len(left + right) <= 20:
            merges[left, right] = None
            tokens.append(left + right)
    return draw(st.permutations(list(merges)))


def ids_of(merges: list[tuple[bytes, bytes]]) -> dict[bytes, int]:
    """Number the bytes backwards, so that no id is a byte by accident; then the rest."""
    ids = {bytes([byte]): 255 - byte for byte in range(256)}
    for left, right in merges:
        ids.setdefault(left + right, len(ids))
    return ids


def assert_as_reference(
    folder: Path, merges: list[tuple[bytes, bytes]], text: str, whole: bool = False
) -> None:
    ids = ids_of(merges)
    tokenizer = load(folder, file_of(merges, ids, model={"ignore_merges": whole}))
    is_token = whole and text.encode() in ids
    tokens = [text.encode()] if is_token else reference.encode(text.encode(), merges)
    expected = [ids[token] for token in tokens]
    assert tokenizer.encode(text) == expected
    assert tokenizer.encode(text) == expected  # now from the cache, if it is there
    assert tokenizer.decode(expected, errors="strict") == text


@settings(max_examples=examples(300))
@given(
    merges=merge_lists(),
    text=st.text(st.sampled_from("aaabbcéä"), max_size=70),
    whole=st.booleans(),
)
@example(merges=[(b"a", b"a")], text="aaaaa", whole=False)
@example(merges=[(b"aa", b"a"), (b"a", b"a")], text="a" * 61, whole=False)
@example(merges=[(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")], text="abc", whole=True)
def test_random_merges_equal_the_naive_encoder(
    tmp_path: Path, merges: list[tuple[bytes, bytes]], text: str, whole: bool
) -> None:
    assert_as_reference(tmp_path, merges, text, whole)


@pytest.mark.parametrize("delta", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_both_ways_of_merging_agree_where_they_meet(tmp_path: Path, delta: int, seed: int) -> None:
    rng = random.Random(seed)
    merges = random_merges(rng, 60)
    length = getattr(bpe, "_SCAN_UP_TO", 48) + delta
    assert_as_reference(tmp_path, merges, "".join(rng.choices("abc", k=length)))


@pytest.mark.parametrize("text", ["a" * 2000, "ab" * 1000, "aab" * 700, "abcabcab" * 200])
def test_long_repetitive_text_equals_the_naive_encoder(tmp_path: Path, text: str) -> None:
    assert_as_reference(tmp_path, random_merges(random.Random(len(text)), 40), text)


@pytest.mark.parametrize("seed", range(3))
def test_long_random_text_equals_the_naive_encoder(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choices("abcé", k=1500))
    assert_as_reference(tmp_path, random_merges(rng, 80), text)


def random_merges(rng: random.Random, n: int) -> list[tuple[bytes, bytes]]:
    tokens = [b"a", b"b", b"c", b"\xc3", b"\xa9"]
    merges: dict[tuple[bytes, bytes], None] = {}
    for _ in range(n):
        pair = rng.choice(tokens), rng.choice(tokens)
        merges[pair] = None
        tokens.append(pair[0] + pair[1])
    shuffled = list(merges)
    rng.shuffle(shuffled)
    return shuffled


def test_a_pretoken_that_is_a_token_can_skip_the_merges(tmp_path: Path) -> None:
    merges = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    ids = ids_of(merges)
    plain = load(tmp_path, file_of(merges, ids))
    assert plain.encode("abc") == [ids[b"a"], ids[b"bc"]]
    whole = load(tmp_path, file_of(merges, ids, model={"ignore_merges": True}))
    assert whole.encode("abc") == [ids[b"abc"]]
    assert whole.encode("abca") == [ids[b"a"], ids[b"bc"], ids[b"a"]]


# -- Against tiktoken ---------------------------------------------------------


def merges_from_ranks(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Recover the merge list: each token is joined from what lower ranks leave of it."""
    merges = []
    for token, limit in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            i = min(
                range(len(parts) - 1),
                key=lambda i: ranks.get(parts[i] + parts[i + 1], limit),
            )
            assert ranks.get(parts[i] + parts[i + 1], limit) < limit
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return merges


@pytest.fixture(scope="session")
def ranks_and_merges(load_vocab: Any) -> Any:
    """Give a function from a vocabulary's name to its ranks and merges: once for both engines."""

    def find(name: str) -> tuple[dict[bytes, int], list[tuple[bytes, bytes]]]:
        ranks = load_vocab(name)[0]
        some = examples(len(ranks))  # the first ones are a vocabulary, too
        ranks = {token: rank for token, rank in ranks.items() if rank < some}
        return ranks, merges_from_ranks(ranks)

    return functools.cache(find)


@pytest.fixture(scope="module", params=["r50k_base", "cl100k_base", "o200k_base", "qwen3"])
def published(
    engine: str, request: Any, load_vocab: Any, ranks_and_merges: Any, tmp_path_factory: Any
) -> tuple[BPETokenizer, Any]:
    """A published vocabulary, in this library and in tiktoken."""
    tiktoken = need("tiktoken")
    meta = load_vocab(request.param)[1]
    ranks, merges = ranks_and_merges(request.param)
    oracle = tiktoken.Encoding(
        meta["name"],
        pat_str=meta["pat_str"],
        mergeable_ranks=ranks,
        special_tokens=meta["special_tokens"],
    )
    folder = tmp_path_factory.mktemp(request.param)
    BPETokenizer(meta["pat_str"], normalizer=None).save(folder, verbose=False)
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    parts = {"pre_tokenizer": data["pre_tokenizer"], "model": {"ignore_merges": True}}
    tokenizer = load(folder, file_of(merges, ranks, **parts))
    tokenizer.add_special_tokens(meta["special_tokens"])
    return tokenizer, oracle


@pytest.mark.slow
def test_published_vocabularies_equal_tiktoken_on_real_text(published: Any, corpora: Any) -> None:
    tokenizer, oracle = published
    for name in ("english", "code", "multi"):
        text = corpora(name)[:80_000]
        assert tokenizer.encode(text) == oracle.encode_ordinary(text)


def test_published_vocabularies_equal_tiktoken_on_any_text(published: Any) -> None:
    tokenizer, oracle = published

    @settings(max_examples=examples(200))
    @given(st.one_of(ANY_TEXT, MARKS, st.text(st.sampled_from("aA'sS 1\n\r\t.,!é世ſK"))))
    def check(text: str) -> None:
        ids = oracle.encode_ordinary(text)
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(ids, errors="strict") == text

    check()


def test_published_vocabularies_equal_tiktoken_on_characters_of_other_unicodes(
    published: Any,
) -> None:
    """Of these, releases of `regex` since 2022 disagree; so ids must not be theirs."""
    tokenizer, oracle = published
    codes = [*range(0x1C80, 0x1C90), *range(0xA7C8, 0xA7F0), *range(0x10D40, 0x10D90)]
    codes += [0x295, 0x558, 0x897, *range(0x1CCD6, 0x1CD00), *range(0x323A0, 0x33480, 7)]
    for char in map(chr, codes):
        for text in (f"a{char}'L1", f"{char}'s {char}A", f" {char}{char}1\n{char}"):
            assert tokenizer.encode(text) == oracle.encode_ordinary(text), ascii(text)


def test_published_special_tokens_equal_tiktoken(published: Any) -> None:
    tokenizer, oracle = published
    special = sorted(oracle.special_tokens_set)
    text = "a b".join(special) + " c" + "".join(special)
    assert tokenizer.encode(text) == oracle.encode_ordinary(text)
    expected = oracle.encode(text, allowed_special="all")
    assert tokenizer.encode(text, allowed_special="all") == expected
    expected = oracle.encode(text, allowed_special={special[0]}, disallowed_special=())
    assert tokenizer.encode(text, allowed_special={special[0]}) == expected


# -- Round trips --------------------------------------------------------------


@pytest.mark.parametrize("form", [*FORMS, None])
@pytest.mark.parametrize("pattern", sorted(bpe.SPLIT_PATTERNS))
def test_decode_undoes_encode(pattern: str, form: str | None) -> None:
    tokenizer = BPETokenizer(pattern, normalizer=form)
    tokenizer.train(SAMPLE * 2, 400, verbose=False, num_workers=1)

    @settings(max_examples=examples(60))
    @given(st.one_of(ANY_TEXT, MARKS))
    def check(text: str) -> None:
        expected = bpe._normalize(text, form)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids, errors="strict") == expected
        assert tokenizer.decode_bytes(ids) == expected.encode()
        assert tokenizer.convert_tokens_to_string(tokenizer.tokenize(text)) == expected
        assert tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) == ids
        assert tokenizer.count_tokens(text) == len(ids)

    check()


def test_a_pattern_that_searches_backwards_is_refused() -> None:
    with pytest.raises(ValueError, match=r"searches backwards; drop \(\?r\)"):
        BPETokenizer(r"(?r)a+")


@pytest.mark.parametrize("pattern", [r"[a-z]+", r"\d", r"x*", r"(?=a)", r"(a)(b)?", "|"])
def test_text_no_alternative_matches_is_kept(pattern: str) -> None:
    tokenizer = BPETokenizer(pattern, normalizer=None)
    for text in (SAMPLE, "ab1ba aab", "\U0010ffff\x00a"):
        assert tokenizer.decode(tokenizer.encode(text), errors="strict") == text


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        " " * 1_000_000,
        "\n" * 300_000,
        "世" * 300_000,
        base64.b64encode(random.Random(0).randbytes(300_000)).decode(),
    ],
    ids=["letter", "spaces", "newlines", "cjk", "base64"],
)
def test_long_runs_encode(trained: BPETokenizer, text: str) -> None:
    assert trained.decode(trained.encode(text), errors="strict") == text


# -- Bad input ----------------------------------------------------------------


@pytest.mark.parametrize("text", ["\ud800", "ab\udfffc", "<|end_of_text|>\ud83d", "\ude00\ud83d"])
def test_a_lone_surrogate_is_a_clear_error(trained: BPETokenizer, text: str) -> None:
    calls = [
        trained.encode,
        trained.count_tokens,
        trained.encode_with_offsets,
        trained.tokenize,
        trained.encode_ordinary,
        lambda text: trained.encode(text, allowed_special="all"),
        lambda text: trained.encode_batch(["ok", text]),
        lambda text: trained.truncate(text, 50),
        lambda text: list(trained.encode_streaming(["ok ", text])),
        lambda text: trained.apply_chat_template(
            [{"role": "user", "content": text}], template="alpaca"
        ),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="surrogate"):
            call(text)


@pytest.mark.parametrize("text", [None, 5, b"ab", ["ab"], 1.5, True])
def test_text_of_a_wrong_type_is_a_type_error(trained: BPETokenizer, text: Any) -> None:
    calls = [
        trained.encode,
        trained.count_tokens,
        trained.encode_with_offsets,
        trained.encode_ordinary,
        trained.tokenize,
        lambda text: trained.truncate(text, 3),
        lambda text: list(trained.encode_streaming([text])),
        lambda text: trained.encode_batch(["ok", text]),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call(text)


@pytest.mark.parametrize("texts", ["ab", b"ab", None, 5])
def test_a_batch_must_be_a_list(trained: BPETokenizer, texts: Any) -> None:
    with pytest.raises(TypeError):
        trained.encode_batch(texts)


@pytest.mark.parametrize("stream", ["ab", b"ab", None, 5])
def test_a_stream_must_be_an_iterable_of_strings(trained: BPETokenizer, stream: Any) -> None:
    with pytest.raises(TypeError):
        list(trained.encode_streaming(stream))


@pytest.mark.parametrize(
    "ids", [[1.0], [1.5], ["a"], "ab", b"ab", [None], [[1]], None, 1.0, [b"a"], {"a": 1}]
)
def test_ids_of_a_wrong_type_are_a_type_error(trained: BPETokenizer, ids: Any) -> None:
    for errors in ("strict", "replace", "ignore"):
        with pytest.raises(TypeError):
            trained.decode(ids, errors=errors)
        with pytest.raises(TypeError):
            trained.decode_bytes(ids, errors=errors)
    with pytest.raises(TypeError):
        trained.convert_ids_to_tokens(ids)
    with pytest.raises(TypeError):
        trained.decode_batch([[1], ids] if ids is not None else None)


@pytest.mark.parametrize("unknown", [-1, 600, 2**31, 2**70, -(2**70)])
def test_an_unknown_id_follows_errors(trained: BPETokenizer, unknown: int) -> None:
    ids = [*trained.encode("ab"), unknown, *trained.encode("c")]
    with pytest.raises(ValueError, match=str(unknown)):
        trained.decode(ids, errors="strict")
    with pytest.raises(ValueError, match=str(unknown)):
        trained.decode_bytes(ids)
    assert trained.convert_ids_to_tokens(ids) == [*trained.tokenize("ab"), "", "c"]
    assert trained.convert_ids_to_tokens(unknown) == ""
    assert trained.decode(ids) == trained.decode(ids, errors="replace") == "ab\ufffdc"
    assert trained.decode(ids, errors="ignore") == "abc"


def test_ids_out_of_range_do_not_hide_in_any_array_type(trained: BPETokenizer) -> None:
    numpy = need("numpy")
    with pytest.raises(ValueError, match="4294967295"):
        trained.decode(numpy.array([2**32 - 1], dtype=numpy.uint32), errors="strict")
    with pytest.raises(TypeError):
        trained.decode(numpy.array([1.0]))


def test_broken_utf8_follows_errors(trained: BPETokenizer) -> None:
    ids = [0x61, 0xE4, 0xB8, 0x62, 0xFF]
    with pytest.raises(ValueError):
        trained.decode(ids, errors="strict")
    assert trained.decode(ids) == bytes(ids).decode("utf-8", "replace")
    assert trained.decode(ids, errors="ignore") == "ab"
    assert trained.decode_bytes(ids) == bytes(ids)
    assert trained.decode_bytes(ids, errors="replace") == bytes(ids)


@pytest.mark.parametrize("errors", ["", "Strict", "backslashreplace", "surrogateescape", None, 1])
def test_other_error_modes_are_refused(trained: BPETokenizer, errors: Any) -> None:
    for call in (trained.decode, trained.decode_bytes):
        with pytest.raises(ValueError, match="errors"):
            call([97], errors=errors)
    with pytest.raises(ValueError, match="errors"):
        trained.decode_streaming([97], errors=errors)


@settings(max_examples=examples(150))
@given(st.lists(st.integers(-3, 700), max_size=12), st.sampled_from(["replace", "ignore"]))
def test_decoding_any_ids_never_fails_when_errors_may_not(
    trained: BPETokenizer, ids: list[int], errors: str
) -> None:
    vocab = {id_: token for token, id_ in trained.get_vocab().items()}
    unknown = "\ufffd" if errors == "replace" else ""
    char_to_byte = bpe.build_char_to_byte()
    joined = b"".join(
        bytes(map(char_to_byte.__getitem__, vocab[id_])) if id_ in vocab else unknown.encode()
        for id_ in ids
        if id_ not in trained.special_tokens.values()
    )
    text = trained.decode(ids, errors=errors, skip_special_tokens=True)
    assert text == joined.decode("utf-8", errors)


def test_ids_come_in_any_array(trained: BPETokenizer) -> None:
    numpy, torch = need("numpy"), need("torch")
    ids = trained.encode(SAMPLE)
    text = trained.decode(ids)
    for given_ids in (
        tuple(ids),
        iter(ids),
        numpy.array(ids),
        *[numpy.array(ids, dtype=kind) for kind in ("uint16", "int32", "uint32", ">i4", "uint64")],
        numpy.repeat(ids, 2)[::2],
        numpy.array(ids)[::-1][::-1],
        numpy.array(ids, dtype=object),
        list(numpy.array(ids)),
        torch.tensor(ids),
        list(torch.tensor(ids)),
    ):
        assert trained.decode(given_ids, errors="strict") == text
    with pytest.raises(TypeError, match="ids must be a sequence of integers"):
        trained.decode(numpy.array(["2026-11-23"], dtype="datetime64[D]"))
    assert trained.decode(97) == trained.decode(numpy.int64(97)) == trained.decode(torch.tensor(97))
    assert trained.decode([]) == trained.decode(numpy.array([], dtype=numpy.int64)) == ""
    batch = trained.encode_batch([SAMPLE, "ab"], padding=True, return_tensors="pt")
    expected = [text, "ab"]
    assert trained.decode_batch(batch) == expected
    assert trained.decode_batch(batch["input_ids"]) == expected
    assert trained.decode_batch(batch["input_ids"].numpy()) == expected
    assert trained.decode_batch([*batch["input_ids"].numpy()]) == expected
    assert trained.decode_batch(numpy.array([97, 98])) == ["a", "b"]
    assert trained.decode_batch(numpy.asfortranarray(batch["input_ids"].numpy())) == expected
    with pytest.raises(TypeError):
        trained.decode(batch["input_ids"])  # two dimensions


def test_encode_to_numpy(trained: BPETokenizer) -> None:
    numpy = need("numpy")
    array = trained.encode_to_numpy(SAMPLE, add_special_tokens=True)
    assert array.dtype == numpy.uint32
    assert array.tolist() == trained.encode(SAMPLE, add_special_tokens=True)
    assert trained.encode_to_numpy("").shape == (0,)


# -- The cache ----------------------------------------------------------------


def test_the_cache_counts_and_clears() -> None:
    tokenizer = BPETokenizer().train("low lower " * 9, 260, verbose=False, num_workers=1)
    assert tokenizer.get_cache_stats() == {"hits": 0, "misses": 0, "size": 0, "hit_rate_pct": 0}
    tokenizer.encode("low low low lower")
    stats = tokenizer.get_cache_stats()
    assert stats == {"hits": 1, "misses": 3, "size": 3, "hit_rate_pct": 25}
    tokenizer.clear_cache()
    assert tokenizer.get_cache_stats() == {"hits": 0, "misses": 0, "size": 0, "hit_rate_pct": 0}
    assert tokenizer.decode(tokenizer.encode("low lower")) == "low lower"


def test_the_cache_is_bounded() -> None:
    tokenizer = BPETokenizer()
    sizes = []
    for start in range(0, 400_000, 50_000):
        tokenizer.count_tokens(" ".join(map(str, range(start, start + 50_000))))
        sizes.append(tokenizer.get_cache_stats()["size"])
    assert max(sizes) < 300_000
    assert tokenizer.get_cache_stats()["misses"] >= 400_000
    assert tokenizer.decode(tokenizer.encode("123 399999")) == "123 399999"


def test_the_cache_keeps_no_long_pretokens() -> None:
    tokenizer = BPETokenizer()
    for letter in "abcdef":
        tokenizer.encode(letter * 10_000)
    assert tokenizer.get_cache_stats()["size"] == 0


# -- Offsets ------------------------------------------------------------------


def oracle_of(tokenizer: BPETokenizer, folder: Path) -> Any:
    tokenizers = need("tokenizers")
    tokenizer.save(folder, verbose=False)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def assert_offsets_equal(tokenizer: BPETokenizer, oracle: Any, text: str) -> None:
    expected = oracle.encode(text, add_special_tokens=False)
    result = tokenizer.encode_with_offsets(text, allowed_special="all")
    assert result.input_ids == expected.ids
    assert result.offsets == expected.offsets
    assert result.tokens == expected.tokens


def train_for_offsets(pattern: str, form: str | None) -> BPETokenizer:
    tokenizer = BPETokenizer(pattern, normalizer=form)
    return tokenizer.train(SAMPLE * 2, 500, special_tokens=["<|x|>"], verbose=False, num_workers=1)


@pytest.mark.parametrize("pattern", sorted(bpe.SPLIT_PATTERNS))
def test_offsets_equal_huggingface_for_every_pattern(tmp_path: Path, pattern: str) -> None:
    tokenizer = train_for_offsets(pattern, "NFC")
    oracle = oracle_of(tokenizer, tmp_path)
    for text in (
        "",
        " ",
        "plain ASCII text, isn't it?",
        SAMPLE,
        "🙂<|x|>a\n<|x|>",
        "e\u0301 <|x|>é",
    ):
        assert_offsets_equal(tokenizer, oracle, text)


@pytest.mark.parametrize("form", [*FORMS, None])
def test_offsets_equal_huggingface_for_every_normalizer(tmp_path: Path, form: str | None) -> None:
    tokenizer = train_for_offsets("llama3", form)
    oracle = oracle_of(tokenizer, tmp_path)

    @settings(max_examples=examples(200))
    @given(st.one_of(ANY_TEXT, MARKS, st.lists(st.sampled_from(["<|x|>", "é", "e\u0301", " a"]))))
    @example("e\u0323\u0301")
    @example("e\u0301\u0323")
    @example("각ᄀ\u1161\u11a8")
    @example("\u0301a<|x|>\u0301")
    def check(text: str | list[str]) -> None:
        assert_offsets_equal(tokenizer, oracle, "".join(text))

    check()


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("prefix_space", [True, False])
def test_offsets_equal_huggingface_with_trimming_and_prefix_space(
    tmp_path: Path, trim: bool, prefix_space: bool
) -> None:
    tokenizers = need("tokenizers")
    tokenizer = train_for_offsets("gpt2", None)
    tokenizer.save(tmp_path, verbose=False)
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    flags = {"add_prefix_space": prefix_space, "trim_offsets": trim, "use_regex": True}
    data["pre_tokenizer"] = {"type": "ByteLevel", **flags}
    data["post_processor"] = {"type": "ByteLevel", **flags}
    tokenizer = load(tmp_path, json.dumps(data))
    oracle = tokenizers.Tokenizer.from_file(str(path))

    @settings(max_examples=examples(200))
    @given(st.lists(st.sampled_from(["<|x|>", "é", " ", "  a", "b", "\n", "\u3000", "世", "🙂"])))
    @example(["  a  b "])
    @example(["<|x|>", "  a"])
    @example(["<|x|>", "a"])
    def check(parts: list[str]) -> None:
        assert_offsets_equal(tokenizer, oracle, "".join(parts))

    check()


def test_special_tokens_around_a_text_have_empty_offsets(trained: BPETokenizer) -> None:
    result = trained.encode_with_offsets("a b", add_special_tokens=True)
    assert result.offsets == [(0, 0), (0, 1), (1, 3), (0, 0)]
    ends = [result.input_ids[0], result.input_ids[-1]]
    assert ends == [trained.bos_token_id, trained.eos_token_id]
    assert len(result) == len(result.input_ids) == 4


# -- Batches ------------------------------------------------------------------

TEXTS = ["", "a", "isn't 12345 lazy", "世界 <|end_of_text|> e\u0301", SAMPLE[:80]]


@pytest.fixture(scope="module")
def transformers_twin(engine: str, trained: BPETokenizer, tmp_path_factory: Any) -> Any:
    transformers = need("transformers")
    folder = tmp_path_factory.mktemp("twin")
    trained.save(folder, verbose=False)
    return transformers.AutoTokenizer.from_pretrained(str(folder))


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("tensors", [None, "np", "pt"])
def test_batches_equal_transformers(
    trained: BPETokenizer, transformers_twin: Any, tensors: str | None, special: bool
) -> None:
    if tensors == "pt":
        need("torch")
    for padding, side, limit, cut in [
        (True, "right", None, "right"),
        ("longest", "left", None, "right"),
        ("longest", "left", 6, "right"),
        (True, "right", 6, "left"),
        ("max_length", "right", 40, "right"),
        ("max_length", "left", 8, "left"),
        ("max_length", "right", 2, "right"),
        (False, "right", 7, "left"),
        ("do_not_pad", "right", None, "right"),
    ]:
        if tensors and padding in (False, "do_not_pad"):
            continue
        for multiple in (None, 1, 4, 7):
            if limit and multiple and (limit % multiple or not padding):
                continue  # refused there
            options = {
                "add_special_tokens": special,
                "padding": padding,
                "truncation": limit is not None,
                "max_length": limit,
                "padding_side": side,
                "pad_to_multiple_of": multiple if padding not in (False, "do_not_pad") else None,
                "return_tensors": tensors,
            }
            assert_batch_equal(trained, transformers_twin, cut, options)


def assert_batch_equal(tokenizer: BPETokenizer, twin: Any, cut: str, options: Any) -> None:
    twin.truncation_side = cut
    expected = twin(TEXTS, return_offsets_mapping=True, **options)
    batch = tokenizer(TEXTS, allowed_special="all", truncation_side=cut, **options)
    bare = tokenizer.encode_batch(
        TEXTS, allowed_special="all", truncation_side=cut, return_offsets=False, **options
    )
    for key in ("input_ids", "attention_mask"):
        assert type(batch[key]) is type(expected[key])
        if options["return_tensors"]:
            assert batch[key].dtype == expected[key].dtype
            assert batch[key].tolist() == bare[key].tolist() == expected[key].tolist()
        else:
            assert batch[key] == bare[key] == expected[key]
    assert as_pairs(batch.offsets) == as_pairs(expected["offset_mapping"])
    assert batch.tokens == [expected.tokens(i) for i in range(len(TEXTS))]


def as_pairs(offsets: Any) -> list[list[tuple[int, int]]]:
    rows = offsets if isinstance(offsets, list) else offsets.tolist()
    return [[tuple(pair) for pair in row] for row in rows]


def test_special_tokens_survive_truncation(trained: BPETokenizer) -> None:
    ends = [trained.bos_token_id, trained.eos_token_id]
    for side in ("left", "right"):
        options = {"truncation": True, "max_length": 3, "truncation_side": side}
        row = trained.encode_batch([SAMPLE], add_special_tokens=True, **options)[0]
        assert len(row) == 3 and row.input_ids[::2] == ends
    row = trained.encode_batch(["ab"], add_special_tokens=True, truncation=True, max_length=2)[0]
    assert row.input_ids == ends
    for room in (0, 1):
        with pytest.raises(ValueError, match=f"max_length={room} leaves no room for 2 special"):
            trained.encode_batch(["ab"], add_special_tokens=True, truncation=True, max_length=room)


def test_padding_without_a_pad_token_warns_once() -> None:
    tokenizer = BPETokenizer()
    with pytest.warns(UserWarning, match="pad_token"):
        batch = tokenizer.encode_batch(["abc", "a"], padding=True)
    assert batch["input_ids"] == [[97, 98, 99], [97, 0, 0]]
    assert batch["attention_mask"] == [[1, 1, 1], [1, 0, 0]]
    assert tokenizer.decode_batch(batch) == ["abc", "a"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenizer.encode_batch(["abc", "a"], padding=True)


def test_padding_falls_back_to_eos() -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["</s>"])
    with pytest.warns(UserWarning, match="256"):
        batch = tokenizer.encode_batch(["abc", "a"], padding=True, padding_side="left")
    assert batch["input_ids"] == [[97, 98, 99], [256, 256, 97]]
    assert batch["attention_mask"] == [[1, 1, 1], [0, 0, 1]]


def roles(pad: str) -> BPETokenizer:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["<s>", "</s>", "<pad>"])  # 256, 257 and 258
    tokenizer.pad_token = pad
    return tokenizer


@pytest.mark.parametrize("pad", ["</s>", "<pad>"])
def test_padding_is_left_out_at_the_ends_only(pad: str) -> None:
    tokenizer = roles(pad)
    fill = tokenizer.pad_token_id
    rows = [
        ([72, fill, 105, fill, fill], f"H{pad}i"),
        ([fill, fill, 72, fill, fill, 105], f"H{pad}{pad}i"),
        ([72, 105], "Hi"),
        ([fill, fill], ""),
        ([], ""),
        ([256, 72, 105, fill], "<s>Hi"),
    ]
    given, expected = [ids for ids, _ in rows], [text for _, text in rows]
    assert tokenizer.decode_batch(given) == expected
    assert tokenizer.decode_batch(given, skip_special_tokens=True) == [
        text.replace(pad, "").replace("<s>", "") for text in expected
    ]
    whole = tokenizer.decode_batch(given, skip_padding=False)
    assert whole == [tokenizer.decode(ids) for ids in given]
    numpy = need("numpy")
    assert tokenizer.decode_batch(numpy.array(given[:1])) == expected[:1]
    arrays = [numpy.array(ids, dtype="int64") for ids in given]
    assert tokenizer.decode_batch(arrays) == expected
    assert tokenizer.decode_batch(arrays, skip_padding=False) == whole


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("tensors", [None, "np", "pt"])
def test_a_mask_tells_padding_from_a_texts_own_eos(side: str, tensors: str | None) -> None:
    if tensors:
        need({"np": "numpy", "pt": "torch"}[tensors])
    tokenizer = roles("</s>")
    texts = ["Hi</s>", "a longer text</s>", "</s>Hi", ""]
    batch = tokenizer(
        texts, allowed_special="all", padding=True, padding_side=side, return_tensors=tensors
    )
    assert tokenizer.decode_batch(batch) == texts
    assert tokenizer.decode_batch(dict(batch)) == texts  # of whatever library
    whole = tokenizer.decode_batch(batch, skip_padding=False)
    assert whole == tokenizer.decode_batch(batch.input_ids, skip_padding=False) != texts
    assert tokenizer.decode_batch({"input_ids": batch["input_ids"]}) == [
        text.removesuffix("</s>").removeprefix("</s>") for text in texts
    ]


def test_padding_that_adds_nothing_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BPETokenizer().encode_batch(["abc", "abd"], padding=True)


@pytest.mark.parametrize(
    "options",
    [
        {"padding": "short"},
        {"truncation": "short"},
        {"truncation": True, "max_length": 6, "padding": True, "pad_to_multiple_of": 4},
        {"max_length": -1, "truncation": True},
        {"padding": True, "padding_side": "middle"},
        {"truncation_side": "up"},
        {"return_tensors": "tf"},
        {"padding": True, "pad_to_multiple_of": 0},
        {"padding": True, "pad_to_multiple_of": -3},
        {"allowed_special": "some"},
        {"allowed_special": {"<|nothing|>"}},
        {"return_tensors": "np"},  # ragged
    ],
)
def test_bad_batch_options_are_refused(trained: BPETokenizer, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        trained.encode_batch(["abc d", "a"], **options)


@pytest.mark.parametrize(
    "options",
    [
        {"truncation": True, "max_length": "5"},
        {"truncation": True, "max_length": 5.0},
        {"padding": "max_length", "max_length": 5.5},
        {"padding": True, "pad_to_multiple_of": "4"},
        {"padding": True, "pad_to_multiple_of": 2.5},
        {"padding": None},
        {"padding": []},
        {"truncation": "sometimes", "max_length": 3},
    ],
)
def test_batch_options_of_a_wrong_type_are_refused(trained: Any, options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        trained.encode_batch(["abc d " * 9, "a"], **options)


def test_a_call_is_encode_or_encode_batch(trained: BPETokenizer) -> None:
    text = "a<|end_of_text|>b"
    assert trained(text) == trained.encode(text)
    options = {"add_special_tokens": True, "allowed_special": "all"}
    assert trained(text, **options) == trained.encode(text, True, "all")
    assert trained([text]).input_ids == trained.encode_batch([text]).input_ids
    rows = trained([text, "a"], add_special_tokens=True, padding=True).input_ids
    assert rows == trained.encode_batch([text, "a"], True, padding=True).input_ids


def test_threads_that_share_a_tokenizer_get_their_own_options(trained: BPETokenizer) -> None:
    tokenizer = copy.copy(trained)
    wrong: list[str] = []

    def work(length: int) -> None:
        options = {
            "truncation": True,
            "padding": "max_length",
            "max_length": length,
            "padding_side": "left" if length % 2 else "right",
            "truncation_side": "left" if length % 3 else "right",
            "allowed_special": "all" if length % 2 else "none",
        }
        expected = copy.copy(trained).encode_batch(TEXTS, **options).input_ids
        for _ in range(15):
            if tokenizer.encode_batch(TEXTS, **options).input_ids != expected:
                wrong.append(f"max_length={length}")
            if {len(row) for row in tokenizer.encode_batch(TEXTS, **options)} != {length}:
                wrong.append(f"length of max_length={length}")
            if tokenizer.decode(tokenizer.encode(str(length) * 40)) != str(length) * 40:
                wrong.append(f"decode {length}")

    threads = [threading.Thread(target=work, args=(length,)) for length in range(1, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- Counting and truncating --------------------------------------------------


@settings(max_examples=examples(150))
@given(st.lists(st.one_of(ANY_TEXT, st.sampled_from(["<|end_of_text|>", "<|begin_of_text|>"]))))
def test_counting_equals_encoding(trained: BPETokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    for special in (True, False):
        for allowed in ("none", "all", {"<|end_of_text|>"}):
            ids = trained.encode(text, special, allowed)
            assert trained.count_tokens(text, special, allowed) == len(ids)


def truncating_tokenizers() -> dict[str, BPETokenizer]:
    tokenizers = {}
    for pattern in bpe.SPLIT_PATTERNS:
        tokenizer = BPETokenizer(pattern)
        tokenizer.train(SAMPLE * 2, 500, special_tokens=["<s>"], verbose=False, num_workers=1)
        tokenizers[pattern] = tokenizer
    added = copy.deepcopy(tokenizers["llama3"])
    added.add_special_tokens(
        [
            AddedToken("é!", special=False, lstrip=True),
            AddedToken("世", special=False, normalized=True, rstrip=True),
            AddedToken("<s>a", special=False, single_word=True),
        ]
    )
    return {**tokenizers, "added": added, "bytes": BPETokenizer(normalizer="NFD")}


TRUNCATING = truncating_tokenizers()


@settings(max_examples=examples(300))
@given(
    st.sampled_from(sorted(TRUNCATING)),
    st.one_of(ANY_TEXT, MARKS, st.text(st.sampled_from("isn't 12345\r\n\t é!世🙂<s>a"))),
    st.integers(0, 40),
    st.booleans(),
)
@example("cl100k", "a  \n ", 2, False)
@example("bytes", "🙂🙂", 6, False)
@example("cl100k", "1234567", 2, False)
def test_truncation_gives_a_prefix_that_fits(
    name: str, text: str, limit: int, special: bool
) -> None:
    tokenizer = TRUNCATING[name]
    form = tokenizer.normalizer
    prefix = tokenizer.truncate(text, limit, add_special_tokens=special)
    if name != "added":  # added tokens part the text before it is normalized
        assert bpe._normalize(text, form or "NFC").startswith(prefix)
    room = tokenizer.count_tokens(text, add_special_tokens=special)
    if prefix:
        assert tokenizer.count_tokens(prefix, add_special_tokens=special) <= limit
    if room <= limit:
        assert prefix == tokenizer.decode(tokenizer.encode(text)) or name == "added"


@settings(max_examples=examples(150))
@given(
    st.sampled_from(sorted(TRUNCATING)),
    st.one_of(ANY_TEXT, st.text(st.sampled_from("isn't 12345\r\n\t é!世🙂<s>a"))),
    st.integers(0, 30),
    st.sampled_from([0, 1, 50]),
)
def test_truncation_is_what_it_says(name: str, text: str, limit: int, times: int) -> None:
    """The longest beginning that ends as one of the first tokens does, and fits."""
    tokenizer = TRUNCATING[name]
    text = unicodedata.normalize(tokenizer.normalizer or "NFC", text + (text + " é, ") * times)
    places = tokenizer.encode_with_offsets(text).offsets or []
    ends = [0, *sorted(end for _, end in places[:limit])]
    while ends[-1] and tokenizer.count_tokens(text[: ends[-1]]) > limit:
        ends.pop()
    expected = text if len(places) <= limit else text[: ends[-1]]
    assert tokenizer.truncate(text, limit) == expected


NFC = sorted({*TRUNCATING} - {"added", "bytes"})  # these normalize all text first


@settings(max_examples=examples(100))
@given(
    st.sampled_from(NFC),
    st.one_of(ANY_TEXT, MARKS),
    st.sampled_from(["é, ", "中", "각", "\u1100", "é" + "\u0301" * 9, "\u0301"]),
    st.sampled_from(["e\u0301", "\u0301", "=\u0338", "\u1161", "\u1100\u1161", "\u212b", "\u0378"]),
    st.integers(0, 30),
)
def test_truncation_of_text_that_normalization_changes_later(
    name: str, text: str, filler: str, changed: str, limit: int
) -> None:
    """Only the beginning is looked at, if that is enough."""
    tokenizer = TRUNCATING[name]
    text = unicodedata.normalize("NFC", text) + filler * 500 + changed
    expected = tokenizer.truncate(unicodedata.normalize("NFC", text), limit)
    assert tokenizer.truncate(text, limit) == expected


@pytest.mark.parametrize("before", ["a", "é", "é " * 5_000, "🙂" * 99])
def test_a_surrogate_is_not_truncated_away(before: str) -> None:
    """Where there is room for it, that is; nobody looks at all of a long text."""
    with pytest.raises(ValueError, match="surrogate U"):
        BPETokenizer(normalizer=None).truncate(before + "\ud800", 9 * len(before))


def test_truncation_keeps_as_much_as_fits() -> None:
    tokenizer = BPETokenizer()
    assert tokenizer.truncate("abcdef", 4) == "abcd"
    assert tokenizer.truncate("ab🙂", 5) == "ab"
    assert tokenizer.truncate("ab🙂", 6) == "ab🙂"
    assert tokenizer.truncate("ab", 0) == ""
    with pytest.raises(ValueError):
        tokenizer.truncate("ab", -1)
    with pytest.raises(TypeError):
        tokenizer.truncate("ab", "2")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        tokenizer.truncate("ab", 1.5)  # type: ignore[arg-type]


def test_truncation_of_a_prefix_space_tokenizer(tmp_path: Path) -> None:
    tokenizer = train_for_offsets("gpt2", None)
    tokenizer.save(tmp_path, verbose=False)
    data = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    data["pre_tokenizer"]["add_prefix_space"] = True
    tokenizer = load(tmp_path, json.dumps(data))
    for text in ("abc def", " abc", "世界", "", "\nabc"):
        for limit in range(8):
            prefix = tokenizer.truncate(text, limit)
            assert text.startswith(prefix)
            assert not prefix or tokenizer.count_tokens(prefix) <= limit
        assert tokenizer.truncate(text, 100) == text
