"""Which pieces SentencePiece's trainer allows: of one script, without digits, and so on.

Nearly all of these rules say that two characters can't be neighbors in a piece.  So words are cut
between them before merges are learned, and no merge joins them.  One rule looks further: a
combining mark has the script of what is before it in the piece.  So "\N{COMBINING ACUTE ACCENT}б"
is a piece if "б" follows the accent of a Latin letter only where that letter isn't in the piece.
Pieces with such marks are checked one by one.

Source: google/sentencepiece, src/trainer_interface.cc, IsValidSentencePiece.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from bpe_tokenizer_tools.training.scripts import INHERITED, script_of

_SPACE = "\u2581"
_DIGITS = frozenset("0123456789０１２３４５６７８９")  # those of other scripts are letters to it
_ANY = -1  # goes with every script


class PieceRules(NamedTuple):
    """What may be in one piece.

    Attributes:
        split_digits: a digit is a piece of its own.
        split_by_unicode_script: a piece has characters of one script.
        split_by_number: digits are of the script of punctuation; otherwise, of every script.
    """

    split_digits: bool = False
    split_by_unicode_script: bool = False
    split_by_number: bool = True

    def parts(self, word: str) -> Iterator[str]:
        """Cut a word between characters that no piece has side by side."""
        if not (self.split_digits or self.split_by_unicode_script):
            yield word
            return
        start = 0
        for at in range(1, len(word)):
            if _are_apart(self, word[at - 1], word[at]):
                yield word[start:at]
                start = at
        yield word[start:]

    def looks_further(self, alphabet: str) -> bool:
        """Return whether pieces of these characters must be checked with `allows`."""
        return self.split_by_unicode_script and any(
            script_of(char) == INHERITED for char in alphabet
        )

    def allows(self, piece: str) -> bool:
        """Return whether these characters may be one piece.

        >>> rules = PieceRules(split_by_unicode_script=True)
        >>> [rules.allows(piece) for piece in ("▁The", "F1", "1-2", "カ中", "don't")]
        [True, False, True, True, False]
        """
        if self.split_digits and len(piece) > 1 and not _DIGITS.isdisjoint(piece):
            return False
        if not self.split_by_unicode_script:
            return True
        before = _ANY
        for char in piece.replace(_SPACE, ""):
            script = self.script(char)
            if script == INHERITED:
                script = before
            if _ANY not in (before, script) and before != script:
                return False
            before = script
        return True

    def script(self, char: str) -> int:
        """Return the number of a character's script, or that of all scripts."""
        if char in _DIGITS and not self.split_by_number:
            return _ANY
        return script_of(char)


@functools.lru_cache(maxsize=2**16)
def _are_apart(rules: PieceRules, left: str, right: str) -> bool:
    """Return whether no piece can have these two characters side by side."""
    if rules.split_digits and (left in _DIGITS or right in _DIGITS):
        return True
    if not rules.split_by_unicode_script or _SPACE in (left, right):
        return False
    scripts = {rules.script(left), rules.script(right)}
    return len(scripts) == 2 and scripts.isdisjoint((_ANY, INHERITED))
