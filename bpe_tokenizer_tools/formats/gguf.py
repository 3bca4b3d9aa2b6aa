"""GGUF: the tokenizer inside a model file of llama.cpp.

A GGUF file begins with a header, little-endian throughout:

    "GGUF"  version u32  number of tensors u64  number of keys u64
    for each key:  its name, the type of its value u32, the value
    the names, shapes and offsets of the tensors, then their data

A string is its length u64 and that many bytes of UTF-8.  An array is the type of
its elements u32, their number u64, and the elements; arrays of arrays are allowed.
The tokenizer is in keys that begin with ``tokenizer.``.  Only the keys are read, from beginning
to end, and only the needed ones are kept.  A length is checked against the rest of the file
before it is used.

``tokenizer.ggml.model`` gives its kind:

- "gpt2": byte-level BPE.  Tokens and merges are in the printable byte alphabet; the
  split pattern is only named (``tokenizer.ggml.pre``), see `families`.
- "llama": SentencePiece's BPE, without merges.  Of all adjacent pieces, it joins the two whose
  joined piece has the highest score; the leftmost if scores are equal.
- "gemma4": merges over characters, with "▁" for a space.

Tokens have types: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
Control tokens are special tokens here; user-defined ones are added tokens that are
found in any text, before normalization, as llama.cpp does.

Where llama.cpp only approximates a model's own tokenizer, we follow the model:

- Split patterns and NFC are those of the model (see `families`).
- Control tokens are never made from parts of text.
- Of added tokens that overlap in a text, the leftmost counts, not the longest.
- If the file says whether a text gets a bos token, that counts: for Gemma 4, llama.cpp
  adds one even if it says no.

Source: github.com/ggml-org/ggml, docs/gguf.md; llama.cpp, src/llama-vocab.cpp.
"""

from __future__ import annotations

import array
import functools
import itertools
import struct
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from bpe_tokenizer import GPT2_SPLIT_PATTERN, AddedToken, BPETokenizer, Definition, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.core import shorten
from bpe_tokenizer_tools.formats import Contents, Source, SpecialTokens, beside, lost, surrounding
from bpe_tokenizer_tools.formats.ranks import merges_by_score
from bpe_tokenizer_tools.patterns.families import BYTES, FAMILIES, Component, Family, pattern_steps
from bpe_tokenizer_tools.patterns.known import IN_ONE_STEP, SPELLINGS
from bpe_tokenizer_tools.patterns.oniguruma import from_oniguruma, to_oniguruma

_MAGIC = b"GGUF"
_MAX_KEYS = 2**16  # models have about 50
_MAX_STRINGS = 2**21  # in all arrays together; Gemma 4, the largest in use, has 777,050
_MAX_TOKENS = 2**20
_MAX_KEY_BYTES = 2**16 - 1  # as the format says
_MAX_TEXT_BYTES = 2**24  # a chat template
_MAX_KEPT_BYTES = 2**26  # Gemma 4 has 11 MB of strings
_MAX_DEPTH = 4  # of arrays within arrays; llama.cpp reads none of them

_STRING, _ARRAY, _BOOL, _FLOAT32, _INT32, _UINT32 = 8, 9, 7, 6, 5, 4
# The types of numbers, by their codes; 8 and 9 are strings and arrays.
_NUMBERS = {i: struct.Struct(f"<{code}") for i, code in enumerate("BbHhIifB--Qqd") if code != "-"}
_U64 = _NUMBERS[10]
_U32 = _NUMBERS[_UINT32]

_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 2, 3, 4, 5, 6  # token types; normal is 1
_NONE_ID = 2**32 - 1  # some converters write this for "no such token"

_ROLE_KEYS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}
_TOKENS_KEY, _TYPES_KEY = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
_TEMPLATE_KEY = "tokenizer.chat_template"  # the default; named ones end in .NAME
_TEMPLATE_NAMES_KEY = "tokenizer.chat_templates"
# This library's own key: the normalizer, if it is not the named family's.
_NORMALIZER_KEY = "bpe_tokenizer.normalizer"
_KEPT_KEYS = {
    *(f"tokenizer.ggml.{name}" for name in ("model", "pre", "tokens", "scores", "token_type")),
    *(f"tokenizer.ggml.{name}" for name in ("merges", "eot_token_id", "add_bos_token")),
    *(f"tokenizer.ggml.{name}" for name in ("add_eos_token", "add_space_prefix")),
    "tokenizer.ggml.remove_extra_whitespaces",
    *_ROLE_KEYS.values(),
    _TEMPLATE_KEY,
    _NORMALIZER_KEY,
}


# -- The header ---------------------------------------------------------------


class _Value(NamedTuple):
    """The value of a key: a type above, or 9 and the type of a list's elements."""

    kind: int
    data: Any
    element: int = -1


class _HeaderReader:
    """Reads a header from a file, from front to back; nothing in it is trusted."""

    def __init__(self, file: IO[bytes], path: Path, size: int) -> None:
        self._file, self._path = file, path
        self._left = size  # bytes of the file that follow
        self._strings, self._kept = 0, 0
        self.field = ""  # the key being read, for messages

    def error(self, problem: str) -> FileFormatError:
        return FileFormatError(self._path, self.field, problem)

    def check(self, size: int, what: str) -> None:
        """Raise if something needs more bytes than the rest of the file has."""
        if size > self._left:
            raise self.error(
                f"{what} needs {size:,} bytes, but only {self._left:,} are left; the file is "
                "damaged or cut short"
            )

    def take(self, size: int, what: str) -> bytes:
        self.check(size, what)
        taken = self._file.read(size)
        if len(taken) < size:
            raise self.error("the file was cut short while it was being read")
        self._left -= size
        return taken

    def skip(self, size: int, what: str) -> None:
        """Skip bytes without reading them."""
        self.check(size, what)
        self._file.seek(size, 1)
        self._left -= size

    def unsigned(self, form: struct.Struct, what: str) -> int:
        return int(form.unpack(self.take(form.size, what))[0])

    def string(self, limit: int, what: str) -> str:
        size = self.unsigned(_U64, what)
        if size > limit:
            self.check(size, what)
            raise self.error(f"{what} of {size:,} bytes; the limit is {limit:,}")
        self._kept += size
        if self._kept > _MAX_KEPT_BYTES:
            raise self.error(f"more than {_MAX_KEPT_BYTES:,} bytes of text")
        try:
            return self.take(size, what).decode()
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not UTF-8: {error}") from None

    def value(self, kind: int) -> _Value:
        """Return the next value, of any type but an array of arrays."""
        if kind == _STRING:
            return _Value(kind, self.string(_MAX_TEXT_BYTES, "a string"))
        if kind == _ARRAY:
            return self._array()
        form = self._form(kind)
        number = form.unpack(self.take(form.size, "a number"))[0]
        if kind == _BOOL and number > 1:
            raise self.error(f"expected 0 or 1 for a boolean, got {number}")
        return _Value(kind, bool(number) if kind == _BOOL else number)

    def _form(self, kind: int) -> struct.Struct:
        if kind not in _NUMBERS:
            raise self.error(f"{kind} is not a type of value; types are 0 to 12")
        return _NUMBERS[kind]

    def _array_head(self) -> tuple[int, int]:
        """Return the type of the elements and their number."""
        element = self.unsigned(_U32, "the type of an array")
        count = self.unsigned(_U64, "the size of an array")
        smallest = {_STRING: 8, _ARRAY: 12}.get(element) or self._form(element).size
        self.check(count * smallest, f"an array of {count:,} elements")
        if element in (_STRING, _ARRAY):
            self._strings += count
            if self._strings > _MAX_STRINGS:
                raise self.error(f"more than {_MAX_STRINGS:,} strings in arrays")
        return element, count

    def _array(self) -> _Value:
        element, count = self._array_head()
        if element == _STRING:
            what = "a string in an array"
            strings = [self.string(_MAX_TEXT_BYTES, what) for _ in range(count)]
            return _Value(_ARRAY, strings, element)
        if element not in (_FLOAT32, _INT32):
            raise self.error(f"an array of type {element} is not expected here")
        if count > _MAX_TOKENS:
            raise self.error(f"{count:,} elements; the limit is {_MAX_TOKENS:,}")
        numbers = array.array("f" if element == _FLOAT32 else "i")
        numbers.frombytes(self.take(4 * count, "an array"))
        if sys.byteorder == "big":
            numbers.byteswap()
        return _Value(_ARRAY, numbers.tolist(), element)

    def pass_over(self, kind: int, depth: int = 0) -> None:
        if kind == _STRING:
            self.skip(self.unsigned(_U64, "a string"), "a string")
        elif kind == _ARRAY:
            if depth == _MAX_DEPTH:
                raise self.error(f"arrays are nested more than {_MAX_DEPTH} deep")
            element, count = self._array_head()
            if element in _NUMBERS:
                self.skip(count * _NUMBERS[element].size, "an array")
            else:
                for _ in range(count):
                    self.pass_over(element, depth + 1)
        else:
            self.skip(self._form(kind).size, "a number")


def _read_header(path: Path) -> dict[str, _Value]:
    def is_kept(key: str) -> bool:
        return key in _KEPT_KEYS or key.startswith(f"{_TEMPLATE_KEY}.")

    with open(path, "rb") as file:
        return read_keys(_HeaderReader(file, path, path.stat().st_size), is_kept)[0]


def read_keys(
    reader: _HeaderReader, is_wanted: Callable[[str], bool]
) -> tuple[dict[str, _Value], int]:
    """Return the wanted keys, and how many tensors follow."""
    if reader.take(4, "the header") != _MAGIC:
        raise reader.error(f"does not begin with {_MAGIC!r}, as GGUF files do")
    version = reader.unsigned(_U32, "the version")
    if version not in (2, 3):
        reader.field = "version"
        if version in (2 << 24, 3 << 24):
            raise reader.error("big-endian; only little-endian files are read")
        raise reader.error(f"{version} is not supported, only 2 and 3")
    tensors = reader.unsigned(_U64, "the number of tensors")
    reader.check(24 * tensors, f"a list of {tensors:,} tensors")
    count = reader.unsigned(_U64, "the number of keys")
    reader.check(13 * count, f"a list of {count:,} keys")
    if count > _MAX_KEYS:
        raise reader.error(f"{count:,} keys; the limit is {_MAX_KEYS:,}")
    seen: set[str] = set()
    values: dict[str, _Value] = {}
    for i in range(count):
        reader.field = f"key {i}"
        key = reader.string(_MAX_KEY_BYTES, "the name of a key")
        reader.field = shorten(key)[1:-1]
        if key in seen:
            raise reader.error("is given twice")
        seen.add(key)
        kind = reader.unsigned(_U32, "the type of a value")
        if is_wanted(key):
            values[key] = reader.value(kind)
        else:
            reader.pass_over(kind)
    return values, tensors


# -- The tokenizer in it ------------------------------------------------------


class _Fields:
    """The keys of a header: typed access, errors that name the key."""

    def __init__(self, values: Mapping[str, _Value], path: Path) -> None:
        self._values, self.path = values, path

    def error(self, problem: str, key: str) -> FileFormatError:
        return FileFormatError(self.path, key, problem)

    def text(self, key: str) -> Any:
        """Return a string, or None."""
        return self._get(key, "a string", lambda value: value.kind == _STRING)

    def under(self, prefix: str) -> list[str]:
        return [key for key in self._values if key.startswith(f"{prefix}.")]

    def flag(self, key: str, default: bool) -> bool:
        found = self._get(key, "a boolean", lambda value: value.kind == _BOOL)
        return default if found is None else bool(found)

    def strings(self, key: str) -> Any:
        """Return an array of strings, or None."""
        return self._get(key, "an array of strings", lambda value: value.element == _STRING)

    def numbers(self, key: str, length: int, *elements: int) -> list[Any] | None:
        """Return an array of numbers, as many as there are tokens."""
        what = "an array of " + " or ".join(
            "float32" if e == _FLOAT32 else "int32" for e in elements
        )
        found: list[Any] | None = self._get(key, what, lambda value: value.element in elements)
        if found is not None and len(found) != length:
            raise self.error(f"has {len(found):,} elements for {length:,} tokens", key)
        return found

    def id(self, key: str, count: int) -> int | None:
        """Return the id of a token, if there is one."""
        integers = (0, 1, 2, 3, _UINT32, _INT32, 10, 11)
        found = self._get(key, "an integer", lambda value: value.kind in integers)
        if found is None or found == _NONE_ID:
            return None
        if not 0 <= found < count:
            raise self.error(f"expected an id from 0 to {count - 1}, got {found}", key)
        return int(found)

    def _get(self, key: str, what: str, fits: Any) -> Any:
        value = self._values.get(key)
        if value is None:
            return None
        if not fits(value):
            raise self.error(f"expected {what}, got {shorten(value.data)}", key)
        return value.data


class _Vocabulary:
    """The tokens of a file, sorted by what they are for."""

    def __init__(self, fields: _Fields) -> None:
        key = "tokenizer.ggml.tokens"
        texts = fields.strings(key)
        if not texts:
            raise fields.error("is missing or empty", key)
        if len(texts) > _MAX_TOKENS:
            raise fields.error(f"{len(texts):,} tokens; the limit is {_MAX_TOKENS:,}", key)
        count = len(texts)
        kinds = fields.numbers("tokenizer.ggml.token_type", count, _INT32) or [1] * count
        self.fields, self.size = fields, count  # `size` includes padding tokens
        self.normal: dict[int, str] = {}  # the tokens that text can give, by id
        self.byte_tokens: dict[int, str] = {}  # those for one byte
        self.added: dict[int, AddedToken] = {}  # the added tokens, by id
        self.unused: dict[int, str] = {}  # all others, by id
        ids: dict[str, int] = {}
        for id_, (text, kind) in enumerate(zip(texts, kinds)):
            if text and ids.setdefault(text, id_) != id_:
                raise fields.error(
                    f"{shorten(text)} is both token {ids[text]} and token {id_}", key
                )
            self._sort(id_, text, kind)

    def _sort(self, id_: int, text: str, kind: int) -> None:
        # NOTE: to round a model's size up, older converters gave unused ids names such as
        # "[PAD151646]" and other types.
        padding = text in ("", f"[PAD{id_}]") and kind != _CONTROL
        if padding or kind == _UNUSED:
            self.unused[id_] = text
        elif kind in (_UNKNOWN, _CONTROL, _USER_DEFINED):
            self.add(id_, text, kind != _USER_DEFINED)
        elif kind == _BYTE:
            self.byte_tokens[id_] = text
        else:
            self.normal[id_] = text

    def add(self, id_: int, text: str, special: bool) -> None:
        self.added[id_] = AddedToken(text, id_, special=special, normalized=False)

    def role(self, key: str, made: Container[str], default: int | None) -> AddedToken | None:
        """Return the added token whose id a key holds.

        A token of the type "normal" counts if no text encodes to it: some converters give roles
        to such tokens.  Others, if a model has no token for a role, write the id of an ordinary
        one, such as 0; it gets no role, because decoding would lose it.
        """
        id_ = self.fields.id(key, self.size)
        if id_ is None:
            return self.added.get(default) if default is not None else None
        text = self.normal.get(id_)
        if text and len(text) > 1 and text.isascii() and text not in made:
            self.add(id_, self.normal.pop(id_), special=True)
        return self.added.get(id_)

    def ids(self) -> dict[str, int]:
        """Return the ids of all tokens that are used."""
        tokens = {**self.normal, **self.byte_tokens}
        tokens.update((id_, token.content) for id_, token in self.added.items())
        return {text: id_ for id_, text in sorted(tokens.items())}


def matches(path: Path, head: bytes) -> bool:
    """Return True if a file is GGUF."""
    return head[:4] == _MAGIC


def read(
    path: Path, split_pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Source:
    """Read the tokenizer of a GGUF file.

    A `split_pattern`, in `regex` syntax, is for a file that names no pre-tokenizer, or an unknown
    one.  Files of transformers beside it may add tokens, roles and templates that it lacks.
    """
    fields = _Fields(_read_header(path), path)
    model = fields.text("tokenizer.ggml.model")
    if model is None:
        raise fields.error("is missing: there is no tokenizer in this file", "tokenizer.ggml.model")
    if model not in ("gpt2", "llama", "gemma4"):
        raise fields.error(
            f"{shorten(model)} is not supported, only 'gpt2', 'llama' and 'gemma4', which are BPE",
            "tokenizer.ggml.model",
        )
    vocabulary = _Vocabulary(fields)
    family = _family(fields, model, split_pattern)
    merges = _merges_by_score(vocabulary) if model == "llama" else _listed_merges(vocabulary)
    made = {left + right for left, right in merges}
    defaults = _SENTENCEPIECE_ROLES if model == "llama" else {}
    roles = {
        role: vocabulary.role(key, made, defaults.get(role)) for role, key in _ROLE_KEYS.items()
    }
    if family.escapes_spaces:
        parts, options = _escaped(vocabulary, roles["unk_token"], model == "llama")
    else:
        parts, options = _byte_level(vocabulary, family)
    parts["post_processor"] = _post_processor(fields, roles, family)
    named = {role: token.content for role, token in roles.items() if token}
    found = _files_beside(vocabulary, path, special_tokens or {})
    known = {token.content for token in vocabulary.added.values()}
    for role, text in found.side.roles.items() if found else ():
        if text in known:
            named.setdefault(role, text)
    added = [token for _, token in sorted(vocabulary.added.items())]
    templates = _chat_templates(fields)
    return Source(
        core.tokenizer_layout(
            {**options, "vocab": vocabulary.ids(), "merges": merges}, added, parts
        ),
        {role: named[role] for role in core.ROLES if role in named},
        found.settings if found else {},
        templates or (found.side.templates if found else {}),
    )


def _files_beside(
    vocabulary: _Vocabulary, path: Path, given: SpecialTokens
) -> beside.Beside | None:
    """Read the files that transformers puts beside a vocabulary, and add the tokens they declare.

    The file itself is complete, so what it says counts, as in transformers and llama.cpp; the
    others only say more.  Return None if they are of another tokenizer.
    """
    found = beside.read(path)
    ids = vocabulary.ids()
    texts = {id_: text for text, id_ in ids.items()}
    for token in found.side.tokens.values():
        own = ids.get(token.content), texts.get(-1 if token.id is None else token.id)
        if token.id is not None and own not in ((None, None), (token.id, token.content)):
            core.warn(
                f"{path.parent}: its files describe another tokenizer than {path.name}, in which "
                f"{shorten(token.content)} doesn't have id {token.id}; {path.name} alone is read"
            )
            return None
    declared = (token for token in beside.declared(found, {}, given) if token.id is not None)
    numbered = beside.number(declared, ids)
    beside.check_given(path, given, numbered)
    for token in numbered.values():
        if token.content not in ids:
            vocabulary.added[cast("int", token.id)] = token
    return found


def _chat_templates(fields: _Fields) -> dict[str, str]:
    """Read the default chat template, and named ones from keys that end with their names."""
    default, start = fields.text(_TEMPLATE_KEY), len(_TEMPLATE_KEY) + 1
    named = {key[start:]: fields.text(key) or "" for key in fields.under(_TEMPLATE_KEY)}
    if default is None:
        return named
    named.pop("default", None)
    return {"default": default, **named}


_SENTENCEPIECE = Family((), add_bos=True, escapes_spaces=True)
_SENTENCEPIECE_ROLES = {"unk_token": 0, "bos_token": 1, "eos_token": 2}


def _family(fields: _Fields, model: str, split_pattern: str | None) -> Family:
    """Return the family that cuts text like the file's tokenizer."""
    key = "tokenizer.ggml.pre"
    pre = fields.text(key)
    known = {"llama": _SENTENCEPIECE, "gemma4": FAMILIES["gemma4"]}.get(model)
    known = known or FAMILIES.get(pre or "")
    if known and split_pattern is not None:
        raise ValueError(f"{fields.path} carries its own split pattern; leave split_pattern out")
    if known:
        return known
    if split_pattern is None:
        found = "is missing" if pre is None else f"{shorten(pre)} is not known"
        raise fields.error(
            f"{found}, so the split pattern isn't known; pass the one of the model's own tokenizer "
            "as split_pattern",
            key,
        )
    written = to_oniguruma(split_pattern)
    return Family(pattern_steps(split_pattern, written))


def _listed_merges(vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    fields, key = vocabulary.fields, "tokenizer.ggml.merges"
    lines = fields.strings(key)
    if lines is None:
        raise fields.error("is missing", key)
    known = vocabulary.ids().keys()
    # HuggingFace lists each way to make a token from two others; no list repeats one.
    ways = sum(len(token) - 1 for token in known)
    if len(lines) > ways:
        raise fields.error(
            f"{len(lines):,} merges, but there are only {ways:,} ways to join two tokens", key
        )
    merges = []
    for i, line in enumerate(lines):
        left, _, right = line.partition(" ")
        if not left or not right:
            raise fields.error(f"expected two tokens, got {shorten(line)}", f"{key}[{i}]")
        if not (left in known and right in known and left + right in known):
            token = next(token for token in (left, right, left + right) if token not in known)
            raise fields.error(f"{shorten(token)} is not a token of this file", f"{key}[{i}]")
        merges.append((left, right))
    return merges


def _merges_by_score(vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    fields, key = vocabulary.fields, "tokenizer.ggml.scores"
    scores = fields.numbers(key, vocabulary.size, _FLOAT32, _INT32)
    if scores is None:
        raise fields.error("is missing", key)
    joined = {**vocabulary.normal, **vocabulary.unused}
    if any(scores[id_] != scores[id_] for id_ in joined):
        raise fields.error("contains a value that is not a number", key)
    added = vocabulary.added.values()
    # In these files, user-defined tokens have plain spaces.
    symbols = [token.content.replace(" ", "▁") for token in added if not token.special]
    by_text = {text: scores[id_] for id_, text in joined.items()}
    try:
        return merges_by_score(by_text, symbols, set(vocabulary.normal.values()))
    except ValueError as error:
        raise fields.error(str(error), key) from None


def _byte_level(vocabulary: _Vocabulary, family: Family) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts of tokenizer.json, and the model's options, for byte-level BPE."""
    form = vocabulary.fields.text(_NORMALIZER_KEY)
    if form is not None and form not in ("", *core.NORMALIZERS):
        known = ", ".join(core.NORMALIZERS)
        raise vocabulary.fields.error(
            f"expected '' or one of {known}, got {shorten(form)}", _NORMALIZER_KEY
        )
    form = family.normalizer if form is None else form
    parts = {
        "normalizer": {"type": form} if form else None,
        "pre_tokenizer": family.pre_tokenizer(),
        "decoder": BYTES,
    }
    return parts, {"ignore_merges": family.ignore_merges}


def _escaped(
    vocabulary: _Vocabulary, unknown: AddedToken | None, sentencepiece: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts of tokenizer.json, and the model's options, with "▁" for a space."""
    fields = vocabulary.fields
    prefix = sentencepiece and fields.flag("tokenizer.ggml.add_space_prefix", True)
    steps: list[dict[str, Any]] = []
    if sentencepiece and fields.flag("tokenizer.ggml.remove_extra_whitespaces", False):
        extra = {"Regex": r"\A +| +\z|(?<= ) +"}
        steps.append({"type": "Replace", "pattern": extra, "content": ""})
    if prefix:
        steps.append({"type": "Prepend", "prepend": "▁"})
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    fallback = bool(vocabulary.byte_tokens)
    missing = {f"<0x{byte:02X}>" for byte in range(256)} - {*vocabulary.byte_tokens.values()}
    if fallback and missing:
        raise fields.error(
            f"{len(missing)} of the 256 tokens for bytes are missing, such as {min(missing)}",
            "tokenizer.ggml.tokens",
        )
    if not fallback and unknown is None:
        raise fields.error(
            "has no tokens for bytes and no unknown token",
            "tokenizer.ggml.tokens",
        )
    parts = {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
    }
    unk_token = unknown.content if unknown else None
    return parts, {"unk_token": unk_token, "fuse_unk": True, "byte_fallback": fallback}


def _post_processor(
    fields: _Fields, roles: Mapping[str, AddedToken | None], family: Family
) -> dict[str, Any] | None:
    """Return the post-processor that adds the bos token before a text, and eos after it."""
    sides: list[list[AddedToken]] = []
    for name, default in (("bos", family.add_bos), ("eos", False)):
        key = f"tokenizer.ggml.add_{name}_token"
        wanted, token = fields.flag(key, default), roles[f"{name}_token"]
        if wanted and token is None and not default:
            raise fields.error(f"is true, but there is no {name} token", key)
        sides.append([token] if wanted and token else [])
    return surrounding(*sides)


# -- Writing ------------------------------------------------------------------
# llama.cpp accepts only tokens, merges, and the name of a model whose pre-tokenizer and flags
# are built in.  So a tokenizer is written under the name of a model that cuts text by the same
# pattern, or not at all.


def contents(tokenizer: BPETokenizer, path: Path) -> Contents:
    """Write a tokenizer as a GGUF file without weights, which llama.cpp loads.

    llama.cpp never normalizes text, whatever the tokenizer: `formats.contents` refuses a
    normalizer.  Where the name of a model implies one, the file says that there is none.
    """
    _check_no_weights(path)
    values = keys_of(tokenizer)
    head: dict[str, _Value] = {
        "general.architecture": _Value(_STRING, "llama"),
        "general.type": _Value(_STRING, "model"),
        "llama.vocab_size": _Value(_UINT32, len(values[_TOKENS_KEY].data)),
    }
    packed = _MAGIC + struct.pack("<IQQ", 3, 0, len(head) + len(values))
    packed += b"".join(itertools.starmap(pack_key, (head | values).items()))
    return {path: packed + bytes(-len(packed) % 32)}


def keys_of(tokenizer: BPETokenizer) -> dict[str, _Value]:
    """Return the keys that describe a tokenizer; raise ValueError if none can."""
    definition = tokenizer.definition
    name, family = _family_name(definition)
    texts, kinds = _token_lists(definition)
    written = {id_: definition.write(token) for token, id_ in definition.vocab.items()}
    values: dict[str, _Value] = {
        "tokenizer.ggml.model": _Value(_STRING, "gpt2"),
        "tokenizer.ggml.pre": _Value(_STRING, name),
        _TOKENS_KEY: _Value(_ARRAY, texts, _STRING),
        _TYPES_KEY: _Value(_ARRAY, kinds, _INT32),
        "tokenizer.ggml.merges": _Value(
            _ARRAY, [f"{written[a]} {written[b]}" for a, b in definition.merges], _STRING
        ),
    }
    for role, key in _ROLE_KEYS.items():
        id_ = getattr(tokenizer, f"{role}_id")
        if id_ is not None:
            values[key] = _Value(_UINT32, id_)
    ends = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    for side, end, ids in zip(("bos", "eos"), ends, core.around_elsewhere(tokenizer)):
        if ids not in ((), (end,)):
            raise _lost(f"add_special_tokens puts the ids {ids}, not just the {side} token")
        values[f"tokenizer.ggml.add_{side}_token"] = _Value(_BOOL, bool(ids))
    templates = tokenizer.chat_templates
    for name in templates:
        key = _TEMPLATE_KEY if name == "default" else f"{_TEMPLATE_KEY}.{name}"
        values[key] = _Value(_STRING, templates[name])
    named = [name for name in templates if name != "default"]
    if named:
        values[_TEMPLATE_NAMES_KEY] = _Value(_ARRAY, named, _STRING)
    if family.normalizer is not None:
        values[_NORMALIZER_KEY] = _Value(_STRING, "")
    return values


def pad_keys(values: dict[str, _Value], rows: int) -> dict[str, _Value]:
    """Return the keys of a tokenizer with a name for each row of a model, as llama.cpp requires."""
    padding = range(len(values[_TOKENS_KEY].data), rows)
    names, kinds = values[_TOKENS_KEY], values[_TYPES_KEY]
    return {
        **values,
        _TOKENS_KEY: names._replace(data=[*names.data, *(f"[PAD{id_}]" for id_ in padding)]),
        _TYPES_KEY: kinds._replace(data=[*kinds.data, *(_UNUSED for _ in padding)]),
    }


def pack_key(key: str, value: _Value) -> bytes:
    """Return a key and its value in the format of a file."""
    return _pack_string(key) + _pack(value)


def _check_no_weights(path: Path) -> None:
    """Raise if the file is a model: everything but the vocabulary would be lost."""
    if not path.is_file():
        return
    with open(path, "rb") as file:
        head = file.read(16)
    if head[:4] == _MAGIC and any(head[8:]):
        raise ValueError(
            f"{path} contains the weights of a model, which would be lost; choose another name"
        )


def done_otherwise(tokenizer: BPETokenizer) -> list[str]:
    """Describe what llama.cpp does differently with this file, to follow its name."""
    name, family = _family_name(tokenizer.definition)
    return [] if family.in_llama_cpp is None else [_approximation(name, family)]


def warn_if_approximate(tokenizer: BPETokenizer) -> None:
    """Warn the caller of `export` if llama.cpp only approximates what was written."""
    if any(family.in_llama_cpp for _, family in _families(tokenizer.definition)):
        name, family = _family_name(tokenizer.definition)
        core.warn(f"llama.cpp {_approximation(name, family)}")


def _approximation(name: str, family: Family) -> str:
    return (
        f"only approximates this tokenizer (its pre-tokenizer {name!r}): it cuts some text "
        f"differently, such as {family.example!r}, and gives other ids for it; bpe-tokenizer check "
        "compares them"
    )


def as_in_llama_cpp(tokenizer: BPETokenizer, path: Path) -> BPETokenizer | None:
    """Return the tokenizer that llama.cpp runs, if it only approximates this one.

    None if the tokenizer itself gives llama.cpp's ids.
    """
    pre = _Fields(_read_header(path), path).text("tokenizer.ggml.pre")
    family = FAMILIES.get(pre or "")
    there = family and family.in_llama_cpp
    if there is None:
        return None
    data = core.tokenizer_json(tokenizer.definition, core.around(tokenizer))
    data["pre_tokenizer"] = there.pre_tokenizer()
    data["model"]["ignore_merges"] = there.ignore_merges
    definition = core.read_definition(core.JsonReader(data, path))
    return core.from_parts(definition, *core.rest(tokenizer), path)


def _lost(what: str) -> ValueError:
    return lost("a GGUF file", what)


def _pack_string(text: str) -> bytes:
    encoded = text.encode()
    return _U64.pack(len(encoded)) + encoded


def _pack(value: _Value) -> bytes:
    head = _U32.pack(value.kind)
    if value.kind == _STRING:
        return head + _pack_string(value.data)
    if value.kind != _ARRAY:
        return head + _NUMBERS[value.kind].pack(value.data)
    head += _U32.pack(value.element) + _U64.pack(len(value.data))
    if value.element == _STRING:
        return head + b"".join(map(_pack_string, value.data))
    form = _NUMBERS[value.element]
    return head + b"".join(map(form.pack, value.data))


def _token_lists(definition: Definition) -> tuple[list[str], list[int]]:
    """Return the tokens by id, and their types; unused ids get a name."""
    normal = {id_: definition.write(token) for token, id_ in definition.vocab.items()}
    added: dict[int, str] = {}
    for token in definition.added:
        id_ = int(token.id or 0)
        flags = [flag for flag in ("single_word", "lstrip", "rstrip") if getattr(token, flag)]
        if flags:
            raise _lost(f"added token {shorten(token.content)} has {', '.join(flags)}")
        other = added.get(id_, normal.get(id_, token.content))
        if other != token.content:
            raise _lost(f"id {id_} is both {shorten(other)} and {shorten(token.content)}")
        added[id_] = token.content
    special = {token.id for token in definition.added if token.special}
    tokens = {**normal, **added}
    size = max(tokens) + 1
    if size > _MAX_TOKENS:
        raise _lost(f"its ids go up to {size - 1:,}; the limit is {_MAX_TOKENS:,} tokens")
    texts, kinds = [], []
    for id_ in range(size):
        texts.append(tokens.get(id_, f"[PAD{id_}]"))
        kind = _UNUSED if id_ not in tokens else _USER_DEFINED if id_ in added else 1
        kinds.append(_CONTROL if id_ in special else kind)
    text, count = Counter(texts).most_common(1)[0]
    if count > 1 or "" in tokens.values():
        ids = [id_ for id_, other in enumerate(texts) if other in (text, "")]
        raise _lost(f"the tokens {ids[:3]} would be empty, or have the same text: {shorten(text)}")
    for id_, text in tokens.items():
        if text == f"[PAD{id_}]" and kinds[id_] != _CONTROL:
            raise _lost(f"{shorten(text)} would be read as padding")
    return texts, kinds


def _cuts(steps: Iterable[Component]) -> tuple[object, ...] | None:
    """Return pre-tokenizers in a canonical form: equal if they cut the same way."""
    out: list[object] = []
    for step in steps:
        kind, regex = step.get("type"), (step.get("pattern") or {}).get("Regex")
        if kind == "ByteLevel":
            if step.get("add_prefix_space", True):
                return None
            out += [GPT2_SPLIT_PATTERN] if step.get("use_regex", True) else []
            out.append("bytes")
        elif kind == "Split" and regex and step.get("behavior") == "Isolated":
            if step.get("invert"):
                return None
            out.append(from_oniguruma(regex))
        else:
            out.append(tuple(sorted((key, str(value)) for key, value in step.items())))
    return tuple(out)


def _spelled(cuts: tuple[object, ...] | None) -> tuple[object, ...] | None:
    """Return cuts with each pattern's name, the same for all its spellings."""
    return cuts and tuple(
        SPELLINGS.get(each, each) if isinstance(each, str) else each for each in cuts
    )


@functools.lru_cache(maxsize=1)
def _known_cuts() -> list[tuple[tuple[object, ...] | None, str, Family]]:
    known = [(name, family) for name, family in FAMILIES.items() if not family.escapes_spaces]
    return [(_cuts(family.steps), name, family) for name, family in known]


def _own_cuts(definition: Definition) -> tuple[object, ...] | None:
    components = definition.components
    if components is None:
        family = next(
            (n for n, one in IN_ONE_STEP.items() if one == definition.split_pattern), None
        )
        if family:
            return _cuts(FAMILIES[family].steps)
        return None if definition.prefix_space else (definition.split_pattern, "bytes")
    options = {key for key, value in components["model"].items() if value}
    decoder = components["decoder"] or {}
    if decoder.get("type") != "ByteLevel" or options - {"fuse_unk", "ignore_merges"}:
        raise _lost("it is not byte-level BPE, or has an unknown token")
    step = components["pre_tokenizer"] or {"type": "none"}
    return _cuts(step["pretokenizers"] if step.get("type") == "Sequence" else [step])


def _families(definition: Definition) -> list[tuple[str, Family]]:
    """List models that cut text the same way and that llama.cpp knows, the best first."""
    own = _own_cuts(definition)
    families = [(name, family) for cuts, name, family in _known_cuts() if own and cuts == own]
    if not families:
        same = _spelled(own)
        families = [
            (n, family) for cuts, n, family in _known_cuts() if same and _spelled(cuts) == same
        ]
    if not families:
        raise _lost(
            "llama.cpp has no pre-tokenizer that cuts text this way "
            f"({shorten(definition.split_pattern or definition.components)}"
            f"{', with a space before the text' if definition.prefix_space else ''}); of the named "
            "patterns it has gpt2, llama3, qwen2, qwen3.5, o200k, tekken and deepseek-v3"
        )
    # Stable: first those that do not normalize, and of them those that llama.cpp cuts exactly.
    families.sort(
        key=lambda item: (item[1].normalizer is not None, item[1].in_llama_cpp is not None)
    )
    return families


def _family_name(definition: Definition) -> tuple[str, Family]:
    """Find the model whose name to write."""
    families = _families(definition)
    for name, family in families:
        if family.ignore_merges == definition.ignore_merges:
            return name, family
    if _merges_make_all(definition):  # then the flag does nothing
        return families[0]
    raise _lost(
        f"ignore_merges is {definition.ignore_merges}; the models that cut text this way have it "
        f"{not definition.ignore_merges}, which changes the ids of some text"
    )


def _merges_make_all(definition: Definition) -> bool:
    """Return True if merging the bytes of each token gives that token."""
    written = {definition.write(token): id_ for token, id_ in definition.vocab.items()}
    token = {id_: text for text, id_ in written.items()}
    ranks = core.rank_pairs(definition.merges)
    merged = [written[token[left] + token[right]] for left, right in definition.merges]
    single = {text: id_ for text, id_ in written.items() if len(text) == 1}
    for text, id_ in written.items():
        ids = [single.get(char, -1) for char in text]
        if core.merge_by_scanning(ids, ranks, merged) != [id_]:
            return False
    return True
