"""Where shards are worked on: in this process, in several of this machine, or on a Ray cluster.

A task is done by a function that leaves its result in files, and returns a few facts.  It may be
done twice, where a process died or a node was lost, and must then do the same again.  The function
and what all tasks have in common are sent to each process once.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.scale.executors.processes import run_in_processes
from bpe_tokenizer_tools.scale.executors.progress import Progress
from bpe_tokenizer_tools.scale.executors.ray import run_on_ray
from bpe_tokenizer_tools.scale.executors.tasks import Task, out_of_memory

__all__ = ["EXECUTORS", "Executor", "Task"]

EXECUTORS = ("local", "ray")


@dataclass(frozen=True)
class Executor:
    """What runs tasks.

    Attributes:
        kind: "local" or "ray".
        num_workers: processes, or tasks of Ray, at a time; None: one per core that may be used.
        address: of a Ray cluster, such as "auto" or "ray://host:10001"; None: one that is started
            on this machine and ends with the job, unless this process has joined one already.
        max_retries: how often a task is begun again whose process was lost.
    """

    kind: str = "local"
    num_workers: int | None = None
    address: str | None = None
    max_retries: int = 3

    def __post_init__(self) -> None:
        if self.kind not in EXECUTORS:
            raise ValueError(f"executor must be one of {', '.join(EXECUTORS)}, got {self.kind!r}")
        if self.address is not None and self.kind != "ray":
            raise ValueError("address names a Ray cluster, and goes with executor='ray' only")
        core.check_size("num_workers", self.num_workers, 1)
        core.check_size("max_retries", self.max_retries, 0)

    def n_processes(self, tasks: int) -> int:
        """Return how many processes of this machine there will be."""
        return max(1, min(self.num_workers or core.cores(), tasks))

    def run(
        self, function: Callable[..., Any], common: Any, tasks: Sequence[Task], progress: Progress
    ) -> Generator[tuple[Task, Any], None, None]:
        """Do all tasks; yield each with its result, in the order in which they are done.

        Closed before that, it gives up the rest, and leaves no process.

        Args:
            function: of a module that can be imported, called as function(common, *arguments,
                advance), where advance(n) is told of n bytes of input that are done.
            common: what all tasks have in common.
            tasks: what to do, in the order in which to begin.
            progress: is told what is done.

        Raises:
            RuntimeError: the process that did a task was lost, and so were those that tried again.
            Exception: whatever the function raises; other tasks are given up then.
        """
        if self.kind == "ray":
            work = pickle.dumps((function, common))
            done = run_on_ray(self, work, tasks, progress)
        elif self.n_processes(2) == 1:
            done = _run_here(function, common, tasks, progress)
        else:
            work = pickle.dumps((function, common))
            num_workers = self.n_processes(len(tasks))
            done = run_in_processes(work, tasks, num_workers, self.max_retries, progress)
        with contextlib.closing(cast("Any", done)):
            for task, result in done:
                progress.finish_shard()
                yield task, result


def _run_here(
    function: Callable[..., Any], common: Any, tasks: Sequence[Task], progress: Progress
) -> Iterator[tuple[Task, Any]]:
    for task in tasks:
        try:
            result = function(common, *task.arguments, progress.advance)
        except MemoryError as error:
            raise out_of_memory(task) from error
        yield task, result
