"""One program from start to end, as somebody new to the library writes it.

It trains on a handful of lines, looks at what came of it, encodes in every way, renders chats,
saves under a label, loads again (here and in Transformers), streams, and ends at the command line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import (
    CHATML_SPECIAL_TOKENS,
    GPT2_SPLIT_PATTERN,
    LLAMA3_SPECIAL_TOKENS,
    BPETokenizer,
    ChatTemplate,
    EncodingResult,
    InferenceBackend,
    build_byte_to_char,
    build_char_to_byte,
    detect_best_backend,
)

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "Byte-level BPE never meets an unknown character: naïve, 東京, 🙂.",
    "def encode(text):\n    return [ord(char) for char in text]\n",
    "It's the 3rd of 12 lines; they're short, aren't they?",
] * 25
SPECIAL = {"<|begin_of_text|>": 256, "<|end_of_text|>": 257, "<|pad|>": 258, "<|unk|>": 259}
TEXTS = ["Hello, world!", "the lazy dog", "naïve 東京 🙂", "", "  two  spaces\n"]
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is BPE?"},
    {"role": "assistant", "content": "A way to split text."},
    {"role": "user", "content": "Thanks <|eot_id|>!"},
]


@pytest.fixture
def trained() -> BPETokenizer:
    tokenizer = BPETokenizer(split_pattern=GPT2_SPLIT_PATTERN)
    returned = tokenizer.train(
        corpus=CORPUS, vocab_size=360, min_frequency=2, special_tokens=SPECIAL, verbose=False
    )
    assert returned is tokenizer
    return tokenizer


def test_the_byte_alphabet_goes_both_ways() -> None:
    forward = build_byte_to_char()
    back = build_char_to_byte(forward)
    assert sorted(forward) == list(range(256)) and len(set(forward.values())) == 256
    assert all(back[char] == byte for byte, char in forward.items())


def test_what_was_trained(trained: BPETokenizer) -> None:
    assert trained.vocab_size == len(trained) == 360
    assert repr(trained).startswith("BPETokenizer(")
    roles = (trained.bos_token_id, trained.eos_token_id, trained.pad_token_id)
    assert (*roles, trained.unk_token_id) == (256, 257, 258, 259)
    assert trained.get_vocab()["<|pad|>"] == 258


def test_text_to_ids_and_back(trained: BPETokenizer) -> None:
    for text in TEXTS:
        ids = trained.encode(text)
        assert trained(text) == ids and trained.decode(ids) == text
        assert trained.count_tokens(text) == len(ids) == len(trained.tokenize(text))
        around = trained.encode(text, add_special_tokens=True)
        assert around == [256, *ids, 257]
        assert trained.decode(around, skip_special_tokens=True) == text
    typed = "say <|pad|>"
    assert 258 not in trained.encode(typed)
    assert trained.encode(typed, allowed_special="all")[-1] == 258
    assert trained.encode(typed, allowed_special={"<|pad|>"})[-1] == 258


def test_tokens_and_ids(trained: BPETokenizer) -> None:
    tokens = trained.tokenize("the lazy dog")
    ids = trained.convert_tokens_to_ids(tokens)
    assert ids == trained.encode("the lazy dog")
    assert trained.convert_ids_to_tokens(ids) == tokens
    assert trained.convert_tokens_to_string(tokens) == "the lazy dog"
    assert trained.convert_tokens_to_ids("no such token") == trained.unk_token_id
    assert trained.convert_ids_to_tokens(10_000) == ""


def test_batches_of_one_and_of_many(trained: BPETokenizer) -> None:
    one = trained("the lazy dog", padding=True, truncation=True, max_length=64)
    (row,) = one
    assert isinstance(row, EncodingResult) and row.input_ids == trained.encode("the lazy dog")
    batch = trained.encode_batch(
        TEXTS, add_special_tokens=True, padding=True, truncation=True, max_length=16
    )
    lengths = {len(result) for result in batch}
    assert len(lengths) == 1 and lengths.pop() <= 16
    for i, result in enumerate(batch):
        kept = [id_ for id_, mask in zip(result.input_ids, result.attention_mask) if mask]
        assert kept == trained.encode(TEXTS[i], add_special_tokens=True)[:16]
    decoded = trained.decode_batch(batch["input_ids"], skip_special_tokens=True)
    assert decoded[:2] == TEXTS[:2] and decoded[3:] == TEXTS[3:]


def test_tensors(trained: BPETokenizer) -> None:
    numpy, torch = need("numpy"), need("torch")
    arrays = trained(TEXTS, padding=True, return_tensors="np")
    assert isinstance(arrays["input_ids"], numpy.ndarray)
    tensors = trained("the lazy dog", return_tensors="pt")
    assert tensors["input_ids"].shape == tensors["attention_mask"].shape
    assert tensors["input_ids"].dtype == torch.int64
    assert tensors["input_ids"].tolist() == [trained.encode("the lazy dog")]


def test_a_budget_of_tokens(trained: BPETokenizer) -> None:
    text = " ".join(CORPUS[:3])
    for budget in (0, 1, 5, 20, 1000):
        cut = trained.truncate(text, budget)
        assert text.startswith(cut) and trained.count_tokens(cut) <= budget


def test_a_stream(trained: BPETokenizer) -> None:
    text = "".join(CORPUS[:8])
    chunks = (text[i : i + 7] for i in range(0, len(text), 7))
    pieces = list(trained.encode_streaming(chunks))
    assert [id_ for piece in pieces for id_ in piece] == trained.encode(text)


def test_the_cache_counts(trained: BPETokenizer) -> None:
    trained.clear_cache()
    trained.encode("the lazy dog")
    trained.encode("the lazy dog")
    stats = trained.get_cache_stats()
    assert stats.keys() == {"hits", "misses", "size", "hit_rate_pct"} and stats["hits"] > 0


@pytest.mark.parametrize("name", ["llama3", "chatml", "alpaca"])
def test_chats(name: str) -> None:
    tokenizer = BPETokenizer().train(CORPUS, vocab_size=300, verbose=False)
    tokenizer.add_special_tokens(LLAMA3_SPECIAL_TOKENS)
    tokenizer.add_special_tokens(LLAMA3_SPECIAL_TOKENS)  # a notebook's cell runs twice
    tokenizer.add_special_tokens(CHATML_SPECIAL_TOKENS)
    whole: Any = {"all_turns": True} if name == "alpaca" else {}
    text = tokenizer.apply_chat_template(MESSAGES, template=name, tokenize=False, **whole)
    assert text == ChatTemplate.get_template(name)(MESSAGES, **whole)
    assert text.count("Be brief.") == 1
    ignored = tokenizer.apply_chat_template(
        MESSAGES, template=name, tokenize=False, system_prompt="Never seen.", **whole
    )
    assert ignored == text  # the messages have a system message of their own
    ids = tokenizer.apply_chat_template(MESSAGES, template=name, **whole)
    assert tokenizer.decode(ids) == text
    ends = {"llama3": 4, "chatml": 0, "alpaca": 0}[name]  # the one that was typed is text
    assert ids.count(tokenizer.special_tokens["<|eot_id|>"]) == ends
    bare = tokenizer.apply_chat_template(MESSAGES[1:2], name, tokenize=False, system_prompt="S!")
    assert "S!" in bare


def test_save_and_load(trained: BPETokenizer, tmp_path: Path) -> None:
    directory = tmp_path / "saved"
    trained.save(str(directory), name="demo_tokenizer", verbose=False)
    files = {path.name for path in directory.iterdir() if not path.name.startswith(".")}
    assert {"tokenizer.json", "tokenizer_config.json"} <= files
    loaded = BPETokenizer.from_pretrained(str(directory), verbose=False)
    assert loaded == trained
    transformers = need("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(str(directory))
    for text in TEXTS:
        around = loaded.encode(text, add_special_tokens=True)
        assert around == trained.encode(text, add_special_tokens=True)
        assert around[-1] == trained.eos_token_id
        assert theirs(text)["input_ids"] == around[:-1]  # others add no eos


def test_the_machine_has_a_backend(capsys: pytest.CaptureFixture[str]) -> None:
    best = detect_best_backend()
    assert isinstance(best, InferenceBackend) and best.value in capsys.readouterr().err


def test_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("\n\n".join(CORPUS), encoding="utf-8")

    def command(*words: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, bpe_tokenizer.__file__, *words],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    train = ("train", "--corpus", "corpus.txt", "--vocab-size", "400", "--output", "tok")
    command(*train, "--min-frequency", "2", "--pattern", "gpt2", "--quiet")
    assert "--force" in command(*train, "--quiet", status=1)
    command(*train, "--quiet", "--force")
    shown = command("encode", "--tokenizer", "tok", "--text", "lazy dog", "--show-tokens")
    assert "Token count : " in shown and "Token IDs : [" in shown and "Tokens : [" in shown
    ids = json.loads(command("encode", "--tokenizer", "tok", "--text", "lazy dog", "--json"))[
        "input_ids"
    ]
    told = command("decode", "--tokenizer", "tok", "--ids", *map(str, ids))
    assert told == "Decoded text: 'lazy dog'\n"
    assert "99999" in command("decode", "--tokenizer", "tok", "--ids", "99999", status=1)
    facts = command("info", "--tokenizer", "tok", "--sample-text", "lazy dog")
    assert "lossless" in facts and "vocab size" in facts


def test_what_is_no_corpus_and_no_template(trained: BPETokenizer, tmp_path: Path) -> None:
    for wrong in ({"ab": 3}, [(b"ab", 3)]):
        with pytest.raises(TypeError, match="counts must map pre-tokens"):
            BPETokenizer().train(counts=wrong, verbose=False)  # type: ignore[arg-type]
    trained.chat_templates = {5: "x"}  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="chat_templates must map names"):
        trained.save(tmp_path, verbose=False)
    assert not list(tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, bpe_tokenizer.__file__, "train", "--corpus", "", "--output", "out"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 2 and "--corpus" in done.stderr
    assert not list(tmp_path.iterdir())
