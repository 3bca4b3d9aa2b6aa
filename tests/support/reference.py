"""A naive trainer and a naive encoder: slow, short, and obviously right.

Both follow the definition of byte-pair encoding word for word and share nothing
with the module under test, so that agreement means something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

Pair = tuple[bytes, bytes]
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]


def byte_order(byte: int) -> int:
    """Return the code point of a byte's printable character in GPT-2's alphabet."""
    return byte if byte in _VISIBLE else 0x100 + _HIDDEN.index(byte)


def join(parts: list[bytes], pair: Pair) -> list[bytes]:
    """Join every occurrence of a pair, leftmost first, without overlap."""
    out, i = [], 0
    while i < len(parts):
        size = 2 if tuple(parts[i : i + 2]) == pair else 1
        out.append(b"".join(parts[i : i + size]))
        i += size
    return out


def count_pairs(words: Iterable[tuple[list[bytes], int]]) -> Counter[Pair]:
    """Count every pair of neighboring parts, in all words, from scratch."""
    counts: Counter[Pair] = Counter()
    for parts, frequency in words:
        for pair in zip(parts, parts[1:]):
            counts[pair] += frequency
    return counts


def train(
    pretoken_counts: Mapping[bytes, int],
    n_tokens: int,
    min_frequency: int = 2,
    ties: list[list[Pair]] | None = None,
) -> list[Pair]:
    """Learn merges until `n_tokens` tokens are new, recounting at every step.

    Of equally frequent pairs the smallest goes first: base bytes rank by their
    printable character, merged tokens after them by age.  A pair that is merged
    a second time keeps only the later place, because it can have only one rank.

    Args:
        pretoken_counts: pre-token -> how often it occurs.
        n_tokens: how many tokens to make beyond the 256 bytes.
        min_frequency: pairs that occur less often are left alone.
        ties: if given, gains the pairs that were equally good, at each step.
    """
    words = [([bytes([b]) for b in word], count) for word, count in pretoken_counts.items()]
    age = {bytes([byte]): byte_order(byte) for byte in range(256)}
    merges: list[Pair] = []
    made = 0
    while made < n_tokens:
        counts = count_pairs(words)
        best = max(counts.values(), default=0)
        if best < max(min_frequency, 1):
            break
        equal = [pair for pair, count in counts.items() if count == best]
        if ties is not None and len(equal) > 1:
            ties.append(equal)
        left, right = min(equal, key=lambda pair: (age[pair[0]], age[pair[1]]))
        if left + right not in age:
            age[left + right] = 1000 + made
            made += 1
        merges = [merge for merge in merges if merge != (left, right)] + [(left, right)]
        words = [(join(parts, (left, right)), count) for parts, count in words]
    return merges


def extend(
    words: Iterable[tuple[list[bytes], int]],
    ranks: Mapping[bytes, int],
    n_tokens: int,
    min_frequency: int = 2,
    forbidden: Iterable[bytes] = (),
) -> list[Pair]:
    """Continue to learn merges, from encoded words; return the new merges.

    Of equally frequent pairs the smallest goes first, by the `ranks` of their tokens and the age of
    new ones.  Pairs that would make an existing token, or a forbidden one, are skipped.
    """
    words, age, taken = list(words), dict(ranks), {*ranks, *forbidden}
    new: list[Pair] = []
    while len(new) < n_tokens:
        counts = count_pairs(words)
        open_pairs = [pair for pair in counts if pair[0] + pair[1] not in taken]
        best = max((counts[pair] for pair in open_pairs), default=0)
        if best < max(min_frequency, 1):
            break
        equal = [pair for pair in open_pairs if counts[pair] == best]
        pair = min(equal, key=lambda pair: (age[pair[0]], age[pair[1]]))
        age[pair[0] + pair[1]] = 10**10 + len(new)
        taken.add(pair[0] + pair[1])
        new.append(pair)
        words = [(join(parts, pair), count) for parts, count in words]
    return new


def prune(
    pretoken_counts: Mapping[bytes, int], merges: list[Pair], n_tokens: int, staying: set[bytes]
) -> list[bytes]:
    """Remove the leaf used least, `n_tokens` times; return what was removed.

    Of equally used leaves, the one merged last goes first.  Each step encodes everything again.
    """
    removed: list[bytes] = []
    merges = list(merges)
    for _ in range(n_tokens):
        uses: Counter[bytes] = Counter()
        for pretoken, count in pretoken_counts.items():
            for token in encode(pretoken, merges):
                uses[token] += count
        last = {left + right: rank for rank, (left, right) in enumerate(merges)}
        leaves = last.keys() - {part for pair in merges for part in pair} - staying
        if not leaves:
            break
        token = min(leaves, key=lambda token: (uses[token], -last[token]))
        removed.append(token)
        merges = [pair for pair in merges if pair[0] + pair[1] != token]
    return removed


def encode(pretoken: bytes, merges: Iterable[Pair]) -> list[bytes]:
    """Apply merges to one pre-token: always the earliest learned, leftmost first."""
    rank = {pair: i for i, pair in enumerate(merges)}
    parts = [pretoken[i : i + 1] for i in range(len(pretoken))]
    while True:
        known = [(rank[pair], i) for i, pair in enumerate(zip(parts, parts[1:])) if pair in rank]
        if not known:
            return parts
        _, i = min(known)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def printable(token: bytes) -> str:
    """Write a token in GPT-2's printable form: one character for each byte."""
    return "".join(chr(byte_order(byte)) for byte in token)


def greatest(counts: dict[Pair, int], ids: dict[bytes, int]) -> Pair:
    """Choose as in the course CS336: of the most frequent pairs, the lexicographically greatest."""
    return max(counts, key=lambda pair: (counts[pair], pair))


def greatest_printable(counts: dict[Pair, int], ids: dict[bytes, int]) -> Pair:
    """Choose as programs do whose tokens are printable strings: the greatest (count, pair).

    This stands for the rule of the reference program.
    """
    return max(counts, key=lambda pair: (counts[pair], (printable(pair[0]), printable(pair[1]))))


def smallest_ids(counts: dict[Pair, int], ids: dict[bytes, int]) -> Pair:
    """Choose as programs do that keep (-count, (left id, right id)) in a heap: the smallest.

    This stands for the rule of the article on heap-based training.
    """
    return min(counts, key=lambda pair: (-counts[pair], (ids[pair[0]], ids[pair[1]])))


def first(counts: dict[Pair, int], ids: dict[bytes, int]) -> Pair:
    """Choose as minbpe does: of the most frequent pairs, the one that was counted first."""
    return max(counts, key=lambda pair: counts[pair])


def train_by(
    choose: Callable[[dict[Pair, int], dict[bytes, int]], Pair],
    pretokens: Iterable[bytes],
    n_tokens: int,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    forbidden: Iterable[bytes] = (),
) -> list[Pair]:
    """Learn merges until `n_tokens` tokens are new, from all pre-tokens of a text in their order.

    No counts are kept: each step walks through the text again.  Ids are those of a program that
    numbers byte b with b, and new tokens in the order learned.

    Args:
        choose: picks the next pair from the counts, which are in order of first occurrence, and
            the ids of all tokens.
        pretokens: all of them, as often as they occur.
        n_tokens: how many tokens to make beyond the 256 bytes.
        min_frequency: stop at pairs that occur less often.
        max_token_length: pairs of this many bytes or more are not counted, unless of two bytes.
        forbidden: byte strings that no merge may make.
    """
    text = [[bytes([byte]) for byte in pretoken] for pretoken in pretokens]
    ids = {bytes([byte]): byte for byte in range(256)}
    merges: list[Pair] = []
    while len(ids) < 256 + n_tokens:
        counts: dict[Pair, int] = {}
        for parts in text:
            for pair in zip(parts, parts[1:]):
                size = len(pair[0] + pair[1])
                too_long = max_token_length is not None and size >= max(max_token_length, 3)
                if not too_long and pair[0] + pair[1] not in forbidden:
                    counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        pair = choose(counts, ids)
        if counts[pair] < min_frequency:
            break
        ids.setdefault(pair[0] + pair[1], len(ids))
        merges = [merge for merge in merges if merge != pair] + [pair]
        text = [join(parts, pair) for parts in text]
    return merges
