"""Threads that call one tokenizer, or one each, against one thread, in wall time.

python benchmarks/bench_shared.py [--threads 2]

With Python's global lock, mostly one thread runs at a time: this is for builds without it.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from typing import Any

from common import (
    SLICES,
    Table,
    add_options,
    corpora,
    finish,
    fresh,
    interleaved,
    median_ratio,
    megabytes_of,
    part,
)
from libraries import PUBLISHED, Vocabulary, ours, vocabularies

from bpe_tokenizer import BPETokenizer

WARM_UP = 2.0
Given = tuple[list[str], list[list[int]]]  # texts and their ids
Call = Callable[[BPETokenizer, list[str], list[list[int]]], Any]
CALLS: dict[str, Call] = {
    "encode": lambda t, texts, ids: [t.encode(text) for text in texts],
    "count_tokens": lambda t, texts, ids: [t.count_tokens(text) for text in texts],
    "encode_batch": lambda t, texts, ids: t.encode_batch(texts).input_ids,
    "offsets": lambda t, texts, ids: t.encode_batch(texts).offsets,
    "decode": lambda t, texts, ids: [t.decode(each) for each in ids],
    "decode_batch": lambda t, texts, ids: t.decode_batch(ids, skip_padding=False),
}


def at_once(call: Call, tokenizers: list[BPETokenizer], given: Given) -> list[Any]:
    """Make the call in as many threads as there are tokenizers, each with its share."""
    texts, ids = given
    n = len(tokenizers)
    results: list[Any] = [None] * n

    def run(at: int) -> None:
        results[at] = call(tokenizers[at], texts[at::n], ids[at::n])

    others = [threading.Thread(target=run, args=(at,)) for at in range(1, n)]
    for thread in others:
        thread.start()
    run(0)
    for thread in others:
        thread.join()
    return results


def run_of(call: Call, tokenizers: list[BPETokenizer]) -> Callable[[Any], list[Any]]:
    """Return what makes the call with a slice, in a thread for each tokenizer."""
    return lambda given: at_once(call, tokenizers, given)


def runs_of(vocabulary: Vocabulary, call: Call, n: int) -> dict[str, Callable[[Any], list[Any]]]:
    """Return the rows: one thread; several with one object; several with an object each."""
    return {
        "one": run_of(call, [ours(vocabulary)]),
        "one object": run_of(call, [ours(vocabulary)] * n),
        "own objects": run_of(call, [ours(vocabulary) for _ in range(n)]),
    }


def measure(vocabulary: Vocabulary, name: str, documents: list[str], n: int) -> Table:
    """Compare one thread with several, on unseen documents."""
    warm, measured = part(documents, WARM_UP)
    reference = ours(vocabulary)
    known = {text: reference.encode(text) for text in documents}
    rows = []

    def given(texts: list[str]) -> Given:
        return fresh(texts), [list(known[text]) for text in texts]

    for what, call in CALLS.items():
        every = given(documents)
        expected = call(reference, *every)
        for results in (run(every) for run in runs_of(vocabulary, call, n).values()):
            if any(result != expected[at :: len(results)] for at, result in enumerate(results)):
                raise SystemExit(f"{what}, {len(results)} threads, {vocabulary.name}: not equal")
        runs = runs_of(vocabulary, call, n)
        for run in runs.values():
            run(given([text for text in warm for _ in range(n)]))  # all texts for each thread
        slices = [measured[at::SLICES] for at in range(SLICES)]
        seconds = interleaved(runs, slices, given, time.perf_counter)
        one = seconds["one"]
        rows.append(
            {
                "call": what,
                "one thread, MB/s": megabytes_of(measured) / sum(one),
                f"{n}, one object": median_ratio(one, seconds["one object"]),
                f"{n}, an object each": median_ratio(one, seconds["own objects"]),
            }
        )
    return {
        "about": ["shared", vocabulary.name, name, f"{n} threads"],
        "title": f"{n} threads, times as fast as one, {vocabulary.name}, {name}: "
        f"{megabytes_of(measured):.1f} MB of unseen documents; wall time",
        "rows": rows,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--megabytes", type=float, default=8.0, help="to measure, per corpus")
    parser.add_argument(
        "--vocab", nargs="+", default=["cl100k_base"], help=f"of {', '.join(PUBLISHED)}"
    )
    options = parser.parse_args()
    texts = corpora(options.corpus, WARM_UP + options.megabytes)
    chosen = vocabularies(options.vocab, next(iter(texts.values())))
    tables = [
        measure(vocabulary, name, documents, options.threads)
        for vocabulary in chosen
        for name, documents in texts.items()
    ]
    finish("shared", tables, options.json)


if __name__ == "__main__":
    main()
