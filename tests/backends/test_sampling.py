"""How the next token is drawn, compared with a plain way to say the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import need

from bpe_tokenizer_tools.backends.checks import sampling as checked


def distribution(logits: list[float], temperature: float, top_k: int, top_p: float) -> list[float]:
    """Return how likely each id is to be drawn."""
    highest = max(logits)
    weights = [math.exp((logit - highest) / temperature) for logit in logits]
    order = sorted(range(len(logits)), key=lambda id_: (-weights[id_], id_))
    order = order[: top_k or None]
    whole = sum(weights[id_] for id_ in order)
    kept: list[int] = []
    for id_ in order:
        if top_p < 1 and kept and sum(weights[i] for i in kept) >= top_p * whole:
            break
        kept.append(id_)
    whole = sum(weights[id_] for id_ in kept)
    return [weights[id_] / whole if id_ in kept else 0.0 for id_ in range(len(logits))]


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1, 0, 1), (0.5, 0, 1), (2, 3, 1), (1, 0, 0.7), (1, 4, 0.6), (3, 1, 1), (1, 99, 0.9)],
)
def test_ids_are_drawn_as_often_as_they_are_likely(
    temperature: float, top_k: int, top_p: float
) -> None:
    np = need("numpy")
    logits = [1.0, 3.0, 2.5, -1.0, 2.5, 0.0, -math.inf]
    settings, random = checked(temperature, top_k, top_p), np.random.default_rng(1)
    drawn = [settings.draw(np.array(logits, np.float32), random) for _ in range(20_000)]
    for id_, share in enumerate(distribution(logits, temperature, top_k, top_p)):
        assert drawn.count(id_) / len(drawn) == pytest.approx(share, abs=0.015)
        assert share or id_ not in drawn


@given(
    logits=st.lists(st.integers(-12, 12), min_size=1, max_size=40),
    temperature=st.sampled_from([0.1, 1.0, 7.0]),
    top_k=st.integers(0, 50),
    top_p=st.sampled_from([0.01, 0.3, 0.55, 0.83, 0.999, 1.0]),
    seed=st.integers(0, 2**64),
)
def test_only_what_is_left_is_drawn(
    logits: list[int], temperature: float, top_k: int, top_p: float, seed: int
) -> None:
    np = need("numpy")
    settings = checked(temperature, top_k, top_p)
    array = np.array(logits, np.float32)
    id_ = settings.draw(array, np.random.default_rng(seed))
    assert distribution(list(map(float, logits)), temperature, top_k, top_p)[id_] > 0
    assert id_ == settings.draw(array, np.random.default_rng(seed))


@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.999999])
def test_a_flat_distribution_is_not_cut_short(top_p: float) -> None:
    """Then more ids are left than are looked at first."""
    np = need("numpy")
    logits = np.linspace(0, 0.1, 5000).astype(np.float32)
    weights = np.exp(logits.astype(np.float64) - logits.max())
    left = checked(1.0, 0, top_p).kept(weights)
    assert sorted(left, reverse=True) == list(left)
    share = weights[left].sum() / weights.sum()
    assert share >= top_p > (weights[left[:-1]].sum() / weights.sum())


def test_zero_is_the_most_likely_and_of_equals_the_lowest() -> None:
    np = need("numpy")
    random: Any = None  # is not asked
    for logits, expected in (([1, 3, 3], 1), ([0, 0, 0], 0), ([-math.inf, -5], 1)):
        array = np.array(logits, np.float32)
        assert checked(0, 0, 1).draw(array, random) == expected
    tiny = checked(1e-300, 0, 0.9)
    assert tiny.draw(np.array([1, 3, 2.99]), np.random.default_rng(0)) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_said(value: float) -> None:
    np = need("numpy")
    for logits in ([value, 1.0], [1.0, value], [-math.inf, -math.inf]):
        with pytest.raises(RuntimeError, match="the model computed"):
            checked(1, 0, 1).draw(np.array(logits), np.random.default_rng(0))


# -- What is asked for ---------------------------------------------------------


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_numbers_of_other_types_are_numbers(kind: str) -> None:
    np = need("numpy")
    settings = checked(getattr(np, kind)(0.5), np.int64(5), getattr(np, kind)(0.25))
    assert settings == (0.5, 5, 0.25, None)
    assert [type(value) for value in settings[:3]] == [float, int, float]


def test_numbers_too_large_for_a_float_are_refused() -> None:
    for value in (10**400, -(10**400), 10**5000, math.nan):
        with pytest.raises(ValueError, match="temperature must be 0 .* or more, got"):
            checked(value, 0, 1)
        with pytest.raises(ValueError, match="top_p must be above 0"):
            checked(1, 0, value)


def test_what_is_no_number_is_refused() -> None:
    np = need("numpy")
    for value in ("1", None, True, 1j, [1], np.bool_(True)):
        for arguments, name in (((value, 0, 1), "temperature"), ((1, 0, value), "top_p")):
            with pytest.raises(TypeError, match=f"{name} must be a number, got"):
                checked(*arguments)
    for value in ("1", None, True, 1.0, np.float32(1)):
        with pytest.raises(TypeError, match="top_k must be an int, got"):
            checked(1, value, 1)
