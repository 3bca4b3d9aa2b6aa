"""Where shards are worked on: in this process, in several of this machine, or on a Ray cluster.

A task is done by a function that leaves its result in files, and returns a few facts.  It may be
done twice, where a process died or a node was lost, and must then do the same again.  The function
and what all tasks have in common are sent to each process once.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pickle
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Optional, cast

import bpe_tokenizer as core
from bpe_tokenizer_tools.scale.progress import Progress

__all__ = ["ENGINES", "Engine", "Task"]

ENGINES = ("local", "ray")


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


@dataclass(frozen=True)
class Engine:
    """What runs tasks.

    Attributes:
        kind: "local" or "ray".
        workers: processes, or tasks of Ray, at a time; None: one per core that may be used.
        address: of a Ray cluster, such as "auto" or "ray://host:10001"; None: one that is started
            on this machine and ends with the job, unless this process has joined one already.
        max_retries: how often a task is begun again whose process was lost.
    """

    kind: str = "local"
    workers: Optional[int] = None  # noqa: UP045
    address: Optional[str] = None  # noqa: UP045
    max_retries: int = 3

    def __post_init__(self) -> None:
        if self.kind not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {self.kind!r}")
        if self.address is not None and self.kind != "ray":
            raise ValueError("address names a Ray cluster, and goes with engine='ray' only")
        core._check_size("workers", self.workers, 1)
        core._check_size("max_retries", self.max_retries, 0)

    def n_workers(self, tasks: int) -> int:
        """Return how many processes of this machine there will be."""
        return max(1, min(self.workers or core._cores(), tasks))

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
            done = _run_on_ray(self, function, common, tasks, progress)
        elif self.n_workers(2) == 1:
            done = _run_here(function, common, tasks, progress)
        else:
            done = _run_in_processes(self, function, common, tasks, progress)
        with contextlib.closing(cast("Any", done)):
            for task, result in done:
                progress.finish_shard()
                yield task, result


def _run_here(
    function: Callable[..., Any], common: Any, tasks: Sequence[Task], progress: Progress
) -> Iterator[tuple[Task, Any]]:
    for task in tasks:
        yield task, function(common, *task.arguments, progress.advance)


def _lost(task: Task, what: str, attempts: int) -> RuntimeError:
    return RuntimeError(
        f"the process that worked on {task.name} {what}, {attempts} times in all; often the memory "
        "did not suffice: try fewer workers. What is finished is kept: the same call goes on"
    )


# -- Processes of this machine ------------------------------------------------
# They are started as programs, not forked: so it makes no difference what threads this process has
# and what its script looks like.  Tasks go in by a pipe, results come back by another.  A process
# whose pipe closes ends at once, in the middle of its work: whoever started it is gone.

_PROGRAM = """
import sys
sys.path[:] = filter(None, sys.path)  # no module is looked for where the user happens to be
import pickle
sys.path[:] = pickle.load(sys.stdin.buffer)
from bpe_tokenizer_tools.scale.engines import _serve
_serve()
"""
_TELL_EVERY = 0.2  # seconds


def _serve() -> None:
    """Work for the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Windows it is not blocked
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed gets among them
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, inbox), daemon=True).start()
    payload = inbox.get()
    teller = _Teller(replies)
    while True:
        arguments = inbox.get()
        try:
            function, common = _unpacked(payload)
            reply = ("done", function(common, *arguments, teller.advance))
        except Exception as error:
            reply = ("failed", _portable(error))
        with contextlib.suppress(OSError):  # nobody listens any more: `_listen` ends this process
            teller.flush()
            _send(replies, reply)


def _listen(stream: BinaryIO, inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(pickle.load(stream))
    except (EOFError, OSError, pickle.UnpicklingError):
        os._exit(0)


class _Teller:
    """Tells the process that waits how far a task is, but not too often."""

    def __init__(self, replies: BinaryIO) -> None:
        self._replies, self._bytes, self._told = replies, 0, time.monotonic()

    def advance(self, n_bytes: int) -> None:
        self._bytes += n_bytes
        if time.monotonic() - self._told >= _TELL_EVERY:
            self.flush()

    def flush(self) -> None:
        _send(self._replies, ("advance", self._bytes))
        self._bytes, self._told = 0, time.monotonic()


def _portable(error: Exception) -> Exception:
    """Return an error that survives pickling, with where it came from as its cause."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.__cause__ = RuntimeError(f"in another process:\n{trace}")
    return error


def _send(stream: BinaryIO, message: Any) -> None:
    pickle.dump(message, stream)
    stream.flush()


@functools.lru_cache(maxsize=2)
def _unpacked(payload: bytes) -> Any:  # once per process, not once per task
    return pickle.loads(payload)


def _block_interrupts() -> None:
    """Let no Ctrl-C reach a process that this thread starts; it goes to the main thread."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


class _LostError(Exception):
    """A process has ended before its task was done."""


class _Process:
    """A process that works for this one."""

    def __init__(self, payload: bytes) -> None:
        _block_interrupts()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._payload = payload
        self._fresh = True

    def call(self, task: Task, advance: Callable[[int], Any]) -> Any:
        """Do a task there; raise what it raises, or `_LostError`."""
        tasks, replies = cast("BinaryIO", self._process.stdin), self._process.stdout
        told = 0
        try:
            if self._fresh:
                _send(tasks, sys.path)
                _send(tasks, self._payload)
                self._fresh = False
            _send(tasks, task.arguments)
            while True:
                kind, value = pickle.load(cast("BinaryIO", replies))
                if kind != "advance":
                    break
                told += value
                advance(value)
        except (EOFError, OSError, pickle.UnpicklingError):
            advance(-told)
            raise _LostError(self._how_it_ended()) from None
        if kind == "failed":
            raise value
        return value

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self.end()
        status = self._process.returncode
        return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"

    def kill(self) -> None:
        """End it at once; a call of it that waits is told so."""
        self._process.kill()

    def end(self) -> None:
        """End it, and free what belongs to it; there must be no call of it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what could not be written before it ended
                cast("BinaryIO", pipe).close()


class _Pool:
    """Processes, each with a thread here that gives it one task after the other."""

    def __init__(self, payload: bytes, tasks: Sequence[Task], max_retries: int) -> None:
        self._payload, self._max_retries = payload, max_retries
        self._tasks = iter(tasks)
        self._lock = threading.Lock()
        self._processes: set[_Process] = set()
        self._stopped = False
        # What threads have to say: bytes done; or a task, and its result or the error.
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
                        self.news.put((task, _lost(task, str(error), attempt)))
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
                process.kill()


def _run_in_processes(
    engine: Engine, function: Callable[..., Any], common: Any, tasks: Sequence[Task], progress: Any
) -> Iterator[tuple[Task, Any]]:
    pool = _Pool(pickle.dumps((function, common)), tasks, engine.max_retries)
    threads = [
        threading.Thread(target=pool.attend, daemon=True)
        for _ in range(engine.n_workers(len(tasks)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in tasks:
            while isinstance(news := pool.news.get(), int):
                progress.advance(news)
            task, result = news
            if isinstance(result, BaseException):
                raise result
            yield task, result
    finally:
        pool.stop()
        for thread in threads:
            if thread.is_alive():  # one that starts only now finds nothing to do
                thread.join()


# -- Ray ----------------------------------------------------------------------
# Ray schedules, and begins again what was lost with a process or a node; all that is made goes
# through files, which every node must see under the same paths.

_OBJECT_STORE = 200_000_000  # bytes: only a tokenizer and names of files go through memory


def _run_on_ray(
    engine: Engine, function: Callable[..., Any], common: Any, tasks: Sequence[Task], progress: Any
) -> Iterator[tuple[Task, Any]]:
    ray = core._import_optional("ray", "engine='ray'", "'bpe-tokenizer[ray]'")
    if not tasks:
        return
    with _joined(ray, engine) as is_ours:
        payload = ray.put(pickle.dumps((function, common)))
        options = {"num_cpus": 1, "max_retries": engine.max_retries, "name": function.__name__}
        remote = ray.remote(**options)(_sent_to_nodes())
        waiting = deque(tasks)
        running: dict[Any, Task] = {}
        try:
            while waiting or running:
                room = engine.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
                while waiting and len(running) < room:
                    task = waiting.popleft()
                    arguments = pickle.dumps(task.arguments)
                    running[remote.remote(core.__version__, os.getcwd(), payload, arguments)] = task
                for reference in ray.wait(list(running), timeout=5)[0]:
                    result = _result(ray, reference, running[reference], engine)
                    progress.advance(running[reference].size)
                    yield running.pop(reference), result
        finally:
            if not is_ours:
                _wait_for(ray, list(running))


def _wait_for(ray: Any, references: list[Any]) -> None:
    """Wait for tasks that have begun, whatever comes of them.

    NOTE: where the cluster is left, Ray ends them; in a session of the user's it must be asked to,
    by ray.cancel, which aborts this process now and then if a task just ends (seen in 2.60).
    """
    for reference in references:
        with contextlib.suppress(Exception):
            ray.get(reference)


@contextlib.contextmanager
def _joined(ray: Any, engine: Engine) -> Iterator[bool]:
    """Join a cluster, or start one here, for as long as the job takes; or use the one at hand.

    Yields:
        Whether it was joined here, and is left, with all that runs in it, at the end.
    """
    if ray.is_initialized():
        if engine.address not in (None, "auto"):
            raise ValueError(
                f"this process has joined a Ray cluster already, so address={engine.address!r} has "
                "no use; leave it out, or call ray.shutdown() first"
            )
        yield False
        return
    options: dict[str, Any] = {"address": engine.address}
    if engine.address is None:
        options = _options_of_own(engine)
    else:
        _check_answers(engine.address)
    try:
        # What Ray has to say that matters comes as an exception.
        ray.init(**options, log_to_driver=False, logging_level=logging.CRITICAL)
    except (OSError, RuntimeError, ValueError, ImportError, ray.exceptions.RayError) as error:
        raise ConnectionError(_not_joined(engine, _first_line(error))) from None
    try:
        yield True
    finally:
        ray.shutdown()


def _options_of_own(engine: Engine) -> dict[str, Any]:
    """Return how to start a cluster on this machine, whose processes find what this one finds."""
    _bring_token()
    return {
        "address": "local",  # whatever RAY_ADDRESS says, or a cluster that has crashed has left
        "num_cpus": engine.workers or core._cores(),
        "include_dashboard": False,
        "object_store_memory": _OBJECT_STORE,
        "runtime_env": {
            "env_vars": {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        },
    }


def _bring_token() -> None:
    """Spare Ray writing a token for its own processes to the home directory."""
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    file = os.path.expanduser("~/.ray/auth_token")
    if not any(name in os.environ for name in names) and not os.path.exists(file):
        # NOTE: it stays, as Ray remembers it for the next cluster that this process starts.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _check_answers(address: str) -> None:
    """Raise ConnectionError if nobody listens at an address: Ray would try for minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", address)
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():  # for Ray to judge
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(f"cannot join the Ray cluster at {address}: {error}") from None


def _not_joined(engine: Engine, why: str) -> str:
    if engine.address is None:
        return f"cannot start Ray on this machine: {why}"
    return (
        f"cannot join the Ray cluster at {engine.address}: {why}; see that the address, "
        "RAY_AUTH_MODE and the token are those of the cluster"
    )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


def _sent_to_nodes() -> Callable[..., Any]:
    """Return what does a task on a node.

    Being no function of a module, it is sent as code, and can say what a node lacks.
    """

    def do_task(version: str, directory: str, payload: bytes, arguments: bytes) -> Any:
        import platform

        try:
            import bpe_tokenizer

            found = bpe_tokenizer.__version__
            if found == version:
                from bpe_tokenizer_tools.scale.engines import _do_on_node
        except ImportError as error:
            found = f"missing ({error})"
        if found != version:
            raise RuntimeError(
                f"on node {platform.node()} of the Ray cluster, bpe-tokenizer is {found}; install "
                f"{version} on all nodes, which is what this job was started by"
            )
        return _do_on_node(directory, payload, arguments)

    return do_task


def _do_on_node(directory: str, payload: bytes, arguments: bytes) -> Any:
    """Do a task; runs on a node of the cluster."""
    before = os.getcwd()
    try:
        with contextlib.suppress(OSError):  # what is named by its whole path is found anyhow
            os.chdir(directory)
        function, common = _unpacked(payload)
        return function(common, *pickle.loads(arguments), lambda n_bytes: None)
    except Exception as error:
        raise _portable(error) from None
    finally:
        os.chdir(before)


def _result(ray: Any, reference: Any, task: Task, engine: Engine) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, Exception):
            raise cause from None
        raise RuntimeError(f"{task.name}: {_first_line(error)}") from None
    except ray.exceptions.RayError as error:
        why = f"was lost ({_first_line(error)})"
        raise _lost(task, why, engine.max_retries + 1) from None
