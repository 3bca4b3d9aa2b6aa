"""Vocabularies changed under every kind of tokenizer.json, with `tokenizers` as the oracle."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import reference
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus.held_out import CorpusReader
from bpe_tokenizer_tools.training import joins
from bpe_tokenizer_tools.vocabularies import extend, prune
from bpe_tokenizer_tools.vocabularies.pretokens import Merger, encode_pretokens, stand_ins

tokenizers = need("tokenizers")

import tokenizer_files as files  # noqa: E402  (needs the library)

# Many of the small vocabularies lack characters of ASCII, and loading them says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")

FAMILIES = list(files.FAMILIES)
TEXTS = [
    *files.CORPUS,
    "The lazy tokenizers' lowland catalog, 12345 mattresses; 世界 世界 ☃☃ \t\t x",
]
MARK = "▁".encode()
texts = st.lists(st.sampled_from([*TEXTS, " ", "\n", "☃", "é", "<s>"]), max_size=4).map("".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def load(name: str, folder: Path) -> BPETokenizer:
    path = folder / f"{list(files.FAMILIES).index(name)}.json"
    if not path.exists():
        path.write_text(files.text(name), encoding="utf-8")
    return BPETokenizer.from_file(path)


def check_like_home(tokenizer: BPETokenizer, text: str) -> None:
    theirs = in_tokenizers(tokenizer)
    assert (
        tokenizer.encode(text, allowed_special="all")
        == theirs.encode(text, add_special_tokens=False).ids
    )


@functools.lru_cache(2)
def in_tokenizers(tokenizer: BPETokenizer) -> tokenizers.Tokenizer:
    return tokenizer.to_hf()


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=examples(20), deadline=None)
@given(st.lists(texts | hard_text, min_size=1, max_size=8), st.integers(0, 3))
def test_the_learners_in_c_and_in_python_learn_the_same(
    name: str, folder: Path, corpus: list[str], min_frequency: int
) -> None:
    old = load(name, folder)
    corpus = [f"{text}\n" for text in corpus]  # no text is the name of a file
    try:
        counts = CorpusReader(old).count(corpus)
    except ValueError:  # the tokenizer has no token for a character of it
        return
    options: dict[str, Any] = {"add": 30, "min_frequency": min_frequency, "verbose": False}
    if not any(counts.values()):
        return
    new = extend(old, counts=counts, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joins, "_learn_in_c", lambda *given: None)
        assert extend(old, counts=counts, **options) == new


@pytest.mark.parametrize("name", FAMILIES)
def test_extending(name: str, folder: Path) -> None:
    old = load(name, folder)
    new = extend(old, TEXTS * 2, add=40, held_out={"new": TEXTS}, verbose=False)
    report = new.training_report
    assert report is not None and report.merges > 0
    assert new.definition.vocab.items() >= old.definition.vocab.items()
    assert new.added_tokens == old.added_tokens

    merger, apart = Merger(old), stand_ins(old)
    counts = CorpusReader(old).count(TEXTS * 2)
    words: list[tuple[list[bytes], int]] = []
    for ids, count in zip(encode_pretokens(old, list(counts)), counts.values()):
        word: list[bytes] = []
        for id_ in ids:
            text = b"" if id_ in apart else merger.token[id_]
            if id_ in apart or (text.startswith(MARK) and word and word[-1].strip(MARK)):
                words.append((word, count))
                word = []
            if text.startswith(MARK) and word and text.strip(MARK):  # a run of them ends here
                words.append((word, count))
                word = []
            word += [text] if text else []
        words.append((word, count))
    ranks = {}
    for token, id_ in old.definition.vocab.items():
        written = old.definition.write(token)
        ranks[token] = ord(written) if len(written) == 1 else 10**7 + id_
    added = [old.definition.read(token.content) or b"" for token in old.added_tokens]
    learned = new.merges[len(old.merges) :]
    if name == "continuing prefix":  # merges take it away; mark the beginning of words instead

        def marked(token: bytes) -> bytes:
            return token[2:] if token.startswith(b"##") else b"\xff" + token

        words = [([*map(marked, word)], count) for word, count in words]
        ranks = {marked(token): rank for token, rank in ranks.items()}
        added = [*map(marked, added)]
        learned = [(marked(left), marked(right)) for left, right in learned]
    assert learned == reference.extend(words, ranks, 40, forbidden=added)

    made = set(range(old.max_id + 1, new.max_id + 1))

    @settings(max_examples=examples(25), deadline=None)
    @given(texts)
    def check(text: str) -> None:
        check_like_home(new, text)
        was, is_ = (each.encode(text, allowed_special="all") for each in (old, new))
        assert not made.isdisjoint(is_) or was == is_
        # Without a decoder tokens have spaces between them; unsplit, the first may lose all.
        if (old.components or {"decoder": 1})["decoder"] and name != "metaspace unsplit":
            assert new.decode(is_) == old.decode(was)

    check()


@pytest.mark.parametrize("name", FAMILIES)
def test_pruning(name: str, folder: Path) -> None:
    old = load(name, folder)
    pruned = prune(old, TEXTS[:9], vocab_size=old.vocab_size - 120, verbose=False)
    new, gone = pruned.tokenizer, set(pruned.removed)
    assert len(gone) == 120
    expected = Merger(old)  # the old merges, without those of removed tokens
    for token in gone:
        id_ = expected.vocab[token]
        made = [pair for pair, rank in expected.pairs() if expected.merged[rank] == id_]
        expected.remove(id_, made)
    old_id = {new_id: id_ for id_, new_id in enumerate(pruned.id_map) if new_id >= 0}
    cut = core.cutter(old)

    @settings(max_examples=examples(25), deadline=None)
    @given(texts)
    def check(text: str) -> None:
        check_like_home(new, text)
        ids: list[int] = []
        for part, *_ in core.pipeline(old, frozenset(old.special_tokens)).parts(text):
            pieces = cut(part) if isinstance(part, str) else [part]
            for piece in pieces:
                by_itself = [piece.id] if isinstance(piece, AddedToken) else None
                ids += by_itself or expected.encode(piece.encode())
        assert [old_id[id_] for id_ in new.encode(text, allowed_special="all")] == ids

    check()
    taken = pruned.tokens_after - pruned.tokens_before
    encoded = (
        [each.encode(text, allowed_special="all") for text in TEXTS[:9]] for each in (new, old)
    )
    after, before = (sum(map(len, ids)) for ids in encoded)
    assert taken == after - before


@pytest.mark.parametrize("prefix", ["##", "#", "b", "aa"])
@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.text("ab#. ", max_size=9), min_size=2, max_size=9), st.integers(0, 9))
def test_words_that_begin_like_a_continuing_prefix(prefix: str, corpus: list[str], at: int) -> None:
    """Tokens are what `tokenizers` makes of the new file, whatever a word begins with."""
    theirs = tokenizers.Tokenizer(
        tokenizers.models.BPE(unk_token="[UNK]", continuing_subword_prefix=prefix)
    )
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=30, special_tokens=["[UNK]"], continuing_subword_prefix=prefix,
        show_progress=False,
    )  # fmt: skip
    theirs.train_from_iterator(["ab ba #a ##b . a#b.", *corpus[1:]], trainer)
    old = BPETokenizer.from_hf(theirs)
    text = f"{prefix}ab a{prefix} {' '.join(corpus)} ##ab#a"
    string = (text.split() * 9)[at]
    new = extend(old, [text, "abba ##abba"], add=9, min_frequency=1, tokens=[string], held_out={})
    assert len(new.encode(string)) == 1
    pruned = prune(new, [text], min_count=2, verbose=False)
    for tokenizer in (new, pruned.tokenizer):
        for each in (text, *corpus):
            check_like_home(tokenizer, each)
    assert len(new.encode(text)) <= len(old.encode(text))
    assert len(pruned.tokenizer.encode(text)) == pruned.tokens_after
