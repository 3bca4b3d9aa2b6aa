"""HuggingFace's interface on this library's engine: every answer is HuggingFace's own."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

tokenizers = need("tokenizers")

import tokenizer_files as files  # noqa: E402  (needs the library)
from hard_text import hard_text  # noqa: E402

from bpe_tokenizer import BPETokenizer  # noqa: E402
from bpe_tokenizer_tools.dropin.tokenizers import DecodeStream, Encoding, Tokenizer  # noqa: E402

# Vocabularies this small lose ordinary text.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")

READ = [
    *("ids", "type_ids", "attention_mask", "special_tokens_mask", "tokens", "offsets"),
    *("n_sequences", "word_ids", "sequence_ids"),
]


@functools.cache
def written(family: str) -> str:
    return json.dumps(files.build(files.FAMILIES[family]))


def pair(family: str) -> tuple[Any, Tokenizer]:
    """Return HuggingFace's tokenizer, and the same in whose place ours stands."""
    theirs, other = (tokenizers.Tokenizer.from_str(written(family)) for _ in range(2))
    return theirs, Tokenizer(other)


def texts_of(family: str) -> st.SearchStrategy[str]:
    """Make text that is hard to cut, with tokens of the family in it."""
    added = [token["content"] for token in files.FAMILIES[family].added]
    parts = st.lists(
        st.one_of(hard_text, st.sampled_from([*added, " ", "a", "the dog"])), max_size=6
    )
    return parts.map("".join)


truncations = st.none() | st.fixed_dictionaries(
    {
        "max_length": st.integers(3, 40),
        "stride": st.sampled_from([0, 0, 0, 1]),
        "direction": st.sampled_from(["left", "right"]),
        "strategy": st.sampled_from(["longest_first", "only_first"]),
    }
)
paddings = st.none() | st.fixed_dictionaries(
    {
        "direction": st.sampled_from(["left", "right"]),
        "length": st.none() | st.integers(0, 60),
        "pad_to_multiple_of": st.sampled_from([None, 8]),
        "pad_id": st.just(3),
        "pad_type_id": st.sampled_from([0, 2]),
        "pad_token": st.just("<pad>"),
    }
)


def set_both(both: tuple[Any, Tokenizer], truncation: Any, padding: Any, split: bool) -> None:
    for each in both:
        each.no_truncation() if truncation is None else each.enable_truncation(**truncation)
        each.no_padding() if padding is None else each.enable_padding(**padding)
        each.encode_special_tokens = split
    theirs, ours = both
    assert (ours.truncation, ours.padding) == (theirs.truncation, theirs.padding)
    assert ours.encode_special_tokens == theirs.encode_special_tokens


def assert_same(own: Any, other: Any) -> None:
    for name in READ:
        assert getattr(own, name) == getattr(other, name), name
    assert len(own) == len(other)
    assert len(own.overflowing) == len(other.overflowing)
    for mine, its in zip(own.overflowing, other.overflowing):
        assert_same(mine, its)


def assert_alike(run: Any, both: tuple[Any, Tokenizer]) -> None:
    """See that both give the same or raise the same."""
    results: list[Any] = []
    for each in both:
        try:
            results.append(run(each))
        except BaseException as error:  # what panics there is no Exception
            results.append((type(error), str(error)))
    theirs, ours = results
    if isinstance(theirs, list) and theirs and hasattr(theirs[0], "ids"):
        assert len(ours) == len(theirs)
        for own, other in zip(ours, theirs):
            assert_same(own, other)
    else:
        assert ours == theirs


@pytest.mark.parametrize("family", sorted(files.FAMILIES))
def test_texts_of_every_family(family: str) -> None:
    both = pair(family)
    assert both[1]._current(), both[1].refusal

    @settings(max_examples=examples(40))
    @given(
        st.lists(texts_of(family), max_size=4), truncations, paddings, st.booleans(), st.booleans()
    )
    def check(texts: list[str], cut: Any, pad: Any, split: bool, special: bool) -> None:
        set_both(both, cut, pad, split)
        assert_alike(lambda each: each.encode_batch(texts, add_special_tokens=special), both)
        for text in texts[:1]:
            assert_alike(lambda each: [each.encode(text, add_special_tokens=special)], both)
            ids = both[0].encode(text).ids
            for skip in (False, True):
                assert both[1].decode(ids, skip) == both[0].decode(ids, skip)
                assert both[1].decode(ids[1:-1], skip) == both[0].decode(ids[1:-1], skip)

    check()


def test_special_tokens_that_the_vocabulary_has_as_text() -> None:
    both = pair("whole words")
    set_both(both, None, None, True)
    assert_alike(lambda each: each.encode_batch(["[UNK]", "a [UNK] b"]), both)


def test_the_engine_answers_what_is_asked_often() -> None:
    both = pair("llama 3")
    own = both[1].encode_batch(["Hello there", "you"])
    assert all(isinstance(each, Encoding) for each in own)
    for name in READ[:6]:
        getattr(own[0], name)
    assert own[0]._real is None  # HuggingFace's object was not asked


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(texts_of("llama 3"), texts_of("llama 3")), min_size=1, max_size=3),
    truncations,
    paddings,
)
def test_pairs_and_words(pairs: list[tuple[str, str]], cut: Any, pad: Any) -> None:
    both = pair("llama 3")
    set_both(both, cut, pad, False)
    assert_alike(lambda each: each.encode_batch(pairs), both)
    words = [first.split() for first, _ in pairs]
    assert_alike(lambda each: each.encode_batch(words, is_pretokenized=True), both)
    assert_alike(lambda each: [each.encode(*pairs[0])], both)


BAD: list[Any] = ["\ud800", 3, None, [None], ["a", 3], [], "", ["\udfff"], [["a", "b"]], ("a", "b")]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_what_is_refused_is_refused_alike(bad: Any) -> None:
    both = pair("gpt2")
    assert_alike(lambda each: each.encode_batch(bad), both)
    assert_alike(lambda each: [each.encode(bad)], both)


@pytest.mark.parametrize("ids", [[10**6], [-1], [1 << 40], ["a"], 5, None, [], [[1]], [0xC3]])
def test_ids_that_are_none(ids: Any) -> None:
    assert_alike(lambda each: each.decode(ids), pair("gpt2"))


@pytest.mark.parametrize(
    "cut",
    [
        {"max_length": 0},
        {"max_length": 1},  # no room for the special tokens
        {"max_length": 4, "stride": 3},
        {"max_length": 4, "strategy": "only_second"},
    ],
    ids=str,
)
def test_odd_truncation(cut: dict[str, Any]) -> None:
    both = pair("llama 3")
    for each in both:
        each.enable_truncation(**cut)
    for text in ("Hello there, all of you!", "a", ""):
        assert_alike(lambda each: [each.encode(text)], both)  # noqa: B023


def test_tokens_added_later() -> None:
    both = pair("qwen 2")
    text = "<new> Hello<a> b<control> x"
    old = both[1].encode(text)
    assert_same(old, both[0].encode(text))
    again = both[1].encode(text)
    before = both[0].encode(text)
    for each in both:
        added = tokenizers.AddedToken("<a>", lstrip=True, rstrip=True)
        assert each.add_tokens(["<new>", added]) == 2
        assert each.add_special_tokens(["<control>"]) == 1
    assert_same(both[1].encode(text), both[0].encode(text))
    assert both[1].get_vocab() == both[0].get_vocab()
    assert again.word_ids == before.word_ids  # an encoding stays what it was


def test_components_changed_in_place() -> None:
    both = pair("gpt2")
    text = " Hello there"
    both[1].encode(text)
    for each in both:
        component = each.pre_tokenizer
        component.add_prefix_space = True
    assert_same(both[1].encode(text[1:]), both[0].encode(text[1:]))
    for each in both:
        each.normalizer = tokenizers.normalizers.Lowercase()
    assert_same(both[1].encode(text), both[0].encode(text))
    for each in both:
        each.post_processor = tokenizers.processors.TemplateProcessing(
            single="<|endoftext|>:1 $A:1",
            special_tokens=[("<|endoftext|>", both[0].token_to_id("<|endoftext|>"))],
        )
    assert_same(both[1].encode(text), both[0].encode(text))
    assert "type ids" in both[1].refusal
    for each in both:
        each.model.dropout = 1.0
        each.post_processor = None
    assert_same(both[1].encode(text), both[0].encode(text))


def test_an_encoding_can_be_changed_and_kept() -> None:
    both = pair("llama 3")
    text = "Hello there, dog! " * 3
    theirs, ours = (each.encode(text) for each in both)
    assert repr(ours) == repr(theirs)
    assert_same(pickle.loads(pickle.dumps(ours)), theirs)
    for each in (theirs, ours):
        each.pad(70, pad_id=5, direction="left")
        each.truncate(60, stride=2)
    assert_same(ours, theirs)
    merged = [type(each).merge([each, each]) for each in (theirs, ours)]
    assert_same(merged[1], merged[0])
    for each in both:
        each.enable_truncation(9)
    plain = [each.encode(text, add_special_tokens=False) for each in both]
    done = [each.post_process(own) for each, own in zip(both, plain)]
    assert_same(done[1], done[0])
    for name, places in {
        "char_to_token": (6,),
        "token_to_chars": (2,),
        "word_to_tokens": (1,),
    }.items():
        assert getattr(ours, name)(*places) == getattr(theirs, name)(*places)


@pytest.mark.parametrize("parallelism", ["true", "false"])
def test_many_texts(parallelism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallelism)
    both = pair("qwen 2")
    text = "".join(files.CORPUS)
    texts = [f"{i} {text * 20}{'<|im_end|>' * (i % 3)}" for i in range(30)]
    for split in (False, True):
        set_both(both, None, None, split)
        assert [each.ids for each in both[1].encode_batch(texts)] == [
            each.ids for each in both[0].encode_batch(texts)
        ]
    assert_alike(lambda each: each.encode_batch([*texts, "\ud800"]), both)


def test_ids_are_lists_of_the_callers_own() -> None:
    _, ours = pair("gpt2")
    encoding = ours.encode("Hello")
    encoding.ids.append(7)
    assert encoding.ids == ours.encode("Hello").ids


def test_copies_and_pickles_have_all_that_was_set() -> None:
    both = pair("llama 3")
    set_both(both, {"max_length": 5}, {"pad_id": 2, "length": 7}, True)
    for copied in (copy.deepcopy(both[1]), pickle.loads(pickle.dumps(both[1]))):
        assert (copied.truncation, copied.padding) == (both[0].truncation, both[0].padding)
        assert copied.encode_special_tokens
        assert_same(copied.encode("<|begin_of_text|>a b"), both[0].encode("<|begin_of_text|>a b"))
        copied.no_truncation()
        assert both[1].truncation
    assert both[1].to_str() == both[0].to_str()


def test_a_tokenizer_that_we_cannot_have_stays_theirs() -> None:
    data = json.loads(written("gpt2"))
    data["model"]["dropout"] = 0.5
    ours = Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(data)))
    assert isinstance(ours.encode("Hello"), tokenizers.Encoding)
    assert "dropout" in ours.refusal


def test_threads_have_their_own_truncation() -> None:
    both = pair("llama 3")
    text = "The quick brown fox jumps over the lazy dog. " * 20
    whole = both[0].encode(text).ids
    wrong = []

    def encode(length: int) -> None:
        for _ in range(200):
            both[1].enable_truncation(length)
            if both[1].encode(text).ids != whole[:length]:
                wrong.append(length)

    threads = [threading.Thread(target=encode, args=(n,)) for n in (5, 9, 17, 33)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_a_thread_without_its_own_settings_has_the_last_ones() -> None:
    _, ours = pair("gpt2")
    ours.enable_truncation(2)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(len(ours.encode("Hello there, dog"))))
    thread.start()
    thread.join()
    assert seen == [2]


@pytest.mark.parametrize("family", ["llama 3", "llama 2", "gemma", "deepseek v3", "clip"])
def test_streams_of_ids(family: str) -> None:
    both = pair(family)

    @settings(max_examples=examples(60))
    @given(st.lists(texts_of(family), min_size=1, max_size=2), st.booleans(), st.integers(0, 3))
    def check(texts: list[str], skip: bool, begun: int) -> None:
        ids = [id_ for text in texts for id_ in both[0].encode(text).ids]
        streams = [
            make(ids[:begun], skip) for make in (tokenizers.decoders.DecodeStream, DecodeStream)
        ]
        for id_ in ids[begun:]:
            steps = []
            for each, stream in zip(both, streams):
                try:
                    steps.append(stream.step(each, id_))
                except Exception as error:
                    steps.append(str(error)[:14])
            assert steps[1] == steps[0]

    check()


def test_a_stream_takes_several_ids_and_their_tokenizer() -> None:
    both = pair("gpt2")
    ids = both[0].encode("Grüße 世界, dogs").ids
    for each in both:
        stream = DecodeStream(skip_special_tokens=False)
        assert stream.step(each, ids[:4]) == tokenizers.decoders.DecodeStream(
            skip_special_tokens=False
        ).step(both[0], ids[:4])


@pytest.mark.parametrize("wrong", [-1, 1 << 32, 1 << 40, None, "7", [3, -1], 1.0])
def test_a_stream_goes_on_after_what_is_no_id(wrong: Any) -> None:
    both = pair("gpt2")
    ids = both[0].encode("Grüße 世界, dogs").ids
    steps = []
    for each, make in zip(both, (tokenizers.decoders.DecodeStream, DecodeStream)):
        stream = make(ids[:3], True)
        with pytest.raises(TypeError):
            stream.step(each, wrong)
        steps.append([stream.step(each, id_) for id_ in ids[3:]])
    assert steps[1] == steps[0]


def test_an_own_tokenizer_under_their_interface() -> None:
    tokenizer = BPETokenizer("llama3").train(files.CORPUS, 400, verbose=False, num_workers=1)
    ours = Tokenizer(tokenizer.to_hf(), tokenizer)
    assert ours.encode("Grüße").ids == tokenizer.encode("Grüße")


# -- Of a tokenizer of this library -----------------------------------------------


def as_both(normalizer: str | None = "NFC") -> tuple[Any, Any]:
    """Return a tokenizer of ours as HuggingFace's, and as our twin of that."""
    tokenizer = BPETokenizer("llama3", normalizer=normalizer).train(
        ["the dog saw the café\n"] * 9, 290, special_tokens=["<s>", "</s>", "<pad>"], verbose=False
    )
    return tokenizer.to_hf(), tokenizer.as_tokenizers()


@settings(max_examples=examples(60))
@given(first=hard_text, second=hard_text)
def test_as_tokenizers(engine: str, first: str, second: str) -> None:
    need("numpy")  # HuggingFace's takes words by it
    theirs, ours = as_both()
    assert type(ours) is Tokenizer
    words = [first, "the", second]
    for call in (
        lambda it: it.encode(first),
        lambda it: it.encode(first, second),
        lambda it: it.encode(words, is_pretokenized=True),
        lambda it: it.encode(first + "</s>", add_special_tokens=False),
    ):
        expected, got = call(theirs), call(ours)
        assert all(getattr(got, name) == getattr(expected, name) for name in READ)
    rows = [each.ids for each in theirs.encode_batch([first, (first, second)])]
    assert [each.ids for each in ours.encode_batch([first, (first, second)])] == rows
    assert ours.decode_batch(rows) == theirs.decode_batch(rows)


def test_as_tokenizers_changes_as_tokenizers_do(engine: str, tmp_path: Any) -> None:
    both = as_both()
    for each in both:
        assert each.add_tokens(["<new>"]) == 1
        each.enable_truncation(6)
        each.enable_padding(pad_id=each.token_to_id("<pad>"), pad_token="<pad>")
    theirs, ours = both
    texts = ["the dog <new> saw the café", "the"]
    for expected, got in zip(theirs.encode_batch(texts), ours.encode_batch(texts)):
        assert all(getattr(got, name) == getattr(expected, name) for name in READ)
    assert ours.get_vocab_size() == theirs.get_vocab_size()
    for id_ in range(theirs.get_vocab_size()):
        assert ours.id_to_token(id_) == theirs.id_to_token(id_)
        assert ours.token_to_id(theirs.id_to_token(id_)) == id_
    for name, each in (("ours", ours), ("theirs", theirs)):
        each.save(str(tmp_path / name))
    assert (tmp_path / "ours").read_text() == (tmp_path / "theirs").read_text()


def test_as_tokenizers_does_not_follow_later_changes(engine: str) -> None:
    tokenizer = BPETokenizer().train(["low lower " * 9], 262, verbose=False)
    twin = tokenizer.as_tokenizers()
    ids = twin.encode("lower").ids
    tokenizer.train(["other " * 9], 262, verbose=False)
    assert twin.encode("lower").ids == ids


# -- Trimmed offsets -------------------------------------------------------------

BLANK_ENDS = [
    *(" x", "x ", "  x  ", " ", "Ġx", "xĠ", "ĠĠ", "Ġ x", "\u3000z", "x\x1c", "\x1f", "x\n"),
    *("\u00a8x", "\u2003w", "A B"),
]  # all different after normalizing: of equal ones, HuggingFace takes either
NORMALIZERS = ["", "NFC", "NFKC", "NFD", "Lowercase", "Replace"]


def with_blank_ends(
    normalizer: str, around: str, prefix_space: bool, keep: bool, flags: dict[str, bool]
) -> tuple[Any, Tokenizer]:
    """Make a byte-level tokenizer with added tokens that begin or end with white space."""
    from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*alphabet, "Ġt", "he", "Ġthe", "ĠĠ", "<s>"])}
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("Ġ", "Ġ")]
    theirs = tokenizers.Tokenizer(models.BPE(vocab, merges))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    if normalizer == "Replace":
        theirs.normalizer = normalizers.Replace("y", " x")
    elif normalizer:
        theirs.normalizer = getattr(normalizers, normalizer)()
    if around == "Roberta":
        given = ("<s>", vocab["<s>"])
        theirs.post_processor = processors.RobertaProcessing(given, given, True, keep)
    else:
        theirs.post_processor = processors.ByteLevel(add_prefix_space=keep, trim_offsets=True)
    theirs.add_special_tokens(["<s>"])
    theirs.add_tokens([AddedToken(text, **flags) for text in BLANK_ENDS])
    return theirs, Tokenizer(copy.deepcopy(theirs))


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("around", ["ByteLevel", "Roberta"])
@settings(max_examples=examples(40))
@given(
    st.lists(st.sampled_from([*BLANK_ENDS, "the", "the ", " ", "  ", "a", "y", "é", "\n"])),
    st.sampled_from([{}, {"normalized": False}, {"lstrip": True}, {"rstrip": True}]),
    st.booleans(),
    st.booleans(),
)
def test_offsets_of_added_tokens_are_trimmed(
    normalizer: str,
    around: str,
    parts: list[str],
    flags: dict[str, bool],
    prefix_space: bool,
    keep: bool,
) -> None:
    theirs, ours = with_blank_ends(normalizer, around, prefix_space, keep, flags)
    assert ours._current() is not None, ours.refusal
    text = "".join(parts)
    own, other = ours.encode(text), theirs.encode(text)
    assert own._real is None
    assert own.offsets == other.offsets
    assert own._real is None  # computed here, not by HuggingFace's
    assert (own.tokens, own.offsets) == (other.tokens, other.offsets)
    assert_same(own, other)
    for at in range(len(text)):
        assert own.char_to_token(at) == other.char_to_token(at)
        assert own.char_to_word(at) == other.char_to_word(at)
    for at in range(len(own)):
        assert own.token_to_chars(at) == other.token_to_chars(at)
    mixed = [text, (text, "the x"), text + "the"]
    for inputs in ([text, text + "the"], mixed):
        for one, two in zip(ours.encode_batch(inputs), theirs.encode_batch(inputs)):
            assert_same(one, two)
