"""Files: hashes, changes, flushing, and errors that name the right one."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from pathlib import Path

import pytest

from bpe_tokenizer_tools.support import files


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**20 + 1])
def test_a_hash_is_that_of_the_whole_content(size: int, tmp_path: Path) -> None:
    content = bytes(i % 251 for i in range(size))
    (tmp_path / "a").write_bytes(content)
    assert files.file_sha256(tmp_path / "a") == hashlib.sha256(content).hexdigest()
    rest = io.BytesIO(content)
    rest.read(1)
    assert files.stream_sha256(rest) == hashlib.sha256(content[1:]).hexdigest()


def test_a_status_tells_of_every_change(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    first = files.status_of(path)
    assert files.status_of(path) == first
    assert (first.size, first.newest) == (3, max(first.modified, first.changed))
    path.write_bytes(b"longer")
    assert files.status_of(path).size == 6
    path.write_bytes(b"two")
    os.utime(path, ns=(first.modified, first.modified - 1))
    second = files.status_of(path)
    assert (second.size, second != first) == (3, True)
    with pytest.raises(FileNotFoundError):
        files.status_of(tmp_path / "none")


def test_what_is_flushed_has_been_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = []
    real = os.fsync

    def fsync(handle: int) -> None:
        status = os.fstat(handle)
        flushed.append((stat.S_ISDIR(status.st_mode), status.st_size))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with open(tmp_path / "a", "wb") as file:
        file.write(b"some bytes")
        files.flush(file)
    files.flush_directory(tmp_path)
    assert flushed[0] == (False, 10)
    assert [is_directory for is_directory, _ in flushed[1:]] == [True] * (os.name != "nt")


@pytest.mark.skipif(os.name == "nt", reason="Windows opens no directories")
@pytest.mark.parametrize("code, passes", [(errno.EINVAL, True), (errno.EIO, False)])
def test_a_file_system_need_not_flush_directories(
    code: int, passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    if passes:
        files.flush_directory(tmp_path)
    else:
        with pytest.raises(OSError, match=os.strerror(code)):
            files.flush_directory(tmp_path)


def test_errors_name_the_path_that_the_user_gave(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    draft = files.draft_name(path)
    assert (draft.parent, draft.name[:3], draft.suffix) == (tmp_path, ".a.", ".tmp")
    for met in (draft, path, other):
        with pytest.raises(FileNotFoundError) as found, files.naming(path, "; nothing was written"):
            met.read_bytes()
        assert found.value.filename == str(path)
        assert found.value.strerror == os.strerror(errno.ENOENT) + "; nothing was written"
        with pytest.raises(FileNotFoundError) as found, files.naming(path, drafts_only=True):
            met.read_bytes()
        assert found.value.filename == str(other if met is other else path)


def test_an_error_that_says_all_is_not_changed(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="^b: is there$") as found, files.naming(tmp_path):
        raise FileExistsError("b: is there")
    assert found.value.filename is None


def test_an_error_without_a_number_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the stream broke") as found, files.naming(tmp_path / "a"):
        raise OSError("the stream broke")  # as pyarrow does
    assert found.value.filename == str(tmp_path / "a")
