"""The files of a directory that are text, as grep and ripgrep choose them.

A directory of code or notes also has pictures and archives.  These are skipped and named in a
warning.  Files that the user named, and files whose name says that they are text, such as a.txt,
are never skipped: if they aren't text, reading them is an error, or a corpus would lose text.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from pathlib import Path

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.text import counted

_HEAD = 2**16  # bytes; damage further on is an error when the file is read
_TEXTS = (".txt", ".text", ".jsonl", ".ndjson", ".parquet")  # by their name
_NAMED = 3  # files in a warning


def is_seen_in(path: Path, folder: Path) -> bool:
    """Return True if a path is a folder or in it, and not hidden there."""
    return path.is_relative_to(folder) and not any(
        part.startswith(".") for part in path.relative_to(folder).parts
    )


def text_files(folder: Path, noted: bool = True) -> list[Path]:
    """Return the text files below a directory, sorted; if `noted`, warn of those skipped.

    Raises:
        ValueError: there are none.
    """
    files = [file for file in folder.rglob("*") if file.is_file() and is_seen_in(file, folder)]
    return only_text(sorted(files), folder, noted)


def only_text(files: Iterable[Path], folder: Path, noted: bool = True) -> list[Path]:
    """Return the files of a directory that are text; see `text_files`."""
    kept, skipped = list[Path](), list[Path]()
    for file in files:
        (kept if _is_text(file) else skipped).append(file)
    names = ", ".join(str(file.relative_to(folder)) for file in skipped[:_NAMED])
    names += f" and {len(skipped) - _NAMED:,} more" if len(skipped) > _NAMED else ""
    if not kept:
        expected = f"the corpus is empty: expected files in the directory {folder}"
        raise ValueError(f"{expected}, which has no text: {names}" if skipped else expected)
    if skipped and noted:
        core.warn(f"{folder}: skipped {counted(len(skipped), 'file')}, not UTF-8 text: {names}")
    return kept


def _is_text(path: Path) -> bool:
    """Return False for a file whose head has a NUL byte or isn't UTF-8."""
    if core.suffix_of(path) in _TEXTS:
        return True
    try:
        with core.decompressed(path) as file:
            head = file.read(_HEAD)
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    except (OSError, ValueError, ImportError):  # the error comes when the file is read
        return True
    return b"\0" not in head
