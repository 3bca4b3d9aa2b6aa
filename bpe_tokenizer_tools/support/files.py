"""Files: their hash, whether they have changed, flushing them, errors that name them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from bpe_tokenizer_tools.support.text import shortened

_BLOCK = 2**20


class FileStatus(NamedTuple):
    """The file status that changes whenever the file does."""

    size: int  # in bytes
    modified: int  # when its content changed, in nanoseconds
    changed: int  # when anything about it changed; programs can't set this back

    @property
    def newest(self) -> int:
        """The later one of both times."""
        return max(self.modified, self.changed)


def status_of(path: str | os.PathLike[str]) -> FileStatus:
    """Return the status of a file: equal ones mean that nobody has written to it."""
    status = os.stat(path)
    return FileStatus(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def stream_sha256(file: IO[bytes]) -> str:
    """Hash the rest of an open file."""
    digest = hashlib.sha256()
    for block in iter(lambda: file.read(_BLOCK), b""):
        digest.update(block)
    return digest.hexdigest()


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Hash a file."""
    with open(path, "rb", buffering=0) as file:
        return stream_sha256(file)


def flush(file: IO[bytes]) -> None:
    """Return once the written data is on disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Return once the names in a directory are on disk, if the system supports it."""
    if os.name == "nt":  # Windows can't open directories
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # unsupported by some file systems
            raise
    finally:
        os.close(handle)


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise ValueError for a path that no file can have, such as one that is too long."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            return
        problem = "the path, or a name in it, is too long for this system"
    except ValueError:
        problem = "a path has no null character"
    else:
        return
    raise ValueError(f"{shortened(os.fspath(path), 60)}: {problem}")


def resolved(path: Path) -> Path:
    """Return the path to write to: where a link leads, so that the link stays; else the path."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def draft_name(path: Path) -> Path:
    """Return a new, hidden name beside a path: to write to, and to rename when it is complete."""
    return path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")


def renamed(error: OSError, path: str | os.PathLike[str], note: str = "") -> OSError:
    """Make an error of the system name another path; a note follows the reason."""
    return OSError(error.errno, (error.strerror or str(error)) + note, os.fspath(path))


@contextlib.contextmanager
def naming(
    path: str | os.PathLike[str], note: str = "", *, drafts_only: bool = False
) -> Iterator[None]:
    """Make errors of the system name the path that the user gave, not a temporary one.

    Errors of the library itself pass unchanged: they name their file in their message.

    `note` is added to the reason, such as "; nothing was written".  With `drafts_only`, errors
    about other files than the path and its drafts also pass unchanged, as blocks read other files.
    """
    try:
        yield
    except OSError as error:
        met, name = Path(os.fsdecode(error.filename or path)).name, Path(path).name
        is_draft = met == name or met.startswith(f".{name}.")
        is_own = not error.errno and type(error) is not OSError  # FileExistsError("...")
        if is_own or (drafts_only and not is_draft):
            raise
        raise renamed(error, path, note) from None
