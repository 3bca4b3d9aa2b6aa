"""Each command, started as a script, as a module and as the installed command: always the same.

What the processes and clusters that a command starts get from it must name the module
`bpe_tokenizer`, however that was started.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from example_files import write_settings_and_model
from oracles import missing, need
from processes import ray_variables

import bpe_tokenizer
from bpe_tokenizer import main
from bpe_tokenizer_tools import command_line, core

pytestmark = pytest.mark.parametrize("engine", ["accelerated"], indirect=True)

SCRIPT = Path(bpe_tokenizer.__file__)
INSTALLED = "import sys\nfrom bpe_tokenizer_tools.start import main\n"
INSTALLED += "if __name__ == '__main__':\n    sys.exit(main())\n"  # as pip writes it
# Chooses how multiprocessing starts processes, and notes that one was started so.
SITE = """
import multiprocessing, os, sys
if (method := os.environ.get("START_METHOD")) and "-I" not in sys.orig_argv:
    multiprocessing.set_start_method(method, force=True)
if "--multiprocessing-fork" in sys.orig_argv:
    open(os.environ["STARTED"], "a").close()
"""
TEXT = "The cat sat on the mat. Hello, world! naïve 東京 🙂 return x + 12\n"
# What commands read that others write.
BEFORE = [*command_line.EXAMPLES["train"], *command_line.EXAMPLES["register"]]
BEFORE += [command_line.EXAMPLES["extend"][0]]
NEEDS = {
    "chat": ["torch", "transformers", "jinja2"],
    "doctor": ["safetensors"],
    "adapt": ["safetensors"],
    "completion": ["shtab"],
}
QUICK = ("encode", "info")  # the others are for --slow


class Ended(NamedTuple):
    status: int
    out: str
    err: str
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def place(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the examples read."""
    need("numpy")
    folder = tmp_path_factory.mktemp("three ways") / "before"
    (folder / "texts").mkdir(parents=True)
    for name, words in (("corpus.txt", TEXT), ("texts/a.txt", TEXT), ("texts/b.txt", TEXT[::-1])):
        lines = [f"{words} {number} {chr(97 + number % 26) * 3}\n" for number in range(150)]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    (folder / "ids.txt").write_text("72 105")
    write_settings_and_model(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for example in BEFORE:
            assert main([*shlex.split(example), "--quiet"]) == 0
    return folder


WAYS = ([str(SCRIPT)], ["-m", "bpe_tokenizer"], ["../bpe-tokenizer"])


def each_way(
    place: Path, words: list[str], folder: Path, ways: Any = WAYS, **variables: str
) -> list[Ended]:
    """Run a command in a copy of the place for each way to start it."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    (folder / "bpe-tokenizer").write_text(INSTALLED)
    path = os.pathsep.join([str(folder / "site"), str(SCRIPT.parent), os.getenv("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep), "COLUMNS": "80"}
    environment |= {"PYTHONIOENCODING": "utf-8", "STARTED": str(folder / "started"), **variables}
    return [run(place, [*way, *words], folder / "here", environment) for way in ways]


def run(place: Path, words: list[str], here: Path, environment: dict[str, str]) -> Ended:
    shutil.copytree(place, here)
    before = contents(here)
    try:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=here,
            env=environment,
            input="Hi\nquit\n",
            capture_output=True,
            encoding="utf-8",
        )
        new = {name: data for name, data in contents(here).items() if before.get(name) != data}
    finally:
        shutil.rmtree(here)
    return Ended(done.returncode, without_times(done.stdout), without_times(done.stderr), new)


def without_times(text: str) -> str:
    """Leave out how long something took, and when it was."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*", "TIME", text)
    text = re.sub(r'("[a-z_]*seconds[a-z_]*": )[\d.e-]+', r"\1TIME", text)
    text = re.sub(r"(?m)^took .*$|, [\d.]+ \w+ of files a second.*$", "TIME", text)
    return re.sub(r"[\d.,]+ (ms|s\b|[kMG]?B/s)", "TIME", text)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files in a folder, without the times in those of text."""
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            data = file.read_bytes()
            text = data.decode("utf-8", "surrogateescape")
            data = without_times(text).encode("utf-8", "surrogateescape")
            found[file.relative_to(folder).as_posix()] = data
    return found


def with_workers(name: str, words: list[str]) -> list[str]:
    """Add --num-workers 2 to a command that has the option."""
    parser = core.build_parser([name])
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    has_it = "--num-workers" in commands.choices[name]._option_string_actions
    return [*words, "--num-workers", "2"] if has_it else words


def assert_same(ended: list[Ended]) -> None:
    first = ended[0]
    assert first.status == 0 and "Traceback" not in first.err, first.err
    for other in ended[1:]:
        for field, one, two in zip(Ended._fields, first, other):
            assert one == two, field


EACH = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
    for name in command_line.EXAMPLES
]


@pytest.mark.parametrize("name", EACH)
def test_each_command_does_the_same(name: str, place: Path, tmp_path: Path) -> None:
    for module in NEEDS.get(name, ()):
        need(module)
    words = shlex.split(re.split(" [<>] ", command_line.EXAMPLES[name][0])[0])
    if name == "chat":  # with a library that tests have anyway
        words = "chat --model model --template alpaca --message Hi --max-tokens 4 -t model".split()
        words += ["--temperature", "0", "--quiet"]
    if "-o" in words:  # where the example wrote before
        words[words.index("-o") + 1] = "new"
    ended = each_way(place, with_workers(name, words), tmp_path)
    assert_same(ended)
    assert ended[0].out or ended[0].files


SUPERWORDS = "count texts corpus.txt --superwords auto --vocab-size 300 --num-workers 2 -o new"


@pytest.mark.parametrize(
    "ways", [WAYS[:1], pytest.param(WAYS, marks=pytest.mark.slow)], ids=["script", "all"]
)
def test_superwords_are_counted_by_processes(ways: Any, place: Path, tmp_path: Path) -> None:
    ended = each_way(place, SUPERWORDS.split(), tmp_path, ways)
    assert_same(ended)
    assert b"superword" in ended[0].files["new"].lower()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="fork")
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_training_starts_processes_in_any_way(method: str, place: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.txt"  # more than is counted before processes are started
    large.write_text("".join(f"the cat {n} sat on the mat\n" for n in range(360_000)))
    train = ["train", str(large), "-o", "new", "--vocab-size", "300", "--num-workers", "2"]
    # The engine in C counts in threads.
    ended = each_way(place, train, tmp_path, START_METHOD=method, BPE_TOKENIZER_PURE="1")
    assert_same(ended)
    assert (tmp_path / "started").exists() == (method == "spawn")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [SUPERWORDS, "count texts -o new --num-workers 2", "pack texts -t mine -o new --num-workers 2"],
)
def test_ray_works_in_all_three(command: str, place: Path, tmp_path: Path) -> None:
    if missing("ray"):
        pytest.skip("ray is not installed: pip install ray")
    words = [*command.split(), "--executor", "ray"]
    with ray_variables() as variables:
        ended = each_way(place, words, tmp_path, **variables, HOME=str(tmp_path))
    assert_same(ended)
    assert ended[0].files
