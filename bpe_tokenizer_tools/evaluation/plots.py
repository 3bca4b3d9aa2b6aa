"""Figures drawn by matplotlib: bytes per token, tokens by script, tokens per word."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from bpe_tokenizer_tools.evaluation.figures import Evaluation, script_lines
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.text import printable

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # keep text as text
    "svg.hashsalt": "bpe-tokenizer",  # the same figures give the same file
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "font.family": ["DejaVu Sans", "sans-serif"],
}
_SCRIPTS = 12  # in the plot; all others share one bar
_MOST_TOKENS = 8  # of a word
# The palette of Okabe and Ito, which color-blind readers can tell apart.
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")


def plot(evaluation: Evaluation, path: str | Path) -> None:
    """Draw bytes per token by group, vocabularies by script, and tokens per word.

    The file is a .png or .svg, and is written atomically.
    """
    outputs.plot_format(path)
    import matplotlib

    height = 4.2 + 0.35 * len(evaluation.groups)
    with (
        matplotlib.rc_context(_SETTINGS),
        warnings.catch_warnings(),
        outputs.figure(path, 12, height) as figure,
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name may use any script
        above, below = cast("Any", figure.subfigures(2, 1, height_ratios=[1, 1.25]))
        left, right = above.subplots(1, 2)
        _draw_bytes_per_token(left, evaluation)
        _draw_tokens_per_word(right, evaluation)
        _draw_scripts(below.subplots(), evaluation)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=8, frameon=False)


def _draw_groups(axes: Any, names: Sequence[str], series: Sequence[tuple[str, Any]]) -> None:
    """Draw a group of bars for each name: one of each series."""
    width = 0.8 / len(series)
    for i, (label, values) in enumerate(series):
        places = [at + (i - (len(series) - 1) / 2) * width for at in range(len(names))]
        axes.bar(
            places, values, width * 0.92, label=_literal(label), color=_COLORS[i % len(_COLORS)]
        )
    axes.set_xticks(range(len(names)), list(map(_literal, names)))
    axes.tick_params(axis="x", length=0)
    if len(names) > 8:
        axes.tick_params(axis="x", rotation=35)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")


def _literal(text: str) -> str:
    """Write a name so that no part of it is a formula, or hides it from the legend."""
    text = printable(text)
    return f" {text}".replace("$", r"\$") if text.startswith("_") else text.replace("$", r"\$")


def _draw_bytes_per_token(axes: Any, evaluation: Evaluation) -> None:
    series = [
        (name, [evaluation.get(name, group).bytes_per_token or 0.0 for group in evaluation.groups])
        for name in evaluation.tokenizers
    ]
    _draw_groups(axes, evaluation.groups, series)
    axes.set_title("bytes per token")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _draw_tokens_per_word(axes: Any, evaluation: Evaluation) -> None:
    """Draw the share of words with more than n tokens, on all texts."""
    last = evaluation.groups[-1]
    places = range(1, _MOST_TOKENS + 1)
    for i, name in enumerate(evaluation.tokenizers):
        counts = evaluation.get(name, last).words_by_tokens
        if counts is None or not sum(counts):
            continue
        shares = [100 * sum(counts[n + 1 :]) / sum(counts) for n in places]
        seen = [share or None for share in shares]  # 0 has no logarithm
        axes.plot(places, seen, marker="o", markersize=4, color=_COLORS[i % len(_COLORS)])
    axes.set_xticks(places, list(map(str, places)))
    if any(line.get_ydata()[0] for line in axes.lines):
        axes.set_yscale("log")
        _write_powers(axes)
    axes.yaxis.set_major_formatter("{x:,g}%")
    axes.set_title(f"words with more than n tokens ({_literal(last)}, log scale)")
    axes.grid(axis="y", alpha=0.3)


def _write_powers(axes: Any) -> None:
    """Label only the major ticks of a logarithmic axis, so that all numbers look alike.

    On short axes, Matplotlib also labels minor ticks, in another notation.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_scripts(axes: Any, evaluation: Evaluation) -> None:
    """Draw how many tokens of each script there are, the scale logarithmic."""
    lines = script_lines(evaluation.vocabularies, _SCRIPTS)
    series = [
        (
            v.tokenizer,
            [sum(v.scripts[s].tokens for s in lines[line] if s in v.scripts) for line in lines],
        )
        for v in evaluation.vocabularies
    ]
    _draw_groups(axes, list(lines), series)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.7)
    axes.margins(x=0.01)
    _write_powers(axes)
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_title("tokens of the vocabulary by script (log scale)")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
