"""Text that knows, for each of its characters, who wrote it.

A chat template mixes its own text, in which control tokens count, with user-supplied text,
in which they must not.  `Marked` is a string that tracks this: when it is joined, cut,
stripped, split or replaced, each character keeps its origin.  String methods that aren't
tracked here return a plain string.  Its origin is unknown, so it is treated as
user-supplied: an error on the safe side.

>>> text = Marked("<|user|>", TEMPLATE) + Marked(" Hi! ", Origin(0, "content")).strip()
>>> [(part, origin.trusted) for part, origin in text.runs()]
[('<|user|>', True), ('Hi!', False)]
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, SupportsIndex

from bpe_tokenizer_tools.chat.budget import CURRENT, LONG


class Origin(NamedTuple):
    """Where characters come from."""

    message: int | None = None  # the index of a message, or None
    field: str | None = None  # its field, such as "content"; None is the template itself
    generated: bool = False  # whether the template marks it as the assistant's
    answer: bool = False  # whether it is an earlier answer or thought of the assistant

    @property
    def trusted(self) -> bool:
        """Whether the template itself wrote this."""
        return self.field is None


TEMPLATE = Origin()
UNKNOWN = Origin(None, "unknown")
MAX_LENGTH = 2**26  # characters; what templates make is limited further, see budget.py
_RUN_SIZE, _PART_SIZE = 96, 64  # bytes
_TEXT_SIZE = 256  # of a short text, with where it comes from
_CASE_SIZE = 12  # bytes; Python changes the case of three times four bytes for each character
_FEW_RUNS = 8
_Run = tuple[int, Origin]  # the number of characters with that origin; 0 for an empty string


def joint(origins: Sequence[Origin]) -> Origin:
    """Return the origin of text made of several: the first, and an answer only if all are."""
    return origins[0]._replace(answer=all(origin.answer for origin in origins))


class _Runs:
    """Where the characters of a text come from; its parts share this object.

    So a template may split a long text into many parts: each costs its own length, not that
    of the whole text.
    """

    lease: Any  # for many runs: what a template pays for them

    def __init__(self, runs: tuple[_Run, ...]) -> None:
        self.runs = runs

    @functools.cached_property
    def _ends(self) -> list[int]:
        return list(itertools.accumulate(length for length, _ in self.runs))

    def origin(self, at: int) -> Origin:
        return self.runs[bisect.bisect_right(self._ends, at)][1]

    def within(self, start: int, stop: int) -> tuple[_Run, ...]:
        """Return the runs of a part of the text that isn't empty."""
        first, last = bisect.bisect_right(self._ends, start), bisect.bisect_left(self._ends, stop)
        found = [run for run in self.runs[first : last + 1] if run[0]]
        found[-1] = found[-1][0] - (self._ends[last] - stop), found[-1][1]
        begin = self._ends[first] - self.runs[first][0]
        found[0] = found[0][0] - (start - begin), found[0][1]
        return tuple(found)


class Marked(str):
    """A string whose characters have origins; see the module."""

    _text: _Runs  # of the text that it was cut from
    _at: int | None  # where it begins there; None, if it is that text
    _lease: Any  # of a long text made by a template: what it pays for it

    def __new__(cls, text: str, origin: Origin = UNKNOWN) -> Marked:
        """Mark a whole string; one that is already marked stays as it is."""
        if isinstance(text, Marked):
            return text
        if not isinstance(text, str):
            raise TypeError(f"expected a string, got {type(text).__name__}")
        return cls._of(text, _Runs(((len(text), origin),)))

    @classmethod
    def _make(cls, text: str, runs: tuple[_Run, ...]) -> Marked:
        if sum(length for length, _ in runs) != len(text):
            raise ValueError(f"can't tell who wrote which part of {text!r:.60}")
        return cls._of(text, _Runs(runs))

    @classmethod
    def _of(cls, text: str, runs: _Runs, at: int | None = None) -> Marked:
        made = str.__new__(cls, text)
        made._text, made._at = runs, at
        budget = CURRENT.budget
        if budget is not None:
            if len(text) >= LONG:
                made._lease = budget.lease(sys.getsizeof(made))
            else:
                budget.take(_TEXT_SIZE + 4 * len(text))
        return made

    @property
    def _runs(self) -> tuple[_Run, ...]:
        if self._at is None:
            return self._text.runs
        return self._text.within(self._at, self._at + len(self))

    @property
    def plain(self) -> str:
        """The string alone."""
        return str.__str__(self)

    @property
    def trusted(self) -> bool:
        """Whether the template itself wrote all of it; an empty string has an origin, too."""
        return all(origin.trusted for _, origin in self._runs)

    def runs(self) -> Iterator[tuple[str, Origin]]:
        """Yield the text by origin.  Empty strings that were part of it are, too."""
        start, text = 0, self.plain
        for length, origin in self._runs:
            yield text[start : start + length], origin
            start += length

    def _cut(self, start: int, stop: int) -> Marked:
        part = str.__getitem__(self, slice(start, stop))
        if part:
            return self._of(part, self._text, (self._at or 0) + start)
        # An empty string comes from where it was cut.
        origin = self._text.runs[0][1] if self._at is None else self._text.origin(self._at)
        return self._make("", ((0, origin),))

    def _map(self, change: Any) -> Marked:
        """Return the result of a method that changes each character on its own."""
        if not self.isascii():
            _check_size(_CASE_SIZE * len(self))
        changed = change(self.plain)
        if len(changed) == len(self):
            return self._make(changed, self._runs)
        made = concat(Marked(change(part), origin) for part, origin in self.runs())
        return made if str.__eq__(made, changed) else Marked(changed)

    def escaped(self) -> Marked:
        """Return the string with HTML's characters replaced, as Jinja's ``escape`` does."""
        marks = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})
        _check_size(5 * len(self))
        return concat(Marked(part.translate(marks), origin) for part, origin in self.runs())

    # -- What str does, followed ---

    def __str__(self) -> str:
        return self

    def __iter__(self) -> Iterator[Marked]:
        return (Marked(char, origin) for part, origin in self.runs() for char in part)

    def __getitem__(self, key: SupportsIndex | slice) -> Marked:
        if not isinstance(key, slice):
            at = range(len(self))[key]
            return self._cut(at, at + 1)
        start, stop, step = key.indices(len(self))
        return self._cut(start, max(start, stop)) if step == 1 else self._taken(key)

    def _taken(self, key: slice) -> Marked:
        """Return a slice with a step, which may go backward."""
        places = range(len(self))[key]
        forward = places if places.step > 0 else places[::-1]
        runs, end = list[_Run](), 0
        for length, origin in self._runs:
            start, end = end, end + length
            count = bisect.bisect_left(forward, end) - bisect.bisect_left(forward, start)
            if count:
                runs.append((count, origin))
        whole = tuple(runs if places.step > 0 else runs[::-1]) or ((0, UNKNOWN),)
        return Marked._make(self.plain[key], whole)

    def __add__(self, other: str) -> Marked:
        return concat((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> Marked:
        return concat((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> Marked:
        times = max(0, times.__index__())
        if times * len(self) > MAX_LENGTH:
            raise ValueError(f"a text of {times * len(self):,} characters is too large")
        if times < 2 or not self:
            return self if times else self._cut(0, 0)
        runs = self._runs
        _check_size(times * (len(self) + (_RUN_SIZE * len(runs) if len(runs) > 1 else 0)))
        if len(runs) == 1:
            return Marked._make(self.plain * times, ((times * len(self), runs[0][1]),))
        return concat([self] * times)

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        _check_form(self.plain, values)
        pieces = re.split(r"%(s|%)", str.__str__(self))
        if not self.trusted or "%" in "".join(pieces[::2]) or isinstance(values, dict):
            # The format's author decides what goes where.  Only %s is tracked.
            return Marked(str.__mod__(self, values))
        Marked(str.__mod__(self, values))  # raises what str raises
        given = iter(values if isinstance(values, tuple) else (values,))
        made, at = [], 0
        for i, piece in enumerate(pieces):
            if i % 2:
                made.append(self._cut(at, at + 1) if piece == "%" else Marked(str(next(given))))
                at += 2
            else:
                made.append(self._cut(at, at + len(piece)))
                at += len(piece)
        return concat(made)

    def strip(self, chars: str | None = None, /) -> Marked:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> Marked:
        return self._cut(len(self) - len(super().lstrip(chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> Marked:
        return self._cut(0, len(super().rstrip(chars)))

    def removeprefix(self, prefix: str, /) -> Marked:
        return self._cut(len(prefix) if self.startswith(prefix) else 0, len(self))

    def removesuffix(self, suffix: str, /) -> Marked:
        return self._cut(0, len(self) - (len(suffix) if self.endswith(suffix) else 0))

    def split(  # type: ignore[override]
        self, sep: str | None = None, maxsplit: SupportsIndex = -1
    ) -> list[Marked]:
        self._check_parts(sep)
        return self._located(super().split(sep, maxsplit), len(sep or ""))

    def rsplit(  # type: ignore[override]
        self, sep: str | None = None, maxsplit: SupportsIndex = -1
    ) -> list[Marked]:
        self._check_parts(sep)
        return self._located(super().rsplit(sep, maxsplit), len(sep or ""))

    def _check_parts(self, sep: str | None) -> None:
        """Check that the parts of a long text can be paid for."""
        if len(self) >= LONG:
            _check_size(_PART_SIZE * (self.count(sep) if sep else len(self) // 2))

    def _located(self, parts: list[str], gap: int) -> list[Marked]:
        """Find the parts that were split off; `gap` characters, or white space, between."""
        found, at = [], 0
        for part in parts:
            start = at if gap else self.index(part, at)
            found.append(self._cut(start, start + len(part)))
            at = start + len(part) + gap
        return found

    def splitlines(self, keepends: bool = False) -> list[Marked]:  # type: ignore[override]
        if len(self) >= LONG:
            _check_size(_PART_SIZE * len(self) // 2)
        lines, at = [], 0
        for whole, line in zip(super().splitlines(True), super().splitlines(keepends)):
            lines.append(self._cut(at, at + len(line)))
            at += len(whole)
        return lines

    def partition(self, sep: str, /) -> tuple[Marked, Marked, Marked]:
        return self._parted(*super().partition(sep))

    def rpartition(self, sep: str, /) -> tuple[Marked, Marked, Marked]:
        return self._parted(*super().rpartition(sep))

    def _parted(self, before: str, sep: str, after: str) -> tuple[Marked, Marked, Marked]:
        start, stop = len(before), len(self) - len(after)
        return self._cut(0, start), self._cut(start, stop), self._cut(stop, len(self))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Marked:
        if not old:
            _check_size(len(new) * len(self))
            return Marked(super().replace(old, new, count))
        return Marked(new).join(self.split(old, count))

    def join(self, parts: Iterable[str], /) -> Marked:
        made: list[str] = []
        for part in parts:
            made += [self, part] if made else [part]
        return concat(made)

    def lower(self) -> Marked:
        return self._map(str.lower)

    def upper(self) -> Marked:
        return self._map(str.upper)

    def casefold(self) -> Marked:
        return self._map(str.casefold)

    def swapcase(self) -> Marked:
        return self._map(str.swapcase)

    def title(self) -> Marked:
        return self._map(str.title)

    def capitalize(self) -> Marked:
        return self._map(str.capitalize)


def named(kind: type, name: str) -> None:
    """Let errors call a class by the name that a template's author knows it by."""
    kind.__name__ = kind.__qualname__ = name
    for method, function in vars(kind).items():
        if isinstance(function, types.FunctionType):
            function.__qualname__ = f"{name}.{method}"


named(Marked, "str")


def concat(parts: Iterable[str]) -> Marked:
    """Join strings; each keeps its origins."""
    marked = [part if isinstance(part, Marked) else Marked(part) for part in parts]
    length = sum(map(len, marked))
    if length > MAX_LENGTH:
        raise ValueError(f"a text of more than {MAX_LENGTH:,} characters is too long")
    if length >= LONG:
        _check_size(length)
    runs: list[_Run] = []
    for part in marked:
        found = part._text.runs if part._at is None else part._runs
        length, origin = found[0]
        if runs and runs[-1][1] == origin:
            runs[-1] = (runs[-1][0] + length, origin)
        elif length or origin != UNKNOWN:
            runs.append((length, origin))
        runs += found[1:]
    made = _Runs(tuple(runs) or ((0, UNKNOWN),))
    if len(runs) > _FEW_RUNS and CURRENT.budget is not None:
        CURRENT.budget.step(len(runs) >> 5)
        made.lease = CURRENT.budget.lease(_RUN_SIZE * len(runs))
    return Marked._of("".join(marked), made)


def _check_size(size: int) -> None:
    """Check that the running template, if any, may make this many bytes."""
    if CURRENT.budget is not None:
        CURRENT.budget.need(size)


# A field of a form such as "%-20s", or what follows its name in parentheses: width, precision.
_FIELD = re.compile(r"[%)][-#0 +]*(\d+|\*)?(?:\.(\d+|\*))?")


def _check_form(form: str, values: Any) -> None:
    """Check that a template may make the text that a form such as "%20s" asks for."""
    budget = CURRENT.budget
    if budget is None:
        return
    budget.scan(form)
    named = isinstance(values, dict)
    given = list(values.values()) if named else values if isinstance(values, tuple) else [values]
    size = sum(len(each) if isinstance(each, str) else budget.walk([each]) for each in given)
    largest = max((abs(each) for each in given if isinstance(each, int)), default=0)
    for found in _FIELD.finditer(form):
        if found[0][0] == "%" or named:
            size += sum(largest if n == "*" else asked_size(n) for n in found.groups() if n)
    budget.need(4 * size * (form.count("%(") if named else 1))


def asked_size(digits: str) -> int:
    """Read a width or a precision, at most its first 12 digits."""
    return int(digits.lstrip("0")[:12] or 0)
