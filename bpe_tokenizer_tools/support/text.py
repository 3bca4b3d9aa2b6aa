"""Text for people: what can be seen of it, how wide it is, what a tokenizer is called."""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

# -- What can be seen -----------------------------------------------------------

_PICTURES = {i: chr(0x2400 + i) for i in range(32) if chr(i) not in "\n\t"}
_PICTURES |= {0x7F: "\u2421"} | {i: f"\\x{i:02x}" for i in range(0x80, 0xA0)}


def visible(text: str) -> str:
    r"""Replace control characters, but line ends and tabs, by something to see.

    >>> visible("\x1b[2J\x9b1m")
    '␛[2J\\x9b1m'
    """
    return text.translate(_PICTURES)


def printable(text: str) -> str:
    r"""Escape what cannot be printed, such as what moves the cursor of a terminal.

    >>> printable("naïve\x1b[2J")
    'naïve\\x1b[2J'
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def display_width(text: str) -> int:
    r"""Tell how many columns of a terminal a text takes.

    >>> display_width("abc"), display_width("日本"), display_width("e\u0301")
    (3, 4, 1)
    """
    unseen = ("Mn", "Me", "Cf")
    seen = [char for char in text if unicodedata.category(char) not in unseen]
    return len(seen) + sum(unicodedata.east_asian_width(char) in "WF" for char in seen)


def counted(number: int, noun: str) -> str:
    """Write how many there are of something.

    >>> counted(1, "shard"), counted(1234, "shard")
    ('1 shard', '1,234 shards')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def percent(share: float | None) -> str | None:
    """Write a share in percent; None where there is none."""
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
    """Cut what is too long for a table, such as a line of dashes, and say so.

    >>> shortened("-" * 50, 10)
    '---------…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


# -- Names of tokenizers ----------------------------------------------------------

_ENDINGS = re.compile(r"(?<=.)\.(tiktoken|json|gguf|model)$")
_ALL_CALLED_SO = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")


def name_of(path: str | os.PathLike[str]) -> str:
    """Call a tokenizer by its file, or by its directory where all files are called so.

    >>> name_of("vocab/gpt2.tiktoken"), name_of("mine/v1.2/"), name_of("mine/tokenizer.json")
    ('gpt2', 'v1.2', 'mine')
    """
    found = Path(os.path.abspath(path))
    found = found.parent if found.name in _ALL_CALLED_SO else found
    return _ENDINGS.sub("", found.name) or "tokenizer"


def names_of(paths: Sequence[str]) -> list[str]:
    """Call tokenizers by their files, or by the whole paths if some would be the same.

    >>> names_of(["a/gpt2.tiktoken", "b/tokenizer.json"]), names_of(["a/x.json", "b/x.gguf"])
    (['gpt2', 'b'], ['a/x.json', 'b/x.gguf'])
    """
    names = list(map(name_of, paths))
    return names if len(set(names)) == len(names) else list(paths)
