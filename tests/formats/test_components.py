"""tokenizer.json files of every kind, against the library whose format it is."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import random
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need, share

from bpe_tokenizer import BPETokenizer, FileFormatError

tokenizers = need("tokenizers")

import tokenizer_files as files  # noqa: E402  (needs the library)
from component_pairs import CRAFTED, PASSAGE, PIECES, UNASSIGNED, Pair, make_text  # noqa: E402
from tokenizer_files import FAMILIES, digits, metaspace, named, punctuation, split  # noqa: E402

# Many of the small vocabularies lack characters of ASCII, and loading them says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")


@pytest.fixture(scope="session")
def load(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Give a function from a family's name to its file, loaded in both libraries."""
    folder = tmp_path_factory.mktemp("families")

    @functools.cache
    def load_family(name: str) -> Pair:
        place = folder / str(list(FAMILIES).index(name))
        place.mkdir(exist_ok=True)
        return Pair(place / "tokenizer.json", files.text(name))

    return load_family


@pytest.fixture
def probe(tmp_path: Path) -> Callable[..., Pair]:
    """Give a function from components to a file whose ids show what they do to a text."""
    path = tmp_path / "tokenizer.json"
    return lambda *steps: Pair(path, json.dumps(files.probe(*steps)))


# -- Families ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_crafted_text_gives_the_same_as_at_home(load: Callable[[str], Pair], family: str) -> None:
    pair = load(family)
    rng = random.Random(0)
    added = [token["content"] for token in pair.added]
    about = ["".join(added), " ".join(added), "\n".join(added), "x" + "x".join(added) + "x"]
    about += [f"  {token}  the {token}\n{token[:-1]} é{token}é" for token in added]
    for text in [*CRAFTED, *files.CORPUS, *about]:
        pair.assert_ids_equal(text)
        pair.assert_decoded_equal(pair.theirs.encode(text).ids)
        pair.assert_streamed(text, rng)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_text_gives_the_same_as_at_home(load: Callable[[str], Pair], family: str) -> None:
    pair = load(family)
    assert pair.theirs.get_vocab() == pair.ours.get_vocab()
    ids = st.lists(st.sampled_from(sorted(pair.theirs.get_vocab().values())), max_size=12)

    @settings(max_examples=examples(25))
    @given(make_text(family), ids, st.randoms(use_true_random=False))
    def check(text: str, some: list[int], rng: random.Random) -> None:
        pair.assert_as_at_home(text, some, rng)

    check()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tokenizer_survives_copies_and_files(
    load: Callable[[str], Pair], family: str, tmp_path: Path
) -> None:
    pair = load(family)
    pair.ours.save(tmp_path, verbose=False)
    saved = (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    again = Pair(tmp_path / "tokenizer.json", saved)
    others = [again.ours, pickle.loads(pickle.dumps(pair.ours)), copy.deepcopy(pair.ours)]
    for text in CRAFTED:
        for allowed in ("all", "none"):
            expected = pair.ours.encode(text, True, allowed)
            assert all(other.encode(text, True, allowed) == expected for other in others)
        again.assert_ids_equal(text)
        again.assert_decoded_equal(expected)
    assert all(other == pair.ours and hash(other) == hash(pair.ours) for other in others)


def test_a_saved_model_knows_no_further_token(tmp_path: Path) -> None:
    # Those behind the vocabulary stay outside of it, so that the model makes none of a character.
    file = json.loads(files.text("phi-3"))
    star = {**file["added_tokens"][-1], "content": "☆", "special": False, "single_word": True}
    file["added_tokens"].append({**star, "id": len(file["model"]["vocab"])})
    pair = Pair(tmp_path / "tokenizer.json", json.dumps(file))
    pair.ours.save(tmp_path / "saved", verbose=False)
    saved = Pair(tmp_path / "again.json", (tmp_path / "saved/tokenizer.json").read_text("utf-8"))
    assert saved.theirs.get_vocab(False) == pair.theirs.get_vocab(False)
    assert saved.theirs.get_vocab() == pair.theirs.get_vocab()
    for text in ("☆", "a☆b", "a ☆ b☆"):
        saved.assert_ids_equal(text)
        assert saved.ours.encode(text) == pair.ours.encode(text)


@pytest.mark.parametrize("family", FAMILIES)
def test_real_text_gives_the_same_as_at_home(
    load: Callable[[str], Pair], corpora: Callable[[str], str], family: str
) -> None:
    pair = load(family)
    place = list(FAMILIES).index(family) * PASSAGE
    for name in ("english", "code", "multi"):
        text = corpora(name)
        start = place % (len(text) - PASSAGE)
        text = text[start : start + PASSAGE]
        ids = pair.theirs.encode(text, add_special_tokens=False).ids
        assert pair.ours.encode(text, allowed_special="all") == ids
        pair.assert_decoded_equal(ids)


@pytest.mark.parametrize("family", ["llama 2", "gemma", "phi-3", "mistral v0.3"])
def test_each_broken_byte_becomes_one_replacement(load: Callable[[str], Pair], family: str) -> None:
    """Of a run of bytes with a broken one, the other library decodes none; here, as in
    SentencePiece, whole characters stay."""
    pair = load(family)
    ids_of = {byte: pair.theirs.token_to_id(f"<0x{byte:02X}>") for byte in range(256)}
    letter = pair.theirs.token_to_id("a")
    broken = st.lists(st.integers(0x80, 0xBF) | st.integers(0xF5, 0xFF), min_size=1).map(bytes)
    begun = st.sampled_from([b"\xf0\xa9", b"\xe4\xb8", b"\xc3", b"\xf0\xf0\x9f", b"\xed\xa0\x80"])
    whole = st.sampled_from(["世é🌶", "a", "\ufffd", " x"]).map(str.encode)

    @settings(max_examples=examples(60))
    @given(st.lists(broken | begun | whole, max_size=4))
    def check(runs: list[bytes]) -> None:
        ids = [id_ for run in runs for id_ in [letter, *map(ids_of.__getitem__, run)]]
        expected = pair.theirs.decode(ids, skip_special_tokens=False)
        assert pair.ours.decode(ids) == expected
        assert "".join(pair.ours.decode_streaming(ids)) == expected
        assert pair.ours.decode_batch([ids]) == [expected]

    check()
    ids = [ids_of[byte] for byte in b"\xe4\xb8\x96\xe4"]
    assert pair.ours.decode(ids) == "世\ufffd"
    assert pair.theirs.decode(ids) == "\ufffd" * 4


# -- One component at a time, over all of Unicode ----------------------------------------------

ALONE: dict[str, tuple[Any, Any]] = {
    "Digits": (digits(True), None),
    "Punctuation": (punctuation("Isolated"), None),
    "Whitespace": (named("Whitespace"), None),
    "WhitespaceSplit": (named("WhitespaceSplit"), None),
    "ByteLevel": (files.byte_level(False, True, use_regex=True), None),
    "CharDelimiterSplit": ({"type": "CharDelimiterSplit", "delimiter": "1"}, None),
    "llama 3": (split(files.LLAMA3), None),
    "o200k": (split(files.O200K), None),
    "kimi": (split(files.KIMI), None),
    "deepseek": (split(files.DEEPSEEK_V3), None),
    "word": (split(r"\w+"), None),
    "word border": (split(r"\b."), None),
    "Lowercase": (None, named("Lowercase")),
    "StripAccents": (None, named("StripAccents")),
    "NFC": (None, named("NFC")),
    "NFD": (None, named("NFD")),
    "NFKC": (None, named("NFKC")),
    "NFKD": (None, named("NFKD")),
    "normalizer ByteLevel": (None, named("ByteLevel")),
}


AMONG = "{0}a{0}1 "  # what a character stands next to


@functools.cache
def code_points() -> str:
    """Return all characters that the other library knows, few of the largest uniform blocks.

    Its tables are those of Unicode 16; what came later it takes for unassigned.
    """
    uniform = [(0x3400, 0xA000), (0xAC00, 0xD7A4), (0xE000, 0xF900), (0x17000, 0x18D00)]
    uniform += [(0x20000, 0x32000), (0xF0000, 0x110000)]
    chars = {
        chr(i)
        for i in range(0x110000)
        if not 0xD800 <= i < 0xE000
        and (i % 97 == 0 or not any(a + 99 < i < b for a, b in uniform))
        and (i % 997 == 0 or not (0x32400 <= i < 0xE0000))
    }
    text = "".join(sorted(chars))
    return str(UNASSIGNED.normalize_str(text))


def is_comparable(component: str, char: str) -> bool:
    """Return whether both sides have the character in their tables."""
    return component != "Lowercase" or unicodedata.category(char) != "Cn"  # Python's own


@pytest.mark.slow
@pytest.mark.parametrize("component", ALONE)
def test_every_character_is_treated_as_at_home(probe: Callable[..., Pair], component: str) -> None:
    pair = probe(*ALONE[component])
    chars = "".join(char for char in code_points() if is_comparable(component, char))
    chars = "".join(share(chars))
    blocks = [chars[i : i + 2000] for i in range(0, len(chars), 2000)]
    wrong: list[str] = []
    for block in blocks:
        text = "".join(map(AMONG.format, block))
        if pair.ours.encode(text) != pair.theirs.encode(text).ids:
            wrong += differing(pair, block)
    assert not wrong, f"{len(wrong)}: {' '.join(wrong[:200])}"


def differing(pair: Pair, chars: str) -> Iterator[str]:
    for char in chars:
        text = AMONG.format(char)
        if pair.ours.encode(text) != pair.theirs.encode(text).ids:
            yield f"{ord(char):04X}"


# -- Components in other settings --------------------------------------------------------------

BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
CHAINS: dict[str, tuple[Any, Any]] = {
    **{
        f"Split {kind} {behavior} {invert}": (split(pattern, behavior, invert, kind), None)
        for behavior in BEHAVIORS
        for invert in (False, True)
        for kind, pattern in (("Regex", r"\s+|\d"), ("String", " "))
    },
    **{
        f"Split where nothing may match {behavior} {invert}": (
            split("a*|b", behavior, invert),
            None,
        )
        for behavior in BEHAVIORS
        for invert in (False, True)
    },
    **{f"Punctuation {behavior}": (punctuation(behavior), None) for behavior in BEHAVIORS},
    **{
        f"Metaspace {scheme} {cuts}": (metaspace(scheme, cuts), None)
        for scheme in ("always", "first", "never")
        for cuts in (True, False)
    },
    "Metaspace of another character": (
        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True},
        None,
    ),
    **{
        f"CharDelimiterSplit {char!r}": ({"type": "CharDelimiterSplit", "delimiter": char}, None)
        for char in " .é🙂\u0301"
    },
    "normalizer ByteLevel": (None, named("ByteLevel")),
    "normalizer ByteLevel, then a pattern": (split(r"Ġ?\w+|."), named("ByteLevel")),
    "normalizer ByteLevel, then a character": (
        {"type": "CharDelimiterSplit", "delimiter": "Ġ"},
        files.normalizers("NFC", "Lowercase", "ByteLevel"),
    ),
    "normalizer ByteLevel twice": (None, files.normalizers("ByteLevel", "ByteLevel")),
    "normalizer ByteLevel, then others": (
        None,
        files.normalizers("ByteLevel", "Lowercase", files.replace("Ġ", "▁"), "NFD"),
    ),
    "Digits together": (digits(False), None),
    "Punctuation, as older files write it": ({"type": "Punctuation"}, None),
    "ByteLevel twice": (files.byte_level(True, True, use_regex=True), None),
    "Sequence within a Sequence": (
        files.pretokenizers(files.pretokenizers("WhitespaceSplit", digits(True)), "Whitespace"),
        None,
    ),
    "empty Sequences": (files.pretokenizers(), files.normalizers()),
    "Strip left": (None, {"type": "Strip", "strip_left": True, "strip_right": False}),
    "Strip both": (None, {"type": "Strip", "strip_left": True, "strip_right": True}),
    "Strip nothing": (None, {"type": "Strip", "strip_left": False, "strip_right": False}),
    "Prepend": (None, {"type": "Prepend", "prepend": "é▁"}),
    "Replace with more": (None, files.replace("a", "xyz")),
    "Replace with less": (None, files.replace(r"\s+", "", "Regex")),
    "Replace with nothing at the start": (None, files.replace("^a", "", "Regex")),
    "Replace nothing by nothing": (None, files.replace("a*", "", "Regex")),
    "Replace several": (None, files.replace(r"[a-z]{2,3}", "é", "Regex")),
    "Replace a String that looks like a regex": (None, files.replace(".", "·")),
    "all normalizers": (
        None,
        files.normalizers(
            "NFD", "StripAccents", files.replace(" ", "▁"), "Lowercase", "NFKC", named("NFKD")
        ),
    ),
    "Lowercase, then composed": (split(r"\p{Lu}"), files.normalizers("Lowercase", "NFC")),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_each_setting_of_a_component(probe: Callable[..., Pair], chain: str) -> None:
    pair = probe(*CHAINS[chain])
    rng = random.Random(1)
    text = st.lists(st.sampled_from([*PIECES, "a", "b", " ", ".", "1"]), max_size=15).map("".join)

    @settings(max_examples=examples(25))
    @given(text)
    def check(text: str) -> None:
        pair.assert_ids_equal(text)

    check()
    for text in (*CRAFTED, *files.CORPUS):
        pair.assert_ids_equal(text)
        pair.assert_streamed(text, rng)


# -- Oniguruma ---------------------------------------------------------------------------------
# A pattern is written for Oniguruma in Ruby syntax.  It means here what it means there, or is
# refused; these tables say which.

UNDERSTOOD = [
    # quantifiers: possessive ones, and braces, behind which "+" is none
    *(r"a++b|.", r"\p{L}++\d|.", r"a?+b|a", r"\s*+x|.", r"[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"),
    *(r"a{2}+b?", r"\p{N}{1,3}+", r"b{1,2}+c|b", r"a{2,}b", r"a+?b"),
    # groups
    *(r"(?i:'s|'T|ll)", r"(?i)the|B", r"(?<name>a+)b", r"(a)(b)?", r"(?>a+)b|a", r"(?:a|b){2}"),
    # classes
    *(r"\w+", r"\W+", r"\d+", r"\D+", r"\s+", r"\S+", r"[\w]+", r"[^\w]+", r"[\s\S]", r"[^\S\n]+"),
    *(r".+", r"[.]", r"[a\-z]", r"[\]a]", r"[-a]", r"[a-]", r"[$^]", r"[+*]"),
    *(r"\p{Han}+", r"\P{Han}+", r"\p{^Han}+", r"[\p{Han}\p{Hiragana}]+", r"[^\p{Han}]+"),
    *(r"\p{Hangul}+", r"\p{Latin}+", r"\p{Cyrillic}", r"\p{Arabic}+", r"\p{Alphabetic}+"),
    *(r"\p{L}+", r"\p{Lu}\p{Ll}+", r"\p{M}", r"\p{Nd}", r"\p{Nl}|\p{No}", r"\p{P}+", r"\p{S}+"),
    *(r"\p{Z}", r"\p{Cf}", r"\p{Co}", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+", r"\p{White_Space}+"),
    # intersections and classes within classes
    *(r"[\p{L}&&[^\p{Han}]]+", r"[^\p{L}&&[^\p{Han}]]+", r"[a-z&&[^aeiou]]+", r"[\w&&[^\d_]]+"),
    *(r"[\p{Lu}\p{Lo}\p{M}&&[^\p{Han}]]+", r"[^a-z&&[^aeiou]]+", r"[a-f&&c-z&&d]"),
    *(r"[a-c[x-z]]+", r"[^(\s|[.,!?。])]+", r"[[^a]b]", r"[^[a]b]+"),
    # anchors and look-around
    *(r"^a", r"a$", r"^\s*", r"\s+$", r"\Aa", r"a\z", r"a\Z", r"\n\Z", r"\ba", r"a\b", r"\Ba"),
    *(r"\s+(?!\S)", r"(?<=a)b", r"(?<!a)b", r"(?<=\d)(?=\d)", r"(?<![\p{L}\p{N}])\p{N}{1,3}"),
    *(files.COHERE2, files.SUPERBPE, r"\d(?=(\d{3})+$)", r"(?<=[a-z])(?=[A-Z])"),
    *(r"(?=a)", r"\b", r"a*", r"$", r"^"),
    # escapes
    *(r"\n|\r|\t", r"\x41", r"\u4e16", r"[\x00-\x7F]+", r"\.", r"\/|\-", r"\ ", r"\v|\f", r"\0"),
    "\u4e16|[\u4e00-\u9fff]",
]
REFUSED = [
    *(
        r"a{,2}b",
        r"a{2}?",
        r"\d{1,2}?",
        r"a**",
        r"a{3,2}",
        r"a{x}",
        r"(?m:a.b)",
        r"(?x: a b )",
        r"a(?i)b|c",
    ),
    *(r"(?~ab)", r"(a)\1", r"(?<n>a)\k<n>", r"(a)?(?(1)b|c)", r"(?W)\w", r"a\Kb", r"\G.", r"\y"),
    *(r"\h+", r"\H", r"\R", r"\X", r"\N", r"\O", r"\e|\a", r"\x{1F642}", r"\101", r"\cA", r"\pL"),
    *(r"[\W]+", r"[^\W\d]+", r"[[:alpha:]]+", r"[[:punct:]]", r"[^[:space:]]+", r"[[:^alpha:]]"),
    *(r"[\h]", r"[\b]"),
]
# Where case is ignored, "ss" is also "ß" there, "i" never "İ", and a property has no case; some
# properties are other sets there.
SUBTLE = [
    *(
        r"\p{punct}",
        r"\p{word}",
        r"\p{Extended_Pictographic}",
        r"\p{Ll}",
        r"\p{alnum}",
        r"\p{graph}",
    ),
    *(
        r"(?i:s)",
        r"(?i:[a-k])+",
        r"(?i:K)",
        r"(?i:σ)",
        r"(?i:é)",
        r"(?i:[^s])",
        r"(?i:[^i])",
        r"(?i:i)",
    ),
    *(
        r"(?i:ı)",
        r"(?i:İ)",
        r"(?i:[a-z]+)",
        r"(?i:ss)",
        r"(?i:ß)",
        r"(?i:[ß])",
        r"(?i)first",
        r"(?i:st)",
    ),
    *(
        r"(?i:ffi)",
        r"(?i:s(?:s))",
        r"(?i:\u02bcn)",
        r"(?i:\p{Lu})",
        r"(?i:[\p{Lu}])",
        r"(?i:[^\p{Ll}])",
    ),
    *(r"(?i:\w)", r"(?i:[α-ω])", r"(?i:ǆ)", r"(?i:θ)", r"(?i:\x69)", r"(?i:[st]+)", r"(?i:s{2})"),
    r"(?i:j\u030c)",
]
DIALECT_TEXTS = [
    *CRAFTED[1:],
    "aab aaab ab abab AB b bb 12 1234 12345 123456789 aaAA 'S 'LL the THE The KkK sSſ σςΣ éÉ",
    "a\nab\n\na b\r\n a\n",
    "axbzyc deadBEEF aeioubcdf x^y a]b a-z _1a_ a.b (a|b) xAAb camelCaseWord",
    "foo²foo a¼ 1¾2 ª² \u200cx\u200dy",
    "ß ẞ ss Ss ſs iIİı ﬁrst First ﬀ ﬃ ffi ﬆ ﬅ sT ŉ ʼN ǰ J\u030c ǅǄ ϑΘ Ωω",
]


@pytest.mark.parametrize("pattern", UNDERSTOOD)
def test_a_pattern_means_what_it_means_at_home(probe: Callable[..., Pair], pattern: str) -> None:
    pair = probe(split(pattern))
    for text in DIALECT_TEXTS:
        pair.assert_ids_equal(text)


@pytest.mark.parametrize("pattern", REFUSED)
def test_other_patterns_are_refused(tmp_path: Path, pattern: str) -> None:
    file = files.probe(split(pattern))
    tokenizers.Tokenizer.from_str(json.dumps(file))
    refuse(tmp_path, file, "pre_tokenizer", "Regex", "not supported")


@pytest.mark.parametrize("pattern", SUBTLE)
def test_what_is_subtle_is_exact_or_refused(probe: Callable[..., Pair], pattern: str) -> None:
    try:
        pair = probe(split(pattern))
    except FileFormatError as error:
        assert "Regex" in str(error)
        return
    for text in DIALECT_TEXTS:
        pair.assert_ids_equal(text)


# -- What is refused ---------------------------------------------------------------------------


def refuse(tmp_path: Path, file: Any, *words: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    with pytest.raises(FileFormatError) as caught:
        BPETokenizer.from_pretrained(path, verbose=False)
    for word in (str(path), *words):
        assert word in str(caught.value)


BERT = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "field, component",
    [
        ("normalizer", BERT),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": ""}),
        ("normalizer", {"type": "Nmt"}),
        ("normalizer", {"type": "Nfc"}),
        ("normalizer", {"type": "lowercase"}),
        ("pre_tokenizer", {"type": "UnicodeScripts"}),
        ("pre_tokenizer", {"type": "Bytelevel"}),
        ("pre_tokenizer", {"type": "NFC"}),
        ("decoder", {"type": "WordPiece", "prefix": "##", "cleanup": True}),
        (
            "decoder",
            {"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": True},
        ),
        ("decoder", {"type": "ByteFallBack"}),
    ],
)
def test_other_components_are_refused_by_name(
    tmp_path: Path, field: str, component: Any, nested: bool
) -> None:
    file = files.probe()
    within = {"pre_tokenizer": "pretokenizers"}.get(field, field + "s")
    file[field] = {"type": "Sequence", within: [component]} if nested else component
    refuse(tmp_path, file, field, component["type"])


def test_a_replace_behind_fuse_takes_one_character(tmp_path: Path) -> None:
    """A longer text could be in two tokens, which are decoded one by one here."""
    file, decoders = files.probe(), [{"type": "Fuse"}, files.replace("ab", "x")]
    file["decoder"] = {"type": "Sequence", "decoders": decoders}
    refuse(tmp_path, file, "decoders[1]", "only one character")
    decoders[1:] = [
        {"type": "Strip", "content": "a", "start": 2, "stop": 0},
        files.replace("a", "x"),
    ]
    pair = Pair(tmp_path / "tokenizer.json", json.dumps(file))
    for text in ("", "a", "aa", "aaab", "baa", "aabaa"):
        ids = pair.ours.encode(text)
        assert pair.ours.decode(ids) == pair.theirs.decode(ids, skip_special_tokens=False)


INSERTING = ["a*", "^", "(?=b)", "$", r"\b", "b?|c"]


@pytest.mark.parametrize("pattern", INSERTING)
def test_what_is_put_where_nothing_was(tmp_path: Path, pattern: str) -> None:
    step = files.replace(pattern, "x", "Regex")
    file = files.probe(None, step)
    refuse(tmp_path, file, "normalizer", "can match the empty string")
    file["pre_tokenizer"] = None
    pair = Pair(tmp_path / "tokenizer.json", json.dumps(file))
    for text in ("", "a", "b", "ab", "ba", "cab", "aabbaa", "!a?", "½", "aéa"):
        expected = pair.theirs.encode(text, add_special_tokens=False).ids
        assert pair.ours.encode(text) == expected
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    file["normalizer"] = files.normalizers(strip, step)
    pair = Pair(tmp_path / "tokenizer.json", json.dumps(file))
    assert pair.ours.encode("  ") == pair.theirs.encode("  ", add_special_tokens=False).ids == []
    file["normalizer"] = files.normalizers(step, strip)
    refuse(tmp_path, file, "normalizers[0].pattern", "can match the empty string")


@pytest.mark.parametrize("kind", ["WordPiece", "Unigram", "WordLevel", "bpe"])
def test_other_models_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    file = files.probe()
    file["model"]["type"] = kind
    refuse(tmp_path, file, "model", kind)


@pytest.mark.parametrize(
    "place, value, words",
    [
        ("model.dropout", 0.1, ("dropout",)),
        ("model.unk_token", "missing", ("unk_token", "missing")),
        ("model.unk_token", 3, ("unk_token",)),
        ("model.fuse_unk", "yes", ("fuse_unk",)),
        ("model.byte_fallback", 1, ("byte_fallback",)),
        ("model.ignore_merges", "no", ("ignore_merges",)),
        ("model.end_of_word_suffix", ["</w>"], ("end_of_word_suffix",)),
        ("model.continuing_subword_prefix", {}, ("continuing_subword_prefix",)),
        ("normalizer", [], ("normalizer",)),
        ("normalizer", {}, ("normalizer", "type")),
        ("normalizer", {"type": 1}, ("normalizer", "type")),
        ("normalizer", {"type": "Sequence"}, ("normalizers",)),
        ("normalizer", {"type": "Sequence", "normalizers": [None]}, ("normalizers",)),
        ("normalizer", {"type": "Replace", "content": "a"}, ("pattern",)),
        ("normalizer", {"type": "Replace", "pattern": {"String": "a"}}, ("content",)),
        (
            "normalizer",
            {"type": "Replace", "pattern": {"Regexp": "a"}, "content": ""},
            ("pattern",),
        ),
        ("normalizer", {"type": "Prepend"}, ("prepend",)),
        ("normalizer", {"type": "Prepend", "prepend": ""}, ("normalizer.prepend", "is empty")),
        ("normalizer", {"type": "Strip", "strip_left": 1, "strip_right": True}, ("strip_left",)),
        ("pre_tokenizer", split("a", "Isolate"), ("behavior", "Isolate")),
        ("pre_tokenizer", split("a(", "Isolated"), ("pattern",)),
        ("pre_tokenizer", {**split("a"), "invert": "no"}, ("invert",)),
        ("pre_tokenizer", {**split("a"), "pattern": "a"}, ("pattern",)),
        ("pre_tokenizer", {"type": "Digits", "individual_digits": "yes"}, ("individual_digits",)),
        ("pre_tokenizer", punctuation("Joined"), ("behavior", "Joined")),
        ("pre_tokenizer", {**metaspace("sometimes")}, ("prepend_scheme", "sometimes")),
        ("pre_tokenizer", {**metaspace("first"), "replacement": "ab"}, ("replacement",)),
        ("pre_tokenizer", {"type": "CharDelimiterSplit"}, ("delimiter",)),
        ("pre_tokenizer", {"type": "CharDelimiterSplit", "delimiter": ""}, ("delimiter", "''")),
        ("pre_tokenizer", {"type": "CharDelimiterSplit", "delimiter": "ab"}, ("delimiter", "'ab'")),
        ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": 1}, ("add_prefix_space",)),
        ("normalizer", {"type": "ByteLevel", "use_regex": False}, ("normalizer.use_regex",)),
        ("decoder", {"type": "Strip", "content": " ", "start": -1, "stop": 0}, ("start",)),
        ("decoder", {"type": "Strip", "content": "ab", "start": 1, "stop": 0}, ("content",)),
        ("decoder", {"type": "Replace", "content": ""}, ("pattern",)),
        ("decoder", {"type": "BPEDecoder", "suffix": 1}, ("suffix",)),
        ("post_processor", {"type": "Template"}, ("post_processor", "Template")),
        ("added_tokens", [{"id": 0, "content": "!", "lstrip": "no"}], ("lstrip",)),
    ],
)
def test_damaged_fields_are_named(tmp_path: Path, place: str, value: Any, words: Any) -> None:
    file = files.probe()
    *parents, last = place.split(".")
    functools.reduce(dict.__getitem__, parents, file)[last] = value
    refuse(tmp_path, file, *words)


def test_sequences_nested_without_end_are_refused(tmp_path: Path) -> None:
    for field, within in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        file = files.probe()
        for _ in range(300):
            file[field] = {"type": "Sequence", within: [file[field]] if file[field] else []}
        refuse(tmp_path, file, field)
