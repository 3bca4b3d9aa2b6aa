"""The commands `evaluate`, `compare` and `sweep`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.command_line import corpus_options, superword_options, superwords_of
from bpe_tokenizer_tools.commands.basic import languages_of
from bpe_tokenizer_tools.commands.showing import read_text
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.text import say

_SPEC = (
    "a file or directory in any format, a name such as o200k_base, or, to run another library's, "
    "hf:PATH, hf:NAME, tiktoken:NAME or sp:PATH"
)


def _evaluate_options(add: Callable[..., Any]) -> None:
    add("tokenizers", nargs="+", metavar="TOKENIZER", help=f"{_SPEC}; NAME=TOKENIZER names it")
    _text_options(add)
    add("--alpha", type=float, default=2.5, metavar="N", help="order of the Rényi entropy")
    add("--csv", metavar="FILE", help="write the figures to this file, too")
    add("--plot", metavar="FILE", help="plot them to a .png or .svg file")


def _text_options(add: Callable[..., Any]) -> None:
    kinds = ".jsonl, .parquet, .gz, .bz2, .xz and .zst are read too"
    what = f"files and directories by group, NAME= is optional; {kinds}"
    add("--texts", nargs="+", action="extend", metavar="NAME=PATH", help=what)
    add("--text", metavar="TEXT", help="this text, as a group 'text'; '-' reads it from stdin")
    lines = "one file per language; line n of each is the same sentence"
    add("--parallel", nargs="+", action="extend", metavar="NAME=PATH", help=lines)
    sampled = "take a sample of at most N bytes of each group of --texts, the same each time"
    add("--max-bytes", type=int, metavar="N", help=sampled)
    cut = "where text files are cut into documents; '' leaves them whole"
    add("--separator", default="<|endoftext|>", metavar="TEXT", help=cut)
    add("--text-field", default="text", metavar="NAME", help="field or column of the text")


def _texts(options: argparse.Namespace) -> tuple[Any, Any]:
    from bpe_tokenizer_tools.evaluation import file_groups, parallel_lines

    if not options.texts and not options.parallel and options.text is None:
        raise core.UsageError("one of the arguments --text, --texts and --parallel is required")
    if options.max_bytes is not None and options.max_bytes < 1:
        raise core.UsageError(f"--max-bytes must be at least 1, got {options.max_bytes}")
    groups: dict[str, Any] = {}
    groups |= file_groups(
        options.texts or [], options.separator, options.max_bytes or 0, options.text_field
    )
    if options.text is not None:
        if "text" in groups:
            raise core.UsageError("--text is the group 'text'; give the one of --texts a NAME=")
        groups["text"] = [read_text(options.text, None)]
    return groups, parallel_lines(options.parallel or [], options.text_field)


def _cmd_evaluate(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.evaluation import evaluate, plots

    outputs.check_table_and_plot(options.csv, options.plot)
    texts, parallel = _texts(options)
    found = evaluate(
        options.tokenizers, texts, parallel=parallel, alpha=options.alpha, verbose=not options.quiet
    )
    if options.csv is not None:
        outputs.write({Path(options.csv): found.to_csv()})
    if options.plot is not None:
        plots.plot(found, options.plot)
    _print(found, options)
    for path in filter(None, (options.csv, options.plot)):
        if not options.quiet:
            say(f"Wrote {path}", sys.stderr)


def _print(found: Any, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(found.to_json()))
        return
    for i, table in enumerate(found.tables()):
        print("\n" * bool(i), end="")
        table.print()


def _compare_options(add: Callable[..., Any]) -> None:
    add("a", metavar="A", help=f"{_SPEC}; NAME=TOKENIZER names it")
    add("b", metavar="B", help="the other tokenizer")
    _text_options(add)
    add("--csv", metavar="FILE", help="write the differences by group to this file, too")


def _cmd_compare(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.evaluation import compare

    outputs.check_table_and_plot(options.csv, None)
    texts, parallel = _texts(options)
    found = compare(options.a, options.b, texts, parallel=parallel, verbose=not options.quiet)
    if options.csv is not None:
        outputs.write({Path(options.csv): found.to_csv()})
    _print(found, options)
    if not options.json:
        say(f"\n{found.verdict}")


def _sweep_options(add: Callable[..., Any]) -> None:
    corpus = "text to train on; files and directories as for train"
    add("--corpus", nargs="+", action="extend", metavar="FILE", help=corpus)
    trained = "a trained tokenizer to cut down to each size, instead of --corpus"
    add("-t", "--tokenizer", metavar="PATH", help=trained)
    add("--counts", metavar="FILE", help="counts written by 'count', instead of --corpus")
    alike = "a corpus for each language, instead: compare training with parity and without"
    add("--parity", nargs="+", action="extend", default=[], metavar="LANGUAGE=FILE", help=alike)
    superword_options(add, "learn superwords from this size on")
    apart = "text to measure on, as LANGUAGE=FILE with --parity; default: some of the corpus's "
    apart += "documents, kept out of training; of a single document, some of its lines"
    add("--held-out", nargs="+", action="extend", metavar="FILE", help=apart)
    share = "share of the documents (or of the only one's lines) to hold out from training, "
    share += "without --held-out (default: 0.02)"
    add("--held-out-share", type=float, metavar="X", help=share)
    sizes = "vocabulary sizes, such as 16k 32k 50257 (default: nine from 16k to 256k)"
    add("--sizes", nargs="+", action="extend", type=int, metavar="N", help=sizes)
    add("--width", type=int, metavar="N", help="the model's width (d_model)")
    add("--parameters", type=int, metavar="N", help="budget of the whole model, such as 124M")
    add("--untied", action="store_true", help="the model has an output embedding of its own")
    gain = "share of the tokens that a doubling should save, without --parameters (default: 0.03)"
    add("--min-gain", type=float, metavar="X", help=gain)
    add("-o", "--output", metavar="DIR", help="save the recommended tokenizer to this directory")
    add("--force", action="store_true", help="overwrite the tokenizer in DIR")
    add("--plot", metavar="FILE", help="draw size against compression, as .png or .svg")
    add("--csv", metavar="FILE", help="write the table to this file")
    pairs = "merge only pairs this frequent (default: 2)"
    add("--min-frequency", type=int, metavar="N", help=pairs)
    patterns = f"split pattern: {', '.join(SPLIT_PATTERNS)}, or a regular expression"
    add("--pattern", metavar="NAME", help=f"{patterns} (default: gpt2)")
    each = "special tokens, each as TOKEN or TOKEN=ID"
    add("--special-tokens", nargs="+", action="extend", metavar="TOKEN", help=each)
    forms = (*core.NORMALIZERS, "none")
    add("--normalizer", choices=forms, help="Unicode normalization form (default: NFC)")
    add("--max-token-length", type=int, metavar="N", help="maximum token length in bytes")
    corpus_options(add)


_TRAINING = (
    "held_out_share", "pattern", "normalizer", "special_tokens", "min_frequency",
    "max_token_length",
)  # fmt: skip


def _cmd_sweep(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.evaluation import sweep

    training = _training(options)
    _check_targets(options)
    held_out: Any = [Path(name) for name in options.held_out or ()]
    if options.parity:
        held_out = languages_of(options.held_out or (), "--held-out")
    result = sweep.sweep(
        _source(options),
        held_out or None,
        options.sizes or sweep.SIZES,
        parity=languages_of(options.parity, "--parity") or None,
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
    """Raise for files that can't be written, before anything is trained."""
    if options.output is not None:
        outputs.check_directory(options.output)
        core.check_writable(Path(options.output), options.force)
    outputs.check_table_and_plot(options.csv, options.plot)


def _training(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of training, which don't apply to a trained tokenizer."""
    given = {name: value for name in _TRAINING if (value := getattr(options, name)) is not None}
    if (superwords := superwords_of(options)) is not None:
        given["superwords"] = superwords
    if given and options.tokenizer is not None:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise core.UsageError(f"{named}: only for training, and --tokenizer is already trained")
    if "normalizer" in given and given["normalizer"] == "none":
        given["normalizer"] = None
    if "special_tokens" in given:
        given["special_tokens"] = list(map(core.parse_special_token, given["special_tokens"]))
    if "pattern" in given:
        given["split_pattern"] = given.pop("pattern")
    return given


def _source(options: argparse.Namespace) -> Any:
    names = ("corpus", "counts", "tokenizer", "parity")
    if sum(bool(getattr(options, name)) for name in names) != 1:
        message = "expected exactly one of --corpus, --counts, --tokenizer and --parity"
        raise core.UsageError(message)
    if options.parity:
        return None
    if options.counts is not None:
        if options.pattern or options.normalizer:
            raise core.UsageError("--counts bring their own --pattern and --normalizer")
        if not options.held_out:
            raise core.UsageError("--counts needs --held-out, text to measure on")
        return PretokenCounts.load(options.counts)
    if options.tokenizer is not None:
        if not options.held_out:
            raise core.UsageError("--tokenizer needs --held-out, text to measure on")
        return BPETokenizer.from_file(options.tokenizer)
    if "-" in options.corpus:
        raise core.UsageError("--corpus - is not read here; name files")
    return [Path(name) for name in options.corpus]


def _write(result: Any, options: argparse.Namespace) -> None:
    """Write the requested files."""
    if options.plot is not None:
        result.plot(options.plot)
    if options.csv is not None:
        outputs.write({Path(options.csv): result.to_csv()})
    if options.output is not None:
        size = result.recommendation.size
        result.tokenizer(size).save(options.output, verbose=False)
        if not options.quiet:
            say(f"Saved {size:,} tokens to {options.output}", sys.stderr)


COMMANDS: dict[str, core.Command] = {
    "evaluate": (
        "Measure tokenizers on texts: compression, fertility, efficiency, vocabulary.",
        _cmd_evaluate,
        _evaluate_options,
    ),
    "compare": (
        "Show where two tokenizers cut texts differently, and what that costs.",
        _cmd_compare,
        _compare_options,
    ),
    "sweep": (
        "Measure vocabulary sizes on held-out text, from one training, and recommend one.",
        _cmd_sweep,
        _sweep_options,
    ),
}
