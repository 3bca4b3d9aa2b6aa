"""Tables from safetensors files, by rows, without torch.

A file begins with the length of a JSON header, which names each tensor, its type, its
shape and where its bytes are.  Nothing in it is trusted: a tensor must lie within the
file, must have as many bytes as its type and shape take, and may not share them.

Rows are read in blocks and become float32, so a table of any size needs the memory of one
block.  Files are read, not mapped: if another program cuts one short meanwhile, that raises
an error instead of killing the process.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.backends import model_files

INDEX = "model.safetensors.index.json"
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # the types whose rows can be read
_OTHER_BITS = {
    **dict.fromkeys(("I64", "U64", "C64"), 64),
    **dict.fromkeys(("I32", "U32"), 32),
    **dict.fromkeys(("I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
KNOWN_TYPES = frozenset({*_SIZES, *_OTHER_BITS})
_MAX_DIMENSIONS = 16
_BLOCK_BYTES = 2**24  # of float32; larger blocks are no faster


@dataclass(frozen=True)
class Tensor:
    """Where a tensor is.

    Attributes:
        name: its name.
        path: the file it is in.
        dtype: its type, as the format calls it, such as "BF16".
        shape: its dimensions.
        start: offset of its first byte in the file.
        size: its number of bytes.
    """

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int

    def check_readable(self) -> None:
        """Raise unless it is a table whose rows can be read.

        Raises:
            FileFormatError: it is not; the error says what it is.
        """
        shape = " x ".join(f"{n:,}" for n in self.shape) or "a single number"
        if len(self.shape) != 2 or not all(self.shape):
            raise FileFormatError(self.path, self.name, f"expected a table, got {shape}")
        if self.dtype not in _SIZES:
            problem = f"its values are {self.dtype}; expected one of {', '.join(_SIZES)}"
            raise FileFormatError(self.path, self.name, f"{problem} (a quantized model?)")

    def blocks(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of a row, and a float32 array of that row and some that follow.

        Raises:
            FileFormatError: the file ends before the table does.
        """
        self.check_readable()
        numpy = core.import_optional("numpy", "reading tensors", "numpy")
        rows, columns = self.shape
        step = max(1, _BLOCK_BYTES // (4 * columns))
        stored = numpy.dtype({"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}[self.dtype])
        with open(self.path, "rb") as file:
            file.seek(self.start)
            for row in range(0, rows, step):
                count = min(step, rows - row)
                raw = numpy.fromfile(file, stored, count * columns)
                if len(raw) < count * columns:
                    raise FileFormatError(
                        self.path, self.name, "it extends past the end of the file"
                    )
                if self.dtype == "BF16":  # the upper half of a float32
                    raw = (raw.astype("<u4") << 16).view("<f4")
                with numpy.errstate(over="ignore"):
                    values = raw.astype(numpy.float32, copy=False)
                yield row, values.reshape(count, columns)


def tensors(model: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return the tensors of a model, from the headers of its files.

    Args:
        model: a .safetensors file, model.safetensors.index.json, or the directory of
            either.  A file that is one part of several stands for all of them.

    Raises:
        FileNotFoundError: there is no such file, or a part is missing.
        FileFormatError: a file is damaged, or not a safetensors file.
    """
    path = Path(model)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or directory")
    found: dict[str, Tensor] = {}
    for file in _files(path):
        for name, tensor in _tensors_of(file).items():
            if found.setdefault(name, tensor) is not tensor:
                raise FileFormatError(file, name, f"is in {found[name].path.name}, too")
    return found


def _files(path: Path) -> list[Path]:
    part = re.fullmatch(r".*-\d{5}-of-\d{5}\.safetensors", path.name)
    if path.name == INDEX or (part and path.with_name(INDEX).exists()):
        path = path.parent
    if not path.is_dir():
        return [path]
    files = model_files._safetensors(path)
    for file in files:
        if not file.is_file():
            raise FileFormatError(file, "", "expected a file with weights")
    if files:
        return files
    if (path / "pytorch_model.bin").exists() or list(path.glob("pytorch_model-*.bin")):
        problem = "its weights are pickled, which can run code; convert it, and save safetensors"
        raise FileFormatError(path, "pytorch_model.bin", problem)
    raise FileNotFoundError(f"{path}: contains no model.safetensors, and no {INDEX}")


def _tensors_of(path: Path) -> dict[str, Tensor]:
    header = model_files._safetensors_header(path)
    header.pop("__metadata__", None)
    length = path.stat().st_size
    with open(path, "rb") as file:
        begin = 8 + int.from_bytes(file.read(8), "little")
    found = {name: _tensor(path, name, fields, begin) for name, fields in header.items()}
    spans = sorted((*fields["data_offsets"], name) for name, fields in header.items())
    for (_, end, first), (start, _, second) in itertools.pairwise(spans):
        if start < end:
            problem = f"shares bytes with {core.shorten(second)}"
            raise FileFormatError(path, core.shorten(first)[1:-1], problem)
    end = begin + max((end for _, end, _ in spans), default=0)
    if end > length:  # another program just cut it short
        raise FileFormatError(path, "", "cut short")
    if end < length:
        problem = f"has {length - end:,} extra bytes after its last tensor"
        raise FileFormatError(path, "", problem)
    return found


def _tensor(path: Path, name: str, fields: Mapping[str, Any], begin: int) -> Tensor:
    dtype, shape = fields["dtype"], fields["shape"]
    start, end = fields["data_offsets"]
    if len(shape) > _MAX_DIMENSIONS:
        problem = f"{len(shape)} dimensions; the limit is {_MAX_DIMENSIONS}"
        raise FileFormatError(path, core.shorten(name)[1:-1], problem)
    bits = _SIZES[dtype] * 8 if dtype in _SIZES else _OTHER_BITS.get(dtype)
    if bits is not None and math.prod(shape) * bits != (end - start) * 8:
        written = core.shorten(" x ".join(map(str, shape)) or "1")[1:-1]
        problem = f"{written} values of {dtype} don't fit its {end - start:,} bytes"
        raise FileFormatError(path, core.shorten(name)[1:-1], problem)
    return Tensor(name, path, dtype, tuple(shape), begin + start, end - start)
