"""GGUF: the vocabularies of llama.cpp, files of our own, and damaged ones."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import random
import re
import struct
import subprocess
import sys
import tracemalloc
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer, FileFormatError
from bpe_tokenizer_tools.checking.conformance import CONFORMANCE_TEXTS, RUN_TEXTS, conformance_texts
from bpe_tokenizer_tools.formats import gguf
from bpe_tokenizer_tools.patterns.families import FAMILIES
from bpe_tokenizer_tools.patterns.known import SPELLINGS

# Small vocabularies lose most characters, and say so when they are loaded.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")


def load(path: Path, **options: Any) -> BPETokenizer:
    return BPETokenizer.from_file(path, **options)


# -- A writer of its own, so that the reader is not tested by its twin --------

U8, I8, U32, I32, F32, BOOL, STR, ARR, U64, I64 = 0, 1, 4, 5, 6, 7, 8, 9, 10, 11
FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


def pack_value(kind: int, value: Any) -> bytes:
    if kind == STR:
        data = value if isinstance(value, bytes) else value.encode()
        return struct.pack("<Q", len(data)) + data
    if kind == ARR:
        element, values = value
        head = struct.pack("<IQ", element, len(values))
        return head + b"".join(pack_value(element, item) for item in values)
    return struct.pack("<" + FORMS[kind], value)


def pack(values: dict[str, tuple[int, Any]], version: int = 3, tensors: int = 0) -> bytes:
    out = [b"GGUF", struct.pack("<IQQ", version, tensors, len(values))]
    for key, (kind, value) in values.items():
        out += [pack_value(STR, key), struct.pack("<I", kind), pack_value(kind, value)]
    return b"".join(out)


ALPHABET = [bpe_tokenizer._to_printable(bytes([byte])) for byte in range(256)]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "3 3"]


def small(**changes: tuple[int, Any] | None) -> dict[str, tuple[int, Any]]:
    """The keys of a byte-level vocabulary; keyword arguments replace or (None) leave out some."""
    tokens = [*ALPHABET, *(merge.replace(" ", "") for merge in MERGES), "<s>", "</s>", "<sep>"]
    kinds = [1] * (256 + len(MERGES)) + [3, 3, 4]
    values: dict[str, tuple[int, Any]] = {
        "general.architecture": (STR, "llama"),
        "general.alignment": (U32, 32),
        "tokenizer.ggml.model": (STR, "gpt2"),
        "tokenizer.ggml.pre": (STR, "gpt-2"),
        "tokenizer.ggml.tokens": (ARR, (STR, tokens)),
        "tokenizer.ggml.token_type": (ARR, (I32, kinds)),
        "tokenizer.ggml.merges": (ARR, (STR, MERGES)),
        "tokenizer.ggml.bos_token_id": (U32, 266),
        "tokenizer.ggml.eos_token_id": (U32, 267),
    }
    for name, value in changes.items():
        key = name.replace("__", ".")
        key = key if key.startswith("general") else f"tokenizer.{key}"
        values[key] = value  # type: ignore[assignment]
    return {key: value for key, value in values.items() if value is not None}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(data: dict[str, tuple[int, Any]] | bytes, **options: Any) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(data if isinstance(data, bytes) else pack(data, **options))
        return path

    return write


# -- What llama.cpp comes with ------------------------------------------------


@pytest.fixture
def models(llama_cpp_source: Path) -> Path:
    """The folder of ggml-vocab-*.gguf files, with their .inp and .out."""
    return llama_cpp_source / "models"


# name -> (id of bos, what add_special_tokens puts first); None: the file has no reference ids.
VENDORED = [
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
]
# Where the reference ids are not those of the model's own tokenizer, and why.
NOT_THE_MODELS_OWN = {
    # Qwen's tokenizers bring text to NFC (transformers, tokenization_qwen3_5.py);
    # llama.cpp does not.
    "qwen35": lambda text: unicodedata.normalize("NFC", text) != text,
}


def reference(path: Path) -> list[tuple[str, list[int]]]:
    texts = Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text().splitlines()
    assert len(lines) >= 46 and len(texts) - len(lines) in (0, 1)  # one may be empty, at the end
    return [(text, [int(id_) for id_ in line.split()]) for text, line in zip(texts, lines)]


@pytest.mark.slow
@pytest.mark.parametrize("name", VENDORED)
def test_llama_cpp_vocabularies_give_their_reference_ids(models: Path, name: str) -> None:
    tokenizer = load(models / f"ggml-vocab-{name}.gguf")
    differs = NOT_THE_MODELS_OWN.get(name, lambda text: False)
    pairs = reference(models / f"ggml-vocab-{name}.gguf")
    for text, ids in pairs:
        if differs(text):
            assert tokenizer.encode(text) != ids
            own = unicodedata.normalize("NFC", text)
            assert tokenizer.encode(text) == tokenizer.encode(own)
        else:
            assert tokenizer.encode(text) == ids, text
            assert tokenizer.decode(ids) == text.removeprefix("" if ids else text)
    assert sum(not differs(text) for text, _ in pairs) >= 45


@pytest.mark.parametrize(
    "name, field, problem",
    [
        ("bert-bge", "tokenizer.ggml.model", "'bert' is not supported"),
        ("nomic-bert-moe", "tokenizer.ggml.model", "'t5' is not supported"),
        ("aquila", "tokenizer.ggml.pre", "is missing, .*as split_pattern"),
        ("gpt-neox", "tokenizer.ggml.pre", "is missing, .*as split_pattern"),
    ],
)
def test_llama_cpp_vocabularies_that_are_refused(
    models: Path, name: str, field: str, problem: str
) -> None:
    with pytest.raises(FileFormatError, match=problem) as caught:
        load(models / f"ggml-vocab-{name}.gguf")
    assert caught.value.field == field


def test_equal_scores_that_do_not_matter(models: Path) -> None:
    path = models / "ggml-vocab-baichuan.gguf"
    tokenizer, peer = load(path), llama(path)
    words = [token.replace("▁", " ") for token in tokenizer.get_vocab()]
    zero = words[3:656]  # all of one score: tags, digits, years
    generator = random.Random(0)
    for _ in range(1000):
        mixed = generator.choices(zero, k=4) + generator.choices(words, k=3)
        text = "".join(generator.sample(mixed, 7))
        assert tokenizer.encode(text) == peer(text), text


def test_every_vendored_vocabulary_is_tested(models: Path) -> None:
    names = {path.name[len("ggml-vocab-") : -len(".gguf")] for path in models.glob("*.gguf")}
    assert names == {*VENDORED, "bert-bge", "nomic-bert-moe", "aquila", "gpt-neox", "baichuan"}


def test_a_file_without_pre_is_read_with_the_pattern_given(models: Path) -> None:
    path = models / "ggml-vocab-gpt-neox.gguf"  # the tokens of MPT, which names its pattern
    tokenizer = load(path, split_pattern="gpt2")
    for text, ids in reference(models / "ggml-vocab-mpt.gguf"):
        assert tokenizer.encode(text) == ids


# -- Files written here, read by llama.cpp ------------------------------------

# llama.cpp's tables are of another Unicode version than Python's, and it takes
# "s" for the one letter that (?i:s) has besides: these characters say nothing.
CHARS = st.one_of(
    st.sampled_from(" \n\t\r'sStTlLreE019.,!/<>|_"),
    st.characters(
        max_codepoint=0x2FFF, exclude_categories=("Cs", "Cn", "Co"), exclude_characters="ſ"
    ),
    st.sampled_from("　、中文字符かなカナ한국어🙂👩‍👧🇫🇷"),
)
WORDS = st.sampled_from(["the ", " of", "    ", "don't", "I'LL", "1234567", "\n\n", "  \n ", "été"])
TEXT = st.lists(st.one_of(CHARS, WORDS), max_size=30).map("".join)
APPROXIMATE = "llama.cpp only approximates this tokenizer"


@functools.cache
def corpus() -> str:
    source = Path(__file__).read_text(encoding="utf-8")
    return source + "Die Straße, l'été, 中文字符 한국어 нещо на Български " * 20


def llama(path: Path) -> Callable[[str], list[int]]:
    model = need("llama_cpp").Llama(model_path=str(path), vocab_only=True, verbose=False)
    return lambda text: model.tokenize(text.encode(), add_bos=False, special=False)


def export(tokenizer: BPETokenizer, path: Path, approximate: bool = False, **options: Any) -> None:
    """Export, and see that there is a warning if llama.cpp only approximates the tokenizer."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tokenizer.export(path, "gguf", **options)
    assert {each.filename for each in caught} <= {__file__}
    assert [APPROXIMATE in str(each.message) for each in caught] == [True] * approximate


def train(pattern: str, **options: Any) -> BPETokenizer:
    normalizer = options.pop("normalizer", None)
    tokenizer = BPETokenizer(pattern, normalizer=normalizer)
    options.setdefault("special_tokens", ["<|begin_of_text|>", "<|endoftext|>", "<|pad|>"])
    return tokenizer.train(corpus(), vocab_size=900, verbose=False, **options)


@pytest.mark.parametrize("pattern", ["gpt2", "llama3", "qwen2", "o200k"])
def test_what_is_trained_here_is_the_same_in_llama_cpp(pattern: str, tmp_path: Path) -> None:
    tokenizer = train(pattern)
    tokenizer.add_special_tokens([AddedToken("<<sep>>", special=False)])
    tokenizer.chat_template = "{{ messages[0].content }}"
    path = tmp_path / "model.gguf"
    export(tokenizer, path, approximate=pattern == "o200k")
    peer, back = llama(path), load(path)
    there = gguf.as_in_llama_cpp(tokenizer, path)
    assert (there is not None) == (pattern == "o200k")
    assert back.get_vocab() == tokenizer.get_vocab() and back.merges == tokenizer.merges
    assert back.added_tokens == tokenizer.added_tokens
    assert (back.bos_token, back.eos_token) == ("<|begin_of_text|>", "<|endoftext|>")
    assert back.pad_token == "<|pad|>" and back.chat_template == tokenizer.chat_template
    assert back.encode("x", add_special_tokens=True)[0] == tokenizer.bos_token_id

    @settings(max_examples=examples(150))
    @given(TEXT)
    def check(text: str) -> None:
        assert tokenizer.encode(text) == back.encode(text)
        assert peer(text) == (there or tokenizer).encode(text)

    check()
    for text in ("a<<sep>>b", "<|endoftext|>", " <<sep>> <<sep>>", "<|pad|><<sep>>"):
        assert tokenizer.encode(text) == peer(text) == back.encode(text)


def test_llama_cpp_takes_combining_marks_for_signs(tmp_path: Path) -> None:
    tokenizer = train("o200k")
    export(tokenizer, tmp_path / "model.gguf", approximate=True)
    text = "a\u0301b"
    assert tokenizer.split_pattern == SPLIT_PATTERNS["o200k"]
    own = train("o200k").encode(text)
    assert load(tmp_path / "model.gguf").encode(text) == own == tokenizer.encode(text)


def test_no_normalizer_is_written_since_llama_cpp_has_none(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    families = [("qwen2", "NFC"), ("gpt2", "NFC")]  # with one, and GPT-NeoX's
    for pattern, form in (*families, ("llama3", "NFC"), ("gpt2", "NFKC"), ("o200k", "NFD")):
        tokenizer = train(pattern, normalizer=form)
        with pytest.raises(ValueError, match=f"it normalizes text to {form}, which llama.cpp does"):
            tokenizer.export(path, "gguf")
        assert not path.exists()
        export(tokenizer, path, approximate=pattern == "o200k", without_normalizer=True)
        back = load(path)
        assert back.normalizer is None and tokenizer.normalizer == form
        text = "\u00e9" if form == "NFD" else "e\u0301"
        assert llama(path)(text) == back.encode(text) != tokenizer.encode(text)
        assert tokenizer.encode(text) == back.encode(unicodedata.normalize(form, text))
        path.unlink()
    tokenizer = load(write(small(ggml__pre=(STR, "qwen35"))))  # others say NFC by that name
    assert tokenizer.normalizer == "NFC"
    bare = BPETokenizer(tokenizer.split_pattern, normalizer=None)
    bare.train(corpus(), vocab_size=300, verbose=False).export(path, "gguf")
    assert b"qwen35" in path.read_bytes() and load(path) == bare


def test_what_gguf_cannot_hold_is_refused(write: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "new" / "model.gguf"

    def refused(tokenizer: BPETokenizer, problem: str) -> None:
        with pytest.raises(ValueError, match=problem):
            tokenizer.export(path, "gguf")
        assert not path.exists()

    refused(train("cl100k"), "no pre-tokenizer that cuts text this way")
    refused(train(r"\w+|\W"), r"no pre-tokenizer that cuts text this way")
    for flag in ("single_word", "lstrip", "rstrip"):
        tokenizer = train("gpt2")
        tokenizer.add_special_tokens([AddedToken("<x>", **{flag: True})])
        refused(tokenizer, f"'<x>' has {flag}")
    refused(train("gpt2", special_tokens={"[PAD950]": 1000}), "have the same text")
    source = gguf.read(write(small(ggml__add_eos_token=(BOOL, 1))))
    source.tokenizer["post_processor"]["single"].reverse()  # the last token, first
    (tmp_path / "tokenizer.json").write_text(json.dumps(source.tokenizer), encoding="utf-8")
    refused(load(tmp_path / "tokenizer.json"), r"puts the ids \(267,\), not just the bos token")
    refused(train("gpt2", special_tokens={"<far>": 2**30}), r"ids go up to 1,073,741,824")
    tokenizer = train("gpt2")
    tokenizer.add_special_tokens([AddedToken(f"[PAD{tokenizer.max_id + 1}]", special=False)])
    refused(tokenizer, "read as padding")


def test_a_model_with_weights_is_not_written_over(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    path = write(pack(small(), tensors=1) + bytes(1000))
    before = path.read_bytes()
    tokenizer = load(path)
    with pytest.raises(ValueError, match=r"model\.gguf contains the weights of a model"):
        tokenizer.export(path, "gguf")
    assert path.read_bytes() == before
    tokenizer.export(write(small()), "gguf")  # without, it may be


def test_gaps_between_ids_are_padded(tmp_path: Path) -> None:
    tokenizer = train("gpt2", special_tokens={"<s>": 1000, "</s>": 950})
    path = tmp_path / "model.gguf"
    tokenizer.export(path, "gguf")
    back = load(path)
    assert back.get_vocab() == tokenizer.get_vocab() and back.max_id == 1000
    peer = llama(path)
    assert peer("[PAD970] hello") == tokenizer.encode("[PAD970] hello")


@pytest.mark.parametrize("name", ["qwen3.5", "tekken", "deepseek-v3"])
def test_named_patterns_are_written_as_the_family_that_cuts_so(name: str, tmp_path: Path) -> None:
    text = "Hello 12345 日本・語 x's \n\n naïve"
    tokenizer = BPETokenizer(name, normalizer=None).train([text * 3], 300, verbose=False)
    export(tokenizer, tmp_path / "own.gguf", approximate=name == "tekken")
    assert load(tmp_path / "own.gguf").encode(text) == tokenizer.encode(text)


@pytest.mark.parametrize("spelling", [p for p, name in SPELLINGS.items() if name == "llama3"])
def test_other_spellings_of_a_pattern_are_written_as_its_family(
    spelling: str, tmp_path: Path
) -> None:
    tokenizer = train(spelling)
    export(tokenizer, tmp_path / "model.gguf")
    assert b"dbrx" in (tmp_path / "model.gguf").read_bytes()
    peer = llama(tmp_path / "model.gguf")
    for text in (*CUT_TEXTS, "x \n\n y  \n"):
        assert tokenizer.encode(text) == peer(text), text


@pytest.mark.slow
@EITHER_ENGINE
def test_o200k_is_written_as_approximate(vocab_dir: Path, tmp_path: Path) -> None:
    tokenizer = load(vocab_dir / "o200k_base.tiktoken")
    path = tmp_path / "o200k.gguf"
    export(tokenizer, path, approximate=True)
    # Of the two names for this pattern, the one that has ignore_merges.
    assert FAMILIES["granite-embed-multi-97m"].ignore_merges
    assert b"granite-embed-multi-97m" in path.read_bytes()
    peer, there = llama(path), gguf.as_in_llama_cpp(tokenizer, path)
    assert there is not None
    assert len(tokenizer.encode("ÁS")) == 1 and len(peer("ÁS")) == 2
    for text in conformance_texts(tokenizer):
        assert there.encode(text) == peer(text), text


def test_ignore_merges_is_kept_where_it_matters(write: Callable[..., Path], tmp_path: Path) -> None:
    tokens = [*ALPHABET, "he", "xyz"]  # no merge makes "xyz"
    values = small(
        ggml__tokens=(ARR, (STR, tokens)),
        ggml__token_type=None,
        ggml__merges=(ARR, (STR, ["h e"])),
        ggml__bos_token_id=None,
        ggml__eos_token_id=None,
    )
    again = tmp_path / "again.gguf"
    for pre in ("llama-bpe", "dbrx", "tekken", "deepseek-v3", "starcoder", "gpt-4o"):
        path = write({**values, "tokenizer.ggml.pre": (STR, pre)})
        tokenizer = load(path)
        expected = [257] if FAMILIES[pre].ignore_merges else [ord(char) for char in "xyz"]
        assert tokenizer.encode("xyz") == expected == llama(path)("xyz")
        export(tokenizer, again, approximate=pre in ("tekken", "gpt-4o"))
        assert load(again) == tokenizer
        assert llama(again)("xyz") == expected
    with pytest.raises(ValueError, match="ignore_merges is True; .* changes the ids"):
        source = gguf.read(path)
        source.tokenizer["model"]["ignore_merges"] = True
        source.tokenizer["pre_tokenizer"] = FAMILIES["gpt-2"].pre_tokenizer()
        (tmp_path / "tokenizer.json").write_text(json.dumps(source.tokenizer), encoding="utf-8")
        load(tmp_path / "tokenizer.json").export(again, "gguf")
    values["tokenizer.ggml.tokens"] = (ARR, (STR, tokens[:-1]))  # now the flag does nothing
    source = gguf.read(write({**values, "tokenizer.ggml.pre": (STR, "gpt-2")}))
    source.tokenizer["model"]["ignore_merges"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(source.tokenizer), encoding="utf-8")
    load(tmp_path / "tokenizer.json").export(again, "gguf")
    assert load(again).encode("hehe") == [256, 256] == llama(again)("hehe")


# -- Files written by the gguf package ----------------------------------------


def sentencepiece_model(tmp_path: Path, **options: Any) -> Any:
    spm = need("sentencepiece")
    (tmp_path / "corpus.txt").write_text(corpus().replace("ſ", ""), encoding="utf-8")
    settings = {
        "model_type": "bpe",
        "vocab_size": 700,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "character_coverage": 0.99,
        "minloglevel": 2,
        **options,
    }
    prefix = str(tmp_path / "spm")
    spm.SentencePieceTrainer.train(
        input=str(tmp_path / "corpus.txt"), model_prefix=prefix, **settings
    )
    return spm.SentencePieceProcessor(model_file=f"{prefix}.model")


def write_sentencepiece(path: Path, model: Any, prefix: bool, ties: bool = False) -> None:
    writer = need("gguf").GGUFWriter(path, "llama")
    count = model.vocab_size()
    pieces = [model.id_to_piece(id_) for id_ in range(count)]
    scores = [model.get_score(id_) for id_ in range(count)]
    kinds = [1] * count
    for id_ in range(count):
        if model.is_byte(id_):
            kinds[id_] = 6
        elif model.is_control(id_):
            kinds[id_] = 3
        elif model.is_unknown(id_):
            kinds[id_] = 2
    if ties:  # as in Llama 2: runs of spaces come last, all with one score
        for length in (2, 3, 4, 6, 7, 13):
            pieces.append("▁" * length)
            scores.append(-1e9)
            kinds.append(1)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_add_space_prefix(prefix)
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    writer.add_unk_token_id(model.unk_id())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


SPACES = st.integers(1, 40).map(lambda n: " " * n)
SPACED = st.lists(st.one_of(CHARS, WORDS, SPACES, st.just("▁")), max_size=20).map("".join)


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("ties", [True, False])
def test_sentencepiece_models_are_as_in_llama_cpp(tmp_path: Path, prefix: bool, ties: bool) -> None:
    model = sentencepiece_model(tmp_path, add_dummy_prefix=prefix)
    path = tmp_path / "model.gguf"
    write_sentencepiece(path, model, prefix, ties)
    tokenizer, peer = load(path), llama(path)

    @settings(max_examples=examples(200))
    @given(SPACED)
    def check(text: str) -> None:
        text = text.replace("\0", "")  # ends the text in sentencepiece
        ids = tokenizer.encode(text)
        assert ids == peer(text)
        if not ties:
            assert ids == model.encode(text)
        if "▁" not in text:
            assert tokenizer.decode(ids) == text

    check()
    bos = model.bos_id()
    assert tokenizer.encode("x", add_special_tokens=True) == [bos, *tokenizer.encode("x")]
    assert tokenizer.encode("<s>x", allowed_special="all") == [bos, *tokenizer.encode("x")]


@pytest.mark.parametrize("surround", ["bos+eos", "bos", "eos", "none"])
def test_llama_cpp_puts_the_same_around_a_text(surround: str, tmp_path: Path) -> None:
    tokenizer = train("llama3", surround=surround)
    path = tmp_path / "model.gguf"
    export(tokenizer, path)
    model = need("llama_cpp").Llama(model_path=str(path), vocab_only=True, verbose=False)
    for text in ("x", "the été", corpus()[:99]):
        ids = tokenizer.encode(text, add_special_tokens=True)
        assert load(path).encode(text, add_special_tokens=True) == ids
        assert model.tokenize(text.encode(), add_bos=True, special=False) == ids
    assert (ids[0] == tokenizer.bos_token_id) == ("bos" in surround)
    assert (ids[-1] == tokenizer.eos_token_id) == ("eos" in surround)


def test_a_vocabulary_of_the_gguf_package(tmp_path: Path) -> None:
    tokenizer = train("llama3")
    writer = need("gguf").GGUFWriter(tmp_path / "model.gguf", "llama")
    by_id = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    special = {*tokenizer.special_tokens}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smaug-bpe")
    writer.add_token_list([token for token, _ in by_id])
    writer.add_token_types([3 if token in special else 1 for token, _ in by_id])
    printable = bpe_tokenizer._to_printable
    writer.add_token_merges([f"{printable(a)} {printable(b)}" for a, b in tokenizer.merges])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_add_bos_token(True)
    writer.add_chat_template(
        [{"name": "default", "template": "D"}, {"name": "tools", "template": "T"}]
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    back, peer = load(tmp_path / "model.gguf"), llama(tmp_path / "model.gguf")
    assert back.get_vocab() == tokenizer.get_vocab() and back.chat_template == "D"
    assert back.encode("x", add_special_tokens=True)[0] == tokenizer.bos_token_id

    @settings(max_examples=examples(60))
    @given(TEXT)
    def check(text: str) -> None:
        assert back.encode(text) == tokenizer.encode(text) == peer(text)

    check()


# -- Pre-tokenizers -----------------------------------------------------------

BY_STEPS = {json.dumps([f.steps, f.normalizer]): name for name, f in reversed(FAMILIES.items())}


@pytest.mark.parametrize("name", sorted(BY_STEPS.values()))
def test_families_cut_as_huggingface_does(name: str, write: Callable[..., Path]) -> None:
    tokenizers = need("tokenizers")
    if FAMILIES[name].escapes_spaces:
        pytest.skip("cuts nothing; the vocabulary of Gemma 4 shows it")
    path = write(small(ggml__pre=(STR, name)))
    source, tokenizer = gguf.read(path), load(path)
    peer = tokenizers.Tokenizer.from_str(json.dumps(source.tokenizer))

    @settings(max_examples=examples(60))
    @given(TEXT)
    def check(text: str) -> None:
        assert tokenizer.encode(text) == peer.encode(text, add_special_tokens=False).ids

    check()
    numbers = " 1 22 333 4444 55555 1234567 hello33world333 3.14 he'll \n\n x  33\n"
    assert tokenizer.encode(numbers) == peer.encode(numbers, add_special_tokens=False).ids


# One character of each kind that some pattern of a family tells apart.
KINDS = (
    "aAsSéÉǅʰ中々か한กㄅ\u0301\u09031٣½Ⅷ" + " \t\n\r\u00a0\u3000\x0b'./_“…。+$€😀^\x01\u200b\ue000"
)
# U+017F is left out: llama.cpp never takes it for the "s" that it is to (?i:s).
CUT_TEXTS = [
    *(text.replace("\u017f", "s") for text in CONFORMANCE_TEXTS),
    *(family.example for family in FAMILIES.values() if family.example),
    *(" ".join(first + second for second in KINDS) for first in KINDS),
    *(" ".join(f"{first}{second}{second}s" for second in KINDS) for first in KINDS),
    *RUN_TEXTS,
    "(\t\t91Ж\tЖ<\u0301한cS",
]


@functools.cache
def joining_all() -> dict[str, tuple[int, Any]]:
    """The keys of a vocabulary in which most pairs of neighbors in the texts are joined."""
    made = BPETokenizer(r"[\s\S]{1,2}", normalizer=None)
    text = "\n".join(CUT_TEXTS)
    made.train([text, text[1:]], vocab_size=30_000, min_frequency=1, verbose=False)
    write = bpe_tokenizer._to_printable
    vocab = sorted(made.definition.vocab.items(), key=lambda item: item[1])
    tokens = [write(token) for token, _ in vocab]
    merges = [f"{tokens[left]} {tokens[right]}" for left, right in made.definition.merges]
    return small(
        ggml__tokens=(ARR, (STR, tokens)),
        ggml__token_type=None,
        ggml__merges=(ARR, (STR, merges)),
        ggml__bos_token_id=None,
        ggml__eos_token_id=None,
    )


@EITHER_ENGINE  # what is asked of it is the same
@pytest.mark.parametrize("name", sorted(BY_STEPS.values()))
def test_what_llama_cpp_does_under_each_name_is_known(
    name: str, write: Callable[..., Path]
) -> None:
    family = FAMILIES[name]
    if family.escapes_spaces:
        pytest.skip("cuts nothing")
    path = write({**joining_all(), "tokenizer.ggml.pre": (STR, name)})
    tokenizer, peer = load(path), llama(path)
    there = gguf.as_in_llama_cpp(tokenizer, path)
    assert (there is None) == (family.in_llama_cpp is None) == (family.example == "")
    form: Any = family.normalizer
    expected = there or tokenizer

    def compare(text: str) -> None:
        text = unicodedata.normalize(form, text) if form else text
        assert expected.encode(text) == peer(text), text

    for text in CUT_TEXTS:
        compare(text)
    settings(max_examples=examples(100))(given(st.text(KINDS, max_size=20))(compare))()
    settings(max_examples=examples(50))(given(TEXT)(compare))()
    if there is not None:
        assert tokenizer.encode(family.example) != peer(family.example)


def test_names_that_llama_cpp_treats_alike_are_one_family(llama_vocab_cpp: str) -> None:
    """Where it only approximates a model, and whether it ignores merges, goes by the name."""
    start = llama_vocab_cpp.index('tokenizer_pre == "minicpm5"')
    parts = llama_vocab_cpp[start : llama_vocab_cpp.index("unknown pre-tokenizer type")]
    found: dict[str, tuple[str, bool]] = {}
    for part in parts.split("} else if"):
        kind = part.split("LLAMA_VOCAB_PRE_TYPE_")[1].split(";")[0]
        for name in re.findall('tokenizer_pre == "([^"]+)"', part):
            found[name] = kind, "ignore_merges = true" in part
    assert {*FAMILIES} <= {*found}
    for name, family in FAMILIES.items():
        assert (family.in_llama_cpp or family).ignore_merges == found[name][1], name
    for kind in {kind for kind, _ in found.values()}:
        alike = [FAMILIES[name] for name in FAMILIES if found[name][0] == kind]
        assert len({repr((f.steps, f.in_llama_cpp and f.in_llama_cpp.steps)) for f in alike}) <= 1


@pytest.fixture
def llama_vocab_cpp(llama_cpp_source: Path) -> str:
    """The source that lists the names and, often in comments, the models' patterns."""
    return (llama_cpp_source / "src/llama-vocab.cpp").read_text(encoding="utf-8")


def test_every_name_that_llama_cpp_knows_is_a_family(llama_vocab_cpp: str) -> None:
    names = {part.split('"')[1] for part in llama_vocab_cpp.split("tokenizer_pre ==")[1:]}
    assert len(names) > 90
    assert names - {*FAMILIES} == {"default", "whitespace"}  # nobody's own; not byte-level
    assert {*FAMILIES} <= names


def test_patterns_are_those_llama_cpp_quotes_but_for_some(llama_vocab_cpp: str) -> None:
    escapes = {"n": "\n", "r": "\r", "t": "\t"}
    quoted = {
        re.sub(r"\\(.)", lambda found: escapes.get(found[1], found[1]), string)
        for string in re.findall(r'"((?:[^"\\]|\\.)*)"', llama_vocab_cpp)
    }
    others = {
        name
        for name, family in FAMILIES.items()
        for step in family.steps
        if step["type"] == "Split" and step["pattern"]["Regex"] not in quoted
    }
    assert others == {  # Kimi's is its own, as is Seed-Coder's, which is quoted half escaped
        *("kimi-k2", "seed-coder"),
        *("youtu", "afmoe", "spark2_5"),  # the same, written in another way
    }


# -- The reader alone ---------------------------------------------------------


def test_a_small_file(write: Callable[..., Path]) -> None:
    other = (ARR, (ARR, [(U8, [1, 2]), (STR, ["x"])]))  # in no file yet, but in the format
    for version in (2, 3):
        tokenizer = load(write(small(general__other=other), version=version))
        assert tokenizer.encode("hello world") == [259, 264]
        assert tokenizer.decode([259, 264]) == "hello world"
        assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
        assert tokenizer.encode("hello", add_special_tokens=True) == [259]
        assert tokenizer.encode("<s>a<sep>")[-1] == 268  # user-defined: found in any text
        assert tokenizer.encode("<s>", allowed_special="all") == [266]


def test_which_special_tokens_are_put_around_a_text(write: Callable[..., Path]) -> None:
    yes, no = (BOOL, 1), (BOOL, 0)
    for pre, bos, eos, expected in (
        ("gpt-2", yes, yes, [266, 259, 267]),
        ("gpt-2", None, yes, [259, 267]),
        ("llama-bpe", None, None, [266, 259]),  # llama.cpp's default for this family
        ("llama-bpe", no, None, [259]),
        ("dbrx", None, None, [259]),
    ):
        keys = {"ggml__add_bos_token": bos, "ggml__add_eos_token": eos}
        tokenizer = load(write(small(ggml__pre=(STR, pre), **keys)))
        assert tokenizer.encode("hello", add_special_tokens=True) == expected, pre


def test_roles_of_tokens_that_text_is_made_of_are_not_taken(write: Callable[..., Path]) -> None:
    # 0 is "Ā" here, and "!" in many a vocabulary whose model has no padding token.
    tokenizer = load(write(small(ggml__padding_token_id=(U32, ALPHABET.index("!")))))
    assert tokenizer.pad_token is None and tokenizer.decode([33], skip_special_tokens=True) == "!"
    tokenizer = load(write(small(ggml__padding_token_id=(U32, 258))))  # "hell", of a merge
    assert tokenizer.pad_token is None and tokenizer.encode("hell") == [258]
    tokenizer = load(write(small(ggml__padding_token_id=(U32, 2**32 - 1))))  # "none"
    assert tokenizer.pad_token is None
    kinds = [1] * 269  # a converter that does not mark special tokens
    tokenizer = load(write(small(ggml__token_type=(ARR, (I32, kinds)))))
    assert tokenizer.bos_token == "<s>" and tokenizer.special_tokens == {"<s>": 266, "</s>": 267}


def test_padding_is_left_out(write: Callable[..., Path]) -> None:
    tokens = [*small()["tokenizer.ggml.tokens"][1][1], "[PAD269]", "[PAD270]", "", "<unused>"]
    kinds = [*small()["tokenizer.ggml.token_type"][1][1], 5, 4, 1, 5]
    path = write(small(ggml__tokens=(ARR, (STR, tokens)), ggml__token_type=(ARR, (I32, kinds))))
    assert load(path).max_id == 268


def test_a_split_pattern_only_where_none_is_known(write: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match="carries its own split pattern"):
        load(write(small()), split_pattern="gpt2")
    for pre in (None, (STR, "default"), (STR, "of-tomorrow")):
        with pytest.raises(FileFormatError, match="as split_pattern") as caught:
            load(write(small(ggml__pre=pre)))
        assert caught.value.field == "tokenizer.ggml.pre"
        tokenizer = load(write(small(ggml__pre=pre)), split_pattern="llama3")
        assert tokenizer.split_pattern == SPLIT_PATTERNS["llama3"]
        tokenizer = load(write(small(ggml__pre=pre)), split_pattern=r"\w+|\W")
        assert tokenizer.encode("hello world") == [259, 32, *tokenizer.encode("world")]


def test_weights_are_not_read(write: Callable[..., Path]) -> None:
    path = write(pack(small(), tensors=3) + bytes(200))
    with open(path, "r+b") as file:
        file.truncate(2**40)  # a terabyte, of which the disk holds nothing
    assert load(path).encode("hello") == [259]


def spm(scores: list[float], tokens: list[str], **changes: Any) -> dict[str, tuple[int, Any]]:
    tokens = ["<unk>", "<s>", "</s>", *tokens]
    kinds = [2, 3, 3] + [1] * (len(tokens) - 3)
    return small(
        ggml__model=(STR, "llama"),
        ggml__pre=None,
        ggml__tokens=(ARR, (STR, tokens)),
        ggml__scores=(ARR, (F32, [0.0] * 3 + scores)),
        ggml__token_type=(ARR, (I32, kinds)),
        ggml__merges=None,
        ggml__bos_token_id=None,
        ggml__eos_token_id=None,
        **changes,
    )


def test_scores_decide_what_is_joined(write: Callable[..., Path]) -> None:
    tokens = ["▁", "a", "b", "c", "ab", "bc", "abc"]

    def pieces(scores: list[float], text: str) -> str:
        path = write(spm([-9.0] * 4 + scores, tokens[: 4 + len(scores)]))
        ids = load(path).encode(text)
        return "|".join(load(path).convert_ids_to_tokens(ids))

    assert pieces([-1.0, -2.0], "abcc") == "▁|ab|c|c"
    assert pieces([-2.0, -1.0], "abcc") == "▁|a|bc|c"
    assert pieces([-2.0, -1.0, -3.0], "abcc") == "▁|abc|c"
    assert pieces([-3.0, -2.0, -1.0], "abcc") == "▁|abc|c"  # better than what it is made of
    tokenizer = load(write(spm([-9.0] * 4 + [-1.0, -2.0, -3.0], tokens)))
    assert tokenizer.encode("abc zz a") == [3, 9, 3, 0, 3, 4]  # one <unk> for a run
    roles = tokenizer.unk_token, tokenizer.bos_token, tokenizer.eos_token
    assert roles == ("<unk>", "<s>", "</s>")  # as SentencePiece numbers them
    assert tokenizer.encode("a", add_special_tokens=True) == [1, 3, 4]


def test_spaces_at_the_ends_and_in_rows(write: Callable[..., Path]) -> None:
    tokens, scores = ["▁", "a", "▁a", "▁▁"], [-9.0, -9.0, -1.0, -2.0]

    def pieces(text: str, **flags: Any) -> str:
        tokenizer = load(write(spm(scores, tokens, **flags)))
        return "|".join(tokenizer.convert_ids_to_tokens(tokenizer.encode(text)))

    off, on = (BOOL, 0), (BOOL, 1)
    assert pieces("  a ") == "▁▁|▁a|▁"
    assert pieces("  a ", ggml__add_space_prefix=off) == "▁|▁a|▁"
    assert pieces("  a  a \n", ggml__remove_extra_whitespaces=on) == "▁a|▁a|▁|<unk>"
    assert pieces("  a   ", ggml__remove_extra_whitespaces=on) == "▁a"


def test_equal_scores_are_refused_if_it_matters(write: Callable[..., Path]) -> None:
    chars = ["▁", "a", "b", "c"]
    with pytest.raises(
        FileFormatError, match="is joined first"
    ) as caught:  # "abc" may be ab c, a bc
        load(write(spm([-9.0] * 4 + [-1.0, -1.0], [*chars, "ab", "bc"])))
    assert caught.value.field == "tokenizer.ggml.scores"
    with pytest.raises(FileFormatError, match="is joined first"):  # made of what comes after it
        load(write(spm([-9.0] * 4 + [-3.0, -3.0, -1.0], [*chars, "ab", "▁c", "abc"])))
    load(write(spm([-9.0] * 4 + [-1.0, -1.0], [*chars, "ab", "▁c"])))  # share no end
    runs = ["aa", "aaa", "aaaaa"]
    tokens = [*chars, *runs, *(f"<0x{byte:02X}>" for byte in range(256))]
    values = spm([-9.0] * 4 + [-1.0] * 3 + [0.0] * 256, tokens)
    values["tokenizer.ggml.token_type"] = (ARR, (I32, [2, 3, 3] + [1] * 7 + [6] * 256))
    path = write(values)
    tokenizer, peer = load(path), llama(path)
    for n in range(40):
        assert tokenizer.encode("a" * n) == peer("a" * n)


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"ggml__scores": None}, "tokenizer.ggml.scores: is missing"),
        ({"ggml__scores": (ARR, (F32, [0.0]))}, "has 1 elements for 9 tokens"),
        ({"ggml__scores": (ARR, (F32, [math.nan] * 9))}, "a value that is not a number"),
        ({"ggml__scores": (ARR, (STR, ["1"] * 9))}, "expected an array of float32 or int32"),
    ],
)
def test_damaged_scores(changes: dict[str, Any], problem: str, write: Callable[..., Path]) -> None:
    values = spm([-9.0] * 4 + [-1.0, -2.0], ["▁", "a", "b", "c", "ab", "bc"])
    keys = {f"tokenizer.{name.replace('__', '.')}": value for name, value in changes.items()}
    values = {key: value for key, value in {**values, **keys}.items() if value is not None}
    with pytest.raises(FileFormatError, match=problem):
        load(write(values))


def test_pieces_that_cannot_be_represented_are_refused(write: Callable[..., Path]) -> None:
    with pytest.raises(FileFormatError, match="'xy' is joined from 'x' and 'y', but 'x'"):
        load(write(spm([-9.0, -9.0, -1.0], ["▁", "y", "xy"])))
    values = spm([-9.0, -9.0, -1.0], ["▁", "y", "▁y"])
    kinds = values["tokenizer.ggml.token_type"][1][1]
    values["tokenizer.ggml.token_type"] = (ARR, (I32, [*kinds[:-1], 5]))
    with pytest.raises(FileFormatError, match="but '▁y' is unused"):
        load(write(values))
    values["tokenizer.ggml.token_type"] = (ARR, (I32, [*kinds[:-1], 6]))
    with pytest.raises(
        FileFormatError, match="256 of the 256 tokens for bytes are missing, such as <0x00>"
    ):
        load(write(values))


# -- Damaged and malicious files ----------------------------------------------


@contextlib.contextmanager
def little_memory(limit: int = 2**24) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def refused(path: Path, problem: str = ".") -> FileFormatError:
    with little_memory(), pytest.raises(FileFormatError, match=problem) as caught:
        gguf.read(path)
    return caught.value


HUGE = [2**62, 2**63, 2**64 - 1, 2**40, 2**31]


@pytest.mark.parametrize("huge", HUGE)
def test_huge_lengths(huge: int, write: Callable[..., Path]) -> None:
    head = b"GGUF" + struct.pack("<I", 3)
    name = pack_value(STR, "tokenizer.ggml.tokens")
    tail = bytes(1000)
    for data in (
        head + struct.pack("<QQ", huge, 1) + tail,  # tensors
        head + struct.pack("<QQ", 0, huge) + tail,  # keys
        head + struct.pack("<QQQ", 0, 1, huge) + tail,  # the name of a key
        *(
            head + struct.pack("<QQ", 0, 1) + key + value + tail
            for key in (name, pack_value(STR, "other"))
            for value in (
                struct.pack("<IQ", STR, huge),
                *(struct.pack("<IIQ", ARR, element, huge) for element in range(13)),
                struct.pack("<IIQQ", ARR, STR, 1, huge),
                struct.pack("<IIQIQ", ARR, ARR, 1, U8, huge),
            )
        ),
    ):
        refused(write(data), "needs .* bytes, but only|at most|array of type")


def test_counts_that_fit_the_file_and_are_senseless(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    path = tmp_path / "big.gguf"
    for key in ("tokenizer.ggml.tokens", "other"):
        for value in (struct.pack("<IIQ", ARR, STR, 2**30), struct.pack("<IIQ", ARR, ARR, 2**30)):
            path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pack_value(STR, key) + value)
            with open(path, "r+b") as file:
                file.truncate(2**36)  # takes no room on the disk
            refused(path, "more than 2,097,152 strings")
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**30)
    path.write_bytes(data)
    with open(path, "r+b") as file:
        file.truncate(2**36)
    refused(path, "the limit is 65,535")
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2**30))
    with open(path, "r+b") as file:
        file.truncate(2**36)
    refused(path, "keys; the limit is 65,536")
    kinds = struct.pack("<IIQ", ARR, I32, 2**30)
    path.write_bytes(
        b"GGUF"
        + struct.pack("<IQQ", 3, 0, 1)
        + pack_value(STR, "tokenizer.ggml.token_type")
        + kinds
    )
    with open(path, "r+b") as file:
        file.truncate(2**36)
    refused(path, "elements; the limit is 1,048,576")
    template = pack_value(STR, "tokenizer.chat_template") + struct.pack("<IQ", STR, 2**30)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + template)
    with open(path, "r+b") as file:
        file.truncate(2**36)
    refused(path, "the limit is 16,777,216")


def test_truncated_files(write: Callable[..., Path], tmp_path: Path) -> None:
    train("gpt2").export(tmp_path / "whole.gguf", "gguf")
    whole = (tmp_path / "whole.gguf").read_bytes()
    assert len(whole) > 20_000
    end = len(whole.rstrip(b"\0"))
    for size in [*range(0, end, 1000), *range(4, 200, 7), end - 1]:
        path = write(whole[:size])
        error = refused(path)
        assert error.path == str(path)
        with pytest.raises(FileFormatError):
            load(path)


def test_damaged_bytes_give_no_other_error(write: Callable[..., Path]) -> None:
    whole, rng = pack(small()), random.Random(0)
    fine = 0
    for _ in range(600):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 5, 8, 9, 127, 128, 255])
        path = write(bytes(data))
        try:
            gguf.read(path)
            fine += 1
        except FileFormatError as error:
            assert str(path) in str(error)
    assert 0 < fine < 500  # both happened


def nested(depth: int) -> tuple[int, Any]:
    value: tuple[int, Any] = (U8, [1])
    for _ in range(depth):
        value = (ARR, [value])
    return ARR, value


@pytest.mark.parametrize(
    "changes, field, problem",
    [
        ({"ggml__model": None}, "tokenizer.ggml.model", "there is no tokenizer in this file"),
        ({"ggml__model": (U32, 1)}, "tokenizer.ggml.model", "expected a string, got 1"),
        ({"ggml__model": (STR, "rwkv")}, "tokenizer.ggml.model", "'rwkv' is not supported"),
        ({"ggml__model": (STR, "none")}, "tokenizer.ggml.model", "'none' is not supported"),
        ({"ggml__tokens": None}, "tokenizer.ggml.tokens", "is missing"),
        ({"ggml__tokens": (ARR, (STR, []))}, "tokenizer.ggml.tokens", "missing or empty"),
        ({"ggml__tokens": (STR, "a")}, "tokenizer.ggml.tokens", "expected an array of strings"),
        ({"ggml__tokens": (ARR, (I32, [1]))}, "tokenizer.ggml.tokens", "an array of strings, got"),
        ({"ggml__tokens": (ARR, (U8, [1]))}, "tokenizer.ggml.tokens", "array of type 0 is not"),
        ({"ggml__tokens": nested(2)}, "tokenizer.ggml.tokens", "array of type 9 is not expected"),
        ({"ggml__tokens": (ARR, (STR, [b"\xff"]))}, "tokenizer.ggml.tokens", "is not UTF-8"),
        (
            {"ggml__tokens": (ARR, (STR, [*ALPHABET, *"abcdefghijklm"]))},
            "tokenizer.ggml.tokens",
            "'a' is both token 97 and token 256",
        ),
        ({"ggml__token_type": (ARR, (I32, [1]))}, "tokenizer.ggml.token_type", "has 1 elements"),
        ({"ggml__token_type": (ARR, (F32, [1.0] * 269))}, "tokenizer.ggml.token_type", "of int32"),
        ({"ggml__merges": None}, "tokenizer.ggml.merges", "is missing"),
        (
            {"ggml__merges": (ARR, (STR, ["ab"]))},
            "tokenizer.ggml.merges[0]",
            "two tokens, got 'ab'",
        ),
        (
            {"ggml__merges": (ARR, (STR, ["a "]))},
            "tokenizer.ggml.merges[0]",
            "two tokens, got 'a '",
        ),
        ({"ggml__merges": (ARR, (STR, [""]))}, "tokenizer.ggml.merges[0]", "two tokens, got ''"),
        (
            {"ggml__merges": (ARR, (STR, ["a xyz"]))},
            "tokenizer.ggml.merges[0]",
            "'xyz' is not a token",
        ),
        ({"ggml__merges": (ARR, (STR, ["a b"]))}, "tokenizer.ggml.merges[0]", "'ab' is not a"),
        ({"ggml__bos_token_id": (I32, -1)}, "tokenizer.ggml.bos_token_id", "0 to 268, got -1"),
        ({"ggml__eos_token_id": (U32, 269)}, "tokenizer.ggml.eos_token_id", "0 to 268, got 269"),
        ({"ggml__eos_token_id": (U64, 2**63)}, "tokenizer.ggml.eos_token_id", "0 to 268, got"),
        ({"ggml__bos_token_id": (STR, "1")}, "tokenizer.ggml.bos_token_id", "expected an integer"),
        ({"ggml__bos_token_id": (BOOL, 1)}, "tokenizer.ggml.bos_token_id", "expected an integer"),
        ({"ggml__add_bos_token": (BOOL, 7)}, "tokenizer.ggml.add_bos_token", "expected 0 or 1"),
        ({"ggml__add_bos_token": (U32, 1)}, "tokenizer.ggml.add_bos_token", "a boolean, got 1"),
        ({"chat_template": (ARR, (STR, ["x"]))}, "tokenizer.chat_template", "expected a string"),
        ({"chat_template": (STR, b"\xc3")}, "tokenizer.chat_template", "is not UTF-8"),
        ({"general__x": nested(50)}, "general.x", "nested more than 4 deep"),
        (
            {"ggml__add_eos_token": (BOOL, 1), "ggml__eos_token_id": None},
            "tokenizer.ggml.add_eos_token",
            "there is no eos token",
        ),
    ],
)
def test_wrong_values_are_named(
    changes: dict[str, Any], field: str, problem: str, write: Callable[..., Path]
) -> None:
    path = write(small(**changes))
    error = refused(path, problem)
    assert (error.path, error.field) == (str(path), field)
    with pytest.raises(FileFormatError, match=problem):
        load(path)


def test_wrong_types_and_keys(write: Callable[..., Path]) -> None:
    values = pack(small())
    key = pack_value(STR, "general.alignment")
    bad = values.replace(key + struct.pack("<I", U32), key + struct.pack("<I", 13))
    assert refused(write(bad), "13 is not a type of value").field == "general.alignment"
    again = pack_value(STR, "tokenizer.ggml.pre") + struct.pack("<I", STR) + pack_value(STR, "x")
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, len(small()) + 1)
    assert (
        refused(write(header + values[24:] + again), "is given twice").field == "tokenizer.ggml.pre"
    )
    refused(write(header + values[24:] + pack_value(STR, b"\xff") + bytes(20)), "is not UTF-8")


def test_other_versions_are_refused(write: Callable[..., Path]) -> None:
    refused(write(small(), version=1), "1 is not supported, only 2 and 3")
    refused(write(small(), version=4), "4 is not supported, only 2 and 3")
    refused(write(b"GGUF" + struct.pack(">IQQ", 3, 0, 0)), "big-endian")
    refused(write(b"GGUX" + bytes(20)), "does not begin with b'GGUF'")


def test_more_merges_than_ways_to_make_the_tokens(write: Callable[..., Path]) -> None:
    ways = sum(len(token) - 1 for token in small()["tokenizer.ggml.tokens"][1][1])
    several = (ARR, (STR, [MERGES[i % len(MERGES)] for i in range(ways)]))
    assert len(load(write(small(ggml__merges=several))).merges) == len(MERGES)
    several[1][1].append(MERGES[0])
    refused(
        write(small(ggml__merges=several)), f"merges: {ways + 1} merges, .* only {ways} ways to"
    )


def test_long_tokens_do_not_hang(write: Callable[..., Path]) -> None:
    script = (
        "import sys; from pathlib import Path; from bpe_tokenizer_tools.formats import gguf\n"
        "try: gguf.read(Path(sys.argv[1]))\n"
        "except ValueError as error: print(type(error).__name__, error.field)\n"
    )
    path = write(spm([-9.0, -9.0, -1.0, -2.0], ["▁", "a", "aa", "a" * 60_000]))
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        cwd=Path(gguf.__file__).resolve().parents[2],
    )
    assert done.stdout == "FileFormatError tokenizer.ggml.scores\n"
