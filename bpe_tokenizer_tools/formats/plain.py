"""Byte-level BPE in one plain JSON object, as small programs write it.

    {"vocab": {"a": 97, ...}, "merges": [["t", "h"], ...],
     "split_pattern": "...", "special_tokens": {"<|end|>": 300}}

Tokens are written in the byte alphabet.  `vocab` may also be a list of tokens, of
(token, id) pairs, or a map from ids; a merge may also be "t h", or two ids; and both may be
within "model", as in a tokenizer.json.  But read as one, the pattern would be ignored and the
text not cut into bytes.  So the file is read exactly or not at all: all 256 bytes must be
tokens, and unknown keys are errors.

The module itself reads the form in which the reference program saved: see `_read_reference` there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bpe_tokenizer import (
    GPT2_SPLIT_PATTERN,
    AddedToken,
    Definition,
    FileFormatError,
)
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import Source, SpecialTokens
from bpe_tokenizer_tools.formats.components import read_pattern
from bpe_tokenizer_tools.formats.named import read_files, side_files

_MODEL_KEYS = core.KEYS["model"].replace("vocab:dict", "vocab:dict|list")
_KEYS = (
    f"{_MODEL_KEYS} version:str|int|float|null name:str|null model:dict split_pattern:str|null "
    "special_tokens:dict|list|null vocab_size:int|null bos_token:str|null eos_token:str|null "
    "pad_token:str|null unk_token:str|null truncation:null padding:null normalizer:null "
    "added_tokens:list|null pre_tokenizer:dict|null post_processor:null decoder:dict|null"
)
# Options of a tokenizer.json model that change ids; not allowed here.
_OPTIONS = (
    *("dropout", "fuse_unk", "byte_fallback", "ignore_merges"),
    *("continuing_subword_prefix", "end_of_word_suffix"),
)


def matches(path: Path, head: bytes) -> bool:
    """Recognize the format by its keys; the core has already checked that it is JSON."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return False
    try:
        return core.is_plain(core.JsonReader.open(path).data)
    except FileFormatError:
        return False


def read(
    path: Path, split_pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Source:
    """Read a file, and the files that transformers or this library put beside it.

    A `split_pattern` is for a file without one; `special_tokens` are added to the file's own.
    """
    files = read_files(path)
    data = core.JsonReader.open(path, files.pop(path))
    side = side_files(path, files)
    if core.is_reference(data.data):
        given = itertools.starmap(AddedToken, (special_tokens or {}).items())
        definition = core.read_reference(data, side.config, split_pattern, given)
        definition, roles, settings, templates = core.with_side_files(side, definition)
        return Source({}, roles, core.without_class(settings), templates, definition)
    core.check_keys(data, _KEYS)
    model = data.child("model") or data
    if model is not data:
        core.check_keys(model, _MODEL_KEYS)
        twice = [key for key in ("vocab", "merges") if key in data.data]
        if twice:
            raise data.error("is also in model; delete one of them", twice[0])
    _check_options(data, model)
    pattern = _pattern(data, split_pattern)
    ids = _vocab(model)
    added = _added_tokens(data, ids, special_tokens or {})
    pairs = core.JsonReader({"merges": list(_merges(model, ids))}, path, model.field)
    contents = {token.content for token in added}
    merges, used = core.read_merges(pairs, ids, contents)
    ordinary = {t: i for t, i in ids.items() if t not in contents or t in used or len(t) == 1}
    definition = Definition(_byte_vocab(model, ordinary), merges, pattern, None)
    try:
        definition = core.with_added_tokens(definition, added)
    except ValueError as error:
        raise data.error(str(error), "special_tokens") from None
    _check_size(data, definition)
    definition, roles, settings, templates = core.with_side_files(side, definition)
    return Source({}, {**_roles(data), **roles}, settings, templates, definition)


def _check_options(data: core.JsonReader, model: core.JsonReader) -> None:
    """Raise if the file describes another kind of tokenizer."""
    for reader in (data, model):
        kind = reader.data.get("type")
        if kind is not None and "bpe" not in kind.lower():
            raise reader.error(f"expected 'BPE', got {core.shorten(kind)}", "type")
        for key in _OPTIONS:
            if reader.data.get(key):
                problem = f"{core.shorten(reader.data[key])} is not supported beside split_pattern"
                raise reader.error(problem, key)
    if model is not data and model.data.get("unk_token"):
        raise model.error("is not supported: byte-level BPE has no unknown text", "unk_token")
    core.check_steps(data, "decoder")
    decoders = [step.data["type"] for step in core.steps(data, "decoder")]
    if decoders not in ([], ["ByteLevel"]):
        found = " + ".join(decoders)
        raise data.error(f"{core.shorten(found)} is not supported, only ByteLevel", "decoder")


def _pattern(data: core.JsonReader, given: str | None) -> str:
    """Return where text is cut; from the file or from the caller, not from both."""
    pattern: str = core.read_split_pattern(data, given)
    if data.data.get("pre_tokenizer") is not None:
        cut, prefix_space = _pre_tokenizer(data)
        if prefix_space or cut not in (pattern, core.UNCUT_PATTERN):
            problem = "and split_pattern cut text in different ways; delete one of them"
            raise data.error(problem, "pre_tokenizer")
    return pattern


def _pre_tokenizer(data: core.JsonReader) -> tuple[str, bool]:
    """Return the split pattern, and whether a space goes before the text."""
    core.check_steps(data, "pre_tokenizer")
    steps = list(core.steps(data, "pre_tokenizer"))
    kinds = [step.data["type"] for step in steps]
    if kinds not in (["ByteLevel"], ["Split", "ByteLevel"]):
        found = " + ".join(kinds) or "none"
        problem = f"{found} is not supported, only ByteLevel and Split + ByteLevel"
        raise data.error(problem, "pre_tokenizer")
    on = {key: steps[-1].data.get(key, True) for key in ("add_prefix_space", "use_regex")}
    if len(steps) == 1:
        pattern = GPT2_SPLIT_PATTERN if on["use_regex"] else core.UNCUT_PATTERN
        return pattern, on["add_prefix_space"]
    for option in filter(on.get, on):
        raise steps[-1].error("true is not supported after a Split", option)
    behavior = steps[0].get("behavior", str)
    if behavior != "Isolated":
        problem = f"{core.shorten(behavior)} is not supported, only 'Isolated'"
        raise steps[0].error(problem, "behavior")
    return read_pattern(steps[0]), False


def _byte_vocab(model: core.JsonReader, ids: Mapping[str, int]) -> dict[bytes, int]:
    """Convert tokens from the byte alphabet to bytes; all 256 bytes must be tokens."""
    vocab: dict[bytes, int] = {}
    for written, id_ in ids.items():
        token = core.from_printable(written)
        if token is None:
            shown = f"token {core.shorten(written)} (id {id_})"
            raise model.error(f"{shown} is not written in the byte alphabet", "vocab")
        vocab[token] = id_
    for byte, char in core.BYTE_TO_CHAR.items():
        if bytes([byte]) not in vocab:
            raise model.error(f"has no token for byte 0x{byte:02X} ({char!r})", "vocab")
    return vocab


def _vocab(model: core.JsonReader) -> dict[str, int]:
    vocab = model.get("vocab", dict, list)
    items = vocab.items() if isinstance(vocab, dict) else enumerate(vocab)
    found: dict[str, int] = {}
    for key, value in items:
        token, id_ = key, value
        if isinstance(vocab, list) and isinstance(value, list) and len(value) == 2:
            token, id_ = value
        elif isinstance(value, str):
            token, id_ = value, key
        if isinstance(token, int) and isinstance(id_, str):
            token, id_ = id_, token
        if isinstance(id_, str) and id_.isascii() and id_.isdecimal() and len(id_) <= 10:
            id_ = int(id_)
        if not isinstance(token, str) or type(id_) is not int:
            shown = core.shorten(value if isinstance(vocab, list) else {key: value})
            raise model.error(f"expected a token and its id, got {shown}", "vocab")
        if found.setdefault(token, id_) != id_:
            problem = f"{core.shorten(token)} has the ids {found[token]} and {id_}"
            raise model.error(problem, "vocab")
    return core.read_vocab(core.JsonReader({"vocab": found}, model.path, model.field))


def _merges(model: core.JsonReader, ids: dict[str, int]) -> Iterator[Any]:
    """Yield the merges, ids in them replaced by tokens."""
    tokens = {id_: token for token, id_ in ids.items()}
    for i, merge in enumerate(model.get("merges", list)):
        if isinstance(merge, list) and all(type(part) is int for part in merge):
            if not tokens.keys() >= set(merge):
                unknown = min(set(merge) - tokens.keys())
                raise model.error(f"no token has the id {unknown}", f"merges[{i}]")
            merge = [tokens[part] for part in merge]
        yield merge


def _added_tokens(
    data: core.JsonReader, ids: dict[str, int], given: SpecialTokens
) -> list[AddedToken]:
    """Return the tokens of `added_tokens`, then those that only `special_tokens` names."""
    found: dict[str, AddedToken] = {}
    for item in data.children("added_tokens"):
        core.check_keys(item, core.KEYS["added"])
        content, id_ = item.get("content", str), item.get("id", int)
        if content in found:
            raise item.error(f"{core.shorten(content)} is listed twice", "content")
        flags = {key: value for key, value in item.data.items() if key not in ("content", "id")}
        found[content] = AddedToken(content, id_, **flags)
    for content, id_ in [*_special_tokens(data, ids), *given.items()]:
        token = found.setdefault(content, AddedToken(content, id_))
        if token.id != id_:
            problem = f"{core.shorten(content)} has the ids {token.id} and {id_}"
            raise data.error(problem, "special_tokens")
    for content, token in found.items():
        id_ = token.id or 0
        if not content or core.has_surrogate(content) or not 0 <= id_ <= core.MAX_ID:
            problem = f"expected a token and its id, got {core.shorten({content: id_})}"
            raise data.error(problem, "special_tokens")
        if ids.get(content, id_) != id_:
            problem = f"{core.shorten(content)} has the id {ids[content]} in vocab, and {id_} here"
            raise data.error(problem, "special_tokens")
    return list(found.values())


def _special_tokens(data: core.JsonReader, ids: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Yield (token, id) from {token: id}, {id: token}, {role: token} or a list of tokens."""
    special = data.get("special_tokens", dict, list, None, default=None) or {}
    items = special.items() if isinstance(special, dict) else ((token, None) for token in special)
    for key, value in items:
        token, id_ = key, value
        if isinstance(value, str):
            is_id = key.isascii() and key.isdecimal() and len(key) <= 10
            token, id_ = value, int(key) if is_id else None
        if value is None and key in core.ROLES:  # nothing has this role
            continue
        if id_ is None and isinstance(token, str):
            id_ = ids.get(token)
        if not isinstance(token, str) or type(id_) is not int:
            problem = f"the id of {core.shorten(token)} is missing; write it as {{token: id}}"
            raise data.error(problem, "special_tokens")
        yield token, id_


def _roles(data: core.JsonReader) -> dict[str, str]:
    """Return role -> token, from the top or from special_tokens."""
    special = data.data.get("special_tokens")
    named = {**(special if isinstance(special, dict) else {}), **data.data}
    return {role: named[role] for role in core.ROLES if isinstance(named.get(role), str)}


def _check_size(data: core.JsonReader, definition: Definition) -> None:
    size = data.get("vocab_size", int, None, default=None)
    count = len(definition.vocab) + len(definition.added)
    if size is not None and size < count:
        raise data.error(f"says {size} tokens, but {count} are listed", "vocab_size")
