"""Foreign file formats: how each is recognized, read and written.

A file and the tokenizer meet in one common form: HuggingFace's tokenizer.json, as plain
data.  A reader turns its format into that form, and the one reader of tokenizer.json makes
the tokenizer.  So each format is a small module that knows nothing about encoding.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bpe_tokenizer import AddedToken, BPETokenizer, Definition, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support import transactions

SpecialTokens = Mapping[str, int]
Contents = dict[Path, str | bytes | None]


@dataclass
class Source:
    """The content of a file, in the common form."""

    # the fields of a tokenizer.json.  ``model.vocab`` also has each added token whose id doesn't
    # come right after the others
    tokenizer: dict[str, Any]
    # "bos_token", "eos_token", "pad_token", "unk_token" -> an added token
    roles: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)  # such as "model_max_length"
    chat_templates: dict[str, str] = field(default_factory=dict)  # Jinja, by name
    definition: Definition | None = None  # the same as `tokenizer`, ready-made, so that it need not


# -- What readers share -------------------------------------------------------

MAX_BYTES = 2**26  # o200k_base has 3.6 million


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Read a file, unless it is too large for its format."""
    size = path.stat().st_size
    if size > limit:
        raise FileFormatError(path, "", f"{size:,} bytes; the limit is {limit:,}")
    return path.read_bytes()


def read_files(*paths: Path) -> dict[Path, bytes]:
    """Read a tokenizer's files that exist, as one save wrote them; the first must exist."""
    found = transactions.read_files(paths, MAX_BYTES)
    if paths[0] not in found:
        raise FileNotFoundError(f"{paths[0]}: no such file")
    return found


def surrounding(before: Sequence[AddedToken], after: Sequence[AddedToken]) -> dict[str, Any] | None:
    """Return the post-processor that puts tokens before and after a text."""
    ids = [tuple(token.id or 0 for token in side) for side in (before, after)]
    definition = Definition({}, [], "", added=(*before, *after))
    return core.post_processor_json(definition, (ids[0], ids[1]))


# -- Which format it is -------------------------------------------------------

# Modules of this package.  Each reader has
#     matches(path, head) -> bool, from the name of a file and its first kilobytes;
#     read(path, split_pattern, special_tokens) -> Source
# and each writer
#     contents(tokenizer, path) -> {path: the new content, None to remove it}; the first is what
#     is loaded, and comes before those read along with it (`_read_files`).
_READERS = ("named", "gguf", "sentencepiece", "tekken", "tiktoken", "vocab_merges", "plain")
_WRITERS = {"gguf": "gguf", "tiktoken": "tiktoken", "gpt2": "vocab_merges"}
_HEAD_BYTES = 4096
# The files that may be a directory's tokenizer; the first that exists is.
_FILES_WITHIN = (
    *("tokenizer.json", "tekken.json", "tokenizer.model", "vocab.json", "encoder.json"),
    *("*.tiktoken", "*.model", "*.gguf"),
)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")


def is_compressed(path: Path) -> bool:
    """Return True if a file's name says that it is compressed."""
    return path.suffix.lower() in core.COMPRESSED


def read_head(path: Path) -> bytes:
    """Return the start of a file's content, which shows its format, along with its name."""
    with core.decompressed(path) as file:
        return file.read(_HEAD_BYTES)


def format_of(path: Path) -> str | None:
    """Name the foreign format that a file is in, or None."""
    head = read_head(path)
    return next((name for name in _READERS if _module(name).matches(path, head)), None)


def read(
    path: Path, split_pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Source:
    """Read a file or a directory that is in one of the foreign formats.

    Raises:
        FileFormatError: it is in none of them, or damaged.
    """
    if path.is_dir():
        path = file_within(path)
    if is_compressed(path) and core.suffix_of(path) != ".tiktoken":
        remedy = "unpack it first; only .tiktoken files are read compressed"
        raise FileFormatError(path, "", remedy)
    name = format_of(path)
    if name is not None:
        source: Source = _module(name).read(path, split_pattern, special_tokens)
        return source
    if b'"pat_str"' in read_head(path):
        problem = "contains only the split pattern and special tokens of the ranks beside it; load"
        raise FileFormatError(path, "", f"{problem} {path.with_suffix('.tiktoken')} instead")
    raise FileFormatError(
        path,
        "",
        "not recognized as a tokenizer; known are tokenizer.json, .tiktoken, tekken.json, "
        "vocab.json with merges.txt, GGUF and SentencePiece models, and plain JSON with vocab, "
        "merges and split_pattern",
    )


def read_parts(
    path: Path, split_pattern: str | None, special_tokens: Iterable[AddedToken]
) -> tuple[Definition, dict[str, str], dict[str, Any], dict[str, str], Path]:
    """Read as `read` does; return a definition, roles, settings, chat templates and the file."""
    path = file_within(path) if path.is_dir() else path
    source = read(path, split_pattern, _named(special_tokens) or None)
    return _parts(source, path)


def read_ranks(
    path: Path, split_pattern: str | None, special_tokens: Iterable[AddedToken]
) -> tuple[Definition, dict[str, str], dict[str, Any], dict[str, str], Path]:
    """Read a file of ranks as `read_parts` does, but none of the files beside it."""
    source = _module("tiktoken").read_alone(path, split_pattern, _named(special_tokens))
    return _parts(source, path)


def _named(tokens: Iterable[AddedToken]) -> dict[str, int]:
    return {token.content: token.id for token in tokens if token.id is not None}


def _parts(
    source: Source, path: Path
) -> tuple[Definition, dict[str, str], dict[str, Any], dict[str, str], Path]:
    data = core.JsonReader(source.tokenizer, path)
    definition = source.definition or core.read_definition(data)
    settings = source.settings
    if settings.get("files"):
        added = [token.content for token in definition.added]
        settings = {**settings, "files": {**settings["files"], "added": added}}
        if format_of(path) not in ("named", "plain"):
            settings = core.without_class(settings)  # it reads the other format
    return definition, source.roles, settings, source.chat_templates, path


def file_within(folder: Path) -> Path:
    """Return the file of a directory that is its tokenizer.

    Raises:
        FileNotFoundError: no file is one.
        FileFormatError: several are.
    """
    found = files_within(folder)
    if len(found) == 1:
        return found[0]
    if found:
        names = [file.name for file in found]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        problem = f"contains several tokenizers; name one of: {', '.join(names[:10])}{more}"
        raise FileFormatError(folder, "", problem)
    raise FileNotFoundError(
        f"{folder}: contains no tokenizer.json and no other known tokenizer: tekken.json, "
        "tokenizer.model, vocab.json with merges.txt, or a .tiktoken, .model or .gguf file"
    )


def files_within(folder: Path) -> list[Path]:
    """Return the files of a directory that may be its tokenizer; several are ambiguous."""
    for pattern in _FILES_WITHIN:
        found = sorted(path for path in folder.glob(pattern) if path.is_file())
        if found:
            return found
    names = (file.name.removesuffix("_config.json") for file in folder.glob("*_config.json"))
    named = (folder / f"{name}.json" for name in sorted(names))  # `save` wrote them before 0.8
    return [path for path in named if path.is_file() and b'"added_tokens"' in read_head(path)]


# -- What a format can't express -----------------------------------------------


def lost(target: str, what: str) -> ValueError:
    """Return the error for a tokenizer that a format, or a library, can't hold."""
    return ValueError(f"{target} cannot hold this tokenizer: {what}")


def normalizer_lost(tokenizer: BPETokenizer, target: str, library: str) -> ValueError | None:
    """Return the error for a normalizer, which no foreign format has; None if there is none."""
    name = normalizer_name(tokenizer.definition)
    if not name:
        return None
    like_that = f"is {name} already"
    if tokenizer.normalizer:
        like_that = f"unicodedata.normalize({name!r}, text) returned"
    return lost(
        target,
        f"it normalizes text to {name}, which {library} does not do; to leave that out, pass "
        f"without_normalizer=True (or --without-normalizer) and give {library} only text that "
        f"{like_that}",
    )


def normalizer_name(definition: Definition) -> str:
    """Name the steps before text is cut, such as "NFC" or "NFC + Lowercase"."""
    components = definition.components
    if components is None:
        return definition.normalizer or ""
    waiting, names = [components["normalizer"]], []
    while waiting:
        step = waiting.pop(0) or {}
        waiting[:0] = step.get("normalizers") or ()
        names += [str(step["type"])] if step and "normalizers" not in step else []
    return " + ".join(names)


def drop_normalizer(tokenizer: BPETokenizer) -> BPETokenizer:
    """Return a copy without the normalizer, or the tokenizer itself if it has none."""
    definition = tokenizer.definition
    if not normalizer_name(definition):
        return tokenizer
    components = definition.components and {**definition.components, "normalizer": None}
    bare = replace(definition, normalizer=None, components=components)
    return core.from_parts(bare, *core.rest(tokenizer), Path())


# Format -> its name in errors, and the library that reads it.
_TARGETS = {
    "tiktoken": ("tiktoken", "tiktoken"),
    "gpt2": ("vocab.json and merges.txt", "GPT-2's tokenizer"),
    "gguf": ("a GGUF file", "llama.cpp"),
}


def export(
    tokenizer: BPETokenizer,
    path: str | os.PathLike[str],
    format: str,
    *,
    without_normalizer: bool = False,
) -> None:
    """Write another format: "tokenizer.json", "tiktoken", "gguf", or "gpt2" to a directory.

    Args:
        tokenizer: what to write.
        path: the file; for "gpt2", the directory of vocab.json and merges.txt.
        format: as above.
        without_normalizer: leave the normalizer out; the caller normalizes all text.

    Raises:
        ValueError: the format can't hold something that decides ids.
    """
    path = Path(path)
    source = drop_normalizer(tokenizer) if without_normalizer else tokenizer
    if format == "tokenizer.json":
        written: Contents = {path: core.to_json(core.tokenizer_json_of(source))}
    else:
        written = contents(source, path, format)
    folder = next(iter(written)).parent
    folder.mkdir(parents=True, exist_ok=True)
    transactions.save_files(written)


def contents(tokenizer: BPETokenizer, path: Path, format: str) -> Contents:
    """Return the content of each file of a tokenizer in a foreign format.

    Raises:
        ValueError: the format cannot hold the tokenizer, or is not known.
        IsADirectoryError: one of the files to write is a directory.
        FileExistsError: another tokenizer is in the directory.
    """
    if format not in _WRITERS:
        known = ", ".join(sorted(["tokenizer.json", *_WRITERS]))
        raise ValueError(f"format must be one of {known}, got {format!r}")
    found: Contents = _module(_WRITERS[format]).contents(drop_normalizer(tokenizer), path)
    problem = normalizer_lost(tokenizer, *_TARGETS[format])
    if problem:  # last: other losses have no remedy
        raise problem
    if format == "gpt2" and not _may_be_beside(tokenizer, path):
        raise FileExistsError(
            f"{path}: has the tokenizer.json of another tokenizer, and both need "
            "tokenizer_config.json; export to another directory, or delete tokenizer.json"
        )
    for file in found:
        if file.is_dir():  # before any is written
            raise IsADirectoryError(f"{file}: is a directory; expected a file to write to")
    if format == "gguf":
        _module("gguf").warn_if_approximate(tokenizer)
    return found


def _may_be_beside(tokenizer: BPETokenizer, folder: Path) -> bool:
    """Return whether a directory has no tokenizer.json, or this tokenizer's."""
    if not transactions.read_files([folder / "tokenizer.json"]):
        return True
    with contextlib.suppress(ValueError, OSError):
        return BPETokenizer.from_file(folder).fingerprint == tokenizer.fingerprint
    return False
