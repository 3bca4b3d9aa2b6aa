"""Counts from which superwords are learned: the same merges as from the text."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import run_command
from hard_text import hard_text
from hypothesis import assume, given, settings
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
    assume(n_words + n_supers)
    how = AUTO if rule == "auto" else Superwords(256 + n_words, rule)
    smaller = 0 if rule == "auto" else min(smaller, n_supers, n_words + n_supers - 1)
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
        ("least", 0),
        ("cut", None),
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


def test_neighbors_are_pairs(tmp_path: Path) -> None:
    neighbors = count_superwords(MANNERS, 280, 310, whole=count_pretokens(MANNERS))
    neighbors.runs.add([1, 2, 3], 5)
    neighbors.save(tmp_path / "counts")
    with pytest.raises(FileFormatError, match="bad entry 1 2 3: 5|bad entry '1 2 3': 5"):
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


# -- Parts of a corpus --------------------------------------------------------------


def added(parts: list[Any], count: Any) -> SuperwordCounts:
    """Count neighbors in each part, add them up, and do the same with runs."""
    total = merge_counts([count_pretokens(part, normalizer=None) for part in parts])
    for _ in range(2):
        total = merge_counts([count(part, whole=total) for part in parts])
    assert isinstance(total, SuperwordCounts)
    return total


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.lists((prose | hard_text).map("{}\n".format), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 25),
    st.integers(0, 15),
    st.integers(1, 3),
    st.sampled_from(["superbpe", "boundless", "auto"]),
)
def test_parts_add_up(
    parts: list[list[str]], n_words: int, n_supers: int, least: int, rule: str
) -> None:
    """Parts, counted apart, give what all of them give at once."""
    assume(n_words + n_supers)
    how = AUTO if rule == "auto" else Superwords(256 + n_words, rule)
    size = 256 + n_words + n_supers
    given: dict[str, Any] = {"superwords": how, "normalizer": None, "min_frequency": least}
    given["num_workers"] = 1
    text = [document for part in parts for document in part]
    expected = count_superwords(text, vocab_size=size, **given)

    def count(part: list[str], whole: Any) -> SuperwordCounts:
        return count_superwords(part, vocab_size=size, whole=whole, **given)

    counts = added(parts, count)
    assert counts == expected and counts.facts == expected.facts
    assert (counts.documents, counts.bytes_read) == (expected.documents, expected.bytes_read)
    if counts.least == expected.least:
        assert runs_of(counts) == runs_of(expected) and counts.cut == expected.cut
    merges = trained(text, size, how, min_frequency=least).merges
    try:
        assert trained(counts, size, how, min_frequency=least).merges == merges
    except ValueError as error:  # the guess how rare superwords are was bad: as the error says,
        assert "count again with a larger vocab_size" in str(error) and rule != "auto"
        size += 10_000
        more = added(parts, count)
        assert trained(more, size - 10_000, how, min_frequency=least).merges == merges


def test_parts_that_forget_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was forgotten is said: no superword is learned that may be more frequent."""
    parts = [MANNERS * 9, "by the way, the cat sat on the mat. " * 30, "in a way. " * 20]
    monkeypatch.setattr(superwords, "_MOST_PAIRS", 12)

    def count(part: str, whole: Any) -> SuperwordCounts:
        return count_superwords(part, 280, 284, normalizer=None, whole=whole)

    whole = merge_counts([count_pretokens(part, normalizer=None) for part in parts])
    neighbors = merge_counts([count(part, whole) for part in parts])
    assert isinstance(neighbors, SuperwordCounts) and neighbors.least > 2
    runs = merge_counts([count(part, neighbors) for part in parts])
    assert isinstance(runs, SuperwordCounts) and runs.least >= neighbors.least
    expected = trained(parts, 284, 280).merges
    learned = [trained(runs, size, 280).merges for size in (280, 281, 282)]
    assert learned == [expected[: len(merges)] for merges in learned]
    assert len(learned[-1]) > len(learned[0])


def test_parts_in_files(corpus: Path, tmp_path: Path) -> None:
    """Files, counted on two machines and written, are what `count_superwords` gives."""
    paths = sorted(corpus.iterdir())
    parts, how = [paths[:2], paths[2:]], {"superwords": 280, "vocab_size": 310, "num_workers": 1}

    def count(part: list[Path], whole: Any) -> PretokenCounts:
        counts = count_files(part, special_tokens=["<s>"], whole=whole, **how)
        expected = count_superwords(part, special_tokens=["<s>"], whole=whole, **how)
        assert isinstance(counts, SuperwordCounts)
        assert counts == expected and runs_of(counts) == runs_of(expected)
        assert (counts.facts, counts.cut) == (expected.facts, expected.cut)
        counts.save(tmp_path / "counts")
        return PretokenCounts.load(tmp_path / "counts")

    total = merge_counts([count_files(part, special_tokens=["<s>"]) for part in parts])
    for _ in range(2):
        total = merge_counts([count(part, total) for part in parts])
    expected = count_superwords(paths, special_tokens=["<s>"], **how)
    assert isinstance(total, SuperwordCounts) and runs_of(total) == runs_of(expected)
    assert (total, total.cut, total.least) == (expected, expected.cut, expected.least)
    assert sum(pickle.loads(pickle.dumps([total])), expected).documents == 10


def test_what_does_not_add_up(counts: SuperwordCounts) -> None:
    plain = count_pretokens(MANNERS)
    other = count_superwords([MANNERS * 8], 280, 310, special_tokens=["<s>"])
    for add in (
        lambda: counts + other,
        lambda: plain + counts,
        lambda: counts + plain,
        lambda: merge_counts([plain, counts]),
        lambda: merge_counts([counts, plain]),
    ):
        with pytest.raises(ValueError, match="these counts don't add up: with superwords"):
            add()
    with pytest.raises(ValueError, match="these counts were made with pattern"):
        counts + count_pretokens(MANNERS, "llama3")
    with pytest.raises(ValueError, match="leave out min_frequency"):
        merge_counts([counts, counts], min_frequency=2)
    counts.runs.add([1, 2], 2**61)
    with pytest.raises(ValueError, match="too large to be added up"):
        counts + counts
    with pytest.raises(TypeError):
        counts + 1  # type: ignore[operator]


def test_what_a_part_refuses(counts: SuperwordCounts, corpus: Path) -> None:
    plain = count_pretokens(MANNERS)
    part = count_superwords(MANNERS, 280, 310, whole=plain)
    with pytest.raises(ValueError, match="these counts only say where to cut"):
        BPETokenizer().train(counts=part, vocab_size=310, superwords=280, verbose=False)
    incomplete = part + part
    del incomplete[b" way"]
    for whole, how, problem in (
        (counts, 280, "these counts are complete; train from them"),
        (part, 281, "transition=280, not with transition=281"),
        (count_pretokens(MANNERS, "llama3"), 280, "these counts were made with pattern"),
        (incomplete, 280, "stage one differs from that of these counts"),
    ):
        with pytest.raises(ValueError, match=problem):
            count_superwords(MANNERS, how, 310, whole=whole)
    with pytest.raises(TypeError, match="whole must be PretokenCounts, got dict"):
        count_superwords(MANNERS, 280, 310, whole={})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leave out min_frequency"):
        count_files(corpus, superwords=280, vocab_size=310, whole=plain, min_frequency=2)
    count_superwords(MANNERS, 280, 400, whole=part)  # neighbors fit any size


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


# -- Shares, on several machines ----------------------------------------------------


def counted_files(folder: Path) -> dict[Path, int]:
    """Return when each output was written; a marker's time may change when it is checked."""
    paths = [*folder.rglob("*.run"), *folder.rglob("*.pairs")]
    return {path: path.stat().st_mtime_ns for path in paths}


@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("how", [280, Superwords(270, "boundless"), AUTO])
def test_shares(corpus: Path, tmp_path: Path, how: Any, least: int) -> None:
    """Three rounds of shares count everything; the last run adds up, to the same bytes."""
    options: dict[str, Any] = {"special_tokens": ["<s>"], "superwords": how, "vocab_size": 310}
    CountJob(corpus, num_workers=1, **options).to_file(tmp_path / "one", least)
    work = tmp_path / "work"
    job = CountJob(corpus, work_dir=work, num_workers=1, partitions=2, **options)
    rounds = [[job.count_share(i, 3, least) for i in (2, 0, 1)] for _ in range(3)]
    assert [[report.waits_for for report in each] for each in rounds] == [
        ["pre-tokens", "pre-tokens", "neighbors"],  # the last share goes on
        ["neighbors", "runs", "runs"],
        [None, None, None],
    ]
    assert [report.shards for report in rounds[0]] == [1, 2, 2]
    said = "counted neighbors; once all shares have, run them again, or one without"
    assert said in str(rounds[1][0]) and "a run without a share adds up" in str(rounds[2][0])
    before = counted_files(work)
    assert sum(path.suffix == ".pairs" for path in before) == 5
    assert sum(path.suffix == ".run" for path in before) == 10
    assert job.count_share(0, 3, least).waits_for is None
    assert job.to_file(tmp_path / "all", least).kept == 5
    assert before.items() <= counted_files(work).items()
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()
    job.forget()
    assert not work.exists()


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_shares_that_leave_the_rest(corpus: Path, tmp_path: Path, rounds: int) -> None:
    """The run without a share does what shares have not done, in whatever round they stopped."""
    options: dict[str, Any] = {"superwords": 280, "vocab_size": 310, "partitions": 2}
    CountJob(corpus, num_workers=1, **options).to_file(tmp_path / "one")
    job = CountJob(corpus, work_dir=tmp_path / "work", num_workers=1, **options)
    for _ in range(rounds):
        job.count_share(0, 2)
        job.count_share(1, 2)
    job.count_share(1, 2)
    job.to_file(tmp_path / "all")
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()


def test_shares_at_once(corpus: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"superwords": 280, "vocab_size": 310, "num_workers": 1}
    options["partitions"] = 2
    CountJob(corpus, **options).to_file(tmp_path / "one")
    job = CountJob(corpus, work_dir=tmp_path / "work", **options)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            reports = list(pool.map(lambda index: job.count_share(index, 4), range(4)))
    assert [report.waits_for for report in reports].count(None) >= 1
    job.to_file(tmp_path / "all")
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()


def test_shares_that_cut_again(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the guess how rare superwords are was bad, further rounds cut less."""
    guess = superwords._StageTwo._rarest
    monkeypatch.setattr(superwords._StageTwo, "_rarest", lambda *given: 16 * guess(*given))
    options: dict[str, Any] = {"superwords": 280, "vocab_size": 310, "num_workers": 1}
    options["partitions"] = 2
    CountJob(corpus, **options).to_file(tmp_path / "one")
    job = CountJob(corpus, work_dir=tmp_path / "work", **options)
    waited = [job.count_share(i, 2).waits_for for _ in range(5) for i in (0, 1)]
    assert waited[:2] == ["pre-tokens", "neighbors"] and waited.count("runs") > 1
    assert waited[-1] is None
    assert len([*(tmp_path / "work").glob("superwords-*/runs-*")]) > 1
    before = counted_files(tmp_path / "work")
    job.to_file(tmp_path / "all")
    assert before.items() <= counted_files(tmp_path / "work").items()
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()


def test_shares_of_a_part(corpus: Path, tmp_path: Path) -> None:
    """What is counted with `whole` needs one round: the whole says all that it depends on."""
    few: dict[str, Any] = {"num_workers": 1, "partitions": 2}
    whole = count_files(corpus, **few)
    for step in range(2):
        options = {"superwords": 280, "vocab_size": 310, "whole": whole, **few}
        job = CountJob(corpus, work_dir=tmp_path / f"{step}", **options)
        assert [job.count_share(i, 2).waits_for for i in (0, 1)] == [
            ["neighbors", "runs"][step],
            None,
        ]
        before = counted_files(tmp_path / f"{step}")
        whole = job.counts()
        assert before.items() <= counted_files(tmp_path / f"{step}").items()
    expected = count_files(corpus, superwords=280, vocab_size=310, **few)
    assert isinstance(whole, SuperwordCounts) and isinstance(expected, SuperwordCounts)
    assert whole == expected and runs_of(whole) == runs_of(expected)


def test_shares_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("7 " * 9, encoding="utf-8")
    work = {"work_dir": tmp_path / "work", "num_workers": 1}
    job = CountJob(tmp_path / "a.txt", superwords=256, vocab_size=260, **work)
    assert [job.count_share(i, 2).waits_for for i in (1, 0)] == ["pre-tokens", None]
    (tmp_path / "b.txt").write_text("", encoding="utf-8")
    job = CountJob(tmp_path / "b.txt", superwords=256, vocab_size=260, **work)
    with pytest.raises(ValueError, match="corpus is empty"):
        job.count_share(0, 1)
    with pytest.raises(TypeError, match="min_frequency must be an int, got None"):
        job.count_share(0, 1, None)  # type: ignore[arg-type]


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


@pytest.mark.parametrize("how", ["280", pytest.param("auto", marks=pytest.mark.slow)])
def test_parts_by_commands(
    capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path, how: str
) -> None:
    """Parts, counted and added up step by step, give the file of counting all at once."""
    sized = ["--superwords", how, "--vocab-size", 310]
    paths, quiet = sorted(corpus.iterdir()), ["--num-workers", 1, "--quiet"]
    counted: list[Any] = []
    for step in range(3):
        files = [tmp_path / f"{step}{part}" for part in "ab"]
        for file, part in zip(files, (paths[:2], paths[2:])):
            more = [*sized, "--whole", counted[-1]] if counted else []
            run = run_command(capsys, "count", *part, "-o", file, *more, *quiet)
            assert run == (0, "", "")
        counted.append(tmp_path / f"all{step}")
        added = run_command(capsys, "count", "--add", *files, "-o", counted[-1], "--json")
        assert added[0] == 0 and json.loads(added[1])["documents"] == 5
    assert run_command(capsys, "count", corpus, "-o", tmp_path / "c", *sized, *quiet) == (0, "", "")
    if how != "auto":  # which may cut less then
        assert counted[-1].read_bytes() == (tmp_path / "c").read_bytes()
    made = []
    for file in (counted[-1], tmp_path / "c"):
        command = ["train", "--counts", file, "-o", tmp_path / "t", "--force", *sized, "--quiet"]
        assert run_command(capsys, *command) == (0, "", "")
        made.append((tmp_path / "t" / "tokenizer.json").read_bytes())
    assert made[0] == made[1]


def test_shares_by_commands(
    capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path
) -> None:
    count = ["count", corpus, "--superwords", 280, "--vocab-size", 310, "--num-workers", 1]
    count += ["--partitions", 2]
    alone = run_command(capsys, *count, "-o", tmp_path / "one", "--min-frequency", 2, "--quiet")
    assert alone == (0, "", "")
    count += ["--work-dir", tmp_path / "work", "--min-frequency", 2, "--json", "--quiet"]
    shares: list[list[Any]] = [["--shard-index", i, "--num-shards", 2] for i in (0, 1)]
    for expected in (["pre-tokens", "neighbors"], ["runs", None]):
        runs = [run_command(capsys, *count, *share) for share in shares]
        assert [json.loads(out)["waits_for"] for _, out, _ in runs] == expected
    before = counted_files(tmp_path / "work")
    assert run_command(capsys, *count, "-o", tmp_path / "all")[0] == 0
    assert before.items() <= counted_files(tmp_path / "work").items()
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()


@pytest.mark.parametrize(
    ("options", "status", "problem"),
    [
        (["--whole", "x"], 2, "--whole goes with --superwords"),
        (["--superwords", 280, "--whole", "missing"], 1, "missing: "),
        (["--add"], 1, "is not a regular file"),
        (["--add", "--pattern", "llama3", "--superwords", 280], 2, "out --pattern, --superwords"),
        (["--superwords", "x"], 2, "expected a vocabulary size or 'auto', got 'x'"),
        (["--vocab-size", 300], 2, "--vocab-size goes with --superwords"),
        (
            ["--superwords", 280, "--shard-index", 0, "--num-shards", 2],
            2,
            "several machines need a --work-dir that all of them share",
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
