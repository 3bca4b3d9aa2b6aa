"""The accelerator's scanners against `regex`: every pattern, every class, every length."""

from __future__ import annotations

import functools
import itertools
import random
import shutil
import subprocess
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pinned
import pytest
import regex
from conftest import ROOT, extension, read_corpus
from hard_patterns import some_pattern, some_text
from hard_text import ATOMS, CONTEXTS, every_character, hard_text
from hypothesis import given
from hypothesis import strategies as st
from oracles import examples

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS
from bpe_tokenizer_tools.core import splitter
from bpe_tokenizer_tools.patterns.automaton import automaton
from bpe_tokenizer_tools.patterns.characters import members
from bpe_tokenizer_tools.patterns.digits import digits_from_the_right
from bpe_tokenizer_tools.patterns.known import MORE_PATTERNS

native = extension()

NAMED = {**SPLIT_PATTERNS, **MORE_PATTERNS}
EVERY_PATTERN = pytest.mark.parametrize("name", list(NAMED))


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they compare both engines by themselves."""


@functools.cache
def automaton_of(pattern: str) -> Any:
    """Return the automaton of a pattern, where it has one."""
    made = automaton(pattern)
    return native.automaton(*made) if made else None


def check(name: str, text: str) -> None:
    """Cut by the scanners for a pattern, and by the automaton made from it."""
    expected = [pretoken.encode() for pretoken in pinned.findall(NAMED[name], text)]
    assert native.split(name, text) == expected
    assert native.split(name, text, portable=True) == expected
    assert native.split(automaton_of(NAMED[name]), text) == expected


def test_tables_are_what_the_script_makes() -> None:
    script = ROOT / "accelerator" / "tools" / "make_tables.py"
    run = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_classes_of_all_code_points() -> None:
    """One class at a time, by a pattern; of kana and Han, some have a class of their own."""
    kana = r"(?=[\u3040-\u30ff\u4e00-\u9fa5])"
    classes = (
        *(r"[\s\S]", r"\p{M}", r"\p{Ll}", r"[\p{Lu}\p{Lt}]", r"[\p{Lm}\p{Lo}]", r"\p{N}"),
        *(r"[^\S\r\n]", r"[\r\n]", r"[\p{P}\p{S}]", rf"{kana}\p{{L}}", rf"{kana}\p{{M}}"),
        *(rf"{kana}[\p{{P}}\p{{S}}]", rf"{kana}[^\p{{L}}\p{{M}}\p{{P}}\p{{S}}]"),
    )
    expected = bytearray(0x110000)
    for number, pattern in enumerate(classes):
        for start, end in members(pattern):
            expected[start:end] = bytes([number]) * (end - start)
    assert native.character_classes() == bytes(expected)
    assert native.UNICODE_VERSION == bpe_tokenizer.UNICODE_VERSION


def test_every_named_pattern_has_a_scanner() -> None:
    assert list(native.PATTERNS) == list(NAMED)


@pytest.mark.slow
@EVERY_PATTERN
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_character(name: str, context: str) -> None:
    for text in every_character(context):
        check(name, text)


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


@EVERY_PATTERN
@given(text=hard_text)
def test_any_text(name: str, text: str) -> None:
    check(name, text)


# -- Numbers from the right -------------------------------------------------------

BY_THREES = pytest.mark.parametrize("name", ["cl100k", "llama3", "o200k"])
digits = st.text("0123456789", max_size=14) | st.text("19٣½²𝟘", max_size=9)
number_texts = st.lists(digits | st.sampled_from([*" \n,.-a'", "'s", "é"]) | hard_text, max_size=30)


def check_from_the_right(name: str, text: str) -> None:
    pattern = digits_from_the_right(name)
    expected = [pretoken.encode() for pretoken in splitter(pattern).split(text)]
    for portable in (False, True):
        found = native.split(f"{name}, digits from the right", text, portable)
        assert found == expected, text


@BY_THREES
@given(parts=number_texts)
def test_numbers_from_the_right(name: str, parts: list[str]) -> None:
    check_from_the_right(name, "".join(parts))


@BY_THREES
@pytest.mark.parametrize("digit", ["7", "٣", "𝟘"])
def test_long_numbers_from_the_right(name: str, digit: str) -> None:
    """Numbers that are cut in several calls, which end at any of their pieces."""
    for length in [*range(1, 12), 63, 64, 65, 190, 191, 192, 193, *range(3_000, 3_100, 7), 100_000]:
        for before in ("", "a ", "b" * 61 + " ", "x " * 1_000):
            check_from_the_right(name, f"{before}{digit * length} and {digit * (length % 50)}")


@BY_THREES
@pytest.mark.parametrize("corpus", ["english", "code", "multi"])
def test_real_text_from_the_right(name: str, corpus: str, corpora_dir: Path) -> None:
    check_from_the_right(name, read_corpus(corpus)[:300_000])


@BY_THREES
def test_the_engine_takes_this_scanner(name: str) -> None:
    from _bpe_tokenizer.engine import _cutter_for

    assert _cutter_for(digits_from_the_right(name)) == f"{name}, digits from the right"
    assert _cutter_for(digits_from_the_right("gpt2")) is None
    for unknown in ("gpt2, digits from the right", ", digits from the right", "x" * 40):
        with pytest.raises(ValueError, match="no scanner for the split pattern"):
            native.split(unknown, "1234")


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


# -- Automatons ------------------------------------------------------------------


def pieces_of(pattern: str, text: str) -> list[bytes]:
    """Cut a text by `regex`, with what no match has; a TimeoutError if that takes a second."""
    return [piece.encode() for piece in pinned.pieces(pattern, text, timeout=1)]


@pytest.mark.slow
def test_random_patterns() -> None:
    chance, made = random.Random(11), 0
    for _ in range(examples(1_000)):
        pattern = some_pattern(chance)
        cutter = automaton_of(pattern)
        made += cutter is not None
        for text in [some_text(chance) for _ in range(20 if cutter else 0)]:
            try:
                expected = pieces_of(pattern, text)
            except TimeoutError:
                continue
            assert native.split(cutter, text) == expected, (pattern, text)
    assert made > examples(1_000) // 3


@pytest.mark.parametrize("pattern", ["b", "a+b", "ab|.{3}", r"(?!a)\w", "aaaa|😀"])
def test_gaps_of_every_length(pattern: str) -> None:
    for unit in ("a", "é", "😀", "ab", "aé"):
        for n in [*range(20), 500, 511, 512, 513, 1023, 1024, 2000]:
            for text in (unit * n, unit * n + "b", "b" + unit * n):
                assert native.split(automaton_of(pattern), text) == pieces_of(pattern, text)


def test_an_automaton_in_place_of_a_name(corpora_dir: Path) -> None:
    text = read_corpus("multi")[:100_000]
    pattern = r"\p{L}+|[0-9]{1,2}|\s+$|[^\S\n]+"  # signs are in none, and so in gaps
    cutter, expected = automaton_of(pattern), pieces_of(pattern, text)
    assert native.split(cutter, text) == expected
    counter = native.PretokenCounter(cutter)
    counter.count([text, text])
    counts = dict.fromkeys(expected, 0)
    for piece in expected:
        counts[piece] += 2
    assert counter.take() == counts
    encoder = native.Encoder({bytes([byte]): byte for byte in range(256)}, [], cutter)
    del cutter  # the encoder keeps what it needs
    automaton_of.cache_clear()
    assert bytes(encoder.encode(text)) == text.encode()
    assert encoder.count(text) == len(text.encode())
    assert encoder.encode_batch([text] * 3, 2) == [encoder.encode(text)] * 3


def test_tables_that_point_nowhere() -> None:
    made = automaton(r"\w+")
    assert made is not None
    index, blocks, table, classes, last = made
    row = 4 * (classes + 2)
    good = index, blocks, table, classes, last
    assert native.split(native.automaton(*good), "ab c") == [b"ab", b" ", b"c"]
    for wrong in (
        (index[:-2], blocks, table, classes, last),
        (b"\xff\xff" + index[2:], blocks, table, classes, last),
        (index, b"", table, classes, last),
        (index, blocks[:-1], table, classes, last),
        (index, blocks[:-256], table, classes, last),
        (index, b"\xff" + blocks[1:], table, classes, last),
        (index, blocks, b"", classes, last),
        (index, blocks, table[:row], classes, last),
        (index, blocks, table[:-4], classes, last),
        (index, blocks, b"\xff\xff\xff\xff" + table[4:], classes, last),
        (index, blocks, table * 9_000, classes, last),
        *((index, blocks, table, odd, last) for odd in (0, -1, -2, 1, 255, 2**40)),
    ):
        with pytest.raises(ValueError, match="invalid automaton tables"):
            native.automaton(*wrong)
    for odd in ((None, *good[1:]), (*good[:2], bytearray(table), *good[3:])):
        with pytest.raises(TypeError):
            native.automaton(*odd)
    with pytest.raises(TypeError, match="must be a str, an automaton or None, got int"):
        native.PretokenCounter(5)
    with pytest.raises(TypeError, match="must be a str or an automaton, got None"):
        native.split(None, "a")


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
    program = folder / "core_driver.exe"  # wine wants the ending
    subprocess.run([compiler, *flags, "-pthread", *objects, "-o", str(program)], check=True)
    return program


class Core(NamedTuple):
    """A way to compile and run the core without Python."""

    compiler: str
    flags: list[str]
    runs_on: list[str]  # the emulator's command
    instructions: str | None  # that it must find; None for those of this processor
    packages: str  # Debian's


CORES = {
    "sanitized": Core("cc", SANITIZED, [], None, "gcc"),
    "aarch64": Core(
        "aarch64-linux-gnu-gcc",
        ["-O2", "-static"],
        ["qemu-aarch64"],
        "portable",
        "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user",
    ),
    # The oldest of the x86-64 processors: neither AVX nor BMI, and an illegal instruction kills.
    "oldest-x86": Core(
        "x86_64-linux-gnu-gcc",
        ["-O1", "-static"],
        ["qemu-x86_64", "-cpu", "qemu64"],
        "portable",
        "gcc qemu-user",
    ),
    "musl": Core("musl-gcc", ["-O1", "-static"], [], None, "musl-tools"),
    "x86-32": Core(
        "i686-linux-gnu-gcc",
        ["-O1", "-static"],
        [],
        "portable",
        "gcc-i686-linux-gnu libc6-dev-i386-cross",
    ),
    # NOTE: without NODERAWFS Emscripten reads bytes as UTF-8 text, and the ids are other ones.
    "webassembly": Core(
        "emcc",
        [
            *("-O1", "-Wno-unused-command-line-argument", "-sUSE_PTHREADS=0", "-sNODERAWFS=1"),
            *("-sSINGLE_FILE=1", "-sALLOW_MEMORY_GROWTH=1", "-sEXIT_RUNTIME=1"),
        ],
        ["node"],
        "portable",
        "emscripten nodejs",
    ),
    "windows": Core(
        "x86_64-w64-mingw32-gcc",
        ["-O1", "-static"],
        ["wine"],
        None,
        "gcc-mingw-w64-x86-64 wine wine64",
    ),
}


@pytest.fixture(scope="module", params=CORES)
def core(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    """Give the command that runs the core: here, under sanitizers, or emulated."""
    way = CORES[request.param]
    if not shutil.which(way.compiler) or way.runs_on and not shutil.which(way.runs_on[0]):
        pytest.skip(f"cannot build and run for {request.param}: apt-get install {way.packages}")
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINEPREFIX", str(folder / "wine"))
        patch.setenv("WINEDEBUG", "-all")
        command = [*way.runs_on, str(compiled(folder, way.compiler, way.flags))]
        said = subprocess.run(
            [*command, "gpt2", "say"], input=numbers(256, *range(256), 0), capture_output=True
        )
        assert said.returncode == 0, said.stderr.decode()
        found = {"AVX2", "portable"} & {*said.stderr.decode().split()}  # wine adds words of its own
        assert found == {way.instructions} if way.instructions else len(found) == 1
        yield command


@pytest.mark.slow
def test_only_files_named_so_have_wide_instructions(tmp_path: Path) -> None:
    """An older processor runs all files but those: what they do is asked for by has_avx2."""
    compiler, objdump = shutil.which("x86_64-linux-gnu-gcc"), shutil.which("objdump")
    if not compiler or not objdump:
        pytest.skip("no compiler for x86-64, or no objdump: apt-get install gcc binutils")
    compiled(tmp_path, compiler, ["-O3"])
    wide = set()
    for file in tmp_path.glob("*.o"):
        code = subprocess.run([objdump, "-d", str(file)], capture_output=True, check=True).stdout
        if regex.search(rb"%[yz]mm|\tv[a-z0-9]+ .*%xmm|\t(lzcnt|blsr|shlx|shrx|pdep|andn) ", code):
            wide.add(file.stem)
    assert wide == {"scan_avx2", "base_utf8_avx2", "encode_chunk_avx2", "encode_merge_avx2"}


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


@pytest.mark.slow
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
            len(pretoken.encode()) for pretoken in pinned.findall(NAMED[name], text)
        )
        assert ends == list(expected)
        assert ids == python.encode(text)
