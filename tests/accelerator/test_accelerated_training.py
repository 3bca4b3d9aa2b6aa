"""Training by the accelerator against the Python engine, which says what is right."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import regex
from conftest import ROOT, read_corpus
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples
from test_accelerator import ATOMS, BOTH_WAYS, EVERY_PATTERN, FOLDER, SAME_UNICODE, native

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS

ALPHABET = bpe_tokenizer._ALPHABET

Learned = tuple[list[tuple[bytes, bytes]], list[bytes], str]


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they compare both engines by themselves."""


# -- Counting --------------------------------------------------------------------


def count_by_regex(name: str, texts: list[str]) -> dict[bytes, int]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(regex.findall(SPLIT_PATTERNS[name], text))
    return {pretoken.encode(): count for pretoken, count in counts.items()}


def random_texts(chance: random.Random, n: int, size: int) -> list[str]:
    return ["".join(chance.choices(ATOMS, k=chance.randrange(size))) for _ in range(n)]


@EVERY_PATTERN
@BOTH_WAYS
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_counts_as_regex_splits(name: str, portable: bool, threads: int) -> None:
    texts = ["", "\0", "\0\0\0", "a\0", "a"]
    texts += random_texts(random.Random(threads), 200, 100)
    texts += random_texts(random.Random(threads), 5, 60_000)  # for threads to share
    counter = native.PretokenCounter(name, portable=portable)
    counter.count(texts, threads)
    expected = count_by_regex(name, texts)
    assert counter.to_dict() == expected
    assert len(counter) == len(expected)


@SAME_UNICODE
@EVERY_PATTERN
@given(texts=st.lists(st.text() | st.lists(st.sampled_from(ATOMS)).map("".join)))
def test_counts_any_texts(name: str, texts: list[str]) -> None:
    counter = native.PretokenCounter(name)
    counter.count(texts)
    assert counter.to_dict() == count_by_regex(name, texts)


@EVERY_PATTERN
@pytest.mark.parametrize("corpus", ["english", "code", "multi"])
def test_counts_real_text(name: str, corpus: str, corpora_dir: Path) -> None:
    text = read_corpus(corpus)[:600_000]
    texts = [text[at : at + 7_000] for at in range(0, len(text), 7_000)]
    counter = native.PretokenCounter(name)
    counter.count(texts[:40], 2)
    counter.count(texts[40:], 4)
    assert counter.take() == count_by_regex(name, texts)


@pytest.mark.parametrize("char", ["a", "é", "中", "😀", " ", "\0", "\n"])
@pytest.mark.parametrize("size", [1, 14, 15, 16, 17, 1_000_000])
def test_counts_long_pretokens(char: str, size: int) -> None:
    texts = [char * size, char * size + "x", char * size]
    counter = native.PretokenCounter("cl100k")
    counter.count(texts, 2)
    assert counter.to_dict() == count_by_regex("cl100k", texts)


def test_many_different_pretokens() -> None:
    chance = random.Random(1)
    words = [
        " " + "".join(chance.choices("abcdefghij", k=chance.randrange(1, 24)))
        for _ in "x" * 300_000
    ]
    counter = native.PretokenCounter("gpt2")
    texts = ["".join(words[at : at + 10_000]) for at in range(0, len(words), 10_000)]
    counter.count(texts, 3)
    counter.count(texts[:3], 1)
    expected = Counter(word.encode() for word in words + words[:30_000])
    assert counter.to_dict() == expected
    assert len(counter) == len(expected)


def test_counts_add_up_until_they_are_taken() -> None:
    counter = native.PretokenCounter("gpt2")
    assert counter.to_dict() == counter.take() == {}
    assert len(counter) == 0
    long = " " + "x" * 50
    counter.count(["to be" + long])
    counter.count(["or not to be" + long])
    both = {b"to": 1, b" be": 2, b"or": 1, b" not": 1, b" to": 1, long.encode(): 2}
    assert counter.to_dict() == counter.to_dict() == both
    assert counter.take() == both
    assert counter.take() == {}
    counter.count(["to be" + long])
    assert counter.to_dict() == {b"to": 1, b" be": 1, long.encode(): 1}


def test_counts_what_is_cut_already() -> None:
    pretokens = ["a", "", "é" * 30, "中", "a", "\0", "a\0", "😀" * 3, "é" * 30, "x" * 15, "x" * 16]
    for counter in (native.PretokenCounter(), native.PretokenCounter("gpt2")):
        counter.count_pretokens(pretokens)
        counter.count_pretokens(pretokens * 10_000, 2)
        times = Counter(pretoken.encode() for pretoken in pretokens if pretoken)
        assert counter.to_dict() == {pretoken: 10_001 * n for pretoken, n in times.items()}
    with pytest.raises(TypeError, match="count_pretokens"):
        native.PretokenCounter().count(["a"])


def test_strings_of_a_subclass_are_counted() -> None:
    class Text(str):
        pass

    counter = native.PretokenCounter("gpt2")
    counter.count([Text("é a")])
    assert counter.to_dict() == {"é".encode(): 1, b" a": 1}


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "é\ud800", "😀\udc00b"])
@pytest.mark.parametrize("threads", [1, 3])
def test_surrogates_are_refused_as_python_refuses_them(text: str, threads: int) -> None:
    with pytest.raises(UnicodeEncodeError) as expected:
        text.encode()
    counter = native.PretokenCounter("gpt2")
    for call in (counter.count, counter.count_pretokens):
        with pytest.raises(UnicodeEncodeError) as error:
            call(["ok"] * 1_000 + [text] + ["x" * 100_000] * 3, threads)
        assert error.value.args == expected.value.args
    counter.take()
    counter.count(["ok"])
    assert counter.to_dict() == {b"ok": 1}


def test_wrong_arguments_of_a_counter() -> None:
    counter = native.PretokenCounter("gpt2")
    for wrong in ("text", ("a",), None, 5):
        with pytest.raises(TypeError):
            counter.count(wrong)
    for wrong in (None, b"text", 5):
        with pytest.raises(TypeError, match="must be a str"):
            counter.count(["a", wrong])
    for threads in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            counter.count(["a"], threads)
    counter.count(["a"], 10_000)
    assert counter.to_dict() == {b"a": 1}
    with pytest.raises(ValueError, match="no scanner"):
        native.PretokenCounter("latin")


def run_threads(work: Callable[[int], None], n: int) -> None:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_share_a_counter() -> None:
    texts = random_texts(random.Random(5), 60, 3_000)
    counter = native.PretokenCounter("o200k")
    sizes = []

    def work(index: int) -> None:
        for _ in range(10):
            counter.count(texts, 1 + index % 3)
            sizes.append((len(counter), len(counter.to_dict())))

    run_threads(work, 8)
    expected = count_by_regex("o200k", texts)
    assert counter.to_dict() == {pretoken: 80 * count for pretoken, count in expected.items()}
    assert set(sizes) == {(len(expected), len(expected))}


def test_a_list_that_changes_while_it_is_counted() -> None:
    text = "a b é 中 " * 20_000
    for _ in range(20):
        counter = native.PretokenCounter("gpt2")
        texts = [text[:-1] for _ in range(20)]
        thread = threading.Thread(target=counter.count, args=(texts, 2))
        thread.start()
        texts.clear()
        thread.join()
        assert len(counter) <= 8


# -- Learning --------------------------------------------------------------------


def learn_in_python(
    counts: dict[bytes, int],
    n_tokens: int,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    forbidden: frozenset[bytes] = frozenset(),
) -> Learned:
    learner = bpe_tokenizer._MergeLearner(counts, max_token_length)
    return tuple(learner.learn(n_tokens, min_frequency, forbidden, lambda n: None))


def learn(
    counts: dict[bytes, int],
    n_tokens: int,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    forbidden: frozenset[bytes] = frozenset(),
    advance: Callable[[int], Any] | None = None,
) -> Learned:
    given: Learned = native.learn_merges(
        counts, ALPHABET, n_tokens, min_frequency, max_token_length, forbidden, advance
    )
    return given


def check_equal(counts: dict[bytes, int], *options: Any) -> None:
    progress: list[int] = []
    merges, tokens, stopped = learn(counts, *options, advance=progress.append)
    assert (merges, tokens, stopped) == learn_in_python(counts, *options)
    assert sum(progress) == len(tokens)
    # What the accelerator relies on: see learn.c.
    assert [left + right for left, right in merges] == tokens
    assert len(set(tokens)) == len(tokens)


# Few letters, so that ties, runs and equal strings abound.
words = st.text("ab", max_size=12) | st.text("abc", max_size=9) | st.text("aé\n ", max_size=7)
counts = st.dictionaries(words.map(str.encode) | st.binary(max_size=5), st.integers(-1, 6))
limits = st.none() | st.integers(-1, 9)
forbidden = st.frozensets(words.map(str.encode), max_size=3)


@settings(max_examples=examples(500))
@given(counts, st.integers(0, 60), st.integers(0, 3), limits, forbidden)
@example({b"aaaa": 1, b"ababab": 1}, 20, 1, None, frozenset())
@example({b"aa": 1, b"ab": 3}, 20, 2, None, frozenset([b"aa", b"ab"]))
@example({b"aaaaaaa": 2}, 20, 0, 4, frozenset())
def test_learns_as_python_does(
    counts: dict[bytes, int],
    n_tokens: int,
    min_frequency: int,
    limit: int | None,
    forbidden: frozenset[bytes],
) -> None:
    check_equal(counts, n_tokens, min_frequency, limit, forbidden)


@pytest.mark.parametrize("letters", ["a", "ab", "abc", "abcdefgh", "aeiou st\0"])
@pytest.mark.parametrize("size", [20, 300, 3_000])
def test_learns_from_random_words(letters: str, size: int) -> None:
    chance = random.Random(size)
    counts = {
        "".join(chance.choices(letters, k=chance.randrange(1, 30))).encode(): chance.choice(
            [1, 2, 9]
        )
        for _ in range(size)
    }
    for min_frequency in (0, 2, 5):
        check_equal(counts, 2_000, min_frequency)
        check_equal(counts, 50, min_frequency, chance.choice([3, 4, 6]))


@pytest.mark.parametrize("corpus", ["english", "code", "multi"])
def test_learns_from_real_text(corpus: str, corpora_dir: Path) -> None:
    counter = native.PretokenCounter("cl100k")
    counter.count([read_corpus(corpus)[:500_000]])
    counts = counter.take()
    check_equal(counts, 3_000, 2)
    check_equal(counts, 100_000, 2, None, frozenset([b" the", b"in"]))


# So long that places in them are kept, and not only which words they are.
long_words = st.tuples(words, st.integers(1, 60), words).map(
    lambda parts: (parts[0] * parts[1] + parts[2]).encode()
)


@settings(max_examples=examples(200))
@given(
    st.dictionaries(long_words, st.integers(-1, 4), max_size=12),
    st.integers(0, 60),
    st.integers(0, 3),
    limits,
    forbidden,
)
def test_learns_from_long_words(
    counts: dict[bytes, int],
    n_tokens: int,
    min_frequency: int,
    limit: int | None,
    forbidden: frozenset[bytes],
) -> None:
    check_equal(counts, n_tokens, min_frequency, limit, forbidden)


@pytest.mark.parametrize("length", [126, 127, 128, 129, 130, 20_000])
def test_learns_from_random_long_words(length: int) -> None:
    chance = random.Random(length)
    words = {bytes(chance.choices(b"abcd", k=length)): n for n in range(5)}
    check_equal({**words, b"a" * length: 2, b"ab" * length: 1}, 500, 2)
    check_equal(words, 10_000, 1)


def test_learns_from_counts_of_any_size() -> None:
    """Sums of counts beyond 32 bits, and beyond what a double can tell apart."""
    counts = {b"abc": 2**31 - 1, b"abd": 2**31 + 5, b"xyz": 2**32 + 3, b"xyw": 1}
    check_equal(counts, 20)
    counts = {b"abab": 2**53 + 1, b"cd": 2**54 + 2, b"cdcd": 1, b"ef": 2**54 + 3}
    check_equal(counts, 20)
    check_equal({b"ab": 2**60, b"cd": 2**60 - 1}, 5, 2**60)
    check_equal({b"ab": 3, b"b": 2**90, b"": 2**90, b"cd": -(2**90)}, 5)
    check_equal({b"ab": 3, b"bc": 2}, 5, 2**90)
    check_equal({b"ab": 3, b"bc": 2}, 5, -(2**90), 2**90)


def test_counts_that_are_too_large_are_refused() -> None:
    for counts in ({b"ab": 2**200}, {b"ab": 2**61 + 1}, {b"ab": 2**60 + 1, b"cd": 2**60}):
        with pytest.raises(OverflowError):
            learn(counts, 1)
        assert learn_in_python(counts, 1)[0] == [(b"a", b"b")]
    with pytest.raises(OverflowError):
        learn({b"ab": 1}, 2**40)


def test_subclasses_of_dict_and_int() -> None:
    counts = bpe_tokenizer.PretokenCounts({b"abc": True, b"bc": 2})
    assert learn(counts, 5) == learn_in_python(counts, 5)


def test_wrong_arguments_of_learning() -> None:
    right = [{b"ab": 1}, ALPHABET, 5, 1, None, frozenset(), None]
    native.learn_merges(*right)
    wrong: dict[int, list[Any]] = {
        0: [[(b"ab", 1)], {"ab": 1}, {b"ab": 1.0}, {b"ab": "1"}, None],
        2: ["5", None, 5.0],
        3: ["1", None],
        4: ["1", b"1"],
        5: [{b"a"}, ["a"], frozenset(["a"])],
        6: ["no function"],
    }
    for place, values in wrong.items():
        for value in values:
            with pytest.raises(TypeError):
                native.learn_merges(*right[:place], value, *right[place + 1 :])
    for alphabet in (ALPHABET[:-1], ALPHABET[:-1] + ALPHABET[:1], "a" * 256, None):
        with pytest.raises(ValueError, match="alphabet"):
            native.learn_merges(right[0], alphabet, *right[2:])


def test_any_alphabet_decides_ties() -> None:
    assert native.learn_merges({b"ab": 1, b"cd": 1}, ALPHABET, 1, 1, None, frozenset(), None)[
        1
    ] == [b"ab"]
    backwards = bytes(range(255, -1, -1))
    assert native.learn_merges({b"ab": 1, b"cd": 1}, backwards, 1, 1, None, frozenset(), None)[
        1
    ] == [b"cd"]


def test_what_advance_raises_ends_learning() -> None:
    class Enough(Exception):
        pass

    def advance(n: int) -> None:
        raise Enough

    counts = {b"abcdef": 5, b"abc": 2}
    for _ in range(100):
        with pytest.raises(Enough):
            learn(counts, 5, advance=advance)
    assert learn(counts, 5) == learn_in_python(counts, 5)


def test_counts_may_change_while_advance_is_told() -> None:
    counts = {bytes([97 + a, 97 + b, c]): 1 for a in range(9) for b in range(9) for c in b"abc"}
    expected = learn_in_python(counts, 1_000)
    assert learn(counts, 1_000, advance=lambda n: counts.clear()) == expected
    assert counts == {}


def test_learning_can_be_interrupted() -> None:
    # In a process of its own: a signal that comes too late must not end the tests.
    script = """if True:
        import random, signal, sys
        sys.path[:0] = sys.argv[1:]
        from _bpe_tokenizer import native
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        chance = random.Random(1)
        words = {bytes(chance.choices(b"abcdefgh", k=12)): 1 for _ in range(200_000)}
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            native.learn_merges(words, bytes(range(256)), 50_000, 1, None, frozenset(), None)
        except KeyboardInterrupt:
            print("interrupted")
    """
    if sys.platform == "win32":
        pytest.skip("no timer signals there")
    folders = [str(FOLDER), str(Path(bpe_tokenizer.__file__).parent)]
    run = subprocess.run(
        [sys.executable, "-c", script, *folders], capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.stderr) == ("interrupted\n", "")


# -- Memory ----------------------------------------------------------------------


def test_nothing_leaks_while_training() -> None:
    text = "abab é中😀 " * 20 + "x" * 40
    counts = {b"abab": 2, b"abc": 1}

    def fail(n: int) -> None:
        raise KeyError(n)

    def everything() -> None:
        counter = native.PretokenCounter("gpt2")
        counter.count([text, text], 2)
        counter.count_pretokens([text, ""])
        for wrong in ("\ud800", 5):
            with contextlib.suppress(TypeError, UnicodeEncodeError):
                counter.count([text, wrong])
        len(counter)
        counter.to_dict()
        counter.take()
        counter.count([text])
        learn(counts, 5, advance=abs)
        for arguments in ((counts, 5, 1, None, frozenset(["a"])), ({b"ab": 2**70}, 5)):
            with contextlib.suppress(TypeError, OverflowError):
                learn(*arguments)
        with contextlib.suppress(KeyError):
            learn(counts, 5, advance=fail)

    everything()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        references = sys.getrefcount(text)
        for _ in range(500):
            everything()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 10_000
        assert sys.getrefcount(text) == references
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="it keeps what is freed")
def test_memory_of_tables_is_given_back() -> None:
    words = {bytes(random.Random(i).choices(b"abcdefgh", k=12)): 1 for i in range(20_000)}
    texts = [word.decode() for word in words]

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def everything() -> None:
        counter = native.PretokenCounter()
        counter.count_pretokens(texts)
        counter.take()
        counter.count_pretokens(texts)
        learn(words, 300)

    for _ in range(5):
        everything()
    before = resident()
    for _ in range(30):
        everything()
    assert resident() - before < 10_000_000  # one round takes more


def test_text_of_the_module_by_itself() -> None:
    """From text to merges, as `train` goes about it."""
    text = (ROOT / "bpe_tokenizer.py").read_text(encoding="utf-8")
    counter = native.PretokenCounter("gpt2")
    counter.count([text])
    tokenizer = bpe_tokenizer.BPETokenizer(normalizer=None)
    tokenizer.train(text, 2_000, verbose=False, num_workers=1)
    assert learn(counter.take(), 2_000 - 256, 2)[0] == tokenizer.merges
