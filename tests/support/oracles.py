"""The libraries that tests compare with, skips if they are missing, and random texts."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

import bpe_tokenizer

Item = TypeVar("Item")

# Modules that must be here: without them, a test fails instead of being skipped.
REQUIRED = os.environ.get("BPE_TOKENIZER_REQUIRE", "").replace(",", " ").split()

# The share of the random examples that tests try.
EXAMPLES = "BPE_TOKENIZER_EXAMPLES"

# Under AddressSanitizer a test that forks may hang: its malloc stays locked in the child if a
# thread had it at that moment, one that was ending, say. That of the system does not.
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")
forks = pytest.mark.skipif(
    SANITIZED or not hasattr(os, "fork"),
    reason="there is no fork here, or the sanitizer's malloc may stay locked in the child",
)


# The package that contains a module, if it has another name.
_PACKAGES = {
    "yaml": "pyyaml",
    "llama_cpp": "llama-cpp-python",
    "mlx_lm": "mlx-lm",
    "mistral_common": "mistral-common",
    "optimum": "optimum-intel[openvino]",
    "backports": "backports.zstd",
    "megatron": "megatron-core",
    "lm_eval": "lm-eval",
    "sentence_transformers": "sentence-transformers",
    "langchain_text_splitters": "langchain-text-splitters",
    "tiktoken_ext": "tiktoken",
    "xdist": "pytest-xdist",
}
# Large packages, and those few tests need: in the extra "test-all", but not in "test".
_IN_TEST_ALL = "accelerate datasets pandas parameterized pyarrow ray selenium torch".split()


def missing(module: str) -> str | None:
    """Say that a module is missing, and how to install it; return None if it is installed."""
    name = module.split(".")[0]
    if importlib.util.find_spec(name) is not None:
        return None
    package = ".[test-all]" if name in _IN_TEST_ALL else _PACKAGES.get(name, name)
    return f"{name} is not installed: pip install '{package}'"


def need(module: str) -> Any:
    """Import an oracle; if it is missing, skip the test, or fail if it is required."""
    reason = missing(module)
    if reason and not {module, module.split(".")[0]} & set(REQUIRED):
        pytest.skip(reason, allow_module_level=True)
    return importlib.import_module(module)


def need_release(module: str, least: str) -> Any:
    """Import an oracle, as `need` does; skip the test if its release is older than `least`.

    Python 3.10 has no transformers after 5.20, for example.
    """
    oracle = need(module)
    installed, wanted = (
        tuple(map(int, version.split(".")[:2])) for version in (oracle.__version__, least)
    )
    if installed < wanted:
        reason = f"{module} {oracle.__version__} differs from {least}, with which this compares"
        pytest.skip(reason, allow_module_level=True)
    return oracle


_pattern = functools.lru_cache(maxsize=64)(bpe_tokenizer._Pattern)


def spans(pattern: str, text: str) -> list[tuple[int, int]]:
    """Return where a pattern matches, whatever Unicode the installed `regex` has.

    tests/module/test_unicode.py compares these places with those of other libraries.
    """
    return [found.span() for found in _pattern(pattern).finditer(text)]


def find_all(pattern: str, text: str) -> list[str]:
    """Return the parts of a text that a pattern matches; see `spans`."""
    return [text[start:end] for start, end in spans(pattern, text)]


def examples(number: int) -> int:
    """Say how many examples a test tries, given the number for a thorough run (`--slow`).

    BPE_TOKENIZER_EXAMPLES is the share for other runs: "0.25" tries a quarter.
    """
    return max(1, round(number * float(os.environ.get(EXAMPLES, "1"))))


def share(everything: Sequence[Item]) -> Sequence[Item]:
    """Return evenly spaced items, as many as `examples` says."""
    return everything[:: max(1, len(everything) // examples(len(everything)))]
