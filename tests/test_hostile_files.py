"""Files that would control a terminal: no command lets their names, tokens or templates do so."""

from __future__ import annotations

import io
import re
import shlex
import sys
import unicodedata
from pathlib import Path

import pytest
from conftest import run_command
from example_files import write_settings_and_model
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import command_line, core
from bpe_tokenizer_tools.showing import trace, view
from bpe_tokenizer_tools.support.tables import Table

pytestmark = pytest.mark.parametrize("engine", ["accelerated"], indirect=True)

NAME = "\x1b]0;owned\x07\x9b31m\u202e\u2066\u2028"  # sets a title, colors and reverses what follows
TEXT = f"\x1b[8m{NAME}\r\x08"
OURS = {*view._COLORS, view._BOLD, view._DIM, view._RESET, view._SPECIAL, trace._MADE}


def unsafe(shown: str) -> list[str]:
    """Return what could control a terminal, besides this library's own colors."""
    for code in OURS:
        shown = shown.replace(code, "")
    bad = [char for char in shown if unicodedata.category(char) == "Cc" and char not in "\t\n"]
    return bad + re.findall("[\u2028-\u202e\u2066-\u2069]", shown)


def hostile(words: str) -> list[str]:
    """Return the words of an example, with names of files that hold control characters."""
    named = re.sub(r"(?<![\w.-])(mine|other|texts|model)(?![\w.=-])", rf"\1{NAME}", words)
    return shlex.split(re.sub(r"(?<![\w.-])corpus\.txt", f"corpus{NAME}.txt", named))


def tokenizer(vocab_size: int) -> BPETokenizer:
    texts = [f"{TEXT * 5} at the mat {n} {n * n:x} {n**3}" for n in range(400)]
    made = BPETokenizer().train(texts, vocab_size, verbose=False)
    made.add_special_tokens([f"<{TEXT}\n>"])
    made.bos_token = made.eos_token = f"<{TEXT}\n>"
    made.chat_template = f"{{{{ messages[0].content }}}}{TEXT}"
    return made


@pytest.fixture(scope="module")
def place(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the examples read; what one writes is there for the next."""
    need("numpy")
    folder = tmp_path_factory.mktemp("hostile")
    (folder / f"texts{NAME}").mkdir()
    for name in (f"corpus{NAME}.txt", f"texts{NAME}/a{NAME}.txt", f"texts{NAME}/b.txt"):
        words = f"{TEXT} {name} naïve the cat sat\n"
        lines = "".join(f"{words} {number} {chr(97 + number % 26) * 3}\n" for number in range(80))
        (folder / name).write_text(lines, encoding="utf-8")
    (folder / "ids.txt").write_text("27 91 256 257")
    write_settings_and_model(folder, NAME)
    tokenizer(280).save(folder / f"mine{NAME}", verbose=False)
    other = tokenizer(600)
    other.add_special_tokens([AddedToken(f"[{TEXT}]", special=False)])
    other.save(folder / f"other{NAME}", verbose=False)
    return folder


# Without a model in a file, a name on the network, or a package that prints for shells.
LEFT_OUT = {("chat", 0), ("chat", 1), ("evaluate", 1), ("completion", 0), ("completion", 1)}
SHOWN = [
    pytest.param(name, number, marks=[pytest.mark.slow] * (name == "check"))
    for name in command_line.EXAMPLES
    for number in (0, 1)
    if (name, number) not in LEFT_OUT
]


@pytest.mark.parametrize(("name", "number"), SHOWN)
def test_no_command_lets_files_control_the_terminal(
    name: str,
    number: int,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("numpy", "safetensors") if name in ("doctor", "adapt") else ("numpy",):
        need(module)
    monkeypatch.chdir(place)
    words = hostile(command_line.EXAMPLES[name][number])
    if name == "train":
        words[words.index("-o") + 1] = f"trained-{number}{NAME}"
    if "<" in words:
        *words, _, source = words
        stdin = io.TextIOWrapper(io.BytesIO(Path(source).read_bytes()), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", stdin)
    colors = ["--color", "always"] if name in ("view", "trace") else []
    status, out, err = run_command(capsys, *words, *colors)
    assert status == 0, err
    as_text = name == "decode" and "-" in words  # which prints the text itself
    assert unsafe("" if as_text else out) == unsafe(err) == []


@pytest.mark.parametrize(
    "words",
    [
        ["info", f"none{NAME}\n"],
        ["info", f"mine{NAME}", f"--none{NAME}"],
        [f"none{NAME}"],
        ["encode", "--show-tokens", "-t", f"mine{NAME}", TEXT],
        ["encode", "--show-tokens", "--allowed-special", "all", "-t", f"mine{NAME}", "-"],
        ["check", f"texts{NAME}/a{NAME}.txt"],
        ["tokens", f"corpus{NAME}.txt", f"none{NAME}", "-t", f"mine{NAME}"],
        ["convert", f"mine{NAME}", f"new{NAME}.json"],
        ["list", "--registry", f"texts{NAME}"],
    ],
)
def test_errors_and_what_is_read_from_a_pipe(
    words: list[str],
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    stdin = io.TextIOWrapper(io.BytesIO(f"a<{TEXT}\n>b".encode()), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    _, out, err = run_command(capsys, *words)
    assert out + err
    assert unsafe(out) == unsafe(err) == []
    if words[-1] == "-":
        assert len(out.splitlines()) == 3  # a line for each token, whatever it holds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_decoded_text_is_raw_in_a_pipe_and_escaped_at_a_terminal(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{TEXT}naïve\t東京\u3000👩\u200d🚀\n"
    ids = " ".join(map(str, BPETokenizer().encode(text)))
    BPETokenizer().save(place / "bytes", verbose=False)

    def decode(out: io.StringIO) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ids.encode())))
        monkeypatch.setattr(sys, "stdout", out)
        assert bpe_tokenizer.main(["decode", "-", "-t", str(place / "bytes")]) == 0
        return out.getvalue()

    assert decode(io.StringIO()) == text
    shown = decode(Terminal())
    assert unsafe(shown) == []
    assert shown.startswith(r"\x1b[8m\x1b]0;owned\x07") and shown.endswith(text[len(TEXT) :])


def test_tables_in_colors(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need("rich")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    Table([TEXT, "n"], [[TEXT, 1]], TEXT).print()
    assert unsafe(re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())) == []
    assert core.printable(NAME) in terminal.getvalue()
