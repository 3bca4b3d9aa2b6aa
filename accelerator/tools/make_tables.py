"""Write unicode_tables.h: the class of every character, as the split patterns see it.

The classes are those of the `regex` package, because that is what the Python engine splits
with; run this again when it learns a new version of Unicode.  The same `regex` always gives
the same file.

    python accelerator/tools/make_tables.py            writes the file
    python accelerator/tools/make_tables.py --check    says whether it is up to date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import regex

ACCELERATOR = Path(__file__).resolve().parent.parent
sys.path.insert(
    0, str(ACCELERATOR / "_bpe_tokenizer")
)  # not as a package: nothing may be compiled yet
from characters import CHARACTER_CLASSES, character_classes  # noqa: E402

HEADER = ACCELERATOR / "scan" / "unicode_tables.h"

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
        f"    CLASS_{name},{' ' * (12 - len(name))}/* {meaning} */"
        for name, _, meaning in CHARACTER_CLASSES
    )
    source = f"regex {regex.__version__}"
    per_block = _BLOCK // _PER_WORD
    ascii_rows = _rows([str(number) for number in classes[:128]], 32)
    return f"""\
/* The class of every character.  Made by make_tables.py from {source}: do not edit. */

#ifndef BPE_SCAN_UNICODE_TABLES_H
#define BPE_SCAN_UNICODE_TABLES_H

#include <stdint.h>

#define UNICODE_TABLES_FROM "{source}"

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


def main() -> int:
    """Write the header, or check it; the exit status is 1 if it is out of date."""
    parser = argparse.ArgumentParser(description="Write accelerator/scan/unicode_tables.h.")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    check = parser.parse_args().check
    text = header()
    if check:
        current = HEADER.exists() and HEADER.read_bytes() == text.encode()
        print(f"{HEADER.name} is {'up to date' if current else 'out of date: run make_tables.py'}")
        return 0 if current else 1
    HEADER.write_bytes(text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
