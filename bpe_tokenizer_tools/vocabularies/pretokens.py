"""Pre-tokens as ids: counted as a tokenizer cuts text, and encoded by merges that may change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from bpe_tokenizer import BPETokenizer, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus.held_out import CorpusReader
from bpe_tokenizer_tools.formats.sentencepiece import is_byte

_BATCH = 2**14  # pre-tokens that the engine encodes at once


def check_counts(reader: CorpusReader, counts: Any) -> Mapping[bytes, int]:
    """Return counts that a caller gave, or raise TypeError or ValueError."""
    if not isinstance(counts, Mapping) or {*map(type, counts)} - {bytes}:
        raise TypeError("counts must map pre-tokens (bytes) to how often they occur")
    for pretoken, count in counts.items():
        if type(count) is not int:
            raise TypeError(f"counts: {pretoken!r} must have an int, got {core.shorten(count)}")
    return reader.count(counts) if isinstance(counts, PretokenCounts) else counts


def prefix_of(tokenizer: BPETokenizer) -> bytes:
    """Return what tokens within a word begin with, such as "##", which merges take away."""
    model = (tokenizer.components or {}).get("model", {})
    return (model.get("continuing_subword_prefix") or "").encode()


def encode_pretokens(tokenizer: BPETokenizer, pretokens: Sequence[bytes]) -> Iterator[list[int]]:
    """Yield the ids of each pre-token, by the engine in C where it takes them."""
    encode = getattr(core.encoder(tokenizer), "encode_pretokens", None)
    if encode is None:
        yield from map(core.pretoken_encoder(tokenizer), map(_text, pretokens))
        return
    size = {id_: len(token) for id_, token in core.tokens(tokenizer).items()}
    for start in range(0, len(pretokens), _BATCH):
        batch = pretokens[start : start + _BATCH]
        ids, at = encode(list(map(_text, batch))), 0
        for pretoken in batch:
            begin, left = at, len(pretoken)
            while left:
                left -= size[ids[at]]
                at += 1
            yield ids[begin:at]


def _text(pretoken: bytes) -> str:
    try:
        return pretoken.decode()
    except UnicodeDecodeError:
        raise ValueError(f"counts: {core.shorten(pretoken)} is not UTF-8") from None


def count_tokens(tokenizer: BPETokenizer, counts: Mapping[bytes, int]) -> int:
    """Return how many tokens counted pre-tokens are."""
    found = encode_pretokens(tokenizer, list(counts))
    return sum(len(ids) * count for ids, count in zip(found, counts.values()))


def stand_ins(tokenizer: BPETokenizer) -> set[int]:
    """Return the ids that stand for characters without a token: bytes, and the unknown token.

    Their written form isn't their text, so new merges must not join them.
    """
    model = (tokenizer.components or {}).get("model", {})
    found: set[int] = set()
    if unknown := model.get("unk_token"):
        found.add(cast("int", tokenizer.convert_tokens_to_ids(unknown)))
    if model.get("byte_fallback"):
        vocab = tokenizer.definition.vocab.items()
        found.update(id_ for token, id_ in vocab if is_byte(token.decode()))
    return found


class Merger:
    """Encodes pre-tokens by a tokenizer's merges, which can be added to and removed.

    Attributes:
        vocab: token -> id.
        token: id -> token, of `vocab`.
        ranks: left id -> right id -> rank.
        merged: the id that the merge of each rank makes.
    """

    def __init__(self, tokenizer: BPETokenizer) -> None:
        definition = tokenizer.definition
        self.vocab = dict(definition.vocab)
        self.token = {id_: token for token, id_ in self.vocab.items()}
        self.ranks = core.rank_pairs(definition.merges)
        self._skip = len(prefix_of(tokenizer))
        self.merged = [self.vocab[self.joined(pair)] for pair in definition.merges]
        self._whole = self.vocab if definition.ignore_merges else {}
        self._symbols = core.symbols(tokenizer)

    def encode(self, pretoken: bytes) -> list[int]:
        """Encode a pre-token as the encoder of such a tokenizer would."""
        whole = self._whole.get(pretoken)
        if whole is not None:
            return [whole]
        ids = self._symbols(pretoken)
        merge = core.merge_by_scanning if len(ids) <= core.SCAN_UP_TO else core.merge_by_heap
        return merge(ids, self.ranks, self.merged)

    def pairs(self) -> Iterator[tuple[tuple[int, int], int]]:
        """Yield each merge and its rank."""
        for left, row in self.ranks.items():
            for right, rank in row.items():
                yield (left, right), rank

    def joined(self, pair: tuple[int, int]) -> bytes:
        """Return the token that a merge makes."""
        return self.token[pair[0]] + self.token[pair[1]][self._skip :]

    def append(self, pair: tuple[int, int], new_id: int) -> None:
        """Add a merge behind all others; it makes a token that is there, or one with a new id."""
        joined = self.joined(pair)
        id_ = self.vocab.setdefault(joined, new_id)
        self.token[id_] = joined
        self.ranks.setdefault(pair[0], {})[pair[1]] = len(self.merged)
        self.merged.append(id_)

    def remove(self, id_: int, pairs: Iterable[tuple[int, int]]) -> bytes:
        """Remove a token and the merges that make it; return it."""
        for left, right in pairs:
            del self.ranks[left][right]
        token = self.token.pop(id_)
        del self.vocab[token]
        return token
