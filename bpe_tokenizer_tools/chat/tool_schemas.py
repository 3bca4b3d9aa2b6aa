"""The tools of a chat: Python functions become the JSON schemas that templates print.

    schema(get_weather); schemas([get_weather, {"type": "function", "function": {...}}])

Type hints give the types, the docstring (in Google's form) gives the words, and an argument
without a default is required.  A template prints the schema as it stands, so the order of its
keys is part of what a model was trained on: transformers' `get_json_schema` makes the same.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

__all__ = ["schema", "schemas"]

# What can stand in JSON as it is, and so in an "enum" too.
_SCALARS: dict[Any, str] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    type(None): "null",
}
_CONTAINERS: dict[Any, str] = {list: "array", tuple: "array", dict: "object"}
# Known by name: whoever hints with one has imported its library, and nobody else needs to.
_MEDIA = {("PIL.Image", "Image"): "image", ("torch", "Tensor"): "audio"}
_UNIONS = (Union, types.UnionType)  # `X | Y` is a UnionType
_SUPPORTED = (
    "use str, int, float, bool, None, Any, Literal, an Enum, list, tuple, dict or a union of "
    "these, or pass the tool as a JSON schema (a dict) written by hand"
)


def schemas(tools: Iterable[dict[str, Any] | Callable[..., Any]]) -> list[dict[str, Any]]:
    """Turn every function among the tools into its schema.

    Args:
        tools: JSON schemas, which stay as they are, and functions or bound methods.

    Returns:
        One schema per tool, in their order.

    Raises:
        TypeError: `tools` is no list, or holds something else.
        ValueError: a function's docstring does not say enough.
    """
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise TypeError(
            f"tools must be a list of functions and JSON schemas, got {type(tools).__name__}; "
            "a single tool goes into a list of one"
        )
    return [tool if isinstance(tool, dict) else schema(tool) for tool in tools]


def schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Describe a function as a tool, in the form that chat templates take.

    Args:
        function: a function or bound method with type hints and a docstring in Google's form.
            An argument's description may end in `(choices: ["a", "b"])`.

    Returns:
        `{"type": "function", "function": {"name", "description", "parameters", "return"}}`,
        the last only where the function has a hint for it.

    Raises:
        TypeError: not a function, or a hint is missing or has no counterpart in JSON.
        ValueError: the docstring is missing, or does not describe an argument.
    """
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise TypeError(
            "a tool must be a function, a bound method or a JSON schema (a dict), "
            f"got {type(function).__name__}"
        )
    name = function.__name__
    doc = (inspect.getdoc(function) or "").strip()
    if not doc:
        raise ValueError(
            f'{name}() has no docstring; add one that says what it does and, under "Args:", what '
            "each argument is"
        )
    hints, required = _arguments(function)
    described = _described_arguments(doc)
    properties: dict[str, Any] = {}
    for argument, hint in hints.items():
        if argument == "return":
            continue
        where = f"argument {argument!r} of {name}()"
        found = _hint_schema(hint, where)
        if argument not in described:
            raise ValueError(
                f'the docstring does not describe {where}; add a line "{argument}: what it is" '
                'under a line "Args:", with no type in between'
            )
        properties[argument] = _with_description(found, described[argument], where)

    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    description = re.split("Args:|Returns:|Raises:", doc, maxsplit=1)[0].strip()
    result = {"name": name, "description": description, "parameters": parameters}
    if "return" in hints:
        try:
            returned = _hint_schema(hints["return"], "the result")
        except TypeError:  # no model writes this value, so a tool need not explain it
            pass
        else:
            if (text := _section(doc, "Returns", "Raises:")) is not None:
                returned["description"] = text.strip()
            result["return"] = returned
    return {"type": "function", "function": result}


def _arguments(function: Callable[..., Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the hints of the arguments and the result, and which arguments must be given."""
    name = function.__name__
    try:
        hints = get_type_hints(function)
    except Exception as error:  # hints may be strings, of any code
        raise TypeError(
            f"the type hints of {name}() cannot be evaluated ({error}); import what they name "
            "where the function is defined, outside of any `if TYPE_CHECKING`"
        ) from error
    arguments = list(inspect.signature(function).parameters.values())
    if inspect.ismethod(function):  # what it is bound to may have a hint as well
        given = {"return", *(argument.name for argument in arguments)}
        hints = {argument: hint for argument, hint in hints.items() if argument in given}
    elif arguments and arguments[0].name in ("self", "cls") and arguments[0].name not in hints:
        del arguments[0]
    for argument in arguments:
        if argument.annotation is argument.empty:
            raise TypeError(
                f"argument {argument.name!r} of {name}() has no type hint; write "
                f"`{argument.name}: str`, or what else it is"
            )
    # NOTE: the hints' order is Python's own, in which positional-only arguments come later.
    return hints, [argument.name for argument in arguments if argument.default is argument.empty]


# -- Docstrings -------------------------------------------------------------------------------


def _section(doc: str, title: str, *ends: str) -> str | None:
    """Return what stands below the line `title:`, up to the first of `ends`."""
    found = re.search(rf"\n\s*{title}:\n(.*)", doc, re.DOTALL)
    return re.split("|".join(ends), found[1], maxsplit=1)[0] if found else None


def _described_arguments(doc: str) -> dict[str, str]:
    """Read the section "Args:": the name and the words of each argument, on one line.

    What is indented deeper than a name belongs to it, and so does the next line of a name
    that nothing follows, even one that reads `name: words`.  `inspect.getdoc` leaves no tabs.
    """
    described: dict[str, list[str]] = {}
    indent, words = "", None
    for line in (_section(doc, "Args", "Returns:", "Raises:") or "").split("\n"):
        deeper = words is not None and line.startswith(indent + " ")
        named = None if deeper or words == [] else re.match(r"( *)(\w+):(.*)", line)
        if named:
            indent, line = named[1], named[3]
            words = described[named[2]] = []
        if words is not None and line.strip():
            words.append(line.strip())
    return {name: " ".join(words) for name, words in described.items()}


def _with_description(found: dict[str, Any], text: str, where: str) -> dict[str, Any]:
    """Add an argument's description, and the choices it may end in."""
    choices = re.search(r"\(choices:(.*)\)$", text, re.IGNORECASE)
    if choices:
        text = text[: choices.start()].strip()
        try:
            values = json.loads(choices[1].strip())
        except ValueError:
            values = None
        if not isinstance(values, list):
            raise ValueError(
                f"the choices of {where} must be a list in JSON, such as "
                f'(choices: ["tea", "coffee"]), got {choices[0]}'
            )
        found["enum"] = [value.strip() if isinstance(value, str) else value for value in values]
    found["description"] = text
    return found


# -- Type hints -------------------------------------------------------------------------------


def _hint_schema(hint: Any, where: str) -> dict[str, Any]:
    """Return the JSON schema of a type hint."""
    hint = type(None) if hint is None else hint  # as it stands in list[None]
    origin, inner = get_origin(hint), get_args(hint)
    kind = _CONTAINERS.get(origin)
    if hint is Any:
        return {}
    if origin in _UNIONS:
        return _union_schema(inner, where)
    if origin is Literal:
        return _enum_schema(hint, list(inner), where)
    if origin is None and isinstance(hint, type):
        if issubclass(hint, Enum):
            return _enum_schema(hint, [member.value for member in hint], where)
        media = _MEDIA.get((hint.__module__, hint.__name__))
        kind = _SCALARS.get(hint) or _CONTAINERS.get(hint) or media
    if kind is None:
        raise TypeError(f"the type hint {hint!r} of {where} has no JSON schema; {_SUPPORTED}")
    found: dict[str, Any] = {"type": kind}
    if origin is list and inner:
        found["items"] = _hint_schema(inner[0], where)
    elif origin is dict and inner:
        found["additionalProperties"] = _hint_schema(inner[1], where)
    elif origin is tuple and inner:
        if len(inner) == 1 or ... in inner:
            raise TypeError(
                f"the type hint {hint!r} of {where} has no JSON schema; use list[...] where the "
                "length may vary, and the type itself for a tuple of one"
            )
        found["prefixItems"] = [_hint_schema(item, where) for item in inner]
    return found


def _union_schema(members: tuple[Any, ...], where: str) -> dict[str, Any]:
    """Return one type, a list of plain types or, where a type says more, "anyOf"."""
    found = [_hint_schema(member, where) for member in members if member is not type(None)]
    if len(found) == 1:
        union = found[0]
    elif all(each.keys() == {"type"} for each in found):
        kinds = sorted({each["type"] for each in found})
        union = {"type": kinds if len(kinds) > 1 else kinds[0]}
    else:
        union = {"anyOf": found}
    if type(None) in members:
        union["nullable"] = True
    return union


def _enum_schema(hint: Any, values: list[Any], where: str) -> dict[str, Any]:
    """Return the schema of values to choose from; each type is named once, as they come."""
    if not values or any(type(value) not in _SCALARS for value in values):
        raise TypeError(
            f"the values of {hint!r}, the type hint of {where}, must be str, int, float, bool or "
            f"None, at least one, got {values!r}"
        )
    kinds = list(dict.fromkeys(_SCALARS[type(value)] for value in values))
    return {"type": kinds if len(kinds) > 1 else kinds[0], "enum": values}
