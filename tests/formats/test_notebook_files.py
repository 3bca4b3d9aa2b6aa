"""vocab.json with merges.txt whose vocabulary has only the tokens that its corpus is left with.

The oracle is a notebook that writes such files: `Notebook` in `tests/support/reference_program.py`.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples
from reference_program import RESERVED, Notebook, write

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools.checking.lint import lint
from bpe_tokenizer_tools.showing.trace import trace

# Such vocabularies do lose ordinary text.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")
KINDS = [("</w>", False), ("</eow>", False), ("</w>", True)]


def assert_same(ours: BPETokenizer, theirs: Notebook, text: str) -> None:
    ids = theirs.encode(text)
    assert ours.encode(text) == ids
    decoded = ours.decode(ids, skip_special_tokens=True)
    if theirs.vocab["<unk>"] in ids:  # without it, an end of a word may begin or end the text
        decoded = decoded.strip()
    assert decoded == theirs.decode(ids)


@pytest.mark.parametrize("n_merges", [100, 200])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["code", "english", "multi"])
def test_real_text(
    engine: str,
    corpora: Callable[[str], str],
    name: str,
    kind: tuple[str, bool],
    n_merges: int,
    tmp_path: Path,
) -> None:
    text = corpora(name)[:4000]
    theirs = Notebook(*kind).train(text, n_merges)
    made = {left + right for left, right in theirs.merges}
    assert len(theirs.merges) == n_merges and made - theirs.vocab.keys()  # some are used up
    ours = BPETokenizer.from_file(theirs.save(tmp_path))
    assert ours.get_vocab() == theirs.vocab and len(ours) == len(theirs.vocab)
    assert list(ours.special_tokens) == list(RESERVED)
    assert (ours.pad_token, ours.bos_token, ours.eos_token, ours.unk_token) == RESERVED
    others = [corpora(each)[4000:5000] for each in ("code", "english", "multi")]
    for other in (text, *others, "\U000103a0\U000103a1 a\U000103a0"):
        assert_same(ours, theirs, other)
    assert theirs.vocab["<unk>"] in ours.encode("a\U000103a0")


@settings(max_examples=examples(400), deadline=None)
@given(
    corpus=st.text("ab \n", min_size=1, max_size=60) | st.text("abc<> ", max_size=60),
    text=st.text("abc</w> \t\x1c\x85", max_size=30) | st.text(max_size=20),
    n_merges=st.integers(0, 40),
    kind=st.sampled_from(KINDS),
)
def test_any_vocabulary(
    engine: str,
    corpus: str,
    text: str,
    n_merges: int,
    kind: tuple[str, bool],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if kind[1]:  # where white space is HuggingFace's unless merges show that a notebook wrote it
        text = re.sub("[\x1c-\x1f]", " ", text)
    theirs = Notebook(*kind).train(f"{corpus} a", n_merges)
    ours = BPETokenizer.from_file(theirs.save(tmp_path_factory.mktemp("any")))
    for each in (text, corpus, f"{corpus}{text}"):
        assert ours.encode(each) == theirs.encode(each)


def test_what_else_is_made_of_it(engine: str, tmp_path: Path) -> None:
    theirs = Notebook("</w>").train("low low low lower lower newest newest widest", 9)
    ours = BPETokenizer.from_file(theirs.save(tmp_path))
    assert "lo" not in theirs.vocab and ("l", "o") in theirs.merges
    text = " low  loqs lo"
    encoded = ours.encode_with_offsets(text)
    assert encoded.input_ids == theirs.encode(text)
    assert encoded.tokens == ["low</w>", "<unk>", "<unk>", "<unk>", "<unk>", "<unk>", "<unk>"]
    assert encoded.offsets == [(1, 4), (6, 8), (8, 9), (9, 10), (10, 10), (11, 13), (13, 13)]
    copy = pickle.loads(pickle.dumps(ours))
    assert copy == ours and copy.encode(text) == encoded.input_ids
    assert sum(ours.encode_streaming([text[:3], text[3:]]), []) == encoded.input_ids
    assert ours.count_tokens(text) == 7
    ids = ours.encode("low<pad> <bos>", allowed_special="all")
    assert [*map(ours.special_tokens.get, ("<pad>", "<bos>"))] == [ids[1], ids[-1]]
    assert ours.decode(ids, skip_special_tokens=True) == "low"
    ours.save(tmp_path / "saved", verbose=False)
    again = BPETokenizer.from_pretrained(tmp_path / "saved", verbose=False)
    assert again == ours and again.encode(text) == encoded.input_ids
    assert ours.merges == [(left.encode(), right.encode()) for left, right in theirs.merges]
    assert [each.message for each in lint(ours) if each.name == "unreachable"] == []
    with pytest.raises(ValueError, match="no ids for some tokens that its merges make"):
        trace(text, ours)


@pytest.mark.parametrize("kind", KINDS)
def test_the_corpus_may_spell_the_unknown_token(
    engine: str, kind: tuple[str, bool], tmp_path: Path
) -> None:
    # WikiText's does, so that merges make it of characters.
    text = "the <unk> of a <unk> , the <unk> is unkind " * 5
    for n_merges in range(30):
        theirs = Notebook(*kind).train(text, n_merges)
        if list(theirs.vocab.values()) != [*range(len(theirs.vocab))]:
            continue  # the notebook itself took the token's id for another
        ours = BPETokenizer.from_file(theirs.save(tmp_path / str(n_merges)))
        for other in (text, "<unk> zebra <unk", "un <unk><unk> k>"):
            assert ours.encode(other) == theirs.encode(other)
        saved = tmp_path / f"saved {n_merges}"
        ours.save(saved, verbose=False)
        assert BPETokenizer.from_pretrained(saved, verbose=False).encode(text) == ours.encode(text)


@pytest.mark.parametrize("kind", ["</w>", "_", "<eow>"])
def test_a_config_names_any_other_symbol(engine: str, kind: str, tmp_path: Path) -> None:
    theirs = Notebook(kind).train("low lower newest widest low " * 5, 12)
    theirs.save(tmp_path)
    if kind != "</w>":
        with pytest.raises(FileFormatError, match="as end_of_word_marker"):
            BPETokenizer.from_file(tmp_path)
    write(tmp_path / "tokenizer_config.json", {"end_of_word_marker": kind})
    ours = BPETokenizer.from_file(tmp_path)
    for text in ("low lower newest", "lowest <unk> we"):
        assert ours.encode(text) == theirs.encode(text)


def test_other_vocabularies_need_the_tokens_of_their_merges(engine: str, tmp_path: Path) -> None:
    theirs = Notebook().train("low low low lower lower newest newest widest", 9).save(tmp_path)
    told = "line 1: token 'l' is not in the vocabulary"
    vocab = Notebook().train("low low low lower lower newest newest widest", 9).vocab
    for missing in RESERVED:  # then it isn't such a notebook's
        left = {token: id_ for token, id_ in vocab.items() if token != missing}
        write(theirs / "vocab.json", left)
        with pytest.raises(FileFormatError, match=told):
            BPETokenizer.from_file(theirs)
    letters = {chr(code): code for code in range(33, 127)}
    write(theirs / "vocab.json", letters)
    with pytest.raises(FileFormatError, match=r"line 1: token .* is not in the vocabulary"):
        BPETokenizer.from_file(theirs, split_pattern="gpt2")


def test_it_needs_the_unknown_token(engine: str, tmp_path: Path) -> None:
    theirs = Notebook().train("low low low lower lower newest newest widest", 9)
    theirs.save(tmp_path)
    write(tmp_path / "tokenizer_config.json", {"unk_token": None})
    with pytest.raises(FileFormatError, match="no unknown token; delete that unk_token"):
        BPETokenizer.from_file(tmp_path)
    write(tmp_path / "tokenizer_config.json", {"unk_token": "<pad>"})
    ours = BPETokenizer.from_file(tmp_path)
    assert ours.encode("zz") == [0, 0, 0]
