"""Pieces of at most N tokens: this library compared with langchain, semchunk and chonkie.

python benchmarks/bench_chunks.py --tokens 64 512 --figure docs/chunks.svg

Each text is cut by each library that is installed.  The tokens of a piece are counted on its own
text, by tiktoken if it is installed.  The peers count with tiktoken, all with the same vocabulary.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import resource
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common import (
    SLICES,
    Table,
    add_options,
    corpora,
    finish,
    interleaved,
    is_installed,
    median_ratio,
)
from libraries import vocabularies
from report import titled

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer

OURS = "bpe_tokenizer, "
KINDS = ("token", "sentence", "paragraph")
Way = Callable[[str], list[str]]  # from a text to its pieces


def encoding(path: Path, pattern: str) -> Any:
    """Make tiktoken's encoding of a file, and let tiktoken find it by its name."""
    import tiktoken.registry

    lines = (line.split() for line in path.read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    made = tiktoken.Encoding(
        path.stem, pat_str=SPLIT_PATTERNS[pattern], mergeable_ranks=ranks, special_tokens={}
    )
    tiktoken.registry.ENCODINGS[path.stem] = made
    return made


def peers(counter: Any, name: str, most: int) -> Iterator[tuple[str, Way]]:
    """Yield the ways of other libraries that are installed."""
    if is_installed("langchain_text_splitters"):
        import langchain_text_splitters as langchain

        size = {"chunk_size": most, "chunk_overlap": 0}
        yield "langchain, by tokens", langchain.TokenTextSplitter(name, **size).split_text
        recursive = langchain.RecursiveCharacterTextSplitter.from_tiktoken_encoder
        yield "langchain, recursive", recursive(name, **size).split_text
    if is_installed("semchunk"):
        import semchunk

        yield "semchunk", semchunk.chunkerify(counter, most)
    if is_installed("chonkie"):
        import chonkie

        kinds = {"tokens": chonkie.TokenChunker, "sentences": chonkie.SentenceChunker}
        for kind, make in {**kinds, "recursive": chonkie.RecursiveChunker}.items():
            chunk = make(counter, most).chunk
            yield f"chonkie, {kind}", lambda text, chunk=chunk: [each.text for each in chunk(text)]


def own(tokenizer: BPETokenizer, kind: str, most: int) -> Way:
    return lambda text: [piece.text for piece in tokenizer.chunk(text, most, 0, kind)]


def what_is_kept(text: str, pieces: Sequence[str]) -> tuple[int, int]:
    """Return how many characters are in no piece, and how many pieces are not in the text."""
    at = kept = changed = 0
    for piece in pieces:
        found = text.find(piece, at)
        if found < 0:
            changed += 1
        else:
            at, kept = found + len(piece), kept + len(piece)
    return len(text) - kept, changed


def measure(name: str, texts: list[str], ways: dict[str, Way], most: int, count: Any) -> Table:
    """Cut texts each way; return facts about the pieces, and how long it took."""
    seconds = interleaved(ways, texts)
    reference = seconds[OURS + "sentence"]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    rows = []
    for way, cut in ways.items():
        pieces = [cut(text) for text in texts]
        lengths = [*map(count, itertools.chain(*pieces))]
        lost, changed = map(sum, zip(*map(what_is_kept, texts, pieces)))
        rows.append(
            {
                "way": way,
                "pieces": len(lengths),
                "tokens each": statistics.mean(lengths),
                "too long": sum(length > most for length in lengths),
                "longest": max(lengths),
                "changed": changed,
                "chars lost": lost,
                "MB/s": megabytes / sum(seconds[way]),
                "x ours": median_ratio(seconds[way], reference),
                "lengths": lengths,
            }
        )
    title = (
        f"{titled(name)}, {megabytes:.1f} MB in {len(texts)} texts; pieces of at most {most} tokens"
    )
    return {"about": ["chunks"], "title": title, "rows": rows, "most": most}


def memory(tokenizer: BPETokenizer, texts: Sequence[str], megabytes: float) -> list[dict[str, Any]]:
    """Measure how much the process grows while it cuts streams, the shortest first."""
    rows = []
    for size in (megabytes, 10 * megabytes):
        parts = itertools.chain.from_iterable(itertools.repeat(texts))
        times = int(size * 1e6 / (sum(len(text.encode()) for text in texts) / len(texts)))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        n = sum(1 for _ in tokenizer.chunk(itertools.islice(parts, times), 512, 64, "sentence"))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        rows.append({"stream MB": size, "pieces": n, "more memory, MB": grown / 1e3})
    return rows


# -- The figure ------------------------------------------------------------------


def figure(table: Table) -> str:
    """Draw each piece as a tick at its number of tokens, a line for each way; SVG."""
    most, rows = table["most"], table["rows"]
    left, width, high = 190, 560, 30
    shown = most * 1.25  # longer ones are drawn at the edge

    def x(tokens: float) -> float:
        return left + width * min(tokens, shown) / shown

    height = 60 + high * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 55} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{left + width + 55}" height="{height}" fill="#fff"/>',
        f'<text x="10" y="20">{table["title"]}</text>',
        f'<text x="{left + width + 45}" y="20" text-anchor="end">longest</text>',
    ]
    for i, row in enumerate(rows):
        y = 35 + high * i
        for at, label in ((left - 10, row["way"]), (left + width + 45, row["longest"])):
            parts.append(f'<text x="{at}" y="{y + 17}" text-anchor="end">{label}</text>')
        counted: dict[int, int] = {}
        for length in row["lengths"]:
            counted[length] = counted.get(length, 0) + 1
        largest = max(counted.values())
        for length, n in sorted(counted.items()):
            size = max(1.5, 22 * n / largest)
            color = "#c22" if length > most else "#47a"
            parts.append(
                f'<rect x="{x(length) - 1.5:.1f}" y="{y + 23 - size:.1f}" width="3" '
                f'height="{size:.1f}" fill="{color}"/>'
            )
    bottom = 35 + high * len(rows)
    parts.append(
        f'<line x1="{x(most) + 2:.1f}" x2="{x(most) + 2:.1f}" y1="30" y2="{bottom}" stroke="#c22"/>'
    )
    for tokens in (0, most // 2, most):
        parts.append(f'<text x="{x(tokens):.1f}" y="{bottom + 17}" text-anchor="middle">')
        parts.append(f"{tokens}</text>")
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--megabytes", type=float, default=1, help="of each corpus")
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 512], help="of a piece")
    parser.add_argument(
        "--figure", type=Path, metavar="SVG", help="draw the first size, the last corpus's pieces"
    )
    options = parser.parse_args()
    found = corpora(options.corpus, options.megabytes)
    vocabulary = vocabularies(["o200k_base"], next(iter(found.values())))[0]
    tokenizer = BPETokenizer.from_file(vocabulary.path)
    counter = encoding(vocabulary.path, vocabulary.pattern) if is_installed("tiktoken") else None
    count = (lambda text: len(counter.encode_ordinary(text))) if counter else tokenizer.count_tokens
    tables: list[Table] = []
    for most, (name, documents) in itertools.product(options.tokens, found.items()):
        step = -(-len(documents) // SLICES)
        texts = ["\n\n".join(documents[i : i + step]) for i in range(0, len(documents), step)]
        ways = {OURS + kind: own(tokenizer, kind, most) for kind in KINDS}
        ways |= dict(peers(counter, vocabulary.name, most)) if counter else {}
        tables.append(measure(name, texts, ways, most, count))
    if options.figure:
        options.figure.write_text(figure(tables[len(found) - 1]), encoding="utf-8")
    for row in itertools.chain.from_iterable(table["rows"] for table in tables):
        del row["lengths"]
    rows = memory(tokenizer, [*itertools.chain(*found.values())], 10)
    about = {"about": ["chunks"], "title": "a stream; 512 tokens, overlap 64, sentences"}
    finish("chunks", [*tables, {**about, "rows": rows}], options.json)


if __name__ == "__main__":
    main()
