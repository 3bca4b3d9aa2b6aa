"""How much a chat template may do: steps, bytes and seconds.

Templates come from strangers.  A few characters can loop for years or make a text of a terabyte.
A single call of Python's own can do so, too, and can't be stopped once it runs.  So a template
pays for what it does, and if that is large, it pays first:

- steps: one for each iteration, call and filter, and more where it goes through a long text;
- bytes: of the texts and lists that it makes.  A long text is given back when it is freed;
- seconds of the processor in this thread, in case something costs more than it should.

A long conversation needs more of each.  Its length is only counted after a template has used up
what every template gets.

Some calls render a template many times: a mask of what the assistant wrote, or truncation by turns.
All renderings of a call share a number of seconds, too.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

# For 1,000 messages of 100 characters, 61 public templates take up to 2.6 million steps, a quarter
# of their limit, and 16 MB.
STEPS, BYTES, SECONDS = 500_000, 2**26, 2.0
# All renderings of a call together may take this many times as long as one.  For a mask, each
# message is rendered with those before it, though far faster than the limit.
_TOGETHER, _MESSAGES = 4, 16
_LOOK_STEPS, _LOOK_BYTES = 1_000, 2**20  # how often the clock is read
_MAX_DEPTH = 200  # of lists in lists; Python's hash of nested tuples uses the C stack
LONG = 4_096  # characters; texts from this length are given back
CONTAINERS: tuple[type, ...] = (
    list,
    tuple,
    dict,
    type({}.items()),
    type({}.keys()),
    type({}.values()),
)


class ExceededError(ValueError):
    """A chat template does too much."""


class Budget:
    """What a template may still do; `given` are its arguments by name."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given: Mapping[str, Any] | None = given
        self._call = CURRENT.call
        self._limits = STEPS, BYTES, SECONDS
        self._steps, self._bytes, self._until = STEPS, BYTES, time.thread_time() + SECONDS
        self._steps_at, self._bytes_at = STEPS - _LOOK_STEPS, BYTES - _LOOK_BYTES
        self.lazy: dict[int, tuple[int, int]] = {}  # by id: see limits.py

    def step(self, steps: int = 1, size: int = 0) -> bool:
        """Pay for steps, and for bytes of small objects; return True, for use in a condition."""
        self._steps -= steps
        self._bytes -= size
        if self._steps < self._steps_at or self._bytes < self._bytes_at:
            self._look()
        return True

    def take(self, size: int) -> None:
        """Pay for bytes."""
        self._bytes -= size
        if self._bytes < self._bytes_at:
            self._look()

    def need(self, size: int) -> None:
        """Check that bytes can be paid for, before they are made."""
        if size > self._bytes:
            self.take(size)
            self._bytes += size

    def lease(self, size: int) -> _Lease:
        """Pay for bytes until the lease is freed."""
        self.take(size)
        return _Lease(self, size)

    def scan(self, text: str) -> None:
        """Pay for going through a text."""
        if len(text) >= LONG:
            self.step(len(text) >> 10)

    def walk(self, value: Any, depth: int = 0) -> int:
        """Pay for going through everything in a container; return about its size as text.

        A list that is in another one twice counts twice: comparing, hashing or printing it goes
        through it twice.
        """
        if depth > _MAX_DEPTH:
            raise ExceededError(f"the chat template nests lists more than {_MAX_DEPTH} deep")
        self.step(1 + len(value))
        size = 2 * len(value)
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            if isinstance(item, str):
                self.scan(item)
                size += len(item)
            elif isinstance(item, CONTAINERS):
                size += self.walk(item, depth + 1)
            else:
                size += 32
        return size

    def _look(self) -> None:
        now = time.thread_time()
        if min(self._steps, self._bytes) < 0 or now > self._until:
            self._extend()
        self._steps_at = max(self._steps - _LOOK_STEPS, 0)
        self._bytes_at = max(self._bytes - _LOOK_BYTES, 0)
        steps, size, seconds = self._limits
        problem = ""
        if self._steps < 0:
            problem = f"takes more than {steps:,} steps"
        elif self._bytes < 0:
            problem = f"makes more than {size / 2**20:,.0f} MiB of text and lists"
        elif now > self._until:
            problem = f"runs for more than {seconds:.1f} seconds"
        elif self._call and now > self._call.until():
            problem = f"runs for more than {self._call.seconds:.1f} seconds over all its renderings"
        if problem:
            raise ExceededError(
                f"the chat template {problem}, the limit for a conversation of this length; "
                "simplify the template, or pass a shorter conversation"
            )

    def _extend(self) -> None:
        """Add what a conversation of this length needs, once."""
        if self._given is None:
            return
        n, characters = _size(self._given)
        self._given = None
        more = (
            1_000 * n + 8 * n * n + characters,
            256 * characters + 8 * n * n,
            _more_seconds(n, characters),
        )
        steps, size, seconds = self._limits
        self._limits = steps + more[0], size + more[1], seconds + more[2]
        self._steps += more[0]
        self._bytes += more[1]
        self._until += more[2]


class _Call:
    """How many seconds all renderings of a call may take together; `given` is a conversation."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given: Mapping[str, Any] | None = given
        self._start, self.seconds = time.thread_time(), _TOGETHER * SECONDS

    def until(self) -> float:
        """Return when they must have ended; a long conversation gets more when it needs it."""
        if self._given is not None and time.thread_time() > self._start + self.seconds:
            n, characters = _size(self._given)
            self.seconds += (1 + n / _MESSAGES) * _more_seconds(n, characters)
            self._given = None
        return self._start + self.seconds


class _Lease:
    """Bytes that are given back once this object is freed, with the text that it belongs to."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: Budget, size: int) -> None:
        self._budget, self._size = budget, size

    def __del__(self) -> None:
        self._budget._bytes += self._size


def _size(given: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many messages and characters a template is given."""
    messages = _plain_messages(given.get("messages"))
    return len(messages), _characters({**given, "messages": messages})


def _more_seconds(n: int, characters: int) -> float:
    """Return how much longer a template may run for a conversation."""
    return 0.02 * n + 1e-5 * characters


def _plain_messages(messages: Any) -> list[Any]:
    """Return messages that may be watched, without their watchers noticing."""
    if isinstance(messages, list):
        return messages
    base, stop = getattr(messages, "_base", ()), getattr(messages, "_stop", 0)
    return list(base[:stop])


def _characters(value: Any) -> int:
    """Return how much text there is; a number or name counts as one character."""
    count, waiting = 0, [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            count += len(value)
        elif isinstance(value, Mapping):
            waiting += value
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value
        count += 1
    return count


class _Current(threading.local):
    budget: Budget | None = None
    call: _Call | None = None


CURRENT = _Current()


def current() -> Budget:
    """Return the budget of the template that runs in this thread."""
    return CURRENT.budget or Budget({})


@contextlib.contextmanager
def limited(given: Mapping[str, Any]) -> Iterator[None]:
    """Limit what runs inside; an outer limit takes precedence."""
    if CURRENT.budget is not None:
        yield
        return
    CURRENT.budget = Budget(given)
    try:
        yield
    finally:
        CURRENT.budget = None


@contextlib.contextmanager
def together(messages: Any) -> Iterator[None]:
    """Limit all renderings of a conversation inside; an outer limit takes precedence."""
    if CURRENT.call is not None:
        yield
        return
    CURRENT.call = _Call({"messages": messages})
    try:
        yield
    finally:
        CURRENT.call = None
