"""Readers of changed files: a few of those that `make fuzz` tries for longer.

It also runs the core in C, which these tests do not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from oracles import examples

RUN = ROOT / "fuzz" / "run.py"


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once."""


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RUN), *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", cwd=ROOT, timeout=3_600)


@pytest.mark.slow
def test_changed_files_are_refused_or_work() -> None:
    done = fuzz("--mutations", str(examples(200)), "--seed", "11")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{12 * examples(200):,} files, seed 11: 0 findings" in done.stdout


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    """A reader that fails makes the run fail, and names what to try again."""
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(RUN.parent)!r})\n"
        "import readers, run\n"
        "def read(folder):\n"
        "    readers.PretokenCounts.load(folder / 'counts.json')\n"
        "    run.tries = getattr(run, 'tries', 0) + 1\n"
        "    if run.tries > 2: {}['missing']\n"
        "readers.READERS['counts'] = readers.READERS['counts']._replace(read=read)\n"
        "sys.argv = ['run.py', 'counts', '--mutations', '30']\n"
        "sys.exit(run.main())\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, broken], capture_output=True, encoding="utf-8")
    assert done.returncode == 1
    assert "KeyError: 'missing'" in done.stdout
    assert "counts, --seed 1 --only " in done.stdout
