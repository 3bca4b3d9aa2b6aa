"""Counting what superwords are learned from, on any executor.

Counts of pre-tokens come first, and stage one is learned from them, here.  Then each shard is read
twice more: to count which tokens of stage one are neighbors, and, once it is known where text can
be cut, to count the runs between the cuts.  Each of these passes has a folder of its own in the
job's, with markers, so what is done is found again.

Each pass depends on the sum of the pass before.  So a share of a job, on one machine of several,
stops where it needs what another share has not counted yet, and goes on there in its next run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import shutil
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.scale import job_folder, runs
from bpe_tokenizer_tools.scale.counting import Counting, CountJob
from bpe_tokenizer_tools.scale.inputs import Reader, Reading, Shard
from bpe_tokenizer_tools.scale.job import Work
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.files import flush
from bpe_tokenizer_tools.training import superwords
from bpe_tokenizer_tools.training.joins import CountedWords
from bpe_tokenizer_tools.training.neighbors import count_runs, listed, pair_counter
from bpe_tokenizer_tools.training.numbering import Numbering
from bpe_tokenizer_tools.training.superword_counts import (
    SuperwordCounts,
    runs_of,
    written_runs,
)
from bpe_tokenizer_tools.training.variants import Training

PAIRS_FORMAT = "bpe_tokenizer.counted_pairs"
RUNS_FORMAT = "bpe_tokenizer.counted_runs"
_PREFIX = "superwords-"  # of the folder of all passes of a stage one
_MERGED_ABOVE = 2  # how often a merge must occur, which is what `train` asks for by default


@dataclass(frozen=True)
class _Settings:
    """All that decides what a pass counts."""

    numbering: Numbering
    digest: str  # of the numbering, and of the rules for superwords
    reading: Reading
    most: int = 0  # pairs to keep, in the first pass
    keep: bytes | None = None  # of pairs, in the second: where text is not cut
    partitions: int = 1

    def job(self) -> dict[str, Any]:
        """Return the facts that a marker must have for its counts to be valid."""
        facts: dict[str, Any] = {"format": PAIRS_FORMAT, "superwords": self.digest}
        if self.keep is not None:
            facts |= {"format": RUNS_FORMAT, "keep": hashlib.sha256(self.keep).hexdigest()}
        facts |= {"most": self.most, "partitions": self.partitions, "byte_order": sys.byteorder}
        return {**facts, **self.reading.facts()}


class _NumberedShard:
    """The documents of a shard, as numbers of tokens."""

    def __init__(self, settings: _Settings, shard: Shard, advance: Callable[[int], Any]) -> None:
        self.reader = Reader(shard, settings.reading, advance)
        self._numbering = settings.numbering
        self._blocks = settings.numbering.blocks(lambda n_bytes: None)

    def arrays(self) -> Iterator[array[int]]:
        """Yield the numbers of each block."""
        return self._numbering.arrays(self._blocks.of(self.reader.documents()))

    def facts(self) -> dict[str, Any]:
        """Return the facts about the input, once all of it is read."""
        read = {"documents": self._blocks.documents, "bytes": self._blocks.bytes_read}
        return {**self.reader.facts(), **read}


def _count_pairs(
    common: tuple[_Settings, Path], shard: Shard, advance: Callable[[int], Any]
) -> dict[str, Any]:
    """Count the neighbors in a shard; leave them in a folder, and return the marker."""
    settings, folder = common
    job_folder.check_shared(folder)
    numbered, counter = _NumberedShard(settings, shard, advance), pair_counter(settings.most)
    for flat in numbered.arrays():
        counter.add(flat)
    more = {"missed": counter.missed}
    return _leave(settings, folder, shard, numbered, "pairs", lambda _: counter.records(), more)


def _count_runs(
    common: tuple[_Settings, Path], shard: Shard, advance: Callable[[int], Any]
) -> dict[str, Any]:
    """Count the runs of a shard, and leave them, in partitions."""
    settings, folder = common
    job_folder.check_shared(folder)
    numbered, keep = _NumberedShard(settings, shard, advance), array("I")
    keep.frombytes(settings.keep or b"")
    counted = listed(count_runs(numbered.arrays(), zip(keep[::2], keep[1::2])))
    found = {run.encode(): count for run, count in written_runs(counted)}
    more: dict[str, Any] = {}

    def write(file: Any) -> bytes:
        more["runs"] = [runs.write_run(file, found, settings.partitions)]
        return b""

    return _leave(settings, folder, shard, numbered, "run", write, more)


def _leave(
    settings: _Settings,
    folder: Path,
    shard: Shard,
    numbered: _NumberedShard,
    suffix: str,
    write: Callable[[Any], bytes],
    more: dict[str, Any],
) -> dict[str, Any]:
    path = folder / f"{shard.name}.{suffix}"
    with outputs.draft_of(path) as draft:
        with open(draft, "wb") as file:
            file.write(write(file))
            flush(file)
        files = {path.name: job_folder.file_facts(draft)}
        marker = {**settings.job(), **numbered.facts(), "files": files, **more}
        check = numbered.reader.check_unchanged
        job_folder.commit(folder, shard.name, {path: draft}, marker, check)
    return marker


class _MissingError(Exception):
    """Other shares have to count something first."""


class _Shards:
    """Shards as a source for `superwords.Stages`: each call is a pass over all of them.

    With a share, it is a pass over those, and needs the others to have had it.
    """

    def __init__(
        self,
        job: CountJob,
        folder: Path,
        shards: Sequence[Shard],
        settings: _Settings,
        share: slice | None,
    ) -> None:
        self._job, self._shards, self._settings, self._share = job, shards, settings, share
        self._folder = folder / f"{_PREFIX}{settings.digest[:16]}"

    def pairs(self, most: int) -> Any:
        """Count pairs of neighbors in all shards."""
        settings, total = replace(self._settings, most=most), pair_counter(most)
        with self._done(f"pairs-{most}", settings, "neighbors", _count_pairs, Work) as work:
            for shard in self._shards:
                marker = work.markers[shard]
                (name,) = marker["files"]
                total.merge((work.folder / name).read_bytes(), marker["missed"])
        return total

    def runs(self, keep: list[tuple[int, int]], in_python: bool = False) -> CountedWords:
        """Count the runs in all shards."""
        kept = array("I", itertools.chain.from_iterable(sorted(keep))).tobytes()
        settings = replace(self._settings, keep=kept, partitions=self._job.partitions)
        name = f"runs-{hashlib.sha256(kept).hexdigest()[:16]}"
        with self._done(name, settings, "runs", _count_runs, Counting) as work:
            if self._share is not None:
                found: Iterable[tuple[bytes, int]] = work.added(self._shards).items()
            else:
                partitions = work.reduce(self._shards, 1) if work.has_pieces(self._shards) else []
                pieces = work.merged(partitions)
                found = (item for path, piece in pieces for item in runs.scan_piece(path, piece))
            return runs_of((run.decode(), count) for run, count in found)

    @contextlib.contextmanager
    def _done(
        self, name: str, settings: _Settings, what: str, function: Any, kind: Any
    ) -> Iterator[Any]:
        """Do a pass over all shards that have not had it."""
        share = self._share
        with job_folder.open_folder(self._folder / name, shared=share is not None) as folder:
            work = kind(self._job, folder, settings)
            tasks = work.look(self._shards if share is None else self._shards[share])
            work.do_shards(f"counting {what}", function, tasks)
            if work.look([shard for shard in self._shards if shard not in work.markers]):
                raise _MissingError(what)
            yield work


def count(
    job: CountJob,
    folder: Path,
    shards: Sequence[Shard],
    counts: PretokenCounts,
    share: slice | None = None,
) -> SuperwordCounts:
    """Count the runs of shards whose pre-tokens are counted, and return both counts.

    If the job's are a part of a corpus, count what is next: their neighbors or their runs.
    """
    training, options = training_of(job, counts)
    whole = job.whole
    stages = superwords.stages_of(training, options, counts if whole is None else whole)
    facts = [stages.digest(), dataclasses.asdict(options), training.longest, training.contents]
    digest = hashlib.sha256(core.to_json([*facts, training.vocab_size]).encode()).hexdigest()
    settings = _Settings(stages.numbering, digest, job._reading())
    return stages.counts(_Shards(job, folder, shards, settings, share), counts, whole)


def count_share(
    job: CountJob, work: Counting, shards: Sequence[Shard], share: slice, min_frequency: int
) -> str | None:
    """Count as much of a share, whose pre-tokens are counted, as other shares allow.

    Returns what they have to count before this one can go on; None if all is counted.
    """
    everything = Counting(job, work.folder, work.settings)
    left = everything.look(shards)
    counts = PretokenCounts({}, **everything.made())
    if job.whole is None:  # if not, all that follows depends on the whole
        if left:
            return "pre-tokens"
        if not everything.has_pieces(shards):
            raise ValueError(core.EMPTY)
        added = everything.added(shards)
        counts.update((key, count) for key, count in added.items() if count >= min_frequency)
    try:
        count(job, work.folder, shards, counts, share)
    except _MissingError as missing:
        return str(missing)
    return None


def training_of(job: CountJob, counts: PretokenCounts) -> tuple[Training, superwords.Superwords]:
    """Return the training that a job counts for; ValueError if there can be none."""
    tokenizer = BPETokenizer(counts.split_pattern, normalizer=counts.normalizer)
    given = {
        "vocab_size": job.vocab_size,
        "min_frequency": _MERGED_ABOVE,
        "max_token_length": job.max_token_length,
        "special_tokens": list(job.special_tokens),
        "surround": None,
        "verbose": job.verbose,
        "num_workers": job.num_workers,
        "text_field": job.text_field,
    }
    training = Training(tokenizer, given)
    options = superwords.checked(training, job.superwords)
    if job.whole is not None:
        superwords.check_whole(training, options, job.whole)
    return training, options


def clear(folder: Path) -> None:
    """Remove all that these passes left in a job's folder."""
    for passes in list(folder.glob(f"{_PREFIX}*")):
        formats = itertools.product(passes.glob("*/*.json"), (PAIRS_FORMAT, RUNS_FORMAT))
        if any(itertools.starmap(job_folder.read_marker, formats)):
            shutil.rmtree(passes, ignore_errors=True)
