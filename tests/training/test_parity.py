"""Parity between languages, against a naive trainer."""

from __future__ import annotations

import importlib
import json
import random
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import reference
from conftest import run_command
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, find_all, need

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, count_pretokens
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.training.parity import (
    Parity,
    ParityReport,
    _Words,
    _words,
    _WordsInC,
    gini,
)

WORDS = [
    "the",
    " cat",
    " und",
    " der",
    " Hund",
    " बिल्ली",
    "aaaa",
    " a",
    "aa",
    "ab",
    "ba",
    " und",
    ".",
]
LANGUAGES = ["en", "de", "hi"]
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map("".join)
texts = st.lists((words | hard_text).map("{}\n".format), min_size=2, max_size=3)

Words = list[list[bytes]]


# -- A naive trainer --------------------------------------------------------------


def split(text: str) -> Words:
    pretokens = find_all(SPLIT_PATTERNS["gpt2"], text)
    return [[bytes([byte]) for byte in pretoken.encode()] for pretoken in pretokens]


def naive(parity: Parity, room: int, least: int) -> list[reference.Pair]:
    """Choose the language that is worst off, and count all its pairs, before each merge."""
    corpora = {name: split(text) for name, text in parity.corpora.items()}
    held_out = {name: split(text) for name, text in (parity.held_out or {}).items()}
    initial = {name: sum(map(len, corpus)) for name, corpus in corpora.items()}
    age = {bytes([b]): reference.byte_order(b) for b in range(256)}
    merges: list[reference.Pair] = []
    chosen: list[str] = []

    def best(corpus: Words) -> reference.Pair | None:
        counts = reference.count_pairs((word, 1) for word in corpus)
        allowed = [pair for pair, count in counts.items() if count >= max(least, 1)]
        return min(allowed, key=lambda p: (-counts[p], age[p[0]], age[p[1]]), default=None)

    def worse_off(name: str) -> float:
        now = sum(map(len, (held_out or corpora)[name]))
        return now if held_out else -(initial[name] / now)

    def next_pair() -> reference.Pair | None:
        everything = [word for corpus in corpora.values() for word in corpus]
        if len(merges) < parity.global_merges and (pair := best(everything)):
            return pair
        left = [name for name in corpora if best(corpora[name])]
        recent = chosen[-parity.window :] if parity.window else []
        most = parity.alpha / len(corpora)
        fair = [n for n in left if recent.count(n) / (parity.window or 1) <= most] or left
        if not fair:
            return None
        chosen.append(max(fair, key=worse_off))
        return best(corpora[chosen[-1]])

    while len(merges) < room and (pair := next_pair()):
        merges.append(pair)
        age[b"".join(pair)] = 1000 + len(merges)
        for each in (corpora, held_out):
            for name, corpus in each.items():
                each[name] = [reference.join(word, pair) for word in corpus]
    return merges


@settings(max_examples=examples(100))
@given(
    texts,
    texts,
    st.integers(1, 30),
    st.integers(1, 3),
    st.sampled_from([0, 0, 1, 5, 30]),
    st.sampled_from([None, None, 1, 4, 10]),
    st.sampled_from([1.0, 1.5, 2.0]),
    st.booleans(),
)
def test_naive_trainer(
    corpora: list[str],
    others: list[str],
    room: int,
    least: int,
    global_merges: int,
    window: int | None,
    alpha: float,
    held_out: bool,
) -> None:
    texts = dict(zip(LANGUAGES, corpora))
    parallel = dict(zip(texts, [*others, others[0]])) if held_out else None
    parity = Parity(texts, parallel, global_merges, window, alpha)
    tokenizer = BPETokenizer(normalizer=None)
    tokenizer.train(vocab_size=256 + room, min_frequency=least, parity=parity, verbose=False)
    assert tokenizer.merges == naive(parity, room, least)
    report = tokenizer.training_report
    assert isinstance(report, ParityReport)
    for name, text in texts.items():
        language = report.languages[name]
        assert language.bytes == len(text.encode())
        assert language.tokens == tokenizer.count_tokens(text)
        assert language.fertility == language.tokens / len(split(text))
        if parallel:
            assert language.held_out_tokens == tokenizer.count_tokens(parallel[name])


long_words = st.lists(st.sampled_from("ab"), min_size=2, max_size=300).map("".join)
counts_of_words = st.dictionaries(
    (st.text("abcé", min_size=1, max_size=12) | long_words).map(str.encode), st.integers(0, 5)
)


@settings(max_examples=examples(200))
@given(
    st.lists(counts_of_words, min_size=1, max_size=3),
    st.randoms(use_true_random=False),
    st.sampled_from([None, 3, 6]),
)
def test_pairs_that_others_choose(
    counts: list[dict[bytes, int]], chance: random.Random, longest: int | None
) -> None:
    """Texts of both engines agree, whichever pairs are merged, in whatever order."""
    if not bpe_tokenizer.ACCELERATED:
        pytest.skip("of the extension")
    tokens = [bytes([byte]) for byte in core.ALPHABET]
    texts = [(_Words(each, longest, tokens), _words(each, longest, tokens)) for each in counts]
    assert all(isinstance(ours, _WordsInC) for _, ours in texts)
    for _ in range(30):
        found = []
        for python, ours in texts:
            assert ours.best() == python.best()
            found.append(python.best()[0])
        if chance.random() < 0.1:
            for each in chance.choice(texts):
                each.drop()
            continue
        pairs = sorted({pair for python, _ in texts for pair in python._where}) or [""]
        pair = chance.choice([chance.choice(found), chance.choice(pairs)])
        if not pair:
            continue
        tokens.append(tokens[ord(pair[0])] + tokens[ord(pair[1])])
        for python, ours in texts:
            merged = chr(len(tokens) - 1)
            assert ours.join(pair, merged) == python.join(pair, merged)


def test_tokens_are_counted_once() -> None:
    """A pair of equal tokens that had other counts before is not merged twice."""
    corpora = {"en": "bababa ababa", "de": "aaaab baaaaba"}
    tokenizer = BPETokenizer(normalizer=None)
    tokenizer.train(parity=corpora, vocab_size=275, min_frequency=1, verbose=False)
    assert tokenizer.merges == naive(Parity(corpora), 19, 1)
    report = tokenizer.training_report
    assert isinstance(report, ParityReport)
    for name, text in corpora.items():
        assert report.languages[name].tokens == tokenizer.count_tokens(text) == 2


def test_pair_learner_refuses() -> None:
    if not bpe_tokenizer.ACCELERATED:
        pytest.skip("of the extension")
    native: Any = importlib.import_module("_bpe_tokenizer.native")
    for wrong in (["a"], {"a": 1}, {b"ab": "1"}, None):
        with pytest.raises(TypeError):
            native.PairLearner(wrong, core.ALPHABET)
    with pytest.raises(ValueError, match="alphabet must be all 256 bytes"):
        native.PairLearner({b"ab": 1}, b"ab")
    with pytest.raises(OverflowError):
        native.PairLearner({b"ab": 2**70}, core.ALPHABET)
    learner = native.PairLearner({b"ab": 3}, core.ALPHABET)
    for pair in ((256, 0), (0, 2**31)):
        with pytest.raises(ValueError, match="left and right must be numbers of existing tokens"):
            learner.join(*pair)
    with pytest.raises(TypeError):
        learner.join("a", "b")
    left, right, count = learner.best()
    assert (core.ALPHABET[left], core.ALPHABET[right], count) == (*b"ab", 3)
    assert learner.join(right, left) == 0
    assert learner.join(left, right) == 3
    assert learner.best() is None
    learner.drop()
    huge = {"en": {b"ab": 2**70}, "de": {b"ab": 3}}  # for the engine in Python
    made = BPETokenizer().train(parity=huge, vocab_size=300, verbose=False)
    assert made.merges == [(b"a", b"b")]


def test_it_helps_the_smaller_language() -> None:
    texts = {"en": "the cat and the dog sat on the mat with the man. " * 90}
    texts["de"] = "die Katze und der Hund saßen auf der Matte mit dem Mann. " * 9
    plain = BPETokenizer().train(list(texts.values()), 300, verbose=False)
    fair = BPETokenizer().train(parity=texts, vocab_size=300, verbose=False)
    costs = [[t.count_tokens(x) / len(x.encode()) for x in texts.values()] for t in (plain, fair)]
    assert isinstance(fair.training_report, ParityReport)
    assert fair.training_report.gini == pytest.approx(gini(costs[1]))
    assert gini(costs[1]) < gini(costs[0]) / 2


def test_counts_and_corpora_alike(tmp_path: Path) -> None:
    texts = {"en": "the cat and the dog " * 9, "de": "die Katze und der Hund " * 5}
    options: dict[str, Any] = {"vocab_size": 280, "verbose": False}
    expected = BPETokenizer().train(parity=texts, **options)
    counts = {name: count_pretokens(text) for name, text in texts.items()}
    plain = {name: dict(count) for name, count in counts.items()}
    paths = {name: tmp_path / f"{name}.txt" for name in texts}
    for name, path in paths.items():
        path.write_text(texts[name], encoding="utf-8")
    for corpora in (counts, plain, paths):
        assert BPETokenizer().train(parity=corpora, **options).merges == expected.merges
    report = BPETokenizer().train(parity=paths, **options).training_report
    assert report is not None
    assert (report.documents, report.bytes_read) == (2, sum(map(len, texts.values())))


def test_special_tokens_and_file(tmp_path: Path) -> None:
    texts = {"en": "a cat<|endoftext|>a dog " * 9, "de": "Katze<|endoftext|>Hund " * 5}
    tokenizer = BPETokenizer()
    options: dict[str, Any] = {"vocab_size": 280, "special_tokens": ["<|endoftext|>", "at"]}
    tokenizer.train(parity=texts, verbose=False, **options)
    assert (b"a", b"t") not in tokenizer.merges
    assert not any(b"<" in left + right for left, right in tokenizer.merges)
    tokenizer.save(tmp_path, verbose=False)
    theirs = need("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("a dog and Katze, Hund", "cat"):
        assert theirs.encode(text, add_special_tokens=False).ids == tokenizer.encode(
            text, allowed_special="all"
        )


@settings(max_examples=examples(60), deadline=None)
@given(
    texts,
    st.lists(words | hard_text, min_size=1, max_size=8),
    st.sampled_from(sorted(SPLIT_PATTERNS)),
    st.integers(1, 60),
    st.sampled_from([0, 5]),
    st.sampled_from([None, 4]),
)
def test_huggingface_gives_the_same_ids(
    corpora: list[str],
    others: list[str],
    pattern: str,
    room: int,
    global_merges: int,
    window: int | None,
) -> None:
    """Whatever was learned, and whatever the text, of what was saved."""
    parity = Parity(dict(zip(LANGUAGES, corpora)), None, global_merges, window)
    tokenizer = BPETokenizer(pattern)
    options: dict[str, Any] = {"min_frequency": 1, "special_tokens": ["<|x|>"], "verbose": False}
    tokenizer.train(vocab_size=257 + room, parity=parity, **options)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder, verbose=False)
        theirs = need("tokenizers").Tokenizer.from_file(f"{folder}/tokenizer.json")
        loaded = BPETokenizer.from_pretrained(folder, verbose=False)
    for text in (*corpora, *others, "a<|x|>" + others[0]):
        expected = theirs.encode(text, add_special_tokens=False).ids
        for each in (tokenizer, loaded):
            assert each.encode(text, allowed_special="all") == expected


def test_gini() -> None:
    assert gini([5, 5, 5]) == 0
    assert gini([0, 0]) == 0
    values = [3.0, 1.0, 4.0, 1.0, 5.0]
    apart = sum(abs(a - b) for a in values for b in values)
    assert gini(values) == pytest.approx(apart / (2 * len(values) * sum(values)))


TWO: dict[Any, Any] = {"en": "a", "de": "b"}


@pytest.mark.parametrize(
    ("parity", "problem"),
    [
        ("en", "parity must be Parity(...) or a mapping"),
        ({"en": "a b"}, "parity needs two languages at least, got 1"),
        ({1: "a", 2: "b"}, "corpora must be a mapping from languages"),
        (Parity("ab"), "corpora must be a mapping from languages"),  # type: ignore[arg-type]
        ({"en": "a b", "de": ""}, "language 'de': the corpus is empty"),
        ({"en": "a b", "de": {b"a": 0}}, "language 'de': the corpus is empty"),
        ({"en": "a b", "de": {"a": 1}}, "language 'de': counts must map pre-tokens, as bytes"),
        ({"en": "a b", "de": {b"a": "1"}}, "language 'de': counts must map pre-tokens, as bytes"),
        ({"en": "a b", "de": 5}, "language 'de': corpus must be text, a path or an iterable"),
        ({"en": "a b", "de": ["a", "\ud800"]}, "language 'de': text contains the lone surrogate"),
        ({"en": "a b", "de": count_pretokens("a", "llama3")}, "language 'de': these counts were"),
        (Parity(TWO, {"en": "a"}), "language 'de' is in corpora, and not in held_out; name the"),
        (Parity(TWO, {**TWO, "el": "a"}), "language 'el' is in held_out, and not in corpora"),
        (Parity(TWO, {**TWO, 5: "a"}), "language 5 is in held_out, and not in corpora"),
        (Parity(TWO, {"en": "a", "de": ""}), "language 'de', held out: the text is empty: expec"),
        (Parity(TWO, {"en": "a", "de": {b"a": 0}}), "language 'de', held out: the text is empty"),
        (Parity({"en": "a", "de": "b"}, window=0), "window must be at least 1, got 0"),
        (Parity({"en": "a", "de": "b"}, global_merges=-1), "global_merges must be at least 0"),
        (Parity({"en": "a", "de": "b"}, alpha=0.5), "alpha must be 1 or more, got 0.5"),
    ],
)
def test_bad_options(parity: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(problem)):
        BPETokenizer().train(parity=parity, vocab_size=300, verbose=False)


def test_bad_combinations() -> None:
    parity = {"en": "a b", "de": "c d"}
    more: list[tuple[dict[str, Any], str]] = [
        ({"corpus": "a"}, "with parity, training uses only the languages' corpora"),
        ({"counts": {b"a": 1}}, "with parity, training uses only the languages' corpora"),
        ({"ties": "first"}, "parity can't be combined with ties"),
        ({"style": "sentencepiece"}, "parity can't be combined with style"),
        ({"vocab_size": 100}, "vocab_size must be at least 257"),
    ]
    for options, problem in more:
        with pytest.raises((TypeError, ValueError), match=re.escape(problem)):
            BPETokenizer().train(parity=parity, verbose=False, **options)


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    texts = {"en": "the cat and the dog " * 9, "de": "die Katze und der Hund " * 5}
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    named = [f"{name}={tmp_path / name}.txt" for name in texts]
    command = ["train", "--parity", *named, "--vocab-size", 280, "--output", tmp_path / "out"]
    status, out, _ = run_command(capsys, *command, "--json", "--quiet")
    report = json.loads(out)
    assert (status, list(report["languages"]), report["vocab_size"]) == (0, ["en", "de"], 280)
    made = BPETokenizer.from_pretrained(tmp_path / "out", verbose=False)
    expected = BPETokenizer().train(parity=texts, vocab_size=280, verbose=False)
    assert made.merges == expected.merges
    status, out, err = run_command(capsys, *command, "--force")
    assert (status, "Gini coefficient of tokens per byte" in out) == (0, True)
    assert (out + err).count("Saved") == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--parity", "en"], "--parity: expected LANGUAGE=FILE, got 'en'"),
        (["--parity", "en=a", "en=b"], "--parity names 'en' twice"),
        (["--parity", "en=a", "de=b", "--corpus", "c"], "--parity replaces --corpus"),
    ],
)
def test_command_refuses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], problem: str
) -> None:
    status, _, err = run_command(capsys, "train", "--output", tmp_path / "out", *options)
    assert (status, problem in err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_reports_add_up() -> None:
    texts = {"en": "the cat and the dog " * 9, "de": "die Katze und der Hund " * 5}
    tokenizer = BPETokenizer().train(parity=Parity(texts, global_merges=4), verbose=False)
    report = tokenizer.training_report
    assert isinstance(report, ParityReport)
    assert sum(each.merges for each in report.languages.values()) == report.merges - 4
    assert Counter(report.table().split())["en"] == 1
