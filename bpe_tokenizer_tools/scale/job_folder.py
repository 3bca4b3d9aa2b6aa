"""Job folders: finished shards stay, unfinished ones are redone.

The output of a shard is put in place first, and then its marker, NAME.json.  The marker describes
the job, the input and the output, with the hashes of both.  So output with a marker is complete.
If a shard's output differs from its marker, the next run redoes it.  Nothing in these files says
when, where or by whom they were made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.scale.inputs import Shard, sha256_of
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.files import file_sha256, naming, status_of

_DRAFT = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")  # the names that draft_name makes
_CHECK = "marker_sha256"  # the field of a marker with the hash of all others
_CLOCK = 2_000_000_000  # nanoseconds: the coarsest time of a file system in use


@contextlib.contextmanager
def open_folder(path: str | os.PathLike[str], shared: bool) -> Iterator[Path]:
    """Make a folder if necessary, and keep other jobs out of it; drafts end with the job.

    If it is shared, others may work there at the same time, on other shards of the same job.
    """
    outputs.check_directory(path)
    folder = Path(path)
    with outputs.locked_folder(folder, shared):
        if shared:
            yield folder
            return
        _sweep(folder)
        try:
            yield folder
        finally:
            _sweep(folder)


def _sweep(folder: Path) -> None:
    """Remove the drafts of runs and workers that were killed; none may be running there."""
    for file in folder.iterdir() if folder.exists() else ():  # another run may remove it
        if _DRAFT.fullmatch(file.name):
            file.unlink(missing_ok=True)


def check_shared(folder: Path) -> None:
    """Raise FileNotFoundError if a folder is not there, on the node that this runs on."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} doesn't exist on {platform.node()}; choose a folder that all nodes share"
        )


def check_arrived(folder: Path, marker: Mapping[str, Any]) -> None:
    """Raise FileNotFoundError if output, perhaps made on another node, is not visible here."""
    for name in marker["files"]:
        if not (folder / name).is_file():
            problem = "was written, but isn't visible here; name a folder that all nodes share"
            raise FileNotFoundError(f"{folder / name} {problem}")


def read_marker(path: Path, format: str) -> dict[str, Any] | None:
    """Return the content of a marker; None if it is missing, damaged or another file."""
    data = read_facts(path, format)
    return data if data and data.pop(_CHECK, None) == _checksum(data) else None


def read_facts(path: Path, format: str) -> dict[str, Any] | None:
    """Return the JSON of a file with this format; None if it is missing or another file."""
    data = _read(path)
    return data if data.get("format") == format else None


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _checksum(marker: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(marker, sort_keys=True).encode()).hexdigest()


def commit(
    folder: Path,
    name: str,
    drafts: Mapping[Path, Path],
    marker: Mapping[str, Any],
    check: Callable[[], None] = lambda: None,
) -> None:
    """Put files in their places, and then the marker; the old marker is removed first.

    If a file can't be written, or `check` fails at the end, none stays.  `check` looks at the
    input: an input that changes later is newer than the marker.

    NOTE: if this process was considered lost, another one may have done the same shard.  Then its
    drafts are gone, and it must not touch the other's output.
    """
    path = folder / f"{name}.json"
    for draft in drafts.values():
        draft.stat()
    path.unlink(missing_ok=True)
    signed = {**marker, _CHECK: _checksum(marker)}
    placed = []
    try:
        for final, draft in drafts.items():
            with naming(final):
                os.replace(draft, final)
            placed.append(final)
        # NOTE: in ASCII, for names of files need not be UTF-8.
        outputs.write({path: json.dumps(signed, indent=1) + "\n"})
        check()
    except BaseException:
        for made in (path, *placed):
            made.unlink(missing_ok=True)
        raise


def file_facts(path: Path) -> dict[str, Any]:
    """Return a marker's record of an output file."""
    return {"size": path.stat().st_size, "sha256": file_sha256(path)}


def finished(
    folder: Path, shard: Shard, job: Mapping[str, Any], on_error: str
) -> dict[str, Any] | None:
    """Return the marker of a shard, if its output is complete and the shard is unchanged.

    Raises:
        ValueError: the marker belongs to a job with other settings, or of another kind.
    """
    path = folder / f"{shard.name}.json"
    marker = read_marker(path, job["format"])
    if marker is None:
        found = str(_read(path).get("format", ""))
        if found.startswith("bpe_tokenizer.") and found != job["format"]:
            raise ValueError(
                f"{folder} contains output of another kind of job ({found}); name another folder"
            )
        return None
    check_same_job(path, marker, job)
    same = is_whole(path, marker) and _is_same(shard, path, marker)
    same = same and (on_error == "skip" or not marker["skipped"])
    return marker if same else None


def check_same_job(path: Path, marker: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    """Raise ValueError if a marker was written with other settings."""
    for key, value in json.loads(json.dumps(job)).items():
        if marker.get(key) != value:
            raise ValueError(
                f"{path.parent} contains output made with {key} {core.shorten(marker.get(key))}, "
                f"but now it is {core.shorten(value)}; name another folder, or start over with "
                "resume=False (--no-resume)"
            )


def is_whole(path: Path, marker: Mapping[str, Any]) -> bool:
    """Return True if a marker's files exist, unchanged."""
    for name, facts in marker["files"].items():
        file = path.parent / name
        try:
            status = status_of(file)
        except OSError:
            return False
        untouched = status.newest <= status_of(path).modified
        if status.size != facts["size"] or not (untouched or file_sha256(file) == facts["sha256"]):
            return False
    return True


def _is_same(shard: Shard, path: Path, marker: Mapping[str, Any]) -> bool:
    """Return True if a shard is unchanged; if its times leave a doubt, its hash decides."""
    size, version = shard.state()
    if size != marker["input_size"]:
        return False
    if shard.is_remote:
        return bool(version == marker["input_version"])
    changed = max(map(int, version.split()))
    if changed < status_of(path).modified - _CLOCK:
        return True
    same = bool(sha256_of(shard) == marker["input_sha256"])
    same = same and shard.state() == (size, version)  # or it changes at this very time
    if same:  # so that the next run need not hash it again
        with contextlib.suppress(OSError):
            os.utime(path)
    return same


def left_over(folder: Path, shards: Iterable[Shard], format: str) -> dict[Path, dict[str, Any]]:
    """Return the markers in a folder, by path, of shards that are not named any more."""
    named = {f"{shard.name}.json" for shard in shards}
    others = [path for path in sorted(folder.glob("*.json")) if path.name not in named]
    return {path: data for path in others if (data := read_marker(path, format))}


def remove(marker: Path, data: Mapping[str, Any]) -> None:
    """Remove the output of a shard, its marker first."""
    marker.unlink()
    for name in data.get("files", {}):
        if Path(name).name == name:  # a marker may be no friend's
            (marker.parent / name).unlink(missing_ok=True)
