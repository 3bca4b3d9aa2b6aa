"""Directories: the files beside a vocabulary, against transformers' AutoTokenizer and others.

The directories are those of `published_shapes`, and grids of the keys that change ids.
"""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import published_shapes as shapes
import pytest
from oracles import need, need_release

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import classes

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
    """AutoTokenizer of transformers; releases before 5.24 convert these files in other ways."""
    transformers = need_release("transformers", "5.24")
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
    """Compare roles, templates, sides, added tokens and ids."""
    assert ours.padding_side == theirs.padding_side
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
    with pytest.raises(FileFormatError, match="'<x>' can't get the id 7: another token has it"):
        BPETokenizer.from_file(path, special_tokens={"<x>": 7})


@pytest.mark.parametrize("side", [None, "right"])
@pytest.mark.parametrize("kind", ["LlamaTokenizer", "GemmaTokenizer", "PreTrainedTokenizerFast"])
def test_the_side_of_padding_survives_without_the_class(
    kind: str, side: str | None, auto: Any, tmp_path: Path
) -> None:
    folder = shapes.make("llama-2", tmp_path / "in")
    config = {"tokenizer_class": kind, **({"padding_side": side} if side else {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    expected = auto.from_pretrained(folder).padding_side
    ours = BPETokenizer.from_file(folder)
    ours.save(tmp_path / "out", verbose=False)
    saved = auto.from_pretrained(tmp_path / "out").padding_side
    assert ours.padding_side == saved == ours.to_transformers().padding_side == expected


def test_classes_that_pad_on_the_left_are_those_of_transformers() -> None:
    transformers = need("transformers")
    if not transformers.__version__.startswith("5.24."):
        pytest.skip("other versions have other sides")
    found = {
        name
        for name in classes.CLASSES
        if hasattr(getattr(transformers, name, None), "padding_side")
    }
    assert classes.PAD_LEFT <= found
    for name in found:
        is_left = getattr(transformers, name).padding_side == "left"
        assert is_left == (name in classes.PAD_LEFT), name


def test_names_of_classes_and_model_types_are_those_of_transformers(auto: Any) -> None:
    if not need("transformers").__version__.startswith("5.24."):
        pytest.skip("other versions have other lists")
    from transformers.models.auto import tokenization_auto

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


# -- Ranks in tiktoken's format -------------------------------------------------


def encoding(folder: Path, name: str, pattern: str, special: dict[str, int]) -> Any:
    """Return tiktoken's own tokenizer of a file of ranks."""
    tiktoken = need("tiktoken")
    lines = (line.split() for line in (folder / name).read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


# The patterns as the code of these models has them.
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CASES = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
)
PATTERNS = {
    "phi-3-small": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "qwen-1": LLAMA_3.replace("{1,3}", ""),
    "kimi": r"[\p{Han}]+|"
    + CASES.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]")
    + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "glm-4": LLAMA_3,
    "llama-3-original": LLAMA_3,
    "llama-4": CASES + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
RANK_TEXTS = [
    *TEXTS,
    "I'LL see 1234567 iPhones/\n\n世界hello漢字ABC  \n x's",
    "<|im_end|> <|endoftext|>[BOS]hello[EOS]<|begin_of_text|>  hello<|eot|>",
]


@pytest.mark.parametrize("name", PATTERNS)
def test_ranks_are_cut_as_their_model_does(name: str, tmp_path: Path) -> None:
    folder = shapes.make(name, tmp_path)
    file = next(path.name for path in folder.iterdir() if path.suffix in (".tiktoken", ".model"))
    ours = BPETokenizer.from_file(folder)
    theirs = encoding(folder, file, PATTERNS[name], ours.special_tokens)
    for text in RANK_TEXTS:
        ids = theirs.encode_ordinary(text)
        assert ours.encode(text) == ids, text
        ids = theirs.encode(text, allowed_special="all")
        assert ours.encode(text, allowed_special="all", add_special_tokens=True) == ids, text
    assert BPETokenizer.from_file(folder / file) == ours


def test_ranks_have_the_tokens_roles_and_templates_of_their_files(tmp_path: Path) -> None:
    kimi = BPETokenizer.from_file(shapes.make("kimi", tmp_path / "kimi"))
    size = len(shapes.ranks())
    declared = json.loads((tmp_path / "kimi/tokenizer_config.json").read_text())
    decoder = declared["added_tokens_decoder"]
    # Gaps stay: the model's own code gives the ids between names that nobody uses.
    assert {str(token.id): token.content for token in kimi.added_tokens} == {
        id_: token["content"] for id_, token in decoder.items()
    }
    assert [token.special for token in kimi.added_tokens if token.id == size + 11] == [False]
    assert kimi.convert_tokens_to_ids(["[BOS]", "[PAD]"]) == [size, size + 255]
    assert (kimi.bos_token, kimi.unk_token, kimi.pad_token) == ("[BOS]", "[UNK]", "[PAD]")
    assert str(kimi.chat_template).startswith("{% for m in messages %}<|im_")

    phi = BPETokenizer.from_file(shapes.make("phi-3-small", tmp_path / "phi"))
    assert len(phi.special_tokens) == 96
    assert (phi.bos_token, phi.eos_token, phi.pad_token) == ("<|endoftext|>",) * 3
    assert phi.model_max_length == 8192
    assert "<|end|>" in str(phi.chat_template)


def test_control_tokens_that_only_the_models_own_code_lists(tmp_path: Path) -> None:
    size = len(shapes.ranks())
    qwen = BPETokenizer.from_file(shapes.make("qwen-1", tmp_path / "qwen"))
    assert qwen.special_tokens == {
        "<|endoftext|>": size,
        "<|im_start|>": size + 1,
        "<|im_end|>": size + 2,
        **{f"<|extra_{i}|>": size + 3 + i for i in range(205)},
    }
    assert qwen.normalizer == "NFC"
    folder = shapes.make("phi-3-small", tmp_path / "phi", added_tokens_decoder=..., pad_token=...)
    ids = BPETokenizer.from_file(folder).special_tokens
    assert sorted(ids.values()) == [*range(size, size + 96)]
    # As in Phi-3-small's own code, less the 100,256 ranks of cl100k.
    expected = {"<|dummy_id_2|>": 0, "<|endoftext|>": 1, "<|user|>": 6, "<|end|>": 10}
    expected |= {"<|dummy_id_11|>": 19, "<|endofprompt|>": 20, "<|dummy_id_86|>": 95}
    assert {name: ids[name] - size for name in expected} == expected


@pytest.mark.parametrize("name", ["llama-3-original", "llama-4"])
def test_ranks_that_transformers_reads(name: str, auto: Any, tmp_path: Path) -> None:
    """It fills gaps with tokens of its own, and cuts all of them as Llama 3 does."""
    folder = shapes.make(name, tmp_path)
    ours, theirs = BPETokenizer.from_file(folder), auto.from_pretrained(folder)
    assert {r: core.roles(ours).get(r) for r in ROLES} == {r: getattr(theirs, r) for r in ROLES}
    filled = {id_: t for id_, t in tokens_of(theirs).items() if "reserved_token" not in t[0]}
    assert our_tokens(ours) == filled
    assert ours.chat_template == theirs.chat_template
    assert_same_ids(ours, theirs)


@pytest.mark.parametrize(
    "config",
    [
        {"add_bos_token": True},
        {"add_bos_token": True, "add_eos_token": True},
        {"add_bos_token": False, "add_eos_token": True},
        {"add_bos_token": None},
        {"bos_token": "<q>", "extra_special_tokens": ["<z>", "<y>"], "add_bos_token": True},
        {"extra_special_tokens": {"image_token": "<z>"}, "pad_token": "<p>"},
        {
            "additional_special_tokens": ["<z>"],
            "added_tokens_decoder": shapes.decoder({268: "<b>"}),
        },
        {"added_tokens_decoder": shapes.decoder({268: "<b>", 3: "<c>"}), "bos_token": "<b>"},
        {"added_tokens_decoder": shapes.decoder({268: shapes.token("<b>", False, rstrip=True)})},
    ],
    ids=str,
)
def test_keys_beside_ranks_are_as_in_transformers(
    config: Config, auto: Any, tmp_path: Path
) -> None:
    changes = {"chat_template": ..., **config}
    if "added_tokens_decoder" in config:
        changes = {"bos_token": ..., "eos_token": ..., **changes}
    folder = shapes.make("llama-3-original", tmp_path, **changes)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    ours, theirs = BPETokenizer.from_file(folder), auto.from_pretrained(folder)
    assert {r: core.roles(ours).get(r) for r in ROLES} == {r: getattr(theirs, r) for r in ROLES}
    filled = {id_: t for id_, t in tokens_of(theirs).items() if "reserved_token" not in t[0]}
    assert our_tokens(ours) == filled
    assert_same_ids(ours, theirs, [*TEXTS, "<b>  hello<c><z>"])


def test_ranks_of_an_unknown_model(tmp_path: Path) -> None:
    folder = shapes.make("kimi", tmp_path, tokenizer_class="Unheard", auto_map=...)
    (folder / "config.json").unlink()
    known = "has ranks but no split pattern.*one of gpt2.*TikTokenTokenizer, Phi3Small.*Llama 3"
    with pytest.raises(FileFormatError, match=known):
        BPETokenizer.from_file(folder)
    tokenizer = BPETokenizer.from_file(folder, split_pattern="llama3")
    assert tokenizer.bos_token == "[BOS]"
    (folder / "config.json").write_text('{"model_type": "kimi_k2"}')
    assert BPETokenizer.from_file(folder).encode("世界hello") == tokenizer.encode("世界hello")


# -- tekken.json ------------------------------------------------------------------


def test_tekken_has_the_template_beside_it(auto: Any, tmp_path: Path) -> None:
    mistral = need("mistral_common.tokens.tokenizers.tekken")
    folder = shapes.make("mistral-tekken", tmp_path)
    ours, theirs = BPETokenizer.from_file(folder), auto.from_pretrained(folder)
    assert type(theirs).__name__ == "MistralCommonBackend"
    own = mistral.Tekkenizer.from_file(folder / "tekken.json")
    assert ours.chat_template == shapes.LLAMA_TEMPLATE
    for role in ("bos_token", "eos_token", "unk_token", "pad_token"):
        assert getattr(ours, role) == getattr(theirs, role)
    for text in TEXTS:
        assert ours.encode(text) == own.encode(text, bos=False, eos=False)
        assert ours.encode(text, add_special_tokens=True) == theirs(text).input_ids
    assert BPETokenizer.from_file(folder / "tekken.json") == ours


@pytest.mark.parametrize(
    "config",
    [
        {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "x"},
        {"bos_token": "<s>", "eos_token": "[INST]", "add_bos_token": True, "add_eos_token": True},
        {"pad_token": "<p>", "extra_special_tokens": {"image_token": "[IMG]"}},
        {
            "added_tokens_decoder": shapes.decoder(
                {3: "[INST]", 9: "[FOO]", 298: shapes.token("[NEW]", special=False)}
            ),
            "add_bos_token": True,
        },
    ],
    ids=str,
)
def test_keys_beside_tekken_are_as_in_transformers(
    config: Config, auto: Any, tmp_path: Path
) -> None:
    files = shapes.SHAPES["mistral-tekken"]()
    files = {"tekken.json": files["tekken.json"], "tokenizer_config.json": config}
    shapes.write(tmp_path, files)
    assert_same(
        BPETokenizer.from_file(tmp_path),
        auto.from_pretrained(tmp_path),
        [*TEXTS, "[FOO] hello[NEW]<p>"],
    )


def test_of_mistrals_own_models_transformers_reads_only_tekken(auto: Any, tmp_path: Path) -> None:
    need("mistral_common")
    config = {"bos_token": "[INST]", "add_bos_token": False, "add_eos_token": True}
    folder = shapes.make("mistral-tekken", tmp_path, **config)
    ours, theirs = BPETokenizer.from_file(folder), auto.from_pretrained(folder)
    assert ours.bos_token == theirs.bos_token == "<s>"
    for text in TEXTS:
        assert ours.encode(text, add_special_tokens=True) == theirs(text).input_ids


# -- GGUF -------------------------------------------------------------------------


def test_files_beside_a_gguf_file_only_add_to_it(tmp_path: Path) -> None:
    trained = BPETokenizer("llama3", normalizer=None)
    trained.train("the weather hello " * 60, 270, special_tokens=["<s>", "<eot>"], verbose=False)
    trained.bos_token = "<s>"
    path = tmp_path / "model.gguf"
    trained.export(path, "gguf")
    alone = BPETokenizer.from_file(path)
    first, size = trained.special_tokens["<s>"], trained.vocab_size
    config = {
        "bos_token": "<eot>",
        "eos_token": "<eot>",
        "pad_token": "<not there>",
        "chat_template": "from the configuration",
        "model_max_length": 77,
        "added_tokens_decoder": shapes.decoder({first: "<s>", size + 5: "<new>"}),
    }
    shapes.write(tmp_path, {"tokenizer_config.json": config})
    more = BPETokenizer.from_file(path)
    assert more.special_tokens == {**alone.special_tokens, "<new>": size + 5}
    assert (more.bos_token, more.eos_token, more.pad_token) == ("<s>", "<eot>", None)
    assert (more.chat_template, more.model_max_length) == ("from the configuration", 77)
    trained.chat_templates = {"default": "its own"}
    trained.export(path, "gguf")
    assert BPETokenizer.from_file(path).chat_template == "its own"

    config["added_tokens_decoder"] = shapes.decoder({first: "<other>"})
    shapes.write(tmp_path, {"tokenizer_config.json": config})
    with pytest.warns(UserWarning, match=r"describe another tokenizer than model\.gguf"):
        assert BPETokenizer.from_file(path).special_tokens == alone.special_tokens


# -- vocab.json with merges.txt ---------------------------------------------------


@pytest.fixture(scope="module")
def gpt2_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("gpt2")
    trained = BPETokenizer("gpt2", normalizer=None)
    trained.train("the weather hello " * 60, 280, special_tokens=["<|endoftext|>"], verbose=False)
    trained.export(folder, "gpt2")
    return {name: (folder / name).read_text("utf-8") for name in ("vocab.json", "merges.txt")}


@pytest.mark.parametrize(
    ("config", "others"),
    [
        ({"add_bos_token": True}, {}),
        ({"add_bos_token": True, "add_eos_token": True, "add_prefix_space": True}, {}),
        ({"bos_token": "<a>", "pad_token": "<b>"}, {}),
        ({"bos_token": None, "unk_token": None}, {}),
        ({"added_tokens_decoder": shapes.decoder({3: "<a>", 999: "<|endoftext|>"})}, {}),
        ({"extra_special_tokens": {"image_token": "<a>"}}, {}),
        ({"extra_special_tokens": ["<a>", "<b>"]}, {}),
        (
            {},
            {"special_tokens_map.json": {"bos_token": "<a>", "additional_special_tokens": ["<b>"]}},
        ),
        ({"bos_token": "<b>"}, {"special_tokens_map.json": {"bos_token": "<a>"}}),
        ({"additional_special_tokens": ["<b>"]}, {"added_tokens.json": {"<a>": 269, "<b>": 270}}),
        ({"tokenizer_class": "RobertaTokenizer"}, {}),
        ({"tokenizer_class": "RobertaTokenizer", "add_eos_token": False, "sep_token": "<a>"}, {}),
        ({"tokenizer_class": "Qwen2Tokenizer"}, {}),
        ({"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": True, "bos_token": "<a>"}, {}),
        ({}, {"config.json": {"model_type": "qwen2"}}),
        ({"tokenizer_class": ...}, {"config.json": {"model_type": "gpt2"}}),
        ({"chat_template": {"default": "a", "rag": "b"}}, {"chat_template.jinja": "c"}),
        ({}, {"additional_chat_templates/rag.jinja": "b"}),
    ],
    ids=str,
)
def test_keys_beside_vocab_and_merges_are_as_in_transformers(
    config: Config, others: Config, auto: Any, gpt2_files: dict[str, str], tmp_path: Path
) -> None:
    config = {"tokenizer_class": "GPT2Tokenizer", **config}
    config = {key: value for key, value in config.items() if value is not ...}
    shapes.write(tmp_path, {**gpt2_files, "tokenizer_config.json": config, **others})
    assert_same(
        BPETokenizer.from_file(tmp_path),
        auto.from_pretrained(tmp_path),
        [*TEXTS, "<a> hello<b><mask> the"],
    )


# -- Random text ------------------------------------------------------------------

BITS = [
    *(" ", "  ", "hello", " the", "▁", "\n", "</s>", "<s>", "<unk>", "<|im_end|>", "user", "ö"),
    *("世", "<|user|>", "[INST]", "x", "12345", "<a>", "<b>", "I'LL", "\t", "<|endoftext|>"),
]


def declared(first: int) -> Config:
    """Return tokens with every flag; "user" may be an ordinary token."""
    return shapes.decoder(
        {
            first: shapes.token("<a>", lstrip=True, rstrip=True),
            first + 1: shapes.token("<b>", special=False, normalized=True),
            first + 2: shapes.token("user", special=False, single_word=True),
        }
    )


@pytest.mark.parametrize(
    "config",
    [
        {"tokenizer_class": "LlamaTokenizer", "legacy": True},
        {"tokenizer_class": "LlamaTokenizer", "legacy": False},
        {"tokenizer_class": "CodeLlamaTokenizer"},
        {"legacy": True},
        {"legacy": False},
    ],
    ids=str,
)
def test_random_text_in_sentencepiece_directories(
    config: Config, auto: Any, tmp_path: Path
) -> None:
    files: Config = {"tokenizer.model": shapes.sentencepiece_model()}
    files["tokenizer_config.json"] = {**config, "added_tokens_decoder": declared(340)}
    compare_random_text(shapes.write(tmp_path, files), auto)


@pytest.mark.parametrize("prefix_space", [True, False])
@pytest.mark.parametrize("kind", ["GPT2Tokenizer", "RobertaTokenizer", "Qwen2Tokenizer"])
def test_random_text_beside_vocab_and_merges(
    kind: str, prefix_space: bool, auto: Any, gpt2_files: dict[str, str], tmp_path: Path
) -> None:
    config = {"tokenizer_class": kind, "add_prefix_space": prefix_space}
    config["added_tokens_decoder"] = declared(269)  # type: ignore[assignment]
    shapes.write(tmp_path, {**gpt2_files, "tokenizer_config.json": config})
    compare_random_text(tmp_path, auto)


@pytest.mark.parametrize("name", ["mistral-tekken", "llama-3-original"])
def test_random_text_of_ranks(name: str, auto: Any, tmp_path: Path) -> None:
    first = 298 if name == "mistral-tekken" else len(shapes.ranks())
    changes = {"added_tokens_decoder": declared(first), "bos_token": "<a>", "eos_token": "<b>"}
    folder = shapes.make(name, tmp_path, add_bos_token=True, **changes)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    compare_random_text(folder, auto)


def compare_random_text(folder: Path, auto: Any) -> None:
    ours, theirs = BPETokenizer.from_file(folder), auto.from_pretrained(folder)
    generator = random.Random(0)
    texts = ["".join(generator.choices(BITS, k=generator.randrange(1, 9))) for _ in range(300)]
    assert our_tokens(ours) == tokens_of(theirs)
    assert_same_ids(ours, theirs, texts)
