"""Programs that tests run, waiting until no process is left; Ray for small machines."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from oracles import REQUIRED, missing

import bpe_tokenizer


def wanted(*modules: str) -> None:
    """Skip a test if its scripts need a missing module; import nothing into this process."""
    for module in modules:
        if reason := missing(module):
            assert module not in REQUIRED, reason
            pytest.skip(reason, allow_module_level=True)


def processes_with(mark: str) -> list[int]:
    """Return the processes that have a variable in their environment, as children inherit it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        if mark.encode() in variables:
            found.append(int(folder.name))
    return found


def title_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().rstrip(b"\0 ").decode()
    except OSError:
        return ""


def end(processes: list[int]) -> None:
    for number in processes:
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Ended(NamedTuple):
    """How a program ended, and what it printed."""

    status: int
    out: str
    err: str


class Program:
    """A program and all the processes that it starts; none outlives the `with` block."""

    def __init__(
        self,
        command: Sequence[object],
        said: Path,
        options: Mapping[str, Any] | None = None,  # of subprocess.Popen
        **variables: str,
    ) -> None:
        self._mark = f"BPE_TOKENIZER_TEST_RUN={uuid.uuid4()}"
        folder = str(Path(bpe_tokenizer.__file__).parent)
        paths = [folder, os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            **dict([self._mark.split("=")]),
            **variables,
        }
        # NOTE: to files, not pipes: a leftover process would keep a pipe open.
        self._said = said.with_suffix(".out"), said.with_suffix(".err")
        with open(self._said[0], "wb") as out, open(self._said[1], "wb") as err:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
            self.process = subprocess.Popen(
                [sys.executable, *map(str, command)],
                env=environment,
                cwd=said.parent,
                **{**streams, **(options or {})},
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        end(processes_with(self._mark))
        self.process.kill()
        self.process.wait()

    def wait(self, timeout: float, spared: Sequence[str] = ()) -> Ended:
        """Wait until it and all its processes are gone, except those with one of some titles."""
        status = self.process.wait(timeout)
        deadline = time.monotonic() + 600
        while (left := self._left(spared)) and time.monotonic() < deadline:
            time.sleep(0.1)
        out, err = (path.read_text(encoding="utf-8", errors="replace") for path in self._said)
        assert left == [], f"processes are left: {left}\n{out[-2000:]}\n{err[-2000:]}"
        return Ended(status, out, err)

    def _left(self, spared: Sequence[str]) -> list[int]:
        return [each for each in processes_with(self._mark) if title_of(each) not in spared]


def run_alone(
    script: Path,
    *arguments: object,
    at: Path | None = None,
    timeout: float = 600,
    **variables: str,
) -> Any:
    """Run a script to its end, in its directory or in `at`; return what it reports.

    Afterward, none of its processes is left.
    """
    said = (at or script.parent) / script.name
    report = said.with_suffix(".json")
    report.unlink(missing_ok=True)
    with Program([script, report, *arguments], said, **variables) as program:
        ended = program.wait(timeout)
    assert ended.status == 0, (ended.out + ended.err)[-5000:]
    return json.loads(report.read_text(encoding="utf-8"))


@contextlib.contextmanager
def ray_variables() -> Iterator[dict[str, str]]:
    """Set variables for Ray on a small machine; remove everything it writes afterward."""
    # NOTE: a short path: it contains sockets, whose paths may have about 100 characters.
    temporary = tempfile.mkdtemp(prefix="bpe-ray-", dir="/tmp")
    try:
        yield {
            "RAY_TMPDIR": temporary,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),  # else it writes one to the home directory
        }
    finally:
        shutil.rmtree(temporary)
