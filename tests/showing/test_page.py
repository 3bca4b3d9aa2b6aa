"""The page that tokenizes as you type, in Chromium."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import http.server
import importlib
import itertools
import json
import random
import re
import threading
import unicodedata
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import browser as browsers
import pytest
from conftest import EITHER_ENGINE
from hard_text import ATOMS, every_character
from oracles import need

import bpe_tokenizer as core
from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer
from bpe_tokenizer_tools.showing.page import write_page
from bpe_tokenizer_tools.showing.page.packing import pack
from bpe_tokenizer_tools.showing.page.splitting import translate
from bpe_tokenizer_tools.showing.trace import trace

pytestmark = EITHER_ENGINE

Browser = browsers.Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.chromium() as found:
        yield found


# -- What pages are made of -----------------------------------------------------------------------

PROSE = (
    "The tokenizer cuts the text, then the merges join the bytes: tokens, tokenized, tokenizing. "
    "Der Grüße wegen heißt es nicht anders; don't! 中文也是 12345 and 2024-02-29.\n\n"
    "def tokenize(text):\n    return [token for token in text]\n"
)


def small(pattern: str = "cl100k", special: Any = None, **options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer(pattern, **options)
    return tokenizer.train([PROSE * 3], 400, special_tokens=special, verbose=False)


def changed(tokenizer: BPETokenizer, **fields: Any) -> BPETokenizer:
    """Return a tokenizer of another definition."""
    definition = dataclasses.replace(tokenizer.definition, **fields)
    return BPETokenizer._from_parts(definition, {}, {}, {}, Path("changed"))


def random_texts(seed: int, count: int) -> list[str]:
    """Return texts of all planes, controls, long runs and mixed scripts."""
    choose = random.Random(seed)
    planes = [(0, 0x80), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000)]
    planes += [(0x20000, 0x110000)]
    texts = []
    for _ in range(count):
        pieces = []
        for _ in range(choose.randrange(1, 10)):
            char = chr(choose.randrange(*choose.choice(planes)))
            kinds = (
                char * choose.choice((1, 2, 7, 60)),
                "".join(choose.choices(ATOMS, k=choose.randrange(1, 16))),
                "".join(chr(choose.randrange(*choose.choice(planes))) for _ in range(12)),
            )
            pieces.append(choose.choice(kinds))
        texts.append("".join(pieces))
    return texts


def digest(numbers: Any) -> str:
    return hashlib.sha256(array("I", numbers).tobytes()).hexdigest()


# In the page: the digest of what a function gives for each text.
DIGESTS = """
    const digest = async (numbers) => Array.from(
        new Uint8Array(await crypto.subtle.digest("SHA-256", Uint32Array.from(numbers))),
        (byte) => byte.toString(16).padStart(2, "0")).join("");
    const digests = async (texts, numbers) => {
        const found = [];
        for (const text of texts) found.push(await digest(numbers(text)));
        return found;
    };
    const idsOf = (encoder, special) => (text) =>
        encoder.encode(text, special).tokens.map((token) => encoder.ids[token]);
"""


def check_ids(
    browser: Browser, index: int, tokenizer: BPETokenizer, texts: list[str], special: bool = False
) -> None:
    """Compare the ids of texts in the page, as number `index` there, with the library's."""
    allowed = "all" if special else "none"
    wanted = [tokenizer.encode(text, allowed_special=allowed) for text in texts]
    script = DIGESTS + (
        "const [index, texts, special] = arguments;"
        "return digests(texts, idsOf(await encoderOf(index), special));"
    )
    found = browser.wait(script, index, texts, special)
    assert len(found) == len(texts)
    for text, theirs, ours in zip(texts, found, wanted):
        if theirs != digest(ours):
            script = DIGESTS + "return idsOf(await encoderOf(arguments[0]), arguments[1])(given[2])"
            assert browser.wait(script, index, special, text) == ours, text[:200]


# -- The same ids ---------------------------------------------------------------------------------

VOCABULARIES = ("r50k_base", "cl100k_base", "llama3", "qwen3", "o200k_base")


@pytest.fixture(scope="module")
def real(engine: str, vocab_dir: Path) -> dict[str, BPETokenizer]:
    """Tokenizers of 50,000 to 200,000 tokens; "llama3" is cl100k_base, cut as Llama 3 does."""
    found = {
        name: BPETokenizer.from_file(vocab_dir / f"{name}.tiktoken")
        for name in VOCABULARIES
        if name != "llama3"
    }
    pattern = SPLIT_PATTERNS["llama3"]
    found["llama3"] = changed(found["cl100k_base"], split_pattern=pattern, normalizer="NFC")
    return {name: found[name] for name in VOCABULARIES}


@pytest.fixture(scope="module")
def real_page(
    browser: Browser, real: dict[str, BPETokenizer], tmp_path_factory: pytest.TempPathFactory
) -> Browser:
    browser.open(write_page(real, tmp_path_factory.mktemp("real") / "page.html"))
    return browser


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_ids_of_documents_are_those_of_the_library(
    name: str,
    real: dict[str, BPETokenizer],
    real_page: Browser,
    corpora: Callable[[str], str],
) -> None:
    documents: list[str] = []
    for corpus, start in itertools.product(("english", "code", "multi"), (0, 300_000)):
        documents += corpora(corpus)[start : start + 60_000].split("<|endoftext|>")
    check_ids(real_page, VOCABULARIES.index(name), real[name], documents)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_ids_of_random_unicode_are_those_of_the_library(
    name: str, real: dict[str, BPETokenizer], real_page: Browser
) -> None:
    texts = random_texts(len(name), 1500)
    for run in ("a", " ", "\n", "中", "A", "!", "e\u0301\u0323", " \n", "0", "\U0001f469\u200d"):
        texts += [run * 3000, f"x{run * 2999}y"]
    assert {unicodedata.category(char)[0] for text in texts for char in text} == set("CLMNPSZ")
    check_ids(real_page, VOCABULARIES.index(name), real[name], texts)


def test_special_tokens_of_published_vocabularies(
    real: dict[str, BPETokenizer], real_page: Browser
) -> None:
    for index, tokenizer in enumerate(real.values()):
        special = list(tokenizer.special_tokens)
        assert special
        text = " x".join(special) + "".join(special) + special[0][:-1]
        for recognized in (False, True):
            check_ids(real_page, index, tokenizer, [text], recognized)


def test_a_megabyte_of_one_letter(real: dict[str, BPETokenizer], real_page: Browser) -> None:
    check_ids(real_page, 4, real["o200k_base"], ["a" * 2**20, " " * 2**20 + "x", "中" * 2**18])


MORE_PATTERNS = {
    "word borders": r"\b\w+\b|\B.|\d+$|(?<=a)b|(?i:in|ss|k)|.",
    "atoms": r"[^\W\d_]+\b|(?<![^\s])\S{2,3}?|\s++\Z|\s|(?>ab|a)c|(?:ab|a)++d|\A.$|(?:a++b)+c",
    "gaps": r"\p{L}{2,}|(?!\p{Nd})\p{N}|,",
    "case": r"(?i)[a-k]+ß?|'(?:s|ſt|i)|\p{Lu}+|[^a-z]",
}


@pytest.mark.parametrize("name", [*SPLIT_PATTERNS, *MORE_PATTERNS])
def test_every_character_is_cut_as_the_library_does(
    name: str, browser: Browser, tmp_path: Path
) -> None:
    pattern = {**SPLIT_PATTERNS, **MORE_PATTERNS}[name]
    browser.open(write_page({"it": BPETokenizer(pattern, normalizer=None)}, tmp_path / "page.html"))
    texts = [*every_character("{}a {}"), *random_texts(7, 300)]
    script = DIGESTS + (
        "const splitter = (await encoderOf(0)).splitter;"
        "return digests(given[0], (text) => splitter.ends(text));"
    )
    found = browser.wait(script, texts)
    split = core._splitter(pattern).split
    for text, theirs in zip(texts, found):
        widths = (len(piece.encode("utf-16-le")) // 2 for piece in split(text))
        assert theirs == digest(itertools.accumulate(widths)), text[:40]


@pytest.mark.parametrize("form", core._NORMALIZERS)
def test_every_character_is_normalized_as_in_python(
    form: str, browser: Browser, tmp_path: Path
) -> None:
    browser.open(write_page({"it": BPETokenizer(normalizer=form)}, tmp_path / "page.html"))
    same = frozenset(map(chr, [*range(0x4E10, 0x9F00), *range(0x20010, 0x2A600)]))  # Han
    texts = list(every_character("{}\u0323a{}\u0301\u1161\u11a8", same))
    texts += random_texts(3, 300)
    marks = [char for char in map(chr, range(0x1E000)) if unicodedata.combining(char)]
    order = random.Random(form)
    texts += ["".join(order.choices([*marks, "a", "ᄀ", "가", "ᅡ", "ᆨ"], k=40)) for _ in range(500)]
    texts.append("a" + "\u0301\u0323" * 100_000)
    script = DIGESTS + (
        "const {normalizer} = await encoderOf(0);"
        "const codes = (text) => Array.from(text, (char) => char.codePointAt(0));"
        "return digests(given[0], (text) => codes(normalizer.normalize(text)));"
    )
    found = browser.wait(script, texts)
    for text, theirs in zip(texts, found):
        ours = core._normalize(text, form)
        assert theirs == digest(map(ord, ours)), text[:40]


def test_added_tokens_take_in_space_and_keep_to_words_as_in_the_library(
    browser: Browser, tmp_path: Path
) -> None:
    tokens = [
        AddedToken("<|end|>", 900),
        AddedToken("<|end|>more", 901),
        AddedToken("[L]", lstrip=True),
        AddedToken("[R]", rstrip=True),
        AddedToken("[B]", lstrip=True, rstrip=True, special=False),
        AddedToken("wörd", single_word=True, special=False),
        AddedToken("A\u030angström", normalized=True),
        AddedToken("(a|b)*", special=False),
        AddedToken("  ", rstrip=True),
    ]
    plain = small(special=tokens)
    prefixed = changed(plain, prefix_space=True, ignore_merges=True)
    unmade = {**plain.definition.vocab, b" heissen": 7000, b"\xff\xfe": 70_000}
    gaps = changed(plain, vocab=unmade, ignore_merges=True)
    shuffled = list(plain.definition.merges)
    random.Random(5).shuffle(shuffled)
    made = {"plain": plain, "prefixed": prefixed, "gaps": gaps}
    made["shuffled"] = changed(plain, merges=shuffled)
    browser.open(write_page(made, tmp_path / "page.html"))
    choose = random.Random(2)
    pieces = [token.content for token in tokens] + ["\u00c5ngström", " ", "\u3000", "\n", "wörd"]
    pieces += ["word", "_", "9", "é", "e\u0301", "\U00010400", "<|end", " heissen", "tokens "]
    texts = ["".join(choose.choices(pieces, k=choose.randrange(12))) for _ in range(1500)]
    for index, tokenizer in enumerate(made.values()):
        for special in (False, True):
            check_ids(browser, index, tokenizer, texts, special)
    assert 7000 in gaps.encode(" heissen")


def test_the_files_of_many_models(browser: Browser, tmp_path: Path) -> None:
    """With a small vocabulary, tokenizer.json of each model as it is: encoded right, or refused."""
    need("tokenizers")
    files = importlib.import_module("tokenizer_files")
    taken, refused = {}, []
    for name in FAMILIES:
        path = tmp_path / "tokenizer.json"
        path.write_text(files.text(name), encoding="utf-8")
        tokenizer = BPETokenizer.from_file(path)
        if tokenizer.components is None:
            taken[name] = tokenizer
        else:
            refused.append(name)
            with pytest.raises(ValueError, match="components of its own"):
                pack(name, tokenizer)
    assert refused == ["llama 2", "deepseek v3"]
    browser.open(write_page(taken, tmp_path / "page.html"))
    for index, tokenizer in enumerate(taken.values()):
        added = [token.content for token in tokenizer.added_tokens]
        texts = [*files.CORPUS, *random_texts(index, 100), " ".join(added), "".join(added)]
        for special in (False, True):
            check_ids(browser, index, tokenizer, texts, special)


FAMILIES = ["gpt2", "bart with a prefix space", "tekken", "llama 3", "qwen 3.5", "olmo, gpt-neox"]
FAMILIES += ["granite 4", "gpt-oss", "kimi", "glm-4", "NFKC", "bloom", "flags"]
FAMILIES += ["llama 2", "deepseek v3"]


def test_lone_surrogates_become_the_replacement_character(small_page: Browser) -> None:
    script = """
        const encoder = await encoderOf(0), ids = idsOf(encoder, false);
        text = "a\\ud800b\\udc00\\ud83d\\ude00\\udfff";
        await update();
        return [ids(text), element("text-note").textContent];
    """
    ids, note = small_page.wait(DIGESTS + script)
    tokenizer = small(special=["<|end|>"])
    assert ids == tokenizer.encode("a\ufffdb\ufffd\U0001f600\ufffd")
    assert "U+FFFD" in note


# -- What the page refuses ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (r"(\w)\1|.", "not supported by the page's encoder"),
        (r"(?<=a++)b|.", "an atomic group within a look-behind"),
        (r"\p{L}*", "matches the empty string"),
    ],
)
def test_a_pattern_that_cannot_be_translated_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match="split pattern") as caught:
        translate(pattern)
    assert problem in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*ordinary text")  # small vocabularies
def test_a_tokenizer_with_components_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("as it was", encoding="utf-8")
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
    file = {"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
    tokenizer = BPETokenizer.from_file(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="mine: .* components of its own"):
        write_page({"mine": tokenizer}, tmp_path / "page.html")
    with pytest.raises(ValueError, match="mine: split pattern"):
        write_page({"mine": BPETokenizer(r"(\w)\1|\s")}, tmp_path / "page.html")
    with pytest.raises(ValueError, match="at least one tokenizer"):
        write_page([], tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "as it was"
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "tokenizer.json"}


def test_a_page_that_cannot_be_written_is_said_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "page.html"
    with pytest.raises(FileNotFoundError) as caught:
        write_page(BPETokenizer(), path)
    assert caught.value.filename == str(path)
    with pytest.raises(IsADirectoryError, match="expected a file to write"):
        write_page(BPETokenizer(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_same_tokenizer_gives_the_same_page(tmp_path: Path) -> None:
    pages = [write_page([small()], tmp_path / f"{i}.html").read_bytes() for i in range(2)]
    assert pages[0] == pages[1]
    assert b"http" not in pages[0].replace(b"http-equiv", b"").replace(
        b"http://www.w3.org/2000/svg", b""
    )


def test_the_vocabulary_is_small_when_packed(real: dict[str, BPETokenizer]) -> None:
    size = len(json.dumps(pack("o200k_base", real["o200k_base"])))
    text = b"".join(real["o200k_base"].definition.vocab)
    assert size < len(text) < 3_613_922  # the tokens alone; the published file


# -- What is seen ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_file(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizers = {"one": small(special=["<|end|>"]), "two": small("gpt2")}
    return write_page(tokenizers, tmp_path_factory.mktemp("small") / "page.html", PROSE)


@pytest.fixture
def small_page(browser: Browser, small_file: Path) -> Iterator[Browser]:
    browser.emulate(
        "setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False
    )
    browser.open(small_file)
    yield browser
    browser.emulate("setEmulatedMedia", features=[])
    browser.emulate("clearDeviceMetricsOverride")


def type_text(page: Browser, text: str) -> None:
    """Type into the page's box, and wait until what was typed is encoded."""
    before = page.run("return document.documentElement.dataset.encoded")
    box = page.find("#text")[0]
    box.clear()
    box.send_keys(text)
    page.until("return document.documentElement.dataset.encoded !== arguments[0]", before)
    page.until("return panels.every((panel) => panel.prepared === text)")


def figures(page: Browser, panel: int = 1) -> dict[str, str]:
    """Return what a panel says of the text: {"Tokens": "12", ...}."""
    rows = page.find(f".panel:nth-child({panel}) .figures > div")
    return dict(row.text.split("\n") for row in rows if row.is_displayed())


def tokens(page: Browser, panel: int = 1) -> list[Any]:
    return page.find(f".panel:nth-child({panel}) .token")


def test_it_encodes_what_is_typed(small_page: Browser) -> None:
    tokenizer = small(special=["<|end|>"])
    text = "Tokenized: the tokens, then 龘"
    type_text(small_page, text)
    ids = tokenizer.encode(text)
    n_bytes = len(text.encode())
    assert figures(small_page) == {
        "Tokens": f"{len(ids)} {_against(len(ids), len(small('gpt2').encode(text)))}".strip(),
        "Characters": str(len(text)),
        "Bytes": str(n_bytes),
        "Bytes per token": f"{n_bytes / len(ids):.2f}",
        "Cuts only here": str(len(_cuts(tokenizer, text) - _cuts(small("gpt2"), text))),
    }
    small_page.find("[value=ids]")[0].find_element("xpath", "..").click()
    assert [token.text for token in tokens(small_page)] == list(map(str, ids))
    small_page.find("[value=bytes]")[0].find_element("xpath", "..").click()
    hexes = [tokenizer.decode_bytes([id_]).hex(" ").upper() for id_ in ids]
    assert [token.text for token in tokens(small_page)] == hexes
    small_page.find("[value=text]")[0].find_element("xpath", "..").click()
    shown = "".join(token.text for token in tokens(small_page))
    assert shown.replace("·", " ").startswith("Tokenized: the tokens, then ")
    assert shown.endswith("E9BE98")  # parts of characters, as bytes


def _cuts(tokenizer: BPETokenizer, text: str) -> set[int]:
    lengths = (len(tokenizer.decode_bytes([id_])) for id_ in tokenizer.encode(text))
    return set(itertools.accumulate(lengths))


def _against(count: int, other: int) -> str:
    if count == other:
        return "the same"
    return f"{'+' if count > other else '−'}{abs(100 * (count - other) / other):.1f}%"


def test_hovering_shows_how_a_token_is_merged(small_page: Browser) -> None:
    tokenizer = small(special=["<|end|>"])
    type_text(small_page, "the tokenize")
    wanted = max(tokenizer.encode("the tokenize"))
    word = tokenizer.decode_bytes([wanted])
    place = tokenizer.encode("the tokenize").index(wanted)
    card = small_page.find("#card")[0]
    assert not card.is_displayed()
    small_page.hover(tokens(small_page)[place])
    small_page.until("return !element('card').hidden")
    facts = small_page.run(
        "return Object.fromEntries(Array.from(document.querySelectorAll('#card dt'),"
        "(dt) => [dt.textContent, dt.nextSibling.textContent]))"
    )
    ranks = {left + right: rank for rank, (left, right) in enumerate(tokenizer.merges)}
    assert facts == {
        "Id": str(wanted),
        "Bytes": word.hex(" ").upper(),
        "Length": f"{len(word)} bytes, {len(word)} characters",
        "Rank": f"{ranks[word]} of {len(ranks)} merges, counted from 0",
        "In this text": "once",
    }
    made = [box.get_attribute("textContent") for box in small_page.find("#card g.made > title")]
    merged = {name: tokenizer.definition.vocab[name] for name in _merged_within(tokenizer, word)}
    assert len(merged) > 2
    assert sorted(made) == sorted(
        f"{name.decode().replace(' ', '·')}: id {id_}, merge {ranks[name]}"
        for name, id_ in merged.items()
    )
    leaves = [leaf.text for leaf in small_page.find("#card g.leaf > text")]
    assert "".join(leaves).replace("·", " ").encode() == word
    small_page.hover(small_page.find("#theme")[0])
    small_page.until("return element('card').hidden")


def _merged_within(tokenizer: BPETokenizer, word: bytes) -> set[bytes]:
    """Merge a word the naive way; return what comes about on the way."""
    parts, made = [word[i : i + 1] for i in range(len(word))], set()
    rank = {pair: rank for rank, pair in enumerate(tokenizer.merges)}
    while len(parts) > 1:
        pairs = list(zip(parts, parts[1:]))
        i = min(range(len(pairs)), key=lambda i: rank.get(pairs[i], len(rank)))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        made.add(parts[i])
    return made


def test_the_keyboard_moves_from_token_to_token(small_page: Browser) -> None:
    keys = browsers.keys()
    type_text(small_page, "the tokens\nthen the merges")
    small_page.run("panels[0].list.children[0].focus()")
    place = "return Array.prototype.indexOf.call(panels[0].list.children, document.activeElement)"
    count = len(tokens(small_page))
    newline = small_page.run(
        "return panels[0].tokens.findIndex((t) => panels[0].encoder.ids[t] === 10)"
    )
    for key, wanted in (
        (keys.ARROW_RIGHT, 1),
        (keys.ARROW_RIGHT, 2),
        (keys.ARROW_LEFT, 1),
        (keys.HOME, 0),
        (keys.ARROW_LEFT, 0),
        (keys.ARROW_DOWN, newline + 1),
        (keys.ARROW_UP, 0),
        (keys.END, count - 1),
        (keys.ARROW_RIGHT, count - 1),
    ):
        small_page.press(key)
        assert small_page.run(place) == wanted
    assert [token.get_attribute("tabindex") for token in tokens(small_page)].count("0") == 1
    assert small_page.run("return !element('card').hidden && !card.pinned")
    small_page.press(keys.ENTER)
    small_page.press(keys.ARROW_LEFT)
    assert small_page.run("return !element('card').hidden && card.pinned")
    small_page.press(keys.ESCAPE)
    assert small_page.run("return element('card').hidden")
    assert small_page.run(place) == count - 2
    focused = small_page.driver.switch_to.active_element
    assert focused.get_attribute("role") == "option"
    id_ = small(special=["<|end|>"]).encode("the tokens\nthen the merges")[-2]
    assert f"id {id_}" in focused.get_attribute("aria-label")


def test_two_tokenizers_side_by_side(small_page: Browser) -> None:
    text = "don't tokenize 12345 tokens"
    type_text(small_page, text)
    one, two = small(special=["<|end|>"]), small("gpt2")
    for panel, (ours, other) in enumerate(((one, two), (two, one)), 1):
        ends = sorted(_cuts(ours, text))
        spans = set(zip([0, *ends], ends))
        theirs = sorted(_cuts(other, text))
        common = spans & set(zip([0, *theirs], theirs))
        marked = [token for token in tokens(small_page, panel) if "differs" in _classes(token)]
        assert len(marked) == len(spans - common) > 0
    boxes = [panel.rect for panel in small_page.find(".panel")]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    small_page.find("#compare")[0].click()
    assert len(small_page.find(".panel")) == 1
    assert not small_page.find(".differs")
    names = browsers.select(small_page.find(".tokenizer")[0])
    names.select_by_visible_text("two")
    small_page.until(
        "return panels[0].encoder.given.name === 'two' && panels[0].list.children.length"
    )
    assert figures(small_page)["Tokens"] == str(len(two.encode(text)))


def _classes(token: Any) -> list[str]:
    found: list[str] = token.get_attribute("class").split()
    return found


def test_special_tokens_are_shown_apart_once_they_are_recognized(small_page: Browser) -> None:
    tokenizer = small(special=["<|end|>"])
    text = "the end<|end|>the end"
    type_text(small_page, text)
    assert "Special tokens" not in figures(small_page)
    small_page.find("#special")[0].click()
    assert figures(small_page)["Special tokens"] == "1"
    ids = tokenizer.encode(text, allowed_special="all")
    assert figures(small_page)["Tokens"].split()[0] == str(len(ids))
    special = [token for token in tokens(small_page) if "special" in _classes(token)]
    assert [token.text for token in special] == ["<|end|>"]
    ordinary = next(token for token in tokens(small_page) if token not in special)
    color = "background-color"
    assert special[0].value_of_css_property(color) != ordinary.value_of_css_property(color)
    small_page.hover(special[0])
    small_page.until("return !element('card').hidden")
    assert "special token" in small_page.find("#card dl")[0].text


def test_special_tokens_may_be_recognized_from_the_first(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    browser.open(write_page(small(special=["<|end|>"]), path, "a<|end|>", allowed_special="all"))
    assert browser.find("#special")[0].is_selected()
    assert figures(browser)["Special tokens"] == "1"
    with pytest.raises(ValueError, match="'none' or 'all', got 'some'"):
        write_page(small(), path, allowed_special="some")


def test_light_and_dark_are_both_readable(small_page: Browser) -> None:
    small_page.find("#special")[0].click()
    type_text(small_page, "the <|end|> tokens, then 龘 and more tokens")
    grounds = set()
    for scheme in ("light", "dark"):
        small_page.emulate(
            "setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        grounds.add(small_page.find("body")[0].value_of_css_property("background-color"))
        seen = small_page.run(CONTRASTS)
        kinds = {name.split(".")[0].split()[0] for name, _ in seen}
        assert kinds >= {"token", "blank", "byte", "copy", "DT", "P"}
        assert [pair for pair in seen if pair[1] < (3 if "blank" in pair[0] else 4.5)] == []
    small_page.emulate("setEmulatedMedia", features=[])
    for theme in ("light", "dark"):
        small_page.find("#theme")[0].click()
        assert small_page.find("html")[0].get_attribute("data-theme") == theme
        assert small_page.find("#theme")[0].get_attribute("aria-label") == f"Colors: {theme}"
        grounds.add(small_page.find("body")[0].value_of_css_property("background-color"))
    assert len(grounds) == 2


# The contrast of each element's own text with what is behind it, as WCAG 2 defines it.  A canvas
# tells the numbers of any color.
CONTRASTS = """
    const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const rgb = (colors) => {
        context.clearRect(0, 0, 1, 1);
        for (const color of colors) {
            context.fillStyle = color;
            context.fillRect(0, 0, 1, 1);
        }
        return Array.from(context.getImageData(0, 0, 1, 1).data.slice(0, 3));
    };
    const light = (color) => rgb(color).map((c) => c / 255)
        .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const found = [];
    for (const each of document.querySelectorAll("body, body *")) {
        const own = Array.from(each.childNodes).some((n) => n.nodeType === 3 && n.data.trim());
        if (!own || !each.checkVisibility() || each.matches("option, template, script")) continue;
        const grounds = [];
        for (let at = each; at; at = at.parentElement) {
            grounds.unshift(getComputedStyle(at).backgroundColor);
        }
        const [a, b] = [[...grounds, getComputedStyle(each).color], grounds].map(light);
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        found.push([(each.className || each.tagName) + "." + each.textContent, contrast]);
    }
    return found;
"""


def test_it_fits_a_phone(small_page: Browser) -> None:
    type_text(small_page, "tokenize" * 20 + "\n" + PROSE)
    small_page.emulate(
        "setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True
    )
    small_page.run("document.querySelector('details').open = true")
    search = small_page.find(".query")[0]
    search.send_keys("o")
    small_page.until("return document.querySelector('.results').children.length > 1")
    widths = "return [document.documentElement.scrollWidth, innerWidth]"
    assert small_page.run(widths) == [360, 360]
    boxes = [panel.rect for panel in small_page.find(".panel")]
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]  # one below the other
    small_page.run("panels[0].list.children[30].scrollIntoView({block: 'end'})")
    small_page.run("panels[0].list.children[30].click()")
    card = small_page.find("#card")[0].rect
    assert (card["x"], card["width"]) == (0, 360)
    covered = small_page.run(
        "const at = card.anchor.getBoundingClientRect();"
        "const {top, bottom} = element('card').getBoundingClientRect();"
        "return (at.bottom > top && at.top < bottom) || at.top < 0"
    )
    assert not covered
    assert small_page.run(widths) == [360, 360]


def test_the_vocabulary_can_be_searched(small_page: Browser) -> None:
    tokenizer = small(special=["<|end|>"])
    small_page.run("document.querySelector('details').open = true")
    size = f"{tokenizer.vocab_size} tokens"
    assert small_page.find("summary")[0].text.endswith(size)
    vocab = tokenizer.get_vocab().items()
    search = small_page.find(".query")[0]
    ids = "return Array.from(document.querySelectorAll('.results small'), (e) => +e.textContent)"
    for query in (" t", "en", "|end", "300"):
        search.clear()
        search.send_keys(query)
        found = small_page.run(ids)
        written = query.replace(" ", "Ġ")
        wanted = {id_ for token, id_ in vocab if written in token or str(id_) == query}
        assert wanted
        assert set(found) == wanted
    small_page.find(".results button")[0].click()
    assert "300" in small_page.find("#card dl")[0].text


def test_the_card_says_when_merges_do_not_lead_to_a_token(browser: Browser, tmp_path: Path) -> None:
    plain = small(special=["<|end|>"])
    vocab = {**plain.definition.vocab, b" heissen": 7000, bytes(600): 7001, b"\xf0\x9f\x98": 7002}
    page = {
        "merging": changed(plain, vocab=vocab),
        "whole": changed(plain, vocab=vocab, ignore_merges=True),
    }
    assert 7000 not in page["merging"].encode("sie heissen")
    assert 7000 in page["whole"].encode("sie heissen")
    browser.open(write_page(page, tmp_path / "page.html"))
    said = {}
    for panel, id_ in itertools.product((1, 2), (7000, 7001, 7002, 97)):
        browser.run("document.querySelectorAll('details')[arguments[0]].open = true", panel - 1)
        search = browser.find(f".panel:nth-child({panel}) .query")[0]
        search.clear()
        search.send_keys(str(id_))
        browser.find(f".panel:nth-child({panel}) .results button")[0].click()
        boxes = len(browser.find("#card svg g.leaf"))
        said[panel, id_] = browser.find("#card dl")[0].text, boxes, _explained(browser)
    for panel in (1, 2):
        assert "no merge makes it" in said[panel, 7000][0]
        assert "600 bytes" in said[panel, 7001][0]
        assert said[panel, 7001][1:] == (0, "This token is too long to draw its merges.")
        assert "3 bytes, part of a character" in said[panel, 7002][0]
        assert "a single byte" in said[panel, 97][0]
        assert said[panel, 97][1:] == (0, "")
        assert [said[panel, id_][1] for id_ in (7000, 7002)] == [8, 3]
    assert said[1, 7000][2].endswith("no text gives this token.")
    assert said[2, 7000][2].endswith("a whole pre-token, which needs no merges.")


def _explained(page: Browser) -> str:
    found: str = page.find("#card .explained")[0].text
    return found


def test_a_long_text_is_counted_whole_and_shown_in_part(small_page: Browser) -> None:
    text = PROSE * 200 + "x" * 300_000
    tokenizer = small(special=["<|end|>"])
    small_page.wait("text = given[0]; await update()", text)
    count = len(tokenizer.encode(text))
    assert figures(small_page)["Tokens"].split()[0] == f"{count:,}"
    shown = "return panels[0].list.children.length"
    assert small_page.run(shown) == 4000
    more = small_page.find(".more")[0]
    assert f"the first 4,000 of {count:,} tokens" in more.text
    more.click()
    assert small_page.run(shown) == 8000
    assert small_page.wait("return given[0] === text", text)


def test_a_newer_text_takes_over_from_one_that_is_still_being_encoded(small_page: Browser) -> None:
    script = """
        text = given[0]; const first = update();
        text = "the tokens"; const second = update();
        await Promise.all([first, second]);
        return panels.map((panel) => panel.prepared);
    """
    assert small_page.wait(script, random_texts(1, 1)[0] * 20_000) == ["the tokens"] * 2


def test_the_given_text_is_encoded_as_it_is_until_it_is_edited(
    browser: Browser, tmp_path: Path
) -> None:
    tokenizer, text = small(), "the\r\ntokens\r"
    browser.open(write_page(tokenizer, tmp_path / "page.html", text))
    shown = "return panels[0].tokens.map((token) => panels[0].encoder.ids[token])"
    assert browser.run(shown) == tokenizer.encode(text)
    assert "carriage returns" in browser.find("#text-note")[0].text
    browser.find("#text")[0].send_keys("!")
    browser.until("return panels[0].prepared.endsWith('!')")
    assert browser.run(shown) == tokenizer.encode("the\ntokens\n!")


def test_typing_keeps_what_is_the_same(small_page: Browser) -> None:
    """The tokens before a change stay on the page; all is as if it had been drawn anew."""
    choose = random.Random(8)
    text = ""
    for _ in range(40):
        at = choose.randrange(len(text) + 1)
        text = text[:at] + choose.choice([*ATOMS, "the tokens"]) + text[at + choose.randrange(3) :]
        again = small_page.wait(
            """
            text = given[0];
            const view = given[1] ? "ids" : "text";
            document.documentElement.dataset.view = view;
            await update();
            const found = panels.map((panel) => panel.list.innerHTML);
            panels.forEach((panel) => panel.keepFirst(0));
            await update();
            return panels.map((panel, i) => [found[i], panel.list.innerHTML]);
            """,
            text,
            choose.random() < 0.1,
        )
        for kept, anew in again:
            assert kept == anew
            assert kept.count('role="option"') > 0


def test_a_text_too_long_for_the_browser_is_said_to_be(browser: Browser, tmp_path: Path) -> None:
    tokenizer = BPETokenizer(r"(?:ab|c)+|[^x]", normalizer=None)
    browser.open(write_page(tokenizer, tmp_path / "page.html", "abc"))
    browser.wait("text = 'ab'.repeat(1e7); await update()")
    failure = browser.find("#failure")[0]
    assert "cannot match the split pattern against so long a text" in failure.text
    assert figures(browser)["Tokens"] == "3"
    type_text(browser, "abab")
    assert not failure.is_displayed()
    assert figures(browser)["Tokens"] == "4"


# -- No network, and nothing that breaks out ------------------------------------------------------

HOSTILE = (
    "</script><script>window.broken = 1</script><!--<script>\u2028\u2029&lt;"
    "<img src=x onerror='window.broken = 2'>@DATA@ ${window.broken = 3} \\u0022\"' \u202eabc"
)


def test_a_hostile_vocabulary_or_text_stays_text(browser: Browser, tmp_path: Path) -> None:
    special = [HOSTILE, "</textarea><svg onload='window.broken = 4'>"]
    tokenizer = small(special=special)
    name = "</option></select><img src=x onerror='window.broken = 5'>"
    path = write_page({name: tokenizer, "b": tokenizer}, tmp_path / "page.html", HOSTILE * 2)
    browser.driver.get_log("browser")  # of what was open before
    browser.open(path)
    assert browser.run("return document.querySelectorAll('.special').length") == 0
    browser.find("#special")[0].click()
    browser.until("return document.querySelectorAll('.special').length === 4")
    browser.run("document.querySelector('details').open = true")
    browser.find(".query")[0].send_keys("<")
    browser.until("return document.querySelector('.results').children.length > 1")
    browser.find(".panel:nth-child(1) .special")[0].click()
    assert browser.run("return window.broken ?? null") is None
    assert browser.run("return document.querySelectorAll('script').length") == 2
    assert not browser.find("img, main svg")
    assert browser.run("return data.text") == HOSTILE * 2
    assert browser.run("return data.tokenizers[0].name") == name
    check_ids(browser, 0, tokenizer, [HOSTILE], special=True)
    assert [line for line in browser.driver.get_log("browser") if line["level"] == "SEVERE"] == []


def test_it_reaches_no_network(small_page: Browser, small_file: Path) -> None:
    asked: list[str] = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        # The page as it is used, from its loading on.
        small_page.driver.get_log("performance")
        small_page.open(small_file)
        type_text(small_page, "the tokens")
        small_page.hover(tokens(small_page)[0])
        assert _requests(small_page) == [small_file.as_uri()]
        assert small_page.run("return performance.getEntriesByType('resource').length") == 0
        # And if something in it wanted to: the policy forbids it.
        tried = small_page.wait(
            """
            const refused = [];
            addEventListener("securitypolicyviolation", (e) => refused.push(e.effectiveDirective));
            const image = new Image();
            image.src = given[0] + "/image";
            const frame = document.createElement("iframe");
            frame.src = given[0] + "/frame";
            const script = document.createElement("script");
            script.src = given[0] + "/script.js";
            const style = document.createElement("link");
            [style.rel, style.href] = ["stylesheet", given[0] + "/style.css"];
            document.body.append(image, frame, script, style);
            const fetched = await fetch(given[0] + "/fetch").catch(() => "refused");
            navigator.sendBeacon(given[0] + "/beacon");
            try { new WebSocket(given[0].replace("http", "ws")); } catch { /* refused at once */ }
            await new Promise((resume) => { setTimeout(resume, 300); });
            return [fetched, refused];
            """,
            address,
        )
        assert tried[0] == "refused"
        assert set(tried[1]) >= {"img-src", "frame-src", "script-src-elem", "style-src-elem"}
        assert tried[1].count("connect-src") >= 2
        assert asked == []
        # The server was there to be reached.
        small_page.driver.get(address + "/really")
        assert "/really" in asked
        server.shutdown()


def test_policies_name_what_stands_in_the_page(tmp_path: Path) -> None:
    write_page({"</script>": small()}, tmp_path / "live.html", "@DATA@ @POLICY@ <script>")
    trace("@DATA@ </style> <style>", small()).to_html(tmp_path / "trace.html")
    for name in ("live.html", "trace.html"):
        written = (tmp_path / name).read_text(encoding="utf-8")
        policy = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', written)
        expected = ["default-src 'none'"]
        for tag in ("script", "style"):
            (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", written, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            expected.append(f"{tag}-src 'sha256-{digest}'")
        assert policy == ["; ".join([*expected, "base-uri 'none'", "form-action 'none'"])]
        (data,) = re.findall('<script type="application/json" id="data">(.*?)</script>', written)
        assert json.loads(data)["text"].startswith("@DATA@ ")


def _requests(page: Browser) -> list[str]:
    """Return the addresses that the browser asked for since its log was last read."""
    events = [json.loads(line["message"])["message"] for line in page.driver.get_log("performance")]
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
