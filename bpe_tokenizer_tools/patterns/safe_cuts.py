"""Where text may be cut so that its parts can be split into pre-tokens on their own.

The tree of a split pattern proves it.  Of the named patterns bpe_tokenizer.py has the same cuts in
a table, written by hand.  tests/module/test_pretokens.py checks that they are the same.

The proof looks at pairs of pieces, and a pattern of n characters can have n * n of them.  So it has
a budget, hundreds of times what the patterns in use take.  A pattern that exceeds it counts as one
without safe cuts: `encode` gives the same ids, and what reads text in chunks holds more of it back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from bpe_tokenizer_tools.patterns import algebra

_MAX_PAIRS = 100_000  # equal ones count each time; the patterns in use have about 100
_MAX_LENGTH = 50_000  # of a `cut_pattern`, in characters; theirs have up to 1,400


class _Pairs:
    """The (piece, next piece) that were found, and how many more to look at."""

    def __init__(self) -> None:
        self.found: set[tuple[str, str]] = set()
        self._left = _MAX_PAIRS

    def join(self, lasts: set[str], firsts: set[str]) -> None:
        """Add each of some pieces with each that follows it."""
        self._left -= len(lasts) * len(firsts)
        if self._left < 0:
            raise algebra.UnknownConstructError("a pattern of this size")
        self.found.update(itertools.product(lasts, firsts))


def _pairs(node: algebra.Node, pairs: _Pairs) -> tuple[bool, set[str], set[str]]:
    """Collect which one-character pieces of a pattern can follow one another.

    Args:
        node: a pattern tree.
        pairs: gains those of every path a matcher may try, also those that only look ahead.

    Returns:
        (may match nothing, possible first pieces, possible last pieces).
    """
    if isinstance(node, algebra.Chars):
        return False, {node.pattern}, {node.pattern}
    if isinstance(node, algebra.Anchor):
        if node.source not in ("$", "\\Z"):  # looks behind, where text may be cut off
            raise algebra.UnknownConstructError(node.source)
        if node.source == "$":  # also looks whether anything follows a newline
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
            )  # whatever it is looking for: it looks at one character
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
    r"""Yield pieces of which one character, whatever surrounds it, starts a match.

    They come from alternatives such as `` ?\p{L}+``: one piece is required, all
    else may be left out, and nothing looks around.
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

    - no path through the pattern, not even one that fails or looks ahead, reads
      x and then y.  So no match spans the cut, and what matches before it is
      decided by the text up to y;
    - y starts a match whatever surrounds it.  So the cut is a border of
      pre-tokens, and nothing in the pattern looks behind it.

    What looks behind at one character reads that and the next one.

    Both depend on x and y alone.  In most patterns the end of a word is a cut:
    after a letter, only letters continue a match.

    Returns:
        A pattern that finds the last cut; None if none can be proven, or not within the budget.
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

    What the parser does not know might match it, and has no cuts.
    """
    try:
        tree = algebra.PatternParser(pattern).parse()
        return (False, None) if algebra.may_be_empty(tree) else (True, cut_pattern(tree))
    except (algebra.UnknownConstructError, RecursionError):
        return False, None
