"""Input shards, on disk or anywhere that fsspec can read, and the documents in them.

A shard is a file, and the unit of work: one process counts or encodes it, from beginning to end.
Its label, which is its path as passed, or its URL, is its name everywhere.  Shards are sorted by
label, so the same call means the same job on every machine.
"""

from __future__ import annotations

import codecs
import collections
import contextlib
import errno
import hashlib
import io
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus import directories, documents, records
from bpe_tokenizer_tools.support.files import status_of, stream_sha256
from bpe_tokenizer_tools.support.text import counted

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
_Advance = Callable[[int], Any]

_BLOCK = 2**20  # bytes read at a time, or characters of a long document
_LONG = 2**24  # characters: a longer document, if counted at one go, would take ten times its size
_ON_ERROR = ("raise", "skip")
_INPUT_FORMATS = ("auto", "text", "jsonl", "parquet")
_KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}

# -- Shards -------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Shard:
    """An input file."""

    label: str  # its path as it was given, with "/" between the parts, or its URL
    size: int  # in bytes, as it was found

    @property
    def is_remote(self) -> bool:
        """Whether fsspec reads it."""
        return "://" in self.label

    @property
    def path(self) -> str:
        """The label without a URL's query or fragment, such as "?download=true"."""
        return re.split("[?#]", self.label)[0] if _is_http(self.label) else self.label

    @property
    def name(self) -> str:
        """The name for its output files: readable, and unique to this shard."""
        base = re.sub(r"[^\w.-]", "_", self.path.rsplit("/", 1)[-1], flags=re.ASCII)
        while re.search(_ENDINGS, base.lower()):
            base = os.path.splitext(base)[0]
        digest = hashlib.sha256(self.label.encode("utf-8", "surrogateescape")).hexdigest()
        return f"{base[:60].lstrip('.') or 'shard'}-{digest[:12]}"

    def state(self) -> tuple[int, str]:
        """Return the size and other facts that show a change, as text."""
        if self.is_remote:
            system, path = _file_system(self.label)
            system.invalidate_cache(path)  # its current state, not a cached one
            info = system.info(path)
            tags = [info[tag] for tag in ("ETag", "Last-Modified") if info.get(tag)][:1]
            return int(info["size"] or 0), " ".join([str(system.ukey(path)), *map(str, tags)])
        status = status_of(self.label)
        return status.size, f"{status.modified} {status.changed}"

    def open(self) -> IO[bytes]:
        """Open it as it is, without decompression."""
        if self.is_remote:
            system, path = _file_system(self.label)
            return cast("IO[bytes]", system.open(path, "rb"))
        return open(self.label, "rb", buffering=0)


_ENDINGS = r"\.(txt|text|jsonl|ndjson|json|parquet|gz|bz2|xz|zst)$"


def find_shards(paths: Paths, apart: Iterable[str | os.PathLike[str]] = ()) -> list[Shard]:
    """Find the files that paths mean, each once, sorted by label.

    `paths` is one or several: files, directories (all text files below, except hidden ones),
    patterns such as ``data/**/*.jsonl.zst``, and URLs of these, which fsspec reads.  `apart` is the
    output: the next run must not find it among the files.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ValueError("expected paths of a corpus, got none")
    found: dict[str, Shard] = {}  # real path -> shard
    for path in given:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"expected paths, got an item of type {type(path).__name__}")
        if not os.fspath(path):  # a variable that is not set, say, and no name of a directory
            raise ValueError("expected paths of a corpus, got ''")
        for real, shard in _remote(path) if "://" in str(path) else _local(os.fspath(path)):
            found[real] = min(shard, found.get(real, shard))
    for written in apart:
        _check_apart(written, given, found)
    return sorted(found.values())


def _check_apart(
    written: str | os.PathLike[str], given: Iterable[Any], found: Iterable[str]
) -> None:
    place = Path(os.path.realpath(written))
    folders = [documents.expanded(os.fspath(path)) for path in given if "://" not in str(path)]
    inputs = [
        folder
        for folder in folders
        if folder.is_dir() and directories.is_seen_in(place, Path(os.path.realpath(folder)))
    ]
    inputs += [path for path in map(Path, found) if path.is_relative_to(place)]
    if inputs:
        raise ValueError(
            f"{os.fspath(written)} is the output, and {inputs[0]} is an input: another run would "
            "read what this one wrote; write elsewhere"
        )


def _local(path: str) -> Iterator[tuple[str, Shard]]:
    for label, file in documents.expand(path):
        readable = file.as_posix() if label.startswith("~") else label
        yield os.path.realpath(file), Shard(readable, file.stat().st_size)


def _remote(url: object) -> Iterator[tuple[str, Shard]]:
    system, path = _file_system(str(url))
    # Over HTTP, whatever has links in it passes for a directory.
    if (str(url).endswith("/") or not _is_http(str(url))) and system.isdir(path):
        files = [file for file in system.find(path) if "/." not in file[len(path) :]]
    elif any(char in path for char in "*?[") and not system.exists(path):
        files = [file for file in system.glob(path) if system.isfile(file)]
    else:
        files = [path] if system.exists(path) else []
    if not files:
        raise FileNotFoundError(f"{url}: no such file, and no file matches")
    for file in files:
        label = system.unstrip_protocol(file)
        yield label, Shard(label, int(system.info(file)["size"] or 0))


def _is_http(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path there."""
    if "::" in url:
        raise ValueError(f"{url}: a URL within a URL cannot be read; unpack or copy it first")
    if re.match(r"[^/]+://[^/@]*:[^/@]*@", url):  # it would be written to the manifest
        where = url.partition("@")[2]
        raise ValueError(f"...@{where}: no passwords in URLs; put it in fsspec's configuration")
    fsspec = core.import_optional("fsspec", f"reading {url}", "fsspec")
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # unknown protocol, or its package is missing
        raise type(error)(f"{url}: fsspec cannot read this: {error}") from None
    return system, path


# -- Documents ----------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """How documents are found in a file; see `Job`."""

    input_format: str = "auto"
    text_field: str = "text"
    separator: str | None = None
    on_error: str = "raise"

    def facts(self) -> dict[str, Any]:
        """Return the options that decide how an undamaged file is read."""
        return {key: getattr(self, key) for key in ("input_format", "text_field", "separator")}

    def kind(self, shard: Shard) -> str:
        """Return the format of a shard; ValueError if it is ambiguous."""
        if self.input_format != "auto":
            return self.input_format
        suffix = core.suffix_of(shard.path)
        if suffix == ".json":
            raise ValueError(
                f"{shard.label}: a .json file may contain one record per line, or plain text; say "
                "which with input_format='jsonl' or 'text' (--input-format)"
            )
        return _KINDS.get(suffix, "text")

    def describe(self, shards: Sequence[Shard]) -> str:
        """Describe the number of shards, and their formats, if several."""
        kinds = collections.Counter(map(self.kind, shards))
        mixed = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common())
        return counted(len(shards), "shard") + (f" ({mixed})" if len(kinds) > 1 else "")

    def __post_init__(self) -> None:
        if self.input_format not in _INPUT_FORMATS:
            formats = ", ".join(_INPUT_FORMATS)
            raise ValueError(f"input_format must be one of {formats}, got {self.input_format!r}")
        if self.on_error not in _ON_ERROR:
            raise ValueError(f"on_error must be 'raise' or 'skip', got {self.on_error!r}")
        for name in ("text_field", "separator"):
            value = getattr(self, name)
            if not isinstance(value, str) and not (name == "separator" and value is None):
                raise TypeError(f"{name} must be text, got {core.shorten(value)}")
        if self.separator == "":
            raise ValueError("separator must be text, or None where a file is one document; got ''")


class Reader:
    """Reads the documents of a shard, from beginning to end, once."""

    def __init__(self, shard: Shard, reading: Reading, advance: _Advance) -> None:
        self._shard, self._reading, self._advance = shard, reading, advance
        self._before = shard.state()
        self._sha256: str | None = None
        self._skipped = 0
        self._first_skipped: str | None = None

    def documents(self) -> Iterator[Iterable[str]]:
        """Yield each document as chunks of text; a list of one chunk, unless it is long.

        Raises:
            FileFormatError: a document isn't UTF-8, or a record is invalid JSON or has no text; the
                error names the file and the line or row.  If such documents are skipped, only a
                damaged file raises it.
            ValueError: the shard changed in the meantime.
        """
        file = _InputFile(self._shard, self._advance)
        with file, io.BufferedReader(file, _BLOCK) as buffered:
            yield from map(_cut, self._read(cast("IO[bytes]", buffered)))
            self._sha256 = file.sha256()
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Raise ValueError if the shard changed since before it was read."""
        if self._shard.state() != self._before:
            what = "changed while it was read; run again when nothing writes to it"
            raise ValueError(f"{self._shard.label} {what}")

    def facts(self) -> dict[str, Any]:
        """Return what was read, and what was skipped, after all documents were yielded."""
        facts: dict[str, Any] = {"input": self._shard.label, "input_size": self._before[0]}
        facts["input_sha256"] = self._sha256
        if self._shard.is_remote:
            facts["input_version"] = self._before[1]
        return {**facts, "skipped": self._skipped, "first_skipped": self._first_skipped}

    def _read(self, file: IO[bytes]) -> Iterator[Iterable[str]]:
        label, field = self._shard.path, self._reading.text_field
        kind = self._reading.kind(self._shard)
        if kind == "parquet":
            yield from records.parquet_documents(label, field, file, self._skip)
        elif kind == "jsonl":
            yield from records.jsonl_documents(label, field, file, self._skip)
        elif self._reading.separator is not None:
            yield from self._separated(file, self._reading.separator.encode())
        else:
            yield from self._whole(file)

    def _skip(self, error: FileFormatError) -> None:
        if self._reading.on_error == "raise":
            raise error
        self._skipped += 1
        self._first_skipped = self._first_skipped or str(error)

    def _separated(self, file: IO[bytes], separator: bytes) -> Iterator[list[str]]:
        """Yield the parts between separators, except empty ones."""
        line = 1
        with core.decompressed(self._shard.path, file) as content:
            for piece in documents.split_at(_blocks(content), separator, self._shard.path):
                try:
                    if piece:
                        yield [piece.decode()]
                except UnicodeDecodeError as error:
                    self._skip(_not_utf8(self._shard, error, line))
                line += piece.count(b"\n") + separator.count(b"\n")

    def _whole(self, file: IO[bytes]) -> Iterator[Iterable[str]]:
        """Yield a file as one document; whether to skip it must be known first."""
        if self._reading.on_error == "skip":
            with self._shard.open() as again:
                try:
                    collections.deque(_decoded(again, self._shard), maxlen=0)
                except FileFormatError as error:
                    if not error.field:  # a damaged file
                        raise
                    self._skip(error)
                    return
        yield _decoded(file, self._shard)


def _cut(document: Iterable[str]) -> Iterable[str]:
    """Cut a document into chunks, if it is long and came in one piece."""
    if not isinstance(document, list) or len(document[0]) <= _LONG:
        return document
    text: str = document.pop()
    return (text[at : at + _BLOCK] for at in range(0, len(text), _BLOCK))


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_BLOCK), b"")


def _decoded(file: IO[bytes], shard: Shard) -> Iterator[str]:
    """Decode a file in chunks; bytes that are not UTF-8 are named by their line."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with core.decompressed(shard.path, file) as content:
        for block in itertools.chain(_blocks(content), [b""]):
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise _not_utf8(shard, error, line) from None
            yield text
            line += block.count(b"\n")


def _not_utf8(shard: Shard, error: UnicodeDecodeError, line: int) -> FileFormatError:
    at = line + error.object[: error.start].count(b"\n")
    problem = f"not UTF-8 ({error.reason}, 0x{error.object[error.start]:02x})"
    return FileFormatError(
        shard.label, f"line {at}", f"{problem}; convert it (iconv), or leave it out if not text"
    )


class _InputFile(io.RawIOBase):
    """A file that reports progress, and hashes the data as it is read."""

    def __init__(self, shard: Shard, advance: _Advance) -> None:
        self._shard, self._advance = shard, advance
        self._file = shard.open()
        self._digest = hashlib.sha256()
        self._hashed = 0  # bytes from the beginning that the hash holds
        self._told = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        at = self._file.tell()
        view = memoryview(buffer).cast("B")
        data = self._read_some(len(view))
        view[: len(data)] = data
        if at == self._hashed:
            self._digest.update(data)
            self._hashed += len(data)
        self._told += len(data)
        self._advance(len(data))
        return len(data)

    def _read_some(self, n_bytes: int) -> bytes:
        try:
            return self._file.read(n_bytes)
        except Exception as error:  # file systems of fsspec have many classes
            code = getattr(error, "errno", None) or errno.EIO
            problem = getattr(error, "strerror", None) or f"cannot be read: {error!r}"
            raise OSError(code, problem, self._shard.label) from error

    def sha256(self) -> str:
        """Also hash the unread rest; if the file was not read in order, all of it."""
        self._file.seek(self._hashed)
        for block in iter(lambda: self._read_some(_BLOCK), b""):
            self._digest.update(block)
            self._hashed += len(block)
        self._advance(self._hashed - self._told)  # unread data counts as done, too
        return self._digest.hexdigest()

    def close(self) -> None:
        with contextlib.suppress(AttributeError):
            self._file.close()
        super().close()


def sha256_of(shard: Shard) -> str:
    """Hash a shard's raw bytes."""
    with shard.open() as file:
        return stream_sha256(file)
