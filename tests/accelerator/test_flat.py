"""A vocabulary kept in flat arrays: all that Python's own dict and list would say, it says."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
from typing import Any

import pytest
from conftest import extension
from hypothesis import given
from hypothesis import strategies as st
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer, Definition

native = extension()
adapter: Any = need("_bpe_tokenizer.engine")
flat: Any = need("_bpe_tokenizer.flat")


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they compare both engines by themselves."""


BYTES = {bytes([byte]): byte for byte in range(256)}
TOKENS = st.lists(st.binary(min_size=2, max_size=20), unique=True, max_size=12)
IDS = st.lists(st.integers(256, 400), unique=True, min_size=12, max_size=12)
ADDED = st.lists(
    st.tuples(st.text(min_size=1, max_size=20), st.integers(250, 420)),
    unique_by=lambda item: item[0],
    max_size=5,
)


def definition_of(tokens: list[bytes], ids: list[int], added: Any, whole: bool) -> Definition:
    vocab = {**dict(zip(tokens, ids)), **BYTES}
    merges = [(token[0], token[1]) for token in tokens if len(token) == 2]
    named = tuple(AddedToken(text, id_) for text, id_ in added)
    pattern = SPLIT_PATTERNS["gpt2"]
    return Definition(vocab, merges, pattern, None, ignore_merges=whole, added=named)


DEFINITIONS = st.builds(definition_of, TOKENS, IDS, ADDED, st.booleans())


@given(DEFINITIONS)
def test_all_is_given_back_as_it_was(definition: Definition) -> None:
    python, encoder = bpe_tokenizer._Encoder(definition), adapter.NativeEncoder(definition)
    kept = encoder._definition
    assert isinstance(kept.vocab, flat.FlatVocab)
    assert kept == definition
    assert definition == kept
    for ours, theirs in ((kept.vocab, definition.vocab), (encoder.tokens, python.tokens)):
        assert list(ours) == list(theirs)
        assert list(ours.items()) == list(theirs.items())
        assert list(ours.keys()) == list(theirs.keys())
        assert list(ours.values()) == list(theirs.values())
        assert len(ours) == len(theirs)
        assert {**ours} == ours.copy() == ours | {} == theirs
        assert repr(ours) == repr(theirs)
        assert all(ours[key] == value and key in ours for key, value in theirs.items())
    assert list(kept.merges) == list(definition.merges)
    assert len(kept.merges) == len(definition.merges)
    assert encoder.largest_id() == python.largest_id() == max(python.tokens)
    assert pickle.dumps(dataclasses.astuple(kept)) == pickle.dumps(dataclasses.astuple(definition))


@given(DEFINITIONS, DEFINITIONS)
def test_one_is_made_from_another(first: Definition, second: Definition) -> None:
    kept = adapter.NativeEncoder(first)._definition
    mixed = dataclasses.replace(
        kept, added=second.added, ignore_merges=second.ignore_merges, normalizer="NFC"
    )
    expected = dataclasses.replace(mixed, vocab=first.vocab, merges=first.merges)
    python, encoder = bpe_tokenizer._Encoder(expected), adapter.NativeEncoder(mixed)
    assert encoder._definition == expected
    assert list(encoder.tokens.items()) == list(python.tokens.items())
    for token in first.vocab:
        text = token.decode(errors="replace")
        assert encoder.encode(text) == python.encode(text)
    for id_, token in python.tokens.items():
        assert encoder._native.decode([id_]) == token


def test_keys_are_those_of_a_dict() -> None:
    numpy = need("numpy")
    definition = definition_of([b"ab"], [300], [("<x>", 310)], False)
    encoder = adapter.NativeEncoder(definition)
    vocab, tokens = encoder._definition.vocab, encoder.tokens
    assert tokens[numpy.int64(300)] == tokens[300.0] == b"ab"
    assert tokens[True] == b"\x01"
    for key in (-1, 305, 2**70, 0.5, "a", None, b"ab"):
        assert key not in tokens
        assert tokens.get(key) is None
        with pytest.raises(KeyError):
            tokens[key]
    for other in (b"abc", "ab", 97, None):
        assert other not in vocab
        with pytest.raises(KeyError):
            vocab[other]
    for mapping in (vocab, tokens, encoder._definition.merges):
        with pytest.raises(TypeError):
            hash(mapping)
    assert vocab != encoder._definition.merges


def test_merges_are_as_those_of_a_list() -> None:
    definition = definition_of([b"ab", b"cd", b"ef"], [300, 301, 302], [], False)
    merges, expected = adapter.NativeEncoder(definition)._definition.merges, definition.merges
    assert [merges[i] for i in range(-3, 3)] == [expected[i] for i in range(-3, 3)]
    assert merges[1:] == expected[1:]
    assert merges + [(1, 2)] == [*expected, (1, 2)]
    assert [(1, 2)] + merges == [(1, 2), *expected]
    assert (97, 98) in merges
    assert (98, 97) not in merges
    assert repr(merges) == repr(expected)
    assert merges != expected[1:]
    for index in (3, -4):
        with pytest.raises(IndexError):
            merges[index]
    assert pickle.loads(pickle.dumps(merges)) == expected


def test_copies_share_memory() -> None:
    tokenizer = BPETokenizer().train("low lower lowest " * 9, 300, verbose=False)
    tokenizer.add_special_tokens(["<x>"])
    native_of = lambda each: each._encoder._native  # noqa: E731
    other = copy.copy(tokenizer)
    made = native.Encoder(native_of(other), [], "gpt2", False, {b"<x>": 300})
    del tokenizer, other
    gc.collect()
    assert made.decode(made.encode("lowest")) == b"lowest"
    assert made.token(300) == b"<x>"


def test_two_tokens_of_one_id_stay_in_a_dict() -> None:
    definition = Definition({**BYTES, b"ab": 97}, [], SPLIT_PATTERNS["gpt2"], None)
    encoder = adapter.NativeEncoder(definition)
    assert encoder._definition is definition
    assert encoder.tokens == bpe_tokenizer._Encoder(definition).tokens


def test_pickles_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = BPETokenizer().train("low lower lowest " * 9, 300, verbose=False)
    assert isinstance(tokenizer.definition.vocab, flat.FlatVocab)
    packed, fingerprint = pickle.dumps(tokenizer), tokenizer.fingerprint
    monkeypatch.setattr(bpe_tokenizer, "_engine", bpe_tokenizer._Engine())
    plain = pickle.loads(packed)
    assert isinstance(plain.definition.vocab, dict)
    assert pickle.dumps(plain) == packed
    assert plain.fingerprint == fingerprint
    assert plain == tokenizer
    assert plain.merges == tokenizer.merges
    assert plain.get_vocab() == tokenizer.get_vocab()
