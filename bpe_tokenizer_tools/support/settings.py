"""Settings files in TOML or JSON, with errors that say where."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.text import shortened


class Settings(core.JsonReader):
    """A table of settings: typed access, and errors that name the file and the key.

    >>> settings = Settings({"sise": 300}, Path("my.toml"), "train")
    >>> settings.check_keys("size", "pattern")
    Traceback (most recent call last):
    bpe_tokenizer.FileFormatError: my.toml: train: unknown key 'sise': did you mean 'size'?
    """

    @classmethod
    def open(cls, path: Path, raw: bytes | None = None) -> Settings:
        """Read a .toml or .json file; `raw` is its content, if known."""
        if not os.path.isfile(path):
            what = "is a directory, not a file" if os.path.isdir(path) else "no such file"
            raise FileNotFoundError(f"{shortened(str(path), 300)}: {what}")
        parse = {".toml": _parse_toml, ".json": _parse_json}.get(path.suffix.lower())
        if parse is None:
            raise FileFormatError(path, "", "expected a name that ends in .toml or .json")
        try:
            data = parse((path.read_bytes() if raw is None else raw).decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise FileFormatError(path, f"byte {error.start}", "not UTF-8 text") from None
        except (ValueError, RecursionError) as error:
            kind = path.suffix[1:].upper()
            raise FileFormatError(path, "", f"not {kind}: {error}") from None
        if not isinstance(data, dict):
            raise FileFormatError(path, "", f"expected a JSON object, got {core.shorten(data)}")
        return cls(data, path)

    def check_keys(self, *known: str) -> None:
        """Raise for unknown keys, and suggest the closest known one."""
        for key in self.data:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"expected {', '.join(known)}"
                raise self.error(f"unknown key {core.shorten(key)}: {hint}")

    def table(self, key: str) -> Settings | None:
        """Return the table with a name, or None."""
        found = self.child(key)
        return None if found is None else Settings(found.data, found.path, found.field)

    def tables(self, key: str) -> list[Settings]:
        """Return the tables of a list."""
        return [Settings(each.data, each.path, each.field) for each in self.children(key)]

    def strings(self, key: str) -> tuple[str, ...]:
        """Return a list of strings; a single one needs no list around it."""
        value = self.get(key, str, list, default=())
        values = (value,) if isinstance(value, str) else tuple(value)
        if not all(isinstance(each, str) for each in values):
            raise self.error(f"expected strings, got {core.shorten(value)}", key)
        return values

    @contextlib.contextmanager
    def placing_errors(self, key: str = "") -> Iterator[None]:
        """Add to a ValueError the place of its cause in the file."""
        try:
            yield
        except FileFormatError:
            raise
        except ValueError as error:
            raise self.error(str(error), key) from None


def _parse_toml(text: str) -> Any:
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    module = core.import_optional(name, "reading .toml files before Python 3.11", "tomli")
    return module.loads(text)


def _parse_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_without_repeats)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r} appears twice in one object")
    return data
