"""`bpe_tokenizer.py` as the only file of this library, copied into an empty folder.

Only `regex` and the standard library can be imported there: neither the tools nor the engine in C,
nor any package that they use. Each public name and each method that the design names has a check
in `tests/support/alone_checks.py`; each command runs here as people start it.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import alone_checks
import pytest
import regex
import tiny_models
from conftest import EITHER_ENGINE
from oracles import need
from reference_program import ReferenceTokenizer, save_tokenizer

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer

pytestmark = EITHER_ENGINE  # alone there is one engine only

TEXT = "The cat sat on the mat.\n\nIt's the cat's hat; naïve 東京 🙂\n\treturn x + 12\n"
OPTIONS = {
    "train": "--corpus --vocab-size --min-frequency --output --pattern",
    "encode": "--tokenizer --text --file --show-tokens",
    "decode": "--tokenizer --ids",
    "chat": "--tokenizer --model --template --system --max-tokens --temperature --top-p"
    " --n-gpu-layers --n-ctx --backend",
    "info": "--tokenizer --sample-text",
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of `regex`."""
    folder = tmp_path_factory.mktemp("packages")
    shutil.copytree(Path(regex.__file__).parent, folder / "regex")
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the module."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copy(bpe_tokenizer.__file__, folder)
    return folder


# -- Names and methods ------------------------------------------------------------


# -I -S: neither the environment, nor the current folder, nor what is installed
PYTHON = [sys.executable, "-I", "-S", "-c"]


@pytest.fixture(scope="module")
def outcomes(alone: Path, packages: Path) -> dict[str, str]:
    """What went wrong in each check, "" if nothing did."""
    code = "import runpy, sys; sys.path[:0] = sys.argv[2:]; runpy.run_path(sys.argv[1], None, {!r})"
    given = [alone_checks.__file__, str(alone), str(packages)]
    command = [*PYTHON, code.format("__main__"), *given]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=alone)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, str] = json.loads(done.stdout)
    return found


# What the design lists of the class.
CARD = """add_special_tokens apply_chat_template chat clear_cache convert_ids_to_tokens
convert_tokens_to_ids convert_tokens_to_string count_tokens decode decode_batch encode encode_batch
encode_streaming from_huggingface from_pretrained get_cache_stats get_vocab save tokenize train
truncate with_vocab_size"""


def test_each_name_has_a_check() -> None:
    assert {*bpe_tokenizer.__all__, *CARD.split()} <= alone_checks.CHECKS.keys()


@pytest.mark.parametrize("name", alone_checks.CHECKS)
def test_it_works_alone(outcomes: dict[str, str], name: str) -> None:
    assert not outcomes[name], outcomes[name]


@pytest.mark.skipif(os.name != "posix", reason="links to packages")
def test_tensors_need_nothing_but_numpy(alone: Path, packages: Path, tmp_path: Path) -> None:
    numpy = need("numpy")
    for folder in Path(numpy.__file__).parent.parent.glob("numpy*"):
        (tmp_path / folder.name).symlink_to(folder)
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "import bpe_tokenizer, numpy\n"
        "batch = bpe_tokenizer.BPETokenizer()(['ab', 'cd'], return_tensors='np')\n"
        "assert isinstance(batch, bpe_tokenizer.TensorBatch)\n"
        "assert batch['input_ids'].dtype == numpy.int64\n"
        "print(batch['input_ids'].tolist(), batch['attention_mask'].tolist())"
    )
    given = [str(alone), str(packages), str(tmp_path)]
    done = subprocess.run([*PYTHON, code, *given], capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[[97, 98], [99, 100]] [[1, 1], [1, 1]]\n"


LOAD = """
import json, sys; sys.path[:0] = sys.argv[1:3]
import bpe_tokenizer
texts = json.loads(sys.argv[5])
for folder, pattern in ((sys.argv[3], None), (sys.argv[4], "gpt2")):
    made = bpe_tokenizer.BPETokenizer.from_pretrained(folder, split_pattern=pattern)
    made.save(folder + "-again")
    again = bpe_tokenizer.BPETokenizer.from_pretrained(folder + "-again")
    both = [[each.encode(t, True, "all") for t in texts] for each in (made, again)]
    print(json.dumps([*both, made.normalizer]))
try:
    bpe_tokenizer.BPETokenizer.from_pretrained(sys.argv[4])
except bpe_tokenizer.FileFormatError as error:
    print(error)
"""


def test_folders_of_the_reference_program(alone: Path, packages: Path, tmp_path: Path) -> None:
    made = ReferenceTokenizer("gpt2").train(TEXT * 3, 30)
    made.add_special({"<|b|>": 286, "<|e|>": 900})
    saved = made.save(tmp_path / "class")
    tutorial = save_tokenizer(made, tmp_path / "tutorial")
    texts = [TEXT, "cafe\u0301 <|b|>the hat", ""]
    given = [*map(str, (alone, packages, saved, tutorial)), json.dumps(texts)]
    done = subprocess.run([*PYTHON, LOAD, *given], capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    *loaded, error = done.stdout.splitlines()
    around = [made.encode(text, True, True) for text in texts]
    plain = [made.encode(text, False, True) for text in texts]  # no file says which token is bos
    assert [*map(json.loads, loaded)] == [[around, around, "NFC"], [plain, plain, "NFC"]]
    assert "split_pattern: is missing" in error and 'pass split_pattern="gpt2"' in error


@pytest.mark.skipif(os.name != "posix", reason="links to packages")
def test_jinja_templates_need_nothing_but_jinja(
    alone: Path, packages: Path, tmp_path: Path
) -> None:
    for name in ("jinja2", "markupsafe"):
        (tmp_path / name).symlink_to(Path(need(name).__file__).parent)
    template = "{% for m in messages %}{{ '<|a|>' ~ m.content | trim }}<|b|>{% endfor %}"
    talk = [{"role": "user", "content": " <|b|>Hi "}, {"role": "assistant", "content": "Yes."}]
    code = (
        "import json, sys; sys.path[:0] = sys.argv[3:]\n"
        "import bpe_tokenizer\n"
        "tokenizer = bpe_tokenizer.BPETokenizer()\n"
        "tokenizer.add_special_tokens(['<|a|>', '<|b|>'])\n"
        "tokenizer.chat_template = sys.argv[1]\n"
        "talk = json.loads(sys.argv[2])\n"
        "print(tokenizer.apply_chat_template(talk))\n"
        "print(tokenizer.apply_chat_template([talk, talk[:1]], padding=True))"
    )
    given = [template, json.dumps(talk), str(alone), str(packages), str(tmp_path)]
    done = subprocess.run([*PYTHON, code, *given], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert "this tokenizer has no pad token" in done.stderr
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["<|a|>", "<|b|>"])
    ids = tokenizer.apply_chat_template(talk, template)
    assert ids == [256, *b"<|b|>Hi", 257, 256, *b"Yes.", 257]
    short = tokenizer.apply_chat_template(talk[:1], template)
    assert done.stdout.splitlines() == [str(ids), str([ids, short + [0] * (len(ids) - len(short))])]


# -- Commands ---------------------------------------------------------------------

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(scope="module")
def run(alone: Path, packages: Path) -> Run:
    """Run `python bpe_tokenizer.py` in its folder."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment = {**kept, "PYTHONPATH": str(packages)}

    def start(*words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-S", "bpe_tokenizer.py", *map(str, words)]
        return subprocess.run(command, input=stdin, capture_output=True, cwd=alone, env=environment)

    return start


@pytest.fixture(scope="module")
def tok(run: Run, alone: Path) -> Path:
    """A tokenizer made by the command."""
    folder = alone / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_bytes((TEXT * 20).encode())
    (folder / "b.txt.gz").write_bytes(gzip.compress(b"zebra " * 50))
    lines = json.dumps({"text": "quokka quokka"}) + "\n"
    (folder / "c.jsonl").write_text(lines * 30, encoding="utf-8")
    options = ("--vocab-size", 310, "--min-frequency", 3, "--pattern", "cl100k", "--json")
    special = ("--special-tokens", "<|endoftext|>", "<|pad|>=309")
    done = run("train", "--corpus", "corpus", "--output", "tok", *options, *special, "--quiet")
    assert (done.returncode, done.stderr) == (0, b"")
    report = json.loads(done.stdout)
    assert (report["vocab_size"], report["documents"]) == (310, 32)
    return alone / "tok"


def test_train(run: Run, tok: Path, alone: Path) -> None:
    loaded = BPETokenizer.from_pretrained(tok, verbose=False)
    expected = BPETokenizer("cl100k").train(
        alone / "corpus", 310, 3, {"<|endoftext|>": None, "<|pad|>": 309}, verbose=False
    )
    assert loaded == expected and b"quokka" in expected.definition.vocab
    done = run("train", "--corpus", "corpus", "--output", "tok")
    assert done.returncode == 1 and b"--force overwrites it" in done.stderr


def test_train_with_special_tokens_first(run: Run, tok: Path, alone: Path) -> None:
    options = ("--vocab-size", 300, "--special-tokens", "<s>", "</s>", "--special-tokens-first")
    done = run("train", "--corpus", "corpus", "--output", "first", *options, "--quiet")
    assert (done.returncode, done.stderr) == (0, b"")
    loaded = BPETokenizer.from_pretrained(alone / "first", verbose=False)
    special = {"<s>": 0, "</s>": 1}
    expected = BPETokenizer().train(alone / "corpus", 300, special_tokens=special, verbose=False)
    assert loaded == expected and loaded.encode("!") == [2]
    done = run("encode", "--tokenizer", "first", "--text", TEXT, "--json")
    assert json.loads(done.stdout)["input_ids"] == expected.encode(TEXT)


def test_encode(run: Run, tok: Path, alone: Path) -> None:
    tokenizer = BPETokenizer.from_pretrained(tok, verbose=False)
    ids = tokenizer.encode(TEXT)
    done = run("encode", "--tokenizer", "tok", "--text", TEXT, "--show-tokens")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [
        f"Token count : {len(ids)}",
        f"Token IDs : {ids}",
        f"Tokens : {tokenizer.tokenize(TEXT)}",
    ]
    (alone / "text.txt").write_bytes(TEXT.encode())
    read = run("encode", "--tokenizer", "tok", "--file", "text.txt", "--json")
    assert json.loads(read.stdout) == {"token_count": len(ids), "input_ids": ids}


def test_short_options(run: Run, tok: Path) -> None:
    long = run("encode", "--tokenizer", "tok", "--text", TEXT, "--quiet")
    assert run("encode", "-t", "tok", "--text", TEXT, "-q").stdout == long.stdout != b""


def test_decode(run: Run, tok: Path) -> None:
    tokenizer = BPETokenizer.from_pretrained(tok, verbose=False)
    done = run("decode", "--tokenizer", "tok", "--ids", *tokenizer.encode(TEXT))
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == f"Decoded text: {TEXT!r}\n"
    unknown = run("decode", "--tokenizer", "tok", "--ids", 97, 99999)
    assert unknown.returncode == 1 and b"[99999]" in unknown.stderr


def test_a_pipe_gives_back_each_byte(run: Run, tok: Path) -> None:
    data = (TEXT * 100).encode()
    encoded = run("encode", "--tokenizer", "tok", "--text", "-", stdin=data)
    decoded = run("decode", "--tokenizer", "tok", "--ids", "-", stdin=encoded.stdout)
    assert (decoded.returncode, decoded.stdout, decoded.stderr) == (0, data, b"")


def test_info(run: Run, tok: Path) -> None:
    facts = json.loads(run("info", "--tokenizer", "tok", "--sample-text", TEXT, "--json").stdout)
    assert (facts["vocab_size"], facts["split_pattern"]) == (310, "cl100k")
    assert facts["special_tokens"] == {"<|endoftext|>": 308, "<|pad|>": 309}
    assert facts["sample"]["decoded"] == TEXT and facts["sample"]["lossless"]
    shown = run("info", "--tokenizer", "tok")
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert "vocab size        : 310" in shown.stdout.decode()


@pytest.mark.parametrize("name", ["o200k_base", "hf:org/model"])
def test_a_name_needs_the_tools(run: Run, name: str) -> None:
    done = run("info", "--tokenizer", name)
    needs = "names such as o200k_base need bpe_tokenizer_tools: 'pip install .' in a clone"
    shown = f"bpe-tokenizer: error: {name}: no such file or directory; {needs}\n"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (1, b"", shown)


@pytest.mark.parametrize(("model", "message"), [("model.gguf", None), ("nosuch", "-")])
def test_chat_without_a_model_reads_nothing(
    alone: Path, packages: Path, tok: Path, model: str, message: str | None
) -> None:
    words = ["bpe_tokenizer.py", "chat", "--tokenizer", str(tok), "--model", model]
    words += [] if message is None else ["--message", message]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    process = subprocess.Popen(
        [sys.executable, "-S", *words],
        stdin=subprocess.PIPE,  # nothing is ever written to it
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=alone,
        env=environment,
    )
    try:
        process.wait(timeout=60)
        assert process.stdout is not None and process.stderr is not None
        told = process.stderr.read().decode()
        assert (process.returncode, process.stdout.read()) == (1, b"")
    finally:
        process.kill()
        process.communicate()
    expected = f"bpe-tokenizer: error: {model}: no such file or directory; expected a .gguf file"
    assert told.startswith(expected) and len(told.splitlines()) == 1


def test_chat_needs_a_tokenizer(run: Run, alone: Path) -> None:
    (alone / "other.gguf").write_bytes(b"GGUF")
    (alone / "empty").mkdir()
    done = run("chat", "--model", "other.gguf", "--message", "Hi")
    assert (done.returncode, done.stdout) == (2, b"")
    assert "no tokenizer.json in other.gguf; pass --tokenizer" in done.stderr.decode()
    for model, told in {"empty": "contains no model", "nosuch": "no such file"}.items():
        done = run("chat", "--model", model, "--message", "Hi")
        assert (done.returncode, done.stdout) == (1, b"")
        assert told in done.stderr.decode()


@pytest.mark.parametrize("command", OPTIONS)
def test_help_names_the_options(run: Run, command: str) -> None:
    shown = run(command, "--help").stdout.decode()
    assert all(option in shown for option in OPTIONS[command].split())


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_help_says_where_more_commands_are(run: Run, words: tuple[str, ...]) -> None:
    shown = run(*words).stdout.decode()
    assert all(f"\n    {command} " in shown for command in OPTIONS)
    assert "bpe_tokenizer_tools adds more commands" in shown


def test_a_command_of_the_tools_is_refused_with_what_to_do(run: Run) -> None:
    done = run("tokens", "corpus")
    told = done.stderr.decode()
    assert done.returncode == 2 and len(told.splitlines()) == 1
    assert "invalid choice: 'tokens'" in told and "adds more commands: copy that folder" in told
    assert "adds more" not in run("info").stderr.decode()


@pytest.mark.parametrize("command", [["bpe_tokenizer.py"], ["-m", "bpe_tokenizer", "info", "x"]])
def test_without_regex_one_line_says_what_to_install(alone: Path, command: list[str]) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-S", *command], capture_output=True, encoding="utf-8", cwd=alone, env=kept
    )
    told = "bpe-tokenizer: error: the package regex is missing: pip install regex\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)
    done = subprocess.run(
        [*PYTHON, f"import sys; sys.path.insert(0, {str(alone)!r}); import bpe_tokenizer"],
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 1 and "No module named 'regex'" in done.stderr


# -- Models -----------------------------------------------------------------------

# Everything that is installed can be imported, but for what this library consists of.
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in ("bpe_tokenizer_tools", "_bpe_tokenizer"):
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
sys.meta_path.insert(0, Hidden())
sys.path.insert(0, sys.argv.pop(1))
import bpe_tokenizer
assert bpe_tokenizer.__file__.startswith(sys.path[0]) and not bpe_tokenizer.ACCELERATED
"""
CHAT = """
import json
tokenizer = bpe_tokenizer.BPETokenizer.from_pretrained(sys.argv[1], verbose=False)
talk = [{"role": "user", "content": "def f("}]
options = dict(template="alpaca", max_new_tokens=16, temperature=0, n_ctx=0)
whole = tokenizer.chat(talk, sys.argv[2], **options)
pieces = list(tokenizer.chat(talk, sys.argv[2], stream=True, **options))
stop = whole[4:7]
cut = tokenizer.chat(talk, sys.argv[2], stop=stop, **options)
options.update(temperature=1.0, seed=3)
drawn = [tokenizer.chat(talk, sys.argv[2], **options) for _ in range(2)]
print(json.dumps({"whole": whole, "pieces": pieces, "stop": stop, "cut": cut, "drawn": drawn}))
"""
LIBRARIES = {
    "llama.cpp": ("llama_cpp", tiny_models.write_gguf, "model.gguf"),
    "mlx": ("mlx_lm", tiny_models.write_mlx, "mlx"),
    "openvino": ("openvino", tiny_models.write_openvino, "openvino"),
    "transformers": ("transformers", tiny_models.write_safetensors, "transformers"),
}


def answer(tokenizer: BPETokenizer, most: int) -> str:
    """What the tiny model answers, computed in NumPy."""
    talk = [{"role": "user", "content": "def f("}]
    ids = tokenizer.apply_chat_template(talk, "alpaca")
    written: list[int] = []
    while len(written) < most:
        logits = tiny_models.model(False).logits([*ids, *written])[: tiny_models.TOKENS]
        written.append(int(logits.argmax()))
        if written[-1] == tiny_models.EOS:
            break
    return tokenizer.decode(written, skip_special_tokens=True)


def run_with_packages(code: str, *argv: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDE + code, *map(str, argv)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.parametrize("library", LIBRARIES)
def test_chat_with_a_model(library: str, alone: Path, tmp_path: Path) -> None:
    package, write, name = LIBRARIES[library]
    need(package)
    if library == "transformers":
        need("torch")
    tokenizer, model = tiny_models.tokenizer(), write(tmp_path / name, tiny_models.model(False))
    tokenizer.save(tmp_path / "tok", verbose=False)
    done = run_with_packages(CHAT, alone, tmp_path / "tok", model)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    whole = answer(tokenizer, 16)
    assert (found["whole"], "".join(found["pieces"])) == (whole, whole) and len(found["pieces"]) > 1
    assert found["cut"] == whole[: whole.index(found["stop"])]
    assert found["drawn"][0] == found["drawn"][1] != whole


@pytest.mark.parametrize("library", ["llama.cpp", "transformers"])
def test_the_chat_command_with_a_model(library: str, alone: Path, tmp_path: Path) -> None:
    package, write, name = LIBRARIES[library]
    need(package)
    if library == "transformers":
        need("torch")
    tokenizer, model = tiny_models.tokenizer(), write(tmp_path / name, tiny_models.model(False))
    tokenizer.save(tmp_path / "tok", verbose=False)
    words = ["--tokenizer", tmp_path / "tok", "--model", model, "--template", "alpaca"]
    words += ["--message", "def f(", "--max-tokens", 16, "--temperature", 0, "--n-ctx", 0]
    done = run_with_packages("sys.exit(bpe_tokenizer.main(sys.argv[1:]))", alone, "chat", *words)
    assert (done.returncode, done.stdout) == (0, answer(tokenizer, 16) + "\n"), done.stderr
    assert "Exception ignored" not in done.stderr  # a model that is freed too late
    *_, loaded, speed = done.stderr.splitlines()
    assert loaded.lower().startswith(f"<{library} on cpu: {model}>, context ".lower())
    assert re.fullmatch(r"\d+ \+ \d+ tokens, [\d.]+ a second, ended by (stop|length)", speed)


def test_chat_refuses_the_tokenizer_of_another_model(alone: Path, tmp_path: Path) -> None:
    need("llama_cpp")
    tokenizer = tiny_models.tokenizer()
    model = tiny_models.write_gguf(tmp_path / "model.gguf", tiny_models.model(False))
    tokenizer.add_special_tokens([f"<|{i}|>" for i in range(1000)])
    tokenizer.save(tmp_path / "tok", verbose=False)
    words = ["--tokenizer", tmp_path / "tok", "--model", model, "--template", "alpaca"]
    words += ["--message", "Hi", "--n-ctx", 0]
    done = run_with_packages("sys.exit(bpe_tokenizer.main(sys.argv[1:]))", alone, "chat", *words)
    assert done.returncode == 1 and "this tokenizer is another model's" in done.stderr


def test_a_model_is_loaded_anew_when_its_files_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[Path] = []

    class Fake:
        packages = ("nothing",)

        def __init__(self, files: Any, loading: Any) -> None:
            made.append(files.path)

    (tmp_path / "config.json").write_text('{"vocab_size": 9}')
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"\2\0\0\0\0\0\0\0{}")
    monkeypatch.setattr(bpe_tokenizer, "_loaded", {})
    monkeypatch.setitem(bpe_tokenizer._RUNNERS, "transformers", Fake)
    monkeypatch.setattr(bpe_tokenizer, "_is_installed", lambda package: True)
    how = tmp_path, "transformers", bpe_tokenizer._Loading()
    first = bpe_tokenizer._open_model(*how)
    assert bpe_tokenizer._open_model(*how) is first and len(made) == 1
    os.utime(weights, ns=(1, 1))
    assert bpe_tokenizer._open_model(*how) is not first and len(made) == 2
