"""The classes of characters that the tables in C distinguish."""

from __future__ import annotations

import regex

_KANA = r"(?=[\u3040-\u30ff\u4e00-\u9fa5])"

# Name, pattern, meaning.  The order gives each its number.  The last that matches a character
# counts; if none does, the first.
CHARACTER_CLASSES: tuple[tuple[str, str, str], ...] = (
    ("OTHER", "", "controls, format characters, unassigned"),
    ("MARK", r"\p{M}", "combining marks"),
    ("LOWER", r"\p{Ll}", "lower-case letters"),
    ("UPPER", r"[\p{Lu}\p{Lt}]", "upper-case and title-case letters"),
    ("LETTER", r"[\p{Lm}\p{Lo}]", "letters without case"),
    ("NUMBER", r"\p{N}", "digits and numbers of every script"),
    ("BLANK", r"[^\S\r\n]", "white space, except the two below"),
    ("NEWLINE", r"[\r\n]", "carriage return and line feed"),
    ("SIGN", r"[\p{P}\p{S}]", "punctuation and symbols"),
    # What DeepSeek-V3 takes for kana and Han, once more.
    ("KANA_LETTER", rf"{_KANA}\p{{L}}", "letters among it"),
    ("KANA_MARK", rf"{_KANA}\p{{M}}", "combining marks"),
    ("KANA_SIGN", rf"{_KANA}[\p{{P}}\p{{S}}]", "punctuation and symbols"),
    ("KANA_OTHER", rf"{_KANA}[^\p{{L}}\p{{M}}\p{{P}}\p{{S}}]", "unassigned"),
)


_PLANE = 0x10000
# Only what is in some class but the first.  Eleven of the planes have no such character, and one
# search sees that, in a tenth of the time that all searches would take.
_CLASSED = regex.compile(r"[\p{M}\p{L}\p{N}\s\p{P}\p{S}]")


def character_classes() -> bytes:
    """Return the class of each code point, a byte each, as the `regex` in use has it."""
    classes = bytearray(17 * _PLANE)
    for first in range(0, len(classes), _PLANE):
        plane = "".join(map(chr, range(first, first + _PLANE)))  # `regex` takes surrogates, too
        if not _CLASSED.search(plane):
            continue
        for number, (_, pattern, _) in enumerate(CHARACTER_CLASSES):
            for found in regex.finditer(f"(?:{pattern})+", plane) if pattern else ():
                start, end = found.span()
                classes[first + start : first + end] = bytes([number]) * (end - start)
    return bytes(classes)
