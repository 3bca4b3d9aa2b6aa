"""The tokens of a vocabulary by Unicode script.

Only the characters of a token that belong to a script count: white space, numbers, most
punctuation and some marks are used with all scripts.  So " the", "don't" and "x1" are Latin.  A
token is in

- a script, if all its characters that have a script have that one;
- "several scripts", such as a Japanese word in kanji and kana;
- "white space", if it has nothing else;
- "digits", if it has only digits (numbers of any kind), with or without white space;
- "punctuation and symbols", if it has no letters of a script; control characters, too;
- "part of a character", if its bytes alone are not UTF-8.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import regex

SEVERAL, PARTIAL = "several scripts", "part of a character"
SPACE, DIGITS, SYMBOLS = "white space", "digits", "punctuation and symbols"
ANOTHER = "another script"
CLASSES = (SEVERAL, SYMBOLS, DIGITS, SPACE, PARTIAL)  # the classes that aren't scripts

# Scripts in use today, those with many tokens first; all others are "another script".
_SCRIPTS = """
    Latin Han Cyrillic Hangul Arabic Hiragana Katakana Greek Hebrew Thai Devanagari Bengali Armenian
    Georgian Tamil Telugu Kannada Malayalam Gujarati Gurmukhi Oriya Sinhala Khmer Lao Myanmar
    Tibetan Ethiopic Mongolian Thaana Syriac Cherokee Canadian_Aboriginal Bopomofo Yi Tifinagh Nko
    Vai Bamum Javanese Balinese Sundanese Cham Lisu Ol_Chiki Meetei_Mayek Tai_Le New_Tai_Lue
    Tai_Tham Tai_Viet Lepcha Limbu Buginese Batak Rejang Kayah_Li Saurashtra Syloti_Nagri Tagalog
    Hanunoo Buhid Tagbanwa Samaritan Mandaic Adlam Osage Newa Chakma Miao Wancho Coptic Runic Ogham
    Gothic Braille
"""


@dataclass(frozen=True)
class Allocation:
    """The tokens of one script, or one class of tokens."""

    tokens: int  # how many there are
    share: float  # of all tokens except special ones, 0 to 1
    mean_characters: float | None  # the mean length in characters; None for parts of characters
    mean_bytes: float  # the mean length in bytes


def allocate(tokens: Iterable[bytes]) -> dict[str, Allocation]:
    """Count tokens by script or class, the largest first.

    >>> list(allocate([b"a", b" the", "д".encode(), b"12"]))
    ['Latin', 'Cyrillic', 'digits']
    """
    members: dict[str, list[bytes]] = {}
    for token in tokens:
        members.setdefault(class_of(token), []).append(token)
    total = sum(map(len, members.values()))
    allocations = {}
    for name, found in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])):
        n, n_bytes, characters = len(found), sum(map(len, found)), None
        if name != PARTIAL:
            characters = sum(len(token.decode()) for token in found) / n
        allocations[name] = Allocation(n, n / total, characters, n_bytes / n)
    return allocations


def class_of(token: bytes) -> str:
    r"""Return the script of a token, or the class of those that have none.

    >>> class_of(b" don't"), class_of("漢字かな".encode()), class_of(b"\xe6\xbc")
    ('Latin', 'several scripts', 'part of a character')
    """
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return PARTIAL
    scripts = set(map(_script_of, text)) - {None}
    if scripts:
        return scripts.pop() or SYMBOLS if len(scripts) == 1 else SEVERAL
    visible = "".join(text.split())
    if not visible:
        return SPACE if text else SYMBOLS
    return DIGITS if regex.fullmatch(r"\p{N}+", visible) else SYMBOLS


@functools.lru_cache(maxsize=1)
def _script_pattern() -> regex.Pattern[str]:
    known = "|".join(rf"(?P<{name}>\p{{Script={name}}})" for name in _SCRIPTS.split())
    return regex.compile(
        rf"(?P<none>[\p{{Script=Common}}\p{{Script=Inherited}}\p{{C}}\p{{N}}])|{known}"
    )


@functools.lru_cache(maxsize=1 << 17)
def _script_of(character: str) -> str | None:
    found = _script_pattern().match(character)
    if found is None:
        return ANOTHER
    name = str(found.lastgroup)
    return None if name == "none" else name.replace("_", " ")
