r"""Byte-pair encoding with a split pattern and special tokens, as in GPT-2 and its successors.

Two things are new.  Text is first cut into pre-tokens, such as words, and no token ever
crosses from one to the next.  And there are special tokens: strings such as
"<|endoftext|>" that are one token each, whatever the merges are.

>>> tokenizer = SplitTokenizer(r" ?\w+|\W").train("a dog. a dog.", 259)
>>> tokenizer.tokens[256:]  # no "dog." and no "a dog", though they occur just as often
[b'do', b' do', b' dog']
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import regex

from bpe_tokenizer import SPLIT_PATTERNS
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.learn.basic import BasicTokenizer, Pair, best_pair, join
from bpe_tokenizer_tools.patterns import timeouts


class SplitTokenizer(BasicTokenizer):
    """A tokenizer that cuts text before it joins anything.

    The pattern, a regular expression or a name such as "gpt2", finds the pre-tokens; the special
    tokens get the last ids.
    """

    def __init__(self, pattern: str = "gpt2", special_tokens: Iterable[str] = ()) -> None:
        super().__init__()
        self.pattern = regex.compile(SPLIT_PATTERNS.get(pattern, pattern))
        self.finder = core.one_of(special_tokens)
        self.names, self.special = list(special_tokens), dict[str, int]()

    def train(self, text: str, vocab_size: int) -> SplitTokenizer:
        """Learn as many merges as leave room for the special tokens."""
        counts_of = Counter(word for part in self.finder.split(text) for word in self.cut(part))
        words = [(list(word.encode()), count) for word, count in counts_of.items()]
        while len(self.tokens) + len(self.names) < vocab_size:
            counts: Counter[Pair] = Counter()
            for ids, count in words:  # each distinct word is processed once
                for pair in itertools.pairwise(ids):
                    counts[pair] += count
            if not counts or max(counts.values()) < 2:
                break
            pair = best_pair(counts)
            new_id = self.learn(pair)
            words = [(join(ids, pair, new_id), count) for ids, count in words]
        self.special = {name: len(self.tokens) + i for i, name in enumerate(self.names)}
        self.tokens += [name.encode() for name in self.names]
        return self

    def cut(self, text: str) -> list[str]:
        """Cut text into pre-tokens; text between matches of the pattern is one, too."""
        words, done = list[str](), 0
        try:
            for found in self.pattern.finditer(text, timeout=timeouts.seconds_for(text)):
                words += [text[done : found.start()], found[0]]
                done = found.end()
        except TimeoutError:
            raise timeouts.too_slow(self.pattern.pattern, text) from None
        return [word for word in [*words, text[done:]] if word]

    def encode(self, text: str, allowed_special: str = "none") -> list[int]:
        """Turn text into ids; what looks like a special token is one only if allowed."""
        if allowed_special == "none":
            words = map(super().encode, self.cut(text))
            return [id_ for ids in words for id_ in ids]
        ids, done = [], 0
        for found in self.finder.finditer(text):
            ids += [*self.encode(text[done : found.start()]), self.special[found[0]]]
            done = found.end()
        return ids + self.encode(text[done:])
