"""Conversations that lose whole old turns, so that they fit into a number of tokens.

A conversation that begins later mostly has fewer tokens.  So where it begins is found by halving,
with few renderings: the rest fits, and one more turn would not.

Where a template is local (see `locality.py`), what it writes for late messages stays the same if
early ones are left out.  So the tokens of that part, counted once, show where too much is left.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Sequence
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.chat import encoding
from bpe_tokenizer_tools.chat.marked_text import Marked
from bpe_tokenizer_tools.chat.templates import Message, Renderer, message_starts

Text = Callable[[Renderer, Sequence[Message]], Marked]


def newest(
    render: Renderer, messages: list[Any], limit: int, text: Text, allowed_special: Any
) -> list[Any]:
    """Leave out the oldest turns until a conversation fits, and warn about it.

    `limit` is how many tokens it may have, and `text` renders a conversation.
    """

    def count(kept: Sequence[Message]) -> int:
        made = text(render, kept)
        return len(encoding.encode(render, made, allowed_special, align=False)[0])

    def least(head: int, starts: Sequence[int]) -> Callable[[int], int]:
        return _Least(render, messages, head, starts, text, allowed_special).tokens

    return core.newest(messages, limit, count, least)


class _Least:
    """How many tokens a conversation takes at least if its turns begin later.

    The first of these conversations is rendered.  Its end, from a control token on, is an end
    of the others, too.  As a control token cuts text, that end has the same tokens in each.

    `head` is how many messages are before the turns, and `starts` where the turns may begin.  The
    rest is as for `newest`.
    """

    def __init__(
        self,
        render: Renderer,
        messages: Sequence[Message],
        head: int,
        starts: Sequence[int],
        text: Text,
        allowed_special: Any,
    ) -> None:
        self._render, self._messages, self._head = render, messages, head
        self._starts, self._text, self._allowed = starts, text, allowed_special
        self._roles = [message["role"] for message in messages]
        self._locality = render.locality

    def tokens(self, start: int) -> int:
        """Return the number for the conversation whose turns begin there; 0 if unknown."""
        known, ends = self._locality, self._ends
        if known is None or ends is None:
            return 0
        n_left = self._head + len(self._messages) - start
        n_looked = max(0, known.heads - self._head)
        first = self._starts[0]
        if (
            (start - first) % known.period
            or n_left <= known.positions
            or self._roles[start : start + n_looked] != self._roles[first : first + n_looked]
        ):
            return 0
        changed = max(known.before, known.positions - self._head, n_looked)
        same = start + changed + known.after
        if same >= len(self._messages):
            return 0
        starts, cuts = ends
        at = bisect.bisect_left(cuts, (starts[same], 0))
        return cuts[at][1] if at < len(cuts) else 0

    @functools.cached_property
    def _ends(self) -> tuple[list[int], list[tuple[int, int]]] | None:
        """What is known of the ends of these conversations, if they are the same.

        That is, for each message, where its words and those of all that follow begin; and the
        places of control tokens, each with how many tokens there are from it on.
        """
        known, first = self._locality, self._starts[0]
        if known is None:
            return None
        changes = known.reach > 0 or known.positions > self._head
        if known.may_refuse and changes:  # it may refuse one of them
            return None
        kept = [*self._messages[: self._head], *self._messages[first:]]
        text = self._text(self._render, kept)
        if known.heads > self._head and not self._reads_roles_alone(kept, known.heads, text):
            return None
        starts = message_starts(text, len(kept))
        ids, offsets = encoding.encode(self._render, text, self._allowed)
        control = self._control(set(ids))
        own = [origin.trusted for part, origin in text.runs() for _ in range(len(part))]
        cuts = [
            (begin, len(ids) - i)
            for i, (id_, (begin, end)) in enumerate(zip(ids, offsets))
            if text.plain[begin:end] == control.get(id_) and own[begin]
        ]
        gap = [0] * (first - self._head)  # no conversation begins there
        return [*starts[: self._head], *gap, *starts[self._head :]], cuts

    def _reads_roles_alone(self, kept: Sequence[Message], heads: int, text: Marked) -> bool:
        """Return whether of the first messages that change, a template reads only the roles."""
        if self._locality is None or not self._locality.only_fields:
            return False
        read: list[str] = []
        watched = range(self._head, heads)
        render = self._render.given(lambda given: _Watched(given, watched, read))
        try:
            return self._text(render, kept).plain == text.plain and not read
        except ValueError:  # for want of another field
            return False

    def _control(self, ids: set[int]) -> dict[int, str]:
        """Return control tokens by id that are found in the same places whatever is before them."""
        tokenizer = self._render.tokenizer
        own = core.recognized(tokenizer, core.allowed(tokenizer, self._allowed))
        contents = [token.content for token in own]
        return {
            token.id: token.content
            for token in own
            if token.id in ids
            and not (token.single_word or token.normalized or core.spells_text(token))
            and not any(_may_overlap(other, token.content) for other in contents)
        }


def _may_overlap(other: str, content: str) -> bool:
    """Return whether a token found before another one's beginning may take a part of it."""
    return content in other[1:] or any(
        content.startswith(other[at:]) for at in range(1, len(other))
    )


class _Watched(list[Any]):
    """Messages, some of them with their roles only; records what else is read."""

    def __init__(self, messages: Sequence[Any], watched: range, read: list[str]) -> None:
        super().__init__(messages)
        self._watched, self._read = watched, read

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):
            skipped = key.indices(len(self))[0]
            shifted = range(self._watched.start - skipped, self._watched.stop - skipped)
            return _Watched(found, shifted, self._read)
        return _Role(found, self._read) if key in self._watched else found


class _Role(dict[str, Any]):
    """A message with its role only; records what else is read."""

    def __init__(self, message: dict[str, Any], read: list[str]) -> None:
        super().__init__(role=message["role"])
        self._read = read

    def __missing__(self, key: str) -> Any:
        self._read.append(key)
        raise KeyError(key)
