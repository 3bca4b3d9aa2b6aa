"""Patterns that cut alike: other spellings, and several steps written as one."""

from __future__ import annotations

import functools
import itertools
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pinned
import pytest
import regex
from conftest import read_corpus
from hard_text import CHARACTERS, CONTEXTS, every_character, hard_text
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS
from bpe_tokenizer_tools.patterns import re_dialect, safe_cuts
from bpe_tokenizer_tools.patterns.families import FAMILIES
from bpe_tokenizer_tools.patterns.known import IN_ONE_STEP, MORE_PATTERNS, SPELLINGS
from bpe_tokenizer_tools.patterns.oniguruma import from_oniguruma

NAMED = {**SPLIT_PATTERNS, **MORE_PATTERNS}
OTHER_SPELLINGS = [pattern for pattern, name in SPELLINGS.items() if NAMED[name] != pattern]
EVERY_SPELLING = pytest.mark.parametrize("spelling", OTHER_SPELLINGS)
CORPORA = pytest.mark.parametrize("corpus", ["english", "code", "multi"])


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they ask neither engine."""


# -- The patterns that are written by what tells them from another ---------------


def test_they_are_the_published_ones() -> None:
    assert SPLIT_PATTERNS["qwen3.5"] == (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    assert SPLIT_PATTERNS["tekken"] == (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


def test_qwen35_is_the_pattern_of_transformers() -> None:
    module = need("transformers.models.qwen3_5.tokenization_qwen3_5")
    assert module.PRETOKENIZE_REGEX == SPLIT_PATTERNS["qwen3.5"]


def test_tekken_is_the_pattern_of_mistral() -> None:
    mistral_common = need("mistral_common")
    files = list((Path(mistral_common.__file__).parent / "data").glob("tekken*.json"))
    assert files
    for file in files:
        config = json.loads(file.read_text(encoding="utf-8"))["config"]
        assert config["pattern"] == SPLIT_PATTERNS["tekken"]


# -- Several steps written as one ------------------------------------------------

# The steps of tokenizer.json, as patterns.  GPT-2's stands for ByteLevel, which cuts by it.
STEPS = {
    "deepseek-v3": [
        step["pattern"]["Regex"]
        for step in FAMILIES["deepseek-v3"].steps
        if step["type"] == "Split"
    ],
    "starcoder": [r"\p{N}", SPLIT_PATTERNS["gpt2"]],
}
assert {name: NAMED[name] for name in STEPS} == IN_ONE_STEP
EVERY_SEQUENCE = pytest.mark.parametrize("name", list(STEPS))


def cut_in_steps(patterns: list[str], text: str) -> list[str]:
    """Cut a text by each pattern in turn; what a pattern does not match is left as it is."""
    parts = [text]
    for pattern in patterns:
        parts = [piece for part in parts for piece in pinned.pieces(pattern, part)]
    return parts


@EVERY_SEQUENCE
@settings(max_examples=examples(1_000))
@given(text=hard_text)
def test_one_pattern_cuts_as_the_steps_do(name: str, text: str) -> None:
    assert pinned.findall(NAMED[name], text) == cut_in_steps(STEPS[name], text)


@pytest.mark.slow
@EVERY_SEQUENCE
@pytest.mark.parametrize("context", CONTEXTS)
def test_one_pattern_cuts_every_character_as_the_steps_do(name: str, context: str) -> None:
    for text in every_character(context):
        assert pinned.findall(NAMED[name], text) == cut_in_steps(STEPS[name], text)


@EVERY_SEQUENCE
@CORPORA
def test_one_pattern_cuts_real_text_as_the_steps_do(
    name: str, corpus: str, corpora_dir: Path
) -> None:
    text = read_corpus(corpus)[:300_000]
    assert pinned.findall(NAMED[name], text) == cut_in_steps(STEPS[name], text)


@functools.cache
def huggingface_steps(name: str) -> Callable[[str], list[str]]:
    """Return what cuts as HuggingFace tokenizers does with the steps of a family."""
    tokenizers = need("tokenizers")
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    data = json.loads(backend.to_str())
    data["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [step for step in FAMILIES[name].steps if step["type"] != "ByteLevel"],
    }
    if name == "starcoder":
        data["pre_tokenizer"]["pretokenizers"] += FAMILIES["gpt-2"].steps
    steps = tokenizers.Tokenizer.from_str(json.dumps(data)).pre_tokenizer
    if name != "starcoder":
        return lambda text: [piece for piece, _ in steps.pre_tokenize_str(text)]
    return (
        lambda text: [  # GPT-2's pattern comes with bytes written as letters
            text[start:end] for _, (start, end) in steps.pre_tokenize_str(text)
        ]
    )


@functools.cache
def of_another_unicode() -> frozenset[str]:
    """Return the characters of which the regex engine of tokenizers knows another class."""
    tokenizers = need("tokenizers")
    everything = "".join(CHARACTERS)
    differ: set[str] = set()
    for kind in (r"\p{L}", r"\p{M}", r"\p{N}", r"\p{P}", r"\p{S}", r"\p{C}", r"\s"):
        spelled = tokenizers.Regex(f"{kind}+")
        split = tokenizers.pre_tokenizers.Split(spelled, "removed")
        for start in range(0, len(everything), 20_000):  # its offsets cost time in long texts
            chars = everything[start : start + 20_000]
            rest = "".join(piece for piece, _ in split.pre_tokenize_str(chars))
            differ |= set(rest) ^ set(chars).difference(pinned.findall(kind, chars))
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)  # by Rust's own tables
    for start in range(0, len(everything), 10_000):
        chars = everything[start : start + 10_000]
        pieces = digits.pre_tokenize_str("".join(f"a{char}" for char in chars))
        found = {piece for piece, _ in pieces if len(piece) == 1 and piece != "a"}
        differ |= found ^ set(pinned.findall(r"\p{N}", chars))
    return frozenset(differ)


@EVERY_SEQUENCE
@settings(max_examples=examples(500))
@given(text=hard_text)
def test_one_pattern_cuts_as_huggingface_does(name: str, text: str) -> None:
    assume(of_another_unicode().isdisjoint(text))
    assert pinned.findall(NAMED[name], text) == huggingface_steps(name)(text)


@pytest.mark.slow
@EVERY_SEQUENCE
@pytest.mark.parametrize("context", CONTEXTS[::3])
def test_one_pattern_cuts_every_character_as_huggingface_does(name: str, context: str) -> None:
    for text in every_character(context, of_another_unicode(), step=2_000):
        cut = pinned.findall(NAMED[name], text)
        assert huggingface_steps(name)(text) == cut


# -- Spellings -------------------------------------------------------------------


@EVERY_SPELLING
@settings(max_examples=examples(500))
@given(text=hard_text)
def test_spellings_cut_as_the_pattern_they_stand_for(spelling: str, text: str) -> None:
    assert pinned.findall(spelling, text) == pinned.findall(NAMED[SPELLINGS[spelling]], text)


@pytest.mark.slow
@EVERY_SPELLING
def test_spellings_cut_every_character_as_the_pattern(spelling: str) -> None:
    for text in every_character("a{}B '{} {}9!{}{}\n{}\t{}"):
        assert pinned.findall(spelling, text) == pinned.findall(NAMED[SPELLINGS[spelling]], text)


@EVERY_SPELLING
def test_spellings_cut_real_text_as_the_pattern(spelling: str, corpora_dir: Path) -> None:
    for corpus in ("english", "code", "multi"):
        text = read_corpus(corpus)[:100_000]
        assert pinned.findall(spelling, text) == pinned.findall(NAMED[SPELLINGS[spelling]], text)


def test_patterns_that_look_alike_are_not_equal() -> None:
    for name, other, text in [
        ("cl100k", "llama3", "a\n  "),
        ("llama3", "qwen2", "12"),
        ("llama3", "nanochat", "123"),
        ("qwen2", "qwen3.5", "a\u0301"),
        ("o200k", "tekken", "it's"),
        ("gpt2", "starcoder", " 1"),
    ]:
        assert pinned.findall(NAMED[name], text) != pinned.findall(NAMED[other], text)


def cuts_as_llama3(text: str) -> bool:
    """Return whether cl100k's and Llama 3's patterns cut a text alike."""
    both = (pinned.findall(SPLIT_PATTERNS[name], text) for name in ("cl100k", "llama3"))
    return next(both) == next(both)


@settings(max_examples=examples(2_000))
@given(text=hard_text, last=st.sampled_from(["a", "1", "!", "'s", "中", "\u0301", "\0"]))
def test_cl100k_cuts_as_llama3_but_where_white_space_ends_a_text(text: str, last: str) -> None:
    assert cuts_as_llama3(text + last)


def test_cl100k_cuts_all_short_texts_as_llama3_but_where_white_space_ends_them() -> None:
    for n in range(1, 6):
        for chars in itertools.product("as1!' \n\r\t", repeat=n):
            text = "".join(chars)
            assert text[-1].isspace() or cuts_as_llama3(text), repr(text)
    for text in every_character("a{}B '{} {}9!{}{}\n{}\t{} {}!"):
        assert cuts_as_llama3(text)


def test_published_vocabularies_are_spelled_so(vocab_dir: Path) -> None:
    for file in vocab_dir.glob("*.json"):
        assert json.loads(file.read_text(encoding="utf-8"))["pat_str"] in SPELLINGS


def test_tiktoken_spells_them_so() -> None:
    public = need("tiktoken_ext.openai_public")
    assert public.r50k_pat_str in SPELLINGS
    educational = need("tiktoken._educational")
    source = Path(educational.__file__).read_text(encoding="utf-8")
    for pattern in regex.findall(r'(?<=""").*\\p\{L\}.*(?=""")', source):
        assert pattern in SPELLINGS


def test_families_are_spelled_so() -> None:
    names = set()
    for family in FAMILIES.values():
        splits = [step["pattern"]["Regex"] for step in family.steps if step["type"] == "Split"]
        if len(splits) == 1 and len(family.steps) == 2:
            names.add(SPELLINGS.get(splits[0]))
    assert names >= {"o200k", "llama3", "qwen2", "qwen3.5", "tekken"}
    assert SPELLINGS[FAMILIES["bailingmoe"].steps[0]["pattern"]["Regex"]] == "qwen2"


@EVERY_SPELLING
def test_spellings_survive_tokenizer_json(spelling: str) -> None:
    """What is written for HuggingFace's engine and read again still has a name."""
    written = bpe_tokenizer._to_oniguruma(spelling)
    assert SPELLINGS.get(from_oniguruma(written)) == SPELLINGS[spelling]


# -- Patterns of any size --------------------------------------------------------


def written(n: int, form: str, between: str = "|") -> str:
    """Repeat a form with another character each time."""
    return between.join(form.format(chr(0x4E00 + i)) for i in range(n))


LARGE = {
    "optional parts": written(5_000, "{}?", "") + "a",
    "a set, then optional parts": f"[{written(5_000, '{}', '')}]?{written(2_400, '{}?', '')}",
    "choices, repeated": f"(?:{written(4_990, '{}')})+",
    "choices, then others": f"(?:{written(2_490, '{}')})(?:{written(2_490, '{}')})",
    "many sets": written(1_100, r"[{}\p{{L}}]+"),
    "many sets, in any case": f"(?i:{written(1_600, '[^{}]+')})",
    "one set again and again": "|".join([r"\p{L}"] * 1_900),
    "one set": f"[{written(9_990, '{}', '')}]+",
    "characters": written(9_999, "{}", ""),
}


@pytest.mark.parametrize("name", LARGE)
def test_the_analysis_of_a_large_pattern_is_bounded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spelled: list[str] = []
    expand = re_dialect.bmp_set.__wrapped__
    monkeypatch.setattr(re_dialect, "bmp_set", lambda each: spelled.append(each) or expand(each))
    tracemalloc.start()
    cut = safe_cuts.analyze(LARGE[name])[1]
    find = re_dialect.finder(LARGE[name])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6 and len(cut or "") < 100_000 and len(set(spelled)) <= 100
    assert cut is None or regex.compile(cut)
    assert (find is None) == (name.startswith("many") or "again" in name)


def test_the_patterns_in_use_take_a_hundredth_of_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    families = [each for made in FAMILIES.values() for each in (made, made.in_llama_cpp) if each]
    steps = [
        step["pattern"]["Regex"] for each in families for step in each.steps if "pattern" in step
    ]
    patterns = {*NAMED.values(), *SPELLINGS, *steps}
    expected = {pattern: safe_cuts.analyze(pattern) for pattern in patterns}
    assert len(patterns) > 60 and sum(cut is not None for _, cut in expected.values()) > 50
    monkeypatch.setattr(safe_cuts, "_MAX_PAIRS", safe_cuts._MAX_PAIRS // 100)
    monkeypatch.setattr(safe_cuts, "_MAX_LENGTH", safe_cuts._MAX_LENGTH // 10)
    assert {pattern: safe_cuts.analyze(pattern) for pattern in patterns} == expected
    finders = sum(re_dialect.finder(pattern) is not None for pattern in patterns)
    monkeypatch.setattr(re_dialect, "_MAX_SETS", re_dialect._MAX_SETS // 4)
    monkeypatch.setattr(re_dialect, "_MAX_LENGTH", re_dialect._MAX_LENGTH // 4)
    assert sum(re_dialect.finder(pattern) is not None for pattern in patterns) == finders > 40
