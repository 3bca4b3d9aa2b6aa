"""Tokens of files: the counts are those of the ids of whole texts, in memory that doesn't grow."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import run_command
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer
from bpe_tokenizer import AddedToken, BPETokenizer, FileFormatError
from bpe_tokenizer_tools.corpus import token_counts
from bpe_tokenizer_tools.corpus.token_counts import count_chunks, count_file, files_of

TEXT = "The cat's hat, 2024: naïve 東京 🙂 e\u0301\n\n  <|endoftext|> return x\r\n"
POSIX = pytest.mark.skipif(os.name != "posix", reason="named pipes as POSIX has them")


def trained(pattern: str = "o200k", normalizer: str | None = "NFC") -> BPETokenizer:
    made = BPETokenizer(pattern, normalizer=normalizer)
    return made.train([TEXT * 20], 330, special_tokens=["<|endoftext|>"], verbose=False)


@pytest.fixture(scope="module")
def tokenizers(engine: str) -> list[BPETokenizer]:
    """Tokenizers of every kind that text is cut for in another way."""
    made = [trained("gpt2"), trained("cl100k", None), trained("o200k", "NFKC")]
    made += [trained(r"\w+(?!b)|\s|\W"), trained(r"(?s).+")]  # cut by `regex`; never cut
    looser = trained("gpt2")
    looser.add_special_tokens([AddedToken("hot", lstrip=True, normalized=True, special=False)])
    plain = BPETokenizer()
    plain.train([TEXT * 20], 330, style="sentencepiece", verbose=False)
    return [*made, looser, plain]


@pytest.fixture(scope="module")
def tok(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tok")
    trained().save(folder, verbose=False)
    return folder


def tokens(text: str) -> int:
    return len(trained().encode(text))


# -- Counting -----------------------------------------------------------------


@settings(max_examples=examples(400))
@given(text=hard_text, data=st.data())
def test_chunks_count_as_the_whole(
    tokenizers: list[BPETokenizer], text: str, data: st.DataObject
) -> None:
    tokenizer = data.draw(st.sampled_from(tokenizers))
    special = data.draw(st.sampled_from(["none", "all"]))
    text = data.draw(st.sampled_from([text, text * 7, f"{text}<|endoftext|>{text} hot"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]
    expected = len(tokenizer.encode(text, allowed_special=special))
    for threads in (1, 3):
        assert count_chunks(tokenizer, iter(chunks), special, threads) == expected


@settings(max_examples=examples(60))
@given(text=hard_text, block=st.integers(1, 40), ending=st.sampled_from(["", ".gz", ".bz2"]))
def test_files_count_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizers: list[BPETokenizer],
    text: str,
    block: int,
    ending: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / f"text.txt{ending}"
    compress: Any = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[ending]
    path.write_bytes(compress(text.encode()))
    told: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_counts, "_BLOCK", block)
        found = count_file(tokenizers[0], path, num_threads=3, advance=told.append)
    assert found == len(tokenizers[0].encode(text))
    if text and not ending:
        assert sum(told) == path.stat().st_size and min(told) >= 0
    elif text:
        assert sum(told) <= path.stat().st_size


def test_real_text(corpora_dir: Path, vocab_dir: Path) -> None:
    tiktoken = need("tiktoken")
    tokenizer = BPETokenizer.from_file(vocab_dir / "cl100k_base.tiktoken")
    definition = tokenizer.definition
    theirs = tiktoken.Encoding(
        "x",
        pat_str=bpe_tokenizer.CL100K_SPLIT_PATTERN,
        mergeable_ranks=dict(definition.vocab),
        special_tokens={},
    )
    for name in ("english", "code", "multi"):
        path = corpora_dir / f"{name}.txt"
        text = path.read_bytes()[: 2**21].decode(errors="ignore")
        chunks = [text[at : at + 2**18] for at in range(0, len(text), 2**18)]
        expected = len(theirs.encode_ordinary(text))
        assert count_chunks(tokenizer, chunks) == expected
        assert count_chunks(tokenizer, chunks, num_threads=1) == expected


def test_records_are_counted_each_on_its_own(tmp_path: Path) -> None:
    texts = ["a cat", " hat", "", TEXT]
    rows = [{"text": text, "body": text * 2} for text in texts]
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress("\n\n".join(map(json.dumps, rows)).encode()))
    assert count_file(trained(), path) == sum(map(tokens, texts))
    assert count_file(trained(), path, text_field="body") == sum(tokens(t * 2) for t in texts)
    by_id = sum(len(trained().encode(text, allowed_special="all")) for text in texts)
    assert count_file(trained(), path, "all") == by_id < sum(map(tokens, texts))
    with pytest.raises(FileFormatError, match=r"x\.jsonl\.gz: line 1: expected text in the field"):
        count_file(trained(), path, text_field="none")


def test_rows_of_parquet(tmp_path: Path) -> None:
    pyarrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": ["a cat", TEXT]}), tmp_path / "x.parquet")
    assert count_file(trained(), tmp_path / "x.parquet") == tokens("a cat") + tokens(TEXT)


def test_bad_bytes_are_named_by_their_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(b"a" * 3_000_000 + b"\xff")
    with pytest.raises(FileFormatError, match=r"bad\.txt: byte 3000000: not UTF-8"):
        count_file(trained(), path, num_threads=3)


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_threads must be"):
        count_chunks(trained(), ["x"], num_threads=0)
    with pytest.raises(ValueError, match="surrogate"):
        count_chunks(trained(), ["x\ud800"])
    with pytest.raises(FileNotFoundError):
        count_file(trained(), tmp_path / "nosuch")


def test_files_of_a_directory(tmp_path: Path) -> None:
    for name in ("b/x.txt", "a.txt", "b/.hidden", ".git/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert files_of(tmp_path) == [tmp_path / "a.txt", tmp_path / "b" / "x.txt"]
    assert files_of("nosuch") == [Path("nosuch")]


# -- The command --------------------------------------------------------------


def run(
    capsys: pytest.CaptureFixture[str], *argv: object, stdin: bytes = b""
) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        return run_command(capsys, "tokens", *argv)


def test_it_prints_like_wc(
    tok: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_bytes(TEXT.encode())
    Path("b.txt").write_bytes(b"x" * 1500)
    each = [tokens(TEXT), tokens("x" * 1500)]
    shown = f"{each[0]:>4} a.txt\n{each[1]:>4} b.txt\n{sum(each):>4} total\n"
    assert run(capsys, "--tokenizer", tok, "a.txt", "b.txt") == (0, shown, "")
    assert run(capsys, "--tokenizer", tok, "a.txt") == (0, f"{each[0]} a.txt\n", "")
    assert run(capsys, "--tokenizer", tok, stdin=TEXT.encode()) == (0, f"{each[0]}\n", "")
    assert run(capsys, "--tokenizer", tok, "-", stdin=TEXT.encode()) == (0, f"{each[0]} -\n", "")
    shown = f"{each[0]:>7} -\n{each[1]:>7} b.txt\n{sum(each):>7} total\n"
    assert run(capsys, "--tokenizer", tok, "-", "b.txt", stdin=TEXT.encode()) == (0, shown, "")
    assert run(capsys, "--tokenizer", tok, stdin=b"") == (0, "0\n", "")


def test_the_numbers_are_those_of_wc(
    tok: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer without merges counts bytes, and so does wc."""
    monkeypatch.chdir(tmp_path)
    BPETokenizer(normalizer=None).save("bytes", verbose=False)
    for number, name in enumerate(["a.txt", "b b.txt", "naïve.txt"]):
        Path(name).write_bytes(TEXT.encode() * 10**number)
    names = sorted(path.name for path in tmp_path.glob("*.txt"))
    try:
        wc = subprocess.run(["wc", "-c", *names], capture_output=True, encoding="utf-8", check=True)
    except OSError:
        pytest.skip("there is no wc")
    _, out, _ = run(capsys, "--tokenizer", "bytes", *names)
    assert [line.split(None, 1) for line in out.splitlines()] == [
        line.split(None, 1) for line in wc.stdout.splitlines()
    ]


def test_json(tok: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT.encode())
    n = tokens(TEXT)
    status, out, err = run(capsys, "--tokenizer", tok, path, "-", "--json", stdin=b"x")
    files = [{"file": str(path), "tokens": n}, {"file": "-", "tokens": 1}]
    assert json.loads(out) == {"files": files, "total": n + 1, "errors": []}
    assert (status, err) == (0, "")
    status, out, err = run(capsys, "--tokenizer", tok, "nosuch", "--json")
    found = json.loads(out)
    assert (status, found["files"], found["total"]) == (1, [], 0)
    assert [f"bpe-tokenizer: error: {each}\n" for each in found["errors"]] == [err]


def test_other_files_are_counted_where_one_fails(
    tok: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("cat")
    Path("bad.txt").write_bytes(b"good \xff bad")
    Path("empty").mkdir()
    files = ["nosuch.txt", "a.txt", "bad.txt", "empty", "a.txt"]
    status, out, err = run(capsys, "--tokenizer", tok, *files)
    n = tokens("cat")
    assert status == 1
    assert out.split() == [str(n), "a.txt", str(n), "a.txt", str(2 * n), "total"]
    assert [line.split(": ", 2)[2] for line in err.splitlines()] == [
        "the corpus is empty: expected files in the directory empty",
        "nosuch.txt: No such file or directory",
        "bad.txt: byte 5: not UTF-8 (invalid start byte); convert it (iconv), or leave it out if "
        "not text",
    ]


def test_a_directory_is_all_its_files(
    tok: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("in/b.txt", "in/a/x.txt", "in/.hidden"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("cat")
    _, out, _ = run(capsys, "--tokenizer", tok, "in")
    assert [line.split()[1] for line in out.splitlines()] == ["in/a/x.txt", "in/b.txt", "total"]


@pytest.mark.parametrize(("more", "status"), [(-1, 1), (0, 0), (1, 0)])
def test_a_limit(
    tok: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: int, status: int
) -> None:
    path, n = tmp_path / "a.txt", 2 * tokens(TEXT)
    path.write_bytes(TEXT.encode())
    found, out, err = run(capsys, "--tokenizer", tok, path, path, "--limit", n + more)
    assert found == status and out.endswith(f"{n} total\n")
    said = f"bpe-tokenizer: error: {n} tokens, more than --limit {n + more}\n"
    assert err == (said if status else "")
    assert run(capsys, "--tokenizer", tok, "--limit", "-1", path)[0] == 2


@pytest.mark.parametrize("workers", ["0", "-1"])
def test_a_number_of_workers(tok: Path, capsys: pytest.CaptureFixture[str], workers: str) -> None:
    status, out, err = run(capsys, "--tokenizer", tok, "--num-workers", workers, stdin=b"x")
    assert (status, out) == (2, "")
    assert f"argument --num-workers: expected 1 or more, got {workers} (try" in err


def test_special_tokens_and_text_fields(
    tok: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"body": "<|endoftext|>"}))
    options = ("--tokenizer", tok, path, "--text-field", "body")
    assert run(capsys, *options)[1] == f"{tokens('<|endoftext|>')} {path}\n"
    assert run(capsys, *options, "--allowed-special", "all")[1] == f"1 {path}\n"


@POSIX
def test_a_named_pipe(tok: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[TEXT.encode() * 5000])
    writer.start()
    _, out, err = run(capsys, "--tokenizer", tok, pipe)
    writer.join()
    assert (out, err) == (f"{tokens(TEXT * 5000)} {pipe}\n", "")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar(tok: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("tqdm")
    out, err = _Terminal(), _Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    path = tmp_path / "a\x1b[2J.txt"
    path.write_text("cat " * 1000)
    argv = ["tokens", "--tokenizer", str(tok), str(path)]
    assert bpe_tokenizer.main(argv) == 0
    assert "Counting" in err.getvalue() and "4.00k/4.00k" in err.getvalue()
    assert f"{tokens('cat ' * 1000)} {tmp_path}/a\\x1b[2J.txt\n" in out.getvalue()
    before = len(err.getvalue())
    assert bpe_tokenizer.main([*argv, "--quiet"]) == 0
    assert err.getvalue()[before:] == ""


def _peak(tok: Path, path: Path) -> int:
    """Return the peak memory in KiB of a process that counts a file."""
    # NOTE: VmHWM, not ru_maxrss, which a child inherits from this much larger process.
    program = (
        "import sys, bpe_tokenizer\n"
        "assert bpe_tokenizer.main(sys.argv[1:]) == 0\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", program, "tokens", "--tokenizer", str(tok), str(path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    return int(done.stderr)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_memory_does_not_grow_with_a_file(tok: Path, tmp_path: Path) -> None:
    few, many = tmp_path / "few.txt", tmp_path / "many.txt"
    few.write_bytes(TEXT.encode() * 300_000)  # more than what is read at once
    many.write_bytes(few.read_bytes() * 5)
    # A block more may be in memory in one run, if this machine is busy; but not in each.
    grown = min(_peak(tok, many) for _ in range(2)) - _peak(tok, few)
    assert grown < 16 * 1024, f"{grown} KiB more for 100 MB than for 20 MB"


# -- Files of a directory that aren't text ------------------------------------


def mixed_folder(folder: Path) -> Path:
    """Write a folder of text, and of files of other kinds."""
    (folder / "deep").mkdir(parents=True)
    (folder / "notes.md").write_text("low lower lowest " * 9)
    (folder / "deep" / "a.txt").write_text("a NUL character\0in a text")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    (folder / "deep" / "module.pyc").write_bytes(b"code\0")
    (folder / "old.csv").write_bytes("naïve".encode("latin-1"))
    (folder / "all.tar.gz").write_bytes(gzip.compress(b"name\0\0"))
    return folder


SKIPPED = "in: skipped 4 files, not UTF-8 text: all.tar.gz, deep/module.pyc, old.csv and 1 more"


@pytest.mark.filterwarnings("default")
def test_files_of_a_directory_that_are_not_text_are_skipped_and_named(
    tok: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mixed_folder(Path("in"))
    texts = [Path("in", name).read_text() for name in ("deep/a.txt", "notes.md")]
    warning = f"bpe-tokenizer: warning: {SKIPPED}"
    _, out, err = run(capsys, "--tokenizer", tok, "in")
    names = [line.split()[-1] for line in out.splitlines()]
    assert names == ["in/deep/a.txt", "in/notes.md", "total"]
    assert err.splitlines() == [warning]
    commands = ["train in --vocab-size 270 -o made -q", "count in -o in.counts -q"]
    if importlib.util.find_spec("numpy"):
        commands.append(f"pack in -t {tok} --no-eot -o packed -q")
    for command in commands:
        assert bpe_tokenizer.main(command.split()) == 0
        assert capsys.readouterr().err.splitlines() == [warning], command
    expected = bpe_tokenizer.count_pretokens(texts)
    assert bpe_tokenizer.PretokenCounts.load("in.counts") == expected
    made = BPETokenizer().train(texts, 270, verbose=False)
    assert BPETokenizer.from_file("made").fingerprint == made.fingerprint


@pytest.mark.parametrize("name", ["picture.png", "deep/module.pyc", "old.csv", "all.tar.gz"])
def test_files_named_themselves_are_never_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = mixed_folder(tmp_path / "in") / name
    status = bpe_tokenizer.main(["count", str(path), "-o", str(tmp_path / "out"), "-q"])
    err = capsys.readouterr().err
    assert "skipped" not in err
    # A NUL byte alone may be text.
    assert (status, "not UTF-8" in err) == ((1, True) if name[0] in "po" else (0, False))


def test_damaged_text_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (mixed_folder(tmp_path) / "b.txt").write_bytes(b"\xff")
    with (
        pytest.warns(UserWarning, match="skipped 4 files"),
        pytest.raises(FileFormatError, match=r"b\.txt: byte 0: not UTF-8"),
    ):
        bpe_tokenizer.count_pretokens(tmp_path)


def test_a_directory_without_text(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"in the directory .*, which has no text: x"):
        bpe_tokenizer.count_pretokens(tmp_path)
