"""A model that loses ordinary text says so when it is loaded: once, and which text."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from oracles import need

from bpe_tokenizer import BPETokenizer, build_byte_to_char

tokenizers = need("tokenizers")

import tokenizer_files as files  # noqa: E402  (needs the library)
from tokenizer_files import FAMILIES  # noqa: E402

ASCII = [*map(chr, range(0x20, 0x7F)), "\t", "\n"]


def load(path: Path) -> tuple[BPETokenizer, list[warnings.WarningMessage]]:
    """Load, and return what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tokenizer = BPETokenizer.from_pretrained(path, verbose=False)
    return tokenizer, caught


def characters(folder: Path, vocab: str, **options: Any) -> Path:
    """Write a model of single characters."""
    path = folder / "tokenizer.json"
    model = files._model(vocab={char: i for i, char in enumerate(vocab)}, **options)
    path.write_text(json.dumps(files._skeleton(files.Family(None), model)), encoding="utf-8")
    return path


def is_lost(theirs: Any, unknown: int | None, char: str) -> bool:
    """Ask the other library: does a run of the character give an unknown token, or less of it?"""
    found = theirs.encode(char * 3, add_special_tokens=False)
    if unknown is not None:
        return unknown in found.ids
    pieces = [(theirs.normalizer.normalize_str(char * 3) if theirs.normalizer else char * 3, 0)]
    if theirs.pre_tokenizer:
        pieces = theirs.pre_tokenizer.pre_tokenize_str(pieces[0][0])
    return "".join(found.tokens) != "".join(piece for piece, _ in pieces)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_warning_comes_where_the_other_library_loses_text(tmp_path: Path, family: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(files.text(family), encoding="utf-8")
    file = json.loads(files.text(family))
    alone = {**file, "added_tokens": [], "post_processor": None}  # none of which is ordinary text
    theirs = tokenizers.Tokenizer.from_str(json.dumps(alone))
    model = file["model"]
    unknown = model["unk_token"] and theirs.token_to_id(model["unk_token"])
    whole = model.get("byte_fallback") and "<0x00>" in model["vocab"]
    lost = [] if whole else [char for char in ASCII if is_lost(theirs, unknown, char)]
    tokenizer, caught = load(path)
    assert bool(caught) == bool(lost), lost
    for warning in caught:
        assert warning.category is UserWarning and warning.filename == __file__
        assert str(path) in str(warning.message)
        assert ("is dropped" in str(warning.message)) == (unknown is None)
    assert len(caught) <= 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a copy is not loaded
        assert pickle.loads(pickle.dumps(tokenizer)) == copy.copy(tokenizer) == tokenizer


def test_it_names_what_is_lost(tmp_path: Path) -> None:
    most = "".join(char for char in ASCII if char not in "xQ~\n")
    _, caught = load(characters(tmp_path, most))
    assert str(caught[0].message).endswith(
        "no token for these characters of ordinary text: 'Q', 'x', '~', '\\n'; each is dropped"
    )
    _, caught = load(characters(tmp_path, "?" + "".join(ASCII[:40]), unk_token="?"))
    message = str(caught[0].message)
    assert "'H', 'I', 'J'" in message and "and 47 more; each becomes '?'" in message
    assert load(characters(tmp_path, "".join(ASCII)))[1] == []


def test_bytes_that_are_missing_are_named(tmp_path: Path) -> None:
    """As a byte-level model trained without the whole alphabet, a common mistake."""
    chars = build_byte_to_char()
    known = "".join(char for byte, char in chars.items() if byte not in (0x41, 0xC3, 0xF0))
    path = characters(tmp_path, known)
    data = json.loads(path.read_text(encoding="utf-8"))
    data["pre_tokenizer"] = files.PLAIN_BYTES
    path.write_text(json.dumps(data), encoding="utf-8")
    _, caught = load(path)
    assert "ordinary text: 'A', byte 0xC3, byte 0xF0; each is dropped" in str(caught[0].message)
    never = [0xC0, 0xC1, 0xEE, *range(0xF1, 0x100)]  # in no text, or in private use only
    known = "".join(char for byte, char in chars.items() if byte not in never)
    data["model"]["vocab"] = {char: i for i, char in enumerate(known)}
    path.write_text(json.dumps(data), encoding="utf-8")
    assert load(path)[1] == []


def test_vocab_and_merges_of_words_warn_too(tmp_path: Path) -> None:
    vocab = ["<unk>", *"abc", *(f"{char}</w>" for char in "abc"), "ab"]
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps({token: i for i, token in enumerate(vocab)}), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n", encoding="utf-8")
    _, caught = load(path)
    assert len(caught) == 1 and "'d', 'd</w>'" not in str(caught[0].message)
    assert "'!', '!</w>'" in str(caught[0].message)


@pytest.mark.parametrize("unk", [True, False])
def test_sentencepiece_models_warn_too(tmp_path: Path, unk: bool) -> None:
    sentencepiece = need("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat"] * 50),
        model_prefix=str(tmp_path / "m"),
        model_type="bpe",
        vocab_size=280 if not unk else 20,
        byte_fallback=not unk,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    lost = [char for char in ASCII if theirs.unk_id() in theirs.encode(char)]
    _, caught = load(tmp_path / "m.model")
    assert bool(caught) == bool(lost) == unk
    if unk:
        assert repr(lost[0]) in str(caught[0].message) and "<unk>" in str(caught[0].message)


def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    path = characters(tmp_path, "".join(ASCII[:-5]))
    command = [sys.executable, "-m", "bpe_tokenizer", "encode", "--tokenizer", str(path)]
    done = subprocess.run([*command, "--text", "a", "--json"], capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["input_ids"] == [65]
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"bpe-tokenizer: warning: {path}: no token for these characters")
