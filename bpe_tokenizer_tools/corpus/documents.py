"""The files and documents of a corpus's sources.

A file's label is its name as given in the recipe.  Choices depend on labels, so with relative
paths they are the same wherever the recipe and the texts are.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import AnyStr, NamedTuple

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus import directories, records
from bpe_tokenizer_tools.corpus.recipes import Recipe, Source
from bpe_tokenizer_tools.support.files import FileStatus, status_of
from bpe_tokenizer_tools.support.text import shortened


class File(NamedTuple):
    """A file of a source, as it was found."""

    label: str
    path: Path
    status: FileStatus


class Document(NamedTuple):
    """A document that was drawn."""

    source: str  # the source's name
    file: str  # as the recipe names it
    place: int  # in the file, from 0; blank ones are not counted
    text: str  # unchanged
    copy: int = 0  # 1 and up for those that upsampling repeats
    held_out: bool = False  # whether it is for evaluation, and not in the corpus


def find_files(recipe: Recipe) -> dict[str, list[File]]:
    """Find the files of each source, by label."""
    # (real path, text field) -> source
    owners: dict[tuple[str, str], str] = {}
    found = {}
    for source in recipe.sources:
        try:
            files = {
                label: path for name in source.paths for label, path in expand(name, recipe.folder)
            }
        except (FileNotFoundError, ValueError) as error:
            raise type(error)(f"source {source.name!r}: {error}") from None
        kept: dict[str, File] = {}
        for label in sorted(files):
            real = os.path.realpath(files[label])
            owner = owners.setdefault((real, source.text_field), source.name)
            if owner != source.name:
                raise ValueError(
                    f"{files[label]} is in two sources, {owner!r} and {source.name!r}: its "
                    "documents could be taken twice"
                )
            kept.setdefault(real, File(label, files[label], status_of(files[label])))
        found[source.name] = list(kept.values())
    return found


def expanded(name: str) -> Path:
    """Return a path with "~" as the home directory, and "~user" as a user's, if it exists."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # a file whose name begins with "~"
        return Path(name)


def expand(name: str, folder: Path = Path()) -> Iterator[tuple[str, Path]]:
    """Yield the label and path of each file that a name means, in no particular order.

    A name is that of a file, that of a directory, or a pattern such as "*.txt".  In directories,
    hidden files and files that aren't text are left out.  Relative names start from `folder`.
    """
    written = expanded(name)
    path = folder / written
    if os.path.isdir(path):  # unlike methods of Path, it accepts names that are too long
        for file in directories.text_files(path):
            yield (written / file.relative_to(path)).as_posix(), file
    elif os.path.isfile(path):
        yield written.as_posix(), path
    elif os.path.exists(path):
        raise ValueError(f"{path} is not a regular file, and has to be read twice")
    else:
        yield from _matching(written, folder)


def _matching(written: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    pattern = os.path.join(glob.escape(str(folder)), written)
    files = [Path(name) for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)]
    for file in files:
        label = file if written.is_absolute() else file.relative_to(folder)
        yield label.as_posix(), file
    if not files:
        what = "no file matches" if glob.has_magic(str(written)) else "no such file or directory:"
        raise FileNotFoundError(f"{what} {shortened(str(folder / written), 300)}")


_MAX_DOCUMENT = 2**30  # characters
_BINARY_WITHIN = 8192  # bytes: text has no NUL so early, other files do


def read_documents(file: File, source: Source) -> Iterator[str]:
    """Yield the documents of a file that aren't blank, and check that it doesn't change."""
    try:
        _check_same(file, source)
        for text in _texts(file.path, source):
            if text and not text.isspace():
                yield text
        _check_same(file, source)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"source {source.name!r}: {file.path} existed at first and has vanished"
        ) from None


def _check_same(file: File, source: Source) -> None:
    now, then = status_of(file.path), file.status
    # Not the time of other changes: a new link or permission doesn't change the text.
    if (now.size, now.modified) != (then.size, then.modified):
        raise changed(source, str(file.path))


def changed(source: Source, what: str) -> ValueError:
    """Make the error for a source that has changed."""
    return ValueError(
        f"source {source.name!r}: {what} changed while the corpus was made; run it again when "
        "nothing writes there"
    )


def _texts(path: Path, source: Source) -> Iterator[str]:
    """Yield all documents of a file."""
    suffix = core.suffix_of(path)[1:]
    kind = source.format or (suffix if suffix in ("jsonl", "parquet") else "text")
    if kind == "jsonl":
        return map("".join, core.json_lines(path, source.text_field))
    if kind == "parquet":
        return map("".join, records.parquet_documents(path, source.text_field))
    chunks = _checked_chunks(path)
    if source.documents == "separator":
        return split_at(chunks, source.separator, path)
    if source.documents == "file":
        return split_at(chunks, "", path)
    lines = (line[:-1] if line.endswith("\r") else line for line in split_at(chunks, "\n", path))
    return lines if source.documents == "lines" else _paragraphs(lines)


def _checked_chunks(path: Path) -> Iterator[str]:
    """Yield a file in chunks; raise if it isn't text."""
    with core.decompressed(path) as file:
        at = file.read(_BINARY_WITHIN).find(b"\0")
    if at >= 0:
        problem = "a NUL byte: this is not UTF-8 text but UTF-16, or a binary file"
        raise FileFormatError(path, f"byte {at}", problem)
    yield from core.text_chunks(path)


def cut_at(chunks: Iterable[AnyStr], separator: AnyStr) -> Iterator[AnyStr | None]:
    """Yield text or bytes that come in chunks, piece by piece, and None for each separator.

    They are split as `split` splits the whole; "" splits nowhere.

    Cost: O(n), however long a document is: only the end of the previous chunk is read again.
    """
    overlap = max(0, len(separator) - 1)  # characters that may begin a separator
    rest = separator[:0]
    for chunk in chunks:
        pieces: list[AnyStr] = (rest + chunk).split(separator) if separator else [chunk]
        last = pieces.pop()
        for piece in pieces:
            yield piece
            yield None
        cut = max(0, len(last) - overlap)
        yield last[:cut]
        rest = last[cut:]
    yield rest


def joined(pieces: Iterable[AnyStr | None], empty: AnyStr, most: int) -> Iterator[AnyStr]:
    """Join the parts between separators, as `cut_at` yields both, into documents.

    Raises:
        OverflowError: one is longer than `most`.
    """
    parts: list[AnyStr] = []
    held = 0
    for piece in itertools.chain(pieces, [None]):
        if piece is None:
            yield empty.join(parts)
            parts, held = [], 0
        else:
            parts.append(piece)
            held += len(piece)
            if held > most:
                raise OverflowError(f"a document has more than {most:,} characters or bytes")


def split_at(chunks: Iterable[AnyStr], separator: AnyStr, path: str | Path) -> Iterator[AnyStr]:
    """Split text or bytes that come in chunks into documents; see `cut_at`."""
    try:
        yield from joined(cut_at(chunks, separator), separator[:0], _MAX_DOCUMENT)
    except OverflowError:
        what = "bytes" if isinstance(separator, bytes) else "characters"
        problem = f"a document of more than {_MAX_DOCUMENT:,} {what}, with no {separator!r}"
        raise FileFormatError(path, "", f"{problem}; say what separates its documents") from None


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Join lines up to a blank one."""
    for blank, group in itertools.groupby(lines, lambda line: not line or line.isspace()):
        if not blank:
            yield "\n".join(group)
