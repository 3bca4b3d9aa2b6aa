"""The checksum of a compiled vocabulary, so that tests and the fuzzer can forge one."""

from __future__ import annotations

import struct

_FACTOR = 0x9E3779B97F4A7C15
_WORD = 2**64 - 1


def with_checksum(content: bytes | bytearray) -> bytes:
    """Return a file with its right checksum, computed as in accelerator/encode/image.c."""
    words = struct.unpack(f"={len(content) // 8 - 2}Q", content[16:])
    whole = len(words) // 4 * 4
    sums = []
    for lane in range(4):
        total = lane + 1
        for word in words[lane:whole:4]:
            product = (total ^ word) * _FACTOR
            total = (product ^ product >> 64) & _WORD
        sums.append(total)
    total = sums[0]
    for word in (*words[whole:], *sums[1:]):
        product = (total ^ word) * _FACTOR
        total = (product ^ product >> 64) & _WORD
    return bytes(content[:8]) + struct.pack("=Q", total) + bytes(content[16:])
