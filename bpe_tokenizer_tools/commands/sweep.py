"""The command `sweep`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support import outputs


def _sweep_options(add: Callable[..., Any]) -> None:
    corpus = "text to train on; files and directories as for train"
    add("--corpus", nargs="+", action="extend", metavar="FILE", help=corpus)
    trained = "a trained tokenizer to cut smaller, instead of --corpus"
    add("--tokenizer", metavar="PATH", help=trained)
    apart = "text to measure on; default: some of the corpus's documents, kept out of training"
    add("--held-out", nargs="+", action="extend", metavar="FILE", help=apart)
    share = "share of the documents to keep out of training, without --held-out (default: 0.02)"
    add("--held-out-share", type=float, metavar="X", help=share)
    sizes = "vocabulary sizes, such as 16k 32k 50257 (default: nine from 16k to 256k)"
    add("--sizes", nargs="+", action="extend", type=_number, metavar="N", help=sizes)
    add("--width", type=_number, metavar="N", help="of the model (d_model)")
    add("--parameters", type=_number, metavar="N", help="budget of the whole model, such as 124M")
    add("--untied", action="store_true", help="the model has an output embedding of its own")
    gain = "share of the tokens that a doubling should save, without --parameters (default: 0.03)"
    add("--min-gain", type=float, metavar="X", help=gain)
    add("--output", metavar="DIR", help="save the recommended tokenizer there")
    add("--force", action="store_true", help="overwrite a tokenizer that DIR has already")
    add("--plot", metavar="FILE", help="draw size against compression, as .png or .svg")
    add("--csv", metavar="FILE", help="write the table there")
    pairs = "merge only pairs this frequent (default: 2)"
    add("--min-frequency", type=int, metavar="N", help=pairs)
    patterns = f"split pattern: {', '.join(SPLIT_PATTERNS)}, or a regular expression"
    add("--pattern", metavar="NAME", help=f"{patterns} (default: gpt2)")
    each = "special tokens, each as TOKEN or TOKEN=ID"
    add("--special-tokens", nargs="+", action="extend", metavar="TOKEN", help=each)
    forms = (*core.NORMALIZERS, "none")
    add("--normalizer", choices=forms, help="Unicode normalization form (default: NFC)")
    add("--max-token-length", type=int, metavar="N", help="learn tokens shorter than N bytes only")
    add("--num-workers", type=int, metavar="N", help="threads or processes; default: one per core")
    add("--text-field", default="text", metavar="NAME", help="where .jsonl and .parquet hold text")


_TRAINING = (
    "held_out_share", "pattern", "normalizer", "special_tokens", "min_frequency",
    "max_token_length",
)  # fmt: skip


def _number(text: str) -> int:
    from bpe_tokenizer_tools.evaluation.sweep import read_number

    try:
        return read_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _cmd_sweep(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.evaluation import sweep

    training = _training(options)
    _check_targets(options)
    result = sweep.sweep(
        _source(options),
        [Path(name) for name in options.held_out] if options.held_out else None,
        options.sizes or sweep.SIZES,
        width=options.width,
        parameters=options.parameters,
        tied=not options.untied,
        min_gain=sweep.MIN_GAIN if options.min_gain is None else options.min_gain,
        **training,
        num_workers=options.num_workers,
        text_field=options.text_field,
        verbose=not options.quiet,
    )
    _write(result, options)
    if options.json:
        print(json.dumps(result.to_json()))
    else:
        result.print()


def _check_targets(options: argparse.Namespace) -> None:
    """Refuse what cannot be written before anything is trained."""
    if options.output is not None:
        outputs.check_directory(options.output)
        core.check_writable(Path(options.output), options.force)
    outputs.check_table_and_plot(options.csv, options.plot)


def _training(options: argparse.Namespace) -> dict[str, Any]:
    """Return how to train, which a tokenizer that is trained already has no use for."""
    given = {name: value for name in _TRAINING if (value := getattr(options, name)) is not None}
    if given and options.tokenizer is not None:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise core.UsageError(f"{named}: for a training, and --tokenizer is trained already")
    if "normalizer" in given and given["normalizer"] == "none":
        given["normalizer"] = None
    if "special_tokens" in given:
        given["special_tokens"] = list(map(core.parse_special_token, given["special_tokens"]))
    if "pattern" in given:
        given["split_pattern"] = given.pop("pattern")
    return given


def _source(options: argparse.Namespace) -> Any:
    if (options.corpus is None) == (options.tokenizer is None):
        raise core.UsageError("one of --corpus and --tokenizer is required, and only one")
    if options.tokenizer is not None:
        if not options.held_out:
            raise core.UsageError("--tokenizer needs --held-out, text to measure on")
        return BPETokenizer.from_file(options.tokenizer)
    if "-" in options.corpus:
        raise core.UsageError("--corpus - is not read here; name files")
    return [Path(name) for name in options.corpus]


def _write(result: Any, options: argparse.Namespace) -> None:
    """Write what was asked for besides the table."""
    if options.plot is not None:
        result.plot(options.plot)
    if options.csv is not None:
        outputs.write({Path(options.csv): result.to_csv()})
    if options.output is not None:
        size = result.recommendation.size
        result.tokenizer(size).save(options.output, verbose=False)
        if not options.quiet:
            print(f"Saved {size:,} tokens to {options.output}", file=sys.stderr)


COMMANDS: dict[str, core.Command] = {
    "sweep": (
        "Measure vocabulary sizes on held-out text, from one training, and recommend one.",
        _cmd_sweep,
        _sweep_options,
    ),
}
