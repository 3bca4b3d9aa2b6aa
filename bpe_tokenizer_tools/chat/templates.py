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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bpe_tokenizer import BPETokenizer, ChatTemplate
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.chat.encoding import CONTENT_TOKENS
from bpe_tokenizer_tools.chat.marked_text import TEMPLATE, UNKNOWN, Marked, Origin, concat

Message = Mapping[str, Any]
Template = Callable[..., Marked]  # (messages, add_generation_prompt, **variables)
Span = tuple[int, int]

# The roles that chat templates know.  One of these words is as good as the template's own
# text: some templates make control tokens of it, such as "<|" + role + "|>".
ROLES = {"system", "developer", "user", "assistant", "model", "tool", "function", "ipython"}
ROLES |= {"observation", "tool_response"}
_ASSISTANTS = ("assistant", "model")
SYSTEMS = ("system", "developer")
REASONING = ("reasoning_content", "thinking", "reasoning")  # names of one thing
_SAID = ("content", *REASONING)  # the fields of a message with what was said


# -- Conversations -------------------------------------------------------------


def check_messages(messages: Any, system_prompt: str | None = None) -> list[dict[str, Any]]:
    """Return a conversation as a list of plain dictionaries.

    Args:
        messages: the conversation.
        system_prompt: goes first, if it is not empty and no message is a system message.

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
        if not all(isinstance(key, str) for key in message):
            raise TypeError(f"messages[{i}]: the keys of a message must be strings")
        known = {key: value for key, value in message.items() if value is not None}
        role = known.get("role")
        if not isinstance(role, str) or not role:
            raise ValueError(f"messages[{i}]['role'] must be a word, got {core.shorten(role)}")
        if not isinstance(known.get("content", ""), (str, list, tuple)):
            got = core.shorten(known["content"])
            raise ValueError(f"messages[{i}]['content'] must be a string or a list, got {got}")
        checked.append(known)
    if not isinstance(system_prompt, (str, type(None))):
        raise TypeError(f"system_prompt must be a str, got {type(system_prompt).__name__}")
    if system_prompt and not has_system(checked):
        checked.insert(0, {"role": "system", "content": system_prompt})
    return checked


def has_system(messages: Iterable[Message]) -> bool:
    """Return whether a conversation brings instructions of its own, by either name."""
    return any(message["role"] in SYSTEMS for message in messages)


def _as_given(value: Any, origin: Origin) -> Any:
    """Copy plain data, with every string marked; what is no plain data becomes its type's name."""
    if isinstance(value, str):
        return Marked(str.__str__(value) if type(value) is not str else value, origin)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, (str, int, float, type(None))) for key in value):
            raise TypeError("the keys of an object in a conversation must be strings or numbers")
        return {_as_given(key, origin): _as_given(item, origin) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_given(item, origin) for item in value]
    return Marked(f"<{type(value).__name__}>", origin)


def as_given_message(i: int, message: Message) -> dict[str, Any]:
    """Mark the strings of a message; a role that templates know is as good as their own text."""
    is_answer = message["role"] in _ASSISTANTS
    given = {
        key: _as_given(value, Origin(i, key, answer=is_answer and key in _SAID))
        for key, value in message.items()
    }
    if message["role"] in ROLES:
        given["role"] = Marked(message["role"], TEMPLATE)
    reasoning = next((given[name] for name in REASONING if name in given), None)
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


def _built_in(
    name: str, messages: list[dict[str, Any]], add_generation_prompt: bool, /, **variables: Any
) -> Marked:
    for i, message in enumerate(messages):
        if not isinstance(message.get("content"), str):
            got = core.shorten(message.get("content"))
            raise ValueError(
                f"messages[{i}]['content'] must be a string for the template {name!r}, got {got}"
            )
    unused = [key for key in ("tools", "documents") if variables.get(key) is not None]
    if unused:
        raise ValueError(
            f"the template {name!r} has no place for {unused[0]}; use the model's own template"
        )
    return concat(BUILT_IN[name](messages, add_generation_prompt))


def render_built_in(
    name: str, messages: Any, add_generation_prompt: bool, system_prompt: str | None
) -> str:
    """Render a conversation to plain text; see `bpe_tokenizer.ChatTemplate`."""
    given = list(map(as_given_message, range(2**31), check_messages(messages, system_prompt)))
    return _built_in(name, given, add_generation_prompt).plain


# -- Functions of the caller's -------------------------------------------------


_PAIRS = (
    "expected (text, trusted) pairs: the template's own text is trusted, what people wrote is not, "
    'as in `yield "<|im_start|>user\\n", True; yield message["content"], False`'
)


def _from_function(
    function: Callable[..., Any],
    messages: list[dict[str, Any]],
    add_generation_prompt: bool,
    /,
    **variables: Any,
) -> Marked:
    """Render with a function that gives (text, trusted) pairs."""
    given = {
        name: _plain(value)
        for name, value in variables.items()
        if value is not None and name not in core.ROLES
    }
    made = function(_plain(messages), **given, add_generation_prompt=add_generation_prompt)
    if isinstance(made, str) or not isinstance(made, Iterable):
        raise TypeError(f"the template function returned {core.shorten(made)}; {_PAIRS}")
    parts = []
    for pair in made:
        if not (isinstance(pair, tuple) and len(pair) >= 2 and isinstance(pair[0], str)):
            raise TypeError(f"the template function gave {core.shorten(pair)}; {_PAIRS}")
        parts.append(Marked(pair[0], TEMPLATE if pair[1] else UNKNOWN))
    return concat(parts)


def _plain(value: Any) -> Any:
    """Return data with its strings unmarked."""
    if isinstance(value, Marked):
        return value.plain
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


# -- Which template ------------------------------------------------------------

_QUESTION = {"role": "user", "content": "question"}
# The shapes that only control tokens have.  "<think>" or "[INST]" may be ordinary text.
_CONTROL = re.compile(
    r"<\|[^|<>\s\0]+\|?>|<[^|<>\s\0]+\|>|<｜[^｜<>\s\0]+｜>|<(?:start|end)_of_turn>"
)


def _select(template: Any, tokenizer: BPETokenizer, tools: Any) -> Any:
    """Return the template that is meant; names and defaults are those of transformers."""
    own = tokenizer.chat_templates
    if isinstance(template, str):
        return own.get(template, template)
    if template is not None:
        return template
    if not own:
        fitting = (name for name in ("llama3", "chatml") if not _missing(name, tokenizer))
        return next(fitting, "llama3")
    name = "tool_use" if tools is not None and "tool_use" in own else "default"
    if name not in own:
        raise ValueError(
            "this tokenizer has no default chat template: "
            f"pass template= with the name of one it has, {', '.join(sorted(own))}"
        )
    return own[name]


def _missing(template: str | Marked, tokenizer: BPETokenizer) -> list[str]:
    """Return the control tokens that a template writes and the tokenizer does not have.

    Args:
        template: what it made of a conversation, or the name of a built-in one.
        tokenizer: whose added tokens count, special or not.
    """
    if not isinstance(template, Marked):
        template = _built_in(template, [as_given_message(0, _QUESTION)], True)
    own = "".join(part if origin.trusted else "\0" for part, origin in template.runs())
    written = dict.fromkeys(_CONTROL.findall(own))
    unknown = [token for token in written if token not in core.added(tokenizer)]
    return [
        token for token in unknown if not any(token in known for known in core.added(tokenizer))
    ]


# -- Rendering -----------------------------------------------------------------


def _resolve(template: Any, tokenizer: BPETokenizer) -> Template:
    """Return what renders: by the name of a built-in template, Jinja source or a function."""
    for name in BUILT_IN:
        if template in (name, getattr(ChatTemplate, name)):
            return functools.partial(_built_in, name)
    if callable(template):
        return functools.partial(_from_function, template)
    if not isinstance(template, str):
        raise TypeError(f"template must be a str or a function, got {type(template).__name__}")
    own = tokenizer.chat_templates
    if "{" not in template and template not in own.values():
        names = ", ".join([*own, *BUILT_IN])
        raise ValueError(
            f"unknown chat template {template!r}, expected one of {names}, or Jinja source"
        )
    core.import_optional("jinja2", "a Jinja chat template", "jinja2")
    from bpe_tokenizer_tools.chat import jinja

    return functools.partial(jinja.render, template)


class Renderer:
    """A template with all that it is given but for the messages.

    Args:
        template: as for `BPETokenizer.apply_chat_template`.
        tokenizer: whose template and control tokens these are.
        variables: tools, documents, and others that the template knows; also
            ``content_tokens``, as for `BPETokenizer.apply_chat_template`, and
            ``chat_template``, another name of `template`.
    """

    def __init__(
        self, template: Any, tokenizer: BPETokenizer, variables: Mapping[str, Any]
    ) -> None:
        from bpe_tokenizer_tools.chat.tool_schemas import schemas

        given = dict(variables)
        self.tokenizer = tokenizer
        self.content_tokens = given.pop("content_tokens", CONTENT_TOKENS[0])
        if self.content_tokens not in CONTENT_TOKENS:
            known, got = " or ".join(map(repr, CONTENT_TOKENS)), core.shorten(self.content_tokens)
            raise ValueError(f"content_tokens must be {known}, got {got}")
        named = given.pop("chat_template", None)
        if None not in (template, named):
            raise TypeError("template= and chat_template= are one option: pass only one of them")
        tools = given.get("tools")
        given["tools"] = None if tools is None else schemas(tools)
        documents = given.setdefault("documents")
        if documents is not None and not (
            isinstance(documents, (list, tuple))
            and all(isinstance(item, Mapping) for item in documents)
        ):
            raise TypeError("documents must be a list of {'title': ..., 'text': ...}")
        roles = ((role, getattr(tokenizer, role)) for role in core.ROLES)
        self.role_tokens = tuple((role, token) for role, token in roles if token)
        self._variables = {
            **{name: Marked(token, TEMPLATE) for name, token in self.role_tokens},
            **{name: _as_given(value, Origin(None, name)) for name, value in given.items()},
        }
        template = named if template is None else template
        self._source = _select(template, tokenizer, given["tools"])
        self._template = _resolve(self._source, tokenizer)
        self._is_default = template is None

    @property
    def jinja_source(self) -> str | None:
        """The template, if it is Jinja."""
        made = getattr(self._template, "args", ())
        return made[0] if made and isinstance(made[0], str) and made[0] not in BUILT_IN else None

    def __call__(self, messages: Sequence[Message], add_generation_prompt: bool = False) -> Marked:
        """Render messages as `check_messages` gives them."""
        given = [as_given_message(i, message) for i, message in enumerate(messages)]
        return self.render_marked(given, add_generation_prompt)

    def render_marked(self, messages: list[dict[str, Any]], add_generation_prompt: bool) -> Marked:
        """Render messages as `as_given_message` gives them."""
        return self._template(messages, add_generation_prompt, **self._variables)

    @property
    def marks_generation(self) -> bool:
        """Whether the template has the tag {% generation %}, around what the assistant says."""
        if self.jinja_source is None:
            return False
        from bpe_tokenizer_tools.chat import jinja

        return jinja.has_generation(self.jinja_source)

    def check(self, text: Marked) -> None:
        """Check that the control tokens that the template wrote in a text are tokens.

        The tokenizer's own templates may write ordinary text that looks like control tokens,
        as those of Zephyr and Tulu do: they pass if they write any token that it has.

        Raises:
            ValueError: some are not.
        """
        missing = _missing(text, self.tokenizer)
        if not missing or self._is_own():
            return
        which = "the chat template"
        if self._is_default and not self.tokenizer.chat_templates:
            which = f"this tokenizer has no chat template, and the default one, {self._source},"
        raise ValueError(
            f"{which} writes {', '.join(map(repr, missing[:8]))}, which this tokenizer has no "
            "tokens for: add them with add_special_tokens, or choose another template"
        )

    def _is_own(self) -> bool:
        """Whether the template is the tokenizer's own, and names any of its tokens or roles."""
        source, tokenizer = self._source, self.tokenizer
        roles = [role for role in core.ROLES if getattr(tokenizer, role)]
        return source in tokenizer.chat_templates.values() and any(
            name in source for name in (*roles, *core.added(tokenizer))
        )


def end_of_turn(render: Renderer, control: Iterable[str]) -> str | None:
    """Return the control token that a template puts behind what the assistant says."""
    turn = [_QUESTION, {"role": "assistant", "content": "answer"}]
    try:
        whole, longer = render(turn).plain, render([*turn, _QUESTION]).plain
    except ValueError:
        return None
    tokens = core.one_of(control)
    at_end = whole[whole.rfind("answer") :]
    between = longer[longer.rfind("answer") : longer.rfind("question")]
    # What both have; some templates add more at the end, and even the header of a next turn.
    both = tokens.findall(at_end[: _agree(at_end, between)])
    opening = re.match(rf"(?:\s|{tokens.pattern})*", whole)
    headers = set(tokens.findall(opening[0] if opening else ""))
    found = [token for token in both if token not in headers][-1:] or both[-1:]
    found = found or tokens.findall(at_end)[-1:] or tokens.findall(between)[:1]
    return found[0] if found else None


# -- What the assistant wrote --------------------------------------------------


def assistant_spans(
    render: Renderer, messages: Sequence[Message], text: Marked, tokenizer: BPETokenizer
) -> list[Span]:
    """Find what a model generated, or is to learn to generate, in a rendered conversation.

    That is, for each message of the assistant, all between the end of the prompt for it and
    the end of its turn, this included: its content and tool calls as the template wrote them.
    If the template marks it with {% generation %}, only those marks count.

    Returns:
        (start, end) characters of `text`.
    """
    if render.marks_generation:
        return _spans_of(text, lambda origin: origin.generated, (0, len(text)))
    control = set(tokenizer.special_tokens)
    ends = control.intersection((tokenizer.eos_token, end_of_turn(render, control)))
    tokens = (core.one_of(ends), core.one_of(control))
    pieces = _pieces(text)
    spans: list[Span] = []
    for i, message in enumerate(messages):
        if message["role"] not in _ASSISTANTS:
            continue
        for inside in _turn(render, messages, i, text.plain, pieces, tokens):
            spans += _spans_of(text, lambda origin: origin.message in (None, i), inside)  # noqa: B023
    return spans


def _spans_of(text: Marked, wanted: Callable[[Origin], bool], inside: Span) -> list[Span]:
    spans: list[Span] = []
    at = 0
    for part, origin in text.runs():
        begin, end = max(at, inside[0]), min(at + len(part), inside[1])
        at += len(part)
        if begin < end and wanted(origin):
            if spans and spans[-1][1] == begin:
                begin = spans.pop()[0]
            spans.append((begin, end))
    return spans


class _Piece(NamedTuple):
    """Where something that a message says stands in a text."""

    start: int
    stop: int
    message: int
    field: str


def _pieces(text: Marked) -> list[_Piece]:
    """Return where messages stand in a text; one that is empty stands somewhere, too."""
    found: list[_Piece] = []
    at = 0
    for part, origin in text.runs():
        if origin.message is not None and origin.field not in (None, "role", "name"):
            found.append(_Piece(at, at + len(part), origin.message, str(origin.field)))
        at += len(part)
    full = {piece.message for piece in found if piece.start < piece.stop}
    return [piece for piece in found if piece.start < piece.stop or piece.message not in full]


def message_ends(text: Marked, n: int) -> list[int]:
    """Return for each of n messages where the last of its words stand; they never go back."""
    ends = [0] * n
    for piece in _pieces(text):
        ends[piece.message] = piece.stop
    return list(itertools.accumulate(ends, max))


def _turn(
    render: Renderer,
    messages: Sequence[Message],
    i: int,
    text: str,
    pieces: list[_Piece],
    tokens: tuple[re.Pattern[str], re.Pattern[str]],
) -> list[Span]:
    """Return where a turn of the assistant stands, in several parts if others are between."""
    prompt = _if_possible(render, messages[:i], True)
    alone = _if_possible(render, messages[: i + 1], False)
    said = _pieces(alone)
    _, asked = _header(prompt, said)
    said = [piece for piece in said if piece.message == i and piece.start >= asked]
    header, before = _header(prompt, pieces)
    pieces = [piece for piece in pieces if piece.start >= before]
    # Some templates repeat the name of a called function where they show its result.
    calls = [piece for piece in pieces if piece[2:] == (i, "tool_calls")]
    repeated = calls[sum(piece.field == "tool_calls" for piece in said) :] if said else []
    pieces = [piece for piece in pieces if piece not in repeated]
    own = [piece for piece in pieces if piece.message == i]
    if prompt and text.startswith(header, before):
        start: int | None = before + len(header)
    else:
        first = own[0].start if own else None
        limit = min((piece.start for piece in own or pieces), default=len(text))
        start = _find_start(header, text[:limit], before, first, tokens[1])
    if start is None:
        return []
    # Of the control tokens behind a last answer, one may be the header of another.
    spare = len(text) if not own else int(i == len(messages) - 1)
    if not own:  # nothing is said, at its place
        own = [_Piece(start, start, i, "")]
        pieces = own + [piece for piece in pieces if piece.start >= start]
        said = [_Piece(len(prompt), len(prompt), i, "")] if alone.startswith(prompt.plain) else []
    groups = [list(group) for _, group in itertools.groupby(pieces, lambda p: p.message == i)]
    parts: list[Span] = []
    for group, following in itertools.zip_longest(groups, groups[1:]):
        last = group[-1]
        if last.message != i:
            continue
        left = sum(piece.field == last.field for piece in own[own.index(last) :])
        same = [piece for piece in said if piece.field == last.field][-left:][:1]
        rest = alone.plain[same[0].stop :] if same else ""
        until = text[: following[0].start if following else len(text)]
        end = _find_end(until, last.stop, rest, tokens, spare)
        parts.append((group[0].start if parts else start, end))
    return parts


def _if_possible(render: Renderer, messages: Sequence[Message], prompt: bool) -> Marked:
    """Render messages; to nothing, if the template refuses them."""
    try:
        return render(messages, prompt)
    except (ValueError, LookupError):
        return Marked("", TEMPLATE)


def _header(prompt: Marked, pieces: list[_Piece]) -> tuple[str, int]:
    """Return how a prompt goes on behind what was said last, and where that ends in a text.

    Args:
        prompt: see above.
        pieces: those of the text.
    """
    asked = _pieces(prompt)
    if not asked:
        return prompt.plain, 0
    last = asked[-1]
    same = [piece.stop for piece in pieces if piece[2:] == last[2:]]
    number = sum(piece[2:] == last[2:] for piece in asked)
    return prompt.plain[last.stop :], same[:number][-1] if same else 0


def _find_start(
    header: str, text: str, before: int, first: int | None, control: re.Pattern[str]
) -> int | None:
    """Return where an answer begins that is not begun here as the prompt for it asks.

    That is, for instance, without its thoughts or with an empty one: at the last place where
    a word or mark ends, and up to which stands the header, or an end of the header.

    Args:
        header: the end of that prompt, behind what was said last.
        text: the conversation up to the answer's own words, or else those of others.
        before: where what was said last ends in it.
        first: where the answer's own words begin, if there are any.
        control: control tokens.
    """
    border = re.compile(rf"\n|</?\w+>|{control.pattern}")
    begun = [0, *(mark.start() for mark in border.finditer(header))]
    borders = list(border.finditer(text, before))
    aligned = [(header, before)]
    aligned += [(header[a:], mark.start()) for a in begun for mark in borders]
    longest, at = max((_agree(end, text[place:]), place) for end, place in aligned)
    places = [place for mark in borders for place in mark.span()]
    places += [] if first is None else [first]
    return max((place for place in places if at < place <= at + longest), default=first)


def _find_end(
    text: str,
    last: int,
    rest: str,
    tokens: tuple[re.Pattern[str], re.Pattern[str]],
    spare: int,
) -> int:
    """Return where a turn ends.

    Args:
        text: the conversation up to the words of others.
        last: where the turn's own words end.
        rest: what follows these where the conversation ends with the turn.
        tokens: those that end a turn, and all control tokens.
        spare: how many control tokens that follow, unlike those in `rest`, are no end.
    """
    ends, control = tokens
    end = ends.search(text, last)
    if end:
        return end.end()
    agreed = last + _agree(rest, text[last:])
    found = [token.end() for token in control.finditer(text, last)]
    within = [end for end in found if end <= agreed]
    following = found[len(within) :][: 1 if len(found) - len(within) > spare else 0]
    if agreed < last + len(rest):  # it ends in another way there
        return [last, *following, *within][-1]
    stop = last + len(rest.rstrip())
    follows = control.match(text, stop + len(text[stop:]) - len(text[stop:].lstrip()))
    return follows.end() if follows and following and not within else stop


def _agree(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return how long two strings, or lists, are the same."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
