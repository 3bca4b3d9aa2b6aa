r"""The cost of learning superwords, compared with ordinary BPE, in time and memory; and the gain.

python benchmarks/bench_superwords.py --megabytes 1000 --rules superbpe
python benchmarks/bench_superwords.py --apart --megabytes 9.5 --held-out 0.05 \
    --figure docs/superwords.svg

python benchmarks/bench_superwords.py --encode --apart --megabytes 9.5 --held-out 0.05

With --counts, they train from a file of `count --superwords`, and the table has its size.

python benchmarks/bench_superwords.py --counts --megabytes 100

With --encode, the tokenizers encode the held-out text instead: unseen documents, and all of them as
one line, here and in HuggingFace's tokenizers on the same file.

Each training runs in its own process, which is this script with --rule.  The corpus is written to a
file first; the text after it, a hundredth as large, is held out to measure bytes per token.  If
there isn't enough text, more is made from the same texts by permuting letters: see corpus.py.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path
from typing import Any

from bench_train import memory
from common import (
    END_OF_TEXT,
    SLICES,
    Table,
    add_options,
    finish,
    for_each,
    interleaved,
    median_ratio,
    megabytes_of,
    shared_texts,
    timed,
)
from corpus import training_documents
from report import TEXT, draw_bars, figure, save, titled

from bpe_tokenizer import BPETokenizer, PretokenCounts, count_pretokens
from bpe_tokenizer_tools.training.joins import CountedWords
from bpe_tokenizer_tools.training.superwords import Superwords, count_superwords

RULES = ("bpe", "superbpe", "boundless", "auto")
NAMES = {"bpe": "BPE", "superbpe": "superbpe", "boundless": "boundless", "auto": "boundless, auto"}


def rule_of(options: argparse.Namespace, rule: str) -> Superwords | None:
    """Return the options that a rule stands for; None for ordinary BPE."""
    transition = round(options.vocab_size * options.transition)
    return {
        "superbpe": Superwords(transition),
        "boundless": Superwords(transition, "boundless"),
        "auto": Superwords("auto", "boundless"),
    }.get(rule)


def trained(options: argparse.Namespace, rule: str, source: Any) -> BPETokenizer:
    """Train by one rule, from a corpus or from counts."""
    named = "counts" if isinstance(source, PretokenCounts) else "corpus"
    return BPETokenizer(options.pattern).train(
        vocab_size=options.vocab_size,
        special_tokens=[END_OF_TEXT],
        superwords=rule_of(options, rule),
        verbose=False,
        **{named: source},
    )


def counted(options: argparse.Namespace, rule: str, path: Path) -> tuple[PretokenCounts, float]:
    """Count for one rule, write the counts and read them; return them, and the file's megabytes."""
    how: dict[str, Any] = {"special_tokens": [END_OF_TEXT], "split_pattern": options.pattern}
    superwords = rule_of(options, rule)
    if superwords is None:
        counts = count_pretokens(path, **how)
    else:
        counts = count_superwords(path, superwords, options.vocab_size, **how)
    file = path.with_suffix(".counts")
    counts.save(file)
    return PretokenCounts.load(file), file.stat().st_size / 1e6


def train_one(options: argparse.Namespace) -> dict[str, Any]:
    """Train by one rule; return its time and memory."""
    folder = options.corpus[0]
    before, cpu, wall = memory(peak=False), time.process_time(), time.perf_counter()
    source, more = folder / "training.txt", {}
    if options.counts:
        source, more["counts, MB"] = counted(options, options.rule, source)
        more["counting, CPU s"] = time.process_time() - cpu
        more["runs"] = len(getattr(source, "runs", CountedWords()).counts)
        more["pre-tokens"] = len(source)
    tokenizer = trained(options, options.rule, source)
    found = {
        **more,
        "CPU s": time.process_time() - cpu,
        "wall s": time.perf_counter() - wall,
        "peak MB": memory(peak=True),
        "of it before, MB": before,
    }
    held_out = (folder / "held_out.txt").read_text(encoding="utf-8")
    found["bytes per token"] = len(held_out.encode()) / tokenizer.count_tokens(held_out)
    return found


def encode_all(options: argparse.Namespace, tokenizers: dict[str, BPETokenizer]) -> list[Any]:
    """Encode the held-out text with each tokenizer, and with HuggingFace's, in turns."""
    from tokenizers import Tokenizer

    folder, rows = options.folder, []
    warm = (folder / "training.txt").read_text(encoding="utf-8")[-2_000_000:].split(END_OF_TEXT)
    held_out = (folder / "held_out.txt").read_text(encoding="utf-8")
    documents = list(filter(None, held_out.split(END_OF_TEXT)))
    line = " ".join(held_out.replace(END_OF_TEXT, " ").split())
    slices = [documents[i::SLICES] for i in range(SLICES)]
    runs: dict[str, Any] = {}
    for rule, tokenizer in tokenizers.items():
        tokenizer.save(folder / rule, verbose=False)
        theirs = Tokenizer.from_file(str(folder / rule / "tokenizer.json"))
        for text in [*documents, line]:
            text = unicodedata.normalize("NFC", text)
            ids = theirs.encode(text, add_special_tokens=False).ids
            if tokenizer.encode(text) != ids:
                raise SystemExit(f"{rule}: tokenizers gives other ids")
        tokenizer.clear_cache()
        for_each(tokenizer.encode, warm)
        runs[rule] = functools.partial(for_each, tokenizer.encode)
        runs[f"{rule}, tokenizers"] = functools.partial(for_each, theirs.encode)
    seconds = interleaved(runs, slices)
    for rule, tokenizer in tokenizers.items():
        times, theirs_took = seconds[rule], seconds[f"{rule}, tokenizers"]
        size, took = len(line.encode()), []
        for text in (line[: len(line) // 8], line):
            tokenizer.clear_cache()
            took.append(timed(functools.partial(tokenizer.encode, text)))
        row = {"rule": rule, "MB/s": megabytes_of(documents) / sum(times)}
        row["x tokenizers"] = median_ratio(theirs_took, times)
        row["x BPE"] = median_ratio(seconds["bpe"], times)
        row |= {"one line, MB/s": size / took[1] / 1e6, "x time of an eighth": took[1] / took[0]}
        rows.append(row)
    return rows


def measure(options: argparse.Namespace, files: list[Path] | None, folder: Path) -> Table:
    """Write the corpus, and train by each rule."""
    size, last = 0, options.megabytes * 1e6
    with (
        (folder / "training.txt").open("w", encoding="utf-8", newline="") as training,
        (folder / "held_out.txt").open("w", encoding="utf-8", newline="") as held_out,
    ):
        for document in training_documents(files, options.megabytes * (1 + options.held_out)):
            (training if size < last else held_out).write(document + END_OF_TEXT)
            size += len(document.encode())
    if options.encode:
        options.folder = folder
        made = {rule: trained(options, rule, folder / "training.txt") for rule in options.rules}
        title = f"{files[0].stem}: " if options.apart and files else ""
        title += f"encoding {(size - last) / 1e6:,.1f} MB, pattern {options.pattern}"
        return {
            "about": ["superwords", "encode"],
            "title": title,
            "rows": encode_all(options, made),
        }
    rows = []
    for rule in options.rules:
        print(f"training: {rule}", file=sys.stderr)
        named = {"rule": rule, "corpus": folder, "pattern": options.pattern}
        named |= {"vocab-size": options.vocab_size, "transition": options.transition}
        words = [str(word) for name, value in named.items() for word in (f"--{name}", value)]
        words += ["--counts"] if options.counts else []
        done = subprocess.run(
            [sys.executable, __file__, *words], stdout=subprocess.PIPE, encoding="utf-8", check=True
        )
        rows.append({"rule": rule, **json.loads(done.stdout.splitlines()[-1])})
    name = f"{files[0].stem}, " if options.apart and files else ""
    title = f"{name}{options.megabytes:,.1f} MB, pattern {options.pattern}"
    title += f", {options.vocab_size:,} tokens"
    note = f"{options.transition:.0%} of the tokens are those of stage one, except with auto"
    return {
        "about": ["superwords", *name.split(", ")[:1]],
        "title": f"superwords, {title}",
        "rows": rows,
        "note": note,
    }


def draw(tables: list[Table], path: Path) -> None:
    """Draw the bytes per token of each rule, a column for each corpus."""
    drawn, axes = figure(len(tables), [len(tables[0]["rows"])], "Bytes per token, held-out text")
    for each, table in zip(axes[0], tables):
        rows = [{**row, "library": NAMES[row["rule"]]} for row in table["rows"]]
        draw_bars(each, rows, "bytes per token", "")
        each.set_title(titled(table["about"][1]), **TEXT)
    save(drawn, path)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--megabytes", type=float, default=100, metavar="N")
    parser.add_argument("--vocab-size", type=int, default=32_000, metavar="N")
    share = "the vocabulary of stage one, as a share of the whole"
    parser.add_argument("--transition", type=float, default=0.8, metavar="X", help=share)
    parser.add_argument("--pattern", default="o200k")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    apart = "train on each of the files by itself"
    parser.add_argument("--apart", action="store_true", help=apart)
    held_out = "how much text to measure on, as a share of what is trained on"
    parser.add_argument("--held-out", type=float, default=0.01, metavar="X", help=held_out)
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw bytes per token, as SVG")
    encode = "measure encoding instead, against tokenizers"
    parser.add_argument("--encode", action="store_true", help=encode)
    counts = "train from files of counts, and show how large they are"
    parser.add_argument("--counts", action="store_true", help=counts)
    parser.add_argument("--rule", choices=RULES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rule:
        print(json.dumps(train_one(options)))
        return
    files = options.corpus or shared_texts()
    with tempfile.TemporaryDirectory() as folder:
        groups = [[file] for file in files] if options.apart else [files]
        tables = [measure(options, group or None, Path(folder)) for group in groups]
    finish("superwords", tables, options.json)
    if options.figure:
        draw(tables, options.figure)


if __name__ == "__main__":
    main()
