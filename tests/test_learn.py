"""The algorithms made plain: they learn, and give, what the real engine does."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import oracles
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.formats import ranks as real_ranks
from bpe_tokenizer_tools.learn import ranks
from bpe_tokenizer_tools.learn.basic import BasicTokenizer
from bpe_tokenizer_tools.learn.split import SplitTokenizer
from bpe_tokenizer_tools.learn.words import END, UNKNOWN, WordTokenizer

LEARN = Path(ranks.__file__).parent

# Few letters: ties everywhere, pairs that overlap themselves, tokens made in two ways.
few_letters = st.text(alphabet="ab ", max_size=120) | st.text(alphabet="abcé\x00\xad.", max_size=80)
any_text = few_letters | st.text(max_size=60)


def train(pattern: str, text: str, vocab_size: int, specials: tuple[str, ...] = ()) -> BPETokenizer:
    """Train the real engine on one document."""
    tokenizer = BPETokenizer(pattern, normalizer=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a text that looks like a path
        return tokenizer.train(
            iter([text]), vocab_size, special_tokens=specials, verbose=False, num_workers=1
        )


def learned(tokenizer: BasicTokenizer) -> list[tuple[bytes, bytes]]:
    return [(tokenizer.tokens[left], tokenizer.tokens[right]) for left, right in tokenizer.merges]


@pytest.mark.parametrize("name", ["basic", "split", "words"])
def test_each_fits_on_a_page(name: str) -> None:
    assert len((LEARN / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 80


# -- On bytes -----------------------------------------------------------------


@given(few_letters, st.integers(256, 330), any_text)
@example("aaaa aaaaa aaaaaa aaaaaaa aaaaaaaaaaa" * 3, 300, "aaaaaaaaaaaaaaa")
def test_basic_is_the_real_engine_without_cutting(text: str, size: int, other: str) -> None:
    plain = BasicTokenizer().train(text, size)
    real = train(r"[\s\S]+", text, size)
    assert learned(plain) == real.merges
    assert plain.tokens == [real.decode_bytes([id_]) for id_ in range(real.vocab_size)]
    for each in (text, other):
        assert plain.encode(each) == real.encode(each)
        assert plain.decode(plain.encode(each)) == each


def test_basic_learns_the_same_of_real_text(corpora: Callable[[str], str]) -> None:
    text = corpora("multi")[500_000:503_000]
    plain, real = BasicTokenizer().train(text, 400), train(r"[\s\S]+", text, 400)
    assert learned(plain) == real.merges
    assert plain.encode(text) == real.encode(text)


def test_basic_decodes_half_a_character() -> None:
    assert BasicTokenizer().decode([0x61, 0xE2, 0x82]) == "a\ufffd"


# -- With a split pattern and special tokens ------------------------------------

SPECIALS = ("<|end|>", "<|", "ab")


@given(
    st.lists(few_letters | st.sampled_from(SPECIALS), max_size=8).map("".join),
    st.integers(259, 330),
    st.lists(any_text | st.sampled_from(SPECIALS), max_size=8).map("".join),
    st.sampled_from(["gpt2", "cl100k", r"\w+|\W+"]),
)
def test_split_is_the_real_engine(text: str, size: int, other: str, pattern: str) -> None:
    plain = SplitTokenizer(pattern, SPECIALS).train(text, size)
    real = train(pattern, text, size, SPECIALS)
    assert learned(plain) == real.merges
    assert plain.tokens == [real.decode_bytes([id_]) for id_ in range(real.vocab_size)]
    assert plain.special == real.special_tokens
    for allowed in ("none", "all"):
        for each in (text, other):
            assert plain.encode(each, allowed) == real.encode(each, allowed_special=allowed)
            assert plain.decode(plain.encode(each, allowed)) == each


def test_split_learns_the_same_of_real_text(corpora: Callable[[str], str]) -> None:
    text = corpora("english")[:20_000]
    special = ("<|endoftext|>",)
    plain = SplitTokenizer("cl100k", special).train(text, 500)
    real = train("cl100k", text, 500, special)
    assert learned(plain) == real.merges
    assert plain.encode(text, "all") == real.encode(text, allowed_special="all")


# -- On words -------------------------------------------------------------------


def huggingface(plain: WordTokenizer) -> Any:
    """Give HuggingFace's engine the same merges."""
    library = oracles.need("tokenizers")
    model = library.models.BPE(plain.vocab, plain.merges, unk_token=UNKNOWN, end_of_word_suffix=END)
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = library.decoders.BPEDecoder(suffix=END)
    return tokenizer


word_text = st.lists(st.text(alphabet="abcé", min_size=1, max_size=7), max_size=20).map(" ".join)


@given(word_text, st.integers(1, 60), word_text | st.text(alphabet="abxy \n\t.", max_size=40))
def test_words_are_what_huggingface_makes_of_them(text: str, size: int, other: str) -> None:
    plain = WordTokenizer().train(text, size)
    assert list(plain.vocab) == [UNKNOWN, *sorted(set(plain.vocab) - {UNKNOWN})]
    assert list(plain.vocab.values()) == list(range(len(plain.vocab)))
    peer = huggingface(plain)
    for each in (text, other):
        encoded = peer.encode(each)
        assert plain.tokenize(each) == encoded.tokens
        assert plain.encode(each) == encoded.ids
    assert (
        plain.decode(plain.encode(text))
        == " ".join(text.split())
        == peer.decode(plain.encode(text), skip_special_tokens=False)
    )


@given(word_text, st.integers(1, 60), word_text)
@settings(max_examples=30)
def test_words_are_what_the_real_engine_makes_of_them(
    tmp_path: Path, text: str, size: int, other: str
) -> None:
    plain = WordTokenizer().train(text, size)
    huggingface(plain).save(str(tmp_path / "tokenizer.json"))
    assert BPETokenizer.from_file(tmp_path / "tokenizer.json").encode(other) == plain.encode(other)


def train_naively(text: str, size: int) -> tuple[list[tuple[str, str]], set[str]]:
    """Learn merges as the paper's listing does: by regular expression, on a dict of words."""
    words: dict[str, int] = {}
    for word in text.split():
        spelt = " ".join(word) + END
        words[spelt] = words.get(spelt, 0) + 1
    symbols = {symbol for word in words for symbol in word.split()}
    merges: list[tuple[str, str]] = []
    while len(symbols) + 1 < size:
        pairs: dict[tuple[str, str], int] = {}
        for word, count in words.items():
            parts = word.split()
            for i in range(len(parts) - 1):
                pairs[parts[i], parts[i + 1]] = pairs.get((parts[i], parts[i + 1]), 0) + count
        best = sorted(pairs, key=lambda pair: (-pairs[pair], pair))[:1]
        if not best or pairs[best[0]] < 2:
            break
        merges.append(best[0])
        symbols.add("".join(best[0]))
        bigram = re.compile(rf"(?<!\S){re.escape(' '.join(best[0]))}(?!\S)")
        words = {bigram.sub("".join(best[0]), word): count for word, count in words.items()}
    return merges, symbols


@given(word_text, st.integers(1, 60))
def test_words_are_learned_as_in_the_paper(text: str, size: int) -> None:
    plain = WordTokenizer().train(text, size)
    merges, symbols = train_naively(text, size)
    assert plain.merges == merges
    assert set(plain.vocab) == symbols | {UNKNOWN}


def test_the_example_of_the_paper() -> None:
    text = "low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3
    plain = WordTokenizer().train(text, 16)
    assert plain.merges[:4] == [("e", "s"), ("es", "t</w>"), ("l", "o"), ("e", "w")]
    assert plain.tokenize("lowest lot") == ["lo", "w", "est</w>", "lo", "t</w>"]


def test_letters_never_seen_are_unknown() -> None:
    plain = WordTokenizer().train("low low", 10)
    assert plain.tokenize("slow law") == [UNKNOWN, "low</w>", "l", UNKNOWN, "w</w>"]
    assert plain.decode(plain.encode("law low")) == "l<unk>w low"


# -- Ranks ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["r50k_base", "cl100k_base"])
def test_merges_of_a_published_file(vocab_dir: Path, name: str) -> None:
    published = ranks.read_ranks(vocab_dir / f"{name}.tiktoken")
    merges = ranks.recover_merges(published)
    assert merges == real_ranks.recover_merges(published)
    assert len(merges) == len(published) - 256
    assert [published[left + right] for left, right in merges] == sorted(published.values())[256:]


def test_first_merges_of_r50k_are_those_of_gpt2(vocab_dir: Path) -> None:
    """The first lines of GPT-2's own merges.txt, after its line of version."""
    published = ranks.read_ranks(vocab_dir / "r50k_base.tiktoken")
    first = {token: rank for token, rank in published.items() if rank < 276}
    spelt = ["".join(" " if char == "Ġ" else char for char in pair) for pair in GPT2.split("|")]
    found = [f"{left.decode()} {right.decode()}" for left, right in ranks.recover_merges(first)]
    assert found == spelt


GPT2 = "Ġ t|Ġ a|h e|i n|r e|o n|Ġt he|e r|Ġ s|a t|Ġ w|Ġ o|e n|Ġ c|i t|i s|a n|o r|e s|Ġ b"


@given(st.lists(st.binary(min_size=2, max_size=6), unique=True, max_size=30), st.randoms())
def test_merges_of_any_ranks(tokens: list[bytes], rng: random.Random) -> None:
    alphabet = sorted({bytes([byte]) for token in tokens for byte in token})
    made = {token: rank for rank, token in enumerate([*alphabet, *tokens])}
    assert ranks.recover_merges(made) == real_ranks.recover_merges(made)
    data = b"".join(rng.choices([*alphabet, *tokens], k=8)) if made else b""
    everything = len(made)
    assert b"".join(ranks.encode(data, made, everything)) == data


def test_a_token_that_nothing_makes_has_no_merge() -> None:
    assert ranks.recover_merges({b"a": 0, b"b": 1, b"c": 2, b"abc": 3}) == []
