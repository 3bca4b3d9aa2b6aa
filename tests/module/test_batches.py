"""Batches in the hands of torch, accelerate, transformers and mypy; calls of a tokenizer."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE, ROOT
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BatchEncoding, BPETokenizer, EncodingResult, TensorBatch

TEXTS = ["low lower", "newest é", "", "low <s> 世界 lowest"]
PADDED = {"padding": True, "truncation": True, "max_length": 6}


def trained() -> BPETokenizer:
    return BPETokenizer("cl100k").train(
        "low lower lowest newer newest " * 20,
        290,
        special_tokens=["<s>", "</s>", "<pad>"],
        verbose=False,
        num_workers=1,
    )


@pytest.fixture(scope="module")
def tokenizer(engine: str) -> BPETokenizer:
    return trained()


@pytest.fixture(scope="module")
def twin(tokenizer: BPETokenizer, tmp_path_factory: Any) -> Any:
    """The same tokenizer in transformers, loaded from what this library saves."""
    folder = tmp_path_factory.mktemp("twin")
    tokenizer.save(folder, verbose=False)
    return need("transformers").AutoTokenizer.from_pretrained(str(folder))


def plain(batch: Any) -> dict[str, Any]:
    """Return the fields of a batch, its tensors as lists."""
    return {
        key: value.tolist() if hasattr(value, "tolist") else value
        for key, value in dict(batch).items()
    }


# -- Without tensors: a sequence ----------------------------------------------


def test_lists_come_as_a_sequence(tokenizer: BPETokenizer) -> None:
    batch = tokenizer.encode_batch(TEXTS, **PADDED)
    assert type(batch) is BatchEncoding
    assert isinstance(batch, Sequence) and not isinstance(batch, Mapping)
    assert len(batch) == len(TEXTS)
    assert all(type(row) is EncodingResult for row in batch)
    for i, row in enumerate(batch):
        assert row is batch[i] is batch.encodings[i]
        assert row.input_ids == batch["input_ids"][i]
        assert row in batch and batch.index(row) == i
    assert [row.input_ids for row in batch[1:3]] == batch.input_ids[1:3]
    assert list(reversed(batch)) == batch[::-1]
    assert batch.tokens == [row.tokens for row in batch] == batch["tokens"]
    assert batch.offsets == [row.offsets for row in batch] == batch["offsets"]


def test_a_sequence_unpacks_as_the_fields_of_a_model(tokenizer: BPETokenizer) -> None:
    def model(input_ids: Any, attention_mask: Any) -> Any:
        return input_ids, attention_mask

    batch = tokenizer.encode_batch(TEXTS, **PADDED)
    fields = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    assert {**batch} == dict(batch) == batch.data == dict(batch.items()) == fields
    assert batch.keys() == list(fields) and batch.values() == list(fields.values())
    assert model(**batch) == (batch["input_ids"], batch["attention_mask"])
    assert "input_ids" in batch and "labels" not in batch
    with pytest.raises(KeyError, match="labels"):
        batch["labels"]
    with pytest.raises(IndexError):
        batch[len(TEXTS)]


def test_a_sequence_pickles_and_old_pickles_load(tokenizer: BPETokenizer) -> None:
    batch = tokenizer.encode_batch(TEXTS, **PADDED)
    for again in (pickle.loads(pickle.dumps(batch)), copy.copy(batch), copy.deepcopy(batch)):
        assert again.encodings == batch.encodings and again.data == batch.data
    old = BatchEncoding.__new__(BatchEncoding)  # as version 0.7 wrote it
    state = {"encodings": batch.encodings, "return_tensors": None, "_data": dict(batch)}
    old.__setstate__(state)
    assert old["input_ids"] == batch["input_ids"] and old[0] == batch[0] and len(old) == len(batch)
    assert {**old} == {**batch}


def test_one_result_is_a_feature(tokenizer: BPETokenizer) -> None:
    result = tokenizer.encode_batch(TEXTS)[0]
    fields = {"input_ids": result.input_ids, "attention_mask": result.attention_mask}
    assert {**result} == dict(result) == fields
    assert result["input_ids"] == result.input_ids and result["tokens"] == result.tokens
    assert not isinstance(result, Mapping)  # its length is the number of tokens


def test_a_data_collator_pads_results(tokenizer: BPETokenizer, twin: Any) -> None:
    need("torch")
    collate = need("transformers").DataCollatorWithPadding(twin)
    batch = tokenizer.encode_batch(TEXTS)
    expected = plain(tokenizer.encode_batch(TEXTS, padding=True))
    assert plain(collate([dict(row) for row in batch])) == expected
    assert plain(collate([{**row, "label": 1} for row in batch])) == {
        **expected,
        "labels": [1] * len(TEXTS),
    }
    assert plain(collate(batch)) == expected  # all of it at once
    assert plain(collate(batch.data)) == expected


def test_datasets_maps_the_data_of_a_sequence(tokenizer: BPETokenizer) -> None:
    datasets = need("datasets")
    datasets.disable_progress_bars()
    rows = datasets.Dataset.from_dict({"text": TEXTS})
    mapped = rows.map(lambda batch: tokenizer(batch["text"]).data, batched=True)
    assert mapped["input_ids"][:] == tokenizer(TEXTS)["input_ids"]
    assert mapped.column_names == ["text", "input_ids", "attention_mask"]
    mapped = rows.map(
        lambda batch: tokenizer(batch["text"], return_tensors="np", padding=True), batched=True
    )
    assert mapped["input_ids"][:] == tokenizer(TEXTS, padding=True)["input_ids"]


# -- With tensors: a mapping --------------------------------------------------


@pytest.fixture(params=["np", "pt"])
def kind(request: pytest.FixtureRequest) -> str:
    need({"np": "numpy", "pt": "torch"}[request.param])
    return str(request.param)


def test_tensors_come_as_a_mapping(tokenizer: BPETokenizer, twin: Any, kind: str) -> None:
    batch = tokenizer.encode_batch(TEXTS, return_tensors=kind, **PADDED)
    theirs = twin(TEXTS, add_special_tokens=False, return_tensors=kind, **PADDED)
    assert type(batch) is TensorBatch and isinstance(batch, Mapping)
    assert not isinstance(batch, Sequence)
    assert list(batch) == list(batch.keys()) == ["input_ids", "attention_mask"]
    assert len(batch) == 2
    assert sorted(batch) == sorted(theirs.keys())
    for key, value in batch.items():
        assert value is batch[key] is batch.data[key] is batch.get(key)
        assert type(value) is type(theirs[key]) and value.dtype == theirs[key].dtype
    assert batch.get("labels") is None and batch.get("labels", 3) == 3
    assert dict(batch) == batch.data and {**batch} == batch.data
    assert batch.input_ids is batch["input_ids"]
    assert batch.attention_mask is batch["attention_mask"]
    mask = batch.pop("attention_mask")
    assert list(batch) == ["input_ids"]
    batch["attention_mask"], batch["labels"] = mask, mask
    assert list(batch) == ["input_ids", "attention_mask", "labels"]


def test_results_by_text_are_in_encodings(tokenizer: BPETokenizer, kind: str) -> None:
    lists = tokenizer.encode_batch(TEXTS, **PADDED)
    batch = tokenizer.encode_batch(TEXTS, return_tensors=kind, **PADDED)
    assert batch.encodings == lists.encodings
    assert batch.tokens == lists.tokens and batch.offsets == lists.offsets
    for key in (0, "tokens"):
        with pytest.raises(KeyError, match="encodings"):
            batch[key]
    batch["labels"] = batch["input_ids"]
    assert batch.encodings == lists.encodings
    batch["input_ids"] = batch["input_ids"][:1]
    assert batch.encodings == []  # those were of other ids


def test_mappings_compare(tokenizer: BPETokenizer, kind: str) -> None:
    def encoded(*texts: str) -> Any:
        return tokenizer.encode_batch(texts, padding=True, return_tensors=kind)

    batch = encoded("low", "lower")
    assert batch == encoded("low", "lower") and not batch != encoded("low", "lower")
    assert batch == dict(batch) and dict(batch) == batch
    assert batch != encoded("low", "newer") and batch != encoded("low") and batch != 5
    assert batch != {"input_ids": batch["input_ids"]}
    with pytest.raises(TypeError, match="unhashable"):
        hash(batch)


def test_mappings_pickle_and_copy(tokenizer: BPETokenizer, kind: str) -> None:
    batch = tokenizer.encode_batch(TEXTS, return_tensors=kind, **PADDED)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(batch, protocol))
        assert type(again) is TensorBatch and again == batch
        assert again.encodings == batch.encodings
        assert type(again["input_ids"]) is type(batch["input_ids"])
    for again in (copy.copy(batch), copy.deepcopy(batch), batch.copy()):
        assert type(again) is TensorBatch and again == batch
        assert again.encodings == batch.encodings
        again["labels"] = 1
    assert "labels" not in batch


def test_no_texts_give_empty_tensors(tokenizer: BPETokenizer, kind: str) -> None:
    batch = tokenizer.encode_batch([], return_tensors=kind)
    assert tuple(batch["input_ids"].shape) == (0, 0) and batch.encodings == []


def test_torch_collates_and_loads(tokenizer: BPETokenizer) -> None:
    torch = need("torch")
    batches = [
        tokenizer.encode_batch(pair, return_tensors="pt", padding="max_length", max_length=5)
        for pair in (["low", "lower"], ["newest", ""])
    ]
    expected = torch.utils.data.default_collate([dict(batch) for batch in batches])
    collated = torch.utils.data.default_collate(batches)
    assert type(collated) is TensorBatch and collated == expected
    assert tuple(collated["input_ids"].shape) == (2, 2, 5)
    assert collated.encodings == []  # not those of the first alone
    assert [len(batch.encodings) for batch in batches] == [2, 2]
    loader = torch.utils.data.DataLoader(
        TEXTS,
        batch_size=2,
        collate_fn=lambda texts: tokenizer(texts, return_tensors="pt", **PADDED),
    )
    for texts, batch in zip((TEXTS[:2], TEXTS[2:]), loader):
        assert type(batch) is TensorBatch
        assert batch == tokenizer(texts, return_tensors="pt", **PADDED)


def test_to_moves_tensors(tokenizer: BPETokenizer) -> None:
    torch = need("torch")
    batch = tokenizer.encode_batch(TEXTS, return_tensors="pt", **PADDED)
    rows, ids = batch.encodings, batch["input_ids"]
    batch["names"] = "not a tensor"
    moved = batch.to(torch.device("meta"), non_blocking=True)
    assert moved is batch  # as in transformers, so that a bare batch.to(device) counts
    assert {batch[key].device.type for key in ("input_ids", "attention_mask")} == {"meta"}
    assert batch["names"] == "not a tensor"
    assert batch.encodings == rows  # the ids are the same
    assert ids.device.type == "cpu"
    arrays = tokenizer.encode_batch(TEXTS, return_tensors="np", **PADDED)
    assert arrays.to("meta") is arrays and type(arrays["input_ids"]).__module__ == "numpy"


def test_accelerate_sends_and_joins(tokenizer: BPETokenizer) -> None:
    operations = need("accelerate.utils.operations")
    torch = need("torch")

    def encoded(*texts: str) -> Any:
        options: Any = {"padding": "max_length", "truncation": True, "max_length": 5}
        return tokenizer.encode_batch(texts, return_tensors="pt", **options)

    sent = operations.send_to_device(encoded("low", "lower"), "meta", non_blocking=True)
    assert type(sent) is TensorBatch and sent["input_ids"].device.type == "meta"
    [nested] = operations.send_to_device([{"x": encoded("low")}], "meta")
    assert nested["x"]["attention_mask"].device.type == "meta"
    both = operations.concatenate([encoded("low"), encoded("newest")])
    assert type(both) is TensorBatch and both == encoded("low", "newest")
    doubled = operations.recursively_apply(lambda tensor: tensor * 2, encoded("low"))
    assert type(doubled) is TensorBatch
    assert doubled["input_ids"].tolist() == (encoded("low")["input_ids"] * 2).tolist()
    assert operations.find_batch_size(encoded("low", "", "newer")) == 3
    lists = tokenizer.encode_batch(TEXTS)
    assert operations.send_to_device(lists, "meta") is lists  # there is nothing to send
    loader = torch.utils.data.DataLoader(
        TEXTS, batch_size=2, collate_fn=lambda all_: encoded(*all_)
    )
    prepared = need("accelerate").Accelerator(cpu=True).prepare(loader)
    assert [batch for batch in prepared] == [encoded(*TEXTS[:2]), encoded(*TEXTS[2:])]


def test_a_data_collator_takes_a_mapping(tokenizer: BPETokenizer, twin: Any, kind: str) -> None:
    need("torch")
    collate = need("transformers").DataCollatorWithPadding(twin, pad_to_multiple_of=8)
    batch = tokenizer(TEXTS, allowed_special="all", padding=True, return_tensors=kind)
    theirs = twin(TEXTS, add_special_tokens=False, padding=True, return_tensors=kind)
    padded = collate(batch)
    assert plain(padded) == plain(collate(theirs))
    assert padded["input_ids"].shape[1] % 8 == 0
    features = [
        TensorBatch({key: value[i] for key, value in theirs.items()}) for i in range(len(TEXTS))
    ]
    assert plain(collate(features)) == plain(padded)


def test_a_model_takes_it(tokenizer: BPETokenizer, twin: Any) -> None:
    torch, transformers = need("torch"), need("transformers")
    config = transformers.GPT2Config(
        vocab_size=tokenizer.max_id + 1, n_positions=32, n_embd=8, n_layer=1, n_head=1
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    batch = tokenizer(["low", "newest low"], padding=True, return_tensors="pt")
    theirs = twin(
        ["low", "newest low"], padding=True, return_tensors="pt", add_special_tokens=False
    )
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, model(**theirs).logits)


# -- Calls --------------------------------------------------------------------

OPTIONS: dict[str, Any] = {
    "padding": "longest",
    "truncation": True,
    "max_length": 4,
    "return_tensors": "np",
    "padding_side": "left",
    "truncation_side": "left",
    "pad_to_multiple_of": 8,
    "return_offsets": False,
}
NAMED = dict(inspect.signature(BPETokenizer.encode_batch).parameters)
OF_ENCODE = {"add_special_tokens", "allowed_special", "disallowed_special"}


def test_every_batch_option_is_tried_and_typed() -> None:
    names = NAMED.keys() - {"self", "texts"}
    assert names - OF_ENCODE == OPTIONS.keys()
    assert bpe_tokenizer._Options.__annotations__.keys() == names - {"return_tensors"}
    assert bpe_tokenizer._TextOptions.__annotations__.keys() == OF_ENCODE
    parameters = inspect.signature(BPETokenizer.encode).parameters
    # Of `encode` alone: a batch works its offsets out later.
    own = {"dropout", "seed", "num_threads"}
    assert parameters.keys() - {"self", "text"} - own == OF_ENCODE


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("value", ["given", "default"])
def test_a_str_takes_every_batch_option(tokenizer: BPETokenizer, option: str, value: str) -> None:
    """With one of them, whatever its value, it gives what a list of one text gives."""
    if option == "return_tensors":
        need("numpy")
    options = {option: OPTIONS[option] if value == "given" else NAMED[option].default}
    if options.get("truncation"):
        options["max_length"] = 3
    for more in ({}, {"add_special_tokens": True, "allowed_special": "all"}):
        one = tokenizer("low <s> lowest", **options, **more)
        batch = tokenizer.encode_batch(["low <s> lowest"], **options, **more)
        assert type(one) is type(batch)
        assert plain(one) == plain(batch) and one.encodings == batch.encodings


def test_the_call_as_notebooks_write_it(tokenizer: BPETokenizer, twin: Any) -> None:
    need("torch")
    options: dict[str, Any] = {"padding": True, "truncation": True, "max_length": 64}
    batch = tokenizer("low lower", **options)
    assert batch["input_ids"] == [tokenizer.encode("low lower")] and len(batch) == 1
    tensors = tokenizer("low lower", return_tensors="pt", **options)
    theirs = twin("low lower", return_tensors="pt", add_special_tokens=False, **options)
    assert plain(tensors) == plain(theirs)


def test_a_str_without_batch_options_gives_its_ids(tokenizer: BPETokenizer) -> None:
    text = "low <s> lowest"
    for options in (
        {},
        {"add_special_tokens": True},
        {"allowed_special": {"<s>"}},
        {"add_special_tokens": True, "allowed_special": "all", "disallowed_special": {"</s>"}},
    ):
        ids = tokenizer(text, **options)
        assert type(ids) is list and ids == tokenizer.encode(text, **options)


@pytest.mark.parametrize("options", [{}, {"return_offsets": False}])
def test_a_batch_can_refuse_special_tokens(tokenizer: BPETokenizer, options: Any) -> None:
    with pytest.raises(ValueError, match="'<s>', which disallowed_special names"):
        tokenizer(["low", "a <s>"], disallowed_special="all", **options)
    with pytest.raises(ValueError, match="'<s>', which disallowed_special names"):
        tokenizer("a <s>", padding=True, disallowed_special={"<s>"}, **options)
    batch = tokenizer(["<s>"], disallowed_special="all", allowed_special={"<s>"}, **options)
    assert batch["input_ids"] == [[tokenizer.bos_token_id]]


@pytest.mark.parametrize("text", ["question", ["question"], iter(["question"])], ids=type)
@pytest.mark.parametrize("second", [True, None, 5])
def test_options_are_named(tokenizer: BPETokenizer, text: Any, second: Any) -> None:
    message = rf"text_pair must be a str or a list of them, got \({second},\); name options"
    with pytest.raises(TypeError, match=message):
        tokenizer(text, second)
    with pytest.raises(TypeError, match=message):
        tokenizer(text, second, padding=True)
    with pytest.raises(TypeError, match="unknown options: paddding; expected .*, padding,"):
        tokenizer(text, paddding=True)
    with pytest.raises(
        TypeError, match="unknown options: return_offsets; expected .*, return_offsets_m"
    ):
        tokenizer(text, "answer", return_offsets=True)


HINTS = """
from typing import Any
from bpe_tokenizer import BatchEncoding, BPETokenizer, EncodingResult, TensorBatch

tokenizer = BPETokenizer("gpt2")
ids: list[int] = tokenizer("text")
more: list[int] = tokenizer("text", add_special_tokens=True, allowed_special={"<s>"})
one: BatchEncoding = tokenizer("text", padding=True, truncation=True, max_length=64)
same: BatchEncoding = tokenizer("text", return_tensors=None)
tensors: TensorBatch = tokenizer("text", return_tensors="pt", padding=True)
batch: BatchEncoding = tokenizer(["text"])
padded: BatchEncoding = tokenizer(["text"], add_special_tokens=True, padding_side="left")
arrays: TensorBatch = tokenizer(["text"], return_tensors="np")
pairs: dict[str, Any] = tokenizer(["question"], text_pair=["answer"], padding=True)
rows: BatchEncoding = tokenizer.encode_batch(["text"], True, "none", True)
moved: TensorBatch = tokenizer.encode_batch(["text"], True, return_tensors="pt").to("cpu")
first: EncodingResult = batch.encodings[0]
tokens: list[list[str]] = arrays.tokens
tokenizer.padding_side = "left"
tokenizer.pad_token_id = 5
for row in batch:
    length: int = len(row.input_ids)
def model(**fields: Any) -> None: ...
model(**batch)
model(**arrays)
"""
WRONG_HINTS = {
    'ids: list[int] = tokenizer("text", padding=True)': "assignment",
    'ids: list[int] = tokenizer(["text"])': "assignment",
    'batch: BatchEncoding = tokenizer("text", return_tensors="pt")': "assignment",
    'tokenizer("text", paddding=True)': "call-overload",
    'tokenizer("text", max_length="64")': "call-overload",
    'tokenizer.encode_batch(["text"], padding=3)': "call-overload",
    "tokenizer.paddding_side = 3": "attr-defined",
}


@EITHER_ENGINE
def test_type_checkers_know_what_a_call_gives(tmp_path: Path) -> None:
    need("mypy")
    wrong = HINTS + "".join(f"def f{i}() -> None: {line}\n" for i, line in enumerate(WRONG_HINTS))
    (tmp_path / "right.py").write_text(HINTS, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(wrong, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", ".c"]
    command += ["--follow-imports", "silent", "right.py", "wrong.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    found = re.findall(r"^(\w+)\.py:(\d+): error: .*\[(\S+)\]$", done.stdout, re.MULTILINE)
    first = HINTS.count("\n") + 1
    expected = {("wrong", str(line), code) for line, code in enumerate(WRONG_HINTS.values(), first)}
    assert set(found) == expected, done.stdout + done.stderr


# -- What a call must not lose ----------------------------------------------------


def test_iterators_of_special_tokens_count_for_every_text(tokenizer: BPETokenizer) -> None:
    token = next(iter(tokenizer.special_tokens))
    texts = ["a", f"b{token}", f"c{token}"]
    for return_offsets in (True, False):
        options: dict[str, Any] = {"return_offsets": return_offsets}
        rows = tokenizer.encode_batch(texts, allowed_special=iter([token]), **options)
        assert rows.input_ids == [tokenizer.encode(text, allowed_special="all") for text in texts]
        with pytest.raises(ValueError, match="contains the special token"):
            tokenizer.encode_batch(texts, disallowed_special=iter([token]), **options)


def test_a_mask_that_does_not_fit_is_refused(tokenizer: BPETokenizer) -> None:
    rows = [[97, 98], [99]]
    assert tokenizer.decode_batch({"input_ids": rows, "attention_mask": None}) == ["ab", "c"]
    for mask in ([[1, 1]], [[1], [1]], [[1, 1], [1], [1]]):
        with pytest.raises(ValueError, match="attention_mask and input_ids differ"):
            tokenizer.decode_batch({"input_ids": rows, "attention_mask": mask})
    with pytest.raises(ValueError, match="expected a field 'input_ids', got \\['ids'\\]"):
        tokenizer.decode_batch({"ids": rows})


def test_a_pair_is_refused_where_a_second_text_would_be_a_flag(tokenizer: BPETokenizer) -> None:
    calls: list[Callable[..., Any]] = [tokenizer.encode, tokenizer.encode_with_offsets]
    for call in (*calls, tokenizer.count_tokens):
        with pytest.raises(
            TypeError, match=r"got 'answer'; a pair of texts is tokenizer\(text, te"
        ):
            call("question", "answer")
    with pytest.raises(TypeError, match=r"got \['answer'\]; a pair of texts is"):
        tokenizer.encode_batch(["question"], ["answer"])


def test_a_role_id_is_an_id_of_a_special_token(tokenizer: BPETokenizer) -> None:
    tokenizer = copy.copy(tokenizer)
    for wrong in ("<s>", 258.0, [258], 97, 10**9):
        with pytest.raises(ValueError, match="pad_token_id: .* is not the id of a special token"):
            tokenizer.pad_token_id = wrong  # type: ignore[assignment]
    known = next(iter(tokenizer.special_tokens.values()))
    tokenizer.pad_token_id = known
    assert tokenizer.pad_token_id == known
    tokenizer.pad_token_id = None
    assert tokenizer.pad_token is None


@pytest.mark.parametrize("names", [{}, {"__name__": "bpe_tokenizer_of_mine"}])
def test_the_warning_about_padding_names_the_caller(names: dict[str, str]) -> None:
    calls = (
        "tokenizer(['a', 'ab'], padding=True)",
        "tokenizer.encode_batch(['a', 'ab'], padding=True)",
    )
    talks = "[[{'role': 'user', 'content': 'x' * n}] for n in (1, 9)]"
    for call in (*calls, f"tokenizer.apply_chat_template({talks}, 'alpaca', padding=True)"):
        code = compile(call, "their_own.py", "exec")
        with pytest.warns(UserWarning, match="no pad token") as told:
            exec(code, {**names, "tokenizer": BPETokenizer()})
        assert [each.filename for each in told] == ["their_own.py"]


@pytest.mark.parametrize("options", [{}, {"add_special_tokens": True}, {"padding": True}])
def test_offsets_are_those_of_the_text_whatever_becomes_of_the_ids(
    tokenizer: BPETokenizer, options: dict[str, Any]
) -> None:
    texts = ["low lower", "e\u0301 newest", "", "<s>世界 😀"]
    expected = [[*offsets] for offsets in tokenizer.encode_batch(texts, **options).offsets]
    changed = tokenizer.encode_batch(texts, **options)
    for ids in changed.input_ids:
        ids.reverse()
    assert changed.offsets == expected
    if options == {}:
        results = [*map(tokenizer.encode_with_offsets, texts)]
        for result in results:
            result.input_ids.clear()
        assert [result.offsets for result in results] == expected


def test_a_batch_is_filled_when_it_is_read() -> None:
    tokenizer = BPETokenizer().train("ab abc " * 9, 260, special_tokens=["<pad>"], verbose=False)

    def made() -> BatchEncoding:
        return tokenizer.encode_batch(["abc ab", "ab"], padding=True)

    expected = made()
    assert expected["input_ids"] == [tokenizer.encode("abc ab"), [256, 259, 259]]
    assert expected["attention_mask"][1] == [1, 0, 0]
    for copied in (pickle.loads(pickle.dumps(made())), copy.copy(made()), copy.deepcopy(made())):
        assert copied.data == expected.data
        assert copied.encodings == expected.encodings
    batch = made()
    tokenizer.add_special_tokens(["<new>"])
    assert [item.input_ids for item in batch] == expected.input_ids and len(batch) == 2
    assert all(ids is item.input_ids for ids, item in zip(batch["input_ids"], batch))
    assert dict(batch) == expected.data and not hasattr(made(), "ids")
    with pytest.raises(AttributeError, match="BatchEncoding has no attribute 'ids'"):
        made().ids  # type: ignore[attr-defined]  # noqa: B018


def test_what_is_read_later_is_what_the_tokenizer_said_then() -> None:
    tokenizer = BPETokenizer().train("ab abc " * 9, 260, special_tokens=["<pad>"], verbose=False)
    batch = tokenizer.encode_batch(["abc ab", "", "a<pad>"], padding=True, padding_side="left")
    expected = tokenizer.encode_batch(["abc ab", "", "a<pad>"], padding=True, padding_side="left")
    copies = [(item.attention_mask, item.tokens, item.offsets) for item in expected]
    tokenizer.train("xyz " * 9, 262, verbose=False)
    tokenizer.add_special_tokens(["<new>"])
    assert [(item.attention_mask, item.tokens, item.offsets) for item in batch] == copies
    n = len(batch.input_ids[0])
    assert batch[1].tokens == ["<pad>"] * n and batch[1].attention_mask == [0] * n
    assert batch[1].offsets == [(0, 0)] * n
    assert pickle.loads(pickle.dumps(batch[0])) == batch[0] == copy.copy(batch[0])
    assert dataclasses.asdict(batch[0])["tokens"] == batch[0]["tokens"]
    with pytest.raises(AttributeError, match="EncodingResult has no attribute 'token'"):
        batch[0].token  # noqa: B018
    with pytest.raises(KeyError, match="_source"):
        batch[0]["_source"]


def test_offsets_wait_until_they_are_read() -> None:
    tokenizer = BPETokenizer()  # with NFC
    plain, changed = map(tokenizer.encode_with_offsets, ["é!", "e\u0301!"])
    assert "offsets" not in {**vars(plain), **vars(changed)}
    plain.input_ids.append(33)  # the caller's own list
    assert plain.offsets == [(0, 1), (0, 1), (1, 2)]
    assert changed.input_ids == [0xC3, 0xA9, 33]
    assert changed.offsets == [(0, 1), (0, 1), (2, 3)]
    assert changed.attention_mask == [1, 1, 1]
    assert pickle.loads(pickle.dumps(changed)) == changed


def test_reading_a_field_of_a_batch_computes_no_other() -> None:
    batch = BPETokenizer().encode_batch(["é!", "a"])
    assert batch.offsets == [[(0, 1), (0, 1), (1, 2)], [(0, 1)]]
    assert batch[1].offsets is batch.offsets[1]
    computed = {name for item in batch for name in vars(item)}
    assert not computed & {"attention_mask", "input_ids", "tokens"}
    assert batch["attention_mask"] == [[1, 1, 1], [1]]
    assert all(mask is item.attention_mask for mask, item in zip(batch.attention_mask, batch))
