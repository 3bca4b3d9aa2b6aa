"""The cost of cutting text with an automaton, compared with a built-in scanner and with `regex`.

python benchmarks/bench_patterns.py

The same vocabulary and the same split pattern encode the same documents in three ways: text is cut
by the scanner written for the pattern, by an automaton made from it, as for a user's own pattern,
and by `regex`.  The ids are checked first.  The documents are warm, so only the way text is cut
differs.  A second table has users' patterns, which have no scanner.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from common import SLICES, Table, add_options, corpora, finish, interleaved, megabytes_of
from libraries import PUBLISHED, Vocabulary, vocabularies

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools.patterns.automaton import automaton

engine: Any = importlib.import_module("_bpe_tokenizer.engine")

_GOAL = 3.0  # times the encoding time of the scanner
_O200K, _CL100K = SPLIT_PATTERNS["o200k"], SPLIT_PATTERNS["cl100k"]
OWN = {  # patterns nobody wrote a scanner for
    "o200k, digits one by one": _O200K.replace(r"\p{N}{1,3}", r"\p{N}"),
    "cl100k, words with marks": _CL100K.replace(r"\p{L}++", r"[\p{L}\p{M}]++"),
    "words, numbers, signs": r" ?\w+|\d{1,4}| ?[^\w\s]+|\s+",
}


@contextmanager
def cutting_by(way: str) -> Iterator[None]:
    """Let encoders that are made inside the with block cut text in one way."""
    name = "_cutter_for" if way == "regex" else "_scanner_for"
    if way == "scanner":
        yield
        return
    with mock.patch.object(engine, name, return_value=None):
        yield


def _encoders(definition: Any, ways: Sequence[str]) -> dict[str, Any]:
    encoders = {}
    for way in ways:
        with cutting_by(way):
            encoders[way] = engine.NativeEncoder(definition)
        assert encoders[way].scans == (way != "regex")
    return encoders


def _compare(definition: Any, documents: Sequence[str], ways: Sequence[str]) -> dict[str, Any]:
    """Return the MB/s of each way, and the first and the last in multiples of the automaton."""
    encoders = _encoders(definition, ways)
    expected = [encoders["regex"].encode(text) for text in documents]
    for encoder in encoders.values():
        assert [encoder.encode(text) for text in documents] == expected
    runs = {
        way: lambda texts, encode=encoder.encode: [encode(text) for text in texts]
        for way, encoder in encoders.items()
    }
    seconds = interleaved(runs, [list(documents[i::SLICES]) for i in range(SLICES)])
    size = megabytes_of(documents)

    def ratio(way: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds[way], seconds[other]))

    row = {f"{way} MB/s": size / sum(seconds[way]) for way in ways}
    row["regex / automaton"] = ratio("regex", "automaton")
    if "scanner" in ways:
        row["automaton / scanner"] = ratio("automaton", "scanner")
        row["goal"] = _GOAL
    return row


def measure(vocabularies: Sequence[Vocabulary], texts: dict[str, list[str]]) -> Table:
    """Compare the three ways by the patterns of published vocabularies."""
    rows = []
    for vocabulary in vocabularies:
        definition = BPETokenizer.from_file(vocabulary.path).definition
        for name, documents in texts.items():
            row = _compare(definition, documents, ("scanner", "automaton", "regex"))
            rows.append({"vocabulary": vocabulary.name, "corpus": name, **row})
    title = "encoding, warm, by the way in which text is cut"
    return {"about": ["patterns", "named"], "title": title, "rows": rows}


def measure_own(vocabulary: Vocabulary, texts: dict[str, list[str]]) -> Table:
    """Compare the two ways to cut text by users' patterns."""
    rows = []
    for pattern_name, pattern in OWN.items():
        start = time.perf_counter()
        made = automaton(pattern)
        took = 1000 * (time.perf_counter() - start)
        assert made is not None
        definition = BPETokenizer.from_file(vocabulary.path).definition
        definition = dataclasses.replace(definition, split_pattern=pattern)
        for name, documents in texts.items():
            row = _compare(definition, documents, ("automaton", "regex"))
            rows.append({"pattern": pattern_name, "corpus": name, "to make, ms": took, **row})
    title = f"encoding by patterns without a scanner, {vocabulary.name}, warm"
    return {"about": ["patterns", "own"], "title": title, "rows": rows}


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure each vocabulary on each corpus."""
    texts = corpora(options.corpus, options.megabytes)
    used = vocabularies(options.vocab, next(iter(texts.values())))
    return [measure(used, texts), measure_own(used[0], texts)]


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    vocab = f"of {', '.join(PUBLISHED)}"
    parser.add_argument("--vocab", nargs="+", default=["o200k_base", "cl100k_base"], help=vocab)
    parser.add_argument("--megabytes", type=float, default=0.5, help="to measure, per corpus")
    return parser


if __name__ == "__main__":
    chosen_options = build_parser().parse_args()
    finish("patterns", collect(chosen_options), chosen_options.json)
