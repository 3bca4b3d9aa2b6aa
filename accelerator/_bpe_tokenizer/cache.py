"""Compiled vocabularies in the user's cache directory: the second load maps the first one's file.

A file there holds the arrays of an encoder as the extension uses them, and the rest of a tokenizer
as JSON.  Its name is a hash of all that a load depends on: the files read, the options given, and
the code that reads them.  So nothing in it is ever out of date, and nothing is ever changed: a file
is written beside its place and renamed.  Processes that map the same file share its memory.

Only files and directories of this user that nobody else may write to are read, and the extension
checks them (accelerator/encode/image.h).  A file that is damaged is made again.  If there is
no room, or no right to write, the tokenizer is loaded without.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import mmap
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import regex

import _bpe_tokenizer.native as native
import bpe_tokenizer as core
from _bpe_tokenizer.flat import FlatMerges, FlatVocab

MOST_BYTES = 2**30  # of all files; the ones used least recently go first
_LARGEST_SOURCE = 2**26  # of one file that is read; those of models are larger
_LEAST_TOKENS = 4_096  # smaller vocabularies load in a few milliseconds
_DAY = 86_400
_SUFFIX = ".bpe"
_Parts = tuple[Any, ...]  # a definition, roles, settings, chat templates, and where it is from


# -- The directory -------------------------------------------------------------


def folder() -> Path | None:
    """Return the directory of the cache; None switches the cache off."""
    chosen = os.environ.get("BPE_TOKENIZER_CACHE", "")
    if chosen == "0" or not hasattr(os, "geteuid"):
        return None
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "bpe_tokenizer") if os.path.isabs(home) else None


def _is_own(found: os.stat_result) -> bool:
    """Return True if only this user may write to something."""
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_usable(directory: Path) -> bool:
    """Return True if a directory exists, is not a link, and belongs to this user."""
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and _is_own(found)


# -- What a load depends on ----------------------------------------------------


def _code() -> Iterator[str]:
    """Yield the version of all code that decides how a file is read."""
    yield f"{core.__version__} {native.API} {regex.__version__} {sys.byteorder} {sys.maxsize}"
    tools = importlib.util.find_spec("bpe_tokenizer_tools") if core._WITH_TOOLS else None
    folders = [Path(__file__).parent]
    if tools and tools.submodule_search_locations:
        found = tools.submodule_search_locations
        folders += [Path(each, room) for each in found for room in ("formats", "patterns")]
    files = [Path(core.__file__ or "").stat()]
    for each in folders:
        with os.scandir(each) as entries:
            files += [entry.stat() for entry in entries if entry.name.endswith((".py", ".so"))]
    yield repr(sorted((each.st_mtime_ns, each.st_size) for each in files))


def _files_of(path: Path) -> list[Path]:
    """Return the files that reading one may read, and perhaps some more."""
    names = [path, path.with_suffix(".json"), path.with_name(f"{path.stem}_config.json")]
    for vocab, merges in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")):
        if path.name.endswith(vocab):
            names.append(path.with_name(path.name.removesuffix(vocab) + merges))
    names += map(path.with_name, ("added_tokens.json", "config.json"))
    return list(dict.fromkeys([*names, *core._tokenizer_files(path.parent)]))


def _contents(path: Path) -> dict[str, str] | None:
    """Return the hash of each file that a tokenizer is made of; None if it is not to be kept."""
    if path.is_dir():
        whole = path / "tokenizer.json"
        if not (whole.exists() or core._WITH_TOOLS):  # the reader says what it needs them for
            return None
        path = whole if whole.exists() else core._tools("formats").file_within(path)
    if not stat.S_ISREG(path.stat().st_mode) or path.stat().st_size > _LARGEST_SOURCE:
        return None
    files = core._transactions(path.parent).read_files(_files_of(path))
    found = {str(file.relative_to(path.parent)): raw for file, raw in files.items()}
    return {name: hashlib.sha256(raw).hexdigest() for name, raw in found.items()}


def _key_of_files(path: Path, pattern: str | None, tokens: Iterable[Any]) -> Any:
    return (_contents(path), path.is_dir(), path.name, pattern, [*map(dataclasses.astuple, tokens)])


def _key_of_pickle(packed: bytes) -> Any:
    return (hashlib.sha256(packed).hexdigest(),)


_KEYS: dict[str, Callable[..., Any]] = {
    "_read_parts": _key_of_files,
    "read_ranks": _key_of_files,  # of formats: which reads only the first of these files
    "_unpack": _key_of_pickle,
}


def _name(kind: str, given: _Parts) -> str:
    """Return the cache file's name for a request; "" if it must not be cached."""
    key = _KEYS[kind](*given)
    if key[0] is None:
        return ""
    return hashlib.sha256(repr((*_code(), kind, key)).encode()).hexdigest() + _SUFFIX


# -- Files ---------------------------------------------------------------------


def _open(path: Path) -> tuple[native.Encoder, bytes] | None:
    """Map a file; return None if it is missing, damaged or not this user's own."""
    try:
        mapped = _map(path)
        return native.Encoder.from_image(mapped) if mapped else None
    except (OSError, ValueError):
        return None


def _map(path: Path) -> mmap.mmap | None:
    """Map a file's bytes; return None if it is empty or not this user's own."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not (stat.S_ISREG(found.st_mode) and _is_own(found) and found.st_size):
            return None
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        mapped = mmap.mmap(descriptor, 0, flags=flags, prot=mmap.PROT_READ)
        if time.time() - found.st_mtime > _DAY:
            os.utime(descriptor)  # it was used
        return mapped
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    """Write a file beside its place, and rename it."""
    beside = path.with_name(f".{os.getpid()}.{os.urandom(8).hex()}{_SUFFIX}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(beside, flags, 0o600), "wb", buffering=0) as file:
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
        os.rename(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def _make_room(directory: Path, size: int) -> None:
    """Remove the least recently used files, so that there is room for one more."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                about = entry.stat(follow_symlinks=False)
                found.append((about.st_mtime, about.st_size, entry.path))
    left = MOST_BYTES - size
    for used, taken, path in sorted(found, reverse=True):
        left -= taken
        unfinished = os.path.basename(path).startswith(".") and time.time() - used > _DAY
        if left < 0 or unfinished:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


# -- Definitions ---------------------------------------------------------------


def _image_of(parts: _Parts, path: Path) -> bytes | None:
    """Return the cached form of a tokenizer; None if it can't be cached, or need not be."""
    definition, *others, file = parts
    if definition.components is not None or len(definition.vocab) < _LEAST_TOKENS:
        return None
    state = {**vars(definition), "vocab": None, "merges": None}
    state["added"] = [*map(dataclasses.astuple, definition.added)]
    rest = json.dumps([state, *others, "" if file == path else file.name]).encode()
    # A secret of its own: that of this process may be known, if PYTHONHASHSEED is set.
    seed = int.from_bytes(os.urandom(8), "big")
    added = {token.content.encode(): token.id for token in reversed(definition.added)}
    options = {"ignore_merges": definition.ignore_merges, "added": added, "seed": seed}
    vocab, merges = dict(definition.vocab), list(definition.merges)
    return native.Encoder(vocab, merges, None, **options).image(rest)


def _parts_of(encoder: native.Encoder, rest: bytes, path: Path) -> _Parts:
    """Undo `_image_of`."""
    state, *others, name = json.loads(rest)
    state["added"] = tuple(core.AddedToken(*token) for token in state["added"])
    if not isinstance(state["template"], str):
        state["template"] = tuple(map(tuple, state["template"]))
    state |= {"vocab": FlatVocab(encoder), "merges": FlatMerges(encoder)}
    return core.Definition(**state), *others, path / name


def _load(file: Path, path: Path) -> _Parts | None:
    found = _open(file)
    # What passes the extension's checks was written by this user; its JSON may still be anything.
    with contextlib.suppress(AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return found and _parts_of(*found, path)
    return None


def _keep(file: Path, parts: _Parts, path: Path, name_again: Callable[[], str]) -> _Parts:
    """Write a tokenizer to a file, and use that from now on, to share it with other processes."""
    with contextlib.suppress(OSError, OverflowError, TypeError, ValueError):
        content = _image_of(parts, path)
        # Keep it only if nobody changed the files in the meantime.
        if content and name_again() == file.name:
            _make_room(file.parent, len(content))
            _write(file, content)
            return _load(file, path) or parts
    return parts


def _usable_folder() -> Path | None:
    """Return the directory of the cache, made if it is missing; None if it can't be used."""
    directory = folder()
    if directory:
        directory.mkdir(0o700, parents=True, exist_ok=True)
    return directory if directory and _is_usable(directory) else None


def read(reader: Callable[..., _Parts], *given: Any) -> _Parts:
    """Call a reader, or use its earlier result for the same files and options."""
    try:
        name = _name(reader.__name__, given) if folder() else ""
        directory = _usable_folder() if name else None
    except (OSError, ValueError):  # also if a file is wrong: the reader reports it
        directory = None
    if not directory:
        return reader(*given)
    file = directory / name
    path = given[0] if isinstance(given[0], Path) else Path()
    found = _load(file, path)
    return found or _keep(file, reader(*given), path, lambda: _name(reader.__name__, given))
