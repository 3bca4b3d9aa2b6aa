"""The command `doctor`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support import outputs


def _doctor_options(add: Callable[..., Any]) -> None:
    model = "a directory with safetensors, model.safetensors.index.json, or a .safetensors file"
    add("model", metavar="MODEL", help=model)
    own = "the model's tokenizer, in any format; default: the one beside the model"
    add("--tokenizer", metavar="PATH", help=own)
    usual = "default: the one with a usual name"
    add("--input-tensor", metavar="NAME", help=f"the table of input embeddings; {usual}")
    add("--output-tensor", metavar="NAME", help=f"the table of output embeddings; {usual}")
    score = "list tokens from this score on: 0 is a typical token, 1 a row known to be untrained"
    add("--threshold", type=float, default=0.5, metavar="X", help=score)
    add("--limit", type=int, default=20, metavar="N", help="tokens to show in each list")
    add("--csv", metavar="FILE", help="write the figures of every token there")
    add("--plot", metavar="FILE", help="draw norm against cosine, as .png or .svg")


def _cmd_doctor(options: argparse.Namespace) -> None:
    if options.limit < 0:
        raise core.UsageError(f"--limit must be at least 0, got {options.limit}")
    outputs.check_table_and_plot(options.csv, options.plot)
    from bpe_tokenizer_tools.checking.model_doctor import diagnose

    report = diagnose(
        options.model,
        _tokenizer_of(options),
        input_tensor=options.input_tensor,
        output_tensor=options.output_tensor,
        threshold=options.threshold,
    )
    if options.csv is not None:
        outputs.write({Path(options.csv): report.to_csv()})
    if options.plot is not None:
        report.plot(options.plot)
    written = [path for path in (options.csv, options.plot) if path]
    if written and not options.quiet:
        print(f"Wrote {' and '.join(written)}", file=sys.stderr)
    print(json.dumps(report.to_json()) if options.json else report.show(options.limit))


def _tokenizer_of(options: argparse.Namespace) -> BPETokenizer:
    if options.tokenizer is not None:
        return BPETokenizer.from_file(options.tokenizer)
    model = Path(options.model)
    if not model.exists():
        raise FileNotFoundError(f"{model}: no such file or directory")
    try:
        return BPETokenizer.from_file(model if model.is_dir() else model.parent)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; name the model's with --tokenizer") from None


COMMANDS: dict[str, core.Command] = {
    "doctor": (
        "Find tokens that a model has never learned, from its embeddings.",
        _cmd_doctor,
        _doctor_options,
    ),
}
