"""How a file joins pairs of texts comes through: against `tokenizers`, before and after a save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, FileFormatError

need("tokenizers")

from tokenizers import Tokenizer, processors  # noqa: E402

TEXT = "low lower lowest " * 20


def special(name: str, type_id: int = 0) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": type_id}}


def sequence(name: str, type_id: int = 0) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": type_id}}


BOS, EOS, SEP, A, B = (
    special("<s>"),
    special("</s>"),
    special("<sep>"),
    sequence("A"),
    sequence("B"),
)
USUAL = [BOS, A, EOS, special("<s>", 1), sequence("B", 1), special("</s>", 1)]
PAIRS = {
    "no pair but the usual": USUAL,
    "RoBERTa's": [BOS, A, EOS, EOS, B, EOS],
    "one token between": [BOS, A, SEP, sequence("B", 1), special("</s>", 1)],
    "the second first": [BOS, B, EOS, A, EOS],
    "type ids above 1": [special("<s>", 3), sequence("A", 2), sequence("B", 7)],
    "nothing around": [A, B],
}


@pytest.fixture(scope="module")
def written(engine: str) -> dict[str, Any]:
    """The JSON of a small tokenizer."""
    tokens = ["<s>", "</s>", "<sep>"]
    tokenizer = BPETokenizer(surround="bos+eos")
    tokenizer.train(TEXT, 270, special_tokens=tokens, verbose=False)
    data: dict[str, Any] = json.loads(tokenizer.to_hf().to_str())
    data["post_processor"]["special_tokens"]["<sep>"] = {
        "id": "<sep>",
        "ids": [tokenizer.special_tokens["<sep>"]],
        "tokens": ["<sep>"],
    }
    return data


def there_and_back(data: dict[str, Any], folder: Path) -> tuple[BPETokenizer, Any, Any]:
    """Save what was loaded, and load it again; return that, and both as HuggingFace's."""
    (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    first = BPETokenizer.from_pretrained(folder, verbose=False)
    first.save(folder / "saved", verbose=False)
    again = BPETokenizer.from_pretrained(folder / "saved", verbose=False)
    assert again == first
    return again, Tokenizer.from_str(json.dumps(data)), again.to_hf()


def pair_of(tokenizer: Any) -> tuple[list[str], list[int]]:
    made = tokenizer.encode("low", "lower")
    return made.tokens, made.type_ids


@pytest.mark.parametrize("name", PAIRS)
def test_a_template_of_pairs(written: dict[str, Any], name: str, tmp_path: Path) -> None:
    written = json.loads(json.dumps(written))
    written["post_processor"]["pair"] = PAIRS[name]
    ours, before, after = there_and_back(written, tmp_path)
    assert pair_of(after) == pair_of(before)
    assert ours.encode("low", add_special_tokens=True) == before.encode("low").ids
    assert pair_of(BPETokenizer.from_hf(before).to_hf()) == pair_of(before)


@pytest.mark.parametrize("name", ["RobertaProcessing", "BertProcessing", "ByteLevel", "none"])
def test_other_post_processors(written: dict[str, Any], name: str, tmp_path: Path) -> None:
    ids = {token["content"]: token["id"] for token in written["added_tokens"]}
    given = [("</s>", ids["</s>"]), ("<s>", ids["<s>"])]
    made = {
        "RobertaProcessing": lambda: processors.RobertaProcessing(*given, trim_offsets=True),
        "BertProcessing": lambda: processors.BertProcessing(*given),
        "ByteLevel": lambda: processors.ByteLevel(trim_offsets=True),
    }
    step = json.loads(made[name]().__getstate__()) if name in made else None
    written = {**written, "post_processor": step}
    ours, before, after = there_and_back(written, tmp_path)
    assert pair_of(after) == pair_of(before)
    assert after.encode("low lower").offsets == before.encode("low lower").offsets
    assert ours.encode("low", add_special_tokens=True) == before.encode("low").ids


def test_type_ids_of_one_text(written: dict[str, Any], tmp_path: Path) -> None:
    written = json.loads(json.dumps(written))
    written["post_processor"]["single"] = [BOS, sequence("A", 1), special("</s>", 2)]
    _, before, after = there_and_back(written, tmp_path)
    assert after.encode("low").type_ids == before.encode("low").type_ids == [0, 1, 2]


def test_it_follows_its_tokens(written: dict[str, Any], tmp_path: Path) -> None:
    """What changes the ids changes those in the template of pairs."""
    written = json.loads(json.dumps(written))
    written["post_processor"]["pair"] = PAIRS["one token between"]
    ours, before, _ = there_and_back(written, tmp_path)
    smaller = ours.with_vocab_size(262)
    assert smaller.special_tokens != ours.special_tokens
    tokens = ["<s>", *smaller.tokenize("low"), "<sep>", *smaller.tokenize("lower"), "</s>"]
    assert pair_of(smaller.to_hf()) == (tokens, pair_of(smaller.to_hf())[1])
    made = smaller.to_hf().encode("low", "lower").ids
    assert made == smaller.encode("".join(tokens), allowed_special="all")
    ours.add_special_tokens(["<more>"])
    ours.train(TEXT, 268, verbose=False)
    assert pair_of(ours.to_hf())[0][-1] == "</s>"
    assert pair_of(ours.to_hf())[0].count("<sep>") == 1


def test_what_no_longer_fits_is_not_saved(written: dict[str, Any], tmp_path: Path) -> None:
    written = json.loads(json.dumps(written))
    written["post_processor"]["pair"] = PAIRS["one token between"]
    ours, *_ = there_and_back(written, tmp_path)
    ours.eos_token = "</s>"
    ours.train(TEXT, 268, surround="eos", verbose=False)
    low, lower = ours.tokenize("low"), ours.tokenize("lower")
    assert pair_of(ours.to_hf())[0] == [*low, "</s>", *lower, "</s>"]


def test_transformers_joins_pairs_likewise(written: dict[str, Any], tmp_path: Path) -> None:
    need("transformers")
    from bpe_tokenizer_tools.dropin import to_transformers

    written = json.loads(json.dumps(written))
    written["post_processor"]["pair"] = PAIRS["RoBERTa's"]
    ours, before, _ = there_and_back(written, tmp_path)
    made = to_transformers(ours)("low", "lower", return_token_type_ids=True)
    assert made["input_ids"] == before.encode("low", "lower").ids
    assert made["token_type_ids"] == before.encode("low", "lower").type_ids


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        ([BOS, {"Other": {}}, B], r"pair\[1\]"),
        ([A, special("<no>"), B], r"pair\[1\].*'<no>' is not in special_tokens"),
        ([A, sequence("C")], r"pair\[1\].*expected 'A' or 'B', got 'C'"),
        ([A, {"Sequence": {"id": "B"}}], r"pair\[1\].Sequence.type_id: is missing"),
        ("A B", r"pair: expected list"),
    ],
)
def test_a_damaged_template(
    written: dict[str, Any], pair: Any, problem: str, tmp_path: Path
) -> None:
    written = {**written, "post_processor": {**written["post_processor"], "pair": pair}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(written), encoding="utf-8")
    with pytest.raises(FileFormatError, match=problem):
        BPETokenizer.from_file(tmp_path)


def test_alone_it_loads(written: dict[str, Any], without_tools: None, tmp_path: Path) -> None:
    written = json.loads(json.dumps(written))
    written["post_processor"]["pair"] = PAIRS["RoBERTa's"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(written), encoding="utf-8")
    ids = BPETokenizer.from_file(tmp_path).encode("low", add_special_tokens=True)
    assert ids == Tokenizer.from_str(json.dumps(written)).encode("low").ids
    assert "post_processor" not in bpe_tokenizer.BPETokenizer.from_file(tmp_path)._settings
