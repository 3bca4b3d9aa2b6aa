"""SentencePiece: `.model` files of type BPE.

The file is one protobuf message.  A field is a varint, ``number << 3 | kind``,
then its value: kind 0 a varint, 1 eight bytes, 2 a length and that many bytes,
5 four bytes.  Of ModelProto, only the pieces (field 1, one per id) matter, and the fields
in `_SPECS`; the rest is skipped.

Text is normalized (`Normalizer`) and cut into user-defined symbols and characters.  Then the
adjacent pair whose joined string has the highest score is joined, the leftmost if equal,
until no pair is a piece.  Characters that are not pieces become their bytes or, a run at a
time, the unknown piece.

Models that tokenizer.json can express exactly become its components, so that they can be saved
as one: models without a character map, user-defined symbols or white space as a
suffix, such as those of Llama 2 and Mistral.  Others get a component of this
library's own.  Control symbols in text are ordinary text.  A model does not say what
goes around a text, and SentencePiece puts nothing there.  A tokenizer_config.json beside
it may: add_bos_token, add_eos_token, and which tokens these are.  Without such keys, nothing
is added, as in transformers 5, except for CodeLlama's class.

Source: google/sentencepiece, src/sentencepiece_model.proto, normalizer.cc,
bpe_model.cc; darts-clone for the trie of the character map.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import graphlib
import itertools
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer import AddedToken, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import Source, SpecialTokens, beside, read_bytes
from bpe_tokenizer_tools.formats.classes import GENERIC
from bpe_tokenizer_tools.formats.ranks import merges_by_score

SPACE = "\u2581"  # how SentencePiece writes a space
_MAX_CHARSMAP_BYTES = 2**20  # that of nmt_nfkc_cf has 250,000
_MAX_BYTES = 2**24  # the largest models in use have 5 million
_MAX_FIELDS = 2**20  # of one message
_MAX_PIECES = 2**19  # the largest models in use have half of that
_MAX_PIECE_LENGTH = 1024  # characters; SentencePiece itself learns up to 16 by default
_MAX_STRIPPED = 1000  # leading spaces taken away in decoding
_MAX_STEPS = 2**17  # of the automaton of a character map; nmt_nfkc_cf has 28,000

# -- Protobuf -----------------------------------------------------------------

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


class _DamagedError(ValueError):
    """Bytes that are not a protobuf message with the expected fields."""


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return an unsigned number of up to 64 bits, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise _DamagedError("ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise _DamagedError("has a number of more than 10 bytes")


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield the (number, kind, value) of each field of a message; bytes if not a varint."""
    at, end, n_fields = 0, len(data), 0
    while at < end:
        n_fields += 1
        if n_fields > _MAX_FIELDS:
            raise _DamagedError(f"there are more than {_MAX_FIELDS:,} fields")
        tag, at = _varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if number == 0 or kind not in (_VARINT, _BYTES, *_SIZES):
            raise _DamagedError(f"has a field {number} of kind {kind}, which doesn't exist")
        if kind == _VARINT:
            value, at = _varint(data, at, end)
            yield number, kind, value
            continue
        size = _SIZES.get(kind, 0)
        if kind == _BYTES:
            size, at = _varint(data, at, end)
        if size > end - at:
            raise _DamagedError(f"field {number} has {size:,} bytes, but {end - at:,} are left")
        yield number, kind, data[at : at + size]
        at += size


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _DamagedError(f"expected UTF-8, got {core.shorten(value)}") from None


def _float(value: bytes) -> float:
    number: float = struct.unpack("<f", value)[0]
    if math.isnan(number):
        raise _DamagedError("expected a number, got NaN")
    return number


# The function that makes a field's value, and the kind that the field must have.
_STRING = _text, _BYTES
_RAW = bytes, _BYTES
_FLOAT = _float, _FIXED32
_INT = int, _VARINT
_BOOL = bool, _VARINT

_Schema = dict[int, tuple[str, Any, Any]]  # number of a field -> its name, kind and default
# The piece of the highest score is joined first; for the types see `NORMAL` and those after it.
_PIECE: _Schema = {1: ("piece", _STRING, ""), 2: ("score", _FLOAT, 0.0), 3: ("type", _INT, 1)}
_TRAINER: _Schema = {
    3: ("model_type", _INT, 1),
    24: ("treat_whitespace_as_suffix", _BOOL, False),
    35: ("byte_fallback", _BOOL, False),
    44: ("unk_surface", _STRING, " \u2047 "),
    45: ("unk_piece", _STRING, "<unk>"),
    46: ("bos_piece", _STRING, "<s>"),
    47: ("eos_piece", _STRING, "</s>"),
    48: ("pad_piece", _STRING, "<pad>"),
}
_CHARSMAP: _Schema = {2: ("precompiled_charsmap", _RAW, b"")}
_NORMALIZER: _Schema = {
    **_CHARSMAP,
    3: ("add_dummy_prefix", _BOOL, True),
    4: ("remove_extra_whitespaces", _BOOL, True),
    5: ("escape_whitespaces", _BOOL, True),
}
_SPECS: dict[int, tuple[str, _Schema]] = {
    2: ("trainer_spec", _TRAINER),
    3: ("normalizer_spec", _NORMALIZER),
    5: ("denormalizer_spec", _CHARSMAP),
}


def _defaults(schema: _Schema) -> dict[str, Any]:
    return {name: default for name, _, default in schema.values()}


def _message(data: bytes, schema: _Schema) -> dict[str, Any]:
    """Read those fields of a message that are in a schema; of repeated ones the last."""
    found: dict[str, Any] = {}
    for number, kind, value in _fields(data):
        if number in schema:
            name, (make, expected), _ = schema[number]
            if kind != expected:
                raise _DamagedError(f"{name}: expected a field of kind {expected}, got {kind}")
            found[name] = make(value)
    return found


# -- The model ----------------------------------------------------------------

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}


class _Piece(NamedTuple):
    text: str
    score: float
    type: int


class Model(NamedTuple):
    """The content of a file."""

    path: Path
    pieces: list[_Piece]
    trainer: dict[str, Any]
    normalizer: dict[str, Any]

    def of_type(self, *types: int) -> list[str]:
        """Return the pieces of some types."""
        return [piece.text for piece in self.pieces if piece.type in types]


def read_model(path: Path) -> Model:
    """Read the content of a file; a FileFormatError names what is damaged or not supported."""
    data = read_bytes(path, _MAX_BYTES)
    specs = {name: _defaults(schema) for name, schema in _SPECS.values()}
    pieces: list[_Piece] = []
    taken: set[str] = set()
    place = ""
    try:
        for number, kind, value in _fields(data):
            if number not in (1, *_SPECS):
                continue
            place, schema = _SPECS.get(number) or (f"pieces[{len(pieces)}]", _PIECE)
            if kind != _BYTES:
                raise _DamagedError(f"expected a message, got a field of kind {kind}")
            if number != 1:
                specs[place].update(_message(value, schema))
            else:
                piece = _Piece(*{**_defaults(_PIECE), **_message(value, _PIECE)}.values())
                _check_piece(piece, taken, len(pieces))
                taken.add(piece.text)
                pieces.append(piece)
            place = ""
    except _DamagedError as error:
        raise FileFormatError(path, place, f"{error}: not a valid SentencePiece model") from None
    model = Model(path, pieces, specs["trainer_spec"], specs["normalizer_spec"])
    _check_model(model, specs["denormalizer_spec"])
    return model


def is_byte(piece: str) -> bool:
    """Return True if a piece is written like a byte."""
    return bool(re.fullmatch("<0x[0-9A-F]{2}>", piece))


def _check_piece(piece: _Piece, taken: set[str], id_: int) -> None:
    """Raise for a piece that SentencePiece would not load, or that is not exact here."""
    text = piece.text
    if id_ >= _MAX_PIECES:
        raise _DamagedError(f"there are more than {_MAX_PIECES:,} pieces")
    if not text:
        raise _DamagedError("the piece is empty")
    if not NORMAL <= piece.type <= BYTE:
        raise _DamagedError(f"the type is {piece.type}, expected 1 to 6")
    if "\0" in text:  # without byte_fallback it loads no such model; with it, text becomes <0x00>
        problem = f"{core.shorten(text)} has a null character"
        raise _DamagedError(f"{problem}; SentencePiece rejects such a piece or never uses it")
    if text in taken:
        raise _DamagedError(f"{core.shorten(text)} appears twice")
    if len(text) > _MAX_PIECE_LENGTH:
        raise _DamagedError(f"{len(text):,} characters; the limit is {_MAX_PIECE_LENGTH:,}")
    if piece.type == BYTE and not is_byte(text):
        raise _DamagedError(f"expected a byte such as <0x0A>, got {core.shorten(text)}")
    if len(text) == 1 and piece.type in (UNKNOWN, CONTROL):
        raise _DamagedError(
            f"{text!r} is a control symbol of one character, which text could contain"
        )


def _check_model(model: Model, denormalizer: Mapping[str, Any]) -> None:
    """Raise if the model is damaged or not supported."""

    def error(field: str, problem: str) -> FileFormatError:
        return FileFormatError(model.path, field, problem)

    kind = model.trainer["model_type"]
    if _MODEL_TYPES.get(kind) != "BPE":
        named = _MODEL_TYPES.get(kind, str(kind))
        raise error("trainer_spec.model_type", f"expected BPE, got {named}; only BPE is read")
    if denormalizer["precompiled_charsmap"]:
        raise error("denormalizer_spec", "changing text after decoding is not supported")
    unknown = model.of_type(UNKNOWN)
    if len(unknown) != 1:
        raise error("pieces", f"expected one of type UNKNOWN, got {len(unknown)}")
    n_bytes = len(model.of_type(BYTE))
    expected = 256 if model.trainer["byte_fallback"] else 0
    if n_bytes != expected:
        raise error("pieces", f"expected {expected} of type BYTE by byte_fallback, got {n_bytes}")


def _merges(model: Model) -> list[tuple[str, str]]:
    """Find the merges that join as the scores do."""
    joined = (NORMAL, UNUSED)
    scores = {piece.text: piece.score for piece in model.pieces if piece.type in joined}
    # SentencePiece splits an unused piece again, unless it is one character.
    usable = {p.text for p in model.pieces if p.type != UNUSED or len(p.text) == 1}
    try:
        return merges_by_score(scores, model.of_type(USER_DEFINED), usable)
    except ValueError as error:
        raise FileFormatError(model.path, "pieces", str(error)) from None


# -- Normalization: the character map -----------------------------------------

_Step = tuple[str | None, int]  # the replacement of all before here, the next state


class _CharacterMap:
    """A precompiled character map, as an automaton that reads characters.

    Layout: the size of the trie in bytes (32 bits, little-endian), the trie, then the
    replacements, each ended by a zero byte.  The trie is an array of 32-bit units:

        bits 0-7   label: the byte that leads here; with bit 31 set it is a value instead
        bit 8      a value is here: in the unit that a zero byte leads to
        bits 10-   offset, in steps of 256 where bit 9 is set

    From the unit at i, the byte b leads to the unit at ``i ^ offset ^ b`` if that has the
    label b.  So only ``i ^ offset`` counts: the state.  Keys share their ends: nmt_nfkc has
    225,000 keys, but only 28,000 steps from a state by a character.

    Cost: 0.1 seconds for nmt_nfkc.
    """

    def __init__(self, charsmap: bytes) -> None:
        self.steps: dict[int, dict[str, _Step]] = {0: {}}  # state -> character -> step
        self.start = 0  # the first state
        if len(charsmap) > _MAX_CHARSMAP_BYTES:
            limit = f"the limit is {_MAX_CHARSMAP_BYTES:,}"
            raise ValueError(f"a character map of {len(charsmap):,} bytes, {limit}")
        if not charsmap:
            return
        size = int.from_bytes(charsmap[:4], "little")
        if not 4 <= size < len(charsmap) - 4:
            raise ValueError(f"a trie of {size:,} bytes in a character map of {len(charsmap):,}")
        self._units = struct.unpack_from(f"<{size // 4}I", charsmap, 4)
        self._strings = charsmap[4 + size :]
        self._bytes: dict[tuple[int, int], list[int]] = {}  # those that lead on from a state
        for i, unit in enumerate(self._units):
            if not unit >> 31:  # i is state ^ byte
                self._bytes.setdefault((i >> 8, (i ^ unit) & 0xFF), []).append(unit & 0xFF)
        self.start = _offset(self._units[0])
        self._read_steps()
        del self._units, self._strings, self._bytes

    def _read_steps(self) -> None:
        self.steps = {}
        n_steps, waiting = 0, [self.start]
        while waiting:
            state = waiting.pop()
            if state not in self.steps:
                limit = _MAX_STEPS - n_steps + 1
                steps = dict(itertools.islice(self._steps_from(state), limit))
                self.steps[state] = steps
                n_steps += len(steps)
                if n_steps > _MAX_STEPS:
                    raise ValueError("the trie of the character map is too large")
                waiting += [after for _, after in steps.values()]
        graph = {
            state: {after for _, after in steps.values()} for state, steps in self.steps.items()
        }
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError:
            raise ValueError("the trie of the character map loops") from None

    def _steps_from(self, state: int) -> Iterator[tuple[str, _Step]]:
        """Follow the trie through the bytes of one character, on every path."""
        ways = [(b"", state)]
        while ways:
            done, here = ways.pop()
            for byte in self._bytes.get((here >> 8, here & 0xFF), ()):
                key = done + bytes([byte])
                missing = _bytes_missing(key)
                if missing < 0:
                    continue  # in no text
                unit = self._units[here ^ byte]
                after = here ^ byte ^ _offset(unit)
                if after >= len(self._units):
                    raise ValueError("the trie of the character map points outside itself")
                has_value = unit >> 8 & 1
                if missing and has_value:
                    raise ValueError("the character map replaces part of a character")
                if missing:
                    ways.append((key, after))
                else:
                    yield _utf8(key), (self._replacement(after) if has_value else None, after)

    def _replacement(self, state: int) -> str:
        start = self._units[state] & 0x7FFFFFFF
        if start >= len(self._strings):
            raise ValueError("the character map points to a replacement that doesn't exist")
        end = self._strings.find(b"\0", start)
        return _utf8(self._strings[start : end if end >= 0 else len(self._strings)])

    def longest(self, text: str, start: int) -> tuple[int, str] | None:
        """Return the end of the longest key at a place, and what replaces it."""
        found = None
        state = self.start
        for i in range(start, len(text)):
            step = self.steps[state].get(text[i])
            if step is None:
                break
            new, state = step
            if new is not None:
                found = i + 1, new
        return found


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)


def _bytes_missing(begun: bytes) -> int:
    """Count the bytes that a UTF-8 character still lacks; -1 if it is invalid."""
    try:
        begun.decode()
        return 0
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return -1
        first = begun[0]
        return (2 if first < 0xE0 else 3 if first < 0xF0 else 4) - len(begun)


def _utf8(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the character map contains invalid UTF-8: {core.shorten(raw)}") from None


@functools.lru_cache(maxsize=4)
def _character_map(charsmap: str) -> _CharacterMap:
    """Read a character map in base64."""
    try:
        raw = base64.b64decode(charsmap, validate=True)
    except ValueError:
        raise ValueError("the character map is not base64") from None
    return _CharacterMap(raw)


class _Finder:
    """Finds the matches of the character map and the user-defined symbols in a text."""

    def __init__(self, charsmap: _CharacterMap, user_defined: list[str]) -> None:
        self._map = charsmap
        self._symbols = frozenset(user_defined)
        self._lengths: dict[str, list[int]] = {}  # by first character, the longest first
        for symbol in sorted(self._symbols, key=len, reverse=True):
            self._lengths.setdefault(symbol[0], []).append(len(symbol))
        # Only a few characters can begin a match; `re` finds them fast.
        steps = charsmap.steps
        first = steps[charsmap.start]
        alone = {char for char, (new, _) in first.items() if new is not None}
        seconds = {char for _, state in first.values() for char in steps[state]}
        begins = _any_of(alone | self._lengths.keys())
        self._starts = re.compile(f"{begins}|{_any_of(first.keys() - alone)}(?={_any_of(seconds)})")
        news = {new for step in steps.values() for new, _ in step.values() if new}
        self.has_double_space = any("  " in text for text in (*news, *user_defined))

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, replacement) from left to right, the longest match at each place."""
        done = 0
        for found in self._starts.finditer(text):
            start = found.start()
            if start < done:
                continue
            for length in self._lengths.get(text[start], ()):
                symbol = text[start : start + length]
                if symbol in self._symbols:
                    done = start + len(symbol)  # at the end of the text, a slice is shorter
                    yield start, done, symbol
                    break
            else:
                replaced = self._map.longest(text, start)
                if replaced:
                    done, new = replaced
                    yield start, done, new


def _any_of(chars: Iterable[str]) -> str:
    written = "".join(map(re.escape, sorted(chars)))
    return f"[{written}]" if written else "(?!)"


# -- Normalization: white space -----------------------------------------------

_FLAGS = (
    "add_dummy_prefix",
    "remove_extra_whitespaces",
    "escape_whitespaces",
    "treat_whitespace_as_suffix",
)


class Normalizer:
    """Normalizes text as SentencePiece does.

    The component has "charsmap", a precompiled character map in base64; the flags of `_FLAGS`; and
    "user_defined", symbols that stay as they are.

    >>> Normalizer({"charsmap": "", "user_defined": [], "add_dummy_prefix": True,
    ...             "remove_extra_whitespaces": True, "escape_whitespaces": True,
    ...             "treat_whitespace_as_suffix": False}).align(" a  b ")
    ('▁a▁b', [(1, 1), (1, 2), (2, 4), (4, 5)])
    """

    def __init__(self, component: Mapping[str, Any]) -> None:
        charsmap, symbols = component.get("charsmap"), component.get("user_defined")
        flags = [component.get(flag) for flag in _FLAGS]
        if not isinstance(charsmap, str):
            raise ValueError(f"charsmap: expected a string, got {core.shorten(charsmap)}")
        if not (isinstance(symbols, list) and all(isinstance(s, str) and s for s in symbols)):
            raise ValueError(f"user_defined: expected a list of texts, got {core.shorten(symbols)}")
        if not all(isinstance(flag, bool) for flag in flags):
            raise ValueError(f"{', '.join(_FLAGS)}: expected true or false, got {flags}")
        prefix, self._remove, escape, suffix = flags
        self._space = SPACE if escape else " "
        self._before = self._space if prefix and not suffix else ""
        self._after = self._space if prefix and suffix else ""
        self._finder = _Finder(_character_map(charsmap), symbols)

    def __call__(self, text: str) -> str:
        """Normalize a text."""
        if not text or (self._remove and self._finder.has_double_space):
            return self.align(text)[0]
        parts: list[str] = []
        done = 0
        for start, end, new in self._finder.find(text):
            parts += text[done:start], new
            done = end
        parts.append(text[done:])
        new = "".join(parts)
        if self._remove:
            new = " ".join(filter(None, new.split(" ")))
            if not new:  # nothing but white space, or nothing at all
                return self.align(text)[0]
        new = self._before + new.replace(" ", self._space)
        return (new.rstrip(self._space) if self._remove else new) + self._after

    def prefix_of(self, text: str) -> str | None:
        """Return the prefix of a text, if each space becomes "▁" and nothing else changes."""
        ends = (" ", self._space)
        trims = self._remove and (text[:1] == " " or text[-1:] in ends or "  " in text)
        if not text or trims or self._after or next(self._finder.find(text), None):
            return None
        return self._before

    def align(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """Normalize a text; also return where each character comes from.

        A character's (start, end) reaches to the start of the next one, as in
        SentencePiece's own offsets; that of the prefix or suffix is empty.
        """
        chars, starts = self.starts(text)
        return "".join(chars), list(itertools.pairwise(starts))

    def starts(self, text: str) -> tuple[list[str], list[int]]:
        """Normalize a text; return its characters, where each comes from, and the end.

        There is no end if the text has only spaces that are removed.
        """
        pieces = list(self._pieces(text))
        first = 0
        while self._remove and first < len(pieces) and pieces[first][2] == " ":
            first += 1
        if first == len(pieces):
            return [], []
        end = pieces[first][0]
        chars, starts = list(self._before), [end] * len(self._before)
        after_space = self._remove
        for start, end, new in pieces[first:]:  # noqa: B007 (the last end is used below)
            kept = new.lstrip(" ") if after_space else new
            if kept:
                chars += kept.replace(" ", self._space)
                starts += [start] * len(kept)
                after_space = self._remove and kept.endswith(" ")
        while self._remove and chars and chars[-1] == self._space:
            chars.pop()
            end = starts.pop()
        chars += self._after
        starts += [end] * len(self._after)
        return chars, [*starts, end]

    def _pieces(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Cut a text into the matches of `_Finder.find` and the single characters between them."""
        done = 0
        for start, end, new in (*self._finder.find(text), (len(text), 0, "")):
            yield from ((i, i + 1, text[i]) for i in range(done, start))
            if end:
                yield start, end, new
            done = end


# -- In the common form -------------------------------------------------------


def matches(path: Path, head: bytes) -> bool:
    """Recognize a SentencePiece model by its first piece, if that is whole."""
    try:
        size, at = _varint(head, 1, len(head))
        first = head[at : at + size]
        piece = _message(first, _PIECE).get("piece") if len(first) == size else None
        return head[:1] == b"\x0a" and bool(piece)
    except _DamagedError:
        return False


def read(
    path: Path, split_pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Source:
    """Read a SentencePiece model, and the files that transformers puts beside it."""
    if split_pattern is not None:
        raise ValueError(f"{path}: a SentencePiece model takes no split pattern; leave it out")
    model = read_model(path)
    found = beside.read(path)
    kind = _class_of(found)
    if kind == GENERIC:
        model = _renamed(model, found)
    named = _roles(model, found, kind)
    pieces = {piece.text: id_ for id_, piece in enumerate(model.pieces)}
    more = [AddedToken(text) for text in _CODE_LLAMA if kind == "CodeLlamaTokenizer"]
    declared = _as_declared(beside.declared(found, named, special_tokens), model, found, kind)
    numbered = beside.number([*declared, *more], pieces)
    beside.check_given(path, special_tokens, numbered)
    added = _added_tokens(model, numbered)
    prefix = _prefix(model, found, kind)
    tokenizer = core.tokenizer_layout(
        {
            "unk_token": model.of_type(UNKNOWN)[0],
            "fuse_unk": True,
            "byte_fallback": model.trainer["byte_fallback"],
            # With the added tokens, so that each keeps its id (see `Source`).
            "vocab": {**pieces, **{token.content: token.id for token in added.values()}},
            "merges": _merges(model),
        },
        sorted(added.values(), key=lambda token: token.id or 0),
        {
            "normalizer": _normalizer(model, prefix),
            "pre_tokenizer": _PRE_TOKENIZERS.get(prefix),
            "post_processor": beside.around(found, named, added, bos=kind == "CodeLlamaTokenizer"),
            "decoder": _decoder(model, prefix != "never", surface=not found.speaks),
        },
    )
    return Source(tokenizer, named, found.settings, found.side.templates)


# -- What the class changes -----------------------------------------------------
# A class of transformers has default roles, and decides where the dummy prefix goes:
#   "every"   before each piece of text between added tokens, as SentencePiece does with a text
#   "missing" the same, unless the piece of text begins with a space
#   "first"   at the start of the text, unless it begins with a space or an added token
#   "never"

_LLAMA_ROLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_DEFAULT_ROLES = {
    "LlamaTokenizer": _LLAMA_ROLES,
    "CodeLlamaTokenizer": _LLAMA_ROLES,
    "GemmaTokenizer": {
        **{"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>"},
        **{"pad_token": "<pad>", "mask_token": "<mask>"},
    },
}
_CODE_LLAMA = ("\u2581<PRE>", "\u2581<MID>", "\u2581<SUF>", "\u2581<EOT>", "<FILL_ME>")


def _metaspace(scheme: str) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": False}


_PRE_TOKENIZERS = {"first": _metaspace("first"), "missing": _metaspace("always")}


def _class_of(found: beside.Beside) -> str:
    """Return the class of transformers that loads the directory, if its rules are known."""
    kind = found.named.loaded_as
    if kind == GENERIC or kind in _DEFAULT_ROLES:
        return kind
    known = ", ".join(_DEFAULT_ROLES)
    raise found.config.error(
        f"{kind} gives other ids than the SentencePiece model, in ways that aren't known here; "
        f"known are {known}, and names that transformers doesn't know; to get the ids of the "
        "model itself, load it from a directory of its own",
        "tokenizer_class",
    )


def _roles(model: Model, found: beside.Beside, kind: str) -> dict[str, str]:
    """Return the roles that the files name, the class has, or the model has."""
    own = roles(model)
    if found.speaks:
        own.pop("pad_token", None)  # transformers doesn't ask the model for it
    return found.roles(_DEFAULT_ROLES.get(kind, own))


def _prefix(model: Model, found: beside.Beside, kind: str) -> str:
    """Return where the dummy prefix goes, as one of the words above."""
    by_model: bool = model.normalizer["add_dummy_prefix"]
    legacy = found.flag("legacy", kind == GENERIC)
    if kind == "GemmaTokenizer":
        return "never"
    if kind == GENERIC:
        where = "every" if legacy else "first"
    else:
        asked = found.flag("add_prefix_space")
        by_model = by_model if asked is None else asked
        where = "missing" if legacy and kind == "LlamaTokenizer" else "first"
    if not by_model:
        return "never"
    suffix = model.trainer["treat_whitespace_as_suffix"]
    if suffix and "legacy" not in found.config.data:
        return "every"  # nothing asks for another place
    # With symbols, it would also go before a symbol that begins the text.
    symbols = kind == GENERIC and where == "first" and model.of_type(USER_DEFINED)
    if where != "every" and (suffix or symbols):
        what = "user-defined symbols" if symbols else "white space as a suffix"
        raise found.config.error(
            "asks for a space before the first text only, which isn't supported for a model with "
            f"{what}; set it to true, or load the model from a directory of its own",
            "legacy",
        )
    return where


def _as_declared(
    declared: Iterable[AddedToken], model: Model, found: beside.Beside, kind: str
) -> Iterator[AddedToken]:
    """Yield the declared tokens as transformers adds them to a SentencePiece model."""
    passed_over = _passed_over(found)
    # There, a prefix comes after each token, so all are found in the text as given.
    as_given = kind == GENERIC and model.normalizer["add_dummy_prefix"]
    without_id: list[str] = []
    known = {piece.text for piece in model.pieces}
    for token in declared:
        if token.content in passed_over and token.content not in known:
            if token.id is None:
                without_id.append(token.content)
                continue
            token = dataclasses.replace(token, special=False, normalized=True)
        if as_given and token.id is not None:
            token = dataclasses.replace(token, normalized=False)
        yield token
    if without_id:
        shown = ", ".join(map(core.shorten, without_id[:5]))
        core.warn(
            f"{found.config.path.with_name('special_tokens_map.json')}: additional_special_tokens: "
            f"no file gives {shown} an id, and the model has no such piece, so these are ordinary "
            "text, as in transformers"
        )


def _passed_over(found: beside.Beside) -> set[str]:
    """Return the tokens that only additional_special_tokens of special_tokens_map.json lists.

    transformers 5 uses the model's own control symbols instead of that list.
    """
    side, lists = found.side, ("extra_special_tokens", "additional_special_tokens")
    if side.names is None or side.has_decoder or isinstance(side.names.data.get(lists[0]), list):
        return set()
    if any(isinstance(found.config.data.get(key), list) for key in lists):
        return set()
    return set(side.further) - {*side.roles.values(), *side.named.values()}


def _renamed(model: Model, found: beside.Beside) -> Model:
    """Give pieces the names that added_tokens_decoder has for their ids."""
    declared = {token.id: token.content for token in found.side.tokens.values()}
    kept = {piece.text for id_, piece in enumerate(model.pieces) if id_ not in declared}
    pieces = list(model.pieces)
    for id_, text in declared.items() if found.side.has_decoder else ():
        if id_ is None or id_ >= len(pieces) or text in kept or text == pieces[id_].text:
            continue
        if pieces[id_].type == NORMAL:
            raise found.config.error(
                f"gives the name {core.shorten(text)} to the ordinary piece "
                f"{core.shorten(pieces[id_].text)}, which isn't supported",
                f"added_tokens_decoder.{id_}",
            )
        pieces[id_] = pieces[id_]._replace(text=text)
    return model._replace(pieces=pieces)


def roles(model: Model) -> dict[str, str]:
    """Return the pieces to which trainer_spec gives a role, if they exist."""
    special = set(model.of_type(CONTROL))
    named = {f"{role}_token": model.trainer[f"{role}_piece"] for role in ("bos", "eos", "pad")}
    roles = {role: text for role, text in named.items() if text in special}
    return {**roles, "unk_token": model.of_type(UNKNOWN)[0]}


def _added_tokens(model: Model, declared: Mapping[str, AddedToken]) -> dict[str, AddedToken]:
    """Return control symbols, user-defined ones, and those that other files declare.

    SentencePiece finds user-defined symbols in normalized text.
    """
    found = {}
    for id_, (text, _, kind) in enumerate(model.pieces):
        if kind in (UNKNOWN, CONTROL, USER_DEFINED):
            defined = kind == USER_DEFINED
            found[text] = AddedToken(text, id_, normalized=defined, special=not defined)
    for text, token in declared.items():
        if text in found and found[text].normalized and not token.special:
            token = dataclasses.replace(token, normalized=True)
        found[text] = token
    return found


def own_normalizer(model: Model) -> dict[str, Any]:
    """Return the normalization as a component that `Normalizer` runs."""
    given = model.normalizer
    return {
        "type": "SentencePiece",
        "charsmap": base64.b64encode(given["precompiled_charsmap"]).decode(),
        **{flag: given.get(flag, model.trainer.get(flag)) for flag in _FLAGS},
        "user_defined": model.of_type(USER_DEFINED),
    }


def normalizer_of(model: Model) -> dict[str, Any] | None:
    """Return the normalization, as tokenizer.json components if possible."""
    return _normalizer(model, "every" if model.normalizer["add_dummy_prefix"] else "never")


def _normalizer(model: Model, prefix: str) -> dict[str, Any] | None:
    """Return the normalization; of all prefixes, "every" is a part of it."""
    symbols, own = model.of_type(USER_DEFINED), own_normalizer(model)
    own["add_dummy_prefix"] = prefix == "every"
    try:
        normalizer = Normalizer(own)
    except ValueError as error:
        field = "normalizer_spec.precompiled_charsmap"
        raise FileFormatError(model.path, field, str(error)) from None
    exact = not own["charsmap"] and own["escape_whitespaces"]
    if not exact or (own["treat_whitespace_as_suffix"] and own["add_dummy_prefix"]):
        return own
    # tokenizers puts no prefix before text whose leading spaces were removed.
    if own["remove_extra_whitespaces"] and prefix == "first":
        return own
    # HuggingFace normalizes added tokens too, before finding them.
    if any(normalizer(symbol) != symbol for symbol in symbols):
        return own
    steps: list[dict[str, Any]] = []
    removes = own["remove_extra_whitespaces"]
    if removes:
        steps += _replace("Regex", " {2,}", " "), _replace("Regex", r"\A ", "")
    if own["add_dummy_prefix"]:
        steps.append({"type": "Prepend", "prepend": SPACE})
    steps.append(_replace("String", " ", SPACE))
    if removes:  # runs are matched from their start only: linear
        steps.append(_replace("Regex", rf"(?<!{SPACE}){SPACE}+\z", ""))
    return {"type": "Sequence", "normalizers": steps}


def _replace(kind: str, pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def _decoder(model: Model, strips: bool, surface: bool) -> dict[str, Any]:
    """Return how pieces become text.

    `strips`: the prefix of a text goes.  `surface`: the unknown piece becomes what the model says;
    in the directories of transformers, it stays as it is.

    SentencePiece removes a "▁" from the start of a piece: of the first one or, with
    remove_extra_whitespaces, of each until there is text.  So of "▁▁" only one goes.  The
    texts of the unknown piece and of byte pieces keep their spaces.
    """
    steps = []
    unknown = model.of_type(UNKNOWN)[0]
    if surface and sum(unknown in piece.text for piece in model.pieces) == 1:
        steps.append(_replace("String", unknown, model.trainer["unk_surface"]))
    strip = int(strips)
    if model.normalizer["remove_extra_whitespaces"]:
        strip = _MAX_STRIPPED
        if any(SPACE * 2 in piece.text for piece in model.pieces):
            steps.append(_replace("String", SPACE * 2, SPACE + " "))
    if model.trainer["byte_fallback"]:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if strip:
        steps.append({"type": "Strip", "content": SPACE, "start": strip, "stop": 0})
    steps.append(_replace("String", SPACE, " "))
    return {"type": "Sequence", "decoders": steps}
