"""Draw the pictures of the documents: `make pictures`, or python docs/site/pictures.py [NAME ...].

They show what the code of this folder does now, with the vocabularies in tests/data.  Pictures of
pages need Chromium.  Two pictures need more text, or a model, than the repository has: evaluate
takes `--texts FOLDER`, and doctor `--model FOLDER`.  Without these options they are left as they
are.  Benchmarks draw the others, whose bars are measurements.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer, main
from bpe_tokenizer_tools.showing.page import write_page
from bpe_tokenizer_tools.showing.trace import trace
from bpe_tokenizer_tools.showing.view import view

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CHARTS = ROOT / "benchmarks" / "draw_docs.py"
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "support")]

# What DejaVu has, the fonts that a bare Linux has; other fonts make other pictures.
TEXT = """Tokenization isn't magic: antidisestablishmentarianism costs 1234567 more.

def f(x):
    return x  # tab\there 😀

Grüße, κόσμε! Привет, мир. სამი<|endoftext|>The end."""
CODE = "def greet(name):\n    return f'Grüße, {name}! ½ 👋'  # 2026-01-31\n"


def vocabulary_file(name: str) -> Path:
    """Return the file of a published vocabulary, unpacked."""
    folder: Path = importlib.import_module("samples").unpacked()
    return folder / f"{name}.tiktoken"


def vocabulary(name: str) -> BPETokenizer:
    """Load a published vocabulary."""
    return BPETokenizer.from_file(vocabulary_file(name))


def run(*arguments: str | Path) -> None:
    """Run a command of the library without showing what it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        status = main([*map(str, arguments), "--quiet"])
    if status:
        raise SystemExit(status)


# -- Pages, in Chromium -----------------------------------------------------------


def resize(browser: Any, width: int, height: int, **device: Any) -> None:
    """Make a window of a size."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.emulate("setDeviceMetricsOverride", **{**size, **device})


@contextlib.contextmanager
def opened(page: Path, width: int, height: int, **device: Any) -> Iterator[Any]:
    """Open a page in a window of a size."""
    with importlib.import_module("browser").chromium() as browser:
        resize(browser, width, height, **device)
        browser.emulate("setScrollbarsHidden", hidden=True)
        browser.driver.get(page.as_uri())
        yield browser


@contextlib.contextmanager
def typing(width: int, height: int, fragment: str = "", **device: Any) -> Iterator[Any]:
    """Open the page that tokenizes as you type, with two vocabularies, or Qwen's for a chat."""
    names = ["qwen3"] if fragment else ["cl100k_base", "o200k_base"]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        write_page({name: vocabulary(name) for name in names}, page, TEXT, allowed_special="all")
        with opened(page, width, height, **device) as browser:
            browser.run("location.hash = arguments[0]", fragment)
            browser.wait("await ready; await restore()")
            yield browser


def click(browser: Any, panel: int, text: str) -> None:
    """Open the card of the first token of a panel that has a text."""
    token = next(each for each in browser.find(f"#panels > :nth-child({panel}) .token")
                 if each.text == text)  # fmt: skip
    token.click()


def page_light(path: Path) -> None:
    """Draw two tokenizers side by side."""
    with typing(1280, 900) as browser:
        height = browser.run("return document.documentElement.scrollHeight")
        resize(browser, 1280, height)
        browser.driver.save_screenshot(str(path))


def page_dark(path: Path) -> None:
    """Draw the same in the dark, with the card of a token."""
    with typing(1280, 1110) as browser:
        dark = {"name": "prefers-color-scheme", "value": "dark"}
        browser.emulate("setEmulatedMedia", features=[dark])
        click(browser, 2, "ablishment")
        browser.driver.save_screenshot(str(path))


def page_phone(path: Path) -> None:
    """Draw the card on a phone."""
    with typing(360, 740, deviceScaleFactor=2, mobile=True) as browser:
        browser.run("document.querySelector('.panel .figures').scrollIntoView(); scrollBy(0, -8)")
        click(browser, 1, "establish")
        browser.driver.save_screenshot(str(path))


CHAT = (
    "template=chatml&system=Answer+in+one+sentence.&user=What+does+%3C%7Cim_end%7C%3E+do%3F"
    "&assistant=It+ends+a+turn.&user=And+when+I+type+it%3F"
)


def page_chat(path: Path) -> None:
    """Draw a conversation."""
    with typing(1000, 900, CHAT) as browser:
        browser.driver.save_screenshot(str(path))


def steps(path: Path) -> None:
    """Draw the page of steps, with the tokenizer of the tutorial's page."""
    story = "the cat sat on the mat. the café near the river. the rat ran to the café. "
    tokenizer = BPETokenizer("cl100k").train(
        [story * 9], vocab_size=290, special_tokens=["<|end|>"], verbose=False
    )
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "steps.html")
        trace("the cafe\u0301 cat<|end|>", tokenizer, allowed_special="all").to_html(page)
        with opened(page, 860, 310) as browser:
            # A step at which one merge is done and the parts of the next one are marked.
            browser.run("go(steps.findIndex((step) => step.kind === 'merge' && step.merges > 2))")
            browser.driver.save_screenshot(str(path))


# -- Terminals and plots --------------------------------------------------------------


def terminal(path: Path) -> None:
    """Draw what `view` prints to a terminal."""
    console = importlib.import_module("rich.console").Console(
        record=True, width=72, file=io.StringIO(), color_system="truecolor", force_terminal=True
    )
    from_ansi = importlib.import_module("rich.text").Text.from_ansi
    for name in ("r50k_base", "o200k_base"):
        seen = view(CODE, vocabulary(name), name=name)
        shown = f"{seen.heading(True)}\n{seen.render(colors=True)}"
        console.print(from_ansi(shown), end="\n\n" if name == "r50k_base" else "\n")
    # Without the fonts that rich's own form takes from the network.
    form = importlib.import_module("rich._export_format").CONSOLE_SVG_FORMAT
    form = re.sub(r"\s*@font-face \{\{.*?\}\}", "", form, flags=re.DOTALL)
    form = form.replace("Fira Code", "ui-monospace")
    drawn = console.export_svg(title="bpe-tokenizer view", code_format=form, unique_id="view")
    path.write_text(re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE), encoding="utf-8")


def evaluate(path: Path, folder: Path) -> None:
    """Draw the figures of four vocabularies, as docs/evaluate.md has them."""
    tokenizers = ["gpt2=r50k_base", "cl100k_base", "o200k_base", "qwen3"]
    specs = []
    for each in tokenizers:
        name, _, file = each.rpartition("=")
        specs.append(f"{name or file}={vocabulary_file(file)}")
    texts = {"English": "english", "code": "code", "30 languages": "multi"}
    named = [f"{name}={folder / file}.txt" for name, file in texts.items()]
    run("evaluate", *specs, "--texts", *named, "--plot", path)


def sweep(path: Path) -> None:
    """Draw the first table of docs/sweep.md; the repository doesn't have its corpus."""
    from bpe_tokenizer_tools.evaluation.sweep import Point, Recommendation, Sweep

    page = (DOCS / "sweep.md").read_text(encoding="utf-8").replace(",", "")
    first = page.partition("Took:")[0]
    patterns = (r"(\d+) bytes of held-out text", r"Recommended: (\d+)", r"of (\d+) parameters")
    held_out, best, parameters = (int(re.findall(each, first)[0]) for each in patterns)
    row = r"^ *(\d+) +[\d.]+ +(\d+) .* (\d+) +[\d.]+% +[\d.]+%$"
    rows = re.findall(row, first, re.MULTILINE)
    found = [tuple(map(int, row)) for row in rows]
    worth = [(parameters - embedding) / tokens for _, tokens, embedding in found]
    points = [
        Point(size, tokens, held_out / tokens, None, 0, worth=each / max(worth))
        for (size, tokens, _), each in zip(found, worth)
    ]
    drawn = Sweep(points, Recommendation(best, "worth", ""), (), 0, 0, {}, {}, BPETokenizer())
    drawn.plot(path)


def tokenizations(path: Path) -> None:
    """Draw all tokenizations of a prompt's end."""
    from bpe_tokenizer_tools.prompts import draw_tree

    drawn = draw_tree(vocabulary("o200k_base"), "the captain's daugh")
    path.write_text(drawn, encoding="utf-8")


def charts(_: Path) -> None:
    """Draw what benchmarks/draw_docs.py draws."""
    subprocess.run([sys.executable, CHARTS], check=True, cwd=ROOT)


PICTURES: dict[str, Callable[..., None]] = {
    "page-light.png": page_light,
    "page-dark.png": page_dark,
    "page-phone.png": page_phone,
    "page-chat.png": page_chat,
    "learn/trace.png": steps,
    "view.svg": terminal,
    "evaluate-four-vocabularies.svg": evaluate,
    "healing.svg": tokenizations,
    **({"charts": charts} if CHARTS.is_file() else {}),
    "sweep.png": sweep,
    "doctor.png": lambda path, model: run("doctor", model, "--limit", "12", "--plot", path),
}


def draw() -> None:
    """Draw what the command line names, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    known = ", ".join(PICTURES)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {known}; else all")
    texts = "english.txt, code.txt and multi.txt, for evaluate-four-vocabularies.svg"
    parser.add_argument("--texts", type=Path, metavar="FOLDER", help=texts)
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="the model for doctor.png")
    options = parser.parse_args()
    if unknown := set(options.names) - set(PICTURES):
        parser.error(f"no picture is called {', '.join(sorted(unknown))}: expected {known}")
    needs = {
        "evaluate-four-vocabularies.svg": ("texts", options.texts),
        "doctor.png": ("model", options.model),
    }
    for name in options.names or PICTURES:
        option, given = needs.get(name, ("", None))
        if option and given is None:
            print(f"{name}: left as it is; pass --{option} to draw it")
            continue
        PICTURES[name](DOCS / name, *([given] if option else []))
        print(f"{name}: drawn")


if __name__ == "__main__":
    draw()
