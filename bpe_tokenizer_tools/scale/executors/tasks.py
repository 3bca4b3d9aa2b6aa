"""Pieces of work, and what those who do them elsewhere have in common."""

from __future__ import annotations

import functools
import pickle
import traceback
from dataclasses import dataclass
from typing import Any

__all__ = ["Task", "lost", "portable", "out_of_memory", "unpacked"]


@dataclass(frozen=True)
class Task:
    """A piece of work.

    Attributes:
        name: what it is called in messages: usually the label of a shard.
        arguments: what the function is called with, besides what all tasks have in common.
        size: bytes of input.
    """

    name: str
    arguments: tuple[Any, ...]
    size: int = 0


def lost(task: Task, what: str, attempts: int) -> RuntimeError:
    """Make the error for a task whose process was lost each time."""
    return RuntimeError(
        f"the process that worked on {task.name} {what}, {attempts} times in all; often it ran "
        "out of memory: try fewer workers. What is finished is kept: the same call goes on"
    )


def out_of_memory(task: Task) -> MemoryError:
    """Make the error for a task that was refused memory."""
    return MemoryError(
        f"{task.name}: out of memory: each line or row is held in memory whole. Try "
        "fewer workers, or shorter documents. What is finished is kept: the same call goes on"
    )


def portable(error: Exception) -> tuple[Exception, str]:
    """Return an error that survives pickling, and where it came from, which does not."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return error, trace


@functools.lru_cache(maxsize=2)
def unpacked(payload: bytes) -> Any:
    """Return a function and what its tasks have in common; once per process, not once per task."""
    return pickle.loads(payload)
