"""Memory that fails, or leaks: what test_accelerator_safety.py runs in processes of its own.

    python tests/accelerator/accelerator_abuse.py NAME

runs the function of that name.  The extension is the `_bpe_tokenizer.native` that Python finds.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import importlib
import itertools
import os
import random
import re
import signal
import sys
import threading
import time
import unittest.mock
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS
from bpe_tokenizer_tools.formats.ranks import recover_merges
from bpe_tokenizer_tools.patterns.automaton import automaton
from bpe_tokenizer_tools.support.dropout import dropping
from bpe_tokenizer_tools.training.joins import CountedWords, Refused
from bpe_tokenizer_tools.training.joins import learn as learn_joins

native: Any = importlib.import_module("_bpe_tokenizer.native")
bpe_tokenizer.ACCELERATED = False  # what is expected comes from Python

ALPHABET = bpe_tokenizer._ALPHABET
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")


class Operation(NamedTuple):
    """Something that allocates: what it works on, how it is done, and the right answer."""

    make: Callable[[], Any]
    call: Callable[[Any], Any]
    expected: Any


def definition(*merges: tuple[bytes, bytes]) -> Any:
    """Return a definition with these merges; tokens are numbered in order, from 256."""
    vocab = {bytes([byte]): byte for byte in range(256)}
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    pairs = [(vocab[left], vocab[right]) for left, right in merges]
    vocab[b"whole"] = len(vocab)
    return bpe_tokenizer.Definition(vocab, pairs, SPLIT_PATTERNS["gpt2"], None, ignore_merges=True)


WORDS: Any = automaton(r"\w+")  # all else is between matches
SENTENCES: Any = native.automaton(*automaton(r"\n"))
SUPERWORDS = definition(
    *[(b" ", b"a"), (b" ", b"b"), (b"a", b"b"), (b" a", b"b")],
    *[(b"ab", b" ab"), (b"ab ab", b" ab"), (b" ab", b" ab"), (b" ab ab", b" b")],
)
ORDERED = definition((b"a", b"b"), (b"ab", b"a"), (b"a", b"a"), (b"aa", b"aa"), (b"b", b"b"))
UNORDERED = definition((b"aa", b"aa"), (b"ab", b"a"), (b"b", b"b"), (b"a", b"b"), (b"a", b"a"))


def colliding() -> Any:
    """Return a definition whose merges collide, so that the table of them is made twice."""
    ids = random.Random(1).sample(range(10_000, 20_000), 256)
    pairs = [(left, right) for left in range(256) for right in range(256)]
    pairs.sort(
        key=lambda pair: (ids[pair[0]] << 20 | ids[pair[1]]) * 0x9E3779B97F4A7C15 & (2**64 - 1)
    )
    vocab = {bytes([byte]): id_ for byte, id_ in enumerate(ids)}
    vocab.update((bytes(pair), i) for i, pair in enumerate(pairs[:1_500]))
    merges = [(ids[left], ids[right]) for left, right in pairs[:1_500]]
    return bpe_tokenizer.Definition(vocab, merges, SPLIT_PATTERNS["gpt2"], None)


def encoder_of(given: Any) -> Any:
    """Return an encoder in C."""
    return native.Encoder(given.vocab, given.merges, "gpt2", True, {b"<added>": 900})


def encoding(given: Any, text: str) -> Operation:
    """Encode a text by a fresh encoder."""
    expected = bpe_tokenizer._Encoder(given).encode(text)
    return Operation(lambda: encoder_of(given), lambda encoder: encoder.encode(text), expected)


def counting(texts: list[str]) -> Operation:
    """Count strings, and bytes by another counter."""
    expected: dict[bytes, int] = {}
    for text in texts:
        for piece in bpe_tokenizer._splitter(SPLIT_PATTERNS["gpt2"]).split(text):
            expected[piece.encode()] = expected.get(piece.encode(), 0) + 1

    def call(counter: Any) -> Any:
        counter.take()  # what is there after an error is only a part
        counter.count(texts[1:])
        other = native.PretokenCounter("gpt2")
        # NFC leaves these texts as they are, and the string that is looked for is not in them.
        assert other.count_utf8(texts[0].encode(), native.Finder({"\n\n\n": None}), True) == []
        counter.add(other)
        return counter.take()

    return Operation(lambda: native.PretokenCounter("gpt2"), call, expected)


VOCAB = '{"a": 500, "b": 1000, "中": 5000, "ab": 70000}'.encode()
MERGES = b'[["a", "b"]]'
MODEL = b'{"x": [1, "]"], "model": {"vocab": %s, "merges": %s}}' % (VOCAB, MERGES)
FLAGS = bytearray(70_001)
FLAGS[500] = FLAGS[1000] = FLAGS[70_000] = 3


def respelled_runs(n: int, start: int) -> Iterator[int]:
    """Yield the runs of "a é" n times, from a place on, where "é" is replaced."""
    for at in range(start, start + 3 * n, 3):
        yield from (2, at, at + 1, 1, 1, at + 2, at + 3, 0)


def recorded_offsets(encoder: Any, text: str) -> Any:
    [(_, record)] = encoder.encode_batch_recorded([text], 1)
    return encoder.offsets(text, record)


def streamed(encoder: Any, text: str, finder: Any) -> list[int]:
    """Encode a text in chunks of growing sizes."""
    chunks = [text[n * n : (n + 1) ** 2] for n in range(int(len(text) ** 0.5) + 1)]
    stream = native.Stream(encoder, chunks, len, encoder.encode, finder, bytes(2**16))
    return [id_ for ids in stream for id_ in ids]


def words_of_tokens() -> tuple[tuple[Any, ...], Any]:
    """Return what `learn_joins` takes: tokens, words of them and counts; and what it learns."""
    chance, words = random.Random(2), CountedWords()
    tokens = [b"%d " % number for number in range(300)]
    for length in [*(chance.randrange(12) for _ in range(200)), 400]:
        words.add(chance.choices(range(250, 300), k=length), chance.randrange(1, 9))
    forbidden = Refused([b"zz"], 3, [b": ", b"zz" * 9])
    with unittest.mock.patch.object(bpe_tokenizer, "_engine", bpe_tokenizer._Engine()):
        learned, counts = learn_joins(tokens, words, 60, 2, forbidden=forbidden)
    assert learned.stopped == "vocab size reached"
    return (tuple(tokens), words.symbols, words.counts), (tuple(learned), counts)


def operations() -> dict[str, Operation]:
    """Return everything that allocates."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefgh", k=chance.randrange(3, 12))) for _ in range(40_000)]
    many = " ".join(words)
    mixed = "ab abba é中😀 whole x" + "y" * 30 + " " + "ab" * 20
    python, collides = bpe_tokenizer._Encoder(ORDERED), colliding()
    ids = python.encode(mixed * 300)
    texts = [mixed * n for n in (1, 900, 0, 500, 700)]
    cut = bpe_tokenizer._splitter(SPLIT_PATTERNS["gpt2"]).split(texts[1])
    listed = [python.encode(text) for text in texts]
    given = {word.encode(): 1 + len(word) for word in words[:300]} | {b"ab" * 200: 3}
    learned = bpe_tokenizer._MergeLearner(given, None).learn(200, 2, frozenset(), lambda n: None)
    sequences, joined = words_of_tokens()
    merged = bpe_tokenizer._Encoder(dataclasses.replace(ORDERED, ignore_merges=False))
    numbers = array("I", (chance.randrange(300) for _ in range(40_000)))
    said = ("ab" + " ab" * 40 + " b x\n" + " ab ab b" * 9) * 20
    beside = array("I", itertools.chain.from_iterable(itertools.product(range(200), repeat=2)))
    tokens = [b"a", b"b", b"ab", b"aab", b"abab", b"ba", b"abba", b"abababab" * 9, b"abab" * 2]
    found = recover_merges({token: rank for rank, token in enumerate(tokens)})

    places = python.places(mixed * 300, ids)
    written = [python.tokens[id_] for id_ in ids]
    trimmed = [
        (min(a + (token[:1] == b" "), b), b) if token.strip() else (b, b)
        for (a, b), token in zip(places, written)
    ]
    strings = {"ab": 256, "中": 97, " whole": 98} | {f"<{i}>": i for i in range(300)}
    find = bpe_tokenizer._spans_of(strings)
    spans = list(find(texts[1], 0, sys.maxsize))

    def encode_around(text: str) -> tuple[list[int], list[int]]:
        """Return the ids of a text with strings in it, and where each ends."""
        made: list[int] = []
        ends, done = [], 0
        for start, end in [*find(text, 0, sys.maxsize), (len(text), len(text))]:
            between = text[done:start]
            made += (new := python.encode(between))
            ends += [done + at for _, at in python.places(between, new)]
            made += [strings[text[start:end]]] if start < end else []
            ends += [end] if start < end else []
            done = end
        return made, ends

    around, ends = encode_around(texts[1])
    kept_around = next(
        end for end in reversed(ends[:9]) if len(encode_around(texts[1][:end])[0]) <= 9
    )
    some = len(listed[1]) // 2
    kept = next(
        end
        for _, end in reversed(python.places(texts[1], listed[1])[:some])
        if python.count(texts[1][:end]) <= some
    )

    def first(encoder: Any) -> Any:
        [(ids, record)] = encoder.encode_batch_recorded([texts[1]], 1, 0, some)
        return ids, encoder.offsets(texts[1], record)

    dropped = dropping(python, 0.25, 7).encode(texts[1])

    def drop(encoder: Any, text: Any) -> Any:
        return encoder.encode_dropping(text, 2**51, 7)[0]

    def finder() -> Any:
        return native.Finder(strings)

    def learn(_: Any) -> Any:
        forbidden = frozenset([b"zz", b"forbidden" * 3])
        return native.learn_merges(given, ALPHABET, 200, 2, None, forbidden, None)

    def join(_: Any) -> Any:
        never = b": ", b"zz" * 9
        return native.learn_joins(*sequences, 60, 2, None, frozenset([b"zz"]), 3, never, None)

    def neighbors(_: Any) -> Any:
        pairs = native.PairCounter(5_000)
        pairs.add(numbers)
        runs = native.RunCounter(beside)
        runs.add(numbers)
        learned, _ = native.learn_joins(
            sequences[0], runs, None, 9, 1, None, frozenset(), None, (), None
        )
        again = native.PairCounter(5_000)
        again.merge(pairs.frequent(1), 0)
        counted = sum(array("q", runs.words()[1]))
        return again.nth(1), len(pairs.frequent(1)), len(runs), counted, learned[0]

    def choose(_: Any) -> Any:
        learner = native.PairLearner(given, ALPHABET)
        found = [learner.best()]
        while len(found) < 60 and found[-1]:
            learner.join(*found[-1][:2])
            found.append(learner.best())
        return found

    def find(finder: Any) -> Any:
        return finder.find([mixed, many[:9_000]])

    def word_finder() -> Any:
        return native.WordFinder({b"a": 1, b" b": 2}, SENTENCES, "gpt2", 9)

    def ranks(_: Any) -> Any:
        pairs = native.merges_from_ranks(tokens)
        return [(tokens[pair[0]], tokens[pair[1]]) for pair in pairs if pair]

    def ordered() -> Any:
        return encoder_of(ORDERED)

    return {
        "load": Operation(lambda: None, lambda _: encoder_of(ORDERED).decode([256]), b"ab"),
        "load another's": Operation(
            ordered,
            lambda e: native.Encoder(e, [], "gpt2").encode(mixed * 9),
            bpe_tokenizer._Encoder(dataclasses.replace(ORDERED, ignore_merges=False)).encode(
                mixed * 9
            ),
        ),
        "share": Operation(
            ordered,
            lambda e: native.Encoder(e, [], "gpt2", True, {b"<added>": 900}).encode(mixed),
            python.encode(mixed),
        ),
        "image": Operation(
            ordered,
            lambda e: native.Encoder.from_image(e.image(b"rest"))[0].decode(ids),
            (mixed * 300).encode(),
        ),
        "listed": Operation(
            ordered,
            lambda e: (e.listed(True), e.merges(0, 9), e.token(256), e.id_of(b"ab")),
            (
                ([*ORDERED.vocab, b"<added>"], [*ORDERED.vocab.values(), 900]),
                ORDERED.merges,
                b"ab",
                256,
            ),
        ),
        "load what collides": Operation(
            lambda: None,
            lambda _: encoder_of(collides).encode(mixed),
            bpe_tokenizer._Encoder(collides).encode(mixed),
        ),
        "short": encoding(ORDERED, "ab whole"),
        "mixed": encoding(ORDERED, mixed),
        "many": encoding(ORDERED, many),
        "long": encoding(ORDERED, "ab" * 3_000 + "a" * 3_000),
        "long and unordered": encoding(UNORDERED, "ab" * 3_000 + "a" * 3_000),
        "buffer": Operation(
            ordered, lambda e: array("I", e.encode_to_buffer(texts[1])).tolist(), listed[1]
        ),
        "plain buffer": Operation(
            ordered, lambda e: array("I", e.encode_plain_to_buffer(texts[1])).tolist(), listed[1]
        ),
        "shown": Operation(
            lambda: native.Shown(chr, 2_000),
            lambda shown: [shown.of(ids), shown.of(ids), shown.of(tuple(ids))],
            [list(map(chr, ids))] * 3,
        ),
        "automaton": Operation(
            lambda: None,
            lambda _: native.split(native.automaton(*WORDS), "ab é 中"),
            [b"ab", b" ", "é".encode(), b" ", "中".encode()],
        ),
        "begin": Operation(ordered, lambda e: e.begin(None, texts[1], some), kept),
        "begin around": Operation(
            lambda: (ordered(), finder()),
            lambda both: both[0].begin(both[1], texts[1], 9),
            kept_around,
        ),
        "first ids": Operation(
            ordered, first, (listed[1][:some], python.places(texts[1], listed[1][:some]))
        ),
        "count": Operation(ordered, lambda e: e.count(texts[1]), len(listed[1])),
        "count around": Operation(
            lambda: (ordered(), finder()),
            lambda both: both[0].count_around(both[1], texts[1]),
            len(around),
        ),
        "cut": Operation(ordered, lambda e: e.encode_pretokens(cut), listed[1]),
        "dropout": Operation(ordered, lambda e: drop(e, texts[1]), dropped),
        "dropout in pre-tokens": Operation(ordered, lambda e: drop(e, cut), dropped),
        "batch": Operation(ordered, lambda e: e.encode_batch(texts, 2, 0), listed),
        "joined": Operation(
            ordered,
            lambda e: e.encode_joined(" ab é" * 9, [5, 40, 45], 2, True, 0),
            python.encode(" ab é" * 9),
        ),
        "buffers": Operation(
            ordered,
            lambda e: [array("I", b).tolist() for b in e.encode_batch_to_buffers(texts, 2, 0)],
            listed,
        ),
        "finder": Operation(
            lambda: None, lambda _: finder().find(texts[1], 0, len(texts[1])), spans
        ),
        "find": Operation(finder, lambda f: f.find(texts[1], 0, len(texts[1])), spans),
        "encode around": Operation(
            lambda: (ordered(), finder()),
            lambda both: both[0].encode_around(both[1], texts[1]),
            around,
        ),
        "segments": Operation(
            lambda: (ordered(), finder()),
            lambda both: both[0].encode_segments(both[1], True, [(texts[1], True)]),
            around,
        ),
        "stream": Operation(
            ordered, lambda e: streamed(e, texts[1], native.Finder({"~": None})), listed[1]
        ),
        "stream of tokens": Operation(
            ordered, lambda e: streamed(e, texts[1], native.Finder({"a": None})), listed[1]
        ),
        "decode rows": Operation(
            ordered,
            lambda e: e.decode_rows([ids[:9_000], array("I", ids[:9_000])], "replace", 97, 0, b""),
            python.decode_rows([ids[:9_000]] * 2, frozenset(), 97),
        ),
        "decode": Operation(ordered, lambda e: e.decode(ids), (mixed * 300).encode()),
        "decode any": Operation(ordered, lambda e: e.decode(tuple(ids)), (mixed * 300).encode()),
        "decode to str": Operation(ordered, lambda e: e.decode_to_str(ids, "strict"), mixed * 300),
        "decode ASCII": Operation(
            ordered, lambda e: e.decode_to_str([256] * 2_000, ""), "ab" * 2_000
        ),
        "decode numbers": Operation(
            ordered, lambda e: e.decode(array("I", ids)), (mixed * 300).encode()
        ),
        "without": Operation(
            ordered,
            lambda e: e.without([97, 5, *ids], 97, b"\1"),
            [5, *(i for i in ids if i != 97)],
        ),
        "offsets": Operation(ordered, lambda e: e.offsets(mixed * 300, ids), places),
        "recorded": Operation(ordered, lambda e: recorded_offsets(e, mixed * 300), places),
        "offsets by runs": Operation(
            ordered,
            lambda e: e.offsets(mixed * 300, ids, array("i", [len(mixed) * 300, 7, 8, 1])),
            [(start + 7, end + 7) for start, end in places],
        ),
        "respelled": Operation(
            lambda: bytes([0xFF] * 16).ljust(0x110000 // 8, b"\0"),
            lambda known: native.respell("a é" * 99, known, "?", True, array("i", [297, 7, 8, 1])),
            ("a▁?" * 99, array("i", respelled_runs(99, 7)).tobytes()),
        ),
        "offsets, trimmed": Operation(
            ordered, lambda e: e.offsets(mixed * 300, ids, None, 1), trimmed
        ),
        "counting": counting([many, mixed * 3_000, mixed]),
        "counting short texts": counting(words[:9_000]),
        "learning": Operation(lambda: None, learn, tuple(learned)),
        "joins": Operation(lambda: None, join, joined),
        "neighbors": Operation(lambda: None, neighbors, neighbors(None)),
        "chosen pairs": Operation(lambda: None, choose, choose(None)),
        "whole words": Operation(word_finder, find, find(word_finder())),
        "superwords": Operation(
            lambda: None,
            lambda _: native.Encoder(SUPERWORDS.vocab, SUPERWORDS.merges, SENTENCES).encode(said),
            bpe_tokenizer._Encoder(
                dataclasses.replace(SUPERWORDS, ignore_merges=False, split_pattern="\n")
            ).encode(said),
        ),
        "apart": Operation(
            lambda: native.Encoder(ORDERED.vocab, ORDERED.merges, "gpt2"),
            lambda e: array("I", e.encode_apart([mixed, many[:30_000]], 500)).tolist(),
            [
                id_
                for text in (mixed, many[:30_000])
                for pretoken in bpe_tokenizer._splitter(SPLIT_PATTERNS["gpt2"]).split(text)
                for id_ in [*merged.encode(pretoken), 500]
            ],
        ),
        "ranks": Operation(lambda: None, ranks, found),
        "named merges": Operation(
            lambda: None, lambda _: native.merges_from_ranks(tokens, tokens), found
        ),
        "tokenizer.json": Operation(
            lambda: None,
            lambda _: native.read_model(MODEL),
            (
                MODEL.replace(VOCAB, b"{}").replace(MERGES, b"[]"),
                {b"a": 500, b"b": 1000, b"ab": 70000},
                {"\u4e2d": 5000},
                [(500, 1000)],
                FLAGS,
            ),
        ),
        "file of ranks": Operation(
            lambda: None,
            lambda _: native.read_ranks(b"YQ== 500\nYWI= 1000\nYWJj 70000"),
            {b"a": 500, b"ab": 1000, b"abc": 70000},
        ),
    }


# -- Memory that fails -------------------------------------------------------------


def try_operation(
    operation: Operation, fail: Callable[[], Any], work_again: Callable[[], Any]
) -> bool:
    """Do something while memory fails, and again when it does not.  Tell whether it failed."""
    state = operation.make()
    fail()
    try:
        answer = operation.call(state)
    except MemoryError:
        answer = MemoryError
    work_again()
    assert answer is MemoryError or answer == operation.expected, answer
    assert operation.call(state) == operation.expected
    return answer is MemoryError


def threads_now() -> int:
    """Return how many threads this process has, if the system tells."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else 1


THREADS = threads_now()  # those of Python


def wait_for_threads() -> None:
    """Wait until the extension's threads have ended, and release what they left behind."""
    while threads_now() > THREADS:
        time.sleep(0.001)
    encoder_of(ORDERED).encode_batch([], 1)
    gc.collect()


def watching_malloc() -> Any:
    """Return the library that this process was started with, watching the extension."""
    shim = ctypes.CDLL(None)
    for counted in (shim.calls_seen, shim.not_freed, shim.others_stopped, shim.stopped_too_long):
        counted.restype = ctypes.c_long
    maps = Path("/proc/self/maps").read_text().splitlines()
    mine = [line for line in maps if line.endswith(native.__file__)]
    places = [int(place, 16) for line in mine for place in re.findall("[0-9a-f]+", line)[:2]]
    shim.watch_calls_from(ctypes.c_ulong(min(places)), ctypes.c_ulong(max(places)))
    return shim


def fail_malloc() -> None:
    """Let each allocation of the extension itself fail: one alone, and with all after it."""
    shim = watching_malloc()
    forever = 2**40

    def failing(first: int, end: int) -> Callable[[], Any]:
        return lambda: shim.fail_calls(ctypes.c_long(first), ctypes.c_long(end))

    stop = failing(forever, forever)
    for name, operation in operations().items():
        stop()
        assert not try_operation(operation, stop, lambda: None)
        allocations = shim.calls_seen()  # of twice what it takes
        errors = 0
        for first in range(allocations):
            for end in (first + 1, forever):
                errors += try_operation(operation, failing(first, end), stop)
        print(f"{name}: {allocations} allocations, {errors} errors", flush=True)
        assert errors or not allocations
        wait_for_threads()
        assert shim.not_freed() == 0, shim.not_freed()


def stop_threads() -> None:
    """Stop the threads that help with a batch, each time a step later: nobody waits for them."""
    shim, n_stopped = watching_malloc(), 0
    texts = ["ab é" * 9_000, "abba whole " * 9_000] * 8
    python = bpe_tokenizer._Encoder(ORDERED)
    expected = [python.encode(text) for text in texts[:2]] * 8
    for after in range(12):
        encoder = encoder_of(ORDERED)
        shim.stop_others(ctypes.c_long(after))
        given = list(texts)
        assert encoder.encode_batch(given, 3, 0) == expected
        try:
            encoder.encode_batch([*given, "\udfff", *given, "\ud800"], 3, 0)
            raise AssertionError("a surrogate was encoded")
        except UnicodeEncodeError as error:
            assert error.object == "\udfff"
        n_stopped += shim.others_stopped()
        del given, encoder  # while they are still at it
        shim.stop_others(ctypes.c_long(-1))
        wait_for_threads()
        assert shim.not_freed() == 0, shim.not_freed()
    assert shim.stopped_too_long() == 0
    print(f"stopped {n_stopped} threads")


def fail_python() -> None:
    """Let each allocation of Python fail while the extension works."""
    testing: Any = importlib.import_module("_testcapi")
    for name, operation in operations().items():
        errors = 0
        try_operation(operation, lambda: None, lambda: None)
        wait_for_threads()
        before = sys.getallocatedblocks()
        for first in range(60):
            for end in (first + 1, 0):
                errors += try_operation(
                    operation,
                    lambda first=first, end=end: testing.set_nomemory(first, end),
                    testing.remove_mem_hooks,
                )
        wait_for_threads()
        more = sys.getallocatedblocks() - before
        print(f"{name}: {errors} errors, {more} blocks more", flush=True)
        # All that these ask Python for is one number, which it may have kept.
        assert errors or name in ("count", "count around", "begin", "begin around")
        assert more < 50


# -- Memory that leaks ---------------------------------------------------------------


def resident() -> int:
    """Return the memory this process has, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class _Mallinfo(ctypes.Structure):
    """What glibc's `mallinfo2` gives, for all threads."""

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]  # noqa: RUF012


def held() -> int:
    """Return how many bytes `malloc` has given and not got back; without glibc, what is resident.

    What is resident also has what glibc keeps for later, in an arena for each thread: that moves by
    tens of megabytes, though nothing leaks.
    """
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return resident()
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


def quietly(call: Callable[..., Any], *args: Any) -> None:
    """Call, whatever it raises."""
    with contextlib.suppress(TypeError, ValueError, KeyError, OverflowError):
        call(*args)


SHORT_MODEL = b'{"model": {"vocab": {"a": 600, "b": 700, "ab": 800, "- -": 9}, "merges": ["a b"]}}'


def short_calls(encoder: Any, texts: list[str], ids: list[Any]) -> list[Callable[[], Any]]:
    """Return calls of every kind, right ones and wrong ones."""
    ascii_text, other, surrogate = texts
    without = native.Encoder(ORDERED.vocab, [], None)
    counter, shown = native.PretokenCounter("gpt2"), native.Shown(chr, 300)
    without_whole = native.Encoder(ORDERED.vocab, [], "gpt2")
    cutter = native.automaton(*WORDS)
    by_automaton = native.Encoder(ORDERED.vocab, [], cutter)
    unknown, huge, numbers = [*ids, 2**19], [2**70], array("I", ids)
    words = {b"abab": 2, b"ab": 1}
    known = bytes([0xFF] * 16).ljust(0x110000 // 8, b"\0")
    finder, table = native.Finder({"ab": 97, "bb": None, "é中": 98}), bytes(2**16)

    def learn(counts: Any, n_tokens: Any, advance: Any) -> None:
        native.learn_merges(counts, ALPHABET, n_tokens, 1, None, frozenset(), advance)

    def join(symbols: Any, counts: Any, never: Any) -> None:
        options = 5, 1, None, frozenset([b"ba"]), 4, never, None
        native.learn_joins((b"aa", b"a"), symbols, counts, *options)

    return [
        lambda: encoder.encode(ascii_text),
        lambda: encoder.encode(other),
        lambda: quietly(encoder.encode, surrogate),
        lambda: quietly(encoder.encode, 5),
        lambda: encoder.encode_dropping(ascii_text, 2**52, 1),
        lambda: encoder.encode_dropping([other, "", "ab"], 2**52, 1),
        lambda: quietly(encoder.encode_dropping, surrogate, 2**52, 1),
        lambda: quietly(encoder.encode_dropping, ["ab", 5], 2**52, 1),
        lambda: quietly(encoder.encode_dropping, None, 2**52, 1),
        lambda: quietly(encoder.encode_dropping, other, "much", 1),
        lambda: encoder.encode_plain(other),
        lambda: encoder.encode_plain(surrogate),
        lambda: encoder.encode_plain(None),
        lambda: native.surely_nfc(other),
        lambda: quietly(native.surely_nfc, None),
        lambda: encoder.encode_around(finder, ascii_text),
        lambda: encoder.encode_around(finder, other),
        lambda: encoder.encode_around(finder, surrogate),
        lambda: encoder.encode_around(finder, None),
        lambda: encoder.begin(finder, other, 2),
        lambda: encoder.begin(None, other * 99, 2),
        lambda: encoder.begin(None, surrogate, 2),
        lambda: encoder.begin(finder, "abb bb", 2),
        lambda: quietly(encoder.begin, encoder, other, 2),
        lambda: quietly(encoder.begin, None, other, None),
        lambda: encoder.encode_around(finder, "abb bb"),
        lambda: list(native.Stream(encoder, iter(other), len, encoder.encode)),
        lambda: next(native.Stream(encoder, [other * 9, "ab"], len, encoder.encode)),
        lambda: streamed(encoder, "abb ab", finder),
        lambda: quietly(list, native.Stream(encoder, [ascii_text, surrogate], len, len)),
        lambda: quietly(list, native.Stream(encoder, ["ab ", 5], abs, len)),
        lambda: quietly(list, native.Stream(encoder, "ab ab", len, encoder.decode, finder, table)),
        lambda: quietly(native.Stream, encoder, 5, len, len),
        lambda: quietly(native.Stream, encoder, [], len, len, finder),
        lambda: quietly(native.Stream, by_automaton, [], len, len),
        lambda: quietly(encoder.encode_around, encoder, other),
        lambda: finder.find(other, 0, 99),
        lambda: quietly(finder.find, other, None, 99),
        lambda: quietly(finder.find, None, 0, 99),
        lambda: quietly(native.Finder, {"ab": 1, "": 2}),
        lambda: quietly(native.Finder, {"ab": 1, "b": "c"}),
        lambda: encoder.encode_to_buffer(other),
        lambda: encoder.encode_plain_to_buffer(other),
        lambda: encoder.encode_plain_to_buffer(surrogate),
        lambda: encoder.encode_plain_to_buffer(5),
        lambda: native.Shown(chr, 300).of(ids),
        lambda: shown.of(ids),
        lambda: shown.of(iter(ids)),
        lambda: shown[ids[0]],
        lambda: quietly(shown.of, [*ids, 2**70]),
        lambda: quietly(shown.of, [*ids, -1]),
        lambda: quietly(shown.of, 5),
        lambda: quietly(native.Shown, chr, 2**20),
        lambda: quietly(encoder.encode_to_buffer, surrogate),
        lambda: encoder.count(other),
        lambda: encoder.count_plain(surrogate),
        lambda: encoder.count_around(finder, other),
        lambda: encoder.encode_pretokens(texts[:2]),
        lambda: quietly(encoder.encode_pretokens, texts),
        lambda: quietly(encoder.count_pieces, [*texts[:2], None]),
        lambda: quietly(without.encode, other),
        lambda: encoder.encode_batch(texts[:2], 1),
        lambda: quietly(encoder.encode_batch, texts, 1),
        lambda: quietly(encoder.encode_batch, [other, 5], 1),
        lambda: quietly(encoder.encode_batch, other, 1),
        lambda: encoder.encode_joined("ab " * 3, [2, 9], 2, True, 0),
        lambda: quietly(encoder.encode_joined, "ab " * 3, [2, 8], 2, True, 0),
        lambda: quietly(encoder.encode_joined, "ab \ud800", [2, 4], 2, True, 0),
        lambda: encoder.encode_joined_to_buffer("ab " * 3, [2, 9], 2, True, 0),
        lambda: quietly(encoder.encode_batch_to_buffers, texts, 0),
        lambda: quietly(encoder.encode_batch, texts, 2, -1),
        lambda: encoder.decode(ids),
        lambda: encoder.decode(tuple(ids)),
        lambda: encoder.decode(numbers),
        lambda: encoder.decode_to_str(numbers, "strict"),
        lambda: quietly(encoder.decode_to_str, [0xC3], "strict"),
        lambda: quietly(encoder.decode_to_str, array("q", [-1]), "strict"),
        lambda: encoder.without(list(ids), ids[0], b"\1"),
        lambda: encoder.without(list(ids), 0, b""),
        lambda: encoder.without([*ids, "a"], ids[0], b"\1"),
        lambda: quietly(encoder.decode, memoryview(numbers)[::2]),
        lambda: quietly(encoder.decode, array("d", [97])),
        lambda: quietly(encoder.decode, unknown),
        lambda: quietly(encoder.decode, huge),
        lambda: quietly(encoder.decode, [other]),
        lambda: encoder.offsets(ascii_text, ids),
        lambda: quietly(encoder.offsets, other, ids),
        lambda: encoder.offsets(ascii_text, ids, array("i", [len(ascii_text), 0, 9, 0])),
        lambda: quietly(encoder.offsets, ascii_text, ids, array("i", [9, 0, 9, 0])),
        lambda: quietly(encoder.offsets, ascii_text, ids, numbers),
        lambda: quietly(encoder.offsets, ascii_text, unknown),
        lambda: encoder.offsets(ascii_text, ids, None, 3),
        lambda: quietly(encoder.offsets, ascii_text, ids, None, 4),
        lambda: native.respell(other, known, "?", True),
        lambda: native.respell(
            ascii_text, known, "", False, array("i", [len(ascii_text), 0, 1, 1])
        ),
        lambda: quietly(native.respell, other, known, "?", True, array("i", [1, 0, 1, 1])),
        lambda: quietly(native.respell, other, known[:9], "?", True),
        lambda: recorded_offsets(encoder, other),
        lambda: quietly(encoder.encode_batch_recorded, [surrogate], 1),
        lambda: quietly(encoder.offsets, other, b"\xff" * 8),
        lambda: quietly(encoder.offsets, other, b"\0" * 7),
        lambda: encoder.encode_segments(finder, True, [(other, False), ("ab", True)]),
        lambda: quietly(encoder.encode_segments, finder, True, [(surrogate, True)]),
        lambda: quietly(encoder.encode_segments, finder, True, [(5, True)]),
        lambda: encoder.cache_info(),
        lambda: encoder.token(ids[0]),
        lambda: encoder.token(900),
        lambda: encoder.token(-1),
        lambda: encoder.token(None),
        lambda: encoder.id_of(b"ab"),
        lambda: encoder.id_of(b"no token"),
        lambda: encoder.id_of("ab"),
        lambda: encoder.merges(1, 3),
        lambda: encoder.merges(-5, -1),
        lambda: quietly(encoder.merges, None, 3),
        lambda: encoder.sizes,
        lambda: native.Encoder.from_image(b"no image"),
        lambda: quietly(native.Encoder.from_image, None),
        lambda: quietly(encoder.image, None),
        lambda: encoder.largest_id,
        lambda: quietly(native.split, "gpt2", surrogate),
        lambda: native.split(cutter, other),
        lambda: quietly(native.split, None, other),
        lambda: by_automaton.encode(other),
        lambda: quietly(native.automaton, *WORDS[:3], 1, True),
        lambda: quietly(native.automaton, None),
        lambda: counter.count(texts[:2]),
        lambda: quietly(counter.count, texts),
        lambda: quietly(counter.count, [5]),
        lambda: counter.count_utf8(b"a b", finder),
        lambda: counter.count_utf8("e\u0301 a".encode(), None, True),
        lambda: quietly(counter.count_utf8, b"\xff"),
        lambda: quietly(counter.count_utf8, "a"),
        lambda: quietly(counter.add, 5),
        lambda: len(counter),
        lambda: native.PairCounter(1).add(numbers),
        lambda: quietly(native.PairCounter, 0),
        lambda: quietly(native.PairCounter(1).add, b"abc"),
        lambda: native.RunCounter(numbers[:2]).add(numbers),
        lambda: quietly(native.RunCounter, b"abc"),
        lambda: native.RunCounter(numbers[:2]).words(),
        lambda: native.PairCounter(1).merge(b"\1\0\0\0\2\0\0\0\1\0\0\0\0\0\0\0", 3),
        lambda: quietly(native.PairCounter(1).merge, b"abc", 0),
        lambda: native.PairLearner({b"ab": 2, b"abab": 1}, ALPHABET).join(64, 65),
        lambda: native.PairLearner({b"ab": 2}, ALPHABET, 5).best(),
        lambda: native.PairLearner({b"ab": 2}, ALPHABET).drop(),
        lambda: quietly(native.PairLearner, {"ab": 2}, ALPHABET),
        lambda: quietly(native.PairLearner, {b"ab": 2**70}, ALPHABET),
        lambda: quietly(native.PairLearner({b"ab": 2}, ALPHABET).join, 1, 256),
        lambda: native.WordFinder({b"ab": 2}, "gpt2", "gpt2", 1).find([other, "ab ab"]),
        lambda: quietly(native.WordFinder({b"ab": 2}, "gpt2", "gpt2", 1).find, [surrogate]),
        lambda: quietly(native.WordFinder, {b"ab": 2**70}, "gpt2", "gpt2", 1),
        lambda: quietly(native.WordFinder, {}, "gpt2", None, 1),
        lambda: without_whole.encode_apart(["ab"], 5),
        lambda: quietly(without_whole.encode_apart, [texts[2]], 5),
        lambda: quietly(native.merges_from_ranks, [b"a", b"ab", b"b"]),
        lambda: quietly(native.merges_from_ranks, [b"a", "ab"]),
        lambda: native.merges_from_ranks([b"a", b"ab", b"b"], ids[:3]),
        lambda: quietly(native.merges_from_ranks, [b"a"], ["a"]),
        lambda: native.read_ranks(b"YQ== 500\nYWI= 1000\n"),
        lambda: native.read_model(SHORT_MODEL),
        lambda: native.read_model(SHORT_MODEL[:-3]),
        lambda: native.read_model(SHORT_MODEL.replace(b"800", b"700")),
        lambda: native.read_ranks(b"YQ== 500\nYWI= 1000\n="),
        lambda: quietly(native.learn_merges, words),
        lambda: quietly(learn, {"a": 1}, 5, None),
        lambda: quietly(learn, words, 2**40, None),
        lambda: join(array("i", [0, 1, -1]), array("q", [2]), (b": ",)),
        lambda: quietly(join, array("i", [0, 2, -1]), array("q", [2]), (b": ",)),
        lambda: quietly(join, array("i", [0, 0, -1]), array("q", [2]), (b"",)),
        lambda: quietly(join, array("i", [1, 1, 1, -1]), array("q", [2]), ()),
        lambda: quietly(native.Encoder, {b"a": 2**70}, [], "gpt2"),
        lambda: quietly(native.Encoder, {b"a": 1}, [], "gpt2"),
        lambda: quietly(native.Encoder, {b"a": 1}, [], "none"),
        lambda: quietly(native.PretokenCounter, "none"),
    ]


def rare_calls() -> list[Callable[[], Any]]:
    """Return calls that take longer."""
    merges, texts = ORDERED.merges, ["ab é" * 9_000] * 3

    def learn(advance: Any) -> None:
        native.learn_merges({b"ab": 1}, ALPHABET, 5, 1, None, frozenset([b"ba"]), advance)

    def count() -> None:
        counter = native.PretokenCounter("gpt2")
        counter.count(texts)
        counter.take()
        counter.count(texts)
        counter.add(counter)
        counter.to_dict()
        counter.items()
        counter.values()
        native.learn_merges(counter, ALPHABET, 5, 1, None, frozenset(), None)

    encoder = encoder_of(ORDERED)
    image = encoder.image(b"rest")
    return [
        lambda: encoder.image(b"rest"),
        lambda: native.Encoder.from_image(image),
        lambda: native.Encoder.from_image(image[:-1] + b"x"),
        lambda: native.Encoder(native.Encoder.from_image(image)[0], [], "gpt2", True),
        lambda: native.Encoder(ORDERED.vocab, [], native.automaton(*WORDS)),
        lambda: native.Encoder(encoder, [], "gpt2"),
        lambda: native.Encoder(native.Encoder(encoder, [], "gpt2"), [], None),
        lambda: native.Encoder(encoder, [], "gpt2", True, {b"<added>": 900}),
        lambda: encoder.listed(True),
        lambda: quietly(native.Encoder, encoder, None, "gpt2"),
        lambda: quietly(native.Encoder, None, [], "gpt2"),
        lambda: quietly(native.Encoder, encoder, [], "gpt2", True, {b"<added>": 2**70}),
        lambda: native.PretokenCounter(native.automaton(*WORDS)),
        lambda: encoder_of(ORDERED).encode_batch(texts, 2, 0),
        lambda: quietly(encoder_of(ORDERED).encode_batch, [*texts, "\ud800", *texts], 2, 0),
        lambda: quietly(native.Encoder, ORDERED.vocab, [*merges, (97, 5_000)], "gpt2"),
        lambda: quietly(native.Encoder, ORDERED.vocab, [*merges, [97, 98]], "gpt2"),
        lambda: encoder_of(UNORDERED).clear_cache(),
        lambda: learn(None),
        lambda: quietly(learn, int),
        lambda: quietly(learn, lambda n: int("x")),
        count,
    ]


def leak(times: str = "6000") -> None:
    """Make over a million calls, or fewer of each: neither memory nor references become more.

    Threads that others keep from the processors may each need a worker at the same time.  These
    stay, so memory may grow once or twice.  What leaks grows each time.
    """
    encoder = encoder_of(ORDERED)
    texts = ["ab abba" + "a" * 40, "é中" + "ab" * 30 + "😀" * 9, "a\udfff"]
    ids = encoder.encode(texts[0])
    counted = [*texts, *ids, *(encoder.encode(texts[1])), None, texts, ids, ORDERED.vocab]
    short, rare = short_calls(encoder, texts, ids), rare_calls()

    def run(calls: list[Callable[[], Any]], times: int) -> None:
        for call in calls:
            for _ in range(times):
                call()
        wait_for_threads()

    def references() -> array[int]:
        # Not a list: it would itself refer to the small numbers among what is counted.
        return array("q", [sys.getrefcount(item) for item in counted])

    for calls, count in ((short, int(times)), (rare, 30 if SANITIZED else 150)):
        run(calls, max(50, count // 20))
        for last in (False, False, True):
            before, memory, blocks = references(), held(), sys.getallocatedblocks()
            run(calls, count)
            more, blocks = held() - memory, sys.getallocatedblocks() - blocks
            print(f"{len(calls) * count:,} calls: {more:,} bytes, {blocks} blocks more", flush=True)
            assert all(abs(now - then) < 20 for now, then in zip(references(), before))
            if SANITIZED or (more < 1_000_000 and blocks < 100):
                break
            assert not last


# -- Threads at odd moments --------------------------------------------------------


def batches_for_ever(encoder: Any, texts: list[str], depth: int) -> None:
    """Encode batches far down a stack."""
    if depth:
        list(map(batches_for_ever, [encoder], [texts], [depth - 1]))
    while not depth:
        encoder.encode_batch(texts, 3)


def start_batches(encoder: Any) -> None:
    """Start threads that go on until the process ends."""
    texts = ["ab é" * 4_000] * 300
    for _ in range(3):
        arguments = encoder, texts, 40
        threading.Thread(target=batches_for_ever, args=arguments, daemon=True).start()
    time.sleep(0.2)


class SlowToGo:
    """What keeps the interpreter from ending at once."""

    def __del__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Take a while."""
        sleep(0.2)


def end() -> None:
    """End while threads are at work."""
    global kept
    kept = SlowToGo()
    start_batches(encoder_of(ORDERED))


def fork() -> None:
    """Fork while threads are at work; the child can do all of it, too."""
    encoder, text = encoder_of(ORDERED), "abba whole " * 5_000
    expected = bpe_tokenizer._Encoder(ORDERED).encode(text)
    start_batches(encoder)
    for _ in range(20):
        child = os.fork()
        if not child:
            counter = native.PretokenCounter("gpt2")
            counter.count([text] * 5)
            right = encoder.encode_batch([text] * 5, 2, 0) == [expected] * 5
            os._exit(0 if right and encoder.encode(text) == expected and len(counter) == 4 else 1)
        assert os.waitpid(child, 0)[1] == 0


def interrupt() -> None:
    """Let a signal's handler use the encoder that is at work, and raise."""
    encoder, texts = encoder_of(ORDERED), ["ab é" * 4_000] * 300
    expected = encoder.encode_batch(texts[:9], 1)

    def handle(*_: Any) -> None:
        assert encoder.encode_batch(texts[:9], 2, 0) == expected
        raise InterruptedError

    signal.signal(signal.SIGALRM, handle)
    for _ in range(10):
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        with contextlib.suppress(InterruptedError):
            while True:
                encoder.encode_batch(texts, 2)
    assert encoder.encode_batch(texts[:9], 2, 0) == expected


IN_AN_INTERPRETER = """
import sys
sys.path[:0] = {path!r}
import bpe_tokenizer
assert bpe_tokenizer.ACCELERATED
tokenizer = bpe_tokenizer.BPETokenizer().train("the cat sat on the mat " * 20, 280, verbose=False)
for number in range(50):
    text = f"the cat é中 {{number}} " * 900
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode_ordinary_batch([text] * 9, 4) == [ids] * 9
"""


def interpreters() -> None:
    """Use all of it in several interpreters of one process, one after the other and at once."""
    made: Any = importlib.import_module("_xxsubinterpreters")

    def run() -> None:
        interpreter = made.create(isolated=True)
        try:
            made.run_string(interpreter, IN_AN_INTERPRETER.format(path=sys.path))
            done.append(interpreter)
        finally:
            made.destroy(interpreter)

    done: list[Any] = []
    run()
    run()
    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 5


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
