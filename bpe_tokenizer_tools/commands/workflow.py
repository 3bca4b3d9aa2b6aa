"""The commands `pipeline`, `register`, `list`, `show`, `load` and `diff`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.commands import checking
from bpe_tokenizer_tools.support.text import say

if TYPE_CHECKING:
    from bpe_tokenizer_tools.workflow.registry import Entry, Registry

_STEPS = ("corpus", "count", "train", "evaluate", "register")


def _pipeline_options(add: Callable[..., Any]) -> None:
    tables = "[corpus], [train], [evaluate] and [register]"
    add("file", metavar="FILE", help=f"a .toml or .json file with the tables {tables}")
    add("--work-dir", metavar="DIR", help="directory for all results; default: FILE with .work")
    each = f"run these steps even if nothing has changed: {', '.join(_STEPS)}"
    add(
        "--force", nargs="+", action="extend", default=[], choices=_STEPS, metavar="STEP", help=each
    )
    add("--until", choices=_STEPS, metavar="STEP", help="stop after this step")
    add("--dry-run", action="store_true", help="change nothing; say what would run, and why")


def _cmd_pipeline(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.workflow.pipeline import Pipeline

    pipeline = Pipeline(options.file, options.work_dir)
    chosen = {"force": options.force, "until": options.until}
    if options.dry_run:
        report = pipeline.plan(**chosen)
    else:
        notify = None if options.quiet else lambda line: say(line, sys.stderr)
        report = pipeline.run(**chosen, notify=notify, verbose=not options.quiet)
    if options.json:
        print(json.dumps(report.to_json()))
    elif not options.quiet or options.dry_run:
        report.table().print()
        if report.entry is not None:
            say(f"registered as {report.entry}")


_REF = "NAME@HASH, with four or more digits of the hash; NAME alone means the newest"


def _registry_options(add: Callable[..., Any]) -> None:
    where = "default: $BPE_TOKENIZER_REGISTRY, or a directory among your own data"
    add("--registry", metavar="DIR", help=f"the registry's directory; {where}")


def _open(options: argparse.Namespace) -> Registry:
    from bpe_tokenizer_tools.workflow.registry import Registry

    if options.registry == "":
        raise core.UsageError("expected the directory of a registry, got ''")
    return Registry(options.registry)


# -- register -----------------------------------------------------------------


def _register_options(add: Callable[..., Any]) -> None:
    add("path", metavar="PATH", help=core.TOKENIZER)
    add("name", metavar="NAME", help="what to register it as: letters, digits, '.', '_' and '-'")
    text = "facts to keep with it, each as KEY=VALUE"
    add("--metadata", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=text)
    add("--corpus-sha256", metavar="HASH", help="sha256 of the text that it was trained on")
    add("--report", metavar="FILE", help="a JSON file on its training or its evaluation")
    checking.loading_options(add)
    _registry_options(add)


def _cmd_register(options: argparse.Namespace) -> None:
    registry = _open(options)
    metadata = _parse_metadata(options.metadata)
    report = None if options.report is None else _read_json(options.report)
    tokenizer = checking.load(options.path, options)
    entry = registry.register(
        tokenizer,
        options.name,
        metadata=metadata,
        corpus_sha256=options.corpus_sha256,
        report=report,
    )
    facts = {**entry.to_json(), "is_new": entry.is_new}
    print(json.dumps(facts) if options.json else entry.ref)
    if not options.quiet and not options.json:
        what = "Registered" if entry.is_new else f"Registered already, on {entry.created[:10]}:"
        say(f"{what} {tokenizer.vocab_size:,} tokens in {registry.path}", sys.stderr)


def _parse_metadata(items: list[str]) -> dict[str, str]:
    metadata: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise core.UsageError(f"--metadata {core.shorten(item)}: expected KEY=VALUE")
        if key in metadata:
            raise core.UsageError(f"--metadata {core.shorten(key)} is given twice")
        metadata[key] = value
    return metadata


def _read_json(path: str) -> Any:
    try:
        with core.decompressed(checking.expect_file(path, "a report as JSON")) as file:
            return json.loads(file.read().decode())
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, "", f"expected JSON: {error}") from None


# -- list ---------------------------------------------------------------------


def _list_options(add: Callable[..., Any]) -> None:
    add("name", nargs="?", metavar="NAME", help="list the versions of this name only")
    add("--check", action="store_true", help="read every file of every tokenizer, too")
    _registry_options(add)


def _cmd_list(options: argparse.Namespace) -> int:
    registry = _open(options)
    problems = registry.problems(options.name, deep=options.check)
    broken = {problem.path for problem in problems}
    entries = [
        entry
        for entry in registry.entries(options.name)
        if not any(Path(path).is_relative_to(entry.path) for path in broken)
    ]
    if options.json:
        rows = [entry.to_json() for entry in entries]
        print(json.dumps({"entries": rows, "problems": list(map(str, problems))}))
    else:
        _table(entries).print()
        for problem in problems:
            core.tell("error", problem)
    return 1 if problems else 0


def _table(entries: list[Entry]) -> Any:
    from bpe_tokenizer_tools.support.tables import Table

    rows = [
        (
            entry.ref,
            entry.facts.get("vocab_size"),
            f"{entry.created[:19]}Z",
            None if entry.corpus_sha256 is None else entry.corpus_sha256[:12],
            ", ".join(f"{key}={value}" for key, value in entry.metadata.items()) or None,
        )
        for entry in entries
    ]
    return Table(["version", "tokens", "registered", "corpus", "metadata"], rows)


# -- show, load, diff ---------------------------------------------------------


def _show_options(add: Callable[..., Any]) -> None:
    add("ref", metavar="REF", help=_REF)
    _registry_options(add)


def _cmd_show(options: argparse.Namespace) -> None:
    entry = _open(options).show(options.ref)
    say(json.dumps(entry.to_json()) if options.json else entry)


def _load_options(add: Callable[..., Any]) -> None:
    add("ref", metavar="REF", help=_REF)
    add("-o", "--output", required=True, metavar="DIR", help="a directory that is new or empty")
    _registry_options(add)


def _cmd_load(options: argparse.Namespace) -> None:
    if not options.output:
        raise core.UsageError("expected the directory to write to, got ''")
    entry = _open(options).copy(options.ref, options.output)
    if options.json:
        print(json.dumps({**entry.to_json(), "output": options.output}))
    else:
        print(entry.ref)
        if not options.quiet:
            say(f"Wrote {', '.join(entry.files)} to {options.output}", sys.stderr)


def _diff_options(add: Callable[..., Any]) -> None:
    add("a", metavar="A", help=_REF)
    add("b", metavar="B", help="the other tokenizer")
    _registry_options(add)


def _cmd_diff(options: argparse.Namespace) -> None:
    found = _open(options).diff(options.a, options.b)
    say(json.dumps(found.to_json()) if options.json else found)


COMMANDS: dict[str, core.Command] = {
    "pipeline": (
        "Run all steps from one file: corpus, training, evaluation, registration.",
        _cmd_pipeline,
        _pipeline_options,
    ),
    "register": (
        "Store a tokenizer in a registry, under a name and the hash of its content.",
        _cmd_register,
        _register_options,
    ),
    "list": ("List the tokenizers in a registry.", _cmd_list, _list_options),
    "show": ("Describe a registered tokenizer, and check its files.", _cmd_show, _show_options),
    "load": ("Write a registered tokenizer to a directory, checked.", _cmd_load, _load_options),
    "diff": ("Compare two registered tokenizers.", _cmd_diff, _diff_options),
}
