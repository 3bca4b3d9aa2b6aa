"""Extending a vocabulary: against a naive trainer, training at once, and what must not change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest
import reference
from hard_text import ATOMS, hard_text
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, Definition, count_pretokens
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.vocabularies import ExtensionReport, extend

pytestmark = pytest.mark.filterwarnings("ignore:.*looks like a path")

OLD = "low lower lowest, new newer newest; the cat sat on the mat. Grüße! 12 123 " * 9
NEW = "the lowland catalog of newer mattresses; wet weather, 1234 caf\u00e9s and Grüßen " * 7

few_letters = st.text("abc ", min_size=1, max_size=12)
# With a line break at its end, no text is the name of a file or directory, such as "/".
corpora = st.lists((few_letters | hard_text).map("{}\n".format), min_size=1, max_size=12)


def trained(text: str = OLD, size: int = 300, pattern: str = "gpt2") -> BPETokenizer:
    return BPETokenizer(pattern).train(text, vocab_size=size, verbose=False)


def of(definition: Definition) -> BPETokenizer:
    return core.remade(BPETokenizer(), definition)


def quietly(tokenizer: BPETokenizer, *corpus: object, **options: object) -> BPETokenizer:
    return extend(tokenizer, *corpus, **{"verbose": False, "held_out": {}, **options})  # type: ignore[arg-type]


def new_merges(old: BPETokenizer, new: BPETokenizer) -> list[tuple[bytes, bytes]]:
    assert new.merges[: len(old.merges)] == old.merges
    return new.merges[len(old.merges) :]


def ranks_of(tokenizer: BPETokenizer) -> dict[bytes, int]:
    """The order of ties: bytes by their printable character, other tokens by id."""
    return {
        token: reference.byte_order(token[0]) if len(token) == 1 else 1000 + id_
        for token, id_ in tokenizer.definition.vocab.items()
    }


def naive(old: BPETokenizer, counts: Mapping[bytes, int], *how: int) -> list[tuple[bytes, bytes]]:
    words = [(reference.encode(word, old.merges), count) for word, count in counts.items()]
    return reference.extend(words, ranks_of(old), *how)


def check_kept(old: BPETokenizer, new: BPETokenizer) -> None:
    """Every old token, id and merge is still there."""
    for id_ in old.definition.vocab.values():
        assert new.decode([id_], errors="ignore") == old.decode([id_], errors="ignore")
    assert new.definition.vocab.items() >= old.definition.vocab.items()
    assert new.added_tokens == old.added_tokens
    assert list(new.definition.merges)[: len(old.merges)] == list(old.definition.merges)


@settings(max_examples=examples(150), deadline=None)
@given(corpora, corpora, st.integers(1, 20), st.integers(0, 25), st.integers(0, 3))
def test_the_merges_are_those_of_a_naive_trainer(
    first: list[str], second: list[str], n_old: int, n_new: int, min_frequency: int
) -> None:
    old = BPETokenizer(normalizer=None)
    old.train(first, vocab_size=256 + n_old, min_frequency=1, verbose=False)
    counts = count_pretokens(second, normalizer=None)
    new = quietly(old, counts=counts, add=n_new, min_frequency=min_frequency)
    assert new_merges(old, new) == naive(old, counts, n_new, min_frequency)
    check_kept(old, new)
    for pretoken in counts:
        tokens = [new.token_bytes()[id_] for id_ in new.encode(pretoken.decode())]
        assert tokens == reference.encode(pretoken, new.merges)


@settings(max_examples=examples(100), deadline=None)
@given(corpora, st.integers(1, 25), st.integers(0, 25), st.sampled_from(sorted(SPLIT_PATTERNS)))
def test_training_on_gives_what_training_at_once_gives(
    texts: list[str], n_first: int, n_second: int, pattern: str
) -> None:
    counts = count_pretokens(texts, pattern)
    first = BPETokenizer(pattern).train(counts=counts, vocab_size=256 + n_first, verbose=False)
    if first.vocab_size < 256 + n_first:
        return
    at_once = BPETokenizer(pattern)
    at_once.train(counts=counts, vocab_size=256 + n_first + n_second, verbose=False)
    assert quietly(first, counts=counts, add=n_second) == at_once


@settings(max_examples=examples(100), deadline=None)
@given(corpora, st.integers(0, 10), st.integers(0, 10), hard_text)
def test_extending_twice_is_extending_once(
    texts: list[str], n_first: int, n_second: int, text: str
) -> None:
    old = trained()
    counts = count_pretokens(texts)
    once = quietly(old, counts=counts, add=n_first + n_second)
    first = quietly(old, counts=counts, add=n_first)
    twice = quietly(first, counts=counts, add=n_second)
    assert twice == once
    assert twice.encode(text) == once.encode(text)


@pytest.mark.parametrize("pattern", sorted(SPLIT_PATTERNS))
@pytest.mark.parametrize("normalizer", [None, "NFC", "NFKD"])
def test_text_that_no_new_merge_applies_to_keeps_its_ids(
    pattern: str, normalizer: str | None
) -> None:
    old = BPETokenizer(pattern, normalizer=normalizer)
    old.train(OLD, vocab_size=320, special_tokens=["<|end|>"], verbose=False)
    new = quietly(old, [NEW, "".join(ATOMS)], add=60)
    check_kept(old, new)
    made = set(range(old.max_id + 1, new.max_id + 1))
    assert made == set(new.definition.vocab.values()) - set(old.definition.vocab.values())

    @settings(max_examples=examples(30), deadline=None)
    @given(hard_text | st.text(NEW))
    @example(NEW)
    @example("low \U0001f642")
    def check(text: str) -> None:
        was, is_ = old.encode(text), new.encode(text)
        assert new.decode(is_) == old.decode(was)
        assert is_ == was or not made.isdisjoint(is_)
        assert len(is_) <= len(was)

    check()
    assert not made.isdisjoint(new.encode(NEW))


def test_new_ids_follow_the_highest_and_gaps_stay() -> None:
    old = BPETokenizer()
    old.train(OLD, vocab_size=280, special_tokens={"<|end|>": 270, "<|far|>": 999}, verbose=False)
    new = quietly(old, NEW, add=5)
    assert [*new.definition.vocab.values()][-5:] == [1000, 1001, 1002, 1003, 1004]
    assert new.special_tokens == old.special_tokens
    report = new.training_report
    assert isinstance(report, ExtensionReport)
    assert (report.added, report.first_id, report.merges) == (5, 1000, 5)
    assert old.training_report and not isinstance(old.training_report, ExtensionReport)
    assert new.vocab_size == old.vocab_size + 5


def test_a_token_that_no_merges_lead_to_is_not_made_anew() -> None:
    """Old merges would apply to it, and before the new ones."""
    definition = BPETokenizer(normalizer=None).definition
    vocab = {**definition.vocab, b"ab": 256, b"abc": 257}
    tokenizer = of(dataclasses.replace(definition, vocab=vocab))  # nothing leads to either
    new = quietly(tokenizer, "abcabd " * 5, add=4)
    assert not {b"ab", b"abc"} & {left + right for left, right in new.merges}
    counts = count_pretokens("abcabd " * 5, normalizer=None)
    assert new_merges(tokenizer, new) == naive(tokenizer, counts, 4)


def test_the_text_of_an_added_token_is_not_made() -> None:
    old = trained()
    old.add_special_tokens(["lowland"])
    new = quietly(old, "lowlandlowlander lowlander" * 5, add=30)
    assert b"lowland" not in new.definition.vocab
    assert new.encode("lowland", allowed_special="all") == [old.special_tokens["lowland"]]


def test_o200k_style_flags_are_kept() -> None:
    """A whole pre-token that is a token is one, by ignore_merges."""
    plain = trained(OLD, 320)
    old = of(dataclasses.replace(plain.definition, ignore_merges=True))
    new, other = quietly(old, NEW, add=40), quietly(plain, NEW, add=40)
    assert new.definition.ignore_merges
    assert new.merges == other.merges
    assert new.encode(NEW) == other.encode(NEW)


def test_held_out_text_is_measured() -> None:
    old = trained()
    new = extend(old, NEW, add=30, held_out={"old": OLD, "new": NEW + " unseen"}, verbose=False)
    report = new.training_report
    assert isinstance(report, ExtensionReport)
    for name, text in (("old", OLD), ("new", NEW + " unseen")):
        found = report.held_out[name]
        assert found.bytes == len(text.encode())
        assert found.tokens_before == len(old.encode(text))
        assert found.tokens_after == len(new.encode(text))
        assert f"{name}: {found.bytes_per_token_before:.3f} bytes per token" in str(report)
    assert report.held_out["new"].tokens_after < report.held_out["new"].tokens_before


def test_documents_are_set_apart_by_their_content() -> None:
    documents = [f"document {i} of the lowland catalog" for i in range(500)]
    one, other = (
        extend(trained(), texts, add=9, verbose=False) for texts in (documents, documents[::-1])
    )
    assert one == other
    reports = [each.training_report for each in (one, other)]
    assert all(isinstance(report, ExtensionReport) for report in reports)
    found = [report.held_out["new"] for report in reports]  # type: ignore[union-attr]
    assert found[0] == found[1]
    assert 0 < found[0].bytes < sum(map(len, documents)) / 10
    alone = extend(trained(), documents[0], add=9, verbose=False).training_report
    assert isinstance(alone, ExtensionReport)
    assert alone.documents == 1 and not alone.held_out


def test_bad_input_is_refused() -> None:
    old = trained()
    with pytest.raises(TypeError, match="takes either a corpus or counts"):
        extend(old)
    with pytest.raises(TypeError, match="takes either a corpus or counts"):
        extend(old, OLD, counts={b"a": 1})
    with pytest.raises(TypeError, match="add must be an int, got None"):
        extend(old, OLD, add=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="add must be at least 0, got -1"):
        extend(old, OLD, add=-1)
    with pytest.raises(ValueError, match="the corpus is empty|no text"):
        extend(old, [], verbose=False)
    with pytest.raises(ValueError, match="made with"):
        extend(old, counts=count_pretokens(OLD, "cl100k"))
    with pytest.raises(TypeError, match="must have an int, got 'x'"):
        extend(old, counts={b"ab": "x"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="is not UTF-8"):
        extend(old, counts={b"ab\xff": 3})
    with pytest.raises(ValueError, match="'old' is empty"):
        extend(old, OLD, held_out={"old": []}, verbose=False)
    with pytest.raises(TypeError, match="tokens must be a list of strings, got 'ab'"):
        extend(old, tokens="ab")
    for wrong in (5, False, object):
        with pytest.raises(TypeError, match="tokens must be a list of strings, got "):
            extend(old, tokens=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="add must be at most 1,113,"):
        extend(old, OLD, add=2_000_000)
    far = BPETokenizer()
    far.add_special_tokens({"<|far|>": 2**31 - 1})
    with pytest.raises(ValueError, match="need ids above"):
        extend(far, OLD)
