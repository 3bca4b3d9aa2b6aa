"""What the benchmarks share: texts, vocabularies, fair timing, and the facts of the machine.

Imported first, so that the libraries compared use one thread, as this one does.
"""

from __future__ import annotations

import argparse
import base64
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
sys.path.insert(0, str(ROOT))

from bpe_tokenizer import BPETokenizer, build_byte_to_char  # noqa: E402

END_OF_TEXT = "<|endoftext|>"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every benchmark has."""
    parser.add_argument(
        "--corpus",
        nargs="+",
        type=Path,
        metavar="FILE",
        help=f"UTF-8 text files, documents separated by {END_OF_TEXT} "
        "(default: those in ../shared/corpora, else Python's own sources)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


# -- Texts --------------------------------------------------------------------


def corpora(files: Sequence[Path] | None, megabytes: float) -> dict[str, list[str]]:
    """Return the first documents of each corpus, up to a size, by its name."""
    files = files or sorted((SHARED / "corpora").glob("*.txt"))
    if not files:
        return {"python": take(python_sources(), megabytes)}
    found = {}
    for file in files:
        with file.open(encoding="utf-8", newline="") as stream:
            text = stream.read(int(megabytes * 2e6))
        found[file.stem] = take(text.split(END_OF_TEXT), megabytes)
    return found


def python_sources() -> list[str]:
    """Return the sources of the standard library, which are there on any machine."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("**/*.py"))
    return [path.read_text(encoding="utf-8", errors="ignore") for path in paths[:800]]


def take(documents: Sequence[str], megabytes: float) -> list[str]:
    """Return the first documents, up to a size."""
    taken, size = [], 0
    for document in documents:
        if size >= megabytes * 1e6:
            break
        taken.append(document)
        size += len(document.encode())
    return taken


def megabytes_of(documents: Sequence[str]) -> float:
    """Return the size of documents in millions of UTF-8 bytes."""
    return sum(len(document.encode()) for document in documents) / 1e6


# -- Vocabularies -------------------------------------------------------------


class Vocabulary(NamedTuple):
    """A vocabulary in the plain terms that every library can be given."""

    name: str
    pattern: str
    ranks: dict[bytes, int]
    merges: list[tuple[bytes, bytes]]


def published_vocabulary(name: str) -> Vocabulary:
    """Read a .tiktoken file, and recover the merges from the ranks."""
    folder = SHARED / "vocab"
    pattern = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["pat_str"]
    lines = (folder / f"{name}.tiktoken").read_bytes().splitlines()
    pairs = (line.split() for line in lines if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
    return Vocabulary(name, pattern, ranks, recover_merges(ranks))


def recover_merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Find each token's two parts: what earlier merges leave of its bytes."""
    found = []
    for token, rank in ranks.items():
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            joined = (ranks.get(parts[i] + parts[i + 1], rank) for i in range(len(parts) - 1))
            lowest, i = min((r, i) for i, r in enumerate(joined))
            if lowest >= rank:
                break
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            found.append((rank, parts[0], parts[1]))
    return [(left, right) for _, left, right in sorted(found)]


def trained_vocabulary(documents: Sequence[str], vocab_size: int = 8_000) -> Vocabulary:
    """Make a vocabulary where no published one is at hand."""
    tokenizer = BPETokenizer("cl100k", normalizer=None)
    tokenizer.train(documents, vocab_size, verbose=False)
    tokens = [bytes([byte]) for byte in range(256)]
    for left, right in tokenizer.merges:
        if left + right not in tokens[256:]:
            tokens.append(left + right)
    ranks = {token: rank for rank, token in enumerate(tokens)}
    return Vocabulary("trained", tokenizer.split_pattern, ranks, tokenizer.merges)


def write_tokenizer(vocabulary: Vocabulary, directory: Path) -> None:
    """Write a vocabulary as a tokenizer.json that this library and HuggingFace's read."""
    BPETokenizer(vocabulary.pattern, normalizer=None).save(directory, verbose=False)
    path = directory / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    byte_to_char = build_byte_to_char()

    def printable(token: bytes) -> str:
        return "".join(map(byte_to_char.__getitem__, token))

    data["model"]["vocab"] = {printable(token): id_ for token, id_ in vocabulary.ranks.items()}
    data["model"]["merges"] = [list(map(printable, pair)) for pair in vocabulary.merges]
    # As tiktoken does: a pre-token that is a token needs no merging.
    data["model"]["ignore_merges"] = True
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


Encode = Callable[[str], Any]


def encoders(vocabulary: Vocabulary) -> dict[str, Encode]:
    """Return one fresh tokenizer of each library, as functions from text to ids."""
    import tiktoken
    import tokenizers

    with tempfile.TemporaryDirectory() as name:
        write_tokenizer(vocabulary, Path(name))
        ours = BPETokenizer.from_pretrained(name, verbose=False)
        single = tokenizers.Tokenizer.from_file(f"{name}/tokenizer.json")
        batch = tokenizers.Tokenizer.from_file(f"{name}/tokenizer.json")
    openai = tiktoken.Encoding(
        vocabulary.name,
        pat_str=vocabulary.pattern,
        mergeable_ranks=vocabulary.ranks,
        special_tokens={},
    )
    return {
        "tiktoken": openai.encode_ordinary,
        "bpe_tokenizer": ours.encode,
        "tokenizers encode": lambda text: single.encode(text, add_special_tokens=False).ids,
        "tokenizers encode_batch_fast": lambda text: (
            batch.encode_batch_fast([text], add_special_tokens=False)[0].ids
        ),
    }


# -- Timing -------------------------------------------------------------------


def cpu_seconds(run: Callable[[], Any]) -> float:
    """Time a call in process CPU time, threads included: other processes do not count."""
    started = time.process_time()
    run()
    return time.process_time() - started


def interleaved(rows: dict[str, Callable[[Any], Any]], slices: Sequence[Any]) -> dict[str, Any]:
    """Time each row on each slice, in turn, so that a slow moment hits all of them.

    Returns:
        row -> seconds, one number per slice.
    """
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    order = list(rows)
    for part in slices:
        for name in order:
            seconds[name].append(cpu_seconds(lambda name=name, part=part: rows[name](part)))
        order.append(order.pop(0))  # nobody always runs behind the same other
    return seconds


def median_ratio(reference: Sequence[float], seconds: Sequence[float]) -> float:
    """Return how many times as fast as the reference: the median over slices."""
    return statistics.median(a / b for a, b in zip(reference, seconds))


# -- Facts and tables ---------------------------------------------------------


def facts() -> dict[str, str]:
    """Say what was measured, and on what."""
    packages = ("regex", "tokenizers", "tiktoken")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {
        "python": platform.python_version(),
        **found,
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "commit": commit(),
        "seconds": "process CPU time; one thread each; ratios are medians over slices",
    }


def processor() -> str:
    """Return the processor's name, where the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """Return the commit that is measured, marked if files have changed since."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    return done.stdout.strip() or "unknown"


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table for people, numbers to the right."""
    cells = [[f"{x:.3g}" if isinstance(x, float) else str(x) for x in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells)]
    print(f"\n{title}")
    for row in (header, ["-" * width for width in widths], *cells):
        first, *rest = (cell.ljust(width) for cell, width in zip(row, widths))
        print("  ".join([first, *(cell.strip().rjust(w) for cell, w in zip(rest, widths[1:]))]))


def finish(name: str, tables: list[dict[str, Any]], as_json: bool) -> None:
    """Print what was measured, with the facts of the machine."""
    if as_json:
        print(json.dumps({"benchmark": name, "facts": facts(), "tables": tables}, indent=2))
        return
    for table in tables:
        print_table(table["title"], table["header"], table["rows"])
    print()
    for key, value in facts().items():
        print(f"{key:<12} {value}")
