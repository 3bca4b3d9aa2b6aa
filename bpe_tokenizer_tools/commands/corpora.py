"""The commands `corpus`, `count` and `pack`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.command_line import superword_options, superwords_of
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.text import say

if TYPE_CHECKING:
    from bpe_tokenizer_tools.scale.counting import CountJob


def _corpus_options(add: Callable[..., Any]) -> None:
    add("recipe", metavar="RECIPE", help="a .toml or .json file: sources, fractions, target size")
    endings = "a name that ends in .jsonl or .txt, and maybe .gz, .bz2, .xz or .zst"
    add("-o", "--output", metavar="OUT", help=f"{endings}; or a folder, for shards")
    add("--seed", type=int, metavar="N", help="use this seed instead of the recipe's")
    add("--format", metavar="NAME", help="format of shards, such as jsonl (the default) or txt.gz")
    add("--shard-size", metavar="SIZE", help="size of shards before compression, such as '500 MB'")
    add(
        "--separator",
        default="<|endoftext|>",
        metavar="TEXT",
        help="text that ends each document in .txt files",
    )
    add("--dry-run", action="store_true", help="write nothing; report what would be drawn")


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


def _input_options(add: Callable[..., Any]) -> None:
    kinds = "text, .jsonl or .parquet, as .gz, .bz2, .xz or .zst, too"
    help_ = f"files, directories, 'patterns' and URLs: {kinds}"
    add("inputs", nargs="+", metavar="IN", help=help_)
    formats = ("auto", "text", "jsonl", "parquet")
    add("--input-format", choices=formats, default="auto", help="auto decides by each file's name")
    add("--text-field", default="text", metavar="NAME", help="field or column of the text")
    separator = "text between the documents of a file; by default a file is one document"
    add("--separator", metavar="TEXT", help=separator)
    bad = "what to do with documents that aren't UTF-8, JSON or text"
    add("--on-error", choices=("raise", "skip"), default="raise", help=bad)


def _executor_options(add: Callable[..., Any]) -> None:
    executors = ("local", "ray")
    add("--executor", choices=executors, default="local", help="what runs the workers")
    workers = "number of parallel workers; default: one per core"
    add("--num-workers", type=int, metavar="N", help=workers)
    _old_name(add, "--engine", "executor", choices=executors)
    _old_name(add, "--workers", "num_workers", type=int)
    address = "a Ray cluster's, or 'auto'; by default one is started here for this job"
    add("--address", metavar="ADDRESS", help=address)
    add(
        "--max-retries",
        type=int,
        default=3,
        metavar="N",
        help="how often to retry a task whose process died",
    )
    add("--no-resume", action="store_true", help="start over instead of resuming")
    index = "process this share of the shards, from 0: for an array of jobs"
    add("--shard-index", type=int, metavar="I", help=index)
    add("--num-shards", type=int, metavar="N", help="how many shares there are")


def _old_name(add: Callable[..., Any], old: str, field: str, **checks: Any) -> None:
    """Accept an option by its name before 0.9, too, without showing that in help."""
    add(old, dest=field, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **checks)


def _shared_fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that both jobs take from the same options."""
    from bpe_tokenizer_tools.scale.job import Job

    if (options.shard_index is None) != (options.num_shards is None):
        raise core.UsageError("--shard-index and --num-shards go together")
    if options.no_resume and options.shard_index is not None:
        raise core.UsageError(
            "--no-resume can't be combined with --shard-index, because other shares may be "
            "running; remove the directory first"
        )
    return {
        **{each.name: getattr(options, each.name, None) for each in dataclasses.fields(Job)},
        "resume": not options.no_resume,
        "verbose": not options.quiet,
    }


# -- count --------------------------------------------------------------------


def _count_options(add: Callable[..., Any]) -> None:
    _input_options(add)
    add("-o", "--output", metavar="FILE", help="the counts, for train --counts")
    patterns = f"split pattern: {', '.join(SPLIT_PATTERNS)}, or a regular expression"
    add("--pattern", default="gpt2", metavar="NAME", help=patterns)
    cut = "strings that cut a document and are not counted"
    add("--special-tokens", nargs="+", action="extend", default=[], metavar="TOKEN", help=cut)
    forms = (*core.NORMALIZERS, "none")
    add("--normalizer", choices=forms, default="NFC", help="Unicode normalization form")
    rare = "leave out pre-tokens rarer than this"
    add("--min-frequency", type=int, default=1, metavar="N", help=rare)
    _old_name(add, "--min-count", "min_frequency", type=int)
    words = "count for superwords, too, learned from this vocabulary size on, or 'auto'"
    superword_options(add, words)
    largest = "with --superwords: the largest vocabulary to train (default: 32000)"
    add("--vocab-size", type=int, metavar="N", help=largest)
    longest = "with --superwords: maximum token length in bytes"
    add("--max-token-length", type=int, metavar="N", help=longest)
    whole = "to count superwords in one part of a corpus: the counts of all of it, from --add"
    add("--whole", metavar="FILE", help=whole)
    added = "instead of counting, add up IN: files of counts, for parts of a corpus"
    add("--add", action="store_true", help=added)
    add(
        "--partitions",
        type=int,
        default=64,
        metavar="N",
        help="number of parts to split counts into; more parts take less memory",
    )
    keys = "number of distinct pre-tokens that a worker keeps in memory"
    add("--max-keys", type=int, default=2_000_000, metavar="N", help=keys)
    kept = "where to keep work to resume from; default: OUTPUT.work, removed at the end"
    add("--work-dir", metavar="DIR", help=kept)
    _executor_options(add)
    add("--dry-run", action="store_true", help="write nothing; report what would be read")


def _check_count(options: argparse.Namespace) -> None:
    """Raise an error for options that do not go together."""
    is_share = options.shard_index is not None
    if options.output is None and not (is_share or options.dry_run):
        raise core.UsageError("one of --output, --shard-index and --dry-run is required")
    if options.output is not None and is_share:
        raise core.UsageError(
            "--output can't be combined with --shard-index: a run without a share, after all "
            "shares, writes the counts"
        )
    if options.work_dir is None and (is_share or options.address is not None):
        raise core.UsageError("several machines need a --work-dir that all of them share")
    if options.vocab_size is not None and options.superwords is None:
        raise core.UsageError("--vocab-size goes with --superwords; other counts fit any size")
    if options.max_token_length is not None and options.superwords is None:
        raise core.UsageError("--max-token-length goes with --superwords")
    if options.whole is not None and options.superwords is None:
        raise core.UsageError("--whole goes with --superwords; other counts need only be added up")
    if options.work_dir == "":
        raise core.UsageError("expected the path of a directory for --work-dir, got ''")


_OF_COUNTING: dict[str, Any] = {
    "pattern": "gpt2", "special_tokens": [], "normalizer": "NFC", "superwords": None, "whole": None,
    "vocab_size": None, "max_token_length": None, "work_dir": None,
    "shard_index": None, "separator": None, "dry_run": False,
}  # fmt: skip


def _add_counts(options: argparse.Namespace) -> None:
    """Add up files of counts."""
    from bpe_tokenizer_tools.scale.counting import merge_counts

    given = [name for name, usual in _OF_COUNTING.items() if getattr(options, name) != usual]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise core.UsageError(f"--add adds up counts as they are; leave out {names}")
    if options.output is None:
        raise core.UsageError("--add needs --output")
    outputs.check_file(options.output)
    total = merge_counts(map(PretokenCounts.load, options.inputs), options.min_frequency)
    total.save(options.output)
    report = {"documents": total.documents, "bytes": total.bytes_read, "distinct": len(total)}
    if options.json:
        print(json.dumps(report))
    elif not options.quiet:
        say(f"{total.documents:,} documents, {len(total):,} distinct pre-tokens")


def _count_job(options: argparse.Namespace, superwords: Any) -> CountJob:
    from bpe_tokenizer_tools.scale.counting import CountJob

    fields = _shared_fields(options)
    _check_count(options)
    return CountJob(
        options.inputs,
        options.pattern,
        options.special_tokens,
        None if options.normalizer == "none" else options.normalizer,
        work_dir=options.work_dir or f"{options.output}.work",
        partitions=options.partitions,
        max_keys=options.max_keys,
        superwords=superwords,
        vocab_size=options.vocab_size or 32_000,
        max_token_length=options.max_token_length,
        whole=PretokenCounts.load(options.whole) if options.whole is not None else None,
        **fields,
    )


def _cmd_count(options: argparse.Namespace) -> None:
    superwords = superwords_of(options)
    if options.add:
        _add_counts(options)
        return
    job = _count_job(options, superwords)
    if options.dry_run:
        say(json.dumps({"estimate": job.estimate()}) if options.json else job.estimate())
        return
    with _only_results(options.executor):
        if options.shard_index is not None:
            share = options.shard_index, options.num_shards
            report = job.count_share(*share, options.min_frequency)
        else:
            report = job.to_file(options.output, options.min_frequency)
            if options.work_dir is None:
                job.forget()
    if options.json:
        print(json.dumps(report.to_json()))


@contextlib.contextmanager
def _only_results(executor: str) -> Iterator[None]:
    """Keep standard output free of Ray's notices; the ones that matter are also exceptions."""
    if executor != "ray":
        yield
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


# -- pack ---------------------------------------------------------------------


def _pack_options(add: Callable[..., Any]) -> None:
    _input_options(add)
    add("-t", "--tokenizer", required=True, metavar="PATH", help=core.TOKENIZER)
    out = "directory for the shards and the manifest"
    add("-o", "--output", required=True, metavar="DIR", help=out)
    add(
        "--format",
        choices=("bin", "megatron", "parquet"),
        default="bin",
        help="format of the shards",
    )
    add("--dtype", default="auto", metavar="NAME", help="type of the ids: uint16, uint32 or int32")
    add("--bos", metavar="TOKEN", help="token or id to put before each document; default: none")
    eot = "token or id to put after each document; default: the tokenizer's eos token"
    add("--eot", metavar="TOKEN", help=eot)
    add("--no-eot", action="store_true", help="put nothing after a document")
    allowed = "whether special tokens in the text become their ids"
    add("--allowed-special", default="none", choices=("none", "all"), help=allowed)
    _executor_options(add)


def _token(tokenizer: BPETokenizer, text: str | None) -> str | int | None:
    """Return a token as given; a number that is not a token is an id."""
    is_id = text is not None and text.isdecimal() and text not in tokenizer.get_vocab()
    return int(text) if text is not None and is_id else text


def _cmd_pack(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.scale.packing import PackJob

    fields = _shared_fields(options)
    if options.no_eot and options.eot is not None:
        raise core.UsageError("--eot and --no-eot do not go together")
    tokenizer = BPETokenizer.from_file(options.tokenizer)
    job = PackJob(
        tokenizer,
        options.inputs,
        Path(options.output),
        options.format,
        options.dtype,
        _token(tokenizer, options.bos),
        "" if options.no_eot else _token(tokenizer, options.eot),
        options.allowed_special,
        **fields,
    )
    with _only_results(options.executor):
        if options.shard_index is not None:
            report = job.run_share(options.shard_index, options.num_shards)
        else:
            report = job.run()
    if options.json:
        print(json.dumps(report.to_json()))


COMMANDS: dict[str, core.Command] = {
    "corpus": ("Draw documents from sources, following a recipe.", _cmd_corpus, _corpus_options),
    "count": ("Count the pre-tokens of a large corpus, to train from.", _cmd_count, _count_options),
    "pack": ("Encode a large corpus to files of token ids.", _cmd_pack, _pack_options),
}
