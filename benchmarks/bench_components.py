"""Tokenizers that merge characters: SentencePiece's own form, Llama 2's, Gemma's.

python benchmarks/bench_components.py

A model is trained with SentencePiece, BPE with byte fallback, and written as the tokenizer.json of
each family. Every library encodes documents that it has not seen, after a megabyte to warm up; ids,
text and offsets are compared first.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
from libraries import scratch

from bpe_tokenizer import BPETokenizer

_PREPEND = {"type": "Prepend", "prepend": "▁"}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}
_METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
_WORDS = {"type": "Split", "pattern": {"Regex": r"[▁][^▁\r\n]*|[^▁\r\n]+|[\r\n]+"}}
_TO_SPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}

# The components of a family's tokenizer.json; None for the .model itself.
FAMILIES: dict[str, dict[str, Any] | None] = {
    "SentencePiece": None,
    "Llama 2": {
        "normalizer": {"type": "Sequence", "normalizers": [_PREPEND, _REPLACE]},
        "pre_tokenizer": None,
        "decoder": [_TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}, _STRIP],
    },
    "Llama 2, Metaspace": {
        "normalizer": None,
        "pre_tokenizer": _METASPACE,
        "decoder": [_TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}, _STRIP],
    },
    "Llama 2, cut into words": {  # as `train(style="sentencepiece")` writes it
        "normalizer": {"type": "Sequence", "normalizers": [_PREPEND, _REPLACE]},
        "pre_tokenizer": {**_WORDS, "behavior": "Isolated", "invert": False},
        "decoder": [_TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}, _STRIP],
    },
    "Gemma": {
        "normalizer": _REPLACE,
        "pre_tokenizer": {**_SPLIT, "invert": False},
        "decoder": [_TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}],
    },
}


class Library(NamedTuple):
    """The three calls of a library that are measured."""

    encode: Callable[[str], Any]
    decode: Callable[[Any], Any]
    offsets: Callable[[str], Any]


def ours(path: Path) -> Library:
    """Load a tokenizer here."""
    it = BPETokenizer.from_file(path)
    return Library(it.encode, it.decode, lambda text: it.encode_with_offsets(text).offsets)


def tokenizers(path: Path) -> Library:
    """Load a tokenizer with HuggingFace's library."""
    it = importlib.import_module("tokenizers").Tokenizer.from_file(str(path))
    return Library(
        lambda text: it.encode_batch_fast([text], add_special_tokens=False)[0].ids,
        lambda ids: it.decode(ids, skip_special_tokens=False),
        lambda text: it.encode(text, add_special_tokens=False).offsets,
    )


def sentencepiece(path: Path) -> Library:
    """Load a model with SentencePiece."""
    it = importlib.import_module("sentencepiece").SentencePieceProcessor(str(path))
    return Library(
        it.encode_as_ids,
        it.decode_ids,
        lambda text: it.encode(text, return_type="offset_mapping"),
    )


def train(texts: Mapping[str, Sequence[str]], vocab_size: int) -> Path:
    """Train a model on a few megabytes; return the file."""
    path = scratch() / "trained.model"
    lines = (
        line for documents in texts.values() for text in documents for line in text.split("\n")
    )
    importlib.import_module("sentencepiece").SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(path.with_suffix("")),
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=True,
        character_coverage=0.9995,
        split_digits=True,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    return path


def as_family(model: Path, name: str, components: Mapping[str, Any]) -> Path:
    """Write a model as a family's tokenizer.json."""
    folder = scratch() / name
    BPETokenizer.from_file(model).save(folder, verbose=False)
    path = folder / "tokenizer.json"
    decoder = {"type": "Sequence", "decoders": components["decoder"]}
    file = {**json.loads(path.read_text("utf-8")), **components, "decoder": decoder}
    path.write_text(json.dumps(file, ensure_ascii=False), encoding="utf-8")
    return path


def _equal(family: str, kind: str, text: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise SystemExit(f"{family}: {kind} of {text[:60]!r} are not equal")


def _over(run: Callable[[Any], Any]) -> Callable[[Sequence[Any]], list[Any]]:
    return lambda given: [run(each) for each in given]


def measure(
    family: str, libraries: Mapping[str, Library], name: str, documents: Sequence[str]
) -> Table:
    """Compare libraries on documents."""
    warm_up, measured = part(documents, 1)
    mine = libraries["bpe_tokenizer"]
    for text in warm_up[:100]:
        ids = mine.encode(text)
        for peer in libraries.values():
            _equal(family, "ids", text, peer.encode(text), ids)
            _equal(family, "texts", text, peer.decode(ids), mine.decode(ids))
        if "tokenizers" in libraries:
            _equal(
                family, "offsets", text, libraries["tokenizers"].offsets(text), mine.offsets(text)
            )
    for library in libraries.values():
        for text in warm_up:
            library.decode(library.encode(text))
    slices = [measured[i::SLICES] for i in range(SLICES)]
    rows: list[dict[str, Any]] = [{"library": library} for library in libraries]
    for call in Library._fields:  # encoding comes first, on text that is new
        runs = {library: _over(getattr(calls, call)) for library, calls in libraries.items()}
        if call == "decode":
            given = [list(map(mine.encode, texts)) for texts in slices]
            seconds = interleaved(runs, given)
        else:
            seconds = interleaved(runs, slices, fresh)
        for row in rows:
            own = seconds[row["library"]]
            row[f"{call}, MB/s"] = megabytes_of(measured) / sum(own)
            row[f"{call}, times"] = median_ratio(own, seconds["bpe_tokenizer"])
    return {
        "about": ["components", family, name],
        "title": f"{family}, {name}: {megabytes_of(measured):.1f} MB; how many times the time of "
        "bpe_tokenizer",
        "rows": rows,
    }


def libraries_for(family: str, path: Path) -> dict[str, Library]:
    """Load a tokenizer with each library that can."""
    found = {"bpe_tokenizer": ours(path)}
    if path.suffix == ".model":
        found["sentencepiece"] = sentencepiece(path)
        return found
    if path.suffix != ".json":
        BPETokenizer.from_file(path).save(scratch() / path.stem, verbose=False)
        path = scratch() / path.stem / "tokenizer.json"
    if is_installed("tokenizers"):
        found["tokenizers"] = tokenizers(path)
    return found


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure each family on each corpus."""
    texts = corpora(options.corpus, options.megabytes + 1)
    files = {path.stem: path for path in options.tokenizer}
    if not files:
        model = train(texts, options.vocab_size)
        for family, components in FAMILIES.items():
            files[family] = as_family(model, family, components) if components else model
    tables = []
    for family, path in files.items():
        for name, documents in texts.items():
            libraries = libraries_for(family, path)  # new ones: their caches are empty
            tables.append(measure(family, libraries, name, documents))
    return tables


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--megabytes", type=float, default=1, help="to measure, per corpus")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="of the trained model")
    parser.add_argument(
        "--tokenizer",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="measure these instead: tokenizer.json, .model or .gguf",
    )
    return parser


if __name__ == "__main__":
    if not is_installed("sentencepiece"):
        sys.exit("this benchmark needs sentencepiece: pip install '.[benchmark]'")
    chosen_options = build_parser().parse_args()
    finish("components", collect(chosen_options), chosen_options.json)
