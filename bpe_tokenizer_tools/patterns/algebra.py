"""Split patterns as trees.

A pattern's text doesn't show how another engine spells it, or where text may be cut; its tree
does: see oniguruma.py, re_dialect.py and safe_cuts.py.  `PatternParser` knows the regex syntax
that split patterns use.  `regex` also runs all other patterns, but those three modules can't
handle them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

# What \w means in `regex`.  Oniguruma's differs: for example, it includes "²".
WORD_CHARS = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d"


class UnknownConstructError(ValueError):
    """A split pattern contains something that `PatternParser` doesn't model."""


class Chars(NamedTuple):
    r"""One character: a literal, a class, or an escape such as \p{L}."""

    source: str  # in `regex` syntax
    ignore_case: bool

    @property
    def pattern(self) -> str:
        """This character as its own pattern, valid outside the group with the case flag."""
        return f"(?i:{self.source})" if self.ignore_case else self.source


class Repeat(NamedTuple):
    """What a quantifier repeats."""

    item: Node
    low: int
    quantifier: str  # as written, without the mode
    mode: str  # "" greedy, "?" lazy, "+" possessive


class Group(NamedTuple):
    """A group; captures are ignored."""

    prefix: str  # "(?:", "(?i:", "(?>", "(?=", "(?!", "(?<=" or "(?<!"
    item: Node


class Anchor(NamedTuple):
    """A place in the text."""

    source: str  # one of \A ^ $ \Z \b \B


class Concat(NamedTuple):
    """One part after another."""

    items: tuple[Node, ...]


class Either(NamedTuple):
    """Alternatives, in the order they are tried."""

    options: tuple[Node, ...]


Node = Chars | Repeat | Group | Anchor | Concat | Either

_ATOM = re.compile(
    r"\\(?:[pP]\{\^?\w+\}|[pP][A-Z]|[sSdDwWtnrfva]|0(?!\d)|[^\w\s]| "
    r"|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
)
_QUANTIFIER = re.compile(r"(\*|\+|\?|\{(\d*)(?:,(\d*))?\})([?+]?)")
_GROUP_OPEN = re.compile(r"\((?:\?(?:(:|>|=|!|<=|<!|i:)|P?<\w+>))?")


_ONIGURUMA_TO_REGEX: dict[str, Node] = {
    "\\A": Anchor("\\A"),
    "\\Z": Anchor("$"),
    "\\z": Anchor("\\Z"),
    "$": Group("(?=", Either((Chars("\\n", False), Anchor("\\Z")))),  # ends a line
}


class PatternParser:
    """Recursive descent over the part of regex syntax that split patterns use.

    Args:
        pattern: what to parse.
        oniguruma: whether it is in Oniguruma's Ruby syntax; the tree always has
            the meaning for `regex`.
    """

    def __init__(self, pattern: str, oniguruma: bool = False) -> None:
        self._text, self._at, self._oniguruma = pattern, 0, oniguruma

    def parse(self) -> Node:
        """Parse the whole pattern, or raise `UnknownConstructError`."""
        ignore_case = self._text.startswith("(?i)")
        self._at = 4 if ignore_case else 0
        tree = self._either(ignore_case)
        if ignore_case:
            self._check_folds(self._text[4:])
        if self._at < len(self._text):
            raise self._unknown()
        return Group("(?i:", tree) if ignore_case else tree

    def _unknown(self) -> UnknownConstructError:
        found = self._text[self._at : self._at + 10]
        return UnknownConstructError(f"{found!r} at position {self._at}")

    def _either(self, ignore_case: bool) -> Node:
        options = [self._concat(ignore_case)]
        while self._text[self._at : self._at + 1] == "|":
            self._at += 1
            options.append(self._concat(ignore_case))
        return options[0] if len(options) == 1 else Either(tuple(options))

    def _concat(self, ignore_case: bool) -> Node:
        items: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            items.append(self._repeat(self._atom(ignore_case)))
        return items[0] if len(items) == 1 else Concat(tuple(items))

    def _repeat(self, item: Node) -> Node:
        found = _QUANTIFIER.match(self._text, self._at)
        if not found:
            return item
        if may_be_empty(item) or (found[1].startswith("{") and not found[2]):
            raise self._unknown()  # engines differ on repeating nothing
        self._at = found.end()
        low = int(found[2]) if found[2] else {"+": 1}.get(found[1], 0)
        if self._oniguruma and found[1][0] == "{" and found[4]:  # `{1,3}+` repeats the repeat
            if found[4] == "?":
                raise self._unknown()
            return Repeat(Group("(?:", Repeat(item, low, found[1], "")), 1, "+", "")
        lazy_exact = found[4] == "?" and found[1][0] == "{" and "," not in found[1]
        return Repeat(item, low, found[1], "" if lazy_exact else found[4])

    def _atom(self, ignore_case: bool) -> Node:
        char = self._text[self._at]
        if char == "(":
            return self._group(ignore_case)
        if char == "[":
            return self._char_class(ignore_case)
        anchor = self._text[self._at : self._at + (2 if char == "\\" else 1)]
        if self._oniguruma and anchor in _ONIGURUMA_TO_REGEX:
            self._at += len(anchor)
            return _ONIGURUMA_TO_REGEX[anchor]
        if not self._oniguruma and anchor in ("^", "$", "\\A", "\\Z", "\\b", "\\B"):
            self._at += len(anchor)
            return Anchor("\\A" if anchor == "^" else anchor)
        if char == "\\":
            return Chars(self._escape(), ignore_case)
        if char in "*+?{}^":
            raise self._unknown()
        self._at += 1
        return Chars(char, ignore_case)

    def _escape(self) -> str:
        found = _ATOM.match(self._text, self._at)
        bare = found and re.fullmatch(r"\\[pP][A-Z]|\\[wW]", found[0])
        odd = bare or (found and re.search(r"(?i)\{\^?(punct|word|ext.*)\}", found[0]))
        if not found or (odd and self._oniguruma):  # where these mean something else
            raise self._unknown()
        self._at = found.end()
        escape = found[0]
        return f"{escape[:2]}{{{escape[2]}}}" if bare and escape[1] in "pP" else escape

    def _group(self, ignore_case: bool) -> Node:
        found = _GROUP_OPEN.match(self._text, self._at)
        if not found or self._text[found.end() - 1 : found.end() + 1] in ("(?", "(*"):
            raise self._unknown()
        self._at = found.end()
        kind = found[1] or ":"  # captures don't matter here
        item = self._either(ignore_case or kind == "i:")
        if self._text[self._at : self._at + 1] != ")":
            raise self._unknown()
        self._at += 1
        if kind == "i:":
            self._check_folds(self._text[found.end() : self._at - 1])
        return Group(f"(?{kind}", item)

    def _check_folds(self, written: str) -> None:
        """Raise for text that Oniguruma may fold differently, such as "i" and "ss"."""
        if self._oniguruma and not re.fullmatch(r"(?i:(?!ss|st|f[fl])[a-hj-z'|[\]])*", written):
            raise UnknownConstructError("(?i:..) of more than plain letters")

    def _char_class(self, ignore_case: bool) -> Node:
        """Read ``[..]`` and write its literals escaped, as all engines agree on that."""
        start, self._at = self._at, self._at + 1
        out = ["["]
        if self._text[self._at : self._at + 1] == "^":
            out.append("^")
            self._at += 1
        refused = ("[:", "[", "&&") if self._oniguruma else ("[:",)
        while self._text[self._at : self._at + 1] != "]" or len(out) == 1 + (out[-1] == "^"):
            char = self._text[self._at : self._at + 1]
            if not char or self._text.startswith(refused, self._at):
                self._at = start
                raise self._unknown()
            if char == "\\":
                out.append(self._escape())
            else:
                out.append("\\" + char if char in "[]&|~" else char)
                self._at += 1
        self._at += 1
        return Chars("".join(out) + "]", ignore_case)


def may_be_empty(node: Node) -> bool:
    """Return True if a pattern tree can match the empty string, or may."""
    if isinstance(node, Chars):
        return False
    if isinstance(node, Repeat):
        return node.low == 0 or may_be_empty(node.item)
    if isinstance(node, Group):
        return node.prefix not in ("(?:", "(?i:", "(?>") or may_be_empty(node.item)
    if isinstance(node, Concat):
        return all(map(may_be_empty, node.items))
    return not isinstance(node, Either) or any(map(may_be_empty, node.options))


def never_empty(pattern: str) -> bool:
    """Return True if a pattern is known not to match the empty text."""
    try:
        return not may_be_empty(PatternParser(pattern).parse())
    except (UnknownConstructError, RecursionError):
        return False


def spell(node: Node, leaf: Callable[[Chars | Anchor], str]) -> str:
    """Write a pattern tree as text, in the dialect that `leaf` speaks."""
    write = functools.partial(spell, leaf=leaf)
    if isinstance(node, (Chars, Anchor)):
        return leaf(node)
    if isinstance(node, Concat):
        return "".join(map(write, node.items))
    if isinstance(node, Either):
        return "|".join(map(write, node.options))
    if isinstance(node, Group):
        return f"{node.prefix}{write(node.item)})"
    repeated = write(node.item) + node.quantifier
    simple = isinstance(node.item, Chars) and not repeated.startswith("(")
    if node.mode == "+" and (node.quantifier[0] == "{" or not simple):
        return f"(?>{repeated})"  # engines differ on what `{1,3}+` and `(..)++` mean
    return repeated + node.mode


def leaves(node: Node) -> set[str]:
    """Return the one-character patterns in a pattern tree."""
    if isinstance(node, Chars):
        return {node.pattern}
    if isinstance(node, Anchor):
        return {"$": {"\\n"}, "\\b": {"\\w"}, "\\B": {"\\w"}}.get(node.source, set())
    if isinstance(node, (Repeat, Group)):
        return leaves(node.item)
    parts = node.items if isinstance(node, Concat) else node.options
    return set().union(*map(leaves, parts))
