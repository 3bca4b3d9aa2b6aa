"""The cost of training with parity between languages, compared with ordinary training.

python benchmarks/bench_parity.py --megabytes 100

Each text is a language: English, code, 30 languages.  Both ways learn from the same counts, which
are made first.  Each way runs in its own process, which is this script with --way.  The merges of
both engines must be equal; digests of them are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from typing import Any

from bench_train import memory
from common import END_OF_TEXT, Table, add_options, finish, shared_texts
from corpus import training_documents

from bpe_tokenizer import BPETokenizer, PretokenCounts, count_pretokens

WAYS = {"BPE": {}, "parity": {}, "parity, in Python": {"BPE_TOKENIZER_PURE": "1"}}


def counted(options: argparse.Namespace) -> dict[str, PretokenCounts]:
    """Count each text."""
    files = options.corpus or shared_texts()
    each = options.megabytes / len(files)
    return {
        file.stem: count_pretokens(
            training_documents([file], each), options.pattern, special_tokens=[END_OF_TEXT]
        )
        for file in files
    }


def train_one(options: argparse.Namespace) -> dict[str, Any]:
    """Train one way; return its time and memory."""
    counts = counted(options)
    total = sum(counts.values(), PretokenCounts({}, next(iter(counts.values())).split_pattern))
    named: dict[str, Any] = {"counts": total} if options.way == "BPE" else {"parity": counts}
    before, cpu = memory(peak=True), time.process_time()
    made = BPETokenizer(options.pattern).train(
        vocab_size=options.vocab_size, verbose=False, **named
    )
    return {
        "pre-tokens": sum(map(len, counts.values())),
        "learning, CPU s": time.process_time() - cpu,
        "peak MB": memory(peak=True),
        "of it before, MB": before,
        "merges": hashlib.sha256(repr(made.merges).encode()).hexdigest()[:8],
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--megabytes", type=float, default=100, metavar="N")
    parser.add_argument("--vocab-size", type=int, default=32_000, metavar="N")
    parser.add_argument("--pattern", default="o200k")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(train_one(options)))
        return
    rows = []
    for way, variables in WAYS.items():
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--way", way],
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=True,
            env={**os.environ, **variables},
        )
        rows.append({"way": way, **json.loads(done.stdout.splitlines()[-1])})
    if rows[1]["merges"] != rows[2]["merges"]:
        raise SystemExit("the engines learn other merges")
    title = f"parity, {options.megabytes:,.0f} MB, pattern {options.pattern}"
    title += f", {options.vocab_size:,} tokens"
    table: Table = {"about": ["parity"], "title": title, "rows": rows}
    finish("parity", [table], options.json)


if __name__ == "__main__":
    main()
