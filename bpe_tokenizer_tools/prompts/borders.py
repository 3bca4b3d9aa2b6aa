"""Borders: places where a text can be cut so that its parts can be encoded independently.

At a border between the characters x and y of a text,

    encode(text) == encode(text[:at]) + the ids of text[at:] after x

so the result of the right side depends on the left side only through x.  There are two kinds:

- **Pairs.**  x, y and, if text is normalized, the character after y prove the border: the
  normalizer doesn't join them, no added token spans the place or looks across it, and every way
  through the split pattern ends a pre-token there (`patterns.safe_cuts` proves that part).
- **Marks.**  An added token begins at y, its first character is nowhere else in any added token,
  and no flag lets it look to the left.  Then it is found whatever comes before it, and text between
  added tokens is prepared and encoded by itself.  This works for every split pattern.

Both depend only on a few characters, so a border stays a border while these don't change.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, cast

import regex

from bpe_tokenizer import AddedToken, BPETokenizer, Definition
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.prompts.component_borders import Pair, component_rule

_KEPT_PAIRS = 2**14  # results for pairs of characters; a text has hundreds of them
_KEPT_BORDERS = 64  # of a tokenizer, by the special tokens that are allowed
_IS_WORD = core.Pattern(r"\w").match
# Where to look for borders if components cut text: before white space and signs.
_BEFORE_SIGNS = core.Pattern(r"(?r)(?<=\S)(?=[\s\p{P}\p{S}])")

Active = Callable[[int, str], bool]  # whether an added token counts where it begins


class Border(NamedTuple):
    """A place in a text, and the end of the characters that prove it a border."""

    at: int
    proof_end: int


class _Tokens:
    """What added tokens say about a place between two characters."""

    def __init__(self, found: Mapping[str, AddedToken]) -> None:
        tokens = [(text, token) for text, token in found.items() if text]
        self._pairs = {a + b for text, _ in tokens for a, b in itertools.pairwise(text)}
        self._word_ends = {text[-1] for text, token in tokens if token.single_word}
        self._word_begins = {text[0] for text, token in tokens if token.single_word}
        self._ends = {text[-1] for text, _ in tokens}
        self._takes_after = {text[-1] for text, token in tokens if token.rstrip}
        self._takes_before = {text[0] for text, token in tokens if token.lstrip}

    def apart(self, x: str, y: str) -> bool:
        """Return whether no token can span the place between x and y, or look across it."""
        if x + y in self._pairs or x in self._word_ends or y in self._word_begins:
            return False
        if not (self._takes_after or self._takes_before):
            return True
        before, after = _is_space(x), _is_space(y)
        return not (
            (before and after)  # a token may take in all of them
            or (after and x in self._takes_after)
            or (before and y in self._takes_before)
        )

    def may_end(self, x: str) -> bool:
        """Return whether a token, with the white space it takes in, may end with x."""
        return x in self._ends or bool(self._takes_after and _is_space(x))


def _is_space(char: str) -> bool:
    return core.SPACE.match(char) is not None


class _Marks:
    """Added tokens that are found whatever comes before them.

    `others` are found between them; one with the flag single_word would look at a mark.
    """

    def __init__(self, found: Mapping[str, AddedToken], others: Iterable[AddedToken]) -> None:
        tokens = [(text, token) for text, token in found.items() if text]
        inside = {char for text, _ in tokens for char in text[1:]}
        looks = {text[0] for text, token in tokens if token.lstrip or token.single_word}
        words = any(token.single_word for token in (*found.values(), *others))
        begins = {
            char
            for char in {text[0] for text, _ in tokens} - inside - looks
            if not (_is_space(char) or (words and _IS_WORD(char)))
        }
        marks = [text for text, _ in tokens if text[0] in begins]
        self._begins = regex.compile(f"(?r){'|'.join(map(re.escape, sorted(begins))) or '(?!)'}")
        self._find = core.one_of(marks).match
        self.any = bool(marks)

    def last(self, text: str, low: int, high: int, is_active: Active) -> Border | None:
        """Return the last mark that begins between two places, and where it ends."""
        while self.any and (begun := self._begins.search(text, low + 1, high)):
            high = begun.start()
            found = self._find(text, high)
            if found and is_active(high, found[0]):
                return Border(high, found.end())
        return None


class Borders:
    """Finds borders in text; for any number of threads.

    Args:
        pipeline: how text is prepared.
        marks: the added tokens that text is cut at before it is prepared, by content.
        pair: the rule for two adjacent characters: their normalized form and cuts; or None.
        form: the normal form that text is converted to first, or None.
        candidates: a pattern, searched backward, that finds every place that `pair` cuts at.
        looks_left: whether the first characters of a text are encoded differently from those
            after a border.
    """

    def __init__(
        self,
        pipeline: core.Pipeline,
        marks: Mapping[str, AddedToken],
        pair: Pair | None,
        form: str | None,
        candidates: core.Pattern | None,
        looks_left: bool,
    ) -> None:
        self.looks_left = looks_left
        self._pair, self._form = pair, form
        self._candidates = candidates if pair else None
        self._raw = _Tokens({**pipeline.raw.tokens, **marks})
        self._normalized = _Tokens(pipeline.normalized.tokens)
        self._marks = _Marks(marks, pipeline.tokens)
        self._apart = functools.lru_cache(_KEPT_PAIRS)(self._decide)
        self._is_stable = functools.lru_cache(_KEPT_PAIRS)(self._decide_stable)
        self.has_any = bool(self._candidates or self._marks.any)

    def last(
        self, text: str, low: int, high: int, is_active: Active = lambda at, token: True
    ) -> Border | None:
        """Return the last border between two places of a text, excluding both.

        `is_active` tells of a mark whether it counts as one.
        """
        at, more = high, 2 if self._form else 1
        while self._candidates:
            found = self._candidates.last(text, low, at)
            if found is None:
                break
            at = found
            if self._apart(text[at - 1 : at + 1]) and (
                more == 1 or self._is_stable(text[at + 1 : at + 2])
            ):
                return Border(at, at + more)
        return self._marks.last(text, low, high, is_active)

    def _decide(self, two: str) -> bool:
        x, y = two[0], two[1]
        if not self._pair or not self._raw.apart(x, y):
            return False
        if self._form and not (self._is_stable(x) and self._is_stable(y)):
            return False
        made = self._pair.normalized(x, y)
        if made is None or not self._normalized.apart(*made) or not self._pair.cut(*made):
            return False
        # Text after a token is encoded like the beginning of a text.
        ends = self._raw.may_end(x) or self._normalized.may_end(made[0])
        return not (ends and self.looks_left)

    def _decide_stable(self, char: str) -> bool:
        """Return whether normalizing leaves a character as it is, and apart from what is before it.

        If all three characters around a border do, they look the same in normalized text.
        """
        return bool(core.APART.fullmatch(char)) and core.normalize(char, self._form) == char


def _borders(
    tokenizer: BPETokenizer, pipeline: core.Pipeline, marks: Mapping[str, AddedToken]
) -> Borders:
    definition = tokenizer.definition
    if definition.components is not None:
        form, pair = component_rule(definition, core.encoder(tokenizer))
        return Borders(pipeline, marks, pair, form, _BEFORE_SIGNS, looks_left=True)
    cut = pipeline.splitter.cut
    pair = Pair(lambda x, y: (x, y), lambda x, y: bool(cut and cut.search(x + y)))
    prefix = definition.prefix_space
    return Borders(pipeline, marks, pair if cut else None, definition.normalizer, cut, prefix)


def _kept(encoder: core.Encoder, definition: Definition) -> dict[object, Borders]:
    return {}  # filled below, for as long as a tokenizer stays as it is


def borders_of_text(tokenizer: BPETokenizer, allowed: frozenset[str]) -> Borders:
    """Return the borders of text for `encode` with these special tokens allowed."""
    known = core.derived(tokenizer, _kept)
    if allowed not in known:
        pipeline = core.pipeline(tokenizer, allowed)
        if len(known) >= _KEPT_BORDERS:
            known.clear()
        known[allowed] = _borders(tokenizer, pipeline, pipeline.raw.tokens)
    return cast("Borders", known[allowed])


def borders_of_segments(tokenizer: BPETokenizer, encoder: core.SegmentEncoder) -> Borders:
    """Return the borders of conversations, where some text may give control tokens."""
    spelling = {token.id for token in encoder.pipeline.tokens}
    control = [token for token in tokenizer.added_tokens if token.id not in spelling]
    marks = {token.content: token for token in control}
    return _borders(tokenizer, encoder.pipeline, marks)
