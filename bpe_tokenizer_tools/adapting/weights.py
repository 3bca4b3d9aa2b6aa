"""Rewriting a model's files of weights with other tables, piece by piece."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.adapting.tables import DTYPES, Table, from_float32, numpy
from bpe_tokenizer_tools.adapting.vocabulary import Matching
from bpe_tokenizer_tools.backends import model_files
from bpe_tokenizer_tools.backends.safetensors import KNOWN_TYPES, Tensor
from bpe_tokenizer_tools.support.files import flush

Init = str | Callable[[bytes, Sequence[int], Any], Any]
Fill = Callable[[Table, Sequence[int]], Any]  # new ids -> their rows, float32

_BLOCK = 2**22  # bytes copied at a time


@dataclass(frozen=True)
class Plan:
    """How to make the rows of the new tables.

    Attributes:
        matching: which tokens keep their rows, and which are new.
        rows: number of rows of a table; rows without a token get the mean of all tokens.
        fill: makes the rows of new tokens.
    """

    matching: Matching
    rows: int
    fill: Fill

    def blocks(self, table: Table) -> Iterator[Any]:
        """Yield the rows of the new table as they are stored, some at a time."""
        dtype = table.tensor.dtype
        kept, new = self.matching.kept, self.matching.new
        for start in range(0, self.rows, table.step):
            ids = range(start, min(start + table.step, self.rows))
            block = numpy.empty((len(ids), table.columns), DTYPES[dtype])
            staying = [id_ for id_ in ids if id_ in kept]
            made = [id_ for id_ in ids if id_ in new]
            if staying:
                places = numpy.asarray(staying) - start
                block[places] = table.stored([kept[id_] for id_ in staying])
            if made:
                block[numpy.asarray(made) - start] = from_float32(self.fill(table, made), dtype)
            padding = [id_ - start for id_ in ids if id_ not in kept and id_ not in new]
            if padding:
                block[padding] = from_float32(table.mean, dtype)
            yield block


def fill_by(init: Init, matching: Matching) -> Fill:
    """Return a function that makes the rows of new tokens.

    Raises:
        ValueError: the method is unknown.
    """
    if callable(init):
        return _by_function(init, matching)

    def mean(table: Table, ids: Sequence[int]) -> Any:
        return numpy.broadcast_to(table.mean, (len(ids), table.columns))

    def zeros(table: Table, ids: Sequence[int]) -> Any:
        return numpy.zeros((len(ids), table.columns), numpy.float32)

    def subword_mean(table: Table, ids: Sequence[int]) -> Any:
        return numpy.stack(list(table.means([matching.new[id_].pieces for id_ in ids])))

    ways = {"subword_mean": subword_mean, "mean": mean, "zeros": zeros}
    if not isinstance(init, str) or init not in ways:
        raise ValueError(
            f"init must be one of {', '.join(map(repr, ways))}, or a function, got {init!r}"
        )
    return ways[init]


def _by_function(init: Callable[..., Any], matching: Matching) -> Fill:
    def by_function(table: Table, ids: Sequence[int]) -> Any:
        made = numpy.empty((len(ids), table.columns), numpy.float32)
        for place, id_ in enumerate(ids):
            raw, pieces = matching.new[id_]
            row = numpy.asarray(init(raw, list(pieces), table.floats(pieces)))
            if row.shape != (table.columns,) or row.dtype.kind not in "fiu":
                raise ValueError(
                    f"init must return a row of {table.columns:,} numbers for {table.tensor.name}, "
                    f"got an array of {row.dtype} with the shape {row.shape} for {raw!r}"
                )
            made[place] = row
        return made

    return by_function


# -- A file -------------------------------------------------------------------


class _Hashed:
    """An output file that also computes its hash."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest = file, hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> None:
        """Write bytes, or an array as it is in memory."""
        self._file.write(data)
        self._digest.update(data)
        self.size += memoryview(data).nbytes

    def facts(self) -> dict[str, Any]:
        """Return the entry of a file in a marker."""
        return {"size": self.size, "sha256": self._digest.hexdigest()}


def rewrite(
    draft: Path,
    tensors: Sequence[Tensor],
    tables: Mapping[str, Table],
    plan: Plan,
    advance: Callable[[int], Any],
) -> dict[str, Any]:
    """Write a safetensors file again; all but the tables are copied.

    Args:
        draft: what to write.
        tensors: those in the file.
        tables: those to make new, by name; others may be among them.
        plan: how.
        advance: called with the number of bytes written.

    Returns:
        Size and sha256 of the output.

    Raises:
        FileFormatError: the source ends before a tensor does.
    """
    ordered = _in_order(tensors, tables, plan.rows)
    with open(draft, "wb") as file:
        out = _Hashed(file)
        out.write(_header(ordered, tables, plan.rows))
        for tensor in ordered:
            name = tensor.name
            for data in plan.blocks(tables[name]) if name in tables else bytes_of(tensor):
                out.write(data)
                advance(memoryview(data).nbytes)
        flush(file)
    return out.facts()


def new_size(tensor: Tensor, tables: Mapping[str, Table], rows: int) -> int:
    """Return the number of bytes of a new tensor."""
    if tensor.name not in tables:
        return tensor.size
    return tensor.size // tensor.shape[0] * rows


def check_header(path: Path, tensors: Sequence[Tensor]) -> dict[str, str] | None:
    """Return the metadata of a file; None if it has none.

    Raises:
        FileFormatError: the metadata, or the type of a tensor, is invalid.
    """
    for tensor in tensors:
        if tensor.dtype not in KNOWN_TYPES:
            problem = (
                f"its values are {core.shorten(tensor.dtype)}, which isn't a type of this format"
            )
            raise FileFormatError(path, core.shorten(tensor.name)[1:-1], problem)
    metadata = model_files._safetensors_header(path).get("__metadata__")
    if metadata is None or (
        isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())
    ):
        return metadata
    raise FileFormatError(path, "__metadata__", "expected an object of strings")


def _in_order(
    tensors: Sequence[Tensor], tables: Mapping[str, Table], rows: int
) -> Sequence[Tensor]:
    """Return tensors in the order of the file, if each will be aligned there.

    If not, those with wide values go first, as the safetensors library orders them.
    """
    ordered, start, is_aligned = sorted(tensors, key=lambda tensor: tensor.start), 0, True
    for tensor in ordered:
        is_aligned = is_aligned and start % _width(tensor) == 0
        start += new_size(tensor, tables, rows)
    return ordered if is_aligned else sorted(ordered, key=lambda tensor: -_width(tensor))


def _header(tensors: Sequence[Tensor], tables: Mapping[str, Table], rows: int) -> bytes:
    """Return the header of a file, preceded by its length."""
    metadata = check_header(tensors[0].path, tensors) if tensors else None
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for tensor in tensors:
        start, end = end, end + new_size(tensor, tables, rows)
        shape = [rows, *tensor.shape[1:]] if tensor.name in tables else tensor.shape
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": shape, "data_offsets": [start, end]}
    packed = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    packed += b" " * (-len(packed) % 8)
    return len(packed).to_bytes(8, "little") + packed


def _width(tensor: Tensor) -> int:
    """Return the number of bytes of a value; 1 if it is unknown, or less than a byte."""
    bits = re.fullmatch(r"[A-Z]+(\d{1,2})(_.*)?", tensor.dtype)
    return max(1, int(bits[1]) // 8) if bits else 1


def bytes_of(tensor: Tensor) -> Iterator[bytes]:
    """Yield the bytes of a tensor, some at a time; raise FileFormatError if the file is cut."""
    left = tensor.size
    with open(tensor.path, "rb", buffering=0) as file:
        file.seek(tensor.start)
        while left:
            data = file.read(min(_BLOCK, left))
            if not data:
                problem = "it extends past the end of the file"
                raise FileFormatError(tensor.path, core.shorten(tensor.name)[1:-1], problem)
            left -= len(data)
            yield data
