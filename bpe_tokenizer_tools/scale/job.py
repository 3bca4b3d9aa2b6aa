"""The options of every job, and the spellings that they had before 0.9."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from bpe_tokenizer_tools.scale.executors.executor import Executor
from bpe_tokenizer_tools.scale.inputs import Reading

__all__ = ["Job", "takes_old_names"]

_OLD_NAMES = {"engine": "executor", "workers": "num_workers", "min_count": "min_frequency"}

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What `CountJob` and `PackJob` have in common.

    Attributes:
        input_format: "text", "jsonl" or "parquet"; "auto" goes by the name of each file.
        text_field: the field or column of .jsonl and .parquet files.
        separator: what separates the documents of a text file; None: each file is one document.
        on_error: "raise", or "skip" to leave out and count documents that are invalid UTF-8 or
            JSON, or have no text.  Damaged files are always errors.
        executor: "local", processes of this machine, or "ray".
        num_workers: how many; None: one per core.
        address: of a Ray cluster; None: one on this machine, for this job.
        max_retries: how often work is begun again whose process was lost.
        resume: whether to go on with what is in the job's folder, or clear it first.
        verbose: whether to show progress and a summary on stderr.
    """

    input_format: str = "auto"
    text_field: str = "text"
    separator: str | None = None
    on_error: str = "raise"
    executor: str = "local"
    num_workers: int | None = None
    address: str | None = None
    max_retries: int = 3
    resume: bool = True
    verbose: bool = False

    def _reading(self) -> Reading:
        return Reading(self.input_format, self.text_field, self.separator, self.on_error)

    def _executor(self) -> Executor:
        return Executor(self.executor, self.num_workers, self.address, self.max_retries)

    def _say(self, what: object) -> None:
        if self.verbose:
            print(what, file=sys.stderr)


def takes_old_names(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let a function take its options by their old names, too, with a DeprecationWarning."""

    @functools.wraps(function)
    def called(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        for old in [name for name in options if name in _OLD_NAMES]:
            new = _OLD_NAMES[old]
            if new in options:
                raise TypeError(f"{new} is given twice, once by its old name {old}")
            warnings.warn(f"{old} is called {new} now", DeprecationWarning, stacklevel=2)
            options[new] = options.pop(old)
        return function(*args, **options)

    return called
