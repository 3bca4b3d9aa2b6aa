"""Cut every character in many contexts, and print hashes of the pieces, as JSON.

tests/module/test_unicode.py runs this with several releases of `regex`: all must print the same.
It needs nothing else: the library's folder, and the extension's if there is one, are in the path.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator

import regex

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer

CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn"
).split()
CLASSES = [rf"\p{{{name}}}" for name in (*CATEGORIES, "L", "M", "N", "P", "S", "Z", "C", "Cs")]
CLASSES += [r"\p{Han}", r"\p{Hiragana}", r"\p{Katakana}", r"\w", r"\W", r"\s", r"\d", r"[^\s\p{L}]"]

# Patterns that people might write themselves; tiktoken gives each the same meaning.
OWN_PATTERNS = {
    "words": r"\w+|\s+|[^\w\s]+",
    "scripts": r"\p{Han}+|\p{Hiragana}+|\p{Katakana}+|[^\p{Han}\p{Hiragana}\p{Katakana}]",
    "ranges of letters": (
        r"[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U00030000-\U0003347f]+|\p{L}+|\p{N}|[\s\S]"
    ),
    "borders": r"\w+\b|\b\W+|[\s\S]",
    "categories": "|".join(rf"\p{{{name}}}+" for name in CATEGORIES),
    # These name characters that some `regex` takes for others, or compare characters.
    "a letter": r"[\u0295]|\p{Ll}+|[^\u0295\p{Ll}\p{Nd}]|\d",
    "a range": r"[\U00030000-\U0003347f]+|[^\U00030000-\U0003347f]",
    "ends of a range": r"[\U000323b0-\U00033479]+|\p{L}+|\P{L}",
    "a pair": r"(\w)\1|(?:(.)\2)+|[\s\S]",
    "any pair": r"(.)\1|[\s\S]",
}
PATTERNS = {**SPLIT_PATTERNS, **OWN_PATTERNS}
CONTEXTS = ("a{}'s{}", "A {}{}1\n", "{}ʕ の{} {}")

# Every character, where they are of many kinds; of long ranges that are all alike, only some.
CODES = [*range(0x3400), *range(0xA000, 0xAC00), *range(0xF900, 0x11000)]
CODES += [*range(0x3400, 0xA000, 101), *range(0xAC00, 0xD800, 101), *range(0xE000, 0xF900, 997)]
CODES += [*range(0x11000, 0x17000, 3), *range(0x17000, 0x1D000, 13), *range(0x1D000, 0x20000, 3)]
CODES += [*range(0x20000, 0x110000, 997), *range(0x2EBDC, 0x2EE60, 7), *range(0x323A0, 0x33490, 7)]
CODES += [*range(0xE0000, 0xE0200, 3)]
CORPUS = "low lower's LOWEST 12 345\n\n ʕ の é\u0301 — 「日本」 ɐʕa ʕʕ1 の1" * 50


def texts(codes: Iterable[int]) -> Iterator[str]:
    """Yield each character in all contexts."""
    for code in codes:
        yield "".join(context.replace("{}", chr(code)) for context in CONTEXTS)


def digest(items: Iterable[object]) -> str:
    """Return a hash of some items."""
    return hashlib.sha256(",".join(map(str, items)).encode()).hexdigest()[:16]


def pieces_in_c(pattern: str, text: str) -> list[bytes] | None:
    """Cut a text by the extension, where it has a scanner or an automaton for the pattern."""
    from _bpe_tokenizer import engine, native

    cutter = engine._cutter_for(pattern)
    return native.split(cutter, text) if cutter else None


def cuts(pattern: str) -> Iterator[str]:
    """Hash what each engine cuts, by blocks of characters."""
    splitter = bpe_tokenizer._Splitter(pattern)
    for first in range(0, len(CODES), 20_000):
        text = "".join(texts(CODES[first : first + 20_000]))
        pieces = [piece.encode() for piece in splitter.split(text)]
        if bpe_tokenizer.ACCELERATED:
            pieces = pieces_in_c(pattern, text) or pieces
        yield digest(map(len, pieces))


def ids(pattern: str) -> Iterator[str]:
    """Hash the ids of some characters, streamed and at once."""
    tokenizer = BPETokenizer(pattern, normalizer=None).train(CORPUS, 400, verbose=False)
    some = [*range(0x250, 0x600), *CODES[::97]]
    for text in texts(some):
        yield digest(tokenizer.encode(text))
    whole = "".join(texts(some[::7]))
    chunks = (whole[at : at + 5] for at in range(0, len(whole), 5))
    streamed = [id_ for part in tokenizer.encode_streaming(chunks) for id_ in part]
    assert streamed == tokenizer.encode(whole)


def main() -> None:
    """Print the hashes, and what they were made with."""
    from bpe_tokenizer_tools.patterns.characters import members

    report = {
        "classes": {each: digest(members(each)) for each in CLASSES},
        "cuts": {name: [*cuts(pattern)] for name, pattern in PATTERNS.items()},
        "ids": {name: digest(ids(pattern)) for name, pattern in PATTERNS.items()},
    }
    about = {"regex": regex.__version__, "accelerated": bpe_tokenizer.ACCELERATED}
    changed = sum(stop - start for start, stop, _ in bpe_tokenizer._unicode().changed)
    print(json.dumps({"about": {**about, "changed": changed}, "report": report}), file=sys.stdout)


if __name__ == "__main__":
    main()
