"""Texts that show whether two tokenizers are the same.

`CONFORMANCE_TEXTS` are the same for all tokenizers: scripts, white space, digits,
contractions, emoji.  `conformance_texts` adds texts that depend on the tokenizer:

- its special tokens between words;
- every two of the character classes that its split patterns distinguish, side by side,
  and one token of each shape (such as capitals, then marks, then digits): these find a
  library that splits text differently;
- texts built from its own vocabulary, which find a changed merge that no sentence would.
"""

from __future__ import annotations

import contextlib
import itertools
import unicodedata
from collections.abc import Iterator

import regex

from bpe_tokenizer import GPT2_SPLIT_PATTERN, BPETokenizer
from bpe_tokenizer_tools.patterns import algebra
from bpe_tokenizer_tools.patterns.families import steps_of
from bpe_tokenizer_tools.patterns.oniguruma import from_oniguruma

CONFORMANCE_TEXTS: tuple[str, ...] = (
    # words and white space
    "The quick brown fox jumps over the lazy dog.",
    " one space before, two  between, three   and one behind ",
    "tabs\tand\t\tmore\t \ttabs",
    "lines\nwith\n\nblank\n\n\nlines\r\nfrom\r\n\r\nWindows\rand Mac\n",
    "ends in spaces    ",
    "ends in blank lines \n \n\n  \n",
    "    def f(x):\n        return x  # four, then eight\n\n\n\tif y:\n\t\tpass\n",
    "no-break\u00a0space, thin\u2009space, ideographic\u3000space, line\u2028separator, "
    "next\u0085line",
    "zero\u200bwidth, soft\u00adhyphen, word\u2060joiner, \ufeffbyte order mark",
    # contractions
    "I'm sure they're right, we've said he'd say it's what she'll do; don't!",
    "I'M SURE THEY'RE RIGHT, WE'VE SAID HE'D SAY IT'S WHAT SHE'LL DO; DON'T!",
    "It’s not the same ‘quote’, is it? O'Neill's 'tis 'twas rock'n'roll 'S 'LL \u017f'\u017f",
    # digits
    "0 12 123 1234 12345 123456 1234567 12345678901234567890",
    "3.14159 -2,718.28 1e-10 0xFF 1/2 50% $9.99 10:30 2024-02-29 +1(555)0100",
    "٣٤٥ ४५६ ๑๒๓ １２３４ ½ ² Ⅷ ① 五十",
    # code and signs
    "for (int i = 0; i < n; ++i) { a[i] += b->c[i] * 2; } // done",
    'print(f"{x!r:>10}", end="\\n") if __name__ == "__main__" else ...',
    "<html><body class='x'>&amp; &lt;b&gt;</body></html>",
    "SELECT * FROM t WHERE a_b = 'c' AND d != 3;--",
    "camelCase PascalCase snake_case SCREAMING_CASE kebab-case iPhone McDonald HTTPServer",
    "!!! ??? ... --- ___ === *** ### @@@ ~~~ ^^^ ||| //// \\\\\\\\ (([[{{}}]]))",
    "https://example.org/a/b.html?q=1&r=%20#top user@example.org /usr/local/bin C:\\Temp\\x.txt",
    "— – … “quoted” «dit» ¡hola! ¿qué? § € £ ¥ ≠ ≤ ∞ ∑ → ■ ☃",
    # Latin, with marks composed and apart
    "Straße, naïve façade, Łódź, český, Þorlákur, İstanbul ışık, Tiếng Việt",
    "cafe\u0301 e\u0301\u0302 n\u0303 A\u030a o\u0308\u0323 ǅ \ufb01 \u212b \u2126 ẞ",
    # other alphabets
    "Ελληνικά: Οδυσσεύς, Ἀρχή.",
    "Русский текст, йогурт и Ёлка; Українська їжа.",
    "Հայերեն ქართული አማርኛ",
    # from right to left
    "العربية: مَرْحَبًا، عام ٢٠٢٤؛ فارسی می\u200cروم",
    'עברית: שָׁלוֹם עולם, צה"ל',
    # South and South-East Asia: letters with marks
    "हिन्दी में नमस्ते दुनिया। ক্ষ বাংলা ড়",
    "தமிழ் வணக்கம் తెలుగు ಕನ್ನಡ മലയാളം සිංහල",
    "ภาษาไทยไม่มีช่องว่าง ນຳລາວ ភាសាខ្មែរ မြန်မာစာ བོད་སྐད་",
    # East Asia
    "中文没有空格，也有标点。繁體字「引號」；2024年10月。",
    "日本語の文章、カタカナーとひらがな。ｶﾞ か\u3099 が",
    "한국어 문장입니다. \u1112\u1161\u11ab\u1100\u1173\u11af ㄱㄴㄷ",
    "𠀀𪛖𰀀 𝔄𝔟𝟘 𐌰𐍈 𞤀𞤢",
    # emoji: joined, with skin tones, flags, keycaps
    "😀😂 👍🏽 👨\u200d👩\u200d👧\u200d👦 ❤\ufe0f \U0001f1eb🇷🇯🇵 1\ufe0f\u20e3 🏳\ufe0f\u200d🌈",
    "ok😀ok 😀😀😀😀 ☺☺",
    # scripts side by side, long runs, oddities
    "abcдеф中文123אבגxyz😀กข",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ha" * 40 + " " * 40 + "\n" * 40 + "-" * 80 + "0" * 40,
    "\u0001\u001b[0m\u007f \u0080\u009f � \ufffe \ue000 \U0010fffd",
    "<0x0A> ▁▁ Ġa </w> ## [UNK] <unk> <s> </s> <|x|>",
    "a",
    " ",
    "\n",
    "",
)

# Characters of every category, from old versions of Unicode, because libraries use different
# ones.  "ſ" is left out: llama.cpp never treats it as an "s".
_CHARACTERS = (
    "".join(map(chr, range(1, 128)))
    + "ÁÉŻΩДԱႠḀＡ𐐀𝐀áéßωдաḁａ𐐨𝐚ǅᾈʰーªא中あカ한กع𠀀"  # letters
    + "\u0301\u0308\u3099\u0e31\u064e\u0903\u093e\u20dd"  # marks
    + "٣५０๓𝟘Ⅷ〇½²①"  # numbers
    + "‿—„（”»«“…。،；€￥≤´☃😀🇫"  # signs
    + "\u00a0\u2009\u3000\u2028\u2029\x85\x9f\u200d\u00ad\ue000\U0010fffd"  # white space, the rest
)
_RUNS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 64, 130)

# Runs of what patterns count or look behind: white space of every kind, digits of every script.
RUN_TEXTS: tuple[str, ...] = (
    *(
        "".join(f"a{space * n}" for n in _RUNS) + tail
        for space in (" ", "\t", "\n", "\r\n", "\u00a0", "\u3000", " \n", "\n ", "\t ", "\x0b")
        for tail in ("b", "!", "")
    ),
    " " * 600 + "a",
    *("".join(f"{digit * n} " for n in range(1, 9)) for digit in "7٣५０𝟘½Ⅷ①"),
    "12٣4५６ 1٣٣٣٣ ½1 a1٣b 1.٣,٣",
)

_MOST_SHAPES = 600  # of tokens
_MOST_TOKENS = 2_000  # of the vocabulary, to build texts from
_TOKENS_PER_TEXT = 50


def conformance_texts(tokenizer: BPETokenizer) -> list[str]:
    """Return the texts to test a tokenizer with."""
    special = [token.content for token in tokenizer.added_tokens][:200]
    between = [
        "".join(f"word{token}" for token in special) + "end",
        " ".join(special),
        *(f"{token}{token} x {token}\n{token}" for token in special[:20]),
    ]
    tokens = _whole_tokens(tokenizer)
    return [
        *CONFORMANCE_TEXTS,
        *(between if special else []),
        *RUN_TEXTS,
        *_class_texts(tokenizer),
        *_shape_texts(tokens),
        *_vocabulary_texts(tokens),
    ]


def _whole_tokens(tokenizer: BPETokenizer) -> list[str]:
    """Return the text of each ordinary token that is text, in the order of ids."""
    added = {token.id for token in tokenizer.added_tokens}
    ids = sorted(id_ for id_ in tokenizer.get_vocab().values() if id_ not in added)
    tokens = [tokenizer.decode([id_]) for id_ in ids]
    return [token for token in tokens if token and "\ufffd" not in token and "\0" not in token]


def _patterns(tokenizer: BPETokenizer) -> Iterator[str]:
    """Yield the regular expressions that cut text, as `regex` spells them."""
    if tokenizer.components is None:
        yield tokenizer.definition.split_pattern
        return
    for step in steps_of(tokenizer.components.get("pre_tokenizer")):
        written = (step.get("pattern") or {}).get("Regex")
        if written:
            with contextlib.suppress(ValueError):  # patterns it can't spell have no classes
                yield from_oniguruma(written)
        elif step["type"] == "ByteLevel":
            yield GPT2_SPLIT_PATTERN


def _class_texts(tokenizer: BPETokenizer) -> Iterator[str]:
    """Put every two classes of characters side by side, once each and doubled.

    Two characters are in the same class if no set in a pattern distinguishes them, they have the
    same category, and both or neither are ASCII.
    """
    sets: set[str] = set()
    for pattern in _patterns(tokenizer):
        with contextlib.suppress(algebra.UnknownConstructError, RecursionError):
            sets |= algebra.leaves(algebra.PatternParser(pattern).parse())
    matchers = [regex.compile(each) for each in sorted(sets)]
    classes: dict[tuple[object, ...], str] = {}
    for char in _CHARACTERS:
        within = tuple(bool(matcher.match(char)) for matcher in matchers)
        classes.setdefault((unicodedata.category(char), char.isascii(), within), char)
    chars = list(classes.values())
    for first in chars:
        yield " ".join(first + second for second in chars)
        yield "\n".join(first * 2 + second * 2 for second in chars)


def _shape_texts(tokens: list[str]) -> Iterator[str]:
    """Put tokens below each other, one of each shape: its categories in order, ASCII or not."""
    shapes: dict[tuple[object, ...], str] = {}
    for token in tokens:
        kinds = ((unicodedata.category(char), char.isascii()) for char in token)
        shapes.setdefault(tuple(kind for kind, _ in itertools.groupby(kinds)), token)
    found = list(shapes.values())
    found = found[:: max(1, len(found) // _MOST_SHAPES)]
    for start in range(0, len(found), _TOKENS_PER_TEXT):
        yield "\n".join(found[start : start + _TOKENS_PER_TEXT])


def _vocabulary_texts(tokens: list[str]) -> Iterator[str]:
    """Put tokens side by side, taken evenly from the whole vocabulary."""
    some = tokens[:: max(1, len(tokens) // _MOST_TOKENS)]
    for start in range(0, len(some), _TOKENS_PER_TEXT):
        yield "".join(some[start : start + _TOKENS_PER_TEXT])
        yield " ".join(some[start : start + _TOKENS_PER_TEXT])
