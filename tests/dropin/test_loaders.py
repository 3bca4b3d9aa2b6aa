"""Loaders of tokenizer.json, each held against what `formats.loaders` says of it.

Some of these libraries clash with others that tests need: `.ci/run` installs them apart.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE, run_command
from hard_text import ATOMS
from oracles import need

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.checking.check import check
from bpe_tokenizer_tools.checking.conformance import CONFORMANCE_TEXTS, RUN_TEXTS
from bpe_tokenizer_tools.formats import loaders
from bpe_tokenizer_tools.formats.loaders import fill_gaps, limit_of, limits, notes
from bpe_tokenizer_tools.patterns.families import FAMILIES, KIMI
from bpe_tokenizer_tools.patterns.known import MORE_PATTERNS, SPELLINGS
from bpe_tokenizer_tools.patterns.oniguruma import from_oniguruma

pytestmark = EITHER_ENGINE

Encode = Callable[[str], list[int]]


def with_tokenizers(path: Path) -> Encode:
    loaded = need("tokenizers").Tokenizer.from_file(str(path))
    return lambda text: list(loaded.encode(text, add_special_tokens=False).ids)


def with_gigatoken(path: Path) -> Encode:
    loaded = need("gigatoken").Tokenizer(str(path))
    return lambda text: list(loaded.encode(text).tolist())


def with_fastokens(path: Path) -> Encode:
    loaded = need("fastokens").Tokenizer.from_file(str(path))
    return lambda text: list(loaded.encode(text).ids)


LOADERS = {
    loaders.TOKENIZERS: ("tokenizers", with_tokenizers),
    loaders.TOKENIZERS_1: ("tokenizers", with_tokenizers),
    loaders.GIGATOKEN: ("gigatoken", with_gigatoken),
    loaders.FASTOKENS: ("fastokens", with_fastokens),
}


def loader(name: str) -> Callable[[Path], Encode]:
    """Return what loads with a library, which must be here in the version that was measured."""
    package, load = LOADERS[name]
    need(package)
    version, measured = importlib.metadata.version(package), loaders.MEASURED[name]
    if version.split(".")[:2] != measured.split(".")[:2]:
        pytest.skip(f"{package} is {version}, not {measured}: pip install '{package}=={measured}'")
    return load


RANDOM = random.Random(7)
TEXTS = [*CONFORMANCE_TEXTS, *RUN_TEXTS]
TEXTS += ["".join(RANDOM.choices(ATOMS, k=RANDOM.randint(1, 9))) for _ in range(1500)]
CORPUS = [" ".join(CONFORMANCE_TEXTS)] * 3

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in SPLIT_PATTERNS},
    "nanochat": (MORE_PATTERNS["nanochat"], {}),
    "starcoder": (MORE_PATTERNS["starcoder"], {}),
    "kimi": (from_oniguruma(KIMI), {}),
    "numbers uncut": (SPLIT_PATTERNS["llama3"].replace("{1,3}", "+"), {}),
    "none": (r"[\s\S]+", {}),
    "own": (r"\w+|\W", {}),
    **{form: ("llama3", {"normalizer": form}) for form in ("NFC", "NFD", "NFKC", "NFKD")},
    "gaps": ("o200k", {"special_tokens": {"<|endoftext|>": 700, "<|endofprompt|>": 710}}),
    **{
        f"{name}, spelled otherwise, {i}": (pattern, {})
        for i, (pattern, name) in enumerate(SPELLINGS.items())
        if pattern not in (*SPLIT_PATTERNS.values(), *MORE_PATTERNS.values())
    },
}


def make(kind: str) -> BPETokenizer:
    pattern, options = KINDS[kind]
    tokenizer = BPETokenizer(pattern, normalizer=options.get("normalizer"))
    special = options.get("special_tokens", ["<|endoftext|>"])
    return tokenizer.train(CORPUS, 600, special_tokens=special, verbose=False)


def outcome(load: Callable[[Path], Encode], tokenizer: BPETokenizer, folder: Path) -> str:
    """Say what comes of loading and encoding, in the words of `loaders`."""
    tokenizer.save(folder, verbose=False)
    try:
        encode = load(folder / "tokenizer.json")
        ids = [encode(text) for text in TEXTS]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        assert str(error)
        return "can't load"
    return "" if ids == tokenizer.encode_ordinary_batch(TEXTS) else "gives other ids"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LOADERS)
def test_each_loader_does_what_is_said_of_it(name: str, kind: str, tmp_path: Path) -> None:
    tokenizer = make(kind)
    limit = limit_of(tokenizer, name)
    found = outcome(loader(name), tokenizer, tmp_path)
    assert (limit.problem if limit else "").startswith(found) and bool(found) == bool(limit)
    if limit and loaders.FASTOKENS in limit.loaders and "gaps" in limit.problem:
        filled = fill_gaps(tokenizer)
        assert not limits(filled)
        assert outcome(loader(name), filled, tmp_path / "filled") == ""
        assert filled.encode_ordinary_batch(TEXTS) == tokenizer.encode_ordinary_batch(TEXTS)


@pytest.mark.parametrize("name", LOADERS)
def test_which_loader_normalizes_by_another_unicode(name: str, tmp_path: Path) -> None:
    tokenizer = make("NFC")
    tokenizer.save(tmp_path, verbose=False)
    encode = loader(name)(tmp_path / "tokenizer.json")
    newer = name in (loaders.TOKENIZERS_1, loaders.GIGATOKEN)  # 17.0, which reorders these marks
    for text in ("\u939e\u1dd7\U00010f47", "a\u0315\U00010f46", "\u1e0a\u1ae7\u0323"):
        assert (encode(text) != tokenizer.encode(text)) == newer
    for text in ("\u939e\u1dd7\u0323", "e\u0315\u0301", "\u0d4a\u0d3e\u0d46"):
        assert encode(text) == tokenizer.encode(text)


@pytest.mark.parametrize("name", LOADERS)
def test_which_loader_has_other_classes_of_characters(name: str, tmp_path: Path) -> None:
    """U+0295 is a lower-case letter until Unicode 17.0, and then a letter without case."""
    words = BPETokenizer(r"\S+|\s+", normalizer=None).train("ʕBa ab " * 50, 275, verbose=False)
    definition = dataclasses.replace(words.definition, split_pattern=SPLIT_PATTERNS["o200k"])
    tokenizer = core.remade(words, definition)
    tokenizer.save(tmp_path, verbose=False)
    encode = loader(name)(tmp_path / "tokenizer.json")
    newer = name in (loaders.TOKENIZERS_1, loaders.GIGATOKEN)
    assert (encode("ʕBa") != tokenizer.encode("ʕBa")) == newer
    assert encode("ab ʔBa") == tokenizer.encode("ab ʔBa")


# -- Without any of them ---------------------------------------------------------


def test_what_is_said_names_loaders_and_a_remedy() -> None:
    (cl100k,) = limits(make("cl100k"))
    assert cl100k.loaders == ("tokenizers 1.0", "gigatoken")
    assert "'cl100k'" in cl100k.problem and "'llama3'" in cl100k.remedy
    (qwen,) = limits(make("qwen3.5"))
    assert qwen.remedy == "tokenizers 0.23, gigatoken and fastokens can load it"
    assert [limit.problem for limit in limits(make("nanochat"))] == [
        "gives other ids for this split pattern",
        "can't load this split pattern",
    ]
    for kind in ("gpt2", "o200k", "llama3", "qwen2", "tekken", "deepseek-v3", "NFC"):
        assert not limits(make(kind)), kind


def test_saving_and_checking_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = make("cl100k")
    tokenizer.save(tmp_path / "c", verbose=True)
    first, second, note = capsys.readouterr().err.splitlines()
    assert first.startswith("Saved ") and note + "\n" == notes(tokenizer)
    assert second.startswith("Other libraries add ")
    assert note.startswith("note: tokenizers 1.0 and gigatoken can't load")
    make("o200k").save(tmp_path / "o", verbose=True)
    assert "note" not in capsys.readouterr().err
    tokenizer.save(tmp_path / "c", verbose=False)
    assert capsys.readouterr() == ("", "")
    found = [str(finding) for finding in check(tokenizer, texts=["a"]).findings]
    assert "note: loaders: " + note.removeprefix("note: ") in found
    status, _, err = run_command(capsys, "convert", tmp_path / "c", tmp_path / "c.json")
    assert status == 0 and note.removeprefix("note: ") in err


def test_check_takes_what_is_known_for_no_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A loader that is known not to hold a tokenizer is no disagreement; others that fail are."""

    class Refusing:
        def __init__(self, path: str) -> None:
            raise RuntimeError("Unknown pre_tokenizer Split regexes")

    module = type("gigatoken", (), {"Tokenizer": Refusing, "__version__": "0.10.0"})
    real = importlib.import_module
    monkeypatch.setattr(
        importlib, "import_module", lambda name: module if name == "gigatoken" else real(name)
    )
    for kind, status in (("cl100k", "not applicable"), ("o200k", "cannot load")):
        (row,) = [
            each for each in check(make(kind), texts=["a"]).rows if each.loader == "gigatoken"
        ]
        assert row.status == status
        assert ("'llama3'" in row.detail) == (kind == "cl100k")


def test_gaps_are_filled_and_no_id_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = make("gaps")
    filled = fill_gaps(tokenizer)
    assert filled.vocab_size == filled.max_id + 1 == 711
    assert filled.special_tokens.items() >= tokenizer.special_tokens.items()
    assert filled.decode([705]) == "<|reserved_705|>"
    assert filled.encode("<|reserved_705|>") == tokenizer.encode("<|reserved_705|>")
    assert filled.encode("<|reserved_705|>", allowed_special="all") == [705]
    assert fill_gaps(filled) == filled
    tokenizer.save(tmp_path / "gaps", verbose=False)
    arguments = ["convert", tmp_path / "gaps", tmp_path / "filled.json", "--fill-gaps"]
    assert run_command(capsys, *arguments)[0] == 0
    again = BPETokenizer.from_file(tmp_path / "filled.json")  # what others add, and no rule
    assert again.get_vocab() == filled.get_vocab() and again.merges == filled.merges
    assert again.added_tokens == filled.added_tokens
    data = json.loads((tmp_path / "filled.json").read_text(encoding="utf-8"))
    assert sorted(data["model"]["vocab"].values()) == list(range(len(data["model"]["vocab"])))
    tokenizer.add_special_tokens({"<|far|>": 2**30})
    with pytest.raises(ValueError, match="at most 10,000"):
        fill_gaps(tokenizer)


# -- DeepSeek's three steps ------------------------------------------------------


def steps_in(path: Path) -> list[str]:
    data = json.loads(path.read_text(encoding="utf-8"))["pre_tokenizer"]["pretokenizers"]
    return [step["pattern"]["Regex"] for step in data if step["type"] == "Split"]


def rewritten(folder: Path, *regexes: str) -> BPETokenizer:
    """Load a saved tokenizer with other Splits in its tokenizer.json."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["pre_tokenizer"]["pretokenizers"][:-1] = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False}
        for each in regexes
    ]
    path.write_text(json.dumps(data), encoding="utf-8")
    return BPETokenizer.from_file(folder)


def test_deepseeks_steps_are_written_as_its_own_file_has_them(tmp_path: Path) -> None:
    tokenizer = make("deepseek-v3")
    tokenizer.save(tmp_path, verbose=False)
    numbers, kana_and_han, rest = steps_in(tmp_path / "tokenizer.json")
    assert (numbers, kana_and_han) == (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+")
    assert "\r\n" in rest and r"\r\n" not in rest  # the characters themselves
    loaded = BPETokenizer.from_file(tmp_path)
    assert loaded == tokenizer and loaded.split_pattern == SPLIT_PATTERNS["deepseek-v3"]
    escaped = rewritten(tmp_path, numbers, kana_and_han, rest.replace("\r\n", r"\r\n"))
    assert escaped == tokenizer


def test_one_step_as_older_versions_wrote_it_is_the_same_tokenizer(tmp_path: Path) -> None:
    tokenizer = make("deepseek-v3")
    tokenizer.save(tmp_path, verbose=False)
    pattern = SPLIT_PATTERNS["deepseek-v3"].replace("{-~", r"{-\~")
    assert rewritten(tmp_path, pattern) == tokenizer


def test_three_other_steps_are_not_taken_for_deepseeks(tmp_path: Path) -> None:
    make("deepseek-v3").save(tmp_path, verbose=False)
    numbers, kana_and_han, rest = steps_in(tmp_path / "tokenizer.json")
    others = [(kana_and_han, numbers, rest), (numbers, rest, kana_and_han), (numbers,) * 3]
    for regexes in others:
        assert rewritten(tmp_path, *regexes).components is not None
    joined = " ".join((numbers, kana_and_han, rest))
    assert rewritten(tmp_path, joined).split_pattern == from_oniguruma(joined)


@pytest.mark.usefixtures("without_tools")
def test_the_module_alone_reads_and_writes_them(tmp_path: Path) -> None:
    tokenizer = make("deepseek-v3")
    tokenizer.save(tmp_path, verbose=True)
    assert len(steps_in(tmp_path / "tokenizer.json")) == 3
    assert BPETokenizer.from_file(tmp_path) == tokenizer
    with pytest.raises(FileFormatError, match="bpe_tokenizer_tools"):
        rewritten(tmp_path, "a", "b", "c")


# -- Public spellings ------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_comes_back_equal(kind: str, tmp_path: Path) -> None:
    tokenizer = make(kind)
    tokenizer.save(tmp_path, verbose=False)
    loaded = BPETokenizer.from_file(tmp_path)
    assert loaded == tokenizer and loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode_ordinary_batch(TEXTS) == tokenizer.encode_ordinary_batch(TEXTS)


def test_a_pattern_is_spelled_as_fast_loaders_know_it(tmp_path: Path) -> None:
    """What cuts like a public pattern is written like it: minbpe's and Granite's like Llama 3's."""
    for i, (pattern, name) in enumerate(SPELLINGS.items()):
        if name in ("llama3", "qwen2", "gpt2", "o200k"):
            tokenizer = BPETokenizer(pattern)
            tokenizer.save(tmp_path / str(i), verbose=False)
            assert BPETokenizer.from_file(tmp_path / str(i)).split_pattern == SPLIT_PATTERNS[name]
    tokenizer = BPETokenizer(from_oniguruma(KIMI))
    tokenizer.save(tmp_path / "kimi", verbose=False)
    assert steps_in(tmp_path / "kimi" / "tokenizer.json") == [KIMI]
    assert KIMI == FAMILIES["kimi-k2"].steps[0]["pattern"]["Regex"]
