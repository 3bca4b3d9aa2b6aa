r"""Numbers in groups of three from the right, as people write them: 1|234|567 and not 123|456|7.

Tokenizer.json files write it ``\d{1,3}(?=(?:\d{3})*\b)``, which looks to the end of the number
again for each group: quadratic time for a long one.  Here only the first group of a number
looks ahead.  The others follow a digit, and are three digits, however many there are:

    (?<!\p{N})(?:\p{N}{3}THREES|\p{N}THREES|\p{N}{2})|(?<=\p{N})\p{N}{3}

where THREES looks ahead: ``(?=(?>(?:\p{N}{3})*)(?!\p{N}))``.  It is tried at most twice, as `regex`
takes quadratic time if it fails twice and is tried again.
"""

from __future__ import annotations

import regex

from bpe_tokenizer_tools import core

__all__ = ["digits_from_the_right"]

_THREES = r"(?=(?>(?:\p{N}{3})*)(?!\p{N}))"
_FIRST = rf"(?<!\p{{N}})(?:\p{{N}}{{3}}{_THREES}|\p{{N}}{_THREES}|\p{{N}}{{2}})"
_NEXT = r"(?<=\p{N})\p{N}{3}"
_NUMBER = regex.compile(r"(?<![^|])( \?)?\\p\{N\}(?:\{1,\d\}\+?|\+{0,2})(?![^|])")  # a whole way


def digits_from_the_right(split_pattern: str = "gpt2") -> str:
    r"""Return a split pattern that cuts numbers in threes from the right, and other text as before.

    Args:
        split_pattern: a name from `SPLIT_PATTERNS`, or a pattern, with one alternative for numbers:
            ``\p{N}+``, ``\p{N}{1,3}``, ``\p{N}`` or the like, after `` ?`` or not.

    Raises ValueError for a pattern without such an alternative.

    >>> from bpe_tokenizer import BPETokenizer
    >>> tokenizer = BPETokenizer(digits_from_the_right("llama3"))
    >>> _ = tokenizer.train("1 234 567 " * 9, vocab_size=263, verbose=False)
    >>> tokenizer.tokenize("1234567")
    ['1', '234', '567']
    """
    pattern = core.pattern_named(split_pattern)
    made, n = _NUMBER.subn(lambda found: f"{found[1] or ''}{_FIRST}|{_NEXT}", pattern)
    if n != 1:
        shown = core.shorten(split_pattern)
        raise ValueError(
            rf"split pattern {shown} has {n} alternatives for numbers, such as \p{{N}}{{1,3}}, and "
            "must have one"
        )
    return made
