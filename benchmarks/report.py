"""RESULTS.md and its charts, from the tables of a run."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import quoting
from common import Table, is_installed, shown

HOW_TO_READ = """\
# Results

Made by `python benchmarks/run.py --write`; [README.md](README.md) explains how it is measured and
how to repeat it. A library is timed only if its ids, texts or merges equal those of tiktoken or
HuggingFace's `tokenizers`.

How to read it: MB are millions of bytes of UTF-8, seconds are CPU seconds of the process unless a
title says wall time. **Compare the ratios to tiktoken**: medians over slices that the libraries
took in turn, so a slow moment of the machine hits all of them. MB/s are for this machine on this
day only. "Python engine" is this library without its accelerator. A row that does better
than ours is in the table like any other.
"""
CORPORA = "Each cell: MB/s (times tiktoken)."
OURS = "bpe_tokenizer"

# -- Tables -------------------------------------------------------------------


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; our rows are bold, and numbers are aligned right."""
    lines = [f"| {' | '.join(header)} |", f"|---|{'---:|' * (len(header) - 1)}"]
    for row in rows:
        bold = row[0].split(",")[0] == OURS and "Python" not in row[0]
        lines.append(f"| {' | '.join(f'**{cell}**' if bold and cell else cell for cell in row)} |")
    return "\n".join(lines) + "\n"


def chosen(tables: Sequence[Table], *about: str) -> list[Table]:
    """Return the tables whose subject begins with some words."""
    return [table for table in tables if table["about"][: len(about)] == list(about)]


def speed(row: dict[str, Any]) -> str:
    """Write MB/s and the ratio to tiktoken."""
    return f"{shown(float(row['MB/s']))} ({shown(float(row['x tiktoken']))})"


def across_corpora(tables: Sequence[Table], heading: str) -> Iterator[str]:
    """Write the tables of one vocabulary as one, with a column for each corpus."""
    yield f"### {heading}\n"
    corpora = list(dict.fromkeys(table["about"][2] for table in tables))
    rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for table in tables:
        for row in table["rows"]:
            rows.setdefault((row["library"], row["returns"]), {})[table["about"][2]] = row
    cells = []
    for (library, kind), by_corpus in rows.items():
        found = [speed(by_corpus[c]) if c in by_corpus else "not equal" for c in corpora]
        cells.append([library, kind, *found])
    for kind in dict.fromkeys(kind for _, kind in rows):
        best = rows.get((OURS, kind), {})
        if any(row.get("x best peer") for row in best.values()):
            ahead = [shown(best[c]["x best peer"]) if c in best else "" for c in corpora]
            cells.append(["*ours, times the best peer*", kind, *ahead])
    yield markdown(["library", "returns", *corpora], cells)


def plain_table(table: Table) -> Iterator[str]:
    """Write a table unchanged."""
    header = list(dict.fromkeys(name for row in table["rows"] for name in row))
    yield f"### {table['title'][0].upper()}{table['title'][1:]}\n"
    yield markdown(header, [[shown(row.get(name)) for name in header] for row in table["rows"]])


def worst_table(table: Table) -> Iterator[str]:
    """Write the worst cases: a column for each library, milliseconds and times prose."""
    yield f"### {table['title'][0].upper()}{table['title'][1:]}\n"
    libraries = [name[:-4] for name in table["rows"][0] if name.endswith(", ms")]
    rows = []
    for row in table["rows"]:
        cells = []
        for library in libraries:
            ms, times = row.get(f"{library}, ms"), row.get(f"{library}, x prose")
            cells.append(shown(ms) + (f" ({shown(float(times))})" if times else ""))
        rows.append([row["text"], *cells])
    yield "Milliseconds (times prose, of the same library).\n"
    yield markdown(["text", *libraries], rows)


def sections(tables: Sequence[Table]) -> Iterator[str]:
    """Write all tables, by subject; what was not measured has no section."""
    subjects = (
        ("encode", ENCODING),
        ("short", "## A short string\n"),
        ("calls", CALLS),
        ("roads", ""),
        ("threads", "## Two threads\n"),
        ("decode", DECODING),
        ("components", "## Tokenizers that merge characters\n"),
        ("patterns", "## Split patterns\n"),
        ("load", LOADING),
        ("train", TRAINING),
        ("count", ""),
        ("worst", "## Worst cases\n"),
    )
    for subject, heading in subjects:
        found = chosen(tables, subject)
        if found and heading:
            yield heading
        if subject in ("encode", "decode"):
            for vocabulary in dict.fromkeys(table["about"][1] for table in found):
                yield from across_corpora(chosen(found, subject, vocabulary), vocabulary)
            continue
        for table in found:
            yield from worst_table(table) if subject == "worst" else plain_table(table)


ENCODING = f"""\
## Encoding

One thread, documents of 2 to 10 KB that no tokenizer had seen. {CORPORA}
"""
DECODING = f"""\
## Decoding

Ids of the same documents, as lists; to `str` or to `bytes`. {CORPORA}
"""
CALLS = """\
## Every call

Documents that every library has encoded before. The first tables show how many times as fast each
call is as the nearest call of each peer; a cell is empty if a peer has none, or gives another
result. Then comes the cost of each call, in multiples of a loop over `encode`; `goal` is the limit.
"""
LOADING = """\
## Loading a vocabulary

From ranks: a dictionary of tokens and ranks is in memory. tiktoken makes an `Encoding` from it;
this library finds the merges (`recover_merges`) and makes the encoder from them. From files: each
library's own way, from the file to the first encoded text.
"""
TRAINING = """\
## Training

Each training runs in its own process, with documents streamed from one generator, whose time is
subtracted. Each uses one thread unless the row says two. gigatoken takes a file instead, and cuts
as gpt2 does. SentencePiece learns something else (BPE of characters between spaces), and is here
to compare the effort. rustbpe breaks ties differently.
"""

# -- Charts -------------------------------------------------------------------

# Legible on white and on black: only these colors, without a background.
INK, GRAY, ACCENT = "#7d8590", "#9aa3ad", "#e8590c"
TEXT = {"color": INK, "loc": "left"}


def draw_bars(axes: Any, rows: Sequence[dict[str, Any]], column: str, unit: str) -> None:
    """Draw a bar for each row, ours highlighted."""
    most = max(row[column] for row in rows)
    for at, row in enumerate(rows):
        is_ours = row["library"] == OURS
        axes.barh(at, row[column], color=ACCENT if is_ours else GRAY, height=0.72)
        look = {"color": ACCENT, "weight": "bold"} if is_ours else {"color": INK}
        label = f"{shown(float(row[column]))}{unit}"
        axes.text(row[column] + most / 60, at, label, va="center", **look)
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels([label_of(row["library"]) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, most * 1.3)
    axes.set_xticks([])
    axes.tick_params(colors=INK, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def label_of(library: str) -> str:
    """Shorten a name, so that the bars have room."""
    return "our Python engine" if library == f"{OURS}, Python engine" else library


def figure(n_columns: int, heights: Sequence[float], title: str) -> tuple[Any, Any]:
    """Return an empty figure with a title, and its axes, row by row."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("svg")
    look = {"svg.hashsalt": "same every time", "svg.fonttype": "none", "font.size": 10}
    matplotlib.rcParams.update(look)
    drawn, axes = importlib.import_module("matplotlib.pyplot").subplots(
        *(len(heights), n_columns),
        figsize=(11, 0.32 * sum(heights) + 0.45 * len(heights) + 0.4),
        height_ratios=heights,
        squeeze=False,
    )
    drawn.suptitle(title, color=INK, fontsize=13, x=0.01, ha="left")
    return drawn, axes


def save(drawn: Any, path: Path) -> None:
    """Write a chart as SVG, without a date."""
    drawn.tight_layout(h_pad=1.5)
    drawn.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    importlib.import_module("matplotlib.pyplot").close(drawn)


def titled(corpus: str) -> str:
    """Return a corpus's name in a picture."""
    return {"english": "English", "multi": "30 languages"}.get(corpus, corpus)


def draw_encoding(tables: Sequence[Table], path: Path) -> None:
    """Draw the first vocabulary's ratios: lists above, arrays below, a column for each corpus."""
    vocabulary = chosen(tables, "encode")[0]["about"][1]
    shown_tables = chosen(tables, "encode", vocabulary)
    kinds = {"list": "to a list", "numpy": "to NumPy"}
    found = {
        kind: [[row for row in table["rows"] if row["returns"] == kind] for table in shown_tables]
        for kind in kinds
    }
    found = {kind: columns for kind, columns in found.items() if all(columns)}
    drawn, axes = figure(
        len(shown_tables),
        [max(map(len, columns)) for columns in found.values()],
        f"Encoding with {vocabulary}: times the speed of tiktoken, one thread, unseen documents",
    )
    for at, (kind, columns) in enumerate(found.items()):
        for each, table, rows in zip(axes[at], shown_tables, columns):
            fastest_first = sorted(rows, key=lambda row: -row["x tiktoken"])
            draw_bars(each, fastest_first, "x tiktoken", "x")
            each.set_title(f"{titled(table['about'][2])}, {kinds[kind]}", **TEXT)
    save(drawn, path)


def draw_calls(tables: Sequence[Table], path: Path) -> None:
    """Draw how many times as fast each call is as the best peer's, a column for each corpus."""
    vocabulary = chosen(tables, "calls")[0]["about"][1]
    shown_tables = chosen(tables, "calls", vocabulary)
    title = f"Calls with {vocabulary}: times the speed of the fastest peer, warm documents"
    drawn, axes = figure(len(shown_tables), [len(shown_tables[0]["rows"])], title)
    for at, (each, table) in enumerate(zip(axes[0], shown_tables)):
        rows = [row for row in table["rows"] if row["x best peer"]]
        draw_ratios(each, rows, with_names=at == 0)
        each.set_title(titled(table["about"][2]), **TEXT)
    save(drawn, path)


def draw_ratios(axes: Any, rows: Sequence[dict[str, Any]], with_names: bool) -> None:
    """Draw a bar for each call, from 1 on, and name the peer; the scale is logarithmic."""
    axes.set_xscale("log")
    for at, row in enumerate(rows):
        ratio = row["x best peer"]
        axes.barh(at, ratio - 1, left=1, color=ACCENT if ratio >= 1 else GRAY, height=0.72)
        label = f" {shown(float(ratio))}x {row['best peer'].replace(', HF-shaped', '')}"
        axes.text(max(ratio, 1), at, label, va="center", color=INK, fontsize=8)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels([row["call"] if with_names else "" for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0.5, max(row["x best peer"] for row in rows) * 12)
    axes.set_xticks([])
    axes.minorticks_off()
    axes.tick_params(colors=INK, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw_training(tables: Sequence[Table], path: Path) -> None:
    """Draw the CPU seconds and the memory of training."""
    table = chosen(tables, "train")[0]
    rows = [row for row in table["rows"] if "two threads" not in row["library"]]
    drawn, axes = figure(2, [len(rows)], f"T{table['title'][1:]}")
    draw_bars(axes[0][0], sorted(rows, key=lambda row: row["CPU s"]), "CPU s", " s")
    axes[0][0].set_title("CPU seconds", **TEXT)
    draw_bars(axes[0][1], sorted(rows, key=lambda row: row["peak MB"]), "peak MB", " MB")
    axes[0][1].set_title("peak memory", **TEXT)
    save(drawn, path)


def draw(tables: Sequence[Table], folder: Path) -> Iterator[str]:
    """Draw the charts; yield the names of the files."""
    if not is_installed("matplotlib"):
        return
    charts = {"encode": draw_encoding, "calls": draw_calls, "train": draw_training}
    for subject, make in charts.items():
        if chosen(tables, subject):
            make(tables, folder / f"{subject}.svg")
            yield subject


def write(result: dict[str, Any], folder: Path) -> None:
    """Write RESULTS.md and the charts."""
    tables = result["tables"]
    charts = [f"![{subject}]({subject}.svg)\n" for subject in draw(tables, folder)]
    facts = "\n".join(f"- {name}: {value}" for name, value in result["facts"].items())
    measured = f"## Measured\n\n{facts}\n"
    text = "\n".join([HOW_TO_READ, *charts, measured, *sections(tables)])
    (folder / "RESULTS.md").write_text(text, encoding="utf-8")
    if folder == Path(__file__).parent:
        quoting.update(folder.parent / "README.md", folder / "RESULTS.md")
