"""A function mapped over a stream of items by several processes, in bounded memory."""

from __future__ import annotations

import functools
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any


def mapped_by(num_workers: int) -> Callable[..., Iterator[Any]]:
    """Return a `map` that works in processes and keeps the order of the items.

    >>> list(mapped_by(2)(len, ["a", "bc"]))
    [1, 2]
    """
    return functools.partial(_mapped, num_workers)


def _mapped(
    num_workers: int, function: Callable[[Any], Any], items: Iterable[Any]
) -> Iterator[Any]:
    # Workers ignore Ctrl-C: this process gets it too, and ends them.
    pool = ProcessPoolExecutor(
        min(num_workers, 61),  # Windows takes no more
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    running: deque[Future[Any]] = deque()
    try:
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) > 2 * num_workers:  # so that memory stays bounded
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    except BrokenProcessPool:
        raise RuntimeError(
            "a process that counts pre-tokens ended: it was killed, or could not start because "
            "the calling script has no `if __name__ == '__main__':` around its work; "
            "num_workers=1 counts in this process"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
