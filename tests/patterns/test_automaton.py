"""Automatons of split patterns: they cut as `regex` does, or there is none."""

from __future__ import annotations

import random
import tracemalloc
from array import array

import pinned
import pytest
import regex
from hard_patterns import some_pattern, some_text
from hard_text import ATOMS
from oracles import examples
from test_split_patterns import LARGE, NAMED

import bpe_tokenizer
from bpe_tokenizer_tools.patterns import characters
from bpe_tokenizer_tools.patterns.automaton import Automaton, automaton
from bpe_tokenizer_tools.patterns.families import FAMILIES
from bpe_tokenizer_tools.patterns.known import SPELLINGS


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they ask neither engine."""


def cut(made: Automaton, text: str) -> list[str]:
    """Cut a text by the tables, as the extension does."""
    index, table, width = array("H", made.block_numbers), array("I", made.table), made.classes + 2

    def column(at: int) -> int:
        if at == len(text):
            return made.classes
        if made.asks_for_last_newline and text[at:] == "\n":
            return made.classes + 1
        return made.blocks[index[ord(text[at]) >> 8] * 256 + ord(text[at]) % 256]

    def match_end(start: int) -> int:
        state, end = 1, start
        for at in range(start, len(text) + 1):
            entry = table[state * width + column(at)]
            state, end = entry >> 1, at if entry & 1 else end
            if not state:
                break
        return end

    pieces, done, at = [], 0, 0
    while at < len(text):
        end = match_end(at)
        if end == at:
            at += 1
            continue
        pieces += [text[done:at], text[at:end]]
        done = at = end
    return [piece for piece in [*pieces, text[done:]] if piece]


def pieces_of(pattern: str, text: str) -> list[str]:
    """Cut a text by `regex`, which gets a second for it."""
    return pinned.pieces(pattern, text, timeout=1)


STEPS = [
    step["pattern"]["Regex"]
    for family in FAMILIES.values()
    for each in (family, family.in_llama_cpp)
    for step in (each.steps if each else ())
    if "pattern" in step
]


@pytest.mark.parametrize("pattern", [*dict.fromkeys([*SPELLINGS, *STEPS])])
def test_patterns_in_use(pattern: str) -> None:
    made = automaton(pattern)
    if made is None:  # they look further ahead, or at what is behind
        assert regex.search(r"\\b|\\B|\(\?[=!]\(|\(\?=\[|\(\?=\(\?:\\p|\(\?!\[", pattern)
        return
    splitter, chance = bpe_tokenizer._Splitter(pattern), random.Random(pattern)
    for _ in range(examples(100)):
        some = chance.sample(ATOMS, chance.choice([3, 6, 12, len(ATOMS)]))
        text = "".join(chance.choices(some, k=chance.choice([3, 20, 60])))
        assert cut(made, text) == splitter.split(text)


def test_named_patterns_have_one() -> None:
    assert all(map(automaton, {**NAMED, **SPELLINGS}))


@pytest.mark.slow
def test_random_patterns() -> None:
    chance, made = random.Random(7), 0
    for _ in range(examples(600)):
        pattern = some_pattern(chance)
        found = automaton(pattern)
        if found is None:
            continue
        made += 1
        for text in [some_text(chance) for _ in range(10)]:
            try:
                expected = pieces_of(pattern, text)
            except TimeoutError:  # a pattern that takes `regex` exponential time
                continue
            assert cut(found, text) == expected, (pattern, text)
    assert made > examples(600) // 3


@pytest.mark.parametrize(
    ("pattern", "text", "pieces"),
    [
        ("a+b|a", "aac aab", ["a", "a", "c ", "aab"]),
        ("a|ab", "ab", ["a", "b"]),  # the first that matches, not the longest
        ("ab?|b", "abb", ["ab", "b"]),
        ("a+?b?", "aab", ["a", "ab"]),
        ("a++b|a", "aab a", ["aab", " ", "a"]),
        ("a{1,2}+a|b", "aaab", ["aaa", "b"]),
        ("a{1,2}+a|b", "aab", ["aa", "b"]),  # it keeps both
        ("(?>a{1,2})b|.", "aab", ["aab"]),
        ("(?>ab+)b|a", "abb", ["a", "bb"]),
        (r"\s+$|\s", " \n", [" \n"]),
        (r"x+$|\n", "xx\n", ["xx", "\n"]),  # also before a newline that ends the text
        (r"x+\Z|\n", "xx\n", ["xx", "\n"]),
        (r"x+$|x|\n", "xx\n\n", ["x", "x", "\n", "\n"]),
        (r"(?i:s)|.", "sSſß", ["s", "S", "ſ", "ß"]),
    ],
)
def test_by_hand(pattern: str, text: str, pieces: list[str]) -> None:
    made = automaton(pattern)
    assert made is not None
    assert cut(made, text) == pieces == pieces_of(pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [
        *["a*", "a?", "", "(?=a)", r"\b", "x|"],  # may match nothing
        *[r"\Ba", "^a", r"\Aa", "(?<=a)b", "(?<!a)b"],  # look behind
        *["a(?=bc)", "a(?!b*c)", r"a(?=\d{2})"],  # look further ahead
        *["(?>a*b|a)c", "(?:ab)++c", "(?>a+b)c"],  # may not go back
        *[r"(a)\1", "(?R)a", "(?s)a.", "(?m)a$", "(?r)ab", "(?:ab){e<=1}", "a**", "["],
        *["[^ab]c|(?i:a)x", r"(?i:'s)|\P{Lu}b"],  # `regex` does not search for these right
    ],
)
def test_what_has_none(pattern: str) -> None:
    assert automaton(pattern) is None


def test_what_regex_does_not_search_for_right() -> None:
    """Where it does, `_check_beginnings` may have become needless."""
    assert regex.findall("[^ab]c", "Bc") == ["Bc"]
    if regex.findall("[^ab]c|(?i:a)x", "Bc"):
        pytest.skip(f"regex {regex.__version__} does")


HOSTILE = {
    **LARGE,
    "exponential": "(?:a|b)*a(?:a|b){20}",
    "nested": "(?:" * 200 + "a" + ")+" * 200,
    "repeats": "(?:(?:a{1,100}){1,100}){1,10}",
    "runs": "|".join(rf"\s{{{n},}}(?!\S)" for n in range(1, 400)),
    "look ahead": "|".join(f"a{{{n}}}(?!{chr(0x4E00 + n)})" for n in range(1, 60)),
    "all classes": "|".join(chr(0x4E00 + n) for n in range(300)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_large_patterns_take_bounded_time_and_memory(name: str) -> None:
    characters.members.cache_clear()
    tracemalloc.start()
    made = automaton(HOSTILE[name])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6
    assert made is None or len(made.table) < 5e6
