"""Training as courses and small programs grade it: other rules for ties, and their public tests.

The course is Stanford's CS336, assignment 1 (tests/test_train_bpe.py); the small program is
Karpathy's minbpe. Long texts are others of the same kind. BPE_TOKENIZER_CS336 names a checkout of
the course, whose own text and reference merges are read then.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import reference
import regex
from conftest import run_command
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import examples

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, PretokenCounts, count_pretokens
from bpe_tokenizer_tools.training import ties as rules

RULES = {
    "greatest": reference.greatest,
    "greatest-printable": reference.greatest_printable,
    "smallest-ids": reference.smallest_ids,
    "first": reference.first,
}
COURSE = os.environ.get("BPE_TOKENIZER_CS336")
UNSPLIT = r"(?s:.+)"
END = "<|endoftext|>"

rule = st.sampled_from(list(RULES))
# Few letters: ties at every step, and runs in which a pair overlaps itself.
text = st.lists(
    st.text("ab", min_size=1, max_size=9)
    | st.text("aab c1.\n\u0301é世", max_size=12)
    | st.sampled_from(["aaaaaaa", "abababa", "aabaab", "bbbbb", "the end", "  \n", "e\u0301", END]),
    max_size=8,
).map(" ".join)
documents = st.lists(text, min_size=1, max_size=4)


def train(corpus: Any = None, n_tokens: int = 100, pattern: str = "gpt2", **options: Any) -> Any:
    options = {"normalizer": None, "min_frequency": 1, "num_workers": 1, **options}
    tokenizer = BPETokenizer(pattern, normalizer=options.pop("normalizer"))
    n_special = len(options.get("special_tokens", ()))
    return tokenizer.train(corpus, 256 + n_special + n_tokens, verbose=False, **options)


def cut(
    texts: Iterable[str], pattern: str, normalizer: str | None = None, special: Iterable[str] = ()
) -> list[bytes]:
    """Cut documents with `regex` alone: into all pre-tokens, as often as they occur, in order."""
    around = regex.compile("|".join(map(regex.escape, special)) or "(?!)")
    pretokens = []
    for part in (part for text in texts for part in around.split(text)):
        prepared = unicodedata.normalize(normalizer, part) if normalizer else part
        pattern = SPLIT_PATTERNS.get(pattern, pattern)
        pretokens += [found[0].encode() for found in regex.finditer(pattern, prepared)]
    return pretokens


# -- Which pair is merged -----------------------------------------------------


@settings(max_examples=examples(400))
@given(
    ties=rule,
    corpus=documents,
    pattern=st.sampled_from([*SPLIT_PATTERNS, UNSPLIT, r"\w+|\s+|[^\w\s]+"]),
    normalizer=st.sampled_from([None, "NFC", "NFD"]),
    special=st.sampled_from([(), (END,), ("ab", END)]),
    n_tokens=st.integers(1, 60),
    min_frequency=st.integers(0, 3),
    max_token_length=st.none() | st.integers(1, 9),
)
@example("first", ["ab ba cd dc ab ba"], "gpt2", None, (), 9, 1, None)
@example("greatest", ["aaaaaaa aaaaa aaaa aaa"], "gpt2", None, (), 9, 1, None)
@example("first", ["aaaaaaa aaaaa aaaa aaa"], UNSPLIT, None, (), 9, 1, None)
def test_equals_the_naive_trainer(
    ties: str,
    corpus: list[str],
    pattern: str,
    normalizer: str | None,
    special: tuple[str, ...],
    n_tokens: int,
    min_frequency: int,
    max_token_length: int | None,
) -> None:
    pretokens = cut(corpus, pattern, normalizer, special)
    assume(pretokens)  # an empty corpus is refused
    expected = reference.train_by(
        RULES[ties],
        pretokens,
        n_tokens,
        min_frequency,
        max_token_length,
        [token.encode() for token in special],
    )
    tokenizer = train(
        iter(corpus),
        n_tokens,
        pattern,
        normalizer=normalizer,
        special_tokens=special,
        min_frequency=min_frequency,
        max_token_length=max_token_length,
        ties=ties,
    )
    assert tokenizer.merges == expected
    # Each merge makes a new token, so the ids are those that minbpe gives: 256 and so on.
    made = [tokenizer.decode_bytes([256 + n]) for n in range(len(expected))]
    assert made == [left + right for left, right in expected]


@settings(max_examples=examples(250))
@given(
    ties=rule,
    counts=st.dictionaries(
        st.text("ab", min_size=2, max_size=12).map(str.encode) | st.binary(min_size=1, max_size=8),
        st.integers(0, 4),
        max_size=12,
    ),
    special=st.sampled_from([(), ("ab",), ("aab", "bb")]),
)
@example("first", {b"aaaa": 1, b"aaa": 3, b"aaaaa": 1, b"aaaaaaa": 2}, ())
def test_equals_the_naive_trainer_on_counts(
    ties: str, counts: dict[bytes, int], special: tuple[str, ...]
) -> None:
    pretokens = [pretoken for pretoken, count in counts.items() for _ in range(count)]
    assume(pretokens)
    forbidden = [token.encode() for token in special]
    expected = reference.train_by(RULES[ties], pretokens, 60, forbidden=forbidden)
    assert train(counts=counts, n_tokens=60, special_tokens=special, ties=ties).merges == expected


@pytest.mark.parametrize("corpus", ["english", "code", "multi", "ties"])
def test_every_rule_equals_the_naive_trainer_and_differs_from_the_others(
    corpora: Callable[[str], str], corpus: str
) -> None:
    if corpus == "ties":  # all words of four letters, once each
        text = " ".join("".join(word) for word in itertools.product("abĀé", repeat=4))
    elif corpus == "multi":
        text = "\n".join(part[:80] for part in corpora("multi").split(END))
    else:
        text = corpora(corpus)[:2_500]
    pretokens = cut([text], "gpt2")
    expected = {ties: reference.train_by(rule, pretokens, 120) for ties, rule in RULES.items()}
    for ties, merges in expected.items():
        assert train(iter([text]), 120, ties=ties).merges == merges
    assert len({tuple(merges) for merges in expected.values()}) == len(RULES)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", UNSPLIT])
@pytest.mark.parametrize("ties", RULES)
def test_equals_the_naive_trainer_on_english(
    corpora: Callable[[str], str], ties: str, pattern: str
) -> None:
    # Down to pairs that occur once: most steps are ties of many pairs, over long stretches.
    corpus = [corpora("english")[:3_000], corpora("code")[:1_000]]
    expected = reference.train_by(RULES[ties], cut(corpus, pattern), 600)
    assert train(iter(corpus), 600, pattern, ties=ties).merges == expected


def test_each_rule_by_hand() -> None:
    # All pairs occur twice.  A newline is written Ċ: as a character it is the greatest, as a
    # byte the least.
    corpus = "zb.ab.zb.ab.\nb.\nb"
    assert train(iter([corpus]), 1, r"\w+|\nb|\.").merges == [(b"a", b"b")]
    assert train(iter([corpus]), 1, r"\w+|\nb|\.", ties="greatest").merges == [(b"z", b"b")]
    corpus = "mb.ab.mb.ab.zb.zb"
    assert train(iter([corpus]), 1, r"\w+|\.", ties="first").merges == [(b"m", b"b")]


def test_bytes_are_compared_not_ids_or_characters() -> None:
    # (a, b) is merged first, so it has the least id of the new ones; but b"ab" > b"a".
    counts = {b"ab": 9, b"abc": 2, b"ac": 2, b"c\n": 2}
    learned = train(counts=counts, n_tokens=4, ties="greatest").merges
    assert learned == [(b"a", b"b"), (b"c", b"\n"), (b"ab", b"c"), (b"a", b"c")]


def test_printable_strings_are_compared_not_bytes() -> None:
    # A newline is written Ċ, greater than every letter; "\xad" is written Ń, and "\xae" is "®".
    counts = {b"\nb": 2, b"zb": 2, b"yy": 9}
    assert train(counts=counts, n_tokens=2, ties="greatest").merges[1] == (b"z", b"b")
    assert train(counts=counts, n_tokens=2, ties="greatest-printable").merges[1] == (b"\n", b"b")
    counts = {b"\xad\xad": 2, b"\xae\xae": 2}
    assert train(counts=counts, n_tokens=1, ties="greatest").merges == [(b"\xae", b"\xae")]
    merges = train(counts=counts, n_tokens=1, ties="greatest-printable").merges
    assert merges == [(b"\xad", b"\xad")]
    # A longer string is greater than its beginning, here as among bytes.
    counts = {b"ab": 9, b"abc": 2, b"ac": 2}
    merges = train(counts=counts, n_tokens=3, ties="greatest-printable").merges
    assert merges == [(b"a", b"b"), (b"ab", b"c"), (b"a", b"c")]


def test_ids_are_compared_as_they_are_here() -> None:
    # Byte 10 has the smallest id, though its character is the greatest; merged tokens have greater
    # ids than all bytes, and the older the smaller.
    counts = {b"yz": 9, b"ab": 5, b"yzc": 2, b"abc": 2, b"~c": 2, b"\nx": 2}
    tokenizer = train(counts=counts, n_tokens=6, ties="smallest-ids")
    assert tokenizer.merges == [
        (b"y", b"z"),
        (b"a", b"b"),
        (b"\n", b"x"),
        (b"~", b"c"),
        (b"yz", b"c"),
        (b"ab", b"c"),
    ]
    # Special tokens among them move ids up, but don't change which is the smaller.
    special = {"<s>": 257, "</s>": 259}
    around = train(counts=counts, n_tokens=6, special_tokens=special, ties="smallest-ids")
    assert around.merges == tokenizer.merges
    ids = around.convert_tokens_to_ids(["yz", "ab", "Ċx", "~c", "yzc", "abc"])
    assert ids == [256, 258, 260, 261, 262, 263]


@pytest.mark.parametrize("ties", ["huggingface", *RULES])
def test_a_special_token_is_not_made_by_merging(ties: str) -> None:
    counts = {b"ab": 9, b"abc": 3}
    merges = train(counts=counts, n_tokens=9, special_tokens=["ab"], ties=ties).merges
    assert merges == [(b"b", b"c"), (b"a", b"bc")]


def test_first_follows_the_text_and_the_others_do_not() -> None:
    corpus = ["cd ab", "ab cd"]
    there, back = (
        train(iter(texts), 1, r"\w+|\s+", ties="first") for texts in (corpus, corpus[1:])
    )
    assert (there.merges, back.merges) == ([(b"c", b"d")], [(b"a", b"b")])
    for ties in ("huggingface", "greatest", "greatest-printable", "smallest-ids"):
        merges = train(iter(corpus), 9, r"\w+|\s+", ties=ties).merges
        assert train(iter(corpus[::-1]), 9, r"\w+|\s+", ties=ties).merges == merges


def test_an_unknown_rule_is_refused() -> None:
    known = "huggingface, greatest, greatest-printable, smallest-ids or first"
    with pytest.raises(ValueError, match=f"ties must be {known}, got 'smallest'"):
        train("ab ab", ties="smallest")
    with pytest.raises(ValueError, match="style='sentencepiece' has its own rule for ties"):
        BPETokenizer().train("ab ab", 300, verbose=False, style="sentencepiece", ties="first")


# -- The order of the text ----------------------------------------------------


@pytest.mark.parametrize("pattern", ["cl100k", r"\w+|\W"])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_order_of_the_text_is_kept(
    corpora: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, pattern: str, workers: int
) -> None:
    monkeypatch.setattr(bpe_tokenizer._PretokenCounter, "_BATCH_CHARS", 2_000)
    corpus = [corpora("english")[start : start + 3_000] for start in range(0, 60_000, 3_000)]
    counts = count_pretokens(iter(corpus), pattern, num_workers=workers, in_order=True)
    expected = list(dict.fromkeys(cut(corpus, pattern, "NFC")))
    assert list(counts) == expected
    assert counts.in_order
    halves = [
        count_pretokens(iter(part), pattern, num_workers=1, in_order=True)
        for part in (corpus[:7], corpus[7:])
    ]
    assert list(halves[0] + halves[1]) == expected
    assert (halves[0] + halves[1]).in_order


@pytest.mark.parametrize("workers", [1, 2])
def test_first_does_not_depend_on_workers_or_files(
    corpora: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(bpe_tokenizer._PretokenCounter, "_BATCH_CHARS", 2_000)
    corpus = corpora("english")[:40_000]
    (tmp_path / "corpus.txt").write_bytes(corpus.encode())
    expected = train(iter([corpus]), 300, ties="first")
    made = train(tmp_path / "corpus.txt", 300, ties="first", num_workers=workers)
    assert made.merges == expected.merges


def test_counts_that_lost_the_order_are_refused(tmp_path: Path) -> None:
    corpus = ["cd ab", "ab cd"]
    counts = count_pretokens(iter(corpus), normalizer=None)
    with pytest.raises(ValueError, match=r"order of the text.*count_pretokens\(\.\.\., in_order=T"):
        train(counts=counts, ties="first")
    for ties in ("greatest", "greatest-printable", "smallest-ids"):
        assert train(counts=counts, ties=ties) == train(iter(corpus), ties=ties)
    ordered = count_pretokens(iter(corpus), normalizer=None, in_order=True)
    expected = train(iter(corpus), ties="first")
    assert train(counts=ordered, ties="first") == expected
    assert train(counts=dict(ordered), ties="first") == expected  # a dict is in its own order
    assert not (ordered + counts).in_order

    ordered.save(tmp_path / "ordered.json")
    counts.save(tmp_path / "sorted.json")
    loaded = PretokenCounts.load(tmp_path / "ordered.json")
    assert (list(loaded.items()), loaded.in_order) == (list(ordered.items()), True)
    assert train(counts=loaded, ties="first") == expected
    loaded = PretokenCounts.load(tmp_path / "sorted.json")
    assert (list(loaded), loaded.in_order) == (sorted(counts), False)


def test_old_pickles_and_files_of_counts_have_no_order(tmp_path: Path) -> None:
    counts = count_pretokens("ab cd")
    first = list(vars(counts).values())[:4]
    assert PretokenCounts(dict(counts), *first).in_order is False  # as pickles of 0.7 call it
    written = {"format": "bpe_tokenizer.PretokenCounts", "split_pattern": "a", "normalizer": None}
    written |= {"documents": 1, "bytes_read": 2, "counts": {"b": 1, "a": 1}}
    (tmp_path / "old.json").write_text(json.dumps(written), encoding="utf-8")
    assert PretokenCounts.load(tmp_path / "old.json").in_order is False


# -- What else holds ----------------------------------------------------------


@pytest.mark.parametrize("ties", RULES)
def test_reports_and_smaller_vocabularies(corpora: Callable[[str], str], ties: str) -> None:
    corpus = corpora("english")[:50_000]
    tokenizer = train(iter([corpus]), 400, special_tokens=[END], ties=ties)
    report = tokenizer.training_report
    assert (report.documents, report.bytes_read) == (1, len(corpus.encode()))
    assert (report.vocab_size, report.stopped) == (657, "vocab size reached")
    smaller = train(iter([corpus]), 120, special_tokens=[END], ties=ties)
    assert tokenizer.with_vocab_size(377) == smaller
    assert tokenizer.decode(tokenizer.encode(corpus)) == corpus
    assert train("ab", 9, ties=ties).training_report.stopped == "no pairs left"
    few = train("ab", 9, ties=ties, min_frequency=2).training_report
    assert few.stopped == "nothing left above min_frequency"


@pytest.mark.parametrize("ties", ["huggingface", *RULES])
def test_the_command_takes_the_rule(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, ties: str
) -> None:
    (tmp_path / "corpus.txt").write_text("mb ab zb " * 3, encoding="utf-8")
    command = ["train", "--corpus", tmp_path / "corpus.txt", "--output", tmp_path / "out"]
    options = ["--vocab-size", 260, "--ties", ties, "--quiet"]
    assert run_command(capsys, *command, *options) == (0, "", "")
    made = BPETokenizer.from_pretrained(tmp_path / "out", verbose=False)
    expected = BPETokenizer().train(tmp_path / "corpus.txt", 260, verbose=False, ties=ties)
    assert made.merges == expected.merges


def test_the_command_refuses_other_rules_and_counts_without_order(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["train", "--output", tmp_path / "out", "--quiet"]
    status, _, err = run_command(capsys, *command, "--corpus", "x", "--ties", "least")
    known = "'huggingface', 'greatest', 'greatest-printable', 'smallest-ids', 'first'"
    assert (status, known in err) == (2, True)
    count_pretokens("mb ab").save(tmp_path / "counts.json")
    options = ["--counts", tmp_path / "counts.json", "--ties", "first"]
    status, _, err = run_command(capsys, *command, *options)
    assert (status, "in_order=True" in err) == (1, True)
    assert not (tmp_path / "out").exists()


# -- CS336, assignment 1: train_bpe -------------------------------------------


def test_the_handouts_example() -> None:
    # Cut at white space.  (e, s) and (s, t) are equally frequent, and (s, t) is the greater.
    corpus = "low " * 5 + "lower " * 2 + "widest " * 3 + "newest " * 6
    tokenizer = train(iter([corpus]), 6, r"\w+|\s", ties="greatest")
    merges = [(left + b" " + right).decode() for left, right in tokenizer.merges]
    assert merges == ["s t", "e st", "o w", "l ow", "w est", "n e"]
    assert tokenizer.tokenize("newest") == ["ne", "west"]


def test_the_handouts_example_of_a_tie() -> None:
    # Of (A, B), (A, C), (B, ZZ) and (BA, A), once each, (BA, A) is the greatest.
    counts = {b"BA": 9, b"ZZ": 8, b"AB": 1, b"AC": 1, b"BZZ": 1, b"BAA": 1}
    merges = train(counts=counts, n_tokens=3, ties="greatest").merges
    assert merges == [(b"B", b"A"), (b"Z", b"Z"), (b"BA", b"A")]


def cs336(name: str) -> Path:
    if not COURSE:
        pytest.skip("BPE_TOKENIZER_CS336 names no checkout of stanford-cs336/assignment1-basics")
    return Path(COURSE, "tests", "fixtures", name)


def test_the_courses_reference_result() -> None:
    # 133 kB of English to 500 tokens: the merges in order, and the same set of tokens.
    tokenizer = train(cs336("corpus.en"), 243, special_tokens=[END], ties="greatest")
    vocab = {id_: tokenizer.decode_bytes([id_]) for id_ in range(tokenizer.vocab_size)}
    lines = cs336("train-bpe-reference-merges.txt").read_text(encoding="utf-8").splitlines()
    written = json.loads(cs336("train-bpe-reference-vocab.json").read_text(encoding="utf-8"))
    backward = bpe_tokenizer.build_char_to_byte()
    assert tokenizer.merges == [
        tuple(bytes(backward[char] for char in token) for token in line.rstrip().split(" "))
        for line in lines
    ]
    assert set(vocab) == set(written.values())
    assert set(vocab.values()) == {bytes(backward[char] for char in token) for token in written}


@pytest.mark.parametrize("ties", ["greatest", "greatest-printable", "first"])
def test_a_step_looks_at_few_pairs(
    corpora: Callable[[str], str], ties: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The course allows 1.5 s for such a text: its own trainer, which updates counts, takes 0.4 s,
    # one that counts all pairs again 3 s.  Here the entries taken from the heap are counted, so
    # that a busy machine does not matter: there are some 2,000 pairs, and a step takes a few.
    taken = []

    def heappop(heap: list[Any]) -> Any:
        taken.append(1)
        return heapq.heappop(heap)

    counted = SimpleNamespace(heappop=heappop, heappush=heapq.heappush)
    monkeypatch.setattr(rules, "heapq", counted)
    corpus = corpora("english")[:133_000]
    tokenizer = train(iter([corpus]), 243, special_tokens=[END], ties=ties)
    assert tokenizer.vocab_size == 500
    assert 243 <= len(taken) < 20 * 243


def test_special_tokens_end_documents_and_are_never_merged(corpora: Callable[[str], str]) -> None:
    # The course: five megabytes of stories with <|endoftext|> between them, to 1,000 tokens.
    stories = corpora("english")[:5_000_000].replace("\n\n", END)
    tokenizer = train(iter([stories]), 743, special_tokens=[END], ties="greatest")
    tokens = {token for token, id_ in tokenizer.get_vocab().items() if id_ < 999}
    assert (len(tokens), tokenizer.eos_token_id) == (999, 999)
    assert not [token for token in tokens if "<|" in token]
    part = stories[:50_000]
    counts = count_pretokens(iter([part]), special_tokens=[END], normalizer=None)
    words = [([bytes([b]) for b in word], n) for word, n in counts.items()]
    for pair in train(iter([part]), 80, special_tokens=[END], ties="greatest").merges:
        assert pair == reference.greatest(reference.count_pairs(words), {})
        words = [(reference.join(parts, pair), n) for parts, n in words]


# -- minbpe -------------------------------------------------------------------

ABOUT_LLAMAS = (
    "The llama (/ˈlɑːmə/; Spanish: [ˈʎama] or [ˈʝama]) is a camelid of South America. People in "
    "the Andes have kept llamas for their meat, for their wool and as pack animals since before "
    "the Inca: a llama carries 25 to 30% of its weight for 8 to 13 km (5–8 miles) a day.\n"
    "Llamas live in herds, and learn simple tasks after a few repetitions. Their wool is soft and "
    "has little lanolin. There are over 7,000,000 llamas and alpacas in South America.\n"
)


@pytest.mark.parametrize("pattern", [UNSPLIT, "cl100k"])  # BasicTokenizer and RegexTokenizer
@pytest.mark.parametrize("ties", ["huggingface", *RULES])
def test_the_example_of_wikipedia(ties: str, pattern: str) -> None:
    tokenizer = train("aaabdaaabac", 3, pattern, ties=ties)
    assert tokenizer.encode("aaabdaaabac") == [258, ord("d"), 258, ord("a"), ord("c")]
    assert tokenizer.decode([258, 100, 258, 97, 99]) == "aaabdaaabac"


def test_first_walks_through_the_example_as_minbpe_does() -> None:
    # After aa, both (aa, a) and (a, b) occur twice; (aa, a) comes first in the text.
    merges = train("aaabdaaabac", 3, UNSPLIT, ties="first").merges
    assert merges == [(b"a", b"a"), (b"aa", b"a"), (b"aaa", b"b")]


@pytest.mark.parametrize("special", [{}, {END: 100257, "<|fim_prefix|>": 100258}])
def test_64_merges_saved_and_loaded(tmp_path: Path, special: dict[str, int]) -> None:
    corpus = f"{END}{ABOUT_LLAMAS}<|fim_prefix|>In Aymara myths{END}"
    tokenizer = train(iter([corpus]), 64, "cl100k", ties="first")
    expected = reference.train_by(reference.first, cut([corpus], "cl100k"), 64)
    assert tokenizer.merges == expected
    tokenizer.add_special_tokens(special)
    ids = tokenizer.encode(corpus, allowed_special="all")
    assert tokenizer.decode(ids) == corpus
    found = [id_ for id_ in ids if id_ > 100_000]
    assert found == ([100257, 100258, 100257] if special else [])
    tokenizer.save(tmp_path, verbose=False)
    loaded = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    assert loaded.encode(corpus, allowed_special="all") == ids
    assert loaded.decode(ids) == corpus
