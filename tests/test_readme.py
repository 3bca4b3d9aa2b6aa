"""README is short, and what it says is what the code prints and the benchmarks measured."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest
from conftest import EITHER_ENGINE, ROOT

import bpe_tokenizer

pytestmark = EITHER_ENGINE

README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"


def test_it_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= 1_200


def test_its_figures_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import quoting

    readme, results = (path.read_text(encoding="utf-8") for path in (README, RESULTS))
    assert readme == quoting.put_into(readme, results), "run benchmarks/quoting.py"
    wrong = readme.replace("times as fast as the fastest peer", "times faster")
    assert wrong != readme
    assert wrong != quoting.put_into(wrong, results)


def test_its_figures_are_of_this_version_or_say_that_they_are_not() -> None:
    readme = README.read_text(encoding="utf-8")
    found = re.findall(r"^Version (\S+?)(?: \((\S+) was not measured\))?, ", readme, re.MULTILINE)
    [(measured, later)] = found
    assert (later or measured) == bpe_tokenizer.__version__
    assert later != measured


def test_its_example_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    shown = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, re.M | re.S)
    assert len(shown) == text.count("```python") == 1
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(shown[0][0], "README.md", "exec"), {})
    assert printed.getvalue() == shown[0][1]
