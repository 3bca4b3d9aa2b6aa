"""The cost of a sweep over vocabulary sizes, compared with one training and with one per size.

python benchmarks/bench_sweep.py --corpus big.txt --sizes 16000 32000 64000 128000 256000

Every fiftieth document is held out.  Each way runs in its own process, which is this script with
--way, so its memory can be measured, too.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common import (
    END_OF_TEXT,
    Table,
    add_options,
    finish,
    median_ratio,
    python_sources,
    shared_texts,
)

from bpe_tokenizer import BPETokenizer, count_pretokens
from bpe_tokenizer_tools.evaluation.sweep import sweep

PATTERN = "cl100k"
SIZES = [16_000, 24_000, 32_000, 48_000, 64_000, 96_000, 128_000, 256_000]
EVERY = 50  # document is held out

# -- The ways, each in its own process ------------------------------------------


def one_training(training: Path, held_out: Path, sizes: Sequence[int]) -> list[int]:
    """Train to the largest size, and measure that alone."""
    tokenizer = BPETokenizer(PATTERN)
    tokenizer.train([training], sizes[-1], special_tokens=[END_OF_TEXT], verbose=False)
    return [count(tokenizer, held_out)]


def one_sweep(training: Path, held_out: Path, sizes: Sequence[int]) -> list[int]:
    """Measure all sizes as the command does."""
    options: Any = {"split_pattern": PATTERN, "special_tokens": [END_OF_TEXT]}
    result = sweep([training], [held_out], sizes, **options)
    return [point.tokens for point in result.points]


def a_training_each(training: Path, held_out: Path, sizes: Sequence[int]) -> list[int]:
    """Train to every size, and encode with each."""
    return [one_training(training, held_out, [size])[0] for size in sizes]


def trainings_counted_once(training: Path, held_out: Path, sizes: Sequence[int]) -> list[int]:
    """Do the same, but read and count the corpus only once."""
    counts = count_pretokens([training], PATTERN, special_tokens=[END_OF_TEXT])
    found = []
    for size in sizes:
        tokenizer = BPETokenizer(PATTERN)
        special = [END_OF_TEXT]
        tokenizer.train(counts=counts, vocab_size=size, special_tokens=special, verbose=False)
        found.append(count(tokenizer, held_out))
    return found


def count(tokenizer: BPETokenizer, path: Path) -> int:
    """Count the tokens of a text, without those between documents."""
    documents = path.read_text(encoding="utf-8").split(END_OF_TEXT)
    return sum(map(len, tokenizer.encode_ordinary_batch(documents)))


WAYS: dict[str, Callable[[Path, Path, Sequence[int]], list[int]]] = {
    "one training, to the largest size": one_training,
    "sweep": one_sweep,
    "a training for each size": a_training_each,
    "the same, counting once": trainings_counted_once,
}


def run_way(name: str, training: Path, held_out: Path, sizes: Sequence[int]) -> dict[str, Any]:
    """Run one way; return its time and memory."""
    start = time.perf_counter(), time.process_time()
    tokens = WAYS[name](training, held_out, sizes)
    wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
    status = Path("/proc/self/status")  # getrusage may return the parent's peak
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    peak = int(found[1]) / 1000 if found else None
    return {"tokens": tokens, "wall": wall, "cpu": cpu, "peak": peak}


# -- All of them ----------------------------------------------------------------


def divide(files: Sequence[Path], folder: Path) -> tuple[Path, Path]:
    """Write the documents to train on and those held out to files."""
    documents = [
        document
        for file in files
        for document in file.read_text(encoding="utf-8").split(END_OF_TEXT)
    ]
    if not files:
        documents = python_sources()
    paths = folder / "training.txt", folder / "held_out.txt"
    for path, chosen in zip(paths, (1, 0)):
        kept = [text for i, text in enumerate(documents) if bool(i % EVERY) == bool(chosen)]
        path.write_text(END_OF_TEXT.join(kept), encoding="utf-8", newline="")
    return paths


def collect(options: argparse.Namespace) -> list[Table]:
    """Run the ways in turn."""
    files = options.corpus or shared_texts()
    sizes = sorted(options.sizes)
    with tempfile.TemporaryDirectory() as scratch:
        paths = divide(files, Path(scratch))
        megabytes = paths[0].stat().st_size / 1e6
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in WAYS}
        for _ in range(options.repeat):
            for name in WAYS:
                runs[name].append(in_a_process(name, paths, sizes))
    swept = runs["sweep"][0]["tokens"]
    if swept != runs["a training for each size"][0]["tokens"]:
        raise SystemExit("the sweep's token counts differ from those of separate trainings")
    reference = [run["cpu"] for run in runs["one training, to the largest size"]]
    rows = [
        {
            "way": name,
            **{
                f"{what} s": statistics.median(run[what] for run in found)
                for what in ("cpu", "wall")
            },
            "x one training": 1 / median_ratio(reference, [run["cpu"] for run in found]),
            "peak MB": found[0]["peak"],
        }
        for name, found in runs.items()
    ]
    shown = ", ".join(f"{size:,}" for size in sizes)
    title = f"{len(sizes)} vocabulary sizes ({shown}) from {megabytes:.1f} MB"
    return [{"about": ["sweep"], "title": title, "rows": rows}]


def in_a_process(name: str, paths: Sequence[Path], sizes: Sequence[int]) -> dict[str, Any]:
    """Run a way in its own process."""
    command = [sys.executable, __file__, "--way", name, *map(str, paths), "--sizes"]
    done = subprocess.run([*command, *map(str, sizes)], check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="N")
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    parser.add_argument("--way", nargs=3, metavar=("NAME", "TRAINING", "HELD_OUT"))
    options = parser.parse_args()
    if options.way:
        name, training, held_out = options.way
        print(json.dumps(run_way(name, Path(training), Path(held_out), sorted(options.sizes))))
        return
    finish("sweep", collect(options), options.json)


if __name__ == "__main__":
    main()
