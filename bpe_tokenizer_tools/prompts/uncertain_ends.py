"""How far the end of a text may still change when it is normalized with what follows.

NFC joins "e" and the accent after it to "é".  So in a longer text, the last character of a prompt
may be another one, and with it the cuts and tokens before it.  What comes before the last starter,
a character that is no mark, never changes.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.training import sentencepiece_text

# Where the characters are that NFC composes, other than Hangul.
_COMPOSED = (range(0xC0, 0x3100), range(0x11000, 0x11B00))
_HANGUL = (range(0x1100, 0x1113), range(0xAC00, 0xD7A4))  # what a vowel or a last letter can join


def changes_from(text: str, form: str | None) -> int | None:
    """Return where the end of a text begins that later text may change; None if nowhere.

    `form` is a normal form, or the name of one of SentencePiece's rules.

    >>> changes_from("cafe", "NFC"), changes_from("cafe!", "NFC"), changes_from("cafe", None)
    (3, None, None)
    """
    if form is None or not text:
        return None
    at = sentencepiece_text.last_border(text, form) or 0
    end = sentencepiece_text.normalizer(form)(text[at:])
    return at if not end or _may_change(end[-1], form) else None


@functools.lru_cache(maxsize=2**12)
def _may_change(char: str, form: str) -> bool:
    """Return whether a character that ends a normalized text may join what follows."""
    if core.APART.match(char) is None or unicodedata.combining(char):
        return True  # others may come before it, or join what it joins
    if form in ("NFD", "NFKD"):
        return False
    is_hangul = any(ord(char) in part for part in _HANGUL)
    return is_hangul or core.normalize(char, "NFD")[0] in _bases()


@functools.cache
def _bases() -> frozenset[str]:
    """Return the characters that NFC composes with a mark."""
    found = set()
    for char in map(chr, itertools.chain(*_COMPOSED)):
        parts = core.normalize(char, "NFD")
        if len(parts) > 1 and core.normalize(char, "NFC") == char:
            found.add(parts[0])
    return frozenset(found)
