"""Stamps: what a step of work was made of and what it made, so that it runs again only if need be.

A stamp is written last, when all that a step makes is on disk.  It holds the settings that decide
the result, the state of each file that was read and of each that was written.

A file is what it was if its size and times are; if its times differ, or are so late that a change
might not show in them, its hash decides.  Outputs are always hashed, inputs of up to 64 MiB as
long as all of them together have not more than 1 GiB; a larger one whose times have changed
counts as changed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus.drawing import file_sha256

__all__ = ["UNKNOWN", "FileState", "Stamp", "changes", "states"]

UNKNOWN: Any = object()  # a setting that only another step, which has not run, will tell

_FORMAT = 1
_HASHED_SIZE = 2**26  # bytes of an input, at most
_HASHED_IN_ALL = 2**30
_CLOCK = 2_000_000_000  # nanoseconds: the coarsest time of a file system in use


@dataclass(frozen=True)
class FileState:
    """How a file was found.

    Attributes:
        size: in bytes.
        modified: when its content changed, in nanoseconds.
        changed: when anything of it did; nobody can set this back.
        seen: when this was found.
        sha256: of its content, or None if it is too large to be hashed.
    """

    size: int
    modified: int
    changed: int
    seen: int
    sha256: str | None = None

    @classmethod
    def of(cls, path: Path, hashed: bool = True, own: bool = False) -> FileState:
        """Look at a file; one's own, just written, is not written by others the next moment."""
        seen = time.time_ns() + (2 * _CLOCK if own else 0)
        status = path.stat()
        times = status.st_mtime_ns, status.st_ctime_ns
        return cls(status.st_size, *times, seen, file_sha256(path) if hashed else None)

    def tells(self, path: Path) -> bool:
        """Tell whether size and times are proof enough that the file is what it was."""
        try:
            status = path.stat()
        except OSError:
            return False
        now = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        is_old = max(self.modified, self.changed) < self.seen - _CLOCK
        return is_old and now == (self.size, self.modified, self.changed)

    def now(self, path: Path) -> FileState | None:
        """Return the state of a file that has the same content still, or None."""
        if self.tells(path):
            return self
        try:
            same_size = path.stat().st_size == self.size
            found = FileState.of(path) if same_size and self.sha256 is not None else None
        except OSError:
            return None
        return found if found is not None and found.sha256 == self.sha256 else None


def states(files: Mapping[str, Path]) -> dict[str, FileState]:
    """Look at files that are read; those that are small enough are hashed."""
    room = _HASHED_IN_ALL
    found = {}
    for label, path in files.items():
        size = path.stat().st_size
        hashed = size <= min(room, _HASHED_SIZE)
        room -= size if hashed else 0
        found[label] = FileState.of(path, hashed)
    return found


@dataclass(frozen=True)
class Stamp:
    """What a step was made of, and what it made.

    Attributes:
        inputs: the settings that decide the result, the results of other steps among them.
        files: label -> state of what was read.
        outputs: file below the working directory -> state of what was written.
        result: what other steps need to know of it.
    """

    inputs: Mapping[str, Any]
    files: Mapping[str, FileState]
    outputs: Mapping[str, FileState]
    result: Mapping[str, Any]

    def save(self, path: Path) -> None:
        """Write the stamp, atomically."""
        core.write_files({path: core.to_json({"format": _FORMAT, **asdict(self)})})

    @classmethod
    def load(cls, path: Path) -> Stamp | None:
        """Read a stamp; one that is missing or damaged is None, and the step runs again."""
        try:
            data = json.loads(path.read_bytes())
            if data.pop("format") != _FORMAT:
                return None
            for key in ("files", "outputs"):
                data[key] = {name: FileState(**state) for name, state in data[key].items()}
            return cls(**data)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def refreshed(self, files: Mapping[str, Path], work: Path) -> Stamp:
        """Return the stamp with the times as they are now, if no file has changed."""
        return replace(
            self,
            files={label: state.now(files[label]) or state for label, state in self.files.items()},
            outputs={name: state.now(work / name) or state for name, state in self.outputs.items()},
        )


def changes(
    stamp: Stamp, inputs: Mapping[str, Any], files: Mapping[str, Path], work: Path
) -> Iterator[str]:
    """Yield, in words, what is not as it was when a stamp was written."""
    before, now = dict(_flat(stamp.inputs)), dict(_flat(inputs))
    for key in sorted({**before, **now}, key=list({**now, **before}).index):
        if key not in now:
            yield f"{key} is gone"
        elif key not in before:
            yield f"{key} is new"
        elif now[key] is not UNKNOWN and now[key] != before[key]:
            yield f"{key} changed {_show(before[key])} -> {_show(now[key])}"
    for label in sorted({**stamp.files, **files}):
        if label not in files:
            yield f"the file {label} is gone"
        elif label not in stamp.files:
            yield f"the file {label} is new"
        elif stamp.files[label].now(files[label]) is None:
            yield f"the file {label} changed"
    for name, state in stamp.outputs.items():
        if state.now(work / name) is None:
            yield f"{name}, which it made, {'changed' if (work / name).exists() else 'is gone'}"


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings within settings, by names such as sources.english.fraction."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _show(value: object) -> str:
    """Show a value briefly: text without quotes, and the first digits of a hash."""
    if isinstance(value, str) and len(value) == 64 and value.isalnum():
        return value[:8]
    shortened = core.shorten(value, 40)
    return value if isinstance(value, str) and shortened == repr(value) and value else shortened
