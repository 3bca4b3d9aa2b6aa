r"""Numbers by threes from the right, against a naive cut, HuggingFace, and in streams."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import regex
from conftest import run_command
from hard_patterns import PARTS, some_text
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns.digits import digits_from_the_right
from bpe_tokenizer_tools.patterns.safe_cuts import analyze
from bpe_tokenizer_tools.training.superwords import SUPERBPE_PATTERN

NAMES = [*SPLIT_PATTERNS, SUPERBPE_PATTERN, r"\p{N}+|\s+|[^\s\p{N}]+"]
numbers = st.lists(
    st.sampled_from([*"0123456789", "1234567", " ", "a", ",", "٣", "½", "\n", "-", "'s"]),
    max_size=40,
).map("".join)
TEXT = "In 1999 they paid 1234567 for 12 345 of 1000000 things, and 10,000.50 for v2 and 3.14159. "


def by_threes(number: str) -> list[str]:
    first = len(number) % 3
    return [number[:first]] * bool(first) + regex.findall("...", number[first:], regex.DOTALL)


def naive(pattern: str, text: str) -> list[str]:
    """Cut out whole numbers, with the space before them if the pattern takes it, then by threes."""
    whole = regex.sub(r"(?<=\||^)( \?)?\\p\{N\}(\{1,3\}\+?|\+)?(?=\||$)", r"\1\\p{N}+", pattern)
    pieces: list[str] = []
    for piece in core.splitter(whole).split(text):
        if found := regex.fullmatch(r"( ?)(\p{N}+)", piece):
            first, *others = by_threes(found[2])
            pieces += [found[1] + first, *others]
        else:
            pieces.append(piece)
    return pieces


@pytest.mark.parametrize("name", NAMES)
def test_equals_a_naive_cut(name: str) -> None:
    pattern = SPLIT_PATTERNS.get(name, name)
    split = core.splitter(digits_from_the_right(name)).split

    @settings(max_examples=examples(100))
    @given(numbers | hard_text)
    def check(text: str) -> None:
        assert split(text) == naive(pattern, text)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_huggingface_and_streams_agree(tmp_path: Path, name: str) -> None:
    tokenizer = BPETokenizer(digits_from_the_right(name), normalizer=None)
    tokenizer.train([TEXT * 3], 400, min_frequency=1, verbose=False)
    tokenizer.save(tmp_path, verbose=False)
    theirs = need("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    again = BPETokenizer.from_pretrained(tmp_path, verbose=False)

    @settings(max_examples=examples(60))
    @given(numbers | hard_text, st.integers(1, 5))
    def check(text: str, size: int) -> None:
        ids = tokenizer.encode(text)
        assert ids == theirs.encode(text).ids == again.encode(text)
        chunks = [text[i : i + size] for i in range(0, len(text), size)]
        assert [i for part in tokenizer.encode_streaming(iter(chunks)) for i in part] == ids

    check()


@pytest.mark.parametrize("name", ["gpt2", "llama3", "o200k"])
def test_a_stream_waits_for_the_end_of_a_number_only(name: str) -> None:
    tokenizer = BPETokenizer(digits_from_the_right(name), normalizer=None)
    found: list[int] = []

    def chunks() -> Any:
        for _ in range(50):
            yield "they paid 1234"
            assert not found or tokenizer.decode(found).endswith(("paid", "they", ","))
            yield "567, and went home, "
        assert len(found) > 1000

    for ids in tokenizer.encode_streaming(chunks()):
        found += ids
    assert tokenizer.decode(found) == "they paid 1234567, and went home, " * 50


def test_superwords_take_it(tmp_path: Path) -> None:
    how = {"transition": 290, "pattern": digits_from_the_right(SUPERBPE_PATTERN)}
    tokenizer = BPETokenizer(digits_from_the_right("gpt2"))
    tokenizer.train([TEXT * 9], 330, superwords=how, verbose=False)
    tokenizer.save(tmp_path, verbose=False)
    theirs = need("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.encode(TEXT).ids == tokenizer.encode(TEXT)
    assert not any(b"4567" in left + right for left, right in tokenizer.merges)


@pytest.mark.parametrize(("pattern", "n"), [(r"\w+|\s+", 0), (r"\p{N}|\s|\p{N}{1,3}", 2)])
def test_patterns_without_one_place_for_numbers(pattern: str, n: int) -> None:
    with pytest.raises(ValueError, match=re.escape(f"has {n} alternatives for numbers")):
        digits_from_the_right(pattern)


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 3, encoding="utf-8")
    command = ["train", "--corpus", tmp_path / "text.txt", "--vocab-size", 300, "--quiet"]
    for pattern in ("gpt2", "llama3"):
        out = tmp_path / pattern
        options = ["--output", out, "--pattern", pattern, "--digits", "right"]
        assert run_command(capsys, *command, *options) == (0, "", "")
        made = BPETokenizer.from_pretrained(out, verbose=False)
        assert made.split_pattern == digits_from_the_right(pattern)
    options = ["--output", tmp_path / "new", "--digits", "right"]
    assert run_command(capsys, *command, *options) == (0, "", "")
    options = ["--output", tmp_path / "no", "--digits", "right", "--pattern", r"\s+"]
    status, _, err = run_command(capsys, *command, *options)
    assert (status, "has 0 alternatives for numbers" in err) == (1, True)


# -- Where text may be cut, in patterns that look behind --------------------------

BEHIND = [
    *[
        r"(?<!\p{N})\p{N}+",
        r"(?<=a)b+",
        r" ?(?<!\s)\S",
        r"\p{L}+(?<=s)",
        r"(?<=\s)\s",
        r"(?<=[ab]).",
    ],
    *[
        r"a(?<!b)?b",
        r"(?:x|(?<=\p{L})'s)+",
        r"(?<![^\S\n])\p{P}+",
        r"\s(?<=\n)(?=\S)",
        r"1(?<=.)2?",
    ],
]


def test_cuts_are_safe_where_a_pattern_looks_behind() -> None:
    """Split alone, what is on both sides of a cut gives what the whole does."""
    chance, n_cuts, n_proven = random.Random(1), 0, 0
    for _ in range(examples(300)):
        parts = chance.sample(PARTS, chance.randrange(1, 4)) + chance.sample(BEHIND, 2)
        chance.shuffle(parts)
        pattern = "|".join(parts)
        found = analyze(pattern)[1]
        if found is None:
            continue
        n_proven += 1
        cut, split = regex.compile(found), core.splitter(pattern).split
        for _ in range(20):
            text = some_text(chance)
            for at in {place.start() for place in cut.finditer(text)}:
                n_cuts += 1
                assert split(text) == split(text[:at]) + split(text[at:]), (pattern, text, at)
    assert n_proven > examples(300) // 8
    assert n_cuts > examples(300)
