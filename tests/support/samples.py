"""The contents of tests/data: published vocabularies and texts, unpacked once and checked."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import lzma
import os
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
# More text of the same kinds, for slow tests; without it they use the samples.
LARGER = Path(os.environ.get("BPE_TOKENIZER_CORPORA", ROOT.parent / "shared" / "corpora"))

Vocabulary = tuple[dict[bytes, int], dict[str, Any]]

SHA256 = {
    "r50k_base.tiktoken": "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    "cl100k_base.tiktoken": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base.tiktoken": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "qwen3.tiktoken": "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
    "english.txt": "0868d274662968a7eaa1ea30a1614e965d45bdfb3d8c9b653e55697dbc0e1982",
    "code.txt": "ec6c91c80457ac2149cb546ff8b0e26e7df1868c8248572cf7cb5cdc0a6c3abd",
}
PUBLISHED_AT = "https://openaipublic.blob.core.windows.net/encodings/"


@functools.cache
def unpacked() -> Path:
    """Return a folder with all of tests/data, unpacked, and the files that a cache of tiktoken has.

    It is kept for other processes and the next run. A file that is not what it should be is
    unpacked again.
    """
    key = hashlib.sha256("".join(SHA256.values()).encode()).hexdigest()[:16]
    folder = ROOT / "build" / f"tests-data-{key}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # the clone is read-only
        folder = Path(tempfile.mkdtemp(prefix="bpe_tokenizer-tests-"))
    for name, published in SHA256.items():
        place = folder / name
        if not place.exists() or _sha256(place.read_bytes()) != published:
            data = lzma.decompress((DATA / f"{name}.xz").read_bytes())
            assert _sha256(data) == published, f"{DATA / name}.xz is damaged: check it out again"
            _write(place, data)
        if name.endswith("_base.tiktoken"):  # tiktoken finds it by this name, without the network
            cached = folder / hashlib.sha1(f"{PUBLISHED_AT}{name}".encode()).hexdigest()
            if not cached.exists() or cached.stat().st_size != place.stat().st_size:
                _write(cached, place.read_bytes())
    for source in [*DATA.glob("*.json"), DATA / "multi.txt"]:
        place = folder / source.name
        if not place.exists() or place.read_bytes() != source.read_bytes():
            _write(place, source.read_bytes())
    return folder


def as_in_the_clone(folder: Path) -> None:
    """Let the code in docs/ find tests/data and benchmarks/ in a folder."""
    (folder / "tests").mkdir()
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks", target_is_directory=True)
    (folder / "tests" / "data").symlink_to(DATA, target_is_directory=True)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(place: Path, data: bytes) -> None:
    """Write a file atomically, because other processes may do the same."""
    draft = place.with_name(f"{place.name}.{os.getpid()}")
    draft.write_bytes(data)
    os.replace(draft, place)


@functools.cache
def read_corpus(name: str) -> str:
    """Return a sample of text: "english", "code", or "multi" for more than 30 languages."""
    return (unpacked() / f"{name}.txt").read_text(encoding="utf-8")


def read_larger_corpus(name: str) -> str:
    """Return more text of the same kind, if it is here, else the sample."""
    path = LARGER / f"{name}.txt"
    return path.read_text(encoding="utf-8") if path.exists() else read_corpus(name)


@functools.cache
def read_vocab(name: str) -> Vocabulary:
    """Return the ranks of a published vocabulary, and its pattern and special tokens."""
    ranks = {}
    for line in (unpacked() / f"{name}.tiktoken").read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return ranks, json.loads((unpacked() / f"{name}.json").read_text(encoding="utf-8"))
