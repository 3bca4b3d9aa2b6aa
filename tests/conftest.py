"""What every test shares."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

# No test may reach the network; the libraries used as oracles read these first.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it misses PyTorch
# What one test, or another version, has read must not be what the next one gets.
os.environ.setdefault("BPE_TOKENIZER_CACHE", "0")

import pytest
from hypothesis import HealthCheck, given, settings
from oracles import EXAMPLES, REQUIRED, examples
from samples import Vocabulary, read_corpus, read_larger_corpus, read_vocab, unpacked

ROOT = Path(__file__).resolve().parent.parent

# An installed package is tested as it is; a bare checkout is tested in place. Either way the folder
# that accelerator/tools/build.py was told comes first.
EXTENSION_DIR = os.environ.get("BPE_TOKENIZER_ACCELERATOR_DIR")
if importlib.util.find_spec("bpe_tokenizer") is None:
    sys.path.insert(0, str(ROOT))
    EXTENSION_DIR = EXTENSION_DIR or str(ROOT / "accelerator")
if EXTENSION_DIR:
    sys.path.insert(0, EXTENSION_DIR)

import bpe_tokenizer  # noqa: E402 - only now can it be found

# A shell starts what runs in its background deaf to Ctrl-C; the tests that send it must be heard.
signal.signal(signal.SIGINT, signal.default_int_handler)

ENGINES = {"python": bpe_tokenizer._Engine(), "accelerated": bpe_tokenizer._engine}
# For a module whose subject never meets the engine (a browser, a lock): its tests run once.
EITHER_ENGINE = pytest.mark.parametrize("engine", ["either"], indirect=True)
REQUIRE_ACCELERATOR = os.environ.get("BPE_TOKENIZER_REQUIRE_ACCELERATOR") == "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run the tests with this engine (default: the one in use)"
    parser.addoption("--engine", choices=[*ENGINES, "both"], help=text)
    parser.addoption(
        "--slow", action="store_true", help="run slow tests, too, and all random examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Say how many random examples tests try, before the modules that ask for it are imported."""
    os.environ.setdefault(EXAMPLES, "1" if config.getoption("slow") else "0.25")
    settings.register_profile(
        "repeatable",
        max_examples=examples(100),
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("repeatable")


@functools.cache
def runs_examples(test: object) -> bool:
    """Return whether a test uses Hypothesis, itself or in a function of the tests that it calls.

    Hypothesis itself only marks tests that are decorated, not those with a decorated function
    inside, which is how a test can make something once and then try many examples on it.
    """
    pending, seen = [test], set[object]()
    while pending:
        if (function := pending.pop()) is given:
            return True
        if isinstance(function, FunctionType) and function not in seen:
            seen.add(function)
            if ROOT / "tests" in Path(function.__code__.co_filename).parents:
                pending += map(function.__globals__.get, _names_in(function.__code__))
    return False


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inside in code.co_consts:
        if isinstance(inside, CodeType):
            yield from _names_in(inside)


SKIPPED = "bpe_tokenizer/skipped"  # in pytest's cache: what the last run of all tests skipped
LEFT_OUT = pytest.StashKey[dict[str, int]]()
HOW_TO_RUN = {
    "slow": "--slow",
    "with the other engine": "--engine both",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not asked for: tests with another engine, and slow ones."""
    in_use = "accelerated" if bpe_tokenizer.ACCELERATED or REQUIRE_ACCELERATOR else "python"
    engine, slow = config.getoption("engine") or in_use, config.getoption("slow")
    cache: Any = getattr(config, "cache", None)  # None with -p no:cacheprovider
    skipped = set(cache.get(SKIPPED, []) if cache else [])
    kept, left_out = list[pytest.Item](), dict[str, list[pytest.Item]]()
    for item in items:
        if runs_examples(getattr(item, "obj", None)) and not item.get_closest_marker("hypothesis"):
            item.add_marker(pytest.mark.hypothesis)
        if "llama_cpp_source" in getattr(item, "fixturenames", ()):  # which is downloaded
            item.add_marker(pytest.mark.slow)
        if skipped & {item.nodeid, item.nodeid.partition("::")[0]}:
            item.add_marker(pytest.mark.skipped_before)
        callspec = getattr(item, "callspec", None)
        its_own = callspec.params.get("engine", "either") if callspec else "either"
        if engine != "both" and its_own not in (engine, "either"):
            left_out.setdefault("with the other engine", []).append(item)
        elif item.get_closest_marker("slow") and not slow:
            left_out.setdefault("slow", []).append(item)
        else:
            kept.append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=[item for each in left_out.values() for item in each])
    config.stash[LEFT_OUT] = {reason: len(each) for reason, each in left_out.items()}
    if hasattr(config, "workeroutput"):  # a process of pytest-xdist: all of them find the same
        config.workeroutput["left_out"] = config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Take what a process of pytest-xdist left out."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was left out, why, and what runs it."""
    reasons, skipped = Counter[str](), []
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[" ".join(reason.removeprefix("Skipped: ").split())] += 1
        skipped.append(report.nodeid)
    cache: Any = getattr(config, "cache", None)
    if cache and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        if not (config.option.markexpr or config.option.keyword):
            cache.set(SKIPPED, sorted(skipped))
    left_out = config.stash.get(LEFT_OUT, {})
    if not (reasons or left_out):
        return
    terminalreporter.section("left out")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:5} skipped: {reason}")
    for reason, count in left_out.items():
        terminalreporter.line(f"{count:5} {reason}: run with {HOW_TO_RUN[reason]}")
    terminalreporter.line("All of them: pip install -e '.[dev]' && make test test-more")


NOT_IN_USE = "the accelerator is not in use: it was not built, or BPE_TOKENIZER_PURE is set"


def extension() -> ModuleType:
    """Return the extension in C, for a module that tests it; without it, the module is skipped."""
    if not bpe_tokenizer.ACCELERATED:
        assert not REQUIRE_ACCELERATOR, NOT_IN_USE
        pytest.skip(NOT_IN_USE, allow_module_level=True)
    return importlib.import_module("_bpe_tokenizer.native")


@pytest.fixture(scope="session", autouse=True, params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test with an engine; the one in Python says what is right.

    A fixture of a wider scope than one test that makes a tokenizer must ask for this one, so that
    it makes another for the other engine.
    """
    name: str = request.param
    if name == "either":
        name = "accelerated" if bpe_tokenizer.ACCELERATED else "python"
    if name == "accelerated" and not bpe_tokenizer.ACCELERATED:
        assert not REQUIRE_ACCELERATOR, NOT_IN_USE
        pytest.skip(NOT_IN_USE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bpe_tokenizer, "_engine", ENGINES[name])
        patch.setattr(bpe_tokenizer, "ACCELERATED", name == "accelerated")
        if name == "python":  # in the processes that tests start, too
            patch.setenv("BPE_TOKENIZER_PURE", "1")
        elif EXTENSION_DIR:
            patch.setenv("PYTHONPATH", EXTENSION_DIR, prepend=os.pathsep)
        _forget_what_was_cached()
        yield name


def _forget_what_was_cached() -> None:
    for module in list(sys.modules.values()):
        if ROOT / "tests" in Path(getattr(module, "__file__", None) or "").parents:
            for value in vars(module).values():
                if getattr(value, "__module__", None) == module.__name__ != __name__:
                    getattr(value, "cache_clear", bool)()


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run the command line in this process; return its status and what it printed."""
    try:
        status = bpe_tokenizer.main(list(map(str, arguments)))
    except SystemExit as error:
        status = int(error.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture(scope="session")
def vocab_dir() -> Path:
    """The folder of published vocabularies: NAME.tiktoken and NAME.json."""
    return unpacked()


@pytest.fixture(scope="session")
def corpora_dir() -> Path:
    """The folder of real text: english.txt, code.txt and multi.txt."""
    return unpacked()


@pytest.fixture(scope="session")
def corpora() -> Callable[[str], str]:
    """Give a function from a corpus name to its text."""
    return read_corpus


@pytest.fixture(scope="session")
def larger_corpora() -> Callable[[str], str]:
    """Give a function from a corpus name to megabytes of it, where they are here."""
    return read_larger_corpus


@pytest.fixture(scope="session")
def load_vocab() -> Callable[[str], Vocabulary]:
    """Give a function from a vocabulary name to ({token: rank}, its description)."""
    return read_vocab


SDIST = "llama-cpp-python==0.3.36"
LLAMA_CPP = "vendor/llama.cpp/"


def cache_folder(request: pytest.FixtureRequest, name: str, scratch: Path) -> Path:
    """Return the folder of that name in pytest's cache; `scratch` if there is no cache."""
    cache: Any = getattr(request.config, "cache", None)  # None with -p no:cacheprovider
    return cache.mkdir(name) if cache else scratch


def _find_llama_cpp_source(request: pytest.FixtureRequest, scratch: Path) -> Path:
    """Return the source distribution of llama-cpp-python: a directory or a .tar.gz."""
    given = os.environ.get("BPE_TOKENIZER_LLAMA_CPP_SOURCE")
    if given:
        assert Path(given).exists(), f"BPE_TOKENIZER_LLAMA_CPP_SOURCE={given} is not there"
        return Path(given)
    folder = cache_folder(request, "llama_cpp_source", scratch)
    if not list(folder.glob("llama_cpp_python-*.tar.gz")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", "llama-cpp-python", "--dest", str(folder), SDIST]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            reason = f"{SDIST} could not be downloaded: {done.stderr.strip()[-300:]}"
            assert "llama_cpp_source" not in REQUIRED, reason
            pytest.skip(reason)
    return next(folder.glob("llama_cpp_python-*.tar.gz"))


@pytest.fixture(scope="session")
def llama_cpp_source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """llama.cpp's source: its vocabularies, chat templates and llama-vocab.cpp."""
    folder = tmp_path_factory.mktemp("llama_cpp_source")
    source = _find_llama_cpp_source(request, folder)
    if source.is_dir():
        return source / LLAMA_CPP
    wanted = re.compile(r"models/(ggml-vocab-|templates/)[^/]+|src/llama-vocab\.cpp")
    with tarfile.open(source) as archive:
        for member in archive:
            name = member.name.partition(LLAMA_CPP)[2]
            if member.isfile() and wanted.fullmatch(name):
                file = archive.extractfile(member)
                assert file is not None
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(file.read())
    return folder


@pytest.fixture
def without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the module be alone, as if it had found no bpe_tokenizer_tools."""
    monkeypatch.setattr(bpe_tokenizer, "_WITH_TOOLS", False)
