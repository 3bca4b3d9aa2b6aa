"""The keys of each object in a tokenizer.json, and the types of their values.

They are the keys that tokenizers 0.23 reads, and those that older versions wrote.  HuggingFace
rejects other keys at the top level and ignores most others.  Here all unknown keys are errors: one
may be misspelled, or change the ids in a later version.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from typing import Any

from bpe_tokenizer_tools import core

__all__ = ["KEYS", "check", "check_steps", "check_tokenizer"]

KEYS = {
    "tokenizer": "version:str truncation:dict|null padding:dict|null added_tokens:list|null@added "
    "normalizer:dict|null pre_tokenizer:dict|null post_processor:dict|null decoder:dict|null "
    "model:dict@model",
    "model": "type:str|null dropout:int|float|null unk_token:str|null fuse_unk:bool|null "
    "continuing_subword_prefix:str|null end_of_word_suffix:str|null byte_fallback:bool|null "
    "ignore_merges:bool|null vocab:dict merges:list",
    "added": "id:int content:str single_word:bool lstrip:bool rstrip:bool normalized:bool "
    "special:bool",
    # components, by their type; formats/components.py checks others
    **dict.fromkeys(core.NORMALIZERS, ""),
    "Split": "pattern:dict@pattern behavior:str invert:bool",
    "pattern": "Regex:str String:str",
    "ByteLevel": "add_prefix_space:bool trim_offsets:bool use_regex:bool",
    "TemplateProcessing": "single:list@piece pair:list@piece special_tokens:dict",
    "piece": "SpecialToken:dict@place Sequence:dict@place",
    "place": "id:str type_id:int",
    "special": "id:str ids:list tokens:list",
}
_TYPES = {kind.__name__: kind for kind in (bool, int, float, str, list, dict)}  # None: null


def check_tokenizer(data: core.JsonReader) -> None:
    """Check a whole tokenizer.json, except the keys of components that KEYS lacks.

    Raises:
        FileFormatError: an unknown key, or a value of another type.
    """
    check(data, KEYS["tokenizer"], KEYS)
    for field in core.SEQUENCES:
        check_steps(data, field)


def check_steps(data: core.JsonReader, field: str, key: str = "") -> None:
    """Check the components in a field, and in nested Sequences."""
    within = core.SEQUENCES[field]
    for step in data.children(key) if key else filter(None, [data.child(field)]):
        kind = step.get("type", str)
        keys = f"{within}:list" if kind == "Sequence" else KEYS.get(kind)
        if keys is not None:
            check(step, f"type:str {keys}", KEYS)
        if kind == "Sequence":
            step.get(within, list)
            if step.field.count(".") > 8:
                raise step.error("sequences are nested too deeply")
            check_steps(step, field, within)
        if kind == "TemplateProcessing":
            tokens = step.child("special_tokens") or core.JsonReader({}, step.path)
            for name in tokens.data:
                tokens.get(name, dict)
                check(tokens.at(name, tokens.data[name]), KEYS["special"])


def check(data: core.JsonReader, keys: str, parts: Mapping[str, str] | None = None) -> None:
    """Refuse keys other than ``"key:type key:type|null ..."``, and values of other types.

    The objects in a field ``key:dict@part`` or ``key:list@part`` have the keys `parts[part]`.
    """
    known = _parse(keys)
    for key in data.data:
        if key not in known:
            near = difflib.get_close_matches(key[:60], known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise data.error(f"unknown key; {hint}", core.shorten(key)[1:-1])
        kinds, part = known[key]
        is_list = isinstance(data.get(key, *kinds), list)
        if parts and part:
            inner = data.children(key) if is_list else [data.child(key)]
            for child in filter(None, inner):
                check(child, parts[part], parts)


@functools.cache
def _parse(keys: str) -> dict[str, tuple[tuple[type | None, ...], str]]:
    """Return the types of each field, and the part that describes objects in it, or ""."""
    found: dict[str, Any] = {}
    for field in keys.split():
        key, kinds, part = re.split("[:@]", f"{field}@")[:3]
        found[key] = tuple(_TYPES.get(kind) for kind in kinds.split("|")), part
    return found
