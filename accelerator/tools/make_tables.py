"""Write two tables of all characters: as the split patterns see them, and as NFC does.

The classes in unicode_tables.h are those of bpe_tokenizer.py, which has its own version of Unicode:
run this again after make_unicode_data.py.

normal_tables.h is of the version of Unicode that the module normalizes by.  Every Python makes the
same one: its `unicodedata` is not asked about younger characters.

    python accelerator/tools/make_tables.py            writes the files
    python accelerator/tools/make_tables.py --check    says whether they are up to date
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ACCELERATOR = Path(__file__).resolve().parent.parent
os.environ["BPE_TOKENIZER_PURE"] = "1"  # nothing may be compiled yet
sys.path.insert(0, str(ACCELERATOR.parent))
from bpe_tokenizer_tools import core  # noqa: E402
from bpe_tokenizer_tools.support import normal_forms  # noqa: E402

HEADER = ACCELERATOR / "scan" / "unicode_tables.h"
NORMAL_HEADER = ACCELERATOR / "scan" / "normal_tables.h"

# The classes that the scanners distinguish, with their numbers; and whose members they are: of
# categories, by their names' beginnings.  Of kana and Han, as DeepSeek-V3 delimits them, some have
# a class of their own.
CLASSES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("OTHER", ("C", "Z"), "controls, format characters, unassigned"),
    ("MARK", ("M",), "combining marks"),
    ("LOWER", ("Ll",), "lower-case letters"),
    ("UPPER", ("Lu", "Lt"), "upper-case and title-case letters"),
    ("LETTER", ("Lm", "Lo"), "letters without case"),
    ("NUMBER", ("N",), "digits and numbers of every script"),
    ("BLANK", (), "white space, except the two below"),
    ("NEWLINE", (), "carriage return and line feed"),
    ("SIGN", ("P", "S"), "punctuation and symbols"),
    ("KANA_LETTER", ("L",), "letters among kana and Han"),
    ("KANA_MARK", ("M",), "combining marks"),
    ("KANA_SIGN", ("P", "S"), "punctuation and symbols"),
    ("KANA_OTHER", ("C",), "unassigned"),
)
_KANA = (range(0x3040, 0x3100), range(0x4E00, 0x9FA6))
_NUMBERS = {name: number for number, (name, _, _) in enumerate(CLASSES)}


def _class_of(kind: str, kana: bool) -> int:
    """Return the class of characters of a kind, as the module names kinds."""
    category, *more = kind.split()
    if "s" in more:
        return _NUMBERS["BLANK"]
    for number, (name, categories, _) in enumerate(CLASSES):
        if name.startswith("KANA") == kana and category.startswith(categories or "-"):
            return number
    raise ValueError(f"{kind!r} has no class")


def character_classes() -> bytes:
    """Return the class of each code point, a byte each."""
    classes = bytearray()
    for start, stop, kind in core.runs_of_kinds():
        cuts = {start, stop}.union(*({span.start, span.stop} for span in _KANA))
        for first, end in itertools.pairwise(sorted(at for at in cuts if start <= at <= stop)):
            kana = any(first in span for span in _KANA)
            classes += bytes([_class_of(kind, kana)]) * (end - first)
    for newline in b"\r\n":
        classes[newline] = _NUMBERS["NEWLINE"]
    return bytes(classes)


_BLOCK = 256  # code points that share an entry of the index; a smaller total than 128 or 512
_PER_WORD = 16  # classes in a 64-bit word, four bits each


def _pack(block: bytes) -> list[str]:
    """Return a block as 64-bit words, its first class in the lowest four bits."""
    words = []
    for start in range(0, len(block), _PER_WORD):
        word = sum(
            number << (4 * place) for place, number in enumerate(block[start : start + _PER_WORD])
        )
        words.append(f"0x{word:016x}")
    return words


def _rows(items: Sequence[str], per_row: int) -> str:
    rows = (items[start : start + per_row] for start in range(0, len(items), per_row))
    return "\n".join(f"    {','.join(row)}," for row in rows)


def header() -> str:
    """Return the text of unicode_tables.h."""
    classes = character_classes()
    numbers: dict[bytes, int] = {}  # block -> its number, in the order first met
    index = [
        str(numbers.setdefault(classes[start : start + _BLOCK], len(numbers)))
        for start in range(0, len(classes), _BLOCK)
    ]
    words = [word for block in numbers for word in _pack(block)]
    names = "\n".join(
        f"    CLASS_{name},{' ' * (12 - len(name))}/* {meaning} */" for name, _, meaning in CLASSES
    )
    per_block = _BLOCK // _PER_WORD
    ascii_rows = _rows([str(number) for number in classes[:128]], 32)
    return f"""\
/* The class of every character.  Made by make_tables.py: do not edit. */

#ifndef BPE_SCAN_UNICODE_TABLES_H
#define BPE_SCAN_UNICODE_TABLES_H

#include <stdint.h>

#define UNICODE_VERSION "{core.UNICODE_VERSION}"

enum character_class {{
{names}
}};

/* The first 128 characters, one byte each. */
static const uint8_t ascii_classes[128] = {{
{ascii_rows}
}};

/* All others: {_BLOCK} code points share a block, and equal blocks are kept once. */
static const uint8_t class_blocks[{len(index)}] = {{
{_rows(index, 64)}
}};

/* {_PER_WORD} classes to a word, the first in the lowest bits; {per_block} words to a block. */
static const uint64_t class_words[{len(words)}] = {{
{_rows(words, 4)}
}};

/* The class of a code point up to U+10FFFF. */
static inline unsigned class_of(uint32_t code_point)
{{
    uint32_t block = class_blocks[code_point >> {_BLOCK.bit_length() - 1}];
    uint64_t word = class_words[block * {per_block} + (code_point >> 4) % {per_block}];
    return (unsigned)(word >> (code_point % {_PER_WORD} * 4)) & 15;
}}

#endif
"""


# -- NFC ---------------------------------------------------------------------------

_NORMAL_BLOCK = 128  # a smaller total than 64 or 256
# The scripts in which characters that may compose with the one before are common in ordinary text.
# There is little they compose with, so it is looked up; such pairs are never added to these.
_INDIC = range(0x900, 0x1100)


class Kind(NamedTuple):
    """What NFC's quick check has to know of a character."""

    combining: int = 0  # its canonical combining class
    first: bool = False  # it may compose with a second behind it
    second: bool = False  # only with the one right before it, or with one that marks are between
    ask: bool = False  # NFC may change it

    def may_follow(self, before: Kind) -> bool:
        """Return whether NFC surely leaves this as it is, too, after another that it leaves."""
        if self.ask or 0 < self.combining < before.combining:
            return False
        # A mark may compose across the mark before it; what is no mark does not.
        return not (self.second and (before.first or (self.combining and before.combining)))


def normal_kinds() -> list[Kind]:
    """Return the kind of each code point.

    Source: Unicode Standard Annex 15, section 9.
    """
    seconds = normal_forms.composing_seconds()
    firsts: set[str] = set()
    for both in map(chr, _INDIC):
        pair = normal_forms.composed_of(both)
        if pair:  # `both` too: it falls apart before anything composes
            firsts |= {pair[0], both}

    def kind(char: str) -> Kind:
        if core.normalize(char, "NFC") != char:
            return Kind(ask=True)
        if char in firsts:
            return Kind(first=True)
        if char in seconds and ord(char) not in _INDIC:
            return Kind(ask=True)
        return Kind(normal_forms.combining(char), second=char in seconds)

    return [kind(chr(point)) for point in range(0x110000)]


def normal_header() -> str:
    """Return the text of normal_tables.h."""
    by_point = normal_kinds()
    kinds = sorted(set(by_point))  # the first one is that of most characters
    numbers = {kind: number for number, kind in enumerate(kinds)}
    every = bytes(numbers[kind] for kind in by_point)
    blocks: dict[bytes, int] = {}
    index = [
        str(blocks.setdefault(every[start : start + _NORMAL_BLOCK], len(blocks)))
        for start in range(0, len(every), _NORMAL_BLOCK)
    ]
    assert kinds[0] == Kind() and len(kinds) <= 64 and len(blocks) <= 256
    masks = (sum(after.may_follow(kind) << numbers[after] for after in kinds) for kind in kinds)
    members = [str(number) for block in blocks for number in block]
    return f"""\
/* What NFC's quick check knows of every character.  Made by make_tables.py: do not edit. */

#ifndef BPE_SCAN_NORMAL_TABLES_H
#define BPE_SCAN_NORMAL_TABLES_H

#include <stdint.h>

/* Characters are of {len(kinds)} kinds, most of them of kind 0.  For each, a bit for each kind that
 * may follow in text that NFC leaves as it is. */
static const uint64_t normal_followers[{len(kinds)}] = {{
{_rows([f"0x{mask:016x}" for mask in masks], 4)}
}};

/* {_NORMAL_BLOCK} code points share a block, and equal blocks are kept once. */
static const uint8_t normal_blocks[{len(index)}] = {{
{_rows(index, 64)}
}};

/* Their kinds. */
static const uint8_t normal_kinds[{len(members)}] = {{
{_rows(members, 64)}
}};

/* The kind of a code point up to U+10FFFF. */
static inline unsigned normal_kind(uint32_t code_point)
{{
    uint32_t block = normal_blocks[code_point >> {_NORMAL_BLOCK.bit_length() - 1}];
    return normal_kinds[block * {_NORMAL_BLOCK} + code_point % {_NORMAL_BLOCK}];
}}

#endif
"""


def main() -> int:
    """Write the headers, or check them; the exit status is 1 if one is out of date."""
    parser = argparse.ArgumentParser(description="Write the tables of characters in C.")
    parser.add_argument("--check", action="store_true", help="only say whether they are up to date")
    check = parser.parse_args().check
    status = 0
    for file, text in ((HEADER, header()), (NORMAL_HEADER, normal_header())):
        if check:
            kept = file.read_bytes().decode() if file.exists() else ""
            current = kept == text
            status |= not current
            print(
                f"{file.name} is {'up to date' if current else 'out of date: run make_tables.py'}"
            )
        else:
            file.write_bytes(text.encode())
    return status


if __name__ == "__main__":
    sys.exit(main())
