"""Build the documents as a web site: `make docs`, or python docs/site/build.py [FOLDER].

The site opens from a disk and fetches nothing.  Its pages are those of the repository, where they
are in it, so that every link between them works; the order is that of docs/README.md.
"""

from __future__ import annotations

import importlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SUFFIXES = {".md", ".png", ".svg"}
BESIDE = ("benchmarks", "examples")  # folders that the documents link to
VOCABULARIES = ("r50k_base", "cl100k_base")  # of the page that tokenizes as you type
ELSEWHERE = "https://unpkg.com/iframe-worker/shim"

# Page -> its title, and the modules that it describes.
REFERENCE = {
    "bpe_tokenizer": ("The module", ["bpe_tokenizer"]),
    "prompts": ("Prompts", ["bpe_tokenizer_tools.prompts"]),
    "vocabularies": ("Vocabularies", ["bpe_tokenizer_tools.vocabularies"]),
    "adapting": ("Adapting models", ["bpe_tokenizer_tools.adapting"]),
    "dropin": ("Other libraries' interfaces", ["bpe_tokenizer_tools.dropin"]),
    "evaluation": ("Evaluation", ["bpe_tokenizer_tools.evaluation"]),
    "scale": ("Scale", ["bpe_tokenizer_tools.scale"]),
    "chat": (
        "Conversations and templates",
        ["bpe_tokenizer_tools.chat.conversation", "bpe_tokenizer_tools.chat.templates"],
    ),
}


def main() -> None:
    """Build the site."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder, "pages")
        gather(pages)
        settings = {"docs_dir": str(pages), "site_dir": str(target), "nav": navigation(pages)}
        config = Path(folder, "mkdocs.yml")
        config.write_text(with_settings(settings), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--config-file",
            str(config),
        ]
        quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an advertisement
        done = subprocess.run(command, cwd=ROOT, env=quiet, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    take_from_here(target)
    print(f"Wrote {target / 'index.html'}")


def with_settings(settings: dict[str, Any]) -> str:
    """Return mkdocs.yml with more settings, and with paths that hold from anywhere."""
    yaml = importlib.import_module("yaml")  # mkdocs brings it
    config = yaml.safe_load((HERE / "mkdocs.yml").read_text(encoding="utf-8"))
    for plugin in config["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
    written: str = yaml.safe_dump({**config, **settings}, sort_keys=False)
    return written


def take_from_here(site: Path) -> None:
    """Let pages load our own script instead of one that the theme takes from the network."""
    shutil.copyfile(HERE / "worker.js", site / "assets" / "worker.js")
    for page in site.rglob("*.html"):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(ELSEWHERE, f"{up}assets/worker.js"), encoding="utf-8")


# -- Pages --------------------------------------------------------------------


def gather(pages: Path) -> None:
    """Copy the documents, write the reference, and make the page that tokenizes."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*")]
    files += [file for folder in BESIDE for file in (ROOT / folder).rglob("*")]
    for file in files:
        if file.suffix in SUFFIXES:
            copy = pages / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    for page in pages.rglob("*.md"):
        page.write_text(linked(page, pages), encoding="utf-8")
    for name, (title, modules) in REFERENCE.items():
        page = pages / "reference" / f"{name}.md"
        page.parent.mkdir(exist_ok=True)
        blocks = "\n".join(f"::: {module}\n" for module in modules)
        page.write_text(f"# {title}\n\n{blocks}", encoding="utf-8")
    try_it(pages / "docs")


def linked(page: Path, pages: Path) -> str:
    """Return a page whose links to files that are not in the site are plain text."""

    def keep(link: re.Match[str]) -> str:
        target = link[2].split("#")[0]
        is_here = not target or re.match(r"[a-z]+:", target) or (page.parent / target).is_file()
        return link[0] if is_here else link[1]

    text = page.read_text(encoding="utf-8")
    return re.sub(r"(?<!!)\[([^\]\[]*)\]\(([^)\s]+)\)", keep, text)


def try_it(folder: Path) -> None:
    """Write the page that tokenizes as you type, and show it on its page in the documents."""
    from bpe_tokenizer import BPETokenizer
    from bpe_tokenizer_tools.showing.page import write_page

    tokenizers = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in VOCABULARIES:
            packed = ROOT / "tests" / "data" / f"{name}.tiktoken.xz"
            file = Path(scratch, f"{name}.tiktoken")
            file.write_bytes(lzma.decompress(packed.read_bytes()))
            tokenizers[name] = BPETokenizer.from_file(file)
    write_page(tokenizers, folder / "tokens.html", "Type here: déjà vu, 世界, 1234567 🙂")
    page = folder / "page.md"
    frame = (
        '<iframe src="tokens.html" title="Tokens as you type" width="100%" height="700"></iframe>'
    )
    heading, rest = page.read_text(encoding="utf-8").split("\n", 1)
    page.write_text(f"{heading}\n\n{frame}\n{rest}", encoding="utf-8")


def navigation(pages: Path) -> list[Any]:
    """Return the order of the pages: that in which docs/README.md lists them."""

    def titled(*files: str) -> list[dict[str, str]]:
        return [{title_of(pages / file): file} for file in files]

    nav: list[Any] = titled("README.md", "docs/README.md")
    sections = re.split(
        r"^## ", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"), flags=re.M
    )
    for section in sections[1:]:
        title, text = section.split("\n", 1)
        links = re.findall(r"\]\(((?!\.\.)[^)#\s]+\.md)", text)
        nav.append({title: titled(*(f"docs/{link}" for link in dict.fromkeys(links)))})
    nav.append({"Reference": titled(*(f"reference/{name}.md" for name in REFERENCE))})
    nav.append({"Benchmarks": titled("benchmarks/RESULTS.md", "benchmarks/README.md")})
    nav.append({"Project": titled("CHANGELOG.md", "CONTRIBUTING.md")})
    return nav


def title_of(page: Path) -> str:
    """Return the heading of a page, which may stand below a comment."""
    return re.findall(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)[0]


if __name__ == "__main__":
    main()
