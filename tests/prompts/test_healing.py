"""The end of a prompt: against all texts that begin with it, over small vocabularies."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import tiny_models
from conftest import ROOT
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.prompts import covering_tree, draw_tree, heal, next_byte_probabilities

numpy = need("numpy")

Ids = tuple[int, ...]
PATTERNS = [
    *SPLIT_PATTERNS,
    r"[\s\S]+",
    r"[ab]+!|.",  # whether letters stay together depends on what is behind them
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|[^\p{N}]+",  # by threes from the right
    r"(?<=a)b|a+|[^a]",  # looks behind, so there are no safe cuts
]
ALPHABETS = ["ab ", "a '\n", "a1 ", "é ü", "a'sl", "の 中", "12a", " \n!", "re'"]
WIDE = "ab z1!\n'sé中😀\u0301\u00a0"
MANY = [*map(chr, range(0x80, 0x800)), *filter(str.isspace, map(chr, range(0x800, 0x3001)))]
MANY += map(chr, (*range(0x800, 0xD800, 7), *range(0xE000, 0x110000, 97)))
MOST = 4  # characters behind a prompt


def made(
    merges: list[tuple[bytes, bytes]], pattern: str, whole: bool = False, form: str | None = None
) -> BPETokenizer:
    empty = BPETokenizer(pattern, normalizer=form)
    vocab = dict(empty.definition.vocab)
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    pairs = [(vocab[left], vocab[right]) for left, right in merges]
    given = {"vocab": vocab, "merges": pairs, "ignore_merges": whole}
    return core.remade(empty, dataclasses.replace(empty.definition, **given))  # type: ignore[arg-type]


def normal(tokenizer: BPETokenizer, text: str) -> bool:
    return core.normalize(text, tokenizer.normalizer) == text


def texts(alphabet: str, most: int) -> Iterator[str]:
    for n in range(most + 1):
        yield from map("".join, itertools.product(alphabet, repeat=n))


def longer_texts(tokenizer: BPETokenizer, alphabet: str, data: bytes, most: int) -> Iterator[str]:
    """All normal texts that begin with some bytes, with so many more characters."""
    base = data.decode(errors="ignore")
    for more in texts(alphabet, most):
        longer = base + more
        if longer.encode().startswith(data) and normal(tokenizer, longer):
            yield longer


def cover(tokenizer: BPETokenizer, ids: list[int], size: int) -> Ids:
    """The first ids, up to the one that ends behind so many bytes."""
    ends = itertools.accumulate((len(core.tokens(tokenizer)[id_]) for id_ in ids), initial=0)
    return tuple(ids[: next((i for i, end in enumerate(ends) if end >= size), len(ids))])


def joined(tokenizer: BPETokenizer, ids: Ids) -> bytes:
    tokens = core.tokens(tokenizer)
    return b"".join(tokens[id_] for id_ in ids)


@functools.cache
def completed(begun: bytes) -> list[str]:
    """Return characters that begin with these bytes: many, or all if they are few."""
    if len(begun) == 1:
        return [char for char in MANY if char.encode().startswith(begun)]
    n_missing = (3 if begun < b"\xf0" else 4) - len(begun)
    ends = itertools.product(range(0x80, 0xC0), repeat=max(0, n_missing))
    found = ((begun + bytes(end)).decode(errors="ignore") for end in ends)
    return [char for char in found if len(char) == 1 and char.encode().startswith(begun)]


def starts(data: bytes) -> list[str]:
    """The text of some bytes, or that with many characters that complete it, if few with all."""
    try:
        return [data.decode()]
    except UnicodeDecodeError as error:
        text, rest = data[: error.start].decode(), data[error.start :]
        return [text + char for char in completed(rest)]


def is_real(tokenizer: BPETokenizer, ids: Ids) -> bool:
    """Whether a text begins with these ids: one of those that go on with a few characters."""
    begun = starts(joined(tokenizer, ids))
    for n in range(3):
        more = list(map("".join, itertools.product(WIDE, repeat=n)))
        longer = [start + each for start in begun for each in more]
        encoded = tokenizer.encode_ordinary_batch(longer)
        if any(tuple(each[: len(ids)]) == ids for each in encoded):
            return True
    return False


@st.composite
def vocabularies(draw: Callable[..., Any]) -> tuple[BPETokenizer, str]:
    """A tokenizer whose merges are of a few characters, and those."""
    alphabet = draw(st.sampled_from(ALPHABETS))
    tokens = [bytes([byte]) for byte in sorted(set(alphabet.encode()))]
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(draw(st.integers(0, 12))):
        pair = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if pair not in merges and len(pair[0] + pair[1]) < 6:
            merges.append(pair)
            tokens = list(dict.fromkeys([*tokens, pair[0] + pair[1]]))
    merges = draw(st.sampled_from([merges, merges[::-1]]))  # a later merge may make what one joins
    pattern = draw(st.sampled_from(PATTERNS))
    form = draw(st.sampled_from([None, "NFC"]))
    return made(merges, pattern, draw(st.booleans()), form), alphabet


@st.composite
def prompts(draw: Callable[..., Any]) -> tuple[BPETokenizer, str, bytes]:
    """A vocabulary, and a prompt, which may end inside a character."""
    tokenizer, alphabet = draw(vocabularies())
    text = core.normalize(draw(st.text(alphabet, max_size=5)), tokenizer.normalizer)
    return tokenizer, alphabet, text.encode()[: draw(st.integers(0, 15))]


@settings(max_examples=examples(400), deadline=None)
@given(prompts())
@example((made([(b" ", b"a")], "cl100k"), "a1 ", b"a "))
@example((made([(b"a", b"b"), (b"b", b"!")], r"[ab]+!|."), "ab!", b"ab"))
@example((made([(b"'", b"r"), (b"r", b"e")], "gpt2"), "re'", b"e'"))
@example((made([(b"\n", b" "), (b"\n ", b" ")], "llama3"), " \n!", b"\n"))
@example((made([(b"\xc3", b"\xa9"), (b" ", b"\xc3")], "gpt2"), "é ", b"\xc3"))
@example((made([(b" ", b" "), (b"  ", b"\xe3")], "gpt2"), "の 中", b" "))  # U+3000 is white space
def test_all_that_a_longer_text_can_have_and_nothing_else(
    given_: tuple[BPETokenizer, str, bytes],
) -> None:
    tokenizer, alphabet, data = given_
    tree = covering_tree(tokenizer, data)
    assert heal(tokenizer, data) == (tree.ids, tree.prefix)
    found = {(*tree.ids, *path) for path in tree} or {tuple(tree.ids)}
    real = {
        cover(tokenizer, tokenizer.encode(longer), len(data))
        for longer in longer_texts(tokenizer, alphabet, data, MOST)
    }
    assert real <= found
    for ids in list(found - real)[:20]:
        assert joined(tokenizer, ids).startswith(data)
        assert not joined(tokenizer, ids[:-1]).startswith(data) or not data
        assert is_real(tokenizer, ids), joined(tokenizer, ids)


Logits = Callable[[list[int]], Any]


def likely(logits: Logits, rows: int, ids: Ids) -> float:
    """How likely a model is to say some ids."""
    total = 1.0
    for i, id_ in enumerate(ids):
        weights = numpy.exp(logits(list(ids[:i]))[:rows])
        total *= weights[id_] / weights.sum()
    return total


@settings(max_examples=examples(100), deadline=None)
@given(prompts(), st.integers(0, 2**32))
def test_the_next_byte_is_as_likely_as_in_all_longer_texts(
    given_: tuple[BPETokenizer, str, bytes], seed: int
) -> None:
    """Against a sum over all texts; the model knows only tokens of the alphabet's bytes."""
    tokenizer, alphabet, data = given_
    tokenizer.add_special_tokens(["</s>"])
    allowed = set(alphabet.encode())
    tokens, end = core.tokens(tokenizer), tokenizer.max_id
    unknown = [id_ for id_ in tokens if not set(tokens[id_]) <= allowed and id_ != end]

    def logits(ids: list[int]) -> Any:
        row = numpy.random.default_rng([seed, *ids]).normal(0, 2, end + 4)  # more than tokens
        row[unknown] = -math.inf
        return row

    real: dict[Ids, int] = {}
    paths: list[Ids] = [()]
    while paths:  # from tokens that a text begins with, to those that reach behind the prompt
        before = paths.pop()
        for id_ in tokens.keys() - {end, *unknown}:
            ids = (*before, id_)
            text = joined(tokenizer, ids)
            if not (text.startswith(data) or data.startswith(text)) or not is_real(tokenizer, ids):
                continue
            if len(text) > len(data):
                real[ids] = text[len(data)]
            else:
                paths.append(ids)
    for text in longer_texts(tokenizer, "", data, 0):
        real[(*tokenizer.encode(text), end)] = 256
    expected = numpy.zeros(257)
    for ids, byte in real.items():
        expected[byte] += likely(logits, end + 1, ids)
    found = next_byte_probabilities(tokenizer, logits, data)
    assert found.shape == (257,)
    numpy.testing.assert_allclose(found, expected / expected.sum(), atol=1e-9)


def test_by_hand() -> None:
    tokenizer = made([(b"t", b"h"), (b" ", b"th"), (b"th", b"e"), (b" th", b"e")], "gpt2")
    assert tokenizer.heal("see th") == ([115, 101, 101], b" th")
    tree = covering_tree(tokenizer, "see th")
    assert {joined(tokenizer, path) for path in tree} == {b" th", b" the"}
    assert tree.after(()) == [tokenizer.convert_tokens_to_ids(t) for t in ("Ġth", "Ġthe")]
    assert tree.after((257,)) is None
    assert len(tree) == 2
    assert tokenizer.heal("see the") == ([115, 101, 101, 259], b"")  # nothing is longer
    assert covering_tree(tokenizer, "see the").branches == {}
    assert tokenizer.heal("") == ([], b"")


def test_added_tokens_and_a_space_before_the_text() -> None:
    tokenizer = made([(b" ", b"a"), (b"a", b"b"), (b" a", b"b")], "gpt2")
    plain = dataclasses.replace(tokenizer.definition, prefix_space=True)
    tokenizer = core.remade(tokenizer, plain)
    assert tokenizer.heal("a") == ([], b" a")
    assert {joined(tokenizer, path) for path in covering_tree(tokenizer, "a")} == {b" a", b" ab"}
    assert tokenizer.heal("") == ([], b" ")
    tokenizer.add_special_tokens(["<end>"])
    assert tokenizer.max_id not in {path[-1] for path in covering_tree(tokenizer, "<en")}
    tokenizer = BPETokenizer("cl100k")
    tokenizer.add_special_tokens([AddedToken("<|a b", special=False)])  # `encode` always finds it
    for prompt in ("c<", "c<|", "c<|a", "c<|a "):
        assert tokenizer.heal(prompt) == ([99], prompt[1:].encode())
        assert (tokenizer.max_id,) in set(covering_tree(tokenizer, prompt))


def test_what_is_refused() -> None:
    tokenizer = BPETokenizer()
    for prompt in (b"a\xff", b"\xc3(", b"\xe4\xb8\xad\x80", b"\xed\xa0"):
        with pytest.raises(ValueError, match="with valid UTF-8"):
            tokenizer.heal(prompt)
    with pytest.raises(ValueError, match="surrogate"):
        tokenizer.heal("\ud800")
    with pytest.raises(TypeError, match="str or bytes"):
        tokenizer.heal(["a"])
    with pytest.raises(ValueError, match="one for each of the 256 ids"):
        next_byte_probabilities(tokenizer, lambda ids: [0.5], "a")
    infinity = float("inf")
    for logits in ([infinity] * 256, [-infinity] * 256, [float("nan"), *[0.0] * 255]):
        with pytest.raises(ValueError, match="the largest logit .* not finite"):
            next_byte_probabilities(tokenizer, lambda ids, logits=logits: logits, "a")
    with pytest.raises(ValueError, match="a probability of 0"):  # it can't have this character
        b_only = [0.0 if id_ == ord("b") else -infinity for id_ in range(256)]
        next_byte_probabilities(tokenizer, lambda ids: b_only, "\u00e9".encode()[:1])


# -- A model ----------------------------------------------------------------------


def tokenizations(tokenizer: BPETokenizer, data: bytes, before: Ids = ()) -> Iterator[Ids]:
    """All ways in which a text may begin with some bytes, found token by token."""
    if before and not is_real(tokenizer, before):
        return
    rest = data[len(joined(tokenizer, before)) :]
    if not rest:
        yield before
        return
    special = set(tokenizer.special_tokens.values())
    for id_, token in core.tokens(tokenizer).items():
        if id_ not in special and (token.startswith(rest) or rest.startswith(token)):
            yield from tokenizations(tokenizer, data, (*before, id_))


@pytest.mark.parametrize("cut", ["naï", "(x", "def ", "def fo"])
def test_a_cut_prompt_gives_the_distribution_of_the_uncut_one(cut: str) -> None:
    """Every tokenization of every longer text, one by one, in a real model."""
    tokenizer, model = tiny_models.tokenizer(), tiny_models.model(tied=False)

    @functools.cache
    def logits_after(ids: Ids) -> Any:
        return model.logits([tiny_models.BOS, *ids])

    def logits(ids: Sequence[int]) -> Any:
        return logits_after(tuple(ids))

    expected = numpy.zeros(257)
    for byte in range(256):
        for ids in tokenizations(tokenizer, cut.encode() + bytes([byte])):
            expected[byte] += likely(logits, tiny_models.TOKENS, ids)
    expected[256] = sum(
        likely(logits, tiny_models.TOKENS, (*tokenizer.encode(cut), special))
        for special in tokenizer.special_tokens.values()
    )
    found = next_byte_probabilities(tokenizer, logits, cut)
    numpy.testing.assert_allclose(found, expected / expected.sum(), atol=1e-9)


# -- Real vocabularies -------------------------------------------------------------


def slow(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow)


def test_the_picture_in_the_documents_is_drawn_by_the_tool(vocab_dir: Path) -> None:
    tokenizer = BPETokenizer.from_file(vocab_dir / "o200k_base.tiktoken", split_pattern="o200k")
    drawn = draw_tree(tokenizer, "the captain's daugh")
    assert drawn == (ROOT / "docs" / "healing.svg").read_text(encoding="utf-8")
    assert {"daughter", "146 more"} <= set(re.findall(r">␣?([^<>]+)</text>", drawn))
    assert ElementTree.fromstring(draw_tree(tokenizer, "<a & b"))
    assert ElementTree.fromstring(draw_tree(tokenizer, ""))


@pytest.mark.parametrize("name", ["r50k_base", *map(slow, ["cl100k_base", "o200k_base", "qwen3"])])
def test_real_text_goes_on_as_the_tree_says(
    vocab_dir: Path, corpora: Callable[[str], str], name: str
) -> None:
    pattern = {"r50k_base": "gpt2", "cl100k_base": "cl100k", "qwen3": "qwen2"}.get(name, "o200k")
    tokenizer = BPETokenizer.from_file(vocab_dir / f"{name}.tiktoken", split_pattern=pattern)
    random = numpy.random.default_rng(1)
    for corpus in ("english", "code", "multi"):
        text = corpora(corpus)
        for start in random.integers(0, len(text) - 200, examples(40)).tolist():
            longer = text[start : start + int(random.integers(1, 150))]
            data = longer.encode()[: int(random.integers(0, 60))]
            ids = cover(tokenizer, tokenizer.encode(longer), len(data))
            certain, prefix = tokenizer.heal(data)
            assert joined(tokenizer, tuple(certain)) + prefix == data
            assert ids[: len(certain)] == tuple(certain)
            tree = covering_tree(tokenizer, data)
            assert (tree.ids, tree.prefix) == (certain, prefix)
            path = ids[len(certain) :]
            assert all(path[i] in (tree.after(path[:i]) or []) for i in range(len(path)))
            assert tree.after(path) is None or not prefix
