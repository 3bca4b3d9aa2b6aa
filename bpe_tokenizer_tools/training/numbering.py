"""Documents as numbers of tokens, for learning superwords.

A token's number is its place in the order of ties: base bytes by the byte alphabet, then merged
tokens by age.  neighbors.py describes texts of numbers.
"""

from __future__ import annotations

import functools
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from bpe_tokenizer import AddedToken
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns import timeouts
from bpe_tokenizer_tools.patterns.safe_cuts import analyze
from bpe_tokenizer_tools.support.streaming import joined
from bpe_tokenizer_tools.training.neighbors import BETWEEN, apart_encoder, word_finder

__all__ = ["BOUNDLESS_WORD", "Blocks", "Numbering"]

BOUNDLESS_WORD = r" ?\p{L}+(?:['’]\p{L}+)?"


class _LateCuts:
    """A splitter that looks for a place to cut only in long text.

    Stage two's pattern cuts rarely, so the search may go through the whole text.  Short texts soon
    end anyway, at a special token.
    """

    _LONG = 2**16  # characters

    def __init__(self, pattern: str) -> None:
        self.pattern, self._splitter = pattern, core.splitter(pattern)

    def last_cut(self, text: str, before: int) -> int | None:
        """Return the last place before `before` where both sides can be split independently."""
        return self._splitter.last_cut(text, before) if before > self._LONG else None


class Blocks(core.PretokenCounter):
    """Reads documents in blocks of prepared text, about four megabytes each."""

    def of(self, documents: Iterable[Iterable[str]]) -> Iterator[list[str]]:
        """Yield the blocks of some documents."""
        return self._batches(map(self._in_long_chunks, documents))

    @staticmethod
    def _in_long_chunks(document: Iterable[str]) -> Iterable[str]:
        """Join short chunks, so that each chunk without a special token has a place to cut."""
        if isinstance(document, list) and len(document) == 1:
            return document
        return joined(document, 2**20)


@dataclass(frozen=True)
class Numbering:
    """How documents become numbers of tokens.  It can be pickled for another process."""

    rule: str  # of `Superwords`
    split_pattern: str  # of stage one
    final_pattern: str  # of stage two
    words: core.Learned  # the result of stage one
    normalizer: str | None
    special_tokens: tuple[str, ...]  # they cut a document

    @property
    def tokens(self) -> list[bytes]:
        """The tokens by number."""
        return [*(bytes([byte]) for byte in core.ALPHABET), *self.words.tokens]

    def blocks(self, advance: Callable[[int], Any]) -> Blocks:
        """Return a reader of documents in blocks; it counts them, and calls advance(bytes)."""
        tokens = map(AddedToken, self.special_tokens)
        splitter = cast("Any", _LateCuts(self.final_pattern))
        return Blocks(core.Pipeline(splitter, self.normalizer, tokens=tokens), 1, advance)

    def arrays(self, blocks: Iterable[list[str]], workers: int = 1) -> Iterator[array[int]]:
        """Yield the numbers of the tokens of each block, as neighbors.py takes them."""
        encode: Callable[[list[str]], bytes | bytearray] | None
        if self.rule == "boundless":
            number = self._numbers_of_words()
            written = {word.encode(): n for word, n in number.items()}
            encode = word_finder(written, self.final_pattern, self.split_pattern)
            numbers = functools.partial(self._whole_words, number)
        else:
            encode = apart_encoder(self.tokens, self.words.merges, self.final_pattern)
            numbers = functools.partial(self._all_tokens, workers)
        return _arrays_in_c(blocks, encode) if encode else _arrays(blocks, numbers())

    def _all_tokens(self, workers: int) -> _Numbers:
        """Cut as stage two does, and encode each piece with the merges of stage one."""
        plain = core.new_definition(core.UNCUT_PATTERN, None, "none")
        encoder = core.engine().encoder(core.number_merges(self.words, plain, [], {}))
        split = _cutter(self.final_pattern)
        rank = {byte: number for number, byte in enumerate(core.ALPHABET)}
        numbers = [*(rank[byte] for byte in range(256)), *range(256, len(self.tokens))]

        def run(text: str) -> Iterator[Iterable[int]]:
            pieces = [piece for piece in split(text) if len(piece) > 1 or piece > "\x7f"]
            for ids in encoder.encode_batch(pieces, workers):
                yield map(numbers.__getitem__, ids)

        return run

    def _numbers_of_words(self) -> dict[str, int]:
        """Return the words that are one token."""
        is_word = core.Pattern(BOUNDLESS_WORD).fullmatch
        number: dict[str, int] = {}
        for n, token in enumerate(self.tokens):
            text = token.decode(errors="ignore")
            if text.encode() == token and is_word(text):
                number[text] = n
        return number

    def _whole_words(self, number: dict[str, int]) -> _Numbers:
        """Cut as stage two does; in each piece, keep the words that have a number."""
        cut, words = _cutter(self.final_pattern), core.splitter(self.split_pattern).split

        def run(text: str) -> Iterator[Iterable[int]]:
            for piece in cut(text):
                if len(piece) > 1:
                    yield (number.get(word, BETWEEN) for word in words(piece))

        return run


_Numbers = Callable[[str], Iterable[Iterable[int]]]  # the numbers of each piece of a text


def _cutter(pattern: str) -> Callable[[str], Iterable[str]]:
    """Return a function that splits text, faster than usual if little of it matches."""
    found = core.Pattern(f"({pattern})") if analyze(pattern)[0] else None
    if found is None or found.compiled.groups > 1:
        return core.splitter(pattern).split

    def cut(text: str) -> Iterable[str]:
        compiled, known = found.ready(text)
        if known is not text:
            return core.splitter(pattern).split(text)
        try:
            return filter(None, compiled.split(text, timeout=timeouts.seconds_for(text)))
        except TimeoutError:
            raise timeouts.too_slow(pattern, text) from None

    return cut


def _arrays(blocks: Iterable[list[str]], numbers: _Numbers) -> Iterator[array[int]]:
    for block in blocks:
        flat = array("I", [BETWEEN])
        for piece in itertools.chain.from_iterable(map(numbers, block)):
            flat.extend(piece)
            flat.append(BETWEEN)
        if len(flat) % 2:
            flat.append(BETWEEN)
        yield flat


def _arrays_in_c(
    blocks: Iterable[list[str]], encode: Callable[[list[str]], bytes | bytearray]
) -> Iterator[array[int]]:
    for block in blocks:
        flat = array("I", [BETWEEN])
        flat.frombytes(encode(block))
        flat.extend([BETWEEN] * (len(flat) % 2))
        yield flat
