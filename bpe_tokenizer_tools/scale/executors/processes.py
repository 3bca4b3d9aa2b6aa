"""Tasks in processes of this machine.

The processes are started as programs, not forked, so this process's threads and script don't
matter.  Tasks go in through one pipe, and results come back through another.  A process whose pipe
closes ends immediately, in the middle of its work, because the process that started it is gone.

The standard ProcessPoolExecutor can't do this.  One killed worker breaks the whole pool, so the
other tasks are lost, too, and it doesn't say which task killed it or how the process ended.  Its
processes import the caller's script, which fails without `if __name__ == "__main__":`, and until
Python 3.14 it has no way to end them in the middle of a task.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, cast

from bpe_tokenizer_tools.scale.executors.executor import Executor, Results, Task, portable, unpacked
from bpe_tokenizer_tools.scale.executors.progress import Progress

_PROGRAM = """
import sys
sys.path[:] = filter(None, sys.path)  # don't import modules from the current directory
import pickle
sys.path[:] = pickle.load(sys.stdin.buffer)
from bpe_tokenizer_tools.scale.executors.processes import _serve
_serve()
"""
_ISOLATED = ["-I"] if sys.flags.isolated else []
_TELL_EVERY = 0.2  # seconds


def _serve() -> None:
    """Work for the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Windows it is not blocked
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed gets among them
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, inbox), daemon=True).start()
    payload = inbox.get()
    progress = _ProgressPipe(replies)
    while True:
        arguments = inbox.get()
        try:
            function, common = unpacked(payload)
            reply = ("done", function(common, *arguments, progress.advance))
        except Exception as error:
            reply = ("failed", portable(error))
        with contextlib.suppress(OSError):  # nobody listens anymore: `_listen` ends this process
            progress.flush()
            _send(replies, reply)


def _listen(stream: BinaryIO, inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(pickle.load(stream))
    except (EOFError, OSError, pickle.UnpicklingError):
        os._exit(0)
    except BaseException:  # it can't be unpickled here; the sender notices the exit
        traceback.print_exc()
        os._exit(1)


class _ProgressPipe:
    """Reports a task's progress to the waiting process, but not too often."""

    def __init__(self, replies: BinaryIO) -> None:
        self._replies, self._bytes, self._told = replies, 0, time.monotonic()

    def advance(self, n_bytes: int) -> None:
        self._bytes += n_bytes
        if time.monotonic() - self._told >= _TELL_EVERY:
            self.flush()

    def flush(self) -> None:
        _send(self._replies, ("advance", self._bytes))
        self._bytes, self._told = 0, time.monotonic()


def _send(stream: BinaryIO, message: Any) -> None:
    pickle.dump(message, stream)
    stream.flush()


class _LostError(Exception):
    """A process has ended before its task was done."""


class _Process:
    """A worker process."""

    def __init__(self, payload: bytes) -> None:
        if hasattr(signal, "pthread_sigmask"):  # Ctrl-C is for the main thread
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self.process = subprocess.Popen(
            [sys.executable, *_ISOLATED, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._tasks = cast("BinaryIO", self.process.stdin)
        self._replies = cast("BinaryIO", self.process.stdout)
        self._unsent: tuple[Any, ...] = (sys.path, payload)

    def call(self, task: Task, advance: Callable[[int], Any]) -> Any:
        """Run a task there; raise its exception, or `_LostError`."""
        told = 0
        try:
            for message in (*self._unsent, task.arguments):
                _send(self._tasks, message)
            self._unsent = ()
            while (reply := pickle.load(self._replies))[0] == "advance":
                told += reply[1]
                advance(reply[1])
        except (EOFError, OSError, pickle.UnpicklingError):
            advance(-told)
            raise _LostError(self._how_it_ended()) from None
        kind, value = reply
        if kind == "failed":
            error, trace = value
            raise error from RuntimeError(f"in another process:\n{trace}")
        return value

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.end()
        status = self.process.returncode
        return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"

    def end(self) -> None:
        """End it at once, and free what belongs to it; there must be no call of it."""
        self.process.kill()
        self.process.wait()
        for pipe in (self._tasks, self._replies):
            with contextlib.suppress(OSError):  # what could not be written before it ended
                pipe.close()


class _Pool:
    """Processes, each with a thread here that gives it one task after the other."""

    def __init__(self, payload: bytes, tasks: Sequence[Task], max_retries: int) -> None:
        self._payload, self._max_retries = payload, max_retries
        self._tasks = iter(tasks)
        self._lock = threading.Lock()
        self._processes: set[_Process] = set()
        self._stopped = False
        # Messages from the threads: bytes done; or a task, and its result or error.
        self.news: queue.SimpleQueue[int | tuple[Task, Any]] = queue.SimpleQueue()

    def attend(self) -> None:
        """Do tasks until none are left."""
        process: _Process | None = None
        while True:
            with self._lock:
                task = None if self._stopped else next(self._tasks, None)
            if task is None:
                break
            for attempt in range(1, self._max_retries + 2):
                try:
                    process = process or self._start()
                    self.news.put((task, process.call(task, self.news.put)))
                    break
                except _LostError as error:
                    process = None
                    if attempt > self._max_retries:
                        self.news.put((task, task.lost(str(error), attempt)))
                except BaseException as error:
                    self.news.put((task, error))
                    break
        if process:
            process.end()

    def _start(self) -> _Process:
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            self._processes.add(process := _Process(self._payload))
            return process

    def stop(self) -> None:
        """End all processes; their threads end then, too."""
        with self._lock:
            self._stopped = True
            for process in self._processes:
                process.process.kill()


def run_in_processes(
    executor: Executor, work: bytes, tasks: Sequence[Task], progress: Progress
) -> Results:
    """Do tasks in processes of this machine; see `Executor.run`.  `work` is function and common."""
    pool = _Pool(work, tasks, executor.max_retries)
    num_workers = executor.n_processes(len(tasks))
    threads = [threading.Thread(target=pool.attend, daemon=True) for _ in range(num_workers)]
    try:
        for thread in threads:
            thread.start()
        for _ in tasks:
            while isinstance(news := pool.news.get(), int):
                progress.advance(news)
            task, result = news
            if isinstance(result, MemoryError):
                raise task.out_of_memory() from result
            if isinstance(result, BaseException):
                raise result
            yield task, result
    finally:
        pool.stop()
        for thread in threads:
            if thread.is_alive():  # a thread that only starts now finds nothing to do
                thread.join()
