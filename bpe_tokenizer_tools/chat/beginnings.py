"""Render longer and longer beginnings of a conversation, and do shared work only once.

A template mostly writes the same text for a message, however long the conversation is.  So when a
loop visits messages that an earlier rendering has visited, it reuses the text written there and
continues after it.

To keep this exact, we record what the loop's body reads.  Besides the messages that it visits, it
can read how many there are, and what was set before the loop.  Each step records what it learned
about these: there are more than 7 messages, or `ns.has_tools` is true.  A later rendering reuses a
step, and all steps before it, only if all of that is true for it, too.  It also repeats what these
steps set in namespaces.  A step that reads the last message is never reused; that only costs time.

Loops over the numbers of messages, `range(messages|length)`, are recorded in the same way.  So are
loops over messages that `selectattr` selects: only where such a selection ends can differ.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jinja2
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import MAX_RANGE, safe_range
from jinja2.utils import Namespace

from bpe_tokenizer_tools.chat.marked_text import TEMPLATE, Marked, concat

# Names something that a loop's body reads.  If its i-th value is a namespace, (i, "name") is an
# attribute of it; if it is a span of messages, (i,) is the end of that.  () is the end of the
# messages that the loop visits.
_Key = tuple[Any, ...]
MISSING: Any = object()
_FEW = 3  # look this many messages back first, then farther
_RECENT = 4  # remember this many earlier renderings of a loop
_MANY = 2**31
_NUMBERS: Sequence[int] = range(_MANY)  # the items of a loop over a range


class Refused(ValueError):
    """A template refuses a conversation."""


class Unknown(Exception):
    """A template does something that this module doesn't track."""


def plain(value: Any) -> Any:
    """Return a value; record that a number's exact value was read."""
    return value.__index__() if isinstance(value, Number) else value


class Number:
    """An integer that may differ between renderings; records what a template learns about it.

    An operation that this class lacks raises an error; then nothing is reused.
    """

    def __init__(self, loop: Loop, key: _Key, value: int, more: int = 0) -> None:
        self._loop, self._key, self._value, self._more = loop, key, value, more

    def _note(self, low: int | None, high: int | None) -> None:
        self._loop._note(self._key, low, high, self._more)

    def __index__(self) -> int:
        self._note(self._value, self._value)
        return self._value

    def __hash__(self) -> int:
        return hash(self.__index__())

    def _is_beside(self, other: Any) -> bool:
        """Return True if the difference of two numbers is the same in all renderings."""
        return isinstance(other, Number) and other._key == self._key

    def __lt__(self, other: Any) -> bool:
        if self._is_beside(other):
            return bool(self._value < other._value)
        limit = plain(other)
        found = bool(self._value < limit)
        self._note(*((None, limit - 1) if found else (limit, None)))
        return found

    def __gt__(self, other: Any) -> bool:
        if self._is_beside(other):
            return bool(self._value > other._value)
        limit = plain(other)
        found = bool(self._value > limit)
        self._note(*((limit + 1, None) if found else (None, limit)))
        return found

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Number) and self._is_beside(other):
            return self._value == other._value
        value = plain(other)
        if type(value) is not int or value == self._value:
            return bool(self.__index__() == value)
        self._note(*((None, value - 1) if self._value < value else (value + 1, None)))
        return False

    def __bool__(self) -> bool:
        return self != 0

    def __add__(self, other: Any) -> Any:
        if type(other) is not int:
            return self.__index__() + plain(other)
        return Number(self._loop, self._key, self._value + other, self._more + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if self._is_beside(other):
            return self._value - other._value
        return self + -other if type(other) is int else self.__index__() - plain(other)

    def __rsub__(self, other: Any) -> Any:
        return other - self.__index__()

    def __mod__(self, other: Any) -> Any:
        return self.__index__() % plain(other)

    def _below(self, first: int) -> Any:
        """Return the numbers from `first` up to this one, without it; None if `range` refuses."""
        begin = first - self._more
        if begin < 0 or self - first > MAX_RANGE:
            return None
        loop = self._loop
        span = Span(loop._run, range(self._more, _MANY), begin, self._value - self._more)
        span._loop, span._key = loop, self._key
        return span

    def __str__(self) -> str:
        return str(self.__index__())

    __repr__ = __str__  # in the text of a list

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("_") else Unknown


class Word:
    """A text that may differ between loops; records which texts it was compared with."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, loop: Inner, key: _Key, value: str) -> None:
        self._loop, self._key, self._value = loop, key, value

    def whole(self) -> str:
        """Return the text, and record that all of it was read."""
        self._loop._compare(self._key, self._value, True)
        return self._value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Word):
            other = other.whole()
        if not isinstance(other, str):
            return False
        found = str.__eq__(self._value, other)
        self._loop._compare(self._key, other, found)
        return found

    def __lt__(self, other: Any) -> Any:
        return self.whole() < other

    def __gt__(self, other: Any) -> Any:
        return self.whole() > other

    def __le__(self, other: Any) -> Any:
        return self.whole() <= other

    def __ge__(self, other: Any) -> Any:
        return self.whole() >= other


class Compared:
    """A namespace for the variables that a loop only compares."""


class Selection:
    """The messages of a whole conversation that match; all renderings share them."""

    def __init__(self, base: Sequence[Any], fits: Callable[[Any], bool]) -> None:
        self._places = [at for at, message in enumerate(base) if fits(message)]
        self.found = [base[at] for at in self._places]

    def number(self, n: int) -> int:
        """Return how many of the first n messages fit."""
        return bisect.bisect_left(self._places, n)


class Span:
    """Messages from one place to another; the end may differ between renderings."""

    def __init__(self, run: Run, base: Sequence[Any], start: int, stop: int) -> None:
        self._run, self._base, self._start, self._stop = run, base, start, stop
        self._key: _Key | None = None  # the key of the end in a loop
        self._loop: Loop | None = None

    def _watched(self) -> Loop | None:
        loop = self._run.loop
        if loop is not None and self._loop is not loop:
            raise Unknown
        return loop

    def _has(self, at: int) -> bool:
        loop, found = self._watched(), at < self._stop
        if loop is not None and self._key is not None:
            loop._note(self._key, *((at + 1, None) if found else (None, at)))
        return found

    def _number(self) -> Any:
        """Return the length."""
        loop, n = self._watched(), max(self._stop - self._start, 0)
        if loop is None or self._key is None or not n:
            return len(self)
        return Number(loop, self._key, n, -self._start)

    def __len__(self) -> int:
        loop = self._watched()
        if loop is not None and self._key is not None:
            loop._note(self._key, self._stop, self._stop)
        return max(self._stop - self._start, 0)

    def __bool__(self) -> bool:
        return self._has(self._start)

    def __iter__(self) -> Iterator[Any]:
        at = self._start
        while self._has(at):
            yield self._base[at]
            at += 1

    def __reversed__(self) -> Iterator[Any]:
        return iter(list(self)[::-1])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._slice(*map(plain, (key.start, key.stop, key.step)))
        at = plain(key)
        at += self._start if at >= 0 else self._start + len(self)
        if at < self._start or not self._has(at):
            raise IndexError(key)
        return self._base[at]

    def _slice(self, first: Any, stop: Any, step: Any) -> Any:
        start = 0 if first is None else first
        if first is None and stop is None and step == -1 and self._watched() is None:
            return Backwards(self)
        if start < 0 or step not in (None, 1) or (stop is not None and self._watched()):
            return list(self)[first:stop:step]
        begin, end = self._start + start, self._stop
        if stop is not None:
            end = self._start + slice(0, stop).indices(len(self))[1]
        made = Span(self._run, self._base, begin, end)
        made._key, made._loop = self._key, self._loop
        return made

    def _selected(self, key: tuple[Any, ...], fits: Callable[[Any], bool]) -> Span:
        """Return the messages that fit; `key` says what that means."""
        known, name = self._run.selected, (id(self._base), key)
        if name not in known:
            known[name] = Selection(self._base, fits)
        chosen = known[name]
        return Once(self._run, chosen.found, *map(chosen.number, (self._start, self._stop)))

    def _ends_with(self, message: Any) -> bool | None:
        """Return False, noting for which lengths, if the last one certainly differs; else None."""
        loop, stop = self._watched(), self._stop
        content = message.get("content") if isinstance(message, dict) else None
        if loop is None or self._key is None or type(content) is not Marked:
            return None
        if self._start >= stop or not isinstance(self._base, list):
            return None
        places = self._run.places(self._base).get(content, [])  # elsewhere, none is equal
        at = bisect.bisect_left(places, stop - 1)
        following = places[at] if at < len(places) else None
        if following == stop - 1:
            return None
        loop._note(self._key, max([self._start + 1, *(p + 2 for p in places[:at][-1:])]), following)
        return False

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, Span) else other)

    def __add__(self, other: Any) -> Any:
        return list(self) + (list(other) if isinstance(other, Span) else other)

    def __radd__(self, other: Any) -> Any:
        return other + list(self)

    def __str__(self) -> str:
        raise Unknown

    __repr__ = __str__

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):  # a method of lists
            raise Unknown
        return object.__getattribute__(self, name)


class Once(Span):
    """Messages that a filter selects.  As in plain Jinja, a loop can visit them only once."""

    _is_used = False

    def _whole(self) -> Span:
        if self._is_used or self._watched() is not None:
            raise Unknown
        self._is_used = True
        return Span(self._run, self._base, self._start, self._stop)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self._whole())

    def _unknown(self, *_: Any) -> Any:
        raise Unknown

    __len__ = __reversed__ = __getitem__ = __add__ = __radd__ = __eq__ = _number = _unknown

    def _ends_with(self, message: Any) -> bool | None:
        raise Unknown


class Backwards:
    """Messages from the last to the first."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def __len__(self) -> int:
        return len(self._span)

    def __getitem__(self, key: Any) -> Any:
        return list(self._span)[::-1][key]

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._span)[::-1])

    def __eq__(self, other: object) -> bool:
        raise Unknown

    __getattribute__ = Span.__getattribute__
    __str__ = __repr__ = Span.__str__


class Step(NamedTuple):
    """What a loop did for a message, and what must be true to reuse the loop up to here."""

    previous: Step | None
    place: int  # how many messages are before it
    parts: tuple[str, ...]  # the text written
    size: int  # how much was written so far
    latest: int  # the last of the messages that wrote something so far
    written: dict[_Key, Any]  # the values set in namespaces so far
    ranges: dict[_Key, tuple[int | None, int | None]]  # bounds of numbers: least and most
    facts: dict[_Key, Any]  # what other values must be
    unlike: dict[_Key, int] | None = None  # see `Inner`
    spoke: Step | None = None  # in an `Inner`: the last earlier step that wrote something

    def back(self, n: int) -> Step | None:
        """Return the step n steps earlier, or None."""
        step: Step | None = self
        while step is not None and n:
            step, n = step.previous, n - 1
        return step


class Run:
    """A rendering of a beginning."""

    def __init__(
        self,
        loops: dict[int, list[Loop]],
        rests: dict[int, dict[int, _Rest]],
        selected: dict[tuple[Any, ...], Selection],
        said: dict[int, dict[str, list[int]]],
    ) -> None:
        self.loops = loops  # the last loops of earlier renderings
        self.rests = rests  # the records of loops from the last message to the first
        self.selected = selected  # keys: what was selected from, and how
        self._said = said  # for each list of messages: the places of each content
        self.loop: Loop | None = None  # the one that is running
        self.written: list[str | Part] = []

    def places(self, base: Sequence[Any]) -> dict[str, list[int]]:
        """Return the places of the messages with each content."""
        if id(base) not in self._said:
            known = self._said[id(base)] = {}
            for at, message in enumerate(base):
                content = message.get("content") if isinstance(message, dict) else None
                if type(content) is Marked:
                    known.setdefault(content, []).append(at)
        return self._said[id(base)]


class Part:
    """What a loop wrote."""

    step: Step | None = None  # the last one


class Loop:
    """A loop over messages, as a template sees it; records what else the body learns."""

    def __init__(self, run: Run, name: int, span: Span, values: list[Any]) -> None:
        self._run, self._name, self._span, self._values = run, name, span, values
        known: dict[int, int] = {}  # which of them are the same object
        self._one = [known.setdefault(id(each), i) for i, each in enumerate([span, *values])]
        kinds = (Span, Namespace)
        self._watched = [pair for pair in enumerate(values) if isinstance(pair[1], kinds)][::-1]
        self._part = Part()
        self._written: dict[_Key, Any] = {}
        self._ranges: dict[_Key, tuple[int | None, int | None]] = {}
        self._facts: dict[_Key, Any] = {}
        self._has_begun = False
        self.index0 = -1

    # -- What the body can read -

    def _note(self, key: _Key, low: int | None, high: int | None, more: int = 0) -> None:
        """Record the least and the most that a number can be, after subtracting `more`."""
        least, most = known = self._ranges.get(key, (None, None))
        if low is not None and (least is None or low - more > least):
            least = low - more
        if high is not None and (most is None or high - more < most):
            most = high - more
        if known != (least, most):
            self._ranges = {**self._ranges, key: (least, most)}

    def _read(self, place: int, name: str, value: Any) -> Any:
        """Return what the body sees of the attribute of a namespace."""
        key = (place, name)
        if key in self._written:
            return value
        if type(value) is int:
            if key not in self._ranges:
                self._ranges = {**self._ranges, key: (None, None)}  # it is a number
            return Number(self, key, value)
        if key not in self._facts:
            self._facts = {**self._facts, key: value}
        return value

    def _write(self, place: int, name: str, value: Any) -> None:
        if not _is_data(value):
            raise Unknown
        self._written = {**self._written, (place, name): value}

    # -- Running ---

    def __iter__(self) -> Iterator[Any]:
        self._begin()
        run, span, written = self._run, self._span, self._run.written
        earlier = run.loops.setdefault(self._name, [])
        step = self._resume(earlier)
        at = span._start
        if step is not None:
            at += step.place + 1
            self._written, self._ranges, self._facts = step[5:8]
            for (place, name), value in step.written.items():
                self._values[place][name] = value
        size, latest = (step.size, step.latest) if step else (0, -1)
        self._part.step = step
        written.append(self._part)
        self._watch(self)
        try:
            while span._has(at):
                begin, self.index0 = len(written), at - span._start
                yield span._base[at]
                parts = tuple(part for part in written[begin:] if isinstance(part, str))
                del written[begin:]
                size, latest = size + sum(map(len, parts)), max(latest, _latest(parts))
                step = Step(
                    step,
                    self.index0,
                    parts,
                    size,
                    latest,
                    self._written,
                    self._ranges,
                    self._facts,
                )
                self._part.step = step
                at += 1
        finally:
            self._watch(None)
            earlier.insert(0, self)
            del earlier[_RECENT:]

    def _begin(self) -> None:
        """Mark the loop as begun; give up if a template loops over `loop` itself."""
        if self._has_begun:
            raise Unknown
        self._has_begun = True

    def _with_self(self) -> Iterator[tuple[Any, Loop]]:
        return ((message, self) for message in self)

    def _watch(self, loop: Loop | None) -> None:
        """Start recording what the body reads; stop if `loop` is None."""
        self._run.loop = loop
        for place, value in self._watched:  # of equal places, the first one wins
            if isinstance(value, Span):
                value._loop, value._key = loop, (place,)
            else:
                watch = None if loop is None else (loop, place)
                object.__setattr__(value, "_watch", watch)
        self._span._loop, self._span._key = loop, ()

    def _resume(self, earlier: list[Loop]) -> Step | None:
        """Return the last step of earlier loops that this one can reuse."""
        best: Step | None = None
        span = self._span
        for other in earlier:
            if best is not None and span._start + best.place >= span._stop - _FEW:
                break
            if not self._is_like(other):
                continue
            step = other._part.step
            while step is not None and (best is None or step.place > best.place):
                if span._start + step.place < span._stop and self._allows(step):
                    best = step
                step = step.previous
        return best

    def _is_like(self, other: Loop) -> bool:
        """Return True if a loop had the same messages, with the same values around it."""
        is_alike = other._one == self._one and _same(other._span, self._span)
        return is_alike and all(map(_same, other._values, self._values))

    def _allows(self, step: Step | _Rest) -> bool:
        for key, (least, most) in step.ranges.items():
            value = self._value(key)
            if type(value) is not int:
                return False
            if (least is not None and value < least) or (most is not None and value > most):
                return False
        return all(_same(value, self._value(key), True) for key, value in step.facts.items())

    def _value(self, key: _Key) -> Any:
        """Return what a key names, as it was before the loop."""
        if not key:
            return self._span._stop
        value = self._values[key[0]]
        return value._stop if len(key) == 1 else _attributes(value).get(key[1], MISSING)

    # -- As in Jinja ---

    @property
    def index(self) -> int:
        """Return the number of the iteration, counting from 1."""
        return self.index0 + 1

    @property
    def first(self) -> bool:
        """Return True in the first iteration."""
        return self.index0 == 0

    @property
    def last(self) -> bool:
        """Return True in the last iteration."""
        return not self._span._has(self._span._start + self.index)

    @property
    def length(self) -> Any:
        """Return how many iterations there are."""
        return self._span._number()

    def __len__(self) -> int:
        return len(self._span)

    @property
    def revindex(self) -> Any:
        """Return how many iterations are left, this one included."""
        return self.length - self.index0

    @property
    def revindex0(self) -> Any:
        """Return how many iterations are left."""
        return self.length - self.index

    @property
    def previtem(self) -> Any:
        """Return the message before."""
        if self.first:
            return jinja2.Undefined("there is no previous item")
        return self._span._base[self._span._start + self.index0 - 1]

    @property
    def nextitem(self) -> Any:
        """Return the message after."""
        if self.last:
            return jinja2.Undefined("there is no next item")
        return self._span._base[self._span._start + self.index]

    def cycle(self, *values: Any) -> Any:
        """Return one value after the other."""
        return values[self.index0 % len(values)]

    def __getattr__(self, name: str) -> Any:
        raise Unknown

    def __str__(self) -> str:
        raise Unknown

    __repr__ = __str__


class _Rest(NamedTuple):
    """What a loop from the last message to the first did from a message on, and when that is true.

    Like `Step`, but for loops that write no text.
    """

    loop: Loop
    written: dict[_Key, Any]
    ranges: dict[_Key, tuple[int | None, int | None]]
    facts: dict[_Key, Any]

    def after(self, before: _Rest) -> _Rest:
        """Return what this and a step before it did."""
        ranges = dict(before.ranges)
        for key, (least, most) in self.ranges.items():
            if key not in before.written:
                low, high = ranges.get(key, (None, None))
                lows = [each for each in (low, least) if each is not None]
                highs = [each for each in (high, most) if each is not None]
                ranges[key] = max(lows, default=None), min(highs, default=None)
        facts = {key: value for key, value in self.facts.items() if key not in before.written}
        return _Rest(
            before.loop, {**before.written, **self.written}, ranges, {**facts, **before.facts}
        )


class BackLoop(Loop):
    """A loop from the last message to the first; it reuses what was done for the first ones."""

    def __iter__(self) -> Iterator[Any]:
        self._begin()
        run, span = self._run, self._span
        known, known_loops = run.rests.setdefault(self._name, {}), {id(self): True}
        done: list[tuple[int, _Rest]] = []
        rest, at = _Rest(self, {}, {}, {}), span._stop - 1
        self._watch(self)
        try:
            while at >= span._start:
                found = known.get(at)
                if found is not None and self._may_take(found, known_loops):
                    rest = found
                    break
                begin, self._back = len(run.written), span._stop - 1 - at
                self._written, self._ranges, self._facts = {}, {}, {}
                yield span._base[at]
                if len(run.written) > begin:
                    raise Unknown
                done.append((at, _Rest(self, self._written, self._ranges, self._facts)))
                at -= 1
        finally:
            self._watch(None)
        for (place, name), value in rest.written.items():
            self._values[place][name] = value
        for at, step in reversed(done):
            known[at] = rest = rest.after(step)

    def _may_take(self, rest: _Rest, known: dict[int, bool]) -> bool:
        if id(rest.loop) not in known:
            known[id(rest.loop)] = self._is_like(rest.loop)
        return known[id(rest.loop)] and self._allows(rest)

    @property
    def index0(self) -> Any:
        """Return the number of the iteration, counting from 0."""
        return Number(self, (), self._back, self._back - self._span._stop)

    @index0.setter
    def index0(self, value: int) -> None:
        self._back = value

    @property
    def last(self) -> bool:
        """Return True in the last iteration."""
        return self._back == self._span._stop - self._span._start - 1

    @property
    def previtem(self) -> Any:
        """Return the message before."""
        raise Unknown

    nextitem = previtem

    def cycle(self, *values: Any) -> Any:
        """Return one value after the other."""
        raise Unknown


class Inner(Loop):
    """A loop inside another one; it tells the outer loop what it learns.

    All steps share one record of the texts that differed in a comparison: a step can't be reused
    for a text that it, or an earlier step, was compared with and found different.
    """

    def __init__(
        self, run: Run, name: int, span: Span, values: list[Any], written: list[str] | None
    ) -> None:
        super().__init__(run, name, span, values)
        self._outer, self._text = run.loop, run.written if written is None else written
        self._unlike: dict[_Key, int] = {}  # text that differed -> the first place of that
        kinds = (Span, Namespace)
        self._has_state = not all(isinstance(x, kinds) or _is_data(x) for x in values)
        # What the outer loop also records: its keys for spans, and its watchers of namespaces.
        self._spans: list[tuple[Span, _Key | None]] = []
        self._above: dict[_Key, tuple[Loop, _Key]] = {}
        self._watchers: dict[int, tuple[Loop, int] | None] = {}

    def _is_like(self, other: Loop) -> bool:
        return not self._has_state and super()._is_like(other)

    # -- What the body can read -

    def _note(self, key: _Key, low: int | None, high: int | None, more: int = 0) -> None:
        super()._note(key, low, high, more)
        if key in self._above:
            loop, outer = self._above[key]
            loop._note(outer, low, high, more)

    def _read(self, place: int, name: str, value: Any) -> Any:
        key = (place, name)
        if key in self._written:
            return value
        self._read_above(place, name, value)
        if type(value) is Marked and isinstance(self._values[place], Compared):
            if (*key, "is text") not in self._facts:  # other values can't be compared
                self._facts = {**self._facts, (*key, "is text"): True}
            return Word(self, key, value)
        return super()._read(place, name, value)

    def _read_above(self, place: int, name: str, value: Any) -> None:
        """Tell the outer loop that something was read."""
        watcher = self._watchers.get(place)
        if watcher is None:
            return
        seen = watcher[0]._read(watcher[1], name, value)
        if isinstance(seen, Number):
            self._above[place, name] = seen._loop, seen._key
        elif isinstance(seen, Word):
            seen.whole()

    def _write(self, place: int, name: str, value: Any) -> None:
        super()._write(place, name, value)
        watcher = self._watchers.get(place)
        if watcher is not None:
            watcher[0]._write(watcher[1], name, value)

    def _compare(self, key: _Key, text: str, is_equal: bool) -> None:
        if is_equal:
            self._facts = {**self._facts, (*key, "text"): str.__str__(text)}
            return
        unlike = (*key, str.__str__(text))
        self._unlike[unlike] = min(self.index0, self._unlike.get(unlike, self.index0))

    def _value(self, key: _Key) -> Any:
        if len(key) < 3:
            return super()._value(key)
        text = super()._value(key[:2])
        if type(text) is not Marked:
            return MISSING
        return True if key[2] == "is text" else text.plain

    def _allows(self, step: Step | _Rest) -> bool:
        if not super()._allows(step):
            return False
        if not isinstance(step, Step) or not step.unlike:
            return True
        texts = [key[:2] for key in step.facts if key[2:] == ("is text",)]
        said = ((*key, self._value((*key, "text"))) for key in texts)
        return not any(step.unlike.get(key, _MANY) <= step.place for key in said)

    # -- Running ---

    def __iter__(self) -> Iterator[Any]:
        self._begin()
        run, span, written = self._run, self._span, self._text
        earlier = run.loops.setdefault(self._name, [])
        step = self._resume(earlier)
        self._watch(self)
        try:
            at = span._start
            if step is not None:
                at += step.place + 1
                self._take(step)
            while span._has(at):
                begin, self.index0 = len(written), at - span._start
                yield span._base[at]
                said = step if step is None or step.parts else step.spoke
                self._part.step = step = Step(
                    step,
                    self.index0,
                    tuple(part for part in written[begin:] if isinstance(part, str)),
                    0,
                    -1,
                    self._written,
                    self._ranges,
                    self._facts,
                    self._unlike,
                    said,
                )
                at += 1
        finally:
            self._watch(None)
            earlier.insert(0, self)
            del earlier[_RECENT:]

    def _watch(self, loop: Loop | None) -> None:
        """Start recording instead of the outer loop; if `loop` is None, hand back to it."""
        if loop is None:
            self._run.loop = self._outer
            for span, key in self._spans:
                span._loop, span._key = self._outer, key
            for place, watcher in self._watchers.items():
                object.__setattr__(self._values[place], "_watch", watcher)
            return
        self._run.loop = self
        spans = {id(x): x for x in (*self._values, self._span) if isinstance(x, Span)}
        self._spans = [(x, x._key) for x in spans.values() if x._loop is self._outer]
        for place, value in self._watched:
            if isinstance(value, Namespace):
                if self._one[place + 1] == place + 1:  # not the same object as an earlier value
                    own = object.__getattribute__(value, "__dict__")
                    self._watchers[place] = own.get("_watch")
                    object.__setattr__(value, "_watch", (self, place))
            elif value._loop in (self, self._outer):
                value._loop, value._key = self, (place,)
        self._span._loop, self._span._key = self, ()
        for span, key in self._spans:
            if key is not None and span._key is not None and self._outer is not None:
                self._above[span._key] = self._outer, key

    def _take(self, step: Step) -> None:
        """Repeat what was done up to a step, and adopt what was learned."""
        for key, (least, most) in step.ranges.items():
            if len(key) == 2:
                self._read_above(key[0], key[1], self._value(key))
            if key in self._above:
                loop, outer = self._above[key]
                loop._note(outer, least, most)
        for key in step.facts:
            self._read_above(key[0], key[1], super()._value(key[:2]))
        for (place, name), value in step.written.items():
            self._values[place][name] = value
        self._written, self._ranges, self._facts = step[5:8]
        self._unlike = step.unlike or {}
        texts: list[tuple[str, ...]] = []
        spoke: Step | None = step
        while spoke is not None:
            texts.append(spoke.parts)
            spoke = spoke.spoke
        for parts in reversed(texts):
            self._text.extend(parts)


def over(value: Any, name: int, values: list[Any], written: list[str] | None = None) -> Any:
    """Return the items of a loop over a value.

    Args:
        value: what the template loops over.
        name: a number for this loop in the template.
        values: what else the loop's body reads.
        written: where it writes, unless that is the output.
    """
    value = _numbers(value, values) if isinstance(value, range) else whole(value)
    if isinstance(value, Backwards):
        return BackLoop(value._span._run, name, value._span, values)
    if not isinstance(value, Span):
        return value
    if value._watched() is not None:
        return Inner(value._run, name, value, values, written)
    return Loop(value._run, name, value, values) if written is None else value


def _numbers(numbers: range, values: Iterable[Any]) -> Any:
    """Return a range as a span if it can be one, counting up or down by 1; else the range."""
    run = next((value._run for value in values if isinstance(value, Span)), None)
    forth = numbers.step == 1 and 0 <= numbers.start <= numbers.stop
    back = numbers.step == -1 and -1 <= numbers.stop <= numbers.start
    if run is None or not (forth or back):
        return numbers
    if forth:
        return Span(run, _NUMBERS, numbers.start, numbers.stop)
    return Backwards(Span(run, _NUMBERS, numbers.stop + 1, numbers.start + 1))


def selected(value: Any, key: tuple[Any, ...], fits: Callable[[Any], bool]) -> Any:
    """Return the messages that match; None if that can't be recorded."""
    if not isinstance(value, Span) or value._watched() or not all(type(x) is str for x in key):
        return None
    return whole(value)._selected(key, fits)


def numbers(stop: Any, *rest: Any) -> Any:
    """Do what Jinja's `range` does, for numbers that are recorded, too."""
    first, end = (stop, rest[0]) if rest else (0, stop)
    if len(rest) < 2 and isinstance(end, Number):
        found = end._below(plain(first))
        if found is not None:
            return found
    return safe_range(*map(plain, (stop, *rest)))


def ends_with(messages: Any, message: Any) -> bool | None:
    """Return False if a message is certainly not the last one of `messages`; else None."""
    return messages._ends_with(message) if isinstance(messages, Span) else None


def as_list(value: Any) -> Any:
    """Do what Jinja's filter `list` does."""
    return whole(value) if isinstance(value, Span) else list(value)


def whole(value: Any) -> Any:
    """Return a value as it is, but a `Once` as a span."""
    return value._whole() if isinstance(value, Once) else value


def loop_context(iterable: Any, *rest: Any) -> Any:
    """Return the items of a loop that uses the name `loop`."""
    return iterable._with_self() if isinstance(iterable, Loop) else LoopContext(iterable, *rest)


def length(value: Any) -> Any:
    """Do what Jinja's filter `length` does."""
    return value._number() if isinstance(value, Span) else len(value)


def _attributes(namespace: Namespace) -> dict[str, Any]:
    return object.__getattribute__(namespace, "_Namespace__attrs")  # type: ignore[no-any-return]


def _latest(parts: Sequence[str]) -> int:
    """Return the last message that a text has something from; -1 for none."""
    latest = -1
    for part in parts:
        for _, origin in part._runs if isinstance(part, Marked) else ():
            if origin.message is not None and origin.message > latest:
                latest = origin.message
    return latest


def _is_data(value: Any) -> bool:
    """Return True if a value is the same at any time and in any rendering."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        return all(map(_is_data, value))
    return value is None or isinstance(value, (int, float, str, jinja2.Undefined))


def _same(a: Any, b: Any, inside: bool = False) -> bool:
    """Return True if two values are certainly the same, except for what `Loop` records of them.

    `inside`: they are part of another value, so nothing more is recorded of them.
    """
    if a is b:
        return not (inside and isinstance(a, Namespace))
    if type(a) is not type(b):
        return False
    if isinstance(a, Backwards):
        return _same(a._span, b._span, True)
    if isinstance(a, Span):
        one = a._base is b._base and a._start == b._start
        return one and (not inside or bool(a._stop == b._stop))
    if isinstance(a, Namespace):
        return not inside
    if isinstance(a, Marked):
        return bool(a.plain == b.plain and a._runs == b._runs)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y, True) for x, y in zip(a, b))
    if isinstance(a, dict):
        return _same([*a.items()], [*b.items()], True)
    if isinstance(a, Macro):  # several can share a name
        return bool(a._func.__code__ is b._func.__code__)
    if type(a) is float:
        return a == b and str(a) == str(b)  # 0.0 is not -0.0
    return isinstance(a, jinja2.Undefined) or bool(type(a) in (int, bool, str) and a == b)


# -- The beginnings ------------------------------------------------------------


class Beginnings:
    """The beginnings of a conversation, rendered one after another.

    Args:
        render: yields the text that a template writes, in parts; it takes messages, and whether
            to add the prompt for an answer.
        messages: all messages, as `as_given_message` makes them.
        last: returns the last message that a text has something from; -1 for none.
    """

    def __init__(
        self,
        render: Callable[[Any, bool], Iterator[str]],
        messages: list[dict[str, Any]],
        last: Callable[[Marked], int],
    ) -> None:
        self._render, self._messages, self._last = render, messages, last
        self._loops: dict[int, list[Loop]] = {}
        self._rests: dict[int, dict[int, _Rest]] = {}
        self._selected: dict[tuple[Any, ...], Selection] = {}
        self._said: dict[int, dict[str, list[int]]] = {}
        # Pairs of steps that wrote equal text.  NOTE: the keys are id()s, so keep the steps alive.
        self._alike: dict[tuple[int, int], tuple[Step, Step]] = {}

    def texts(self, i: int) -> tuple[Marked, Marked] | None:
        """Return the prompt for message i, and the conversation that ends with it.

        Text that both begin with may be left out, but not the prompt's last words or any text
        from message i.  Returns None if the template does something that isn't tracked.
        """
        try:
            prompt, alone = self._written(i, True), self._written(i + 1, False)
        except Unknown:
            return None
        return self._ends(prompt, alone) or self._shortened(_whole(prompt), _whole(alone))

    def whole(self, prompt: bool) -> Marked | None:
        """Return the whole conversation; None if the template refuses it, or can't be tracked."""
        try:
            written = self._written(len(self._messages), prompt)
        except Unknown:
            return None
        return None if written is None else _whole(written)

    def _written(self, n: int, prompt: bool) -> list[str | Part] | None:
        """Render the first messages; return None if the template refuses them."""
        run = Run(self._loops, self._rests, self._selected, self._said)
        try:
            for part in self._render(Span(run, self._messages, 0, n), prompt):
                run.written.append(part)
        except Refused:
            return None
        except Exception as error:
            raise Unknown from error
        return run.written

    def _ends(
        self, prompt: list[str | Part] | None, alone: list[str | Part] | None
    ) -> tuple[Marked, Marked] | None:
        if not prompt:
            return None
        at = _last_part(prompt)
        if at is None or (alone is not None and not _begin_alike(prompt, alone, at)):
            return None
        before, written = max(map(_latest_of, prompt[:at]), default=-1), _steps(prompt[at])
        n = _FEW
        while (cut := written and written.back(n)) is not None:
            n *= 4
            other = _step_at(alone[at], cut.place) if alone is not None else cut
            if other is None or not self._is_alike(cut, other):
                continue
            text = _whole(prompt[at:], cut)
            if self._last(text) > max(before, cut.latest, other.latest):
                return self._shortened(text, _whole(alone and alone[at:], other))
        return None

    def _shortened(self, prompt: Marked, alone: Marked) -> tuple[Marked, Marked]:
        """Leave out what both begin with; for templates that write all text at the end."""
        a, b = prompt._runs, alone._runs
        n = _FEW
        while (k := min(len(a), len(b)) - n) > 0:
            n *= 4
            start = len(prompt) - sum(length for length, _ in a[k:])
            if a[:k] != b[:k] or prompt.plain[:start] != alone.plain[:start]:
                continue
            text = Marked._make(prompt.plain[start:], a[k:])
            said = (origin.message for _, origin in a[:k] if origin.message is not None)
            if self._last(text) > max(said, default=-1):
                return text, Marked._make(alone.plain[start:], b[k:])
        return prompt, alone

    def _is_alike(self, a: Step | None, b: Step | None) -> bool:
        """Return True if two loops wrote the same text up to these steps."""
        walked: list[tuple[Step, Step]] = []
        while a is not b:
            if a is None or b is None or a.place != b.place or a.parts != b.parts:
                return False
            if (id(a), id(b)) in self._alike:
                break
            walked.append((a, b))
            a, b = a.previous, b.previous
        self._alike.update(((id(pair[0]), id(pair[1])), pair) for pair in walked)
        return True


def _steps(part: str | Part) -> Step | None:
    return part.step if isinstance(part, Part) else None


def _last_part(written: Sequence[str | Part]) -> int | None:
    places = (i for i in range(len(written) - 1, -1, -1) if isinstance(written[i], Part))
    return next(places, None)


def _begin_alike(a: Sequence[str | Part], b: Sequence[str | Part], n: int) -> bool:
    """Return True if two texts are the same up to their last loops."""
    if _last_part(b) != n:
        return False
    return all(
        _steps(x) is _steps(y) or _size(x) == _size(y) == 0
        if isinstance(x, Part) and isinstance(y, Part)
        else x is y or (isinstance(x, str) and x == y)
        for x, y in zip(a[:n], b[:n])
    )


def _size(part: Part) -> int:
    return part.step.size if part.step else 0


def _step_at(part: str | Part, place: int) -> Step | None:
    step = _steps(part)
    while step is not None and step.place > place:
        step = step.previous
    return step


def _latest_of(part: str | Part) -> int:
    step = _steps(part)
    return step.latest if step else _latest([part] if isinstance(part, str) else [])


def _whole(written: Sequence[str | Part] | None, cut: Step | None = None) -> Marked:
    """Join the parts of a text; of a loop, only what follows the step `cut`."""
    parts: list[str] = []
    for part in written or ():
        if isinstance(part, str):
            parts.append(part)
            continue
        steps, step = list[Step](), part.step
        while step is not None and step is not cut:
            steps.append(step)
            step = step.previous
        parts += [each for step in reversed(steps) for each in step.parts]
    return concat(parts) if parts else Marked("", TEMPLATE)
