"""Special and added tokens: found alike everywhere, as HuggingFace and tiktoken do."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer
from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import core

SPECIAL = ["<|a|>", "<|a|>b", "<|a", "a|><", "|>", "<|b|>", "<|é|>"]
FRAGMENTS = st.lists(
    st.sampled_from(
        [*SPECIAL, "<", "|", ">", "<|", "a", "b", " ", "  ", "\n", "_", "é", "e\u0301", "1"]
    ),
    max_size=12,
).map("".join)
PROSE = "a ab abc b<|a|> <|b|>c caba bab cab | > < <| |>x \n\n" * 9


def trained(**options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer(**options)
    return tokenizer.train(PROSE, 290, special_tokens=SPECIAL, verbose=False, num_workers=1)


@pytest.fixture(scope="module")
def tokenizer(engine: str) -> BPETokenizer:
    return trained()


def naive_split(text: str, tokens: list[str]) -> list[tuple[str, bool]]:
    """Cut text at tokens, leftmost first and of those the longest: (text, is token)."""
    out: list[tuple[str, bool]] = []
    plain = ""
    while text:
        found = max((token for token in tokens if text.startswith(token)), key=len, default="")
        if found:
            out += [(plain, False)] * bool(plain) + [(found, True)]
            plain, text = "", text[len(found) :]
        else:
            plain, text = plain + text[0], text[1:]
    return out + [(plain, False)] * bool(plain)


def naive_encode(tokenizer: BPETokenizer, text: str, tokens: list[str]) -> list[int]:
    ids: list[int] = []
    for part, is_token in naive_split(text, tokens):
        ids += [tokenizer.special_tokens[part]] if is_token else tokenizer.encode(part)
    return ids


# -- What is recognized -------------------------------------------------------


@settings(max_examples=examples(300))
@given(FRAGMENTS, st.lists(st.sampled_from(SPECIAL), unique=True))
@example("<|a|>b<|a|><|a|><", [])
def test_the_leftmost_and_then_the_longest_token_wins(
    tokenizer: BPETokenizer, text: str, some: list[str]
) -> None:
    assert tokenizer.encode(text, allowed_special="all") == naive_encode(tokenizer, text, SPECIAL)
    assert tokenizer.encode(text, allowed_special=set(some)) == naive_encode(tokenizer, text, some)


@settings(max_examples=examples(200))
@given(FRAGMENTS, st.booleans(), st.sampled_from(["none", "all", "set", "list", "empty"]))
def test_every_entry_point_gives_one_answer(
    tokenizer: BPETokenizer, text: str, special: bool, kind: str
) -> None:
    values = {"set": {"<|a|>", "|>"}, "list": ["<|a|>", "|>"], "empty": ()}
    allowed: Any = values.get(kind, kind)
    ids = tokenizer.encode(text, special, allowed)
    options = {"add_special_tokens": special, "allowed_special": allowed}
    assert tokenizer(text, **options) == ids
    assert tokenizer([text], **options)["input_ids"] == [ids]
    assert tokenizer.encode_batch([text, text], special, allowed).input_ids == [ids, ids]
    assert tokenizer.encode_with_offsets(text, special, allowed).input_ids == ids
    assert tokenizer.count_tokens(text, special, allowed) == len(ids)
    bare = tokenizer.encode_batch([text], special, allowed, return_offsets=False)
    assert bare.input_ids == [ids]
    if not special:
        streamed = tokenizer.encode_streaming([text[:3], text[3:]], allowed)
        assert sum(streamed, []) == ids
    if kind in ("none", "empty") and not special:
        assert tokenizer.encode_ordinary(text) == ids
        assert tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) == ids


@settings(max_examples=examples(150))
@given(FRAGMENTS)
def test_typed_text_never_becomes_a_control_token(tokenizer: BPETokenizer, text: str) -> None:
    control = set(tokenizer.special_tokens.values())
    result = tokenizer.encode_with_offsets(text)
    for ids in (tokenizer.encode(text), tokenizer.encode_ordinary(text), result.input_ids):
        assert not control & set(ids)
        assert tokenizer.decode(ids) == text.replace("e\u0301", "é")


@pytest.mark.parametrize("allowed", ["", "None", "ALL", {"<|c|>"}, ["<|a|>", "x"], {""}])
def test_unknown_allowed_tokens_are_refused(tokenizer: BPETokenizer, allowed: Any) -> None:
    for call in (
        tokenizer.encode,
        tokenizer.count_tokens,
        tokenizer.encode_with_offsets,
        lambda text, **options: tokenizer.encode_batch([text], **options),
        lambda text, **options: list(tokenizer.encode_streaming([text], **options)),
    ):
        with pytest.raises(ValueError, match="allowed_special"):
            call("text", allowed_special=allowed)


@pytest.mark.parametrize("allowed", [None, 5, [5], [["<|a|>"]], b"all"])
def test_allowed_special_of_a_wrong_type_is_refused(tokenizer: BPETokenizer, allowed: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        tokenizer.encode("text", allowed_special=allowed)


def test_special_tokens_are_skipped_on_request(tokenizer: BPETokenizer) -> None:
    ids = tokenizer.encode("b<|a|>b <|b|>c", allowed_special="all")
    assert tokenizer.decode(ids) == "b<|a|>b <|b|>c"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "b c"
    assert tokenizer.decode_bytes(ids, skip_special_tokens=True) == b"b c"
    assert tokenizer.decode_batch([ids], skip_special_tokens=True) == ["b c"]
    assert "".join(tokenizer.decode_streaming(ids, skip_special_tokens=True)) == "b c"


# -- As tiktoken: what is not allowed -----------------------------------------

APART = ["<|a|>", "<|bb|>", "[x]"]  # none within another, where tiktoken's order decides
APART_TEXT = st.lists(st.sampled_from([*APART, "a", " ", "<|", "|>", "x", "[", "b"])).map("".join)


@pytest.fixture(scope="module")
def twins(engine: str) -> tuple[BPETokenizer, Any]:
    tiktoken = need("tiktoken")
    tokenizer = BPETokenizer(normalizer=None)
    tokenizer.add_special_tokens(APART)
    oracle = tiktoken.Encoding(
        "bytes",
        pat_str=tokenizer.split_pattern,
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens=tokenizer.special_tokens,
    )
    return tokenizer, oracle


@settings(max_examples=examples(300))
@given(
    APART_TEXT,
    st.one_of(st.just("all"), st.sets(st.sampled_from(APART))),
    st.one_of(st.just("all"), st.sets(st.sampled_from([*APART, "x", "<|"]))),
)
@example("<|a|>", {"<|a|>"}, {"<|a|>"})
@example("<|a|>", set(), "all")
@example("<|a|>", "all", "all")
def test_disallowed_special_means_what_it_means_in_tiktoken(
    twins: Any, text: str, allowed: Any, disallowed: Any
) -> None:
    tokenizer, oracle = twins
    try:
        expected = oracle.encode(text, allowed_special=allowed, disallowed_special=disallowed)
    except ValueError:
        with pytest.raises(ValueError, match="disallowed"):
            tokenizer.encode(text, allowed_special=allowed, disallowed_special=disallowed)
    else:
        ids = tokenizer.encode(text, allowed_special=allowed, disallowed_special=disallowed)
        assert ids == expected


def test_the_error_names_the_token_and_the_remedies(twins: Any) -> None:
    tokenizer, _ = twins
    with pytest.raises(ValueError) as caught:
        tokenizer.encode("a [x] <|a|>", disallowed_special="all")
    assert all(
        part in str(caught.value) for part in ("'[x]'", "allowed_special", "disallowed_special=()")
    )
    assert tokenizer.encode("[x]") == tokenizer.encode("[x]", disallowed_special=())
    with pytest.raises(ValueError):
        tokenizer.encode("a", disallowed_special="some")


# -- As HuggingFace: flags ----------------------------------------------------

CONTENTS = ["<|a|>", "<|a|>b", "ab", "zé", "ze\u0301b", " z", "z ", "z\n", "_z", "zz", "\n", "  "]
FLAG_TEXT = st.lists(
    st.sampled_from(
        [
            *CONTENTS,
            "a",
            "b",
            "z",
            " ",
            "  ",
            "\n",
            "_",
            "é",
            "e\u0301",
            "\u0301",
            "1",
            "世",
            "-",
            "\u3000",
        ]
    ),
    max_size=10,
).map("".join)
FLAG = st.booleans()


@st.composite
def flagged(draw: Any) -> list[AddedToken]:
    contents = draw(st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=4, unique=True))
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return [AddedToken(content, **{name: draw(FLAG) for name in names}) for content in contents]


def assert_as_huggingface(
    folder: Path, tokens: list[AddedToken], texts: list[str], form: str | None
) -> None:
    tokenizers = need("tokenizers")
    tokenizer = BPETokenizer(normalizer=form)
    tokenizer.add_special_tokens(tokens)
    tokenizer.save(folder, verbose=False)
    oracle = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in texts:
        expected = oracle.encode(text)
        result = tokenizer.encode_with_offsets(text, allowed_special="all")
        assert result.input_ids == expected.ids, (text, tokens)
        assert result.offsets == expected.offsets, (text, tokens)
        assert list(itertools.chain(*tokenizer.encode_streaming(list(text), "all"))) == expected.ids
    # Where special tokens are text, the others are still found in it: here also inside what looks
    # like a special token, which HuggingFace passes over as a whole.
    special = [token.content for token in tokens if token.special]
    plain = [token.content for token in tokens if not token.special]
    if any(may_overlap(a, b) for a, b in itertools.product(special, plain)):
        return
    oracle.encode_special_tokens = True
    for text in texts:
        assert tokenizer.encode(text) == oracle.encode(text).ids, (text, tokens)


def test_white_space_is_taken_in_once(tmp_path: Path) -> None:
    eats = AddedToken("<|a|>", normalized=False, special=False, rstrip=True)
    for content, text in (("  ", "<|a|>  "), ("  ", "<|a|>  b"), (" z", "<|a|>   zb")):
        reaches = AddedToken(content, normalized=False, special=False, lstrip=True)
        assert_as_huggingface(tmp_path, [eats, reaches], [text], None)


def may_overlap(a: str, b: str) -> bool:
    sizes = range(1, min(len(a), len(b)) + 1)
    return a in b or b in a or any(a[-n:] == b[:n] or b[-n:] == a[:n] for n in sizes)


def test_plain_tokens_are_found_inside_special_ones_that_are_text() -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens([AddedToken("<|a|>b"), AddedToken("<|a|>", special=False)])
    assert tokenizer.encode("<|a|>b") == [257, 98]
    assert tokenizer.encode("<|a|>b", allowed_special="all") == [256]


@settings(max_examples=examples(250))
@given(
    flagged(), st.lists(FLAG_TEXT, min_size=1, max_size=6), st.sampled_from(["NFC", "NFD", None])
)
def test_flags_mean_what_they_mean_in_huggingface(
    tmp_path: Path, tokens: list[AddedToken], texts: list[str], form: str | None
) -> None:
    assert_as_huggingface(tmp_path, tokens, texts, form)


@pytest.mark.parametrize("form", ["NFC", None])
def test_each_combination_of_flags(tmp_path: Path, form: str | None) -> None:
    texts = [
        "  zz  zz",
        "azz zz_ zz- zz",
        "zz",
        "\nzz\n\n",
        " zz zz ",
        "zzzzz",
        "\u3000zz世zz 1zz",
        "ézz e\u0301zz",
    ]
    for flags in itertools.product([False, True], repeat=5):
        assert_as_huggingface(tmp_path, [AddedToken("zz", None, *flags)], texts, form)
        pair = [AddedToken("zz", None, *flags), AddedToken("<|a|>", lstrip=True, rstrip=True)]
        mixed = [text.replace(" ", " <|a|> ", 1) for text in texts]
        assert_as_huggingface(tmp_path, pair, mixed, form)


def test_a_token_may_begin_in_the_space_that_the_last_one_takes_in(tmp_path: Path) -> None:
    texts = ["<x>  a", "<x>\n\n\nb", "<x> a a  a\n a", "<x>\n", "a <x> \n a"]
    for tokens in ([" a"], ["\n"], [" ", "\n"], ["  a", "\n\n"]):
        for rstrip in (False, True):  # with lstrip, too, HuggingFace's library panics
            greedy = [AddedToken("<x>", rstrip=True)]
            greedy += [AddedToken(token, rstrip=rstrip) for token in tokens]
            assert_as_huggingface(tmp_path, greedy, texts, None)


@pytest.mark.parametrize("special", [False, True])
def test_tokens_that_ordinary_text_gives_too_are_decoded_as_that(
    tmp_path: Path, special: bool
) -> None:
    tokenizers = need("tokenizers")
    trained = BPETokenizer(normalizer=None).train("in the other " * 9, 280, verbose=False)
    file = json.loads(trained.to_hf().to_str())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for content in ("Ġ", "Ċ", "Ġthe"):
        token = {"id": file["model"]["vocab"][content], "content": content, "special": special}
        file["added_tokens"].append({**token, **flags})
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    oracle = tokenizers.Tokenizer.from_file(str(path))
    tokenizer = BPETokenizer.from_file(path)
    for text in ("in the  other\n", "Ġ the Ċ"):
        ids = oracle.encode(text).ids
        assert tokenizer.encode(text, allowed_special="all") == ids
        assert tokenizer.decode(ids) == oracle.decode(ids, skip_special_tokens=False)
        assert tokenizer.encode_with_offsets("in the").offsets == oracle.encode("in the").offsets


def test_tokens_of_a_megabyte_are_refused() -> None:
    tokenizer = BPETokenizer()
    with pytest.raises(ValueError, match="1,048,576"):
        tokenizer.add_special_tokens(["x" * 2**20 + "y"])
    assert tokenizer.vocab_size == 256


def test_tokens_that_are_not_special_are_always_found() -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens([AddedToken("<think>", special=False)])
    assert tokenizer.encode("a<think>") == [97, 256]
    assert tokenizer.special_tokens == {}
    assert [token.content for token in tokenizer.added_tokens] == ["<think>"]
    assert tokenizer.decode([97, 256], skip_special_tokens=True) == "a<think>"
    with pytest.raises(ValueError):
        tokenizer.encode("a", allowed_special={"<think>"})


# -- Finding them -------------------------------------------------------------

LETTERS = [
    "ab",
    "aé",
    "a世b",
    "a😀\0",
    "<|>ab ",
    "a\u0461",
]  # the last shares its low bits with "a"


@st.composite
def strings_and_text(draw: Any) -> tuple[list[str], str]:
    letters = st.sampled_from(draw(st.sampled_from(LETTERS)))
    some = st.lists(st.text(letters, min_size=1, max_size=8), unique=True, max_size=12)
    strings = draw(some) + ["ab" * n for n in draw(st.sets(st.integers(5, 40), max_size=3))]
    strings = list(dict.fromkeys(strings))
    parts = st.sampled_from([*strings, "xyz" * 40, "a" * 70, "\ud800", "é"]) | letters
    return strings, "".join(draw(st.lists(parts, max_size=30)))


@settings(max_examples=examples(500))
@given(strings_and_text(), st.integers(-2, 99), st.integers(-2, 999))
def test_strings_are_found_as_by_a_regular_expression(
    engine: str, drawn: tuple[list[str], str], start: int, stop: int
) -> None:
    strings, text = drawn
    spans = bpe_tokenizer._engine.spans_of(strings)
    for place in ((0, sys.maxsize), (start, stop)):
        assert list(spans(text, *place)) == list(bpe_tokenizer._spans_of(strings)(text, *place))


@settings(max_examples=examples(300))
@given(flagged(), FLAG_TEXT, st.sampled_from(["NFC", "NFD", None]), st.booleans())
def test_encoding_is_what_the_pipeline_gives(
    engine: str, tokens: list[AddedToken], text: str, form: str | None, some: bool
) -> None:
    tokenizer = BPETokenizer("cl100k", normalizer=form)
    tokenizer.add_special_tokens(tokens)
    allowed = frozenset(token.content for token in tokens if token.special)
    if some:
        allowed = frozenset(sorted(allowed)[::2])
    parts = tokenizer._pipeline(allowed).parts(text)
    ids = bpe_tokenizer._encode_parts(tokenizer._encoder, parts)
    assert tokenizer.encode(text, allowed_special=allowed) == ids


@pytest.mark.parametrize("n", [1, 7, 1_000, 6_000])
def test_many_tokens(engine: str, n: int) -> None:
    tokenizer = BPETokenizer(normalizer=None)
    tokenizer.add_special_tokens([f"<{i}>" for i in range(n)])
    tokenizer.add_special_tokens([AddedToken("中", special=False)])
    text = "".join(f"<{i}>a<{n}>中<" for i in range(n))
    expected: list[int] = []
    for i in range(n):
        expected += [256 + i, 97, *f"<{n}>".encode(), 256 + n, 60]
    assert tokenizer.encode(text, allowed_special="all") == expected
    assert 256 not in tokenizer.encode(text)
    assert tokenizer.encode(text).count(256 + n) == n


def test_ids_are_the_callers_own() -> None:
    tokenizer = with_ends(surround="bos+eos")
    for options in ({}, {"allowed_special": "all"}, {"add_special_tokens": True}):
        ids = tokenizer.encode("ab", **options)
        tokenizer.encode("ab", **options).clear()
        assert tokenizer.encode("ab", **options) == ids


# -- Ids ----------------------------------------------------------------------


def test_reserved_ids_are_kept_and_merges_go_around_them() -> None:
    wanted = {"<|begin_of_text|>": 256, "<|end_of_text|>": 300, "<|eot_id|>": 5000}
    tokenizer = BPETokenizer().train(
        PROSE, 280, special_tokens={**wanted, "<pad>": None}, verbose=False, num_workers=1
    )
    assert {token: tokenizer.special_tokens[token] for token in wanted} == wanted
    ids = sorted(tokenizer.get_vocab().values())
    assert len(ids) == len(set(ids)) == tokenizer.vocab_size
    assert 256 <= tokenizer.special_tokens["<pad>"] < 5001
    assert tokenizer.decode(tokenizer.encode(PROSE)) == PROSE
    for token, id_ in tokenizer.special_tokens.items():
        assert tokenizer.encode(token, allowed_special="all") == [id_]
        assert tokenizer.decode([id_]) == token


def test_the_sizes_of_the_design() -> None:
    special = {"<|begin_of_text|>": 256, "<|end_of_text|>": 257, "<|eot_id|>": 258}
    text = "".join(f"{i} {i * i} word{i % 37} " for i in range(900))
    tokenizer = BPETokenizer().train(
        text, 512, special_tokens=special, verbose=False, num_workers=1
    )
    assert tokenizer.special_tokens == special
    assert len(tokenizer) == tokenizer.vocab_size == 512
    assert sorted(tokenizer.get_vocab().values()) == list(range(512))
    assert tokenizer.bos_token_id == 256 and tokenizer.eos_token_id == 257
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tokens_without_an_id_go_to_the_end() -> None:
    tokenizer = trained()
    first = tokenizer.vocab_size - len(SPECIAL)
    assert tokenizer.special_tokens == {token: first + i for i, token in enumerate(SPECIAL)}
    assert tokenizer.add_special_tokens(["<|c|>", "<|d|>"]) == 2
    assert tokenizer.special_tokens["<|d|>"] == tokenizer.max_id == first + len(SPECIAL) + 1


@pytest.mark.parametrize(
    "tokens",
    [
        {"<|new|>": 97},
        {"<|new|>": 256},
        {"<|a|>": 9999},
        ["<|new|>", "<|new|>"],
        ["a"],
        {"<|new|>": 9999, "<|newer|>": 9999},
        [AddedToken("<|new|>", 257)],
        [AddedToken("<|new|>"), AddedToken("<|new|>", 9999)],
        [AddedToken("<|new|>", 9999), AddedToken("<|new|>")],
        {"<|new|>": -1},
        {"<|new|>": 2**31},
        {"<|new|>": True},
        {"<|new|>": 1.0},
        [""],
    ],
)
def test_nothing_is_ever_overwritten(tokens: Any) -> None:
    tokenizer = trained()
    before = tokenizer.get_vocab()
    with pytest.raises((ValueError, TypeError)):
        tokenizer.add_special_tokens(tokens)
    assert tokenizer.get_vocab() == before
    assert tokenizer == trained()


@pytest.mark.parametrize(
    "tokens", ["<|a|>", b"<|a|>", [5], [None], 5, [b"<|a|>"], [("<|a|>", 300)]]
)
def test_special_tokens_of_a_wrong_type_are_refused(tokens: Any) -> None:
    with pytest.raises(TypeError):
        BPETokenizer().add_special_tokens(tokens)
    with pytest.raises(TypeError):
        BPETokenizer().train("ab", 300, special_tokens=tokens, verbose=False, num_workers=1)


def test_a_special_token_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        BPETokenizer().add_special_tokens(["<\ud800>"])


def test_adding_tokens_takes_effect_at_once() -> None:
    tokenizer = BPETokenizer()
    assert tokenizer.encode("<|c|>", allowed_special="all") == list(b"<|c|>")
    tokenizer.add_special_tokens({"<|c|>": 1000})
    assert tokenizer.encode("<|c|>", allowed_special="all") == [1000]
    assert tokenizer.vocab_size == 257 and tokenizer.max_id == 1000
    assert tokenizer.decode([1000]) == "<|c|>"
    assert tokenizer.convert_tokens_to_ids("<|c|>") == 1000
    assert tokenizer.convert_ids_to_tokens(1000) == "<|c|>"
    assert tokenizer.get_vocab()["<|c|>"] == 1000


# -- Roles --------------------------------------------------------------------


def test_roles_come_from_exact_names_only() -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["<|weekend|>", "<|my_pad_x|>", "endings", "<s>", "</s>"])
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    assert tokenizer.pad_token is None and tokenizer.pad_token_id is None
    assert tokenizer.unk_token is None and tokenizer.unk_token_id is None
    tokenizer.pad_token = "<|my_pad_x|>"
    assert tokenizer.pad_token_id == 257
    tokenizer.pad_token = None
    assert tokenizer.pad_token_id is None
    with pytest.raises(ValueError, match="bos_token"):
        tokenizer.bos_token = "<|nothing|>"
    assert tokenizer.encode("a", add_special_tokens=True) == [259, 97, 260]
    tokenizer.bos_token = None
    assert tokenizer.encode("a", add_special_tokens=True) == [97, 260]


@pytest.mark.parametrize("role", ["bos_token", "eos_token", "pad_token", "unk_token"])
def test_assigning_an_id_sets_the_token(role: str, tmp_path: Path) -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens({"<a>": 300, "<b>": 301})
    tokenizer.add_special_tokens([AddedToken("<plain>", 302, special=False)])
    setattr(tokenizer, f"{role}_id", 301)
    assert getattr(tokenizer, role) == "<b>" and getattr(tokenizer, f"{role}_id") == 301
    tokenizer.save(tmp_path, verbose=False)
    assert getattr(BPETokenizer.from_file(tmp_path), f"{role}_id") == 301
    wrong = {97: "97", 299: "299", -1: "-1", 302: "302", "<nothing>": "'<nothing>'"}
    for id_, shown in wrong.items():
        with pytest.raises(ValueError, match=f"{role}_id: {shown} is not the id of a special"):
            setattr(tokenizer, f"{role}_id", id_)
    assert getattr(tokenizer, role) == "<b>"
    setattr(tokenizer, f"{role}_id", None)
    assert getattr(tokenizer, role) is None


def test_an_assigned_pad_id_pads() -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens({"<a>": 300, "<b>": 301})
    tokenizer.pad_token_id = 301
    assert tokenizer(["abc", "a"], padding=True)["input_ids"] == [[97, 98, 99], [97, 301, 301]]


@pytest.mark.parametrize("role", ["bos", "eos", "pad", "unk"])
def test_roles_come_from_known_names_in_any_case(role: str) -> None:
    big, small = role.upper(), role.capitalize()
    names = [f"<{big}>", f"[{big}]", f"[{role}]", f"<|{big}|>", f"<{small}>", f"<|{role}|>"]
    if role in ("bos", "eos"):
        names += ["<S>", "<|STARTOFTEXT|>"] if role == "bos" else ["</S>", "<|EndOfText|>"]
    for name in names:
        added = BPETokenizer()
        added.add_special_tokens(["<a>", name])
        trained = BPETokenizer().train("ab " * 9, 260, special_tokens=[name], verbose=False)
        for tokenizer in (added, trained):
            roles = ("bos", "eos", "pad", "unk")
            found = {each: getattr(tokenizer, f"{each}_token") for each in roles}
            assert found == {**dict.fromkeys(roles), role: name}, name
    for name in (f"<{big}X>", f"{big}", f"[/{big}]", f"<<{big}>>", f"<|{big}>", f"({role})", "[S]"):
        tokenizer = BPETokenizer()
        tokenizer.add_special_tokens([name, AddedToken(f"[{big}]", special=False)])
        assert tokenizer._roles == {}


def test_llama_3_has_eleven_tokens_in_a_row() -> None:
    tokens = bpe_tokenizer.LLAMA3_SPECIAL_TOKENS
    assert list(tokens.values()) == list(range(128000, 128011))
    reserved = [token for token in tokens if "reserved" in token]
    assert reserved == [f"<|reserved_special_token_{number}|>" for number in range(3)]
    assert [tokens[token] for token in reserved] == [128002, 128003, 128005]


def test_the_first_known_name_takes_a_role() -> None:
    for names in (["<S>", "<s>", "<BOS>"], ["<BOS>", "<s>", "<S>"], ["[BOS]", "<s>"]):
        tokenizer = BPETokenizer()
        tokenizer.add_special_tokens(names)
        assert tokenizer.bos_token == "<s>"
        tokenizer.add_special_tokens(["<|begin_of_text|>"])
        assert tokenizer.bos_token == "<s>"


def test_a_loaded_file_gets_no_roles_that_it_does_not_name(tmp_path: Path) -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["[BOS]", "<EOS>"])
    tokenizer.bos_token = tokenizer.eos_token = None
    tokenizer.save(tmp_path, verbose=False)
    tokenizer = BPETokenizer("gpt2", normalizer=None)
    tokenizer.add_special_tokens(["[BOS]", "<EOS>"])
    tokenizer.bos_token = tokenizer.eos_token = None
    tokenizer.export(tmp_path / "x.tiktoken", "tiktoken")
    sidecar = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert "bos_token" not in sidecar  # as earlier versions wrote it
    for path in (tmp_path / "tokenizer.json", tmp_path / "x.tiktoken"):
        loaded = BPETokenizer.from_file(path)
        assert loaded._roles == {} and around(loaded) == ()


# -- Around a text ------------------------------------------------------------

AROUND = {"bos+eos": ("<s>", "</s>"), "bos": ("<s>",), "eos": ("</s>",), "none": ()}


def around(tokenizer: BPETokenizer) -> tuple[str, ...]:
    return tuple(tokenizer.convert_ids_to_tokens(tokenizer.encode("", add_special_tokens=True)))


def with_ends(**options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer(**options)
    return tokenizer.train("ab abc " * 9, 260, special_tokens=["<s>", "</s>"], verbose=False)


@pytest.mark.parametrize("surround", AROUND)
def test_every_road_puts_the_same_tokens_around_a_text(tmp_path: Path, surround: str) -> None:
    tokenizer = with_ends(surround=surround)
    ids, tokens = tokenizer.encode("abc"), AROUND[surround]
    before = [tokenizer.convert_tokens_to_ids(token) for token in tokens if token == "<s>"]
    after = [tokenizer.convert_tokens_to_ids(token) for token in tokens if token == "</s>"]
    whole = [*before, *ids, *after]
    assert tokenizer.encode("abc", add_special_tokens=True) == whole
    assert tokenizer("abc", add_special_tokens=True) == whole
    assert tokenizer.encode("abc", True, allowed_special="all") == whole
    need("numpy")
    assert tokenizer.encode_to_numpy("abc", add_special_tokens=True).tolist() == whole
    aligned = tokenizer.encode_with_offsets("abc", add_special_tokens=True)
    assert aligned.input_ids == whole
    nowhere = [(0, 0)]
    inner = tokenizer.encode_with_offsets("abc").offsets
    assert inner and aligned.offsets == nowhere * len(before) + inner + nowhere * len(after)
    for offsets in (True, False):
        options: dict[str, Any] = {"truncation": True, "max_length": len(tokens) + 1}
        batch = tokenizer.encode_batch(["abc", ""], True, return_offsets=offsets)
        assert batch["input_ids"] == [whole, before + after]
        batch = tokenizer.encode_batch(["abc"], True, return_offsets=offsets, **options)
        assert batch["input_ids"] == [[*before, ids[0], *after]]
    assert tokenizer.count_tokens("abc", add_special_tokens=True) == len(whole)
    assert tokenizer.truncate("abc", len(whole), add_special_tokens=True) == "abc"
    assert tokenizer.truncate("abc", len(whole) - 1, add_special_tokens=True) == "ab"
    assert tokenizer.decode(whole, skip_special_tokens=True) == "abc"
    tokenizer.save(tmp_path, verbose=False)
    again = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    for each in (again, pickle.loads(pickle.dumps(tokenizer)), copy.copy(tokenizer)):
        assert around(each) == tokens and each == tokenizer
    assert around(tokenizer.with_vocab_size(259)) == tokens


@pytest.mark.parametrize("surround", AROUND)
def test_roles_that_are_given_later_count(tmp_path: Path, surround: str) -> None:
    """Before a save, after it, and in a pickle: the rule stays with the tokenizer."""
    new = BPETokenizer(surround=surround)
    new.save(tmp_path, verbose=False)
    loaded = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    for tokenizer in (new, loaded, pickle.loads(pickle.dumps(new))):
        assert around(tokenizer) == ()
        tokenizer.add_special_tokens(["<a>", "<z>"])
        assert around(tokenizer) == ()
        tokenizer.bos_token = "<a>"
        tokenizer.eos_token = "<z>"
        tokens = tuple({"<s>": "<a>", "</s>": "<z>"}[token] for token in AROUND[surround])
        assert around(tokenizer) == tokens
        tokenizer.save(tmp_path / "later", verbose=False)
        later = BPETokenizer.from_pretrained(tmp_path / "later", verbose=False)
        assert around(later) == tokens and later == tokenizer
        later.bos_token = "<z>"
        assert around(later) == tuple(token.replace("a", "z") for token in tokens)


def test_a_file_that_says_what_goes_around_a_text_keeps_it(tmp_path: Path) -> None:
    """As one of Llama 3 does: bos alone, whatever the roles."""
    with_ends(surround="bos").save(tmp_path, verbose=False)
    config = tmp_path / "tokenizer_config.json"
    data = json.loads(config.read_text())
    assert data.pop("surround") == "bos"
    config.write_text(json.dumps(data))
    tokenizer = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    assert around(tokenizer) == ("<s>",)
    tokenizer.add_special_tokens(["<other>"])
    tokenizer.bos_token = "<other>"
    assert around(tokenizer) == ("<s>",)
    # tokenizer.json decides, whatever stands beside it.
    config.write_text(json.dumps({**data, "surround": "bos+eos"}))
    assert around(BPETokenizer.from_pretrained(tmp_path, verbose=False)) == ("<s>",)
    # Trained again, with other ids.
    tokenizer.train("xyz " * 9, 300, special_tokens={"<s>": 1000}, verbose=False)
    assert around(tokenizer) == ("<s>",) and tokenizer.encode("", True) == [1000]
    tokenizer.train("xyz " * 9, 300, verbose=False, surround="bos+eos")
    assert around(tokenizer) == ("<other>", "</s>")


def test_a_pickle_of_version_0_7_keeps_its_ids() -> None:
    tokenizer = with_ends()
    rebuild, (cls, packed) = tokenizer.__reduce__()
    assert packed.count(b'"template": "default"') == 1
    old = rebuild(cls, packed.replace(b'"template": "default"', b'"template": null'))
    assert around(old) == ("<s>",) and old.get_vocab() == tokenizer.get_vocab()


def test_a_rule_that_does_not_exist_is_refused() -> None:
    known = r"default, bos\+eos, bos, eos, none, "
    for surround in ("both", "", None, True, ["bos"]):
        with pytest.raises(ValueError, match=f"surround must be one of {known}"):
            BPETokenizer(surround=surround)
    with pytest.raises(ValueError, match="surround must be one of"):
        BPETokenizer().train("ab " * 9, 257, surround="", verbose=False)


def test_chats_do_not_care_what_goes_around_a_text() -> None:
    chats = []
    for surround in AROUND:
        tokenizer = BPETokenizer(surround=surround)
        tokenizer.add_special_tokens(["<s>", "</s>", *bpe_tokenizer.CHATML_SPECIAL_TOKENS])
        chats.append(tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], "chatml"))
    assert chats == [chats[0]] * 4


# -- Tokens and ids -----------------------------------------------------------


def test_what_is_no_token_has_the_unknown_id_or_minus_one() -> None:
    tokenizer = BPETokenizer()
    assert tokenizer.convert_tokens_to_ids("nothing") == -1
    assert tokenizer.convert_tokens_to_ids(["a", "nothing", "", " ", "Ġ"]) == [97, -1, -1, -1, 32]
    tokenizer.add_special_tokens(["<unk>"])
    assert tokenizer.convert_tokens_to_ids("nothing") == tokenizer.unk_token_id == 256
    assert tokenizer.convert_tokens_to_ids(["a", "nothing", "<unk>"]) == [97, 256, 256]
    for wrong in (5, None, [5], [None], [["a", 5]], b"a"):
        with pytest.raises(TypeError):
            tokenizer.convert_tokens_to_ids(wrong)  # type: ignore[arg-type]


def test_an_id_in_a_gap_has_no_token(tmp_path: Path) -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens({"<far>": 300})
    assert tokenizer.convert_ids_to_tokens(299) == ""
    assert tokenizer.convert_ids_to_tokens([97, 299, 300, 301, -1]) == ["a", "", "<far>", "", ""]
    numpy = need("numpy")
    assert tokenizer.convert_ids_to_tokens(numpy.array([97, 299])) == ["a", ""]
    assert tokenizer.convert_ids_to_tokens(numpy.int64(299)) == ""
    for wrong in ("a", b"a", [None], None, 1.5, [[1]]):
        with pytest.raises(TypeError) as caught:
            tokenizer.convert_ids_to_tokens(wrong)
        assert "errors=" not in str(caught.value)
    # One that has components, and tokens that are not byte-level.
    data = core.tokenizer_json_of(tokenizer)
    data["pre_tokenizer"] = {"type": "Whitespace"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    other = BPETokenizer.from_file(tmp_path / "tokenizer.json")
    assert other.components and other.convert_ids_to_tokens([97, 299]) == ["a", ""]
    assert other.convert_tokens_to_string(["a", "nothing", "b"]) == "ab"


# -- Added again --------------------------------------------------------------


@pytest.mark.parametrize(
    "again", [["<|x|>"], {"<|x|>": None}, {"<|x|>": 256}, (AddedToken("<|x|>"),)]
)
def test_a_token_that_is_there_is_not_added_again(again: Any) -> None:
    tokenizer = BPETokenizer()
    assert tokenizer.add_special_tokens(["<|x|>", "<eos>"]) == 2
    tokenizer.eos_token = None
    before = pickle.dumps(tokenizer)
    assert tokenizer.add_special_tokens(again) == 0
    assert tokenizer.add_special_tokens([*again, "<eos>"]) == 0
    assert pickle.dumps(tokenizer) == before
    assert tokenizer.add_special_tokens([*again, "<|y|>"]) == 1
    assert tokenizer.special_tokens == {"<|x|>": 256, "<eos>": 257, "<|y|>": 258}
    assert tokenizer.eos_token is None
    with pytest.raises(ValueError, match=r"'<\|x\|>' is already a token, with the id 256"):
        tokenizer.add_special_tokens({"<|x|>": 300, "<|z|>": None})
    assert "<|z|>" not in tokenizer.special_tokens


def test_a_token_that_is_there_keeps_its_flags(tmp_path: Path) -> None:
    token = AddedToken("<|x|>", lstrip=True, normalized=True)
    word = AddedToken("word", special=False)
    tokenizer = BPETokenizer()
    assert tokenizer.add_special_tokens([token, word]) == 2
    assert tokenizer.add_special_tokens([token, word, *tokenizer.added_tokens]) == 0
    assert tokenizer.add_special_tokens(["<|x|>"]) == 0  # says nothing of flags
    assert [each.lstrip for each in tokenizer.added_tokens] == [True, False]
    for other in (
        AddedToken("<|x|>", rstrip=True),
        AddedToken("<|x|>", special=False),
        "word",
    ):
        with pytest.raises(ValueError, match="is already a token, with the id 25"):
            tokenizer.add_special_tokens([other])
    with pytest.raises(ValueError, match="'a' is already a token, with the id 97"):
        tokenizer.add_special_tokens(["a"])
    tokenizer.save(tmp_path, verbose=False)
    special: Any
    for special in (["<|x|>"], {"<|x|>": 256}, [token]):
        assert BPETokenizer.from_file(tmp_path, special_tokens=special) == tokenizer
    with pytest.raises(ValueError, match="is already a token"):
        BPETokenizer.from_file(tmp_path, special_tokens={"<|x|>": 999})


# -- Allowed and disallowed ones everywhere -----------------------------------


@settings(max_examples=examples(60))
@given(FRAGMENTS, st.sets(st.sampled_from(SPECIAL)), st.integers(0, 12))
def test_allowed_tokens_count_everywhere(
    tokenizer: BPETokenizer, text: str, allowed: set[str], room: int
) -> None:
    ids = tokenizer.encode(text, allowed_special=allowed)
    tokens = tokenizer.tokenize(text, allowed_special=allowed)
    assert tokens == tokenizer.convert_ids_to_tokens(ids)
    assert tokenizer.count_tokens(text, allowed_special=allowed) == len(ids)
    cut = tokenizer.truncate(text, room, allowed_special=allowed)
    normal = core.normalize(text, "NFC")
    assert normal.startswith(cut) or text.startswith(cut)
    assert len(tokenizer.encode(cut, allowed_special=allowed)) <= room
    if len(ids) <= room:
        assert cut in (normal, text)


def test_disallowed_tokens_are_refused_everywhere(tokenizer: BPETokenizer) -> None:
    text = "a<|b|>c"
    calls: list[Callable[..., Any]] = [
        tokenizer.encode,
        tokenizer.tokenize,
        tokenizer.count_tokens,
        lambda text, **options: tokenizer.truncate(text, 9, **options),
    ]
    for call in calls:
        for refused in ("all", {"<|b|>"}):
            with pytest.raises(ValueError, match=r"contains the special token '<\|b\|>'"):
                call(text, disallowed_special=refused)
        assert call(text) == call(text, disallowed_special={"<|a|>"})
        changed = call(text) != call(text, allowed_special={"<|b|>"})
        assert changed == (call is not calls[-1])  # nine tokens hold the text either way
        with pytest.raises(ValueError, match="allowed_special must be"):
            call(text, allowed_special="some")
        for wrong in ([None], [["<|b|>"]]):
            with pytest.raises(TypeError, match="disallowed_special must be a set of strings"):
                call(text, disallowed_special=wrong)
        with pytest.raises(TypeError):
            call(text, allowed=())
    assert tokenizer.tokenize(text, allowed_special="all") == ["a", "<|b|>", "c"]
    assert tokenizer.truncate(text, 2, allowed_special="all") == "a<|b|>"
    assert tokenizer.truncate(text, 2) == "a<"


def test_a_surrogate_pair_is_told_from_a_lone_one() -> None:
    tokenizer = BPETokenizer()
    remedy = "text.encode('utf-16', 'surrogatepass').decode('utf-16'"
    calls: list[Callable[[str], Any]] = [
        tokenizer.encode,
        tokenizer.encode_with_offsets,
        tokenizer.count_tokens,
        lambda text: tokenizer.encode_ordinary_batch([text]),
        lambda text: list(tokenizer.encode_streaming([text])),
        lambda text: BPETokenizer().train([text], 257, verbose=False),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="surrogate pair") as caught:
            call("é\ud83d\ude00!")
        assert "pair '\\ud83d\\ude00', as in UTF-16, at character 1" in str(caught.value)
        assert f"{remedy})" in str(caught.value)
        for lone in ("é\ud83d", "é\ud83d!", "é\ude00\ud83d", "é\ud83d\ud83d"):
            with pytest.raises(ValueError, match="the lone surrogate") as caught:
                call(lone)
            assert f"U+{ord(lone[1]):04X} at character 1" in str(caught.value)
            assert f"{remedy}, 'replace')" in str(caught.value)
    repaired = "é\ud83d\ude00!".encode("utf-16", "surrogatepass").decode("utf-16")
    assert repaired == "é\U0001f600!" and tokenizer.decode(tokenizer.encode(repaired)) == repaired


def test_of_several_strings_the_longest_is_found() -> None:
    found = bpe_tokenizer._one_of(["<|a|>", "<|a|>b", ".*"])
    assert found.findall("<|a|>b <|a|>c .* xx") == ["<|a|>b", "<|a|>", ".*"]
    assert found.split("1<|a|>b2") == ["1", "2"]
    assert bpe_tokenizer._one_of([]).search("any text, or none") is None
