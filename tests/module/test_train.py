"""Training: reading a corpus, counting pre-tokens, learning merges, numbering tokens."""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import itertools
import json
import lzma
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import reference
import regex
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import examples, find_all, need

import bpe_tokenizer
from bpe_tokenizer import (
    SPLIT_PATTERNS,
    AddedToken,
    BPETokenizer,
    FileFormatError,
    PretokenCounts,
    count_pretokens,
)
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus import process_pool, records

WORDS = r"\w+|\s+|[^\w\s]+"

# Few letters and repeated ones: ties everywhere, and pairs that overlap themselves.
tied_word = st.text(alphabet="ab", min_size=1, max_size=9) | st.sampled_from(
    ["aaaa", "ababab", "aaaaaaa", "abcabc", "abab", "bbbb", "aab", "é", "éé", "世世", "a b", "\n\n"]
)
tied_documents = st.lists(
    st.lists(tied_word | st.text(alphabet="abc ", min_size=1, max_size=14), max_size=8).map(
        " ".join
    ),
    min_size=1,
    max_size=4,
).filter(any)  # nothing to learn from is an error


def train(corpus: Any = None, vocab_size: int = 400, **options: Any) -> BPETokenizer:
    """Train quietly and in this process, with a plain pattern."""
    pattern = options.pop("pattern", WORDS)
    normalizer = options.pop("normalizer", "NFC")
    tokenizer = BPETokenizer(pattern, normalizer=normalizer)
    options = {"num_workers": 1, "verbose": False, **options}
    return tokenizer.train(corpus, vocab_size=vocab_size, **options)


def count_naively(
    documents: Iterable[str], pattern: str = WORDS, specials: Iterable[str] = ()
) -> dict[bytes, int]:
    """Count pre-tokens of whole documents, by the pattern and nothing else."""
    cut = regex.compile("|".join(map(regex.escape, specials)) or "(?!)")
    counts: Counter[bytes] = Counter()
    for document in documents:
        for part in cut.split(document):
            normal = core.normalize(part, "NFC")
            counts.update(found.encode() for found in find_all(pattern, normal))
    return dict(counts)


# -- Which merges -------------------------------------------------------------


def test_the_example_of_wikipedia() -> None:
    # aaabdaaabac: Z = aa, then Y = ab (a tie of three), X = ZY.
    tokenizer = train("aaabdaaabac", vocab_size=259)
    assert tokenizer.merges == [(b"a", b"a"), (b"a", b"b"), (b"aa", b"ab")]
    assert tokenizer.tokenize("aaabdaaabac") == ["aaab", "d", "aaab", "a", "c"]
    assert tokenizer.encode("aaabdaaabac") == [258, ord("d"), 258, ord("a"), ord("c")]


def test_ties_go_by_printable_character_and_then_by_age() -> None:
    # A newline is written Ċ, U+010A, and so comes after every letter; by its byte
    # it would come first.  The merged "yz" is older than "ab" but younger than "~".
    assert train(counts={b"\nx": 3, b"ab": 3}, vocab_size=257).merges == [(b"a", b"b")]
    counts = {b"yz": 9, b"ab": 5, b"yzc": 2, b"abc": 2, b"~c": 2}
    assert train(counts=counts, vocab_size=261).merges == [
        (b"y", b"z"),
        (b"a", b"b"),
        (b"~", b"c"),
        (b"yz", b"c"),
        (b"ab", b"c"),
    ]


@settings(max_examples=examples(250))
@given(
    documents=tied_documents,
    n_tokens=st.integers(1, 60),
    min_frequency=st.integers(0, 3),
)
@example(documents=["aaaa ababab aaaa"], n_tokens=20, min_frequency=1)
def test_equals_the_reference(documents: list[str], n_tokens: int, min_frequency: int) -> None:
    expected = reference.train(count_naively(documents), n_tokens, min_frequency)
    tokenizer = train(documents, 256 + n_tokens, min_frequency=min_frequency)
    assert tokenizer.merges == expected


@settings(max_examples=examples(150))
@given(
    counts=st.dictionaries(
        st.binary(min_size=1, max_size=8) | st.text("abc", min_size=2, max_size=9).map(str.encode),
        st.integers(0, 6),
        max_size=12,
    ).filter(lambda counts: any(counts.values())),
    n_tokens=st.integers(1, 40),
)
def test_equals_the_reference_on_any_bytes(counts: dict[bytes, int], n_tokens: int) -> None:
    expected = reference.train(counts, n_tokens, 1)
    assert train(counts=counts, vocab_size=256 + n_tokens, min_frequency=1).merges == expected


@settings(max_examples=examples(100))
@given(documents=tied_documents)
def test_encoding_follows_the_merges_learned(documents: list[str]) -> None:
    tokenizer = train(documents, 320)
    tokens = tokenizer.get_vocab()
    forward = bpe_tokenizer.build_byte_to_char()
    for pretoken in count_naively(documents):
        parts = reference.encode(pretoken, tokenizer.merges)
        printable = ["".join(forward[byte] for byte in part) for part in parts]
        assert tokenizer.encode(pretoken.decode()) == [tokens[part] for part in printable]


def hf_merges(
    documents: Iterable[str],
    pattern: str,
    vocab_size: int,
    min_frequency: int,
    max_token_length: int | None = None,
) -> list[tuple[str, str]]:
    """Train with HuggingFace's trainer on the same documents."""
    tokenizers = need("tokenizers")
    level = tokenizers.pre_tokenizers.ByteLevel
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            level(add_prefix_space=False, use_regex=False),
        ]
    )
    model.normalizer = tokenizers.normalizers.NFC()
    limit = {} if max_token_length is None else {"max_token_length": max_token_length}
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        initial_alphabet=level.alphabet(),
        show_progress=False,
        **limit,
    )
    model.train_from_iterator(documents, trainer)
    return [tuple(merge) for merge in json.loads(model.to_str())["model"]["merges"]]


def printable_merges(tokenizer: BPETokenizer) -> list[tuple[str, str]]:
    forward = bpe_tokenizer.build_byte_to_char()
    return [
        ("".join(forward[b] for b in left), "".join(forward[b] for b in right))
        for left, right in tokenizer.merges
    ]


@settings(max_examples=examples(250))
@given(
    documents=tied_documents,
    n_tokens=st.integers(1, 60),
    min_frequency=st.integers(0, 3),
    max_token_length=st.none() | st.integers(1, 9),
)
def test_equals_huggingface(
    documents: list[str], n_tokens: int, min_frequency: int, max_token_length: int | None
) -> None:
    expected = hf_merges(documents, WORDS, 256 + n_tokens, min_frequency, max_token_length)
    tokenizer = train(
        documents,
        256 + n_tokens,
        min_frequency=min_frequency,
        max_token_length=max_token_length,
    )
    assert printable_merges(tokenizer) == expected


@pytest.mark.parametrize("max_token_length", [None, 6])
@pytest.mark.parametrize("alphabet", ["a", "ab", "abc"])
def test_equals_huggingface_on_long_words_of_few_letters(
    alphabet: str, max_token_length: int | None
) -> None:
    rng = random.Random(alphabet)
    documents = [
        " ".join("".join(rng.choices(alphabet, k=rng.randint(1, 60))) for _ in range(200))
        for _ in range(3)
    ]
    expected = hf_merges(documents, WORDS, 2000, 2, max_token_length)
    tokenizer = train(documents, 2000, max_token_length=max_token_length)
    assert printable_merges(tokenizer) == expected


@pytest.fixture(scope="session")
def hf_merges_once() -> Callable[..., list[tuple[str, str]]]:
    """Give what trains with HuggingFace once for both engines."""
    return functools.cache(hf_merges)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hf_pattern"),
    [
        ("gpt2", SPLIT_PATTERNS["gpt2"]),
        # Oniguruma reads `$` as the end of a line and knows no possessive `{1,3}+`.
        (
            "cl100k",
            SPLIT_PATTERNS["cl100k"].replace("{1,3}+", "{1,3}").replace(r"\s++$", r"\s++\z"),
        ),
    ],
    ids=["gpt2", "cl100k"],
)
def test_equals_huggingface_on_ten_megabytes(
    name: str, hf_pattern: str, larger_corpora: Callable[[str], str], hf_merges_once: Any
) -> None:
    megabytes = 10 if examples(10) == 10 else 1  # for one run, and where the tests run again
    most = megabytes * 350_000
    text = {kind: larger_corpora(kind)[:most] for kind in ("english", "code", "multi")}
    documents = tuple(d for kind in text for d in text[kind].split("<|endoftext|>"))
    assert sum(len(document.encode()) for document in documents) > 600_000
    expected = hf_merges_once(documents, hf_pattern, 8000, 2)
    tokenizer = train(documents, 8000, pattern=name, num_workers=None)
    assert printable_merges(tokenizer) == expected
    assert len(tokenizer) == 8000


def test_max_token_length_bounds_tokens() -> None:
    tokenizer = train("abcdefgh " * 20, 300, max_token_length=4)
    assert max(len(left + right) for left, right in tokenizer.merges) < 5
    assert train("abcdefgh " * 20, 300).tokenize("abcdefgh") == ["abcdefgh"]
    with pytest.raises(ValueError, match="max_token_length"):
        train("ab", max_token_length=0)


def test_counts_beyond_machine_integers_are_exact() -> None:
    huge = 2**64
    counts = {b"ab": huge, b"cd": huge + 1, b"ef": 1, b"xcd": huge - 1}
    tokenizer = train(counts=counts, vocab_size=260)
    # As floats, or modulo 2**64, these would tie or turn negative.
    assert tokenizer.merges == [(b"c", b"d"), (b"a", b"b"), (b"x", b"cd")]
    assert tokenizer.training_report.pretokens == 3 * huge + 1


# -- What the result does not depend on ---------------------------------------


@settings(max_examples=examples(60))
@given(documents=tied_documents, data=st.data())
def test_the_order_of_documents_does_not_matter(documents: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(documents))
    assert train(documents, 320, min_frequency=1) == train(shuffled, 320, min_frequency=1)


def test_the_number_of_workers_does_not_matter(
    corpora: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three batches or more, so that processes really start.
    monkeypatch.setattr(bpe_tokenizer._PretokenCounter, "_BATCH_CHARS", 150_000)
    text = corpora("english") + corpora("multi")
    options = {"special_tokens": ["<|endoftext|>"]}
    alone = count_pretokens(text, "llama3", num_workers=1, **options)
    together = count_pretokens(text, "llama3", num_workers=2, **options)
    documents = text.split("<|endoftext|>")
    separate = count_pretokens(documents, "llama3", num_workers=2)
    assert dict(alone) == dict(together) == dict(separate)
    assert (alone.documents, alone.bytes_read) == (together.documents, together.bytes_read)
    assert alone.bytes_read == len(text.encode())
    assert separate.documents == len(documents)


def test_workers_really_count_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe_tokenizer._PretokenCounter, "_BATCH_CHARS", 1000)
    started = []
    pool = process_pool.ProcessPoolExecutor
    monkeypatch.setattr(
        process_pool,
        "ProcessPoolExecutor",
        lambda *args, **options: started.append(args) or pool(*args, **options),
    )
    documents = [f"word{n % 97} and {n % 31}\r\n\n é世{n % 7}" for n in range(5000)]
    looks_behind = rf"(?<!\d)\d|{WORDS}"  # which no automaton of the accelerator can
    counts = count_pretokens(documents, looks_behind, num_workers=2)
    assert started
    assert dict(counts) == count_naively(documents, looks_behind)


def test_one_worker_counts_as_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe_tokenizer._PretokenCounter, "_BATCH_CHARS", 1000)
    read, read_when_counted = [0], []
    count = bpe_tokenizer._count_blocks

    def documents() -> Iterator[str]:
        for _ in range(1000):
            read[0] += 1
            yield "word " * 20

    def counted(*given: Any) -> Any:
        read_when_counted.append(read[0])
        return count(*given)

    monkeypatch.setattr(bpe_tokenizer, "_count_blocks", counted)
    counts = count_pretokens(documents(), in_order=True, num_workers=1)  # in Python
    assert counts.documents == 1000 and read_when_counted[0] < 20


def test_hash_seeds_do_not_matter() -> None:
    program = (
        "from bpe_tokenizer import BPETokenizer as T;"
        "t = T().train(['abab baba aaaa', 'b a ab', 'zyx xyz éé'], vocab_size=290,"
        "min_frequency=1, verbose=False, special_tokens={'<s>': 260, '</s>': None});"
        "print(t.fingerprint, t.merges)"
    )
    root = str(Path(bpe_tokenizer.__file__).parent)
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1


# -- Ids and special tokens ---------------------------------------------------

ROUND_TRIPS = ["", "low lower", "Grüße, 世界! 😀\r\n\0", "<|begin_of_text|> as text <|eot_id|>"]


def test_reserved_ids_are_kept_and_merges_go_around_them() -> None:
    specials = {"<|begin_of_text|>": 256, "<|end_of_text|>": 257, "<|eot_id|>": 258}
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlu", k=9)) for _ in range(60)]
    tokenizer = train(words * 2, vocab_size=512, special_tokens=specials)
    assert tokenizer.special_tokens == specials
    assert len(tokenizer) == tokenizer.vocab_size == 512
    assert sorted(tokenizer.get_vocab().values()) == list(range(512))
    assert [tokenizer.convert_tokens_to_ids(token) for token in specials] == [256, 257, 258]
    assert tokenizer.bos_token_id == 256 and tokenizer.eos_token_id == 257
    for text in [*ROUND_TRIPS, *map(chr, range(0, 0xD800, 37))]:
        expected = core.normalize(text, "NFC")
        assert tokenizer.decode(tokenizer.encode(text)) == expected
        assert tokenizer.decode(tokenizer.encode(text, allowed_special="all")) == expected


def test_ids_follow_the_order_learned() -> None:
    tokenizer = train("abcd " * 9, 261, min_frequency=1, special_tokens={"<x>": 257})
    vocab = tokenizer.get_vocab()
    forward = bpe_tokenizer.build_byte_to_char()
    assert all(vocab[forward[byte]] == byte for byte in range(256))
    merged = [left + right for left, right in printable_merges(tokenizer)]
    assert [vocab[token] for token in merged] == [256, 258, 259]
    assert vocab["<x>"] == 257
    # The pattern lets no pair cross a border, so the last place stays empty.
    assert tokenizer.vocab_size == 260


def test_an_id_above_the_range_leaves_a_gap() -> None:
    tokenizer = train("abab " * 9, 258, special_tokens={"<far>": 1000})
    assert tokenizer.vocab_size == 258
    assert tokenizer.max_id == 1000
    assert tokenizer.encode("ab<far>", allowed_special="all") == [256, 1000]
    assert tokenizer.decode([256, 1000]) == "ab<far>"


def test_ids_not_given_go_to_the_end() -> None:
    # "abcabc" makes ab, abc and abcabc; one place is reserved among them.
    specials = {"<one>": None, "<two>": 258, "<three>": None}
    tokenizer = train("abcabc " * 9, 300, special_tokens=specials)
    forward = printable_merges(tokenizer)
    merged = [tokenizer.convert_tokens_to_ids(left + right) for left, right in forward]
    assert merged == [256, 257, 259]
    assert tokenizer.special_tokens == {"<two>": 258, "<one>": 260, "<three>": 261}
    listed = train("abcabc " * 9, 300, special_tokens=["<b>", AddedToken("<a>")])
    assert listed.special_tokens == {"<b>": 259, "<a>": 260}
    assert listed.add_special_tokens(["<c>"]) == 1
    assert listed.convert_tokens_to_ids("<c>") == 261


@pytest.mark.parametrize(
    "specials",
    [
        {"<s>": 65},  # a byte
        {"<s>": 256, "</s>": 256},
        {"a": None},  # the string of a byte
        {"<s>": -1},
        {"<s>": 2**31},
        {"": None},
        ["<s>", "<s>"],
    ],
)
def test_what_is_taken_is_refused(specials: Any) -> None:
    tokenizer = train("abab " * 9, 257)
    before = tokenizer.get_vocab()
    with pytest.raises(ValueError, match="token"):
        tokenizer.train("cdcd", vocab_size=300, special_tokens=specials, verbose=False)
    with pytest.raises(ValueError, match="token"):
        tokenizer.add_special_tokens(specials)
    assert tokenizer.get_vocab() == before


def test_a_merged_token_cannot_be_overwritten() -> None:
    tokenizer = train("abab " * 9, 257)
    for taken in ({"ab": None}, {"<s>": 256}):
        with pytest.raises(ValueError, match="already"):
            tokenizer.add_special_tokens(taken)
    assert tokenizer.encode("ab") == [256]


def test_no_merge_makes_the_string_of_a_special_token() -> None:
    tokenizer = train(["abc ab c"] * 9, 300, special_tokens=["ab"])
    assert "ab" in tokenizer.special_tokens
    assert [left + right for left, right in tokenizer.merges].count(b"ab") == 0
    assert tokenizer.decode(tokenizer.encode("abc ab")) == "abc ab"


def test_the_vocabulary_must_hold_bytes_and_special_tokens() -> None:
    assert train("abab", 257).merges == [(b"a", b"b")]
    assert len(train("abab", 258, special_tokens=["<s>"])) == 258
    for size, specials, least in (
        (256, None, "257 (256 bytes, 0 special tokens, and room for a merge)"),
        (255, None, "257 (256 bytes, 0 special tokens, and room for a merge)"),
        (257, ["<s>"], "258 (256 bytes, 1 special token, and room for a merge)"),
        (258, {"<s>": 0, "</s>": 1}, "259 (256 bytes, 2 special tokens, and room for a merge)"),
        (0, None, "257"),
        (-1, None, "257"),
    ):
        message = f"vocab_size must be at least {least}.*, got {size}".replace("(", r"\(")
        with pytest.raises(ValueError, match=message.replace(")", r"\)")):
            train("abab", size, special_tokens=specials)
    # Room for a merge is enough, even if there is nothing to merge.
    assert train("a", 257).merges == []
    with pytest.raises(ValueError, match="min_frequency"):
        train("abab", min_frequency=-1)
    for wrong in ({"vocab_size": 300.0}, {"vocab_size": "300"}, {"min_frequency": 1.5}):
        with pytest.raises(TypeError):
            train("abab", **wrong)


def test_training_again_replaces_what_was_learned() -> None:
    tokenizer = train("abab " * 9, 300)
    tokenizer.train("cdcd " * 9, vocab_size=300, verbose=False)
    assert tokenizer == train("cdcd " * 9, 300)
    assert tokenizer.tokenize("ab") == ["a", "b"]


# -- Special tokens and documents ---------------------------------------------


@settings(max_examples=examples(100))
@given(
    pieces=st.lists(st.sampled_from(["<|e|>", "<|e", "|>", "ab", " ", "\n", "<", "e\u0301", "é"]))
)
def test_special_tokens_cut_documents_and_are_not_counted(pieces: list[str]) -> None:
    text = "".join(pieces)
    counts = count_pretokens([text, "x"], WORDS, special_tokens=["<|e|>"], num_workers=1)
    assert dict(counts) == count_naively([text, "x"], specials=["<|e|>"])


def test_no_merge_is_learned_from_special_tokens() -> None:
    text = "a<|endoftext|>" * 50
    tokenizer = train(text, 300, special_tokens=["<|endoftext|>"])
    assert tokenizer.merges == []
    assert train(text, 300).merges, "without the declaration it is text like any other"


def test_a_token_that_is_declared_before_training_cuts_too() -> None:
    tokenizer = BPETokenizer(WORDS)
    tokenizer.add_special_tokens(["<cut>"])
    tokenizer.train("a<cut>" * 50, vocab_size=300, verbose=False)
    assert tokenizer.merges == []
    assert tokenizer.encode("<cut>", allowed_special="all") == [256]


def test_pairs_do_not_cross_documents_or_pretokens() -> None:
    assert train(["a", "b"] * 9, pattern=r"(?s).+").merges == []
    assert train("ab", pattern=".", min_frequency=1).merges == []
    assert train("abab", pattern=r"(?s).+", min_frequency=1).merges[0] == (b"a", b"b")


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("name", [*SPLIT_PATTERNS, WORDS, r"ab$|a|b|\s+|[^\sab]+", r"(?s).{1,5}"])
def test_a_file_is_one_document_however_it_is_read(
    name: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Everything that a border between blocks could break: characters of several
    # bytes, CRLF, blank lines, marks that compose with a letter before them, a
    # special token, Hangul in parts, white space that ends text.
    text = (
        "ab a\n\n\n  b\r\n\r\nit's 12345 世界 e\u0301\u0327x \u1112\u1161\u11ab<|e|>\n ab"
        "😀👩\u200d💻 don't  \n<|e|><|e|> a\u0301\u0301b  12<|e|\r\n'LL \u0301x   \n \n"
    ) * 3
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode())
    monkeypatch.setattr(bpe_tokenizer, "_BLOCK_CHARS", block)
    monkeypatch.setattr(bpe_tokenizer._PretokenCounter, "_BATCH_CHARS", 4 * block)
    counts = count_pretokens(path, name, special_tokens=["<|e|>"], num_workers=1)
    pattern = SPLIT_PATTERNS.get(name, name)
    assert dict(counts) == count_naively([text], pattern, ["<|e|>"])
    assert (counts.documents, counts.bytes_read) == (1, len(text.encode()))


@settings(max_examples=examples(80))
@given(
    text=st.lists(
        st.sampled_from(
            [*"ab1 \n\r'.", "\r\n", "  ", "\u0301", "\u0327", "e", "é", "世", "😀", "<|e|>", "<|"]
        )
    ).map("".join),
    block=st.integers(1, 9),
    name=st.sampled_from(list(SPLIT_PATTERNS)),
)
def test_any_file_is_one_document(text: str, block: int, name: str, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(text.encode())
    expected = count_naively([text], SPLIT_PATTERNS[name], ["<|e|>"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bpe_tokenizer, "_BLOCK_CHARS", block)
        patch.setattr(bpe_tokenizer._PretokenCounter, "_BATCH_CHARS", block)
        if expected:
            counts = count_pretokens(path, name, special_tokens=["<|e|>"], num_workers=1)
            assert dict(counts) == expected
            return
        with pytest.raises(ValueError, match="the corpus is empty"):
            count_pretokens(path, name, special_tokens=["<|e|>"], num_workers=1)


def test_text_that_no_pattern_matches_is_counted() -> None:
    assert dict(count_pretokens("12ab!!", "[a-z]+")) == {b"12": 1, b"ab": 1, b"!!": 1}


def test_normalization_comes_before_counting() -> None:
    spellings = ["e\u0301", "é"]
    assert dict(count_pretokens(spellings)) == {"é".encode(): 2}
    apart = count_pretokens(spellings, ".", normalizer=None)
    assert dict(apart) == {b"e": 1, "\u0301".encode(): 1, "é".encode(): 1}
    assert dict(count_pretokens("ﬁ", normalizer="NFKC")) == {b"fi": 1}
    with pytest.raises(ValueError, match="normalizer"):
        count_pretokens("a", normalizer="NFX")


# -- Kinds of corpora ---------------------------------------------------------

DOCUMENTS = ["low lower lowest\n\nnew é", "世界 \r\n low", "", " low"]


def write_gz(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data))


def write_bz2(path: Path, data: bytes) -> None:
    path.write_bytes(bz2.compress(data))


def write_xz(path: Path, data: bytes) -> None:
    path.write_bytes(lzma.compress(data))


def write_zst(path: Path, data: bytes) -> None:
    zstd = need("backports.zstd")
    path.write_bytes(zstd.compress(data))


WRITERS: dict[str, Callable[[Path, bytes], Any]] = {
    "": Path.write_bytes,
    ".gz": write_gz,
    ".bz2": write_bz2,
    ".xz": write_xz,
    ".zst": write_zst,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_text_files_plain_and_compressed(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"text.txt{suffix}"
    WRITERS[suffix](path, DOCUMENTS[0].encode())
    expected = count_naively(DOCUMENTS[:1])
    for corpus in (path, str(path), [path], [str(path)]):
        counts = count_pretokens(corpus, WORDS)
        assert dict(counts) == expected
        assert counts.documents == 1


@pytest.mark.parametrize("suffix", WRITERS)
def test_json_lines_plain_and_compressed(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"text.jsonl{suffix}"
    lines = [json.dumps({"id": 1, "body": text}) for text in DOCUMENTS]
    WRITERS[suffix](path, ("\n".join(lines) + "\n\n").encode())
    counts = count_pretokens(path, WORDS, text_field="body")
    assert dict(counts) == count_naively(DOCUMENTS)
    assert counts.documents == len(DOCUMENTS)
    assert train(path, 300, text_field="body") == train(DOCUMENTS, 300)


def test_parquet(tmp_path: Path) -> None:
    pyarrow = need("pyarrow")
    parquet = need("pyarrow.parquet")
    path = tmp_path / "text.parquet"
    documents = DOCUMENTS * 700  # more than one batch of rows
    parquet.write_table(pyarrow.table({"n": range(len(documents)), "text": documents}), path)
    counts = count_pretokens(path, WORDS, num_workers=1)
    assert dict(counts) == count_naively(documents)
    assert counts.documents == len(documents)
    with pytest.raises(FileFormatError, match="body"):
        count_pretokens(path, text_field="body")
    path.write_bytes(b"not parquet at all")
    with pytest.raises(FileFormatError, match=r"text\.parquet"):
        count_pretokens(path)


def test_archives_of_several_members_are_read_to_the_end(tmp_path: Path) -> None:
    # Compressing in parallel and `cat a.gz b.gz` both make such files.
    expected = count_naively(["one two"])
    for suffix, write in WRITERS.items():
        path = tmp_path / f"part.txt{suffix}"
        write(path, b"one")
        first = path.read_bytes()
        write(path, b" two")
        path.write_bytes(first + path.read_bytes())
        assert dict(count_pretokens(path, WORDS)) == expected, suffix


def test_directories_and_lists_of_files(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / ".git").mkdir()
    files = [tmp_path / "a.txt", tmp_path / "below" / "b.txt.gz", tmp_path / "c.jsonl"]
    files[0].write_text(DOCUMENTS[0], encoding="utf-8")
    write_gz(files[1], b"low low")
    files[2].write_text(json.dumps({"text": " x y"}), encoding="utf-8")
    # What is hidden is not part of a corpus.
    (tmp_path / ".git" / "config").write_text("hidden")
    (tmp_path / ".DS_Store").write_bytes(b"\xff\xfe")
    text = (tmp_path / "a.txt").read_bytes().decode()
    expected = count_naively([text, "low low", " x y"])
    for corpus in (tmp_path, str(tmp_path), files, [str(file) for file in files], iter(files)):
        counts = count_pretokens(corpus, WORDS)
        assert dict(counts) == expected
        assert counts.documents == 3


def test_an_iterable_of_strings_is_never_read_as_paths(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("contents")
    texts = ["some text", str(path)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such an item may well be a mistake
        assert b"contents" not in count_pretokens(iter([str(path)]), WORDS)
        assert dict(count_pretokens(texts, WORDS)) == count_naively(texts)
    assert dict(count_pretokens((text for text in DOCUMENTS), WORDS)) == count_naively(DOCUMENTS)


def test_raw_strings_long_and_strange() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in ("plain words", "x" * 5000, "a/b\0c", "é" * 300, "line\nline", " ", "/ or"):
            assert dict(count_pretokens(text, WORDS)) == count_naively([text])


@pytest.mark.parametrize("text", ["missing.txt", "data/part-1.jsonl.gz", "/no/such/place", "./x"])
def test_a_string_that_looks_like_a_path_warns_and_is_text(text: str) -> None:
    with pytest.warns(UserWarning, match="looks like a path"):
        assert dict(count_pretokens(text, WORDS)) == count_naively([text])


def test_a_missing_path_is_an_error(tmp_path: Path) -> None:
    for corpus in (tmp_path / "no.txt", [tmp_path / "no.txt"], iter([tmp_path / "no.txt"])):
        with pytest.raises(FileNotFoundError, match=r"no\.txt"):
            count_pretokens(corpus)


def test_an_empty_corpus_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n')
    for name in ("nothing", "hidden", "files"):
        (tmp_path / name).mkdir()
    (tmp_path / "hidden" / ".git").write_text("text")
    (tmp_path / "files" / "a.txt").touch()
    used = iter(["text"])
    count_pretokens(used)
    corpora: list[Any] = [[], (), "", [""], ["", ""], iter(()), used, [iter([])][0]]
    corpora += [tmp_path / name for name in ("nothing", "hidden", "files", "empty.txt")]
    corpora += [tmp_path / "empty.jsonl", [tmp_path / "empty.txt"] * 2, str(tmp_path / "nothing")]
    corpora += [["<|x|>"], "<|x|><|x|>"]  # nothing but special tokens
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["<|x|>"])
    before = tokenizer.fingerprint
    for corpus in corpora:
        corpus, again = itertools.tee(corpus) if isinstance(corpus, Iterator) else (corpus, corpus)
        with pytest.raises(ValueError, match="the corpus is empty: expected "):
            tokenizer.train(corpus, 300, verbose=False)
        with pytest.raises(ValueError, match="the corpus is empty: expected "):
            count_pretokens(again, special_tokens=["<|x|>"])
    for counts in ({}, {b"a": 0}, PretokenCounts()):
        with pytest.raises(ValueError, match="the corpus is empty: expected "):
            tokenizer.train(counts=counts, vocab_size=300, verbose=False)
    assert tokenizer.fingerprint == before and tokenizer.training_report is None
    # One directory without files among others is no less of a mistake.
    with pytest.raises(ValueError, match="the corpus is empty: expected files in the directory"):
        count_pretokens([tmp_path / "nothing", Path(__file__)])
    # White space is text, and so is one character.
    assert count_pretokens([" ", ""]) == {b" ": 1} and count_pretokens("x") == {b"x": 1}


@pytest.mark.parametrize("corpus", [b"bytes", 5, None, {"a": 1}, [1], ["a", b"b"]])
def test_a_corpus_of_the_wrong_type_is_an_error(corpus: Any) -> None:
    with pytest.raises(TypeError):
        count_pretokens(corpus)
    with pytest.raises(TypeError):
        train(corpus)


@pytest.mark.parametrize("block", [1, 4, 1000])
def test_bad_utf8_names_the_file_and_the_byte(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpe_tokenizer, "_BLOCK_CHARS", block)
    path = tmp_path / "bad.txt"
    for data, at in ((b"a\xc3\xa9 \xe4\xb8 x", 4), (b"abc\xff", 3), (b"caf\xc3", 3)):
        path.write_bytes(data)
        with pytest.raises(FileFormatError, match=rf"bad\.txt.*byte {at}\b") as caught:
            count_pretokens(path)
        assert caught.value.path == str(path)


def test_bad_json_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    good = json.dumps({"text": "x"})
    for bad in ('{"text": ', '{"other": "x"}', '{"text": 5}', "[1]", '{"text": "\\xff"}'):
        path.write_text(f"{good}\n\n{bad}\n{good}\n")
        with pytest.raises(FileFormatError, match=r"bad\.jsonl.*line 3"):
            count_pretokens(path)
    path.write_bytes(good.encode() + b'\n{"text": "\xff"}\n')
    with pytest.raises(FileFormatError, match=r"bad\.jsonl.*line 2"):
        count_pretokens(path)


def test_a_lone_surrogate_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"surrogate U\+D800"):
        count_pretokens(["fine", "not \ud800 fine"])
    path = tmp_path / "surrogate.jsonl"
    path.write_text('{"text": "\\ud800"}\n')
    with pytest.raises(ValueError, match=r"surrogate U\+D800"):
        count_pretokens(path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_damaged_archives_name_the_file(suffix: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"text.{kind}{suffix}"
    lines = "".join(json.dumps({"text": f"{n * n} words"}) + "\n" for n in range(3000))
    WRITERS[suffix](path, lines.encode())
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = bytes(byte ^ 0x55 for byte in data[middle : middle + 20])
    for broken in (data[:middle], b"garbage", data[:middle] + flipped + data[middle + 20 :]):
        path.write_bytes(broken)
        with pytest.raises(FileFormatError, match=path.name.replace(".", r"\.")):
            count_pretokens(path)


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("a.txt.zst", "backports.zstd", "backports.zstd"),
        ("a.parquet", "pyarrow.parquet", "pyarrow"),
    ],
)
def test_a_missing_package_is_named(
    name: str, module: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(b"x")
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)  # a part of Python from 3.14
    with pytest.raises(ImportError, match=f"pip install {package}"):
        count_pretokens(tmp_path / name)


def test_line_ends_are_read_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "crlf.txt"
    path.write_bytes(b"a\r\nb\rc\n")
    assert dict(count_pretokens(path, r"\w|\s+")) == {
        b"a": 1,
        b"\r\n": 1,
        b"b": 1,
        b"\r": 1,
        b"c": 1,
        b"\n": 1,
    }


# -- Counts -------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(left=tied_documents, right=tied_documents)
def test_counts_of_parts_add_up(left: list[str], right: list[str]) -> None:
    a, b = count_pretokens(left, WORDS), count_pretokens(right, WORDS)
    before = dict(a)
    both = a + b
    assert dict(both) == count_naively([*left, *right])
    assert both.documents == len(left) + len(right)
    assert both.bytes_read == a.bytes_read + b.bytes_read
    assert dict(a) == before
    assert dict(sum([b], a)) == dict(both)


def test_counts_made_differently_do_not_mix() -> None:
    a, b = count_pretokens("x", "gpt2"), count_pretokens("x", "cl100k")
    with pytest.raises(ValueError, match="pattern"):
        a + b
    with pytest.raises(ValueError, match="pattern"):
        BPETokenizer("cl100k").train(counts=a, verbose=False)
    with pytest.raises(ValueError, match="normalizer"):
        BPETokenizer("gpt2", normalizer=None).train(counts=a, verbose=False)
    with pytest.raises(TypeError):
        a + {b"x": 1}


@settings(max_examples=examples(60))
@given(
    counts=st.dictionaries(st.binary(min_size=1, max_size=9), st.integers(0, 2**70), max_size=9),
    normalizer=st.sampled_from([None, "NFC", "NFKD"]),
)
def test_saved_counts_come_back(
    counts: dict[bytes, int], normalizer: str | None, tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "counts.json"
    made = PretokenCounts(counts, "a|é", normalizer, documents=3, bytes_read=2**65)
    made.save(path)
    back = PretokenCounts.load(path)
    assert dict(back) == counts
    assert (back.split_pattern, back.normalizer) == ("a|é", normalizer)
    assert (back.documents, back.bytes_read) == (3, 2**65)


def test_training_from_counts_is_training_from_the_corpus(tmp_path: Path) -> None:
    documents = ["low lower lowest", "newer wider new"] * 5
    counts = count_pretokens(documents, WORDS)
    counts.save(tmp_path / "counts.json")
    loaded = PretokenCounts.load(tmp_path / "counts.json")
    direct = train(documents, 300)
    assert train(counts=counts, vocab_size=300) == direct
    assert train(counts=loaded, vocab_size=300) == direct
    assert train(counts=dict(counts), vocab_size=300) == direct
    report = train(counts=loaded, vocab_size=300).training_report
    assert (report.documents, report.bytes_read) == (10, counts.bytes_read)
    with pytest.raises(TypeError, match="corpus"):
        BPETokenizer().train()
    with pytest.raises(TypeError, match="corpus"):
        BPETokenizer(WORDS).train(documents, counts=counts)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace("PretokenCounts", "Other"),
        lambda text: text.replace('"low": 2', '"low": -2'),
        lambda text: text.replace('"low": 2', '"low": 2.5'),
        lambda text: text.replace('"low": 2', '"low": true'),
        lambda text: text.replace('"low": 2', '"low": "2"'),
        lambda text: text.replace('"low"', '"l w"'),
        lambda text: text.replace('"low"', '"世"'),
        lambda text: text.replace('"documents": 1', '"documents": null'),
        lambda text: text.replace('"counts"', '"kounts"'),
        lambda text: "[" * 100_000,
    ],
)
def test_damaged_counts_are_a_clear_error(damage: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    count_pretokens(["low.low"], WORDS).save(path)
    text = path.read_text(encoding="utf-8")
    assert damage(text) != text
    path.write_text(damage(text), encoding="utf-8")
    with pytest.raises(FileFormatError, match=r"counts\.json"):
        PretokenCounts.load(path)


def test_counts_of_any_size_are_read_entry_by_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = PretokenCounts(
        {f'{i}"\\\n,}}é\U0001f642'.encode() * (1 + i % 40): i for i in range(500)},
        ', "counts": {',
        documents=7,
    )
    path = tmp_path / "counts.json"
    counts.save(path)
    monkeypatch.setattr(bpe_tokenizer, "_MAX_FILE_BYTES", 10)
    monkeypatch.setattr(core, "MAX_FILE_BYTES", 10)
    for at_once in (200, 1000, 2**20):
        monkeypatch.setattr(records, "_AT_ONCE", at_once)
        back = PretokenCounts.load(path)
        assert dict(back) == dict(counts)
        assert vars(back) == vars(counts)
    text = path.read_bytes()
    for damaged in (
        text[:-1],
        text[:-2],
        text + b"1",
        text.replace(b": 77,", b": 7.5,"),
        text[:300],
    ):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=r"counts\.json: damaged, or not a file of"):
            PretokenCounts.load(path)


def test_missing_counts_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        PretokenCounts.load(tmp_path / "none.json")


# -- Cutting down and reporting -----------------------------------------------


@settings(max_examples=examples(60))
@given(documents=tied_documents, data=st.data())
def test_cutting_down_is_training_to_that_size(documents: list[str], data: st.DataObject) -> None:
    specials = data.draw(st.sampled_from([None, ["<s>", "</s>"], {"<s>": 257, "</s>": None}]))
    whole = train(documents, 320, min_frequency=1, special_tokens=specials)
    # With one merge, 257 is the id right behind it: nothing tells that it was asked for.
    assume(not (isinstance(specials, dict) and len(whole) == 256 + 1 + len(specials)))
    smallest = 256 + len(specials or ())
    size = data.draw(st.integers(smallest, len(whole)))
    smaller = whole.with_vocab_size(size)
    if size == smallest:  # training must learn something
        assert (smaller.merges, len(smaller)) == ([], size)
        return
    trained = train(documents, size, min_frequency=1, special_tokens=specials)
    assert smaller.special_tokens == trained.special_tokens
    assert smaller.get_vocab() == trained.get_vocab()
    assert smaller == trained
    assert len(smaller) == size
    assert [smaller.encode(d) for d in documents] == [trained.encode(d) for d in documents]


def test_special_tokens_right_behind_the_last_merge_follow_it_when_cut() -> None:
    whole = train(
        ["aa"], 320, min_frequency=1, special_tokens={"<s>": 257, "</s>": 258, "<x>": 300}
    )
    assert whole.merges == [(b"a", b"a")]
    assert whole.with_vocab_size(259).special_tokens == {"<s>": 256, "</s>": 257, "<x>": 300}


def test_cutting_down_has_limits_and_keeps_the_original() -> None:
    whole = train("abcabd " * 9, 300, special_tokens={"<far>": 5000})
    before = whole.fingerprint
    smallest = whole.with_vocab_size(257)
    assert smallest.merges == []
    assert smallest.special_tokens == {"<far>": 5000}
    assert whole.fingerprint == before
    assert whole.with_vocab_size(len(whole)) == whole
    for size in (256, len(whole) + 1):
        with pytest.raises(ValueError, match="vocab_size"):
            whole.with_vocab_size(size)
    for wrong in (None, "300", 270.0, [300]):
        with pytest.raises(ValueError, match=r"vocab_size must be from 257 .* got "):
            whole.with_vocab_size(wrong)  # type: ignore[arg-type]


def test_the_report_says_what_was_done() -> None:
    tokenizer = train(["ab ab", "é ab"], 300, min_frequency=1)
    report = tokenizer.training_report
    assert (report.documents, report.bytes_read) == (2, 5 + 5)
    # ab ×3, a space ×2, é; merges: a+b and the two bytes of é.
    assert (report.pretokens, report.distinct_pretokens) == (6, 3)
    assert (report.merges, report.vocab_size) == (2, 258)
    assert report.counting_seconds >= 0 and report.learning_seconds >= 0
    assert report.stopped == "no pairs left"
    assert "2 merges" in str(report) and "no pairs left" in str(report)
    assert BPETokenizer().training_report is None


def test_the_three_reasons_to_stop() -> None:
    def stopped(vocab_size: int, min_frequency: int) -> str:
        report = train("abab ab xy", vocab_size, min_frequency=min_frequency).training_report
        return report.stopped

    assert stopped(257, 2) == "vocab size reached"
    assert stopped(300, 2) == "nothing left above min_frequency"
    assert stopped(300, 1) == "no pairs left"
    assert stopped(300, 0) == "no pairs left"
    assert train("a", 300).training_report.stopped == "no pairs left"


def test_silence_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    train("abab " * 9, 300)
    assert capfd.readouterr() == ("", "")
    train("abab " * 9, 300, verbose=True)
    out, err = capfd.readouterr()
    assert out == "" and "merges" in err


# -- Ctrl-C -------------------------------------------------------------------

ENDLESS = """
    import os, sys
    sys.path.insert(0, {root!r})
    import bpe_tokenizer

    def documents():
        n = 0
        while True:
            n += 1
            if n == 40:
                print("running", flush=True)
            yield " ".join(f"word{{i * n % 99991}}" for i in range(60_000))

    if __name__ == "__main__":
        try:
            bpe_tokenizer.count_pretokens(documents(), "cl100k", num_workers=2)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            sys.exit(130)
"""


def processes_in_group(group: int) -> list[str]:
    """Name the processes of a process group that are not yet gone."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue  # it ended while we looked
        fields = stat.rpartition(")")[2].split()
        if fields and int(fields[2]) == group and fields[0] != "Z":
            found.append(stat)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("to_all", [True, False], ids=["terminal", "kill"])
def test_an_interrupt_ends_all_processes(to_all: bool, engine: str, tmp_path: Path) -> None:
    # A terminal sends the signal to the whole group, `kill -INT` to one process.  The accelerator
    # works in threads.
    expected = 3 if engine == "python" else 1
    script = tmp_path / "endless.py"
    root = str(Path(bpe_tokenizer.__file__).parent)
    script.write_text(textwrap.dedent(ENDLESS).format(root=root))
    child = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout and child.stdout.readline() == "running\n"
        assert len(processes_in_group(child.pid)) >= expected, "the workers did not start"
        (os.killpg if to_all else os.kill)(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=600)
    finally:
        with contextlib.suppress(ProcessLookupError):  # they have all gone, as they should
            os.killpg(child.pid, signal.SIGKILL)
    assert (child.returncode, out) == (130, "interrupted\n")
    assert "Traceback" not in err
    deadline = time.monotonic() + 600
    while processes_in_group(child.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_in_group(child.pid) == []


def shuffled_vocabulary(seed: int) -> tuple[dict[str, int], list[list[str]]]:
    """Make merges in an order no trainer would give: some use tokens that later ones make."""
    draw = random.Random(seed)
    vocab = {char: byte for byte, char in bpe_tokenizer.build_byte_to_char().items()}
    tokens, merges = list("abc"), []
    for _ in range(draw.randint(1, 25)):
        left, right = draw.choice(tokens), draw.choice(tokens)
        if len(left + right) <= 10:
            if left + right not in vocab:
                vocab[left + right] = len(vocab)
                tokens.append(left + right)
            merges.append([left, right])
    draw.shuffle(merges)
    return vocab, merges


def test_merges_in_any_order_encode_as_in_huggingface_and_are_cut_only_if_they_can_be(
    tmp_path: Path,
) -> None:
    tokenizers = need("tokenizers")
    path = tmp_path / "tokenizer.json"
    refused = 0
    for seed in range(60):
        BPETokenizer(r"[\s\S]+", normalizer=None).save(tmp_path, verbose=False)
        data = json.loads(path.read_text(encoding="utf-8"))
        data["model"]["vocab"], data["model"]["merges"] = shuffled_vocabulary(seed)
        path.write_text(json.dumps(data), encoding="utf-8")
        tokenizer = BPETokenizer.from_pretrained(tmp_path, verbose=False)
        oracle = tokenizers.Tokenizer.from_file(str(path))
        draw = random.Random(seed)
        for size in (3, 8, 20, 60, 300):
            text = "".join(draw.choice("abc") for _ in range(size))
            assert tokenizer.encode(text) == oracle.encode(text).ids
        for size in range(256, tokenizer.vocab_size + 1):
            try:
                assert len(tokenizer.with_vocab_size(size)) == size
            except ValueError as error:
                assert "this vocabulary cannot be cut" in str(error)
                refused += 1
    assert refused
