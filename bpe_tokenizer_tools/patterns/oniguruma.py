r"""Oniguruma's regular expressions, as in HuggingFace tokenizers, and those of `regex`.

`to_oniguruma` and `from_oniguruma` translate.  `algebra.PatternParser` reads most patterns of
byte-level tokenizers.  `Parser` reads the others: set operations (``[\p{L}&&[^\p{Han}]]``), word
borders, the beginning of a line.  It expresses them in terms that `regex` and the tree know.

Source: Oniguruma's doc/RE, Ruby syntax; details it leaves open were measured.
"""

from __future__ import annotations

import functools
import operator
import re

from bpe_tokenizer import SPLIT_PATTERNS
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns import algebra
from bpe_tokenizer_tools.patterns.families import KIMI
from bpe_tokenizer_tools.patterns.known import MORE_PATTERNS, SPELLINGS

# What \w means inside [..]; outside, it takes in six more (measured over all code
# points, tests/formats/test_components.py).  Neither is what `regex` means by it.
_SET_WORD_CHARS = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}"
_WORD_CHARS = _SET_WORD_CHARS + "²³¹¼½¾"


def _word_border(inside: bool) -> algebra.Node:
    r"""Spell \b or \B; \B is each place within a word or outside of all words."""
    word = algebra.Chars(f"[{_WORD_CHARS}]", False)
    after, not_after = algebra.Group("(?<=", word), algebra.Group("(?<!", word)
    before, not_before = algebra.Group("(?=", word), algebra.Group("(?!", word)
    if inside:
        before, not_before = not_before, before
    return algebra.Group(
        "(?:",
        algebra.Either((algebra.Concat((after, not_before)), algebra.Concat((not_after, before)))),
    )


_HEX = re.compile(r"\\[xu]([0-9a-fA-F]{2,4})")
_FOLDS_TO_SEVERAL = core.Pattern(r"(?i)ss|f[fil]|st|ʼn|.\p{M}")
_ANYTHING = algebra.Chars("[\\s\\S]", False)
_NEW_LINE = algebra.Chars("\\n", False)
_ESCAPES: dict[str, algebra.Node] = {
    "\\b": _word_border(inside=False),
    "\\B": _word_border(inside=True),
    "\\w": algebra.Chars(f"[{_WORD_CHARS}]", False),
    "\\W": algebra.Chars(f"[^{_WORD_CHARS}]", False),
    "^": algebra.Group(  # begins a line, but not after the last line end
        "(?:",
        algebra.Either(
            (
                algebra.Anchor("\\A"),
                algebra.Concat((algebra.Group("(?<=", _NEW_LINE), algebra.Group("(?=", _ANYTHING))),
            )
        ),
    ),
}


class Parser(algebra.PatternParser):
    """Reads set operations and, for Oniguruma, syntax that `PatternParser` rejects."""

    _depth = 0

    def _atom(self, ignore_case: bool) -> algebra.Node:
        char = self._text[self._at : self._at + 1]
        escape = self._text[self._at : self._at + (2 if char == "\\" else 1)]
        if self._oniguruma and escape in _ESCAPES:
            self._at += len(escape)
            return _ESCAPES[escape]
        at = self._at
        found = super()._atom(ignore_case)
        if char in ("(", "[") or not isinstance(found, algebra.Chars):
            return found
        return self._folded(self._text[at : self._at], found.source, ignore_case)

    def _folded(self, written: str, source: str, ignore_case: bool) -> algebra.Chars:
        """Make a leaf; ignoring case, Oniguruma doesn't match "i" with "İ" or "ı"."""
        if not (self._oniguruma and ignore_case):
            return algebra.Chars(source, ignore_case)
        if re.match(r"\\[pP]", written):  # a property has no case there
            return algebra.Chars(f"(?-i:{source})", False)
        exact, folded = core.Pattern(source), core.Pattern(f"(?i:{source})")
        if all(bool(exact.match(i)) == bool(folded.match(i)) for i in "İı"):
            return algebra.Chars(source, True)
        apart = f"(?-i:(?![İı])(?i:{source})|(?=[İı]){source})"
        return algebra.Chars(apart, False)

    def _check_folds(self, written: str) -> None:
        """Raise for text that can match more or fewer characters there: (?i:ss) matches "ß"."""
        written = _HEX.sub(lambda found: chr(int(found[1], 16)), written)
        literals = re.sub(r"\[[^]]*\]|\((\?[:=!<>i]+)?|\)", "", written)
        several = len(written.casefold()) > len(written) or _FOLDS_TO_SEVERAL.search(literals)
        if self._oniguruma and (several or "ı" in written):
            raise algebra.UnknownConstructError("(?i:..) of characters that fold to several")

    def _escape(self) -> str:
        """Read an escape; `within` a set it is one of the members."""
        if self._oniguruma and self._depth and self._text.startswith("\\w", self._at):
            self._at += 2
            return _SET_WORD_CHARS
        return super()._escape()

    def _char_class(self, ignore_case: bool) -> algebra.Node:
        at = self._at
        source = self._set()
        return self._folded(self._text[at : self._at], source, ignore_case)

    def _set(self) -> str:
        """Read ``[..]``, and write it so that all engines agree.

        Its literals are escaped.  Intersections, ``[a&&b]``, and sets within
        sets become look-aheads and alternatives: ``(?:(?=[a])[b])``.
        """
        self._depth += 1
        if self._depth > 20:
            raise self._unknown()
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        unions = [self._union(first=True)]
        while self._text.startswith("&&", self._at):
            self._at += 2
            unions.append(self._union(first=False))
        self._at += 1
        self._depth -= 1
        if len(unions) == 1 and not negated:
            return unions[0]
        if len(unions) == 1 and re.match(r"\[[^^]", unions[0]):
            return f"[^{unions[0][1:]}"
        looks = "".join(f"(?={union})" for union in unions[:-1])
        both = f"(?:{looks}{unions[-1]})" if looks else unions[-1]
        return f"(?:(?!{both})[\\s\\S])" if negated else both

    def _union(self, first: bool) -> str:
        """Read the members of a set up to its end, or up to ``&&``."""
        members: list[str] = []
        sets: list[str] = []
        while True:
            char = self._text[self._at : self._at + 1]
            if (char == "]" and not first) or self._text.startswith("&&", self._at):
                break
            if not char or self._text.startswith("[:", self._at):
                raise self._unknown()
            if char == "[":
                sets.append(self._set())
            elif char == "\\":
                members.append(self._escape())
            else:
                members.append("\\" + char if char in "[]&|~" else char)
                self._at += 1
            first = False
        if members:
            sets.insert(0, f"[{''.join(members)}]")
        if not sets:
            raise self._unknown()
        return sets[0] if len(sets) == 1 else f"(?:{'|'.join(sets)})"


def without_intersections(pattern: str) -> str:
    r"""Rewrite a pattern without its intersections.

    >>> print(without_intersections(r"[\w&&[^\d]]+"))
    (?:(?=[\w])[^\d])+

    Raises:
        ValueError: the pattern contains syntax that the parser doesn't know.
    """
    try:
        return algebra.spell(Parser(pattern).parse(), operator.attrgetter("source"))
    except (algebra.UnknownConstructError, RecursionError) as error:
        raise ValueError(
            f"split pattern {core.shorten(pattern)}: {error} is not supported beside &&"
        ) from None


# -- From `regex` to Oniguruma and back ---------------------------------------

_ANCHORS = {"$": "\\Z", "\\Z": "\\z", "\\A": "\\A"}


def _leaf(node: algebra.Chars | algebra.Anchor) -> str:
    """Spell one character or anchor of a pattern tree."""
    if isinstance(node, algebra.Anchor):
        if node.source not in _ANCHORS:
            raise algebra.UnknownConstructError(repr(node.source))
        return _ANCHORS[node.source]
    source = {"\\w": "[\\w]", "\\W": "[^\\w]"}.get(node.source, node.source)
    if "\\W" in source or (node.ignore_case and re.search(r"\\[pP]", source)):
        raise algebra.UnknownConstructError(repr(node.pattern))  # \p has no case there
    return source.replace("\\w", algebra.WORD_CHARS)


def to_oniguruma(pattern: str) -> str:
    r"""Spell a `regex` pattern as Oniguruma (Ruby syntax) understands it.

    There, `$` ends a line, not the text, and `{1,3}+` isn't a possessive quantifier.  A pattern
    that cuts like a public one is spelled like it, because fast loaders know patterns by spelling.

    >>> print(to_oniguruma(r"\p{N}{1,3}+|\s++$"))
    (?>\p{N}{1,3})|\s++\Z

    Raises:
        ValueError: it contains something not known to mean the same there.
    """
    public = _public_spellings().get(pattern)
    if public:
        return public
    try:
        tree = algebra.PatternParser(pattern).parse()
        if algebra.may_be_empty(tree):
            raise algebra.UnknownConstructError("a pattern that matches the empty string")
        return algebra.spell(tree, _leaf)
    except algebra.UnknownConstructError as error:
        raise ValueError(
            f"split pattern {core.shorten(pattern)} cannot be written to tokenizer.json: {error} "
            "has no form known to mean the same in HuggingFace's regex engine; write the pattern "
            "without it"
        ) from None


@functools.cache
def _public_spellings() -> dict[str, str]:
    """Return other spellings of public patterns -> those in the models' files."""
    names = {name: core.SPELLINGS[pattern] for name, pattern in SPLIT_PATTERNS.items()}
    names |= MORE_PATTERNS
    found = {pattern: names[name] for pattern, name in SPELLINGS.items()}
    for pattern in (*SPLIT_PATTERNS.values(), *MORE_PATTERNS.values()):
        del found[pattern]  # spelled like any other pattern, which gives the same
    return {**found, from_oniguruma(KIMI): KIMI}


def from_oniguruma(pattern: str) -> str:
    """Spell an Oniguruma (Ruby syntax) pattern for `regex`; see `to_oniguruma`.

    Raises:
        ValueError: the pattern contains syntax that neither parser knows.
    """
    if (pattern,) in core.KNOWN_SPELLINGS:
        return core.KNOWN_SPELLINGS[(pattern,)]
    try:
        tree = algebra.PatternParser(pattern, oniguruma=True).parse()
    except algebra.UnknownConstructError:
        tree = Parser(pattern, oniguruma=True).parse()
    return algebra.spell(tree, operator.attrgetter("source"))
