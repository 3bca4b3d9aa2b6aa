"""The registry and the diff of tokenizers: writers side by side, crashes, damage, forgeries."""

from __future__ import annotations

import builtins
import dataclasses
import errno
import functools
import hashlib
import json
import os
import pickle
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE, run_command
from hypothesis import given
from hypothesis import strategies as st
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import AddedToken, BPETokenizer, FileFormatError
from bpe_tokenizer_tools.checking.tokenizer_diff import compare_tokenizers
from bpe_tokenizer_tools.workflow import registry as registry_module
from bpe_tokenizer_tools.workflow.registry import Registry, default_path

pytestmark = EITHER_ENGINE

TEXT = "the lower the lowest, the newer the newest; 12 345, größer — 世界! " * 20
TEXT += (
    " ".join(f"{word}{end}" for word in ("walk", "talk", "jump") for end in ("s", "ed", "ing")) * 3
)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
)
CORPUS = hashlib.sha256(TEXT.encode()).hexdigest()


@functools.cache
def trained(size: int = 300, pattern: str = "gpt2") -> BPETokenizer:
    """Train a tokenizer; a test that changes it takes `fresh`."""
    tokenizer = BPETokenizer(pattern).train(
        TEXT, size, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], verbose=False
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def fresh(size: int = 300) -> BPETokenizer:
    copy: BPETokenizer = pickle.loads(pickle.dumps(trained(size)))
    return copy


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def run(*argv: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    return run_command(capsys, *argv)


def in_child(work: Callable[[], object]) -> int:
    """Run something in its own process; return how it ended: 0, or minus a signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    os._exit(70)


# -- What is registered comes back --------------------------------------------


def test_what_is_registered_is_loaded(registry: Registry, tmp_path: Path) -> None:
    tokenizer = trained()
    entry = registry.register(
        tokenizer, "web", metadata={"owner": "search", "tries": 3}, corpus_sha256=CORPUS.upper()
    )
    assert entry.is_new and entry.corpus_sha256 == CORPUS
    assert entry.metadata == {"owner": "search", "tries": 3}
    assert entry.report["merges"] == len(tokenizer.merges) == entry.facts["merges"]
    for ref in ("web", entry.ref, f"web@{entry.hash}", f"web@{entry.hash[:4].upper()}"):
        loaded = registry.load(ref)
        assert loaded == tokenizer and loaded.chat_template == TEMPLATE
        assert loaded.encode(TEXT) == tokenizer.encode(TEXT)
        assert loaded.eos_token == "<|endoftext|>"
    messages = [{"role": "user", "content": "größer"}]
    assert loaded.apply_chat_template(messages) == tokenizer.apply_chat_template(messages)
    assert registry.show("web") == entry and registry.entries() == [
        dataclasses.replace(entry, files={})
    ]
    tokenizers = need("tokenizers")
    registry.copy("web", tmp_path / "out")
    other = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert other.encode(TEXT, add_special_tokens=False).ids == tokenizer.encode(TEXT)


def test_layout_can_be_checked_without_this_library(registry: Registry) -> None:
    entry = registry.register(trained(), "web")
    folder = registry.path / "web" / entry.hash
    assert entry.path == folder
    sums = (folder / "SHA256SUMS").read_bytes()
    assert hashlib.sha256(sums).hexdigest() == entry.hash
    listed = dict(reversed(line.split("  ")) for line in sums.decode().splitlines())
    assert set(listed) == {path.name for path in folder.iterdir()} - {"SHA256SUMS", "entry.json"}
    assert listed == entry.files
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    text = (folder / "entry.json").read_text(encoding="utf-8")
    above, checksum = re.fullmatch(r'(.*),\n  "checksum": "(\w+)"\n}\n', text, re.DOTALL).groups()
    assert hashlib.sha256(f"{above}\n}}\n".encode()).hexdigest() == checksum
    if shutil.which("sha256sum"):
        done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True)
        assert done.returncode == 0


def test_files_are_read_only_and_others_may_read_them(registry: Registry) -> None:
    before = os.umask(0o022)
    try:
        entry = registry.register(trained(), "web")
    finally:
        os.umask(before)
    assert stat.S_IMODE(entry.path.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in entry.path.iterdir()} == {0o444}


def test_the_hash_is_of_the_content_alone(tmp_path: Path) -> None:
    """A tokenizer trained, pickled, loaded, or put together in another order is the same."""
    tokenizer = fresh()
    tokenizer.pad_token = "<|im_end|>"
    tokenizer._settings = {"padding_side": "left", "model_max_length": 512}
    tokenizer.save(tmp_path / "saved", verbose=False)
    definition = tokenizer.definition
    shuffled = BPETokenizer._from_parts(
        dataclasses.replace(definition, vocab=dict(sorted(definition.vocab.items(), reverse=True))),
        dict(reversed(tokenizer._roles.items())),
        dict(reversed(tokenizer._settings.items())),
        {"default": TEMPLATE},
        Path(),
    )
    same = [tokenizer, BPETokenizer.from_file(tmp_path / "saved"), shuffled]
    same.append(pickle.loads(pickle.dumps(shuffled)))
    entries = [
        Registry(tmp_path / str(i)).register(each, f"name{i}", metadata={"i": i})
        for i, each in enumerate(same)
    ]
    assert len({entry.hash for entry in entries}) == 1


def test_all_that_belongs_to_a_tokenizer_changes_its_hash(registry: Registry) -> None:
    def without_template(tokenizer: BPETokenizer) -> None:
        tokenizer.chat_template = None

    def other_role(tokenizer: BPETokenizer) -> None:
        tokenizer.pad_token = "<|im_end|>"

    def one_more(tokenizer: BPETokenizer) -> None:
        tokenizer.add_special_tokens(["<|x|>"])

    def flags(tokenizer: BPETokenizer) -> None:
        tokenizer.add_special_tokens([AddedToken("<|x|>", lstrip=True)])

    hashes = [registry.register(trained(), "web").hash]
    hashes.append(registry.register(trained(290), "web").hash)
    hashes.append(registry.register(trained(300, "cl100k"), "web").hash)
    for change in (without_template, other_role, one_more, flags):
        tokenizer = fresh()
        change(tokenizer)
        hashes.append(registry.register(tokenizer, "web").hash)
        assert registry.load(f"web@{hashes[-1]}") == tokenizer
    assert len(set(hashes)) == 7 == len(registry.entries("web"))
    assert registry.problems() == []


def test_a_published_vocabulary(registry: Registry, vocab_dir: Path, load_vocab: Any) -> None:
    tokenizer = BPETokenizer.from_file(vocab_dir / "r50k_base.tiktoken")
    entry = registry.register(tokenizer, "gpt2")
    loaded = registry.load("gpt2")
    assert loaded == tokenizer and loaded.vocab_size == entry.facts["vocab_size"] == 50_257
    encoding = need("tiktoken").Encoding(
        "r50k",
        pat_str=bpe_tokenizer.SPLIT_PATTERNS["gpt2"],
        mergeable_ranks=load_vocab("r50k_base")[0],
        special_tokens={},
    )
    assert loaded.encode(TEXT) == encoding.encode_ordinary(TEXT)


# -- Immutable ----------------------------------------------------------------


def test_registering_again_changes_nothing(registry: Registry) -> None:
    first = registry.register(trained(), "web", metadata={"a": "1"}, corpus_sha256=CORPUS)
    before = {path: path.read_bytes() for path in first.path.iterdir()}
    for said in ({}, {"metadata": {"a": "1"}}, {"report": {"other": 1}, "corpus_sha256": CORPUS}):
        again = registry.register(fresh(), "web", **said)
        assert again == first and not again.is_new and first.is_new
    assert {path: path.read_bytes() for path in first.path.iterdir()} == before
    for said in ({"metadata": {"a": "2"}}, {"corpus_sha256": "0" * 64}):
        with pytest.raises(ValueError, match=r"is already registered, and its .*choose another"):
            registry.register(fresh(), "web", **said)
    assert {path: path.read_bytes() for path in first.path.iterdir()} == before
    assert list((registry.path / ".incoming").iterdir()) == []
    labeled = registry.path.parent / "labeled"
    trained().save(labeled, name="demo", verbose=False)  # a label is no part of the content
    assert not registry.register(BPETokenizer.from_file(labeled), "web").is_new
    other = registry.register(fresh(), "mail", metadata={"a": "2"})
    assert other.hash == first.hash and other.metadata == {"a": "2"}


def test_a_name_alone_is_the_newest(registry: Registry) -> None:
    for size in (300, 280, 290):
        newest = registry.register(trained(size), "web")
    assert registry.show("web") == newest and registry.load("web").vocab_size == 290
    assert [entry.facts["vocab_size"] for entry in registry.entries("web")] == [300, 280, 290]


def test_the_newest_is_the_one_registered_last_though_the_clock_was_set_back(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = datetime(2026, 1, 2, tzinfo=timezone.utc)
    for size, hours in ((300, 0), (280, -5), (290, -5), (270, 1)):

        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None, hours: int = hours) -> datetime:
                return start + timedelta(hours=hours)

        monkeypatch.setattr("datetime.datetime", Clock)
        newest = registry.register(trained(size), "web")
        assert registry.show("web") == newest and registry.load("web").vocab_size == size
    sizes = [entry.facts["vocab_size"] for entry in registry.entries("web")]
    assert sizes == [300, 280, 290, 270]
    created = [datetime.fromisoformat(entry.created) for entry in registry.entries("web")]
    steps = [later - earlier for earlier, later in zip(created, created[1:])]
    assert created[0] == start and steps[:2] == [timedelta(microseconds=1)] * 2
    assert created[3] == start + timedelta(hours=1)  # the clock is right again


def test_reports_are_taken_in_several_forms(registry: Registry) -> None:
    class Evaluation:
        def to_json(self) -> dict[str, Any]:
            return {"bytes_per_token": 3.5, "rows": [(1, "x")]}

    report = trained().training_report
    for i, (given_, kept) in enumerate(
        [
            (Evaluation(), {"bytes_per_token": 3.5, "rows": [[1, "x"]]}),
            (report, dataclasses.asdict(report)),
            (None, dataclasses.asdict(report)),
            (["a", 1], ["a", 1]),
            ("words", "words"),
        ]
    ):
        assert registry.register(trained(), f"n{i}", report=given_).report == kept
        assert registry.show(f"n{i}").report == kept


@pytest.mark.parametrize(
    "said, problem",
    [
        ({"metadata": {"a": float("nan")}}, "metadata: expected data that JSON can represent"),
        ({"metadata": {"a": {1, 2}}}, "metadata: expected data that JSON can represent"),
        ({"metadata": {"a": "\ud800"}}, "metadata: expected data that JSON can represent"),
        ({"metadata": {1: "a"}}, "metadata: expected a mapping with str keys"),
        ({"metadata": "a=b"}, "metadata: expected a mapping with str keys"),
        ({"report": json.loads("[" * 101 + "]" * 101)}, "report: lists and objects are nested"),
        ({"report": object()}, "report: expected data that JSON can represent"),
        ({"corpus_sha256": "abc"}, "corpus_sha256: expected 64 hexadecimal digits, got 'abc'"),
        ({"corpus_sha256": 5}, "corpus_sha256: expected 64 hexadecimal digits, got 5"),
    ],
)
def test_what_cannot_be_kept_is_refused(registry: Registry, said: Any, problem: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(problem)):
        registry.register(trained(), "web", **said)
    assert not registry.path.exists()


def test_reports_have_a_size_and_a_depth_that_can_be_read_again(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = json.loads("[" * 100 + "]" * 100)
    entry = registry.register(trained(), "deep", report=deep)
    assert registry.show("deep").report == deep == entry.report
    large = registry.register(trained(), "large", report="x" * 5000)
    assert registry.show("large").report == "x" * 5000
    assert "(5,002 characters)" in str(large) and len(str(large)) < 3000
    size = (large.path / "entry.json").stat().st_size
    monkeypatch.setattr(registry_module, "_LARGEST_ENTRY", size)
    assert registry.load("large") == trained()
    with pytest.raises(ValueError, match=rf"take {size + 1:,} bytes; the limit is {size:,}"):
        registry.register(trained(), "other", report="x" * 5001)
    assert list((registry.path / ".incoming").iterdir()) == []


def test_a_tokenizer_that_files_cannot_hold_is_refused(registry: Registry) -> None:
    tokenizer = BPETokenizer(r"(?:abc){e<=1}|\w+")  # fuzzy: HuggingFace's engine has no such
    with pytest.raises(ValueError, match="pattern"):
        registry.register(tokenizer, "web")
    assert list((registry.path / ".incoming").iterdir()) == []


# -- Names and references -----------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "/etc", "a/b", "a\\b", "C:", "C:\\x", "a\0b", "a\nb", "\x1b[2J", " a"]
    + ["a ", "a.", ".a", "-a", "a" * 101, "größe", "a@b", "CON", "nul.txt", "Com1", "lpt9.tar.gz"],
)
def test_names_that_would_leave_the_directory_or_confuse(registry: Registry, name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid registry name|Windows reserves"):
        registry.register(trained(), name)
    for ask in (registry.load, registry.show, registry.entries):
        with pytest.raises((ValueError, FileNotFoundError)):
            ask(name)
    assert not registry.path.exists()


@given(name=st.text(max_size=12))
def test_no_name_leads_elsewhere(name: str) -> None:
    try:
        registry_module.check_name(name)
    except ValueError:
        return
    assert re.fullmatch(r"[A-Za-z0-9._-]+", name) and name[0] not in ".-" and name[-1] != "."
    assert (Path("/registry") / name).parent == Path("/registry")
    assert os.path.normpath(f"/registry/{name}") == f"/registry/{name}"


@pytest.mark.parametrize(
    "ref", ["web@", "web@abc", "web@xyzt", "web@" + "a" * 65, "web@../..", "@a"]
)
def test_references_that_are_none(registry: Registry, ref: str) -> None:
    registry.register(trained(), "web")
    with pytest.raises(ValueError, match="hexadecimal digits|not a valid registry name"):
        registry.load(ref)


def test_unknown_references_name_what_is_there(registry: Registry) -> None:
    with pytest.raises(FileNotFoundError, match="no registry here; registering"):
        registry.entries()
    entry = registry.register(trained(), "english-web")
    for ref in ("english-wbe", "english-wbe@0123"):
        with pytest.raises(ValueError, match="there is no 'english-wbe' .*; there is english-web"):
            registry.load(ref)
    wrong = "0000" if not entry.hash.startswith("0000") else "1111"
    with pytest.raises(ValueError, match=f"no english-web@{wrong} .*; there is {entry.ref}"):
        registry.load(f"english-web@{wrong}")


def test_ambiguous_references_name_both(registry: Registry) -> None:
    entry = registry.register(trained(), "web")
    twin = entry.hash[:8] + "f" * 56
    shutil.copytree(entry.path, entry.path.parent / twin)
    with pytest.raises(ValueError, match=f"matches 2 hashes: web@{twin[:8]}.*web@{twin[:8]}"):
        registry.load(f"web@{entry.hash[:6]}")
    assert registry.load(f"web@{entry.hash[:12]}") == trained()


def test_names_that_differ_in_case_alone(registry: Registry) -> None:
    registry.register(trained(), "Web")
    with pytest.raises(ValueError, match="has 'Web', which"):
        registry.register(trained(), "web")
    assert registry.register(trained(), "Web").name == "Web"


def test_where_the_registry_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BPE_TOKENIZER_REGISTRY", str(tmp_path))
    assert default_path() == tmp_path == Registry().path
    monkeypatch.delenv("BPE_TOKENIZER_REGISTRY")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_path() == tmp_path / "data" / "bpe-tokenizer" / "registry"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "share" / "bpe-tokenizer" / "registry"
    with pytest.raises(ValueError, match="got ''"):
        Registry("")


# -- Writers side by side -----------------------------------------------------


def _wait_for(start: Path) -> None:
    while not start.exists():
        time.sleep(0.001)


def test_eight_writers_and_two_readers_at_once(registry: Registry, tmp_path: Path) -> None:
    start = tmp_path / "start"
    sizes = [280 + i for i in range(8)]
    tokenizers = [trained(size) for size in sizes]
    shared = trained(300)

    def write(i: int) -> None:
        _wait_for(start)
        for other in (shared, tokenizers[i], tokenizers[(i + 1) % 8], shared):
            entry = registry.register(other, "web")
            assert registry.load(f"web@{entry.hash}") == other
        registry.register(tokenizers[i], f"own{i}", metadata={"writer": i})

    def read() -> None:
        _wait_for(start)
        seen = 0
        while seen < 9 + 8:
            if registry.path.exists():
                assert registry.problems() == []
                assert len(registry.entries()) >= seen
                seen = len(registry.entries())

    children = []
    for work in [functools.partial(write, i) for i in range(8)] + [read, read]:
        child = os.fork()
        if not child:
            status = 70
            try:
                work()
                status = 0
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        children.append(child)
    start.touch()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 10
    found = registry.entries("web")
    assert sorted(entry.facts["vocab_size"] for entry in found) == [*sizes, 300]
    assert registry.problems() == []
    for entry in found:
        size = entry.facts["vocab_size"]
        assert registry.load(f"web@{entry.hash}") == (shared if size == 300 else trained(size))
    assert [registry.show(f"own{i}").metadata for i in range(8)] == [
        {"writer": i} for i in range(8)
    ]
    assert list((registry.path / ".incoming").iterdir()) == []


def test_one_of_many_says_that_it_was_first(registry: Registry, tmp_path: Path) -> None:
    """Of eight that register one thing with different words, one is heard; seven are told."""
    start = tmp_path / "start"
    (tmp_path / "out").mkdir()

    def write(i: int) -> None:
        _wait_for(start)
        try:
            entry = registry.register(trained(), "web", metadata={"writer": i})
            outcome = f"new {entry.metadata['writer']}"
        except ValueError as error:
            outcome = str(error)
        (tmp_path / "out" / str(i)).write_text(outcome, encoding="utf-8")

    trained()
    children = []
    for i in range(8):
        child = os.fork()
        if not child:
            write(i)
            os._exit(0)
        children.append(child)
    start.touch()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 8
    outcomes = {int(p.name): p.read_text(encoding="utf-8") for p in (tmp_path / "out").iterdir()}
    (first,) = [i for i, text in outcomes.items() if text == f"new {i}"]
    assert registry.show("web").metadata == {"writer": first}
    assert sum("is already registered" in text for text in outcomes.values()) == 7


# -- Crashes ------------------------------------------------------------------

_STEPS = (
    [(os, name) for name in ("mkdir", "rename", "replace", "fsync", "open", "chmod", "unlink")]
    + [(os, name) for name in ("rmdir", "scandir")]
    + [(builtins, "open")]
)


def _count_steps(act: Callable[[int], None]) -> Callable[[], None]:
    """Replace what touches the disk, so that `act` is called with 1, 2, 3 ... before each."""
    steps = 0
    olds = [(module, name, getattr(module, name)) for module, name in _STEPS]

    def wrap(function: Any) -> Any:
        @functools.wraps(function)
        def replacement(*args: Any, **options: Any) -> Any:
            nonlocal steps
            steps += 1
            act(steps)
            return function(*args, **options)

        return replacement

    for module, name, function in olds:
        setattr(module, name, wrap(function))

    def undo() -> None:
        for module, name, function in olds:
            setattr(module, name, function)

    return undo


@pytest.mark.slow
def test_a_crash_at_any_step_leaves_the_registry_whole(registry: Registry) -> None:
    """A writer is killed before each of its steps in turn, until one gets to the end."""
    tokenizer, other = trained(280), trained(290)
    there = registry.register(other, "web")
    before = {path: path.read_bytes() for path in there.path.iterdir()}

    def register(killed_at: int) -> None:
        def act(step: int) -> None:
            if step == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)

        _count_steps(act)
        registry.register(tokenizer, "web")

    ends, whole = [], []
    for step in range(1, 1000):
        ends.append(in_child(lambda: register(step)))
        found = registry.entries("web")
        assert registry.problems() == []
        whole.append(len(found) == 2)
        for entry in found:
            size = entry.facts["vocab_size"]
            assert registry.load(f"web@{entry.hash}") == (other if size == 290 else tokenizer)
        if ends[-1] == 0:
            break
        again = registry.register(tokenizer, "web")
        assert again.is_new != whole[-1] and registry.load(again.ref) == tokenizer
        for path in again.path.iterdir():
            path.unlink()
        again.path.rmdir()
    assert ends[-1] == 0 and set(ends[:-1]) == {-signal.SIGKILL} and len(ends) > 30
    assert whole == sorted(whole)  # it is not there, not there ... and from one step on it is
    assert 0 < sum(whole[:-1]) < len(whole) - 20
    assert {path: path.read_bytes() for path in there.path.iterdir()} == before


def test_everything_is_on_disk_before_it_gets_its_name(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files and their directory are flushed before the rename, the parent after it."""
    events: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def watched_fsync(handle: int) -> None:
        events.append(("fsync", Path(os.readlink(f"/proc/self/fd/{handle}")).name))
        fsync(handle)

    def watched_rename(old: Any, new: Any) -> None:
        events.append(("rename", Path(new).name))
        rename(old, new)

    if not Path("/proc/self/fd").exists():
        pytest.skip("there is no /proc here to tell which file is flushed")
    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "rename", watched_rename)
    entry = registry.register(trained(), "web")
    at = events.index(("rename", entry.hash))
    flushed = " ".join(name for _, name in events[:at])
    for name in [*entry.files, "SHA256SUMS", "entry.json"]:
        assert f".{name}." in flushed  # under its temporary name
    draft = events[at - 2][1]
    assert draft.startswith(f"web-{os.getpid()}-") and events[at - 1] == ("fsync", "registry")
    assert events[at + 1 :] == [("fsync", "web")]


def test_what_a_crash_left_is_cleared_away_when_it_is_old(registry: Registry) -> None:
    entry = registry.register(trained(), "web")
    incoming = registry.path / ".incoming"
    young, old, junk = incoming / "web-1-a", incoming / "web-2-b", incoming / "junk"
    for folder in (young, old):
        folder.mkdir()
        (folder / "tokenizer.json").write_text("{", encoding="utf-8")
        (folder / "tokenizer.json").chmod(0o444)
    junk.write_text("", encoding="utf-8")
    for path in (old, junk):
        os.utime(path, (0, 0))
    assert registry.entries() == [dataclasses.replace(entry, files={})]
    registry.register(trained(290), "web")
    assert list(incoming.iterdir()) == [young]
    assert registry.clean() == 0
    assert registry.clean(older_than=0) == 1
    assert list(incoming.iterdir()) == [] and registry.problems() == []


def test_a_draft_is_taken_from_its_writer_before_it_is_removed(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a writer who lives, after all, cannot move into place what is half removed."""
    registry.register(trained(), "web")
    draft = registry.path / ".incoming" / "web-1-a"
    draft.mkdir()
    remove, removed = registry_module._remove, []

    def watched(directory: Path) -> None:
        assert not draft.exists()
        removed.append(directory)
        remove(directory)

    monkeypatch.setattr(registry_module, "_remove", watched)
    assert registry.clean(older_than=-1) == 1 == len(removed) and not removed[0].exists()


def test_a_writer_whose_draft_was_cleared_away_says_so(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = Registry._settle

    def settle_late(self: Registry, draft: Path, place: Path) -> bool:
        assert self.clean(older_than=-1) == 1
        return settle(self, draft, place)

    monkeypatch.setattr(Registry, "_settle", settle_late)
    with pytest.raises(FileNotFoundError):
        registry.register(trained(), "web")
    monkeypatch.undo()
    assert registry.entries() == [] and registry.register(trained(), "web").is_new


@pytest.mark.parametrize("limit", [0, 50, 200, 1000, 5000])
def test_a_full_disk_leaves_nothing(registry: Registry, tmp_path: Path, limit: int) -> None:
    tokenizer = trained(300)
    there = registry.register(trained(280), "web")

    def register() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(OSError) as caught:
            registry.register(tokenizer, "web")
        assert caught.value.errno == errno.EFBIG
        assert caught.value.filename == str(registry.path / "web")

    assert in_child(register) == 0
    assert registry.problems() == [] and registry.entries() == [
        dataclasses.replace(there, files={})
    ]
    assert list((registry.path / ".incoming").iterdir()) == []
    assert registry.register(tokenizer, "web").is_new


def test_a_registry_that_cannot_be_written_to_is_read(tmp_path: Path) -> None:
    """By another user than root, whom nothing stops."""
    trained(), trained(290)
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, into which no other user comes
        os.chmod(folder, 0o755)
        registry = Registry(Path(folder) / "registry")
        registry.register(trained(), "web")
        paths = [registry.path, *registry.path.iterdir()]

        def use() -> None:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            assert registry.load("web") == trained() and registry.problems() == []
            for name in ("web", "new"):
                with pytest.raises(PermissionError):
                    registry.register(trained(290), name)
            with pytest.raises(PermissionError):
                Registry(registry.path / "new").register(trained(), "web")

        for path in paths:
            path.chmod(0o555)
        try:
            assert in_child(use) == 0
        finally:
            for path in paths:
                path.chmod(0o755)
        assert len(registry.entries()) == 1


# -- Damage -------------------------------------------------------------------


def _rewrite(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)


def test_every_changed_byte_is_found_and_named(registry: Registry) -> None:
    """Each byte of the small files, and of the large ones every 97th and the last."""
    entry = registry.register(trained(), "web", metadata={"größe": "µ"}, corpus_sha256=CORPUS)
    for path in sorted(entry.path.iterdir()):
        good = path.read_bytes()
        every = 1 if len(good) < 2000 else 97
        for at in sorted({*range(0, len(good), every), len(good) - 1}):
            bit = 1 << (at % 8)
            _rewrite(path, good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :])
            with pytest.raises(FileFormatError) as caught:
                registry.show(f"web@{entry.hash}")
            assert caught.value.path == str(path), (path.name, at)
        for bad in (b"", good[:-1], good + b"\n", good * 2, b"\0" * len(good), b"[" * 200_000):
            _rewrite(path, bad)
            with pytest.raises(FileFormatError) as caught:
                registry.load(f"web@{entry.hash}")
            assert caught.value.path == str(path)
            (problem,) = registry.problems()
            assert str(problem) == str(caught.value) and "\n" not in str(problem)
        _rewrite(path, good)
        assert registry.load("web") == trained()


def test_missing_and_foreign_files_are_named(registry: Registry, tmp_path: Path) -> None:
    entry = registry.register(trained(), "web")
    for path in sorted(entry.path.iterdir()):
        path.rename(tmp_path / "aside")
        with pytest.raises(FileFormatError, match="is missing; restore it from a copy") as caught:
            registry.load("web@" + entry.hash)
        assert caught.value.path == str(path)
        (tmp_path / "aside").rename(path)
    foreign = entry.path / "vocab.json"
    foreign.write_text("{}", encoding="utf-8")
    with pytest.raises(FileFormatError, match="vocab.json: does not belong to the entry"):
        registry.load("web")
    foreign.unlink()
    (entry.path / ".DS_Store").write_bytes(b"what a desktop leaves everywhere")
    (registry.path / "README").write_text("ours", encoding="utf-8")
    (registry.path / "empty").mkdir()
    (registry.path / "web" / "notes.txt").write_text("ours", encoding="utf-8")
    assert registry.load("web") == trained()
    (problem,) = registry.problems()
    assert problem.path == str(registry.path / "web" / "notes.txt")
    assert [entry.name for entry in registry.entries()] == ["web"]


def test_an_added_chat_template_is_not_taken_in(registry: Registry) -> None:
    """A file that would be read with the others, and that no checksum covers."""
    tokenizer = fresh()
    tokenizer.chat_template = None
    entry = registry.register(tokenizer, "web")
    (entry.path / "chat_template.jinja").write_text("{{ evil }}", encoding="utf-8")
    with pytest.raises(FileFormatError, match=r"chat_template\.jinja: does not belong"):
        registry.load("web")


def test_a_damaged_entry_is_listed_as_such_and_stops_no_other(registry: Registry) -> None:
    first, second = (registry.register(trained(size), "web") for size in (280, 290))
    other = registry.register(trained(), "mail")
    _rewrite(second.path / "entry.json", b"{}")
    assert [entry.hash for entry in registry.entries()] == [first.hash, other.hash]
    assert registry.load(first.ref) == trained(280) and registry.load("mail") == trained()
    with pytest.raises(
        FileFormatError, match=f"which version is the newest: .*such as {first.ref}"
    ):
        registry.load("web")  # the damaged one may be the newest: an older one is no answer
    with pytest.raises(FileFormatError, match=r"entry\.json.*register the tokenizer again"):
        registry.register(trained(290), "web")
    second.path.rename(registry.path / "aside")
    assert registry.register(trained(290), "web").hash == second.hash
    assert registry.load("web") == trained(290)


def test_entries_that_were_moved_or_linked_are_refused(registry: Registry, tmp_path: Path) -> None:
    entry = registry.register(trained(), "web")
    other = registry.register(trained(290), "web")
    moved = registry.path / "mail" / entry.hash
    shutil.copytree(entry.path, moved)
    with pytest.raises(FileFormatError, match=f"belongs to {entry.ref}; it was copied here"):
        registry.load("mail@" + entry.hash)
    shutil.rmtree(moved)
    moved.symlink_to(entry.path)
    with pytest.raises(FileFormatError, match="is not a directory"):
        registry.load("mail@" + entry.hash)
    (registry.path / "linked").symlink_to(registry.path / "web")
    with pytest.raises(ValueError, match="no 'linked'"):
        registry.load("linked")
    with pytest.raises(NotADirectoryError, match="linked"):
        registry.register(trained(), "linked")
    shutil.rmtree(registry.path / "mail")
    secret = tmp_path / "secret.json"
    for name in ("tokenizer.json", "entry.json", "SHA256SUMS"):
        path = entry.path / name
        good = path.read_bytes()
        secret.write_bytes(good)
        path.unlink()
        path.symlink_to(secret)
        with pytest.raises(FileFormatError, match="is a symbolic link; expected a plain file"):
            registry.load("web@" + entry.hash)
        path.unlink()
        os.mkfifo(path)  # which nobody writes to: opening it would wait for ever
        with pytest.raises(FileFormatError, match="is not a file; expected a plain file"):
            registry.load("web@" + entry.hash)
        path.unlink()
        path.write_bytes(good)
    for name in ("tokenizer.json", "SHA256SUMS"):  # files of another whole entry
        good = (entry.path / name).read_bytes()
        _rewrite(entry.path / name, (other.path / name).read_bytes())
        with pytest.raises(FileFormatError, match="has been changed"):
            registry.load("web@" + entry.hash)
        _rewrite(entry.path / name, good)
    assert registry.problems() == []


def test_a_list_of_files_cannot_lead_outside(registry: Registry, tmp_path: Path) -> None:
    """SHA256SUMS with another file, in a directory that has its hash: consistent, and hostile."""
    entry = registry.register(trained(), "web")
    (tmp_path / "secret").write_bytes(b"secret")
    digest = hashlib.sha256(b"secret").hexdigest()
    for name in ("../../../secret", str(tmp_path / "secret"), "entry.json", "x.json"):
        sums = (entry.path / "SHA256SUMS").read_bytes() + f"{digest}  {name}\n".encode()
        folder = entry.path.parent / hashlib.sha256(sums).hexdigest()
        shutil.copytree(entry.path, folder)
        _rewrite(folder / "SHA256SUMS", sums)
        data = json.loads((folder / "entry.json").read_bytes())
        del data["checksum"]
        data["hash"] = folder.name
        data["checksum"] = hashlib.sha256(registry_module._to_bytes(data)).hexdigest()
        _rewrite(folder / "entry.json", registry_module._to_bytes(data))
        with pytest.raises(FileFormatError, match="does not list the files of a tokenizer"):
            registry.load("web@" + folder.name)
        shutil.rmtree(folder)


def test_entries_of_a_newer_format_say_so(registry: Registry) -> None:
    entry = registry.register(trained(), "web")
    data = {"format": 2, "all": "different"}
    _rewrite(entry.path / "entry.json", json.dumps(data).encode())
    with pytest.raises(FileFormatError, match="2 is newer than this library reads; update it"):
        registry.load("web@" + entry.hash)


def test_entries_that_an_earlier_version_signed_still_load(registry: Registry) -> None:
    entry = registry.register(trained(), "web", metadata={"owner": "search"})
    path = entry.path / "entry.json"
    data = json.loads(path.read_bytes())
    assert "signature" not in data
    del data["checksum"]
    for signature in (None, "hmac-sha256:" + "0" * 64):
        data["signature"] = signature
        data["checksum"] = hashlib.sha256(registry_module._to_bytes(data)).hexdigest()
        _rewrite(path, registry_module._to_bytes(data))
        del data["checksum"]
        assert registry.load("web@" + entry.hash) == trained()
        assert [found.metadata for found in registry.entries()] == [{"owner": "search"}]
        assert registry.problems() == []


# -- Copies -------------------------------------------------------------------


def test_copies_are_byte_for_byte_and_whole(registry: Registry, tmp_path: Path) -> None:
    entry = registry.register(trained(), "web")
    target = tmp_path / "new" / "out"
    assert registry.copy("web", target) == entry
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        name: (entry.path / name).read_bytes() for name in entry.files
    }
    before = {path: path.stat().st_mtime_ns for path in target.iterdir()}
    registry.copy("web", target)
    assert {path: path.stat().st_mtime_ns for path in target.iterdir()} == before
    (tmp_path / "empty").mkdir()
    registry.copy("web", tmp_path / "empty")
    assert BPETokenizer.from_file(tmp_path / "empty") == trained()
    registry.register(trained(290), "web")
    with pytest.raises(FileExistsError, match="contains something else"):
        registry.copy("web", target)
    with pytest.raises(NotADirectoryError, match="is a file"):
        registry.copy("web", target / "tokenizer.json")
    assert {path: path.stat().st_mtime_ns for path in target.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "new", "registry"]


def test_a_copy_that_fails_leaves_nothing(registry: Registry, tmp_path: Path) -> None:
    registry.register(trained(), "web")

    def copy() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with pytest.raises(OSError):
            registry.copy("web", tmp_path / "out")

    assert in_child(copy) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["registry"]


# -- Differences --------------------------------------------------------------


def test_diff_of_equal_tokenizers(registry: Registry) -> None:
    one = registry.register(trained(), "web", metadata={"owner": "a"})
    two = registry.register(fresh(), "mail", metadata={"owner": "b"}, corpus_sha256=CORPUS)
    found = registry.diff("web", "mail")
    assert found.equal and not found.ids_change and found.names == (one.ref, two.ref)
    assert found.about["owner"] == ("a", "b")
    assert found.about["corpus sha256"] == (None, CORPUS)
    text = str(found)
    assert text.splitlines()[3] == "The same tokenizer: every text gets the same ids."
    assert "owner: 'a' in a, 'b' in b" in text


def test_diff_of_a_tokenizer_cut_down() -> None:
    large = trained(300)
    small = large.with_vocab_size(280)
    found = compare_tokenizers(small, large)
    assert found.cut == "a" and compare_tokenizers(large, small).cut == "b"
    assert found.same_merges == len(small.merges) == found.merges[0]
    assert found.merges[1] == len(large.merges) and found.first_merges[0] is None
    left, right = large.merges[found.same_merges]
    assert found.first_merges[1] == (repr(left.decode()), repr(right.decode()))
    tokens = [large.decode_bytes([id_]) for id_ in range(small.vocab_size - 3, 297)]
    assert [id_ for _, id_ in found.added] == list(range(277, 297)) and len(tokens) == 20
    for (shown, _), token in zip(found.added, tokens):
        assert shown in (repr(token.decode(errors="replace")), repr(token))
    assert found.removed == [] and found.moved == []
    text, ids_a, ids_b = found.example
    assert small.encode(text) == ids_a != ids_b == large.encode(text)
    assert f"a is b cut down to the first {found.merges[0]} of its" in found.verdict
    assert found.parts["special token '<|endoftext|>'"] == ("id 277", "id 297")


def test_diff_finds_the_first_merge_that_differs() -> None:
    one = BPETokenizer().train("abab cdcd abab cdcd ab ab ab", 262, min_frequency=1, verbose=False)
    two = BPETokenizer().train("abab cdcd abab cdcd cd ce ce", 262, min_frequency=1, verbose=False)
    found = compare_tokenizers(one, two)
    naive = next(i for i, (a, b) in enumerate(zip(one.merges, two.merges)) if a != b)
    assert found.same_merges == naive and found.ids_change and found.cut is None
    assert found.first_merges[0] == tuple(repr(part.decode()) for part in one.merges[naive])
    vocabs = [set(t.get_vocab()) for t in (one, two)]
    spelled = [
        {t.convert_ids_to_tokens(i) for _, i in ids}
        for t, ids in ((one, found.removed), (two, found.added))
    ]
    assert spelled == [vocabs[0] - vocabs[1], vocabs[1] - vocabs[0]]
    text, ids_a, ids_b = found.example
    assert one.encode(text) == ids_a != ids_b == two.encode(text)


def test_diff_of_what_does_not_decide_ids() -> None:
    one, two = fresh(), fresh()
    two.chat_template = TEMPLATE.replace("m['content']", "m['content'] | trim")
    two.add_special_tokens(["<|x|>"])
    two.pad_token = "<|x|>"
    found = compare_tokenizers(one, two)
    assert not found.equal and not found.ids_change and found.example is None
    assert found.parts == {
        "special token '<|x|>'": (None, "id 300"),
        "pad_token": (None, "<|x|>"),
    }
    assert [line for line in found.chat_template if "| trim" in line][0].startswith("+")
    assert "Ordinary text gets the same ids; what differs is listed below." in str(found)
    found = compare_tokenizers(
        fresh(), BPETokenizer._from_parts(one.definition, {}, {}, {}, Path())
    )
    assert found.parts["eos_token"] == ("<|endoftext|>", None) and len(found.chat_template) > 2


@pytest.mark.parametrize(
    "changes, part, text",
    [
        ({"normalizer": "NFKC"}, "normalizer", "ﬁ"),
        ({"split_pattern": bpe_tokenizer.SPLIT_PATTERNS["cl100k"]}, "split pattern", None),
        ({"prefix_space": True}, "space put before text", None),
    ],
)
def test_diff_of_what_decides_ids(changes: dict[str, Any], part: str, text: str | None) -> None:
    one = trained()
    two = BPETokenizer._from_parts(
        dataclasses.replace(one.definition, **changes),
        one._roles,
        {},
        {"default": TEMPLATE},
        Path(),
    )
    found = compare_tokenizers(one, two)
    assert found.ids_change and found.cut is None and part in found.parts
    assert found.same_merges == len(one.merges) and "All merges are the same." in found.verdict
    example, ids_a, ids_b = found.example
    assert one.encode(example) == ids_a != ids_b == two.encode(example)
    if text is not None:
        assert one.encode(text) != two.encode(text)


def test_diff_shows_nothing_that_moves_a_cursor(registry: Registry) -> None:
    registry.register(trained(), "a", metadata={"x\x1b[2J": "\x1b]0;evil\x07", "y": "1\n2"})
    tokenizer = fresh()
    tokenizer.add_special_tokens(["<\x1b[1m>"])
    tokenizer.chat_template = "\x1b[2J\n" + TEMPLATE
    registry.register(tokenizer, "b")
    for text in (str(registry.diff("a", "b")), str(registry.show("a")), str(registry.show("b"))):
        assert all(char.isprintable() or char == "\n" for char in text)


# -- The commands -------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    trained().save(tmp_path / "saved", verbose=False)
    trained(290).save(tmp_path / "smaller", verbose=False)
    monkeypatch.setenv("BPE_TOKENIZER_REGISTRY", str(tmp_path / "registry"))
    return tmp_path / "saved"


def test_commands(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text('{"bytes_per_token": 4.25}', encoding="utf-8")
    argv = ("register", saved, "web", "--metadata", "owner=search", "note=a=b", "--metadata", "x=")
    argv += ("--corpus-sha256", CORPUS, "--report", tmp_path / "report.json")
    status, out, err = run(*argv, capsys=capsys)
    entry = Registry().show("web")
    assert (status, out) == (0, f"{entry.ref}\n") and "Registered 300 tokens" in err
    assert entry.metadata == {"owner": "search", "note": "a=b", "x": ""}
    assert entry.report == {"bytes_per_token": 4.25} and entry.corpus_sha256 == CORPUS
    status, out, err = run(*argv, "--quiet", capsys=capsys)
    assert (status, out, err) == (0, f"{entry.ref}\n", "")
    status, out, err = run(*argv, "--json", capsys=capsys)
    assert status == 0 and json.loads(out)["is_new"] is False and err == ""
    smaller = json.loads(run("register", tmp_path / "smaller", "web", "--json", capsys=capsys)[1])
    status, out, err = run("list", capsys=capsys)
    assert status == 0 and err == "" and len(out.splitlines()) == 3
    assert entry.ref in out and "owner=search, note=a=b" in out and CORPUS[:12] in out
    listed = json.loads(run("list", "web", "--check", "--json", capsys=capsys)[1])
    assert [each["hash"] for each in listed["entries"]] == [entry.hash, smaller["hash"]]
    assert listed["problems"] == []
    status, out, err = run("show", entry.ref, capsys=capsys)
    assert status == 0 and entry.hash in out and "as they were registered" in out
    assert json.loads(run("show", entry.ref, "--json", capsys=capsys)[1]) == entry.to_json()
    status, out, err = run("load", entry.ref, "--output", tmp_path / "out", capsys=capsys)
    assert (status, out) == (0, f"{entry.ref}\n")
    assert BPETokenizer.from_file(tmp_path / "out") == trained()
    status, out, err = run("diff", entry.ref, "web", capsys=capsys)
    assert status == 0 and "b is a cut down to the first" in out
    found = json.loads(run("diff", entry.ref, "web", "--json", capsys=capsys)[1])
    assert found["cut"] == "b" and found["verdict"] in out


def test_list_tells_what_is_damaged(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("web", "mail"):
        run("register", saved, name, capsys=capsys)
    entry = Registry().show("web")
    _rewrite(entry.path / "tokenizer.json", b"{}")
    status, out, err = run("list", capsys=capsys)
    assert (status, err) == (0, "") and len(out.splitlines()) == 3  # not every file is read
    status, out, err = run("list", "--check", capsys=capsys)
    assert status == 1 and "web@" not in out and "mail@" in out
    assert err.startswith(
        f"bpe-tokenizer: error: {entry.path / 'tokenizer.json'}: has been changed"
    )
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "argv, status, problem",
    [
        (("show", "web"), 1, "no registry here; registering a tokenizer makes one"),
        (("list",), 1, "no registry here"),
        (("list", "--registry", ""), 2, "expected the directory of a registry"),
        (("register", "{saved}", "../x"), 1, "is not a valid registry name"),
        (("register", "{saved}", "web", "--metadata", "owner"), 2, "expected KEY=VALUE"),
        (("register", "{saved}", "web", "--metadata", "a=1", "a=2"), 2, "is given twice"),
        (
            ("register", "{saved}", "web", "--report", "{saved}/none"),
            1,
            "expected a report as JSON",
        ),
        (("register", "{saved}", "web", "--report", __file__), 1, "expected JSON"),
        (("register", "{saved}/none", "web"), 1, "no such file or directory"),
        (("register", "{saved}", "web", "--registry", __file__), 1, "a registry is a directory"),
        (("load", "web"), 2, "--output"),
        (("load", "web", "--output", ""), 2, "expected the directory to write to"),
    ],
)
def test_wrong_use_is_one_line(
    saved: Path, argv: Any, status: int, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given_ = [word.replace("{saved}", str(saved)) for word in argv]
    found, out, err = run(*given_, capsys=capsys)
    assert (found, out) == (status, "") and problem in err
    assert err.startswith("bpe-tokenizer: error: ") and err.count("\n") == 1
