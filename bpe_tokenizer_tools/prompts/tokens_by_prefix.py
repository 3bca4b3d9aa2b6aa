"""Tokens in the order of their bytes: tokens with the same beginning are neighbors.

A sorted table does what a trie does.  The tokens with a prefix are a range of it, which two binary
searches find, and so are, one length after another, the tokens that some bytes begin with.  It is
three arrays: the bytes of all tokens, where each of them begins, and their ids.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core


class TokensByPrefix:
    """The tokens of a vocabulary by their bytes.

    Args:
        tokens: the bytes of each id, or None for an id that stands for no text.

    Attributes:
        ids: the ids in the order of their tokens' bytes.
        longest: length of the longest token in bytes.

    >>> table = TokensByPrefix([b"a", b"the", None, b"there", b"th"])
    >>> table.tokens_with_prefix(b"th").tolist()
    [4, 1, 3]
    >>> table.prefixes_of(b"then")
    [4, 1]
    """

    def __init__(self, tokens: Iterable[bytes | None]) -> None:
        numpy = core.import_optional("numpy", "a table of tokens", "numpy")
        listed = sorted((token, id_) for id_, token in enumerate(tokens) if token)
        lengths = [len(token) for token, _ in listed]
        self.ids: Any = numpy.array([id_ for _, id_ in listed], numpy.int32)
        self.longest = max(lengths, default=0)
        self._starts: Any = numpy.zeros(len(listed) + 1, numpy.uint32)
        numpy.cumsum(lengths, out=self._starts[1:])
        self._bytes = b"".join([token for token, _ in listed])

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Size of the three arrays in bytes."""
        return int(len(self._bytes) + self._starts.nbytes + self.ids.nbytes)

    def token_at(self, place: int) -> bytes:
        """Return the bytes of the token at a place of the order."""
        return self._bytes[self._starts[place] : self._starts[place + 1]]

    def _range(self, prefix: bytes, low: int, high: int) -> range:
        """Return those places that have tokens with a prefix."""
        n = len(prefix)
        places = range(len(self))
        low = bisect.bisect_left(places, prefix, low, high, key=self.token_at)
        high = bisect.bisect_right(places, prefix, low, high, key=lambda i: self.token_at(i)[:n])
        return range(low, high)

    def tokens_with_prefix(self, prefix: bytes) -> Any:
        """Return the ids of the tokens that begin with some bytes, in order, as a NumPy array."""
        if not isinstance(prefix, bytes):
            got = type(prefix).__name__
            raise TypeError(f"prefix must be bytes, got {got}; encode text: text.encode()")
        found = self._range(prefix, 0, len(self))
        return self.ids[found.start : found.stop]

    def prefixes_of(self, data: bytes) -> list[int]:
        """Return the ids of the tokens that some bytes begin with, shortest first."""
        found: list[int] = []
        places = range(len(self))
        for length in range(1, min(len(data), self.longest) + 1):
            places = self._range(data[:length], places.start, places.stop)
            for place in places:  # equal tokens are the first of them
                if self._starts[place + 1] - self._starts[place] > length:
                    break
                found.append(int(self.ids[place]))
            if not places:
                break
        return found


def trie(tokenizer: BPETokenizer) -> TokensByPrefix:
    """Return the tokens by the bytes they begin with, in a compact table that is built once.

    Special tokens are left out, as they stand for no text.

    >>> trie(BPETokenizer()).tokens_with_prefix(b"a")
    array([97], dtype=int32)
    """
    known = kept(tokenizer)
    if "trie" not in known:
        known["trie"] = TokensByPrefix(tokenizer.token_bytes())
    found: TokensByPrefix = known["trie"]
    return found


def kept(tokenizer: BPETokenizer) -> dict[str, Any]:
    """Return a dict for data that this room derives from a tokenizer, until that changes."""
    found: dict[str, Any] = core.derived(tokenizer, _nothing)
    return found


def _nothing(encoder: Any, definition: Any) -> dict[str, Any]:
    return {}
