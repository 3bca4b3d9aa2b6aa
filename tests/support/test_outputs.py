"""Output paths: those that can't be written are refused before work begins."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE, run_command
from oracles import need

import bpe_tokenizer as core
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.files import draft_name
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
        (
            f"{apart}/x.csv",
            f"{Path(apart, 'x.csv')}: the directory {apart} doesn't exist; create it first",
        ),
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
    assert refusal("pipe") == "pipe: is not a regular file; expected one, or a new name"
    assert refusal(os.devnull).startswith("/dev/null: is not a regular file")


@nobody_writes
def test_a_place_that_nobody_may_write_to_is_found_by_trying() -> None:
    for directory in (False, True):
        said = refusal("/proc/x", directory=directory)
        assert said.startswith("/proc/x: cannot be written: cannot create files in /proc: ")
        assert ".tmp" not in said


@posix
def test_convert_replaces_no_pipe(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    core.BPETokenizer().save(place / "bytes", verbose=False)
    os.mkfifo(place / "pipe.json")
    for out, said in (
        ("pipe.json", "is not a regular file; expected one, or a new name"),
        ("file.txt/x.json", "file.txt is a file, not a directory"),
    ):
        assert core.main(["convert", "bytes", out]) == 1
        assert capsys.readouterr() == ("", f"bpe-tokenizer: error: {out}: {said}\n")
    assert (place / "pipe.json").is_fifo()


@posix
@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may write anywhere")
def test_a_directory_without_the_right_to_write(place: Path) -> None:
    (place / "folder").chmod(0o500)
    expected = "cannot be written: cannot create files in folder: Permission denied"
    assert refusal("folder/x") == f"folder/x: {expected}"
    assert refusal("folder/x", directory=True) == f"folder/x: {expected}"


COMMANDS = [  # nothing that they name exists
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
        (os.path.join("not", f"x{end}"), "the directory not doesn't exist; create it first"),
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
        ("/proc/x", "cannot be written: cannot create files in /proc: No such file or directory"),
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
            with pytest.raises(BlockingIOError, match="another run is using this folder"):
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
    fcntl = need("fcntl")
    real = fcntl.flock

    def flock(handle: int, how: int) -> None:  # as on NFS
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with outputs.locked(place / "folder"):
        assert (place / "folder" / ".lock").is_file()
        with pytest.raises(BlockingIOError, match="folder: another run is using this folder"):
            with outputs.locked(place / "folder", shared=True):
                raise AssertionError("two hold the lock")
    monkeypatch.setattr(
        fcntl, "flock", lambda handle, how: (_ for _ in ()).throw(OSError(errno.ENOLCK, "No locks"))
    )
    with outputs.locked(place / "folder"), outputs.locked(place / "folder"):
        pass  # no locks here: go on without


@posix
@pytest.mark.parametrize("between", ["is_dir", "open", "_lock", "fstat"])
def test_a_folder_that_whoever_has_the_lock_removes(
    place: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    """If the file is removed while another waits, that one locks the file that is there."""
    module: Any = {"is_dir": Path, "_lock": outputs}.get(between, os)
    name = {"is_dir": "mkdir"}.get(between, between)
    real, folder, removed = getattr(module, name), place / "job", []

    def removing(*given: Any, **options: Any) -> Any:
        found = real(*given, **options) if between == "is_dir" else None
        if not removed and folder.exists():
            removed.append(folder)
            folder.rmdir()
        return found if between == "is_dir" else real(*given, **options)

    monkeypatch.setattr(module, name, removing)
    with outputs.locked_folder(folder):
        monkeypatch.undo()
        assert removed and folder.is_dir()
        with pytest.raises(BlockingIOError, match="job: another run is using this folder"):
            with outputs.locked_folder(folder):
                raise AssertionError("two hold the lock")


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


# -- Links, and what killed runs leave ------------------------------------------------


def files(folder: Path) -> dict[str, str]:
    """Return the content of each file, and the target of each link."""
    return {
        path.relative_to(folder).as_posix(): (
            f"-> {os.readlink(path)}" if path.is_symlink() else path.read_text(encoding="utf-8")
        )
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@posix
@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_the_file_it_leads_to_is_written(
    place: Path, there: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "link").symlink_to("folder/target")
    if there:
        (place / "folder" / "target").write_text("old")
    link = place / "link"

    def replace() -> None:
        with outputs.replacing(link) as file:
            file.write(b"1")

    writers: dict[str, Callable[[], Any]] = {
        "1": replace,
        "2": lambda: outputs.write({link: "2"}),
        "counts": lambda: core.count_pretokens(["a"]).save(link),
        '"model"': lambda: core.BPETokenizer().export(link, "tokenizer.json"),
    }
    for content, write in writers.items():
        outputs.check_file(link)
        write()
        found = files(place)
        assert found.keys() == {"file.txt", "folder/target", "link"}
        assert found["link"] == "-> folder/target"
        assert content in found["folder/target"]
    core.BPETokenizer().save(place / "bytes", verbose=False)
    (place / "link.json").symlink_to("folder/target")
    status, _, err = run_command(capsys, "convert", place / "bytes", "link.json", "--force")
    assert (status, err) == (0, "")
    assert files(place)["link.json"] == "-> folder/target"
    assert core.BPETokenizer.from_file(place / "folder" / "target").vocab_size == 256


@posix
def test_a_link_to_nowhere_is_refused_before_work_begins(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "link").symlink_to("none/below")
    (place / "loop").symlink_to("loop")
    assert "none doesn't exist; create it first" in refusal("link")
    for name, leads_to in (("link", "none/below"), ("loop", "loop")):
        said = refusal(name, directory=True)
        assert f"{name}: is a link to {leads_to}, which does not exist; make that" in said
        (place / "text.txt").write_text("a b " * 99)
        status, _, err = run_command(capsys, "train", "text.txt", "-o", name)
        assert (status, "is a link to" in err) == (1, True)
    with pytest.raises(OSError, match="link"):
        core.BPETokenizer().save(place / "link", verbose=False)


@posix
def test_a_link_to_a_directory_stays(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "link").symlink_to("folder")
    (place / "text.txt").write_text("a b " * 99)
    for words in (
        "train text.txt -o link --vocab-size 258",
        "register link x --registry link/r",
        "load x --registry link/r -o empty-link",
    ):
        if words.startswith("load"):
            (place / "empty").mkdir()
            (place / "empty-link").symlink_to("empty")
        status, _, err = run_command(capsys, *words.split(), "--quiet")
        assert (status, err) == (0, ""), words
    assert (place / "link").is_symlink() and (place / "empty-link").is_symlink()
    assert core.BPETokenizer.from_file("empty") == core.BPETokenizer.from_file("folder")


@posix
def test_a_saved_tokenizer_replaces_the_links_within_its_directory(place: Path) -> None:
    """They may lead into a cache that other directories share."""
    (place / "folder" / "tokenizer.json").symlink_to(place / "file.txt")
    core.BPETokenizer().save(place / "folder", verbose=False)
    assert not (place / "folder" / "tokenizer.json").is_symlink()
    assert (place / "file.txt").read_text() == "kept"


@posix
def test_drafts_of_killed_runs_go_and_those_of_living_ones_stay(place: Path) -> None:
    path = place / "x.counts"
    left, other = draft_name(path), draft_name(place / "y.counts")
    for draft in (left, other):
        draft.write_bytes(b"half")
    folder = place / ".x.counts.ab_c1234.tmp"  # a name as tempfile makes it
    folder.mkdir()
    (folder / "half").touch()
    with outputs.replacing(path) as first:
        assert not left.exists() and not folder.exists()
        first.write(b"1")
        with outputs.replacing(path) as second:
            second.write(b"2")
        assert path.read_bytes() == b"2"
    assert path.read_bytes() == b"1"
    assert [each.name for each in place.glob(".*")] == [other.name]
