"""The commands `evaluate` and `compare`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support import outputs

_SPEC = "a file or directory in any format, hf:PATH, hf:NAME, tiktoken:NAME or sp:PATH"


def _evaluate_options(add: Callable[..., Any]) -> None:
    add("tokenizers", nargs="+", metavar="TOKENIZER", help=f"{_SPEC}; NAME=TOKENIZER names it")
    _text_options(add)
    add("--alpha", type=float, default=2.5, metavar="N", help="order of the Rényi entropy")
    add("--csv", metavar="FILE", help="write the figures to this file, too")
    add("--plot", metavar="FILE", help="draw them, to a .png or .svg file")


def _text_options(add: Callable[..., Any]) -> None:
    what = "files and directories by group; .jsonl, .parquet, .gz, .bz2, .xz and .zst are read too"
    add("--texts", nargs="+", action="extend", metavar="NAME=PATH", help=what)
    lines = "one file for each language; line n says the same in all"
    add("--parallel", nargs="+", action="extend", metavar="NAME=PATH", help=lines)
    sampled = "take a sample of at most N bytes of each group of --texts, the same each time"
    add("--max-bytes", type=int, metavar="N", help=sampled)
    cut = "where text files are cut into documents; '' leaves them whole"
    add("--separator", default="<|endoftext|>", metavar="TEXT", help=cut)
    add("--text-field", default="text", metavar="NAME", help="where .jsonl and .parquet hold text")


def _texts(options: argparse.Namespace) -> tuple[Any, Any]:
    from bpe_tokenizer_tools.evaluation import file_groups, parallel_lines

    if not options.texts and not options.parallel:
        raise core.UsageError("one of the arguments --texts and --parallel is required")
    if options.max_bytes is not None and options.max_bytes < 1:
        raise core.UsageError(f"--max-bytes must be at least 1, got {options.max_bytes}")
    groups = file_groups(
        options.texts or [], options.separator, options.max_bytes or 0, options.text_field
    )
    return groups, parallel_lines(options.parallel or [], options.text_field)


def _cmd_evaluate(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.evaluation import evaluate, plots

    outputs.check_table_and_plot(options.csv, options.plot)
    texts, parallel = _texts(options)
    found = evaluate(
        options.tokenizers,
        texts,
        parallel=parallel,
        alpha=options.alpha,
        verbose=not options.quiet,
    )
    if options.csv is not None:
        outputs.write({Path(options.csv): found.to_csv()})
    if options.plot is not None:
        plots.plot(found, options.plot)
    _print(found, options)
    for path in filter(None, (options.csv, options.plot)):
        if not options.quiet:
            print(f"Wrote {path}", file=sys.stderr)


def _print(found: Any, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(found.to_json()))
        return
    for i, table in enumerate(found.tables()):
        print("\n" * bool(i), end="")
        table.print()


def _compare_options(add: Callable[..., Any]) -> None:
    add("a", metavar="A", help=f"{_SPEC}; NAME=TOKENIZER names it")
    add("b", metavar="B", help="the other")
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
        print(f"\n{found.verdict}")


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
}
