"""BPE-dropout: encode with random merges left out, so that a model sees words cut many ways.

Each time a merge is next, it is skipped with some probability.  When a merge is applied, the
skipped ones become candidates again.  Merges that are skipped until no candidate is left are not
applied.  The distribution of results is the one of HuggingFace's ``dropout``; the accelerator
(accelerator/encode/dropout.c) makes the same draws.

Source: Provilkov et al., "BPE-Dropout: Simple and Effective Subword Regularization", 2020.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bpe_tokenizer_tools import core

_BITS = 2**64 - 1
_ONE = 2**53  # a probability of 1, in steps of a float's precision


class Draws:
    """Decides at random whether to skip a merge, by SplitMix64."""

    def __init__(self, dropout: float, seed: int | None) -> None:
        if not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be a number from 0 to 1, got {core.shorten(dropout)}")
        core.check_size("seed", seed, 0)
        self.limit = int(dropout * _ONE)
        self.state = int.from_bytes(os.urandom(8), "big") if seed is None else seed & _BITS

    def __call__(self) -> bool:
        """Draw once."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _BITS
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _BITS
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _BITS
        return (z ^ (z >> 31)) >> 11 < self.limit


def merge(
    ids: list[int],
    ranks: Mapping[int, Mapping[int, int]],
    merged: Sequence[int],
    passes_over: Callable[[], bool],
) -> list[int]:
    """Merge ids as `_merge_by_heap` does, but skip merges at random.

    A heap entry whose pair has changed counts as one that is applied: it makes the skipped ones
    candidates again, as in HuggingFace's code.
    """
    n = len(ids)
    after = list(range(1, n + 1))  # position of the next part; n ends the list
    before = list(range(-1, n))
    ids = [*ids, -1]  # -1, which no merge has, is past both ends

    def rank_of(i: int, j: int) -> int | None:
        return ranks[ids[i]].get(ids[j]) if ids[i] in ranks else None

    found = enumerate(itertools.starmap(rank_of, itertools.pairwise(range(n))))
    heap = [(rank, i) for i, rank in found if rank is not None]
    heapq.heapify(heap)
    passed: list[tuple[int, int]] = []
    while heap:
        entry = rank, i = heapq.heappop(heap)
        if passes_over():
            passed.append(entry)
            continue
        for each in passed:
            heapq.heappush(heap, each)
        passed.clear()
        j = after[i]
        now = rank_of(i, j)
        if now is None or merged[now] != merged[rank]:  # a merged part is in no pair
            continue
        ids[i], ids[j] = merged[rank], -1
        after[i] = k = after[j]
        before[k] = i
        for left, right in ((before[i], i), (i, k)):
            if (new := rank_of(left, right)) is not None:
                heapq.heappush(heap, (new, left))
    return [id_ for id_ in ids if id_ >= 0]


class _Uncached:
    """Replaces the cache of pre-tokens, and merges each one again."""

    def __init__(self, encode: Callable[[bytes], list[int]]) -> None:
        self._encode = encode

    def look_up(self, pretokens: list[str]) -> Iterator[list[int]]:
        return (self._encode(pretoken.encode()) for pretoken in pretokens)


def dropping(encoder: core.Encoder, dropout: float, seed: int | None) -> Any:
    """Return a function that encodes text like an encoder, with dropout.

    Raises ValueError if `dropout` is not from 0 to 1.
    """
    draws = Draws(dropout, seed)
    if hasattr(encoder, "encode_dropping"):
        return _InC(encoder, draws)
    # A copy that merges with dropout, caches nothing, and ignores whole-token matches.
    made: Any = copy.copy(encoder)
    made._twin, made._whole, made._cache = None, {}, _Uncached(made._encode_pretoken)
    made._merge = lambda ids: merge(ids, made._ranks, made._merged, draws)
    return made


class _InC:
    def __init__(self, encoder: Any, draws: Draws) -> None:
        self._encode, self._draws = encoder.encode_dropping, draws

    def encode(self, text: str) -> list[int]:
        ids: list[int]
        ids, self._draws.state = self._encode(text, self._draws.limit, self._draws.state)
        return ids
