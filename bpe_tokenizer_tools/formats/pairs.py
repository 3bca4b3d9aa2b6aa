"""How tokenizer.json joins pairs of texts.

A `Definition` has only the tokens around one text.  What a file says about pairs, and all type ids,
are kept unchanged among the settings, and saved again while they still fit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer import Definition
from bpe_tokenizer_tools import core

_FIELD = "post_processor"


class _Templates(NamedTuple):
    single: core.Pieces
    pair: core.Pieces


def kept(data: core.JsonReader, definition: Definition) -> dict[str, Any]:
    """Return the post-processor of tokenizer.json if it joins pairs its own way.

    The definition is as it was read: its template has ids.
    """
    around: Any = definition.template
    own, made = data.data.get(_FIELD), core.post_processor_json(definition, around)
    if own is None or _templates(own, data.path) == _templates(made, data.path):
        return {}
    return {_FIELD: own}


def fitting(own: Any, definition: Definition, made: Any) -> Any:
    """Return the kept post-processor, if it treats a single text as `made` does.

    Its tokens get their current ids.
    """
    ids = {token.content: token.id for token in definition.added}
    own, known = json.loads(json.dumps(own)), set(ids.values())
    try:
        for step in core.steps(_reader(own), _FIELD):
            _renumber(step.data, ids)
        steps = (core.steps(_reader(each), _FIELD) for each in (own, made))
        ours, theirs = (core.read_post_processor(each, known) for each in steps)
    except (KeyError, ValueError):  # it names a token that is no longer there
        return made
    return own if ours == theirs else made


def _renumber(step: dict[str, Any], ids: Mapping[str, int | None]) -> None:
    for name in {"cls", "sep"} & step.keys():
        step[name][1] = ids[step[name][0]]
    for token in step.get("special_tokens", {}).values():
        token["ids"] = [ids[content] for content in token["tokens"]]


def _reader(written: Any, path: Path = Path()) -> core.JsonReader:
    return core.JsonReader({_FIELD: written}, path)


def _templates(written: Any, path: Path) -> _Templates:
    """Read the pieces that a post-processor makes from one text and from a pair."""
    found = _Templates([("A", 0)], [("A", 0), ("B", 1)])
    for step in core.steps(_reader(written, path), _FIELD):
        kind = step.data["type"]
        if kind == "TemplateProcessing":
            found = _Templates(*(core.read_pieces(step, field) for field in _Templates._fields))
        elif kind != "ByteLevel":
            cls, sep = (((step.get(name, list)[1],), 0) for name in ("cls", "sep"))
            second: core.Pieces = [sep, ("B", 0), sep]
            if kind == "BertProcessing":
                second = [("B", 1), (sep[0], 1)]
            found = _Templates([cls, ("A", 0), sep], [cls, ("A", 0), sep, *second])
    return found
