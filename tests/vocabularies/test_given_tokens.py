"""Strings that become single tokens, by merges."""

from __future__ import annotations

import dataclasses

import pytest
import reference
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples

from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.vocabularies import ExtensionReport, extend

TEXT = "low lower lowest, the cat sat on the mat. Grüße! 世界 世界 12 123 don't " * 9


def trained(pattern: str = "gpt2", normalizer: str | None = "NFC") -> BPETokenizer:
    tokenizer = BPETokenizer(pattern, normalizer=normalizer)
    return tokenizer.train(TEXT, 300, special_tokens=["<|end|>"], verbose=False)


def with_tokens(tokenizer: BPETokenizer, *strings: str) -> BPETokenizer:
    return extend(tokenizer, tokens=strings, verbose=False)


@pytest.mark.parametrize("pattern", sorted(SPLIT_PATTERNS))
def test_a_pretoken_becomes_one_token_wherever_it_is_one(pattern: str) -> None:
    old = trained(pattern)
    cut = core.cutter(old)

    @settings(max_examples=examples(40), deadline=None)
    @given(hard_text.filter(bool), st.lists(hard_text | st.text(TEXT), max_size=3))
    def check(text: str, around: list[str]) -> None:
        strings = cut(core.normalize(text, "NFC"))[:5]
        # What is one pre-token inside a text may be several alone, and then it is refused.
        alone = [string for string in strings if len(cut(core.normalize(string, "NFC"))) == 1]
        new = with_tokens(old, *alone)
        merges = new.merges
        assert merges[: len(old.merges)] == old.merges
        assert new.definition.vocab.items() >= old.definition.vocab.items()
        for string in alone:
            assert len(new.encode(string)) == 1
        for context in [*around, text, *(before + text for before in around)]:
            tokens = core.tokens(new)
            for pretoken in cut(core.normalize(context, "NFC")):
                ids = new.definition.vocab.get(pretoken.encode())
                found = reference.encode(pretoken.encode(), merges)
                assert pretoken not in alone or found == [pretoken.encode()] == [tokens[ids or 0]]
            ids_of = new.encode(context)
            assert new.decode(ids_of) == core.normalize(context, "NFC")

    check()


def test_parts_are_made_from_left_to_right_and_taken_where_they_are() -> None:
    old = trained()
    assert old.tokenize(" lower") == ["Ġlower"]
    new = with_tokens(old, " lower", " lowercase")  # nothing to do for the first
    assert old.tokenize(" lowercase") == ["Ġlower", "c", "a", "s", "e"]
    made = [b" lowerc", b" lowerca", b" lowercas", b" lowercase"]
    assert [left + right for left, right in new.merges[len(old.merges) :]] == made
    assert [new.definition.vocab[token] for token in made] == list(
        range(old.max_id + 1, old.max_id + 5)
    )
    report = new.training_report
    assert isinstance(report, ExtensionReport)
    assert (report.added, report.for_strings, report.first_id) == (4, 4, old.max_id + 1)
    assert "4 of them for given strings" in str(report)
    again = with_tokens(new, " lowercase", " lowercaser")
    assert again.max_id == new.max_id + 1


def test_repeated_parts() -> None:
    new = with_tokens(BPETokenizer(), "abababab", "aaaaa")
    assert len(new.encode("abababab")) == len(new.encode("aaaaa")) == 1


def test_what_normalization_makes_of_a_string() -> None:
    new = with_tokens(trained(), "cafe\u0301s")
    assert len(new.encode("cafe\u0301s")) == len(new.encode("caf\u00e9s")) == 1


def test_a_token_that_no_merges_lead_to_gets_some() -> None:
    plain = BPETokenizer(normalizer=None)
    vocab = {**plain.definition.vocab, b"ab": 256, b"abc": 257}
    definition = dataclasses.replace(plain.definition, vocab=vocab, merges=[(256, 99)])
    old = core.remade(plain, definition)
    assert old.encode("abc") == [97, 98, 99]
    new = with_tokens(old, "abc", "abcd")
    assert new.merges == [(b"ab", b"c"), (b"a", b"b"), (b"abc", b"d")]
    assert (new.encode("abc"), new.encode("abcd"), new.vocab_size) == ([257], [258], 259)


def test_strings_come_before_what_is_learned() -> None:
    old = trained()
    counts = {b" aspirins": 9, b" aspirin": 9, b" asps": 3}
    new = extend(old, counts=counts, tokens=[" aspirin"], add=2, verbose=False)
    assert len(new.encode(" aspirin")) == 1
    learned = new.merges[len(with_tokens(old, " aspirin").merges) :]
    assert learned[0] == (b" aspirin", b"s")


def test_sentencepiece_style() -> None:
    old = BPETokenizer().train([TEXT, "aspirn of"], 400, style="sentencepiece", verbose=False)
    new = with_tokens(old, "aspirin")
    assert new.tokenize("aspirin of aspirin") == ["▁aspirin", *old.tokenize("of"), "▁aspirin"]
    with pytest.raises(ValueError, match="a character of it has no token"):
        with_tokens(old, "☃s")
    with pytest.raises(ValueError, match=r"cut into '▁an' \+ '▁aspirin'"):
        with_tokens(old, "an aspirin")


@pytest.mark.parametrize(
    "string, why",
    [
        ("two words", r"'two words' can't be one token: text is cut into 'two' \+ ' words'"),
        ("don't", r"cut into 'don' \+ \"'t\" before merging"),
        ("", "an empty string"),
        ("a<|plain|>", "'<|plain|>' is an added token".replace("|", r"\|")),
        ("the\ud800", "surrogate"),
    ],
)
def test_what_cannot_be_one_token_is_refused(string: str, why: str) -> None:
    old = trained()
    old._install(core.with_added_tokens(old.definition, [AddedToken("<|plain|>", special=False)]))
    with pytest.raises(ValueError, match=why):
        with_tokens(old, "fine", string)


def test_the_text_of_an_added_token_is_refused() -> None:
    old = BPETokenizer()
    old.add_special_tokens(["abc"])
    with pytest.raises(ValueError, match="'abcd' can't be one token: b'abc' is an added token"):
        with_tokens(old, "abcd")
    with pytest.raises(TypeError, match="tokens must be strings, got 5"):
        with_tokens(old, 5)  # type: ignore[arg-type]
