"""Respelling text in C: " " and "▁" swap places, and others stand in for unknown characters."""

from __future__ import annotations

import array
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from conftest import extension
from hypothesis import given
from hypothesis import strategies as st

from bpe_tokenizer_tools.support.offsets import Span, Spans

native = extension()
SWAPPED = {" ": "▁", "▁": " "}
BY_BYTES = "".join(map(chr, range(0xE000, 0xE080)))
# Of each width, and what is near "▁" in one.
CHARS = [*"ab \n\x00\x7f\x80\x81\xffé▁▀▂中丁\ue000\uf8ff\uffff😀𐀀", "\ud800", "\U0010ffff"]
ASCII = set(map(chr, range(0x80)))
CALLS = st.one_of(  # what is known, and what stands in for the rest
    st.tuples(st.sets(st.sampled_from(CHARS)).map(ASCII.union), st.just(BY_BYTES), st.just(False)),
    st.tuples(
        st.sets(st.sampled_from(CHARS)) | st.just({*ASCII, "▁"}),
        st.sampled_from(["", "\ue000", "é"]),
        st.booleans(),
    ),
)
TEXTS = st.lists(st.sampled_from([*CHARS, "the▁cat▁sat▁on▁the▁mat", "the cat sat on it"])).map(
    "".join
)
SPANS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)).map(lambda x: (x[0], sum(x))))


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: only one engine has these calls."""


def bits(known: Iterable[str]) -> bytes:
    found = bytearray(0x110000 // 8)
    for char in known:
        found[ord(char) // 8] |= 1 << ord(char) % 8
    return bytes(found)


def expected(
    text: str, origin: list[Span], known: set[str], stand_ins: str, fuses: bool
) -> Iterator[tuple[str, Span]]:
    """Yield each character of the respelled text, and where it comes from."""
    for is_known, group in itertools.groupby(zip(text, origin), lambda both: both[0] in known):
        chars = list(group)
        if is_known:
            yield from ((SWAPPED.get(char, char), span) for char, span in chars)
        elif fuses:
            whole = chars[0][1][0], chars[-1][1][1]
            yield from ((char, whole) for char in stand_ins)
        else:
            for char, span in chars:
                raw = char.encode("utf-8", "surrogatepass")
                those = [stand_ins[byte - 0x80] for byte in raw] if stand_ins[1:] else stand_ins
                yield from ((char, span) for char in those)


@given(TEXTS, CALLS, SPANS)
def test_as_in_python(text: str, call: tuple[set[str], str, bool], spans: list[Span]) -> None:
    known, stand_ins, fuses = call
    origin = (spans * len(text))[: len(text)] if spans else [(i, i + 1) for i in range(len(text))]
    found = list(expected(text, origin, *call))
    rules = bits(known), stand_ins, fuses
    respelled = "".join(char for char, _ in found)
    assert native.respell(text, *rules) == respelled
    runs = Spans.joined([origin]).flat()
    again, raw = native.respell(text, *rules, runs)
    made = memoryview(raw).cast("i").tolist()
    of_four = [(made[i], made[i + 1], made[i + 2], made[i + 3]) for i in range(0, len(made), 4)]
    assert again == respelled
    assert [*Spans(of_four)] == [span for _, span in found]


def test_text_that_stays_is_not_copied() -> None:
    text = "".join(map(chr, range(0x21, 0x7F))) * 3
    assert native.respell(text, bits({*ASCII, "▁"}), "", False) is text


def test_long_unknown_text() -> None:
    """It gets three or four times as long, so room is made again and again."""
    for char, n in (("中", 3), ("\U0010ffff", 4), ("é", 2)):
        found = native.respell(f"a{char}" * 50_000, bits(ASCII), BY_BYTES, False)
        once = native.respell(f"a{char}", bits(ASCII), BY_BYTES, False)
        assert len(once) == n + 1 and found == once * 50_000
    assert native.respell("中" * 99_999 + "a", bits(ASCII), "?", True) == "?a"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ((5, bits(""), "", False), TypeError),
        (("a", bytes(9), "", False), ValueError),
        (("a", bits(""), "ab", False), ValueError),
        (("a", bits(ASCII), BY_BYTES, True), ValueError),
        (("a", bits("a"), BY_BYTES, False), ValueError),
        (("a", bits(ASCII), BY_BYTES[:-1] + "😀", False), ValueError),
        (("a", bits(ASCII), "", False, array.array("i", [2, 0, 1, 1])), ValueError),
        (("a", bits(ASCII), "", False, array.array("I", [1, 0, 1, 1])), ValueError),
        (("a", bits(ASCII), "", False, 5), TypeError),
    ],
)
def test_what_is_refused(given: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        native.respell(*given)
