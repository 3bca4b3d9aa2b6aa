"""tekken.json: the tokenizer of Mistral's models since 2024.

    {"config": {"pattern": "...", "default_vocab_size": 131072,
                "default_num_special_tokens": 1000, "version": "v3", ...},
     "vocab": [{"rank": 0, "token_bytes": "AA==", "token_str": "..."}, ...],
     "special_tokens": [{"rank": 0, "token_str": "<unk>", "is_control": true}, ...]}

The vocabulary has ranks (see `ranks`).  Special tokens have the first ids: a token's id is
its rank plus ``default_num_special_tokens``.  Tokens that don't fit into
``default_vocab_size`` are not used.  Unlisted special tokens are called ``<SPECIAL_17>``
and so on, by id.  Files up to version v7 list none; theirs are those of `_LEGACY`.

Encoding with ``add_special_tokens=True`` puts ``<s>`` before the text, as transformers does with
mistral-common; Mistral's own library leaves that to the caller.  A tokenizer_config.json beside the
file decides it instead, unless config.json names a model of Mistral's: then transformers doesn't
read it.

Source: github.com/mistralai/mistral-common, tokens/tokenizers/tekken.py.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import cast

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import Source, SpecialTokens, beside
from bpe_tokenizer_tools.formats.classes import MISTRAL_TYPES
from bpe_tokenizer_tools.formats.tiktoken import (
    byte_level,
    decode_base64,
    ordinary_ids,
    read_pattern,
)

_LEGACY_VERSIONS = ("v1", "v2", "v3", "v7")
_LEGACY = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]",
    "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)  # fmt: skip
_ROLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
_MAX_SPECIAL_TOKENS = 100_000  # 1,000 in all known files


def matches(path: Path, head: bytes) -> bool:
    """Recognize tekken.json by its name or its beginning."""
    if path.suffix == ".json" and "tekken" in path.name:
        return True
    marks = (b'"default_num_special_tokens"', b'"num_vocab_tokens"', b'"token_bytes"')
    return head.lstrip().startswith(b"{") and any(mark in head for mark in marks)


def read(
    path: Path, split_pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Source:
    """Read tekken.json, and the files that transformers puts beside it.

    `special_tokens` are added to the file's own.
    """
    if split_pattern is not None:
        raise ValueError(f"{path} carries its own split pattern; leave split_pattern out")
    data = core.JsonReader.open(path)
    config = data.child("config")
    if config is None:
        raise data.error("is missing", "config")
    n_special = config.get("default_num_special_tokens", int)
    if not 0 <= n_special <= _MAX_SPECIAL_TOKENS:
        raise config.error(
            f"expected 0 to {_MAX_SPECIAL_TOKENS}, got {_shown(n_special)}",
            "default_num_special_tokens",
        )
    pattern = read_pattern(config, "pattern")
    special = _read_special_tokens(data, config, n_special)
    ranks = _read_ranks(data, config, n_special)
    own = {role: token for role, token in _ROLES.items() if token in special}
    found = beside.read(path)
    reads_config = found.speaks and found.named.model_type not in MISTRAL_TYPES
    roles = found.roles({}) if reads_config else own
    given = special_tokens or {}
    declared = list(beside.declared(found, roles, given))
    known_ids = {**ordinary_ids((token.content for token in declared), ranks), **special}
    numbered = beside.number(declared, known_ids, ranks.values())
    beside.check_given(path, given, numbered)
    special.update({text: cast("int", token.id) for text, token in numbered.items()})
    surround = beside.surround(found) if reads_config else "bos"
    source = byte_level(
        path, ranks, pattern, special, roles=roles, surround=surround, declared=numbered
    )
    templates = found.side.templates
    return dataclasses.replace(source, settings=found.settings, chat_templates=templates)


_shown = core.shorten


def _read_special_tokens(
    data: core.JsonReader, config: core.JsonReader, n_special: int
) -> dict[str, int]:
    """Return text -> id of all special tokens, including those without a name."""
    names: list[str] = []
    if data.get("special_tokens", list, None, default=None) is None:
        version = config.get("version", str)
        if version not in _LEGACY_VERSIONS:
            raise data.error(
                f"is missing; a file of version {_shown(version)} lists its special tokens",
                "special_tokens",
            )
        names += _LEGACY
    for i, item in enumerate(data.children("special_tokens")):
        if item.get("rank", int) != i:
            raise item.error(f"expected {i}, its place in the list", "rank")
        names.append(item.get("token_str", str))
    if len(names) > n_special:
        raise data.error(
            f"{len(names)} special tokens, but config.default_num_special_tokens is {n_special}",
            "special_tokens",
        )
    names += [f"<SPECIAL_{i}>" for i in range(len(names), n_special)]
    ids = {name: i for i, name in enumerate(names)}
    if len(ids) < len(names):
        twice = next(name for i, name in enumerate(names) if ids[name] != i)
        raise data.error(f"{_shown(twice)} appears twice", "special_tokens")
    if "" in ids:
        raise data.error("is empty", f"special_tokens[{ids['']}].token_str")
    return ids


def _read_ranks(data: core.JsonReader, config: core.JsonReader, n_special: int) -> dict[bytes, int]:
    """Return token -> id for the used part of the vocabulary."""
    vocab = data.get("vocab", list)
    vocab_size = config.get("default_vocab_size", int)
    if not n_special <= vocab_size <= n_special + len(vocab):
        expected = (
            f"expected {n_special} to {n_special + len(vocab)}, special tokens and all others"
        )
        raise config.error(f"{expected}, got {_shown(vocab_size)}", "default_vocab_size")
    ids: dict[bytes, int] = {}
    for rank, item in enumerate(vocab[: vocab_size - n_special]):
        place = f"vocab[{rank}]"
        if type(item) is not dict or type(item.get("token_bytes")) is not str:
            problem = f"expected rank and token_bytes, got {_shown(item)}"
            raise FileFormatError(data.path, place, problem)
        if item.get("rank") != rank or type(item["rank"]) is not int:
            found = _shown(item.get("rank"))
            raise FileFormatError(data.path, f"{place}.rank", f"expected {rank}, got {found}")
        place = f"{place}.token_bytes"
        try:
            token = decode_base64(data.path, place, item["token_bytes"].encode("ascii"))
        except UnicodeEncodeError:
            problem = f"{_shown(item['token_bytes'])} is not base64"
            raise FileFormatError(data.path, place, problem) from None
        if ids.setdefault(token, n_special + rank) != n_special + rank:
            problem = f"{_shown(token)} is already the token of vocab[{ids[token] - n_special}]"
            raise FileFormatError(data.path, place, problem)
    return ids
