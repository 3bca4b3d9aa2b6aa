"""Jobs at scale that are killed, stopped, starved and started again: exact, or said precisely.

Commands run as programs of their own; a test is only done when no process of them is left.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE, run_command
from oracles import need
from processes import Program, processes_with

import bpe_tokenizer as core
from bpe_tokenizer import BPETokenizer, FileFormatError, PretokenCounts
from bpe_tokenizer_tools.scale import (
    CountJob,
    PackJob,
    count_pretokens,
    encode_corpus,
    encode_shard,
    inputs,
    job_folder,
)
from bpe_tokenizer_tools.scale.executors import progress
from bpe_tokenizer_tools.scale.executors.executor import Executor, Task

need("numpy")

pytestmark = [EITHER_ENGINE, pytest.mark.slow]

linux = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found in /proc"
)

TEXTS = [f"shard {n}: low lower lowest, newer newest. {'idea ' * n}\n" for n in range(5)]
DRAFT = re.compile(r"\..*\.tmp")


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def drafts(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if DRAFT.fullmatch(path.name)]


def identities(folder: Path, names: Any) -> dict[str, tuple[int, int]]:
    """Tell of each file which one it is, and when it was written; markers may get a new time."""
    found = {name: (folder / name).stat() for name in names}
    return {
        name: (status.st_ino, 0 if name.endswith(".json") else status.st_mtime_ns)
        for name, status in found.items()
    }


@pytest.fixture(scope="module")
def tokenizer(engine: str) -> BPETokenizer:
    return BPETokenizer().train(TEXTS, 290, special_tokens=["<end>"], verbose=False, num_workers=1)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, text in enumerate(TEXTS):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    return folder


# -- Commands as programs -----------------------------------------------------


class Running(Program):
    """A command in its own session, as at a terminal."""

    def __init__(
        self, folder: Path, *arguments: object, slow: bool = False, **options: Any
    ) -> None:
        command = ["-m", "bpe_tokenizer", *arguments]
        variables = {"BPE_TOKENIZER_PURE": "1"} if slow else {}
        options = {"start_new_session": True, **options}
        super().__init__(command, folder / "said", options, **variables)

    def workers(self) -> list[int]:
        return [number for number in processes_with(self._mark) if number != self.process.pid]

    def wait_for(self, what: Callable[[], Any]) -> Any:
        """Wait until something is so, while the command is at work."""
        deadline = time.monotonic() + 600
        while not (found := what()):
            assert self.process.poll() is None, f"it ended too early: {self.said()}"
            assert time.monotonic() < deadline, "it took too long"
            time.sleep(0.005)
        return found

    def status(self) -> int:
        """Return its status, when no process of it is left."""
        return self.wait(600).status

    def said(self) -> tuple[str, str]:
        """Return what is on stdout and on stderr up to now."""
        out, err = (path.read_text(encoding="utf-8") for path in self._said)
        return out, err


class Job:
    """A command that takes long enough to be disturbed, and what it should make."""

    def __init__(self, folder: Path, name: str, arguments: list[object], made: Path) -> None:
        self.folder, self.name, self.arguments, self.made = folder, name, arguments, made

    def start(self, *more: object, **options: Any) -> Running:
        command = [self.name, *self.arguments, "--num-workers", 2, *more]
        return Running(self.folder, *command, "--quiet", **{"slow": True, **options})

    def finished(self) -> list[str]:
        """Name the markers of shards, and the files that they list."""
        found = {
            path.name: job_folder.read_marker(path, self.marker)
            for path in self.made.glob("*.json")
        }
        return [
            name for each, marker in found.items() if marker for name in (each, *marker["files"])
        ]

    @property
    def marker(self) -> str:
        return {"count": "bpe_tokenizer.counted_shard", "pack": "bpe_tokenizer.packed_shard"}[
            self.name
        ]


SHARDS = 6


@pytest.fixture(scope="module", params=["count", "pack"])
def example(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: BPETokenizer,
) -> tuple[str, Path, dict[str, bytes]]:
    """Shards that take a while, and what an undisturbed job makes of them."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "in").mkdir()
    text = "".join(f"{word}{word % 7}ing th{word * word % 1009}\n" for word in range(25_000))
    repeated = gzip.compress((text * (6 if request.param == "count" else 2)).encode(), 1)
    for number in range(SHARDS):
        own = gzip.compress(f"in {number} only".encode())
        (folder / "in" / f"{number}.txt.gz").write_bytes(repeated + own)
    tokenizer.save(folder / "tok", verbose=False)
    if request.param == "pack":
        encode_corpus(tokenizer, folder / "in", folder / "out", num_workers=1)
        return request.param, folder, tree(folder / "out")
    job = CountJob(folder / "in", work_dir=folder / "work", partitions=4, num_workers=1)
    job.to_file(folder / "counts.json")
    whole = PretokenCounts.load(folder / "counts.json")
    assert whole[b" only"] == SHARDS
    return request.param, folder, {**tree(folder / "work"), "": tree(folder)["counts.json"]}


@pytest.fixture
def job(example: tuple[str, Path, Any], tmp_path: Path) -> Job:
    name, folder, _ = example
    made = tmp_path / "made"
    if name == "pack":
        return Job(tmp_path, name, [folder / "in", "--tokenizer", folder / "tok", "-o", made], made)
    output = ["-o", tmp_path / "counts.json", "--work-dir", made, "--partitions", 4]
    return Job(tmp_path, name, [folder / "in", *output], made)


def everything_made(job: Job) -> dict[str, bytes]:
    made = tree(job.made)
    if job.name == "count":
        made[""] = (job.folder / "counts.json").read_bytes()
    return made


def resumed(job: Job, example: Any, kept: list[str]) -> None:
    """Run a job again, as it was; what was finished is not touched, and the rest is exact."""
    before = identities(job.made, kept)
    with job.start("--json", slow=False) as running:
        assert running.status() == 0, running.said()
    out, err = running.said()
    assert err == ""
    assert json.loads(out)["kept"] == sum(name.endswith(".json") for name in kept)
    assert identities(job.made, kept) == before
    assert drafts(job.folder) == []
    assert everything_made(job) == example[2]


@linux
def test_a_killed_driver(job: Job, example: Any) -> None:
    with job.start() as running:
        running.wait_for(lambda: job.finished() and running.workers())
        running.process.send_signal(signal.SIGKILL)
        assert running.status() == -signal.SIGKILL
    kept = job.finished()
    assert 0 < sum(name.endswith(".json") for name in kept) < SHARDS
    assert not (job.made / "manifest.json").exists()
    resumed(job, example, kept)


@linux
def test_a_killed_worker(job: Job, example: Any) -> None:
    with job.start("--json") as running:
        for _ in range(2):
            victim = running.wait_for(lambda: job.finished() and running.workers())[0]
            os.kill(victim, signal.SIGKILL)
            running.wait_for(lambda: victim not in running.workers())
        assert running.status() == 0, running.said()
    out, err = running.said()
    assert err == ""
    assert json.loads(out)["shards"] == SHARDS
    assert drafts(job.folder) == []
    assert everything_made(job) == example[2]


@linux
def test_ctrl_c(job: Job, example: Any) -> None:
    with job.start() as running:
        running.wait_for(job.finished)
        os.killpg(running.process.pid, signal.SIGINT)
        assert running.status() == 128 + signal.SIGINT
    assert running.said() == ("", "bpe-tokenizer: error: interrupted\n")
    assert drafts(job.folder) == []
    kept = job.finished()
    assert 0 < sum(name.endswith(".json") for name in kept) < SHARDS
    resumed(job, example, kept)


@linux
@pytest.mark.parametrize("example", ["pack"], indirect=True)
@pytest.mark.parametrize("after", [0.0, 0.06, 0.12])
def test_ctrl_c_while_workers_start(job: Job, after: float) -> None:
    with job.start() as running:
        running.wait_for(running.workers)
        time.sleep(after)
        os.killpg(running.process.pid, signal.SIGINT)
        assert running.status() == 128 + signal.SIGINT
    assert running.said() == ("", "bpe-tokenizer: error: interrupted\n")
    assert drafts(job.folder) == []


@linux
def test_a_full_disk(job: Job, example: Any) -> None:
    resource = need("resource")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    with job.start(preexec_fn=limit) as running:
        assert running.status() == 1
    out, err = running.said()
    shown = {"count": r"\.run", "pack": r"\.bin"}[job.name]
    line = (
        rf"bpe-tokenizer: error: {re.escape(str(job.made))}/\d-[0-9a-f]+{shown}: File too large\n"
    )
    assert out == "" and re.fullmatch(line, err), err
    assert list(job.made.iterdir()) == []
    resumed(job, example, [])


@linux
@pytest.mark.parametrize("workers", [1, 2])
def test_a_line_that_memory_does_not_hold(tmp_path: Path, workers: int) -> None:
    resource = need("resource")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (6 * 10**8, 6 * 10**8))

    source, counts = tmp_path / "in", tmp_path / "counts.json"
    source.mkdir()
    (source / "1.jsonl").write_text('"short"\n', encoding="utf-8")
    line = gzip.compress(b'"') + 400 * gzip.compress(b"x" * 2**20)
    (source / "2.jsonl.gz").write_bytes(line)
    command = ["count", source, "-o", counts, "--quiet", "--num-workers", workers]
    with Running(tmp_path, *command, preexec_fn=limit) as running:
        assert running.status() == 1
    out, err = running.said()
    name = re.escape(f"{source}/2.jsonl.gz")
    expected = rf"bpe-tokenizer: error: {name}: out of memory: each line or row .*\n"
    assert out == "" and re.fullmatch(expected, err), err
    assert not counts.exists() and drafts(tmp_path) == []


# Imported by every Python that finds it; whoever meets this text is gone, as when memory ends.
DEADLY = """
import os, signal
from bpe_tokenizer_tools import core
found = core.text_on
def deadly(line, *rest):
    text = found(line, *rest)
    if text == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return text
core.text_on = deadly
"""


@linux
def test_a_document_that_ends_every_process(
    tmp_path: Path, tokenizer: BPETokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for number in range(4):
        records = ["good", "deadly" if number == 2 else "better"]
        lines = [json.dumps({"text": text}) + "\n" for text in records]
        (source / f"{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(DEADLY, encoding="utf-8")
    paths = [str(tmp_path), str(Path(core.__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    tokenizer.save(tmp_path / "tok", verbose=False)
    base = ["pack", source, "--tokenizer", tmp_path / "tok", "-o", out, "--quiet"]
    command = [*base, "--max-retries", 1, "--num-workers", 2]
    said = (
        f"bpe-tokenizer: error: the process that worked on {source}/2.jsonl was ended by signal 9, "
        "2 times in all; often it ran out of memory: try fewer workers. What is finished is "
        "kept: the same call goes on\n"
    )
    for _ in range(2):
        with Running(tmp_path, *command) as running:
            assert running.status() == 1
        assert running.said() == ("", said)
        assert drafts(out) == []
    kept = len(list(out.glob("*.json")))
    assert kept in (2, 3)
    (source / "2.jsonl").write_text('{"text": "harmless"}\n', encoding="utf-8")
    with Running(tmp_path, *command, "--json") as running:
        assert running.status() == 0, running.said()
    assert json.loads(running.said()[0])["kept"] == kept


def die(common: int, number: int, advance: Callable[[int], Any]) -> int:
    """Work for a while, and maybe end without a word."""
    time.sleep(0.25)  # what is done is not told at once
    advance(10)
    if number == 1:
        os._exit(common)
    return number


@linux
def test_progress_is_taken_back_with_what_is_lost() -> None:
    advanced: list[int] = []

    class Listener(progress.Progress):
        def advance(self, n_bytes: int) -> None:
            advanced.append(n_bytes)

    listener = Listener("x", 20, 2, None, False)
    tasks = [Task("one", (1,), 10)]
    with pytest.raises(RuntimeError, match="worked on one ended with status 3, 2 times in all"):
        list(Executor("local", 2, max_retries=1).run(die, 3, tasks, listener))
    assert advanced == [10, -10] * 2
    tasks = [Task("two", (2,), 10), Task("three", (3,), 10)]
    results = Executor("local", 2).run(die, 3, tasks, listener)
    assert sorted(result for _, result in results) == [2, 3]
    assert sum(advanced) == 20


@pytest.mark.parametrize("given", ["file", "stdin"])
def test_a_script_needs_no_main_guard(small: Path, tmp_path: Path, given: str) -> None:
    """Workers don't import the caller's script; it may even have no file."""
    script = (
        "from bpe_tokenizer_tools.scale import count_pretokens\n"
        f"counts = count_pretokens({str(small)!r}, num_workers=2)\n"
        "print(counts.documents, sum(counts.values()))\n"
    )
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-" if given == "stdin" else str(tmp_path / "script.py")],
        input=script if given == "stdin" else "",
        capture_output=True,
        text=True,
        timeout=600,
    )
    counts = count_pretokens(small, num_workers=1)
    expected = f"{len(TEXTS)} {sum(counts.values())}\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, expected, "")


# -- Run again after changes --------------------------------------------------


class Both:
    """Counting and packing of a folder, the same way."""

    def __init__(self, kind: str, source: Path, out: Path, tokenizer: BPETokenizer) -> None:
        self.kind, self.source, self.out, self.tokenizer = kind, source, out, tokenizer

    def run(self, **options: Any) -> Any:
        options = {"num_workers": 1, **options}
        paths = options.pop("paths", self.source)
        if self.kind == "pack":
            return PackJob(
                options.pop("tokenizer", self.tokenizer), paths, self.out, **options
            ).run()
        job = CountJob(paths, work_dir=self.out, partitions=2, **options)
        return job.to_file(self.out.with_suffix(".counts"))

    def made(self) -> dict[str, bytes]:
        found = tree(self.out)
        if self.kind == "count":
            found[""] = self.out.with_suffix(".counts").read_bytes()
        return found

    def afresh(self, **options: Any) -> dict[str, bytes]:
        """Return what is made where nothing was before."""
        other = Both(self.kind, self.source, self.out.with_name("afresh"), self.tokenizer)
        other.run(**options)
        made = other.made()
        for name in tree(other.out):
            (other.out / name).unlink()
        return made


@pytest.fixture(params=["count", "pack"])
def both(request: pytest.FixtureRequest, small: Path, tokenizer: BPETokenizer) -> Both:
    return Both(request.param, small, small.with_name("out"), tokenizer)


def rewrite(path: Path, change: Callable[[bytes], bytes], *, back: bool = False) -> None:
    status = path.stat()
    path.write_bytes(change(path.read_bytes()))
    if back:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def capitals(data: bytes) -> bytes:
    assert data != data.upper()
    return data.upper()


def inverted(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


INPUT_CHANGES: dict[str, tuple[Callable[[Path], Any], int]] = {
    "longer": (lambda path: rewrite(path, lambda data: data + b" more"), 4),
    "empty": (lambda path: rewrite(path, lambda data: b""), 4),
    "same size": (lambda path: rewrite(path, capitals), 4),
    "same size, time set back": (lambda path: rewrite(path, capitals, back=True), 4),
    "touched": (lambda path: os.utime(path), 5),
    "written again": (lambda path: rewrite(path, bytes), 5),
    "of an older time": (lambda path: os.utime(path, ns=(10**18, 10**18)), 5),
}


@pytest.mark.parametrize("change", INPUT_CHANGES)
def test_an_input_that_changes(both: Both, change: str) -> None:
    both.run()
    before = identities(both.out, tree(both.out))
    action, kept = INPUT_CHANGES[change]
    time.sleep(0.02)  # a file system's clock goes in steps
    action(both.source / "2.txt")
    expected = both.afresh()
    report = both.run()
    assert (report.shards, report.kept) == (5, kept)
    assert both.made() == expected
    after = identities(both.out, tree(both.out))
    same = {name for name in before if before[name] == after.get(name)}
    touched = {name for name in before if name.startswith(("2-", "manifest", "partition"))}
    if kept == 5:
        assert same == set(before)
    else:  # a marker, compared by inode alone, can get that of a file just removed
        assert same | touched == set(before)
        assert {name for name in same & touched if not name.endswith(".json")} == set()


MADE = [("count", each) for each in (".run", ".json", ".counts")]
MADE += [("pack", each) for each in (".bin", ".offsets.npy", ".json")]
OUTPUT_CHANGES: dict[str, Callable[[Path], Any]] = {
    "removed": lambda path: path.unlink(),
    "cut": lambda path: rewrite(path, lambda data: data[:-3]),
    "altered": lambda path: rewrite(path, inverted),
    "altered, time set back": lambda path: rewrite(path, inverted, back=True),
}


@pytest.mark.parametrize(("both", "which"), MADE, indirect=["both"])
@pytest.mark.parametrize("change", OUTPUT_CHANGES)
def test_an_output_that_is_not_as_it_was_made(both: Both, change: str, which: str) -> None:
    both.run()
    made = both.made()
    paths = sorted(both.out.glob(f"*{which}"))
    time.sleep(0.02)  # a file system's clock goes in steps
    OUTPUT_CHANGES[change](paths[0])
    report = both.run()
    assert report.kept == (5 if which == ".counts" else 4)
    assert both.made() == made


def test_a_marker_that_is_not_as_it_was_written(both: Both) -> None:
    both.run()
    made = both.made()
    (path,) = both.out.glob("2-*.json")
    marker = json.loads(path.read_bytes())
    changes = [{key: value} for key in marker for value in ([1], 7) if marker[key] != value]
    for change in changes:
        path.write_text(json.dumps({**marker, **change}), encoding="utf-8")
        assert both.run().kept == 4, change
        assert both.made() == made, change
    assert len(changes) > 25


def test_what_another_kind_of_job_made_stays(both: Both) -> None:
    other = Both(
        {"count": "pack", "pack": "count"}[both.kind], both.source, both.out, both.tokenizer
    )
    other.run()
    made = tree(both.out)
    with pytest.raises(
        ValueError, match=r"out contains output of another kind of job \(bpe_tokenizer"
    ):
        both.run()
    assert tree(both.out) == made


def test_no_file_stays_without_its_marker(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(contents: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(*contents))

    with monkeypatch.context() as patch:
        patch.setattr(job_folder.outputs, "write", full)
        with pytest.raises(OSError, match="No space left on device"):
            both.run()
    assert tree(both.out) == {}
    expected = both.afresh()
    both.run()
    assert both.made() == expected


def test_what_has_long_been_finished_is_not_read_again(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.run()
    for marker in both.out.glob("*.json"):
        later = marker.stat().st_mtime_ns + 10 * job_folder._CLOCK
        os.utime(marker, ns=(later, later))

    def never(*arguments: Any) -> str:
        raise AssertionError("it was read")

    monkeypatch.setattr(job_folder, "sha256_of", never)
    monkeypatch.setattr(job_folder, "file_sha256", never)
    monkeypatch.setattr(inputs.Shard, "open", never)
    assert both.run().kept == 5


def test_an_input_that_grows_while_it_is_read(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    path = both.source / "2.txt"
    expected = both.afresh()
    data, grown = path.read_bytes(), []

    def grow(self: Any, n_bytes: int) -> None:
        if len(grown) < 3:
            grown.append(n_bytes)
            with open(path, "ab") as file:
                file.write(b" more")

    with monkeypatch.context() as patch:
        patch.setattr(progress.Progress, "advance", grow)
        # the one that is read first: the longest
        path.write_bytes(data + b" " * 100)
        with pytest.raises(ValueError, match=r"2\.txt changed while it was read; run again when"):
            both.run()
    assert tree(both.out) == {}
    path.write_bytes(data)
    assert both.run().kept == 0
    assert both.made() == expected


def test_an_input_that_changes_while_it_is_compared(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.run()
    path = both.source / "4.txt"
    hash_of = job_folder.sha256_of

    def late(shard: Any) -> str:
        found = hash_of(shard)
        if shard.label.endswith("4.txt"):
            path.write_bytes(capitals(path.read_bytes()))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(job_folder, "sha256_of", late)
        os.utime(path)
        report = both.run()
    assert report.kept == 4
    assert both.made() == both.afresh()


def test_an_input_that_changes_while_it_is_written_about(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = both.source / "4.txt"
    facts = job_folder.file_facts

    def late(draft: Path) -> dict[str, Any]:
        path.write_bytes(capitals(path.read_bytes().lower()))
        return facts(draft)

    with monkeypatch.context() as patch:
        patch.setattr(job_folder, "file_facts", late)
        with pytest.raises(ValueError, match=r"4\.txt changed while it was read"):
            both.run()
    assert not list(both.out.glob("*.json"))
    expected = both.afresh()
    both.run()
    assert both.made() == expected


def test_inputs_that_come_and_go(both: Both) -> None:
    both.run()
    (both.source / "2.txt").unlink()
    (both.source / "9.txt").write_text("another", encoding="utf-8")
    expected = both.afresh()
    if both.kind == "pack":
        before = tree(both.out)
        said = rf"{both.out} contains a shard of .*2\.txt, which isn't an input now; name it too"
        with pytest.raises(ValueError, match=said):
            both.run()
        assert tree(both.out) == before
        assert both.run(resume=False).kept == 0
    else:
        assert both.run().kept == 4
    assert both.made() == expected


def others(kind: str) -> dict[str, tuple[dict[str, Any], str]]:
    settings: dict[str, tuple[dict[str, Any], str]] = {
        "text field": ({"text_field": "content"}, "text_field 'text', but now it is 'content'"),
        "separator": ({"separator": "\n"}, r"separator None, but now it is '\\n'"),
    }
    if kind == "count":
        more: dict[str, tuple[dict[str, Any], str]] = {
            "pattern": ({"split_pattern": "cl100k"}, "split_pattern "),
            "normalizer": ({"normalizer": None}, "normalizer 'NFC', but now it is None"),
            "special": ({"special_tokens": ["<end>"]}, r"special_tokens \[\], but now it is "),
        }
    else:
        more = {
            "layout": ({"format": "megatron"}, "layout 'bin', but now it is 'megatron'"),
            "dtype": ({"dtype": "uint32"}, "dtype 'uint16', but now it is 'uint32'"),
            "eot": ({"eot": "<end>"}, "eot None, but now it is 2"),
            "tokenizer": ({"tokenizer": BPETokenizer()}, "tokenizer '[0-9a-f]+.*, but now it is '"),
            "special": ({"allowed_special": "all"}, "allowed_special 'none', but now it is 'all'"),
        }
    return {**settings, **more}


def test_other_settings_in_the_same_folder(both: Both) -> None:
    both.run()
    before, names = both.made(), identities(both.out, tree(both.out))
    elsewhere = both.source.with_name("elsewhere.txt")
    elsewhere.write_text("other text", encoding="utf-8")
    for options, said in others(both.kind).values():
        for paths in (both.source, elsewhere):  # nor is another job's work removed
            refusal = f"{both.out} contains output made with {said}.*resume=False"
            with pytest.raises(ValueError, match=refusal):
                both.run(paths=paths, **options)
            assert both.made() == before
    assert identities(both.out, names) == names
    for options, _ in others(both.kind).values():
        assert both.run(resume=False, **options).kept == 0
        assert both.made() == both.afresh(**options)
        assert both.run(**options).kept == 5


def test_what_was_finished_before_an_error_serves_when_errors_are_skipped(both: Both) -> None:
    good = both.afresh(separator="|")
    (both.source / "0.txt").write_bytes(b"a|\xff|b")  # the shortest comes last
    options: dict[str, Any] = {"separator": "|"}
    for _ in range(2):
        with pytest.raises(FileFormatError, match=r"0\.txt: line 1: not UTF-8"):
            both.run(**options)
        assert drafts(both.out) == []
    kept = identities(both.out, tree(both.out))
    report = both.run(on_error="skip", **options)
    assert (report.kept, report.skipped, report.shards) == (4, 1, 5)
    assert both.made() == both.afresh(on_error="skip", **options)
    assert identities(both.out, kept) == kept
    with pytest.raises(FileFormatError, match=r"0\.txt: line 1: not UTF-8"):
        both.run(**options)
    (both.source / "0.txt").write_text(TEXTS[0], encoding="utf-8")
    for on_error in ("skip", "raise"):
        both.run(on_error=on_error, **options)
        assert both.made() == good


def test_two_runs_at_once(both: Both, capsys: pytest.CaptureFixture[str]) -> None:
    both.run()
    before = both.made()
    for shared in (False, True):
        with job_folder.open_folder(both.out, shared):
            with pytest.raises(
                BlockingIOError, match=f"{both.out}: another run is using this folder"
            ):
                both.run()
            if both.kind == "count":
                command = ("count", both.source, "-o", both.out.with_name("c"), "--work-dir")
                status, _, err = run_command(capsys, *command, both.out, "--quiet")
                assert status == 1
                line = f"bpe-tokenizer: error: {both.out}: another run is using this folder\n"
                assert err == line
    with job_folder.open_folder(both.out, shared=False):
        share = (
            PackJob(both.tokenizer, both.source, both.out).run_share
            if both.kind == "pack"
            else CountJob(both.source, work_dir=both.out).count_share
        )
        with pytest.raises(BlockingIOError, match="another run is using this folder"):
            share(0, 2)
    assert both.made() == before


def test_files_of_others_stay(both: Both) -> None:
    names = ("notes.txt", "notes.json", ".hidden", ".x.tmp", "list.json", "sub/x.bin")
    for name in names:
        (both.out / name).parent.mkdir(parents=True, exist_ok=True)
        (both.out / name).write_text("[1]" if name == "list.json" else "mine", encoding="utf-8")
    draft = both.out / ".x.run.0123456789abcdef.tmp"
    draft.write_text("of a killed worker", encoding="utf-8")
    for options in ({}, {"resume": False}):
        both.run(**options)  # type: ignore[arg-type]
        assert not draft.exists()
        assert all((both.out / name).read_text("utf-8") in ("mine", "[1]") for name in names)


def test_a_manifest_of_something_else_stays(small: Path, tokenizer: BPETokenizer) -> None:
    out = small.with_name("out")
    out.mkdir()
    mine = '{"name": "something else"}'
    (out / "manifest.json").write_text(mine, encoding="utf-8")
    for resume in (True, False):
        with pytest.raises(ValueError, match=r"manifest\.json exists, and isn't a manifest of tok"):
            encode_corpus(tokenizer, small, out, resume=resume, num_workers=1)
        with pytest.raises(ValueError, match=r"manifest\.json exists, and isn't a manifest of tok"):
            encode_shard(tokenizer, small / "1.txt", out)
    assert tree(out) == {"manifest.json": mine.encode()}


def test_a_manifest_that_is_not_utf8_is_written_again(small: Path, tokenizer: BPETokenizer) -> None:
    out = small.with_name("out")
    encode_corpus(tokenizer, small, out, num_workers=1)
    path = out / "manifest.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"tokens"', b'"\xed\xa0\x80"'))  # json.loads takes surrogates
    encode_corpus(tokenizer, small, out, num_workers=1)
    assert path.read_bytes() == whole


def test_a_shard_that_is_encoded_anew_takes_the_manifest_back(
    small: Path, tokenizer: BPETokenizer
) -> None:
    out = small.with_name("out")
    encode_corpus(tokenizer, small, out, num_workers=1)
    encode_shard(tokenizer, small / "1.txt", out)
    assert (out / "manifest.json").exists()
    rewrite(small / "1.txt", capitals)
    encode_shard(tokenizer, small / "1.txt", out)
    assert not (out / "manifest.json").exists()


def test_the_command_count_leaves_its_work_only_if_stopped(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("count", small, "-o", tmp_path / "counts.json", "--num-workers", 1, "--quiet")
    (small / "0.txt").write_bytes(b"\xff")
    assert run_command(capsys, *command)[0] == 1
    work_dir = tmp_path / "counts.json.work"
    assert len(list(work_dir.glob("*.run"))) == 4
    (work_dir / "mine.txt").write_text("mine", encoding="utf-8")
    (small / "0.txt").write_bytes(b"text")
    status, out, _ = run_command(capsys, *command, "--json")
    assert (status, json.loads(out)["kept"]) == (0, 4)
    assert [path.name for path in work_dir.iterdir()] == ["mine.txt"]
    (work_dir / "mine.txt").unlink()
    assert run_command(capsys, *command)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts.json", "in"]


@pytest.mark.parametrize("output", ["", "-", "no/such/x.json", "in"])
def test_counts_that_have_no_place(small: Path, tmp_path: Path, output: str) -> None:
    job = CountJob(small, work_dir=tmp_path / "work", num_workers=1)
    with pytest.raises((OSError, ValueError)):
        job.to_file(tmp_path / output if output.startswith(("no", "in")) else output)
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("out", ["in/out", "in", "in/x/../y/z"])
def test_what_is_written_is_never_read(
    small: Path, tmp_path: Path, tokenizer: BPETokenizer, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    before = tree(tmp_path)
    monkeypatch.chdir(tmp_path)
    for paths in ("in", [small], ["in/1.txt", str(small)]):
        said = f"{re.escape(out)} is the output, and .*in is an input: another run would read what"
        with pytest.raises(ValueError, match=said):
            encode_corpus(tokenizer, paths, out, num_workers=1)
        with pytest.raises(ValueError, match=said):
            count_pretokens(paths, work_dir=out, num_workers=1)
    if out != "in":
        with pytest.raises(ValueError, match=r"in/counts\.json is the output, and in is an input"):
            CountJob("in", num_workers=1).to_file("in/counts.json")
    with pytest.raises(ValueError, match=r"in/1\.txt is the output, and .*/in/1\.txt is an input"):
        CountJob("in/*.txt", num_workers=1).to_file("in/1.txt")
    assert tree(tmp_path) == before
    hidden = small / ".counted"  # what is hidden is not read
    assert CountJob("in", work_dir=hidden, num_workers=1).to_file("in/.counts").shards == 5
    assert CountJob("in", work_dir=hidden, num_workers=1).to_file("in/.counts").kept == 5


# -- What is shown ------------------------------------------------------------

LINE = (
    r"{}: [\d.]+ k?B of [\d.]+ k?B \(\d+%\), \d of 5 shards, [\d.]+ k?M?B/s, "
    r"([\d.:]+( s)?|unknown time) left"
)
SPEED = r"took [\d.]+ s, [\d.,]+ k?M?B of files a second \([\d.,]+ k?M?B for each of 2 workers\)"


def shown(both: Both, capsys: pytest.CaptureFixture[str], **options: Any) -> list[str]:
    both.run(**options)
    out, err = capsys.readouterr()
    assert out == ""
    lines: list[str] = err.splitlines()
    return lines


def test_lines_where_there_is_no_terminal(
    both: Both, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(both, capsys) == []
    assert not [line for line in shown(both, capsys, verbose=True) if " left" in line]
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    lines = shown(both, capsys, verbose=True, resume=False, num_workers=2)
    what = {"count": "counting", "pack": "encoding"}[both.kind]
    assert len([line for line in lines if re.fullmatch(LINE.format(what), line)]) >= 3
    n_bytes = sum(len(text.encode()) for text in TEXTS)
    assert f"{n_bytes} B in 5 documents of 5 shards" in lines
    assert re.fullmatch(SPEED, lines[-1])
    if both.kind == "pack":
        tokens = sum(len(both.tokenizer.encode(text)) for text in TEXTS)
        assert f"{tokens} tokens as uint16, {n_bytes / tokens:.3f} bytes per token" in lines
    else:
        assert lines[0] == f"{n_bytes} B in 5 shards"
        counts = count_pretokens(both.source, num_workers=1)
        assert f"{sum(counts.values())} pre-tokens, {len(counts)} distinct" in lines


@contextlib.contextmanager
def at_a_terminal(job: Job, *more: object, **options: Any) -> Iterator[tuple[Running, int]]:
    """Start a command at a terminal; give it, and the other end of the terminal."""
    pty, fcntl, termios = need("pty"), need("fcntl"), need("termios")
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, b"\x28\x00\x78\x00\x00\x00\x00\x00")

    def control() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    command = [job.name, *job.arguments, "--num-workers", 2, *more]
    streams = {"stdin": theirs, "stderr": theirs, "preexec_fn": control}
    try:
        with Running(job.folder, *command, slow=True, **streams, **options) as running:
            os.close(theirs)
            yield running, ours
    finally:
        os.close(ours)


def read_all(terminal: int) -> str:
    """Read until nobody is at the other end."""
    said = b""
    with contextlib.suppress(OSError):
        while block := os.read(terminal, 4096):
            said += block
    return said.decode()


@linux
def test_at_a_terminal_a_bar_and_ctrl_c_and_again(job: Job, example: Any) -> None:
    need("tqdm")
    with at_a_terminal(job, "--json") as (running, terminal):
        running.wait_for(job.finished)
        time.sleep(0.1)  # so that there is something to show
        os.write(terminal, b"\x03")
        said = read_all(terminal)
        assert running.status() == 128 + signal.SIGINT
    assert running.said()[0] == ""
    assert "Traceback" not in said and said.endswith("bpe-tokenizer: error: interrupted\r\n")
    assert drafts(job.folder) == []
    kept = job.finished()
    before = identities(job.made, kept)
    assert 0 < sum(name.endswith(".json") for name in kept) < SHARDS

    with at_a_terminal(job, "--json") as (running, terminal):
        said = read_all(terminal)
        assert running.status() == 0, said
    what = {"count": "counting", "pack": "encoding"}[job.name]
    # a bar has: percentage, bytes, time gone < time left, rate, shards
    bars = rf"{what}: +\d+%\|.*\| [\d.]+k?M?/[\d.]+k?M? \[\d\d:\d\d<\d\d:\d\d, +[\d.]+k?M?B/s"
    assert re.search(bars + r", \d/\d shards\]", said), said
    assert re.search(r"took [\d.]+ s, .* for each of 2 workers\); \d of 6 shards done before", said)
    assert len(running.said()[0].splitlines()) == 1
    report = json.loads(running.said()[0])
    assert report["kept"] == sum(name.endswith(".json") for name in kept)
    assert identities(job.made, kept) == before
    assert everything_made(job) == example[2]
