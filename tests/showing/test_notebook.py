"""What notebooks and rich show: the tokens, all of them and nothing else, in colors."""

from __future__ import annotations

import html as escaping
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import pytest
from conftest import EITHER_ENGINE
from hard_text import hard_text
from hypothesis import given
from oracles import need

from bpe_tokenizer import BPETokenizer, EncodingResult
from bpe_tokenizer_tools.learn.side_by_side import side_by_side
from bpe_tokenizer_tools.showing import notebook
from bpe_tokenizer_tools.showing.trace import trace
from bpe_tokenizer_tools.showing.view import shown, view
from bpe_tokenizer_tools.support.text import Printed

pytestmark = EITHER_ENGINE

TEXT = "low <b>lower</b>\n\t世界 🙂 <|end|>"


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    made = BPETokenizer("cl100k").train("low lower lowest " * 9, vocab_size=270, verbose=False)
    made.add_special_tokens(["<|end|>"])
    made.pad_token = "<|end|>"
    return made


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    with browser.chromium() as running:
        yield running


def spans(html: str) -> list[str]:
    return re.findall(r"<span title=\"[^\"]*\" style=\"[^\"]*\">(.*?)</span>", html, re.DOTALL)


def test_a_result_is_drawn_in_a_browser(
    tokenizer: BPETokenizer, chromium: browser.Browser, tmp_path: Path
) -> None:
    result = tokenizer.encode_batch([TEXT], allowed_special="all")[0]
    page = tmp_path / "page.html"
    page.write_text(f"<meta charset=utf-8>{result._repr_html_()}", encoding="utf-8")
    chromium.driver.get(page.as_uri())
    drawn = chromium.run("return [...document.querySelectorAll('span')].map(s => s.textContent)")
    pieces = [tokenizer.decode_bytes([id_]) for id_ in result.input_ids]
    expected = [f"⟦{shown(piece)}⟧" if piece == b"<|end|>" else shown(piece) for piece in pieces]
    assert [each.replace("\n", "") for each in drawn] == expected
    assert chromium.find("b") == []  # markup in text stays text
    colors = chromium.run(
        "return [...document.querySelectorAll('span')]"
        ".map((span) => getComputedStyle(span).backgroundColor)"
    )
    assert len(set(colors)) == 6 and all(a != b for a, b in zip(colors, colors[1:]))
    assert f"{len(drawn)} tokens" in chromium.run("return document.body.innerText")


@given(hard_text)
def test_every_token_is_drawn(text: str) -> None:
    tokenizer = BPETokenizer()
    html = tokenizer.encode_with_offsets(text)._repr_html_()
    assert len(spans(html)) == tokenizer.count_tokens(text)
    assert "<script" not in html


def test_a_result_of_its_own_is_drawn_by_its_printable_tokens() -> None:
    html = EncodingResult([5, 7], [1, 1], ["Ġa", "▁b"])._repr_html_()
    assert spans(html) == ["·a", "⟦▁b⟧"]


def test_long_text_and_long_batches_are_cut() -> None:
    tokenizer = BPETokenizer()
    html = tokenizer.encode_with_offsets("x" * (notebook.MOST + 3))._repr_html_()
    assert len(spans(html)) == notebook.MOST and "3 more tokens" in html
    batch = tokenizer.encode_batch(["ab"] * (notebook.MOST_TEXTS + 1))
    assert len(spans(batch._repr_html_())) == 2 * notebook.MOST_TEXTS
    assert "1 more text<" in batch._repr_html_() and "input_ids 21 × 2" in batch._repr_html_()


def test_a_batch_of_tensors_tells_its_shapes(tokenizer: BPETokenizer) -> None:
    need("numpy")
    batch = tokenizer(["low", "lower low"], padding=True, return_tensors="np")
    assert "input_ids (2, 4)" in batch._repr_html_()


def test_a_tokenizer_is_a_table(tokenizer: BPETokenizer) -> None:
    html = tokenizer._repr_html_()
    for shown_part in (f"{len(tokenizer)} tokens", "cl100k", "NFC", "&lt;|end|&gt;", "low"):
        assert shown_part in html


def test_reports_are_shown_as_they_are_printed(tokenizer: BPETokenizer) -> None:
    need("numpy")
    from bpe_tokenizer_tools.evaluation import evaluate

    report: Any = evaluate({"a <b>": tokenizer}, {"prose": ["low lower"]})
    assert isinstance(report, Printed)
    html = report._repr_html_()
    assert html.startswith("<pre") and "a &lt;b&gt;" in html and "<b>" not in html


def test_steps_are_shown_as_they_are_printed(tokenizer: BPETokenizer) -> None:
    steps = trace("low <b>", tokenizer)
    assert f"{escaping.escape(str(steps))}</pre>" in steps._repr_html_()
    learned = side_by_side("the low lower lowest " * 20, 262)
    assert f"{escaping.escape(str(learned))}</pre>" in learned._repr_html_()


def test_rich_prints_the_tokens(tokenizer: BPETokenizer) -> None:
    need("rich")
    console = importlib.import_module("rich.console").Console(
        record=True, width=200, file=importlib.import_module("io").StringIO()
    )
    console.print(tokenizer.encode_with_offsets("low lower"))
    console.print(view("low", tokenizer))
    assert console.export_text().splitlines()[0] == "low·lower"
