"""Progress bars for people who wait at a terminal."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def bar(what: str, unit: str, total: int | None) -> Iterator[Callable[[int], Any]]:
    """Show a tqdm bar on stderr, if that is a terminal and tqdm is installed; else nothing.

    What it yields advances the bar by an amount.
    """
    tqdm = None
    if sys.stderr is not None and sys.stderr.isatty():
        with contextlib.suppress(ImportError):
            tqdm = importlib.import_module("tqdm").tqdm
    if tqdm is None:
        yield lambda amount: None
        return
    with tqdm(desc=what, unit=unit, total=total, unit_scale=True, file=sys.stderr) as shown:
        yield shown.update
