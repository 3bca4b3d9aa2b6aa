"""vocab.json with merges.txt whose end-of-word marker is a symbol of its own.

The oracle is `train` and `split`: the program that such files come from (Sennrich et al. 2016,
algorithm 1, and the courses that teach it), which shares nothing with the library.
"""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools.checking.lint import lint
from bpe_tokenizer_tools.showing.trace import trace

CORPUS = "low low low low low lower lower newest newest newest widest widest naïve 世界 a a"
MARKERS = ["</w>", "</eow>"]
# Vocabularies of a few letters, as here, do lose ordinary text.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")


# -- The program --------------------------------------------------------------


def join(symbols: list[str], pair: tuple[str, str]) -> list[str]:
    out: list[str] = []
    for symbol in symbols:
        if out and (out[-1], symbol) == pair:
            out[-1] += symbol
        else:
            out.append(symbol)
    return out


def train(text: str, n_merges: int, marker: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    words = [([*word, marker], count) for word, count in Counter(text.split()).items()]
    vocab = sorted({symbol for symbols, _ in words for symbol in symbols} | {"<unk>"})
    merges: list[tuple[str, str]] = []
    for _ in range(n_merges):
        pairs: Counter[tuple[str, str]] = Counter()
        for symbols, count in words:
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += count
        if not pairs:
            break
        merges.append(max(pairs, key=lambda pair: (pairs[pair], pair)))
        words = [(join(symbols, merges[-1]), count) for symbols, count in words]
    vocab += [left + right for left, right in merges if left + right not in vocab]
    return {token: id_ for id_, token in enumerate(dict.fromkeys(vocab))}, merges


def split(text: str, merges: list[tuple[str, str]], marker: str) -> list[str]:
    """Do to each word what training did, merge by merge."""
    out: list[str] = []
    for word in text.split():
        symbols = [*word, marker]
        for pair in merges:
            symbols = join(symbols, pair)
        out += symbols
    return out


# -----------------------------------------------------------------------------


def write(
    folder: Path, vocab: dict[str, int], merges: list[tuple[str, str]], **more: object
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    lines = "".join(f"{left} {right}\n" for left, right in merges)
    (folder / "merges.txt").write_text(f"#version: 0.1\n{lines}", encoding="utf-8")
    for name, content in more.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_that_merges_join_to_words(engine: str, marker: str, tmp_path: Path) -> None:
    vocab, merges = train(CORPUS, 14, marker)
    ours = BPETokenizer.from_file(write(tmp_path, vocab, merges))
    assert ("t", marker) in merges or any(right == marker for _, right in merges)
    assert ours.tokenize("lowest")[-1] == f"est{marker}"  # a suffix would give "t</w>"
    for text in (CORPUS, "lowest  widow\nnew", "l", " ", "", "low" * 50):
        tokens = split(text, merges, marker)
        known = [vocab.get(token, vocab["<unk>"]) for token in tokens]
        assert ours.encode(text) == known
        assert ours.decode(known) == "".join(tokens).replace(marker, " ")[:-1]
        assert sum(ours.encode_streaming([text[:3], text[3:]]), []) == known
        assert "".join(ours.decode_streaming(known)) == ours.decode(known)


@settings(max_examples=examples(400), deadline=None)
@given(
    corpus=st.text("ab \n", max_size=60) | st.text("abc</w> ", max_size=60) | st.text(max_size=20),
    text=st.text("abc</w> \t\x1c\x85", max_size=30) | st.text(max_size=20),
    n_merges=st.integers(0, 40),
    marker=st.sampled_from(MARKERS),
)
def test_any_vocabulary(
    engine: str,
    corpus: str,
    text: str,
    n_merges: int,
    marker: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    vocab, merges = train(f"{corpus} a", n_merges, marker)
    others = [each for each in MARKERS if each != marker]
    folder = write(tmp_path_factory.mktemp("any"), vocab, merges)
    if any(token.endswith(other) for token in vocab for other in others):
        with pytest.raises(FileFormatError, match="tokens end in both"):  # the text has a marker
            BPETokenizer.from_file(folder)
        return
    ours = BPETokenizer.from_file(folder)
    unknown = vocab["<unk>"]
    for given_text in (text, corpus, f"{corpus}{text}"):
        tokens = split(given_text, merges, marker)
        assert ours.encode(given_text) == [vocab.get(token, unknown) for token in tokens]


def test_words_are_what_python_takes_for_words(engine: str, tmp_path: Path) -> None:
    vocab, merges = train("a b ab", 3, "</w>")
    ours = BPETokenizer.from_file(write(tmp_path, vocab, merges))
    whole = vocab["ab</w>"]
    for char in map(chr, range(sys.maxunicode + 1)):
        if char.isspace() or re.match(r"\s", char):
            assert ours.encode(f"ab{char}ab") == [whole, whole], repr(char)


def test_what_else_is_made_of_it(engine: str, tmp_path: Path) -> None:
    vocab, merges = train(CORPUS, 14, "</w>")
    ours = BPETokenizer.from_file(write(tmp_path, vocab, merges))
    text = " low  lowed"
    encoded = ours.encode_with_offsets(text)
    assert encoded.tokens == ["low</w>", "lowe", "d", "</w>"]
    assert encoded.offsets == [(1, 4), (6, 10), (10, 11), (11, 11)]
    assert pickle.loads(pickle.dumps(ours)).encode(text) == encoded.input_ids
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert trace(text, ours).ids == encoded.input_ids
    assert ours.count_tokens(text) == 4
    assert ours.truncate(text, 1) == " low"
    unreached = [each.message for each in lint(ours) if each.name == "unreachable"]
    assert unreached == []  # every token but <unk> comes out of its own text
    lower = write(tmp_path, vocab, merges, tokenizer_config={"do_lower_case": True})
    assert BPETokenizer.from_file(lower).encode(text.upper()) == encoded.input_ids
    with pytest.raises(FileFormatError, match="'</w>' ends words, .* leave it out of the special"):
        BPETokenizer.from_file(tmp_path, special_tokens={"</w>": vocab["</w>"]})


def test_only_these_two_files_can_hold_it(engine: str, tmp_path: Path) -> None:
    vocab, merges = train(CORPUS, 14, "</w>")
    ours = BPETokenizer.from_file(write(tmp_path / "in", vocab, merges))
    wanted = (
        r"each word ends in '</w>' as a symbol of its own.* save\(\) writes vocab.json and merg"
    )
    with pytest.raises(ValueError, match=f"tokenizer.json cannot hold this tokenizer: {wanted}"):
        ours.export(tmp_path / "t.json", "tokenizer.json")
    with pytest.raises(ValueError, match=wanted):
        ours.to_hf()
    for format_, name in (("gguf", "t.gguf"), ("tiktoken", "t.tiktoken"), ("gpt2", "o")):
        with pytest.raises(ValueError, match="not byte-level"):
            ours.export(tmp_path / name, format_)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    ours.save(tmp_path / "out", verbose=False)
    assert BPETokenizer.from_file(tmp_path / "out") == ours
    assert json.loads((tmp_path / "out" / "vocab.json").read_bytes()) == vocab
    (tmp_path / "out" / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FileExistsError, match=r"has a tokenizer\.json, which would be loaded"):
        ours.save(tmp_path / "out", verbose=False)


@pytest.mark.parametrize("lower", [False, True])
def test_what_is_saved_is_loaded_again(engine: str, lower: bool, tmp_path: Path) -> None:
    vocab, merges = train(CORPUS, 14, "</eow>")
    config = {
        "do_lower_case": lower,
        "bos_token": "<s>",
        "add_bos_token": True,
        "eos_token": "<end>",
        "own": 3,
    }
    ours = BPETokenizer.from_file(write(tmp_path / "in", vocab, merges, tokenizer_config=config))
    ours.add_special_tokens(["<more>"])
    ours.chat_template = "{{ messages }}"
    ours.save(tmp_path / "out", verbose=False)
    again = BPETokenizer.from_file(tmp_path / "out")
    assert again == ours and again.special_tokens == ours.special_tokens
    text = "LOW lowest<more> widow"
    for options in ({}, {"add_special_tokens": True}, {"allowed_special": "all"}):
        assert again.encode(text, **options) == ours.encode(text, **options)
    assert again.encode("low", add_special_tokens=True)[0] == ours.bos_token_id
    found = json.loads((tmp_path / "out" / "tokenizer_config.json").read_bytes())
    assert {key: found[key] for key in config} == config


# -- Which of the two it is ---------------------------------------------------


def test_a_bare_marker_that_nothing_uses_leaves_a_suffix_a_suffix(
    engine: str, tmp_path: Path
) -> None:
    tokenizers = need("tokenizers")
    vocab = {"<unk>": 0, "</w>": 1, "l": 2, "o": 3, "w": 4, "w</w>": 5, "lo": 6, "low</w>": 7}
    merges = [("l", "o"), ("lo", "w</w>")]
    ours = BPETokenizer.from_file(write(tmp_path, vocab, merges))
    theirs = tokenizers.CharBPETokenizer(
        vocab, merges, suffix="</w>", bert_normalizer=False, split_on_whitespace_only=True
    )
    for text in ("low low", "wool", "</w>"):
        assert ours.encode(text) == theirs.encode(text).ids
    # Text that holds "</w>" can make the bare marker, and merges of it, of its characters.
    pieces = ["<", "/", "w", ">", "</", "w>", "</w>", "x", "x</w>", "</w>x</w>", "<unk>"]
    merges = [("<", "/"), ("w", ">"), ("</", "w>"), ("</w>", "x</w>")]
    vocab = {piece: id_ for id_, piece in enumerate(pieces)}
    ours = BPETokenizer.from_file(write(tmp_path, vocab, merges))
    theirs = tokenizers.CharBPETokenizer(
        vocab, merges, suffix="</w>", bert_normalizer=False, split_on_whitespace_only=True
    )
    for text in ("</w>x", "x </w>", "xx"):
        assert ours.encode(text) == theirs.encode(text).ids


def test_a_vocabulary_that_says_both_is_refused(engine: str, tmp_path: Path) -> None:
    vocab = {"a": 0, "b": 1, "</w>": 2, "a</w>": 3, "b</w>": 4}
    with pytest.raises(FileFormatError, match="'b </w>' uses </w> as .* 'a</w>' is a token"):
        BPETokenizer.from_file(write(tmp_path, vocab, [("b", "</w>")]))
    vocab, merges = train(CORPUS, 14, "</w>")
    clip = {"tokenizer_class": "CLIPTokenizer"}
    with pytest.raises(FileFormatError, match=r"'t </w>'|uses </w> as a separate symbol, but"):
        BPETokenizer.from_file(write(tmp_path, vocab, merges, tokenizer_config=clip))
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(FileFormatError, match="uses </w> as a separate symbol, but its vocab"):
        BPETokenizer.from_file(tmp_path, split_pattern="gpt2")


def test_a_tokenizer_json_says_itself_what_the_marker_is(engine: str, tmp_path: Path) -> None:
    """There the same vocabulary has a suffix, or no marker: `tokenizers` decides."""
    tokenizers = need("tokenizers")
    vocab, merges = train(CORPUS, 14, "</w>")
    for suffix in ({"end_of_word_suffix": "</w>"}, {}):
        model = tokenizers.models.BPE(vocab, merges, unk_token="<unk>", **suffix)
        theirs = tokenizers.Tokenizer(model)
        theirs.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        theirs.decoder = tokenizers.decoders.BPEDecoder("</w>")
        theirs.save(str(tmp_path / "tokenizer.json"))
        ours = BPETokenizer.from_file(tmp_path)
        for text in (CORPUS, "lowest widow", "</w>"):
            assert ours.encode(text) == theirs.encode(text).ids
