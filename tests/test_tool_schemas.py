# ruff: noqa: UP006, UP035, UP045 - the older spellings are hints that tools may have
"""`schema` and `schemas`: what transformers makes of a function, to the order of the keys."""

from __future__ import annotations

import enum
import functools
import json
import typing
from collections.abc import Callable, Sequence
from typing import Any, Dict, List, Literal, Optional, Tuple, TypeVar, Union

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import need

from bpe_tokenizer_tools.chat.tool_schemas import schema, schemas

Function = Callable[..., Any]


class Colour(enum.Enum):
    RED = "red"
    CRIMSON = "red"  # an alias
    NUMBER = 7
    NOTHING = None


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Empty(enum.Enum):
    pass


class Pairs(enum.Enum):
    FIRST = (1, 2)


class Custom:
    pass


@functools.cache
def oracle() -> Function:
    return need("transformers").utils.get_json_schema  # type: ignore[no-any-return]


@functools.cache
def is_newer() -> bool:
    """Whether transformers has the rules of its version 5 (`Enum`, bare `list`, `self`, ...)."""
    return oracle()(make(list))["function"]["parameters"]["properties"]["x"]["type"] == "array"


@pytest.fixture(scope="module")
def newer() -> None:
    if not is_newer():
        pytest.skip("this transformers has older rules")


def make(
    *hints: Any,
    names: Sequence[str] = "xyz",
    doc: str | None = None,
    result: Any = "absent",
    signature: str | None = None,
) -> Function:
    """Make the function `tool`, whose arguments have these hints."""
    scope: dict[str, Any] = {}
    exec(f"def tool({signature or ', '.join(names[: len(hints)])}): pass", globals(), scope)
    function: Function = scope["tool"]
    function.__annotations__ = dict(zip(names, hints))
    if result != "absent":
        function.__annotations__["return"] = result
    lines = [f"  {name}: The {name} to take" for name in names[: len(hints)]]
    function.__doc__ = doc or "Do it.\n\nArgs:\n" + "\n".join(lines)
    return function


def assert_same(function: Function) -> None:
    mine, theirs = schema(function), oracle()(function)
    assert mine == theirs
    assert json.dumps(mine) == json.dumps(theirs), "another order of keys, or 1 for True"


# -- Hints --------------------------------------------------------------------------------------

SAME_IN_BOTH = [
    str,
    int,
    float,
    bool,
    None,
    Any,
    "Optional[int]",
    Optional[int],
    Optional[str],
    Union[str, int],
    Union[int, str, None],
    Union[bool, float, int, str],
    List[int],
    List[Any],
    List[List[str]],
    List[Optional[int]],
    Dict[str, int],
    Dict[str, Any],
    Dict[str, List[Dict[str, float]]],
    Tuple[int, str],
    Tuple[Optional[int], List[str], Any],
    Optional[Dict[str, int]],
    Literal["a", "b"],
    Literal["a"],
    Literal[1, "a", 2, True, None],
    Literal[True, 1],
    Optional[Literal["a", "b"]],
    List[Literal["a", 1]],
    List,
    list[int],
    dict[str, list[int]],
    tuple[int, str],
]
NEWER = [
    list,
    dict,
    tuple,
    Dict,
    Tuple,
    Colour,
    Size,
    "Colour",
    Optional[Colour],
    List[Size],
    Union[Colour, int],
    Union[Any, int],
    Union[List[int], str, None],
    Union[list, tuple],
    Union[list, tuple, None, str],
    Union[Literal["a"], int],
    Union[Tuple[int, int], Dict[str, str], None],
]


@pytest.mark.parametrize("hint", SAME_IN_BOTH, ids=str)
def test_hints(hint: Any) -> None:
    assert_same(make(hint, result=hint))


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("hint", NEWER, ids=str)
def test_hints_of_newer_rules(hint: Any) -> None:
    assert_same(make(hint, result=hint))


@pytest.mark.parametrize(
    "hint", ["int | str", "str | None", "None | list[int | float]", "dict[str, int | None]"]
)
def test_bars(hint: str) -> None:
    assert_same(make(hint))
    assert_same(make(eval(hint)))


def test_annotated() -> None:
    assert_same(make(typing.Annotated[int, "more"], List[typing.Annotated[str, 1]]))


def test_none_inside() -> None:
    properties = schema(make(list[None], dict[str, None]))["function"]["parameters"]["properties"]
    assert properties["x"]["items"] == properties["y"]["additionalProperties"] == {"type": "null"}


def test_images_and_tensors() -> None:
    image = need("PIL.Image").Image
    tensor = need("torch").Tensor
    hints = (image, tensor, List[image])
    assert_same(make(*hints))
    found = schema(make(*hints))["function"]["parameters"]["properties"]
    assert [found["x"]["type"], found["y"]["type"]] == ["image", "audio"]
    assert found["z"]["items"] == {"type": "image"}


UNSUPPORTED = [
    Custom,
    List[Custom],
    Optional[Custom],
    Dict[str, Custom],
    set,
    typing.Set[int],
    frozenset,
    Sequence,
    typing.Sequence[int],
    Callable,
    object,
    bytes,
    complex,
    TypeVar("T"),
    typing.Type[int],
    Tuple[int],
    Tuple[int, ...],
    Empty,
    Pairs,
    Literal[b"x"],
    Literal[Colour.RED],
    [int],
]


@pytest.mark.parametrize("hint", UNSUPPORTED, ids=str)
def test_hints_without_a_schema(hint: Any) -> None:
    with pytest.raises(TypeError, match=r"argument 'y' of tool\(\)"):
        schema(make(str, hint))
    if is_newer():
        with pytest.raises(Exception):
            oracle()(make(str, hint))
        if hint != [int]:  # which transformers cannot hash
            assert_same(make(str, result=hint))  # no matter for a result: it is left out


@pytest.mark.parametrize(
    ("hint", "advice"),
    [
        (Custom, r"Custom'> of argument .*JSON schema \(a dict\) written by hand"),
        (Tuple[int, ...], r"use list\[\.\.\.\]"),
        (Tuple[int], "the type itself for a tuple of one"),
        (Empty, r"Empty'.*at least one, got \[\]"),
        (Pairs, r"must be str, int, float, bool or None.*got \[\(1, 2\)\]"),
    ],
)
def test_advice_on_hints(hint: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=advice):
        schema(make(hint))


def test_hints_that_cannot_be_evaluated() -> None:
    for hint in ("Unknown", "List[", "1 / 0", "Custom.missing"):
        with pytest.raises(TypeError, match=r"hints of tool\(\) cannot be evaluated .*import"):
            schema(make(hint))


def test_answers_are_not_shared() -> None:
    function = make(Colour, Optional[int], dict, result=int)
    first = schema(function)
    text = json.dumps(first)
    first["function"]["parameters"]["properties"]["x"]["enum"].append("more")
    first["function"]["parameters"]["properties"]["z"]["type"] = "spoilt"
    first["function"]["return"]["type"] = "spoilt"
    assert json.dumps(schema(function)) == text


# -- Functions ----------------------------------------------------------------------------------


def get_weather(city: str, days: int = 1, unit: Optional[str] = None) -> str:
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


def now() -> Dict[str, int]:
    """Tell the time."""
    return {}


def no_result(x: int, /, y: str, *, z: "List[str]", last: bool = False):  # type: ignore[no-untyped-def]  # noqa: UP037
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

    def hinted(self: Box, item: str) -> None:
        """Put something in.

        Args:
            item: what to put
        """

    @classmethod
    def build(cls, size: Size) -> Box:
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


def test_method_whose_object_has_a_hint() -> None:
    parameters = schema(Box().hinted)["function"]["parameters"]
    assert list(parameters["properties"]) == parameters["required"] == ["item"]


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("name", ["self", "cls"])
def test_methods_by_their_first_argument(name: str) -> None:
    assert_same(make(int, names="x", signature=f"{name}, x"))
    assert_same(make(int, names=[name], signature=name))  # a hint: to be given like any other


def test_a_schema_in_full() -> None:
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


HINTS = st.recursive(
    st.sampled_from([str, int, float, bool, None, Any, list, dict, tuple, Colour, Size])
    | st.lists(st.sampled_from(["a", "b", 1, 2, True, False, None]), min_size=1, max_size=4).map(
        lambda values: Literal[tuple(values)]
    ),
    lambda inner: st.one_of(
        inner.map(lambda hint: List[hint]),  # type: ignore[valid-type]
        inner.filter(bool).map(lambda hint: list[hint]),  # type: ignore[valid-type]
        inner.map(lambda hint: Dict[str, hint]),  # type: ignore[valid-type]
        inner.map(lambda hint: Optional[hint]),
        st.lists(inner, min_size=2, max_size=4).map(lambda hints: Tuple[tuple(hints)]),
        st.lists(inner, min_size=1, max_size=4).map(lambda hints: Union[tuple(hints)]),
    ),
    max_leaves=6,
)
SIGNATURES = [
    "x, y, z",
    "x, /, y, z=1",
    "x=1, y=None, z=2",
    "x, *, z=1, y",
    "x, y, /, z",
    "z, y, x",
]


@pytest.mark.usefixtures("newer")
@given(st.tuples(HINTS, HINTS, HINTS), st.sampled_from(SIGNATURES), HINTS)
def test_any_hints(hints: tuple[Any, Any, Any], signature: str, result: Any) -> None:
    assert_same(make(*hints, signature=signature, result=result))


# -- Docstrings ---------------------------------------------------------------------------------

LINES = st.tuples(
    st.sampled_from(["", "  ", "    ", "      ", "\t", " \t"]),
    st.sampled_from(["Args:", "Returns:", "Raises:", "x:", "y:", "x: one", "y: two", "z:three", ""])
    | st.sampled_from(["y (int): two", "Note: more", "words", "https://a.b", "some Args: here"])
    | st.sampled_from(
        ["Returns: x", '(choices: ["a", " b "])', "x: (CHOICES:\u00a0[1, null] )", "x:  a "]
    )
    | st.sampled_from(["words (choices: []) x", "x: ((choices: [1])", "\x0b", "ä: b\x0b\u2003"]),
).map("".join)
ARGS = ["Do.", "", "Args:", "  x: one", "  y: two"]


@pytest.mark.usefixtures("newer")
@given(
    st.lists(LINES, max_size=9),
    st.lists(LINES, max_size=3),
    st.sampled_from([str, Literal["a", 2]]),
)
@example(["  x:", "  y: swallowed", "  y: two"], [], str)
@example(["  x: one (choices:\u00a0[1])"], [], str)
@example(["  x: one", "    y: deeper", "  y: two"], [], str)
@example(
    ["Args: in the middle", *ARGS, "Returns:", "  it", "", "    all", "Raises:", "  it"], [], str
)
def test_any_docstring(lines: list[str], before: list[str], hint: Any) -> None:
    for doc in ("\n".join([*before, *lines]), "\n".join([*before, *ARGS, *lines])):
        function = make(hint, hint, doc=doc or " ", result=int)
        try:
            oracle()(function)
        except Exception:
            with pytest.raises(ValueError):
                schema(function)
        else:
            assert_same(function)


@pytest.mark.parametrize("doc", [" ", "\n  \n"])
def test_no_docstring(doc: str) -> None:
    with pytest.raises(ValueError, match=r'tool\(\) has no docstring; add one.*"Args:"'):
        schema(make(int, doc=doc))


@pytest.mark.parametrize(
    "body", ["", "\n\nArgs:\n  x: one", "\n\nArgs:\n  x: one\n  y (int): two", "\n\ny: two"]
)
def test_no_description_of_an_argument(body: str) -> None:
    function = make(int, int, doc="Do." + body)
    with pytest.raises(ValueError, match=r"argument '[xy]' of tool\(\); add a line \"[xy]: what"):
        schema(function)
    with pytest.raises(Exception):
        oracle()(function)


@pytest.mark.parametrize("choices", ["[a, b]", "a", "", '"ab"', '{"a": 1}', "[1", "5"])
def test_choices_that_are_no_list(choices: str) -> None:
    function = make(str, doc=f"Do.\n\nArgs:\n  x: one (choices: {choices})")
    with pytest.raises(ValueError, match=r"choices of argument 'x' of tool\(\) must be a list"):
        schema(function)


def test_no_hint() -> None:
    function = make(int, int)
    del function.__annotations__["y"]
    with pytest.raises(TypeError, match=r"argument 'y' of tool\(\) has no type hint; .*`y: str`"):
        schema(function)
    with pytest.raises(TypeError, match=r"'self' of tool\(\) has no type hint"):
        schema(make(int, names="x", signature="x, self"))  # not the first: no method


# -- Lists of tools -----------------------------------------------------------------------------


def test_schemas_stay_as_they_are() -> None:
    by_hand: dict[str, Any] = {"name": "x", "anything": [1]}
    mixed = schemas([by_hand, now, Box().put])
    assert mixed[0] is by_hand
    assert mixed[1:] == [schema(now), schema(Box().put)]
    assert schemas([]) == []
    assert schemas((now,)) == [schema(now)]


@pytest.mark.parametrize("tools", [None, "now", b"now", now, {"name": "x"}, 5])
def test_tools_that_are_no_list(tools: Any) -> None:
    with pytest.raises(TypeError, match="tools must be a list .*a list of one"):
        schemas(tools)


@pytest.mark.parametrize("tool", [None, "now", 5, [now], print, Box, Box(), functools.partial(now)])
def test_what_is_no_tool(tool: Any) -> None:
    with pytest.raises(TypeError, match=r"a tool must be a function.*, got \w+"):
        schemas([now, tool])
