"""The common part of counting and packing: options, distribution of shards, a report."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.scale import job_folder
from bpe_tokenizer_tools.scale.executors.executor import Executor, Task
from bpe_tokenizer_tools.scale.executors.progress import duration, show_progress, size
from bpe_tokenizer_tools.scale.inputs import Reading, Shard
from bpe_tokenizer_tools.support.text import Printed, counted, say

_OLD_NAMES = {"engine": "executor", "workers": "num_workers", "min_count": "min_frequency"}

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Job:
    """The base of `CountJob` and `PackJob`."""

    input_format: str = "auto"  # "text", "jsonl" or "parquet"; "auto" goes by the name of each file
    text_field: str = "text"  # the field or column of .jsonl and .parquet files
    separator: str | None = None  # between the documents of a text file; None: the file is one
    # "raise", or "skip" to leave out and count documents that are invalid UTF-8 or JSON, or have no
    # text. Damaged files are always errors
    on_error: str = "raise"
    executor: str = "local"  # "local", processes of this machine, or "ray"
    num_workers: int | None = None  # parallel workers; None: one per available core
    # of a Ray cluster, such as "auto" or "ray://host:10001"; None: one that is started on this
    # machine and ends with the job, unless this process has joined one already
    address: str | None = None
    max_retries: int = 3  # how often to restart work after its process died
    resume: bool = True  # whether to continue from the job's folder, or clear it first
    verbose: bool = False  # whether to show progress and a summary on stderr

    def _keep(self, field: str) -> None:
        """Store the items of an iterator: a job may run more than once."""
        value = getattr(self, field)
        if isinstance(value, Iterator):
            object.__setattr__(self, field, tuple(value))

    def _reading(self) -> Reading:
        return Reading(self.input_format, self.text_field, self.separator, self.on_error)

    def _executor(self) -> Executor:
        return Executor(self.executor, self.num_workers, self.address, self.max_retries)

    def _say(self, what: object) -> None:
        if self.verbose:
            say(what, sys.stderr)

    def _size_of(self, shards: Sequence[Shard]) -> str:
        """Describe how much there is to read."""
        return f"{size(sum(shard.size for shard in shards))} in {self._reading().describe(shards)}"

    def _check_share(self, index: int, of: int) -> None:
        """Raise ValueError for a share that doesn't exist, or would start the job over."""
        if not self.resume:
            what = "a share of a job cannot start it over; run it whole with resume=False"
            raise ValueError(what)
        core.check_size("num_shards", of, 1)
        core.check_size("shard_index", index, 0)
        if index >= of:
            raise ValueError(f"shard_index must be from 0 to {of - 1}, got {index}")


class Work:
    """The shards of a job, done in a folder."""

    def __init__(self, job: Job, folder: Path, settings: Any) -> None:
        self._job, self.folder, self.settings = job, folder, settings
        self.executor = job._executor()  # what does the others
        self.markers: dict[Shard, dict[str, Any]] = {}  # of the shards that are done
        self._began = time.perf_counter()
        self._kept = self._input_bytes = 0

    def look(self, shards: Sequence[Shard]) -> list[Task]:
        """Find the markers of the shards that are done, and return tasks for the others."""
        for shard in shards:
            job, on_error = self.settings.job(), self.settings.reading.on_error
            marker = job_folder.finished(self.folder, shard, job, on_error)
            if marker is not None:
                self.markers[shard] = marker
        self._kept = len(self.markers)
        left = sorted(set(shards) - self.markers.keys(), key=lambda shard: (-shard.size, shard))
        self._input_bytes = sum(shard.size for shard in left)
        return [Task(shard.label, (shard,), shard.size) for shard in left]  # the longest first

    def do_shards(self, what: str, function: Callable[..., Any], tasks: Sequence[Task]) -> None:
        """Do the tasks that `look` found; see `do`."""
        self.markers.update(self.do(what, function, self.settings, tasks, self.executor))

    def do(
        self,
        what: str,
        function: Callable[..., Any],
        settings: Any,
        tasks: Sequence[Task],
        executor: Executor,
    ) -> dict[Any, dict[str, Any]]:
        """Do tasks, and return the marker of each by its first argument.

        The function is called as function((settings, folder), *arguments, advance), and returns the
        marker.
        """
        common, total = (settings, self.folder.absolute()), sum(task.size for task in tasks)
        markers = {}
        with (
            show_progress(what, total, len(tasks), self._job.verbose) as progress,
            contextlib.closing(executor.run(function, common, tasks, progress)) as results,
        ):
            for task, marker in results:
                markers[task.arguments[0]] = marker
                job_folder.check_arrived(self.folder, marker)
        return markers

    def sum(self, key: str) -> int:
        """Add up a number that is in all markers."""
        return sum(marker[key] for marker in self.markers.values())

    def facts(self) -> dict[str, Any]:
        """Return the attributes of a `JobReport`, as of now."""
        executor, n_shards = self.executor, len(self.markers)
        on_ray = executor.kind == "ray"
        firsts = (self.markers[shard]["first_skipped"] for shard in sorted(self.markers))
        return {
            "shards": n_shards,
            "kept": self._kept,
            "documents": self.sum("documents"),
            "bytes": self.sum("bytes"),
            "skipped": self.sum("skipped"),
            "first_skipped": next(filter(None, firsts), None),
            "num_workers": executor.num_workers if on_ray else executor.n_processes(n_shards),
            "input_bytes": self._input_bytes,
            "seconds": time.perf_counter() - self._began,
        }


@dataclass(frozen=True)
class JobReport(Printed):
    """The results of a job."""

    shards: int  # files that were read, now or by an earlier run
    kept: int  # those of them that an earlier run had done
    documents: int  # documents in them
    bytes: int  # UTF-8 bytes of text in these
    skipped: int  # documents left out because they could not be read
    first_skipped: str | None  # why the first one was; None if none was
    num_workers: int | None  # processes that worked at a time; None on Ray, if Ray chose
    input_bytes: int  # size on disk of the files that this run read
    seconds: float  # how long it took

    def to_json(self) -> dict[str, Any]:
        """Return the attributes, as JSON has them."""
        return asdict(self)

    def __str__(self) -> str:
        documents, shards = counted(self.documents, "document"), counted(self.shards, "shard")
        lines = [f"{size(self.bytes)} in {documents} of {shards}", *self._lines()]
        if self.skipped:
            what = f"{counted(self.skipped, 'document')} skipped"
            lines.append(f"{what}; the first: {self.first_skipped}")
        speed = f"took {duration(self.seconds)}"
        rate = self.input_bytes / self.seconds if self.seconds else 0.0
        if rate:
            speed += f", {size(rate)} of files a second"
        if rate and self.num_workers:
            workers = counted(self.num_workers, "worker")
            speed += f" ({size(rate / self.num_workers)} for each of {workers})"
        if self.kept:
            speed += f"; {self.kept:,} of {shards} done before"
        return "\n".join([*lines, speed])

    def _lines(self) -> list[str]:
        """Return the lines that are specific to this job."""
        raise NotImplementedError


def takes_old_names(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let a function also accept the option names before 0.9, with a DeprecationWarning."""

    @functools.wraps(function)
    def called(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        for old in [name for name in options if name in _OLD_NAMES]:
            new = _OLD_NAMES[old]
            if new in options:
                raise TypeError(f"{new} is given twice, once by its old name {old}")
            core.warn(f"{old} is called {new} now", DeprecationWarning)
            options[new] = options.pop(old)
        return function(*args, **options)

    return called
