"""Borders for tokenizers whose tokenizer.json has components.

For two adjacent characters x and y, each component says what they become, and whether it treats
both sides the same if it sees them separately.  Components that change only the beginning of a text
(Prepend, the mark of Metaspace) don't matter: the right side is encoded with x before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer import GPT2_SPLIT_PATTERN, Definition
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats.component_twin import SPACE
from bpe_tokenizer_tools.formats.components import read_pattern
from bpe_tokenizer_tools.patterns import algebra
from bpe_tokenizer_tools.patterns.other_unicode import MARK, NUMBER, PUNCTUATION, lower
from bpe_tokenizer_tools.patterns.safe_cuts import Reads, reads

_Two = tuple[str, str]
# The result for two adjacent characters; True if text is always cut there; None if unknown.
_Step = Callable[[str, str], "_Two | bool | None"]


class Pair(NamedTuple):
    """How a tokenizer treats two adjacent characters of a text.

    Attributes:
        normalized: their normalized form, still adjacent; None if unknown.
        cut: whether both sides of normalized text are encoded independently there.
    """

    normalized: Callable[[str, str], _Two | None]
    cut: Callable[[str, str], bool]


# -- Normalizers ---


def _by_character(change: Callable[[str], str]) -> _Step:
    def step(x: str, y: str) -> _Two | None:
        left, right = change(x), change(y)
        return (left[-1], right[0]) if left and right else None

    return step


def _keep(x: str, y: str) -> _Two:
    return x, y


def _strip(x: str, y: str) -> _Two | None:
    return None if core.SPACE.match(x) else (x, y)  # so that it stops before the border


def _replace(step: core.JsonReader) -> _Step | None:
    content = step.get("content", str)
    literal = step.data["pattern"].get("String")
    looks = _reads(read_pattern(step))
    if looks is None:
        return None

    def run(x: str, y: str) -> _Two | None:
        if looks.both(x, y):
            return None
        if looks.ends(x):  # a match may end there, and give way to the content
            if not content or (literal != x and content[-1] != x):
                return None
            x = content[-1]
        if looks.begins(y):
            if not content or (literal != y and content[0] != y):
                return None
            y = content[0]
        return x, y

    return run


def _reads(pattern: str) -> Reads | None:
    try:
        return reads(algebra.PatternParser(pattern).parse())
    except (algebra.UnknownConstructError, RecursionError):
        return None


def _normalizer(step: core.JsonReader) -> _Step | None:
    kind = step.data["type"]
    if kind == "Replace":
        return _replace(step)
    is_mark = core.Pattern(MARK).match
    known: dict[str, _Step] = {
        "Lowercase": _by_character(lower),
        "StripAccents": _by_character(lambda char: "" if is_mark(char) else char),
        "Strip": _strip,
        "Prepend": _keep,
        "ByteLevel": _by_character(lambda char: core.to_printable(char.encode())),
    }
    return known.get(kind)


# -- Pre-tokenizers ---


def _split(pattern: str, behavior: str, prefixes: bool) -> _Step:
    """Ask a pre-tokenizer with a pattern; `prefixes`: some step puts a prefix before each piece.

    If the pattern never reads x and then y, no match contains both.  Then both sides are treated
    the same, whether or not a match ends or begins there.  But if a piece that begins there gets a
    prefix, it matters whether one begins there, and x alone, before the right side, may not show
    that.
    """
    cut = core.splitter(pattern).cut if behavior == "Isolated" else None
    looks = _reads(pattern)
    alike = behavior in ("Isolated", "Removed") and not prefixes

    def run(x: str, y: str) -> _Two | bool | None:
        if cut and cut.search(x + y):
            return True
        if looks is None or looks.both(x, y):
            return None
        return (x, y) if alike or not (looks.ends(x) or looks.begins(y)) else None

    return run


def _characters(pattern: str, behavior: str) -> _Step:
    """Ask a pre-tokenizer whose pattern matches single characters."""
    matches = core.Pattern(pattern).fullmatch

    def run(x: str, y: str) -> _Two | bool | None:
        before, after = bool(matches(x)), bool(matches(y))
        if not (before or after):
            return x, y
        if behavior == "Contiguous":
            return True if before != after else None
        return True if behavior in ("Isolated", "Removed") else None

    return run


def _byte_level(step: core.JsonReader) -> _Step:
    if step.get("use_regex", bool, default=True):
        return _split(GPT2_SPLIT_PATTERN, "Isolated", False)
    return _by_character(lambda char: core.to_printable(char.encode()))


def _metaspace(step: core.JsonReader) -> _Step:
    mark = step.get("replacement", str)
    splits = step.get("split", bool, None, default=None) is not False

    def run(x: str, y: str) -> _Two | bool:
        x, y = x.replace(" ", mark), y.replace(" ", mark)
        return True if splits and y == mark != x else (x, y)

    return run


def _prefixes(step: core.JsonReader) -> bool:
    """Return whether a pre-tokenizer may put something before each piece it is given."""
    return step.data["type"] in ("ByteLevel", "Metaspace") and not (
        step.data.get("prepend_scheme") in ("never", "first")
        or step.data.get("add_prefix_space") is False
    )


def _pre_tokenizer(step: core.JsonReader, prefixes: bool) -> _Step | None:
    kind, behavior = step.data["type"], step.data.get("behavior", "Isolated")
    if kind == "Split":
        return _split(read_pattern(step), behavior, prefixes)
    if kind == "Digits":
        individual = step.get("individual_digits", bool, default=False)
        return _characters(NUMBER, "Isolated" if individual else "Contiguous")
    known: dict[str, Callable[[], _Step | None]] = {
        "Punctuation": lambda: _characters(PUNCTUATION, behavior),
        "Whitespace": lambda: _whitespace,
        "WhitespaceSplit": lambda: _characters(r"\s", "Removed"),
        "CharDelimiterSplit": lambda: _characters(re.escape(step.get("delimiter", str)), "Removed"),
        "ByteLevel": lambda: _byte_level(step),
        "Metaspace": lambda: _metaspace(step),
    }
    return known[kind]() if kind in known else None


def _whitespace(x: str, y: str) -> bool | None:
    return True if core.SPACE.match(y) else None  # no word, and no run of signs, has it


# -- Together ---


def _run(steps: Iterable[_Step], x: str, y: str) -> _Two | bool | None:
    """Ask one component after the other, until one always cuts."""
    found: _Two | bool | None = (x, y)
    for step in steps:
        if not isinstance(found, tuple):
            break
        found = step(*found)
    return found


def component_rule(definition: Definition, encoder: Any) -> tuple[str | None, Pair | None]:
    """Return the normal form that components begin with, and their rule for two characters.

    The form is None if there is none; the rule is None if text can't be cut at any pair.
    """
    reader = core.JsonReader(definition.components or {}, Path())
    normalizers = list(core.steps(reader, "normalizer"))
    form = None
    if normalizers and normalizers[0].data["type"] in core.NORMALIZERS:
        form = normalizers.pop(0).data["type"]
    changes = list(map(_normalizer, normalizers))
    pre_tokenizers = list(core.steps(reader, "pre_tokenizer"))
    prefixes = any(map(_prefixes, pre_tokenizers))
    cuts = [_pre_tokenizer(step, prefixes) for step in pre_tokenizers]
    known = [step for step in (*changes, *cuts) if step]
    if len(known) < len(changes) + len(cuts):
        return form, None
    n, free = len(changes), encoder.free_cut

    def normalized(x: str, y: str) -> _Two | None:
        found = _run(known[:n], x, y)
        return found if isinstance(found, tuple) else None

    def cut(x: str, y: str) -> bool:
        found = _run(known[n:], x, y)
        if not isinstance(found, tuple):
            return bool(found)
        x, y = found
        return bool(free and y == SPACE != x and x + y not in free.bound)

    return form, Pair(normalized, cut)
