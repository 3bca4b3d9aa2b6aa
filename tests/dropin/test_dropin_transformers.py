"""Tokenizers of transformers on this library's engine.  Also runs under transformers 4 alone."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

transformers = need("transformers")
tokenizers = need("tokenizers")
np = need("numpy")

import tokenizer_files as files  # noqa: E402  (needs the library)
from hard_text import hard_text  # noqa: E402

from bpe_tokenizer import BPETokenizer  # noqa: E402
from bpe_tokenizer_tools.dropin import (  # noqa: E402
    patch_tokenizer,
    patch_transformers,
    patched_transformers,
    to_transformers,
    unpatch_transformers,
)
from bpe_tokenizer_tools.dropin.tokenizers import Tokenizer  # noqa: E402

pytestmark = [
    # Vocabularies this small lose ordinary text.
    pytest.mark.filterwarnings("ignore:.*no token for these characters"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
USED = ["llama 3", "qwen 2", "gpt2", "roberta", "llama 2", "gemma", "deepseek v3", "olmo 2, phi-4"]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TALK = [{"role": "user", "content": "Who's there?"}, {"role": "assistant", "content": "Me é"}]


@functools.cache
def folder(family: str) -> str:
    """Write the files of a family, and return where; they are kept until the tests end."""
    where = Path(tempfile.mkdtemp())
    data = files.build(files.FAMILIES[family])
    (where / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    contents = [token["content"] for token in data["added_tokens"]]
    special = next(c for c in contents if "pad" in c or "end" in c or c in ("</s>", "<eos>"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": special}
    config |= {"eos_token": special, "chat_template": CHATML, "model_max_length": 64}
    (where / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(where)


def load(family: str, patched: bool) -> Any:
    if not patched:
        return transformers.AutoTokenizer.from_pretrained(folder(family))
    with patched_transformers():
        return transformers.AutoTokenizer.from_pretrained(folder(family))


def pair(family: str) -> tuple[Any, Any]:
    theirs, ours = load(family, False), load(family, True)
    assert type(ours) is type(theirs)
    assert isinstance(ours.backend_tokenizer, Tokenizer)
    assert not isinstance(theirs.backend_tokenizer, Tokenizer)
    return theirs, ours


def plain(value: Any) -> Any:
    """Make results comparable: arrays become lists, batches dictionaries with their encodings."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), [plain(each) for each in value] if value.ndim else value.item()
    if isinstance(value, transformers.BatchEncoding):
        parts = {key: plain(each) for key, each in value.items()}
        for i in range(len(value.encodings or ())):
            parts[f"tokens {i}"] = value.tokens(i)
            parts[f"words {i}"] = value.word_ids(i)
            parts[f"sequences {i}"] = value.sequence_ids(i)
        return parts
    return value


def assert_alike(run: Any, both: tuple[Any, Any]) -> None:
    """See that both give the same, or raise the same."""
    results: list[Any] = []
    for each in both:
        try:
            results.append(plain(run(each)))
        except BaseException as error:  # what panics there is no Exception
            results.append((type(error), str(error)))
    assert results[1] == results[0]


options = st.fixed_dictionaries(
    {},
    optional={
        "add_special_tokens": st.booleans(),
        "padding": st.sampled_from([True, "max_length", False]),
        "truncation": st.sampled_from([True, "only_first", "only_second", False]),
        "max_length": st.integers(4, 30),
        "stride": st.integers(0, 2),
        "pad_to_multiple_of": st.sampled_from([None, 8]),
        "padding_side": st.sampled_from(["left", "right"]),
        "return_tensors": st.sampled_from([None, "np"]),
        "return_overflowing_tokens": st.booleans(),
        "return_special_tokens_mask": st.booleans(),
        "return_offsets_mapping": st.booleans(),
        "return_token_type_ids": st.booleans(),
        "return_length": st.booleans(),
        "split_special_tokens": st.booleans(),
    },
)


def some_texts(family: str) -> st.SearchStrategy[str]:
    added = [token["content"] for token in files.FAMILIES[family].added]
    parts = st.lists(st.one_of(hard_text, st.sampled_from([*added, " ", "the dog"])), max_size=5)
    return parts.map("".join)


@pytest.mark.parametrize("family", USED)
def test_calls_with_all_options(family: str) -> None:
    both = pair(family)
    texts = some_texts(family)

    @settings(max_examples=examples(60))
    @given(
        st.lists(texts, min_size=1, max_size=3),
        st.none() | texts,
        options,
        st.sampled_from(["left", "right"]),
    )
    def check(given_texts: list[str], second: str | None, how: dict[str, Any], side: str) -> None:
        for each in both:
            each.truncation_side = side
        seconds = None if second is None else [second] * len(given_texts)
        assert_alike(lambda each: each(given_texts, seconds, **how), both)
        assert_alike(lambda each: each(given_texts[0], second, **how), both)
        words = [text.split(" ") for text in given_texts]
        assert_alike(lambda each: each(words, is_split_into_words=True, **how), both)

    check()


@pytest.mark.parametrize("family", USED)
def test_other_methods(family: str) -> None:
    both = pair(family)

    @settings(max_examples=examples(30))
    @given(some_texts(family), st.booleans())
    def check(text: str, flag: bool) -> None:
        assert_alike(lambda each: each.encode(text, add_special_tokens=flag), both)
        assert_alike(lambda each: each.tokenize(text, add_special_tokens=flag), both)
        ids = both[0].encode(text)
        for run in (
            lambda each: each.decode(ids, skip_special_tokens=flag),
            lambda each: each.decode(np.array(ids, dtype=np.int64)),
            lambda each: each.batch_decode([ids, ids[1:]], skip_special_tokens=flag),
            lambda each: each.convert_ids_to_tokens(ids, skip_special_tokens=flag),
            lambda each: each.convert_tokens_to_ids(each.convert_ids_to_tokens(ids)),
            lambda each: each.convert_tokens_to_string(each.convert_ids_to_tokens(ids)),
            lambda each: each.pad({"input_ids": [ids, ids * 2]}),
        ):
            assert_alike(run, both)

    check()
    for run in (
        lambda each: each.get_vocab(),
        lambda each: (len(each), each.vocab_size, each.all_special_ids, each.get_added_vocab()),
        lambda each: each.added_tokens_decoder,
        lambda each: each.num_special_tokens_to_add(pair=True),
        lambda each: each.apply_chat_template(TALK, tokenize=False),
        lambda each: each.apply_chat_template(TALK, add_generation_prompt=True, return_dict=True),
        lambda each: each("Hello there").char_to_token(2),
        lambda each: each("Hello there").token_to_chars(0),
        lambda each: each("Hello there", "you")[0].ids,
        lambda each: each(["a", 3]),
        lambda each: each("\ud800"),
        lambda each: each.decode([10**7]),
        lambda each: each.backend_tokenizer.to_str(),
    ):
        assert_alike(run, both)


def test_patching_twice_and_back() -> None:
    fast = transformers.PreTrainedTokenizerFast
    before = fast.from_pretrained.__func__, tokenizers.decoders.DecodeStream
    patch_transformers()
    patch_transformers()
    assert isinstance(load("gpt2", False)._tokenizer, Tokenizer)
    with patched_transformers():
        assert tokenizers.decoders.DecodeStream is not before[1]
    assert isinstance(load("gpt2", False)._tokenizer, Tokenizer)  # it was so before the block
    unpatch_transformers()
    unpatch_transformers()
    assert (fast.from_pretrained.__func__, tokenizers.decoders.DecodeStream) == before
    assert not isinstance(load("gpt2", False)._tokenizer, Tokenizer)


def test_many_patch_at_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: patch_transformers(), range(50)))
        loaded = list(pool.map(lambda _: load("gpt2", False), range(8)))
    unpatch_transformers()
    assert all(isinstance(each._tokenizer, Tokenizer) for each in loaded)
    assert not isinstance(load("gpt2", False)._tokenizer, Tokenizer)


@pytest.fixture(autouse=True)
def _unpatched() -> Iterator[None]:
    unpatch_transformers()  # whoever was here before
    yield
    unpatch_transformers()


def test_streams_of_ids_under_the_patch() -> None:
    theirs, ours = pair("qwen 2")
    ids = theirs.encode("Grüße 世界 🙂, dogs")
    plain_stream = tokenizers.decoders.DecodeStream(skip_special_tokens=True)
    expected = [plain_stream.step(theirs._tokenizer, id_) for id_ in ids]
    with patched_transformers():
        for each in (theirs, ours):
            stream = tokenizers.decoders.DecodeStream(skip_special_tokens=True)
            assert [stream.step(each._tokenizer, id_) for id_ in ids] == expected


def test_tokens_added_at_run_time() -> None:
    both = pair("llama 3")
    for run in (
        lambda each: each.add_tokens(["<tool>", "dogs"]),
        lambda each: each("the dogs<tool>"),
        lambda each: each.add_special_tokens({"additional_special_tokens": ["<|x|>"]}),
        lambda each: each("a<|x|>b"),
        lambda each: each.decode(each("a<|x|>b")["input_ids"], skip_special_tokens=True),
        lambda each: len(each),
    ):
        assert_alike(run, both)


def test_what_is_saved_is_what_theirs_saves(tmp_path: Path) -> None:
    both = pair("llama 3")
    both[1]("Hello", truncation=True, max_length=5, padding="max_length")
    both[0]("Hello", truncation=True, max_length=5, padding="max_length")
    for name, each in zip(("theirs", "ours"), both):
        each.save_pretrained(str(tmp_path / name))
    written = [
        {file.name: file.read_text("utf-8") for file in sorted((tmp_path / name).iterdir())}
        for name in ("theirs", "ours")
    ]
    assert written[1] == written[0]


@pytest.mark.parametrize("keep", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies(keep: Any) -> None:
    theirs, ours = pair("llama 3")
    copied = keep(ours)
    assert isinstance(copied._tokenizer, Tokenizer)
    assert_alike(lambda each: each("Hello <|begin_of_text|>"), (theirs, copied))


def test_threads_with_other_lengths() -> None:
    theirs, ours = pair("llama 3")
    text = "The quick brown fox jumps over the lazy dog. " * 20
    whole = theirs(text, truncation=False)["input_ids"]

    def wrong(length: int) -> int:
        return sum(
            ours(text, truncation=True, max_length=length)["input_ids"] != whole[:length]
            for _ in range(100)
        )

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(wrong, [5, 9, 17, 33])) == [0] * 4


def test_what_cannot_be_ours_stays_theirs(tmp_path: Path) -> None:
    where = Path(folder("gpt2"))
    data = json.loads((where / "tokenizer.json").read_text("utf-8"))
    data["model"]["dropout"] = 0.5
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(
        (where / "tokenizer_config.json").read_text("utf-8"), encoding="utf-8"
    )
    with patched_transformers(), pytest.warns(UserWarning, match="stays on HuggingFace's.*dropout"):
        loaded = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert isinstance(loaded._tokenizer, tokenizers.Tokenizer)
    assert loaded("Hello")["input_ids"]


def test_one_tokenizer_is_patched() -> None:
    theirs, ours = load("gpt2", False), patch_tokenizer(load("gpt2", False))
    assert isinstance(ours._tokenizer, Tokenizer)
    backend = ours._tokenizer
    assert patch_tokenizer(ours)._tokenizer is backend  # once is enough
    assert_alike(lambda each: each("Hello", return_offsets_mapping=True), (theirs, ours))
    assert patch_tokenizer("no tokenizer") == "no tokenizer"


# -- An own tokenizer ---------------------------------------------------------------------------


def own() -> BPETokenizer:
    special = ["<s>", "</s>", "<pad>"]
    made = BPETokenizer("llama3").train(
        files.CORPUS, 600, special_tokens=special, verbose=False, num_workers=1
    )
    made.chat_template = CHATML
    made.model_max_length = 32
    made.padding_side = "left"
    return made


def test_to_transformers_is_what_loading_what_was_saved_gives(tmp_path: Path) -> None:
    tokenizer = own()
    tokenizer.save(tmp_path, verbose=False)
    saved = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    live = tokenizer.to_transformers()
    assert isinstance(live, transformers.PreTrainedTokenizerFast)
    assert live._tokenizer._current().ours == tokenizer
    for name in (
        *("special_tokens_map", "chat_template", "model_max_length", "padding_side"),
        *("truncation_side", "model_input_names", "bos_token_id", "eos_token_id", "pad_token_id"),
    ):
        assert getattr(live, name) == getattr(saved, name), name
    assert live.is_fast and live.padding_side == "left" and live.model_max_length == 32
    for text in files.CORPUS:
        assert_alike(lambda each: each(text, truncation=True), (saved, live))  # noqa: B023
        assert live(text, add_special_tokens=False)["input_ids"] == tokenizer.encode(text)
    assert_alike(lambda each: each.apply_chat_template(TALK), (saved, live))


def test_to_transformers_does_not_follow_later_changes() -> None:
    tokenizer = own()
    live = to_transformers(tokenizer)
    expected = live("Hello <new>")["input_ids"]
    tokenizer.add_special_tokens(["<new>"])
    assert live("Hello <new>")["input_ids"] == expected


# -- Backends with methods of their own ---------------------------------------------


@functools.cache
def clip_folder() -> str:
    """Write the files of a CLIP: its class replaces `decode` on its backend."""
    where = Path(tempfile.mkdtemp())
    data = files.build(files.FAMILIES["clip"])
    (where / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    config = {"tokenizer_class": "CLIPTokenizer", "bos_token": "<|startoftext|>"}
    config |= {name: "<|endoftext|>" for name in ("eos_token", "unk_token", "pad_token")}
    (where / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(where)


def test_a_backend_with_an_encode_of_its_own_stays() -> None:
    tok = load("llama 3", False)
    backend = tok._tokenizer
    plain_encode = backend.encode_batch
    backend.encode_batch = lambda *args, **options: plain_encode(*args, **options)
    with pytest.warns(UserWarning, match="methods were replaced on its backend: encode_batch"):
        assert patch_tokenizer(tok)._tokenizer is backend


@pytest.mark.parametrize("skip", [True, False])
def test_clip_decodes_as_before(skip: bool) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(clip_folder())
    with patched_transformers():
        ours = transformers.AutoTokenizer.from_pretrained(clip_folder())
        by_hand = patch_tokenizer(transformers.AutoTokenizer.from_pretrained(clip_folder()))
    assert type(ours) is type(theirs)
    assert "decode" in vars(theirs._tokenizer)  # what this is about
    texts = ["the dog saw a cat", "", "dogs , and 12 CATS!"]
    for each in (ours, by_hand, pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert isinstance(each._tokenizer, Tokenizer)
        assert plain(each(texts, padding=True)) == plain(theirs(texts, padding=True))
    copies = [
        (ours, theirs),
        (by_hand, theirs),
        (copy.deepcopy(ours), copy.deepcopy(theirs)),
        (pickle.loads(pickle.dumps(ours)), pickle.loads(pickle.dumps(theirs))),
    ]
    for own, other in copies:
        for ids in other(texts)["input_ids"]:
            decoded = own.decode(ids, skip_special_tokens=skip)
            assert decoded == other.decode(ids, skip_special_tokens=skip)
            tokens = other.convert_ids_to_tokens(ids)
            assert own.convert_tokens_to_string(tokens) == other.convert_tokens_to_string(tokens)
        rows = other(texts)["input_ids"]
        assert own.batch_decode(rows, skip_special_tokens=skip) == other.batch_decode(
            rows, skip_special_tokens=skip
        )
    assert "</w>" not in ours.decode(ours("the dog")["input_ids"])
