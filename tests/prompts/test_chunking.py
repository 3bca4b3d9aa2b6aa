"""Pieces of a text: what they promise, for any text, tokenizer and way of arriving."""

from __future__ import annotations

import functools
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ENGINES, run_command
from hard_text import hard_text
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer
from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools.patterns.digits import digits_from_the_right
from bpe_tokenizer_tools.prompts import Piece, chunk, chunking

pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")

TEXT = """The cat sat on the mat. "Low or lower?" it asked. Grüße! 世界。世界！

    def low(lower):
        return 1234567 + 12.5

One line that
goes on. Dr. J. Smith left at 3 p.m. today... Then\r\n\r\nthe end
"""
texts = (
    hard_text
    | st.text(TEXT, max_size=200)
    | st.lists(st.sampled_from(re.split(r"(?<=[ \n])", TEXT)), max_size=60).map("".join)
)
KINDS = ("token", "sentence", "paragraph")

MADE: dict[str, Callable[[], BPETokenizer]] = {
    "gpt2": lambda: trained("gpt2", normalizer=None),
    "llama3, NFC": lambda: trained("llama3", normalizer="NFC"),
    "o200k, NFKD": lambda: trained("o200k", normalizer="NFKD"),
    "digits": lambda: trained(digits_from_the_right("llama3")),
    "superwords": lambda: trained("o200k", superwords=290),
    "sentencepiece": lambda: BPETokenizer().train(
        [TEXT] * 5, 350, style="sentencepiece", character_coverage=1.0, verbose=False
    ),
    "bytes": BPETokenizer,
}


def trained(pattern: str, normalizer: str | None = None, **how: Any) -> BPETokenizer:
    tokenizer = BPETokenizer(pattern, normalizer=normalizer)
    tokenizer.train([TEXT] * 5, 310, verbose=False, **how)
    tokenizer.add_special_tokens([AddedToken("<|end|>"), AddedToken("<b>", special=False)])
    return tokenizer


@functools.cache
def made(name: str) -> BPETokenizer:
    return MADE[name]()


def check_sound(
    tokenizer: BPETokenizer, text: str, most: int, overlap: int, boundary: Any
) -> list[Piece]:
    """Check what all pieces promise."""
    pieces = list(tokenizer.chunk(text, most, overlap, boundary))
    raw, before = text.encode(), Piece("", [], 0, 0, 0, 0)
    for piece in pieces:
        assert piece.text == text[piece.start : piece.end] != ""
        assert piece.text.encode() == raw[piece.byte_start : piece.byte_end]
        assert piece.ids == tokenizer.encode(piece.text)
        assert len(piece.ids) <= most
        assert before.start <= piece.start <= before.end < piece.end
        assert before.start < piece.start or not before.text
        repeated = text[piece.start : before.end]
        assert tokenizer.count_tokens(repeated) <= overlap
        before = piece
    assert before.end == len(text)
    return pieces


def most_of_a_character(tokenizer: BPETokenizer, text: str) -> int:
    return max((tokenizer.count_tokens(char) for char in {*text}), default=0)


@pytest.mark.parametrize("name", MADE)
def test_every_piece_fits_on_its_own(engine: str, name: str) -> None:
    tokenizer = MADE[name]()

    @settings(max_examples=examples(150))
    @given(texts, st.integers(1, 40), st.integers(0, 12), st.sampled_from(KINDS))
    def check(text: str, most: int, overlap: int, boundary: str) -> None:
        assume(most_of_a_character(tokenizer, text) <= most)
        pieces = check_sound(tokenizer, text, most, min(overlap, most - 1), boundary)
        if not overlap:
            assert "".join(piece.text for piece in pieces) == text

    check()


@settings(max_examples=examples(200))
@given(texts, st.integers(8, 30), st.integers(0, 7), st.sampled_from(KINDS), st.data())
def test_text_that_arrives_in_chunks(
    text: str, most: int, overlap: int, boundary: str, data: st.DataObject
) -> None:
    text = text * data.draw(st.integers(1, 20))
    tokenizer = made("llama3, NFC")
    assume(most_of_a_character(tokenizer, text) <= most)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=20).map(sorted))
    parts = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
    whole = list(tokenizer.chunk(text, most, overlap, boundary))
    assert list(tokenizer.chunk(parts, most, overlap, boundary)) == whole
    assert list(tokenizer.chunk(iter(text), most, overlap, boundary)) == whole


def test_both_engines_cut_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = []
    for each in ENGINES.values():
        monkeypatch.setattr(bpe_tokenizer, "_engine", each)
        tokenizers = [make() for make in MADE.values()]
        pieces.append(
            [
                list(tokenizer.chunk(TEXT * 3, most, overlap, kind))
                for tokenizer in tokenizers
                for most, overlap in ((12, 0), (20, 5))
                for kind in KINDS
            ]
        )
    assert pieces[0] == pieces[1]


def test_only_what_is_needed_is_read() -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "The cat sat on the mat. "

    pieces = chunk(made("gpt2"), endless(), 50, 10, "sentence")
    for i, piece in enumerate(itertools.islice(pieces, 2_000)):
        assert len(piece.ids) > 30
        assert 24 * read < piece.end + 2_000, i


# -- Boundaries ------------------------------------------------------------------


def cut(text: str, boundary: Any, most: int = 1) -> list[str]:
    """Cut a text at every boundary, if a piece may have as many bytes as its longest part."""
    return [piece.text for piece in BPETokenizer(normalizer=None).chunk(text, most, 0, boundary)]


SENTENCES = [
    ("One. ", "Two? ", "Three!"),
    ('"How?" she said. ', "Yes."),
    ("At 3.14 p.m. today J. Smith left. ", "Then… ", "So."),
    ("Wrapped\nlines. ", "Here\nand\n\n", "Heading\n\n", "Body.\n", "More."),
    ("世界。", "「你好。」", "是吗？", "对"),
    ("यह है। ", "वह? ", "هل؟ ", "نعم"),
    ("a.b c.d ", "E"),
    ("Dr. ", "Who"),  # a plain rule: no list of abbreviations
]


@pytest.mark.parametrize("sentences", SENTENCES)
def test_sentences(sentences: tuple[str, ...]) -> None:
    text = "".join(sentences)
    places = [*itertools.accumulate(map(len, sentences))][:-1]
    if sentences[0].startswith("a.b"):
        places = []
    # white space goes with what follows, line breaks with what was before
    places = [at - (len(text[:at]) - len(text[:at].rstrip(" "))) for at in places]
    kind = chunking._KINDS["sentence"]
    assert sorted(kind(text, 0)) == [*places, *([len(text)] if text.endswith("\n") else [])]


def test_paragraphs_sentences_lines_words_tokens() -> None:
    text = "One. Two.\n\nA long one. It has sentences.\nAnd lines\nof words, wordswordswords."
    assert cut(text, "paragraph", 80) == [text[:80]]
    assert cut(text, "paragraph", 70) == ["One. Two.\n\n", text[11:]]
    assert cut(text, "paragraph", 35) == [
        "One. Two.\n\n",
        "A long one. It has sentences.\n",
        "And lines\n",
        "of words, wordswordswords.",
    ]
    assert cut(text, "sentence", 12) == [
        "One. Two.\n\n",
        "A long one.",
        " It has",
        " sentences.\n",
        "And lines\n",
        "of words,",
        " wordswordsw",
        "ords.",
    ]
    assert cut("ab\r\ncd\r\n\r\nef", "paragraph", 10) == ["ab\r\ncd\r\n\r\n", "ef"]


@settings(max_examples=examples(150))
@given(texts.filter(str.strip), st.integers(12, 40), st.sampled_from(["sentence", "paragraph"]))
def test_pieces_are_as_long_as_they_can_be(text: str, most: int, boundary: str) -> None:
    """They end at the last boundary that fits, of the best kind of which there is one."""
    tokenizer = BPETokenizer(normalizer=None)  # where tokens are bytes, nothing changes at cuts
    names = chunking._LEVELS[boundary]
    places = [sorted({*chunking._KINDS[name](text, 0)} | {len(text)}) for name in names]
    for start, end in (
        (piece.start, piece.end) for piece in tokenizer.chunk(text, most, 0, boundary)
    ):
        near = [[at for at in kind if at > start and fits(text[start:at], most)] for kind in places]
        if any(near):
            assert end == next(filter(None, near))[-1]
        else:
            assert not fits(text[start : end + 1], most)


def fits(text: str, most: int) -> bool:
    return len(text.encode()) <= most


def test_a_function_says_where() -> None:
    text = "ab|cdefgh|ij|klmnopqrstuvwxyz"

    def bars(whole: str) -> list[int]:
        assert whole == text
        return [found.end() for found in re.finditer(r"\|", whole)]

    assert cut(text, bars, 10) == ["ab|cdefgh|", "ij|", "klmnopqrst", "uvwxyz"]
    tokenizer = BPETokenizer()
    expected = list(tokenizer.chunk(text, 10, 3, bars))
    assert [piece.text for piece in expected][:2] == ["ab|cdefgh|", "gh|ij|"]
    assert list(tokenizer.chunk(iter(text), 10, 3, bars)) == expected
    check_sound(tokenizer, text, 10, 3, bars)


def test_overlap_begins_at_a_boundary() -> None:
    text = "One two. Three four. Five six. Seven eight. Nine ten."
    pieces = check_sound(BPETokenizer(), text, 32, 16, "sentence")
    assert [piece.text for piece in pieces] == [
        "One two. Three four. Five six.",
        " Five six. Seven eight. Nine ten.",
    ] or [piece.text for piece in pieces] == [
        "One two. Three four. Five six.",
        " Five six. Seven eight.",
        " Seven eight. Nine ten.",
    ]


def test_a_sentence_is_whole_rather_than_repeated() -> None:
    text = "A b c d. " + "e" * 27 + ". F."
    pieces = check_sound(BPETokenizer(), text, 30, 12, "sentence")
    assert [piece.text for piece in pieces][:2] == ["A b c d.", " " + "e" * 27 + "."]


# -- Real text, and odd calls --------------------------------------------------------


@pytest.mark.parametrize("boundary", KINDS)
def test_published_vocabularies(vocab_dir: Path, corpora: Any, boundary: str) -> None:
    for name in ("o200k_base", "qwen3"):
        tokenizer = BPETokenizer.from_file(vocab_dir / f"{name}.tiktoken")
        for corpus in ("english", "code", "multi"):
            text = corpora(corpus)[:150_000]
            pieces = check_sound(tokenizer, text, 256, 32, boundary)
            assert sum(len(piece.ids) for piece in pieces) / len(pieces) > 180
            check_sound(tokenizer, text, 256, 0, boundary)


def test_every_family(tmp_path: Path) -> None:
    need("tokenizers")
    import tokenizer_files

    for name, tokenizer in tokenizer_files.families(tmp_path):
        text = " ".join(tokenizer_files.CORPUS)
        for boundary in KINDS:
            pieces = list(tokenizer.chunk(text, 40, 0, boundary))
            assert "".join(piece.text for piece in pieces) == text, name
            assert all(piece.ids == tokenizer.encode(piece.text) for piece in pieces)
            assert all(len(piece.ids) <= 40 for piece in pieces)


def test_no_text() -> None:
    assert list(made("gpt2").chunk("", 5)) == []
    assert list(made("gpt2").chunk(["", ""], 5)) == []


def test_a_character_that_does_not_fit() -> None:
    pieces = BPETokenizer().chunk("ab🙂", 3)
    assert next(pieces).text == "ab"
    with pytest.raises(ValueError, match="'🙂' at character 2 takes 4 tokens, max_tokens is 3; a"):
        next(pieces)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("a", 0), ValueError, "max_tokens"),
        (("a", "5"), TypeError, "max_tokens"),
        (("a", None), TypeError, "max_tokens and overlap must be ints, got None"),
        (("a", 5, -1), ValueError, "overlap"),
        (("a", 5, 5), ValueError, "overlap must be less than max_tokens, 5, got 5"),
        (("a", 5, 0, "word"), ValueError, "boundary must be 'token', 'sentence', 'paragraph' or"),
        (("a", 5, 0, ["token"]), ValueError, "boundary must be 'token'.* or a function, got"),
        ((b"a", 5), TypeError, "expected text or an iterable of strings, got b'a'"),
        ((bytearray(b"a"), 5), TypeError, "expected text or an iterable.* got bytearray"),
        ((memoryview(b"a"), 5), TypeError, "expected text or an iterable.* got <memory"),
        ((5, 5), TypeError, "expected text or an iterable of strings"),
        (("ab", 5, 0, lambda text: [3]), ValueError, "boundary returned 3; expected places"),
        (("ab", 5, 0, lambda text: ["a"]), ValueError, "boundary returned 'a'; expected places"),
    ],
)
def test_what_is_refused(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        made("gpt2").chunk(*arguments)


def test_text_that_is_none() -> None:
    with pytest.raises(TypeError, match="text must be a str, got bytes"):
        list(made("gpt2").chunk([b"a"], 5))  # type: ignore[list-item]
    with pytest.raises(TypeError, match="text must be a str, got NoneType"):  # not the end
        list(made("gpt2").chunk(["a", None, "b"], 5))  # type: ignore[list-item]
    with pytest.raises(ValueError, match="lone surrogate"):
        list(made("gpt2").chunk("a\ud800", 5))


# -- On the command line -------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    made("llama3, NFC").save(tmp_path / "tokenizer", verbose=False)
    return tmp_path / "tokenizer"


def test_pieces_of_a_file(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = TEXT * 40
    file = saved.parent / "text.txt"
    file.write_bytes(text.encode())
    how = ["--tokenizer", saved, "--tokens", 60, "--overlap", 9, "--boundary", "sentence"]
    expected = list(made("llama3, NFC").chunk(text, 60, 9, "sentence"))
    status, out, err = run_command(capsys, "chunk", file, *how, "--jsonl")
    assert (status, err) == (0, "")
    pieces = [json.loads(line) for line in out.split("\n")[:-1]]
    assert pieces == [{"document": 0, **piece._asdict()} for piece in expected]
    status, out, err = run_command(capsys, "chunk", file, *how, "--json")
    assert json.loads(out) == {"pieces": pieces}
    status, out, err = run_command(capsys, "chunk", file, *how)
    lines = out.splitlines()
    assert len(lines) == len(pieces)
    assert lines[0].split()[:3] == [f"0:0-{expected[0].end}", str(len(expected[0].ids)), "tokens"]


def test_documents_have_their_own_pieces(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved.parent / "texts.jsonl"
    file.write_text("".join(json.dumps({"body": f"{TEXT}{i}"}) + "\n" for i in range(3)))
    how = ["--tokenizer", saved, "--tokens", 50, "--jsonl", "--text-field", "body"]
    status, out, _ = run_command(capsys, "chunk", file, *how)
    assert status == 0
    pieces = [json.loads(line) for line in out.split("\n")[:-1]]
    for i in range(3):
        own = [piece for piece in pieces if piece["document"] == i]
        assert "".join(piece["text"] for piece in own) == f"{TEXT}{i}"
        assert own[0]["start"] == own[0]["byte_start"] == 0


def test_standard_input_is_cut_as_it_comes(saved: Path) -> None:
    how = ["chunk", "-", "--tokenizer", saved, "--tokens", "40", "--jsonl"]
    command = [sys.executable, "-m", "bpe_tokenizer", *map(str, how)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdin.write((TEXT * 400).encode())
        process.stdin.flush()
        first = json.loads(process.stdout.readline())  # before the end has come
        process.stdin.close()
        rest = process.stdout.read()
    assert process.returncode == 0
    assert first["text"] == TEXT[: first["end"]]
    assert json.loads(rest.splitlines()[-1])["end"] == len(TEXT) * 400


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["nothing.txt"], 1, "nothing.txt: no such file"),
        ([""], 2, "expected the path of a file, or '-', got ''"),
        (["-", "--json", "--jsonl"], 2, "--json prints one object, --jsonl one for each piece"),
        (["-", "--tokens", "0"], 2, "argument --tokens: expected 1 or more, got 0"),
        (["-", "--tokens", "5", "--overlap", "5"], 2, "--overlap: expected less than --tokens 5"),
        (["-", "--overlap", "-1"], 2, "argument --overlap: expected 0 or more, got -1"),
        (["-", "--tokens", "x"], 2, "argument --tokens: expected a number such as 32000, 32k"),
    ],
)
def test_wrong_commands(
    saved: Path, capsys: pytest.CaptureFixture[str], arguments: Any, status: int, message: str
) -> None:
    found, out, err = run_command(capsys, "chunk", *arguments, "--tokenizer", saved)
    assert (found, out) == (status, "")
    assert message in err
