"""This library instead of tiktoken: tiktoken's own calls, patched and not, in CPU time.

python benchmarks/bench_tiktoken.py --vocab cl100k_base o200k_base
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
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
from libraries import PUBLISHED, Vocabulary, ranks_of, rust_pattern, vocabularies

from bpe_tokenizer_tools.dropin.tiktoken import Encoding, patch_tiktoken, unpatch_tiktoken

WARM_UP = 1.5
SHORT = "def main(argv):  # what the command line calls,"  # about 50 characters
CALLS: dict[str, Callable[[Any, list[str]], Any]] = {
    "encode": lambda encoding, texts: [encoding.encode(text) for text in texts],
    "encode_ordinary": lambda encoding, texts: [encoding.encode_ordinary(text) for text in texts],
    "encode_to_numpy": lambda encoding, texts: [encoding.encode_to_numpy(text) for text in texts],
    "encode_ordinary_batch": lambda encoding, texts: encoding.encode_ordinary_batch(texts),
    "encode 50 characters": lambda encoding, texts: [encoding.encode(SHORT) for _ in range(2000)],
}


def encodings(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return tiktoken's encoding, the same over this library's core, and the twin."""
    import tiktoken

    given = {
        "pat_str": rust_pattern(vocabulary),
        "mergeable_ranks": ranks_of(vocabulary),
        "special_tokens": {"<|endoftext|>": len(ranks_of(vocabulary)) + 1000},
    }
    found = {"tiktoken": tiktoken.Encoding(vocabulary.name, **given)}
    patch_tiktoken()
    found["tiktoken, patched"] = tiktoken.Encoding(vocabulary.name, **given)
    unpatch_tiktoken()
    found["as_tiktoken()"] = Encoding(vocabulary.name, **given)
    return found


def measure(vocabulary: Vocabulary, name: str, documents: Sequence[str]) -> Table:
    """Compare each call on unseen documents, after all ids were found equal."""
    made = encodings(vocabulary)
    reference = made["tiktoken"]
    ids = [reference.encode(text) for text in documents]
    for library, encoding in made.items():
        for call in ("encode", "encode_ordinary", "encode_ordinary_batch"):
            if CALLS[call](encoding, list(documents)) != ids:
                raise SystemExit(f"{library}, {call}, {vocabulary.name}: other ids")
        if encoding.decode_batch(ids) != list(documents):
            raise SystemExit(f"{library}, {vocabulary.name}: other text")
    warm, measured = part(documents, WARM_UP)
    step = max(1, len(measured) // SLICES)
    slices = [measured[at : at + step] for at in range(0, step * SLICES, step)]
    rows = []
    for call, run in CALLS.items():
        each = encodings(vocabulary)  # new ones, so that no call profits from another's cache
        for encoding in each.values():
            run(encoding, list(warm))
        runs = {n: lambda texts, e=encoding, r=run: r(e, texts) for n, encoding in each.items()}
        rows.append((call, interleaved(runs, slices, fresh)))
    reference_ids = [reference.encode_ordinary(text) for text in measured]
    decode = {
        n: lambda batch, e=encoding: [e.decode(ids) for ids in batch]
        for n, encoding in made.items()
    }
    parts = [reference_ids[at : at + step] for at in range(0, step * SLICES, step)]
    rows.append(("decode", interleaved(decode, parts)))
    return {
        "about": ["tiktoken calls", vocabulary.name, name],
        "title": f"tiktoken's calls, {vocabulary.name}, {name}: {megabytes_of(measured):.1f} MB of "
        "unseen documents; times as fast as tiktoken, CPU time, medians of slices",
        "rows": [
            {
                "call": call,
                **{
                    library: median_ratio(seconds["tiktoken"], seconds[library])
                    for library in ("tiktoken, patched", "as_tiktoken()")
                },
            }
            for call, seconds in rows
        ],
    }


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure each vocabulary on each corpus."""
    texts = corpora(options.corpus, WARM_UP + options.megabytes)
    chosen = vocabularies(options.vocab, next(iter(texts.values())))
    return [measure(each, name, documents) for each in chosen for name, documents in texts.items()]


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument(
        "--vocab", nargs="+", default=["cl100k_base"], help=f"of {', '.join(PUBLISHED)}"
    )
    parser.add_argument("--megabytes", type=float, default=3, help="to measure, of each corpus")
    return parser


if __name__ == "__main__":
    asked = build_parser().parse_args()
    finish("tiktoken", collect(asked), asked.json)
