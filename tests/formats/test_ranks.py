"""Merges recovered from ranks, against joining by the rank of the joined string."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer_tools.formats.ranks import merges_by_score, recover_merges


def join_by_rank(text, ranks):
    """The definition, word by word: the lowest rank, of equals the leftmost."""
    parts = [text[i : i + 1] for i in range(len(text))]
    while True:
        found = [
            (ranks[left + right], i)
            for i, (left, right) in enumerate(zip(parts, parts[1:]))
            if left + right in ranks
        ]
        if not found:
            return parts
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def apply_merges(text, merges):
    """Byte pair encoding by a list of merges."""
    return apply_order(text, {pair: rank for rank, pair in enumerate(merges)})


def apply_order(text, order):
    parts = [text[i : i + 1] for i in range(len(text))]
    while True:
        found = [(order[p], i) for i, p in enumerate(zip(parts, parts[1:])) if p in order]
        if not found:
            return parts
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@st.composite
def rank_tables(draw, alphabet="abc", longest=7, most=40):
    """Any set of strings in any order: parts may rank after the whole, or not exist."""
    words = draw(
        st.lists(st.text(alphabet, min_size=2, max_size=longest), unique=True, max_size=most)
    )
    order = draw(st.permutations(words))
    return {token: rank for rank, token in enumerate([*alphabet, *order])}


@st.composite
def grown_tables(draw, alphabet="ab"):
    """Tables with long tokens: each joins two earlier ones; the order is then shuffled or not."""
    tokens = list(alphabet)
    for _ in range(draw(st.integers(0, 25))):
        joined = draw(st.sampled_from(tokens)) + draw(st.sampled_from(tokens))
        if joined not in tokens and len(joined) < 30:
            tokens.append(joined)
    rest = tokens[len(alphabet) :]
    if draw(st.booleans()):
        rest = draw(st.permutations(rest))
    return {token: rank for rank, token in enumerate([*alphabet, *rest])}


TABLES = rank_tables() | rank_tables("ab", 4, 25) | grown_tables()


def texts_for(ranks, data):
    pieces = st.lists(st.sampled_from(sorted(ranks)), max_size=6).map("".join)
    return [*ranks, *(data.draw(pieces) for _ in range(10)), "ab" * 20, "a" * 33]


@pytest.mark.slow
@settings(max_examples=examples(1000))
@given(ranks=TABLES, data=st.data())
def test_merges_do_what_ranks_do(ranks, data):
    merges = recover_merges(ranks)
    for text in texts_for(ranks, data):
        assert apply_merges(text, merges) == join_by_rank(text, ranks)


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(ranks=TABLES, data=st.data())
def test_further_merges_of_the_same_tokens_do_nothing(ranks, data):
    merges = recover_merges(ranks)
    every = [
        (token[:i], token[i:])
        for token in ranks
        for i in range(1, len(token))
        if token[:i] in ranks and token[i:] in ranks
    ]
    assert set(merges) <= set(every)
    # In any place: what matters is the order of the recovered ones.
    for pair in data.draw(st.permutations(every)):
        if pair not in merges:
            merges.insert(data.draw(st.integers(0, len(merges))), pair)
    for text in texts_for(ranks, data):
        assert apply_merges(text, merges) == join_by_rank(text, ranks)


@settings(max_examples=examples(400))
@given(ranks=TABLES)
def test_a_token_has_one_merge_or_none_can_make_it(ranks):
    merges = recover_merges(ranks)
    made = [left + right for left, right in merges]
    assert made == sorted(set(made), key=ranks.__getitem__)
    for token in ranks:
        assert (join_by_rank(token, ranks) == [token]) == (token in made or len(token) == 1)


@settings(max_examples=examples(300))
@given(ranks=TABLES)
def test_bytes_and_texts_are_treated_alike(ranks):
    as_bytes = {token.encode(): rank for token, rank in ranks.items()}
    expected = [(left.encode(), right.encode()) for left, right in recover_merges(ranks)]
    assert recover_merges(as_bytes) == expected


def test_the_example_of_the_module():
    ranks = {"a": 0, "b": 1, "c": 2, "bc": 3, "ab": 4, "abc": 5}
    assert recover_merges(ranks) == [("b", "c"), ("a", "b"), ("a", "bc")]


def test_a_part_may_rank_after_the_whole():
    assert recover_merges({"a": 0, "b": 1, "abb": 2, "bb": 3}) == [("a", "bb"), ("b", "b")]


def test_a_token_that_ranks_cannot_make_has_no_merge():
    # "bc" is joined first, and then nothing makes "abc" of it.
    ranks = {"a": 0, "b": 1, "c": 2, "bc": 3, "abcd": 4, "d": 5, "ab": 6, "cd": 7}
    assert recover_merges(ranks) == [("b", "c"), ("a", "b"), ("c", "d")]
    assert join_by_rank("abcd", ranks) == ["a", "bc", "d"]


def test_a_token_of_unknown_symbols_has_no_merge():
    assert recover_merges({"a": 0, "ax": 1, "aa": 2}) == [("a", "a")]
    assert recover_merges({b"a": 0, b"ax": 1, b"aa": 2}) == [(b"a", b"a")]


def test_nothing_to_merge():
    assert recover_merges({}) == []
    assert recover_merges({b"a": 5, b"b": 5}) == []


def test_ranks_may_be_any_numbers():
    ranks = {"a": 0, "b": 0, "ab": -(2**70), "ba": 2**70, "aba": 0}
    assert recover_merges(ranks) == [("a", "b"), ("ab", "a"), ("b", "a")]


def test_equal_ranks_are_refused():
    with pytest.raises(ValueError, match="'ab' and 'ba' have the same rank, 7"):
        recover_merges({"a": 0, "b": 1, "ab": 7, "ba": 7})


def test_tokens_that_would_take_minutes_are_refused():
    with pytest.raises(ValueError, match="too long.* 1000000 symbols"):
        recover_merges({b"a": 0, b"aa": 1, b"a" * 10**6: 2})
    assert recover_merges({b"a": 0, b"aa": 1, b"a" * 2000: 2}) == [(b"a", b"a")]


def test_merges_learned_in_training_come_back():
    rng = random.Random(5)
    text = "".join(rng.choices("abcde", [9, 7, 4, 2, 1], k=4000))
    parts, merges = list(text), []
    for _ in range(150):  # the textbook's loop
        pairs = Counter(zip(parts, parts[1:]))
        best = max(sorted(pairs), key=pairs.__getitem__)
        if best[0] + best[1] not in {left + right for left, right in merges}:
            merges.append(best)
        i = 0
        while i < len(parts) - 1:
            if (parts[i], parts[i + 1]) == best:
                parts[i : i + 2] = ["".join(best)]
            i += 1
    ranks = {token: i for i, token in enumerate([*"abcde", *(a + b for a, b in merges)])}
    assert len(merges) > 100
    assert recover_merges(ranks) == merges


@pytest.mark.parametrize("name", ["r50k_base", "cl100k_base", "o200k_base", "qwen3"])
def test_all_tokens_of_published_vocabularies_can_be_made(name, load_vocab):
    ranks, _ = load_vocab(name)
    merges = recover_merges(ranks)
    made = [left + right for left, right in merges]
    assert made == sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__)


@pytest.mark.parametrize("name", ["r50k_base", "qwen3"])
def test_published_merges_do_what_tiktoken_does(name, load_vocab, corpora):
    educational = need("tiktoken._educational")
    ranks, _ = load_vocab(name)
    merges = recover_merges(ranks)
    order = {pair: rank for rank, pair in enumerate(merges)}
    rng = random.Random(3)
    text = corpora("multi").encode()
    for _ in range(300):
        at, size = rng.randrange(len(text)), rng.randrange(1, 60)
        found = [ranks[part] for part in apply_order(text[at : at + size], order)]
        expected = educational.bpe_encode(ranks, text[at : at + size], visualise=None)
        assert found == expected


SCORES = st.dictionaries(  # piece -> score, of which many are equal
    st.text("ab", min_size=2, max_size=5), st.integers(-4, -1), min_size=1, max_size=8
)


@pytest.mark.slow
@settings(max_examples=examples(1500))
@given(scores=SCORES, texts=st.lists(st.text("ab", max_size=16), min_size=20, max_size=20))
def test_merges_do_what_equal_scores_do_or_are_refused(scores, texts):
    try:
        merges = merges_by_score(scores, [], {*scores, *"ab"})
    except ValueError as error:
        assert "is joined first changes the ids" in str(error)
        return
    ranks = {text: -score for text, score in scores.items()}
    for text in texts:
        assert apply_merges(text, merges) == join_by_rank(text, ranks)


def test_what_holds_a_symbol_is_not_made_from_scores():
    scores = {"ab": -1, "a.b": -2, "abb": -3, "a+b": -4}
    usable = {*"ab.", "ab", "abb"}
    assert merges_by_score(scores, [".", "+b"], usable) == [("a", "b"), ("ab", "b")]
    assert merges_by_score(scores, ["bb", ".", "+"], usable) == [("a", "b")]
    assert merges_by_score(scores, ["b"], usable) == []
