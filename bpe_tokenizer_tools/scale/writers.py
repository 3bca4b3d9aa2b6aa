"""The files that packed token ids are written to: flat ones, Megatron's, and parquet.

A writer takes the ids of one shard, in parts of any size, to hidden drafts beside the files they
will be. What it writes depends on the ids and on where documents end, and on nothing else.

docs/packed.md describes the files byte by byte.
"""

from __future__ import annotations

import contextlib
import struct
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.files import draft_name, flush, naming

# "auto" is the first one that the largest id fits into.
DTYPES: dict[str, tuple[str, ...]] = {
    "bin": ("uint16", "uint32"),
    "megatron": ("uint16", "int32"),
    "parquet": ("int32", "uint32", "uint16"),
}
FORMATS: tuple[str, ...] = tuple(DTYPES)
STORED = {"uint16": "<u2", "uint32": "<u4", "int32": "<i4"}
_MAX_ID = {"uint16": 2**16 - 1, "uint32": 2**32 - 1, "int32": 2**31 - 1}

# Megatron-LM, megatron/core/datasets/indexed_dataset.py: what an .idx file begins with is this
# magic, the version, the code of the dtype, the number of sequences, and that of document borders.
MEGATRON_HEADER = struct.Struct("<9sQBQQ")
MEGATRON_MAGIC, MEGATRON_VERSION = b"MMIDIDX\0\0", 1
MEGATRON_CODES = {"uint16": 8, "int32": 4}

# The most tokens of one document: Megatron keeps its length, and parquet the bytes of its page, in
# 31 bits.
_LONGEST = {"bin": 2**63, "megatron": 2**31 - 1, "parquet": 2**28}

_BUFFER = 2**20  # bytes
_ROW_GROUP = 2**22  # tokens and documents together: 16 MiB of ids


def resolve_dtype(format: str, dtype: str, max_id: int) -> str:
    """Return the type that ids up to the largest are stored as, in a format.

    "auto" takes 16 bits where all ids fit in them, for "parquet" always 32.

    Raises:
        ValueError: the format or its type is unknown, or the largest id does not fit.

    >>> resolve_dtype("bin", "auto", 50_256), resolve_dtype("megatron", "auto", 128_255)
    ('uint16', 'int32')
    """
    if format not in DTYPES:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    fitting = [name for name in DTYPES[format] if max_id <= _MAX_ID[name]]
    if not fitting:
        raise ValueError(f"the largest id is {max_id:,}, for which {format!r} has no dtype")
    if dtype == "auto":
        return fitting[0]
    would_do = f"use {' or '.join(map(repr, fitting))}, or 'auto'"
    if dtype not in DTYPES[format]:
        raise ValueError(f"the format {format!r} has no dtype {dtype!r}; {would_do}")
    if dtype not in fitting:
        raise ValueError(
            f"dtype {dtype!r} holds ids up to {_MAX_ID[dtype]:,}, and the largest is {max_id:,}; "
            + would_do
        )
    return dtype


def open_writer(format: str, stem: Path, dtype: str) -> Writer:
    """Return a writer of one shard; `dtype` is what `resolve_dtype` returned."""
    makers = {"bin": BinWriter, "megatron": MegatronWriter, "parquet": ParquetWriter}
    if resolve_dtype(format, dtype, 0) != dtype:
        raise ValueError(f"expected the name of a dtype, got {dtype!r}; resolve_dtype gives it")
    return makers[format](stem, dtype)


def import_numpy() -> Any:
    """Return the module numpy, or raise an error that says what needs it."""
    return core.import_optional("numpy", "packing token ids", "numpy")


def npy_header(entries: int) -> bytes:
    """Return the header of a .npy file of n uint64, as numpy.save writes it."""
    fields = f"{{'descr': '<u8', 'fortran_order': False, 'shape': ({entries},), }}"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + fields.ljust(117).encode() + b"\n"


class Writer:
    """Writes the ids of one shard; as a context manager, an exception leaves no file."""

    _format = ""
    _suffixes: tuple[str, ...] = ()

    def __init__(self, stem: Path, dtype: str) -> None:
        self._numpy = import_numpy()
        self._dtype = dtype
        paths = [stem.with_name(stem.name + suffix) for suffix in self._suffixes]
        # the final path of each file -> its draft, which the caller renames after `close`
        self.files: Mapping[Path, Path] = {path: draft_name(path) for path in paths}
        self.documents = self.tokens = 0  # how many were written
        self._length = 0  # of the document that is being written
        self._path = paths[0]
        self._file = self._create(self._path)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.discard)
            if kind is None:
                self.close()
                stack.pop_all()

    def write(self, ids: Any) -> None:
        """Write a part of a document: a numpy array of ids, in one dimension.

        Raises:
            ValueError: an id does not fit the type they are stored as, or the document is longer
                than the format allows.
            OSError: here and below, the disk is full, say; names the final file.
        """
        ids = self._numpy.asarray(ids)
        if not ids.size:
            return
        self._check(ids)
        with naming(self._path):
            self._append(self._numpy.ascontiguousarray(ids, STORED[self._dtype]))
        self._length += ids.size
        self.tokens += ids.size

    def _check(self, ids: Any) -> None:
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ValueError(f"expected a row of ids, got {ids.dtype} of the shape {ids.shape}")
        longest = _LONGEST[self._format]
        if self._length + ids.size > longest:
            raise ValueError(
                f"{self._path}: document {self.documents} has more than {longest:,} tokens, the "
                f"most that the format {self._format!r} can hold; cut it, or use the format 'bin'"
            )
        wrong = int(ids.max())
        if ids.dtype.kind == "i" and ids.min() < 0:
            wrong = int(ids.min())
        if not 0 <= wrong <= _MAX_ID[self._dtype]:
            raise ValueError(f"{self._path}: the id {wrong:,} does not fit into {self._dtype}")

    def end_document(self) -> None:
        """End the document whose parts were written; without any, it is an empty one."""
        self._length = 0
        self.documents += 1
        with naming(self._path):
            self._end()

    def close(self) -> None:
        """Complete the drafts and see that they are on disk; nothing is renamed."""
        if self._file.closed:
            return
        if self._length:
            raise ValueError(f"{self._path}: its last document was begun, and not ended")
        with naming(self._path):
            self._finish()
            flush(self._file)
            self._file.close()
        for path in [*self.files][1:]:
            with naming(path), self._create(path) as file:
                for part in self._index():
                    file.write(part)
                flush(file)

    def discard(self) -> None:
        """Close open files, and remove the drafts; can be called at any time, repeatedly."""
        with contextlib.suppress(Exception):
            self._abandon()
        with contextlib.suppress(OSError):
            self._file.close()
        for draft in self.files.values():
            with contextlib.suppress(OSError):
                draft.unlink()

    def _create(self, path: Path) -> IO[bytes]:
        with naming(path):
            return open(self.files[path], "wb", buffering=_BUFFER)

    def _append(self, ids: Any) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        """Write the rest of the first file."""

    def _index(self) -> Iterator[Any]:
        """Yield the content of the second file."""
        return iter(())

    def _abandon(self) -> None:
        """Release the library's objects."""


class BinWriter(Writer):
    """Writes ids one after another with nothing between, and where documents begin to a .npy."""

    _format = "bin"
    _suffixes = (".bin", ".offsets.npy")

    def __init__(self, stem: Path, dtype: str) -> None:
        super().__init__(stem, dtype)
        self._borders = array("Q", [0])  # in tokens

    def _append(self, ids: Any) -> None:
        self._file.write(ids)

    def _end(self) -> None:
        self._borders.append(self.tokens)

    def _index(self) -> Iterator[Any]:
        yield npy_header(len(self._borders))
        yield self._numpy.asarray(self._borders).astype("<u8", copy=False)


class MegatronWriter(BinWriter):
    """Writes ids as `BinWriter` does, and Megatron's index, in which a document is one sequence."""

    _format = "megatron"
    _suffixes = (".bin", ".idx")

    def _index(self) -> Iterator[Any]:
        borders, numpy = self._numpy.asarray(self._borders), self._numpy
        code = MEGATRON_CODES[self._dtype]
        yield MEGATRON_HEADER.pack(
            MEGATRON_MAGIC, MEGATRON_VERSION, code, self.documents, self.documents + 1
        )
        yield numpy.diff(borders).astype("<i4")  # how many tokens
        yield (borders[:-1] * numpy.dtype(self._dtype).itemsize).astype("<i8")  # at which byte
        yield numpy.arange(self.documents + 1, dtype="<i8")  # which sequence begins each document


class ParquetWriter(Writer):
    """Writes a row for each document, with one column, `input_ids`.

    A row group ends with the document that makes it large enough.
    """

    _format = "parquet"
    _suffixes = (".parquet",)

    def __init__(self, stem: Path, dtype: str) -> None:
        self._arrow = core.import_optional("pyarrow", "writing .parquet files", "pyarrow")
        parquet = core.import_optional("pyarrow.parquet", "writing .parquet files", "pyarrow")
        self._list = self._arrow.list_(self._arrow.type_for_alias(dtype))
        self._schema = self._arrow.schema([("input_ids", self._list)])
        self._start_group()
        super().__init__(stem, dtype)
        try:
            self._table_writer = parquet.ParquetWriter(self._file, self._schema, compression="zstd")
        except BaseException:
            self.discard()
            raise

    def _start_group(self) -> None:
        self._ids = bytearray()
        self._borders = array("i", [0])  # in tokens of this row group

    def _append(self, ids: Any) -> None:
        self._ids += ids.tobytes()

    def _end(self) -> None:
        held = len(self._ids) // self._numpy.dtype(self._dtype).itemsize
        self._borders.append(held)
        if held + len(self._borders) > _ROW_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        held = self._numpy.frombuffer(self._ids, STORED[self._dtype])
        ids = self._arrow.array(held.astype(self._dtype, copy=False))
        borders = self._arrow.array(self._numpy.asarray(self._borders))
        rows = self._arrow.ListArray.from_arrays(borders, ids, type=self._list)
        table = self._arrow.Table.from_arrays([rows], schema=self._schema)
        self._table_writer.write_table(table, row_group_size=max(1, len(table)))
        self._start_group()

    def _finish(self) -> None:
        if len(self._borders) > 1:
            self._write_group()
        self._table_writer.close()

    def _abandon(self) -> None:
        self._table_writer.close()
