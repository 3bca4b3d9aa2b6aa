"""HuggingFace's layout of a new vocabulary: the special tokens, the bytes, the merges."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from conftest import run_command
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer
from bpe_tokenizer import AddedToken, BPETokenizer, count_pretokens

TEXT = "low lower lowest newer wider, é 世界 don't 123\n" * 9
SPECIAL = {"<s>": 0, "</s>": 1}

# Few letters, so that most pairs tie; "\n", "é" and the space aren't where their bytes are.
words = st.text("ab\né ", min_size=1, max_size=9) | st.sampled_from(
    ["aaaa", "abab", "世世", "\n\n"]
)
documents = st.lists(st.lists(words, min_size=1, max_size=8).map(" ".join), min_size=1, max_size=4)


def train(corpus: Any = TEXT, vocab_size: int = 300, **options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer("gpt2", normalizer=options.pop("normalizer", None))
    options = {"num_workers": 1, "min_frequency": 1, "verbose": False, **options}
    return tokenizer.train(corpus, vocab_size, **options)


def huggingface(
    corpus: Iterable[str], vocab_size: int, min_frequency: int, special_tokens: Iterable[str]
) -> Any:
    """Train with HuggingFace's trainer."""
    tokenizers = need("tokenizers")
    level = tokenizers.pre_tokenizers.ByteLevel
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = level(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(special_tokens),
        initial_alphabet=level.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(corpus, trainer)
    return model


def printable_merges(tokenizer: BPETokenizer) -> list[list[str]]:
    forward = bpe_tokenizer.build_byte_to_char()
    return [["".join(forward[b] for b in part) for part in pair] for pair in tokenizer.merges]


def check_same(ours: BPETokenizer, theirs: Any, texts: Iterable[str]) -> None:
    assert ours.get_vocab() == theirs.get_vocab()
    assert printable_merges(ours) == json.loads(theirs.to_str())["model"]["merges"]
    for text in texts:
        ids = theirs.encode(text).ids
        assert ours.encode(text, allowed_special="all") == ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


# -- As HuggingFace's trainer numbers them ------------------------------------


@settings(max_examples=examples(150))
@given(
    corpus=documents,
    special=st.lists(st.sampled_from(["<s>", "</s>", "<pad>", "世!", "[MASK]"]), unique=True),
    n_tokens=st.integers(1, 60),
    min_frequency=st.integers(0, 3),
    texts=st.lists(hard_text | words, max_size=4),
)
def test_equals_huggingface(
    corpus: list[str], special: list[str], n_tokens: int, min_frequency: int, texts: list[str]
) -> None:
    size = 256 + len(special) + n_tokens
    theirs = huggingface(corpus, size, min_frequency, special)
    options: Any = {"min_frequency": min_frequency, "special_tokens": special}
    ours = train(iter(corpus), size, special_tokens_first=True, **options)
    check_same(ours, theirs, [*corpus, *texts, "a".join([*special, ""])])


@pytest.mark.parametrize("name", ["english", "code", "multi"])
def test_equals_huggingface_on_real_text(corpora: Callable[[str], str], name: str) -> None:
    text = corpora(name)[:60_000].replace("<|endoftext|>", "\n")  # there, text isn't cut at it
    theirs = huggingface([text], 1_500, 2, SPECIAL)
    ours = train(iter([text]), 1_500, min_frequency=2, special_tokens=SPECIAL)
    check_same(ours, theirs, [text, f"<s>{text[:99]}</s>"])
    assert (ours.bos_token_id, ours.eos_token_id) == (0, 1)


def test_the_bytes_are_sorted_by_their_printable_characters() -> None:
    tokenizer = train(special_tokens=SPECIAL)
    forward = bpe_tokenizer.build_byte_to_char()
    assert tokenizer.convert_ids_to_tokens([*range(2, 258)]) == sorted(forward.values())
    assert tokenizer.convert_ids_to_tokens([0, 1, 2, 257]) == ["<s>", "</s>", "!", forward[0xAD]]
    assert tokenizer.encode("!\n") == [2, tokenizer.convert_tokens_to_ids("Ċ")]
    assert min(set(tokenizer.get_vocab().values()) - {*range(258)}) == 258


# -- How to ask for it --------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"special_tokens": {"<s>": 0, "</s>": 1}},
        {"special_tokens": {"</s>": 1, "<s>": 0}},
        {"special_tokens": {"<s>": 0, "</s>": 1}, "special_tokens_first": True},
        {"special_tokens": {"<s>": None, "</s>": 1}, "special_tokens_first": True},
        {"special_tokens": ["<s>", "</s>"], "special_tokens_first": True},
        {
            "special_tokens": [AddedToken("</s>", 1), AddedToken("<s>")],
            "special_tokens_first": True,
        },
        {"special_tokens": [AddedToken("</s>", 1), AddedToken("<s>", 0)]},
    ],
)
def test_ways_to_ask(given: dict[str, Any]) -> None:
    assert train(**given) == train(special_tokens=SPECIAL)


def test_others_keep_their_places() -> None:
    special = {**SPECIAL, "<x>": 260, "<far>": 1_000, "<end>": None}
    tokenizer = train(vocab_size=290, special_tokens=special)
    assert tokenizer.special_tokens == {**special, "<end>": 288}
    plain = train(vocab_size=287, special_tokens=SPECIAL)
    assert tokenizer.merges == plain.merges
    assert tokenizer.convert_tokens_to_ids("!") == 2
    assert tokenizer.vocab_size == 290 and tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


def test_without_special_tokens_only_the_bytes_differ() -> None:
    tokenizer = train(special_tokens_first=True)
    check_same(tokenizer, huggingface([TEXT], 300, 1, []), [TEXT])
    assert tokenizer.encode("!") == [0]
    assert train().encode("!") == [ord("!")]


def test_tokens_with_flags() -> None:
    tokens = [AddedToken("<mask>", lstrip=True), AddedToken("<word>", special=False)]
    tokenizer = train(special_tokens=tokens, special_tokens_first=True)
    assert [(t.content, t.id, t.lstrip, t.special) for t in tokenizer.added_tokens] == [
        ("<mask>", 0, True, True),
        ("<word>", 1, False, False),
    ]
    assert tokenizer.encode("a  <mask>", allowed_special="all")[-1] == 0


@pytest.mark.parametrize(
    ("special", "first", "message"),
    [
        ({"<s>": 5}, False, "'<s>': id 5 is that of a byte; give ids without a gap from 0 on"),
        ({"<s>": 255}, False, "or from 256 on, or leave them out"),
        ({"<s>": 0, "</s>": 2}, False, "'</s>': id 2 is that of a byte"),
        ({"<s>": 0, "<x>": 256}, False, "id 256 is that of a byte; .* or from 257 on"),
        ({"<s>": 0, "</s>": 0}, False, "'</s>': id 0 is already that of '<s>'"),
        ({"<s>": 0, "a": 1}, False, "'a' is already a token"),
        ({"<s>": 5}, True, "id 5 isn't one of the first, which go from 0 on without a gap"),
        ({"<s>": 0, "<far>": 1_000}, True, "'<far>': id 1000 isn't one of the first"),
        (["<s>", "<s>"], True, "'<s>' is already a token"),
    ],
)
def test_what_is_not_this_layout_is_refused(special: Any, first: bool, message: str) -> None:
    tokenizer = train()
    with pytest.raises(ValueError, match=message):
        tokenizer.train(TEXT, 300, special_tokens=special, special_tokens_first=first)
    assert tokenizer == train()
    with pytest.raises(TypeError, match="special_tokens_first must be True or False, got 1"):
        tokenizer.train(TEXT, 300, special_tokens_first=1)  # type: ignore[arg-type]


def test_added_later_they_are_not_first() -> None:
    with pytest.raises(ValueError, match="id 0 is already that of"):
        train().add_special_tokens({"<s>": 0})
    assert train().add_special_tokens(["<s>"]) == 1


def test_training_again_keeps_the_layout() -> None:
    tokenizer = train(special_tokens=SPECIAL)
    tokenizer.train(TEXT[::-1], 310, special_tokens=["<pad>"], min_frequency=1, verbose=False)
    assert tokenizer.special_tokens == {**SPECIAL, "<pad>": tokenizer.max_id}
    assert tokenizer.encode("!") == [2]
    tokenizer = train(special_tokens=SPECIAL)
    again: Any = {"special_tokens_first": True, "min_frequency": 1, "verbose": False}
    tokenizer.train(TEXT, 310, special_tokens=["<pad>"], **again)
    assert tokenizer == train(vocab_size=310, special_tokens={**SPECIAL, "<pad>": 2})
    # Tokens that were added behind the merges are in the way of more bytes, or aren't.
    tokenizer = train(special_tokens={"<x>": 256})
    with pytest.raises(ValueError, match="'<x>': id 256 is that of a byte"):
        tokenizer.train(TEXT, 310, special_tokens=SPECIAL, verbose=False)
    tokenizer = train(special_tokens={"<x>": 299})
    tokenizer.train(TEXT, 310, special_tokens=SPECIAL, verbose=False)
    assert tokenizer.special_tokens == {**SPECIAL, "<x>": 299}


def test_counts_workers_and_limits(tmp_path: Path) -> None:
    expected = train(special_tokens=SPECIAL)
    counts = count_pretokens(TEXT, special_tokens=SPECIAL, normalizer=None)
    assert train(None, counts=counts, special_tokens=SPECIAL) == expected
    assert train(None, counts=dict(counts), special_tokens=SPECIAL) == expected
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    assert train(tmp_path / "text.txt", special_tokens=SPECIAL, num_workers=2) == expected
    with pytest.raises(ValueError, match=r"at least 259 \(256 bytes, 2 special tokens, and room"):
        train(vocab_size=258, special_tokens=SPECIAL)


def test_rules_for_ties() -> None:
    # HuggingFace's rule is that of the smallest ids, as HuggingFace numbers them.
    expected = train(special_tokens=SPECIAL)
    assert train(special_tokens=SPECIAL, ties="smallest-ids") == expected
    assert train(ties="smallest-ids").merges != expected.merges
    for ties in ("greatest", "greatest-printable", "first"):
        merges = train(vocab_size=298, ties=ties).merges
        assert train(special_tokens=SPECIAL, ties=ties).merges == merges


# -- What is done with such a tokenizer ---------------------------------------


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    tokenizer = train(special_tokens=SPECIAL)
    text = f"<s>{TEXT}</s>!"
    ids = tokenizer.encode(text, allowed_special="all", add_special_tokens=True)
    tokenizer.save(tmp_path, verbose=False)
    loaded = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    assert loaded == tokenizer != train(special_tokens=list(SPECIAL))
    assert loaded.fingerprint == tokenizer.fingerprint
    assert pickle.loads(pickle.dumps(tokenizer)) == copy.deepcopy(tokenizer) == tokenizer
    assert loaded.encode(text, allowed_special="all", add_special_tokens=True) == ids
    assert loaded.decode(ids, skip_special_tokens=True) == TEXT + "!"
    automatic = need("transformers").AutoTokenizer.from_pretrained(tmp_path)
    theirs = need("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.get_vocab() == tokenizer.get_vocab()
    assert [0, *theirs.encode(text, add_special_tokens=False).ids, 1] == ids
    assert automatic(text, add_special_tokens=False).input_ids == ids[1:-1]
    assert automatic.bos_token_id == 0


def test_what_huggingface_saved_is_the_same(tmp_path: Path) -> None:
    theirs = huggingface([TEXT], 300, 1, SPECIAL)
    theirs.save(str(tmp_path / "tokenizer.json"))
    loaded = BPETokenizer.from_file(tmp_path / "tokenizer.json")
    ours = train(special_tokens=SPECIAL)
    assert loaded.get_vocab() == ours.get_vocab() and loaded.merges == ours.merges
    assert loaded.special_tokens == ours.special_tokens


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("tiktoken", "x.tiktoken"),
        ("gguf", "x.gguf"),
        ("gpt2", "folder"),
        ("tokenizer.json", "x.json"),
    ],
)
def test_other_formats(form: str, name: str, tmp_path: Path) -> None:
    tokenizer = train(special_tokens=SPECIAL)
    tokenizer.export(tmp_path / name, form)
    loaded = BPETokenizer.from_file(tmp_path / name)
    text = f"<s>{TEXT}</s>!"
    ids = tokenizer.encode(text, allowed_special="all")
    assert loaded.encode(text, allowed_special="all") == ids
    assert loaded.get_vocab() == tokenizer.get_vocab()


def test_other_libraries() -> None:
    for library in ("tiktoken", "tokenizers", "transformers"):
        need(library)
    tokenizer = train(special_tokens=SPECIAL)
    text = f"<s>{TEXT}</s>!"
    ids = tokenizer.encode(text, allowed_special="all")
    assert tokenizer.to_tiktoken().encode(text, allowed_special="all") == ids
    assert tokenizer.to_hf().encode(text, add_special_tokens=False).ids == ids
    assert tokenizer.to_transformers()(text, add_special_tokens=False).input_ids == ids
    assert tokenizer.as_tokenizers().encode(text, add_special_tokens=False).ids == ids


def test_it_is_cut_down_extended_and_pruned() -> None:
    tokenizer = train(vocab_size=290, special_tokens=SPECIAL)
    smaller = tokenizer.with_vocab_size(270)
    assert smaller == train(vocab_size=270, special_tokens=SPECIAL)
    counts = count_pretokens(TEXT, special_tokens=SPECIAL, normalizer=None)
    extended = smaller.extend(counts=counts, add=20, min_frequency=1, verbose=False)
    assert extended == tokenizer
    pruned = tokenizer.prune(counts=counts, vocab_size=280, verbose=False).tokenizer
    assert pruned.special_tokens == SPECIAL and pruned.encode("!") == [2]
    assert pruned.decode(pruned.encode(TEXT)) == TEXT


# -- Other ways to train ------------------------------------------------------


def test_superwords_and_parity() -> None:
    text = "in a way by the way, the cat sat on the mat. " * 20
    for rule in ("superbpe", "boundless"):
        plain = train(text, 298, superwords={"transition": 278, "rule": rule})
        how: Any = {"superwords": {"transition": 280, "rule": rule}}
        made = train(text, special_tokens=["<s>", "</s>"], special_tokens_first=True, **how)
        assert made.special_tokens == SPECIAL and made.encode("!") == [2]
        assert made.merges == plain.merges and len(made.merges) > 278 - 256
        assert made == train(text, special_tokens=SPECIAL, **how)
    parity = {"a": [TEXT], "b": ["über die Brücke " * 9]}
    made = train(None, special_tokens=SPECIAL, parity=parity)
    assert made.special_tokens == SPECIAL and made.encode("!") == [2]
    assert made.merges == train(None, 298, parity=parity).merges


def test_sentencepieces_style_refuses_it() -> None:
    with pytest.raises(ValueError, match="special_tokens_first works only with style='byte-level'"):
        train(special_tokens_first=True, style="sentencepiece")


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    command = ["train", "--corpus", tmp_path / "text.txt", "--vocab-size", 280, "--quiet"]
    command += ["--normalizer", "none", "--min-frequency", 1]
    given = (
        ("--special-tokens", "<s>", "</s>", "--special-tokens-first"),
        ("--special-tokens", "<s>=0", "</s>=1"),
    )
    for n, options in enumerate(given):
        folder = tmp_path / str(n)
        assert run_command(capsys, *command, *options, "--output", folder) == (0, "", "")
        made = BPETokenizer.from_pretrained(folder, verbose=False)
        assert made == train(vocab_size=280, special_tokens=SPECIAL)
    options = ("--special-tokens", "<s>=5", "--output", tmp_path / "x")
    status, _, err = run_command(capsys, *command, *options)
    assert (status, "id 5 is that of a byte; give ids without a gap from 0" in err) == (1, True)
    style = ("--style", "sentencepiece", "--special-tokens-first", "--output", tmp_path / "x")
    status, _, err = run_command(capsys, *command[:5], *style)
    assert (status, "works only with style='byte-level'" in err) == (1, True)
    alike = ("train", "--parity", f"a={tmp_path / 'text.txt'}", f"b={tmp_path / 'text.txt'}", "-q")
    options = (*given[0], "--vocab-size", 280, "--output", tmp_path / "alike")
    assert run_command(capsys, *alike, *options) == (0, "", "")
    alike_made = BPETokenizer.from_pretrained(tmp_path / "alike", verbose=False)
    assert alike_made.special_tokens == SPECIAL and alike_made.encode("!") == [2]
    status, _, err = run_command(
        capsys, *command[:3], "--vocab-size", 256, "--output", tmp_path / "x"
    )
    assert (status, "vocab_size must be at least 257" in err) == (1, True)
