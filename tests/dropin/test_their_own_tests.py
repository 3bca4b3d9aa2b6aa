"""The own tests of transformers and tokenizers pass on this library's engine.

They are in the source archives of the installed versions.  They run twice, in processes of their
own: on HuggingFace's engine, which says what can pass here, and on this one.  Many need files of
the hub.  transformers' mixins take any directory instead, so they run on a tiny one for each
family.  Those of tokenizers fail in both runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import EITHER_ENGINE, cache_folder
from oracles import REQUIRED, need

transformers = need("transformers")
need("tokenizers")
need("torch")
need("parameterized")

import source_archives  # noqa: E402
import tokenizer_files as files  # noqa: E402
from tiny_directories import DIRECTORIES  # noqa: E402

import bpe_tokenizer  # noqa: E402
from bpe_tokenizer_tools.dropin import patched_transformers  # noqa: E402
from bpe_tokenizer_tools.dropin.tokenizers import Tokenizer  # noqa: E402

pytestmark = [EITHER_ENGINE, pytest.mark.slow]

# Families of components that this engine doesn't have.
ON_THEIR_ENGINE = {"gpt"}
# Tests of tokenizers that pass on its own class only: a trainer in Rust accepts no other.
PASS_WITHOUT_ONLY = {
    f"tests/bindings/test_trainers.py::TestParityBpeTrainer::{name}"
    for name in (
        "test_train_from_iterator",
        "test_train_from_iterator_with_dev",
        "test_train_from_iterator_with_ratio",
        "test_train_iterators_dev_iterators_length_mismatch",
    )
}
# HuggingFace's trainer numbers the letters that end a word at random.
TRAINS_AT_RANDOM = tuple(
    f"tests/test_families.py::Test {family} backend::test_training" for family in ("clip", "gpt")
)
# They depend on time: they see whether a forked process ends within a second, and how fast one is.
TIMED = ("--ignore", "tests/test_benchmarks.py", "-k", "not multiprocessing_with_parallelism")


class Outcome(NamedTuple):
    """What came of a test: "passed", "skipped" or "failed", and why; and what calls returned."""

    result: str
    reason: str
    digest: str

    @property
    def kind(self) -> str:
        """The result; a test that failed because it needs the hub has one of its own."""
        offline = ("LocalEntryNotFoundError", "OfflineModeIsEnabled", "couldn't connect")
        if self.result == "failed" and any(word in self.reason for word in offline):
            return "needs the hub"
        return self.result


def run(engine: str, folder: Path, tests: Sequence[str], **variables: str) -> dict[str, Outcome]:
    """Run tests in a process of their own, and return what came of each."""
    outcomes = folder / f"{engine}.json"
    where = [Path(bpe_tokenizer.__file__).parent, Path(files.__file__).parent]
    path = [*map(str, where), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-W", "ignore", "-c", "pytest.ini"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-p", "their_tests", *tests],
        cwd=folder,
        env={
            **os.environ,
            **variables,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONHASHSEED": "0",
            "THEIR_TESTS_ENGINE": engine,
            "THEIR_TESTS_OUTCOMES": str(outcomes),
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert outcomes.exists(), (done.stdout + done.stderr)[-3000:]
    read = json.loads(outcomes.read_text(encoding="utf-8"))
    return {test: Outcome(*outcome) for test, outcome in read.items()}


def run_both(
    folder: Path, tests: Sequence[str], capsys: pytest.CaptureFixture[str], **variables: str
) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    """Run tests on both engines at once, and print how many pass."""
    with ThreadPoolExecutor(2) as pool:
        theirs, ours = pool.map(
            lambda engine: run(engine, folder, tests, **variables), ("theirs", "ours")
        )
    with capsys.disabled():
        for name, outcomes in ("HuggingFace's engine", theirs), ("this engine", ours):
            counts = Counter(outcome.kind for outcome in outcomes.values())
            print(f"\n{name}:", ", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    return theirs, ours


def pass_without_only(
    theirs: dict[str, Outcome], ours: dict[str, Outcome]
) -> dict[str, Outcome | None]:
    """Return the tests that pass on HuggingFace's engine only, and what came of them here."""
    passed = [test for test, outcome in theirs.items() if outcome.result == "passed"]
    worse = {test: ours.get(test) for test in passed}
    return {test: found for test, found in worse.items() if not found or found.result != "passed"}


def source(
    name: str, request: pytest.FixtureRequest, scratch: Path, build_tool: str | None = None
) -> Path:
    """Return the source archive of a library; skip the test if there is none."""
    folder = cache_folder(request, "source_archives", scratch)
    try:
        return source_archives.download(name, folder, build_tool)
    except source_archives.DownloadError as error:
        assert f"{name}_source" not in REQUIRED, str(error)
        pytest.skip(str(error))


def expected(tokenizer: Any, text: str) -> dict[str, Any]:
    """Return what the mixins call the results of an integration test: HuggingFace's own."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    return {
        "integration_test_input_string": text,
        "integration_expected_tokens": tokenizer.tokenize(text),
        "integration_expected_token_ids": ids,
        "integration_expected_decoded_text": tokenizer.decode(
            ids, clean_up_tokenization_spaces=False
        ),
    }


@pytest.fixture
def families(tmp_path: Path) -> Path:
    """Write the tiny directories, and beside each what HuggingFace's engine gives for a text."""
    folder = tmp_path / "families"
    text = "\n".join(files.CORPUS) + " <s> hi<s>there</s>"
    for family, directory in DIRECTORIES.items():
        directory.write(folder / family)
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder / family))
        results = json.dumps(expected(tokenizer, text))
        (folder / f"{family}.json").write_text(results, encoding="utf-8")
    return folder


@pytest.mark.filterwarnings("ignore:.*stays on HuggingFace's engine")
@pytest.mark.filterwarnings("ignore:.*no token for these characters")  # they are this small
def test_these_families_are_on_this_engine(families: Path) -> None:
    on_theirs = set()
    with patched_transformers():
        for family in DIRECTORIES:
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(families / family))
            if not isinstance(tokenizer.backend_tokenizer, Tokenizer):
                on_theirs.add(family)
    assert on_theirs == ON_THEIR_ENGINE
    assert len(DIRECTORIES) - len(on_theirs) >= 24


def test_the_mixins_of_transformers(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    families: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tests = source_archives.unpack(
        source("transformers", request, tmp_path), "tests", tmp_path / "tests"
    )
    (tests / "__init__.py").touch()
    (tests / "fixtures").mkdir()
    (tests / "fixtures" / "sample_text.txt").write_text("\n".join(files.CORPUS), encoding="utf-8")
    program = "import their_tests\nglobals().update(their_tests.test_classes())\n"
    (tests / "test_families.py").write_text(program, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    theirs, ours = run_both(
        tmp_path,
        ["tests/test_families.py"],
        capsys,
        THEIR_TESTS_FAMILIES=str(families),
        RUN_SLOW="1",
    )
    assert pass_without_only(theirs, ours) == {}
    # All tests, even those that fail on both, got the same results of all calls.
    different = [test for test in theirs if theirs[test].digest != ours[test].digest]
    assert [test for test in different if not test.startswith(TRAINS_AT_RANDOM)] == []
    passed = Counter(
        test.split("::")[1].removesuffix(" backend")
        for test, outcome in ours.items()
        if outcome.result == "passed"
    )
    # The mixins have 74 tests; few fail for a class whose calls take other arguments.
    assert passed.keys() == {f"Test {family}" for family in DIRECTORIES}
    assert min(passed.values()) >= 45


def test_the_tests_of_tokenizers(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = source("tokenizers", request, tmp_path, build_tool="maturin")
    folder = source_archives.unpack(archive, "bindings/python", tmp_path / "python")
    theirs, ours = run_both(folder, ["tests", *TIMED], capsys)
    assert pass_without_only(theirs, ours).keys() == PASS_WITHOUT_ONLY
    assert sum(outcome.result == "passed" for outcome in ours.values()) >= 120
