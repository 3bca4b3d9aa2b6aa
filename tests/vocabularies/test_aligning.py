"""Two vocabularies side by side: blocks that neither token crosses, and tokens in common."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.vocabularies import Block, align, intersection

# Many of the small vocabularies lack characters of ASCII, and loading them says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")

TEXT = "low lower lowest, the cat sat on the mat. Grüße! 世界 世界 12 123 don't " * 9
texts = hard_text | st.text(TEXT)


@functools.cache
def trained(pattern: str, size: int, normalizer: str | None) -> BPETokenizer:
    tokenizer = BPETokenizer(pattern, normalizer=normalizer)
    return tokenizer.train(TEXT, size, special_tokens=["<|end|>"], verbose=False)


def check_sound(a: BPETokenizer, b: BPETokenizer, text: str, special: str = "none") -> list[Block]:
    """The blocks make up the text and both lists of ids."""
    blocks = align(a, b, text, special)
    ids_a, ids_b = (each.encode(text, allowed_special=special) for each in (a, b))
    assert [id_ for block in blocks for id_ in block.ids_a] == ids_a
    assert [id_ for block in blocks for id_ in block.ids_b] == ids_b
    assert [block.start for block in blocks] == [0, *(block.end for block in blocks)][: len(blocks)]
    assert not blocks or blocks[-1].end == len(text.encode())
    assert all(block.start < block.end for block in blocks) or not text
    return blocks


@settings(max_examples=examples(200), deadline=None)
@given(texts)
def test_blocks_end_where_both_cut(text: str) -> None:
    a, b = trained("gpt2", 290, None), trained("llama3", 330, None)
    blocks = check_sound(a, b, text)
    places = []
    for each in (a, b):
        table, done, ends = each.token_bytes(), 0, set()
        for id_ in each.encode(text):
            done += len(table[id_] or b"")
            ends.add(done)
        places.append(ends)
    assert [block.end for block in blocks] == sorted(places[0] & places[1])


@settings(max_examples=examples(200), deadline=None)
@given(texts)
def test_blocks_of_normalized_text_end_between_characters_that_both_cut(text: str) -> None:
    a, b = trained("gpt2", 300, "NFKD"), trained("cl100k", 290, "NFC")
    for first, second in ((a, b), (b, a), (a, trained("o200k", 300, None))):
        blocks = check_sound(first, second, text)
        byte_of = [len(text[:at].encode()) for at in range(len(text) + 1)]
        ends = {byte_of.index(block.end) for block in blocks if block.end in byte_of}
        for one in (first, second):  # no token has characters on both sides of an end
            spans = one.encode_with_offsets(text).offsets or []
            assert not any(start < at < end for start, end in spans for at in ends)


def test_a_tokenizer_and_itself_have_one_token_in_each_block() -> None:
    a = trained("gpt2", 290, None)
    assert all(block.ids_a == block.ids_b and len(block.ids_a) == 1 for block in align(a, a, TEXT))


def test_special_tokens() -> None:
    a, b = trained("gpt2", 290, None), trained("llama3", 330, None)
    blocks = check_sound(a, b, "the<|end|>mat", "all")
    assert (3, 10) in [(block.start, block.end) for block in blocks]
    (middle,) = (block for block in blocks if block.start == 3)
    assert (middle.ids_a, middle.ids_b) == (
        [a.special_tokens["<|end|>"]],
        [b.special_tokens["<|end|>"]],
    )


def test_sentencepiece_style_beside_bytes() -> None:
    corpus = [TEXT, "wide wider"]
    a = BPETokenizer().train(corpus, 350, style="sentencepiece", verbose=False)
    b = trained("gpt2", 290, None)

    @settings(max_examples=examples(100), deadline=None)
    @given(texts)
    def check(text: str) -> None:
        check_sound(a, b, text)

    check()
    blocks = check_sound(a, b, "the cat ☃ sat")
    assert {3, 7, 11} <= {block.end for block in blocks}
    both = intersection(a, b)
    for token in (b" the", b"the"):
        ids = {each.token_bytes().index(token) for each in (a, b) if token in each.token_bytes()}
        assert ids
    assert b" the" in both.tokens
    written = a.convert_tokens_to_ids("▁the")
    assert both.a_to_b[written] == b.convert_tokens_to_ids("Ġthe")  # type: ignore[index]
    assert both.b_to_a[b.convert_tokens_to_ids("Ġthe")] == written  # type: ignore[index]
    plain, by_byte = (a.convert_tokens_to_ids(token) for token in ("a", "<0x61>"))
    assert both.b_to_a[97] == plain != by_byte
    assert both.a_to_b[plain] == both.a_to_b[by_byte] == 97  # type: ignore[index]


def test_every_family_beside_bytes(tmp_path: Path) -> None:
    need("tokenizers")
    import tokenizer_files

    b = trained("gpt2", 290, None)
    for _, a in tokenizer_files.families(tmp_path):
        for text in [*tokenizer_files.CORPUS[::4], "", " ", "  a ", "\n\n☃ x<s> é"]:
            check_sound(a, b, text)
            check_sound(b, a, text)


def test_the_intersection_is_that_of_the_bytes() -> None:
    a, b = trained("gpt2", 290, None), trained("llama3", 330, "NFC")
    both = intersection(a, b)
    of_a, of_b = a.token_bytes(), b.token_bytes()
    assert set(both.tokens) == ({*of_a} & {*of_b}) - {None}
    assert len(both) == len(both.tokens) == len(set(both.tokens))
    for of, other, mapped in ((of_a, of_b, both.a_to_b), (of_b, of_a, both.b_to_a)):
        assert len(mapped) == len(of)
        for token, id_ in zip(of, mapped):
            assert (id_ >= 0) == (token is not None and token in other)
            assert id_ < 0 or other[id_] == token
    assert str(both).startswith(f"{len(both):,} tokens in common: ")


def test_words_with_an_end_have_no_bytes(tmp_path: Path) -> None:
    need("tokenizers")
    import tokenizer_files

    (tmp_path / "tokenizer.json").write_text(
        tokenizer_files.text("words with an end"), encoding="utf-8"
    )
    with pytest.raises(ValueError, match="prefix or suffix"):
        intersection(BPETokenizer.from_file(tmp_path), BPETokenizer())


@pytest.mark.parametrize("wrong", [None, "gpt2", 5, []])
def test_what_is_no_tokenizer(wrong: Any) -> None:
    one = BPETokenizer()
    for name, pair in (("a", (wrong, one)), ("b", (one, wrong))):
        with pytest.raises(TypeError, match=f"{name} must be a BPETokenizer, got "):
            align(*pair, "low")
        with pytest.raises(TypeError, match=f"{name} must be a BPETokenizer, got "):
            intersection(*pair)


@pytest.mark.parametrize("text", ["e\u0301x", "xe\u0301", "e\u0301", "a e\u0301\u0323 b"])
def test_what_is_composed_is_in_one_block(text: str) -> None:
    a, b = BPETokenizer(normalizer="NFC"), BPETokenizer(normalizer=None)
    for one, two in ((a, b), (b, a), (a, a)):
        assert all(block.ids_a and block.ids_b for block in check_sound(one, two, text))
    first = check_sound(a, b, "e\u0301x")[0]
    assert (first.start, first.end, first.ids_b) == (0, 3, [101, 204, 129])
