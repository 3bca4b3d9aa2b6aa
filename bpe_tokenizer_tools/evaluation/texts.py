"""Texts in groups: from files, cut into documents, and sampled if there is too much.

A group is text of one language or domain.  Its documents come from files and directories like a
corpus (.txt, .jsonl, .parquet, compressed ones), cut at a separator such as <|endoftext|>, which
belongs to no document.  A document longer than a megabyte is also cut at line ends, so that memory
stays bounded; its parts still count as one.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus.documents import cut_at
from bpe_tokenizer_tools.support import progress

SEPARATOR = "<|endoftext|>"
_LONGEST = 1 << 20  # characters of a document
_LONGEST_SAMPLED = 16  # a sample has at least this many documents


class Part(str):
    """A further part of the document that the text before it belongs to."""

    __slots__ = ()


@dataclass(frozen=True)
class FileGroup(Iterable[str]):
    """The documents of files; it can be iterated over again."""

    name: str  # of the group
    paths: Sequence[Path]  # files and directories
    separator: str = SEPARATOR  # what separates documents in a file; "" for nothing
    max_bytes: int = 0  # if there is more, take a sample of at most this size; see `sample`
    text_field: str = "text"  # the field of .jsonl and .parquet records that has the text

    def __iter__(self) -> Iterator[str]:
        longest = _LONGEST
        if self.max_bytes:
            longest = min(longest, max(4096, self.max_bytes // _LONGEST_SAMPLED))
        found = itertools.chain.from_iterable(self._documents(path, longest) for path in self.paths)
        return iter(sample(map(str, found), self.max_bytes)) if self.max_bytes else found

    def _documents(self, path: Path, longest: int) -> Iterator[str]:
        n = 0
        for chunks in core.file_documents(path, self.text_field):
            for document in _separate(chunks, self.separator, longest):
                n += 1
                yield document
        if not n:
            raise ValueError(f"{path} contains no text; leave it out of the group {self.name!r}")


def size_of(texts: Iterable[str]) -> int | None:
    """Return the size of a group in bytes, if its files show it."""
    is_whole = isinstance(texts, FileGroup) and not texts.max_bytes
    return progress.size_of(list(texts.paths)) if is_whole else None  # type: ignore[attr-defined]


def _separate(chunks: Iterable[str], separator: str, longest: int) -> Iterator[str]:
    """Cut text that comes in chunks into documents and their parts; leave out empty ones."""
    held, kind = "", str
    for part in itertools.chain(cut_at(chunks, separator), [None]):
        at = 0
        if part is None:
            if held:
                yield kind(held)
            at, kind = len(held), str
        else:
            held += part
            while len(held) - at > longest:
                end = _good_end(held, at, at + longest)
                yield kind(held[at:end])
                at, kind = end, Part
        held = held[at:]


def _good_end(text: str, start: int, limit: int) -> int:
    """Find the last line end, or else the last space, after which to cut."""
    for mark in ("\n", "\r", " "):
        end = text.rfind(mark, start + 1, limit)
        if end > 0:
            return end if mark == " " else end + 1
    return limit


def sample(documents: Iterable[str], max_bytes: int) -> list[str]:
    """Choose documents, up to a number of bytes of UTF-8; return them in their order.

    They are chosen in the order of a hash of their place and text, until the next one would be too
    much.  So each call chooses the same ones, from everywhere, and keeps only those in memory.  If
    the first one alone is too long, its beginning is the sample.

    >>> sample(["aa", "bb", "cc", "dd"], 5)
    ['aa', 'cc']
    """
    taken: list[tuple[int, int, str, int]] = []  # the largest hash first
    total, bound = 0, 1 << 64  # hashes from here on are not in the sample
    for place, text in enumerate(documents):
        size = core.utf8_length(text)
        digest = hashlib.blake2b(f"{place} {text}".encode(), digest_size=8).digest()
        key = int.from_bytes(digest, "big")
        if key >= bound:
            continue
        heapq.heappush(taken, (-key, place, text, size))
        total += size
        while total > max_bytes and len(taken) > 1:
            bound = -taken[0][0]
            total -= heapq.heappop(taken)[3]
    kept = [text for _, _, text, _ in sorted(taken, key=lambda item: item[1])]
    if total > max_bytes:
        return [kept[0].encode()[:max_bytes].decode("utf-8", "ignore")]
    return kept


# -- From the command line ----------------------------------------------------


def file_groups(
    given: Sequence[str], separator: str = SEPARATOR, max_bytes: int = 0, text_field: str = "text"
) -> dict[str, FileGroup]:
    """Make groups of ``NAME=PATH``; paths of the same name are one group.

    A path without a name is called by its file.
    """
    paths: dict[str, list[Path]] = {}
    for name, path in map(_named_path, given):
        paths.setdefault(name, []).append(path)
    return {
        name: FileGroup(name, found, separator, max_bytes, text_field)
        for name, found in paths.items()
    }


def _named_path(given: str) -> tuple[str, Path]:
    name, equals, rest = given.partition("=")
    if not equals or not name or re.search(r"[/\\]", name) or os.path.exists(given):
        name, rest = Path(given).name.split(".")[0] or given, given
    path = Path(rest)
    if not rest or not os.path.exists(path):
        raise FileNotFoundError(
            f"{rest or given}: no such file or directory; expected NAME=PATH or a path"
        )
    return name, path


def parallel_lines(given: Sequence[str], text_field: str = "text") -> dict[str, list[str]]:
    """Read parallel text: ``NAME=PATH`` for each language, a line for each sentence.

    In .jsonl and .parquet files, each record is a sentence.
    """
    lines: dict[str, list[str]] = {}
    for name, path in map(_named_path, given):
        if name in lines:
            raise ValueError(f"the parallel text {name!r} is given twice; join its files first")
        if path.is_dir():
            raise ValueError(f"{path}: expected a file of parallel text, got a directory")
        found = ["".join(chunks) for chunks in core.file_documents(path, text_field)]
        if core.suffix_of(path) not in (".jsonl", ".parquet") and len(found) == 1:
            found = found[0].split("\n")
            found = [line[:-1] if line.endswith("\r") else line for line in found]
            del found[len(found) - (not found[-1]) :]  # after the last line end
        lines[name] = found
    return lines
