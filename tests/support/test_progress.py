"""Progress bars: where they are shown, and what they know about the total."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from oracles import need

from bpe_tokenizer import BPETokenizer, main
from bpe_tokenizer_tools.support import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name, size in (("a.txt", 1000), ("b/c.txt", 500)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("the cat " * (size // 8))
    return tmp_path


def test_the_size_of_a_corpus(corpus: Path) -> None:
    assert progress.size_of(corpus) == progress.size_of(str(corpus)) == 1496
    assert progress.size_of([corpus / "a.txt", str(corpus / "b")]) == 1496
    for unknown in (None, "some text", ["some text"], iter([corpus]), [], {}, [corpus / "nosuch"]):
        assert progress.size_of(unknown) is None
    (corpus / "b" / "d.txt.gz").write_bytes(gzip.compress(b"x"))
    assert progress.size_of(corpus) is None
    (corpus / "e.jsonl").write_text("")
    assert progress.size_of([corpus / "e.jsonl", corpus / "a.txt"]) is None


def test_training_shows_how_much_is_left(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("tqdm")
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    BPETokenizer().train(corpus, 260)
    assert "counting: 100%" in shown.getvalue() and "1.50k/1.50k" in shown.getvalue()
    assert "merging: 100%" in shown.getvalue()


def test_encoding_a_file_shows_how_much_is_left(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("tqdm")
    BPETokenizer().train(corpus, 260, verbose=False).save(tmp_path / "t", verbose=False)
    (tmp_path / "text").write_text("é" * 1_000, encoding="utf-8")
    base = ["encode", "-t", str(tmp_path / "t"), "--json"]
    for options, bar in (
        (["--file", str(tmp_path / "text")], True),
        (["--file", str(tmp_path / "text"), "--quiet"], False),
        (["--text", "é" * 1_000], False),
    ):
        shown = Terminal()
        monkeypatch.setattr(sys, "stderr", shown)
        assert main([*base, *options]) == 0
        assert ("encoding: 100%" in shown.getvalue()) == bar
        assert ("2.00k/2.00k" in shown.getvalue()) == bar


def test_nobody_sees_a_bar_in_a_pipe(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    assert progress.bar_class() is None
    with progress.bar("counting", "B", corpus) as advance:
        advance(1)
    assert shown.getvalue() == ""


def test_a_notebook_is_no_terminal_and_has_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    need("tqdm")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    assert progress.bar_class() is not None
    monkeypatch.delitem(sys.modules, "ipykernel")
    assert progress.bar_class() is None
