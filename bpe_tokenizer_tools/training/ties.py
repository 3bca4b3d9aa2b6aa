"""Other rules for ties in training: which of several most frequent pairs is merged next.

HuggingFace's rule is in bpe_tokenizer.py.  Courses, articles and small programs have others:

- "greatest" takes the pair whose two tokens, as a tuple of bytes, compare greater:
  ``max(counts, key=lambda pair: (counts[pair], pair))``.
- "greatest-printable" is the same expression where tokens are strings, in GPT-2's printable form.
- "smallest-ids" takes the least of ``(-counts[pair], pair)``, where a pair is two ids.
- "first" takes the pair whose first occurrence in the text, as merged so far, is the earliest:
  ``max(counts, key=counts.get)``, where `counts` was filled by walking through the text.

All define a trainer that counts all pairs again after each merge.  The learners here learn the
same merges, but update their counts, and find the most frequent pair with a heap.

HuggingFace's rule is about ids, too: those of a trainer that numbers the bytes by their printable
characters.  So the learner of that rule serves "smallest-ids", with the bytes in another order.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Mapping
from typing import Any

from bpe_tokenizer_tools import core

RULES = ("huggingface", "greatest", "greatest-printable", "smallest-ids", "first")
_FALLING = bytes(range(255, -1, -1))
_INVERTED = {
    "greatest": _FALLING,
    "greatest-printable": bytes.maketrans(core.ALPHABET, _FALLING),
}
_END = "\u0100"  # sorts after every inverted byte, so that b"ab" comes before b"a"


def learner(
    ties: str, alphabet: bytes
) -> Callable[[Mapping[bytes, int], int | None], core.MergeLearner]:
    """Return a factory of learners that follow a rule: counts, maximum token length -> learner.

    `alphabet` has the 256 bytes in the order of their ids.
    """
    if ties not in RULES:
        known = f"{', '.join(RULES[:-1])} or {RULES[-1]}"
        raise ValueError(f"ties must be {known}, got {core.shorten(ties)}")
    if ties == "smallest-ids":
        return functools.partial(core.engine().learner, alphabet=alphabet)
    return functools.partial(_RuledLearner, ties)


class _RuledLearner(core.MergeLearner):
    """Learns merges by a rule for ties that isn't about the order of ids.

    The heap's entries are (-count, key, pair, where).  Among equal counts the smallest key wins.
    An entry starts with an empty key, which sorts before all others.  It gets its key when it
    reaches the top with others of its count, and loses it when its count turns out to be outdated.

    That is enough because every merge makes a new token: while the parts of a token form, no merge
    crosses its borders, so they form alike wherever it occurs, and no two pairs join to the same
    bytes.  So all occurrences of a pair appear in one step, and from then on its count only falls.
    Places within a word shift as it is merged, but equal counts get their keys at the same step.
    A later pair of that count can only come from merging the first of them, and is where that was.
    """

    def __init__(
        self, ties: str, counts: Mapping[bytes, int], max_token_length: int | None
    ) -> None:
        if ties == "first" and not getattr(counts, "in_order", True):
            raise ValueError(
                'ties="first" needs counts in the order of the text, and these lost it: count with '
                "count_pretokens(..., in_order=True), or train from the corpus"
            )
        super().__init__(counts, max_token_length)
        self._key: Callable[[str, list[int]], tuple[Any, ...]]
        self._key = self._place if ties == "first" else self._inverted
        self._inverting = _INVERTED.get(ties, b"")
        self._queue: list[tuple[int, tuple[Any, ...], str, list[int]]] = []

    def _count_pairs(self) -> None:
        super()._count_pairs()
        self._queue = [(negative, (), pair, where) for negative, pair, where in self._heap]
        self._heap.clear()

    def _push(self, pair: str, where: list[int]) -> None:
        heapq.heappush(self._queue, (-self._pair_counts[pair], (), pair, where))

    def _pop(self) -> tuple[str, list[int]]:
        while self._queue:
            negative, key, pair, where = heapq.heappop(self._queue)
            count = self._pair_counts[pair]
            if count == -negative:
                tie = bool(self._queue) and self._queue[0][0] == negative
                if key or not tie:
                    return pair, where
                heapq.heappush(self._queue, (negative, self._key(pair, where), pair, where))
            elif count > 0:
                self._push(pair, where)
        return "", []

    def _inverted(self, pair: str, where: list[int]) -> tuple[str, str]:
        """Return the pair's bytes in a form that sorts in reverse."""
        left, right = (self._token[ord(token)].translate(self._inverting) for token in pair)
        return left.decode("latin-1") + _END, right.decode("latin-1") + _END

    def _place(self, pair: str, where: list[int]) -> tuple[int, int]:
        """Return the pair's first occurrence: the word, and the place in it."""
        gone = next(n for n, i in enumerate(where) if pair in self._words[i])
        del where[:gone]
        return where[0], self._words[where[0]].index(pair)
