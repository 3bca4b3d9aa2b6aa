"""How much longer a chain of components can make a text.

A file may chain as many Replace as it likes, and each may double the text: 60 of them make 2^60
characters of one.  So each step gets a bound on how many characters come of one in the end, worked
out from the last step to the first.  The text that a Replace inserts counts as long as the steps
after it make it.  So "…" to "..." and " " to "▁" don't add up, however many such steps there are.
"""

from __future__ import annotations

from collections.abc import Iterable

from bpe_tokenizer_tools import core

_MAX_GROWTH = 100  # characters made of one; the chains in use make up to 4
_MAX_ADDED = 10_000  # characters put before a text
_MAX_STEPS = 100  # the chains in use have up to 12


class _Lengths:
    """How many characters each character becomes at most in the steps after a place."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        self._other = 1.0
        self.added = 0.0  # to the whole text

    def __getitem__(self, text: str) -> float:
        return sum(self._known.get(char, self._other) for char in text)

    @property
    def most(self) -> float:
        return max([self._other, *self._known.values()])

    def raise_to(self, characters: Iterable[str], length: float) -> None:
        """Note that these characters may become that many."""
        for char in characters:
            self._known[char] = max(self[char], length)

    def raise_all(self, times: float = 1.0, more: float = 0.0) -> None:
        """Note that any character may become `times` other characters, plus `more`."""
        self._known, self._other = {}, times * self.most + more

    def add_to_all(self, more: float) -> None:
        """Note that something is put beside each character."""
        self._known = {char: length + more for char, length in self._known.items()}
        self._other += more
        self.added += more

    def any_to(self, length: float) -> None:
        """Note that each character may become something of that length."""
        self.raise_to(list(self._known), length)
        self._other = max(self._other, length)


def _replace(step: core.JsonReader, lengths: _Lengths, may_insert: bool) -> None:
    pattern, made = step.data["pattern"], lengths[step.data["content"]]
    if may_insert:
        lengths.add_to_all(made)
    if "String" not in pattern:
        lengths.any_to(made)
    elif pattern["String"]:
        lengths.raise_to(set(pattern["String"]), made / len(pattern["String"]))


def _follow(step: core.JsonReader, lengths: _Lengths, may_insert: bool) -> None:
    kind = step.data["type"]
    if kind == "Replace":
        _replace(step, lengths, may_insert)
    elif kind == "Prepend":
        lengths.added += lengths[step.data["prepend"]]
    elif kind == "ByteLevel":  # two characters for a byte pair, and a space before each piece
        lengths.raise_all(2, lengths.most)
    elif kind == "Metaspace":
        mark = str(step.data.get("replacement", ""))
        lengths.raise_to(" ", lengths[mark])
        lengths.add_to_all(lengths[mark])
    elif kind == "SentencePiece":
        lengths.raise_all(4)
    elif kind in ("Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit"):
        pass  # these only cut
    else:
        lengths.raise_all()


def check(steps: list[tuple[core.JsonReader, bool]], name: str) -> float:
    """Raise a `FileFormatError` for a chain of steps that makes text too long.

    Args:
        steps: each with whether it may put something between any two characters.
        name: what they are.

    Returns:
        How many characters they make of one at most.
    """
    if len(steps) > _MAX_STEPS:
        raise steps[_MAX_STEPS][0].error(f"{len(steps)} {name}; the limit is {_MAX_STEPS}")
    lengths = _Lengths()
    for step, may_insert in reversed(steps):
        _follow(step, lengths, may_insert)
        if lengths.most > _MAX_GROWTH or lengths.added > _MAX_ADDED:
            one = lengths.most > _MAX_GROWTH
            what = f"{_MAX_GROWTH} characters of one" if one else f"a text {_MAX_ADDED:,} longer"
            raise step.error(
                f"from here on, the {name} make more than {what}, the limit; "
                "shorten the text they insert, or the chain"
            )
    return lengths.most
