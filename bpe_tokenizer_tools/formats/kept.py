"""The parts of tokenizer.json that don't decide a text's ids; kept as they are written."""

from __future__ import annotations

from typing import Any, cast

from bpe_tokenizer import Definition
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import pairs

_KEYS = {
    "truncation": "direction:str max_length:int strategy:str stride:int",
    "padding": "strategy:str|dict direction:str pad_to_multiple_of:int|null pad_id:int "
    "pad_type_id:int pad_token:str",
}
_LENGTHS = {  # the strategies, and the largest number that is accepted
    "truncation": (("LongestFirst", "OnlyFirst", "OnlySecond"), 2**64 - 1),
    "padding": (("BatchLongest",), 2**24),
}


def read(data: core.JsonReader, definition: Definition) -> dict[str, Any]:
    """Read `truncation` and `padding`, from which `encode_batch` takes its defaults, and pairs.

    The definition is as it was read: its template has ids.
    """
    nodes = {field: node for field in _LENGTHS if (node := data.child(field)) is not None}
    for field, node in nodes.items():
        strategies, limit = _LENGTHS[field]
        core.check_keys(node, _KEYS[field])
        keys = [each.partition(":")[0] for each in _KEYS[field].split()]
        values = {key: node.data.get(key) for key in keys}
        values["direction"] = values["direction"] or "Right"  # missing in older files
        if isinstance(values["strategy"], dict):  # {"Fixed": number of tokens}
            fixed = cast("core.JsonReader", node.child("strategy"))
            core.check_keys(fixed, "Fixed:int")
            values |= {"strategy": strategies[0], "strategy.Fixed": fixed.get("Fixed", int)}
        for key, choices in (("strategy", strategies), ("direction", ("Left", "Right"))):
            if values[key] not in choices:
                expected = " or ".join(map(repr, choices))
                raise node.error(f"expected {expected}, got {core.shorten(values[key])}", key)
        for key, value in values.items():
            if value is None and key != "pad_to_multiple_of":
                raise node.error("is missing", key)
            if isinstance(value, int) and not 0 <= value <= limit:
                raise node.error(
                    f"expected a number from 0 to {limit}, got {core.shorten(value)}", key
                )
    if "padding" in nodes:
        known = {*definition.vocab.values(), *(token.id for token in definition.added)}
        if nodes["padding"].data["pad_id"] not in known:
            raise nodes["padding"].error("is not the id of a token in this file", "pad_id")
    return {field: node.data for field, node in nodes.items()} | pairs.kept(data, definition)
