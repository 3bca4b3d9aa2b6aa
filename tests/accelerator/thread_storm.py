"""Many threads on one tokenizer: python thread_storm.py [--seconds S] [--threads N] [--seed N].

Each call must give an answer that one thread alone would get.  Three storms, one after the other:

- reading: encode, decode, batches, offsets, pickles and emptied caches; nobody changes anything.
- training: one thread trains the tokenizer again and again, to two vocabularies in turn; an answer
  must be that of one of the two, not a mixture.
- adding: every thread adds tokens of its own; none may be lost, no id given twice.

Meant for builds of Python without the global lock, and for ThreadSanitizer.
"""

from __future__ import annotations

import argparse
import collections
import pickle
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from bpe_tokenizer import ACCELERATED, BPETokenizer

END = "<|end|>"
WORDS = "the cat sat on a mat lower newest widest naïve 東京 🙂 don't 12345 x=f(y);".split()
CORPORA = ("the cat sat on the mat; " * 30, "lower newest widest naïve 12345 " * 30)

Call = Callable[[BPETokenizer, str, list[int]], Any]
CALLS: dict[str, Call] = {
    "encode": lambda t, text, ids: t.encode(text),
    "encode, special": lambda t, text, ids: t.encode(text, allowed_special="all"),
    "count_tokens": lambda t, text, ids: t.count_tokens(text),
    "tokenize": lambda t, text, ids: t.tokenize(text),
    "decode": lambda t, text, ids: t.decode(ids),
    "decode_batch": lambda t, text, ids: t.decode_batch([ids, ids[::-1]]),
    "encode_batch": lambda t, text, ids: t.encode_batch([text, "a"], padding=True).input_ids,
    "batch on threads": lambda t, text, ids: t.encode_ordinary_batch([text * 400] * 3, 2)[2][-9:],
    "offsets": lambda t, text, ids: t.encode_with_offsets(text).offsets,
    "truncate": lambda t, text, ids: t.truncate(text, 5),
    "streaming": lambda t, text, ids: [i for p in t.encode_streaming([text, text]) for i in p],
    "pickle": lambda t, text, ids: pickle.loads(pickle.dumps(t)).encode(text),
}
QUIET: dict[str, Callable[[BPETokenizer], Any]] = {  # whose answers say nothing
    "clear_cache": lambda t: t.clear_cache(),
    "get_cache_stats": lambda t: t.get_cache_stats(),
}


def trained(corpus: str) -> BPETokenizer:
    """Return a tokenizer whose bytes have the ids of all others."""
    return train(BPETokenizer("gpt2", normalizer=None), corpus)


def train(tokenizer: BPETokenizer, corpus: str) -> BPETokenizer:
    """Train again: every second id above 256 now means something else."""
    return tokenizer.train([corpus], 300, special_tokens={END: 299}, verbose=False)


def texts(rng: random.Random, count: int) -> list[str]:
    """Return texts, some with the special token in them."""
    return [" ".join(rng.choices([*WORDS, END], k=rng.randint(1, 30))) for _ in range(count)]


class Storm:
    """Threads that call one tokenizer, and what came of it."""

    def __init__(self, seconds: float, n_threads: int, seed: int) -> None:
        self.seconds, self.n_threads, self.seed = seconds, n_threads, seed
        self.calls = 0
        self.wrong: collections.Counter[str] = collections.Counter()

    def run(self, body: Callable[[random.Random], str | None]) -> None:
        """Call `body` in all threads until time is up; it names what went wrong."""
        until = time.monotonic() + self.seconds
        counts: list[int] = []  # appending is safe with and without the lock

        def thread(number: int) -> None:
            rng, calls = random.Random(self.seed * 1000 + number), 0
            while time.monotonic() < until or calls == 0:
                try:
                    problem = body(rng)
                except Exception as error:
                    problem = f"{type(error).__name__}: {error}"
                calls += 1
                if problem:
                    found.append(problem)
            counts.append(calls)

        found: list[str] = []
        threads = [threading.Thread(target=thread, args=(i,)) for i in range(self.n_threads)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.calls += sum(counts)
        self.wrong.update(found)


def reading(storm: Storm) -> None:
    """Nobody changes the tokenizer."""
    shared = trained(CORPORA[0])
    _compare(storm, shared, [trained(CORPORA[0])], lambda rng: False)


def training(storm: Storm) -> None:
    """One thread trains it to two vocabularies in turn."""
    shared, turn = trained(CORPORA[0]), threading.Lock()

    def write(rng: random.Random) -> bool:
        """Train, if nobody else does and chance says so."""
        if rng.random() < 0.9 or not turn.acquire(blocking=False):
            return False
        try:
            train(shared, rng.choice(CORPORA))
        finally:
            turn.release()
        return True

    _compare(storm, shared, [trained(corpus) for corpus in CORPORA], write)


def _compare(
    storm: Storm,
    shared: BPETokenizer,
    alone: list[BPETokenizer],
    write: Callable[[random.Random], bool],
) -> None:
    rng = random.Random(storm.seed)
    cases = []
    for text in texts(rng, 40):
        ids = alone[0].encode(text)
        answers = {name: [call(one, text, ids) for one in alone] for name, call in CALLS.items()}
        cases.append((text, ids, answers))

    def body(rng: random.Random) -> str | None:
        if write(rng):
            return None
        if rng.random() < 0.05:
            QUIET[rng.choice(list(QUIET))](shared)
            return None
        text, ids, answers = rng.choice(cases)
        name = rng.choice(list(CALLS))
        return None if CALLS[name](shared, text, ids) in answers[name] else name

    storm.run(body)


def adding(storm: Storm) -> None:
    """Every thread adds tokens of its own."""
    shared, lock, added = trained(CORPORA[0]), threading.Lock(), []

    def body(rng: random.Random) -> str | None:
        token = f"<|{threading.get_ident()} {rng.random()}|>"
        if len(added) < 2_000:
            shared.add_special_tokens([token])
            with lock:
                added.append(token)
        elif rng.random() < 0.01:
            token = rng.choice(added)
        else:
            time.sleep(0.001)
            return None
        ids = shared.encode(f"a{token}b", allowed_special="all")
        return None if len(ids) == 3 and shared.decode(ids) == f"a{token}b" else "a token added"

    storm.run(body)
    vocab = shared.get_vocab()
    lost = sum(token not in vocab for token in added)
    if lost:
        storm.wrong["tokens lost"] += lost
    if len(set(vocab.values())) != len(vocab):
        storm.wrong["ids given twice"] += 1


STORMS = {"reading": reading, "training": training, "adding": adding}


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("storms", nargs="*", default=list(STORMS), help=", ".join(STORMS))
    parser.add_argument("--seconds", type=float, default=10, help="of each")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    engine = "the engine in C" if ACCELERATED else "the engine in Python"
    print(
        f"{sys.version.split()[0]}, {'with' if has_lock else 'without'} the lock, {engine}",
        flush=True,
    )
    failed = False
    for name in options.storms:
        storm = Storm(options.seconds, options.threads, options.seed)
        STORMS[name](storm)
        wrong = ", ".join(f"{what}: {n}" for what, n in storm.wrong.most_common(6)) or "nothing"
        calls = f"{storm.calls:,} calls by {options.threads} threads"
        print(f"{name}: {calls}, wrong: {wrong}", flush=True)
        failed |= bool(storm.wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main())
