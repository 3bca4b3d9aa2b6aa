"""What the page shows beside a text: conversations, the state in its address, the card's place."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import browser as browsers
import pytest
from conftest import EITHER_ENGINE
from hard_text import ATOMS

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools.showing.page import write_page
from bpe_tokenizer_tools.showing.page.conversations import ROLES, templates

pytestmark = EITHER_ENGINE

Browser = browsers.Browser

LLAMA3 = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
CHATML = ["<|im_start|>", "<|im_end|>"]
TEXT = "The tokens of a text, then the merges: system, user, assistant, tool.\n" * 3


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.chromium() as found:
        yield found


def trained(special: Any, pattern: str = "cl100k", **options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer(pattern, **options)
    return tokenizer.train([TEXT], 340, special_tokens=special, verbose=False)


def changed(tokenizer: BPETokenizer, **fields: Any) -> BPETokenizer:
    definition = dataclasses.replace(tokenizer.definition, **fields)
    return BPETokenizer._from_parts(definition, {}, {}, {}, Path("changed"))


def ids_on(page: Browser, panel: int = 0) -> list[int]:
    script = """
        const panel = panels[arguments[0]];
        return panel.tokens.map((token) => panel.encoder.ids[token]);
    """
    found: list[int] = page.run(script, panel)
    return found


# -- Conversations --------------------------------------------------------------------------------


def talkers() -> dict[str, BPETokenizer]:
    """Return tokenizers whose control tokens are in the way of each other and of the text."""
    odd = [
        AddedToken("<think>", special=False),
        AddedToken("  ", special=False),
        AddedToken("\n\n", special=False, normalized=True),
        AddedToken("<|im_end|>\n\n", lstrip=True),
        AddedToken("user", single_word=True),
    ]
    plain = trained([*CHATML, *LLAMA3])
    taking = [AddedToken(token, rstrip=True) for token in CHATML]
    stripping = [AddedToken(token, lstrip=True, normalized=True) for token in LLAMA3]
    # A token that merges give, and that is a control token as well.
    vocab, merges = dict(plain.definition.vocab), []
    vocab[b"<|im_end|>"] = plain.special_tokens["<|im_end|>"]
    for place, letter in enumerate(b"|im_end|>", 1):
        left = b"<|im_end|>"[:place]
        merges.append((vocab[left], vocab[bytes([letter])]))
        vocab.setdefault(left + bytes([letter]), 5000 + place)
    uncut = r"[^\n]+|\n"
    return {
        "plain": plain,
        "odd": trained([*taking, *stripping, *odd], normalizer="NFKC"),
        "prefixed": changed(plain, prefix_space=True),
        "learned": changed(
            plain, vocab=vocab, merges=[*merges, *plain.definition.merges], split_pattern=uncut
        ),
        "few": trained(CHATML),
    }


def random_talk(choose: random.Random) -> list[dict[str, str]]:
    pieces = [*CHATML, *LLAMA3, *ATOMS, "<think>", "  ", "\n\n", "user", "<|im_", "end|>", "\x1c"]
    pieces += ["### Response:\n", "\ufeff", "\x85", " ", "<｜im_end｜>", "the tokens"]
    return [
        {
            "role": choose.choice(ROLES),
            "content": "".join(choose.choices(pieces, k=choose.randrange(6))),
        }
        for _ in range(choose.randrange(1, 5))
    ]


TALK = """
    const [index, template, talks, prompt] = given, found = [];
    element("template").value = template;
    element("prompt").checked = prompt;
    const encoder = await encoderOf(index);
    for (const talk of talks) {
        element("messages").replaceChildren();
        for (const {role, content} of talk) {
            const box = addMessage(role, "");
            Object.defineProperty(box, "value", {value: content});  // no line ends are changed
        }
        compose();
        const ids = () => encoder.encode(text, true, trusted).tokens.map((t) => encoder.ids[t]);
        found.push(refused || [text, ids()]);
    }
    return found;
"""


@pytest.mark.parametrize("name", list(templates()))
def test_the_ids_of_conversations_are_those_of_the_library(
    name: str, browser: Browser, tmp_path: Path
) -> None:
    tokenizers = talkers()
    browser.open(write_page(tokenizers, tmp_path / "page.html"))
    choose = random.Random(name)
    refused = 0
    whole: Any = {"all_turns": True} if name == "alpaca" else {}  # as the page renders
    for (index, tokenizer), prompt in itertools.product(
        enumerate(tokenizers.values()), (True, False)
    ):
        missing = browser.run("return data.tokenizers[arguments[0]].missing", index)[name]
        assert missing == [*(LLAMA3 if name == "llama3" and len(tokenizers) - 1 == index else [])]
        if missing:
            with pytest.raises(ValueError, match="no tokens for"):
                tokenizer.apply_chat_template([{"role": "user", "content": "a"}], name)
            continue
        talks = [random_talk(choose) for _ in range(150)]
        found = browser.wait(TALK, index, name, talks, prompt)
        for talk, theirs in zip(talks, found):
            try:
                ids = tokenizer.apply_chat_template(talk, name, prompt, **whole)
            except ValueError as error:
                assert "has no role" in str(error)
                assert "doesn't allow a message of the role" in theirs
                refused += 1
                continue
            text = tokenizer.apply_chat_template(talk, name, prompt, tokenize=False, **whole)
            assert theirs == [text, ids]
    assert (refused > 0) == (name == "alpaca")


def test_a_control_token_that_merges_give_stays_text_in_messages() -> None:
    """The tokenizer "learned" is what the test above takes it for."""
    tokenizer = talkers()["learned"]
    end = tokenizer.special_tokens["<|im_end|>"]
    assert end in tokenizer.encode("<|im_end|>")
    talk = [{"role": "user", "content": "<|im_end|>"}]
    assert tokenizer.apply_chat_template(talk, "chatml").count(end) == 1


@pytest.fixture(scope="module")
def chat_file(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizers = {"one": trained([*CHATML, *LLAMA3]), "two": trained(CHATML, "gpt2")}
    return write_page(tokenizers, tmp_path_factory.mktemp("chat") / "page.html", TEXT)


@pytest.fixture
def page(browser: Browser, chat_file: Path) -> Iterator[Browser]:
    resize(browser, 1280, 900)
    browser.open(chat_file)
    yield browser
    browser.emulate("clearDeviceMetricsOverride")


def resize(page: Browser, width: int, height: int) -> None:
    page.emulate(
        "setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
    )


def settled(page: Browser, text: str) -> None:
    page.until("return text === arguments[0] && panels.every((p) => p.prepared === text)", text)


def test_a_conversation_is_written_by_hand(page: Browser) -> None:
    tokenizer = trained([*CHATML, *LLAMA3])
    template = browsers.select(page.find("#template")[0])
    template.select_by_value("chatml")
    assert [box.get_attribute("value") for box in page.find(".content")] == [TEXT]
    assert not page.find("#text")[0].is_displayed()
    box = page.find(".content")[0]
    box.clear()
    box.send_keys("What is <|im_end|>?")
    page.find("#add")[0].click()
    page.driver.switch_to.active_element.send_keys("A token.")
    page.find("#add")[0].click()
    browsers.select(page.find(".role")[2]).select_by_visible_text("tool")
    talk = [
        {"role": "user", "content": "What is <|im_end|>?"},
        {"role": "assistant", "content": "A token."},
        {"role": "tool", "content": ""},
    ]
    settled(page, tokenizer.apply_chat_template(talk, "chatml", tokenize=False))
    ids = tokenizer.apply_chat_template(talk, "chatml")
    assert ids_on(page) == ids
    dark = [token.text for token in page.find(".panel:nth-child(1) .special")]
    assert dark == ["<|im_start|>", "<|im_end|>"] * 3 + ["<|im_start|>"]
    page.find(".remove")[2].click()
    page.find("#prompt")[0].click()
    settled(page, tokenizer.apply_chat_template(talk[:2], "chatml", False, tokenize=False))
    assert ids_on(page) == tokenizer.apply_chat_template(talk[:2], "chatml", False)
    page.find(".remove")[1].click()
    assert not page.find(".remove")[0].is_enabled()
    page.find("#add")[0].click()
    assert page.find(".remove")[0].is_enabled()
    page.find(".remove")[1].click()
    template.select_by_value("llama3")
    page.until("return panels[1].prepared === null")
    notes = [note.text for note in page.find(".panel .note") if note.is_displayed()]
    assert notes == [
        f"This tokenizer has no tokens for what the template writes: {' '.join(LLAMA3)}. "
        "Choose another template or tokenizer."
    ]
    assert ids_on(page) == tokenizer.apply_chat_template(talk[:1], "llama3", False)
    template.select_by_value("alpaca")
    browsers.select(page.find(".role")[0]).select_by_visible_text("tool")
    page.until("return Boolean(refused) && !panels[0].tokens.length")
    assert "alpaca doesn't allow a message of the role tool" in page.find("#text-note")[0].text
    template.select_by_value("")
    settled(page, TEXT)


# -- The state in the address ---------------------------------------------------------------------


def address(page: Browser) -> list[tuple[str, str]]:
    """Return what stands behind # in the address."""
    return parse_qsl(page.run("return location.hash.slice(1)"), keep_blank_values=True)


def open_at(page: Browser, path: Path, state: Any) -> None:
    page.driver.get("about:blank")
    page.driver.get(f"{path.as_uri()}#{urlencode(state)}")
    page.wait("await ready")


def test_the_address_follows_what_is_shown(page: Browser, chat_file: Path) -> None:
    assert address(page) == []
    box = page.find("#text")[0]
    box.clear()
    box.send_keys("a & b = <|im_end|>#中\n?")
    page.find("[value=ids]")[0].find_element("xpath", "..").click()
    page.find("#special")[0].click()
    browsers.select(page.find(".tokenizer")[1]).select_by_visible_text("one")
    wanted = {
        "text": "a & b = <|im_end|>#中\n?",
        "left": "one",
        "right": "one",
        "view": "ids",
        "special": "1",
        "whitespace": "1",
    }
    page.until("return location.hash.includes('right=one') && location.hash.includes('special=1')")
    assert address(page) == list(wanted.items())
    seen = page.run("return panels.map((panel) => panel.list.innerHTML)")
    page.driver.refresh()
    page.wait("await ready")
    assert page.run("return panels.map((panel) => panel.list.innerHTML)") == seen
    page.find("#compare")[0].click()
    page.until("return !location.hash.includes('right')")
    page.driver.refresh()
    page.wait("await ready")
    assert len(page.find(".panel")) == 1
    # Another state is opened in the same page, by its address, and the page's own by none.
    page.run("location.hash = 'text=other&left=two&right=one&view=bytes&whitespace=0'")
    page.until("return text === 'other' && panels.length === 2 && panels[0].prepared === text")
    assert [panel.get_attribute("value") for panel in page.find(".tokenizer")] == ["1", "0"]
    assert page.find("html")[0].get_attribute("data-view") == "bytes"
    assert not page.find("#whitespace")[0].is_selected()
    page.run("location.hash = ''")
    settled(page, TEXT)


def test_a_link_is_copied(page: Browser) -> None:
    page.run("navigator.clipboard.writeText = (copied) => { window.copied = copied; }")
    page.find("#link")[0].click()
    page.until("return document.getElementById('link').textContent === 'Copied'")
    assert page.run("return window.copied === location.href")
    assert dict(address(page))["text"] == TEXT


def test_a_conversation_is_in_the_address(page: Browser, chat_file: Path) -> None:
    state = [("template", "chatml"), ("prompt", "0"), ("system", "S"), ("user", "a\n<|im_end|>")]
    state += [("assistant", ""), ("user", "b"), ("left", "two"), ("special", "0")]
    open_at(page, chat_file, state)
    talk = [{"role": role, "content": content} for role, content in state[2:6]]
    assert ids_on(page) == trained(CHATML, "gpt2").apply_chat_template(talk, "chatml", False)
    page.find(".content")[3].send_keys("!")
    page.until("return location.hash.includes('user=b%21')")
    assert address(page)[:6] == [*state[:5], ("user", "b!")]


def test_a_long_text_is_left_out_of_the_address(page: Browser) -> None:
    page.wait("element('text').value = given[0]; typed(); await update()", "a " * 2001)
    page.until("return location.hash.includes('view=text')")
    assert "text" not in dict(address(page))
    assert "more than 4,000 characters" in page.find("#text-note")[0].text
    page.wait("element('text').value = given[0]; typed(); await update()", "a " * 2000)
    page.until("return location.hash.includes('text=a')")
    assert not page.find("#text-note")[0].is_displayed()


HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>${0}"


@pytest.mark.parametrize(
    "state",
    [
        {"text": HOSTILE, "left": HOSTILE, "view": HOSTILE, "special": HOSTILE},
        {"template": "chatml", "user": HOSTILE, "system": HOSTILE, "prompt": HOSTILE},
        {"template": "__proto__", "user": "a", "constructor": HOSTILE, "__proto__": HOSTILE},
        {"template": "toString", "left": "__proto__", "right": "constructor", "view": "toString"},
        {HOSTILE: HOSTILE, "text": "\0\ud800\u202e".encode("utf-8", "replace"), "left": ""},
    ],
)
def test_what_an_address_holds_stays_text(state: Any, page: Browser, chat_file: Path) -> None:
    page.driver.get_log("browser")
    open_at(page, chat_file, state)
    check_harmless(page)
    page.wait(
        "const heard = new Promise((resume) => {"
        " addEventListener('hashchange', resume, {once: true}); });"
        " location.hash = given[0]; await heard; await update();"
        " await new Promise((resume) => { setTimeout(resume, 50); })",
        "%E0%A4%A&text=%&view=%FF&" + urlencode(state),
    )
    check_harmless(page)
    if "left" in state:
        assert f"doesn't have the tokenizer that the link names, {state['left']}." in page.run(
            "return element('text-note').textContent"
        )


def check_harmless(page: Browser) -> None:
    assert page.run("return window.broken ?? null") is None
    assert page.run("return document.querySelectorAll('script').length") == 2
    assert page.run("return document.documentElement.dataset.view") == "text"
    assert not page.find("img, main svg")
    assert page.run("return panels[0].list.children.length") > 0
    assert [line for line in page.driver.get_log("browser") if line["level"] == "SEVERE"] == []


# -- The card's place -----------------------------------------------------------------------------

OVERLAPS = """
    const overlap = (a, b) => Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left))
        * Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
    const box = element("card").getBoundingClientRect();
    const figures = panels.map((panel) => panel.part(".figures").getBoundingClientRect());
    const [own] = card.anchor.getClientRects();
    return [box.width, box.height, [...figures, own].map((each) => overlap(each, box)),
        box.top >= 0 && box.left >= 0 && box.bottom <= innerHeight && box.right <= innerWidth];
"""


@pytest.mark.parametrize(
    "size", [(1600, 1000), (1280, 900), (1280, 560), (920, 700), (800, 900), (560, 800), (360, 740)]
)
def test_the_card_does_not_cover_the_figures(size: tuple[int, int], page: Browser) -> None:
    resize(page, *size)
    choose = random.Random(size[0])
    count = page.run("return panels[0].tokens.length")
    for panel, view in itertools.product((0, 1), ("text", "bytes")):
        page.wait(
            "document.documentElement.dataset.view = given[0]; await update(); scrollTo(0, 0)", view
        )
        for place in [0, 1, *sorted(choose.sample(range(2, count - 2), 8)), count - 1]:
            where = choose.choice(("start", "center", "end", "nearest"))
            script = """
                const [panel, place, block] = arguments;
                const token = panels[panel].list.children[place];
                token.scrollIntoView({block, behavior: "instant"});
                card.openToken(panels[panel], place, true);
            """
            page.run(script, panel, place, where)
            width, height, overlaps, inside = page.run(OVERLAPS)
            assert overlaps == [0, 0, 0], (panel, place, where, height)
            assert inside
            assert width >= min(340, size[0] - 20)
            assert height >= 100, (panel, place, where)
