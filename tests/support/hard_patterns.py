"""Random split patterns: kinds that an automaton can replace, and some that it can't."""

from __future__ import annotations

import random

SETS = [
    *["a", "b", "A", "s", " ", "'", "1", "\\n", "\\r", "/", "中", "😀", "\\u0301", "\\.", "ſ"],
    *[r"\p{L}", r"\p{Lu}", r"\p{Ll}", r"\p{N}", r"\p{M}", r"\p{P}", r"\s", r"\S", r"\d", r"\w"],
    *[".", r"\W", r"\D", r"[ab]", r"[^ab]", r"[a-e]", r"[\r\n]", r"[^\r\n\p{L}\p{N}]", r"[\s\S]"],
    *[
        r"[^\s\p{L}\p{N}]",
        r"[\p{L}\p{M}]",
        r"[^\S\n]",
        r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
        r"[一-龥]",
    ],
]
WORDS = ["'s", "ll", "'ll", "ab", "aab", "  ", "\\r\\n", "1a", "ss", "st"]
QUANTIFIERS = ["*", "+", "?", "{1,3}", "{2}", "{2,}", "{0,2}", "{1,2}", "{3}"]
AHEAD = [r"(?!\S)", r"(?=\S)", r"(?!\s)", r"(?!a)", r"(?=[ab])", r"(?=\s|$)", r"\Z", "$", r"(?!\Z)"]
ODD = [r"(?=ab)", r"(?<=a)", r"\b", r"\A", r"(?!a*b)"]  # no automaton handles these

# Users' patterns often look like this: words, numbers, signs, white space.
PARTS = [
    *[
        "'(?i:[sdmt]|ll|ve|re)",
        "(?i:'s|'t|'re)",
        "'s|'t|'re|'ve|'m|'ll|'d",
        r"[^\r\n\p{L}\p{N}]?+\p{L}++",
    ],
    *[
        r" ?\p{L}+",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{Lu}?\p{Ll}+",
        r"\p{L}[\p{L}\p{M}]*+",
        r"\w+(?:'\w+)?",
    ],
    *[r"\p{N}{1,3}", r"\p{N}", r" ?\p{N}+", r"(?>\p{N}{1,3})", r"\d+(?:\.\d+)?", r"[+-]?\d{1,4}+"],
    *[
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r" ?[^\s\p{L}\p{N}]++[\r\n/]*+",
        r"[^\s\w]{1,3}?",
        r"(?:[!?]|\.\.)+",
    ],
    *[r"\s*[\r\n]+", r"\s*[\r\n]", r"\s++$", r"\s+(?!\S)", r"\s+", r"\s", r" {2,}(?= )", r"\n+|\t"],
]


def some_pattern(chance: random.Random) -> str:
    """Return a pattern: one that users might write, or one that no user would write."""
    if chance.randrange(2):
        parts = chance.sample(PARTS, chance.randrange(2, 8))
        if chance.randrange(3) == 0:
            parts.append(_part(chance, 1))
        return "|".join(parts)
    pattern = _either(chance, 3)
    return f"(?i){pattern}" if chance.randrange(8) == 0 else pattern


def _either(chance: random.Random, depth: int) -> str:
    return "|".join(_parts(chance, depth) for _ in range(chance.choice([1, 1, 2, 3])))


def _parts(chance: random.Random, depth: int) -> str:
    parts = [_part(chance, depth) for _ in range(chance.choice([1, 2, 2, 3, 4]))]
    if chance.randrange(5) == 0:
        parts.insert(chance.randrange(1, len(parts) + 1), chance.choice(AHEAD))
    if chance.randrange(60) == 0:
        parts.append(chance.choice(ODD))
    return "".join(parts)


def _part(chance: random.Random, depth: int) -> str:
    way = chance.randrange(10)
    if way == 0:
        part = chance.choice(WORDS)
        return part if chance.randrange(2) else f"(?:{part})" + _quantifier(chance)
    if way <= 2 and depth:
        group = chance.choice(["(?:", "(?:", "(?>", "(?i:", "("])
        return f"{group}{_either(chance, depth - 1)})" + _quantifier(chance)
    return chance.choice(SETS) + _quantifier(chance)


def _quantifier(chance: random.Random) -> str:
    if chance.randrange(3) == 0:
        return ""
    return chance.choice(QUANTIFIERS) + chance.choice(["", "", "", "?", "+"])


# Characters that those sets distinguish, and characters easily confused with them.
CHARACTERS = "aabbABceszSZ'’  \t\n\n\r\u00a0\u3000\x85\u2028112.!?/_-+ſßéÉǅʰªıİKk"
CHARACTERS += "\u0301\u0345\u0903中文あ٣²Ⅷ😀𐐀𐐨𝟘\0\u200d"


def some_text(chance: random.Random) -> str:
    """Return text of a few characters, often repeated."""
    few = chance.choices(CHARACTERS, k=chance.choice([2, 4, 8, 30]))
    text = "".join(chance.choices(few, k=chance.choice([1, 3, 8, 20, 60])))
    if chance.randrange(4) == 0:
        text += chance.choice(["\n", " \n", "\r\n", "\n\n", "  "])
    return text
