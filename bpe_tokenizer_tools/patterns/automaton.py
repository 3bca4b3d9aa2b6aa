r"""Split patterns as tables: the automaton that cuts text as `regex` does.

`regex` tries the alternatives of a pattern one after another, and backtracks when one fails.  The
automaton follows all of them at once and reads each character once.  Its states are lists of the
places in the pattern where a matcher could be, in the order in which `regex` would try them.  If
a place is the end of the pattern, the match could end here, and all later places in the list are
dropped, because `regex` would not get to them.  The remaining ones may still find a match that it
prefers, so the last end found is the end of the match.  (Source: Pike's and RE2's leftmost-first
automata.)

For ``a+b|a`` and the text "aac", with numbered places

    pattern      a+  b  |  a
    place        0   1     2        3 is the end

the states are [0, 2], then, after "a", [0, 1, 3]: a match could end.  After "aa" they are [0, 1],
because the path from 2 has ended; and after "c" the list is empty.  So the match is "a".

A state learns only from the next character whether it ends a match.  That allows lookahead of one
character, such as ``(?!\S)`` and ``\Z``: a place with a condition on the next character.
A possessive ``[..]++`` is a greedy one, followed by ``(?![..])``.

Characters are sorted into classes: each set in the pattern, as `regex` reads it, contains all of
a class or none of it.  Two more classes are the end of the text and, for ``$``, a newline that
ends it.

Some patterns have no automaton: those that look behind, or ahead by more than one character, or
can match the empty string.  Atomic groups have one if they end the pattern, or if only their last
part can backtrack.  All of this has a budget, which hostile patterns exceed.
"""

from __future__ import annotations

import functools
import itertools
import re
from array import array
from collections.abc import Iterable
from typing import NamedTuple

import regex

from bpe_tokenizer_tools.patterns import algebra
from bpe_tokenizer_tools.patterns.algebra import UnknownConstructError
from bpe_tokenizer_tools.patterns.characters import CODE_POINTS, members

# The patterns in use have up to 16 sets of 500 characters, 1,100 places, 560 states and 60 classes,
# and take 60,000 steps; all but one stay far below that.
_MAX_SETS, _MAX_SET_LENGTH = 32, 2_000  # `regex` takes up to 0.9 s to find the members of 2,000
_MAX_PLACES, _MAX_STATES, _MAX_CLASSES = 3_000, 4_096, 250
_MAX_STEPS = 400_000

_BLOCK = 256  # code points that share a block


class Automaton(NamedTuple):
    """What the extension needs to cut text; numbers are in the machine's byte order.

    Attributes:
        block_numbers: of the block of each 256 code points, 16 bits each.
        blocks: 256 classes to a block, 8 bits each.
        table: a row for each state, 32 bits for each class.  The lowest bit means that a match
            ends before the character; the others are the next state.  State 0 means no match, and
            the search begins in state 1.  The last two columns are for the end of the text and for
            a newline that ends it.
        classes: the number of classes, without these two.
        asks_for_last_newline: whether that newline has a column of its own.
    """

    block_numbers: bytes
    blocks: bytes
    table: bytes
    classes: int
    asks_for_last_newline: bool


# -- Characters ----------------------------------------------------------------


def _members(source: str) -> tuple[int, ...]:
    """Return the borders of a one-character pattern's ranges: start, end, start, ..."""
    return tuple(itertools.chain(*members(source)))


def _in_either_case(source: str) -> str:
    """Return how `regex` reads a one-character pattern in a set that ignores case."""
    bare = source[4:-1] if source.startswith("(?i:") else source
    if bare[0] == "\\":  # alone, an escape such as \p{Lu} has no case
        bare = f"[{bare}\ue000]"
    return f"(?i:{bare})"


def _have_all(sources: list[str], others: list[str]) -> bool:
    """Return True if some one-character patterns together contain all members of others."""
    changes = dict.fromkeys([0], 0)
    for number, source in enumerate([*sources, *others]):
        for at in _members(source):
            changes[at] = changes.get(at, 0) ^ 1 << number
    inside = itertools.accumulate((change for _, change in sorted(changes.items())), int.__xor__)
    ours = (1 << len(sources)) - 1
    return all(sets & ours or not sets for sets in inside)


class _Alphabet:
    """The classes of characters that the sets distinguish.

    Attributes:
        block_numbers, blocks: see `Automaton`.
        sets: for each class, a bit for each set it is in.
        newline: the class of the newline.
    """

    def __init__(self, sources: Iterable[str]) -> None:
        changes: dict[int, int] = {0: 0, CODE_POINTS: 0}
        for number, source in enumerate(sources):
            for at in _members(source):
                changes[at] = changes.get(at, 0) ^ 1 << number
        numbers: dict[int, int] = {}
        classes, sets, last = bytearray(CODE_POINTS), 0, 0
        for at, change in sorted(changes.items()):
            if at > last:
                number = numbers.setdefault(sets, len(numbers))
                if number >= _MAX_CLASSES:
                    raise UnknownConstructError("a pattern with that many classes")
                if number:
                    classes[last:at] = bytes([number]) * (at - last)
            sets, last = sets ^ change, at
        kept: dict[bytes, int] = {}
        starts = range(0, CODE_POINTS, _BLOCK)
        numbers_of_blocks = [
            kept.setdefault(bytes(classes[at : at + _BLOCK]), len(kept)) for at in starts
        ]
        self.block_numbers, self.blocks = array("H", numbers_of_blocks).tobytes(), b"".join(kept)
        self.sets, self.newline = list(numbers), classes[ord("\n")]


# -- Places --------------------------------------------------------------------


class _Place(NamedTuple):
    """A place in a pattern, and the ways from it.

    Attributes:
        sets: bits of sets; empty for a fork.
        at_end, before_last_newline: whether these also satisfy a condition.
        refuses: the condition is that the next character is in none of these sets.
        looks: this is a condition; if not, the character is read.
        ways: the next place; for a fork, all of them in the order they are tried.
    """

    sets: int = 0
    at_end: bool = False
    before_last_newline: bool = False
    refuses: bool = False
    looks: bool = False
    ways: tuple[int, ...] = ()


_END = 0  # the place after the pattern


class _Places:
    """The places of a pattern, made from its end to its beginning."""

    def __init__(self) -> None:
        self.sources: dict[str, int] = {}
        self.all = [_Place()]
        self.asks_for_last_newline = False

    def _add(self, place: _Place) -> int:
        if len(self.all) >= _MAX_PLACES:
            raise UnknownConstructError("a pattern of this size")
        self.all.append(place)
        return len(self.all) - 1

    def _set(self, source: str) -> int:
        number = self.sources.setdefault(source, len(self.sources))
        if number >= _MAX_SETS or sum(map(len, self.sources)) > _MAX_SET_LENGTH:
            raise UnknownConstructError("a pattern with sets of this size")
        return 1 << number

    def _one_of(self, node: algebra.Node) -> int | None:
        """Return the sets of a tree that is a single character, or None."""
        if isinstance(node, algebra.Chars):
            return self._set(node.pattern)
        if isinstance(node, algebra.Group) and node.prefix in ("(?:", "(?i:", "(?>"):
            return self._one_of(node.item)
        if isinstance(node, algebra.Either):
            sets = 0
            for option in node.options:
                one = self._one_of(option)
                if one is None:
                    return None
                sets |= one
            return sets
        return None

    def _condition(self, node: algebra.Node) -> _Place:
        """Return a condition on the next character: that it begins a match of a tree."""
        if isinstance(node, algebra.Chars):
            return _Place(self._set(node.pattern), looks=True)
        if isinstance(node, algebra.Anchor) and node.source in ("$", "\\Z"):
            newline = node.source == "$"
            self.asks_for_last_newline |= newline
            return _Place(at_end=True, before_last_newline=newline, looks=True)
        if isinstance(node, algebra.Group) and node.prefix in ("(?:", "(?i:", "(?>"):
            return self._condition(node.item)
        if isinstance(node, algebra.Repeat) and node.low == 1:
            return self._condition(node.item)
        if isinstance(node, algebra.Either):
            parts = [self._condition(option) for option in node.options]
            return _Place(
                functools.reduce(int.__or__, (part.sets for part in parts)),
                any(part.at_end for part in parts),
                any(part.before_last_newline for part in parts),
                looks=True,
            )
        raise UnknownConstructError("what looks further ahead")

    def build(self, node: algebra.Node, after: int) -> int:
        """Make the places of a tree; return its first.

        Args:
            node: the tree.
            after: the place after it.
        """
        if isinstance(node, algebra.Chars):
            return self._add(_Place(self._set(node.pattern), ways=(after,)))
        if isinstance(node, algebra.Anchor):
            return self._add(self._condition(node)._replace(ways=(after,)))
        if isinstance(node, algebra.Concat):
            for item in reversed(node.items):
                after = self.build(item, after)
            return after
        if isinstance(node, algebra.Either):
            return self._fork([self.build(option, after) for option in node.options])
        if isinstance(node, algebra.Repeat):
            return self._repeat(node, after)
        if node.prefix in ("(?=", "(?!"):
            condition = self._condition(node.item)
            return self._add(condition._replace(refuses=node.prefix == "(?!", ways=(after,)))
        if node.prefix == "(?>":
            return self._atomic(node.item, after)
        if node.prefix in ("(?:", "(?i:"):
            return self.build(node.item, after)
        raise UnknownConstructError(node.prefix)

    def _fork(self, ways: list[int]) -> int:
        return self._add(_Place(ways=tuple(ways)))

    def _repeat(self, node: algebra.Repeat, after: int) -> int:
        found = re.fullmatch(r"\{(\d+)(,?)(\d*)\}", node.quantifier)
        high = {"*": None, "+": None, "?": 1}.get(node.quantifier)
        if found:
            high = int(found[3] or found[1]) if found[3] or not found[2] else None
        if node.mode == "+" and after != _END:
            return self._possessive(node, high, after)
        lazy, exit_ = node.mode == "?", after
        if high is None:
            loop = self._add(_Place())  # set below, once its loop exists
            ways = self.build(node.item, loop), after
            self.all[loop] = _Place(ways=ways[::-1] if lazy else ways)
            after = loop
        else:
            for _ in range(high - node.low):
                ways = self.build(node.item, after), exit_
                after = self._fork([*(ways[::-1] if lazy else ways)])
        for _ in range(node.low):
            after = self.build(node.item, after)
        return after

    def _possessive(self, node: algebra.Repeat, high: int | None, after: int) -> int:
        """Make places for a possessive repeat: it ends where no more can follow."""
        sets = self._one_of(node.item)
        if sets is None:
            raise UnknownConstructError("a possessive repeat of several characters")
        if high != node.low:
            end = self._add(_Place(sets, refuses=True, looks=True, ways=(after,)))
        if high is None:
            after = self._add(_Place())
            self.all[after] = _Place(ways=(self._add(_Place(sets, ways=(after,))), end))
        else:
            for _ in range(high - node.low):
                after = self._fork([self._add(_Place(sets, ways=(after,))), end])
        for _ in range(node.low):
            after = self._add(_Place(sets, ways=(after,)))
        return after

    def _atomic(self, node: algebra.Node, after: int) -> int:
        """Make places for an atomic group, which never backtracks once it has matched."""
        if after == _END:  # nothing after it can fail
            return self.build(node, after)
        if isinstance(node, algebra.Group) and node.prefix in ("(?:", "(?i:", "(?>"):
            return self._atomic(node.item, after)
        if isinstance(node, algebra.Concat) and node.items:
            after = self._atomic(node.items[-1], after)
            for item in reversed(node.items[:-1]):
                if self._one_of(item) is None:
                    raise UnknownConstructError("an atomic group")
                after = self.build(item, after)
            return after
        if isinstance(node, algebra.Repeat):
            exact = node.mode == "?"  # the minimum is enough
            quantifier = f"{{{node.low}}}" if exact else node.quantifier
            return self._repeat(node._replace(quantifier=quantifier, mode="+"), after)
        sets = self._one_of(node)
        if sets is None:
            raise UnknownConstructError("an atomic group")
        return self._add(_Place(sets, ways=(after,)))


# -- States --------------------------------------------------------------------

_State = tuple[int, ...]  # places that read or look, and the end, in the order they are tried


class _Table:
    """The rows of the states, made from the first state on."""

    def __init__(self, places: _Places, start: int) -> None:
        self._places, self._left = places.all, _MAX_STEPS
        self.alphabet = _Alphabet(places.sources)
        self._numbers: dict[_State, int] = {(): 0}
        self.rows = array("I", bytes(4 * (len(self.alphabet.sets) + 2)))
        first = self._spread([start])
        self._check_beginnings(list(places.sources), self._what_matters(first))
        self._waiting = [first]
        self._numbers[first] = 1
        for state in self._waiting:  # grows meanwhile
            self._add_row(state)

    def _check_beginnings(self, sources: list[str], sets: int) -> None:
        """Raise for a pattern whose matches `regex` may miss.

        `regex` skips characters that can't begin a match.  If one that can ignores case, it treats
        all of them so.  But a set such as ``[^ab]`` has fewer members then: it lacks "B", and
        ``[^ab]c|(?i:a)x`` does not find "Bc".
        """
        beginnings = [source for i, source in enumerate(sources) if sets >> i & 1]
        if not any(source.startswith("(?i:") for source in beginnings):
            return
        if not _have_all(list(map(_in_either_case, beginnings)), beginnings):
            raise UnknownConstructError("a pattern that `regex` searches for incorrectly")

    def _count(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise UnknownConstructError("a pattern of this size")

    def _spread(self, places: list[int]) -> _State:
        """Follow the forks; drop places after the end."""
        seen: dict[int, bool] = {}  # place -> whether it is kept
        waiting = places[::-1]
        while waiting:
            place = waiting.pop()
            if place not in seen:
                ways = self._places[place].ways
                forks = place != _END and not self._places[place].looks
                forks = forks and not self._places[place].sets
                seen[place] = not forks
                if place == _END:
                    break
                if forks:
                    waiting.extend(reversed(ways))
        self._count(len(seen))
        return tuple(place for place, kept in seen.items() if kept)

    def _what_matters(self, state: _State) -> int:
        """Return the sets that a place reads or looks at before the next character is read."""
        sets, waiting, seen = 0, list(state), set(state)
        while waiting:
            place = self._places[waiting.pop()]
            sets |= place.sets
            if place.looks or not place.sets:
                new = set(place.ways) - seen
                seen |= new
                waiting.extend(new)
        self._count(len(seen))
        return sets

    def _step(
        self, state: _State, sets: int, at_end: bool = False, last_newline: bool = False
    ) -> int:
        """Return the table's entry for a state and a next character."""
        read, waiting, seen = [], list(reversed(state)), set[int]()
        ended = 0
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            if number == _END:
                ended = 1
                break
            place = self._places[number]
            among = sets & place.sets != 0
            if place.looks:
                among |= at_end and place.at_end
                among |= last_newline and place.before_last_newline
                if among != place.refuses:
                    waiting.append(place.ways[0])
            elif not place.sets:
                waiting.extend(reversed(place.ways))
            elif among:
                read.append(place.ways[0])
        self._count(len(seen))
        following = self._spread(read)
        if following not in self._numbers:
            if len(self._numbers) >= _MAX_STATES:
                raise UnknownConstructError("a pattern with that many states")
            self._numbers[following] = len(self._numbers)
            self._waiting.append(following)
        return self._numbers[following] << 1 | ended

    def _add_row(self, state: _State) -> None:
        matters = self._what_matters(state)
        entries: dict[int, int] = {}
        for sets in self.alphabet.sets:
            if sets & matters not in entries:
                entries[sets & matters] = self._step(state, sets)
            self.rows.append(entries[sets & matters])
        newline = self.alphabet.sets[self.alphabet.newline]
        self.rows.append(self._step(state, 0, at_end=True))
        self.rows.append(self._step(state, newline, last_newline=True))


def automaton(pattern: str) -> Automaton | None:
    """Return the automaton that cuts text as a split pattern does; None if it has none."""
    try:
        tree = algebra.PatternParser(pattern).parse()
        if algebra.may_be_empty(tree):
            return None
        places = _Places()
        table = _Table(places, places.build(tree, _END))
    except (UnknownConstructError, RecursionError, regex.error):
        return None
    return Automaton(
        table.alphabet.block_numbers,
        table.alphabet.blocks,
        table.rows.tobytes(),
        len(table.alphabet.sets),
        places.asks_for_last_newline,
    )
