"""Learning merges from words of existing tokens.

Training learns from pre-tokens, which begin as bytes.  Superwords and `extend` start from a
vocabulary, so they learn from words of its tokens.  The order of merges is the same: the most
frequent pair first; ties go to the pair whose tokens come first in the given order, and new tokens
come last, by age.

>>> words = CountedWords()
>>> words.add([1, 2, 0], 5)
>>> words.add([1, 2], 1)
>>> learned, counts = learn([b"!", b"to", b" be"], words, 2, 1)
>>> learned.merges, counts
([(b'to', b' be'), (b'to be', b'!')], [6, 5])

The accelerator learns in C, the class here in Python; the results are the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bpe_tokenizer_tools import core

__all__ = ["CountedWords", "Refused", "learn"]

_END = -1  # after each word


class CountedWords:
    """Words of tokens, and how often each occurs, in flat arrays.

    Attributes:
        symbols: for each word the numbers of its tokens, 32 bits each, then -1.
        counts: how often each word occurs, 64 bits each.
    """

    def __init__(self) -> None:
        self.symbols, self.counts = array("i"), array("q")

    def add(self, word: Iterable[int], count: int) -> None:
        """Add a word; if it was added before, the counts add up."""
        self.symbols.extend(word)
        self.symbols.append(_END)
        self.counts.append(count)

    def __iter__(self) -> Iterator[tuple[Sequence[int], int]]:
        start = 0
        for count in self.counts:
            end = self.symbols.index(_END, start)
            yield self.symbols[start:end], count
            start = end + 1


class Refused(frozenset[bytes]):
    """Tokens that must not be made: the given ones, and those that rules refuse.

    Attributes:
        max_words: the most words in a token, separated by spaces; None for any number.
        never: no token contains one of these.
    """

    max_words: int | None
    never: tuple[bytes, ...]

    def __new__(
        cls, tokens: Iterable[bytes], max_words: int | None = None, never: Iterable[bytes] = ()
    ) -> Refused:
        """Make the set, with its rules."""
        made = super().__new__(cls, tokens)
        made.max_words, made.never = max_words, tuple(never)
        return made

    def __contains__(self, token: object) -> bool:
        return super().__contains__(token) or self.by_rule(token)  # type: ignore[arg-type]

    def by_rule(self, token: bytes) -> bool:
        """Return True if a rule refuses a token, and every token that contains it."""
        if self.max_words is not None and sum(map(bool, token.split(b" "))) > self.max_words:
            return True
        return any(text in token for text in self.never)


class _Learner(core.MergeLearner):
    """Learns in Python.  `merge_counts` says how often each pair occurred when it was merged."""

    def __init__(self, tokens: Sequence[bytes], words: CountedWords, longest: int | None) -> None:
        super().__init__({}, longest)
        self._token = list(tokens)
        self._number = {token: number for number, token in enumerate(self._token)}
        for word, count in words:
            if len(word) > 1 and count > 0:
                self._words.append("".join(map(chr, word)))
                self._freqs.append(count)
        self.merge_counts: dict[str, int] = {}

    def _merge(self, pair: str, merged: str, where: list[int]) -> None:
        self.merge_counts.pop(pair, None)  # a merge made again moves to the end
        self.merge_counts[pair] = self._pair_counts[pair]
        super()._merge(pair, merged, where)


def learn(
    tokens: Sequence[bytes],
    words: CountedWords | Any,
    n_tokens: int,
    min_frequency: int,
    *,
    max_token_length: int | None = None,
    forbidden: frozenset[bytes] = frozenset(),
    advance: Callable[[int], Any] = lambda amount: None,
) -> tuple[core.Learned, list[int]]:
    """Learn merges until they have made `n_tokens` new tokens.

    Args:
        tokens: all tokens that the words are made of, each once, in the order of ties.
        words: their tokens are places in `tokens`; words of one token are ignored.  Or a result
            of `neighbors.count_runs`.
        min_frequency: pairs that occur less often are not merged.
        max_token_length: in bytes; a merge of two of the given tokens may be longer.
        forbidden: tokens that must not be made; may be a `Refused`.
        advance: called with the number of new tokens.

    Returns:
        The result, and how often each merge occurred.  If a rule refuses pairs, `stopped`
        depends on the engine.

    Raises:
        OverflowError: C counted the runs, but can't learn from them.
    """
    found = _learn_in_c(
        tokens, words, n_tokens, min_frequency, max_token_length, forbidden, advance
    )
    if found is not None:
        return found
    if not isinstance(words, CountedWords):
        raise OverflowError("C can't learn from these runs; count them in Python")
    learner = _Learner(tokens, words, max_token_length)
    learned = learner.learn(n_tokens, min_frequency, forbidden, advance)
    return learned, list(learner.merge_counts.values())


def _learn_in_c(
    tokens: Sequence[bytes],
    words: Any,
    n_tokens: int,
    min_frequency: int,
    max_token_length: int | None,
    forbidden: frozenset[bytes],
    advance: Callable[[int], Any],
) -> tuple[core.Learned, list[int]] | None:
    """Do what `learn` does; return None without the accelerator, or if it can't."""
    if core.engine().learner is core.MergeLearner:
        return None
    from _bpe_tokenizer.engine import learn_joins

    rules: tuple[Any, ...] = (None, ())
    if isinstance(forbidden, Refused):
        rules = forbidden.max_words, forbidden.never
    counted = isinstance(words, CountedWords)
    given = (words.symbols, words.counts) if counted else (words, None)
    limits = n_tokens, min_frequency, max_token_length, frozenset(forbidden)
    try:
        return learn_joins(tuple(tokens), *given, *limits, *rules, advance)
    except OverflowError:  # too large; or a merge makes an existing token
        return None
