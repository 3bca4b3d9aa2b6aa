"""What differs between two tokenizers, and whether ordinary text gets other ids.

>>> text = "low lower lowest newer newest " * 20
>>> large = BPETokenizer().train(text, vocab_size=270, verbose=False)
>>> small = large.with_vocab_size(262)
>>> compare_tokenizers(small, large).cut
'a'
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns.oniguruma import to_oniguruma
from bpe_tokenizer_tools.support.text import Printed, printable

_SHOWN = 12  # tokens of a kind to print
_TRIED_TOKENS = 500  # tokens that only one has, to find an example with

_Token = tuple[str, int]  # its printed form, and its id
_Pair = tuple[str, str] | None
_Differences = dict[str, tuple[Any, Any]]  # by name: in a and in b
_Example = tuple[str, list[int], list[int]]  # a text, its ids by a and by b


@dataclass(frozen=True)
class TokenizerDiff(Printed):
    """What differs; printing it shows a verdict and its reasons."""

    names: tuple[str, str]  # the names of a and b
    equal: bool = True  # whether nothing differs
    ids_change: bool = False  # whether anything differs that decides the ids of ordinary text
    example: _Example | None = None  # a text that gets other ids, if one was found
    tried: int = 0  # how many texts were tried to find it
    cut: str | None = None  # "a" if a is b cut down to its first merges, "b" if b is a cut down
    merges: tuple[int, int] = (0, 0)  # how many each has
    same_merges: int = 0  # how many from the first on are the same in both
    first_merges: tuple[_Pair, _Pair] = (None, None)  # the first merge that differs, of a and of b
    removed: list[_Token] = field(default_factory=list)  # ordinary tokens that only a has
    added: list[_Token] = field(default_factory=list)  # ordinary tokens that only b has
    moved: list[tuple[str, int, int]] = field(default_factory=list)  # the id in a and in b
    parts: _Differences = field(default_factory=dict)  # everything else that differs
    chat_template: list[str] = field(default_factory=list)  # lines, as `diff -u` shows them
    about: _Differences = field(default_factory=dict)  # metadata; they change nothing

    @property
    def verdict(self) -> str:
        """The difference in a sentence or two."""
        if self.equal:
            return "The same tokenizer: every text gets the same ids."
        if not self.ids_change:
            return "Ordinary text gets the same ids; what differs is listed below."
        return f"{self._verdict_on_ids()}\n{self._relation()}"

    def _verdict_on_ids(self) -> str:
        if self.example is None:
            return f"Ordinary text may get other ids, though none of {self.tried} texts does."
        text, ids_a, ids_b = self.example
        shown = [core.shorten(ids, 48) for ids in (ids_a, ids_b)]
        return (
            f"Ordinary text gets other ids: {core.shorten(text, 48)} is {shown[0]} in a, "
            f"{shown[1]} in b."
        )

    def _relation(self) -> str:
        if self.cut is not None:
            small, large = ("a", "b") if self.cut == "a" else ("b", "a")
            sizes = sorted(self.merges)
            same = "have the same ids there" if not self.moved else "have other ids there"
            return (
                f"{small} is {large} cut down to the first {sizes[0]:,} of its {sizes[1]:,} "
                f"merges; its tokens {same}."
            )
        if self.same_merges == max(self.merges):
            return "All merges are the same."
        return f"The first {self.same_merges:,} merges are the same."

    def to_json(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return {**dataclasses.asdict(self), "verdict": self.verdict}

    def __str__(self) -> str:
        return "\n".join([*(f"{x}: {name}" for x, name in zip("ab", self.names)), *self._lines()])

    def _lines(self) -> Iterator[str]:
        yield from ("", self.verdict)
        details = [*self._merge_lines(), *self._token_lines()]
        details += [_part_line(name, *values) for name, values in self.parts.items()]
        if self.chat_template:
            details += ["chat template:", *(f"  {line}" for line in self.chat_template)]
        details += [_part_line(name, *values) for name, values in self.about.items()]
        if details:
            yield from ("", *map(printable, details))

    def _merge_lines(self) -> Iterator[str]:
        if self.same_merges == max(self.merges):
            return
        first = ["none" if pair is None else " + ".join(pair) for pair in self.first_merges]
        yield (
            f"merges: {self.merges[0]:,} in a, {self.merges[1]:,} in b; the first "
            f"{self.same_merges:,} are the same, then {first[0]} in a, {first[1]} in b"
        )

    def _token_lines(self) -> Iterator[str]:
        for where, tokens in (("a", self.removed), ("b", self.added)):
            if tokens:
                shown = [f"{token} {id_}" for token, id_ in tokens]
                yield f"tokens only in {where}: {_some(shown)}"
        if self.moved:
            yield f"tokens with other ids: {_some([f'{t} {a} -> {b}' for t, a, b in self.moved])}"


def _some(items: list[str]) -> str:
    more = len(items) - _SHOWN
    shown = ", ".join(items[:_SHOWN])
    return f"{len(items):,}: {shown}" + (f", and {more:,} more" if more > 0 else "")


def _part_line(name: str, a: object, b: object) -> str:
    shown = ["none" if value is None else core.shorten(value, 200) for value in (a, b)]
    return f"{name}: {shown[0]} in a, {shown[1]} in b"


# -- Comparing ----------------------------------------------------------------


@core.renamed(a="tokenizer_a", b="tokenizer_b")
def compare_tokenizers(
    tokenizer_a: BPETokenizer,
    tokenizer_b: BPETokenizer,
    name_a: str = "a",
    name_b: str = "b",
    *,
    about: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
) -> TokenizerDiff:
    """Find all that differs between two tokenizers.

    `about` is what is said of each, to be compared as well; it decides nothing.
    """
    a, b = tokenizer_a, tokenizer_b
    same = TokenizerDiff((name_a, name_b), about=_differing(*about))
    if a == b:
        n = len(a.definition.merges)
        return dataclasses.replace(same, merges=(n, n), same_merges=n)
    found = dataclasses.replace(same, equal=False, **_vocabularies(a, b))
    deciding = _differing(_deciding(a), _deciding(b))
    others = _differing(_others(a), _others(b))
    found.parts.update({**deciding, **others})
    templates = a.chat_templates, b.chat_templates
    for name in dict.fromkeys(("default", *templates[0], *templates[1])):
        found.chat_template.extend(_template_lines(name, *(each.get(name) for each in templates)))
    # NOTE: the same merges may make the same tokens with other ids, or in another order.
    if not (deciding or found.removed or found.added or found.moved) and (
        found.same_merges == max(found.merges)
    ):
        return found
    texts = _texts(a, b)
    example = next(_examples(a, b, texts), None)
    found = dataclasses.replace(found, ids_change=True, example=example, tried=len(texts))
    return found if deciding else dataclasses.replace(found, cut=_cut(found))


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> _Differences:
    names = dict.fromkeys([*a, *b])
    return {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}


def _vocabularies(a: BPETokenizer, b: BPETokenizer) -> dict[str, Any]:
    """Compare merges and ordinary tokens."""
    merges = a.merges, b.merges
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*merges)))
    firsts = [
        (_shown(pairs[same][0]), _shown(pairs[same][1])) if same < len(pairs) else None
        for pairs in merges
    ]
    ids = a.definition.vocab, b.definition.vocab
    return {
        "merges": (len(merges[0]), len(merges[1])),
        "same_merges": same,
        "first_merges": (firsts[0], firsts[1]),
        "removed": _only(ids[0], ids[1]),
        "added": _only(ids[1], ids[0]),
        "moved": [
            (_shown(token), id_, ids[1][token])
            for token, id_ in sorted(ids[0].items(), key=lambda item: item[1])
            if ids[1].get(token, id_) != id_
        ],
    }


def _only(one: Mapping[bytes, int], other: Mapping[bytes, int]) -> list[_Token]:
    tokens = sorted((id_, token) for token, id_ in one.items() if token not in other)
    return [(_shown(token), id_) for id_, token in tokens]


def _shown(token: bytes) -> str:
    """Show a token as Python writes it: a string where it is text, else bytes."""
    try:
        return repr(token.decode())
    except UnicodeDecodeError:
        return repr(token)


def _cut(found: TokenizerDiff) -> str | None:
    """Tell which of two is the other, cut down to its first merges."""
    small = min(found.merges)
    if found.same_merges != small or found.merges[0] == found.merges[1]:
        return None
    is_a = found.merges[0] == small
    return ("a" if is_a else "b") if not (found.removed if is_a else found.added) else None


def _deciding(tokenizer: BPETokenizer) -> dict[str, Any]:
    """What decides the ids of ordinary text, besides merges and vocabulary."""
    definition = tokenizer.definition
    pattern = definition.split_pattern
    with contextlib.suppress(ValueError):  # as it would be written to a file
        pattern = to_oniguruma(pattern)
    return {
        "split pattern": pattern,
        "normalizer": definition.normalizer,
        "space put before text": definition.prefix_space,
        "pre-tokens that are tokens need no merges": definition.ignore_merges,
        "components": definition.components,
        **_added_tokens(definition.added, special=False),
    }


def _others(tokenizer: BPETokenizer) -> dict[str, Any]:
    """What decides offsets, special tokens and the like."""
    definition = tokenizer.definition
    before, after = core.around(tokenizer)
    return {
        **_added_tokens(definition.added, special=True),
        "ids put before a text": list(before),
        "ids put after a text": list(after),
        "offsets leave white space out": definition.trim_offsets,
        "offsets keep a space before": definition.keep_prefix_space,
        **core.roles(tokenizer),
        **core.settings(tokenizer),
        **core.further_keys(tokenizer),
    }


def _added_tokens(tokens: tuple[AddedToken, ...], special: bool) -> dict[str, Any]:
    kind = "special token" if special else "added token"
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    return {
        f"{kind} {token.content!r}": ", ".join(
            [f"id {token.id}", *(flag for flag in flags if getattr(token, flag))]
        )
        for token in tokens
        if token.special == special
    }


def _template_lines(name: str, a: str | None, b: str | None) -> list[str]:
    if a == b:
        return []
    lines = [(text or "").splitlines() for text in (a, b)]
    label = "" if name == "default" else f" ({name})"
    names = ["none" if text is None else x + label for x, text in zip("ab", (a, b))]
    found = difflib.unified_diff(lines[0], lines[1], names[0], names[1], n=1, lineterm="")
    return list(found) or [
        f"{name}: "
        + ("only the line ends differ" if a and b else "empty in one, none in the other")
    ]


# -- An example ---------------------------------------------------------------


def _texts(a: BPETokenizer, b: BPETokenizer) -> list[str]:
    """Return texts likely to show a difference, short ones first."""
    from bpe_tokenizer_tools.checking.conformance import conformance_texts

    texts: list[str] = []
    for one, other in ((a, b), (b, a)):
        known = other.definition.vocab
        ids = sorted(id_ for token, id_ in one.definition.vocab.items() if token not in known)
        texts += [one.decode([id_]) for id_ in ids[:_TRIED_TOKENS]]
    texts = [text for text in texts if "\ufffd" not in text]
    return list(dict.fromkeys([*texts, *conformance_texts(a), *conformance_texts(b)]))


def _examples(a: BPETokenizer, b: BPETokenizer, texts: list[str]) -> Iterator[_Example]:
    for text in texts:
        ids = a.encode(text), b.encode(text)
        if ids[0] != ids[1]:
            yield text, *ids
