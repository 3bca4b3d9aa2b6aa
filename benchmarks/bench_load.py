"""How long it takes until a vocabulary is ready, and its memory, against tiktoken and others.

python benchmarks/bench_load.py --vocab o200k_base
"""

from __future__ import annotations

import argparse
import importlib
import os
import pickle
import statistics
import subprocess
import sys
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

TEXT = "Ready, then?"  # encoded last, so that work deferred until then counts, too
Way = Callable[[], Any]  # loads, and returns the ids of TEXT
CACHE = "BPE_TOKENIZER_CACHE"

# Prints the growth of a process, in MB: in all, and what no other process could share.
MEMORY = """
import gc, sys, {imports}
def used():
    gc.collect()
    lines = [line.split() for line in open("/proc/self/smaps")]
    sizes = {{name: sum(int(line[1]) for line in lines if line[0] == name) for name in NAMES}}
    mapped, own = 0, False
    for line in lines:  # what is mapped from a file of the cache can be shared
        own = line[-1].endswith(".bpe") if "-" in line[0] else own
        mapped += int(line[1]) if own and line[0] == "Rss:" else 0
    return sizes["Rss:"] / 1024, (sizes["Rss:"] - mapped) / 1024
NAMES = ["Rss:"]
before = used()
kept = {load}
{encode}
print(*(after - start for after, start in zip(used(), before)))
"""


def from_ranks(vocabulary: Vocabulary) -> dict[str, Way]:
    """Return how each library loads a given dictionary of ranks."""
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


def cached(way: Way) -> Way:
    """Return a function that loads the same way with the cache on disk, which it fills first."""

    def load() -> Any:
        os.environ[CACHE] = str(scratch() / "cache")
        try:
            return way()
        finally:
            os.environ[CACHE] = "0"

    return load


def from_file(vocabulary: Vocabulary) -> dict[str, Way]:
    """Return how each library loads a file."""
    path = str(vocabulary.path)
    pattern = rust_pattern(vocabulary)

    def openai() -> Any:
        package = importlib.import_module("tiktoken")
        ranks = importlib.import_module("tiktoken.load").load_tiktoken_bpe(path)
        encoding = package.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return encoding.encode_ordinary(TEXT)

    def ours(path: str) -> Any:
        return BPETokenizer.from_file(path).encode(TEXT)

    packed = pickle.dumps(BPETokenizer.from_file(path))
    ways: dict[str, Way] = {
        "tiktoken, .tiktoken": openai,
        "bpe_tokenizer, .tiktoken": lambda: ours(path),
        "bpe_tokenizer, .tiktoken again": cached(lambda: ours(path)),
        "bpe_tokenizer, pickle": lambda: pickle.loads(packed).encode(TEXT),
        "bpe_tokenizer, pickle again": cached(lambda: pickle.loads(packed).encode(TEXT)),
    }
    if is_installed("gigatoken"):
        ways["gigatoken, .tiktoken"] = lambda: gigatoken(vocabulary).encode(TEXT).tolist()
    if is_installed("fastokens") and vocabulary.pattern != "gpt2":
        ways["fastokens, .tiktoken"] = lambda: fastokens(vocabulary).encode_ordinary(TEXT).ids
    tokenizer_json(vocabulary)
    json_path = str(scratch() / vocabulary.name / "tokenizer.json")
    ways["bpe_tokenizer, tokenizer.json"] = lambda: ours(json_path)
    ways["bpe_tokenizer, tokenizer.json again"] = cached(lambda: ours(json_path))
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


def memory(vocabulary: Vocabulary) -> Table:
    """Measure the memory of each library with one vocabulary, each in its own process."""
    path, json_path = vocabulary.path, scratch() / vocabulary.name / "tokenizer.json"
    own = "bpe_tokenizer, bpe_tokenizer_tools.formats.tiktoken"
    ours = "bpe_tokenizer.BPETokenizer.from_file({!r})", "kept.encode('Ready, then?')"
    pattern = rust_pattern(vocabulary)
    ranks = f"tiktoken.load.load_tiktoken_bpe({str(path)!r})"
    given = f"'x', pat_str={pattern!r}, mergeable_ranks={ranks}, special_tokens={{}}"
    ways = {
        "tiktoken, .tiktoken": (
            *("tiktoken, tiktoken.load", f"tiktoken.Encoding({given})"),
            "kept.encode_ordinary('Ready, then?')",
        )
    }
    if is_installed("tokenizers"):
        load = f"tokenizers.Tokenizer.from_file({str(json_path)!r})"
        ways["tokenizers, tokenizer.json"] = ("tokenizers", load, "kept.encode('Ready, then?')")
    for kind, file in ((".tiktoken", path), ("tokenizer.json", json_path)):
        for again in ("", " again"):
            ways[f"bpe_tokenizer, {kind}{again}"] = own, ours[0].format(str(file)), ours[1]
    rows = []
    for name, (imports, load, encode) in ways.items():
        script = MEMORY.format(imports=imports, load=load, encode=encode)
        environment = dict(os.environ)
        if name.endswith("again"):
            environment[CACHE] = str(scratch() / "cache")
        command = [sys.executable, "-c", script]
        runs = [
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            for _ in range(3)
        ]
        found = sorted(tuple(map(float, run.stdout.split())) for run in runs)[1]
        rows.append(
            {
                "library": name.split(", ")[0],
                "from": name.split(", ")[1],
                "MB": round(found[0], 1),
                "MB not shared": round(found[1], 1),
            }
        )
    return {
        "about": ["memory", vocabulary.name],
        "title": f"memory, {vocabulary.name}, loaded and used once",
        "rows": rows,
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
        if sys.platform.startswith("linux"):
            tables.append(memory(vocabulary))
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
    os.environ[CACHE] = "0"
    chosen_options = build_parser().parse_args()
    finish("load", collect(chosen_options), chosen_options.json)
