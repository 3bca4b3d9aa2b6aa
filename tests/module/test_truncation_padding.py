"""`truncation` and `padding` of tokenizer.json: kept, and the defaults of `encode_batch`."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from oracles import need

from bpe_tokenizer import BPETokenizer, FileFormatError, main

tokenizers = need("tokenizers")

TEXTS = ["the cat sat on the mat", "the", "", "low lower lowest 123"]
TRUNCATION = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    **{"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None},
    **{"pad_id": 258, "pad_type_id": 0, "pad_token": "<pad>"},
}
FIXED = {**PADDING, "strategy": {"Fixed": 9}}


def written(folder: Path, pad_role: bool = True, **fields: Any) -> Path:
    """Save a tokenizer, and put fields into its tokenizer.json."""
    tokenizer = BPETokenizer("gpt2", normalizer=None).train(
        "the cat sat " * 50,
        270,
        special_tokens={"<s>": 256, "</s>": 257, "<pad>": 258},
        verbose=False,
        num_workers=1,
        surround="bos+eos",  # others add eos only where it was chosen
    )
    if not pad_role:
        tokenizer.pad_token = None
    tokenizer.save(folder, verbose=False)
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, **fields}), encoding="utf-8")
    return path


@pytest.mark.parametrize("pad_role", [True, False])
@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("multiple", [None, 0, 5])
@pytest.mark.parametrize("direction", ["Left", "Right"])
@pytest.mark.parametrize("strategy", ["BatchLongest", {"Fixed": 3}, {"Fixed": 9}])
def test_asked_for_they_give_what_the_other_library_gives(
    tmp_path: Path, strategy: Any, direction: str, multiple: Any, special: bool, pad_role: bool
) -> None:
    padding = {**PADDING, "strategy": strategy, "pad_to_multiple_of": multiple}
    padding["direction"] = direction
    truncation = {**TRUNCATION, "direction": direction}
    path = written(tmp_path, pad_role, truncation=truncation, padding=padding)
    ours, theirs = BPETokenizer.from_file(path), tokenizers.Tokenizer.from_file(str(path))
    asked = "longest" if strategy == "BatchLongest" else "max_length"
    batch = ours.encode_batch(TEXTS, special, padding=asked, truncation=True)
    expected = theirs.encode_batch(TEXTS, add_special_tokens=special)
    assert batch["input_ids"] == [each.ids for each in expected]
    assert batch["attention_mask"] == [each.attention_mask for each in expected]
    assert [each.tokens for each in batch] == [each.tokens for each in expected]


def test_a_file_without_a_pad_role_pads_with_its_own_id(tmp_path: Path) -> None:
    padding = {**PADDING, "pad_id": 7, "pad_token": "[PAD]"}
    path = written(tmp_path, False, padding=padding)
    ours, theirs = BPETokenizer.from_file(path), tokenizers.Tokenizer.from_file(str(path))
    batch = ours(
        TEXTS, add_special_tokens=True, padding=True
    )  # no warning that there is no pad token
    assert batch["input_ids"] == [each.ids for each in theirs.encode_batch(TEXTS)]
    assert batch[1].tokens == theirs.encode_batch(TEXTS)[1].tokens


def test_nothing_is_truncated_or_padded_unasked(tmp_path: Path) -> None:
    """As in transformers, where `tokenizers` alone would."""
    transformers = need("transformers")
    path = written(tmp_path, truncation=TRUNCATION, padding=FIXED)
    plain = BPETokenizer.from_file(written(tmp_path / "plain"))
    ours = BPETokenizer.from_file(path)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert ours(TEXTS)["input_ids"] == theirs(TEXTS, add_special_tokens=False)["input_ids"]
    assert ours(TEXTS)["input_ids"] == plain(TEXTS)["input_ids"]
    for text in TEXTS:
        assert ours.encode(text) == plain.encode(text)
        assert ours.count_tokens(text) == plain.count_tokens(text)


@pytest.mark.parametrize("direction", ["Left", "Right"])
def test_sides_are_those_of_transformers(tmp_path: Path, direction: str) -> None:
    transformers = need("transformers")
    sided = {"direction": direction}
    path = written(
        tmp_path, truncation={**TRUNCATION, **sided}, padding={**FIXED, **sided, "pad_id": 258}
    )
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    options: dict[str, Any] = {"padding": True, "truncation": True, "max_length": 5}
    expected = theirs(TEXTS, add_special_tokens=False, **options)
    batch = BPETokenizer.from_file(path)(TEXTS, **options)
    assert batch["input_ids"] == expected["input_ids"]
    assert batch["attention_mask"] == expected["attention_mask"]


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_side_in_tokenizer_config_comes_first(tmp_path: Path, side: str) -> None:
    transformers = need("transformers")
    path = written(tmp_path, truncation=TRUNCATION, padding=PADDING)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    config |= {"padding_side": side, "truncation_side": side}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    options: dict[str, Any] = {"padding": True, "truncation": True, "max_length": 3}
    expected = theirs(TEXTS, add_special_tokens=False, **options)
    assert BPETokenizer.from_file(path)(TEXTS, **options)["input_ids"] == expected["input_ids"]


def test_what_the_caller_says_comes_first(tmp_path: Path) -> None:
    ours = BPETokenizer.from_file(written(tmp_path, truncation=TRUNCATION, padding=FIXED))
    text = "the cat sat on the mat"
    ids = ours.encode(text)
    options: dict[str, Any] = {"truncation": True, "padding": "max_length", "max_length": 6}
    batch = ours([text, "the"], truncation_side="left", padding_side="left", **options)
    assert batch["input_ids"][0] == ids[-6:]
    assert batch["input_ids"][1] == [258] * (6 - len(ours.encode("the"))) + ours.encode("the")
    assert ours([text], padding=True, pad_to_multiple_of=16)["input_ids"][0][:-1][: len(ids)] == ids


def test_without_them_and_max_length_nothing_is_cut_or_padded(tmp_path: Path) -> None:
    """As in transformers; here with a warning."""
    transformers = need("transformers")
    ours = BPETokenizer.from_file(written(tmp_path, padding=PADDING))
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    options: dict[str, Any]
    for options in ({"truncation": True}, {"padding": "max_length"}):
        with pytest.warns(UserWarning, match="does nothing here: pass max_length"):
            found = ours(TEXTS, **options)
        assert found.input_ids == theirs(TEXTS, add_special_tokens=False, **options)["input_ids"]
        assert found.input_ids == ours(TEXTS).input_ids


@pytest.mark.parametrize(
    "fields",
    [
        {"truncation": TRUNCATION},
        {"padding": PADDING},
        {"truncation": {**TRUNCATION, "stride": 2, "strategy": "OnlyFirst"}, "padding": FIXED},
        {"truncation": {key: TRUNCATION[key] for key in ("max_length", "strategy", "stride")}},
        {},
    ],
)
def test_they_come_back(tmp_path: Path, fields: Any) -> None:
    path = written(tmp_path / "a", **fields)
    ours = BPETokenizer.from_file(path)
    ours.save(tmp_path / "b", verbose=False)
    ours.export(tmp_path / "c.json", "tokenizer.json")
    for saved in (tmp_path / "b" / "tokenizer.json", tmp_path / "c.json"):
        data = json.loads(saved.read_text(encoding="utf-8"))
        for field in ("truncation", "padding"):
            assert data[field] == fields.get(field)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    for other in (ours.to_hf(), tokenizers.Tokenizer.from_file(str(tmp_path / "b/tokenizer.json"))):
        assert (other.truncation, other.padding) == (theirs.truncation, theirs.padding)
    config = (tmp_path / "b" / "tokenizer_config.json").read_text(encoding="utf-8")
    assert "LongestFirst" not in config and "pad_id" not in config
    again = BPETokenizer.from_file(tmp_path / "b")
    for copied in (again, copy.copy(ours), pickle.loads(pickle.dumps(ours))):
        assert copied == ours and copied._settings == ours._settings
    plain = BPETokenizer.from_file(written(tmp_path / "plain"))
    assert ours.fingerprint == plain.fingerprint  # ids are the same
    assert (ours == plain) is (not fields)


def test_info_shows_them(tmp_path: Path, capsys: Any) -> None:
    written(tmp_path, truncation=TRUNCATION, padding=FIXED)
    assert main(["info", "--tokenizer", str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["truncation"] == TRUNCATION and facts["padding"] == FIXED
    assert main(["info", "--tokenizer", str(tmp_path)]) == 0
    assert "LongestFirst" in capsys.readouterr().out


WRONG: list[tuple[str, Any]] = [
    *(
        ("truncation", {**TRUNCATION, **change})
        for change in (
            *({"direction": "right"}, {"direction": 1}, {"max_length": -1}, {"max_length": "4"}),
            *({"max_length": 2**64}, {"strategy": "longest_first"}, {"strategy": None}),
            *({"stride": True}, {"side": "Left"}),
        )
    ),
    *(("truncation", {k: v for k, v in TRUNCATION.items() if k != key}) for key in ("max_length",)),
    *(
        ("padding", {k: v for k, v in PADDING.items() if k != key})
        for key in ("pad_id", "strategy")
    ),
    *(
        ("padding", {**PADDING, **change})
        for change in (
            *({"strategy": "Fixed"}, {"strategy": {"Fixed": -1}}, {"strategy": {"Fixd": 1}}),
            *({"strategy": {"Fixed": 1, "x": 1}}, {"pad_id": -1}, {"pad_token": 3}),
            *({"direction": "Up"}, {"pad_to_multiple_of": -8}, {"length": 3}, {"pad_id": 999_999}),
        )
    ),
    *(("truncation", value) for value in ([], "x", 3, True, {})),
    *(("padding", value) for value in ([], "x", 3, True, {})),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=lambda value: str(value)[:120])
def test_wrong_ones_are_refused_by_name(tmp_path: Path, field: str, value: Any) -> None:
    path = written(tmp_path, **{field: value})
    with pytest.raises(FileFormatError) as caught:
        BPETokenizer.from_file(path)
    assert caught.value.field.startswith(field)
    lenient = (
        {**TRUNCATION, "side": "Left"},
        {**PADDING, "length": 3},
        {**PADDING, "pad_id": 999_999},
    )
    if value not in lenient:  # these are ignored there
        with pytest.raises(Exception):  # noqa: B017, PT011  # it has no class of its own
            tokenizers.Tokenizer.from_file(str(path))


def test_a_length_beyond_belief_is_not_padded_to(tmp_path: Path) -> None:
    path = written(tmp_path, truncation={**TRUNCATION, "max_length": 2**63}, padding=PADDING)
    tokenizer = BPETokenizer.from_file(path)
    assert len(tokenizer.encode_batch(["abc"], truncation=True)[0]) > 0
    with pytest.warns(UserWarning, match="max_length"):
        batch = tokenizer.encode_batch(["abc"], padding="max_length")
    assert batch.input_ids == [tokenizer.encode("abc")]


@pytest.mark.parametrize("side", ["padding_side", "truncation_side"])
def test_a_side_in_tokenizer_config_is_checked_when_it_is_read(tmp_path: Path, side: str) -> None:
    written(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, side: None}), encoding="utf-8")
    BPETokenizer.from_file(tmp_path).encode_batch(["abc", "a"], padding=True)
    path.write_text(json.dumps({**config, side: "middle"}), encoding="utf-8")
    with pytest.raises(FileFormatError, match=f"{side}: expected 'left' or 'right', got 'middle'"):
        BPETokenizer.from_file(tmp_path)


# -- Set on the tokenizer -----------------------------------------------------


def batches_agree(ours: BPETokenizer, theirs: Any, **options: Any) -> None:
    expected = theirs(TEXTS, add_special_tokens=False, **options)
    batch = ours(TEXTS, **options)
    assert batch["input_ids"] == expected["input_ids"]
    assert batch["attention_mask"] == expected["attention_mask"]


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_attributes_of_transformers_take_effect(tmp_path: Path, side: str, in_file: bool) -> None:
    """Where tokenizer.json says something else, too; and they are saved."""
    transformers = need("transformers")
    fields = {"truncation": TRUNCATION, "padding": PADDING} if in_file else {}
    ours = BPETokenizer.from_file(written(tmp_path / "a", **fields))
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "a"))
    for tokenizer in (ours, theirs):
        tokenizer.padding_side = side
        tokenizer.truncation_side = side
        tokenizer.model_max_length = 5
    ours.save(tmp_path / "b", verbose=False)
    again = BPETokenizer.from_file(tmp_path / "b")
    auto = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "b"))
    assert (auto.padding_side, auto.truncation_side, auto.model_max_length) == (side, side, 5)
    for one in (ours, again, copy.copy(ours), pickle.loads(pickle.dumps(ours))):
        assert one == ours
        assert (one.padding_side, one.truncation_side, one.model_max_length) == (side, side, 5)
        for other in (theirs, auto):
            batches_agree(one, other, padding=True, truncation=True)
            batches_agree(one, other, padding="max_length", truncation=True)
            batches_agree(one, other, padding=True, truncation=True, max_length=3)
    plain = BPETokenizer.from_file(written(tmp_path / "plain", **fields))
    assert ours.fingerprint == plain.fingerprint and ours != plain
    ours.padding_side = ours.truncation_side = ours.model_max_length = None
    assert ours == plain


@pytest.mark.parametrize("value", [None, 0, -1, 512.5, "512", 10**30, True])
def test_a_model_max_length_that_is_none_counts_for_nothing(tmp_path: Path, value: Any) -> None:
    written(tmp_path, truncation=TRUNCATION)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "model_max_length": value}), encoding="utf-8")
    ours = BPETokenizer.from_file(tmp_path)
    assert max(map(len, ours(TEXTS, truncation=True))) == TRUNCATION["max_length"]


def test_attributes_start_as_the_file_says(tmp_path: Path) -> None:
    ours = BPETokenizer()
    assert (ours.padding_side, ours.truncation_side) == ("right", "right")
    assert ours.model_max_length is None
    left = {"direction": "Left"}
    path = written(tmp_path, truncation={**TRUNCATION, **left}, padding={**PADDING, **left})
    ours = BPETokenizer.from_file(path)
    assert (ours.padding_side, ours.truncation_side) == ("left", "left")
    ours.padding_side = "right"
    assert ours(TEXTS[:2], padding=True)["input_ids"][1][-1] == 258


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("padding_side", "middle", ValueError),
        ("padding_side", 3, ValueError),
        ("truncation_side", "Left", ValueError),
        ("model_max_length", 0, ValueError),
        ("model_max_length", -1, ValueError),
        ("model_max_length", "512", TypeError),
        ("model_max_length", 512.0, TypeError),
    ],
)
def test_wrong_values_of_attributes_are_refused(name: str, value: Any, error: Any) -> None:
    tokenizer = BPETokenizer()
    before = getattr(tokenizer, name)
    with pytest.raises(error, match=name):
        setattr(tokenizer, name, value)
    assert getattr(tokenizer, name) == before
