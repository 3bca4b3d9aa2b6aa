"""Find the loops in a template's code to record, and those that can end early.

`beginnings.py` records loops over messages.  For each tool's result, some templates search all
messages, for the call that it belongs to, say.  Once such a loop has found it, the other iterations
have no effect.  So we end the loop there; then what it does doesn't depend on later messages.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from jinja2 import nodes

Body = list[Any]  # statements, one after the other
LAZY = {"map", "select", "selectattr", "reject", "rejectattr", "batch", "slice", "unique"}
LAZY |= {"items", "reverse"}  # filters that give iterators


def _blocks(tree: nodes.Node, kind: type[Any] = nodes.For) -> Iterator[tuple[Body, Any]]:
    """Yield each loop with the list of statements that it is in; outer loops first."""
    every: list[nodes.Node] = [tree, *tree.find_all(nodes.Node)]
    for node in every:
        for _, value in node.iter_fields():
            if isinstance(value, list):
                yield from ((value, each) for each in list(value) if isinstance(each, kind))


def _is_plain(loop: nodes.For) -> bool:
    return not (loop.test or loop.recursive or loop.else_)


# -- Which are watched ---------------------------------------------------------


class Watched(NamedTuple):
    """A loop that is recorded if it is over messages."""

    body: Body  # the loop is one of these
    loop: nodes.For
    names: list[str]  # of the variables that its body reads
    compared: dict[str, list[Any]]  # those that it only compares, and where


def to_watch(source: nodes.Template) -> Iterator[Watched]:
    """Yield the loops to watch; the tree may be changed before the next is asked for.

    These are the outermost loops that write straight to the output, and loops inside of them, or
    of macros, that search a variable and call nothing: all that they read has a name.
    """
    macros = list(source.find_all((nodes.Macro, nodes.CallBlock)))
    outside, outermost = _names(macros), _outermost(source.body)
    own = {x.target.name for x in source.find_all(nodes.Assign) if type(x.target) is nodes.Name}
    for body, loop in outermost:
        compared = {x: at for x, at in _compared_alone(loop).items() if x in own - outside}
        yield Watched(body, loop, sorted((outside | _names([loop])) - {*compared}), compared)
    hidden = _attributes_set(source)
    for body, loop in list(_blocks(source)):
        if any(loop is each for _, each in outermost) or not isinstance(loop.iter, nodes.Name):
            continue
        if _may_end_early(loop) and not any(
            _may_run_more(x, hidden) for x in loop.find_all(_CALLS)
        ):
            compared = _compared_alone(loop)
            searched = {id(x.expr) for x in loop.find_all(nodes.Compare) if _searches(x)}
            compared = {
                name: sides
                for name, sides in compared.items()
                if not any(id(side.expr) in searched for side in sides)
            }
            yield Watched(body, loop, sorted(_names([loop]) - {*compared}), compared)


def _may_end_early(loop: nodes.For) -> bool:
    """Return True for a loop that depends on no later message, once it has found one."""
    return _is_plain(loop) and loop.find(nodes.Break) is not None


def searches(source: nodes.Template) -> bool:
    """Return True if a template searches all messages inside of a loop over them."""
    leave_when_done(source)
    loops: list[nodes.For] = [loop for _, loop in _outermost(source.body)]
    names = {loop.iter.name for loop in loops if isinstance(loop.iter, nodes.Name)}
    return any(
        isinstance(loop.iter, nodes.Name) and loop.iter.name in names
        for loop in source.find_all(nodes.For)
        if _may_end_early(loop) and not any(loop is each for each in loops)
    )


def _outermost(body: Body) -> list[tuple[Body, nodes.For]]:
    """Return a template's outermost loops that write straight to its output, and their blocks."""
    found: list[tuple[Body, nodes.For]] = []
    for node in body:
        if isinstance(node, nodes.If):
            for part in (node.body, node.elif_, node.else_):
                found += _outermost(part)
        elif isinstance(node, nodes.For) and _is_plain(node):
            found.append((body, node))
    return found


_Kinds = tuple[type[nodes.Node], ...]
_CALLS: _Kinds = (nodes.Call, nodes.CallBlock, nodes.FilterBlock, nodes.Macro, nodes.Include)
_CALLS += (nodes.Import, nodes.FromImport, nodes.Block, nodes.ExtensionAttribute)


def _attributes_set(source: nodes.Template) -> set[str]:
    """Return the names of all attributes that a template gives to namespaces."""
    given = (x.key for x in source.find_all(nodes.Pair) if isinstance(x.key, nodes.Const))
    return {
        *(x.attr for x in source.find_all(nodes.NSRef)),
        *(x.key for x in source.find_all(nodes.Keyword)),
        *(key.value for key in given if isinstance(key.value, str)),
    }


def _may_run_more(node: Any, hidden: set[str]) -> bool:
    """Return True if a node may run code of the template that is elsewhere.

    `hidden` are names of attributes that may be such code.
    """
    if not isinstance(node, nodes.Call):
        return True
    of = node.node
    if not isinstance(of, nodes.Getattr) or of.attr in hidden:
        return True
    return not (hasattr(str, of.attr) or hasattr(dict, of.attr))  # a method


def _searches(node: nodes.Compare) -> bool:
    return node.ops[0].op in ("in", "notin")


def _compared_alone(loop: nodes.For) -> dict[str, list[Any]]:
    """Return the variables that a loop only compares, and where it does."""
    found: dict[str, list[Any]] = {}
    sides: list[Any] = list(loop.find_all((nodes.Compare, nodes.Operand)))
    for side in sides:
        if isinstance(side.expr, nodes.Name) and getattr(side, "op", "") not in ("in", "notin"):
            found.setdefault(side.expr.name, []).append(side)
    names: list[Any] = list(loop.find_all((nodes.Name, nodes.NSRef)))
    used = [name.name for name in names]
    return {name: given for name, given in found.items() if used.count(name) == len(given)}


def _names(body: Iterable[nodes.Node]) -> set[str]:
    names: Any = (name for node in body for name in node.find_all((nodes.Name, nodes.NSRef)))
    return {name.name for name in names} - {"loop", "caller"}


# -- Which may be left early ---------------------------------------------------

_TESTS = 8  # how many tests of a loop are tried, which takes time


def leave_when_done(source: nodes.Template) -> None:
    """Let loops end where nothing that they do later has an effect.

    That is once a flag is set, as in ``{% if not flags.found %}...{% endif %}``, or once their
    index reaches a limit, as in ``{% if m.tool_calls and loop.index0 < place %}``.

    What they do later must not be able to fail, either.  For that, we take the items of lists for
    plain data, and what is looped over for a list, unless it is false.
    """
    uses = _Uses(source)
    for body, loop in list(_blocks(source)):
        if loop.test or loop.recursive or loop.else_ or not uses.is_over_a_list(loop.iter):
            continue
        for test, value in _conditions(uses, body, loop):
            if _Idle(uses, body, loop, test, value).all(loop.body):
                asked = test if value else nodes.Not(test, lineno=loop.lineno)
                leave = nodes.Break(lineno=loop.lineno)
                loop.body.insert(0, nodes.If(asked, [leave], [], [], lineno=loop.lineno))
                break


_USES: _Kinds = (nodes.Name, nodes.Getattr, nodes.Assign, nodes.Call, nodes.For, nodes.With)
_USES += (nodes.Macro, nodes.CallBlock)


def _expressions(node: Any) -> list[Any]:
    """Return the expressions of a node whose values get names, or are looped over."""
    if isinstance(node, (nodes.Macro, nodes.CallBlock)):
        return list(node.defaults)
    if isinstance(node, nodes.With):
        return list(node.values)
    if isinstance(node, nodes.For):
        return [node.iter]
    return [node.node if isinstance(node, nodes.Assign) else node]


def _conditionals(tree: nodes.Node) -> dict[int, tuple[Body, nodes.If]]:
    """Return of the parts of each {% if %} the statements that it is one of, and itself."""
    return {
        id(part): (body, node)
        for body, node in _blocks(tree, nodes.If)
        for part in (node.body, node.elif_, node.else_)
    }


class _Uses:
    """What a template, or a part of it, does with each name."""

    def __init__(self, tree: nodes.Node) -> None:
        self.given: dict[str, list[Any]] = {}  # by {% set %}
        self.attributes: dict[tuple[str, str], list[Any]] = {}  # what those of namespaces are given
        self.loads: Counter[str] = Counter()
        self.stores: Counter[str] = Counter()
        self.reads: Counter[tuple[str, str]] = Counter()  # of attributes
        self.reads_of: Counter[str] = Counter()
        self._around = _conditionals(tree)
        sources: list[Any] = []
        for node in tree.find_all(_USES):
            if isinstance(node, nodes.Name):
                (self.loads if node.ctx == "load" else self.stores)[node.name] += 1
            elif isinstance(node, nodes.Getattr):
                if isinstance(node.node, nodes.Name):
                    self.reads[node.node.name, node.attr] += 1
                    self.reads_of[node.node.name] += 1
            else:
                sources += _expressions(node)
                if isinstance(node, nodes.Assign):
                    self._assign(node.target, node.node)
                elif isinstance(node, nodes.Macro):
                    self.stores[node.name] += 1
        filters = (each for node in sources for each in (node, *node.find_all(nodes.Filter)))
        # Whether a variable may be an iterator: then others can see how far a loop went.
        self.has_iterators = any(isinstance(x, nodes.Filter) and x.name in LAZY for x in filters)
        self.has_iterators |= self.loads["loop"] > self.reads_of["loop"]

    def _assign(self, target: Any, value: Any) -> None:
        if isinstance(target, nodes.NSRef):
            self.attributes.setdefault((target.name, target.attr), []).append(value)
        elif isinstance(target, nodes.Name):
            self.given.setdefault(target.name, []).append(value)

    def is_over_a_list(self, node: Any) -> bool:
        """Return True if no one can see how far a loop went, because it is not over an iterator."""
        if isinstance(node, nodes.Call):
            return bool(node.node == nodes.Name("range", "load")) and not self.stores["range"]
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            node = node.node
        return isinstance(node, nodes.Name) and not self.has_iterators

    def assigned(self, name: str) -> list[Any]:
        """Return all values that a variable gets; none, if it gets others than by {% set %}."""
        values = self.given.get(name, [])
        return values if len(values) == self.stores[name] else []

    def made_before(self, name: str, body: Body, loop: nodes.Node) -> Any:
        """Return the value that a name gets before each run of a loop; None if unknown."""
        made, is_known = None, True
        for node in body[: next(i for i, node in enumerate(body) if node is loop)]:
            if isinstance(node, nodes.Assign) and node.target == nodes.Name(name, "store"):
                made, is_known = node.node, True
            elif name in _stored(node):
                made, is_known = None, False
        if made is None and is_known and id(body) in self._around:
            return self.made_before(name, *self._around[id(body)])
        return made

    def is_namespace(self, name: str) -> bool:
        """Return True if a name is always one of a new namespace, which has no other name."""
        given = self.assigned(name)
        return (
            bool(given)
            and not self.stores["namespace"]
            and all(map(_is_namespace, given))
            and self.loads[name] == self.reads_of[name]
        )


def _is_namespace(node: Any) -> bool:
    is_call = isinstance(node, nodes.Call) and node.node == nodes.Name("namespace", "load")
    return is_call and not (node.args or node.dyn_args or node.dyn_kwargs)


def _conditions(uses: _Uses, body: Body, loop: nodes.For) -> list[tuple[Any, bool]]:
    """Return tests in a loop that may keep one value from some iteration on, and that value.

    They never fail: what they read is set before.
    """
    changed = {"loop", *(name.name for name in loop.find_all(nodes.Name) if name.ctx == "store")}
    found: list[tuple[Any, bool]] = []
    for flag in itertools.islice(loop.find_all(nodes.NSRef), _TESTS // 2):
        if flag.name not in changed and _is_namespace(uses.made_before(flag.name, body, loop)):
            of = nodes.Name(flag.name, "load", lineno=loop.lineno)
            found.append((nodes.Getattr(of, flag.attr, "load", lineno=loop.lineno), True))
    tests = nodes.List([branch.test for branch in loop.find_all(nodes.If)])
    parts: Iterator[Any] = tests.find_all((nodes.Getattr, nodes.Compare))
    for test in parts:
        if isinstance(test, nodes.Getattr):
            name = getattr(test.node, "name", "loop")
            if name not in changed and _is_namespace(uses.made_before(name, body, loop)):
                found.append((test, True))
        elif _is_place(test.expr) and len(test.ops) == 1 and test.ops[0].op in ("lt", "lteq"):
            limit = test.ops[0].expr
            if isinstance(limit, nodes.Name) and limit.name not in changed:
                given = uses.assigned(limit.name)
                is_set = uses.made_before(limit.name, body, loop) is not None
                if is_set and given and all(map(_is_place, given)):
                    found.append((test, False))
        if len(found) == _TESTS:
            break
    return found


def _is_place(node: Any) -> bool:
    """Return True for the number of an iteration."""
    is_of_loop = isinstance(node, nodes.Getattr) and node.node == nodes.Name("loop", "load")
    return is_of_loop and node.attr in ("index", "index0")


_SAFE_TESTS = {"defined", "undefined", "none", "mapping", "string", "number", "boolean"}


def _keyword(call: Any, name: str) -> list[Any]:
    return [each for each in call.kwargs if each.key == name]


def _all_names(node: Any) -> list[nodes.Name]:
    return list(nodes.List([node]).find_all(nodes.Name))


def _stored(node: nodes.Node) -> set[str]:
    return {"loop", *(name.name for name in _all_names(node) if name.ctx != "load")}


def _targets(loop: nodes.For) -> set[str]:
    """Return the name of a loop's items, unless it gets other values, too."""
    target = loop.target
    body: list[Any] = loop.body
    inside = set[str]().union(*map(_stored, body))
    return {target.name} if isinstance(target, nodes.Name) and target.name not in inside else set()


class _Idle:
    """Whether statements of a loop have no effect if a test has a value.

    `body` are the statements that the loop is one of.
    """

    def __init__(self, uses: _Uses, body: Body, loop: nodes.For, test: Any, value: bool) -> None:
        self._uses, self._loop, self._test, self._value = uses, loop, test, value
        self._body = body
        self._depth = 0  # of loops inside of it
        self._items = _targets(loop)  # names of what the loops go through
        self._true: list[Any] = []  # what is true where a statement is

    def all(self, statements: Iterable[Any]) -> bool:
        return all(map(self._is_idle, statements))

    def _is_idle(self, node: Any) -> bool:
        if isinstance(node, nodes.Output):
            return all(isinstance(x, nodes.TemplateData) and not x.data for x in node.nodes)
        if isinstance(node, nodes.If):
            return self._branches([node, *node.elif_], node.else_)
        if isinstance(node, nodes.For):
            return self._inner(node)
        if not isinstance(node, nodes.Assign) or not self._is_safe(node.node):
            return False
        target = node.target
        return isinstance(target, nodes.Name) or (
            isinstance(target, nodes.NSRef) and self._is_lost(target, node.node)
        )

    def _branches(self, branches: list[Any], otherwise: Body) -> bool:
        for node in branches:
            if not self._is_safe(node.test):
                return False
            known = self._known(node.test)
            if known is not False and not self._if_true(node.test, self.all, node.body):
                return False
            if known:
                return True
        return self.all(otherwise)

    def _if_true(self, test: Any, check: Callable[[Any], bool], argument: Any) -> bool:
        """Return what a check finds where a test is true."""
        before, tests = list(self._true), [test]
        while tests:
            test = tests.pop()
            if all(name.name in self._items for name in _all_names(test)):
                self._true.append(test)
            tests += [test.left, test.right] if isinstance(test, nodes.And) else []
        found = check(argument)
        self._true = before
        return found

    def _is_safe(self, node: Any) -> bool:
        """Return True if an expression has no effect, and doesn't fail."""
        if node == self._test or isinstance(node, (nodes.Name, nodes.Const)):
            return True
        if isinstance(node, (nodes.Getattr, nodes.Getitem)):
            is_name = isinstance(node, nodes.Getattr) or isinstance(node.arg, nodes.Const)
            return is_name and self._is_there(node.node)
        if isinstance(node, (nodes.And, nodes.Or)):
            if not self._is_safe(node.left):
                return False
            known = self._known(node.left)
            if known is isinstance(node, nodes.Or):  # the rest isn't evaluated
                return True
            if isinstance(node, nodes.And):
                return self._if_true(node.left, self._is_safe, node.right)
            return self._is_safe(node.right)
        if isinstance(node, nodes.Not):
            return self._is_safe(node.node)
        if isinstance(node, nodes.Test):
            return node.name in _SAFE_TESTS and not node.args and self._is_safe(node.node)
        return self._compares(node) if isinstance(node, nodes.Compare) else self._is_number(node)

    def _compares(self, node: nodes.Compare) -> bool:
        op, other = node.ops[0].op, node.ops[0].expr
        if op in ("in", "notin") and isinstance(node.expr, nodes.Const):
            is_safe = self._is_item(other) and not self._uses.has_iterators
        else:
            is_safe = op in ("eq", "ne") and self._is_safe(node.expr) and self._is_safe(other)
        return is_safe and len(node.ops) == 1

    def _is_item(self, node: Any) -> bool:
        return isinstance(node, nodes.Name) and node.name in self._items

    def _is_there(self, node: Any) -> bool:
        """Return True if an expression has a value."""
        if self._is_item(node) or node in self._true or node == nodes.Name("loop", "load"):
            return True
        return isinstance(node, nodes.Name) and self._made(node.name) is not None

    def _made(self, name: str) -> Any:
        """Return the call that makes the namespace of a name before the loop, or None."""
        made = self._uses.made_before(name, self._body, self._loop)
        return made if made is not None and self._uses.is_namespace(name) else None

    def _is_number(self, node: Any, of: tuple[str, str] | None = None) -> bool:
        """Return True for an integer; `of` is the attribute whose values these are."""
        if isinstance(node, (nodes.Add, nodes.Sub)):
            return self._is_number(node.left, of) and self._is_number(node.right, of)
        if isinstance(node, nodes.Const):
            return type(node.value) is int
        if not isinstance(node, nodes.Getattr) or not isinstance(node.node, nodes.Name):
            return False
        key = node.node.name, node.attr
        if _is_place(node) or key == of:
            return True
        if self._made(key[0]) is None or of is not None:
            return False
        made = [x.value for value in self._uses.assigned(key[0]) for x in _keyword(value, key[1])]
        values = [*made, *self._uses.attributes.get(key, [])]
        is_set = len(made) == len(self._uses.assigned(key[0]))
        return is_set and all(self._is_number(value, key) for value in values)

    def _inner(self, node: nodes.For) -> bool:
        is_list = node.iter in self._true and not self._uses.has_iterators
        if not (_is_plain(node) and is_list and self._is_safe(node.iter)):
            return False
        before = self._items, self._true
        stored = _stored(node)
        self._items = (self._items - stored) | _targets(node)
        self._true = [x for x in self._true if not stored & {n.name for n in _all_names(x)}]
        self._depth += 1
        found = self.all(node.body)
        self._depth -= 1
        self._items, self._true = before
        return found

    def _known(self, node: Any) -> bool | None:
        """Return the value of a test if it is known."""
        if node == self._test and not (self._depth and isinstance(node, nodes.Compare)):
            return self._value
        if isinstance(node, nodes.Not):
            found = self._known(node.node)
            return None if found is None else not found
        if isinstance(node, (nodes.And, nodes.Or)):
            found, other = self._known(node.left), self._known(node.right)
            decides = isinstance(node, nodes.Or)
            if decides in (found, other):
                return decides
            return None if None in (found, other) else not decides
        return None

    def _is_lost(self, target: nodes.NSRef, value: Any) -> bool:
        """Return True if nobody sees that an attribute of a namespace is set."""
        key, uses = (target.name, target.attr), self._uses
        made = self._made(target.name)
        if made is None:
            return False
        if self._test == nodes.Getattr(nodes.Name(key[0], "load"), key[1], "load"):
            # The flag, which is set again.
            values = uses.attributes[key] + [x.value for x in _keyword(made, key[1])]
            is_bool = all(isinstance(x, nodes.Const) and type(x.value) is bool for x in values)
            return is_bool and bool(value == nodes.Const(True))
        return _Uses(self._loop).reads[key] == uses.reads[key]
