"""The module, the tools and the engine: of one version and whole, or an error that says so."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import regex
from conftest import EITHER_ENGINE, ROOT
from oracles import need

import _bpe_tokenizer
import bpe_tokenizer
import bpe_tokenizer_tools
from bpe_tokenizer import BPETokenizer

pytestmark = EITHER_ENGINE

VERSION = bpe_tokenizer.__version__
WRITTEN = f'__version__ = "{VERSION}"'
NO_CACHE = shutil.ignore_patterns("__pycache__")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of the module, the tools and `regex`, and with what they read."""
    folder = tmp_path / "copy"
    folder.mkdir()
    shutil.copy(bpe_tokenizer.__file__, folder)
    shutil.copytree(Path(regex.__file__).parent, folder / "regex", ignore=NO_CACHE)
    tools = Path(str(bpe_tokenizer_tools.__file__)).parent
    shutil.copytree(tools, folder / "bpe_tokenizer_tools", ignore=NO_CACHE)
    tokenizer = BPETokenizer().train("low lower lowest " * 20, 265, verbose=False)
    tokenizer.save(folder / "tok", verbose=False)
    (folder / "transformers.py").touch()  # it is only found, not used
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text("low lower\n")
    return folder


def run(folder: Path, *words: str, accelerated: bool = False) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder whose modules come first; all others hide if not `accelerated`."""
    given = {**os.environ, "PYTHONPATH": str(folder), "BPE_TOKENIZER_PURE": "01"[not accelerated]}
    command = [sys.executable, *["-S"] * (not accelerated), *words]
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, encoding="utf-8")


def rewrite(file: Path, old: str, new: str) -> None:
    written = file.read_text(encoding="utf-8")
    assert written.count(old) == 1
    file.write_text(written.replace(old, new), encoding="utf-8")


# -- Where the version is written -------------------------------------------------


def test_all_parts_are_of_one_version() -> None:
    assert bpe_tokenizer_tools.__version__ == _bpe_tokenizer.__version__ == VERSION


def test_what_is_published_has_that_version() -> None:
    project = ROOT / "pyproject.toml"
    if not project.exists():
        pytest.skip("pyproject.toml is not here")
    settings = project.read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in settings and not re.search(r"^version\s*=\s*\"", settings)
    assert 'version = { attr = "bpe_tokenizer.__version__" }' in settings
    recipe = (ROOT / "conda.recipe" / "recipe.yaml").read_text(encoding="utf-8")
    assert re.findall(r'^  version: "(.*)"$', recipe, re.MULTILINE) == [VERSION]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.*?)\]", changes, re.MULTILINE)[0] == VERSION


def test_requirements_name_what_is_needed_and_the_extras_of_the_rest() -> None:
    file = ROOT / "requirements.txt"
    if not file.exists():
        pytest.skip("requirements.txt is not here")
    project = need("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(
        (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    lines = file.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == project["dependencies"]
    listed = re.findall(r"^# (\S+) +# pip install '\.\[(\S+)\]' ", "\n".join(lines), re.M)
    assert {package for package, _ in listed} == {
        *("huggingface_hub", "numpy", "torch", "transformers"),
        *("llama-cpp-python", "mlx-lm", "optimum-intel"),
    }
    for package, extra in listed:
        names = [re.split(r"[\[<>=;]", each)[0] for each in project["optional-dependencies"][extra]]
        assert package in names, f"the extra {extra} doesn't have {package}"


# -- Parts of other versions ------------------------------------------------------

PROGRAMS = {
    "import": ["-c", "import bpe_tokenizer"],
    "import of a tool": ["-c", "import bpe_tokenizer_tools.formats"],
    "script": ["bpe_tokenizer.py", "info", "tok"],
    "-m": ["-m", "bpe_tokenizer", "info", "tok"],
    "command": ["-c", "import sys, bpe_tokenizer_tools.start as it; sys.exit(it.main())"],
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("version", ["0.9.0", "0.10.1", None])
def test_tools_of_another_version_are_an_error(
    copy: Path, program: str, version: str | None
) -> None:
    tools = copy / "bpe_tokenizer_tools"
    new = f'__version__ = "{version}"' if version else ""
    rewrite(tools / "__init__.py", WRITTEN, new)
    done = run(copy, *PROGRAMS[program])
    assert (done.returncode, done.stdout) == (1, "")
    told = done.stderr.splitlines()[-1]
    if not program.startswith("import"):
        assert done.stderr == f"bpe-tokenizer: error: {told.partition('error: ')[2]}\n"
    found = f"bpe_tokenizer_tools {version or 'older than 0.10'} ({tools})"
    assert f"bpe_tokenizer {VERSION} ({copy / 'bpe_tokenizer.py'}) can't use {found}" in told
    assert f"only {VERSION}; copy both from one release, delete one of them, or run 'pip" in told


def test_tools_without_their_first_file_are_an_error(copy: Path) -> None:
    (copy / "bpe_tokenizer_tools" / "__init__.py").unlink()
    done = run(copy, "-c", "import bpe_tokenizer")
    assert done.returncode == 1
    assert f"bpe_tokenizer_tools in {copy / 'bpe_tokenizer_tools'}, which " in done.stderr
    assert "has no __init__.py; copy both from one release" in done.stderr


@pytest.mark.parametrize("what", ["tools", "engine"])
def test_an_older_module_gets_no_other_tools_and_no_other_engine(copy: Path, what: str) -> None:
    """Before 0.10 the module took an ImportError for parts that aren't there."""
    module = copy / "bpe_tokenizer.py"
    rewrite(module, WRITTEN, '__version__ = "0.9.0"')
    rewrite(module, "    found = getattr(package", "    return\n    found = getattr(package")
    doing = {
        "tools": "import contextlib\nwith contextlib.suppress(ImportError):\n"
        "    bpe_tokenizer._tools('formats.kept')",
        "engine": "import contextlib\nwith contextlib.suppress(ImportError):\n"
        "    import _bpe_tokenizer.engine",
    }
    if what == "engine" and not bpe_tokenizer.ACCELERATED:
        pytest.skip("the engine in C is not in use")
    program = f"import bpe_tokenizer\n{doing[what]}"
    done = run(copy, "-c", program, accelerated=what == "engine")
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    name = {"tools": "bpe_tokenizer_tools", "engine": "_bpe_tokenizer"}[what]
    assert told.startswith(f"RuntimeError: {name} {VERSION} (")
    assert f"can't be used by bpe_tokenizer 0.9.0 ({module}), only by {VERSION}; " in told


def test_a_copy_by_another_name_is_alone(copy: Path) -> None:
    (copy / "bpe_tokenizer.py").rename(copy / "vendored.py")
    rewrite(copy / "bpe_tokenizer_tools" / "__init__.py", WRITTEN, '__version__ = "9.9"')
    code = (
        "import vendored\n"
        "ids = vendored.BPETokenizer.from_file('tok').encode('low')\n"
        "print(vendored.ACCELERATED, vendored._WITH_TOOLS, len(ids))"
    )
    done = run(copy, "-c", code, accelerated=True)
    assert (done.stdout, done.stderr) == ("False False 1\n", "")


IN_MEMORY = """
import importlib.abc, importlib.util, sys
from pathlib import Path

class Loader(importlib.abc.InspectLoader):
    def __init__(self, path): self.path = path
    def get_source(self, name): return self.path.read_text(encoding="utf-8")
    def is_package(self, name): return self.path.stem == "__init__"

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        at = Path(*name.split("."))
        for path in (at / "__init__.py", at.with_suffix(".py")):
            if "bpe_tokenizer" in name and path.exists():
                return importlib.util.spec_from_loader(name, Loader(path))

sys.meta_path.insert(0, Finder())
import bpe_tokenizer as b
print(hasattr(b, "__file__"), b._WITH_TOOLS, b.main(["encode", "low", "-t", "tok", "--json"]))
"""


def test_parts_in_memory_have_no_files(copy: Path) -> None:
    """As programs that are frozen import them."""
    done = run(copy, "-c", IN_MEMORY)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "False True 0"
    rewrite(copy / "bpe_tokenizer_tools" / "__init__.py", WRITTEN, '__version__ = "9.9"')
    done = run(copy, "-c", IN_MEMORY)
    told = f"bpe_tokenizer {VERSION} (in memory) can't use bpe_tokenizer_tools 9.9 (in memory), "
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: {told}")


def test_the_source_may_be_run_without_a_file(copy: Path) -> None:
    program = (
        "import sys; sys.argv = ['x', 'encode', 'low', '-t', 'tok', '--json']\n"
        "exec(open('bpe_tokenizer.py', encoding='utf-8').read())"
    )
    done = run(copy, "-c", program)
    assert (done.returncode, done.stderr) == (0, "") and "input_ids" in done.stdout


# -- Tools that are broken --------------------------------------------------------

# Each is a file, and a program that went on without it, with another answer or none.
SILENT = {
    "formats/kept.py": "b.BPETokenizer.from_file('tok')",
    "formats/__init__.py": "b._check_writable(__import__('pathlib').Path('texts'))",
    "formats/loaders.py": "b.BPETokenizer().save('new', verbose=True)",
    "formats/components.py": "b._reader_of('it', b._JsonReader({}, '.'))",
    "support/transactions.py": "b.BPETokenizer().save('new')",
    "support/streaming.py": "b.BPETokenizer().encode_iterable(['a'])",
    "support/progress.py": "b._progress('it', 'B', 1, True)",
    "corpus/directories.py": "b.count_pretokens('texts')",
    "corpus/records.py": "b.PretokenCounts.load('texts/a.txt')",
    "corpus/process_pool.py": "b._PretokenCounter._BATCH_CHARS = 4\n"
    "b.count_pretokens(['low lower'] * 3, num_workers=2)",
    "patterns/safe_cuts.py": r"b.BPETokenizer(r'\w+|\W')",
    "patterns/re_dialect.py": "b._splitter(b.GPT2_SPLIT_PATTERN).split('low ' * 50_000)",
    "chat/jinja_version.py": "b.BPETokenizer().chat_template = '{{ 1 }}'",
    "dropin/twin.py": "b.BPETokenizer().pad",
    "command_line.py": "b._build_parser()",
    "commands/__init__.py": "b._build_parser()",
}
BROKEN = {
    "lacks a package": ("import a_package_that_is_missing\n", "a_package_that_is_missing"),
    "is damaged": ("def\n", "SyntaxError"),
    "is gone": (None, "lacks a file: "),
}


@pytest.mark.parametrize(
    ("name", "how"),
    [(name, "lacks a package") for name in SILENT]
    + [("formats/kept.py", "is damaged"), ("formats/kept.py", "is gone")],
)
def test_a_broken_tool_is_no_silence(copy: Path, name: str, how: str) -> None:
    program = f"import bpe_tokenizer as b\n{SILENT[name]}"
    done = run(copy, "-c", program)
    if name != "corpus/records.py":  # which says that the file is another
        assert done.returncode == 0, done.stderr
    written, problem = BROKEN[how]
    file = copy / "bpe_tokenizer_tools" / name
    if written is None:
        file.unlink()
    else:
        file.write_text(written)
    done = run(copy, "-c", program)
    assert done.returncode == 1 and "FileFormatError" not in done.stderr
    assert problem in done.stderr, done.stderr
    if written is None:
        folder = copy / "bpe_tokenizer_tools"
        assert f"bpe_tokenizer_tools {VERSION} in {folder} lacks a file: " in done.stderr
        assert f"copy the folder of bpe_tokenizer {VERSION} again, or run 'pip" in done.stderr


@pytest.mark.parametrize("name", ["known", "digits", "automaton"])
def test_a_broken_tool_of_the_engine_is_no_silence(copy: Path, name: str) -> None:
    if not bpe_tokenizer.ACCELERATED:
        pytest.skip("the engine in C is not in use")
    (copy / "bpe_tokenizer_tools" / "patterns" / f"{name}.py").write_text("import nowhere_at_all\n")
    program = (
        "import bpe_tokenizer as b\n"
        r"pattern = b.GPT2_SPLIT_PATTERN.replace(r' ?\p{N}+', r'(?<!\p{N})\p{N}+')"
        "\nb.BPETokenizer(pattern, normalizer=None).encode('low 12')"
    )
    done = run(copy, "-c", program, accelerated=True)
    assert done.returncode == 1 and "nowhere_at_all" in done.stderr, done.stderr


def test_a_broken_tool_is_one_line_for_a_command(copy: Path) -> None:
    (copy / "bpe_tokenizer_tools" / "formats" / "kept.py").unlink()
    done = run(copy, "bpe_tokenizer.py", "info", "tok")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"bpe-tokenizer: error: bpe_tokenizer_tools {VERSION} in {copy}")


# -- The rule in the source -------------------------------------------------------

OWN = re.compile(r"\b_?bpe_tokenizer(_tools)?\b|\b_tools\(")
# Those that decide what is there, or report what isn't.
DECIDING = {
    *(("bpe_tokenizer.py", name) for name in ("_find_tools", "_tools", "_find_engine")),
    ("start.py", "main"),
    ("ray.py", "do_task"),
}


class Catching(ast.NodeVisitor):
    """Finds what stands where an ImportError is caught, and in which function."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._function = ""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before, self._function = self._function, node.name
        self.generic_visit(node)
        self._function = before

    def visit_Try(self, node: ast.Try) -> None:
        self._add(node.body, [each.type for each in node.handlers if each.type])
        self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        self._add(node.body, [item.context_expr for item in node.items])
        self.generic_visit(node)

    def _add(self, body: list[ast.stmt], caught: list[ast.expr]) -> None:
        if re.search("ImportError|ModuleNotFoundError", " ".join(map(ast.unparse, caught))):
            self.found.append((self._function, "\n".join(map(ast.unparse, body))))


def test_no_import_of_our_own_is_tried() -> None:
    found = set()
    paths = [ROOT / "bpe_tokenizer.py"]
    for folder in ("bpe_tokenizer_tools", "accelerator/_bpe_tokenizer"):
        paths += (ROOT / folder).rglob("*.py")
    for path in paths:
        visitor = Catching()
        visitor.visit(ast.parse(path.read_text(encoding="utf-8")))
        found |= {(path.name, name) for name, inside in visitor.found if OWN.search(inside)}
    assert found == DECIDING


def test_deciding_costs_little(copy: Path) -> None:
    """The package of the tools holds a version and nothing else, and imports nothing."""
    tools = Path(str(bpe_tokenizer_tools.__file__))
    body = ast.parse(tools.read_text(encoding="utf-8")).body
    assert [type(node) for node in body] == [ast.Expr, ast.Assign]
    code = (
        "import json, sys; before = {*sys.modules}; import bpe_tokenizer_tools; "
        "print(json.dumps(sorted({*sys.modules} - before)))"
    )
    assert json.loads(run(copy, "-c", code).stdout) == ["bpe_tokenizer_tools"]
