"""Counting and packing at scale: exact, whatever the files, the engine and the memory allowed."""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import http.server
import importlib
import json
import lzma
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import regex
from conftest import run_command
from oracles import REQUIRED, need, spans

import bpe_tokenizer as core
from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, FileFormatError, PretokenCounts
from bpe_tokenizer_tools.scale import (
    CountJob,
    PackJob,
    count_pretokens,
    count_shard,
    counting,
    encode_corpus,
    encode_shard,
    inputs,
    job_folder,
    merge_counts,
    open_packed,
    packing,
    partition_of,
    runs,
)
from bpe_tokenizer_tools.support import outputs

END = "<|endoftext|>"
# Everything that could be cut at a wrong place: blank lines, runs of spaces, what NFC joins.
DOCUMENTS = [
    "Low lower lowest.\n\n\n  newer   newest\r\n\tidea",
    "cafe\u0301 Zoe\u0308 e\u0301te\u0301\u0301 \u1100\u1161\u11a8 \u212b ﬁn",
    "世界, мир; 123456 'll don't WE'RE  \u00a0\u2003 x",
    "🙂🙃 \u200d a\u0000b \ufeff tail   ",
    " ",
    "<s>token</s> in a text <s>",
    "the same the same\nthe same",
]
ROWS = [*DOCUMENTS, "in a row"]
PATTERNS = ["gpt2", "cl100k", r"\s+|\S{1,4}", "[a-z]+"]


def naive(
    documents: Iterable[str],
    pattern: str = "gpt2",
    normalizer: str | None = "NFC",
    special_tokens: Sequence[str] = (),
) -> dict[bytes, int]:
    """Count by the words of the definition: cut, normalize, split; no text is dropped."""
    counts: Counter[bytes] = Counter()
    for document in documents:
        cuts = "|".join(map(regex.escape, sorted(special_tokens, key=len, reverse=True)))
        for text in regex.split(cuts, document) if cuts else [document]:
            text = core._normalize(text, normalizer)
            end = 0
            for start, stop in spans(SPLIT_PATTERNS.get(pattern, pattern), text):
                counts.update([text[end:start].encode(), text[start:stop].encode()])
                end = stop
            counts[text[end:].encode()] += 1
    del counts[b""]
    return dict(counts)


def packed_as(data: bytes, suffix: str) -> bytes:
    if suffix == ".zst":
        zstd = need("backports.zstd")
        return bytes(zstd.compress(data))
    pack: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress
    }  # fmt: skip
    return pack[suffix](data) if suffix else data


def as_jsonl(documents: Iterable[str], field: str = "text") -> bytes:
    records = [json.dumps({field: text, "n": n}) for n, text in enumerate(documents)]
    return "\n".join([*records, "", ""]).encode()


def as_text(documents: Iterable[str], separator: str = END) -> bytes:
    return separator.join(documents).encode()


def write_parquet(path: Path, documents: Sequence[str | None], field: str = "text") -> None:
    arrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    table = arrow.table({"n": list(range(len(documents))), field: list(documents)})
    parquet.write_table(table, path, row_group_size=3)


def there_is(module: str) -> bool:
    """Return whether a library is here; where it is required, it must be."""
    if module in REQUIRED:
        return True
    with contextlib.suppress(ImportError):
        return importlib.import_module(module) is not None
    return False


SUFFIXES = ["", ".gz", ".xz", ".bz2", *([".zst"] if there_is("backports.zstd") else [])]
N_FILES = 2 * len(SUFFIXES) + there_is("pyarrow.parquet")


def write_corpus(folder: Path) -> list[str]:
    """Write files of every kind, and some to be left alone; return their documents, in order."""
    texts: dict[str, list[str]] = {}
    for number, suffix in enumerate(SUFFIXES):
        for kind, content in (("txt", as_text), ("jsonl", as_jsonl)):
            documents = [*DOCUMENTS[number:], f"only in {kind} {number}"]
            path = folder / f"part {number % 2}" / f"{kind}-{number}.{kind}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(packed_as(content(documents), suffix))
            texts[path.as_posix()] = documents
    if there_is("pyarrow.parquet"):
        write_parquet(folder / "rows.parquet", ROWS)
        texts[(folder / "rows.parquet").as_posix()] = ROWS
    (folder / ".hidden.txt").write_bytes(b"\xff")
    (folder / ".git").mkdir()
    (folder / ".git" / "config.txt").write_bytes(b"\xff")
    return [document for label in sorted(texts) for document in texts[label]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("scale") / "corpus"
    return folder, write_corpus(folder)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is read and counted at a time be so little that all borders are met."""
    monkeypatch.setattr(inputs, "_BLOCK", 7)
    monkeypatch.setattr(inputs, "_LONG", 10)  # so that documents that come at once are cut, too
    monkeypatch.setattr(counting, "_CHUNK", 1)
    monkeypatch.setattr(packing, "_TOKENS_AT_ONCE", 3)
    monkeypatch.setattr(core._PretokenCounter, "_BATCH_CHARS", 5)


# -- Counts -------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("normalizer", ["NFC", "NFKD", None])
@pytest.mark.parametrize("special_tokens", [(), ("<s>", "</s>", "<s>t")])
def test_counts_are_those_of_the_documents(
    corpus: tuple[Path, list[str]],
    pattern: str,
    normalizer: str | None,
    special_tokens: tuple[str, ...],
) -> None:
    folder, documents = corpus
    options: dict[str, Any] = {"special_tokens": special_tokens, "normalizer": normalizer}
    counts = count_pretokens(folder, pattern, separator=END, num_workers=1, **options)
    assert counts == naive(documents, pattern, normalizer, special_tokens)
    whole = core.count_pretokens(documents, pattern, **options)
    assert (counts, vars(counts)) == (whole, vars(whole))
    assert counts.documents == len(documents)
    assert counts.bytes_read == sum(len(document.encode()) for document in documents)


def test_two_processes_count_as_one(corpus: tuple[Path, list[str]]) -> None:
    folder, documents = corpus
    counts = count_pretokens(folder, "cl100k", separator=END, num_workers=2, special_tokens=["<s>"])
    assert counts == naive(documents, "cl100k", "NFC", ["<s>"])
    assert counts.documents == len(documents)


def test_a_file_is_one_document_unless_something_separates_them(tmp_path: Path) -> None:
    text = END.join(DOCUMENTS)
    for suffix in SUFFIXES:
        path = tmp_path / f"x.txt{suffix}"
        path.write_bytes(packed_as(text.encode(), suffix))
        one = count_shard(path)
        assert (one, one.documents) == (naive([text]), 1)
        many = count_shard(path, separator=END)
        assert (many, many.documents) == (naive(DOCUMENTS), len(DOCUMENTS))
    assert one != many


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("block", [1, 2, 3, 5, 12, 13, 14])
@pytest.mark.parametrize("separator", [END, "\n\n", "e", "\u0301"])
def test_separators_and_characters_across_the_borders_of_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, separator: str
) -> None:
    monkeypatch.setattr(inputs, "_BLOCK", block)
    text = END.join(["", *DOCUMENTS, "", ""])
    (tmp_path / "x.txt").write_bytes(text.encode())
    pieces = [piece for piece in text.split(separator) if piece]
    counts = count_shard(tmp_path / "x.txt", separator=separator)
    assert (counts, counts.documents) == (naive(pieces), len(pieces))
    assert count_shard(tmp_path / "x.txt") == naive([text])


def test_one_long_document_is_counted_as_a_whole(tmp_path: Path) -> None:
    text = "".join(f"{' ' * (n % 5)}word{n % 997}{DOCUMENTS[n % 7]}\n" for n in range(40_000))
    assert len(text) > 2**20  # more than is read at a time
    (tmp_path / "x.txt").write_bytes(text.encode())
    assert count_shard(tmp_path / "x.txt") == naive([text])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("partitions", [1, 3, 64])
def test_spilling_and_partitions_change_nothing(
    corpus: tuple[Path, list[str]], tmp_path: Path, partitions: int
) -> None:
    folder, documents = corpus
    job = CountJob(
        folder, separator=END, num_workers=1, max_keys=3, partitions=partitions, work_dir=tmp_path
    )
    assert job.counts() == naive(documents)
    markers = [json.loads(path.read_bytes()) for path in tmp_path.glob("*.json")]
    runs_of = [len(marker["runs"]) for marker in markers if "runs" in marker]
    assert len(runs_of) == N_FILES and min(runs_of) > 2
    of = {
        number: job_counts
        for number in range(partitions)
        if (job_counts := partition_in(tmp_path, number))
    }
    assert sum(map(len, of.values())) == len(naive(documents))
    assert all(partition_of(key, partitions) == n for n, counts in of.items() for key in counts)


def partition_in(folder: Path, number: int) -> dict[bytes, int]:
    marker = json.loads((folder / f"partition-{number:05}.json").read_bytes())
    piece = runs.Piece(*marker["piece"])
    read = dict(runs.read_piece(folder / f"partition-{number:05}.counts", piece))
    assert list(runs.scan_piece(folder / f"partition-{number:05}.counts", piece)) == [*read.items()]
    return read


@pytest.mark.skipif(os.name == "nt", reason="limits of a process are those of POSIX")
def test_more_partitions_than_files_may_be_open(
    corpus: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = need("resource")
    monkeypatch.setattr(runs, "_BLOCK", 8)
    folder, documents = corpus
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))
    try:
        job = CountJob(folder, separator=END, num_workers=1, partitions=100)
        job.to_file(tmp_path / "counts.json")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert PretokenCounts.load(tmp_path / "counts.json") == naive(documents)


def test_only_what_is_rare_in_all_is_cut(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(f"often often {'abcde'[number]}", encoding="utf-8")
    assert count_pretokens(tmp_path, min_frequency=5, num_workers=1) == {b"often": 5, b" often": 5}
    assert count_pretokens(tmp_path, min_frequency=6, num_workers=1) == {}
    parts = [count_shard(path) for path in sorted(tmp_path.glob("*.txt"))]
    assert merge_counts(parts, 5) == {b"often": 5, b" often": 5}
    assert merge_counts(parts) == naive(path.read_text() for path in tmp_path.glob("*.txt"))


def test_a_file_of_counts_is_what_saved_counts_are(
    corpus: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, documents = corpus
    for min_frequency in (1, 2, 1000):
        job = CountJob(folder, "cl100k", separator=END, num_workers=1, partitions=7)
        report = job.to_file(tmp_path / "counts.json", min_frequency)
        whole = core.count_pretokens(documents, "cl100k")
        assert (report.pretokens, report.distinct) == (sum(whole.values()), len(whole))
        for pretoken in [key for key, count in whole.items() if count < min_frequency]:
            del whole[pretoken]
        whole.save(tmp_path / "whole.json")
        assert (tmp_path / "counts.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
        loaded = PretokenCounts.load(tmp_path / "counts.json")
        assert (loaded, vars(loaded), report.left) == (whole, vars(whole), len(whole))
    assert not loaded


# -- Which files --------------------------------------------------------------


def labels(*paths: str | Path) -> list[str]:
    return [shard.label for shard in inputs.find_shards(paths)]


def test_which_files_are_shards(
    corpus: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = corpus
    monkeypatch.chdir(folder.parent)
    every = labels("corpus")
    assert len(every) == N_FILES and every == sorted(every)
    assert labels("corpus/part 1/*.txt*", "corpus/part 1/") == [
        label for label in every if "part 1" in label
    ]
    assert labels("corpus/**/txt-*.gz") == ["corpus/part 1/txt-1.txt.gz"]
    # the same file by another name is no other file; the first name in the order stands
    assert labels("corpus", "./corpus//part 1/txt-1.txt.gz", "corpus/part 1/") == every
    assert labels("corpus", "corpus/../corpus")[0].startswith("corpus/../corpus/")
    assert len(labels("corpus", "corpus/../corpus")) == len(every)
    assert labels(folder, "corpus") == [str(folder.parent / label) for label in every]
    file = folder / "part 0" / "jsonl-0.jsonl"
    link = tmp_path / "link.jsonl"
    link.symlink_to(file)
    assert len(labels(link, file)) == 1
    assert count_pretokens([file, link, file], num_workers=1) == count_shard(file)


def test_names_of_files_that_are_hard_to_read(tmp_path: Path) -> None:
    names = ["a?b.jsonl", "#.jsonl", "x y.jsonl.gz", "[0-9].jsonl", "é.JSONL", "-.jsonl.GZ"]
    if os.name == "posix":
        names.append(os.fsdecode(b"\xff.jsonl"))
    for name in names:
        data = as_jsonl([f"in {name!a}"])
        (tmp_path / name).write_bytes(gzip.compress(data) if name.lower().endswith("gz") else data)
    assert count_pretokens(tmp_path, num_workers=1) == naive(f"in {name!a}" for name in names)
    assert count_shard(tmp_path / "[0-9].jsonl") == naive(["in '[0-9].jsonl'"])
    outputs = [shard.name for shard in inputs.find_shards(tmp_path)]
    assert len(set(outputs)) == len(names)
    assert all(regex.fullmatch(r"[A-Za-z0-9_-][\w.-]*-[0-9a-f]{12}", name) for name in outputs)


def test_no_such_files(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for paths, said in (
        ([], "expected paths of a corpus, got none"),
        ([""], "expected paths of a corpus, got ''"),
        ([tmp_path / "x.txt"], f"no such file or directory: {tmp_path / 'x.txt'}"),
        ([tmp_path / "*.txt"], f"no file matches {tmp_path / '*.txt'}"),
        ([empty], f"the corpus is empty: expected files in the directory {empty}"),
        ([os.devnull], f"{os.devnull} is not a regular file, and has to be read twice"),
    ):
        with pytest.raises((ValueError, FileNotFoundError)) as caught:
            count_pretokens(paths, num_workers=1)
        assert core._one_line(caught.value) == said
    with pytest.raises(TypeError, match="expected paths, got an item of type int"):
        count_pretokens([3], num_workers=1)  # type: ignore[list-item]


def test_nothing_is_counted_in_nothing(tmp_path: Path) -> None:
    """One shard may be empty, not all of them."""
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").touch()
    (texts / "b.txt").write_text("<|x|><|x|>")
    options: dict[str, Any] = {"special_tokens": ["<|x|>"], "num_workers": 1}
    for min_frequency in (1, 9):
        with pytest.raises(ValueError, match="the corpus is empty: expected text"):
            count_pretokens(texts, min_frequency=min_frequency, **options)
    assert count_shard(texts / "a.txt") == {}
    output = tmp_path / "counts.json"
    command = ["count", str(texts), "--output", str(output), "--special-tokens", "<|x|>"]
    assert core.main([*command, "--num-workers", "1", "--quiet"]) == 1
    assert not output.exists()
    (texts / "c.txt").write_text("text")
    assert count_pretokens(texts, **options) == {b"text": 1}
    assert core.main([*command, "--num-workers", "1", "--quiet"]) == 0
    assert core.PretokenCounts.load(output) == {b"text": 1}


# -- Files elsewhere ----------------------------------------------------------


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; of a file whose name says so, less than it promised."""

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def copyfile(self, source: Any, outputfile: Any) -> None:
        if "cut short" in self.translate_path(self.path):
            outputfile.write(source.read(10))
            return
        super().copyfile(source, outputfile)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_files_by_fsspec(corpus: tuple[Path, list[str]], tmp_path: Path) -> None:
    need("fsspec")
    folder, documents = corpus
    counts = count_pretokens(folder.as_uri(), separator=END, num_workers=1)
    assert (counts, counts.documents) == (naive(documents), len(documents))
    some = count_pretokens(f"file://{folder.as_posix()}/part 0/*.jsonl*", num_workers=1)
    assert some == count_pretokens(f"{folder}/part 0/*.jsonl*", num_workers=1)
    with pytest.raises(FileNotFoundError, match="x.txt: no such file, and no file matches"):
        count_pretokens((folder / "x.txt").as_uri(), num_workers=1)
    with pytest.raises(ValueError, match="nosuch://x: fsspec cannot read this: Protocol not known"):
        count_pretokens("nosuch://x", num_workers=1)
    with pytest.raises(ValueError, match="a URL within a URL cannot be read; unpack or copy it"):
        count_pretokens("zip://x.txt::file:///x.zip", num_workers=1)
    with pytest.raises(ValueError, match=r"^\.\.\.@host/x: no passwords in URLs"):
        count_pretokens("ftp://me:secret@host/x", num_workers=1)
    with pytest.raises(TypeError, match="special_tokens must be a list of texts, got '<x>'"):
        count_pretokens(folder, special_tokens="<x>", num_workers=1)


def test_a_file_by_fsspec_that_has_changed_is_read_again(tmp_path: Path) -> None:
    need("fsspec")
    path = tmp_path / "x.txt"
    for text in ("one two", "two one", "two one three"):
        path.write_text(text, encoding="utf-8")
        assert count_pretokens(path.as_uri(), work_dir=tmp_path / "w", num_workers=1) == naive(
            [text]
        )


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_files_by_http(corpus: tuple[Path, list[str]], tmp_path: Path) -> None:
    need("fsspec")
    need("aiohttp")
    folder, documents = corpus
    (tmp_path / "links.html").write_text('<a href="x.txt">x</a> text', encoding="utf-8")
    (tmp_path / "cut short.txt").write_bytes(b"text " * 100)
    (tmp_path / "cut short.txt.gz").write_bytes(gzip.compress(os.urandom(1000)))
    with served(folder) as url:
        for path in (f"{url}/part%200/txt-2.txt.xz", f"{url}/part%200/txt-2.txt.xz?x=1.y"):
            counts = count_pretokens(path, separator=END, num_workers=1)
            assert counts == naive([*DOCUMENTS[2:], "only in txt 2"])
        if there_is("pyarrow.parquet"):
            assert count_shard(f"{url}/rows.parquet") == naive(ROWS)
        all_of = count_pretokens(
            [f"{url}/part%20{n}/" for n in (0, 1)], separator=END, num_workers=1
        )
        assert all_of == count_pretokens(folder / "part */*", separator=END, num_workers=1)
        missing = pytest.raises(FileNotFoundError, match="/none.txt: no such file")
        with missing:
            count_shard(f"{url}/none.txt")
    with served(tmp_path) as url:
        # a page of links is a file, unless it is named as a directory
        assert count_shard(f"{url}/links.html") == naive(['<a href="x.txt">x</a> text'])
        for name in ("cut%20short.txt", "cut%20short.txt.gz"):
            with pytest.raises(OSError) as caught:
                count_shard(f"{url}/{name}")
            assert core._one_line(caught.value).startswith(f"{url}/{name}: cannot be read: ")


def test_notices_of_ray_are_no_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def notice(*_: Any) -> None:
        print("(raylet) The node has been marked dead")
        raise ValueError("the job's own error")

    (tmp_path / "a.txt").write_text("text")
    BPETokenizer().train("low lower", 257, verbose=False).save(tmp_path / "t", verbose=False)
    monkeypatch.setattr(CountJob, "to_file", notice)
    monkeypatch.setattr(PackJob, "run", notice)
    for command in (["count"], ["pack", "--tokenizer", str(tmp_path / "t")]):
        where = [str(tmp_path / "a.txt"), "--output", str(tmp_path / "out")]
        assert core.main([*command, *where, "--executor", "ray"]) == 1
        told = capsys.readouterr()
        assert (told.out, told.err) == ("", "bpe-tokenizer: error: the job's own error\n")


def test_a_missing_library_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.zst").write_bytes(b"")
    (tmp_path / "x.parquet").write_bytes(b"")
    missing = ("fsspec", "pyarrow", "ray", "backports", "compression")
    for name in [*sys.modules, *missing]:
        if name.split(".")[0] in missing:
            monkeypatch.setitem(sys.modules, name, None)
    for path, said in (
        ("http://127.0.0.1/x", "fsspec"),
        (tmp_path / "x.parquet", "pyarrow"),
        (tmp_path / "x.zst", "backports.zstd"),
    ):
        with pytest.raises(ImportError, match=f"pip install .*{said}") as caught:
            count_pretokens(path, num_workers=1)
        assert "\n" not in str(caught.value)
    with pytest.raises(ImportError, match="pip install .*ray"):
        count_pretokens(tmp_path / "x.zst", executor="ray")


# -- Training from counts -----------------------------------------------------


def saved(folder: Path) -> bytes:
    return (folder / "tokenizer.json").read_bytes()


def test_training_from_counts_is_training_on_the_corpus(
    corpus: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, documents = corpus
    special = ["<s>", "</s>"]
    counts = count_pretokens(folder, "cl100k", separator=END, special_tokens=special, num_workers=1)
    options: dict[str, Any] = {"vocab_size": 330, "special_tokens": special, "verbose": False}
    by_counts = BPETokenizer("cl100k").train(counts=counts, **options)
    by_corpus = BPETokenizer("cl100k").train(documents, num_workers=1, **options)
    assert by_counts == by_corpus
    assert len(by_counts) == 330
    with pytest.raises(ValueError, match="counts were made with pattern"):
        BPETokenizer("gpt2").train(counts=counts, **options)


def test_the_commands_count_and_train(
    corpus: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = corpus
    run = functools.partial(run_command, capsys)
    rows = folder / "part 0" / "jsonl-0.jsonl"
    counts, tok = tmp_path / "counts.json", tmp_path / "tok"
    same = ("--pattern", "cl100k", "--normalizer", "NFKC")
    how = (*same, "--special-tokens", "<s>", "--quiet")
    assert run("count", rows, "-o", counts, "--num-workers", 1, *how) == (0, "", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts.json"]
    size = ("--vocab-size", 300, "--special-tokens", "<s>", "--quiet")
    assert run("train", "--counts", counts, "--output", tok, *size) == (0, "", "")
    by_corpus = ("--output", tmp_path / "b", *size, *same)
    assert run("train", "--corpus", rows, *by_corpus) == (0, "", "")
    assert saved(tok) == saved(tmp_path / "b")
    loaded = BPETokenizer.from_pretrained(tok, verbose=False)
    assert (loaded.split_pattern, loaded.normalizer) == (SPLIT_PATTERNS["cl100k"], "NFKC")
    for given in (("--pattern", "gpt2"), ("--normalizer", "NFC"), ("--normalizer", "none")):
        status, out, err = run("train", "--counts", counts, "--output", tmp_path / "c", *given)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert "these counts were made with pattern" in err and "count again" in err
    assert not (tmp_path / "c").exists()
    assert run("train", "--counts", counts, "--output", tmp_path / "d", *size, *same)[0] == 0
    assert saved(tok) == saved(tmp_path / "d")


def test_shares_of_counting_on_the_command_line(
    corpus: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, documents = corpus
    base = ("count", folder, "--separator", END, "--num-workers", 1, "--json", "--quiet")
    shared = ("--work-dir", tmp_path / "w")
    done = 0
    for index in (2, 0, 1):
        share = ("--shard-index", index, "--num-shards", 3)
        status, out, err = run_command(capsys, *base, *shared, *share)
        assert (status, err) == (0, "")
        done += json.loads(out)["shards"]
    assert done == N_FILES
    status, out, err = run_command(capsys, *base, *shared, "-o", tmp_path / "c.json")
    report = json.loads(out)
    assert (status, err, report["shards"], report["kept"]) == (0, "", N_FILES, N_FILES)
    assert PretokenCounts.load(tmp_path / "c.json") == naive(documents)
    for wrong in (
        ("--shard-index", 0),
        ("--num-shards", 3),
        ("--shard-index", 0, "--num-shards", 3),
    ):
        assert run_command(capsys, *base, *wrong)[0] == 2
    elsewhere = ("--work-dir", tmp_path / "not made")
    status, _, err = run_command(capsys, *base, *elsewhere, "--shard-index", 3, "--num-shards", 3)
    assert (status, err.count("\n")) == (1, 1)
    assert "shard_index must be from 0 to 2, got 3" in err
    assert not elsewhere[1].exists()


# -- Packs --------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(engine: str) -> BPETokenizer:
    need("numpy")
    trained = BPETokenizer("cl100k").train(
        DOCUMENTS, 300, special_tokens=["<s>", "</s>", END], verbose=False, num_workers=1
    )
    trained.eos_token = END
    return trained


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def documents_in(folder: Path) -> list[list[int]]:
    corpus = open_packed(folder)
    return [corpus[number].tolist() for number in range(len(corpus))]


@pytest.mark.parametrize("layout", ["bin", "megatron", "parquet"])
def test_ids_are_those_of_each_document(
    corpus: tuple[Path, list[str]], tmp_path: Path, tokenizer: BPETokenizer, layout: str
) -> None:
    if layout == "parquet":
        need("pyarrow")
    folder, documents = corpus
    options: dict[str, Any] = {"format": layout, "separator": END, "num_workers": 1}
    report = encode_corpus(tokenizer, folder, tmp_path / "a", **options)
    eot = tokenizer.eos_token_id
    expected = [[*tokenizer.encode(document), eot] for document in documents]
    found = packed_documents(tmp_path / "a", layout)
    assert found == expected
    sizes = (len(documents), sum(map(len, expected)), sum(len(d.encode()) for d in documents))
    assert (report.documents, report.tokens, report.bytes) == sizes
    assert report.bytes_per_token == sizes[2] / sizes[1]
    assert report.dtype == ("int32" if layout == "parquet" else "uint16")

    options.update(bos="<s>", eot="", allowed_special={"</s>"})
    encode_corpus(tokenizer, folder, tmp_path / "b", **options)
    bos = tokenizer.convert_tokens_to_ids("<s>")
    with_special = [tokenizer.encode(d, allowed_special={"</s>"}) for d in documents]
    assert packed_documents(tmp_path / "b", layout) == [[bos, *ids] for ids in with_special]
    assert with_special != [tokenizer.encode(document) for document in documents]


def packed_documents(folder: Path, layout: str) -> list[list[int]]:
    if layout != "parquet":
        return documents_in(folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    parquet = need("pyarrow.parquet")
    tables = [parquet.read_table(folder / f"{s['name']}.parquet") for s in manifest["shards"]]
    return [ids for table in tables for ids in table["input_ids"].to_pylist()]


def test_ids_are_those_of_huggingface(
    corpus: tuple[Path, list[str]], tmp_path: Path, tokenizer: BPETokenizer
) -> None:
    theirs = need("tokenizers")
    folder, documents = corpus
    tokenizer.save(tmp_path / "tok", verbose=False)
    oracle = theirs.Tokenizer.from_file(str(tmp_path / "tok" / "tokenizer.json"))
    encode_corpus(
        tokenizer,
        folder,
        tmp_path / "out",
        separator=END,
        allowed_special="all",
        eot="",
        num_workers=1,
    )
    assert documents_in(tmp_path / "out") == [
        oracle.encode(document, add_special_tokens=False).ids for document in documents
    ]


@pytest.mark.usefixtures("small_blocks")
def test_a_document_in_chunks_has_the_ids_of_the_whole(
    tmp_path: Path, tokenizer: BPETokenizer
) -> None:
    text = "\n".join(DOCUMENTS)
    (tmp_path / "x.txt").write_bytes(text.encode())
    for allowed in ("none", "all"):
        out = tmp_path / allowed
        encode_corpus(tokenizer, tmp_path / "x.txt", out, eot="", allowed_special=allowed)
        assert documents_in(out) == [tokenizer.encode(text, allowed_special=allowed)]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("how", [300, {"transition": "auto", "rule": "boundless"}])
def test_packing_with_superwords(tmp_path: Path, how: Any) -> None:
    """Text that is read in blocks has the ids of the whole, though tokens join words."""
    need("numpy")
    documents = ["by the way, he said, in 1999 it was. by the way, " * n for n in range(1, 9)]
    made = BPETokenizer("o200k").train(documents, 330, superwords=how, verbose=False)
    assert any(b" " in (left + right)[1:] for left, right in made.merges)
    for number, document in enumerate(documents):
        (tmp_path / f"{number}.txt").write_text(document, encoding="utf-8")
    encode_corpus(made, tmp_path / "?.txt", tmp_path / "out", eot="", num_workers=1)
    assert documents_in(tmp_path / "out") == [made.encode(document) for document in documents]


def test_ids_above_16_bits_take_32(tmp_path: Path, tokenizer: BPETokenizer) -> None:
    large = BPETokenizer("cl100k").train(
        DOCUMENTS, 280, special_tokens={"<big>": 70_000}, verbose=False, num_workers=1
    )
    (tmp_path / "x.txt").write_text("low <big>", encoding="utf-8")
    report = encode_corpus(large, tmp_path / "x.txt", tmp_path / "a", eot="<big>", num_workers=1)
    assert (report.dtype, report.eot) == ("uint32", 70_000)
    assert documents_in(tmp_path / "a") == [[*large.encode("low <big>"), 70_000]]
    for options, said in (
        ({"dtype": "uint16"}, "holds ids up to 65,535, and the largest is 70,000"),
        ({"eot": "<none>"}, "eot: the tokenizer has no token '<none>'"),
        ({"format": "npz"}, "format must be one of bin, megatron, parquet, got 'npz'"),
        ({"allowed_special": "some"}, "allowed_special"),
    ):
        with pytest.raises(ValueError, match=said):
            encode_corpus(large, tmp_path / "x.txt", tmp_path / "b", **options)
    assert not (tmp_path / "b").exists()


@pytest.fixture(scope="module")
def packed(
    corpus: tuple[Path, list[str]],
    tokenizer: BPETokenizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, bytes]:
    """What one process writes for the corpus, without any interruption."""
    out = tmp_path_factory.mktemp("packed")
    encode_corpus(tokenizer, corpus[0], out, separator=END, num_workers=1)
    written = tree(out)
    assert len(written) == N_FILES * 3 + 1
    return written


# The same whatever the engine: what one packed is compared with what the other does.
FIRST_TREES: dict[str, dict[str, bytes]] = {}


def test_both_engines_write_the_same(packed: dict[str, bytes], corpus: tuple[Path, Any]) -> None:
    assert FIRST_TREES.setdefault(str(corpus[0]), packed) == packed


def test_two_processes_write_what_one_does(
    corpus: tuple[Path, list[str]], tmp_path: Path, tokenizer: BPETokenizer, packed: Any
) -> None:
    report = encode_corpus(tokenizer, corpus[0], tmp_path, separator=END, num_workers=2)
    assert (report.num_workers, report.shards, report.kept) == (2, N_FILES, 0)
    assert tree(tmp_path) == packed


def test_files_one_by_one_and_then_all(
    corpus: tuple[Path, list[str]], tmp_path: Path, tokenizer: BPETokenizer, packed: Any
) -> None:
    shards = [shard.label for shard in inputs.find_shards(corpus[0])]
    for label in reversed(shards):
        marker = encode_shard(tokenizer, label, tmp_path, separator=END)
        written = json.loads(packed[f"{marker['name']}.json"])
        assert marker.items() < written.items() and written.keys() - marker == {"marker_sha256"}
        assert marker == encode_shard(tokenizer, label, tmp_path, separator=END)
    assert "manifest.json" not in tree(tmp_path)
    report = encode_corpus(tokenizer, corpus[0], tmp_path, separator=END, num_workers=2)
    assert (report.shards, report.kept) == (N_FILES, N_FILES)
    assert tree(tmp_path) == packed
    with pytest.raises(ValueError, match=r"expected one file, got \d+: .*; use encode_corpus"):
        encode_shard(tokenizer, corpus[0], tmp_path, separator=END)


def test_shares_in_any_order_and_at_once(
    corpus: tuple[Path, list[str]], tmp_path: Path, tokenizer: BPETokenizer, packed: Any
) -> None:
    job = PackJob(tokenizer, corpus[0], tmp_path, separator=END, num_workers=1)
    threads = [threading.Thread(target=job.run_share, args=(index, 4)) for index in (3, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in (2, 0, 1):
        job.run_share(index, 4)
    assert "manifest.json" not in tree(tmp_path)
    assert job.run().kept == N_FILES
    assert tree(tmp_path) == packed


def test_the_command_pack(
    corpus: tuple[Path, list[str]],
    tmp_path: Path,
    tokenizer: BPETokenizer,
    packed: dict[str, bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    tokenizer.save(tmp_path / "tok", verbose=False)
    out = tmp_path / "out"
    base = ("pack", corpus[0], "--tokenizer", tmp_path / "tok", "-o", out, "--quiet")
    command = (*base, "--separator", END, "--num-workers", 1)
    for index in (1, 0):
        share = ("--shard-index", index, "--num-shards", 2)
        assert run_command(capsys, *command, *share) == (0, "", "")
    status, said, err = run_command(capsys, *command, "--json")
    assert (status, err, json.loads(said)["kept"]) == (0, "", N_FILES)
    assert tree(out) == packed
    assert run_command(capsys, *command, "--eot", "<s>", "--no-eot")[0] == 2
    options = ("--no-eot", "--bos", "<s>", "--allowed-special", "all", "--format", "megatron")
    status, said, err = run_command(capsys, *command, *options)
    assert (status, said, err.count("\n")) == (1, "", 1)
    assert f"{out} contains output made with layout 'bin', but now it is 'megatron'" in err
    assert tree(out) == packed
    assert run_command(capsys, *command, *options, "--no-resume")[0] == 0
    first = documents_in(out)[0]
    assert first[0] == tokenizer.convert_tokens_to_ids("<s>")
    assert first[1:] == tokenizer.encode(corpus[1][0], allowed_special="all")


# -- What cannot be read ------------------------------------------------------

GOOD = ["first good", "second good"]


def bad_files(folder: Path) -> dict[Path, tuple[str, list[str]]]:
    """Write files that hold one bad document; return how it is named, and what is good in each."""
    folder.mkdir()
    found = {}

    def add(name: str, data: bytes, said: str, good: Sequence[str] = GOOD) -> None:
        path = folder / name
        suffix = path.suffix if path.suffix in core._COMPRESSED else ""
        path.write_bytes(packed_as(data, suffix))
        found[path] = said, list(good)

    add("a.txt", b"line\nline " + b"\xc3" + END.encode() + as_text(GOOD), "line 2: not UTF-8")
    middle = as_text([GOOD[0], "\n\n"]) + b"x\ny\xff" + f"{END}{GOOD[1]}".encode()
    add(
        "b.txt.gz",
        middle,
        "line 4: not UTF-8 (invalid start byte, 0xff); convert it (iconv), or leave it out",
    )
    add("c.txt", as_text([*GOOD, "\r\nx"]) + b"\xe4\xb8", "line 2: not UTF-8", GOOD)
    record = json.dumps({"text": GOOD[1]}).encode()
    one = json.dumps({"text": GOOD[0]}).encode() + b"\n\n"
    for letter, line, said in (
        ("d", b'{"text": "cut', "line 3: not JSON: "),
        ("e", b'{"text": "\xff"}', "line 3: not JSON: "),
        ("f", b'{"content": "x"}', "line 3: expected text in the field 'text', got ['content']; "),
        ("g", b'{"text": null}', "line 3: expected text in the field 'text', got None; leave out"),
        ("h", b'{"text": "\\ud800"}', "line 3: "),
        ("i", b"[1]", "line 3: expected text in the field 'text', got [1]; leave out"),
    ):
        suffix = {"d": ".zst", "g": ".xz"}.get(letter, "")
        add(f"{letter}.jsonl{suffix}", one + line + b"\n" + record, said)
    path = folder / "j.parquet"
    write_parquet(path, [*GOOD[:1], None, *GOOD[1:]])
    found[path] = "row 1: expected text in the field 'text', got None; leave out", GOOD
    path = folder / "k.parquet"
    write_bad_text(path, [b"first good", b"\xff", b"second good"])
    found[path] = "row 1: not UTF-8 (invalid start byte, 0xff)", GOOD
    return found


def write_bad_text(path: Path, values: Sequence[bytes]) -> None:
    """Write a column of text that is not all UTF-8, as careless writers do."""
    arrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    column = arrow.array(values, arrow.binary()).view(arrow.string())
    parquet.write_table(arrow.table({"text": column}), path)


def test_what_cannot_be_read_is_named_or_skipped(tmp_path: Path, tokenizer: BPETokenizer) -> None:
    need("pyarrow")
    need("backports.zstd")
    found = bad_files(tmp_path / "in")
    firsts = []
    for path, (said, good) in found.items():
        for work in (
            functools.partial(count_shard, path),
            functools.partial(encode_shard, tokenizer, path, tmp_path / "out"),
        ):
            with pytest.raises(FileFormatError) as caught:
                work(separator=END)
            assert core._one_line(caught.value).startswith(f"{path}: {said}")
        firsts.append(core._one_line(caught.value))
        counts = count_shard(path, separator=END, on_error="skip")
        assert (counts, counts.documents) == (naive(good), len(good))
    assert not list((tmp_path / "out").iterdir())

    good = [document for _, listed in found.values() for document in listed]
    job = CountJob(tmp_path / "in", separator=END, on_error="skip", num_workers=2)
    report = job.to_file(tmp_path / "counts.json")
    assert PretokenCounts.load(tmp_path / "counts.json") == naive(good)
    assert (report.skipped, report.first_skipped) == (len(found), firsts[0])
    assert f"{len(found)} documents skipped; the first: {firsts[0]}" in str(report)
    packed = encode_corpus(
        tokenizer, tmp_path / "in", tmp_path / "out", separator=END, on_error="skip", num_workers=1
    )
    eot = tokenizer.eos_token_id
    assert documents_in(tmp_path / "out") == [[*tokenizer.encode(text), eot] for text in good]
    assert (packed.skipped, packed.first_skipped) == (len(found), firsts[0])
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert (manifest["skipped"], manifest["documents"]) == (len(found), len(good))


@pytest.mark.usefixtures("small_blocks")
def test_a_file_that_is_one_document_is_skipped_as_a_whole(
    tmp_path: Path, tokenizer: BPETokenizer
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"good words " * 50 + b"\n\xff")
    (tmp_path / "in" / "b.txt.gz").write_bytes(gzip.compress(b"good words " * 50 + b"\n\xe4"))
    (tmp_path / "in" / "c.txt").write_bytes(b"better words")
    for name in ("a.txt", "b.txt.gz"):
        with pytest.raises(FileFormatError, match=rf"{name}: line 2: not UTF-8"):
            count_shard(tmp_path / "in" / name)
    job = CountJob(tmp_path / "in", on_error="skip", num_workers=1)
    report = job.to_file(tmp_path / "counts.json")
    counts = PretokenCounts.load(tmp_path / "counts.json")
    assert (counts, counts.documents) == (naive(["better words"]), 1)
    assert report.skipped == 2
    report = encode_corpus(tokenizer, tmp_path / "in", tmp_path / "out", on_error="skip", eot="")
    assert documents_in(tmp_path / "out") == [tokenizer.encode("better words")]
    assert (report.skipped, report.documents, report.shards) == (2, 1, 3)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("separator", [None, END])
def test_damaged_files_are_errors(
    tmp_path: Path, tokenizer: BPETokenizer, on_error: str, separator: str | None
) -> None:
    data = "".join(f"text {os.urandom(4).hex()}" for _ in range(500)).encode()
    files = {}
    for suffix in filter(None, SUFFIXES):
        whole = packed_as(as_jsonl([data.decode()]) + data, suffix)
        files[f"cut.jsonl{suffix}"] = packed_as(as_jsonl([data.decode()] * 2), suffix)[:-30]
        files[f"cut.txt{suffix}"] = whole[: len(whole) // 2]
        files[f"none.txt{suffix}"] = b"no such thing"
    if there_is("pyarrow.parquet"):
        files["not.parquet"] = b"PAR1 no parquet at all PAR1"
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        options: dict[str, Any] = {"separator": separator, "on_error": on_error}
        for work in (
            functools.partial(count_shard, tmp_path / name),
            functools.partial(encode_shard, tokenizer, tmp_path / name, tmp_path / "out"),
        ):
            with pytest.raises(FileFormatError) as caught:
                work(**options)
            said = core._one_line(caught.value)
            kind = f"damaged {os.path.splitext(name)[1]} file" if name[0] != "n" else ""
            if name == "not.parquet":
                kind = "not a parquet file"
            assert said.startswith(f"{tmp_path / name}: {kind}"), said
    assert not list((tmp_path / "out").iterdir())


def test_a_missing_column_and_a_damaged_page(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", DOCUMENTS * 50, "content")
    for on_error in ("raise", "skip"):
        with pytest.raises(FileFormatError, match=r"no column 'text', only \['n', 'content'\]"):
            count_shard(tmp_path / "a.parquet", on_error=on_error)
    field = {"text_field": "content"}
    assert count_shard(tmp_path / "a.parquet", **field) == naive(DOCUMENTS * 50)  # type: ignore[arg-type]
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    data[40:400] = bytes(360)
    (tmp_path / "a.parquet").write_bytes(data)
    for on_error in ("raise", "skip"):
        with pytest.raises(FileFormatError, match=r"a\.parquet: damaged \.parquet file"):
            count_shard(tmp_path / "a.parquet", text_field="content", on_error=on_error)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="no file that cannot be read")
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, tokenizer: BPETokenizer) -> None:
    for work in (
        functools.partial(count_pretokens, "/proc/self/mem", num_workers=1),
        functools.partial(encode_corpus, tokenizer, "/proc/self/mem", tmp_path, num_workers=1),
    ):
        with pytest.raises(OSError) as caught:
            work()
        assert core._one_line(caught.value) == "/proc/self/mem: Input/output error"


def test_what_makes_no_sense(tmp_path: Path, tokenizer: BPETokenizer) -> None:
    (tmp_path / "x.txt").write_text("text", encoding="utf-8")
    for options, said in (
        ({"on_error": "ignore"}, "on_error must be 'raise' or 'skip', got 'ignore'"),
        ({"separator": ""}, "separator must be text, or None where a file is one document"),
        ({"executor": "spark"}, "executor must be one of local, ray, got 'spark'"),
        ({"num_workers": 0}, "num_workers must be at least 1, got 0"),
        ({"max_retries": -1}, "max_retries must be at least 0, got -1"),
        ({"address": "auto"}, "address names a Ray cluster, and works only with executor='ray'"),
    ):
        with pytest.raises(ValueError, match=said):
            count_pretokens(tmp_path / "x.txt", **options)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=said):
            encode_corpus(tokenizer, tmp_path / "x.txt", tmp_path / "o", **options)  # type: ignore[arg-type]
    for more, said in (
        ({"partitions": 0}, "partitions must be at least 1, got 0"),
        ({"min_frequency": 0}, "min_frequency must be at least 1, got 0"),
        ({"max_keys": 0}, "max_keys must be at least 1, got 0"),
        ({"normalizer": "nfc"}, "normalizer must be one of"),
        ({"split_pattern": "nosuch"}, "unknown split pattern 'nosuch'"),
    ):
        with pytest.raises(ValueError, match=said):
            count_pretokens(tmp_path / "x.txt", **more)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]


# -- Formats, shares, pieces ----------------------------------------------------


def test_the_format_of_a_file_is_told_by_its_name_or_by_the_caller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.ndjson").write_bytes(as_jsonl(DOCUMENTS))
    (tmp_path / "b.JSONL").write_bytes(as_jsonl(ROWS))
    assert count_pretokens(tmp_path, num_workers=1) == naive([*DOCUMENTS, *ROWS])
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(as_jsonl(ROWS)))
    refused = r"c\.json\.gz: a \.json file may contain .*input_format='jsonl' or 'text'"
    for job in (
        lambda: count_pretokens(tmp_path, num_workers=1),
        lambda: count_shard(tmp_path / "c.json.gz"),
        lambda: CountJob(tmp_path).estimate(),
    ):
        with pytest.raises(ValueError, match=refused):
            job()
    everything = [*DOCUMENTS, *ROWS, *ROWS]
    counts = count_pretokens(tmp_path, input_format="jsonl", num_workers=1)
    assert (counts, counts.documents) == (naive(everything), len(everything))
    (tmp_path / "c.json.gz").unlink()
    texts = [path.read_text(encoding="utf-8") for path in sorted(tmp_path.iterdir())]
    assert count_pretokens(tmp_path, input_format="text", num_workers=1) == naive(texts)
    with pytest.raises(ValueError, match="input_format must be one of auto, text, jsonl, parquet"):
        count_pretokens(tmp_path, input_format="csv", num_workers=1)
    (tmp_path / "d").write_text("text", encoding="utf-8")
    status, out, _ = run_command(capsys, "count", tmp_path, "--dry-run")
    assert status == 0
    assert "in 3 shards (2 jsonl, 1 text)\n" in out


def test_packing_asks_for_the_format_before_it_begins(
    tmp_path: Path, tokenizer: BPETokenizer
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "c.json").write_bytes(as_jsonl(ROWS))
    with pytest.raises(ValueError, match="--input-format"):
        encode_corpus(tokenizer, tmp_path / "in", tmp_path / "out", num_workers=1)
    assert not (tmp_path / "out").exists()
    encode_corpus(tokenizer, tmp_path / "in", tmp_path / "out", num_workers=1, input_format="jsonl")
    with pytest.raises(ValueError, match="made with input_format 'jsonl', but now it is 'text'"):
        encode_corpus(
            tokenizer, tmp_path / "in", tmp_path / "out", num_workers=1, input_format="text"
        )
    ids = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in ROWS]
    assert documents_in(tmp_path / "out") == ids


def test_a_share_does_not_begin_a_job_anew(tmp_path: Path, tokenizer: BPETokenizer) -> None:
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    count = CountJob(tmp_path / "a.txt", work_dir=tmp_path / "work", resume=False)
    pack = PackJob(tokenizer, tmp_path / "a.txt", tmp_path / "out", resume=False)
    for do in (count.count_share, pack.run_share):
        with pytest.raises(ValueError, match="a share of a job cannot start it over"):
            do(0, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_pieces_refuse_what_they_are_not_for() -> None:
    with pytest.raises(TypeError, match="expected PretokenCounts, got dict"):
        merge_counts([{b"a": 1}])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="n_partitions must be at least 1, got 0"):
        partition_of(b"a", 0)


def test_a_copy_of_an_input_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, job = (
        tmp_path / "a.txt",
        CountJob(tmp_path / "a.txt", work_dir=tmp_path / "w", num_workers=1),
    )
    path.write_text("one two", encoding="utf-8")
    job.counts()
    hashed: list[str] = []
    real = job_folder.sha256_of
    monkeypatch.setattr(
        job_folder, "sha256_of", lambda shard: hashed.append(shard.label) or real(shard)
    )
    monkeypatch.setattr(job_folder, "_CLOCK", 0)
    os.utime(path)
    time.sleep(0.02)  # a file system's clock goes in steps
    for _ in range(3):
        assert job.to_file(tmp_path / "counts").kept == 1
    assert len(hashed) <= 1


def test_the_fingerprint_is_worked_out_once_for_a_job(
    tmp_path: Path, tokenizer: BPETokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(5):
        (tmp_path / "in" / f"{number}.txt").write_text("text", encoding="utf-8")
    asked = []
    real = BPETokenizer.fingerprint.fget
    assert real is not None
    monkeypatch.setattr(
        BPETokenizer, "fingerprint", property(lambda self: asked.append(1) or real(self))
    )
    encode_corpus(tokenizer, tmp_path / "in", tmp_path / "out", num_workers=1)
    assert len(asked) == 1


def test_a_shard_that_changes_at_the_last_look_leaves_no_file(
    tmp_path: Path, tokenizer: BPETokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    real = inputs.Reader.check_unchanged
    looks = []

    def look(reader: inputs.Reader) -> None:
        looks.append(1)
        if len(looks) == 2:  # after the marker was written
            (tmp_path / "a.txt").write_text("another", encoding="utf-8")
        real(reader)

    monkeypatch.setattr(inputs.Reader, "check_unchanged", look)
    with pytest.raises(ValueError, match=r"a\.txt changed while it was read"):
        encode_corpus(tokenizer, tmp_path / "a.txt", tmp_path / "out", num_workers=1)
    assert len(looks) == 2
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"partitions": 10**6}, ValueError, "partitions must be at most 65,536, got 1,000,000"),
        ({"partitions": 0}, ValueError, "partitions must be at least 1"),
        ({"max_keys": None}, TypeError, "max_keys must be an int, got None"),
        ({"min_frequency": None}, TypeError, "min_frequency must be an int, got None"),
        ({"special_tokens": [1]}, TypeError, r"special_tokens must be texts, got \[1\]"),
        ({"separator": b"x"}, TypeError, "separator must be text, got b'x'"),
        ({"text_field": None}, TypeError, "text_field must be text, got None"),
    ],
)
def test_wrong_options_are_named(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    with pytest.raises(error, match=message):
        count_pretokens(tmp_path / "a.txt", num_workers=1, **options)


def test_a_token_may_be_given_by_its_id(
    tmp_path: Path, tokenizer: BPETokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer.save(tmp_path / "t", verbose=False)
    (tmp_path / "a.jsonl").write_bytes(as_jsonl(ROWS))
    command = ["pack", tmp_path / "a.jsonl", "--tokenizer", tmp_path / "t", "--num-workers", 1]
    end = tokenizer.special_tokens["</s>"]
    status, _, said = run_command(
        capsys, *command, "-o", tmp_path / "p", "--eot", end, "--bos", "<s>"
    )
    assert status == 0, said
    begin = tokenizer.special_tokens["<s>"]
    expected = [[begin, *tokenizer.encode(text), end] for text in ROWS]
    assert documents_in(tmp_path / "p") == expected
    status, _, said = run_command(
        capsys, "count", tmp_path / "a.jsonl", "-o", tmp_path / "c", "--work-dir", ""
    )
    assert (status, "--work-dir" in said) == (2, True)


def test_the_names_that_options_had_before_still_work(
    tmp_path: Path, tokenizer: BPETokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.txt"
    path.write_text("one two two", encoding="utf-8")
    said = [f"{old} is called {new} now" for old, new in (
        ("engine", "executor"), ("workers", "num_workers"), ("min_count", "min_frequency")
    )]  # fmt: skip
    old: dict[str, Any] = {"engine": "local", "workers": 1}
    with pytest.warns(DeprecationWarning) as warned:
        assert count_pretokens(path, min_count=2, **old) == {b" two": 2}
    assert sorted(str(each.message) for each in warned) == sorted(said)
    assert {each.filename for each in warned} == {__file__}
    with pytest.warns(DeprecationWarning, match=said[1]):
        job = CountJob(path, workers=1)  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match=said[2]):
        assert job.counts(min_count=2) == {b" two": 2}  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match=said[2]):
        report = job.to_file(tmp_path / "counts", min_count=2)  # type: ignore[call-arg]
    assert (report.num_workers, report.min_frequency, report.left) == (1, 2, 1)
    with pytest.warns(DeprecationWarning, match=said[2]):
        assert merge_counts([job.counts()], min_count=2) == {b" two": 2}  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="is called"):
        assert encode_corpus(tokenizer, path, tmp_path / "out", **old).shards == 1
    with pytest.raises(TypeError, match="num_workers is given twice, once by its old name workers"):
        count_pretokens(path, workers=1, num_workers=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'worker'"):
        count_pretokens(path, worker=1)
    command = ["count", path, "-o", tmp_path / "c", "--engine", "local", "--workers", 1]
    status, out, err = run_command(capsys, *command, "--min-count", 2, "--json", "--quiet")
    assert (status, err, json.loads(out)["min_frequency"]) == (0, "", 2)
    with pytest.raises(SystemExit):
        core.main(["count", "--help"])
    shown = capsys.readouterr().out
    assert "--num-workers" in shown and "--workers" not in shown and "--engine" not in shown


def test_a_process_that_was_taken_for_lost_does_no_harm(tmp_path: Path) -> None:
    final, marker = tmp_path / "a.bin", {"format": "x", "files": {}}
    for content in (b"one", b"two"):
        with outputs.draft_of(final) as draft:
            draft.write_bytes(content)
            job_folder.commit(tmp_path, "a", {final: draft}, marker)
    before = tree(tmp_path)
    assert (before["a.bin"], sorted(before)) == (b"two", ["a.bin", "a.json"])
    with pytest.raises(FileNotFoundError), outputs.draft_of(final) as draft:
        draft.write_bytes(b"late")
        draft.unlink()  # by the run that has ended meanwhile
        job_folder.commit(tmp_path, "a", {final: draft}, marker)
    assert tree(tmp_path) == before
