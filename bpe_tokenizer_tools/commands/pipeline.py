"""The command `pipeline`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from bpe_tokenizer_tools import core

_STEPS = ("corpus", "count", "train", "evaluate", "register")


def _pipeline_options(add: Callable[..., Any]) -> None:
    tables = "[corpus], [train], [evaluate] and [register]"
    add("file", metavar="FILE", help=f"a .toml or .json file with the tables {tables}")
    add("--work-dir", metavar="DIR", help="where all is made; by default FILE with .work")
    each = f"run these though nothing has changed: {', '.join(_STEPS)}"
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
        notify = None if options.quiet else lambda line: print(line, file=sys.stderr)
        report = pipeline.run(**chosen, notify=notify, verbose=not options.quiet)
    if options.json:
        print(json.dumps(report.to_json()))
    elif not options.quiet or options.dry_run:
        report.table().print()
        if report.entry is not None:
            print(f"registered as {report.entry}")


COMMANDS: dict[str, core.Command] = {
    "pipeline": (
        "Make a tokenizer by a file: corpus, training, evaluation, registration.",
        _cmd_pipeline,
        _pipeline_options,
    )
}
