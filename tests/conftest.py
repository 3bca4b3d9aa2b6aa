"""What every test shares: the corpora and vocabularies beside the repository."""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# No test may reach the network; the libraries used as oracles read these first.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

# An installed package is tested as it is; a bare checkout is tested in place.
if importlib.util.find_spec("bpe_tokenizer") is None:
    sys.path.insert(0, str(ROOT))

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")

Vocabulary = tuple[dict[bytes, int], dict[str, Any]]


@functools.cache
def read_corpus(name: str) -> str:
    return (SHARED / "corpora" / f"{name}.txt").read_text(encoding="utf-8")


@functools.cache
def read_vocab(name: str) -> Vocabulary:
    ranks = {}
    for line in (SHARED / "vocab" / f"{name}.tiktoken").read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    meta = json.loads((SHARED / "vocab" / f"{name}.json").read_text(encoding="utf-8"))
    return ranks, meta


def _shared_folder(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here: these checks need the shared test data")
    return folder


@pytest.fixture(scope="session")
def vocab_dir() -> Path:
    """The folder of published vocabularies: NAME.tiktoken and NAME.json."""
    return _shared_folder("vocab")


@pytest.fixture(scope="session")
def corpora_dir() -> Path:
    """The folder of real text: english.txt, code.txt and multi.txt."""
    return _shared_folder("corpora")


@pytest.fixture(scope="session")
def corpora(corpora_dir: Path) -> Callable[[str], str]:
    """Give a function from a corpus name to its text."""
    return read_corpus


@pytest.fixture(scope="session")
def load_vocab(vocab_dir: Path) -> Callable[[str], Vocabulary]:
    """Give a function from a vocabulary name to ({token: rank}, its description)."""
    return read_vocab
