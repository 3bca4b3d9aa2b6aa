"""BPE-dropout: against HuggingFace's by how often each result comes, and C against Python."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpe_tokenizer import BPETokenizer, _Encoder
from bpe_tokenizer_tools.support import dropout as spec

TEXT = "low lower lowest newest widest, slow and slower; the lowest of them all. " * 4
ANY_TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("lowerst "), max_size=60
)
PATTERNS = ["gpt2", "o200k", r"(?:\w|\s(?=\w))+|\s+|[^\w\s]+"]


@pytest.fixture(scope="module", params=PATTERNS)
def tokenizer(engine: str, request: pytest.FixtureRequest) -> BPETokenizer:
    made = BPETokenizer(request.param)
    return made.train(TEXT, 300, special_tokens=["<s>", "</s>"], verbose=False, num_workers=1)


def counts_alike(ours: Counter[Any], theirs: Counter[Any]) -> bool:
    """Return whether two samples of one size may come from one distribution, by chi-square.

    The bound lies ten standard deviations above what is expected of equal distributions.
    """
    both = ours + theirs
    often = [each for each in both if both[each] >= 20]
    pairs = [(ours[each], theirs[each]) for each in often]
    rare = [sum(n for each, n in sample.items() if each not in often) for sample in (ours, theirs)]
    pairs += [(rare[0], rare[1])] if sum(rare) >= 20 else []
    chi_square = sum((a - b) ** 2 / (a + b) for a, b in pairs)
    freedom = max(1, len(pairs) - 1)
    return bool(chi_square < freedom + 10 * (2 * freedom) ** 0.5)


def samples(encode: Any, text: str, n: int = 6_000) -> Counter[tuple[int, ...]]:
    return Counter(tuple(encode(text)) for _ in range(n))


def test_the_check_finds_a_difference(tokenizer: BPETokenizer) -> None:
    def at(dropout: float) -> Counter[Any]:
        return samples(lambda text: tokenizer.encode(text, dropout=dropout), " lowest")

    assert counts_alike(at(0.3), at(0.3))
    assert not counts_alike(at(0.3), at(0.36))


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("text", [" lowest", "lllllll", "slow slower"])
def test_distributed_as_huggingface(tokenizer: BPETokenizer, text: str, dropout: float) -> None:
    theirs = tokenizer.to_hf()
    theirs.model.dropout = dropout
    assert counts_alike(
        samples(lambda text: tokenizer.encode(text, dropout=dropout), text),
        samples(lambda text: theirs.encode(text, add_special_tokens=False).ids, text),
    )


def test_components_too(engine: str) -> None:
    tokenizer = BPETokenizer().train(TEXT, 320, style="sentencepiece", verbose=False)
    theirs = tokenizer.to_hf()
    theirs.model.dropout = 0.3
    assert tokenizer.components is not None
    assert counts_alike(
        samples(lambda text: tokenizer.encode(text, dropout=0.3), "the lowest"),
        samples(lambda text: theirs.encode(text, add_special_tokens=False).ids, "the lowest"),
    )


@given(text=ANY_TEXT, dropout=st.floats(0.001, 1), seed=st.integers(0, 2**70))
def test_draw_for_draw(tokenizer: BPETokenizer, text: str, dropout: float, seed: int) -> None:
    ids = tokenizer.encode(text, dropout=dropout, seed=seed)
    assert tokenizer.encode(text, dropout=dropout, seed=seed) == ids
    assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(text))
    python = spec.dropping(_Encoder(tokenizer.definition), dropout, seed)
    prepared = tokenizer._pipeline(frozenset()).normalize(text)
    assert python.encode(prepared) == ids


def test_the_ends_of_the_range(tokenizer: BPETokenizer) -> None:
    assert tokenizer.encode(TEXT, dropout=0) == tokenizer.encode(TEXT)
    assert tokenizer.encode(TEXT, dropout=1e-16) == tokenizer.encode(TEXT)
    vocab = tokenizer.definition.vocab
    assert tokenizer.encode("low é", dropout=1) == [vocab[bytes([b])] for b in "low é".encode()]


def test_seeds(tokenizer: BPETokenizer) -> None:
    def cut(seed: int | None) -> tuple[int, ...]:
        return tuple(tokenizer.encode(TEXT, dropout=0.5, seed=seed))

    assert cut(7) == cut(7)
    assert len({cut(seed) for seed in range(10)}) == len({cut(None) for _ in range(10)}) == 10


def test_around_special_tokens(tokenizer: BPETokenizer) -> None:
    options: dict[str, Any] = {"allowed_special": "all", "add_special_tokens": True}
    ids = tokenizer.encode("lowest</s>low", **options, dropout=1)
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    vocab = tokenizer.definition.vocab
    lowest, low = ([vocab[bytes([b])] for b in text] for text in (b"lowest", b"low"))
    assert ids == [bos, *lowest, eos, *low, eos]
    assert tokenizer.tokenize("low", dropout=1) == ["l", "o", "w"]


def test_a_whole_token_is_cut_too(engine: str) -> None:
    """`ignore_merges` holds without dropout only, as in HuggingFace's."""
    tokenizer = BPETokenizer().train(TEXT, 300, verbose=False)
    data = json.loads(tokenizer.to_hf().to_str())
    data["model"]["ignore_merges"] = True
    from tokenizers import Tokenizer

    theirs = Tokenizer.from_str(json.dumps(data))
    theirs.model.dropout = 1.0
    ours = BPETokenizer.from_hf(Tokenizer.from_str(json.dumps(data)))
    assert ours.definition.ignore_merges
    assert (
        ours.encode("lowest", dropout=1)
        == theirs.encode("lowest").ids
        == list(map(ours.definition.vocab.__getitem__, (b"l", b"o", b"w", b"e", b"s", b"t")))
    )


@pytest.mark.parametrize("dropout", [-0.1, 1.1, float("nan"), "much", [0.1]])
def test_what_is_no_probability(tokenizer: BPETokenizer, dropout: Any) -> None:
    with pytest.raises(ValueError, match="dropout must be a number from 0 to 1, got "):
        tokenizer.encode("low", dropout=dropout)


def test_what_is_no_seed(tokenizer: BPETokenizer) -> None:
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        tokenizer.encode("low", dropout=0.5, seed=-1)
    with pytest.raises(TypeError, match=r"seed must be an int, got 0\.5"):
        tokenizer.encode("low", dropout=0.5, seed=0.5)  # type: ignore[arg-type]


def test_what_has_no_utf8_form(tokenizer: BPETokenizer) -> None:
    with pytest.raises(ValueError, match=r"the lone surrogate U\+D800 at character 2"):
        tokenizer.encode("lo\ud800", dropout=0.5)
