"""Training by the accelerator against the Python engine, which says what is right."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import re
import subprocess
import sys
import threading
import tracemalloc
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pinned
import pytest
from conftest import ROOT, read_corpus
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples
from test_accelerator import ATOMS, BOTH_WAYS, EVERY_PATTERN, FOLDER, native

import bpe_tokenizer
from _bpe_tokenizer.engine import NativeCounter
from bpe_tokenizer import SPLIT_PATTERNS

ALPHABET = bpe_tokenizer._ALPHABET

Learned = tuple[list[tuple[bytes, bytes]], list[bytes], str]


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they compare both engines by themselves."""


# -- Counting --------------------------------------------------------------------


def count_by_regex(name: str, texts: list[str]) -> dict[bytes, int]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(pinned.findall(SPLIT_PATTERNS[name], text))
    return {pretoken.encode(): count for pretoken, count in counts.items()}


def random_texts(chance: random.Random, n: int, size: int) -> list[str]:
    return ["".join(chance.choices(ATOMS, k=chance.randrange(size))) for _ in range(n)]


@EVERY_PATTERN
@BOTH_WAYS
@pytest.mark.parametrize("seed", [1, 2])
def test_counts_as_regex_splits(name: str, portable: bool, seed: int) -> None:
    texts = ["", "\0", "\0\0\0", "a\0", "a"]
    texts += random_texts(random.Random(seed), 200, 100)
    texts += random_texts(random.Random(seed), 5, 60_000)
    counter = native.PretokenCounter(name, portable=portable)
    counter.count(texts)
    expected = count_by_regex(name, texts)
    assert counter.to_dict() == expected
    assert len(counter) == len(expected)


@EVERY_PATTERN
@given(texts=st.lists(st.text() | st.lists(st.sampled_from(ATOMS)).map("".join)))
def test_counts_any_texts(name: str, texts: list[str]) -> None:
    counter = native.PretokenCounter(name)
    counter.count(texts)
    assert counter.to_dict() == count_by_regex(name, texts)


@EVERY_PATTERN
@pytest.mark.parametrize("corpus", ["english", "code", "multi"])
def test_counts_real_text(name: str, corpus: str, corpora_dir: Path) -> None:
    text = read_corpus(corpus)[:600_000]
    texts = [text[at : at + 7_000] for at in range(0, len(text), 7_000)]
    counter = native.PretokenCounter(name)
    counter.count(texts[:40])
    counter.count(texts[40:])
    assert counter.take() == count_by_regex(name, texts)


@pytest.mark.parametrize("char", ["a", "é", "中", "😀", " ", "\0", "\n"])
@pytest.mark.parametrize("size", [1, 14, 15, 16, 17, 1_000_000])
def test_counts_long_pretokens(char: str, size: int) -> None:
    texts = [char * size, char * size + "x", char * size]
    counter = native.PretokenCounter("cl100k")
    counter.count(texts)
    assert counter.to_dict() == count_by_regex("cl100k", texts)


def test_many_different_pretokens() -> None:
    chance = random.Random(1)
    words = [
        " " + "".join(chance.choices("abcdefghij", k=chance.randrange(1, 24)))
        for _ in "x" * 300_000
    ]
    counter = native.PretokenCounter("gpt2")
    texts = ["".join(words[at : at + 10_000]) for at in range(0, len(words), 10_000)]
    counter.count(texts)
    other = native.PretokenCounter("gpt2")
    other.count(texts[:3])
    counter.add(other)
    assert len(other) == 0
    expected = Counter(word.encode() for word in words + words[:30_000])
    assert counter.to_dict() == expected
    assert len(counter) == len(expected)


def test_counts_add_up_until_they_are_taken() -> None:
    counter = native.PretokenCounter("gpt2")
    assert counter.to_dict() == counter.take() == {}
    assert len(counter) == 0
    long = " " + "x" * 50
    counter.count(["to be" + long])
    counter.count(["or not to be" + long])
    both = {b"to": 1, b" be": 2, b"or": 1, b" not": 1, b" to": 1, long.encode(): 2}
    assert counter.to_dict() == counter.to_dict() == both
    assert counter.take() == both
    assert counter.take() == {}
    counter.count(["to be" + long])
    assert counter.to_dict() == {b"to": 1, b" be": 1, long.encode(): 1}


def test_counts_what_is_cut_already() -> None:
    pretokens = ["a", "", "é" * 30, "中", "a", "\0", "a\0", "😀" * 3, "é" * 30, "x" * 15, "x" * 16]
    for counter in (native.PretokenCounter(), native.PretokenCounter("gpt2")):
        counter.count_pretokens(pretokens)
        counter.count_pretokens(pretokens * 10_000)
        times = Counter(pretoken.encode() for pretoken in pretokens if pretoken)
        assert counter.to_dict() == {pretoken: 10_001 * n for pretoken, n in times.items()}
    with pytest.raises(TypeError, match="count_pretokens"):
        native.PretokenCounter().count(["a"])


def test_strings_of_a_subclass_are_counted() -> None:
    class Text(str):
        pass

    counter = native.PretokenCounter("gpt2")
    counter.count([Text("é a")])
    assert counter.to_dict() == {"é".encode(): 1, b" a": 1}


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "é\ud800", "😀\udc00b"])
def test_surrogates_are_refused_as_python_refuses_them(text: str) -> None:
    with pytest.raises(UnicodeEncodeError) as expected:
        text.encode()
    counter = native.PretokenCounter("gpt2")
    for call in (counter.count, counter.count_pretokens):
        with pytest.raises(UnicodeEncodeError) as error:
            call(["ok"] * 1_000 + [text] + ["x" * 100_000] * 3)
        assert error.value.args == expected.value.args
    counter.take()
    counter.count(["ok"])
    assert counter.to_dict() == {b"ok": 1}


def test_wrong_arguments_of_a_counter() -> None:
    counter = native.PretokenCounter("gpt2")
    for wrong in ("text", ("a",), None, 5):
        with pytest.raises(TypeError):
            counter.count(wrong)
    for wrong in (None, b"text", 5):
        with pytest.raises(TypeError, match="must be a str"):
            counter.count(["a", wrong])
    for wrong in ("text", None, 5, [b"a"]):
        with pytest.raises(TypeError):
            counter.count_utf8(wrong)
        with pytest.raises(TypeError):
            counter.add(wrong)
    with pytest.raises(TypeError, match="must be a Finder"):
        counter.count_utf8(b"a", "finder")
    with pytest.raises(TypeError, match="count_pretokens"):
        native.PretokenCounter().count_utf8(b"a")
    counter.count(["a"])
    assert counter.to_dict() == {b"a": 1}
    with pytest.raises(ValueError, match="no scanner"):
        native.PretokenCounter("latin")


def run_threads(work: Callable[[int], None], n: int) -> None:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_share_a_counter() -> None:
    texts = random_texts(random.Random(5), 60, 3_000)
    counter = native.PretokenCounter("o200k")
    sizes = []

    def work(index: int) -> None:
        for _ in range(10):
            counter.count(texts)
            sizes.append((len(counter), len(counter.to_dict())))

    run_threads(work, 8)
    expected = count_by_regex("o200k", texts)
    assert counter.to_dict() == {pretoken: 80 * count for pretoken, count in expected.items()}
    assert set(sizes) == {(len(expected), len(expected))}


def test_threads_add_counters_to_one_another() -> None:
    texts = random_texts(random.Random(5), 20, 500)
    counters = [native.PretokenCounter("gpt2") for _ in range(3)]

    def work(index: int) -> None:
        for step in range(60):
            counters[index % 3].count(texts)
            counters[(index + step) % 3].add(counters[index % 2])

    run_threads(work, 6)
    for other in counters:
        counters[0].add(other)
    expected = count_by_regex("gpt2", texts)
    assert counters[0].to_dict() == {pretoken: 360 * count for pretoken, count in expected.items()}
    assert [len(other) for other in counters[1:]] == [0, 0]


# -- Counting bytes --------------------------------------------------------------

UTF8_BORDERS = [
    *(b"a", b"\0", b"\x7f", b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2\x80", b"\xdf\xbf"),
    *(b"\xe0\x9f\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf"),
    *(b"\xee\x80\x80", b"\xef\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80"),
    *(
        b"\xf4\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xff",
        b"\xe4\xb8",
        b"\xf0\x9f",
    ),
    *(b"word " * 9, "é ".encode(), "e\u0301".encode(), "世".encode(), "😀".encode()),
]


@settings(max_examples=examples(400))
@given(data=st.binary() | st.lists(st.sampled_from(UTF8_BORDERS)).map(b"".join))
def test_bytes_are_counted_if_python_decodes_them(data: bytes) -> None:
    counter = native.PretokenCounter("gpt2")
    try:
        text = data.decode()
    except UnicodeDecodeError as expected:
        with pytest.raises(UnicodeDecodeError) as error:
            counter.count_utf8(data)
        assert error.value.args == expected.args
    else:
        assert counter.count_utf8(memoryview(bytearray(data))) == []
        assert counter.take() == count_by_regex("gpt2", [text])


@settings(max_examples=examples(400))
@given(
    pieces=st.lists(
        st.sampled_from(
            ["<é>", "<é", "é>", "a b", " ", "<", "\u0301", "ç\u0327", "\u0958", "가\u11a8"]
        )
        | st.text(max_size=5)
    )
)
def test_what_nfc_may_change_is_left_out(pieces: list[str]) -> None:
    data = "".join(pieces).encode()
    counter = native.PretokenCounter("gpt2")
    finder = native.Finder({"<é>".encode().decode("latin-1"): None})
    left = counter.count_utf8(data, finder, True)
    ends = [at.start() for at in re.finditer("<é>".encode(), data)] + [len(data)]
    starts = [0] + [at + len("<é>".encode()) for at in ends]
    texts = {
        (start, end): data[start:end].decode() for start, end in zip(starts, ends) if start < end
    }
    assert set(left) <= texts.keys()
    counted = [text for place, text in texts.items() if place not in left]
    assert all(unicodedata.is_normalized("NFC", text) for text in counted)
    assert counter.take() == count_by_regex("gpt2", counted)


def test_a_list_that_changes_while_it_is_counted() -> None:
    text = "a b é 中 " * 20_000
    for _ in range(20):
        counter = native.PretokenCounter("gpt2")
        texts = [text[:-1] for _ in range(20)]
        thread = threading.Thread(target=counter.count, args=(texts,))
        thread.start()
        texts.clear()
        thread.join()
        assert len(counter) <= 8


# -- Counting files --------------------------------------------------------------

HARD_TO_CUT = [
    *(
        "word",
        " ",
        "  ",
        "\n",
        "\r\n",
        "1",
        "a",
        "'s",
        ".",
        "=",
        "=\u0338",
        "<",
        "|",
        "<|e|>",
        "<|e",
        "e|>",
    ),
    *(
        "e",
        "\u0301",
        "\u0327",
        "\u0344",
        "é",
        "世",
        "界。",
        "😀",
        "\u0958",
        "\u0915\u093c",
        "\u2126",
        "\u037e",
    ),
    *("\u1112", "\u1161", "\u11ab", "\u3099", "か", "\U00016d67", "\U00016d63", "\u0e33", "\ufb1d"),
]


def count_file(path: Path, pattern: str, normalizer: str | None, workers: int) -> Any:
    options = {"special_tokens": ["<|e|>"], "normalizer": normalizer, "num_workers": workers}
    return bpe_tokenizer.count_pretokens(path, pattern, **options)


@settings(max_examples=examples(300))
@given(
    pieces=st.lists(st.sampled_from(HARD_TO_CUT) | st.text(max_size=3)),
    block=st.integers(1, 9),
    tail=st.integers(1, 40),
    pattern=st.sampled_from(
        [*SPLIT_PATTERNS, r"=|\p{L}+|\s+|[^=\p{L}\s]+", r"\p{Mn}|\w+|[^\p{Mn}\w]"]
    ),
    normalizer=st.sampled_from([None, "NFC", "NFD"]),
    workers=st.integers(1, 3),
)
def test_a_file_is_counted_as_a_whole_however_it_is_cut(
    pieces: list[str],
    block: int,
    tail: int,
    pattern: str,
    normalizer: str | None,
    workers: int,
    tmp_path_factory: Any,
) -> None:
    path = tmp_path_factory.getbasetemp() / "hard.txt"
    text = "".join(pieces) + "a"
    path.write_bytes(text.encode())
    parts = [bpe_tokenizer._normalize(part, normalizer) for part in text.split("<|e|>")]
    expected = Counter[str]()
    for part in parts:
        expected.update(bpe_tokenizer._splitter(SPLIT_PATTERNS.get(pattern, pattern)).split(part))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bpe_tokenizer, "_BLOCK_CHARS", block)
        patch.setattr(bpe_tokenizer._PretokenCounter, "_BATCH_CHARS", 4 * block)
        patch.setattr(NativeCounter, "_TAIL", tail)
        counts = count_file(path, pattern, normalizer, workers)
    assert dict(counts) == {pretoken.encode(): count for pretoken, count in expected.items()}
    assert (counts.documents, counts.bytes_read) == (1, len(text.encode()))


@pytest.mark.parametrize("normalizer", [None, "NFC"])
def test_real_files_on_threads(normalizer: str | None, corpora_dir: Path, tmp_path: Path) -> None:
    text = "".join(read_corpus(name)[:3_000_000] for name in ("english", "code", "multi"))
    text = text.replace("<|endoftext|>", "<|e|>")
    path = tmp_path / "real.txt"
    path.write_bytes(text.encode())
    expected = count_file(path, "o200k", normalizer, 1)
    for workers in (2, 5):
        counts = count_file(path, "o200k", normalizer, workers)
        assert counts == expected and counts.bytes_read == expected.bytes_read
    apart = bpe_tokenizer.count_pretokens(text.split("<|e|>"), "o200k", normalizer=normalizer)
    assert dict(apart) == dict(expected)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\xc3(", b"\xf0\x9f\x98"])
@pytest.mark.parametrize("at", [0, 5_000, 4_194_300, 9_000_001])
def test_the_first_bad_byte_is_named(workers: int, bad: bytes, at: int, tmp_path: Path) -> None:
    good = "word é 世 " * 900_000
    data = bytearray(good.encode())
    while data[at] & 0xC0 == 0x80:
        at += 1
    data[at : at + len(bad)] = bad
    data[10_000_000] = 0xFE  # a later one
    path = tmp_path / "bad.txt"
    path.write_bytes(data)
    (tmp_path / "x.txt").write_text("good")
    with pytest.raises(bpe_tokenizer.FileFormatError) as error:
        bpe_tokenizer.count_pretokens([path, tmp_path / "x.txt"], num_workers=workers)
    with pytest.raises(UnicodeDecodeError) as expected:
        data.decode()
    assert error.value.field == f"byte {expected.value.start}"
    assert expected.value.reason in str(error.value)


# -- Learning --------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(
    words=st.lists(
        st.tuples(
            st.sampled_from(["a", "ab", "abab", "é中", "x" * 15, "xy" * 40]), st.integers(1, 9)
        )
    ),
    n_tokens=st.integers(0, 20),
)
def test_learns_from_a_counter_as_from_its_dict(
    words: list[tuple[str, int]], n_tokens: int
) -> None:
    counter = native.PretokenCounter()
    counter.count_pretokens([word for word, count in words for _ in range(count)])
    counts = counter.to_dict()
    assert dict(counter.items()) == counts
    assert sorted(counter.values()) == sorted(counts.values())
    options = ALPHABET, n_tokens, 1, None, frozenset({b"ab"}), None
    assert native.learn_merges(counter, *options) == native.learn_merges(counts, *options)
    assert counter.to_dict() == counts


def test_learns_from_nothing_but_a_dict_or_a_counter() -> None:
    empty = native.PretokenCounter()
    assert native.learn_merges(empty, ALPHABET, 5, 1, None, frozenset(), None) == (
        [],
        [],
        "no pairs left",
    )
    for wrong in ([], "ab", None, native.Finder({"a": None})):
        with pytest.raises(TypeError, match="a dict or a PretokenCounter"):
            native.learn_merges(wrong, ALPHABET, 5, 1, None, frozenset(), None)


def learn_in_python(
    counts: dict[bytes, int],
    n_tokens: int,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    forbidden: frozenset[bytes] = frozenset(),
) -> Learned:
    learner = bpe_tokenizer._MergeLearner(counts, max_token_length)
    return tuple(learner.learn(n_tokens, min_frequency, forbidden, lambda n: None))


def learn(
    counts: dict[bytes, int],
    n_tokens: int,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    forbidden: frozenset[bytes] = frozenset(),
    advance: Callable[[int], Any] | None = None,
) -> Learned:
    given: Learned = native.learn_merges(
        counts, ALPHABET, n_tokens, min_frequency, max_token_length, forbidden, advance
    )
    return given


def check_equal(counts: dict[bytes, int], *options: Any) -> None:
    progress: list[int] = []
    merges, tokens, stopped = learn(counts, *options, advance=progress.append)
    assert (merges, tokens, stopped) == learn_in_python(counts, *options)
    assert sum(progress) == len(tokens)
    # What the accelerator relies on: see learn.c.
    assert [left + right for left, right in merges] == tokens
    assert len(set(tokens)) == len(tokens)


# Few letters, so that ties, runs and equal strings abound.
words = st.text("ab", max_size=12) | st.text("abc", max_size=9) | st.text("aé\n ", max_size=7)
counts = st.dictionaries(words.map(str.encode) | st.binary(max_size=5), st.integers(-1, 6))
limits = st.none() | st.integers(-1, 9)
forbidden = st.frozensets(words.map(str.encode), max_size=3)


@settings(max_examples=examples(500))
@given(counts, st.integers(0, 60), st.integers(0, 3), limits, forbidden)
@example({b"aaaa": 1, b"ababab": 1}, 20, 1, None, frozenset())
@example({b"aa": 1, b"ab": 3}, 20, 2, None, frozenset([b"aa", b"ab"]))
@example({b"aaaaaaa": 2}, 20, 0, 4, frozenset())
def test_learns_as_python_does(
    counts: dict[bytes, int],
    n_tokens: int,
    min_frequency: int,
    limit: int | None,
    forbidden: frozenset[bytes],
) -> None:
    check_equal(counts, n_tokens, min_frequency, limit, forbidden)


@pytest.mark.parametrize("letters", ["a", "ab", "abc", "abcdefgh", "aeiou st\0"])
@pytest.mark.parametrize("size", [20, 300, 3_000])
def test_learns_from_random_words(letters: str, size: int) -> None:
    chance = random.Random(size)
    counts = {
        "".join(chance.choices(letters, k=chance.randrange(1, 30))).encode(): chance.choice(
            [1, 2, 9]
        )
        for _ in range(size)
    }
    for min_frequency in (0, 2, 5):
        check_equal(counts, 2_000, min_frequency)
        check_equal(counts, 50, min_frequency, chance.choice([3, 4, 6]))


@pytest.mark.parametrize("corpus", ["english", "code", "multi"])
def test_learns_from_real_text(corpus: str, corpora_dir: Path) -> None:
    counter = native.PretokenCounter("cl100k")
    counter.count([read_corpus(corpus)[:500_000]])
    counts = counter.take()
    check_equal(counts, 3_000, 2)
    check_equal(counts, 100_000, 2, None, frozenset([b" the", b"in"]))


# So long that places in them are kept, and not only which words they are.
long_words = st.tuples(words, st.integers(1, 60), words).map(
    lambda parts: (parts[0] * parts[1] + parts[2]).encode()
)


@settings(max_examples=examples(200))
@given(
    st.dictionaries(long_words, st.integers(-1, 4), max_size=12),
    st.integers(0, 60),
    st.integers(0, 3),
    limits,
    forbidden,
)
def test_learns_from_long_words(
    counts: dict[bytes, int],
    n_tokens: int,
    min_frequency: int,
    limit: int | None,
    forbidden: frozenset[bytes],
) -> None:
    check_equal(counts, n_tokens, min_frequency, limit, forbidden)


@pytest.mark.parametrize("length", [126, 127, 128, 129, 130, 20_000])
def test_learns_from_random_long_words(length: int) -> None:
    chance = random.Random(length)
    words = {bytes(chance.choices(b"abcd", k=length)): n for n in range(5)}
    check_equal({**words, b"a" * length: 2, b"ab" * length: 1}, 500, 2)
    check_equal(words, 10_000, 1)


def test_learns_from_counts_of_any_size() -> None:
    """Sums of counts beyond 32 bits, and beyond what a double can tell apart."""
    counts = {b"abc": 2**31 - 1, b"abd": 2**31 + 5, b"xyz": 2**32 + 3, b"xyw": 1}
    check_equal(counts, 20)
    counts = {b"abab": 2**53 + 1, b"cd": 2**54 + 2, b"cdcd": 1, b"ef": 2**54 + 3}
    check_equal(counts, 20)
    check_equal({b"ab": 2**60, b"cd": 2**60 - 1}, 5, 2**60)
    check_equal({b"ab": 3, b"b": 2**90, b"": 2**90, b"cd": -(2**90)}, 5)
    check_equal({b"ab": 3, b"bc": 2}, 5, 2**90)
    check_equal({b"ab": 3, b"bc": 2}, 5, -(2**90), 2**90)


def test_counts_that_are_too_large_are_refused() -> None:
    for counts in ({b"ab": 2**200}, {b"ab": 2**61 + 1}, {b"ab": 2**60 + 1, b"cd": 2**60}):
        with pytest.raises(OverflowError):
            learn(counts, 1)
        assert learn_in_python(counts, 1)[0] == [(b"a", b"b")]
    with pytest.raises(OverflowError):
        learn({b"ab": 1}, 2**40)


def test_subclasses_of_dict_and_int() -> None:
    counts = bpe_tokenizer.PretokenCounts({b"abc": True, b"bc": 2})
    assert learn(counts, 5) == learn_in_python(counts, 5)


def test_wrong_arguments_of_learning() -> None:
    right = [{b"ab": 1}, ALPHABET, 5, 1, None, frozenset(), None]
    native.learn_merges(*right)
    wrong: dict[int, list[Any]] = {
        0: [[(b"ab", 1)], {"ab": 1}, {b"ab": 1.0}, {b"ab": "1"}, None],
        2: ["5", None, 5.0],
        3: ["1", None],
        4: ["1", b"1"],
        5: [{b"a"}, ["a"], frozenset(["a"])],
        6: ["no function"],
    }
    for place, values in wrong.items():
        for value in values:
            with pytest.raises(TypeError):
                native.learn_merges(*right[:place], value, *right[place + 1 :])
    for alphabet in (ALPHABET[:-1], ALPHABET[:-1] + ALPHABET[:1], "a" * 256, None):
        with pytest.raises(ValueError, match="alphabet"):
            native.learn_merges(right[0], alphabet, *right[2:])


def test_any_alphabet_decides_ties() -> None:
    assert native.learn_merges({b"ab": 1, b"cd": 1}, ALPHABET, 1, 1, None, frozenset(), None)[
        1
    ] == [b"ab"]
    backwards = bytes(range(255, -1, -1))
    assert native.learn_merges({b"ab": 1, b"cd": 1}, backwards, 1, 1, None, frozenset(), None)[
        1
    ] == [b"cd"]


def test_what_advance_raises_ends_learning() -> None:
    class Enough(Exception):
        pass

    def advance(n: int) -> None:
        raise Enough

    counts = {b"abcdef": 5, b"abc": 2}
    for _ in range(100):
        with pytest.raises(Enough):
            learn(counts, 5, advance=advance)
    assert learn(counts, 5) == learn_in_python(counts, 5)


def test_counts_may_change_while_advance_is_told() -> None:
    counts = {bytes([97 + a, 97 + b, c]): 1 for a in range(9) for b in range(9) for c in b"abc"}
    expected = learn_in_python(counts, 1_000)
    assert learn(counts, 1_000, advance=lambda n: counts.clear()) == expected
    assert counts == {}


def test_learning_can_be_interrupted() -> None:
    # In a process of its own: a signal that comes too late must not end the tests.
    script = """if True:
        import random, signal, sys
        sys.path[:0] = sys.argv[1:]
        from _bpe_tokenizer import native
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        chance = random.Random(1)
        words = {bytes(chance.choices(b"abcdefgh", k=12)): 1 for _ in range(200_000)}
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            native.learn_merges(words, bytes(range(256)), 50_000, 1, None, frozenset(), None)
        except KeyboardInterrupt:
            print("interrupted")
    """
    if sys.platform == "win32":
        pytest.skip("no timer signals there")
    folders = [str(FOLDER), str(Path(bpe_tokenizer.__file__).parent)]
    run = subprocess.run(
        [sys.executable, "-c", script, *folders], capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.stderr) == ("interrupted\n", "")


# -- Memory ----------------------------------------------------------------------


def test_nothing_leaks_while_training() -> None:
    text = "abab é中😀 " * 20 + "x" * 40
    counts = {b"abab": 2, b"abc": 1}

    def fail(n: int) -> None:
        raise KeyError(n)

    def everything() -> None:
        counter = native.PretokenCounter("gpt2")
        counter.count([text, text])
        counter.count_pretokens([text, ""])
        for wrong in ("\ud800", 5):
            with contextlib.suppress(TypeError, UnicodeEncodeError):
                counter.count([text, wrong])
        len(counter)
        counter.to_dict()
        counter.take()
        counter.count([text])
        learn(counts, 5, advance=abs)
        for arguments in ((counts, 5, 1, None, frozenset(["a"])), ({b"ab": 2**70}, 5)):
            with contextlib.suppress(TypeError, OverflowError):
                learn(*arguments)
        with contextlib.suppress(KeyError):
            learn(counts, 5, advance=fail)

    everything()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        references = sys.getrefcount(text)
        for _ in range(500):
            everything()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 10_000
        assert sys.getrefcount(text) == references
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="it keeps what is freed")
def test_memory_of_tables_is_given_back() -> None:
    words = {bytes(random.Random(i).choices(b"abcdefgh", k=12)): 1 for i in range(20_000)}
    texts = [word.decode() for word in words]

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def everything() -> None:
        counter = native.PretokenCounter()
        counter.count_pretokens(texts)
        counter.take()
        counter.count_pretokens(texts)
        learn(words, 300)

    for _ in range(5):
        everything()
    before = resident()
    for _ in range(30):
        everything()
    assert resident() - before < 10_000_000  # one round takes more


def test_text_of_the_module_by_itself() -> None:
    """From text to merges, as `train` goes about it."""
    text = (ROOT / "bpe_tokenizer.py").read_text(encoding="utf-8")
    counter = native.PretokenCounter("gpt2")
    counter.count([text])
    tokenizer = bpe_tokenizer.BPETokenizer(normalizer=None)
    tokenizer.train(text, 2_000, verbose=False, num_workers=1)
    assert learn(counter.take(), 2_000 - 256, 2)[0] == tokenizer.merges
