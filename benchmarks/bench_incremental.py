"""The cost of encoding a text again after a change: sessions, compared with encoding it whole.

python benchmarks/bench_incremental.py

A text grows, is edited or is cut off; each row gets every version of it, in turn, and the ids of
all rows are compared.  "encode, again" has seen nearly all of the text the turn before, so its
cache has the words; "encode, cache emptied" has not, like a server that had other requests in
between.  tiktoken and transformers are what such a server uses today.

A second table has conversations, with the share of rendering.  --threads measures two threads on
one text, in wall time, which only means something on a quiet machine.  --figure FILE draws a
conversation that grows.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from common import Table, add_options, corpora, finish, interleaved, is_installed
from libraries import PUBLISHED, Vocabulary, ours, tiktoken, vocabularies
from report import INK, save

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.prompts import sessions

_TURN = 1_000  # characters
_JINJA = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
Row = Callable[[Any], Any]
_BASE = "encode, again"


def changes(text: str, size: int, n: int) -> dict[str, list[str]]:
    """Return versions of a text, each made from the one before."""
    grown = [text[: size + i * _TURN] for i in range(n + 1)]
    edited, cut = [text[:size]], [text[:size]]
    for i in range(1, n + 1):
        at = (i * 7919) % (size - 100)
        edited.append(f"{edited[-1][:at]} a word {edited[-1][at + 10 :]}")
        cut.append(cut[-1][:-300] if i % 2 else cut[-1] + text[size + i * 600 :][:600])
    return {
        f"{_TURN:,} characters more": grown,
        "a word in the middle": edited,
        "another end": cut,
    }


def _rows(vocabulary: Vocabulary, alone: bool = False) -> dict[str, Row]:
    tokenizer, other = ours(vocabulary), ours(vocabulary)
    one, two, three = (tokenizer.incremental() for _ in range(3))
    held, grown = list[int](), list[int]()
    n_had, more = 0, ""

    def update(text: str) -> list[int]:
        start, stop, new = two.update(text)
        held[start:stop] = new
        return held

    def cut(text: str) -> None:
        nonlocal n_had, more
        if len(text) <= n_had:  # the first one again
            n_had = 0
            three.clear()
            grown.clear()
        n_had, more = len(text), text[n_had:]

    def append(text: str) -> list[int]:
        start, stop, new = three.append(more)
        grown[start:stop] = new
        return grown

    rows: dict[str, Row] = {
        "session.append": append,
        "session.update": update,
        "session.encode": one.encode,
        "a copy of the list of ids": lambda text: held.copy(),
        _BASE: tokenizer.encode,
        "encode, cache emptied": other.encode,
    }
    if is_installed("tiktoken") and not alone:
        rows["tiktoken"] = tiktoken(vocabulary).encode_ordinary
    if is_installed("transformers") and not alone:
        theirs = _transformers(tokenizer)
        rows["transformers"] = lambda text: theirs(text, add_special_tokens=False)["input_ids"]

    before: dict[str, Callable[[Any], Any]] = {
        "session.append": cut,
        "encode, cache emptied": lambda text: other.clear_cache(),
    }
    return {
        name: _prepared(row, before.get(name), name == "session.append")
        for name, row in rows.items()
    }


def _prepared(row: Row, before: Callable[[Any], Any] | None, appends: bool = False) -> Row:
    """Return a row that measures its own time, without the preparation before it.

    Each call gets a new string, made just before, as a server joins a conversation; but
    `append` gets none, so nothing is joined for it.
    """

    def run(given: Any) -> Any:
        if before:
            before(given)
        return row(given)

    def seconds(given: Any) -> float:
        if isinstance(given, str) and not appends:
            given = "".join([given[:-1], given[-1:]])
        if before:
            before(given)
        started = time.process_time()
        row(given)
        return time.process_time() - started

    run.seconds = seconds  # type: ignore[attr-defined]
    return run


def _transformers(tokenizer: BPETokenizer) -> Any:
    made = importlib.import_module("transformers").PreTrainedTokenizerFast
    theirs = made(tokenizer_object=tokenizer.to_hf())
    theirs.model_max_length = 10**9
    return theirs


def measure(
    vocabulary: Vocabulary, name: str, text: str, size: int, n: int, alone: bool
) -> list[Table]:
    """Compare the rows on each kind of change."""
    tables = []
    for kind, versions in changes(text, size, n).items():
        rows = _rows(vocabulary, alone)
        if alone:
            rows.pop("encode, cache emptied")
        if "more" not in kind:
            rows.pop("session.append")
        for version in versions[:2]:
            expected = rows[_BASE](version)
            assert all(row(version) == expected for row in rows.values())
        for row in rows.values():
            row(versions[0])
        groups = [rows]
        if alone:
            groups = [{name: row} for name, row in rows.items()]
            rows[_BASE](versions[-1])  # or the first row would be the one that meets new words
        seconds = {
            name: took
            for group in groups
            for name, took in interleaved(group, versions[1:]).items()
        }
        tables.append(
            {
                "about": ["incremental", vocabulary.name, name, kind],
                "title": f"{kind}, {vocabulary.name}, {name}: {size / 1000:,.0f} KB at first",
                "rows": _shares(seconds, [row for row in seconds if row.startswith("encode")]),
            }
        )
    return tables


def _shares(seconds: dict[str, list[float]], bases: Iterable[str]) -> list[dict[str, Any]]:
    def median_share(took: Sequence[float], base: str) -> float:
        return 100 * statistics.median(a / b for a, b in zip(took, seconds[base]))

    return [
        {
            "row": row,
            "microseconds": 1e6 * statistics.median(took),
            **{f"% of {base!r}": median_share(took, base) for base in bases},
        }
        for row, took in seconds.items()
    ]


# -- Conversations ------------------------------------------------------------


def measure_chats(vocabulary: Vocabulary, name: str, text: str, size: int, n: int) -> Table:
    """Compare ways to encode a conversation with one more message."""
    tokenizer = ours(vocabulary)
    tokenizer.add_special_tokens(
        [each for each in ("<|im_start|>", "<|im_end|>") if each not in tokenizer.special_tokens]
    )
    roles = ("user", "assistant")
    messages = [
        {"role": roles[i % 2], "content": text[i * _TURN : (i + 1) * _TURN]}
        for i in range(size // _TURN + n + 1)
    ]
    talks = [messages[: size // _TURN + i] for i in range(n + 1)]
    one, two = tokenizer.incremental(), tokenizer.incremental()
    apply = tokenizer.apply_chat_template
    rows: dict[str, Row] = {
        "chatml, session": lambda talk: apply(talk, "chatml", session=one),
        "chatml": lambda talk: apply(talk, "chatml"),
        "chatml, rendering alone": lambda talk: apply(talk, "chatml", tokenize=False),
        "Jinja, session": lambda talk: apply(talk, _JINJA, session=two),
        "Jinja": lambda talk: apply(talk, _JINJA),
        "Jinja, rendering alone": lambda talk: apply(talk, _JINJA, tokenize=False),
    }
    if is_installed("transformers"):
        theirs = _transformers(tokenizer)
        rows["transformers"] = lambda talk: theirs.apply_chat_template(
            talk, chat_template=_JINJA, add_generation_prompt=True, return_dict=False
        )
    expected = rows["chatml"](talks[0])
    assert all(row(talks[0]) == expected for key, row in rows.items() if "alone" not in key)
    seconds = interleaved(rows, talks[1:])
    return {
        "about": ["incremental", vocabulary.name, name, "chats"],
        "title": f"a conversation of {size / 1000:,.0f} KB and one more message of {_TURN:,} "
        f"characters, {vocabulary.name}, {name}",
        "rows": _shares(seconds, ["chatml", "Jinja"]),
    }


# -- Memory, threads, a figure ---------------------------------------------------


def memory(vocabulary: Vocabulary, text: str, size: int) -> Table:
    """Measure what a session keeps in addition to the text."""
    tracemalloc = importlib.import_module("tracemalloc")
    tokenizer = ours(vocabulary)
    tokenizer.encode(text[:size])
    borders = tokenizer.incremental()
    borders.encode("a b")  # make what all sessions of a tokenizer share
    given = text[:size]
    tracemalloc.start()
    session = tokenizer.incremental()
    n_ids = len(session.update(given).new)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    row = {"text": "KB", "size": size / 1000, "ids": n_ids, "KB kept": kept / 1000}
    return {"about": ["incremental", "memory"], "title": "memory of a session", "rows": [row]}


def measure_threads(vocabulary: Vocabulary, name: str, text: str) -> Table:
    """Compare one text on one and two threads, by the best wall time of many runs."""
    tokenizer = ours(vocabulary)
    rows = []
    for size in (250_000, 1_000_000, 4_000_000):
        given = text[:size]
        for is_cold in (False, True):
            took: dict[int, list[float]] = {1: [], 2: []}
            for _ in range(15):
                for n, seconds in took.items():
                    if is_cold:
                        tokenizer.clear_cache()
                    started = time.perf_counter()
                    tokenizer.encode(given, num_threads=n)
                    seconds.append(time.perf_counter() - started)
            rows.append(
                {
                    "MB": len(given) / 1e6,
                    "cache": "emptied" if is_cold else "warm",
                    "ms, one": 1e3 * min(took[1]),
                    "ms, two": 1e3 * min(took[2]),
                    "times as fast": min(took[1]) / min(took[2]),
                }
            )
    load = " ".join(f"{load:.1f}" for load in os.getloadavg())
    return {
        "about": ["incremental", vocabulary.name, name, "threads"],
        "title": f"one text on two threads, {vocabulary.name}, {name}; load {load}",
        "rows": rows,
    }


def draw(vocabulary: Vocabulary, text: str, path: Path) -> None:
    """Draw the cost of each turn of a conversation that grows to 200 KB."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "same every time", "svg.fonttype": "none"})
    rows = _rows(vocabulary)
    places = range(4, 201, 4)
    versions = [part for i in places for part in (text[: i * _TURN], text[: (i + 1) * _TURN])]
    # Of each two versions, the second is one turn more than the first.
    seconds = {name: took[1::2] for name, took in interleaved(rows, versions).items()}
    figure, axes = importlib.import_module("matplotlib.pyplot").subplots(figsize=(9, 5))
    for i, (name, took) in enumerate(seconds.items()):
        smooth = [1e3 * statistics.median(took[max(0, j - 2) : j + 3]) for j in range(len(took))]
        axes.plot(places, smooth, label=name, color=f"C{i}")
        axes.annotate(
            f" {name}", (200, smooth[-1]), color=f"C{i}", va="center", annotation_clip=False
        )
    axes.set_yscale("log")
    axes.set_xlim(0, 200)
    axes.set_xlabel(f"size of the conversation in KB; each turn adds {_TURN:,} characters")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("milliseconds of CPU time for this turn")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_title(f"Encoding a conversation again, {vocabulary.name}", loc="left", color=INK)
    save(figure, path)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--vocab", nargs="+", default=["o200k_base"], choices=[*PUBLISHED])
    parser.add_argument("--kilobytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument(
        "--turns", type=int, default=40, help="changes of each kind, of 100 KB; of more, fewer"
    )
    parser.add_argument("--spacing", type=int, default=sessions.SPACING, help="of checkpoints")
    parser.add_argument(
        "--alone",
        action="store_true",
        help="let each row run by itself, so that none empties the processor's caches for another",
    )
    parser.add_argument("--threads", action="store_true", help="measure two threads")
    parser.add_argument("--figure", type=Path, metavar="FILE.svg", help="draw a conversation")
    options = parser.parse_args()
    sessions.SPACING = options.spacing
    largest = max(options.kilobytes) / 1000 + 0.2
    texts = {
        name: "".join(documents)
        for name, documents in corpora(options.corpus, max(largest, 4 * options.threads)).items()
    }
    tables: list[Table] = []
    for vocabulary in vocabularies(options.vocab, list(texts.values())):
        for name, text in texts.items():
            if options.threads:
                tables.append(measure_threads(vocabulary, name, text))
                continue
            for size in options.kilobytes:
                turns = max(8, options.turns * 100 // max(size, 100))
                tables += measure(vocabulary, name, text, size * 1000, turns, options.alone)
                tables.append(measure_chats(vocabulary, name, text, size * 1000, turns))
            tables.append(memory(vocabulary, text, options.kilobytes[0] * 1000))
        if options.figure:
            draw(vocabulary, next(iter(texts.values())), options.figure)
    finish("incremental", tables, options.json)


if __name__ == "__main__":
    main()
