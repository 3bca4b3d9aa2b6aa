"""A conversation that grows: its messages, and the ids a model has seen of it.

What a model generated is kept as it was generated: token in, token out.  Encoding its
text again can give other ids, with which a model's cache is lost and training learns
something else than was sampled.  So each new message adds ids behind the old ones.

Some templates write the past in another way once it is past: they drop old thoughts, for
instance.  Then the old ids are no beginning of the new ones any more.  This is told, by
`Conversation.rewrites`, and all is encoded anew.

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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import chat_templates
from bpe_tokenizer_tools.marked_text import Marked


class Turn(NamedTuple):
    """How many tokens a message takes, with what the template writes before it."""

    role: str
    tokens: int


class Rewrite(NamedTuple):
    """Where a template wrote the past in another way than before.

    Attributes:
        before: the past as it was, from the first difference on.
        after: as it is now.
        kept: how many of the old ids are still the beginning of the new ones.
    """

    before: str
    after: str
    kept: int


class Conversation:
    """Messages, and the ids of them as they were sent and generated.

    Args:
        tokenizer: the model's.
        template: as for `BPETokenizer.apply_chat_template`.
        system_prompt: the first message, if any.
        variables: of the template, ``tools`` and ``documents`` among them.

    Attributes:
        messages: the conversation so far.
        ids: the ids of it that a model has seen or generated.
        turns: for each message in `ids`, its tokens; what is generated for now last.
        rewrites: each time that the template wrote the past in another way.
    """

    def __init__(
        self,
        tokenizer: BPETokenizer,
        template: Any = None,
        system_prompt: str | None = None,
        **variables: Any,
    ) -> None:
        self.tokenizer = tokenizer
        self.messages: list[dict[str, Any]] = chat_templates.check_messages([], system_prompt)
        self.rewrites: list[Rewrite] = []
        self._render = chat_templates.Renderer(template, tokenizer, variables)
        self._forget()

    def _forget(self) -> None:
        self.ids: list[int] = []
        self.turns: list[Turn] = []
        self._text = ""  # what `ids` stand for, but for the answer
        self._answer: list[int] | None = None  # what was generated behind that
        self._counted = 0  # messages that are in `turns`

    @property
    def end_of_turn(self) -> str | None:
        """The control token that the template puts behind an answer."""
        return chat_templates.end_of_turn(self._render, self.tokenizer.special_tokens)

    # -- Messages ---

    def add(self, role: str, content: Any = None, **fields: Any) -> None:
        """Append a message.

        Raises:
            ValueError, TypeError: it is no message.
        """
        message = {"role": role, "content": content, **fields}
        self.extend([message])

    def extend(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Append messages, each {"role": ..., "content": ...}."""
        self.messages += chat_templates.check_messages(messages)

    def undo(self) -> list[dict[str, Any]]:
        """Take back the last message of a user and all behind it; return them."""
        users = [i for i, message in enumerate(self.messages) if message["role"] == "user"]
        start = users[-1] if users else len(self.messages)
        taken = self.messages[start:]
        del self.messages[start:]
        self._forget()
        return taken

    def reset(self) -> None:
        """Take back all but the system prompt."""
        self.messages = [message for message in self.messages[:1] if message["role"] == "system"]
        self._forget()

    # -- Ids ---

    def prompt(self) -> list[int]:
        """Return the ids that a model goes on from, to answer.

        They begin with `ids` as they were, unless the template writes the past in
        another way; then `rewrites` grows.

        Raises:
            ValueError: the template refuses this conversation.
        """
        text = self._render(self.messages, True)
        plain = "".join(text)
        found = self._find_end(plain)
        if found is None:
            old = self.ids
            before = self._text + self.tokenizer.decode(self._answer or [])
            self._forget()
            self._append(text, 0)
            same = (i for i, (a, b) in enumerate(zip(old, self.ids)) if a != b)
            kept = next(same, min(len(old), len(self.ids)))
            at = chat_templates._agree(before, plain)
            self.rewrites.append(Rewrite(before[at:], plain[at:], kept))
        else:
            end, n_ids = found
            del self.ids[n_ids:]
            self._append(text, end)
        return list(self.ids)

    def _find_end(self, text: str) -> tuple[int, int] | None:
        """Return how much of a text `ids` stand for, and how many of them; None if it differs.

        White space around an answer may be missing: templates strip what they are given.
        """
        if self._answer is None:
            return (len(self._text), len(self.ids)) if text.startswith(self._text) else None
        said, stop = self._said(self._answer)
        for known in dict.fromkeys((said, said.rstrip(), said.lstrip(), said.strip())):
            if text.startswith(self._text + known):
                end = len(self._text + known)
                if stop and text.startswith(stop, end):
                    return end + len(stop), len(self.ids)
                return end, len(self.ids) - bool(stop)
        return None

    def _said(self, ids: Sequence[int]) -> tuple[str, str]:
        """Return the text of generated ids, and the control token at their end."""
        control = set(self.tokenizer.special_tokens.values())
        if ids and ids[-1] in control:
            return self.tokenizer.decode(ids[:-1]), self.tokenizer.decode(ids[-1:])
        return self.tokenizer.decode(ids), ""

    def _append(self, text: Marked, start: int) -> None:
        """Encode a text from a place on, put the ids behind the others, and count them."""
        segments = chat_templates.segments(text[start:])
        ids, offsets = self.tokenizer._encode_segments(segments, "all", True, first=not start)
        ends = chat_templates.message_ends(text, len(self.messages))
        if self._answer is not None:
            self._counted += 1
        counts = [0] * (len(self.messages) - self._counted + 1)
        at = self._counted
        for place, _ in offsets:
            while at < len(self.messages) and ends[at] <= start + place:
                at += 1
            counts[at - self._counted] += 1
        roles = [str(message["role"]) for message in self.messages[self._counted :]]
        self.turns += map(Turn, [*roles, "assistant"], counts)
        self._counted = len(self.messages)
        self.ids += ids
        self._text, self._answer = "".join(text), None

    def answer(self, ids: Iterable[int], content: str | None = None, **fields: Any) -> str:
        """Take what a model generated behind `prompt`, its stop token included.

        Args:
            ids: as generated.
            content: what the message says; by default the text of the ids, without
                control tokens at its end.
            fields: more of the message, such as ``tool_calls``.

        Returns:
            The content.

        Raises:
            RuntimeError: nothing was asked, or it is answered already.
        """
        if not self.turns or self._answer is not None:
            raise RuntimeError("an answer goes behind a prompt: call prompt() first")
        self._answer = list(ids)
        said = self._said(self._answer)[0]
        self.messages.append({"role": "assistant", "content": said, **fields})
        if content is not None:
            self.messages[-1]["content"] = content
        role, header = self.turns.pop()
        self.turns.append(Turn(role, header + len(self._answer)))
        self.ids += self._answer
        return str(self.messages[-1]["content"])
