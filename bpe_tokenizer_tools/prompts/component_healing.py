"""The end of a prompt for tokenizers of characters, such as Llama 2's, Mistral's and Gemma's.

These have no split pattern: "▁" stands for a space, one may come before the text, and merges do the
rest.  A character without a token is written as its bytes.  So there is no need to try texts after
the prompt.  A tokenization that covers the prompt's end is a place in the prompt, the tokens of the
text before it, and one token that reaches the end or goes beyond.  It is possible if and only if
`encode` gives it for the text that ends with that token: text after a token changes nothing to its
left, because two neighbors merge, or don't, whatever is around them.  Added tokens are found from
the left, the longest first, so the same is true of them.

Only a byte that isn't the last of its character needs more text: any character without a token.

Text may be normalized before, as in those that are trained here in SentencePiece's style.  Then
all of this is about normalized text, and a tokenization of a text that isn't normal is impossible.
Such a tokenizer may also cut text into words.  That changes nothing, because no token has parts of
two words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats.component_twin import SPACE
from bpe_tokenizer_tools.patterns.known import words_from
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
from bpe_tokenizer_tools.training import sentencepiece_text

_TRIED = 4  # characters without a token; one is enough, unless an added token has it


class ComponentEnd(EndOfPrompt):
    """Finds the possible tokenizations of a prompt's end."""

    def __init__(self, tokenizer: BPETokenizer) -> None:
        self._encoder, self._pipeline, steps = _checked(tokenizer)
        super().__init__(tokenizer.token_bytes(), steps.form)
        self._removes_spaces = steps.removes_spaces
        self._to_form = sentencepiece_text.normalizer(steps.form)
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
        text = self._normalized(text, begins)
        border = self._borders.last(text, 0, len(text))
        start = border.at if border else 0
        tail = _spelled(text[start:])
        ids = tokenizer.encode(text[:start]) if begins else list(self._ids(text[:start]))
        if self._pipeline.tokens and SPACE in text[start:]:
            raise ValueError(f"a prompt that has {SPACE!r} at its end can't be healed")
        if begins and not start and not self._pipeline.tokens:  # a space may be put before it
            # Spaces at the end would go, typed as what stands for them, too.
            some = text.rstrip(" " + SPACE) if self._removes_spaces else text
            some = some or "x"
            made = self.spelled(tokenizer.encode(some))
            tail = made[: len(made) - len(_spelled(some))] + tail
        made = self.spelled((*ids, *self._ids(tail.decode())))
        if not begins and made != _spelled(text):
            raise ValueError("this tokenizer puts a space where there is none: it can't be healed")
        return ids, tail + rest

    def _normalized(self, text: str, begins: bool) -> str:
        """Normalize a text that goes on, without a space before it."""
        text = self._to_form(text)
        if self._removes_spaces:
            text = _SPACES.sub(" ", text)
            text = text.lstrip(" ") if begins else text
        return text

    def _is_normal(self, text: str) -> bool:
        """Return whether some text becomes this one, and goes on."""
        return self._to_form(text) == text and not (self._removes_spaces and "  " in text)

    def _ids(self, text: str) -> Ids:
        """Encode the end of a text, from a border or with the space before it."""
        if self._pipeline.tokens:
            return tuple(core.encode_parts(self._encoder, self._pipeline.parts(text, first=False)))
        return tuple(self._encoder.encode(text.replace(" ", SPACE))) if text else ()

    def encoded(self, tail: bytes) -> Ids | None:
        """Return the ids of a text that ends here; None inside a character."""
        text = complete(tail)
        if text is None or (self._removes_spaces and text.endswith(" ")):
            return None  # where a text ends, it has no space
        return self._ids(text)

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
            return [text] if self._is_normal(text) else []
        for end in (1, 2, 3):
            if (text := complete(data[:-end])) is not None:
                unknown = (char for char in all_completions(data[-end:]) if char not in self._known)
                completed = (text + char for char in unknown)
                return itertools.islice(filter(self._is_normal, completed), _TRIED)
        return []


def _spelled(text: str) -> bytes:
    return text.replace(SPACE, " ").encode()


_SPACES = re.compile(" {2,}")


class _Steps(NamedTuple):
    """What normalizers do other than write ▁ for spaces.

    Attributes:
        form: the normal form that they make first, or the name of one of SentencePiece's rules.
        removes_spaces: they leave one of several spaces, and none at the beginning and the end.
        others: the other ones.
    """

    form: str | None
    removes_spaces: bool
    others: list[dict[str, Any]]


def _steps_of(normalizers: list[dict[str, Any]]) -> _Steps:
    """Recognize normalizers such as those of `sentencepiece_text.steps`."""

    def begin_with(form: str | None) -> bool:
        steps = sentencepiece_text.form_steps(form)
        return normalizers[: len(steps)] == steps

    form = max(
        filter(begin_with, sentencepiece_text.FORMS),
        key=lambda form: len(sentencepiece_text.form_steps(form)),
    )
    others = normalizers[len(sentencepiece_text.form_steps(form)) :]
    first, last = sentencepiece_text.REMOVE_FIRST, sentencepiece_text.REMOVE_LAST
    removes = others[: len(first)] == first and others[-1:] == [last]
    return _Steps(form, removes, others[len(first) : -1] if removes else others)


def _checked(tokenizer: BPETokenizer) -> tuple[Any, core.Pipeline, _Steps]:
    """Return what encodes and prepares text; ValueError if this module doesn't know how it does."""
    encoder, pipeline = core.encoder(tokenizer), core.pipeline(tokenizer, frozenset())
    model = getattr(encoder, "model", None)
    definition = core.JsonReader(tokenizer.components or {}, Path())
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    steps = _steps_of([dict(step.data) for step in core.steps(definition, "normalizer")])
    normalizers = steps.others
    pre_tokenizers = [step.data for step in core.steps(definition, "pre_tokenizer")]
    problem = ""
    if not model or not model.byte_ids or model.ignore_merges or SPACE not in model.vocab:
        problem = "its model isn't one over characters, with ▁ for spaces and byte fallback"
    elif any(step not in (spaces, {"type": "Prepend", "prepend": SPACE}) for step in normalizers):
        problem = "its normalizer does more than to write ▁ for spaces"
    elif not all(_only_cuts(step, spaces in normalizers, model) for step in pre_tokenizers):
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
    return encoder, pipeline, steps


def _only_cuts(step: object, replaced: bool, model: Any) -> bool:
    """Return whether a pre-tokenizer only cuts before "▁", or puts one before the text.

    Or it cuts text into words, and no merge joins parts of two.
    """
    assert isinstance(step, dict)
    if step["type"] == "Metaspace":
        return bool(step.get("replacement") == SPACE)
    if not replaced or step["type"] != "Split":
        return False
    if step.get("pattern") == {"Regex": words_from(SPACE)} and step.get("behavior") == "Isolated":
        is_word = re.compile(words_from(SPACE)).fullmatch
        written = {id_: token for token, id_ in model.vocab.items()}
        return all(is_word(written[left] + written[right]) for left, right in model.merges)
    return bool(step.get("pattern") == {"String": " "})
