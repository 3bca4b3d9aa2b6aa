"""Characters as in those components of HuggingFace tokenizers that have a Unicode of their own.

Its patterns have the version that this library has, `UNICODE_VERSION`.  But Punctuation and
StripAccents have versions 8 and 9, and Digits and Lowercase have Rust's own, 17.  This file lists
the differences as ranges of hexadecimal code points, found by trying each one
(tests/formats/test_components.py).
"""

from __future__ import annotations

import functools

from bpe_tokenizer_tools import core

# In \p{P}, but not there.  (What is not assigned in this library's version may be listed, too.)
_NEWER_PUNCTUATION = """
    61D 9FD A76 C77 C84 1B4E-1B4F 1B7D-1B7F 2E43-2E4F 2E52-2E5D 2E60-2E63 10D6E 10EAD
    10ED0 10F55-10F59 10F86-10F89 113D4-113D5 113D7-113D8 1144B-1144F 1145A-1145B 1145D
    11660-1166C 116B9 1183B 11944-11946 119E2 11A3F-11A46 11A9A-11A9C 11A9E-11AA2
    11B00-11B09 11BE1 11C41-11C45 11C70-11C71 11EF7-11EF8 11F43-11F4F 11FFF 12FF1-12FF2
    16D6D-16D6F 16E97-16E9A 16FE2 1E5FF 1E95E-1E95F
"""
# There, but no longer in \p{P}.
_FORMER_PUNCTUATION = """
    166D 111C9
"""
# In \p{M}, but not there.
_NEWER_MARKS = """
    5C8-5C9 7FD 897-89F 8CA-8D3 9FE AFA-AFF B53-B55 C04 C3C CF3 D00 D3B-D3C D81 EBA ECE
    1715 180F 1ABF-1AF0 1CF7 1DF6-1DFA A82C A8FF 10D24-10D27 10D69-10D6D 10EAB-10EAC
    10ECB-10ECF 10EF0-10EFF 10F46-10F50 10F82-10F85 11070 11073-11074 110C2 11145-11146
    111C9 111CE-111CF 11241 1133B 113B8-113C0 113C2 113C5 113C7-113CA 113CC-113D0 113D2
    113E1-113E2 1145E 1182C-1183A 11930-11935 11937-11938 1193B-1193E 11940 11942-11943
    119D1-119D7 119DA-119E0 119E4 11A01-11A0A 11A33-11A39 11A3B-11A3E 11A47 11A51-11A5B
    11A8A-11A99 11B60-11B67 11D31-11D36 11D3A 11D3C-11D3D 11D3F-11D45 11D47 11D8A-11D8E
    11D90-11D91 11D93-11D97 11DF0 11EF3-11EF6 11F00-11F01 11F03 11F34-11F3A 11F3E-11F42
    11F5A 13440 13447-13455 1611E-1612F 16F4F 16F7F-16F87 16FE4 16FF0-16FF1 1CF00-1CF2D
    1CF30-1CF46 1D127-1D128 1D250-1D252 1D25B-1D25C 1D25F 1D280-1D281 1E08F 1E130-1E136
    1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 1E6EE-1E6EF 1E6F5
"""
# Not in \p{N}, but there.
_NEWER_NUMBERS = """
    11DE0-11DE9 16FF4-16FF6
"""
# Capital letters that the oldest supported Python doesn't know, and the distance to the small ones.
_NEWER_CAPITALS = """
    1C89+1 2C2F+30 A7C0+1 A7CB-A567 A7CC+1 A7CE+1 A7D0+1 A7D2+1 A7D4+1 A7D6+1 A7D8+1 A7DA+1
    A7DC-A641 10570:1057A+27 1057C:1058A+27 1058C:10592+27 10594:10595+27 10D50:10D65+20
    16EA0:16EB8+1B
"""


def _ranges(text: str) -> str:
    """Write hexadecimal ranges as the members of a set."""
    ends = (item.split("-") for item in text.split())
    return "".join("-".join(rf"\U{int(end, 16):08x}" for end in pair) for pair in ends)


# Each is a pattern of one character.
PUNCTUATION = (
    rf"(?:[!-/:-@\[-`{{-~{_ranges(_FORMER_PUNCTUATION)}]"
    rf"|(?![{_ranges(_NEWER_PUNCTUATION)}])\p{{P}})"
)
MARK = rf"(?:[\U00001cf2\U00001cf3]|(?![{_ranges(_NEWER_MARKS)}])\p{{M}})"
NUMBER = rf"[\p{{N}}{_ranges(_NEWER_NUMBERS)}]"


@functools.cache
def _small_letters() -> dict[str, str]:
    found = {}
    for item in _NEWER_CAPITALS.split():
        sign = "-" if "-" in item else "+"
        capitals, distance = item.split(sign)
        first, _, last = capitals.partition(":")
        for point in range(int(first, 16), int(last or first, 16) + 1):
            found[chr(point)] = chr(point + int(sign + distance, 16))
    return found


_UNASSIGNED = core.Pattern(r"\p{Cn}")


@functools.lru_cache(maxsize=2**16)
def lower(char: str) -> str:
    """Return a character in lower case, whatever Unicode the running Python has.

    >>> lower("É"), lower("\U00010d50") == "\U00010d70"
    ('é', True)
    """
    small = _small_letters().get(char)
    if small is not None:
        return small
    # A newer Python may know more capital letters.
    return char if _UNASSIGNED.match(char) else char.lower()
