"""Corpora made by a recipe: sources, the share of each, a size; and documents drawn from them.

    target_size = "20 MB"

    [[sources]]
    name = "english"
    path = "texts/english/*.txt"
    fraction = 1

Whole documents are drawn without replacement.  Each has a number from 0 to 1,048,575: a hash of
the seed, its source, its file and its place there.  Documents are taken number by number, those
with the same number in their order, until the source's share is reached.  So the choice depends on
nothing else, not even on the machine or on the order in which files are listed or read; a larger
target takes the same documents, and more.  It is uniform, except for documents that share the last
number taken, which has a chance of 1 in 1,048,576: for these, their place decides.

Sources are read twice.  The first pass adds up the bytes of each number, which shows where to
stop; the second writes.  Memory contains these sums (8 MB), the file names and one document.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import math
import os
import shutil
import sys
import tempfile
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import bpe_tokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus import records
from bpe_tokenizer_tools.corpus.documents import (
    Document,
    File,
    changed,
    expanded,
    find_files,
    read_documents,
)
from bpe_tokenizer_tools.corpus.recipes import DEFAULT_SEPARATOR, Recipe, Source, parse_size
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.files import file_sha256, flush, naming
from bpe_tokenizer_tools.support.tables import Table
from bpe_tokenizer_tools.support.text import Printed, counted, say

__all__ = [
    "CorpusReport", "Document", "Recipe", "Source", "SourceReport", "build_corpus", "draw",
    "parse_size",
]  # fmt: skip

# -- Drawing -------------------------------------------------------------------

_NUMBER_BITS = 20
_NUMBERS = 2**_NUMBER_BITS


class _Measured:
    """The result of one pass over a source."""

    def __init__(self) -> None:
        self.documents = self.bytes = 0
        self.digest = hashlib.sha256()  # of all documents with their lengths, by label and place

    def add(self, raw: bytes) -> None:
        self.documents += 1
        self.bytes += len(raw)
        self.digest.update(len(raw).to_bytes(8, "little"))
        self.digest.update(raw)


class _Plan(NamedTuple):
    """Which documents of a source to take."""

    copies: int  # of each that is not held out
    below: int  # one more of those with a number smaller than this,
    room: int  # and of those with exactly this one, until n bytes are taken
    held_from: int  # held out are those with this number or a larger one

    def take(self, number: int, size: int) -> tuple[int, _Plan]:
        """Return how often to take a document, and the plan for the next ones."""
        if number >= self.held_from:
            return 0, self
        if number == self.below and self.room > 0:
            return self.copies + 1, self._replace(room=self.room - size)
        return self.copies + (number < self.below), self


def _numbers(seed: int, source: str, label: str) -> Iterator[int]:
    """Yield the number of each document of a file."""
    key = json.dumps([seed, source, label]).encode()
    state = hashlib.blake2b(key, digest_size=4, person=b"corpus")
    for index in itertools.count():
        mine = state.copy()
        mine.update(index.to_bytes(8, "little"))
        yield int.from_bytes(mine.digest(), "little") >> (32 - _NUMBER_BITS)


def _share(source: Source, size: int) -> int:
    return math.ceil(source.fraction * size)


def _reach(sums: array[int], wanted: int) -> tuple[int, int]:
    """Return the first index where the running sum reaches `wanted`, and the sum before it.

    If the sum never does, the index is the last one.
    """
    for number, up_to in enumerate(itertools.accumulate(sums)):  # noqa: B007 - used below
        if up_to >= wanted:
            break
    return number, up_to - sums[number]


class Sampler:
    """The documents that a recipe draws: sources are measured, then documents come."""

    def __init__(
        self, recipe: Recipe, files: Mapping[str, list[File]], verbose: bool = False
    ) -> None:
        self.recipe, self.files, self._verbose = recipe, files, verbose
        self.measured: dict[str, _Measured] = {}
        self._plans: dict[str, _Plan] = {}
        short = ""  # the first that is
        for source in recipe.sources:
            sums = array("q", bytes(8 * _NUMBERS))
            self.measured[source.name] = self._measure(source, sums)
            plan = self._plan(source, sums)
            if isinstance(plan, str):
                short = short or plan
            else:
                self._plans[source.name] = plan
        if short:
            raise ValueError(
                f"{short}; ask for less{self._most()}, add files, or set upsample for it"
            )

    def documents(self) -> Iterator[Document]:
        """Yield the drawn documents by source, as in the recipe, in order of files and places."""
        for source in self.recipe.sources:
            again, plan = _Measured(), self._plans[source.name]
            for document, raw, number in self._read(source, again, "drawing"):
                copies, plan = plan.take(number, len(raw))
                if number >= plan.held_from:
                    yield document._replace(held_out=True)
                for copy in range(copies):
                    yield document._replace(copy=copy) if copy else document
            before = self.measured[source.name]
            if again.digest.digest() != before.digest.digest():
                raise changed(source, "its text")

    def _read(
        self, source: Source, measured: _Measured, what: str
    ) -> Iterator[tuple[Document, bytes, int]]:
        """Yield all documents of a source, with their bytes and numbers."""
        with core.progress(f"{what} {source.name}", "B", None, self._verbose) as advance:
            for file in self.files[source.name]:
                numbers = _numbers(self.recipe.seed, source.name, file.label)
                for index, text in enumerate(read_documents(file, source)):
                    raw = text.encode()
                    measured.add(raw)
                    advance(len(raw))
                    yield Document(source.name, file.label, index, text), raw, next(numbers)

    def _measure(self, source: Source, sums: array[int]) -> _Measured:
        measured = _Measured()
        for _, raw, number in self._read(source, measured, "measuring"):
            sums[number] += len(raw)
        if not measured.documents:
            files = self.files[source.name]
            where = files[0].path if len(files) == 1 else f"its {len(files):,} files"
            raise ValueError(f"source {source.name!r}: no text in {where}")
        return measured

    def _plan(self, source: Source, sums: array[int]) -> _Plan | str:
        """Return which documents to take, or in words that there are too few."""
        held_from, held, wanted = _NUMBERS, 0, _share(source, self.recipe.held_out)
        if wanted:
            number, above = _reach(sums[::-1], wanted)
            held_from = _NUMBERS - 1 - number
            held = above + sums[held_from]
        there = self.measured[source.name].bytes - held
        share = _share(source, self.recipe.target_size)
        copies, rest = divmod(share, there) if there else (0, share)
        allowed = math.inf if source.repetitions is None else source.repetitions
        if not there or copies + (rest > 0) > allowed:
            measured = self.measured[source.name]
            return (
                f"source {source.name!r} is too small: its share is {share + wanted:,} bytes, and "
                f"it has {measured.bytes:,} in {counted(measured.documents, 'document')}"
                + (f", to be taken {allowed} times at most" if allowed > 1 else "")
            )
        below, taken = _reach(sums, rest)
        return _Plan(copies, below, rest - taken, held_from)

    def _most(self) -> str:
        """Return advice: the size that works for all sources."""
        allowed = min(
            self.measured[source.name].bytes * (source.repetitions or math.inf) / source.fraction
            for source in self.recipe.sources
        )
        what = "target_size" if not self.recipe.held_out else "target_size and held_out together"
        return "" if allowed == math.inf else f" (at most {int(allowed):,} for {what})"


def draw(recipe: Recipe, verbose: bool = False) -> Iterator[Document]:
    """Yield the documents that a recipe draws, without writing them."""
    return Sampler(recipe, find_files(recipe), verbose).documents()


# -- Writing -------------------------------------------------------------------
# All files of a run are written in a hidden folder beside where they go, and are put in place
# when every one of them is complete.

_ENDINGS = tuple(f"{kind}{end}" for kind in ("jsonl", "txt") for end in ("", *core.COMPRESSED))
_SHARD_SIZE = 10**9


@dataclass(frozen=True)
class _Form:
    """How documents are written, and where: a file, or a folder of shards."""

    path: Path
    ending: str  # one of _ENDINGS
    separator: str
    shard_size: int | None

    @classmethod
    def of(
        cls, out: str | os.PathLike[str], format: str | None, separator: str, shard_size: int | None
    ) -> _Form:
        """Derive the form from the name; raise for options that don't go together."""
        path = Path(out)
        if path.name in ("", "..", "-"):
            raise ValueError(
                f"expected the path of a file or a folder to write, got {os.fspath(out)!r}"
                + ("; standard output cannot take a corpus" if path.name == "-" else "")
            )
        if format is not None and format not in _ENDINGS:
            raise ValueError(f"expected the format {', '.join(_ENDINGS)}, got {format!r}")
        if not separator:
            raise ValueError("separator: expected text, got ''")
        ending = _ending_of(path.name)
        if ending and not path.is_dir():
            if shard_size is not None or format not in (None, ending):
                what = "a shard size" if shard_size is not None else f"the format {format!r}"
                raise ValueError(
                    f"{path} is the name of one file, which can't be combined with {what}"
                )
            return cls(path, ending, separator, None)
        if path.suffix and not path.is_dir() and not os.fspath(out).endswith(("/", os.sep)):
            raise ValueError(
                f"{path}: expected a name that ends in one of {', '.join(_ENDINGS)}; or, for a "
                "folder of shards, one without an ending"
            )
        return cls(path, format or "jsonl", separator, shard_size or _SHARD_SIZE)

    @property
    def compression(self) -> str:
        """The suffix of the files' compression, or ""."""
        return next((end for end in core.COMPRESSED if self.ending.endswith(end)), "")

    @property
    def held_out(self) -> _Form:
        """The form of the documents that are held out: one file beside the corpus."""
        ending = _ending_of(self.path.name)
        stem = self.path.name[: -len(ending) - 1] if ending else self.path.name
        path = self.path.with_name(f"{stem}.held-out.{self.ending}")
        return replace(self, path=path, shard_size=None)

    @property
    def manifest(self) -> Path:
        """Where the report goes: beside the corpus, not into a folder that one trains on."""
        return self.path.with_name(self.path.name + ".manifest.json")

    def record(self, document: Document) -> bytes:
        """Return a document in its form in a file."""
        if self.ending.startswith("jsonl"):
            facts = {"text": document.text, "source": document.source, "file": document.file}
            line = json.dumps({**facts, "document": document.place}, ensure_ascii=False)
            return f"{line}\n".encode()
        written = document.text + self.separator
        if written.find(self.separator) != len(document.text):
            raise ValueError(
                f"source {document.source!r}: {document.file}: document {document.place} contains "
                f"the separator {self.separator!r}; write .jsonl, or choose another separator"
            )
        return written.encode()


def _ending_of(name: str) -> str:
    return next((end for end in _ENDINGS if name.lower().endswith("." + end)), "")


@dataclass
class _Tally:
    """The part taken of a source, while writing."""

    documents: int = 0
    bytes: int = 0
    repetitions: int = 0  # of the document taken most often


class _Output:
    """Writes documents into a folder where they wait to be put in place; None writes nothing."""

    def __init__(self, form: _Form, folder: Path | None) -> None:
        self._form, self._folder = form, folder
        self.tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
        self.files: list[dict[str, Any]] = []
        self.digest = hashlib.sha256()  # of all that is written, before compression, in a row
        self._raw: Any = None  # the file that is open
        self._stream: Any = None  # what compresses into it, or itself
        self._size = 0  # bytes of its content

    def add(self, document: Document) -> None:
        record = self._form.record(document)
        self.digest.update(record)
        tally = self.tallies[document.source]
        tally.documents += 1
        tally.bytes += len(document.text.encode())
        tally.repetitions = max(tally.repetitions, document.copy + 1)
        if self._folder is not None:
            with naming(self._form.path, "; nothing was written"):
                self._write(record)

    def _write(self, record: bytes) -> None:
        limit = self._form.shard_size
        if limit is not None and self._size and self._size + len(record) > limit:
            self._end_file()
        if self._stream is None:
            self._begin_file()
        self._stream.write(record)
        self._size += len(record)

    def _begin_file(self) -> None:
        path = cast("Path", self._folder) / self._form.path.name
        if self._form.shard_size is not None:
            path.mkdir(exist_ok=True)
            path = path / f"part-{len(self.files):05}.{self._form.ending}"
        self._path, self._size = path, 0
        self._raw = open(path, "wb")  # noqa: SIM115 - closed at its end, or when abandoned
        self._stream = records.compressor(self._raw, self._form.compression)

    def _end_file(self) -> None:
        if self._stream is not self._raw:
            self._stream.close()
        flush(self._raw)
        self._raw.close()
        self._raw = self._stream = None
        facts = {"file": self._path.name, "bytes": self._path.stat().st_size}
        self.files.append({**facts, "sha256": file_sha256(self._path)})

    def complete(self) -> None:
        """End the last file."""
        if self._folder is not None:
            with naming(self._form.path, "; nothing was written"):
                if self._stream is None:
                    self._begin_file()
                self._end_file()

    def abandon(self) -> None:
        for file in (self._stream, self._raw):
            with contextlib.suppress(OSError, ValueError):
                if file is not None:
                    file.close()


@dataclass(frozen=True)
class SourceReport:
    """The part taken of a source."""

    name: str  # its name
    files: int  # how many files it has
    available_documents: int  # documents in them, blank ones left out
    available_bytes: int  # of text, as UTF-8
    sha256: str  # the hash of all of its documents with their lengths, by file and place
    wanted_bytes: int  # its fraction of the target size
    documents: int  # documents taken, each repetition counted
    bytes: int  # bytes of text taken
    repetitions: int  # how often the document taken most often was
    wanted_share: float  # its fraction of the corpus
    share: float  # the fraction reached
    held_out_documents: int  # documents held out for evaluation
    held_out_bytes: int  # bytes of text in them


@dataclass(frozen=True)
class CorpusReport(Printed):
    """The parts of a corpus."""

    recipe: Mapping[str, Any]  # the recipe, as in a file
    documents: int  # documents in the corpus
    bytes: int  # bytes of their text, as UTF-8
    sha256: str  # the hash of the output before compression, all shards in order
    files: Sequence[Mapping[str, Any]]  # name, size and hash of each file that was written
    held_out_sha256: str | None  # as sha256, of the held-out text; None if there is none
    held_out_files: Sequence[Mapping[str, Any]]  # as files
    sources: Sequence[SourceReport]  # the part taken of each
    version: str = bpe_tokenizer.__version__  # of this library

    def to_json(self) -> dict[str, Any]:
        """Return the report as what json.dumps takes; the manifest beside a corpus is this."""
        return asdict(self)

    def table(self) -> Table:
        """Return a row for each source, and one for all."""
        columns = ["source", "documents", "bytes", "of documents", "of bytes", "wanted", "reached"]
        rows = [
            [
                each.name, each.documents, each.bytes, each.available_documents,
                each.available_bytes, _percent(each.wanted_share), _percent(each.share),
            ]
            for each in self.sources
        ]  # fmt: skip
        sums = [sum(row[i] for row in rows) for i in range(1, 5)]  # type: ignore[misc]
        rows.append(["all", *sums, _percent(1), _percent(1)])
        if any(each.repetitions > 1 for each in self.sources):
            columns.append("repeated")
            most = [each.repetitions for each in self.sources]
            rows = [[*row, times] for row, times in zip(rows, [*most, max(most)])]
        if self.held_out_sha256 is not None:
            columns.append("held out")
            held = [each.held_out_bytes for each in self.sources]
            rows = [[*row, size] for row, size in zip(rows, [*held, sum(held)])]
        return Table(columns, rows)

    def __str__(self) -> str:
        return f"{self.table()}\nsha256 {self.sha256}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def build_corpus(
    recipe: Recipe,
    out: str | os.PathLike[str] | None,
    *,
    format: str | None = None,
    separator: str = DEFAULT_SEPARATOR,
    shard_size: int | None = None,
    dry_run: bool = False,
    verbose: bool = False,
) -> CorpusReport:
    """Make the corpus that a recipe describes.

    It also writes a manifest, OUT.manifest.json, and the held-out text as NAME.held-out.ENDING.
    Everything is put in place when it is complete; until then, the old files there are untouched.

    Args:
        recipe: what to take; `Recipe.from_file` reads one.
        out: a file whose name ends in .jsonl or .txt, and maybe .gz, .bz2, .xz or .zst; or a
            folder, for shards.  None is a dry run.
        format: for a folder, the ending of its files, such as "jsonl.zst"; by default "jsonl".
        separator: what ends each document in .txt.
        shard_size: for a folder, the most bytes in each file before compression, unless one
            document is larger; by default a gigabyte.
        dry_run: whether to write nothing, and only to report what would be written.
        verbose: whether to show progress on stderr.

    Raises:
        FileNotFoundError: a source doesn't exist, or has vanished.
        FileFormatError: a file is damaged or has another format; the error says where.
        ValueError: a source is empty, too small, or changed in the meantime; the output would
            replace a source or files that aren't a corpus.
        OSError: it doesn't fit on the disk, or nothing could be written; nothing is left.
    """
    form = _Form.of("corpus" if out is None else out, format, separator, shard_size)
    files = find_files(recipe)
    dry_run = dry_run or out is None
    if not dry_run:
        _check_target(form, recipe)
        _check_apart(form, recipe, files)
        _check_room(form, recipe, verbose)
    sampler = Sampler(recipe, files, verbose)
    with contextlib.ExitStack() as stack:
        folder = None if dry_run else stack.enter_context(_scratch(form))
        corpus, held = _Output(form, folder), _Output(form.held_out, folder)
        stack.callback(held.abandon)
        stack.callback(corpus.abandon)
        for document in sampler.documents():
            (held if document.held_out else corpus).add(document)
        corpus.complete()
        if recipe.held_out:
            held.complete()
        report = _report(sampler, corpus, held)
        if folder is not None:
            _put_in_place(folder, form, report)
    return report


def _check_target(form: _Form, recipe: Recipe) -> None:
    """Raise if output can't be written, or its folder has other files than a corpus's shards."""
    is_file = form.shard_size is None
    files = [form.path] * is_file + [form.held_out.path] * (recipe.held_out > 0)
    for path in (*files, form.manifest):
        outputs.check_file(path, with_directories=True)
    if is_file or not form.path.exists():
        return
    if not form.path.is_dir():
        raise NotADirectoryError(f"{form.path}: is a file; expected a folder, for shards")
    known = set()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        manifest = json.loads(form.manifest.read_bytes())
        known = {each["file"] for each in manifest["files"]}
    strange = sorted(entry.name for entry in form.path.iterdir() if entry.name not in known)
    if strange:
        raise FileExistsError(
            f"{form.path}: contains {strange[0]!r}, which {form.manifest.name} does not list; name "
            "a new folder, or move the files away"
        )


def _check_apart(form: _Form, recipe: Recipe, files: Mapping[str, list[File]]) -> None:
    """Refuse an output that would replace a source, or be one the next time."""
    targets = [Path(os.path.realpath(path)) for path in (form.path, form.held_out.path)]
    sources = [Path(os.path.realpath(file.path)) for each in files.values() for file in each]
    for source in sources:
        if any(target == source or target in source.parents for target in targets):
            raise ValueError(f"{form.path}: {source} is a source; give the output another name")
    for path in (path for source in recipe.sources for path in source.paths):
        folder = recipe.folder / expanded(path)
        if folder.is_dir() and any(Path(os.path.realpath(folder)) in t.parents for t in targets):
            raise ValueError(
                f"{form.path}: is inside the source {folder}, so the next run would read it; put "
                "the output elsewhere"
            )


def _check_room(form: _Form, recipe: Recipe, verbose: bool) -> None:
    """Raise if a corpus is larger than the free disk space; compressed ones may fit."""
    wanted = recipe.target_size + recipe.held_out
    free = shutil.disk_usage(outputs.existing_path(form.path.parent)).free
    if wanted <= free:
        return
    problem = f"the corpus is {wanted:,} bytes of text, and {free:,} are free on its disk"
    if not form.compression:
        raise OSError(
            errno.ENOSPC,
            f"{problem}; ask for less, write elsewhere, or compress it, as .jsonl.zst, say",
            str(form.path),
        )
    if verbose:
        say(f"note: {form.path}: {problem}, before compression", sys.stderr)


@contextlib.contextmanager
def _scratch(form: _Form) -> Iterator[Path]:
    """Make a hidden folder beside the output, and take it away again."""
    parent = form.path.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    outputs.remove_drafts(form.path.absolute())
    names = {"prefix": f".{form.path.name}.", "suffix": ".tmp"}
    with (
        tempfile.TemporaryDirectory(dir=parent, ignore_cleanup_errors=True, **names) as folder,
        outputs.claimed(Path(folder)),
    ):
        yield Path(folder)


def _put_in_place(folder: Path, form: _Form, report: CorpusReport) -> None:
    """Move the files of a run to where they belong, the manifest last."""
    manifest = folder / form.manifest.name
    manifest.write_text(core.to_json(report.to_json()), encoding="utf-8")
    if form.path.is_dir():
        os.replace(form.path, folder / "replaced")
    names = [form.path.name, *([form.held_out.path.name] if report.held_out_files else [])]
    for name in [*names, manifest.name]:
        os.replace(folder / name, form.path.with_name(name))


def _report(sampler: Sampler, corpus: _Output, held: _Output) -> CorpusReport:
    recipe = sampler.recipe
    total = sum(tally.bytes for tally in corpus.tallies.values())
    sources = []
    for source in recipe.sources:
        measured = sampler.measured[source.name]
        tally, kept_back = corpus.tallies[source.name], held.tallies[source.name]
        sources.append(
            SourceReport(
                source.name,
                len(sampler.files[source.name]),
                measured.documents,
                measured.bytes,
                measured.digest.hexdigest(),
                _share(source, recipe.target_size),
                tally.documents,
                tally.bytes,
                tally.repetitions,
                float(source.fraction),
                tally.bytes / total,
                kept_back.documents,
                kept_back.bytes,
            )
        )
    return CorpusReport(
        recipe.to_json(),
        sum(each.documents for each in sources),
        total,
        corpus.digest.hexdigest(),
        corpus.files,
        held.digest.hexdigest() if recipe.held_out else None,
        held.files,
        sources,
    )
