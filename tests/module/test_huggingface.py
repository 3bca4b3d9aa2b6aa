"""Saved directories in HuggingFace's libraries.  Also runs under transformers 4 alone."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer as bpe
from bpe_tokenizer import AddedToken, BPETokenizer

tokenizers = need("tokenizers")
transformers = need("transformers")

SAMPLE = (
    "The quick brown fox's tail, isn't 12345 lazy.\n\n    def f(x):\n\treturn x * 2  # ok\r\n"
    "Grüße aus Köln! Crème brûlée e\u0301. 世界你好,今天天气很好。한국어 Привет 🙂👍🏽  \n "
)
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.text(st.sampled_from("aAdeEstT'll  12345\n\r\t.,!/é\u0301世ſK<|>"), max_size=40),
    st.lists(st.sampled_from(["<s>", "</s>", "<pad>", "a", " ", "\n", "e\u0301"])).map("".join),
)
ROLES = ["<s>", "</s>", "<pad>", "<unk>"]
# Where special tokens can have their ids: behind all else, among the merges, far off.
PLACES: dict[str, Any] = {
    "end": ROLES,
    "inside": {"<s>": 256, "</s>": 300, "<pad>": 257, "<unk>": 258},
    "gaps": {"<s>": 1000, "</s>": 1001, "<pad>": 5000, "<unk>": 5002},
    "pairs": {"<s>": 1000, "</s>": 1001, "<pad>": 1003, "<unk>": 1004},
    "mixed": {"<s>": 260, "</s>": 100_000, "<pad>": None, "<unk>": 100_001},
}


def trained(pattern: str = "llama3", special: Any = ROLES, **options: Any) -> BPETokenizer:
    options.setdefault("surround", "bos+eos")  # the default differs in HuggingFace
    tokenizer = BPETokenizer(pattern, **options)
    return tokenizer.train(SAMPLE * 3, 400, special_tokens=special, verbose=False, num_workers=1)


def both(tokenizer: BPETokenizer, folder: Path) -> tuple[Any, Any]:
    tokenizer.save(folder, verbose=False)
    core = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return core, transformers.AutoTokenizer.from_pretrained(str(folder))


def assert_same(tokenizer: BPETokenizer, core: Any, auto: Any, text: str) -> None:
    for special in (True, False):
        ids = tokenizer.encode(text, add_special_tokens=special, allowed_special="all")
        assert core.encode(text, add_special_tokens=special).ids == ids
        assert auto.encode(text, add_special_tokens=special) == ids
        assert auto(text, add_special_tokens=special)["input_ids"] == ids
    decoded = tokenizer.decode(ids)
    assert core.decode(ids, skip_special_tokens=False) == decoded
    assert auto.decode(ids) == decoded
    skipped = tokenizer.decode(ids, skip_special_tokens=True)
    assert auto.decode(ids, skip_special_tokens=True) == skipped


@pytest.mark.parametrize("pattern", sorted(bpe.SPLIT_PATTERNS))
def test_each_pattern_gives_the_same_ids(tmp_path: Path, pattern: str) -> None:
    tokenizer = trained(pattern)
    core, auto = both(tokenizer, tmp_path)

    @settings(max_examples=examples(100))
    @given(TEXT)
    def check(text: str) -> None:
        assert_same(tokenizer, core, auto, text)

    check()
    assert_same(tokenizer, core, auto, SAMPLE)


CUSTOM = [
    r"\w+|\s+|[^\w\s]+",
    r"[a-z]+",
    r"\d{1,3}(?=(?:\d{3})*$)|\D",
    r"\S+$|\s+|\S",
    r"(?i:the)|.",
    r"a++b?|.+",
]


@pytest.mark.parametrize("pattern", CUSTOM)
def test_custom_patterns_give_the_same_ids_or_are_not_saved(tmp_path: Path, pattern: str) -> None:
    tokenizer = trained(pattern)
    try:
        core, auto = both(tokenizer, tmp_path)
    except ValueError as error:
        assert "split pattern" in str(error)
        assert not (tmp_path / "tokenizer.json").exists()
        return

    @settings(max_examples=examples(100))
    @given(TEXT)
    def check(text: str) -> None:
        assert_same(tokenizer, core, auto, text)

    check()


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD", None])
def test_each_normalizer_gives_the_same_ids(tmp_path: Path, form: str | None) -> None:
    tokenizer = trained(normalizer=form)
    core, auto = both(tokenizer, tmp_path)
    for text in (SAMPLE, "e\u0301", "ﬁ ½ Å 각", "\u0301</s>\u0301", "e\u0323\u0301"):
        assert_same(tokenizer, core, auto, text)


@pytest.mark.parametrize("place", sorted(PLACES))
def test_special_tokens_keep_their_ids(tmp_path: Path, place: str) -> None:
    tokenizer = trained(special=PLACES[place])
    core, auto = both(tokenizer, tmp_path)
    for token, id_ in tokenizer.special_tokens.items():
        assert core.token_to_id(token) == auto.convert_tokens_to_ids(token) == id_
        assert auto.convert_ids_to_tokens(id_) == token
    assert core.get_vocab() == auto.get_vocab() == tokenizer.get_vocab()
    assert len(auto) == tokenizer.vocab_size
    for text in (SAMPLE, "<s>a</s>", " <pad><unk> <s>", "<s", ""):
        assert_same(tokenizer, core, auto, text)
    assert BPETokenizer.from_pretrained(tmp_path, verbose=False) == tokenizer


@settings(max_examples=examples(100))
@given(st.lists(st.integers(256, 275), min_size=1, max_size=6, unique=True))
def test_any_gaps_keep_the_ids(tmp_path: Path, ids: list[int]) -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens({f"<{id_}>": id_ for id_ in ids})
    tokenizer.save(tmp_path, verbose=False)
    core = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert core.get_vocab() == tokenizer.get_vocab()
    assert BPETokenizer.from_pretrained(tmp_path, verbose=False) == tokenizer


def test_roles_are_carried_over(tmp_path: Path) -> None:
    tokenizer = trained(special=[*ROLES, "<other>"])
    _, auto = both(tokenizer, tmp_path)
    for role in ("bos", "eos", "pad", "unk"):
        assert getattr(auto, f"{role}_token") == getattr(tokenizer, f"{role}_token") is not None
        assert getattr(auto, f"{role}_token_id") == getattr(tokenizer, f"{role}_token_id")
    assert set(auto.all_special_tokens) == set(tokenizer.special_tokens)
    assert set(auto.all_special_ids) == set(tokenizer.special_tokens.values())
    assert auto.model_input_names == ["input_ids", "attention_mask"]


def test_roles_that_are_not_set_are_not_invented(tmp_path: Path) -> None:
    tokenizer = BPETokenizer()
    core, auto = both(tokenizer, tmp_path)
    assert [auto.bos_token, auto.eos_token, auto.pad_token, auto.unk_token] == [None] * 4
    assert len(auto) == 256
    assert_same(tokenizer, core, auto, SAMPLE)


def test_bos_and_eos_are_put_around_a_text_by_all(tmp_path: Path) -> None:
    tokenizer = trained()
    core, auto = both(tokenizer, tmp_path)
    ids = tokenizer.encode("a b", add_special_tokens=True)
    assert (ids[0], ids[-1]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert core.encode("a b").ids == auto("a b")["input_ids"] == ids
    tokenizer.bos_token = None
    core, auto = both(tokenizer, tmp_path)
    ids = tokenizer.encode("a b", add_special_tokens=True)
    assert ids == [*tokenizer.encode("a b"), tokenizer.eos_token_id]
    assert core.encode("a b").ids == auto("a b")["input_ids"] == ids


@pytest.mark.parametrize("surround", ["bos+eos", "bos", "eos", "none"])
def test_what_goes_around_a_text_is_carried_over(tmp_path: Path, surround: str) -> None:
    tokenizer = trained(surround=surround)
    core, auto = both(tokenizer, tmp_path)
    for text in (SAMPLE, "", "<s>a</s>"):
        assert_same(tokenizer, core, auto, text)
    ids = tokenizer("a", add_special_tokens=True)
    assert [tokenizer.bos_token_id in ids, tokenizer.eos_token_id in ids] == [
        "bos" in surround,
        "eos" in surround,
    ]
    # transformers writes it, and both read that.
    auto.save_pretrained(tmp_path / "again")
    again = BPETokenizer.from_pretrained(tmp_path / "again", verbose=False)
    assert again.encode("a b", add_special_tokens=True) == auto("a b")["input_ids"]
    pair = core.encode("a", "b").ids
    assert len(pair) == 2 + 2 * len(tokenizer.encode("", add_special_tokens=True))


def test_roles_that_are_given_after_training_are_carried_over(tmp_path: Path) -> None:
    tokenizer = trained(special=["<a>", "<z>"])
    core, auto = both(tokenizer, tmp_path)
    assert_same(tokenizer, core, auto, "a b")
    tokenizer.bos_token, tokenizer.eos_token = "<a>", "<z>"
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("", True)) == ["<a>", "<z>"]
    core, auto = both(tokenizer, tmp_path)
    assert_same(tokenizer, core, auto, "a b")


def test_a_chat_template_is_carried_over(tmp_path: Path) -> None:
    need("jinja2")
    tokenizer = trained()
    tokenizer.chat_template = "{% for m in messages %}<s>{{ m['content'] }}</s>{% endfor %}"
    _, auto = both(tokenizer, tmp_path)
    assert auto.chat_template == tokenizer.chat_template
    text = auto.apply_chat_template([{"role": "user", "content": "Hi é"}], tokenize=False)
    assert text == "<s>Hi é</s>"
    assert BPETokenizer.from_pretrained(tmp_path, verbose=False) == tokenizer
    tokenizer.chat_template = None
    _, auto = both(tokenizer, tmp_path)
    assert auto.chat_template is None
    assert BPETokenizer.from_pretrained(tmp_path, verbose=False).chat_template is None


def test_added_tokens_keep_their_flags(tmp_path: Path) -> None:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    combinations = list(itertools.product([False, True], repeat=5))
    tokens = [
        AddedToken(f"<{i}>z", **dict(zip(names, flags))) for i, flags in enumerate(combinations)
    ]
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(tokens)
    core, auto = both(tokenizer, tmp_path)
    for token in tokens:
        kept = auto.added_tokens_decoder[tokenizer.convert_tokens_to_ids(token.content)]
        assert [getattr(kept, name) for name in names] == [getattr(token, name) for name in names]
        for text in (
            f"a {token.content} b",
            f"a{token.content}b",
            f"\n{token.content}{token.content}",
        ):
            assert_ids_same(tokenizer, core, auto, text)


def assert_ids_same(tokenizer: BPETokenizer, core: Any, auto: Any, text: str) -> None:
    ids = tokenizer.encode(text, allowed_special="all")
    assert core.encode(text).ids == auto.encode(text) == ids


def test_what_transformers_saves_again_loads_here(tmp_path: Path) -> None:
    tokenizer = trained(special=PLACES["inside"])
    _, auto = both(tokenizer, tmp_path / "ours")
    auto.save_pretrained(str(tmp_path / "theirs"))
    back = BPETokenizer.from_pretrained(tmp_path / "theirs", verbose=False)
    assert back.get_vocab() == tokenizer.get_vocab()
    assert back.special_tokens == tokenizer.special_tokens
    assert (back.bos_token, back.eos_token) == (tokenizer.bos_token, tokenizer.eos_token)
    assert (back.pad_token, back.unk_token) == (tokenizer.pad_token, tokenizer.unk_token)
    for text in (SAMPLE, "<s>a</s>"):
        for special in (True, False):
            assert back.encode(text, special, "all") == tokenizer.encode(text, special, "all")


def test_huggingface_training_agrees(tmp_path: Path) -> None:
    tokenizer = trained("gpt2", special=None, normalizer=None)
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    theirs.train_from_iterator([SAMPLE * 3], trainer)
    core, _ = both(tokenizer, tmp_path)
    assert [core.id_to_token(i) for i in range(256, 400)] == [
        theirs.id_to_token(i) for i in range(256, 400)
    ]


@pytest.mark.parametrize("padding", [True, "max_length"])
def test_padded_batches_agree(tmp_path: Path, padding: Any) -> None:
    tokenizer = trained()
    _, auto = both(tokenizer, tmp_path)
    texts = [SAMPLE, "a", ""]
    options = {"padding": padding, "truncation": True, "max_length": 12}
    expected = auto(texts, **options)
    batch = tokenizer.encode_batch(texts, add_special_tokens=True, **options)
    assert batch.input_ids == expected["input_ids"]
    assert batch.attention_mask == expected["attention_mask"]


def test_from_huggingface_reads_a_local_directory(tmp_path: Path) -> None:
    tokenizer = trained()
    tokenizer.save(tmp_path, verbose=False)
    assert BPETokenizer.from_huggingface(tmp_path, verbose=False) == tokenizer
    assert BPETokenizer.from_huggingface(str(tmp_path), verbose=False) == tokenizer
