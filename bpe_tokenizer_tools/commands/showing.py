"""The commands `view`, `trace` and `learn`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.commands.checking import expect_file
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.text import say


def _view_options(add: Callable[..., Any]) -> None:
    add("text", nargs="?", metavar="TEXT", help="the text; '-' reads it from stdin")
    add("-t", "--tokenizer", required=True, metavar="PATH", help=core.TOKENIZER)
    add("--with", dest="other", metavar="OTHER", help="another tokenizer, to show below the first")
    add("--file", metavar="FILE", help="read the text from this file; '-' is stdin")
    add("--ids", action="store_true", help="write the id beneath each token")
    add("--bytes", action="store_true", help="write the bytes beneath each token")
    allowed = "whether special tokens in the text become their ids"
    add("--allowed-special", default="none", choices=("none", "all"), help=allowed)
    page = "write an HTML page that tokenizes as you type"
    add("--html", metavar="OUT", help=page)


def read_text(text: str | None, file: str | None) -> str:
    """Return the text given to a command, directly or as the name of a file."""
    if text is not None and file is not None:
        raise core.UsageError("expected TEXT or --file, not both")
    if "-" in (text, file):
        return "".join(core.stdin_text())
    if file is not None:
        return "".join(core.text_chunks(expect_file(file, "a text file")))
    if text is None:
        raise core.UsageError("expected TEXT, --file FILE, or '-' to read stdin")
    return text


def _cmd_view(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.showing.page import write_page
    from bpe_tokenizer_tools.showing.view import view
    from bpe_tokenizer_tools.support.colors import has_colors

    given = options.text is not None or options.file is not None or not options.html
    text = read_text(options.text, options.file) if given else ""
    if options.html is not None:
        outputs.check_file(options.html)
    tokenizers = _load(options)
    if options.html is not None:
        write_page(tokenizers, Path(options.html), text)
        if options.json:
            print(json.dumps({"html": options.html, "tokenizers": list(tokenizers)}))
        elif not options.quiet:
            say(f"Wrote {options.html}", sys.stderr)
        return
    views = [
        view(text, tokenizer, name=name, allowed_special=options.allowed_special)
        for name, tokenizer in tokenizers.items()
    ]
    if options.json:
        print(json.dumps({"views": [each.to_json() for each in views]}))
        return
    colors = has_colors(sys.stdout, os.environ)
    width = shutil.get_terminal_size().columns
    for number, each in enumerate(views):
        if len(views) > 1:
            print("\n" * (number > 0) + each.heading(colors))
        print(each.render(ids=options.ids, bytes=options.bytes, colors=colors, width=width))


def _load(options: argparse.Namespace) -> dict[str, BPETokenizer]:
    from bpe_tokenizer_tools.support.text import names_of

    paths = [options.tokenizer, *([options.other] if options.other is not None else [])]
    if "" in paths:
        raise core.UsageError("expected the path of a tokenizer, got ''")
    return {name: BPETokenizer.from_file(path) for name, path in zip(names_of(paths), paths)}


def _trace_options(add: Callable[..., Any]) -> None:
    text = "the text, of at most 2,000 characters; '-' reads it from stdin"
    add("text", nargs="?", metavar="TEXT", help=text)
    add("-t", "--tokenizer", required=True, metavar="PATH", help=core.TOKENIZER)
    add("--file", metavar="FILE", help="read the text from this file; '-' is stdin")
    allowed = "whether special tokens in the text become their ids"
    add("--allowed-special", default="none", choices=("none", "all"), help=allowed)
    add("--html", metavar="OUT", help="write an HTML page that walks through the steps")


def _cmd_trace(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.showing.trace import trace
    from bpe_tokenizer_tools.support.colors import has_colors

    if not options.tokenizer:
        raise core.UsageError("expected the path of a tokenizer, got ''")
    if options.html is not None:
        outputs.check_file(options.html)
    text = read_text(options.text, options.file)
    tokenizer = BPETokenizer.from_file(options.tokenizer)
    steps = trace(text, tokenizer, allowed_special=options.allowed_special)
    if options.html is not None:
        steps.to_html(options.html)
        if not options.quiet:
            say(f"Wrote {options.html}", sys.stderr)
    if options.json:
        print(json.dumps(steps.to_json()))
    elif options.html is None:
        print(steps.render(colors=has_colors(sys.stdout, os.environ)))


def _learn_options(add: Callable[..., Any]) -> None:
    add("corpus", metavar="FILE", help="text to learn from; '-' reads it from stdin")
    add("--vocab-size", type=int, default=1_000, metavar="N", help="tokens in all, for each")
    patterns = f"split pattern: {', '.join(SPLIT_PATTERNS)}, or a regular expression"
    add("--pattern", default="gpt2", metavar="NAME", help=patterns)
    apart = "special tokens at which the text is cut; none are learned (default: <|endoftext|>)"
    add("--special-tokens", nargs="*", metavar="TOKEN", help=apart)


def _cmd_learn(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools.learn.side_by_side import END_OF_TEXT, side_by_side

    text = read_text(None, options.corpus)
    given = options.special_tokens
    special_tokens = (END_OF_TEXT,) if given is None else tuple(given)
    learned = side_by_side(text, options.vocab_size, options.pattern, special_tokens)
    say(json.dumps(learned.to_json()) if options.json else learned)


COMMANDS: dict[str, core.Command] = {
    "view": ("Show the tokens of a text, in colors.", _cmd_view, _view_options),
    "trace": (
        "Show how a text becomes ids: every cut and every merge.",
        _cmd_trace,
        _trace_options,
    ),
    "learn": (
        "Train with and without a split pattern, and show side by side what is learned.",
        _cmd_learn,
        _learn_options,
    ),
}
