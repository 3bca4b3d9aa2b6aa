"""Whether ids are those that `encode` gives, held against encoding their text again."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools.chat.conversation import Conversation
from bpe_tokenizer_tools.prompts import canonical, differences

# Many of the small vocabularies lack characters of ASCII, and loading them says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")

TEXT = "low lower lowest, the cat sat on the mat. Grüße! 世界 世界 12 123 don't\n\n " * 9
CONTROL = ["<|im_start|>", "<|im_end|>", "<|end|>"]
texts = (
    hard_text | st.text(TEXT) | st.lists(st.sampled_from([*TEXT.split(), *CONTROL])).map("".join)
)


@functools.cache
def made(normalizer: str | None = None, *more: AddedToken) -> BPETokenizer:
    tokenizer = BPETokenizer("llama3", normalizer=normalizer).train(TEXT, 290, verbose=False)
    tokenizer.add_special_tokens([*map(AddedToken, CONTROL), *more])
    return tokenizer


LOOKING = (
    AddedToken("<mask>", lstrip=True),
    AddedToken("<right>", rstrip=True),
    AddedToken("<word>", single_word=True),
    AddedToken("<think>", special=False),
    AddedToken("\t\t", special=False),
)


def first_difference(one: list[int], two: list[int]) -> int | None:
    if one == two:
        return None
    return next((i for i, (a, b) in enumerate(zip(one, two)) if a != b), min(len(one), len(two)))


# -- Against encoding again ------------------------------------------------------


@pytest.mark.parametrize("normalizer", [None, "NFC", "NFKD"])
def test_what_encode_gives_is_canonical(engine: str, normalizer: str | None) -> None:
    tokenizer = made(normalizer)

    @settings(max_examples=examples(200))
    @given(texts, st.sampled_from(["none", "all", ("<|end|>",)]), st.booleans())
    def check(text: str, allowed: Any, around: bool) -> None:
        allowed = allowed if isinstance(allowed, str) else {*allowed}
        ids = tokenizer.encode(text, around, allowed)
        assert tokenizer.is_canonical(ids)
        assert canonical.is_canonical(tokenizer, ids, allowed)
        assert differences(tokenizer, ids) == []

    check()


@settings(max_examples=examples(400))
@given(st.data())
def test_ids_split_and_merged(data: st.DataObject) -> None:
    """Of ids without control tokens, encoding all their text again says where they differ."""
    tokenizer = made("NFC")
    ids = tokenizer.encode(data.draw(texts))
    known = [token for token in tokenizer.token_bytes() if token is not None]
    for _ in range(data.draw(st.integers(0, 3))):
        if not ids:
            break
        at = data.draw(st.integers(0, len(ids) - 1))
        end = data.draw(st.integers(at + 1, min(len(ids), at + 4)))
        part = tokenizer.decode_bytes(ids[at:end])
        cut = data.draw(st.integers(0, len(part)))
        halves = [part[:cut], part[cut:]]
        if all(half in known for half in halves):
            ids[at:end] = map(tokenizer.token_bytes().index, halves)
        elif part in known:
            ids[at:end] = [tokenizer.token_bytes().index(part)]
        else:
            ids[at:end] = part
    check_like_encoding_again(tokenizer, ids)


@settings(max_examples=examples(400))
@given(st.lists(st.integers(0, 289), max_size=30), st.sampled_from([None, "NFC"]))
def test_any_ids(ids: list[int], normalizer: str | None) -> None:
    check_like_encoding_again(made(normalizer), ids)


def check_like_encoding_again(tokenizer: BPETokenizer, ids: list[int]) -> None:
    again = tokenizer.encode(tokenizer.decode(ids))
    assert tokenizer.first_noncanonical(ids) == first_difference(ids, again)
    found = differences(tokenizer, ids)
    assert len(found) == (ids != again)
    for start, end, encoded in found:
        assert ids[:start] + encoded + ids[end:] == again
        assert ids[start:end][:1] != encoded[:1]
        assert ids[start:end][-1:] != encoded[-1:]


def test_in_parts_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "_BLOCK", 3)
    test_ids_split_and_merged()
    test_any_ids()


@settings(max_examples=examples(300))
@given(st.lists(st.integers(0, 289) | st.sampled_from([290, 291, 292]), max_size=30))
def test_stretches_between_control_tokens(ids: list[int]) -> None:
    """Each stretch is encoded on its own."""
    tokenizer = made()
    again: list[int] = []
    stretch: list[int] = []
    for id_ in [*ids, None]:
        if id_ is None or id_ >= 290:
            again += [*tokenizer.encode(tokenizer.decode(stretch)), *([] if id_ is None else [id_])]
            stretch = []
        else:
            stretch.append(id_)
    assert tokenizer.first_noncanonical(ids) == first_difference(ids, again)
    changed = ids
    for start, end, encoded in reversed(differences(tokenizer, ids)):
        changed = changed[:start] + encoded + changed[end:]
    assert changed == again


# -- Text that normalizing changes -------------------------------------------------

# Each of these may only come out of normalizing: from what is composed, decomposed or full-width.
SPELLED = (
    AddedToken("<think>", special=False),
    AddedToken("e\u0301", special=False),
    AddedToken("\ufb01", special=False),
    AddedToken("  ", special=False),
    AddedToken("\u1ec7", special=False),
    AddedToken("\u1ebfx", special=False, normalized=True),
)
SPELLED_TEXT = {"\ufb01", "  ", "\u1ec7"}  # white space and single characters control nothing
SPELLING = (
    "＜ think ＞ < ＜s＞ <s> \ufb01 fi f i e \u0301 é É \u1ec7 e\u0323\u0302 ế x Å \u212b".split()
)
SPELLING += [
    " ",
    "\u00a0",
    "\u2003",
    "\n",
    "low",
    "ｌｏｗ",
    "①",
    "世",
    "한",
    "\u1112\u1161",
    "\u11ab",
]
FORMS = ["NFC", "NFD", "NFKC", "NFKD"]


@functools.cache
def spelled(normalizer: str, control: bool) -> BPETokenizer:
    """Return a tokenizer with these tokens, or with those alone that control nothing."""
    tokenizer = BPETokenizer("llama3", normalizer=normalizer).train(TEXT, 290, verbose=False)
    made = {token.content: id_ for id_, token in enumerate([AddedToken("<s>"), *SPELLED], 290)}
    tokenizer.add_special_tokens(
        [
            dataclasses.replace(token, id=made[token.content])
            for token in (AddedToken("<s>"), *SPELLED)
            if control or token.content in SPELLED_TEXT
        ]
    )
    return tokenizer


@pytest.mark.parametrize("block", [3, 2**12])
def test_what_is_promised(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By brute force, with tokens that appear in the text only when it is normalized."""
    monkeypatch.setattr(canonical, "_BLOCK", block)
    kinds = st.sampled_from(["none", "all", (), ("<s>",)])

    @settings(max_examples=examples(300))
    @given(
        st.lists(st.sampled_from(SPELLING), max_size=9).map("".join),
        st.sampled_from(FORMS),
        kinds,
        kinds,
        st.integers(0, 9),
        st.booleans(),
    )
    def check(text: str, form: str, given_with: Any, seen: Any, at: int, in_bytes: bool) -> None:
        tokenizer = spelled(form, True)
        given_with, seen = (
            set(each) if type(each) is tuple else each for each in (given_with, seen)
        )
        ids = tokenizer.encode(text, allowed_special=given_with)
        if in_bytes:
            ids[at : at + 1] = tokenizer.decode_bytes(ids[at : at + 1])
        again = again_by_stretches(tokenizer, ids, form, seen)
        assert tokenizer.first_noncanonical(ids, seen) == first_difference(ids, again)
        assert tokenizer.is_canonical(ids, seen) == (ids == again)
        changed = ids
        for start, end, encoded in reversed(differences(tokenizer, ids, seen)):
            changed = changed[:start] + encoded + changed[end:]
        assert changed == again

    check()


def again_by_stretches(tokenizer: BPETokenizer, ids: list[int], form: str, seen: Any) -> list[int]:
    if seen == "none":  # text gives no control token
        encode: Callable[[str], list[int]] = spelled(form, False).encode
    else:
        encode = functools.partial(tokenizer.encode, allowed_special=seen)
    tokens = tokenizer.added_tokens
    control = {token.id for token in tokens if token.content not in SPELLED_TEXT}
    again: list[int] = []
    stretch: list[int] = []
    for id_ in [*ids, None]:
        if id_ is not None and id_ not in control:
            stretch.append(id_)
            continue
        again += encode(tokenizer.decode(stretch))
        again += [] if id_ is None else [id_]
        stretch = []
    return again


def test_tokens_that_normalizing_spells() -> None:
    tokenizer = spelled("NFKD", True)
    wide = tokenizer.encode("low ＜think＞")
    assert tokenizer.decode(wide) == "low <think>"
    assert tokenizer.encode("low <think>") != wide
    assert tokenizer.is_canonical(wide)  # in a chat it would stay text
    assert tokenizer.first_noncanonical(wide, set()) == len(tokenizer.encode("low "))
    spaces = tokenizer.encode("low\u2003\u2003")
    assert tokenizer.first_noncanonical(spaces) == len(tokenizer.encode("low"))
    composed = spelled("NFC", True)
    assert not composed.is_canonical(composed.encode("e\u0323\u0302"))


# -- Special tokens and templates --------------------------------------------------


def test_text_that_spells_a_control_token(engine: str) -> None:
    tokenizer = made(None, *LOOKING)
    ids = [*tokenizer.encode("low "), *tokenizer.encode("<|end|>"), *tokenizer.encode(" x")]
    spelled = tokenizer.encode("low <|end|> x")
    start = len(tokenizer.encode("low "))
    assert tokenizer.is_canonical(spelled)
    assert tokenizer.is_canonical(spelled, {"<|im_end|>"})
    assert tokenizer.first_noncanonical(spelled, "all") == first_difference(
        spelled, tokenizer.encode("low <|end|> x", allowed_special="all")
    )
    assert tokenizer.first_noncanonical(spelled, {"<|end|>"}) is not None
    assert start <= len(ids)
    # A token that `encode` always finds may be spelled by those who have no say in a chat.
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "a <think> b"}], "chatml")
    assert tokenizer.special_tokens.get("<think>") is None
    assert tokenizer.is_canonical(chat)
    assert tokenizer.first_noncanonical(chat, set()) is not None


ROLES = st.sampled_from(["user", "assistant", "system", "<|im_end|>"])


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(ROLES, texts), min_size=1, max_size=4), st.booleans())
def test_templates(talk: list[tuple[str, str]], prompt: bool) -> None:
    tokenizer = made(None, *LOOKING)
    messages = [{"role": role, "content": content} for role, content in talk]
    ids = tokenizer.apply_chat_template(messages, "chatml", prompt)
    assert tokenizer.is_canonical(ids)


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(["<mask>", "<right>", "<word>", "\t\t", " ", "low", "é", "\n"])))
def test_tokens_that_look_around(parts: list[str]) -> None:
    tokenizer = made(None, *LOOKING)
    ids = tokenizer.encode("".join(parts), allowed_special="all")
    assert tokenizer.is_canonical(ids)
    assert tokenizer.is_canonical(ids, "all")


def test_white_space_that_a_token_takes_in() -> None:
    tokenizer = made(None, *LOOKING)
    low, space, x = (tokenizer.encode(text) for text in ("low", " ", "x"))
    mask, right, word = (
        tokenizer.special_tokens[f"<{name}>"] for name in ("mask", "right", "word")
    )
    assert tokenizer.is_canonical([*low, mask, *space, *x, *space, word])
    assert tokenizer.first_noncanonical([*low, *space, mask]) == len(low)
    assert tokenizer.first_noncanonical([*low, right, *space, *x]) == len(low) + 1
    assert tokenizer.first_noncanonical([word, *low]) == 0


def test_control_tokens_that_merges_make(engine: str) -> None:
    tokenizer = BPETokenizer("llama3", normalizer=None).train("atokb tok " * 9, 262, verbose=False)
    vocab = dict(enumerate(tokenizer.token_bytes()[:262]))
    learned = BPETokenizer.from_merges(vocab, tokenizer.merges, {"tok": vocab_id(vocab, b"tok")})
    for text in ("tok", "atokb", "xtok tok", "atok", " tok"):
        assert learned.is_canonical(learned.encode(text))
        assert learned.is_canonical(learned.encode(text, allowed_special="all"))
    talk = [{"role": "user", "content": "xtok tok"}]
    assert learned.is_canonical(learned.apply_chat_template(talk, "alpaca"))


def vocab_id(vocab: dict[int, Any], token: bytes) -> int:
    return next(id_ for id_, known in vocab.items() if known == token)


# -- Conversations -----------------------------------------------------------------


def test_drift_in_a_conversation(engine: str) -> None:
    tokenizer = made("NFC")
    end = tokenizer.special_tokens["<|im_end|>"]
    talk = Conversation(tokenizer, "chatml")
    talk.add("user", "which is low?")
    talk.prompt()
    talk.answer([*tokenizer.encode("the cat"), end])
    assert talk.drifts == []
    talk.add("user", "and lower?")
    before = len(talk.prompt())
    talk.answer([*b"lower", *tokenizer.encode(" lowest"), end])
    talk.add("user", "thanks")
    talk.prompt()
    [drift] = talk.drifts
    assert (drift.message, drift.start, drift.end) == (3, before, before + 3)
    assert drift.encoded == tokenizer.encode("low")
    assert talk.ids[drift.start : drift.end] == [*b"low"]
    assert tokenizer.first_noncanonical(talk.ids) == before
    again = tokenizer.apply_chat_template(talk.messages, "chatml")
    assert again[:before] == talk.ids[:before]
    assert again == talk.ids[: drift.start] + drift.encoded + talk.ids[drift.end :]


def test_drift_where_an_answer_begins() -> None:
    """What was sampled can make one token with the end of the prompt."""
    tokenizer = made("NFC")
    newline, two = tokenizer.encode("\n"), tokenizer.encode("\n\n")
    assert len(newline) == len(two) == 1
    talk = Conversation(tokenizer, "chatml")
    talk.add("user", "low")
    before = len(talk.prompt())
    talk.answer([*newline, *tokenizer.encode("the cat")])
    [drift] = talk.drifts
    assert (drift.message, drift.start, drift.encoded) == (1, before - 1, two)


# -- Other kinds of tokenizers -------------------------------------------------------


# What decoding loses of these, no ids can tell: text without a token, or spaces between words.
LOSES_SPACES = {"clip", "continuing prefix", "no pre-tokenizer", "prefix space inside"}
LOSES_SPACES |= {"prefix space without regex", "punctuation removed", "punctuation contiguous"}
LOSES_SPACES |= {"punctuation merged with what follows"}
UNKNOWN = ("<unk>", "[UNK]")


def test_every_family(tmp_path: Path) -> None:
    need("tokenizers")
    import tokenizer_files

    for name, tokenizer in tokenizer_files.families(tmp_path):
        special = " ".join(tokenizer.special_tokens)
        for text in [*tokenizer_files.CORPUS[::3], "", " ", "  a ", "a\n\n b", f"{special} low"]:
            for allowed in ("none", "all"):
                ids = tokenizer.encode(text, add_special_tokens=True, allowed_special=allowed)
                lost = name.startswith("bytes are missing") and not text.isascii()
                lost = lost or not {*UNKNOWN}.isdisjoint(tokenizer.convert_ids_to_tokens(ids))
                if name not in LOSES_SPACES and not lost:
                    assert tokenizer.is_canonical(ids), (name, text, allowed)
        letters = [id_ for letter in "tokenizers lowland" for id_ in tokenizer.encode(letter)]
        again = tokenizer.encode(tokenizer.decode(letters))
        if {*UNKNOWN}.isdisjoint(tokenizer.convert_ids_to_tokens(letters)):
            assert tokenizer.is_canonical(letters) == (letters == again), name


def test_published_vocabularies(vocab_dir: Path, corpora: Any) -> None:
    for name in ("o200k_base", "cl100k_base", "qwen3"):
        tokenizer = BPETokenizer.from_file(vocab_dir / f"{name}.tiktoken")
        ids = tokenizer.encode(corpora("multi")[:200_000])
        assert tokenizer.is_canonical(ids)
        at = next(i for i in range(200, len(ids)) if len(tokenizer.decode([ids[i]])) == 8)
        letters = tokenizer.encode_batch([*tokenizer.decode([ids[at]])]).input_ids
        changed = [*ids[:at], *(id_ for each in letters for id_ in each), *ids[at + 1 :]]
        assert tokenizer.first_noncanonical(changed) == at


# -- Input -------------------------------------------------------------------------


def test_kinds_of_ids() -> None:
    tokenizer = made()
    ids = tokenizer.encode("low lower")
    numpy = need("numpy")
    for given_ids in (ids, tuple(ids), numpy.array(ids), iter(ids)):
        assert tokenizer.is_canonical(given_ids)
    assert tokenizer.is_canonical([])
    assert tokenizer.first_noncanonical([0xC3]) == 0
    assert tokenizer.first_noncanonical([*tokenizer.encode("low!"), 0xC3]) is not None


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([97, 999], ValueError, r"ids\[1\] is 999, which is not in the vocabulary \(largest id"),
        ([97, -100], ValueError, r"ids\[1\] is -100.*leave out padding and masks"),
        ("low", TypeError, "ids must be integers"),
        ([1.5], TypeError, "sequence of integers"),
        ([[97]], TypeError, "ids must be a sequence of integers: 'list' object cannot be"),
        ([97, {}], TypeError, "ids must be a sequence of integers: 'dict' object cannot be"),
        (5, TypeError, "ids must be a sequence of integers, got 5"),
        (True, TypeError, "ids must be a sequence of integers, got True"),
        ([97, True], TypeError, r"ids\[1\] must be an integer, got True: is this a mask"),
        (iter([97, False]), TypeError, r"ids\[1\] must be an integer, got False"),
        (None, TypeError, "ids must be a sequence of integers"),
    ],
)
def test_what_is_no_id(ids: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        made().first_noncanonical(ids)


def test_an_unknown_special_token() -> None:
    with pytest.raises(ValueError, match="not special tokens of this tokenizer"):
        made().is_canonical([97], {"<|nothing|>"})
