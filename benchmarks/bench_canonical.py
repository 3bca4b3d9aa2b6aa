"""The cost of checking whether ids are those that `encode` gives for their text.

python benchmarks/bench_canonical.py --megabytes 10

It is compared with the shortest expression for text without control tokens, which keeps all of the
text and its ids.  Memory is the peak of what Python allocates.
"""

from __future__ import annotations

import argparse
import statistics
import tracemalloc
from collections.abc import Callable
from typing import Any

from common import END_OF_TEXT, Table, add_options, corpora, finish, interleaved, median_ratio
from libraries import vocabularies

from bpe_tokenizer import BPETokenizer

OURS, AGAIN = "first_noncanonical(ids)", "encode(decode(ids)) == ids"


def peak(call: Callable[[Any], Any], ids: list[int]) -> float:
    """Return the most megabytes that a call has allocated at once."""
    tracemalloc.start()
    try:
        call(ids)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def measure(tokenizer: BPETokenizer, name: str, text: str, repeat: int) -> Table:
    """Time both ways on the ids of a text."""
    ids = tokenizer.encode(text)
    ways: dict[str, Callable[[Any], Any]] = {
        OURS: lambda given: tokenizer.first_noncanonical(given) is None,
        AGAIN: lambda given: tokenizer.encode(tokenizer.decode(given)) == given,
    }
    if not all(call(ids) for call in ways.values()):
        raise SystemExit(f"{name}: ids that encode gives are reported as not canonical")
    seconds = interleaved(ways, [ids] * repeat)
    rows = [
        {
            "way": way,
            "cpu ms": statistics.median(found) * 1e3,
            "x again": 1 / median_ratio(seconds[AGAIN], found),
            "million ids/s": len(ids) / statistics.median(found) / 1e6,
            "peak MB": peak(ways[way], ids),
        }
        for way, found in seconds.items()
    ]
    title = f"{name}, {len(text.encode()) / 1e6:.1f} MB, {len(ids):,} ids"
    return {"about": ["canonical"], "title": title, "rows": rows}


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--megabytes", type=float, default=10, metavar="N")
    parser.add_argument("--repeat", type=int, default=9, metavar="N")
    options = parser.parse_args()
    found = corpora(options.corpus, options.megabytes)
    vocabulary = vocabularies(["o200k_base"], next(iter(found.values())))[0]
    tokenizer = BPETokenizer.from_file(vocabulary.path)
    tables = [
        measure(tokenizer, name, END_OF_TEXT.join(documents), options.repeat)
        for name, documents in found.items()
    ]
    finish("canonical", tables, options.json)


if __name__ == "__main__":
    main()
