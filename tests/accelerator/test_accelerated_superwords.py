"""Vocabularies with superwords, which the accelerator encodes in two stages, against Python."""

from __future__ import annotations

import dataclasses
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from conftest import extension
from hypothesis import given
from hypothesis import strategies as st
from oracles import need
from test_accelerator import check_equal, definition_of, engines

import bpe_tokenizer
from _bpe_tokenizer.engine import _cutter_for
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.training.superwords import SUPERBPE_PATTERN, Superwords

native = extension()

LETTERS = ["a", "b", " ", ",", "é", "1", "\n", "\0"]
PATTERNS = [SUPERBPE_PATTERN, r"\n", bpe_tokenizer._UNCUT_PATTERN]


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they compare both engines by themselves."""


def is_superword(token: bytes) -> bool:
    """Tell whether a space follows something that isn't white space."""
    return any(b == 32 and a not in b"\t\n\v\f\r " for a, b in zip(token, token[1:]))


def some_vocabulary(chance: random.Random, n_words: int, n_more: int, pattern: str) -> Any:
    """Merges of words, then of anything; some make a token that is there; ids in any order."""
    tokens = [letter.encode() for letter in LETTERS if len(letter.encode()) == 1]
    tokens += [bytes([byte]) for byte in "é".encode()]
    merges: dict[tuple[bytes, bytes], None] = {}
    while len(merges) < n_words + n_more:
        pair = chance.choice(tokens), chance.choice(tokens)
        joined = pair[0] + pair[1]
        if len(merges) < n_words and is_superword(joined):
            continue
        if pair in merges or len(joined) > 40:
            n_more -= 1  # there may be no other pair
            continue
        merges[pair] = None
        tokens.append(joined)
    every = list(dict.fromkeys([*(bytes([b]) for b in range(256)), *tokens]))
    ids: Any = range(len(every))
    if chance.random() < 0.5:
        ids = chance.sample(range(2 * len(every)), len(every))
    vocab = dict(zip(every, ids))
    pairs = [(vocab[left], vocab[right]) for left, right in merges]
    return bpe_tokenizer.Definition(vocab, pairs, pattern, None)


@given(
    chance=st.randoms(use_true_random=False),
    n_words=st.integers(0, 30),
    n_more=st.integers(0, 40),
    pattern=st.sampled_from(PATTERNS),
    portable=st.booleans(),
)
def test_any_superwords(
    chance: random.Random, n_words: int, n_more: int, pattern: str, portable: bool
) -> None:
    definition = some_vocabulary(chance, n_words, n_more, pattern)
    python, encoder = engines(definition, _cutter_for(pattern), portable=portable)
    tokens = [token.decode(errors="ignore") for token in definition.vocab if len(token) > 1]
    for size in (0, 1, 5, 40, 600):
        check_equal(python, encoder, "".join(chance.choices([*LETTERS, *tokens], k=size)))
    for token in chance.choices(tokens, k=3) if tokens else []:
        check_equal(python, encoder, token * 700)


def trained(size: int = 330) -> BPETokenizer:
    chance = random.Random(1)
    words = ["by the way", ", he said", ". ", "in a hurry", " of the", " 12", "\n", "é ", " x"]
    text = "".join(chance.choices(words, k=2_000))
    return BPETokenizer(normalizer=None).train(text, size, superwords=285, verbose=False)


def test_words_come_from_the_cache() -> None:
    """A text without a place to cut is looked up word by word."""
    definition = trained().definition
    python, encoder = engines(definition, _cutter_for(definition.split_pattern))
    text = "by the way, he said of the hurry " * 300
    check_equal(python, encoder, text)
    encoder.clear_cache()
    encoder.encode(text)
    lookups, misses, size = encoder.cache_info()
    assert lookups > 2_000
    assert misses == size < 12


def test_tokens_made_in_several_ways() -> None:
    """What a superword begins and ends with is known, also if another merge makes it, too."""
    words = [(b" ", b"c"), (b" c", b"d"), (b"x", b"y")]
    supers = [(b"b", b" cd"), (b"b", b" c"), (b"b c", b"d"), (b"b cd", b","), (b"xy", b"b cd,")]
    more = [(b"y", b"b cd,"), (b"x", b"yb cd,"), (b"e", b"xyb cd,")]
    definition = definition_of([*words, *supers, *more])
    definition = dataclasses.replace(definition, split_pattern=SUPERBPE_PATTERN)
    python, encoder = engines(definition, _cutter_for(SUPERBPE_PATTERN))
    for text in ("b cd,", "exyb cd,", "xyb cd", "b c", "yb cd,"):
        check_equal(python, encoder, text * 3)
    assert python.encode("exyb cd,") == [definition.vocab[b"exyb cd,"]]


def test_runs_longer_than_a_chunk() -> None:
    """Runs of words that superwords may join go on where the accelerator looks words up anew."""
    definition = trained().definition
    python, encoder = engines(definition, _cutter_for(definition.split_pattern))
    for n in (170, 171, 255, 256, 512, 513, 3_000):
        for text in ("by the way" * n, " of the" * n, "x" + " of the" * n + "12" + " of the" * n):
            check_equal(python, encoder, text)


def test_images_and_encoders_that_share() -> None:
    """Encoders from the cache of vocabularies, or made of others, encode in two stages, too."""
    definition = trained().definition
    cutter = _cutter_for(definition.split_pattern)
    python, first = engines(definition, cutter)
    image, _ = native.Encoder.from_image(first.image(b""))
    text = "by the way, he said of the hurry 12 é x\n" * 90
    for other in (native.Encoder(first, [], cutter), native.Encoder(image, [], cutter)):
        for encoder in (other, native.Encoder(other, [], cutter, False, {b"<new>": 900})):
            assert encoder.encode(text) == python.encode(text)
            assert encoder.cache_info()[0] > 900
    short = native.Encoder(first, [], "gpt2")  # whose pre-tokens are short
    plain = dataclasses.replace(definition, split_pattern=bpe_tokenizer.SPLIT_PATTERNS["gpt2"])
    assert short.encode(text) == bpe_tokenizer._Encoder(plain).encode(text)


@pytest.mark.parametrize("how", [300, Superwords("auto", "boundless")])
def test_texts_of_people(corpora_dir: Path, tmp_path: Path, how: Any) -> None:
    for name in ("english", "code", "multi"):
        text = (corpora_dir / f"{name}.txt").read_bytes()[:300_000].decode(errors="ignore")
        tokenizer = BPETokenizer("o200k").train(text, 2_000, superwords=how, verbose=False)
        python, encoder = engines(
            tokenizer.definition, _cutter_for(tokenizer.definition.split_pattern)
        )
        tokenizer.save(tmp_path, verbose=False)
        theirs = need("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        text = unicodedata.normalize("NFC", text[-50_000:])
        ids = encoder.encode(text)
        assert ids == theirs.encode(text, add_special_tokens=False).ids == python.encode(text)
