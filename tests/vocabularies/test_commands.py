"""The commands `extend`, `prune` and `align`: they do what the functions do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import run_command

from bpe_tokenizer import BPETokenizer, count_pretokens
from bpe_tokenizer_tools.vocabularies import align, extend, prune

TEXT = "low lower lowest, the cat sat on the mat. 12 123 don't " * 9
NEW = "the lowland catalog of aspirin " * 9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = BPETokenizer().train(TEXT, 285, special_tokens=["<|end|>"], verbose=False)
    tokenizer.save(tmp_path / "old", verbose=False)
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "new.txt").write_text(NEW, encoding="utf-8")
    count_pretokens(NEW).save(tmp_path / "new.json")
    return tmp_path


def test_extend(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = BPETokenizer.from_file(folder / "old")
    given = "extend", folder / "old", "--output", folder / "more"
    held_out = "--held-out", f"old={folder / 'text.txt'}"
    options = *given, "--add", 8, "--tokens", " aspirin", *held_out
    status, out, err = run_command(capsys, *options, "--corpus", folder / "new.txt", "--json")
    report = json.loads(out)
    assert (status, report["held_out"]["old"]["tokens_before"]) == (0, len(old.encode(TEXT)))
    assert "Extended: " in err and "Saved " in err
    expected = extend(old, NEW, add=8, tokens=[" aspirin"], held_out={}, verbose=False)
    assert BPETokenizer.from_file(folder / "more") == expected

    status, out, err = run_command(capsys, *options, "--counts", folder / "new.json")
    assert (status, out) == (1, "") and "--force overwrites it" in err
    again = *options, "--counts", folder / "new.json", "--force", "--quiet"
    assert run_command(capsys, *again) == (0, "", "")
    assert BPETokenizer.from_file(folder / "more") == expected


def test_prune(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = BPETokenizer.from_file(folder / "old")
    given = "prune", folder / "old", "--corpus", folder / "new.txt", "--output", folder / "less"
    status, out, _ = run_command(capsys, *given, "--vocab-size", 270, "--keep", "Ġmat", "--json")
    expected = prune(old, NEW, vocab_size=270, keep=["Ġmat"], verbose=False)
    assert (status, json.loads(out)["vocab_size"]) == (0, 270)
    assert BPETokenizer.from_file(folder / "less") == expected.tokenizer
    assert json.loads((folder / "less" / "id_map.json").read_text()) == expected.id_map


def test_align(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    BPETokenizer().save(folder / "bytes", verbose=False)
    given = "align", folder / "old", folder / "bytes", "--text", "the mat"
    status, out, _ = run_command(capsys, *given)
    assert status == 0
    assert out.splitlines()[0].split() == ["start", "end", "a", "b"]
    a, b = (BPETokenizer.from_file(folder / name) for name in ("old", "bytes"))
    status, out, _ = run_command(capsys, *given, "--json")
    assert json.loads(out) == [block._asdict() for block in align(a, b, "the mat")]


@pytest.mark.parametrize(
    "arguments, status, message",
    [
        (("extend", "old", "--output", "x"), 2, "one of --corpus, --counts and --tokens"),
        (("extend", "old", "--corpus", "new.txt"), 2, "--output"),
        (("extend", "old", "--corpus", "-", "--output", "x"), 2, "--corpus - is not read"),
        (("prune", "old", "--output", "x", "--min-count", 2), 2, "one of --corpus and --counts"),
        (("prune", "old", "--corpus", "new.txt", "--output", "x"), 2, "--vocab-size and --min"),
        (("extend", "old", "--tokens", "a b", "--output", "x"), 1, "can't be one token"),
        (("extend", "old", "--corpus", "none.txt", "--output", "x"), 1, "none.txt"),
        (("extend", "old", "--corpus", "new.txt", "--output", "new.txt"), 1, "new.txt"),
    ],
)
def test_what_is_refused_leaves_nothing(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[object, ...],
    status: int,
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    found, out, err = run_command(capsys, *arguments)
    assert (found, out) == (status, "")
    assert message in err and err.count("\n") == 1
    assert sorted(folder.rglob("*")) == before
