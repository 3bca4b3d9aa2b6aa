"""Write the classes of all characters into bpe_tokenizer.py, from a pinned release of `regex`.

Ids depend on these classes, so they don't follow the `regex` that happens to be installed: the
module has them as data, and make_tables.py makes the tables in C from that.  They are those of
tiktoken 0.14 and of tokenizers 0.23, which have this version of Unicode.

A change of the version is a change of ids: it needs its line under *Changed output* in
CHANGELOG.md, and comparisons with the libraries whose ids they are.

    python -m venv pinned && pinned/bin/pip install regex==2024.11.6
    pinned/bin/python accelerator/tools/make_unicode_data.py            writes the data
    pinned/bin/python accelerator/tools/make_unicode_data.py --check    says whether they are right
    python accelerator/tools/make_tables.py                             then the tables in C
"""

from __future__ import annotations

import argparse
import base64
import importlib.metadata
import itertools
import re
import sys
import textwrap
import zlib
from pathlib import Path

import regex

VERSION, RELEASE = "16.0.0", "2024.11.6"  # of Unicode, and of the `regex` that has it
MODULE = Path(__file__).resolve().parents[2] / "bpe_tokenizer.py"
_DATA = re.compile(r"(?<=\n)_KINDS = .*?\n_KIND_RUNS = .*?\n\"\"\"\n", re.DOTALL)

_CATEGORIES = (
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe"),
    *("Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"),
)
_SCRIPTS = ("Han", "Hiragana", "Katakana")
_ESCAPES = ("w", "s", "d")
_WIDTH = 92


def kinds_of_all() -> list[str]:
    """Return the kind of each code point: its category, then its script and escapes."""
    every = "".join(map(chr, range(0x110000)))  # surrogates too
    found = [""] * len(every)
    properties = [(name, rf"\p{{{name}}}") for name in (*_CATEGORIES, *_SCRIPTS)]
    for name, pattern in [*properties, *((name, f"\\{name}") for name in _ESCAPES)]:
        for run in regex.finditer(f"{pattern}++", every):
            for point in range(*run.span()):
                found[point] = f"{found[point]} {name}".strip()
    return found


def data() -> str:
    """Return the text of the data in the module."""
    runs = [(kind, len([*points])) for kind, points in itertools.groupby(kinds_of_all())]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kind for kind, _ in runs))}
    lengths = [length for _, length in runs]
    # A column for the kinds, and one for each of the three bytes of a length: they pack better.
    columns = bytes(numbers[kind] for kind, _ in runs)
    columns += b"".join(bytes(length >> shift & 0xFF for length in lengths) for shift in (0, 8, 16))
    packed = base64.b85encode(zlib.compress(columns, 9)).decode()
    rows = "\n".join(packed[at : at + _WIDTH] for at in range(0, len(packed), _WIDTH))
    names = textwrap.fill(", ".join(numbers), _WIDTH)
    return f'_KINDS = """\n{names}\n"""\n_KIND_RUNS = """\n{rows}\n"""\n'


def main() -> int:
    """Write the data, or check them; the exit status is 1 if they are out of date."""
    parser = argparse.ArgumentParser(description="Write the classes of characters.")
    parser.add_argument("--check", action="store_true", help="only say whether they are up to date")
    check = parser.parse_args().check
    installed = importlib.metadata.version("regex")
    if installed != RELEASE:  # NOTE: `regex.__version__` is another number
        sys.exit(f"needs regex {RELEASE}, which has Unicode {VERSION}; this is {installed}")
    text = MODULE.read_bytes().decode()
    made, n = _DATA.subn(lambda _: data(), text)
    if n != 1 or f'\nUNICODE_VERSION = "{VERSION}"' not in text:
        sys.exit(f"{MODULE.name} has no data, or not for Unicode {VERSION}")
    if not check:
        MODULE.write_bytes(made.encode())
    current = not check or made == text
    print(f"the data in {MODULE.name} are {'up to date' if current else 'out of date'}")
    return not current


if __name__ == "__main__":
    sys.exit(main())
