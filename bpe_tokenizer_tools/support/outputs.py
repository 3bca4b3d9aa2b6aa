"""Output files: checked before long work begins, and written whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.files import (
    check_path,
    draft_name,
    flush,
    naming,
    renamed,
    resolved,
)

_lock = core.lock_file
_PLOTS = {".png": "png", ".svg": "svg"}


def check_file(path: str | os.PathLike[str], *, with_directories: bool = False) -> None:
    """Raise an error if a file can't be written; create nothing.

    `with_directories` means that missing parent directories will be created.
    """
    given, path = os.fspath(path), Path(path)
    if given in ("", "-"):
        raise ValueError(f"expected the path of a file to write, got {given!r}")
    check_path(path)
    path = resolved(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a directory; expected a file to write")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: is not a regular file; expected one, or a new name")
    existing = existing_path(path.parent)
    if not existing.is_dir():
        raise NotADirectoryError(f"{path}: {existing} is a file, not a directory")
    if not with_directories and not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path}: the directory {path.parent} doesn't exist; create it first"
        )
    _try(existing, path)


def check_directory(path: str | os.PathLike[str]) -> None:
    """Raise an error if a directory can't be created or written to; create nothing."""
    given, path = os.fspath(path), Path(path)
    if given in ("", "-"):
        raise ValueError(f"expected the path of a directory to write to, got {given!r}")
    check_path(path)
    if path.is_symlink() and not path.exists():
        problem = f"is a link to {os.readlink(path)}, which does not exist"
        raise FileNotFoundError(f"{path}: {problem}; make that directory first")
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
    """Return the format of a plot, from the name of its file.

    Raises:
        ValueError: the name doesn't end in .png or .svg.
        ImportError: matplotlib is not installed.
    """
    kind = _PLOTS.get(Path(path).suffix.lower())
    if kind is None:
        raise ValueError(f"{path}: a plot must be a .png or .svg file")
    core.import_optional("matplotlib", "drawing plots", "matplotlib")
    return kind


@contextlib.contextmanager
def figure(path: str | os.PathLike[str], width: float, height: float) -> Iterator[Any]:
    """Yield a matplotlib figure, sized in inches, to draw on; then write it atomically."""
    kind = plot_format(path)
    from matplotlib.figure import Figure

    drawn, file = Figure(figsize=(width, height), layout="constrained"), io.BytesIO()
    yield drawn
    drawn.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    write({Path(path): file.getvalue()})


def existing_path(path: Path) -> Path:
    """Return a path or, if it doesn't exist, its nearest parent that does."""
    return next((each for each in (path, *path.parents) if each.exists()), Path())


def _try(directory: Path, path: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        problem = f"cannot be written: cannot create files in {directory}: {error.strerror}"
        raise OSError(error.errno, problem, str(path)) from None


def write(contents: Mapping[Path, str | bytes]) -> None:
    """Write files whole or not at all; errors name them, not their temporary files."""
    contents = {resolved(path): content for path, content in contents.items()}
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
    """Yield a hidden name to write to; remove that file at the end, unless it was renamed."""
    draft = draft_name(path)
    try:
        with naming(path, drafts_only=True):
            yield draft
    finally:
        _remove(draft)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a file bit by bit, whole or not at all: it is renamed once all is on disk."""
    path = resolved(path)
    remove_drafts(path)
    with draft_of(path) as draft:
        draft.touch()
        with claimed(draft):
            with open(draft, "wb") as file:
                yield file
                flush(file)
            os.replace(draft, path)


@contextlib.contextmanager
def claimed(draft: Path) -> Iterator[None]:
    """Hold a lock on a draft, so that `remove_drafts` of another run leaves it alone."""
    if os.name == "nt":  # Windows renames nothing that is open
        yield
        return
    handle = os.open(draft, os.O_RDONLY)
    try:
        _lock(handle, shared=False)
        yield
    finally:
        os.close(handle)


def remove_drafts(path: Path) -> None:
    """Remove the drafts of a path that killed runs left; those of living ones are `claimed`."""
    if os.name == "nt":
        return
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-z_]{{8,16}}\.tmp")
    with contextlib.suppress(OSError):
        for draft in filter(lambda each: name.fullmatch(each.name), list(path.parent.iterdir())):
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                handle = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW)
                stack.callback(os.close, handle)
                if _lock(handle, shared=False):
                    _remove(draft)


def _remove(draft: Path) -> None:
    with contextlib.suppress(OSError):
        remove = shutil.rmtree if draft.is_dir() else os.unlink
        remove(draft)


@contextlib.contextmanager
def locked(path: Path, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a file or directory; the system releases it however the process ends.

    A missing file is created.  A `shared` lock lets others hold shared locks at the same time.

    Raises:
        BlockingIOError: another process holds it.
    """
    with contextlib.ExitStack() as stack:
        _hold(path, path.is_dir(), shared, stack)
        yield


@contextlib.contextmanager
def locked_folder(folder: Path, shared: bool = False) -> Iterator[None]:
    """Make a directory if need be and hold a lock on it; who has the lock may remove it.

    Raises:
        BlockingIOError: another process holds it.
    """
    with contextlib.ExitStack() as stack:
        for attempt in range(100):
            stack.close()
            folder.mkdir(parents=True, exist_ok=True)
            # NOTE: a run that is ending can remove the directory between any two steps.  Then there
            # is nothing to open, or the lock is on a directory that has no name anymore.
            with contextlib.suppress(FileNotFoundError):
                # Some network file systems report a new inode on every call.
                if _hold(folder, True, shared, stack) or attempt > 40:
                    break
        yield


def _hold(path: Path, is_folder: bool, shared: bool, stack: contextlib.ExitStack) -> bool:
    """Lock a path until a stack is closed; return whether what is locked still has that path."""
    places = [path]
    if is_folder:  # neither Windows nor NFS can lock folders
        places = [path, path / ".lock"][os.name == "nt" :]
    for place in places:
        opens_folder = is_folder and place is path
        flags = os.O_RDONLY if opens_folder else os.O_RDWR | os.O_CREAT
        handle = os.open(place, flags, 0o666)
        stack.callback(os.close, handle)
        try:
            if _lock(handle, shared):
                break
        except BlockingIOError:
            folder = path if is_folder else path.parent
            raise BlockingIOError(f"{folder}: another run is using this folder") from None
    return os.path.samestat(os.fstat(handle), os.stat(place))
