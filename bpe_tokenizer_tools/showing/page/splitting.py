r"""A split pattern for the page: classes of characters, and a pattern of classes.

JavaScript's regular expressions have another version of Unicode than this library, fold case
differently and have no possessive quantifiers.  So they never see the text.  Each character
becomes the number of its class: characters are in the same class if no part of the pattern
distinguishes them.  JavaScript matches a string of class numbers, with a pattern written in class
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns import algebra
from bpe_tokenizer_tools.patterns.characters import CODE_POINTS, members

_FIRST_CODE = 0x20  # class 0 is the character U+0020 of the string that is matched
_MOST_CLASSES = 0xD000  # beyond, the numbers would be surrogates

Runs = Sequence[tuple[int, int]]  # (first, one past the last) of code points, in order


class Split(NamedTuple):
    """How the page cuts text."""

    source: str  # a regular expression of JavaScript, over class numbers
    runs: list[tuple[int, int]]  # (first code point, class) of each run of characters of one class


def _partition(sets: dict[str, Runs]) -> tuple[list[tuple[int, int]], dict[str, list[int]]]:
    """Find the coarsest classes that keep sets whole: runs as in `Split`, the classes by set."""
    changes: dict[int, set[str]] = {0: set()}
    for name, runs in sets.items():
        for border in (border for run in runs for border in run):
            changes.setdefault(border, set()).symmetric_difference_update({name})
    numbers: dict[frozenset[str], int] = {}
    inside: frozenset[str] = frozenset()
    found: list[tuple[int, int]] = []
    for border in sorted(changes):
        inside = inside ^ changes[border]
        if border < CODE_POINTS:
            found.append((border, numbers.setdefault(inside, len(numbers))))
    classes = {name: [n for within, n in numbers.items() if name in within] for name in sets}
    return found, classes


class _Writer:
    """Writes a pattern tree in JavaScript's syntax, each leaf as a set of class numbers."""

    def __init__(self, classes: dict[str, list[int]]) -> None:
        self._classes = classes
        self._captures = 0
        self._behind = False  # within a look-behind, which is matched from right to left

    def write(self, node: algebra.Node) -> str:
        if isinstance(node, algebra.Chars):
            return f"[{self._members(node.pattern)}]"
        if isinstance(node, algebra.Anchor):
            return self._anchor(node.source)
        if isinstance(node, algebra.Concat):
            return "".join(map(self.write, node.items))
        if isinstance(node, algebra.Either):
            return "|".join(map(self.write, node.options))
        if isinstance(node, algebra.Group):
            return self._group(node)
        if node.mode == "+":
            return self._atomic(node._replace(mode=""))
        return self.write(node.item) + node.quantifier + node.mode

    def _members(self, pattern: str) -> str:
        return "".join(f"\\u{_FIRST_CODE + number:04x}" for number in self._classes[pattern])

    def _anchor(self, source: str) -> str:
        if source in ("\\b", "\\B"):
            word = self._members("\\w")
            within, without = ("!", "=") if source == "\\b" else ("=", "!")
            return f"(?:(?<=[{word}])(?{within}[{word}])|(?<![{word}])(?{without}[{word}]))"
        new_line = self._members("\\n") if source == "$" else ""
        return {"\\A": "^", "\\Z": "$", "$": f"(?=[{new_line}]?$)"}[source]

    def _group(self, node: algebra.Group) -> str:
        if node.prefix == "(?>":
            return self._atomic(node.item)
        before, self._behind = self._behind, self._behind or node.prefix.startswith("(?<")
        prefix = "(?:" if node.prefix == "(?i:" else node.prefix
        written = f"{prefix}{self.write(node.item)})"
        self._behind = before
        return written

    def _atomic(self, node: algebra.Node) -> str:
        """Write an atomic group as a lookahead, which JavaScript never backtracks into."""
        if self._behind:
            raise algebra.UnknownConstructError("an atomic group within a look-behind")
        self._captures += 1
        number = self._captures
        return f"(?:(?=({self.write(node)}))\\{number})"


def translate(pattern: str) -> Split:
    r"""Translate a split pattern for the page's encoder.

    >>> print(translate("a+|.").source)
    [\u0022]+|[\u0020\u0022]

    Raises:
        ValueError: part of the pattern can't be translated exactly.
    """
    shown = core.shorten(pattern)
    try:
        tree = algebra.PatternParser(pattern).parse()
        runs, classes = _partition({leaf: members(leaf) for leaf in algebra.leaves(tree)})
        source = _Writer(classes).write(tree)
    except (algebra.UnknownConstructError, RecursionError) as error:
        raise ValueError(
            f"split pattern {shown}: {error} is not supported by the page's encoder"
        ) from None
    if algebra.may_be_empty(tree):
        raise ValueError(
            f"split pattern {shown} matches the empty string, which the page doesn't support"
        )
    if max(number for _, number in runs) >= _MOST_CLASSES:
        raise ValueError(f"split pattern {shown} distinguishes too many classes of characters")
    return Split(source, runs)
