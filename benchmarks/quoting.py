"""The figures that README quotes, taken from RESULTS.md, so that the two can't differ.

python benchmarks/quoting.py
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

BEGIN, END = "<!-- figures: written by benchmarks/run.py --write -->", "<!-- end of figures -->"
VOCABULARIES = {
    "cl100k_base": "cl100k",
    "o200k_base": "o200k",
    "r50k_base": "gpt2",
    "qwen3": "qwen3",
}
# The fastest peers that README has room for.
PEERS = {
    "list": ("fastokens", "gigatoken", "tokenizers 1", "tokenizers"),
    "numpy": ("fastokens", "gigatoken"),
}

Row = dict[str, str]


def tables_of(results: str) -> dict[str, list[Row]]:
    """Return the tables of RESULTS.md: heading -> rows, without the bold of our rows.

    A vocabulary's heading occurs in several sections, so the section's heading comes before it.
    """
    found: dict[str, list[Row]] = {}
    section = heading = ""
    header: list[str] = []
    for line in results.splitlines():
        if line.startswith("## "):
            section, heading = line[3:], ""
        elif line.startswith("### "):
            heading, header = f"{section}: {line[4:]}", []
        elif line.startswith("| ") and heading:
            cells = [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]
            if header:
                found.setdefault(heading, []).append(dict(zip(header, cells)))
            else:
                header = cells
    return found


def facts_of(results: str) -> Row:
    """Return what was measured, and on which machine: name -> value."""
    measured = results.split("## Measured\n", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^- ([^:]+): (.*)$", measured, re.MULTILINE))


def quoted(results: str) -> str:
    """Write README's text about speed."""
    tables, facts = tables_of(results), facts_of(results)
    version = facts["bpe_tokenizer"].split(",")[0]
    later = facts.get("not measured")  # written by hand, if a release keeps older figures
    if later:
        version = f"{version} ({later} was not measured)"
    hardware = f"{facts['cores']} cores, {facts['processor']}"
    lines = [f"Version {version}, {facts['date']}, {hardware}, Python {facts['python']}:", ""]
    lines += [f"| | {' | '.join(VOCABULARIES.values())} |", "|---|---|---|---|---|"]
    encoding = {name: tables[f"Encoding: {name}"] for name in VOCABULARIES}
    for kind, call, result in (
        ("list", "encode", "to a list"),
        ("numpy", "encode_to_numpy", "to an array"),
    ):
        lines.append(row_of(f"**`{call}`**", encoding.values(), "bpe_tokenizer", kind, "**"))
        for peer in PEERS[kind]:
            if any(row["library"] == peer and row["returns"] == kind for row in encoding["qwen3"]):
                label = f"{peer} {facts.get(peer, '')}".replace("tokenizers 1 ", "tokenizers ")
                lines.append(row_of(f"{label}, {result}", encoding.values(), peer, kind))
    pure = "bpe_tokenizer, Python engine"
    lines.append(row_of("`encode`, without the engine in C", encoding.values(), pure, "list"))
    return "\n".join([*lines, "", *sentences(tables), ""])


def row_of(
    label: str, encoding: Iterable[list[Row]], library: str, kind: str, bold: str = ""
) -> str:
    """Write the ratios of one library: a cell per vocabulary, a number per corpus."""
    cells = []
    for rows in encoding:
        row = next(row for row in rows if (row["library"], row["returns"]) == (library, kind))
        ratios = [
            re.findall(r"\((.*)\)", row[corpus])[0] for corpus in ("english", "code", "multi")
        ]
        cells.append(f"{bold}{' / '.join(ratios)}{bold}")
    return f"| {label} | {' | '.join(cells)} |"


def sentences(tables: dict[str, list[Row]]) -> list[str]:
    """Write the other figures, as items of a list."""
    calls = [
        row for name, rows in tables.items() if name.startswith("Every call: Calls") for row in rows
    ]
    ahead = {
        kind: spread(
            row[corpus]
            for name in VOCABULARIES
            for row in tables[f"Encoding: {name}"]
            if row["library"] == "ours, times the best peer" and row["returns"] == kind
            for corpus in ("english", "code", "multi")
        )
        for kind in ("list", "numpy")
    }

    def beside(call: str) -> str:
        return spread(
            row["x best peer"] for row in calls if row.get("call") == call and "x best peer" in row
        )

    title = next(name for name in tables if name.startswith("Training: Train"))
    size = re.findall(r"Train, (\S+ MB)", title)[0]
    ours, theirs = (
        next(row for row in tables[title] if row["library"] == name)
        for name in ("bpe_tokenizer", "tokenizers")
    )
    items = [
        f"`encode` is {ahead['list']} times as fast as the fastest peer, and `encode_to_numpy` "
        f"{ahead['numpy']} times.",
        f"Other calls, compared with the same ones of the fastest peer: `encode_batch` "
        f"{beside('encode_batch')}, padded to NumPy {beside('padded, to NumPy')}, offsets "
        f"{beside('offsets of a batch')}, `decode` {beside('decode')}, `decode_batch` "
        f"{beside('decode_batch')}, a chat template {beside('apply_chat_template')}.",
        f"Training on {size} to 32,000 tokens takes {ours['CPU s']} s and {ours['peak MB']} MB. "
        f"HuggingFace's trainer takes {theirs['CPU s']} s and {theirs['peak MB']} MB for the same "
        "merges.",
    ]
    return [textwrap.fill(f"- {item}", 120, subsequent_indent="  ") for item in items]


def spread(numbers: Iterable[str]) -> str:
    """Write the least and the greatest of some numbers, in their own form."""
    found = sorted(filter(None, numbers), key=lambda number: float(number.replace(",", "")))
    return f"{found[0]} to {found[-1]}"


def put_into(readme: str, results: str) -> str:
    """Return README with the figures of RESULTS.md."""
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{quoted(results)}{END}{rest.split(END)[1]}"


def update(readme: Path, results: Path) -> None:
    """Write the figures of RESULTS.md into README."""
    text = put_into(readme.read_text(encoding="utf-8"), results.read_text(encoding="utf-8"))
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    HERE = Path(__file__).resolve().parent
    update(HERE.parent / "README.md", HERE / "RESULTS.md")
