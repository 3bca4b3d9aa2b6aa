"""The hook: which engine is in use, and what is left to the one in Python.

That the two give the same is shown by every other test, which runs with each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import itertools
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from conftest import ROOT
from oracles import forks, need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.patterns.families import FAMILIES

TEXT = "The quick brown fox, naïve café, 世界 '12345'!\n\n  \tEnd 😀 "


def run(code: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    """Run code in its own process that finds the same library, and `folder` before it."""
    places = [str(Path(bpe_tokenizer.__file__).parent), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join([str(folder)] * bool(folder) + [place for place in places if place])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=folder,  # which comes before PYTHONPATH
        capture_output=True,
        text=True,
    )


def native_of(tokenizer: BPETokenizer) -> Any:
    return getattr(tokenizer._encoder, "_native", None)


@pytest.fixture
def trained() -> BPETokenizer:
    return BPETokenizer("cl100k").train([TEXT * 3], 300, verbose=False)


# -- Which engine --------------------------------------------------------------


def test_the_engine_is_the_one_asked_for(engine: str, trained: BPETokenizer) -> None:
    assert bpe_tokenizer.ACCELERATED == (engine == "accelerated")
    assert (native_of(trained) is not None) == (engine == "accelerated")


@pytest.mark.parametrize("value", ["", "0", "1", "yes"])
def test_the_environment_switches_it_off(engine: str, value: str) -> None:
    code = "import bpe_tokenizer; print(bpe_tokenizer.ACCELERATED)"
    done = run(code, BPE_TOKENIZER_PURE=value)
    built = bpe_tokenizer.ACCELERATED or engine == "python"
    if engine == "python" and value in ("", "0"):
        assert done.stdout.strip() in ("True", "False"), done.stderr
    else:
        assert done.stdout.strip() == str(built and value in ("", "0")), done.stderr


# -- One that does not fit ------------------------------------------------------

IMPORTED = """
    try:
        import bpe_tokenizer
    except ImportError as error:
        raise SystemExit(f"{type(error).__name__}: {error}")
    print(bpe_tokenizer.ACCELERATED, bpe_tokenizer.BPETokenizer().encode("ab"))
"""


def package_with(folder: Path, native: str) -> Path:
    """Make a package `_bpe_tokenizer` with the real adapter; return where the source given is."""
    package = folder / "_bpe_tokenizer"
    shutil.copytree(ROOT / "accelerator" / "_bpe_tokenizer", package, ignore=NOT_COMPILED)
    (package / "native.py").write_text(native)
    return package / "native.py"


NOT_COMPILED = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("API = 1", "{path} is of another version: 1, expected "),
        ("API = 'x'", "{path} is of another version: x, expected "),
        ("", "module '_bpe_tokenizer.native' has no attribute 'API'"),
        ("raise ImportError('undefined symbol')", "undefined symbol"),
    ],
)
def test_one_that_does_not_fit_is_an_error(source: str, problem: str, tmp_path: Path) -> None:
    path = package_with(tmp_path, source)
    assert_refused(tmp_path, f"{path.parent} can't be used: {problem.format(path=path)}")


def assert_refused(folder: Path, problem: str) -> None:
    """Check that the module refuses the package in a folder, and does without if told to."""
    done = run(IMPORTED, folder, BPE_TOKENIZER_PURE="0")
    assert (done.returncode, done.stdout) == (1, "")
    remedy = "; install bpe-tokenizer again, or set BPE_TOKENIZER_PURE=1 to do without it\n"
    assert done.stderr.startswith("ImportError: ") and done.stderr.endswith(remedy), done.stderr
    assert problem in done.stderr and bpe_tokenizer.__version__ in done.stderr
    done = run(IMPORTED, folder, BPE_TOKENIZER_PURE="1")
    assert (done.stdout, done.stderr) == ("False [97, 98]\n", "")


def test_a_compiled_part_of_an_older_layout_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "_bpe_tokenizer.py"
    path.write_text("API = 2")  # once it was a module by itself
    assert_refused(tmp_path, f"can't use _bpe_tokenizer older than 0.10 ({path})")


@pytest.mark.parametrize("version", ["0.9.0", "0.10.1", None])
def test_an_engine_of_another_version_is_an_error(version: str | None, tmp_path: Path) -> None:
    package = package_with(tmp_path, native_source()).with_name("__init__.py")
    own = f'__version__ = "{bpe_tokenizer.__version__}"'
    written = package.read_text()
    assert written.count(own) == 1
    package.write_text(written.replace(own, f'__version__ = "{version}"' if version else ""))
    found = f"_bpe_tokenizer {version or 'older than 0.10'} ({package.parent})"
    assert_refused(tmp_path, f"({Path(bpe_tokenizer.__file__)}) can't use {found}, only ")


def test_an_engine_without_its_first_file_is_an_error(tmp_path: Path) -> None:
    package_with(tmp_path, native_source()).with_name("__init__.py").unlink()
    code = f"""
        import os, sys
        import regex
        # A whole engine that is installed would be found before a folder without __init__.py.
        whole = "_bpe_tokenizer/__init__.py"
        sys.path[:] = [path for path in sys.path if not os.path.exists(os.path.join(path, whole))]
        sys.meta_path[:] = [find for find in sys.meta_path if "editable" not in repr(find)]
        sys.path.append({str(ROOT)!r})
    """
    done = run(textwrap.dedent(code) + textwrap.dedent(IMPORTED), tmp_path, BPE_TOKENIZER_PURE="0")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"_bpe_tokenizer in {tmp_path / '_bpe_tokenizer'}, which " in done.stderr
    assert "has no __init__.py; install bpe-tokenizer again" in done.stderr


@pytest.mark.parametrize("name", ["flat.py", "engine.py"])
def test_an_engine_that_lacks_a_file_is_an_error(name: str, tmp_path: Path) -> None:
    native = package_with(tmp_path, native_source())
    native.with_name(name).write_text(f"import {name[:-3]}_that_is_missing")
    assert_refused(tmp_path, f"No module named '{name[:-3]}_that_is_missing'")


def test_an_adapter_of_another_version_is_an_error(tmp_path: Path) -> None:
    engine = package_with(tmp_path, native_source()).with_name("engine.py")
    engine.write_text(engine.read_text().replace("core._Encoder", "core._OldEncoder"))
    assert_refused(tmp_path, "has no attribute '_OldEncoder'")


def test_tables_of_another_unicode_are_an_error(tmp_path: Path) -> None:
    package_with(tmp_path, native_source(unicode_version="15.0.0"))
    expected = f"the tables of Unicode 15.0.0, expected {bpe_tokenizer.UNICODE_VERSION}"
    assert_refused(tmp_path, expected)


def native_source(unicode_version: str = bpe_tokenizer.UNICODE_VERSION) -> str:
    return f"API = {native_api()}\nUNICODE_VERSION = {unicode_version!r}"


def native_api() -> int:
    source = (ROOT / "accelerator" / "_bpe_tokenizer" / "engine.py").read_text()
    return int(re.findall(r"^API = (\d+)", source, re.MULTILINE)[0])


def test_one_that_was_not_compiled_is_no_problem(tmp_path: Path) -> None:
    # Not just left out: an editable install would find its own instead.
    name = "_bpe_tokenizer.native"
    package_with(tmp_path, f"raise ModuleNotFoundError({name!r}, name={name!r})")
    done = run(IMPORTED, tmp_path, BPE_TOKENIZER_PURE="0")
    assert (done.stdout, done.stderr) == ("False [97, 98]\n", "")


@pytest.mark.parametrize("first", ["engine", "native", "flat", "cache"])
def test_any_package_may_be_imported_first(first: str) -> None:
    needs_the_accelerator()
    code = f"import _bpe_tokenizer.{first}, bpe_tokenizer; print(bpe_tokenizer.ACCELERATED)"
    done = run(code)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_importing_the_module_loads_no_tools(engine: str) -> None:
    code = """
        import sys, bpe_tokenizer
        print(bpe_tokenizer.ACCELERATED)
        tokenizer = bpe_tokenizer.BPETokenizer("cl100k")
        tokenizer.train(["low lower"] * 9, 258, verbose=False)
        assert tokenizer.decode(tokenizer.encode("slower")) == "slower"
        print([name for name in sys.modules if name.startswith("bpe_tokenizer_tools")])
        print(sorted(name for name in sys.modules if name.startswith("_bpe_tokenizer")))
    """
    accelerated, tools, native = run(code).stdout.splitlines()
    # Only the package itself, for its version.
    assert (accelerated, tools) == (str(engine == "accelerated"), "['bpe_tokenizer_tools']")
    parts = ["", ".engine", ".flat", ".native"]
    assert native == str([f"_bpe_tokenizer{part}" for part in parts] * (engine == "accelerated"))


def test_run_as_a_script(trained: BPETokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path, verbose=False)
    script = str(Path(bpe_tokenizer.__file__))
    command = [sys.executable, script, "info", "--tokenizer", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("accelerated"))
    assert line.split() == ["accelerated", ":", str(bpe_tokenizer.ACCELERATED)]
    assert done.stderr == ""


# -- What is left to Python ----------------------------------------------------


def needs_the_accelerator() -> Any:
    if not bpe_tokenizer.ACCELERATED:
        pytest.skip("this is about the accelerator")
    return importlib.import_module("_bpe_tokenizer.native")


def test_more_ids_than_it_was_built_for(engine: str) -> None:
    needs_the_accelerator()
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens({"<|far|>": 2**31 - 1})
    assert native_of(tokenizer) is None
    ids = tokenizer.encode("a<|far|>", allowed_special="all")
    assert ids == [97, 2**31 - 1]
    assert tokenizer.decode(ids) == "a<|far|>"


def test_a_pattern_without_a_scanner(engine: str) -> None:
    pattern = r"\w+|(?<=\w)\W|\W"  # looks behind, so it has no automaton, either
    text = "abab abab cd! " * 20 + "世界"
    tokenizer = BPETokenizer(pattern).train([text], 270, verbose=False)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.count_tokens(text) == len(tokenizer.encode(text))
    assert tokenizer.encode_ordinary_batch([text, ""]) == [tokenizer.encode(text), []]
    assert list(tokenizer._encoder.encode_to_buffer(text)) == tokenizer.encode(text)
    with pytest.raises(ValueError, match=r"lone surrogate U\+D800 at character 1"):
        tokenizer.encode("a\ud800")


@pytest.mark.parametrize("family", ["deepseek-v3", "starcoder"])
def test_steps_that_one_pattern_can_do(
    engine: str, family: str, trained: BPETokenizer, tmp_path: Path
) -> None:
    trained.save(tmp_path, verbose=False)
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["pre_tokenizer"] = FAMILIES[family].pre_tokenizer()
    # Two normalizers, which make it a chain of components: alone, DeepSeek's steps are one pattern.
    data["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 2}
    path.write_text(json.dumps(data), encoding="utf-8")
    tokenizer = BPETokenizer.from_file(path)
    twin = getattr(tokenizer._encoder, "_twin")
    assert (twin is not None) == (engine == "accelerated")
    texts = [TEXT, "12345 67", "日本・語 abc", "\x01\x02", "x  1", ""]
    ids = [tokenizer.encode(text) for text in texts]
    assert [tokenizer.encode_with_offsets(text).input_ids for text in texts] == ids  # step by step
    assert list(map(tokenizer.decode, ids)) == texts
    assert [tokenizer.count_tokens(text) for text in texts] == list(map(len, ids))
    tokenizer.clear_cache()
    assert tokenizer.get_cache_stats()["size"] == 0


def test_a_pattern_of_ones_own_is_cut_in_c(engine: str) -> None:
    text = "Ünï 123 x_y's\n\n 4567 \u0345 ſ😀 \n" * 9
    own = [r"[\p{L}\p{M}]+|\d{1,2}|\s+$|[^\S\n]++", r"\w+|\b"]  # the last looks behind
    for pattern in own:
        tokenizer = BPETokenizer(pattern, normalizer=None)
        tokenizer.train([text], 300, verbose=False)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert getattr(tokenizer._encoder, "scans", False) == (
            engine == "accelerated" and pattern == own[0]
        )
        assert tokenizer.encode_batch([text, ""])["input_ids"] == [ids, []]
        streamed = tokenizer.encode_streaming(text[at : at + 3] for at in range(0, len(text), 3))
        assert list(itertools.chain(*streamed)) == ids
        assert pickle.loads(pickle.dumps(tokenizer)).encode(text) == ids


def test_counts_beyond_64_bits() -> None:
    counts = {b"abc": 2**70, b"abd": 2**69, b"xyx": 2**70 + 1}
    tokenizer = BPETokenizer().train(counts=counts, vocab_size=259, verbose=False)
    # a+b stands 2**70 + 2**69 times, x+y and y+x 2**70 + 1, ab+c and ab+d less.
    assert tokenizer.merges == [(b"a", b"b"), (b"x", b"y"), (b"xy", b"x")]


def test_counts_of_any_kind() -> None:
    numpy = need("numpy")
    expected = BPETokenizer().train(counts={b"abab": 3, b"b": 9}, vocab_size=258, verbose=False)
    for counts in (
        MappingProxyType({b"abab": 3, b"b": 9}),
        {b"abab": numpy.int64(3), b"b": numpy.int64(9)},
        {b"abab": 3.0, b"b": 9.0},
    ):
        trained = BPETokenizer().train(counts=counts, vocab_size=258, verbose=False)
        assert trained.merges == expected.merges


# -- The methods that are not in every engine's first line -----------------------


def test_batches_on_any_number_of_threads(trained: BPETokenizer) -> None:
    texts = [TEXT * n for n in range(40)] + ["", "a", "é"]
    expected = [trained.encode(text) for text in texts]
    for n in (1, 2, 7, None):
        assert trained.encode_ordinary_batch(texts, n) == expected
    assert trained.encode_ordinary_batch([]) == []
    assert trained.encode_ordinary_batch(iter(texts)) == expected
    batch = trained.encode_batch(texts, return_offsets=False)
    assert [row.input_ids for row in batch] == expected


def test_batches_name_what_is_wrong(trained: BPETokenizer) -> None:
    with pytest.raises(TypeError, match="texts must be a list of strings, got str"):
        trained.encode_ordinary_batch("ab")
    with pytest.raises(TypeError, match=r"texts\[1\] must be a str, got int"):
        trained.encode_ordinary_batch(["ab", 5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="num_threads must be at least 1, got 0"):
        trained.encode_ordinary_batch(["ab"], 0)
    with pytest.raises(ValueError, match=r"lone surrogate U\+DFFF at character 2"):
        trained.encode_ordinary_batch(["fine", "éa\udfff", "\ud800"])


def test_special_tokens_in_batches(trained: BPETokenizer) -> None:
    trained.add_special_tokens(["<|x|>"])
    trained.add_special_tokens([bpe_tokenizer.AddedToken("<think>", special=False)])
    texts = ["a<|x|>b", "<think>é", TEXT]
    assert trained.encode_ordinary_batch(texts) == [trained.encode(text) for text in texts]
    rows = trained.encode_batch(texts, allowed_special="all", return_offsets=False)
    assert [row.input_ids for row in rows] == [
        trained.encode(text, allowed_special="all") for text in texts
    ]


@pytest.mark.parametrize("form", [None, "NFC", "NFKD"])
def test_normalization_comes_first(form: str | None) -> None:
    tokenizer = BPETokenizer("gpt2", normalizer=form).train([TEXT * 3], 300, verbose=False)
    text = "ascii, e\u0301 ﬁ \uac00 \u1100\u1161"
    expected = tokenizer.encode_with_offsets(text).input_ids
    assert tokenizer.encode(text) == expected
    assert tokenizer.encode_ordinary_batch([text]) == [expected]
    if importlib.util.find_spec("numpy"):
        assert tokenizer.encode_to_numpy(text).tolist() == expected
    assert [i for ids in tokenizer.encode_streaming(list(text)) for i in ids] == expected


@pytest.mark.parametrize("form", [None, "NFC", "NFD", "NFKC"])
@pytest.mark.parametrize(
    "odd", ["e\u0301", "\u0301", "\u212b", "\u1100\u1161\u11a8", "\u09c7\u09be"]
)
def test_long_text_is_normalized_as_by_unicodedata(form: Any, odd: str) -> None:
    for filler in ("a", "é", "世", "न", "\u1100"):
        for before in (0, 1, 509, 510, 511, 512, 513, 2_000):
            for text in (filler * before + odd + filler * 700, filler * before + odd * 700):
                expected = unicodedata.normalize(form, text) if form else text
                assert bpe_tokenizer._engine.normalize(text, form) == expected


def test_numpy_arrays_are_their_owners(trained: BPETokenizer) -> None:
    numpy = need("numpy")
    array = trained.encode_to_numpy(TEXT)
    assert (array.dtype, array.ndim, array.tolist()) == (numpy.uint32, 1, trained.encode(TEXT))
    array[0] = 7  # may be written to, and is nobody else's
    assert trained.encode_to_numpy(TEXT).tolist() == trained.encode(TEXT)
    assert trained.encode_to_numpy("").tolist() == []
    with pytest.raises(TypeError, match="text must be a str"):
        trained.encode_to_numpy(b"ab")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lone surrogate"):
        trained.encode_to_numpy("\ud800")


@pytest.mark.parametrize("wrong", [None, 5, b"ab", ["a"], object()])
def test_only_text_is_encoded(wrong: Any, trained: BPETokenizer) -> None:
    with pytest.raises(TypeError, match="text must be a str, got"):
        trained.encode(wrong)


def test_a_str_of_a_subclass_is_text(trained: BPETokenizer) -> None:
    class Text(str):
        pass

    assert trained.encode(Text(TEXT)) == trained.encode(TEXT)


@pytest.mark.parametrize("ids", [[2**40], [-1], [5000], [97, 10**30]])
def test_ids_that_are_none(ids: list[int], trained: BPETokenizer) -> None:
    assert "\ufffd" in trained.decode(ids)
    assert trained.decode(ids, errors="ignore") in ("", "a")
    with pytest.raises(ValueError, match="is not in the vocabulary"):
        trained.decode(ids, errors="strict")


@pytest.mark.parametrize("ids", [["a"], [1.5], [None], "ab", [[97]]])
def test_what_cannot_be_ids(ids: Any, trained: BPETokenizer) -> None:
    with pytest.raises(TypeError, match="ids must be"):
        trained.decode(ids)


def test_ids_of_other_types(trained: BPETokenizer) -> None:
    numpy = need("numpy")
    ids = trained.encode(TEXT)
    expected = trained.decode(ids)
    for form in (tuple(ids), iter(ids), numpy.array(ids), list(numpy.array(ids, numpy.uint32))):
        assert trained.decode(form) == expected
    assert trained.decode([True, False]) == "\x01\x00"


def test_offsets_in_every_width_of_string(trained: BPETokenizer) -> None:
    for text in ("plain ascii", "naïve café", "世界 and 界", "😀 and 😀😀", "\0a\0", ""):
        result = trained.encode_with_offsets(text)
        assert result.offsets is not None
        assert len(result.offsets) == len(result)
        pieces = [trained.decode_bytes([id_]) for id_ in result.input_ids]
        at = 0
        for piece, (start, end) in zip(pieces, result.offsets):
            encoded = [char.encode() for char in text]
            first = next(i for i in range(len(text)) if len(b"".join(encoded[: i + 1])) > at)
            at += len(piece)
            last = next(i for i in range(len(text)) if len(b"".join(encoded[: i + 1])) >= at)
            assert (start, end) == (first, last + 1)


def test_any_number_of_threads_may_be_asked_for(trained: BPETokenizer) -> None:
    assert trained.encode_ordinary_batch(["a"], 2**40) == [trained.encode("a")]
    if bpe_tokenizer.ACCELERATED:  # processes are not for the asking
        assert bpe_tokenizer.count_pretokens(["a b"], num_workers=2**40)[b"a"] == 1


def test_a_pretoken_of_two_ids_that_are_0_is_remembered(engine: str) -> None:
    tokenizer = BPETokenizer("gpt2", normalizer=None)
    vocab = {bytes([byte]): (byte - ord("a")) % 256 for byte in range(256)}
    tokenizer._install(dataclasses.replace(tokenizer.definition, vocab=vocab))
    for _ in range(5):
        assert tokenizer.encode("aa") == [0, 0]
    assert tokenizer.get_cache_stats()["misses"] == 1


def test_a_subclass_encodes_in_its_own_way() -> None:
    class Other(BPETokenizer):
        def encode(self, text: str, *args: Any, **options: Any) -> list[int]:
            return [7, *super().encode(text, *args, **options)]

    assert Other().encode_batch(["a"], return_offsets=False).input_ids == [[7, 97]]
    assert Other().encode_ordinary_batch(["a"]) == [[7, 97]]


def test_a_dict_that_counts_in_its_own_way() -> None:
    class Doubled(dict[bytes, int]):
        def items(self) -> Any:
            return {b"xy": 9}.items()

    trained = BPETokenizer().train(counts=Doubled({b"ab": 9}), vocab_size=257, verbose=False)
    assert trained.merges == [(b"x", b"y")]


def test_an_error_while_learning_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    @contextlib.contextmanager
    def progress(*_: Any) -> Iterator[Any]:
        def advance(n: int) -> None:
            told.append(n)
            raise TypeError("cannot be shown")

        yield advance

    monkeypatch.setattr(bpe_tokenizer, "_progress", progress)
    counts = {b"abcd": 5}
    with pytest.raises(TypeError, match="cannot be shown"):
        BPETokenizer().train(counts=counts, vocab_size=259, verbose=False)
    assert len(told) == 1


def test_a_copy_by_another_name_is_no_one_else(tmp_path: Path) -> None:
    source = Path(bpe_tokenizer.__file__)
    (tmp_path / "vendored.py").write_bytes(source.read_bytes())
    done = run("import vendored, bpe_tokenizer; print(bpe_tokenizer.__name__)", tmp_path)
    assert done.stdout.strip() == "bpe_tokenizer", done.stderr


# -- As an object --------------------------------------------------------------


def test_nothing_native_is_pickled(trained: BPETokenizer) -> None:
    before = pickle.dumps(trained)
    trained.encode(TEXT)
    assert pickle.dumps(trained) == before
    assert b"_bpe_tokenizer" not in before
    assert pickle.loads(before).encode(TEXT) == trained.encode(TEXT)


def test_many_threads_share_one(trained: BPETokenizer) -> None:
    texts = [f"{TEXT} {n} {'ab' * n}" for n in range(50)]
    expected = [trained.encode(text) for text in texts]
    trained.clear_cache()
    wrong: list[object] = []

    def work() -> None:
        for text, ids in zip(texts, expected):
            if trained.encode(text) != ids or trained.decode(ids) != text:
                wrong.append(text)
            trained.get_cache_stats()
            if len(text) % 7 == 0:
                trained.clear_cache()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@forks
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_goes_on(trained: BPETokenizer) -> None:
    expected = trained.encode_ordinary_batch([TEXT] * 9, 2)
    child = os.fork()
    if child == 0:  # leaves at once, whatever happens
        os._exit(0 if trained.encode_ordinary_batch([TEXT] * 9, 2) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_cache_has_a_bound_and_can_be_emptied(trained: BPETokenizer) -> None:
    trained.clear_cache()
    assert trained.get_cache_stats() == {"hits": 0, "misses": 0, "size": 0, "hit_rate_pct": 0.0}
    trained.encode("low low low lower")
    stats = trained.get_cache_stats()
    assert (stats["hits"], stats["misses"], stats["size"]) == (1, 3, 3)
    assert stats["hit_rate_pct"] == 25.0


def test_the_hints_name_what_is_there() -> None:
    native = needs_the_accelerator()
    import ast

    tree = ast.parse((ROOT / "accelerator" / "_bpe_tokenizer" / "native.pyi").read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            given = getattr(native, node.name)
            named = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            assert named <= set(dir(given))
            public = {name for name in vars(given) if name[0] != "_"}
            assert {name for name in named if name[0] != "_"} == public
        elif isinstance(node, ast.FunctionDef):
            assert callable(getattr(native, node.name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert hasattr(native, node.target.id)


def test_each_folder_in_c_uses_only_those_above_it() -> None:
    page = (ROOT / "docs" / "accelerator.md").read_text(encoding="utf-8")
    order = re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)
    folders = {path.parent.name for path in (ROOT / "accelerator").glob("*/*.[ch]")}
    assert set(order) >= folders
    for file in (ROOT / "accelerator").glob("*/*.[ch]"):
        for used in re.findall(r'#include "(.*)/', file.read_text(encoding="utf-8")):
            assert order.index(used) <= order.index(file.parent.name), f"{file} includes {used}/"
