"""Text for display: visible control characters, width, names of tokenizers."""

from __future__ import annotations

import html
import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from bpe_tokenizer_tools import core

# -- Visible text -----------------------------------------------------------

_PICTURES = {i: chr(0x2400 + i) for i in range(32) if chr(i) not in "\n\t"}
_PICTURES |= {0x7F: "\u2421"} | {i: f"\\x{i:02x}" for i in range(0x80, 0xA0)}
_REORDERING = (*range(0x2028, 0x202F), *range(0x2066, 0x206A))  # lines, and bidirectional controls
_PICTURES |= {i: f"\\u{i:04x}" for i in _REORDERING}


def visible(text: str) -> str:
    r"""Make visible what could control a terminal, except line ends and tabs.

    >>> visible("\x1b[2J\x9b1m\u202e")
    '␛[2J\\x9b1m\\u202e'
    """
    return text.translate(_PICTURES)


def say(what: object, file: TextIO | None = None) -> None:
    """Print for people; names and tokens in it can't control their terminal."""
    print(visible(str(what)), file=file)


printable = core.printable  # for one line: escapes all that a terminal doesn't show


def display_width(text: str) -> int:
    r"""Return how many terminal columns a text takes.

    >>> display_width("abc"), display_width("日本"), display_width("e\u0301")
    (3, 4, 1)
    """
    unseen = ("Mn", "Me", "Cf")
    seen = [char for char in text if unicodedata.category(char) not in unseen]
    return len(seen) + sum(unicodedata.east_asian_width(char) in "WF" for char in seen)


def counted(number: int, noun: str) -> str:
    """Format a count with its noun.

    >>> counted(1, "shard"), counted(1234, "shard")
    ('1 shard', '1,234 shards')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def shared_length(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return how many items two strings or lists share from their beginnings.

    >>> shared_length("the cat", "the dog")
    4
    """
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Printed:
    """A base for objects that notebooks show as they are printed."""

    def _repr_html_(self) -> str:
        return f'<pre style="white-space:pre;overflow-x:auto">{html.escape(str(self))}</pre>'


def percent(share: float | None) -> str | None:
    """Format a share as a percentage; None stays None."""
    return None if share is None else f"{share:.1%}"


def runs_of(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of successive numbers.

    >>> list(runs_of([1, 2, 3, 7]))
    [(1, 3), (7, 7)]
    """
    for _, run in itertools.groupby(enumerate(sorted(numbers)), lambda item: item[1] - item[0]):
        values = [number for _, number in run]
        yield values[0], values[-1]


def shortened(text: str, most: int = 40) -> str:
    """Cut a text that is too long for a table, such as a line of dashes; mark the cut.

    >>> shortened("-" * 50, 10)
    '---------…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


# -- Names of tokenizers ----------------------------------------------------------

_ENDINGS = re.compile(r"(?<=.)\.(tiktoken|json|gguf|model)$")
_ALL_CALLED_SO = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")


def name_of(path: str | os.PathLike[str]) -> str:
    """Call a tokenizer by its file, or by its directory if the file has a standard name.

    >>> name_of("vocab/gpt2.tiktoken"), name_of("mine/v1.2/"), name_of("mine/tokenizer.json")
    ('gpt2', 'v1.2', 'mine')
    """
    found = Path(os.path.abspath(path))
    found = found.parent if found.name in _ALL_CALLED_SO else found
    return _ENDINGS.sub("", found.name) or "tokenizer"


def names_of(paths: Sequence[str]) -> list[str]:
    """Call tokenizers by their files, or by their whole paths if some names would be equal.

    >>> names_of(["a/gpt2.tiktoken", "b/tokenizer.json"]), names_of(["a/x.json", "b/x.gguf"])
    (['gpt2', 'b'], ['a/x.json', 'b/x.gguf'])
    """
    names = list(map(name_of, paths))
    return names if len(set(names)) == len(names) else list(paths)
