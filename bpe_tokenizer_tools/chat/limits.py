"""What Python's methods and Jinja's filters cost, computed before a template runs them.

They can't be interrupted: once Python fills in '%999999999d', nothing stops it.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

from bpe_tokenizer_tools.chat.beginnings import Span
from bpe_tokenizer_tools.chat.budget import CONTAINERS, LONG, Budget, current
from bpe_tokenizer_tools.chat.marked_text import MAX_LENGTH, UNKNOWN, Marked, Origin, joint

_MAX_BITS = 2**16  # of an integer


def as_text(value: Any) -> str:
    """Do what ``str`` does; the text of a list may be much larger than the list."""
    if isinstance(value, Marked):
        return value
    if isinstance(value, CONTAINERS):
        budget = current()
        budget.need(4 * budget.walk(value))
        return Marked(str(value), _writer(value))
    if isinstance(value, bytes):
        current().need(4 * len(value))
    return str(value)


def _writer(value: Any) -> Origin:
    """Return where data comes from: the text in it, except what the template itself wrote."""
    return joint([origin for origin in _origins(value) if not origin.trusted] or [UNKNOWN])


def _origins(value: Any) -> Iterator[Origin]:
    if isinstance(value, str):
        runs = value._runs if isinstance(value, Marked) else ((0, UNKNOWN),)
        yield from (origin for _, origin in runs)
    elif isinstance(value, CONTAINERS):
        parts: Any = itertools.chain(value, value.values()) if isinstance(value, dict) else value
        for part in parts:
            yield from _origins(part)


def compared(value: Any) -> Any:
    """Pay for a value that is compared, or looked for; return it."""
    if isinstance(value, str):
        if len(value) >= LONG:
            current().step(len(value) >> 12)
    elif isinstance(value, CONTAINERS):
        current().walk(value)
    return value


def searched(value: Any) -> Any:
    """Pay for a value in which something is looked for; return it."""
    if isinstance(value, str):
        current().scan(value)
    elif isinstance(value, (list, tuple)):
        current().walk(value)
    return value


def operate(sign: str, left: Any, right: Any) -> None:
    """Pay for a binary operation: one of ``* ** %``."""
    numbers, size = isinstance(left, int) and isinstance(right, int), 0
    if sign == "%":
        if isinstance(left, bytes):
            raise ValueError("a chat template formats bytes; decode them first")
    elif sign == "**":
        size = left.bit_length() * abs(right) if isinstance(left, int) else 0
    elif numbers:
        size = left.bit_length() + right.bit_length()
    elif hasattr(left, "__len__") or hasattr(right, "__len__"):
        sizes = [len(each) if hasattr(each, "__len__") else each for each in (left, right)]
        size = sizes[0] * sizes[1] // (MAX_LENGTH // _MAX_BITS)
    if size > _MAX_BITS:
        raise ValueError(f"a chat template computes something too large, with {sign}")
    if sign == "*" and isinstance(left, (list, tuple)) and isinstance(right, int):
        current().need(8 * len(left) * right)
    elif sign == "*" and isinstance(right, (list, tuple)) and isinstance(left, int):
        current().need(8 * len(right) * left)


# -- Methods of strings --------------------------------------------------------


def _padded(budget: Budget, text: Any, width: Any = 80, *_: Any) -> None:
    budget.need(4 * int(width))


def _with_tabs(budget: Budget, text: str, tabsize: Any = 8) -> None:
    budget.need(4 * text.count("\t") * int(tabsize))


def _translated(budget: Budget, text: str, table: Any) -> None:
    values = table.values() if isinstance(table, dict) else [table]
    longest = max((len(each) for each in values if isinstance(each, str)), default=1)
    budget.need(4 * len(text) * longest)


def _as_bytes(budget: Budget, text: str, encoding: str = "utf-8", *_: Any, **more: Any) -> None:
    encoding = more.get("encoding", encoding)
    if encoding.lower() not in ("utf-8", "utf8", "ascii", "latin-1"):  # some are quadratic
        raise ValueError(f"a chat template encodes text as {encoding[:20]!r}, expected 'utf-8'")
    budget.take(4 * len(text))


def _from_the_end(budget: Budget, text: str, part: Any = None, *_: Any, **more: Any) -> None:
    part = more.get("sep", part)
    if isinstance(part, str) and len(part) > 1:  # takes the product of the lengths
        budget.step(len(text) * min(len(part), len(text)) >> 14)


_METHODS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _padded),
    **dict.fromkeys(("rfind", "rindex", "rsplit", "rpartition"), _from_the_end),
    "expandtabs": _with_tabs,
    "translate": _translated,
    "encode": _as_bytes,
}


def method(name: str, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Pay for a call of a method of a string."""
    if len(text) >= 1024:
        current().step(len(text) >> 10)
    for value in args:
        if isinstance(value, CONTAINERS):
            current().walk(value)
    check = _METHODS.get(name)
    if check is not None:
        check(current(), text, *args, **kwargs)


# -- Filters and tests ---------------------------------------------------------


def _quadratic(budget: Budget, value: Any, *rest: Any, **more: Any) -> None:
    size = budget.walk(value) if isinstance(value, CONTAINERS) else len(str(value))
    texts = [each for each in (*rest, *more.values()) if isinstance(each, str)]
    budget.step(size * size >> 12)
    budget.need(size * max(map(len, texts), default=1))


def _batched(budget: Budget, value: Any, count: Any, *fill: Any, **more: Any) -> None:
    budget.take(8 * int(count))


def _sliced(budget: Budget, value: Any, count: Any, *_: Any, **more: Any) -> None:
    budget.step(int(count), 64 * int(count))


def _rounded(budget: Budget, value: Any, precision: Any = 0, *_: Any, **more: Any) -> None:
    if abs(int(precision)) > 400:
        raise ValueError(f"round: a precision of {precision} digits; the limit is 400")


def _as_number(budget: Budget, value: Any, *_: Any, **more: Any) -> None:
    if isinstance(value, str) and len(value) > 4_300:
        raise ValueError(f"a number of {len(value):,} digits; the limit is 4,300")


def _summed(budget: Budget, value: Any, attribute: Any = None, start: Any = 0) -> None:
    if not isinstance(start, (int, float)):
        raise ValueError("sum adds numbers only; add lists with +")


def _html(budget: Budget, value: Any, *_: Any, **more: Any) -> None:
    budget.need(16 * (budget.walk(value) if isinstance(value, CONTAINERS) else len(str(value))))


def _in_words(budget: Budget, value: Any) -> None:
    budget.need(64 * len(str(value)))


# Filters with an effort of their own, and those that cost nothing or don't look into a list.
_FILTERS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("striptags", "urlize", "wordwrap", "pprint"), _quadratic),
    **dict.fromkeys(("e", "escape", "forceescape", "xmlattr", "urlencode"), _html),
    **dict.fromkeys(("title", "wordcount"), _in_words),
    **dict.fromkeys(("float", "int"), _as_number),
    "batch": _batched,
    "center": _padded,
    "round": _rounded,
    "slice": _sliced,
    "sum": _summed,
}
_SHALLOW = {"batch", "items", "list", "map", "slice", "reverse"}
_SHALLOW |= {"reject", "rejectattr", "select", "selectattr"}
FREE_FILTERS = {"abs", "attr", "count", "d", "default", "first", "last", "length"}
FREE_FILTERS |= {"random", "trim", "over messages", "as namespace", "filesizeformat"}
_EFFORT = {"groupby": 8, "sort": 4, "unique": 4, "min": 2, "max": 2, "map": 2}  # for each item
_MAX_LAZY = 50  # generators over generators; Python frees them by recursion


def filtered(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int]:
    """Pay for a call of a filter.

    Returns:
        How many generators the first argument is made of, and of how many items.
    """
    budget, texts = current(), 0
    for each in (*args[1:], *kwargs.values()) if len(args) > 1 or kwargs else ():
        if isinstance(each, str):
            texts += len(each)
        elif isinstance(each, CONTAINERS):
            budget.walk(each)
    depth, items = _items(name, args[0], budget) if args else (0, 0)
    if depth > _MAX_LAZY:
        raise ValueError(f"a chat template applies more than {_MAX_LAZY} filters to one list")
    budget.step(2 + items * (_EFFORT.get(name, 1) + (texts >> 6)))
    check = _FILTERS.get(name)
    if check is not None:
        check(budget, *args, **kwargs)
    return depth, items


def _items(name: str, value: Any, budget: Budget) -> tuple[int, int]:
    """Return how many generators a filter is applied to, and how many items it goes through."""
    if isinstance(value, str):
        return 0, len(value) >> 10
    if isinstance(value, CONTAINERS) and name not in _SHALLOW:
        budget.need(4 * budget.walk(value))
    if isinstance(value, (range, *CONTAINERS)):
        return 0, len(value)  # type: ignore[arg-type]
    if isinstance(value, Span):
        return 0, max(value._stop - value._start, 0)
    if id(value) in budget.lazy:
        return budget.lazy[id(value)]
    items = operator.length_hint(value) if hasattr(value, "__length_hint__") else 0
    budget.take(8 * items)
    return 0, items


def limited_test(name: str, plain: Any) -> Any:
    """Return a test that pays for what it does."""
    if name == "in":
        return lambda value, where: plain(compared(value), searched(where))
    if name in ("upper", "lower"):
        return lambda value: plain(searched(as_text(value)))
    if name in ("odd", "even", "divisibleby"):
        return lambda value, *by: plain(_number(value), *by)
    if name in _COMPARISONS:
        return lambda value, other: plain(compared(value), compared(other))
    return plain


_COMPARISONS = {"eq", "==", "equalto", "ne", "!=", "lt", "<", "lessthan", "gt", ">", "greaterthan"}
_COMPARISONS |= {"le", "<=", "ge", ">="}


def _number(value: Any) -> Any:
    if isinstance(value, (str, bytes)):
        raise TypeError("expected a number")
    return value
