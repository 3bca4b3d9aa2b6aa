"""The command line: what it prints, where, with which exit status, and what it never does.

Most commands run in this process, through `main`; what only a process can show (pipes, signals,
locales, memory, the ways to start it) runs in one of its own.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import importlib.metadata
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, ChatTemplate, PretokenCounts, main
from bpe_tokenizer_tools import start

SCRIPT = Path(bpe_tokenizer.__file__)
TEXT = "The cat sat on the mat.\r\n\r\nThe cat's hat; naïve 東京 🙂\n\tif x:\n\t\treturn 1\n"
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and pipes as POSIX has them")


class Result(NamedTuple):
    status: int
    out: bytes
    err: str


class Trickle(io.BytesIO):
    """Standard input that hands over a few bytes at a time, wherever that cuts a character."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self.size = size

    def read1(self, size: int = -1) -> bytes:
        return self.read(self.size)


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def run(*argv: object, stdin: bytes = b"", block: int = 1 << 20, terminal: bool = False) -> Result:
    """Run `main` in this process with streams of its own."""
    out, err = Terminal() if terminal else io.BytesIO(), io.BytesIO()
    streams = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(Trickle(stdin, block), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", newline="\n")
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", newline="\n")
    try:
        try:
            status = main(list(map(str, argv)))
        except SystemExit as stop:
            status = int(stop.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        return Result(status, out.getvalue(), err.getvalue().decode())
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams


def environment(**changes: str) -> dict[str, str]:
    """This environment, without what would decide Python's encodings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(SCRIPT.parent), **changes}


def spawn(*argv: object, **options: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(SCRIPT), *map(str, argv)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, **{"env": environment(), **pipes, **options})


def assert_one_line(err: str) -> None:
    assert err.startswith("bpe-tokenizer: error: "), err
    assert err.endswith("\n") and err.count("\n") == 1, err
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_bytes((TEXT * 20).encode())
    return path


@pytest.fixture(scope="module")
def tok(engine: str, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer directory made by the command itself; text comes back byte for byte."""
    directory = tmp_path_factory.mktemp("tok") / "tokenizer"
    done = run(
        *("train", "--corpus", corpus, "--output", directory, "--vocab-size", 300, "--quiet"),
        *("--normalizer", "none", "--special-tokens", "<|endoftext|>", "<|pad|>=299"),
    )
    assert done == Result(0, b"", "")
    return directory


@pytest.fixture(scope="module")
def tokenizer(engine: str, tok: Path) -> BPETokenizer:
    return BPETokenizer.from_pretrained(tok, verbose=False)


# -- train --------------------------------------------------------------------


def test_train_saves_what_the_library_would(corpus: Path, tok: Path) -> None:
    expected = BPETokenizer(normalizer=None).train(
        corpus, 300, special_tokens={"<|endoftext|>": None, "<|pad|>": 299}, verbose=False
    )
    loaded = BPETokenizer.from_pretrained(tok, verbose=False)
    assert loaded == expected
    assert loaded.special_tokens == expected.special_tokens
    assert loaded.special_tokens["<|pad|>"] == 299


def test_train_reports_to_people_and_keeps_stdout_short(corpus: Path, tmp_path: Path) -> None:
    done = run("train", "--corpus", corpus, "--output", tmp_path / "t", "--vocab-size", 270)
    assert done.status == 0
    assert done.out.decode().splitlines() == [
        "Vocabulary size : 270",
        f"Saved to        : {tmp_path / 't'}",
    ]
    assert done.err.startswith("Trained: 1 document, ") and "14 merges" in done.err
    assert done.err.count("\n") == 1  # each thing is said once


def test_train_json_is_the_report(corpus: Path, tmp_path: Path) -> None:
    done = run(
        *("train", "--corpus", corpus, "--output", tmp_path / "t", "--vocab-size", 270),
        *("--json", "--quiet"),
    )
    report = json.loads(done.out)
    assert (done.status, done.err) == (0, "")
    assert report["vocab_size"] == 270 and report["merges"] == 14 and report["documents"] == 1
    assert report["bytes_read"] == corpus.stat().st_size
    assert report["stopped"] == "vocab size reached"


def test_train_reads_several_files_and_directories(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    with gzip.open(folder / "b.txt.gz", "wb") as file:
        file.write(b"zebra zebra zebra " * 30)
    (folder / "c.jsonl").write_text('{"body": "quokka quokka"}\n' * 30)
    done = run(
        *("train", "--corpus", corpus, folder, "--output", tmp_path / "t", "--json", "--quiet"),
        *("--vocab-size", 330, "--text-field", "body"),
    )
    assert json.loads(done.out)["documents"] == 1 + 1 + 30
    loaded = BPETokenizer.from_pretrained(tmp_path / "t", verbose=False)
    expected = BPETokenizer().train([corpus, folder], 330, text_field="body", verbose=False)
    assert loaded.merges == expected.merges
    assert b" zebra" in [left + right for left, right in loaded.merges]


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_train_reads_stdin_as_one_document(corpus: Path, tmp_path: Path, block: int) -> None:
    options = ("--output", tmp_path / "t", "--vocab-size", 290, "--json", "--quiet")
    done = run("train", "--corpus", "-", *options, stdin=corpus.read_bytes(), block=block)
    assert json.loads(done.out)["documents"] == 1
    expected = BPETokenizer().train(corpus, 290, verbose=False)
    assert BPETokenizer.from_pretrained(tmp_path / "t", verbose=False).merges == expected.merges


@pytest.mark.parametrize("name", [*SPLIT_PATTERNS, r"\w+|\W"])
def test_train_takes_every_pattern(corpus: Path, tmp_path: Path, name: str) -> None:
    options = ("--output", tmp_path / "t", "--vocab-size", 270, "--quiet", "--pattern", name)
    assert run("train", "--corpus", corpus, *options) == Result(0, b"", "")
    loaded = BPETokenizer.from_pretrained(tmp_path / "t", verbose=False)
    expected = BPETokenizer(name).train(corpus, 270, verbose=False)
    assert loaded.encode(TEXT) == expected.encode(TEXT)


@pytest.mark.parametrize("kind", ["directory", "gpt2", "tiktoken", "named", "template", "journal"])
def test_train_overwrites_a_tokenizer_only_by_force(
    tok: Path, corpus: Path, tmp_path: Path, kind: str
) -> None:
    folder, other = tmp_path / "t", BPETokenizer.from_file(tok)
    folder.mkdir()
    if kind == "directory":
        other.save(folder, verbose=False)
    elif kind == "tiktoken":
        other.export(folder / "x.tiktoken", kind)
    elif kind == "gpt2":
        other.export(folder, kind)
    elif kind == "named":  # as version 0.7 wrote it
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name.replace("tokenizer", "mine")).write_bytes((tok / name).read_bytes())
    else:
        name = {"template": "chat_template.jinja", "journal": ".bpe-tokenizer.saving"}[kind]
        (folder / name).write_text("{}")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    options = ("--output", folder, "--vocab-size", 270)
    for files in (corpus, "-", tmp_path / "nosuch"):  # none of them is looked at
        done = run("train", "--corpus", files, *options)
        assert (done.status, done.out) == (1, b"")
        assert_one_line(done.err)
        assert f"error: {folder}: has a tokenizer (" in done.err
        assert done.err.endswith("); --force overwrites it\n")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    done = run("train", "--corpus", corpus, *options, "--force", "--quiet")
    assert done == Result(0, b"", "")
    assert BPETokenizer.from_file(folder) == BPETokenizer().train(corpus, 270, verbose=False)


def test_train_saves_beside_files_that_are_no_tokenizer(corpus: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "notes.txt", "generation_config.json"):
        (tmp_path / name).write_text("{}")
    options = ("--output", tmp_path, "--vocab-size", 270, "--quiet")
    assert run("train", "--corpus", corpus, *options) == Result(0, b"", "")


def test_train_passes_its_limits_on(corpus: Path, tmp_path: Path) -> None:
    options = ("--min-frequency", 30, "--max-token-length", 4, "--num-workers", 1, "--quiet")
    assert run("train", "--corpus", corpus, "--output", tmp_path / "t", *options).status == 0
    expected = BPETokenizer().train(corpus, min_frequency=30, max_token_length=4, verbose=False)
    assert BPETokenizer.from_pretrained(tmp_path / "t", verbose=False).merges == expected.merges


# -- encode and decode --------------------------------------------------------


def test_encode_prints_count_ids_and_tokens(tok: Path, tokenizer: BPETokenizer) -> None:
    ids = tokenizer.encode(TEXT)
    head = f"Token count : {len(ids)}\nToken IDs : {ids}\n"
    assert run("encode", "--tokenizer", tok, "--text", TEXT) == Result(0, head.encode(), "")
    shown = run("encode", "--tokenizer", tok, "--text", TEXT, "--show-tokens").out.decode()
    assert shown == head + f"Tokens : {tokenizer.tokenize(TEXT)}\n"


def test_encode_reads_a_file_as_it_stands(tok: Path, tokenizer: BPETokenizer, corpus: Path) -> None:
    done = run("encode", "--tokenizer", tok, "--file", corpus)
    ids = tokenizer.encode(corpus.read_bytes().decode())
    assert done.out.decode() == f"Token count : {len(ids)}\nToken IDs : {ids}\n"


def test_encode_json(tok: Path, tokenizer: BPETokenizer) -> None:
    ids = tokenizer.encode(TEXT)
    plain = json.loads(run("encode", "--tokenizer", tok, "--text", TEXT, "--json").out)
    assert plain == {"token_count": len(ids), "input_ids": ids}
    done = run("encode", "--tokenizer", tok, "--text", TEXT, "--json", "--show-tokens")
    assert json.loads(done.out) == {**plain, "tokens": tokenizer.tokenize(TEXT)}
    piped = run("encode", "--tokenizer", tok, "--text", "-", "--json", stdin=TEXT.encode())
    assert json.loads(piped.out) == plain


@pytest.mark.parametrize("n", [0, 1, 2**16, 2**16 + 1, 150_000])
def test_encode_prints_long_lists_as_short_ones(engine: str, tmp_path: Path, n: int) -> None:
    tokenizer = BPETokenizer()  # an id for each byte
    tokenizer.save(tmp_path / "t", verbose=False)
    (tmp_path / "text").write_bytes((b"ab'\\ c\n" * (n // 7 + 1))[:n])
    ids = tokenizer.encode((tmp_path / "text").read_text(encoding="utf-8"))
    assert len(ids) == n
    tokens = tokenizer.convert_ids_to_tokens(ids)
    command = ("encode", "--tokenizer", tmp_path / "t", "--file", tmp_path / "text")
    head = f"Token count : {n}\nToken IDs : {ids}\n"
    assert run(*command) == Result(0, head.encode(), "")
    shown = head + f"Tokens : {tokens}\n"
    assert run(*command, "--show-tokens") == Result(0, shown.encode(), "")
    facts: dict[str, Any] = {"token_count": n, "input_ids": ids}
    assert run(*command, "--json") == Result(0, f"{json.dumps(facts)}\n".encode(), "")
    facts["tokens"] = tokens
    done = run(*command, "--json", "--show-tokens")
    assert done == Result(0, f"{json.dumps(facts)}\n".encode(), "")


PEAK = """
import sys
import bpe_tokenizer
status = bpe_tokenizer.main(sys.argv[1:])
[line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(line.split()[1], file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory as Linux reports it")
@pytest.mark.parametrize("options", [(), ("--json",), ("--show-tokens",)])
def test_encode_holds_few_bytes_for_each_id(tmp_path: Path, options: tuple[str, ...]) -> None:
    reserved = {f"<{i}>": 256 + i for i in range(1000)}  # Python keeps only small ints ready
    made = BPETokenizer().train("abcd " * 9, 1260, special_tokens=reserved, verbose=False)
    made.save(tmp_path / "t", verbose=False)
    peaks = []
    for n in (1000, 3_000_000):
        (tmp_path / "text").write_bytes(b"abcd " * n)
        given = ("encode", "--tokenizer", tmp_path / "t", "--file", tmp_path / "text", *options)
        command = [sys.executable, "-c", PEAK, *map(str, given)]
        done = subprocess.run(
            command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert done.returncode == 0, done.stderr
        peaks.append(1024 * int(done.stderr))
    assert peaks[1] - peaks[0] < 24 * 3_000_000  # a list of them alone takes 36


def test_special_tokens_are_text_unless_asked_for(tok: Path, tokenizer: BPETokenizer) -> None:
    text = "a<|endoftext|>b"
    plain = json.loads(run("encode", "--tokenizer", tok, "--text", text, "--json").out)
    assert tokenizer.eos_token_id not in plain["input_ids"]
    done = run("encode", "--tokenizer", tok, "--text", text, "--json", "--allowed-special", "all")
    ids = json.loads(done.out)["input_ids"]
    assert ids == [97, tokenizer.eos_token_id, 98]
    shown = run("decode", "--tokenizer", tok, "--ids", *ids)
    assert shown.out == b"Decoded text: 'a<|endoftext|>b'\n"
    skipped = run("decode", "--tokenizer", tok, "--ids", *ids, "--skip-special-tokens")
    assert skipped.out == b"Decoded text: 'ab'\n"


def test_encode_adds_special_tokens(corpus: Path, tmp_path: Path) -> None:
    options = ("--vocab-size", 270, "--special-tokens", "<|begin_of_text|>", "--quiet")
    run("train", "--corpus", corpus, "--output", tmp_path / "t", *options)
    done = run(
        "encode", "--tokenizer", tmp_path / "t", "--text", "!", "--add-special-tokens", "--json"
    )
    assert json.loads(done.out)["input_ids"] == [269, 33]


def test_decode_prints_a_python_string(tok: Path, tokenizer: BPETokenizer) -> None:
    done = run("decode", "--tokenizer", tok, "--ids", *tokenizer.encode(TEXT))
    line = done.out.decode()
    assert line.startswith("Decoded text: ") and line.count("\n") == 1
    assert ast.literal_eval(line.split(": ", 1)[1]) == TEXT


def test_decode_json(tok: Path, tokenizer: BPETokenizer) -> None:
    done = run("decode", "--tokenizer", tok, "--ids", *tokenizer.encode(TEXT), "--json")
    assert json.loads(done.out) == {"text": TEXT}


def test_decode_quotes_plain_text_as_people_expect(tok: Path) -> None:
    assert run("decode", "--tokenizer", tok, "--ids", 72, 105).out == b"Decoded text: 'Hi'\n"


def test_decode_replaces_broken_utf8(tok: Path) -> None:
    done = run("decode", "--tokenizer", tok, "--ids", 72, 255, 105)
    assert (done.status, done.out.decode()) == (0, "Decoded text: 'H\ufffdi'\n")
    cut = "é🙂".encode()[:-1]  # in the middle of a character
    done = run("decode", "--tokenizer", tok, "--ids", *cut)
    assert (done.status, done.out.decode()) == (0, "Decoded text: 'é\ufffd'\n")


@pytest.mark.parametrize("options", [(), ("--json",), ("--skip-special-tokens",), ("--quiet",)])
def test_decode_of_unknown_ids_names_them(tok: Path, options: tuple[str, ...]) -> None:
    ids = [72, 123456789, 298, 300, 105, 300, 10**30]  # 298 is the last merge
    done = run("decode", "--tokenizer", tok, "--ids", *ids, *options)
    assert (done.status, done.out) == (1, b"")
    assert_one_line(done.err)
    assert f"[123456789, 300, {10**30}]" in done.err and "--errors replace" in done.err
    many = run("decode", "--tokenizer", tok, "--ids", *range(290, 10_000), *options)
    assert many.status == 1 and "[300, 301, 302, " in many.err and len(many.err) < 300


def test_decode_of_an_unknown_id_ends_a_pipe(tok: Path) -> None:
    done = run("decode", "--tokenizer", tok, "--ids", "-", stdin=b"72 105 300 72 301")
    assert (done.status, done.out) == (1, b"Hi")
    assert_one_line(done.err)
    assert "[300]" in done.err
    replaced = run(
        "decode", "--tokenizer", tok, "--ids", "-", "--errors", "replace", stdin=b"72 300"
    )
    assert replaced == Result(0, "H\ufffd".encode(), "")


def test_decode_does_not_wait_for_the_end_of_a_pipe(tok: Path) -> None:
    child = spawn("decode", "--tokenizer", tok, "--ids", "-")
    child.stdin.write(b"72 999 105 ")
    child.stdin.flush()
    assert child.wait(timeout=600) == 1
    _, err = child.communicate()
    assert_one_line(err.decode())


def test_decode_with_errors(tok: Path, tokenizer: BPETokenizer) -> None:
    ids = [72, 255, 105, 123456789, 300]
    for errors in ("replace", "ignore"):
        done = run("decode", "--tokenizer", tok, "--ids", *ids, "--errors", errors)
        assert done.out.decode() == f"Decoded text: {tokenizer.decode(ids, errors=errors)!r}\n"
    for wrong in (ids[:3], ids[3:]):
        done = run("decode", "--tokenizer", tok, "--ids", *wrong, "--errors", "strict")
        assert (done.status, done.out) == (1, b"")
        assert_one_line(done.err)
    assert run("decode", "--tokenizer", tok, "--ids", 1, "--errors", "some").status == 2


def test_ids_in_a_gap_are_unknown(tmp_path: Path, corpus: Path) -> None:
    made = BPETokenizer().train(corpus, 270, special_tokens={"<s>": 400}, verbose=False)
    made.save(tmp_path, verbose=False)
    done = run("decode", "--tokenizer", tmp_path, "--ids", 400, 399)
    assert done.status == 1 and "[399]" in done.err


@pytest.mark.parametrize("source", ["--text", "--file"])
@pytest.mark.parametrize("block", [1, 2, 5, 1 << 20])
def test_piped_ids_are_plain_and_come_back_exactly(
    tok: Path, tokenizer: BPETokenizer, source: str, block: int
) -> None:
    data = TEXT.encode()
    encoded = run("encode", "--tokenizer", tok, source, "-", stdin=data, block=block)
    assert (encoded.status, encoded.err) == (0, "")
    assert list(map(int, encoded.out.split())) == tokenizer.encode(TEXT)
    decoded = run("decode", "--tokenizer", tok, "--ids", "-", stdin=encoded.out, block=block)
    assert decoded == Result(0, data, "")


@settings(max_examples=examples(150))
@given(text=st.text(), block=st.integers(1, 9))
def test_encode_piped_into_decode_is_the_identity(tok: Path, text: str, block: int) -> None:
    data = text.encode()
    encoded = run("encode", "--tokenizer", tok, "--text", "-", stdin=data, block=block)
    decoded = run("decode", "--tokenizer", tok, "--ids", "-", stdin=encoded.out, block=block)
    assert decoded == Result(0, data, "")


def test_pipe_of_real_processes(tok: Path) -> None:
    data = (TEXT * 3000).encode()  # several blocks
    encode = [sys.executable, str(SCRIPT), "encode", "--tokenizer", str(tok), "--text", "-"]
    decode = [sys.executable, str(SCRIPT), "decode", "--tokenizer", str(tok), "--ids", "-"]
    encoded = subprocess.run(encode, input=data, capture_output=True, check=True, env=environment())
    decoded = subprocess.run(
        decode, input=encoded.stdout, capture_output=True, check=True, env=environment()
    )
    assert decoded.stdout == data
    assert encoded.stderr == decoded.stderr == b""


def test_piped_encode_shows_tokens_one_to_a_line(tok: Path, tokenizer: BPETokenizer) -> None:
    done = run("encode", "--tokenizer", tok, "--text", "-", "--show-tokens", stdin=TEXT.encode())
    lines = [line.split("\t") for line in done.out.decode().splitlines()]
    assert [int(id_) for id_, _ in lines] == tokenizer.encode(TEXT)
    assert [token for _, token in lines] == tokenizer.tokenize(TEXT)


def test_decode_reads_ids_however_they_are_written(tok: Path) -> None:
    for written in (b"72 105", b"[72, 105]", b"72\n105\n", b"72,105"):
        done = run("decode", "--tokenizer", tok, "--ids", "-", stdin=written, block=1)
        assert done == Result(0, b"Hi", "")


def test_empty_text(tok: Path) -> None:
    shown = run("encode", "--tokenizer", tok, "--text", "")
    assert shown.out == b"Token count : 0\nToken IDs : []\n"
    assert run("encode", "--tokenizer", tok, "--text", "-").out.strip() == b""
    assert run("decode", "--tokenizer", tok, "--ids", "-").out == b""


def test_nothing_is_learned_from_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.txt").touch()
    (tmp_path / "special.txt").write_text("<|x|>")
    PretokenCounts().save(tmp_path / "counts.json")
    for name in ("-", "folder", "empty.txt", "special.txt", "counts.json"):
        option = "--counts" if name == "counts.json" else "--corpus"
        given = name if name == "-" else tmp_path / name
        options = ("--output", tmp_path / "out", "--special-tokens", "<|x|>")
        done = run("train", option, given, *options)
        assert (done.status, done.out) == (1, b"")
        assert_one_line(done.err)
        assert "the corpus is empty: expected " in done.err
        assert not (tmp_path / "out").exists()


# -- info and chat ------------------------------------------------------------


def test_info_json(tok: Path, tokenizer: BPETokenizer) -> None:
    done = run("info", "--tokenizer", tok, "--sample-text", TEXT, "--json")
    facts = json.loads(done.out)
    assert (done.status, done.err) == (0, "")
    assert facts["vocab_size"] == 300 and facts["max_id"] == 299
    assert facts["split_pattern"] == "gpt2" and facts["normalizer"] is None
    assert facts["special_tokens"] == tokenizer.special_tokens
    assert facts["fingerprint"] == tokenizer.fingerprint
    assert facts["sample"]["input_ids"] == tokenizer.encode(TEXT)
    assert facts["sample"]["text"] == facts["sample"]["decoded"] == TEXT
    assert facts["sample"]["lossless"] and not facts["sample"]["changed_by_normalizer"]
    tokens = {id_: token for token, id_ in tokenizer.get_vocab().items()}
    for name, ids in (("first_tokens", range(5)), ("last_tokens", range(295, 300))):
        assert facts[name] == {str(id_): tokens[id_] for id_ in ids}
    assert facts["name"] is None
    kept = ("max_id", "merges", "has_chat_template", "chat_templates", "truncation", "padding")
    assert facts.keys() >= {
        *kept,
        "accelerated",
        "bos_token",
        "eos_token",
        "pad_token",
        "unk_token",
    }


@pytest.mark.parametrize(
    ("surround", "before", "after"),
    [(None, ["<s>"], ["</s>"]), ("bos", ["<s>"], []), ("eos", [], ["</s>"]), ("none", [], [])],
)
def test_info_shows_what_train_puts_around_a_text(
    tmp_path: Path, corpus: Path, surround: str | None, before: list[str], after: list[str]
) -> None:
    options: tuple[object, ...] = (
        "--corpus",
        corpus,
        "--output",
        tmp_path / "new",
        "--vocab-size",
        "270",
    )
    options += ("--special-tokens", "<s>", "</s>")
    if surround:
        options += ("--surround", surround)
    assert run("train", *options).status == 0
    facts = json.loads(run("info", "--tokenizer", tmp_path / "new", "--json").out)
    assert (facts["before_text"], facts["after_text"]) == (before, after)
    shown = run("info", "--tokenizer", tmp_path / "new").out.decode()
    assert f"before text       : {'<s>' if before else 'none'}\n" in shown
    assert f"after text        : {'</s>' if after else 'none'}\n" in shown
    ids = [facts["special_tokens"][token] for token in before + after]
    for form in ("--text", "--file"):
        given = "" if form == "--text" else "-"
        options = ("--tokenizer", tmp_path / "new", form, given, "--json")
        done = run("encode", *options, "--add-special-tokens", stdin=b"")
        assert json.loads(done.out)["input_ids"] == ids


def test_info_for_people(tok: Path) -> None:
    shown = run("info", "--tokenizer", tok, "--sample-text", "the cat").out.decode()
    for fact in ("300", "gpt2", "<|endoftext|>", "<|pad|>", "the cat", "Ġcat"):
        assert fact in shown
    shown = run("info", "--tokenizer", tok).out.decode()
    for fact in ("first tokens", "'Ą'", "last tokens", "'<|pad|>'", "Hello, world!", "lossless"):
        assert fact in shown


def info(folder: Path, *options: object) -> dict[str, Any]:
    done = run("info", "--tokenizer", folder, "--json", *options)
    assert (done.status, done.err) == (0, "")
    facts: dict[str, Any] = json.loads(done.out)
    return facts


def test_info_shows_the_name(tok: Path, tmp_path: Path) -> None:
    BPETokenizer.from_file(tok).save(tmp_path, name="demo_tokenizer", verbose=False)
    assert info(tmp_path)["name"] == "demo_tokenizer"
    shown = run("info", "--tokenizer", tmp_path).out.decode()
    assert "name              : demo_tokenizer\n" in shown


def test_info_says_whether_a_text_survives(tok: Path, tmp_path: Path) -> None:
    made = BPETokenizer(normalizer="NFC").train("text " * 9, 260, verbose=False)
    made.save(tmp_path, verbose=False)
    for text, decoded in (("é", "é"), ("e\u0301", "é"), ("", "")):
        sample = info(tmp_path, "--sample-text", text)["sample"]
        assert (sample["decoded"], sample["lossless"]) == (decoded, True)
        assert sample["changed_by_normalizer"] == (text != decoded)
    data = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    data["normalizer"] = {"type": "Lowercase"}
    data["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [{"type": "CharDelimiterSplit", "delimiter": "-"}, data["pre_tokenizer"]],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    for text, expected in (("ab", (True, False)), ("aB", (True, True)), ("A-b", (False, False))):
        sample = info(tmp_path, "--sample-text", text)["sample"]
        assert (sample["lossless"], sample["changed_by_normalizer"]) == expected


def test_info_shows_no_control_characters_of_tokens(tmp_path: Path) -> None:
    made = BPETokenizer().train("text " * 9, 260, special_tokens=["\x1b[2J"], verbose=False)
    made.save(tmp_path, verbose=False)
    shown = run("info", "--tokenizer", tmp_path).out.decode()
    assert (
        "'\\x1b[2J'" in shown.partition("last tokens")[2]
        and "\x1b" not in shown.partition("first")[2]
    )


def test_chat_without_a_model_says_so(tok: Path) -> None:
    done = run("chat", "--tokenizer", tok, "--model", "model.gguf")
    assert (done.status, done.out) == (1, b"")
    assert_one_line(done.err)
    assert "model.gguf" in done.err


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What a model is asked, which answers in pieces; the tools, with their command, are away.

    `tests/test_module_alone.py` has the command with a real model.
    """
    calls: list[tuple[Any, ...]] = []

    def answer(tokenizer: BPETokenizer, talk: Any, path: Path, **options: Any) -> Any:
        calls.append((list(talk), {"model_path": path, **options}))
        return None, "18 tokens", iter(["An", "swer\x1b"])

    def choices(path: Path, found: Any, backend: str | None) -> Any:
        folder = Path(path) if Path(path, "tokenizer.json").exists() else None
        return [("mlx", SimpleNamespace(tokenizer=folder), None)]

    monkeypatch.setattr(bpe_tokenizer, "_start_answer", answer)
    monkeypatch.setattr(bpe_tokenizer, "_choices", choices)
    monkeypatch.setattr(bpe_tokenizer, "_describe", lambda path: [])
    monkeypatch.setattr(bpe_tokenizer, "_open_fitting", lambda *_: SimpleNamespace(context=64))
    monkeypatch.setattr(bpe_tokenizer, "_WITH_TOOLS", False)
    return calls


def test_chat_of_the_module_is_a_plain_loop(tok: Path, asked: list[tuple[Any, ...]]) -> None:
    chat = ("chat", "--tokenizer", tok, "--model", "m", "--system", "S", "--max-tokens", 7)
    more = ("--backend", "mlx", "--quiet")
    done = run(*chat, "--temperature", 0, *more, stdin=b"One\n \nTwo\n quit \nThree\n")
    assert done == Result(0, b"Answer\x1b\nAnswer\x1b\n", "")
    one, answer = {"role": "user", "content": "One"}, {"role": "assistant", "content": "Answer\x1b"}
    assert [talk for talk, _ in asked] == [[one], [one, answer, {**one, "content": "Two"}]]
    assert (
        asked[0][1]
        == asked[1][1]
        == {
            **{"model_path": "m", "template": None, "system_prompt": "S"},
            **{"max_new_tokens": 7, "temperature": 0.0, "top_p": 0.9},
            **{"n_gpu_layers": -1, "n_ctx": 8192, "backend": "mlx"},
        }
    )


@pytest.mark.parametrize(("message", "stdin"), [("Hi\nthere", b"no"), ("-", b"Hi\nthere")])
def test_chat_of_the_module_answers_one_message(
    tok: Path, asked: list[tuple[Any, ...]], message: str, stdin: bytes
) -> None:
    chat = ("chat", "--model", tok, "--message", message, "--json")  # the model's own tokenizer
    done = run(*chat, stdin=stdin)
    assert (done.status, json.loads(done.out)) == (0, {"text": "Answer\x1b"})
    assert [talk for talk, _ in asked] == [[{"role": "user", "content": "Hi\nthere"}]]


def test_chat_of_the_module_lets_no_control_character_reach_a_terminal(
    tok: Path, asked: list[tuple[Any, ...]]
) -> None:
    done = run("chat", "--tokenizer", tok, "--model", "m", "--message", "Hi", terminal=True)
    assert (done.status, done.out) == (0, b"Answer\\x1b\n")
    assert done.err.endswith("context 64\n18 tokens\n")


def test_an_error_does_not_carry_control_characters() -> None:
    done = run("info", "--tokenizer", "\x1b[31mred\x07")
    assert done.status == 1
    assert "\\x1b[31mred\\x07" in done.err and "\x1b" not in done.err


# -- help, version, quiet -----------------------------------------------------

OPTIONS = {
    "train": "--corpus --vocab-size --min-frequency --output --pattern --special-tokens"
    " --special-tokens-first --ties",
    "encode": "--tokenizer --text --file --show-tokens --allowed-special",
    "decode": "--tokenizer --ids --skip-special-tokens",
    "chat": "--tokenizer --model --template --system --max-tokens --temperature --top-p"
    " --n-gpu-layers --n-ctx --message --top-k --seed --stop --backend",
    "info": "--tokenizer --sample-text",
}


@pytest.mark.parametrize("command", OPTIONS)
def test_help_names_every_option(command: str) -> None:
    done = run(command, "--help")
    shown = done.out.decode()
    assert (done.status, done.err) == (0, "")
    for option in [*OPTIONS[command].split(), "--quiet", "--help"]:
        assert option in shown
    assert "--json" in shown


def test_help_of_all_names_every_command_and_pattern() -> None:
    done = run("--help")
    assert done.status == 0
    assert all(command in done.out.decode() for command in OPTIONS)
    assert all(name in run("train", "--help").out.decode() for name in SPLIT_PATTERNS)
    assert all(hasattr(ChatTemplate, n) for n in ("llama3", "chatml", "alpaca"))


def test_version() -> None:
    assert run("--version") == Result(
        0, f"bpe-tokenizer {bpe_tokenizer.__version__}\n".encode(), ""
    )


@pytest.mark.parametrize("command", ["train", "encode", "decode", "info"])
def test_quiet_is_silent_on_stderr(command: str, tok: Path, corpus: Path, tmp_path: Path) -> None:
    rest = {
        "train": ("--corpus", corpus, "--output", tmp_path / "t", "--vocab-size", 270),
        "encode": ("--tokenizer", tok, "--text", "x"),
        "decode": ("--tokenizer", tok, "--ids", "1"),
        "info": ("--tokenizer", tok),
    }[command]
    done = run(command, *rest, "--quiet")
    assert (done.status, done.err) == (0, "")
    assert bool(done.out) == (command != "train")


# -- errors -------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        "frobnicate",
        "encode",
        "encode --tokenizer t",
        "encode --tokenizer t --text x --file y",
        "encode --tokenizer t --text x --bogus",
        "encode --tokenizer t --text x --allowed-special some",
        "encode --tok t --text x",
        "decode --tokenizer t --ids",
        "train --corpus x",
        "train --corpus - x --output y",
        "train --corpus x --output y --vocab-size many",
        "train --corpus x --output y --normalizer ABC",
        "chat --tokenizer t --model m --template nosuch.jinja",
    ],
)
def test_wrong_usage_exits_with_2(argv: str) -> None:
    done = run(*argv.split())
    assert (done.status, done.out) == (2, b"")
    assert_one_line(done.err)
    assert "--help" in done.err


@pytest.mark.parametrize("command", ["encode", "decode", "info", "chat"])
def test_missing_tokenizer(command: str, tmp_path: Path) -> None:
    rest = {"encode": ("--text", "x"), "decode": ("--ids", 1), "chat": ("--model", "m")}
    done = run(command, "--tokenizer", tmp_path / "nosuch", *rest.get(command, ()))
    assert (done.status, done.out) == (1, b"")
    assert_one_line(done.err)
    assert "nosuch" in done.err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--corpus", "nosuch.txt"), "nosuch.txt"),
        (("--corpus", "corpus", "nosuch.txt"), "nosuch.txt"),
        (("--corpus", "corpus", "--pattern", "("), "pattern"),
        (("--corpus", "corpus", "--vocab-size", "10"), "vocab_size"),
        (("--corpus", "corpus", "--min-frequency", "-3"), "min_frequency"),
        (("--corpus", "corpus", "--num-workers", "0"), "num_workers"),
        (("--corpus", "corpus", "--special-tokens", "<a>=1"), "<a>"),
        (("--corpus", "corpus", "--special-tokens", "<a>=300", "<b>=300"), "<b>"),
    ],
)
def test_train_errors_leave_nothing_behind(
    options: tuple[str, ...], named: str, corpus: Path, tmp_path: Path
) -> None:
    filled = [str(corpus) if item == "corpus" else item for item in options]
    done = run("train", *filled, "--output", tmp_path / "t")
    assert (done.status, done.out) == (1, b"")
    assert_one_line(done.err)
    assert named in done.err
    assert not (tmp_path / "t").exists()


def test_unwritable_output(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here already")
    for output in (tmp_path / "file", tmp_path / "file" / "below"):
        options = ("--output", output, "--vocab-size", 270, "--quiet")
        done = run("train", "--corpus", corpus, *options)
        assert (done.status, done.out) == (1, b"")
        assert_one_line(done.err)
    assert (tmp_path / "file").read_text() == "here already"


@pytest.mark.parametrize("ids", [("x",), ("1", "2.5"), ("-1",), ("0x10",), ("1e3",)])
def test_bad_ids(tok: Path, ids: tuple[str, ...]) -> None:
    done = run("decode", "--tokenizer", tok, "--ids", *ids)
    assert (done.status, done.out) == (1, b"")
    assert_one_line(done.err)
    assert ids[-1] in done.err


@pytest.mark.parametrize("command", ["encode", "decode"])
def test_failing_json_leaves_no_half_written_object(tok: Path, command: str) -> None:
    rest = ("--ids", 72, 105, "x") if command == "decode" else ("--text", "-")
    done = run(command, "--tokenizer", tok, *rest, "--json", stdin=b"some text, then \xff")
    assert (done.status, done.out) == (1, b"")
    assert_one_line(done.err)


def test_bad_utf8_is_named_by_its_place(tok: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good \xff bad")
    runs = [
        run("encode", "--tokenizer", tok, "--file", bad),
        run("encode", "--tokenizer", tok, "--text", "-", stdin=bad.read_bytes(), block=2),
        run("train", "--corpus", bad, "--output", tmp_path / "t"),
        run("train", "--corpus", "-", "--output", tmp_path / "t", stdin=bad.read_bytes()),
    ]
    for done in runs:
        assert done.status == 1
        assert_one_line(done.err)
        assert "byte 5" in done.err and "UTF-8" in done.err


def test_missing_file(tok: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "nosuch.txt", tmp_path):
        done = run("encode", "--tokenizer", tok, "--file", path)
        assert (done.status, done.out) == (1, b"")
        assert_one_line(done.err)
        assert str(path) in done.err


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "",
        lambda text: text.replace('"BPE"', '"WordPiece"'),
        lambda text: json.dumps({**json.loads(text), "model": None}),
        lambda text: "[" * 200_000,
    ],
)
def test_damaged_tokenizer(tok: Path, tmp_path: Path, damage: object) -> None:
    text = (tok / "tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text(damage(text), encoding="utf-8")
    done = run("encode", "--tokenizer", tmp_path, "--text", "x")
    assert (done.status, done.out) == (1, b"")
    assert_one_line(done.err)
    assert "tokenizer.json" in done.err


# -- as a process -------------------------------------------------------------


@pytest.mark.parametrize("how", [[str(SCRIPT)], ["-m", "bpe_tokenizer"]])
def test_ways_to_start_it(how: list[str], tok: Path, tmp_path: Path) -> None:
    command = [sys.executable, *how, "encode", "--tokenizer", str(tok), "--text", "Hi"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"Token count : ")
    wrong = subprocess.run([*command, "--bogus"], capture_output=True, env=environment())
    assert (wrong.returncode, wrong.stdout) == (2, b"")


def test_training_in_processes_from_the_script(corpus: Path, tmp_path: Path) -> None:
    big = tmp_path / "big.txt"
    big.write_bytes(corpus.read_bytes() * 6000)  # enough that workers start
    options = ["--output", str(tmp_path / "t"), "--vocab-size", "270", "--num-workers", "2"]
    done = spawn("train", "--corpus", big, *options, "--quiet")
    assert (*done.communicate(timeout=600), done.returncode) == (b"", b"", 0)


def test_installed_command_points_here() -> None:
    try:
        distribution = importlib.metadata.distribution("bpe-tokenizer")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("bpe-tokenizer is not installed here, only on the path")
    commands = {e.name: e for e in distribution.entry_points if e.group == "console_scripts"}
    assert commands["bpe-tokenizer"].load() is start.main


@pytest.mark.parametrize("utf8_mode", ["0", "1"])
def test_locale_does_not_matter(tok: Path, utf8_mode: str) -> None:
    env = environment(LC_ALL="C", PYTHONUTF8=utf8_mode, PYTHONCOERCECLOCALE="0")
    base = [sys.executable, str(SCRIPT)]
    encode = [*base, "encode", "--tokenizer", str(tok), "--text", "-"]
    encoded = subprocess.run(encode, input=TEXT.encode(), capture_output=True, env=env)
    assert (encoded.returncode, encoded.stderr) == (0, b"")
    decode = [*base, "decode", "--tokenizer", str(tok), "--ids"]
    decoded = subprocess.run([*decode, "-"], input=encoded.stdout, capture_output=True, env=env)
    assert decoded.stdout == TEXT.encode()
    ids = encoded.stdout.decode().split()
    shown = subprocess.run([*decode, *ids], capture_output=True, env=env)
    assert "東京 🙂" in shown.stdout.decode()


@POSIX
@pytest.mark.parametrize("argument", ["-", "file"])
def test_a_reader_that_leaves_is_no_error(tok: Path, tmp_path: Path, argument: str) -> None:
    big = tmp_path / "big.txt"
    big.write_bytes(TEXT.encode() * 20_000)
    with big.open("rb") as stdin:
        source = "-" if argument == "-" else big
        child = spawn("encode", "--tokenizer", tok, "--file", source, stdin=stdin)
        assert child.stdout.read(100)
        child.stdout.close()
        err = child.stderr.read()
        child.stderr.close()
        assert child.wait(timeout=600) in (0, 128 + signal.SIGPIPE)
    assert err == b""


@POSIX
def test_interrupted_encode_ends_in_one_line(tok: Path) -> None:
    unbuffered = environment(PYTHONUNBUFFERED="1")  # Python 3.14 buffers more than a pipe holds
    child = spawn("encode", "--tokenizer", tok, "--text", "-", env=unbuffered)
    child.stdin.write(TEXT.encode() * 200)  # less than pipes hold
    child.stdin.flush()
    assert child.stdout.read(10)  # it is at work, and waits for more
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=600)
    assert child.returncode == 128 + signal.SIGINT
    assert_one_line(err.decode())


INSTALLED = "import sys; from bpe_tokenizer_tools.start import main; sys.exit(main())"
STARTS = {
    "script": [str(SCRIPT)],
    "module": ["-m", "bpe_tokenizer"],
    "installed": ["-c", INSTALLED],
}
IGNORING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@POSIX
@pytest.mark.parametrize("start", STARTS)
def test_interrupted_imports_end_without_a_traceback(start: str, tmp_path: Path) -> None:
    env = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), str(SCRIPT.parent)]))
    command = STARTS[start]
    if start == "script":  # its own folder comes first, where the real `regex` may be installed
        command = [shutil.copy(SCRIPT, tmp_path)]

    def interrupted(then: str, *before: str) -> tuple[int, bytes]:
        stub = f"import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\n{then}\n"
        (tmp_path / "regex.py").write_text(stub)
        words = [sys.executable, *before, *command, "info", "x"]
        done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, timeout=600)
        return done.returncode, done.stderr

    assert interrupted("time.sleep(60)") == (-signal.SIGINT, b"")
    # As nohup and a shell's & have it, Ctrl-C is ignored.
    assert interrupted("raise SystemExit(7)", "-c", IGNORING) == (7, b"")


@pytest.mark.parametrize("step", ["_build_parser", "_Parser.parse_known_args"])
def test_interrupted_reading_of_arguments(
    step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    owner, _, name = step.rpartition(".")
    monkeypatch.setattr(getattr(bpe_tokenizer, owner) if owner else bpe_tokenizer, name, interrupt)
    assert main(["info", "x"]) == 128 + signal.SIGINT
    assert_one_line(capsys.readouterr().err)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("device", ["/dev/full", "/dev/zero"])
@pytest.mark.parametrize(
    "words",
    [
        "encode --file DEVICE -t TOK",
        "train DEVICE -o new",
        "tokens DEVICE -t TOK",
        "chunk DEVICE -t TOK",
        "view --file DEVICE -t TOK",
        "learn DEVICE",
        "register TOK x --registry r --report DEVICE",
        "count DEVICE -o counts",
        "info DEVICE",
        "train --counts DEVICE -o new",
    ],
)
def test_devices_that_never_end_are_refused(
    words: str, device: str, tok: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*words.replace("DEVICE", device).replace("TOK", str(tok)).split())
    assert done.status == 1
    assert_one_line(done.err)
    refused = ("is a device that never ends", "regular file", "expected a file or a directory")
    assert any(problem in done.err for problem in refused), done.err


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="there is no /dev/null")
def test_the_empty_device_is_an_empty_file(tok: Path) -> None:
    done = run("encode", "--file", "/dev/null", "-t", tok, "--json")
    assert json.loads(done.out) == {"token_count": 0, "input_ids": []}


@POSIX
def test_interrupted_training_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    options = ("--output", tmp_path / "t", "--num-workers", 2)
    child = spawn("train", "--corpus", "-", *options, start_new_session=True)
    for _ in range(24):  # past the size from which workers count
        child.stdin.write(TEXT.encode() * 12_000)
    child.stdin.flush()
    os.killpg(child.pid, signal.SIGINT)  # Ctrl-C reaches workers, too
    _, err = child.communicate(timeout=600)
    assert child.returncode == 128 + signal.SIGINT
    assert_one_line(err.decode())
    assert not (tmp_path / "t").exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(child.pid, 0)


def peak_of_piped_encode(tok: Path, copies: int) -> int:
    """Pipe text through `encode` in its own process; return its peak memory in KiB."""
    # NOTE: VmHWM, not ru_maxrss, which a child inherits from this much larger process.
    program = (
        "import sys, bpe_tokenizer\n"
        f"assert bpe_tokenizer.main(['encode', '--tokenizer', {str(tok)!r}, '--text', '-']) == 0\n"
        "status = open('/proc/self/status').read()\n"
        "print(status.split('VmHWM:')[1].split()[0], file=sys.stderr)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    block = TEXT.encode() * 10_000  # about a megabyte

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError), child.stdin:
            for _ in range(copies):
                child.stdin.write(block)

    feeder = threading.Thread(target=feed)
    feeder.start()
    err = child.stderr.read().decode()
    feeder.join()
    child.stderr.close()
    assert child.wait() == 0, err
    return int(err)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_memory_does_not_grow_with_a_piped_text(tok: Path) -> None:
    few, many = peak_of_piped_encode(tok, 4), peak_of_piped_encode(tok, 40)
    assert many - few < 16 * 1024, f"{few} KiB for 4 MB, {many} KiB for 40 MB"
