"""From a rendered conversation to ids: which text may produce which added tokens.

Only the template's own text produces added tokens, special or not; user-supplied text
doesn't.  There are two exceptions, both safe:

- A token that only spells text, white space or a single character, controls nothing.
- In the assistant's earlier answers, the marks that its template writes or reads inside an
  answer are recognized, such as ``<think>``.  The marks around turns are not.

`content_tokens="as-huggingface"` turns this off, for those who need HuggingFace's ids for
contents with marks in them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.chat.budget import ExceededError, limited
from bpe_tokenizer_tools.chat.marked_text import Marked, Origin
from bpe_tokenizer_tools.support import offsets

if TYPE_CHECKING:
    from bpe_tokenizer_tools.chat.templates import Renderer
    from bpe_tokenizer_tools.prompts.sessions import Session

Span = tuple[int, int]
_Example = tuple[list[dict[str, Any]], bool]
# A template's own text between two things that messages say, and its zone before that: "header"
# before an answer, "inside" of one, "end" of the last one; or "around".
_Gap = tuple[str, str]
_NONE: frozenset[str] = frozenset()
# Who wrote a segment.
TEMPLATE, ASSISTANT, PEOPLE = "template", "assistant", "people"


def segments(text: Marked) -> list[tuple[str, str]]:
    """Return text in pieces, each with who wrote it: TEMPLATE, ASSISTANT or PEOPLE."""
    found: list[tuple[str, str]] = []
    for part, origin in text.runs():
        writer = TEMPLATE if origin.trusted else ASSISTANT if origin.answer else PEOPLE
        if found and found[-1][1] == writer:
            part = found.pop()[0] + part
        found.append((part, writer))
    return found


def encode(
    render: Renderer,
    text: Marked,
    allowed_special: Any = "all",
    start: int = 0,
    align: bool = True,
    session: Session | None = None,
) -> tuple[list[int], list[Span]]:
    """Encode a rendered conversation, starting at a place.

    `allowed_special` says which special tokens in the template's own text become ids; `start` is
    a place in characters; a `session` knows the ids of the conversation before.

    Returns:
        The ids, and the (start, end) characters of each after the place.
    """
    tokenizer = render.tokenizer
    pieces = segments(text[start:] if start else text)
    encoder: core.SegmentEncoder = core.derived(tokenizer, core.SegmentEncoder)
    counts = {TEMPLATE: encoder.contents(core.allowed(tokenizer, allowed_special))}
    if render.content_tokens == "as-huggingface":
        encoder = core.SegmentEncoder(
            core.encoder(tokenizer), tokenizer.definition, lambda token: not token.special
        )
    else:
        counts[ASSISTANT] = _marks_in_answers(render, pieces)
    marked = [(part, counts.get(writer, _NONE)) for part, writer in pieces]
    if not align:
        if session and not start:
            return session.encode_segments(tokenizer, encoder, marked), []
        return encoder.encode(marked, not start), []
    return offsets.encode_segments(encoder, marked, not start)


# -- Marks in the assistant's own words ----------------------------------------
#
# The template shows which these are: it renders examples, and the tokens in its own text
# between the messages show what they are for.  A token around the turns of every example
# marks turns.  A mark that is mistaken for a turn mark becomes text, which is safe.

_DOCUMENTS = [{"title": "title", "text": "text"}]
_USER = {"role": "user", "content": "question"}
_ANSWER = {"role": "assistant", "content": "answer"}
_SYSTEM = {"role": "system", "content": "rules"}
_PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "description": "x"}}}
_TOOL = {"name": "look", "description": "Look.", "parameters": _PARAMETERS}
_TOOLS = [{"type": "function", "function": _TOOL}]
_CALL = {"id": "call12345", "function": {"name": "look", "arguments": {"city": "Paris"}}}
_CALLS = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", **_CALL}]}
_RESULT = {"role": "tool", "content": "result", "name": "look", "tool_call_id": "call12345"}
_THOUGHT = {**_ANSWER, "reasoning_content": "thought"}
# Conversations, and whether the prompt for an answer follows.
_PLAIN: list[_Example] = [
    ([_USER, _ANSWER, _USER], False),
    ([_USER, _ANSWER, _USER], True),
    ([_USER, _ANSWER, _USER, _ANSWER], False),
    ([_SYSTEM, _USER, _ANSWER, _USER], True),
    ([_USER, _USER], True),
]
_RICH: list[_Example] = [
    ([_USER, _THOUGHT], False),
    ([_USER, _CALLS], False),
    ([_USER, {**_THOUGHT, **_CALLS}], False),
    ([_USER, _CALLS, _RESULT, _THOUGHT], False),
    ([_USER, _CALLS, _RESULT, _ANSWER, _USER], True),
]
_THINKING: list[dict[str, Any]] = [
    {},
    {"enable_thinking": True, "thinking": True},
    {"enable_thinking": False, "thinking": False},
]


def _marks_in_answers(render: Renderer, pieces: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the marks to recognize in the assistant's text; computed only if it has any."""
    plain = [token for token in render.tokenizer.added_tokens if not token.special]
    marks = frozenset(token.content for token in plain if not core.spells_text(token))
    said = "\0".join(part for part, writer in pieces if writer == ASSISTANT)
    if render.jinja_source is None or not core.one_of(marks).search(said):
        return _NONE
    added = frozenset(token.content for token in render.tokenizer.added_tokens)
    return answer_marks(render.jinja_source, render.role_tokens, added) & marks


@functools.lru_cache(maxsize=64)
def answer_marks(
    source: str, roles: tuple[tuple[str, str], ...], tokens: frozenset[str]
) -> frozenset[str]:
    """Return the tokens that a Jinja template writes or reads inside an answer.

    `roles` are the names and texts of the special tokens that the template is given, such as
    ``bos_token``; `tokens` are all added tokens.
    """
    from bpe_tokenizer_tools.chat import jinja

    find = core.one_of(tokens).findall

    def found(gaps: Iterable[_Gap], *zones: str) -> list[list[str]]:
        return [find(text) for zone, text in gaps if zone in zones]

    with limited({"messages": [_USER] * 100}):  # all examples together
        plain = list(_gaps(source, roles, _PLAIN))
        rich = list(_gaps(source, roles, _PLAIN + _RICH, tools=_TOOLS))
        rich += _gaps(source, roles, _PLAIN, documents=_DOCUMENTS)
    turns = set().union(*found(plain, "around", "end"))
    turns |= tokens.intersection(*found(plain, "header"))
    if any(found(plain, "end")):  # then an answer with tool calls ends with such a mark, too
        turns |= {token for ends in found(rich, "end") for token in ends[-1:]}
    written = set().union(*found(plain + rich, "header", "inside", "end"))
    read = set(find("\0".join(jinja.constants_read(source))))
    read -= set().union(*found(plain + rich, "around"))
    return frozenset(written | read) - turns


def _gaps(
    source: str, roles: tuple[tuple[str, str], ...], examples: Iterable[_Example], **more: Any
) -> Iterator[_Gap]:
    """Render examples in every way that a template knows; yield its own text in them."""
    from bpe_tokenizer_tools.chat import jinja, templates

    own: dict[str, Any] = {name: Marked(token, Origin()) for name, token in roles}
    own.update({"tools": None, "documents": None, **more})
    for (messages, asked), thinking in itertools.product(examples, _THINKING):
        given = [templates.as_given_message(i, each) for i, each in enumerate(messages)]
        try:
            text = jinja.render(source, given, asked, **own, **thinking)
        except ExceededError:
            raise
        except ValueError:  # the template refuses such a conversation
            continue
        ends = [*(each["role"] for each in messages), "prompt" if asked else "end", "others"]
        before, written = -1, ""
        for part, origin in [*text.runs(), ("\0", Origin(len(messages), "end"))]:
            if origin.trusted:
                written += part
            elif part:
                after = -1 if origin.message is None else origin.message
                yield _zone(before, after, ends), written
                before, written = after, ""


def _zone(before: int, after: int, ends: Sequence[str]) -> str:
    """Return the part of a conversation between two messages; -1 means no message."""
    if ends[before] == "user" and ends[after] in ("assistant", "prompt"):
        return "header"
    if ends[before] == "assistant" and before == after:
        return "inside"
    return "end" if (ends[before], ends[after]) == ("assistant", "end") else "around"
