"""The end of a prompt for tokens of characters, against all texts that begin with it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.prompts import covering_tree, heal, next_byte_probabilities
from bpe_tokenizer_tools.prompts.completing import beyond

numpy = need("numpy")

Ids = tuple[int, ...]
MARK = "▁"
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
PREPEND = {"type": "Prepend", "prepend": MARK}
METASPACE = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}
STEPS: dict[str, tuple[Any, Any]] = {
    "Llama 2": ([PREPEND, REPLACE], None),
    "Gemma": ([REPLACE], {**SPLIT, "invert": False}),
    "Metaspace": (None, METASPACE),
    "uncut Metaspace": (None, {**METASPACE, "prepend_scheme": "first", "split": False}),
}
DECODERS = [
    {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
ALPHABETS = ["ab ", "aé ", "a中 ", "a\n ", "中世é"]
ADDED = ["\n\n", "\n\n\n", "ab", "é中", "a a"]
MOST = 3  # characters behind a prompt


def made(
    folder: Path, style: str, letters: str, merges: list[tuple[str, str]], added: list[str]
) -> BPETokenizer:
    """Return a tokenizer of a tokenizer.json, in which characters but `letters` are unknown."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), MARK, *letters.replace(" ", "")]
    vocab = {piece: id_ for id_, piece in enumerate(dict.fromkeys(pieces))}
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokens = [{"id": 0, "content": "<unk>", "special": True, **flags}]
    ids = itertools.count(len(vocab))
    for content in added:
        id_ = vocab[content] if content in vocab else next(ids)
        tokens.append({"id": id_, "content": content, "special": False, **flags})
    normalizers, pre_tokenizer = STEPS[style]
    model = {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    data = {
        "version": "1.0",
        "added_tokens": tokens,
        "normalizer": normalizers and {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": pre_tokenizer,
        "decoder": {"type": "Sequence", "decoders": DECODERS},
        "model": {**model, "vocab": vocab, "merges": [list(pair) for pair in merges]},
    }
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return BPETokenizer.from_file(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("components")


Given = tuple[str, str, str, list[tuple[str, str]], list[str], bytes]


@st.composite
def prompts(draw: Callable[..., Any]) -> Given:
    """How to make a tokenizer, and a prompt, which may end inside a character."""
    style = draw(st.sampled_from([*STEPS]))
    alphabet = draw(st.sampled_from(ALPHABETS))
    letters = "".join(draw(st.sets(st.sampled_from(alphabet), min_size=1)))
    tokens = [MARK, *letters.replace(" ", "")]
    merges: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(0, 12))):
        pair = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if pair not in merges and len(pair[0] + pair[1]) < 6:
            merges.append(pair)
            tokens = list(dict.fromkeys([*tokens, pair[0] + pair[1]]))
    merges = draw(st.sampled_from([merges, merges[::-1]]))
    added = draw(st.lists(st.sampled_from(ADDED), unique=True)) if style == "Gemma" else []
    text = draw(st.text(st.sampled_from(alphabet), max_size=6))
    return style, alphabet, letters, merges, added, text.encode()[: draw(st.integers(0, 15))]


def texts(alphabet: str, data: bytes, most: int) -> Iterator[str]:
    """All texts that begin with some bytes, with so many more characters."""
    base = data.decode(errors="ignore")
    for n in range(most + 1):
        for more in itertools.product(alphabet, repeat=n):
            longer = base + "".join(more)
            if longer.encode().startswith(data):
                yield longer


def joined(tokenizer: BPETokenizer, ids: Ids) -> bytes:
    table = tokenizer.token_bytes()
    return b"".join(table[id_] or b"" for id_ in ids)


def cover(tokenizer: BPETokenizer, text: str, data: bytes) -> Ids:
    """The first ids of a text, up to the one that ends behind some bytes it begins with."""
    ids = tokenizer.encode(text)
    lead = len(joined(tokenizer, tuple(ids))) - len(text.encode())
    size = len(data) + lead if data else 0
    ends = itertools.accumulate((len(joined(tokenizer, (id_,))) for id_ in ids), initial=0)
    return tuple(ids[: next((i for i, end in enumerate(ends) if end >= size), len(ids))])


def is_real(tokenizer: BPETokenizer, alphabet: str, lead: bytes, ids: Ids) -> bool:
    """Whether a text begins with these ids: one of those that go on with a few characters."""
    data = joined(tokenizer, ids).removeprefix(lead)
    try:  # mostly, nothing needs to follow
        if tuple(tokenizer.encode(data.decode())) == ids:
            return True
    except UnicodeDecodeError as error:
        base, rest = data[: error.start].decode(), data[error.start :]
        ends = itertools.product(range(0x80, 0xC0), *[(0x80, 0x9F, 0xB7)] * 2)
        completed = {(rest + bytes(end)).decode(errors="ignore")[:1] for end in ends}
        return any(
            tuple(tokenizer.encode(base + char)[: len(ids)]) == ids
            for char in completed
            if char.encode().startswith(rest)
        )
    wide = alphabet + "z🙂"
    return any(tuple(tokenizer.encode(text)[: len(ids)]) == ids for text in texts(wide, data, 2))


@settings(max_examples=examples(100), deadline=None)
@given(prompts())
@example(("Llama 2", "ab ", "ab", [(MARK, "a"), (MARK + "a", "b"), ("a", "b")], [], b"b a"))
@example(("Llama 2", "ab ", "ab", [(MARK, "a"), ("b", MARK)], [], b"ab "))
@example(("Gemma", "a\n ", "a", [(MARK, "a")], ["\n\n", "\n\n\n"], b"a\n\n"))
@example(("Gemma", "aé ", "aé", [], ["é中"], "aé".encode()))
@example(("Metaspace", "a中 ", "a", [(MARK, "a")], [], "a 中".encode()[:-1]))
def test_all_that_a_longer_text_can_have_and_nothing_else(folder: Path, given_: Given) -> None:
    style, alphabet, letters, merges, added, data = given_
    assume(data or style == "Gemma")  # else all but the empty text begin with a space
    tokenizer = made(folder, style, letters, merges, added)
    tree = covering_tree(tokenizer, data)
    assert heal(tokenizer, data) == (tree.ids, tree.prefix)
    whole = joined(tokenizer, tuple(tree.ids)) + tree.prefix
    assert whole.endswith(data)
    lead = whole[: len(whole) - len(data)] if data else b""
    assert lead in (b"", b" ")
    found = {(*tree.ids, *path) for path in tree} or {tuple(tree.ids)}
    alphabet += "".join(char for content in added for char in content)
    more = "".join(dict.fromkeys(alphabet))
    real = {cover(tokenizer, longer, data) for longer in texts(more, data, MOST)}
    assert real <= found
    for ids in list(found - real)[:20]:
        assert joined(tokenizer, ids).startswith(whole)
        assert is_real(tokenizer, alphabet, lead, ids), ids


@settings(max_examples=examples(40), deadline=None)
@given(prompts(), st.integers(0, 2**32))
def test_the_next_byte_is_as_likely_as_in_all_longer_texts(
    folder: Path, given_: Given, seed: int
) -> None:
    """Against a sum over all texts; the model knows only tokens of the alphabet's bytes."""
    style, alphabet, letters, merges, added, data = given_
    assume(data or style == "Gemma")  # else all but the empty text begin with a space
    tokenizer = made(folder, style, letters, merges, added)
    tokenizer.add_special_tokens(["</s>"])
    allowed, table, end = set(alphabet.encode() + b" "), tokenizer.token_bytes(), tokenizer.max_id
    unknown = [id_ for id_ in range(end) if not table[id_] or not set(table[id_] or b"") <= allowed]

    def logits(ids: list[int]) -> Any:
        row = numpy.random.default_rng([seed, *ids]).normal(0, 2, end + 4)
        row[unknown] = -math.inf
        return row

    def likely(ids: Ids) -> float:
        total = 1.0
        for i, id_ in enumerate(ids):
            weights = numpy.exp(logits(list(ids[:i]))[: end + 1])
            total *= weights[id_] / weights.sum()
        return total

    whole = covering_tree(tokenizer, data)
    spelled = joined(tokenizer, tuple(whole.ids)) + whole.prefix
    lead = spelled[: len(spelled) - len(data)] if data else b""
    real: dict[Ids, int] = {}
    paths: list[Ids] = [()]
    while paths:
        before = paths.pop()
        for id_ in set(range(end)) - set(unknown):
            ids = (*before, id_)
            text = joined(tokenizer, ids)
            if not (text.startswith(spelled) or spelled.startswith(text)):
                continue
            if not is_real(tokenizer, alphabet, lead, ids):
                continue
            if len(text) > len(spelled):
                real[ids] = text[len(spelled)]
            else:
                paths.append(ids)
    for whole_text in texts("", data, 0):
        real[(*tokenizer.encode(whole_text), end)] = 256
    expected = numpy.zeros(257)
    for ids, byte in real.items():
        expected[byte] += likely(ids)
    found = next_byte_probabilities(tokenizer, logits, data)
    numpy.testing.assert_allclose(found, expected / expected.sum(), atol=1e-9)


def test_by_hand(tmp_path: Path) -> None:
    merges = [("t", "h"), (MARK, "th"), (MARK + "th", "e"), ("th", "e")]
    tokenizer = made(tmp_path, "Llama 2", "these ", merges, [])
    see = [tokenizer.convert_tokens_to_ids(token) for token in (MARK, "s", "e", "e")]
    assert tokenizer.heal("see th") == (see, b" th")
    tree = covering_tree(tokenizer, "see th")
    assert {joined(tokenizer, path) for path in tree} == {b" th", b" the"}
    assert tokenizer.heal("th") == ([], b" th")
    assert tokenizer.heal("") == ([], b" ")
    assert tokenizer.heal("see ") == (see, b" ")
    said = beyond(tokenizer, tokenizer.encode("the e"), b" th")
    assert "".join(said) == "e e"


@pytest.mark.parametrize(
    ("prompt", "answer", "expected"),
    [
        (b"Hi \xf0\x9f\x8c", b"\xb6 ok", "🌶 ok"),
        (b"Hi \xf0", b"\x9f\x8c\xb6", "🌶"),
        (b"\xc3", b"\xa9", "é"),
        (b"\xe4\xb8\x96\xe4", b"\xb8\x96!", "世!"),
        (b"Hi \xf0\x9f", b"a", "a"),  # what is broken was the prompt's
        (b"Hi \xf0\x9f", b"", ""),
        (b"Hi \xff", b"a", "a"),
        (b"Hi \xe4\xb8\x96", b"\xb8", "\ufffd"),
    ],
)
@pytest.mark.parametrize("kind", ["gpt2", "llama 2"])
def test_after_a_prompt_that_ends_inside_a_character(
    tmp_path: Path, kind: str, prompt: bytes, answer: bytes, expected: str
) -> None:
    if kind == "gpt2":
        tokenizer = BPETokenizer(kind)
        given, ids = list(prompt), list(answer)
    else:
        tokenizer = made(tmp_path, "Llama 2", "", [], [])
        given, ids = (
            tokenizer.convert_tokens_to_ids([f"<0x{byte:02X}>" for byte in raw])
            for raw in (prompt, answer)
        )
    assert "".join(beyond(tokenizer, ids, b"", given)) == expected


@pytest.mark.filterwarnings("ignore:.*no token for these characters")
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "normalizer does more"),
        ({"normalizer": {"type": "NFC"}}, "doesn't write"),
        ({"normalizer": None}, "doesn't write"),
        (
            {"pre_tokenizer": {"type": "Digits", "individual_digits": True}},
            "pre-tokenizers do more",
        ),
        ({"model": {"byte_fallback": False}}, "byte fallback"),
        ({"model": {"ignore_merges": True}}, "byte fallback"),
        ({"added_tokens": {"special": False}}, "puts a space before text"),
        ({"added_tokens": {"special": False, "lstrip": True}}, "look at the text around"),
    ],
)
def test_what_is_refused(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    made(tmp_path, "Llama 2", "ab ", [], [])
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    for field, value in change.items():
        if field == "model":
            data["model"].update(value)
        elif field == "added_tokens":
            data["added_tokens"][0].update(value)
        else:
            data[field] = value
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ValueError, match=f"can't be healed: .*{problem}"):
        BPETokenizer.from_file(path).heal("a b")


def test_a_mark_in_the_text_itself(tmp_path: Path) -> None:
    tokenizer = made(tmp_path, "Gemma", "ab ", [(MARK, "a")], ["\n\n"])
    with pytest.raises(ValueError, match="can't be healed"):
        tokenizer.heal(f"b{MARK}a")
    assert tokenizer.heal(f"a{MARK}a ")[1] == b" "
