"""tokenizer.json under another name.

Before 0.8, tokenizers were saved as NAME.json and NAME_config.json.  Version 0.6 put
special_tokens_map.json and chat_template.jinja beside them, shared by all names; since version
0.7, NAME_config.json has everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import Source, SpecialTokens, kept
from bpe_tokenizer_tools.support import transactions


def matches(path: Path, head: bytes) -> bool:
    """Recognize the format by its keys."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return False
    data = core.JsonReader.open(path).data
    return isinstance(data.get("model"), dict) and not core.is_plain(data)


def read(
    path: Path, split_pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Source:
    """Read NAME.json and the files beside it."""
    if split_pattern is not None:
        raise ValueError(f"{path} carries its own split pattern; leave split_pattern out")
    files = read_files(path)
    data = core.JsonReader.open(path, files.pop(path))
    definition = core.read_definition(data)
    parts = core.read_beside(side_files(path, files), data, definition)
    parts[2].update(kept.read(data, replace(parts[0], template=definition.template)))
    return Source(data.data, *parts[1:], parts[0])


def read_files(path: Path) -> dict[Path, bytes]:
    """Read a file and those beside it, as one save wrote them."""
    beside = [each for each in core.side_files(path.parent) if each != _standard(path)]
    return transactions.read_files([path, _config(path), *beside])


def side_files(path: Path, files: Mapping[Path, bytes]) -> core.SideFiles:
    """Read what NAME_config.json says or, if there is none, the standard files."""
    config = _config(path)
    if path.stem == "tokenizer" or config not in files:
        return core.read_side_files(path.parent, files)
    found = {config: files[config]}
    if "chat_template" not in core.JsonReader.open(config, files[config]).data:
        found |= {each: raw for each, raw in files.items() if each.suffix == ".jinja"}
    return core.read_side_files(path.parent, found, config.name)


def _config(path: Path) -> Path:
    return path.with_name(f"{path.stem}_config.json")


def _standard(path: Path) -> Path:
    return path.with_name(core.SIDE_FILES[0])
