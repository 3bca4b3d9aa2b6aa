"""Folders saved by the program that this library succeeds, and by its tutorial's function.

The oracle is that program, rewritten: `tests/support/reference_program.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need
from reference_program import ReferenceTokenizer, save_tokenizer, write

from bpe_tokenizer import BPETokenizer, FileFormatError

SPECIAL = {"<|begin_of_text|>": 400, "<|end_of_text|>": 401, "<|a b|>": 128009}
TEXTS = [
    "",
    "It's the lower cafe\u0301 \u212b 12345\n\n\t世界 🙂 x",
    "the<|begin_of_text|> the<|a b|>e\u0301 <|end_of_text|",
    "def f(x):\n    return x + 12\r\n",
    " ".join(["aaaaaaaaaaaaaaaa", "\u1100\u1161\u11a8", "\0"]),
]


@pytest.fixture(scope="module", params=["cl100k", "gpt2"])
def program(request: pytest.FixtureRequest, corpora: Callable[[str], str]) -> ReferenceTokenizer:
    text = corpora("english")[:6000] + corpora("multi")[:6000] + corpora("code")[:6000]
    made = ReferenceTokenizer(request.param).train(text, 120)
    made.add_special(SPECIAL)
    return made


def assert_same(ours: BPETokenizer, theirs: ReferenceTokenizer, text: str) -> None:
    assert ours.encode(text) == theirs.encode(text)
    assert ours.encode(text, add_special_tokens=True) == theirs.encode(text, True)
    found = ours.encode(text, allowed_special="all")
    assert found == theirs.encode(text, find=True)
    assert ours.decode(found) == theirs.decode(found)
    skipped = theirs.decode(found, skip_special_tokens=True)
    assert ours.decode(found, skip_special_tokens=True) == skipped


def load(path: Path, **options: Any) -> BPETokenizer:
    return BPETokenizer.from_pretrained(path, verbose=False, **options)


def test_a_folder_of_the_class(engine: str, program: ReferenceTokenizer, tmp_path: Path) -> None:
    ours = load(program.save(tmp_path / "saved"))
    assert (ours.normalizer, ours.split_pattern) == ("NFC", program.pattern)
    assert (ours.bos_token, ours.eos_token, ours.pad_token) == (*list(SPECIAL)[:2], None)
    assert (ours.special_tokens, ours.model_max_length) == (SPECIAL, 131072)
    ours.save(tmp_path / "again", verbose=False)
    again = load(tmp_path / "again")
    assert again == ours
    for text in TEXTS:
        assert_same(ours, program, text)
        assert_same(again, program, text)
    config = json.loads((tmp_path / "again" / "tokenizer_config.json").read_bytes())
    told = program.tokenizer_config_json()
    assert {key: config[key] for key in told if key != "tokenizer_class"} == {
        key: value for key, value in told.items() if key != "tokenizer_class"
    }


def test_other_libraries_load_what_is_saved_again(
    program: ReferenceTokenizer, tmp_path: Path
) -> None:
    transformers = need("transformers")
    load(program.save(tmp_path / "saved")).save(tmp_path / "again", verbose=False)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    for text in TEXTS:
        ids = theirs(text, add_special_tokens=False).input_ids
        assert ids == program.encode(text, find=True)


def test_random_text(
    engine: str, program: ReferenceTokenizer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ours = load(program.save(tmp_path_factory.mktemp("random")))

    @settings(max_examples=examples(200), deadline=None)
    @given(st.text() | st.text(st.sampled_from("therinoa é12\n's世e\u0301\u0323")))
    def check(text: str) -> None:
        assert ours.encode(text) == program.encode(text)

    check()


def test_a_file_by_another_name(engine: str, program: ReferenceTokenizer, tmp_path: Path) -> None:
    program.save(tmp_path)
    ours = load(tmp_path)
    (tmp_path / "tokenizer.json").rename(tmp_path / "demo.json")
    (tmp_path / "tokenizer_config.json").rename(tmp_path / "demo_config.json")
    assert BPETokenizer.from_file(tmp_path / "demo.json") == ours


# -- The pattern --------------------------------------------------------------


def test_the_tutorials_file_needs_the_pattern(
    engine: str, corpora: Callable[[str], str], tmp_path: Path
) -> None:
    program = ReferenceTokenizer("gpt2").train(corpora("english")[:8000], 80)
    program.add_special(SPECIAL)
    save_tokenizer(program, tmp_path)
    with pytest.raises(FileFormatError, match=r'split_pattern: is missing.*split_pattern="gpt2"'):
        load(tmp_path)
    for ours in (
        load(tmp_path, split_pattern="gpt2"),
        BPETokenizer.from_file(tmp_path / "tokenizer.json", split_pattern="gpt2"),
    ):
        assert (ours.bos_token, ours.special_tokens) == (None, SPECIAL)
        for text in TEXTS:
            assert ours.encode(text) == program.encode(text)
            assert ours.encode(text, allowed_special="all") == program.encode(text, find=True)


def test_a_pattern_that_only_has_a_name(program: ReferenceTokenizer, tmp_path: Path) -> None:
    ours = load(program.save(tmp_path / "whole"))
    data = program.tokenizer_json()
    del data["split_pattern"]
    write(tmp_path / "tokenizer.json", data)
    write(tmp_path / "tokenizer_config.json", program.tokenizer_config_json())
    assert load(tmp_path) == ours
    for name in ("my_own", 3, None):
        config = {**program.tokenizer_config_json(), "split_pattern_name": name}
        write(tmp_path / "tokenizer_config.json", config)
        with pytest.raises(FileFormatError, match="split_pattern: is missing"):
            load(tmp_path)
        assert load(tmp_path, split_pattern=program.pattern_name) == ours
    with pytest.raises(ValueError, match="carries its own split pattern"):
        load(tmp_path / "whole", split_pattern="gpt2")


# -- Special tokens -----------------------------------------------------------


def small() -> ReferenceTokenizer:
    return ReferenceTokenizer("gpt2").train("the weather, whether or another feather " * 9, 12)


@pytest.mark.parametrize("loses_merges", [False, True])
@pytest.mark.parametrize("id_", [256, 261, 267])
def test_special_tokens_that_overwrote_a_merge(
    engine: str, id_: int, loses_merges: bool, tmp_path: Path
) -> None:
    """That program gives one id to two tokens, so ordinary text becomes a control token there."""
    program = small()
    [lost] = [token for token, known in program.vocab.items() if known == id_]
    program.add_special({"<|end|>": id_}, loses_merges)
    program.save(tmp_path)
    with pytest.raises(FileFormatError) as caught:
        load(tmp_path)
    said = str(caught.value)
    assert all(word in said for word in ("<|end|>", f" {id_}", lost, "tokenizer.json")), said


def test_special_tokens_that_overwrote_a_byte_or_a_text(engine: str, tmp_path: Path) -> None:
    program = small()
    program.add_special({"<|end|>": 65})
    with pytest.raises(FileFormatError, match=r"'<\|end\|>' has the id 65, as 'A' has"):
        load(program.save(tmp_path))
    program = small()
    program.add_special({"the": 300})
    with pytest.raises(FileFormatError, match=r"'the' \(id 300\) is also the token of a merge"):
        load(program.save(tmp_path))


def test_where_special_tokens_are_listed(engine: str, tmp_path: Path) -> None:
    program = small()
    program.add_special({"<|b|>": 268, "<|e|>": 500})
    expected = load(program.save(tmp_path))
    for field, empty in (("special_tokens", {}), ("added_tokens", [])):
        for absent in (True, False):
            for in_vocab in (True, False):
                data = program.tokenizer_json()
                data[field] = empty
                if absent:
                    del data[field]
                if not in_vocab:
                    vocab = {t: i for t, i in program.vocab.items() if t not in program.special}
                    data["model"] = {**data["model"], "vocab": vocab}
                write(tmp_path / "tokenizer.json", data)
                assert load(tmp_path) == expected


def test_no_special_tokens(engine: str, tmp_path: Path) -> None:
    program = small()
    ours = load(program.save(tmp_path))
    assert ours.special_tokens == {} and ours.normalizer == "NFC"
    assert_same(ours, program, "the weather cafe\u0301")


def test_without_a_config(engine: str, tmp_path: Path) -> None:
    program = small()
    program.add_special({"<|b|>": 268})
    write(tmp_path / "tokenizer.json", program.tokenizer_json())
    ours = load(tmp_path)
    assert ours.encode("the cafe\u0301", True) == program.encode("the cafe\u0301")  # no roles
    assert ours.special_tokens == {"<|b|>": 268}


def changed(**changes: Any) -> dict[str, Any]:
    program = small()
    program.add_special({"<|b|>": 268})
    return {**program.tokenizer_json(), **changes}


MODEL = changed()["model"]
VOCAB = MODEL["vocab"]
DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "another id in added_tokens": (
        changed(added_tokens=[{"id": 300, "content": "<|b|>"}]),
        "added_tokens[0].id: '<|b|>' has the ids 268 and 300",
    ),
    "another id in the vocabulary": (
        changed(model={**MODEL, "vocab": {**VOCAB, "<|b|>": 300}}),
        "'<|b|>' has the id 300 in model.vocab, and 268 here",
    ),
    "another content": (
        changed(special_tokens={"<|b|>": {"id": 268, "content": "<|c|>"}}),
        "content: expected '<|b|>', its key",
    ),
    "no id": (changed(special_tokens={"<|c|>": {"content": "<|c|>"}}), "id of '<|c|>' is missing"),
    "an id below 0": (changed(special_tokens={"<|c|>": {"id": -1}}), "expected an id from 0"),
    "no text": (changed(special_tokens={"": {"id": 300}}), "is empty"),
    "two special tokens of one id": (
        changed(special_tokens={"<|b|>": {"id": 268}, "<|c|>": {"id": 268}}),
        "id 268 is given to both '<|b|>' and '<|c|>'",
    ),
    "an unknown key": (changed(min_frequency=2), "min_frequency: unknown key"),
    "an unknown key in the model": (changed(model={**MODEL, "unk": 1}), "model.unk: unknown key"),
    "an unknown key of a token": (
        changed(special_tokens={"<|b|>": {"id": 268, "x": 1}}),
        "x: unknown key",
    ),
    "byte fallback": (changed(model={**MODEL, "byte_fallback": True}), "model.byte_fallback"),
    "a missing byte": (
        changed(model={**MODEL, "vocab": {t: i for t, i in VOCAB.items() if t != "A"}}),
        "has no token for byte 0x41",
    ),
    "a token that is not bytes": (
        changed(model={**MODEL, "vocab": {**VOCAB, "世": 999}}),
        "token '世' is not in the byte alphabet",
    ),
    "an id that is text": (
        changed(model={**MODEL, "vocab": {**VOCAB, "th": "256"}}),
        "model.vocab",
    ),
    "a merge of three": (changed(model={**MODEL, "merges": ["t h e"]}), "model.merges[0]"),
    "a merge without its token": (
        changed(model={**MODEL, "merges": [*MODEL["merges"], "q q"]}),
        "token 'qq' is not in model.vocab",
    ),
    "a pattern with a syntax error": (changed(split_pattern="(a"), "not a regular expression"),
    "a later version": (changed(version="2.0"), "version: expected '1.0'"),
    "another kind of model": (
        changed(model={**MODEL, "type": "WordPiece"}),
        "model.type: expected 'BPE'",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_what_is_damaged_is_refused_by_name(engine: str, damage: str, tmp_path: Path) -> None:
    data, words = DAMAGED[damage]
    write(tmp_path / "tokenizer.json", data)
    with pytest.raises(FileFormatError) as caught:
        load(tmp_path)
    assert words in str(caught.value), caught.value
    assert str(tmp_path / "tokenizer.json") in str(caught.value)


WRONG: list[Any] = [None, True, -1, 1.5, "x", [], {}, [[]], {"a": 1}, {"a": {}}, [1], ["a", "b"]]


def test_wrong_types_anywhere_are_refused_or_harmless(engine: str, tmp_path: Path) -> None:
    text = "the weather"
    data = changed()
    for place in (*data, *(f"model.{key}" for key in data["model"]), "special_tokens.<|b|>"):
        for value in WRONG:
            damaged = json.loads(json.dumps(data))
            *parents, key = place.split(".")
            node = damaged[parents[0]] if parents else damaged
            node[key] = value
            write(tmp_path / "tokenizer.json", damaged)
            try:
                ours = load(tmp_path)
            except FileFormatError:
                continue
            assert ours.decode(ours.encode(text), errors="strict") == text


def test_a_role_of_no_token(engine: str, tmp_path: Path) -> None:
    program = small()
    program.add_special({"<|b|>": 268})
    program.save(tmp_path)
    config = {**program.tokenizer_config_json(), "pad_token": "<|pad|>"}
    write(tmp_path / "tokenizer_config.json", config)
    with pytest.raises(FileFormatError, match=r"pad_token: '<\|pad\|>' is not an added token"):
        load(tmp_path)
