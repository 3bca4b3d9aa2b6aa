"""Long runs: does memory stay flat, and is every file closed?

python benchmarks/long_run.py calls --count 100_000_000
python benchmarks/long_run.py pack --gigabytes 12 --folder /tmp/long
python benchmarks/long_run.py chat --turns 14_400

`calls` encodes and decodes short texts that start anywhere in the corpora, so most are new.  `pack`
makes a corpus in pieces, packs each, reads it back and deletes it.  `chat` talks to the tiny model
of the tests, which transformers runs.  Each checks its results.  A hundred times, after a garbage
collection, it looks at its memory (RSS), open files and threads.  It exits with 1 if one has grown
since the first fifth, which fills caches: memory by more than --slack MB, files and threads at all.
`--minutes` ends a run early; the table says how much was done.  Needs Linux, for /proc.
"""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from common import END_OF_TEXT, ROOT, Table, add_options, corpora, finish
from corpus import training_documents
from libraries import ours, vocabularies

from bpe_tokenizer import BPETokenizer

LOOKS = 100  # at memory, in a run
WARM_UP = 0.2  # the share of a run that fills caches
PIECE = 500  # MB of a corpus that is packed at once
LENGTHS = (1, 12, 40, 80, 160, 320, 640, 2_000)  # characters; one is as likely as another
RARE = 1_000  # texts between two rounds of the other calls
WORDS = (
    "what",
    "is",
    "a",
    "token",
    "naïve",
    "答え",
    "count",
    "of",
    "pairs",
    "42",
    "?",
    "merge",
    "🙂",
)


def megabytes() -> float:
    """Return how much memory this process uses."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Watch:
    """Looks at this process at regular steps of a run."""

    def __init__(self, whole: float, minutes: float, slack: float) -> None:
        self.whole, self.slack = whole, slack
        self.ends = time.monotonic() + 60 * minutes
        self.done = 0.0
        self.looks: list[tuple[float, float, int, int]] = []  # done, MB, files, threads
        self.started = time.process_time()
        self.look()

    def look(self) -> None:
        """Record what this process uses now."""
        gc.collect()
        files = len(os.listdir("/proc/self/fd"))
        self.looks.append((self.done, megabytes(), files, threading.active_count()))

    def step(self, amount: float) -> bool:
        """Count what was done; return whether to go on."""
        self.done += amount
        if self.done >= self.whole * len(self.looks) / LOOKS:
            self.look()
            done, memory, files, n_threads = self.looks[-1]
            held = f"{memory:.1f} MB, {files} files, {n_threads} threads"
            print(f"{done:,.4g} of {self.whole:,.4g}: {held}", file=sys.stderr, flush=True)
        return self.done < self.whole and time.monotonic() < self.ends

    def table(self, subject: str, unit: str) -> Table:
        """Return the observations as a table; `grew` names what has grown."""
        self.look()
        after = [look for look in self.looks if look[0] >= WARM_UP * self.done] or self.looks
        share = max(1, len(after) // 4)
        early, late = (
            [statistics.median(look[i] for look in part) for i in (1, 2, 3)]
            for part in (after[:share], after[-share:])
        )
        names = {"memory": self.slack, "files": 0, "threads": 0}
        grew = [n for n, a, b in zip(names, early, late) if b > a + names[n]]
        row = {
            "run": subject,
            unit: self.done,
            "CPU minutes": (time.process_time() - self.started) / 60,
            "MB, first fifth": early[0],
            "MB, last fifth": late[0],
            "MB, most": max(look[1] for look in self.looks),
            "files": f"{early[1]:g}, {late[1]:g}",
            "threads": f"{early[2]:g}, {late[2]:g}",
            "grew": ", ".join(grew) or "nothing",
        }
        return {"about": ["long", subject], "title": f"a long run: {subject}", "rows": [row]}


# -- Calls --------------------------------------------------------------------


def texts_of(documents: list[str], seed: int) -> Iterator[str]:
    """Yield short texts that begin anywhere in documents, forever."""
    rng = random.Random(seed)
    whole = "\n".join(documents)
    while True:
        start = rng.randrange(len(whole))
        length = LENGTHS[rng.randrange(len(LENGTHS))]
        yield whole[start : start + length]


def check(right: bool, text: str, what: str) -> None:
    """End the run if a result is wrong."""
    if not right:
        raise SystemExit(f"{what} is wrong for {text!r}")


def other_calls(tokenizer: BPETokenizer, text: str, ids: list[int]) -> int:
    """Make the rarer calls; return how many."""
    check(tokenizer.encode_batch([text, text])["input_ids"] == [ids, ids], text, "encode_batch")
    check(tokenizer.encode_ordinary_batch([text] * 4, num_threads=2) == [ids] * 4, text, "a batch")
    check("".join(tokenizer.decode_batch([ids, ids])) == text * 2, text, "decode_batch")
    check(tokenizer.count_tokens(text) == len(ids), text, "count_tokens")
    check(len(tokenizer.tokenize(text)) == len(ids), text, "tokenize")
    check(text.startswith(tokenizer.truncate(text, 5)), text, "truncate")
    pieces = tokenizer.encode_streaming([text[:7], text[7:]])
    check(list(itertools.chain.from_iterable(pieces)) == ids, text, "a stream")
    return 7


def run_calls(options: argparse.Namespace) -> Table:
    """Encode and decode."""
    documents = [text for texts in corpora(options.corpus, 8.0).values() for text in texts]
    tokenizer = ours(vocabularies([options.vocab], documents)[0])
    watch = Watch(options.count, options.minutes, options.slack)
    encode, decode = tokenizer.encode, tokenizer.decode
    texts = texts_of(documents, options.seed)
    while True:
        for _ in range(RARE):
            text = next(texts)
            ids = encode(text)
            if decode(ids) != text:
                check(False, text, "decode(encode(text))")
        calls = 2 * RARE + other_calls(tokenizer, text, ids)
        if not watch.step(calls):
            return watch.table("calls", "calls")


# -- Packing ------------------------------------------------------------------


def run_pack(options: argparse.Namespace) -> Table:
    """Pack a corpus, piece by piece."""
    from bpe_tokenizer_tools.scale import encode_corpus, open_packed

    documents = [text for texts in corpora(options.corpus, 2.0).values() for text in texts]
    vocabulary = vocabularies([options.vocab], documents)[0]
    tokenizer = BPETokenizer.from_file(vocabulary.path)
    watch = Watch(options.gigabytes, options.minutes, options.slack)
    stream = training_documents(options.corpus, 1e3 * options.gigabytes)
    while True:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            source, packed = Path(name, "piece.txt"), Path(name, "packed")
            first, size = "", 0
            with source.open("w", encoding="utf-8", newline="") as file:
                for document in stream:
                    first = first or document
                    size += file.write(document + END_OF_TEXT) and len(document.encode())
                    if size > PIECE * 1e6:
                        break
            if not size:
                return watch.table("packed", "GB")
            how = {"separator": END_OF_TEXT, "eot": END_OF_TEXT, "num_workers": options.num_workers}
            report = encode_corpus(tokenizer, [source], packed, **how)
            ids = open_packed(packed)[0].tolist()
            check(tokenizer.decode(ids).startswith(first), first[:80], "the first document packed")
            print(report, file=sys.stderr)
        if not watch.step(size / 1e9):
            return watch.table("packed", "GB")


# -- Chat ---------------------------------------------------------------------


def run_chat(options: argparse.Namespace) -> Table:
    """Talk to the tiny model; each conversation continues until its context is full."""
    sys.path.append(str(ROOT / "tests" / "support"))
    import tiny_models

    from bpe_tokenizer_tools.chat.session import Session

    rng = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="long-run-", dir=options.folder))
    try:
        model = tiny_models.write(folder, "transformers", tied=False)
        watch = Watch(options.turns, options.minutes, options.slack)
        new = functools.partial(Session, model, template="alpaca", backend="transformers")
        session = new()
        while True:
            question = " ".join(rng.choices(WORDS, k=rng.randint(1, 6)))
            seed = rng.randrange(1 << 30)
            try:
                answer = session.reply(question, max_new_tokens=8, temperature=0.7, seed=seed)
            except ValueError:  # no room for an answer
                session = new()
                continue
            if rng.random() < 0.1:
                next(answer, "")
                answer.close()  # as Ctrl-C does
            else:
                "".join(answer)
            if not watch.step(1):
                return watch.table("chat", "turns")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


RUNS: dict[str, Callable[[argparse.Namespace], Table]] = {
    "calls": run_calls,
    "pack": run_pack,
    "chat": run_chat,
}


def number(text: str) -> int:
    """Read a number such as 100_000_000 or 1e8."""
    return int(float(text))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("run", choices=RUNS)
    parser.add_argument("--vocab", default="cl100k_base", help="of calls and pack (%(default)s)")
    parser.add_argument("--count", type=number, default=100_000_000, help="of calls (%(default)s)")
    parser.add_argument("--gigabytes", type=float, default=12, help="to pack (%(default)s)")
    parser.add_argument("--turns", type=number, default=14_400, help="of chat (%(default)s)")
    parser.add_argument("--minutes", type=float, default=1e6, help="end after so long")
    parser.add_argument(
        "--slack", type=float, default=8, help="MB that are no growth (%(default)s)"
    )
    parser.add_argument("--folder", type=Path, help="for temporary files (the system's)")
    parser.add_argument("--num-workers", type=int, default=1, help="of pack (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    table = RUNS[options.run](options)
    finish("long", [table], options.json)
    return table["rows"][0]["grew"] != "nothing"


if __name__ == "__main__":
    sys.exit(main())
