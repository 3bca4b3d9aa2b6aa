"""What every job does with its shards: see which are done, do the others, share them out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.scale import job_folder
from bpe_tokenizer_tools.scale.executors.executor import Executor, Task
from bpe_tokenizer_tools.scale.executors.progress import show_progress
from bpe_tokenizer_tools.scale.inputs import Shard

__all__ = ["Markers", "check_resumes", "do_tasks", "plan_tasks", "share"]

Markers = dict[Shard, dict[str, Any]]


def plan_tasks(
    folder: Path, shards: Sequence[Shard], job: Mapping[str, Any], on_error: str
) -> tuple[Markers, list[Task]]:
    """Return the markers of the shards that are done, and tasks for the others.

    Raises:
        ValueError: the folder belongs to another job.
    """
    found = {shard: job_folder.finished(folder, shard, job, on_error) for shard in shards}
    markers = {shard: marker for shard, marker in found.items() if marker is not None}
    tasks = [
        Task(shard.label, (shard,), shard.size)
        for shard in sorted(shards, key=lambda shard: -shard.size)  # the longest first
        if shard not in markers
    ]
    return markers, tasks


def do_tasks(
    tasks: Sequence[Task],
    executor: Executor,
    function: Callable[..., Any],
    settings: Any,
    folder: Path,
    what: str | None,
) -> Markers:
    """Do what `look` found to do, and return the markers of these shards.

    Args:
        tasks: one for each shard.
        executor: what runs them.
        function: called as function((settings, folder), shard, advance), it returns the marker.
        settings: what all shards have in common.
        folder: where the work is done.
        what: what it is called where progress is shown; None: nothing is shown.
    """
    markers = {}
    common = settings, str(folder.absolute())
    total = sum(task.size for task in tasks)
    with show_progress(what or "", total, len(tasks), what is not None) as progress:
        results = executor.run(function, common, tasks, progress)
        with contextlib.closing(results):
            for task, marker in results:
                markers[task.arguments[0]] = marker
                job_folder.check_arrived(folder, marker)
    return markers


def check_resumes(resume: bool) -> None:
    """Raise ValueError if a share of a job is asked to begin all of it anew."""
    if not resume:
        raise ValueError("a share of a job cannot begin it anew; run it whole with resume=False")


def share(shards: Sequence[Shard], index: int, of: int) -> Sequence[Shard]:
    """Return every `of`-th shard from one on.

    Raises:
        ValueError: there is no such share.
    """
    core.check_size("num_shards", of, 1)
    core.check_size("shard_index", index, 0)
    if index >= of:
        raise ValueError(f"shard_index must be from 0 to {of - 1}, got {index}")
    return shards[index::of]
