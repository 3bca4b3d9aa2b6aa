"""One long text, encoded on several threads: cut at borders, so that its parts join to its ids."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
from collections.abc import Callable
from typing import Any, cast

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.prompts.borders import borders_of_text
from bpe_tokenizer_tools.prompts.sessions import TextWay, spaced

# Least number of characters for a thread; encoding them takes half a millisecond.
_LEAST = 2**17
# The engine's threads take large parts first: finding where to cut takes 3 microseconds, during
# which they wait.  Then smaller ones, so that they end at about the same time.
_PARTS = 2  # which each thread would take of what is left, if all were as large as the next one
_SHARE = 2**15  # characters of the smallest parts
_PARTS_OF_PYTHON = 4  # for each thread of Python's: one of these may have to wait for the lock
_NONE: frozenset[str] = frozenset()


def plain(
    tokenizer: BPETokenizer, allowed: frozenset[str], num_threads: int
) -> Callable[[Any], list[int] | None]:
    """Return a function that encodes on threads, or returns None for text left to `encode`.

    If a text needs only normalizing, splitting and merging, threads of the engine in C do it;
    otherwise Python threads, which run in parallel only while they are in C.
    """
    core.check_size("num_threads", num_threads, 1)
    return functools.partial(_encode, tokenizer, allowed, num_threads)


def to_buffer(tokenizer: BPETokenizer, num_threads: int, text: Any) -> Any:
    """Return the ids of a long text as 32-bit numbers, or None if that is left to `encode`."""
    core.check_size("num_threads", num_threads, 1)
    if isinstance(text, str) and num_threads > 1 and len(text) >= 2 * _LEAST:
        with contextlib.suppress(ValueError):  # a lone surrogate; `encode` names its place
            return _joined(tokenizer, num_threads, text, True)
    return None


def _joined(tokenizer: BPETokenizer, num_threads: int, text: str, to_buffer: bool) -> Any:
    """Let the engine in C encode a text on its threads; None if it can't."""
    join = getattr(core.encoder(tokenizer), "encode_joined", None)
    if not join or not core.is_simple(tokenizer):
        return None
    ids = join(text, _ends(tokenizer, num_threads, text), num_threads, False, to_buffer)
    if ids is None and getattr(core.encoder(tokenizer), "scans", False):
        [text] = core.normalized(tokenizer, [text])
        ids = join(text, _ends(tokenizer, num_threads, text), num_threads, True, to_buffer)
    return ids


def _ends(tokenizer: BPETokenizer, num_threads: int, text: str) -> list[int]:
    """Return where the parts of a text end."""
    last, n = borders_of_text(tokenizer, _NONE).last, len(text)
    ends, low, high = list[int](), 0, 0
    while True:
        high = low + max(_SHARE, (n - low) // (_PARTS * num_threads))
        if high >= n:
            return [*ends, n]
        if found := last(text, low, high):
            ends.append(found.at)
        low = found.at if found else high - 1


def _encode(
    tokenizer: BPETokenizer, allowed: frozenset[str], num_threads: int, text: Any
) -> list[int] | None:
    if not isinstance(text, str):
        return None
    if num_threads == 1 or len(text) < 2 * _LEAST:
        return tokenizer.encode(text, allowed_special=allowed or "none")
    with contextlib.suppress(ValueError):  # a lone surrogate; `encode` names its place
        if not allowed and (ids := _joined(tokenizer, num_threads, text, False)):
            return cast("list[int]", ids)
        size = max(_LEAST // 2, len(text) // (_PARTS_OF_PYTHON * num_threads))
        found = spaced(borders_of_text(tokenizer, allowed), text, None, 0, len(text), size)
        parts = list(itertools.pairwise([0, *(border.at for border in found), len(text)]))
        if len(parts) == 1:
            return None
        way = TextWay(tokenizer, allowed)
        # Imported late: it takes 10 ms.
        pool = importlib.import_module("concurrent.futures").ThreadPoolExecutor(num_threads)
        with pool:
            made = pool.map(lambda part: way.encode(text, None, *part), parts)
            return list(itertools.chain.from_iterable(made))
    return None
