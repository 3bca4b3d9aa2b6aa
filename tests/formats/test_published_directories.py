"""Directories shaped like published ones, loaded and saved: nothing in them is lost."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import published_directories as published
import published_shapes as shapes
import pytest
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core

transformers = need("transformers")

# CLIP's small vocabulary lacks some characters.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")

CONFIG, NAMES = "tokenizer_config.json", "special_tokens_map.json"
TEXTS = ("The quick brown fox, 123 Wörter!", "  two\n\n spaces ", "hello the user says 12")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def theirs(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def state(tokenizer: Any) -> dict[str, Any]:
    """Return what a tokenizer of transformers knows, except for where it was read."""
    places = {"name_or_path", "tokenizer_file", "vocab_file", "special_tokens_map_file"}
    init = {key: repr(v) for key, v in tokenizer.init_kwargs.items() if key not in places}
    return {
        "init": init,
        "class": type(tokenizer).__name__,
        "roles": tokenizer.special_tokens_map,
        "ids": {role: getattr(tokenizer, f"{role}_id") for role in tokenizer.special_tokens_map},
        "extra": tokenizer.extra_special_tokens,
        "added": {i: repr(token) for i, token in tokenizer.added_tokens_decoder.items()},
        "template": tokenizer.chat_template,
        "sides": (tokenizer.padding_side, tokenizer.truncation_side, tokenizer.model_max_length),
        "inputs": tokenizer.model_input_names,
    }


def texts(tokenizer: Any) -> list[str]:
    tokens = [str(token) for token in tokenizer.added_tokens_decoder.values()]
    return [*TEXTS, *(f"a {token} b{token}c" for token in tokens)]


@pytest.mark.parametrize("name", published.DIRECTORIES)
def test_a_directory_loaded_and_saved_is_the_same(name: str, tmp_path: Path) -> None:
    source = published.make(name, tmp_path / "source")
    tokenizer = BPETokenizer.from_file(source)
    tokenizer.save(tmp_path / "saved", verbose=False)
    assert read(tmp_path / "saved" / CONFIG) == read(source / CONFIG)
    assert read(tmp_path / "saved" / NAMES) == read(source / NAMES)
    was, now = theirs(source), theirs(tmp_path / "saved")
    assert state(now) == state(was)
    for text in texts(was):
        assert now(text).input_ids == was(text).input_ids
    again = BPETokenizer.from_file(tmp_path / "saved")
    assert again == tokenizer and again.fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("name", published.DIRECTORIES)
def test_roles_and_ids_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    source = published.make(name, tmp_path / "source")
    tokenizer = BPETokenizer.from_file(source)
    plain = transformers.PreTrainedTokenizerFast.from_pretrained(source)
    for role in bpe_tokenizer._ROLES:
        assert getattr(tokenizer, role) == getattr(plain, role)
        assert getattr(tokenizer, f"{role}_id") == getattr(plain, f"{role}_id")
    for text in texts(plain):
        assert tokenizer.encode(text, True, "all") == plain(text).input_ids
    live = tokenizer.to_transformers()
    assert live.special_tokens_map == plain.special_tokens_map
    assert live.extra_special_tokens == plain.extra_special_tokens
    assert live.chat_template == plain.chat_template
    assert live.model_max_length == plain.model_max_length
    for name in plain.special_tokens_map:
        assert getattr(live, f"{name}_id") == getattr(plain, f"{name}_id")


@pytest.mark.parametrize("name", ["gemma-3", "transformers-5", "mistral", "nllb", "falcon"])
def test_copies_and_pickles_keep_all_of_it(name: str, tmp_path: Path) -> None:
    source = published.make(name, tmp_path / "source")
    tokenizer = BPETokenizer.from_file(source)
    for i, other in enumerate((copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer)))):
        assert other == tokenizer
        other.save(tmp_path / str(i), verbose=False)
        for file in (CONFIG, NAMES):
            assert read(tmp_path / str(i) / file) == read(source / file)
    config = read(source / CONFIG) | {"a_key_of_its_own": 1}
    (source / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    assert BPETokenizer.from_file(source) == tokenizer  # it does the same
    (source / CONFIG).write_text(json.dumps(config | {"odd_token": "a"}), encoding="utf-8")
    assert BPETokenizer.from_file(source) != tokenizer


# -- What has changed wins ------------------------------------------------------


def changed(name: str, folder: Path, change: Any) -> tuple[Any, Any, Any]:
    """Load a directory, change it, save it; return both files, and transformers' tokenizer."""
    tokenizer = BPETokenizer.from_file(published.make(name, folder / "source"))
    change(tokenizer)
    tokenizer.save(folder / "saved", verbose=False)
    assert BPETokenizer.from_file(folder / "saved") == tokenizer
    found = theirs(folder / "saved")
    for role in ("bos_token", "eos_token", "pad_token", "unk_token"):
        assert getattr(found, role) == getattr(tokenizer, role)
    return read(folder / "saved" / CONFIG), read(folder / "saved" / NAMES), found


@pytest.mark.parametrize("name", published.DIRECTORIES)
def test_a_new_role_and_a_new_token(name: str, tmp_path: Path) -> None:
    def change(tokenizer: BPETokenizer) -> None:
        tokenizer.add_special_tokens(["<|new|>", "<|other|>"])
        tokenizer.pad_token = "<|new|>"
        tokenizer.unk_token = None
        tokenizer.padding_side = "left"
        tokenizer.model_max_length = 99

    config, names, found = changed(name, tmp_path, change)
    source = read(tmp_path / "source" / CONFIG)
    touched = {"pad_token", "unk_token", "padding_side", "model_max_length"}
    touched |= {"additional_special_tokens", "extra_special_tokens", "added_tokens_decoder"}
    kept = {key: value for key, value in source.items() if key not in touched}
    assert kept.items() <= config.items()
    assert (found.padding_side, found.model_max_length) == ("left", 99)
    assert "<|other|>" in found.extra_special_tokens
    assert found.convert_tokens_to_ids("<|other|>") in found.all_special_ids
    if names is not None:
        assert names["pad_token"] == "<|new|>"


def test_no_limit_and_no_role_are_written(tmp_path: Path) -> None:
    def change(tokenizer: BPETokenizer) -> None:
        tokenizer.model_max_length = tokenizer.bos_token = tokenizer.chat_template = None

    config, names, found = changed("llama-3", tmp_path, change)
    assert config["bos_token"] is None and names["bos_token"] is None
    assert config["model_max_length"] == found.model_max_length == int(1e30)
    assert "chat_template" not in config and found.chat_template is None


def test_a_new_chat_template_replaces_the_old_one(tmp_path: Path) -> None:
    def change(tokenizer: BPETokenizer) -> None:
        tokenizer.chat_template = "new"

    for name in ("llama-3", "gemma"):
        config, _, found = changed(name, tmp_path / name, change)
        assert "chat_template" not in config and found.chat_template == "new"


def test_another_vocabulary_does_not_keep_the_class(tmp_path: Path) -> None:
    def change(tokenizer: BPETokenizer) -> None:
        tokenizer.train(["the cat sat"] * 9, vocab_size=400, verbose=False)

    config, _, found = changed("qwen-2", tmp_path, change)
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast" and config["errors"] == "replace"
    assert found("the cat").input_ids == BPETokenizer.from_file(tmp_path / "saved").encode(
        "the cat"
    )


def test_tokens_that_are_gone_are_in_no_list(tmp_path: Path) -> None:
    gone = {"<|image_pad|>", "<|video_pad|>", "<|vision_start|>"}
    tokenizer = BPETokenizer.from_file(published.make("qwen-vl", tmp_path / "source"))
    added = [token for token in tokenizer.added_tokens if token.content not in gone]
    fewer = dataclasses.replace(tokenizer.definition, added=tuple(added))
    core.remade(tokenizer, fewer).save(tmp_path / "saved", verbose=False)
    config = read(tmp_path / "saved" / CONFIG)
    assert config["extra_special_tokens"] == {} and "video_token" not in config
    assert not gone & {*config["additional_special_tokens"]}
    assert not gone & {token["content"] for token in config["added_tokens_decoder"].values()}


def test_a_decoder_that_contradicts_tokenizer_json_is_corrected(tmp_path: Path) -> None:
    source = published.make("llama-3", tmp_path / "source")
    config = read(source / CONFIG)
    decoder = config["added_tokens_decoder"]
    first, *_ = decoder
    config["added_tokens_decoder"] = {"9999": decoder.pop(first), **decoder}
    (source / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    BPETokenizer.from_file(source).save(tmp_path / "saved", verbose=False)
    saved = read(tmp_path / "saved" / CONFIG)
    assert saved.pop("added_tokens_decoder") == {
        first: config["added_tokens_decoder"]["9999"],
        **decoder,
    }
    assert saved == {key: v for key, v in config.items() if key != "added_tokens_decoder"}


def test_named_tokens_and_responses_work(tmp_path: Path) -> None:
    live = BPETokenizer.from_file(published.make("gemma-3", tmp_path / "a")).to_transformers()
    assert live.image_token_id == live.convert_tokens_to_ids("<image_soft_token>")
    tokenizer = BPETokenizer.from_file(published.make("transformers-5", tmp_path / "b"))
    live = tokenizer.to_transformers()
    answer = live.parse_response("Hi<|im_end|>", prefix="<|im_start|>assistant\n")
    assert answer == {"role": "assistant", "content": "Hi"}


def test_templates_get_named_tokens(tmp_path: Path) -> None:
    need("jinja2")
    source = published.make("qwen-vl", tmp_path / "source")
    template = (
        "{{ image_token }}{{ pad_token }}{{ mask_token }}{% for m in messages %}{{ m.content }}"
    )
    (source / "chat_template.jinja").write_text(template + "{% endfor %}", encoding="utf-8")
    talk = [{"role": "user", "content": "the fox"}]
    tokenizer, found = BPETokenizer.from_file(source), theirs(source)
    assert tokenizer.apply_chat_template(talk, tokenize=False) == (
        found.apply_chat_template(talk, tokenize=False)
    )
    ids = tokenizer.apply_chat_template(talk)
    assert ids == found.apply_chat_template(talk, return_dict=False)
    assert ids[0] == found.image_token_id


# -- Other vocabularies ---------------------------------------------------------


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_other_vocabularies_keep_their_keys(name: str, tmp_path: Path) -> None:
    """Saved as tokenizer.json: what named the class that reads the old files is replaced."""
    source = shapes.make(name, tmp_path / "source")
    tokenizer = BPETokenizer.from_file(source)
    tokenizer.save(tmp_path / "saved", verbose=False)
    was, now = read(source / CONFIG) or {}, read(tmp_path / "saved" / CONFIG)
    dropped = {"auto_map"}
    changed = {"tokenizer_class", "added_tokens_decoder", *bpe_tokenizer._ROLES}
    if (source / "tokenizer.json").exists():
        dropped, changed = set(), set()
    assert was.keys() - dropped <= now.keys()
    for key in was.keys() - dropped - changed:
        assert now[key] == was[key], key
    found = theirs(tmp_path / "saved")
    for role in ("bos_token", "eos_token", "pad_token", "unk_token"):
        assert getattr(found, role) == getattr(tokenizer, role)
    for text in TEXTS:
        expected = tokenizer.encode(text, add_special_tokens=True)
        if not dropped:  # its class may prepare text in another way than its tokenizer.json
            expected = theirs(source)(text).input_ids
        assert found(text).input_ids == expected
    assert BPETokenizer.from_file(tmp_path / "saved") == tokenizer
