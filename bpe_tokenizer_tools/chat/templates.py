"""Chat templates: from a conversation to text that knows who wrote it.

A template is one of the built-in ones, Jinja, or a function of the caller's.  Each is
given the conversation as `Marked` text and gives `Marked` text back.  In the template's
own text control tokens count; in what people wrote they are characters like any other.
So a user who types "<|im_end|>" ends nothing.

For clean contents, text and ids are those of HuggingFace's ``apply_chat_template``
(huggingface.co/docs/transformers/chat_templating).
"""

from __future__ import annotations

import bisect
import copy
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.chat import jinja_version
from bpe_tokenizer_tools.chat.budget import ExceededError
from bpe_tokenizer_tools.chat.marked_text import TEMPLATE, UNKNOWN, Marked, Origin, concat
from bpe_tokenizer_tools.support.text import shared_length

if TYPE_CHECKING:
    from bpe_tokenizer_tools.chat.beginnings import Beginnings
    from bpe_tokenizer_tools.chat.locality import Locality

Message = Mapping[str, Any]
Template = Callable[..., Marked]  # (messages, add_generation_prompt, **variables)
Span = tuple[int, int]

_MANY_MESSAGES = 300  # from here on, templates that search take long unless they are watched
_WHO = (None, "role", "name")  # the fields that say who wrote
_SAID = ("content", *core.THOUGHTS)  # the fields of a message with its text


# -- From messages to marked text ----------------------------------------------


def _marked(value: Any, origin: Origin) -> Any:
    """Copy plain data, with every string marked."""
    return core.copy_data(value, lambda text: Marked(text, origin))


def as_given_message(i: int, message: Message) -> dict[str, Any]:
    """Mark the strings of a message; a role that templates know is as good as their own text."""
    is_answer = message["role"] in core.ASSISTANTS
    given = {
        key: _marked(value, Origin(i, key, answer=is_answer and key in _SAID))
        for key, value in message.items()
    }
    if message["role"] in core.CHAT_ROLES:
        given["role"] = Marked(str.__str__(message["role"]), TEMPLATE)
    return core.with_thoughts(given)


def _from_segments(
    template: Any, messages: list[dict[str, Any]], add_generation_prompt: bool, /, **variables: Any
) -> Marked:
    """Render with a built-in template, by its name, or with a function of the caller's.

    Built-in templates return marked text; text from other templates is marked here.
    """
    segments = core.segments_with(template, messages, add_generation_prompt, variables)
    return concat(Marked(text, TEMPLATE if trusted else UNKNOWN) for text, trusted in segments)


_QUESTION = {"role": "user", "content": "question"}


# -- Rendering -----------------------------------------------------------------


def _resolve(source: Any) -> Template:
    """Return what renders: a built-in template, Jinja source or a function."""
    if source in core.BUILT_IN or callable(source):
        return functools.partial(_from_segments, source)
    core.import_optional("jinja2", "a Jinja chat template", "jinja2")
    from bpe_tokenizer_tools.chat import jinja

    return functools.partial(jinja.render, source)


class Renderer:
    """A template with all of its arguments except the messages.

    The variables are tools, documents and others that the template knows; also ``content_tokens``,
    as for `BPETokenizer.apply_chat_template`, and ``chat_template``, another name of `template`.
    """

    def __init__(
        self, template: Any, tokenizer: BPETokenizer, variables: Mapping[str, Any]
    ) -> None:
        from bpe_tokenizer_tools.chat.tool_schemas import schemas

        self.tokenizer = tokenizer
        template, self.content_tokens, given = core.take_variables(template, variables)
        self._is_default = template is None
        tools = given.get("tools")
        given["tools"] = None if tools is None else schemas(tools)
        self.role_tokens = tuple(core.token_variables(tokenizer).items())
        self._variables = {
            **{name: Marked(token, TEMPLATE) for name, token in self.role_tokens},
            **{name: _marked(value, Origin(None, name)) for name, value in given.items()},
        }
        self._source = core.select_template(template, tokenizer, given["tools"])
        self._template = _resolve(self._source)

    @property
    def jinja_source(self) -> str | None:
        """The template, if it is Jinja."""
        made = getattr(self._template, "args", ())
        source = made[0] if made else None
        return source if isinstance(source, str) and source not in core.BUILT_IN else None

    def reads(self, name: str) -> bool:
        """Return whether the template reads a variable of that name."""
        if callable(self._source):
            try:
                found = inspect.signature(self._source).parameters.values()
            except ValueError:  # of a function in C
                return True
            return any(each.name == name or each.kind is each.VAR_KEYWORD for each in found)
        if self.jinja_source is None:
            return name in core.BUILT_IN_OPTIONS.get(self._source, ())
        from bpe_tokenizer_tools.chat import jinja

        return name in jinja.variables(self.jinja_source)

    def __call__(self, messages: Sequence[Message], add_generation_prompt: bool = False) -> Marked:
        """Render messages as `check_messages` gives them."""
        if len(messages) >= _MANY_MESSAGES and self._searches:
            beginnings = self.beginnings(messages)
            whole = beginnings.whole(add_generation_prompt) if beginnings is not None else None
            if whole is not None:
                return whole
        given = [as_given_message(i, message) for i, message in enumerate(messages)]
        return self.render_marked(given, add_generation_prompt)

    def given(self, change: Callable[[list[dict[str, Any]]], Any]) -> Renderer:
        """Return a renderer whose template is given messages as a function changes them."""
        made = copy.copy(self)
        made._template = lambda messages, *rest, **more: self._template(
            change(messages), *rest, **more
        )
        return made

    def render_marked(self, messages: list[dict[str, Any]], add_generation_prompt: bool) -> Marked:
        """Render messages as `as_given_message` gives them."""
        return self._template(messages, add_generation_prompt, **self._variables)

    def beginnings(self, messages: Sequence[Message]) -> Beginnings | None:
        """Return what renders the beginnings of a conversation; None if the whole must be."""
        if self.jinja_source is None:
            return None
        from bpe_tokenizer_tools.chat import jinja
        from bpe_tokenizer_tools.chat.beginnings import Beginnings

        given = [as_given_message(i, message) for i, message in enumerate(messages)]
        render = functools.partial(jinja.parts, self.jinja_source)
        return Beginnings(functools.partial(render, **self._variables), given, _last_message)

    @property
    def _searches(self) -> bool:
        """Whether a rendering takes quadratic time unless its loops are watched."""
        if self.jinja_source is None:
            return False
        from bpe_tokenizer_tools.chat import jinja

        return jinja.searches(self.jinja_source)

    @property
    def locality(self) -> Locality | None:
        """How far the template looks; None if it may look at all messages."""
        if self.jinja_source is None and self._source not in core.BUILT_IN:
            return None
        if self._source == "alpaca" and not self._variables.get("all_turns"):
            return None  # it leaves out all turns before the last instruction
        if not jinja_version.is_usable():  # built-in templates do not need it
            return None
        from bpe_tokenizer_tools.chat import locality

        return locality.find(self.jinja_source) if self.jinja_source else locality.Locality(heads=1)

    @property
    def marks_generation(self) -> bool:
        """Whether the template has the tag {% generation %}, around the assistant's text."""
        if self.jinja_source is None:
            return False
        from bpe_tokenizer_tools.chat import jinja

        return jinja.has_generation(self.jinja_source)

    def check(self, text: Marked) -> None:
        """Raise ValueError for control tokens that the template wrote and that aren't tokens."""
        segments = ((part, origin.trusted) for part, origin in text.runs())
        core.check_written(self.tokenizer, self._source, segments, self._is_default)


def check_variables(
    caller: str,
    given: Mapping[str, Any],
    known: Collection[str],
    template: Any,
    tokenizer: BPETokenizer,
) -> None:
    """Raise TypeError for options that are neither known nor variables of the template."""
    core.without_sanitizing(given)
    if all(name in known for name in given):
        return  # the template need not be looked at
    chosen = {name: given[name] for name in ("tools", "chat_template") if name in given}
    render = Renderer(template, tokenizer, chosen)
    core.check_options(caller, given, known, render.reads)


def end_of_turn(render: Renderer, control: Iterable[str]) -> str | None:
    """Return the control token that a template puts after the assistant's text."""
    turn = [_QUESTION, {"role": "assistant", "content": "answer"}]
    try:
        whole, longer = render(turn).plain, render([*turn, _QUESTION]).plain
    except ValueError:
        return None
    tokens = core.one_of(control)
    at_end = whole[whole.rfind("answer") :]
    between = longer[longer.rfind("answer") : longer.rfind("question")]
    # What both have; some templates add more at the end, and even the header of a next turn.
    both = tokens.findall(at_end[: shared_length(at_end, between)])
    opening = re.match(rf"(?:\s|{tokens.pattern})*", whole)
    headers = set(tokens.findall(opening[0] if opening else ""))
    found = [token for token in both if token not in headers][-1:] or both[-1:]
    found = found or tokens.findall(at_end)[-1:] or tokens.findall(between)[:1]
    return found[0] if found else None


# -- What the assistant wrote --------------------------------------------------


def assistant_spans(
    render: Renderer, messages: Sequence[Message], text: Marked, tokenizer: BPETokenizer
) -> list[Span]:
    """Find the text that a model generated, or should learn to, in a rendered conversation.

    That is, for each message of the assistant, all between the end of the prompt for it and
    the end of its turn, this included: its content and tool calls as the template wrote them.
    If the template marks it with {% generation %}, only those marks count.

    Returns:
        (start, end) characters of `text`.
    """
    layout = _Layout(text)
    if render.marks_generation:
        return layout.spans(lambda origin: origin.generated, (0, len(text)))
    control = set(tokenizer.special_tokens)
    ends = control.intersection((tokenizer.eos_token, end_of_turn(render, control)))
    tokens = (core.one_of(ends), core.one_of(control))
    prefixes = _Prefixes(render, messages)
    spans: list[Span] = []
    for i, message in enumerate(messages):
        if message["role"] not in core.ASSISTANTS:
            continue
        for inside in _turn(prefixes, i, layout, tokens):
            spans += layout.spans(lambda origin: origin.message in (None, i), inside)  # noqa: B023
    return spans


class _Piece(NamedTuple):
    """The place in a text of something that a message says."""

    start: int
    stop: int
    message: int
    field: str


def _pieces(text: Marked) -> list[_Piece]:
    """Return the places of messages in a text; an empty one has a place, too."""
    found: list[_Piece] = []
    at = 0
    for part, origin in text.runs():
        if origin.message is not None and origin.field not in _WHO:
            found.append(_Piece(at, at + len(part), origin.message, str(origin.field)))
        at += len(part)
    full = {piece.message for piece in found if piece.start < piece.stop}
    return [piece for piece in found if piece.start < piece.stop or piece.message not in full]


def _last_message(text: Marked) -> int:
    """Return the last message that says something in a text; -1 if none does."""
    for length, origin in reversed(text._runs):
        if origin.message is not None and origin.field not in _WHO:
            if length:
                return origin.message
            break  # what is empty counts only if its message says nothing else
    return next((piece.message for piece in _pieces(text)[::-1]), -1)


def message_ends(text: Marked, n: int) -> list[int]:
    """Return for each of n messages where the last of its words stand; they never go back."""
    ends = [0] * n
    for piece in _pieces(text):
        ends[piece.message] = piece.stop
    return list(itertools.accumulate(ends, max))


def message_starts(text: Marked, n: int) -> list[int]:
    """Return for each of n messages where the first words of it and all that follow stand."""
    starts = [len(text)] * n
    for piece in _pieces(text)[::-1]:
        starts[piece.message] = piece.start
    return list(itertools.accumulate(starts[::-1], min))[::-1]


class _Layout:
    """A rendered conversation, and the places of its parts."""

    def __init__(self, text: Marked) -> None:
        self.plain, self.pieces = text.plain, _pieces(text)
        self.ends = _ends(self.pieces)
        self._runs = list(text.runs())
        self._stops = list(itertools.accumulate(len(part) for part, _ in self._runs))
        self._starts = [piece.start for piece in self.pieces]
        self._of_message: dict[int, list[int]] = {}
        for place, piece in enumerate(self.pieces):
            self._of_message.setdefault(piece.message, []).append(place)

    def spans(self, wanted: Callable[[Origin], bool], inside: Span) -> list[Span]:
        """Return the text inside of a span whose origin is wanted."""
        spans: list[Span] = []
        for place in range(bisect.bisect_right(self._stops, inside[0]), len(self._runs)):
            part, origin = self._runs[place]
            stop = self._stops[place]
            begin, end = max(stop - len(part), inside[0]), min(stop, inside[1])
            if begin < end and wanted(origin):
                if spans and spans[-1][1] == begin:
                    begin = spans.pop()[0]
                spans.append((begin, end))
            if stop >= inside[1]:
                break
        return spans

    def near(self, message: int, start: int) -> list[_Piece]:
        """Return the pieces from a place on, up to the one that follows the last of a message."""
        first = bisect.bisect_left(self._starts, start)
        last = self._of_message.get(message, [0])[-1]
        return self.pieces[first : max(first, last + 1) + 1]

    def following(self, start: int, without: Sequence[_Piece]) -> list[_Piece]:
        """Return the first piece from a place on that is not among some."""
        at = bisect.bisect_left(self._starts, start)
        rest = (self.pieces[place] for place in range(at, len(self.pieces)))
        return list(itertools.islice((piece for piece in rest if piece not in without), 1))


def _ends(pieces: Iterable[_Piece]) -> dict[tuple[int, str], list[int]]:
    """Return where the pieces of each message and field end."""
    ends: dict[tuple[int, str], list[int]] = {}
    for piece in pieces:
        ends.setdefault(piece[2:], []).append(piece.stop)
    return ends


class _Prefixes:
    """Renders the conversation up to each answer.

    Where the template is local, messages in the middle are left out: the ends of the texts are
    the same, which is all that is looked at.
    """

    def __init__(self, render: Renderer, messages: Sequence[Message]) -> None:
        self._render, self._messages = render, messages
        self._roles = [message["role"] for message in messages]
        self._locality = render.locality
        self._beginnings = render.beginnings(messages)

    def __len__(self) -> int:
        return len(self._messages)

    def texts(self, i: int) -> tuple[Marked, Marked]:
        """Return the prompt for message i, and the conversation that ends with it."""
        if self._beginnings is not None:
            texts = self._beginnings.texts(i)
            if texts is not None:
                return texts
            self._beginnings = None
        start = self._start(i)
        if start is not None and self._locality is not None:
            kept = [*range(self._locality.first), *range(start, i)]
            prompt, alone = self._part(kept, True), self._part([*kept, i], False)
            asked = _pieces(prompt)
            if alone and asked and asked[-1].message >= start + 2 * self._locality.reach:
                return prompt, alone
        whole = range(i + 1)
        return self._part(whole[:i], True), self._part(whole, False)

    def _start(self, i: int) -> int | None:
        """Return where the messages to render begin behind the first ones, if not all are."""
        if self._locality is None:
            return None
        first, period = self._locality.first, self._locality.period
        last = i - 2 * self._locality.reach - 4
        starts = [s for s in range(last, max(first, last - 64), -1) if (s - first) % period == 0]
        # Some templates refuse a role that follows another one; then all are rendered.
        alike = (start for start in starts if self._roles[start] == self._roles[first])
        return next(alike, starts[0] if starts else None)

    def _part(self, kept: Sequence[int], prompt: bool) -> Marked:
        given = [as_given_message(i, self._messages[i]) for i in kept]
        return _if_possible(self._render.render_marked, given, prompt)


def _if_possible(render: Callable[..., Marked], messages: Any, prompt: bool) -> Marked:
    """Render messages; to nothing, if the template refuses them."""
    try:
        return render(messages, prompt)
    except ExceededError:  # not because of these messages
        raise
    except (ValueError, LookupError):
        return Marked("", TEMPLATE)


def _turn(
    prefixes: _Prefixes, i: int, layout: _Layout, tokens: tuple[re.Pattern[str], re.Pattern[str]]
) -> list[Span]:
    """Return the place of an assistant's turn, in several parts if others are between."""
    text = layout.plain
    prompt, alone = prefixes.texts(i)
    said = _pieces(alone)
    _, asked = _header(prompt, _ends(said))
    said = [piece for piece in said if piece.message == i and piece.start >= asked]
    header, before = _header(prompt, layout.ends)
    pieces = layout.near(i, before)
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
        start = _find_start(header, text, (before, limit), first, tokens[1])
    if start is None:
        return []
    # One of the control tokens after a last answer may be the header of another turn.
    spare = len(text) if not own else int(i == len(prefixes) - 1)
    if not own:  # nothing is said, at its place
        own = [_Piece(start, start, i, "")]
        pieces = own + layout.following(max(start, before), repeated)
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
        until = following[0].start if following else len(text)
        end = _find_end(text, (last.stop, until), rest, tokens, spare)
        parts.append((group[0].start if parts else start, end))
    return parts


def _header(prompt: Marked, ends: Mapping[tuple[int, str], Sequence[int]]) -> tuple[str, int]:
    """Return how a prompt goes on behind what was said last, and where that ends in a text.

    `ends` says where the pieces of the text end.
    """
    asked = _pieces(prompt)
    if not asked:
        return prompt.plain, 0
    last = asked[-1]
    same = ends.get(last[2:], ())
    number = sum(piece[2:] == last[2:] for piece in asked)
    return prompt.plain[last.stop :], same[:number][-1] if same else 0


def _find_start(
    header: str, text: str, inside: Span, first: int | None, control: re.Pattern[str]
) -> int | None:
    """Return where an answer begins if the text there differs from the prompt for it.

    It may lack the thoughts that the prompt begins, for instance, or have empty ones.  The answer
    begins at the last place where a word or mark ends, and where the text before is the header, or
    the header's end.

    `header` is the end of the prompt, after the last message.  `inside` reaches from there, in the
    text, to the answer's own words, or else to the next message's; the answer's own words begin at
    `first`, if there are any.
    """
    border = re.compile(rf"\n|</?\w+>|{control.pattern}")
    begun = [0, *(mark.start() for mark in border.finditer(header))]
    before, limit = inside
    borders = list(border.finditer(text, before, limit))
    aligned = [(header, before)]
    aligned += [(header[a:], mark.start()) for a in begun for mark in borders]
    longest, at = max(
        (shared_length(end, text[place : min(place + len(end), limit)]), place)
        for end, place in aligned
    )
    places = [place for mark in borders for place in mark.span()]
    places += [] if first is None else [first]
    return max((place for place in places if at < place <= at + longest), default=first)


_SPACE = re.compile(r"\s*")


def _find_end(
    text: str, inside: Span, rest: str, tokens: tuple[re.Pattern[str], re.Pattern[str]], spare: int
) -> int:
    """Return where a turn ends.

    `inside` reaches from the end of the turn's own words to those of the next turn.  `rest` is the
    text after its own words if the conversation ends with this turn.  `tokens` match those that end
    a turn, and all control tokens.  Of those that aren't in `rest`, the first belongs to the turn
    if there are more than `spare`, which begin the next turn.
    """
    ends, control = tokens
    last, until = inside
    end = ends.search(text, last, until)
    if end:
        return end.end()
    agreed = last + shared_length(rest, text[last : min(last + len(rest), until)])
    found = [token.end() for token in control.finditer(text, last, until)]
    within = [end for end in found if end <= agreed]
    following = found[len(within) :][: 1 if len(found) - len(within) > spare else 0]
    if agreed < last + len(rest):  # it ends in another way there
        return [last, *following, *within][-1]
    stop = last + len(rest.rstrip())
    space = _SPACE.match(text, stop, until)
    follows = control.match(text, space.end() if space else stop, until)
    return follows.end() if follows and following and not within else stop
