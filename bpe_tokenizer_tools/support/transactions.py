"""The files of a tokenizer, saved and read as one: at any moment, the old ones or the new.

A tokenizer is several files, and nothing replaces several at once.  The first is HEAD.  Several
HEADs in one directory share files, so the lock and the journal belong to the directory.  A writer
  1. takes the lock `.bpe-tokenizer.lock`, and finishes the save of an old journal, if there is one;
  2. writes each new file beside the old one, as `.NAME.<16 hex digits>.saving`, and flushes it;
  3. names them in a journal, renamed to `.bpe-tokenizer.saving`: from now on the save counts;
  4. renames the new files to their places, HEAD first, and removes the journal, then the lock.
A reader opens its files, then the journal, if there is one.  For each file that the journal names
it takes the new one from beside, or else the one in place.  Unless all are still the same, it reads
again.  While a journal exists, each file it names is in one of those two places, whole.  If there
was none, every earlier save had ended by then, and files that are still the same have not changed
since.  (They are kept open, so their inodes are not used again.  A template that came and went
changed a file beside it.)
A writer killed before step 3 leaves the old tokenizer, and after it the new one.  The next writer
finishes the save of a journal; the next one of the same files removes files that no journal names.
Readers need no lock and write nothing.
Rejected: replacing the whole directory, which may contain a model as well; and a hash of the
other files in tokenizer.json, by which a template edited by hand would look like a torn save.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import operator
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.files import resolved

_LOCK, _JOURNAL = ".bpe-tokenizer.lock", core.JOURNAL


def _leftover(paths: Iterable[Path]) -> re.Pattern[str]:
    """Return a pattern for the temporary names of these files."""
    names = "|".join(re.escape(path.name) for path in paths)
    return re.compile(rf"\.(?:{names})\.[0-9a-f]{{16}}\.(?:saving|tmp)")


def _write_beside(contents: Mapping[Path, str | bytes | None]) -> dict[Path, Path | None]:
    """Write the new files to temporary names, and return these."""
    new: dict[Path, Path | None] = {}
    try:
        for path, content in contents.items():
            if path.is_dir():
                raise IsADirectoryError(f"{path}: is a directory; expected a file to write")
            new[path] = None
            if content is not None:
                new[path] = place = path.with_name(f".{path.name}.{os.urandom(8).hex()}.saving")
                core.write_flushed(place, content)
    except BaseException:
        _remove(new.values())
        raise
    return new


def _remove(paths: Iterable[Path | None]) -> None:
    for path in filter(None, paths):
        with contextlib.suppress(OSError):
            path.unlink()


def save_files(contents: Mapping[Path, str | bytes | None]) -> None:
    """Write the files of a tokenizer in one directory, all or none; None removes a file.

    Raises:
        OSError: the old files are still there.  Except if a file after the first could not be
            renamed: then the new ones count, and the next save finishes this one.
    """
    paths = list(contents)
    folder, journal = paths[0].parent, paths[0].with_name(_JOURNAL)
    new: dict[Path, Path | None] = {}
    with _only_writer(folder) as locked:
        _finish_save(journal)
        if locked:
            left = filter(_leftover([*paths, journal]).fullmatch, os.listdir(folder))
            _remove(map(folder.joinpath, left))
        if len(paths) == 1:  # a single file is replaced by one rename, a link's where it leads
            return core.write_files({resolved(path): text for path, text in contents.items()})
        try:
            new = _write_beside(contents)
            names = {path.relative_to(folder).as_posix(): new[path] for path in paths}
            core.write_files({journal: json.dumps(names, default=operator.attrgetter("name"))})
            with contextlib.suppress(OSError), contextlib.ExitStack() as held:
                os.fsync(_open(folder, os.O_RDONLY, held))  # flush the names, if the system can
            _finish_save(journal)
        except BaseException:
            head = new.get(paths[0])
            if head is not None and head.exists():  # none is renamed yet
                _remove([journal])
            with contextlib.suppress(OSError):
                _finish_save(journal)
            raise
        finally:
            if not journal.exists():
                _remove(new.values())


def _finish_save(journal: Path) -> None:
    """Finish the save that a journal names, if there is one."""
    for path, places in _read_journal(journal).items():
        if places:
            with contextlib.suppress(FileNotFoundError):  # already in its place
                os.replace(*places)
        else:
            path.unlink(missing_ok=True)
    journal.unlink(missing_ok=True)


def _read_journal(journal: Path) -> dict[Path, tuple[Path, ...]]:
    """Return the two places of each file that is being saved; none if it will be removed.

    The journal is untrusted: it can only rename temporary files here and remove side files.
    """
    raw = core.read_file(journal)
    places: dict[Path, tuple[Path, ...]] = {}
    for name, beside in core.JsonReader.open(journal, raw).data.items() if raw is not None else ():
        path = journal.parent / name
        if beside is None:
            is_template = re.fullmatch(r"additional_chat_templates/[^/\0]*\.jinja", name)
            is_here = bool(is_template) and not path.parent.is_symlink()
            fine = is_here or name in core.SIDE_FILES
        else:
            form = rf"\.{re.escape(name)}\.[0-9a-f]{{16}}\.saving"
            is_name = re.fullmatch(r"(?!\.\.$)[^/\0]+", name)
            fine = bool(is_name and re.fullmatch(form, str(beside)))
        if not fine or path.name != name.rpartition("/")[2]:
            problem = f"{core.shorten(beside)} is not a name that a save writes here"
            raise FileFormatError(journal, name, f"{problem}; delete this file")
        places[path] = () if beside is None else (path.with_name(beside), path)
    return places


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[bool]:
    """Wait for the lock of writers and hold it; yield False where there are no locks.

    However the process ends, the system releases the lock.  File systems mounted without locks must
    not have two writers at once.
    """
    path, locked = folder / _LOCK, False
    with contextlib.ExitStack() as held:
        for attempt in range(1000):  # the writer that releases the lock deletes its file
            held.close()
            is_new = _identity(path) is None
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            try:
                handle = _open(path, flags, held)
            except PermissionError:
                if os.name != "nt" or attempt > 20:
                    raise
                time.sleep(0.01)  # Windows opens no file that is being deleted
                continue
            try:
                _wait_for_lock(handle)
            except (OSError, ImportError):
                _remove([path] if is_new else [])
                break
            locked = _identity(path) == _identity(handle)
            if locked:
                break
        try:
            yield locked
        finally:
            if locked:  # otherwise it may be another writer's
                if os.name == "nt":  # it deletes no open file, so not one another writer waits for
                    held.close()
                _remove([path])


def _wait_for_lock(handle: int) -> None:
    """Wait for the lock of a file; raise OSError or ImportError where there are no locks."""
    if os.name != "nt":
        fcntl: Any = importlib.import_module("fcntl")
        fcntl.flock(handle, fcntl.LOCK_EX)
        return
    locking: Any = importlib.import_module("msvcrt")
    while True:
        try:
            locking.locking(handle, locking.LK_NBLCK, 1)
            return
        except OSError as error:  # another writer has it, if this is the reason; wine gives 0
            if error.errno not in (0, errno.EACCES, errno.EDEADLK):
                raise
        time.sleep(0.01)


def _open(path: Path, flags: int, held: contextlib.ExitStack) -> int:
    handle = os.open(path, flags, 0o666)
    held.callback(os.close, handle)
    return handle


def _identity(file: Path | int, held: contextlib.ExitStack | None = None) -> object:
    """Return a file's device and inode, kept open in `held`; None if it doesn't exist."""
    try:
        if held is not None and isinstance(file, Path):
            file = _open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0), held)
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def read_files(paths: Sequence[Path], limit: int = core.MAX_FILE_BYTES) -> dict[Path, bytes]:
    """Read a tokenizer's files, those that exist, as one save wrote them; HEAD is first."""
    journal = paths[0].with_name(_JOURNAL)
    found: dict[Path, bytes | None] = {}
    for attempt in range(50):
        with contextlib.ExitStack() as held:
            before = [_identity(path, held) for path in (*paths, journal)]
            moving = _read_journal(journal) if before[-1] else {}
            last, found = found, {}
            for path in paths:
                contents = (core.read_file(place, limit) for place in moving.get(path, (path,)))
                found[path] = next((raw for raw in contents if raw is not None), None)
            same = before == [_identity(path) for path in (*paths, journal)]
            # Some network file systems report a new inode on every call.
            if same or (attempt > 40 and found == last):
                return {path: raw for path, raw in found.items() if raw is not None}
        time.sleep(attempt / 1000)
    problem = "kept changing while it was being read; try again"
    raise OSError(errno.EBUSY, problem, str(journal.parent))
