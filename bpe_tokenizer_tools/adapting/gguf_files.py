"""A model in GGUF files, for another tokenizer.

A file begins with keys, among them the tokenizer's, and a list of tensors.  The tokenizer's keys
are those of the new one; all others, and all tensors but the tables, are copied as bytes.  A model
that was split into several files becomes one file.

The new file grows in its own directory (`model_folder`).  A journal there says how much of it
is on disk, and with which hash, so that a run that was killed is continued by the next one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core, formats
from bpe_tokenizer_tools.adapting import config_files, model_folder, tables, weights
from bpe_tokenizer_tools.adapting.tables import Table
from bpe_tokenizer_tools.adapting.vocabulary import Matching
from bpe_tokenizer_tools.adapting.weights import Plan
from bpe_tokenizer_tools.backends import model_files
from bpe_tokenizer_tools.backends.safetensors import Tensor
from bpe_tokenizer_tools.formats import gguf
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.files import (
    draft_name,
    flush,
    flush_directory,
    naming,
    status_of,
)

# Source: ggml's header, enum ggml_type; those that models are quantized to most.
_TYPES = {0: "F32", 1: "F16", 30: "BF16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0"}
_TYPES |= {10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K"}
_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_UINT32 = 4
_MAX_TENSORS, _MAX_DIMENSIONS = 2**20, 4
_ALIGNMENT = "general.alignment"
_ID_KEY = re.compile(r"tokenizer\.ggml\.\w+_token_id")
_SPLIT = "split."  # the keys of a model in several files
_CHECKPOINT = 2**26  # bytes that the run after a killed one may have to write again
_BLOCK = 2**22


def check_paths(model: Path, out: Path, force: bool) -> None:
    """Raise an error if a GGUF file can't be adapted to an output.

    Raises:
        FileNotFoundError: it is one of several parts, and another one is missing.
        ValueError: the output's name is not that of another GGUF file.
        FileExistsError: the output is there, and `force` is not set.
    """
    if out.suffix.lower() != ".gguf":
        raise ValueError(f"{out}: expected a name that ends in .gguf, as the model is a GGUF file")
    if part := model_files._SHARD.fullmatch(out.name):
        raise ValueError(
            f"{out}: is the name of one part of several, and the output is one file; call it "
            f"{part[1]}.gguf"
        )
    outputs.check_file(out)
    if out.exists():
        if any(out.samefile(part) for part in model_files._gguf_files(model)):
            raise ValueError(f"{out}: is the model itself; give the output another name")
        if not force:
            raise FileExistsError(f"{out}: already exists; force=True (--force) replaces it")


def read(path: Path) -> GgufFile:
    """Read the headers of all parts of a model as one; one part is given."""
    files = [GgufFile(part) for part in model_files._gguf_files(path)]
    whole, *others = files
    for part in others:
        whole.join(part)
    count, n_tensors = (whole.split.get(_SPLIT + each, 0) for each in ("count", "tensors.count"))
    if count > 1 and count != len(files):
        problem = f"is {count}, so this is a part of a model; name the parts as they were: "
        problem += f"NAME-00001-of-{count:05}.gguf"
        raise FileFormatError(path, f"{_SPLIT}count", problem)
    if others and n_tensors not in (0, len(whole.ordered)):
        problem = f"is {n_tensors:,}, but the parts have {len(whole.ordered):,} tensors"
        raise FileFormatError(whole.path, f"{_SPLIT}tensors.count", problem)
    if others:
        whole.keys = {k: v for k, v in whole.keys.items() if not k.startswith(_SPLIT)}
    return whole


@dataclass(frozen=True)
class _Entry:
    """A tensor as the file lists it."""

    name: str
    shape: tuple[int, ...]  # the first dimension counts the columns
    kind: int
    offset: int  # of its data, from where data begin


class GgufFile:
    """The contents of a file: keys as bytes, the ids in them, and where its tensors are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: dict[str, bytes] = {}  # each with its name
        self.ids: dict[str, int] = {}
        self.vocab_size = ""  # the key that has it
        self.split: dict[str, int] = {}  # what it says of other parts of the model
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
            entries = [self._entry(i) for i in range(n_tensors)]
            self.alignment = alignment
            self.begin = -(-file.tell() // alignment) * alignment
        self.ordered = sorted(entries, key=lambda entry: entry.offset)
        self.spans = self._spans(size)
        self.tensors = {entry.name: self._tensor(entry) for entry in entries}

    def join(self, part: GgufFile) -> None:
        """Add the tensors of another part of the model."""
        for name in part.tensors:
            if name in self.tensors:
                problem = f"is in {self.tensors[name].path.name}, too"
                raise FileFormatError(part.path, core.shorten(name)[1:-1], problem)
        self.ordered += part.ordered
        self.spans.update(part.spans)
        self.tensors.update(part.tensors)

    @property
    def paths(self) -> list[Path]:
        """The files that the tensors are in."""
        return list(dict.fromkeys([self.path, *(each.path for each in self.tensors.values())]))

    def _counts(self) -> tuple[int, int, int]:
        """Read what `gguf.read_keys` checks, and go back to the first key."""
        reader = self._reader
        with open(self.path, "rb") as again:
            counted = gguf._HeaderReader(again, self.path, self.path.stat().st_size)
            _, n_tensors = gguf.read_keys(counted, lambda key: False)
        head = reader.take(24, "the header")
        version, _, n_keys = struct.unpack("<4xIQQ", head)
        if n_tensors > _MAX_TENSORS:
            problem = f"{n_tensors:,} tensors; the limit is {_MAX_TENSORS:,}"
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
        is_read = name == _ALIGNMENT or name.endswith(".vocab_size") or name.startswith(_SPLIT)
        if is_read or _ID_KEY.fullmatch(name):
            value = reader.value(kind).data
            if type(value) is not int:
                raise reader.error(f"expected a whole number, got {core.shorten(value)}")
        else:
            reader.pass_over(kind)
        if _ID_KEY.fullmatch(name):
            self.ids[name] = int(value or 0)
        elif name.endswith(".vocab_size"):
            self.vocab_size = name
        elif name.startswith(_SPLIT):
            self.split[name] = int(value or 0)
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
            raise reader.error(f"{count} dimensions; the limit is {_MAX_DIMENSIONS}")
        shape = tuple(reader.unsigned(gguf._U64, "a dimension") for _ in range(count))
        kind = reader.unsigned(gguf._U32, "the type of a tensor")
        return _Entry(name, shape, kind, reader.unsigned(gguf._U64, "the offset of a tensor"))

    def _spans(self, size: int) -> dict[str, tuple[int, int]]:
        """Return where each tensor's data are, including the bytes before the next tensor's."""
        spans: dict[str, tuple[int, int]] = {}
        ends = [*(self.begin + entry.offset for entry in self.ordered[1:]), size]
        for entry, end in zip(self.ordered, ends):
            start = self.begin + entry.offset
            name = core.shorten(entry.name)[1:-1]
            if entry.name in spans:
                raise FileFormatError(self.path, name, "is given twice")
            if entry.offset % self.alignment or not start < end <= size:
                problem = (
                    f"its data cannot begin at {entry.offset:,}: another tensor's do, the file "
                )
                problem += f"ends there, or that isn't a multiple of {self.alignment}"
                raise FileFormatError(self.path, name, problem)
            spans[entry.name] = start, end
        return spans

    def _tensor(self, entry: _Entry) -> Tensor:
        """Return a tensor with its dimensions in the order of other libraries."""
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
    made = gguf.pad_keys(gguf.keys_of(formats.drop_normalizer(new)), rows)
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


Shown = Callable[[int], contextlib.AbstractContextManager[Callable[[int], Any]]]


def write(
    file: GgufFile,
    out: Path,
    keys: Mapping[str, bytes],
    chosen: Mapping[str, Table],
    plan: Plan,
    job: Mapping[str, Any],
    force: bool,
    shown: Shown,
) -> int:
    """Write the new file, whole or not at all; continue an earlier run's work.

    Args:
        file: the model.
        out: what to write.
        keys: of the new file, packed.
        chosen: the tables to make new, by name.
        plan: how.
        job: what the output depends on, in addition to `file` and `keys`.
        force: whether `out` may be there.
        shown: shows progress on a number of bytes.

    Returns:
        How many tensors an earlier run had written.
    """
    head = _head(file, keys, chosen, plan.rows)
    facts = {
        **job,
        "format": model_folder.FORMAT,
        "head": hashlib.sha256(head).hexdigest(),
        "files": [[str(path.resolve()), *status_of(path)] for path in file.paths],
    }
    with model_folder.working(out, facts) as folder, naming(out, drafts_only=True):
        check_paths(file.path, out, force)  # another run may have made it in the meantime
        draft, journal = folder / "model" / out.name, folder / model_folder.JOURNAL
        before, end = _resume(draft, journal)
        left = [file.tensors[entry.name] for entry in file.ordered[before:]]
        total = sum(weights.new_size(tensor, chosen, plan.rows) for tensor in left)
        with open(draft, "r+b" if before else "wb") as target, shown(total) as advance:
            target.truncate(end)
            target.seek(end)
            growing = _Growing(target, journal)
            if not before:
                growing.write(head)
            for number, entry in enumerate(file.ordered[before:], before + 1):
                for data in _data(file, entry.name, chosen, plan):
                    growing.write(data)
                    advance(memoryview(data).nbytes)
                growing.write(bytes(-target.tell() % file.alignment))
                growing.finished(number)
            flush(target)
        for (_, *status), path in zip(facts["files"], file.paths):
            if status != [*status_of(path)]:
                raise FileFormatError(
                    path, "", "changed while it was being read; run the command again"
                )
        os.replace(draft, out)
        flush_directory(out.resolve().parent)
        journal.unlink(missing_ok=True)
    return before


def _head(
    file: GgufFile, keys: Mapping[str, bytes], chosen: Mapping[str, Table], rows: int
) -> bytes:
    """Return the new file up to where the data of tensors begin."""
    parts = [b"GGUF" + struct.pack("<IQQ", file.version, len(file.ordered), len(keys))]
    parts += keys.values()
    end = 0
    # NOTE: llama.cpp wants the list in the order of the data.
    for entry in file.ordered:
        name, is_table = entry.name, entry.name in chosen
        parts.append(_listed(entry, end, rows, is_table))
        start, stop = file.spans[name]
        size = weights.new_size(file.tensors[name], chosen, rows) if is_table else stop - start
        end += _aligned(size, file.alignment)
    size = sum(map(len, parts))
    return b"".join([*parts, bytes(-size % file.alignment)])


class _Growing:
    """A file that grows step by step, with a journal of what is on disk."""

    def __init__(self, file: IO[bytes], journal: Path) -> None:
        self._file, self._journal = file, journal
        self._digest, self._size = hashlib.sha256(), 0

    def write(self, data: Any) -> None:
        """Write bytes, or an array as it is in memory."""
        self._file.write(data)
        self._digest.update(data)
        self._size += memoryview(data).nbytes

    def finished(self, tensors: int) -> None:
        """Record how many tensors are written, if enough was written since the last record."""
        if self._size < _CHECKPOINT:
            return
        flush(self._file)
        entry = {"tensors": tensors, "size": self._size, "sha256": self._digest.hexdigest()}
        with open(self._journal, "ab") as journal:
            journal.write(json.dumps(entry).encode() + b"\n")
            flush(journal)
        self._digest, self._size = hashlib.sha256(), 0


def _resume(draft: Path, journal: Path) -> tuple[int, int]:
    """Return how many tensors and bytes are written; remove wrong lines from the journal."""
    tensors = end = 0
    kept: list[bytes] = []
    if draft.exists() and journal.exists():
        with open(draft, "rb", buffering=0) as file:
            for line in journal.read_bytes().splitlines(keepends=True):
                found = _verified(file, line)
                if found is None:
                    break
                tensors, end = found[0], end + found[1]
                kept.append(line)
    journal.unlink(missing_ok=True)
    if kept:
        outputs.write({journal: b"".join(kept)})
    return tensors, end


def _verified(file: IO[bytes], line: bytes) -> tuple[int, int] | None:
    """Return the numbers in a line of the journal, if the next bytes of a file have its hash."""
    try:
        tensors, size, expected = map(json.loads(line).get, ("tensors", "size", "sha256"))
    except (ValueError, AttributeError, RecursionError):  # the end of a line that was cut
        return None
    if not line.endswith(b"\n") or type(tensors) is not int or type(size) is not int:
        return None
    digest, left = hashlib.sha256(), size
    while left > 0 and (data := file.read(min(_BLOCK, left))):
        digest.update(data)
        left -= len(data)
    return (tensors, size) if not left and digest.hexdigest() == expected else None


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
    return weights.bytes_of(Tensor(name, file.tensors[name].path, "", (), start, end - start))
