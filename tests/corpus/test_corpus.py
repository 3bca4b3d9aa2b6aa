"""Corpora by recipe: what is drawn, how much of what, how it is written, and what is refused."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import json
import lzma
import os
import random
import re
import shutil
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE
from hypothesis import given
from hypothesis import strategies as st
from oracles import need

import bpe_tokenizer as core
from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools.corpus import documents, drawing
from bpe_tokenizer_tools.corpus.drawing import Recipe, Source, build_corpus, draw, parse_size

pytestmark = EITHER_ENGINE

ROOT = Path(__file__).resolve().parents[2]


def source(name: str, path: Any, fraction: Any = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "path": path, "fraction": fraction, **more}


def recipe(folder: Path, size: Any, *sources: dict[str, Any], **more: Any) -> Recipe:
    return Recipe.from_dict({"target_size": size, "sources": list(sources), **more}, folder)


def lengths(count: int, seed: int, longest: int = 400) -> list[str]:
    """Make texts that differ, of many lengths."""
    rng = random.Random(seed)
    return [f"{i:05} " + "é" * rng.randint(0, longest // 2) for i in range(count)]


def write_jsonl(path: Path, texts: list[str], field: str = "text") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"n": i, field: text}) + "\n" for i, text in enumerate(texts))
    path.write_text("".join(lines), encoding="utf-8")


def ids(drawn: Any) -> list[tuple[str, str, int]]:
    return [(document.source, document.file, document.place) for document in drawn]


@pytest.fixture
def mixed(tmp_path: Path) -> Recipe:
    write_jsonl(tmp_path / "a" / "one.jsonl", lengths(150, 1))
    write_jsonl(tmp_path / "a" / "two.jsonl", lengths(90, 2))
    text = "<|endoftext|>".join(lengths(200, 3))
    (tmp_path / "b.txt").write_text(text, encoding="utf-8")
    return recipe(
        tmp_path, 30_000, source("a", "a", 0.7), source("b", "b.txt", 0.3), held_out=4_000, seed=5
    )


# -- What is drawn ------------------------------------------------------------


def number(seed: int, name: str, label: str, place: int) -> int:
    """Compute a document's number as documented, in another way."""
    key = json.dumps([seed, name, label]).encode() + place.to_bytes(8, "little")
    digest = hashlib.blake2b(key, digest_size=4, person=b"corpus").digest()
    return int.from_bytes(digest, "little") // 2 ** (32 - drawing._NUMBER_BITS)


def naively_drawn(
    made: Recipe, texts: dict[str, dict[str, list[str]]]
) -> tuple[list[tuple[str, str, int]], list[tuple[str, str, int]]]:
    """Sort all documents of each source, and take from both ends until the shares are reached."""
    taken, held = [], []
    for each in made.sources:
        order = sorted(
            (number(made.seed, each.name, label, place), label, place, len(text.encode()))
            for label, listed in texts[each.name].items()
            for place, text in enumerate(listed)
        )
        mine, back, size = [], [], 0
        while size < each.fraction * made.held_out:
            back.append(order.pop())
            size += back[-1][3]
            while order and order[-1][0] == back[-1][0]:
                back.append(order.pop())
                size += back[-1][3]
        rounds, there = 0, sum(one[3] for one in order)
        left = Fraction(each.fraction * made.target_size)
        while left >= there:
            rounds, left = rounds + 1, left - there
        for one in order:
            copies = rounds + (left > 0)
            left -= one[3]
            mine += [(each.name, one[1], one[2])] * copies
        taken += sorted(mine)
        held += sorted((each.name, label, place) for _, label, place, _ in back)
    return taken, held


TEXTS = {
    "a": {"a/one.jsonl": lengths(150, 1), "a/two.jsonl": lengths(90, 2)},
    "b": {"b.txt": lengths(200, 3)},
}


@pytest.mark.parametrize("seed", range(4))
def test_the_documents_are_those_that_sorting_all_of_them_gives(mixed: Recipe, seed: int) -> None:
    made = drawing.replace(mixed, seed=seed)
    drawn = list(draw(made))
    taken, held = naively_drawn(made, TEXTS)
    assert ids(one for one in drawn if not one.held_out) == taken
    assert ids(one for one in drawn if one.held_out) == held
    assert all(one.text == TEXTS[one.source][one.file][one.place] for one in drawn)


@pytest.mark.parametrize("seed", range(4))
def test_documents_with_the_same_number_are_taken_as_they_stand(
    mixed: Recipe, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "_NUMBER_BITS", 3)
    monkeypatch.setattr(drawing, "_NUMBERS", 8)  # so that each has dozens of documents
    made = drawing.replace(mixed, seed=seed, target_size=20_000)
    drawn = list(draw(made))
    taken, held = naively_drawn(made, TEXTS)
    assert ids(one for one in drawn if not one.held_out) == taken
    assert ids(one for one in drawn if one.held_out) == held


def test_upsampling_takes_all_documents_in_turns_and_then_some_once_more(mixed: Recipe) -> None:
    sources = tuple(drawing.replace(each, repetitions=None) for each in mixed.sources)
    made = drawing.replace(mixed, target_size=200_000, sources=sources)
    drawn = list(draw(made))
    taken, held = naively_drawn(made, TEXTS)
    assert ids(one for one in drawn if not one.held_out) == taken
    assert not set(taken) & set(held)
    for name in "ab":
        times = Counter(one for one in taken if one[0] == name).values()
        assert max(times) - min(times) == 1 < max(times)
    copies = Counter((one.source, one.file, one.place, one.copy) for one in drawn)
    assert set(copies.values()) == {1}  # each copy once, and numbered


def test_nothing_is_taken_twice_and_each_share_is_reached_within_one_document(
    mixed: Recipe, tmp_path: Path
) -> None:
    drawn = [one for one in draw(mixed)]
    assert len(set(ids(drawn))) == len(drawn)
    report = build_corpus(mixed, tmp_path / "out.jsonl")
    for each, found in zip(mixed.sources, report.sources):
        sizes = [len(one.text.encode()) for one in drawn if one.source == each.name]
        over = found.bytes - each.fraction * mixed.target_size
        assert 0 <= over < max(sizes)
        assert found.wanted_bytes == each.fraction * mixed.target_size
        mine = [one for one in drawn if one.source == each.name and not one.held_out]
        assert (found.documents, found.bytes) == (
            len(mine),
            sum(len(one.text.encode()) for one in mine),
        )
        assert found.share == found.bytes / report.bytes
        assert found.held_out_bytes >= each.fraction * mixed.held_out
        everything = [text for listed in TEXTS[each.name].values() for text in listed]
        assert found.available_documents == len(everything)
        assert found.available_bytes == sum(len(text.encode()) for text in everything)
    assert report.bytes == sum(found.bytes for found in report.sources)


def test_a_larger_target_takes_the_same_documents_and_more(mixed: Recipe) -> None:
    small, large = (
        set(ids(one for one in draw(drawing.replace(mixed, target_size=size)) if not one.held_out))
        for size in (10_000, 20_000)
    )
    assert small < large


def test_a_share_that_is_all_there_is_takes_it_all(tmp_path: Path) -> None:
    texts = lengths(30, 4)
    write_jsonl(tmp_path / "x.jsonl", texts)
    size = sum(len(text.encode()) for text in texts)
    assert [one.text for one in draw(recipe(tmp_path, size, source("x", "x.jsonl")))] == texts
    with pytest.raises(ValueError, match="too small"):
        list(draw(recipe(tmp_path, size + 1, source("x", "x.jsonl"))))


def test_every_document_is_as_likely_as_every_other(tmp_path: Path) -> None:
    documents_, taken, runs = 40, 10, 150
    write_jsonl(tmp_path / "x.jsonl", [f"{i:010}" for i in range(documents_)])
    times: Counter[int] = Counter()
    pairs = 0
    for seed in range(runs):
        made = recipe(tmp_path, 10 * taken, source("x", "x.jsonl"), seed=seed)
        places = [one.place for one in draw(made)]
        assert len(set(places)) == len(places) == taken
        times.update(places)
        pairs += sum(place + 1 in places for place in places)
    # Taken without replacement, counts vary by a factor of 1 - taken/documents_ less.
    expected = runs * taken / documents_
    spread = sum((times[i] - expected) ** 2 for i in range(documents_)) / expected
    chi_square = spread / (1 - taken / documents_) * (documents_ - 1) / documents_
    # With 39 degrees of freedom, one in a thousand is below 16.3 and one above 72.1.
    assert 16.3 < chi_square < 72.1
    # Neighbors are together as often as any two: runs * 39 * (10/40) * (9/39) = 337.5.
    assert abs(pairs - 337.5) < 4 * 337.5**0.5


# -- What the choice does not depend on ---------------------------------------


def corpus_command(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(core.__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "bpe_tokenizer", "corpus", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_another_process_hash_seed_and_folder_give_the_same_bytes(
    mixed: Recipe, tmp_path: Path
) -> None:
    (tmp_path / "mix.json").write_text(json.dumps(mixed.to_json()), encoding="utf-8")
    before = build_corpus(mixed, tmp_path / "here.jsonl")
    elsewhere = tmp_path / "else" / "where"
    shutil.copytree(tmp_path / "a", elsewhere / "a")
    for name in ("b.txt", "mix.json"):
        shutil.copy(tmp_path / name, elsewhere)
    for folder, seed in ((tmp_path, "1"), (elsewhere, "2")):
        out = folder / "out.jsonl"
        done = corpus_command(
            str(folder / "mix.json"), "--output", str(out), "--json", cwd=ROOT, PYTHONHASHSEED=seed
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["sha256"] == before.sha256
        assert out.read_bytes() == (tmp_path / "here.jsonl").read_bytes()
        assert hashlib.sha256(out.read_bytes()).hexdigest() == before.sha256
        held = folder / "out.held-out.jsonl"
        assert hashlib.sha256(held.read_bytes()).hexdigest() == before.held_out_sha256


def test_the_order_of_paths_and_sources_and_of_listing_decides_nothing(
    mixed: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = set(ids(draw(mixed)))
    a, b = mixed.sources
    a = drawing.replace(a, paths=("a/two.jsonl", "a", "a/*.jsonl", "a/one.jsonl"))
    assert set(ids(draw(drawing.replace(mixed, sources=(b, a))))) == expected
    rglob = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda *all: reversed(list(rglob(*all))))
    assert set(ids(draw(mixed))) == expected


def test_another_seed_and_another_name_draw_other_documents(mixed: Recipe) -> None:
    places = {one.place for one in draw(mixed) if one.source == "b" and not one.held_out}
    other = {
        one.place
        for one in draw(drawing.replace(mixed, seed=6))
        if one.source == "b" and not one.held_out
    }
    renamed = drawing.replace(mixed.sources[1], name="c")
    again = drawing.replace(mixed, sources=(mixed.sources[0], renamed))
    third = {one.place for one in draw(again) if one.source == "c" and not one.held_out}
    assert len({frozenset(places), frozenset(other), frozenset(third)}) == 3


def test_memory_does_not_grow_with_the_documents(tmp_path: Path) -> None:
    peaks = []
    for count in (500, 500, 12_000):  # the first one warms up
        path = tmp_path / f"{count}.jsonl"
        write_jsonl(path, [f"{i:06}" * 20 for i in range(count)])
        made = recipe(tmp_path, 60 * count, source("x", path.name), held_out=6 * count)
        tracemalloc.start()
        taken = sum(1 for _ in draw(made))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert taken > count / 2
    assert peaks[2] - peaks[1] < 100_000  # 11,500 more documents: less than 9 bytes each


# -- Documents ----------------------------------------------------------------


def read_as(tmp_path: Path, content: bytes, **how: Any) -> list[str]:
    (tmp_path / "x.txt").write_bytes(content)
    made = recipe(tmp_path, 1, source("x", "x.txt", **how))
    return [text for file in documents.find_files(made)["x"]
            for text in documents.read_documents(file, made.sources[0])]  # fmt: skip


@given(
    st.lists(st.text("ab\n <", max_size=6), max_size=8),
    st.sampled_from(["<>", "ab", "aa", "b"]),
    st.integers(1, 5),
)
def test_text_is_cut_at_separators_wherever_blocks_of_it_end(
    tmp_path: Path, pieces: list[str], separator: str, block: int
) -> None:
    text = separator.join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "_BLOCK_CHARS", block)
        found = read_as(tmp_path, text.encode(), separator=separator)
    assert found == [piece for piece in text.split(separator) if piece.strip()]


def test_what_a_document_is(tmp_path: Path) -> None:
    text = b"one\r\ntwo\r\n \r\n\r\nthree\n"
    whole = text.decode()
    assert read_as(tmp_path, text) == [whole]
    assert read_as(tmp_path, text, documents="file") == [whole]
    assert read_as(tmp_path, text, documents="lines") == ["one", "two", "three"]
    assert read_as(tmp_path, text, documents="blank-lines") == ["one\ntwo", "three"]
    assert read_as(tmp_path, text, separator="two") == ["one\r\n", whole.partition("two")[2]]
    assert read_as(tmp_path, b"<|endoftext|>a<|endoftext|>", documents="file") == [
        "<|endoftext|>a<|endoftext|>"
    ]


def compress(path: Path, raw: bytes) -> None:
    packed = {
        ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
        ".zst": lambda raw: core._codec(".zst").compress(raw),
    }[path.suffix](raw)  # fmt: skip
    path.write_bytes(packed)


@pytest.mark.parametrize("kind", ["jsonl", "txt"])
@pytest.mark.parametrize("end", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_compressed_files_are_read_and_written(tmp_path: Path, kind: str, end: str) -> None:
    if end == ".zst":
        need("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")
    texts = lengths(20, 1)
    write_jsonl(tmp_path / "plain.jsonl", texts)
    raw = (tmp_path / "plain.jsonl").read_bytes()
    if kind == "txt":
        raw = "<|endoftext|>".join(texts).encode()
    path = tmp_path / f"in.{kind}{end}"
    compress(path, raw) if end else path.write_bytes(raw)
    made = recipe(tmp_path, sum(len(text.encode()) for text in texts), source("x", path.name))
    report = build_corpus(made, tmp_path / "out" / f"x.{kind}{end}")
    out = tmp_path / "out" / f"x.{kind}{end}"
    with core._decompressed(out) as file:
        found = file.read()
    assert hashlib.sha256(found).hexdigest() == report.sha256
    assert report.files[0]["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    if kind == "txt":
        assert found.decode() == "".join(text + "<|endoftext|>" for text in texts)
    else:
        records = [json.loads(line) for line in found.splitlines()]
        assert [each["text"] for each in records] == texts
        assert [each["document"] for each in records] == list(range(20))
        assert {(each["source"], each["file"]) for each in records} == {("x", path.name)}
    again = build_corpus(made, out)
    assert again == report
    if end == ".gz":
        assert out.read_bytes()[3:8] == bytes(5)  # neither a name nor a time
    assert json.loads(out.with_name(out.name + ".manifest.json").read_text()) == again.to_json()
    assert sorted(file.name for file in out.parent.iterdir()) == [
        out.name,
        f"{out.name}.manifest.json",
    ]


def test_parquet_is_read(tmp_path: Path) -> None:
    parquet, arrow = need("pyarrow.parquet"), need("pyarrow")
    texts = lengths(50, 1)
    parquet.write_table(arrow.table({"body": texts, "n": list(range(50))}), tmp_path / "x.parquet")
    size = sum(len(text.encode()) for text in texts)
    made = recipe(tmp_path, size, source("x", "*.parquet", text_field="body"))
    assert [one.text for one in draw(made)] == texts
    whole = (tmp_path / "x.parquet").read_bytes()
    parquet.write_table(arrow.table({"body": ["a", None]}), tmp_path / "null.parquet")
    for name, raw, message in (
        ("bad.parquet", b"no", "not a parquet file"),
        ("cut.parquet", whole[: len(whole) // 2], "not a parquet file"),
        ("damaged.parquet", whole[:40] + bytes(400) + whole[440:], "damaged .parquet file"),
        ("null.parquet", None, "row 1: expected text in the field 'body', got None; leave out"),
    ):
        if raw is not None:
            (tmp_path / name).write_bytes(raw)
        found = refusal(recipe(tmp_path, 1, source("x", name, text_field="body")))
        assert found.startswith(f"{tmp_path / name}: {message}")


def test_directories_and_patterns_and_hidden_files(tmp_path: Path) -> None:
    for name in ("d/a.txt", "d/sub/b.txt", "d/.hidden/c.txt", "d/.e.txt", "d/sub/f.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    (tmp_path / "d" / "same.txt").symlink_to(tmp_path / "d" / "a.txt")

    def found(*paths: str) -> list[str]:
        made = recipe(tmp_path, 1, source("x", list(paths)))
        return [file.label for file in documents.find_files(made)["x"]]

    assert found("d") == ["d/a.txt", "d/sub/b.txt", "d/sub/f.md"]  # same.txt is a.txt
    assert found("d/**/*.txt") == ["d/a.txt", "d/sub/b.txt"]
    assert found("d/*.txt", "d/sub/f.md", "d/a.txt") == ["d/a.txt", "d/sub/f.md"]
    assert found(str(tmp_path / "d" / "a.txt")) == [(tmp_path / "d" / "a.txt").as_posix()]


def test_a_corpus_trains_as_its_documents_do(mixed: Recipe, tmp_path: Path) -> None:
    texts = [one.text for one in draw(mixed) if not one.held_out]
    expected = core.count_pretokens(texts, num_workers=1)
    build_corpus(mixed, tmp_path / "out.jsonl.gz")
    build_corpus(mixed, tmp_path / "shards", shard_size=5_000, format="txt.gz")
    from_jsonl = core.count_pretokens(tmp_path / "out.jsonl.gz", num_workers=1)
    assert (from_jsonl, from_jsonl.documents) == (expected, len(texts))
    special = ["<|endoftext|>"]
    from_text = core.count_pretokens(tmp_path / "shards", special_tokens=special, num_workers=1)
    assert from_text == expected


# -- Writing ------------------------------------------------------------------


def test_shards_hold_whole_documents_up_to_their_size(mixed: Recipe, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    report = build_corpus(mixed, out, shard_size=6_000, format="txt")
    shards = sorted(out.iterdir())
    assert [file.name for file in shards] == [f"part-{i:05}.txt" for i in range(len(shards))]
    assert len(shards) > 4
    assert all(file.stat().st_size <= 6_000 for file in shards)
    whole = b"".join(file.read_bytes() for file in shards)
    assert hashlib.sha256(whole).hexdigest() == report.sha256
    texts = [one.text for one in draw(mixed) if not one.held_out]
    assert whole.decode().split("<|endoftext|>") == [*texts, ""]
    held = (tmp_path / "shards.held-out.txt").read_text(encoding="utf-8")
    assert held.split("<|endoftext|>")[:-1] == [one.text for one in draw(mixed) if one.held_out]

    smaller = build_corpus(drawing.replace(mixed, target_size=9_000), out, shard_size=6_000)
    assert [file.name for file in sorted(out.iterdir())] == [each["file"] for each in smaller.files]
    assert len(smaller.files) < len(shards)  # none of the old ones is left


def test_one_large_document_gets_a_shard_of_its_own(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "x.jsonl", ["a" * 50, "b" * 500, "c" * 50])
    made = recipe(tmp_path, 600, source("x", "x.jsonl"))
    report = build_corpus(made, tmp_path / "out", shard_size=100, format="txt", separator="|")
    assert [each["bytes"] for each in report.files] == [51, 501, 51]


def test_a_dry_run_says_the_same_and_writes_nothing(mixed: Recipe, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    dry = build_corpus(mixed, tmp_path / "x.txt", dry_run=True)
    assert sorted(tmp_path.rglob("*")) == before
    real = build_corpus(mixed, tmp_path / "x.txt")
    assert (dry.sha256, dry.held_out_sha256) == (real.sha256, real.held_out_sha256)
    assert (dry.sources, dry.files) == (real.sources, [])
    assert build_corpus(mixed, None).sources == real.sources


def test_a_document_that_holds_the_separator_is_not_written_as_text(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "x.jsonl", ["a", "b|c", "d"])
    made = recipe(tmp_path, 5, source("x", "x.jsonl"))
    with pytest.raises(
        ValueError, match=r"x\.jsonl: document 1 contains the separator '\|'; write"
    ):
        build_corpus(made, tmp_path / "out.txt", separator="|")
    assert [file.name for file in tmp_path.iterdir()] == ["x.jsonl"]
    write_jsonl(tmp_path / "x.jsonl", ["xa", "b"])  # xaaa would be cut before its last letter
    with pytest.raises(ValueError, match="document 0 contains the separator"):
        build_corpus(
            recipe(tmp_path, 3, source("x", "x.jsonl")), tmp_path / "o.txt", separator="aa"
        )


FULL_DISK = """
import resource, signal, sys
from bpe_tokenizer import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name == "nt", reason="limits of file sizes are those of POSIX")
@pytest.mark.parametrize("out", ["out.jsonl", "out.jsonl.gz", "out.txt.xz", "out"])
def test_a_disk_that_fills_up_midway_leaves_what_was_there(tmp_path: Path, out: str) -> None:
    rng = random.Random(1)
    texts = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=500)) for _ in range(200)]
    write_jsonl(tmp_path / "x.jsonl", texts)
    build_corpus(recipe(tmp_path, 5_000, source("x", "x.jsonl")), tmp_path / out)
    made = recipe(tmp_path, 90_000, source("x", "x.jsonl")).to_json()
    (tmp_path / "mix.json").write_text(json.dumps(made), encoding="utf-8")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, "corpus", "mix.json", "--output", out],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(core.__file__).parent)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 1
    reason = f"{os.strerror(errno.EFBIG)}; nothing was written"
    assert done.stderr == f"bpe-tokenizer: error: {out}: {reason}\n"
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_a_corpus_that_does_not_fit_on_the_disk_is_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.txt").write_text("a few words", encoding="utf-8")
    made = recipe(tmp_path, "9000000 TB", source("x", "x.txt"), held_out="1 TB").to_json()
    (tmp_path / "mix.json").write_text(json.dumps(made), encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    for out in ("out.jsonl", "below/it/out.txt", "shards"):
        path = tmp_path / out
        assert core.main(["corpus", str(tmp_path / "mix.json"), "--output", str(path)]) == 1
        free = shutil.disk_usage(tmp_path).free
        found = capsys.readouterr().err
        said = re.fullmatch(
            rf"bpe-tokenizer: error: {re.escape(str(path))}: the corpus is "
            r"9,000,001,000,000,000,000 bytes of text, and ([\d,]+) are free on its disk; ask for "
            r"less, write elsewhere, or compress it, as \.jsonl\.zst, say\n",
            found,
        )
        assert said is not None
        assert int(said[1].replace(",", "")) == pytest.approx(free, rel=0.5)
        assert sorted(tmp_path.rglob("*")) == before
    packed = str(tmp_path / "out.jsonl.gz")  # which may be smaller
    assert core.main(["corpus", str(tmp_path / "mix.json"), "--output", packed]) == 1
    note, error = capsys.readouterr().err.splitlines()
    assert note.startswith(f"note: {packed}: the corpus is 9,000,001,000,000,000,000 bytes of text")
    assert "source 'x' is too small" in error
    assert "it has 11 in 1 document;" in error


# -- What is refused ----------------------------------------------------------


def test_sizes() -> None:
    for written, size in {
        "10GB": 10**10, "500 MB": 5 * 10**8, "1e9": 10**9, 1e9: 10**9, "1.5 kB": 1500, 7: 7,
        "2 GiB": 2**31, "1_000": 1000, "12B": 12, " 3 TB ": 3 * 10**12, "0.1MB": 100_000,
    }.items():  # fmt: skip
        assert parse_size(written) == size
    for wrong in ("", "GB", "10 XB", "-5 MB", "ten", 0, -1, 0.5, True, None, float("inf"),
                  float("nan"), "1e999", "1,000", [1]):  # fmt: skip
        with pytest.raises(ValueError, match="size"):
            parse_size(wrong)


GOOD = {"target_size": 10, "sources": [{"name": "x", "path": "x.txt", "fraction": 1}]}


def changed(**more: Any) -> dict[str, Any]:
    return {**GOOD, "sources": [{**GOOD["sources"][0], **more}]}  # type: ignore[index,dict-item]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "target_size: is missing"),
        ({"target_size": 1}, "sources: is missing"),
        ({**GOOD, "sources": []}, "expected at least one source"),
        ({**GOOD, "sources": {"a": 1}}, "sources: expected list, got {'a': 1}"),
        ({**GOOD, "sources": [1]}, "sources[0]: expected an object, got 1"),
        ({**GOOD, "target_size": "10 XB"}, "target_size: expected a size in bytes, such as"),
        ({**GOOD, "target_size": 0}, "target_size: expected a size of at least one byte, got 0"),
        ({**GOOD, "target_size": True}, "target_size: expected int or float or str, got True"),
        ({**GOOD, "seed": "x"}, "seed: expected int, got 'x'"),
        ({**GOOD, "seed": 2**63}, "seed: expected a number of at most 64 bits"),
        ({**GOOD, "held_out": -1}, "held_out: expected a size"),
        ({**GOOD, "taget_size": 1}, "unknown key 'taget_size': did you mean 'target_size'?"),
        ({**GOOD, "zzz": 1}, "unknown key 'zzz': expected target_size, seed, held_out, sources"),
        (changed(fracton=1), "sources[0]: unknown key 'fracton': did you mean 'fraction'?"),
        (changed(fraction=0), "sources[0].fraction: expected a fraction above 0 and up to 1"),
        (changed(fraction=-0.5), "sources[0].fraction: expected a fraction above 0"),
        (changed(fraction=1.5), "sources[0].fraction: expected a fraction above 0"),
        (changed(fraction="1/0"), "sources[0].fraction: expected a fraction above 0"),
        (changed(fraction=float("nan")), "sources[0].fraction: expected a fraction above 0"),
        (changed(fraction="1e-999999999"), "sources[0].fraction: expected a fraction above 0"),
        (changed(fraction="1E0_999999999"), "sources[0].fraction: expected a fraction above 0"),
        (changed(fraction="9" * 5000), "sources[0].fraction: expected a fraction above 0"),
        (changed(fraction=0.5), "the fractions sum to 0.5, not to 1: 0.5"),
        (changed(name=""), "sources[0]: expected a name that can be printed, got ''"),
        (changed(path=[]), "sources[0]: expected at least one path, got []"),
        (changed(path=[1]), "sources[0].path: expected paths, got [1]"),
        (changed(path=3), "sources[0].path: expected str or list, got 3"),
        (changed(format="csv"), "format: expected one of 'text', 'jsonl', 'parquet', got 'csv'"),
        (changed(documents="line"), "documents: expected one of 'separator', 'lines', 'blank-"),
        (changed(separator=""), "separator: expected text, got ''"),
        (changed(upsample=0), "sources[0].upsample: expected true, or how often at most, got 0"),
        (changed(upsample="yes"), "sources[0].upsample: expected bool or int, got 'yes'"),
        ({**GOOD, "sources": GOOD["sources"] * 2}, "two sources are named 'x'"),  # type: ignore[operator]
        (
            {**GOOD, "sources": [source("a", "a", 0.7), source("b", "b", 0.6)]},
            "the fractions sum to 1.3, not to 1: 0.7 + 0.6",
        ),
    ],
)
def test_wrong_recipes(data: dict[str, Any], message: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        Recipe.from_dict(data)
    assert str(caught.value).startswith("recipe: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fractions_are_exact(tmp_path: Path) -> None:
    made = recipe(tmp_path, 9, *(source(name, name, "1/3") for name in "abc"))
    assert [each.fraction for each in made.sources] == [Fraction(1, 3)] * 3
    assert len(recipe(tmp_path, 9, *(source(str(i), "x", 0.1) for i in range(10))).sources) == 10
    assert Source("a", ("x",), Fraction("0.5")).fraction * 2 == 1
    one: Any = Path("x.txt")
    assert Source("a", one, Fraction(1)).paths == ("x.txt",)


def test_recipes_in_files(tmp_path: Path) -> None:
    need("tomllib" if sys.version_info >= (3, 11) else "tomli")
    toml, as_json = tmp_path / "mix.toml", tmp_path / "mix.json"
    toml.write_text('target_size = "1kB"\n[[sources]]\nname = "x"\npath = "x.txt"\nfraction = 1\n')
    as_json.write_text(json.dumps({**GOOD, "target_size": 1e3}))
    assert Recipe.from_file(toml) == Recipe.from_file(as_json)
    assert Recipe.from_file(toml).folder == tmp_path
    for path, content, message in (
        (toml, b"a = \nb = 1", r"mix\.toml: not TOML: .*line 1"),
        (toml, b"seed = 1\nseed = 2", r"not TOML: .*overwrite"),
        (toml, b"\xff\xfe", r"mix\.toml: byte 0: not UTF-8 text"),
        (as_json, b"{", r"mix\.json: not JSON: .*line 1"),
        (as_json, b"[]", r"mix\.json: expected a JSON object, got \[\]"),
        (as_json, b'{"seed": 1, "seed": 1}', r"the key 'seed' appears twice"),
        (tmp_path / "mix.yaml", b"", r"expected a name that ends in \.toml or \.json"),
    ):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=message):
            Recipe.from_file(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        Recipe.from_file(tmp_path / "none.toml")


def test_a_recipe_that_is_written_out_says_the_same(mixed: Recipe) -> None:
    sources = [drawing.replace(mixed.sources[0], repetitions=None, format="jsonl")]
    made = drawing.replace(
        mixed, sources=(*sources, drawing.replace(mixed.sources[1], repetitions=4))
    )
    assert Recipe.from_dict(json.loads(json.dumps(made.to_json()))) == made


def refusal(made: Recipe) -> str:
    with pytest.raises((ValueError, OSError)) as caught:
        list(draw(made))
    message = core._one_line(caught.value)
    assert "\n" not in message
    return message


def test_a_source_that_is_too_small(mixed: Recipe) -> None:
    size = sum(len(text.encode()) for listed in TEXTS["a"].values() for text in listed)
    made = drawing.replace(mixed, target_size=200_000, held_out=0)
    message = refusal(made)
    assert f"source 'a' is too small: its share is 140,000 bytes, and it has {size:,}" in message
    most = int(size / Fraction(7, 10))
    assert f"ask for less (at most {most:,} for target_size), add files, or set upsample" in message
    assert list(draw(drawing.replace(made, target_size=most)))
    assert "too small" in refusal(drawing.replace(made, target_size=most + 1))
    twice = tuple(drawing.replace(each, repetitions=2) for each in made.sources)
    assert list(draw(drawing.replace(made, target_size=2 * most, sources=twice)))
    message = refusal(drawing.replace(made, target_size=2 * most + 1, sources=twice))
    assert "to be taken 2 times at most" in message


def test_a_source_that_is_all_held_out(mixed: Recipe) -> None:
    for held_out in (10**6, 10**5):
        message = refusal(drawing.replace(mixed, held_out=held_out))
        assert "source 'a' is too small: its share is" in message
        assert "for target_size and held_out together" in message


def test_a_source_that_is_not_there_or_empty(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "blank.jsonl").write_text('{"text": " \\n"}\n\n')
    folder = tmp_path / "folder"
    folder.mkdir()
    for path, message in (
        ("none.txt", f"source 'x': no such file or directory: {tmp_path / 'none.txt'}"),
        (
            "n" * 5000,
            f"source 'x': no such file or directory: {str(tmp_path / ('n' * 5000))[:299]}…",
        ),
        ("*.nothing", f"source 'x': no file matches {tmp_path / '*.nothing'}"),
        (
            "~none/x",
            f"source 'x': no such file or directory: {tmp_path / '~none/x'}",
        ),
        ("folder", f"source 'x': the corpus is empty: expected files in the directory {folder}"),
        ("empty.txt", f"source 'x': no text in {tmp_path / 'empty.txt'}"),
        ("blank.jsonl", f"source 'x': no text in {tmp_path / 'blank.jsonl'}"),
    ):
        assert refusal(recipe(tmp_path, 5, source("x", path))) == message
    (tmp_path / "~$draft.txt").write_text("abcdef")  # as some editors name them
    assert [each.text for each in draw(recipe(tmp_path, 5, source("x", "~$draft.txt")))] == [
        "abcdef"
    ]
    (tmp_path / "y.txt").write_text("abcdef")
    both = recipe(tmp_path, 4, source("a", "y.txt", 0.5), source("b", "*.txt", 0.5))
    assert "is in two sources, 'a' and 'b'" in refusal(both)


@pytest.mark.skipif(os.name == "nt", reason="there are no named pipes in folders")
def test_a_pipe_is_no_source(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    message = refusal(recipe(tmp_path, 5, source("x", "pipe")))
    assert (
        message
        == f"source 'x': {tmp_path / 'pipe'} is not a regular file, and has to be read twice"
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"fine\n\x89PNG\r\n", "x.txt: byte 5: not UTF-8 (invalid start byte)"),
        ("x.txt", "€".encode() + b"\0\0", "x.txt: byte 3: a NUL byte: this is not UTF-8 text"),
        (
            "x.txt",
            b"\x7fELF\xff\0",
            "x.txt: byte 5: a NUL byte: this is not UTF-8 text but UTF-16,",
        ),
        ("x.txt", "naïve".encode("utf-16-le"), "x.txt: byte 1: a NUL byte"),
        ("x.txt", "naïve".encode("latin-1"), "x.txt: byte 2: not UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n{"text": \n', "x.jsonl: line 2: not JSON"),
        ("x.jsonl", b'{"text": "a"}\n{"body": "b"}\n', "x.jsonl: line 2: expected text in the"),
        (
            "x.jsonl",
            b'{"text": null}\n',
            "x.jsonl: line 1: expected text in the field 'text', got ",
        ),
        ("x.jsonl", b'{"text": "\xff"}\n', "x.jsonl: line 1: not JSON: 'utf-8' codec"),
        ("x.jsonl", b'{"text": "\\ud800"}\n', "x.jsonl: line 1: text contains the lone surrogate"),
        ("x.txt.gz", b"no gzip", "x.txt.gz: damaged .gz file"),
        ("x.txt.gz", gzip.compress(b"abc" * 99, mtime=0)[:-9], "x.txt.gz: damaged .gz file"),
        ("x.jsonl.xz", lzma.compress(b"{}")[:-5], "x.jsonl.xz: damaged .xz file"),
    ],
)
def test_files_that_are_not_what_they_should_be(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert refusal(recipe(tmp_path, 5, source("x", name))).startswith(str(tmp_path / message))


def gone(path: Path) -> None:
    path.unlink()


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'{"text": "more"}\n')


def other_text(path: Path) -> None:
    """Change a file so that its size and time do not tell."""
    status, raw = path.stat(), path.read_bytes()
    path.write_bytes(raw.replace(b"00001", b"00009"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (gone, "source 'a': {path} existed at first and has vanished"),
        (longer, "source 'a': {path} changed while the corpus was made; run it again when nothing"),
        (other_text, "source 'a': its text changed while the corpus was made"),
    ],
)
def test_a_source_that_vanishes_or_changes_midway(
    mixed: Recipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    message: str,
) -> None:
    path, out = tmp_path / "a" / "two.jsonl", tmp_path / "out.jsonl"
    build_corpus(drawing.replace(mixed, seed=1), out)
    before = {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    add = drawing._Output.add

    def add_and_change(self: Any, document: drawing.Document) -> None:
        """Write the first document; between the two readings, that is, the file changes."""
        add(self, document)
        monkeypatch.setattr(drawing._Output, "add", add)
        change(path)

    monkeypatch.setattr(drawing._Output, "add", add_and_change)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        build_corpus(mixed, out)
    assert str(caught.value).startswith(message.format(path=path))
    assert {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before


def test_outputs_that_would_do_harm(mixed: Recipe, tmp_path: Path) -> None:
    for out, message, more in (
        ("b.txt", "b.txt is a source; give the output another name", {}),
        ("a/out.jsonl", "is inside the source", {}),
        ("out.json", "expected a name that ends in one of jsonl, jsonl.gz", {}),
        ("out.jsonl", "is the name of one file, which can't be combined with a shard size",
         {"shard_size": 9}),
        ("out.jsonl", "can't be combined with the format 'txt'", {"format": "txt"}),
        ("out", "expected the format jsonl, jsonl.gz", {"format": "csv"}),
        ("-", "; standard output cannot take a corpus", {}),
        ("b.txt/out.jsonl", "b.txt is a file, not a directory", {}),
        ("b.txt/out", "b.txt is a file, not a directory", {}),
        ("new.txt", "new.held-out.txt: is a directory; expected a file to write", {}),
        ("new", "new.manifest.json: is a directory; expected a file to write", {}),
        ("a", "contains 'one.jsonl', which a.manifest.json does not list", {}),
        ("mine", "contains 'thesis.txt', which mine.manifest.json does not list", {}),
    ):  # fmt: skip
        for name in ("mine", "new.held-out.txt", "new.manifest.json"):
            (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / "mine" / "thesis.txt").write_text("all of it")
        before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
        with pytest.raises((ValueError, OSError)) as caught:
            build_corpus(mixed, tmp_path / out, **more)  # type: ignore[arg-type]
        assert message in str(caught.value)
        assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


# -- The command --------------------------------------------------------------


def test_the_command(mixed: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mix.json"
    path.write_text(json.dumps(mixed.to_json()), encoding="utf-8")
    run = [str(path), "--output", str(tmp_path / "out.jsonl")]
    assert core.main(["corpus", *run]) == 0
    shown = capsys.readouterr().out
    report = build_corpus(mixed, None)
    assert shown == f"{report}\n"
    assert shown.splitlines()[1].split()[:3] == ["a", str(report.sources[0].documents),
                                                 f"{report.sources[0].bytes:,}"]  # fmt: skip
    assert core.main(["corpus", *run, "--seed", "9", "--json", "--dry-run"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["recipe"]["seed"] == 9
    assert other["sha256"] != report.sha256
    assert core.main(["corpus", *run, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    shards = ["--output", str(tmp_path / "d"), "--shard-size", "10 kB", "--format", "txt.gz"]
    assert core.main(["corpus", str(path), *shards, "--separator", "|", "--quiet"]) == 0
    assert len(list((tmp_path / "d").glob("part-*.txt.gz"))) == 4
    with pytest.raises(SystemExit, match="2"):
        core.main(["corpus", str(path)])
    assert "one of the arguments --output and --dry-run is required" in capsys.readouterr().err
    path.write_text(json.dumps({**mixed.to_json(), "sede": 1}), encoding="utf-8")
    assert core.main(["corpus", *run]) == 1
    wrong = f"bpe-tokenizer: error: {path}: unknown key 'sede': did you mean 'seed'?\n"
    assert capsys.readouterr() == ("", wrong)


def test_real_texts_in_real_shares(corpora_dir: Path, tmp_path: Path) -> None:
    made = recipe(
        corpora_dir,
        "60 kB",
        source("english", "english.txt", 0.5),
        source("code", "code.txt", 0.2),
        source("many", "multi.txt", 0.3),
    )
    report = build_corpus(made, tmp_path / "mix.txt")
    shares = [each.share for each in report.sources]  # of whole documents, some of them long
    assert shares == pytest.approx([0.5, 0.2, 0.3], abs=0.05)
    texts = (tmp_path / "mix.txt").read_text(encoding="utf-8").split("<|endoftext|>")[:-1]
    assert len(texts) == report.documents
    assert sum(len(text.encode()) for text in texts) == report.bytes
    there = Counter()  # type: ignore[var-annotated]
    for name in ("english", "code", "multi"):
        whole = (corpora_dir / f"{name}.txt").read_text(encoding="utf-8")
        there.update(whole.split("<|endoftext|>"))
    assert not Counter(texts) - there
