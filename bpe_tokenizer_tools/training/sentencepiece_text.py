"""How text is prepared in SentencePiece's style: its normalization rules, and white space.

    identity    text stays as it is
    nfkc        NFKC
    nmt_nfkc    control characters go, more characters become spaces, then NFKC; "～" stays

SentencePiece has the last two as tables of characters and sequences, of up to 225,000 entries.
tokenizer.json can't hold such a table exactly, so these are steps that give the same for nearly
all text: docs/sentencepiece.md says where they differ.

Source: google/sentencepiece, src/builder.cc, for what nmt_nfkc adds; normalizer.cc for white space.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import regex

from bpe_tokenizer import AddedToken
from bpe_tokenizer_tools import core

SPACE = "\u2581"  # how SentencePiece writes a space
RULES = ("identity", "nfkc", "nmt_nfkc")
_NMT = "nmt_nfkc"
# Control characters that nmt_nfkc takes away, and characters that it makes spaces.
_REMOVED = [*range(0x01, 0x09), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F]
_SPACES = [0x09, 0x0A, 0x0C, 0x0D, 0x61C, 0x1680, 0x200B, 0x200C, 0x200E, 0x200F, 0x2028, 0x2029]
_SPACES += [0x2581, 0xFEFF, 0xFFFD]
_KEPT, _HELD = "\uff5e", "\ufdd0"  # "～", and a code point that no text uses, in its place


def _any_of(points: Iterable[int]) -> str:
    """Write a set of characters, for Oniguruma as for `regex`."""
    return "".join(["[", *(f"\\u{point:04x}" for point in points), "]"])


# Like `core.APART`, for text from which nmt_nfkc takes characters away: what is around one of these
# may join.
_APART = regex.compile(core.APART.pattern.removesuffix("]") + _any_of(_REMOVED)[1:])


def form_of(rule: str | None, form: str | None) -> str | None:
    """Return the normal form, or nmt_nfkc, that a rule stands for; None: the tokenizer's own form.

    >>> form_of("nfkc", "NFC"), form_of("identity", "NFC"), form_of(None, "NFC")
    ('NFKC', None, 'NFC')
    """
    forms = {"identity": None, "nfkc": "NFKC", _NMT: _NMT, None: form}
    return forms[rule]


FORMS = (None, *core.NORMALIZERS, _NMT)


def replace(kind: str, pattern: str, content: str) -> dict[str, Any]:
    """Return the component that replaces a String, or the matches of a Regex."""
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


# Together, these remove spaces around a text, and all but one of several.
REMOVE_FIRST = [replace("Regex", " {2,}", " "), replace("Regex", r"\A ", "")]
# It matches runs from their start only: linear.
REMOVE_LAST = replace("Regex", rf"(?<!{SPACE}){SPACE}+\z", "")


def form_steps(form: str | None) -> list[dict[str, Any]]:
    """Return the components of a form."""
    if form is None:
        return []
    if form != _NMT:
        return [{"type": form}]
    return [
        replace("Regex", _any_of(_REMOVED), ""),
        replace("Regex", _any_of(_SPACES), " "),
        replace("String", _KEPT, _HELD),
        {"type": "NFKC"},
        replace("String", _HELD, _KEPT),
    ]


def steps(
    form: str | None, dummy_prefix: bool, removes_spaces: bool, symbols: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the components that normalize a text.

    HuggingFace normalizes added tokens too, before it looks for them.  So that a user-defined
    symbol stays as it is, a text that is only that symbol gets no prefix.
    """
    found = form_steps(form)
    if removes_spaces:
        found += REMOVE_FIRST
    if dummy_prefix and symbols:
        written = "|".join(map(re.escape, symbols))
        found.append(replace("Regex", rf"\A(?!(?:{written})\z)(?=[\s\S])", SPACE))
    elif dummy_prefix:
        found.append({"type": "Prepend", "prepend": SPACE})
    found.append(replace("String", " ", SPACE))
    if removes_spaces:
        found.append(REMOVE_LAST)
    return found


_CHANGED: dict[int, str | None] = {**dict.fromkeys(_REMOVED), **dict.fromkeys(_SPACES, " ")}


def normalizer(form: str | None) -> Callable[[str], str]:
    """Return what does the steps of a form."""
    if form != _NMT:
        return lambda text: core.normalize(text, form)

    def run(text: str) -> str:
        text = text.translate(_CHANGED).replace(_KEPT, _HELD)
        return core.normalize(text, "NFKC").replace(_HELD, _KEPT)

    return run


def last_border(text: str, form: str | None) -> int | None:
    """Return the last place in a text where each side can be normalized by itself."""
    if form is None:
        return len(text)
    found = (_APART if form == _NMT else core.APART).search(text)
    return found.start() if found else None


class Prepared(core.Pipeline):
    """Prepares text for counting words.

    Args:
        splitter: cuts text into words.
        form: of `FORMS`.
        tokens: cut text; those with normalized=True are found in normalized text.
        prefix: goes before each piece of text between two tokens that are found as written.
        strips: take away the spaces at the start of such a piece.
    """

    def __init__(
        self,
        splitter: Any,
        form: str | None,
        tokens: Iterable[AddedToken],
        prefix: str,
        strips: bool,
    ) -> None:
        self._normalized, self._prefix, self._strips = normalizer(form), prefix, strips
        super().__init__(splitter, form, tokens=tokens)

    def normalize(self, text: str) -> str:
        """Normalize all of the text between two tokens."""
        return self._normalized(text)

    def last_border(self, before: str, chunk: str) -> int | None:
        """Return the last place in a chunk where each side can be normalized by itself."""
        return last_border(chunk, self.normalizer)

    def parts(self, text: str, *given: Any) -> Iterator[Any]:
        """Yield the tokens in a text, and the text between them; for counting, without places."""
        pieces = (part for part, *_ in super().parts(text, *given))
        return ((part, 0, 0) for part in self._begun(pieces))

    def stream(self, chunks: Iterable[str]) -> Iterator[str | AddedToken]:
        """Prepare text that arrives in chunks."""
        return self._begun(super().stream(chunks))

    def _begun(self, pieces: Iterable[str | AddedToken]) -> Iterator[str | AddedToken]:
        """Put the prefix where text begins."""
        begins = True
        for piece in pieces:
            if isinstance(piece, AddedToken):
                if piece.normalized and begins and self._prefix:
                    yield self._prefix
                begins = not piece.normalized
            elif begins:
                piece = piece.lstrip(" ") if self._strips else piece
                if not piece:
                    continue  # only spaces so far
                piece, begins = self._prefix + piece, False
            yield piece
