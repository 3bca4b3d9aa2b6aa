r"""The documents held to what they say: their code is run, their commands are parsed.

For those who write a page in docs/:

- Every ```` ```python ```` block is run, in order, all of a page in one namespace, in an empty
  directory. What it prints must be, exactly, the ```` ```text ```` (or ```` ```output ````) block
  that follows it with nothing but empty lines between; a block that prints has to be followed by
  one. Code that shows nothing prints nothing. The blocks of a page together should take less than
  three seconds.
- `<!-- needs: numpy -->` anywhere on a page says which modules its code needs; where one is
  missing, the page is skipped, with the reason.
- Code finds `tests/data/` as from the root of the repository, and public encodings by name
  (`BPETokenizer.from_pretrained("o200k_base")`) without the network.
- `<!-- not run: the reason -->` right before a python block leaves that block out, and
  `<!-- output varies: the reason -->` what it prints.
- Commands stand in ```` ```bash ```` (or ```` ```console ````) blocks, as `bpe-tokenizer …` or
  `$ bpe-tokenizer …`, or behind `$ ` in a ```` ```text ```` block. They are not run: a command or
  option that does not exist is an error. Lines may end in a backslash, or go through pipes.
- Every relative link, image and `#heading` must be there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import EITHER_ENGINE, ROOT
from oracles import REQUIRED, missing, need
from samples import as_in_the_clone, unpacked

import bpe_tokenizer

pytestmark = EITHER_ENGINE

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [
    path for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES] if path.exists()
]
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
EVERY_DOCUMENT = pytest.mark.parametrize("page", DOCUMENTS, ids=lambda path: path.name)


# -- Reading a page -------------------------------------------------------------


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    code: str
    start: int  # characters before it
    end: int  # characters up to its end
    line: int  # of its first line, from 1


_FENCE = re.compile(r"^(`{3,})([\w-]*)[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_NEEDS = re.compile(r"<!--\s*needs:\s*(.*?)\s*-->")
_MARK = re.compile(r"<!--\s*(not run|output varies): *[^\s-](?:(?!-->).)*-->\s*\Z", re.S)


def blocks(text: str) -> list[Block]:
    return [
        Block(found[2], found[3], *found.span(), text.count("\n", 0, found.start(3)) + 1)
        for found in _FENCE.finditer(text)
    ]


class Example(NamedTuple):
    """Code of a page, and what the page says that it prints."""

    code: str
    line: int
    output: str | None
    varies: bool


def examples(text: str) -> Iterator[Example]:
    found = blocks(text)
    followers = [*found[1:], Block("", "", len(text) + 1, 0, 0)]
    for block, after in zip(found, followers):
        mark = _MARK.search(text[: block.start])
        if block.language == "python" and not (mark and mark[1] == "not run"):
            shown = after.language in ("text", "output")
            shown = shown and not text[block.end : after.start].strip()
            yield Example(block.code, block.line, after.code if shown else None, bool(mark))


def missing_need(text: str) -> str | None:
    """Say which of the things that a page needs is not here."""
    for name in re.findall(r"[^\s,]+", ",".join(_NEEDS.findall(text))):
        if name not in REQUIRED and (reason := missing(name)):
            return reason
    return None


# -- Running it -------------------------------------------------------------------


def run_page(text: str, name: str, module: types.ModuleType) -> None:
    """Run the examples of a page; raise if one fails, or prints something else."""
    for example in examples(text):
        printed = io.StringIO()
        # so that a traceback shows the page's own line
        code = compile("\n" * (example.line - 1) + example.code, name, "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, vars(module))
        place = f"{name}:{example.line}"
        if example.varies:
            assert printed.getvalue(), f"{place} prints nothing, which cannot vary"
        elif example.output is None:
            assert printed.getvalue() == "", f"{place} prints what the page does not show"
        else:
            assert printed.getvalue() == example.output, place


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A directory to be in, with nothing but tests/data; and a namespace for the code."""
    as_in_the_clone(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(unpacked()))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("NO_COLOR", "1")
    module = types.ModuleType("a_page_of_the_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@EVERY_PAGE
def test_code_prints_what_the_page_shows(page: Path, workplace: types.ModuleType) -> None:
    text = page.read_text(encoding="utf-8")
    if not list(examples(text)):
        pytest.skip("no code on this page")
    reason = missing_need(text)
    if reason:
        pytest.skip(reason)
    name = str(page.relative_to(ROOT))
    run_page(text, name, workplace)


PAGE = """\
```python
n = 1
```

```python
print(n)
```

```text
1
```

<!-- not run: takes a day -->
```python
print("never")
```
"""


def test_a_page_that_is_right_passes(workplace: types.ModuleType) -> None:
    assert [each[1:] for each in examples(PAGE)] == [(2, None, False), (6, "1\n", False)]
    run_page(PAGE, "page", workplace)
    varies = PAGE.replace("not run", "output varies")
    run_page(varies, "page", workplace)


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        (PAGE.replace("1\n```\n\n<", "2\n```\n\n<"), "page:6"),
        (PAGE.replace("```text", "That is:\n\n```text"), "page:6 prints what"),
        (PAGE.replace("```text", "```bash"), "page:6 prints what"),
        (PAGE.replace("not run: takes", "takes"), "page:15 prints what"),
        (PAGE.replace("not run: takes a day", "not run:"), "page:15 prints what"),
        (PAGE.replace("not run", "output varies").replace('"never"', "end=''"), "which cannot"),
    ],
)
def test_a_page_that_is_wrong_fails(page: str, problem: str, workplace: types.ModuleType) -> None:
    with pytest.raises(AssertionError, match=problem):
        run_page(page, "page", workplace)


def test_what_a_page_needs() -> None:
    assert missing_need("<!-- needs: pytest, json -->") is None
    assert missing_need("<!-- needs: json -->\n<!-- needs: no_such_module -->") == (
        "no_such_module is not installed: pip install 'no_such_module'"
    )


# -- Commands -----------------------------------------------------------------------


def commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of every call of bpe-tokenizer in the blocks for a shell."""
    for block in blocks(text):
        in_shell = block.language in ("bash", "sh", "console")
        if in_shell or block.language in ("", "text"):
            lines = block.code.replace("\\\n", " ").splitlines()
            lines = [line for line in lines if in_shell or line.startswith("$ ")]
            for line in lines:
                if "bpe-tokenizer" in line or "-m bpe_tokenizer" in line:
                    yield from calls(line.removeprefix("$ "))


def calls(line: str) -> Iterator[list[str]]:
    """Yield the arguments of every call of bpe-tokenizer in a line for a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#" if not re.search(r"\S#", line) else ""
    words = [*lexer, ";"]
    call: list[str] = []
    skip = False
    for word in words:
        if skip or set(word) <= set("<>"):
            skip = not skip  # where to, or from, is no argument
        elif set(word) <= set("|;&()"):
            rest = call[call.index("bpe-tokenizer") + 1 :] if "bpe-tokenizer" in call[:2] else []
            if call[1:3] == ["-m", "bpe_tokenizer"]:
                rest = call[3:]
            if rest:
                yield rest
            call = []
        elif call or not re.match(r"\w+=", word):  # NAME=value sets the environment
            call.append(word)


def problem_of(arguments: list[str], parser: argparse.ArgumentParser) -> str | None:
    """Say what the command line finds wrong with arguments."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            parser.parse_args(arguments)
        except SystemExit as end:
            return said.getvalue() if end.code else None
    return None


@EVERY_DOCUMENT
def test_commands_are_known(page: Path) -> None:
    parser = bpe_tokenizer._build_parser()
    for arguments in commands(page.read_text(encoding="utf-8")):
        assert problem_of(arguments, parser) is None, shlex.join(arguments)


@pytest.mark.usefixtures("workplace")
def test_the_commands_of_the_page_run_twice() -> None:
    need("numpy")  # `pack`
    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    for name in ("README.md", "CHANGELOG.md"):
        Path(name).write_bytes((ROOT / name).read_bytes())
    wanted = ("train", "encode", "decode", "info", "convert", "count", "pack")
    runs = [each for each in commands(text) if each[0] in wanted and "-" not in each]
    runs.remove(["encode", "Hi", "-t", "o200kbase"])  # whose error the page shows
    assert {each[0] for each in runs} == set(wanted)
    for _ in range(2):
        for arguments in runs:
            assert bpe_tokenizer.main(arguments) == 0, shlex.join(arguments)


def test_commands_are_found() -> None:
    text = (
        "```bash\nzcat x | bpe-tokenizer encode --text - \\\n  --json > ids.txt  # all\n"
        "$ NO_COLOR=1 bpe-tokenizer info; python -m bpe_tokenizer check 'a b',c:d\npip\n```\n"
        "```text\n$ bpe-tokenizer check a\nbpe-tokenizer is fine\n```\n"
    )
    assert list(commands(text)) == [
        ["encode", "--text", "-", "--json"],
        ["info"],
        ["check", "a b,c:d"],
        ["check", "a"],
    ]


def test_wrong_commands_are_told() -> None:
    parser = bpe_tokenizer._build_parser()
    assert problem_of(["check", "x", "--json"], parser) is None
    assert "unrecognized arguments: --jsn" in str(problem_of(["check", "x", "--jsn"], parser))
    assert "invalid choice: 'chek'" in str(problem_of(["chek", "x"], parser))


# -- Links --------------------------------------------------------------------------


def prose(text: str) -> str:
    """Return a page without its code."""
    return re.sub(r"(`+)[^`\n]+\1", "", _FENCE.sub("", text))


def links(text: str) -> list[str]:
    """Return where a page's relative links and images go."""
    text = prose(text)
    found = re.findall(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)", text)
    found += re.findall(r"^\[[^\]]+\]:\s*(\S+)", text, re.MULTILINE)
    found += re.findall(r"<(?:img|a|source)\b[^>]*?\b(?:src|href|srcset)=\"([^\"]+)\"", text)
    return [target for target in found if not re.match(r"[a-z][a-z0-9+.-]*:", target)]


def anchors(text: str) -> set[str]:
    """Return the names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.*?)[ #]*$", _FENCE.sub("", text), re.MULTILINE)
    names = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)
    return {*names, *re.findall(r"\b(?:id|name)=\"([^\"]+)\"", text)}


@EVERY_DOCUMENT
def test_links_go_somewhere(page: Path) -> None:
    for link in links(page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        path = page.parent / target if target else page
        assert path.exists(), f"{page.name}: {link} is not there"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path.read_text(encoding="utf-8")), f"{page.name}: {link}"


def test_a_command_draws_each_picture() -> None:
    scripts = [ROOT / "docs" / "site" / "pictures.py", *(ROOT / "benchmarks").glob("*.py")]
    written = "".join(script.read_text(encoding="utf-8") for script in scripts)
    pictures = [path for path in DOCS.rglob("*") if path.suffix in (".png", ".svg")]
    assert len(pictures) > 8
    assert [path.name for path in pictures if path.stem not in written] == []


def test_links_are_found() -> None:
    text = 'See [a](x.md#y), ![b](i/c.png "C"), [d](https://x.org), `[e](f)`.\n<img src="g.svg">\n'
    assert links(text) == ["x.md#y", "i/c.png", "g.svg"]
    assert anchors("# One `two`: three!\n```bash\n# four\n```\n") == {"one-two-three"}


def test_workflows_name_actions_by_commit() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    text = "".join(workflow.read_text(encoding="utf-8") for workflow in workflows)
    actions = re.findall(r"\buses:\s*(\S.*)", text)
    assert len(actions) > 8
    for action in actions:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
