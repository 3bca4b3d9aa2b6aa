"""Times calls of a library in its own environment; elsewhere.py starts it there.

Requests and answers are pickled, on stdin and stdout.  It imports nothing from this repository,
because that environment may not have it.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import time
import timeit
from typing import Any, BinaryIO

Request = tuple[str, Any]


class Worker:
    """One tokenizer: `it` in the requested expressions."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}

    def load(self, given: tuple[str, str]) -> None:
        """Make the tokenizer with an expression of `x`."""
        expression, x = given
        self.names["it"] = eval(expression, {"x": x})

    def answers(self, given: tuple[str, list[Any]]) -> list[Any]:
        """Return the result of a call for each of several inputs, as plain lists."""
        expression, inputs = given
        call = eval(f"lambda x: {expression}", self.names)
        found = [call(x) for x in inputs]
        return [each.tolist() if hasattr(each, "tolist") else each for each in found]

    def seconds(self, given: tuple[str, list[Any]]) -> float:
        """Return the CPU time of a call for all inputs, one after the other."""
        expression, inputs = given
        call = eval(f"lambda x: {expression}", self.names)
        started = time.process_time()
        for x in inputs:
            call(x)
        return time.process_time() - started

    def repeat(self, given: tuple[str, Any, int]) -> float:
        """Return the CPU time of repeating a call with the same input."""
        expression, x, number = given
        timer = timeit.Timer(expression, timer=time.process_time, globals={**self.names, "x": x})
        return timer.timeit(number)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more: (True, result) or (False, what went wrong)."""
    worker = Worker()
    while True:
        try:
            method, given = pickle.load(requests)
        except EOFError:
            return
        try:
            answer = (True, getattr(worker, method)(given))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic in Rust is not an Exception
            answer = (False, f"{type(error).__name__}: {error}")
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    gc.disable()
    kept = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the library's own output must not mix with the answers
    serve(sys.stdin.buffer, kept)
