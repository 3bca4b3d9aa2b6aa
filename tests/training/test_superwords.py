"""Superwords: the two stages, against a naive trainer, and in HuggingFace tokenizers."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import reference
from conftest import run_command
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, find_all, need, spans

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools.patterns.digits import digits_from_the_right
from bpe_tokenizer_tools.training import superwords
from bpe_tokenizer_tools.training.superwords import SUPERBPE_PATTERN, Superwords

Pair = tuple[bytes, bytes]
WORDS = [
    "by the way",
    ", ",
    "the cat",
    " sat",
    " on",
    " the",
    " mat",
    ". ",
    "12345",
    ": ",
    "\n",
    "  ",
]
prose = st.lists(st.sampled_from(WORDS), min_size=5, max_size=60).map("".join)
MANNERS = (
    "In a way, by the way, it is what it is: the way it is. 1999 was the year, 2001 was not.\n"
)


# -- A naive trainer --------------------------------------------------------------


ONE_WORD = r" ?\p{L}+([’']\p{L}+)?"


def cut(pattern: str, text: str) -> list[str]:
    """Cut a text where a pattern matches; what is between matches is a piece, too."""
    ends = {at for span in spans(pattern, text) for at in span}
    borders = sorted({0, len(text), *ends})
    return [text[a:b] for a, b in zip(borders, borders[1:])]


def refused(token: bytes, max_words: int | None) -> bool:
    words = [word for word in token.split(b" ") if word]
    return b": " in token or (max_words is not None and len(words) > max_words)


def learn_on(
    words: list[list[bytes]], known: list[bytes], n: int, least: int, max_words: int | None
) -> list[tuple[Pair, int]]:
    """Go on merging from words of tokens, counting all pairs again each time."""
    age = {bytes([b]): reference.byte_order(b) for b in range(256)}
    age |= {token: 1000 + i for i, token in enumerate(known)}
    merges: list[tuple[Pair, int]] = []
    while len(merges) < n:
        counts = reference.count_pairs((word, 1) for word in words)
        allowed = {p: c for p, c in counts.items() if not refused(b"".join(p), max_words)}
        pair = min(allowed, key=lambda p: (-allowed[p], age[p[0]], age[p[1]]), default=None)
        if pair is None or allowed[pair] < least:
            break
        age[b"".join(pair)] = 1000 + len(age)
        merges.append((pair, allowed[pair]))
        words = [reference.join(word, pair) for word in words]
    return merges


def naive(
    texts: list[str], n_words: int, n_supers: int, least: int, how: Superwords, split_pattern: str
) -> tuple[list[Pair], list[tuple[Pair, int]]]:
    """Train both stages with the whole text in memory; return the merges of each."""
    pretokens = Counter(p.encode() for text in texts for p in cut(split_pattern, text))
    first = reference.train(pretokens, n_words, least)
    sequences: list[list[bytes]] = []
    for text in texts:
        for piece in cut(how.final_pattern(split_pattern), text):
            whole = how.rule == "superbpe"
            parts = [piece] if whole else cut(split_pattern, piece)
            sequences.append([])
            for part in parts:
                tokens = [bytes([byte]) for byte in part.encode()]
                for pair in first:
                    tokens = reference.join(tokens, pair)
                if whole or (len(tokens) == 1 and find_all(ONE_WORD, part) == [part]):
                    sequences[-1] += tokens
                else:
                    sequences.append([])
    known = [b"".join(pair) for pair in first]
    return first, learn_on(sequences, known, n_supers, least, how.max_words)


def trained(texts: Iterable[str], size: int, how: Any, pattern: str = "gpt2", **more: Any) -> Any:
    tokenizer = BPETokenizer(pattern, normalizer=None)
    return tokenizer.train(list(texts), size, superwords=how, verbose=False, **more)


@settings(max_examples=examples(60))
@given(
    st.lists((prose | hard_text).map("{}\n".format), min_size=1, max_size=4),
    st.integers(0, 25),
    st.integers(1, 3),
    st.sampled_from([None, 2, 4]),
    st.sampled_from(["superbpe", "boundless"]),
)
def test_naive_trainer(
    texts: list[str], n_words: int, least: int, max_words: int | None, rule: str
) -> None:
    how = Superwords(256 + n_words, rule, max_words=max_words)
    first, then = naive(texts, n_words, 15, least, how, SPLIT_PATTERNS["gpt2"])
    size = 256 + len(first) + 15
    got = trained(texts, max(size, 256 + n_words), how, min_frequency=least)
    expected = first + [pair for pair, _ in then]
    assert got.merges[: len(expected)] == expected
    assert len(got.merges) == len(expected) or len(first) < n_words


@settings(max_examples=examples(30))
@given(st.lists(prose, min_size=2, max_size=5), st.integers(1, 40))
def test_automatic_transition(texts: list[str], room: int) -> None:
    """The merges are the most frequent ones of both stages."""
    how = Superwords("auto", "boundless")
    first, then = naive(texts, room, room, 2, how, SPLIT_PATTERNS["gpt2"])
    alone = [len(reference.train(_counts(texts), room, n)) for _, n in then]
    n = sum(i + words < room for i, words in enumerate(alone))
    expected = first[: room - n] + [pair for pair, _ in then[:n]]
    assert trained(texts, 256 + room, how).merges == expected


def _counts(texts: list[str]) -> Counter[bytes]:
    return Counter(p.encode() for text in texts for p in cut(SPLIT_PATTERNS["gpt2"], text))


def test_counting_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pairs are forgotten while counting, the merges are the same."""
    texts = [MANNERS * 3, WORDS[0] * 20 + "".join(WORDS) * 10, "the cat sat on the mat " * 9]
    expected = trained(texts, 320, 280).merges
    for most in (1, 5, 20, 50):
        monkeypatch.setattr(superwords, "_MOST_PAIRS", most)
        assert trained(texts, 320, 280).merges == expected


# -- In files ---------------------------------------------------------------------


@pytest.mark.parametrize("how", [280, Superwords(280, "boundless"), Superwords(270, pattern="\\n")])
@pytest.mark.parametrize("pattern", ["gpt2", "llama3", "o200k"])
def test_huggingface_gives_the_same_ids(tmp_path: Path, how: Any, pattern: str) -> None:
    texts = [MANNERS * 3, "by the way, the cat sat on the mat. " * 8]
    tokenizer = trained(texts, 330, how, pattern, special_tokens=["<|endoftext|>"])
    assert any(b" " in (left + right)[1:] for left, right in tokenizer.merges)
    tokenizer.save(tmp_path, verbose=False)
    theirs = need("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    again = BPETokenizer.from_pretrained(tmp_path, verbose=False)

    @settings(max_examples=examples(60))
    @given(prose | hard_text)
    def check(text: str) -> None:
        ids = tokenizer.encode(text)
        assert ids == theirs.encode(text, add_special_tokens=False).ids == again.encode(text)
        assert tokenizer.decode(ids) == text
        assert [i for part in tokenizer.encode_streaming(iter(text)) for i in part] == ids

    check()


def test_one_pattern_in_the_file(tmp_path: Path) -> None:
    trained([MANNERS * 3], 320, 280).save(tmp_path, verbose=False)
    steps = json.loads((tmp_path / "tokenizer.json").read_text())["pre_tokenizer"]["pretokenizers"]
    assert [step["type"] for step in steps] == ["Split", "ByteLevel"]
    assert steps[0]["pattern"]["Regex"] == SUPERBPE_PATTERN


def test_rules() -> None:
    text = "one two three four five six: one two three four five six: " * 9
    for most in (1, 2, 3):
        merges = trained([text], 400, Superwords(280, max_words=most)).merges
        assert max(len((a + b).split()) for a, b in merges) == most
    tokens = [a + b for a, b in trained([text], 400, 280).merges]
    assert max(len(token.split()) for token in tokens) <= 4
    assert not any(b": " in token for token in tokens)
    free = trained([text], 400, Superwords(280, max_words=None, never=()))
    tokens = [a + b for a, b in free.merges]
    assert max(len(token.split()) for token in tokens) > 4
    assert any(b": " in token for token in tokens)
    longest = trained([text], 400, 280, max_token_length=9).merges
    assert max(len(a + b) for a, b in longest) == 8


def test_what_the_report_says(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(MANNERS * 9)
    tokenizer = BPETokenizer().train(
        path, 300, superwords={"transition": 290}, special_tokens=["<|endoftext|>"], verbose=False
    )
    report = tokenizer.training_report
    assert report is not None
    assert (report.documents, report.merges, report.vocab_size) == (1, 43, 300)
    assert report.bytes_read == path.stat().st_size
    assert tokenizer.special_tokens == {"<|endoftext|>": 299}
    few = BPETokenizer().train("ab " * 9, 400, superwords=300, verbose=False).training_report
    assert few is not None
    assert few.stopped == "nothing left above min_frequency"


# -- Errors -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("many", "superwords must be Superwords(...), a mapping"),
        (True, "superwords must be Superwords(...), a mapping"),
        ({"rule": "superbpe"}, "superwords takes transition, rule"),
        ({"transition": 280, "never": ["a\ud800"]}, "lone surrogate"),
        ({"transition": 280, "pattern": "gpt2"}, "pattern is that of stage one; superwords need"),
        ({"transition": 280, "words": 3}, "superwords takes transition, rule"),
        (255, "transition must be at least 256, got 255"),
        (301, "transition must be at most vocab_size, which is 300, got 301"),
        ({"transition": None}, "transition must be an int, got None"),
        ({"transition": "auto"}, 'transition="auto" works only with rule="boundless"'),
        (Superwords(280, "super"), "rule must be one of superbpe, boundless, got 'super'"),
        (Superwords(280, max_words=0), "max_words must be at least 1, got 0"),
        (Superwords(280, never=": "), "never must be a list of strings"),  # type: ignore[arg-type]
        (Superwords(280, pattern="(a"), "is not a regular expression"),
    ],
)
def test_bad_options(how: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(problem)):
        BPETokenizer().train("a b c " * 9, 300, superwords=how, verbose=False)


def test_bad_combinations() -> None:
    def refuse(problem: str, corpus: Any = "a b " * 9, **more: Any) -> None:
        with pytest.raises((TypeError, ValueError), match=re.escape(problem)):
            BPETokenizer().train(corpus, 300, superwords=280, verbose=False, **more)

    refuse("superwords can't be combined with ties", ties="first")
    refuse("superwords can't be combined with style", style="sentencepiece")
    refuse("superwords can't be combined with parity", parity={"a": "a"})
    refuse("these counts don't say which pre-tokens are neighbors", None, counts={b"ab": 3})
    refuse("train() takes a corpus or counts", None)
    refuse("train() takes a corpus or counts", counts={b"ab": 3})
    refuse("a corpus contains strings or paths, got an item of type int", iter(["a b", 5]))
    refuse("lone surrogate", iter(["a b", "\ud800"]))
    refuse("the corpus is empty", "")


@pytest.mark.parametrize("rule", ["superbpe", "boundless"])
def test_not_twice(rule: str) -> None:
    tokenizer = trained([MANNERS * 3], 300, Superwords(280, rule))
    with pytest.raises(ValueError, match="split pattern is that of stage two"):
        tokenizer.train([MANNERS * 3], 300, superwords=Superwords(280, rule), verbose=False)


def test_cut_down() -> None:
    """A smaller vocabulary, as `sweep` makes it, has the first merges."""
    tokenizer = trained([MANNERS * 3], 320, 280)
    smaller = tokenizer.with_vocab_size(300)
    assert smaller.merges == tokenizer.merges[:44] == trained([MANNERS * 3], 300, 280).merges
    assert smaller.split_pattern == SUPERBPE_PATTERN


# -- The command ------------------------------------------------------------------


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(MANNERS * 9, encoding="utf-8")
    command = ["train", "--corpus", tmp_path / "text.txt", "--vocab-size", 300, "--quiet"]
    for written, meant in (("280", 280), ("auto", Superwords("auto", "boundless"))):
        options = ["--output", tmp_path / written, "--superwords", written]
        assert run_command(capsys, *command, *options) == (0, "", "")
        made = BPETokenizer.from_pretrained(tmp_path / written, verbose=False)
        expected = BPETokenizer().train(tmp_path / "text.txt", 300, superwords=meant, verbose=False)
        assert made.merges == expected.merges
        assert made.split_pattern == expected.split_pattern


BOUNDLESS = {"transition": 280, "rule": "boundless"}
LLAMA3 = {"pattern": SPLIT_PATTERNS["llama3"]}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("280 --superword-rule boundless", BOUNDLESS),
        ("280 --superword-max-words none --superword-never", {"max_words": None, "never": ()}),
        ("280 --superword-max-words 2 --superword-never way is", {"never": ["way", "is"]}),
        ("280 --superword-pattern llama3", {"max_words": 4, **LLAMA3}),
        ("auto --superword-rule boundless --superword-max-words 3", {"transition": "auto"}),
        ("280 --digits right --superword-rule boundless", BOUNDLESS),
        ("280 --digits right --superword-pattern llama3", LLAMA3),
    ],
)
def test_each_field_by_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, written: str, meant: dict[str, Any]
) -> None:
    """The commands take what `Superwords` takes, and counts for it."""
    (tmp_path / "text.txt").write_text(MANNERS * 9, encoding="utf-8")
    size, options = ["--vocab-size", 300, "--quiet"], ["--superwords", *written.split()]
    command = ["train", "--corpus", tmp_path / "text.txt", *size, *options]
    assert run_command(capsys, *command, "--output", tmp_path / "out") == (0, "", "")
    made = BPETokenizer.from_pretrained(tmp_path / "out", verbose=False)
    pattern = SPLIT_PATTERNS["gpt2"]
    how: dict[str, Any] = {"transition": 280, **meant}
    if "auto" in written:
        how |= {"rule": "boundless", "max_words": 3}
    if "max-words 2" in written:
        how["max_words"] = 2
    if "digits" in written:
        pattern = digits_from_the_right(pattern)
        if "pattern" in how:
            how["pattern"] = digits_from_the_right(how["pattern"])
    expected = BPETokenizer(pattern).train(
        tmp_path / "text.txt", 300, superwords=how, verbose=False
    )
    assert made.merges == expected.merges
    assert made.split_pattern == expected.split_pattern
    if "digits" not in written:
        counts = tmp_path / "counts"
        command = ["count", tmp_path / "text.txt", "-o", counts, "--num-workers", 1]
        assert run_command(capsys, *command, *size, *options) == (0, "", "")
        command = ["train", "--counts", counts, *size, *options]
        assert run_command(capsys, *command, "-o", tmp_path / "again") == (0, "", "")
        again = BPETokenizer.from_pretrained(tmp_path / "again", verbose=False)
        assert again.merges == expected.merges


@pytest.mark.parametrize(
    ("options", "status", "problem"),
    [
        (["--superword-rule", "boundless"], 2, "--superword-rule goes with --superwords"),
        (["--superword-max-words", "2"], 2, "--superword-max-words goes with --superwords"),
        (["--superwords", 280, "--superword-max-words", "x"], 2, "expected a number such as"),
        (["--superwords", 280, "--superword-max-words", 0], 1, "max_words must be at least 1"),
        (["--superwords", 280, "--superword-rule", "x"], 2, "invalid choice: 'x'"),
        (
            ["--superwords", "auto", "--superword-rule", "superbpe"],
            1,
            'transition="auto" works only with rule="boundless"',
        ),
        (
            ["--superwords", "many"],
            2,
            "argument --superwords: expected a vocabulary size or 'auto', got 'many'",
        ),
        (["--superwords", "900"], 1, "transition must be at most vocab_size, which is 300"),
        (["--superwords", "280", "--ties", "first"], 1, "superwords can't be combined with ties"),
    ],
)
def test_command_refuses(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    options: list[str],
    status: int,
    problem: str,
) -> None:
    (tmp_path / "text.txt").write_text(MANNERS, encoding="utf-8")
    command = ["train", "--corpus", tmp_path / "text.txt", "--vocab-size", 300]
    got, _, err = run_command(capsys, *command, "--output", tmp_path / "out", *options)
    assert (got, problem in err) == (status, True)
    assert not (tmp_path / "out").exists()


def test_command_reads_standard_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = MANNERS * 9 + "\r\nél\u0301an\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"))
    command = ["train", "--corpus", "-", "--vocab-size", 300, "--output", tmp_path / "out"]
    assert run_command(capsys, *command, "--superwords", 280, "--quiet") == (0, "", "")
    made = BPETokenizer.from_pretrained(tmp_path / "out", verbose=False)
    (tmp_path / "text.txt").write_bytes(text.encode())
    expected = BPETokenizer().train(tmp_path / "text.txt", 300, superwords=280, verbose=False)
    assert made.merges == expected.merges


@settings(max_examples=examples(30))
@given(st.lists(prose | hard_text, min_size=1, max_size=5), st.sampled_from([280, "auto"]))
def test_what_can_be_read_once(texts: list[str], transition: Any) -> None:
    """A generator gives the merges that a list gives."""
    texts = [*texts, MANNERS * 2]
    how = Superwords(transition, "boundless" if transition == "auto" else "superbpe")
    expected = trained(texts, 320, how)
    once = BPETokenizer(normalizer=None).train(iter(texts), 320, superwords=how, verbose=False)
    assert once.merges == expected.merges
    assert once.training_report.documents == len(texts)  # type: ignore[union-attr]


def test_paths_that_can_be_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(MANNERS * 5, encoding="utf-8")
    paths = [tmp_path / "a.txt", MANNERS]
    once = BPETokenizer().train(iter(paths), 320, superwords=280, verbose=False)
    again = BPETokenizer().train([MANNERS * 5, MANNERS], 320, superwords=280, verbose=False)
    assert once.merges == again.merges


def test_long_documents_without_a_place_to_cut() -> None:
    """Text is held until it is long; then both sides of a cut are encoded alone."""
    texts = [MANNERS * 3_000, "by the way " * 20_000 + MANNERS, *[MANNERS * 30] * 9]
    joined = trained(["<s>".join(texts)], 330, 280, special_tokens=["<s>"])
    assert joined.merges == trained(texts, 330, 280, special_tokens=["<s>"]).merges
