"""The documents as a web site: built without a warning, complete, and viewed without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
from conftest import EITHER_ENGINE, ROOT
from oracles import need

pytestmark = [EITHER_ENGINE, pytest.mark.slow]

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("mkdocs", "material", "mkdocstrings"):
        need(name)
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, str(ROOT / "docs" / "site" / "build.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    with browser.chromium() as running:
        yield running


def html_of(page: Path) -> Path:
    """Return where the site has a page."""
    path = page.relative_to(ROOT).with_suffix(".html")
    return path.with_name("index.html") if path.stem == "README" else path


def test_every_document_is_a_page(site: Path) -> None:
    missing = [page for page in PAGES if not (site / html_of(page)).is_file()]
    assert not missing


def test_the_reference_describes_the_methods(site: Path) -> None:
    text = (site / "reference" / "bpe_tokenizer.html").read_text(encoding="utf-8")
    for name in ("train", "encode", "decode", "apply_chat_template", "save"):
        assert f'id="bpe_tokenizer.BPETokenizer.{name}"' in text
    assert "Learn a vocabulary from a corpus" in text


def test_nothing_is_fetched(site: Path) -> None:
    elsewhere = re.compile(
        r"""<(?:(?:script|img|iframe)\b[^>]*\ssrc|link\b[^>]*stylesheet[^>]*\shref)=["']?(?:https?:)?//"""
    )
    for page in site.rglob("*.html"):
        assert not elsewhere.search(page.read_text(encoding="utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?https?:", style.read_text(encoding="utf-8"))


def test_search_finds_a_page_from_the_disk(site: Path, chromium: browser.Browser) -> None:
    chromium.driver.get((site / "index.html").as_uri())
    chromium.until("return document.querySelector('[data-md-component=search-query]') !== null")
    (query,) = chromium.find("[data-md-component=search-query]")
    chromium.run("document.querySelector('[data-md-toggle=search]').click()")
    query.send_keys("superwords")
    chromium.until(
        "return [...document.querySelectorAll('.md-search-result__link')]"
        ".some((link) => link.href.includes('superwords.html'))"
    )
    asked = [entry["message"] for entry in chromium.driver.get_log("performance")]
    asked = [each for each in asked if '"Network.requestWillBeSent"' in each]
    assert asked
    assert not [each for each in asked if re.search(r'"url":"https?:', each)]


def test_the_page_that_tokenizes_is_embedded(site: Path, chromium: browser.Browser) -> None:
    chromium.driver.get((site / "docs" / "page.html").as_uri())
    (frame,) = chromium.find("iframe[title='Tokens as you type']")
    chromium.driver.switch_to.frame(frame)
    chromium.wait("await ready")
    assert "Bytes per token" in chromium.run("return document.body.innerText")
