"""Vocabulary, merges, `split_pattern` and `special_tokens` in one plain JSON object.

What small programs write: HuggingFace's library has no such form, so the oracle is the same
tokenizer built through it part by part, and the naive encoder of `reference.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, find_all, need

from bpe_tokenizer import (
    CL100K_SPLIT_PATTERN,
    GPT2_SPLIT_PATTERN,
    BPETokenizer,
    FileFormatError,
    build_byte_to_char,
    main,
)

PATTERN = r"'s|'t| ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPECIAL = {"<|bos|>": 300, "<|end of text|>": 301}
CHARS = build_byte_to_char()
PAIRS = [
    *("t h", "th e", "Ġ the", "l o", "lo w", "e r", "Ġ low", "Ġlow er", "Ã ©", "Ġ a", "1 2"),
]
TOKENS = [*CHARS.values(), *("".join(pair.split()) for pair in PAIRS)]
VOCAB = {token: 3 * i % 271 if i < 256 else i + 15 for i, token in enumerate(TOKENS)}
assert len(set(VOCAB.values())) == len(VOCAB)
LISTED = {token: i for i, token in enumerate(TOKENS)}
MERGES = [pair.split() for pair in PAIRS]
WITH_SPECIAL = {**VOCAB, **SPECIAL}

VARIANTS: dict[str, dict[str, Any]] = {
    "flat": {"vocab": VOCAB, "merges": MERGES, "special_tokens": SPECIAL},
    "flat, merges as text": {"vocab": VOCAB, "merges": PAIRS, "special_tokens": SPECIAL},
    "flat, merges as ids": {
        "vocab": VOCAB,
        "merges": [[VOCAB[left], VOCAB[right]] for left, right in MERGES],
        "special_tokens": SPECIAL,
    },
    "flat, special tokens in the vocabulary": {
        **{"version": "1.0", "type": "BPE", "vocab": WITH_SPECIAL, "merges": MERGES},
        **{"special_tokens": SPECIAL, "vocab_size": len(WITH_SPECIAL)},
    },
    "a list of special tokens": {
        **{"vocab": WITH_SPECIAL, "merges": MERGES, "special_tokens": list(SPECIAL)},
    },
    "special tokens by id": {
        **{"vocab": VOCAB, "merges": MERGES},
        "special_tokens": {str(id_): token for token, id_ in SPECIAL.items()},
    },
    "special tokens by role": {
        **{"vocab": WITH_SPECIAL, "merges": MERGES},
        "special_tokens": {
            **{"bos_token": "<|bos|>", "eos_token": "<|end of text|>", "pad_token": None}
        },
    },
    "(token, id) pairs": {
        **{"vocab": [[token, id_] for token, id_ in VOCAB.items()], "merges": PAIRS},
        "special_tokens": SPECIAL,
    },
    "(id, token) pairs": {
        **{"vocab": [[id_, token] for token, id_ in VOCAB.items()], "merges": PAIRS},
        "special_tokens": SPECIAL,
    },
    "from ids": {
        **{"vocab": {str(id_): token for token, id_ in VOCAB.items()}, "merges": MERGES},
        "special_tokens": SPECIAL,
    },
    "a list of tokens": {"vocab": TOKENS, "merges": MERGES, "special_tokens": SPECIAL},
    "a list of all tokens": {
        **{"vocab": [*TOKENS, *SPECIAL], "merges": MERGES, "special_tokens": list(SPECIAL)},
    },
    "within a model": {
        "version": "1.0",
        "model": {"type": "BPE", "vocab": VOCAB, "merges": MERGES},
        "special_tokens": SPECIAL,
    },
    "lists": {  # within a model
        "model": {"type": "BPE", "vocab": TOKENS, "merges": PAIRS},
        "special_tokens": SPECIAL,
    },
    "within all of a tokenizer.json": {
        **{"version": "1.0", "truncation": None, "padding": None, "normalizer": None},
        "added_tokens": [
            {"id": id_, "content": token, "special": True} for token, id_ in SPECIAL.items()
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel"},
        "model": {
            **{"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False},
            **{"vocab": VOCAB, "merges": MERGES},
        },
    },
}
TEXT = "the lower, low er's 12 café\n\n  the\t世界 <|bos|> 12123 🙂"


def written(folder: Path, data: dict[str, Any], name: str = "tokenizer.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def ids_of(variant: str) -> dict[str, int]:
    return LISTED if variant in ("a list of tokens", "a list of all tokens", "lists") else VOCAB


BYTES = {char: byte for byte, char in CHARS.items()}


def naive(text: str, vocab: dict[str, int]) -> list[int]:
    """Encode with the naive encoder."""
    raw = {bytes(map(BYTES.__getitem__, token)): id_ for token, id_ in vocab.items()}
    merges = [tuple(bytes(map(BYTES.__getitem__, part)) for part in pair) for pair in MERGES]
    found: list[int] = []
    for piece in find_all(PATTERN, text):
        found += [raw[part] for part in reference.encode(piece.encode(), merges)]
    return found


@pytest.mark.parametrize("name", ["tokenizer.json", "mine.json"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_read_exactly(tmp_path: Path, variant: str, name: str) -> None:
    path = written(tmp_path, {**VARIANTS[variant], "split_pattern": PATTERN}, name)
    places = [path, tmp_path] if name == "tokenizer.json" else [path]
    for place in places:
        for load in (BPETokenizer.from_file, BPETokenizer.from_pretrained):
            tokenizer = load(
                place, **({} if load == BPETokenizer.from_file else {"verbose": False})
            )
            special = tokenizer.special_tokens
            assert list(special) == list(SPECIAL)
            assert tokenizer.encode(TEXT) == naive(TEXT, ids_of(variant))
            assert tokenizer.decode(tokenizer.encode(TEXT), errors="strict") == TEXT
            assert tokenizer.normalizer is None and tokenizer.split_pattern == PATTERN
            marked = tokenizer.encode("the<|end of text|>", allowed_special="all")
            assert marked == [*naive("the", ids_of(variant)), special["<|end of text|>"]]
            if "all tokens" not in variant:
                assert special == SPECIAL
    assert (tokenizer.bos_token == "<|bos|>") is (variant == "special tokens by role")


@pytest.mark.parametrize("variant", ["flat", "within a model"])
def test_ids_are_those_of_the_parts_put_together_there(tmp_path: Path, variant: str) -> None:
    tokenizers = need("tokenizers")
    bpe = tokenizers.models.BPE(VOCAB, [tuple(pair) for pair in MERGES])
    theirs = tokenizers.Tokenizer(bpe)
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    ours = BPETokenizer.from_file(
        written(tmp_path, {**VARIANTS[variant], "split_pattern": PATTERN})
    )

    @settings(max_examples=examples(100))
    @given(st.text() | st.text(st.sampled_from("thelowr é12\n's")))
    def check(text: str) -> None:
        assert ours.encode(text) == theirs.encode(text).ids
        assert ours.decode(ours.encode(text)) == text

    check()
    ours.save(tmp_path / "saved", verbose=False)
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json"))
    assert again.encode("the lower 世界").ids == theirs.encode("the lower 世界").ids
    assert BPETokenizer.from_file(tmp_path / "saved").encode(TEXT) == ours.encode(TEXT)


@pytest.mark.parametrize(
    ("written_as", "meant"),
    [("cl100k", CL100K_SPLIT_PATTERN), (GPT2_SPLIT_PATTERN, GPT2_SPLIT_PATTERN)],
)
def test_a_pattern_may_be_a_name(tmp_path: Path, written_as: str, meant: str) -> None:
    path = written(tmp_path, {**VARIANTS["flat"], "split_pattern": written_as})
    assert BPETokenizer.from_file(path).split_pattern == meant


def test_a_pattern_that_is_missing_is_asked_for(tmp_path: Path) -> None:
    for absent in ({}, {"split_pattern": None}):
        path = written(tmp_path, {**VARIANTS["flat"], **absent})
        with pytest.raises(FileFormatError, match="pass split_pattern"):
            BPETokenizer.from_file(path)
        given = BPETokenizer.from_file(path, split_pattern=PATTERN)
        assert given.encode(TEXT) == naive(TEXT, VOCAB)
    path = written(tmp_path, {**VARIANTS["flat"], "split_pattern": PATTERN})
    with pytest.raises(ValueError, match="carries its own split pattern"):
        BPETokenizer.from_file(path, split_pattern="gpt2")


def test_special_tokens_may_be_given(tmp_path: Path) -> None:
    data = {"vocab": WITH_SPECIAL, "merges": MERGES, "split_pattern": PATTERN}
    path = written(tmp_path, data)
    assert BPETokenizer.from_file(path, special_tokens=SPECIAL).special_tokens == SPECIAL
    with pytest.raises(FileFormatError, match="has the ids? .*300"):
        BPETokenizer.from_file(path, special_tokens={"<|bos|>": 5})


def test_roles_and_template_beside_it_are_read(tmp_path: Path) -> None:
    written(tmp_path, {**VARIANTS["flat"], "split_pattern": PATTERN})
    written(tmp_path, {"eos_token": "<|end of text|>"}, "special_tokens_map.json")
    written(tmp_path, {"pad_token": "<|end of text|>"}, "tokenizer_config.json")
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    tokenizer = BPETokenizer.from_file(tmp_path)
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (301, 301)
    assert tokenizer.chat_template == "{{ messages }}"
    written(tmp_path, {"pad_token": "<pad>"}, "tokenizer_config.json")
    with pytest.raises(FileFormatError, match="pad_token"):
        BPETokenizer.from_file(tmp_path)


def without(data: dict[str, Any], token: str) -> dict[str, Any]:
    return {**data, "vocab": {key: id_ for key, id_ in data["vocab"].items() if key != token}}


FLAT = {**VARIANTS["flat"], "split_pattern": PATTERN}
MODEL = {**VARIANTS["within a model"], "split_pattern": PATTERN}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False}
DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "a byte is missing": (without(FLAT, "Ā"), "no token for byte 0x00"),
    "part of a merge is missing": (without(FLAT, "th"), "merges"),
    "result of a merge is missing": (without(FLAT, "Ã©"), "merges[8]"),
    "merge of three": ({**FLAT, "merges": ["t h e"]}, "merges[0]"),
    "merge of unknown ids": ({**FLAT, "merges": [[1, 9999]]}, "no token has the id 9999"),
    "merges as a map": ({**FLAT, "merges": {"t h": 0}}, "merges"),
    "no merges": ({k: v for k, v in FLAT.items() if k != "merges"}, "merges: is missing"),
    "no vocab": ({k: v for k, v in FLAT.items() if k != "vocab"}, "vocab: is missing"),
    "an id twice": ({**FLAT, "vocab": {**VOCAB, "tt": 0}}, "vocab"),
    "a token twice": ({**FLAT, "vocab": [*TOKENS, "a"]}, "has the ids"),
    "not in the byte alphabet": ({**FLAT, "vocab": {**VOCAB, "世": 999}}, "byte alphabet"),
    "an id that is text": ({**FLAT, "vocab": {**VOCAB, "tt": "x"}}, "vocab"),
    "an id below 0": ({**FLAT, "vocab": {**VOCAB, "tt": -1}}, "vocab"),
    "a special token of another id": ({**FLAT, "special_tokens": {"a": 999}}, "in vocab"),
    "a special token without an id": ({**FLAT, "special_tokens": ["<new>"]}, "{token: id}"),
    "a special id that is taken": ({**FLAT, "special_tokens": {"<x>": 0}}, "already that of"),
    "a special token of no text": ({**FLAT, "special_tokens": {"": 999}}, "special_tokens"),
    "special tokens as objects": ({**FLAT, "special_tokens": [{"x": 1}]}, "special_tokens"),
    "a pattern with a syntax error": ({**FLAT, "split_pattern": "(a"}, "not a regular expression"),
    "a pattern of another type": ({**FLAT, "split_pattern": 3}, "split_pattern: expected str"),
    "an unknown key": ({**FLAT, "min_frequency": 2}, "min_frequency: unknown key"),
    "an unknown key in the model": (
        {**MODEL, "model": {**MODEL["model"], "unk": 3}},
        "model.unk: unknown key",
    ),
    "vocab at both places": ({**MODEL, "vocab": VOCAB}, "vocab: is also in model"),
    "another kind of model": ({**FLAT, "type": "WordPiece"}, "expected 'BPE'"),
    "another kind within": (
        {**MODEL, "model": {**MODEL["model"], "type": "WordLevel"}},
        "expected 'BPE'",
    ),
    "byte fallback": ({**MODEL, "model": {**MODEL["model"], "byte_fallback": True}}, "byte_fall"),
    "an unknown token": ({**MODEL, "model": {**MODEL["model"], "unk_token": "a"}}, "unk_token"),
    "a normalizer": ({**MODEL, "normalizer": {"type": "NFC"}}, "normalizer"),
    "another pre-tokenizer": ({**MODEL, "pre_tokenizer": BYTE_LEVEL}, "in different ways"),
    "another decoder": ({**MODEL, "decoder": {"type": "Fuse"}}, "only ByteLevel"),
    "too few": ({**FLAT, "vocab_size": 3}, "vocab_size"),
    "a role of no token": ({**FLAT, "bos_token": "<s>"}, "bos_token"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_what_is_missing_or_unclear_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    data, words = DAMAGED[damage]
    path = written(tmp_path, data)
    with pytest.raises(FileFormatError) as caught:
        BPETokenizer.from_file(path)
    assert words in str(caught.value) and str(path) in str(caught.value)


def test_special_tokens_alone_do_not_make_a_tokenizer_json_plain(tmp_path: Path) -> None:
    data = {key: value for key, value in MODEL.items() if key != "split_pattern"}
    with pytest.raises(FileFormatError, match="special_tokens: unknown key"):
        BPETokenizer.from_file(written(tmp_path, data))


def test_the_command_line_reads_it(tmp_path: Path, capsys: Any) -> None:
    path = written(tmp_path, FLAT)
    assert main(["encode", "--tokenizer", str(path), "--text", TEXT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["input_ids"] == naive(TEXT, VOCAB)
    for place in (path, tmp_path):  # other libraries are asked about an export
        assert main(["check", str(place)]) == 0
        assert "equal" in capsys.readouterr().out


WRONG: list[Any] = [None, True, -1, 1.5, "x", [], {}, [[]], {"a": 1}, [1], ["a", "b"]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_wrong_types_anywhere_are_refused_or_harmless(tmp_path: Path, variant: str) -> None:
    data = {**VARIANTS[variant], "split_pattern": PATTERN}
    for key in (*data, *(f"model.{key}" for key in data.get("model", ()))):
        for value in WRONG:
            changed = json.loads(json.dumps(data))
            node = changed["model"] if key.startswith("model.") else changed
            node[key.split(".")[-1]] = value
            try:
                tokenizer = BPETokenizer.from_file(written(tmp_path, changed))
            except FileFormatError:
                continue
            assert tokenizer.decode(tokenizer.encode(TEXT), errors="strict") == TEXT
