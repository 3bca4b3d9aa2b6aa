"""The cost of extending and pruning a vocabulary, compared with training a new one.

python benchmarks/bench_vocabularies.py --megabytes 100 --vocab o200k_base

All of them start from the same counts of pre-tokens; counting is a row of its own.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import END_OF_TEXT, Table, add_options, finish, interleaved, median_ratio
from corpus import training_documents
from libraries import scratch, vocabularies

from bpe_tokenizer import BPETokenizer, PretokenCounts, count_pretokens

ADD = 2_000
TRAINING = "train anew"


def check(counts: PretokenCounts) -> None:
    """Stop unless extending continues where training ended."""
    first, at_once = BPETokenizer(counts.split_pattern), BPETokenizer(counts.split_pattern)
    for tokenizer, size in ((first, 4_000), (at_once, 4_500)):
        tokenizer = tokenizer.train(
            counts=dict(counts), vocab_size=size, special_tokens=[], verbose=False
        )
    extended = first.extend(counts=dict(counts), add=500, verbose=False)
    if extended != at_once:
        raise SystemExit("extending gives other merges than training at once")


def measure(path: Path, vocabulary: Path, repeat: int) -> Table:
    """Time each way on the counts of a file."""
    old = BPETokenizer.from_file(vocabulary)
    special = [token.content for token in old.added_tokens]

    def count(_: Any) -> PretokenCounts:
        how: Any = {"normalizer": old.normalizer, "special_tokens": [*special, END_OF_TEXT]}
        return count_pretokens([path], old.split_pattern or "", **how)

    counts = count(None)
    check(counts)
    size = old.vocab_size

    def train(_: Any) -> None:
        tokenizer = BPETokenizer(counts.split_pattern, normalizer=counts.normalizer)
        tokenizer.train(counts=counts, vocab_size=size + ADD, verbose=False)

    rows: dict[str, Callable[[Any], Any]] = {
        "count the pre-tokens": count,
        TRAINING: train,
        f"extend by {ADD:,}": lambda _: old.extend(counts=counts, add=ADD, verbose=False),
        "prune a tenth": lambda _: prune(size * 9 // 10),
        "prune half": lambda _: prune(size // 2),
    }

    def prune(left: int) -> None:
        old.prune(counts=counts, vocab_size=left, verbose=False)

    seconds = interleaved(rows, range(repeat))
    reference = seconds[TRAINING]
    table = [
        {
            "way": name,
            "cpu s": statistics.median(found),
            "x training": 1 / median_ratio(reference, found),
        }
        for name, found in seconds.items()
    ]
    megabytes = path.stat().st_size / 1e6
    distinct = f"{len(counts):,} distinct pre-tokens"
    title = f"{vocabulary.stem}, {size:,} tokens; {megabytes:.1f} MB, {distinct}"
    return {"about": ["vocabularies"], "title": title, "rows": table}


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--megabytes", type=float, default=100, metavar="N")
    parser.add_argument("--vocab", nargs="+", default=["o200k_base"], metavar="NAME")
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    options = parser.parse_args()
    path = scratch() / "corpus.txt"
    documents = training_documents(options.corpus, options.megabytes)
    path.write_text(END_OF_TEXT.join(documents), encoding="utf-8", newline="")
    with path.open(encoding="utf-8", newline="") as file:
        some = file.read(1_000_000).split(END_OF_TEXT)
    chosen = vocabularies(options.vocab, some)
    finish(
        "vocabularies", [measure(path, each.path, options.repeat) for each in chosen], options.json
    )


if __name__ == "__main__":
    main()
