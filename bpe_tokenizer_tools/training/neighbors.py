"""Counting neighboring tokens of a text, and runs of tokens: superwords are learned from these.

A text is an array of numbers of tokens, 32 bits each.  `BETWEEN` is its first and its last number,
and separates tokens that no merge joins.  The length is even, so two neighbors can be read as one
number of 64 bits.

The accelerator counts in C, the functions here in Python; the counts are the same.
"""

from __future__ import annotations

import itertools
import operator
import struct
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.training.joins import CountedWords

__all__ = [
    "BETWEEN", "PairCounter", "apart_encoder", "count_runs", "listed",
    "pair_counter", "word_finder",
]  # fmt: skip

BETWEEN = 0x10FFFF  # separates two pieces; no token has this number
_UTF_32 = f"utf-32-{'le' if sys.byteorder == 'little' else 'be'}"
_RECORD = struct.Struct("=IIq")  # of a pair and its count
_Pair = tuple[int, int]


class PairCounter:
    """Counts pairs of neighbors, in bounded memory.

    When there are too many pairs, it forgets the rarer half.  A pair that is missing, or came back,
    occurred at most `missed` times more often than counted.  (Manku and Motwani's lossy counting,
    VLDB 2002.)
    """

    def __init__(self, most: int) -> None:
        self._counts: Counter[int] = Counter()
        self.missed, self._most = 0, most

    def add(self, flat: array[int]) -> None:
        """Count the pairs of a text."""
        for pairs in _pairs(flat):
            self._counts.update(pairs)
        for pair in [pair for pair in self._counts if BETWEEN in _parts(pair)]:
            del self._counts[pair]
        self._forget()

    def records(self) -> bytes:
        """Return all pairs and counts, as `merge` takes them."""
        return b"".join(_RECORD.pack(*pair, count) for pair, count in self.frequent(0))

    def merge(self, records: bytes, missed: int) -> None:
        """Add the counts of another counter."""
        for left, right, count in _RECORD.iter_unpack(records):
            self._counts[_whole((left, right))] += count
        self.missed += missed
        self._forget()

    def _forget(self) -> None:
        while len(self._counts) > self._most:
            rare = sorted(self._counts.values())[len(self._counts) // 2]
            self._counts = Counter({p: n for p, n in self._counts.items() if n > rare})
            self.missed += rare

    def nth(self, n: int) -> int:
        """Return how often the n-th most frequent pair occurs; 0 if there are fewer."""
        counts = sorted(self._counts.values(), reverse=True)
        return counts[n - 1] if 0 < n <= len(counts) else 0

    def frequent(self, least: int) -> Iterator[tuple[_Pair, int]]:
        """Yield the pairs that may occur `least` times or more, and their counts.

        If `least` is above `missed`, no forgotten pair could be among them.
        """
        for pair, count in self._counts.items():
            if count + self.missed >= least:
                yield _parts(pair), count


class _PairCounterInC:
    def __init__(self, counter: Any) -> None:
        self._counter, self.add, self.nth = counter, counter.add, counter.nth
        self.merge = counter.merge

    @property
    def missed(self) -> int:
        missed: int = self._counter.missed
        return missed

    def frequent(self, least: int) -> Iterator[tuple[_Pair, int]]:
        found = _RECORD.iter_unpack(self._counter.frequent(least))
        return (((left, right), count) for left, right, count in found)

    def records(self) -> bytes:
        found: bytes = self._counter.frequent(0)
        return found


def pair_counter(most: int) -> PairCounter | _PairCounterInC:
    """Return a counter of pairs that keeps at most `most` of them."""
    engine = core.engine_in_c()
    return _PairCounterInC(engine.native.PairCounter(most)) if engine else PairCounter(most)


def count_runs(
    texts: Iterable[array[int]], keep: Iterable[_Pair], in_python: bool = False
) -> CountedWords | Any:
    """Cut texts where a pair is not kept, and count the runs of two or more tokens.

    Returns:
        Words for `joins.learn`.
    """
    engine = None if in_python else core.engine_in_c()
    if engine:
        counter = engine.native.RunCounter(array("I", itertools.chain.from_iterable(keep)))
        for flat in texts:
            counter.add(flat)
        return counter
    kept, runs, words = set(map(_whole, keep)), Counter[str](), CountedWords()
    for flat in texts:
        runs.update(_runs(flat, kept))
    for run, count in runs.items():
        words.add(map(ord, run), count)
    return words


def listed(counted: CountedWords | Any) -> CountedWords:
    """Return the runs that `count_runs` counted, one by one."""
    if isinstance(counted, CountedWords):
        return counted
    words = CountedWords()
    symbols, counts = counted.words()
    words.symbols.frombytes(symbols)
    words.counts.frombytes(counts)
    return words


def apart_encoder(
    tokens: list[bytes], merges: Iterable[tuple[bytes, bytes]], pattern: str
) -> Callable[[list[str]], bytearray] | None:
    """Return a function of the accelerator that turns each piece of a text into numbers of tokens.

    None if it can't: it must have a scanner for the pattern, and room for that many tokens.
    """
    engine = core.engine_in_c()
    encode = engine.apart_encoder(tokens, merges, pattern) if engine else None
    return None if encode is None else lambda texts: encode(texts, BETWEEN)


def word_finder(
    numbers: dict[bytes, int], pieces: str, words: str
) -> Callable[[list[str]], bytes] | None:
    """Return a function of the accelerator that turns texts into numbers of whole words.

    One pattern cuts text into pieces, another cuts each piece into words.  BETWEEN replaces words
    without a number, and follows each piece.  None if the accelerator can't: it must have scanners
    for both patterns.
    """
    engine = core.engine_in_c()
    find = engine and engine.word_finder(numbers, pieces, words, BETWEEN)
    return find or None


def _pairs(flat: array[int]) -> tuple[memoryview, memoryview]:
    """Return the pairs at even places, and those at odd places."""
    view = memoryview(flat).cast("B")
    return view.cast("Q"), view[4:-4].cast("Q")


def _parts(pair: int) -> _Pair:
    first, second = pair & 0xFFFFFFFF, pair >> 32
    return (first, second) if sys.byteorder == "little" else (second, first)


def _whole(pair: _Pair) -> int:
    first, second = pair if sys.byteorder == "little" else pair[::-1]
    return second << 32 | first


def _runs(flat: array[int], keep: set[int]) -> Iterator[str]:
    """Cut a text where a pair is not kept; yield runs of two or more tokens, as characters."""
    text = flat.tobytes().decode(_UTF_32, "surrogatepass")
    cuts: list[int] = []
    for first, pairs in enumerate(_pairs(flat), 1):
        places = range(first, len(flat), 2)
        cuts += itertools.compress(places, map(operator.not_, map(keep.__contains__, pairs)))
    cuts.sort()
    return (text[a:b] for a, b in itertools.pairwise(cuts) if b - a > 1)
