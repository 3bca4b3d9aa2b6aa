"""Whether ids are those that `encode` gives for their text, and where they are not.

Many sequences of ids stand for the same text.  `encode` gives one of them, the canonical one.  A
model may sample another one: " hel" and "lo" for " hello".  Encoding the text again, for the next
turn or for training, then gives other ids than the model has seen.

Control tokens in the ids are borders and count as themselves; between them is text.  For each
stretch of text, the ids are decoded and encoded again.  Because chats keep control tokens apart
from user-supplied text, such a stretch may spell a control token in ordinary tokens.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from bpe_tokenizer import AddedToken, BPETokenizer, Definition
from bpe_tokenizer_tools import core

_BLOCK = 2**12  # ids that are decoded at once


class Difference(NamedTuple):
    """A stretch of ids that `encode` would not give."""

    start: int  # ids[start:end] are those that differ...
    end: int
    encoded: list[int]  # ...and these are what their text would get


def is_canonical(tokenizer: BPETokenizer, ids: Any, allowed_special: Any = "none") -> bool:
    """Return whether ids are those that `encode` gives for their text, when decoded.

    See `first_noncanonical`, which says exactly what that means, and where they are not.

    >>> tokenizer = BPETokenizer().train("low lower lowest " * 9, vocab_size=262, verbose=False)
    >>> is_canonical(tokenizer, tokenizer.encode("lowest"))
    True
    >>> is_canonical(tokenizer, [*b"lowest"])
    False
    """
    return first_noncanonical(tokenizer, ids, allowed_special) is None


def first_noncanonical(
    tokenizer: BPETokenizer, ids: Any, allowed_special: Any = "none"
) -> int | None:
    """Return the first index where encoding the ids' text gives another id; None for nowhere.

    For ids without control tokens, the other ids are those of
    ``encode(decode(ids), allowed_special=allowed_special)``, except that with "none" text can't
    give any control token.  If there are control tokens, they count as themselves, and each stretch
    of text between two of them is decoded and encoded by itself.  Ids that don't form valid UTF-8
    are not canonical.  If the ids end too early, the index is their number.

    So the results of `encode` and `apply_chat_template` are canonical, even with tokens around a
    text.  The exception: if normalizing makes text spell an added token that the text as given did
    not, `encode` gives ordinary ids.  Decoded, they spell the token, so `encode` then gives that.

    Args:
        ids: a list, or a one-dimensional array or tensor.
        allowed_special: how to encode text that spells a control token in ordinary tokens.  With
            "none" it stays text, like user-supplied text in chats, even if `encode` always finds
            the token.  With "all" or a set it is encoded as by `encode` with that argument.

    Raises:
        TypeError: `ids` is one id, or some of them are not integers.
        ValueError: an id is not in the vocabulary.

    Cost: one pass, which ends at the first difference; memory for a part of the text.

    >>> tokenizer = BPETokenizer().train("low lower lowest " * 9, vocab_size=262, verbose=False)
    >>> tokenizer.tokenize("lowest lower")
    ['low', 'e', 'st', 'Ġlower']
    >>> first_noncanonical(tokenizer, [*tokenizer.encode("lowest "), *tokenizer.encode("lower")])
    3
    """
    given, control = _checked(tokenizer, ids)
    last = 0
    for reader in _readers(tokenizer, control, allowed_special):
        place = next(reader.places(given), None)
        if place is None:
            return None
        last = max(last, place)
    return last


def differences(
    tokenizer: BPETokenizer, ids: Any, allowed_special: Any = "none"
) -> list[Difference]:
    """Return the differences: one for each stretch of text, from its first to its last.

    Arguments as for `first_noncanonical`.

    >>> tokenizer = BPETokenizer().train("low lower lowest " * 9, vocab_size=262, verbose=False)
    >>> [found] = differences(tokenizer, [*tokenizer.encode("lowest low"), *b"est"])
    >>> found.start, found.end, tokenizer.convert_ids_to_tokens(found.encoded)
    (3, 7, ['Ġlowe', 'st'])
    """
    given, control = _checked(tokenizer, ids)
    readers = _readers(tokenizer, control, allowed_special)
    return min(([*reader.differences(given)] for reader in readers), key=len)


_Control = dict[int, AddedToken]


def _checked(tokenizer: BPETokenizer, ids: Any) -> tuple[list[int], _Control]:
    """Return ids as a list, and the control tokens among them; all must be known."""
    given, known = ids, core.tokens(tokenizer)
    if type(ids) is not list or not {*map(type, ids)} <= {int}:
        given = _listed(ids)
    distinct = {*given}
    if not all(map(known.__contains__, distinct)):
        at, id_ = next((i, id_) for i, id_ in enumerate(given) if id_ not in known)
        problem = f"ids[{at}] is {id_}, which is not in the vocabulary"
        raise ValueError(f"{problem} (largest id: {tokenizer.max_id}); leave out padding and masks")
    control: _Control = core.derived(tokenizer, _control)
    return given, {id_: control[id_] for id_ in control.keys() & distinct}


def _listed(ids: Any) -> list[int]:
    """Read ids from anything but a list of int."""
    ids = ids.tolist() if hasattr(ids, "tolist") else ids
    if isinstance(ids, int):
        raise TypeError(f"ids must be a sequence of integers, got {ids!r}")
    if isinstance(ids, Iterable) and not isinstance(ids, (str, bytes)):
        ids = list(ids)
        if bool in map(type, ids):
            at = [*map(type, ids)].index(bool)
            raise TypeError(f"ids[{at}] must be an integer, got {ids[at]!r}: is this a mask?")
    return core.plain_ids(ids)


def _control(encoder: core.Encoder, definition: Definition) -> _Control:
    """Return the added tokens that aren't ordinary text, by id."""
    tokens = {cast("int", token.id): token for token in definition.added}
    # SentencePiece's user-defined symbols are text, too: they end no piece of it.
    of_pieces = definition.components is not None
    return {
        id_: token
        for id_, token in tokens.items()
        if not core.spells_text(token)
        and not (of_pieces and token.normalized and not token.special)
    }


def _readers(tokenizer: BPETokenizer, control: _Control, allowed: Any) -> Iterator[_Reader]:
    """Yield the ways to read ids: two if merges could have made some of the control tokens."""
    yield _Reader(tokenizer, control, allowed)
    vocab = tokenizer.definition.vocab
    others = {
        id_: token for id_, token in control.items() if vocab.get(token.content.encode()) != id_
    }
    if len(others) < len(control):
        yield _Reader(tokenizer, others, allowed)


class _Reader:
    """Reads ids as control tokens, and stretches of text between them."""

    def __init__(self, tokenizer: BPETokenizer, control: _Control, allowed: Any) -> None:
        self._tokenizer, self._control = tokenizer, control
        self._encoder = core.encoder(tokenizer)
        self._segments: core.SegmentEncoder = core.derived(tokenizer, core.SegmentEncoder)
        self._pipeline, self._read = self._segments.pipeline, frozenset[str]()
        self._allowed = core.allowed(tokenizer, allowed)
        if allowed != "none":
            self._pipeline = core.pipeline(tokenizer, self._allowed)
            self._read = self._segments.contents(self._allowed)
        # These look at what is beside them; and SentencePiece's space depends on the place.
        self._looks_around = tokenizer.components is not None or any(
            token.lstrip or token.rstrip or token.single_word for token in control.values()
        )

    def _stretches(self, ids: list[int]) -> Iterator[tuple[int, int]]:
        """Yield the (start, end) of text between control tokens; without any, it may be empty."""
        control = self._control
        borders = [i for i, id_ in enumerate(ids) if id_ in control] if control else []
        for before, after in itertools.pairwise([-1, *borders, len(ids)]):
            yield before + 1, after

    def places(self, ids: list[int]) -> Iterator[int]:
        """Yield the first place in each stretch where encoding gives another id."""
        for start, end in self._stretches(ids):
            if self._looks_around:
                first, expected = self._around(ids, start, end)
                place = first + _agreeing(ids[first : end + 1], expected)
                if place < max(min(end + 1, len(ids)), first + len(expected)):
                    yield place
                continue
            at = start
            for new in self._encoded(ids, start, end) if start < end else ():
                if ids[at : min(at + len(new), end)] != new:
                    yield at + _agreeing(ids[at:end], new)
                    break
                at += len(new)
            else:
                if at < end:
                    yield at

    def differences(self, ids: list[int]) -> Iterator[Difference]:
        """Yield the difference in each stretch."""
        for start, end in self._stretches(ids):
            if self._looks_around:
                start, expected = self._around(ids, start, end)
                end = min(end + 1, len(ids))
            else:
                expected = [*itertools.chain.from_iterable(self._encoded(ids, start, end))]
            given = ids[start:end]
            if given != expected:
                agreed = _agreeing(given, expected)
                given, expected = given[agreed:], expected[agreed:]
                same = _agreeing(given[::-1], expected[::-1])
                kept = expected[: len(expected) - same]
                yield Difference(start + agreed, end - same, kept)

    def _encoded(self, ids: list[int], start: int, end: int) -> Iterable[list[int]]:
        """Encode the text of a stretch, in pieces."""
        if end - start <= _BLOCK:
            text = self._encoder.decode_to_str(ids[start:end], "replace")
            return [core.encode_parts(self._encoder, self._pipeline.parts(text))]
        return self._encoder.stream(self._pipeline, self._text(ids, start, end))

    def _text(self, ids: list[int], start: int, end: int) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")(self._encoder.handler("replace"))
        for at in range(start, end, _BLOCK):
            yield decoder.decode(self._encoder.decode(ids[at : min(at + _BLOCK, end)], "strict"))
        yield decoder.decode(b"", final=True)

    def _around(self, ids: list[int], start: int, end: int) -> tuple[int, list[int]]:
        """Encode a stretch with the control tokens next to it.

        Returns the place where this begins, and the ids.  If there are two possible texts, it takes
        the one whose ids agree with the given ones for longer.
        """
        first = max(0, start - 1)
        before = self._control[ids[first]] if first < start else None
        after = self._control[ids[end]] if end < len(ids) else None
        given, best = ids[first : end + 1], list[int]()
        for text in self._texts(ids[start:end]):
            for new in self._encoded_between(before, text, after, first == 0):
                best = max(best, new, key=lambda found: (found == given, _agreeing(found, given)))
        return first, best

    def _encoded_between(
        self, before: AddedToken | None, text: str, after: AddedToken | None, first: bool
    ) -> Iterator[list[int]]:
        """Encode text between control tokens: first as in chats, then as `encode` does."""
        beside = [token for token in (before, after) if token]
        own = frozenset(token.content for token in beside)
        segments = [(text, self._read)]
        segments = [(before.content, own), *segments] if before else segments
        segments = [*segments, (after.content, own)] if after else segments
        yield self._encode(segments, first)
        special = frozenset(token.content for token in beside if token.special)
        pipeline = core.pipeline(self._tokenizer, self._allowed | special)
        whole = "".join(part for part, _ in segments)
        yield core.encode_parts(self._encoder, pipeline.parts(whole, None, first))

    def _texts(self, ids: list[int]) -> Iterable[str]:
        """Yield the text of ids at the start of a text and, if it differs, elsewhere."""
        at_start = self._encoder.decode(ids, "strict")
        behind = b"".join([*self._encoder.decode_pieces(ids[:1] + ids, "strict")][1:])
        handler = self._encoder.handler("replace")
        return {each.decode("utf-8", handler): None for each in (at_start, behind)}

    def _encode(self, segments: list[tuple[str, frozenset[str]]], first: bool) -> list[int]:
        made = self._segments
        if not self._read:
            return made.encode(segments, first)
        parts = made.pipeline.parts(*made.matches(segments), first)
        return core.encode_parts(self._encoder, parts)


def _agreeing(one: list[int], two: list[int]) -> int:
    """Count the ids that two lists share from their beginnings."""
    pairs = enumerate(zip(one, two))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(two)))
