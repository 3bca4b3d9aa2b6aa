"""Offsets where they are not simply counted: text that normalization changes, and trimmed ones.

Both are HuggingFace's: what its `tokenizers` gives as offsets.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Sequence

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core

Span = tuple[int, int]  # from the first character to behind the last


def align(text: str, form: str) -> list[Span]:
    """Map each character of the normalized text to the (start, end) it came from.

    A composed character stands for the first of those it was made of, and one
    that was added for its predecessor.
    """
    spans: list[Span] = []
    starts = [i for i, char in enumerate(text) if i == 0 or core.starts_cluster(char)]
    for start, end in zip(starts, [*starts[1:], len(text)]):  # parts normalized one by one
        at = start
        for taken in _characters_taken(text[start:end], form):
            at += taken
            spans.append((at - max(taken, 1), at - max(taken, 1) + 1))
    return spans


def _characters_taken(cluster: str, form: str) -> list[int]:
    """Count, for each character of a normalized cluster, the originals used up."""
    decomposed = "NFKD" if "K" in form else "NFD"
    parts = [
        (part, int(i == 0))
        for char in cluster
        for i, part in enumerate(core.normalize(char, decomposed))
    ]
    # What comes next is at the end, where it is cheap to take out.
    ordered = _in_canonical_order(parts)[::-1]
    taken = []
    for char in core.normalize(cluster, form):
        total = 0
        for part in core.normalize(char, decomposed):
            index = next(i for i in reversed(range(len(ordered))) if ordered[i][0] == part)
            total += ordered.pop(index)[1]
        taken.append(total)
    return taken


def _in_canonical_order(parts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Sort marks that follow each other."""

    def rank(part: tuple[str, int]) -> int:
        return unicodedata.combining(part[0])

    runs = itertools.groupby(parts, lambda part: rank(part) > 0)
    return [part for _, run in runs for part in sorted(run, key=rank)]


def trim(
    tokenizer: BPETokenizer, text: str, ids: Sequence[int], spans: Iterable[Span]
) -> list[Span]:
    """Leave white space at a token's ends out of its offsets, as RoBERTa's kin want.

    Source: tokenizers, src/pre_tokenizers/byte_level.rs, process_offsets.
    """
    added, keep = core.contents(tokenizer), tokenizer.definition.keep_prefix_space
    trimmed: list[Span] = []
    for (start, end), id_, token in zip(spans, ids, tokenizer.convert_ids_to_tokens(ids)):
        visible = text[start:end] if id_ in added else token.replace("Ġ", " ")
        leading = len(visible) - len(visible.lstrip())
        trailing = len(visible) - len(visible.rstrip())
        if leading == 1 and keep and (not trimmed or start == 0):
            leading = 0  # the space that was put there has no place in the text
        begin = min(start + leading, end)
        trimmed.append((begin, max(end - trailing, begin) if end >= trailing else end))
    return trimmed
