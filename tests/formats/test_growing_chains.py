"""Chains of components that make a text longer and longer are refused when they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bpe_tokenizer import BPETokenizer, FileFormatError

PIECES = ["<unk>", "<s>", *"▁abc.…", "ab"]


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they ask neither engine."""


def written(folder: Path, **parts: Any) -> Path:
    token = {"id": len(PIECES), "content": "aaa", "special": False, "normalized": True}
    token |= {"lstrip": False, "rstrip": False, "single_word": False}
    data = {
        "version": "1.0",
        "added_tokens": [token],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "vocab": {piece: i for i, piece in enumerate(PIECES)},
            "merges": [["a", "b"]],
        },
        **parts,
    }
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def replace(old: Any, new: str) -> dict[str, Any]:
    pattern = old if isinstance(old, dict) else {"String": old}
    return {"type": "Replace", "pattern": pattern, "content": new}


def normalizers(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def decoders(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"decoder": {"type": "Sequence", "decoders": list(steps)}}


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False, "trim_offsets": True}
GROWING = {
    "doubled": normalizers(*[replace("a", "aa")] * 60),
    "doubled in turns": normalizers(*[replace("a", "bb"), replace("b", "aa")] * 20),
    "doubled by a pattern": normalizers(*[replace({"Regex": "."}, "aa")] * 60),
    "put in everywhere": normalizers(*[replace({"Regex": "a*?"}, "aa")] * 60),
    "put in everywhere, as text": normalizers(*[replace("", "aa")] * 60),
    "doubled, and more before": normalizers(replace("a", "b"), *[replace("b", "bb")] * 60),
    "bytes of bytes": normalizers(*[{"type": "ByteLevel"}] * 30),
    "bytes of bytes, cut": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 30}},
    "one long text": normalizers(replace("a", "b" * 1_000)),
    "long texts before": normalizers(*[{"type": "Prepend", "prepend": "a" * 900}] * 30),
    "many steps": normalizers(*[{"type": "Lowercase"}] * 200),
    "decoders": decoders(*[replace("a", "aa")] * 60),
    "many decoders": decoders(*[replace("a", "b")] * 200),
}
ORDINARY = {
    "Llama": normalizers({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
    | decoders(replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}),
    "Gemma": normalizers(replace(" ", "▁")) | decoders(replace("▁", " "), {"type": "Fuse"}),
    "signs": normalizers(
        {"type": "NFKC"},
        *[replace(sign, "...") for sign in "…‥·"],
        *[replace(sign, ' " ') for sign in "«»„“”‟″‶"],
        replace({"Regex": " {2,}"}, " "),
        {"type": "Lowercase"},
        replace(" ", "▁"),
    ),
    "there and back": normalizers(*[replace("a", "b"), replace("b", "a")] * 40),
    "bytes": {"pre_tokenizer": BYTES, "decoder": {"type": "ByteLevel"}},
}


@pytest.mark.parametrize("name", GROWING)
def test_what_grows_is_refused(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, **GROWING[name])
    with pytest.raises(FileFormatError, match="the limit") as caught:
        BPETokenizer.from_file(path)
    assert caught.value.path == str(path)
    assert caught.value.field.partition(".")[0] in (*GROWING[name],)


@pytest.mark.filterwarnings("ignore:.*no token for these characters")
@pytest.mark.parametrize("name", ORDINARY)
def test_what_does_not_grow_loads(name: str, tmp_path: Path) -> None:
    tokenizer = BPETokenizer.from_file(written(tmp_path, **ORDINARY[name]))
    assert tokenizer.encode("ab").count(PIECES.index("b")) + len(tokenizer.encode("ab")) > 0


def test_many_steps_for_many_added_tokens_are_refused(tmp_path: Path) -> None:
    """Each added token is normalized when a file is read."""
    flags = {"special": False, "normalized": True, "lstrip": False, "rstrip": False}
    tokens = [
        {"id": len(PIECES) + i, "content": f"token {i}", "single_word": False, **flags}
        for i in range(3_000)
    ]
    path = written(tmp_path, **normalizers(*[{"type": "Lowercase"}] * 90), added_tokens=tokens)
    with pytest.raises(
        ValueError, match="3,000 added tokens with normalized=True, .*90 normalizers"
    ):
        BPETokenizer.from_file(path)
