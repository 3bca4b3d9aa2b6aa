"""Two vocabularies side by side: where both cut a text, and which tokens both have.

Distillation and speculative decoding with a draft model of another vocabulary need both: blocks of
text that are m tokens of one and n of the other, and a map from ids to ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.dropin.grammars import speller, token_bytes
from bpe_tokenizer_tools.formats.sentencepiece import is_byte

_Cut = tuple[int, int]  # a place in bytes, and the tokens that end there or before


class Block(NamedTuple):
    """A part of a text between two places where both tokenizers cut it."""

    start: int  # in bytes of the text, in UTF-8
    end: int
    ids_a: list[int]
    ids_b: list[int]


@core.renamed(a="tokenizer_a", b="tokenizer_b")
def align(
    tokenizer_a: BPETokenizer,
    tokenizer_b: BPETokenizer,
    text: str,
    allowed_special: Any = "none",
) -> list[Block]:
    """Cut a text wherever both tokenizers cut it, in linear time.

    The blocks follow one another, and their ids make up what each tokenizer's `encode` gives.  No
    block can be cut further.  Tokens that share a character are cut within it where their bytes
    are those of the text; where a normalizer has changed the text, they stay together.

    Args:
        tokenizer_a, tokenizer_b: any two tokenizers.
        text: any text without lone surrogates.
        allowed_special: as for `encode`, for the special tokens that each has.

    >>> a, b = BPETokenizer(), BPETokenizer().train("low lower" * 9, vocab_size=259, verbose=False)
    >>> for block in align(a, b, "lower"):
    ...     print(block)
    Block(start=0, end=3, ids_a=[108, 111, 119], ids_b=[257])
    Block(start=3, end=5, ids_a=[101, 114], ids_b=[258])
    """
    _check(tokenizer_a, tokenizer_b)
    ids_a = tokenizer_a.encode(text, allowed_special=allowed_special)
    ids_b = tokenizer_b.encode(text, allowed_special=allowed_special)
    raw = text.encode()
    cuts_a, cuts_b = (
        _cuts(tokenizer, text, raw, ids, allowed_special)
        for tokenizer, ids in ((tokenizer_a, ids_a), (tokenizer_b, ids_b))
    )
    blocks: list[Block] = []
    start = done_a = done_b = 0
    for end, n_a, n_b in _common(cuts_a, cuts_b) if raw or ids_a or ids_b else ():
        blocks.append(Block(start, end, ids_a[done_a:n_a], ids_b[done_b:n_b]))
        start, done_a, done_b = end, n_a, n_b
    return blocks


def _common(a: list[_Cut], b: list[_Cut]) -> Iterator[tuple[int, int, int]]:
    """Yield the places in both lists, each with the numbers of tokens that end there or before."""
    i = j = 0
    while i < len(a) and j < len(b):
        (at, n_a), (other, n_b) = a[i], b[j]
        if at == other:
            yield at, n_a, n_b
        i += at <= other
        j += other <= at


def _cuts(
    tokenizer: BPETokenizer, text: str, raw: bytes, ids: list[int], allowed: Any
) -> list[_Cut]:
    """Return where a tokenizer cuts a text, and finally its end."""
    ends = _byte_ends(tokenizer, raw, ids)
    if ends is None:
        ends = _character_ends(text, core.offsets(tokenizer, text, allowed, trimmed=False))
    counted = {end: n for n, end in enumerate(ends, 1)}  # at equal ends, the last counts
    inner = [(end, n) for end, n in counted.items() if 0 < end < len(raw)]
    return [*inner, (len(raw), len(ids))]


def _byte_ends(tokenizer: BPETokenizer, raw: bytes, ids: list[int]) -> list[int] | None:
    """Return where each token ends; None if the tokens' bytes don't make up the text."""
    try:
        spell = speller(tokenizer)
    except ValueError:  # a token's text depends on its place
        return None
    tokens = core.tokens(tokenizer)
    pieces = [spell(id_, tokens[id_]) for id_ in ids]
    joined = b"".join(pieces)
    added = len(joined) - len(raw)  # a space that SentencePiece puts before a text
    if joined != raw and not (added == 1 and joined[:1] == b" " and joined[1:] == raw):
        return None
    ends = itertools.accumulate(map(len, pieces))
    return [max(0, end - added) for end in ends]


def _character_ends(text: str, spans: list[tuple[int, int]]) -> list[int]:
    """Return where each token ends, in bytes; those that share characters end together."""
    widths = (len(char.encode()) for char in text)
    byte_of = list(itertools.accumulate(widths, initial=0))
    first = len(text)  # of what follows
    ends = [0] * len(spans)
    starts_after = [first] * len(spans)
    for i in range(len(spans) - 1, -1, -1):
        starts_after[i] = first
        first = min(first, spans[i][0])
    reached = 0
    for i, (_, end) in enumerate(spans):
        reached = max(reached, end)
        # Text in no token, such as a composed accent, belongs to the token before it.
        ends[i] = byte_of[starts_after[i]] if reached <= starts_after[i] else -1
    for i in range(len(spans) - 2, -1, -1):
        if ends[i] < 0:
            ends[i] = ends[i + 1]
    return ends


# -- Tokens in common ----------------------------------------------------------


@dataclass(frozen=True)
class Intersection:
    """The tokens that two tokenizers both have, by the bytes they stand for."""

    tokens: list[bytes] = field(repr=False)  # in the order of a's ids
    a_to_b: list[int] = field(repr=False)  # b's id for each id of a; -1 if it has none
    b_to_a: list[int] = field(repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    def __str__(self) -> str:
        shares = (sum(id_ >= 0 for id_ in ids) / len(ids) for ids in (self.a_to_b, self.b_to_a))
        of_a, of_b = map("{:.1%}".format, shares)
        return f"{len(self):,} tokens in common: {of_a} of the ids of a, {of_b} of those of b"


@core.renamed(a="tokenizer_a", b="tokenizer_b")
def intersection(tokenizer_a: BPETokenizer, tokenizer_b: BPETokenizer) -> Intersection:
    """Find the tokens that two tokenizers both have, and their ids.

    A token is the bytes that it adds to a text, so "Ġthe" and "▁the" are the same.  Special tokens
    stand for no text, and are left out.  If a tokenizer has several ids for the same bytes, such
    as "A" and "<0x41>", all of them are mapped, and the other's are mapped to the ordinary one.

    Raises ValueError for a tokenizer whose tokens have no bytes of their own, such as one whose
    words end in "</w>".

    >>> both = intersection(BPETokenizer(), BPETokenizer().train("ab" * 9, 257, verbose=False))
    >>> len(both), both.b_to_a[255:]
    (256, [255, -1])
    """
    _check(tokenizer_a, tokenizer_b)
    of_a, of_b = token_bytes(tokenizer_a), token_bytes(tokenizer_b)
    ids_a, ids_b = _ids_by_bytes(tokenizer_a, of_a), _ids_by_bytes(tokenizer_b, of_b)
    return Intersection(
        [token for token in ids_a if token in ids_b],
        [ids_b.get(token, -1) if token else -1 for token in of_a],
        [ids_a.get(token, -1) if token else -1 for token in of_b],
    )


def _check(a: object, b: object) -> None:
    for name, given in (("tokenizer_a", a), ("tokenizer_b", b)):
        if not isinstance(given, BPETokenizer):
            raise TypeError(f"{name} must be a BPETokenizer, got {core.shorten(given)}")


def _ids_by_bytes(tokenizer: BPETokenizer, table: list[bytes | None]) -> dict[bytes, int]:
    """Return the id of each token; of several, not that of byte fallback, and then the lowest."""
    tokens, found = core.tokens(tokenizer), dict[bytes, int]()
    fallback = tokenizer.components is not None
    for id_, token in enumerate(table):
        if token and (token not in found or (fallback and is_byte(tokens[found[token]].decode()))):
            found[token] = id_
    return found
