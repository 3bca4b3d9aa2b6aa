"""Jobs killed at random times: a few of those that tests/support/kill_storm.py kills by default."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT
from oracles import examples

STORM = ROOT / "tests" / "support" / "kill_storm.py"


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once."""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_killed_jobs_end_as_undisturbed_ones() -> None:
    command = [sys.executable, str(STORM), "--kills", str(examples(24)), "--seed", "7"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    killed = sum(map(int, re.findall(r"'killed': (\d+)", done.stdout)))
    assert killed >= examples(24), done.stdout
