"""Split patterns: what is cut where, by which engine, and where text may be cut apart."""

from __future__ import annotations

import itertools
import sys
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

import pinned
import pytest
import regex
from conftest import EITHER_ENGINE
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import examples, need, share

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS
from bpe_tokenizer_tools.patterns import algebra
from bpe_tokenizer_tools.patterns.characters import members
from bpe_tokenizer_tools.patterns.oniguruma import from_oniguruma, to_oniguruma
from bpe_tokenizer_tools.patterns.safe_cuts import cut_pattern

pytestmark = EITHER_ENGINE  # Python cuts; the scanners of the extension have tests of their own

NAMES = list(SPLIT_PATTERNS)

# What has broken tokenizers before: letters that only fold to ASCII, every kind
# of white space and control, marks, title case, digits of other scripts, planes.
NASTY = [
    *"abstdmlvreSTDMLVREZ019 '/.,!_-",
    *("ſ", "ſs", "K", "İ", "ı", "ß", "’"),
    *("\r", "\n", "\r\n", "\n\n", "\t", "\v", "\f", "\0"),
    *("\x1c", "\x1d", "\x1e", "\x1f", "\x7f", "\x85", "\xa0", "\xad"),
    *("\u3000", "\u2028", "\u2029", "\u200b", "\u200d", "\u180e", "\ufeff", "\ufe0f"),
    *("\u0301", "\u0308", "\u05b0", "\u093f", "\U000e0100"),
    *("ǅ", "ǈ", "ᾈ", "ʰ", "ª", "ـ", "é", "ñ", "Ж", "ω", "א", "م", "ह", "ก", "한", "世", "の"),
    *("²", "½", "Ⅷ", "٣", "३", "๕", "①", "𝟗", "𐄇"),
    *("𝒜", "𐐀", "𐐨", "𠀀", "😀", "👩\u200d💻", "🇩🇪", "👍🏽", "\uffff", "\U0010ffff"),
    *("'s", "'S", "'ſ", "'ll", "'LL", "'Re", "'ve", "  ", "   ", "<|endoftext|>"),
]
nasty_text = st.lists(st.sampled_from(NASTY), max_size=24).map("".join) | st.text(max_size=12)


def split_naively(pattern: str, text: str) -> list[str]:
    """Cut text with nothing but the pattern; what no match covers stands on its own."""
    return pinned.pieces(pattern, text)


def fast_splitter(pattern: str) -> Any:
    """Make a splitter that uses the standard library's `re` from the first text on."""
    splitter = bpe_tokenizer._Splitter(pattern)
    splitter._until_fast = 1
    splitter.split("warm up")
    return splitter


# One for all texts: to build it takes longer than to use it.
fast_splitter_of = cache(fast_splitter)


@cache
def oniguruma_splitter(pattern: str) -> Callable[[str], list[str]]:
    """Cut with the regex engine of HuggingFace tokenizers, given our spelling."""
    tokenizers = need("tokenizers")
    spelled = tokenizers.Regex(bpe_tokenizer._to_oniguruma(pattern))
    split = tokenizers.pre_tokenizers.Split(spelled, "isolated")
    return lambda text: [piece for piece, _ in split.pre_tokenize_str(text) if piece]


# -- The named patterns -------------------------------------------------------


def test_the_named_patterns_are_the_published_ones() -> None:
    # Llama 3 and Qwen publish no vocabulary with tiktoken, so their patterns are
    # written out here, from their own code.
    contractions = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
    rest = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    assert SPLIT_PATTERNS["llama3"] == contractions + r"\p{N}{1,3}" + rest
    assert SPLIT_PATTERNS["qwen2"] == contractions + r"\p{N}" + rest
    assert SPLIT_PATTERNS["gpt2"] == (
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    )
    assert bpe_tokenizer.GPT2_SPLIT_PATTERN == SPLIT_PATTERNS["gpt2"]
    assert bpe_tokenizer.CL100K_SPLIT_PATTERN == SPLIT_PATTERNS["cl100k"]


def test_qwen2_is_the_pattern_of_transformers() -> None:
    module = need("transformers.models.qwen2.tokenization_qwen2")
    assert module.PRETOKENIZE_REGEX == SPLIT_PATTERNS["qwen2"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt2", "I'll SHE'LL 12345  x", "I|'ll| SHE|'|LL| 12345| | x"),
        ("cl100k", "I'll SHE'LL 12345  x", "I|'ll| SHE|'LL| |123|45| | x"),
        ("o200k", "I'll camelCase 12345", "I'll| camel|Case| |123|45"),
        ("llama3", "I'll SHE'LL 12345", "I|'ll| SHE|'LL| |123|45"),
        ("qwen2", "'ſ 12345", "'ſ| |1|2|3|4|5"),
        ("gpt2", "a\n\n b\n", "a|\n\n| b|\n"),
        ("cl100k", "a \n\n b\n \n", "a| \n\n| b|\n \n"),
        ("llama3", "a \n\n b\n \n ", "a| \n\n| b|\n \n| "),
        ("o200k", "x//\n/ y", "x|//\n/| y"),
    ],
)
def test_recorded_expectations(name: str, text: str, expected: str) -> None:
    pattern = SPLIT_PATTERNS[name]
    for splitter in (bpe_tokenizer._Splitter(pattern), fast_splitter(pattern)):
        assert splitter.split(text) == expected.split("|")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(300))
@given(text=nasty_text)
def test_each_engine_gives_the_pretokens_of_regex(name: str, text: str) -> None:
    pattern = SPLIT_PATTERNS[name]
    expected = pinned.findall(pattern, text)
    assert "".join(expected) == text
    assert bpe_tokenizer._splitter(pattern).split(text) == expected
    assert fast_splitter_of(pattern).split(text) == expected


@pytest.mark.parametrize(
    ("name", "vocabulary"),
    [
        ("gpt2", "r50k_base"),
        ("cl100k", "cl100k_base"),
        ("o200k", "o200k_base"),
        ("qwen2", "qwen3"),
    ],
)
@settings(max_examples=examples(300))
@given(text=nasty_text)
def test_equals_the_published_pattern(
    name: str, vocabulary: str, load_vocab: Callable[[str], Any], text: str
) -> None:
    published = load_vocab(vocabulary)[1]["pat_str"]
    expected = pinned.findall(published, text)
    assert bpe_tokenizer._splitter(SPLIT_PATTERNS[name]).split(text) == expected
    assert fast_splitter_of(SPLIT_PATTERNS[name]).split(text) == expected


@pytest.mark.parametrize("corpus", ["english", "code", "multi"])
@pytest.mark.parametrize("name", NAMES)
def test_real_text(name: str, corpus: str, corpora: Callable[[str], str]) -> None:
    pattern, text = SPLIT_PATTERNS[name], corpora(corpus)[:300_000]
    expected = pinned.findall(pattern, text)
    assert fast_splitter_of(pattern).split(text) == expected
    assert oniguruma_splitter(pattern)(text) == expected


# -- Every character ----------------------------------------------------------

CONTEXTS = ["a{}a", "A{}b", "1{}1", " {} ", "\n{}\n", "'{}", "{}'s", ".{}/", "  {}"]
BMP = [chr(point) for point in range(0x10000) if not 0xD800 <= point < 0xE000]
ASTRAL = [chr(point) for point in range(0x10000, 0x110000)]


def in_contexts(chars: list[str]) -> str:
    """Put each character in every context, in one text."""
    return "".join(context.replace("{}", char) for char in chars for context in CONTEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_character_of_the_basic_plane_with_re(name: str) -> None:
    pattern = SPLIT_PATTERNS[name]
    splitter = fast_splitter(pattern)
    if sys.version_info >= (3, 11):  # before, `re` has no possessive quantifiers
        assert splitter._fast, "the fast path is not in use, so this would show nothing"
    text = in_contexts(BMP)
    assert splitter.split(text) == pinned.findall(pattern, text)
    # A text of its own has borders that a context inside a long text has not.
    for char in BMP:
        for short in (char, f"a{char}", f" {char}1", f"{char}\n"):
            assert splitter.split(short) == pinned.findall(pattern, short), ascii(short)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_character_of_the_other_planes(name: str) -> None:
    pattern = SPLIT_PATTERNS[name]
    text = "".join(f"a{char}1{char} {char}\n" for char in ASTRAL[:0x20000:3])
    everything = "".join(ASTRAL)
    for splitter in (bpe_tokenizer._Splitter(pattern), fast_splitter(pattern)):
        assert splitter.split(text) == pinned.findall(pattern, text)
        assert splitter.split(everything) == pinned.findall(pattern, everything)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_assigned_character_in_oniguruma(name: str) -> None:
    # Engines know different versions of Unicode: new characters may differ.
    pattern = SPLIT_PATTERNS[name]
    chars = [c for c in BMP + ASTRAL[:0x20000:5] if unicodedata.category(c) not in ("Cn", "Co")]
    chars = [*share(chars)]  # of either engine, not of this Python
    for start in range(0, len(chars), 20_000):  # its offsets cost time in long texts
        text = in_contexts(chars[start : start + 20_000])
        expected = pinned.findall(pattern, text)
        assert oniguruma_splitter(pattern)(text) == expected


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(200))
@given(text=nasty_text)
def test_oniguruma_spelling(name: str, text: str) -> None:
    assume(all(unicodedata.category(char) != "Cn" for char in text))
    pattern = SPLIT_PATTERNS[name]
    assert oniguruma_splitter(pattern)(text) == pinned.findall(pattern, text)


# -- Patterns of one's own ----------------------------------------------------

CUSTOM = [
    r"[a-z]+",  # leaves gaps
    r"\p{Lu}",
    r"(a)(b)|c",  # captures: findall would give tuples
    r"(?:a|(b))+",
    r"(?P<word>\w+)(?P<mark>[.,])?",
    r"a++b|a|b",
    r"(?>a|ab)c|.",
    r"a*+a|b+",
    r"a+?b|a|b",
    r"a{2,3}?|a{1,2}+|\s{2}",
    r"ab$|a|b|\s",
    r"ab\Z|a|b|\s",
    r"a(?=$)|ab|b|\s",
    r"\s+$|\s|\S+",
    r"^a|b+|\w",
    r"\Aab|a|b",
    r"(?<=a)b|a|bb",
    r"(?<!a)b+|a|\d",
    r"\b\w+\b|\W",
    r"\Ba|a|b",
    r"a*",  # matches nothing, everywhere
    r"a*?",
    r"",
    r"|a",
    r"(?=a)|b",
    r"(?!a)",
    r"$|a",
    r"\b",
    r"(a|b)\1|.",
    r"(?i)ab|s+|k",
    r"(?i:s)a|(?i:[^s])|.",
    r"(?s).b|.",
    r"(?x) a b # words",
    r"\X",
    r"[[:alpha:]]+|.",
    r"[]a]+|[^]a]",
    r"[\^a]|[a^]+|[^^]",
    r"[a-c&&b]+|[~|]+|[\[]",
    r"\x61|\u0062+|\n",
    r"\012+|\0a|\w",  # octal: a newline, and U+0000 before a letter
    r"\p{^L}+|\P{L}|\pL",
    r".+|\n",
    r"(?:ab|a)(?:b|$)|\s",
    r"(?=ab)a|a(?!b)a|b",
    r"a(?!(?=b)\w)|\w",
    r"a{0}b|a{0,}\s|a",
    r"(?:a?){2}b|a",
    r"\d{1,3}(?=(?:\d{3})*\b)|\D",
    r"a{,2}b|a",
    r"[^\W\d_]+|[\d_]+|\W",
    r"(?:\r\n|\r|\n)|[^\r\n]+",
]
plain_text = st.text(alphabet="aabbcAS1 \n\r'.]^&ſKé😀\0_", max_size=14)


@pytest.mark.parametrize("pattern", CUSTOM)
@settings(max_examples=examples(120))
@given(text=plain_text)
def test_custom_patterns_lose_nothing(pattern: str, text: str) -> None:
    expected = split_naively(pattern, text)
    assert "".join(expected) == text
    assert bpe_tokenizer._splitter(pattern).split(text) == expected
    assert fast_splitter_of(pattern).split(text) == expected


def test_text_that_nothing_matches_is_a_pretoken() -> None:
    assert bpe_tokenizer._Splitter("[a-z]+").split("12ab--c!") == ["12", "ab", "--", "c", "!"]
    assert bpe_tokenizer._Splitter("x").split("no match") == ["no match"]
    assert bpe_tokenizer._Splitter("(?=b)").split("abab") == ["a", "ba", "b"]
    assert bpe_tokenizer._Splitter("x").split("") == []


@pytest.mark.parametrize("pattern", CUSTOM)
@settings(max_examples=examples(60))
@given(text=plain_text)
def test_oniguruma_spelling_of_custom_patterns(pattern: str, text: str) -> None:
    check_oniguruma(pattern, text)


def check_oniguruma(pattern: str, text: str) -> None:
    """A spelling that cannot be trusted is refused; one that is given is right."""
    try:
        split = oniguruma_splitter(pattern)
    except ValueError as error:
        assert "split pattern" in str(error)
        return
    assert split(text) == split_naively(pattern, text)


def test_oniguruma_spelling_refuses_what_it_does_not_know() -> None:
    for pattern in (r"(a)\1", r"\X", r"(?x) a"):
        with pytest.raises(ValueError, match="split pattern"):
            bpe_tokenizer._to_oniguruma(pattern)


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", "(?P<n>a)(?P<n", "*a"])
def test_a_broken_pattern_is_a_clear_error(pattern: str) -> None:
    with pytest.raises(ValueError, match="split pattern"):
        bpe_tokenizer.BPETokenizer(pattern)


# -- Where text may be cut apart ----------------------------------------------


def check_cuts(pattern: str, text: str) -> int:
    """Check every safe cut of a text alone, and all of them together."""
    splitter = bpe_tokenizer._splitter(pattern)
    if splitter.cut is None:
        return 0
    whole = split_naively(pattern, text)
    cuts = sorted({found.start() for found in splitter.cut.finditer(text)})
    for cut in cuts:
        parts = split_naively(pattern, text[:cut]) + split_naively(pattern, text[cut:])
        assert parts == whole, f"{pattern!r} may not be cut at {cut} of {text!r}"
    borders = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in zip(borders, borders[1:])]
    assert [p for piece in pieces for p in split_naively(pattern, piece)] == whole
    return len(cuts)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(300))
@given(text=nasty_text)
def test_named_patterns_may_be_cut_where_they_say(name: str, text: str) -> None:
    check_cuts(SPLIT_PATTERNS[name], text)


@pytest.mark.parametrize("name", NAMES)
def test_named_patterns_are_cut_often_enough(name: str) -> None:
    # Reading in blocks and streaming hold text back until a cut: prose needs many.
    text = "The quick, brown fox: 12 jumps!\nIt's over.\n\n" * 10
    assert check_cuts(SPLIT_PATTERNS[name], text) > 60


@pytest.mark.parametrize("pattern", [r"a(?=$)|ab|b|\s", r"(?:ab|a)(?:b|$)|\s"])
def test_a_cut_after_a_newline_does_not_make_it_the_last(pattern: str) -> None:
    for text in ("1a\nb", "1a\n ", "a\n\nb"):  # `$` also matches before a newline that ends a text
        check_cuts(pattern, text)


@pytest.mark.parametrize("name", NAMES)
def test_parsing_proves_the_cuts_of_named_patterns(name: str) -> None:
    """Both depend on two characters alone: one of each class that either tells apart is enough."""
    tree = algebra.PatternParser(SPLIT_PATTERNS[name]).parse()
    written = bpe_tokenizer._SAFE_CUT
    proven = cut_pattern(tree)
    assert written.startswith("(?r)") and proven is not None
    kinds = algebra.leaves(tree) | {r"[\p{L}\p{N}]", r"[\s\p{P}\p{S}]", "'"}
    every = "".join(map(chr, range(0x110000)))
    classes = [0] * len(every)
    for number, kind in enumerate(sorted(kinds)):
        for run in members(kind):
            for point in range(*run):
                classes[point] |= 1 << number
    one_of_each = [every[point] for point in {kind: i for i, kind in enumerate(classes)}.values()]
    assert len(one_of_each) >= 10
    written_cut, proven_cut = pinned.compiled(written), pinned.compiled(proven)
    pairs = map("".join, itertools.product(one_of_each, repeat=2))
    cut = [pair for pair in pairs if written_cut.search(pair)]
    assert len(cut) >= 10
    for pair in cut:
        assert proven_cut.search(pair), ascii(pair)


@pytest.mark.parametrize("pattern", [*SPLIT_PATTERNS.values(), bpe_tokenizer._UNCUT_PATTERN])
def test_the_table_has_the_spelling_that_parsing_gives(pattern: str) -> None:
    assert bpe_tokenizer._SPELLINGS[pattern] == to_oniguruma(pattern)
    parsed = algebra.PatternParser(to_oniguruma(pattern), oniguruma=True).parse()
    assert to_oniguruma(algebra.spell(parsed, lambda leaf: leaf.source)) == to_oniguruma(pattern)


def test_without_the_tools_named_patterns_are_cut_alike_and_others_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "The quick, brown fox: 12 jumps!\nIt's over.\n\n"
    custom = [pattern for pattern in CUSTOM if "&&" not in pattern]
    proven = {p: bpe_tokenizer._Splitter(p) for p in (*SPLIT_PATTERNS.values(), *custom)}

    monkeypatch.setattr(bpe_tokenizer, "_WITH_TOOLS", False)
    for pattern, before in proven.items():
        alone = bpe_tokenizer._Splitter(pattern)
        named = pattern in SPLIT_PATTERNS.values()
        long = text * (2500 if named else 9)  # long enough for `re`
        assert alone.split(long) == before.split(long)
        cut = before.cut if named else None
        # Not the compiled patterns: `regex` compiles one again once its cache is full.
        assert (alone.cut and alone.cut.pattern) == (cut and cut.pattern)


@pytest.mark.parametrize("pattern", CUSTOM)
@settings(max_examples=examples(150))
@given(text=plain_text)
def test_custom_patterns_may_be_cut_where_they_say(pattern: str, text: str) -> None:
    check_cuts(pattern, text)


ATOMS = ["a", "b", "A", " ", "\\n", "1", "'", "[ab]", "[^a]", "[^\\r\\n\\p{L}]", "\\s", "\\S"]
ATOMS += ["\\w", "\\d", "\\p{L}", "\\p{Lu}", ".", "(?i:a)", "(?i:[^b])", "\\r"]
ANCHORS = ["$", "\\Z", "^", "\\A", "\\b", "\\B", "(?<=a)", "(?<!b)"]
QUANTIFIERS = ["", "", "", "?", "*", "+", "{2}", "{1,2}", "{0,1}", "{2,}", "{0}"]


def combined(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Build bigger patterns from smaller ones."""
    repeated = st.builds(
        lambda item, quantifier, mode: f"(?:{item}){quantifier}{mode if quantifier else ''}",
        children,
        st.sampled_from(QUANTIFIERS),
        st.sampled_from(["", "", "?", "+"]),
    )
    group = st.builds(
        lambda opening, item: f"{opening}{item})",
        st.sampled_from(["(?:", "(?>", "(?=", "(?!", "(", "(?i:"]),
        children,
    )
    joined = st.lists(children, min_size=1, max_size=3).map("".join)
    either = st.lists(children, min_size=2, max_size=3).map("|".join).map("(?:{})".format)
    return repeated | group | joined | either


quantified_atoms = st.builds(
    lambda atom, quantifier, mode: atom + quantifier + (mode if quantifier else ""),
    st.sampled_from(ATOMS),
    st.sampled_from(QUANTIFIERS),
    st.sampled_from(["", "", "?", "+"]),
)
pieces = st.recursive(
    quantified_atoms | quantified_atoms | st.sampled_from(ANCHORS), combined, max_leaves=5
)
options = st.lists(pieces, min_size=1, max_size=3).map("".join)
# A plain word or character at the end makes cuts likely, as in real patterns.
patterns = st.builds(
    lambda parts, last: "|".join([*parts, last] if last else parts),
    st.lists(options, min_size=1, max_size=4),
    st.sampled_from(["", "a|b", " ?\\w+", "[^\\s]+", "\\s", "a+| ", "[a-z]|\\s|1", "(?s:.)"]),
)
small_text = st.text(alphabet="aabbAB1 \n\r'é", min_size=1, max_size=9)


def assume_compiles(pattern: str) -> None:
    try:
        regex.compile(pattern)
    except regex.error:
        assume(False)


@pytest.mark.slow
@settings(max_examples=examples(1500))
@given(pattern=patterns, texts=st.lists(small_text, min_size=3, max_size=6))
@example(pattern=r"ab$|a|b|c", texts=["abc", "abcab\n", "abab"])
@example(pattern=r"a(?=b|$)|b+|\s", texts=["ab", "a b", "a\n"])
@example(pattern=r"a\s*\Z|a|\s", texts=["a a", "a  a", "aa"])
def test_any_pattern_may_be_cut_where_it_says(pattern: str, texts: list[str]) -> None:
    assume_compiles(pattern)
    for text in texts:
        check_cuts(pattern, text)


@settings(max_examples=examples(600))
@given(pattern=patterns, texts=st.lists(small_text, min_size=3, max_size=6))
# A possessive repeat of a group forgets, in `re`, other ways through the group.
@example(pattern=r"(?:[^a]{2,}){2,}+|.", texts=["bbbb", "b1b1b"])
@example(pattern=r"\012|1|2", texts=["\0" + "12", "\n12", "\n"])
def test_any_pattern_gives_the_pretokens_of_regex(pattern: str, texts: list[str]) -> None:
    assume_compiles(pattern)
    slow, fast = bpe_tokenizer._Splitter(pattern), fast_splitter(pattern)
    for text in texts:
        expected = split_naively(pattern, text)
        assert slow.split(text) == expected
        assert fast.split(text) == expected


# Engines go on differently behind an empty match.
@example(pattern=r"a|a?| ?\w+", texts=["11", "a1", "1a1"])
# In Ruby's syntax `{2}?` is "two or none", not "exactly two, lazily".
@example(pattern=r"1{2}?|\s", texts=["\n'B", "1111", "a11"])
# Anchors cannot be repeated there, not even in a group.
@example(pattern=r"\r(?:\Z){1,2}|\s", texts=["\r", "\r\r", "a"])
# A property is not folded there when case is ignored.
@example(pattern=r"(?i:\p{Lu})", texts=["aB", "a b", "AB"])
@settings(max_examples=examples(600))
@given(pattern=patterns, texts=st.lists(small_text, min_size=3, max_size=6))
def test_any_pattern_means_the_same_in_oniguruma(pattern: str, texts: list[str]) -> None:
    assume_compiles(pattern)
    for text in texts:
        check_oniguruma(pattern, text)


@settings(max_examples=examples(200))
@given(pattern=patterns, text=small_text)
def test_the_way_to_oniguruma_and_back_keeps_the_meaning(pattern: str, text: str) -> None:
    assume_compiles(pattern)
    spelled: str | None = None
    try:
        spelled = bpe_tokenizer._to_oniguruma(pattern)
        back = from_oniguruma(spelled)
    except ValueError:
        return  # refusing is always allowed
    assert split_naively(back, text) == split_naively(pattern, text)


@pytest.mark.parametrize("name", NAMES)
def test_named_patterns_come_back_from_oniguruma_as_they_were(name: str) -> None:
    spelled = bpe_tokenizer._to_oniguruma(SPLIT_PATTERNS[name])
    assert from_oniguruma(spelled) == SPLIT_PATTERNS[name]
