"""Tokens of files and of streams of text, counted in constant memory.

A text's count is the number of ids that `encode` gives for the whole text.  It is read in blocks,
and cut only where both sides are encoded independently of each other.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus import documents, records

_Item = TypeVar("_Item")
_Advance = Callable[[int], Any]

_BLOCK = 2**20  # bytes


def files_of(name: str | os.PathLike[str]) -> list[Path]:
    """Return the file of a name, or all files below a directory, sorted, without hidden ones."""
    path = Path(name)
    if not path.is_dir():
        return [path]
    return sorted(file for _, file in documents.expand(str(path)))


def count_file(
    tokenizer: BPETokenizer,
    path: str | os.PathLike[str],
    allowed_special: Any = "none",
    text_field: str = "text",
    num_threads: int | None = None,
    advance: _Advance = lambda n_bytes: None,
) -> int:
    """Count the tokens of a file.

    Args:
        tokenizer: the tokenizer.
        path: a file of text, or a .jsonl or .parquet file, whose texts are counted each on its own;
            .gz, .bz2, .xz and .zst files are decompressed.
        allowed_special: which special tokens a text may spell; by default they are ordinary text.
        text_field: where .jsonl and .parquet files have text.
        num_threads: the number of threads for a text; None for one per core.
        advance: called with the number of bytes read since the last call, as they are on disk.

    Raises:
        FileFormatError: the file is damaged or not UTF-8, or a record has no text; the error names
            the byte, the line or the row.
        OSError: it can't be read.
    """
    path = Path(path)
    suffix = core.suffix_of(path)
    with open(path, "rb") as file:
        if suffix == ".parquet":
            texts = records.parquet_documents(path, text_field, file)
        elif suffix in (".jsonl", ".ndjson"):
            texts = _followed(records.jsonl_documents(path, text_field, file), file, advance)
        else:
            chunks = _text(path, file, advance)
            return count_chunks(tokenizer, chunks, allowed_special, num_threads)
        count = functools.partial(tokenizer.count_tokens, allowed_special=allowed_special)
        return sum(count("".join(text)) for text in texts)


def count_chunks(
    tokenizer: BPETokenizer,
    chunks: Iterable[str],
    allowed_special: Any = "none",
    num_threads: int | None = None,
) -> int:
    """Count the tokens of one text that arrives in chunks, wherever these cut it.

    Arguments as for `count_file`.  NOTE: memory grows with the longest stretch of text that can't
    be cut; see `BPETokenizer.encode_streaming`.

    >>> count_chunks(BPETokenizer(), ["two chu", "nks"])
    10
    """
    if num_threads is not None:
        core.check_size("num_threads", num_threads, 1)
    encoder = core.encoder(tokenizer)
    allowed = core.allowed(tokenizer, allowed_special)

    def count(part: str | AddedToken) -> int:
        return encoder.count(part) if isinstance(part, str) else 1

    parts = core.pipeline(tokenizer, allowed).stream(chunks)
    threads = num_threads or core.cores()
    if threads > 1 and getattr(encoder, "scans", False):  # else Python's lock is held throughout
        first = list(itertools.islice(parts, 2))
        parts = itertools.chain(first, parts)
        if len(first) > 1:
            return _sum_on_threads(count, parts, threads)
    return sum(map(count, parts))


def _sum_on_threads(count: Callable[[_Item], int], items: Iterable[_Item], threads: int) -> int:
    """Sum the counts of items; this thread counts as well where the others have enough to do."""
    total = 0
    given: collections.deque[concurrent.futures.Future[int]] = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(threads - 1) as pool:
        for item in items:
            while given and given[0].done():
                total += given.popleft().result()
            if len(given) < 2 * (threads - 1):
                given.append(pool.submit(count, item))
            else:
                total += count(item)
        return total + sum(future.result() for future in given)


def _text(path: Path, file: IO[bytes], advance: _Advance) -> Iterator[str]:
    """Yield a text file in chunks."""
    with core.decompressed(path, file) as content:
        blocks = iter(functools.partial(content.read, _BLOCK), b"")
        yield from core.decode_chunks(_followed(blocks, file, advance), path)


def _followed(items: Iterable[_Item], file: IO[bytes], advance: _Advance) -> Iterator[_Item]:
    """Pass data of a file on, and report the progress."""
    at, is_pipe = 0, not file.seekable()
    for item in items:
        if not is_pipe:
            before, at = at, file.tell()
            advance(at - before)
        yield item
