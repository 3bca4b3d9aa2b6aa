"""The figures of docs/vocabularies.md, adapting.md, parity.md, digits.md and learn/16, drawn.

All are from real runs.

python benchmarks/draw_docs.py                       # all of them
python benchmarks/draw_docs.py digits parity         # some
python benchmarks/draw_docs.py adapting --models DIR # models that an earlier run has kept there

It reads the texts and vocabularies of ../shared; `tiny-gpt` reads the result of tiny_gpt.py.
`adapting` trains two tiny models for some minutes, with torch and transformers, unless DIR has
them.  Colors follow the reader's light or dark mode.
"""

from __future__ import annotations

import argparse
import html
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import regex
from common import END_OF_TEXT, SHARED
from libraries import scratch

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools.patterns.digits import digits_from_the_right

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
CORPORA, VOCAB = SHARED / "corpora", SHARED / "vocab"

# -- SVG ------------------------------------------------------------------------

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.mono { font: 15px ui-monospace, monospace }
.soft { fill: #59636e }
.grid { stroke: #d1d9e0 }
.box { fill: none; stroke: #59636e }
.a { fill: #8c959f; stroke: #8c959f }
.b { fill: #2f81f7; stroke: #2f81f7 }
.c { fill: #d1571b; stroke: #d1571b }
.d { fill: #8250df; stroke: #8250df }
.e { fill: #1a9e96; stroke: #1a9e96 }
.f { fill: #bf3989; stroke: #bf3989 }
.line { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .soft { fill: #9198a1 }
  .grid { stroke: #3d444d }
  .box { stroke: #9198a1 }
}
"""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Write words."""
    words = html.escape(words)
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Draw a bar or a box."""
    where = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"'
    return f'<rect class="{kind}" {where}/>'


def line(points: Sequence[tuple[float, float]], kind: str) -> str:
    """Draw a line through points."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{places}"/>'


def save(name: str, height: float, title: str, parts: Sequence[str], width: int = 760) -> None:
    """Write a figure with a title, which screen readers read, too."""
    path = DOCS / f"{name}.svg"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" role="img">'
    named = f"<title>{html.escape(title)}</title>"
    shown = text(0, 18, title, "title")
    path.write_text(
        "\n".join([head, named, f"<style>{STYLE}</style>", shown, *parts, "</svg>\n"]),
        encoding="utf-8",
    )
    print(f"Wrote {path}")


def bars(rows: Sequence[tuple[str, float, str]], left: int = 240, top: int = 34) -> Iterator[str]:
    """Draw a bar for each (label, value, kind), one below another, with its value."""
    scale = (760 - left - 60) / max(value for _, value, _ in rows)
    for number, (label, value, kind) in enumerate(rows):
        y = top + 24 * number
        yield text(left - 10, y + 13, label, anchor="end")
        yield rect(left, y, value * scale, 16, kind)
        yield text(left + value * scale + 8, y + 13, f"{value:.2f}", "soft")


def legend(entries: Mapping[str, str], y: float) -> Iterator[str]:
    """Draw what the colors mean."""
    x = 0.0
    for words, kind in entries.items():
        yield rect(x, y - 11, 12, 12, kind)
        yield text(x + 18, y, words, "soft")
        x += 40 + 7 * len(words)


# -- How numbers are cut -----------------------------------------------------------

PATTERNS = {
    "gpt2": SPLIT_PATTERNS["gpt2"],
    "qwen2": SPLIT_PATTERNS["qwen2"],
    "llama3": SPLIT_PATTERNS["llama3"],
    "llama3, digits from the right": digits_from_the_right("llama3"),
}


def draw_digits() -> None:
    """Draw how patterns cut some numbers."""
    numbers, digit = ("1234567", "234567", "1000000"), 13
    parts = [text(250 + 170 * i, 46, number, "soft mono") for i, number in enumerate(numbers)]
    for row, (name, pattern) in enumerate(PATTERNS.items()):
        y = 76 + 34 * row
        parts.append(text(235, y, name, anchor="end"))
        for column, number in enumerate(numbers):
            x = 250.0 + 170 * column
            for piece in regex.findall(pattern, number):
                width = digit * 0.72 * len(piece) + 6
                parts.append(rect(x, y - 16, width, 22, "box"))
                parts.append(text(x + width / 2, y, piece, "mono", "middle"))
                x += width + 3
    save("digits", 76 + 34 * len(PATTERNS) - 12, "How split patterns cut numbers", parts)


# -- Extending a vocabulary ----------------------------------------------------------

ADDED = (0, 500, 1_000, 2_000, 4_000, 8_000)


def draw_vocabularies() -> None:
    """Draw bytes per token of held-out text, before and after extending cl100k."""
    old = BPETokenizer.from_file(VOCAB / "cl100k_base.tiktoken")
    apart: dict[str, list[str]] = {}
    for name in ("multi", "english", "code"):
        documents = (CORPORA / f"{name}.txt").read_text("utf-8").split(END_OF_TEXT)
        apart[name] = documents[::20]
        if name == "multi":
            learned_from = [d for i, d in enumerate(documents) if i % 20]
    names = {"multi": "30 languages", "english": "English", "code": "code"}
    lines: dict[str, list[float]] = {name: [] for name in apart}
    for add in ADDED:
        new = old.extend(learned_from, add=add, held_out=apart, verbose=False) if add else None
        for name, documents in apart.items():
            size = sum(len(document.encode()) for document in documents)
            tokens = sum(map((new or old).count_tokens, documents))
            lines[name].append(size / tokens)
    title = "Bytes per token of held-out text: cl100k, extended from text in 30 languages"
    ticks = [f"{add:,}" for add in ADDED]
    save("vocabularies", 330, title, [*curves(lines, ticks, names, "tokens added")])


def curves(
    lines: Mapping[str, Sequence[float]], ticks: Sequence[str], names: Mapping[str, str], what: str
) -> Iterator[str]:
    """Draw lines over equally spaced places, with a name and values at their ends."""
    values = [value for each in lines.values() for value in each]
    least, most = int(min(values) * 2) / 2, -int(-max(values) * 2) / 2 + 0.5
    xs = [50 + 95 * i for i in range(len(ticks))]

    def height(value: float) -> float:
        return 270 - 225 * (value - least) / (most - least)

    steps = round((most - least) * 2)
    for mark in (least + step / 2 for step in range(steps + 1)):
        yield line([(50, height(mark)), (xs[-1], height(mark))], "grid")
        yield text(40, height(mark) + 4, f"{mark:.1f}", "soft", "end")
    for x, tick in zip(xs, ticks):
        yield text(x, 292, tick, "soft", "middle")
    yield text(xs[-1] / 2 + 25, 316, what, "soft", "middle")
    free = 0.0
    for kind, (name, found) in sorted(zip("bac", lines.items()), key=lambda each: -each[1][1][-1]):
        yield line([*zip(xs, map(height, found))], f"line {kind}")
        free = max(free, height(found[-1]) + 4)  # labels must not overlap
        yield text(xs[-1] + 10, free, f"{names[name]}: {found[0]:.2f} to {found[-1]:.2f}")
        free += 18


# -- Parity ----------------------------------------------------------------------------

SCRIPTS = ("Latin", "Cyrillic", "Greek", "Han", "Tibetan", "Khmer")
SIZE = 16_000


def by_script() -> dict[str, list[str]]:
    """Group the documents in many languages by the script of most of their letters."""
    letters = {name: regex.compile(rf"\p{{Script={name}}}") for name in (*SCRIPTS, "Arabic")}
    letters["other"] = regex.compile(r"[\p{L}--[\p{Script=Latin}]]", regex.V1)
    found: dict[str, list[str]] = {name: [] for name in SCRIPTS}
    for document in (CORPORA / "multi.txt").read_text("utf-8").split(END_OF_TEXT):
        counts = {name: len(each.findall(document)) for name, each in letters.items()}
        most = max(SCRIPTS, key=counts.__getitem__)
        if counts[most] and counts[most] >= max(counts["Latin"], counts["other"] / 2):
            found[most].append(document)
    return found


def draw_parity() -> None:
    """Draw the fertility of each script, after training with parity and without."""
    from bpe_tokenizer_tools.evaluation.sweep import sweep

    texts = by_script()
    result = sweep(parity=texts, sizes=[SIZE], held_out_share=0.05, split_pattern="o200k")
    languages = result.languages
    assert languages is not None
    rows = []
    for name in SCRIPTS:
        for training, kind in (("plain", "a"), ("parity", "b")):
            label = f"{name} ({sum(len(d.encode()) for d in texts[name]) / 1e6:.1f} MB)"
            [value] = languages.curve(name, training)
            rows.append((label if training == "plain" else "", value, kind))
    [plain], [parity] = languages.gini("plain"), languages.gini("parity")
    named = {f"plain, Gini {plain:.3f}": "a", f"parity, Gini {parity:.3f}": "b"}
    title = f"Tokens per pre-token of held-out text, {SIZE:,} tokens"
    parts = [*bars(rows), *legend(named, 34 + 24 * len(rows) + 22)]
    save("parity", 34 + 24 * len(rows) + 34, title, parts)


# -- What adapting loses ------------------------------------------------------------------


def draw_adapting(models: Path | None) -> None:
    """Draw bits per byte before any training, by the way new rows are made."""
    from bpe_tokenizer_tools.adapting import adapt_model, transplant

    folder = models or scratch()
    english = (CORPORA / "english.txt").read_text("utf-8").replace(END_OF_TEXT, "\n")
    if not (folder / "donor/model.safetensors").exists():
        train(folder / "base", "cl100k", english[:4_000_000], english, 2_048, 64)
        train(folder / "donor", "gpt2", english[2_000_000:6_000_000], english, 3_072, 48)
    base, donor = folder / "base", BPETokenizer.from_file(folder / "donor")
    rows = [("base, its own vocabulary", bits_per_byte(base, english[-200_000:]), "a")]
    out = scratch()
    for init in ("mean", "zeros", "subword_mean"):
        adapt_model(base, None, donor, out / init, init=init, verbose=False)
        rows.append((f"adapted, {init}", bits_per_byte(out / init, english[-200_000:]), "b"))
    for k in (2, 4, 16):
        name = out / f"omp{k}"
        transplant(base, donor, name, "omp", k, donor_model_dir=folder / "donor", verbose=False)
        rows.append((f"transplanted, omp, k = {k}", bits_per_byte(name, english[-200_000:]), "c"))
    title = "Bits per byte of held-out English before any training; lower is better"
    save("adapting", 34 + 24 * len(rows) + 4, title, [*bars(rows)])


def train(
    folder: Path, pattern: str, corpus: str, english: str, vocab_size: int, width: int
) -> None:
    """Train a tokenizer and a tiny model with it, as docs/adapting.md says."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = BPETokenizer(pattern)
    tokenizer.train([corpus], vocab_size, special_tokens=[END_OF_TEXT], verbose=False)
    tokenizer.save(folder, verbose=False)
    ids = torch.tensor(tokenizer.encode(english[:4_000_000]))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True,
        max_position_embeddings=64, bos_token_id=None, eos_token_id=vocab_size - 1,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.1)
    for _ in range(1_500):
        starts = torch.randint(len(ids) - 64, (32,)).tolist()
        batch = torch.stack([ids[i : i + 64] for i in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.to(torch.bfloat16).save_pretrained(folder)


def bits_per_byte(folder: Path, held_out: str) -> float:
    """Return a model's bits per byte of a text: windows of 64 tokens, 32 apart, score their end."""
    import torch
    from transformers import LlamaForCausalLM

    model: Any = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor(BPETokenizer.from_file(folder).encode(held_out))
    starts = range(0, len(ids) - 64, 32)
    total, count = 0.0, 0
    with torch.no_grad():
        for at in range(0, len(starts), 64):
            batch = torch.stack([ids[start : start + 64] for start in starts[at : at + 64]])
            logits = model(input_ids=batch).logits[:, 31:-1].flatten(0, 1)
            scored = batch[:, 32:].flatten()
            total += float(torch.nn.functional.cross_entropy(logits, scored, reduction="sum"))
            count += len(scored)
    return total / count / 0.6931471805599453 * len(ids) / len(held_out.encode())


# -- A tiny GPT, by the size of its vocabulary -----------------------------------------------


def draw_tiny_gpt() -> None:
    """Draw bits per byte of held-out text by compute, and by tokens read: means over the seeds."""
    result = json.loads((HERE / "tiny_gpt.json").read_text(encoding="utf-8"))
    runs: dict[int, list[Any]] = {}
    for run in result["runs"]:
        runs.setdefault(run["vocab_size"], []).append(run["points"])
    means = {
        size: [
            {key: statistics.mean(point[key] for point in same) for key in same[0]}
            for same in zip(*points)
        ]
        for size, points in runs.items()
    }
    parts = [
        *panel(means, "compute", "10¹² operations", 0.1, 40),
        *panel(means, "tokens", "thousand tokens read", 1000, 430),
    ]
    title = "Bits per byte of held-out text while a tiny GPT learns, by the size of its vocabulary"
    save("tiny-gpt", 372, title, parts, 790)


def panel(
    means: Mapping[int, Sequence[Mapping[str, float]]], key: str, what: str, unit: float, left: int
) -> Iterator[str]:
    """Draw a line for each vocabulary, over a logarithmic scale, and the size at its end."""
    xs = [point[key] for points in means.values() for point in points]
    ys = [point["bits_per_byte"] for points in means.values() for point in points]
    least = math.floor(min(ys) * 2) / 2 - 0.5  # the names at the ends of lines need room
    most = math.ceil(max(ys) * 2) / 2

    def place(x: float, y: float) -> tuple[float, float]:
        across = math.log(x / min(xs)) / math.log(max(xs) / min(xs))
        return left + 270 * across, 320 - 270 * (y - least) / (most - least)

    for step in range(round((most - least) * 2) + 1):
        y = place(min(xs), least + step / 2)[1]
        yield line([(left, y), (left + 270, y)], "grid")
        yield text(left - 8, y + 4, f"{least + step / 2:.1f}", "soft", "end")
    marks = (unit * n * 10**power for power in range(6) for n in (1, 2, 5))
    for mark in (mark for mark in marks if min(xs) <= mark <= max(xs)):
        shown = f"{mark:g}" if key == "compute" else f"{mark / unit:,.0f}"
        yield text(place(mark, least)[0], 340, shown, "soft", "middle")
    yield text(left + 135, 362, what, "soft", "middle")
    free = 0.0
    by_height = sorted(
        zip("abcdef", means.items()), key=lambda each: -each[1][1][-1]["bits_per_byte"]
    )
    for kind, (size, points) in by_height:
        found = [place(point[key], point["bits_per_byte"]) for point in points]
        yield line(found, f"line {kind}")
        free = max(free, found[-1][1] + 4)  # labels must not overlap
        yield text(left + 278, free, f"{size:,}")
        free += 16


def main() -> None:
    """Draw the figures that the command line names."""
    drawn: dict[str, Callable[[], None]] = {
        "digits": draw_digits,
        "vocabularies": draw_vocabularies,
        "parity": draw_parity,
        "adapting": lambda: draw_adapting(options.models),
        "tiny-gpt": draw_tiny_gpt,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(drawn)}")
    parser.add_argument("--models", type=Path, metavar="DIR", help="where base and donor are kept")
    options = parser.parse_args()
    if unknown := set(options.names) - set(drawn):
        parser.error(f"no figure is called {sorted(unknown)}")
    for name in options.names or drawn:
        drawn[name]()


if __name__ == "__main__":
    main()
