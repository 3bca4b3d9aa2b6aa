"""Tables, for a terminal or for another program.

>>> print(Table(["vocab", "tokens"], [["gpt2", 50257], ["o200k", 200019]]))
vocab   tokens
gpt2    50,257
o200k  200,019
"""

from __future__ import annotations

import csv
import io
import math
import numbers
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support import colors
from bpe_tokenizer_tools.support.text import display_width, printable

_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(e[-+]\d+)?( ?[%x])?")  # "12", "1,024", "3.5%"
_NARROW = 12  # minimum width of wrapped text, in columns
_DIGITS = 4  # significant digits of a column's largest number, at least


@dataclass(frozen=True)
class Table:
    """Columns and rows.

    Numbers are stored as they are and rounded only for display: integers with commas, other
    numbers of a column with enough decimals to show four digits of the largest.  None is shown
    as "-" and True as "yes"; unprintable characters are escaped.
    """

    columns: Sequence[str]  # n names
    rows: Sequence[Sequence[object]]  # n values each
    title: str = ""  # a line above the table, if not empty

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {number} has {len(row)} values for {len(self.columns)} columns: "
                    f"{core.shorten(list(row))}"
                )

    def __str__(self) -> str:
        cells, right = self._cells()
        lines = [list(map(printable, self.columns)), *cells]
        widths = [max(map(display_width, column)) for column in zip(*lines)]
        text = [
            "  ".join(_pad(cell, width, at) for cell, width, at in zip(line, widths, right))
            for line in lines
        ]
        titles = [printable(self.title)] if self.title else []
        return "\n".join(line.rstrip() for line in [*titles, *text])

    def print(self) -> None:
        """Print the table, with rich, if stdout is a terminal and rich is installed."""
        if colors.refused() or not sys.stdout.isatty() or not self._print_richly():
            print(self)

    def to_csv(self) -> str:
        """Return the table as CSV: numbers in full, None as an empty cell, no title."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([self.columns, *self.rows])
        return file.getvalue()

    def _cells(self) -> tuple[list[list[str]], list[bool]]:
        """Return all rows as shown, and which columns are numeric."""
        columns = [_shown_column([row[i] for row in self.rows]) for i in range(len(self.columns))]
        right = [
            any(cell != "-" for cell in column)
            and all(cell == "-" or _NUMBER.fullmatch(cell) for cell in column)
            for column in columns
        ]
        return [list(row) for row in zip(*columns)], right

    def _print_richly(self) -> bool:
        try:
            from rich.box import SIMPLE_HEAD
            from rich.console import Console
            from rich.table import Table as RichTable
            from rich.text import Text
        except ImportError:
            return False
        cells, right = self._cells()
        console = Console()
        title = Text(printable(self.title), style="bold") if self.title else None
        for part in self._parts(cells, right, console.width):
            table = RichTable(
                title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD
            )
            for i in part:
                # Texts may wrap; a number that is cut would be another number.
                table.add_column(
                    Text(printable(self.columns[i])),
                    justify="right" if right[i] else "left",
                    overflow="fold",
                    no_wrap=right[i],
                )
            for row in cells:
                table.add_row(*(Text(row[i]) for i in part))  # as text: brackets aren't markup
            console.print(table)
            title = None
        return True

    def _parts(
        self, cells: list[list[str]], right: list[bool], width: int
    ) -> Iterator[Sequence[int]]:
        """Yield groups of columns that fit the terminal, each with those left of all numbers."""
        lines = [self.columns, *cells]
        widths = [max(map(display_width, column)) for column in zip(*lines)]
        needs = [3 + (n if at else min(n, _NARROW)) for n, at in zip(widths, right)]
        first = max(1, right.index(True)) if True in right else len(right)
        part = list(range(first))
        for i in range(first, len(right)):
            if len(part) > first and sum(needs[j] for j in (*part, i)) > width:
                yield part
                part = list(range(first))
            part.append(i)
        yield part


def _pad(cell: str, width: int, right: bool) -> str:
    space = " " * (width - display_width(cell))
    return space + cell if right else cell + space


def _shown_column(values: Sequence[object]) -> list[str]:
    sizes = [abs(value) for value in values if isinstance(value, float) and math.isfinite(value)]
    whole = len(str(int(max(sizes, default=0))))
    decimals = max(0, _DIGITS - whole)
    return [_shown(value, decimals) for value in values]


def _shown(value: object, decimals: int) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):  # also NumPy's
        return f"{int(value):,}"
    if isinstance(value, float):
        return f"{value:,.{decimals}f}" if math.isfinite(value) else "-"
    return printable(str(value))
