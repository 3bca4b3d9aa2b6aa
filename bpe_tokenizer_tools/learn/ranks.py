"""From ranks to merges: recover what a published `.tiktoken` file leaves out.

Such a file lists tokens and their ranks, but no merges.  One merge made each token, and its
rank says when: all tokens learned before have lower ranks.  So encode the bytes of a token
with tokens of lower rank only.  Two parts are left: the two that the merge joined.

>>> recover_merges({b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"abc": 5})
[(b'b', b'c'), (b'a', b'b'), (b'a', b'bc')]
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping
from pathlib import Path


def read_ranks(path: Path) -> dict[bytes, int]:
    """Read a file of lines such as "IHRoZQ== 262": a token in base64, and its rank."""
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def encode(data: bytes, ranks: Mapping[bytes, int], below: int) -> list[bytes]:
    """Join, again and again, the two parts that make the token of the lowest rank.

    Tokens of rank `below` or higher are not made.
    """
    parts = [bytes([byte]) for byte in data]
    while len(parts) > 1:
        made = [ranks.get(left + right, below) for left, right in itertools.pairwise(parts)]
        rank = min(made)
        if rank >= below:
            break
        at = made.index(rank)  # the leftmost of equals
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def recover_merges(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Find the merges of a vocabulary that has only ranks, in order.

    If more than two parts of a token are left, no merge makes it.
    """
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        parts = encode(token, ranks, below=ranks[token])
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return merges
