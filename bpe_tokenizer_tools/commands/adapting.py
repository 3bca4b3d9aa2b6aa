"""The command `adapt`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.text import say

_INITS = ("subword_mean", "mean", "zeros", "omp")


def _adapt_options(add: Callable[..., Any]) -> None:
    add("model", metavar="MODEL", help="a directory with safetensors, or a .gguf file")
    text = "the tokenizer to use from now on, in any format"
    add("-t", "--tokenizer", metavar="NEW", required=True, help=text)
    add(
        "-o",
        "--output",
        metavar="DIR",
        required=True,
        help="directory or .gguf file to create",
    )
    own = "the tokenizer that the model was made with; default: the one in MODEL"
    add("--from", dest="old", metavar="OLD", help=own)
    text = "rows of new tokens: the mean of the tokens they used to be cut into, of all tokens, "
    text += "zeros, or combinations of tokens that both models have (omp)"
    add("--init", choices=_INITS, default=_INITS[0], help=text)
    text = "for --init omp: the model that NEW belongs to; its embeddings decide what to combine"
    add("--donor-model", metavar="DIR", help=text)
    text = "for --init omp: combine at most this many shared tokens for each new one"
    add("--combine", type=int, metavar="K", help=f"{text} (default: 64)")
    text = "for --init omp: tensors of DIR with a row for each token, if unusually named"
    add("--donor-tensors", nargs="+", metavar="NAME", help=text)
    add(
        "--pad-to-multiple-of",
        type=int,
        metavar="N",
        help="round the number of rows up to a multiple of N",
    )
    text = "all tensors with a row for each token, if they have unusual names"
    add("--tensors", nargs="+", metavar="NAME", help=text)
    text = "for fields of config.json whose token is gone: an id, or null"
    add("--ids", nargs="+", action="extend", default=[], metavar="FIELD=ID", help=text)
    add("--force", action="store_true", help="replace the output if it exists")


def _cmd_adapt(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.adapting import adapt_model, transplant

    if (options.init == "omp") != (options.donor_model is not None):
        raise core.UsageError("--init omp and --donor-model DIR go together; expected both or none")
    if options.init != "omp" and (options.combine or options.donor_tensors):
        raise core.UsageError("--combine and --donor-tensors are for --init omp")
    old = None if options.old is None else BPETokenizer.from_file(options.old)
    new = BPETokenizer.from_file(options.tokenizer)
    rest: dict[str, Any] = {
        "pad_to_multiple_of": options.pad_to_multiple_of,
        "force": options.force,
        "verbose": not options.quiet,
        "tensors": options.tensors,
        "ids": dict(map(_parse_id, options.ids)),
    }
    if options.init == "omp":
        rest |= {"donor_model_dir": options.donor_model, "old": old}
        rest |= {"donor_tensors": options.donor_tensors, "combine": options.combine or 64}
        report = transplant(options.model, new, options.output, "omp", **rest)
    else:
        report = adapt_model(options.model, old, new, options.output, options.init, **rest)
    if options.json:
        print(json.dumps(report.to_json()))
    elif not options.quiet:
        say(report)


def _parse_id(text: str) -> tuple[str, Any]:
    field, _, value = text.partition("=")
    try:
        return field, json.loads(value)
    except ValueError:
        problem = f"--ids {core.shorten(text)}: expected FIELD=ID, such as pad_token_id=3, or "
        raise core.UsageError(f"{problem}FIELD=null, or FIELD=[1,2]") from None


COMMANDS: dict[str, core.Command] = {
    "adapt": (
        "Rewrite a model for another tokenizer, without training it.",
        _cmd_adapt,
        _adapt_options,
    ),
}
