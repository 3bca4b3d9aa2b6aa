"""tekken.json, against mistral-common's own Tekkenizer and its own files."""

from __future__ import annotations

import base64
import copy
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, FileFormatError
from bpe_tokenizer_tools.formats import tekken as format_

THOROUGH = bool(os.environ.get("BPE_TOKENIZER_THOROUGH"))
FILES = ["tekken_240911.json", *(["tekken_240718.json"] if THOROUGH else [])]


@pytest.fixture(scope="module", params=FILES)
def pair(engine: str, request):
    """(our tokenizer, mistral-common's) of a published file."""
    mistral = need("mistral_common.tokens.tokenizers.tekken")
    path = Path(mistral.__file__).parents[2] / "data" / request.param
    return BPETokenizer.from_file(path), mistral.Tekkenizer.from_file(path)


def small(special=(), n_special=20, extra=0, **config):
    """A small file as data: the bytes and a few tokens."""
    tokens = [bytes([b]) for b in range(256)] + [b"ab", b"cd", b"abcd", b"  ", "世".encode()]
    tokens += [b"ab" * n for n in range(3, 3 + extra)]
    data = {
        "config": {
            "pattern": SPLIT_PATTERNS["qwen2"],
            "num_vocab_tokens": len(tokens),
            "default_vocab_size": len(tokens) + n_special,
            "default_num_special_tokens": n_special,
            "version": "v3",
            **config,
        },
        "vocab": [
            {"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for i, token in enumerate(tokens)
        ],
    }
    if special:
        data["special_tokens"] = [
            {"rank": i, "token_str": token, "is_control": True} for i, token in enumerate(special)
        ]
    return data


def written(tmp_path, data, name="tekken.json"):
    path = tmp_path / name
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


# -- Published files ----------------------------------------------------------


@pytest.mark.parametrize("corpus", ["english", "code", "multi"])
def test_ids_on_real_text(corpus, pair, corpora):
    ours, theirs = pair
    text = corpora(corpus)
    if not THOROUGH:
        start = len(text) // 2
        text = text[start : start + 500_000]
    ids = ours.encode(text)
    assert ids == theirs.encode(text, bos=False, eos=False)
    assert ours.decode(ids) == theirs.decode(ids) == text


MIXED = (
    st.text() | st.text(st.sampled_from("aAbBéÉǅʰ世1٣ \n\r\t/'.-_!\u0301😀")) | st.text("aB \n1")
)


@settings(max_examples=examples(2000))
@given(text=MIXED)
def test_ids_of_random_text(text, pair):
    ours, theirs = pair
    ids = ours.encode(text)
    assert ids == theirs.encode(text, bos=False, eos=False)
    assert ours.decode(ids) == text


def test_ids_of_every_token(pair):
    """Each token on its own, and after another: where the vocabulary is cut shows."""
    ours, theirs = pair
    rng = random.Random(2)
    for id_ in rng.sample(range(1000, 131072), 3000):
        token = theirs.id_to_byte_piece(id_)
        assert ours.decode_bytes([id_]) == token
        text = token.decode("utf-8", "replace")
        assert ours.encode(text) == theirs.encode(text, bos=False, eos=False)


def test_special_tokens_have_the_first_ids(pair):
    ours, theirs = pair
    assert ours.vocab_size == theirs.n_words == 131072
    assert ours.max_id == 131071
    special = {theirs.id_to_piece(i): i for i in range(theirs.num_special_tokens)}
    assert ours.special_tokens == special
    assert special["[INST]"] == 3 and "<SPECIAL_999>" in special
    roles = ours.bos_token_id, ours.eos_token_id, ours.pad_token_id, ours.unk_token_id
    assert roles == (theirs.bos_id, theirs.eos_id, theirs.pad_id, theirs.unk_id)
    assert ours.encode("Hi", add_special_tokens=True) == theirs.encode("Hi", bos=True, eos=False)
    ids = theirs.encode("Hi </s>", bos=True, eos=True)
    assert ours.encode("Hi </s>") == ids[1:-1]  # text is never taken for one
    assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(ids) == "Hi </s>"


def test_through_another_format(pair, tmp_path):
    ours, theirs = pair
    ours.export(tmp_path / "x.tiktoken", "tiktoken")
    again = BPETokenizer.from_file(tmp_path / "x.tiktoken")
    text = "Überall 12 ISO-Normen; voilà\n\n  x /\n 世界😀"
    assert again.encode(text) == theirs.encode(text, bos=False, eos=False)
    assert again.special_tokens == ours.special_tokens
    assert again.split_pattern == ours.split_pattern
    assert ours.to_tiktoken().encode(text) == ours.encode(text)


# -- Small files --------------------------------------------------------------


@pytest.mark.parametrize("special", [(), ("<unk>", "<s>", "</s>", "[A]"), ("[A]", "<s>")])
@pytest.mark.parametrize("extra, size", [(0, None), (3, None), (3, 281), (5, 276)])
def test_small_files(special, extra, size, tmp_path):
    mistral = need("mistral_common.tokens.tokenizers.tekken")
    data = small(special, extra=extra)
    data["config"]["default_vocab_size"] = size or data["config"]["default_vocab_size"]
    path = written(tmp_path, data)
    ours, theirs = BPETokenizer.from_file(path), mistral.Tekkenizer.from_file(path)
    for text in ("abcd  cd 世 ab", "abababababab abab", "[A]<s> é\n\n12"):
        ids = theirs.encode(text, bos=False, eos=False)
        assert ours.encode(text) == ids
        assert ours.decode(ids) == text
    expected = {theirs.id_to_piece(i): i for i in range(theirs.num_special_tokens)}
    assert ours.special_tokens == expected
    assert ours.vocab_size == theirs.n_words
    assert ours.to_hf().encode("abcd", add_special_tokens=False).ids == ours.encode("abcd")


def test_from_a_directory_and_by_content(tmp_path):
    path = written(tmp_path, small())
    assert BPETokenizer.from_file(tmp_path).encode("ab") == [276]
    path.rename(tmp_path / "other")
    assert BPETokenizer.from_file(tmp_path / "other").encode("ab") == [276]


def test_further_special_tokens(tmp_path):
    path = written(tmp_path, small())
    ours = BPETokenizer.from_file(path, special_tokens={"<new>": 400, "<s>": 1})
    assert ours.encode("a<new>", allowed_special="all") == [117, 400]
    with pytest.raises(ValueError, match="'<new>' can't get the id 30: another token has it"):
        BPETokenizer.from_file(path, special_tokens={"<new>": 30})


def test_it_has_its_own_pattern(tmp_path):
    with pytest.raises(ValueError, match="carries its own split pattern"):
        BPETokenizer.from_file(written(tmp_path, small()), split_pattern="gpt2")


def test_a_newer_file_must_list_its_special_tokens(tmp_path):
    for version in ("v11", "v13", "v99"):
        with pytest.raises(FileFormatError, match="special_tokens: is missing; a file of version"):
            BPETokenizer.from_file(written(tmp_path, small(version=version)))
        BPETokenizer.from_file(written(tmp_path, small(("<s>",), version=version)))


# -- Damaged and hostile files ------------------------------------------------

DAMAGE = [
    (["config"], None, "config: is missing"),
    (["config"], [], "config: expected dict or null"),
    (["config", "pattern"], 7, "config.pattern: expected str"),
    (["config", "pattern"], "(", "not a regular expression|cannot be written"),
    (["config", "pattern"], "x" * 10**6, "1000000 characters"),
    (["config", "pattern"], "(" * 5000 + ")" * 5000, "split pattern"),
    (["config", "version"], 3, "config.version: expected str"),
    (["config", "default_vocab_size"], 2**62, "default_vocab_size: expected 20 to 281"),
    (["config", "default_vocab_size"], -1, "default_vocab_size: expected 20 to 281"),
    (["config", "default_vocab_size"], 270, "no token for byte 0xFA"),
    (["config", "default_vocab_size"], "281", "default_vocab_size: expected int"),
    (["config", "default_vocab_size"], True, "default_vocab_size: expected int"),
    (["config", "default_num_special_tokens"], 2**62, "expected 0 to 100000"),
    (["config", "default_num_special_tokens"], -1, "expected 0 to 100000"),
    (["config", "default_num_special_tokens"], 3, "20 special tokens, but"),
    (["special_tokens"], {}, "special_tokens: expected list"),
    (["special_tokens"], ["<s>"], r"special_tokens\[0\]: expected an object"),
    (["special_tokens"], [{"rank": 1, "token_str": "a"}], r"special_tokens\[0\].rank: expected 0"),
    (["special_tokens"], [{"rank": 0, "token_str": 1}], "token_str: expected str"),
    (["special_tokens"], [{"rank": 0, "token_str": ""}], "token_str: is empty"),
    (["special_tokens"], [{"rank": 0, "token_str": "\ud800"}], "surrogate|Unicode"),
    (["special_tokens"], [{"rank": 0, "token_str": "<SPECIAL_7>"}], "'<SPECIAL_7>' appears twice"),
    (["special_tokens"], [{"rank": 0, "token_str": "ab"}], "'ab' is already a token"),
    (["vocab"], {}, "vocab: expected list"),
    (["vocab"], [], "default_vocab_size: expected 20 to 20"),
    (["vocab", 257], 5, r"vocab\[257\]: expected rank and token_bytes"),
    (["vocab", 257, "token_bytes"], None, r"vocab\[257\]: expected rank and token_bytes"),
    (["vocab", 257, "token_bytes"], "a", r"vocab\[257\].token_bytes: b'a' is not base64"),
    (["vocab", 257, "token_bytes"], "é", r"vocab\[257\].token_bytes: 'é' is not base64"),
    (["vocab", 257, "token_bytes"], "YWI=", r"b'ab' is already the token of vocab\[256\]"),
    (["vocab", 257, "token_bytes"], "YWFh" * 40_000, "too long to find their merges"),
    (["vocab", 257, "rank"], 256, r"vocab\[257\].rank: expected 257, got 256"),
    (["vocab", 257, "rank"], -1, r"vocab\[257\].rank: expected 257, got -1"),
    (["vocab", 257, "rank"], 2**62, r"vocab\[257\].rank: expected 257"),
    (["vocab", 257, "rank"], 257.0, r"vocab\[257\].rank: expected 257"),
]


@pytest.mark.parametrize("where, value, message", DAMAGE, ids=[f"{w}-{m}" for w, _, m in DAMAGE])
def test_damage(where, value, message, tmp_path):
    data = copy.deepcopy(small())
    at = data
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    with pytest.raises(FileFormatError, match=message) as caught:
        BPETokenizer.from_file(written(tmp_path, data))
    assert caught.value.path == str(tmp_path / "tekken.json")
    assert len(str(caught.value)) < 600


def test_truncated_files(tmp_path):
    whole = written(tmp_path, small(extra=20)).read_bytes()
    assert len(whole) > 15_000
    for cut in [*range(300, len(whole), 1000), len(whole) - 1]:
        (tmp_path / "tekken.json").write_bytes(whole[:cut])
        with pytest.raises(FileFormatError, match="not JSON"):
            BPETokenizer.from_file(tmp_path / "tekken.json")


@pytest.mark.parametrize("inside", ["[", '{"a":', '[{"a":'])
def test_deep_nesting(inside, tmp_path):
    path = tmp_path / "tekken.json"
    path.write_text('{"config": {"num_vocab_tokens": ' + inside * 200_000)
    with pytest.raises(FileFormatError, match="not JSON"):
        BPETokenizer.from_file(path)


@settings(max_examples=examples(150))
@given(garbage=st.binary(max_size=12), at=st.integers(0, 18_000))
def test_damaged_bytes(garbage, at, tmp_path):
    path = written(tmp_path, small())
    data = path.read_bytes()
    path.write_bytes(data[:at] + garbage + data[at + len(garbage) :])
    try:
        ours = BPETokenizer.from_file(path)
    except (FileFormatError, ValueError):
        return
    assert ours.decode(ours.encode("ab c")) == "ab c"


def test_what_looks_like_tekken(tmp_path):
    path = written(tmp_path, small())
    assert format_.matches(path, path.read_bytes()[:4096])
    other = path.rename(tmp_path / "other")
    assert format_.matches(other, other.read_bytes()[:4096])
    for head in (b"", b"{}", b'[{"token_bytes": 1}]', b"token_bytes"):
        assert not format_.matches(other, head)
