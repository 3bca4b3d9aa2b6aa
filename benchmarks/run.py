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

# Part -> its script, the script's options, and those with --quick.
PARTS: dict[str, tuple[str, list[Any], list[Any]]] = {
    "encode": (
        "bench_encode.py",
        ["--vocab", *EVERY, "--megabytes", 6],
        ["--vocab", "cl100k_base", "--megabytes", 0.5, "--worst-megabytes", 0.1],
    ),
    "roads": (
        "bench_roads.py",
        ["--vocab", "o200k_base", "qwen3", "--megabytes", 1],
        ["--vocab", "o200k_base", "--megabytes", 0.1],
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
    "components": ("bench_components.py", ["--megabytes", 2], ["--megabytes", 0.2]),
    "patterns": ("bench_patterns.py", ["--megabytes", 1], ["--megabytes", 0.1]),
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
    """Run a script in its own process, so that no benchmark inherits another's memory."""
    script, full, quick = PARTS[name]
    corpus = ["--corpus", *map(str, options.corpus)] if options.corpus else []
    chosen = quick if options.quick else scaled(full, options.scale)
    command = [str(HERE / script), "--json", *map(str, chosen), *corpus]
    started = time.perf_counter()
    print(f"{name} ...", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, *command], stdout=subprocess.PIPE, encoding="utf-8", check=True
    )
    print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def scaled(arguments: list[Any], scale: float) -> list[Any]:
    """Multiply the megabytes of a script's options."""
    before = [None, *arguments]
    return [
        round(value * scale, 3) if option == "--megabytes" else value
        for option, value in zip(before, arguments)
    ]


def join(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Join several results; if their facts differ, list all of them."""
    facts: dict[str, list[str]] = {}
    for part in parts:
        for name, value in part["facts"].items():
            if value not in facts.setdefault(name, []):
                facts[name].append(value)
    return {
        "facts": {name: "; ".join(values) for name, values in facts.items()},
        "tables": [table for part in parts for table in part["tables"]],
    }


def build_parser() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_options(parser)
    parser.add_argument("--quick", action="store_true", help="less text: is everything in order?")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="multiply the megabytes of each part, 0.3 for a third of the time (default: 1)",
    )
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
        dest="sources",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="take what earlier runs printed with --json, instead of measuring",
    )
    return parser


def main() -> None:
    """Measure, print, write."""
    options = build_parser().parse_args()
    if options.sources:
        parts = [json.loads(source.read_text(encoding="utf-8")) for source in options.sources]
    else:
        parts = [run_part(name, options) for name in options.only or PARTS]
    result = join(parts)
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
