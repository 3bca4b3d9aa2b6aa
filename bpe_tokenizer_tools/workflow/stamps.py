"""Stamps record a step's inputs and outputs, so that it runs again only if needed.

A stamp is written last, when all output of a step is on disk.  It has the settings that decide the
result, and the hash of each file that the step read or wrote.  Only hashes count: times are wrong
when files are copied, restored or checked out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.files import file_sha256

UNKNOWN: Any = object()  # a setting that comes from another step, which has not run yet

_FORMAT = 2


def hashes(files: Mapping[str, Path]) -> dict[str, str | None]:
    """Return the sha256 of each file, by label; None if it can't be read."""
    return {label: _sha256(path) for label, path in files.items()}


def _sha256(path: Path) -> str | None:
    try:
        return file_sha256(path)
    except OSError:
        return None


@dataclass(frozen=True)
class Stamp:
    """The inputs and outputs of a step."""

    inputs: Mapping[str, Any]  # what decides the result: settings and results of other steps
    files: Mapping[str, str | None]  # label -> sha256 of an input
    outputs: Mapping[str, str]  # file below the working directory -> sha256 of an output
    result: Mapping[str, Any]  # what other steps need to know

    def save(self, path: Path) -> None:
        """Write the stamp, atomically."""
        core.write_files({path: core.to_json({"format": _FORMAT, **asdict(self)})})

    @classmethod
    def load(cls, path: Path) -> Stamp | None:
        """Read a stamp; None if it is missing or damaged, so that the step runs again."""
        try:
            data = json.loads(path.read_bytes())
            if data.pop("format") != _FORMAT:
                return None
            data["files"], data["outputs"] = dict(data["files"]), dict(data["outputs"])
            return cls(**data)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def changes(
    stamp: Stamp, inputs: Mapping[str, Any], files: Mapping[str, str | None], work: Path
) -> Iterator[str]:
    """Describe each thing that has changed since a stamp was written.

    It compares the settings, the sha256 of the files that the step reads, by label (None if one
    can't be read), and the step's files in the working directory.
    """
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
        elif files[label] is None or files[label] != stamp.files[label]:
            yield f"the file {label} changed"
    for name, digest in stamp.outputs.items():
        if _sha256(work / name) != digest:
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
