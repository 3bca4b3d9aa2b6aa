"""Healing where text is normalized: against all continuations of up to two characters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from oracles import need

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.prompts import covering_tree, heal, uncertain_ends
from bpe_tokenizer_tools.prompts.completing import heal_ids
from bpe_tokenizer_tools.training.sentencepiece_text import form_of, normalizer

numpy = need("numpy")

pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")

# Marks that join or are reordered, what they join, parts of Hangul and kana, and what NFKC and
# nmt_nfkc change.
NASTY = "a e\n'!<=1t\u0301\u0323\u0307\u0338\u0302é\u1161\u11a8\uac00\u1100\u0345\u0344ﬁ②\uff9e"
NASTY += "\u3099か\u0130S\u00a0\u200b\x01▁\u0f73\u0f71\u0f72😀\r·ß\u212b\U000110ba\U00011099"
CORPUS = [
    "cafe don't the café naïve don'\u1e6d ế 1<2 a=b ﬁne がぎ 각가 " * 30,
    "don't we'll the end.\n\nx = 12\n" * 20,
]
PROMPTS = ["don't", "cafe", "the", "the ", "x<", "a=", "ế", "ê", "e\u0323", "カ", "か", "가"]
PROMPTS += ["\u1100", "가\u11a8", "a1", "", "ﬁ", " ", "don'", "x\n", "１", "the  ", "\u0301"]
PROMPTS += ["a\x01", "中e", "we'll", "A\u030a", "  the"]
BROKEN = [b"caf\xc3", b"the\xcc", b"e\xe1\x85", b"a\xf0\x91", b"x\xe4\xb8", b"e\xe2\x84"]


def continued(prompt: str | bytes) -> Iterator[str]:
    """All texts that go on with up to two characters; broken ones, with all that fit."""
    more = ["", *NASTY, *map("".join, itertools.product(NASTY, repeat=2))]
    if isinstance(prompt, str):
        yield from (prompt + each for each in more)
        return
    start = prompt.decode(errors="ignore")
    points = itertools.chain(range(0x80, 0x3100), range(0x4E00, 0x4E40), range(0x11080, 0x11100))
    for char in map(chr, points):
        text = start + char
        if text.encode().startswith(prompt):
            yield from (text + each for each in ["", "\u0301", "a"])


def check(tokenizer: BPETokenizer, prompts: list[Any]) -> int:
    """Heal each prompt; return how many ids were certain."""
    n_ids = 0
    for prompt in prompts:
        ids, prefix = heal(tokenizer, prompt)
        tree = covering_tree(tokenizer, prompt)
        assert (tree.ids, tree.prefix) == (ids, prefix)
        for text in continued(prompt):
            assert tokenizer.encode(text)[: len(ids)] == ids, (prompt, text)
        n_ids += len(ids)
    return n_ids


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize("form", ["NFC", *map(slow, ["NFKC", "NFD", "NFKD", None])])
@pytest.mark.parametrize(
    "pattern", [each if each in ("qwen2", "o200k") else slow(each) for each in SPLIT_PATTERNS]
)
def test_ids_are_certain_with_every_pattern_and_form(pattern: str, form: str | None) -> None:
    tokenizer = BPETokenizer(pattern, normalizer=form)
    tokenizer.train(CORPUS, vocab_size=330, verbose=False)
    assert check(tokenizer, PROMPTS + BROKEN) > 5


STYLES: list[dict[str, Any]] = [
    {},
    {"add_dummy_prefix": False},
    {"remove_extra_whitespaces": True, "split_digits": True},
    {"add_dummy_prefix": False, "remove_extra_whitespaces": True},
]


def in_style(rule: str | None, form: str | None = None, **options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer(normalizer=form)
    options = {"style": "sentencepiece", "normalization_rule_name": rule, **options}
    return tokenizer.train(CORPUS, 400, verbose=False, **options)


@pytest.mark.parametrize("options", STYLES, ids=lambda options: "+".join(options))
@pytest.mark.parametrize(
    ("rule", "form"),
    [
        ("nmt_nfkc", None),
        slow("identity", None),
        slow("nfkc", None),
        *(slow(None, form) for form in core.NORMALIZERS),
    ],
)
def test_ids_are_certain_in_sentencepieces_style(
    rule: str | None, form: str | None, options: dict[str, Any]
) -> None:
    tokenizer = in_style(rule, form, **options)
    assert check(tokenizer, PROMPTS + BROKEN) > 5


def test_a_prompt_may_end_in_the_sign_for_a_space() -> None:
    # It is one, and at the end of a text it goes, if spaces there do.
    tokenizer = in_style(None, add_dummy_prefix=False, remove_extra_whitespaces=True)
    for prompt in ("caf▁", "é▁", "Ａ▁▁", "the é ▁"):
        ids, prefix = heal(tokenizer, prompt)
        spelled = prompt.replace("▁", " ").encode()
        assert tokenizer.decode_bytes(ids) + prefix == spelled
        for text in ("a", "é", "\u0301x", "▁a", " a"):
            assert tokenizer.encode(prompt + text)[: len(ids)] == ids, (prompt, text)


@pytest.mark.parametrize("options", STYLES, ids=lambda options: "+".join(options))
@pytest.mark.parametrize(
    ("rule", "form"), [("identity", None), slow("nmt_nfkc", None), slow(None, "NFC")]
)
def test_the_tree_has_what_longer_texts_have(
    rule: str | None, form: str | None, options: dict[str, Any]
) -> None:
    """All texts of up to three more characters whose beginning is that of the prompt."""
    tokenizer = in_style(rule, form, **options)
    normalize = normalizer(form_of(rule, form))
    table = tokenizer.token_bytes()
    for prompt in ["the", "the e", "caf", "don'", "cafe ", "x =", "a1"]:
        tree = covering_tree(tokenizer, prompt)
        found = {(*tree.ids, *path) for path in tree} or {tuple(tree.ids)}
        whole = b"".join(table[id_] or b"" for id_ in tree.ids) + tree.prefix
        real = set()
        for n in range(4):
            for more in itertools.product("ea t\ndn=\u0301", repeat=n):
                text = prompt + "".join(more)
                ids, size, n_ids = tokenizer.encode(text), 0, 0
                if not b"".join(table[id_] or b"" for id_ in ids).startswith(whole):
                    continue  # an accent joined, or spaces went
                while size < len(whole):
                    size += len(table[ids[n_ids]] or b"")
                    n_ids += 1
                real.add(tuple(ids[:n_ids]))
        assert real <= found, prompt
        for ids in found - real:  # real, too, if not with these characters
            data = b"".join(table[id_] or b"" for id_ in ids)
            assert data.startswith(whole)
            try:
                text = data.decode()
            except UnicodeDecodeError:
                continue
            text = text[1:] if options.get("add_dummy_prefix", True) else text
            assert normalize(text) == text
            assert any(
                tuple(tokenizer.encode(text + c)[: len(ids)]) == ids for c in ("", "z", "\n")
            )


def test_the_other_calls_of_prompts_take_these_tokenizers() -> None:
    for options in STYLES:
        tokenizer = in_style("nfkc", **options)
        for text in [*PROMPTS, "the café don't <x>\n  ﬁne 12"]:
            ids = tokenizer.encode(text)
            assert tokenizer.is_canonical(ids)
            pieces = list(tokenizer.chunk(text, 7))
            assert "".join(piece.text for piece in pieces) == text
            assert all(tokenizer.encode(piece.text) == piece.ids for piece in pieces)
            session = tokenizer.incremental()
            for changed in (text, text + " the", "x" + text):
                assert [*session.encode(changed)] == tokenizer.encode(changed)
            tree = heal_ids(tokenizer, ids)
            assert tree.ids == ids[: len(tree.ids)]
            likely = tokenizer.next_byte_probabilities(
                lambda ids: numpy.zeros(tokenizer.vocab_size), text
            )
            assert abs(likely.sum() - 1) < 1e-9


@pytest.mark.parametrize("form", ["NFC", "NFKC", "NFD", "NFKD"])
def test_what_may_change_is_all_that_changes(form: str) -> None:
    """Every character with everything that joins or comes before something."""
    points = [*range(0x20, 0x3100), *range(0x11000, 0x11A00), *range(0xAC00, 0xAC40)]
    points += [*range(0x1D100, 0x1D200), *range(0xF900, 0xFB50), *range(0xFF00, 0xFFDD)]
    composed = [core.normalize(chr(point), "NFD") for point in [*range(0xC0, 0x3100), 0x1109A]]
    after = {char for parts in composed for char in parts[1:]}
    after |= set("\u1161\u11a8\u0323\u0345\uff9e\u0f71")
    for char in map(chr, points):
        if uncertain_ends.changes_from(char, form) is not None:
            continue
        alone = core.normalize(char, form)
        for mark in after:
            assert core.normalize(char + mark, form).startswith(alone), (char, mark)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"byte_fallback": False}, "byte fallback"),
        ({"user_defined_symbols": ["<x>"]}, "normalizer does more"),
        ({"user_defined_symbols": ["<x>"], "add_dummy_prefix": False}, "found in normalized text"),
    ],
)
def test_what_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=f"can't be healed: .*{problem}"):
        in_style("identity", **options).heal("the")
