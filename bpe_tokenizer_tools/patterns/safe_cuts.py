"""Safe cuts: places where text can be cut into parts that are split independently.

The tree of a split pattern proves them.  For the named patterns, bpe_tokenizer.py has the same cuts
in a handwritten table; tests/module/test_pretokens.py checks that they are the same.

The proof looks at pairs of pieces, and a pattern of n characters can have n * n of them.  So it has
a budget, hundreds of times what the patterns in use need.  A pattern that exceeds it has no safe
cuts: `encode` gives the same ids, but streaming holds more text back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns import algebra

_MAX_PAIRS = 100_000  # equal ones count each time; the patterns in use have about 100
_MAX_LENGTH = 50_000  # of a `cut_pattern`, in characters; those in use have up to 1,400


class _Pairs:
    """The (piece, next piece) found, and how many more to look at."""

    def __init__(self) -> None:
        self.found: set[tuple[str, str]] = set()
        self._left = _MAX_PAIRS

    def join(self, lasts: set[str], firsts: set[str]) -> None:
        """Add each pair of a piece and one that can follow it."""
        self._left -= len(lasts) * len(firsts)
        if self._left < 0:
            raise algebra.UnknownConstructError("a pattern of this size")
        self.found.update(itertools.product(lasts, firsts))


def _pairs(node: algebra.Node, pairs: _Pairs) -> tuple[bool, set[str], set[str]]:
    """Collect which one-character pieces of a pattern can follow one another.

    Args:
        node: a pattern tree.
        pairs: gets the pairs of every path a matcher may try, including lookaheads.

    Returns:
        (may match nothing, possible first pieces, possible last pieces).
    """
    if isinstance(node, algebra.Chars):
        return False, {node.pattern}, {node.pattern}
    if isinstance(node, algebra.Anchor):
        if node.source not in ("$", "\\Z"):  # looks behind, where the text may have been cut
            raise algebra.UnknownConstructError(node.source)
        if node.source == "$":  # also checks whether anything follows a newline
            pairs.join({"\\n"}, {"[\\s\\S]"})
        return True, {"[\\s\\S]"}, set()  # NOTE: a cut would look like the end of the text
    if isinstance(node, algebra.Repeat):
        empty, first, last = _pairs(node.item, pairs)
        pairs.join(last, first)
        return empty or node.low == 0, first, last
    if isinstance(node, algebra.Group):
        if node.prefix.startswith("(?<"):
            if not isinstance(node.item, algebra.Chars):
                raise algebra.UnknownConstructError(node.prefix)
            return (
                True,
                set(),
                {"[\\s\\S]"},
            )  # it looks at one character, whatever it looks for
        empty, first, last = _pairs(node.item, pairs)
        looks = node.prefix in ("(?=", "(?!")
        return (True, first, set()) if looks else (empty, first, last)
    if isinstance(node, algebra.Either):
        parts = [_pairs(option, pairs) for option in node.options]
        return (
            any(empty for empty, _, _ in parts),
            set().union(*(first for _, first, _ in parts)),
            set().union(*(last for _, _, last in parts)),
        )
    all_empty, firsts, lasts = True, set[str](), set[str]()
    for item in node.items:
        empty, first, last = _pairs(item, pairs)
        pairs.join(lasts, first)
        firsts |= first if all_empty else set()
        lasts = last | (lasts if empty else set())
        all_empty = all_empty and empty
    return all_empty, firsts, lasts


def _sure_starts(node: algebra.Node) -> Iterator[str]:
    r"""Yield pieces whose one character starts a match in any context.

    They come from alternatives such as `` ?\p{L}+``: one piece is required, the
    others are optional, and nothing looks around.
    """
    if isinstance(node, algebra.Either):
        for option in node.options:
            yield from _sure_starts(option)
        return
    if isinstance(node, algebra.Group) and node.prefix in ("(?:", "(?i:"):
        yield from _sure_starts(node.item)
        return
    items = node.items if isinstance(node, algebra.Concat) else (node,)
    optional = [isinstance(item, algebra.Repeat) and item.low == 0 for item in items]
    if optional.count(False) != 1:
        return
    required = optional.index(False)
    item = items[required]
    if isinstance(item, algebra.Repeat) and item.low == 1:
        item = item.item
    # NOTE: a possessive or complex part before it could swallow the character.
    simple = all(
        isinstance(before, algebra.Repeat)
        and isinstance(before.item, algebra.Chars)
        and before.mode != "+"
        for before in items[:required]
    )
    if simple and isinstance(item, algebra.Chars):
        yield item.pattern


def cut_pattern(tree: algebra.Node) -> str | None:
    """Return the pattern of safe cuts: places where text can be split apart.

    A cut is a place between characters x and y such that

    - no path through the pattern, including failing ones and lookaheads, reads
        x and then y.  So no match spans the cut, and the text up to y decides the
        matches before it;
    - y starts a match in any context.  So the cut is a border of
      pre-tokens, and nothing in the pattern looks behind it.

    A lookbehind at one character counts as reading it and the next one.

    Both depend on x and y alone.  In most patterns the end of a word is a cut:
    after a letter, only letters continue a match.

    Returns:
        A pattern that finds the last cut; None if no cut can be proven within the budget.
    """
    pairs = _Pairs()
    starts = sorted(set(_sure_starts(tree)))
    try:
        _pairs(tree, pairs)
    except algebra.UnknownConstructError:
        return None
    if not starts:
        return None
    before: dict[str, list[str]] = {}
    for x, y in sorted(pairs.found):
        before.setdefault(y, []).append(x)
    length = sum(len(part) + 1 for part in (*starts, *before, *itertools.chain(*before.values())))
    if length > _MAX_LENGTH:  # `regex` takes 5 s and 280 MB to compile a million
        return None
    joined = [f"(?<={'|'.join(xs)})(?:{y})" for y, xs in before.items()] or ["(?!)"]
    return f"(?r)(?<=[\\s\\S])(?={'|'.join(starts)})(?!{'|'.join(joined)})"


def analyze(pattern: str) -> tuple[bool, str | None]:
    """Return whether a split pattern never matches the empty text, and its `cut_pattern`.

    A pattern the parser doesn't know might match it, and has no cuts.
    """
    try:
        tree = algebra.PatternParser(pattern).parse()
        return (False, None) if algebra.may_be_empty(tree) else (True, cut_pattern(tree))
    except (algebra.UnknownConstructError, RecursionError):
        return False, None


class Reads(NamedTuple):
    """Which characters a pattern looks at, of every path a matcher may try.

    Attributes:
        both: whether it may read one character and then another.
        begins: whether a match may begin with a character.
        ends: whether a match may end with one.
    """

    both: Callable[[str, str], bool]
    begins: Callable[[str], bool]
    ends: Callable[[str], bool]


def reads(tree: algebra.Node) -> Reads | None:
    """Return what a pattern reads; None if it may match nothing, or that is not known.

    Between two characters that it does not read one after the other, the matches of a text are
    those of both sides.
    """
    pairs = _Pairs()
    try:
        empty, firsts, lasts = _pairs(tree, pairs)
    except algebra.UnknownConstructError:
        return None
    if empty or algebra.may_be_empty(tree):
        return None
    following: dict[str, set[str]] = {}
    for x, y in pairs.found:
        following.setdefault(x, set()).add(y)
    both = [(core.Pattern(x), core.Pattern("|".join(ys))) for x, ys in following.items()]
    begins, ends = core.Pattern("|".join(firsts)), core.Pattern("|".join(lasts))
    return Reads(
        lambda x, y: any(left.fullmatch(x) and right.fullmatch(y) for left, right in both),
        lambda char: bool(begins.fullmatch(char)),
        lambda char: bool(ends.fullmatch(char)),
    )
