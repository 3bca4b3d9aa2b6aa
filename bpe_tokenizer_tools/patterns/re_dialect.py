r"""Split patterns for Python's own `re`, which is faster.

`re` has no Unicode properties, so each set of characters is listed in full, up to U+FFFF: a
pattern made here is right for text without characters above that.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from bpe_tokenizer_tools.patterns.algebra import (
    Anchor,
    Chars,
    PatternParser,
    UnknownConstructError,
    spell,
)
from bpe_tokenizer_tools.patterns.characters import BMP, members, spelled
from bpe_tokenizer_tools.patterns.families import FAMILIES
from bpe_tokenizer_tools.patterns.known import SPELLINGS
from bpe_tokenizer_tools.patterns.oniguruma import from_oniguruma


@functools.lru_cache(maxsize=256)
def bmp_set(pattern: str) -> str:
    r"""Expand a one-character pattern to a `re` set over the Basic Multilingual Plane.

    >>> print(bmp_set(r"(?i:s)"))
    [\u0053\u0073\u017f]
    """
    found = members(pattern, BMP)  # surrogates included: they match as text
    return f"[{spelled(found)}]" if found else "(?!)"


# Listing a set takes up to 20 ms, and `re` compiles 3 MB per second.  Patterns that take more
# than this are left to `regex`.  Those in use have up to 18 sets and 49,000 characters.
_MAX_SETS, _MAX_LENGTH = 100, 200_000


class _Speller:
    """Spells the characters and anchors of one pattern tree."""

    def __init__(self) -> None:
        self._sets: set[str] = set()
        self._length = 0

    def __call__(self, node: Chars | Anchor) -> str:
        if isinstance(node, Anchor):
            if node.source in ("\\b", "\\B"):  # the engines disagree on what a word is
                raise UnknownConstructError(node.source)
            return node.source
        if len(node.source) == 1 and not node.ignore_case and node.source != ".":
            return re.escape(node.source)
        self._sets.add(node.pattern)
        written = bmp_set(node.pattern) if len(self._sets) <= _MAX_SETS else ""
        self._length += len(written)
        if not written or self._length > _MAX_LENGTH:
            raise UnknownConstructError("a pattern of this size")
        return written


def finder(pattern: str) -> Callable[[str], list[str] | None] | None:
    """Return a function that finds all matches of a split pattern with `re`, or None.

    None means that `re` can't express the pattern, or that its sets exceed the budget above.  The
    function returns None for text with characters above U+FFFF, which the sets lack.
    """
    try:
        found = re.compile(spell(PatternParser(pattern).parse(), _Speller()).replace("(?i:", "(?:"))
    except (UnknownConstructError, RecursionError, re.error):  # possessive and atomic need 3.11
        return None

    def find_all(text: str) -> list[str] | None:
        # A character above U+FFFF takes two UTF-16 code units, all others one.
        if text.isascii() or len(text.encode("utf-16-le", "surrogatepass")) == 2 * len(text):
            return found.findall(text)
        return None

    return find_all


def finder_in_use(pattern: str) -> Callable[[str], list[str] | None] | None:
    """Return the `finder` of a pattern that models use; None for all others.

    `re` can't be stopped, and a stranger's pattern may backtrack without end.
    """
    return finder(pattern) if pattern in _in_use() else None


@functools.cache
def _in_use() -> frozenset[str]:
    steps = [step for family in FAMILIES.values() for step in family.steps]
    written = (step["pattern"]["Regex"] for step in steps if "pattern" in step)
    return frozenset([*SPELLINGS, *map(from_oniguruma, written)])
