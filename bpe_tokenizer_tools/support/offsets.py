"""Offsets that need more than counting: text that is changed before encoding.

They equal those of HuggingFace's `tokenizers`, including trimmed ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.normal_forms import combining, composing_seconds

Span = tuple[int, int]  # start and end, as in a slice


Spans = core.Spans
Part = tuple[str | AddedToken, Sequence[Span]]  # an added token, or text and where it comes from
_Shown = tuple[str | AddedToken, Sequence[Span], str]  # a part, and its normalized text
# The white space of Rust, and the printable form of a space.
_BLANK = "Ġ" + "".join(filter(core.SPACE.match, map(chr, range(0x3001))))


def trimmed_offsets(
    tokenizer: BPETokenizer, text: str, allowed: frozenset[str], record: Any = None
) -> list[Span]:
    """Return the (start, end) of each token of a text, without white space at its ends.

    `record` may be a tuple of the text's ids, to save time.
    """
    made = [*core.aligned(core.pipeline(tokenizer, allowed), text)]
    known = None
    if type(record) is tuple and [type(part) for part, *_ in made] == [str]:
        known = [*record]
    return _trimmed(tokenizer, made, known)


def _trimmed(
    tokenizer: BPETokenizer, made: Iterable[_Shown], known: list[int] | None
) -> list[Span]:
    """Leave white space at a token's ends out of its offsets, as models like RoBERTa expect.

    Source: tokenizers, src/pre_tokenizers/byte_level.rs, process_offsets.
    """
    encoder, keep = core.encoder(tokenizer), tokenizer.definition.keep_prefix_space
    in_c = hasattr(encoder, "places_by_runs")
    found: list[Span] = []
    for part, spans, shown in made:
        if isinstance(part, AddedToken):
            [span] = spans
            found.append(_trim_span(span, shown, keep, first=not found))
        elif in_c:
            how = 1 if not keep else 2 if found else 3
            ids = known or encoder.encode(part)
            found += cast("Spans", spans).of_tokens(encoder, part, ids, how)
        else:
            ids, places = encode(encoder, [(part, spans)], known)
            for span, token in zip(places, tokenizer.convert_ids_to_tokens(ids)):
                found.append(_trim_span(span, token, keep, first=not found))
    return found


def parts(
    pipeline: core.Pipeline,
    text: str,
    matches: Iterable[core.Match] | None = None,
    first: bool = True,
) -> Iterator[Part]:
    """Cut text as `pipeline.parts` does, with the span of each character of a part."""
    return ((part, spans) for part, spans, _ in core.aligned(pipeline, text, matches, first))


encode = core.encode_aligned


def encode_segments(
    encoder: core.SegmentEncoder, segments: Iterable[Any], first: bool
) -> tuple[list[int], list[Span]]:
    """Encode as `encoder.encode` does, and find the span of each token."""
    text, matches = encoder.matches(segments)
    made = list(parts(encoder.pipeline, text, matches, first))
    ids, spans = encode(encoder.encoder, made)
    if encoder.spells(ids, made):
        return encode(encoder.encoder, _cut(encoder, made))
    return ids, spans


def _cut(encoder: core.SegmentEncoder, made: Iterable[Part]) -> Iterator[Part]:
    for part, spans in made:
        if isinstance(part, AddedToken):
            yield part, spans
            continue
        for a, b in itertools.pairwise(encoder.borders(part)):
            yield part[a:b], spans[a:b]


def starts_cluster(char: str) -> bool:
    """Return True if no form joins a character with the one before, or swaps the two.

    Source: Unicode Standard Annex 15, 9.1.
    """
    first = char if char < "\u0300" else core.normalize(char, "NFKD")[0]
    return not combining(first) and first not in composing_seconds()


_BLOCK = 512  # characters; a block that normalizing changes is processed in detail


def align(text: str, form: str | None) -> Spans:
    """Map each character of the normalized text to the (start, end) it came from.

    A composed character maps to the first of those it was made of, and an
    inserted one to its predecessor.
    """
    if form is None or core.normalize(text, form) == text:
        return Spans.whole(len(text))
    spans: list[Iterable[Span]] = []
    start = 0
    while start < len(text):
        end = start + _BLOCK
        while end < len(text) and not starts_cluster(text[end]):
            end += 1
        block = text[start:end]
        if core.normalize(block, form) == block:
            spans.append(Spans.whole(len(block), start))
        else:
            spans.append(_align_clusters(block, form, start))
        start = end
    return Spans.joined(spans)


def _align_clusters(text: str, form: str, at: int) -> Iterator[Span]:
    """Align as `align` does, for text that begins at a place in another text."""
    starts = [i for i, char in enumerate(text) if i == 0 or starts_cluster(char)]
    for start, end in itertools.pairwise([*starts, len(text)]):  # parts normalized one by one
        for taken in _characters_taken(text[start:end], form):
            at += taken
            yield at - max(taken, 1), at - max(taken, 1) + 1


def _characters_taken(cluster: str, form: str) -> list[int]:
    """Count, for each character of a normalized cluster, the originals used up."""
    decomposed = "NFKD" if "K" in form else "NFD"
    parts = [
        (part, int(i == 0))
        for char in cluster
        for i, part in enumerate(core.normalize(char, decomposed))
    ]
    # Reversed: the next one is at the end, where removing it is cheap.
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
        return combining(part[0])

    runs = itertools.groupby(parts, lambda part: rank(part) > 0)
    return [part for _, run in runs for part in sorted(run, key=rank)]


def _trim_span(span: Span, shown: str, keep: bool, first: bool) -> Span:
    """Trim the span of one token, given as its printable form or, if added, as normalized text."""
    start, end = span
    leading = len(shown) - len(shown.lstrip(_BLANK))
    trailing = len(shown) - len(shown.rstrip(_BLANK))
    if leading == 1 and keep and (first or start == 0):
        leading = 0  # the inserted space has no place in the text
    begin = min(start + leading, end)
    return begin, max(end - trailing, begin) if end >= trailing else end
