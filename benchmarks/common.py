"""What the benchmarks share: texts, fair timing, facts about the machine, tables.

Import it first, so that the libraries it is compared with use one thread, as this one does.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["TIKTOKEN_CACHE_DIR"] = ""  # tiktoken reads the file it is given, not a copy

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

# An installed package is measured as it is.  A bare checkout is measured in place, with the
# extension from the folder that accelerator/tools/build.py filled.
if os.environ.get("BPE_TOKENIZER_ACCELERATOR_DIR"):
    sys.path.insert(0, os.environ["BPE_TOKENIZER_ACCELERATOR_DIR"])
if importlib.util.find_spec("bpe_tokenizer") is None:
    sys.path.insert(0, str(ROOT))

import elsewhere  # noqa: E402

import bpe_tokenizer  # noqa: E402 - only now can it be found

Table = dict[str, Any]
Row = dict[str, Any]

END_OF_TEXT = "<|endoftext|>"
PACKAGES = (
    *("regex", "tiktoken", "tokenizers", "fastokens", "gigatoken", "rustbpe", "sentencepiece"),
    *("transformers", "numpy"),
)
SLICES = 9


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every benchmark has."""
    parser.add_argument(
        "--corpus",
        nargs="+",
        type=Path,
        metavar="FILE",
        help=f"UTF-8 text files, documents separated by {END_OF_TEXT} "
        "(default: those in ../shared/corpora, else Python's own sources)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def is_installed(package: str) -> bool:
    """Return whether a library is installed; others are left out."""
    return importlib.util.find_spec(package) is not None


# -- Texts --------------------------------------------------------------------


def corpora(files: Sequence[Path] | None, megabytes: float) -> dict[str, list[str]]:
    """Return the first documents of 2 to 10 KB of each corpus, up to a size, by its name."""
    files = files or shared_texts()
    if not files:
        return {"python": take(python_sources(), megabytes)}
    found = {}
    for file in files:
        with file.open(encoding="utf-8", newline="") as stream:
            text = stream.read(int(megabytes * 2e6))
        found[file.stem] = take(text.split(END_OF_TEXT), megabytes)
    return found


def shared_texts() -> list[Path]:
    """Return the texts beside the repository, English first."""
    found = (SHARED / "corpora").glob("*.txt")
    return sorted(found, key=lambda path: (path.stem != "english", path.stem))


def python_sources() -> list[str]:
    """Return the sources of the standard library, which every machine has."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("**/*.py"))
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in paths[:800])
    return [text[at : at + 5000] for text in texts for at in range(0, len(text), 5000)]


def take(documents: Sequence[str], megabytes: float) -> list[str]:
    """Return the first documents of 2 to 10 KB, up to a size."""
    taken, size = [], 0
    for document in documents:
        length = len(document.encode())
        if 2000 <= length <= 10_000:
            taken.append(document)
            size += length
            if size >= megabytes * 1e6:
                break
    return taken


def megabytes_of(documents: Sequence[str]) -> float:
    """Return the size of documents in millions of UTF-8 bytes."""
    return sum(len(document.encode()) for document in documents) / 1e6


def part(documents: Sequence[str], megabytes: float) -> tuple[list[str], list[str]]:
    """Part documents into those to warm up on and those to measure."""
    size, at = 0.0, 0
    while at < len(documents) // 2 and size < megabytes * 1e6:
        size += len(documents[at].encode())
        at += 1
    return list(documents[:at]), list(documents[at:])


def fresh(texts: Sequence[str]) -> list[str]:
    """Copy texts: CPython keeps a string's UTF-8 after its first use."""
    return [text.encode().decode() for text in texts]


# -- Timing -------------------------------------------------------------------


def for_each(run: Callable[[Any], Any], items: Iterable[Any]) -> None:
    """Call a function with each item."""
    for item in items:
        run(item)


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep the garbage collector from running while something is measured."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def timed(run: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    """Time a call, by default in the CPU time of this process."""
    started = clock()
    run()
    return clock() - started


def interleaved(
    rows: Mapping[str, Callable[[Any], Any]],
    slices: Sequence[Any],
    prepare: Callable[[Any], Any] = lambda part: part,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Time each row on each slice, in turn, so that a slow moment hits all of them.

    Args:
        rows: name -> a function of a slice.  One with a method `seconds` runs in another process
            and measures its own CPU time.
        slices: the inputs to measure.
        prepare: turns a slice into a row's input; not timed.
        clock: process CPU time, threads included, or wall time.

    Returns:
        row -> seconds, one number per slice.
    """
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    order = list(rows)
    with no_garbage_collection():
        for piece in slices:
            random.shuffle(order)  # another order each time, so that no row always follows another
            for name in order:
                seconds[name].append(seconds_of(rows[name], prepare(piece), clock))
    return seconds


def seconds_of(run: Callable[[Any], Any], given: Any, clock: Callable[[], float]) -> float:
    """Time a row on a slice, or let it time itself."""
    own: Callable[[Any], float] | None = getattr(run, "seconds", None)
    return own(given) if own else timed(lambda: run(given), clock)


def median_ratio(reference: Sequence[float], seconds: Sequence[float]) -> float:
    """Return how many times as fast as the reference: the median over slices."""
    return statistics.median(a / b for a, b in zip(reference, seconds))


# -- Facts and tables ---------------------------------------------------------


def facts() -> dict[str, str]:
    """Return what was measured, and on which machine."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES if is_installed(name)}
    if elsewhere.version_of_tokenizers_1():
        versions["tokenizers 1"] = str(elsewhere.version_of_tokenizers_1())
    return {
        "bpe_tokenizer": f"{bpe_tokenizer.__version__}, commit {commit()}, "
        + ("accelerated" if bpe_tokenizer.ACCELERATED else "Python engine only"),
        **versions,
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "memory": memory(),
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "date": time.strftime("%Y-%m-%d"),
    }


def processor() -> str:
    """Return the processor's name, if the system has it."""
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def memory() -> str:
    """Return the size of the machine's memory, if the system has it."""
    names = ("SC_PAGE_SIZE", "SC_PHYS_PAGES")
    if not all(name in getattr(os, "sysconf_names", ()) for name in names):
        return "unknown"
    size, pages = map(os.sysconf, names)
    return f"{size * pages / 1e9:.0f} GB"


def commit() -> str:
    """Return the measured commit, marked if files have changed since."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    return done.stdout.strip() or "unknown"


def shown(value: object) -> str:
    """Format a number for people, with three digits."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_table(table: Table) -> None:
    """Print a table for people, numbers to the right."""
    header = list(dict.fromkeys(name for row in table["rows"] for name in row))
    cells = [[shown(row.get(name)) for name in header] for row in table["rows"]]
    widths = [max(map(len, column)) for column in zip(header, *cells)]
    left = [isinstance(table["rows"][0].get(name), str) for name in header]
    print(f"\n{table['title']}")
    for row in (header, ["-" * width for width in widths], *cells):
        padded = (c.ljust(w) if at_left else c.rjust(w) for c, w, at_left in zip(row, widths, left))
        print("  ".join(padded).rstrip())
    if table.get("note"):
        print(table["note"])


def finish(name: str, tables: Sequence[Table], as_json: bool) -> None:
    """Print the tables, with facts about the machine."""
    if as_json:
        print(json.dumps({"benchmark": name, "facts": facts(), "tables": tables}, indent=2))
        return
    for table in tables:
        print_table(table)
    print()
    for key, value in facts().items():
        print(f"{key:<13} {value}")
