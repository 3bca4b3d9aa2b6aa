"""Text that is hard to cut: characters that split patterns treat specially, and lookalikes."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st
from oracles import share

ATOMS = [
    *["'", "'s", "'S", "'ſ", "'ll", "'Re", "'VE", "'t", "'d", "'m", "x's", "don't", "’s"],
    *["\r", "\n", "\r\n", " ", "  ", "\t", "\x0b", "\x85", "\u00a0", "\u2028", "\u3000", "\x1c"],
    *["\u0301", "\u0903", "\u20dd", "ǅ", "ʰ", "ª", "a", "B", "ab", "Ab", "aB", "é", "É", "ß"],
    *["中", "文", "한", "ก", "ﬁ", "𐐀", "𐐨", "\U00020000", "1", "12", "1234", "٣", "²", "Ⅷ", "𝟘"],
    *["/", "//", "!", "?!", "_", "-", "€", "…", "😀", "\0", "l", "e", "v", "r", "s", "T"],
    # DeepSeek-V3's: kana and Han, lookalikes that are neither, and characters of no class
    *["の", "カ", "ー", "・", "゠", "゛", "\u3099", "\u3040", "\u3098", "龥", "龦", "“", "+", "~Z"],
    *["\x01", "\x7f", "\u00ad", "\u200d", "\ue000", "!a", "'é", "a\u0301"],
]

hard_text = st.text() | st.lists(st.sampled_from(ATOMS), max_size=100).map("".join)

# {} is each character in turn; the contexts decide what it may be part of.
CONTEXTS = ["a{}B '{} {}9", "{}{}a!{}'s\n{}\t{}/", "'r{}A{}", "  {}1 {}の {}  中"]


# Every character except surrogates.  Of planes that are unassigned or private, only some: their
# 65,536 code points are all alike.  With a share of the examples, also only some of the scripts
# after kana, which are many and alike.
_CODES = [*range(0x3100), *share([*range(0x3100, 0xD800), *range(0xE000, 0x40000)])]
_CODES += [*range(0x40000, 0x110000, 251), *range(0xE0000, 0xE0200)]
CHARACTERS = [chr(code) for code in _CODES]


def every_character(
    context: str, leave_out: frozenset[str] = frozenset(), step: int = 0x8000
) -> Iterator[str]:
    """Yield texts that put every character into a context."""
    chars = [char for char in CHARACTERS if char not in leave_out]
    for first in range(0, len(chars), step):
        yield "".join(context.replace("{}", char) for char in chars[first : first + step])
