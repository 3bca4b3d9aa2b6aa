"""A model in a GGUF file, for another tokenizer.

The file begins with keys, among them the tokenizer's, and a list of tensors.  The tokenizer's keys
are those of the new one; all others, and all tensors but the tables, are copied as bytes.
"""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core, formats
from bpe_tokenizer_tools.adapting import config_files, tables, weights
from bpe_tokenizer_tools.adapting.tables import Table
from bpe_tokenizer_tools.adapting.vocabulary import Matching
from bpe_tokenizer_tools.adapting.weights import Plan
from bpe_tokenizer_tools.backends import model_files
from bpe_tokenizer_tools.backends.safetensors import Tensor
from bpe_tokenizer_tools.formats import gguf
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.files import draft_name

# Source: ggml's header, enum ggml_type; those that models are quantized to most.
_TYPES = {0: "F32", 1: "F16", 30: "BF16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0"}
_TYPES |= {10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K"}
_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_UINT32 = 4
_MAX_TENSORS, _MAX_DIMENSIONS = 2**20, 4
_ALIGNMENT = "general.alignment"
_ID_KEY = re.compile(r"tokenizer\.ggml\.\w+_token_id")


def check_paths(model: Path, out: Path, force: bool) -> None:
    """Raise an error if a GGUF file cannot be adapted to another one.

    Raises:
        ValueError: it is one of several parts, or the output is no name of another GGUF file.
        FileExistsError: the output is there, and `force` is not set.
    """
    if model_files._SHARD.fullmatch(model.name):
        raise ValueError(
            f"{model}: is a part of a model; join all parts first: llama-gguf-split --merge"
        )
    if out.suffix.lower() != ".gguf":
        raise ValueError(f"{out}: expected a name that ends in .gguf, as the model is a GGUF file")
    outputs.check_file(out)
    if out.exists():
        if out.samefile(model):
            raise ValueError(f"{out}: is the model itself; give the output another name")
        if not force:
            raise FileExistsError(f"{out}: is there already; force=True (--force) replaces it")


@dataclass(frozen=True)
class _Entry:
    """A tensor as the file lists it."""

    name: str
    shape: tuple[int, ...]  # the first dimension counts the columns
    kind: int
    offset: int  # of its data, from where data begin


class GgufFile:
    """What a file has: keys as bytes, the ids that keys name, and where its tensors are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: dict[str, bytes] = {}  # each with its name
        self.ids: dict[str, int] = {}
        self.vocab_size = ""  # the key that has it
        alignment = 32
        size = path.stat().st_size
        with open(path, "rb") as file:
            self._reader = gguf._HeaderReader(file, path, size)
            self.version, n_tensors, n_keys = self._counts()
            for _ in range(n_keys):
                alignment = self._key(file) or alignment
            if alignment % 8 or not 8 <= alignment <= 2**20:
                raise FileFormatError(
                    path, _ALIGNMENT, f"expected a multiple of 8, got {alignment}"
                )
            self.entries = [self._entry(i) for i in range(n_tensors)]
            self.alignment = alignment
            self.begin = -(-file.tell() // alignment) * alignment
        self.spans = self._spans(size)
        self.tensors = {entry.name: self._tensor(entry) for entry in self.entries}

    def _counts(self) -> tuple[int, int, int]:
        """Read what `gguf.read_keys` checks, and go back to the first key."""
        reader = self._reader
        with open(self.path, "rb") as again:
            counted = gguf._HeaderReader(again, self.path, self.path.stat().st_size)
            _, n_tensors = gguf.read_keys(counted, lambda key: False)
        head = reader.take(24, "the header")
        version, _, n_keys = struct.unpack("<4xIQQ", head)
        if n_tensors > _MAX_TENSORS:
            problem = f"{n_tensors:,} tensors, at most {_MAX_TENSORS:,} are read"
            raise FileFormatError(self.path, "", problem)
        return version, n_tensors, n_keys

    def _key(self, file: IO[bytes]) -> int | None:
        """Read a key; return its value if it is the alignment."""
        reader, start = self._reader, file.tell()
        reader.field = ""
        name = reader.string(gguf._MAX_KEY_BYTES, "the name of a key")
        reader.field = core.shorten(name)[1:-1]
        kind = reader.unsigned(gguf._U32, "the type of a value")
        value = None
        if name == _ALIGNMENT or _ID_KEY.fullmatch(name) or name.endswith(".vocab_size"):
            value = reader.value(kind).data
            if type(value) is not int:
                raise reader.error(f"expected a whole number, got {core.shorten(value)}")
        else:
            reader.pass_over(kind)
        if _ID_KEY.fullmatch(name):
            self.ids[name] = int(value or 0)
        elif name.endswith(".vocab_size"):
            self.vocab_size = name
        end = file.tell()
        if not name.startswith(("tokenizer.", "bpe_tokenizer.")):
            file.seek(start)
            self.keys[name] = file.read(end - start)
        return value if name == _ALIGNMENT else None

    def _entry(self, number: int) -> _Entry:
        reader = self._reader
        reader.field = f"tensor {number}"
        name = reader.string(gguf._MAX_KEY_BYTES, "the name of a tensor")
        reader.field = core.shorten(name)[1:-1]
        count = reader.unsigned(gguf._U32, "the number of dimensions")
        if count > _MAX_DIMENSIONS:
            raise reader.error(f"{count} dimensions, at most {_MAX_DIMENSIONS} are read")
        shape = tuple(reader.unsigned(gguf._U64, "a dimension") for _ in range(count))
        kind = reader.unsigned(gguf._U32, "the type of a tensor")
        return _Entry(name, shape, kind, reader.unsigned(gguf._U64, "the offset of a tensor"))

    def _spans(self, size: int) -> dict[str, tuple[int, int]]:
        """Return where each tensor's data are, with what is between them and the next one's."""
        spans: dict[str, tuple[int, int]] = {}
        ordered = sorted(self.entries, key=lambda entry: entry.offset)
        ends = [*(self.begin + entry.offset for entry in ordered[1:]), size]
        for entry, end in zip(ordered, ends):
            start = self.begin + entry.offset
            name = core.shorten(entry.name)[1:-1]
            if entry.name in spans:
                raise FileFormatError(self.path, name, "is given twice")
            if entry.offset % self.alignment or not start < end <= size:
                problem = (
                    f"its data cannot begin at {entry.offset:,}: another tensor's do, too, the "
                )
                problem += f"file ends there, or it is no multiple of {self.alignment}"
                raise FileFormatError(self.path, name, problem)
            spans[entry.name] = start, end
        return spans

    def _tensor(self, entry: _Entry) -> Tensor:
        """Return a tensor with its dimensions as other libraries order them."""
        start, end = self.spans[entry.name]
        dtype = _TYPES.get(entry.kind, f"type {entry.kind}")
        width, count = _BYTES.get(dtype), 1
        for dimension in entry.shape:
            count *= dimension
        if width is not None and not count * width <= end - start:
            problem = f"{count:,} values of {dtype} do not fit the {end - start:,} bytes it has"
            raise FileFormatError(self.path, core.shorten(entry.name)[1:-1], problem)
        shape = tuple(reversed(entry.shape))
        taken = end - start if width is None else count * width
        return Tensor(entry.name, self.path, dtype, shape, start, taken)


def find_tables(file: GgufFile, old: BPETokenizer, named: Sequence[str] | None) -> list[Table]:
    """Return the tables with a row for each token; see `tables.find_tables`."""
    token_ids = sorted(core.tokens(old))
    return tables.find_tables(file.tensors, {}, token_ids, named, file.path)


def new_keys(
    file: GgufFile, new: BPETokenizer, matching: Matching, rows: int, given: Mapping[str, Any]
) -> tuple[dict[str, bytes], dict[str, tuple[Any, Any]]]:
    """Return all keys of the new file, packed; and the ids that have changed.

    Raises:
        ValueError: a GGUF file cannot have the tokenizer, or a key names a token that is gone.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is done otherwise is in the report
        formats.contents(new, draft_name(file.path), "gguf")  # which refuses what would be lost
    made = gguf.pad_keys(gguf.keys_of(formats.without_normalizer(new)), rows)
    names = {key.removeprefix("tokenizer.ggml."): key for key in file.ids}
    unknown = sorted(set(given) - names.keys())
    if unknown:
        raise ValueError(f"{file.path}: ids are given for {unknown}, which it does not have")
    changed: dict[str, tuple[Any, Any]] = {}
    for name, key in names.items():
        before = file.ids[key]
        if name in given:
            after = given[name]
            config_files.check_given(name, after, new, lists=False)
        elif key in made:  # the role of a token of the new tokenizer
            after = made[key].data
        elif before == gguf._NONE_ID:
            after = before
        elif before in matching.moved:
            after = matching.moved[before]
        else:
            problem = (
                f"is {before}, a token that the new tokenizer does not have; add it there, or "
            )
            problem += f"give another one with ids={{{name!r}: ...}} (--ids {name}=ID)"
            raise FileFormatError(file.path, key, problem)
        made.pop(key, None)
        if after is not None:
            made[key] = gguf._Value(_UINT32, after)
        if after != before:
            changed[key] = before, after
    packed = dict(file.keys)
    if file.vocab_size:
        packed[file.vocab_size] = gguf.pack_key(file.vocab_size, gguf._Value(_UINT32, rows))
    packed.update({key: gguf.pack_key(key, value) for key, value in made.items()})
    return packed, changed


def write(
    file: GgufFile,
    out: Path,
    keys: Mapping[str, bytes],
    chosen: Mapping[str, Table],
    plan: Plan,
    advance: Callable[[int], Any],
) -> None:
    """Write the new file, whole or not at all."""
    sizes = {
        name: weights.new_size(tensor, chosen, plan.rows) if name in chosen else end - start
        for name, tensor in file.tensors.items()
        for start, end in [file.spans[name]]
    }
    ordered = sorted(file.entries, key=lambda entry: entry.offset)
    offsets, end = {}, 0
    for entry in ordered:
        offsets[entry.name] = end
        end += _aligned(sizes[entry.name], file.alignment)
    with outputs.replacing(out) as target:
        target.write(b"GGUF" + struct.pack("<IQQ", file.version, len(ordered), len(keys)))
        for packed in keys.values():
            target.write(packed)
        # NOTE: llama.cpp wants the list in the order of the data.
        for entry in ordered:
            target.write(_listed(entry, offsets[entry.name], plan.rows, entry.name in chosen))
        target.write(bytes(-target.tell() % file.alignment))
        for entry in ordered:
            for data in _data(file, entry.name, chosen, plan):
                target.write(data)
                advance(memoryview(data).nbytes)
            target.write(bytes(-target.tell() % file.alignment))


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _listed(entry: _Entry, offset: int, rows: int, is_table: bool) -> bytes:
    """Return a tensor as the list has it; the last dimension of a table counts its rows."""
    shape = (*entry.shape[:-1], rows) if is_table else entry.shape
    name = entry.name.encode()
    head = struct.pack("<Q", len(name)) + name + struct.pack("<I", len(shape))
    return head + struct.pack(f"<{len(shape)}QIQ", *shape, entry.kind, offset)


def _data(file: GgufFile, name: str, chosen: Mapping[str, Table], plan: Plan) -> Iterator[Any]:
    if name in chosen:
        return plan.blocks(chosen[name])
    start, end = file.spans[name]
    return weights.bytes_of(Tensor(name, file.path, "", (), start, end - start))
