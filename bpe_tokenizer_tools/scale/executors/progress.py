"""A job's progress: a bar at a terminal, and an occasional line elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from bpe_tokenizer_tools.support.progress import bar_class

_EVERY = 30.0  # seconds between two lines


def size(n_bytes: float) -> str:
    """Format a number of bytes, in powers of ten: "1.24 GB"."""
    number, units = float(f"{n_bytes:.3g}"), ["TB", "GB", "MB", "kB", "B"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop()
    return f"{number:,.{4 if len(units) == 1 else 3}g} {units[-1]}"


def duration(seconds: float) -> str:
    """Format a duration: "7.2 s", "3:05", "12:00:00"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """Follows the bytes of input that are done, and the shards."""

    def __init__(self, what: str, total: int, shards: int, bar: Any, lines: bool) -> None:
        self._what, self._total, self._shards = what, total, shards
        self._bar, self._lines = bar, lines
        self._began = self._said = time.monotonic()
        self._bytes = self._finished = 0

    def advance(self, n_bytes: int) -> None:
        """Count bytes of input as done; a number below 0 takes back what must be done again."""
        self._bytes += n_bytes
        if self._bar is not None:
            self._bar.update(n_bytes)
        elif self._lines and time.monotonic() - self._said >= _EVERY:
            self._said = time.monotonic()
            print(self, file=sys.stderr, flush=True)

    def finish_shard(self) -> None:
        """Count a shard as done."""
        self._finished += 1
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._finished}/{self._shards} shards")

    def __str__(self) -> str:
        seconds = time.monotonic() - self._began
        rate = self._bytes / seconds if seconds else 0.0
        left = duration((self._total - self._bytes) / rate) if rate else "unknown time"
        share = f"{self._bytes / self._total:.0%}" if self._total else "100%"
        return (
            f"{self._what}: {size(self._bytes)} of {size(self._total)} ({share}), "
            f"{self._finished} of {self._shards} shards, {size(rate)}/s, {left} left"
        )


@contextlib.contextmanager
def show_progress(what: str, total: int, shards: int, verbose: bool) -> Iterator[Progress]:
    """Show progress on stderr: by tqdm, if that is a terminal and tqdm is there, else in lines."""
    tqdm = bar_class() if verbose else None
    if tqdm is None:
        yield Progress(what, total, shards, None, verbose and sys.stderr is not None)
        return
    with tqdm(
        desc=what, unit="B", total=total, unit_scale=True, file=sys.stderr, dynamic_ncols=True
    ) as bar:
        yield Progress(what, total, shards, bar, False)
