"""A tokenizer for the page: everything its encoder needs, small.

A token is the join of two others, so the merges spell the vocabulary: pairs of token
numbers, and the bytes of the few tokens that no merge makes.  Numbers are written as planes
of bytes, the low bytes first, which compresses better than numbers of variable length.
encoder.js reads everything in the same order.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import unicodedata
import zlib
from collections.abc import Iterable
from typing import Any

from bpe_tokenizer import AddedToken, BPETokenizer, Definition
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns.algebra import WORD_CHARS
from bpe_tokenizer_tools.patterns.characters import members
from bpe_tokenizer_tools.showing.page import conversations
from bpe_tokenizer_tools.showing.page.splitting import Runs, translate
from bpe_tokenizer_tools.support.normal_forms import combining, composed_of
from bpe_tokenizer_tools.support.offsets import starts_cluster


class _Writer:
    """Collects bytes and numbers, to be deflated together."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def bytes(self, data: bytes) -> None:
        self._parts += [len(data).to_bytes(4, "little"), data]

    def append(self, other: _Writer) -> None:
        self._parts += other._parts

    def numbers(self, numbers: Iterable[int]) -> None:
        """Write numbers below 2**32, plane by plane."""
        whole = b"".join(number.to_bytes(4, "little") for number in numbers)
        self.bytes(b"".join(whole[plane::4] for plane in range(4)))

    def rising(self, numbers: Iterable[int]) -> None:
        """Write numbers that mostly go up by one, each as its difference from that."""
        before = -1
        steps = []
        for number in numbers:
            steps.append((number - before - 1) % 2**32)
            before = number
        self.numbers(steps)

    def table(self, runs: Iterable[tuple[int, int]]) -> None:
        """Write a number for each code point, given as (first, number) of each run."""
        firsts, values = zip(*runs)
        self.rising(firsts)
        self.numbers(values)

    def packed(self) -> str:
        """Return all of it, deflated, in base64."""
        compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        data = compressor.compress(b"".join(self._parts)) + compressor.flush()
        return base64.b64encode(data).decode()


def _write_vocabulary(writer: _Writer, definition: Definition) -> None:
    tokens = sorted(definition.vocab.items(), key=lambda item: item[1])
    spelled = {id_: token for token, id_ in tokens}
    number = {id_: i for i, (_, id_) in enumerate(tokens)}
    merged = [
        number[definition.vocab[spelled[left] + spelled[right]]]
        for left, right in definition.merges
    ]
    made = set(merged)
    given = [(i, token) for i, (token, _) in enumerate(tokens) if i not in made]
    writer.rising(id_ for _, id_ in tokens)
    writer.numbers(number[left] for left, _ in definition.merges)
    writer.numbers(number[right] for _, right in definition.merges)
    writer.rising(merged)
    writer.rising(i for i, _ in given)
    writer.numbers(len(token) for _, token in given)
    writer.bytes(b"".join(token for _, token in given))


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Write numbers, one for each code point, as (first, number) of each run."""
    runs: list[tuple[int, int]] = []
    for point, number in enumerate(numbers):
        if not runs or runs[-1][1] != number:
            runs.append((point, number))
    return runs


def _membership(runs: Runs) -> list[tuple[int, int]]:
    inside = [item for first, end in runs for item in ((first, 1), (end, 0))]
    return inside if inside[:1] == [(0, 1)] else [(0, 0), *inside]


def _is_unsettled(char: str, form: str) -> bool:
    """Return whether normalizing may change a character, or the text before it."""
    return core.normalize(char, form) != char or not starts_cluster(char)


@functools.lru_cache(maxsize=4)
def _normalizer(form: str) -> _Writer:
    """Write the tables, as of `NORMALIZATION_VERSION`: browsers have others."""
    writer = _Writer()
    chars = list(map(chr, range(0x110000)))
    nothing = ("Cn", "Co", "Cs")  # unassigned, private, surrogates: they stay unchanged
    known = [char for char in chars if unicodedata.category(char) not in nothing]
    unsettled = {ord(char) for char in known if _is_unsettled(char, form)}
    writer.table(_runs(int(point in unsettled) for point in range(0x110000)))
    writer.table(_runs(map(combining, chars)))
    decomposed = "NFKD" if "K" in form else "NFD"
    hangul = range(0xAC00, 0xAC00 + 11_172)  # the page computes these
    parts = {ord(char): core.normalize(char, decomposed) for char in known}
    parts = {char: part for char, part in parts.items() if part != chr(char) and char not in hangul}
    writer.rising(parts)
    writer.numbers(map(len, parts.values()))
    writer.numbers(map(ord, "".join(parts.values())))
    pairs = [(char, pair) for char in known for pair in [composed_of(char)] if pair]
    writer.numbers(ord(pair[0]) for _, pair in pairs)
    writer.numbers(ord(pair[1]) for _, pair in pairs)
    writer.numbers(ord(char) for char, _ in pairs)
    return writer


def pack(name: str, tokenizer: BPETokenizer) -> dict[str, Any]:
    """Describe a tokenizer to the page, as data for JSON."""
    definition = tokenizer.definition
    if definition.components is not None:
        raise ValueError(
            f"{name}: the page runs byte-level BPE with one split pattern; this tokenizer has "
            "components of its own, such as several steps of cutting or SentencePiece's white space"
        )
    try:
        split = translate(definition.split_pattern)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    writer = _Writer()
    _write_vocabulary(writer, definition)
    writer.table(split.runs)
    writer.table(_membership(members("\\s")))
    if any(token.single_word for token in definition.added):
        writer.table(_membership(members(f"[{WORD_CHARS}]")))
    if definition.normalizer:
        writer.append(_normalizer(definition.normalizer))
    return {
        "name": name,
        "pattern": definition.split_pattern,
        "source": split.source,
        "normalizer": definition.normalizer,
        "prefix_space": definition.prefix_space,
        "ignore_merges": definition.ignore_merges,
        "added": [_added(token, definition.normalizer) for token in definition.added],
        "missing": conversations.missing(definition),
        "packed": writer.packed(),
    }


def _added(token: AddedToken, form: str | None) -> dict[str, Any]:
    written = core.normalize(token.content, form) if token.normalized else token.content
    is_text = core.spells_text(token)  # also recognized in the contents of a conversation
    return {**dataclasses.asdict(token), "written": written, "is_text": is_text}
