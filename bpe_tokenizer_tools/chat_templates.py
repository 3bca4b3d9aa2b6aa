"""Chat templates: from a conversation to text that knows who wrote it.

A template is one of the built-in ones, Jinja, or a function of the caller's.  Each is
given the conversation as `Marked` text and gives `Marked` text back.  In the template's
own text control tokens count; in what people wrote they are characters like any other.
So a user who types "<|im_end|>" ends nothing.

For clean contents, text and ids are those of HuggingFace's ``apply_chat_template``
(huggingface.co/docs/transformers/chat_templating).
"""

from __future__ import annotations

import functools
import itertools
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable

import bpe_tokenizer as core
from bpe_tokenizer_tools.marked_text import TEMPLATE, UNKNOWN, Marked, Origin, concat

if TYPE_CHECKING:
    from bpe_tokenizer import BPETokenizer

Message = Mapping[str, Any]
Template = Callable[..., Marked]  # (messages, add_generation_prompt, **variables)
Span = tuple[int, int]

# The roles that chat templates know.  One of these words is as good as the template's own
# text: some templates make control tokens of it, such as "<|" + role + "|>".
ROLES = {"system", "developer", "user", "assistant", "model", "tool", "function", "ipython"}
ROLES |= {"observation", "tool_response"}
_REASONING = ("reasoning_content", "thinking", "reasoning")  # names of one thing


# -- Conversations -------------------------------------------------------------


def check_messages(messages: Any, system_prompt: str | None = None) -> list[dict[str, Any]]:
    """Return a conversation as a list of plain dictionaries, the system prompt first.

    Raises:
        TypeError, ValueError: `messages` is not a list of {"role": ..., "content": ...}.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise TypeError(
            "messages must be a list of {'role': ..., 'content': ...}, "
            f"got {type(messages).__name__}"
        )
    checked: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(f"messages[{i}] must be a mapping, got {type(message).__name__}")
        known = {key: value for key, value in message.items() if value is not None}
        role = known.get("role")
        if not isinstance(role, str) or not role:
            raise ValueError(f"messages[{i}]['role'] must be a word, got {core._shorten(role)}")
        if not isinstance(known.get("content", ""), (str, list, tuple)):
            got = core._shorten(known["content"])
            raise ValueError(f"messages[{i}]['content'] must be a string or a list, got {got}")
        checked.append(known)
    if system_prompt is not None:
        if not isinstance(system_prompt, str):
            raise TypeError(f"system_prompt must be a str, got {type(system_prompt).__name__}")
        if checked and checked[0]["role"] == "system":
            raise ValueError("system_prompt is given, but the first message is a system prompt too")
        checked.insert(0, {"role": "system", "content": system_prompt})
    return checked


def _as_given(value: Any, origin: Origin) -> Any:
    """Copy plain data, with every string marked; what is no plain data becomes its type's name."""
    if isinstance(value, str):
        return Marked(str.__str__(value) if type(value) is not str else value, origin)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {_as_given(key, origin): _as_given(item, origin) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_given(item, origin) for item in value]
    return Marked(f"<{type(value).__name__}>", origin)


def _as_given_message(i: int, message: Message) -> dict[str, Any]:
    given = {key: _as_given(value, Origin(i, key)) for key, value in message.items()}
    if message["role"] in ROLES:
        given["role"] = Marked(message["role"], TEMPLATE)
    reasoning = next((given[name] for name in _REASONING if name in given), None)
    if reasoning is not None:  # as HuggingFace does: templates read it by one name or the other
        given = {"thinking": reasoning, **given, "reasoning_content": reasoning}
    return given


# -- Built-in templates --------------------------------------------------------


def _fill(form: str, *contents: Marked) -> Marked:
    """Put what people wrote into the gaps, written {}, of a template's own text."""
    parts: list[str] = []
    for own, content in zip(form.split("{}"), (*contents, "")):
        parts += [Marked(own, TEMPLATE), content]
    return concat(parts)


def _llama3(messages: list[dict[str, Any]], add_generation_prompt: bool) -> Iterator[Marked]:
    """Source: Meta-Llama-3-8B-Instruct's chat template; contents are stripped there."""
    yield _fill("<|begin_of_text|>")
    for message in messages:
        form = "<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>"
        yield _fill(form, message["role"], message["content"].strip())
    if add_generation_prompt:
        yield _fill("<|start_header_id|>assistant<|end_header_id|>\n\n")


def _chatml(messages: list[dict[str, Any]], add_generation_prompt: bool) -> Iterator[Marked]:
    """Source: OpenAI's ChatML as Qwen uses it, without a default system prompt."""
    for message in messages:
        yield _fill("<|im_start|>{}\n{}<|im_end|>\n", message["role"], message["content"])
    if add_generation_prompt:
        yield _fill("<|im_start|>assistant\n")


_ALPACA_SYSTEM_PROMPT = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request."
)
_ALPACA_HEADINGS = {"user": "### Instruction:\n", "assistant": "### Response:\n"}


def _alpaca(messages: list[dict[str, Any]], add_generation_prompt: bool) -> Iterator[Marked]:
    """Source: Stanford Alpaca's prompt as github.com/tloen/alpaca-lora spells it, by turns."""
    if messages and messages[0]["role"] == "system":
        yield _fill("{}\n\n", messages[0]["content"])
        messages = messages[1:]
    else:
        yield _fill(_ALPACA_SYSTEM_PROMPT + "\n\n")
    for message in messages:
        if message["role"] not in _ALPACA_HEADINGS:
            raise ValueError(
                f"the alpaca template has no role {str(message['role'])!r} here: it knows one "
                "system message, first, then user and assistant"
            )
        yield _fill(_ALPACA_HEADINGS[message["role"]] + "{}\n\n", message["content"])
    if add_generation_prompt:
        yield _fill(_ALPACA_HEADINGS["assistant"])


BUILT_IN: dict[str, Callable[[list[dict[str, Any]], bool], Iterator[Marked]]] = {
    "llama3": _llama3,
    "chatml": _chatml,
    "alpaca": _alpaca,
}


def _with_text(name: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages, if all contents are plain text: built-in templates know no other."""
    for i, message in enumerate(messages):
        if not isinstance(message.get("content"), str):
            got = core._shorten(message.get("content"))
            raise ValueError(
                f"messages[{i}]['content'] must be a string for the template {name!r}, got {got}"
            )
    return messages


def _built_in(
    name: str, messages: list[dict[str, Any]], add_generation_prompt: bool, /, **variables: Any
) -> Marked:
    unused = [key for key in ("tools", "documents") if variables.get(key) is not None]
    if unused:
        raise ValueError(
            f"the template {name!r} has no place for {unused[0]}; use the model's own template"
        )
    return concat(BUILT_IN[name](_with_text(name, messages), add_generation_prompt))


def render_built_in(
    name: str, messages: Any, add_generation_prompt: bool, system_prompt: str | None
) -> str:
    """Render a conversation to plain text; see `bpe_tokenizer.ChatTemplate`."""
    given = list(map(_as_given_message, range(2**31), check_messages(messages, system_prompt)))
    return concat(BUILT_IN[name](_with_text(name, given), add_generation_prompt)).plain


# -- Functions of the caller's -------------------------------------------------


def _from_function(
    function: Callable[..., Any],
    control: tuple[str, ...],
    messages: list[dict[str, Any]],
    add_generation_prompt: bool,
    /,
    **variables: Any,
) -> Marked:
    """Render with a function that gives text, or (text, trusted) pairs.

    Of plain text, nobody can say who wrote which part.  So the function is called with
    unmistakable words in the place of what people wrote, too; where these turn up, that
    text stood.
    """
    given = {
        name: value
        for name, value in variables.items()
        if value is not None and name not in core._ROLES
    }
    given["add_generation_prompt"] = add_generation_prompt
    made = function(_plain(messages), **_plain(given))
    if not isinstance(made, str):
        pairs = list(made)
        if not all(isinstance(pair, tuple) and len(pair) >= 2 for pair in pairs):
            raise TypeError("a template function gives a str, or (text, trusted) pairs")
        return concat(Marked(pair[0], TEMPLATE if pair[1] else UNKNOWN) for pair in pairs)
    for change in (str, str.strip):
        words = _Words(control, change)
        form = function(words.replaced(messages), **words.replaced(given))
        found = words.filled(form) if isinstance(form, str) else concat([])
        if found.plain == made:
            return found
    raise ValueError(
        "the template function changes what people wrote, so that control tokens in it cannot be "
        "told from the template's own; let it give (text, trusted) pairs"
    )


def _plain(value: Any) -> Any:
    """Return data with its strings unmarked."""
    if isinstance(value, Marked):
        return value.plain
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


class _Words:
    """Words that stand for what people wrote.

    Args:
        control: control tokens.
        change: what the template does to a content, perhaps: `str.strip`, or `str`.
    """

    def __init__(self, control: tuple[str, ...], change: Callable[[Any], Any]) -> None:
        self._control, self._change = control, change
        self._stand_for: dict[str, Marked] = {}

    def replaced(self, value: Any) -> Any:
        """Return data with each string that people wrote replaced by a word of its own."""
        if isinstance(value, Marked):
            if all(origin.trusted for _, origin in value.runs()):
                return value.plain
            word = f"\ue000{len(self._stand_for)}\ue001"
            self._stand_for[word] = value.strip() if self._change is str.strip else value
            return word
        if isinstance(value, dict):
            return {self._key(key): self.replaced(item) for key, item in value.items()}
        return [self.replaced(item) for item in value] if isinstance(value, list) else value

    def _key(self, key: Any) -> Any:
        """Return a key as it is, for a function to find it, if it holds no control token."""
        text = _plain(key)
        if isinstance(text, str) and any(token in text for token in self._control):
            return self.replaced(Marked(text))
        return text

    def filled(self, form: str) -> Marked:
        """Return a text with the words replaced by what they stand for."""
        parts = re.split("(\ue000[0-9]+\ue001)", form)
        return concat(self._stand_for.get(part, Marked(part, TEMPLATE)) for part in parts)


# -- Rendering -----------------------------------------------------------------


def _resolve(template: Any, tokenizer: BPETokenizer) -> Template:
    """Return what renders: by the name of a built-in template, Jinja source or a function."""
    if template is None:
        template = tokenizer.chat_template or "llama3"
    for name in BUILT_IN:
        if template in (name, getattr(core.ChatTemplate, name)):
            return functools.partial(_built_in, name)
    if callable(template):
        return functools.partial(_from_function, template, tuple(tokenizer.special_tokens))
    if not isinstance(template, str):
        raise TypeError(f"template must be a str or a function, got {type(template).__name__}")
    if "{" not in template:
        raise ValueError(
            f"unknown chat template {template!r}, expected one of {', '.join(BUILT_IN)}, "
            "or Jinja source"
        )
    core._import_optional("jinja2", "a Jinja chat template", "jinja2")
    from bpe_tokenizer_tools import jinja

    return functools.partial(jinja.render, template)


class Renderer:
    """A template with all that it is given but for the messages.

    Args:
        template: as for `BPETokenizer.apply_chat_template`.
        tokenizer: whose template and control tokens these are.
        variables: tools, documents, and others that the template knows.
    """

    def __init__(
        self, template: Any, tokenizer: BPETokenizer, variables: Mapping[str, Any]
    ) -> None:
        from bpe_tokenizer_tools.tool_schemas import schemas

        given = dict(variables)
        tools = given.get("tools")
        given["tools"] = None if tools is None else schemas(tools)
        documents = given.setdefault("documents")
        if documents is not None and not (
            isinstance(documents, (list, tuple))
            and all(isinstance(item, Mapping) for item in documents)
        ):
            raise TypeError("documents must be a list of {'title': ..., 'text': ...}")
        roles = {role: getattr(tokenizer, role) for role in core._ROLES}
        self._variables = {
            **{name: Marked(token, TEMPLATE) for name, token in roles.items() if token},
            **{name: _as_given(value, Origin(None, name)) for name, value in given.items()},
        }
        self._template = _resolve(template, tokenizer)

    def __call__(self, messages: Sequence[Message], add_generation_prompt: bool = False) -> Marked:
        """Render messages as `check_messages` gives them."""
        given = [_as_given_message(i, message) for i, message in enumerate(messages)]
        return self._template(given, add_generation_prompt, **self._variables)

    def prompt(self, messages: Sequence[Message]) -> tuple[str, str] | None:
        """Render what the assistant is asked to go on from; also give its end that asks.

        None if the template refuses such a conversation.
        """
        try:
            whole, without = self(messages, True).plain, self(messages).plain
        except ValueError:
            return None
        return whole, whole[len(without) :] if whole.startswith(without) else ""


def end_of_turn(render: Renderer, control: Iterable[str]) -> str | None:
    """Return the control token that a template puts behind what the assistant says."""
    question = {"role": "user", "content": "question"}
    turn = [question, {"role": "assistant", "content": "answer"}]
    try:
        at_end, between = "".join(render(turn)), "".join(render([*turn, question]))
    except ValueError:
        return None
    at_end = at_end[at_end.rfind("answer") :]
    between = between[between.rfind("answer") : between.rfind("question")]
    both = at_end[: _agree(at_end, between)]  # some add more at the end of a conversation
    found = _find_control(both, control) or _find_control(at_end, control)
    found = found[-1:] or _find_control(between, control)[:1]
    return found[0][0] if found else None


def _find_control(text: str, control: Iterable[str]) -> list[re.Match[str]]:
    longest_first = sorted(control, key=len, reverse=True)
    return list(re.finditer("|".join(map(re.escape, longest_first)) or "(?!)", text))


# -- What the assistant wrote --------------------------------------------------


def assistant_spans(
    render: Renderer, messages: Sequence[Message], text: Marked, tokenizer: BPETokenizer
) -> list[Span]:
    """Find what a model generated, or is to learn to generate, in a rendered conversation.

    That is, for each message of the assistant, all between the end of the prompt for it and
    the end of its turn, this included: its content and tool calls as the template wrote them.
    A template that marks this itself, by {% generation %}, is believed.

    Returns:
        (start, end) characters of `text`.
    """
    generated = _spans_of(text, lambda origin: origin.generated)
    if generated:
        return generated
    control = set(tokenizer.special_tokens)
    ends = control.intersection((tokenizer.eos_token, end_of_turn(render, control)))
    plain, written = "".join(text), _written_by(text)
    spans: list[Span] = []
    for i, pieces in sorted(written.items()):
        if messages[i]["role"] not in ("assistant", "model"):
            continue
        # Some templates repeat the name of a called function where they show its result.
        alone = "".join(render(messages[: i + 1]))
        agreed = _agree(alone, plain)
        pieces = [piece for piece in pieces if piece[1] <= agreed] or pieces
        first, last = pieces[0][0], pieces[-1][1]
        others = [piece for j, found in written.items() if j != i for piece in found]
        before = max((stop for _, stop in others if stop <= first), default=0)
        after = min((start for start, _ in others if start >= last), default=len(text))
        start = _find_start(render.prompt(messages[:i]), plain, before, first, control)
        found = _find_control(plain[last:after], ends)[:1]
        if not found and agreed == len(alone):
            found = _find_control(plain[last:agreed], control)[-1:]
        found = found or _find_control(plain[last:after], control)[:1]
        inside = (start, last + (found[0].end() if found else 0))
        spans += _spans_of(text, lambda origin: origin.message in (None, i), inside)  # noqa: B023
    return spans


def _spans_of(
    text: Marked, wanted: Callable[[Origin], bool], inside: Span | None = None
) -> list[Span]:
    start, stop = inside or (0, len(text))
    spans: list[Span] = []
    at = 0
    for part, origin in text.runs():
        begin, end = max(at, start), min(at + len(part), stop)
        at += len(part)
        if begin < end and wanted(origin):
            if spans and spans[-1][1] == begin:
                begin = spans.pop()[0]
            spans.append((begin, end))
    return spans


def _written_by(text: Marked) -> dict[int, list[Span]]:
    """Return for each message where its fields stand; one that is empty stands somewhere, too."""
    found: dict[int, list[Span]] = {}
    at = 0
    for part, origin in text.runs():
        if origin.message is not None and origin.field not in ("role", "name"):
            found.setdefault(origin.message, []).append((at, at + len(part)))
        at += len(part)
    return {i: [(a, b) for a, b in pieces if a < b] or pieces for i, pieces in found.items()}


def message_ends(text: Marked, n: int) -> list[int]:
    """Return for each of n messages where the last of its words stand; they never go back."""
    written = _written_by(text)
    ends = [written[i][-1][1] if i in written else 0 for i in range(n)]
    return list(itertools.accumulate(ends, max))


def _find_start(
    prompt: tuple[str, str] | None, text: str, before: int, first: int, control: Iterable[str]
) -> int:
    """Return where an answer begins, whose own words begin at `first`.

    Args:
        prompt: what the conversation up to here is rendered to, and the end of it.
        text: the whole conversation.
        before: where what was written before ends.
        first: see above.
        control: control tokens.
    """
    if prompt is None:
        return first
    whole, header = prompt
    agreed = _agree(whole, text)
    if agreed == len(whole):
        return min(agreed, first)
    if header and header in text[before:first]:
        return text.rindex(header, before, first) + len(header)
    if agreed < before:  # the template writes the past in another way
        starts = range(before, first + 1)
        start = max(starts, key=lambda at: (_agree(header, text[at:first]), at))
        before, agreed = start, start + _agree(header, text[start:first])
    # It begins in another way than here, with an empty thought perhaps: back to the last border.
    if agreed >= first:
        return first
    borders = re.finditer("|".join(["\n+", *map(re.escape, control)]), text[before:agreed])
    return max((before + border.end() for border in borders), default=first)


def _agree(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return how long two strings, or lists, are the same."""
    differing = (i for i, (one, other) in enumerate(zip(a, b)) if one != other)
    return next(differing, min(len(a), len(b)))


# -- For BPETokenizer ----------------------------------------------------------


_NAMES_A_ROLE = re.compile("user|human|assistant|model|bot|system|developer", re.IGNORECASE)


def encode(
    tokenizer: BPETokenizer,
    text: Marked,
    allowed_special: Any = "all",
    start: int = 0,
    align: bool = True,
) -> tuple[list[int], list[Span]]:
    """Encode a rendered conversation, from a place on; return ids and, aligned, their offsets.

    Tokens that are not special are found in what people wrote, too, as HuggingFace does;
    but not those with which the template itself says whose turn it is: some families
    publish these as not special.
    """
    pieces = _segments(text)
    own = "".join(part for part, is_own in pieces if is_own)
    plain = (token.content for token in tokenizer.added_tokens if not token.special)
    marks = frozenset(token for token in plain if _NAMES_A_ROLE.search(token) and token in own)
    rest = _segments(text[start:])
    return tokenizer._encode_segments(rest, allowed_special, align, not start, marks)


def _segments(text: Marked) -> list[tuple[str, bool]]:
    """Return text in pieces, each either the template's own (True) or not."""
    found: list[tuple[str, bool]] = []
    for part, origin in text.runs():
        if found and found[-1][1] == origin.trusted:
            part = found.pop()[0] + part
        found.append((part, origin.trusted))
    return found


def _continue(text: Marked, messages: Sequence[Message], field: bool | str) -> Marked:
    """Cut a conversation behind what the last message says."""
    name = field if isinstance(field, str) else "content"
    names = _REASONING if name in _REASONING else (name,)
    if not messages or not any(name in messages[-1] for name in names):
        raise ValueError(f"continue_final_message: the last message has no {name!r} to continue")
    end = at = 0
    for part, origin in text.runs():
        at += len(part)
        if origin.message == len(messages) - 1 and origin.field in names:
            end = at
    if not end:
        raise ValueError(
            f"continue_final_message: the template does not render {name!r} of the last message"
        )
    return text[:end]


def _turns(messages: Sequence[Message]) -> tuple[list[Any], list[list[Any]]]:
    """Return the messages before the first turn, and the turns; each begins with a user."""
    heads = itertools.takewhile(lambda m: m["role"] in ("system", "developer"), messages)
    start = len(list(heads))
    turns: list[list[Any]] = []
    for message in messages[start:]:
        if message["role"] == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return list(messages[:start]), turns


def apply(
    tokenizer: BPETokenizer,
    messages: Any,
    template: Any,
    add_generation_prompt: bool,
    system_prompt: str | None,
    allowed_special: Any,
    /,
    *,
    tokenize: bool = True,
    continue_final_message: bool | str = False,
    return_dict: bool = False,
    return_assistant_tokens_mask: bool = False,
    return_offsets_mapping: bool = False,
    truncation: bool = False,
    max_length: int | None = None,
    **variables: Any,
) -> Any:
    """Render a conversation and encode it; see `BPETokenizer.apply_chat_template`."""
    _check_options(continue_final_message, variables)
    if not return_dict and (return_assistant_tokens_mask or return_offsets_mapping):
        raise ValueError("a mask and offsets come in a dict: pass return_dict=True, too")
    checked = check_messages(messages, system_prompt)
    render = Renderer(template, tokenizer, variables)

    def make(some: Sequence[Message]) -> Marked:
        if continue_final_message:
            return _continue(render(some), some, continue_final_message)
        return render(some, add_generation_prompt)

    def count(some: Sequence[Message]) -> int:
        return len(encode(tokenizer, make(some), allowed_special, align=False)[0])

    if not tokenize:
        return make(checked).plain
    kept = checked
    if truncation:
        limit = _limit(tokenizer, max_length)
        kept = _newest(checked, limit, count)
    text = make(kept)
    ids, offsets = encode(tokenizer, text, allowed_special, align=return_dict)
    if not return_dict:
        return ids
    result: dict[str, Any] = {"input_ids": ids, "attention_mask": [1] * len(ids)}
    if return_assistant_tokens_mask:
        spans = assistant_spans(render, kept, text, tokenizer)
        result["assistant_masks"] = _mask(offsets, spans)
    if return_offsets_mapping:
        result["offset_mapping"] = offsets
    if truncation:
        result["dropped_messages"] = len(checked) - len(kept)
    return result


def _check_options(continue_final_message: Any, variables: Mapping[str, Any]) -> None:
    unknown = next((name for name in variables if name in _NOT_HERE), None)
    if unknown:
        raise TypeError(f"apply_chat_template takes no {unknown}=; {_NOT_HERE[unknown]}")
    if not isinstance(continue_final_message, (bool, str)):
        raise TypeError("continue_final_message must be True, False or the name of a field")


_NOT_HERE = {
    "chat_template": "it is called template= here",
    "conversation": "it is called messages= here",
    "padding": "pad the results, with attention masks, yourself",
    "return_tensors": "make tensors of the lists it gives",
    "tokenizer_kwargs": "they are keywords here",
    "sanitize_control_tokens": "what people wrote never gives control tokens here",
}


def _limit(tokenizer: BPETokenizer, max_length: int | None) -> int:
    limit = tokenizer._settings.get("model_max_length") if max_length is None else max_length
    if type(limit) is not int or limit < 1:
        got = core._shorten(max_length)
        raise ValueError(f"truncation needs max_length, a number of tokens above 0; got {got}")
    return limit


def _newest(
    messages: Sequence[Message], limit: int, count: Callable[[Sequence[Message]], int]
) -> list[Any]:
    """Leave out the oldest turns until the conversation fits; say so."""
    head, turns = _turns(messages)
    kept = list(messages)
    while count(kept) > limit:
        if len(turns) < 2:
            raise ValueError(
                f"the last turn alone takes {count(kept):,} tokens, more than max_length={limit:,}"
            )
        turns.pop(0)
        kept = [*head, *itertools.chain.from_iterable(turns)]
    if len(kept) < len(messages):
        warnings.warn(
            f"{len(messages) - len(kept)} old messages are left out, so that the conversation "
            f"fits into {limit:,} tokens",
            stacklevel=4,
        )
    return kept


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
