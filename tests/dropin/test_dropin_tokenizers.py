"""HuggingFace's interface on this library's engine: every answer is HuggingFace's own."""

from __future__ import annotations

import asyncio
import copy
import functools
import itertools
import json
import pickle
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

np = need("numpy")
tokenizers = need("tokenizers")

import tokenizer_files as files  # noqa: E402  (needs the library)
from hard_text import hard_text  # noqa: E402

from bpe_tokenizer import BPETokenizer, build_char_to_byte  # noqa: E402
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


@pytest.mark.parametrize("bad", [None, 0, 1, "x", [], np.array([1, 2])], ids=repr)
@pytest.mark.parametrize("family", ["gpt2", "llama 2"])
def test_options_are_booleans(family: str, bad: Any) -> None:
    both = pair(family)
    assert_alike(lambda each: [each.encode("a", add_special_tokens=bad)], both)
    assert_alike(lambda each: each.encode_batch(["a"], add_special_tokens=bad), both)
    assert_alike(lambda each: each.decode([1, 2], skip_special_tokens=bad), both)


@pytest.mark.parametrize("rows", [{}, "", None, 5, {1: 2}, ((1, 2), [3]), [(1,)]], ids=repr)
def test_batches_to_decode_are_sequences(rows: Any) -> None:
    assert_alike(lambda each: each.decode_batch(rows), pair("gpt2"))


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


def test_str_and_repr_show_the_settings_in_use() -> None:
    both = pair("llama 3")
    both[1].encode("Hello")  # which makes the engine, and takes settings off theirs for that
    for each in both:
        each.enable_truncation(7)
        each.enable_padding(length=9)
    both[1].encode("Hello")
    assert repr(both[1]) == repr(both[0])
    assert str(both[1]) == str(both[0]) != repr(both[0])
    for each in both:
        each.no_truncation()
    assert repr(both[1]) == repr(both[0])


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
        while both[0].decode(ids[:begun], skip).endswith("\ufffd"):
            begun -= 1  # inside a character, HuggingFace's gives the prompt, too: tested below
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
        stream = make(ids[:2], True)
        with pytest.raises(TypeError):
            stream.step(each, wrong)
        steps.append([stream.step(each, id_) for id_ in ids[2:]])
    assert steps[1] == steps[0]


@pytest.mark.parametrize("several", [[5, 6], (5, 6), range(5, 7), np.array([5, 6]), b"\5\6"])
def test_a_stream_takes_any_sequence(several: Any) -> None:
    both = pair("gpt2")
    made = []
    for each, make in zip(both, (tokenizers.decoders.DecodeStream, DecodeStream)):
        stream = make(several)
        made.append([stream.step(each, several), stream.step(each, np.int64(7))])
    assert made[1] == made[0]


@pytest.mark.parametrize("wrong", [True, "ab", [-1], [1 << 32], [1.0], {1}, iter([1])])
def test_a_stream_refuses_other_prompts(wrong: Any) -> None:
    raised = []
    for make in (tokenizers.decoders.DecodeStream, DecodeStream):
        with pytest.raises((TypeError, OverflowError)) as caught:
            make(wrong)
        raised.append((caught.type, str(caught.value)))
    assert raised[1] == raised[0]
    with pytest.raises(TypeError, match="instance of 'Tokenizer'"):
        DecodeStream().step("gpt2", 1)


def generated(text: str, tokens: list[bytes | None], cut: int) -> str:
    """Return what follows the whole characters of a prompt, given the bytes of each token.

    None stands for a token that is left out.  `text` is the text of all tokens.
    """
    whole = b"".join(filter(None, tokens))
    lost = len(whole.decode()) - len(text)  # a space at the start
    prompt = b"".join(filter(None, tokens[:cut])).decode(errors="ignore")
    return text[max(0, len(prompt) - lost) :]


BYTES = {i: char for char, i in build_char_to_byte().items()}


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("family", ["llama 3", "gpt2", "llama 2", "gemma", "phi-3"])
def test_a_stream_gives_what_was_generated(family: str, skip: bool) -> None:
    """A prompt that ends inside a character is not given again, but that character is."""
    theirs, ours = pair(family)
    added = theirs.get_added_tokens_decoder()
    special = next(id_ for id_, token in added.items() if token.special)
    fallback = json.loads(written(family))["model"]["byte_fallback"] if "llama 2" in family else 0

    def token_bytes(id_: int) -> bytes | None:
        if id_ in added:
            return None if skip and added[id_].special else added[id_].content.encode()
        token = theirs.id_to_token(id_)
        if token.startswith("<0x"):
            return bytes([int(token[3:5], 16)])
        if "▁" in token or fallback or family in ("gemma", "phi-3"):
            return token.replace("▁", " ").encode()
        return bytes(map(build_char_to_byte().__getitem__, token))

    # U+FFFD itself, if a prompt ends inside it, looks like a broken character.
    parts = st.sampled_from(["🌶", "世界", "é", "the dog", " ", "𝄞🌶", "a"])

    @settings(max_examples=examples(30))
    @given(st.lists(parts, min_size=1, max_size=4), st.lists(st.integers(0, 30), max_size=2))
    def check(texts: list[str], specials: list[int]) -> None:
        ids = theirs.encode("".join(texts) + "!", add_special_tokens=False).ids
        tokens = [*map(token_bytes, ids)]
        ends = [0, *itertools.accumulate(len(token or b"") for token in tokens)]
        whole = b"".join(filter(None, tokens))
        for at in specials:  # between characters
            at = min(at, len(ids))
            if whole[: ends[at]].decode(errors="ignore").encode() == whole[: ends[at]]:
                ids = [*ids[:at], special, *ids[at:]]
                break
        tokens = [*map(token_bytes, ids)]
        text = theirs.decode(ids, skip)
        for cut in range(1, len(ids)):
            for tokenizer in (ours, theirs):
                stream = DecodeStream(ids[:cut], skip)
                said = "".join(stream.step(tokenizer, id_) or "" for id_ in ids[cut:])
                assert said == generated(text, tokens, cut), (cut, ids)

    check()


AFTER_BROKEN = [
    *itertools.product(["gpt2", "llama 2"], [
        (b"Hi \xf0\x9f\x8c", b"\xb6 ok", "🌶 ok"),
        (b"Hi \xf0\x9f\x8c", b"a", "a"),  # the broken character was the prompt's
        (b"Hi \xff", b"a", "a"),
        (b"Hi \xef\xbf\xbd", b"a", "a"),  # a real U+FFFD
        (b"Hi \xef\xbf\xbd\xe4", b"\xb8\x96", "世"),
        (b"\xe4\xb8\x96\xe4", b"\xb8\x96", "世"),
        (b"\xf0", b"\x9f\x8c\xb6", "🌶"),
    ]),
    # HuggingFace's finds no character in a run of byte tokens of which one is broken.
    ("gpt2", (b"\xff\xe4\xb8", b"\x96", "世")),
    ("llama 2", (b"\xff\xe4\xb8", b"\x96", "")),
]  # fmt: skip


@pytest.mark.parametrize(("family", "case"), AFTER_BROKEN)
def test_a_stream_after_broken_characters(family: str, case: tuple[bytes, bytes, str]) -> None:
    prompt, answer, expected = case
    _, ours = pair(family)

    def ids_of(raw: bytes) -> list[int]:
        as_bytes = family == "llama 2" and not raw.isascii()
        names = [f"<0x{byte:02X}>" if as_bytes else BYTES[byte] for byte in raw]
        return [ours.token_to_id(name) for name in names]

    stream = DecodeStream(ids=ids_of(prompt))
    assert "".join(stream.step(ours, id_) or "" for id_ in ids_of(answer)) == expected


def test_copied_streams_are_independent() -> None:
    both = pair("gpt2")
    ids = both[0].encode("Grüße 世界, dogs").ids
    for make_copy in (copy.copy, copy.deepcopy):
        found = []
        for each, make in zip(both, (tokenizers.decoders.DecodeStream, DecodeStream)):
            one = make(ids[:2])
            steps = [one.step(each, ids[2])]
            other = make_copy(one)
            steps += [one.step(each, id_) for id_ in ids[3:]]
            steps += [other.step(each, id_) for id_ in ids[4:]]
            again = make_copy(make(ids[:4]))  # before its first step
            steps += [again.step(each, id_) for id_ in ids[4:7]]
            found.append(steps)
        assert found[1] == found[0]
    for make in (tokenizers.decoders.DecodeStream, DecodeStream):
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(make())


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


# -- Post-processing, and methods that are only here by name -------------------------


@pytest.mark.parametrize("family", ["llama 3", "roberta", "llama 2"])
@settings(max_examples=examples(40))
@given(
    st.tuples(st.sampled_from(["a dog", "", "Grüße 世界, dogs"]), st.none() | st.just("the dog")),
    st.builds(
        lambda given, strategy: given and {**given, "strategy": strategy},
        truncations,
        st.sampled_from(["longest_first", "only_first", "only_second"]),
    ),
    paddings,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_post_processing_truncates_and_pads(
    family: str,
    texts: tuple[str, str | None],
    truncation: Any,
    padding: Any,
    set_before: bool,
    added_before: bool,
    added_after: bool,
) -> None:
    both = pair(family)

    def run(tokenizer: Any) -> list[Any]:
        if set_before:
            set_one(tokenizer, truncation, padding)
        first, second = (
            text if text is None else tokenizer.encode(text, add_special_tokens=added_before)
            for text in texts
        )
        set_one(tokenizer, truncation, padding)
        again = tokenizer.encode("a dog")  # with the same settings as before
        return [tokenizer.post_process(first, second, added_after), again]

    assert_alike(run, both)


def set_one(tokenizer: Any, truncation: Any, padding: Any) -> None:
    if truncation is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(**truncation)
    if padding is None:
        tokenizer.no_padding()
    else:
        tokenizer.enable_padding(**padding)


@pytest.mark.parametrize("name", ["encode_batch_fast", "async_encode_batch", "async_encode"])
def test_settings_reach_methods_that_are_huggingfaces(name: str) -> None:
    both = pair("llama 3")
    given = TEXTS_SET if "batch" in name else TEXTS_SET[0]
    found = []
    for tokenizer in both:
        method = getattr(tokenizer, name)
        set_one(tokenizer, {"max_length": 4}, {"length": 6})
        tokenizer.encode("dog")
        tokenizer.normalizer = tokenizer.normalizer  # the engine is made again
        tokenizer.encode("dog")

        async def run(method: Any = method) -> Any:
            return await method(given)

        made = asyncio.run(run()) if "async" in name else method(given)
        rows = made if isinstance(made, list) else [made]
        found.append([(row.ids, row.attention_mask, len(row.overflowing)) for row in rows])
    assert found[1] == found[0]
    assert len(found[0][0][0]) == 6


TEXTS_SET = ["the dog saw the café", "a"]


def test_replaced_methods_are_kept() -> None:
    theirs, other = (tokenizers.Tokenizer.from_str(written("llama 3")) for _ in range(2))
    for each in (theirs, other):
        plain = each.decode
        each.decode = lambda *args, plain=plain, **options: plain(*args, **options).upper()
    ours = Tokenizer(other)
    ids = theirs.encode("the dog").ids
    assert ours._current() is not None
    assert (ours.encode("the dog").ids, ours.decode(ids)) == (ids, theirs.decode(ids))
    assert ours.decode(ids).isupper()
    assert ours.decode_batch([ids]) == theirs.decode_batch([ids])  # which they do not change
    assert DecodeStream().step(ours, ids) == tokenizers.decoders.DecodeStream().step(theirs, ids)
    for make_copy in (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
        assert make_copy(ours).decode(ids) == make_copy(theirs).decode(ids)


def test_a_backend_with_an_encode_of_its_own_stays_huggingfaces() -> None:
    theirs, other = (tokenizers.Tokenizer.from_str(written("llama 3")) for _ in range(2))
    for each in (theirs, other):
        plain = each.encode
        each.encode = lambda text, *args, plain=plain, **options: plain(text * 2, *args, **options)
    ours = Tokenizer(other)
    for each in (theirs, ours):
        each.enable_truncation(9)
    assert ours._current() is None
    assert "methods were replaced on its backend: encode" in ours.refusal
    assert_same(ours.encode("the dog saw a cat"), theirs.encode("the dog saw a cat"))
    assert_same(ours.encode_batch(["the dog"])[0], theirs.encode_batch(["the dog"])[0])
