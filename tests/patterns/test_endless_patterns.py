"""Patterns that backtrack without end are stopped, with an error that names them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import components
from bpe_tokenizer_tools.formats.tiktoken import exact_pattern
from bpe_tokenizer_tools.learn.split import SplitTokenizer
from bpe_tokenizer_tools.patterns import automaton, re_dialect, timeouts
from bpe_tokenizer_tools.patterns.known import SPELLINGS
from bpe_tokenizer_tools.training import numbering

ENDLESS = r"(?:a|a)+b|\w"  # 2^n ways to match n letters
TEXT = "a" * 60


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they ask neither engine."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe_tokenizer, "_LEAST_SECONDS", 0.05)
    monkeypatch.setattr(core, "LEAST_SECONDS", 0.05)


CUTTERS: dict[str, Callable[[], object]] = {
    "split": lambda: bpe_tokenizer._Splitter(ENDLESS).split(TEXT),
    "split, empty matches too": lambda: bpe_tokenizer._Splitter(ENDLESS + "|").split(TEXT),
    "split, groups": lambda: bpe_tokenizer._Splitter(ENDLESS + r"|(\s)").split(TEXT),
    "a component": lambda: list(components._finder(ENDLESS)(TEXT)),
    "a component, empty matches too": lambda: list(components._finder(ENDLESS + "|")(TEXT)),
    "superwords": lambda: list(numbering._cutter(ENDLESS)(TEXT)),
    "learn": lambda: SplitTokenizer(ENDLESS).cut(TEXT),
    "encode": lambda: bpe_tokenizer._Encoder(BPETokenizer(ENDLESS).definition).encode(TEXT),
}


@pytest.mark.parametrize("name", CUTTERS)
def test_an_endless_pattern_is_stopped(name: str) -> None:
    problem = f"split pattern {ENDLESS[:9]!r}"[:-1]
    with pytest.raises(
        ValueError, match=re.escape(problem) + ".* takes too long for 60 characters; .*possessive"
    ):
        CUTTERS[name]()


def test_re_runs_only_patterns_in_use() -> None:
    """It can't be stopped."""
    assert re_dialect.finder(ENDLESS) and not re_dialect.finder_in_use(ENDLESS)
    splitter = bpe_tokenizer._Splitter(ENDLESS)
    splitter._until_fast = 1
    assert splitter.split("bab") == ["b", "ab"] and splitter._fast is None
    ours = [pattern for pattern in SPELLINGS if re_dialect.finder(pattern)]
    assert all(map(re_dialect.finder_in_use, ours)) and ours


def test_named_patterns_have_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe_tokenizer, "_LEAST_SECONDS", -1e9)
    for pattern in SPLIT_PATTERNS.values():
        assert bpe_tokenizer._Splitter(pattern).split("ab c") == ["ab", " c"]


def test_the_limit_grows_with_the_text() -> None:
    assert timeouts.seconds_for("a" * 10**6) - timeouts.seconds_for("") == 10


@pytest.mark.parametrize("flags", ["(?if)", "(?V1i)", "(?iV1)", "(?fi)"])
def test_full_case_folding_is_for_short_patterns(flags: str) -> None:
    """A large set takes a millisecond and 140 kB to compile with it."""
    assert bpe_tokenizer._Splitter(f"{flags}[^a]|a").split("ab") == ["a", "b"]
    with pytest.raises(ValueError, match="longer, or more, than any in use"):
        bpe_tokenizer._Splitter(flags + "[\0-\U0010ffff]" * 1_900)


def test_an_automaton_of_many_sets_is_not_made() -> None:
    """Finding the members of a set takes 15 ms."""
    sets = [rf"[\p{{L}}{chr(0x4E00 + i)}]+" for i in range(60)]
    assert automaton.automaton("|".join(sets[:20])) and not automaton.automaton("|".join(sets))


_LITERAL = "a" * 5_000


@pytest.mark.parametrize(
    "pattern",
    [
        _LITERAL,
        r"\x61" * 1_250,
        "[a]" * 1_666,
        r"\-" * 2_500,
        rf"\[{_LITERAL}]",
        f"(?:{_LITERAL[:499]})" * 9,
        f"(?i-s:{_LITERAL[:499]})" * 9,
        f"{_LITERAL[:499]}[a-a]" * 9,
        f"{_LITERAL[:499]}(?s)" * 9,
        "a{1}" * 1_250,
        "a{01,1}+" * 600,
        f"(?#[){_LITERAL}(?#])",
        rf"(?#[\){_LITERAL}(?#])",
        f"(?x)#[\n{_LITERAL}#]",
    ],
)
def test_a_long_literal_is_refused(pattern: str) -> None:
    """`regex` takes cubic time to prepare one, and can't be stopped."""
    for given in pattern, exact_pattern(pattern):  # a file's pattern is tried before it is used
        with pytest.raises(ValueError, match="characters, repeating 1 times: longer, or more"):
            bpe_tokenizer._Splitter(given)


def test_a_literal_of_some_hundred_characters_is_taken() -> None:
    assert bpe_tokenizer._Splitter("a" * 499).split("a" * 500) == ["a" * 499, "a"]


def test_a_long_set_is_taken() -> None:
    """It isn't a literal: `regex` prepares it quickly."""
    letters = [chr(0x4E00 + 2 * i) for i in range(2_000)]
    spelled = "".join(rf"\u{ord(letter):04x}" for letter in letters[:1_000])
    word, other = "".join(letters[:9]), chr(0x4E01) * 9
    for inside in "".join(letters), spelled:
        assert bpe_tokenizer._Splitter(rf"[{inside}]|\s+").split(f"{word} {other}") == [
            *word, " ", other,
        ]  # fmt: skip
        assert bpe_tokenizer._Splitter(f"[^{inside}]").split(word + other) == [word, *other]
