r"""Superwords: tokens of several words, learned in a second stage that looks across white space.

SuperBPE trains in two stages (Liu et al. 2025, arXiv 2503.13423).  Stage one is ordinary BPE on
pre-tokens, until the vocabulary has its transition size.  Stage two goes on from there, but cuts
text with a pattern that leaves sentences whole, so that merges join words:

    stage one    by|·the|·way|,|·she|·said      by  ·the  ·way  ,  ·she  ·said
    stage two    by·the·way,·she·said           by·the·way  ,·she  ·said

The tokenizer that comes out has one split pattern, that of stage two, and applies all merges to
what it cuts.  So it is byte-level BPE like any other, in files and in each engine.

BoundlessBPE (Schmidt et al. 2025, arXiv 2504.00178) joins whole words alone: both sides of a merge
must be pre-tokens of letters that are one token each.

Both count the same pairs again and again in trainers that keep the text in memory.  As "Faster
Superword Tokenization" (Schmidt et al. 2026, arXiv 2604.05192) shows, counts of short sequences are
enough.  Here they are made so:

1. Count how often each token of stage one is beside each other one.
2. Cut the text where two tokens are together less often than `least` times.  A merge across that
   place occurs no more often.  So if no merge that is learned is rarer than `least`, none of them
   was ever possible there, and the merges are the same as without the cuts.
3. Count the runs between the cuts, and learn from them.  If a merge is too rare, cut less, and
   learn again.

What the second stage does not learn: tokens of more than `max_words` words, and tokens with any of
`never` in them.  Sources for these rules and the patterns: github.com/PythonNut/superbpe,
scripts/extend_tokenizer.sh, and its fork of tokenizers, models/bpe/trainer.rs.
"""

from __future__ import annotations

import itertools
import operator
import sys
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import regex

from bpe_tokenizer import AddedToken, BPETokenizer, PretokenCounts, count_pretokens
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns.safe_cuts import analyze
from bpe_tokenizer_tools.training.variants import Training

__all__ = ["BOUNDLESS_WORD", "SUPERBPE_PATTERN", "Superwords", "train"]

# Numbers by threes from the left, two or more signs, and spaces before a space stay apart.
SUPERBPE_PATTERN = r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)"
BOUNDLESS_WORD = r" ?\p{L}+(?:['’]\p{L}+)?"
_RUN = rf"(?:{BOUNDLESS_WORD})+|"  # words, before the pattern of stage one

_BETWEEN = 0x10FFFF  # stands between two pieces; no token has this number
_UTF_32 = f"utf-32-{'le' if sys.byteorder == 'little' else 'be'}"
_MOST_PAIRS = 2_000_000  # kept while counting; about 250 MB
_RULES = ("superbpe", "boundless")


@dataclass(frozen=True)
class Superwords:
    """How to learn superwords.

    Attributes:
        transition: the vocabulary size at which stage two begins, bytes and special tokens
            included.  With rule="boundless" it may be "auto": merges of both stages are taken by
            how often they occur.
        rule: "superbpe", or "boundless" to join whole words of letters only.
        pattern: the split pattern of stage two, which the tokenizer keeps; None for the rule's own.
        max_words: superwords have at most so many words; None for no limit.
        never: no superword has one of these strings in it.

    >>> from bpe_tokenizer_tools.training.superwords import Superwords
    >>> text = "by the way, he said. by the way, she said. " * 20
    >>> options = Superwords(transition=275)
    >>> tokenizer = BPETokenizer().train(text, 290, superwords=options, verbose=False)
    >>> tokenizer.tokenize("by the way, she said.")
    ['by', 'ĠtheĠway,', 'Ġshe', 'Ġsaid.']
    """

    transition: int | str
    rule: str = "superbpe"
    pattern: str | None = None
    max_words: int | None = 4
    never: tuple[str, ...] = (": ",)

    @classmethod
    def of(cls, given: Any) -> Superwords:
        """Read what was passed as `superwords`: this, a mapping of its fields, or a transition."""
        if isinstance(given, Mapping):
            try:
                given = cls(**given)
            except TypeError as error:
                known = ", ".join(cls.__dataclass_fields__)
                raise TypeError(f"superwords takes {known}, transition at least: {error}") from None
        if type(given) is int:
            given = cls(given)
        if not isinstance(given, cls):
            wanted = "Superwords(...), a mapping of its fields or an int"
            raise TypeError(f"superwords must be {wanted}, got {core.shorten(given)}")
        return given

    def check(self, smallest: int, vocab_size: int) -> None:
        """Raise unless all of it is sound for a vocabulary of this size."""
        if self.rule not in _RULES:
            raise ValueError(f"rule must be one of {', '.join(_RULES)}, got {self.rule!r}")
        if self.transition == "auto" and self.rule != "boundless":
            raise ValueError('transition="auto" goes with rule="boundless" only; pass a number')
        if self.transition != "auto":
            core.check_size("transition", self.transition, smallest)
            if self.transition is None:
                raise TypeError("transition must be an int, got None")
            if int(self.transition) > vocab_size:
                at_most = f"at most vocab_size, which is {vocab_size}"
                raise ValueError(f"transition must be {at_most}, got {self.transition}")
        core.check_size("max_words", self.max_words, 1)
        never = self.never
        if isinstance(never, str) or not all(isinstance(text, str) and text for text in never):
            raise TypeError(f"never must be a list of strings, got {core.shorten(never)}")

    def final_pattern(self, split_pattern: str) -> str:
        """Return the split pattern of stage two."""
        if self.pattern is not None:
            return core.pattern_named(self.pattern)
        if self.rule == "superbpe":
            return SUPERBPE_PATTERN
        return _RUN + split_pattern

    def refuses(self, token: bytes) -> bool:
        """Tell whether a superword must not be learned."""
        words = self.max_words
        if words is not None and sum(map(bool, token.split(b" "))) > words:
            return True
        return any(text.encode() in token for text in self.never)


class _Refused(frozenset[bytes]):
    """What a learner must not make: some tokens, and what the options refuse."""

    options: Superwords

    def __contains__(self, token: object) -> bool:
        return super().__contains__(token) or self.options.refuses(token)  # type: ignore[arg-type]


# -- Text as numbers of tokens --------------------------------------------------
# A token's number is its place in the order of ties: base bytes by the byte alphabet, then merged
# tokens by age.  A block of text becomes an array of 32-bit numbers, with `_BETWEEN` between the
# pieces that no merge joins.  Two neighbors, read as one number of 64 bits, are a pair.


class _Blocks(core.PretokenCounter):
    """Reads documents in blocks of prepared text, about four megabytes each."""

    def of(self, documents: Iterable[Iterable[str]]) -> Iterator[list[str]]:
        """Yield the blocks of some documents."""
        return self._batches(documents)


def _cutter(pattern: str) -> Callable[[str], Iterable[str]]:
    """Return what cuts text as a split pattern does, faster where most text matches nothing."""
    found = regex.compile(f"({pattern})") if analyze(pattern)[0] else None
    if found is None or found.groups > 1:
        return core.splitter(pattern).split
    return lambda text: filter(None, found.split(text))


_Numbers = Callable[[str], Iterable[Iterable[int]]]  # the numbers of each piece of a text


def _superbpe_numbers(learned: core.Learned, pattern: str, workers: int) -> _Numbers:
    """Cut as stage two does, and encode each piece with the merges of stage one."""
    plain = core.new_definition(core.UNCUT_PATTERN, None, "none")
    encoder = core.engine().encoder(core.number_merges(learned, plain, [], {}))
    split = _cutter(pattern)
    rank = {byte: number for number, byte in enumerate(core.ALPHABET)}
    numbers = [*(rank[byte] for byte in range(256)), *range(256, 256 + len(learned.tokens))]

    def run(text: str) -> Iterator[Iterable[int]]:
        pieces = [piece for piece in split(text) if len(piece) > 1 or piece > "\x7f"]
        for ids in encoder.encode_batch(pieces, workers):
            yield map(numbers.__getitem__, ids)

    return run


def _boundless_numbers(learned: core.Learned, split_pattern: str, pattern: str) -> _Numbers:
    """Cut as stage two does; of each piece, take the words that are one token."""
    tokens = [*(bytes([byte]) for byte in core.ALPHABET), *learned.tokens]
    is_word = regex.compile(BOUNDLESS_WORD).fullmatch
    number: dict[str, int] = {}
    for n, token in enumerate(tokens):
        text = token.decode(errors="ignore")
        if text.encode() == token and is_word(text):
            number[text] = n
    cut, words = _cutter(pattern), core.splitter(split_pattern).split

    def run(text: str) -> Iterator[Iterable[int]]:
        for piece in cut(text):
            if len(piece) > 1:
                yield (number.get(word, _BETWEEN) for word in words(piece))

    return run


def _arrays(blocks: Iterable[list[str]], numbers: _Numbers) -> Iterator[array[int]]:
    """Yield the numbers of the tokens of each block, `_BETWEEN` first, last and between pieces."""
    for block in blocks:
        flat = array("I", [_BETWEEN])
        for piece in itertools.chain.from_iterable(map(numbers, block)):
            flat.extend(piece)
            flat.append(_BETWEEN)
        if len(flat) % 2:
            flat.append(_BETWEEN)
        yield flat


def _kept(file: IO[bytes], arrays: Iterable[array[int]]) -> Callable[[], Iterator[array[int]]]:
    """Write arrays to a file; return what reads them again, as often as it is called."""
    sizes = []
    for flat in arrays:
        flat.tofile(file)
        sizes.append(len(flat))

    def again() -> Iterator[array[int]]:
        file.seek(0)
        for size in sizes:
            flat = array("I")
            flat.fromfile(file, size)
            yield flat

    return again


def _pairs(flat: array[int]) -> tuple[memoryview, memoryview]:
    """Return the pairs at even places, and those at odd ones."""
    view = memoryview(flat).cast("B")
    return view.cast("Q"), view[4:-4].cast("Q")


def _parts(pair: int) -> tuple[int, int]:
    first, second = pair & 0xFFFFFFFF, pair >> 32
    return (first, second) if sys.byteorder == "little" else (second, first)


class _PairCounter:
    """Counts pairs of neighbors, in bounded memory.

    The rarer half of all pairs is forgotten when there are too many.  A pair that is not there, or
    came back, occurred at most `missed` times more often than it says.  (Manku and Motwani's lossy
    counting, VLDB 2002.)
    """

    def __init__(self, most: int) -> None:
        self.counts: Counter[int] = Counter()
        self.missed, self._most = 0, most

    def add(self, flat: array[int]) -> None:
        """Count the pairs of a block."""
        for pairs in _pairs(flat):
            self.counts.update(pairs)
        while len(self.counts) > self._most:
            rare = sorted(self.counts.values())[len(self.counts) // 2]
            self.counts = Counter({p: n for p, n in self.counts.items() if n > rare})
            self.missed += rare

    def at_least(self, least: int) -> Iterator[int]:
        """Yield the pairs that may occur so often; those forgotten do not, if `least` is larger."""
        return (pair for pair, count in self.counts.items() if count + self.missed >= least)


def _runs(flat: array[int], keep: set[int]) -> Iterator[str]:
    """Cut a block where a pair is not kept; yield runs of two tokens and more, as characters."""
    text = flat.tobytes().decode(_UTF_32, "surrogatepass")
    cuts: list[int] = []
    for first, pairs in enumerate(_pairs(flat), 1):
        places = range(first, len(flat), 2)
        cuts += itertools.compress(places, map(operator.not_, map(keep.__contains__, pairs)))
    cuts.sort()
    return (text[a:b] for a, b in itertools.pairwise(cuts) if b - a > 1)


# -- Learning -------------------------------------------------------------------


class _Learner(core.MergeLearner):
    """Goes on learning merges, from counts of runs of tokens that are there already.

    `merge_counts` says how often each pair occurred when it was merged.
    """

    def __init__(self, runs: Mapping[str, int], learned: core.Learned, longest: int | None) -> None:
        super().__init__({}, longest)
        self._token += learned.tokens
        self._number = {token: number for number, token in enumerate(self._token)}
        self._words, self._freqs = list(runs), list(runs.values())
        self.merge_counts: list[int] = []

    def _merge(self, pair: str, merged: str, where: list[int]) -> None:
        self.merge_counts.append(self._pair_counts[pair])
        super()._merge(pair, merged, where)


class _StageTwo:
    """What stage two learns from: text as numbers of tokens, read as often as is needed."""

    def __init__(
        self,
        training: Training,
        options: Superwords,
        learned: core.Learned,
        arrays: Callable[[], Iterable[array[int]]],
    ) -> None:
        self._training, self._options, self._learned = training, options, learned
        self._tokens = [*(bytes([byte]) for byte in core.ALPHABET), *learned.tokens]
        self._refused = _Refused(training.forbidden)
        self._refused.options = options
        self._arrays = arrays

    def _count_pairs(self, most: int) -> _PairCounter:
        beside = _PairCounter(most)
        for flat in self._arrays():
            beside.add(flat)
        return beside

    def _rarest(self, beside: _PairCounter, n_tokens: int) -> int:
        """Return how often the last of the most frequent pairs occurs; 0 if there are fewer."""
        joins = (n for pair, n in beside.counts.most_common() if self._may_join(pair))
        last: int = next(itertools.islice(joins, max(n_tokens - 1, 0), None), 0)
        return last

    def _may_join(self, pair: int) -> bool:
        # What the options refuse, they also refuse with more around it.
        left, right = _parts(pair)
        if _BETWEEN in (left, right):
            return False
        joined = self._tokens[left] + self._tokens[right]
        longest = self._training.longest or sys.maxsize
        return (len(joined) == 2 or len(joined) < longest) and not self._options.refuses(joined)

    def learn(self, n_tokens: int, floor: int) -> tuple[core.Learned, list[int]]:
        """Learn so many superwords; return them, and how often each merge occurred."""
        beside = self._count_pairs(_MOST_PAIRS)
        least = self._rarest(beside, n_tokens) // 2  # a guess
        while True:
            least = max(least, floor)
            if 0 < least <= beside.missed:  # too many were forgotten
                beside = self._count_pairs(sys.maxsize)
            keep = set(filter(self._may_join, beside.at_least(least)))
            found, counts = self._learn_above(least, n_tokens, keep)
            if least == floor or len(found.tokens) == n_tokens:
                return found, counts
            least //= 4

    def _learn_above(
        self, least: int, n_tokens: int, keep: set[int]
    ) -> tuple[core.Learned, list[int]]:
        runs: Counter[str] = Counter()
        for flat in self._arrays():
            runs.update(_runs(flat, keep))
        learner = _Learner(runs, self._learned, self._training.longest)
        with core.progress("joining", "merge", n_tokens, self._training.verbose) as advance:
            found = learner.learn(n_tokens, least, self._refused, advance)
        return found, learner.merge_counts


class _StageOne:
    """Learns merges within pre-tokens, as often as is asked."""

    def __init__(self, training: Training, counts: PretokenCounts) -> None:
        self._training, self._counts = training, counts

    def learn(self, n_tokens: int, least: int, verbose: bool = False) -> core.Learned:
        """Learn so many merges, of which none occurs less often than `least`."""
        with core.progress("merging", "merge", n_tokens, verbose) as advance:
            learner = core.engine().learner(self._counts, self._training.longest)
            found: core.Learned = learner.learn(n_tokens, least, self._training.forbidden, advance)
        return found

    def floor(self, n_tokens: int) -> int:
        """Return a number that none of so many merges occurs less often than."""
        least: int = max(self._training.min_frequency, 1)
        while len(self.learn(n_tokens, 2 * least).tokens) == n_tokens > 0:
            least *= 2
        return least

    def superwords(self, n_tokens: int, merge_counts: list[int]) -> int:
        """Return how many superwords are among the `n_tokens` most frequent merges of both stages.

        Counts fall from merge to merge.  Of equals, those of stage one come first.  So a superword
        is among them if it and those before it leave room for the words that occur as often.
        """

        def fits(n: int) -> bool:
            return len(self.learn(n_tokens, merge_counts[n]).tokens) + n < n_tokens

        first, end = 0, len(merge_counts)
        while first < end:
            middle = (first + end) // 2
            first, end = (middle + 1, end) if fits(middle) else (first, middle)
        return first


def _first(learned: core.Learned, n: int) -> core.Learned:
    return core.Learned(learned.merges[:n], learned.tokens[:n], learned.stopped)


def _made_of(supers: core.Learned, words: core.Learned) -> core.Learned:
    """Leave out superwords of words that are not kept.

    There are none where stage two cuts out the same words as stage one.  Where it does not, such as
    at a mark that only one of the patterns takes for a letter, a word may be more frequent there.
    """
    known = {*(bytes([byte]) for byte in range(256)), *words.tokens}
    merges = []
    for left, right in supers.merges:
        if left in known and right in known:
            known.add(left + right)
            merges.append((left, right))
    return core.Learned(merges, [left + right for left, right in merges], supers.stopped)


def _learn(
    training: Training, options: Superwords, counts: PretokenCounts, corpus: Any
) -> core.Learned:
    """Learn both stages."""
    one, room = _StageOne(training, counts), training.room
    before, final = counts.split_pattern, options.final_pattern(counts.split_pattern)
    floor, automatic = max(training.min_frequency, 1), options.transition == "auto"
    n_words = room if automatic else int(options.transition) - (training.vocab_size - room)
    words = one.learn(n_words, training.min_frequency, training.verbose)
    numbers = (
        _superbpe_numbers(words, final, training.workers or core.cores())
        if options.rule == "superbpe"
        else _boundless_numbers(words, before, final)
    )
    tokens = list(map(AddedToken, training.contents))
    pipeline = core.Pipeline(core.splitter(final), counts.normalizer, tokens=tokens)

    documents = core.documents(corpus, training.text_field)
    with tempfile.TemporaryFile() as file:
        with core.progress("encoding", "B", None, training.verbose) as advance:
            arrays = _kept(file, _arrays(_Blocks(pipeline, 1, advance).of(documents), numbers))
        two = _StageTwo(training, options, words, arrays)
        n_supers = room if automatic else room - len(words.tokens)
        supers, merge_counts = two.learn(n_supers, one.floor(room) if automatic else floor)
    if automatic:
        supers = _first(supers, one.superwords(room, merge_counts))
        kept = _first(words, room - len(supers.tokens))
        supers = _made_of(supers, kept)
        words = _first(words, room - len(supers.tokens))
    merges, made = [*words.merges, *supers.merges], [*words.tokens, *supers.tokens]
    full = len(made) == room  # if not, there are pairs left that are too rare, or refused
    stopped = "vocab size reached" if full else "nothing left above min_frequency"
    return core.Learned(merges, made, stopped)


def train(tokenizer: BPETokenizer, given: Mapping[str, Any]) -> BPETokenizer:
    """Train with superwords; `given` are the arguments of `BPETokenizer.train`."""
    training = Training(tokenizer, given)
    options = Superwords.of(given["superwords"])
    options.check(256 + len(training.contents), training.vocab_size)
    corpus, empty = given["corpus"], training.empty
    if given["counts"] is not None:
        raise ValueError("superwords are learned from text, not from counts; pass the corpus")
    if corpus is None:
        raise TypeError("train() takes a corpus to learn superwords from")
    if isinstance(corpus, (Iterator, core.Document)):
        raise TypeError("superwords need to read the corpus twice; pass paths or a list")
    final = options.final_pattern(empty.split_pattern)
    core.splitter(final)  # is it a pattern?
    if empty.split_pattern == final or empty.split_pattern.startswith(_RUN):
        problem = "this tokenizer's split pattern is that of stage two, as it has superwords"
        raise ValueError(f"{problem}; make a new one with the pattern of stage one")
    counts = count_pretokens(
        corpus,
        empty.split_pattern,
        special_tokens=training.contents,
        normalizer=empty.normalizer,
        num_workers=training.workers,
        text_field=training.text_field,
        verbose=training.verbose,
    )
    training.counted()
    learned = _learn(training, options, counts, corpus)
    return training.finish(learned, counts, final)
