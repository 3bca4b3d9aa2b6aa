"""`evaluate` and `compare`: every figure, worked out by hand or by plainer code."""

from __future__ import annotations

import csv
import dataclasses
import functools
import gzip
import hashlib
import io
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import regex
import tokenizer_files
from conftest import run_command
from hard_text import hard_text
from hypothesis import example, given
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer

np = need("numpy")

from bpe_tokenizer_tools.commands.evaluation import COMMANDS  # noqa: E402
from bpe_tokenizer_tools.evaluation import (  # noqa: E402
    Evaluation,
    Measures,
    compare,
    comparison,
    evaluate,
    file_groups,
    measures,
    open_tokenizer,
    parallel_lines,
    plots,
    renyi_entropy,
)
from bpe_tokenizer_tools.evaluation.adapters import Adapter, named_tokenizers  # noqa: E402
from bpe_tokenizer_tools.evaluation.figures import script_lines  # noqa: E402
from bpe_tokenizer_tools.evaluation.scripts import CLASSES, allocate, class_of  # noqa: E402
from bpe_tokenizer_tools.evaluation.texts import FileGroup, sample  # noqa: E402
from bpe_tokenizer_tools.evaluation.words import UNSPACED_SCRIPTS, Pieces  # noqa: E402

TEXT = (
    "It's 1234 words: don't stop, don't go.\n\nThe lower the lowest, the newer the newest.  Größe "
    "and 世界, мир и Ёлка; 日本語を話す。 ภาษาไทย\r\n\tif x == 100:\n\t\treturn foo_bar(1000)\n"
)
DOCUMENTS = [
    TEXT,
    "the lowest of the low",
    "naïve 😀 e\u0301te\u0301",
    "",
    "...",
    "\n \n",
    "कि हिन्दी",
]


def low() -> BPETokenizer:
    """Make a tokenizer of 258 tokens: the bytes, "lo" and "low"."""
    tokenizer = BPETokenizer("gpt2", normalizer=None)
    tokenizer.train(["low low low"], vocab_size=258, verbose=False)
    assert tokenizer.merges == [(b"l", b"o"), (b"lo", b"w")]
    return tokenizer


@functools.cache
def trained(pattern: str = "gpt2", normalizer: str | None = None, size: int = 420) -> BPETokenizer:
    tokenizer = BPETokenizer(pattern, normalizer=normalizer)
    special = ["<|endoftext|>"]
    return tokenizer.train([TEXT] * 9, size, special_tokens=special, verbose=False)


def figures(found: Evaluation, tokenizer: str, group: str) -> dict[str, Any]:
    """Return figures without the name of the tokenizer."""
    return {**dataclasses.asdict(found.get(tokenizer, group)), "tokenizer": ""}


# -- A small example, by hand ---------------------------------------------------


def test_every_figure_of_an_example_worked_out_by_hand() -> None:
    # low | ␣ | low e r | ␣ | 1 2: eight tokens, of which "low" and the space twice.
    found = evaluate({"low": low()}, {"words": ["low lower 12"]}).get("low", "words")
    entropy = -math.log2(2 * 0.25**2.5 + 4 * 0.125**2.5) / 1.5
    assert found == Measures(
        tokenizer="low",
        group="words",
        documents=1,
        bytes=12,
        characters=12,
        words=3,
        tokens=8,
        bytes_per_token=1.5,
        characters_per_token=1.5,
        tokens_per_word=2.0,  # 1, 3 and 2
        median_tokens_per_word=2,
        p95_tokens_per_word=3,
        single_token_words=1 / 3,
        renyi_efficiency=pytest.approx(entropy / math.log2(258)),
        shannon_efficiency=pytest.approx(2.5 / math.log2(258)),
        renyi_entropy=pytest.approx(entropy),
        premium=None,
        byte_premium=None,
        unused_tokens=252,
        unused_share=252 / 258,
        wrong_round_trips=0,
        changed_documents=0,
        words_by_tokens=[0, 1, 1, 1],
    )


def test_overall_is_of_all_texts_together_and_not_a_mean_of_groups() -> None:
    found = evaluate([low()], {"a": ["low low low low low"], "b": ["é"]})
    overall = found.get("bpe-tokenizer", "overall")
    assert (overall.tokens, overall.bytes, overall.characters) == (9 + 2, 19 + 2, 19 + 1)
    assert overall.words_by_tokens == [0, 5, 1]
    assert overall.bytes_per_token == 21 / 11
    assert found.groups == ["a", "b", "overall"]
    assert evaluate([low()], {"a": ["low"]}).groups == ["a"]


def test_premium_is_tokens_against_english() -> None:
    parallel = {"fra": ["bas", "bas"], "eng": ["low", "low low"]}
    found = evaluate({"t": low()}, {"other": ["x"]}, parallel=parallel)
    assert found.base == "eng"
    assert found.get("t", "fra").premium == 6 / 4  # b a s twice; low and low ␣ low
    assert found.get("t", "fra").byte_premium == 6 / 10
    assert found.get("t", "eng").premium == 1.0
    assert found.get("t", "other").premium is None
    assert found.get("t", "overall").premium is None
    assert "against eng" in str(found)
    unnamed = evaluate({"t": low()}, parallel={"x": ["low"], "y": ["bas"]})
    assert (unnamed.base, unnamed.get("t", "y").premium) == ("x", 3.0)


@pytest.mark.parametrize("alpha", [0.5, 1, 2, 2.5, 3])
def test_entropy_is_that_of_its_definition(alpha: float) -> None:
    counts = [5, 1, 0, 7, 7, 2]
    shares = [count / 22 for count in counts if count]
    if alpha == 1:
        expected = -sum(p * math.log2(p) for p in shares)
    else:
        expected = math.log2(sum(p**alpha for p in shares)) / (1 - alpha)
    assert renyi_entropy(counts, alpha) == pytest.approx(expected)
    assert renyi_entropy([3] * 16, alpha) == pytest.approx(4)
    assert renyi_entropy([], alpha) == renyi_entropy([9], alpha) == 0


def test_renyi_entropy_of_any_order() -> None:
    counts = [5, 3, 2]
    least = -math.log2(0.5)  # of the most frequent token: the limit
    assert renyi_entropy(counts, math.inf) == least
    assert renyi_entropy(counts, 1e6) == pytest.approx(least, rel=1e-5)
    shannon = renyi_entropy(counts, 1)
    for near in (1e-16, 1e-12, 1e-8, 1e-5):
        assert renyi_entropy(counts, 1 + near) == pytest.approx(shannon, rel=1e-4)
    for order in (math.inf, math.nan, -1):
        with pytest.raises(ValueError, match="alpha must be above 0 and finite"):
            evaluate([low()], {"t": ["low"]}, alpha=order)


def test_documents_without_text_count_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", "low", "", "", ""]
    for size in (2**20, 4, 1):
        monkeypatch.setattr(measures, "_CHUNK_CHARS", size)
        found = evaluate([low()], {"t": texts}).get("bpe-tokenizer", "t")
        assert (found.documents, found.bytes, found.tokens, found.words) == (5, 3, 1, 1)
        assert compare(low(), low(), {"t": texts}).differences[0].words == 1
        with pytest.raises(ValueError, match="the group 'u' contains no text"):
            evaluate([low()], {"u": ["", "", ""]})


def test_an_id_far_away_is_refused_and_takes_no_memory() -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens({"<near>": 2**24 - 1})
    assert open_tokenizer(tokenizer).rows == 2**24
    tokenizer.add_special_tokens({"<far>": 2**31 - 1})
    with pytest.raises(ValueError, match="far has ids up to 2,147,483,647, too many to count"):
        open_tokenizer(tokenizer, "far")


def test_median_and_95th_percentile_are_numbers_of_tokens_that_occur() -> None:
    # 95 words of one token, four of two, one of three; then one more of three.
    words = ["low"] * 95 + ["ab"] * 4 + ["abc"]
    found = evaluate([low()], {"w": ["\n".join(words)], "v": ["\n".join([*words, "abc"])]})
    w, v = (found.get("bpe-tokenizer", group) for group in "wv")
    assert (w.median_tokens_per_word, w.p95_tokens_per_word) == (1, 1)
    assert (v.median_tokens_per_word, v.p95_tokens_per_word) == (1, 2)
    assert w.single_token_words == 0.95


def test_what_cannot_be_divided_is_none() -> None:
    found = evaluate([low()], {"dots": ["..."]}).get("bpe-tokenizer", "dots")
    assert (found.words, found.tokens_per_word, found.single_token_words) == (0, None, None)
    assert found.bytes_per_token == 1
    assert "-" in str(evaluate([low()], {"dots": ["..."]})).splitlines()[4]


# -- Words ----------------------------------------------------------------------


def kind_of(text: str, i: int) -> str:
    """Say what a character is, the plain way."""
    char = text[i]
    if regex.fullmatch(r"\p{M}", char):
        kind = kind_of(text, i - 1) if i else "other"
        return "other" if kind == "space" else kind
    if char in "'’":
        inside = 0 < i < len(text) - 1 and kind_of(text, i - 1) == "word"
        return "word" if inside and plainly(text[i + 1]) == "word" else "other"
    return plainly(char)


def plainly(char: str) -> str:
    if regex.fullmatch(r"\s", char):
        return "space"
    if not regex.fullmatch(r"[\p{L}\p{N}]", char):
        return "other"
    alone = any(regex.fullmatch(rf"\p{{scx={s}}}", char) for s in UNSPACED_SCRIPTS.split())
    return "solo" if alone and regex.fullmatch(r"\p{L}", char) else "word"


def naive_pieces(text: str) -> list[tuple[str, str]]:
    pieces: list[tuple[str, str]] = []
    for i, char in enumerate(text):
        kind = kind_of(text, i)
        mark = regex.fullmatch(r"\p{M}", char)
        if pieces and pieces[-1][0] == kind and (kind != "solo" or mark):
            pieces[-1] = kind, pieces[-1][1] + char
        else:
            pieces.append((kind, char))
    return pieces


@given(hard_text)
@example("don't 'tis dogs' rock'n'roll l’été x'1 'é'")
@example("\u0301a \u0301b.\u0301")
@example("ก็ไม่ ソース コード 々")
def test_pieces_are_those_of_plainer_code(text: str) -> None:
    found, expected = Pieces(text), naive_pieces(text)
    assert found.texts() == [piece for _, piece in expected]
    words = [piece for kind, piece in expected if kind in ("word", "solo")]
    assert [found.text(i) for i in found.words] == words


def test_words_of_several_languages() -> None:
    def words(text: str) -> list[str]:
        pieces = Pieces(text)
        return [pieces.text(i) for i in pieces.words]

    assert words("don't foo_bar(x1) 3.14") == ["don't", "foo", "bar", "x1", "3", "14"]
    assert words("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert words("日本語 データ") == ["日", "本", "語", "デ", "ー", "タ"]
    assert words("ที่ 한국어") == ["ที่", "한국어"]
    assert words("") == words("?! \n") == []


# -- Tokens per word and all else, by naive code and by other libraries ----------------


def naive_counts(
    documents: list[str], encode: Callable[[str], list[int]], bytes_of: Callable[[int], bytes]
) -> dict[str, Any]:
    """Count tokens, and those of each word, from what a library says."""
    uses: Counter[int] = Counter()
    per_word: Counter[int] = Counter()
    for text in documents:
        ids = encode(text)
        uses.update(ids)
        spans, at = [], 0
        for id_ in ids:
            spans.append((at, at + len(bytes_of(id_))))
            at = spans[-1][1]
        at = 0
        for kind, piece in naive_pieces(text):
            end = at + len(piece.encode())
            if kind in ("word", "solo"):
                per_word[sum(start < end and stop > at for start, stop in spans)] += 1
            at = end
    return {"uses": uses, "per_word": per_word, "tokens": sum(uses.values())}


def check(found: Measures, expected: dict[str, Any], n_ordinary: int) -> None:
    uses, per_word = expected["uses"], expected["per_word"]
    assert found.tokens == expected["tokens"]
    assert {n: k for n, k in enumerate(found.words_by_tokens or []) if k} == dict(per_word)
    every = sorted(per_word.elements())
    assert found.words == len(every)
    assert found.tokens_per_word == pytest.approx(sum(every) / len(every))
    assert found.median_tokens_per_word == every[math.ceil(0.5 * len(every)) - 1]
    assert found.p95_tokens_per_word == every[math.ceil(0.95 * len(every)) - 1]
    assert found.single_token_words == pytest.approx(every.count(1) / len(every))
    assert found.unused_tokens == n_ordinary - len(uses)
    shares = [count / sum(uses.values()) for count in uses.values()]
    entropy = math.log2(sum(p**2.5 for p in shares)) / -1.5
    assert found.renyi_efficiency == pytest.approx(entropy / math.log2(n_ordinary))
    shannon = -sum(p * math.log2(p) for p in shares)
    assert found.shannon_efficiency == pytest.approx(shannon / math.log2(n_ordinary))


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k"])
def test_figures_are_those_of_naive_code_for_three_libraries(pattern: str) -> None:
    hf, tk = need("tokenizers"), need("tiktoken")
    tokenizer = trained(pattern)
    huggingface, encoding = tokenizer.to_hf(), tokenizer.to_tiktoken()
    assert isinstance(huggingface, hf.Tokenizer)
    assert isinstance(encoding, tk.Encoding)
    tokenizers = {"own": tokenizer, "hf": huggingface, "tiktoken": encoding}
    found = evaluate(tokenizers, {"all": iter(DOCUMENTS), "one": [TEXT]})
    for group, texts in (("all", DOCUMENTS), ("one", [TEXT])):
        expected = naive_counts(texts, encoding.encode_ordinary, encoding.decode_single_token_bytes)
        check(found.get("own", group), expected, len(tokenizer) - 1)
        own = figures(found, "own", group)
        assert own["wrong_round_trips"] == 0
        assert own["bytes"] == sum(len(text.encode()) for text in texts)
        assert own["characters"] == sum(map(len, texts))
        assert figures(found, "hf", group) == figures(found, "tiktoken", group) == own
    one, two, three = found.vocabularies
    assert one.scripts == two.scripts == three.scripts
    size = len(tokenizer)
    assert {(v.vocab_size, v.special_tokens, v.rows) for v in found.vocabularies} == {
        (size, 1, size)
    }


@given(hard_text)
def test_words_in_context_are_cut_as_by_tiktoken(text: str) -> None:
    need("tiktoken")
    encoding = encoding_of(trained("cl100k"))
    found = evaluate([trained("cl100k")], {"t": [text, "x"]}).get("bpe-tokenizer", "t")
    bytes_of = encoding.decode_single_token_bytes
    expected = naive_counts([text, "x"], encoding.encode_ordinary, bytes_of)
    check(found, expected, len(trained("cl100k")) - 1)
    assert found.wrong_round_trips == 0


@functools.cache
def encoding_of(tokenizer: BPETokenizer) -> Any:
    return tokenizer.to_tiktoken()


def test_a_word_is_measured_where_it_stands_and_not_by_itself() -> None:
    # " ab" stands behind a space that belongs to its token; alone it would have two.
    tokenizer = BPETokenizer("gpt2", normalizer=None)
    tokenizer.train([" ab ab ac"], vocab_size=258, verbose=False)
    assert tokenizer.merges == [(b" ", b"a"), (b" a", b"b")]
    assert len(tokenizer.encode("ab")) == 2
    found = evaluate([tokenizer], {"w": ["x ab ab"]}).get("bpe-tokenizer", "w")
    assert found.words_by_tokens == [0, 3]


def test_a_token_over_two_words_counts_for_both() -> None:
    tokenizer = trained_on_han()
    assert len(tokenizer.encode("日本")) == 1
    found = evaluate([tokenizer], {"w": ["日本"]}).get("bpe-tokenizer", "w")
    assert (found.tokens, found.words, found.tokens_per_word) == (1, 2, 1.0)


def trained_on_han() -> BPETokenizer:
    tokenizer = BPETokenizer("gpt2", normalizer=None)
    return tokenizer.train(["日本 日本 日本"], vocab_size=261, verbose=False)


def test_a_normalizer_is_no_wrong_round_trip_and_words_stay_those_of_the_text() -> None:
    need("tokenizers")
    text = "e\u0301te\u0301 naïve"
    tokenizer = trained(normalizer="NFC")
    found = evaluate({"own": tokenizer, "hf": tokenizer.to_hf()}, {"t": [text, "ete"]})
    assert figures(found, "own", "t") == figures(found, "hf", "t")
    own = found.get("own", "t")
    assert (own.words, own.wrong_round_trips, own.changed_documents) == (3, 0, 1)
    assert own.bytes == len(text.encode()) + 3
    ids, offsets = [], []
    for each in (text, "ete"):
        encoded = tokenizer.to_hf().encode(each, add_special_tokens=False)
        ids += encoded.ids
        offsets.append(encoded.offsets)
    first = sum(start < 5 and end > 0 for start, end in offsets[0])
    second = sum(start < 11 and end > 6 for start, end in offsets[0])
    counts = Counter([first, second, len(offsets[1])])
    assert {n: k for n, k in enumerate(own.words_by_tokens or []) if k} == counts
    assert own.tokens == len(ids)


def test_documents_that_do_not_come_back_are_counted() -> None:
    hf = need("tokenizers")
    model = hf.models.WordLevel({"low": 0, "<unk>": 1}, unk_token="<unk>")
    tokenizer = hf.Tokenizer(model)
    tokenizer.pre_tokenizer = hf.pre_tokenizers.Whitespace()
    found = evaluate({"words": tokenizer}, {"t": ["low", "low lower", "high"]}).get("words", "t")
    assert (found.wrong_round_trips, found.documents, found.tokens) == (2, 3, 4)
    assert found.words_by_tokens == [0, 4]


def test_tokens_of_words_by_offsets_where_tokens_do_not_spell_the_text() -> None:
    hf = need("tokenizers")
    tokenizer = hf.Tokenizer(hf.models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = hf.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = hf.pre_tokenizers.BertPreTokenizer()
    trainer = hf.trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=["[UNK]", "[CLS]"], show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    text = "The LOWEST is don't-ish; Größe"
    found = evaluate({"bert": tokenizer}, {"t": [text]})
    expected = Counter()
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    at = 0
    for kind, piece in naive_pieces(text):
        if kind == "word":
            expected[sum(s < at + len(piece) and e > at for s, e in offsets)] += 1
        at += len(piece)
    counted = found.get("bert", "t")
    assert counted.tokens == len(offsets)
    assert {n: k for n, k in enumerate(counted.words_by_tokens or []) if k} == expected
    assert counted.changed_documents == 1
    vocabulary = found.vocabularies[0]
    assert vocabulary.special_tokens == 2
    assert class_of(b"##est") == "Latin"


def test_a_word_that_a_tokenizer_drops_has_no_token() -> None:
    hf = need("tokenizers")
    tokenizer = low().to_hf()
    tokenizer.normalizer = hf.normalizers.Replace("drop", "")
    found = evaluate({"hf": tokenizer}, {"t": ["low drop low ab"]}).get("hf", "t")
    assert found.words_by_tokens == [1, 2, 1]
    assert found.single_token_words == 0.5
    assert found.tokens_per_word == 1.0
    assert (found.changed_documents, found.wrong_round_trips) == (1, 0)


def test_settings_of_an_object_are_left_alone() -> None:
    hf = need("tokenizers")
    tokenizer = trained().to_hf()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=9)
    text = "the lowest <|endoftext|> of"
    found = evaluate({"hf": tokenizer}, {"t": [text]}).get("hf", "t")
    assert found.tokens == len(trained().encode(text)) > 3
    assert len(tokenizer.encode(text).ids) == 9
    assert isinstance(tokenizer, hf.Tokenizer)
    assert not tokenizer.encode_special_tokens


def test_a_space_put_before_a_text_and_added_tokens_that_take_space_in(tmp_path: Path) -> None:
    hf = need("tokenizers")
    tokenizer = trained().to_hf()
    tokenizer.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.add_tokens([hf.AddedToken("<x>", rstrip=True, normalized=False)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = ["the lowest", " the", "don't <x>  stop", "x"]
    found = evaluate({"own": tmp_path, "hf": f"hf:{tmp_path}"}, {"t": texts, "more": texts[:2]})
    for group in found.groups:
        assert figures(found, "own", group) == figures(found, "hf", group)
    own = found.get("own", "t")
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    assert own.tokens == sum(map(len, ids))
    assert own.wrong_round_trips == 1  # the spaces behind <x>
    assert found.get("own", "more").words_by_tokens == [
        0,
        *measured(ids[:2], [["Ġthe", "Ġlowest"], ["Ġthe"]], tokenizer),
    ]


def test_tokens_that_the_library_places_nowhere_hold_nothing(tmp_path: Path) -> None:
    hf = need("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_files.text("prefix space inside"), encoding="utf-8")
    told = hf.Tokenizer.from_file(str(path)).encode("a 8, 9", add_special_tokens=False).offsets
    assert sum(start < end for start, end in told) == 3 < len(told)  # and one goes back
    found = evaluate({"hf": f"hf:{path}"}, {"t": ["a 8, 9"]}).get("hf", "t")
    assert found.words_by_tokens == [0, 3]


def measured(ids: list[list[int]], words: list[list[str]], tokenizer: Any) -> list[int]:
    """Count words by their tokens, where tokens and words together are the text."""
    counts: Counter[int] = Counter()
    for row, expected in zip(ids, words):
        tokens = [tokenizer.id_to_token(id_) for id_ in row]
        for word in expected:
            n, joined = 0, ""
            while joined != word:
                joined += tokens.pop(0)
                n += 1
            counts[n] += 1
        assert not tokens
    return [counts[n] for n in range(1, max(counts) + 1)]


@functools.cache
def piece_model(**options: Any) -> bytes:
    sentencepiece = need("sentencepiece")
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split("\n") * 20), model_writer=file, minloglevel=9, **options
    )
    return file.getvalue()


LLAMA = {
    "model_type": "bpe", "vocab_size": 400, "byte_fallback": True, "character_coverage": 0.98,
    "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
}  # fmt: skip
PLAIN = {"model_type": "unigram", "vocab_size": 66}


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    need("sentencepiece")
    paths = {"llama": tmp_path / "llama.model", "plain": tmp_path / "plain.model"}
    paths["llama"].write_bytes(piece_model(**LLAMA))
    paths["plain"].write_bytes(piece_model(**PLAIN))
    return paths


def test_sentencepiece_by_itself_and_as_this_library_reads_it(models: dict[str, Path]) -> None:
    sentencepiece = need("sentencepiece")
    oracle = sentencepiece.SentencePieceProcessor(model_file=str(models["llama"]))
    texts = ["The  lower\tthe 世界 ű", "newest don't", TEXT]
    specs = [f"sp:{models['llama']}", str(models["llama"]), f"obj={models['llama']}", oracle]
    found = evaluate(specs, {"t": texts})
    assert found.tokenizers == ["llama", "llama (2)", "obj", "sentencepiece"]
    sp = figures(found, "llama", "t")
    assert all(figures(found, name, "t") == sp for name in found.tokenizers)
    assert sp["tokens"] == sum(len(oracle.encode(text)) for text in texts)
    assert (sp["wrong_round_trips"], sp["changed_documents"]) == (0, 0)
    assert found.vocabularies[0].special_tokens == 3  # <unk>, <s> and </s>
    # The pieces of "the" in "...\tthe 世界": its own and the space, by the library's words.
    one = evaluate(specs[:1], {"t": ["don't ű"]}).get("llama", "t")
    pieces = oracle.encode("don't ű", out_type=str)
    n_last = sum(piece.startswith("<0x") for piece in pieces)
    assert n_last == 2
    n_first = len(pieces) - n_last - (pieces[-3] == "▁")
    assert Counter(dict(enumerate(one.words_by_tokens or []))) == Counter([n_first, n_last])


def test_sentencepiece_that_normalizes_and_knows_no_bytes(models: dict[str, Path]) -> None:
    need("sentencepiece")
    found = evaluate([f"sp:{models['plain']}"], {"t": ["the  ﬁne", "the 𝕏 the", "the lower"]})
    counted = found.get("plain", "t")
    assert counted.changed_documents == 2  # two spaces and a ligature; a letter
    assert counted.wrong_round_trips == 1  # the letter, which is unknown
    assert counted.words == 7
    assert sum(counted.words_by_tokens or []) == 7


def test_transformers_fast_and_slow(tmp_path: Path) -> None:
    transformers = need("transformers")
    trained().save(tmp_path / "saved", verbose=False)
    fast = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    found = evaluate(
        {"own": trained(), "fast": fast, "dir": f"hf:{tmp_path / 'saved'}"}, {"t": [TEXT]}
    )
    assert figures(found, "fast", "t") == figures(found, "own", "t") == figures(found, "dir", "t")
    slow = transformers.ByT5Tokenizer()
    spelled = evaluate([slow], {"t": ["the low"], "more": ["für"]})
    assert spelled.get("transformers", "t").words_by_tokens == [0, 0, 0, 2]
    assert spelled.get("transformers", "t").tokens == 7
    assert spelled.get("transformers", "more").tokens == 4
    assert spelled.get("transformers", "more").tokens_per_word is None
    assert spelled.get("transformers", "overall").words_by_tokens is None
    with pytest.raises(ValueError, match="transformers can't be compared: it has no offsets"):
        compare(slow, trained(), {"t": ["für"]})


# -- Vocabularies -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (b"a", "Latin"), (b" the", "Latin"), (b"don't", "Latin"), (b"x1", "Latin"),
        ("é".encode(), "Latin"), ("e\u0301".encode(), "Latin"), (" мир".encode(), "Cyrillic"),
        ("aд".encode(), "several scripts"), ("漢字".encode(), "Han"),
        ("漢字か".encode(), "several scripts"), ("カー".encode(), "Katakana"),
        ("한국".encode(), "Hangul"), ("कि".encode(), "Devanagari"), ("ꓐ".encode(), "Lisu"),
        ("ᠠ".encode(), "Mongolian"), ("ᐁ".encode(), "Canadian Aboriginal"),
        ("𒀀".encode(), "another script"), (b" ", "white space"), (b"\n\t ", "white space"),
        ("\u3000".encode(), "white space"), (b"123", "digits"), (b" 1", "digits"),
        ("٣".encode(), "digits"), ("²Ⅷ".encode(), "digits"), ("१२".encode(), "digits"),
        (b"();", "punctuation and symbols"), (b" ==", "punctuation and symbols"),
        (b"\x00", "punctuation and symbols"), ("😀".encode(), "punctuation and symbols"),
        (b"1.", "punctuation and symbols"), ("\u0301".encode(), "punctuation and symbols"),
        ("ー".encode(), "punctuation and symbols"), (b"\xe6\xbc", "part of a character"),
        (b"a\xff", "part of a character"), (b"", "punctuation and symbols"),
    ],
)  # fmt: skip
def test_the_script_of_a_token(token: bytes, name: str) -> None:
    assert class_of(token) == name


def test_allocation_counts_tokens_and_means() -> None:
    tokens = [b"ab", b" abcd", "мир".encode(), b"7", b"\xd0", b"\xd0\xbc\xd0"]
    found = allocate(tokens)
    assert list(found) == ["Latin", "part of a character", "Cyrillic", "digits"]
    assert dataclasses.astuple(found["Latin"]) == (2, 2 / 6, 3.5, 3.5)
    assert dataclasses.astuple(found["Cyrillic"]) == (1, 1 / 6, 3.0, 6.0)
    assert dataclasses.astuple(found["part of a character"]) == (2, 2 / 6, None, 2.0)
    assert allocate([]) == {}


SCRIPT_BY_NAME = {
    "LATIN": "Latin", "CYRILLIC": "Cyrillic", "GREEK": "Greek", "HEBREW": "Hebrew",
    "ARMENIAN": "Armenian", "GEORGIAN": "Georgian", "THAI": "Thai", "TAMIL": "Tamil",
    "TELUGU": "Telugu", "BENGALI": "Bengali", "HANGUL": "Hangul", "HIRAGANA": "Hiragana",
    "KATAKANA": "Katakana", "CJK": "Han", "KHMER": "Khmer", "ETHIOPIC": "Ethiopic",
}  # fmt: skip


def test_scripts_of_a_real_vocabulary_agree_with_the_names_of_characters(
    load_vocab: Callable[[str], Any],
) -> None:
    ranks, _ = load_vocab("o200k_base")
    found = allocate(ranks)
    expected: Counter[str] = Counter()
    lengths: Counter[str] = Counter()
    for token in ranks:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            expected["part of a character"] += 1
            continue
        letters = [char for char in text if unicodedata.category(char) in ("Ll", "Lu", "Lo", "Lt")]
        names = {unicodedata.name(char, "?").split()[0] for char in letters}
        others = {char for char in text if unicodedata.category(char)[0] == "M"}
        if len(names) == 1 and not others and all(c.isalpha() or c.isspace() for c in text):
            (name,) = names
            expected[SCRIPT_BY_NAME.get(name, name)] += 1
            lengths[SCRIPT_BY_NAME.get(name, name)] += len(text)
    assert found["part of a character"].tokens == expected["part of a character"]
    for script in ("Cyrillic", "Armenian", "Georgian", "Hangul", "Greek"):
        # Few tokens of these have marks, digits or signs beside letters: those are left out above.
        assert 0 <= found[script].tokens - expected[script] <= 0.02 * found[script].tokens, script
        mean = lengths[script] / expected[script]
        assert found[script].mean_characters == pytest.approx(mean, rel=0.02)
    assert sum(each.tokens for each in found.values()) == len(ranks)
    assert sum(each.share for each in found.values()) == pytest.approx(1)


# -- Real vocabularies ----------------------------------------------------------------


def test_real_vocabularies_on_real_text_against_tiktoken(
    vocab_dir: Path, corpora: Callable[[str], str], load_vocab: Callable[[str], Any]
) -> None:
    tiktoken = need("tiktoken")
    ranks, meta = load_vocab("cl100k_base")
    encoding = tiktoken.Encoding(
        "cl100k", pat_str=meta["pat_str"], mergeable_ranks=ranks,
        special_tokens=meta["special_tokens"],
    )  # fmt: skip
    texts = {name: corpora(name)[:150_000].split("<|endoftext|>") for name in ("english", "multi")}
    found = evaluate({"own": vocab_dir / "cl100k_base.tiktoken", "tiktoken": encoding}, texts)
    for group in found.groups:
        assert figures(found, "own", group) == figures(found, "tiktoken", group)
    ids = [encoding.encode_ordinary(text) for text in texts["multi"]]
    multi = found.get("own", "multi")
    assert multi.tokens == sum(map(len, ids))
    assert multi.unused_tokens == len(ranks) - len(set().union(*ids))
    assert multi.bytes_per_token == len("".join(texts["multi"]).encode()) / multi.tokens
    assert found.vocabularies[0].vocab_size == len(ranks) + len(meta["special_tokens"])
    assert found.vocabularies[0].rows == max(meta["special_tokens"].values()) + 1
    starts = naive_counts(
        texts["english"][:3], encoding.encode_ordinary, encoding.decode_single_token_bytes
    )
    check(evaluate([encoding], {"e": texts["english"][:3]}).get("cl100k", "e"), starts, len(ranks))


# -- Texts from files -------------------------------------------------------------------


def test_documents_are_cut_at_the_separator_however_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "one<|endoftext|>two\n<|endoftext|><|endoftext|>thrée<|endo"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"x<|endoftext|>y"))
    (tmp_path / "c.jsonl").write_text('{"text": "p"}\n{"text": "q<|endoftext|>r"}\n')
    (tmp_path / "empty.txt").touch()
    expected = ["one", "two\n", "thrée<|endo", "x", "y", "p", "q", "r"]
    for block in (1, 2, 7, 1 << 20):
        monkeypatch.setattr(bpe_tokenizer, "_BLOCK_CHARS", block)
        assert list(FileGroup("g", [tmp_path])) == expected
    assert list(FileGroup("g", [tmp_path / "a.txt"], separator="")) == [text]
    assert list(FileGroup("g", [tmp_path / "a.txt"], separator="e"))[:2] == ["on", "<|"]


def test_parquet_and_other_fields_are_read(tmp_path: Path) -> None:
    pa, parquet = need("pyarrow"), need("pyarrow.parquet")
    parquet.write_table(pa.table({"body": ["a", "b<|endoftext|>c"]}), tmp_path / "x.parquet")
    (tmp_path / "y.jsonl").write_text('{"body": "d"}\n')
    given = [f"g={tmp_path / 'x.parquet'}", f"g={tmp_path / 'y.jsonl'}"]
    assert list(file_groups(given, text_field="body")["g"]) == ["a", "b", "c", "d"]


def test_a_long_document_is_cut_at_line_ends(tmp_path: Path) -> None:
    lines = [f"line {i} " + "word " * (i % 50) + "\n" for i in range(40_000)]
    (tmp_path / "long.txt").write_text("".join(lines))
    pieces = list(FileGroup("g", [tmp_path / "long.txt"]))
    assert "".join(pieces) == "".join(lines)
    assert len(pieces) == math.ceil(len("".join(pieces)) / 2**20)
    assert all(len(piece) <= 2**20 for piece in pieces)
    assert all(piece.endswith("\n") for piece in pieces)
    (tmp_path / "one.txt").write_text("x" * (2**20 + 5))
    assert list(map(len, FileGroup("g", [tmp_path / "one.txt"]))) == [2**20, 5]


def test_a_long_document_is_one_though_it_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for longest in ("bpe_tokenizer._BLOCK_CHARS", "bpe_tokenizer_tools.evaluation.texts._LONGEST"):
        monkeypatch.setattr(longest, 2**15)  # a 32nd of what they are
    ligature = "\ufb01n"  # which NFKC changes
    texts = ["short", "x\n" * 78_000 + ligature, ligature, "", "y\n" * 2**15, "end"]
    texts[1] = ligature + texts[1]  # in the first and the last of five parts
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "long.jsonl").write_text(lines)
    (tmp_path / "long.txt").write_text("<|endoftext|>".join(texts), encoding="utf-8")
    assert len(list(FileGroup("g", [tmp_path / "long.txt"]))) == 10
    tokenizer = BPETokenizer(normalizer="NFKC")
    for name in ("long.txt", "long.jsonl"):
        found = evaluate({"t": tokenizer}, {"g": tmp_path / name}).get("t", "g")
        assert (found.documents, found.changed_documents, found.wrong_round_trips) == (5, 2, 0)
        assert found.bytes == sum(len(text.encode()) for text in texts)
    found = evaluate({"t": tokenizer}, {"a": tmp_path / "long.txt", "b": ["p", "q"]})
    assert [each.documents for each in found.measures] == [5, 2, 7]


def test_a_sample_is_the_same_each_time_from_all_over_and_not_too_large() -> None:
    documents = [f"{i} " + "é" * (i % 7) for i in range(2000)]
    taken = sample(iter(documents), 5000)
    assert taken == sample(documents, 5000)
    assert 4970 < sum(len(text.encode()) for text in taken) <= 5000
    places = [documents.index(text) for text in taken]
    assert places == sorted(set(places))
    for quarter in range(4):  # a quarter of them from each quarter, more or less
        n = sum(quarter * 500 <= place < quarter * 500 + 500 for place in places)
        assert 0.18 < n / len(places) < 0.32
    assert sample(documents, 10**9) == documents
    assert set(sample(documents, 2000)) <= set(taken)
    assert sample(["éé"], 3) == ["é"]
    assert sample([], 5) == []


def test_a_sample_is_what_plainer_code_takes() -> None:
    rng = random.Random(1)
    documents = ["x" * rng.randrange(1, 90) for _ in range(300)]

    def key(i: int) -> bytes:
        return hashlib.blake2b(f"{i} {documents[i]}".encode(), digest_size=8).digest()

    expected, total = [], 0
    for i in sorted(range(300), key=key):
        total += len(documents[i])
        if total > 3000:
            break
        expected.append(i)
    assert sample(documents, 3000) == [documents[i] for i in sorted(expected)]


def test_a_sample_of_one_long_file_is_from_all_over(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("".join(f"{i:06}\n" for i in range(100_000)))
    found = list(FileGroup("g", [tmp_path / "t.txt"], max_bytes=70_000))
    assert 60_000 < sum(map(len, found)) <= 70_000
    numbers = [int(line) for text in found for line in text.split()]
    assert min(numbers) < 30_000
    assert max(numbers) > 70_000


def test_groups_are_named_or_called_by_their_files(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "x=y.txt"):
        (tmp_path / name).write_text("text")
    given = [f"g={tmp_path / 'a.txt'}", f"g={tmp_path / 'b.txt'}", str(tmp_path / "a.txt")]
    groups = file_groups([*given, str(tmp_path / "x=y.txt")])
    assert {name: [p.name for p in group.paths] for name, group in groups.items()} == {
        "g": ["a.txt", "b.txt"], "a": ["a.txt"], "x=y": ["x=y.txt"],
    }  # fmt: skip


def test_parallel_lines_are_read_and_counted(tmp_path: Path) -> None:
    (tmp_path / "eng.txt").write_bytes(b"one\r\n\r\nthree\r\n")
    (tmp_path / "fra.txt.gz").write_bytes(gzip.compress(b"un\n\ntrois"))
    (tmp_path / "deu.jsonl").write_text('{"text": "eins"}\n{"text": ""}\n{"text": "d\\nrei"}\n')
    paths = [str(tmp_path / name) for name in ("eng.txt", "fra.txt.gz", "deu.jsonl")]
    lines = parallel_lines(paths)
    assert lines == {
        "eng": ["one", "", "three"], "fra": ["un", "", "trois"], "deu": ["eins", "", "d\nrei"],
    }  # fmt: skip
    (tmp_path / "one.jsonl.gz").write_bytes(gzip.compress(b'{"text": "ein\\nSatz"}\n'))
    assert parallel_lines([str(tmp_path / "one.jsonl.gz")]) == {"one": ["ein\nSatz"]}
    (tmp_path / "fra.txt.gz").write_bytes(gzip.compress(b"un\n"))
    with pytest.raises(ValueError, match="'eng' has 3, 'fra' 1"):
        evaluate([low()], parallel=parallel_lines(paths))


# -- Comparing ------------------------------------------------------------------------


def cut_points(ids: list[int], bytes_of: Callable[[int], bytes]) -> set[int]:
    at, ends = 0, set()
    for id_ in ids:
        at += len(bytes_of(id_))
        ends.add(at)
    return ends


def test_differing_words_and_totals_are_those_of_plainer_code() -> None:
    need("tiktoken")
    a, b = trained("gpt2", size=420), trained("cl100k", size=340)
    texts = {"all": DOCUMENTS, "one": [TEXT * 3]}
    found = compare(a, b, texts, n_expensive=10**6, n_examples=10**6)
    total = 0
    for difference in found.differences[:-1]:
        documents = texts[difference.group]
        words = differing = 0
        for text in documents:
            ends = [
                cut_points(encoding.encode_ordinary(text), encoding.decode_single_token_bytes)
                for encoding in (encoding_of(a), encoding_of(b))
            ]
            at = 0
            for kind, piece in naive_pieces(text):
                end = at + len(piece.encode())
                if kind in ("word", "solo"):
                    words += 1
                    inside = [{e for e in side if at < e < end} for side in ends]
                    differing += inside[0] != inside[1]
                at = end
        assert (difference.words, difference.differing) == (words, differing)
        assert difference.share == differing / words
        assert difference.a_tokens == sum(len(a.encode(text)) for text in documents)
        assert difference.b_tokens == sum(len(b.encode(text)) for text in documents)
        total += differing
    overall = found.differences[-1]
    assert (overall.group, overall.differing) == ("overall", total)
    assert len(found.examples) == total
    # What each loses against the other, together, is the difference.
    lost = sum(each.a_tokens - each.b_tokens for each in found.expensive_for_a)
    won = sum(each.b_tokens - each.a_tokens for each in found.expensive_for_b)
    assert lost > 0
    assert won > 0
    assert lost - won == overall.a_tokens - overall.b_tokens
    measured = evaluate([a, b], texts)
    assert [m.tokens for m in found.measures] == [m.tokens for m in measured.measures]


def test_a_comparison_worked_out_by_hand() -> None:
    plain = BPETokenizer("gpt2", normalizer=None)
    found = compare({"a": plain}.pop("a"), low(), {"t": ["a low, lower low"], "u": ["ab"]})
    t, u, overall = found.differences
    assert dataclasses.astuple(t) == ("t", 4, 3, 0.75, 16, 10, 6 / 16)
    assert dataclasses.astuple(u) == ("u", 1, 0, 0.0, 2, 2, 0.0)
    assert (overall.a_tokens, overall.b_tokens, overall.words, overall.differing) == (18, 12, 5, 3)
    (word, lower) = found.expensive_for_a
    # In "lower" both have ends behind each letter of "er", but a word is kept whole.
    assert dataclasses.astuple(word) == ("low", 2, 6, 2, "l o w", "low")
    assert dataclasses.astuple(lower) == ("lower", 1, 5, 3, "l o w e r", "low e r")
    assert found.expensive_for_b == []
    vocabulary = found.vocabulary
    assert (vocabulary.shared, vocabulary.only_a, vocabulary.only_b) == (256, 0, 2)
    assert (vocabulary.only_a_used, vocabulary.only_b_used) == (0.0, 3 / 12)
    assert vocabulary.only_b_examples == [("low", 3)]
    assert {(e.before, e.word, e.after) for e in found.examples} == {
        ("a ", "low", ", lower low"), ("a low, ", "lower", " low"), ("a low, lower ", "low", ""),
    }  # fmt: skip
    name = "bpe-tokenizer"
    assert found.verdict == (
        f"{name} (2) needs 33.3% fewer tokens than {name} overall: 12 against 18. It cuts 60.0% "
        f"of the words differently. {name} (2) needs fewer on 1 of 2 groups: -37.5% on t, 0.0% "
        f"on u. {name} (2) costs 2 more embedding rows."
    )
    shown = str(found)
    assert "[lower]" in shown
    assert shown.endswith(found.verdict)


def test_the_verdict_the_other_way_round_and_for_equals() -> None:
    back = compare(low(), BPETokenizer(normalizer=None), {"t": ["low"]})
    assert back.verdict == (
        "bpe-tokenizer (2) needs 200.0% more tokens than bpe-tokenizer on t: 3 against 1. It cuts "
        "100.0% of the words differently. bpe-tokenizer (2) costs 2 fewer embedding rows."
    )
    same = compare(low(), low(), {"t": ["low lower"], "u": ["x"]})
    assert same.verdict.startswith("Both cut all words the same way and need 6 tokens.")
    assert same.examples == same.expensive_for_a == same.expensive_for_b == []
    assert [table.title for table in same.tables()] == [
        "Tokens of bpe-tokenizer and bpe-tokenizer (2)", "Vocabularies",
    ]  # fmt: skip


def test_a_word_is_one_entry_with_and_without_the_space_before_it() -> None:
    spaced = BPETokenizer("gpt2", normalizer=None)
    spaced.train([" ab ab ac"], vocab_size=258, verbose=False)
    found = compare(BPETokenizer(normalizer=None), spaced, {"t": ["x ab", " ab   ab ab"]})
    (expense,) = found.expensive_for_a
    assert dataclasses.astuple(expense) == ("ab", 4, 12, 4, "· a b", "·ab")


def test_a_stretch_is_whole_characters() -> None:
    # Both have a token that ends within the character, at the same place.
    a, b = BPETokenizer(normalizer=None), BPETokenizer(normalizer=None)
    b.train(["😀 😀"], 257, verbose=False)
    assert b.merges == [(b"\x98", b"\x80")] or len(b.encode("😀")) == 3
    (expense,) = compare(a, b, {"t": ["😀!"]}).expensive_for_a
    assert (expense.text, expense.a_tokens, expense.b_tokens) == ("😀", 4, 3)
    assert expense.a_cut == "⟨F0⟩ ⟨9F⟩ ⟨98⟩ ⟨80⟩"


def test_nothing_depends_on_how_much_is_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"a": [TEXT[i:] for i in range(60)], "b": ["x", "", "don't"] * 20}
    measured = evaluate([trained(), low()], texts)
    compared = compare(trained(), low(), texts)
    for size in (1, 100, 3000):
        monkeypatch.setattr(measures, "_CHUNK_CHARS", size)
        assert evaluate([trained(), low()], texts) == measured
        assert compare(trained(), low(), texts) == compared


def test_what_makes_little_difference_is_forgotten_where_there_is_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rare = [f"low{'abcdefghij'[i % 10] * (i // 10 + 1)}" for i in range(300)]
    texts = ["slow " * 9, *rare[:150], "slow low", *rare[150:]]
    monkeypatch.setattr(measures, "_CHUNK_CHARS", 200)
    plain = BPETokenizer("gpt2", normalizer=None)
    whole = compare(plain, low(), {"t": texts}, n_expensive=500)
    monkeypatch.setattr(comparison, "_MOST_STRETCHES", 40)
    found = compare(plain, low(), {"t": texts}, n_expensive=500)
    assert len(whole.expensive_for_a) == 302
    assert len(found.expensive_for_a) <= 40
    assert found.expensive_for_a[0] == whole.expensive_for_a[0]
    assert whole.expensive_for_a[0].text == "slow"
    assert found.differences == whole.differences
    assert found.verdict == whole.verdict


def test_examples_are_spread_and_show_white_space_and_bytes() -> None:
    a, b = BPETokenizer(normalizer=None), trained_on_han()
    texts = [f"{'x ' * 40}日本 {i}" for i in range(500)]
    found = compare(a, b, {"t": texts}, n_examples=5)
    again = compare(a, b, {"t": texts}, n_examples=5)
    assert found.examples == again.examples
    places = [int(example.after.split()[-1]) for example in found.examples]
    assert len(places) == 5
    assert places == sorted(places)
    assert places[-1] - places[0] > 100
    assert all(example.before.startswith("…") for example in found.examples)
    assert found.examples[0].b_cut == "日本"
    assert found.examples[0].a_cut in ("⟨E6⟩ ⟨97⟩ ⟨A5⟩", "⟨E6⟩ ⟨9C⟩ ⟨AC⟩")
    (expense,) = found.expensive_for_a
    assert (expense.text, expense.times, expense.a_tokens, expense.b_tokens) == (
        "日本", 500, 3000, 500,
    )  # fmt: skip


def test_a_comparison_reads_back(tmp_path: Path) -> None:
    found = compare(low(), trained(), {"t": DOCUMENTS}, parallel={"en": ["low"], "x": ["мир"]})
    data = json.loads(json.dumps(found.to_json()))
    assert data["differences"][0]["differing"] == found.differences[0].differing
    assert data["verdict"] == found.verdict
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [row["group"] for row in rows] == ["t", "en", "x", "overall"]
    assert float(rows[0]["saved"]) == found.differences[0].saved
    premiums = {m.group: m.premium for m in found.measures if m.tokenizer == "bpe-tokenizer"}
    assert premiums == {"t": None, "en": 1.0, "x": 6.0, "overall": None}


# -- Output -----------------------------------------------------------------------------


@pytest.fixture
def evaluation() -> Evaluation:
    return evaluate({"low": low(), "gpt2-like": trained()}, {"prose": DOCUMENTS, "Ünï": [TEXT]})


def test_json_and_csv_read_back(evaluation: Evaluation) -> None:
    data = json.loads(json.dumps(evaluation.to_json()))
    assert data["measures"] == [dataclasses.asdict(measures) for measures in evaluation.measures]
    low_scripts = data["vocabularies"][0]["scripts"]
    assert low_scripts["part of a character"]["tokens"] == 128
    assert low_scripts["Latin"]["tokens"] == 52 + 2
    rows = list(csv.DictReader(io.StringIO(evaluation.to_csv())))
    assert len(rows) == len(evaluation.measures) == 6
    for row, found in zip(rows, evaluation.measures):
        assert row.pop("tokenizer") == found.tokenizer
        assert row.pop("group") == found.group
        for name, text in row.items():
            value = getattr(found, name)
            assert text == "" if value is None else float(text) == value


def naive_gini(costs: list[float]) -> float:
    """Half the mean difference of two, over the mean."""
    apart = sum(abs(a - b) for a in costs for b in costs)
    return apart / (2 * len(costs) * sum(costs))


def test_gini_is_that_of_tokens_per_byte_or_of_parallel_tokens() -> None:
    texts = {"a": ["the cat sat on the mat"], "b": ["\u0928\u092e\u0938\u094d\u0924\u0947"]}
    parallel = {"en": ["the dog", "a cat"], "de": ["der Hund", "eine Katze"]}
    found = evaluate({"x": low(), "y": trained()}, texts)
    for name, tokenizer in (("x", low()), ("y", trained())):
        costs = [len(tokenizer.encode(t)) / len(t.encode()) for [t] in texts.values()]
        assert found.gini(name) == pytest.approx(naive_gini(costs))
    assert json.loads(json.dumps(found.to_json()))["gini"]["y"] == found.gini("y")
    found = evaluate({"x": low(), "y": trained()}, texts, parallel=parallel)
    tokens = [
        float(sum(len(trained().encode(line)) for line in each)) for each in parallel.values()
    ]
    assert found.gini("y") == pytest.approx(naive_gini(tokens))
    assert found.tables()[2].rows[-1][0] == "Gini of tokens"
    alone = evaluate({"x": low(), "y": trained()}, {"a": texts["a"]})
    assert alone.gini("x") is None and len(alone.tables()) == 3


def test_tables_show_the_figures(evaluation: Evaluation) -> None:
    texts, shown, fertility, scripts = evaluation.tables()
    assert [row[0] for row in texts.rows] == ["prose", "Ünï", "overall"]
    found = evaluation.get("low", "prose")
    assert shown.rows[0][:4] == ["prose", "low", found.tokens, found.bytes_per_token]
    assert "premium" not in str(shown)
    rows = {row[0]: row[1:] for row in scripts.rows}
    assert rows["Latin"][:2] == [54, pytest.approx((52 + 2 + 3) / 54)]
    assert rows["special"] == [0, None, 1, None]
    assert rows["in all"] == [258, None, len(trained()), None]
    for column in (0, 2):
        parts = [row[column] for name, row in rows.items() if name != "in all"]
        assert sum(parts) == rows["in all"][column]
    assert list(fertility.columns) == ["tokens per word", "low", "gpt2-like"]
    assert [row[0] for row in fertility.rows] == [
        "prose",
        "Ünï",
        "overall",
        "Gini of tokens per byte",
    ]
    for group, *values in fertility.rows[:3]:
        assert values == [
            evaluation.get(n, str(group)).tokens_per_word for n in ("low", "gpt2-like")
        ]
    assert str(evaluation) == "\n\n".join(map(str, evaluation.tables()))
    with pytest.raises(KeyError):
        evaluation.get("low", "nothing")


def test_an_svg_holds_its_labels_and_is_the_same_each_time(
    evaluation: Evaluation, tmp_path: Path
) -> None:
    need("matplotlib")
    plots.plot(evaluation, tmp_path / "a.svg")
    plots.plot(evaluation, tmp_path / "b.SVG")
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    for label in ("low", "gpt2-like", "prose", "Ünï", "overall", "bytes per token", "Latin"):
        assert f">{label}</text>" in drawn, label
    assert "part of a character" in drawn
    assert drawn == (tmp_path / "b.SVG").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.SVG"]


def test_a_png_decodes_and_shows_the_bars(evaluation: Evaluation, tmp_path: Path) -> None:
    need("matplotlib")
    from matplotlib import image

    plots.plot(evaluation, tmp_path / "a.png")
    pixels = image.imread(tmp_path / "a.png")
    assert pixels.shape[1] == 1800
    assert pixels.shape[0] > 600
    for color in plots._COLORS[:2]:
        rgb = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        drawn = np.abs(pixels[:, :, :3] - rgb).max(axis=2) < 0.01
        assert drawn.mean() > 0.005, color


def test_bars_are_as_high_as_the_figures(evaluation: Evaluation) -> None:
    need("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    plots._draw_bytes_per_token(axes, evaluation)
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights == [
        [evaluation.get(name, group).bytes_per_token for group in evaluation.groups]
        for name in evaluation.tokenizers
    ]
    axes = Figure().subplots()
    plots._draw_tokens_per_word(axes, evaluation)
    shares = axes.lines[0].get_ydata()
    counts = evaluation.get("low", "overall").words_by_tokens or []
    assert shares[0] == pytest.approx(100 * sum(counts[2:]) / sum(counts))
    axes = Figure().subplots()
    plots._draw_scripts(axes, evaluation)
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert axes.containers[0][labels.index("Latin")].get_height() == 54


def test_scripts_with_few_tokens_share_a_line(evaluation: Evaluation) -> None:
    found = evaluation.vocabularies
    every = script_lines(found, 99)
    assert all(scripts == [line] for line, scripts in every.items())
    scripts = [name for name in every if name not in CLASSES]
    assert scripts[0] == "Latin"
    assert list(every) == [*scripts, *(name for name in CLASSES if name in every)]
    assert list(script_lines(found, 1).items())[:2] == [
        ("Latin", ["Latin"]), (f"{len(scripts) - 1} other scripts", scripts[1:]),
    ]  # fmt: skip
    assert script_lines(found, len(scripts) - 1)["1 other script"] == scripts[-1:]


def test_plots_of_odd_names_and_of_texts_without_words(tmp_path: Path) -> None:
    need("matplotlib")
    found = evaluate(
        {"_a $x$": low(), "日本": low()}, {f"{'g' * i}.": ["low ."] for i in range(1, 12)}
    )
    plots.plot(found, tmp_path / "odd.svg")
    assert "$x$" in (tmp_path / "odd.svg").read_text(encoding="utf-8")
    plots.plot(evaluate([low()], {"dots": ["..."]}), tmp_path / "dots.png")
    assert (tmp_path / "dots.png").stat().st_size > 5000


@pytest.mark.parametrize("text", ["low lower lowest ünï", "low " * 50 + "ünï", TEXT * 3])
def test_numbers_of_logarithmic_axes_are_written_alike(text: str, tmp_path: Path) -> None:
    need("matplotlib")
    from matplotlib.figure import Figure

    found = evaluate([low(), BPETokenizer()], {"text": [text]})
    for draw, form in (
        (plots._draw_tokens_per_word, r"[\d,]*\.?\d+%"),
        (plots._draw_scripts, r"[\d,]+"),
    ):
        figure = Figure()
        axes = figure.subplots()
        draw(axes, found)
        figure.canvas.draw()
        bottom, top = axes.get_ylim()
        seen = [
            label.get_text()
            for label in axes.get_yticklabels(which="both")
            if label.get_text() and bottom <= label.get_position()[1] <= top
        ]
        assert len(seen) >= 2
        assert all(re.fullmatch(form, label) for label in seen), seen


def test_a_plot_is_refused_under_another_name(evaluation: Evaluation, tmp_path: Path) -> None:
    need("matplotlib")
    with pytest.raises(ValueError, match=r"x\.pdf: a plot must be a \.png or \.svg file"):
        plots.plot(evaluation, tmp_path / "x.pdf")


# -- Opening tokenizers ---------------------------------------------------------------


def test_specs_and_objects_are_named(tmp_path: Path) -> None:
    need("tokenizers")
    trained().save(tmp_path / "mine", verbose=False)
    shutil.copy(tmp_path / "mine" / "tokenizer.json", tmp_path / "other.json")
    specs = [
        tmp_path / "mine", str(tmp_path / "mine" / "tokenizer.json"), str(tmp_path / "other.json"),
        f"named={tmp_path / 'mine'}", f"hf:{tmp_path / 'other.json'}", f"x=hf:{tmp_path / 'mine'}",
        trained(), open_tokenizer(low(), "ready"),
    ]  # fmt: skip
    opened = named_tokenizers(specs)
    assert [adapter.name for adapter in opened] == [
        "mine", "mine (2)", "other", "named", "other (2)", "x", "bpe-tokenizer", "ready",
    ]  # fmt: skip
    ids = trained().encode(TEXT)
    for adapter in opened[:-1]:
        assert adapter.encode(TEXT).tolist() == ids
        assert adapter.decode(adapter.encode(TEXT)) == TEXT
        assert adapter.spell(adapter.encode(TEXT)) == TEXT.encode()
        assert adapter.vocab_size == len(trained())
        assert adapter.special == {len(trained()) - 1}


def test_a_name_of_tiktoken_is_read_by_tiktoken(
    vocab_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiktoken = need("tiktoken")
    from tiktoken_ext import openai_public

    urls: list[str] = []

    def ranks_of(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
        urls.append(url)
        return {bytes([byte]): byte for byte in range(256)}

    with monkeypatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", ranks_of)
        openai_public.cl100k_base()
    name = hashlib.sha1(urls[0].encode()).hexdigest()
    shutil.copy(vocab_dir / "cl100k_base.tiktoken", tmp_path / name)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    found = evaluate(
        ["tiktoken:cl100k_base", str(vocab_dir / "cl100k_base.tiktoken")], {"t": [TEXT]}
    )
    first, second = found.tokenizers
    assert first == "cl100k_base"
    assert figures(found, first, "t") == figures(found, second, "t")
    assert found.vocabularies[0].rows == 100_277


def test_a_name_of_transformers_is_looked_up_in_its_cache(tmp_path: Path) -> None:
    need("transformers")
    trained().save(tmp_path / "saved", verbose=False)
    repository = tmp_path / "models--someone--tiny"
    snapshot = repository / "snapshots" / "abc"
    shutil.copytree(tmp_path / "saved", snapshot)
    (snapshot / "config.json").write_text('{"model_type": "gpt2"}')
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    from huggingface_hub import constants

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        import transformers.utils.hub as hub

        for module in (hub, constants):
            for name in ("TRANSFORMERS_CACHE", "PYTORCH_TRANSFORMERS_CACHE", "HF_HUB_CACHE"):
                if hasattr(module, name):
                    patch.setattr(module, name, str(tmp_path))
        adapter = open_tokenizer("hf:someone/tiny")
    assert adapter.name == "tiny"
    assert adapter.encode(TEXT).tolist() == trained().encode(TEXT)


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("nowhere", FileNotFoundError, r"nowhere: no such file or directory; expected the path of"),
        ("", FileNotFoundError, r"'': no such file"),
        ("gpt5:x", FileNotFoundError, r"gpt5:x: no such file"),
        ("hf:nowhere.json", FileNotFoundError, r"nowhere\.json: no such file"),
        ("hf:./nowhere", FileNotFoundError, r"\./nowhere: no such file"),
        ("hf:damaged.json", ValueError, r"damaged\.json cannot be loaded: "),
        ("damaged.json", ValueError, r"damaged\.json"),
        ("tiktoken:nothing", ValueError, r"tiktoken:nothing cannot be loaded: Unknown encoding"),
        ("sp:nowhere.model", FileNotFoundError, r"nowhere\.model: no such file; expected a Sent"),
        ("sp:.", FileNotFoundError, r"tokenizer\.model: no such file; expected a SentencePiece"),
        (
            "sp:damaged.json",
            ValueError,
            r"^damaged\.json: isn't a SentencePiece model, or is damaged$",
        ),
        ("sp:empty", ValueError, r"empty: the file is empty"),
        (42, TypeError, r"expected the path of a tokenizer, .* got 42"),
    ],
)
def test_what_cannot_be_opened_is_one_clear_line(
    spec: Any, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("tokenizers", "tiktoken", "sentencepiece"):
        need(library)
    monkeypatch.chdir(tmp_path)
    Path("damaged.json").write_text('{"model": 1, "version": "1.0", "added_tokens": []}')
    Path("empty").touch()
    with pytest.raises(error, match=message) as caught:
        open_tokenizer(spec)
    assert "\n" not in str(caught.value)


def test_a_name_that_was_never_downloaded(tmp_path: Path) -> None:
    need("transformers")
    with pytest.raises(ValueError, match="hf:no-such/thing cannot be loaded: "):
        open_tokenizer("hf:no-such/thing")


# -- What is refused ----------------------------------------------------------------------


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one tokenizer, got none"):
        evaluate([], {"t": ["x"]})
    with pytest.raises(TypeError, match="must be a list or a mapping from names, got str"):
        evaluate("gpt2", {"t": ["x"]})
    with pytest.raises(ValueError, match="expected texts to measure tokenizers on, got none"):
        evaluate([low()], {})
    with pytest.raises(ValueError, match="the group 't' contains no text"):
        evaluate([low()], {"t": ["", ""]})
    with pytest.raises(ValueError, match="the group 't' contains no text"):
        compare(low(), low(), {"t": []})
    with pytest.raises(TypeError, match="group 't': expected texts, got 5"):
        evaluate([low()], {"t": ["x", 5]})
    with pytest.raises(ValueError, match=r"group 't', document 2: .*lone surrogate U\+D800"):
        evaluate([low()], {"t": ["x", "a\ud800"]})
    with pytest.raises(ValueError, match="a group can't be called 'overall'"):
        evaluate([low()], {"overall": ["x"]})
    with pytest.raises(ValueError, match="at least two languages, got one"):
        evaluate([low()], parallel={"eng": ["x"]})
    with pytest.raises(ValueError, match="'eng' is a group of texts and a parallel text"):
        evaluate([low()], {"eng": ["x"]}, parallel={"eng": ["x"], "fra": ["y"]})
    with pytest.raises(ValueError, match="alpha must be above 0 and finite, got 0"):
        evaluate([low()], {"t": ["x"]}, alpha=0)
    assert evaluate([low()], {"t": "low"}).get("bpe-tokenizer", "t").tokens == 1  # one document


def test_a_tokenizer_that_fails_on_a_text_is_named_with_the_text() -> None:
    hf = need("tokenizers")
    tokenizer = hf.Tokenizer(hf.models.WordLevel({"low": 0}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = hf.pre_tokenizers.Whitespace()
    with pytest.raises(ValueError, match=r"words fails on document 2 of 't': .*UNK"):
        evaluate({"words": tokenizer}, {"t": ["low", "high"]})


class Panics(Adapter):
    """A tokenizer whose library panics, as those in Rust do."""

    class PanicException(BaseException):
        pass

    def encode(self, text: str) -> Any:
        raise self.PanicException("no")


def test_a_panic_is_an_error_like_others() -> None:
    with pytest.raises(ValueError, match="rust fails on document 1 of 't': no"):
        evaluate([Panics("rust", {0: b"a"}, frozenset())], {"t": ["a"]})


# -- The command line ---------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    trained().save("mine", verbose=False)
    low().save("low", verbose=False)
    Path("prose.txt").write_text(f"{TEXT}<|endoftext|>the low", encoding="utf-8")
    Path("code.txt").write_text("if x == 100:\n    return low\n", encoding="utf-8")
    Path("eng.txt").write_text("low\nlower\n")
    Path("fra.txt").write_text("bas\nplus bas\n")
    Path("empty.txt").touch()
    Path("binary.bin").write_bytes(b"text\xff\xfe\x00")
    Path("blank").mkdir()
    Path("blank/empty.txt").touch()
    yield tmp_path


TEXTS = ["--texts", "prose=prose.txt", "code=code.txt"]


def test_evaluate_prints_tables_and_writes_files(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need("matplotlib")
    argv = ["evaluate", "mine", "tiny=low", *TEXTS, "--parallel", "eng.txt", "fra=fra.txt"]
    status, out, err = run_command(capsys, *argv, "--csv", "out.csv", "--plot", "out.svg")
    assert (status, err) == (0, "Wrote out.csv\nWrote out.svg\n")
    groups = file_groups(["prose=prose.txt", "code=code.txt"])
    parallel = {"eng": ["low", "lower"], "fra": ["bas", "plus bas"]}
    expected = evaluate({"mine": trained(), "tiny": low()}, groups, parallel=parallel)
    assert out == f"{expected}\n"
    assert Path("out.csv").read_text(encoding="utf-8") == expected.to_csv()
    assert ">tiny</text>" in Path("out.svg").read_text(encoding="utf-8")
    status, out, err = run_command(capsys, *argv, "--json", "--quiet", "--alpha", "2")
    assert (status, err) == (0, "")
    again = evaluate({"mine": trained(), "tiny": low()}, groups, parallel=parallel, alpha=2)
    assert json.loads(out) == json.loads(json.dumps(again.to_json()))
    assert json.loads(out)["alpha"] == 2


def test_compare_prints_tables_and_the_verdict(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run_command(capsys, "compare", "low", "mine", *TEXTS, "--csv", "out.csv")
    assert (status, err) == (0, "")
    expected = compare("low", "mine", file_groups(TEXTS[1:]))
    assert out == f"{expected}\n"
    assert out.splitlines()[-1] == expected.verdict
    assert Path("out.csv").read_text(encoding="utf-8") == expected.to_csv()
    status, out, err = run_command(capsys, "compare", "low", "mine", *TEXTS, "--json")
    assert json.loads(out) == json.loads(json.dumps(expected.to_json()))


def test_a_text_on_the_command_line(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "the lowest prose, lower than low"
    status, out, err = run_command(capsys, "compare", "low", "mine", "--text", text)
    assert (status, err) == (0, "")
    assert out == f"{compare('low', 'mine', {'text': [text]})}\n"
    status, out, err = run_command(capsys, "evaluate", "low", "--text", text, *TEXTS, "--quiet")
    assert (status, err) == (0, "")
    assert out == f"{evaluate(['low'], {**file_groups(TEXTS[1:]), 'text': [text]})}\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    status, again, err = run_command(capsys, "compare", "low", "mine", "--text", "-")
    assert (status, err) == (0, "")
    assert again == f"{compare('low', 'mine', {'text': [text]})}\n"
    for problem, argv in [
        ("one of the arguments --text, --texts and --parallel is required", []),
        ("--text is the group 'text'", ["--text", "a", "--texts", "text=prose.txt"]),
    ]:
        status, out, err = run_command(capsys, "compare", "low", "mine", *argv)
        assert (status, out) == (2, "") and problem in err


def test_names_move_no_cursor(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("matplotlib")
    names = ["\x1b[2J=low", "\x9b1m\u202e=mine"]
    texts = ["--texts", "\x1b[31m=prose.txt", "code.txt"]
    for argv in (["evaluate", *names, *texts, "--plot", "p.svg"], ["compare", *names, *texts]):
        status, out, _ = run_command(capsys, *argv)
        assert status == 0
        assert all(char.isprintable() or char == "\n" for char in out)
        assert all(name in out for name in (r"\x1b[2J", r"\x9b1m\u202e", r"\x1b[31m"))
    labels = "".join(ElementTree.parse("p.svg").getroot().itertext())
    assert all(name in labels for name in (r"\x1b[2J", r"\x9b1m\u202e", r"\x1b[31m"))


def test_a_sample_and_a_separator_on_the_command_line(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["evaluate", "low", "--json", "--texts", "prose.txt"]
    _, out, _ = run_command(capsys, *argv, "--max-bytes", "10")
    (found,) = json.loads(out)["measures"]
    assert found["documents"] == 1
    assert 0 < found["bytes"] <= 10
    _, out, _ = run_command(capsys, *argv, "--separator", "don't")
    assert json.loads(out)["measures"][0]["documents"] == 3
    _, out, _ = run_command(capsys, *argv, "--separator", "")
    assert json.loads(out)["measures"][0]["documents"] == 1


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["low"], 2, "one of the arguments --text, --texts and --parallel is required"),
        (["low", *TEXTS, "--max-bytes", "-1"], 2, "--max-bytes must be at least 1, got -1"),
        (["low", *TEXTS, "--max-bytes", "0"], 2, "--max-bytes must be at least 1, got 0"),
        (["low", "--texts", "empty.txt"], 1, "empty.txt contains no text; leave it out"),
        (["low", "--texts", "x=blank"], 1, "blank contains no text; leave it out of the group 'x'"),
        (["low", "--texts", "x=code.txt", "x=empty.txt"], 1, "empty.txt contains no text"),
        (["low", "--texts", "binary.bin"], 1, "binary.bin: byte 4: not UTF-8"),
        (["low", "--texts", "x=nowhere"], 1, "nowhere: no such file or directory; expected NAME"),
        (["low", "--texts", "x="], 1, "x=: no such file or directory"),
        (["nowhere", *TEXTS], 1, "nowhere: no such file or directory; expected the path of a"),
        (["tiktoken:nothing", *TEXTS], 1, "tiktoken:nothing cannot be loaded"),
        (["low", *TEXTS, "--plot", "x.pdf"], 1, "x.pdf: a plot must be a .png or .svg file"),
        (["low", *TEXTS, "--csv", "none/x.csv"], 1, "none/x.csv: the directory none doesn't"),
        (["low", *TEXTS, "--csv", "mine"], 1, "mine: is a directory; expected a file"),
        (["low", "--parallel", "eng.txt", "code.txt"], 1, "'eng' has 2, 'code' 2"),
        (["low", "--parallel", "eng.txt"], 1, "at least two languages, got one"),
        (["low", "--parallel", "eng.txt", "eng=fra.txt"], 1, "'eng' is given twice"),
        (["low", "--parallel", "eng.txt", "x=blank"], 1, "blank: expected a file of parallel"),
        (["low", *TEXTS, "--alpha", "-1"], 1, "alpha must be above 0 and finite, got -1"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    argv: list[str], status: int, message: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for library in ("tiktoken", "matplotlib"):
        need(library)
    if "'code' 2" in message:
        Path("code.txt").write_text("one line\n")
        message = "parallel texts must have the same number of lines: 'eng' has 2, 'code' 1"
    before = sorted(files.rglob("*"))
    got, out, err = run_command(capsys, "evaluate", *argv)
    assert (got, out) == (status, "")
    assert err.startswith("bpe-tokenizer: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(files.rglob("*")) == before


@pytest.mark.parametrize("missing", ["numpy", "matplotlib"])
def test_what_is_not_installed_is_named(missing: str, files: Path) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import bpe_tokenizer as b\n"
    code += "sys.exit(b.main())"
    argv = ["evaluate", "low", *TEXTS, "--plot", "x.png"]
    root = Path(bpe_tokenizer.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        rf"bpe-tokenizer: error: .* needs the package {missing}, .*: pip install {missing}\n",
        done.stderr,
    )
    assert not Path("x.png").exists()


def test_the_commands_are_there() -> None:
    assert set(COMMANDS) == {"evaluate", "compare", "sweep"}
