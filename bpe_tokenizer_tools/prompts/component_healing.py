"""The end of a prompt for tokenizers of characters, such as Llama 2's, Mistral's and Gemma's.

These have no split pattern: "▁" stands for a space, one may come before the text, and merges do the
rest.  A character without a token is written as its bytes.  So there is no need to try texts after
the prompt.  A tokenization that covers the prompt's end is a place in the prompt, the tokens of the
text before it, and one token that reaches the end or goes beyond.  It is possible if and only if
`encode` gives it for the text that ends with that token: text after a token changes nothing to its
left, because two neighbors merge, or don't, whatever is around them.  Added tokens are found from
the left, the longest first, so the same is true of them.

Only a byte that isn't the last of its character needs more text: any character without a token.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats.component_twin import SPACE
from bpe_tokenizer_tools.prompts.borders import borders_of_text
from bpe_tokenizer_tools.prompts.healing import (
    EndOfPrompt,
    Group,
    Ids,
    all_completions,
    complete,
    decoded,
)
from bpe_tokenizer_tools.prompts.tokens_by_prefix import trie

_TRIED = 4  # characters without a token; one is enough, unless an added token has it


class ComponentEnd(EndOfPrompt):
    """Finds the possible tokenizations of a prompt's end."""

    def __init__(self, tokenizer: BPETokenizer) -> None:
        self._encoder, self._pipeline = _checked(tokenizer)
        super().__init__(tokenizer.token_bytes())
        self._table, self._borders = trie(tokenizer), borders_of_text(tokenizer, frozenset())
        model = self._encoder.model
        self._known = {token for token in model.vocab if len(token) == 1}
        self._byte_ids: list[int] = model.byte_ids

    # -- Text -------------------------------------------------------------------------

    def certain(
        self, tokenizer: BPETokenizer, prompt: str | bytes, begins: bool
    ) -> tuple[list[int], bytes]:
        """Return the ids of a prompt up to the last border, and the bytes behind that."""
        text, rest = decoded(prompt)
        border = self._borders.last(text, 0, len(text))
        start = border.at if border else 0
        tail = _spelled(text[start:])
        ids = tokenizer.encode(text[:start]) if begins else list(self._ids(text[:start]))
        if self._pipeline.tokens and SPACE in text[start:]:
            raise ValueError(f"a prompt that has {SPACE!r} at its end can't be healed")
        if begins and not start and not self._pipeline.tokens:  # a space may be put before it
            some = text or "x"
            made = b"".join(self.token[id_] or b"" for id_ in tokenizer.encode(some))
            tail = made[: len(made) - len(_spelled(some))] + tail
        made = b"".join(self.token[id_] or b"" for id_ in (*ids, *self._ids(tail.decode())))
        if not begins and made != _spelled(text):
            raise ValueError("this tokenizer puts a space where there is none: it can't be healed")
        return ids, tail + rest

    def _ids(self, text: str) -> Ids:
        """Encode the end of a text, from a border or with the space before it."""
        if self._pipeline.tokens:
            return tuple(core.encode_parts(self._encoder, self._pipeline.parts(text, first=False)))
        return tuple(self._encoder.encode(text.replace(" ", SPACE))) if text else ()

    def encoded(self, tail: bytes) -> Ids | None:
        """Return the ids of a text that ends here; None inside a character."""
        text = complete(tail)
        return None if text is None else self._ids(text)

    # -- Candidates -------------------------------------------------------------------

    def groups(self, tail: bytes, beyond: bool = False) -> list[Group]:
        """Return all candidates, short fronts first; `beyond` asks for those that go beyond."""
        text, rest = decoded(tail)
        found: dict[Ids, Group] = {}

        def add(front: Ids, lasts: Sequence[int]) -> None:
            if lasts:
                found.setdefault(front, Group(front, self.length(front), lasts))

        # The last one is behind all whole characters.
        for i in range(max(0, len(text) - self._table.longest), len(text) + bool(rest)):
            left = text[i:].encode() + rest
            lasts = self._table.tokens_with_prefix(left).tolist()
            add(
                self._ids(text[:i]),
                [id_ for id_ in lasts if not beyond or self._size(id_) > len(left)],
            )
        whole = (*self._ids(text), *(self._byte_ids[byte] for byte in rest))
        if beyond:
            add(whole, self._table.ids.tolist())
        else:
            add(whole[:-1], whole[-1:])
        return sorted(found.values(), key=lambda group: len(group.front))

    # -- Proof ------------------------------------------------------------------------

    def valid(self, tail: bytes, group: Group) -> Iterator[int]:
        """Yield the last tokens of a group with which some text has these ids."""
        n = len(group.front)
        for last in group.lasts:
            ids, token = (*group.front, last), self.token[last] or b""
            texts = self._texts(tail[: group.start] + token)
            if any(self._ids(text)[: n + 1] == ids for text in texts):
                yield last

    def _texts(self, data: bytes) -> Iterable[str]:
        """Return the text of some bytes, or texts with characters that complete the last one."""
        text = complete(data)
        if text is not None:
            return [text]
        for end in (1, 2, 3):
            if (text := complete(data[:-end])) is not None:
                unknown = (char for char in all_completions(data[-end:]) if char not in self._known)
                return [text + char for char in itertools.islice(unknown, _TRIED)]
        return []


def _spelled(text: str) -> bytes:
    return text.replace(SPACE, " ").encode()


def _checked(tokenizer: BPETokenizer) -> tuple[Any, core.Pipeline]:
    """Return what encodes and prepares text; ValueError if this module doesn't know how it does."""
    encoder, pipeline = core.encoder(tokenizer), core.pipeline(tokenizer, frozenset())
    model = getattr(encoder, "model", None)
    definition = core.JsonReader(tokenizer.components or {}, Path())
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    normalizers = [dict(step.data) for step in core.steps(definition, "normalizer")]
    pre_tokenizers = [step.data for step in core.steps(definition, "pre_tokenizer")]
    problem = ""
    if not model or not model.byte_ids or model.ignore_merges or SPACE not in model.vocab:
        problem = "its model isn't one over characters, with ▁ for spaces and byte fallback"
    elif any(step not in (spaces, {"type": "Prepend", "prepend": SPACE}) for step in normalizers):
        problem = "its normalizer does more than to write ▁ for spaces"
    elif not all(_only_cuts(step, spaces in normalizers) for step in pre_tokenizers):
        problem = "its pre-tokenizers do more than to cut before ▁"
    elif not (pre_tokenizers or spaces in normalizers):
        problem = "it doesn't write ▁ for spaces"
    elif any(
        token.lstrip or token.rstrip or token.single_word or token.normalized
        for token in pipeline.tokens
    ):
        problem = "added tokens look at the text around them, or are found in normalized text"
    elif pipeline.tokens and len(tokenizer.encode("x")) > 1:
        problem = "it has added tokens that aren't special, and puts a space before text"
    if problem:
        raise ValueError(f"this tokenizer can't be healed: {problem}")
    return encoder, pipeline


def _only_cuts(step: object, replaced: bool) -> bool:
    """Return whether a pre-tokenizer only cuts before "▁", or puts one before the text."""
    assert isinstance(step, dict)
    if step["type"] == "Metaspace":
        return bool(step.get("replacement") == SPACE)
    return replaced and step["type"] == "Split" and step.get("pattern") == {"String": " "}
