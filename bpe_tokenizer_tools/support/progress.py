"""Progress bars for people who wait, at a terminal or in a notebook."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus import directories

_NOT_PLAIN = (".jsonl", ".parquet")  # the size of these differs from the size of their text


def bar_class() -> Any:
    """Return the class of tqdm's bars; None if nobody would see one, or tqdm isn't installed."""
    if not core.is_watched(None):
        return None
    with contextlib.suppress(ImportError):
        return importlib.import_module("tqdm.auto").tqdm
    return None


@contextlib.contextmanager
def bar(what: str, unit: str, total: Any, shown: bool = True) -> Iterator[Callable[[int], Any]]:
    """Show a bar on stderr, if someone is watching and tqdm is installed.

    It yields a function that advances the bar by an amount.  `total` is a number, None if it isn't
    known, or a corpus whose bytes are counted.
    """
    tqdm = bar_class() if shown else None
    if tqdm is None:
        yield lambda amount: None
        return
    total = total if isinstance(total, int) else size_of(total)
    with tqdm(desc=what, unit=unit, total=total, unit_scale=True, file=sys.stderr) as made:
        yield made.update


def size_of(corpus: Any) -> int | None:
    """Return the size of a corpus in bytes; None if it isn't files of plain text."""
    items = corpus if isinstance(corpus, (list, tuple)) else [corpus]
    if not items or not all(map(core.names_file, items)):
        return None
    size = 0
    with contextlib.suppress(OSError, ValueError):
        for path in map(Path, items):
            inner = directories.text_files(path, noted=False) if path.is_dir() else [path]
            for file in inner:
                suffixes = core.suffix_of(file), file.suffix.lower()
                if suffixes[0] in _NOT_PLAIN or suffixes[1] in core.COMPRESSED:
                    return None
                size += os.path.getsize(file)
    return size or None


def print_above(line: str) -> None:
    """Print a line to stdout; at a terminal, above any progress bar."""
    if sys.stdout.isatty() and "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(line)
    else:
        print(line, flush=True)
