"""The accelerator against the Python engine, which says what is right.

Without the extension these tests are left out; conftest.py says where it is looked for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import itertools
import json
import random
import sys
import threading
import tracemalloc
import unicodedata
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, examples, extension, read_corpus
from hard_text import every_character
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import SANITIZED

import bpe_tokenizer
from _bpe_tokenizer.engine import NativeEncoder, _read_json
from bpe_tokenizer import SPLIT_PATTERNS, AddedToken
from bpe_tokenizer_tools.formats.ranks import recover_merges
from bpe_tokenizer_tools.formats.tiktoken import _read_plain_ranks
from bpe_tokenizer_tools.patterns.automaton import automaton
from bpe_tokenizer_tools.patterns.known import MORE_PATTERNS

native = extension()
FOLDER = Path(native.__file__ or "").parent.parent  # of the package

BOTH_WAYS = pytest.mark.parametrize("portable", [False, True], ids=["blocks", "characters"])
EVERY_PATTERN = pytest.mark.parametrize("name", list(SPLIT_PATTERNS))

# What the patterns treat specially, and what could be mistaken for it.
ATOMS = [
    *["'", "'s", "'S", "'ſ", "'ll", "'Re", "'VE", "'t", "'d", "'m", "x's", "don't", "’s"],
    *["\r", "\n", "\r\n", " ", "  ", "\t", "\x0b", "\x85", "\u00a0", "\u2028", "\u3000", "\x1c"],
    *["\u0301", "\u0903", "\u20dd", "ǅ", "ʰ", "ª", "a", "B", "ab", "Ab", "aB", "é", "É", "ß"],
    *["中", "文", "한", "ก", "ﬁ", "𐐀", "𐐨", "\U00020000", "1", "12", "1234", "٣", "²", "Ⅷ", "𝟘"],
    *["/", "//", "!", "?!", "_", "-", "€", "…", "😀", "\0", "l", "e", "v", "r", "s", "T"],
]


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they compare both engines by themselves."""


# -- Encoding --------------------------------------------------------------------


def engines(definition: bpe_tokenizer.Definition, name: str, **options: Any) -> tuple[Any, Any]:
    """Return the Python encoder of a definition, and the native one."""
    added = {token.content.encode(): token.id for token in definition.added}
    make = native.Encoder
    vocab, merges = dict(definition.vocab), list(definition.merges)
    return bpe_tokenizer._Encoder(definition), make(
        vocab, merges, name, definition.ignore_merges, added, **options
    )


def definition_of(merges: list[tuple[bytes, bytes]], name: str = "gpt2", **more: Any) -> Any:
    """Return a definition with these merges; new tokens are numbered in order."""
    vocab = {bytes([byte]): byte for byte in range(256)}
    pairs = []
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
        pairs.append((vocab[left], vocab[right]))
    return bpe_tokenizer.Definition(vocab, pairs, SPLIT_PATTERNS[name], None, **more)


def check_equal(python: Any, encoder: Any, text: str) -> None:
    expected = python.encode(text)
    if len(text) % 2:
        assert encoder.count(text) == len(expected)  # of what the cache may lack
    assert encoder.encode(text) == expected
    assert encoder.encode(text) == expected  # by the cache, now
    assert encoder.count(text) == encoder.count_plain(text) == len(expected)
    assert array("I", encoder.encode_to_buffer(text)).tolist() == expected
    assert encoder.encode_plain_to_buffer(text) == encoder.encode_to_buffer(text)
    assert encoder.encode_pretokens(python._split(text)) == expected
    assert encoder.count_pieces(python._split(text)) == len(expected)
    assert encoder.decode(expected) == text.encode()
    assert encoder.decode_to_str(expected, "strict") == text
    assert encoder.offsets(text, expected) == python.places(text, expected)
    assert recorded_offsets(encoder, text) == python.places(text, expected)
    for most in {0, 1, 7, len(expected) // 2, max(0, len(expected) - 1), len(expected)}:
        assert encoder.begin(None, text, most) == beginning(python, text, expected, most)
        [(ids, record)] = encoder.encode_batch_recorded([text], 1, 0, most)
        assert ids == expected[:most]
        assert encoder.offsets(text, record) == python.places(text, ids)


def beginning(python: Any, text: str, ids: list[int], most: int) -> int:
    """Return how many characters of a text are kept, by the definition of `truncate`."""
    if len(ids) <= most:
        return len(text)
    ends = dict.fromkeys(end for _, end in reversed(python.places(text, ids)[:most]))
    return next((end for end in ends if python.count(text[:end]) <= most), 0)


def recorded_offsets(encoder: Any, text: str) -> Any:
    """Return the offsets of what a record of its ids says."""
    [(ids, record)] = encoder.encode_batch_recorded([text], 1)
    assert ids == encoder.encode(text)
    return encoder.offsets(text, record)


@functools.cache
def trained(name: str) -> bpe_tokenizer.Definition:
    """Return what is learned from the module's own text, and all kinds of characters."""
    text = (ROOT / "bpe_tokenizer.py").read_text(encoding="utf-8")
    text += "".join(random.Random(1).choices(ATOMS, k=20_000))
    tokenizer = bpe_tokenizer.BPETokenizer(SPLIT_PATTERNS[name], normalizer=None)
    return tokenizer.train(text, 3_000, verbose=False, num_workers=1).definition


@EVERY_PATTERN
@BOTH_WAYS
def test_encodes_as_python_does(name: str, portable: bool) -> None:
    python, encoder = engines(trained(name), name, portable=portable)
    chance = random.Random(2)
    check_equal(python, encoder, "")
    for size in [*range(1, 90), 200, 1_000, 5_000]:
        check_equal(python, encoder, "".join(chance.choices(ATOMS, k=size)))
        check_equal(python, encoder, "".join(chance.choices("abehinorst", k=size)))
        check_equal(python, encoder, "".join(chance.choices("ab\0", k=size)))


@functools.cache
def engines_of(name: str) -> tuple[Any, Any]:
    return engines(trained(name), name)


@EVERY_PATTERN
@given(text=st.text())
def test_encodes_any_text(name: str, text: str) -> None:
    check_equal(*engines_of(name), text)


@given(
    merges=st.lists(
        st.tuples(st.binary(min_size=1, max_size=4), st.binary(min_size=1, max_size=4)),
        max_size=30,
    ),
    ids=st.randoms(use_true_random=False),
    letters=st.lists(st.sampled_from([b"a", b"b", b"c", b"ab", b"aab", b"\0", b"\xc3\xa9"])),
    ignore=st.booleans(),
)
def test_any_vocabulary(merges: Any, ids: random.Random, letters: Any, ignore: bool) -> None:
    """Merges in any order, of any tokens, with ids in any order."""
    small = [(bytes(97 + b % 3 for b in x), bytes(97 + b % 3 for b in y)) for x, y in merges]
    parts = {part for pair in small for part in (*pair, pair[0] + pair[1])}
    tokens = sorted({bytes([byte]) for byte in range(256)} | parts)
    numbers = ids.sample(range(2 * len(tokens)), len(tokens))
    vocab = dict(zip(tokens, numbers))
    pairs = [(vocab[x], vocab[y]) for x, y in small]
    definition = bpe_tokenizer.Definition(
        vocab, pairs, SPLIT_PATTERNS["gpt2"], None, ignore_merges=ignore
    )
    python, encoder = engines(definition, "gpt2")
    check_equal(python, encoder, b"".join(letters).decode())
    for size in (7, 40, 300):
        check_equal(python, encoder, "".join(ids.choices("abc", k=size)))
        check_equal(python, encoder, "ab" * size + "a" * size)


def test_vocabulary_in_which_order_matters() -> None:
    # The last merge brings up one that should have come first.
    tokens = [b"ab", b"aba", b"ba", b"aa", b"aaaa"]
    vocab = {**definition_of([]).vocab, **{token: 300 - i for i, token in enumerate(tokens)}}
    merges = [(b"ab", b"a"), (b"b", b"a"), (b"a", b"a"), (b"a", b"b"), (b"aa", b"aa")]
    pairs = [(vocab[left], vocab[right]) for left, right in merges]
    definition = bpe_tokenizer.Definition(vocab, pairs, SPLIT_PATTERNS["gpt2"], None)
    python, encoder = engines(definition, "gpt2")
    for size in range(1, 200):
        chance = random.Random(size)
        check_equal(python, encoder, "".join(chance.choices("ab", weights=[3, 1], k=size)))


@BOTH_WAYS
@pytest.mark.parametrize("size", [15, 16, 17, 63, 64, 65, 66, 255, 256, 257, 1_000, 70_000])
def test_long_pretokens(size: int, portable: bool) -> None:
    definition = trained("cl100k")
    python, encoder = engines(definition, "cl100k", portable=portable)
    chance = random.Random(size)
    texts = [char * size for char in "a \n中"]
    texts.append("".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=size)))
    texts.append("".join(chance.choices("aeiourstln", k=size)))
    for text in texts:
        check_equal(python, encoder, text)


def test_whole_tokens_need_no_merges() -> None:
    definition = definition_of([(b"a", b"b")], ignore_merges=True)
    definition.vocab[b"abc"] = 999
    definition.vocab[b"x" * 50] = 1_000
    python, encoder = engines(definition, "gpt2")
    for text in ("abc", "abcd", "ab", "x" * 50, "x" * 51, "abc abc"):
        check_equal(python, encoder, text)
    assert encoder.encode("abc") == [999]


def test_more_pretokens_than_the_cache_holds() -> None:
    python, encoder = engines(trained("gpt2"), "gpt2")
    chance = random.Random(3)
    words = [
        "".join(chance.choices("abcdefghij0123", k=chance.randrange(1, 24))) for _ in range(400_000)
    ]
    text = " ".join(words)
    ids = encoder.encode(text)
    assert encoder.decode(ids) == text.encode()
    assert encoder.encode(text) == ids
    some = " ".join(words[:20_000])
    assert encoder.encode(some) == python.encode(some)


def test_published_vocabularies(vocab_dir: Path, corpora_dir: Path) -> None:
    for vocab, name in [("cl100k_base", "cl100k"), ("o200k_base", "o200k")]:
        tokenizer = bpe_tokenizer.BPETokenizer.from_file(vocab_dir / f"{vocab}.tiktoken")
        python, encoder = engines(tokenizer.definition, name)
        for corpus in ("english", "code", "multi"):
            text = read_corpus(corpus)[: 20_000 if SANITIZED else 200_000]  # sanitizers are slow
            check_equal(python, encoder, text)


@functools.cache
def engines_cutting_by(name: str) -> tuple[Any, Any]:
    """Return both encoders; a pattern without a name is cut by an automaton."""
    pattern = {**SPLIT_PATTERNS, **MORE_PATTERNS}.get(name, name)
    definition = dataclasses.replace(trained("cl100k"), split_pattern=pattern)
    cutter: Any = name if name in native.PATTERNS else native.automaton(*automaton(name))
    return engines(definition, cutter)


@settings(max_examples=examples(200))
@given(
    st.sampled_from([*native.PATTERNS, r"\w+", r"\p{L}+(?=\s)|\s+(?!\S)|."]),
    st.text(st.sampled_from("ab's 1 2,.\r\n\t\x00é中。・゠ー🙂\u0301\u3000")),
    st.integers(0, 40),
    st.sampled_from([0, 1, 40]),
)
def test_the_beginning_that_fits(name: str, text: str, most: int, times: int) -> None:
    """Also of text so long that only its beginning is written as UTF-8."""
    python, encoder = engines_cutting_by(name)
    text += (text + " word é, ") * times
    ids = python.encode(text)
    assert encoder.begin(None, text, most) == beginning(python, text, ids, most)


def test_the_beginning_of_text_that_is_not_plain() -> None:
    encoder = encoder_of((b"a", b"b"), normalizer="NFC")
    finder = native.Finder({"<x>": 256, "<y>": None, "é": 98})
    assert encoder.begin(None, "abab", 1) == 2
    assert encoder.begin(None, "abab", 2**70) == 4
    assert encoder.begin(None, "abab", -(2**70)) == 0
    assert encoder.begin(None, "中中", 5) == 1
    assert encoder.begin(finder, "ab<x>éab", 2) == 5
    assert encoder.begin(finder, "ab<x>éab", 3) == 6
    assert [encoder.begin(finder, "<x>", most) for most in (0, 1)] == [0, 3]
    for text in ("e\u0301", "a\ud800", "é" * 5_000 + "\ud800", "🙂" * 5_000 + "\udfff", 5, b"ab"):
        assert encoder.begin(None, text, 3) is None
    assert encoder.begin(finder, "ab<y>", 1) is None
    without = native.Encoder(definition_of([]).vocab, [], None)
    assert without.begin(None, "ab", 1) is None
    for args in ((None, "ab"), (5, "ab", 1), (None, "ab", "1"), (None, "ab", 1.5)):
        with pytest.raises(TypeError):
            encoder.begin(*args)


def test_plain_text() -> None:
    encoder, ascii_only = encoder_of(), encoder_of(normalizer="NFD")
    for either in (encoder, ascii_only):
        assert either.encode_plain("ab") == [97, 98]
        assert either.encode_plain("") == []
        assert either.encode_plain("a\ud800") is None
        assert either.encode_plain(b"ab") is None
        assert either.count_plain("a\ud800") is either.count_plain(b"ab") is None
    assert encoder.encode_plain("é") == [0xC3, 0xA9]
    assert ascii_only.encode_plain("é") is None
    nfc = encoder_of(normalizer="NFC")
    assert nfc.encode_plain("é") == [0xC3, 0xA9]
    assert nfc.encode_plain("中") == [0xE4, 0xB8, 0xAD]
    assert nfc.encode_plain("\u0378") == [0xCD, 0xB8]  # without a normal form in Unicode 9.0
    for text in ("e\u0301", "\u212b", "中\ud800", 5):
        assert nfc.encode_plain(text) is None
    assert native.Encoder(definition_of([]).vocab, [], None).encode_plain("ab") is None


# -- Added tokens ------------------------------------------------------------------


def finder_of(strings: dict[str, int | None]) -> Any:
    return native.Finder(strings)


@pytest.mark.parametrize("filler", ["a", "é", "中", "😀"], ids=["1", "1 to 2", "2", "4"])
@pytest.mark.parametrize("strings", [["<|"], ["<|", "\u043c|", "中|"], ["<", "|"], list("<|{}[]")])
def test_finds_at_every_place(strings: list[str], filler: str) -> None:
    """Where text is looked at many characters at a time, and at its ends."""
    find = finder_of(dict.fromkeys(strings)).find
    spans = bpe_tokenizer._spans_of(strings)
    for size in (0, 1, 62, 63, 64, 65, 66, 127, 128, 129, 200):
        for at in range(size + 1):
            text = filler * at + strings[-1] + filler * (size - at)
            assert find(text, 0, len(text)) == list(spans(text, 0, len(text)))
            assert find(text, at, size) == list(spans(text, at, size))
            assert find(text, at + 1, 2**70) == []


def test_encodes_around_strings() -> None:
    encoder, ascii_only = encoder_of((b"a", b"b")), encoder_of(normalizer="NFD")
    finder = finder_of({"<é>": 98, "|": 97, "||": None, "^": 2**20 - 3})

    def around(text: Any) -> Any:
        ids, buffer = (
            encode(finder, text)
            for encode in (encoder.encode_around, encoder.encode_around_to_buffer)
        )
        assert ids == (None if buffer is None else array("I", buffer).tolist())
        assert encoder.count_around(finder, text) == (None if ids is None else len(ids))
        return ids

    assert around("") == [] and around("ab") == [256]
    assert around("ab<é>ab|é|<") == [256, 98, 256, 97, 0xC3, 0xA9, 97, 60]
    assert around("<é>") == [98]
    for text in ("a||", "^", "||\ud800", "\ud800", "|\ud800", "ab\udfff|", b"|", None, 5):
        assert around(text) is None
    assert ascii_only.encode_around(finder, "a|") == [97, 97]
    assert ascii_only.encode_around(finder, "é|") is None
    assert native.Encoder(definition_of([]).vocab, [], None).encode_around(finder, "a") is None
    text = "ab中|" * 50_000
    assert around(text) == [256, 0xE4, 0xB8, 0xAD, 97] * 50_000


def streamed(encoder: Any, chunks: Any, *tokens: Any) -> list[list[int]]:
    def refuse(chunk: object) -> None:
        raise ValueError(f"no text: {chunk!a}")

    return list(native.Stream(encoder, chunks, refuse, lambda text: [0] * len(text), *tokens))


def test_streams_cut_where_nothing_looks_across() -> None:
    encoder, nfc = encoder_of((b"a", b"b")), encoder_of((b"a", b"b"), normalizer="NFC")
    nfd = encoder_of((b"a", b"b"), normalizer="NFD")
    assert streamed(encoder, ["a", "b a", "b ab", "'s"]) == [[256], [32, 256], [32, 256, 39, 115]]
    assert streamed(encoder, ["", "a ", "b"]) == [[97], [32, 98]]
    assert streamed(encoder, []) == streamed(encoder, ["", ""]) == []
    # What a normalizer may change: a sign at the end, and all that is not ASCII.
    assert streamed(nfc, ["a=", "b=", "\u0338"]) == [[97], [0] * 4]
    assert streamed(nfc, ["\u212b ab ", "ab"]) == [[0] * 4, [32, 256]]
    assert streamed(nfd, ["é ab ", "ab,c"]) == [[0] * 7, [44, 99]]
    # Text is not cut between "b" and a space, for a token has both.
    together = bytearray(2**16)
    together[ord("b") * 256 + ord(" ")] = 1
    tokens = native.Finder({"b b": None}), bytes(together)
    assert streamed(encoder, ["ab b", " a ab ", "c"], *tokens) == [[0] * 6, [32, 256, 32, 99]]
    assert streamed(encoder, iter("a,b b,c"), *tokens) == [[97], [0] * 4, [44, 99]]


def test_a_stream_ends_with_an_error() -> None:
    encoder = encoder_of((b"a", b"b"))
    for wrong in (b"ab", None, "a\ud800"):
        stream = native.Stream(encoder, ["ab ab ", wrong, "c"], bpe_tokenizer._utf8_length, len)
        assert next(stream) == [256, 32, 256]
        with pytest.raises((TypeError, ValueError), match="text"):
            next(stream)
        assert list(stream) == []
    with pytest.raises(TypeError, match="chunk to be a str"):
        list(native.Stream(encoder, ["\ud800"], len, len))

    def chunks() -> Iterator[str]:
        yield "ab ab"
        with pytest.raises(ValueError, match="already"):
            next(again)
        yield " ab"

    again = native.Stream(encoder, chunks(), len, len)
    assert sum(again, []) == [256, 32, 256, 32, 256]


def test_streams_are_given_what_they_need() -> None:
    encoder, finder = encoder_of((b"a", b"b")), native.Finder({"a": None})
    uncut = native.Encoder(definition_of([]).vocab, [], "spaces")
    assert encoder.cuts_safely and not uncut.cuts_safely
    with pytest.raises(ValueError, match="safe cuts"):
        native.Stream(uncut, [], len, len)
    for args in (
        (),
        (5, [], len, len),
        (encoder, 5, len, len),
        (encoder, [], len, len, finder),
        (encoder, [], len, len, finder, b"short"),
        (encoder, [], len, len, 5, bytes(2**16)),
        (encoder, [], len, len, finder, bytearray(2**16)),
    ):
        with pytest.raises(TypeError):
            native.Stream(*args)


def test_encodes_segments() -> None:
    encoder, finder = encoder_of((b"a", b"b")), finder_of({"<é>": 98, "|": 97, "^": None})
    marked = functools.partial(encoder.encode_segments, finder, True)
    assert marked([]) == marked([("", True), ("", False)]) == []
    assert marked([("<é", True), (">a", True), ("b|", False)]) == [98, 256, 124]
    assert marked([("<é", True), ("", False), (">|", True)]) == marked([("<é>", 0)]) + [97]
    assert marked([("a", ()), ("b|^", None), ("中", True)]) == [256, 124, 94, *"中".encode()]
    for refused in ([("|", 1)], [("|", True), ("a", "other")], [("^", True)], [("\ud800", False)]):
        assert marked(refused) is None
    for wrong in (None, ("a", True), [("a",)], [("a", True, 1)], [["a", True]], [(b"a", True)]):
        with pytest.raises(TypeError):
            marked(wrong)
    with pytest.raises(TypeError, match="takes a Finder, a mark and a list"):
        encoder.encode_segments(True, True, [])
    no_truth = type("NoTruth", (), {"__bool__": lambda _: 1 // 0})()
    with pytest.raises(ZeroDivisionError):
        marked([("a", no_truth)])
    many = [("ab中", False), ("|", True)] * 50_000
    assert marked(many) == [256, *"中".encode(), 97] * 50_000


CONTROL = ["<|a|>", "<|a|><|b|>", "|>", "<", "e\u0301", "中"]
SEGMENT = st.lists(st.sampled_from(["<|", "a", "|>", "<|b|>", *CONTROL, " ", "😀", "\u0301"]))


@given(
    segments=st.lists(
        st.tuples(st.one_of(SEGMENT.map("".join), st.text()), st.sampled_from([0, 0, 1, 1, 2]))
    ),
    known=st.sets(st.sampled_from(CONTROL)),
    form=st.sampled_from([None, "NFC", "NFKC"]),
    more=st.sampled_from([{}, {"lstrip": True}, {"single_word": True}, {"normalized": True}]),
)
def test_segments_of_any_text(segments: Any, known: Any, form: Any, more: Any) -> None:
    """Tokens come out of the segments that may have them, and not out of what those touch."""
    given = definition_of([(b"a", b"b"), (b"<", b"|"), (b"|", b">")])
    added = [AddedToken(text, 500 + i) for i, text in enumerate(CONTROL)]
    added[-1] = dataclasses.replace(added[-1], **more)
    given = dataclasses.replace(given, added=tuple(added), normalizer=form)
    chosen = [frozenset[str](), frozenset(known), frozenset(CONTROL)]
    counted = [(text, chosen[which]) for text, which in segments]
    results = []
    for make in (bpe_tokenizer._Encoder, NativeEncoder):
        encoder = bpe_tokenizer._SegmentEncoder(make(given), given)
        try:
            results.append(encoder.encode(counted))
        except ValueError as error:
            results.append([str(error)])
    assert results[0] == results[1]


def test_finders_of_other_things() -> None:
    encoder, finder = encoder_of(), finder_of({})
    assert finder.find("any text", 0, 8) == []
    assert encoder.encode_around(finder, "ab") == [97, 98]
    for wrong in ({5: 1}, {"a": "b"}, {"a": 1.0}, ["a"], None):
        with pytest.raises(TypeError):
            native.Finder(wrong)
    for wrong in ({"": 1}, {"a": 1, "": None}, {"a": -1}):
        with pytest.raises(ValueError):
            native.Finder(wrong)
    for wrong in ({"a": 2**70}, {"a": 2**31}):
        with pytest.raises(OverflowError):
            native.Finder(wrong)
    for arguments in ((), ("a",), ("a", 0), ("a", 0, 1, 2), (b"a", 0, 1), ("a", 0, None)):
        with pytest.raises(TypeError):
            finder.find(*arguments)
    for arguments in ((), (finder,), ("a", finder), (None, "a"), (encoder, "a"), (finder, "a", 1)):
        with pytest.raises(TypeError, match="takes a Finder and a text"):
            encoder.encode_around(*arguments)
        with pytest.raises(TypeError, match="takes a Finder and a text"):
            encoder.encode_around_to_buffer(*arguments)
        with pytest.raises(TypeError):
            encoder.count_around(*arguments)
    with pytest.raises(TypeError):
        native.Finder(strings={})


# -- Normalization -----------------------------------------------------------------

# What composes, what composes with it, what trades places, what falls apart; and what does none.
_POINTS = """
41 e9 1ed7 301 323 928 929 930 931 933 934 93c 94d 9be 9c7 9cb 9d7 9df b3e b47 b56 b57 b92 bbe bc6
bc7 bca bd7 c46 c48 c4d c56 cbf cc2 cc6 cca ccb cd5 cd6 d3e d46 d47 d57 dca dcf dd9 dda ddc ddd ddf
1025 1026 102e 1037 1039 1100 1161 11a8 212b 3099 304b ac00 fb1d 11131 11127 1d15e 4e2d"""
COMPOSING = [chr(int(point, 16)) for point in _POINTS.split()]


def check_surely_nfc(text: str) -> bool:
    sure: bool = native.surely_nfc(text)
    if sure:
        assert bpe_tokenizer._normalize(text, "NFC") == text, ascii(text)
    return sure


@pytest.mark.slow
def test_what_nfc_surely_leaves_as_it_is_for_every_character() -> None:
    sure = 0
    for char in map(chr, range(0x110000)):
        surely = check_surely_nfc(char)
        assert surely or char >= "\u0300"
        sure += surely
        for text in (char + char, "é" + char, "中" * 31 + char + "中" * 33):
            check_surely_nfc(text)
        for after in ("", "\u0301"):  # looked at together with others, and alone
            assert native.surely_nfc("中" * 31 + char + after) == native.surely_nfc(
                "中" + char + after
            )
    assert sure > 0x110000 - 2_000  # all but what NFC changes or may compose with what is before it


def test_pairs_that_nfc_may_compose_for_every_character_of_indic_scripts() -> None:
    chars = [chr(point) for point in range(0x900, 0x1100)]
    for char in COMPOSING:
        for other in chars:
            check_surely_nfc(char + other)
            check_surely_nfc(other + char)


@given(
    parts=st.lists(
        st.sampled_from(COMPOSING)
        | st.sampled_from(["a", "中" * 31, "中" * 32, "é" * 33, "😀"])
        | st.characters(codec="utf-8")
        | st.characters(min_codepoint=0x300, max_codepoint=0x1100),
        max_size=9,
    )
)
def test_what_nfc_surely_leaves_as_it_is(parts: list[str]) -> None:
    check_surely_nfc("".join(parts))


def test_text_of_many_languages_needs_no_normalizing() -> None:
    for text in (
        *["Größe, naïve, “Zürich” – Dvořák", "Tiếng Việt rất đẹp", "Съешь ещё этих мягких булок"],
        *[
            "敏捷的棕色狐狸",
            "いろはにほへと、ガギグ",
            "다람쥐 헌 쳇바퀴에",
            "สวัสดีชาวโลก น้ำ",
            "שלום עולם",
        ],
        *[
            "مرحبا بالعالم",
            "नमस्ते दुनिया, लड़की",
            "আমি বাংলায় গান গাই",
        ],
        *["வணக்கம் உலகம்", "ಕನ್ನಡ ನಾಡು", "മലയാളം ഭാഷ", "සිංහල භාෂාව", "မြန်မာစာ", "😀 𝟘"],
    ):
        assert native.surely_nfc(unicodedata.normalize("NFC", text)), text
    assert native.surely_nfc("") and native.surely_nfc("\ud800")
    for wrong in (None, b"a", 5):
        with pytest.raises(TypeError):
            native.surely_nfc(wrong)


# -- Batches ---------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 100])
def test_batches(threads: int) -> None:
    python, encoder = engines_of("o200k")
    chance = random.Random(threads)
    sizes = [0, 1, 0, 5_000, *(chance.randrange(60) for _ in range(400)), 3_000, 3_000, 70_000, 0]
    texts = ["".join(chance.choices(ATOMS, k=size)) for size in sizes]
    expected = [python.encode(text) for text in texts]
    for n in (0, 1, 2, len(texts)):
        given = list(texts[:n])
        assert encoder.encode_batch(given, threads) == expected[:n]
        buffers = encoder.encode_batch_to_buffers(given, threads)
        assert [array("I", buffer).tolist() for buffer in buffers] == expected[:n]
        assert given == texts[:n]


def words(n: int) -> list[str]:
    """Return words with a space before each, some of them not ASCII: text that can be cut there."""
    chance = random.Random(n)
    return [" " + chance.choice(["the", "ab" * 9, "naïve", "中文", "a😀b", "12"]) for _ in range(n)]


@pytest.mark.parametrize("threads", [1, 2, 3, 100])
def test_one_text_in_parts(threads: int) -> None:
    python, encoder = engines_of("o200k")
    for sizes in ([1], [1, 1], [3, 1, 4000, 1, 59], [9] * 300, [20_000, 5, 20_000], [1] * 40):
        parts = ["".join(words(n)) for n in sizes]
        text, ends = "".join(parts), [*itertools.accumulate(map(len, parts))]
        expected = python.encode(text)
        for least in (0, 1, 10**6):
            assert encoder.encode_joined(text, ends, threads, True, least) == expected
            buffer = encoder.encode_joined_to_buffer(text, ends, threads, True, least)
            assert array("I", buffer).tolist() == expected
        made = encoder.encode_joined(text, ends, threads, True, 0)
        gc.collect()
        assert gc.is_tracked(made) and made == expected
        made += made[:9]  # a list like any other
        assert made == expected + expected[:9] and made.pop() == expected[8]


def test_parts_of_few_ids_and_of_many() -> None:
    """The list has room for what the first parts let expect; here that is far too little."""
    python, encoder = engines_of("o200k")
    words = [" the" * 9, *(" 🜀🜁🜂" * n for n in range(1, 60)), " the"]
    text, ends = "".join(words), [*itertools.accumulate(map(len, words))]
    for threads in (1, 2):
        assert encoder.encode_joined(text, ends, threads, True, 0) == python.encode(text)


def test_parts_that_are_wrong() -> None:
    encoder = encoder_of()
    for ends in ([], [1], [1, 1, 4], [0, 4], [2, 1, 4], [4, 5], [5], [-1, 4], [4, 2**70]):
        with pytest.raises((ValueError, OverflowError)):
            encoder.encode_joined("abcd", ends, 2, True)
    for wrong in (["4"], [None], (4,), None):
        with pytest.raises(TypeError):
            encoder.encode_joined("abcd", wrong, 2, True)
    with pytest.raises(TypeError):
        encoder.encode_joined(b"abcd", [4], 2, True)
    for options in ((0, True), (2, True, -1)):
        with pytest.raises(ValueError, match="must be at least"):
            encoder.encode_joined("abcd", [4], *options)
    for text in ("ab\ud800d", "中b\ud800d"):
        for threads in (1, 2):
            with pytest.raises(UnicodeEncodeError):
                encoder.encode_joined(text, [2, 4], threads, True, 0)
    assert encoder.encode_joined("", [], 2, True) == []


def test_parts_must_be_normal() -> None:
    for normalizer in ("NFC", "NFKC"):
        encoder = encoder_of(normalizer=normalizer)
        assert encoder.encode_joined("ab cd", [2, 5], 2, False, 0) == [*b"ab cd"]
        for text in ("ab e\u0301", "e\u0301 ab"):
            assert encoder.encode_joined(text, [2, len(text)], 2, False, 0) is None
            made = encoder.encode_joined(text, [2, len(text)], 2, True, 0)
            assert made == [*text.encode()]
        normal = encoder.encode_joined("ab é", [2, 4], 2, False, 0)
        assert normal == ([*"ab é".encode()] if normalizer == "NFC" else None)


def test_batches_of_equal_texts_are_different_lists() -> None:
    first, second = encoder_of().encode_batch(["ab", "ab"], 2)
    first.append(1)
    assert second == [97, 98]


# -- Merges from ranks -------------------------------------------------------------


def merges_by_python(tokens: list[bytes]) -> list[tuple[bytes, bytes]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bpe_tokenizer, "ACCELERATED", False)
        return recover_merges({token: rank for rank, token in enumerate(tokens)})


def merges_found(tokens: list[bytes]) -> list[tuple[bytes, bytes]]:
    found = native.merges_from_ranks(tokens)
    assert len(found) == len(tokens)
    named = native.merges_from_ranks(tokens, list(range(7, 7 + len(tokens))))
    assert named == [(pair[0] + 7, pair[1] + 7) for pair in found if pair]
    return [(tokens[pair[0]], tokens[pair[1]]) for pair in found if pair]


@given(
    tokens=st.lists(st.text("abc\0", min_size=1, max_size=9).map(str.encode), unique=True)
    | st.lists(st.text("ab", min_size=1, max_size=30).map(str.encode), unique=True)
    | st.lists(st.binary(max_size=5), unique=True),
    all_symbols=st.booleans(),
)
def test_merges_of_any_ranks(tokens: list[bytes], all_symbols: bool) -> None:
    if all_symbols:
        tokens += [symbol for symbol in (b"a", b"b", b"c", b"\0") if symbol not in tokens]
    assert merges_found(tokens) == merges_by_python(tokens)


def test_merges_of_long_and_few_tokens() -> None:
    letters = [b"a", b"b"]
    runs = [b"a" * n for n in (2, 4, 8, 16, 15, 32, 31, 300)]
    for tokens in ([], [b""], letters, [*letters, *runs], [*letters, *reversed(runs)]):
        assert merges_found(tokens) == merges_by_python(tokens)
    assert native.merges_from_ranks([b"b", b"ab", b"a"]) == [None, (2, 0), None]
    with pytest.raises(OverflowError, match="too long"):
        native.merges_from_ranks([b"a", b"a" * 40_000])


def test_names_of_merges_are_plain() -> None:
    for names in ([1], [1, 2, 3], [1, "b"], [1, True], [1, (2,)], (1, 2), 5):
        with pytest.raises(TypeError, match="names must be"):
            native.merges_from_ranks([b"a", b"b"], names)


def test_merges_of_published_ranks(load_vocab: Callable[[str], Any]) -> None:
    ranks = load_vocab("cl100k_base")[0]
    tokens = sorted(ranks, key=ranks.__getitem__)[:20_000]
    assert merges_found(tokens) == merges_by_python(tokens)


# -- Files of ranks --------------------------------------------------------------


def ranks_file(tokens: list[bytes], steps: list[int]) -> bytes:
    ranks = itertools.accumulate(steps, initial=0)
    return b"".join(b64encode(token) + b" %d\n" % rank for token, rank in zip(tokens, ranks))


@given(
    tokens=st.lists(st.binary(min_size=1, max_size=20), unique=True, max_size=9),
    steps=st.lists(st.integers(1, 2**29), min_size=9),
    changes=st.lists(
        st.tuples(
            st.integers(0, 99),
            st.integers(0, 2),
            st.sampled_from([b"", b"=", b"0", b"9", b"\n", b" ", b"B", b"+", b"/", b"\r", b"\xff"]),
        ),
        max_size=2,
    ),
)
def test_reads_files_of_ranks_as_python_does(
    tokens: list[bytes], steps: list[int], changes: list[tuple[int, int, bytes]]
) -> None:
    data = ranks_file(tokens, steps)
    for at, size, new in changes:
        data = data[:at] + new + data[at + size :]
    found, expected = native.read_ranks(data), _read_plain_ranks(data)
    if not changes:
        assert found is not None or max(itertools.accumulate(steps[:8])) >= 2**31
    if found is not None:
        assert [*found.items()] == [*(expected or {}).items()]


@pytest.mark.parametrize(
    "data",
    [
        *(b"YQ== 1\nYg== 1", b"YQ== 2\nYg== 1", b"YQ== 1\nYQ== 2", b"YQ== 01", b"YQ== 2147483648"),
        *(b"YR== 1", b"YWJ= 1", b"YQ= 1", b"YQ 1", b"Y=== 1", b"= 1", b" 1", b"==== 1", b"Y=Q= 1"),
        *(b"YQ== ", b"YQ==", b"YQ==  1", b"YQ== 1 ", b"YQ== 1\r\n", b"\nYQ== 1", b"YQ== -1"),
        *(b"YQ== 1\n\nYg== 2", b"YQ==\t1", b"YQ== 1\0", b"YQ== 99999999999999999999999", b"-_== 1"),
    ],
)
def test_leaves_other_files_of_ranks_to_python(data: bytes) -> None:
    assert native.read_ranks(data) is None


def test_files_of_ranks_are_bytes() -> None:
    with pytest.raises(TypeError, match="must be bytes"):
        native.read_ranks("YQ== 1")
    assert native.read_ranks(b"") == native.read_ranks(b"\n") == {}
    assert native.read_ranks(b"YQ== 0\nYWI= 7\nYWJj 2147483647") == {
        **{b"a": 0, b"ab": 7, b"abc": 2**31 - 1}
    }


# -- tokenizer.json --------------------------------------------------------------

CONTENTS = [
    "<s>",
    "ab",
    "a",
    "a b",
    "<0x41>",
    "\uff5cs\uff5c",
    "é",
    "\u0120a",
    '"\\/',
    "\ud800",
    "",
]
CUTS = [
    b"",
    b'"',
    b",",
    b"0",
    b"9",
    b"\\",
    b"\\u0120",
    b"\xc4\xa0",
    b"\xff",
    b"]",
    b"}",
    b" ",
    b"a",
]


def json_file(merges: list[tuple[str, str]], contents: list[str], more: list[str]) -> Any:
    vocab = {char: byte for byte, char in enumerate(bpe_tokenizer._CHAR_TO_BYTE)}
    for token in (*map("".join, merges), *more):
        vocab.setdefault(token, len(vocab))
    added = {content: vocab.get(content) for content in contents}
    new = itertools.count(len(vocab))
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": next(new) if id_ is None else id_, "content": text, "special": True, **flags}
            for text, id_ in added.items()
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


def json_by_python(raw: bytes) -> Any:
    return bpe_tokenizer._read_definition(bpe_tokenizer._JsonReader.open(Path(), raw))


def check_json(raw: bytes) -> bool:
    """Compare both engines; return whether the extension read it."""
    found = _read_json(Path(), raw)
    if found is not None:
        expected = json_by_python(raw)
        assert found[1] == expected
        assert [*found[1].vocab] == [*expected.vocab]
        assert list(map(type, found[1].merges)) == [tuple] * len(expected.merges)
    return found is not None


@given(
    parts=st.lists(st.sampled_from(["a", "b", "\u0120", "ab", "é", "<s", ">"]), max_size=8),
    contents=st.lists(st.sampled_from(CONTENTS), max_size=3),
    more=st.lists(st.sampled_from(CONTENTS), max_size=2),
    changes=st.lists(
        st.tuples(st.integers(0, 4_000), st.integers(0, 3), st.sampled_from(CUTS)), max_size=2
    ),
    ascii_only=st.booleans(),
    as_text=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_reads_tokenizer_json_as_python_does(
    parts: list[str],
    contents: list[str],
    more: list[str],
    changes: list[tuple[int, int, bytes]],
    ascii_only: bool,
    as_text: bool,
    indent: int | None,
) -> None:
    data = json_file(list(zip(parts[::2], parts[1::2])), contents, more)
    if as_text:
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    text = json.dumps(data, ensure_ascii=ascii_only, indent=indent)
    raw = text.encode("utf-8", "surrogatepass")
    for at, size, new in changes:
        at = len(raw) - at  # merges are at the end
        raw = raw[: max(at, 0)] + new + raw[max(at + size, 0) :]
    check_json(raw)


def test_reads_what_is_usual_in_a_tokenizer_json() -> None:
    merges = [("a", "b"), ("\u0120", "ab"), ("\u0120a", "b"), ("a", "a")]
    for contents, more in (
        ([], []),
        (["<s>", "</s>"], []),
        (["<s>", "</s>"], ["<s>", "\u0120a"]),
        (["\uff5cs\uff5c", "a b"], ["\uff5cs\uff5c", "\u0120a"]),
        (["\uff5cs\uff5c"], ["<s>", '"\\/', "\u0120a"]),
    ):
        data = json_file(merges, contents, ["\u0120a", *more])
        for pair in (list, " ".join):
            data["model"]["merges"] = list(map(pair, merges))
            for text in (json.dumps(data), json.dumps(data, indent=2, ensure_ascii=False)):
                # In a key that the byte alphabet can't write, escapes are unusual.
                escaped = "\\uff5c" in text and "\uff5cs\uff5c" in more
                assert check_json(text.encode()) != escaped


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"!": 33', '"!": 33, "!": 33'),  # the last one counts
        ('"!": 33', '"!": 1'),
        ('"!": 33', '"!": 033'),
        ('"!": 33', '"!": 33.0'),
        ('"!": 33', '"!": 1048575'),
        ('"!": 33', '"\\n": 0'),
        ('"!": 33', '"\\u00g1": 0'),
        ('"!": 33', '"!": 33, "": 700'),
        ('"!": 33', '"!": 33, "<pad>": 258'),
        ('"!": 33', '"!": 33, "\uff5c": 700'),
        ('["a", "b"]', '["a", "b"], ["a", "b"]'),  # the later one counts
        ('["a", "b"]', '["a", "b "]'),
        ('["a", "b"]', '["a", "b", "c"]'),
        ('["a", "b"]', '["a", ""]'),
        ('["a", "b"]', '["a" "b"]'),
        ('["a", "b"]', '"a b c"'),
        ('["a", "b"]', '"ab"'),
        ('["a", "b"]', '["b", "a"]'),
        ('["a", "b"]', "null"),
        ('["a", "b"]', '["a", "b"],'),
        ('"merges"', '"merges": [], "merges"'),
        ('"vocab"', '"vocab": {}, "vocab"'),
        ('"vocab"', '"\\u0076ocab"'),
        ('"model"', '"model": {}, "model"'),
        ('"type": "BPE"', '"type": "BPE", "end_of_word_suffix": "</w>"'),
        ('"type": "BPE"', '"type": "BPE", "byte_fallback": true'),
        ('"type": "BPE"', '"type": "WordPiece"'),
        ('"ByteLevel", "add', '"Metaspace", "add'),
        ('"version": "1.0"', '"version": "2.0"'),
        ('"version": "1.0"', '"version": 1.0e'),
        ('"id": 257', '"id": 5'),
        ('"id": 257', '"id": -1'),
        ('"id": 257', '"id": 256'),
        ('"id": 257', '"id": "257"'),
        ('"id": 257, "content"', '"content"'),
        ('[{"id"', '[5, {"id"'),
        ("}}", "}"),
        ("}}", "}}}"),
        ("{", "\ufeff{"),
    ],
)
def test_leaves_another_tokenizer_json_to_python(old: str, new: str) -> None:
    text = json.dumps(json_file([("a", "b")], ["<s>"], []), ensure_ascii=False)
    assert check_json(text.encode()) and old in text
    assert not check_json(text.replace(old, new, 1).encode())


def test_no_beginning_of_a_tokenizer_json_is_read() -> None:
    raw = json.dumps(json_file([("a", "b")], ["<s>"], []), ensure_ascii=False).encode()
    for size in range(len(raw)):
        assert native.read_model(raw[:size]) is None
    with pytest.raises(TypeError, match="must be bytes"):
        native.read_model(raw.decode())


# -- Errors and limits -----------------------------------------------------------


def encoder_of(*merges: tuple[bytes, bytes], **options: Any) -> Any:
    return engines(definition_of(list(merges)), "gpt2", **options)[1]


def every_way(encoder: Any) -> list[Any]:
    """Return the ways to encode a text."""
    others = ["good", "é", "中" * 20_000] * 9
    return [
        encoder.encode,
        encoder.encode_to_buffer,
        encoder.count,
        lambda text: encoder.encode_batch_recorded([text], 1),
        lambda text: encoder.encode_batch_recorded([text], 1, 0, 1),
        lambda text: encoder.encode_pretokens(["a", text]),
        lambda text: encoder.count_pieces(["a", text]),
        lambda text: encoder.encode_batch([text], 1),
        lambda text: encoder.encode_batch([*others, text, *others, "\udfff"], 3),
        lambda text: encoder.encode_batch_to_buffers([*others, text, *others, "\udfff"], 2),
        lambda text: encoder.encode_joined(text, [len(str(text))], 2, True, 0),
    ]


@pytest.mark.parametrize(
    "text", ["\ud800", "a\udfff", "é\ud800", "😀\udc00b", "x" * 100 + "\ud801"]
)
def test_surrogates_are_refused_as_python_refuses_them(text: str) -> None:
    encoder = encoder_of()
    with pytest.raises(UnicodeEncodeError) as expected:
        text.encode()
    for call in every_way(encoder):
        with pytest.raises(UnicodeEncodeError) as error:
            call(text)
        assert error.value.args == expected.value.args
    assert encoder.encode("ok") == [111, 107]


@pytest.mark.parametrize("wrong", [None, b"text", 5, ["text"]])
def test_wrong_types(wrong: object) -> None:
    encoder = encoder_of()
    for call in every_way(encoder):
        with pytest.raises(TypeError, match=f"text must be a str, got {type(wrong).__name__}"):
            call(wrong)
    for ids in ([wrong], [97, wrong], wrong):
        if ids not in ([5], [97, 5], b"text"):
            with pytest.raises(TypeError):
                encoder.decode(ids)
            with pytest.raises(TypeError):
                encoder.offsets("text", ids)
    for call in (encoder.encode_pretokens, encoder.count_pieces, native.merges_from_ranks):
        with pytest.raises(TypeError, match=f"must be a list, got {tuple.__name__}"):
            call(("text",))
    with pytest.raises(TypeError, match="texts must be a list, got str"):
        encoder.encode_batch("text", 1)
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        encoder.encode_batch(["text"], 0)
    with pytest.raises(ValueError, match="least must be at least 0, got -1"):
        encoder.encode_batch(["text"], 1, -1)
    with pytest.raises(TypeError, match="tokens must be bytes"):
        native.merges_from_ranks(["a"])


def test_strings_of_a_subclass() -> None:
    class Text(str):
        pass

    assert encoder_of().encode(Text("é")) == [0xC3, 0xA9]


def test_decoding_unknown_ids() -> None:
    definition = definition_of([(b"a", b"b")], added=(AddedToken("<|end|>", 300),))
    encoder = engines(definition, "gpt2")[1]
    assert encoder.decode([256, 300, 97]) == b"ab<|end|>a"
    assert encoder.decode((256,)) == b"ab"
    assert encoder.decode([]) == b""
    for unknown in (257, 299, 301, -1, 2**31, 2**70):
        with pytest.raises(KeyError) as error:
            encoder.decode([97, unknown])
        assert error.value.args == (unknown,)


@given(
    ids=st.lists(
        st.sampled_from([*range(90, 100), 0xC3, 0xA9, 0xE4, 0xB8, 0xAD, *range(256, 265)])
    ),
    errors=st.sampled_from(["strict", "replace", "ignore"]),
)
def test_decodes_to_text_as_python_does(ids: list[int], errors: str) -> None:
    """Broken UTF-8 included."""
    merges = [(b"a", b"b"), (b"\xc3", b"\xa9"), (b"\xe4", b"\xb8"), (b"\xe4\xb8", b"\xad")]
    merges += [(b"ab", b"ab"), (b"abab", b"abab"), (b"abababab", b"abababab"), (b"\xa9", b"a")]
    python, encoder = engines(definition_of([*merges, (b"\xe4", b"a")]), "gpt2")
    try:
        expected = python.decode_to_str(ids, errors)
    except UnicodeDecodeError as error:
        with pytest.raises(UnicodeDecodeError) as raised:
            encoder.decode_to_str(ids, errors)
        assert raised.value.args == error.args
    else:
        for each in (ids, tuple(ids), array("I", ids)):
            assert encoder.decode_to_str(each, errors) == expected


# The ends of what may stand at each place in a character, and their neighbors.
EDGES = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xC3, 0xC4, 0xDF]
EDGES += [0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF]


@pytest.mark.parametrize("around", ["", "é", "я", "中", "😀"])
def test_reads_utf8_as_python_does(around: str) -> None:
    """Every character, and every four bytes of which one may be wrong; in text of each width."""
    encoder = encoder_of()
    before, errors = list(around.encode()), ("replace", "ignore")
    for size in (1, 2, 3, 4):
        for some in itertools.product(EDGES, repeat=size):
            ids = [*before, *some, 0x61]
            if size < 4 or some[0] >= 0xE0:
                expected = bytes(ids).decode(errors="replace")
                assert encoder.decode_to_str(ids, "replace") == expected, some
    for text in every_character(around + "{}a", step=2_000):
        for each in (text, text + "\0", text[::-1], around * 9 + text):
            data = each.encode()
            made = encoder.decode_to_str(list(data), "strict")
            assert made == each
            assert sys.getsizeof(made) == sys.getsizeof(data.decode())
            for cut in (1, 2, 3):
                ids, broken = list(data[:-cut]), data[:-cut]
                assert [encoder.decode_to_str(ids, how) for how in errors] == [
                    broken.decode(errors=how) for how in errors
                ]


def test_decoding_lists_of_any_size() -> None:
    """Short tokens and long ones, where there is little room left, and none."""
    merges = [(b"ab" * size, b"ab" * size) for size in (1, 2, 4, 8, 16, 32, 64)]
    encoder = encoder_of((b"a", b"b"), *merges)
    longest, eight = 256 + len(merges), 258
    for n in (0, 1, 2, 31, 32, 33, 63, 64, 65, 96, 2_047, 16_383, 16_384, 16_385):
        for ids in ([longest] * n, [97] * n, [eight] * n, [longest, 97] * (n // 2)):
            expected = b"".join(encoder.decode([id_]) for id_ in ids).decode()
            assert encoder.decode_to_str(ids, "strict") == expected
            if ids:
                with pytest.raises(KeyError):
                    encoder.decode_to_str([*ids[:-1], longest + 9], "strict")


@given(
    ids=st.lists(st.integers(-2, 12) | st.integers() | st.booleans()),
    out=st.frozensets(st.integers(0, 10)),
)
def test_leaves_ids_out_as_python_does(ids: list[int], out: frozenset[int]) -> None:
    definition = definition_of([])
    python, encoder = bpe_tokenizer._Encoder(definition), NativeEncoder(definition)
    numbers = array("q", [id_ & 15 for id_ in ids])
    for make in (list, tuple, iter):
        assert [*encoder.without(make(ids), out)] == python.without(make(ids), out)
    assert [*encoder.without(numbers, out)] == python.without(numbers, out)


def test_leaves_ids_out_of_what_is_no_list_of_ints() -> None:
    encoder = NativeEncoder(definition_of([]))
    for wrong in ("ab", [97, "b"], [97.0], 1.5):
        with pytest.raises(TypeError, match="ids must be"):
            encoder.without(wrong, frozenset([98]))
    assert encoder.without(97, frozenset([97])) == []


@given(
    rows=st.lists(
        st.lists(st.sampled_from([97, 98, 0xC3, 0xA9, 256, 257, 258, 258, 258, 259]), max_size=9)
        | st.lists(st.integers(-2, 262) | st.booleans() | st.integers(), max_size=3)
    ),
    left_out=st.sets(st.integers(0, 10) | st.sampled_from([256, 258, 900])).map(frozenset),
    pad_id=st.sampled_from([None, 98, 258, 259, 260, 900, 2**40]),
)
def test_decodes_rows_as_python_does(
    rows: list[list[int]], left_out: frozenset[int], pad_id: int | None
) -> None:
    """Lists, buffers, iterators; padding of one id, or of many; ids without a token."""
    definition = definition_of([(b"a", b"b"), (b"ab", b"ab"), (b"abab", b"abab")])
    python, encoder = bpe_tokenizer._Encoder(definition), NativeEncoder(definition)
    expected = python.decode_rows(rows, left_out, pad_id)
    assert encoder.decode_rows(rows, left_out, pad_id) == expected
    assert encoder.decode_rows(iter(rows), left_out, pad_id) == expected
    plain = [[id_ & 511 for id_ in ids] for ids in rows]
    arrays = [array("q", ids) for ids in plain]
    expected = python.decode_rows(plain, left_out, pad_id)
    assert encoder.decode_rows([*map(tuple, plain)], left_out, pad_id) == expected
    assert encoder.decode_rows(arrays, left_out, pad_id) == expected
    width = max(map(len, plain), default=0)
    if width:
        filled = [ids + [97] * (width - len(ids)) for ids in plain]
        flat = array("i", itertools.chain(*filled))
        table = memoryview(flat).cast("B").cast("i", (len(filled), width))
        if all(id_ < 259 for id_ in flat):
            made = encoder._native.decode_rows(table, "replace", 97, 98, b"\1")
            assert made == python.decode_rows(filled, frozenset([98]), 97)


def test_rows_of_any_size_and_of_other_things() -> None:
    encoder = encoder_of((b"a", b"b"), *((b"ab" * n, b"ab" * n) for n in (1, 2, 4, 8)))
    for n in (1, 31, 64, 8_192, 8_193, 40_000):
        for ids, text in (([97, 98] * n, "b" * (n - 1)), ([260, 99] * n, ("ab" * 16 + "c") * n)):
            for row in (ids, tuple(ids), array("I", ids)):
                made = encoder.decode_rows([row, [98] * n], "replace", 98, 97, b"\1")
                assert made == [text, ""]
    assert encoder.decode_rows([], "replace", 97, 0, b"") == []
    numbers = memoryview(array("I", [97] * 8))
    cube, double = numbers.cast("B").cast("I", (2, 2, 2)), array("d", [1.0])
    wrong: Any
    for wrong in ([[300]], [[97], array("I", [300])], [[97, -1]]):
        with pytest.raises(KeyError):
            encoder.decode_rows(wrong, "replace", -1, 0, b"")
    for wrong in (["a"], [{97}], [[97, None]], [numbers[::2]], numbers, cube, [cube], [double], {}):
        with pytest.raises(TypeError):
            encoder.decode_rows(wrong, "replace", -1, 0, b"")
    for wrong in ((5,), ([], 5, 0, 0, b""), ([], "replace", 0, 0, "")):
        with pytest.raises(TypeError):
            encoder.decode_rows(*wrong)


@pytest.mark.parametrize("code", "hHiIlLqQ")
def test_decoding_buffers(code: str) -> None:
    merges = [(b"ab" * size, b"ab" * size) for size in (1, 2, 4)]
    encoder = encoder_of((b"a", b"b"), *merges, (b"ab" * 8, b"\xc3"))  # 256 to 260
    for n in (0, 1, 5, 1_023, 1_024, 1_025, 9_000):
        ids = random.Random(n).choices([97, 98, 256, 260, 0xC3, 0xA9], k=n)
        buffer = array(code, ids)
        for each in (buffer, memoryview(buffer), memoryview(buffer).toreadonly()):
            assert encoder.decode(each) == encoder.decode(ids)
            assert encoder.decode_to_str(each, "replace") == encoder.decode_to_str(ids, "replace")
    largest = 2 ** (8 * array(code).itemsize - (code.islower())) - 1
    for unknown in (261, largest, -1 if code.islower() else largest - 5):
        with pytest.raises(KeyError, match="the id at 1 has no token"):
            encoder.decode(array(code, [97, unknown, 98]))


def test_buffers_that_are_not_of_ids() -> None:
    encoder = encoder_of()
    numbers = memoryview(array("I", range(8)))
    for each in (
        *[b"ab", bytearray(b"ab"), array("d", [97.0]), array("b", [97])],
        *[numbers[::2], numbers.cast("B").cast("I", (2, 4)), numbers.cast("B")[:4].cast("I", ())],
    ):
        with pytest.raises(TypeError, match="buffer"):
            encoder.decode(each)
        with pytest.raises(TypeError, match="buffer"):
            encoder.decode_to_str(each, "replace")
    for each in ({97}, iter([97]), "a", 97, None):
        with pytest.raises(TypeError, match="ids must be a list, a tuple or a buffer"):
            encoder.decode(each)


def test_offsets_of_other_text() -> None:
    encoder = encoder_of((b"a", b"b"))
    assert encoder.offsets("é中ab", [0xC3, 0xA9, 0xE4, 0xB8, 0xAD, 256]) == [
        *[(0, 1), (0, 1), (1, 2), (1, 2), (1, 2)],
        (2, 4),
    ]
    assert encoder.offsets("ab", (256,)) == [(0, 2)]
    for text, ids in [("ab", []), ("ab", [97]), ("", [97]), ("é", [97]), ("a", [256])]:
        with pytest.raises(ValueError, match="don't match the text"):
            encoder.offsets(text, ids)
    with pytest.raises(KeyError, match="257"):
        encoder.offsets("a", [257])
    for record in (array("I", [257]), array("I", [2**32 - 1])):
        with pytest.raises(KeyError, match="from another encoder"):
            encoder.offsets("a", record.tobytes())
    for record in (array("I", [256]), array("I", [97, 97])):
        with pytest.raises(ValueError, match="don't match the text"):
            encoder.offsets("a", record.tobytes())
    assert encoder.offsets("aab", array("I", [97]).tobytes()) == [(0, 1)]  # of its first ids
    assert encoder.offsets("a", b"") == []
    assert encoder.offsets("a", array("I", [97]).tobytes() + b"abc") == [(0, 1)]


@pytest.mark.parametrize("letters", ["ab", "abé", "ab中", "ab😀", "é", "中", "😀", "\0"])
def test_offsets_of_characters_of_each_width(letters: str) -> None:
    """Spans near the start of a text are kept; those behind, and of long tokens, are not."""
    merges = [(b"a", b"b"), (b"a", b"a"), (b"aa", b"aa"), (b"aaaa", b"aaaa"), (b"a" * 8, b"a" * 8)]
    merges += [(b"\xc3", b"\xa9"), (b"\xe4\xb8", b"\xad"), (b"\xf0", b"\x9f")]
    merges.insert(-2, (b"\xe4", b"\xb8"))
    merges += [(b"a" * 8, b"aaaa"), (b"a" * 12, b"a"), (b"a" * 16, b"a" * 16)]
    python, encoder = engines(definition_of(merges), "gpt2")
    chance = random.Random(4)
    for size in [*range(20), 8_170, *range(8_185, 8_200), 9_000]:
        text = "".join(chance.choices(letters, k=size)) + "a" * chance.choice([0, 7, 16, 60])
        places = python.places(text, python.encode(text))
        for _ in range(2):
            assert recorded_offsets(encoder, text) == places
        encoder.clear_cache()
        assert recorded_offsets(encoder, text) == places


def test_offsets_of_tokens_of_many_characters() -> None:
    """A byte counts up to 126 characters; more are counted when they come up."""
    for letter in ("a", "é", "中", "😀"):
        for n in (125, 126, 127, 128, 129, 1_000):
            for content in (letter * n, letter * n + "b"):
                end = AddedToken(content, 300)
                python, encoder = engines(definition_of([], added=(end,)), "gpt2")
                text, ids = f"x{content}é{content}", [120, 300, 0xC3, 0xA9, 300]
                assert encoder.offsets(text, ids) == python.places(text, ids)
    python, encoder = engines(definition_of([], added=(AddedToken("é" * 200, 300),)), "gpt2")
    record = array("I", [300, 97]).tobytes()
    assert encoder.offsets("é" * 200 + "a", record) == [(0, 200), (200, 201)]
    with pytest.raises(ValueError, match="don't match the text"):
        encoder.offsets("é" * 200, record)


def test_offsets_of_ids_that_are_not_of_the_text() -> None:
    """They are wrong, but never before the text or behind it."""
    python, encoder = engines(definition_of([(b"\xa9", b"a"), (b"b", b"\xc3")]), "gpt2")
    for ids in itertools.product([97, 0x98, 0xA9, 0xC3, 256, 257], repeat=4):
        size = len(encoder.decode(list(ids)))
        for text in ("a" * size, "é" * (size // 2) + "a" * (size % 2)):
            for start, end in encoder.offsets(text, list(ids)):
                assert 0 <= start <= end <= size


def test_offsets_on_threads() -> None:
    python, encoder = engines(definition_of([(b"a", b"b")]), "gpt2")
    texts = ["ab é" * n for n in range(40)]
    expected = [python.places(text, python.encode(text)) for text in texts]
    wrong = []

    def work() -> None:
        for _ in range(50):
            if [recorded_offsets(encoder, text) for text in texts] != expected:
                wrong.append(1)
            encoder.clear_cache()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_id_that_changes_the_list_it_is_in() -> None:
    encoder = encoder_of()

    class Id:
        def __index__(self) -> int:
            ids.clear()
            return 97

    ids: list[Any] = [97, Id(), 98, 99]
    assert encoder.decode(ids) == b"aabc"
    assert ids == []


# -- Tensors ---------------------------------------------------------------------


@given(
    rows=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**31), max_size=9)),
    more=st.integers(0, 3),
    pad_id=st.integers(-(2**63), 2**63 - 1),
    left=st.booleans(),
)
def test_rows_of_a_tensor(rows: list[list[int]], more: int, pad_id: int, left: bool) -> None:
    length = max(map(len, rows), default=0) + more
    if not rows or not length:  # the memory of an array in Python has no such shape
        return
    size = len(rows) * length
    made = [memoryview(array("q", [7] * size)) for _ in "12"]
    ids, mask = (each.cast("B").cast("q", (len(rows), length)) for each in made)
    native.fill_rows(rows, ids, mask, pad_id, left)
    pads = [[pad_id] * (length - len(row)) for row in rows]
    expected = [[*pad, *row] if left else [*row, *pad] for row, pad in zip(rows, pads)]
    ones = [[1] * len(row) for row in rows]
    zeros = [[0] * len(pad) for pad in pads]
    assert ids.tolist() == expected
    assert mask.tolist() == [[*z, *o] if left else [*o, *z] for o, z in zip(ones, zeros)]
    native.fill_rows(rows, mask, None, pad_id, left)
    assert mask.tolist() == expected


def test_rows_of_a_tensor_are_checked() -> None:
    def tensor(n: int = 1, length: int = 2, code: str = "q") -> memoryview:
        return memoryview(array(code, [0] * n * length)).cast("B").cast(code, (n, length))

    for rows, ids, mask, error, message in (
        ([[1, 2, 3]], tensor(), None, ValueError, "row 0 has 3 ids, expected at most 2"),
        ([[1], [2]], tensor(), None, TypeError, "two-dimensional buffer of int64 with 2 rows"),
        ([[1]], tensor(), tensor(2), TypeError, "with 1 rows"),
        ([[1]], tensor(), tensor(1, 3), ValueError, "the same shape"),
        ([[1]], tensor(code="i"), None, TypeError, "int64"),
        ([[1]], tensor().toreadonly(), None, BufferError, "writable"),
        ([[1]], array("q", [1]), None, TypeError, "two-dimensional"),
        ([[1.0]], tensor(), None, TypeError, "an id must be an int, got float"),
        ([[2**63]], tensor(), None, OverflowError, "too"),
        ([(1,)], tensor(), None, TypeError, "a row must be a list, got tuple"),
        (((1,),), tensor(), None, TypeError, "rows must be a list, got tuple"),
        ([[1]], None, None, TypeError, "bytes-like object is required"),
    ):
        with pytest.raises(error, match=message):
            native.fill_rows(rows, ids, mask, 0, False)


# -- Characters as UTF-8 ------------------------------------------------------------

WIDTHS = ["a", "\x7f", "\x80", "é", "\u07ff", "\u0800", "中", "\ud7ff", "\ue000", "\uffff"]


@pytest.mark.parametrize("last", ["", "é", "中", "\U00010000", "\U0010ffff"])
def test_characters_of_all_widths(last: str) -> None:
    chance = random.Random(1)
    wide, portable = encoder_of(), encoder_of(portable=True)
    for size in [*range(40), 100, 1_000]:
        for some in (WIDTHS[:4], WIDTHS, [*WIDTHS, last], ["a"] * 40 + [last]):
            text = "".join(chance.choices(some, k=size)) + last
            assert list(text.encode()) == wide.encode(text) == portable.encode(text)
            place = chance.randrange(len(text) + 1)
            broken = text[:place] + chance.choice(["\ud800", "\udfff"]) + text[place:]
            for encoder in (wide, portable):
                with pytest.raises(UnicodeEncodeError, match=f"position {place}:"):
                    encoder.encode(broken)


# -- Printable forms ---------------------------------------------------------------


def test_forms_are_made_once() -> None:
    asked: list[Any] = []

    def write(id_: Any) -> str:
        asked.append(id_)
        return f"<{id_}>"

    shown = native.Shown(write, 100)
    assert shown.of([5, 7, 5]) == ["<5>", "<7>", "<5>"]
    assert shown.of((7, 99)) == shown.of([7, 99]) == shown.of(iter([7, 99])) == ["<7>", "<99>"]
    assert asked == [5, 7, 99]
    assert shown[99] == shown.__getitem__(99) == "<99>"
    assert shown.of([100, -1, 2**70, None]) == ["<100>", "<-1>", f"<{2**70}>", "<None>"]
    assert shown.of([]) == []
    assert len(asked) == 7


def test_forms_while_ids_change() -> None:
    ids = [1, 2, 3]

    def write(id_: int) -> str:
        ids.clear()
        if id_ == 2:
            shown[1]  # it is kept already
        return str(id_) if id_ != 2 else shown.__getitem__(4)

    shown = native.Shown(write, 100)
    assert shown.of(ids) == ["1", "4", "3"]
    with pytest.raises(TypeError, match="not callable"):
        native.Shown(None, 1).of([0])
    with pytest.raises(ZeroDivisionError):
        native.Shown(lambda id_: 1 / 0, 1).of([0])
    with pytest.raises(TypeError, match="not iterable"):
        shown.of(5)
    for n_ids in (-1, 2**20 - 1):
        with pytest.raises(OverflowError, match=f"n_ids must be 0 to 1048574, got {n_ids}"):
            native.Shown(str, n_ids)


# -- Vocabularies made to collide --------------------------------------------------

GOLDEN, OTHER, WORD = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 2**64 - 1


def fnv(token: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in token:
        value = (value ^ byte) * 0x100000001B3 & WORD
    return value * GOLDEN & WORD


def hash_of_words(token: bytes) -> int:
    value = len(token)
    for at in range(0, len(token), 8):
        value = (value ^ int.from_bytes(token[at : at + 8], "little")) * GOLDEN & WORD
        value ^= value >> 32
    return value


def hash_of_key(token: bytes) -> int:
    low, high = (int.from_bytes(part, "little") for part in (token[:8], token[8:]))
    high |= len(token) << 56
    turned = (high << 32 | high >> 32) & WORD
    return ((low ^ turned) * GOLDEN ^ high * OTHER) & WORD


def tokens_close_together() -> list[bytes]:
    """Tokens whose hash by FNV-1a is among the lowest."""
    return sorted((n.to_bytes(4, "big") for n in range(100_000)), key=fnv)[:2_000]


def tokens_of_one_key_hash() -> list[bytes]:
    """Tokens of 11 bytes: for any last three there are first eight that give a wanted hash."""
    tokens = []
    for n in range(2_000):
        high = n | 11 << 56
        turned = (high << 32 | high >> 32) & WORD
        low = (12345 ^ high * OTHER) * pow(GOLDEN, -1, 2**64) & WORD ^ turned
        tokens.append(low.to_bytes(8, "little") + n.to_bytes(3, "little"))
    assert len({*map(hash_of_key, tokens)}) == 1
    return tokens


def tokens_of_one_long_hash() -> list[bytes]:
    """Tokens of 16 bytes: the second eight undo the difference that the first eight make."""
    tokens = []
    for n in range(2_000):
        value = (16 ^ n) * GOLDEN & WORD
        tokens.append(n.to_bytes(8, "little") + (value ^ value >> 32).to_bytes(8, "little"))
    assert len({*map(hash_of_words, tokens)}) == 1
    return tokens


def with_tokens(tokens: list[bytes]) -> Any:
    vocab = {bytes([byte]): byte for byte in range(256)}
    vocab.update((token, 256 + i) for i, token in enumerate(tokens))
    return bpe_tokenizer.Definition(vocab, [], SPLIT_PATTERNS["gpt2"], None, ignore_merges=True)


def with_pairs_close_together() -> Any:
    """Merges of two bytes, whose ids are such that the pairs' hashes are among the lowest."""
    ids = random.Random(1).sample(range(10_000, 2**20 - 2), 256)
    pairs = [(left, right) for left in range(256) for right in range(256)]
    pairs.sort(key=lambda pair: (ids[pair[0]] << 20 | ids[pair[1]]) * GOLDEN & WORD)
    vocab = {bytes([byte]): id_ for byte, id_ in enumerate(ids)}
    vocab.update((bytes(pair), i) for i, pair in enumerate(pairs[:3_000]))
    merges = [(ids[left], ids[right]) for left, right in pairs[:3_000]]
    return bpe_tokenizer.Definition(vocab, merges, SPLIT_PATTERNS["gpt2"], None)


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_tokens(tokens_close_together()),
        lambda: with_tokens(tokens_of_one_key_hash()),
        lambda: with_tokens(tokens_of_one_long_hash()),
        with_pairs_close_together,
    ],
    ids=["FNV", "keys", "long", "pairs"],
)
def test_vocabularies_made_to_collide(make: Callable[[], Any]) -> None:
    """Fixed hashes would send these to one place: over a million entries to look at.

    Tokens and merges are chosen for the ways to hash that the extension had before.
    """
    definition = make()
    python, encoder = engines(definition, "gpt2")
    assert encoder.load_probes() < 10 * (len(definition.vocab) + len(definition.merges))
    text = "".join(map(chr, random.Random(3).choices(range(256), k=20_000)))
    check_equal(python, encoder, text)
    tokens = b"".join(definition.vocab).decode(errors="replace")
    check_equal(python, encoder, tokens)


def test_ranks_made_to_collide() -> None:
    """The places of tokens are their ids when merges are found from ranks."""
    chance = random.Random(5)
    pairs = [bytes([left, right]) for left in range(256) for right in range(256)]
    places = chance.sample(range(2_000), 256)
    lowest = sorted(
        pairs, key=lambda pair: (places[pair[0]] << 20 | places[pair[1]]) * GOLDEN & WORD
    )[:2_500]
    rest = iter(lowest)
    byte_at = {place: bytes([byte]) for byte, place in enumerate(places)}
    tokens = [byte_at.get(place) or next(rest) for place in range(256 + len(lowest))]
    found = native.merges_from_ranks(tokens)
    given = [(tokens[pair[0]], tokens[pair[1]]) for pair in found if pair]
    assert given == recover_merges({token: rank for rank, token in enumerate(tokens)})


def test_what_does_not_fit() -> None:
    vocab = {bytes([byte]): byte for byte in range(256)}
    with pytest.raises(OverflowError):
        native.Encoder({**vocab, b"ab": 2**20}, [], "gpt2")
    with pytest.raises(OverflowError):
        native.Encoder({**vocab, b"ab": 2**70}, [], "gpt2")
    with pytest.raises(ValueError, match="negative"):
        native.Encoder({**vocab, b"ab": -1}, [], "gpt2")
    with pytest.raises(ValueError, match="no token for byte 65"):
        native.Encoder({token: id_ for token, id_ in vocab.items() if id_ != 65}, [], "gpt2")
    with pytest.raises(ValueError, match="makes no token"):
        native.Encoder(vocab, [(97, 98)], "gpt2")
    with pytest.raises(ValueError, match="makes no token"):
        native.Encoder(vocab, [(97, 5_000)], "gpt2")
    with pytest.raises(ValueError, match="no scanner"):
        native.Encoder(vocab, [], "latin")
    with pytest.raises(TypeError):
        native.Encoder(vocab, [[97, 98]], "gpt2")
    with pytest.raises(TypeError):
        native.Encoder({**vocab, "ab": 256}, [], "gpt2")
    with pytest.raises(TypeError, match="an id must be an int, got float"):
        native.Encoder({**vocab, b"ab": 256.0}, [], "gpt2")
    with pytest.raises(TypeError, match="merges must be a list, got dict"):
        native.Encoder(vocab, {}, "gpt2")
    without = native.Encoder(vocab, [], None)
    for call in (without.encode, without.count, lambda text: without.encode_batch([text], 1)):
        with pytest.raises(TypeError, match="encode_pretokens"):
            call("a")
    highest = native.Encoder({**vocab, b"ab": 2**20 - 3}, [(97, 98)], "gpt2")
    assert highest.encode("ab abab") == [2**20 - 3, 32, 2**20 - 3, 2**20 - 3]


# -- Threads and memory ----------------------------------------------------------


def test_threads_share_an_encoder() -> None:
    python, encoder = engines(trained("cl100k"), "cl100k")
    chance = random.Random(4)
    texts = ["".join(chance.choices(ATOMS, k=300)) for _ in range(40)]
    expected = [python.encode(text) for text in texts]
    wrong = []

    def work(first: int) -> None:
        for i in range(first, first + 200):
            if encoder.encode(texts[i % 40]) != expected[i % 40]:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


MODEL = b'{"model": {"vocab": {"a": 500, "b": 600, "ab": 700, "\xff": 9}, "merges": ["a b"]'


def test_nothing_leaks() -> None:
    encoder = encoder_of((b"a", b"b"), (b"ab", b"ab"))
    text = "abab é中😀 " * 20

    def everything() -> None:
        encoder.decode(encoder.encode(text))
        encoder.decode_to_str(encoder.encode(text), "strict")
        for rows in ([[97], array("I", [97, 98])], [[97], [5_000]], [[97], array("I", [5_000])]):
            with contextlib.suppress(KeyError):
                encoder.decode_rows(rows, "replace", 98, 97, b"\1")
        encoder.encode_to_buffer(text)
        encoder.encode_plain(text)
        encoder.encode_plain("\ud800")
        finder = native.Finder({"ab": 97, "é中": None, "é": 98})
        finder.find(text, 0, len(text))
        encoder.encode_around(finder, text)
        encoder.encode_around(finder, "ab\ud800")
        encoder.encode_around_to_buffer(finder, text)
        encoder.count(text)
        encoder.count_plain("ab\ud800")
        encoder.count_around(finder, text)
        encoder.encode_pretokens(["ab", "", "é"])
        encoder.count_pieces(["ab", "", "é"])
        encoder.encode_batch([text, text], 1)
        encoder.encode_batch_to_buffers([text, text], 1)
        encoder.offsets(text, encoder.encode(text))
        recorded_offsets(encoder, text)
        encoder.encode_segments(finder, True, [(text, False), ("ab", True), ("é中", True)])
        native.merges_from_ranks([b"a", b"b", b"ab"], [500, 600, 700])
        for data in (b"YQ== 500\nYWI= 600", b"YQ== 1\nYQ== 2", b"YQ== 500\n=", b"Y!== 5"):
            native.read_ranks(data)
        for part in (b"", b"a", b"]", b'"'):
            native.read_model(MODEL + part + b"}}")
        for wrong in ("\ud800", 5):
            for call in (encoder.encode, lambda text: encoder.encode_batch(["a", text], 1)):
                with contextlib.suppress(TypeError, UnicodeEncodeError):
                    call(wrong)
        for ids in ([5_000], [97, "a"], [97], 5):
            with contextlib.suppress(TypeError, KeyError, ValueError):
                encoder.offsets(text, ids)
        native.split("gpt2", text)
        tensor = memoryview(array("q", [0] * 4)).cast("B").cast("q", (2, 2))
        native.fill_rows([[1], [2, 300]], tensor, tensor, 0, True)
        for rows in ([[1], [2, 3, 4]], [[1], ["a"]], [[1], 5]):
            with contextlib.suppress(TypeError, ValueError):
                native.fill_rows(rows, tensor, None, 0, False)

    def count_references() -> int:
        return sys.getrefcount(encoder.encode("abab")[0])

    everything()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        references = count_references()
        for _ in range(2_000):
            everything()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 10_000
        after = count_references()
        assert after == references
    finally:
        tracemalloc.stop()


def test_cache_is_counted_and_cleared() -> None:
    encoder = encoder_of((b"a", b"b"))
    encoder.encode("ab ab ab")
    encoder.encode("ab")
    lookups, misses, size = encoder.cache_info()
    assert (lookups, misses, size) == (4, 2, 2)
    encoder.clear_cache()
    assert encoder.cache_info() == (0, 0, 0)
    assert encoder.encode("ab") == [256]
