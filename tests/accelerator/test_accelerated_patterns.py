"""The accelerator's scanners against `regex`: every pattern, every class, every length."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import regex
from conftest import ROOT, extension, knows_the_same_unicode, read_corpus
from hard_text import ATOMS, CONTEXTS, every_character, hard_text
from hypothesis import given

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS
from bpe_tokenizer_tools.patterns.known import MORE_PATTERNS

native = extension()
from _bpe_tokenizer.characters import character_classes  # noqa: E402 - only where it is built

NAMED = {**SPLIT_PATTERNS, **MORE_PATTERNS}
EVERY_PATTERN = pytest.mark.parametrize("name", list(NAMED))
SAME_UNICODE = pytest.mark.skipif(
    not knows_the_same_unicode(native),
    reason=f"regex {regex.__version__} classes characters unlike {native.UNICODE_TABLES_FROM}",
)


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they compare both engines by themselves."""


def check(name: str, text: str) -> None:
    expected = [pretoken.encode() for pretoken in regex.findall(NAMED[name], text)]
    assert native.split(name, text) == expected
    assert native.split(name, text, portable=True) == expected


@pytest.mark.skipif(
    regex.__version__ not in native.UNICODE_TABLES_FROM,
    reason=f"the tables name {native.UNICODE_TABLES_FROM}, this is {regex.__version__}",
)
def test_tables_are_what_the_script_makes() -> None:
    script = ROOT / "accelerator" / "tools" / "make_tables.py"
    run = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@SAME_UNICODE
def test_classes_of_all_code_points() -> None:
    assert native.character_classes() == character_classes()
    assert len(character_classes()) == 0x110000


def test_every_named_pattern_has_a_scanner() -> None:
    assert list(native.PATTERNS) == list(NAMED)


@SAME_UNICODE
@EVERY_PATTERN
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_character(name: str, context: str) -> None:
    for text in every_character(context):
        check(name, text)


@SAME_UNICODE
def test_every_code_point() -> None:
    chars = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    for first in range(0, len(chars), 0x8000):
        check("cl100k", "".join(f"{char}a {char}" for char in chars[first : first + 0x8000]))


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


# -- The core without Python -----------------------------------------------------

CORE = ("base", "scan", "encode")  # the folders that know nothing of Python, nor of training
WARNINGS = "-std=c11 -Wall -Wextra -Werror -pthread".split()
SANITIZED = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover".split()


def compiled(folder: Path, compiler: str, flags: Sequence[str]) -> Path:
    """Compile tests/accelerator/core_driver.c and the core; return the program."""
    sources = [file for room in CORE for file in (ROOT / "accelerator" / room).glob("*.c")]
    objects = []
    for source in [*sources, ROOT / "tests" / "accelerator" / "core_driver.c"]:
        target = str(folder / f"{source.parent.name}_{source.stem}.o")
        command = [compiler, *WARNINGS, *flags, f"-I{ROOT / 'accelerator'}"]
        subprocess.run([*command, "-c", str(source), "-o", target], check=True)
        objects.append(target)
    program = folder / "core_driver"
    subprocess.run([compiler, *flags, "-pthread", *objects, "-o", str(program)], check=True)
    return program


@pytest.fixture(scope="module", params=["sanitized", "aarch64"])
def core(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Give the command that runs the core: here, under sanitizers, or on an emulated Arm."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sanitized":
        if not shutil.which("cc"):
            pytest.skip("there is no C compiler")
        return [str(compiled(folder, "cc", SANITIZED))]
    compiler = shutil.which("aarch64-linux-gnu-gcc")
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if not compiler or not emulator:
        pytest.skip("there is no aarch64-linux-gnu-gcc, or no qemu-aarch64 to run what it makes")
    return [emulator, str(compiled(folder, compiler, ["-O2", "-static"]))]


def numbers(*values: int) -> bytes:
    return array("I", values).tobytes()


def run_core(command: list[str], name: str, merges: list[Any], texts: list[str]) -> list[Any]:
    """Return where the pre-tokens of each text end, and its ids, as the core has them."""
    given = numbers(256 + len(merges), *range(256), len(merges))
    given += b"".join(numbers(*merge) for merge in merges)
    given += b"".join(numbers(len(text.encode())) + text.encode() for text in texts)
    run = subprocess.run([*command, name], input=given, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    out, results = array("I", run.stdout).tolist(), []
    for _ in texts:
        ends, out = out[1 : 1 + out[0]], out[1 + out[0] :]
        ids, out = out[1 : 1 + out[0]], out[1 + out[0] :]
        results.append((ends, ids))
    assert out == []
    return results


def hard_texts(name: str) -> list[str]:
    """Make texts of hard atoms, and of every length up to 200 bytes."""
    chance = random.Random(name)
    texts = [f"{char}{'x' * length}{char}" for char in ("", " ", "é") for length in range(197)]
    for _ in range(600):
        some = chance.sample(ATOMS, chance.choice([3, 6, 12, len(ATOMS)]))
        texts.append("".join(chance.choices(some, k=chance.randrange(1, 200))))
    return texts


@SAME_UNICODE
@EVERY_PATTERN
def test_core_alone(name: str, core: list[str], corpora_dir: Path) -> None:
    texts = hard_texts(name) + [read_corpus("multi")[:40_000], read_corpus("code")[:40_000]]
    trained = bpe_tokenizer.BPETokenizer(NAMED[name], normalizer=None)
    trained.train("\n".join(texts), 700, verbose=False, num_workers=1)
    definition = trained.definition
    assert [definition.vocab[bytes([byte])] for byte in range(256)] == list(range(256))
    merges = [(left, right, 256 + rank) for rank, (left, right) in enumerate(definition.merges)]
    python = bpe_tokenizer._Encoder(definition)
    for text, (ends, ids) in zip(texts, run_core(core, name, merges, texts)):
        expected = itertools.accumulate(
            len(pretoken.encode()) for pretoken in regex.findall(NAMED[name], text)
        )
        assert ends == list(expected)
        assert ids == python.encode(text)
