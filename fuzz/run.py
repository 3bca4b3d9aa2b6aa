"""Give readers changed files, and look for what must not be: other errors, losses, long waits.

    python fuzz/run.py [READER ...] [--mutations N | --seconds N] [--seed S]
    python fuzz/run.py READER --atheris [FLAGS OF LIBFUZZER]

A seed and a number give the same file each time: --only 17 tries the 17th alone.  What fails is
printed, and the folder with it is kept.  With --atheris (`pip install atheris`), mutations are led
by the code that they reach.

An input may take a second of the processor and 200 MB.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import importlib
import itertools
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[1])]

SECONDS, MEGABYTES = 1.0, 200
HUNG = 60  # seconds, after which the process ends and the folder tells why


class _TooLongError(BaseException):
    """An input takes too long.  Not an Exception, so that no reader catches it."""


def _peak() -> int:
    """Return the largest memory so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def changed(readers: Any, name: str, seed: int, number: int) -> dict[str, bytes]:
    """Return a folder in which one file is changed, by a seed and a number."""
    rng = random.Random(f"{seed} {name} {number}")
    reader = readers.READERS[name]
    files = dict(rng.choice(_made(reader.seeds)))
    ends = [(path, end) for path in sorted(files) for end in reader.files if path.endswith(end)]
    path, end = rng.choice(ends)
    for _ in range(rng.choice([1, 1, 1, 2])):
        files[path] = reader.files[end](rng, files[path])
    return files


@functools.cache
def _made(seeds: Any) -> Any:
    """Make the seeds of a reader, once."""
    return seeds()


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder that has these files and no others."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def attempt(readers: Any, name: str, folder: Path) -> tuple[str, str]:
    """Read a folder; return what came of it, and what was wrong with that."""

    def late(*_: Any) -> None:
        raise _TooLongError

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, 5)
    faulthandler.dump_traceback_later(HUNG, exit=True)
    before, started = _peak(), time.process_time()
    problem, outcome = "", "read"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            readers.READERS[name].read(folder)
    except readers.ERRORS:
        outcome = "refused"
    except KeyboardInterrupt:
        raise
    except BaseException:  # whatever it is, it is a finding
        problem = traceback.format_exc(limit=-6)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
    took, more = time.process_time() - started, _peak() - before
    if not problem and took > SECONDS:
        problem = f"it took {took:.1f} s"
    elif not problem and more > MEGABYTES:
        problem = f"it took {more} MB"
    return outcome, problem


def fuzz(
    readers: Any, name: str, seed: int, numbers: Any, until: float, found: Path
) -> Counter[str]:
    """Try changed files until the time is over; print and keep those that fail."""
    outcomes: Counter[str] = Counter()
    known: set[str] = set()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "in"
        for seeds in _made(readers.READERS[name].seeds):  # they are good
            write(folder, seeds)
            assert attempt(readers, name, folder) == ("read", "")
        for number in numbers:
            if time.monotonic() > until:
                break
            write(folder, changed(readers, name, seed, number))
            outcome, problem = attempt(readers, name, folder)
            if problem and not problem.startswith("Traceback"):
                outcome, problem = attempt(readers, name, folder)  # a busy machine, or not
            outcomes["found" if problem else outcome] += 1
            # The same place in the code is the same finding.
            where = "|".join(line for line in problem.splitlines() if line.startswith("  File"))
            if problem and (where or problem[:12]) not in known:
                known.add(where or problem[:12])
                kept = found / f"{name.replace(' ', '-')}-{seed}-{number}"
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                print(f"{name}, --seed {seed} --only {number}, {kept}:\n{problem}", flush=True)
    return outcomes


def with_atheris(readers_of: Any, name: str, flags: list[str]) -> None:
    """Let atheris choose the mutations."""
    atheris: Any = importlib.import_module("atheris")

    with atheris.instrument_imports(include=["bpe_tokenizer", "bpe_tokenizer_tools"]):
        readers = readers_of()
    reader = readers.READERS[name]
    seeds = reader.seeds()
    end = next(iter(reader.files))
    path = next(path for path in seeds[0] if path.endswith(end))
    place = Path(tempfile.mkdtemp())

    def one(data: bytes) -> None:
        write(place / "in", {**seeds[0], path: data})
        _, problem = attempt(readers, name, place / "in")
        if problem:
            raise RuntimeError(problem)

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if not data or data == b"\n":
            data = seeds[seed % len(seeds)].get(path, b"")
        made: bytes = reader.files[end](rng, data)
        return made[:most]

    corpus = tempfile.mkdtemp()
    for i, seed in enumerate(seeds):
        (Path(corpus) / str(i)).write_bytes(seed.get(path, b""))
    atheris.Setup([sys.argv[0], corpus, "-max_len=100000", *flags], one, custom_mutator=mutated)
    atheris.Fuzz()


def main() -> int:
    """Fuzz all readers, or those that are named."""
    parser = argparse.ArgumentParser(description="Give readers changed files.")
    parser.add_argument("readers", nargs="*", help="which (default: all)")
    parser.add_argument("--mutations", type=int, default=0, help="how many for each reader")
    parser.add_argument("--seconds", type=float, default=60, help="how long in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one mutation")
    parser.add_argument("--atheris", action="store_true")
    options, flags = parser.parse_known_args()
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()

    def load() -> Any:
        import readers

        return readers

    if options.atheris:
        with_atheris(load, options.readers[0], flags)
        return 0
    if flags:
        parser.error(f"unknown: {' '.join(flags)}")
    readers = load()
    names = options.readers or [*readers.READERS]
    if unknown := set(names) - {*readers.READERS}:
        parser.error(f"no reader {', '.join(unknown)}; there are {', '.join(readers.READERS)}")
    numbers: Any = range(options.mutations) if options.mutations else itertools.count()
    if options.only is not None:
        numbers = [options.only]
    found = Path(tempfile.mkdtemp(prefix="found-"))
    total: Counter[str] = Counter()
    for name in names:
        share = float("inf") if options.mutations else options.seconds / len(names)
        outcomes = fuzz(readers, name, options.seed, numbers, time.monotonic() + share, found)
        print(f"{name:18}" + ", ".join(f"{n:,} {kind}" for kind, n in sorted(outcomes.items())))
        sys.stdout.flush()
        total += outcomes
    print(f"{sum(total.values()):,} files, seed {options.seed}: {total['found']:,} findings")
    return 1 if total["found"] else 0


if __name__ == "__main__":
    sys.exit(main())
