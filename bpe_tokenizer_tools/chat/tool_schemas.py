"""The tools of a chat, as the JSON schemas that templates print.

A dict is printed unchanged.  A function becomes the schema that transformers makes of it, since
models were trained with the order of its keys.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bpe_tokenizer_tools import core


def schemas(tools: Iterable[dict[str, Any] | Callable[..., Any]]) -> list[dict[str, Any]]:
    """Turn every function among the tools into its schema."""
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise TypeError(
            f"tools must be a list of functions and JSON schemas, got {type(tools).__name__}; "
            "put a single tool into a list"
        )
    return [tool if isinstance(tool, dict) else schema(tool) for tool in tools]


def schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Describe a function as a tool, by transformers' `get_json_schema`.

    It needs type hints and a docstring in Google's form.
    """
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise TypeError(
            "a tool must be a function, a bound method or a JSON schema (a dict), "
            f"got {type(function).__name__}"
        )
    name = function.__name__
    module, purpose = "transformers.utils.chat_template_utils", f"the tool {name}(), a function,"
    try:
        utils = core.import_optional(module, purpose, "transformers")
    except ImportError as error:
        raise ImportError(
            f"{error}; a tool given as a JSON schema, a dict, doesn't need it"
        ) from error
    try:
        return dict(utils.get_json_schema(function))
    except Exception as error:  # its exceptions have no common type
        raise ValueError(
            f"{name}() has no JSON schema: {core.one_line(error)}; fix its type hints and "
            "docstring, or pass the tool as a JSON schema (a dict)"
        ) from error
