"""A text as a tokenizer sees it, in a terminal that nothing in it can harm."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import oracles
import pytest
import regex
from conftest import EXTENSION_DIR, ROOT
from hard_text import hard_text
from hypothesis import given
from hypothesis import strategies as st

import bpe_tokenizer
import bpe_tokenizer_tools.showing.view as view_module
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.showing import notebook
from bpe_tokenizer_tools.showing.view import View, ViewedToken, shown, view

COLOR = re.compile(r"\033\[[0-9;]*m")
TEXT = "the cat sat on the mat.\n\n\tthe naïve cat 日本語\r\n"


@pytest.fixture(scope="module")
def tokenizer(engine: str) -> BPETokenizer:
    return BPETokenizer("cl100k").train(
        iter([TEXT * 9]), 290, special_tokens=["<|end|>"], verbose=False
    )


# -- One token ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the", "the"),
        (" the", "·the"),
        ("  ", "··"),
        ("\t\n", "→↵"),
        ("\r\n", "␍↵"),
        ("\x00\x07\x1b[31m\x7f", "␀␇␛[31m␡"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("a\u202eb\u2066\u061c", "a⟨U+202E⟩b⟨U+2066⟩⟨U+061C⟩"),  # written from right to left
        ("\u200b\ufeff\u2028\u00a0\u3000", "⟨U+200B⟩⟨U+FEFF⟩⟨U+2028⟩⟨U+00A0⟩⟨U+3000⟩"),
        ("\ue000\U0010ffff\u0378", "⟨U+E000⟩⟨U+10FFFF⟩⟨U+0378⟩"),  # private, and unassigned
        ("é", "é"),
        ("e\u0301", "e\u0301"),
        ("\u0301", "◌\u0301"),
        (" \u0301", "·◌\u0301"),
        ("👩\u200d👦", "👩⟨U+200D⟩👦"),
        ("\u1112\u1161\u11ab", "\u1112⟨U+1161⟩⟨U+11AB⟩"),
        ("\U000e0041", "⟨U+E0041⟩"),  # a tag: letters that nobody sees
        ("日本", "日本"),
        ("", "⟨⟩"),
    ],
)
def test_a_token_is_shown(text: str, expected: str) -> None:
    assert shown(text.encode()) == expected


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (b"\xe2", "⟨E2⟩"),
        (b" \xe2\x82", "·⟨E2 82⟩"),
        (b"\x9f\x98\x80a", "⟨9F 98 80⟩a"),
        (b"\xff\xc3\xa9\xfe", "⟨FF⟩é⟨FE⟩"),
        (b"\xed\xa0\x80", "⟨ED A0 80⟩"),  # a surrogate is no character
    ],
)
def test_bytes_of_part_of_a_character_are_shown(token: bytes, expected: str) -> None:
    assert shown(token) == expected


def is_seen(char: str) -> bool:
    """Tell by Python's own tables whether a terminal shows a character and no more."""
    if unicodedata.category(char) == "Cn":  # or is it newer than Python's tables?
        return regex.match(r"\p{Cn}", char) is None
    return char == " " or (char.isprintable() and not char.isspace())


@given(hard_text | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_nothing_unseen_gets_through(text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    out = shown(data)
    assert all(map(is_seen, out)), ascii(out)
    assert not any("\ufe00" <= char <= "\ufe0f" or char == "\u034f" for char in out)


def test_no_character_at_all_gets_through_that_cannot_be_seen() -> None:
    for code in [*range(0xD800), *range(0xE000, 0x110000, 7)]:
        out = shown(chr(code).encode())
        assert out and all(map(is_seen, out)), hex(code)
        assert unicodedata.bidirectional(out[0]) not in {"RLO", "LRO", "RLE", "LRE", "PDF"}


# -- A text -----------------------------------------------------------------------


def test_a_text_is_shown(tokenizer: BPETokenizer) -> None:
    assert str(view("the cat.\n\n\tnaïve <|end|>世", tokenizer)) == (
        "the│·cat│.↵\n"
        "↵\n"
        "→│na⟨C3⟩│⟨AF⟩ve│·│<│|│e│n│d│|│>│⟨E4⟩│⟨B8⟩│⟨96⟩\n"
        "17 tokens, 25 characters, 28 bytes, 1.65 bytes per token"
    )


def test_ids_and_bytes_stand_beneath(tokenizer: BPETokenizer) -> None:
    seen = view("the 日本語 e\u0301\n世!\n", tokenizer)
    assert seen.render(ids=True, bytes=True) == (
        "the     │·日本語                      │· │⟨C3⟩│⟨A9⟩│↵\n"
        "258     │286                          │32│195 │169 │10\n"
        "74 68 65│20 e6 97 a5 e6 9c ac e8 aa 9e│20│c3  │a9  │0a\n"
        "\n"
        "⟨E4⟩│⟨B8⟩│⟨96⟩│! │↵\n"
        "228 │184 │150 │33│10\n"
        "e4  │b8  │96  │21│0a\n"
        "11 tokens, 14 characters, 23 bytes, 2.09 bytes per token"
    )
    assert [token.id for token in seen.tokens] == tokenizer.encode("the 日本語 é\n世!\n")


def test_special_tokens_are_set_apart_and_lines_break_between_tokens(
    tokenizer: BPETokenizer,
) -> None:
    seen = view("the cat sat on<|end|> the mat", tokenizer, allowed_special="all")
    assert seen.render(ids=True, width=24) == (
        "the│·cat│·sat│·on\n"
        "258│260 │279 │278\n"
        "\n"
        "⟦<|end|>⟧│·the│·mat\n"
        "287      │275 │276\n"
        "7 tokens, 29 characters, 29 bytes, 4.14 bytes per token"
    )


def test_neighbors_differ_in_color(tokenizer: BPETokenizer) -> None:
    seen = view("the cat sat<|end|>\n\n\n", tokenizer, allowed_special="all")
    drawn = seen.render(colors=True)
    assert COLOR.sub("", drawn).splitlines()[:-1] == ["the·cat·sat⟦<|end|>⟧↵", "↵", "↵"]
    paints = [code for code in COLOR.findall(drawn) if code not in ("\033[0m", "\033[2m")]
    assert len(paints) == len(seen.tokens)
    assert all(one != other for one, other in zip(paints, paints[1:]))
    for line in drawn.splitlines():  # no color runs on to the end of a line
        assert line.endswith("\033[0m")


def test_colors_change_nothing_but_what_stands_between(tokenizer: BPETokenizer) -> None:
    seen = view(TEXT, tokenizer)
    plain, colored = (seen.render(ids=True, bytes=True, colors=c) for c in (False, True))
    without = [line.rstrip() for line in COLOR.sub("", colored).splitlines()]
    assert without == [line.replace("│", " ").rstrip() for line in plain.splitlines()]


def test_no_text_has_no_tokens(tokenizer: BPETokenizer) -> None:
    seen = view("", tokenizer)
    assert str(seen) == "0 tokens, 0 characters, 0 bytes, 0.00 bytes per token"
    assert seen.render(ids=True, colors=True).count("\n") == 0
    assert view("a", tokenizer).summary == "1 token, 1 character, 1 byte, 1.00 bytes per token"


@given(hard_text)
def test_the_tokens_are_the_text(tokenizer: BPETokenizer, text: str) -> None:
    seen = view(text, tokenizer)
    normal = bpe_tokenizer._normalize(text, "NFC")
    assert b"".join(token.data for token in seen.tokens) == normal.encode()
    assert (seen.characters, seen.bytes) == (len(text), len(text.encode()))
    assert seen.to_json()["token_count"] == len(tokenizer.encode(text))
    for drawn in (seen.render(), seen.render(ids=True, bytes=True, width=30)):
        assert all(is_seen(char) or char == "\n" for char in drawn)
    n_ends = sum(token.data.count(b"\n") for token in seen.tokens)
    ends = text.endswith("\n") or not text
    assert seen.render().count("\n") == n_ends + (not ends)


# What terminals agree on the width of: Latin, Hebrew, Han, kana, Hangul, emoji, marks.
plain_text = st.text(alphabet="aé אשא日本カ한글🙂🚀\u0301\u0308\n\t¹…", max_size=40)


@given(plain_text, st.integers(10, 60))
def test_columns_are_aligned(text: str, width: int) -> None:
    """Measured by rich, which has tables of its own."""
    cells = oracles.need("rich.cells")
    seen = view(
        text,
        BPETokenizer(normalizer=None).train(
            iter(["日本 🙂🙂 é é カ한글 a\u0301 a\u0301 日本"]), 300, verbose=False, num_workers=1
        ),
    )
    for row in seen.render(ids=True, bytes=True, width=width).split("\n\n"):
        lines = [line for line in row.split("\n") if "bytes per token" not in line]
        bars = [
            [cells.cell_len(line[: found.start()]) for found in re.finditer("│", line)]
            for line in lines
        ]
        assert all(each == bars[0] for each in bars)
        assert len(lines) in (0, 3)
        assert max(map(cells.cell_len, lines), default=0) <= width or "│" not in lines[0]


@pytest.mark.filterwarnings("ignore:.*ordinary text")  # small vocabularies
def test_tokens_that_are_not_bytes(tmp_path: Path) -> None:
    library = oracles.need("tokenizers")
    vocab = {"<unk>": 0, "▁": 1, "a": 2, "b": 3, "ab": 4, "▁ab": 5, "<0xE2>": 6}
    model = library.models.BPE(vocab, [("a", "b"), ("▁", "ab")], unk_token="<unk>")
    peer = library.Tokenizer(model)
    peer.pre_tokenizer = library.pre_tokenizers.Metaspace(prepend_scheme="never")
    peer.decoder = library.decoders.Metaspace(prepend_scheme="never")
    peer.save(str(tmp_path / "tokenizer.json"))
    seen = view("ab aba", BPETokenizer.from_file(tmp_path / "tokenizer.json"))
    assert [token.id for token in seen.tokens] == peer.encode("ab aba").ids
    assert str(seen).splitlines()[0] == "ab│·ab│a"


def test_real_vocabularies(
    vocab_dir: Path, load_vocab: Callable[[str], Any], corpora: Callable[[str], str]
) -> None:
    tiktoken = oracles.need("tiktoken")
    loaded = BPETokenizer.from_file(vocab_dir / "cl100k_base.tiktoken")
    ranks, meta = load_vocab("cl100k_base")
    peer = tiktoken.Encoding("c", pat_str=meta["pat_str"], mergeable_ranks=ranks, special_tokens={})
    for corpus in ("english", "code", "multi"):
        text = corpora(corpus)[8_000:12_000]
        seen = view(text, loaded)
        assert [token.id for token in seen.tokens] == peer.encode_ordinary(text)
        assert [token.data for token in seen.tokens] == [
            peer.decode_single_token_bytes(token.id) for token in seen.tokens
        ]
        assert seen.bytes_per_token == len(text.encode()) / len(peer.encode_ordinary(text))


# -- The command ----------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tokenizer: BPETokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizers")
    tokenizer.save(folder / "one", verbose=False)
    BPETokenizer().save(folder / "bytes", verbose=False)
    return folder


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert bpe_tokenizer.main(["view", *map(str, argv)]) == 0
    return capsys.readouterr().out


def test_command(capsys: pytest.CaptureFixture[str], saved: Path) -> None:
    assert run(capsys, "--tokenizer", saved / "one", "the cat") == (
        "the│·cat\n2 tokens, 7 characters, 7 bytes, 3.50 bytes per token\n"
    )
    assert run(capsys, "--tokenizer", saved / "one", "the cat", "--ids", "--bytes") == (
        "the     │·cat\n258     │260\n74 68 65│20 63 61 74\n"
        "2 tokens, 7 characters, 7 bytes, 3.50 bytes per token\n"
    )


def test_command_with_another(capsys: pytest.CaptureFixture[str], saved: Path) -> None:
    out = run(capsys, "--tokenizer", saved / "one", "--with", saved / "bytes", "the")
    assert out == (
        "one\nthe\n1 token, 3 characters, 3 bytes, 3.00 bytes per token\n"
        "\nbytes\nt│h│e\n3 tokens, 3 characters, 3 bytes, 1.00 bytes per token\n"
    )
    out = run(capsys, "--tokenizer", saved / "one", "--with", saved / "bytes", "the", "--json")
    views = json.loads(out)["views"]
    assert [(each["name"], each["token_count"]) for each in views] == [("one", 1), ("bytes", 3)]
    assert views[1]["tokens"][0] == {"id": 116, "shown": "t", "bytes": "74"}


def test_command_reads_files_and_stdin(
    capsys: pytest.CaptureFixture[str],
    saved: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "text").write_bytes("the\r\nカ".encode())
    from_file = run(capsys, "--tokenizer", saved / "bytes", "--file", tmp_path / "text")
    assert from_file.splitlines()[:2] == ["t│h│e│␍│↵", "⟨E3⟩│⟨82⟩│⟨AB⟩"]
    for source in (["-"], ["--file", "-"]):
        stdin = io.TextIOWrapper(io.BytesIO("the\r\nカ".encode()))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert run(capsys, "--tokenizer", saved / "bytes", *source) == from_file


@pytest.mark.parametrize(
    ("argv", "status", "problem"),
    [
        ([], 2, "expected TEXT, --file FILE, or '-' to read stdin"),
        (["a", "--file", "x"], 2, "expected TEXT or --file, not both"),
        (["--file", "nowhere"], 1, "nowhere: no such file; expected a text file"),
        (["--file", "."], 1, ".: is a directory; expected a text file"),
        (["a", "--with", ""], 2, "expected the path of a tokenizer, got ''"),
        (["a", "--with", "nowhere"], 1, "nowhere"),
        (["a\udcff"], 1, "lone surrogate U+DCFF at character 1"),
    ],
)
def test_command_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], saved: Path, argv: list[str], status: int, problem: str
) -> None:
    try:
        found = bpe_tokenizer.main(["view", "--tokenizer", str(saved / "one"), *argv])
    except SystemExit as end:
        found = end.code
    out, err = capsys.readouterr()
    assert (found, out) == (status, "")
    assert problem in err and err.startswith("bpe-tokenizer: error: ") and err.count("\n") == 1


def test_command_writes_a_page(
    capsys: pytest.CaptureFixture[str], saved: Path, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    both = ["view", "--tokenizer", saved / "one", "--with", saved / "bytes", "--html", out]
    argv = list(map(str, both))
    assert bpe_tokenizer.main(argv) == 0
    assert tuple(capsys.readouterr()) == ("", f"Wrote {out}\n")
    page = out.read_text(encoding="utf-8")
    assert all(f'"{name}"' in page for name in ("one", "bytes"))
    assert bpe_tokenizer.main([*argv, "a text nowhere else", "--quiet", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == {"html": str(out), "tokenizers": ["one", "bytes"]}
    assert "a text nowhere else" in out.read_text(encoding="utf-8")


def on_a_terminal(saved: Path, **environment: str) -> str:
    """Run the command on a terminal of its own; return what the terminal gets."""
    command = [sys.executable, str(ROOT / "bpe_tokenizer.py"), "view", "the \x1b[31mcat"]
    command += ["--tokenizer", str(saved / "one")]
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, [EXTENSION_DIR, str(ROOT)]))}
    master, slave = pty.openpty()
    with subprocess.Popen(command, stdout=slave, env={**env, **environment}) as process:
        os.close(slave)
        out = b""
        while True:
            try:
                block = os.read(master, 4096)
            except OSError:  # the other end is closed
                break
            if not block:
                break
            out += block
    os.close(master)
    assert process.returncode == 0
    return out.decode().replace("\r\n", "\n")


def test_colors_are_for_terminals_that_have_them(saved: Path) -> None:
    colored = on_a_terminal(saved, TERM="xterm")
    tokens = COLOR.sub("", colored).splitlines()[0]
    assert tokens == "the·␛[31mcat"
    assert "\x1b[31m" not in colored and colored.count("\x1b") > 8
    for environment in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = on_a_terminal(saved, **environment)
        assert "\x1b" not in plain and plain.splitlines()[0].startswith("the│·│␛│[")


# -- Names ------------------------------------------------------------------------


def test_a_name_cannot_do_anything_as_well() -> None:
    seen = View([ViewedToken(1, b"a", False)], 1, 1, "my tok\x1b]0;x\x07")
    assert seen.heading() == "my tok␛]0;x␇"
    assert seen.heading(colors=True) == "\033[1mmy tok␛]0;x␇\033[0m"


def test_terminal_notebook_and_pages_speak_one_language() -> None:
    folder = Path(view_module.__file__).parent
    css, trace_page = (
        folder.joinpath(*name.split("/")).read_text(encoding="utf-8")
        for name in ("page/page.css", "trace.html")
    )
    on_page = re.findall(r"--token-\d: light-dark\((#\w+),", css)
    assert tuple(on_page) == notebook.COLORS
    assert len(view_module._COLORS) == len(notebook.COLORS)
    dark = re.findall(r"--special: light-dark\((#\w+), (#\w+)\)", css)
    assert dark == [tuple(re.findall(r"--special: (#\w+);", trace_page))]
    token = view_module.ViewedToken(1, b"<|end|>", True)
    assert f"background:{dark[0][0]}" in notebook._span(0, token)
    script = (folder / "page" / "page.js").read_text(encoding="utf-8")
    for char, sign in view_module._WHITE_SPACE.items():
        assert f'"{sign}", {json.dumps(char)})' in script
        assert sign in trace_page
