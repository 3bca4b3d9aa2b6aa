"""The command `corpus`."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from typing import Any

from bpe_tokenizer_tools import core


def _corpus_options(add: Callable[..., Any]) -> None:
    add("recipe", metavar="RECIPE", help="a .toml or .json file: sources, fractions, target size")
    endings = "a name that ends in .jsonl or .txt, and maybe .gz, .bz2, .xz or .zst"
    add("--output", metavar="OUT", help=f"{endings}; or a folder, for shards")
    add("--seed", type=int, metavar="N", help="draw with this seed, not with the recipe's")
    add("--format", metavar="NAME", help="for shards: jsonl, txt.gz ...; by default jsonl")
    add("--shard-size", metavar="SIZE", help="for shards: such as '500 MB', before compression")
    add("--separator", default="<|endoftext|>", metavar="TEXT", help="what ends a document in .txt")
    add("--dry-run", action="store_true", help="write nothing, and report what would be taken")


def _cmd_corpus(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.corpus.drawing import Recipe, build_corpus, parse_size

    if options.output is None and not options.dry_run:
        raise core.UsageError("one of the arguments --output and --dry-run is required")
    recipe = Recipe.from_file(options.recipe)
    if options.seed is not None:
        recipe = dataclasses.replace(recipe, seed=options.seed)
    report = build_corpus(
        recipe,
        options.output,
        format=options.format,
        separator=options.separator,
        shard_size=None if options.shard_size is None else parse_size(options.shard_size),
        dry_run=options.dry_run,
        verbose=not options.quiet,
    )
    if options.json:
        print(json.dumps(report.to_json()))
    elif not options.quiet:
        report.table().print()
        print(f"sha256 {report.sha256}")


COMMANDS: dict[str, core.Command] = {
    "corpus": ("Draw documents from sources by a recipe.", _cmd_corpus, _corpus_options)
}
