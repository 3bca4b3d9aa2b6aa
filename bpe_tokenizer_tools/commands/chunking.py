"""The command `chunk`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.command_line import check_least
from bpe_tokenizer_tools.support.text import visible


def _options(add: Callable[..., Any]) -> None:
    kinds = "text, .jsonl or .parquet, compressed or not, or a directory of them"
    add("file", metavar="FILE", help=f"{kinds}; '-' reads text from stdin")
    add("-t", "--tokenizer", required=True, metavar="PATH", help=core.TOKENIZER)
    most = "maximum length of a piece, in tokens"
    add("--tokens", type=int, default=512, metavar="N", help=most)
    before = "start a piece at most N tokens before the end of the previous one"
    add("--overlap", type=int, default=0, metavar="N", help=before)
    names = ("token", "sentence", "paragraph")
    add("--boundary", choices=names, default="token", help="where pieces end, if possible")
    add("--text-field", default="text", metavar="NAME", help="field or column of the text")
    add("--jsonl", action="store_true", help="print a JSON object for each piece, on its own line")


def _documents(options: argparse.Namespace) -> Iterator[Iterable[str]]:
    if options.file == "-":
        return iter([core.stdin_text()])
    return core.file_documents(Path(options.file), options.text_field)


def _pieces(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the pieces of all documents, as they come."""
    tokenizer = BPETokenizer.from_file(options.tokenizer)
    how = options.tokens, options.overlap, options.boundary
    tokenizer.chunk("", *how)  # checks them
    for number, document in enumerate(_documents(options)):
        for piece in tokenizer.chunk(document, *how):
            yield {"document": number, **piece._asdict()}


def _cmd_chunk(options: argparse.Namespace) -> None:
    if options.json and options.jsonl:
        raise core.UsageError("--json prints one object, --jsonl one for each piece; pass one")
    check_least("--tokens", options.tokens, 1)
    check_least("--overlap", options.overlap, 0)
    if options.overlap >= options.tokens:
        problem = f"expected less than --tokens {options.tokens}, got {options.overlap}"
        raise core.UsageError(f"argument --overlap: {problem}")
    if not options.file:
        raise core.UsageError("expected the path of a file, or '-', got ''")
    pieces = _pieces(options)
    if options.json:
        print(json.dumps({"pieces": [*pieces]}))
        return
    for piece in pieces:
        if options.jsonl:
            is_plain = visible(piece["text"]) == piece["text"]
            print(json.dumps(piece, ensure_ascii=not is_plain))
            continue
        place = f"{piece['document']}:{piece['start']}-{piece['end']}"
        print(f"{place:<20} {len(piece['ids']):>6} tokens  {core.shorten(piece['text'], 50)}")


COMMANDS: dict[str, core.Command] = {
    "chunk": (
        "Cut text into pieces of at most N tokens, for retrieval or embeddings.",
        _cmd_chunk,
        _options,
    ),
}
