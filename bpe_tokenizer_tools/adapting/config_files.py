"""config.json and generation_config.json with the size and the ids of another vocabulary."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.adapting.vocabulary import Matching

NAMES = ("config.json", "generation_config.json")
# Fields with one id, or with several; lists of lists of ids, as these of generation_config.json.
_FIELDS = re.compile(r"(\w+_)?token_(id|ids|index)|(begin_)?suppress_tokens")
_LISTS = ("bad_words_ids", "force_words_ids")
_PAIRS = ("forced_decoder_ids",)  # of a position and an id


@dataclass
class ConfigFiles:
    """New contents of the files, and the changes.

    Attributes:
        contents: name -> JSON.
        ids: "config.json: eos_token_id" -> the ids before and after, if they differ.
    """

    contents: dict[str, str] = field(default_factory=dict)
    ids: dict[str, tuple[Any, Any]] = field(default_factory=dict)


def read(folder: Path) -> dict[str, Any]:
    """Return config.json.

    Raises:
        FileNotFoundError: there is none.
        FileFormatError: it is damaged.
    """
    path = folder / NAMES[0]
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file; expected the directory of a model, with config.json beside "
            "its weights"
        )
    data: dict[str, Any] = core.JsonReader.open(path).data
    return data


def check_given(field: str, value: Any, new: BPETokenizer, lists: bool = True) -> None:
    """Raise ValueError unless a value is None or an id of a tokenizer, or several in a list."""
    values = value if lists and isinstance(value, list) else [value]
    known = core.tokens(new)
    for each in values:
        if each is None and values is not value:
            continue
        if type(each) is not int or each not in known:
            raise ValueError(
                f"ids: {field!r} is {core.shorten(each)}; expected an id of the new "
                f"tokenizer, 0 to {new.max_id}, or None (--ids {field}=null)"
            )


def rewrite(
    folder: Path,
    old: BPETokenizer,
    new: BPETokenizer,
    matching: Matching,
    sizes: tuple[int, int],
    given: Mapping[str, Any],
) -> ConfigFiles:
    """Put the new number of rows into the files, and the new id of each token that they name.

    Args:
        folder: the model.
        old: its tokenizer.
        new: the one to use from now on.
        matching: the new id of each token, if it has one.
        sizes: the number of rows before and after.
        given: field -> the new value, for fields that name a token that is gone.

    Raises:
        ValueError: a file names a token that is gone, or no file has a field of `given`.
        FileFormatError: a file is damaged.
    """
    for key, value in given.items():
        check_given(key, value, new)
    result = ConfigFiles()
    unused = set(given)
    for name in NAMES:
        path = folder / name
        if not path.is_file():
            continue
        data = core.JsonReader.open(path).data
        rewriter = _Rewriter(path, old, matching, sizes, given)
        changed = rewriter.walk(data, "")
        if name == NAMES[0] and not rewriter.has_size and sizes[0] != sizes[1]:
            rewriter.add_size(changed)
        unused -= rewriter.used
        result.ids.update({f"{name}: {key}": pair for key, pair in rewriter.changed.items()})
        result.contents[name] = json.dumps(changed, indent=2, ensure_ascii=False) + "\n"
    if unused:
        raise ValueError(
            f"{folder}: ids are given for {', '.join(sorted(map(repr, unused)))}, which "
            f"{' and '.join(NAMES)} do not have"
        )
    return result


class _Rewriter:
    """Goes through the fields of a file."""

    def __init__(
        self,
        path: Path,
        old: BPETokenizer,
        matching: Matching,
        sizes: tuple[int, int],
        given: Mapping[str, Any],
    ) -> None:
        self._path, self._matching, self._sizes, self._given = path, matching, sizes, given
        self._tokens = core.tokens(old)
        self.changed: dict[str, tuple[Any, Any]] = {}
        self.used: set[str] = set()
        self.has_size = False

    def add_size(self, data: dict[str, Any]) -> None:
        """Add the number of rows where the file leaves it to the architecture's default."""
        parts = (data.get(name) for name in ("text_config", "llm_config"))
        where = next((part for part in parts if isinstance(part, dict)), data)
        where["vocab_size"] = self._sizes[1]
        self.changed["vocab_size"] = None, self._sizes[1]

    def walk(self, data: Mapping[str, Any], place: str) -> dict[str, Any]:
        """Return an object with its new values."""
        return {key: self._value(key, value, place + key) for key, value in data.items()}

    def _value(self, key: str, value: Any, place: str) -> Any:
        if isinstance(value, dict):
            # A part with its own vocabulary, such as one for audio, has other ids.
            is_ours = value.get("vocab_size", self._sizes[0]) == self._sizes[0]
            return self.walk(value, f"{place}.") if is_ours else value
        if key == "vocab_size" and value == self._sizes[0]:
            self.has_size = True
            return self._sizes[1]
        if key in self._given:
            self.used.add(key)
            new = self._given[key]
        else:
            new = self._moved(key, value, place)
        if new != value:
            self.changed[place] = value, new
        return new

    def _moved(self, key: str, value: Any, place: str) -> Any:
        if _FIELDS.fullmatch(key):
            if isinstance(value, list):
                return [self._id(id_, place) for id_ in value]
            return self._id(value, place)
        if key in _LISTS + _PAIRS and isinstance(value, list):
            keep = 1 if key in _PAIRS else 0
            lists = [each if isinstance(each, list) else [] for each in value]
            return [[*ids[:keep], *(self._id(id_, place) for id_ in ids[keep:])] for ids in lists]
        return value

    def _id(self, id_: Any, place: str) -> Any:
        """Return the new id of the token with an old one."""
        if id_ is None or (type(id_) is int and id_ < 0):  # how some files write "none"
            return id_
        if type(id_) is not int:
            raise FileFormatError(self._path, place, f"expected an id, got {core.shorten(id_)}")
        if id_ in self._matching.moved:
            return self._matching.moved[id_]
        field = place.rpartition(".")[2]
        if id_ in self._tokens:
            token = core.shorten(self._tokens[id_].decode(errors="replace"))
            problem = f"is {id_}, the token {token}, which the new tokenizer does not have; add it "
            problem += "there"
        else:
            problem = f"is {id_}, and the old tokenizer has no token with this id; correct the file"
        raise FileFormatError(
            self._path,
            place,
            f"{problem}, or give another one with ids={{{field!r}: ...}} (--ids {field}=ID)",
        )


def shown(changed: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    """Return the ids that have changed."""
    for place, (before, after) in changed.items():
        yield f"{place}: {json.dumps(before)} -> {json.dumps(after)}"
