"""The display of tokenizers and encoded text in notebooks: tokens in colors.

The colors, and the signs for invisible characters, are those of `view` and of the page.

>>> from bpe_tokenizer import BPETokenizer
>>> tokenizer = BPETokenizer().train("low lower " * 9, vocab_size=259, verbose=False)
>>> html = result_html(tokenizer.encode_with_offsets("lower"))
>>> html.count("<span"), "background:#d3e5fb" in html
(3, True)
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from bpe_tokenizer import BPETokenizer, EncodingResult
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.showing.view import View, ViewedToken, shown
from bpe_tokenizer_tools.support.text import counted

MOST = 2_000  # tokens to draw; a notebook stores everything it shows
MOST_TEXTS = 20  # of a batch
# The page's colors for a light background; black text on them is legible on a dark one, too.
COLORS = ("#d3e5fb", "#fbe3bf", "#d2efd5", "#f8d8e6", "#e2dbf8")
_BOX = (
    "font-family:ui-monospace,Menlo,Consolas,monospace;line-height:1.7;white-space:pre-wrap;"
    "overflow-wrap:anywhere"
)
_QUIET = "opacity:.65;font-size:.9em"


def view_html(view: View) -> str:
    """Draw the tokens of a text, each with its id and bytes where the pointer rests."""
    drawn = "".join(map(_span, range(MOST), view.tokens))
    more = len(view.tokens) - MOST
    left_out = f" … {counted(more, 'more token')}" if more > 0 else ""
    summary = html.escape(view.summary)
    return f'<div style="{_BOX}">{drawn}{left_out}<div style="{_QUIET}">{summary}</div></div>'


def _span(place: int, token: ViewedToken) -> str:
    title = html.escape(f"id {token.id}, bytes {token.data.hex(' ')}")
    color = f"background:{COLORS[place % len(COLORS)]};color:#000"
    if token.special:
        color = "background:#262c35;color:#fff"
    lines = "\n".join(map(html.escape, token.lines))
    style = f"{color};border-radius:.2em;padding:.1em 0"
    return f'<span title="{title}" style="{style}">{lines}</span>'


def viewed(result: EncodingResult) -> View:
    """Return the tokens of a result; one made by hand has only their printable form."""
    tokenizer = core.tokenizer_of(result)
    if tokenizer is None:
        data = [core.from_printable(token) or token.encode() for token in result.tokens]
        special = [core.from_printable(token) is None for token in result.tokens]
    else:
        data = list(core.encoder(tokenizer).decode_pieces(result.input_ids, "replace"))
        added = {token.id for token in tokenizer.added_tokens}
        special = [id_ in added for id_ in result.input_ids]
    tokens = list(map(ViewedToken, result.input_ids, data, special))
    text = b"".join(token.data for token in tokens if not token.special)
    return View(tokens, len(text.decode(errors="replace")), len(text))


def result_html(result: EncodingResult) -> str:
    """Draw an encoded text."""
    return view_html(viewed(result))


def batch_html(batch: Any) -> str:
    """Draw the texts of a batch, one below the other."""
    encodings: Sequence[EncodingResult] = batch.encodings
    drawn = "".join(map(result_html, encodings[:MOST_TEXTS]))
    more = len(encodings) - MOST_TEXTS
    left_out = f"<div>… {counted(more, 'more text')}</div>" if more > 0 else ""
    fields = ", ".join(f"{name} {_shape(value)}" for name, value in batch.data.items())
    return f'{drawn}{left_out}<div style="{_QUIET}">{html.escape(fields)}</div>'


def _shape(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{tuple(shape)}"
    lengths = {len(row) for row in value}
    longest = max(lengths, default=0)
    return f"{len(value)} × {longest}" if len(lengths) < 2 else f"{len(value)} × up to {longest}"


def tokenizer_html(tokenizer: BPETokenizer) -> str:
    """Show a tokenizer: its size, how it cuts text, its added tokens and some learned ones."""
    definition = tokenizer.definition
    special = ", ".join(tokenizer.special_tokens) or "none"
    pattern = core.PATTERN_NAMES.get(definition.split_pattern, definition.split_pattern)
    learned = [left + right for left, right in tokenizer.merges]
    rows = {
        "vocabulary": counted(tokenizer.vocab_size, "token"),
        "split pattern": "components" if definition.components is not None else pattern,
        "normalizer": definition.normalizer or "none",
        "special tokens": core.shorten(special, 400).strip("'\""),
        "first merges": " ".join(map(shown, learned[:12])) or "none",
        "last merges": " ".join(map(shown, learned[-12:])) or "none",
    }
    cells = "".join(
        f'<tr><th style="text-align:left">{name}</th>'
        f'<td style="text-align:left;{_BOX}">{html.escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table>{cells}</table>"


def view_rich(view: View) -> Any:
    """Return the tokens of a text as a `rich.text.Text`."""
    text = core.import_optional("rich.text", "showing tokens by rich", "rich").Text()
    for place, token in enumerate(view.tokens[:MOST]):
        style = "white on #262c35" if token.special else f"black on {COLORS[place % len(COLORS)]}"
        text.append("\n".join(token.lines), style=style)
    text.append(f"\n{view.summary}", style="dim")
    return text


def result_rich(result: EncodingResult) -> Any:
    """Return an encoded text as a `rich.text.Text`."""
    return view_rich(viewed(result))
