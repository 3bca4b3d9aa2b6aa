r"""A text as a tokenizer sees it, for a terminal.

Tokens have alternating colors, or bars between them without colors.  White space is made
visible, and a token that contains part of a character shows its bytes.  Characters that are
invisible, or that could move the cursor or change the direction of writing, are spelled
out, so that a terminal shows all of the text and does nothing else.

>>> from bpe_tokenizer import BPETokenizer
>>> tokenizer = BPETokenizer("cl100k").train("some text, some text", 262, verbose=False)
>>> print(view("some new text\n", tokenizer))
some│·│n│e│w│·tex│t│↵
8 tokens, 14 characters, 14 bytes, 1.75 bytes per token
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import regex

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.text import counted, display_width, visible

# -- One token ------------------------------------------------------------------

_WHITE_SPACE = {" ": "·", "\t": "→", "\n": "↵"}
# Bytes that are not a character, as "surrogateescape" writes them; and characters without a
# shape of their own, or that change others: control, format and unassigned characters, white
# space, and the vowels and finals of Hangul, which join the character before them.
_UNSEEN = regex.compile(r"[\udc80-\udcff]+|[\p{C}\p{Z}\p{DI}\p{HST=V}\p{HST=T}]")
_MARK = regex.compile(r"(^|[⟨⟩·→↵])(\p{M})")


def shown(token: bytes) -> str:
    r"""Write a token so that all of it can be seen, in one line.

    A space is ``·``, a tab ``→``, a line end ``↵``; other control characters have pictures;
    other invisible characters are spelled ``⟨U+200B⟩``, and bytes that aren't a character
    ``⟨E2 82⟩``.  A mark without a base character gets a dotted circle; ``⟨⟩`` is an empty token.

    >>> print(shown(b" caf\xc3\xa9\n"), shown(b"\x1b[2J"), shown(b" \xe2\x82"))
    ·café↵ ␛[2J ·⟨E2 82⟩
    """
    text = token.decode("utf-8", "surrogateescape")
    if not text:
        return "⟨⟩"
    if text.isascii() and text.isprintable():
        return text.replace(" ", "·")
    return str(_MARK.sub(r"\1◌\2", _UNSEEN.sub(_spell, text)))


def _spell(found: Any) -> str:
    char: str = found[0]
    if "\udc80" <= char < "\ue000":
        return f"⟨{' '.join(f'{ord(each) - 0xDC00:02X}' for each in char)}⟩"
    if char < "\x80":
        return _WHITE_SPACE.get(char) or visible(char)
    return f"⟨U+{ord(char):04X}⟩"


class ViewedToken(NamedTuple):
    """A token of a text."""

    id: int  # its id
    data: bytes  # its bytes
    special: bool  # whether it is a special token, or another added token

    def __str__(self) -> str:
        return f"⟦{shown(self.data)}⟧" if self.special else shown(self.data)

    @property
    def lines(self) -> list[str]:
        """The token, cut after its line ends; the last line may be empty."""
        *ended, rest = self.data.split(b"\n")
        if self.special or not ended:
            return [str(self)]
        return [*(shown(line + b"\n") for line in ended), shown(rest) if rest else ""]


# -- A text -----------------------------------------------------------------------

_BOLD, _DIM, _RESET = "\033[1m", "\033[2m", "\033[0m"
_COLORS = [f"\033[38;5;16;48;5;{n}m" for n in (153, 223, 157, 217, 189)]  # black on pastels
_SPECIAL = "\033[1;97;48;5;236m"  # white on nearly black


@dataclass(frozen=True)
class View:
    """The tokens of a text; printing it shows them without colors."""

    tokens: Sequence[ViewedToken]  # joined, they are the text as the tokenizer normalizes it
    characters: int  # characters of the text as given
    bytes: int  # its bytes in UTF-8
    name: str = ""  # the tokenizer's name

    @property
    def bytes_per_token(self) -> float:
        """Bytes of the text for each token; 0 if there are no tokens."""
        return self.bytes / len(self.tokens) if self.tokens else 0.0

    @property
    def summary(self) -> str:
        """The figures, in one line."""
        counts = {"token": len(self.tokens), "character": self.characters, "byte": self.bytes}
        parts = [counted(number, noun) for noun, number in counts.items()]
        return ", ".join(parts) + f", {self.bytes_per_token:.2f} bytes per token"

    def __str__(self) -> str:
        return self.render()

    def heading(self, colors: bool = False) -> str:
        """Return the name, safe to be shown."""
        name = _UNSEEN.sub(lambda found: " " if found[0] == " " else _spell(found), self.name)
        return f"{_BOLD}{name}{_RESET}" if colors else name

    def render(
        self, *, ids: bool = False, bytes: bool = False, colors: bool = False, width: int = 80
    ) -> str:
        """Draw the tokens, and the figures below.

        Args:
            ids: write the id beneath each token.
            bytes: write the bytes beneath each token, in hexadecimal.
            colors: set tokens apart by colors, which the terminal must support.
            width: columns of the terminal.  With ids or bytes, lines break between tokens
                there; otherwise the terminal breaks them.
        """
        if ids or bytes:
            lines = _draw_columns(self.tokens, ids, bytes, colors, width)
        else:
            lines = _draw_text(self.tokens, colors)
        summary = f"{_DIM}{self.summary}{_RESET}" if colors else self.summary
        return "\n".join([*lines, summary])

    def _repr_html_(self) -> str:
        from bpe_tokenizer_tools.showing.notebook import view_html

        return view_html(self)

    def __rich__(self) -> Any:
        from bpe_tokenizer_tools.showing.notebook import view_rich

        return view_rich(self)

    def to_json(self) -> dict[str, Any]:
        """Return the tokens and figures as plain data, bytes in hexadecimal."""
        tokens = [
            {"id": token.id, "shown": str(token), "bytes": token.data.hex()}
            for token in self.tokens
        ]
        return {
            "name": self.name,
            "token_count": len(tokens),
            "characters": self.characters,
            "bytes": self.bytes,
            "bytes_per_token": round(self.bytes_per_token, 4),
            "tokens": tokens,
        }


def view(
    text: str, tokenizer: BPETokenizer, *, name: str = "", allowed_special: Any = "none"
) -> View:
    r"""Encode a text, and return its tokens to show.

    `name` is a name for the tokenizer; `allowed_special` is as for `BPETokenizer.encode`.

    >>> view("é", BPETokenizer()).to_json()["tokens"]
    [{'id': 195, 'shown': '⟨C3⟩', 'bytes': 'c3'}, {'id': 169, 'shown': '⟨A9⟩', 'bytes': 'a9'}]
    """
    ids = tokenizer.encode(text, allowed_special=allowed_special)
    pieces = core.encoder(tokenizer).decode_pieces(ids, "strict")
    added = {token.id for token in tokenizer.added_tokens}
    tokens = [ViewedToken(id_, data, id_ in added) for id_, data in zip(ids, pieces)]
    return View(tokens, len(text), len(text.encode()), name)


_KNOWN = 2**16  # tokens whose form is cached


def _painted(text: str, place: int, special: bool) -> str:
    return f"{_SPECIAL if special else _COLORS[place % len(_COLORS)]}{text}{_RESET}"


def _draw_text(tokens: Sequence[ViewedToken], colors: bool) -> Iterator[str]:
    """Yield the lines of a text as they are, each with its line end."""
    lines_of = functools.lru_cache(_KNOWN)(operator.attrgetter("lines"))
    line = ""
    for place, token in enumerate(tokens):
        *ended, rest = lines_of(token)
        for part in ended:
            yield _add(line, part, place, token.special, colors)
            line = ""
        if rest:
            line = _add(line, rest, place, token.special, colors)
    if line:
        yield line


def _add(line: str, part: str, place: int, special: bool, colors: bool) -> str:
    if colors:
        return line + _painted(part, place, special)
    return f"{line}│{part}" if line else part


class _Column(NamedTuple):
    """A token and the lines beneath it."""

    cells: tuple[str, ...]
    spaces: tuple[str, ...]  # after each, so that all have the same width
    width: int
    special: bool
    ends_line: bool


def _draw_columns(
    tokens: Sequence[ViewedToken], ids: bool, bytes: bool, colors: bool, width: int
) -> Iterator[str]:
    """Yield lines of tokens, each with lines of ids and of bytes beneath."""

    @functools.lru_cache(_KNOWN)
    def column(token: ViewedToken) -> _Column:
        cells = (str(token), *[str(token.id)] * ids, *[token.data.hex(" ")] * bytes)
        widths = list(map(display_width, cells))
        spaces = tuple(" " * (max(widths) - each) for each in widths)
        ends_line = token.data.endswith(b"\n")
        return _Column(cells, spaces, max(widths), token.special, ends_line)

    place = 0
    for row in _rows(map(column, tokens), width):
        if place:
            yield ""
        for i in range(len(row[0].cells)):
            yield _draw_line(row, i, place, colors)
        place += len(row)


def _rows(columns: Iterable[_Column], width: int) -> Iterator[list[_Column]]:
    """Put columns into rows that fit, and end a row where the text's line ends."""
    row: list[_Column] = []
    taken = 0
    for column in columns:
        if row and (taken + column.width > width or row[-1].ends_line):
            yield row
            row, taken = [], 0
        row.append(column)
        taken += column.width + 1
    if row:
        yield row


def _draw_line(row: Sequence[_Column], i: int, place: int, colors: bool) -> str:
    drawn = []
    for number, column in enumerate(row, place):
        cell = column.cells[i]
        if colors and i == 0:
            cell = _painted(cell, number, column.special)
        drawn.append(cell + column.spaces[i])
    return (" " if colors else "│").join(drawn).rstrip(" ")
