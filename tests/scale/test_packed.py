"""Packed corpora: the files, read by others' rules, and the reader, against lists of documents."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import pickle
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer as core
from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools.scale.packed import PackedCorpus, open_packed
from bpe_tokenizer_tools.scale.writers import FORMATS, Writer, open_writer, resolve_dtype

numpy = need("numpy")

pytestmark = EITHER_ENGINE

posix = pytest.mark.skipif(os.name == "nt", reason="limits of a process are those of POSIX")

Documents = Sequence[Sequence[int]]
TYPES = [
    ("bin", "uint16"), ("bin", "uint32"), ("megatron", "uint16"), ("megatron", "int32"),
    ("parquet", "int32"), ("parquet", "uint32"), ("parquet", "uint16"),
]  # fmt: skip
MAPPED = [each for each in TYPES if each[0] != "parquet"]
LARGEST = {"uint16": 2**16 - 1, "uint32": 2**32 - 1, "int32": 2**31 - 1}

THREE: Documents = [[5, 6, 7], [], [65_535, 0, 1, 2]]
SHARDS: Sequence[Documents] = [
    [[1, 2, 3], [4]], [], [[], []], [[5, 6, 7, 8, 9, 10, 11]], [[12]], [[]],
]  # fmt: skip


def write(
    layout: str, stem: Path, dtype: str, documents: Documents, cuts: Iterator[int] | None = None
) -> dict[Path, bytes]:
    """Write a shard, its documents cut where it is said, and return what its files hold."""
    if layout == "parquet":
        need("pyarrow")
    with open_writer(layout, stem, dtype) as writer:
        for ids in documents:
            left = numpy.array(ids, numpy.uint32)
            while cuts is not None and len(left):
                cut = next(cuts)
                writer.write(left[:cut])
                left = left[cut:]
            writer.write(left)
            writer.end_document()
        writer.close()
        assert writer.documents == len(documents)
        assert writer.tokens == sum(map(len, documents))
        assert sorted(stem.parent.glob(".*.tmp")) == sorted(writer.files.values())
        for path, draft in writer.files.items():
            os.replace(draft, path)
        return {path: path.read_bytes() for path in writer.files}


def pack(folder: Path, layout: str, dtype: str, shards: Sequence[Documents]) -> dict[str, Any]:
    """Write a job as `encode_corpus` leaves it, and return its manifest."""
    folder.mkdir(exist_ok=True)
    entries = []
    for number, documents in enumerate(shards):
        files = write(layout, folder / f"s{number}.v1", dtype, documents)
        facts = {
            path.name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for path, data in files.items()
        }
        size = {"documents": len(documents), "tokens": sum(map(len, documents))}
        entries.append({"name": f"s{number}.v1", **size, "files": facts})
    job = {"format": "bpe_tokenizer.packed", "version": 1, "layout": layout, "dtype": dtype}
    for entry in entries:
        (folder / f"{entry['name']}.json").write_text(json.dumps({**job, **entry}))
    whole = {key: sum(entry[key] for entry in entries) for key in ("documents", "tokens")}
    manifest = {**job, **whole, "shards": entries}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return manifest


def joined(shards: Sequence[Documents]) -> list[int]:
    return [id_ for documents in shards for ids in documents for id_ in ids]


def lists(arrays: Iterable[Any]) -> list[list[int]]:
    return [array.tolist() for array in arrays]


# -- The files, by the rules that others read them by -------------------------


def read_bin(stem: Path, dtype: str) -> list[list[int]]:
    """Read the flat format with what numpy alone gives."""
    ids = numpy.fromfile(f"{stem}.bin", dtype)
    offsets = numpy.load(f"{stem}.offsets.npy", allow_pickle=False)
    assert offsets.dtype == numpy.uint64
    assert (int(offsets[0]), int(offsets[-1])) == (0, len(ids))
    return [ids[int(a) : int(b)].tolist() for a, b in zip(offsets, offsets[1:])]


def read_megatron(stem: Path, dtype: str) -> list[list[int]]:
    """Read Megatron's format by its published layout: a header, and three arrays."""
    index, ids = Path(f"{stem}.idx").read_bytes(), Path(f"{stem}.bin").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, borders = struct.unpack("<QBQQ", index[9:34])
    assert (version, {4: "int32", 8: "uint16"}[code]) == (1, dtype)
    lengths = struct.unpack_from(f"<{sequences}i", index, 34)
    pointers = struct.unpack_from(f"<{sequences}q", index, 34 + 4 * sequences)
    documents = struct.unpack_from(f"<{borders}q", index, 34 + 12 * sequences)
    assert len(index) == 34 + 12 * sequences + 8 * borders
    assert documents == tuple(range(sequences + 1))  # a document is one sequence
    return [
        numpy.frombuffer(ids, dtype, length, pointer).tolist()
        for length, pointer in zip(lengths, pointers)
    ]


def read_parquet(stem: Path, dtype: str) -> list[list[int]]:
    parquet, arrow = need("pyarrow.parquet"), need("pyarrow")
    table = parquet.read_table(f"{stem}.parquet")
    assert table.schema.equals(arrow.schema([("input_ids", arrow.list_(getattr(arrow, dtype)()))]))
    rows: list[list[int]] = table.column("input_ids").to_pylist()
    return rows


READERS: dict[str, Callable[[Path, str], list[list[int]]]] = {
    "bin": read_bin, "megatron": read_megatron, "parquet": read_parquet,
}  # fmt: skip


@pytest.mark.parametrize(("layout", "dtype"), TYPES)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_files_hold_the_documents_however_they_came(
    layout: str, dtype: str, data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ids = st.lists(st.integers(0, LARGEST[dtype]), max_size=40)
    documents = data.draw(st.lists(ids, max_size=12))
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=1).filter(any))
    cuts = (sizes[i % len(sizes)] for i in range(10**6))
    folder = tmp_path_factory.mktemp("packed")
    whole = write(layout, folder / "a.b", dtype, documents)
    assert READERS[layout](folder / "a.b", dtype) == documents
    assert write(layout, folder / "a.b", dtype, documents, cuts) == whole
    assert sorted(folder.iterdir()) == sorted(whole)


def test_flat_ids_are_read_as_nanogpt_reads_them(tmp_path: Path) -> None:
    write("bin", tmp_path / "train", "uint16", THREE)
    data = numpy.memmap(tmp_path / "train.bin", dtype=numpy.uint16, mode="r")
    assert data.tolist() == joined([THREE])
    offsets = numpy.load(tmp_path / "train.offsets.npy", mmap_mode="r")
    assert isinstance(offsets, numpy.memmap)
    assert offsets.tolist() == [0, 3, 3, 7]


@pytest.mark.parametrize("documents", [0, 1, 9, 10, 70_000])
def test_offsets_are_what_numpy_itself_saves(tmp_path: Path, documents: int) -> None:
    made = write("bin", tmp_path / "x", "uint16", [[1]] * documents)
    numpy.save(tmp_path / "numpy.npy", numpy.arange(documents + 1, dtype=numpy.uint64))
    assert made[tmp_path / "x.offsets.npy"] == (tmp_path / "numpy.npy").read_bytes()


def test_an_index_of_many_documents(tmp_path: Path) -> None:
    documents = [[number % 7] * (number % 3) for number in range(140_000)]  # written in 3 spans
    write("megatron", tmp_path / "x", "uint16", documents)
    assert read_megatron(tmp_path / "x", "uint16") == documents


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_megatron_itself_writes_and_reads_the_same(tmp_path: Path, dtype: str) -> None:
    need("megatron")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells of what else it could use
        indexed = need("megatron.core.datasets.indexed_dataset")
    made = write("megatron", tmp_path / "x", dtype, THREE)
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "y.bin"), getattr(numpy, dtype))
    for ids in THREE:
        builder.add_document(numpy.array(ids), [len(ids)])
    builder.finalize(str(tmp_path / "y.idx"))
    assert made[tmp_path / "x.bin"] == (tmp_path / "y.bin").read_bytes()
    assert made[tmp_path / "x.idx"] == (tmp_path / "y.idx").read_bytes()
    read = indexed.IndexedDataset(str(tmp_path / "x"))
    assert lists(read[number] for number in range(len(read))) == THREE


def test_rows_are_grouped_by_their_tokens(tmp_path: Path) -> None:
    parquet = need("pyarrow.parquet")
    ids = numpy.arange(3_000_000, dtype=numpy.uint32)
    made = []
    for name, parts in (("a", 1), ("b", 7)):
        with open_writer("parquet", tmp_path / name, "int32") as writer:
            for length in (3_000_000, 3_000_000, 0, 5, 3_000_000):
                for part in numpy.array_split(ids[:length], parts):
                    writer.write(part)
                writer.end_document()
            writer.close()
            (path, draft), *_ = writer.files.items()
            made.append(draft.read_bytes())
            os.replace(draft, path)
    assert made[0] == made[1]
    with parquet.ParquetFile(tmp_path / "a.parquet") as file:
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        assert groups == [2, 3]
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
        rows = file.read_row_group(1).column("input_ids")
    assert [len(row) for row in rows] == [0, 5, 3_000_000]
    assert rows[1].as_py() == [0, 1, 2, 3, 4]


def test_others_read_parquet(tmp_path: Path) -> None:
    datasets = need("datasets")
    write("parquet", tmp_path / "x", "int32", THREE)
    files, cache = str(tmp_path / "x.parquet"), str(tmp_path / "cache")
    read = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
    assert [row["input_ids"] for row in read] == THREE


# -- What a writer refuses ----------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "dtype", "max_id", "expected"),
    [
        ("bin", "auto", 65_535, "uint16"),
        ("bin", "auto", 65_536, "uint32"),
        ("bin", "auto", 2**32 - 1, "uint32"),
        ("bin", "uint32", 5, "uint32"),
        ("megatron", "auto", 65_535, "uint16"),
        ("megatron", "auto", 65_536, "int32"),
        ("megatron", "int32", 0, "int32"),
        ("parquet", "auto", 5, "int32"),
        ("parquet", "auto", 2**31, "uint32"),
        ("parquet", "uint16", 5, "uint16"),
    ],
)
def test_the_type_of_ids(layout: str, dtype: str, max_id: int, expected: str) -> None:
    assert resolve_dtype(layout, dtype, max_id) == expected


@pytest.mark.parametrize(
    ("layout", "dtype", "max_id", "said"),
    [
        ("npz", "auto", 5, "format must be one of bin, megatron, parquet, got 'npz'"),
        ("bin", "int32", 5, "the format 'bin' has no dtype 'int32'; use 'uint16' or 'uint32', or"),
        ("megatron", "uint32", 70_000, "'megatron' has no dtype 'uint32'; use 'int32', or 'auto'"),
        (
            "bin",
            "uint16",
            65_536,
            "holds ids up to 65,535, and the largest is 65,536; use 'uint32'",
        ),
        ("megatron", "auto", 2**31, "the largest id is 2,147,483,648, for which 'megatron' has no"),
    ],
)
def test_types_that_will_not_do(layout: str, dtype: str, max_id: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        resolve_dtype(layout, dtype, max_id)


def test_a_writer_wants_a_type_it_has(tmp_path: Path) -> None:
    for dtype in ("auto", "int64"):
        with pytest.raises(ValueError, match=f"'{dtype}'"):
            open_writer("bin", tmp_path / "x", dtype)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("layout", "dtype"), TYPES)
def test_ids_that_do_not_fit_leave_no_file(tmp_path: Path, layout: str, dtype: str) -> None:
    if layout == "parquet":
        need("pyarrow")
    above = numpy.array([1, LARGEST[dtype] + 1], numpy.int64)
    for wrong, said in (
        (above, f"{tmp_path / 'x'}.*: the id {LARGEST[dtype] + 1:,} does not fit into {dtype}"),
        (numpy.array([3, -1]), "the id -1 does not fit"),
        (numpy.array([0.5]), "expected a row of ids, got float64"),
        (numpy.array([[1, 2]]), r"of the shape \(1, 2\)"),
    ):
        with pytest.raises(ValueError, match=said):
            with open_writer(layout, tmp_path / "x", dtype) as writer:
                writer.write(numpy.array([1], numpy.uint32))
                writer.end_document()
                writer.write(wrong)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("layout", "dtype", "longest"),
    [("megatron", "int32", 2**31 - 1), ("parquet", "int32", 2**28)],
)
def test_a_document_may_be_too_long(tmp_path: Path, layout: str, dtype: str, longest: int) -> None:
    if layout == "parquet":
        need("pyarrow")
    many = numpy.broadcast_to(numpy.zeros(1, numpy.uint32), longest)  # takes no memory
    with open_writer(layout, tmp_path / "x", dtype) as writer:
        writer.write(numpy.zeros(3, numpy.uint32))
        writer.end_document()
        writer.write(numpy.zeros(1, numpy.uint32))
        said = f"document 1 has more than {longest:,} tokens, the most that the format '{layout}'"
        with pytest.raises(ValueError, match=said):
            writer.write(many)
        writer.end_document()
        writer.close()
        assert writer.tokens == 4


@pytest.mark.parametrize("layout", FORMATS)
def test_a_document_that_is_not_ended_leaves_no_file(tmp_path: Path, layout: str) -> None:
    if layout == "parquet":
        need("pyarrow")
    with pytest.raises(ValueError, match="its last document was begun, and not ended"):
        with open_writer(layout, tmp_path / "x", "uint16") as writer:
            writer.write(numpy.array([1], numpy.uint32))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", FORMATS)
def test_a_writer_that_is_discarded_leaves_no_file(tmp_path: Path, layout: str) -> None:
    if layout == "parquet":
        need("pyarrow")

    def begun() -> Writer:
        writer = open_writer(layout, tmp_path / "x", "uint16")
        writer.write(numpy.array([1], numpy.uint32))
        writer.end_document()
        return writer

    early, late = begun(), begun()  # of two at once, none is in the other's way
    late.close()
    late.close()
    early.discard()
    assert sorted(tmp_path.iterdir()) == sorted(late.files.values())
    late.discard()
    late.discard()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        with begun() as writer:
            writer.close()
            raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    stem = tmp_path / "not" / "x"
    with pytest.raises(FileNotFoundError) as caught:
        open_writer("bin", stem, "uint16")
    assert core._one_line(caught.value) == f"{stem}.bin: {os.strerror(errno.ENOENT)}"


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import numpy
import bpe_tokenizer as core
from bpe_tokenizer_tools.scale.writers import open_writer

layout, stem, documents, length = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
ids = numpy.random.default_rng(1).integers(0, 2**16, length, numpy.uint32)
try:
    with open_writer(layout, stem, "uint16") as writer:
        for _ in range(documents):
            writer.write(ids)
            writer.end_document()
except OSError as error:
    sys.exit(core._one_line(error))
"""


def child(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(core.__file__).parent)},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )


@posix
@pytest.mark.parametrize(
    ("layout", "documents", "length", "file"),
    [
        ("bin", 1, 15_000, "x.bin"),  # when it is closed
        ("bin", 9, 300_000, "x.bin"),  # when the buffer is full
        ("bin", 4_000, 1, "x.offsets.npy"),
        ("megatron", 3, 15_000, "x.bin"),
        ("megatron", 4_000, 1, "x.idx"),
        ("parquet", 3, 15_000, "x.parquet"),
        ("parquet", 3, 2_500_000, "x.parquet"),
    ],
)
def test_a_full_disk_names_the_file_and_leaves_none(
    tmp_path: Path, layout: str, documents: int, length: int, file: str
) -> None:
    if layout == "parquet":
        need("pyarrow")
    (tmp_path / file).write_text("what was there")
    done = child(FULL_DISK, layout, str(tmp_path / "x"), str(documents), str(length))
    assert done.stderr == f"{tmp_path / file}: {os.strerror(errno.EFBIG)}\n"
    assert done.returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == [file]
    assert (tmp_path / file).read_text() == "what was there"


# -- Reading ------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "dtype"), MAPPED)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_a_corpus_is_its_documents_one_after_another(
    layout: str, dtype: str, data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ids = st.lists(st.integers(0, LARGEST[dtype]), max_size=6)
    shards = data.draw(st.lists(st.lists(ids, max_size=4), max_size=5))
    folder = tmp_path_factory.mktemp("packed")
    manifest = pack(folder, layout, dtype, shards)
    documents, row = [each for shard in shards for each in shard], joined(shards)

    corpus = open_packed(folder)
    assert (corpus.documents, corpus.tokens) == (len(documents), len(row))
    assert (len(corpus), corpus.dtype, corpus.manifest) == (len(documents), dtype, manifest)
    assert lists(corpus) == documents
    assert lists(corpus[i] for i in range(len(documents))) == documents
    assert lists(corpus[i - len(documents)] for i in range(len(documents))) == documents
    assert lists(corpus[::-2]) == documents[::-2]
    assert lists(corpus[1:3]) == documents[1:3]
    for wrong in (len(documents), -len(documents) - 1):
        with pytest.raises(IndexError, match=f"of {len(documents)}"):
            corpus[wrong]

    start = data.draw(st.integers(0, len(row)))
    length = data.draw(st.integers(0, len(row) - start))
    part = corpus.read(start, length)
    assert (part.tolist(), part.dtype) == (row[start : start + length], dtype)
    with pytest.raises(IndexError, match=f"of a corpus of {len(row)}"):
        corpus.read(start, len(row) - start + 1)

    size = data.draw(st.integers(1, 8))
    rest = [row[i : i + size] for i in range(0, len(row), size)]
    assert lists(corpus.windows(size, drop_last=False)) == rest
    assert lists(corpus.windows(size)) == [each for each in rest if len(each) == size]


def packed(tmp_path: Path, layout: str = "bin", dtype: str = "uint16") -> PackedCorpus:
    pack(tmp_path / "job", layout, dtype, SHARDS)
    return open_packed(tmp_path / "job")


def test_arrays_are_the_callers_own(tmp_path: Path) -> None:
    corpus = packed(tmp_path)
    for array in (corpus[0], corpus.read(0, 3), next(corpus.windows(3))):
        assert type(array) is numpy.ndarray
        array[0] = 99
    assert corpus.read(0, 3).tolist() == [1, 2, 3]
    assert corpus[numpy.int64(1)].tolist() == [4]
    assert repr(corpus).endswith("job': 7 documents, 12 tokens, uint16>")
    with pytest.raises(TypeError):
        corpus["0"]


def test_wrong_ranges(tmp_path: Path) -> None:
    corpus = packed(tmp_path)
    for start, length in ((-1, 2), (0, -1), (5, -3), (12, 1), (2**70, 1)):
        with pytest.raises(IndexError, match=f"asked for {length} tokens from"):
            corpus.read(start, length)
    for length in (0, -4):
        with pytest.raises(ValueError, match="length must be at least 1"):
            corpus.windows(length)
        with pytest.raises(ValueError, match="length must be at least 1"):
            corpus.sample(1, length, 0)
    with pytest.raises(ValueError, match="no window of 13 tokens fits in a corpus of 12"):
        corpus.sample(1, 13, 0)


@pytest.mark.parametrize(("layout", "dtype"), MAPPED)
def test_samples_are_windows_from_everywhere(tmp_path: Path, layout: str, dtype: str) -> None:
    corpus, row = packed(tmp_path, layout, dtype), joined(SHARDS)
    drawn = corpus.sample(4000, 5, 1)
    assert (drawn.shape, drawn.dtype) == ((4000, 5), numpy.int64)
    starts = drawn[:, 0] - 1  # in this corpus, the id at a position is the next position
    assert drawn.tolist() == [row[start : start + 5] for start in starts.tolist()]
    often = numpy.bincount(starts)
    assert len(often) == 8  # 12 tokens have 8 windows of 5, each of which is drawn 500 times
    assert 400 < often.min() <= often.max() < 600
    assert corpus.sample(1, 12, 0).tolist() == [row]
    assert corpus.sample(0, 3, 0).shape == (0, 3)


def test_samples_can_be_repeated(tmp_path: Path) -> None:
    corpus = packed(tmp_path)
    assert corpus.sample(50, 3, 7).tolist() == corpus.sample(50, 3, 7).tolist()
    assert corpus.sample(50, 3, 7).tolist() != corpus.sample(50, 3, 8).tolist()
    ours, again = (numpy.random.default_rng(7) for _ in range(2))
    first, second = corpus.sample(50, 3, ours).tolist(), corpus.sample(50, 3, ours).tolist()
    assert first == corpus.sample(50, 3, 7).tolist() != second
    assert corpus.sample(100, 3, again).tolist() == first + second


def test_a_corpus_of_nothing(tmp_path: Path) -> None:
    for name, shards in (("none", []), ("empty", [[], [[], []]])):
        pack(tmp_path / name, "bin", "uint16", shards)
        corpus = open_packed(tmp_path / name)
        assert (corpus.tokens, corpus.read(0, 0).tolist(), list(corpus.windows(2))) == (0, [], [])
        assert lists(corpus) == [[] for documents in shards for _ in documents]
        with pytest.raises(ValueError, match="in a corpus of 0"):
            corpus.sample(1, 1, 0)


def test_pickled_and_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(tmp_path / "job", "megatron", "int32", SHARDS)
    monkeypatch.chdir(tmp_path)
    corpus = open_packed("job")
    before = pickle.dumps(corpus)
    monkeypatch.chdir("/")  # before any shard is opened
    assert corpus.read(0, 12).tolist() == joined(SHARDS)
    assert pickle.dumps(corpus) == before  # use does not show
    for again in (pickle.loads(before), copy.deepcopy(corpus)):
        assert again.read(0, 12).tolist() == joined(SHARDS)
        assert again.manifest == corpus.manifest
    bare = tmp_path / "bare.bin"
    bare.write_bytes(b"\1\0\2\0")
    assert pickle.loads(pickle.dumps(open_packed(bare, dtype="uint16")))[0].tolist() == [1, 2]


def test_threads_share_a_corpus(tmp_path: Path) -> None:
    corpus, found = packed(tmp_path), []
    meet = threading.Barrier(4, timeout=600)

    def work(seed: int) -> None:
        meet.wait()
        found.append((seed, corpus.sample(300, 4, seed).tolist(), lists(corpus)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fresh = open_packed(tmp_path / "job")
    expected = [(seed, fresh.sample(300, 4, seed).tolist(), lists(fresh)) for seed in range(4)]
    assert sorted(found) == expected


MANY_SHARDS = """
import resource, sys
from bpe_tokenizer_tools.scale.packed import open_packed

resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))
corpus = open_packed(sys.argv[1])
assert [ids.tolist() for ids in corpus] == [[n, n] for n in range(200)]
drawn = corpus.sample(2000, 4, 1)
assert (drawn[:, 2] == drawn[:, 0] + 1).all() and len(set(drawn[:, 0].tolist())) > 190
"""


@posix
@pytest.mark.parametrize("layout", ["bin", "megatron"])
def test_more_shards_than_files_may_be_open(tmp_path: Path, layout: str) -> None:
    pack(tmp_path / "job", layout, "uint16", [[[number, number]] for number in range(200)])
    done = child(MANY_SHARDS, str(tmp_path / "job"))
    assert (done.returncode, done.stderr) == (0, "")


# -- One file -----------------------------------------------------------------


@pytest.mark.parametrize(("layout", "dtype"), MAPPED)
def test_one_shard_by_its_bin_file(tmp_path: Path, layout: str, dtype: str) -> None:
    pack(tmp_path / "job", layout, dtype, [THREE, [[9]]])
    path = tmp_path / "job" / "s0.v1.bin"
    corpus = open_packed(path)
    assert (lists(corpus), corpus.tokens, corpus.dtype) == (THREE, 7, dtype)
    assert corpus.manifest["name"] == "s0.v1"
    with pytest.raises(ValueError, match=f"its ids are {dtype}, not "):
        open_packed(path, dtype="uint32" if dtype != "uint32" else "int32")

    path.with_suffix(".json").write_text('{"of another": "program"}')  # nothing to do with it
    said = {"dtype": dtype} if layout == "bin" else {}
    again = open_packed(path, **said)
    assert (lists(again), again.read(0, 7).tolist(), again.manifest) == (THREE, joined([THREE]), {})


def test_a_bin_file_alone(tmp_path: Path) -> None:
    write("bin", tmp_path / "x", "uint32", THREE)
    with pytest.raises(ValueError, match=r"x\.bin: no file beside it says the type .* dtype="):
        open_packed(tmp_path / "x.bin")
    assert lists(open_packed(tmp_path / "x.bin", dtype="uint32")) == THREE
    (tmp_path / "x.offsets.npy").unlink()
    alone = open_packed(tmp_path / "x.bin", dtype="uint32")
    assert lists(alone) == [joined([THREE])]
    assert alone.sample(2, 7, 0).tolist() == [joined([THREE])] * 2
    with pytest.raises(ValueError, match="dtype must be one of uint16, uint32, int32, got 'int64'"):
        open_packed(tmp_path / "x.bin", dtype="int64")
    (tmp_path / "x.bin").write_bytes(b"123")
    with pytest.raises(FileFormatError, match=r"x\.bin: 3 bytes aren't a whole number of uint16"):
        open_packed(tmp_path / "x.bin", dtype="uint16")
    (tmp_path / "x.bin").write_bytes(b"")
    assert lists(open_packed(tmp_path / "x.bin", dtype="uint16")) == []


def test_documents_of_several_sequences(tmp_path: Path) -> None:
    """Megatron's own tools may cut a document into sentences, each a sequence."""
    (tmp_path / "x.bin").write_bytes(struct.pack("<5H", 1, 2, 3, 4, 5))
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 3, 4)
    arrays = (
        struct.pack("<3i", 2, 1, 2) + struct.pack("<3q", 0, 4, 6) + struct.pack("<4q", 0, 2, 2, 3)
    )
    (tmp_path / "x.idx").write_bytes(header + arrays)
    assert lists(open_packed(tmp_path / "x.bin")) == [[1, 2, 3], [], [4, 5]]


# -- Damage -------------------------------------------------------------------


def refusal(path: Path, kind: type[Exception] = FileFormatError, **options: str) -> str:
    with pytest.raises(kind) as caught:
        list(open_packed(path, **options))
    return core._one_line(caught.value)


def test_what_is_no_packed_corpus(tmp_path: Path) -> None:
    said = refusal(tmp_path, FileNotFoundError)
    assert said.startswith(f"{tmp_path}: has no manifest.json: either its job hasn't finished")
    assert (
        refusal(tmp_path / "x", FileNotFoundError) == f"{tmp_path / 'x'}: no such file or directory"
    )
    (tmp_path / "x.txt").write_text("text")
    assert "expected a directory with manifest.json, or a .bin" in refusal(
        tmp_path / "x.txt", ValueError
    )
    (tmp_path / "manifest.json").write_text("{")
    assert "manifest.json: not JSON" in refusal(tmp_path)


def test_parquet_is_for_others(tmp_path: Path) -> None:
    pack(tmp_path, "parquet", "int32", [THREE])
    for path in (tmp_path, tmp_path / "s0.v1.parquet"):
        said = refusal(path, ValueError)
        assert said.startswith(f"{path}: is parquet, which this doesn't read: use pyarrow.parquet")


def put(*keys: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        node: Any = manifest
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = value

    return change


def without(*keys: str | int) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        node: Any = manifest
        for key in keys[:-1]:
            node = node[key]
        del node[keys[-1]]

    return change


NO_NAME = "shards[0].name: expected the name of a file, got"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (without("format"), "format: is missing"),
        (put("format", value="else"), "format: expected 'bpe_tokenizer.packed', got 'else'"),
        (put("version", value=2), "version: 2, and this library reads 1; it may be too old"),
        (put("version", value=True), "version: expected int, got True"),
        (put("layout", value="npz"), "layout: expected one of bin, megatron, parquet, got 'npz'"),
        (put("layout", value=["bin"]), "layout: expected str, got ['bin']"),
        (put("dtype", value="int32"), "dtype: expected one of uint16, uint32, got 'int32'"),
        (put("dtype", value=None), "dtype: expected str, got None"),
        (put("shards", value=None), "shards: expected list, got None"),
        (put("shards", 0, value=3), "shards[0]: expected an object, got 3"),
        (put("tokens", value=13), "tokens: 13, but the shards have 12 together"),
        (put("documents", value=6), "documents: 6, but the shards have 7 together"),
        (put("documents", value=-7), "documents: expected a count, got -7"),
        (put("shards", 0, "tokens", value=4.0), "shards[0].tokens: expected int, got 4.0"),
        (put("shards", 0, "tokens", value=10**30), "shards[0].tokens: expected a count, got 1000"),
        (put("shards", 0, "tokens", value=5), "size: 8, but its tokens take 10 bytes"),
        (put("shards", 0, "documents", value="2"), "shards[0].documents: expected int, got '2'"),
        (without("shards", 0, "files"), "shards[0].files: is missing"),
        (put("shards", 0, "files", value={}), "shards[0].files: expected s0.v1.bin among them"),
        (without("shards", 0, "files", "s0.v1.offsets.npy"), "expected s0.v1.offsets.npy among"),
        (put("shards", 0, "files", "s0.v1.bin", value=[]), "s0.v1.bin: expected dict or null, got"),
        (
            put("shards", 0, "files", "s0.v1.bin", value={}),
            "shards[0].files.s0.v1.bin.size: is mis",
        ),
        (put("shards", 0, "name", value="../job/s0.v1"), f"{NO_NAME} '../job/s0.v1'"),
        (put("shards", 0, "name", value="/etc/passwd"), f"{NO_NAME} '/etc/passwd'"),
        (put("shards", 0, "name", value="a\0b"), f"{NO_NAME} 'a\\x00b'"),
        (put("shards", 0, "name", value="\ud800"), f"{NO_NAME} '\\ud800'"),
        (put("shards", 0, "name", value=""), f"{NO_NAME} ''"),
        (put("shards", 0, "name", value="s3.v1"), "shards[0].files: expected s3.v1.bin among them"),
    ],
)
def test_a_damaged_manifest(
    tmp_path: Path, damage: Callable[[dict[str, Any]], None], said: str
) -> None:
    manifest = pack(tmp_path / "job", "bin", "uint16", SHARDS)
    damage(manifest)
    path = tmp_path / "job" / "manifest.json"
    path.write_text(json.dumps(manifest))
    found = refusal(tmp_path / "job")
    assert found.startswith(f"{path}: ")
    assert said in found


def test_a_shard_that_is_there_twice(tmp_path: Path) -> None:
    manifest = pack(tmp_path, "bin", "uint16", SHARDS)
    manifest["shards"].append(manifest["shards"][0])
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert refusal(tmp_path).endswith("manifest.json: shards: a name appears twice")


def resized(by: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:by] if by < 0 else data + bytes(by)


def patched(at: int, data: bytes) -> Callable[[bytes], bytes]:
    return lambda old: old[:at] + data + old[at + len(data) or len(old) :]


# THREE has 3 documents and 7 tokens: the arrays of its index begin at 34, 46 and 70
@pytest.mark.parametrize(
    ("layout", "suffix", "damage", "said"),
    [
        ("bin", ".bin", resized(-1), ": 13 bytes, but 7 tokens take 14; it is damaged, or of"),
        ("bin", ".bin", resized(2), ": 16 bytes, but 7 tokens take 14; it is damaged, or of"),
        ("bin", ".offsets.npy", resized(-8), ": 152 bytes, but the offsets of 3 documents"),
        ("bin", ".offsets.npy", patched(0, b"x"), ": expected a .npy header of 4 uint64"),
        ("bin", ".offsets.npy", patched(20, b"O"), ": expected a .npy header of 4 uint64"),
        ("bin", ".offsets.npy", patched(128, b"\1"), "offsets: expected them to go from 0 to 7"),
        ("bin", ".offsets.npy", patched(152, b"\6"), "from 0 to 7, got 0 to 6; it is damaged"),
        ("bin", ".offsets.npy", patched(136, b"\4"), "document 1: goes from token 4 to 3 of 7"),
        ("bin", ".offsets.npy", patched(136, b"\xff" * 8), "goes from token 0 to 18,446"),
        ("megatron", ".bin", resized(-2), ": 12 bytes, but 7 tokens take 14"),
        ("megatron", ".idx", patched(0, b"x"), ": expected one of Megatron's index files"),
        ("megatron", ".idx", lambda _: b"MMIDIDX\0\0", ": expected one of Megatron's index files"),
        ("megatron", ".idx", patched(9, b"\2"), "version: expected 1, got 2"),
        ("megatron", ".idx", patched(17, b"\3"), "dtype: expected 8 (uint16) or 4 (int32), got 3"),
        ("megatron", ".idx", patched(17, b"\4"), "dtype: expected uint16, got int32"),
        ("megatron", ".idx", patched(18, b"\xff" * 8), ": 102 bytes, but the sequences and 4 bord"),
        ("megatron", ".idx", patched(26, b"\0"), ": expected at least one border of documents"),
        ("megatron", ".idx", resized(3), ": 105 bytes, but the sequences and 4 borders take 102"),
        ("megatron", ".idx", patched(54, b"\5"), "document 1: begins at byte 5, which is within"),
        ("megatron", ".idx", patched(54, b"\x30"), "document 0: goes from token 0 to 24 of 7"),
        ("megatron", ".idx", patched(54, b"\xfe" + b"\xff" * 7), "goes from token 0 to -1 of 7"),
        ("megatron", ".idx", patched(78, b"\x09"), "document 1: begins with sequence 9 of 3"),
        ("megatron", ".idx", patched(70, b"\1"), "document indices: expected them to go"),
        ("megatron", ".idx", patched(94, b"\2"), "from 0 to 3, got 0 to 2; it is damaged"),
    ],
)  # fmt: skip
def test_damaged_files(
    tmp_path: Path, layout: str, suffix: str, damage: Callable[[bytes], bytes], said: str
) -> None:
    pack(tmp_path, layout, "uint16", [THREE])
    path = tmp_path / f"s0.v1{suffix}"
    before = path.read_bytes()
    path.write_bytes(damage(before))
    assert path.read_bytes() != before
    found = refusal(tmp_path)
    assert found.startswith(f"{path}: ")
    assert said in found


@pytest.mark.parametrize(
    ("layout", "suffix"),
    [("bin", ".bin"), ("bin", ".offsets.npy"), ("megatron", ".bin"), ("megatron", ".idx")],
)
def test_a_missing_file(tmp_path: Path, layout: str, suffix: str) -> None:
    pack(tmp_path, layout, "uint16", [THREE])
    (tmp_path / f"s0.v1{suffix}").unlink()
    said = refusal(tmp_path, FileNotFoundError)
    assert said == f"{tmp_path / 's0.v1'}{suffix}: no such file, though it belongs to the corpus"


def test_an_index_of_another_shard(tmp_path: Path) -> None:
    pack(tmp_path, "megatron", "uint16", [THREE, [[1]]])
    (tmp_path / "s0.v1.idx").write_bytes((tmp_path / "s1.v1.idx").read_bytes())
    assert "s0.v1.idx: documents: expected 3, got 1; it is of another corpus" in refusal(tmp_path)


@pytest.mark.parametrize("suffix", [".offsets.npy", ".idx", ".json"])
@given(data=st.binary(max_size=200))
@example(data=b"\x93NUMPY\1\0\x76\0")
@example(data=b"MMIDIDX\0\0" + bytes(25))
@example(data=b'{"layout": "bin", "dtype": "uint16"}')
def test_any_bytes_beside_a_bin_file(
    suffix: str, data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assume(data.strip() != b"{}")  # which says nothing of the layout, and is not looked at
    path = tmp_path_factory.mktemp("packed") / "x.bin"
    path.write_bytes(b"\1\0\2\0")
    path.with_name(f"x{suffix}").write_bytes(data)
    said = refusal(path, dtype="uint16")
    assert said.startswith(str(path.with_name("x")))
