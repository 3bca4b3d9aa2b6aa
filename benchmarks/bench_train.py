"""Training speed, against HuggingFace's BpeTrainer, with equal merges.

python benchmarks/bench_train.py --megabytes 10 --vocab-size 8000
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from typing import Any

from common import (
    add_options,
    corpora,
    finish,
    interleaved,
    median_ratio,
    megabytes_of,
)

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, build_byte_to_char

Table = dict[str, Any]
Merges = list[tuple[str, str]]


def train_ours(documents: Sequence[str], pattern: str, vocab_size: int) -> tuple[Merges, Any]:
    """Train with this library, in one process; return the merges and the report."""
    tokenizer = BPETokenizer(pattern, normalizer=None)
    tokenizer.train(documents, vocab_size, verbose=False, num_workers=1)
    byte_to_char = build_byte_to_char()
    merges = [
        tuple("".join(map(byte_to_char.__getitem__, part)) for part in pair)
        for pair in tokenizer.merges
    ]
    return merges, tokenizer.training_report


def train_theirs(documents: Sequence[str], pattern: str, vocab_size: int) -> Merges:
    """Train with HuggingFace's library, on the same documents, alphabet and pattern."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(theirs(pattern)), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]


def theirs(pattern: str) -> str:
    """Return a pattern as the engine of HuggingFace's library spells it.

    The two patterns that are compared mean the same in both, but for possessive counts and the
    end of the text.
    """
    return pattern.replace("{1,3}+", "{1,3}").replace("++$", r"+\z")


def measure(name: str, documents: list[str], pattern: str, options: Any) -> Table:
    """Train with both, in turn."""
    size = options.vocab_size
    last: dict[str, Any] = {}

    def ours(_: int) -> None:
        last["bpe_tokenizer"] = train_ours(documents, SPLIT_PATTERNS[pattern], size)

    def tokenizers(_: int) -> None:
        last["tokenizers"] = train_theirs(documents, SPLIT_PATTERNS[pattern], size)

    seconds = interleaved({"tokenizers": tokenizers, "bpe_tokenizer": ours}, range(options.repeat))
    merges, report = last["bpe_tokenizer"]
    assert merges == last["tokenizers"], "the merges differ"
    phases = [report.counting_seconds, report.learning_seconds]
    return {
        "title": f"train, {name}, {megabytes_of(documents):.1f} MB, pattern {pattern}, "
        f"{size:,} tokens; {len(merges):,} equal merges",
        "header": ["library", "CPU seconds", "x tokenizers", "counting, wall", "learning, wall"],
        "rows": [
            [
                row,
                statistics.median(times),
                median_ratio(seconds["tokenizers"], times),
                *(phases if row == "bpe_tokenizer" else ["", ""]),
            ]
            for row, times in seconds.items()
        ],
    }


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure each pattern on all corpora together."""
    texts = corpora(options.corpus, options.megabytes / (len(options.corpus or ()) or 3))
    documents = [document for text in texts.values() for document in text]
    name = " + ".join(texts)
    return [measure(name, documents, pattern, options) for pattern in ("gpt2", "cl100k")]


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--megabytes", type=float, default=10.0, help="of text in all")
    parser.add_argument("--vocab-size", type=int, default=8_000)
    parser.add_argument("--repeat", type=int, default=3, help="how often each is trained")
    return parser


if __name__ == "__main__":
    chosen_options = build_parser().parse_args()
    finish("train", collect(chosen_options), chosen_options.json)
