"""The repository held to its own rules: one readable module, and documents that stay true."""

from __future__ import annotations

import ast
import contextlib
import copy
import doctest
import importlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import regex
import tiny_models
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import InferenceBackend
from bpe_tokenizer_tools.corpus import records

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "bpe_tokenizer.py"
LINES = SOURCE.read_text(encoding="utf-8").splitlines()
TREE = ast.parse("\n".join(LINES))

LONGEST_FUNCTION = 60  # lines of body, docstring aside
LONG_FUNCTIONS: set[str] = set()  # those that may be longer, three at most

# Packages that features need, each imported where it is used and nowhere else.
OPTIONAL = (
    "datasets huggingface_hub jinja2 llama_cpp matplotlib mlx mlx_lm numpy optimum pyarrow rich"
    " safetensors tokenizers tomli torch tqdm transformers backports"
).split()


def python(
    code: str,
    cwd: Path,
    path: Path = SOURCE.parent,
    more: Mapping[str, str] = MappingProxyType({}),
    **options: object,
) -> subprocess.CompletedProcess[str]:
    """Run code in a new Python, away from the repository; `more` are variables."""
    env = {
        **os.environ,
        **more,
        "PYTHONPATH": str(path),
        "PYTHONIOENCODING": "utf-8",
        "COLUMNS": "80",  # the width that help is printed for
    }
    return subprocess.run(
        [sys.executable, *code.split("\0")],
        cwd=cwd,
        env=env,
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        **options,
    )


def read(name: str) -> str:
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    return path.read_text(encoding="utf-8")


def code_blocks(markdown: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL)


# -- The module's shape -------------------------------------------------------


def test_the_tests_test_this_very_source() -> None:
    assert Path(bpe_tokenizer.__file__).read_bytes() == SOURCE.read_bytes()


def test_section_index_is_that_of_the_banners() -> None:
    index = re.findall(r"^ +(\d+)  (\S.*)$", ast.get_docstring(TREE, clean=False), re.MULTILINE)
    rules = [line for line in LINES if line.startswith("# ==")]
    assert {len(rule) for rule in rules} == {79}
    banners = [re.match(r"# == (\d+)\. (.*\w) =+$", rule) for rule in rules]
    assert all(banners), "a banner without a number"
    assert [number for number, _ in index] == [str(n + 1) for n in range(len(index))]
    assert [banner[1] for banner in banners] == [number for number, _ in index]
    for (number, in_index), banner in zip(index, banners):
        assert in_index.split(":")[0] == banner[2].split(":")[0], f"section {number}"


def functions() -> list[ast.FunctionDef]:
    return [node for node in ast.walk(TREE) if isinstance(node, ast.FunctionDef)]


def body_lines(function: ast.FunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_functions_fit_a_screen() -> None:
    long = {f.name: body_lines(f) for f in functions() if body_lines(f) > LONGEST_FUNCTION}
    assert long.keys() <= LONG_FUNCTIONS, long
    assert LONG_FUNCTIONS <= long.keys(), "no longer long"
    assert len(LONG_FUNCTIONS) <= 3


def test_every_public_name_exists_and_is_documented() -> None:
    assert len(set(bpe_tokenizer.__all__)) == len(bpe_tokenizer.__all__)
    for name in bpe_tokenizer.__all__:
        value = getattr(bpe_tokenizer, name)
        if isinstance(value, type) or callable(value):
            assert value.__doc__, name
        if isinstance(value, type):
            for method, function in vars(value).items():
                if not method.startswith("_") and callable(getattr(value, method)):
                    assert getattr(value, method).__doc__, f"{name}.{method}"
                if isinstance(function, property):
                    assert function.__doc__, f"{name}.{method}"


def test_what_is_public_is_in_all() -> None:
    defined = {
        node.name
        for node in TREE.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    }
    assert defined <= set(bpe_tokenizer.__all__)


def test_examples_in_docstrings_are_true() -> None:
    failed, attempted = doctest.testmod(bpe_tokenizer)
    assert failed == 0
    assert attempted > 20


TOOLS = sorted((SOURCE.parent / "bpe_tokenizer_tools").rglob("*.py"))


def test_functions_of_the_tools_fit_a_screen() -> None:
    assert len(TOOLS) > 25
    for path in TOOLS:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        long = {f.name: body_lines(f) for f in found if body_lines(f) > LONGEST_FUNCTION}
        assert not long, (path, long)


def test_only_one_door_leads_to_what_is_private() -> None:
    """The tools use public names, and what `core.py` takes of the others by an explicit list."""
    classes = [node for node in ast.walk(TREE) if isinstance(node, ast.ClassDef)]
    (face,) = (node for node in classes if node.name == "BPETokenizer")
    inside = {
        node.attr
        for node in ast.walk(face)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and node.attr.startswith("_")
    }
    found = []
    for path in TOOLS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "bpe_tokenizer":
                found += [(path, each.name) for each in node.names if each.name.startswith("_")]
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                of = ast.unparse(node.value)
                private = of in ("core", "bpe_tokenizer") and not node.attr.startswith("__")
                if private or (of.endswith("tokenizer") and node.attr in inside):
                    found.append((path, f"{of}.{node.attr}"))
    assert {path.name for path, _ in found} == {"core.py"}, found


def test_examples_in_docstrings_of_the_tools_are_true() -> None:
    attempted = 0
    has_numpy = importlib.util.find_spec("numpy") is not None
    for path in TOOLS:
        source = path.read_text(encoding="utf-8")
        if ">>> " in source and (has_numpy or '"numpy"' not in source):
            name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
            try:
                module = importlib.import_module(name)
            except ImportError:
                assert not has_numpy, name
                continue
            failed, tried = doctest.testmod(module)
            assert failed == 0, name
            attempted += tried
    assert attempted >= 9


# -- What importing it costs, and needs ---------------------------------------


def test_import_loads_no_optional_package(tmp_path: Path) -> None:
    code = (
        "import sys, bpe_tokenizer as b\n"
        "t = b.BPETokenizer().train('low lower ' * 9, vocab_size=260, verbose=False)\n"
        "t.save('t', verbose=False)\n"
        "u = b.BPETokenizer.from_pretrained('t', verbose=False)\n"
        "assert u.decode(u.encode_batch(['low'])[0].input_ids) == 'low'\n"
        "b.detect_best_backend(verbose=False)\n"
        "print(*sys.modules)"
    )
    done = python(f"-c\0{code}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert not set(OPTIONAL) & set(done.stdout.split())


def alone(arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder with a copy of the module and of `regex`, and no other package."""
    shutil.copy(SOURCE, folder)
    shutil.copytree(Path(regex.__file__).parent, folder / "regex", dirs_exist_ok=True)
    return python(f"-S\0{arguments}", folder, path=folder)  # -S: not even what is installed


def test_it_works_alone_in_a_folder(tmp_path: Path) -> None:
    """Vendored: a copy of the file, and nothing else of this repository on the path."""
    (tmp_path / "corpus.txt").write_text("low lower lowest\n" * 50)
    for arguments in (
        "train --corpus corpus.txt --output t --vocab-size 270 --quiet",
        "encode --tokenizer t --text low",
        "decode --tokenizer t --ids 104 105",
        "info --tokenizer t",
        "train corpus.txt --output u --vocab-size 270 --quiet",
        "encode low --tokenizer t",
        "decode 104 105 --tokenizer t",
        "info t",
    ):
        done = alone("\0".join(["bpe_tokenizer.py", *arguments.split()]), tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


ALONE = """
import sys
import bpe_tokenizer as bpe
from bpe_tokenizer import BPETokenizer, SPLIT_PATTERNS

TEXT = "The quick, brown fox: 12 jumps! It's 345.\\n\\n  \u4e16\u754c\u3042, caf\u00e9?\\n" * 9
CUSTOM = r"\\w+|\\W"

def trained(pattern):
    return BPETokenizer(pattern).train(TEXT, vocab_size=300, verbose=False)

def error(kind, call, *arguments):
    try:
        call(*arguments)
    except kind as found:
        return str(found)
    raise SystemExit("no error")

for name in SPLIT_PATTERNS:
    tokenizer = trained(name)
    tokenizer.save(name, verbose=False)
    loaded = BPETokenizer.from_pretrained(name, verbose=False)
    assert loaded == tokenizer and loaded.split_pattern == SPLIT_PATTERNS[name]
    streamed = list(loaded.encode_streaming(TEXT[i : i + 7] for i in range(0, len(TEXT), 7)))
    assert sum(streamed, []) == tokenizer.encode(TEXT) and len(streamed) > 50, len(streamed)

custom = trained(CUSTOM)
streamed = list(custom.encode_streaming(TEXT[i : i + 7] for i in range(0, len(TEXT), 7)))
assert [ids for ids in streamed if ids] == [custom.encode(TEXT)]
print(error(ImportError, custom.save, "custom"))
print(error(bpe.FileFormatError, BPETokenizer.from_pretrained, "given"))
assert "bpe_tokenizer_tools" not in sys.modules and "_bpe_tokenizer" not in sys.modules
"""


def test_alone_it_works_with_named_patterns_and_says_what_others_need(tmp_path: Path) -> None:
    given = bpe_tokenizer.BPETokenizer(r"\w+|\W")
    given.train("low lower " * 9, vocab_size=260, verbose=False).save(tmp_path / "given")
    done = alone(f"-c\0{ALONE}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    saving, loading = done.stdout.splitlines()
    needed = "not in SPLIT_PATTERNS needs bpe_tokenizer_tools beside bpe_tokenizer.py: copy that"
    assert needed in saving and needed in loading
    assert "pre_tokenizer.pretokenizers[0].pattern.Regex" in loading
    assert not (tmp_path / "custom").exists()


ALONE_CORPORA = """
import bz2, gzip, json, lzma, pathlib, sys
from bpe_tokenizer import FileFormatError, PretokenCounts, count_pretokens

def error(kind, corpus, **options):
    try:
        count_pretokens(corpus, **options)
    except kind as found:
        return str(found)
    raise SystemExit(f"no error: {corpus}")

texts = ["low lower", "naïve\\r\\n\\n  世界", "\\U0001f642" * 9]
lines = "".join(json.dumps({"body": text}) + "\\n\\n" for text in texts).encode()
expected = count_pretokens(texts, num_workers=2)
assert "bpe_tokenizer_tools" not in sys.modules
packers = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
for end, pack in packers.items():
    path = pathlib.Path("b.JSONL" + end)
    path.write_bytes(pack(lines))
    counts = count_pretokens(path, text_field="body")
    assert counts == expected and counts.documents == 3
    pathlib.Path("c.txt" + end).write_bytes(pack("\\n".join(texts).encode()))
    assert count_pretokens(["c.txt" + end]) == count_pretokens(["\\n".join(texts)])
    assert "'body'" in error(FileFormatError, path)
    if end:
        path.write_bytes(pack(lines * 99)[:-20])
        assert f"damaged {end} file" in error(FileFormatError, path, text_field="body")
path = pathlib.Path("bad.jsonl")
path.write_bytes(lines + b"{")
assert "bad.jsonl: line 7: not JSON" in error(FileFormatError, path, text_field="body")
for name, package in {"a.txt.zst": "backports.zstd", "a.parquet": "bpe_tokenizer_tools"}.items():
    pathlib.Path(name).write_bytes(b"")
    if sys.version_info < (3, 14) or package != "backports.zstd":
        needed = error(ImportError, name)
        assert needed.startswith(f"reading {pathlib.Path(name).suffix} files needs "), needed
        assert package in needed
expected.save("counts.json")
back = PretokenCounts.load("counts.json")
assert (back, vars(back)) == (expected, vars(expected))
"""


def test_alone_it_reads_compressed_files_and_records_and_keeps_counts(tmp_path: Path) -> None:
    done = alone(f"-c\0{ALONE_CORPORA}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    kept = bpe_tokenizer.PretokenCounts.load(tmp_path / "counts.json")
    kept.save(tmp_path / "again.json")
    facts = {name: value for name, value in vars(kept).items() if name != "in_order"}
    records.write_counts(tmp_path / "tools.json", facts, sorted(kept.items()))
    written = (tmp_path / "counts.json").read_bytes()
    assert written == (tmp_path / "again.json").read_bytes()
    assert written == (tmp_path / "tools.json").read_bytes()
    assert records.load_counts(tmp_path / "counts.json") == kept


def test_train_refuses_a_pattern_it_cannot_save_before_the_work(tmp_path: Path) -> None:
    command = "-m\0bpe_tokenizer\0train\0--corpus\0none.txt\0--output\0t\0--pattern\0"
    for done, reason in (
        (python(command + r"(a)\1|.", tmp_path), "cannot be written to tokenizer.json"),
        (alone(command + r"\w+|\W", tmp_path), "needs bpe_tokenizer_tools beside"),
    ):
        assert done.returncode == 1 and reason in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1


# -- Documents that stay true -------------------------------------------------


def test_the_tour_runs_offline_and_leaves_nothing(tmp_path: Path) -> None:
    before = os.times()
    done = python(str(ROOT / "example_usage.py"), tmp_path, timeout=600)
    after = os.times()
    assert done.returncode == 0, done.stderr
    # Of the processor: a busy machine takes longer, but not more of it.
    assert sum(after[2:4]) - sum(before[2:4]) < 60
    assert done.stderr == ""
    assert "DIFFERENT" not in done.stdout, done.stdout
    assert len(done.stdout.splitlines()) <= 48  # two screens
    assert list(tmp_path.iterdir()) == []
    check_the_tour(done.stdout, alone=False)


def test_the_tour_runs_with_the_module_alone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "example_usage.py", tmp_path)
    before = os.times()
    done = alone("example_usage.py", tmp_path)
    after = os.times()
    assert (done.returncode, done.stderr) == (0, "")
    assert sum(after[2:4]) - sum(before[2:4]) < 60
    check_the_tour(done.stdout, alone=True)


def check_the_tour(out: str, alone: bool) -> None:
    """Look at each line of the tour that says something."""
    headings = re.findall(r"^\d\. ([\w ]+)", out, re.MULTILINE)
    stops = ["Train", "Encode and decode", "Chat templates", "Save and load", "Speed", "Models"]
    assert headings == stops
    facts = dict(re.findall(r"^  (.{34}) (.*)$", out, re.MULTILINE))
    said = {name.strip(): value for name, value in facts.items()}
    assert len(said) == len(out.splitlines()) - len(headings)  # each line has a name of its own
    # Whole words, which occur as such: no "ttributeError".
    words = ast.literal_eval(said["the longest whole words"])
    source = "".join(
        file.read_text("utf-8", "replace")
        for file in Path(sysconfig.get_path("stdlib")).glob("*.py")
        if file.is_file()
    )
    assert all(len(re.findall(rf" {word.strip()}\b", source)) > 20 for word in words)
    assert said["ids of é and of e with an accent"] == "the same, by NFC"
    assert said["these ids, decoded"] == said["a text"]
    plain = ast.literal_eval(said["Hi<|im_end|> as ordinary text"])
    special = ast.literal_eval(said["with <|im_end|> as a special token"])
    assert special[:2] == plain[:2] == list(b"Hi") and len(special) == 3 < len(plain)
    rows = ast.literal_eval(said["two texts, padded to one length"])
    assert len({*map(len, rows)}) == 1
    assert said["these two, decoded"] == "['import os', 'for x in range(3):']"
    assert said["ids of the first text, in 4 pieces"] == "the same"
    assert "<|im_start|>user" in said["a question by chatml"]
    assert "<|start_header_id|>user" in said["a question by llama3"]
    assert "### Instruction:" in said["a question by alpaca"]
    assert "<|im_start|>system" in said["a user types control tokens"]
    assert said["turns that the user forged"] == "0"
    assert "tokenizer.json" in said["files"] and said["loaded again"] == "the same"
    assert " MB of code that it hasn't seen (packages asyncio to xml), one thread" in out
    [speed] = [said[name] for name in said if name.startswith("encode, with")]
    assert re.fullmatch(r"[\d,]+\.\d MB/s", speed)
    peer = said["tiktoken, with this vocabulary"]
    if alone:
        assert peer == "not measured: pip install tiktoken"
        assert said["ids by HuggingFace's tokenizers"] == "not compared: pip install tokenizers"
        assert said["texts as an array"] == "needs NumPy: pip install numpy"
    elif importlib.util.find_spec("tiktoken"):
        assert re.fullmatch(r"[\d,]+\.\d MB/s; ids: the same", peer)
    assert said["the best backend here"] in {each.value for each in InferenceBackend}
    assert said["chat"].startswith("set BPE_MODEL_PATH to ")


def test_the_tour_chats_with_a_model(tmp_path: Path) -> None:
    for library in ("torch", "transformers", "numpy"):
        need(library)
    path = tiny_models.write(tmp_path, "transformers", tied=True)
    tokenizer = copy.copy(tiny_models.tokenizer())
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    tokenizer.save(path, verbose=False)
    model = {"BPE_MODEL_PATH": str(path)}
    done = python(str(ROOT / "example_usage.py"), tmp_path, more=model, timeout=600)
    assert done.returncode == 0, done.stderr
    [answer] = re.findall(r"^  What is BPE\? +(.*)$", done.stdout, re.MULTILINE | re.DOTALL)
    assert answer


def test_the_tour_says_what_is_wrong_with_a_model(tmp_path: Path) -> None:
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import example_usage as it; it.talk()"
    missing = {"BPE_MODEL_PATH": str(tmp_path / "nowhere")}
    done = python(f"-c\0{script}", tmp_path, more=missing)
    assert done.returncode == 1
    assert done.stderr.startswith("BPE_MODEL_PATH: ") and done.stderr.count("\n") == 1
    assert "nowhere: no such file or directory" in done.stderr


def test_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## \[?([^\]\s]+)", read("CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == bpe_tokenizer.__version__


def test_quick_start_holds_two_commands() -> None:
    readme = read("README.md")
    assert re.findall(r"^## (.*)$", readme, re.MULTILINE)[0] == "Quick start"
    first = re.findall(r"^```(\w*)\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[0]
    assert first[0] == "bash"
    assert len(first[1].splitlines()) == 2


def test_readme_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = code_blocks(read("README.md"), "python")
    assert blocks
    names: dict[str, object] = {"__name__": "readme"}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in blocks:
            exec(compile(block, "README.md", "exec"), names)


def test_readme_commands_are_known(tmp_path: Path) -> None:
    """Every `bpe-tokenizer COMMAND --option` in the documents is one that there is."""
    helps: dict[str, str] = {}
    text = read("README.md").replace("\\\n", " ")
    for line in re.findall(r"^.*bpe-tokenizer (?:train|encode|decode|chat|info) .*$", text, re.M):
        command, rest = re.findall(r"bpe-tokenizer (\w+) (.*)", line)[0]
        if command not in helps:
            helps[command] = python(f"-m\0bpe_tokenizer\0{command}\0--help", tmp_path).stdout
        for option in re.findall(r"(?<=\s)--[a-z-]+", rest):
            assert option in helps[command], line


def test_help_shown_in_the_readme_is_the_real_one(tmp_path: Path) -> None:
    blocks = [b for b in code_blocks(read("README.md"), "(?:text|console)?") if "usage: bpe" in b]
    for block in blocks:
        words = re.findall(r"usage: bpe-tokenizer (\w*)", block)[0]
        arguments = "\0".join(filter(None, [words, "--help"]))
        done = python(f"-m\0bpe_tokenizer\0{arguments}", tmp_path)
        assert done.stdout.strip() in block
