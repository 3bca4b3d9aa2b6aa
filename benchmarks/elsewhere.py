"""Libraries that need their own environment: a process there times their calls.

`tokenizers` 1 can't be installed next to 0.23.  Name the Python of an environment that has it:

    BENCHMARK_TOKENIZERS_1=/path/to/environment/bin/python python benchmarks/bench_encode.py

The process takes its turns like every other row.  It reports its own CPU time, so sending it the
text costs it nothing.
"""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

WORKER = Path(__file__).with_name("worker.py")
VARIABLE = "BENCHMARK_TOKENIZERS_1"


class Elsewhere:
    """A tokenizer in a process of another environment; the process ends with this object."""

    def __init__(self, python: str, expression: str, x: str) -> None:
        """Load it.

        Args:
            python: the interpreter of the environment.
            expression: makes the tokenizer from `x`.
            x: text, such as the path of a file.
        """
        self._process = subprocess.Popen(
            [python, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            self._ask("load", (expression, x))
        except RuntimeError:
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
        self._process.wait()

    def __del__(self) -> None:
        self.close()

    def _ask(self, method: str, given: Any) -> Any:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests
        assert answers
        pickle.dump((method, given), requests)
        requests.flush()
        is_right, answer = pickle.load(answers)
        if not is_right:
            raise RuntimeError(answer)
        return answer

    def answers(self, expression: str, inputs: Sequence[Any]) -> list[Any]:
        """Return what a call gives for each input; `it` is the tokenizer, `x` the input."""
        return cast("list[Any]", self._ask("answers", (expression, list(inputs))))

    def seconds(self, expression: str, inputs: Sequence[Any]) -> float:
        """Return the CPU time of a call for all inputs."""
        return cast("float", self._ask("seconds", (expression, list(inputs))))

    def repeat(self, expression: str, x: Any, number: int) -> float:
        """Return the CPU time of a number of calls with one input."""
        return cast("float", self._ask("repeat", (expression, x, number)))


class TimedElsewhere:
    """A call for each of several inputs that times itself, so `interleaved` doesn't."""

    def __init__(self, tokenizer: Elsewhere, expression: str) -> None:
        self._tokenizer = tokenizer
        self._expression = expression

    def __call__(self, inputs: Sequence[Any]) -> None:
        """Make the calls."""
        self.seconds(inputs)

    def seconds(self, inputs: Sequence[Any]) -> float:
        """Make the calls; return their CPU time."""
        return self._tokenizer.seconds(self._expression, inputs)


@functools.lru_cache(maxsize=1)
def python_of_tokenizers_1() -> str | None:
    """Return the Python of an environment with tokenizers 1; say so if none was named."""
    python = os.environ.get(VARIABLE)
    if not python:
        print(f"tokenizers 1 is left out: {VARIABLE} names no environment", file=sys.stderr)
    return python


@functools.lru_cache(maxsize=1)
def version_of_tokenizers_1() -> str | None:
    """Return the version that is compared with."""
    python = python_of_tokenizers_1()
    if not python:
        return None
    code = "import importlib.metadata as m; print(m.version('tokenizers'))"
    done = subprocess.run(
        [python, "-c", code], stdout=subprocess.PIPE, encoding="utf-8", check=True
    )
    return done.stdout.strip()
