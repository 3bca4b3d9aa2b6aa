"""Corpus files beyond what the module reads itself: .parquet, bad records, large counts."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from bpe_tokenizer import FileFormatError, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support import outputs


def compressor(file: IO[bytes], suffix: str) -> IO[bytes]:
    """Write to an open file compressed, as a suffix says; "" writes as it is.

    The same bytes always give the same file: no name and no time is in it.
    """
    if suffix == ".gz":
        return cast("IO[bytes]", gzip.GzipFile("", "wb", 6, file, 0))
    return cast("IO[bytes]", core.codec(suffix).open(file, "wb")) if suffix else file


# What to do about a record that has no text; None raises the error.
_OnError = Callable[[FileFormatError], object] | None


def jsonl_documents(
    path: core.FileName, text_field: str, file: IO[bytes] | None = None, on_error: _OnError = None
) -> Iterator[Iterable[str]]:
    """Yield the text of each line's record, each as chunks."""
    with core.decompressed(path, file) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield from _good(lambda: core.text_on(line, text_field, path, number), on_error)  # noqa: B023


def _good(read: Callable[[], str], on_error: _OnError) -> list[list[str]]:
    """Return one document, or none if its record was bad and that is not an error."""
    try:
        return [[read()]]
    except FileFormatError as error:
        if on_error is None:
            raise
        on_error(error)
        return []


def parquet_documents(
    path: core.FileName, text_field: str, file: IO[bytes] | None = None, on_error: _OnError = None
) -> Iterator[Iterable[str]]:
    """Yield the text of each row, each as chunks."""
    parquet = core.import_optional("pyarrow.parquet", "reading .parquet files", "pyarrow")
    try:
        table = parquet.ParquetFile(path if file is None else file)
    except Exception as error:  # pyarrow has many error classes
        raise FileFormatError(path, "", f"not a parquet file: {error}") from None
    with table:
        if text_field not in table.schema_arrow.names:
            raise FileFormatError(
                path,
                "",
                f"no column {text_field!r}, only {core.shorten(table.schema_arrow.names)}; "
                "name the right one with text_field (--text-field)",
            )
        for row, value in enumerate(_column(table, text_field, path)):
            yield from _good(lambda: _text_in(value, text_field, path, f"row {row}"), on_error)  # noqa: B023


def _column(table: Any, name: str, path: core.FileName) -> Iterator[Any]:
    """Yield the values of a column; damage names the file."""
    try:
        for batch in table.iter_batches(batch_size=1024, columns=[name]):
            yield from _values(batch.column(0))
    except (OSError, ValueError) as error:  # those of pyarrow are either
        raise FileFormatError(path, "", f"damaged .parquet file: {error}") from None


def _values(column: Any) -> list[Any]:
    """Return the values of a part of a column; an error for text that is not UTF-8."""
    try:
        return cast("list[Any]", column.to_pylist())
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError as error:
        return error


def _text_in(value: Any, text_field: str, path: core.FileName, place: str) -> str:
    if isinstance(value, UnicodeDecodeError):
        byte = value.object[value.start]
        raise FileFormatError(path, place, f"not UTF-8 ({value.reason}, 0x{byte:02x})")
    return core.text_of({text_field: value}, text_field, path, place)


def write_counts(path: Path, facts: Mapping[str, Any], counts: Iterable[tuple[bytes, int]]) -> None:
    """Write counts as `PretokenCounts.save` does, in the order given; they may come from disk."""
    head = json.dumps({"format": core.COUNTS_FORMAT, **facts}, ensure_ascii=False)
    with outputs.replacing(path) as file:
        file.write(f'{head[:-1]}, "counts": {{'.encode())
        before, quoted = "", json.JSONEncoder(ensure_ascii=False).encode
        for pretoken, count in counts:
            file.write(f"{before}{quoted(core.to_printable(pretoken))}: {count}".encode())
            before = ", "
        file.write(b"}}")


def load_counts(path: Path) -> PretokenCounts:
    """Read saved counts of any size; if they are spelled another way, up to the usual limit."""
    size = path.stat().st_size
    try:
        if size > core.MAX_FILE_BYTES // 8:
            with open(path, "rb") as file:
                return _read_counts(file)
    except ValueError:  # the JSON reader will say what is wrong, and where
        if size > core.MAX_FILE_BYTES:
            raise FileFormatError(path, "", "damaged, or not a file of pre-token counts") from None
    data = core.JsonReader.open(path)
    counts = core.read_counts(data, data.get("counts", dict).items())
    stages = data.child("superwords")
    if stages is None:
        return counts
    from bpe_tokenizer_tools.training import superword_counts

    return superword_counts.read(stages, counts)


_HEAD = re.compile(rb',\s*"counts":\s*\{')
_ENTRY = re.compile(rb'\s*"([^"\\]*(?:\\.[^"\\]*)*)"\s*:\s*(\d+)\s*([,}])', re.DOTALL)
_AT_ONCE = 2**20  # bytes


def _read_counts(file: IO[bytes]) -> PretokenCounts:
    """Read counts entry by entry, so that memory has them only once; ValueError if malformed."""
    text = file.read(_AT_ONCE)
    head = _HEAD.search(text)
    if head is None:
        raise ValueError
    facts = core.JsonReader(json.loads(text[: head.start()] + b"}"), Path(file.name))
    if "superwords" in facts.data:  # there is more to read
        raise ValueError
    rest = text[head.end() :]
    empty = rest.split() == [b"}}"] and not file.read(1)
    return core.read_counts(facts, () if empty else _entries(file, rest))


def _entries(file: IO[bytes], text: bytes) -> Iterator[tuple[str, int]]:
    at = 0
    while True:
        found = _ENTRY.match(text, at)
        if found is not None:
            key = found[1]
            yield json.loads(b'"%b"' % key) if b"\\" in key else key.decode(), int(found[2])
            at = found.end()
            if found[3] == b"}":
                break
        else:
            more = file.read(max(_AT_ONCE, len(text) - at))
            if not more:
                raise ValueError
            text, at = text[at:] + more, 0
    if (text[at:] + file.read(_AT_ONCE)).split() != [b"}"]:
        raise ValueError
