"""Counting the pre-tokens of a corpus of any size.

1. Map: each shard is counted on its own.  Whenever there are more distinct pre-tokens than memory
   is meant to hold, they are written out, cut into partitions, as a run.
2. Reduce: a partition of all runs is added up, one at a time; only here is it known how often a
   pre-token occurs, so only here are rare ones cut.
3. The partitions are joined: in memory, to train from, or to a file, which needs none.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpe_tokenizer import GPT2_SPLIT_PATTERN, AddedToken, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus import records
from bpe_tokenizer_tools.scale import runs, work
from bpe_tokenizer_tools.scale.engines.engine import Engine, Task
from bpe_tokenizer_tools.scale.engines.progress import show_progress, size
from bpe_tokenizer_tools.scale.inputs import (
    Paths,
    Reader,
    Reading,
    Shard,
    find_shards,
    path_list,
)
from bpe_tokenizer_tools.scale.report import JobReport
from bpe_tokenizer_tools.scale.shards import check_resumes, do_tasks, look, share
from bpe_tokenizer_tools.support import outputs

__all__ = ["CountJob", "CountReport", "count_pretokens", "count_shard", "merge_counts"]

_FORMAT = "bpe_tokenizer.counted_shard"
_PARTITION_FORMAT = "bpe_tokenizer.counted_partition"
_MAX_PARTITIONS = 2**16
_LITTLE = 2**25  # bytes of runs
# Characters counted between two looks at how many distinct pre-tokens there are; and the most of
# them for each one that may be held, so that a small bound is kept, too.
_CHUNK, _CHUNK_PER_KEY = 2**25, 16

# -- One shard ----------------------------------------------------------------


@dataclass(frozen=True)
class _Settings:
    """All that decides the counts of a shard, and how they are written."""

    split_pattern: str
    special_tokens: tuple[str, ...]
    normalizer: str | None
    reading: Reading
    partitions: int = 1
    max_keys: int = 2**62

    def job(self) -> dict[str, Any]:
        """Return what a marker must say, so that what was counted is what is wanted."""
        return {
            "format": _FORMAT,
            "split_pattern": self.split_pattern,
            "special_tokens": list(self.special_tokens),
            "normalizer": self.normalizer,
            "partitions": self.partitions,
            **self.reading.facts(),
        }


def _settings(
    split_pattern: str,
    special_tokens: Iterable[str],
    normalizer: str | None,
    reading: Reading,
    partitions: int = 1,
    max_keys: int = 2**62,
) -> _Settings:
    core.check_normalizer(normalizer)
    _check_number("partitions", partitions)
    if partitions > _MAX_PARTITIONS:
        raise ValueError(f"partitions must be at most {_MAX_PARTITIONS:,}, got {partitions:,}")
    _check_number("max_keys", max_keys)
    pattern = core.splitter(core.pattern_named(split_pattern)).pattern
    if isinstance(special_tokens, str):
        raise TypeError(f"special_tokens must be a list of texts, got {special_tokens!r}")
    special_tokens = list(special_tokens)
    if not all(isinstance(token, str) for token in special_tokens):
        raise TypeError(f"special_tokens must be texts, got {core.shorten(special_tokens)}")
    tokens = tuple(sorted(AddedToken(token).content for token in special_tokens))
    return _Settings(pattern, tokens, normalizer, reading, partitions, max_keys)


def _check_number(name: str, value: object) -> None:
    """Raise unless a value is an int of at least 1."""
    if value is None:
        raise TypeError(f"{name} must be an int, got None")
    core.check_size(name, value, 1)


class _ShardCounter:
    """Counts a shard, at most so many distinct pre-tokens at a time."""

    def __init__(self, settings: _Settings, shard: Shard, advance: Callable[[int], Any]) -> None:
        self._settings = settings
        self._reader = Reader(shard, settings.reading, advance)
        self._splitter = core.splitter(settings.split_pattern)
        tokens = map(AddedToken, settings.special_tokens)
        pipeline = core.Pipeline(self._splitter, settings.normalizer, tokens=tokens)
        self._cutter = core.PretokenCounter(pipeline, 1, lambda n_bytes: None)

    def counts(self) -> Iterator[dict[bytes, int]]:
        """Yield counts that add up to those of the shard."""
        counts: dict[bytes, int] = {}
        batches = self._cutter._batches(self._reader.documents())
        chunk = min(_CHUNK, _CHUNK_PER_KEY * self._settings.max_keys)
        for batch in batches:
            found = self._count(itertools.chain([batch], _up_to(chunk, batches)))
            if counts:
                _add(counts, found.items())
            else:
                counts = found
            if len(counts) > self._settings.max_keys:
                yield counts
                counts = {}
        yield counts

    def _count(self, batches: Iterable[list[str]]) -> dict[bytes, int]:
        # What the batches hold is prepared already, and cut where it may be cut.
        counter = core.engine().counter(
            core.Pipeline(self._splitter, None), 1, lambda n_bytes: None
        )
        counter.count([piece] for batch in batches for piece in batch)
        return counter.take()

    def check_unchanged(self) -> None:
        """Raise ValueError if the shard is not any more what it was before it was read."""
        self._reader.check_unchanged()

    def facts(self) -> dict[str, Any]:
        """Return what was read, once all counts have come."""
        read = {"documents": self._cutter.documents, "bytes": self._cutter.bytes_read}
        return {**self._reader.facts(), **read}


def _up_to(n_chars: int, batches: Iterator[list[str]]) -> Iterator[list[str]]:
    while n_chars > 0:
        batch = next(batches, None)
        if batch is None:
            return
        n_chars -= sum(map(len, batch))
        yield batch


def count_shard(
    path: str | os.PathLike[str],
    split_pattern: str = GPT2_SPLIT_PATTERN,
    *,
    special_tokens: Iterable[str] = (),
    normalizer: str | None = "NFC",
    input_format: str = "auto",
    text_field: str = "text",
    separator: str | None = None,
    on_error: str = "raise",
) -> PretokenCounts:
    """Count the pre-tokens of one file, in this process: the map of any engine.

    Args:
        path: the file, or a URL that fsspec reads.
        split_pattern: a pattern, or a name from `SPLIT_PATTERNS`.
        special_tokens: strings that cut a document and are not counted.
        normalizer: "NFC", "NFD", "NFKC", "NFKD" or None.
        input_format: "text", "jsonl" or "parquet"; "auto" goes by the name of the file.
        text_field: the field or column of .jsonl and .parquet files.
        separator: what stands between the documents of a text file; None: it is one document.
        on_error: "raise", or "skip" for leaving out documents that cannot be read.

    Raises:
        FileNotFoundError, ValueError: see `count_pretokens`.
    """
    reading = Reading(input_format, text_field, separator, on_error)
    settings = _settings(split_pattern, special_tokens, normalizer, reading)
    shards = find_shards(path)
    if len(shards) != 1:
        raise ValueError(f"expected one file, got {len(shards)}: {path}; use count_pretokens")
    counter = _ShardCounter(settings, shards[0], lambda n_bytes: None)
    (counts,) = counter.counts()
    facts = counter.facts()
    return PretokenCounts(
        counts, settings.split_pattern, normalizer, facts["documents"], facts["bytes"]
    )


def merge_counts(parts: Iterable[PretokenCounts], min_count: int = 1) -> PretokenCounts:
    """Add up the counts of parts of a corpus: the reduce of any engine.

    Args:
        parts: counts made with the same pattern and normalizer, at least one.
        min_count: pre-tokens that occur less often in all are left out.

    Raises:
        ValueError: there are none, or they were made in different ways.

    >>> import bpe_tokenizer
    >>> parts = [bpe_tokenizer.count_pretokens(text) for text in ("to be", "or not to be")]
    >>> sorted(merge_counts(parts, min_count=2).items())
    [(b' be', 2)]
    """
    _check_number("min_count", min_count)
    total: PretokenCounts | None = None
    for part in parts:
        if not isinstance(part, PretokenCounts):
            raise TypeError(f"expected PretokenCounts, got {type(part).__name__}")
        if total is None:
            total = PretokenCounts({}, part.split_pattern, part.normalizer)
        total.check_made_by(part.split_pattern, part.normalizer)
        total.documents += part.documents
        total.bytes_read += part.bytes_read
        _add(total, part.items())
    if total is None:
        raise ValueError("expected counts to add up, got none")
    for pretoken in [key for key, count in total.items() if count < min_count]:
        del total[pretoken]
    return total


def _add(total: dict[bytes, int], counts: Iterable[tuple[bytes, int]]) -> None:
    for pretoken, count in counts:
        total[pretoken] = total.get(pretoken, 0) + count


# -- Tasks --------------------------------------------------------------------


def _count_to_runs(
    common: tuple[_Settings, str], shard: Shard, advance: Callable[[int], Any]
) -> dict[str, Any]:
    """Count a shard; leave its runs and its marker in a folder, and return the marker."""
    settings, folder = common[0], Path(common[1])
    work.check_shared(folder)
    counter = _ShardCounter(settings, shard, advance)
    path = folder / f"{shard.name}.run"
    with work.draft(path) as draft:
        with open(draft, "wb") as file:
            pieces = [
                runs.write_run(file, counts, settings.partitions) for counts in counter.counts()
            ]
            work.flush(file)
        files = {path.name: work.file_facts(draft)}
        marker = {**settings.job(), **counter.facts(), "files": files, "runs": pieces}
        work.commit(folder, shard.name, {path: draft}, marker, counter.check_unchanged)
    return marker


def _merge_partition(
    common: tuple[str, int, str],
    number: int,
    pieces: list[tuple[str, runs.Piece]],
    advance: Callable[[int], Any],
) -> dict[str, Any]:
    """Add up one partition of all runs; leave it, sorted, with its marker, and return that."""
    folder, min_count, digest = Path(common[0]), common[1], common[2]
    name = _partition_name(number)
    total: dict[bytes, int] = {}
    for file, piece in pieces:
        _add(total, runs.read_piece(folder / file, runs.Piece(*piece)))
        advance(piece[1])
    kept = sorted(key for key, count in total.items() if count >= min_count)
    path = folder / f"{name}.counts"
    with work.draft(path) as draft:
        with open(draft, "wb") as out:
            written = runs.write_partition(out, kept, [total[key] for key in kept])
            work.flush(out)
        marker = {
            "format": _PARTITION_FORMAT,
            "made_of": digest,
            "min_count": min_count,
            "distinct": len(total),
            "pretokens": sum(total.values()),
            "piece": written,
            "files": {path.name: work.file_facts(draft)},
        }
        work.commit(folder, name, {path: draft}, marker)
    return marker


def _partition_name(number: int) -> str:
    return f"partition-{number:05}"


# -- The job ------------------------------------------------------------------


@dataclass(frozen=True)
class CountReport(JobReport):
    """What counting did, besides what any job does.

    Attributes:
        min_count: pre-tokens that occur less often were cut.
        pretokens: how many there were, each time they occurred; None if they were not added up,
            as this was a share of a job.
        distinct: how many different ones there were; or None.
        left: how many different ones are left; or None.
    """

    min_count: int
    pretokens: int | None = None
    distinct: int | None = None
    left: int | None = None

    def _lines(self) -> list[str]:
        if self.pretokens is None:
            return ["counted; a run without a share adds up"]
        lines = [f"{self.pretokens:,} pre-tokens, {self.distinct:,} distinct"]
        if self.min_count > 1:
            lines.append(f"{self.left:,} distinct that occur {self.min_count} times or more")
        return lines


class _Counting:
    """A counting job in its folder."""

    def __init__(
        self,
        folder: Path,
        settings: _Settings,
        shards: Sequence[Shard],
        engine: Engine,
        verbose: bool,
    ) -> None:
        self._folder, self._settings = folder, settings
        self.shards, self._engine, self._verbose = shards, engine, verbose
        self._began = time.perf_counter()
        self._markers: dict[Shard, dict[str, Any]] = {}
        self._kept = self._fresh = 0

    def tidy(self, resume: bool) -> None:
        """Remove what belongs to shards that are not named any more, or all."""
        if not resume:
            _clear(self._folder)
        left = work.left_over(self._folder, self.shards, _FORMAT)
        for path, data in left.items():
            work.check_same_job(path, data, self._settings.job())
        for path, data in left.items():
            work.remove(path, data)

    def map(self, shards: Sequence[Shard]) -> None:
        """Count those of some shards that are not counted yet."""
        settings = self._settings
        self._markers, tasks = look(self._folder, shards, settings.job(), settings.reading.on_error)
        self._kept = len(self._markers)
        self._fresh = sum(task.size for task in tasks)
        what = "counting" if self._verbose else None
        made = do_tasks(tasks, self._engine, _count_to_runs, settings, self._folder, what)
        self._markers.update(made)

    def reduce(self, min_count: int) -> list[dict[str, Any]]:
        """Add up each partition that is not yet, and return the markers of all."""
        pieces = self._pieces()
        if not any(pieces):
            raise ValueError(core.EMPTY)
        read = [self._markers[shard]["files"] for shard in self.shards]
        digest = hashlib.sha256(core.to_json(read).encode()).hexdigest()
        wanted = {"format": _PARTITION_FORMAT, "made_of": digest, "min_count": min_count}
        markers: dict[int, dict[str, Any]] = {}
        tasks = []
        for number, parts in enumerate(pieces):
            path = self._folder / f"{_partition_name(number)}.json"
            marker = work.read_marker(path, _PARTITION_FORMAT)
            if marker and wanted.items() <= marker.items() and work.is_whole(path, marker):
                markers[number] = marker
            else:
                n_bytes = sum(piece[1] for _, piece in parts)
                tasks.append(Task(_partition_name(number), (number, parts), n_bytes))
        common = str(self._folder.absolute()), min_count, digest
        total = sum(task.size for task in tasks)
        # What is added up in seconds is added up before processes would have started.
        engine = Engine("local", 1) if total < _LITTLE else self._engine
        with show_progress("adding up", total, len(tasks), self._verbose) as progress:
            results = engine.run(_merge_partition, common, tasks, progress)
            with contextlib.closing(results):
                for task, marker in results:
                    markers[task.arguments[0]] = marker
        return [markers[number] for number in range(len(pieces))]

    def _pieces(self) -> list[list[tuple[str, runs.Piece]]]:
        """Return where each partition stands in the runs of all shards."""
        pieces: list[list[tuple[str, runs.Piece]]] = [[] for _ in range(self._settings.partitions)]
        for shard in self.shards:
            marker = self._markers[shard]
            (file,) = marker["files"]
            for run in marker["runs"]:
                for parts, piece in zip(pieces, run):
                    if piece[2]:
                        parts.append((file, runs.Piece(*piece)))
        return pieces

    def counts(self, markers: Iterable[Mapping[str, Any]]) -> PretokenCounts:
        """Return the counts of all partitions, in memory."""
        counts = PretokenCounts({}, **self.facts())
        for path, piece in self._partitions(markers):
            counts.update(runs.read_piece(path, piece))
        return counts

    def write(self, markers: Iterable[Mapping[str, Any]], output: Path) -> None:
        """Write the counts of all partitions to a file, as `PretokenCounts.save` does."""
        streams = [runs.scan_piece(path, piece) for path, piece in self._partitions(markers)]
        records.write_counts(output, self.facts(), heapq.merge(*streams))

    def _partitions(
        self, markers: Iterable[Mapping[str, Any]]
    ) -> Iterator[tuple[Path, runs.Piece]]:
        for marker in markers:
            (name,) = marker["files"]
            yield self._folder / name, runs.Piece(*marker["piece"])

    def facts(self) -> dict[str, Any]:
        """Return the attributes of the counts."""
        return {
            "split_pattern": self._settings.split_pattern,
            "normalizer": self._settings.normalizer,
            "documents": self._sum("documents"),
            "bytes_read": self._sum("bytes"),
        }

    def _sum(self, key: str) -> int:
        return sum(marker[key] for marker in self._markers.values())

    def report(
        self, partitions: Sequence[Mapping[str, Any]] = (), min_count: int = 1
    ) -> CountReport:
        """Return what was done up to now."""
        facts = JobReport.facts(self._markers, self._kept, self._engine, self._fresh, self._began)
        if not partitions:
            return CountReport(**facts, min_count=min_count)
        return CountReport(
            **facts,
            min_count=min_count,
            pretokens=sum(marker["pretokens"] for marker in partitions),
            distinct=sum(marker["distinct"] for marker in partitions),
            left=sum(marker["piece"][2] for marker in partitions),
        )


def _clear(folder: Path) -> None:
    """Remove all that a counting job leaves in its folder."""
    for format in (_FORMAT, _PARTITION_FORMAT):
        for path, data in work.left_over(folder, (), format).items():
            work.remove(path, data)


@dataclass(frozen=True)
class CountJob:
    """The counting of a corpus of any size; `count_pretokens` says what the attributes mean.

    `counts` gives the counts in memory, `to_file` writes them without having them there, and
    `count_share` does a share of the first step, on one machine of several.

    >>> job = CountJob("corpus/*.jsonl.zst", "llama3", normalizer=None, work_dir="counting")
    >>> job.partitions
    64
    """

    paths: Paths
    split_pattern: str = GPT2_SPLIT_PATTERN
    special_tokens: Iterable[str] = ()
    normalizer: str | None = "NFC"
    input_format: str = "auto"
    text_field: str = "text"
    separator: str | None = None
    on_error: str = "raise"
    engine: str = "local"
    workers: int | None = None
    address: str | None = None
    work_dir: str | os.PathLike[str] | None = None
    partitions: int = 64
    max_keys: int = 2_000_000
    max_retries: int = 3
    resume: bool = True
    verbose: bool = False

    def __post_init__(self) -> None:
        # A job may be asked more than once: for an estimate, and then for counts.
        object.__setattr__(self, "paths", path_list(self.paths))
        if isinstance(self.special_tokens, Iterator):
            object.__setattr__(self, "special_tokens", tuple(self.special_tokens))

    def counts(self, min_count: int = 1) -> PretokenCounts:
        """Count, and return the counts of all pre-tokens that occur so often."""
        _check_number("min_count", min_count)
        with self._begun(shared=False) as job:
            job.map(job.shards)
            markers = job.reduce(min_count)
            counts = job.counts(markers)
            self._say(job.report(markers, min_count))
            return counts

    def to_file(self, output: str | os.PathLike[str], min_count: int = 1) -> CountReport:
        """Count, and write a file that `PretokenCounts.load` and ``train --counts`` read.

        The counts are never all in memory.

        Raises:
            OSError: the file cannot be written; found out before counting.
        """
        _check_number("min_count", min_count)
        outputs.check_file(output)
        with self._begun(shared=False, output=output) as job:
            job.map(job.shards)
            markers = job.reduce(min_count)
            job.write(markers, Path(output))
            report = job.report(markers, min_count)
            self._say(report)
            return report

    def forget(self) -> None:
        """Remove what counting left in `work_dir`, and the folder, if nothing else is in it."""
        if self.work_dir is None or not Path(self.work_dir).is_dir():
            return
        with work.open_folder(self.work_dir, shared=False) as folder:
            _clear(folder)
        with contextlib.suppress(OSError):
            Path(self.work_dir).rmdir()

    def count_share(self, index: int, of: int) -> CountReport:
        """Count every `of`-th shard, from number `index` on, and leave it in `work_dir`.

        So does each of `of` machines that share a file system; then `counts` or `to_file`, with the
        same `work_dir`, finds all shards counted, and adds them up.
        """
        if self.work_dir is None:
            raise ValueError("a share of a job needs work_dir, on a file system that all share")
        check_resumes(self.resume)
        share((), index, of)  # before a folder is made
        with self._begun(shared=True) as job:
            job.map(share(job.shards, index, of))
            report = job.report()
            self._say(report)
            return report

    def estimate(self) -> str:
        """Say what would be read, before anything is done; from the sizes of files alone."""
        return self._estimate(find_shards(self.paths))

    def _estimate(self, shards: Sequence[Shard]) -> str:
        what = f"{size(sum(shard.size for shard in shards))} in {self._reading().describe(shards)}"
        if len(shards) < (self.workers or core.cores()):
            what += "\na file is counted by one worker: cut large ones to use more"
        return what

    def _reading(self) -> Reading:
        return Reading(self.input_format, self.text_field, self.separator, self.on_error)

    def _engine(self) -> Engine:
        return Engine(self.engine, self.workers, self.address, self.max_retries)

    @contextlib.contextmanager
    def _begun(
        self,
        shared: bool,
        output: str | os.PathLike[str] | None = None,
    ) -> Iterator[_Counting]:
        reading = self._reading()
        settings = _settings(
            self.split_pattern,
            self.special_tokens,
            self.normalizer,
            reading,
            self.partitions,
            self.max_keys,
        )
        engine = self._engine()
        if self.work_dir is None and self.address is not None:
            raise ValueError("a Ray cluster needs work_dir, on a file system that all nodes share")
        apart = [path for path in (self.work_dir, output) if path is not None]
        shards = find_shards(self.paths, apart)
        with contextlib.ExitStack() as stack:
            scratch = self.work_dir
            if scratch is None:
                scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="bpe-counting-"))
            folder = stack.enter_context(work.open_folder(scratch, shared))
            self._say(self._estimate(shards))
            job = _Counting(folder, settings, shards, engine, self.verbose)
            if not shared:
                job.tidy(self.resume)
            yield job

    def _say(self, what: object) -> None:
        if self.verbose:
            print(what, file=sys.stderr)


def count_pretokens(
    paths: Paths,
    split_pattern: str = GPT2_SPLIT_PATTERN,
    *,
    special_tokens: Iterable[str] = (),
    normalizer: str | None = "NFC",
    input_format: str = "auto",
    text_field: str = "text",
    separator: str | None = None,
    on_error: str = "raise",
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    partitions: int = 64,
    min_count: int = 1,
    max_keys: int = 2_000_000,
    max_retries: int = 3,
    resume: bool = True,
    verbose: bool = False,
) -> PretokenCounts:
    """Count the pre-tokens of a corpus larger than memory, than one core, or than one machine.

    The counts are those of `bpe_tokenizer.count_pretokens` on the same documents, whatever the
    engine, the workers and the interruptions.  Train from them with ``train(counts=...)``.

    Args:
        paths: files, directories, patterns, and URLs that fsspec reads; text, .jsonl and .parquet,
            also as .gz, .bz2, .xz and .zst.  A file is the unit of work.
        split_pattern: a pattern, or a name from `SPLIT_PATTERNS`.
        special_tokens: strings that cut a document and are not counted.
        normalizer: "NFC", "NFD", "NFKC", "NFKD" or None.
        input_format: "text", "jsonl" or "parquet"; "auto" goes by the name of each file.
        text_field: the field or column of .jsonl and .parquet files.
        separator: what stands between the documents of a text file; None: it is one document.
        on_error: "raise", or "skip" for leaving out, and counting, documents that are not UTF-8,
            no JSON, or no text.  Damaged files are always errors.
        engine: "local", processes of this machine, or "ray".
        workers: how many; None: one per core.
        address: of a Ray cluster; None: one on this machine, for this job.
        work_dir: what is counted is kept here, and found again by the next run: one that was
            stopped, or has more files.  With several machines, they must share it.  None: a
            temporary directory.
        partitions: in how many parts counts are added up: more take less memory.
        min_count: pre-tokens that occur less often, in all, are left out.
        max_keys: distinct pre-tokens that a worker may hold; with more, it writes them to disk.
        max_retries: how often work is begun again whose process was lost.
        resume: whether to go on with what is in `work_dir`, or begin anew.
        verbose: whether to show progress and a summary, on stderr.

    Raises:
        FileNotFoundError: a path is not there, or matches nothing.
        FileFormatError: a document cannot be read; the file and the line or row are named.
        ValueError: the corpus is empty, `work_dir` holds another job, or a file changed while it
            was read.
        RuntimeError: a worker was lost again and again.
        ImportError: Ray, fsspec or a library for a file's format is needed and missing.
        OSError: the disk is full, say; what is finished is kept.
    """
    job = CountJob(
        paths,
        split_pattern,
        special_tokens,
        normalizer,
        input_format,
        text_field,
        separator,
        on_error,
        engine,
        workers,
        address,
        work_dir,
        partitions,
        max_keys,
        max_retries,
        resume,
        verbose,
    )
    return job.counts(min_count)
