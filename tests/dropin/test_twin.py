"""What training stacks ask our own object for, by name: as the tokenizer of its files answers."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from oracles import need

transformers = need("transformers")
torch = need("torch")
datasets = need("datasets")

import tiny_models  # noqa: E402  (needs numpy)

from bpe_tokenizer import BPETokenizer  # noqa: E402
from bpe_tokenizer_tools.dropin.twin import twin  # noqa: E402

VALUES = [
    *("added_tokens_decoder", "all_special_ids", "all_special_tokens", "is_fast", "mask_token"),
    *("mask_token_id", "name_or_path"),
]


@pytest.fixture
def own(engine: str) -> BPETokenizer:
    return copy.copy(tiny_models.tokenizer())


def theirs_of(tokenizer: BPETokenizer, folder: Path) -> Any:
    """Return what transformers makes of the files, on HuggingFace's engine."""
    tokenizer.save(folder, verbose=False)
    return transformers.AutoTokenizer.from_pretrained(str(folder))


def lines() -> list[str]:
    return [line for line in tiny_models.text().splitlines() if line][:24]


def as_lists(batch: Any) -> dict[str, Any]:
    return {key: (str(value.dtype), value.tolist()) for key, value in batch.items()}


def test_it_answers_as_its_files_do(own: BPETokenizer, tmp_path: Path) -> None:
    theirs = theirs_of(own, tmp_path)
    own.save(tmp_path, "tiny", verbose=False)
    for name in VALUES[:-1]:
        assert str(getattr(own, name)) == str(getattr(theirs, name)), name
    assert own.init_kwargs["pad_token"] == theirs.init_kwargs["pad_token"]
    ids = [own.encode(line) for line in lines()[:4]]
    with_end = [*ids[0], own.eos_token_id]
    for name, given, options in (
        ("batch_decode", ([*ids, with_end],), {}),
        ("batch_decode", ([*ids, with_end],), {"skip_special_tokens": True}),
        ("get_added_vocab", (), {}),
        ("num_special_tokens_to_add", (), {}),
        ("get_special_tokens_mask", (with_end,), {"already_has_special_tokens": True}),
    ):
        assert getattr(own, name)(*given, **options) == getattr(theirs, name)(*given, **options)
    for options in ({"padding": True}, {"padding": "max_length", "max_length": 40}):
        rows, options = {"input_ids": ids}, {**options, "return_tensors": "pt"}
        assert as_lists(own.pad(rows, **options)) == as_lists(theirs.pad(rows, **options))


SECOND = "and </s> after it"
PAIRS: list[tuple[Any, Any]] = [
    ("a text", SECOND),
    (["a <s> text", "b"], ["", SECOND]),
    ("a text " * 9, None),
    (["a text " * 9, SECOND], None),
    ([["a", "text"], ["cut", "before"]], None),
    (["a", "text"], ["cut", "before"]),
]


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("text, pair", PAIRS)
def test_a_call_with_pairs_and_options_of_transformers(
    own: BPETokenizer, tmp_path: Path, text: Any, pair: Any, around: bool
) -> None:
    theirs = theirs_of(own, tmp_path)
    rows: dict[str, Any] = {"padding": True, "return_special_tokens_mask": True}
    cut = {"truncation": True, "max_length": 9, "return_overflowing_tokens": True}
    words = isinstance(text, list) and (isinstance(text[0], list) or text[0] == "a")
    for options in (
        {"return_attention_mask": False},
        {"return_offsets_mapping": True, "return_token_type_ids": True, "return_length": True},
        {**rows, "padding_side": "left", "pad_to_multiple_of": 8, "return_tensors": "np"},
        {**rows, **cut, "stride": 1},
    ):
        options["is_split_into_words"] = words
        for allowed in ("none", "all"):
            asked = {"add_special_tokens": around, **options}
            expected = theirs(text, pair, split_special_tokens=allowed == "none", **asked)
            got = own(text, text_pair=pair, allowed_special=allowed, **asked)
            assert repr(dict(got)) == repr(dict(expected))
            if pair is not None:
                got = own(text, pair, allowed_special=allowed, **asked)
                assert repr(dict(got)) == repr(dict(expected))


def test_what_people_wrote_is_text_beside_another_text_too(own: BPETokenizer) -> None:
    got = own("</s>", SECOND)["input_ids"]
    assert own.eos_token_id not in got and got == own.encode("</s>") + own.encode(SECOND)
    with pytest.raises(ValueError, match="for pairs, allowed_special must be 'none' or 'all'"):
        own("a", "b", allowed_special={"</s>"})


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    "name", ["WithPadding", "ForLanguageModeling", "ForSeq2Seq", "ForTokenClassification"]
)
def test_collators(own: BPETokenizer, tmp_path: Path, name: str, side: str) -> None:
    theirs = theirs_of(own, tmp_path)
    own.padding_side = theirs.padding_side = side
    options = {"mlm": False} if "Language" in name else {}
    rows: list[dict[str, Any]] = [{"input_ids": own.encode(line)} for line in lines()[:5]]
    for row in rows:
        if name in ("ForSeq2Seq", "ForTokenClassification"):
            row["labels"] = list(row["input_ids"])
    make = getattr(transformers, f"DataCollator{name}")
    expected, got = (make(tok, **options)(copy.deepcopy(rows)) for tok in (theirs, own))
    assert as_lists(got) == as_lists(expected)


def encoded(tok: Any, rows: Any) -> dict[str, Any]:
    return dict(tok(rows["text"], add_special_tokens=False))  # others add no eos


def test_ten_steps_of_training(own: BPETokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tiny_models.write_safetensors(folder, tiny_models.model(True))
    losses = []
    for i, tok in enumerate((transformers.AutoTokenizer.from_pretrained(str(folder)), own)):
        rows = datasets.Dataset.from_dict({"text": lines()})
        rows = rows.map(functools.partial(encoded, tok), batched=True)
        saved = tmp_path / str(i)
        trainer = transformers.Trainer(
            model=transformers.AutoModelForCausalLM.from_pretrained(str(folder)),
            args=transformers.TrainingArguments(
                output_dir=str(tmp_path / "out"),
                max_steps=10,
                per_device_train_batch_size=2,
                report_to=[],
                use_cpu=True,
                seed=3,
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=rows.remove_columns("text"),
            data_collator=transformers.DataCollatorForLanguageModeling(tok, mlm=False),
            processing_class=tok,
        )
        losses.append(trainer.train().training_loss)
        trainer.save_model(str(saved))
        assert BPETokenizer.from_file(saved).encode(lines()[0]) == own.encode(lines()[0])
    assert losses[0] == losses[1]


def test_the_twin_is_kept_until_something_changes(own: BPETokenizer) -> None:
    first = twin(own)
    own.pad([{"input_ids": [1, 2]}, {"input_ids": [3]}])
    assert own.all_special_tokens == ["<s>", "</s>", "<pad>"]
    assert twin(own) is first
    own.add_special_tokens(["<more>"])
    assert "<more>" in own.get_added_vocab() and twin(own) is not first
    own.pad_token = "<more>"
    padded = own.pad([{"input_ids": [1, 2]}, {"input_ids": [3]}])["input_ids"]
    assert padded[1] == [3, own.pad_token_id]
    own.padding_side = "left"
    padded = own.pad([{"input_ids": [1, 2]}, {"input_ids": [3]}])["input_ids"]
    assert padded[1] == [own.pad_token_id, 3]
    own.chat_template = "{{ messages[0].content }}"
    assert twin(own).chat_template == own.chat_template
    own.train(["a text for other merges"] * 9, 270, verbose=False)
    assert own.batch_decode([own.encode("other merges")]) == ["other merges"]


def test_copies_and_pickles_answer_too(own: BPETokenizer) -> None:
    before, fingerprint = pickle.dumps(own), own.fingerprint
    given = {"input_ids": [[1, 2], [3]]}
    expected = own.pad(given)["input_ids"]
    assert pickle.dumps(own) == before and own.fingerprint == fingerprint
    for other in (copy.copy(own), copy.deepcopy(own), pickle.loads(before)):
        assert other == own and other.pad(given)["input_ids"] == expected
    other.add_special_tokens(["<more>"])
    assert "<more>" not in own.get_added_vocab()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: pickle.loads(before).pad(given)["input_ids"], range(4)))
        found += pool.map(lambda _: own.pad(given)["input_ids"], range(16))
    assert found == [expected] * 20


def test_answers_are_not_to_be_set(own: BPETokenizer) -> None:
    with pytest.raises(AttributeError):
        own.all_special_ids = [1]  # type: ignore[misc]
    with pytest.raises(AttributeError, match="no_such_name"):
        own.no_such_name  # noqa: B018


def in_a_process(program: str, before: str = "") -> Any:
    start = "import json, sys\n"
    start += f"{before}\nfrom bpe_tokenizer import BPETokenizer\ntok = BPETokenizer()\n"
    done = subprocess.run(
        [sys.executable, "-c", start + program],
        capture_output=True,
        encoding="utf-8",
        cwd=ROOT,
        check=True,
    )
    return json.loads(done.stdout)


NAMES = ["pad", "batch_decode", "is_fast", "name_or_path", "save_pretrained"]


def test_asking_for_a_method_loads_nothing() -> None:
    program = "hasattr(tok, 'pad'), tok.encode('a'), hasattr(tok, 'nothing')\n"
    program += "print(json.dumps('transformers' in sys.modules))"
    assert in_a_process(program) is False


@pytest.fixture(params=["transformers", "bpe_tokenizer_tools"])
def missing(request: pytest.FixtureRequest) -> Iterator[str]:
    name: str = request.param
    yield f"""
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {name!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


def test_without_transformers_it_has_none_of_these(missing: str) -> None:
    program = f"print(json.dumps([hasattr(tok, name) for name in {NAMES}]))"
    assert in_a_process(program, missing) == [False] * len(NAMES)
    program = "try: tok('a', 'b')\nexcept ImportError as error: print(json.dumps(str(error)))"
    assert "a pair of texts" in in_a_process(program, missing)
    program = "try: tok.pad\nexcept AttributeError as error: print(json.dumps(str(error)))"
    assert "needs transformers: pip install transformers" in in_a_process(program, missing)
