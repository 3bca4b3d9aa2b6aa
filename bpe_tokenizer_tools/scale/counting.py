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
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from bpe_tokenizer import GPT2_SPLIT_PATTERN, AddedToken, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus import records
from bpe_tokenizer_tools.scale import job_folder, runs
from bpe_tokenizer_tools.scale.executors.executor import Executor, Task
from bpe_tokenizer_tools.scale.inputs import Paths, Reader, Reading, Shard, find_shards
from bpe_tokenizer_tools.scale.job import Job, JobReport, Work, takes_old_names
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.files import flush
from bpe_tokenizer_tools.training.superword_counts import SuperwordCounts

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
        """Return the facts that a marker must have for its counts to be valid."""
        return {
            "format": _FORMAT,
            "split_pattern": self.split_pattern,
            "special_tokens": list(self.special_tokens),
            "normalizer": self.normalizer,
            "partitions": self.partitions,
            **self.reading.facts(),
        }


def _check_number(name: str, value: object) -> None:
    """Raise unless a value is an int of at least 1."""
    if value is None:
        raise TypeError(f"{name} must be an int, got None")
    core.check_size(name, value, 1)


class _ShardCounter:
    """Counts a shard, with a limit on the distinct pre-tokens in memory."""

    def __init__(self, settings: _Settings, shard: Shard, advance: Callable[[int], Any]) -> None:
        self._settings = settings
        self.reader = Reader(shard, settings.reading, advance)
        self._splitter = core.splitter(settings.split_pattern)
        tokens = map(AddedToken, settings.special_tokens)
        pipeline = core.Pipeline(self._splitter, settings.normalizer, tokens=tokens)
        self._cutter = core.PretokenCounter(pipeline, 1, lambda n_bytes: None)

    def counts(self) -> Iterator[dict[bytes, int]]:
        """Yield counts that add up to those of the shard."""
        counts: dict[bytes, int] = {}
        batches = self._cutter._batches(self.reader.documents())
        chunk = min(_CHUNK, _CHUNK_PER_KEY * self._settings.max_keys)
        for batch in batches:
            # The batches are already prepared, and cut where that is safe.
            prepared = core.Pipeline(self._splitter, None)
            counter = core.engine().counter(prepared, 1, lambda n_bytes: None)
            more = itertools.islice(batches, chunk // self._cutter._BATCH_CHARS)
            counter.count([piece] for pieces in itertools.chain([batch], more) for piece in pieces)
            found = counter.take()
            if counts:
                _add(counts, found.items())
            else:
                counts = found
            if len(counts) > self._settings.max_keys:
                yield counts
                counts = {}
        yield counts

    def facts(self) -> dict[str, Any]:
        """Return the facts about the input, once all counts are there."""
        read = {"documents": self._cutter.documents, "bytes": self._cutter.bytes_read}
        return {**self.reader.facts(), **read}


def count_shard(
    path: str | os.PathLike[str], split_pattern: str = GPT2_SPLIT_PATTERN, **options: Any
) -> PretokenCounts:
    """Count the pre-tokens of one file, in this process: the map of any executor.

    The options are those of `count_pretokens`, except for executors.
    """
    settings = CountJob(path, split_pattern, **options)._settings()
    settings = replace(settings, partitions=1, max_keys=2**62)
    shards = find_shards(path)
    if len(shards) != 1:
        raise ValueError(f"expected one file, got {len(shards)}: {path}; use count_pretokens")
    counter = _ShardCounter(settings, shards[0], lambda n_bytes: None)
    (counts,) = counter.counts()
    facts = counter.facts()
    return PretokenCounts(
        counts, settings.split_pattern, settings.normalizer, facts["documents"], facts["bytes"]
    )


@takes_old_names
def merge_counts(parts: Iterable[PretokenCounts], min_frequency: int = 1) -> PretokenCounts:
    """Add up the counts of parts of a corpus: the reduce of any executor.

    Pre-tokens that occur less often in all than `min_frequency` are left out.

    Raises:
        ValueError: there are no parts, or their patterns or normalizers differ.

    >>> import bpe_tokenizer
    >>> parts = [bpe_tokenizer.count_pretokens(text) for text in ("to be", "or not to be")]
    >>> sorted(merge_counts(parts, min_frequency=2).items())
    [(b' be', 2)]
    """
    _check_number("min_frequency", min_frequency)
    total: PretokenCounts | None = None
    for part in parts:
        if not isinstance(part, PretokenCounts):
            raise TypeError(f"expected PretokenCounts, got {type(part).__name__}")
        if isinstance(part, SuperwordCounts) or isinstance(total, SuperwordCounts):
            total = part if total is None else total + part
            continue
        if total is None:
            total = PretokenCounts({}, part.split_pattern, part.normalizer)
        total.check_made_by(part.split_pattern, part.normalizer)
        total.documents += part.documents
        total.bytes_read += part.bytes_read
        _add(total, part.items())
    if total is None:
        raise ValueError("expected counts to add up, got none")
    if min_frequency > 1 and isinstance(total, SuperwordCounts):
        raise ValueError("counts with superwords need all pre-tokens; leave out min_frequency")
    for pretoken in [key for key, count in total.items() if count < min_frequency]:
        del total[pretoken]
    return total


def _add(total: dict[bytes, int], counts: Iterable[tuple[bytes, int]]) -> None:
    for pretoken, count in counts:
        total[pretoken] = total.get(pretoken, 0) + count


# -- Tasks --------------------------------------------------------------------


def _count_to_runs(
    common: tuple[_Settings, Path], shard: Shard, advance: Callable[[int], Any]
) -> dict[str, Any]:
    """Count a shard; leave its runs and its marker in a folder, and return the marker."""
    settings, folder = common
    job_folder.check_shared(folder)
    counter = _ShardCounter(settings, shard, advance)
    path = folder / f"{shard.name}.run"
    with outputs.draft_of(path) as draft:
        with open(draft, "wb") as file:
            pieces = [
                runs.write_run(file, counts, settings.partitions) for counts in counter.counts()
            ]
            flush(file)
        files = {path.name: job_folder.file_facts(draft)}
        marker = {**settings.job(), **counter.facts(), "files": files, "runs": pieces}
        job_folder.commit(folder, shard.name, {path: draft}, marker, counter.reader.check_unchanged)
    return marker


def _merge_partition(
    common: tuple[Mapping[str, Any], Path],
    name: str,
    pieces: list[tuple[str, runs.Piece]],
    advance: Callable[[int], Any],
) -> dict[str, Any]:
    """Add up one partition of all runs; leave it, sorted, with its marker, and return that."""
    wanted, folder = common
    total: dict[bytes, int] = {}
    for file, piece in pieces:
        _add(total, runs.read_piece(folder / file, runs.Piece(*piece)))
        advance(piece[1])
    kept = sorted(key for key, count in total.items() if count >= wanted["min_count"])
    path = folder / f"{name}.counts"
    with outputs.draft_of(path) as draft:
        with open(draft, "wb") as out:
            written = runs.write_partition(out, kept, [total[key] for key in kept])
            flush(out)
        marker = {
            **wanted,
            "distinct": len(total),
            "pretokens": sum(total.values()),
            "piece": written,
            "files": {path.name: job_folder.file_facts(draft)},
        }
        job_folder.commit(folder, name, {path: draft}, marker)
    return marker


# -- The job ------------------------------------------------------------------


@dataclass(frozen=True)
class CountReport(JobReport):
    """The results of counting, in addition to any job's."""

    min_frequency: int  # pre-tokens that occur less often were cut
    pretokens: int | None = None  # all in all; None in a share, which adds nothing up
    distinct: int | None = None  # how many different ones there were; or None
    left: int | None = None  # how many different ones are left; or None
    # what other shares have to count before this one, with superwords, can go on; None if nothing
    waits_for: str | None = None

    def _lines(self) -> list[str]:
        if self.waits_for is not None:
            return [
                f"counted {self.waits_for}; once all shares have, run them again, or one without"
            ]
        if self.pretokens is None:
            return ["counted; a run without a share adds up"]
        lines = [f"{self.pretokens:,} pre-tokens, {self.distinct:,} distinct"]
        if self.min_frequency > 1:
            lines.append(f"{self.left:,} distinct that occur {self.min_frequency} times or more")
        return lines


class Counting(Work):
    """A counting job in its folder."""

    def reduce(self, shards: Sequence[Shard], min_frequency: int) -> list[dict[str, Any]]:
        """Add up each partition that is not yet, and return the markers of all."""
        partitions = self._pieces(shards)
        if not self.has_pieces(shards):
            raise ValueError(core.EMPTY)
        read = [self.markers[shard]["files"] for shard in shards]
        digest = hashlib.sha256(core.to_json(read).encode()).hexdigest()
        # "min_count" is the name in files that earlier versions wrote.
        wanted = {"format": _PARTITION_FORMAT, "made_of": digest, "min_count": min_frequency}
        markers: dict[str, dict[str, Any]] = {}
        tasks = []
        for name, pieces in partitions.items():
            path = self.folder / f"{name}.json"
            marker = job_folder.read_marker(path, _PARTITION_FORMAT)
            if marker and wanted.items() <= marker.items() and job_folder.is_whole(path, marker):
                markers[name] = marker
            else:
                tasks.append(Task(name, (name, pieces), sum(piece[1] for _, piece in pieces)))
        # What is added up in seconds is added up before processes would have started.
        is_little = sum(task.size for task in tasks) < _LITTLE
        executor = Executor("local", 1) if is_little else self.executor
        markers.update(self.do("adding up", _merge_partition, wanted, tasks, executor))
        return [markers[name] for name in partitions]

    def added(self, shards: Sequence[Shard]) -> dict[bytes, int]:
        """Add up all partitions in memory.

        Unlike `reduce`, this writes nothing, so other shares of the job may do it at the same time.
        """
        total: dict[bytes, int] = {}
        for pieces in self._pieces(shards).values():
            for file, piece in pieces:
                _add(total, runs.read_piece(self.folder / file, piece))
        return total

    def has_pieces(self, shards: Sequence[Shard]) -> bool:
        """Return True if anything was counted."""
        return any(self._pieces(shards).values())

    def _pieces(self, shards: Sequence[Shard]) -> dict[str, list[tuple[str, runs.Piece]]]:
        """Return the place of each partition in the runs of all shards."""
        names = [f"partition-{number:05}" for number in range(self.settings.partitions)]
        partitions: dict[str, list[tuple[str, runs.Piece]]] = {name: [] for name in names}
        for marker in map(self.markers.__getitem__, shards):
            (file,) = marker["files"]
            for run in marker["runs"]:
                for pieces, piece in zip(partitions.values(), run):
                    if piece[2]:
                        pieces.append((file, runs.Piece(*piece)))
        return partitions

    def merged(self, partitions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Path, runs.Piece]]:
        """Yield the places of each partition's counts."""
        for marker in partitions:
            (name,) = marker["files"]
            yield self.folder / name, runs.Piece(*marker["piece"])

    def made(self) -> dict[str, Any]:
        """Return the attributes of the counts."""
        return {
            "split_pattern": self.settings.split_pattern,
            "normalizer": self.settings.normalizer,
            "documents": self.sum("documents"),
            "bytes_read": self.sum("bytes"),
        }


def _clear(folder: Path) -> None:
    """Remove all that a counting job leaves in its folder."""
    from bpe_tokenizer_tools.scale import superword_counting

    superword_counting.clear(folder)
    for format in (_FORMAT, _PARTITION_FORMAT):
        for path, data in job_folder.left_over(folder, (), format).items():
            job_folder.remove(path, data)


@dataclass(frozen=True)
class CountJob(Job):
    """The counting of a corpus of any size, by these options and those of every `Job`.

    `counts` gives the counts in memory, `to_file` writes them without having them there, and
    `count_share` does a share of the work, on one machine of several.

    >>> job = CountJob("corpus/*.jsonl.zst", "llama3", normalizer=None, work_dir="counting")
    >>> job.partitions
    64
    """

    # files, directories, patterns, and URLs that fsspec reads; text, .jsonl and .parquet, also as
    # .gz, .bz2, .xz and .zst. A file is the unit of work
    paths: Paths
    split_pattern: str = GPT2_SPLIT_PATTERN  # a pattern, or a name from `SPLIT_PATTERNS`
    special_tokens: Iterable[str] = ()  # strings that cut a document and are not counted
    normalizer: str | None = "NFC"  # "NFC", "NFD", "NFKC", "NFKD" or None
    _: KW_ONLY
    # what is counted is kept here, and found again by the next run: one that was stopped, or has
    # more files. With several machines, they must share it. None: a temporary directory
    work_dir: str | os.PathLike[str] | None = None
    partitions: int = 64  # in how many parts counts are added up: more take less memory
    max_keys: int = 2_000_000  # distinct pre-tokens a worker holds before it writes them to disk
    # a `Superwords`, a mapping of its fields or a transition: the corpus is read three times then,
    # and the counts are a `SuperwordCounts`, enough for superwords in up to vocab_size tokens
    superwords: Any = None
    vocab_size: int = 32_000
    max_token_length: int | None = None
    # if the paths are a part of a corpus: the sum of the pre-tokens of all parts, and then of their
    # neighbors. Then the counts are of neighbors or of runs, to be added up again
    whole: PretokenCounts | None = None

    def __post_init__(self) -> None:
        self._keep("paths")
        self._keep("special_tokens")

    @takes_old_names
    def counts(self, min_frequency: int = 1) -> PretokenCounts:
        """Count, and return the counts of all pre-tokens that occur so often."""
        self._check_least(min_frequency)
        with self._begun() as (work, shards):
            partitions = work.reduce(shards, min_frequency)
            counts = self._in_memory(work, shards, partitions)
            self._report(work, min_frequency, partitions)
            return counts

    @takes_old_names
    def to_file(self, output: str | os.PathLike[str], min_frequency: int = 1) -> CountReport:
        """Count, and write a file that `PretokenCounts.load` and ``train --counts`` read.

        The counts are never all in memory, unless they are for superwords.  That the file can be
        written is seen before counting.
        """
        self._check_least(min_frequency)
        outputs.check_file(output)
        with self._begun(output=output) as (work, shards):
            partitions = work.reduce(shards, min_frequency)
            if self.superwords is not None:
                self._in_memory(work, shards, partitions).save(output)
            else:
                streams = [runs.scan_piece(path, piece) for path, piece in work.merged(partitions)]
                records.write_counts(Path(output), work.made(), heapq.merge(*streams))
            return self._report(work, min_frequency, partitions)

    def _check_least(self, min_frequency: object) -> None:
        _check_number("min_frequency", min_frequency)
        if self.whole is not None and min_frequency != 1:
            raise ValueError("a part of a corpus needs all its pre-tokens; leave out min_frequency")

    def _in_memory(
        self, work: Counting, shards: Sequence[Shard], partitions: Iterable[Mapping[str, Any]]
    ) -> PretokenCounts:
        counts = PretokenCounts({}, **work.made())
        for path, piece in work.merged(partitions):
            counts.update(runs.read_piece(path, piece))
        if self.superwords is None:
            return counts
        from bpe_tokenizer_tools.scale import superword_counting

        return superword_counting.count(self, work.folder, shards, counts)

    def forget(self) -> None:
        """Remove what counting left in `work_dir`, and the folder, if nothing else is in it."""
        if self.work_dir is None or not Path(self.work_dir).is_dir():
            return
        with job_folder.open_folder(self.work_dir, shared=False) as folder:
            _clear(folder)
        with contextlib.suppress(OSError):
            Path(self.work_dir).rmdir()

    def count_share(self, index: int, of: int, min_frequency: int = 1) -> CountReport:
        """Count every `of`-th shard, from number `index` on, and leave it in `work_dir`.

        So does each of `of` machines that share a file system; then `counts` or `to_file`, with the
        same `work_dir`, finds all shards counted, and adds them up.

        With superwords, there are three rounds.  Each share counts pre-tokens; once all of them are
        there, neighbors; then runs.  Call it again for each round, with all shares, or leave the
        rest to the run without a share.  `min_frequency` is that of `counts` or `to_file`, as it
        decides what neighbors are; pre-tokens are counted whatever it is.
        """
        if self.work_dir is None:
            raise ValueError("a share of a job needs work_dir, on a file system that all share")
        self._check_share(index, of)  # before a folder is made
        self._check_least(min_frequency)
        share = slice(index, None, of)
        with self._begun(share) as (work, shards):
            if self.superwords is None:
                return self._report(work)
            from bpe_tokenizer_tools.scale import superword_counting

            missing = superword_counting.count_share(self, work, shards, share, min_frequency)
            return self._report(work, waits_for=missing)

    def _report(
        self,
        work: Work,
        min_frequency: int = 1,
        partitions: Iterable[Mapping[str, Any]] = (),
        waits_for: str | None = None,
    ) -> CountReport:
        report = CountReport(**work.facts(), min_frequency=min_frequency, waits_for=waits_for)
        if partitions:
            report = replace(
                report,
                pretokens=sum(marker["pretokens"] for marker in partitions),
                distinct=sum(marker["distinct"] for marker in partitions),
                left=sum(marker["piece"][2] for marker in partitions),
            )
        self._say(report)
        return report

    def estimate(self) -> str:
        """Describe the input before doing anything, from the sizes of files only."""
        return self._estimate(find_shards(self.paths))

    def _estimate(self, shards: Sequence[Shard]) -> str:
        what = self._size_of(shards)
        if len(shards) < (self.num_workers or core.cores()):
            what += "\na file is counted by one worker: cut large ones to use more"
        return what

    def _settings(self) -> _Settings:
        core.check_normalizer(self.normalizer)
        _check_number("partitions", self.partitions)
        if self.partitions > _MAX_PARTITIONS:
            raise ValueError(
                f"partitions must be at most {_MAX_PARTITIONS:,}, got {self.partitions:,}"
            )
        _check_number("max_keys", self.max_keys)
        if isinstance(self.special_tokens, str):
            raise TypeError(f"special_tokens must be a list of texts, got {self.special_tokens!r}")
        tokens = list(self.special_tokens)
        if not all(isinstance(token, str) for token in tokens):
            raise TypeError(f"special_tokens must be texts, got {core.shorten(tokens)}")
        return _Settings(
            core.splitter(core.pattern_named(self.split_pattern)).pattern,
            tuple(sorted(AddedToken(token).content for token in tokens)),
            self.normalizer,
            self._reading(),
            self.partitions,
            self.max_keys,
        )

    @contextlib.contextmanager
    def _begun(
        self, share: slice | None = None, output: str | os.PathLike[str] | None = None
    ) -> Iterator[tuple[Counting, list[Shard]]]:
        """Count all shards that are not counted yet, or those of a share."""
        settings = self._settings()
        self._executor()  # which checks its options, before a folder is made
        if self.superwords is not None:
            from bpe_tokenizer_tools.scale import superword_counting

            made = PretokenCounts({}, settings.split_pattern, settings.normalizer)
            superword_counting.training_of(self, made)  # the same
        if self.work_dir is None and self.address is not None:
            raise ValueError("a Ray cluster needs work_dir, on a file system that all nodes share")
        shards = find_shards(self.paths, filter(None, (self.work_dir, output)))
        with contextlib.ExitStack() as stack:
            scratch = self.work_dir
            if scratch is None:
                scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="bpe-counting-"))
            folder = stack.enter_context(job_folder.open_folder(scratch, share is not None))
            self._say(self._estimate(shards))
            if share is None:
                self._tidy(folder, shards, settings)
            work = Counting(self, folder, settings)
            tasks = work.look(shards[share] if share else shards)
            work.do_shards("counting", _count_to_runs, tasks)
            yield work, shards

    def _tidy(self, folder: Path, shards: Sequence[Shard], settings: _Settings) -> None:
        """Remove what belongs to shards that are not named any more, or all."""
        if not self.resume:
            _clear(folder)
        left = job_folder.left_over(folder, shards, _FORMAT)
        for path, data in left.items():
            job_folder.check_same_job(path, data, settings.job())
        for path, data in left.items():
            job_folder.remove(path, data)


CountJob.__init__ = takes_old_names(CountJob.__init__)  # type: ignore[method-assign]


@takes_old_names
def count_pretokens(
    paths: Paths, split_pattern: str = GPT2_SPLIT_PATTERN, *, min_frequency: int = 1, **options: Any
) -> PretokenCounts:
    """Count the pre-tokens of a corpus larger than memory, than one core, or than one machine.

    The counts are those of `bpe_tokenizer.count_pretokens` on the same documents, whatever the
    executor, the workers and the interruptions.  Train from them with ``train(counts=...)``.

    For the options see `CountJob`.  Pre-tokens that occur less often than `min_frequency`, in all,
    are left out.

    Raises:
        FileNotFoundError: a path is not there, or matches nothing.
        FileFormatError: a document cannot be read; the file and the line or row are named.
        ValueError: the corpus is empty, `work_dir` contains another job, or a file changed while it
            was read.
        RuntimeError: a worker was lost again and again.
        ImportError: Ray, fsspec or a library for a file's format is needed and missing.
        BlockingIOError: another run is at work in `work_dir`.
        OSError: for example, the disk is full; finished work is kept.
    """
    return CountJob(paths, split_pattern, **options).counts(min_frequency)
