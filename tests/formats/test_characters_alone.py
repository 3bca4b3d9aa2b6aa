"""The chains of Llama 2, Mistral and Gemma in the module without its tools.

The other library says what is right; the whole library must say the same.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lone_module
import pytest
from conftest import EITHER_ENGINE
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import BPETokenizer

need("tokenizers")

import published_shapes  # noqa: E402  (needs the library)
import tokenizer_files as files  # noqa: E402
from component_pairs import CRAFTED, Pair, make_text  # noqa: E402
from tokenizer_files import CHARACTERS, FAMILIES, metaspace  # noqa: E402

# The copy has one engine, and the small vocabularies lack characters.
pytestmark = [
    EITHER_ENGINE,
    pytest.mark.filterwarnings("ignore:.*no token for these characters"),
]

CHATML = ("added-tokens", "config")
ALONE = [
    *("llama 2", "llama 2, written anew", "llama 2, as first converted"),
    *("llama 2, merging across words", "phi-3", "mistral v0.3", "gemma", "gemma 3", "gemma 4"),
    *("metaspace always", "metaspace first", "metaspace never", "metaspace unsplit"),
    *("metaspace of old", "no pre-tokenizer"),
]
MORE = {
    "whole words, unknown ones together": dataclasses.replace(
        CHARACTERS,
        pre_tokenizer=metaspace("always"),
        decoder=metaspace("always"),
        model={"unk_token": "[UNK]", "fuse_unk": True, "ignore_merges": True},
        whole=("▁tokenizers", "▁quick"),
    ),
    "unknown characters dropped": dataclasses.replace(
        CHARACTERS, pre_tokenizer=metaspace("never"), decoder=metaspace("never"), model={}
    ),
}


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Give a function from a family's name to its file, in the copy and in the other library."""
    folder = tmp_path_factory.mktemp("families")
    cls = lone_module.load().BPETokenizer

    @functools.cache
    def load_family(name: str) -> Pair:
        place = folder / str([*ALONE, *MORE].index(name))
        place.mkdir()
        text = json.dumps(files.build(MORE[name]), ensure_ascii=False) if name in MORE else None
        return Pair(place / "tokenizer.json", text or files.text(name), cls)

    return load_family


def assert_as_in_the_library(alone: Any, whole: Any, text: str) -> None:
    for allowed in ("none", "all"):
        made = alone.encode_batch([text, "a b"], True, allowed)
        expected = whole.encode_batch([text, "a b"], True, allowed)
        assert (made.input_ids, made.offsets) == (expected.input_ids, expected.offsets)
        assert made.tokens == expected.tokens
        assert alone.count_tokens(text, allowed_special=allowed) == len(
            whole.encode(text, allowed_special=allowed)
        )
        assert alone.truncate(text, 3, allowed_special=allowed) == whole.truncate(
            text, 3, allowed_special=allowed
        )
    tokens = whole.tokenize(text)
    assert alone.tokenize(text) == tokens
    assert alone.convert_tokens_to_ids(tokens) == whole.convert_tokens_to_ids(tokens)
    assert alone.convert_tokens_to_string(tokens) == whole.convert_tokens_to_string(tokens)


@pytest.mark.parametrize("family", [*ALONE, *MORE])
def test_crafted_text_gives_the_same_as_at_home(load: Callable[[str], Pair], family: str) -> None:
    pair = load(family)
    rng = random.Random(0)
    whole = BPETokenizer.from_file(pair.path)
    added = [token["content"] for token in pair.added]
    about = ["".join(added), "x" + "x".join(added) + "x", *(f"  {each}  é{each}" for each in added)]
    for text in [*CRAFTED, *about]:
        pair.assert_ids_equal(text)
        pair.assert_decoded_equal(pair.theirs.encode(text).ids)
        pair.assert_streamed(text, rng)
        assert_as_in_the_library(pair.ours, whole, text)
    assert pair.ours.get_vocab() == pair.theirs.get_vocab() == whole.get_vocab()


@pytest.mark.parametrize("family", [*ALONE, *MORE])
def test_random_text_gives_the_same_as_at_home(load: Callable[[str], Pair], family: str) -> None:
    pair = load(family)
    ids = st.lists(st.sampled_from(sorted(pair.theirs.get_vocab().values())), max_size=12)
    text = make_text(family) if family in FAMILIES else make_text("no pre-tokenizer")

    @settings(max_examples=examples(50))
    @given(text, ids, st.randoms(use_true_random=False))
    def check(text: str, some: list[int], rng: random.Random) -> None:
        pair.assert_as_at_home(text, some, rng)

    check()


@pytest.mark.parametrize("family", [*ALONE, *MORE])
def test_saved_files_give_the_same_everywhere(
    load: Callable[[str], Pair], family: str, tmp_path: Path
) -> None:
    pair = load(family)
    pair.ours.save(tmp_path, verbose=False)
    saved = (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    again = Pair(tmp_path / "tokenizer.json", saved, type(pair.ours))
    whole = BPETokenizer.from_file(tmp_path)
    for text in CRAFTED:
        again.assert_ids_equal(text)
        ids = pair.ours.encode(text, True, "all")
        assert again.ours.encode(text, True, "all") == whole.encode(text, True, "all") == ids
        assert again.ours.decode(ids) == whole.decode(ids) == pair.ours.decode(ids)
    assert again.ours == pair.ours == copy.deepcopy(pair.ours)
    assert again.ours.fingerprint == whole.fingerprint


@pytest.mark.parametrize("shape", ["llama-2", *(f"llama-2-chatml-{n}" for n in CHATML)])
def test_published_directories(shape: str, tmp_path: Path) -> None:
    """Their side files declare more tokens than tokenizer.json has."""
    need("sentencepiece")
    contents = published_shapes.SHAPES[shape]()
    contents["tokenizer.json"] = published_shapes.llama_tokenizer_json(contents["tokenizer.model"])
    folder = published_shapes.write(tmp_path / "model", contents)
    alone, whole = lone_module.load().BPETokenizer.from_file(folder), BPETokenizer.from_file(folder)
    assert alone.special_tokens == whole.special_tokens != {}
    assert alone.chat_templates == whole.chat_templates
    for text in [*CRAFTED, "<|im_start|>user\nHi<|im_end|>"]:
        for special in (False, True):
            assert alone.encode(text, special, "all") == whole.encode(text, special, "all")
    talk = [{"role": "user", "content": "What is <|im_end|> </s>  ▁?"}]
    for template in ("alpaca", *alone.chat_templates.values()):
        ids = whole.apply_chat_template(talk, template)
        assert alone.apply_chat_template(talk, template) == ids
    alone.save(tmp_path / "alone", verbose=False)
    whole.save(tmp_path / "whole", verbose=False)
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "alone" / path.name).read_bytes() == path.read_bytes()


# -- What is refused --------------------------------------------------------------


def refusal(tmp_path: Path, data: Any) -> str:
    module = lone_module.load()
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(module.FileFormatError) as caught:
        module.BPETokenizer.from_file(path)
    assert caught.value.path == str(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("family", "field", "what"),
    [
        ("starcoder 2", "pre_tokenizer.pretokenizers[0].type", "'Digits'"),
        ("clip", "normalizer.normalizers[0].type", "'NFC'"),
        ("words with an end", "pre_tokenizer.type", "'WhitespaceSplit'"),
        ("gpt-1 without Bert's normalizer", "normalizer.normalizers[0].type", "'NFKC'"),
    ],
)
def test_other_steps_need_the_tools(tmp_path: Path, family: str, field: str, what: str) -> None:
    told = refusal(tmp_path, files.build(FAMILIES[family]))
    assert f"{field}: {what} in a chain of steps needs bpe_tokenizer_tools beside" in told


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a pattern": (
        lambda data: data.update(normalizer=files.replace(r"\s+", "▁", "Regex")),
        r"normalizer.pattern: the pattern '\\s+' needs bpe_tokenizer_tools beside",
    ),
    "a suffix": (
        lambda data: data["model"].update(end_of_word_suffix="</w>"),
        "model.end_of_word_suffix: a model with end_of_word_suffix needs bpe_tokenizer_tools",
    ),
    "a long content": (
        lambda data: data.update(normalizer=files.replace(" ", "▁" * 9)),
        "normalizer: a Replace that inserts this much needs bpe_tokenizer_tools beside",
    ),
    "a long prefix": (
        lambda data: data.update(normalizer={"type": "Prepend", "prepend": "▁" * 101}),
        "normalizer: a Prepend that inserts this much needs bpe_tokenizer_tools beside",
    ),
    "many steps": (
        lambda data: data.update(normalizer=files.normalizers(*[files.replace("a", "b")] * 101)),
        "normalizers[100]: 101 normalizers and pre-tokenizers; the limit is 100",
    ),
    "nothing before a text": (
        lambda data: data.update(normalizer={"type": "Prepend", "prepend": ""}),
        "normalizer.prepend: is empty, which tokenizers can't run",
    ),
    "no behavior": (
        lambda data: data.update(pre_tokenizer=files.split(" ", "Merged", kind="String")),
        "pre_tokenizer.behavior: expected one of Removed, Isolated",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_else_is_refused(tmp_path: Path, what: str) -> None:
    change, told = CHANGES[what]
    data = files.build(FAMILIES["llama 2"])
    change(data)
    assert told in refusal(tmp_path, data)


def test_a_lone_surrogate_is_refused_with_its_place(load: Callable[[str], Pair]) -> None:
    for text in ("ab\ud800", "\udc00"):
        with pytest.raises(ValueError, match=f"U\\+D[8C]00 at character {text.index(text[-1])}"):
            load("gemma").ours.encode(text)
        with pytest.raises(ValueError, match="surrogate"):
            load("gemma").ours.encode_with_offsets(text)


def test_missing_characters_are_named(tmp_path: Path) -> None:
    module, path = lone_module.load(), tmp_path / "tokenizer.json"
    path.write_text(json.dumps(files.build(MORE["unknown characters dropped"])), encoding="utf-8")
    told = []
    for cls in (module.BPETokenizer, BPETokenizer):
        with pytest.warns(UserWarning, match="no token for these characters") as caught:
            cls.from_file(path)
        told += [str(warning.message) for warning in caught]
    assert len(told) == 2 and told[0] == told[1] and told[0].endswith("each is dropped")
