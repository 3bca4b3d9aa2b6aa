"""A run ends with a list of the tests left out, and says how to run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import EITHER_ENGINE, ROOT
from oracles import need

pytestmark = EITHER_ENGINE

TESTS = """
import pytest
from conftest import EITHER_ENGINE
from oracles import need

def test_an_engine():
    pass

@EITHER_ENGINE
@pytest.mark.slow
def test_slow():
    pass

@EITHER_ENGINE
def test_a_library():
    need(LIBRARY)

@EITHER_ENGINE
def test_source(llama_cpp_source):
    pass
"""


def run(folder: Path, *options: str) -> list[str]:
    """Run the tests of a folder under this conftest; return the lines that pytest prints."""
    paths = [ROOT / "tests", ROOT / "tests" / "support", *map(Path, sys.path)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-c", "pytest.ini", *options]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_what_was_left_out_is_said_and_can_be_run(tmp_path: Path) -> None:
    need("xdist")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntestpaths = .\nmarkers =\n    slow\n    skipped_before\n"
    )
    file = tmp_path / "test_some.py"
    file.write_text(TESTS.replace("LIBRARY", "'nowhere'"))
    said = run(tmp_path, "-n", "1")
    start = next(number for number, line in enumerate(said) if " left out " in line)
    assert said[start + 1 : start + 5] == [
        "    1 skipped: nowhere is not installed: pip install 'nowhere'",
        "    1 with the other engine: run with --engine both",
        "    2 slow: run with --slow",
        "All of them: pip install -e '.[dev]' && make test test-more",
    ]
    assert said[-1].startswith("1 passed, 1 skipped")
    file.write_text(TESTS.replace("LIBRARY", "'json'"))
    assert run(tmp_path, "--slow", "-m", "skipped_before")[-1].startswith("1 passed, ")
    assert not any(" skipped: " in line for line in run(tmp_path))
