"""Two threads compared with one: batches of documents, in wall time.

python benchmarks/bench_threads.py
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

# Two of the machine's processors for every library; some use as many as there are.
os.environ["RAYON_NUM_THREADS"] = "2"
os.environ["TOKENIZERS_PARALLELISM"] = "true"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])

from common import (
    Table,
    add_options,
    corpora,
    finish,
    fresh,
    interleaved,
    is_installed,
    median_ratio,
    megabytes_of,
    part,
)
from libraries import (
    PUBLISHED,
    Vocabulary,
    fastokens,
    gigatoken,
    ours,
    tiktoken,
    vocabularies,
)

WARM_UP = 2.0
Batch = Callable[[list[str]], list[list[int]]]


def tiktoken_batch(vocabulary: Vocabulary, threads: int) -> Batch:
    """Return tiktoken's, on its threads."""
    encoding = tiktoken(vocabulary)
    return lambda texts: encoding.encode_ordinary_batch(texts, num_threads=threads)


def our_batch(vocabulary: Vocabulary, threads: int) -> Batch:
    """Return this library's."""
    tokenizer = ours(vocabulary)
    return lambda texts: tokenizer.encode_ordinary_batch(texts, num_threads=threads)


def gigatoken_batch(vocabulary: Vocabulary, threads: int) -> Batch:
    """Return gigatoken's, on its pool of threads or on this one."""
    tokenizer = gigatoken(vocabulary)
    return lambda texts: tokenizer.encode_batch_list(texts, parallel=threads > 1)


def fastokens_batch(vocabulary: Vocabulary, threads: int) -> Batch:
    """Return fastokens', on its pool of threads, or one text after the other on this one."""
    tokenizer = fastokens(vocabulary)
    if threads > 1:
        return lambda texts: [found.ids for found in tokenizer.encode_batch(texts)]
    return lambda texts: [tokenizer.encode_ordinary(text).ids for text in texts]


LIBRARIES: dict[str, Callable[[Vocabulary, int], Batch]] = {
    "tiktoken": tiktoken_batch,
    "bpe_tokenizer": our_batch,
    "fastokens": fastokens_batch,
    "gigatoken": gigatoken_batch,
}


def batches_of(documents: Sequence[str], megabytes: float) -> list[list[str]]:
    """Cut documents into batches of a size."""
    n_batches = max(1, round(megabytes_of(documents) / megabytes))
    return [list(documents[i::n_batches]) for i in range(n_batches)]


def measure(vocabulary: Vocabulary, name: str, documents: Sequence[str], batch: float) -> Table:
    """Compare one thread with two, and the libraries with each other, on unseen documents."""
    reference = tiktoken(vocabulary)
    ids = [reference.encode_ordinary(text) for text in documents]
    libraries = {n: make for n, make in LIBRARIES.items() if is_installed(n)}
    warm, measured = part(documents, WARM_UP)
    runs: dict[str, Batch] = {}
    for library, make in libraries.items():
        for threads in (1, 2):
            if make(vocabulary, threads)(list(documents)) != ids:
                raise SystemExit(f"{library}, {threads} threads, {vocabulary.name}: not equal")
            runs[f"{library} {threads}"] = make(vocabulary, threads)
    for texts in batches_of(warm, 1.0):
        for run in runs.values():
            run(texts)
    seconds = interleaved(runs, batches_of(measured, batch), fresh, time.perf_counter)
    size = megabytes_of(measured)

    def row(library: str) -> dict[str, Any]:
        one, two = (seconds[f"{library} {threads}"] for threads in (1, 2))
        return {
            "library": library,
            "one thread, MB/s": size / sum(one),
            "two threads, MB/s": size / sum(two),
            "two / one": median_ratio(one, two),
            "two, x tiktoken's two": median_ratio(seconds["tiktoken 2"], two),
        }

    return {
        "about": ["threads", vocabulary.name, name, f"{batch:g} MB"],
        "title": f"encode batches of {batch:g} MB, {vocabulary.name}, {name}: {size:.1f} MB of "
        "unseen documents, to lists; wall time",
        "rows": [row(library) for library in libraries],
    }


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure each vocabulary on each corpus."""
    texts = corpora(options.corpus, WARM_UP + options.megabytes)
    chosen = vocabularies(options.vocab, next(iter(texts.values())))
    return [
        measure(vocabulary, name, documents, batch)
        for vocabulary in chosen
        for batch in options.batch
        for name, documents in texts.items()
    ]


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument(
        "--vocab", nargs="+", default=["cl100k_base"], help=f"of {', '.join(PUBLISHED)}"
    )
    sizes = "megabytes of each batch; several give a table each"
    parser.add_argument("--batch", nargs="+", type=float, default=[1.0], help=sizes)
    parser.add_argument("--megabytes", type=float, default=6.0, help="to measure, per corpus")
    return parser


if __name__ == "__main__":
    chosen_options = build_parser().parse_args()
    finish("threads", collect(chosen_options), chosen_options.json)
