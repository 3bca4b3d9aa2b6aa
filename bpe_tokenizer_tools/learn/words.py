"""Byte-pair encoding as it began: on the letters of words, for machine translation.

White space separates words, and is not kept.  The last letter of each word carries a mark:
"est</w>" ends a word and "est" does not.  A letter that was never seen becomes "<unk>", which
is why later tokenizers begin with bytes.  Ids follow the sorted tokens.

Source: Sennrich et al., ACL 2016; the mark as in version 0.2 of their program.

>>> WordTokenizer().train("low low newest widest", 18).tokenize("low lowest")
['low</w>', 'lo', 'w', 'est</w>']
"""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

END, UNKNOWN = "</w>", "<unk>"
Pair = tuple[str, str]


def letters(word: str) -> list[str]:
    """Cut a word into letters, the last one marked: ["l", "o", "w</w>"]."""
    return [*word[:-1], word[-1] + END]


def join(parts: list[str], pair: Pair) -> list[str]:
    """Join a pair wherever it occurs, from left to right."""
    joined: list[str] = []
    for part in parts:
        if (joined[-1:], part) == ([pair[0]], pair[1]):
            part = joined.pop() + part
        joined.append(part)
    return joined


class WordTokenizer:
    """Learns and applies merges of letters within words."""

    def __init__(self) -> None:
        self.merges: list[Pair] = []
        self.vocab = {UNKNOWN: 0}

    def train(self, text: str, vocab_size: int) -> "WordTokenizer":
        """Learn merges until there are `vocab_size` tokens, or no pair occurs twice."""
        words = [(letters(word), count) for word, count in Counter(text.split()).items()]
        tokens = {letter for parts, _ in words for letter in parts}
        while 1 + len(tokens) < vocab_size:
            counts: Counter[Pair] = Counter()
            for parts, count in words:
                for pair in pairwise(parts):
                    counts[pair] += count
            best = min(counts, key=lambda pair: (-counts[pair], pair), default=None)
            if best is None or counts[best] < 2:
                break
            tokens.add("".join(best))
            self.merges.append(best)
            words = [(join(parts, best), count) for parts, count in words]
        self.vocab = {token: id_ for id_, token in enumerate([UNKNOWN, *sorted(tokens)])}
        return self

    def tokenize(self, text: str) -> list[str]:
        """Cut text into tokens: join the pair that was learned first, again and again."""
        words = [[c if c in self.vocab else UNKNOWN for c in letters(w)] for w in text.split()]
        rank = {pair: rank for rank, pair in enumerate(self.merges)}
        for parts in words:
            while known := [(rank[p], i) for i, p in enumerate(pairwise(parts)) if p in rank]:
                _, at = min(known)  # the pair learned first; the leftmost if there are several
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [part for parts in words for part in parts]

    def encode(self, text: str) -> list[int]:
        """Turn text into ids."""
        return [self.vocab[token] for token in self.tokenize(text)]

    def decode(self, ids: Iterable[int]) -> str:
        """Turn ids back into text, with one space between words."""
        tokens = list(self.vocab)
        return "".join(tokens[id_] for id_ in ids).replace(END, " ").strip()
