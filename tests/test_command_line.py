"""What people's fingers expect of the command line: examples, suggestions, short forms."""

from __future__ import annotations

import argparse
import copy
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from conftest import ROOT, run_command
from example_files import write_settings_and_model
from oracles import missing, need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, main
from bpe_tokenizer_tools import backends, command_line, commands, core
from bpe_tokenizer_tools.backends import libraries
from bpe_tokenizer_tools.support import colors

ALL = {**core.COMMANDS, **commands.COMMANDS}
TEXT = "The cat sat on the mat. Hello, world! naïve 東京 🙂 return x + 12\n"


@pytest.fixture(scope="module")
def place(engine: str, tmp_path_factory: pytest.TempPathFactory, vocab_dir: Path) -> Path:
    """A folder with all that the examples read; what one writes is there for the next."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "texts").mkdir()
    for name, words in (("corpus.txt", TEXT), ("texts/a.txt", TEXT), ("texts/b.txt", TEXT[::-1])):
        (folder / name).write_text(
            "".join(f"{words} {number} {chr(97 + number % 26) * 3}\n" for number in range(150)),
            encoding="utf-8",
        )
    (folder / "ids.txt").write_text("72 105")
    need("numpy")
    write_settings_and_model(folder)
    (folder / "cache").mkdir()
    shutil.copy(vocab_dir / "o200k_base.tiktoken", folder / "cache")
    return folder


class InNumpy(backends.Backend):
    """Runs the tiny model where llama.cpp isn't installed."""

    name = "NumPy"

    def _load(self, loading: Any) -> None:
        self.read: list[int] = []

    def _forget(self) -> None:
        self.read.clear()

    def _feed(self, ids: list[int]) -> Any:
        self.read += ids
        return tiny_models.model(False).logits(self.read[-16:])  # all of them would take long

    def _release(self) -> None:
        pass


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", str(place / "cache"))
    return place


@pytest.fixture(scope="module")
def tok(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tok")
    BPETokenizer().train([TEXT * 20], 300, verbose=False).save(folder, verbose=False)
    return folder


# -- Examples -----------------------------------------------------------------

NEEDS = {
    "chat": ["gguf", "jinja2"],
    "doctor": ["safetensors"],
    "adapt": ["safetensors"],
    "completion": ["shtab"],
}
SHOWN = [(name, number) for name in command_line.EXAMPLES for number in (0, 1)]


def write_a_chat_model(path: Path) -> None:
    if not path.exists():
        own = copy.deepcopy(tiny_models.tokenizer())
        own.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
        tiny_models.write_gguf(path, tiny_models.model(False), own)


def test_each_command_has_examples() -> None:
    assert set(command_line.EXAMPLES) == set(ALL)
    for name, examples in command_line.EXAMPLES.items():
        assert all(example.split()[0] == name for example in examples)


def test_the_page_has_an_example_of_each_command() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for first, _ in command_line.EXAMPLES.values():
        assert f"| `{first}` |" in page


@pytest.mark.parametrize(("name", "number"), SHOWN)
def test_each_example_runs(
    name: str,
    number: int,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in NEEDS.get(name, ()):
        need(module)
    if name == "chat":
        write_a_chat_model(here / "model.gguf")
        typed = io.TextIOWrapper(io.BytesIO(b"Hi\nquit\n"), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", typed)
        if missing("llama_cpp"):
            monkeypatch.setitem(libraries.RUNNERS, "llama.cpp", InNumpy)
    words = shlex.split(command_line.EXAMPLES[name][number].partition(" > ")[0])
    if "<" in words:
        *words, _, source = words
        stdin = io.TextIOWrapper(io.BytesIO(Path(source).read_bytes()), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", stdin)
    status, out, err = run_command(capsys, *words)
    assert (status, "error: " in err) == (0, False), err
    assert name != "chat" or out.strip()  # an answer


@pytest.mark.parametrize("name", ALL)
def test_the_help_ends_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run_command(capsys, name, "--help")
    assert (status, err) == (0, "")
    ours = "".join(f"  bpe-tokenizer {example}\n" for example in command_line.EXAMPLES[name])
    assert out.endswith(f"\n\nexamples:\n{ours}")
    parser = core.build_parser([name])
    for example in command_line.EXAMPLES[name]:
        parser.parse_args(shlex.split(re.split(" [<>] ", example)[0]))


@pytest.mark.parametrize("argv", [(), ("--help",)])
def test_nothing_at_all_shows_an_example_for_each_command(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run_command(capsys, *argv)
    assert (status, err) == (0, "")
    for name, (first, _) in command_line.EXAMPLES.items():
        assert re.search(rf"\n    {name}\s", out)
        assert f"\n  bpe-tokenizer {first}\n" in out


# -- Suggestions --------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("trian corpus.txt", "argument COMMAND: invalid choice: 'trian'; did you mean 'train'? ("),
        ("token x", "invalid choice: 'token'; did you mean 'tokens'? (try 'bpe-tokenizer --help')"),
        ("encode x --tokeniser t", "required: -t/--tokenizer; did you mean '--tokenizer'? (try"),
        (
            "train x -o y --vocab-siez=3",
            "unrecognized arguments: --vocab-siez=3; did you mean '--vocab-size'? "
            "(try 'bpe-tokenizer train --help')",
        ),
        ("view x -t y --htlm z", "unrecognized arguments: --htlm z; did you mean '--html'?"),
        ("--verson", "arguments are required: COMMAND; did you mean '--version'? (try"),
        ("help", "invalid choice: 'help'; did you mean '--help'? (try 'bpe-tokenizer --help')"),
        ("version", "invalid choice: 'version'; did you mean '--version'? (try"),
    ],
)
def test_a_misspelling(argv: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run_command(capsys, *argv.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("bpe-tokenizer: error: ") and message in err


@pytest.mark.parametrize("argv", ["xyz", "encode x -t y --qqqq", "--qqqq", "info"])
def test_what_is_like_nothing_gets_no_suggestion(
    argv: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run_command(capsys, *argv.split())
    assert status == 2 and "did you mean" not in err


@pytest.mark.parametrize("argv", ["tokens", "tokens README.md", "encode x", "info", "pack"])
def test_a_missing_tokenizer_is_explained(argv: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run_command(capsys, *argv.split())
    assert status == 2 and "-t/--tokenizer" in err and "required" in err
    assert "a tokenizer is a directory, a file, or a name such as o200k_base" in err


@pytest.mark.parametrize("argv", ["train -o x", "encode -t x", "tokens -t x --limit -1"])
def test_the_hint_names_the_command(argv: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run_command(capsys, *argv.split())
    assert status == 2 and err.endswith(f"(try 'bpe-tokenizer {argv.split()[0]} --help')\n")


# -- Texts --------------------------------------------------------------------


@pytest.mark.parametrize("command", ["encode", "view", "trace"])
def test_a_text_that_is_the_name_of_a_file(
    command: str,
    tok: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("the").write_text("cat", encoding="utf-8")
    said = "the is read as text, though a file has that name; --file reads the file"
    warning = f"bpe-tokenizer: warning: {said}\n"
    for text, expected in (("the", warning), ("then", ""), ("a\0b", ""), (".", "")):
        status, out, err = run_command(capsys, command, text, "-t", tok)
        assert status == 0 and out and err == expected
    status, out, err = run_command(capsys, command, "--file", "the", "-t", tok)
    assert status == 0 and out and not err


@pytest.mark.filterwarnings("always")
def test_a_special_token_that_is_the_name_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt"):
        Path(name).write_text("low lower lowest", encoding="utf-8")
    words = ["train", "a.txt", "--special-tokens", "<|end|>", "b.txt", "-o", "new", "-q"]
    status, _, err = run_command(capsys, *words)
    said = "b.txt is read as a special token, though a file has that name; name files before"
    assert status == 0 and err.startswith(f"bpe-tokenizer: warning: {said}")
    assert err.count("warning") == 1


@pytest.mark.parametrize("command", ["encode", "view", "trace"])
def test_words_without_quotes(command: str, tok: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run_command(capsys, command, "Hello", "big", "world", "-t", tok)
    hint = "unrecognized arguments: big world; put a text of several words in quotes (try"
    assert (status, out, err.count("\n")) == (2, "", 1) and hint in err
    status, _, err = run_command(capsys, "info", tok, "world")
    assert status == 2 and "unrecognized arguments: world (try" in err
    status, _, err = run_command(capsys, "chat", "--model", "m", "Hi")
    assert status == 2 and "unrecognized arguments: Hi; pass what to say as --message (try" in err


def test_info_says_which_unicode_decides(tok: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run_command(capsys, "info", tok, "--verbose")
    assert status == 0
    assert "character classes : Unicode 16.0.0\nnormal forms      : Unicode 9.0.0\n" in out
    status, out, _ = run_command(capsys, "info", tok, "--verbose", "--json")
    assert json.loads(out)["normal_forms"] == f"Unicode {bpe_tokenizer.NORMALIZATION_VERSION}"
    assert "normal" not in run_command(capsys, "info", tok)[1].replace("normalizer", "")


# -- Short forms --------------------------------------------------------------


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("info TOK", "info --tokenizer TOK"),
        ("encode Hi -t TOK", "encode --tokenizer TOK --text Hi"),
        ("encode -t TOK Hi", "encode --text Hi --tokenizer TOK"),
        ("encode Hi -t TOK --json", "encode --text Hi --json --tokenizer TOK"),
        ("decode 72 105 -t TOK", "decode --ids 72 105 -t TOK"),
        ("decode -t TOK 72 105 --json", "decode -t TOK --json --ids 72 105"),
    ],
)
def test_by_place_or_by_option(
    short: str, long: str, tok: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (
        run_command(capsys, *words.replace("TOK", str(tok)).split()) for words in (short, long)
    )
    assert one == other and one[0] == 0 and one[1]


def test_train_takes_files_by_place(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--vocab-size", "0.3k", "--json", "-q"]
    reports = []
    for name, words in (
        ("first", ["corpus.txt", "texts"]),
        ("second", ["--corpus", "corpus.txt", "--corpus", "texts"]),
    ):
        status, out, _ = run_command(capsys, "train", *words, "-o", name, *options)
        assert status == 0
        reports.append(json.loads(out))
    assert [report["documents"] for report in reports] == [3, 3]
    assert reports[0]["vocab_size"] == 300
    assert BPETokenizer.from_file("first") == BPETokenizer.from_file("second")


@pytest.mark.parametrize(
    "argv",
    [
        "encode x --text y -t {tok}",
        "encode -t {tok}",
        "encode x --file y -t {tok}",
        "decode -t {tok}",
        "decode 1 --ids 2 -t {tok}",
        "info",
        "info {tok} -t {tok}",
        "train -o new",
        "train a.txt --corpus b.txt -o new",
        "train a.txt --counts b -o new",
        "train a.txt -o new --vocab-size 1.2345",
        "train a.txt -o new --vocab-size 32q",
    ],
)
def test_what_does_not_go_together(
    argv: str, tok: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run_command(capsys, *argv.replace("{tok}", str(tok)).split())
    assert (status, out, err.count("\n")) == (2, "", 1)


def test_numbers_may_be_negative_where_they_always_could() -> None:
    options = core.build_parser(["chat"]).parse_args(
        ["chat", "--model", "m", "--n-gpu-layers", "-1", "--n-ctx", "8Ki"]
    )
    assert (options.n_gpu_layers, options.n_ctx) == (-1, 8192)


def test_every_command_has_the_same_short_options() -> None:
    parser = core.build_parser()
    (found,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in found.choices.items():
        options = command._option_string_actions
        assert {"-q", "--quiet", "--json", "--color", "-h"} <= options.keys(), name
        for short, long in (("-t", "--tokenizer"), ("-o", "--output")):
            assert (long in options) == (short in options), name
            assert options.get(short) is options.get(long), name


# -- Colors -------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(tok: Path, stream: io.StringIO, *options: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setenv("TERM", "xterm")
        patch.delenv("NO_COLOR", raising=False)
        assert main(["view", "Hi there", "-t", str(tok), *options]) == 0
    return stream.getvalue()


def test_color(tok: Path) -> None:
    colored = [
        shown(tok, Terminal()),
        shown(tok, Terminal(), "--color", "auto"),
        shown(tok, io.StringIO(), "--color", "always"),
    ]
    plain = [
        shown(tok, io.StringIO()),
        shown(tok, Terminal(), "--color", "never"),
    ]
    assert len({*colored}) == 1 and "\x1b[" in colored[0]
    assert len({*plain}) == 1 and "\x1b[" not in plain[0]
    shown(tok, Terminal(), "--color", "never")
    assert "\x1b[" in shown(tok, Terminal())  # it isn't remembered


def test_the_environment_is_asked_only_where_nothing_was_chosen() -> None:
    colors.choose("auto")
    assert colors.has_colors(Terminal(), {"TERM": "xterm"})
    assert not colors.has_colors(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"})
    assert not colors.refused()


# -- Completion ---------------------------------------------------------------


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is what completes")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tok", {"tokens"}),
        ("encode --al", {"--allowed-special"}),
        ("encode --allowed-special ", {"none", "all"}),
        ("info cor", {"corpus.txt"}),
        ("tokens texts/a", {"texts/a.txt"}),
        ("encode -t texts/b", {"texts/b.txt"}),
    ],
)
def test_bash_completes(
    words: str, expected: set[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need("shtab")
    status, script, _ = run_command(capsys, "completion", "bash")
    assert status == 0
    given = ["bpe-tokenizer", *words.split(" ")]
    line = " ".join(map(shlex.quote, given))
    asks = f"COMP_WORDS=({line}); COMP_CWORD={len(given) - 1}; _shtab_bpe_tokenizer 2>/dev/null\n"
    program = f'{script}\n{asks}printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, encoding="utf-8")
    found = {word.rstrip("/") for word in done.stdout.split()}
    assert found == expected, done.stderr


def test_completion_says_what_it_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    status, out, err = run_command(capsys, "completion", "zsh")
    assert (status, out) == (1, "")
    assert "completion, by shtab, needs the package" in err
    assert "pip install shtab" in err


# -- Help ---------------------------------------------------------------------


def test_help_speaks_american_english() -> None:
    parser = core.build_parser()
    (found,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in found.choices.items():
        shown = re.sub(r"\s+", " ", command.format_help())
        for word in ("colour", "likewise", "anew", " normalis", "tokenis", " nor "):
            assert word not in shown.lower(), (name, word)


def test_evaluate_names_all_ways_to_name_a_tokenizer(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("evaluate", "compare"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "a name such as o200k_base" in " ".join(capsys.readouterr().out.split())


def test_encode_starts_without_the_other_commands(tok: Path) -> None:
    program = (
        "import sys, bpe_tokenizer; bpe_tokenizer.main(sys.argv[1:]); "
        "assert 'bpe_tokenizer_tools.commands' not in sys.modules"
    )
    command = [sys.executable, "-c", program, "encode", "Hi", "-t", str(tok)]
    environment = {**os.environ, "PYTHONPATH": str(Path(bpe_tokenizer.__file__).parent)}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
