"""Chat templates in Jinja, rendered so that each character's origin is known.

Templates are compiled with one change: their constants, and the text outside of their
tags, are marked as the template's own.  Everything else that they print comes from their
input.  Jinja's sandbox limits what a template may do, and a budget limits how much: see
budget.py.  Filters, globals and options are those of HuggingFace's ``apply_chat_template``,
so templates render as they do there.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from string import Formatter
from typing import Any

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.compiler import operators
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.chat import beginnings, jinja_version, limits, loops
from bpe_tokenizer_tools.chat.budget import Budget, current, limited
from bpe_tokenizer_tools.chat.marked_text import (
    TEMPLATE,
    UNKNOWN,
    Marked,
    Origin,
    asked_size,
    concat,
    joint,
    named,
)

if not jinja_version.is_usable():
    raise ImportError(
        "a Jinja chat template needs jinja2 3.1.6, whose sandbox is safe, not "
        f"{jinja2.__version__}: pip install -U jinja2"
    )

# -- Filters and globals -------------------------------------------------------


class _Html(Marked):
    """Text after Jinja's ``safe``: added text gets its HTML characters escaped."""

    def __add__(self, other: str) -> Marked:
        return _Html._make(*_joined(self, other if isinstance(other, _Html) else _escape(other)))

    def __radd__(self, other: str) -> Marked:
        return _Html._make(*_joined(_escape(other), self))


named(_Html, "Markup")


def _escape(text: str) -> Marked:
    return Marked(text).escaped()


def _joined(*parts: str) -> tuple[str, Any]:
    made = concat(parts)
    return made.plain, made._runs


@functools.lru_cache(maxsize=1024)
def _own_text(value: str) -> Marked:
    return Marked(value, TEMPLATE)


def _own(value: Any) -> Any:
    """Mark a constant of a template, with everything in it."""
    if type(value) is str:
        return _own_text(value)
    if isinstance(value, str):  # it may already be marked
        return Marked(value, TEMPLATE)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_own, value))
    if isinstance(value, dict):
        return {_own(key): _own(item) for key, item in value.items()}
    return value


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> Marked:
    """Write JSON as HuggingFace does; it is the template's own if all strings in it are."""
    budget, found = current(), dict[Origin, None]()
    margin = indent if isinstance(indent, int) else len(indent or "")
    margin += sum(map(len, separators or ()))
    budget.need(6 * _survey((value, indent, separators), found, budget, margin))
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    origins = list(found)
    given = [origin for origin in origins if not origin.trusted] or origins or [UNKNOWN]
    return Marked(text, joint(given))


def _survey(
    value: Any, found: dict[Origin, None], budget: Budget, margin: int, depth: int = 0
) -> int:
    """Note who wrote the strings in a value; return about how long its JSON is."""
    if isinstance(value, str):
        origins = value._runs if isinstance(value, Marked) else ((0, UNKNOWN),)
        found.update((origin, None) for _, origin in origins)
        budget.scan(value)
        return len(value)
    if isinstance(value, Mapping):
        items: Iterable[Any] = (each for pair in value.items() for each in pair)
    elif isinstance(value, (list, tuple)):
        items = value
    else:
        return 32
    budget.step(1 + len(value) // 4)
    size = len(value) * (4 + margin * (depth + 1))
    return size + sum(_survey(each, found, budget, margin, depth + 1) for each in items)


def _join(values: Iterable[Any], d: str = "", attribute: Any = None) -> Marked:
    if attribute is not None:
        raise ValueError("join(attribute=...) is not supported; map(attribute=...) first")
    return Marked(str(d)).join(map(limits.as_text, values))


def _indent(text: str, width: Any = 4, first: bool = False, blank: bool = False) -> Marked:
    """Indent the lines after the first, as Jinja's own filter does."""
    lines = (Marked(limits.as_text(text)) + Marked("\n", TEMPLATE)).splitlines()
    current().need(4 * len(lines) * (len(width) if isinstance(width, str) else width))
    margin = width if isinstance(width, str) else Marked(" " * width, TEMPLATE)
    made: list[str] = [margin] if first else []
    for i, line in enumerate(lines):
        if i:
            made.append(Marked("\n", TEMPLATE))
        made += [margin, line] if i and (line or blank) else [line]
    return concat(made)


def _trim(value: Any, chars: str | None = None) -> str:
    if type(value) is not Marked:
        value = limits.as_text(value)
    current().step(1 + (len(value) >> 10))
    return Marked(value).strip(chars)


def _refuse(message: Any) -> None:
    said = limits.as_text(message)
    raise beginnings.Refused(f"the chat template refuses this conversation: {said}")


def _strftime_now(form: str) -> str:
    if len(form) > 1_000:
        raise ValueError(f"strftime_now: a format of {len(form):,} characters; the limit is 1,000")
    return datetime.datetime.now().strftime(form)


# -- Results -------------------------------------------------------------------


def _kept(value: Any) -> Any:
    """Return what a call made, its text marked, after paying for a list."""
    if isinstance(value, str):
        if type(value) is str:
            return Marked(value)
        return value if isinstance(value, Marked) else _Html._make(*_joined(str(value)))
    if type(value) in (list, tuple):
        current().take(64 + 8 * len(value))
    return value


def _added(left: Any, right: Any) -> Any:
    made = left + right
    return made if type(made) in (Marked, int) else _kept(made)


def _limited_filter(name: str, plain: Any) -> Any:
    """Return a filter that pays for what it does."""
    first = 1 if hasattr(plain, "jinja_pass_arg") else 0

    @functools.wraps(plain)
    def run(*args: Any, **kwargs: Any) -> Any:
        depth, items = limits.filtered(name, args[first:], kwargs)
        made = _kept(plain(*args, **kwargs))
        if type(made) is types.GeneratorType:
            current().lazy[id(made)] = depth + 1, items
        return made

    return run


# -- The environment -----------------------------------------------------------


def _is_loop(text: str) -> bool:
    """Return True if this is how the compiler begins a loop that uses `loop`."""
    return text.startswith(", ") and text.endswith(" in LoopContext(")


class MarkingGenerator(core.marking_generator(jinja2)):  # type: ignore[misc]
    """Marks the constants of a template, joins so that marks are kept, and pays for what runs."""

    def write(self, text: str) -> None:
        super().write(text.replace("LoopContext(", "environment.loop(") if _is_loop(text) else text)

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("step = environment.budget().step")

    def visit_EnvironmentAttribute(self, node: Any, frame: Any) -> None:
        self.write(f"step({node.name})")  # see Environment._generate

    def visit_Add(self, node: Any, frame: Any) -> None:
        if _is_text(node):
            super().visit_Add(node, frame)
            return
        self._wrapped("added", node.left, frame)
        self.write(", ")
        self.visit(node.right, frame)
        self.write(")")

    def visit_Compare(self, node: Any, frame: Any) -> None:
        if len(node.ops) == 1 and node.ops[0].op in ("eq", "ne") and _is_last(node.ops[0].expr):
            self.write("(" if node.ops[0].op == "eq" else "(not ")
            self._wrapped("equals_last", node.expr, frame)
            self.write(", ")
            self.visit(node.ops[0].expr.node, frame)
            self.write("))")
            return
        sides = [node.expr, *(op.expr for op in node.ops)]
        known = [isinstance(side, nodes.Const) or _is_constant_list(side) for side in sides]
        self.write("(")
        for i, side in enumerate(sides):
            op = node.ops[i - 1].op if i else ""
            self.write(f" {operators[op]} " if op else "")
            beside = known[max(i - 1, 0) : i] + known[i + 1 : i + 2]
            if op.endswith("in"):
                wrapper = "" if known[i] else "searched"
            else:
                wrapper = "" if known[i] or all(beside) else "compared"
            if wrapper:
                self._wrapped(wrapper, side, frame)
                self.write(")")
            else:
                self.visit(side, frame)
        self.write(")")

    def visit_Dict(self, node: Any, frame: Any) -> None:
        self.write("{")
        for item in node.items:
            if isinstance(item.key, nodes.Const):
                self.visit(item.key, frame)
            else:
                self._wrapped("compared", item.key, frame)
                self.write(")")
            self.write(": ")
            self.visit(item.value, frame)
            self.write(", ")
        self.write("}")

    def visit_Getitem(self, node: Any, frame: Any) -> None:
        if isinstance(node.arg, nodes.Const):
            super().visit_Getitem(node, frame)
        elif isinstance(node.arg, nodes.Slice):
            self.write("environment.kept(")
            super().visit_Getitem(node, frame)
            self.write(")")
        else:
            self._wrapped("getitem", node.node, frame)
            self.write(", ")
            self._wrapped("compared", node.arg, frame)
            self.write("))")

    def visit_Filter(self, node: Any, frame: Any) -> None:
        if node.name != _OVER:
            super().visit_Filter(node, frame)
            return
        self._wrapped("over", node.node, frame)
        for arg in node.args:
            self.write(", ")
            self.visit(arg, frame)
        self.write(f", {frame.buffer})")  # the list that the loop's text goes to; None: the output

    def _wrapped(self, name: str, node: Any, frame: Any) -> None:
        self.write(f"environment.{name}(")
        self.visit(node, frame)

    def _output_child_pre(self, node: Any, frame: Any, finalize: Any) -> None:
        if frame.eval_ctx.volatile or frame.eval_ctx.autoescape:
            super()._output_child_pre(node, frame, finalize)
        self.write("environment.as_text(")

    def _output_child_post(self, node: Any, frame: Any, finalize: Any) -> None:
        self.write(")")
        if frame.eval_ctx.volatile or frame.eval_ctx.autoescape:
            super()._output_child_post(node, frame, finalize)

    def visit_Const(self, node: Any, frame: Any) -> None:
        value = node.as_const(frame.eval_ctx)
        if isinstance(value, (list, tuple, dict)):
            self.write(f"environment.own({value!r})")
        else:
            super().visit_Const(node, frame)

    def visit_Concat(self, node: Any, frame: Any) -> None:
        self.write("environment.concat(map(environment.as_text, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")


def _is_constant_list(node: Any) -> bool:
    """Return True for a list of constants: comparing with it costs nothing."""
    is_list = isinstance(node, (nodes.List, nodes.Tuple))
    return is_list and all(isinstance(item, nodes.Const) for item in node.items)


def _is_last(node: Any) -> bool:
    """Return True for `items[-1]`."""
    return isinstance(node, nodes.Getitem) and node.arg == nodes.Neg(nodes.Const(1))


def _is_text(node: Any) -> bool:
    """Return True for a sum that can only be text: a part of it is."""
    if isinstance(node, nodes.Add):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, nodes.Const) and isinstance(node.value, str)


def _cost(node: nodes.Node) -> str:
    """Return the steps of going through a part of a template once, and the bytes of its lists."""
    parts = list(node.find_all(nodes.Node))
    lists = [each for each in parts if isinstance(each, (nodes.List, nodes.Tuple, nodes.Dict))]
    sizes = (
        64 + (168 if isinstance(each, nodes.Dict) else 0) + 32 * len(each.items) for each in lists
    )
    return f"{1 + len(parts) // 8}, {sum(sizes)}"


_OVER = "over messages"  # the filter around what a watched loop goes through
_OBJECT = 512  # bytes; what a call may make besides text
_LARGE_METHODS = {"fromkeys", "to_bytes", "from_bytes"}


class Environment(ImmutableSandboxedEnvironment):
    """Joins text so that marks are kept."""

    code_generator_class = MarkingGenerator
    intercepted_binops = frozenset(["*", "**", "%"])
    concat = staticmethod(concat)
    own = staticmethod(_own)
    budget = staticmethod(current)
    added, kept = staticmethod(_added), staticmethod(_kept)
    as_text = staticmethod(limits.as_text)
    compared, searched = staticmethod(limits.compared), staticmethod(limits.searched)
    loop, over = staticmethod(beginnings.loop_context), staticmethod(beginnings.over)

    follows = False  # whether loops over messages are watched

    def _generate(self, source: nodes.Template, *rest: Any, **more: Any) -> str:
        loops.leave_when_done(source)
        for node in list[Any](source.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
            cost = nodes.EnvironmentAttribute(_cost(node), lineno=node.lineno)
            if isinstance(node, nodes.For) and node.test:
                node.test = nodes.And(cost, node.test, lineno=node.lineno)
            node.body.insert(0, nodes.ExprStmt(cost, lineno=node.lineno))
        for i, watched in enumerate(loops.to_watch(source) if self.follows else ()):
            names: list[nodes.Expr] = [nodes.Name(name, "load") for name in watched.names]
            given: list[nodes.Expr] = [nodes.Const(i), nodes.List(names)]
            over = nodes.Filter(watched.loop.iter, _OVER, given, [], None, None)
            over.set_environment(self)
            watched.loop.iter = over
            if watched.compared:
                self._watch(watched, f"_compared_{i}")
                names.append(nodes.Name(f"_compared_{i}", "load"))
        return super()._generate(source, *rest, **more)

    def _watch(self, watched: loops.Watched, name: str) -> None:
        """Let a loop read variables that it only compares from a namespace, which is watched."""
        body, loop, found = watched.body, watched.loop, watched.compared
        values = [nodes.Pair(nodes.Const(f"of_{x}"), nodes.Name(x, "load")) for x in found]
        made = nodes.Filter(nodes.Dict(values), "as namespace", [], [], None, None)
        at = next(i for i, node in enumerate(body) if node is loop)
        body.insert(at, nodes.Assign(nodes.Name(name, "store"), made, lineno=loop.lineno))
        for each, sides in found.items():
            for side in sides:
                side.expr = nodes.Getattr(nodes.Name(name, "load"), f"of_{each}", "load")
        for node in (body[at], loop):
            node.set_environment(self)

    def equals_last(self, value: Any, items: Any) -> bool:
        """Compare with the last item."""
        limits.compared(value)
        found = beginnings.ends_with(items, value)
        if found is None:
            found = value == limits.compared(self.getitem(items, -1))
        return bool(found)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        limits.operate(operator, left, right)
        return _kept(super().call_binop(context, operator, left, right))

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = current()
        budget.step(1 + len(args) + len(kwargs), _OBJECT)
        if type(obj) is Macro:
            return context.call(obj, *args, **kwargs)
        owner = getattr(obj, "__self__", None)
        if not isinstance(owner, (str, dict)):  # for these, Jinja's own `call` does nothing more
            for value in (owner, *args) if isinstance(owner, (list, tuple)) else args:
                limits.compared(value)
            made = super().call(context, obj, *args, **kwargs)
            if obj is dict:
                budget.take(100 * len(made))
            return _kept(made)
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        if isinstance(owner, str):
            limits.method(obj.__name__, owner, args, kwargs)
            return _kept(obj(*args, **kwargs))
        for value in args:
            limits.compared(value)
        if obj.__name__ == "copy":
            budget.take(100 * len(owner))
        return obj(*args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow only what every string has."""
        is_ours = isinstance(obj, Marked) and not hasattr(str, attr)
        is_large = attr in _LARGE_METHODS or (isinstance(obj, bytes) and attr != "decode")
        return not (is_ours or is_large) and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Any:
        text, name = getattr(value, "__self__", None), getattr(value, "__name__", "")
        if name not in ("format", "format_map") or not isinstance(text, str):
            return super().wrap_str_format(value)
        form, formatter = Marked(text), _Formatter(self)
        if name == "format_map":
            return lambda values: _format(formatter, form, (), values)
        return lambda *args, **kwargs: _format(formatter, form, args, kwargs)


class Generation(Extension):
    """The tag {% generation %}, around the assistant's text."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja has it

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller: Any) -> Marked:
        return concat(
            Marked(text, origin._replace(generated=True)) for text, origin in caller().runs()
        )


class PlainNamespace(Namespace):
    """Has no attributes that Python gives a meaning to; a loop that is watched knows of it."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("_Namespace__attrs", "__class__"):
            return object.__getattribute__(self, name)
        own = object.__getattribute__(self, "__dict__")
        value = own["_Namespace__attrs"].get(name, beginnings.MISSING)
        loop, place = own.get("_watch") or (None, 0)
        if loop is not None:
            value = loop._read(place, name, value)
        if value is beginnings.MISSING:
            raise AttributeError(name)
        return value

    def __repr__(self) -> str:
        return "<Namespace>"  # what it has may be too long to print

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise ValueError(f"a chat template sets the attribute {name!r} of a namespace")
        value = beginnings.plain(value)
        loop, place = object.__getattribute__(self, "__dict__").get("_watch") or (None, 0)
        if loop is not None:
            loop._write(place, name, value)
        super().__setitem__(name, value)


named(PlainNamespace, "Namespace")


class _Compared(beginnings.Compared, PlainNamespace):
    """Has the variables that a loop only compares."""


class _Formatter(SandboxedFormatter):
    """Pays for each field before it is written."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        budget = current()
        budget.step()
        budget.need(4 * sum(map(asked_size, re.findall(r"\d+", format_spec))))
        is_text = isinstance(value, str)
        made = super().format_field(
            value if is_text or format_spec else limits.as_text(value), format_spec
        )
        budget.take(len(made))
        return made

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion:
            text = limits.as_text(value)
            current().need(10 * len(text))
        return super().convert_field(value, conversion)


def _format(formatter: Formatter, form: Marked, args: Any, kwargs: Any) -> Marked:
    """Do what ``str.format`` does, in the sandbox.

    NOTE: if users wrote part of the format, they decide what goes where, and the names of its
    fields may look like the template's text.  So the result counts as theirs.
    """
    expected = formatter.vformat(form.plain, args, kwargs)
    if not form.trusted:
        return Marked(expected)
    made: list[str] = []
    at = count = 0
    for own, field, spec, conversion in formatter.parse(form.plain):
        start = form.find(own, at)
        made.append(form[start : start + len(own)])
        at = start + len(own)
        if field is not None:
            name, count = (str(count), count + 1) if field == "" else (field, count)
            value, _ = formatter.get_field(name, args, kwargs)
            if spec or conversion:
                how = (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
                value = formatter.vformat(f"{{{name}{how}}}", args, kwargs)
            made.append(str(value))
    whole = concat(made)
    return whole if whole.plain == expected else Marked(expected)


def _selecting(name: str) -> Any:
    """Return a filter of that name which goes through messages once, for all renderings."""
    plain = _ENVIRONMENT.filters[name]

    @jinja2.pass_context
    def select(context: Any, value: Any, *args: Any) -> Any:
        key = (name, *(each.plain if isinstance(each, Marked) else each for each in args))
        found = beginnings.selected(value, key, lambda each: [*plain(context, [each], *args)] != [])
        return plain(context, value, *args) if found is None else found

    return select


def _of_number(test: Any) -> Any:
    return lambda value: isinstance(value, beginnings.Number) or test(value)


_ENVIRONMENT: Any = Environment(
    trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[Generation, loopcontrols]
)
_ENVIRONMENT.filters.update(
    {
        "tojson": _tojson,
        "join": _join,
        "indent": _indent,
        "trim": _trim,
        "safe": lambda value: _Html._make(*_joined(limits.as_text(value))),
        "length": beginnings.length,
        "count": beginnings.length,
        "list": beginnings.as_list,
        "selectattr": _selecting("selectattr"),
        "rejectattr": _selecting("rejectattr"),
        _OVER: beginnings.over,
        "as namespace": _Compared,
    }
)
_ENVIRONMENT.globals.update(
    raise_exception=_refuse,
    strftime_now=_strftime_now,
    namespace=PlainNamespace,
    range=beginnings.numbers,
)
for _known in (_ENVIRONMENT.filters, _ENVIRONMENT.tests, _ENVIRONMENT.globals):
    for _name, _plain in _known.items():
        is_ours = getattr(_plain, "__module__", "").startswith("bpe_tokenizer_tools.")
        if is_ours and isinstance(_plain, types.FunctionType):
            _plain.__qualname__ = _name  # errors about its arguments begin with it
for _name, _plain in _ENVIRONMENT.filters.items():
    if _name not in limits.FREE_FILTERS:
        _ENVIRONMENT.filters[_name] = _limited_filter(_name, _plain)
for _name, _plain in _ENVIRONMENT.tests.items():
    _ENVIRONMENT.tests[_name] = limits.limited_test(_name, _plain)
_ENVIRONMENT.tests["sameas"] = lambda value, other: (
    beginnings.plain(value) is beginnings.plain(other)
)
for _kind in ("number", "integer"):
    _ENVIRONMENT.tests[_kind] = _of_number(_ENVIRONMENT.tests[_kind])
del _ENVIRONMENT.globals["lipsum"]  # random Latin text of any length
_FOLLOWING = _ENVIRONMENT.overlay()
_FOLLOWING.follows = True


@functools.lru_cache(maxsize=64)
def _compile(source: str, environment: Environment = _ENVIRONMENT) -> Any:
    return core.compile_in(environment, source)


def check(source: str) -> None:
    """Raise ValueError, with the line, unless a template is valid Jinja."""
    _compile(source)


def parse(source: str) -> Any:
    """Return the syntax tree of a template that compiles."""
    return _ENVIRONMENT.parse(source)


def constants_read(source: str) -> set[str]:
    """Return the constants that a template compares with or passes to methods.

    These are the strings that it searches in contents, as in ``'</think>' in content`` and
    ``content.split('</think>')``.
    """
    tree = parse(source)
    inside: list[nodes.Node] = list(tree.find_all(nodes.Compare))
    for call in tree.find_all((nodes.Call, nodes.Filter, nodes.Test)):
        if not isinstance(call, nodes.Call) or isinstance(call.node, nodes.Getattr):
            inside += call.args
    # A wrapper, as `find_all` leaves out the node itself.
    constants = nodes.List(inside).find_all(nodes.Const)
    return {const.value for const in constants if isinstance(const.value, str)}


@functools.lru_cache(maxsize=32)
def variables(source: str) -> frozenset[str]:
    """Return the names of the variables that a template reads and doesn't set."""
    _compile(source)  # raises an error that says what is wrong
    return frozenset(jinja2.meta.find_undeclared_variables(parse(source)))


@functools.lru_cache(maxsize=32)
def has_generation(source: str) -> bool:
    """Return True if a template has the tag {% generation %}, even where it isn't rendered."""
    methods = parse(source).find_all(nodes.ExtensionAttribute)
    return any(each.name == "_mark" for each in methods)


@functools.lru_cache(maxsize=32)
def searches(source: str) -> bool:
    """Return True if a template goes through all messages for each of them."""
    return loops.searches(parse(source))


# Names from our own code in errors, which mean nothing to a template's author.
_OUR_MODULES = re.compile(r"\bbpe_tokenizer_tools(\.\w+)+\.(?=\w)")
_OUR_FUNCTIONS = re.compile(r"^([\w.<>]*\.)?(_\w+|<lambda>)\(\)(?= (missing|takes|got) )")


def render(source: str, messages: Any, add_generation_prompt: bool, /, **variables: Any) -> Marked:
    """Render a template.

    Raises:
        ValueError: it is not valid Jinja, or it fails on or rejects its input.
    """
    template = _compile(source)
    given = {"messages": messages, "add_generation_prompt": add_generation_prompt, **variables}
    try:
        with limited(given):
            return Marked(template.render(given))
    except ValueError:
        raise
    except Exception as error:  # whatever the template does with this conversation
        kind = type(error).__name__
        said = _OUR_MODULES.sub("", _OUR_FUNCTIONS.sub("a function", str(error)))
        raise ValueError(f"the chat template failed on this conversation: {kind}: {said}") from None


def parts(
    source: str, messages: Any, add_generation_prompt: bool, /, **variables: Any
) -> Iterator[str]:
    """Yield a template's output bit by bit; raise the errors of `render`, or any other."""
    template = _compile(source, _FOLLOWING)
    given = {"messages": messages, "add_generation_prompt": add_generation_prompt, **variables}
    with limited(given):
        yield from template.root_render_func(template.new_context(given))
