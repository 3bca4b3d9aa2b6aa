"""Offsets that need more than counting: text that is changed before encoding.

They equal those of HuggingFace's `tokenizers`, including trimmed ones.
"""

from __future__ import annotations

import array
import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast, overload

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.normal_forms import combining, composing_seconds

Span = tuple[int, int]  # start and end, as in a slice


Run = tuple[int, int, int, int]  # length, start and end of the first, and whether it is copied


class Spans(Sequence[Span]):
    """The (start, end) that each character of a text comes from in another.

    They are stored as runs.  In a copied run, each character comes from right after the one before;
    in other runs, all come from the same place.  Unchanged text is one run.

    >>> spans = Spans.joined([[(0, 1)] * 2, Spans.whole(3)])
    >>> spans
    [(0, 1), (0, 1), (0, 1), (1, 2), (2, 3)]
    >>> spans[3:], spans.runs
    ([(1, 2), (2, 3)], [(2, 0, 1, 0), (3, 0, 1, 1)])
    """

    __slots__ = ("_ends", "runs")

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs
        self._ends = [*itertools.accumulate(length for length, *_ in runs)]

    @classmethod
    def whole(cls, length: int, start: int = 0) -> Spans:
        """Return the spans of unchanged text, from a place on."""
        return cls([(length, start, start + 1, 1)])

    @classmethod
    def joined(cls, parts: Iterable[Iterable[Span]]) -> Spans:
        """Return the spans of joined texts."""
        runs: list[Run] = []
        for part in parts:
            new = part.runs if isinstance(part, Spans) else [(1, *span, 0) for span in part]
            for run in new:
                if runs and (longer := _joined(runs[-1], run)):
                    runs[-1] = longer
                else:
                    runs.append(run)
        return cls(runs)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, at: int) -> Span: ...
    @overload
    def __getitem__(self, at: slice) -> Spans: ...
    def __getitem__(self, at: int | slice) -> Span | Spans:
        if isinstance(at, int):
            place = range(len(self))[at]
            i = bisect.bisect_right(self._ends, place)
            length, start, end, copied = self.runs[i]
            by = (place - self._ends[i] + length) * copied
            return start + by, end + by
        start, end, _ = at.indices(len(self))
        return Spans([*self._between(start, end)])

    def _between(self, start: int, end: int) -> Iterator[Run]:
        """Yield the runs between two places, cut there."""
        i = bisect.bisect_right(self._ends, start)
        while start < end:
            length, first, behind, copied = self.runs[i]
            by = (start - self._ends[i] + length) * copied
            until = min(end, self._ends[i])
            yield until - start, first + by, behind + by, copied
            i, start = i + 1, until

    def __iter__(self) -> Iterator[Span]:
        for length, start, end, copied in self.runs:
            if copied:
                yield from zip(range(start, start + length), range(end, end + length))
            else:
                yield from itertools.repeat((start, end), length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr([*self])

    def moved(self, by: int) -> Spans:
        """Return these spans in a text that begins earlier."""
        return Spans([(n, start + by, end + by, copied) for n, start, end, copied in self.runs])

    def repeated(self, counts: Iterable[int]) -> Spans:
        """Return the spans of a text with n characters for each one of these."""
        return Spans.joined([span] * count for span, count in zip(self, counts))

    def within(self, spans: Spans) -> Spans:
        """Return these spans, of a text made from another, as spans of what that was made from.

        `spans` are those of the text between.
        """
        parts: list[Iterable[Span]] = []
        for run in self.runs:
            length, start, end, copied = run
            if copied and end == start + 1:
                parts.append(spans[start : start + length])
            else:
                parts.append([(spans[a][0], spans[b - 1][1]) for a, b in Spans([run])])
        return Spans.joined(parts)

    def flat(self) -> array.array[int]:
        """Return the runs as the engine in C takes them: four numbers each."""
        return array.array("i", itertools.chain.from_iterable(self.runs))

    def of_tokens(
        self, encoder: core.Encoder, text: str, ids: list[int], trimming: int = 0
    ) -> list[Span]:
        """Return the spans of the text's tokens; only the engine in C can trim them."""
        by_runs = getattr(encoder, "places_by_runs", None)
        if by_runs:
            return cast("list[Span]", by_runs(text, ids, self.flat(), trimming))
        spans = [*self]
        return [(spans[a][0], spans[b - 1][1]) for a, b in encoder.places(text, ids)]


def _joined(one: Run, two: Run) -> Run | None:
    """Return two neighboring runs as one, if they fit together."""
    length, start, end, copied = one
    more, next_start, next_end, as_copied = two
    if (start, end) == (next_start, next_end) and (not copied or length == 1):
        return (length + more, start, end, 0) if more == 1 or not as_copied else None
    follows = (start + length, end + length) == (next_start, next_end)
    if follows and (copied or length == 1) and (as_copied or more == 1):
        return length + more, start, end, 1
    return None


Part = tuple[str | AddedToken, Sequence[Span]]  # an added token, or text and where it comes from
_Shown = tuple[str | AddedToken, Sequence[Span], str]  # a part, and its normalized text
# The white space of Rust, and the printable form of a space.
_BLANK = "Ġ" + "".join(filter(core.SPACE.match, map(chr, range(0x3001))))


def offsets(
    tokenizer: BPETokenizer, text: str, allowed: frozenset[str], trimmed: bool, record: Any = None
) -> list[Span]:
    """Return the (start, end) of each token of a text.

    `trimmed` leaves white space out; `record` may be a tuple of the text's ids, to save time.
    """
    made = [*_shown_parts(core.pipeline(tokenizer, allowed), text)]
    known = None
    if type(record) is tuple and [type(part) for part, *_ in made] == [str]:
        known = [*record]
    if trimmed:
        return _trimmed(tokenizer, made, known)
    return encode(core.encoder(tokenizer), ((part, spans) for part, spans, _ in made), known)[1]


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
    return ((part, spans) for part, spans, _ in _shown_parts(pipeline, text, matches, first))


def _shown_parts(
    pipeline: core.Pipeline,
    text: str,
    matches: Iterable[core.Match] | None = None,
    first: bool = True,
) -> Iterator[_Shown]:
    matches = pipeline.raw.find(text) if matches is None else matches
    for start, end, token in core.text_between(matches, len(text)):
        if token:
            yield token, [(start, end)], text[start:end]
            continue
        whole, spans = _normalized(pipeline, text[start:end])
        if start:
            spans = spans.moved(start)
        inner = pipeline.normalized.find(whole) if pipeline.normalized.tokens else ()
        for begin, stop, token in core.text_between(inner, len(whole)):
            places = spans[begin:stop]
            if token:
                yield token, [(places[0][0], places[-1][1])], whole[begin:stop]
                continue
            part = pipeline.prefixed(whole[begin:stop], first and start == begin == 0)
            lead = len(part) - len(places)  # a prefix maps to the first character
            yield part, Spans.joined([[*places[:1]] * lead, places]) if lead else places, part


def _normalized(pipeline: core.Pipeline, text: str) -> tuple[str, Spans]:
    """Normalize a text between two raw tokens, with the span of each character."""
    own = getattr(pipeline, "align", None)  # of a pipeline with components
    found: tuple[str, Spans] = (
        own(text) if own else (pipeline.normalize(text), align(text, pipeline.normalizer))
    )
    return found


def encode(
    encoder: core.Encoder, parts: Iterable[Part], known: list[int] | None = None
) -> tuple[list[int], list[Span]]:
    """Encode the parts of a text, and find the span of each token.

    `known` may be the ids of the only part, which is text.
    """
    own = getattr(encoder, "encode_aligned", None)  # of one with components
    ids: list[int] = []
    offsets: list[Span] = []
    for part, spans in parts:
        if isinstance(part, AddedToken):
            new, places = [cast("int", part.id)], [*spans]
        elif own:
            new, places = own(part, spans, known)
        else:
            new = known or encoder.encode(part)
            places = cast("Spans", spans).of_tokens(encoder, part, new)
        ids += new
        offsets += places
    return ids, offsets


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
