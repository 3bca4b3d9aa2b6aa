"""The table of tokens by prefix, against a look at every token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import need

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.prompts import TokensByPrefix

need("numpy")

few_bytes = st.text("ab\0\xff", max_size=6).map(lambda text: text.encode("latin-1"))
tables = st.lists(st.none() | few_bytes | st.binary(max_size=3), max_size=40)


@given(tables, few_bytes)
def test_the_tokens_that_a_look_at_every_one_finds(tokens: list[bytes | None], data: bytes) -> None:
    table = TokensByPrefix(tokens)
    named = [(token, id_) for id_, token in enumerate(tokens) if token]
    begin = sorted((token, id_) for token, id_ in named if token.startswith(data))
    assert table.tokens_with_prefix(data).tolist() == [id_ for _, id_ in begin]
    inside = sorted((len(token), id_) for token, id_ in named if data.startswith(token))
    assert table.prefixes_of(data) == [id_ for _, id_ in inside]
    assert [table.token_at(i) for i in range(len(table))] == [t for t, _ in sorted(named)]
    assert table.longest == max((len(token) for token, _ in named), default=0)


def test_of_a_tokenizer() -> None:
    tokenizer = BPETokenizer().train(["the then there " * 9], vocab_size=270, verbose=False)
    tokenizer.add_special_tokens(["<|the|>"])
    table = tokenizer.trie()
    assert table is tokenizer.trie()
    found = [tokenizer.decode([id_]) for id_ in table.tokens_with_prefix(b"th")]
    assert found == sorted(t for t in tokenizer.get_vocab() if t.startswith("th"))
    assert table.tokens_with_prefix(b"<|").tolist() == []
    assert len(table) == tokenizer.vocab_size - 1
    tokenizer.train(["other text " * 9], vocab_size=259, verbose=False)
    assert len(tokenizer.trie()) == 258 and tokenizer.trie() is not table
    assert table.nbytes < 20 * len(table)


def test_text_is_refused() -> None:
    with pytest.raises(TypeError, match="encode text"):
        BPETokenizer().trie().tokens_with_prefix("th")
