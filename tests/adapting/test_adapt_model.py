"""Models that follow their tokenizer to another vocabulary: same tokens, same rows, same logits."""

from __future__ import annotations

import functools
import json
import random
import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import tokenizer_files
from adapted_models import (
    DTYPES,
    INPUT,
    OUTPUT,
    adapt,
    bits,
    elsewhere,
    other,
    read,
    read_numpy,
    save,
    write_model,
)
from conftest import EITHER_ENGINE
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import BPETokenizer, FileFormatError

np = need("numpy")
torch = need("torch")

from bpe_tokenizer_tools import backends  # noqa: E402
from bpe_tokenizer_tools.adapting import adapt_model  # noqa: E402
from bpe_tokenizer_tools.adapting.tables import from_float32, to_float32  # noqa: E402
from bpe_tokenizer_tools.adapting.vocabulary import match  # noqa: E402

pytestmark = EITHER_ENGINE

TIED = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


# -- Rows ---------------------------------------------------------------------


@pytest.mark.parametrize("make", [other, elsewhere])
@pytest.mark.parametrize("dtype", DTYPES)
@TIED
def test_rows_stay_or_are_the_mean_of_what_a_token_was_cut_into(
    tmp_path: Path, tied: bool, dtype: str, make: Callable[[], BPETokenizer]
) -> None:
    new, old = make(), tiny_models.tokenizer()
    report = adapt(write_model(tmp_path / "m", tied, dtype), new, tmp_path / "out")
    before, after = read(tmp_path / "m"), read(tmp_path / "out")
    assert before.keys() == after.keys()
    tables = {INPUT} if tied else {INPUT, OUTPUT}
    assert {table.name for table in report.tables} == tables
    for name in before.keys() - tables:
        assert torch.equal(bits(before[name]), bits(after[name]))
    ids = {token: id_ for id_, token in enumerate(old.token_bytes()) if token is not None}
    ids.update({content.encode(): id_ for content, id_ in old.special_tokens.items()})
    kept = 0
    for name in tables:
        assert after[name].shape == (new.max_id + 1, tiny_models.HIDDEN)
        assert after[name].dtype == before[name].dtype
        for id_, raw in enumerate(new.token_bytes()):
            content = {i: c for c, i in new.special_tokens.items()}.get(id_)
            token = content.encode() if raw is None else raw
            row = bits(after[name][id_])
            if token in ids:
                kept += 1
                assert torch.equal(row, bits(before[name][ids[token]])), token
            else:
                pieces = cut(old, token)
                mean = functools.reduce(torch.add, before[name][pieces].float()) / len(pieces)
                assert torch.equal(row, bits(mean.to(after[name].dtype))), (token, pieces)
    assert kept == report.kept * len(tables)
    assert report.new == new.vocab_size - report.kept > 10


def cut(old: BPETokenizer, token: bytes) -> list[int]:
    """Cut bytes; of what is not UTF-8, try all merges in order, as the definition of BPE does."""
    try:
        return old.encode(token.decode())
    except UnicodeDecodeError:
        table = old.token_bytes()
        parts = [bytes([byte]) for byte in token]
        for left, right in old.definition.merges:
            i = 0
            while i < len(parts) - 1:
                if (parts[i], parts[i + 1]) == (table[left], table[right]):
                    parts[i : i + 2] = [parts[i] + parts[i + 1]]
                i += 1
        return [table.index(part) for part in parts]


def test_a_token_that_is_no_text_is_cut_by_the_merges_alone() -> None:
    old = BPETokenizer(normalizer=None).train(["日 旦 旧 " * 20], 262, verbose=False)
    new = BPETokenizer(normalizer=None).train(["x日 x旦 x旧 " * 20], 258, verbose=False)
    found = {token.raw: token.pieces for token in match(old, new).new.values()}
    table = old.token_bytes()
    [raw] = [raw for raw in found if raw.endswith(b"\xe6\x97")]
    assert raw == b"x\xe6\x97" and [table[id_] for id_ in found[raw]] == [b"x", b"\xe6\x97"]


@TIED
@pytest.mark.parametrize("multiple", [None, 1, 64, 1000])
def test_rows_without_a_token_get_the_mean_of_all(
    tmp_path: Path, tied: bool, multiple: int | None
) -> None:
    new = other()
    source = write_model(tmp_path / "m", tied)
    report = adapt(source, new, tmp_path / "out", pad_to_multiple_of=multiple)
    rows = report.tables[0].after[0]
    assert rows % (multiple or 1) == 0 and rows - new.vocab_size < (multiple or 1)
    assert report.padding == rows - new.vocab_size
    assert json.loads((tmp_path / "out/config.json").read_text())["vocab_size"] == rows
    before, after = read(source)[INPUT].numpy(), read(tmp_path / "out")[INPUT].numpy()
    mean = before[: tiny_models.TOKENS].astype("f8").mean(0).astype("f4")
    for row in after[new.vocab_size :]:
        assert np.array_equal(row, mean)


def test_other_ways_to_make_rows(tmp_path: Path) -> None:
    new, source = other(), write_model(tmp_path / "m", tied=False)
    before = read(source)
    found = match(tiny_models.tokenizer(), new)
    adapt(source, new, tmp_path / "zeros", init="zeros")
    adapt(source, new, tmp_path / "mean", init="mean")
    seen: dict[bytes, list[int]] = {}

    def last(token: bytes, ids: Sequence[int], rows: Any) -> Any:
        seen[token] = list(ids)
        assert rows.dtype == np.float32 and rows.shape == (len(ids), tiny_models.HIDDEN)
        return rows[-1] * 2

    adapt(source, new, tmp_path / "function", init=last)
    assert seen == {token.raw: list(token.pieces) for token in found.new.values()}
    zeros, mean, function = (read(tmp_path / name) for name in ("zeros", "mean", "function"))
    for name in (INPUT, OUTPUT):
        table = before[name].numpy()
        average = table[: tiny_models.TOKENS].astype("f8").mean(0).astype("f4")
        for id_, token in found.new.items():
            assert not zeros[name][id_].any()
            assert np.array_equal(mean[name][id_], average)
            assert np.array_equal(function[name][id_], table[token.pieces[-1]] * 2)


def test_a_function_must_return_a_row(tmp_path: Path) -> None:
    source = write_model(tmp_path / "m", tied=True)
    with pytest.raises(ValueError, match=r"row of 64 numbers for model.embed_tokens.weight"):
        adapt(source, other(), tmp_path / "out", init=lambda token, ids, rows: rows)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_the_same_vocabulary_gives_the_same_file(tmp_path: Path) -> None:
    source = write_model(tmp_path / "m", tied=False, dtype="BF16")
    same = adapt(source, tiny_models.tokenizer(), tmp_path / "a", pad_to_multiple_of=512)
    assert same.new == same.dropped == 0 and same.ids == {}
    adapt(source, tiny_models.tokenizer(), tmp_path / "b")
    for name in (INPUT, OUTPUT):
        rows = read(source)[name][: tiny_models.TOKENS]
        assert torch.equal(bits(read(tmp_path / "b")[name]), bits(rows))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_rounding_is_that_of_torch(numbers: list[int]) -> None:
    edges = [0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x3F808000, 0x3F818000, 0xFFFFFFFF]
    values = np.array([*numbers, *edges], "<u4").view("<f4")
    for dtype, name in DTYPES.items():
        ours = to_float32(from_float32(values, dtype), dtype)
        theirs = torch.tensor(values).to(getattr(torch, name)).to(torch.float32).numpy()
        assert np.array_equal(ours, theirs, equal_nan=True)


@given(hard_text)
@settings(max_examples=examples(100))
def test_a_new_token_is_cut_as_text_is(text: str) -> None:
    """Whatever a token says, its pieces are what the old tokenizer makes of it."""
    old, new = tiny_models.tokenizer(), BPETokenizer(normalizer=None)
    if not text or new.convert_tokens_to_ids(text) >= 0:  # a byte, as it is written
        return
    new.add_special_tokens([text])
    found = match(old, new)
    [token] = found.new.values() or [None]
    if token is not None:
        assert list(token.pieces) == old.encode(text)
        assert b"".join(old.token_bytes()[id_] or b"" for id_ in token.pieces) == text.encode()


# -- What a model computes ----------------------------------------------------


def logits(folder: Path, ids: Sequence[int]) -> Any:
    transformers = need("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    with torch.no_grad():
        return model(torch.tensor([list(ids)])).logits[0].float()


def greedy(folder: Path, ids: Sequence[int], count: int = 24) -> list[int]:
    transformers = need("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    out = model.generate(
        torch.tensor([list(ids)]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
    )
    return [int(id_) for id_ in out[0][len(ids) :]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.slow), 3])
@TIED
def test_transformers_computes_the_same_logits(
    tmp_path: Path, tied: bool, shards: int, dtype: str
) -> None:
    new, old = other(), tiny_models.tokenizer()
    source = write_model(tmp_path / "m", tied, dtype, shards)
    adapt(source, new, tmp_path / "out", pad_to_multiple_of=64)
    moved = match(old, new).moved
    prompt = [moved[id_] for id_ in tiny_models.PROMPT]
    before, after = logits(source, tiny_models.PROMPT), logits(tmp_path / "out", prompt)
    ids = list(range(tiny_models.TOKENS))
    assert torch.equal(before[:, ids], after[:, [moved[id_] for id_ in ids]])


@TIED
def test_transformers_goes_on_with_the_same_ids(tmp_path: Path, tied: bool) -> None:
    """New tokens have the mean of their pieces' logits, and padding that of all: never the most."""
    new, source = other(), write_model(tmp_path / "m", tied)
    adapt(source, new, tmp_path / "out", pad_to_multiple_of=64)
    moved = match(tiny_models.tokenizer(), new).moved
    # The padding of the tiny model is random, and may win: it is no token, so leave it out.
    expected, margin = tiny_models.model(tied).greedy(tiny_models.PROMPT, 24, tiny_models.TOKENS)
    found = greedy(tmp_path / "out", [moved[id_] for id_ in tiny_models.PROMPT])
    assert margin > 0.01
    assert found == [moved[id_] for id_ in expected]


def test_transformers_loads_the_tokenizer_that_goes_along(tmp_path: Path) -> None:
    transformers = need("transformers")
    adapt(write_model(tmp_path / "m", tied=True), other(), tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "def answer_3(x):\n    return zero"
    assert theirs.encode(text, add_special_tokens=False) == other().encode(text)
    assert theirs.eos_token_id == other().eos_token_id


def as_tiny(folder: Path, tied: bool) -> tuple[tiny_models.TinyModel, dict[str, Any]]:
    """Return an adapted model in the form that other libraries' files are written from."""
    config = json.loads((folder / "config.json").read_text())
    return tiny_models.TinyModel(read_numpy(folder), tied), config


@TIED
def test_openvino_goes_on_with_the_same_ids(tmp_path: Path, tied: bool) -> None:
    need("openvino")
    import llama_forms

    new, source = other(), write_model(tmp_path / "m", tied)
    adapt(source, new, tmp_path / "out")
    made, config = as_tiny(tmp_path / "out", tied)
    llama_forms.write_openvino(tmp_path / "ir", config, made.weights, new)
    _same_answers(backends.open_model(tmp_path / "ir"), new, tied)


@TIED
def test_llama_cpp_goes_on_with_the_same_ids(tmp_path: Path, tied: bool) -> None:
    """Run by `make backends`, where llama-cpp-python is built."""
    need("llama_cpp")
    need("gguf")
    import llama_forms

    new, source = other(), write_model(tmp_path / "m", tied)
    adapt(source, new, tmp_path / "out", pad_to_multiple_of=64)
    made, config = as_tiny(tmp_path / "out", tied)
    llama_forms.write_gguf(tmp_path / "model.gguf", config, made.weights, new)
    _same_answers(backends.open_model(tmp_path / "model.gguf"), new, tied)


@TIED
def test_llama_cpp_goes_on_with_the_same_ids_of_an_adapted_file(tmp_path: Path, tied: bool) -> None:
    """The same for a GGUF file that is adapted itself."""
    need("llama_cpp")
    need("gguf")
    source = tiny_models.write_gguf(tmp_path / "m.gguf", tiny_models.model(tied))
    adapt(source, other(), tmp_path / "model.gguf", pad_to_multiple_of=64)
    _same_answers(backends.open_model(tmp_path / "model.gguf"), other(), tied)


def _same_answers(model: Any, new: BPETokenizer, tied: bool) -> None:
    moved = match(tiny_models.tokenizer(), new).moved
    expected, _ = tiny_models.model(tied).greedy(tiny_models.PROMPT, 24, tiny_models.TOKENS)
    prompt = [moved[id_] for id_ in tiny_models.PROMPT]
    found = list(model.generate(prompt, temperature=0, max_new_tokens=24))
    backends.unload()
    assert found == [moved[id_] for id_ in expected]


# -- Which tokens are the same ------------------------------------------------


def test_special_tokens_and_ordinary_ones_do_not_mix() -> None:
    old, new = BPETokenizer(normalizer=None), BPETokenizer(normalizer=None)
    old.add_special_tokens({"<s>": 300, "ab": 301})
    new.train(["ab ab ab"], 257, min_frequency=1, verbose=False)
    new.add_special_tokens({"<s>": 400})
    found = match(old, new)
    ab = new.encode("ab")[0]
    assert found.kept[400] == 300 and found.moved[300] == 400
    assert found.new[ab].pieces == (97, 98)  # not the special token of that name
    back = match(new, old)
    assert back.new[301].pieces == (ab,)  # a new row, though an ordinary token has that text
    assert back.moved[400] == 300


@pytest.mark.parametrize("family", ["llama 2", "mistral v0.3", "gemma 3", "llama 3"])
def test_tokens_of_sentencepiece_and_of_bytes_are_told_by_their_bytes(
    tmp_path: Path, family: str
) -> None:
    tmp_path.joinpath("tokenizer.json").write_text(tokenizer_files.text(family), encoding="utf-8")
    spelled = BPETokenizer.from_file(tmp_path)
    by_bytes = BPETokenizer(normalizer=None)
    by_bytes.train([" the the  the 日本"] * 2, 262, verbose=False)
    found = match(spelled, by_bytes)
    table, other = spelled.token_bytes(), by_bytes.token_bytes()
    assert all(table[old_id] == other[new_id] for new_id, old_id in found.kept.items())
    for token in found.new.values():
        assert b"".join(table[id_] or b"" for id_ in token.pieces) == token.raw


# -- Ids in config.json -------------------------------------------------------


def rewritten(folder: Path, out: Path, **changes: Any) -> Any:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    report = adapt(folder, other(), out)
    return report, json.loads((out / "config.json").read_text())


def test_ids_follow_their_tokens(tmp_path: Path) -> None:
    new, source = other(), write_model(tmp_path / "m", tied=True)
    generation = {"eos_token_id": [478, 479], "suppress_tokens": [1, 478], "temperature": 0.5}
    generation.update(pad_token_id=-1, forced_decoder_ids=[[1, 477]], bad_words_ids=[[3, 477]])
    (source / "generation_config.json").write_text(json.dumps(generation))
    text = {"vocab_size": 512, "image_token_index": 5, "name": "x", "bos_token_id": None}
    report, config = rewritten(source, tmp_path / "out", text_config=text)
    s, end, pad = new.bos_token_id, new.eos_token_id, new.pad_token_id
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (s, end, pad)
    assert config["vocab_size"] == config["text_config"]["vocab_size"] == new.max_id + 1
    assert config["text_config"] == {**text, "vocab_size": new.max_id + 1}
    assert json.loads((tmp_path / "out/generation_config.json").read_text()) == {
        **{"eos_token_id": [end, pad], "suppress_tokens": [1, end], "temperature": 0.5},
        **{"pad_token_id": -1, "forced_decoder_ids": [[1, s]], "bad_words_ids": [[3, s]]},
    }
    assert report.ids["config.json: eos_token_id"] == (478, end)
    assert report.ids["generation_config.json: eos_token_id"] == ([478, 479], [end, pad])
    assert f"config.json: eos_token_id: 478 -> {end}" in str(report)
    assert "config.json: text_config.image_token_index" not in report.ids  # it is the same


def test_an_id_whose_token_is_gone_is_an_error(tmp_path: Path) -> None:
    source = write_model(tmp_path / "m", tied=True)
    new = BPETokenizer(normalizer=None)
    new.add_special_tokens(["<s>", "</s>"])
    expected = (
        r"config\.json: pad_token_id: is 479, the token '<pad>', which the new tokenizer does not "
        r"have; add it there, or give another one with ids=\{'pad_token_id': \.\.\.\} "
        r"\(--ids pad_token_id=ID\)"
    )
    with pytest.raises(FileFormatError, match=expected):
        adapt(source, new, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    adapt(source, new, tmp_path / "out", ids={"pad_token_id": None})
    assert json.loads((tmp_path / "out/config.json").read_text())["pad_token_id"] is None
    with pytest.raises(ValueError, match=r"ids are given for 'pad', which config\.json and"):
        adapt(source, new, tmp_path / "b", ids={"pad_token_id": 1, "pad": 2})
    for wrong in (258, -1, "1", [1, None], True):
        with pytest.raises(
            ValueError, match=r"ids: 'pad_token_id' is .*; expected an id of the new"
        ):
            adapt(source, new, tmp_path / "b", ids={"pad_token_id": wrong})


@pytest.mark.parametrize("part", [None, "text_config"])
def test_a_size_that_was_left_to_the_default_is_written(tmp_path: Path, part: str | None) -> None:
    source = write_model(tmp_path / "m", tied=True)
    config = json.loads((source / "config.json").read_text())
    del config["vocab_size"]
    config.update({part: {"hidden_size": 64}} if part else {})
    (source / "config.json").write_text(json.dumps(config))
    report = adapt(source, other(), tmp_path / "out")
    made = json.loads((tmp_path / "out/config.json").read_text())
    assert (made[part] if part else made)["vocab_size"] == other().max_id + 1
    assert report.ids["config.json: vocab_size"] == (None, other().max_id + 1)


@pytest.mark.parametrize(
    "value, problem",
    [
        (500, "is 500, and the old tokenizer has no token with this id; correct the file"),
        ("x", "expected an id, got 'x'"),
        (True, "expected an id, got True"),
        ([1.5], "expected an id, got 1.5"),
    ],
)
def test_ids_that_are_none(tmp_path: Path, value: Any, problem: str) -> None:
    with pytest.raises(FileFormatError) as error:
        rewritten(write_model(tmp_path / "m", tied=True), tmp_path / "out", eos_token_id=value)
    assert f"config.json: eos_token_id: {problem}" in str(error.value)


# -- Which tensors ------------------------------------------------------------


def with_weights(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    write_model(folder, tied=False)
    weights = read(folder)
    change(weights)
    save(
        {name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors"
    )
    return folder


@pytest.mark.parametrize(
    "first, second",
    [
        ("transformer.wte.weight", "lm_head.weight"),
        ("gpt_neox.embed_in.weight", "embed_out.weight"),
        ("tok_embeddings.weight", "output.weight"),
        ("transformer.word_embeddings.weight", "lm_head.weight"),
    ],
)
def test_names_of_other_architectures(tmp_path: Path, first: str, second: str) -> None:
    def rename(weights: dict[str, Any]) -> None:
        weights[first], weights[second] = weights.pop(INPUT), weights.pop(OUTPUT)
        weights["lm_head.bias"] = torch.arange(512.0)

    source = with_weights(tmp_path / "m", rename)
    report = adapt(source, other(), tmp_path / "out")
    roles = {table.name: table.role for table in report.tables}
    assert roles == {first: "input", second: "output", "lm_head.bias": "output"}
    bias = read(tmp_path / "out")["lm_head.bias"]
    for new_id, old_id in match(tiny_models.tokenizer(), other()).kept.items():
        assert bias[new_id] == old_id
    assert bias.shape == (other().max_id + 1,)


def test_layers_that_predict_further_tokens_have_tables_of_their_own(tmp_path: Path) -> None:
    first, second = (
        f"model.layers.1.{name}.weight" for name in ("embed_tokens", "shared_head.head")
    )

    def change(weights: dict[str, Any]) -> None:
        weights[first], weights[second] = weights[INPUT] + 1, weights[OUTPUT] + 1

    source = with_weights(tmp_path / "m", change)
    report = adapt(source, other(), tmp_path / "out")
    roles = {table.name: table.role for table in report.tables}
    assert roles == {INPUT: "input", OUTPUT: "output", first: "input", second: "output"}
    made = read(tmp_path / "out")
    kept = list(match(tiny_models.tokenizer(), other()).kept)
    assert torch.equal(made[first][kept], made[INPUT][kept] + 1)


def test_broken_rows_do_not_spread_to_padding(tmp_path: Path) -> None:
    def change(weights: dict[str, Any]) -> None:
        weights[INPUT][7] = float("nan")

    source = with_weights(tmp_path / "m", change)
    adapt(source, other(), tmp_path / "out", pad_to_multiple_of=64)
    made = read(tmp_path / "out")[INPUT]
    assert torch.isnan(made[7]).all() and torch.isfinite(made[other().vocab_size :]).all()


def test_doubtful_tensors_have_to_be_named(tmp_path: Path) -> None:
    def change(weights: dict[str, Any]) -> None:
        weights["adapter.scale"] = torch.ones(512, 2)
        weights["model.layers.0.mlp.up_proj.weight"] = torch.ones(512, 64)  # a layer has no table

    source = with_weights(tmp_path / "m", change)
    expected = (
        r"these may have one row for each of the 512 tokens, too, or may not: "
        r"lm_head\.weight \(512 x 64\), model\.embed_tokens\.weight \(512 x 64\), "
        r"adapter\.scale \(512 x 2\); name all tensors with a row for each token with tensors="
    )
    with pytest.raises(ValueError, match=expected):
        adapt(source, other(), tmp_path / "out")
    with pytest.raises(ValueError, match="has no tensor 'nothing'; expected names from its files"):
        adapt(source, other(), tmp_path / "out", tensors=[INPUT, "nothing"])
    names = [INPUT, OUTPUT, "adapter.scale"]
    report = adapt(source, other(), tmp_path / "out", tensors=names)
    assert [table.after for table in report.tables] == [
        (other().max_id + 1, columns) for columns in (64, 64, 2)
    ]


@pytest.mark.parametrize("named, missing", [([INPUT], OUTPUT), ([OUTPUT], INPUT)])
def test_a_table_that_was_not_named_is_missed(
    tmp_path: Path, named: list[str], missing: str
) -> None:
    source = write_model(tmp_path / "m", tied=False)
    expected = rf"m: {re.escape(missing)} \(512 x 64\) has a row for each token, too, and was not n"
    with pytest.raises(ValueError, match=expected):
        adapt(source, other(), tmp_path / "out", tensors=named)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_an_unusual_output_that_was_not_named_is_missed(tmp_path: Path) -> None:
    def change(weights: dict[str, Any]) -> None:
        weights["model.logits.weight"] = weights.pop(OUTPUT)
        weights["model.layers.0.mlp.up_proj.weight"] = torch.ones(512, 64)  # a layer has no table

    source = with_weights(tmp_path / "m", change)
    with pytest.raises(ValueError, match=r"model\.logits\.weight \(512 x 64\) has a row for each"):
        adapt(source, other(), tmp_path / "out", tensors=[INPUT])
    report = adapt(source, other(), tmp_path / "out", tensors=[INPUT, "model.logits.weight"])
    assert {table.after for table in report.tables} == {(other().max_id + 1, 64)}


@pytest.mark.parametrize("part", ["", "text_config"])
@pytest.mark.parametrize("size", ["512", 512.0, True, [512]])
def test_a_size_that_is_not_a_number_is_refused(tmp_path: Path, part: str, size: Any) -> None:
    source = write_model(tmp_path / "m", tied=True)
    config = json.loads((source / "config.json").read_text())
    (config.setdefault(part, {}) if part else config)["vocab_size"] = size
    (source / "config.json").write_text(json.dumps(config))
    where = "text_config.vocab_size" if part else "vocab_size"
    expected = rf"config\.json: {re.escape(where)}: expected a whole number, got "
    for tensors in (None, [INPUT]):
        with pytest.raises(FileFormatError, match=expected):
            adapt(source, other(), tmp_path / "out", tensors=tensors)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_no_table_no_model(tmp_path: Path) -> None:
    def change(weights: dict[str, Any]) -> None:
        weights["model.my_table"] = weights.pop(INPUT)

    source = with_weights(tmp_path / "m", change)
    with pytest.raises(ValueError, match=r"no tensor has the usual name of an input embedding: "):
        adapt(source, other(), tmp_path / "out")
    with pytest.raises(ValueError, match=r"ids up to 479, but .* has only 64 rows: the tokenizer"):
        norm = "model.layers.0.self_attn.o_proj.weight"
        adapt(source, other(), tmp_path / "out", tensors=[norm])
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_quantized_tables_are_refused_by_name(tmp_path: Path) -> None:
    def change(weights: dict[str, Any]) -> None:
        weights[INPUT] = torch.ones(512, 8, dtype=torch.int32)
        weights["model.embed_tokens.scales"] = torch.ones(512, 2)

    source = with_weights(tmp_path / "m", change)
    expected = r"model\.embed_tokens\.weight: its values are I32; expected BF16, F16 or F32\. Rows"
    with pytest.raises(FileFormatError, match=expected):
        adapt(source, other(), tmp_path / "out")


def test_an_output_that_is_not_there_is_missed(tmp_path: Path) -> None:
    source = with_weights(tmp_path / "m", lambda weights: weights.pop(OUTPUT))
    with pytest.raises(ValueError, match=r"the output embedding is a table of its own, and no"):
        adapt(source, other(), tmp_path / "out")


# -- Files --------------------------------------------------------------------


def test_other_files_go_along_and_weights_do_not(tmp_path: Path) -> None:
    source = write_model(tmp_path / "m", tied=False, shards=3)
    (source / "LICENSE").write_text("free")
    (source / "pytorch_model.bin").write_bytes(b"pickled")
    (source / "merges.txt").write_text("of the old tokenizer")
    (source / "extra").mkdir()
    (source / "extra" / "notes.txt").write_text("n")
    (source / "extra" / "model.onnx").write_bytes(b"o")
    (source / "openvino_model.xml").write_text("<net/>")
    (source / "chat_template.jinja").write_text("{{ messages }}")
    report = adapt(source, other(), tmp_path / "out")
    assert report.left_out == ["openvino_model.xml", "pytorch_model.bin", "extra/model.onnx"]
    assert "Note: the new tokenizer has no chat template, and the old one had one." in str(report)
    made = sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*"))
    assert made == [
        *("LICENSE", "config.json", "extra", "extra/notes.txt", "generation_config.json"),
        *(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)),
        *("model.safetensors.index.json", "special_tokens_map.json"),
        *("tokenizer.json", "tokenizer_config.json"),
    ]
    index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    size = sum(value.nbytes for value in read(tmp_path / "out").values())
    assert index["metadata"]["total_size"] == size
    assert BPETokenizer.from_file(tmp_path / "out").fingerprint == other().fingerprint


def test_an_output_that_is_there_is_not_touched(tmp_path: Path) -> None:
    source = write_model(tmp_path / "m", tied=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("precious")
    with pytest.raises(FileExistsError, match=r"out: already exists and isn't empty; force=True"):
        adapt(source, other(), tmp_path / "out")
    assert (tmp_path / "out" / "mine").read_text() == "precious"
    adapt(source, other(), tmp_path / "out", force=True)
    assert not (tmp_path / "out" / "mine").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "out"]
    for place in (source, source / "below", tmp_path):
        with pytest.raises(ValueError, match="the output must not be inside the model's directory"):
            adapt(source, other(), place, force=True)


def shaken(folder: Path, change: Callable[[dict[str, Any], bytearray], bytes | None]) -> Path:
    """Write a model and change the header of its file, or its data."""
    write_model(folder, tied=True)
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8 : 8 + length]), bytearray(raw[8 + length :])
    whole = change(header, data)
    packed = json.dumps(header).encode()
    path.write_bytes(whole or struct.pack("<Q", len(packed)) + packed + data)
    return folder


def _overlap(header: dict[str, Any], data: bytearray) -> None:
    norm = header["model.norm.weight"]["data_offsets"]
    norm[:] = [norm[0] - 4, norm[1] - 4]


def _beyond(header: dict[str, Any], data: bytearray) -> None:
    offsets = header["model.norm.weight"]["data_offsets"]
    offsets[:] = [len(data), len(data) + 256]


def _other_shape(header: dict[str, Any], data: bytearray) -> None:
    header[INPUT]["shape"] = [512, 65]


def _negative(header: dict[str, Any], data: bytearray) -> None:
    header[INPUT]["data_offsets"][0] = -1


def _metadata(header: dict[str, Any], data: bytearray) -> None:
    header["__metadata__"] = {"format": ["pt"]}


@pytest.mark.parametrize(
    "change, field",
    [
        (_overlap, "shares bytes with"),
        (_beyond, "model.norm.weight: its data ends at"),
        (_other_shape, f"{INPUT}: 512 x 65 values of F32 don't fit its 131,072 bytes"),
        (_negative, f"{INPUT}: expected dtype, shape, data_offsets"),
        (_metadata, "__metadata__: expected an object of strings"),
        (lambda header, data: struct.pack("<Q", 2**63) + b"{}", "cut short in its header"),
        (lambda header, data: struct.pack("<Q", 50) + b"{}", "cut short in its header"),
        (lambda header, data: b"\1\2", "not a safetensors file, or cut short"),
        (lambda header, data: struct.pack("<Q", 4) + b"null", "expected a JSON object"),
        (lambda header, data: data.clear(), "its data ends at"),
        (lambda header, data: data.extend(b"more"), "has 4 extra bytes after its last tensor"),
    ],
)
def test_damaged_files_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any], bytearray], bytes | None], field: str
) -> None:
    source = shaken(tmp_path / "m", change)
    with pytest.raises(FileFormatError) as error:
        adapt(source, other(), tmp_path / "out")
    assert "m/model.safetensors: " in str(error.value) and field in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_headers_with_other_bytes_are_refused_or_harmless(tmp_path: Path) -> None:
    """Whatever is in a header gives an error that names the file, or a model that loads."""
    source, chance = write_model(tmp_path / "m", tied=True), random.Random(2)
    path, refused = source / "model.safetensors", 0
    raw = path.read_bytes()
    length = 8 + struct.unpack("<Q", raw[:8])[0]
    for i in range(120):
        changed = bytearray(raw)
        at = chance.randrange(8) if i % 10 == 0 else chance.randrange(8, length - 2)
        changed[at : at + 2] = chance.choice([chance.randbytes(2), b"00", b"9,", b'":', b"[{"])
        path.write_bytes(changed if i % 7 else changed[: chance.randrange(len(raw))])
        try:
            adapt(source, other(), tmp_path / f"out{i}")
        except ValueError as error:
            refused += 1
            assert str(tmp_path / "m") in str(error)
            assert not (tmp_path / f"out{i}").exists()
        else:
            assert read(tmp_path / f"out{i}")
    assert 60 < refused < 120


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b", "..", 7])
def test_an_index_with_names_of_other_places_is_refused(tmp_path: Path, name: Any) -> None:
    source = write_model(tmp_path / "m", tied=True, shards=3)
    index = source / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    data["weight_map"]["model.norm.weight"] = name
    index.write_text(json.dumps(data))
    with pytest.raises((FileFormatError, FileNotFoundError)) as error:
        adapt(source, other(), tmp_path / "out")
    assert str(tmp_path / "m") in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("missing", [True, False])
def test_an_index_that_is_wrong_is_refused(tmp_path: Path, missing: bool) -> None:
    source = write_model(tmp_path / "m", tied=True, shards=3)
    index = source / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    if missing:
        del data["weight_map"]["model.norm.weight"]
    else:
        data["weight_map"]["nothing"] = "model-00001-of-00003.safetensors"
    index.write_text(json.dumps(data))
    with pytest.raises(FileFormatError, match=r"weight_map: says that '\S+' is in"):
        adapt(source, other(), tmp_path / "out")


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing: no such file or directory"):
        adapt(tmp_path / "nothing", other(), tmp_path / "out")
    (tmp_path / "m").mkdir()
    with pytest.raises(FileNotFoundError, match=r"config.json: no such file; expected the dir"):
        adapt(tmp_path / "m", other(), tmp_path / "out")
    source = write_model(tmp_path / "x", tied=True)
    for init in ("half", None):
        with pytest.raises(ValueError, match="init must be one of 'subword_mean', 'mean', 'zeros'"):
            adapt(source, other(), tmp_path / "out", init=init)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "vocab_size": 500}))
    with pytest.raises(ValueError, match=r"vocab_size is 500, but \S+ has 512 rows; one of the"):
        adapt(source, other(), tmp_path / "out")


def test_parts_with_other_vocabularies_keep_theirs(tmp_path: Path) -> None:
    source = write_model(tmp_path / "m", tied=True)
    config = json.loads((source / "config.json").read_text("utf-8"))
    config["audio_config"] = {"vocab_size": 1024, "pad_token_id": 1023}
    (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
    adapt(source, other(), tmp_path / "out")
    made = json.loads((tmp_path / "out/config.json").read_text("utf-8"))
    assert made["audio_config"] == config["audio_config"]
    assert made["vocab_size"] != config["vocab_size"]


@pytest.mark.parametrize(
    "wrong, named",
    [
        ({"new": 5}, "new must be a BPETokenizer, got int"),
        ({"old": "old"}, "old must be a BPETokenizer, got str"),
        ({"tensors": "lm_head.weight"}, "tensors must be a list of names"),
        ({"ids": 5}, "ids must be a mapping"),
    ],
)
def test_wrong_types_are_refused(tmp_path: Path, wrong: dict[str, Any], named: str) -> None:
    source = write_model(tmp_path / "m", tied=True)
    options = {"old": None, "new": other(), **wrong}
    with pytest.raises(TypeError, match=named):
        adapt_model(source, out_dir=tmp_path / "out", verbose=False, **options)
    assert not (tmp_path / "out").exists()


def test_a_link_to_a_directory_is_named(tmp_path: Path) -> None:
    source = write_model(tmp_path / "m", tied=True)
    (tmp_path / "elsewhere").mkdir()
    (source / "link").symlink_to(tmp_path / "elsewhere")
    assert "link" in adapt(source, other(), tmp_path / "out").left_out
