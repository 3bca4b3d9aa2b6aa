"""Run tasks in this process, in several processes of this machine, or on a Ray cluster.

A task is a call of a function that writes its result to files and returns a few facts.  If a
process dies or a node is lost, it may run twice, and must give the same result again.  The function
and the arguments that all tasks share are sent to each process once.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.scale.executors.progress import Progress

EXECUTORS = ("local", "ray")


@dataclass(frozen=True)
class Task:
    """A piece of work."""

    name: str  # its name in messages: usually the label of a shard
    arguments: tuple[Any, ...]  # of the function, after the shared ones
    size: int = 0  # bytes of input

    def lost(self, what: str, attempts: int) -> RuntimeError:
        """Make the error for a task whose process was lost each time."""
        return RuntimeError(
            f"the process that worked on {self.name} {what}, {attempts} times in all; often it ran "
            "out of memory: try fewer workers. What is finished is kept: the same call goes on"
        )

    def out_of_memory(self) -> MemoryError:
        """Make the error for a task that was refused memory."""
        return MemoryError(
            f"{self.name}: out of memory: each line or row is held in memory whole. Try "
            "fewer workers, or shorter documents. What is finished is kept: the same call goes on"
        )


Results = Generator[tuple[Task, Any], None, None]


@dataclass(frozen=True)
class Executor:
    """What runs tasks: "local" or "ray"; the other attributes are those of a `Job`."""

    kind: str = "local"
    num_workers: int | None = None
    address: str | None = None
    max_retries: int = 3

    def __post_init__(self) -> None:
        if self.kind not in EXECUTORS:
            raise ValueError(f"executor must be one of {', '.join(EXECUTORS)}, got {self.kind!r}")
        if self.address is not None and self.kind != "ray":
            raise ValueError("address names a Ray cluster, and works only with executor='ray'")
        core.check_size("num_workers", self.num_workers, 1)
        core.check_size("max_retries", self.max_retries, 0)

    def n_processes(self, tasks: int) -> int:
        """Return how many processes of this machine there will be."""
        return max(1, min(self.num_workers or core.cores(), tasks))

    def run(
        self, function: Callable[..., Any], common: Any, tasks: Sequence[Task], progress: Progress
    ) -> Results:
        """Do tasks, begun in their order; yield each with its result, in the order they are done.

        Closed before that, it gives up the rest, and leaves no process.

        The function, of a module that can be imported, is called as function(common, *arguments,
        advance), where advance(n) reports n more bytes of input as done.

        Raises:
            RuntimeError: the process that did a task was lost, and so were those that tried again.
            Exception: whatever the function raises; other tasks are given up then.
        """
        if self.kind == "local" and self.n_processes(2) == 1:
            done = _run_here(function, common, tasks, progress)
        else:
            from bpe_tokenizer_tools.scale.executors import processes, ray

            run_elsewhere = ray.run_on_ray if self.kind == "ray" else processes.run_in_processes
            done = run_elsewhere(self, pickle.dumps((function, common)), tasks, progress)
        with contextlib.closing(done):
            for task, result in done:
                progress.finish_shard()
                yield task, result


def _run_here(
    function: Callable[..., Any], common: Any, tasks: Sequence[Task], progress: Progress
) -> Results:
    for task in tasks:
        try:
            result = function(common, *task.arguments, progress.advance)
        except MemoryError as error:
            raise task.out_of_memory() from error
        yield task, result


def portable(error: Exception) -> tuple[Exception, str]:
    """Return an error that survives pickling, and where it came from, which does not."""
    trace = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return error, trace


@functools.lru_cache(maxsize=2)
def unpacked(payload: bytes) -> Any:
    """Return a function and the shared arguments of its tasks; once per process, not per task."""
    return pickle.loads(payload)
