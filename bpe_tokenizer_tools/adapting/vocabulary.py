"""Which row of a model each token of another vocabulary gets.

A token that both vocabularies have keeps its row: an ordinary one is found by its bytes, an added
one by its content.  A special token never gets the row of an ordinary one, or the other way around:
text that a user can type must not turn into control.  Every other token is new.  The old tokenizer
cuts its bytes into pieces, and the model knows those.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.dropin.grammars import _inside
from bpe_tokenizer_tools.formats.sentencepiece import SPACE, is_byte
from bpe_tokenizer_tools.vocabularies.pretokens import Merger


class NewToken(NamedTuple):
    """A token that the old vocabulary lacks."""

    raw: bytes  # what it adds to a text; of a special token, its content
    pieces: tuple[int, ...]  # the old ids it used to be cut into; none if the old one drops it


@dataclass(frozen=True)
class Matching:
    """The ids of an old vocabulary in a new one.

    Attributes:
        kept: new id -> the old id of the same token.
        new: new id -> the token that has no old id.
        moved: old id -> its new id, of tokens that are kept.
        old_ids: all old ids that have a token, in order.
        size: the largest new id plus one.
    """

    kept: Mapping[int, int]
    new: Mapping[int, NewToken]
    moved: Mapping[int, int]
    old_ids: tuple[int, ...]
    size: int

    @property
    def dropped(self) -> int:
        """Number of old tokens that the new vocabulary lacks."""
        return len(self.old_ids) - len(self.moved)


def match(old: BPETokenizer, new: BPETokenizer) -> Matching:
    """Find each token of a vocabulary in another one, and cut those that it lacks.

    Raises:
        ValueError: the tokens' bytes are unknown, as in vocabularies with "</w>".
    """
    theirs, ours = _Tokens(old), _Tokens(new)
    cut = _Cutter(old).cut
    kept: dict[int, int] = {}
    created: dict[int, NewToken] = {}
    for id_ in ours.ids:
        found = theirs.find(ours, id_)
        if found is not None:
            kept[id_] = found
        else:
            raw = ours.bytes_of(id_)
            created[id_] = NewToken(raw, tuple(cut(raw)))
    moved: dict[int, int] = {}
    for new_id, old_id in kept.items():
        moved.setdefault(old_id, new_id)
    return Matching(kept, created, moved, tuple(theirs.ids), new.max_id + 1)


class _Tokens:
    """The tokens of a vocabulary, by what they are."""

    def __init__(self, tokenizer: BPETokenizer) -> None:
        self._tokens = core.tokens(tokenizer)
        self._table = tokenizer.token_bytes()  # None for special tokens
        self._contents = core.contents(tokenizer)
        self._special = set(tokenizer.special_tokens.values())
        self._written = tokenizer.definition.vocab
        self.ids = sorted(self._tokens)

    @functools.cached_property
    def _by_content(self) -> Mapping[str, int]:
        return {content: int(id_ or 0) for id_, content in self._contents.items()}

    @functools.cached_property
    def _by_bytes(self) -> Mapping[bytes, int]:
        """Return the ids that text can give: ordinary ones, then single bytes and added tokens."""
        found: dict[bytes, int] = {}
        for id_ in sorted(self.ids, key=lambda id_: (self._is_apart(id_), id_)):
            raw = self._table[id_]
            if raw is not None:
                found.setdefault(raw, id_)
        return found

    def _is_apart(self, id_: int) -> bool:
        """Return whether a token is added, or spells a byte, which another one may have, too."""
        return id_ in self._contents or is_byte(self._tokens[id_].decode(errors="replace"))

    def bytes_of(self, id_: int) -> bytes:
        """Return the bytes that a token adds to a text; for a special one, its content."""
        raw = self._table[id_]
        return self._contents[id_].encode() if raw is None else raw

    def find(self, other: _Tokens, id_: int) -> int | None:
        """Return the id of the token that equals one of another vocabulary."""
        content, raw = other._contents.get(id_), other._table[id_]
        if content is not None and content in self._by_content:
            return self._by_content[content]
        if raw is None:
            return None
        alike = self._written.get(other._tokens[id_])  # of two tokens with these bytes, this one
        if alike is not None and self._table[alike] == raw:
            return alike
        return self._by_bytes.get(raw)


class _Cutter:
    """Cuts bytes into the tokens of a vocabulary, as inside a text."""

    def __init__(self, tokenizer: BPETokenizer) -> None:
        self._tokenizer = tokenizer
        self._inside = _inside(tokenizer)
        self._vocab = tokenizer.definition.vocab

    def cut(self, raw: bytes) -> list[int]:
        """Return the ids by pattern and merges; for bytes that aren't text, by merges only."""
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return core.merge_by_heap(self._symbols(raw), *self._merges)
        return self._inside.encode(text)

    @functools.cached_property
    def _merges(self) -> tuple[dict[int, dict[int, int]], list[int]]:
        """Return the rank of each pair, by left and right, and the id that it is merged into."""
        merger = Merger(self._tokenizer)
        return merger.ranks, merger.merged

    def _symbols(self, raw: bytes) -> list[int]:
        """Return the ids that merging starts from."""
        definition = self._tokenizer.definition
        if definition.components is None:
            symbols = [[bytes([byte])] for byte in raw]
        elif "\u0120".encode() in self._vocab:  # byte-level: a space is written as "Ġ"
            symbols = [[core.BYTE_TO_CHAR[byte].encode()] for byte in raw]
        else:
            symbols = list(map(_spelled, raw.decode(errors="surrogateescape")))
        found = [[self._vocab.get(symbol) for symbol in each] for each in symbols]
        return [id_ for each in found for id_ in each if id_ is not None]


def _spelled(char: str) -> list[bytes]:
    """Return how a vocabulary with byte fallback writes a character, or a byte that is not one."""
    if "\udc80" <= char <= "\udcff":
        return [f"<0x{ord(char) - 0xDC00:02X}>".encode()]
    return [char.replace(" ", SPACE).encode()]
