"""The program that this library succeeds, and its tutorial's function, rewritten.

Neither is available, so this follows their description: a byte-level BPE tokenizer whose tokens are
written in GPT-2's alphabet, with NFC, whose special tokens overwrite what has their id.  It is
naive: it recounts all pairs for each merge, and encodes by the merge of the lowest rank.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oracles import find_all
from reference import _VISIBLE

import bpe_tokenizer

_OTHERS = [byte for byte in range(256) if byte not in _VISIBLE]
_CHAR = {b: chr(b) for b in _VISIBLE} | {b: chr(256 + i) for i, b in enumerate(_OTHERS)}
_BYTE = {char: byte for byte, char in _CHAR.items()}
PATTERNS = {name: bpe_tokenizer.SPLIT_PATTERNS[name] for name in ("gpt2", "cl100k")}


def join(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """Join a pair wherever it occurs, from left to right."""
    joined: list[str] = []
    for part in parts:
        if joined and (joined[-1], part) == pair:
            joined[-1] += part
        else:
            joined.append(part)
    return joined


class ReferenceTokenizer:
    """The reference program's class."""

    def __init__(self, pattern_name: str = "cl100k") -> None:
        self.pattern_name, self.pattern = pattern_name, PATTERNS[pattern_name]
        self.vocab = {_CHAR[byte]: byte for byte in range(256)}
        self.merges: list[tuple[str, str]] = []
        self.special: dict[str, int] = {}
        self.bos: str | None = None
        self.eos: str | None = None

    def _pieces(self, text: str) -> list[list[str]]:
        text = unicodedata.normalize("NFC", text)
        pieces = find_all(self.pattern, text)
        assert "".join(pieces) == text
        return [[_CHAR[byte] for byte in piece.encode()] for piece in pieces]

    def train(self, text: str, n_merges: int) -> ReferenceTokenizer:
        words = [([*w], n) for w, n in Counter(map(tuple, self._pieces(text))).items()]
        for _ in range(n_merges):
            counts: Counter[tuple[str, str]] = Counter()
            for parts, count in words:
                for pair in zip(parts, parts[1:]):
                    counts[pair] += count
            best = max(counts, key=lambda pair: (counts[pair], pair))
            self.merges.append(best)
            self.vocab["".join(best)] = 255 + len(self.merges)
            words = [(join(parts, best), count) for parts, count in words]
        return self

    def add_special(self, special: dict[str, int], loses_merges: bool = False) -> None:
        """Add special tokens; `loses_merges`: a token whose id is taken isn't saved."""
        self.special.update(special)
        if loses_merges:
            taken = set(special.values())
            self.vocab = {t: i for t, i in self.vocab.items() if i not in taken}
        self.vocab.update(special)
        ends = [*special, None, None]
        self.bos, self.eos = ends[0], ends[1]

    def encode(self, text: str, add_special_tokens: bool = False, find: bool = False) -> list[int]:
        ids: list[int] = []
        marks = sorted(self.special, key=len, reverse=True) if find else []
        cut = re.split(f"({'|'.join(map(re.escape, marks))})", text) if marks else [text]
        for part in cut:
            if part in marks:
                ids.append(self.special[part])
                continue
            for parts in self._pieces(part):
                ids += [self.vocab[token] for token in self._merge(parts)]
        if not add_special_tokens:
            return ids
        before = [] if self.bos is None else [self.special[self.bos]]
        return before + ids + ([] if self.eos is None else [self.special[self.eos]])

    def _merge(self, parts: list[str]) -> list[str]:
        ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        while True:
            known = [pair for pair in zip(parts, parts[1:]) if pair in ranks]
            if not known:
                return parts
            parts = join(parts, min(known, key=ranks.__getitem__))

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        token_of = {id_: token for token, id_ in self.vocab.items()}  # the later entry wins
        raw = b""
        for token in map(token_of.__getitem__, ids):
            if token not in self.special:
                raw += bytes(map(_BYTE.__getitem__, token))
            elif not skip_special_tokens:
                raw += token.encode()
        return raw.decode("utf-8", "replace")

    def tokenizer_json(self) -> dict[str, Any]:
        """Return what the class's `save` writes to tokenizer.json."""
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        special = self.special.items()
        return {
            "version": "1.0",
            "type": "BPE",
            "model": {
                "type": "BPE",
                "vocab": self.vocab,
                "merges": [f"{left} {right}" for left, right in self.merges],
            },
            "split_pattern": self.pattern,
            "special_tokens": {text: {"id": id_, "content": text} for text, id_ in special},
            "added_tokens": [
                {"id": id_, "content": text, "special": True, **flags} for text, id_ in special
            ],
        }

    def tokenizer_config_json(self) -> dict[str, Any]:
        """Return what the class's `save` writes to tokenizer_config.json."""
        return {
            "tokenizer_class": "BPETokenizer",
            "tokenizer_name": "demo",
            "vocab_size": len(self.vocab),
            "num_merges": len(self.merges),
            "model_max_length": 131072,
            "bos_token": self.bos,
            "eos_token": self.eos,
            "pad_token": None,
            "unk_token": None,
            "split_pattern_name": self.pattern_name,
        }

    def save(self, folder: Path) -> Path:
        """Write a folder as the class's `save` does."""
        write(folder / "tokenizer.json", self.tokenizer_json())
        write(folder / "tokenizer_config.json", self.tokenizer_config_json())
        return folder


def save_tokenizer(tokenizer: ReferenceTokenizer, folder: Path) -> Path:
    """Write a folder as the tutorial's function does: without the pattern, and no other file."""
    data = tokenizer.tokenizer_json()
    del data["split_pattern"]
    write(folder / "tokenizer.json", data)
    return folder


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


# -- The notebook: words, with a symbol at the end of each --------------------

RESERVED = ("<pad>", "<bos>", "<eos>", "<unk>")


class Notebook:
    """A word-level notebook whose vocabulary keeps only what its corpus is cut into in the end.

    `end` is a symbol of its own, or the suffix of a word's last letter.
    """

    def __init__(self, end: str = "</eow>", as_suffix: bool = False) -> None:
        self.end, self.as_suffix = end, as_suffix

    def symbols(self, word: str) -> list[str]:
        return [*word[:-1], word[-1] + self.end] if self.as_suffix else [*word, self.end]

    def train(self, text: str, n_merges: int) -> Notebook:
        words = [(self.symbols(word), count) for word, count in Counter(text.split()).items()]
        self.merges: list[tuple[str, str]] = []
        while len(self.merges) < n_merges:
            counts: dict[tuple[str, str], int] = {}
            for parts, count in words:
                for pair in zip(parts, parts[1:]):
                    counts[pair] = counts.get(pair, 0) + count
            if not counts:
                break
            self.merges.append(max(counts, key=counts.__getitem__))
            words = [(join(parts, self.merges[-1]), count) for parts, count in words]
        survivors = sorted({part for parts, _ in words for part in parts})
        self.vocab = {token: id_ for id_, token in enumerate([*RESERVED, *survivors])}
        return self

    def tokenize(self, text: str) -> list[str]:
        found: list[str] = []
        for word in text.split():
            parts = self.symbols(word)
            for pair in self.merges:
                parts = join(parts, pair)
            found += parts
        return found

    def encode(self, text: str) -> list[int]:
        return [self.vocab.get(token, self.vocab["<unk>"]) for token in self.tokenize(text)]

    def decode(self, ids: Iterable[int]) -> str:
        tokens = list(self.vocab)
        found = [tokens[id_] for id_ in ids if tokens[id_] not in RESERVED]
        return "".join(found).replace(self.end, " ").strip()

    def save(self, folder: Path) -> Path:
        write(folder / "vocab.json", self.vocab)
        lines = "".join(f"{left} {right}\n" for left, right in self.merges)
        (folder / "merges.txt").write_text(lines, encoding="utf-8")
        return folder
