"""The accelerator's scanners against `regex`: every pattern, every class, every length."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import regex
from conftest import ROOT, read_corpus
from hard_text import ATOMS, CONTEXTS, every_character, hard_text
from hypothesis import given
from oracles import need

from bpe_tokenizer import SPLIT_PATTERNS
from bpe_tokenizer_tools.split_patterns import MORE_PATTERNS, character_classes

native = need("_bpe_tokenizer")
NAMED = {**SPLIT_PATTERNS, **MORE_PATTERNS}
EVERY_PATTERN = pytest.mark.parametrize("name", list(NAMED))
SAME_UNICODE = pytest.mark.skipif(
    regex.__version__ not in native.UNICODE_TABLES_FROM,
    reason=f"the tables come from {native.UNICODE_TABLES_FROM}, this is {regex.__version__}",
)


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they compare both engines by themselves."""


def check(name: str, text: str) -> None:
    expected = [pretoken.encode() for pretoken in regex.findall(NAMED[name], text)]
    assert native.split(name, text) == expected
    assert native.split(name, text, portable=True) == expected


@SAME_UNICODE
def test_tables_are_what_the_script_makes() -> None:
    script = ROOT / "accelerator" / "make_tables.py"
    run = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@SAME_UNICODE
def test_classes_of_all_code_points() -> None:
    assert native.character_classes() == character_classes()


def test_every_named_pattern_has_a_scanner() -> None:
    assert list(native.PATTERNS) == list(NAMED)


@SAME_UNICODE
@EVERY_PATTERN
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_character(name: str, context: str) -> None:
    for text in every_character(context):
        check(name, text)


@EVERY_PATTERN
def test_hard_atoms(name: str) -> None:
    chance = random.Random(name)
    for _ in range(4_000):
        some = chance.sample(ATOMS, chance.choice([3, 6, 12, len(ATOMS)]))
        check(name, "".join(chance.choices(some, k=chance.choice([3, 20, chance.randrange(200)]))))


@SAME_UNICODE
@EVERY_PATTERN
@given(text=hard_text)
def test_any_text(name: str, text: str) -> None:
    check(name, text)


@EVERY_PATTERN
@pytest.mark.parametrize("corpus", ["english", "code", "multi"])
def test_real_text(name: str, corpus: str, corpora_dir: Path) -> None:
    check(name, read_corpus(corpus)[:300_000])


@EVERY_PATTERN
def test_every_length_around_a_block(name: str) -> None:
    for filler in ("a", "é", "中", "の", "・", " ", "\n", "!", "1", "A", "😀", "\x01", "\u0301"):
        for length in [*range(1, 70), *range(120, 135)]:
            for end in ("", "'s", "'", " x", "\n!", "中", "9", "é"):
                check(name, filler * length + end)
