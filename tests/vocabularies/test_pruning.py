"""Pruning a vocabulary: against a naive pruner and encoder, and what is saved."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import reference
from hard_text import ATOMS, hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, Definition, count_pretokens
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.vocabularies import Pruned, prune

pytestmark = pytest.mark.filterwarnings("ignore:.*looks like a path")

TEXT = (
    "low lower lowest, new newer newest; the cat sat on the mat. Grüße! 12 123 "
    "Merges are learned from the pairs that text has most often, and tokens are what they make. "
) * 9
few_letters = st.text("abc ", min_size=1, max_size=12)
# With a line break at its end, no text is the name of a file or directory, such as "/".
corpora = st.lists((few_letters | hard_text).map("{}\n".format), min_size=1, max_size=12)


def trained(size: int = 320, pattern: str = "gpt2", **options: object) -> BPETokenizer:
    tokenizer = BPETokenizer(pattern)
    return tokenizer.train(TEXT, vocab_size=size, verbose=False, **options)  # type: ignore[arg-type]


def left_of(tokenizer: BPETokenizer, pruned: Pruned) -> list[tuple[bytes, bytes]]:
    gone = set(pruned.removed)
    return [(left, right) for left, right in tokenizer.merges if left + right not in gone]


def check_mapped(old: BPETokenizer, pruned: Pruned) -> None:
    """The map leads from each old token to the same one, and to ids without gaps."""
    new, old_tokens = pruned.tokenizer, core.tokens(old)
    assert len(pruned.id_map) == old.max_id + 1
    kept = [id_ for id_ in pruned.id_map if id_ >= 0]
    assert kept == list(range(new.vocab_size))
    for id_, new_id in enumerate(pruned.id_map):
        if new_id >= 0:
            assert core.tokens(new)[new_id] == old_tokens[id_]
        else:
            assert id_ not in old_tokens or old_tokens[id_] in pruned.removed


@settings(max_examples=examples(100), deadline=None)
@given(corpora, corpora, st.integers(1, 30), st.integers(0, 30), hard_text)
def test_what_goes_and_what_is_left_is_what_a_naive_pruner_says(
    first: list[str], second: list[str], n_merges: int, n_removed: int, text: str
) -> None:
    counts = count_pretokens(first, normalizer=None)
    old = BPETokenizer(normalizer=None)
    old.train(counts=counts, vocab_size=256 + n_merges, min_frequency=1, verbose=False)
    n_removed = min(n_removed, old.vocab_size - 256)
    used = count_pretokens(second, normalizer=None)
    pruned = prune(old, counts=used, vocab_size=old.vocab_size - n_removed, verbose=False)
    assert pruned.removed == reference.prune(used, old.merges, n_removed, set())
    assert pruned.tokenizer.merges == left_of(old, pruned)
    check_mapped(old, pruned)
    tokens = core.tokens(pruned.tokenizer)
    for pretoken in {**counts, **used, **count_pretokens([text + "a"], normalizer=None)}:
        ids = pruned.tokenizer.encode(pretoken.decode())
        assert [tokens[id_] for id_ in ids] == reference.encode(pretoken, left_of(old, pruned))
    sizes = (sum(map(len, map(each.encode, second))) for each in (old, pruned.tokenizer))
    assert (pruned.tokens_before, pruned.tokens_after) == tuple(sizes)
    assert not pruned.unreachable


@pytest.mark.parametrize("pattern", sorted(SPLIT_PATTERNS))
def test_every_pattern(pattern: str) -> None:
    old = trained(380, pattern, special_tokens=["<|end|>"])
    pruned = prune(old, "".join(ATOMS) + TEXT[:60], vocab_size=300, verbose=False)
    assert pruned.tokenizer.vocab_size == 300
    assert pruned.tokenizer.special_tokens == {"<|end|>": 299}
    check_mapped(old, pruned)
    counts = count_pretokens(TEXT, pattern)
    tokens = core.tokens(pruned.tokenizer)
    for pretoken in counts:
        ids = pruned.tokenizer.encode(pretoken.decode())
        assert [tokens[id_] for id_ in ids] == reference.encode(pretoken, left_of(old, pruned))
    assert pruned.tokenizer.decode(pruned.tokenizer.encode(TEXT)) == TEXT


def test_parts_may_merge_with_what_is_beside_them() -> None:
    """Without "ab", "abc" is "a" and "bc", not the parts of "ab" and "c"."""
    base = BPETokenizer(normalizer=None).definition
    vocab = {**base.vocab, b"ab": 256, b"bc": 257}
    merges = [(97, 98), (98, 99)]
    old = core.remade(BPETokenizer(), dataclasses.replace(base, vocab=vocab, merges=merges))
    pruned = prune(old, counts={b"abc": 5, b"bc": 9}, vocab_size=257, verbose=False)
    assert pruned.removed == [b"ab"]
    assert pruned.tokenizer.tokenize("abc") == ["a", "bc"]
    assert (pruned.tokens_before, pruned.tokens_after) == (19, 19)


def test_tokens_used_often_enough_stay() -> None:
    old = trained()
    counts = count_pretokens(TEXT)
    pruned = prune(old, counts=counts, min_count=10, verbose=False)
    new = pruned.tokenizer
    tokens = [core.tokens(new)[id_] for id_ in new.encode(TEXT)]
    parts = {part for pair in new.merges for part in pair}
    assert pruned.removed
    for left, right in new.merges:
        assert left + right in parts or tokens.count(left + right) >= 10
    both = prune(old, counts=counts, min_count=10, vocab_size=old.vocab_size - 1, verbose=False)
    assert both.removed == pruned.removed[:1]


def test_added_tokens_and_those_to_keep_stay() -> None:
    old = trained(330, special_tokens={"<|begin|>": 260, "<|end|>": 999}, surround="bos+eos")
    old.bos_token, old.eos_token = "<|begin|>", "<|end|>"
    old.add_special_tokens(["Ġnothing"])
    keep = [b" newest", "Ġthe", old.definition.vocab[b" cat"], "<|end|>"]
    pruned = prune(old, "nothing of that", min_count=10**9, keep=keep, verbose=False)
    new = pruned.tokenizer
    assert {b" newest", b" the", b" cat"} <= new.definition.vocab.keys()
    assert list(new.special_tokens) == list(old.special_tokens)
    parts = {part for pair in new.merges for part in pair}
    assert {left + right for left, right in new.merges} - parts == {b" newest", b" the", b" cat"}
    check_mapped(old, pruned)
    was, is_ = (each.encode("x", add_special_tokens=True) for each in (old, new))
    assert is_ == [pruned.id_map[id_] for id_ in was]
    assert (new.bos_token, new.eos_token) == ("<|begin|>", "<|end|>")


def test_tokens_that_only_whole_pretokens_give() -> None:
    plain = trained()
    vocab = {**plain.definition.vocab, b" catamaran": 320, b"zyx": 321}
    definition = dataclasses.replace(plain.definition, vocab=vocab, ignore_merges=True)
    old = core.remade(plain, definition)
    pruned = prune(old, " catamaran" * 99, vocab_size=321, verbose=False)
    assert pruned.removed == [b"zyx"]
    assert pruned.tokenizer.encode(" catamaran") == [320]
    fewer = prune(old, "the catamaran", min_count=2, verbose=False)
    assert b" catamaran" in fewer.removed
    tokens = [core.tokens(fewer.tokenizer)[id_] for id_ in fewer.tokenizer.encode(" catamaran")]
    assert tokens == reference.encode(b" catamaran", left_of(plain, fewer))


def test_a_token_that_several_merges_make_loses_all_of_them() -> None:
    base = BPETokenizer(normalizer=None).definition
    vocab = {**base.vocab, b"ab": 256, b"bc": 257, b"abc": 258}
    merges = [(97, 98), (256, 99), (98, 99), (97, 257)]
    made = Definition(vocab, merges, base.split_pattern, None)
    pruned = prune(core.remade(BPETokenizer(), made), "ab bc", vocab_size=258, verbose=False)
    assert pruned.removed == [b"abc"]
    assert pruned.tokenizer.merges == [(b"a", b"b"), (b"b", b"c")]


def test_what_is_saved(tmp_path: Path) -> None:
    old = trained()
    pruned = prune(old, TEXT[:99], vocab_size=280, verbose=False)
    pruned.save(tmp_path / "pruned", verbose=False)
    assert BPETokenizer.from_pretrained(tmp_path / "pruned", verbose=False) == pruned.tokenizer
    assert json.loads((tmp_path / "pruned" / "id_map.json").read_text()) == pruned.id_map
    array = need("numpy").load(tmp_path / "pruned" / "id_map.npy")
    assert array.dtype == "int64"
    assert array.tolist() == pruned.id_map
    raw = (tmp_path / "pruned" / "id_map.npy").read_bytes()
    assert (len(raw) - 8 * len(pruned.id_map)) % 64 == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "pruned").iterdir()}
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="save needs a directory"):
        pruned.save(tmp_path / "file")
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "pruned").iterdir()}


def test_the_order_of_documents_does_not_matter() -> None:
    old = trained()
    texts = [f"the new mat {i} lowest" for i in range(50)]
    one, other = (prune(old, each, vocab_size=270, verbose=False) for each in (texts, texts[::-1]))
    assert one.removed == other.removed
    assert one.tokenizer == other.tokenizer
    assert one.tokenizer == old.prune(texts, vocab_size=270, verbose=False).tokenizer


def test_bad_input_is_refused() -> None:
    old = trained()
    with pytest.raises(TypeError, match="takes a corpus or counts"):
        prune(old, vocab_size=300)
    with pytest.raises(TypeError, match="takes vocab_size"):
        prune(old, TEXT)
    with pytest.raises(ValueError, match="vocab_size is 321, but this tokenizer has 320"):
        prune(old, TEXT, vocab_size=321)
    with pytest.raises(ValueError, match="vocab_size is 255, but must be at least 256"):
        prune(old, TEXT, vocab_size=255, verbose=False)
    with pytest.raises(ValueError, match="the corpus is empty|no text"):
        prune(old, [], vocab_size=300, verbose=False)
    with pytest.raises(ValueError, match="made with"):
        prune(old, counts=count_pretokens(TEXT, "cl100k"), vocab_size=300)
    for wrong in ("low", b"low", bytearray(b"low"), 5):
        with pytest.raises(TypeError, match="keep must be a list of tokens, got "):
            prune(old, TEXT, vocab_size=300, keep=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keep: 'nope' is not a token"):
        prune(old, TEXT, vocab_size=300, keep=["nope"])
    with pytest.raises(ValueError, match="keep: 999 is not a token"):
        prune(old, TEXT, vocab_size=300, keep=[999])
    with pytest.raises(TypeError, match="keep: expected ids, strings or bytes, got 1.5"):
        prune(old, TEXT, vocab_size=300, keep=[1.5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="keep must be a list"):
        prune(old, TEXT, vocab_size=300, keep="the")
    assert old == trained()
