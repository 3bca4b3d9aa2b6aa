"""Tasks on a Ray cluster.

Ray schedules them, and restarts those that were lost with a process or a node.  All output goes
through files, which every node must see under the same paths.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import secrets
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import bpe_tokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.scale.executors.executor import Executor, Results, Task, portable, unpacked
from bpe_tokenizer_tools.scale.executors.progress import Progress

_OBJECT_STORE = 200_000_000  # bytes: only a tokenizer and names of files go through memory


def run_on_ray(
    executor: Executor, work: bytes, tasks: Sequence[Task], progress: Progress
) -> Results:
    """Do tasks on a Ray cluster; see `Executor.run`.  `work` is function and common, pickled."""
    ray = core.import_optional("ray", "executor='ray'", "ray numpy pyarrow")
    if not tasks:
        return
    with _joined(ray, executor) as is_ours:
        payload = ray.put(work)
        options = {"num_cpus": 1, "max_retries": executor.max_retries, "name": "bpe_tokenizer"}
        remote = ray.remote(**options)(_sent_to_nodes())
        waiting = deque(tasks)
        running: dict[Any, Task] = {}
        try:
            while waiting or running:
                room = executor.num_workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
                while waiting and len(running) < room:
                    task = waiting.popleft()
                    how = bpe_tokenizer.__version__, os.getcwd(), payload
                    running[remote.remote(*how, pickle.dumps(task.arguments))] = task
                for reference in ray.wait(list(running), timeout=5)[0]:
                    result = _result(ray, reference, running[reference], executor)
                    progress.advance(running[reference].size)
                    yield running.pop(reference), result
        finally:
            # NOTE: where the cluster is left, Ray ends what has begun; in a session of the user's
            # it must be asked to, by ray.cancel, which aborts this process now and then if a task
            # just ends (seen in 2.60).  So what has begun is waited for, whatever comes of it.
            for reference in () if is_ours else list(running):
                with contextlib.suppress(Exception):
                    ray.get(reference)


@contextlib.contextmanager
def _joined(ray: Any, executor: Executor) -> Iterator[bool]:
    """Join or start a cluster, and leave it at the end; or use an existing session: yield False."""
    if ray.is_initialized():
        if executor.address not in (None, "auto"):
            raise ValueError(
                "this process has joined a Ray cluster already, so "
                f"address={executor.address!r} has no use; leave it out, or call ray.shutdown() "
                "first"
            )
        yield False
        return
    if executor.address is None:
        options, problem, hint = _options_of_own(executor), "cannot start Ray on this machine", ""
    else:
        _check_answers(executor.address)
        options = {"address": executor.address}
        problem = f"cannot join the Ray cluster at {executor.address}"
        hint = "; check that the address, RAY_AUTH_MODE and the token are those of the cluster"
    try:
        # Ray reports what matters as exceptions.
        ray.init(**options, log_to_driver=False, logging_level=logging.CRITICAL)
    except (OSError, RuntimeError, ValueError, ImportError, ray.exceptions.RayError) as error:
        raise ConnectionError(f"{problem}: {_first_line(error)}{hint}") from None
    try:
        yield True
    finally:
        ray.shutdown()


def _options_of_own(executor: Executor) -> dict[str, Any]:
    """Return the options to start a cluster here whose processes find the same modules."""
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    file = os.path.expanduser("~/.ray/auth_token")
    if not any(name in os.environ for name in names) and not os.path.exists(file):
        # NOTE: Ray would write a token to the home directory.  This one stays, as Ray remembers it
        # for the next cluster that this process starts.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    return {
        "address": "local",  # whatever RAY_ADDRESS says, or a cluster that has crashed has left
        "num_cpus": executor.num_workers or core.cores(),
        "include_dashboard": False,
        "object_store_memory": _OBJECT_STORE,
        "runtime_env": {
            "env_vars": {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        },
    }


def _check_answers(address: str) -> None:
    """Raise ConnectionError if nothing listens at an address: Ray would try for minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", address)
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():  # for Ray to judge
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(f"cannot join the Ray cluster at {address}: {error}") from None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


def _sent_to_nodes() -> Callable[..., Any]:
    """Return the function for a node; sent as code, not by name, it can report missing modules."""

    def do_task(version: str, directory: str, payload: bytes, arguments: bytes) -> Any:
        import platform

        try:
            import bpe_tokenizer

            found = bpe_tokenizer.__version__
            if found == version:
                from bpe_tokenizer_tools.scale.executors.ray import _do_on_node
        except ImportError as error:
            found = f"missing ({error})"
        if found != version:
            raise RuntimeError(
                f"on node {platform.node()} of the Ray cluster, bpe-tokenizer is {found}; install "
                f"{version} on all nodes, the version that started this job"
            )
        return _do_on_node(directory, payload, arguments)

    return do_task


def _do_on_node(directory: str, payload: bytes, arguments: bytes) -> Any:
    """Do a task; runs on a node of the cluster."""
    before = os.getcwd()
    try:
        with contextlib.suppress(OSError):  # absolute paths work anyway
            os.chdir(directory)
        function, common = unpacked(payload)
        return function(common, *pickle.loads(arguments), lambda n_bytes: None)
    except Exception as error:
        raise portable(error)[0] from None
    finally:
        os.chdir(before)


def _result(ray: Any, reference: Any, task: Task, executor: Executor) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MemoryError):
            raise task.out_of_memory() from None
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise RuntimeError(f"{task.name}: {_first_line(error)}") from None
    except ray.exceptions.RayError as error:
        why = f"was lost ({_first_line(error)})"
        raise task.lost(why, executor.max_retries + 1) from None
