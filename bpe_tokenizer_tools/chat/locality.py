"""Whether a Jinja template's text for a message depends only on nearby messages.

To learn where an answer begins, its prompt must be rendered: the conversation up to there.  Doing
that for each answer takes quadratic time.  But a local template writes the same end if messages in
the middle are left out, so rendering a few messages is enough.

`find` proves this from the template's code.  A local template has one loop over the messages, and
outside of it looks only at the first ones.  In the loop it looks at a message and its neighbors and
remembers nothing: it changes no namespace.  A template that `find` doesn't understand isn't local.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from jinja2 import nodes

from bpe_tokenizer_tools.chat import jinja
from bpe_tokenizer_tools.chat.loops import LAZY


class Locality(NamedTuple):
    """How far a template looks."""

    heads: int = 0  # how many messages at the beginning it looks at from everywhere
    positions: int = 0  # of how many messages at the beginning it tells the position
    before: int = 0  # how many earlier messages change its text for one
    after: int = 0  # how many messages after one do
    period: int = 1  # positions that are equal modulo this number are equal to it
    may_refuse: bool = False  # whether it may refuse a conversation
    # whether it looks at single fields of the first messages, by their names
    only_fields: bool = True

    @property
    def first(self) -> int:
        """How many messages at the beginning are unlike others."""
        return max(self.heads, self.positions, 1)

    @property
    def reach(self) -> int:
        """How many messages before and after one change what is written for it."""
        return max(self.before, self.after)


class _Unknown(Exception):
    """The template is not local, or nothing is known about it."""


# Filters that give iterators; one that is made before the loop would be used up in it.
_LAZY = {*LAZY, "random"}
_MAX_PASSES = 20  # names of the messages, each defined after it is used
_WITH_A_STATE = {"cycler", "joiner", "lipsum", "self", "super", "varargs", "kwargs"}
_FILES = (nodes.Block, nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)
_KEPT_APART = (nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock, nodes.With)


@functools.lru_cache(maxsize=64)
def find(source: str) -> Locality | None:
    """Return how far a template looks, or None if it may look at all messages."""
    tree = jinja.parse(source)
    if any(each.name == "_mark" for each in tree.find_all(nodes.ExtensionAttribute)):
        return None  # its own tags mark the generated text
    reader = _Reader()
    try:
        reader.find_lists(tree)
        if reader.count_loops(tree) != 1:
            return None
        for node in tree.body:
            reader.read(node, None)
    except _Unknown:
        return None
    calls = {name.name for name in tree.find_all(nodes.Name)}
    return reader.found._replace(may_refuse="raise_exception" in calls)


class _Reader:
    def __init__(self) -> None:
        self.found = Locality()
        self._shifts = 0  # how many messages can be left out before the loop
        self._lists = {"messages"}

    def find_lists(self, tree: Any) -> None:
        """Find the names of the messages, and of all but the first of them."""
        assigned = list(tree.find_all(nodes.Assign))
        for _ in range(_MAX_PASSES):
            known = set(self._lists)
            for node in assigned:
                if isinstance(node.target, nodes.Name) and self._shift(node.node) is not None:
                    self._lists.add(node.target.name)
            if known == self._lists:
                break
        else:
            raise _Unknown
        for node in assigned:
            if isinstance(node.target, nodes.Name) and node.target.name in self._lists:
                shift = self._shift(node.node)
                if shift is None:
                    raise _Unknown
                self._shifts += shift
        self._see(heads=self._shifts, positions=self._shifts)
        others = (name for name in tree.find_all(nodes.Name) if name.ctx != "load")
        targets = {id(node.target) for node in assigned}
        if any(name.name in self._lists and id(name) not in targets for name in others):
            raise _Unknown  # the parameter of a macro, for instance

    def _see(self, **numbers: int) -> None:
        """Note how far the template looks at least."""
        larger = {name: max(number, getattr(self.found, name)) for name, number in numbers.items()}
        self.found = self.found._replace(**larger)

    def _shift(self, node: Any) -> int | None:
        """Return how many messages an expression leaves out at the beginning; else None."""
        if isinstance(node, nodes.Name):
            return 0 if node.name in self._lists else None
        if not (isinstance(node, nodes.Getitem) and self._is_list(node.node)):
            return None
        part = node.arg
        if not isinstance(part, nodes.Slice) or part.stop or part.step:
            return None
        start = 0 if part.start is None else _constant(part.start)
        return start if type(start) is int and start >= 0 else None

    def _is_list(self, node: Any) -> bool:
        return isinstance(node, nodes.Name) and node.name in self._lists

    def _is_length(self, node: Any) -> bool:
        is_length = isinstance(node, nodes.Filter) and node.name in ("length", "count")
        return is_length and self._is_list(node.node)

    def count_loops(self, node: Any) -> int:
        """Return how many loops over the messages run, at most."""
        if isinstance(node, nodes.If):
            branches: list[list[Any]] = [node.body, *([each] for each in node.elif_), node.else_]
            return max(sum(map(self.count_loops, branch)) for branch in branches)
        if isinstance(node, nodes.For) and self._is_list(node.iter):
            return 1
        found = sum(map(self.count_loops, node.iter_child_nodes()))
        if found and not isinstance(node, nodes.Template):
            raise _Unknown  # the code around the loop may read all of its output
        return found

    def read(self, node: Any, loop: str | None) -> None:
        """Read code.

        `loop` is the name of the loop variable if the code is in the loop over messages; "" in any
        other loop, None outside of loops.
        """
        if isinstance(node, nodes.For):
            self._read_loop(node, loop)
        elif isinstance(node, _FILES):
            raise _Unknown
        elif isinstance(node, nodes.Name):
            if node.ctx == "load" and (
                node.name in self._lists
                or (node.name == "loop" and loop != "")
                or node.name in _WITH_A_STATE
            ):
                raise _Unknown
        elif loop is None and isinstance(node, nodes.Assign) and _is_lazy(node.node):
            raise _Unknown
        elif isinstance(node, (nodes.NSRef, nodes.Break) if loop else nodes.NSRef):
            if loop is not None:  # it remembers something, or leaves out the rest
                raise _Unknown
        elif not self._knows(node, loop):
            # What a macro does to a namespace, it may do where the loop calls it.
            loop = "" if isinstance(node, _KEPT_APART) and loop is None else loop
            for child in node.iter_child_nodes():
                self.read(child, loop)

    def _read_loop(self, node: Any, loop: str | None) -> None:
        name = ""
        if self._is_list(node.iter):
            is_plain = isinstance(node.target, nodes.Name) and not (node.test or node.recursive)
            if loop is not None or not is_plain:
                raise _Unknown
            name = node.iter.name
        else:
            self.read(node.iter, loop)
        for child in (*node.body, *([node.test] if node.test else [])):
            self.read(child, name)
        for child in node.else_:
            self.read(child, loop)

    def _knows(self, node: Any, loop: str | None) -> bool:
        """Return True if this describes an expression completely."""
        return self._knows_messages(node, loop) or self._knows_place(node, loop)

    def _knows_messages(self, node: Any, loop: str | None) -> bool:
        """Read what looks at the messages other than by a loop."""
        if isinstance(node, nodes.Assign) and self._shift(node.node) is not None:
            if loop is not None:
                raise _Unknown
            return True
        if isinstance(node, nodes.Test):
            return node.name == "defined" and self._is_list(node.node)
        if isinstance(node, (nodes.Getattr, nodes.Getitem)) and self._is_head(node.node):
            head: Any = node.node
            name = node.attr if isinstance(node, nodes.Getattr) else _constant(node.arg)
            if isinstance(name, str) and not hasattr(dict, name):
                self._see(heads=self._shifts + head.arg.value + 1)
                return True
        if not (isinstance(node, nodes.Getitem) and self._is_list(node.node)):
            return False
        if self._is_head(node):
            self._see(heads=self._shifts + _constant(node.arg) + 1)
            self.found = self.found._replace(only_fields=False)
            return True
        list_: Any = node.node
        offset = _index(node.arg) if loop == list_.name else None
        if offset is None or abs(offset) > 5:
            raise _Unknown
        self._see(before=max(0, -offset), after=max(0, offset))
        return True

    def _knows_place(self, node: Any, loop: str | None) -> bool:
        """Read what looks at the place of a message, or at how many there are."""
        if loop and isinstance(node, nodes.Getattr) and _is_loop(node.node):
            seen = {
                "first": {"positions": self._shifts + 1},
                "last": {},
                "previtem": {"before": 1},
                "nextitem": {"after": 1},
            }
            if node.attr not in seen:
                raise _Unknown
            self._see(**seen[node.attr])
            return True
        if loop and isinstance(node, nodes.Mod) and _index(node.left) is not None:
            number = _constant(node.right)
            if type(number) is not int or not 0 < number < 5:
                raise _Unknown
            self.found = self.found._replace(period=math.lcm(self.found.period, number))
            return True
        if not isinstance(node, nodes.Compare):
            return False
        offset = 0 if self._is_length(node.expr) else _index(node.expr) if loop else None
        if offset is None:
            return False
        numbers = [_constant(each.expr) for each in node.ops]
        if not all(type(number) is int and number < 100 for number in numbers):
            raise _Unknown
        self._see(positions=self._shifts + max(numbers) + 1 - offset)
        return True

    def _is_head(self, node: Any) -> bool:
        """Return True for one of the first messages."""
        if not (isinstance(node, nodes.Getitem) and self._is_list(node.node)):
            return False
        number = _constant(node.arg)
        return type(number) is int and 0 <= number < 100


def _constant(node: Any) -> Any:
    return node.value if isinstance(node, nodes.Const) else None


def _is_lazy(node: Any) -> bool:
    """Return True if a value may be an iterator, or contain one."""
    if isinstance(node, nodes.Filter) and node.name not in _LAZY:
        return False
    filters: Any = nodes.List([node]).find_all(nodes.Filter)
    return any(each.name in _LAZY for each in filters)


def _is_loop(node: Any) -> bool:
    return isinstance(node, nodes.Name) and node.name == "loop"


def _index(node: Any) -> int | None:
    """Return the number that an expression adds to a loop's position, if it only does that."""
    if isinstance(node, nodes.Getattr) and _is_loop(node.node):
        return {"index0": 0, "index": 1}.get(node.attr)
    if not isinstance(node, (nodes.Add, nodes.Sub)):
        return None
    left, right = _index(node.left), _constant(node.right)
    if left is None or type(right) is not int:
        return None
    return left + right if isinstance(node, nodes.Add) else left - right
