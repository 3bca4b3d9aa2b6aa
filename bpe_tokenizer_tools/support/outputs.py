"""Places to write to: looked at before work begins whose result would have none."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.files import draft_name, flush, naming, renamed

_PLOTS = {".png": "png", ".svg": "svg"}


def check_file(path: str | os.PathLike[str], *, with_directories: bool = False) -> None:
    """Raise an error if a file cannot be written; nothing is made yet.

    `with_directories` says that the directories it is in will be made.
    """
    given, path = os.fspath(path), Path(path)
    if given in ("", "-"):
        raise ValueError(f"expected the path of a file to write, got {given!r}")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a directory; expected a file to write")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: is no regular file; expected one, or a new name")
    existing = existing_path(path.parent)
    if not existing.is_dir():
        raise NotADirectoryError(f"{path}: {existing} is a file, not a directory")
    if not with_directories and not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no directory {path.parent}; make it first")
    _try(existing, path)


def check_directory(path: str | os.PathLike[str]) -> None:
    """Raise an error if a directory cannot be made, or written to; nothing is made yet."""
    given, path = os.fspath(path), Path(path)
    if given in ("", "-"):
        raise ValueError(f"expected the path of a directory to write to, got {given!r}")
    existing = existing_path(path)
    if not existing.is_dir():
        which = "is a file" if existing == path else f"{existing} is a file"
        raise NotADirectoryError(f"{path}: {which}; expected a directory to write to")
    _try(existing, path)


def check_table_and_plot(csv: str | None, plot: str | None) -> None:
    """Raise an error if one of these files, if there are any, cannot be written."""
    for path in (csv, plot):
        if path is not None:
            check_file(path)
    if plot is not None:
        plot_format(plot)


def plot_format(path: str | os.PathLike[str]) -> str:
    """Return the format of a plot, told by the name of its file.

    Raises:
        ValueError: it ends neither in .png nor in .svg.
        ImportError: matplotlib is not installed.
    """
    kind = _PLOTS.get(Path(path).suffix.lower())
    if kind is None:
        raise ValueError(f"{path}: a plot is a .png or an .svg file; give it such a name")
    core.import_optional("matplotlib", "drawing plots, by matplotlib,", "'bpe-tokenizer[tools]'")
    return kind


@contextlib.contextmanager
def figure(path: str | os.PathLike[str], width: float, height: float) -> Iterator[Any]:
    """Give a figure of matplotlib, in inches, to draw on; then write it, whole or not at all."""
    kind = plot_format(path)
    from matplotlib.figure import Figure

    drawn, file = Figure(figsize=(width, height), layout="constrained"), io.BytesIO()
    yield drawn
    drawn.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    write({Path(path): file.getvalue()})


def existing_path(path: Path) -> Path:
    """Return a path or, if nothing is there, the nearest above it where something is."""
    return next((each for each in (path, *path.parents) if each.exists()), Path())


def _try(directory: Path, path: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        problem = f"cannot be written, for nothing can be in {directory}: {error.strerror}"
        raise OSError(error.errno, problem, str(path)) from None


def write(contents: Mapping[Path, str | bytes]) -> None:
    """Write files whole or not at all; an error names them, not what they were written to first."""
    try:
        core.write_files(contents)
    except OSError as error:
        if not error.errno:
            raise
        met = Path(os.fsdecode(error.filename or "")).name
        path = next((path for path in contents if met.startswith(f".{path.name}.")), None)
        raise renamed(error, path or next(iter(contents))) from None


@contextlib.contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Give a hidden name to write to; at the end, remove what it has unless that was renamed."""
    draft = draft_name(path)
    try:
        with naming(path, drafts_only=True):
            yield draft
    finally:
        with contextlib.suppress(OSError):
            remove = shutil.rmtree if draft.is_dir() else os.unlink
            remove(draft)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a file bit by bit, whole or not at all: it takes its place once all is on disk."""
    with draft_of(path) as draft:
        with open(draft, "wb") as file:
            yield file
            flush(file)
        os.replace(draft, path)


@contextlib.contextmanager
def locked(path: Path, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a file or directory; the system takes it back however the process ends.

    A file is made if need be.  Others may hold a `shared` lock, too, if they share it as well.

    Raises:
        BlockingIOError: another process holds it.
    """
    places = [path]
    if path.is_dir():  # which Windows does not lock, and NFS neither
        places = [path, path / ".lock"][os.name == "nt" :]
    with contextlib.ExitStack() as stack:
        for place in places:
            flags = os.O_RDONLY if place.is_dir() else os.O_RDWR | os.O_CREAT
            handle = os.open(place, flags, 0o666)
            stack.callback(os.close, handle)
            try:
                if _lock(handle, shared):
                    break
            except BlockingIOError:
                folder = path if path.is_dir() else path.parent
                raise BlockingIOError(f"{folder}: another run is at work there") from None
        yield


def _lock(handle: int, shared: bool) -> bool:
    """Tell whether a lock was got; if not, there is none to be had, or a BlockingIOError."""
    try:
        if os.name == "nt":
            locking: Any = importlib.import_module("msvcrt")
            if not shared:
                locking.locking(handle, locking.LK_NBLCK, 1)
        else:
            fcntl: Any = importlib.import_module("fcntl")
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            raise BlockingIOError from None
        return False
    return True
