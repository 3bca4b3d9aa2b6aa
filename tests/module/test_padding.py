"""Padding, truncation and `max_length` as in transformers; and padding without a pad token."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import pickle
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import BPETokenizer

TEXTS = ["the cat sat on the mat", "the", "", "low lower"]
SPECIAL = ["<s>", "</s>", "<pad>"]


def trained(special: list[str], **options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer("gpt2", **options)
    text = "the cat sat on the mat low lower " * 30
    return tokenizer.train(text, 290, special_tokens=special, verbose=False, num_workers=1)


# -- As in transformers ---------------------------------------------------------

PADDING = (False, True, "longest", "max_length", "do_not_pad")
TRUNCATION = (None, False, True, "longest_first", "only_first", "do_not_truncate")
MAX_LENGTH = (None, 2, 3, 8, 40)


@pytest.fixture(scope="module")
def twins(engine: str) -> tuple[BPETokenizer, Any]:
    transformers = need("transformers")
    ours = trained(SPECIAL, surround="bos+eos")
    roles = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=ours.to_hf(), **roles)
    return ours, theirs


def outcome(call: Any, options: dict[str, Any]) -> Any:
    """Return ids and masks as lists, or "refused"."""
    try:
        batch = call(TEXTS, **options)
    except ValueError:
        return "refused"
    fields = batch["input_ids"], batch["attention_mask"]
    return [each if isinstance(each, list) else each.tolist() for each in fields]


@pytest.mark.filterwarnings("ignore:.*max_length", "ignore:truncation does nothing")
@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize("tensors", [None, "np", "pt"])
@pytest.mark.parametrize("special", [False, True])
def test_all_options_together_give_what_transformers_gives(
    twins: tuple[BPETokenizer, Any], special: bool, tensors: str | None, limit: int | None
) -> None:
    if tensors:
        need({"np": "numpy", "pt": "torch"}[tensors])
    ours, theirs = (copy.copy(each) for each in twins)
    if limit:
        ours.model_max_length = theirs.model_max_length = limit
    grid = itertools.product(PADDING, TRUNCATION, MAX_LENGTH, (None, 4), ("left", "right", None))
    n_refused = n_padded = 0
    for padding, truncation, max_length, multiple, side in grid:
        if tensors and (padding in (False, "do_not_pad") or padding == "max_length"):
            if padding != "max_length" or truncation is not True or max_length is None:
                continue  # rows of different lengths are no tensor
        options = {
            **{"padding": padding, "truncation": truncation, "max_length": max_length},
            **{"pad_to_multiple_of": multiple, "padding_side": side, "return_tensors": tensors},
            "add_special_tokens": special,
        }
        expected = outcome(theirs, options)
        assert outcome(ours.encode_batch, options) == expected, options
        n_refused += expected == "refused"
        n_padded += expected != "refused" and any(0 in mask for mask in expected[1])
    assert n_padded > 50 and n_refused > 10  # lengths that are no multiple


@pytest.mark.parametrize("truncation", [True, "longest_first", "only_first", "only_second"])
@pytest.mark.parametrize("padding", [True, "max_length"])
def test_pairs_are_padded_and_cut_as_there(
    twins: tuple[BPETokenizer, Any], padding: Any, truncation: Any
) -> None:
    ours, theirs = twins
    pairs = ["the cat sat on the mat", "low lower low cat"], ["the mat low cat", "the cat sat low"]
    assert min(len(ours.encode(text)) for text in sum(pairs, [])) >= 4
    for max_length, side in itertools.product((11, 30), ("left", "right")):
        options = {"padding": padding, "truncation": truncation, "max_length": max_length}
        options |= {"add_special_tokens": True, "padding_side": side}
        found, expected = ours(*pairs, **options), theirs(*pairs, **options)
        assert found["input_ids"] == expected["input_ids"]
        assert found["attention_mask"] == expected["attention_mask"]


def test_a_limit_without_room_for_special_tokens_is_refused(twins: Any) -> None:
    """The other library doesn't cut then: rows are longer than `max_length`."""
    ours, theirs = twins
    options: dict[str, Any] = {"truncation": True, "max_length": 1, "add_special_tokens": True}
    with pytest.raises(ValueError, match="max_length=1 leaves no room for 2 special tokens"):
        ours.encode_batch(TEXTS, **options)
    assert max(map(len, theirs(TEXTS, **options)["input_ids"])) > 1


def test_options_that_do_nothing_are_told() -> None:
    tokenizer = trained(SPECIAL)
    unpadded = tokenizer.encode_batch(TEXTS).input_ids
    for options, message in (
        ({"truncation": True}, "truncation does nothing here: pass max_length"),
        ({"truncation": "longest_first"}, "truncation does nothing here: pass max_length"),
        ({"padding": "max_length"}, "padding='max_length' does nothing here: pass max_length"),
    ):
        with pytest.warns(UserWarning, match=message) as told:
            assert tokenizer.encode_batch(TEXTS, **options).input_ids == unpadded  # type: ignore[arg-type]
        assert [each.filename for each in told] == [__file__]
    with pytest.warns(UserWarning, match="padding=True pads to the longest text, whatever max_"):
        rows = tokenizer.encode_batch(TEXTS, padding=True, max_length=3).input_ids
    assert rows == tokenizer.encode_batch(TEXTS, padding=True).input_ids


@pytest.mark.parametrize("wrong", ["only_second", "longest", 5, "True"])
def test_an_unknown_way_to_truncate_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"truncation must be one of \(True, False, 'longest_f"):
        BPETokenizer().encode_batch(["ab"], truncation=wrong, max_length=1)


# -- Without a pad token --------------------------------------------------------

# Special tokens, and the id that pads if none of them is for padding.
UNPADDED: dict[str, list[str]] = {"eos": ["<s>", "</s>"], "zero": []}
WAYS: list[dict[str, Any]] = [
    {"padding": True},
    {"padding": "max_length", "max_length": 30},
    {"padding": True, "pad_to_multiple_of": 8},
    {"padding": "max_length", "max_length": 6, "truncation": True},
]


def without_pad_token(name: str) -> tuple[BPETokenizer, int]:
    tokenizer = trained(UNPADDED[name])
    assert tokenizer.pad_token is None
    return tokenizer, tokenizer.eos_token_id or 0


@pytest.mark.parametrize("tensors", [None, "np", "pt"])
@pytest.mark.parametrize("name", UNPADDED)
def test_eos_or_id_0_pads_and_is_masked(name: str, tensors: str | None) -> None:
    if tensors:
        need({"np": "numpy", "pt": "torch"}[tensors])
    tokenizer, pad_id = without_pad_token(name)
    remedy = "set tokenizer.pad_token, or add one with add_special_tokens"
    with pytest.warns(UserWarning, match=f"padding with id {pad_id}, masked out; {remedy}"):
        batch = tokenizer.encode_batch(TEXTS, padding=True, return_tensors=tensors)
    length = max(len(tokenizer.encode(text)) for text in TEXTS)
    for text, ids, mask in zip(TEXTS, batch["input_ids"], batch["attention_mask"]):
        own = tokenizer.encode(text)
        n = length - len(own)
        assert [int(id_) for id_ in ids] == own + [pad_id] * n
        assert [int(each) for each in mask] == [1] * len(own) + [0] * n


def test_it_warns_once_for_a_tokenizer() -> None:
    for name in UNPADDED:
        tokenizer, _ = without_pad_token(name)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(3):
                tokenizer.encode_batch(TEXTS, padding=True)
                tokenizer.decode_batch([[1, 0, 0]])
        assert len(told) == 1


def test_an_unpadded_batch_and_decoding_say_nothing() -> None:
    numpy = need("numpy")
    tokenizer, _ = without_pad_token("zero")
    tokenizer.encode_batch(TEXTS)
    tokenizer.encode_batch(["ab", "cd"], padding=True)  # of one length
    tokenizer.decode_batch([[97, 0, 0]])
    tokenizer.decode_batch(numpy.array([[97, 0, 0]]))


OWN_ENDS = ["", "a", "a</s>", "</s>", "</s></s>b", "<s>", "\0", "a\0\0", "\0b", "the cat sat"]


@pytest.mark.filterwarnings("ignore:this tokenizer has no pad token")
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", UNPADDED)
@settings(max_examples=examples(60))
@given(texts=st.lists(st.sampled_from(OWN_ENDS), min_size=1, max_size=5), special=st.booleans())
def test_only_the_padding_is_stripped(
    name: str, side: str, texts: list[str], special: bool
) -> None:
    """Whatever a text begins or ends with: its own eos, or its own character of id 0."""
    tokenizer = MADE[name]
    how: dict[str, Any] = {"add_special_tokens": special, "allowed_special": "all"}
    for way in WAYS:
        batch = tokenizer.encode_batch(texts, **how, **way, padding_side=side)
        masks = batch["attention_mask"]
        own = [[*itertools.compress(*row)] for row in zip(batch["input_ids"], masks)]
        expected = [tokenizer.decode(ids) for ids in own]
        rows: list[Any] = [batch, batch["input_ids"], [each.input_ids for each in batch]]
        rows += [copy.deepcopy(batch.input_ids), pickle.loads(pickle.dumps(batch)).input_ids]
        for each in rows:
            assert tokenizer.decode_batch(each) == expected
        skipped = tokenizer.decode_batch(batch.input_ids, skip_special_tokens=True)
        assert skipped == [tokenizer.decode(ids, skip_special_tokens=True) for ids in own]
        whole = tokenizer.decode_batch(batch.input_ids, skip_padding=False)
        assert whole == [tokenizer.decode([*ids]) for ids in batch.input_ids]


MADE = {name: without_pad_token(name)[0] for name in UNPADDED}


@pytest.mark.filterwarnings("ignore:this tokenizer has no pad token")
@pytest.mark.parametrize("tensors", ["np", "pt"])
@pytest.mark.parametrize("name", UNPADDED)
def test_in_arrays_all_pads_at_the_padded_end_are_stripped(name: str, tensors: str) -> None:
    need({"np": "numpy", "pt": "torch"}[tensors])
    tokenizer, _ = without_pad_token(name)
    texts = ["the cat", "a", ""]
    for side, way in itertools.product(("right", "left"), WAYS[:3]):
        tokenizer.padding_side = side
        batch = tokenizer.encode_batch(texts, **way, return_tensors=tensors)
        assert tokenizer.decode_batch(batch) == texts
        assert tokenizer.decode_batch(batch["input_ids"]) == texts
        rows = [each.input_ids for each in batch.encodings]
        assert tokenizer.decode_batch(rows) == texts
    # A text's own eos at the end looks the same; the mask of the batch tells them apart.
    if name == "eos":
        tokenizer.padding_side = "right"
        batch = tokenizer.encode_batch(texts, True, padding=True, return_tensors=tensors)
        assert tokenizer.decode_batch(batch)[1] == "<s>a</s>"
        assert tokenizer.decode_batch(batch["input_ids"])[1] == "<s>a"


def test_lists_that_nobody_padded_keep_all_their_ids() -> None:
    for name, end in (("eos", "</s>"), ("zero", "\0")):
        tokenizer, pad_id = without_pad_token(name)
        rows = [[97, pad_id], [98, pad_id, pad_id], [99, 97, 98]]
        assert tokenizer.decode_batch(rows) == [f"a{end}", f"b{end}{end}", "cab"]


@pytest.mark.filterwarnings("ignore:this tokenizer has no pad token")
def test_padded_rows_are_lists_to_everybody() -> None:
    tokenizer, pad_id = without_pad_token("zero")
    batch = tokenizer.encode_batch(["abc", "a"], padding=True)
    row = batch[1].input_ids
    assert row == [97, 0, 0] and isinstance(row, list) and repr(row) == "[97, 0, 0]"
    assert json.loads(json.dumps(batch.data)) == batch.data
    assert dataclasses.asdict(batch[1])["input_ids"] == row
    assert tokenizer.decode(row) == "a\0\0" and tokenizer.convert_ids_to_tokens(row)[0] == "a"
    row.append(98)  # then it isn't known what is padding
    assert tokenizer.decode_batch([row]) == ["a\0\0b"]
    del row[:]
    assert tokenizer.decode_batch([row]) == [""]


@pytest.mark.filterwarnings("ignore:this tokenizer has no pad token")
@pytest.mark.parametrize("tensors", [None, "np", "pt"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", UNPADDED)
def test_padding_of_conversations_is_stripped_too(name: str, side: str, tensors: Any) -> None:
    if tensors:
        need({"np": "numpy", "pt": "torch"}[tensors])
    tokenizer = without_pad_token(name)[0]
    talks = [[{"role": "user", "content": text}] for text in ("the cat", "", "low lower\0")]
    options: dict[str, Any] = {"add_generation_prompt": False, "preamble": False}
    texts = tokenizer.apply_chat_template(talks, "alpaca", tokenize=False, **options)
    options |= {"padding": True, "padding_side": side, "return_tensors": tensors}
    batch = tokenizer.apply_chat_template(talks, "alpaca", return_dict=True, **options)
    assert {len(row) for row in batch["input_ids"]} == {max(map(len, batch["input_ids"]))}
    assert tokenizer.decode_batch(batch) == texts
    if not tensors:
        rows = tokenizer.apply_chat_template(talks, "alpaca", **options)
        assert tokenizer.decode_batch(rows) == texts


def test_the_rate_of_hits_has_one_decimal() -> None:
    tokenizer = BPETokenizer()
    tokenizer.encode("a b b")
    tokenizer.encode("a b c")
    for _ in range(3):
        stats = tokenizer.get_cache_stats()
        assert stats["hit_rate_pct"] == round(stats["hit_rate_pct"], 1)
        share = stats["hits"] / (stats["hits"] + stats["misses"])
        assert abs(stats["hit_rate_pct"] - 100 * share) <= 0.05
        tokenizer.encode("a b d e")
