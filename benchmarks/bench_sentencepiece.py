"""This library instead of sentencepiece: the calls of its processor, in CPU time.

python benchmarks/bench_sentencepiece.py
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench_components import train
from common import (
    SLICES,
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

from bpe_tokenizer_tools.dropin.sentencepiece import SentencePieceProcessor

WARM_UP = 1.0
SHORT = "def main(argv):  # what the command line calls,"  # about 50 characters
ENCODE: dict[str, Callable[[Any, list[str]], Any]] = {
    "encode": lambda it, texts: [it.encode(text) for text in texts],
    "encode, a list": lambda it, texts: it.encode(texts, num_threads=1),
    "encode, pieces": lambda it, texts: [it.encode(text, out_type=str) for text in texts],
    "encode, offsets": lambda it, texts: [
        it.encode(text, out_type="offset_mapping") for text in texts
    ],
    "encode 50 characters": lambda it, texts: [it.encode(SHORT) for _ in range(1000)],
}
DECODE: dict[str, Callable[[Any, list[Any]], Any]] = {
    "decode ids": lambda it, rows: [it.decode(ids) for ids, _ in rows],
    "decode pieces": lambda it, rows: [it.decode(pieces) for _, pieces in rows],
}


def processors(model: Path) -> dict[str, Any]:
    """Load a model in sentencepiece and here."""
    theirs = importlib.import_module("sentencepiece").SentencePieceProcessor(str(model))
    return {"sentencepiece": theirs, "here": SentencePieceProcessor(str(model))}


def sliced(items: Sequence[Any]) -> list[list[Any]]:
    """Cut the items to measure into slices."""
    step = max(1, len(items) // SLICES)
    return [list(items[at : at + step]) for at in range(0, step * SLICES, step)]


def measure(model: Path, name: str, documents: Sequence[str]) -> Table:
    """Compare each call on unseen documents, after all results were found equal."""
    made = processors(model)
    rows = [(made["sentencepiece"].encode(text), text) for text in documents]
    pairs = [(ids, made["sentencepiece"].encode(text, out_type=str)) for ids, text in rows]
    for calls, given in ((ENCODE, list(documents)), (DECODE, pairs)):
        for call, run in calls.items():
            if run(made["sentencepiece"], given) != run(made["here"], given):
                raise SystemExit(f"{call}, {name}: other results")
    warm, measured = part(documents, WARM_UP)
    found = []
    for call, run in ENCODE.items():
        each = processors(model)  # new ones, so that no call profits from another's cache
        for it in each.values():
            run(it, list(warm))
        runs = {n: lambda texts, it=it, run=run: run(it, texts) for n, it in each.items()}
        found.append((call, interleaved(runs, sliced(measured), fresh)))
    for call, decode in DECODE.items():
        runs = {n: lambda part, it=it, run=decode: run(it, part) for n, it in made.items()}
        found.append((call, interleaved(runs, sliced(pairs[len(warm) :]))))
    return {
        "about": ["sentencepiece calls", name],
        "title": f"sentencepiece's calls, {name}: {megabytes_of(measured):.1f} MB of unseen "
        "documents; times as fast as sentencepiece, CPU time, medians of slices",
        "rows": [
            {"call": call, "times": median_ratio(seconds["sentencepiece"], seconds["here"])}
            for call, seconds in found
        ],
    }


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure one model, trained on all corpora if none is given, on each corpus."""
    texts = corpora(options.corpus, WARM_UP + options.megabytes)
    model = options.model or train(texts, options.vocab_size)
    return [measure(model, name, documents) for name, documents in texts.items()]


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--megabytes", type=float, default=1, help="to measure, of each corpus")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="of the trained model")
    parser.add_argument("--model", type=Path, metavar="FILE", help="measure this .model instead")
    return parser


if __name__ == "__main__":
    if not is_installed("sentencepiece"):
        sys.exit("this benchmark needs sentencepiece: pip install '.[benchmark]'")
    asked = build_parser().parse_args()
    finish("sentencepiece", collect(asked), asked.json)
