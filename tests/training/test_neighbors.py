"""Counting neighbors and runs, and encoding pieces that stay apart: both engines, and naively."""

from __future__ import annotations

import importlib
import itertools
import struct
from array import array
from collections import Counter
from typing import Any

import pytest
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.training import joins, neighbors
from bpe_tokenizer_tools.training.joins import CountedWords
from bpe_tokenizer_tools.training.neighbors import BETWEEN, count_runs, listed, pair_counter
from bpe_tokenizer_tools.training.numbering import Numbering
from bpe_tokenizer_tools.training.superwords import SUPERBPE_PATTERN, Superwords

pieces = st.lists(st.lists(st.integers(0, 5) | st.integers(400, 402), max_size=9), max_size=9)
TOKENS = [b"%d," % number for number in range(403)]


def flat(pieces: list[list[int]]) -> Any:
    """Return pieces as a text of numbers."""
    made = array("I", [BETWEEN])
    for piece in pieces:
        made.extend([*piece, BETWEEN])
    return made if len(made) % 2 == 0 else array("I", [*made, BETWEEN])


def pairs_of(texts: list[list[list[int]]]) -> Counter[tuple[int, int]]:
    return Counter(pair for text in texts for piece in text for pair in itertools.pairwise(piece))


@settings(max_examples=examples(200))
@given(st.lists(pieces, max_size=4), st.integers(1, 40))
def test_all_pairs_are_counted(texts: list[list[list[int]]], n: int) -> None:
    counter = pair_counter(10**6)
    for text in texts:
        counter.add(flat(text))
    expected = pairs_of(texts)
    assert counter.missed == 0
    assert dict(counter.frequent(0)) == expected
    assert dict(counter.frequent(2)) == {pair: n for pair, n in expected.items() if n >= 2}
    assert counter.nth(n) == next(itertools.islice(sorted(expected.values())[::-1], n - 1, None), 0)
    assert counter.nth(0) == 0


@settings(max_examples=examples(200))
@given(st.lists(pieces, max_size=9), st.integers(1, 9))
def test_rare_pairs_are_forgotten(texts: list[list[list[int]]], most: int) -> None:
    """No count is too high, none lower than it says, and memory is bounded."""
    counter = pair_counter(most)
    for text in texts:
        counter.add(flat(text))
        assert sum(1 for _ in counter.frequent(0)) <= most
    found = dict(counter.frequent(0))
    for pair, count in pairs_of(texts).items():
        assert found.get(pair, 0) <= count <= found.get(pair, 0) + counter.missed


@settings(max_examples=examples(100))
@given(st.lists(pieces, max_size=6), st.integers(1, 9), st.integers(1, 9))
def test_counters_add_up(texts: list[list[list[int]]], most: int, in_all: int) -> None:
    """What several have counted, and forgotten, is as if one had."""
    total = pair_counter(in_all)
    for text in texts:
        counter = pair_counter(most)
        counter.add(flat(text))
        total.merge(counter.records(), counter.missed)
        assert sum(1 for _ in total.frequent(0)) <= in_all
    found = dict(total.frequent(0))
    for pair, count in pairs_of(texts).items():
        assert found.get(pair, 0) <= count <= found.get(pair, 0) + total.missed


@settings(max_examples=examples(60))
@given(st.lists(pieces, max_size=4), st.sets(st.tuples(*[st.integers(0, 5)] * 2)), st.booleans())
def test_runs(texts: list[list[list[int]]], keep: set[tuple[int, int]], large: bool) -> None:
    """What is learned from runs is what is learned from the runs, cut out one by one."""
    keep |= {(0, 1), (1, 0), (400, 401)} if large else set()
    expected = Counter[tuple[int, ...]]()
    for piece in itertools.chain.from_iterable(texts):
        run = piece[:1]
        for left, right in itertools.pairwise(piece):
            if (left, right) not in keep:
                expected[tuple(run)] += 1
                run = []
            run.append(right)
        expected[tuple(run)] += 1
    words = CountedWords()
    for run_, count in expected.items():
        words.add(run_, count)
    counted = count_runs(map(flat, texts), keep)
    found = joins.learn(TOKENS, counted, 30, 1)
    assert found == joins.learn(TOKENS, words, 30, 1)
    several = {run: count for run, count in expected.items() if len(run) > 1}
    again = count_runs(map(flat, texts), keep, in_python=True)
    for each in (listed(counted), listed(again)):
        assert {tuple(word): count for word, count in each} == several
        assert len(each.counts) == len(several)


@pytest.fixture(scope="module")
def learned(engine: str) -> Any:
    text = "It isn't 1999 -- the way it is: a way, élan 中文 the the the way!! \n\n the way  " * 9
    tokenizer = BPETokenizer("gpt2").train(text, 330, verbose=False)
    merges = tokenizer.merges
    tokens = [*(bytes([byte]) for byte in core.ALPHABET), *(left + right for left, right in merges)]
    return tokens, merges


@pytest.mark.parametrize("pattern", [SUPERBPE_PATTERN, SPLIT_PATTERNS["o200k"], r"\n"])
def test_pieces_stay_apart(learned: Any, pattern: str) -> None:
    """Where a piece is cut to be encoded makes no difference to its ids."""
    if not bpe_tokenizer.ACCELERATED:
        pytest.skip("of the extension")
    tokens, merges = learned
    encode = neighbors.apart_encoder(tokens, merges, pattern)
    assert encode is not None
    number = {token: place for place, token in enumerate(tokens)}
    made = core.Learned(merges, tokens[256:], "")
    plain = core.new_definition(core.UNCUT_PATTERN, None, "none")
    slow = core.Encoder(core.number_merges(made, plain, [], {}))
    split = core.splitter(pattern).split

    @settings(max_examples=examples(200))
    @given(st.lists(hard_text | st.text("the way1!\n é中"), max_size=3), st.integers(1, 600))
    def check(texts: list[str], times: int) -> None:
        texts = [text * times for text in texts] if times > 590 else texts
        expected: list[int] = []
        for piece in itertools.chain.from_iterable(map(split, texts)):
            expected += [number[slow.tokens[id_]] for id_ in slow.encode(piece)]
            expected.append(BETWEEN)
        assert array("I", bytes(encode(texts))).tolist() == expected

    check()


@pytest.mark.parametrize("pattern", ["gpt2", "o200k", "llama3", r"\w+|\W"])
def test_whole_words(pattern: str) -> None:
    """Words are cut out and looked up in C as in Python."""
    split_pattern = SPLIT_PATTERNS.get(pattern, pattern)
    text = "It isn't 1999 -- the way it is: a way, élan 中文 the the the way!! \n\n the way  " * 9
    merges = BPETokenizer(split_pattern).train(text, 330, verbose=False).merges
    tokens = [left + right for left, right in merges]
    final = Superwords(300, "boundless").final_pattern(split_pattern)
    words = core.Learned(merges, tokens, "")
    numbering = Numbering("boundless", split_pattern, final, words, None, ())

    @settings(max_examples=examples(200))
    @given(st.lists(hard_text | st.text("the way1!\n é'’中"), max_size=3), st.integers(1, 600))
    def check(texts: list[str], times: int) -> None:
        texts = [text * times for text in texts] if times > 590 else texts
        number = numbering._numbers_of_words()
        expected = array("I", [BETWEEN])
        for piece in itertools.chain.from_iterable(map(core.splitter(final).split, texts)):
            if len(piece) > 1:
                cut = core.splitter(split_pattern).split(piece)
                expected.extend([*(number.get(word, BETWEEN) for word in cut), BETWEEN])
        expected.extend([BETWEEN] * (len(expected) % 2))
        [got] = numbering.arrays([texts])
        assert got == expected

    check()
    if bpe_tokenizer.ACCELERATED:
        assert neighbors.word_finder({}, final, split_pattern) is not None


def test_what_can_not_be_cut_in_c(learned: Any) -> None:
    tokens, merges = learned
    assert neighbors.apart_encoder(tokens, merges, r"\b") is None
    assert neighbors.word_finder({b"a": 1}, r"\b", "gpt2") is None
    assert neighbors.word_finder({b"a": 1}, "gpt2", r"\b") is None


def test_wrong_arguments() -> None:
    if not bpe_tokenizer.ACCELERATED:
        pytest.skip("of the extension")
    native: Any = importlib.import_module("_bpe_tokenizer.native")
    for wrong, error in (("ab", TypeError), (b"abc", ValueError), (None, TypeError)):
        with pytest.raises(error):
            native.PairCounter(5).add(wrong)
        with pytest.raises(error):
            native.RunCounter(wrong)
        with pytest.raises(error):
            native.RunCounter(b"").add(wrong)
    for records, missed in ((b"abc", 0), (b"", -1), (struct.pack("=IIq", 1, 2, 0), 0)):
        with pytest.raises(ValueError, match="records must be pairs of tokens and their counts"):
            native.PairCounter(5).merge(records, missed)
    large = struct.pack("=IIq", 1, 2, 2**61 - 1)
    with pytest.raises(ValueError, match="records must be"):
        native.PairCounter(5).merge(large * 2, 0)
    for words, error in (([], TypeError), ({"a": 1}, TypeError), ({b"": 1}, TypeError)):
        with pytest.raises(error):
            native.WordFinder(words, "gpt2", "gpt2", 0)
    for number in (-1, 2**32):
        with pytest.raises(OverflowError):
            native.WordFinder({b"a": number}, "gpt2", "gpt2", 0)
    with pytest.raises(TypeError, match="both patterns need a scanner"):
        native.WordFinder({}, "gpt2", None, 0)
    for texts in ("a", [1], ["a", "\ud800"]):
        with pytest.raises((TypeError, UnicodeEncodeError)):
            native.WordFinder({}, "gpt2", "gpt2", 0).find(texts)
    with pytest.raises(ValueError, match="most must be at least 1"):
        native.PairCounter(0)
    with pytest.raises(TypeError):
        native.PairCounter(5).nth("1")
    with pytest.raises(OverflowError):
        native.PairCounter(5).frequent(2**70)
    highest = array("I", [2**32 - 1] * 5)
    counter = native.PairCounter(5)
    counter.add(highest)
    assert counter.frequent(0) == b""
    runs = native.RunCounter(array("I", [1, 2, 2**32 - 1, 2**32 - 1]))
    runs.add(highest)
    assert len(runs) == 0
    runs.add(array("I", [1, 2]))
    options: Any = (5, 1, None, frozenset(), None, (), None)
    assert native.learn_joins((b"a", b"b", b"c"), runs, None, *options)[0][0] == [(b"b", b"c")]
    with pytest.raises(ValueError, match="a number that no token has"):
        native.learn_joins((b"a", b"b"), runs, None, *options)
    with pytest.raises(TypeError):
        native.learn_joins((b"a", b"b"), runs, array("q", [1]), *options)
    whole = native.Encoder({bytes([b]): b for b in range(256)}, [], "gpt2", ignore_merges=True)
    with pytest.raises(ValueError, match="ignore_merges"):
        whole.encode_apart(["a"], 5)
    plain = native.Encoder({bytes([b]): b for b in range(256)}, [], "gpt2")
    for texts in ("a", [1], ["\ud800"]):
        with pytest.raises((TypeError, UnicodeEncodeError)):
            plain.encode_apart(texts, 5)
