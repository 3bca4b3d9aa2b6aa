"""A tokenizer.json in this library and in the one whose format it is, and text to compare them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import regex
from hypothesis import strategies as st
from oracles import need

from bpe_tokenizer import BPETokenizer

tokenizers = need("tokenizers")

from tokenizer_files import FAMILIES  # noqa: E402  (needs the library)

CRAFTED = [
    "",
    " ",
    "  ",
    "\n",
    "a",
    " a",
    "a ",
    "  a  b  ",
    "\u3000\u00a0 \u2028a\u0085b\x1c\x1f \u200b\u200c\u200d\ufeff\u180e",
    "Hello, world! It's they'LL 'Re I'Ve don'T 'ſ Don\u2019t ''s 'sx",
    "0 12 123 1234 12345 123456 1234567 1,234.5 １２３ ١٢٣٤ ½²³ Ⅷ ①② 007x8y 2024-01-02",
    "def f(x):\n    return x\n\n\n\tif a:\r\n\t\tb\r\r\n \n \t \n",
    "世界你好,今天。日本語とカタカナ・ﾊﾝｶｸ 漢字々〇 한국어 ᄒ\u1161\u11ab 𠮷𪚥 中a文1字 Ａｂ",
    "e\u0301 é E\u0301\u0323 \u0301x a\u0300\u0301\u0302 ñ Å Å ﬁ ﬀ ẞß İıI ΑΣ ΟΔΟΣ. ǅ ŉ Σ",
    "नमस्ते दुनिया १२३ हिन्दी مَرْحَبًا، بالعالم؟ שלום־עולם สวัสดี ไม่มี ក្រុម",
    "🙂🙂 👍🏽 👨‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ 1️⃣ 😀\ufe0f \U000e0067 \U0010ffff \ue000 \U0001d400",
    "!!! ... --- $5 <=> a+b=c ^_^ `x` ~y~ |z| @me #1 /a/b\\c {[()]} «q» “r” ¿s? ¡t! 。、！？",
    "▁a ▁▁b ▁ ▁ c▁ <0x41> <0xC3><0xA9> <0xFF> </w> a</w>b ##a a##b Ġx Ċ Ã©",
    "tokenizers quick    123 the The THE thé word words sword word1 word. é tokenizing",
    "\x00\x01\x7f\x80\x9f \x0b\x0c \ufffd \ufdd0 \u0378 \U000e0001 \U0003ffff",
    "a" * 300 + " " * 100 + "\n" * 30 + "ab " * 50 + "1" * 50 + "中" * 50 + "\u0301" * 30,
]
PASSAGE = 4_000  # characters; each family reads another one
PIECES = [
    *(
        " ",
        "  ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "\u3000",
        "\u00a0",
        "\u2028",
        "\x0b",
        "\u200b",
        "\x1c",
    ),
    *(
        "'s",
        "'S",
        "'ll",
        "'Re",
        "'ſ",
        "'",
        "\u2019s",
        "a",
        "B",
        "the",
        "The",
        " the",
        "İ",
        "ß",
        "Σ",
    ),
    *("1", "12", "123", "1234567", "½", "²", "٣", "Ⅷ", "१", "１"),
    *("世", "世界", "の", "カ", "한", "\u1112\u1161", "々", "〇", "𠮷", "。", "、", "ー"),
    *("\u0301", "e\u0301", "\u0323", "é", "ﬁ", "Å", "\u093f", "क्ष", "\u0e33", "\u20dd", "\ufe0f"),
    *("🙂", "👍🏽", "👨‍👩‍👧", "🇩🇪", "\u200d", "\u200c", "م", "ش", "ש", "я", "Я", "ǅ", "ʰ", "ª"),
    *(
        "!",
        ".",
        ",",
        "$",
        "+",
        "<",
        "|",
        ">",
        "_",
        "/",
        "(",
        "[",
        "-",
        "«",
        "、",
        "▁",
        "▁▁",
        "</w>",
    ),
    *("word", "##", "<0x41>", "Ġ", "\ufffd", "\x00", "\ue000", "\U0010ffff"),
]


UNASSIGNED = tokenizers.normalizers.Replace(tokenizers.Regex(r"\p{Cn}"), "")


def is_known(char: str) -> bool:
    """Return whether both sides' tables say of a character that it is, or is not, assigned.

    Those of the other library are Unicode 16's; those of `regex` depend on its version.
    """
    return bool(UNASSIGNED.normalize_str(char)) != bool(regex.match(r"\p{Cn}", char))


def make_text(family: str) -> st.SearchStrategy[str]:
    """Make text that is likely to meet what a family does, its added tokens above all."""
    added = [token["content"] for token in FAMILIES[family].added]
    parts = [token[:cut] for token in added for cut in (len(token), len(token) // 2, -1)]
    whole = added + [f" {token} " for token in added] + [token.lower() for token in added]
    anything = st.characters(exclude_categories=["Cs"]).filter(is_known)
    one = st.one_of(
        st.sampled_from(PIECES),
        st.sampled_from(PIECES),
        st.sampled_from(whole),
        st.sampled_from(parts),
        anything,
    )
    return st.lists(one, max_size=20).map("".join)


class Pair:
    """One file in both libraries."""

    def __init__(self, path: Path, text: str, ours: type[BPETokenizer] = BPETokenizer) -> None:
        self.path = path
        path.write_text(text, encoding="utf-8")
        self.theirs = tokenizers.Tokenizer.from_str(text)
        self.blind = tokenizers.Tokenizer.from_str(text)
        self.blind.encode_special_tokens = True
        self.ours = ours.from_pretrained(path, verbose=False)
        file = json.loads(text)
        self.added = file["added_tokens"]
        self.control = {token["id"]: token["content"] for token in self.added if token["special"]}
        changed = {token["id"] for token in self.added if self.is_changed(token)}
        # The other library never skips a special token that its own normalizer changes, ...
        self.missed = changed.intersection(self.control)
        # ... and before 0.23, it decodes the unchanged content.
        self.respelled = changed if tokenizers.__version__ < "0.23" else set()
        # What stands for broken bytes is each library's own where these are byte fallback's, or
        # where the other one takes the characters of an added token for bytes.
        byte_chars = {char for char in tokenizers.pre_tokenizers.ByteLevel.alphabet() if char > "~"}
        as_bytes = any(byte_chars.intersection(token["content"]) for token in self.added)
        self.breaks_alike = not as_bytes and not file["model"].get("byte_fallback")

    def is_changed(self, token: Any) -> bool:
        normalizer = self.theirs.normalizer
        if not (normalizer and token["normalized"]):
            return False
        return str(normalizer.normalize_str(token["content"])) != token["content"]

    def assert_ids_equal(self, text: str) -> None:
        for special in (False, True):
            expected = self.theirs.encode(text, add_special_tokens=special)
            assert self.ours.encode(text, special, "all") == expected.ids
            result = self.ours.encode_with_offsets(text, special, "all")
            assert result.input_ids == expected.ids
            assert result.offsets == expected.offsets
        expected = self.blind.encode(text, add_special_tokens=False)
        result = self.ours.encode_with_offsets(text)
        assert self.ours.encode(text) == result.input_ids
        if self.injected(text, expected.ids, expected.offsets):
            assert not self.injected(text, result.input_ids, result.offsets)
        else:
            assert result.input_ids == expected.ids
            assert result.offsets == expected.offsets

    def injected(self, text: str, ids: list[int], offsets: Any) -> bool:
        """Return whether a control token was made of its own string, which is but text here.

        The other library does so where `ignore_merges` finds the string in the vocabulary.
        """
        written = {text[slice(*place)] for id_, place in zip(ids, offsets) if id_ in self.control}
        return not written.isdisjoint(self.control.values())

    def assert_decoded_equal(self, ids: list[int]) -> None:
        ids = [id_ for id_ in ids if id_ not in self.respelled]
        for skip in (False, True):
            kept = [id_ for id_ in ids if not (skip and id_ in self.missed)]
            expected = self.theirs.decode(kept, skip_special_tokens=skip)
            found = self.ours.decode(ids, skip_special_tokens=skip)
            if self.breaks_alike or "\ufffd" not in expected:
                assert found == expected
        assert "".join(self.ours.decode_streaming(ids)) == self.ours.decode(ids)

    def assert_as_at_home(self, text: str, ids: list[int], rng: random.Random) -> None:
        """Compare ids, decoded ids, of the text and others, and streams."""
        self.assert_ids_equal(text)
        self.assert_decoded_equal(self.theirs.encode(text).ids)
        self.assert_decoded_equal(ids)
        self.assert_streamed(text, rng)

    def assert_streamed(self, text: str, rng: random.Random) -> None:
        cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randrange(6)))
        chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]
        for allowed in ("all", "none"):
            joined = [id_ for ids in self.ours.encode_streaming(chunks, allowed) for id_ in ids]
            assert joined == self.ours.encode(text, allowed_special=allowed)
