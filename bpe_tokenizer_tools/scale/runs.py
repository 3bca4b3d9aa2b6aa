"""Files of sorted pre-token counts, cut into partitions: what counting leaves on disk.

A pre-token is in the partition of its hash, so all counts of it, from whatever shard, are in the
same one, and partitions can be added up one at a time.  A partition is its counts, as little-endian
64-bit integers, and then its pre-tokens, in the order of their bytes, with 0xFF between them, which
UTF-8 never holds.  A file of them is their concatenation; where each begins is kept elsewhere.
"""

from __future__ import annotations

import array
import itertools
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core

_END = b"\xff"
_BLOCK = 2**15  # bytes, of each partition, that are in memory at a time; a multiple of 8


class Piece(NamedTuple):
    """The place of a partition in a file: offset and length in bytes, and their CRC-32."""

    offset: int
    length: int
    n_keys: int
    crc: int


def partition_of(pretoken: bytes, n_partitions: int) -> int:
    """Return the partition of a pre-token, from 0; the same on every machine and in every process.

    >>> partition_of(b" the", 64), partition_of(b" the", 1)
    (22, 0)
    """
    core.check_size("n_partitions", n_partitions, 1)
    return zlib.crc32(pretoken) % n_partitions


def write_run(file: IO[bytes], counts: Mapping[bytes, int], n_partitions: int) -> list[Piece]:
    """Write counts as partitions at a file's position; return their places."""
    parted: list[list[bytes]] = [[] for _ in range(n_partitions)]
    for pretoken in counts:
        parted[zlib.crc32(pretoken) % n_partitions].append(pretoken)
    pieces = []
    for keys in parted:
        keys.sort()
        pieces.append(write_partition(file, keys, [counts[key] for key in keys]))
    return pieces


def write_partition(file: IO[bytes], keys: list[bytes], counts: list[int]) -> Piece:
    """Write one partition, sorted already."""
    data = _little_endian(array.array("Q", counts)).tobytes() + _END.join(keys)
    piece = Piece(file.tell(), len(data), len(keys), zlib.crc32(data))
    file.write(data)
    return piece


def read_piece(path: Path, piece: Piece) -> Iterable[tuple[bytes, int]]:
    """Return the pre-tokens and counts of a partition; FileFormatError if it is damaged."""
    with open(path, "rb") as file:
        file.seek(piece.offset)
        data = file.read(piece.length)
    if len(data) != piece.length or zlib.crc32(data) != piece.crc:
        raise _damaged(path)
    if not piece.n_keys:
        return []
    keys = data[8 * piece.n_keys :].split(_END)
    if len(keys) != piece.n_keys:
        raise _damaged(path)
    return zip(keys, _numbers(data[: 8 * piece.n_keys]))


def scan_piece(path: Path, piece: Piece) -> Iterator[tuple[bytes, int]]:
    """Yield what `read_piece` returns, of a file's only partition, without reading it to memory.

    No file stays open meanwhile: there may be more partitions than files that may be open.
    """
    if not piece.n_keys:
        return
    if path.stat().st_size != piece.length or _crc(path) != piece.crc:
        raise _damaged(path)
    border = 8 * piece.n_keys
    blocks = _blocks(path, 0, border)
    numbers = itertools.chain.from_iterable(map(_numbers, blocks))
    last = b""
    for block in _blocks(path, border, piece.length):
        *keys, last = (last + block).split(_END)
        yield from zip(keys, numbers)
    yield last, next(numbers)


def _crc(path: Path) -> int:
    crc = 0
    for block in _blocks(path, 0, path.stat().st_size):
        crc = zlib.crc32(block, crc)
    return crc


def _blocks(path: Path, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        with open(path, "rb") as file:
            file.seek(start)
            block = file.read(min(_BLOCK, end - start))
        if not block:
            raise _damaged(path)
        yield block
        start += len(block)


def _numbers(data: bytes) -> array.array[int]:
    return _little_endian(array.array("Q", data))


def _little_endian(numbers: array.array[int]) -> array.array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _damaged(path: Path) -> FileFormatError:
    return FileFormatError(
        path, "", "changed after it was written; remove it, and run the same call again"
    )
