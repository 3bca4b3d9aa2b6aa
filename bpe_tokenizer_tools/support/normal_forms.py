"""What the normal forms know of single characters, as of `NORMALIZATION_VERSION`.

`unicodedata` says it of any version of Unicode that Python has; of characters younger than the
version in use, it isn't asked.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata

from bpe_tokenizer_tools import core


def combining(char: str) -> int:
    """Return the canonical combining class of a character; 0 if no form moves it."""
    number = unicodedata.combining(char)
    return 0 if number and core.younger().match(char) else number


def composed_of(char: str) -> str:
    """Return the two characters that NFC composes to this one; "" if there are none.

    Syllables of Hangul are left out: their parts are computed.

    >>> composed_of("\u00e9") == "e\u0301"
    True
    """
    decomposition = unicodedata.decomposition(char)
    if " " not in decomposition or decomposition.startswith("<"):
        return ""
    if core.normalize(char, "NFC") != char or core.younger().match(char):
        return ""
    return "".join(chr(int(part, 16)) for part in decomposition.split())


@functools.cache
def composing_seconds() -> frozenset[str]:
    """Return the characters that compose with one before them, those of Hangul too."""
    points = itertools.chain(range(0xC0, 0x3100), range(0x11000, 0x12000))  # all that are composed
    pairs = filter(None, map(composed_of, map(chr, points)))
    hangul = map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)))
    return frozenset(pair[1] for pair in pairs).union(hangul)
