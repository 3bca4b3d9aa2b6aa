"""What learning superwords costs, beside ordinary BPE, in time and memory, and what it is worth.

python benchmarks/bench_superwords.py --megabytes 1000 --rules superbpe

Each training has a process of its own, which is this script with --rule.  The corpus is written to
a file first; its last hundredth is held out, to measure bytes per token on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_train import memory
from common import END_OF_TEXT, Table, add_options, finish
from corpus import training_documents

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.training.superwords import Superwords

RULES = ("bpe", "superbpe", "boundless", "auto")


def train_one(options: argparse.Namespace) -> dict[str, Any]:
    """Train by one rule; return what it took."""
    transition = round(options.vocab_size * options.transition)
    how = {
        "superbpe": Superwords(transition),
        "boundless": Superwords(transition, "boundless"),
        "auto": Superwords("auto", "boundless"),
    }.get(options.rule)
    folder, tokenizer = options.corpus[0], BPETokenizer(options.pattern)
    before, cpu, wall = memory(peak=False), time.process_time(), time.perf_counter()
    tokenizer.train(
        folder / "training.txt",
        options.vocab_size,
        special_tokens=[END_OF_TEXT],
        superwords=how,
        verbose=False,
    )
    found = {
        "CPU s": time.process_time() - cpu,
        "wall s": time.perf_counter() - wall,
        "peak MB": memory(peak=True),
        "of it before, MB": before,
    }
    held_out = (folder / "held_out.txt").read_text(encoding="utf-8")
    found["bytes per token"] = len(held_out.encode()) / tokenizer.count_tokens(held_out)
    return found


def measure(options: argparse.Namespace, folder: Path) -> Table:
    """Write the corpus, and train by each rule."""
    size, last = 0, options.megabytes * 1e6
    with (
        (folder / "training.txt").open("w", encoding="utf-8", newline="") as training,
        (folder / "held_out.txt").open("w", encoding="utf-8", newline="") as held_out,
    ):
        for document in training_documents(options.corpus, options.megabytes * 1.01):
            (training if size < last else held_out).write(document + END_OF_TEXT)
            size += len(document.encode())
    rows = []
    for rule in options.rules:
        print(f"training: {rule}", file=sys.stderr)
        named = {"rule": rule, "corpus": folder, "pattern": options.pattern}
        named |= {"vocab-size": options.vocab_size, "transition": options.transition}
        words = [str(word) for name, value in named.items() for word in (f"--{name}", value)]
        done = subprocess.run(
            [sys.executable, __file__, *words], stdout=subprocess.PIPE, encoding="utf-8", check=True
        )
        rows.append({"rule": rule, **json.loads(done.stdout.splitlines()[-1])})
    title = f"{options.megabytes:,.0f} MB, pattern {options.pattern}, {options.vocab_size:,} tokens"
    note = f"{options.transition:.0%} of the tokens are those of stage one, except with auto"
    return {"about": ["superwords"], "title": f"superwords, {title}", "rows": rows, "note": note}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--megabytes", type=float, default=100, metavar="N")
    parser.add_argument("--vocab-size", type=int, default=32_000, metavar="N")
    share = "the vocabulary of stage one, as a share of the whole"
    parser.add_argument("--transition", type=float, default=0.8, metavar="X", help=share)
    parser.add_argument("--pattern", default="o200k")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--rule", choices=RULES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rule:
        print(json.dumps(train_one(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        finish("superwords", [measure(options, Path(folder))], options.json)


if __name__ == "__main__":
    main()
