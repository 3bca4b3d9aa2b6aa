r"""Split patterns for Python's own `re`, which is the faster engine.

`re` knows no Unicode properties.  So each set of characters is spelled out, up to U+FFFF: a
pattern made here is right for text without characters above that.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable

import regex

from bpe_tokenizer_tools.patterns.algebra import (
    Anchor,
    Chars,
    PatternParser,
    UnknownConstructError,
    spell,
)

_BMP = "".join(map(chr, range(0x10000)))  # surrogates included: they match as text


@functools.lru_cache(maxsize=256)
def bmp_set(pattern: str) -> str:
    r"""Expand a one-character pattern to a `re` set over the Basic Multilingual Plane.

    >>> print(bmp_set(r"(?i:s)"))
    [\u0053\u0073\u017f]
    """
    points = (found.start() for found in regex.finditer(pattern, _BMP))
    ranges = []
    for _, run in itertools.groupby(enumerate(points), lambda pair: pair[1] - pair[0]):
        members = [point for _, point in run]
        first, last = members[0], members[-1]
        ranges.append(f"\\u{first:04x}" + (f"-\\u{last:04x}" if last > first else ""))
    return f"[{''.join(ranges)}]" if ranges else "(?!)"


def _leaf(node: Chars | Anchor) -> str:
    if isinstance(node, Anchor):
        if node.source in ("\\b", "\\B"):  # the two engines disagree on what a word is
            raise UnknownConstructError(node.source)
        return node.source
    single = len(node.source) == 1 and not node.ignore_case and node.source != "."
    return re.escape(node.source) if single else bmp_set(node.pattern)


def finder(pattern: str) -> Callable[[str], list[str] | None] | None:
    """Return what finds all matches of a split pattern by `re`; None if that cannot say the same.

    It gives None for text that holds a character above U+FFFF: the classes have none of those.
    """
    try:
        found = re.compile(spell(PatternParser(pattern).parse(), _leaf).replace("(?i:", "(?:"))
    except (UnknownConstructError, RecursionError, re.error):  # possessive and atomic need 3.11
        return None

    def find_all(text: str) -> list[str] | None:
        # A character above U+FFFF takes two UTF-16 code units, all others one.
        if text.isascii() or len(text.encode("utf-16-le", "surrogatepass")) == 2 * len(text):
            return found.findall(text)
        return None

    return find_all
