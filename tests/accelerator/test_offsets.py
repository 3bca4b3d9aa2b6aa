"""Offsets by runs, and trimmed ones, in C."""

from __future__ import annotations

import array
import itertools
from typing import Any

import pytest
from conftest import extension
from hypothesis import given
from hypothesis import strategies as st

from bpe_tokenizer_tools.support.offsets import Span, Spans, _trim_span

native = extension()
SPANS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)).map(lambda x: (x[0], sum(x))))


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: only one engine has these calls."""


BAD: dict[str, Any] = {
    "too short": array.array("i", [2, 0, 1, 1]),
    "too long": array.array("i", [4, 0, 1, 1]),
    "much too long": array.array("i", [2**31 - 1, 0, 1, 1] * 9),
    "negative": array.array("i", [4, 0, 1, 1, -1, 0, 1, 1]),
    "before the text": array.array("i", [3, -1, 1, 1]),
    "backward": array.array("i", [3, 2, 1, 1]),
    "too far": array.array("i", [3, 0, 2**31 - 1, 1]),
    "half a run": array.array("i", [3, 0, 1, 1, 0]),
    "other numbers": array.array("I", [3, 0, 1, 1]),
    "longer numbers": array.array("q", [3, 0, 1, 1]),
    "bytes": bytes(16),
    "none": array.array("i"),
}


@pytest.mark.parametrize("runs", BAD.values(), ids=BAD)
def test_bad_runs_are_refused(runs: Any) -> None:
    encoder = native.Encoder({bytes([i]): i for i in range(256)}, [], None)
    good = array.array("i", [1, 7, 8, 0, 0, 9, 9, 1, 2, 5, 6, 1])
    assert encoder.offsets("abc", [97, 98, 99], good) == [(7, 8), (5, 6), (6, 7)]
    with pytest.raises(ValueError, match="the runs don't match the text"):
        encoder.offsets("abc", [97, 98, 99], runs)
    with pytest.raises(TypeError):
        encoder.offsets("abc", [97, 98, 99], [3, 0, 1, 1])
    # The ids are not those of the text, but there are as many bytes: anything but a crash.
    strange = [0xC3] * 4, [0xA9] * 4, [0xA9, 0xC3, 0xC3, 0xA9]
    for ids in strange:
        assert len(encoder.offsets("éé", ids, array.array("i", [2, 0, 1, 1]))) == 4
    assert encoder.offsets("", [], array.array("i")) == []


@given(st.lists(st.sampled_from([b" ", b"  ", b"   ", b" a", b"a ", b" a ", b".\n"])), SPANS)
def test_the_engine_trims_as_python_does(tokens: list[bytes], origin: list[Span]) -> None:
    words = dict.fromkeys([*tokens, *(bytes([i]) for i in range(256))])
    vocab = {token: i for i, token in enumerate(words)}
    encoder = native.Encoder(vocab, [], None)
    text, ids = b"".join(tokens).decode(), [vocab[token] for token in tokens]
    every = (origin * len(text))[: len(text)] if origin else [*Spans.whole(len(text))]
    spans = Spans.joined([every])
    runs = array.array("i", [number for run in spans.runs for number in run])
    ends = [*itertools.accumulate(map(len, tokens), initial=0)]
    for trimming in (1, 2, 3):
        expected = []
        for i, (token, a, b) in enumerate(zip(tokens, ends, ends[1:])):
            span, visible = (every[a][0], every[b - 1][1]), token.decode().replace("\n", "Ċ")
            keep = trimming > 1 and (trimming == 3 or i > 0 or span[0] == 0)
            expected.append(_trim_span(span, visible, keep, first=i == 0))
        assert encoder.offsets(text, ids, runs, trimming) == expected
    for trimming in (-1, 4):
        with pytest.raises(ValueError, match="trimming"):
            encoder.offsets(text, ids, runs, trimming)
