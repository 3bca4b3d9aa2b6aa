"""Loaders of tokenizer.json that reject what `save` writes, and what to do about it.

HuggingFace's tokenizers 0.2x load all of it.  Faster loaders have code for some split patterns,
which they recognize by spelling, and no general engine; some also lack normalizers.  This was
measured with the versions in `MEASURED`; tests/dropin/test_loaders.py compares each entry with the
libraries themselves, and with their ids.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns.families import KIMI
from bpe_tokenizer_tools.patterns.known import SPELLINGS
from bpe_tokenizer_tools.patterns.oniguruma import from_oniguruma

TOKENIZERS, TOKENIZERS_1 = "tokenizers 0.23", "tokenizers 1.0"
GIGATOKEN, FASTOKENS = "gigatoken", "fastokens"
MEASURED = {  # package -> the version that was measured
    TOKENIZERS: "0.23.3",
    TOKENIZERS_1: "1.0.0rc3",  # pip installs a release candidate by its exact version only
    GIGATOKEN: "0.10.0",
    FASTOKENS: "0.3.5",
}

_EVERYWHERE = ("gpt2", "o200k", "llama3", "qwen2", "tekken", "deepseek-v3")
PATTERNS: dict[str, tuple[str, ...]] = {  # loader -> the patterns it knows; others know all
    TOKENIZERS_1: (*_EVERYWHERE, "kimi", "none"),
    GIGATOKEN: (*_EVERYWHERE, "qwen3.5"),
}
_MISTAKEN = {  # loader -> patterns that it loads but cuts differently
    TOKENIZERS_1: ("nanochat", "numbers uncut"),
    GIGATOKEN: ("none",),
}
NORMALIZERS = {GIGATOKEN: (None, "NFC"), FASTOKENS: (None, "NFC")}
_NAMES = {  # patterns that have a name only here
    core.UNCUT_PATTERN: "none",
    SPLIT_PATTERNS["llama3"].replace("{1,3}", "+"): "numbers uncut",
    from_oniguruma(KIMI): "kimi",
}
_LIKE_CL100K = (
    "a new tokenizer can train with 'llama3' instead, which differs only where white space ends a "
    "text"
)
_FILL = (
    "fill them: bpe_tokenizer_tools.formats.loaders.fill_gaps(tokenizer), or convert --fill-gaps"
)
_MOST_FILLED = 10_000  # more than any gap in use


class Limit(NamedTuple):
    """What some loaders cannot do with a tokenizer, and what to do about it."""

    loaders: tuple[str, ...]
    problem: str  # "can't load the split pattern 'cl100k'"
    remedy: str

    def __str__(self) -> str:
        return f"{' and '.join(self.loaders)} {self.problem}; {self.remedy}"


def limits(tokenizer: BPETokenizer) -> list[Limit]:
    """Return the known problems with the tokenizer.json of a tokenizer.

    Nothing is known of tokenizers with components of their own.
    """
    found = list(_limits(tokenizer)) if tokenizer.components is None else []
    able = [each for each in MEASURED if not any(each in limit.loaders for limit in found)]
    can = f"{', '.join(able[:-1])}{' and ' if able[1:] else ''}{''.join(able[-1:])} can load it"
    return [limit._replace(remedy=limit.remedy or can) for limit in found]


def limit_of(tokenizer: BPETokenizer, loader: str) -> Limit | None:
    """Return the first known problem of one loader with a tokenizer, or None."""
    return next((limit for limit in limits(tokenizer) if loader in limit.loaders), None)


def _limits(tokenizer: BPETokenizer) -> Iterator[Limit]:
    pattern = tokenizer.definition.split_pattern
    name = _NAMES.get(pattern) or SPELLINGS.get(pattern, "own")
    shown = f"the split pattern {name!r}" if name in SPLIT_PATTERNS else "this split pattern"
    mistaken = [loader for loader, names in _MISTAKEN.items() if name in names]
    if mistaken:
        yield Limit(tuple(mistaken), f"gives other ids for {shown}", "")
    unable = [each for each, names in PATTERNS.items() if name not in names]
    unable = [loader for loader in unable if loader not in mistaken]
    if unable:
        remedy = _LIKE_CL100K if name == "cl100k" else ""
        yield Limit(tuple(unable), f"can't load {shown}", remedy)
    form = tokenizer.normalizer
    unable = [loader for loader, forms in NORMALIZERS.items() if form not in forms]
    if unable:
        yield Limit(tuple(unable), f"can't load the normalizer {form}", "")
    if tokenizer.max_id >= tokenizer.vocab_size:
        yield Limit((FASTOKENS,), "can't load ids with gaps", _FILL)


def notes(tokenizer: BPETokenizer) -> str:
    """Describe the known problems with a saved tokenizer, a line each."""
    return "".join(f"note: {limit}\n" for limit in limits(tokenizer))


def fill_gaps(tokenizer: BPETokenizer) -> BPETokenizer:
    """Return a copy with a special token for each id up to the largest that has none.

    They are called ``<|reserved_N|>``, N being their id, as in the files of GPT-OSS.  No text gives
    them unless it spells them and the caller allows it; all other ids stay as they are.

    Raises:
        ValueError: there are more than 10,000 of them.

    >>> tokenizer = BPETokenizer()
    >>> _ = tokenizer.add_special_tokens({"<|end|>": 258})
    >>> fill_gaps(tokenizer).special_tokens
    {'<|reserved_256|>': 256, '<|reserved_257|>': 257, '<|end|>': 258}
    """
    known = core.tokens(tokenizer)
    n_missing = tokenizer.max_id + 1 - len(known)
    if n_missing > _MOST_FILLED:
        most = f"at most {_MOST_FILLED:,} are filled"
        raise ValueError(f"{n_missing:,} ids up to {tokenizer.max_id} have no token; {most}")
    filled = copy.copy(tokenizer)
    missing = (id_ for id_ in range(tokenizer.max_id) if id_ not in known)
    filled.add_special_tokens({f"<|reserved_{id_}|>": id_ for id_ in missing})
    return filled
