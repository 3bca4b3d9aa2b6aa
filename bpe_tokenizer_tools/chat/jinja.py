"""Chat templates in Jinja, rendered so that each character's origin is known.

Templates are compiled with one change: their constants, and the text outside of their
tags, are marked as the template's own.  All else that they print was given to them, or
made of what was given to them.  What a template may do is bounded by Jinja's sandbox;
filters, globals and options are those of HuggingFace's ``apply_chat_template``, so that
its templates render as they do there.
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from string import Formatter
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace

from bpe_tokenizer_tools.chat import beginnings
from bpe_tokenizer_tools.chat.marked_text import (
    MAX_LENGTH,
    TEMPLATE,
    UNKNOWN,
    Marked,
    Origin,
    concat,
)

if tuple(map(int, jinja2.__version__.split(".")[:3])) < (3, 1, 6):
    raise ImportError(
        "a Jinja chat template needs jinja2 3.1.6, whose sandbox is safe, not "
        f"{jinja2.__version__}: pip install -U jinja2"
    )

# -- Filters and globals -------------------------------------------------------


class _Html(Marked):
    """Text after Jinja's ``safe``: what is added to it has HTML's characters replaced."""

    def __add__(self, other: str) -> Marked:
        return _Html._make(*_joined(self, other if isinstance(other, _Html) else _escape(other)))

    def __radd__(self, other: str) -> Marked:
        return _Html._make(*_joined(_escape(other), self))


def _escape(text: str) -> Marked:
    return Marked(text).escaped()


def _joined(*parts: str) -> tuple[str, Any]:
    made = concat(parts)
    return made.plain, made._runs


@functools.lru_cache(maxsize=1024)
def _own_text(value: str) -> Marked:
    return Marked(value, TEMPLATE)


def _own(value: Any) -> Any:
    """Mark a constant of a template, with all that is in it."""
    if type(value) is str:
        return _own_text(value)
    if isinstance(value, str):  # marked already, perhaps
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
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    origins = list(dict.fromkeys(_origins((value, indent, separators))))
    given = [origin for origin in origins if not origin.trusted] or origins or [UNKNOWN]
    return Marked(text, given[0]._replace(answer=all(origin.answer for origin in given)))


def _origins(value: Any) -> Iterator[Origin]:
    if isinstance(value, str):
        for _, origin in Marked(value).runs():
            yield origin
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from _origins(pair)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _origins(item)


def _join(values: Iterable[Any], d: str = "", attribute: Any = None) -> Marked:
    if attribute is not None:
        raise ValueError("join(attribute=...) is not supported; map(attribute=...) first")
    return Marked(str(d)).join(map(str, values))


def _indent(text: str, width: Any = 4, first: bool = False, blank: bool = False) -> Marked:
    """Indent the lines after the first, as Jinja's own filter does."""
    margin = width if isinstance(width, str) else Marked(" " * width, TEMPLATE)
    lines = (Marked(str(text)) + Marked("\n", TEMPLATE)).splitlines()
    made: list[str] = [margin] if first else []
    for i, line in enumerate(lines):
        if i:
            made.append(Marked("\n", TEMPLATE))
        made += [margin, line] if i and (line or blank) else [line]
    return concat(made)


def _refuse(message: Any) -> None:
    raise beginnings.Refused(f"the chat template refuses this conversation: {message}")


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


# -- The environment -----------------------------------------------------------


def _is_loop(text: str) -> bool:
    """Tell whether this is how the compiler begins a loop that knows itself."""
    return text.startswith(", ") and text.endswith(" in LoopContext(")


class MarkingGenerator(CodeGenerator):
    """Marks the constants of a template, and joins so that marks are kept."""

    def write(self, text: str) -> None:
        super().write(text.replace("LoopContext(", "environment.loop(") if _is_loop(text) else text)

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return f"environment.own({''.join(map(str, group))!r})"

    def _output_child_to_const(self, node: Any, frame: Any, finalize: Any) -> str:
        if not isinstance(node, (nodes.TemplateData, nodes.Const)):
            raise nodes.Impossible  # nothing is computed before it is needed
        return super()._output_child_to_const(node, frame, finalize)

    def visit_Const(self, node: Any, frame: Any) -> None:
        value = node.as_const(frame.eval_ctx)
        if isinstance(value, (str, list, tuple, dict)):
            self.write(f"environment.own({value!r})")
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: Any, frame: Any) -> None:
        self.write(f"environment.own({node.data!r})")

    def visit_Concat(self, node: Any, frame: Any) -> None:
        self.write("environment.concat(map(str, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")


def _loops(body: Iterable[nodes.Node]) -> list[nodes.For]:
    """Return the loops of a template that are in no other one, and write what it writes."""
    found: list[nodes.For] = []
    for node in body:
        if isinstance(node, nodes.If):
            found += _loops([*node.body, *node.elif_, *node.else_])
        elif isinstance(node, nodes.For) and not (node.test or node.recursive or node.else_):
            found.append(node)
    return found


def _names(body: Iterable[nodes.Node]) -> set[str]:
    names: Any = (name for node in body for name in node.find_all((nodes.Name, nodes.NSRef)))
    return {name.name for name in names} - {"loop", "caller"}


class Environment(ImmutableSandboxedEnvironment):
    """Joins text so that marks are kept."""

    code_generator_class = MarkingGenerator
    intercepted_binops = frozenset(["*", "**"])
    concat = staticmethod(concat)
    own = staticmethod(_own)
    loop = staticmethod(beginnings.loop_context)

    def _generate(self, source: nodes.Template, *rest: Any, **more: Any) -> str:
        loops = _loops(source.body)
        macros = list(source.find_all((nodes.Macro, nodes.CallBlock)))
        outside: set[str] = _names(macros)
        for i, loop in enumerate(loops):
            names = [nodes.Name(name, "load") for name in sorted(outside | _names([loop]))]
            given: list[nodes.Expr] = [nodes.Const(i), nodes.List(names)]
            loop.iter = nodes.Filter(loop.iter, "over messages", given, [], None, None)
            loop.iter.set_environment(self)
        return super()._generate(source, *rest, **more)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        sizes = [len(each) if hasattr(each, "__len__") else each for each in (left, right)]
        if operator == "**":
            is_large = isinstance(left, int) and left.bit_length() * abs(right) > 2**16
        else:
            is_large = sizes != [left, right] and sizes[0] * sizes[1] > MAX_LENGTH
        if is_large:
            raise ValueError(f"a chat template computes something too large, with {operator}")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Show what every string has, and no more."""
        is_ours = isinstance(obj, Marked) and not hasattr(str, attr)
        return not is_ours and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Any:
        text = getattr(value, "__self__", None)
        if getattr(value, "__name__", "") != "format" or type(text) is not Marked:
            return super().wrap_str_format(value)
        return functools.partial(_format, SandboxedFormatter(self), text)


class Generation(Extension):
    """The tag {% generation %}, around what the assistant writes."""

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

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise ValueError(f"a chat template sets the attribute {name!r} of a namespace")
        value = beginnings.plain(value)
        loop, place = object.__getattribute__(self, "__dict__").get("_watch") or (None, 0)
        if loop is not None:
            loop._write(place, name, value)
        super().__setitem__(name, value)


def _format(formatter: Formatter, form: Marked, *args: Any, **kwargs: Any) -> Marked:
    """Do what ``str.format`` does, in the sandbox.

    NOTE: if users wrote a part of the form, it decides what goes where, and its fields' names
    may look like the template's text.  The result counts as theirs.
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
        "safe": lambda value: _Html._make(*_joined(str(value))),
        "length": beginnings.length,
        "count": beginnings.length,
        "over messages": beginnings.over,
    }
)
for _kind in ("number", "integer"):
    _ENVIRONMENT.tests[_kind] = _of_number(_ENVIRONMENT.tests[_kind])
_ENVIRONMENT.globals.update(
    raise_exception=_refuse, strftime_now=_strftime_now, namespace=PlainNamespace
)


@functools.lru_cache(maxsize=32)
def _compile(source: str) -> Any:
    try:
        return _ENVIRONMENT.from_string(source)
    except Exception as error:
        line = getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        raise ValueError(f"the chat template is no valid Jinja{where}: {error}") from None


def parse(source: str) -> Any:
    """Return the syntax tree of a template that compiles."""
    return _ENVIRONMENT.parse(source)


def constants_read(source: str) -> set[str]:
    """Return the constants that a template compares with or passes to methods.

    That is what it looks for in contents, as in ``'</think>' in content`` and
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
def has_generation(source: str) -> bool:
    """Tell whether a template has the tag {% generation %}, even where it is not rendered."""
    methods = parse(source).find_all(nodes.ExtensionAttribute)
    return any(each.name == "_mark" for each in methods)


def render(source: str, messages: Any, add_generation_prompt: bool, /, **variables: Any) -> Marked:
    """Render a template.

    Raises:
        ValueError: it is no valid Jinja, or fails on, or refuses, what it is given.
    """
    template = _compile(source)
    try:
        given = {"messages": messages, "add_generation_prompt": add_generation_prompt}
        return Marked(template.render({**given, **variables}))
    except ValueError:
        raise
    except Exception as error:  # whatever the template does with this conversation
        kind = type(error).__name__
        raise ValueError(
            f"the chat template failed on this conversation: {kind}: {error}"
        ) from None


def parts(
    source: str, messages: Any, add_generation_prompt: bool, /, **variables: Any
) -> Iterator[str]:
    """Yield what a template writes, bit by bit; errors are those of `render`, or any other."""
    template = _compile(source)
    given = {"messages": messages, "add_generation_prompt": add_generation_prompt}
    yield from template.root_render_func(template.new_context({**given, **variables}))
