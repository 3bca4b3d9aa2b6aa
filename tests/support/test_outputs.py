"""Places to write to: what cannot be written is refused before work begins."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from conftest import EITHER_ENGINE
from oracles import need

import bpe_tokenizer as core
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.workflow.registry import Registry

pytestmark = EITHER_ENGINE

posix = pytest.mark.skipif(os.name == "nt", reason="modes and pipes are those of POSIX")
nobody_writes = pytest.mark.skipif(
    not Path("/proc/self").is_dir(), reason="there is no /proc, where none may write"
)


def refusal(path: Path | str, *, directory: bool = False, **options: bool) -> str:
    check = outputs.check_directory if directory else outputs.check_file
    with pytest.raises((ValueError, OSError)) as caught:
        check(path, **options)
    return core._one_line(caught.value)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "file.txt").write_text("kept", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_can_be_written_is_not_touched(place: Path) -> None:
    before = sorted(place.rglob("*")), (place / "file.txt").read_text(encoding="utf-8")
    for file in ("new.txt", "file.txt", "folder/new.txt", str(place / "new.txt"), "./-"):
        outputs.check_file(file)
    outputs.check_file("not/there/new.txt", with_directories=True)
    for folder in ("folder", "folder/new/below", "new", str(place / "new")):
        outputs.check_directory(folder)
    assert (sorted(place.rglob("*")), (place / "file.txt").read_text(encoding="utf-8")) == before


def test_files_that_cannot_be_written(place: Path) -> None:
    apart = os.path.join("not", "there")
    for path, said in (
        ("folder", "folder: is a directory; expected a file to write"),
        (f"{apart}/x.csv", f"{Path(apart, 'x.csv')}: there is no directory {apart}; make it first"),
        ("file.txt/x.csv", f"{Path('file.txt/x.csv')}: file.txt is a file, not a directory"),
        ("", "expected the path of a file to write, got ''"),
        ("-", "expected the path of a file to write, got '-'"),
    ):
        assert refusal(path) == said
    assert refusal("file.txt/a/b", with_directories=True).endswith(
        "file.txt is a file, not a directory"
    )


def test_directories_that_cannot_be_written_to(place: Path) -> None:
    for path, said in (
        ("file.txt", "file.txt: is a file; expected a directory to write to"),
        (
            "file.txt/a/b",
            f"{Path('file.txt/a/b')}: file.txt is a file; expected a directory to write to",
        ),
        ("", "expected the path of a directory to write to, got ''"),
        ("-", "expected the path of a directory to write to, got '-'"),
    ):
        assert refusal(path, directory=True).endswith(said)


@posix
def test_what_is_no_regular_file_is_not_replaced(place: Path) -> None:
    os.mkfifo(place / "pipe")
    assert refusal("pipe") == "pipe: is no regular file; expected one, or a new name"
    assert refusal(os.devnull).startswith("/dev/null: is no regular file")


@nobody_writes
def test_a_place_that_nobody_may_write_to_is_found_by_trying() -> None:
    for directory in (False, True):
        said = refusal("/proc/x", directory=directory)
        assert said.startswith("/proc/x: cannot be written, for nothing can be in /proc: ")
        assert ".tmp" not in said


@posix
def test_convert_replaces_no_pipe(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    core.BPETokenizer().save(place / "bytes", verbose=False)
    os.mkfifo(place / "pipe.json")
    for out, said in (
        ("pipe.json", "is no regular file; expected one, or a new name"),
        ("file.txt/x.json", "file.txt is a file, not a directory"),
    ):
        assert core.main(["convert", "bytes", out]) == 1
        assert capsys.readouterr() == ("", f"bpe-tokenizer: error: {out}: {said}\n")
    assert (place / "pipe.json").is_fifo()


@posix
@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may write anywhere")
def test_a_directory_without_the_right_to_write(place: Path) -> None:
    (place / "folder").chmod(0o500)
    expected = "cannot be written, for nothing can be in folder: Permission denied"
    assert refusal("folder/x") == f"folder/x: {expected}"
    assert refusal("folder/x", directory=True) == f"folder/x: {expected}"


COMMANDS = [  # of all that they name, nothing is there
    ["evaluate", "none", "--texts", "none.txt", "--csv", "OUT"],
    ["evaluate", "none", "--texts", "none.txt", "--plot", "OUT.png"],
    ["compare", "none", "none", "--texts", "none.txt", "--csv", "OUT"],
    ["sweep", "--corpus", "none.txt", "--csv", "OUT"],
    ["sweep", "--corpus", "none.txt", "--plot", "OUT.svg"],
    ["doctor", "none", "--csv", "OUT"],
    ["doctor", "none", "--plot", "OUT.png"],
    ["view", "text", "--tokenizer", "none", "--html", "OUT"],
    ["trace", "text", "--tokenizer", "none", "--html", "OUT"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command[0]} {command[-2]}")
def test_commands_look_at_where_to_write_before_all_else(
    place: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if "evaluate" in command or "compare" in command:
        need("numpy")
    if "--plot" in command:
        need("matplotlib")
    before = sorted(place.rglob("*"))
    end = Path(command[-1]).suffix
    (place / f"x{end}").mkdir()
    for out, said in (
        (os.path.join("not", f"x{end}"), "there is no directory not; make it first"),
        (os.path.join("file.txt", f"x{end}"), "file.txt is a file, not a directory"),
        (f"x{end}", "is a directory; expected a file to write"),
    ):
        assert core.main([*command[:-1], out]) == 1
        assert capsys.readouterr() == ("", f"bpe-tokenizer: error: {out}: {said}\n")
    (place / f"x{end}").rmdir()
    assert sorted(place.rglob("*")) == before


def test_commands_look_at_folders_too(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert core.main(["sweep", "--corpus", "none.txt", "--output", "file.txt"]) == 1
    expected = "file.txt: is a file; expected a directory to write to"
    assert capsys.readouterr() == ("", f"bpe-tokenizer: error: {expected}\n")


@nobody_writes
def test_a_registered_tokenizer_is_written_where_that_can_be(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ref = Registry(place / "kept").register(core.BPETokenizer(), "plain").ref
    for out, said in (
        ("/proc/x", "cannot be written, for nothing can be in /proc: No such file or directory"),
        ("file.txt", "is a file; expected a directory"),
        ("file.txt/x", "file.txt is a file; expected a directory to write to"),
    ):
        assert core.main(["load", ref, "--output", out, "--registry", "kept"]) == 1
        assert capsys.readouterr() == ("", f"bpe-tokenizer: error: {out}: {said}\n")


def test_errors_of_writing_name_the_file(place: Path) -> None:
    outputs.write({place / "a": "text", place / "b": b"bytes"})
    assert (place / "a").read_bytes() + (place / "b").read_bytes() == b"textbytes"
    with pytest.raises(FileNotFoundError) as caught:
        outputs.write({place / "a": "new", place / "none" / "b": "new"})
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == str(place / "none" / "b")
    with pytest.raises(IsADirectoryError, match="expected a file to write"):
        outputs.write({place / "folder": "new"})
    assert (place / "a").read_text(encoding="utf-8") == "text"
    assert sorted(each.name for each in place.iterdir()) == ["a", "b", "file.txt", "folder"]


@posix
@pytest.mark.parametrize("shared", [False, True])
def test_a_lock_is_held_by_one_or_by_those_who_share_it(place: Path, shared: bool) -> None:
    for path in (place / "folder", place / "file.lock"):
        with outputs.locked(path, shared):
            with pytest.raises(BlockingIOError, match="another run is at work there"):
                with outputs.locked(path):
                    raise AssertionError("two hold the lock")
            if shared:
                with outputs.locked(path, shared=True):
                    pass
        with outputs.locked(path):
            pass
    assert list((place / "folder").iterdir()) == []


@posix
def test_where_no_directory_can_be_locked_a_file_in_it_is(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    real = fcntl.flock

    def flock(handle: int, how: int) -> None:  # as NFS has it
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with outputs.locked(place / "folder"):
        assert (place / "folder" / ".lock").is_file()
        with pytest.raises(BlockingIOError, match="folder: another run is at work there"):
            with outputs.locked(place / "folder", shared=True):
                raise AssertionError("two hold the lock")
    monkeypatch.setattr(
        fcntl, "flock", lambda handle, how: (_ for _ in ()).throw(OSError(errno.ENOLCK, "No locks"))
    )
    with outputs.locked(place / "folder"), outputs.locked(place / "folder"):
        pass  # without locks, it goes without


def test_a_file_is_replaced_whole_or_not_at_all(place: Path) -> None:
    path = place / "file.txt"
    with outputs.replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(ZeroDivisionError):
        with outputs.replacing(path) as file:
            file.write(b"half")
            1 // 0  # noqa: B018
    with pytest.raises(OSError, match="file.txt"):
        with outputs.replacing(path) as file:
            raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_bytes() == b"new"
    assert {each.name for each in place.iterdir()} == {"file.txt", "folder"}
