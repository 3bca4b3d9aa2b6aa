r"""Words, and the text between them.

A word is a run of letters, marks and digits; it may contain apostrophes between two of these.  In
scripts that put no space between words, each letter is a word, with the marks on it.  Between
words are runs of white space, and runs of everything else: punctuation and symbols.

A whole stretch of text is cut at once, by looking up the kind of each character.

>>> Pieces("don't  stop 3x, 日本語").texts()
["don't", '  ', 'stop', ' ', '3x', ',', ' ', '日', '本', '語']
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import regex

from bpe_tokenizer_tools import core

numpy = core.import_optional("numpy", "counting words", "numpy")

OTHER, WORD, SOLO, SPACE = 0, 1, 2, 3  # kinds of pieces; SOLO is a word of one letter
_MARK, _APOSTROPHE = 4, 5  # of characters only

UNSPACED_SCRIPTS = (
    "Balinese Bopomofo Han Hiragana Javanese Katakana Khmer Lao Myanmar New_Tai_Lue Tai_Le "
    "Tai_Tham Thai Yi"
)


@functools.lru_cache(maxsize=1)
def _kinds() -> Any:
    """Return the kind of each character, by code point."""
    table = numpy.zeros(0x110000, numpy.uint8)
    characters = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    unspaced = "".join(rf"\p{{scx={script}}}" for script in UNSPACED_SCRIPTS.split())
    for kind, pattern in (
        (WORD, r"[\p{L}\p{N}]+"),
        (SOLO, rf"(?V1)[\p{{L}}&&[{unspaced}]]+"),
        (SPACE, r"\s+"),
        (_MARK, r"\p{M}+"),
        (_APOSTROPHE, r"['’]"),
    ):
        for found in regex.finditer(pattern, characters):
            first, last = ord(found[0][0]), ord(found[0][-1])
            table[first : last + 1] = kind
    table[0xD800:0xE000] = OTHER  # a run across them
    return table


class Pieces:
    """A text cut into words and the pieces between them, and also at the characters `cuts`."""

    def __init__(self, text: str, cuts: Sequence[int] = ()) -> None:
        self.data = text.encode()
        points = numpy.frombuffer(text.encode("utf-32-le"), numpy.uint32)
        sizes = 1 + (points > 0x7F) + (points > 0x7FF).astype(numpy.int64) + (points > 0xFFFF)
        # where each character begins, and then where the text ends
        self.byte_at = numpy.concatenate([[0], numpy.cumsum(sizes, dtype=numpy.int64)])
        kinds, begins = _cut(_kinds()[points])
        begins[numpy.asarray(cuts, numpy.int64)] = True
        first = numpy.flatnonzero(begins)
        # where each piece begins, in bytes, and its kind: OTHER, WORD, SOLO or SPACE
        self.starts, self.kinds = self.byte_at[first], kinds[first]
        self.ends = numpy.concatenate([self.starts[1:], self.byte_at[-1:]])

    @property
    def words(self) -> Any:
        """The indices of the pieces that are words."""
        return numpy.flatnonzero((self.kinds == WORD) | (self.kinds == SOLO))

    def text(self, index: int) -> str:
        """Return one piece."""
        return self.data[self.starts[index] : self.ends[index]].decode()

    def texts(self) -> list[str]:
        """Return all pieces; joined, they are the text."""
        return [self.text(index) for index in range(len(self.starts))]


def _cut(kinds: Any) -> tuple[Any, Any]:
    """Return the kind of piece that each character is part of, and where pieces begin."""
    marks = kinds == _MARK
    # A mark has the kind of its base character.
    bearer = numpy.maximum.accumulate(numpy.where(marks, 0, numpy.arange(len(kinds))))
    kinds = kinds[bearer] if len(kinds) else kinds
    kinds[marks & ((kinds == SPACE) | (kinds == _MARK))] = OTHER  # or it has no base character
    letters = kinds == WORD
    inner = kinds == _APOSTROPHE
    inner[1:-1] &= letters[:-2] & letters[2:]
    inner[:1] = inner[-1:] = False
    kinds[inner] = WORD
    kinds[kinds == _APOSTROPHE] = OTHER
    begins = numpy.ones(len(kinds), bool)
    begins[1:] = (kinds[1:] != kinds[:-1]) | ((kinds[1:] == SOLO) & ~marks[1:])
    return kinds, begins
