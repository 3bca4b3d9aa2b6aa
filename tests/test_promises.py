"""docs/promises.md lists each explicit promise of README and the guides with its tests."""

from __future__ import annotations

import ast
import re

import pytest
from conftest import EITHER_ENGINE, ROOT

pytestmark = EITHER_ENGINE

DOCS = ROOT / "docs"
GUIDES = ("library", "chat", "files", "command-line", "limits")
PAGES = [ROOT / "README.md", *(DOCS / f"{name}.md" for name in GUIDES)]
PROMISES = re.compile(r"\b(?:never|always|exact|exactly|atomic|atomically|can't)\b", re.IGNORECASE)


def words(text: str) -> str:
    """Return text with its white space folded, so that line breaks do not count."""
    return " ".join(text.split())


def promising_sentences() -> list[str]:
    """Return the sentences that promise something; code and tables of figures aside."""
    text = "\n\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    blocks = re.split(r"\n\n|\n(?=[-|] ?)", text)
    sentences = [each for block in blocks for each in re.split(r"(?<=[.;])\s", words(block))]
    return [each for each in sentences if PROMISES.search(re.sub(r"`[^`]*`", "", each))]


PAGE = (DOCS / "promises.md").read_text(encoding="utf-8")


def rows_of(text: str) -> list[tuple[str, list[str]]]:
    """Return the rows of a table: (its first cell, the names of tests in its last cell)."""
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    found = [(row[0].strip(), re.findall(r"`(tests/\S+?)`", row[-1])) for row in rows]
    return [(first, tests) for first, tests in found if tests]


def listed() -> list[tuple[str, list[str]]]:
    """Return the rows of the first table: (words that promise, names of tests)."""
    return rows_of(PAGE.partition("\n## ")[0])


def test_every_promise_is_listed() -> None:
    promises = [promise for promise, _ in listed()]
    sentences = promising_sentences()
    assert len(sentences) > 10
    missing = [each for each in sentences if not any(promise in each for promise in promises)]
    assert not missing, missing


def test_what_is_listed_is_promised() -> None:
    text = words(" ".join(page.read_text(encoding="utf-8") for page in PAGES))
    gone = [promise for promise, _ in listed() if promise not in text]
    assert not gone, gone


@pytest.mark.parametrize("test", sorted({test for _, tests in rows_of(PAGE) for test in tests}))
def test_each_test_that_is_named_is_here(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert name in functions, f"{file} has no {name}"
