"""Files a corpus comes in: compressed ones, .jsonl, .parquet, and saved counts."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib
import json
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from bpe_tokenizer import FileFormatError, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support import outputs


def zstd() -> Any:
    """Return the zstd module of Python 3.14, or its copy for older versions."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("compression.zstd")
    return core.import_optional("backports.zstd", "reading .zst files", "backports.zstd")


_OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda path, mode: zstd().open(path, mode),
}


_Name = str | os.PathLike[str]  # of a file, or a URL


def suffix_of(name: _Name) -> str:
    """Return the ending that tells a file's format, in lower case, without that of compression.

    >>> suffix_of("a/b.JSONL.gz"), suffix_of("b.txt"), suffix_of("c.gz"), suffix_of("d")
    ('.jsonl', '.txt', '', '')
    """
    path = Path(name)
    return (path.with_suffix("") if path.suffix.lower() in core.COMPRESSED else path).suffix.lower()


@contextlib.contextmanager
def decompressed(name: _Name, file: IO[bytes] | None = None) -> Iterator[IO[bytes]]:
    """Open a file for reading; damage in a compressed one names the file.

    Args:
        name: the file, whose ending tells how it is compressed.
        file: its content, if it has been opened by other means.
    """
    suffix = os.path.splitext(name)[1]
    try:
        with contextlib.ExitStack() as stack:
            if file is None:
                file = stack.enter_context(open(name, "rb"))
            if suffix.lower() in _OPENERS:
                file = stack.enter_context(_OPENERS[suffix.lower()](file, "rb"))
            yield file
    except Exception as error:
        damaged = isinstance(error, (EOFError, lzma.LZMAError, zlib.error)) or (
            isinstance(error, OSError) and error.errno is None  # from gzip and bz2
        )
        if damaged or type(error).__name__ == "ZstdError":
            raise FileFormatError(name, "", f"damaged {suffix} file: {error}") from None
        raise


def compressor(file: IO[bytes], suffix: str) -> IO[bytes]:
    """Write to an open file compressed, as a suffix says; "" writes as it is.

    The same bytes always give the same file: no name and no time is in it.
    """
    if suffix == ".gz":
        return cast("IO[bytes]", gzip.GzipFile("", "wb", 6, file, 0))
    made = _OPENERS[suffix](file, "wb") if suffix else file
    return cast("IO[bytes]", made)


# What to do about a record that has no text; None raises the error.
_OnError = Callable[[FileFormatError], object] | None


def jsonl_documents(
    path: _Name, text_field: str, file: IO[bytes] | None = None, on_error: _OnError = None
) -> Iterator[Iterable[str]]:
    """Yield the text of each line's record, each as chunks."""
    with decompressed(path, file) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield from _good(lambda: _text_on(line, text_field, path, number), on_error)  # noqa: B023


def _good(read: Callable[[], str], on_error: _OnError) -> list[list[str]]:
    """Return one document, or none if its record was bad and that is not an error."""
    try:
        return [[read()]]
    except FileFormatError as error:
        if on_error is None:
            raise
        on_error(error)
        return []


def _text_on(line: bytes, text_field: str, path: _Name, number: int) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, f"line {number}", f"not JSON: {error}") from None
    return _text_of(record, text_field, path, f"line {number}")


def _text_of(record: Any, text_field: str, path: _Name, place: str) -> str:
    """Return the text of a record: of an object's field, or the record itself."""
    text = record.get(text_field) if isinstance(record, dict) else record
    if isinstance(text, str):
        try:
            core.utf8_length(text)
        except ValueError as error:
            raise FileFormatError(path, place, str(error)) from None
        return text
    if isinstance(record, dict) and text_field in record:
        got, hint = core.shorten(text), "leave out records without text"
    else:
        fields = sorted(record) if isinstance(record, dict) else type(record).__name__
        got, hint = core.shorten(fields), "name the right field with text_field"
    raise FileFormatError(
        path, place, f"expected text in the field {text_field!r}, got {got}; {hint}"
    )


def parquet_documents(
    path: _Name, text_field: str, file: IO[bytes] | None = None, on_error: _OnError = None
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
                "name the right one with text_field",
            )
        for row, value in enumerate(_column(table, text_field, path)):
            yield from _good(lambda: _text_in(value, text_field, path, f"row {row}"), on_error)  # noqa: B023


def _column(table: Any, name: str, path: _Name) -> Iterator[Any]:
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


def _text_in(value: Any, text_field: str, path: _Name, place: str) -> str:
    """Return the text of a row."""
    if isinstance(value, UnicodeDecodeError):
        byte = value.object[value.start]
        raise FileFormatError(path, place, f"not UTF-8 ({value.reason}, 0x{byte:02x})")
    return _text_of({text_field: value}, text_field, path, place)


def save_counts(counts: PretokenCounts, path: Path) -> None:
    """Write counts to a JSON file; see `PretokenCounts.save`."""
    facts = {name: value for name, value in vars(counts).items() if name != "in_order" or value}
    write_counts(path, facts, counts.items() if counts.in_order else sorted(counts.items()))


def write_counts(path: Path, facts: Mapping[str, Any], counts: Iterable[tuple[bytes, int]]) -> None:
    """Write counts that need not be in memory, in the order given."""
    head = json.dumps({"format": "bpe_tokenizer.PretokenCounts", **facts}, ensure_ascii=False)
    with outputs.replacing(path) as file:
        file.write(f'{head[:-1]}, "counts": {{'.encode())
        before, quoted = "", json.JSONEncoder(ensure_ascii=False).encode
        for pretoken, count in counts:
            file.write(f"{before}{quoted(core.to_printable(pretoken))}: {count}".encode())
            before = ", "
        file.write(b"}}")


def load_counts(path: Path) -> PretokenCounts:
    """Read what `save_counts` wrote, of any size; if it was spelled anew, up to the usual limit."""
    try:
        with open(path, "rb") as file:
            return _read_counts(file)
    except ValueError:  # what is wrong, and where, is for the JSON reader to say
        if path.stat().st_size > core.MAX_FILE_BYTES:
            raise FileFormatError(path, "", "damaged, or not a file of pre-token counts") from None
    data = core.JsonReader.open(path)
    counts = _no_counts(data)
    for written, count in data.get("counts", dict).items():
        pretoken = core.from_printable(written)
        if pretoken is None or type(count) is not int or count < 0:
            raise data.error(f"bad entry {core.shorten(written)}: {core.shorten(count)}", "counts")
        counts[pretoken] = count
    return counts


def _no_counts(data: core.JsonReader) -> PretokenCounts:
    """Return counts with the attributes that a file gives them, and nothing counted."""
    if data.get("format", str) != "bpe_tokenizer.PretokenCounts":
        raise data.error("not a file of pre-token counts", "format")
    facts = data.get("split_pattern", str), data.get("normalizer", str, None)
    made = data.get("documents", int), data.get("bytes_read", int)
    return PretokenCounts({}, *facts, *made, data.get("in_order", bool, default=False))


_HEAD = re.compile(rb',\s*"counts":\s*\{')
_ENTRY = re.compile(rb'\s*"([^"\\]*(?:\\.[^"\\]*)*)"\s*:\s*(\d+)\s*([,}])', re.DOTALL)
_AT_ONCE = 2**20  # bytes


def _read_counts(file: IO[bytes]) -> PretokenCounts:
    """Read counts entry by entry, so that memory holds them once; ValueError if they are not so."""
    text = file.read(_AT_ONCE)
    head = _HEAD.search(text)
    if head is None:
        raise ValueError
    facts = json.loads(text[: head.start()] + b"}")
    counts = _no_counts(core.JsonReader(facts, Path(file.name)))
    rest = text[head.end() :]
    if rest.split() == [b"}}"] and not file.read(1):
        return counts
    for key, count in _entries(file, rest):
        written = json.loads(b'"%b"' % key) if b"\\" in key else key.decode()
        pretoken = core.from_printable(written)
        if pretoken is None:
            raise ValueError
        counts[pretoken] = int(count)
    return counts


def _entries(file: IO[bytes], text: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while True:
        found = _ENTRY.match(text, at)
        if found is not None:
            yield found[1], found[2]
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
