"""Cutting text into pieces that each encode, by themselves, to at most a number of tokens.

Cutting a text changes tokens at the cut: the two sides no longer merge, so a piece may need more
tokens than the whole text had there.  So every piece is encoded, and shortened if it needs too
many.

A piece could reach as far as `max_tokens` tokens go.  It ends at the last boundary before that
place: of the requested kind or, if a stretch without one is too long, of the next smaller kind.
Kinds are tried in this order: paragraphs, sentences, lines, words, tokens.

A piece needs only the text from its start to a little past its end.  So text may arrive in chunks,
and only that much of it is kept in memory.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core


class Piece(NamedTuple):
    """A piece of a text; its places are in the whole text, as it was passed."""

    text: str
    ids: list[int]  # encode(text)
    start: int  # in characters
    end: int
    byte_start: int  # in bytes of the text's UTF-8
    byte_end: int


# -- Boundaries ------------------------------------------------------------------

_BREAK = r"(?:\r?\n|\r(?!\n)|[\u2028\u2029\x85])"  # ends a line
_BLANK = r"[^\S\r\n\u2028\u2029\x85]"  # white space within one
# White space within a line begins the piece after a cut, as it begins a token; line breaks end the
# piece before.  NOTE: searches go from the right and check the last condition first.  So conditions
# that look far are written before those that look near, and are checked only if these are true.
_LINE = rf"(?!{_BLANK}*{_BREAK})(?<={_BREAK})"
_PARAGRAPH = rf"(?<={_BREAK}{_BLANK}*{_BREAK}|\u2029){_LINE}"
# Signs that end a sentence are those of Unicode Standard Annex 29.  A period after a single capital
# letter makes an initial, and a sentence that continues in lower case has not ended.
_END, _CLOSING = r"[\p{SB=STerm}\p{SB=ATerm}…]", r"[\p{Pe}\p{Pf}\p{Pi}\"']"
_ENDED = rf"(?<={_END}{_CLOSING}{{0,4}}"
_SENTENCE = "|".join(
    (
        rf"(?={_BLANK}+[^\s\p{{Ll}}])(?<!\b\p{{Lu}}\.){_ENDED})",
        rf"(?!\s*\p{{Ll}}){_ENDED}\s+){_LINE}",
        rf"(?!\s|{_CLOSING}|{_END})(?<=[。｡！？]{_CLOSING}{{0,4}})",
        _PARAGRAPH,
    )
)
_WORD = r"(?<=\S)(?=\s)"

# A kind of boundary: yields the places in a part of the text, given with its start in the whole,
# from right to left.
_Kind = Callable[[str, int], Iterator[int]]


def _kind(pattern: str) -> _Kind:
    compiled = core.Pattern("(?r)" + pattern)
    return lambda view, _: (found.start() for found in compiled.finditer(view))


_KINDS = {
    "paragraph": _kind(_PARAGRAPH),
    "sentence": _kind(_SENTENCE),
    "line": _kind(_LINE),
    "word": _kind(_WORD),
}

# Kinds to try, the best first; after all of them come tokens.
_LEVELS = {
    "token": (),
    "sentence": ("sentence", "line", "word"),
    "paragraph": ("paragraph", "sentence", "line", "word"),
}
_BELOW_YOURS = ("line", "sentence", "word")


def _given(cut: Callable[[str], Iterable[int]], text: str) -> _Kind:
    """Make a kind of boundary from the places that a function finds in a text."""
    found = list(cut(text))
    wrong = [at for at in found if type(at) is not int or not 0 <= at <= len(text)]
    if wrong:
        expected = f"places in the text, 0 to {len(text)}"
        raise ValueError(f"boundary returned {core.shorten(wrong[0])}; expected {expected}")
    places = sorted({*found})

    def kind(view: str, start: int) -> Iterator[int]:
        first = bisect.bisect_left(places, start)
        last = bisect.bisect_right(places, start + len(view))
        return (places[i] - start for i in range(last - 1, first - 1, -1))

    return kind


# -- Chunking --------------------------------------------------------------------


def chunk(
    tokenizer: BPETokenizer,
    text: str | Iterable[str],
    max_tokens: int,
    overlap: int = 0,
    boundary: str | Callable[[str], Iterable[int]] = "token",
) -> Iterator[Piece]:
    """Cut a text into pieces that each encode to at most `max_tokens` tokens by themselves.

    Together the pieces are the whole text; nothing is stripped.  Each has its text, its ids
    (those of `encode`), and its place in characters and in bytes.

    Args:
        text: a text, or an iterable of strings that make up a text, such as an open file.
        max_tokens: maximum number of tokens in a piece, without special tokens.
        overlap: a piece begins at most this many tokens before the end of the one before.
        boundary: where pieces end, if possible: "paragraph" (blank lines), "sentence", "token", or
            a function that returns the places in the text where it may be cut.  A function needs
            the whole text, which is then kept in memory.  A stretch that is too long is cut at the
            next smaller kind: sentences, lines, words, tokens.  No character is ever split.

    Raises:
        ValueError: a character takes more than `max_tokens` tokens.

    Cost: linear time; memory for a piece or two.

    >>> tokenizer = BPETokenizer()  # a token is a byte
    >>> for piece in chunk(tokenizer, "One. Two, three. Four.", 12, boundary="sentence"):
    ...     print(piece.start, piece.end, repr(piece.text))
    0 4 'One.'
    4 16 ' Two, three.'
    16 22 ' Four.'
    """
    if max_tokens is None or overlap is None:
        raise TypeError("max_tokens and overlap must be ints, got None")
    core.check_size("max_tokens", max_tokens, 1)
    core.check_size("overlap", overlap, 0)
    if overlap >= max_tokens:
        raise ValueError(f"overlap must be less than max_tokens, {max_tokens}, got {overlap}")
    if isinstance(text, (bytes, bytearray, memoryview)) or not isinstance(text, Iterable):
        raise TypeError(f"expected text or an iterable of strings, got {core.shorten(text)}")
    if callable(boundary):
        text = text if isinstance(text, str) else "".join(text)
        kinds = [_given(boundary, text), *map(_KINDS.__getitem__, _BELOW_YOURS)]
    elif isinstance(boundary, str) and boundary in _LEVELS:
        kinds = [_KINDS[name] for name in _LEVELS[boundary]]
    else:
        known = ", ".join(map(repr, _LEVELS))
        raise ValueError(f"boundary must be {known} or a function, got {core.shorten(boundary)}")
    buffer = _Buffer([text] if isinstance(text, str) else text)
    return _Chunker(tokenizer, buffer, max_tokens, overlap, kinds).pieces()


class _Buffer:
    """Text that arrives in chunks: the part from some place on, as far as it was needed."""

    def __init__(self, chunks: Iterable[str]) -> None:
        self._chunks, self._text, self._begin, self._is_all = iter(chunks), "", 0, False

    def view(self, start: int, length: int) -> tuple[str, bool]:
        """Return text from a place on, and whether it is the end of the text."""
        end = start + length - self._begin
        size, new = len(self._text), [self._text]
        if size <= end and not self._is_all:
            for part in self._chunks:
                core.utf8_length(part)  # checks it
                size += len(part)
                new.append(part)
                if size > end:
                    break
            else:
                self._is_all = True
        if len(new) > 1:
            self._text = "".join(new)
        view = self._text[start - self._begin : end]
        return view, self._is_all and end >= size

    def forget(self, start: int) -> None:
        """Drop the text before a place, if that is most of it; so each character moves once."""
        if 2 * (start - self._begin) > len(self._text):
            self._text, self._begin = self._text[start - self._begin :], start


class _Cut(NamedTuple):
    """A place where a piece may end."""

    level: int  # the kind of boundary, 0 is the best
    text: str
    ids: list[int]


class _Chunker:
    """Cuts one text."""

    def __init__(
        self,
        tokenizer: BPETokenizer,
        buffer: _Buffer,
        max_tokens: int,
        overlap: int,
        kinds: list[_Kind],
    ) -> None:
        self._tokenizer, self._buffer, self._kinds = tokenizer, buffer, kinds
        self._max, self._overlap = max_tokens, overlap
        self._reach = 5 * max_tokens + _AHEAD  # characters to look at; usually enough

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces."""
        start = end = byte_end = 0  # where the next piece may begin, and where the last one ended
        while self._buffer.view(end, 1)[0]:
            begins = start
            found = self._cut(start, end - start)
            if start < end and (found is None or found.level):
                without = self._cut(end, 0)  # perhaps a whole sentence fits if nothing is repeated
                if found is None or (without and without.level < found.level):
                    begins, found = end, without
            assert found is not None  # `_cut` raises if not even one character fits
            text, ids = found.text, found.ids
            byte_start = byte_end - core.utf8_length(self._buffer.view(begins, end - begins)[0])
            end, byte_end = begins + len(text), byte_start + core.utf8_length(text)
            yield Piece(text, ids, begins, end, byte_start, byte_end)
            start = end - self._repeated(text, begins) if self._overlap else end
            self._buffer.forget(start)

    def _cut(self, start: int, least: int) -> _Cut | None:
        """Find where a piece that begins at a place ends; it has more than `least` characters."""
        while True:
            view, is_all = self._buffer.view(start, self._reach)
            end = self._longest(view)
            if is_all or end + _AHEAD <= len(view):
                break
            self._reach *= 2
        self._reach = end + end // 4 + _AHEAD
        if end <= least:
            if least:
                return None
            n = self._tokenizer.count_tokens(view[0])
            problem = (
                f"{view[0]!r} at character {start} takes {n} tokens, max_tokens is {self._max}"
            )
            raise ValueError(f"{problem}; a character is never split")
        if end < len(view):
            near = view[: end + _AHEAD]
            for level, kind in enumerate(self._kinds):
                for cut in _before(kind(near, start), end, least):
                    ids = self._tokenizer.encode(view[:cut])
                    if len(ids) <= self._max:
                        return _Cut(level, view[:cut], ids)
        level = len(self._kinds) if end < len(view) else 0
        return _Cut(level, view[:end], self._tokenizer.encode(view[:end]))

    def _longest(self, view: str) -> int:
        """Return the length of the longest beginning, up to a token, that fits; 0 if none does."""
        kept = self._tokenizer.truncate(view, self._max)
        if kept and view.startswith(kept):  # unless a normalizer changes it
            return len(kept)
        spans = core.offsets(self._tokenizer, view, "none", trimmed=False)
        if len(spans) <= self._max:
            return len(view)
        ends = _ends(spans, self._max)
        # Text that is cut may have more tokens: then leave out one, two, four, ...
        at, step = len(ends) - 1, 1
        while at >= 0 and not self._fits(view[: ends[at]], self._max):
            at, step = at - step, 2 * step
        if at >= 0:
            return ends[at]
        return 1 if self._fits(view[:1], self._max) else 0

    def _fits(self, text: str, most: int) -> bool:
        return self._tokenizer.count_tokens(text) <= most

    def _repeated(self, text: str, start: int) -> int:
        """Return how many characters at the end of a piece the next one repeats."""
        spans = core.offsets(self._tokenizer, text, "none", trimmed=False)
        n = len(spans)
        places = [spans[i][0] for i in range(max(1, n - self._overlap), n) if _apart(spans, i)]
        at, step = 0, 1
        while at < len(places) and not self._fits(text[places[at] :], self._overlap):
            at, step = at + step, 2 * step
        if at >= len(places) or places[at] <= 0:
            return 0
        first = places[at]
        for kind in self._kinds:
            cuts = [*_down_to(kind(text, start), first)]
            if cuts and cuts[-1] < len(text) and self._fits(text[cuts[-1] :], self._overlap):
                return len(text) - cuts[-1]
        return len(text) - first


_AHEAD = 64  # characters after a piece to look at
_TRIES = 2  # boundaries of a kind; a shorter beginning hardly ever has too many tokens


def _apart(spans: list[tuple[int, int]], i: int) -> bool:
    """Return whether no character is in both of two neighboring tokens."""
    return spans[i - 1][1] <= spans[i][0]


def _ends(spans: list[tuple[int, int]], most: int) -> list[int]:
    """Return the ends of the first tokens, where these are ends of characters."""
    # Text without a token, such as a composed accent, goes with the one before it.
    return [spans[i][0] for i in range(1, min(most + 1, len(spans))) if _apart(spans, i)]


def _before(cuts: Iterator[int], end: int, least: int) -> Iterator[int]:
    """Yield the last places between two others, from the right."""
    tries = 0
    for cut in cuts:
        if cut <= least or tries == _TRIES:
            return
        if cut <= end:
            tries += 1
            yield cut


def _down_to(cuts: Iterator[int], first: int) -> Iterator[int]:
    for cut in cuts:
        if cut < first:
            return
        yield cut
