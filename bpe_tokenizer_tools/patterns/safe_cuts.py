"""Where text may be cut so that its parts can be split into pre-tokens on their own.

The tree of a split pattern proves it.  Of the named patterns bpe_tokenizer.py has the same cuts in
a table, written by hand.  tests/module/test_pretokens.py checks that they are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from bpe_tokenizer_tools.patterns import algebra

_MAX_PAIRS = 10_000  # the patterns in use have about 100


def _pairs(node: algebra.Node, pairs: set[tuple[str, str]]) -> tuple[bool, set[str], set[str]]:
    """Collect which one-character pieces of a pattern can follow one another.

    Args:
        node: a pattern tree.
        pairs: gains (piece, next piece), over every path a matcher may try,
            those that only look ahead included.

    Returns:
        (may match nothing, possible first pieces, possible last pieces).
    """
    if isinstance(node, algebra.Chars):
        return False, {node.pattern}, {node.pattern}
    if isinstance(node, algebra.Anchor):
        if node.source not in ("$", "\\Z"):  # looks behind, where text may be cut off
            raise algebra.UnknownConstructError(node.source)
        if node.source == "$":  # also looks whether anything follows a newline
            _join({"\\n"}, {"[\\s\\S]"}, pairs)
        return True, {"[\\s\\S]"}, set()  # NOTE: a cut would look like the end of the text
    if isinstance(node, algebra.Repeat):
        empty, first, last = _pairs(node.item, pairs)
        _join(last, first, pairs)
        return empty or node.low == 0, first, last
    if isinstance(node, algebra.Group):
        if node.prefix.startswith("(?<"):
            raise algebra.UnknownConstructError(node.prefix)
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
        _join(lasts, first, pairs)
        firsts |= first if all_empty else set()
        lasts = last | (lasts if empty else set())
        all_empty = all_empty and empty
    return all_empty, firsts, lasts


def _join(lasts: set[str], firsts: set[str], pairs: set[tuple[str, str]]) -> None:
    if len(lasts) * len(firsts) > _MAX_PAIRS:
        raise algebra.UnknownConstructError("a pattern of this size")
    pairs.update(itertools.product(lasts, firsts))


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

    Both depend on x and y alone.  In most patterns the end of a word is a cut:
    after a letter, only letters continue a match.

    Returns:
        A pattern that finds the last cut, or None if none can be proven.
    """
    pairs: set[tuple[str, str]] = set()
    starts = sorted(set(_sure_starts(tree)))
    try:
        _pairs(tree, pairs)
    except algebra.UnknownConstructError:
        return None
    if not starts:
        return None
    before: dict[str, list[str]] = {}
    for x, y in sorted(pairs):
        before.setdefault(y, []).append(x)
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
