"""Merges from ranks.

Some formats store no merges: `.tiktoken`, tekken.json and SentencePiece models number
their tokens.  Encoding joins, again and again, the adjacent pair *whose joined string* is
the token with the lowest rank; the leftmost if equal.  `recover_merges` finds a list of
merges that does the same.  For

    a 0   b 1   c 2   bc 3   ab 4   abc 5

the token "abc" begins as ``a b c``.  "bc" ranks before "ab", so ``a bc`` is left before the
last step: its merge is (a, bc), and (ab, c) is not a merge.

Why one merge for each token is enough, and exact.  Say encoding some text makes the token
t from a certain span of it.  No step before that crossed an end of the span, or t could
not fill it.  Every step within the span was the lowest and leftmost of the whole text,
hence also of the span.  So these steps are, in the same order, the steps of encoding t
alone, which always end with the same two parts.  It follows that

- t is never made of two other parts, and a pair that would join to t but is not
  its last two parts, is never adjacent in any state of any text;
- the pairs that the list allows are among those that ranks allow, and the one
    that ranks would join next is always in the list; both order them by the rank of
    the result, then take the leftmost.  So they take the same steps.

The parts of a token need not rank before it.  It also follows that further merges of the
same tokens, which some files list, do nothing.

`merges_by_score` does so for SentencePiece, whose ranks are scores: the higher is
joined first, and scores may be equal.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import Collection, Container, Mapping
from typing import Any, TypeVar

import regex

import bpe_tokenizer
from bpe_tokenizer_tools import core

Token = TypeVar("Token", bytes, str)

_NO_RANK = sys.maxsize
# Finding the last merge of a token of n symbols takes up to n**2 steps of some
# nanoseconds.  All 200,000 tokens of o200k_base sum up to 2 * 10**7 of them.
_MAX_STEPS = 10**8


def recover_merges(tokens: Mapping[Token, int]) -> list[tuple[Token, Token]]:
    """Find the merges that encode as the ranks of tokens do.

    The lowest rank is joined first.  Tokens of length 1 are the symbols that text starts with;
    their ranks don't matter.  A token that contains other symbols can't be made.

    The merges are in rank order: for each token that can be made, the two parts left before the
    last step of encoding it alone.

    Raises:
        ValueError: two tokens have the same rank, or tokens are so long that this
            would take minutes.

    Cost: 10 microseconds per token of 7 symbols, a fraction of one with the accelerator;
    quadratic in the length of one.

    >>> recover_merges({"a": 0, "b": 1, "c": 2, "bc": 3, "ab": 4, "abc": 5})
    [('b', 'c'), ('a', 'b'), ('a', 'bc')]
    """
    quick = _merges_in_c(tokens, by_id=False)
    if quick is not None:
        return quick
    symbols: set[Any] = {token[0] for token in tokens if len(token) == 1}
    made: list[Token] = [token for token in tokens if len(token) > 1 and symbols.issuperset(token)]
    made.sort(key=tokens.__getitem__)
    for first, second in itertools.pairwise(made):
        if tokens[first] == tokens[second]:
            raise ValueError(f"{first!r} and {second!r} have the same rank, {tokens[first]}")
    steps = sum(len(token) ** 2 for token in made)
    if steps > _MAX_STEPS:
        raise ValueError(
            f"the tokens are too long to find their merges: the longest has {max(map(len, made))} "
            f"symbols, and the squares of all lengths add up to {steps:,}; the limit is "
            f"{_MAX_STEPS:,}"
        )
    ranks = {token: rank for rank, token in enumerate(made)}
    found = (_last_merge(token, ranks) for token in made)
    return [merge for merge in found if merge is not None]


def recover_merge_ids(ranks: Mapping[bytes, int]) -> list[tuple[int, int]]:
    """Find the merges that `recover_merges` finds, as pairs of ranks."""
    found = _merges_in_c(ranks, by_id=True)
    if found is None:
        found = [(ranks[left], ranks[right]) for left, right in recover_merges(ranks)]
    return found


def _merges_in_c(tokens: Mapping[Any, int], by_id: bool) -> list[tuple[Any, Any]] | None:
    """Find merges with the accelerator; None if it is missing or can't."""
    if not bpe_tokenizer.ACCELERATED or len(set(tokens.values())) < len(tokens):
        return None
    from _bpe_tokenizer.engine import merges_from_ranks

    ordered = sorted(tokens, key=tokens.__getitem__)
    with contextlib.suppress(OverflowError, TypeError):  # too many, too long, or not bytes
        return merges_from_ranks(ordered, [tokens[each] for each in ordered] if by_id else None)
    return None


def _last_merge(token: Token, ranks: Mapping[Token, int]) -> tuple[Token, Token] | None:
    """Encode a token without using it; return the result if it is two parts."""
    get = ranks.get
    parts = [token[i : i + 1] for i in range(len(token))]
    found = [get(token[i : i + 2], _NO_RANK) for i in range(len(token) - 1)]
    while len(found) > 1:
        rank = min(found)
        if rank == _NO_RANK:
            return None
        i = found.index(rank)  # of equals, the leftmost
        parts[i] = new = parts[i] + parts[i + 1]
        del parts[i + 1], found[i]
        if i:
            found[i - 1] = get(parts[i - 1] + new, _NO_RANK)
        if i < len(found):
            found[i] = get(new + parts[i + 1], _NO_RANK)
    return parts[0], parts[1]


# -- Scores -------------------------------------------------------------------


def merges_by_score(
    scores: Mapping[str, float], symbols: Collection[str], usable: Container[str]
) -> list[tuple[str, str]]:
    """Find the merges that join pieces as their scores do.

    `scores` has every piece that joining makes, even if it is split again; `symbols` are found
    in text before joining; only `usable` pieces can be results.

    Raises:
        ValueError: no merges do so, because of equal scores, or because something is
            made that is not usable; or the pieces are too long to tell.
    """
    holds_symbol = regex.compile(r"\L<symbols>", symbols=symbols).search if symbols else None
    long = [text for text in scores if len(text) > 1 and not (holds_symbol and holds_symbol(text))]
    # With equal scores, the leftmost is joined first.  The longest first
    # does the same for runs of one character, all of which are equal: joining goes from
    # the left, and only what was joined last can be part of more than two characters.
    long.sort(key=lambda text: (-scores[text], -len(text)))
    ranks = {text: rank for rank, text in enumerate(long)}
    # SentencePiece also joins characters that are not pieces, so all start as symbols.
    ranks.update({char: len(long) for text in long for char in text})
    merges = recover_merges(ranks)
    for left, right in merges:
        for part in (left, right, left + right):
            if part not in usable:
                raise ValueError(
                    f"{core.shorten(left + right)} is joined from {core.shorten(left)} and "
                    f"{core.shorten(right)}, but {core.shorten(part)} is unused, or not a token; "
                    "this is not supported"
                )
    _check_ties(merges, scores)
    return merges


def _check_ties(merges: list[tuple[str, str]], scores: Mapping[str, float]) -> None:
    """Raise for equal scores if the order of joining these pieces matters.

    It doesn't matter for runs of one character, see `merges_by_score`.  It doesn't matter
    either if the joined pieces never overlap and are in no piece of at least that score:
    then joining one takes no part from another, and makes no further join come first.
    """
    by_score: dict[float, list[tuple[str, str]]] = {}
    for left, right in merges:
        by_score.setdefault(scores[left + right], []).append((left, right))
    n_runs = Counter(_run_of(left + right) for left, right in merges)
    best_use: dict[str, str] = {}  # part -> the piece of the highest score made of it
    for left, right in sorted(merges, key=lambda merge: scores[merge[0] + merge[1]]):
        best_use[left] = best_use[right] = left + right
    for score, tied in by_score.items():
        char = _run_of("".join(left + right for left, right in tied))
        if len(tied) == 1 or (char and n_runs[char] == len(tied)):
            continue
        made = {left + right for left, right in tied}
        leads = ((part, best_use[part]) for part in made if part in best_use)
        clash = next((pair for pair in leads if scores[pair[1]] >= score), _overlap(tied))
        if clash:
            first, second = map(core.shorten, clash)
            raise ValueError(
                f"{len(tied)} joined pieces have the score {score:g}, and which of {first} and "
                f"{second} is joined first changes the ids; give them different scores"
            )


def _overlap(tied: list[tuple[str, str]]) -> tuple[str, str] | None:
    """Find two different pieces where one's last part is the other's first."""
    by_left: dict[str, set[str]] = {}
    for left, right in tied:
        by_left.setdefault(left, set()).add(left + right)
    for left, right in tied:
        for other in by_left.get(right, set()) - {left + right}:
            return left + right, other
    return None


def _run_of(text: str) -> str:
    """Return the character that a text repeats, or ""."""
    return text[0] if text.count(text[0]) == len(text) else ""
