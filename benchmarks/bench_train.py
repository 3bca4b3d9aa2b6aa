"""Training speed and memory, against HuggingFace's BpeTrainer, rustbpe and others.

python benchmarks/bench_train.py --megabytes 10 --vocab-size 8000

Each training runs in its own process, which is this script with --library.
"""

from __future__ import annotations

import argparse
import importlib
import io
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common import END_OF_TEXT, Table, add_options, finish, is_installed, median_ratio
from corpus import training_documents

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, build_byte_to_char, count_pretokens
from bpe_tokenizer_tools.formats.tiktoken import to_fancy_regex

Merges = list[str]  # each as in merges.txt: two printable parts with a space between


# -- One training, in its own process -------------------------------------------


class Clocked:
    """Documents that are made on demand, and the time to make them.

    Attributes:
        cpu, wall: seconds spent on making documents, which don't count for the trainer.
        bytes: their size.
    """

    def __init__(self, documents: Iterator[str]) -> None:
        self._documents = documents
        self.cpu = self.wall = 0.0
        self.bytes = 0

    def __iter__(self) -> Iterator[str]:
        while True:
            cpu, wall = time.thread_time(), time.perf_counter()
            document = next(self._documents, None)
            if document is not None:
                self.bytes += len(document.encode())
            self.cpu += time.thread_time() - cpu
            self.wall += time.perf_counter() - wall
            if document is None:
                return
            yield document


def train_ours(documents: Clocked, options: argparse.Namespace) -> Merges:
    """Train with this library."""
    tokenizer = BPETokenizer(options.pattern, normalizer=None)
    workers = options.workers
    tokenizer.train(iter(documents), options.vocab_size, verbose=False, num_workers=workers)
    return printable(tokenizer.merges)


def train_huggingface(documents: Clocked, options: argparse.Namespace) -> Merges:
    """Train with HuggingFace's, on the same alphabet and pattern."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    steps = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if options.pattern != "gpt2":
        split = pre_tokenizers.Split(Regex(theirs(SPLIT_PATTERNS[options.pattern])), "isolated")
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        steps = pre_tokenizers.Sequence([split, plain])
    tokenizer.pre_tokenizer = steps
    trainer = trainers.BpeTrainer(
        vocab_size=options.vocab_size,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(iter(documents), trainer)
    return [" ".join(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]


def train_rustbpe(documents: Clocked, options: argparse.Namespace) -> Merges:
    """Train with rustbpe, which only gives its tokens, not its merges."""
    tokenizer = importlib.import_module("rustbpe").Tokenizer()
    pattern = to_fancy_regex(SPLIT_PATTERNS[options.pattern])
    tokenizer.train_from_iterator(iter(documents), options.vocab_size, pattern=pattern)
    return []


def train_gigatoken(documents: Clocked, options: argparse.Namespace) -> Merges:
    """Train with gigatoken, which can't take documents one by one, so it gets a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "corpus.txt")
        wall, cpu = time.perf_counter(), time.process_time()
        with path.open("w", encoding="utf-8", newline="") as file:
            file.writelines(itertools.chain.from_iterable((d, END_OF_TEXT) for d in documents))
        documents.wall, documents.cpu = time.perf_counter() - wall, time.process_time() - cpu
        train = importlib.import_module("gigatoken").train_bpe
        _, merges = train(path, options.vocab_size, [], separator=END_OF_TEXT.encode())
    return printable(merges)


def train_sentencepiece(documents: Clocked, options: argparse.Namespace) -> Merges:
    """Train with SentencePiece: BPE of characters, cut at spaces, whatever the pattern."""
    importlib.import_module("sentencepiece").SentencePieceTrainer.train(
        sentence_iterator=iter(documents),
        model_writer=io.BytesIO(),
        model_type="bpe",
        vocab_size=options.vocab_size,
        byte_fallback=True,
        normalization_rule_name="identity",
        max_sentence_length=1 << 30,
        num_threads=options.workers,
        minloglevel=2,
    )
    return []


TRAINERS: dict[str, Callable[[Clocked, argparse.Namespace], Merges]] = {
    "tokenizers": train_huggingface,
    "bpe_tokenizer": train_ours,
    "rustbpe": train_rustbpe,
    "gigatoken": train_gigatoken,
    "sentencepiece": train_sentencepiece,
}


def theirs(pattern: str) -> str:
    """Return a pattern as the engine of HuggingFace's library spells it.

    The patterns that are compared mean the same in both, except for possessive counts and the end
    of the text.
    """
    return pattern.replace("{1,3}+", "{1,3}").replace("++$", r"+\z")


def printable(merges: Sequence[tuple[bytes, bytes]]) -> Merges:
    """Write merges as tokenizer.json does."""
    byte_to_char = build_byte_to_char()
    return [
        " ".join("".join(map(byte_to_char.__getitem__, part)) for part in pair) for pair in merges
    ]


def memory(peak: bool) -> float:
    """Return how many megabytes of memory this process uses, or has used at most."""
    status = Path("/proc/self/status")
    if status.exists():
        wanted = "VmHWM:" if peak else "VmRSS:"
        line = next(line for line in status.read_text().splitlines() if line.startswith(wanted))
        return int(line.split()[1]) / 1e3
    resource = importlib.import_module("resource")
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


def train_one(options: argparse.Namespace) -> dict[str, Any]:
    """Train with one library; return its time, its memory and the merges."""
    documents = Clocked(training_documents(options.corpus, options.megabytes))
    before = memory(peak=False)
    cpu, wall = time.process_time(), time.perf_counter()
    merges = TRAINERS[options.library](documents, options)
    return {
        "cpu": time.process_time() - cpu - documents.cpu,
        "wall": time.perf_counter() - wall - documents.wall,
        "memory": memory(peak=True),
        "before": before,
        "megabytes": documents.bytes / 1e6,
        "merges": merges,
    }


def count(options: argparse.Namespace) -> dict[str, Any]:
    """Count the pre-tokens of documents in memory, and of a text file, on one thread and more."""
    documents = list(training_documents(options.corpus, options.megabytes))
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "corpus.txt")
        path.write_text(END_OF_TEXT.join(documents), encoding="utf-8", newline="")
        sources: dict[str, Any] = {"in memory": documents, "a text file": path}
        for source, _, threads in itertools.product(sources, range(5), options.threads):
            run = found.setdefault(source, {}).setdefault(str(threads), [])
            run.append(count_once(sources[source], options.pattern, threads))
    return found


def count_once(corpus: Any, pattern: str, threads: int) -> dict[str, Any]:
    """Count; return the time in total, and in the busiest thread."""
    cpu, own, wall = time.process_time(), time.thread_time(), time.perf_counter()
    counts = count_pretokens(
        corpus, pattern, special_tokens=[END_OF_TEXT], normalizer=None, num_workers=threads
    )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    own = time.thread_time() - own
    others = (cpu - own) / max(1, threads - 1)  # they do nothing but count
    return {"wall": wall, "cpu": cpu, "busiest": max(own, others), "distinct": len(counts)}


# -- All of them ---------------------------------------------------------------


def in_a_process(options: argparse.Namespace, pure: bool = False, **more: Any) -> dict[str, Any]:
    """Run this script for one library; return what it found."""
    corpus = ["--corpus", *map(str, options.corpus)] if options.corpus else []
    named = {"pattern": options.pattern, "megabytes": options.megabytes}
    named.update({"vocab-size": options.vocab_size, **more})
    words = [word for name, value in named.items() for word in (f"--{name}", str(value))]
    words += ["--threads", *map(str, options.threads)]
    environment = {
        **os.environ,
        "RAYON_NUM_THREADS": str(more.get("workers", 1)),
        "BPE_TOKENIZER_PURE": "1" if pure else "",
    }
    done = subprocess.run(
        [sys.executable, __file__, *words, *corpus],
        stdout=subprocess.PIPE,
        env=environment,
        encoding="utf-8",
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(options: argparse.Namespace) -> list[Table]:
    """Train with each library; the merges of HuggingFace's come first."""
    rows: list[tuple[str, dict[str, Any]]] = [
        ("tokenizers", {"library": "tokenizers"}),
        ("bpe_tokenizer", {"library": "bpe_tokenizer"}),
        ("bpe_tokenizer, two threads", {"library": "bpe_tokenizer", "workers": 2}),
    ]
    if bpe_tokenizer.ACCELERATED and not options.fast_only:
        rows.append(("bpe_tokenizer, Python engine", {"library": "bpe_tokenizer", "pure": True}))
    rows += [(name, {"library": name}) for name in ("rustbpe", "gigatoken", "sentencepiece")]
    found: dict[str, dict[str, Any]] = {}
    for name, how in rows:
        if is_installed(how["library"]) and not (
            how["library"] == "gigatoken" and options.pattern != "gpt2"
        ):
            print(f"training: {name}", file=sys.stderr)
            found[name] = in_a_process(options, **how)
    reference = found.get("tokenizers", found["bpe_tokenizer"])
    for name, run in found.items():
        if name.startswith("bpe_tokenizer") and run["merges"] != reference["merges"]:
            raise SystemExit(f"{name}: the merges are not those of tokenizers")
    return [trainings_table(options, found, reference), counting_table(options)]


def trainings_table(
    options: argparse.Namespace, found: dict[str, dict[str, Any]], reference: dict[str, Any]
) -> Table:
    """Make the table of all trainings."""

    def equality(run: dict[str, Any]) -> str:
        if not run["merges"]:
            return "not compared"
        n_equal = sum(a == b for a, b in zip(run["merges"], reference["merges"]))
        return f"{n_equal:,} of {len(reference['merges']):,}"

    rows = [
        {
            "library": name,
            "CPU s": run["cpu"],
            "wall s": run["wall"],
            "x tokenizers, CPU": reference["cpu"] / run["cpu"],
            "peak MB": run["memory"],
            "of it before, MB": run["before"],
            "equal merges": equality(run),
        }
        for name, run in found.items()
    ]
    size = reference["megabytes"]
    return {
        "about": ["train", options.pattern],
        "title": f"train, {size:.0f} MB, pattern {options.pattern}, {options.vocab_size:,} tokens",
        "rows": rows,
    }


def counting_table(options: argparse.Namespace) -> Table:
    """Make the table of counting on one thread and on several."""
    found = in_a_process(options, library="count")
    rows = []
    for source, by_threads in found.items():
        one = by_threads[str(options.threads[0])]
        for threads, runs in by_threads.items():
            wall, cpu, busiest = (
                [run[what] for run in runs] for what in ("wall", "cpu", "busiest")
            )
            rows.append(
                {
                    "corpus": source,
                    "threads": threads,
                    "wall s": statistics.median(wall),
                    "CPU s": statistics.median(cpu),
                    "busiest thread, CPU s": statistics.median(busiest),
                    "x first row, wall": median_ratio([run["wall"] for run in one], wall),
                    "x first row, busiest": median_ratio([run["busiest"] for run in one], busiest),
                }
            )
    distinct = one[0]["distinct"]
    return {
        "about": ["count", options.pattern],
        "title": f"count pre-tokens, {options.megabytes:g} MB, pattern "
        f"{options.pattern}, {distinct:,} distinct",
        "rows": rows,
    }


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--megabytes", type=float, default=10.0, help="of text in all")
    parser.add_argument("--vocab-size", type=int, default=8_000)
    parser.add_argument("--pattern", choices=sorted(SPLIT_PATTERNS), default="gpt2")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], metavar="N", help="to count on, each"
    )
    parser.add_argument("--only-counting", action="store_true", help="train nothing")
    parser.add_argument("--fast-only", action="store_true", help="without the Python engine")
    parser.add_argument("--library", choices=[*TRAINERS, "count"], help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    options = build_parser().parse_args()
    if options.library:
        print(json.dumps(count(options) if options.library == "count" else train_one(options)))
    else:
        tables = [counting_table(options)] if options.only_counting else measure(options)
        finish("train", tables, options.json)


if __name__ == "__main__":
    main()
