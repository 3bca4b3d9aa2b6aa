"""A corpus of any size as token ids: one output shard for each input shard.

A shard's output depends only on the file, the tokenizer and a few options.  So it doesn't matter
who encodes it, when, together with which other shards, or at which attempt.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.scale import job_folder
from bpe_tokenizer_tools.scale.inputs import Paths, Reader, Reading, Shard, find_shards
from bpe_tokenizer_tools.scale.job import Job, JobReport, Work, takes_old_names
from bpe_tokenizer_tools.scale.rows import boundary_ids
from bpe_tokenizer_tools.scale.writers import Writer, import_numpy, open_writer, resolve_dtype
from bpe_tokenizer_tools.support import outputs

_FORMAT = "bpe_tokenizer.packed_shard"
_MANIFEST_FORMAT = "bpe_tokenizer.packed"
_VERSION = 1
_TOKENS_AT_ONCE = 2**16  # of a document that comes in chunks

# -- One shard ----------------------------------------------------------------


@dataclass(frozen=True)
class _Settings:
    """All that decides what a shard becomes, but the file."""

    packed: bytes
    fingerprint: str  # of the tokenizer: working it out may take half a second
    reading: Reading
    layout: str
    dtype: str
    bos: int | None
    eot: int | None
    allowed_special: str | tuple[str, ...]

    @property
    def tokenizer(self) -> BPETokenizer:
        """The tokenizer; it travels as bytes, whatever its class, and is made once per process."""
        return _unpacked(self.packed)

    def facts(self) -> dict[str, Any]:
        """Return what a manifest says of the job."""
        allowed = self.allowed_special
        return {
            "version": _VERSION,
            "layout": self.layout,
            "dtype": self.dtype,
            "tokenizer": self.fingerprint,
            "vocab_size": self.tokenizer.vocab_size,
            "bos": self.bos,
            "eot": self.eot,
            "allowed_special": allowed if isinstance(allowed, str) else list(allowed),
            **self.reading.facts(),
        }

    def mark(self) -> str:
        """Return the text of the token after each document, where it would be text; else ""."""
        content = core.contents(self.tokenizer).get(-1 if self.eot is None else self.eot, "")
        return "" if content in core.allowed(self.tokenizer, self.allowed_special) else content

    def job(self) -> dict[str, Any]:
        """Return the facts that a marker must have for its ids to be valid."""
        return {"format": _FORMAT, **self.facts()}


@functools.lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> BPETokenizer:
    return core.rebuild(BPETokenizer, packed)


def _encode_to_files(
    common: tuple[_Settings, Path], shard: Shard, advance: Callable[[int], Any]
) -> dict[str, Any]:
    """Encode a shard; leave its files and its marker in a folder, and return the marker."""
    settings, folder = common
    job_folder.check_shared(folder)
    reader = Reader(shard, settings.reading, advance)
    writer = open_writer(settings.layout, folder / shard.name, settings.dtype)
    try:
        with writer:
            stats = _write_documents(writer, settings, reader.documents())
        marker = {
            **settings.job(),
            **reader.facts(),
            "name": shard.name,
            "documents": writer.documents,
            "tokens": writer.tokens,
            "bytes": stats.bytes,
            "eot_in_text": stats.marked,
            "files": {
                path.name: job_folder.file_facts(draft)
                for path, draft in sorted(writer.files.items())
            },
        }
        job_folder.commit(folder, shard.name, writer.files, marker, reader.check_unchanged)
    finally:
        writer.discard()
    return marker


class _TextStats:
    """Measures text on its way."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self.bytes = 0
        self.marked = 0  # documents whose text contains the mark

    def read(self, document: Iterable[str]) -> Iterator[str]:
        """Yield the chunks of a document."""
        rest, found = "", not self._mark
        for chunk in document:
            self.bytes += core.utf8_length(chunk)
            if not found:
                found = self._mark in rest + chunk
                rest = (rest + chunk)[1 - len(self._mark) :] if len(self._mark) > 1 else ""
            yield chunk
        self.marked += found and bool(self._mark)


def _write_documents(
    writer: Writer, settings: _Settings, documents: Iterable[Iterable[str]]
) -> _TextStats:
    """Write all documents, and return how much text they had."""
    numpy = import_numpy()
    before = numpy.array([] if settings.bos is None else [settings.bos], numpy.uint32)
    after = numpy.array([] if settings.eot is None else [settings.eot], numpy.uint32)
    tokenizer, allowed = settings.tokenizer, settings.allowed_special
    options = {} if allowed == "none" else {"allowed_special": allowed}
    stats = _TextStats(settings.mark())
    for document in documents:
        if isinstance(document, list):
            ids = tokenizer.encode_to_numpy("".join(stats.read(document)), **options)
            writer.write(numpy.concatenate((before, ids, after)))
        else:
            writer.write(before)
            parts = tokenizer.encode_streaming(stats.read(document), **options)
            ids = itertools.chain.from_iterable(parts)
            while len(some := numpy.fromiter(itertools.islice(ids, _TOKENS_AT_ONCE), numpy.uint32)):
                writer.write(some)
            writer.write(after)
        writer.end_document()
    return stats


def encode_shard(
    tokenizer: BPETokenizer,
    path: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    **options: Any,
) -> dict[str, Any]:
    """Encode one file to one shard of ids, in this process: the map of any executor.

    The shard's marker is written last.  `encode_corpus`, called with all files, the same options
    and the same `out_dir`, finds the shard finished, and writes the manifest once all are.

    The options are those of `encode_corpus`, except for executors.

    Returns:
        The marker, which describes the input and the output.
    """
    settings, shards = PackJob(tokenizer, path, out_dir, **options)._prepared()
    if len(shards) != 1:
        raise ValueError(f"expected one file, got {len(shards)}: {path}; use encode_corpus")
    with job_folder.open_folder(out_dir, shared=True) as folder:
        done = job_folder.finished(folder, shards[0], settings.job(), settings.reading.on_error)
        if done is None:
            _remove_manifest(folder)
            done = _encode_to_files((settings, folder), shards[0], lambda n_bytes: None)
        return done


# -- The job ------------------------------------------------------------------


@dataclass(frozen=True)
class PackReport(JobReport):
    """The results of packing, in addition to any job's."""

    tokens: int  # ids written, with those before and after each document
    dtype: str  # how ids are stored
    eot: int | None  # the id after each document, or None
    eot_in_text: int  # documents whose text contains that token, as ordinary text

    @property
    def bytes_per_token(self) -> float:
        """UTF-8 bytes of text for each id; 0.0 if there are none."""
        return self.bytes / self.tokens if self.tokens else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the attributes, as JSON has them."""
        return {**super().to_json(), "bytes_per_token": self.bytes_per_token}

    def _lines(self) -> list[str]:
        tokens = f"{self.tokens:,} tokens as {self.dtype}"
        lines = [f"{tokens}, {self.bytes_per_token:.3f} bytes per token"]
        if self.eot is None:
            lines.append("no token ends a document: nothing separates documents")
        if self.eot_in_text:
            lines.append(
                f"documents that contain the eot token as plain text: {self.eot_in_text:,}; if it "
                "separates documents, pass it as separator"
            )
        return lines


@dataclass(frozen=True)
class PackJob(Job):
    """The encoding of a corpus of any size, by these options and those of every `Job`.

    `run` does all of it, `run_share` a share, on one machine of several.
    """

    tokenizer: BPETokenizer  # the tokenizer
    # files, directories, patterns, and URLs that fsspec reads; text, .jsonl and .parquet, also as
    # .gz, .bz2, .xz and .zst. A file is the unit of work
    paths: Paths
    out_dir: str | os.PathLike[str]  # for the shards, their markers and `manifest.json`
    # "bin", flat ids and document offsets; "megatron", .bin and .idx; or "parquet"
    format: str = "bin"
    dtype: str = "auto"  # how ids are stored; "auto" takes 16 bits where all ids fit in them
    bos: str | int | None = None  # a token, or its id, before each document; None: none
    # a token, or its id, after each document; None: the tokenizer's eos token, if it has one; "":
    # none
    eot: str | int | None = None
    # "none" reads special tokens in the text as ordinary text; "all" or a set of them recognizes
    # them
    allowed_special: str | Iterable[str] = "none"

    def __post_init__(self) -> None:
        self._keep("paths")
        self._keep("allowed_special")

    def run(self) -> PackReport:
        """Encode all unfinished shards, and write the manifest."""
        settings, shards = self._prepared()
        with job_folder.open_folder(self.out_dir, shared=False) as folder:
            _check_manifest(folder)
            self._tidy(folder, shards, settings)
            work, report = self._encode(folder, shards, settings)
            _write_manifest(folder, settings, [work.markers[shard] for shard in shards])
            return report

    def run_share(self, index: int, of: int) -> PackReport:
        """Encode every `of`-th shard, starting with number `index`; `run` writes the manifest.

        Each of `of` machines that share a file system does this; then `run` finds all shards done.
        """
        self._check_share(index, of)  # before a folder is made
        settings, shards = self._prepared()
        with job_folder.open_folder(self.out_dir, shared=True) as folder:
            return self._encode(folder, shards[index::of], settings)[1]

    def _prepared(self) -> tuple[_Settings, list[Shard]]:
        settings = self._settings()
        self._executor()  # which checks its options
        shards = find_shards(self.paths, [self.out_dir])
        self._say(self._size_of(shards))
        return settings, shards

    def _settings(self) -> _Settings:
        tokenizer, special = self.tokenizer, self.allowed_special
        if not isinstance(tokenizer, BPETokenizer):
            raise TypeError(f"tokenizer must be a BPETokenizer, got {core.shorten(tokenizer)}")
        reading = self._reading()
        import_numpy()
        allowed = core.allowed(tokenizer, special)
        return _Settings(
            tokenizer.__reduce__()[1][1],
            tokenizer.fingerprint,
            reading,
            self.format,
            resolve_dtype(self.format, self.dtype, tokenizer.max_id),
            *boundary_ids(tokenizer, self.bos, self.eot),
            special if isinstance(special, str) else tuple(sorted(allowed)),
        )

    def _tidy(self, folder: Path, shards: Sequence[Shard], settings: _Settings) -> None:
        """Start over, if requested; raise if the folder has shards of other inputs."""
        if not self.resume:
            _remove_manifest(folder)
            for path, data in job_folder.left_over(folder, (), _FORMAT).items():
                job_folder.remove(path, data)
        for path, data in job_folder.left_over(folder, shards, _FORMAT).items():
            job_folder.check_same_job(path, data, settings.job())
            raise ValueError(
                f"{folder} contains a shard of {data.get('input')}, which isn't an input now; name "
                "it too, or another folder, or start over with resume=False (--no-resume)"
            )

    def _encode(
        self, folder: Path, shards: Sequence[Shard], settings: _Settings
    ) -> tuple[Work, PackReport]:
        work = Work(self, folder, settings)
        tasks = work.look(shards)
        if tasks:  # the old output is no longer complete until all is done again
            _remove_manifest(folder)
        work.do_shards("encoding", _encode_to_files, tasks)
        report = PackReport(
            **work.facts(),
            tokens=work.sum("tokens"),
            dtype=settings.dtype,
            eot=settings.eot,
            eot_in_text=work.sum("eot_in_text"),
        )
        self._say(report)
        return work, report


PackJob.__init__ = takes_old_names(PackJob.__init__)  # type: ignore[method-assign]


def _check_manifest(folder: Path) -> None:
    """Raise ValueError if another file has the name of the manifest."""
    path = folder / "manifest.json"
    if path.exists() and job_folder.read_facts(path, _MANIFEST_FORMAT) is None:
        raise ValueError(
            f"{path} exists, and isn't a manifest of token ids; name another folder, or remove it "
            "if it is damaged"
        )


def _remove_manifest(folder: Path) -> None:
    """Remove the manifest before its claim, that all shards are done, becomes false."""
    _check_manifest(folder)
    (folder / "manifest.json").unlink(missing_ok=True)


def _write_manifest(
    folder: Path, settings: _Settings, markers: Sequence[Mapping[str, Any]]
) -> None:
    """Write the manifest of the whole corpus, last; leave equal bytes alone."""
    job = settings.job()
    entries = [{key: marker[key] for key in marker if key not in job} for marker in markers]
    counted = ("documents", "tokens", "bytes", "skipped")
    sums = {key: sum(marker[key] for marker in markers) for key in counted}
    manifest = {"format": _MANIFEST_FORMAT, **settings.facts(), **sums, "shards": entries}
    content = (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()
    path = folder / "manifest.json"
    if not path.is_file() or path.read_bytes() != content:
        outputs.write({path: content})


@takes_old_names
def encode_corpus(
    tokenizer: BPETokenizer, paths: Paths, out_dir: str | os.PathLike[str], **options: Any
) -> PackReport:
    """Encode a corpus of any size to files of token ids, one shard for each file of it.

    The files are the same, byte for byte, whatever the executor, the workers and the interruptions.
    A run that was stopped, in whatever way, continues when you start it again: finished shards are
    not touched, unless their input has changed.  `open_packed` reads the output.

    The arguments are the attributes of `PackJob`.

    Returns:
        A report; its facts, except those about this run, are also in `manifest.json`.

    Raises:
        ValueError: `out_dir` contains another job, or a file changed while it was read; ids do not
            fit the dtype; bos or eot isn't a token.
        FileNotFoundError, FileFormatError, RuntimeError, ImportError, OSError: see
            `count_pretokens`.
    """
    return PackJob(tokenizer, paths, out_dir, **options).run()
