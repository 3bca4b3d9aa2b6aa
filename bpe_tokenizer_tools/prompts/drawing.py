"""A picture of the tokenizations that the end of a prompt can have."""

from __future__ import annotations

from html import escape

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.prompts.healing import covering_tree

_LETTER, _ROW, _EDGE, _SHOWN = 9.6, 30, 16, 4  # pixels; last tokens of each branch
_CERTAIN, _INSIDE, _LAST, _MORE = "#cfe3f5", "#f7e3b5", "#d9efd2", "#eeeeee"


def draw_tree(tokenizer: BPETokenizer, prompt: str, shown: int = _SHOWN) -> str:
    """Return the covering tree of a prompt as SVG: a row for each tokenization.

    A token is as wide as its bytes, and a line marks the end of the prompt.  Of last tokens that
    follow the same ones, the first `shown` are drawn, shortest first, and the others counted.
    """
    tree = covering_tree(tokenizer, prompt)
    token = tokenizer.decode_bytes
    rows: list[tuple[list[int], str]] = [(tree.ids, "")] if not tree.branches else []
    for front, lasts in sorted(tree.branches.items(), key=lambda branch: len(branch[0])):
        ordered = sorted(lasts, key=lambda last: (len(token([last])), token([last])))
        rows += (([*tree.ids, *front, last], "") for last in ordered[:shown])
        if len(ordered) > shown:
            rows.append(([*tree.ids, *front], f"{len(ordered) - shown:,} more"))
    parts, right = list[str](), 0.0
    for number, (ids, more) in enumerate(rows):
        x, y = float(_EDGE), _EDGE + _ROW * number
        for place, id_ in enumerate(ids):
            is_last = place == len(ids) - 1 and not more
            color = _CERTAIN if place < len(tree.ids) else _LAST if is_last else _INSIDE
            x = _box(parts, x, y, color, _label(token([id_])), len(token([id_])))
        if more:
            x = _box(parts, x, y, _MORE, more, len(more) + 1)
        right = max(right, x)
    end, height = _EDGE + _LETTER * len(prompt.encode()), _ROW * len(rows) + 2 * _EDGE
    parts.append(
        f'<path d="M{end:.1f} 6V{height - 6}" stroke="#c0392b" stroke-dasharray="4 3"/>'
        f'<text x="{end:.1f}" y="{height + 8}" text-anchor="middle">end of the prompt</text>'
    )
    width = max(right, end + _LETTER * 9) + _EDGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height + _EDGE}" '
        'font-family="monospace" font-size="14">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{chr(10).join(parts)}\n</svg>\n'
    )


def _box(parts: list[str], x: float, y: float, color: str, label: str, letters: int) -> float:
    """Draw a box as wide as some letters; return where it ends."""
    width = _LETTER * letters
    parts.append(
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 6}" fill="{color}" '
        f'stroke="#666666"/><text x="{x + width / 2:.1f}" y="{y + 17}" text-anchor="middle">'
        f"{escape(label, quote=False)}</text>"
    )
    return x + width


def _label(token: bytes) -> str:
    """Write a token, with a mark for each space."""
    return "".join(
        "␣" if char == " " else char if char.isprintable() else "·"
        for char in token.decode(errors="replace")
    )
