"""`schema` and `schemas`: what transformers makes of a function, to the order of the keys."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracles import need

import bpe_tokenizer
from bpe_tokenizer_tools.chat.tool_schemas import schema, schemas

Function = Callable[..., Any]


@functools.cache
def oracle() -> Function:
    return need("transformers").utils.get_json_schema  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def newer() -> None:
    """Skip where transformers lacks the rules of its version 5 (`Enum`, bare `list`, `self`)."""
    try:
        oracle()(Box.put)
    except Exception:
        pytest.skip("this transformers has older rules")


def assert_same(function: Function) -> None:
    need("transformers")
    mine, theirs = schema(function), oracle()(function)
    assert mine == theirs
    assert json.dumps(mine) == json.dumps(theirs), "another order of keys, or 1 for True"


# -- Functions ----------------------------------------------------------------------------------


def get_weather(city: str, days: int = 1, unit: str | None = None) -> str:
    """
    Look up the weather.

    It may rain.

    Args:
        city: Where to look,
            with the country: Norway, say
        days: How far ahead

            it goes (choices: [1, 2, 7])
        unit: Of the degrees (Choices: ["celsius ", "kelvin"])

    Returns:
        One line of text:
            the weather

        or nothing.

    Raises:
        ValueError: no such city.
    """
    return city


async def wait(seconds: float) -> None:
    """Wait.

    Args:
        seconds: How long
    """


def now() -> dict[str, int]:
    """Tell the time."""
    return {}


def no_result(x: int, /, y: str, *, z: "list[str]", last: bool = False):  # type: ignore[no-untyped-def]  # noqa: UP037
    """Take all kinds of arguments.

    Args:
      last: the last
      x: the first
      y: the second
      z: the third"""


def starred(*args: int, **kwargs: str) -> None:
    """Take any.

    Args:
        args: numbers
        kwargs: words
    """


def decorate(function: Function) -> Function:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


class Box:
    def put(self, item: str, where: int = 0) -> bool:
        """Put something in.

        Args:
            item: what to put
            where: the place
        """
        return True

    @classmethod
    def build(cls, size: int) -> Box:
        """Build a box.

        Args:
            size: how large
        """
        return cls()

    @staticmethod
    def weigh(item: str) -> float:
        """Weigh.

        Args:
            item: what to weigh
        """
        return 0.0


class Crate(Box):
    def put(self, item: str, where: int = 0) -> bool:  # has the docstring of Box.put
        return False


@pytest.mark.parametrize("function", [wait, now, no_result, starred, Box.weigh, Box().weigh])
def test_functions(function: Function) -> None:
    assert_same(function)


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("function", [get_weather, decorate(get_weather)])
def test_functions_of_newer_rules(function: Function) -> None:
    assert_same(function)  # choices that are no strings, and `country:` in a description


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize(
    "method",
    [Box().put, Box.put, Box.build, Box().build, Crate().put, decorate(Box().put)],
)
def test_methods(method: Function) -> None:
    assert_same(method)


def test_a_schema_in_full() -> None:
    need("transformers")
    assert json.dumps(schema(get_weather)) == json.dumps(
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Look up the weather.\n\nIt may rain.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {
                            "type": "string",
                            "description": "Where to look, with the country: Norway, say",
                        },
                        "days": {
                            "type": "integer",
                            "enum": [1, 2, 7],
                            "description": "How far ahead it goes",
                        },
                        "unit": {
                            "type": "string",
                            "nullable": True,
                            "enum": ["celsius", "kelvin"],
                            "description": "Of the degrees",
                        },
                    },
                    "required": ["city"],
                },
                "return": {
                    "type": "string",
                    "description": "One line of text:\n        the weather\n\n    or nothing.",
                },
            },
        }
    )


def no_words(city: str) -> None:
    pass


def no_hint(city):  # type: ignore[no-untyped-def]
    """Look.

    Args:
        city: where
    """


def undescribed(city: str) -> None:
    """Look."""


def unknown_hint(city: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Look.

    Args:
        city: where
    """


def odd_hint(city: set[str]) -> None:
    """Look.

    Args:
        city: where
    """


def odd_choices(city: str) -> None:
    """Look.

    Args:
        city: where (choices: [a, b])
    """


FAULTY = [no_words, no_hint, undescribed, unknown_hint, odd_hint, odd_choices]


@pytest.mark.parametrize("function", FAULTY)
def test_functions_without_a_schema(function: Function) -> None:
    with pytest.raises(Exception):
        oracle()(function)
    name = function.__name__
    with pytest.raises(
        ValueError, match=rf"{name}\(\) has no JSON schema: .* \(a dict\)$"
    ) as raised:
        schema(function)
    assert "\n" not in str(raised.value) and raised.value.__cause__ is not None


def test_without_transformers_a_dict_works_and_a_function_names_the_package() -> None:
    program = """
import sys
for name in ("transformers", "torch", "numpy", "jinja2"):
    sys.modules[name] = None
from bpe_tokenizer_tools.chat.tool_schemas import schemas
given = {"type": "function", "function": {"name": "now"}}
assert schemas([given])[0] is given
def now():
    "Tell the time."
try:
    schemas([given, now])
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(bpe_tokenizer.__file__).parent,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.stderr, done.stdout) == (
        "",
        "the tool now(), a function, needs the package transformers, which is not installed: "
        "pip install transformers; a tool given as a JSON schema, a dict, doesn't need it\n",
    )


def test_transformers_is_imported_for_functions_only() -> None:
    program = """
import sys
from bpe_tokenizer import BPETokenizer
messages, tools = [{"role": "user", "content": "Hi"}], [{"name": "now"}]
print(BPETokenizer().apply_chat_template(messages, "{{ tools }}", tools=tools, tokenize=False))
assert "transformers" not in sys.modules
"""
    need("jinja2")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(bpe_tokenizer.__file__).parent,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.stderr, done.stdout) == ("", "[{'name': 'now'}]\n")


# -- Lists of tools -----------------------------------------------------------------------------


def test_schemas_stay_as_they_are() -> None:
    oracle()
    by_hand: dict[str, Any] = {"name": "x", "anything": [1]}
    mixed = schemas([by_hand, now, Box().put])
    assert mixed[0] is by_hand
    assert mixed[1:] == [schema(now), schema(Box().put)]
    assert schemas([]) == []
    assert schemas((now,)) == [schema(now)]


@pytest.mark.parametrize("tools", [None, "now", b"now", now, {"name": "x"}, 5])
def test_tools_that_are_no_list(tools: Any) -> None:
    with pytest.raises(TypeError, match="tools must be a list .*into a list"):
        schemas(tools)


@pytest.mark.parametrize("tool", [None, "now", 5, [now], print, Box, Box(), functools.partial(now)])
def test_what_is_no_tool(tool: Any) -> None:
    with pytest.raises(TypeError, match=r"a tool must be a function.*, got \w+"):
        schemas([{"type": "function"}, tool])
