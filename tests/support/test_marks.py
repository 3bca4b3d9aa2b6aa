"""Tests that use Hypothesis get its mark, so that `make test-more` runs them with all examples."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import EITHER_ENGINE, runs_examples
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = EITHER_ENGINE


def _inside() -> None:
    @settings(max_examples=3)
    @given(st.integers())
    def check(number: int) -> None:
        assert number == int(str(number))

    check()


def _by_a_helper() -> None:
    for _ in range(1):
        _inside()


def _in_a_function_in_it() -> None:
    def inner() -> None:
        given(st.text())(str)()

    assert inner is not None


def _not_at_all() -> None:
    assert settings is not None and _itself is not None


def _itself() -> None:
    assert _itself is not None


@pytest.mark.parametrize("test", [_inside, _by_a_helper, _in_a_function_in_it])
def test_one_that_uses_hypothesis(test: Callable[[], None]) -> None:
    assert runs_examples(test)


@pytest.mark.parametrize("test", [_not_at_all, _itself, str, None])
def test_one_that_does_not(test: object) -> None:
    assert not runs_examples(test)


def test_this_one_is_marked(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("hypothesis")
    _inside()


def test_this_one_is_not(request: pytest.FixtureRequest) -> None:
    assert not request.node.get_closest_marker("hypothesis")
