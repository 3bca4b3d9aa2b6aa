"""The algorithms made plain: they learn, and give, what the real engine does."""

from __future__ import annotations

import itertools
import json
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oracles
import pytest
import reference
from browser import Browser, chromium
from conftest import EITHER_ENGINE
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.formats import ranks as real_ranks
from bpe_tokenizer_tools.learn import ranks
from bpe_tokenizer_tools.learn.basic import BasicTokenizer
from bpe_tokenizer_tools.learn.side_by_side import side_by_side
from bpe_tokenizer_tools.learn.split import SplitTokenizer
from bpe_tokenizer_tools.learn.words import END, UNKNOWN, WordTokenizer
from bpe_tokenizer_tools.showing.trace import Part, Pretoken, Special, Trace, trace

LEARN = Path(ranks.__file__).parent

# Few letters: ties everywhere, pairs that overlap themselves, tokens made in two ways.
few_letters = st.text(alphabet="ab ", max_size=120) | st.text(alphabet="abcé\x00\xad.", max_size=80)
any_text = few_letters | st.text(max_size=60)


def train(pattern: str, text: str, vocab_size: int, specials: tuple[str, ...] = ()) -> BPETokenizer:
    """Train the real engine on one document."""
    tokenizer = BPETokenizer(pattern, normalizer=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a text that looks like a path
        return tokenizer.train(
            iter([text]), vocab_size, special_tokens=specials, verbose=False, num_workers=1
        )


def learned(tokenizer: BasicTokenizer) -> list[tuple[bytes, bytes]]:
    return [(tokenizer.tokens[left], tokenizer.tokens[right]) for left, right in tokenizer.merges]


@pytest.mark.parametrize("name", ["basic", "split", "words"])
def test_each_fits_on_a_page(name: str) -> None:
    assert len((LEARN / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 80


# -- Answers to the exercises of docs/learn ---------------------------------------


def test_sixteen_times_the_same_letter() -> None:
    learned = BasicTokenizer().train("a" * 16, 300).tokens[256:]
    assert learned == [b"aa", b"a" * 4, b"a" * 8]  # a pair of two eights stands there once


def test_a_family_is_five_characters() -> None:
    family = "👨\u200d👩\u200d👧"
    assert (len(family), len(family.encode())) == (5, 18)


def test_two_merges_of_the_same_rank() -> None:
    story = "the cat sat on the mat. the café near the river. the rat ran to the café. "
    tokenizer = BPETokenizer("cl100k").train(
        [story * 9], 290, special_tokens=["<|end|>"], verbose=False
    )
    (piece,) = trace("thethe", tokenizer).pieces
    places = [(merge.rank, merge.at) for merge in piece.merges]
    assert places[0][0] == places[1][0] and places[0][1] < places[1][1]  # the left one first


# -- On bytes -----------------------------------------------------------------


@given(few_letters.filter(bool), st.integers(257, 330), any_text)
@example("aaaa aaaaa aaaaaa aaaaaaa aaaaaaaaaaa" * 3, 300, "aaaaaaaaaaaaaaa")
def test_basic_is_the_real_engine_without_cutting(text: str, size: int, other: str) -> None:
    plain = BasicTokenizer().train(text, size)
    real = train(r"[\s\S]+", text, size)
    assert learned(plain) == real.merges
    assert plain.tokens == [real.decode_bytes([id_]) for id_ in range(real.vocab_size)]
    for each in (text, other):
        assert plain.encode(each) == real.encode(each)
        assert plain.decode(plain.encode(each)) == each


def test_basic_learns_the_same_of_real_text(corpora: Callable[[str], str]) -> None:
    text = corpora("multi")[:3_000]
    plain, real = BasicTokenizer().train(text, 400), train(r"[\s\S]+", text, 400)
    assert learned(plain) == real.merges
    assert plain.encode(text) == real.encode(text)


def test_basic_decodes_half_a_character() -> None:
    assert BasicTokenizer().decode([0x61, 0xE2, 0x82]) == "a\ufffd"


# -- With a split pattern and special tokens ------------------------------------

SPECIALS = ("<|end|>", "<|", "ab")


@given(
    st.lists(few_letters | st.sampled_from(SPECIALS), max_size=8).map(lambda s: "".join([*s, "c"])),
    st.integers(260, 330),
    st.lists(any_text | st.sampled_from(SPECIALS), max_size=8).map("".join),
    st.sampled_from(["gpt2", "cl100k", r"\w+|\W+", "[ab]+"]),  # the last leaves most unfound
)
def test_split_is_the_real_engine(text: str, size: int, other: str, pattern: str) -> None:
    plain = SplitTokenizer(pattern, SPECIALS).train(text, size)
    real = train(pattern, text, size, SPECIALS)
    assert learned(plain) == real.merges
    assert plain.tokens == [real.decode_bytes([id_]) for id_ in range(real.vocab_size)]
    assert plain.special == real.special_tokens
    for allowed in ("none", "all"):
        for each in (text, other):
            assert plain.encode(each, allowed) == real.encode(each, allowed_special=allowed)
            assert plain.decode(plain.encode(each, allowed)) == each


def test_split_learns_the_same_of_real_text(corpora: Callable[[str], str]) -> None:
    text = corpora("english")[:20_000]
    special = ("<|endoftext|>",)
    plain = SplitTokenizer("cl100k", special).train(text, 500)
    real = train("cl100k", text, 500, special)
    assert learned(plain) == real.merges
    assert plain.encode(text, "all") == real.encode(text, allowed_special="all")


# -- On words -------------------------------------------------------------------


def huggingface(plain: WordTokenizer) -> Any:
    """Give HuggingFace's engine the same merges."""
    library = oracles.need("tokenizers")
    model = library.models.BPE(plain.vocab, plain.merges, unk_token=UNKNOWN, end_of_word_suffix=END)
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = library.decoders.BPEDecoder(suffix=END)
    return tokenizer


word_text = st.lists(st.text(alphabet="abcé", min_size=1, max_size=7), max_size=20).map(" ".join)


@given(word_text, st.integers(1, 60), word_text | st.text(alphabet="abxy \n\t.", max_size=40))
def test_words_are_what_huggingface_makes_of_them(text: str, size: int, other: str) -> None:
    plain = WordTokenizer().train(text, size)
    assert list(plain.vocab) == [UNKNOWN, *sorted(set(plain.vocab) - {UNKNOWN})]
    assert list(plain.vocab.values()) == list(range(len(plain.vocab)))
    peer = huggingface(plain)
    for each in (text, other):
        encoded = peer.encode(each)
        assert plain.tokenize(each) == encoded.tokens
        assert plain.encode(each) == encoded.ids
    assert (
        plain.decode(plain.encode(text))
        == " ".join(text.split())
        == peer.decode(plain.encode(text), skip_special_tokens=False)
    )


@pytest.mark.filterwarnings("ignore:.*ordinary text")  # small vocabularies
@given(word_text, st.integers(1, 60), word_text)
@settings(max_examples=30)
def test_words_are_what_the_real_engine_makes_of_them(
    tmp_path: Path, text: str, size: int, other: str
) -> None:
    plain = WordTokenizer().train(text, size)
    huggingface(plain).save(str(tmp_path / "tokenizer.json"))
    assert BPETokenizer.from_file(tmp_path / "tokenizer.json").encode(other) == plain.encode(other)


def train_naively(text: str, size: int) -> tuple[list[tuple[str, str]], set[str]]:
    """Learn merges as the paper's listing does: by regular expression, on a dict of words."""
    words: dict[str, int] = {}
    for word in text.split():
        spelled = " ".join(word) + END
        words[spelled] = words.get(spelled, 0) + 1
    symbols = {symbol for word in words for symbol in word.split()}
    merges: list[tuple[str, str]] = []
    while len(symbols) + 1 < size:
        pairs: dict[tuple[str, str], int] = {}
        for word, count in words.items():
            parts = word.split()
            for i in range(len(parts) - 1):
                pairs[parts[i], parts[i + 1]] = pairs.get((parts[i], parts[i + 1]), 0) + count
        best = sorted(pairs, key=lambda pair: (-pairs[pair], pair))[:1]
        if not best or pairs[best[0]] < 2:
            break
        merges.append(best[0])
        symbols.add("".join(best[0]))
        bigram = re.compile(rf"(?<!\S){re.escape(' '.join(best[0]))}(?!\S)")
        words = {bigram.sub("".join(best[0]), word): count for word, count in words.items()}
    return merges, symbols


@given(word_text, st.integers(1, 60))
def test_words_are_learned_as_in_the_paper(text: str, size: int) -> None:
    plain = WordTokenizer().train(text, size)
    merges, symbols = train_naively(text, size)
    assert plain.merges == merges
    assert set(plain.vocab) == symbols | {UNKNOWN}


def test_the_example_of_the_paper() -> None:
    text = "low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3
    plain = WordTokenizer().train(text, 16)
    assert plain.merges[:4] == [("e", "s"), ("es", "t</w>"), ("l", "o"), ("e", "w")]
    assert plain.tokenize("lowest lot") == ["lo", "w", "est</w>", "lo", "t</w>"]


def test_letters_never_seen_are_unknown() -> None:
    plain = WordTokenizer().train("low low", 10)
    assert plain.tokenize("slow law") == [UNKNOWN, "low</w>", "l", UNKNOWN, "w</w>"]
    assert plain.decode(plain.encode("law low")) == "l<unk>w low"


# -- Ranks ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["r50k_base", "cl100k_base"])
def test_merges_of_a_published_file(vocab_dir: Path, name: str) -> None:
    published = ranks.read_ranks(vocab_dir / f"{name}.tiktoken")
    merges = ranks.recover_merges(published)
    assert merges == real_ranks.recover_merges(published)
    assert len(merges) == len(published) - 256
    assert [published[left + right] for left, right in merges] == sorted(published.values())[256:]


def test_first_merges_of_r50k_are_those_of_gpt2(vocab_dir: Path) -> None:
    """The first lines of GPT-2's own merges.txt, after its line of version."""
    published = ranks.read_ranks(vocab_dir / "r50k_base.tiktoken")
    first = {token: rank for token, rank in published.items() if rank < 276}
    spelled = ["".join(" " if char == "Ġ" else char for char in pair) for pair in GPT2.split("|")]
    found = [f"{left.decode()} {right.decode()}" for left, right in ranks.recover_merges(first)]
    assert found == spelled


GPT2 = "Ġ t|Ġ a|h e|i n|r e|o n|Ġt he|e r|Ġ s|a t|Ġ w|Ġ o|e n|Ġ c|i t|i s|a n|o r|e s|Ġ b"


@given(st.lists(st.binary(min_size=2, max_size=6), unique=True, max_size=30), st.randoms())
def test_merges_of_any_ranks(tokens: list[bytes], rng: random.Random) -> None:
    alphabet = sorted({bytes([byte]) for token in tokens for byte in token})
    made = {token: rank for rank, token in enumerate([*alphabet, *tokens])}
    assert ranks.recover_merges(made) == real_ranks.recover_merges(made)
    data = b"".join(rng.choices([*alphabet, *tokens], k=8)) if made else b""
    everything = len(made)
    assert b"".join(ranks.encode(data, made, everything)) == data


def test_a_token_that_nothing_makes_has_no_merge() -> None:
    assert ranks.recover_merges({b"a": 0, b"b": 1, b"c": 2, b"abc": 3}) == []


# -- Every step -------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(engine: str) -> BPETokenizer:
    text = "the cat sat on the mat, naïve cats 日本語 日本, the end " * 9
    return train("cl100k", text, 320, ("<|end|>",))


def check_trace(found: Trace, tokenizer: BPETokenizer, special: str = "none") -> None:
    """Hold the steps against a naive encoder, and the ids against the library."""
    assert found.ids == tokenizer.encode(found.text, allowed_special=special)
    merges = tokenizer.merges
    rank = {pair: number for number, pair in enumerate(merges)}
    for piece in found.pieces:
        if isinstance(piece, Special):
            assert tokenizer.special_tokens[piece.text] == piece.id
            continue
        for state in piece.states():
            assert b"".join(part.data for part in state) == piece.text.encode()
        parts = [bytes([byte]) for byte in piece.text.encode()]
        assert [part.data for part in piece.start] == parts
        for merge in piece.merges:
            known = [
                (rank[pair], i) for i, pair in enumerate(zip(parts, parts[1:])) if pair in rank
            ]
            assert (merge.rank, merge.at) == min(known)
            assert (merge.left.data, merge.right.data) == merges[merge.rank]
            parts[merge.at : merge.at + 2] = [merge.made.data]
        assert not [pair for pair in zip(parts, parts[1:]) if pair in rank]
        assert [tokenizer.decode_bytes([part.id]) for part in piece.parts] == parts
        if len(merges) < 1000:  # it makes a table of them for each piece
            assert parts == reference.encode(piece.text.encode(), merges)


@given(any_text | st.text(alphabet="the catsonm日本語<|>", max_size=60))
@example("the cat<|end|> the")
def test_every_step_is_right(tokenizer: BPETokenizer, text: str) -> None:
    for special in ("none", "all"):
        check_trace(trace(text, tokenizer, allowed_special=special), tokenizer, special)


@given(any_text | few_letters)
def test_no_merge_is_missed_where_all_is_one_piece(text: str) -> None:
    tokenizer = train(r"[\s\S]+", "a b aba abba aab bb a a  ab" * 9, 290)
    check_trace(trace(text, tokenizer), tokenizer)


def test_steps_are_printed() -> None:
    tokenizer = BPETokenizer("cl100k").train(iter(["naïve, naïve"]), 260, verbose=False)
    assert str(trace("nai\u0308ve", tokenizer)) == (
        "text            nai\u0308ve\n"
        "special tokens  none\n"
        "normalized      naïve\n"
        "pre-tokens      naïve\n"
        "\n"
        "naïve\n"
        "  bytes         n│a│⟨C3⟩│⟨AF⟩│v│e\n"
        "  rank 0        n│a⟨C3⟩│⟨AF⟩│v│e   a + ⟨C3⟩\n"
        "  rank 1        na⟨C3⟩│⟨AF⟩│v│e    n + a⟨C3⟩\n"
        "  rank 2        na⟨C3⟩│⟨AF⟩│ve     v + e\n"
        "  rank 3        na⟨C3⟩│⟨AF⟩ve      ⟨AF⟩ + ve\n"
        "  ids           257 259\n"
        "\n"
        "2 ids           257 259"
    )


def test_pieces_that_come_again_are_printed_once(tokenizer: BPETokenizer) -> None:
    printed = str(trace(" the<|end|> the", tokenizer, allowed_special="all"))
    assert printed.count("  bytes ") == 1
    assert "\n\n·the  as before\n" in printed
    assert f"\n\n<|end|>\n  id            {tokenizer.special_tokens['<|end|>']}\n" in printed


def test_colors_are_on_what_was_made(tokenizer: BPETokenizer) -> None:
    found = trace("the cat", tokenizer)
    colored = found.render(colors=True)
    assert re.sub(r"\033\[[\d;]*m", "", colored) == str(found)
    made = [str(merge.made) for piece in found.pieces for merge in piece.merges]
    assert re.findall(r"\033\[38;5;16;48;5;157m(.*?)\033\[0m", colored) == made


def test_nothing_of_a_text_reaches_a_terminal(tokenizer: BPETokenizer) -> None:
    printed = str(trace("\x1b[2J\u202e\x9b\r a\x07", tokenizer))
    assert all(char.isprintable() or char == "\n" for char in printed)


def test_of_long_pieces_what_is_near_is_printed() -> None:
    tokenizer = train(r"[\s\S]+", "abcdefghij" * 20, 260)
    found = trace("abcdefghij" * 150, tokenizer)
    check_trace(found, tokenizer)
    lines = [line for line in str(found).splitlines() if line.startswith("  rank ")]
    merges = [
        merge for piece in found.pieces if isinstance(piece, Pretoken) for merge in piece.merges
    ]
    assert len(lines) == len(merges) > 150
    assert max(map(len, lines)) < 200
    middle = lines[60].split()
    assert middle[2].startswith("…│") and middle[2].endswith("│…")
    colored = found.render(colors=True)
    made = re.findall(r"\033\[38;5;16;48;5;157m(.*?)\033\[0m", colored)
    assert made == [str(merge.made) for merge in merges]


def test_a_token_that_no_merge_makes_is_taken_whole(tmp_path: Path) -> None:
    library = oracles.need("tokenizers")
    alphabet = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: i for i, char in enumerate(alphabet)}
    vocab |= {"ab": 256, "xyz": 257, "bc": 258, "abc": 259}
    model = library.models.BPE(vocab, [("b", "c"), ("a", "b"), ("ab", "c")], ignore_merges=True)
    peer = library.Tokenizer(model)
    peer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.save(str(tmp_path / "tokenizer.json"))
    found = trace("xyz", real := BPETokenizer.from_file(tmp_path / "tokenizer.json"))
    assert found.ids == real.encode("xyz") == peer.encode("xyz").ids == [257]
    assert [(piece.is_whole, len(piece.merges)) for piece in found.pieces] == [(True, 0)]
    assert "  whole         xyz" in str(found)
    found = trace("abc ab", real)
    assert found.ids == real.encode("abc ab") == peer.encode("abc ab").ids
    assert [piece.is_whole for piece in found.pieces] == [True, False]


@pytest.mark.filterwarnings("ignore:.*ordinary text")  # small vocabularies
def test_tokenizers_of_other_kinds(tmp_path: Path) -> None:
    plain = WordTokenizer().train("low lower newest widest " * 2, 30)
    peer = huggingface(plain)
    peer.normalizer = oracles.need("tokenizers").normalizers.Lowercase()
    peer.save(str(tmp_path / "tokenizer.json"))
    found = trace("Lowest zoo", BPETokenizer.from_file(tmp_path / "tokenizer.json"))
    assert found.ids == peer.encode("Lowest zoo").ids
    assert (found.normalizer, found.normalized, found.unit) == (
        "components",
        "lowest zoo",
        "characters",
    )
    assert [[str(part) for part in piece.parts] for piece in found.pieces] == [
        plain.tokenize("lowest"),
        plain.tokenize("zoo"),
    ]


@pytest.mark.parametrize("name", ["r50k_base", "qwen3"])
def test_steps_of_real_tokenizers(
    vocab_dir: Path, corpora: Callable[[str], str], name: str
) -> None:
    real = BPETokenizer.from_file(vocab_dir / f"{name}.tiktoken")
    text = corpora("multi")[7_000:7_700] + "<|endoftext|>" + corpora("code")[:700]
    check_trace(trace(text, real, allowed_special="all"), real, "all")


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a" * 2001, "at most 2,000 characters, got 2,001"), ("a\ud800", "U\\+D800 at character 1")],
)
def test_what_cannot_be_traced(tokenizer: BPETokenizer, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        trace(text, tokenizer)


def replay(data: dict[str, Any]) -> list[int]:
    """Go through the steps of a trace's JSON, as any reader of it would."""
    ids = []
    for piece in data["pieces"]:
        if "special" in piece:
            ids.append(piece["id"])
            continue
        parts = list(piece["start"])
        for merge in piece["merges"]:
            left, right = parts[merge["at"] : merge["at"] + 2]
            assert merge["made"]["bytes"] == left["bytes"] + right["bytes"]
            parts[merge["at"] : merge["at"] + 2] = [merge["made"]]
        assert [part["id"] for part in parts] == piece["ids"]
        ids += piece["ids"]
    return ids


def test_steps_as_json(tokenizer: BPETokenizer) -> None:
    text = "the naïve cats<|end|> sat"
    found = trace(text, tokenizer, allowed_special="all")
    data = json.loads(json.dumps(found.to_json()))
    assert replay(data) == data["ids"] == tokenizer.encode(text, allowed_special="all")


# -- The page of steps --------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


HOSTILE = "the</script><script>document.title = 1</script> naïve cats <!-- <|end|>日\u202e\x1b"


def open_page(browser: Browser, found: Trace, folder: Path) -> None:
    found.to_html(folder / "trace.html")
    browser.driver.get((folder / "trace.html").as_uri())


def shown_parts(browser: Browser) -> list[list[str]]:
    """Return the text and id of each part on the page."""
    parts = browser.run(
        "return [...document.querySelectorAll('#stage .part')].map("
        "(part) => [part.firstChild.textContent, part.querySelector('.id').textContent])"
    )
    return [list(part) for part in parts]


@EITHER_ENGINE
def test_page_goes_through_the_steps_by_keys(
    browser: Browser, tokenizer: BPETokenizer, tmp_path: Path
) -> None:
    keys = oracles.need("selenium.webdriver.common.keys").Keys
    found = trace("the cats<|end|> naïve", tokenizer, allowed_special="all")
    open_page(browser, found, tmp_path)
    body = browser.driver.find_element("tag name", "body")
    n_merges = sum(len(piece.merges) for piece in found.pieces if isinstance(piece, Pretoken))
    n_steps = n_merges + 5  # text, special tokens, pre-tokens, bytes; ids (no normalizer here)

    def count() -> str:
        return str(browser.driver.find_element("id", "count").text)

    assert count() == f"1 of {n_steps}"
    body.send_keys(keys.ARROW_LEFT)
    assert count() == f"1 of {n_steps}"
    for _ in range(3):
        body.send_keys(keys.ARROW_RIGHT)
    assert count() == f"4 of {n_steps}"
    expected = []
    for piece in found.pieces:
        start = [Part(piece.id, piece.text.encode())] if isinstance(piece, Special) else piece.start
        expected += [[str(part), str(part.id)] for part in start]
    assert shown_parts(browser) == expected
    body.send_keys(keys.END)
    assert count() == f"{n_steps} of {n_steps}"
    ids = tokenizer.encode("the cats<|end|> naïve", allowed_special="all")
    assert [int(id_) for _, id_ in shown_parts(browser)] == ids
    assert browser.driver.find_element("id", "caption").text.endswith(" ".join(map(str, ids)))
    body.send_keys(keys.HOME)
    assert count() == f"1 of {n_steps}"
    assert browser.driver.find_element("id", "stage").text == "the·cats<|end|>·naïve"


@EITHER_ENGINE
def test_page_shows_each_merge(browser: Browser, tokenizer: BPETokenizer, tmp_path: Path) -> None:
    found = trace("the cats", tokenizer)
    open_page(browser, found, tmp_path)
    forward = browser.driver.find_element("id", "forward")
    for _ in range(2):
        forward.click()
    for number, piece in enumerate(found.pieces):
        assert isinstance(piece, Pretoken)
        for merge, state in zip(piece.merges, list(piece.states())[1:]):
            forward.click()
            boxes = browser.run(
                "return [...document.querySelectorAll('#stage .piece')].map((box) => "
                "[...box.querySelectorAll('.part')].map((part) => part.firstChild.textContent))"
            )
            assert boxes[number] == list(map(str, state))
            made = browser.run("return document.querySelector('.made').firstChild.textContent")
            assert made == str(merge.made)
            caption = browser.driver.find_element("id", "caption").text
            assert caption.startswith(f"Rank {merge.rank}: {merge.left} + {merge.right} → ")
    forward.click()
    assert not forward.is_enabled()
    browser.driver.find_element("id", "back").click()
    assert forward.is_enabled()
    browser.run("document.querySelector('#list li:nth-child(3) button').click()")
    assert browser.run("return document.getElementById('count').textContent").startswith("3 of")


@EITHER_ENGINE
def test_page_does_nothing_but_show(
    browser: Browser, tokenizer: BPETokenizer, tmp_path: Path
) -> None:
    """Whatever the text holds: nothing of it runs, and nothing is asked of a network."""
    found = trace(HOSTILE, tokenizer, allowed_special="all")
    browser.driver.get_log("performance")
    open_page(browser, found, tmp_path)
    browser.run("document.getElementById('last').click()")
    assert [int(id_) for _, id_ in shown_parts(browser)] == found.ids
    assert browser.driver.title == "From text to ids, step by step"
    assert browser.driver.get_log("browser") == []
    asked = [
        json.loads(entry["message"])["message"]["params"]["request"]["url"]
        for entry in browser.driver.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    assert asked == [(tmp_path / "trace.html").as_uri()]
    page = (tmp_path / "trace.html").read_text(encoding="utf-8")
    policy = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert len(policy) == 1 and policy[0].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[0] and "http:" not in page and "https:" not in page
    blocked = browser.wait("return await fetch('trace.html').then(() => 'read', () => 'blocked')")
    assert blocked == "blocked"


def test_page_is_written_whole_or_not_at_all(tokenizer: BPETokenizer, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="the directory .*nowhere doesn't exist; create it"):
        trace("a", tokenizer).to_html(tmp_path / "nowhere" / "x.html")
    with pytest.raises(IsADirectoryError):
        trace("a", tokenizer).to_html(tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- Side by side -------------------------------------------------------------------


def kind(char: str) -> str:
    return "w" if char.isalnum() or char == "_" else " " if char.isspace() else "."


def test_with_and_without_a_pattern(corpora: Callable[[str], str]) -> None:
    text = corpora("english").replace("<|endoftext|>", "")[200_000:260_000]
    both = side_by_side(text, 600)
    seen, held_out = text[:54_000], text[54_000:]
    for learned, pattern in ((both.without, r"[\s\S]+"), (both.split, "gpt2")):
        real = BPETokenizer(pattern).train(iter([seen]), 600, verbose=False)
        assert learned.tokenizer == real
        assert learned.tokens == [real.decode_bytes([id_]) for id_ in range(256, 600)]
        assert learned.bytes_per_token == len(seen.encode()) / len(real.encode(seen))
        assert learned.held_out == len(held_out.encode()) / len(real.encode(held_out))
        spelled = [token.decode("utf-8", "ignore") for token in learned.tokens]
        assert len(learned.several_words) == sum(
            len(re.findall(r"\w+", token)) > 1 for token in spelled
        )
        kinds = ["".join(map(kind, token)) for token in spelled]
        assert len(learned.punctuated) == sum("w." in each or ".w" in each for each in kinds)
        n_the = sum("the" in re.findall(r"\w+", token) for token in spelled)
        assert len(learned.holding("the")) == n_the
    assert both.word == "the"
    assert len(both.without.several_words) > 10 and not both.split.several_words
    rows = {row[0]: row[1:] for row in both.table().rows}
    assert rows['tokens with "the"'] == [
        len(each.holding("the")) for each in (both.without, both.split)
    ]


@pytest.mark.parametrize("specials", [("<|endoftext|>",), ("<|endoftext|>", "<s>")])
def test_nothing_is_learned_across_special_tokens(specials: tuple[str, ...]) -> None:
    documents = [f"the end, part {i % 7}" for i in range(60)]
    text = "".join(
        f"{document}{specials[i % len(specials)]}" for i, document in enumerate(documents)
    )
    both = side_by_side(text, 300, special_tokens=specials)
    assert both.word == "the"
    cut = re.compile("|".join(map(re.escape, specials)))
    seen = [each for each in cut.split(text[: len(text) * 9 // 10])]
    for learned, pattern in ((both.without, r"[\s\S]+"), (both.split, "gpt2")):
        tokens = [token.decode() for token in learned.tokens]
        assert not [token for token in tokens if "text" in token or "<" in token]
        assert all(any(token in document for document in documents) for token in tokens)
        assert learned.tokenizer == BPETokenizer(pattern).train(iter(seen[:-1]), 300, verbose=False)
    # As ordinary text, they are learned.
    for none in ((), ("",)):
        whole = side_by_side(text, 300, special_tokens=none)
        assert "endoftext" in "".join(map(str, whole.split.tokens))


def test_the_held_out_text_has_no_part_of_a_special_token() -> None:
    before, token, after = "x y " * 50, "<|endoftext|>", "z"
    places = set()
    for n in range(60):  # the border at nine tenths moves through the token
        text = before + token + after * n
        end = len(text) - len(text) // 10
        places.add(min(max(end - len(before), 0), len(token)))
        if end <= len(before):
            held_out = [before[end:], after * n]
        elif end < len(before + token):
            held_out = [after * n]
        else:
            held_out = [text[end:]]
        if not any(held_out):
            continue
        split = side_by_side(text, 260).split
        tokens = sum(map(split.tokenizer.count_tokens, held_out))
        assert split.held_out == sum(map(len, held_out)) / tokens
        assert not [each for each in split.tokens if b"<" in each or b"end" in each]
    assert len(places) == len(token) + 1
    with pytest.raises(ValueError, match="no text between the special tokens"):
        side_by_side("abc " * 30 + "<|endoftext|>" * 2)


def test_ways_in_which_a_word_is_cut() -> None:
    text = "at times. at the time, timely; time! in time. " * 12
    both = side_by_side(text, 290)
    for learned in (both.without, both.split):
        expected: Counter[tuple[bytes, ...]] = Counter()
        tokens = [learned.tokenizer.decode_bytes([i]) for i in learned.tokenizer.encode(text)]
        ends = list(itertools.accumulate(map(len, tokens)))
        for found in re.finditer(r"\btime\b", text):
            expected[
                tuple(
                    token
                    for token, end in zip(tokens, ends)
                    if end > found.start() and end - len(token) < found.end()
                )
            ] += 1
        assert learned.ways("time", text) == expected
        assert sum(expected.values()) == 36
    assert learned.ways("nowhere", text) == {}


def test_side_by_side_as_json() -> None:
    data = json.loads(json.dumps(side_by_side("the dog. the cat. " * 20, 266).to_json()))
    assert data["split"]["tokens"][:3] == ["he", "the", "·the"]
    assert data["without"]["name"] == "no pattern"
    assert data["without"]["several_words"]


def test_long_tokens_are_cut_where_they_are_printed() -> None:
    both = side_by_side("one line of a text that comes again and again\n" * 40, 300)
    assert len(both.without.longest(1)[0]) > 100
    last = str(both).splitlines()[-2]
    assert last.startswith("longest tokens, no pattern: ") and "…" in last
    assert max(map(len, last.partition(": ")[2].split("│"))) == 40


@pytest.mark.parametrize("text", ["", "too short"])
def test_too_little_text_for_two(text: str) -> None:
    with pytest.raises(ValueError, match="at least 10 characters"):
        side_by_side(text)


# -- The commands -------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[str, str]:
    assert bpe_tokenizer.main(list(map(str, argv))) == 0
    return tuple(capsys.readouterr())


def test_trace_command(
    capsys: pytest.CaptureFixture[str], tokenizer: BPETokenizer, tmp_path: Path
) -> None:
    tokenizer.save(tmp_path / "t", verbose=False)
    options = ["trace", "--tokenizer", tmp_path / "t", "the cat<|end|>"]
    assert run(capsys, *options) == (f"{trace('the cat<|end|>', tokenizer)}\n", "")
    (tmp_path / "text").write_bytes(b"the cat<|end|>")
    assert run(capsys, *options[:3], "--file", tmp_path / "text") == run(capsys, *options)
    data = json.loads(run(capsys, *options, "--json", "--allowed-special", "all")[0])
    assert data["ids"] == tokenizer.encode("the cat<|end|>", allowed_special="all")
    out, err = run(capsys, *options, "--html", tmp_path / "t.html")
    assert (out, err) == ("", f"Wrote {tmp_path / 't.html'}\n")
    assert "<title>From text to ids" in (tmp_path / "t.html").read_text(encoding="utf-8")


def test_learn_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = "the dog. the dog! the dog? the cat. the cat! " * 20
    (tmp_path / "text").write_text(text, encoding="utf-8")
    options = ["learn", tmp_path / "text", "--vocab-size", 270]
    assert run(capsys, *options) == (f"{side_by_side(text, 270)}\n", "")
    data = json.loads(run(capsys, *options, "--json", "--pattern", "cl100k")[0])
    assert data["split"]["name"] == "cl100k"
    apart = "the end<|endoftext|>" * 30
    (tmp_path / "text").write_text(apart, encoding="utf-8")
    assert run(capsys, *options) == (f"{side_by_side(apart, 270)}\n", "")
    whole = side_by_side(apart, 270, special_tokens=())
    assert run(capsys, *options, "--special-tokens") == (f"{whole}\n", "")
    chosen = side_by_side(apart, 270, special_tokens=["end<"])
    assert run(capsys, *options, "--special-tokens", "end<") == (f"{chosen}\n", "")


@pytest.mark.parametrize(
    ("argv", "status", "problem"),
    [
        (["trace", "--tokenizer", "", "a"], 2, "expected the path of a tokenizer"),
        (["trace", "--tokenizer", "nowhere", "a"], 1, "nowhere"),
        (["trace", "--tokenizer", "x"], 2, "expected TEXT, --file FILE, or '-'"),
        (["trace", "--tokenizer", "x", "a", "--file", "b"], 2, "TEXT or --file, not both"),
        (["learn", "nowhere"], 1, "nowhere: no such file; expected a text file"),
        (["learn", "."], 1, ".: is a directory; expected a text file"),
    ],
)
def test_commands_say_what_is_wrong(
    capsys: pytest.CaptureFixture[str], argv: list[str], status: int, problem: str
) -> None:
    try:
        found = bpe_tokenizer.main(argv)
    except SystemExit as end:
        found = end.code
    out, err = capsys.readouterr()
    assert (found, out) == (status, "")
    assert problem in err and err.count("\n") == 1
