"""Training on words that end in a symbol of their own, against a naive trainer and its encoder."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need
from reference_program import join

from bpe_tokenizer import AddedToken, BPETokenizer, FileFormatError, main

# Vocabularies of a few letters, as here, do lose ordinary text.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")
END = "</eow>"
RESERVED = ["<pad>", "<bos>", "<eos>", "<unk>"]
PAPER = "low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3
TONGUE = (
    "the thin thief thought the thirty-three thistles through\n\tthen thanked them 東京 東京都 " * 3
)


# -- The program --------------------------------------------------------------

Pair = tuple[str, str]


def train(text: str, size: int, least: int, ties: str) -> tuple[dict[str, int], list[Pair]]:
    words = [([*word, END], count) for word, count in Counter(text.split()).items()]
    symbols = sorted({part for parts, _ in words for part in parts})
    vocab = {token: id_ for id_, token in enumerate([*RESERVED, *symbols])}
    merges: list[Pair] = []
    while len(vocab) < size:
        counts: Counter[Pair] = Counter()
        for parts, count in words:
            for pair in zip(parts, parts[1:]):
                counts[pair] += count
        best = {
            "greatest": lambda: max(counts, key=lambda pair: (counts[pair], pair)),
            "first": lambda: max(counts, key=counts.__getitem__),
            "ids": lambda: min(counts, key=lambda p: (-counts[p], vocab[p[0]], vocab[p[1]])),
        }[ties]
        if not counts or counts[best()] < least:
            break
        merges.append(best())
        vocab.setdefault("".join(merges[-1]), len(vocab))
        words = [(join(parts, merges[-1]), count) for parts, count in words]
    return vocab, merges


def encode(text: str, vocab: dict[str, int], merges: list[Pair]) -> Iterator[int]:
    for word in text.split():
        parts = [*word, END]
        for pair in merges:
            parts = join(parts, pair)
        yield from (vocab.get(part, vocab["<unk>"]) for part in parts)


# -----------------------------------------------------------------------------

RULES = {
    "huggingface": "ids",
    "smallest-ids": "ids",
    "greatest": "greatest",
    "greatest-printable": "greatest",
    "first": "first",
}


def trained(text: str, size: int, least: int = 2, **options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer()
    tokenizer.train([text], size, least, style="words", verbose=False, num_workers=1, **options)
    return tokenizer


def assert_same(ours: BPETokenizer, vocab: dict[str, int], merges: list[Pair]) -> None:
    assert ours.merges == [(left.encode(), right.encode()) for left, right in merges]
    assert ours.get_vocab() == vocab


@pytest.mark.parametrize("ties", ["huggingface", "greatest", "first"])
@pytest.mark.parametrize("name", ["paper", "tongue", "code", "english", "multi"])
def test_five_corpora(
    engine: str, corpora: Callable[[str], str], name: str, ties: str, tmp_path: Path
) -> None:
    made = {"paper": PAPER, "tongue": TONGUE}
    text = made.get(name) or corpora(name)[:5000]
    size = 40 if name in made else 350
    vocab, merges = train(text, size, 1, RULES[ties])
    ours = trained(text, size, 1, ties=ties)
    assert_same(ours, vocab, merges)
    assert list(ours.special_tokens) == RESERVED
    ours.save(tmp_path, verbose=False)
    assert json.loads((tmp_path / "vocab.json").read_bytes()) == vocab
    written = (tmp_path / "merges.txt").read_text(encoding="utf-8").split("\n")
    assert written[1:-1] == [" ".join(pair) for pair in merges]
    again = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    assert again == ours
    others = [text, PAPER, TONGUE, *(corpora(each)[5000:6000] for each in ("code", "multi"))]
    for other in others:
        ids = list(encode(other, vocab, merges))
        assert ours.encode(other) == ids == again.encode(other)
    assert ours.decode(ours.encode(text)) == " ".join(text.split())


@settings(max_examples=examples(300), deadline=None)
@given(
    text=st.text("ab \n", max_size=80) | st.text("abcé\x1c\x85 世", max_size=60),
    other=st.text("abcx \n", max_size=30) | st.text(max_size=20),
    size=st.integers(20, 60),
    least=st.integers(0, 3),
    ties=st.sampled_from(sorted(RULES)),
)
def test_random_text(engine: str, text: str, other: str, size: int, least: int, ties: str) -> None:
    text += " a"
    vocab, merges = train(text, size, max(least, 1), RULES[ties])
    ours = trained(text, size, least, ties=ties)
    assert_same(ours, vocab, merges)
    assert ours.encode(other) == list(encode(other, vocab, merges))


def test_bos_and_eos_go_around_a_text(engine: str, tmp_path: Path) -> None:
    ours = trained(PAPER, 40)
    ours.save(tmp_path, verbose=False)
    for each in (ours, BPETokenizer.from_file(tmp_path)):
        assert (each.pad_token, each.bos_token, each.eos_token, each.unk_token) == tuple(RESERVED)
        ids = each.encode("low z", add_special_tokens=True)
        assert ids == [1, *each.encode("low"), 3, each.convert_tokens_to_ids(END), 2]
        assert each.decode(ids, skip_special_tokens=True) == "low "
    none = trained(PAPER, 40, surround="none")
    none.save(tmp_path, verbose=False)
    assert BPETokenizer.from_file(tmp_path).encode("low", add_special_tokens=True) == ours.encode(
        "low"
    )


def test_special_tokens_of_ones_own(engine: str, tmp_path: Path) -> None:
    special = [AddedToken("<unk>", 7), AddedToken("<mask>"), AddedToken("<|end|>", 100)]
    ours = trained(f"{PAPER}<|end|>low", 30, special_tokens=special)
    assert ours.special_tokens == {
        **{"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 7},
        **{"<mask>": ours.convert_tokens_to_ids("<mask>"), "<|end|>": 100},
    }
    assert len(ours) == 30 and b"<" not in itertools.chain.from_iterable(ours.merges)
    ours.save(tmp_path, verbose=False)
    again = BPETokenizer.from_file(tmp_path)
    assert again == ours
    text = "low<mask> <|end|>lowest"
    ids = again.encode(text, allowed_special="all")
    assert ids == ours.encode(text, allowed_special="all") and 100 in ids
    assert ours.train([PAPER], 30, style="words", verbose=False).special_tokens["<|end|>"] == 100


def test_other_markers_in_the_text(engine: str, tmp_path: Path) -> None:
    text = "<w>low</w> <w>lower</w> " * 9
    ours = trained(text, 60)
    assert any(token.endswith("</w>") for token in ours.get_vocab())
    ours.save(tmp_path, verbose=False)
    again = BPETokenizer.from_file(tmp_path)
    assert again == ours and again.encode(text) == ours.encode(text)
    again.save(tmp_path, verbose=False)
    assert BPETokenizer.from_file(tmp_path) == ours
    config = json.loads((tmp_path / "tokenizer_config.json").read_bytes())
    for wrong, message in (("</x>", "no token is '</x>', which"), (3, "end_of_word_marker: expec")):
        changed = json.dumps({**config, "end_of_word_marker": wrong})
        (tmp_path / "tokenizer_config.json").write_text(changed, encoding="utf-8")
        with pytest.raises(FileFormatError, match=message):
            BPETokenizer.from_file(tmp_path)
    with pytest.raises(ValueError, match="'#version' would be taken for the first line"):
        trained("#version1 #version2 #version3 #version4 " * 9, 60).save(tmp_path)


def test_the_corpus_may_be_read_in_any_way(engine: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PAPER, encoding="utf-8")
    expected = trained(PAPER, 40)
    by_path = BPETokenizer().train(tmp_path / "a.txt", 40, style="words", verbose=False)
    by_words = BPETokenizer().train(PAPER.split(), 40, style="words", verbose=False)
    assert by_path == expected == by_words
    report = by_path.training_report
    assert (report.documents, report.bytes_read) == (1, len(PAPER))
    assert (report.pretokens, report.distinct_pretokens) == (16, 4)
    assert (report.vocab_size, report.merges) == (len(expected), len(expected.merges))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"byte_fallback": True}, "byte_fallback works only with style='sentencepiece'"),
        ({"character_coverage": 1.0}, "character_coverage works only with style='sentencepiece'"),
        ({"corpus": None, "counts": {b"a": 1}}, "style='words' cuts text at white space; pass"),
        ({"corpus": None}, "train\\(\\) takes a corpus"),
        ({"corpus": [" \n"]}, "corpus is empty"),
        ({"corpus": []}, "corpus is empty"),
        ({"vocab_size": 10}, "vocab_size is 10, but must be at least 15: the corpus has 10"),
        ({"vocab_size": 2}, "vocab_size must be at least 5"),
        ({"special_tokens": [END]}, "words end in this symbol"),
        ({"ties": "last"}, "ties must be huggingface, greatest,"),
        ({"superwords": 100}, "superwords can't be combined with style"),
    ],
)
def test_what_cannot_be_is_refused(engine: str, options: dict[str, Any], message: str) -> None:
    tokenizer = BPETokenizer()
    before = tokenizer.definition
    arguments = {"corpus": [PAPER], "vocab_size": 60, "style": "words", "verbose": False, **options}
    with pytest.raises((TypeError, ValueError), match=message):
        tokenizer.train(**arguments)
    assert tokenizer.definition == before


def test_other_tokenizers_are_refused(engine: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not by a split pattern; make the tokenizer without"):
        BPETokenizer("cl100k").train([PAPER], 60, style="words", verbose=False)
    other = BPETokenizer().train([PAPER], 400, style="sentencepiece", verbose=False)
    with pytest.raises(ValueError, match="components of its own and cannot be trained again"):
        other.train([PAPER], 60, style="words", verbose=False)
    again = trained(TONGUE, 50)
    assert again.train([PAPER], 40, style="words", verbose=False) == trained(PAPER, 40)


def test_what_no_other_library_loads(engine: str, tmp_path: Path) -> None:
    ours = trained(PAPER, 40)
    cannot = "tokenizer.json cannot hold this tokenizer: each word ends in '</eow>' as a symbol"
    need("transformers")
    with pytest.raises(ValueError, match=cannot):
        ours.to_transformers()
    found = {row.loader: row for row in ours.check().rows}
    assert found["bpe-tokenizer"].status == "equal"
    for library in ("tokenizers", "transformers"):
        assert found[library].status == "not applicable" and cannot in found[library].detail


def test_the_command(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text(PAPER, encoding="utf-8")
    corpus = ["--corpus", str(tmp_path / "a.txt"), "--output", str(tmp_path / "out")]
    assert main(["train", *corpus, "--vocab-size", "40", "--style", "words", "--quiet"]) == 0
    assert BPETokenizer.from_file(tmp_path / "out") == trained(PAPER, 40)
    with pytest.raises(SystemExit):
        main(["train", *corpus, "--style", "words", "--pattern", "gpt2"])
    assert "--style words cuts text at spaces; leave out --pattern" in capsys.readouterr().err


def test_the_command_refuses_a_folder_with_another_tokenizer_before_training(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    BPETokenizer().save(tmp_path, verbose=False)
    before = sorted(tmp_path.iterdir())
    missing = str(tmp_path / "no_corpus.txt")  # nobody looks for it
    options = ["--corpus", missing, "--output", str(tmp_path), "--style", "words", "--force"]
    assert main(["train", *options]) == 1
    assert "has a tokenizer.json, which would be loaded instead" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
