"""Learning from words of tokens: the engine in C, that in Python, and a naive trainer."""

from __future__ import annotations

import importlib
import itertools
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
import reference
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples

import bpe_tokenizer
from bpe_tokenizer_tools.training import joins
from bpe_tokenizer_tools.training.joins import CountedWords, Refused

# Few tokens of few letters, so that ties, runs and equal strings abound.
TOKENS = [b"b", b" ", b"a", b" a", b"ab", b": ", b"c", b"a b", b"  ", b":"]
MANY = [*TOKENS, *(b"%d" % number for number in range(1_000, 1_400))]  # more than bytes are

words_of = st.dictionaries(
    st.lists(st.integers(0, len(TOKENS) - 1), max_size=9).map(tuple), st.integers(-1, 5)
)


def counted(words: dict[Any, int]) -> CountedWords:
    made = CountedWords()
    for word, count in words.items():
        made.add(word, count)
    return made


def naive(
    tokens: Sequence[bytes], words: dict[Any, int], n: int, least: int, forbidden: Any
) -> list[tuple[tuple[bytes, bytes], int]] | None:
    """Count all pairs again before each merge; None if a merge makes an existing token."""
    age = {token: number for number, token in enumerate(tokens)}
    text = [([tokens[i] for i in word], count) for word, count in words.items() if count > 0]
    merges: list[tuple[tuple[bytes, bytes], int]] = []
    while len(merges) < n:
        counts = reference.count_pairs(text)
        allowed = [
            p for p, count in counts.items() if count >= least and p[0] + p[1] not in forbidden
        ]
        if not allowed:
            break
        pair = min(allowed, key=lambda p: (-counts[p], age[p[0]], age[p[1]]))
        if pair[0] + pair[1] in age:
            return None
        age[pair[0] + pair[1]] = len(age)
        merges.append((pair, counts[pair]))
        text = [(reference.join(word, pair), count) for word, count in text]
    return merges


@settings(max_examples=examples(400))
@given(
    words_of,
    st.integers(0, 30),
    st.integers(0, 3),
    st.none() | st.integers(1, 3),
    st.lists(st.sampled_from([b": ", b"ab", b"a", b"aba", b"b a b"]), max_size=2),
    st.booleans(),
)
@example({(2, 2, 2, 2): 1, (2, 0, 2, 0, 2, 0): 1}, 20, 1, None, [], False)
@example({(2, 1, 2): 3, (3, 3): 1}, 9, 1, 1, [], True)
def test_naive_trainer(
    words: dict[Any, int],
    n: int,
    least: int,
    max_words: int | None,
    never: list[bytes],
    many: bool,
) -> None:
    tokens = MANY if many else TOKENS
    forbidden = Refused([b"bb", b"a ab"], max_words, never)
    learned, counts = joins.learn(tokens, counted(words), n, least, forbidden=forbidden)
    expected = naive(tokens, words, n, max(least, 1), forbidden)
    if expected is not None:
        assert list(zip(learned.merges, counts)) == expected
        assert learned.tokens == [left + right for left, right in learned.merges]
        assert (learned.stopped == "vocab size reached") == (len(expected) == n)


def in_python(*given: Any, **options: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bpe_tokenizer, "_engine", bpe_tokenizer._Engine())
        return joins.learn(*given, **options)


@settings(max_examples=examples(400))
@given(
    words_of,
    st.integers(0, 40),
    st.integers(0, 3),
    st.none() | st.integers(1, 9),
    st.frozensets(st.sampled_from([b"ab", b"aa", b"a b", b"c", b"cc", b"bab"]), max_size=3),
    st.booleans(),
)
def test_python_and_c_give_the_same(
    words: dict[Any, int],
    n: int,
    least: int,
    longest: int | None,
    forbidden: frozenset[bytes],
    many: bool,
) -> None:
    """Also why it stopped; and merges that make an existing token, if they may."""
    given_ = MANY if many else TOKENS, counted(words), n, least
    options: Any = {"max_token_length": longest, "forbidden": forbidden}
    assert joins.learn(*given_, **options) == in_python(*given_, **options)


@settings(max_examples=examples(60))
@given(words_of, st.integers(1, 200), st.integers(0, 3), st.none() | st.integers(1, 3))
def test_long_words(words: dict[Any, int], times: int, least: int, max_words: int | None) -> None:
    """Those of more than 128 symbols are kept in another way."""
    longer = {word * times: count for word, count in words.items()}
    made, forbidden = counted(longer), Refused((), max_words, [b": "])
    found, counts = joins.learn(MANY, made, 50, least, forbidden=forbidden)
    expected, expected_counts = in_python(MANY, made, 50, least, forbidden=forbidden)
    assert (found.merges, found.tokens, counts) == (*expected[:2], expected_counts)


def test_progress_and_what_it_raises() -> None:
    words, told = counted({(0, 2, 0, 2): 5, (2, 6): 9}), list[int]()
    learned, _ = joins.learn(TOKENS, words, 9, 1, advance=told.append)
    assert sum(told) == len(learned.tokens) == 3

    def fail(amount: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        joins.learn(TOKENS, words, 9, 1, advance=fail)


def test_counts_of_any_size() -> None:
    """What is too large for C is learned in Python: no count overflows."""
    words = counted({(0, 2): 2**62, (0, 2, 6): 2**62, (6, 0): 2**62 + 1})
    learned, counts = joins.learn(TOKENS, words, 2, 1)
    assert (learned.merges, counts) == ([(b"b", b"a"), (b"c", b"b")], [2**63, 2**62 + 1])


def test_words_can_be_read_again() -> None:
    words = {(1, 2): 3, (): 1, (4,): 2, (0, 0, 0): 2**40}
    assert [(tuple(word), count) for word, count in counted(words)] == list(words.items())


def test_wrong_arguments() -> None:
    if not bpe_tokenizer.ACCELERATED:
        pytest.skip("of the extension")
    native: Any = importlib.import_module("_bpe_tokenizer.native")
    symbols, counts = array("i", [0, 2, -1]), array("q", [3])
    right: Any = (tuple(TOKENS), symbols, counts, 5, 1, None, frozenset(), 4, (b": ",), None)
    assert native.learn_joins(*right)[0][0] == [(b"b", b"a")]
    for place, value, problem in [
        (0, TOKENS, TypeError),
        (0, ("a",), TypeError),
        (0, (b"",), TypeError),
        (1, [0], TypeError),
        (1, array("i", [0, 2]), ValueError),
        (1, array("i", [0, len(TOKENS), -1]), ValueError),
        (1, array("i", [0, -2, -1]), ValueError),
        (1, array("i", [0, -1, 2, -1]), ValueError),
        (1, b"abc", ValueError),
        (2, array("q", [3, 3]), ValueError),
        (2, array("q"), ValueError),
        (2, array("b", [3]), ValueError),
        (3, "5", TypeError),
        (3, 2**40, OverflowError),
        (4, 1.0, TypeError),
        (6, {b"a"}, TypeError),
        (6, frozenset(["a"]), TypeError),
        (8, [b": "], TypeError),
        (8, (b"",), TypeError),
        (9, 5, TypeError),
    ]:
        with pytest.raises(problem):
            native.learn_joins(*right[:place], value, *right[place + 1 :])
    again: Any = ((b"a", b"aa"), array("i", [0, 0, -1]), *right[2:])
    with pytest.raises(OverflowError):
        native.learn_joins(*again)


@pytest.mark.parametrize("n_tokens", [3, 300])
def test_all_pairs(n_tokens: int) -> None:
    """Each pair of many tokens once: all tie, so the order is that of the tokens."""
    tokens = [b"%03d" % number for number in range(n_tokens)]
    words = counted(dict.fromkeys(itertools.permutations(range(0, n_tokens, 7), 2), 1))
    learned, counts = joins.learn(tokens, words, 200, 1)
    assert learned.merges == sorted(learned.merges)
    assert set(counts) <= {1}
