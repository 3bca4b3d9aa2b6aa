"""Where the characters of changed text come from."""

from __future__ import annotations

from typing import Any

import pytest
from hard_text import hard_text
from hypothesis import given
from hypothesis import strategies as st

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.offsets import Span, Spans, align, starts_cluster

SPANS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)).map(lambda x: (x[0], sum(x))))
PARTS = st.one_of(SPANS, st.builds(Spans.whole, st.integers(0, 9), st.integers(0, 9)))


@given(st.lists(PARTS), st.integers(-3, 30), st.integers(-3, 30), st.integers(0, 5))
def test_spans_are_what_a_list_is(parts: list[Any], start: int, end: int, by: int) -> None:
    expected: list[Span] = [span for part in parts for span in part]
    spans = Spans.joined(parts)
    assert len(spans) == len(expected)
    assert [*spans] == expected == [spans[i] for i in range(len(expected))]
    assert [*spans[start:end]] == expected[start:end] and [*spans[start:]] == expected[start:]
    assert [*spans.moved(by)] == [(a + by, b + by) for a, b in expected]
    counts = [i % 3 for i in range(len(expected))]
    repeated = [span for span, count in zip(expected, counts) for _ in range(count)]
    assert [*spans.repeated(counts)] == repeated
    again = Spans.joined([spans[:start], spans[:start][:0], spans])
    assert [*again] == expected[:start] + expected


@given(st.lists(PARTS), st.lists(st.tuples(st.integers(0, 8), st.integers(1, 3))))
def test_spans_within_spans(parts: list[Any], made: list[Any]) -> None:
    """Text made from text that was made from another."""
    between = Spans.joined([*parts, Spans.whole(12)])
    inner = Spans.joined([[(a, a + n) for a, n in made], Spans.whole(7, 3)])
    expected = [(between[a][0], between[b - 1][1]) for a, b in inner]
    assert [*inner.within(between)] == expected
    assert inner.within(Spans.whole(99)).runs == Spans.joined([inner]).runs


def test_spans_of_nothing() -> None:
    for spans in (Spans([]), Spans.whole(0), Spans.joined([]), Spans.whole(5)[2:2]):
        assert not spans and [*spans] == [] == [*spans[1:]]
        with pytest.raises(IndexError):
            spans[0]


def test_text_that_is_not_changed_is_one_run() -> None:
    spans = Spans.whole(10_000)
    pieces = [spans[at : at + 7] for at in range(0, 10_000, 7)]
    assert Spans.joined(pieces).runs == spans.runs == [(10_000, 0, 1, 1)]
    assert len(Spans.joined([[span] for span in spans]).runs) == 1


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
@given(text=hard_text)
def test_long_text_is_aligned_as_short_text(form: str, text: str) -> None:
    normal = "q" + "ab c" * 200 + "q"  # no mark composes with q
    assert all(map(starts_cluster, normal))
    long = normal + text + normal
    spans = align(long, form)
    assert len(spans) == len(core.normalize(long, form))
    inner = [*align("q" + text + "q", form)][1:-1]
    n = len(normal)
    assert [*spans[:n]] == [(i, i + 1) for i in range(n)]
    assert [*spans[n:-n]] == [(a + n - 1, b + n - 1) for a, b in inner]
    assert [*spans[-n:]] == [(i, i + 1) for i in range(len(long) - n, len(long))]


@given(st.data())
def test_tokens_are_placed_by_runs(engine: str, data: st.DataObject) -> None:
    tokenizer = BPETokenizer("gpt2", normalizer=None)
    tokenizer.train("aé🙂 aé🙂b " * 9, 262, verbose=False)
    text = data.draw(st.text("aé🙂b ", min_size=1, max_size=60))
    origin = data.draw(st.lists(PARTS))
    every = [span for part in origin for span in part][: len(text)]
    every += [(1, 2)] * (len(text) - len(every))
    ids, encoder = tokenizer.encode(text), core.encoder(tokenizer)
    expected = [(every[a][0], every[b - 1][1]) for a, b in encoder.places(text, ids)]
    assert Spans.joined([every]).of_tokens(encoder, text, ids) == expected
    assert Spans([(1, *span, 0) for span in every]).of_tokens(encoder, text, ids) == expected
