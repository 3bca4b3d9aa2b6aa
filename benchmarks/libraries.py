"""The libraries to compare: how to load a vocabulary into each, and which calls to time."""

from __future__ import annotations

import atexit
import base64
import contextlib
import dataclasses
import functools
import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import elsewhere
from common import SHARED, for_each, is_installed
from elsewhere import Elsewhere, TimedElsewhere

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer

PUBLISHED = {  # the files that are in ../shared/vocab -> their split pattern's name
    "cl100k_base": "cl100k",
    "o200k_base": "o200k",
    "r50k_base": "gpt2",
    "qwen3": "qwen2",
}


class Vocabulary(NamedTuple):
    """A .tiktoken file, which every library can load, directly or converted."""

    name: str
    path: Path
    pattern: str  # its name in SPLIT_PATTERNS


# -- Vocabularies -------------------------------------------------------------


def vocabularies(names: Sequence[str], documents: Sequence[str]) -> list[Vocabulary]:
    """Return the requested published vocabularies; if there are none, a trained one."""
    folder = SHARED / "vocab"
    if not folder.is_dir():
        return [trained_vocabulary(documents[:200])]
    return [Vocabulary(name, folder / f"{name}.tiktoken", PUBLISHED[name]) for name in names]


def trained_vocabulary(documents: Sequence[str], vocab_size: int = 8_000) -> Vocabulary:
    """Make a vocabulary, for when no published one is available."""
    path = scratch() / "trained.tiktoken"
    if not path.exists():
        tokenizer = BPETokenizer("cl100k", normalizer=None)
        tokenizer.train(documents, vocab_size, verbose=False)
        tokenizer.export(path, "tiktoken")
    return Vocabulary("trained", path, "cl100k")


@functools.lru_cache(maxsize=1)
def scratch() -> Path:
    """Return a folder that is deleted when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="bpe-benchmarks-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.lru_cache(maxsize=1)
def ranks_of(vocabulary: Vocabulary) -> dict[bytes, int]:
    """Read the ranks."""
    pairs = (line.split() for line in vocabulary.path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def rust_pattern(vocabulary: Vocabulary) -> str:
    """Return the split pattern as its publisher spells it, in Rust's syntax."""
    pattern: str = json.loads(vocabulary.path.with_suffix(".json").read_text("utf-8"))["pat_str"]
    return pattern


@functools.lru_cache(maxsize=1)
def tokenizer_json(vocabulary: Vocabulary) -> str:
    """Return the vocabulary as a tokenizer.json without special tokens."""
    tokenizer = BPETokenizer(vocabulary.pattern, normalizer=None)
    tokenizer._install(dataclasses.replace(_definition(vocabulary), added=()))
    tokenizer.save(scratch() / vocabulary.name, verbose=False)
    return (scratch() / vocabulary.name / "tokenizer.json").read_text("utf-8")


# -- Loading ------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _definition(vocabulary: Vocabulary) -> Any:
    return BPETokenizer.from_file(vocabulary.path).definition


def ours(vocabulary: Vocabulary) -> BPETokenizer:
    """Return a tokenizer with its own encoder, and so its own cache."""
    tokenizer = BPETokenizer(vocabulary.pattern, normalizer=None)
    tokenizer._install(_definition(vocabulary))
    return tokenizer


@contextlib.contextmanager
def python_engine() -> Iterator[None]:
    """Make tokenizers without the accelerator inside the with block."""
    kept = bpe_tokenizer._engine
    bpe_tokenizer._engine = bpe_tokenizer._Engine()
    try:
        yield
    finally:
        bpe_tokenizer._engine = kept


def ours_in_python(vocabulary: Vocabulary) -> BPETokenizer:
    """Return a tokenizer without the accelerator."""
    with python_engine():
        return ours(vocabulary)


def tiktoken(vocabulary: Vocabulary) -> Any:
    """Return OpenAI's tokenizer."""
    return importlib.import_module("tiktoken").Encoding(
        vocabulary.name,
        pat_str=rust_pattern(vocabulary),
        mergeable_ranks=ranks_of(vocabulary),
        special_tokens={},
    )


def tokenizers(vocabulary: Vocabulary) -> Any:
    """Return HuggingFace's tokenizer."""
    return importlib.import_module("tokenizers").Tokenizer.from_str(tokenizer_json(vocabulary))


def tokenizers_1(vocabulary: Vocabulary) -> Elsewhere:
    """Return HuggingFace's rewritten tokenizer, in a process of its own environment.

    It refuses tiktoken's spelling of cl100k's pattern, so it gets Llama 3's, which differs only
    where a text ends in white space.
    """
    text = tokenizer_json(vocabulary)
    if vocabulary.pattern == "cl100k":
        parts = json.loads(text)
        parts["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = SPLIT_PATTERNS["llama3"]
        text = json.dumps(parts)
    path = scratch() / f"{vocabulary.name}-1.json"
    path.write_text(text, encoding="utf-8")
    load = "__import__('tokenizers').Tokenizer.from_file(x)"
    return Elsewhere(str(elsewhere.python_of_tokenizers_1()), load, str(path))


def fastokens(vocabulary: Vocabulary) -> Any:
    """Return fastokens' tokenizer.

    The pattern is spelled in the one way that fastokens has a scanner for.  With any other spelling
    of the same pattern, it takes three times as long.
    """
    tokenizer = importlib.import_module("fastokens").Tokenizer
    path, pattern = str(vocabulary.path), vocabulary.pattern
    if pattern in ("cl100k", "o200k"):
        return tokenizer.from_tiktoken(path, encoding=f"{pattern}_base", special_tokens={})
    if pattern == "gpt2":
        return tokenizer.from_json_str(tokenizer_json(vocabulary))
    return tokenizer.from_tiktoken(path, pattern=SPLIT_PATTERNS[pattern], special_tokens={})


def gigatoken(vocabulary: Vocabulary) -> Any:
    """Return gigatoken's tokenizer."""
    tokenizer = importlib.import_module("gigatoken").Tokenizer
    return tokenizer.from_tiktoken(str(vocabulary.path), pretokenizer=vocabulary.pattern)


# -- Calls --------------------------------------------------------------------


class Call(NamedTuple):
    """The code to time, as users would write it: `it` is the tokenizer, `x` its input."""

    library: str
    kind: str  # what it returns; only calls of the same kind are compared
    load: Callable[[Vocabulary], Any]
    expression: str

    @property
    def name(self) -> str:
        """A unique name for this call."""
        return f"{self.library} {self.kind}"

    @property
    def is_ours(self) -> bool:
        """Whether this library is called, and not a peer."""
        return self.library.startswith("bpe_tokenizer")

    def on(self, tokenizer: Any) -> Callable[[Any], Any]:
        """Return the call as a function of its input."""
        if isinstance(tokenizer, Elsewhere):
            return lambda x: tokenizer.answers(self.expression, [x])[0]
        function: Callable[[Any], Any] = eval(f"lambda x: {self.expression}", names(it=tokenizer))
        return function

    def over(self, tokenizer: Any) -> Callable[[Sequence[Any]], Any]:
        """Return a function that makes the call for several inputs, one after the other."""
        if isinstance(tokenizer, Elsewhere):
            return TimedElsewhere(tokenizer, self.expression)
        return functools.partial(for_each, self.on(tokenizer))


PYTHON = "bpe_tokenizer, Python engine"
TOKENIZERS_1 = "tokenizers 1"
ENCODE = [
    Call("tiktoken", "list", tiktoken, "it.encode_ordinary(x)"),
    Call("bpe_tokenizer", "list", ours, "it.encode(x)"),
    Call(PYTHON, "list", ours_in_python, "it.encode(x)"),
    Call("fastokens", "list", fastokens, "it.encode_ordinary(x).ids"),
    Call("gigatoken", "list", gigatoken, "it.encode_batch_list([x], parallel=False)[0]"),
    Call(
        *("tokenizers", "list", tokenizers),
        "it.encode_batch_fast([x], add_special_tokens=False)[0].ids",
    ),
    Call(TOKENIZERS_1, "list", tokenizers_1, "it.encode(x, add_special_tokens=False).ids"),
    Call("bpe_tokenizer", "numpy", ours, "it.encode_to_numpy(x)"),
    Call("fastokens", "numpy", fastokens, "frombuffer(it.encode_batch_flat([x])[0], uint32)"),
    Call("gigatoken", "numpy", gigatoken, "it.encode(x)"),
    Call(TOKENIZERS_1, "numpy", tokenizers_1, "it.encode(x, add_special_tokens=False).ids_array"),
]
DECODE = [
    Call("tiktoken", "str", tiktoken, "it.decode(x)"),
    Call("bpe_tokenizer", "str", ours, "it.decode(x)"),
    Call(PYTHON, "str", ours_in_python, "it.decode(x)"),
    Call("fastokens", "str", fastokens, "it.decode(x)"),
    Call("tokenizers", "str", tokenizers, "it.decode(x, skip_special_tokens=False)"),
    Call(TOKENIZERS_1, "str", tokenizers_1, "it.decode(x, skip_special_tokens=False)"),
    Call("tiktoken", "bytes", tiktoken, "it.decode_bytes(x)"),
    Call("bpe_tokenizer", "bytes", ours, "it.decode_bytes(x)"),
    Call(PYTHON, "bytes", ours_in_python, "it.decode_bytes(x)"),
    Call("gigatoken", "bytes", gigatoken, "it.decode(x)"),
]


def names(**more: Any) -> dict[str, Any]:
    """Return the names that expressions can use."""
    numpy = importlib.import_module("numpy") if is_installed("numpy") else None
    found = {name: getattr(numpy, name, None) for name in ("frombuffer", "uint32")}
    return {**found, **more}


def usable(calls: Sequence[Call]) -> list[Call]:
    """Return the calls of libraries that are installed."""
    return [
        call
        for call in calls
        if is_usable(call.library)
        and (call.library != PYTHON or bpe_tokenizer.ACCELERATED)
        and (call.kind != "numpy" or is_installed("numpy"))
    ]


def is_usable(library: str) -> bool:
    """Return whether a library can be called: installed here, or in an environment of its own."""
    if library == TOKENIZERS_1:
        return elsewhere.python_of_tokenizers_1() is not None
    return is_installed(library.split(",")[0])


def load(call: Call, vocabulary: Vocabulary) -> Any:
    """Return a new tokenizer for a call; None if a peer cannot load the vocabulary."""
    try:
        return call.load(vocabulary)
    except Exception as error:
        if call.is_ours:
            raise
        print(f"{call.library} does not load {vocabulary.name}: {error}", file=sys.stderr)
        return None


def load_each(
    calls: Sequence[Call], vocabulary: Vocabulary
) -> dict[str, Callable[[Sequence[Any]], Any]]:
    """Return name -> the call over several inputs, with a new tokenizer."""
    return {call.name: call.over(call.load(vocabulary)) for call in calls}


def plain(result: Any) -> Any:
    """Return an array as a list."""
    return result.tolist() if hasattr(result, "tolist") else result


def checked(
    calls: Sequence[Call],
    vocabulary: Vocabulary,
    given: Sequence[Any],
    expected: Callable[[Call], Sequence[Any]],
) -> list[Call]:
    """Check that all calls give the expected results; return those that do, report the others.

    Args:
        calls: the calls to check.
        vocabulary: the vocabulary to load.
        given: their inputs, one after the other.
        expected: returns the right answers for a call.
    """
    loaded = {call.load: load(call, vocabulary) for call in calls}
    right = []
    for call in calls:
        if loaded[call.load] is None:
            continue
        run = call.on(loaded[call.load])
        wrong = [x for x, answer in zip(given, expected(call)) if plain(run(x)) != answer]
        if not wrong:
            right.append(call)
            continue
        problem = f"{call.name}, {vocabulary.name}: {len(wrong)} of {len(given)} are not equal"
        if call.is_ours:
            raise SystemExit(f"{problem}, such as {wrong[0][:80]!r}")
        print(f"{problem}; left out", file=sys.stderr)
    return right
