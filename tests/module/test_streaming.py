"""Streaming: what arrives in pieces gives the same as the whole would."""

from __future__ import annotations

import contextlib
import copy
import itertools
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer as bpe
from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools.support.offsets import starts_cluster

FORMS = ["NFC", "NFD", "NFKC", "NFKD", None]
CUSTOM_PATTERNS = [
    r"[^\s]+(?=\s)|\s+|\S",
    r"\w+(?!b)|\s|\W",
    r"\s+$|\S+|\s",
    r"a+$|a|[^a]+",
    r"a+\Z|a|[^a]+",
    r"\p{L}++|\p{N}+|.",
    r"\p{L}{2,3}+|\p{L}|\s*+",
    r"[a-z]+",
    r"\d",
    r"(?<=a)b|a+|.",
    r"(?<!a)b+|\w",
    r"\bab\b|\w|\W",
    r"\Bb+|\w|\W",
    r"(a)(b)?|c",
    r"(ab|a)(?:b)|\s+",
    r"a*",
    r"|a",
    r"x*?",
    r"b*?a|c",
    r"(?i)abc|.",
    r"(?i:é)+|\w",
    r"^a|a+|b",
    r"\Aab|b",
    r"(?!a)b|ab|a",
    r".*?,|\w+",
    r"a{2,3}|a|b{2}",
    r"(?>ab|a)b|.",
    r"\d{1,3}(?=(?:\d{3})*\b)|\D+",
    r"\d{1,3}(?=(?:\d{3})*(?!\d))|\D",
    r"[^\W\d_]+|\d",
    r"(?:a|ab)(?:c|bcd)(?:d*)",
    r"\X",
    r"(?m)^.*$",
    r"(?s).+",
    r"(.)\1*",
    r"[\s\S]+",
    r"[\s\S]",
    r" ?\w+| ?[^\w\s]+|\s+(?!\S)|\s+",
    r"a+b|a+c|[ab]",
    r"ab(?=c)|a|b|c+",
    r"(?:ab)+|(?:ba)+|\s",
    r"\n|[^\n]+",
    r"[^\n]*\n",
    r"(?:[^\n]+\n)?[^\n]",
    r"(?=(a+))b|a",
    r"a(?=.{0,3}c)|\w|\W",
    r"[ab]+(?=[ab]c)|.",
]
ALPHABET = "aabbccAB 's1,\n\té世"
TEXT = st.text(st.sampled_from(ALPHABET), max_size=24)
WIDE = st.one_of(
    TEXT,
    st.text(st.sampled_from("abe\u0301\u0323\u0327ᄀ\u1161\u11a8가ﬁÅK <|>é\u0344"), max_size=16),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)


def teach(tokenizer: BPETokenizer) -> BPETokenizer:
    """Give merges that join almost anything, so that every border shows in the ids."""
    rows = itertools.product(ALPHABET + "\u0301", repeat=2)
    counts = {"".join(row).encode(): 9 for row in rows}
    counts.update({bytes(word, "utf-8") * 2: 5 for word in ("abc ", "ab", "c\n", "aa", " b", "11")})
    return tokenizer.train(counts=counts, vocab_size=900, min_frequency=1, verbose=False)


def pieces(text: str, cuts: list[int]) -> Iterator[str]:
    """Cut a text at places; two equal ones leave an empty chunk between them."""
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return (text[a:b] for a, b in zip(places, places[1:]))


def assert_streams(tokenizer: BPETokenizer, text: str, cuts: list[int], allowed: Any) -> None:
    streamed = list(tokenizer.encode_streaming(pieces(text, cuts), allowed_special=allowed))
    assert all(streamed), "no empty list is worth yielding"
    assert sum(streamed, []) == tokenizer.encode(text, allowed_special=allowed)


CUTS = st.lists(st.integers(0, 24), max_size=6)


# -- Encoding -----------------------------------------------------------------


@pytest.mark.parametrize("pattern", [*sorted(bpe.SPLIT_PATTERNS), *CUSTOM_PATTERNS])
def test_every_pattern_streams(pattern: str) -> None:
    tokenizer = teach(BPETokenizer(pattern, normalizer=None))

    @settings(max_examples=examples(120))
    @given(TEXT, CUTS)
    def check(text: str, cuts: list[int]) -> None:
        assert_streams(tokenizer, text, cuts, "none")
        assert_streams(tokenizer, text, list(range(len(text))), "none")

    check()


@pytest.mark.parametrize("pattern", sorted(bpe.SPLIT_PATTERNS))
def test_every_way_to_cut_in_two_or_three(pattern: str) -> None:
    tokenizer = teach(BPETokenizer(pattern))
    for text in (
        "ab's c  \n b\r\n\n a1234, 'S",
        "  a\n\n  ",
        "e\u0301'\u0301s\u0301 가ᄀ\u1161\u11a8",
    ):
        whole = tokenizer.encode(text)
        for cuts in itertools.combinations(range(len(text)), 2):
            assert sum(tokenizer.encode_streaming(pieces(text, list(cuts))), []) == whole


def test_text_is_normalized_apart_only_where_nothing_joins_what_is_before_it() -> None:
    """As Unicode 9.0 has it, for each character there is."""
    points = itertools.chain(range(0xD800), range(0xE000, 0x110000))
    chars = [chr(point) for point in points]
    unsafe = [char for char in chars if bpe._APART.match(char) and not starts_cluster(char)]
    assert not unsafe
    # The last one composes since Unicode 16, though it is no mark.
    assert all(bpe._APART.match(char) for char in " aZé世가\U0001f642\U00016d67")


@pytest.mark.parametrize("form", FORMS)
def test_every_normalizer_streams(form: str | None) -> None:
    tokenizers = [
        teach(BPETokenizer(pattern, normalizer=form)) for pattern in ("gpt2", "o200k", r"\w+|\s")
    ]

    @settings(max_examples=examples(250))
    @given(st.sampled_from(tokenizers), WIDE, CUTS)
    @example(tokenizers[0], "e\u0301", [1])
    @example(tokenizers[0], "e\u0323\u0301", [2])
    @example(tokenizers[0], "ᄀ\u1161\u11a8", [1, 2])
    def check(tokenizer: BPETokenizer, text: str, cuts: list[int]) -> None:
        assert_streams(tokenizer, text, cuts, "none")
        assert_streams(tokenizer, text, list(range(len(text))), "none")

    check()


# None of them is a token already, which would be an error.
CONTENTS = [
    "<|z|>",
    "<|z",
    "zb",
    "qz",
    " z",
    "öq",
    "o\u0308z",
    "\u0308",
    "\nz",
    "<<",
    "z ",
    "界界",
    "ﬁ",
]
FLAGS = st.booleans()


@st.composite
def added_tokens(draw: Any) -> list[AddedToken]:
    contents = draw(st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=4, unique=True))
    return [
        AddedToken(
            content,
            single_word=draw(FLAGS),
            lstrip=draw(FLAGS),
            rstrip=draw(FLAGS),
            normalized=draw(FLAGS),
            special=draw(FLAGS),
        )
        for content in contents
    ]


TAUGHT = {
    (pattern, form): teach(BPETokenizer(pattern, normalizer=form))
    for pattern, form in itertools.product(
        ["gpt2", "cl100k", r"[a-z]+", r"a*"], ["NFC", "NFKD", None]
    )
}
FRAGMENTS = st.lists(
    st.sampled_from([*CONTENTS, "<|", "|>", "z", "b", " ", "  ", "\n", "o", "\u0308", "q", "_"]),
    max_size=10,
).map("".join)


@settings(max_examples=examples(600))
@given(st.sampled_from(sorted(TAUGHT, key=str)), added_tokens(), FRAGMENTS, CUTS, st.data())
def test_added_tokens_with_any_flags_stream(
    key: Any, tokens: list[AddedToken], text: str, cuts: list[int], data: Any
) -> None:
    tokenizer = copy.copy(TAUGHT[key])
    tokenizer.add_special_tokens(tokens)
    special = sorted(tokenizer.special_tokens)
    some = set(data.draw(st.lists(st.sampled_from(special)))) if special else set()
    for allowed in ("none", "all", some):
        assert_streams(tokenizer, text, cuts, allowed)
        assert_streams(tokenizer, text, list(range(len(text))), allowed)


def test_all_combinations_of_flags_stream() -> None:
    text = " x zb  zb\n azb zb_ zb o\u0308zb zb"
    for flags in itertools.product([False, True], repeat=5):
        tokenizer = teach(BPETokenizer())
        tokenizer.add_special_tokens(
            [AddedToken("zb", None, *flags), AddedToken("öz", None, *flags)]
        )
        for step in (1, 2, 3, 5):
            cuts = list(range(0, len(text), step))
            assert_streams(tokenizer, text, cuts, "all")
            assert_streams(tokenizer, text, cuts, "none")


# White space that is a token, begins one, ends one, or is taken in by one: all of these overlap.
SPACES = [
    " \n",
    "\n ",
    "\n\n",
    "  ",
    "   ",
    "\n \n",
    "\n|",
    "|\n",
    " |",
    "| ",
    " x",
    "x ",
    "\t|",
    "\n|x",
]
SPACED = st.text(st.sampled_from("  \n\n\t|x_"), max_size=8)


@st.composite
def overlapping_tokens(draw: Any) -> list[AddedToken]:
    contents = draw(st.lists(st.sampled_from(SPACES), min_size=1, max_size=4, unique=True))
    return [AddedToken(content, None, *(draw(FLAGS) for _ in range(5))) for content in contents]


def as_huggingface(tokenizer: BPETokenizer, text: str) -> list[int] | None:
    """Return the ids of HuggingFace's library, or None: at some overlaps it panics."""
    try:
        ids: list[int] = tokenizer.to_hf().encode(text).ids
    except BaseException as error:
        assert type(error).__name__ == "PanicException"
        return None
    return ids


@settings(max_examples=examples(300))
@given(overlapping_tokens(), SPACED)
@example(
    [AddedToken("\n|", None, False, True, True), AddedToken(" \n", None, False, True, True)],
    " \n \n|x",
)
@example(
    [AddedToken(" \n", None, False, True, True), AddedToken("\n|", None, False, True)], " \n \n|| _"
)
@example(
    [AddedToken("\n\n", None, False, False, True), AddedToken("\n ", None, False, True)],
    "\n\n \n \nx",
)
def test_tokens_that_overlap_in_white_space_stream(tokens: list[AddedToken], text: str) -> None:
    need("tokenizers")
    tokenizer = BPETokenizer(normalizer=None)
    tokenizer.add_special_tokens(tokens)
    whole = tokenizer.encode(text, allowed_special="all")
    assert as_huggingface(tokenizer, text) in (whole, None)
    for allowed in ("all", "none"):
        for cuts in range(2 ** max(0, len(text) - 1)):  # every way to cut
            places = [i for i in range(1, len(text)) if cuts >> i - 1 & 1]
            assert_streams(tokenizer, text, places, allowed)


def test_white_space_that_a_token_may_take_in_is_read_once() -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens([AddedToken("<m>", lstrip=True), "<long token>"])
    for ending in ("<m>", "<long token>", "x", ""):
        text = "a" + " \n" * 500 + ending
        assert_streams(tokenizer, text, list(range(len(text))), "all")

    finder = tokenizer._pipeline(frozenset(tokenizer.special_tokens)).raw
    seen: list[int] = []

    def border(before: str, chunk: str) -> int | None:
        seen.append(len(before + chunk))  # what is looked at for each chunk
        return finder.last_border(before, chunk)

    pieces = bpe._hold_back([*" " * 500, "x"], border, finder.cut)
    assert "".join(map(str, pieces)) == " " * 500 + "x"
    assert max(seen) == 2


def test_a_special_token_cut_anywhere_is_found() -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["<|eot_id|>", "<|eot_id|>x"])
    text = "a<|eot_id|>b <|eot_id<|eot_id|>x<|eot_id|>"
    for cuts in itertools.combinations(range(len(text)), 2):
        assert_streams(tokenizer, text, list(cuts), "all")


def test_bad_arguments_are_refused_before_the_stream_is_read() -> None:
    tokenizer = BPETokenizer()
    with pytest.raises(ValueError, match="allowed_special"):
        tokenizer.encode_streaming(iter(["a"]), allowed_special="some")
    with pytest.raises(TypeError):
        tokenizer.encode_streaming("text")
    with pytest.raises(TypeError):
        list(tokenizer.encode_streaming(["a", b"b"]))  # type: ignore[list-item]
    assert list(tokenizer.encode_streaming([])) == []
    assert list(tokenizer.encode_streaming(["", ""])) == []


# -- Memory -------------------------------------------------------------------

PROSE = (
    "It was a bright cold day in April, and the clocks were striking 13.\n\n"
    "  He said: 'it isn't so'. Grüße, caf\u0065\u0301! 世界 42,000 — fine.\r\n"
)


def endless(chunk_size: int, fed: list[int]) -> Iterator[str]:
    text = PROSE * 40
    for start in itertools.count(0, chunk_size):
        at = start % len(PROSE)
        fed[0] += chunk_size
        yield text[at : at + chunk_size]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pattern", sorted(bpe.SPLIT_PATTERNS))
def test_little_of_an_endless_stream_is_held(pattern: str, form: str | None) -> None:
    tokenizer = BPETokenizer(pattern, normalizer=form)
    tokenizer.add_special_tokens(
        [
            "<|endoftext|>",
            AddedToken("zz", lstrip=True, rstrip=True, normalized=True, special=False),
        ]
    )
    for chunk_size in (1, 7, 2000):
        fed, seen, bytes_per_char = [0], 0, len(PROSE.encode()) / len(PROSE)
        for ids in tokenizer.encode_streaming(endless(chunk_size, fed), allowed_special="all"):
            seen += len(ids)  # no merges: an id is a byte
            held = fed[0] - seen / bytes_per_char
            assert held < 300 + 3 * chunk_size + fed[0] * 0.1  # decomposing changes the length
            if fed[0] > 12_000:
                break


def test_memory_does_not_grow_with_an_endless_stream() -> None:
    tokenizer = BPETokenizer("llama3")
    tokenizer.add_special_tokens(["<|endoftext|>"])
    stream = tokenizer.encode_streaming(endless(1000, [0]), allowed_special="all")
    for _ in itertools.islice(stream, 200):
        pass
    tracemalloc.start()
    for _ in itertools.islice(stream, 600):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400_000


def test_what_comes_out_is_not_held_back_without_need() -> None:
    tokenizer = BPETokenizer()
    stream = tokenizer.encode_streaming(iter(["Hello world and", " more", " to come"]))
    assert tokenizer.decode(next(stream)) == "Hello world"


# -- Decoding -----------------------------------------------------------------

IDS = st.lists(
    st.one_of(
        st.integers(-2, 300), st.sampled_from([0xF0, 0x9F, 0x99, 0x82, 0xE4, 0xB8, 0x96, 0xC3])
    ),
    max_size=16,
)


def byte_tokenizer() -> BPETokenizer:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["<|é|>", "</s>"])
    return tokenizer


@settings(max_examples=examples(300))
@given(IDS, st.sampled_from(["replace", "ignore", "strict"]), st.booleans())
@example([0xE4, 999, 0xB8, 0x96], "ignore", False)
@example([0xE4, 999, 0xB8, 0x96], "replace", False)
@example([0xE4, 257, 0xB8, 0x96], "replace", True)
def test_decoding_a_stream_equals_decoding_at_once(ids: list[int], errors: str, skip: bool) -> None:
    tokenizer = byte_tokenizer()
    try:
        expected = tokenizer.decode(ids, skip_special_tokens=skip, errors=errors)
    except ValueError:
        with pytest.raises(ValueError):
            list(tokenizer.decode_streaming(ids, skip_special_tokens=skip, errors=errors))
        return
    streamed = list(tokenizer.decode_streaming(iter(ids), skip, errors))
    assert "".join(streamed) == expected
    assert all(streamed)


@settings(max_examples=examples(200))
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_character_that_later_ids_complete_comes_whole(text: str) -> None:
    tokenizer = BPETokenizer(normalizer=None)
    streamed = list(tokenizer.decode_streaming(tokenizer.encode(text)))
    assert streamed == list(text)  # one character each: the ids are bytes


def test_text_comes_as_soon_as_it_is_certain() -> None:
    taken: list[int] = []

    def ids() -> Iterator[int]:
        for id_ in "aé🙂b".encode():
            taken.append(id_)
            yield id_

    stream = BPETokenizer().decode_streaming(ids())
    seen = [(char, len(taken)) for char in stream]
    assert seen == [("a", 1), ("é", 3), ("🙂", 7), ("b", 8)]


def test_decoding_an_endless_stream_is_lazy() -> None:
    stream = BPETokenizer().decode_streaming(itertools.cycle("世!".encode()))
    assert "".join(itertools.islice(stream, 6)) == "世!" * 3


@pytest.mark.parametrize("ids", [[1.5], ["a"], [None], [[97]], "ab"])
def test_decoding_a_stream_of_wrong_types_is_a_type_error(ids: Any) -> None:
    with pytest.raises(TypeError):
        list(BPETokenizer().decode_streaming(ids))


def test_decoding_a_stream_of_array_elements() -> None:
    numpy, torch = need("numpy"), need("torch")
    tokenizer = byte_tokenizer()
    ids = [*"é".encode(), 257, 97]
    for array in (
        numpy.array(ids),
        torch.tensor(ids),
        map(numpy.uint32, ids),
        iter(torch.tensor(ids)),
    ):
        assert "".join(tokenizer.decode_streaming(array, skip_special_tokens=True)) == "éa"


def test_a_stream_can_be_closed() -> None:
    closed = []

    def chunks() -> Iterator[str]:
        try:
            for _ in range(9):
                yield "some words, "
        finally:
            closed.append(True)

    tokenizer = BPETokenizer("gpt2", normalizer=None)
    stream: Any = tokenizer.encode_streaming(chunks())
    assert next(stream) and not closed
    with contextlib.closing(stream):
        pass
    assert closed == [True] and list(stream) == []
    stream.close()  # again
