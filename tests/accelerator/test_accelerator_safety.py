"""What the accelerator does when memory fails, whether it leaks, and what hostile callers get.

Most of it runs in processes of its own, from tests/accelerator/accelerator_abuse.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from oracles import SANITIZED, examples, need
from test_accelerator import FOLDER, native

pytestmark = pytest.mark.slow

FUZZER = ROOT / "accelerator" / "tools" / "fuzz.py"
PATIENCE = 3_600  # seconds; minutes do on a free machine, but not on a busy one


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they are about one engine."""


def abuse(name: str, *arguments: str, **environment: str) -> str:
    """Run a function of tests/accelerator/accelerator_abuse.py; return what it prints."""
    run = subprocess.run(
        [sys.executable, ROOT / "tests" / "accelerator" / "accelerator_abuse.py", name, *arguments],
        env={**os.environ, "PYTHONPATH": str(FOLDER), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


# -- Memory that fails -----------------------------------------------------------


@pytest.fixture(scope="module")
def failing_malloc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler or not sys.platform.startswith("linux"):
        pytest.skip("needs glibc, and a C compiler: apt-get install gcc")
    if SANITIZED:
        pytest.skip("the sanitizer has a malloc of its own")
    target = tmp_path_factory.mktemp("malloc") / "failing_malloc.so"
    source = ROOT / "tests" / "accelerator" / "failing_malloc.c"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", target, source]
    subprocess.run(command, check=True)
    starts = subprocess.run(
        [sys.executable, "-c", ""], env={**os.environ, "LD_PRELOAD": str(target)}
    )
    if starts.returncode:
        pytest.skip("needs glibc")
    return target


def test_every_allocation_may_fail(failing_malloc: Path) -> None:
    printed = abuse("fail_malloc", LD_PRELOAD=str(failing_malloc))
    assert "learning: " in printed


def test_nobody_waits_for_a_thread_that_was_stopped(failing_malloc: Path) -> None:
    printed = abuse("stop_threads", LD_PRELOAD=str(failing_malloc))
    assert re.search(r"stopped [1-9]", printed)


def test_every_allocation_of_python_may_fail() -> None:
    need("_testcapi")
    abuse("fail_python")


def test_nothing_leaks_over_a_million_calls() -> None:
    times = str(examples(6_000) // (10 if SANITIZED else 1))  # of each call; sanitizers are slow
    # Else glibc keeps what is freed: more, the more threads happened to work at once.
    abuse("leak", times, MALLOC_ARENA_MAX="1", MALLOC_MMAP_THRESHOLD_="65536")


# -- Threads at odd moments ------------------------------------------------------


@pytest.mark.parametrize("name", ["end", "fork", "interrupt"])
def test_threads_at_odd_moments(name: str) -> None:
    if name != "end" and sys.platform == "win32":
        pytest.skip("Windows has neither")
    if name == "fork" and SANITIZED:
        pytest.skip("the sanitizer's own malloc stays locked if another thread has it at a fork")
    for _ in range(examples(3)):
        abuse(name)


def test_interpreters_in_one_process() -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("there `regex` can't be imported in another interpreter, which says so")
    abuse("interpreters", PYTHONPATH=os.pathsep.join([str(ROOT), str(FOLDER)]))


# -- The fuzzer ------------------------------------------------------------------


def test_the_fuzzer_runs() -> None:
    seconds = str(examples(15))
    run = subprocess.run(
        [sys.executable, FUZZER, "--seconds", seconds, "--seed", "1"],
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if "install that" in run.stderr:
        pytest.skip(run.stderr)
    assert run.returncode == 0, run.stdout + run.stderr
    assert native.__file__ in run.stdout


# -- Threads ---------------------------------------------------------------------


def test_threads_on_one_tokenizer_get_the_answers_of_one_thread() -> None:
    program = ROOT / "tests" / "accelerator" / "thread_storm.py"
    path = os.pathsep.join([str(ROOT), str(FOLDER)])
    run = subprocess.run(
        [sys.executable, "-W", "ignore", program, "--seconds", "1.5"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("wrong: nothing") == 3  # reading, training, adding
    assert "the engine in C" in run.stdout
