"""The options of `BPETokenizer.apply_chat_template`: continuing, truncation, padding, batches.

A conversation may end within its last message, for a model to continue; it may lose old
turns to fit; several make a batch, padded and as tensors.  Options with the names of
transformers' options mean the same as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.chat.arguments import parsed_if_needed
from bpe_tokenizer_tools.chat.budget import together
from bpe_tokenizer_tools.chat.encoding import encode
from bpe_tokenizer_tools.chat.marked_text import Marked, Origin
from bpe_tokenizer_tools.chat.templates import (
    Message,
    Renderer,
    as_given_message,
    assistant_spans,
)
from bpe_tokenizer_tools.chat.truncation import newest

if TYPE_CHECKING:
    from bpe_tokenizer_tools.prompts.sessions import Session

# -- Continuing the last message -----------------------------------------------

_MARKED = Origin(None, "continue_final_message")


def continued(render: Renderer, messages: Sequence[Message], field: str) -> Marked:
    """Render a conversation up to the end of a field of its last message."""
    given = [as_given_message(i, message) for i, message in enumerate(messages)]
    added = Marked(core.TO_CONTINUE, _MARKED)
    said = core.put_mark(given[-1], field, render.jinja_source, added)
    text = render.render_marked(given, False)
    mark, at, place = core.TO_CONTINUE.strip(), 0, -1
    for part, origin in text.runs():
        if origin[:2] == _MARKED[:2] and mark in part:
            place = at + part.rindex(mark)
        at += len(part)
    if place < 0 and mark not in render(messages).plain:  # if it is absent; a message may spell it
        place = text.rfind(mark)
    return core.cut_at_mark(text, place, said, field)


# -- One conversation, and batches ---------------------------------------------


class _Request(NamedTuple):
    """What to do with each conversation."""

    render: Renderer  # the template
    prompt: bool  # whether to end where the assistant begins
    field: str  # the field of the last message to end in, or ""
    allowed_special: Any  # as for `BPETokenizer.apply_chat_template`
    limit: int | None  # how many tokens to keep, by whole turns; None for all
    masked: bool  # whether to mask what the assistant wrote
    aligned: bool  # whether to give offsets
    session: Session | None  # knows the ids of the conversation before

    def plain_text(self, messages: Sequence[Message]) -> str:
        return parsed_if_needed(self.render.jinja_source, messages, self.text).plain

    def text(self, messages: Sequence[Message]) -> Marked:
        if self.field:
            return continued(self.render, messages, self.field)
        return self.render(messages, self.prompt)

    def _text(self, render: Renderer, messages: Sequence[Message]) -> Marked:
        return self._replace(render=render).text(messages)

    def row(self, messages: Sequence[Message]) -> dict[str, Any]:
        with together(messages):
            return parsed_if_needed(self.render.jinja_source, messages, self._row, render=self.text)

    def _row(self, messages: Sequence[Message]) -> dict[str, Any]:
        kept, limit = messages, self.limit
        if limit is not None:
            kept = newest(self.render, [*messages], limit, self._text, self.allowed_special)
        text = self.text(kept)
        if self.allowed_special == "all":
            self.render.check(text)
        is_aligned = self.masked or self.aligned
        ids, offsets = encode(
            self.render, text, self.allowed_special, align=is_aligned, session=self.session
        )
        row: dict[str, Any] = {"input_ids": ids, "attention_mask": [1] * len(ids)}
        if self.masked:
            spans = assistant_spans(self.render, kept, text, self.render.tokenizer)
            row["assistant_masks"] = core.mask(offsets, spans)
        if self.aligned:
            row["offset_mapping"] = offsets
        if limit is not None:
            row["dropped_messages"] = len(messages) - len(kept)
        return row


def _request(
    tokenizer: BPETokenizer, template: Any, variables: Mapping[str, Any], **how: Any
) -> _Request:
    return _Request(Renderer(template, tokenizer, variables), **how)


def apply(
    tokenizer: BPETokenizer,
    messages: Any,
    template: Any,
    add_generation_prompt: bool | None,
    system_prompt: str | None,
    allowed_special: Any,
    /,
    *,
    tokenize: bool = True,
    session: Session | None = None,
    **options: Any,
) -> Any:
    """Render and encode conversations; see `BPETokenizer.apply_chat_template`."""
    asked = messages, template, add_generation_prompt, system_prompt, allowed_special
    is_batch = core.conversations(messages)[1]
    if session is not None:
        _check_session(session, tokenizer, is_batch)
    tokenizer = core.frozen(tokenizer)  # other threads may train it
    if options or is_batch:
        return core.apply_template(
            tokenizer, asked, _request, tokenize=tokenize, session=session, **options
        )
    chosen = core.find_template(template, tokenizer.chat_templates, core.added(tokenizer))
    if not callable(chosen) and chosen not in core.BUILT_IN:
        return core.apply_template(tokenizer, asked, _request, tokenize=tokenize, session=session)
    # A function only needs segments: text need not know who wrote each character.
    prompt = add_generation_prompt is None or bool(add_generation_prompt)
    talk = core.check_messages(messages, system_prompt, least=1)
    segments = core.render_with(chosen, talk, prompt)
    if not tokenize:
        return core.plain_text(segments)
    default = chosen if template is None and not tokenizer.chat_templates else ""
    if session is None:
        return core.encode_segments(tokenizer, segments, allowed_special, default)
    if allowed_special == "all":
        core.check_control(segments, core.added(tokenizer), default)
    encoder: core.SegmentEncoder = core.derived(tokenizer, core.SegmentEncoder)
    contents, none = encoder.contents(core.allowed(tokenizer, allowed_special)), frozenset[str]()
    counted = [(text, contents if trusted else none) for text, trusted in segments]
    return session.encode_segments(tokenizer, encoder, counted)


def _check_session(session: Any, tokenizer: BPETokenizer, is_batch: bool) -> None:
    if getattr(session, "tokenizer", None) is not tokenizer:
        got = core.shorten(session)
        raise ValueError(f"session= must come from incremental() of this tokenizer, got {got}")
    if is_batch:
        raise ValueError("a session knows one conversation: pass only one, or no session")
