"""The files beside a vocabulary mean what they mean to transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, FileFormatError

transformers = need("transformers")

A, B, C = "<a>", "<b>", "<c>"  # ids 257 to 259 in tokenizer.json


def entry(content: str, special: bool = True, **flags: bool) -> dict[str, Any]:
    none = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {"content": content, **none, "special": special, **flags}


def typed(content: str, **flags: bool) -> dict[str, Any]:
    return {"__type": "AddedToken", **entry(content, **flags)}


NO_TYPE = {flag: value for flag, value in entry(B).items() if flag != "special"}
DECODER = "added_tokens_decoder"
EXTRA, OLD = "extra_special_tokens", "additional_special_tokens"
CONFIG, NAMES, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
MORE = "additional_chat_templates/tool.jinja"
PLAIN = "<a> is ordinary"  # in tokenizer.json, if this is among the files

CASES: dict[str, dict[str, Any]] = {
    "nothing": {CONFIG: {}},
    "no config": {NAMES: {"bos_token": B}},
    # roles
    "a role": {CONFIG: {"bos_token": A, "mask_token": B, "sep_token": C, "cls_token": A}},
    "a role of an ordinary token": {CONFIG: {"bos_token": A}, PLAIN: {}},
    "a role of an unknown token": {CONFIG: {"pad_token": "<z>", "mask_token": "<y>"}},
    "roles in transformers' order": {
        CONFIG: {"mask_token": "<1>", "pad_token": "<2>", "unk_token": "<3>", "sep_token": "<4>"}
    },
    "a role of a token of the vocabulary": {CONFIG: {"bos_token": "a", "eos_token": "ab"}},
    "a role with flags": {CONFIG: {"bos_token": typed(A, lstrip=True)}},
    "a role with flags, unknown": {CONFIG: {"bos_token": typed("<z>", lstrip=True)}},
    "two roles of a token": {CONFIG: {"bos_token": A, "eos_token": A}},
    "no role": {CONFIG: {"bos_token": None}},
    "a role in both": {CONFIG: {"bos_token": A}, NAMES: {"bos_token": B}},
    "a role that the map takes away": {CONFIG: {"bos_token": A}, NAMES: {"bos_token": None}},
    "a role beside a decoder": {
        CONFIG: {"bos_token": A, DECODER: {}},
        NAMES: {"bos_token": B, "eos_token": B},
    },
    "a role in the mapping of names": {CONFIG: {"bos_token": A, EXTRA: {"bos_token": B, "x": C}}},
    "a role in the mapping and the map": {
        CONFIG: {"bos_token": A, EXTRA: {"bos_token": B, "eos_token": "<z>"}},
        NAMES: {"bos_token": C},
    },
    "a role of the map with flags": {
        CONFIG: {},
        NAMES: {"bos_token": entry("<z>", False, lstrip=True), "eos_token": entry(A, lstrip=True)},
    },
    # a decoder
    "flags of a decoder": {CONFIG: {DECODER: {"257": entry(A, False, lstrip=True)}}},
    "a special token of a decoder": {CONFIG: {DECODER: {"257": entry(A)}}, PLAIN: {}},
    "unknown tokens of a decoder": {
        CONFIG: {DECODER: {"500": entry("<z>"), "400": entry("<y>", False)}}
    },
    "another id in a decoder": {CONFIG: {DECODER: {"500": entry(A), "257": entry("<z>")}}},
    "a role of a decoder's token": {
        CONFIG: {"eos_token": "<y>", DECODER: {"400": entry("<y>", False, normalized=True)}}
    },
    # added_tokens.json
    "older tokens": {CONFIG: {}, ADDED: {"<z>": 300, "<y>": 259}},
    "an older token with a role": {CONFIG: {"bos_token": "<z>"}, ADDED: {"<z>": 300}},
    "an older token in a list": {CONFIG: {EXTRA: ["<z>"]}, ADDED: {"<z>": 300}},
    "an older token with another id": {CONFIG: {}, ADDED: {"<z>": 257, B: 400}},
    "older tokens beside a decoder": {CONFIG: {DECODER: {}}, ADDED: {"<z>": 300}},
    # lists
    "a list": {CONFIG: {OLD: [A, "<z>"]}},
    "a newer list": {CONFIG: {EXTRA: [A, typed("<z>", rstrip=True)]}},
    "both lists": {CONFIG: {OLD: [A], EXTRA: [B]}},
    "both lists, one empty": {CONFIG: {OLD: [A], EXTRA: []}},
    "a list of ordinary tokens": {CONFIG: {OLD: [A]}, PLAIN: {}},
    "a list in both": {CONFIG: {OLD: [A]}, NAMES: {OLD: [B]}},
    "a list in the map": {CONFIG: {}, NAMES: {OLD: [B, "<z>"]}},
    "a list in the map, and an empty newer one": {CONFIG: {EXTRA: []}, NAMES: {OLD: [B]}},
    "newer lists in both": {CONFIG: {EXTRA: [A]}, NAMES: {EXTRA: [NO_TYPE]}},
    # names
    "a name": {CONFIG: {"image_token": A, "boi_token": typed("<z>"), "eoi_token": None}},
    "a name's flag": {CONFIG: {"add_bos_token": True, "image_token": {"content": A}}},
    "named": {CONFIG: {EXTRA: {"image_token": A, "audio_token": "<z>"}}},
    "named, and a list": {CONFIG: {OLD: [A], EXTRA: {"image_token": B}}},
    "none named, and a list": {CONFIG: {OLD: [A], EXTRA: {}}},
    "named in both": {CONFIG: {"image_token": A}, NAMES: {"image_token": B, "eoi_token": C}},
    "named in the map": {CONFIG: {EXTRA: [A]}, NAMES: {EXTRA: {"image_token": B}}},
    "as transformers 5 saves names": {
        CONFIG: {"image_token": A, "model_specific_special_tokens": {"image_token": B, "x": C}}
    },
    "specific names": {CONFIG: {"model_specific_special_tokens": {"image_token": typed("<z>")}}},
    "specific names, and the map's": {
        CONFIG: {"model_specific_special_tokens": {"image_token": A}},
        NAMES: {"image_token": B, "eoi_token": C},
    },
    "a name of an ordinary token": {CONFIG: {EXTRA: {"image_token": A}}, PLAIN: {}},
    # templates
    "a template": {CONFIG: {"chat_template": "A"}},
    "a list of templates": {
        CONFIG: {
            "chat_template": [
                {"name": "default", "template": "A"},
                {"name": "rag", "template": "B"},
            ]
        }
    },
    "a mapping of templates": {CONFIG: {"chat_template": {"default": "A", "rag": "B"}}},
    "a template's file": {CONFIG: {"chat_template": {"default": "A"}}, "chat_template.jinja": "F"},
    "another template's file": {CONFIG: {"chat_template": "A"}, MORE: "T"},
    "two templates' files": {CONFIG: {}, "chat_template.jinja": "F", MORE: "T"},
    # settings
    "an older name of the length": {CONFIG: {"max_len": 5}},
    "sides": {CONFIG: {"padding_side": "left", "truncation_side": "left"}},
}


def write(folder: Path, files: dict[str, Any]) -> Path:
    tokenizer = BPETokenizer("gpt2", normalizer=None)
    tokenizer.train(["ab"] * 9, vocab_size=257, verbose=False)
    tokenizer.add_special_tokens({A: 257, B: 258, C: 259})
    tokenizer.save(folder, verbose=False)
    for name in (CONFIG, NAMES):
        (folder / name).unlink()
    if PLAIN in files:
        data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        data["added_tokens"][0] |= {"special": False, "normalized": True}
        (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    for name, content in files.items():
        if name != PLAIN:
            if name == CONFIG:
                content = {"tokenizer_class": "PreTrainedTokenizerFast", **content}
            (folder / name).parent.mkdir(exist_ok=True)
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def side_files(folder: Path) -> Any:
    files = {path: path.read_bytes() for path in bpe_tokenizer._side_files(folder) if path.exists()}
    return bpe_tokenizer._read_side_files(folder, files)


def flags(token: Any) -> tuple[Any, ...]:
    return (
        *(token.content, token.special, token.lstrip, token.rstrip),
        *(token.normalized, token.single_word),
    )


@pytest.mark.parametrize("case", CASES)
def test_a_directory_is_what_transformers_makes_of_it(case: str, tmp_path: Path) -> None:
    folder = write(tmp_path, CASES[case])
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    ours, side = BPETokenizer.from_file(folder), side_files(folder)
    named = {role: getattr(ours, role) for role in bpe_tokenizer._ROLES if getattr(ours, role)}
    assert {**named, **side.named} == theirs.special_tokens_map
    assert {role: getattr(ours, f"{role}_id") for role in named} == {
        role: getattr(theirs, f"{role}_id") for role in named
    }
    assert side.further == theirs.extra_special_tokens
    assert {token.id: flags(token) for token in ours.added_tokens} == {
        id_: flags(token) for id_, token in theirs.added_tokens_decoder.items()
    }
    templates = theirs.chat_template
    if not isinstance(templates, dict):
        templates = {} if templates is None else {"default": templates}
    assert ours.chat_templates == templates
    length = theirs.model_max_length
    assert ours.model_max_length == (None if length > 10**29 else length)
    sides = ours.padding_side, ours.truncation_side
    assert sides == (theirs.padding_side, theirs.truncation_side)
    text = f"ab {A} a {B}ab<z> <y> <1><2>"
    assert ours.encode(text, allowed_special="all") == theirs.encode(text, add_special_tokens=False)


@pytest.mark.parametrize(
    "files, field",
    [
        ({CONFIG: {"bos_token": 3}}, "bos_token"),
        ({CONFIG: {"mask_token": False}}, "mask_token"),
        ({CONFIG: {EXTRA: A}}, EXTRA),
        ({CONFIG: {EXTRA: {"image_token": 3}}}, f"{EXTRA}.image_token"),
        ({CONFIG: {EXTRA: [3]}}, rf"{EXTRA}\[0\]"),
        ({CONFIG: {DECODER: {"x": entry(A)}}}, f"{DECODER}.x"),
        ({CONFIG: {DECODER: {"257": A}}}, f"{DECODER}.257"),
        ({CONFIG: {"padding_side": "up"}}, "padding_side"),
        ({CONFIG: {}, NAMES: {"bos_token": 3}}, "bos_token"),
    ],
)
def test_what_transformers_refuses_is_refused_with_its_place(
    files: dict[str, Any], field: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, files)
    with pytest.raises((TypeError, ValueError)):
        transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    with pytest.raises(FileFormatError, match=field):
        BPETokenizer.from_file(folder)


@pytest.mark.parametrize(
    "files",
    [
        {CONFIG: {"bos_token": entry(A)}},
        {CONFIG: {}, NAMES: {OLD: [entry(A)]}},
        {CONFIG: {"bos_token": ""}},
    ],
)
def test_what_only_transformers_refuses_is_read(files: dict[str, Any], tmp_path: Path) -> None:
    """Older versions wrote such files, and wrote what they meant."""
    tokenizer = BPETokenizer.from_file(write(tmp_path, files))
    assert tokenizer.bos_token in (A, None)


def test_a_processors_template_is_read_if_there_is_no_other(tmp_path: Path) -> None:
    files = {CONFIG: {}, "chat_template.json": {"chat_template": "J"}}
    assert BPETokenizer.from_file(write(tmp_path, files)).chat_template == "J"
    (tmp_path / "chat_template.jinja").write_text("F", encoding="utf-8")
    assert BPETokenizer.from_file(tmp_path).chat_template == "F"
    files[CONFIG] = {"chat_template": "C"}
    assert BPETokenizer.from_file(write(tmp_path, files)).chat_template == "C"


def test_a_save_leaves_nothing_that_older_files_declare(tmp_path: Path) -> None:
    template = {"chat_template": "J"}
    write(tmp_path, {CONFIG: {}, ADDED: {"<z>": 300}, "chat_template.json": template})
    tokenizer = BPETokenizer.from_file(tmp_path)
    tokenizer.save(tmp_path, verbose=False)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tokenizer.json", CONFIG, "chat_template.jinja"}
    assert BPETokenizer.from_file(tmp_path) == tokenizer
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert theirs.convert_tokens_to_ids("<z>") == tokenizer.convert_tokens_to_ids("<z>")
    assert theirs.chat_template == tokenizer.chat_template == "J"
