"""Counts from which superwords are learned: the same merges as from the text."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import run_command
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples

from bpe_tokenizer import BPETokenizer, FileFormatError, PretokenCounts, count_pretokens
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.scale import CountJob, counting, merge_counts
from bpe_tokenizer_tools.scale import count_pretokens as count_files
from bpe_tokenizer_tools.training import superwords
from bpe_tokenizer_tools.training.superword_counts import SuperwordCounts
from bpe_tokenizer_tools.training.superwords import Superwords, count_superwords

WORDS = ["by the way", ", ", "the cat", " sat", " on", " the", " mat", ". ", "123", ": ", "\n"]
prose = st.lists(st.sampled_from(WORDS), min_size=5, max_size=60).map("".join)
MANNERS = "In a way, by the way, it is what it is: the way it is. 1999 was the year.\n"
AUTO = Superwords("auto", "boundless")


def trained(source: Any, size: int, how: Any, **more: Any) -> BPETokenizer:
    named = {"counts": source} if isinstance(source, PretokenCounts) else {"corpus": source}
    tokenizer = BPETokenizer(normalizer=None)
    return tokenizer.train(vocab_size=size, superwords=how, verbose=False, **named, **more)


def runs_of(counts: SuperwordCounts) -> list[tuple[list[int], int]]:
    return sorted((list(run), count) for run, count in counts.runs)


@settings(max_examples=examples(60))
@given(
    st.lists((prose | hard_text).map("{}\n".format), min_size=1, max_size=4),
    st.integers(0, 25),
    st.integers(0, 15),
    st.integers(0, 15),
    st.integers(1, 3),
    st.sampled_from(["superbpe", "boundless", "auto"]),
)
def test_what_the_text_gives(
    texts: list[str], n_words: int, smaller: int, n_supers: int, least: int, rule: str
) -> None:
    """Merges, and a smaller vocabulary's, are those of training on the text."""
    how = AUTO if rule == "auto" else Superwords(256 + n_words, rule)
    smaller = 0 if rule == "auto" else min(smaller, n_supers)
    size = 256 + n_words + n_supers
    how_made: dict[str, Any] = {"normalizer": None, "min_frequency": least, "num_workers": 1}
    counts = count_superwords(texts, how, size, **how_made)
    for wanted in {size, size - smaller}:
        expected = trained(texts, wanted, how, min_frequency=least)
        got = trained(counts, wanted, how, min_frequency=least)
        assert got.merges == expected.merges
        assert got.split_pattern == expected.split_pattern
    report = got.training_report
    assert report is not None and report.documents == len(texts)
    plain = BPETokenizer(normalizer=None).train(counts=counts, vocab_size=size, verbose=False)
    assert plain.merges == BPETokenizer(normalizer=None).train(texts, size, verbose=False).merges


@pytest.fixture
def counts() -> SuperwordCounts:
    return count_superwords([MANNERS * 9, "by the way " * 9], 280, 310, special_tokens=["<s>"])


def test_files_and_pickles(counts: SuperwordCounts, tmp_path: Path) -> None:
    counts.save(tmp_path / "counts")
    again = [PretokenCounts.load(tmp_path / "counts"), pickle.loads(pickle.dumps(counts))]
    for back in again:
        assert isinstance(back, SuperwordCounts)
        assert back == counts and runs_of(back) == runs_of(counts)
        for name in ("facts", "least", "split_pattern", "normalizer", "documents", "bytes_read"):
            assert getattr(back, name) == getattr(counts, name)
    again[0].save(tmp_path / "again")
    written = (tmp_path / "counts").read_bytes()
    assert written == (tmp_path / "again").read_bytes()
    data = json.loads(written)["superwords"]
    assert data["superwords"]["transition"] == 280
    assert data["special_tokens"] == ["<s>"]


def test_large_files(
    counts: SuperwordCounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts.save(tmp_path / "counts")
    size = (tmp_path / "counts").stat().st_size
    monkeypatch.setattr(core, "MAX_FILE_BYTES", size)  # a file so large is read in parts, if it can
    back = PretokenCounts.load(tmp_path / "counts")
    assert isinstance(back, SuperwordCounts) and runs_of(back) == runs_of(counts)
    monkeypatch.setattr(core, "MAX_FILE_BYTES", size - 1)
    with pytest.raises(ValueError, match="can't be read again; leave out rare pre-tokens"):
        counts.save(tmp_path / "larger")
    assert not (tmp_path / "larger").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("runs", {"1 x": 3}),
        ("runs", {"": 3}),
        ("runs", {"1  2": 3}),
        ("runs", {"1 2": 0.5}),
        ("runs", {"1 310": 3}),
        ("runs", {"1 " + "9" * 5_000: 3}),
        ("runs", {"1 2": 2**63}),
        ("runs", []),
        ("special_tokens", [1]),
        ("least", "1"),
        ("superwords", None),
        ("stage_one", 5),
    ],
)
def test_damaged_files(counts: SuperwordCounts, tmp_path: Path, key: str, value: Any) -> None:
    counts.save(tmp_path / "counts")
    data = json.loads((tmp_path / "counts").read_bytes())
    data["superwords"][key] = value
    (tmp_path / "counts").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(FileFormatError, match=rf"counts: superwords\.{key}: "):
        PretokenCounts.load(tmp_path / "counts")


def test_runs_of_other_tokens_are_refused(counts: SuperwordCounts) -> None:
    counts.runs.add([1, 300], 5)
    with pytest.raises(ValueError, match="runs of tokens that aren't there"):
        BPETokenizer().train(
            counts=counts, vocab_size=310, superwords=280, special_tokens=["<s>"], verbose=False
        )


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"superwords": 281}, "made with superwords transition=280, not with transition=281"),
        (
            {"superwords": Superwords(280, "boundless", max_words=3)},
            "superwords rule='superbpe', max_words=4, not with rule='boundless', max_words=3: ",
        ),
        ({"special_tokens": None}, "made with special_tokens ('<s>',), not with ()"),
        ({"max_token_length": 9}, "made with max_token_length None, not with 9"),
        ({"vocab_size": 311}, "made with vocab_size 310, not with 311: train with the same"),
        ({"min_frequency": 1}, "superwords that occur 2 times or more: "),
        ({"min_frequency": 90}, "stage one differs from that of these counts, made with min_freq"),
    ],
)
def test_for_another_training(
    counts: SuperwordCounts, changed: dict[str, Any], problem: str
) -> None:
    how: dict[str, Any] = {"vocab_size": 310, "superwords": 280, "special_tokens": ["<s>"]}
    if changed == {"min_frequency": 1}:  # they are used up
        counts = count_superwords("by the way " * 9, 258, 310)
        how |= {"superwords": 258, "special_tokens": None}
    with pytest.raises(ValueError, match=re.escape(problem)):
        BPETokenizer().train(counts=counts, verbose=False, **{**how, **changed})
    with pytest.raises(ValueError, match="these counts were made with pattern"):
        BPETokenizer("llama3").train(counts=counts, verbose=False, **how)


def test_auto_has_one_size() -> None:
    counts = count_superwords(MANNERS * 9, AUTO, 310)
    with pytest.raises(ValueError, match="made with vocab_size 310, not with 300"):
        BPETokenizer().train(counts=counts, vocab_size=300, superwords=AUTO, verbose=False)


def test_they_do_not_add_up(counts: SuperwordCounts) -> None:
    plain = count_pretokens(MANNERS)
    for add in (
        lambda: counts + counts,
        lambda: plain + counts,
        lambda: counts + plain,
        lambda: merge_counts([plain, counts]),
    ):
        with pytest.raises(ValueError, match="counts with superwords can't be added up"):
            add()


# -- Files, and any number of workers -----------------------------------------------


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "in").mkdir()
    for number in range(5):
        text = MANNERS * (3 + number) + "by the way, the cat sat on the mat. <s>\n" * number
        (tmp_path / "in" / f"{number}.txt").write_text(text, encoding="utf-8")
    yield tmp_path / "in"


@pytest.mark.parametrize(
    ("how", "workers"),
    [
        (280, 1),
        (Superwords(270, "boundless"), 1),
        (AUTO, 1),
        pytest.param(280, 2, marks=pytest.mark.slow),
    ],
)
def test_count_job(
    corpus: Path, tmp_path: Path, how: Any, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards, counted apart, give what the corpus gives; what is counted is found again."""
    monkeypatch.setattr(counting, "_LITTLE", 0)
    paths = sorted(corpus.iterdir())
    expected = count_superwords(paths, how, 310, special_tokens=["<s>"], num_workers=1)
    job = CountJob(
        corpus,
        special_tokens=["<s>"],
        superwords=how,
        vocab_size=310,
        work_dir=tmp_path / "work",
        partitions=2,
        num_workers=workers,
    )
    report = job.to_file(tmp_path / "counts")
    assert (report.documents, report.kept) == (5, 0)
    for counts in (job.counts(), PretokenCounts.load(tmp_path / "counts")):
        assert isinstance(counts, SuperwordCounts)
        assert counts == expected and runs_of(counts) == runs_of(expected)
        assert (counts.facts, counts.least) == (expected.facts, expected.least)
    made = [*(tmp_path / "work").glob("superwords-*/*/*.pairs")]
    made += (tmp_path / "work").glob("superwords-*/*/*.run")
    before = [path.stat().st_mtime_ns for path in made]
    assert len(made) >= 10
    job.counts()
    assert before == [path.stat().st_mtime_ns for path in made]
    asked = {"vocab_size": 305 if how != AUTO else 310, "special_tokens": ["<s>"]}
    got = BPETokenizer().train(counts=counts, superwords=how, verbose=False, **asked)
    assert got.merges == BPETokenizer().train(paths, superwords=how, verbose=False, **asked).merges
    job.forget()
    assert not (tmp_path / "work").exists()


def test_little_memory(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pairs each shard forgets, the runs give the same merges."""
    expected = BPETokenizer().train(corpus, 310, superwords=280, verbose=False).merges
    for most in (1, 5, 20):
        monkeypatch.setattr(superwords, "_MOST_PAIRS", most)
        counts = count_files(corpus, superwords=280, vocab_size=310, num_workers=1)
        got = BPETokenizer().train(counts=counts, vocab_size=310, superwords=280, verbose=False)
        assert got.merges == expected


def test_nothing_to_join(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("7 " * 9, encoding="utf-8")
    counts = count_files(tmp_path, superwords=256, vocab_size=260, num_workers=1)
    assert isinstance(counts, SuperwordCounts)
    made = BPETokenizer().train(counts=counts, vocab_size=260, superwords=256, verbose=False)
    expected = BPETokenizer().train(tmp_path, 260, superwords=256, verbose=False)
    assert made.merges == expected.merges


def test_what_a_job_refuses(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="transition must be at most vocab_size"):
        count_files(corpus, superwords=900, vocab_size=300, work_dir=tmp_path / "work")
    assert not (tmp_path / "work").exists()
    job = CountJob(corpus, superwords=280, work_dir=tmp_path / "work")
    with pytest.raises(ValueError, match="leave superwords to the run without a share"):
        job.count_share(0, 2)


# -- The commands -----------------------------------------------------------------


@pytest.mark.parametrize("how", ["280", "auto"])
def test_commands(
    capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path, how: str
) -> None:
    sized = ["--superwords", how, "--vocab-size", 310, "--quiet"]
    count = ["count", corpus, "-o", tmp_path / "counts", "--num-workers", 1]
    assert run_command(capsys, *count, *sized) == (0, "", "")
    assert not (tmp_path / "counts.work").exists()
    made = []
    for name, source in (("a", ["--counts", tmp_path / "counts"]), ("b", ["--corpus", corpus])):
        out = ["--output", tmp_path / name]
        assert run_command(capsys, "train", *source, *out, *sized) == (0, "", "")
        made.append((tmp_path / name / "tokenizer.json").read_bytes())
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("options", "status", "problem"),
    [
        (["--superwords", "x"], 2, "expected a vocabulary size or 'auto', got 'x'"),
        (["--vocab-size", 300], 2, "--vocab-size goes with --superwords"),
        (
            ["--superwords", 280, "--shard-index", 0, "--num-shards", 2, "--work-dir", "work"],
            2,
            "--superwords does not go with --shard-index",
        ),
        (["--superwords", 280, "--vocab-size", 270], 1, "transition must be at most vocab_size"),
    ],
)
def test_count_refuses(
    capsys: pytest.CaptureFixture[str],
    corpus: Path,
    tmp_path: Path,
    options: list[Any],
    status: int,
    problem: str,
) -> None:
    target = [] if "--shard-index" in options else ["-o", tmp_path / "counts"]
    got, _, err = run_command(capsys, "count", corpus, *target, *options)
    assert (got, problem in err) == (status, True), err
    assert not (tmp_path / "counts").exists()


def test_train_needs_counts_with_runs(
    capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path
) -> None:
    plain = ["count", corpus, "-o", tmp_path / "counts", "--quiet", "--num-workers", 1]
    assert run_command(capsys, *plain) == (0, "", "")
    command = ["train", "--counts", tmp_path / "counts", "--output", tmp_path / "out"]
    status, _, err = run_command(capsys, *command, "--superwords", 280)
    assert (status, "count with superwords (count --superwords" in err) == (1, True), err
