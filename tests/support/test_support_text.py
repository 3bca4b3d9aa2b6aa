"""Text for people: visible characters, and names of tokenizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpe_tokenizer_tools.support.text import names_of, shortened, visible


def test_no_control_character_is_left_but_line_ends_and_tabs() -> None:
    every = "".join(map(chr, range(0x300)))
    shown = visible(every)
    left = [char for char in shown if ord(char) < 32 or 127 <= ord(char) < 160]
    assert left == ["\t", "\n"]
    assert visible("naïve 東京 🙂\n\tx") == "naïve 東京 🙂\n\tx"
    assert len(set(map(visible, every))) == len(every)  # and all are different


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a/gpt2.tiktoken", "b/qwen3.gguf"], ["gpt2", "qwen3"]),
        (["a/x", "b/x"], ["a/x", "b/x"]),
        (["tok/", "v1.5"], ["tok", "v1.5"]),
        (["."], [Path.cwd().name]),
        (["a/tokenizer.json", "b/tekken.json"], ["a", "b"]),
        (["a/tokenizer.json", "a"], ["a/tokenizer.json", "a"]),
        (["tokenizer.json"], [Path.cwd().name]),
        (["/tokenizer.json"], ["tokenizer"]),
        (["a/../b.tar.gguf", ".json"], ["b.tar", ".json"]),
    ],
)
def test_names(paths: list[str], names: list[str]) -> None:
    assert names_of(paths) == names


@pytest.mark.parametrize("n", [0, 1, 39, 40, 41, 100])
def test_a_shortened_text_says_so_and_fits(n: int) -> None:
    text = shortened("x" * n)
    assert len(text) == min(n, 40)
    assert text.endswith("…") == (n > 40)
