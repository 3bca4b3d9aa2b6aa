"""Foreign file formats: how each is recognised, read and written.

One common form stands between a file and the tokenizer: that of HuggingFace's
tokenizer.json, as plain data.  A reader turns its format into it, and the one
reader of tokenizer.json makes the tokenizer; so each format is a small module
that knows nothing of encoding.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from bpe_tokenizer import BPETokenizer, FileFormatError

SpecialTokens = Mapping[str, int]
Contents = dict[Path, Union[str, bytes]]


@dataclass
class Source:
    """What a file holds, in the common form.

    Attributes:
        tokenizer: the fields of a tokenizer.json.  Every added token that has its id
            elsewhere than right behind the others is also in ``model.vocab``.
        roles: "bos_token", "eos_token", "pad_token", "unk_token" -> an added token.
        settings: such as "model_max_length".
        chat_template: Jinja, or None.
    """

    tokenizer: dict[str, Any]
    roles: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    chat_template: str | None = None


# Modules of this package.  Each reader has
#     matches(path, head) -> bool, told by the first kilobytes or, of a directory, the names;
#     read(path, split_pattern, special_tokens) -> Source
# and each writer
#     contents(tokenizer, path) -> {path: what to write there}.
_READERS = ("gguf", "sentencepiece", "tekken", "tiktoken", "vocab_merges")
_WRITERS = {"gguf": "gguf", "tiktoken": "tiktoken", "gpt2": "vocab_merges"}
_HEAD_BYTES = 4096


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")


def read(
    path: Path, split_pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Source:
    """Read a file or a directory that is in one of the foreign formats.

    Raises:
        FileFormatError: it is in none of them, or damaged.
    """
    head = b""
    if path.is_dir():
        path = _file_within(path)
    if path.is_file():
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    for name in _READERS:
        module = _module(name)
        if module.matches(path, head):
            source: Source = module.read(path, split_pattern, special_tokens)
            return source
    raise FileFormatError(
        path,
        "",
        "not recognised as a tokenizer; known are tokenizer.json, .tiktoken, tekken.json, "
        "vocab.json with merges.txt, GGUF and SentencePiece models",
    )


def _file_within(folder: Path) -> Path:
    """Return the file of a directory that holds its tokenizer."""
    if any((folder / name).exists() for name in ("vocab.json", "encoder.json")):
        return folder  # its reader wants several
    for pattern in ("tekken.json", "tokenizer.model", "*.tiktoken", "*.model", "*.gguf"):
        found = sorted(folder.glob(pattern))
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(file.name for file in found[:3])
            raise FileFormatError(folder, "", f"holds several tokenizers; name one of: {names}")
    raise FileNotFoundError(
        f"{folder}: holds no tokenizer.json, nor another tokenizer that is known: tekken.json, "
        "tokenizer.model, vocab.json with merges.txt, or a .tiktoken, .model or .gguf file"
    )


def contents(tokenizer: BPETokenizer, path: Path, format: str) -> Contents:
    """Write a tokenizer in a foreign format: return what goes into which file."""
    if format not in _WRITERS:
        known = ", ".join(sorted(["tokenizer.json", *_WRITERS]))
        raise ValueError(f"format must be one of {known}, got {format!r}")
    found: Contents = _module(_WRITERS[format]).contents(tokenizer, path)
    return found
