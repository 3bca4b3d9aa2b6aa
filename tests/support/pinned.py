"""Matches with the classes of characters of the library's own version of Unicode.

The installed `regex` has the Unicode of its day, so what it finds in any text isn't what is right.
tests/module/test_unicode.py compares the library's classes with tiktoken's, and three releases of
`regex` with each other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from bpe_tokenizer_tools import core

compiled = functools.lru_cache(maxsize=256)(core.Pattern)


def finditer(pattern: str, text: str, **options: Any) -> Iterator[tuple[int, int]]:
    """Yield where a pattern matches."""
    return (found.span() for found in compiled(pattern).finditer(text, **options))


def findall(pattern: str, text: str) -> list[str]:
    """Return what a pattern matches, whatever groups it has."""
    return [text[start:end] for start, end in finditer(pattern, text)]


def pieces(pattern: str, text: str, **options: Any) -> list[str]:
    """Cut a text by a pattern; text between matches is a piece, too."""
    places = {0, len(text)}.union(*finditer(pattern, text, **options))
    borders = sorted(places)
    return [text[a:b] for a, b in zip(borders, borders[1:])]
