"""The checksum of a compiled vocabulary, so that tests and the fuzzer can forge one."""

from __future__ import annotations

import struct

_FACTOR = 0x9E3779B97F4A7C15


def _fold(a: int, b: int) -> int:
    product = a * b
    return (product ^ product >> 64) & (2**64 - 1)


def with_checksum(content: bytes | bytearray) -> bytes:
    """Return a file with its right checksum, computed as in accelerator/encode/image.c."""
    sums = [1, 2, 3, 4]
    words = struct.unpack(f"={len(content) // 8 - 2}Q", content[16:])
    whole = len(words) // 4 * 4
    for i in range(whole):
        sums[i % 4] = _fold(sums[i % 4] ^ words[i], _FACTOR)
    for word in words[whole:]:
        sums[0] = _fold(sums[0] ^ word, _FACTOR)
    for other in sums[1:]:
        sums[0] = _fold(sums[0] ^ other, _FACTOR)
    return bytes(content[:8]) + struct.pack("=Q", sums[0]) + bytes(content[16:])
