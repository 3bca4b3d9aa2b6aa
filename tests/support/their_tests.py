"""A plugin for pytest that runs other libraries' own tests on this library's engine.

`tests/dropin/test_their_own_tests.py` starts these tests in processes of their own, with these
variables: THEIR_TESTS_ENGINE is "ours" or "theirs"; what came of each test is written to the file
THEIR_TESTS_OUTCOMES; THEIR_TESTS_FAMILIES is the folder with a tiny directory for each family.

A test that passes may have looked at little of what a call gave.  So a digest of all results of
transformers' calls is written with each outcome.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import sys
import unittest
from collections import defaultdict
from pathlib import Path
from typing import Any

import tokenizers
import tokenizers.implementations
from tiny_directories import BACKEND, DIRECTORIES

from bpe_tokenizer_tools.dropin import patch_transformers
from bpe_tokenizer_tools.dropin.tokenizers import DecodeStream, Tokenizer

OURS = os.environ.get("THEIR_TESTS_ENGINE") == "ours"
_Theirs = tokenizers.Tokenizer
_outcomes: dict[str, tuple[str, str]] = {}
_digests: dict[str, Any] = defaultdict(hashlib.sha256)
_given: list[str] = []  # the results of calls that belong to no test yet


class _MadeHere(type):
    """Makes this library's tokenizers, in calls that are written for HuggingFace's class."""

    def __call__(cls, model: Any) -> Tokenizer:
        return Tokenizer(_Theirs(model))

    def __instancecheck__(cls, each: object) -> bool:
        return isinstance(each, Tokenizer)

    def __eq__(cls, other: object) -> bool:  # type(tokenizer) == Tokenizer
        return other is cls or other is Tokenizer

    __hash__ = type.__hash__

    def __getattr__(cls, name: str) -> Any:  # from_str, from_file, from_buffer, from_pretrained
        return lambda *args, **options: Tokenizer(getattr(_Theirs, name)(*args, **options))


class _Ours(metaclass=_MadeHere):
    """Stands in the tests of tokenizers for its `Tokenizer`."""


def pytest_configure() -> None:
    """Put this library's engine into what `from_pretrained` of transformers returns."""
    if OURS:
        patch_transformers()
    for name in ("_convert_encoding", "_decode", "tokenize", "convert_tokens_to_string"):
        _record(name)


def _record(name: str) -> None:
    """Note what a method of transformers' tokenizers returns from now on."""
    import transformers

    original = getattr(transformers.TokenizersBackend, name)

    @functools.wraps(original)
    def recorded(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        # Of an encoding, the fields that the caller asked for: to read the others might change it.
        _given.append(repr(result[0] if name == "_convert_encoding" else result))
        return result

    setattr(transformers.TokenizersBackend, name, recorded)


def pytest_collection_modifyitems() -> None:
    """Put it into the modules that have imported tokenizers' own classes, now that all have."""
    if not OURS:
        return
    for name, module in list(sys.modules.items()):
        if not name.startswith(("tests.", "tokenizers.implementations")):
            continue
        for each, ours in {"Tokenizer": _Ours, "DecodeStream": DecodeStream}.items():
            if each in vars(module):
                setattr(module, each, ours)


def pytest_runtest_logreport(report: Any) -> None:
    """Note the worst that came of a test, its parts, and what is done before and after it."""
    result, reason = _outcomes.get(report.nodeid, ("passed", ""))
    if report.outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        result, reason = "failed", crash.message if crash else str(report.longrepr)
    elif report.outcome == "skipped" and result == "passed":
        result, reason = "skipped", str(report.longrepr)
    _outcomes[report.nodeid] = result, reason[-2000:]
    _digests[report.nodeid].update("\n".join(_given).encode(errors="surrogatepass"))
    _given.clear()


def pytest_sessionfinish() -> None:
    """Write what came of all."""
    written = {test: (*outcome, _digests[test].hexdigest()) for test, outcome in _outcomes.items()}
    Path(os.environ["THEIR_TESTS_OUTCOMES"]).write_text(json.dumps(written), encoding="utf-8")


def test_classes() -> dict[str, type]:
    """Return transformers' mixins as test classes, two for each family."""
    import transformers

    mixins = {
        "": importlib.import_module("tests.test_tokenization_common").TokenizerTesterMixin,
        " backend": importlib.import_module(
            "tests.test_tokenizers_backend_mixin"
        ).TokenizersBackendTesterMixin,
    }
    folder = Path(os.environ["THEIR_TESTS_FAMILIES"])
    classes = {}
    for family, directory in DIRECTORIES.items():
        members = {
            "tokenizer_class": getattr(transformers, directory.tokenizer_class),
            "from_pretrained_id": str(folder / family),
            "from_pretrained_kwargs": {},
            # The class of all other models has no components of its own.
            "test_tokenizer_from_extractor": directory.tokenizer_class != BACKEND,
            **json.loads((folder / f"{family}.json").read_text(encoding="utf-8")),
        }
        for kind, mixin in mixins.items():
            name = f"Test {family}{kind}"
            classes[name] = type(name, (mixin, unittest.TestCase), dict(members))
    return classes
