"""The commands `trace` and `learn`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.commands.view import read_text
from bpe_tokenizer_tools.support import outputs


def _trace_options(add: Callable[..., Any]) -> None:
    where = "a directory or file with a tokenizer, in any format"
    add("text", metavar="TEXT", help="the text, of at most 2,000 characters; '-' reads stdin")
    add("--tokenizer", required=True, metavar="PATH", help=where)
    allowed = "whether special tokens in the text are taken as such"
    add("--allowed-special", default="none", choices=("none", "all"), help=allowed)
    add("--html", metavar="OUT", help="write a page that goes through the steps, for a browser")


def _cmd_trace(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.chat.terminal import has_colours
    from bpe_tokenizer_tools.showing.trace import trace

    if not options.tokenizer:
        raise core.UsageError("expected the path of a tokenizer, got ''")
    if options.html is not None:
        outputs.check_file(options.html)
    text = read_text(options.text, None)
    tokenizer = BPETokenizer.from_file(options.tokenizer)
    steps = trace(text, tokenizer, allowed_special=options.allowed_special)
    if options.html is not None:
        steps.to_html(options.html)
        if not options.quiet:
            print(f"Wrote {options.html}", file=sys.stderr)
    if options.json:
        print(json.dumps(steps.to_json()))
    elif options.html is None:
        print(steps.render(colours=has_colours(sys.stdout, os.environ)))


def _learn_options(add: Callable[..., Any]) -> None:
    add("corpus", metavar="FILE", help="text to learn from; '-' reads it from stdin")
    add("--vocab-size", type=int, default=1_000, metavar="N", help="tokens in all, for each")
    patterns = f"split pattern: {', '.join(SPLIT_PATTERNS)}, or a regular expression"
    add("--pattern", default="gpt2", metavar="NAME", help=patterns)


def _cmd_learn(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.learn.side_by_side import side_by_side

    text = read_text(None, options.corpus)
    learned = side_by_side(text, options.vocab_size, options.pattern)
    print(json.dumps(learned.to_json()) if options.json else learned)


COMMANDS: dict[str, core.Command] = {
    "trace": (
        "Show how a text becomes ids: what is cut where, and every merge.",
        _cmd_trace,
        _trace_options,
    ),
    "learn": (
        "Train with and without a split pattern, and show side by side what is learned.",
        _cmd_learn,
        _learn_options,
    ),
}
