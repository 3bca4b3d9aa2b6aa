"""Byte-pair encoding on raw bytes: the whole algorithm, and nothing else.

At first, each byte is a token.  To train, find the two tokens that are side by side most
often, make them one new token, and repeat.  To encode, apply the same merges in the same order.

>>> BasicTokenizer().train("low lower lowest", vocab_size=258).encode("slow")
[115, 257]
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

from bpe_tokenizer import build_byte_to_char

Pair = tuple[int, int]
_PRINTED = build_byte_to_char()  # byte -> its character in files


def order(id_: int) -> int:
    """Return the sort key of a token: bytes by their character, the rest by age."""
    return ord(_PRINTED[id_]) if id_ < 256 else 0x200 + id_


def best_pair(counts: Counter[Pair]) -> Pair:
    """Return the most frequent pair; of several, the one that comes first."""
    return min(counts, key=lambda pair: (-counts[pair], order(pair[0]), order(pair[1])))


def join(ids: list[int], pair: Pair, new_id: int) -> list[int]:
    """Replace a pair wherever it occurs, from left to right: [1, 1, 1] becomes [new, 1]."""
    joined: list[int] = []
    for id_ in ids:
        if joined and (joined[-1], id_) == pair:
            joined[-1] = new_id
        else:
            joined.append(id_)
    return joined


class BasicTokenizer:
    """Knows 256 bytes at first; `train` teaches it more."""

    def __init__(self) -> None:
        self.tokens = [bytes([byte]) for byte in range(256)]  # id -> its bytes
        self.merges: dict[Pair, int] = {}  # pair -> id of the joined token; later ids are higher

    def train(self, text: str, vocab_size: int) -> BasicTokenizer:
        """Learn merges until there are `vocab_size` tokens, or no pair occurs twice."""
        ids = list(text.encode())
        while len(self.tokens) < vocab_size and (counts := Counter(itertools.pairwise(ids))):
            pair = best_pair(counts)
            if counts[pair] < 2:
                break
            ids = join(ids, pair, self.learn(pair))
        return self

    def learn(self, pair: Pair) -> int:
        """Make a new token of a pair; return its id."""
        self.merges[pair] = len(self.tokens)
        self.tokens.append(self.tokens[pair[0]] + self.tokens[pair[1]])
        return self.merges[pair]

    def encode(self, text: str) -> list[int]:
        """Turn text into ids: join the pair that was learned first, again and again."""
        ids = list(text.encode())
        while True:
            pairs = enumerate(itertools.pairwise(ids))
            known = [(self.merges[pair], at) for at, pair in pairs if pair in self.merges]
            if not known:
                return ids
            new_id, at = min(known)  # the pair learned first; the leftmost if there are several
            ids[at : at + 2] = [new_id]

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids back into text."""
        return b"".join(self.tokens[id_] for id_ in ids).decode("utf-8", "replace")
