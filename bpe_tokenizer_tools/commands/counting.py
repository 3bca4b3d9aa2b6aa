"""The command `tokens`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.command_line import check_least
from bpe_tokenizer_tools.support.progress import bar, print_above
from bpe_tokenizer_tools.support.text import printable, visible

_PIPE_WIDTH = 7  # digits, if the size of the input isn't known in advance


def _tokens_options(add: Callable[..., Any]) -> None:
    files = "files and directories of text, .jsonl or .parquet, compressed or not; '-', or no FILE,"
    add("files", nargs="*", metavar="FILE", help=f"{files} reads text from stdin")
    add("-t", "--tokenizer", required=True, metavar="PATH", help=core.TOKENIZER)
    add("--limit", type=int, metavar="N", help="exit with status 1 if there are more than N in all")
    allowed = "whether special tokens in the text become their ids"
    add("--allowed-special", default="none", choices=("none", "all"), help=allowed)
    add("--num-workers", type=int, metavar="N", help="number of threads; default: one per core")
    add("--text-field", default="text", metavar="NAME", help="field or column of the text")


def _cmd_tokens(options: argparse.Namespace) -> int:
    check_least("--limit", options.limit, 0)
    check_least("--num-workers", options.num_workers, 1)
    tokenizer = BPETokenizer.from_pretrained(options.tokenizer, verbose=False)
    problems: list[str] = []
    paths = [*_paths(options.files or ["-"], problems)]
    sizes = [os.path.getsize(path) if os.path.isfile(path) else None for path in paths]
    total = None if None in sizes else sum(filter(None, sizes))
    width = len(str(total)) if total is not None else _PIPE_WIDTH
    rows: list[tuple[str, int]] = []
    with bar("Counting", "B", total, shown=not options.quiet) as advance:
        for row in _rows(tokenizer, paths, options, advance, problems):
            rows.append(row)
            if not options.json:
                name = row[0] if options.files else ""
                print_above(f"{row[1]:>{width if len(paths) > 1 else 1}} {_shown(name)}".rstrip())
    counted = sum(number for _, number in rows)
    if options.json:
        files = [{"file": name, "tokens": number} for name, number in rows]
        print(json.dumps({"files": files, "total": counted, "errors": problems}))
    elif len(paths) > 1:
        print(f"{counted:>{width}} total")
    too_many = options.limit is not None and counted > options.limit
    if too_many:
        core.tell("error", f"{counted:,} tokens, more than --limit {options.limit:,}")
    return 1 if problems or too_many else 0


def _paths(names: Iterable[str], problems: list[str]) -> Iterator[str]:
    """Yield the files that names mean, and "-"; report names without any file."""
    from bpe_tokenizer_tools.corpus.token_counts import files_of

    for name in names:
        try:
            yield from ["-"] if name == "-" else map(str, files_of(name))
        except (OSError, ValueError) as error:
            _report(error, problems)


def _rows(
    tokenizer: BPETokenizer,
    paths: Sequence[str],
    options: argparse.Namespace,
    advance: Callable[[int], Any],
    problems: list[str],
) -> Iterator[tuple[str, int]]:
    """Yield each file with its tokens; report files that can't be read, and continue."""
    from bpe_tokenizer_tools.corpus import token_counts

    special, threads = options.allowed_special, options.num_workers
    rest: Any = special, options.text_field, threads, advance
    for path in paths:
        try:
            if path == "-":
                number = token_counts.count_chunks(tokenizer, core.stdin_text(), special, threads)
            else:
                number = token_counts.count_file(tokenizer, path, *rest)
        except (OSError, ValueError) as error:
            _report(error, problems)
        else:
            yield path, number


def _report(error: Exception, problems: list[str]) -> None:
    problems.append(core.one_line(error))
    core.tell("error", error)


def _shown(name: str) -> str:
    """Return a name unchanged for other programs, unless it could break lines or a terminal."""
    is_plain = "\n" not in name and visible(name) == name
    return name if is_plain and not sys.stdout.isatty() else printable(name)


COMMANDS: dict[str, core.Command] = {
    "tokens": ("Count the tokens of files, or of stdin.", _cmd_tokens, _tokens_options),
}
