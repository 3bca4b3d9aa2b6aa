"""Tokenizers from objects in memory: merges, a `tiktoken.Encoding`, HuggingFace's tokenizers.

They are methods of the class `BPETokenizer`, and name the object in their errors.  The code that
reads other libraries' files also reads their objects, so both give the same tokenizer or the same
error.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bpe_tokenizer import (
    GPT2_SPLIT_PATTERN,
    AddedToken,
    BPETokenizer,
    Definition,
    FileFormatError,
)
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.core import shorten
from bpe_tokenizer_tools.formats import kept, tiktoken

# Definition, roles, settings and chat templates; and what errors call the object.
Read = tuple[Definition, dict[str, str], dict[str, Any], dict[str, str], Path]
Pair = tuple[bytes, bytes]

# -- Vocabulary and merges ------------------------------------------------------


def from_merges(
    cls: type[BPETokenizer],
    vocab: Mapping[int, bytes] | Mapping[bytes, int],
    merges: Iterable[Pair],
    special_tokens: Any = None,
    split_pattern: str = GPT2_SPLIT_PATTERN,
    normalizer: str | None = None,
) -> BPETokenizer:
    """Make a tokenizer from a vocabulary of bytes (id -> token or token -> id) and merges.

    A special token in `vocab` keeps its id there, and merges that make or use it are left
    out; other special tokens get the next ids.  Errors name the entry that is wrong.

    >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab"}
    >>> BPETokenizer.from_merges(vocab, [(b"a", b"b")]).encode("abc")
    [256, 99]
    """
    ids = _read_vocab(vocab)
    pairs = dict.fromkeys(reversed(list(_read_merges(merges, ids))))  # the later rank counts
    core.check_normalizer(normalizer)
    added = [_with_id(token, ids) for token in core.as_added_tokens(special_tokens)]
    contents = {token.content.encode() for token in added}
    # A special token's text stays ordinary text unless the caller allows it, so no merge may
    # make that token.  A single byte stays too: as a special token it is refused below.
    usable = [each for each in reversed(pairs) if contents.isdisjoint((*each, b"".join(each)))]
    definition = Definition(
        {token: id_ for token, id_ in ids.items() if token not in contents or len(token) == 1},
        [(ids[left], ids[right]) for left, right in usable],
        core.pattern_named(split_pattern),
        normalizer,
        template="default",
    )
    definition = core.with_added_tokens(definition, added)
    return core.from_read(cls, definition, core.roles_by_name(added), {}, {}, Path())


def _read_vocab(vocab: Any) -> dict[bytes, int]:
    """Return token -> id, given that or id -> token."""
    if not isinstance(vocab, Mapping):
        raise TypeError(f"vocab must be {{id: bytes}} or {{bytes: id}}, got {shorten(vocab)}")
    by_id = type(next(iter(vocab), None)) is int
    ids: dict[bytes, int] = {}
    tokens: dict[int, bytes] = {}
    for key, value in vocab.items():
        token, id_ = (value, key) if by_id else (key, value)
        if not isinstance(token, bytes) or type(id_) is not int:
            hint = "; tokens written as str come with vocab.json: use from_file"
            raise TypeError(
                f"vocab must be {{id: bytes}} or {{bytes: id}}, got {shorten({key: value})}"
                + (hint if isinstance(token, str) else "")
            )
        if not 0 <= id_ <= core.MAX_ID:
            expected = f"expected an id from 0 to {core.MAX_ID}"
            raise ValueError(f"vocab: {expected} for {shorten(token)}, got {id_}")
        if ids.setdefault(token, id_) != id_:
            raise ValueError(f"vocab: {shorten(token)} has two ids, {ids[token]} and {id_}")
        if tokens.setdefault(id_, token) != token:
            both = f"{shorten(tokens[id_])} and {shorten(token)}"
            raise ValueError(f"vocab: {both} have the same id, {id_}")
    missing = [byte for byte in range(256) if bytes([byte]) not in ids]
    if missing:
        shown = ", ".join(f"0x{byte:02X}" for byte in missing[:3]) + ", ..." * (len(missing) > 3)
        raise ValueError(
            f"vocab has no token for {len(missing)} of the 256 bytes ({shown}); add them, with any "
            "free ids, so that every text can be encoded"
        )
    return ids


def _read_merges(merges: Any, ids: Mapping[bytes, int]) -> Iterator[Pair]:
    """Yield the merges, each of two tokens that join to a third."""
    if isinstance(merges, (str, bytes, Mapping)) or not isinstance(merges, Iterable):
        expected = "merges must be a list of (bytes, bytes), the first to apply first"
        raise TypeError(f"{expected}, got {shorten(merges)}")
    for i, pair in enumerate(merges):
        if not isinstance(pair, (tuple, list)) or [type(part) for part in pair] != [bytes, bytes]:
            raise TypeError(f"merges[{i}]: expected (bytes, bytes), got {shorten(pair)}")
        left, right = pair
        for token in (left, right, left + right):
            if token not in ids:
                raise ValueError(
                    f"merges[{i}]: {shorten(token)} is not in vocab; {shorten(left)}, "
                    f"{shorten(right)} and {shorten(left + right)} must all have an id"
                )
        yield left, right


def _with_id(token: AddedToken, ids: Mapping[bytes, int]) -> AddedToken:
    """Give a special token the id that it has in the vocabulary, if it is there."""
    known = ids.get(token.content.encode(), token.id)
    if token.id not in (None, known):
        raise ValueError(
            f"special token {token.content!r} has the id {known} in vocab, and {token.id} in "
            "special_tokens; give it one id"
        )
    return replace(token, id=known)


# -- Other libraries' -----------------------------------------------------------


def from_tiktoken(cls: type[BPETokenizer], encoding: Any) -> BPETokenizer:
    """Convert a `tiktoken.Encoding`; raise ValueError if something would be lost."""
    try:
        ranks, written = encoding._mergeable_ranks, encoding._pat_str
        special: dict[str, int] = encoding._special_tokens
    except AttributeError:
        raise TypeError(
            f"expected a tiktoken.Encoding, got {shorten(encoding)}; get one with "
            "tiktoken.get_encoding(name), or load a .tiktoken file with from_file"
        ) from None
    path = Path(f"tiktoken.Encoding {encoding.name!r}")
    problem = tiktoken.overlap(special)
    if problem:
        raise FileFormatError(path, "", f"{problem}, so its ids are ambiguous; remove one of them")
    largest = max([*ranks.values(), *special.values()], default=0)
    if largest > core.MAX_ID:
        raise FileFormatError(path, "", f"has the id {largest}; the limit is {core.MAX_ID}")
    pattern = tiktoken.read_pattern(core.JsonReader({"pat_str": written}, path), "pat_str")
    source = tiktoken.byte_level(path, ranks, pattern, special)
    definition = source.definition or core.read_definition(core.JsonReader(source.tokenizer, path))
    return core.from_read(cls, definition, source.roles, {}, {}, path)


def from_hf(cls: type[BPETokenizer], tokenizer: Any) -> BPETokenizer:
    """Convert a `tokenizers.Tokenizer`, whose special tokens get roles by their names.

    A fast tokenizer of transformers brings its own roles, chat templates and sides.  Raises
    ValueError if something would be lost.
    """
    return core.from_read(cls, *_read_hf(tokenizer))


def _read_hf(tokenizer: Any) -> Read:
    path = Path(type(tokenizer).__name__)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not callable(getattr(backend, "to_str", None)):
        raise TypeError(
            "expected a tokenizers.Tokenizer or a fast transformers tokenizer, "
            f"got {shorten(tokenizer)}; save a slow one with save_pretrained and use from_file"
        )
    try:
        written = backend.to_str()
    except Exception as error:  # a component written in Python
        raise ValueError(f"{path} cannot be read: {error}") from error
    data = core.JsonReader.open(path, written.encode())
    if backend is tokenizer:
        definition = core.read_definition(data)
        settings = kept.read(data, definition)
        roles = core.roles_by_name(definition.added)
        if "padding" in settings:  # names its own pad token
            roles.pop("pad_token", None)
        return definition, roles, settings, {}, path
    # transformers sets these two at each call, so they are left over from the last one.
    data.data.update(truncation=None, padding=None)
    definition = core.read_definition(data)
    roles, settings, templates = _read_config(tokenizer, path)
    settings |= kept.read(data, definition)
    ids = {token.content: token.id for token in definition.added}
    rule = core.rule_of(tokenizer.init_kwargs.get("surround"), roles, ids, definition.template)
    definition = replace(definition, template=rule)
    further = _further_keys(tokenizer)
    if further:
        config, names = core.config_json(definition, roles, settings, {})
        named = {key: further[key] for key in further if key in tokenizer.special_tokens_map}
        files = {"config": {**config, **further}, "names": names, "in_files": False}
        settings["files"] = {**files, "named": named, "added": [*ids]}
    return definition, roles, settings, templates, path


# What transformers keeps of a call or of files; the rest of its arguments is what files say.
_NOT_KEPT = {
    *("name_or_path", "tokenizer_file", "vocab_file", "merges_file", "vocab", "merges"),
    *("special_tokens_map_file", "added_tokens_file", "files_loaded", "is_local", "backend"),
    *("local_files_only", "trust_remote_code", "device_map", "tokenizer_object"),
    "__slow_tokenizer",
    *("added_tokens_decoder", "chat_template", "extra_special_tokens", "additional_special_tokens"),
    *("model_specific_special_tokens", "add_bos_token", "add_eos_token", "surround", "max_length"),
    *("stride", "truncation_strategy", "pad_to_multiple_of", "pad_token_type_id"),
    *("model_max_length", "padding_side", "truncation_side", "tokenizer_class", "name"),
    *("model_input_names", "clean_up_tokenization_spaces", *core.ROLES),
}


def _further_keys(tokenizer: Any) -> dict[str, Any]:
    """Return what a tokenizer of transformers has that this library only keeps."""
    found: dict[str, Any] = {}
    for key, value in tokenizer.init_kwargs.items():
        if key not in _NOT_KEPT and value is not None:
            with contextlib.suppress(TypeError, ValueError):  # an object, not data
                found[key] = json.loads(json.dumps(value))
    named = tokenizer.special_tokens_map.items()
    lists = ("additional_special_tokens", *core.ROLES)
    return found | {name: str(token) for name, token in named if name not in lists}


def _read_config(
    tokenizer: Any, path: Path
) -> tuple[dict[str, str], dict[str, Any], dict[str, str]]:
    """Return the roles, settings and chat templates of a tokenizer of transformers."""
    templates = tokenizer.chat_template
    if isinstance(templates, Mapping):
        items = templates.items()
        templates = [{"name": name, "template": template} for name, template in items]
    config = {"model_max_length": tokenizer.model_max_length, "chat_template": templates}
    for side in ("padding_side", "truncation_side"):
        if getattr(tokenizer, side) != "right":  # also our default
            config[side] = getattr(tokenizer, side)
    named = tokenizer.special_tokens_map
    roles = {role: str(named[role]) for role in core.ROLES if named.get(role)}
    settings: dict[str, Any] = {}
    core.read_settings(core.JsonReader(config, path), settings)
    return roles, settings, core.read_chat_templates(core.JsonReader(config, path))


def to_hf(tokenizer: BPETokenizer) -> Any:
    """Return a live ``tokenizers.Tokenizer``, or raise ValueError for what it can't do."""
    library = core.import_optional("tokenizers", "to_hf", "tokenizers")
    return library.Tokenizer.from_str(json.dumps(core.tokenizer_json_of(tokenizer)))
