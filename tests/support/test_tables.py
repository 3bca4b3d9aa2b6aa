"""Tables, for people and for programs."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
import re
import sys

import pytest
from conftest import EITHER_ENGINE
from oracles import need

from bpe_tokenizer_tools.support.tables import Table
from bpe_tokenizer_tools.support.text import display_width

pytestmark = EITHER_ENGINE

TABLE = Table(
    ["name", "tokens", "bytes per token", "share"],
    [["gpt2", 50257, 4.123456, "7.1%"], ["o200k", 200019, 12.5, "12.0%"], ["x", None, None, "-"]],
)


def test_nothing_of_a_table_moves_the_cursor() -> None:
    table = Table(["a\x1b[2J"], [["b\x9b"]], "c\u202e")
    assert str(table) == "c\\u202e\na\\x1b[2J\nb\\x9b"


def test_numbers_are_right_aligned_and_rounded_to_four_digits_of_the_largest() -> None:
    assert str(TABLE) == (
        "name    tokens  bytes per token  share\n"
        "gpt2    50,257             4.12   7.1%\n"
        "o200k  200,019            12.50  12.0%\n"
        "x            -                -      -"
    )


def test_a_title_stands_above_and_a_table_without_rows_is_its_columns() -> None:
    assert str(Table(["a", "b"], [[1, "x"]], "Counts")) == "Counts\na  b\n1  x"
    assert str(Table(["a", "b"], [])) == "a  b"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (-1234567, "-1,234,567"),
        (0.0, "0.000"),
        (0.12345, "0.123"),
        (1234.6, "1,235"),
        (math.nan, "-"),
        (math.inf, "-"),
        (True, "yes"),
        (False, "no"),
        ("\x1b[31m\n", "\\x1b[31m\\n"),
        ("\u202e", "\\u202e"),
    ],
)
def test_how_a_value_is_shown(value: object, shown: str) -> None:
    assert str(Table(["v"], [[value]])).splitlines()[1].strip() == shown


def test_a_column_of_text_stays_left_even_with_a_number_in_it() -> None:
    lines = str(Table(["a", "b"], [["word", 1], ["12", 1]])).splitlines()
    assert lines == ["a     b", "word  1", "12    1"]


def test_wide_characters_take_two_columns_and_marks_none() -> None:
    assert [display_width(text) for text in ("", "ab", "日本語", "한국", "e\u0301", "कि")] == [
        0, 2, 6, 4, 1, 2,
    ]  # fmt: skip
    lines = str(Table(["word", "n"], [["日本", 1], ["abcd", 22]])).splitlines()
    assert lines[1:] == ["日本   1", "abcd  22"]


def test_a_row_of_another_length_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"row 2 has 1 values for 2 columns: \['c'\]"):
        Table(["x", "y"], [["a", "b"], ["c"]])


def test_csv_reads_back_with_numbers_in_full() -> None:
    rows = [["a,b", 'say "x"', 1 / 3], ["line\nbreak", None, 10**20]]
    read = list(csv.reader(io.StringIO(Table(["p", "q", "r"], rows, "title").to_csv())))
    assert read[0] == ["p", "q", "r"]
    assert read[1][:2] == ["a,b", 'say "x"']
    assert float(read[1][2]) == 1 / 3
    assert read[2] == ["line\nbreak", "", str(10**20)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rich_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Let rich take the output for a terminal so wide, whatever another test left behind."""
    monkeypatch.setitem(os.environ, "COLUMNS", str(columns))
    monkeypatch.setitem(os.environ, "TERM", "xterm")
    # rich keeps the mapping that was os.environ when it was imported.
    monkeypatch.setattr(need("rich.console").Console, "_environ", os.environ)


def printed(table: Table, stream: io.StringIO) -> str:
    with contextlib.redirect_stdout(stream):
        table.print()
    return stream.getvalue()


def test_print_is_plain_where_there_is_no_terminal() -> None:
    assert printed(TABLE, io.StringIO()) == f"{TABLE}\n"


def test_print_is_plain_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert printed(TABLE, Terminal()) == f"{TABLE}\n"


def test_print_by_rich_shows_every_cell_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rich_terminal(monkeypatch, 100)
    shown = printed(Table(["token", "n"], [["[bold]x[/bold]", 1234]], "A [red]title"), Terminal())
    assert "[bold]x[/bold]" in shown
    assert "A [red]title" in shown
    assert "1,234" in shown
    assert "─" in shown


_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def test_a_table_wider_than_the_terminal_is_shown_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rich_terminal(monkeypatch, 60)
    names = [f"figure {i}" for i in range(9)]
    rows = [[name, 10**i, *(i + j / 7 for j in range(8))] for i, name in enumerate(["ab", "日本"])]
    table = Table(["text", *names], rows, "Title")
    lines = _ESCAPE.sub("", printed(table, Terminal())).splitlines()
    assert max(map(display_width, lines)) <= 60
    heads = [line.split("  ") for line in lines if "figure" in line]
    seen = [[name.strip() for name in head if name.strip()] for head in heads]
    assert all(head[0] == "text" for head in seen)
    assert len(seen) > 1
    assert [name for head in seen for name in head[1:]] == names
    for name, row in zip(("ab", "日本"), str(table).splitlines()[2:]):
        cells = [cell for line in lines if name in line for cell in line.split()[1:]]
        assert [name, *cells] == row.split()
    assert sum("Title" in line for line in lines) == 1


def test_what_does_not_fit_goes_on_below(monkeypatch: pytest.MonkeyPatch) -> None:
    rich_terminal(monkeypatch, 50)
    word, other = "abcdefghij" * 9, "klmnopqrst" * 9
    table = Table(["n", "a", "b"], [[1234567890, word, other]])
    shown = _ESCAPE.sub("", printed(table, Terminal()))
    assert "1,234,567,890" in shown
    letters = [char for char in shown if char.isalpha()]
    assert sorted(letters) == sorted(f"nab{word}{other}")
    assert max(map(display_width, shown.splitlines())) <= 50
    assert printed(Table([], []), Terminal()).strip() == ""
