"""Encoding a text that is mostly the same as the last one: a growing chat, a file being edited.

A session keeps the last text, its ids, and checkpoints: places where the text can be cut (see
`borders`), each with the number of ids before it.  The next text shares a beginning and an end
with the last one.  The session encodes the text from the last checkpoint in the shared beginning to
the first checkpoint in the shared end; everything else stays.

    last text   | The cat | sat on | the mat | and slept. |      | is a checkpoint
    new text    | The cat | sat on | the dog | and slept. |
                  shared  | shared | encoded | shared

So a call costs the change and a comparison of both texts.  `append` is told that there is nothing
to compare, so it costs the change alone.  The ids are those of `encode`.
"""

from __future__ import annotations

import functools
import itertools
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.prompts.borders import (
    Border,
    Borders,
    borders_of_segments,
    borders_of_text,
)
from bpe_tokenizer_tools.support.text import shared_length

# Characters between two checkpoints.  An edit encodes one or two times as much again, and the first
# text takes some microseconds more for each (benchmarks/bench_incremental.py --spacing).
SPACING = 4096
_FEW = 32  # characters that are compared one by one, at the end of a search by halves
_NONE: frozenset[str] = frozenset()

Tokens = frozenset[str]
_Around = tuple[Sequence[int], Sequence[int]]  # ids before a text, and after it
_NOTHING_AROUND: _Around = (), ()
_PLAIN = _NONE, _NOTHING_AROUND  # how text is encoded without any options


class Change(NamedTuple):
    """A change of ids: ``ids[start:stop] = new`` turns the last ids into the new ones."""

    start: int
    stop: int
    new: list[int]


class _SpelledError(Exception):
    """Merges turned text into its control token: then the whole text must be encoded."""


# -- What two texts share ---


def _shared_start(old: str, new: str) -> int:
    """Return how many characters two texts share from their beginnings."""
    low, high = 0, min(len(old), len(new))
    if new.startswith(old) or old.startswith(new):  # without a copy
        return high
    while high - low > _FEW:
        middle = (low + high) // 2
        if old.startswith(new[low:middle], low):
            low = middle
        else:
            high = middle
    pairs = zip(old[low:high], new[low:high])
    return low + next((i for i, (a, b) in enumerate(pairs) if a != b), high - low)


def _shared_end(old: str, new: str, most: int) -> int:
    """Return how many characters, up to some, two texts share back from their ends."""
    low, high = 0, most
    n, m = len(old), len(new)
    while high - low > _FEW:
        middle = (low + high) // 2
        if old.startswith(new[m - middle : m - low], n - middle):
            low = middle
        else:
            high = middle
    pairs = zip(reversed(old[n - high : n - low]), reversed(new[m - high : m - low]))
    return low + next((i for i, (a, b) in enumerate(pairs) if a != b), high - low)


class Runs:
    """The added tokens that each part of a text may give.

    Attributes:
        ends: where each part ends.
        tokens: of each part.
    """

    def __init__(self, ends: list[int], tokens: list[Tokens]) -> None:
        self.ends, self.tokens = ends, tokens

    def shared_start(self, other: Runs) -> int:
        """Return how many characters from the beginning have the same tokens in both."""
        n = min(shared_length(self.ends, other.ends), shared_length(self.tokens, other.tokens))
        if n < min(len(self.ends), len(other.ends)) and self.tokens[n] == other.tokens[n]:
            return min(self.ends[n], other.ends[n])  # one is longer than the other
        return self.ends[n - 1] if n else 0

    def shared_end(self, other: Runs) -> int:
        """Return how many characters back from the end have the same tokens in both."""
        return self._mirrored().shared_start(other._mirrored())

    def _mirrored(self) -> Runs:
        n = self.ends[-1]
        starts = [0, *self.ends[:-1]]
        return Runs([n - start for start in reversed(starts)], self.tokens[::-1])

    def cut(self, text: str, start: int, stop: int) -> Iterator[tuple[str, Tokens]]:
        """Yield a part of a text in segments."""
        i = bisect_right(self.ends, start)
        while start < stop:
            end = min(self.ends[i], stop)
            yield text[start:end], self.tokens[i]
            start, i = end, i + 1

    def has(self, at: int, content: str) -> bool:
        """Return whether an added token may come out of the text at a place."""
        i = bisect_right(self.ends, at)
        return content in self.tokens[i] and at + len(content) <= self.ends[i]


# -- What a session keeps ---


class _Way:
    """How a session encodes: everything that ids depend on except the text."""

    def __init__(self, encoder: Any, borders: Borders) -> None:
        self.encoder, self.borders = encoder, borders

    def encode(self, text: str, runs: Runs | None, start: int, stop: int) -> list[int]:
        """Encode part of a text from a border, or the beginning, to another, or the end."""
        if not (start and self.borders.looks_left):
            return self._encode(text, runs, start, stop)
        # With the character before it, it isn't treated as the beginning of a text.
        with_it = self._encode(text, runs, start - 1, stop)
        return with_it[len(self._encode(text, runs, start - 1, start)) :]

    def _encode(self, text: str, runs: Runs | None, start: int, stop: int) -> list[int]:
        raise NotImplementedError


class TextWay(_Way):
    """How text is encoded with some special tokens allowed."""

    def __init__(self, tokenizer: BPETokenizer, allowed: Tokens) -> None:
        super().__init__(core.encoder(tokenizer), borders_of_text(tokenizer, allowed))
        self._call: Callable[[str], list[int]] = tokenizer.encode
        if allowed:
            self._call = functools.partial(tokenizer.encode, allowed_special=allowed)

    def _encode(self, text: str, runs: Runs | None, start: int, stop: int) -> list[int]:
        return self._call(text[start:stop])


class _SegmentWay(_Way):
    def __init__(self, tokenizer: BPETokenizer, encoder: core.SegmentEncoder) -> None:
        super().__init__(core.encoder(tokenizer), borders_of_segments(tokenizer, encoder))
        self._segments = encoder

    def _encode(self, text: str, runs: Runs | None, start: int, stop: int) -> list[int]:
        assert runs is not None
        made, segments = self._segments, list(runs.cut(text, start, stop))
        tokens = next((tokens for _, tokens in segments if tokens), _NONE)
        if (ids := made.plain(tokens)(tokens, segments)) is not None:
            return ids
        parts = list(made.pipeline.parts(*made.matches(segments), not start))
        ids = core.encode_parts(made.encoder, parts)
        if made.spells(ids, parts):
            raise _SpelledError
        return ids


class _Kept:
    """The last text of a session, and its ids and checkpoints."""

    def __init__(self, way: _Way) -> None:
        self.way = way
        # In C, they compare strings without copies of their parts.
        self._shared_start = getattr(way.encoder, "shared_start", _shared_start)
        self._shared_end = getattr(way.encoder, "shared_end", _shared_end)
        self._parts, self.ids = [""], list[int]()  # the parts of the text
        self._tail: str | None = None  # from the character before the last checkpoint on, if known
        self.runs: Runs | None = None
        # Of each checkpoint, rising: its place, where its proof ends, and the ids before it.
        self.at, self.proof_ends, self.n_ids = list[int](), list[int](), list[int]()

    @property
    def text(self) -> str:
        """The last text."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0]

    @text.setter
    def text(self, text: str) -> None:
        self._parts, self._tail = [text], None

    def go_on(self, text: str, runs: Runs | None) -> Change:
        """Encode another text.  If that fails, nothing changes."""
        first, last = self._unchanged(text, runs)
        start, before = (self.at[first], self.n_ids[first]) if first >= 0 else (0, 0)
        moved, stop, after = len(text) - len(self.text), len(text), len(self.ids)
        if last < len(self.at):
            stop, after = self.at[last] + moved, self.n_ids[last]
        new, *between = self._encode(text, runs, start, stop, before)
        shifts = moved, moved, before + len(new) - after
        for row, added, shift in zip((self.at, self.proof_ends, self.n_ids), between, shifts):
            behind = row[last:]
            row[first + 1 :] = added
            row += [value + shift for value in behind] if shift else behind
        self.ids[before:after] = new
        self.text, self.runs = text, runs
        for i in range(first + len(between[0]) + 2, max(first, 0) - 1, -1):
            self._thin(i)
        return Change(before, after, new)

    def grow(self, text: str, runs: Runs | None) -> Change | None:
        """Do what `go_on` does, in half the time, for a text that has a little more at its end.

        Returns None, and does nothing, for others.
        """
        if not self.at or runs:
            return None
        if not self.proof_ends[-1] <= len(text) <= self.at[-1] + SPACING:
            return None
        if self._shared_start(self.text, text) < self.proof_ends[-1]:
            return None
        change = self._grow(text, 0)
        self.text = text
        return change

    def append(self, more: str) -> Change | None:
        """Do what `grow` does if only this is new, without looking at the text before it."""
        if not self.at:
            return None
        start = self.at[-1] - 1
        last = self.text[start:] if self._tail is None else self._tail
        tail = last + more
        if len(tail) > SPACING or self.proof_ends[-1] > start + len(last):
            return None
        change = self._grow(tail, start)
        self._tail = tail[self.at[-1] - 1 - start :]
        # Joined like this, there are few parts, and none is copied often.
        parts = self._parts
        parts.append(more)
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            parts[-2:] = [parts[-2] + parts[-1]]
        return change

    def _grow(self, text: str, offset: int) -> Change:
        """Encode what is behind the last checkpoint, of a text without its first characters."""
        start, stop = self.at[-1] - offset, len(text)
        before, after = self.n_ids[-1], len(self.ids)
        found, encode = self.way.borders.last(text, start, stop), self.way.encode
        if found:
            place, proof_end = found
            new = encode(text, None, start, place)
            n_ids = before + len(new)
            new += encode(text, None, place, stop)
            self.at.append(place + offset)
            self.proof_ends.append(proof_end + offset)
            self.n_ids.append(n_ids)
            self._thin(len(self.at) - 2)
        else:
            new = encode(text, None, start, stop)
        self.ids[before:] = new
        return Change(before, after, new)

    def _thin(self, i: int) -> None:
        """Drop a checkpoint if its neighbors are near, so that their number is bounded."""
        at = self.at
        if i + 1 < len(at) and at[i + 1] - (at[i - 1] if i else 0) <= SPACING:
            del at[i], self.proof_ends[i], self.n_ids[i]

    def _unchanged(self, text: str, runs: Runs | None) -> tuple[int, int]:
        """Return the last checkpoint of the shared beginning, and the first of the shared end.

        -1 and the number of checkpoints stand for the text's own beginning and end.
        """
        n = len(self.at)
        shared = self._shared_start(self.text, text)
        if runs and self.runs:
            shared = min(shared, runs.shared_start(self.runs))
        elif not self.text:
            shared = 0
        first = bisect_right(self.proof_ends, shared) - 1
        start = self.at[first] if first >= 0 else 0
        if first + 1 == n:
            return first, n
        most = min(len(self.text), len(text)) - start
        end = self._shared_end(self.text, text, most)
        if runs and self.runs:
            end = min(end, runs.shared_end(self.runs))
        # The character left of a border is part of its proof, and of the shared end.
        last = bisect_left(self.at, len(self.text) - end + 1, first + 1)
        while last < n and self.at[last] + len(text) - len(self.text) <= start:
            last += 1
        return first, last

    def _encode(
        self, text: str, runs: Runs | None, start: int, stop: int, n_ids: int
    ) -> tuple[list[int], list[int], list[int], list[int]]:
        """Encode the text between two places.

        Args:
            n_ids: how many ids there are before.

        Returns:
            The ids, and of each checkpoint between the places what `_Kept` keeps of it.
        """
        ids: list[int] = []
        at, proof_ends, counts = list[int](), list[int](), list[int]()
        for place, proof_end in spaced(self.way.borders, text, runs, start, stop, SPACING):
            ids += self.way.encode(text, runs, start, place)
            at.append(place)
            proof_ends.append(proof_end)
            counts.append(n_ids + len(ids))
            start = place
        ids += self.way.encode(text, runs, start, stop)
        return ids, at, proof_ends, counts


def spaced(
    borders: Borders, text: str, runs: Runs | None, start: int, stop: int, spacing: int
) -> Iterator[Border]:
    """Yield some borders between two places, at a distance, and the last one."""
    if not borders.has_any:
        return
    is_active = (runs.has,) if runs else ()
    low = start
    while True:
        high = min(low + spacing, stop)
        found = borders.last(text, low, high, *is_active)
        if found:
            yield found
        if high == stop:
            return
        low = found.at if found else high - 1


class _Alone:
    """A lock that nobody waits for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "another thread is using this session; give each thread a session of its own"
            )

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


class Session:
    """Encodes texts, each of which shares much with the one before.

    It keeps the last text, 8 bytes for each of its ids, and about 100 bytes for each 4,096 of its
    characters.  One thread at a time may use a session; another gets a RuntimeError.  Sessions
    share nothing but the tokenizer, so give each conversation its own.

    Args:
        tokenizer: whose ids they are.  If it learns or gets other tokens, a session starts over.
        **options: those of `encode` on special tokens, for calls that don't give their own.
    """

    def __init__(self, tokenizer: BPETokenizer, **options: Any) -> None:
        self.tokenizer, self._options = tokenizer, options
        self._alone = _Alone()
        self._kept: _Kept | None = None
        self._key: object = None
        self._around = _NOTHING_AROUND
        self._n_ids = 0  # of the last result
        self._interrupted = False  # by an exception that left the last text unknown
        self._read(core.frozen(tokenizer), "", **options)  # checks them

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return what ``tokenizer.encode(text)`` does, with its options on special tokens.

        Options that decide how text is read, such as `allowed_special`, may change from call to
        call; then all of the text is encoded.

        >>> session = BPETokenizer().incremental()
        >>> session.encode("Hi there.")
        [72, 105, 32, 116, 104, 101, 114, 101, 46]
        >>> session.update("Hi there. Bye.")  # what the next text changes
        Change(start=2, stop=9, new=[32, 116, 104, 101, 114, 101, 46, 32, 66, 121, 101, 46])
        """
        with self._alone:
            self._encode(text, options)
            return self._result()

    def update(self, text: str, **options: Any) -> Change:
        """Go on to a text as `encode` does, but return only what changes.

        ``ids[start:stop] = new`` makes the ids of this text from those of the last one.  That
        saves the copy of all ids, which is most of the time that `encode` takes for a long text.
        """
        with self._alone:
            return self._encode(text, options)

    def append(self, text: str, **options: Any) -> Change:
        """Go on to the last text with this one at its end, and return what changes.

        This does what `update` does with the whole text, but needs neither that nor a comparison.
        So it takes as long for a text of any length.

        Raises:
            ValueError: the last text is unknown, as it was a conversation, or a call was
                interrupted; pass the whole text to `update`.

        >>> session = BPETokenizer().incremental()
        >>> ids = session.encode("Hi there.")
        >>> start, stop, ids[start:stop] = session.append(" Bye.")
        >>> ids == session.encode("Hi there. Bye.")
        True
        """
        with self._alone:
            core.utf8_length(text)  # checks it
            problem = "the last call was interrupted" if self._interrupted else ""
            if self._kept and isinstance(self._key, tuple):
                problem = "the last text was a conversation, from apply_chat_template"
            if problem:
                raise ValueError(f"{problem}; call update with the whole text first")
            if (change := self._append(text, options)) is not None:
                return change
            last = self._kept.text if self._kept else ""
            return self._encode(last + text, options)

    def _append(self, text: str, options: dict[str, Any]) -> Change | None:
        """Append text if that changes little, and the same way as in the last call."""
        now, kept = core.frozen(self.tokenizer), self._kept
        given = {**self._options, **options} if options else self._options
        if not kept or kept.way.encoder is not core.encoder(now) or "disallowed_special" in given:
            return None
        if (self._read(now, "", **given) if given else _PLAIN) != (self._key, self._around):
            return None
        self._kept, self._interrupted = None, True
        change = kept.append(text)
        self._kept, self._interrupted = kept, False
        if change is None:
            return None
        before, after = self._around
        self._n_ids = len(before) + len(kept.ids) + len(after)
        start, stop, new = change
        return Change(start + len(before), stop + len(before), new) if before else change

    def clear(self) -> None:
        """Forget the last text; the next change refers to an empty list."""
        with self._alone:
            self._kept, self._n_ids, self._around = None, 0, _NOTHING_AROUND
            self._interrupted = False

    def encode_segments(
        self,
        now: BPETokenizer,
        encoder: core.SegmentEncoder,
        segments: Sequence[tuple[str, Tokens]],
    ) -> list[int]:
        """Return what ``encoder.encode(segments)`` does; of `apply_chat_template`.

        `now` is the session's tokenizer as it is.
        """
        with self._alone:
            key = frozenset(token.content for token in encoder.pipeline.tokens), "segments"
            text = "".join([part for part, _ in segments])
            ends = list(itertools.accumulate([len(part) for part, _ in segments])) or [0]
            runs = Runs(ends, [tokens for _, tokens in segments] or [_NONE])
            self._go_on(
                now,
                key,
                lambda: _SegmentWay(now, encoder),
                (text, runs),
                lambda: encoder.encode(segments),
                _NOTHING_AROUND,
            )
            return self._result()

    def _encode(self, text: str, options: dict[str, Any]) -> Change:
        now = core.frozen(self.tokenizer)
        given = {**self._options, **options} if options else self._options
        if not given and type(text) is str:  # nothing to check: most calls
            allowed, around = _PLAIN
        else:
            allowed, around = self._read(now, text, **given)
        return self._go_on(
            now,
            allowed,
            lambda: TextWay(now, allowed),
            (text, None),
            lambda: now.encode(text, allowed_special=allowed or "none"),
            around,
        )

    def _read(
        self,
        now: BPETokenizer,
        text: str,
        add_special_tokens: bool = False,
        allowed_special: Any = "none",
        *,
        disallowed_special: Any = (),
        **others: Any,
    ) -> tuple[Tokens, _Around]:
        """Return the special tokens to recognize, and the ids around a text."""
        if others:
            known = "add_special_tokens, allowed_special and disallowed_special"
            raise TypeError(f"a session takes {known}, got {', '.join(others)}")
        allowed = core.allowed(now, allowed_special, disallowed_special, [text])
        return allowed, core.asked_around(now, add_special_tokens)

    def _go_on(
        self,
        now: BPETokenizer,
        key: object,
        make_way: Callable[[], _Way],
        given: tuple[str, Runs | None],
        encode_whole: Callable[[], list[int]],
        around: _Around,
    ) -> Change:
        """Encode another text; `around` are the ids before and after it."""
        kept, n_ids = self._kept, self._n_ids
        last: _Around | None = self._around
        if not kept or self._key != key or kept.way.encoder is not core.encoder(now):
            kept, last = _Kept(make_way()), None
        was, self._kept, self._interrupted = self._kept, None, True  # if anything does
        try:
            change = kept.grow(*given) or kept.go_on(*given)
        except _SpelledError:
            kept = _Kept(kept.way)
            kept.ids = encode_whole()  # without a text: the next one starts over
            last = None
        except ValueError:
            self._kept, self._interrupted = was, False
            encode_whole()  # names a lone surrogate by its place in the whole text
            raise
        before, after = around
        self._kept, self._key, self._around, self._interrupted = kept, key, around, False
        self._n_ids = len(before) + len(kept.ids) + len(after)
        if last != around:
            return Change(0, n_ids, self._result())
        if not before:
            return change
        start, stop, new = change
        return Change(start + len(before), stop + len(before), new)

    def _result(self) -> list[int]:
        before, after = self._around
        ids = self._kept.ids if self._kept else []
        return [*before, *ids, *after] if before or after else ids.copy()


def incremental(tokenizer: BPETokenizer, **options: Any) -> Session:
    """Return a `Session`, which encodes texts that are mostly the same as the last one.

    Use it for a growing conversation, or a prompt being edited: ``session.encode(text)`` gives the
    ids of ``encode(text)``, and takes time only for the change.  ``apply_chat_template(messages,
    session=session)`` does it for conversations.  See docs/incremental.md.

    Args:
        **options: those of `encode` on special tokens, for all calls of the session.

    >>> session = BPETokenizer().incremental()
    >>> session.encode("one two") == BPETokenizer().encode("one two")
    True
    """
    return Session(tokenizer, **options)
