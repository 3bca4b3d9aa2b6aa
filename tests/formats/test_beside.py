"""Directories: the files beside a vocabulary, against transformers' AutoTokenizer and others.

The directories are those of `published_shapes`, and grids of the keys that change ids.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import published_shapes as shapes
import pytest
from oracles import need

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core

ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
TEXTS = [
    *(
        "",
        " ",
        "\n",
        "hello",
        " hello",
        "  hello",
        "hello  world\n",
        "▁hello",
        "the user's 12 cats",
    ),
    *("hello</s>hello", "hello</s> hello", "hello </s> hello", "<s>hello", "<s> hello", "</s>"),
    "<|im_start|>user\nhello the cat<|im_end|>\n",
    "<|user|> hello <|end|>\nhi",
    "[INST] hello [/INST] the cat</s>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhello  the<|eot_id|>",
    "Wörter 世界 12345 I'LL🙂\n\n\n x\t",
]
Config = dict[str, Any]


@pytest.fixture(scope="module")
def auto() -> Any:
    """AutoTokenizer of transformers 5."""
    transformers = need("transformers")
    if int(transformers.__version__.split(".")[0]) < 5:
        pytest.skip("transformers 4 converts these files in other ways")
    need("sentencepiece")
    transformers.utils.logging.set_verbosity_error()
    return transformers.AutoTokenizer


def tokens_of(loaded: Any) -> dict[int, Any]:
    """Return the added tokens of a tokenizer of transformers, as ours are."""
    flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return {
        id_: tuple(getattr(token, flag) for flag in flags)
        for id_, token in loaded.added_tokens_decoder.items()
    }


def our_tokens(tokenizer: BPETokenizer) -> dict[int, Any]:
    flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return {
        token.id: tuple(getattr(token, flag) for flag in flags)  # type: ignore[misc]
        for token in tokenizer.added_tokens
    }


def assert_same_ids(ours: BPETokenizer, theirs: Any, texts: list[str] = TEXTS) -> None:
    for text in texts:
        ids = theirs(text).input_ids
        found = ours.encode(text, allowed_special="all", add_special_tokens=True)
        assert found == ids, (text, theirs.convert_ids_to_tokens(ids))


def assert_same(ours: BPETokenizer, theirs: Any, texts: list[str] = TEXTS) -> None:
    """Compare roles, templates, added tokens and ids."""
    assert {r: core.roles(ours).get(r) for r in ROLES} == {r: getattr(theirs, r) for r in ROLES}
    assert our_tokens(ours) == tokens_of(theirs)
    templates = theirs.chat_template
    assert ours.chat_templates == (
        {"default": templates} if isinstance(templates, str) else templates or {}
    )
    assert_same_ids(ours, theirs, texts)
    for text in texts:
        ids = theirs(text).input_ids
        assert ours.decode(ids) == theirs.decode(ids), text


# -- SentencePiece --------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["llama-2", "llama-2-chatml-added-tokens", "llama-2-chatml-config", "mistral", "phi-3-mini"],
)
def test_sentencepiece_directories_are_as_in_transformers(
    name: str, auto: Any, tmp_path: Path
) -> None:
    folder = shapes.make(name, tmp_path)
    assert_same(BPETokenizer.from_file(folder), auto.from_pretrained(folder))
    alone = BPETokenizer.from_file(folder / "tokenizer.model")  # reads the files beside it, too
    assert alone == BPETokenizer.from_file(folder)


def test_gemma_keeps_its_symbols_whole(auto: Any, tmp_path: Path) -> None:
    """transformers leaves out user-defined symbols that no file lists; the model has them."""
    sentencepiece = need("sentencepiece")
    folder = shapes.make("gemma", tmp_path)
    ours, theirs = BPETokenizer.from_file(folder), auto.from_pretrained(folder)
    assert {r: core.roles(ours).get(r) for r in ROLES} == {r: getattr(theirs, r) for r in ROLES}
    listed = our_tokens(ours)
    assert {id_: listed[id_] for id_ in tokens_of(theirs)} == tokens_of(theirs)
    assert_same_ids(ours, theirs, [text for text in TEXTS if "\n\n" not in text])
    own = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    for text in ("a<unused3>b", "<table>hello", "a   b\n\n\nc", "  hello"):
        assert ours.encode(text) == own.encode(text), text


def grid(kind: str | None) -> Iterator[Config]:
    """Yield each combination of the keys that change ids; ... is a missing key."""
    values = {
        "legacy": (..., None, True, False),
        "add_prefix_space": (..., None, True, False),
        "add_bos_token": (..., True, False),
        "add_eos_token": (..., True),
    }
    base = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    for chosen in itertools.product(*values.values()):
        config = {**base, "tokenizer_class": ... if kind is None else kind}
        config |= dict(zip(values, chosen))
        yield {key: value for key, value in config.items() if value is not ...}


@pytest.mark.parametrize("kind", ["LlamaTokenizer", None, "CodeLlamaTokenizer"])
def test_every_combination_of_keys_is_as_in_transformers(
    kind: str | None, auto: Any, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer_config.json"
    (tmp_path / "tokenizer.model").write_bytes(shapes.sentencepiece_model())
    for config in grid(kind):
        path.write_text(json.dumps(config))
        ours, theirs = BPETokenizer.from_file(tmp_path), auto.from_pretrained(tmp_path)
        assert_same_ids(ours, theirs)
        ids = theirs("hello</s>hello the cat").input_ids
        assert ours.decode(ids) == theirs.decode(ids), config


@pytest.mark.parametrize(
    "options",
    [
        {"normalization_rule_name": "nmt_nfkc"},
        {"normalization_rule_name": "nmt_nfkc", "remove_extra_whitespaces": True},
        {"remove_extra_whitespaces": True},
        {"add_dummy_prefix": False},
        {"user_defined_symbols": ["<ud>", "the"], "control_symbols": ["<c>"]},
    ],
    ids=str,
)
def test_models_of_other_kinds(options: Config, auto: Any, tmp_path: Path) -> None:
    """A class of no fixed rules follows the model, as SentencePiece does."""
    sentencepiece = need("sentencepiece")
    path = tmp_path / "tokenizer_config.json"
    (tmp_path / "tokenizer.model").write_bytes(shapes.sentencepiece_model(**options))
    own = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    texts = [*TEXTS, "<ud>hello <ud> the", "ａ the ﬁ"]
    for legacy in (..., True, False):
        config = {"add_bos_token": True, "legacy": legacy}
        path.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
        theirs = auto.from_pretrained(tmp_path)
        if legacy is False and "user_defined_symbols" in options:
            with pytest.raises(FileFormatError, match="tokenizer_config.json: legacy: asks for"):
                BPETokenizer.from_file(tmp_path)
            continue
        ours = BPETokenizer.from_file(tmp_path)
        # There, a space that is removed before the text takes the prefix away, too.
        strips = legacy is False and options.get("remove_extra_whitespaces")
        kept = [text for text in texts if not (strips and text[:1] in (" ", "▁"))]
        assert_same_ids(ours, theirs, kept)
        if legacy is not False:
            for text in texts:
                assert ours.encode(text) == own.encode(text), text


def test_a_class_with_rules_of_its_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(shapes.sentencepiece_model())
    path = tmp_path / "tokenizer_config.json"
    path.write_text('{"tokenizer_class": "NllbTokenizer"}')
    with pytest.raises(FileFormatError, match="tokenizer_config.json: tokenizer_class: Nllb"):
        BPETokenizer.from_file(tmp_path)
    path.write_text('{"tokenizer_class": "SomeOtherTokenizer"}')  # of code beside it
    assert BPETokenizer.from_file(tmp_path).bos_token == "<s>"


@pytest.mark.parametrize("kind", ["LlamaTokenizer", None])
@pytest.mark.parametrize(
    ("config", "others"),
    [
        ({"additional_special_tokens": ["<x>", "<y>"]}, {}),
        ({"extra_special_tokens": ["<x>", "<y>"]}, {}),
        ({"extra_special_tokens": {"image_token": "<x>"}}, {}),
        ({"extra_special_tokens": [], "additional_special_tokens": ["<x>"]}, {}),
        ({"pad_token": "<pad>", "mask_token": "<m>"}, {}),
        ({"bos_token": None, "eos_token": "</s>"}, {}),
        ({"added_tokens_decoder": shapes.decoder({340: "<a>", 341: "<b>"})}, {}),
        (
            {"added_tokens_decoder": shapes.decoder({340: shapes.token("<a>", special=False)})},
            {
                "added_tokens.json": {"<other>": 340},
                "special_tokens_map.json": {"bos_token": "<a>"},
            },
        ),
        ({"eos_token": "<a>"}, {"added_tokens.json": {"<a>": 340, "<b>": 341}}),
        ({"eos_token": "<a>"}, {"special_tokens_map.json": {"eos_token": "<b>"}}),
        ({"eos_token": "<a>"}, {"special_tokens_map.json": {"eos_token": shapes.token("<b>")}}),
        (
            {"eos_token": "<a>"},
            {
                "special_tokens_map.json": {"additional_special_tokens": ["<b>", "</s>"]},
                "added_tokens.json": {"<a>": 340, "<b>": 341},
            },
        ),
        ({"added_tokens_decoder": shapes.decoder({2: "</s>", 340: "<a>"}), "eos_token": "<a>"}, {}),
        ({"added_tokens_decoder": shapes.decoder({5: "<five>", 340: "<a>"})}, {"llama": True}),
        (
            {
                "chat_template": [
                    {"name": "default", "template": "a"},
                    {"name": "b", "template": "c"},
                ]
            },
            {},
        ),
        ({"chat_template": {"default": "a", "tool_use": "b"}}, {}),
        ({"chat_template": "a"}, {"chat_template.jinja": "b"}),
        ({"chat_template": "a"}, {"additional_chat_templates/rag.jinja": "b"}),
        ({}, {"chat_template.jinja": "a", "additional_chat_templates/rag.jinja": "b"}),
    ],
    ids=str,
)
def test_files_that_disagree(
    config: Config, others: Config, kind: str | None, auto: Any, tmp_path: Path
) -> None:
    """Precedence is that of transformers."""
    if others.get("llama") and kind is None:
        pytest.skip("renames a piece, which is refused: see the next test")
    named = {} if kind is None else {"tokenizer_class": kind}
    files = {name: content for name, content in others.items() if name != "llama"}
    files |= {
        "tokenizer.model": shapes.sentencepiece_model(),
        "tokenizer_config.json": {**named, **config},
    }
    shapes.write(tmp_path, files)
    assert_same(BPETokenizer.from_file(tmp_path), auto.from_pretrained(tmp_path))


def test_a_list_that_transformers_passes_over_is_named(auto: Any, tmp_path: Path) -> None:
    files = {
        "tokenizer.model": shapes.sentencepiece_model(),
        "special_tokens_map.json": {"additional_special_tokens": ["<x>", "</s>"]},
    }
    shapes.write(tmp_path, files)
    with pytest.warns(UserWarning, match="special_tokens_map.json: additional_special_tokens: "):
        ours = BPETokenizer.from_file(tmp_path)
    assert_same(ours, auto.from_pretrained(tmp_path))


def test_pieces_get_the_names_that_the_configuration_has_for_them(
    auto: Any, tmp_path: Path
) -> None:
    model = shapes.sentencepiece_model(control_symbols=["[control_1]", "[control_2]"])
    names = {0: "<unk>", 1: "<s>", 2: "</s>", 3: "[INST]", 4: "[/INST]"}
    config = {"added_tokens_decoder": shapes.decoder(names)}
    files = {"tokenizer.model": model, "tokenizer_config.json": config}
    shapes.write(tmp_path, files)
    ours, theirs = BPETokenizer.from_file(tmp_path), auto.from_pretrained(tmp_path)
    # There, the old names become new tokens, whose ids the model doesn't have.
    kept = {id_: token for id_, token in tokens_of(theirs).items() if id_ < 340}
    assert our_tokens(ours) == kept
    assert_same_ids(ours, theirs)
    assert ours.convert_tokens_to_ids(["[INST]", "[/INST]"]) == [3, 4]
    config["added_tokens_decoder"] |= shapes.decoder({300: "<x>"})
    shapes.write(tmp_path, files)
    with pytest.raises(FileFormatError, match="added_tokens_decoder.300: gives the name"):
        BPETokenizer.from_file(tmp_path)


def test_ids_keep_their_gaps(tmp_path: Path) -> None:
    """transformers gives such tokens other ids in silence; a model was trained with the file's."""
    config = {"added_tokens_decoder": shapes.decoder({345: "<a>", 342: "<b>"}), "pad_token": "<p>"}
    files = {"tokenizer.model": shapes.sentencepiece_model(), "tokenizer_config.json": config}
    tokenizer = BPETokenizer.from_file(shapes.write(tmp_path, files))
    assert tokenizer.convert_tokens_to_ids(["<a>", "<b>", "<p>"]) == [345, 342, 346]
    assert tokenizer.encode("a<b>", allowed_special="all")[-1] == 342


def test_special_tokens_of_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(shapes.sentencepiece_model())
    tokenizer = BPETokenizer.from_file(path, special_tokens={"<x>": 350, "</s>": 2})
    assert tokenizer.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2, "<x>": 350}
    with pytest.raises(FileFormatError, match="'<x>' can't have id 7"):
        BPETokenizer.from_file(path, special_tokens={"<x>": 7})


def test_names_of_classes_and_model_types_are_those_of_transformers(auto: Any) -> None:
    from transformers.models.auto import tokenization_auto

    from bpe_tokenizer_tools.formats import classes

    names = tokenization_auto.TOKENIZER_MAPPING_NAMES
    forced = tokenization_auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
    by_class = {kind: {t for t, name in names.items() if name == kind} for kind in names.values()}
    assert by_class["TokenizersBackend"] == classes.GENERIC_TYPES
    assert by_class["MistralCommonBackend"] == classes.MISTRAL_TYPES
    own = {kind: names[kind] for kind in forced if names[kind] != "TokenizersBackend"}
    assert own == classes.FORCED_TYPES
    for kind, name in classes.DEFAULT_CLASSES.items():
        assert names[kind] == name
    known = {name.removesuffix("Fast") for name in names.values() if name}
    assert known - {"TokenizersBackend", "MistralCommonBackend"} == classes.CLASSES
