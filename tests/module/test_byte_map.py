"""The byte alphabet: 256 bytes, 256 printable characters, both ways."""

from __future__ import annotations

import unicodedata

import reference
from hypothesis import given
from hypothesis import strategies as st
from oracles import need

from bpe_tokenizer import BPETokenizer, build_byte_to_char, build_char_to_byte


def test_every_byte_has_its_own_character() -> None:
    forward = build_byte_to_char()
    assert list(forward) == list(range(256))
    assert len(set(forward.values())) == 256
    assert all(len(char) == 1 for char in forward.values())


def test_both_directions_undo_each_other() -> None:
    forward = build_byte_to_char()
    backward = build_char_to_byte(forward)
    assert len(backward) == 256
    assert all(backward[forward[byte]] == byte for byte in range(256))
    assert build_char_to_byte() == backward


def test_the_inverse_is_that_of_the_map_given() -> None:
    assert build_char_to_byte({1: "x", 2: "y"}) == {"x": 1, "y": 2}
    # An empty map has an empty inverse; it is not a request for the default.
    assert build_char_to_byte({}) == {}


def test_no_character_is_white_space_or_invisible() -> None:
    # That is what the alphabet is for: a merges file is split at its spaces.
    for char in build_byte_to_char().values():
        assert not char.isspace()
        assert unicodedata.category(char)[0] not in "ZC"


def test_the_order_is_the_one_of_gpt2() -> None:
    forward = build_byte_to_char()
    assert [ord(forward[byte]) for byte in range(256)] == [
        reference.byte_order(byte) for byte in range(256)
    ]
    assert (forward[0x20], forward[0x0A], forward[0x00], forward[0xAD]) == ("Ġ", "Ċ", "Ā", "Ń")


def test_equals_the_alphabet_of_tokenizers() -> None:
    pre_tokenizers = need("tokenizers").pre_tokenizers
    assert set(build_byte_to_char().values()) == set(pre_tokenizers.ByteLevel.alphabet())
    # The alphabet alone does not say which byte is which; its spelling of text does.
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    forward = build_byte_to_char()
    for char in map(chr, [*range(0x500), 0xFFFD, 0x10FFFF, 0x40000, 0x80000, 0xC0000]):
        [(spelled, _)] = level.pre_tokenize_str(char)
        assert spelled == "".join(forward[byte] for byte in char.encode())


def test_equals_the_map_of_transformers() -> None:
    need("transformers")
    try:
        from transformers.convert_slow_tokenizer import bytes_to_unicode
    except ImportError:
        from transformers.models.gpt2.tokenization_gpt2 import bytes_to_unicode
    assert build_byte_to_char() == bytes_to_unicode()


@given(st.text())
def test_tokens_are_shown_in_it(text: str) -> None:
    forward = build_byte_to_char()
    tokens = BPETokenizer(normalizer=None).tokenize(text)
    assert tokens == [forward[byte] for byte in text.encode()]


def test_a_new_vocabulary_is_the_alphabet_with_byte_ids() -> None:
    assert BPETokenizer().get_vocab() == build_char_to_byte()


@given(st.lists(st.integers(0, 255)))
def test_printable_tokens_join_to_text(ids: list[int]) -> None:
    forward = build_byte_to_char()
    tokens = [forward[byte] for byte in ids]
    joined = BPETokenizer().convert_tokens_to_string(tokens)
    assert joined == bytes(ids).decode("utf-8", "replace")
