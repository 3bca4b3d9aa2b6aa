"""The options of `BPETokenizer.apply_chat_template`: continuing, truncation, padding, batches.

A conversation may end within its last message, for a model to continue; it may lose old
turns to fit; several make a batch, padded and as tensors.  Options with the names of
transformers' options mean the same as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe_tokenizer import BPETokenizer, TensorBatch
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.chat import rendering
from bpe_tokenizer_tools.chat.arguments import parsed_if_needed
from bpe_tokenizer_tools.chat.budget import together
from bpe_tokenizer_tools.chat.encoding import encode
from bpe_tokenizer_tools.chat.marked_text import Marked, Origin
from bpe_tokenizer_tools.chat.templates import (
    Message,
    Renderer,
    Span,
    as_given_message,
    assistant_spans,
)
from bpe_tokenizer_tools.chat.truncation import newest

if TYPE_CHECKING:
    from bpe_tokenizer_tools.prompts.sessions import Session

# -- Continuing the last message -----------------------------------------------

# The mark that transformers appends to the text to continue, and then searches for.  Templates get
# the same one here, so that they treat an empty text, or white space at its end, the same way.
_MARK = "CONTINUE_FINAL_MESSAGE_TAG "
_MARKED = Origin(None, "continue_final_message")


def continued(render: Renderer, messages: Sequence[Message], field: str) -> Marked:
    """Render a conversation up to the end of a field of its last message."""
    given = [as_given_message(i, message) for i, message in enumerate(messages)]
    said = _put_mark(given[-1], field, render.jinja_source)
    text = render.render_marked(given, False)
    mark, at, place = _MARK.strip(), 0, -1
    for part, origin in text.runs():
        if origin[:2] == _MARKED[:2] and mark in part:
            place = at + part.rindex(mark)
        at += len(part)
    if place < 0 and mark not in render(messages).plain:  # if it is absent; a message may spell it
        place = text.rfind(mark)
    if place < 0 or said.strip().plain not in text.plain:
        raise ValueError(
            f"continue_final_message: the template does not render {field!r} of the last message "
            "unchanged, so there is no place to continue it"
        )
    # A template that strips the mark's own space strips the text to continue, too.
    return text[:place] if text.startswith(_MARK, place) else text[:place].rstrip()


def _put_mark(message: dict[str, Any], field: str, source: str | None) -> Marked:
    """Put the mark after a field of a message; return the text before it.

    `message` is as `as_given_message` makes it; `source` is the template, if it is Jinja.
    """
    said = message.get(field)
    names = [field]
    if field in rendering.THOUGHTS:  # templates read any of its names
        names = [name for name in rendering.THOUGHTS if name in message and message[name] == said]
    if said is None:
        raise ValueError(f"continue_final_message: the last message has no {field!r} to continue")
    if source is not None and not any(name in source for name in names):
        raise ValueError(f"continue_final_message: the template does not render {field!r}")
    mark = Marked(_MARK, _MARKED)
    if isinstance(said, (list, tuple)):  # its last part with text is continued
        part = next((each for each in said[::-1] if isinstance(each, dict) and "text" in each), {})
        said, message, names = part.get("text"), part, ["text"]
    if not isinstance(said, Marked):
        raise ValueError(f"continue_final_message: {field!r} of the last message has no text")
    message.update(dict.fromkeys(names, said + mark))
    return said


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
            kept = newest(self.render, messages, limit, self._text, self.allowed_special)
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
            row["assistant_masks"] = _mask(offsets, spans)
        if self.aligned:
            row["offset_mapping"] = offsets
        if limit is not None:
            row["dropped_messages"] = len(messages) - len(kept)
        return row


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
    is_batch = _conversations(messages)[1]
    if session is not None:
        _check_session(session, tokenizer, is_batch)
    tokenizer = core.frozen(tokenizer)  # other threads may train it
    if options or is_batch:
        return _apply(tokenizer, asked, tokenize=tokenize, session=session, **options)
    chosen = rendering.find_template(template, tokenizer.chat_templates, core.added(tokenizer))
    if not callable(chosen) and chosen not in core.BUILT_IN:
        return _apply(tokenizer, asked, tokenize=tokenize, session=session)
    # A function only needs segments: text need not know who wrote each character.
    prompt = add_generation_prompt is None or bool(add_generation_prompt)
    talk = core.check_messages(messages, system_prompt, least=1)
    segments = rendering.render(chosen, talk, prompt)
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


def _apply(
    tokenizer: BPETokenizer,
    asked: tuple[Any, ...],
    /,
    *,
    tokenize: bool,
    continue_final_message: bool | str = False,
    return_dict: bool = False,
    return_assistant_tokens_mask: bool = False,
    return_offsets_mapping: bool = False,
    padding: bool | str = False,
    truncation: bool = False,
    max_length: int | None = None,
    return_tensors: str | None = None,
    padding_side: str | None = None,
    pad_to_multiple_of: int | None = None,
    session: Session | None = None,
    **variables: Any,
) -> Any:
    """Apply any template with any option; `asked` are the other arguments of `apply`."""
    messages, template, add_generation_prompt, system_prompt, allowed_special = asked
    _check_options(continue_final_message, add_generation_prompt, variables)
    if not return_dict and (return_assistant_tokens_mask or return_offsets_mapping):
        raise ValueError("a mask and offsets are returned in a dict: pass return_dict=True, too")
    lengths = None
    if tokenize:
        lengths = core.Lengths(
            tokenizer,
            0,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            return_tensors=return_tensors,
            pad_to_multiple_of=pad_to_multiple_of,
            padding_side=padding_side,
            truncation_side="left",
        )
    field = "content" if continue_final_message is True else continue_final_message or ""
    request = _Request(
        render=Renderer(template, tokenizer, variables),
        prompt=not field if add_generation_prompt is None else bool(add_generation_prompt),
        field=field,
        allowed_special=allowed_special,
        limit=lengths.room if lengths else None,
        masked=return_assistant_tokens_mask,
        aligned=return_offsets_mapping,
        session=session,
    )
    conversations, is_batch = _conversations(messages)
    rows: list[Any] = []
    for i, conversation in enumerate(conversations):
        try:
            talk = core.check_messages(conversation, system_prompt, least=1)
            rows.append(request.row(talk) if tokenize else request.plain_text(talk))
        except (TypeError, ValueError) as error:
            if not is_batch:
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"conversation {i} of the batch (counting from 0): {error}") from error
    if lengths is None:
        return rows if is_batch else rows[0]
    _pad(tokenizer, rows, lengths)
    is_alone = not is_batch and return_tensors is None
    made = rows[0] if is_alone else _columns(rows, return_tensors)
    return made if return_dict else made["input_ids"]


def _check_options(
    continue_final_message: Any, add_generation_prompt: Any, variables: Mapping[str, Any]
) -> None:
    unknown = next((name for name in variables if name in _NOT_HERE), None)
    if unknown:
        raise TypeError(f"apply_chat_template takes no {unknown}=; {_NOT_HERE[unknown]}")
    if not isinstance(continue_final_message, (bool, str)):
        raise TypeError("continue_final_message must be True, False or the name of a field")
    if continue_final_message and add_generation_prompt:
        raise ValueError(
            "continue_final_message and add_generation_prompt exclude each other: pass only one "
            "of them"
        )


_NOT_HERE = {
    "conversation": "it is called messages= here",
    "tokenizer_kwargs": "they are keywords here",
    "truncation_side": "old turns are left out, never the end",
    "disallowed_special": "user-supplied text never produces control tokens here",
    "return_offsets": "it is called return_offsets_mapping= here",
}


def _conversations(messages: Any) -> tuple[list[Any], bool]:
    """Return conversations, and whether they are a batch: a list of lists of messages."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        return [messages], False  # `check_messages` refuses it
    messages = list(messages)
    is_batch = bool(messages) and isinstance(messages[0], (list, tuple))
    return (messages if is_batch else [messages]), is_batch


def _pad(tokenizer: BPETokenizer, rows: list[dict[str, Any]], lengths: core.Lengths) -> None:
    """Cut and pad the encoded rows to one length, in place."""
    missing = lengths.missing([row["input_ids"] for row in rows])
    pad_id = core.pad_token(tokenizer)[0] if any(missing) else 0
    fields = {"input_ids": pad_id, "attention_mask": 0, "assistant_masks": 0}
    for row, n in zip(rows, missing):
        for name, value in {**fields, "offset_mapping": (0, 0)}.items():
            if name in row:
                fill = [value] * n
                row[name] = fill + row[name] if lengths.left else row[name] + fill


def _columns(
    rows: Sequence[Mapping[str, Any]], return_tensors: str | None
) -> dict[str, Any] | TensorBatch:
    """Return the fields by name, as lists or tensors; offsets and counts as lists."""
    made: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    if return_tensors is None:
        return made
    for name in ("input_ids", "attention_mask", "assistant_masks"):
        if name in made:
            length = core.one_length(map(len, made[name]))
            made[name] = core.to_tensors(made[name], length, 0, False, return_tensors)[0]
    made.pop("dropped_messages", None)  # not an input of a model; a warning has reported it
    return TensorBatch(made)


def _mask(offsets: Sequence[Span], spans: Sequence[Span]) -> list[int]:
    """Return 1 for each token that has characters in a span, else 0."""
    mask = [0] * len(offsets)
    rest = iter(spans)
    begin, end = next(rest, (0, 0))
    for i, (start, stop) in enumerate(offsets):
        while end <= start and end:
            begin, end = next(rest, (0, 0))
        mask[i] = int(start < end and stop > begin)
    return mask
