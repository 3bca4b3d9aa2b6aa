"""Training BPE on words, as Sennrich's first program and many notebooks do.

White space separates words, and isn't kept.  A word starts as its characters and a symbol of its
own that ends it, which merges join to them:

    "low lower"   ->   l o w </eow>   l o w e r </eow>

Text isn't normalized.  The order of ids:

    <pad> <bos> <eos> <unk>   0 to 3, unless `special_tokens` says otherwise
    symbols                   characters and </eow>, by code point
    merged tokens             in the order learned
    special tokens            those without an id

tokenizer.json can't express such a symbol, so `save` writes vocab.json and merges.txt.

Source: Sennrich et al., ACL 2016, algorithm 1.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any

from bpe_tokenizer import (
    GPT2_SPLIT_PATTERN,
    AddedToken,
    BPETokenizer,
    Definition,
    count_pretokens,
)
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats.vocab_merges import RESERVED, symbol_components
from bpe_tokenizer_tools.training import ties
from bpe_tokenizer_tools.training.reports import report

MARKER = "</eow>"
# Words and what is between them, as Python's str.split cuts.
_PATTERN = r"[^\s\x1c-\x1f]+|[\s\x1c-\x1f]+"
# Symbols are strings, numbered in their order, so these rules are others by another name.
_SAME_RULES = {"smallest-ids": "huggingface", "greatest-printable": "greatest"}


def train(tokenizer: BPETokenizer, given: Mapping[str, Any]) -> BPETokenizer:
    """Train with the arguments of `BPETokenizer.train`; return the tokenizer."""
    old = core.frozen(tokenizer)
    _check(old.definition, given)
    surround = old.definition.template if given["surround"] is None else str(given["surround"])
    empty = core.new_definition("", None, surround)
    empty = dataclasses.replace(empty, vocab={}, components=symbol_components(MARKER))
    named = core.as_added_tokens(given["special_tokens"])
    tokens = _special_tokens(old.definition.added, named)
    contents = [token.content for token in core.with_added_tokens(empty, tokens).added]
    if MARKER in contents:
        raise ValueError(f"special token {MARKER!r}: words end in this symbol")
    vocab_size, longest = given["vocab_size"], given["max_token_length"]
    core.check_sizes(vocab_size, len(contents) + 1, given["min_frequency"], longest)

    started = time.perf_counter()
    found = count_pretokens(
        given["corpus"],
        _PATTERN,
        special_tokens=contents,
        normalizer=None,
        num_workers=given["num_workers"],
        text_field=given["text_field"],
        verbose=bool(given["verbose"]),
        in_order=given["ties"] == "first",
    )
    counted = time.perf_counter()
    decoded = ((word.decode(), count) for word, count in found.items())
    words = {word: count for word, count in decoded if not word.isspace()}
    if not words:
        raise ValueError(core.EMPTY)
    alphabet = sorted({MARKER}.union(*words))
    room = vocab_size - len(contents) - len(alphabet)
    if room < 0:
        raise ValueError(
            f"vocab_size is {vocab_size}, but must be at least {vocab_size - room}: the corpus has "
            f"{len(alphabet) - 1} different characters"
        )
    learned = _learn(words, alphabet, room, contents, given)
    core.adopt(tokenizer, learned, empty, tokens, [*map(AddedToken, RESERVED), *named], old)
    report(tokenizer, found, words, learned, started, counted, given["verbose"])
    return tokenizer


def _check(old: Definition, given: Mapping[str, Any]) -> None:
    """Raise for options, and for tokenizers, that this can't train with."""
    for option in core.STYLE_OPTIONS:
        if given[option] is not None:
            raise ValueError(f"{option} works only with style='sentencepiece'; leave it out")
    if given["counts"] is not None:
        raise ValueError(
            "counts are of the pre-tokens of a split pattern, and style='words' cuts text at white "
            "space; pass the corpus"
        )
    if given["corpus"] is None:
        raise TypeError("train() takes a corpus, and got None")
    if old.components is None and old.split_pattern != GPT2_SPLIT_PATTERN:
        raise ValueError(
            "style='words' cuts text at white space, not by a split pattern; make the tokenizer "
            "without split_pattern"
        )
    if old.components not in (None, symbol_components(MARKER)):
        raise ValueError(
            "this tokenizer was loaded with components of its own and cannot be trained again; "
            "make a new one with BPETokenizer()"
        )


def _special_tokens(old: Iterable[AddedToken], named: Iterable[AddedToken]) -> list[AddedToken]:
    """List the reserved tokens, the tokenizer's, and the given ones."""
    reserved = {text: id_ for id_, text in enumerate(RESERVED)}
    tokens = {text: AddedToken(text, id_) for text, id_ in reserved.items()}
    tokens.update((token.content, token) for token in old)
    for token in named:
        if token.id is None:
            token = dataclasses.replace(token, id=reserved.get(token.content))
        tokens[token.content] = token
    return list(tokens.values())


def _learn(
    words: Mapping[str, int],
    alphabet: list[str],
    n_tokens: int,
    contents: Iterable[str],
    given: Mapping[str, Any],
) -> core.Learned:
    """Learn merges of symbols; the tokens are the symbols, then the merged ones."""
    rule = _SAME_RULES.get(given["ties"], given["ties"])
    make: Any = core.MergeLearner
    if rule != "huggingface":
        make = ties.learner(rule, core.ALPHABET)
    learner = make({}, given["max_token_length"])
    _take_words(learner, words, alphabet)
    forbidden = frozenset(text.encode() for text in (*contents, MARKER))
    with core.progress("merging", "merge", n_tokens, given["verbose"]) as advance:
        learned: core.Learned = learner.learn(n_tokens, given["min_frequency"], forbidden, advance)
    return learned._replace(tokens=[*map(str.encode, alphabet), *learned.tokens])


def _take_words(learner: Any, words: Mapping[str, int], alphabet: list[str]) -> None:
    """Let a learner begin with words of these symbols; see `core.MergeLearner`."""
    number = {symbol: chr(i) for i, symbol in enumerate(alphabet)}
    numbers = {ord(symbol): i for symbol, i in number.items() if symbol != MARKER}
    learner._token = [symbol.encode() for symbol in alphabet]
    learner._number = {symbol: i for i, symbol in enumerate(learner._token)}
    learner._words = [word.translate(numbers) + number[MARKER] for word in words]
    learner._freqs = list(words.values())
