"""Run every benchmark, print the tables, and on request write RESULTS.md and its charts.

python benchmarks/run.py [--quick] [--json] [--write [FOLDER]] [--only PART...] [--corpus FILE...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common
import report

HERE = Path(__file__).resolve().parent
EVERY = ["cl100k_base", "o200k_base", "r50k_base", "qwen3"]

# Part -> its script, and the script's options; then those of --quick.
PARTS: dict[str, tuple[str, list[Any], list[Any]]] = {
    "encode": (
        "bench_encode.py",
        ["--vocab", *EVERY, "--megabytes", 6],
        ["--vocab", "cl100k_base", "--megabytes", 0.5, "--worst-megabytes", 0.1],
    ),
    "threads": (
        "bench_threads.py",
        ["--vocab", "cl100k_base", "o200k_base", "--megabytes", 6],
        ["--vocab", "cl100k_base", "--megabytes", 1],
    ),
    "decode": (
        "bench_decode.py",
        ["--vocab", "cl100k_base", "o200k_base", "--megabytes", 4],
        ["--vocab", "cl100k_base", "--megabytes", 0.5],
    ),
    "load": (
        "bench_load.py",
        ["--vocab", "o200k_base", "cl100k_base", "--repeat", 7],
        ["--vocab", "cl100k_base", "--repeat", 1],
    ),
    "train": (
        "bench_train.py",
        ["--megabytes", 128, "--vocab-size", 32_000],
        ["--megabytes", 2, "--vocab-size", 2_000],
    ),
}


def run_part(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a script in a process of its own, so that no benchmark inherits another's memory."""
    script, full, quick = PARTS[name]
    corpus = ["--corpus", *map(str, options.corpus)] if options.corpus else []
    command = [str(HERE / script), "--json", *map(str, quick if options.quick else full), *corpus]
    started = time.perf_counter()
    print(f"{name} ...", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, *command], stdout=subprocess.PIPE, encoding="utf-8", check=True
    )
    print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the parts asked for; return their tables and the facts of the machine."""
    parts = [run_part(name, options) for name in options.only or PARTS]
    return {
        "facts": parts[0]["facts"],
        "tables": [table for part in parts for table in part["tables"]],
    }


def build_parser() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_options(parser)
    parser.add_argument("--quick", action="store_true", help="less text: is everything in order?")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}"
    )
    parser.add_argument(
        "--write",
        nargs="?",
        type=Path,
        const=HERE,
        metavar="FOLDER",
        help="write RESULTS.md and charts, by default beside this script",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="take what an earlier run printed with --json, instead of measuring",
    )
    return parser


def main() -> None:
    """Measure, print, write."""
    options = build_parser().parse_args()
    if options.source:
        result = json.loads(options.source.read_text(encoding="utf-8"))
    else:
        result = measure(options)
    if options.write:
        report.write(result, options.write)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for table in result["tables"]:
        common.print_table(table)
    print()
    for key, value in result["facts"].items():
        print(f"{key:<13} {value}")


if __name__ == "__main__":
    main()
