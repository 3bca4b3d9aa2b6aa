"""Decoding speed, against tiktoken and others.

python benchmarks/bench_decode.py
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench_encode import compare
from common import SLICES, Table, add_options, corpora, finish, interleaved, megabytes_of
from libraries import (
    DECODE,
    PUBLISHED,
    Call,
    Vocabulary,
    checked,
    load_each,
    tiktoken,
    usable,
    vocabularies,
)


def measure(vocabulary: Vocabulary, name: str, documents: Sequence[str]) -> list[Table]:
    """Compare the libraries on the ids of documents, to text and to bytes."""
    reference = tiktoken(vocabulary)
    ids = [reference.encode_ordinary(text) for text in documents]
    as_bytes = [text.encode() for text in documents]

    def expected(call: Call) -> Sequence[str | bytes]:
        return documents if call.kind == "str" else as_bytes

    calls = checked(usable(DECODE), vocabulary, ids, expected)
    seconds = interleaved(load_each(calls, vocabulary), [ids[i::SLICES] for i in range(SLICES)])
    size = megabytes_of(documents)
    return [
        {
            "about": ["decode", vocabulary.name, name, kind],
            "title": f"decode, {vocabulary.name}, {name}: {size:.1f} MB, to {kind}",
            "rows": compare([call for call in calls if call.kind == kind], seconds, size),
        }
        for kind in ("str", "bytes")
    ]


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure each vocabulary on each corpus."""
    texts = corpora(options.corpus, options.megabytes)
    chosen = vocabularies(options.vocab, next(iter(texts.values())))
    return [
        table
        for vocabulary in chosen
        for name, documents in texts.items()
        for table in measure(vocabulary, name, documents)
    ]


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument(
        "--vocab", nargs="+", default=["cl100k_base"], help=f"of {', '.join(PUBLISHED)}"
    )
    parser.add_argument("--megabytes", type=float, default=3.0, help="to measure, per corpus")
    return parser


if __name__ == "__main__":
    chosen_options = build_parser().parse_args()
    finish("decode", collect(chosen_options), chosen_options.json)
