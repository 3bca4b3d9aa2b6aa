"""Reading a packed corpus: documents, and windows for a training loop, by memory maps."""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.scale import writers

MANIFEST = "manifest.json"
FORMAT, VERSION = "bpe_tokenizer.packed", 1

# A mapped file keeps a descriptor open, of which a process may have few: 256 on macOS.
_MAPPED = 64
_MOST = 2**60  # tokens or documents


def open_packed(path: str | os.PathLike[str], *, dtype: str | None = None) -> PackedCorpus:
    """Open the output of `encode_corpus` in the format "bin" or "megatron".

    Only the manifest is read now; a shard's files are mapped, and checked, when they are needed.

    Args:
        path: the output directory, or one .bin file. The file .offsets.npy or .idx next to a .bin
            file has the borders of documents; without them, it is read as a single document.
        dtype: the type of the ids in a .bin file, if no file next to it says it.

    Raises:
        FileNotFoundError: there is no such file, or no manifest in the directory: its job has not
            finished.
        FileFormatError: the manifest, or a file next to the .bin file, is damaged.
        ValueError: the file is parquet or not a .bin file; or its dtype is unknown, or not `dtype`.
        ImportError: numpy is not installed.
    """
    return PackedCorpus(path, dtype)


class PackedCorpus(Sequence[Any]):
    """The documents of a packed corpus, each an array of ids; `open_packed` makes one.

    You own the arrays you get: changing them changes nothing else. Threads can share a corpus, and
    you can use it after a fork. A pickle only contains the path; unpickling opens the files again.

    Attributes:
        path: where it is.
        manifest: the content of the manifest, or of the .json next to a .bin file.
        dtype: the type of the ids, a numpy dtype.
        documents: how many there are.
        tokens: how many ids there are.
    """

    def __init__(self, path: str | os.PathLike[str], dtype: str | None = None) -> None:
        self._numpy = writers.import_numpy()
        # absolute: its files are opened later, and the working directory may change until then
        self.path, self._said = Path(os.path.abspath(path)), dtype
        if dtype not in (None, *writers.STORED):
            raise ValueError(f"dtype must be one of {', '.join(writers.STORED)}, got {dtype!r}")
        job = _job_of(self.path, dtype)
        if dtype not in (None, job.dtype):
            raise ValueError(f"{path}: its ids are {job.dtype}, not {dtype}; leave out dtype")
        self.manifest = job.manifest
        self.dtype = self._numpy.dtype(job.dtype)
        self._shards = job.shards
        self._first_document = [0, *itertools.accumulate(each.documents for each in job.shards)]
        self._first_token = [0, *itertools.accumulate(each.tokens for each in job.shards)]
        self.documents, self.tokens = self._first_document.pop(), self._first_token.pop()
        # not methods: a cache that held its own object would keep files open after their use
        self._ids = functools.lru_cache(_MAPPED)(functools.partial(_map_ids, job.dtype))
        self._borders = functools.lru_cache(_MAPPED)(functools.partial(_map_borders, job.dtype))

    def __reduce__(self) -> tuple[type, tuple[str, str | None]]:
        return PackedCorpus, (str(self.path), self._said)

    def __repr__(self) -> str:
        size = f"{self.documents:,} documents, {self.tokens:,} tokens"
        return f"<PackedCorpus {str(self.path)!r}: {size}, {self.dtype.name}>"

    def __len__(self) -> int:
        return self.documents

    def __iter__(self) -> Iterator[Any]:
        return map(self._document, range(self.documents))

    def __getitem__(self, index: Any) -> Any:
        """Return the ids of a document; of a slice, a list of such arrays."""
        chosen = range(self.documents)
        if isinstance(index, slice):
            return [self._document(number) for number in chosen[index]]
        try:
            number = chosen[operator.index(index)]
        except IndexError:
            raise IndexError(f"document {index:,} of {self.documents:,}") from None
        return self._document(number)

    def _document(self, number: int) -> Any:
        at = bisect.bisect_right(self._first_document, number) - 1
        shard, number = self._shards[at], number - self._first_document[at]
        borders = self._borders(shard)
        begin, end = int(borders[number]), int(borders[number + 1])
        if not 0 <= begin <= end <= shard.tokens:
            place, problem = f"document {number}", f"goes from token {begin:,} to {end:,}"
            raise FileFormatError(
                shard.borders or shard.ids, place, f"{problem} of {shard.tokens:,}; it is damaged"
            )
        return self._numpy.array(self._ids(shard)[begin:end], self.dtype)

    def read(self, start: int, length: int) -> Any:
        """Return ids from a position on, counted in tokens over all documents of all shards.

        Raises:
            IndexError: there are no such tokens.
            FileFormatError: a file is damaged.
        """
        start, length = operator.index(start), operator.index(length)
        if not 0 <= start <= start + length <= self.tokens:
            asked = f"{length:,} tokens from token {start:,} on"
            raise IndexError(f"asked for {asked}, of a corpus of {self.tokens:,}")
        out = self._numpy.empty(length, self.dtype)
        self._copy(start, out)
        return out

    def _copy(self, start: int, out: Any) -> None:
        at = bisect.bisect_right(self._first_token, start) - 1
        done = 0
        while done < len(out):
            begin = start + done - self._first_token[at]
            part = self._ids(self._shards[at])[begin : begin + len(out) - done]
            out[done : done + len(part)] = part
            done += len(part)
            at += 1

    def sample(self, batch_size: int, length: int, rng: Any) -> Any:
        """Return random windows, in which every position is as likely to be the first.

        Windows go across the borders of documents and of shards.

        `length` is in tokens; for a model that sees n and predicts the next of each, n + 1.  `rng`
        is a `numpy.random.Generator`, from which each call draws on; or a seed, which gives the
        same windows each time.

        Returns:
            an array of int64, batch_size x length.

        Raises:
            ValueError: the length is below 1, or the corpus is shorter.
            FileFormatError: a file is damaged.
        """
        self._check(length)
        if length > self.tokens:
            raise ValueError(f"no window of {length:,} tokens fits in a corpus of {self.tokens:,}")
        generator = self._numpy.random.default_rng(rng)
        starts = generator.integers(self.tokens - length + 1, size=batch_size)
        out = self._numpy.empty((batch_size, length), self._numpy.int64)
        for start, row in zip(starts.tolist(), out):
            self._copy(start, row)
        return out

    def windows(self, length: int, drop_last: bool = True) -> Iterator[Any]:
        """Return the tokens in order, as windows of a length in tokens that follow one another.

        With `drop_last`, a last one that is shorter is left out.

        Raises:
            ValueError: the length is below 1.
            FileFormatError: a file is damaged.
        """
        self._check(length)
        starts = range(0, self.tokens - (length - 1 if drop_last else 0), length)
        return (self.read(start, min(length, self.tokens - start)) for start in starts)

    def _check(self, length: int) -> None:
        if operator.index(length) < 1:
            raise ValueError(f"length must be at least 1, got {length}")


# -- What there is ------------------------------------------------------------


class _Shard(NamedTuple):
    ids: Path
    borders: Path | None  # where documents begin; None: there is one, or none
    documents: int
    tokens: int


class _Job(NamedTuple):
    dtype: str
    shards: list[_Shard]
    manifest: dict[str, Any]


def _job_of(path: Path, dtype: str | None) -> _Job:
    if path.is_dir():
        return _finished_job(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or directory")
    if path.suffix == ".parquet":
        raise _parquet(path)
    if path.suffix != ".bin":
        raise ValueError(f"{path}: expected a directory with {MANIFEST}, or a .bin file")
    marker = _neighbor(path, ".json")
    facts = core.JsonReader.open(marker) if marker.is_file() else None
    if facts is not None and "layout" in facts.data:
        layout, dtype = _layout(facts, path)
        return _Job(dtype, [_shard(facts, path, layout, dtype)], facts.data)
    index = _neighbor(path, ".idx")
    if index.is_file():
        dtype, _, borders = _megatron_header(index)
        return _Job(dtype, [_Shard(path, index, borders - 1, _whole_tokens(path, dtype))], {})
    return _bare_job(path, dtype)


def _neighbor(ids: Path, suffix: str) -> Path:
    return ids.with_name(ids.name[: -len(".bin")] + suffix)


def _parquet(path: Path) -> ValueError:
    readers = "pyarrow.parquet.ParquetFile or datasets.load_dataset('parquet', ...)"
    return ValueError(f"{path}: is parquet, which this doesn't read: use {readers}")


def _finished_job(folder: Path) -> _Job:
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder}: has no {MANIFEST}: either its job hasn't finished (run the same command "
            "again), or it isn't a packed corpus"
        )
    facts = core.JsonReader.open(path)
    if facts.get("format", str) != FORMAT:
        raise facts.error(
            f"expected {FORMAT!r}, got {core.shorten(facts.data['format'])}", "format"
        )
    if facts.get("version", int) != VERSION:
        got = core.shorten(facts.data["version"])
        raise facts.error(f"{got}, and this library reads {VERSION}; it may be too old", "version")
    layout, dtype = _layout(facts, folder)
    facts.get("shards", list)
    entries = facts.children("shards")
    shards = [_shard(entry, folder / f"{_name(entry)}.bin", layout, dtype) for entry in entries]
    if len({shard.ids for shard in shards}) < len(shards):
        raise facts.error("a name appears twice", "shards")
    for key in ("documents", "tokens"):
        found, whole = sum(getattr(shard, key) for shard in shards), _count(facts, key)
        if found != whole:
            raise facts.error(f"{whole:,}, but the shards have {found:,} together", key)
    return _Job(dtype, shards, facts.data)


def _layout(facts: core.JsonReader, path: Path) -> tuple[str, str]:
    layout = _one_of(facts, "layout", writers.FORMATS)
    if layout == "parquet":
        raise _parquet(path)
    return layout, _one_of(facts, "dtype", writers.DTYPES[layout])


def _one_of(facts: core.JsonReader, key: str, known: Sequence[str]) -> str:
    value: str = facts.get(key, str)
    if value not in known:
        expected = ", ".join(known)
        raise facts.error(f"expected one of {expected}, got {core.shorten(value)}", key)
    return value


def _name(entry: core.JsonReader) -> str:
    """Return the name of a shard, which is that of a file in the directory, and nowhere else."""
    name: str = entry.get("name", str)
    has_path = Path(f"{name}.bin").name != f"{name}.bin"
    if not name or has_path or "\0" in name or core.has_surrogate(name):
        raise entry.error(f"expected the name of a file, got {core.shorten(name)}", "name")
    return name


def _count(facts: core.JsonReader, key: str) -> int:
    value: int = facts.get(key, int)
    if not 0 <= value <= _MOST:
        raise facts.error(f"expected a count, got {core.shorten(value)}", key)
    return value


def _shard(entry: core.JsonReader, ids: Path, layout: str, dtype: str) -> _Shard:
    """Return a shard; check its entry in the manifest against the sizes of its files."""
    borders = _neighbor(ids, ".offsets.npy" if layout == "bin" else ".idx")
    shard = _Shard(ids, borders, _count(entry, "documents"), _count(entry, "tokens"))
    entry.get("files", dict)
    files = entry.child("files")
    for path in (ids, borders):
        listed = files and files.child(path.name)
        if not listed:
            raise entry.error(f"expected {path.name} among them", "files")
        size, expected = _count(listed, "size"), shard.tokens * _itemsize(dtype)
        if path is ids and size != expected:
            raise listed.error(f"{size:,}, but its tokens take {expected:,} bytes", "size")
    return shard


def _bare_job(path: Path, dtype: str | None) -> _Job:
    """Return a job for a .bin file alone; the caller has to know its dtype."""
    if dtype is None:
        raise ValueError(f"{path}: no file beside it says the type of its ids; pass dtype='uint16'")
    tokens, offsets = _whole_tokens(path, dtype), _neighbor(path, ".offsets.npy")
    if not offsets.is_file():
        return _Job(dtype, [_Shard(path, None, int(tokens > 0), tokens)], {})
    entries = (offsets.stat().st_size - len(writers.npy_header(0))) // 8
    shard = _Shard(path, offsets, max(0, entries - 1), tokens)
    _map_borders(dtype, shard)
    return _Job(dtype, [shard], {})


def _whole_tokens(path: Path, dtype: str) -> int:
    """Return the number of ids in a file."""
    size, itemsize = path.stat().st_size, _itemsize(dtype)
    if size % itemsize:
        problem = f"{size:,} bytes aren't a whole number of {dtype}"
        raise FileFormatError(path, "", f"{problem}: it is damaged, or of another type")
    return size // itemsize


def _itemsize(dtype: str) -> int:
    return int(dtype[-2:]) // 8


# -- The files of a shard -------------------------------------------------------


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, though it belongs to the corpus")


def _check_size(path: Path, expected: int, what: str) -> None:
    _check_there(path)
    size = path.stat().st_size
    if size != expected:
        problem = f"{size:,} bytes, but {what} take {expected:,}"
        raise FileFormatError(path, "", f"{problem}; it is damaged, or of another corpus")


def _map_ids(dtype: str, shard: _Shard) -> Any:
    """Map the ids of a shard into memory."""
    numpy, stored = writers.import_numpy(), writers.STORED[dtype]
    _check_size(shard.ids, shard.tokens * _itemsize(dtype), f"{shard.tokens:,} tokens")
    return numpy.memmap(shard.ids, stored, "r") if shard.tokens else numpy.empty(0, stored)


def _map_borders(dtype: str, shard: _Shard) -> Any:
    """Return where, in tokens, the documents of a shard begin, and where the last one ends."""
    if shard.borders is None:
        return [0, shard.tokens]
    if shard.borders.suffix == ".idx":
        return _MegatronIndex(shard.borders, dtype, shard)
    header = writers.npy_header(shard.documents + 1)
    size = len(header) + 8 * (shard.documents + 1)
    _check_size(shard.borders, size, f"the offsets of {shard.documents:,} documents")
    with open(shard.borders, "rb") as file:
        if file.read(len(header)) != header:
            expected = f"expected a .npy header of {shard.documents + 1:,} uint64"
            raise FileFormatError(shard.borders, "", f"{expected}; it is damaged")
    numpy = writers.import_numpy()
    borders = numpy.memmap(shard.borders, "<u8", "r", offset=len(header))
    _check_ends(shard.borders, "offsets", borders, shard.tokens)
    return borders


def _check_ends(path: Path, what: str, borders: Any, expected: int) -> None:
    begin, end = int(borders[0]), int(borders[-1])
    if (begin, end) != (0, expected):
        problem = f"expected them to go from 0 to {expected:,}, got {begin:,} to {end:,}"
        raise FileFormatError(path, what, f"{problem}; it is damaged")


def _megatron_header(path: Path) -> tuple[str, int, int]:
    """Return what the header of an .idx file says: dtype, numbers of sequences and of borders."""
    _check_there(path)
    with open(path, "rb") as file:
        head = file.read(writers.MEGATRON_HEADER.size)
    if len(head) < writers.MEGATRON_HEADER.size or not head.startswith(writers.MEGATRON_MAGIC):
        raise FileFormatError(path, "", "expected one of Megatron's index files")
    _, version, code, sequences, borders = writers.MEGATRON_HEADER.unpack(head)
    if version != writers.MEGATRON_VERSION:
        raise FileFormatError(
            path, "version", f"expected {writers.MEGATRON_VERSION}, got {version}"
        )
    names = {code: name for name, code in writers.MEGATRON_CODES.items()}
    if code not in names:
        raise FileFormatError(path, "dtype", f"expected 8 (uint16) or 4 (int32), got {code}")
    if not borders:
        raise FileFormatError(path, "", "expected at least one border of documents, got none")
    _check_size(
        path, len(head) + 12 * sequences + 8 * borders, f"the sequences and {borders:,} borders"
    )
    return names[code], sequences, borders


class _MegatronIndex:
    """Where documents begin, by an .idx file; there may be several sequences to a document."""

    def __init__(self, path: Path, dtype: str, shard: _Shard) -> None:
        numpy = writers.import_numpy()
        found, sequences, borders = _megatron_header(path)
        if found != dtype:
            raise FileFormatError(path, "dtype", f"expected {dtype}, got {found}")
        if borders != shard.documents + 1:
            problem = f"expected {shard.documents:,}, got {borders - 1:,}; it is of another corpus"
            raise FileFormatError(path, "documents", problem)
        self._path, self._shard, self._itemsize = path, shard, _itemsize(dtype)
        after_lengths = writers.MEGATRON_HEADER.size + 4 * sequences
        numbers = numpy.memmap(path, "<i8", "r", offset=after_lengths)
        self._pointers, self._documents = numbers[:sequences], numbers[sequences:]
        _check_ends(path, "document indices", self._documents, sequences)

    def __getitem__(self, number: int) -> int:
        sequence, sequences = int(self._documents[number]), len(self._pointers)
        if sequence == sequences:
            return self._shard.tokens
        if not 0 <= sequence < sequences:
            problem = f"begins with sequence {sequence:,} of {sequences:,}; it is damaged"
            raise FileFormatError(self._path, f"document {number}", problem)
        byte = int(self._pointers[sequence])
        if byte % self._itemsize:
            problem = f"begins at byte {byte:,}, which is within an id; it is damaged"
            raise FileFormatError(self._path, f"document {number}", problem)
        return byte // self._itemsize
