"""A conversation that grows: its messages, and the ids a model has seen of it.

A model's output is kept as generated: tokens in, tokens out.  Encoding its text again can
give other ids; then a model's cache is lost, and training learns something other than was
sampled.  So each new message adds ids after the old ones.

Some templates render earlier turns differently later: they drop old thoughts, for instance.
Then the new ids no longer begin with the old ones.  `Conversation.rewrites` records this, and
everything is encoded again.

A model that thinks before it speaks generates both, with marks between them.  If the
template has a place for thoughts, an answer is read as the template would have written it:
`_Thoughts`.

>>> from bpe_tokenizer import BPETokenizer
>>> tokenizer = BPETokenizer()
>>> added = tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
>>> talk = Conversation(tokenizer, "chatml")
>>> talk.add("user", "Hi")
>>> prompt = talk.prompt()
>>> talk.answer([*tokenizer.encode("Hello"), tokenizer.special_tokens["<|im_end|>"]])
'Hello'
>>> talk.add("user", "Bye")
>>> talk.prompt()[: len(prompt)] == prompt
True
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.chat import encoding, templates
from bpe_tokenizer_tools.chat.apply_template import continued
from bpe_tokenizer_tools.chat.arguments import parsed_if_needed
from bpe_tokenizer_tools.chat.marked_text import Marked
from bpe_tokenizer_tools.support.text import shared_length

if TYPE_CHECKING:
    from bpe_tokenizer_tools.prompts.healing import CoveringTree


class Turn(NamedTuple):
    """The number of tokens of a message, with the template's text before it."""

    role: str
    tokens: int


class Rewrite(NamedTuple):
    """Where a template rendered earlier turns differently than before."""

    before: str  # the old text, from the first difference
    after: str  # the new text from there
    kept: int  # how many of the old ids still begin the new ones


class Drift(NamedTuple):
    """Where the ids of a conversation are not those that encoding its text again gives."""

    message: int  # index in `messages`; their number for the next answer
    start: int  # in `ids`: those from here...
    end: int  # ...to here differ...
    encoded: list[int]  # ...from these


class _State(NamedTuple):
    """What a model has seen."""

    ids: tuple[int, ...] = ()  # all ids, including the last answer's
    turns: tuple[Turn, ...] = ()  # see `Conversation`
    text: str = ""  # the text of the ids, except those of the last answer
    lead: str = ""  # the end of a healed prompt after that, which the answer's ids spell
    # the ids generated after that; None if there are none yet
    answer: tuple[int, ...] | None = None
    counted: int = 0  # how many messages are in `text`

    @property
    def n_messages(self) -> int:
        """How many messages the ids cover."""
        return self.counted + (self.answer is not None)

    def shortened(self) -> _State:
        """Return the state without the last id."""
        last = self.turns[-1]
        turns = (*self.turns[:-1], last._replace(tokens=last.tokens - 1))
        return self._replace(ids=self.ids[:-1], turns=turns)


class _Thoughts(NamedTuple):
    """How a template writes a thought, and the answer after it."""

    opening: str  # the text before a thought; "" where the prompt for an answer ends with it
    closing: str  # the text between a thought and the answer
    control: re.Pattern[str]  # finds control tokens
    is_open: bool  # whether an answer begins with a thought, because the prompt opens it

    @classmethod
    def of(cls, render: templates.Renderer, control: Iterable[str]) -> _Thoughts | None:
        """Learn this from a rendered example; None if it shows no thoughts."""
        asked = {"role": "user", "content": "question"}
        answer = {"role": "assistant", "content": "answer", "reasoning_content": "thought"}
        try:
            prompt, text = render([asked], True).plain, render([asked, answer])
        except ValueError:
            return None
        places: dict[str | None, tuple[int, int]] = {}
        at = 0
        for part, origin in text.runs():
            if part and origin.message == 1:
                places.setdefault(origin.field, (at, at + len(part)))
            at += len(part)
        whole = text.plain
        first, last = places.get("reasoning_content", (at, at))
        closing = whole[last : places.get("content", (at, at))[0]]
        if not closing.strip():
            return None
        start = min(shared_length(prompt, whole), first)
        pattern = core.one_of(control)
        return cls(whole[start:first], closing, pattern, start == len(prompt))

    def split(self, text: str) -> tuple[str, str]:
        """Return the text of an answer, and the thoughts before it."""
        mark = self.closing.strip()
        end = self.control.match(mark)
        if end and end[0] != mark:
            return self._split_messages(text, mark)
        opening, (before, _, after) = self.opening.strip(), self.closing.partition(mark)
        thought, found, said = text.partition(mark)
        if opening:
            is_thought = thought.lstrip().startswith(opening)
            thought = thought.lstrip()[len(opening) :]
        else:
            is_thought = bool(found) or self.is_open
        if not is_thought:
            return text, ""
        thought = thought.removeprefix(self.opening[len(self.opening.rstrip()) :])
        return said.removeprefix(after), thought.removesuffix(before)

    def _split_messages(self, text: str, mark: str) -> tuple[str, str]:
        """Split an answer of several messages, each with a header and an end of control tokens."""
        opening = self.opening.strip()
        head, found, said = text.partition(mark)
        begun = head.split(opening)[1:] if opening else [head] * self.is_open
        thoughts = [self.control.split(each) for each in begun]
        if found:
            said = self.control.split(said)[0]
        elif thoughts and len(thoughts[-1]) == 1:  # the last thought did not end
            said = ""
        else:
            said = self.control.split(text)[-1]
        return said, "\n".join(each[0] for each in thoughts)


def _continued_by(message: dict[str, Any], state: _State, said: str) -> dict[str, Any]:
    """Return a message whose text continues from the end of a prompt."""
    content = message["content"]
    parts = [{"text": content}] if isinstance(content, str) else list(content)
    at = max(i for i, part in enumerate(parts) if isinstance(part, Mapping) and "text" in part)
    begun = str(parts[at]["text"])
    if not (state.text + state.lead).endswith(begun):  # the template strips it
        begun = begun.rstrip()
    part = {**parts[at], "text": begun + said}
    if isinstance(content, str):
        return {**message, "content": part["text"]}
    return {**message, "content": [*parts[:at], part, *parts[at + 1 :]]}


class Conversation:
    """Messages, and the ids of them as they were sent and generated.

    Args:
        tokenizer: the model's.
        template: as for `BPETokenizer.apply_chat_template`.
        system_prompt: the first message, if it is not empty.  Until there is a prompt,
            adding a system message replaces it.
        variables: of the template, such as ``tools`` and ``documents``.

    Attributes:
        messages: the conversation so far.
        rewrites: each time that the template rendered earlier turns differently.
    """

    def __init__(
        self,
        tokenizer: BPETokenizer,
        template: Any = None,
        system_prompt: str | None = None,
        **variables: Any,
    ) -> None:
        self.tokenizer = tokenizer
        self.messages: list[dict[str, Any]] = core.check_messages([], system_prompt)
        self._default = next(iter(self.messages), None)
        self.rewrites: list[Rewrite] = []
        variables = core.with_all_turns(tokenizer, template, variables)
        self._render = templates.Renderer(template, tokenizer, variables)
        self._state = _State()
        self._past: list[_State] = []  # before each prompt

    @property
    def ids(self) -> list[int]:
        """The ids that a model has seen or generated, as they were.

        They are those of the last `prompt`, and those of the `answer` to it, if there is
        one, including its stop token, whatever that is.
        """
        return list(self._state.ids)

    @property
    def turns(self) -> list[Turn]:
        """The number of tokens of each message; they add up to the number of `ids`.

        The last one is for the answer, whether it is complete or still to come.
        """
        return list(self._state.turns)

    @property
    def drifts(self) -> list[Drift]:
        """Where `ids` are not those of their text, in each stretch between control tokens.

        A model may sample other tokens than `encode` gives for its answer.  `ids` keep them;
        rendering the messages and encoding them again gives others: docs/canonical.md.
        """
        from bpe_tokenizer_tools.prompts.canonical import differences  # rarely used

        ends = [*itertools.accumulate(turn.tokens for turn in self._state.turns)]
        return [
            Drift(bisect.bisect_right(ends, start), start, end, encoded)
            for start, end, encoded in differences(self.tokenizer, self.ids)
        ]

    @property
    def end_of_turn(self) -> str | None:
        """The control token that the template puts after an answer."""
        return templates.end_of_turn(self._render, self.tokenizer.special_tokens)

    def check_template(self) -> None:
        """Check, on an example, that the control tokens of the template are tokens."""
        example = templates._if_possible(self._render, [templates._QUESTION], True)
        self._render.check(example)

    # -- Messages ---

    def add(self, role: str, content: Any = None, **fields: Any) -> None:
        """Append a message."""
        self.extend([{"role": role, "content": content, **fields}])

    def extend(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Append messages, each {"role": ..., "content": ...}."""
        checked = core.check_messages(messages)
        has_system = any(message["role"] in core.SYSTEM_ROLES for message in checked)
        if not self._state.ids and has_system:
            self.messages[:] = [each for each in self.messages if each is not self._default]
        self.messages += checked

    def undo(self) -> list[dict[str, Any]]:
        """Remove the last user message and everything after it; return them."""
        users = [i for i, message in enumerate(self.messages) if message["role"] == "user"]
        start = users[-1] if users else len(self.messages)
        taken = self.messages[start:]
        del self.messages[start:]
        while self._state.n_messages > start and self._past:
            self._state = self._past.pop()
        return taken

    def reset(self) -> None:
        """Remove everything but the system prompt."""
        self.messages = [message for message in self.messages[:1] if message["role"] == "system"]
        self._state, self._past = _State(), []

    # -- Ids ---

    def prompt(self, continue_final_message: bool = False) -> list[int]:
        """Return the ids for a model to answer.

        They begin with `ids` as they were, with one exception: if the last answer ended with a
        stop token that the template doesn't write there, what the template writes replaces it.
        If the template renders earlier turns differently, everything is encoded again, and
        `rewrites` grows.  A prompt that was not answered is forgotten.

        Args:
            continue_final_message: end within the assistant's last message, which the `answer`
                continues.

        Raises:
            ValueError: the template refuses this conversation, or it has nothing to continue.
        """
        n = len(self.messages) - bool(continue_final_message)
        make = self._begun if continue_final_message else self._asking
        text = parsed_if_needed(self._render.jinja_source, self.messages, make)
        self.forget_prompt()
        state = self._state
        self._past.append(state)
        known = self._find_end(state, text.plain)
        if known is None:
            self._state = self._extended(_State(), text, 0, n)
            self._tell_rewrite(state, text.plain)
        else:
            end, is_kept = known
            self._state = self._extended(state if is_kept else state.shortened(), text, end, n)
        return self.ids

    def _asking(self, messages: Sequence[Mapping[str, Any]]) -> Marked:
        """Render with the prompt for an answer."""
        return self._render(messages, True)

    def _begun(self, messages: Sequence[Mapping[str, Any]]) -> Marked:
        """Render up to the end of the last message, the assistant's."""
        role = messages[-1]["role"] if messages else None
        if role != "assistant":
            got = f"the last one has the role {role!r}" if role else "there is none"
            raise ValueError(f"continue_final_message continues an assistant's message, but {got}")
        return continued(self._render, messages, "content")

    def heal(self) -> CoveringTree:
        """Remove the ids at the end of the prompt that a longer text might not have.

        The ids of the `answer` then begin with ids that spell this end again.

        Returns:
            The ways to spell it, as `bpe_tokenizer_tools.prompts.covering_tree` returns them.

        Raises:
            RuntimeError: there is no prompt, or it is already answered.
            ValueError: the tokenizer can't be healed.
        """
        from bpe_tokenizer_tools.prompts import completing, healing  # rarely used

        state = self._asked()
        tree = completing.heal_ids(self.tokenizer, list(state.ids))
        tree = completing.from_a_character(self.tokenizer, tree)
        text, lead = state.text, tree.prefix.decode()
        if not text.endswith(lead):
            text = core.normalize(text, self.tokenizer.normalizer)
        if not text.endswith(lead):  # for example, the tokenizer puts a space before it
            return healing.CoveringTree(self.ids, b"", {})
        text = text.removesuffix(lead)
        turns, left = list[Turn](), len(tree.ids)
        for turn in state.turns:
            turns.append(turn._replace(tokens=min(turn.tokens, left)))
            left -= turns[-1].tokens
        self._state = state._replace(ids=tuple(tree.ids), turns=tuple(turns), text=text, lead=lead)
        return tree

    def _asked(self) -> _State:
        if not self._past or self._state.answer is not None:
            raise RuntimeError("an answer needs a prompt: call prompt() first")
        return self._state

    def forget_prompt(self) -> None:
        """Drop a prompt that was not answered; its messages stay."""
        if self._past and self._state.answer is None:
            self._state = self._past.pop()

    def _find_end(self, state: _State, text: str) -> tuple[int, bool] | None:
        """Return how much of a text the ids cover, with or without the last one.

        None if the text differs.  White space around an answer may be missing, because
        templates strip it.  The last id may be a stop token that isn't the template's.
        """
        said, stop = self._said(state.answer or ())
        before = state.text + (state.lead if said else "")
        said = said.removeprefix(state.lead)
        for known in dict.fromkeys((said, said.rstrip(), said.lstrip(), said.strip())):
            end = len(before) + len(known)
            if text.startswith(before + known):
                if stop and text.startswith(stop, end):
                    return end + len(stop), True
                return end, not stop
        return None

    def _said(self, ids: Sequence[int]) -> tuple[str, str]:
        """Return the text of generated ids, and the control token at their end."""
        control = set(self.tokenizer.special_tokens.values())
        n = len(ids) - (ids[-1] in control if ids else 0)
        return self.tokenizer.decode(ids[:n]), self.tokenizer.decode(ids[n:])

    def _extended(self, state: _State, text: Marked, start: int, n: int) -> _State:
        """Append the ids of a text, from a place on, to a state's, and count them.

        The text has `n` whole messages, and then the header or the beginning of an answer.
        """
        self._render.check(text)
        ids, offsets = encoding.encode(self._render, text, start=start)
        ends = templates.message_ends(text, len(self.messages))
        new = self.messages[state.n_messages : n]
        counts = [0] * (len(new) + 1)
        at = 0
        for place, _ in offsets:
            while at < len(new) and ends[state.n_messages + at] <= start + place:
                at += 1
            counts[at] += 1
        roles = [*(str(message["role"]) for message in new), "assistant"]
        turns = list(state.turns)
        if state.n_messages > n:  # the model's own last answer is continued
            counts[0] += turns.pop().tokens
        return _State(
            ids=state.ids + tuple(ids),
            turns=(*turns, *map(Turn, roles, counts)),
            text=text.plain,
            counted=n,
        )

    def _tell_rewrite(self, old: _State, text: str) -> None:
        before = old.text + self.tokenizer.decode(old.answer or ())
        at = shared_length(before, text)
        kept = shared_length(old.ids, self._state.ids)
        self.rewrites.append(Rewrite(before[at:], text[at:], kept))

    def answer(
        self, ids: Iterable[int], content: str | None = None, rest: str = "", **fields: Any
    ) -> str:
        """Add the ids that a model generated after `prompt`, including its stop token.

        Their text becomes the message's content.  Thoughts before it become its
        ``reasoning_content``, if the template has a place for them.  If the template writes an
        answer as several messages with headers of control tokens, the content is the text after
        the thoughts, or else after the last control token.  `ids` keep everything.

        `content` replaces the text of the ids, which leaves out the control token at their end.
        `rest` is text after the ids: if an answer is cut off within a token, that token's
        beginning.  Other fields of the message, such as ``tool_calls``, are keywords.

        Returns:
            The content.

        Raises:
            RuntimeError: there is no prompt, or it is already answered.
        """
        state = self._asked()
        new = tuple(ids)
        text = self.tokenizer.decode(new) + rest if rest else self._said(new)[0]
        text = text.removeprefix(state.lead)
        if not self.tokenizer.decode(new).startswith(state.lead):
            new = ()  # they end before the end of the prompt
        if state.counted < len(self.messages):
            said = text if content is None else content
            self.messages[-1] = {**_continued_by(self.messages[-1], state, said), **fields}
        else:
            said = self._add_answer(text, content, fields)
        last = state.turns[-1]
        turn = last._replace(tokens=last.tokens + len(new))
        self._state = state._replace(
            ids=state.ids + new, turns=(*state.turns[:-1], turn), answer=new
        )
        return said

    def _add_answer(self, text: str, content: str | None, fields: dict[str, Any]) -> str:
        said, thoughts = self._thoughts.split(text) if self._thoughts else (text, "")
        said = said if content is None else content
        message = {"role": "assistant", "content": said, **fields}
        if thoughts and not set(core.THOUGHTS) & set(fields):
            message["reasoning_content"] = thoughts
        self.messages.append(message)
        return said

    @functools.cached_property
    def _thoughts(self) -> _Thoughts | None:
        return _Thoughts.of(self._render, self.tokenizer.special_tokens)
