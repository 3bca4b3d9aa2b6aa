"""Recipes for corpora: sources, the share of each, and a size; read from TOML or JSON."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.settings import Settings

DEFAULT_SEPARATOR = "<|endoftext|>"
_FORMATS = ("text", "jsonl", "parquet")
_DOCUMENTS = ("separator", "lines", "blank-lines", "file")
_LONGEST_FRACTION = 1000  # characters
_LARGE_EXPONENT = re.compile(r"(?i)e[+-]?[\d_]{4}")
_UNITS = {"": 1, "b": 1}
_UNITS.update({f"{unit}b": 1000**i for i, unit in enumerate("kmgt", 1)})
_UNITS.update({f"{unit}ib": 1024**i for i, unit in enumerate("kmgt", 1)})


def parse_size(value: object) -> int:
    """Return a size in bytes: of a number, or of text such as "10 GB" or "512 KiB".

    kB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB of 1024.

    Raises:
        ValueError: it is not a size of at least one byte.

    >>> parse_size("1.5 MB"), parse_size("2KiB"), parse_size(1e9)
    (1500000, 2048, 1000000000)
    """
    found = None
    if type(value) in (int, float) or isinstance(value, str):
        number = r"\s*(\d[\d_]*\.?\d*(?:e\+?\d{1,2})?)\s*([a-z]*)\s*"
        found = re.fullmatch(number, str(value).lower())
    if found is None or found[2] not in _UNITS:
        raise ValueError(
            f"expected a size in bytes, such as 1000000, '500 MB' or '2 GiB', got {value!r}"
        )
    size = int(Fraction(found[1].replace("_", "")) * _UNITS[found[2]])
    if size < 1:
        raise ValueError(f"expected a size of at least one byte, got {value!r}")
    return size


def _parse_fraction(value: object) -> Fraction:
    """Return the exact fraction of a number such as 0.1, or a text such as "1/3"."""
    shown = core.shorten(value)
    problem = f"expected a fraction above 0 and up to 1, such as 0.25 or '1/3', got {shown}"
    text = str(value)
    if len(text) > _LONGEST_FRACTION or _LARGE_EXPONENT.search(text):
        raise ValueError(problem)  # its digits might take hours to work out
    try:
        fraction = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(problem) from None
    if fraction <= 0 or fraction > 1:
        raise ValueError(problem)
    return fraction


@dataclass(frozen=True)
class Source:
    """Where some of a corpus comes from."""

    name: str  # its name in reports, which also affects the choice
    # files, directories and patterns such as ``data/**/*.jsonl``, from the recipe's folder. A
    # directory means all files below it, except hidden ones
    paths: tuple[str, ...]
    fraction: Fraction  # its share of the corpus's bytes: above 0, up to 1
    format: str | None = None  # "text", "jsonl" or "parquet"; None: by the name of each file
    # how text files are cut into documents: "separator" (at each separator; a file without any is
    # one document), "lines", "blank-lines" (at blank lines) or "file" (not at all)
    documents: str = "separator"
    separator: str = DEFAULT_SEPARATOR  # for "separator"
    text_field: str = "text"  # the field or column of .jsonl and .parquet files
    repetitions: int | None = 1  # of a document in too small a source; None: as often as it takes

    def __post_init__(self) -> None:
        """Raise for settings that no file can be read with."""
        object.__setattr__(self, "fraction", _parse_fraction(self.fraction))
        paths = (self.paths,) if isinstance(self.paths, (str, os.PathLike)) else self.paths
        object.__setattr__(self, "paths", tuple(map(os.fspath, paths)))
        if not self.name or not self.name.isprintable():
            raise ValueError(f"expected a name that can be printed, got {self.name!r}")
        if not self.paths or not all(self.paths):
            raise ValueError(f"expected at least one path, got {list(self.paths)!r}")
        for what, value, valid in (
            ("format", self.format, (None, *_FORMATS)),
            ("documents", self.documents, _DOCUMENTS),
        ):
            if value not in valid:
                named = ", ".join(repr(name) for name in valid if name)
                raise ValueError(f"{what}: expected one of {named}, got {value!r}")
        if not self.separator:
            raise ValueError("separator: expected text, got ''; for whole files, documents='file'")
        if self.repetitions is not None and self.repetitions < 1:
            raise ValueError(f"repetitions: expected 1 or more, got {self.repetitions}")


@dataclass(frozen=True)
class Recipe:
    """The parts of a corpus, as a user describes them.

    >>> recipe = Recipe.from_dict({
    ...     "target_size": "1 MB",
    ...     "sources": [{"name": "prose", "path": "prose.txt", "fraction": 1}],
    ... })
    >>> recipe.target_size, recipe.sources[0].documents
    (1000000, 'separator')
    """

    sources: tuple[Source, ...]  # at least one, with names of their own and fractions that sum to 1
    target_size: int  # bytes of text, as UTF-8
    seed: int = 0  # another one draws other documents
    held_out: int = 0  # bytes of other documents to draw, in the same shares, for evaluation
    folder: Path = field(default=Path(), compare=False)  # where relative paths start

    def __post_init__(self) -> None:
        """Raise for shares that don't add up to 1, and names that aren't unique."""
        if not self.sources:
            raise ValueError("expected at least one source")
        seen: set[str] = set()
        for source in self.sources:
            if source.name in seen:
                raise ValueError(f"two sources are named {source.name!r}; give each its own name")
            seen.add(source.name)
        total = sum((source.fraction for source in self.sources), Fraction())
        if abs(total - 1) > Fraction(1, 10**6):
            shown = " + ".join(f"{float(source.fraction):g}" for source in self.sources)
            raise ValueError(f"the fractions sum to {float(total):g}, not to 1: {shown}")
        if self.target_size < 1 or self.held_out < 0:
            raise ValueError("expected a target_size above 0, and held_out not below")
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError("seed: expected a number of at most 64 bits")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Recipe:
        """Read a recipe from a .toml or .json file.

        Raises:
            FileFormatError: the file is not a recipe; the error says where, and what was expected.
            FileNotFoundError: there is no such file.
        """
        return cls.from_settings(Settings.open(Path(path)), Path(path).parent)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], folder: str | os.PathLike[str] = ".") -> Recipe:
        """Make a recipe from the content of a file; paths start at `folder`."""
        return cls.from_settings(Settings(dict(data), Path("recipe")), Path(folder))

    @classmethod
    def from_settings(cls, settings: Settings, folder: Path) -> Recipe:
        """Make a recipe of settings that were read from a file."""
        settings.check_keys("target_size", "seed", "held_out", "sources")
        held_out = settings.get("held_out", int, float, str, default=0)
        seed = settings.get("seed", int, default=0)
        with settings.placing_errors("target_size"):
            target = parse_size(settings.get("target_size", int, float, str))
        with settings.placing_errors("held_out"):
            held_out = parse_size(held_out) if held_out != 0 else 0
        settings.get("sources", list)
        sources = tuple(map(_read_source, settings.tables("sources")))
        with settings.placing_errors():
            return cls(sources, target, seed, held_out, folder)

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as the content of a file, with everything that decides the choice."""
        sources = []
        for source in self.sources:
            facts = {**asdict(source), "fraction": str(source.fraction)}
            facts["path"] = list(facts.pop("paths"))
            limit = facts.pop("repetitions")
            facts["upsample"] = True if limit is None else limit
            sources.append({name: value for name, value in facts.items() if value is not None})
        numbers = {name: getattr(self, name) for name in ("target_size", "seed", "held_out")}
        return {**numbers, "sources": sources}


def _read_source(settings: Settings) -> Source:
    options = ("format", "documents", "separator", "text_field")
    settings.check_keys("name", "path", "fraction", *options, "upsample")
    name = settings.get("name", str)
    paths = settings.get("path", str, list)
    listed = [paths] if isinstance(paths, str) else paths
    if not all(isinstance(path, str) for path in listed):
        raise settings.error(f"expected paths, got {core.shorten(listed)}", "path")
    with settings.placing_errors("fraction"):
        fraction = _parse_fraction(settings.get("fraction", int, float, str))
    upsample = settings.get("upsample", bool, int, default=False)
    if upsample is not True and upsample is not False and upsample < 1:
        raise settings.error(f"expected true, or how often at most, got {upsample}", "upsample")
    texts = {key: settings.get(key, str) for key in options if key in settings.data}
    limit = None if upsample is True else int(upsample or 1)
    with settings.placing_errors():
        return Source(name, tuple(listed), fraction, repetitions=limit, **texts)
