"""Checks of arguments: numbers of any numeric type, including NumPy's."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable
from typing import Any

from bpe_tokenizer_tools import core


def integer(name: str, value: Any, least: int | None = None) -> int:
    """Return a whole number of any integer type, but not a bool."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be an int, got {type(value).__name__} {value!r:.50}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def real(name: str, value: Any) -> float:
    """Return a number of any type; one that is too large for a float is infinite."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number:
        raise TypeError(f"{name} must be a number, got {type(value).__name__} {value!r:.50}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def word(name: str, value: Any) -> str | None:
    """Return a word, or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a str or None, got {type(value).__name__} {value!r:.50}")
    if value == "":
        raise ValueError(f"{name} is empty; leave it out, or name one")
    return value


def stop_texts(stop: str | Iterable[str]) -> list[str]:
    """Return the strings that end an answer."""
    if not isinstance(stop, Iterable):
        raise TypeError(f"stop must be a string or several, got {core.shorten(stop)}")
    stops = [stop] if isinstance(stop, str) else list(stop)
    if not all(isinstance(each, str) and each for each in stops):
        raise ValueError(f"stop must be strings that are not empty, got {stops!r:.60}")
    return stops


def sampling(
    temperature: float, top_k: int, top_p: float, seed: int | None = None
) -> core.Sampling:
    """Check how to draw an id.

    Args:
        temperature: 0 or more.
        top_k: 0 for all.
        top_p: above 0, at most 1.
        seed: 0 or more; None draws other ids each time.
    """
    heat, share = real("temperature", temperature), real("top_p", top_p)
    checked = None if seed is None else integer("seed", seed, 0)
    return core.Sampling(heat, integer("top_k", top_k, 0), share, checked).check()
