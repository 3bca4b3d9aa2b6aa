"""The commands `extend`, `prune` and `align`."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.command_line import corpus_options
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.tables import Table

_TOKENIZER = core.TOKENIZER


def _source_options(add: Callable[..., Any], corpus: str) -> None:
    add("tokenizer", metavar="TOKENIZER", help=_TOKENIZER)
    add("--corpus", nargs="+", action="extend", metavar="FILE", help=corpus)
    counts = "pre-token counts written by 'count', instead of --corpus"
    add("--counts", metavar="FILE", help=counts)
    add(
        "-o",
        "--output",
        required=True,
        metavar="DIR",
        help="directory to save the new tokenizer to",
    )
    add("--force", action="store_true", help="overwrite the tokenizer in DIR")
    corpus_options(add)


def _opened(options: argparse.Namespace) -> tuple[BPETokenizer, dict[str, Any]]:
    """Return the tokenizer, and the options that `extend` and `prune` share; check the output."""
    if options.corpus and options.counts is not None:
        raise core.UsageError("--corpus and --counts can't be combined; pass one of them")
    if "-" in (options.corpus or ()):
        raise core.UsageError("--corpus - is not read here; name files")
    outputs.check_directory(options.output)
    core.check_writable(Path(options.output), options.force)
    given = {name: getattr(options, name) for name in ("num_workers", "text_field")}
    if options.corpus:
        given["corpus"] = [*map(Path, options.corpus)]
    if options.counts is not None:
        given["counts"] = PretokenCounts.load(options.counts)
    return BPETokenizer.from_file(options.tokenizer), {**given, "verbose": not options.quiet}


def _extend_options(add: Callable[..., Any]) -> None:
    _source_options(add, "new text to learn from; files and directories as for train")
    add("--add", type=int, default=2000, metavar="N", help="how many tokens to learn")
    strings = "strings to make single tokens, before any are learned"
    add("--tokens", nargs="+", action="extend", metavar="TEXT", help=strings)
    pairs = "merge only pairs this frequent"
    add("--min-frequency", type=int, default=2, metavar="N", help=pairs)
    apart = "text to measure on; NAME=FILE names it; default: some of the corpus's documents"
    add("--held-out", nargs="+", action="extend", metavar="FILE", help=apart)


def _cmd_extend(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.vocabularies import extend

    if not (options.corpus or options.counts or options.tokens):
        raise core.UsageError("one of --corpus, --counts and --tokens is required")
    texts: dict[str, list[Path]] = {}
    for each in options.held_out or ():
        name, path = "", each
        if not Path(each).exists():
            name, _, path = each.rpartition("=") if "=" not in each else each.partition("=")
        texts.setdefault(name or "held out", []).append(Path(path))
    tokenizer, given = _opened(options)
    extended = extend(
        tokenizer,
        add=options.add,
        tokens=options.tokens,
        min_frequency=options.min_frequency,
        held_out=texts or None,
        **given,
    )
    extended.save(options.output, verbose=not options.quiet)
    if options.json:
        print(json.dumps(dataclasses.asdict(extended.training_report)))  # type: ignore[arg-type]


def _prune_options(add: Callable[..., Any]) -> None:
    _source_options(add, "text like what will be encoded; files and directories as for train")
    add("--vocab-size", type=int, metavar="N", help="number of tokens to keep, added ones included")
    add("--min-count", type=int, metavar="N", help="keep the tokens that occur at least N times")
    kept = "tokens to keep, as vocabulary files write them"
    add("--keep", nargs="+", action="extend", default=[], metavar="TOKEN", help=kept)


def _cmd_prune(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.vocabularies import prune

    if not (options.corpus or options.counts):
        raise core.UsageError("one of --corpus and --counts is required")
    if options.vocab_size is None and options.min_count is None:
        raise core.UsageError("one of --vocab-size and --min-count is required")
    tokenizer, given = _opened(options)
    sizes = {"vocab_size": options.vocab_size, "min_count": options.min_count}
    pruned = prune(tokenizer, keep=options.keep, **sizes, **given)
    pruned.save(options.output, verbose=not options.quiet)
    if options.json:
        tokens = {"before": pruned.tokens_before, "after": pruned.tokens_after}
        facts = {"removed": len(pruned.removed), "vocab_size": pruned.tokenizer.vocab_size}
        print(json.dumps({**facts, "tokens": tokens}))


def _align_options(add: Callable[..., Any]) -> None:
    add("a", metavar="A", help=_TOKENIZER)
    add("b", metavar="B", help="the other tokenizer")
    add("--text", required=True, metavar="TEXT", help="text to cut where both cut it")


def _cmd_align(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.vocabularies import align

    a, b = (BPETokenizer.from_file(path) for path in (options.a, options.b))
    blocks = align(a, b, options.text)
    if options.json:
        print(json.dumps([block._asdict() for block in blocks]))
        return
    rows = []
    for start, end, *both in blocks:
        shown = (each.convert_ids_to_tokens(ids) for each, ids in zip((a, b), both))
        rows.append((start, end, *map(" ".join, shown)))
    Table(["start", "end", "a", "b"], rows).print()


COMMANDS: dict[str, core.Command] = {
    "extend": (
        "Add tokens to a tokenizer, learned from new text; all ids stay.",
        _cmd_extend,
        _extend_options,
    ),
    "prune": (
        "Remove the tokens that text uses least; write a map of old ids to new.",
        _cmd_prune,
        _prune_options,
    ),
    "align": ("Cut a text where both of two tokenizers cut it.", _cmd_align, _align_options),
}
