"""How long it takes until a vocabulary is ready, against tiktoken and others.

python benchmarks/bench_load.py --vocab o200k_base
"""

from __future__ import annotations

import argparse
import importlib
import statistics
from collections.abc import Callable
from typing import Any

from common import Table, add_options, corpora, finish, interleaved, median_ratio
from libraries import (
    PUBLISHED,
    Vocabulary,
    fastokens,
    gigatoken,
    is_installed,
    ranks_of,
    rust_pattern,
    scratch,
    tiktoken,
    tokenizer_json,
    vocabularies,
)

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools.formats.ranks import recover_merges

TEXT = "Ready, then?"  # is encoded last: what is put off until then counts, too
Way = Callable[[], Any]  # loads, and returns the ids of TEXT


def from_ranks(vocabulary: Vocabulary) -> dict[str, Way]:
    """Return how each gets ready from a dictionary of ranks, which is at hand."""
    ranks = ranks_of(vocabulary)

    def ours() -> Any:
        merges = [(ranks[left], ranks[right]) for left, right in recover_merges(ranks)]
        pattern = SPLIT_PATTERNS[vocabulary.pattern]
        definition = bpe_tokenizer.Definition(ranks, merges, pattern, None, ignore_merges=True)
        return bpe_tokenizer._engine.encoder(definition).encode(TEXT)

    return {
        "tiktoken, Encoding(...)": lambda: tiktoken(vocabulary).encode_ordinary(TEXT),
        "bpe_tokenizer, recover_merges + encoder": ours,
    }


def from_file(vocabulary: Vocabulary) -> dict[str, Way]:
    """Return how each gets ready from a file."""
    path = str(vocabulary.path)
    pattern = rust_pattern(vocabulary)

    def openai() -> Any:
        package = importlib.import_module("tiktoken")
        ranks = importlib.import_module("tiktoken.load").load_tiktoken_bpe(path)
        encoding = package.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return encoding.encode_ordinary(TEXT)

    ways: dict[str, Way] = {
        "tiktoken, .tiktoken": openai,
        "bpe_tokenizer, .tiktoken": lambda: BPETokenizer.from_file(path).encode(TEXT),
    }
    if is_installed("gigatoken"):
        ways["gigatoken, .tiktoken"] = lambda: gigatoken(vocabulary).encode(TEXT).tolist()
    if is_installed("fastokens") and vocabulary.pattern != "gpt2":
        ways["fastokens, .tiktoken"] = lambda: fastokens(vocabulary).encode_ordinary(TEXT).ids
    tokenizer_json(vocabulary)
    json_path = str(scratch() / vocabulary.name / "tokenizer.json")
    ways["bpe_tokenizer, tokenizer.json"] = lambda: BPETokenizer.from_file(json_path).encode(TEXT)
    if is_installed("tokenizers"):
        package = importlib.import_module("tokenizers")
        ways["tokenizers, tokenizer.json"] = lambda: (
            package.Tokenizer.from_file(json_path).encode(TEXT, add_special_tokens=False).ids
        )
    return ways


def measure(vocabulary: Vocabulary, what: str, ways: dict[str, Way], repeat: int) -> Table:
    """Time each way several times, in turn."""
    expected = tiktoken(vocabulary).encode_ordinary(TEXT)
    for name, way in ways.items():
        if way() != expected:
            raise SystemExit(f"{name}, {vocabulary.name}: not equal")
    runs = {name: lambda _, way=way: way() for name, way in ways.items()}
    seconds = interleaved(runs, range(repeat))
    reference = next(times for name, times in seconds.items() if name.startswith("tiktoken"))
    return {
        "about": ["load", vocabulary.name, what],
        "title": f"load, {vocabulary.name}, {len(ranks_of(vocabulary)):,} tokens, from {what}",
        "rows": [
            {
                "library": name.split(", ")[0],
                "from": name.split(", ")[1],
                "seconds": statistics.median(times),
                "x tiktoken": median_ratio(reference, times),
            }
            for name, times in seconds.items()
        ],
    }


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure each vocabulary, from ranks and from a file."""
    texts = corpora(options.corpus, 2.0)
    tables = []
    for vocabulary in vocabularies(options.vocab, next(iter(texts.values()))):
        from_memory = measure(vocabulary, "ranks", from_ranks(vocabulary), options.repeat)
        tables += [
            from_memory,
            measure(vocabulary, "files", from_file(vocabulary), options.repeat),
        ]
    return tables


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument(
        "--vocab", nargs="+", default=["o200k_base"], help=f"of {', '.join(PUBLISHED)}"
    )
    parser.add_argument("--repeat", type=int, default=7, help="how often each is loaded")
    return parser


if __name__ == "__main__":
    chosen_options = build_parser().parse_args()
    finish("load", collect(chosen_options), chosen_options.json)
