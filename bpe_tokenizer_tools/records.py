"""Files a corpus comes in: compressed ones, .jsonl, .parquet, and saved counts."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib
import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import bpe_tokenizer as core
from bpe_tokenizer import FileFormatError, PretokenCounts


def zstd() -> Any:
    """Return the zstd module of Python 3.14, or its copy for older versions."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("compression.zstd")
    return core._import_optional("backports.zstd", "reading .zst files", "backports.zstd")


_OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda path, mode: zstd().open(path, mode),
}


@contextlib.contextmanager
def decompressed(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading; damage in a compressed one names the file."""
    try:
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            yield file
    except Exception as error:
        damaged = isinstance(error, (EOFError, lzma.LZMAError, zlib.error)) or (
            isinstance(error, OSError) and error.errno is None  # from gzip and bz2
        )
        if damaged or type(error).__name__ == "ZstdError":
            raise FileFormatError(path, "", f"damaged {path.suffix} file: {error}") from None
        raise


def compressor(file: IO[bytes], suffix: str) -> IO[bytes]:
    """Write to an open file compressed, as a suffix says; "" writes as it is.

    The same bytes always give the same file: no name and no time is in it.
    """
    if suffix == ".gz":
        return cast("IO[bytes]", gzip.GzipFile("", "wb", 6, file, 0))
    made = _OPENERS[suffix](file, "wb") if suffix else file
    return cast("IO[bytes]", made)


def jsonl_documents(path: Path, text_field: str) -> Iterator[Iterable[str]]:
    """Yield the text of each line's record, each as chunks."""
    with decompressed(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FileFormatError(path, f"line {number}", f"not JSON: {error}") from None
            yield [_text_of(record, text_field, path, f"line {number}")]


def _text_of(record: Any, text_field: str, path: Path, place: str) -> str:
    """Return the text of a record: of an object's field, or the record itself."""
    text = record.get(text_field) if isinstance(record, dict) else record
    if isinstance(text, str):
        try:
            core._utf8_length(text)
        except ValueError as error:
            raise FileFormatError(path, place, str(error)) from None
        return text
    if isinstance(record, dict) and text_field in record:
        got, hint = core._shorten(text), "leave out records without text"
    else:
        fields = sorted(record) if isinstance(record, dict) else type(record).__name__
        got, hint = core._shorten(fields), "name the right field with text_field"
    raise FileFormatError(
        path, place, f"expected text in the field {text_field!r}, got {got}; {hint}"
    )


def parquet_documents(path: Path, text_field: str) -> Iterator[Iterable[str]]:
    """Yield the text of each row, each as chunks."""
    parquet = core._import_optional("pyarrow.parquet", "reading .parquet files", "pyarrow")
    try:
        file = parquet.ParquetFile(path)
    except Exception as error:  # pyarrow has many error classes
        raise FileFormatError(path, "", f"not a parquet file: {error}") from None
    with file:
        if text_field not in file.schema_arrow.names:
            raise FileFormatError(
                path,
                "",
                f"no column {text_field!r}, only {core._shorten(file.schema_arrow.names)}; "
                "name the right one with text_field",
            )
        for row, value in enumerate(_column(file, text_field, path)):
            yield [_text_of({text_field: value}, text_field, path, f"row {row}")]


def _column(file: Any, name: str, path: Path) -> Iterator[Any]:
    """Yield the values of a column; damage names the file."""
    try:
        for batch in file.iter_batches(batch_size=1024, columns=[name]):
            yield from batch.column(0).to_pylist()
    except (OSError, ValueError) as error:  # those of pyarrow are either
        raise FileFormatError(path, "", f"damaged .parquet file: {error}") from None


def save_counts(counts: PretokenCounts, path: Path) -> None:
    """Write counts to a JSON file; see `PretokenCounts.save`."""
    data = {
        "format": "bpe_tokenizer.PretokenCounts",
        **vars(counts),
        "counts": {
            core._to_printable(pretoken): count for pretoken, count in sorted(counts.items())
        },
    }
    core._write_files({path: json.dumps(data, ensure_ascii=False)})


def load_counts(path: Path) -> PretokenCounts:
    """Read what `save_counts` wrote."""
    data = core._JsonReader.open(path)
    if data.get("format", str) != "bpe_tokenizer.PretokenCounts":
        raise data.error("not a file of pre-token counts", "format")
    counts = PretokenCounts(
        {},
        data.get("split_pattern", str),
        data.get("normalizer", str, None),
        data.get("documents", int),
        data.get("bytes_read", int),
    )
    for written, count in data.get("counts", dict).items():
        pretoken = core._from_printable(written)
        if pretoken is None or type(count) is not int or count < 0:
            raise data.error(
                f"bad entry {core._shorten(written)}: {core._shorten(count)}", "counts"
            )
        counts[pretoken] = count
    return counts
