"""Documents of a file: cut at separators, whatever chunks the text comes in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpe_tokenizer import AddedToken, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus import documents, held_out
from bpe_tokenizer_tools.evaluation import texts

CHUNKS = st.lists(st.text("a<>|\n ", max_size=9), max_size=9)
SEPARATOR = st.sampled_from(["<|>", "aa", "a", "\n\n", "<|><|>", "<<|"])


@given(CHUNKS, SEPARATOR)
def test_chunks_are_split_as_the_whole_is(chunks: list[str], separator: str) -> None:
    whole = "".join(chunks)
    assert list(documents.split_at(chunks, separator, "x")) == whole.split(separator)
    assert list(documents.split_at(chunks, "", "x")) == [whole]
    raw = [chunk.encode() for chunk in chunks]
    found = list(documents.split_at(raw, separator.encode(), "x"))
    assert found == whole.encode().split(separator.encode())


@given(CHUNKS, SEPARATOR, st.integers(1, 12))
def test_evaluation_splits_so_too_and_cuts_what_is_long(
    chunks: list[str], separator: str, longest: int
) -> None:
    found = list(texts._separate(chunks, separator, longest))
    wholes: list[str] = []
    for each in found:
        assert 0 < len(each) <= longest
        if isinstance(each, texts.Part):
            wholes[-1] += each
        else:
            wholes.append(str(each))
    assert wholes == [each for each in "".join(chunks).split(separator) if each]


@given(CHUNKS, st.booleans())
def test_special_tokens_separate_documents(chunks: list[str], strips: bool) -> None:
    tokens = [AddedToken("<|>", lstrip=strips, rstrip=strips), AddedToken("aa")]
    pieces = held_out._cut(chunks, core.TokenFinder(tokens))
    around = r"\s*" if strips else ""
    expected = re.split(rf"{around}<\|>{around}|aa", "".join(chunks))
    assert list(documents.joined(pieces, "", 99)) == expected


@pytest.mark.parametrize("chunks", [["aaaa", "bb"], ["a"] * 6, ["aaa|aaaaaa"]])
def test_a_document_that_is_too_long_is_refused(
    chunks: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_MAX_DOCUMENT", 5)
    with pytest.raises(FileFormatError, match="more than 5 characters, with no '\\|'; say what"):
        list(documents.split_at(chunks, "|", "x"))
    assert list(documents.split_at(["aaaaa", "|bbbbb"], "|", "x")) == ["aaaaa", "bbbbb"]


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("a.JSONL.gz", ".jsonl"), ("a.parquet", ".parquet"), ("a.gz", ""), ("a.tar.txt", ".txt"),
     ("a.jsonl.zst", ".jsonl"), ("a", ""), ("x.d/a", "")],
)  # fmt: skip
def test_an_ending_of_compression_tells_no_format(name: str, suffix: str) -> None:
    assert core.suffix_of(name) == core.suffix_of(Path(name)) == suffix
