"""A byte-level twin of a BPE over characters, for the engine in C.

The engine merges bytes.  SentencePiece and its relatives (Llama 2, Gemma, Mistral) merge
characters; a character without a token becomes its bytes, such as `<0x0A>`, or the unknown
token.  This module writes such a model as one over bytes that gives the same ids for every text.

**Spelling.**  Text and tokens are respelled the same way, character by character:

- "▁" and " " swap places, so that English stays ASCII;
- a character that is a token stays as it is;
- an unknown character becomes its bytes or the unknown token: an ASCII byte with a token stays, and
  anything else gets a placeholder, a private-use character that is not a token.

**Merges.**  Before the model's own merges come those that put characters together, byte by byte:
E4+B8, then E4B8+80 for "一".  Each joins the beginning of a character to its next byte, and never
two characters.  Respelled text consists of characters that have all these merges, and the model's
own merges use none of their intermediate parts.  So when the model's first merge runs, each
character is one token, as in the model, and from there on both do the same.

**Cuts.**  A merge joins two tokens where one character meets another.  Between two characters that
meet in no merge, text can be cut: see `free_cut`.  The pre-tokenizers' own cuts are made by the
engine where a pattern for respelled text is known: see `Scanned`.
"""

from __future__ import annotations

import array
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bpe_tokenizer import AddedToken, Definition
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns.known import MORE_PATTERNS, words_from
from bpe_tokenizer_tools.support.offsets import Span, Spans

SPACE = "▁"
_SWAPPED = {ord(" "): SPACE, ord(SPACE): " "}
_PRIVATE_USE = range(0xE000, 0xF900)
_SURROGATES = range(0xD800, 0xE000)  # left to the engine, which refuses them
_UNKNOWN = -1  # the unknown token; other numbers are bytes


class Model(NamedTuple):
    """A BPE over characters: everything that decides which ids a pre-token gets."""

    vocab: Mapping[str, int]  # token -> id
    merges: Sequence[tuple[int, int]]  # (left, right) ids, in rank order
    # the id of each byte that unknown characters fall back to; empty if they don't
    byte_ids: list[int]
    # the id of the unknown token; without either, unknown characters are dropped
    unk_id: int | None
    fuse_unk: bool  # a run of unknown characters gives one unknown token
    ignore_merges: bool  # a pre-token that is a token needs no merges


def respell(text: str) -> str:
    """Swap "▁" and " "."""
    return text.translate(_SWAPPED) if " " in text else text.replace(SPACE, " ")


class FreeCut(NamedTuple):
    """Where pre-tokens can be cut further without changing their ids."""

    pattern: re.Pattern[str]  # its matches may be encoded one by one
    # the pairs of characters that it doesn't cut between.  Text without any of these pairs is cut
    # before each run of "▁", and nowhere else
    bound: list[str]


def free_cut(model: Model, space: str = SPACE) -> FreeCut | None:
    """Find where pre-tokens can be cut further; None if nowhere.

    That is before a run of "▁".  If a merge has another character meet the "▁" after it, as ">" in
    Gemma 3's ">▁</", text is not cut after that character.

    `space` is how "▁" is spelled in the text to cut.
    """
    drops = model.unk_id is None and not model.byte_ids
    if drops or model.ignore_merges or SPACE not in model.vocab or "" in model.vocab:
        return None  # characters that are dropped make their neighbors adjacent
    written = {id_: token for token, id_ in model.vocab.items()}
    before = {left for left, right in model.merges if written[right].startswith(SPACE)}
    if before.intersection([model.unk_id, *model.byte_ids]):
        return None  # these stand for any character
    meets = sorted({written[left][-1] for left in before} - {SPACE})
    pattern = f"{space}*[^{space}]+|{space}+"
    if meets:
        chars = "".join(map(re.escape, meets))
        pattern = f"{space}*(?:[^{space}{chars}]+|[{chars}]{space}*)+|{space}+"
    return FreeCut(re.compile(pattern), [char + space for char in meets])


class Scanned(NamedTuple):
    """Pre-tokenizers whose cuts the engine can make.

    A pattern treats all characters alike that it doesn't name, so it cuts respelled text where the
    pre-tokenizers cut the text, if the model has all characters that it names.
    """

    uncut: Callable[[str], str]  # does everything but cut
    pattern: str  # for respelled text
    names: str  # the characters that it names, as in the text
    needs_free_cut: bool  # it also cuts where `free_cut` does

    def suits(self, model: Model, further: FreeCut | None) -> bool:
        """Return True if it can be used for a model."""
        has_bytes = bool(model.byte_ids)
        if not all(char in model.vocab or (has_bytes and char.isascii()) for char in self.names):
            return False
        return not self.needs_free_cut or bool(further and not further.bound)


# What is known of a pre-tokenizer: the last three fields of `Scanned`.  Those that isolate the
# matches of a pattern, by the pattern:
_LINES = (r" *[^ \n]+| +|\n+", "▁\n", True)
SCANNED: dict[str, tuple[str, str, bool]] = {
    **dict.fromkeys(("\n+", r"\n+"), _LINES),  # Gemma 4
    words_from(SPACE): (words_from(" "), "▁\r\n", False),  # training.sentencepiece
}
BEFORE_SPACES = (r" [^ ]*|[^ ]+", "▁", False)  # a Metaspace that cuts


class Twin:
    """An encoder of the engine in C that gives the ids of a model.

    `speller` respells text for the encoder, `cut` cuts it into pre-tokens unless it is None, and
    `further` tells where these may be cut in their new spelling.  If `scans`, the encoder cuts
    text that is one pre-token so.
    """

    def __init__(
        self,
        encoder: Any,
        speller: _Speller,
        cut: Callable[[str], list[str]] | None,
        further: FreeCut | None,
        scans: bool,
    ) -> None:
        self.encoder, self._speller, self._cut = encoder, speller, cut
        self._further = further
        self._bound = further.bound if further else []
        self._scans = scans and encoder.scans

    def encode(self, text: str) -> list[int]:
        """Encode text that is prepared."""
        ids: list[int] = self._run(text, self.encoder.encode, self.encoder.encode_pretokens)
        return ids

    def count(self, text: str) -> int:
        """Count the ids `encode` would give."""
        count: int = self._run(text, self.encoder.count, self.encoder.count_pretokens)
        return count

    def encode_pretoken(self, text: str) -> list[int]:
        """Encode one pre-token, which is cut already."""
        ids: list[int] = self.encoder.encode_pretokens([self._speller(text)])
        return ids

    def _run(self, text: str, whole: Callable[[str], Any], cut: Callable[[list[str]], Any]) -> Any:
        """Call `whole` with text that the engine may cut itself, or `cut` with its pieces."""
        try:
            pieces = list(map(self._speller, self._cut(text) if self._cut else [text]))
            if self._scans and len(pieces) == 1:
                [piece] = pieces
                if not any(pair in piece for pair in self._bound):
                    return whole(piece)
            if self._further:
                parts = map(self._further.pattern.findall, pieces)
                pieces = list(itertools.chain.from_iterable(parts))
            return cut(pieces)
        except ValueError:
            core.utf8_length(text)  # raises for a lone surrogate, with its place
            raise

    def places(
        self, pieces: Iterable[tuple[str, Spans | None]], ids: list[int], joined: bool = False
    ) -> list[Span] | None:
        """Return the places of tokens; None if characters were dropped.

        Each piece is a pre-token, with the (start, end) that each of its characters comes from.  If
        `joined`, one piece has several pre-tokens; then None can also mean to pass each on its own.
        """
        texts: list[str] = []
        runs = array.array("i")
        for text, origin in pieces:
            spelled, moved = self._speller.align(text, origin or Spans.whole(len(text)))
            fused = joined and self._speller.fuses
            if len(spelled) < len(text) and (fused or not self._speller.stand_ins):
                return None
            texts.append(spelled)
            runs.frombytes(moved)
        found: list[Span] = self.encoder.places_by_runs("".join(texts), ids, runs, 0)
        return found


def make_twin(
    model: Model,
    cut: Callable[[str], list[str]],
    is_cut: bool,
    scanned: Scanned | None = None,
) -> Twin | None:
    """Return the twin of a model; None if it can't be exact, or if the engine is Python's.

    `cut` cuts text into pre-tokens; `is_cut` tells whether it ever does.
    """
    engine = core.engine_in_c()
    if engine is None:
        return None
    speller = _Speller(model, engine.native.respell)
    further = free_cut(model, " ")
    if scanned and not scanned.suits(model, further):
        scanned = None
    pattern = scanned.pattern if scanned else MORE_PATTERNS["spaces"]
    definition = _definition(model, speller, pattern) if speller.has_room else None
    if definition is None:
        return None
    encoder: Any = core.engine().encoder(definition)
    if type(encoder) is core.Encoder:  # it's too large for the engine in C
        return None
    if scanned and encoder.scans:
        uncut = scanned.uncut
        return Twin(encoder, speller, lambda text: [uncut(text)], None, scans=True)
    scans = further is not None and not scanned
    return Twin(encoder, speller, cut if is_cut else None, further, scans)


def make_decoder(pieces: Mapping[int, bytes]) -> core.Encoder | None:
    """Return an encoder of the engine that decodes ids to these pieces, one by one.

    The engine finds tokens by their bytes, so at most two ids can share a piece ("A" and "<0x41>"),
    and each byte must be a piece.  Otherwise, return None.
    """
    vocab: dict[bytes, int] = {}
    again: dict[str, int] = {}
    for id_, piece in pieces.items():
        if piece not in vocab:
            vocab[piece] = id_
            continue
        text = piece.decode("utf-8", "replace")
        if text in again or text.encode() != piece:
            return None
        again[text] = id_
    if any(bytes([byte]) not in vocab for byte in range(256)):
        return None
    added = tuple(AddedToken(text, id_) for text, id_ in again.items())
    made = core.engine().encoder(Definition(vocab, [], core.UNCUT_PATTERN, None, added=added))
    return None if type(made) is core.Encoder else made


class _Speller:
    """Respells text for the twin."""

    def __init__(self, model: Model, respell_in_c: Callable[..., Any]) -> None:
        known = {token for token in model.vocab if len(token) == 1}
        needed = [_UNKNOWN] if model.unk_id is not None else []
        if model.byte_ids:
            known.update(map(chr, range(0x80)))
            needed = list(range(0x80, 0x100))
        self.known = set(map(respell, known))  # the characters that stay as they are, respelled
        free = (char for char in map(chr, _PRIVATE_USE) if char not in known)
        # byte, or `_UNKNOWN` -> the character that stands for it
        self.stand_ins = dict(zip(needed, free))
        self.has_room = len(self.stand_ins) == len(needed)
        self.fuses = model.fuse_unk and not model.byte_ids
        bits = bytearray((sys.maxunicode + 1) // 8)
        for point in itertools.chain(map(ord, known), _SURROGATES):
            bits[point >> 3] |= 1 << (point & 7)
        self._rules = bytes(bits), "".join(self.stand_ins.values()), self.fuses
        self._respell = respell_in_c

    def __call__(self, text: str) -> str:
        spelled: str = self._respell(text, *self._rules)
        return spelled

    def align(self, text: str, spans: Spans) -> tuple[str, bytes]:
        """Respell a text, and the places of its characters, as `Spans.flat`."""
        aligned: tuple[str, bytes] = self._respell(text, *self._rules, spans.flat())
        return aligned


def _definition(model: Model, speller: _Speller, pattern: str) -> Definition | None:
    """Write a model as one of bytes; None if that can't be exact."""
    written = {id_: respell(token).encode() for token, id_ in model.vocab.items()}
    if b"" in written.values() or len(written) < len(model.vocab):  # or two tokens share an id
        return None
    substitutes = _substitutes(model, speller)
    if substitutes and (
        model.ignore_merges  # it finds them by their own text, which the twin respells
        or any(len(written.get(id_, b"").decode()) == 1 for id_ in substitutes)
        or any(left in substitutes or right in substitutes for left, right in model.merges)
    ):
        return None
    written.update(substitutes)
    vocab = {token: id_ for id_, token in written.items()}
    if any(written[left] + written[right] not in vocab for left, right in model.merges):
        return None  # it makes a token that has a substitute
    new_id = itertools.count(max(written, default=-1) + 1)
    for byte in range(256):
        if bytes([byte]) not in vocab:
            vocab[bytes([byte])] = next(new_id)
    merges = []
    for char in sorted({*speller.known, *speller.stand_ins.values()}):
        raw = char.encode()
        for end in range(2, len(raw) + 1):
            if raw[:end] not in vocab:
                vocab[raw[:end]] = next(new_id)
            elif end < len(raw):  # another character begins with the same bytes
                continue
            merges.append((vocab[raw[: end - 1]], vocab[raw[end - 1 : end]]))
    return Definition(
        vocab,
        [*merges, *model.merges],
        pattern,
        normalizer=None,
        ignore_merges=model.ignore_merges,
    )


def _substitutes(model: Model, speller: _Speller) -> dict[int, bytes]:
    """Return the spelling of what unknown characters become, by id."""
    if model.byte_ids:
        spelled = {byte: char.encode() for byte, char in speller.stand_ins.items()}
        for byte in range(0x80):
            if chr(byte) not in model.vocab:
                spelled[byte] = respell(chr(byte)).encode()
        return {model.byte_ids[byte]: written for byte, written in spelled.items()}
    return {} if model.unk_id is None else {model.unk_id: speller.stand_ins[_UNKNOWN].encode()}
