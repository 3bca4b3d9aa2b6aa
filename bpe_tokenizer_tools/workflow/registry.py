"""Tokenizers kept by name and content hash, which never change once they are registered.

    registry = Registry("tokenizers")
    entry = registry.register(tokenizer, "web", metadata={"owner": "search"})
    again = registry.load(f"web@{entry.hash}")        # "web@3f8a": a prefix; "web": the newest

A registry is a directory, and everything about an entry is in one directory of it:

    NAME/HASH/tokenizer.json ...    what `BPETokenizer.save` writes
    NAME/HASH/SHA256SUMS            of those files; its own sha256 is HASH
    NAME/HASH/entry.json            who, when and why, with a checksum
    .incoming/                      entries that are being written

An entry is written under `.incoming`, flushed to disk, and renamed into its place in one
step.  So writers need no lock, readers never see half an entry, and a crash leaves only a
directory under `.incoming`, which a later writer removes.  Readers check everything they read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import difflib
import errno
import hashlib
import json
import os
import pickle
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.files import check_path, flush_directory, naming, resolved
from bpe_tokenizer_tools.support.text import Printed, printable

if TYPE_CHECKING:
    from bpe_tokenizer_tools.checking.tokenizer_diff import TokenizerDiff

FORMAT = 1  # of entry.json; readers reject newer ones
STALE_SECONDS = 24 * 60 * 60.0  # an unfinished entry this old no longer has a writer

_INCOMING = ".incoming"
_SUMS, _ENTRY = "SHA256SUMS", "entry.json"
_TOKENIZER_FILES = (  # what `BPETokenizer.save` may write
    "chat_template.jinja",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
_SHORT = 12  # digits of a hash to show: enough for 2**24 entries of one name
_LARGEST_ENTRY = 2**26  # bytes of entry.json, most of which are the report
_DEEPEST = 100  # lists and objects within each other
_LONGEST_SHOWN = 400  # characters of a report, in a display

# -- Names and references -----------------------------------------------------
# A name is a directory on every file system: no separators, nothing that Windows
# reserves, and no two names that differ in case alone.

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
_HASH = re.compile(r"[0-9a-f]{64}")
_SHORTEST_PREFIX = 4
_DIGITS = re.compile(rf"[0-9a-fA-F]{{{_SHORTEST_PREFIX},64}}")


def check_name(name: object) -> str:
    """Return a name if a tokenizer can be registered under it; else raise with the reason."""
    if not isinstance(name, str):
        raise TypeError(f"a name must be a str, got {type(name).__name__}")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{core.shorten(name)} is not a valid registry name: expected 1 to 100 of the letters "
            "A to Z, digits, '.', '_' and '-', a letter or digit first and no '.' last"
        )
    if _RESERVED.fullmatch(name):
        raise ValueError(f"Windows reserves the name {name!r}; choose another")
    return name


def _split_reference(ref: object) -> tuple[str, str | None]:
    """Split "name" or "name@hash" into the name and the beginning of the hash."""
    if not isinstance(ref, str):
        raise TypeError(f"a reference must be a str such as 'name@hash', got {type(ref).__name__}")
    name, at, digits = ref.partition("@")
    check_name(name)
    if not at:
        return name, None
    if not _DIGITS.fullmatch(digits):
        raise ValueError(
            f"{core.shorten(ref)}: expected {_SHORTEST_PREFIX} to 64 hexadecimal digits of a hash "
            "after '@'"
        )
    return name, digits.lower()


def default_path() -> Path:
    """Return the default registry: $BPE_TOKENIZER_REGISTRY, or a directory among user data."""
    given = os.environ.get("BPE_TOKENIZER_REGISTRY")
    if given:
        return Path(given)
    data = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_DATA_HOME")
    base = Path(data) if data else Path.home() / ".local" / "share"
    return base / "bpe-tokenizer" / "registry"


# -- Entries ------------------------------------------------------------------


@dataclass(frozen=True)
class Entry(Printed):
    """The facts about a registered tokenizer."""

    name: str  # the name it is registered under
    hash: str  # the version: the sha256 of SHA256SUMS, which lists the tokenizer's files
    created: str  # when it was registered, UTC, ISO 8601; later than earlier entries of the name
    library_version: str  # of the library that registered it
    facts: Mapping[str, Any]  # vocab_size, merges, special_tokens, split_pattern and the like
    corpus_sha256: str | None = None  # of the text that it was trained on, if given
    metadata: Mapping[str, Any] = field(default_factory=dict)  # facts from its owner
    report: Any = None  # on its training or its evaluation, as JSON, or None
    files: Mapping[str, str] = field(default_factory=dict)  # file -> sha256; empty if not read
    path: Path = field(default=Path(), compare=False)  # its directory
    is_new: bool = field(default=False, compare=False)  # whether this call has registered it

    @property
    def ref(self) -> str:
        """The name and the first digits of the hash, as `load` takes them."""
        return f"{self.name}@{self.hash[:_SHORT]}"

    def to_json(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        data = {**dataclasses.asdict(self), "path": str(self.path)}
        del data["is_new"]
        return data

    def __str__(self) -> str:
        facts = {
            "name": self.name,
            "hash": self.hash,
            "created": self.created,
            "library version": self.library_version,
            **self.facts,
            "corpus sha256": self.corpus_sha256,
            "path": self.path,
            "files": "as they were registered" if self.files else "not read",
        }
        lines = [f"{key.replace('_', ' '):<18}: {_shown(value)}" for key, value in facts.items()]
        lines += [f"  {name:<24} {digest}" for name, digest in self.files.items()]
        lines += [f"{'metadata':<18}: {'' if self.metadata else 'none'}".rstrip()]
        lines += [f"  {_shown(key):<24} {_shown(self.metadata[key])}" for key in self.metadata]
        report = "none" if self.report is None else json.dumps(self.report, ensure_ascii=False)
        if len(report) > _LONGEST_SHOWN:
            report = f"{report[:_LONGEST_SHOWN]}... ({len(report):,} characters)"
        return "\n".join([*lines, f"{'report':<18}: {_shown(report)}"])


def _shown(value: object) -> str:
    """Show a value in one line; escape what could move a terminal's cursor."""
    return "none" if value is None else printable(str(value))


def _plain(value: Any, what: str) -> Any:
    """Return a value as JSON gives it back; ValueError if JSON can't represent it."""
    to_json = getattr(value, "to_json", None)
    if callable(to_json):
        value = to_json()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
        plain = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what}: expected data that JSON can represent: {error}") from None
    if _is_deeper(plain, _DEEPEST):
        raise ValueError(f"{what}: lists and objects are nested more than {_DEEPEST} deep")
    return plain


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (list, dict)):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)


def _plain_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or not all(isinstance(key, str) for key in metadata):
        shown = core.shorten(metadata)
        raise TypeError(f"metadata: expected a mapping with str keys, got {shown}")
    plain: dict[str, Any] = _plain(dict(metadata), "metadata")
    return plain


def _check_sha256(value: str | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _HASH.fullmatch(value.lower()):
        shown = core.shorten(value)
        raise ValueError(f"corpus_sha256: expected 64 hexadecimal digits, got {shown}")
    return value.lower()


def _facts(tokenizer: BPETokenizer) -> dict[str, Any]:
    """Return the facts about a tokenizer that lists show, so that they needn't load it."""
    pattern = tokenizer.split_pattern
    return {
        "vocab_size": tokenizer.vocab_size,
        "merges": len(tokenizer.definition.merges),
        "special_tokens": len(tokenizer.special_tokens),
        "split_pattern": core.PATTERN_NAMES.get(pattern or "", pattern),
        "normalizer": tokenizer.normalizer,
        "has_chat_template": bool(tokenizer.chat_templates),
        "fingerprint": tokenizer.fingerprint,
    }


# -- entry.json and its checksum ----------------------------------------------
# The checksum covers everything above it, byte for byte, and the hash in it covers the
# tokenizer's files: one of them shows any changed byte.  Entries written by versions until
# 0.8 may also have a signature; the checksum covers it, and nothing reads it.


def _encode_entry(entry: Entry) -> bytes:
    data = {"format": FORMAT, **dataclasses.asdict(entry)}
    for each in ("files", "path", "is_new"):  # of the copy at hand
        del data[each]
    data["checksum"] = hashlib.sha256(_to_bytes(data)).hexdigest()
    encoded = _to_bytes(data)
    if len(encoded) > _LARGEST_ENTRY:
        raise ValueError(
            f"metadata and report take {len(encoded):,} bytes; the limit is {_LARGEST_ENTRY:,}"
        )
    return encoded


def _to_bytes(data: Mapping[str, Any]) -> bytes:
    return (core.to_json(data) + "\n").encode()


def _decode_entry(raw: bytes, path: Path) -> Entry:
    """Read entry.json; its name and hash must match its `path`."""
    try:
        data = json.loads(raw.decode())
        is_as_written = isinstance(data, dict) and _to_bytes(data) == raw
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, "", f"damaged: {error}; {_MEND}") from None
    reader = core.JsonReader(data if isinstance(data, dict) else {}, path)
    version = reader.get("format", int, default=FORMAT)
    if version > FORMAT:
        raise reader.error(f"{version} is newer than this library reads; update it", "format")
    checksum = data.pop("checksum", None) if isinstance(data, dict) else None
    if not is_as_written or checksum != hashlib.sha256(_to_bytes(data)).hexdigest():
        raise FileFormatError(path, "", f"has been changed: its checksum doesn't match; {_MEND}")
    kinds = {"name": str, "hash": str, "created": str, "library_version": str, "facts": dict}
    known = {key: reader.get(key, kind) for key, kind in {**kinds, "metadata": dict}.items()}
    corpus = reader.get("corpus_sha256", str, None)
    entry = Entry(**known, corpus_sha256=corpus, report=data.get("report"), path=path.parent)
    if (entry.name, entry.hash) != (path.parent.parent.name, path.parent.name):
        raise FileFormatError(path, "", f"belongs to {entry.ref}; it was copied here from there")
    return entry


_MEND = "restore it from a copy, or move its directory away and register the tokenizer again"

# -- Files --------------------------------------------------------------------


def _read_part(path: Path, limit: int = core.MAX_FILE_BYTES) -> bytes:
    """Read a plain file; never read from a link, a pipe or a device."""
    try:
        info = path.lstat()
        if not stat.S_ISREG(info.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(info.st_mode) else "not a file"
            raise FileFormatError(path, "", f"is {kind}; expected a plain file")
        if info.st_size > limit:
            raise FileFormatError(path, "", f"{info.st_size:,} bytes; the limit is {limit:,}")
        with open(path, "rb") as file:
            return file.read(limit + 1)
    except FileNotFoundError:
        raise FileFormatError(path, "", f"is missing; {_MEND}") from None


def _sums(contents: Mapping[str, bytes]) -> bytes:
    """Write what `sha256sum` would."""
    lines = [f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents)]
    return "".join(lines).encode()


def _parse_sums(raw: bytes, path: Path) -> dict[str, str]:
    """Return file -> sha256 from a SHA256SUMS whose own sha256 has been checked."""
    found = dict(re.findall(r"(?m)^([0-9a-f]{64})  (.+)$", raw.decode("ascii", "replace")))
    sums = {name: digest for digest, name in found.items()}
    if "tokenizer.json" not in sums or not set(sums) <= set(_TOKENIZER_FILES):
        raise FileFormatError(path, "", "does not list the files of a tokenizer")
    return sums


def _remove(directory: Path) -> None:
    """Remove an unfinished entry; leave what can't be removed."""
    if os.name == "nt":  # Windows doesn't remove read-only files
        for file in directory.iterdir():
            file.chmod(stat.S_IWRITE)
    shutil.rmtree(directory, ignore_errors=True)


def _is_directory(path: Path) -> bool:
    """Return True if a path is a directory itself, not a link to one."""
    return os.path.isdir(path) and not os.path.islink(path)


# -- The registry -------------------------------------------------------------


class Registry:
    """A directory of tokenizers, by name and hash of their content.

    The directory, by default `default_path()`, is made when the first tokenizer is registered.
    Many processes may register and load at once, on one machine or over a network file system: no
    step needs a lock.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     registry = Registry(folder)
    ...     entry = registry.register(BPETokenizer("cl100k"), "bytes")
    ...     registry.load("bytes@" + entry.hash) == BPETokenizer("cl100k")
    True
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        if path is not None and not os.fspath(path):
            raise ValueError("expected the directory of a registry, got ''")
        self.path = default_path() if path is None else Path(path)
        check_path(self.path)

    # -- Writing ---

    def register(
        self,
        tokenizer: BPETokenizer,
        name: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        corpus_sha256: str | None = None,
        report: Any = None,
    ) -> Entry:
        """Keep a tokenizer under a name.

        Entries never change: the same tokenizer under the same name gives the same hash, and
        returns the existing entry.  Its report also stays the first one, since times differ
        between two runs of one training.

        Args:
            tokenizer: what to keep: ids, special tokens, roles and chat template.
            name: letters, digits, '.', '_' and '-'.
            metadata: facts about it, as JSON values.
            corpus_sha256: of the text it was trained on, 64 hexadecimal digits.
            report: on its training or its evaluation: plain data, a dataclass, or
                anything with a method to_json; by default its `training_report`.

        Raises:
            ValueError: the name is not allowed; or the same tokenizer is registered under
                it with other metadata or another corpus.
            FileFormatError: it is registered already, and damaged.
            OSError: the registry cannot be written to; nothing of the entry is left there.
        """
        check_name(name)
        said = Entry(
            name=name,
            hash="",
            created="",
            library_version=bpe_tokenizer.__version__,
            facts=_facts(tokenizer),
            corpus_sha256=_check_sha256(corpus_sha256),
            metadata=_plain_metadata(metadata),
            report=_plain(tokenizer.training_report if report is None else report, "report"),
        )
        self._prepare(name)
        with self._draft(name) as draft:
            entry = dataclasses.replace(
                said, hash=_write_tokenizer(tokenizer, draft), created=self._now(name)
            )
            place = self.path / name / entry.hash
            if not _is_directory(place):
                core.write_files({draft / _ENTRY: _encode_entry(entry)})
                for file in draft.iterdir():
                    file.chmod(file.stat().st_mode & ~0o222)
                flush_directory(draft)
                if self._settle(draft, place):
                    return dataclasses.replace(self._verified(place)[0], is_new=True)
        there = self._verified(place)[0]
        _check_agreement(there, entry)
        return there

    def _now(self, name: str) -> str:
        """Return the time; later than the last entry's, even if the clock was set back."""
        now = datetime.datetime.now(datetime.timezone.utc)
        for entry in self._scan(name)[0] if self._hashes(name) else []:
            with contextlib.suppress(ValueError, TypeError, OverflowError):  # we didn't write it
                last = datetime.datetime.fromisoformat(entry.created)
                now = max(now, last + datetime.timedelta(microseconds=1))
        return now.isoformat()

    def _prepare(self, name: str) -> None:
        """Create the registry if needed, and check that it can have a name."""
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(f"{self.path}: is a file; a registry is a directory")
        core.check_writable(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        for other in self.path.iterdir():
            if other.name != name and other.name.lower() == name.lower():
                raise ValueError(
                    f"the registry has {other.name!r}, which some file systems treat as the same "
                    f"name as {name!r}; use that name"
                )
        if os.path.lexists(self.path / name) and not _is_directory(self.path / name):
            raise NotADirectoryError(f"{self.path / name}: expected a directory of this registry")
        self.clean()

    @contextlib.contextmanager
    def _draft(self, name: str) -> Iterator[Path]:
        """Give a directory to write an entry in; remove it if it is still there at the end."""
        # NOTE: not by `tempfile`: only their owner may ever read its directories.
        incoming = self.path / _INCOMING
        incoming.mkdir(exist_ok=True)
        draft = incoming / f"{name}-{os.getpid()}-{os.urandom(8).hex()}"
        try:
            with naming(self.path / name):
                draft.mkdir()
                yield draft
        finally:
            if draft.exists():
                _remove(draft)

    def _settle(self, draft: Path, place: Path) -> bool:
        """Move a whole entry into its place; return False if it was already there."""
        place.parent.mkdir(exist_ok=True)
        flush_directory(self.path)
        try:
            os.rename(draft, place)
        except OSError:
            if not _is_directory(place):
                raise
            return False
        flush_directory(place.parent)
        return True

    def clean(self, older_than: float = STALE_SECONDS) -> int:
        """Remove unfinished entries of writers that were killed; return how many.

        `register` does this, too.  Entries begun less than `older_than` seconds ago may still have
        a writer, and stay.
        """
        incoming = self.path / _INCOMING
        removed = 0
        for draft in list(incoming.iterdir()) if _is_directory(incoming) else []:
            with contextlib.suppress(OSError):  # another process may be doing the same
                if time.time() - draft.lstat().st_mtime < older_than:
                    continue
                # NOTE: so that a writer that is still alive fails, instead of moving a
                # half-removed entry into place.
                claimed = incoming / f"removed-{os.urandom(8).hex()}"
                os.rename(draft, claimed)
                if _is_directory(claimed):
                    _remove(claimed)
                else:
                    claimed.unlink()
                removed += not os.path.lexists(claimed)
        return removed

    # -- Reading ---

    def entries(self, name: str | None = None) -> list[Entry]:
        """Return all entries, or those of one name, in the order they were registered.

        Their descriptions are read and checked, not the tokenizers' files.  Damaged entries
        are left out; `problems` reports them.

        Raises:
            FileNotFoundError: the registry doesn't exist.
            ValueError: it has no such name; the error suggests similar ones.
        """
        return self._scan(name)[0]

    def problems(self, name: str | None = None, *, deep: bool = True) -> list[FileFormatError]:
        """Look for damage, of one name or all: files missing, changed, or that don't belong here.

        Returns an error for each entry that can't be trusted, with its path.  `deep` reads every
        file of every tokenizer, not just the descriptions.
        """
        entries, problems = self._scan(name)
        if not deep:
            return problems
        for entry in entries:
            try:
                self._verified(entry.path)
            except FileFormatError as error:
                problems.append(error)
        for folder in map(self.path.joinpath, self._names(name)):
            for path in sorted(folder.iterdir()):
                if not _HASH.fullmatch(path.name) and not path.name.startswith("."):
                    problem = "does not belong to the registry; move it elsewhere"
                    problems.append(FileFormatError(path, "", problem))
        return problems

    def show(self, ref: str) -> Entry:
        """Return an entry, its files checked.

        Args:
            ref: "name@hash", with four or more digits of the hash; or "name" for the newest.

        Raises:
            FileNotFoundError: the registry doesn't exist.
            ValueError: there is no such entry, or more than one; FileFormatError: it is damaged.
        """
        return self._verified(self._find(ref))[0]

    def load(self, ref: str) -> BPETokenizer:
        """Load a tokenizer, its files checked first; for `ref`, see `show`."""
        entry, contents = self._verified(self._find(ref))
        with tempfile.TemporaryDirectory(prefix="bpe-tokenizer-") as scratch:
            # NOTE: not from the entry itself: a file there could change after it is checked.
            for name, content in contents.items():
                (Path(scratch) / name).write_bytes(content)
            try:
                return BPETokenizer.from_file(scratch)
            except ValueError as error:
                problem = str(error).replace(scratch, str(entry.path))
                raise FileFormatError(entry.path, "", f"cannot be loaded: {problem}") from None

    def copy(self, ref: str, directory: str | os.PathLike[str]) -> Entry:
        """Write a tokenizer's files, checked, to a directory that is new or empty.

        `BPETokenizer.from_pretrained` and `transformers` load it from there.  A directory
        with exactly these files is left as it is.

        Raises:
            ValueError: the directory contains something else.
        """
        target = resolved(Path(directory))
        entry, contents = self._verified(self._find(ref))
        if _holds(target, contents):
            return entry
        outputs.check_directory(target.parent if target.is_dir() else target)
        target.parent.mkdir(parents=True, exist_ok=True)
        outputs.remove_drafts(target)
        with outputs.draft_of(target) as draft:
            draft.mkdir()
            with outputs.claimed(draft):
                core.write_files({draft / name: content for name, content in contents.items()})
                if target.is_dir():
                    target.rmdir()
                os.rename(draft, target)
        return entry

    @core.renamed(a="ref_a", b="ref_b")
    def diff(self, ref_a: str, ref_b: str) -> TokenizerDiff:
        """Compare two registered tokenizers: whether ids change, and everything that differs."""
        from bpe_tokenizer_tools.checking.tokenizer_diff import compare_tokenizers

        entries = self.show(ref_a), self.show(ref_b)
        names = [entry.ref for entry in entries]
        about = [
            {**entry.metadata, "corpus sha256": entry.corpus_sha256, "registered": entry.created}
            for entry in entries
        ]
        first, second = (self.load(f"{entry.name}@{entry.hash}") for entry in entries)
        return compare_tokenizers(first, second, *names, about=(about[0], about[1]))

    # -- Finding ---

    def _names(self, name: str | None = None) -> list[str]:
        """Return all names, or only one, if it is among them."""
        if not self.path.is_dir():
            raise FileNotFoundError(
                f"{self.path}: no registry here; registering a tokenizer makes one"
            )
        found = (path.name for path in self.path.iterdir() if _is_directory(path))
        known = sorted(each for each in found if _NAME.fullmatch(each) and self._hashes(each))
        if name is None:
            return known
        if check_name(name) not in known:
            near = difflib.get_close_matches(name, known, n=3) or known[:5]
            hint = f"there is {', '.join(near)}" if near else "it is empty"
            raise ValueError(f"there is no {name!r} in the registry {self.path}; {hint}")
        return [name]

    def _hashes(self, name: str) -> list[str]:
        folder = self.path / name
        if not _is_directory(folder):
            return []
        return sorted(path.name for path in folder.iterdir() if _HASH.fullmatch(path.name))

    def _scan(self, name: str | None) -> tuple[list[Entry], list[FileFormatError]]:
        """Read the descriptions of entries; return those that are whole, and problems."""
        entries: list[Entry] = []
        problems: list[FileFormatError] = []
        for folder in self._names(name):
            for hash_ in self._hashes(folder):
                try:
                    entries.append(self._described(self.path / folder / hash_))
                except FileFormatError as error:
                    problems.append(error)
        return sorted(entries, key=lambda entry: (entry.created, entry.name, entry.hash)), problems

    def _find(self, ref: str) -> Path:
        """Return the directory of the entry that a reference means."""
        name, digits = _split_reference(ref)
        if digits is None:
            return self._newest(name)
        self._names(name)
        hashes = self._hashes(name)
        found = [each for each in hashes if each.startswith(digits)]
        if len(found) == 1:
            return self.path / name / found[0]
        shown = ", ".join(f"{name}@{each[:_SHORT]}" for each in (found or hashes)[:5])
        if found:
            raise ValueError(f"{ref} matches {len(found)} hashes: {shown}; give more digits")
        raise ValueError(f"there is no {ref} in the registry {self.path}; there is {shown}")

    def _newest(self, name: str) -> Path:
        entries, problems = self._scan(name)
        if problems:
            hint = f"; name another version, such as {entries[-1].ref}" if entries else ""
            raise FileFormatError(
                self.path / name, "", f"can't tell which version is the newest: {problems[0]}{hint}"
            )
        return entries[-1].path

    # -- Checking ---

    def _described(self, folder: Path) -> Entry:
        if not _is_directory(folder):
            raise FileFormatError(folder, "", "is not a directory; every entry is one")
        path = folder / _ENTRY
        return _decode_entry(_read_part(path, _LARGEST_ENTRY), path)

    def _verified(self, folder: Path) -> tuple[Entry, dict[str, bytes]]:
        """Read an entry and its files, and check them against the entry's hash."""
        entry = self._described(folder)
        raw = _read_part(folder / _SUMS)
        if hashlib.sha256(raw).hexdigest() != folder.name:
            raise FileFormatError(folder / _SUMS, "", f"has been changed: {_NOT_ITS_HASH}; {_MEND}")
        sums = _parse_sums(raw, folder / _SUMS)
        contents: dict[str, bytes] = {}
        for name, digest in sums.items():
            contents[name] = _read_part(folder / name)
            if hashlib.sha256(contents[name]).hexdigest() != digest:
                problem = "has been changed: its sha256 is not the one in SHA256SUMS"
                raise FileFormatError(folder / name, "", f"{problem}; {_MEND}")
        for path in sorted(folder.iterdir()):
            if path.name not in (*sums, _SUMS, _ENTRY) and not path.name.startswith("."):
                raise FileFormatError(path, "", "does not belong to the entry; move it elsewhere")
        return dataclasses.replace(entry, files=sums), contents


_NOT_ITS_HASH = "its sha256 is not the name of the directory"


def _write_tokenizer(tokenizer: BPETokenizer, folder: Path) -> str:
    """Save a tokenizer, with SHA256SUMS; return the hash of its content.

    Equal tokenizers give equal files: a pickled copy has its parts in one canonical order.
    """
    canonical: BPETokenizer = pickle.loads(pickle.dumps(tokenizer))
    roles, settings, templates = core.rest(canonical)
    settings = {key: value for key, value in settings.items() if key != "name"}  # it is a label
    unnamed = core.from_parts(canonical.definition, roles, settings, templates, Path())
    unnamed.save(folder, verbose=False)
    if BPETokenizer.from_file(folder) != tokenizer:
        raise ValueError(
            "this tokenizer would change when it is loaded again: its files can't represent all of "
            "it"
        )
    sums = _sums({path.name: path.read_bytes() for path in folder.iterdir()})
    core.write_files({folder / _SUMS: sums})
    return hashlib.sha256(sums).hexdigest()


def _check_agreement(there: Entry, said: Entry) -> None:
    """Raise rather than silently drop metadata of an already registered tokenizer."""
    for what in ("metadata", "corpus_sha256"):
        old = getattr(there, what)
        new = getattr(said, what) or old
        if old != new:
            raise ValueError(
                f"{there.ref} is already registered, and its {what} is {core.shorten(old)}, not "
                f"{core.shorten(new)}; entries never change: choose another name"
            )


def _holds(target: Path, contents: Mapping[str, bytes]) -> bool:
    """Return True if a directory has just these files, False if it is empty; else raise."""
    if not os.path.lexists(target):
        return False
    if not target.is_dir():
        raise NotADirectoryError(f"{target}: is a file; expected a directory")
    found = {path.name: path for path in target.iterdir()}
    if not found:
        return False
    if set(found) != set(contents) or any(
        not found[name].is_file() or found[name].read_bytes() != content
        for name, content in contents.items()
    ):
        raise FileExistsError(
            errno.EEXIST, "contains something else; choose a new or empty directory", str(target)
        )
    return True
