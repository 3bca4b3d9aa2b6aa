"""Offsets where they are not simply counted: text that is changed before it is encoded.

They are HuggingFace's: what its `tokenizers` gives, trimmed ones included.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import core

Span = tuple[int, int]  # from the first character to behind the last
Part = tuple[str | AddedToken, list[Span]]  # an added token, or text and where it comes from


def offsets(
    tokenizer: BPETokenizer, text: str, allowed: frozenset[str], trimmed: bool
) -> list[Span]:
    """Return the (start, end) of each token of a text; `trimmed` leaves white space out."""
    made = parts(core.pipeline(tokenizer, allowed), text)
    ids, spans = encode(core.encoder(tokenizer), made)
    return trim(tokenizer, text, ids, spans) if trimmed else spans


def parts(
    pipeline: core.Pipeline,
    text: str,
    matches: Iterable[core.Match] | None = None,
    first: bool = True,
) -> Iterator[Part]:
    """Cut text as `pipeline.parts` does, and tell where each character of a part comes from."""
    own = getattr(pipeline, "align", None)  # of a pipeline with components
    matches = pipeline.raw.find(text) if matches is None else matches
    for start, end, token in core.text_between(matches, len(text)):
        if token:
            yield token, [(start, end)]
            continue
        given = text[start:end]
        spans = own(given) if own else align(given, pipeline.normalizer)
        if start:
            spans = [(start + a, start + b) for a, b in spans]
        for part, begin, stop in pipeline.parts(given, (), first and start == 0):
            places = spans[begin:stop]
            if isinstance(part, AddedToken):
                yield part, [(places[0][0], places[-1][1])]
            else:
                yield part, places[:1] * (len(part) - len(places)) + places


def encode(encoder: core.Encoder, parts: Iterable[Part]) -> tuple[list[int], list[Span]]:
    """Encode the parts of a text, and tell where each token comes from."""
    own = getattr(encoder, "encode_aligned", None)  # of one with components
    ids: list[int] = []
    offsets: list[Span] = []
    for part, spans in parts:
        if isinstance(part, AddedToken):
            new, places = [cast("int", part.id)], spans
        elif own:
            new, places = own(part, spans)
        else:
            new = encoder.encode(part)
            places = [(spans[a][0], spans[b - 1][1]) for a, b in encoder.places(part, new)]
        ids += new
        offsets += places
    return ids, offsets


def encode_segments(
    encoder: core.SegmentEncoder, segments: Iterable[Any], first: bool
) -> tuple[list[int], list[Span]]:
    """Do what `encoder.encode` does, and tell where each token comes from."""
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


@functools.lru_cache(maxsize=1)
def _back_composing() -> frozenset[str]:
    """Characters that compose with one before them although they are no marks."""
    points = itertools.chain(range(0xC0, 0x3000), range(0x10000, 0x1FFFF))
    decomposed = (unicodedata.decomposition(chr(point)).split() for point in points)
    seconds = {chr(int(x[1], 16)) for x in decomposed if len(x) == 2 and x[0][0] != "<"}
    hangul = map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)))  # by algorithm
    return frozenset(seconds) | frozenset(hangul)


def starts_cluster(char: str) -> bool:
    """Tell whether, in no form, a character joins or trades places with what stands before it.

    Source: Unicode Standard Annex 15, 9.1.
    """
    first = char if char < "\u0300" else unicodedata.normalize("NFKD", char)[0]
    return not unicodedata.combining(first) and first not in _back_composing()


def align(text: str, form: str | None) -> list[Span]:
    """Map each character of the normalized text to the (start, end) it came from.

    A composed character stands for the first of those it was made of, and one
    that was added for its predecessor.
    """
    if form is None or core.normalize(text, form) == text:
        return [(i, i + 1) for i in range(len(text))]
    spans: list[Span] = []
    starts = [i for i, char in enumerate(text) if i == 0 or starts_cluster(char)]
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
