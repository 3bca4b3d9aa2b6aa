"""Encoding speed, against tiktoken and tokenizers, on text the tokenizers have not seen.

python benchmarks/bench_encode.py            # documents, and worst cases
python benchmarks/bench_encode.py --scan     # where the heap overtakes scanning
python benchmarks/bench_encode.py --split    # `re` against `regex` at splitting
"""

from __future__ import annotations

import argparse
import base64
import functools
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from common import (
    SHARED,
    Encode,
    Vocabulary,
    add_options,
    corpora,
    cpu_seconds,
    encoders,
    finish,
    interleaved,
    median_ratio,
    megabytes_of,
    published_vocabulary,
    trained_vocabulary,
)

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS

Table = dict[str, Any]
WARM_UP = 1.5  # megabytes that every row encodes first, from the same corpus
SLICES = 9


def vocabularies(names: Sequence[str], texts: dict[str, list[str]]) -> list[Vocabulary]:
    """Return the published vocabularies asked for, or a trained one."""
    if not (SHARED / "vocab").is_dir():
        return [trained_vocabulary(next(iter(texts.values()))[:200])]
    return [published_vocabulary(name) for name in names]


def cut_off(documents: Sequence[str], megabytes: float) -> tuple[list[str], list[str]]:
    """Part documents into those to warm up on and those to measure."""
    size, at = 0, 0
    while at < len(documents) // 2 and size < megabytes * 1e6:
        size += len(documents[at].encode())
        at += 1
    return list(documents[:at]), list(documents[at:])


def encode_all(encode: Encode, documents: Sequence[str]) -> None:
    """Encode each document."""
    for document in documents:
        encode(document)


def measure_documents(vocabulary: Vocabulary, name: str, documents: Sequence[str]) -> Table:
    """Compare the libraries on documents they have not seen."""
    warm, measured = cut_off(documents, WARM_UP)
    rows = encoders(vocabulary)
    for text in warm[:300]:
        expected = rows["tiktoken"](text)
        for row, encode in rows.items():
            assert encode(text) == expected, f"{row} differs from tiktoken: {text[:80]!r}"
    # NOTE: anew, so that the documents of the check are in no cache but the warm-up's.
    rows = encoders(vocabulary)
    for encode in rows.values():
        encode_all(encode, warm)
    slices = [measured[i::SLICES] for i in range(SLICES)]
    runs = {row: functools.partial(encode_all, encode) for row, encode in rows.items()}
    seconds = interleaved(runs, slices)
    size = megabytes_of(measured)
    return {
        "title": f"encode, {vocabulary.name}, {name}: {size:.1f} MB of unseen documents",
        "header": ["library", "MB/s", "x tiktoken"],
        "rows": [
            [row, size / sum(times), median_ratio(seconds["tiktoken"], times)]
            for row, times in seconds.items()
        ],
    }


# -- Worst cases --------------------------------------------------------------


def worst_cases() -> dict[str, str]:
    """Return a megabyte of each kind of text that has made some tokenizer quadratic."""
    rng = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return {
        "one letter": "a" * 1_000_000,
        "spaces": " " * 1_000_000,
        "newlines": "\n" * 1_000_000,
        "random base64": base64.b64encode(bytes(rng.choices(range(256), k=750_000))).decode(),
        "one CJK character": "中" * 333_333,
        "random letters": "".join(rng.choices(letters, k=1_000_000)),
    }


def measure_worst_cases(vocabulary: Vocabulary, prose: str) -> Table:
    """Time a megabyte of each worst case, in times of a megabyte of prose."""
    rows = encoders(vocabulary)
    tiktoken, ours = rows["tiktoken"], rows["bpe_tokenizer"]
    tokenizer = ours.__self__  # type: ignore[attr-defined]
    ours(prose)  # sets up what is set up once

    def cold(text: str) -> float:
        """Encode with an empty cache."""
        times = []
        for _ in range(3):
            tokenizer.clear_cache()
            times.append(cpu_seconds(lambda: ours(text)))
        return statistics.median(times)

    reference = cold(prose)
    table = [["prose", reference, 1.0, cpu_seconds(lambda: tiktoken(prose))]]
    for name, text in worst_cases().items():
        assert ours(text) == tiktoken(text), name
        seconds = cold(text)
        table.append([name, seconds, seconds / reference, cpu_seconds(lambda t=text: tiktoken(t))])
    return {
        "title": f"encode, {vocabulary.name}: a megabyte at once, with an empty cache",
        "header": ["text", "seconds", "x prose", "tiktoken's seconds"],
        "rows": table,
    }


# -- What justifies the module's constants ------------------------------------


def measure_scan(vocabulary: Vocabulary, prose: str) -> Table:
    """Time both ways to merge a pre-token, by its length."""
    rng = random.Random(1)
    encoder = encoders(vocabulary)["bpe_tokenizer"].__self__._encoder  # type: ignore[attr-defined]
    data = prose.encode()
    table = []
    for n_parts in (8, 16, 24, 32, 48, 64, 96, 128, 256):
        starts = [rng.randrange(len(data) - n_parts) for _ in range(20_000 // n_parts)]
        words = [[encoder._byte_ids[byte] for byte in data[s : s + n_parts]] for s in starts]

        def run(merge: Callable[..., list[int]], words: list[list[int]]) -> list[list[int]]:
            return [merge(list(word), encoder._ranks, encoder._merged) for word in words]

        ways = {
            "scan": functools.partial(run, bpe_tokenizer._merge_by_scanning),
            "heap": functools.partial(run, bpe_tokenizer._merge_by_heap),
        }
        assert ways["scan"](words) == ways["heap"](words)
        seconds = interleaved(ways, [words] * SLICES)
        micro = {way: statistics.median(t) / len(words) * 1e6 for way, t in seconds.items()}
        ratio = median_ratio(seconds["heap"], seconds["scan"])
        table.append([n_parts, micro["scan"], micro["heap"], ratio])
    return {
        "title": f"merging one pre-token, {vocabulary.name}; the module scans up to "
        f"{bpe_tokenizer._SCAN_UP_TO} parts",
        "header": ["parts", "scan, us", "heap, us", "heap / scan"],
        "rows": table,
    }


def measure_split(name: str, documents: Sequence[str]) -> Table:
    """Time the two engines at splitting, where both apply."""
    bmp = [document for document in documents if document and ord(max(document)) <= 0xFFFF]
    slices = [bmp[i::SLICES] for i in range(SLICES)]
    table = []
    for pattern_name, pattern in SPLIT_PATTERNS.items():
        splitter = bpe_tokenizer._Splitter(pattern)
        splitter.split("x" * 200_000)  # past the size from which it uses `re`
        assert splitter._fast is not None, pattern_name
        engines = {"regex": splitter._exact.findall, "re": splitter._fast.findall}
        for document in bmp:
            assert engines["re"](document) == engines["regex"](document), pattern_name
        runs = {e: functools.partial(encode_all, find) for e, find in engines.items()}
        seconds = interleaved(runs, slices)
        size = megabytes_of(bmp)
        speeds = [size / sum(seconds[engine]) for engine in ("regex", "re")]
        table.append([pattern_name, *speeds, median_ratio(seconds["regex"], seconds["re"])])
    return {
        "title": f"splitting {name}, {megabytes_of(bmp):.1f} MB without characters past U+FFFF",
        "header": ["pattern", "regex, MB/s", "re, MB/s", "re / regex"],
        "rows": table,
    }


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure what the options ask for."""
    texts = corpora(options.corpus, WARM_UP + options.megabytes)
    if options.split:
        return [measure_split(name, documents) for name, documents in texts.items()]
    chosen = vocabularies(options.vocab, texts)
    prose = "".join(texts.get("english") or next(iter(texts.values())))[:1_000_000]
    if options.scan:
        return [measure_scan(vocabulary, prose) for vocabulary in chosen]
    tables = []
    for vocabulary in chosen:
        for name, documents in texts.items():
            tables.append(measure_documents(vocabulary, name, documents))
        tables.append(measure_worst_cases(vocabulary, prose))
    return tables


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument(
        "--vocab", nargs="+", default=["cl100k_base"], help="from ../shared/vocab: cl100k_base, ..."
    )
    parser.add_argument("--megabytes", type=float, default=3.0, help="to measure, per corpus")
    parser.add_argument("--scan", action="store_true", help="scanning against the heap")
    parser.add_argument("--split", action="store_true", help="`re` against `regex`")
    return parser


if __name__ == "__main__":
    chosen_options = build_parser().parse_args()
    finish("encode", collect(chosen_options), chosen_options.json)
