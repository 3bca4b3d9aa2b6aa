"""The purpose of a split pattern: one tokenizer trained with it and one without, side by side.

Without a pattern, tokens span words and include punctuation: "of the ", "dog." and "dog!"
beside "dog".  A text may need fewer tokens; but then a word has many tokens, depending on the
text around it, and a model has to learn each of them.

>>> text = "the dog. the dog! the dog? the cat. the cat! " * 20
>>> print(side_by_side(text, 270))
                                  no pattern   gpt2
tokens learned                            14      9
bytes per token                        8.710  2.989
bytes per token, held out              6.923  2.903
tokens of several words                    6      0
tokens of a word and punctuation           0      0
tokens with "the"                          8      2
<BLANKLINE>
longest tokens, no pattern: !·the·dog│.·the·dog│.·the·cat│?·the·cat│·the·dog│·the·cat│·the·│the·
longest tokens, gpt2: ·the│·dog│·cat│the│·do│cat│he│do
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.showing.view import shown
from bpe_tokenizer_tools.support.tables import Table
from bpe_tokenizer_tools.support.text import Printed, shortened

END_OF_TEXT = "<|endoftext|>"
_NO_PATTERN = r"[\s\S]+"  # finds all of a text at once
_SEVERAL_WORDS = regex.compile(r"\w\W+\w")
_PUNCTUATED = regex.compile(r"\w[^\w\s]|[^\w\s]\w")


def _whole(word: str) -> regex.Pattern[str]:
    return regex.compile(rf"(?<!\w){regex.escape(word)}(?!\w)")


@dataclass(frozen=True)
class Learned:
    """The results of one of the two tokenizers."""

    name: str  # the name of the pattern, or "no pattern"
    tokenizer: BPETokenizer  # trained on the first nine tenths of the text
    bytes_per_token: float  # on its training text
    held_out: float  # bytes per token on the last tenth of the text

    @property
    def tokens(self) -> list[bytes]:
        """The tokens learned, in order; the 256 bytes are left out."""
        ids = range(256, self.tokenizer.vocab_size)
        return [self.tokenizer.decode_bytes([id_]) for id_ in ids]

    def matching(self, pattern: regex.Pattern[str]) -> list[bytes]:
        """Return the tokens that a pattern is found in."""
        return [token for token in self.tokens if pattern.search(token.decode("utf-8", "ignore"))]

    def holding(self, word: str) -> list[bytes]:
        """Return the tokens that contain a whole word."""
        return self.matching(_whole(word))

    def ways(self, word: str, text: str) -> Counter[tuple[bytes, ...]]:
        """Count the sequences of tokens that a whole word is cut into in a text.

        They include every token with any part of the word, whatever else it contains.
        """
        encoded = self.tokenizer.encode_with_offsets(text)
        tokens = [self.tokenizer.decode_bytes([id_]) for id_ in encoded.input_ids]
        starts = [start for start, _ in encoded.offsets or ()]
        found: Counter[tuple[bytes, ...]] = Counter()
        for place in regex.finditer(_whole(word), text):
            first = bisect.bisect_right(starts, place.start()) - 1
            last = bisect.bisect_left(starts, place.end())
            found[tuple(tokens[first:last])] += 1
        return found

    @property
    def several_words(self) -> list[bytes]:
        """The tokens that contain the end of a word and the beginning of another."""
        return self.matching(_SEVERAL_WORDS)

    @property
    def punctuated(self) -> list[bytes]:
        """The tokens that contain punctuation next to a word."""
        return self.matching(_PUNCTUATED)

    def longest(self, n: int = 8) -> list[bytes]:
        """Return the n longest tokens; of equally long ones, those learned first."""
        return sorted(self.tokens, key=len, reverse=True)[:n]


@dataclass(frozen=True)
class SideBySide(Printed):
    """Two tokenizers, trained on the same text to the same size; printing it shows a table."""

    without: Learned  # trained without a split pattern
    split: Learned  # trained with one
    word: str  # the most frequent word of the text

    def table(self) -> Table:
        """Return the figures."""
        both = self.without, self.split
        rows: dict[str, Sequence[object]] = {
            "tokens learned": [len(each.tokens) for each in both],
            "bytes per token": [each.bytes_per_token for each in both],
            "bytes per token, held out": [each.held_out for each in both],
            "tokens of several words": [len(each.several_words) for each in both],
            "tokens of a word and punctuation": [len(each.punctuated) for each in both],
        }
        if self.word:
            holding = [len(each.holding(self.word)) for each in both]
            rows[f'tokens with "{self.word}"'] = holding
        names = ["", *(each.name for each in both)]
        return Table(names, [[what, *figures] for what, figures in rows.items()])

    def __str__(self) -> str:
        lines = [str(self.table()), ""]
        for each in (self.without, self.split):
            tokens = map(shortened, map(shown, each.longest()))
            lines.append(f"longest tokens, {each.name}: {'│'.join(tokens)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the figures and tokens as plain data."""
        return {
            key: {
                "name": each.name,
                "bytes_per_token": round(each.bytes_per_token, 4),
                "bytes_per_token_held_out": round(each.held_out, 4),
                "tokens": list(map(shown, each.tokens)),
                "several_words": list(map(shown, each.several_words)),
                "punctuated": list(map(shown, each.punctuated)),
            }
            for key, each in (("without", self.without), ("split", self.split))
        }


def side_by_side(
    text: str,
    vocab_size: int = 1_000,
    split_pattern: str = "gpt2",
    special_tokens: Iterable[str] = (END_OF_TEXT,),
) -> SideBySide:
    """Train two tokenizers on a text, one without a split pattern.

    The last tenth of the text is held out.  Both get `vocab_size` tokens; the other one gets the
    split pattern, a name or a regular expression.  The text is cut at special tokens: no token is
    learned from them, or across them.

    Cost: without a pattern, each merge goes through all of the text.  For a megabyte and
    1,000 tokens, that takes half a second with the accelerator.
    """
    end = len(text) - len(text) // 10
    if end == len(text):
        raise ValueError(
            f"expected a text of at least 10 characters, a tenth of which is held out, got {end}"
        )
    finder = core.one_of(filter(None, special_tokens))
    begin = end  # of the held-out text
    for token in finder.finditer(text):
        if token.start() < end < token.end():  # a token on the border belongs to neither part
            end, begin = token.span()
            break
    seen, held_out = finder.split(text[:end]), finder.split(text[begin:])
    found = (word for document in seen for word in regex.findall(r"\p{L}{2,}", document))
    words = Counter(found).most_common(1)
    return SideBySide(
        _learn(seen, held_out, vocab_size, _NO_PATTERN, "no pattern"),
        _learn(seen, held_out, vocab_size, split_pattern, split_pattern),
        words[0][0] if words else "",
    )


def _learn(
    seen: list[str], held_out: list[str], vocab_size: int, pattern: str, name: str
) -> Learned:
    tokenizer = BPETokenizer(pattern).train(iter(seen), vocab_size, verbose=False)
    return Learned(name, tokenizer, _rate(tokenizer, seen), _rate(tokenizer, held_out))


def _rate(tokenizer: BPETokenizer, documents: Iterable[str]) -> float:
    """Return the bytes per token of documents."""
    sizes = [(len(each.encode()), tokenizer.count_tokens(each)) for each in documents]
    n_bytes, n_tokens = map(sum, zip(*sizes))
    if not n_tokens:
        raise ValueError("there is no text between the special tokens")
    return float(n_bytes / n_tokens)
