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

import bisect
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import struct
import sys
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from bpe_tokenizer import GPT2_SPLIT_PATTERN, BPETokenizer, PretokenCounts, count_pretokens
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.training.joins import CountedWords, Refused
from bpe_tokenizer_tools.training.joins import learn as learn_joins
from bpe_tokenizer_tools.training.neighbors import count_runs, listed, pair_counter
from bpe_tokenizer_tools.training.numbering import BOUNDLESS_WORD, Numbering
from bpe_tokenizer_tools.training.superword_counts import (
    StageFacts,
    SuperwordCounts,
    pairs_of,
    records_of,
)
from bpe_tokenizer_tools.training.variants import Training

__all__ = ["SUPERBPE_PATTERN", "Stages", "Superwords", "count_superwords", "train"]

# Numbers by threes from the left, two or more signs, and spaces before a space stay apart.
SUPERBPE_PATTERN = r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)"
_RUN = rf"(?:{BOUNDLESS_WORD})+|"  # words, before the pattern of stage one

NO_RUNS = (
    "these counts don't say which pre-tokens are neighbors, so superwords can't be learned from "
    "them; count with superwords (count --superwords, count_superwords), or pass the corpus"
)

_MOST_PAIRS = 2_000_000  # kept while counting: 70 MB in C, about 250 in Python
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
        max_words: the most words in a superword; None for no limit.
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
        never = tuple(given.never) if isinstance(given.never, list) else given.never
        return dataclasses.replace(given, never=never)

    def check(self, smallest: int, vocab_size: int) -> None:
        """Raise unless all of it is sound for a vocabulary of this size."""
        if self.rule not in _RULES:
            raise ValueError(f"rule must be one of {', '.join(_RULES)}, got {self.rule!r}")
        if self.transition == "auto" and self.rule != "boundless":
            raise ValueError('transition="auto" works only with rule="boundless"; pass a number')
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
        for text in never:
            core.utf8_length(text)  # names a lone surrogate

    def final_pattern(self, split_pattern: str) -> str:
        """Return the split pattern of stage two."""
        if self.pattern is not None:
            return core.pattern_named(self.pattern)
        if self.rule == "superbpe":
            return SUPERBPE_PATTERN
        return _RUN + split_pattern

    def refused(self, forbidden: frozenset[bytes]) -> Refused:
        """Return what must not be learned: some tokens, and those that the rules refuse."""
        return Refused(forbidden, self.max_words, [text.encode() for text in self.never])


# -- Learning -------------------------------------------------------------------


class Source(Protocol):
    """Text as numbers of tokens, which is counted as often as is needed."""

    def pairs(self, most: int) -> Any:
        """Count pairs of neighbors; keep at most so many, as `neighbors.PairCounter` does."""

    def runs(self, keep: list[tuple[int, int]], in_python: bool = False) -> Any:
        """Cut text where a pair is not kept, and count the runs, as `neighbors.count_runs`."""


class _OnDisk:
    """Arrays of numbers, written to a file once and read from there."""

    def __init__(self, file: IO[bytes], arrays: Iterable[array[int]]) -> None:
        self._file, self._sizes = file, list[int]()
        for flat in arrays:
            flat.tofile(file)
            self._sizes.append(len(flat))

    def _arrays(self) -> Iterator[array[int]]:
        self._file.seek(0)
        for size in self._sizes:
            flat = array("I")
            flat.fromfile(self._file, size)
            yield flat

    def pairs(self, most: int) -> Any:
        beside = pair_counter(most)
        for flat in self._arrays():
            beside.add(flat)
        return beside

    def runs(self, keep: list[tuple[int, int]], in_python: bool = False) -> Any:
        return count_runs(self._arrays(), keep, in_python)


class _StageTwo:
    """Learns superwords.

    Attributes:
        runs: what they were learned from.
        least: no merge that is rarer can be learned from these.
        keep: the pairs at which text was not cut.
    """

    def __init__(self, training: Training, options: Superwords, tokens: list[bytes]) -> None:
        self._training, self._tokens = training, tokens
        self._refused = options.refused(training.forbidden)
        self.runs: Any = None
        self.least, self.keep = 0, list[tuple[int, int]]()

    def _rarest(self, beside: Any, n_tokens: int) -> int:
        """Return how often the last of the most frequent pairs occurs; 0 if there are fewer."""
        n_pairs = 2 * n_tokens
        while least := beside.nth(n_pairs) if n_tokens else 1:
            found = beside.frequent(least)
            counts = sorted(n for pair, n in found if n >= least and self._may_join(pair))
            if len(counts) >= n_tokens:
                return counts[-n_tokens] if n_tokens else 0
            n_pairs *= 4
        counts = sorted(n for pair, n in beside.frequent(0) if self._may_join(pair))
        return counts[-n_tokens] if len(counts) >= n_tokens else 0

    def _may_join(self, pair: tuple[int, int]) -> bool:
        # What the options refuse, they also refuse with more around it.
        joined = self._tokens[pair[0]] + self._tokens[pair[1]]
        longest = self._training.longest or sys.maxsize
        return (len(joined) == 2 or len(joined) < longest) and not self._refused.by_rule(joined)

    def learn(self, source: Source, n_tokens: int, floor: int) -> tuple[core.Learned, list[int]]:
        """Learn up to `n_tokens` superwords; return them, and how often each merge occurred."""
        beside = source.pairs(_MOST_PAIRS)
        least = self._rarest(beside, n_tokens) // 2  # a guess
        while True:
            self.least = least = max(least, floor)
            if 0 < least <= beside.missed:  # too many were forgotten
                beside = source.pairs(sys.maxsize)
            self._cut(source, beside)
            try:
                found, counts = self.learn_from(self.runs, n_tokens, least)
            except OverflowError:  # what was counted in C can't be learned from in C
                self.runs = source.runs(self.keep, in_python=True)
                found, counts = self.learn_from(self.runs, n_tokens, least)
            if least == floor or len(found.tokens) == n_tokens:
                return found, counts
            least //= 4

    def _cut(self, source: Source, beside: Any) -> None:
        self.keep = [pair for pair, _ in beside.frequent(self.least) if self._may_join(pair)]
        self.runs = source.runs(self.keep)

    def count(self, source: Source, neighbors: SuperwordCounts, n_tokens: int, floor: int) -> None:
        """Count the runs of a part of a corpus, whose neighbors were counted before."""
        beside = pair_counter(sys.maxsize)
        beside.merge(records_of(neighbors.runs), neighbors.least - 1)
        self.least = max(self._rarest(beside, n_tokens) // 2, floor, neighbors.least)
        self._cut(source, beside)

    def learn_from(self, runs: Any, n_tokens: int, least: int) -> tuple[core.Learned, list[int]]:
        """Learn the same from runs of tokens, none that is rarer than `least`."""
        with core.progress("joining", "merge", n_tokens, self._training.verbose) as advance:
            return learn_joins(
                self._tokens,
                runs,
                n_tokens,
                least,
                max_token_length=self._training.longest,
                forbidden=self._refused,
                advance=advance,
            )


class _StageOne:
    """Learns merges within pre-tokens, as often as is asked."""

    def __init__(self, training: Training, counts: PretokenCounts) -> None:
        self._training, self._counts = training, counts

    def learn(self, n_tokens: int, least: int, verbose: bool = False) -> core.Learned:
        """Learn up to `n_tokens` merges that each occur at least `least` times."""
        with core.progress("merging", "merge", n_tokens, verbose) as advance:
            learner = core.engine().learner(self._counts, self._training.longest)
            found: core.Learned = learner.learn(n_tokens, least, self._training.forbidden, advance)
        return found

    @functools.cached_property
    def _merge_counts(self) -> list[int]:
        """How often each merge occurs, negative, so that they rise."""
        training, words = self._training, CountedWords()
        ranks = bytes.maketrans(core.ALPHABET, bytes(range(256)))
        for pretoken, count in self._counts.items():
            words.add(pretoken.translate(ranks), count)
        _, counts = learn_joins(
            [bytes([byte]) for byte in core.ALPHABET],
            words,
            training.room,
            max(training.min_frequency, 1),
            max_token_length=training.longest,
            forbidden=training.forbidden,
        )
        return [-count for count in counts]

    def floor(self, n_tokens: int) -> int:
        """Return how often each of the first `n_tokens` merges occurs at least."""
        least: int = max(self._training.min_frequency, 1)
        if 0 < n_tokens <= len(self._merge_counts):
            least = -self._merge_counts[n_tokens - 1]
        return least

    def superwords(self, n_tokens: int, merge_counts: list[int]) -> int:
        """Return how many superwords are among the `n_tokens` most frequent merges of both stages.

        Counts fall from merge to merge.  Of equals, those of stage one come first.  So a superword
        is among them if it and those before it leave room for the words that occur as often.
        """

        def fits(n: int) -> bool:
            words = bisect.bisect_right(self._merge_counts, -merge_counts[n])
            return words + n < n_tokens

        first, end = 0, len(merge_counts)
        while first < end:
            middle = (first + end) // 2
            first, end = (middle + 1, end) if fits(middle) else (first, middle)
        return first


class _Spool:
    """A corpus that can be read once, read twice: its texts go to a temporary file."""

    def __init__(self, file: IO[bytes], corpus: Any) -> None:
        self._file, self._corpus = file, corpus

    def first(self) -> Any:
        """Return the corpus, which is written as it is read."""
        if isinstance(self._corpus, core.Document):
            return core.Document(self._written(self._corpus.chunks))
        return self._written(self._corpus)

    def again(self) -> Any:
        """Return the corpus that was written."""
        items = self._read()
        return core.Document(items) if isinstance(self._corpus, core.Document) else items

    def _written(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if isinstance(item, (str, os.PathLike)):  # if not, who reads it says what is wrong
                data = str(item).encode("utf-8", "surrogatepass")
                self._file.write(_SPOOLED.pack(isinstance(item, str), len(data)) + data)
            yield item

    def _read(self) -> Iterator[Any]:
        self._file.seek(0)
        while head := self._file.read(_SPOOLED.size):
            is_text, size = _SPOOLED.unpack(head)
            text = self._file.read(size).decode("utf-8", "surrogatepass")
            yield text if is_text else Path(text)


_SPOOLED = struct.Struct("=?Q")  # whether it is text and no path, and its length


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


class Stages:
    """Both stages of a training.  The first is learned at once, from counts of pre-tokens.

    Attributes:
        numbering: how text becomes what the second is learned from.
    """

    def __init__(self, training: Training, options: Superwords, counts: PretokenCounts) -> None:
        self._training, self._options = training, options
        self._one, self._room = _StageOne(training, counts), training.room
        n_words = self._room
        if options.transition != "auto":
            n_words = int(options.transition) - (training.vocab_size - self._room)
        self._words = self._one.learn(n_words, training.min_frequency, training.verbose)
        before, specials = counts.split_pattern, tuple(training.contents)
        final = options.final_pattern(before)
        self.numbering = Numbering(
            options.rule, before, final, self._words, counts.normalizer, specials
        )
        self._two = _StageTwo(training, options, self.numbering.tokens)
        self._asked = self._how_many()

    def _how_many(self) -> tuple[int, int]:
        """Return how many superwords to learn, and how often each must occur."""
        if self._options.transition == "auto":
            return self._room, self._one.floor(self._room)
        return self._room - len(self._words.tokens), max(self._training.min_frequency, 1)

    def learn(self, source: Source) -> core.Learned:
        """Learn the second from text; return both."""
        return self._both(*self._two.learn(source, *self._asked))

    def learn_again(self, counts: SuperwordCounts) -> core.Learned:
        """Learn the second from what `counts` kept."""
        n_tokens, floor = self._asked
        least = max(counts.least, floor)
        supers, merge_counts = self._two.learn_from(counts.runs, n_tokens, least)
        if len(supers.tokens) < n_tokens and floor < counts.least:
            problem = f"these counts have the superwords that occur {counts.least:,} times or more"
            raise ValueError(
                f"{problem}: {len(supers.tokens):,}, and {n_tokens:,} are wanted; count again "
                "with a larger vocab_size, or a smaller min_frequency"
            )
        return self._both(supers, merge_counts)

    def counts(
        self, source: Source, counts: PretokenCounts, whole: PretokenCounts | None = None
    ) -> SuperwordCounts:
        """Return counts of pre-tokens with what the second is learned from.

        Args:
            source: the text, as numbers.
            counts: of its pre-tokens.
            whole: what is known of the whole corpus, if the text is a part of it.  If that is its
                pre-tokens, neighbors are counted; if it is those, runs are.
        """
        two = self._two
        if whole is None:
            two.learn(source, *self._asked)
        elif isinstance(whole, SuperwordCounts):
            n_tokens, floor = self._asked
            # "auto" takes all superwords that are frequent enough, so it can't ask for more.
            two.count(source, whole, 0 if self._options.transition == "auto" else n_tokens, floor)
        else:
            beside = source.pairs(_MOST_PAIRS)
            return self._with_facts(counts, pairs_of(beside.records()), beside.missed + 1, "")
        keep = array("I", itertools.chain.from_iterable(sorted(two.keep)))
        cut = hashlib.sha256(f"{two.least} {keep.tolist()}".encode()).hexdigest()
        return self._with_facts(counts, listed(two.runs), two.least, cut)

    def _with_facts(
        self, counts: PretokenCounts, runs: CountedWords, least: int, cut: str
    ) -> SuperwordCounts:
        training = self._training
        made = counts.split_pattern, counts.normalizer, counts.documents, counts.bytes_read
        facts = StageFacts(
            dataclasses.asdict(self._options),
            training.vocab_size,
            tuple(sorted(training.contents)),
            training.min_frequency,
            training.longest,
            self.digest(),
        )
        return SuperwordCounts(counts, *made, facts, runs, least, cut)

    def digest(self) -> str:
        """Return a hash of what the first has learned: it says what numbers mean."""
        pairs = [[core.to_printable(token) for token in pair] for pair in self._words.merges]
        return hashlib.sha256(core.to_json(pairs).encode()).hexdigest()

    def _both(self, supers: core.Learned, merge_counts: list[int]) -> core.Learned:
        words, room = self._words, self._room
        if self._options.transition == "auto":
            supers = _first(supers, self._one.superwords(room, merge_counts))
            kept = _first(words, room - len(supers.tokens))
            supers = _made_of(supers, kept)
            words = _first(words, room - len(supers.tokens))
        merges, made = [*words.merges, *supers.merges], [*words.tokens, *supers.tokens]
        full = len(made) == room  # if not, there are pairs left that are too rare, or refused
        stopped = "vocab size reached" if full else "nothing left above min_frequency"
        return core.Learned(merges, made, stopped)


# -- Training and counting --------------------------------------------------------


@contextlib.contextmanager
def _read(
    training: Training, options: Superwords, corpus: Any, whole: PretokenCounts | None = None
) -> Iterator[tuple[Stages, _OnDisk, PretokenCounts]]:
    """Learn stage one from a corpus, or from the whole; yield what stage two needs."""
    empty = training.empty
    with tempfile.TemporaryFile() as kept, tempfile.TemporaryFile() as numbers:
        once = isinstance(corpus, (Iterator, core.Document))
        spool = _Spool(kept, corpus) if once else None
        counts = count_pretokens(
            spool.first() if spool else corpus,
            empty.split_pattern,
            special_tokens=training.contents,
            normalizer=empty.normalizer,
            num_workers=training.workers,
            text_field=training.text_field,
            verbose=training.verbose,
        )
        training.counted()
        stages = stages_of(training, options, counts if whole is None else whole)
        texts = core.documents(spool.again() if spool else corpus, training.text_field)
        with core.progress("encoding", "B", None, training.verbose) as advance:
            blocks = stages.numbering.blocks(advance).of(texts)
            workers = training.workers or core.cores()
            source = _OnDisk(numbers, stages.numbering.arrays(blocks, workers))
        yield stages, source, counts


def stages_of(training: Training, options: Superwords, counts: PretokenCounts) -> Stages:
    """Learn stage one from counts; ValueError if they know of another one."""
    stages = Stages(training, options, counts)
    if not isinstance(counts, SuperwordCounts):
        return stages
    if stages.digest() != counts.facts.stage_one:
        problem = "stage one differs from that of these counts, made with min_frequency"
        hint = "pass that, add the parts that are missing, or count again"
        raise ValueError(f"{problem} {counts.facts.min_frequency}: {hint}")
    if max(counts.runs.symbols, default=0) >= len(stages.numbering.tokens):
        raise ValueError("these counts have runs of tokens that aren't there: count again")
    return stages


def checked(training: Training, superwords: Any) -> Superwords:
    """Return options that are sound for a training."""
    options = Superwords.of(superwords)
    options.check(256 + len(training.contents), training.vocab_size)
    before, final = (
        training.empty.split_pattern,
        options.final_pattern(training.empty.split_pattern),
    )
    core.splitter(final)  # is it a pattern?
    if options.pattern is not None and before == final:
        raise ValueError("pattern is that of stage one; superwords need one that cuts less text")
    if before == final or before.startswith(_RUN):
        problem = "this tokenizer's split pattern is that of stage two, as it has superwords"
        raise ValueError(f"{problem}; make a new one with the pattern of stage one")
    return options


def train(tokenizer: BPETokenizer, given: Mapping[str, Any]) -> BPETokenizer:
    """Train with superwords; `given` are the arguments of `BPETokenizer.train`."""
    training, corpus, counts = Training(tokenizer, given), given["corpus"], given["counts"]
    options = checked(training, given["superwords"])
    if (corpus is None) == (counts is None):
        raise TypeError("train() takes a corpus or counts=..., one of the two")
    if counts is None:
        with _read(training, options, corpus) as (stages, source, counts):
            learned = stages.learn(source)
    else:
        _check_counts(training, options, counts)
        training.counted()
        learned = stages_of(training, options, counts).learn_again(counts)
    return training.finish(learned, counts, options.final_pattern(training.empty.split_pattern))


def _check_counts(training: Training, options: Superwords, counts: Any) -> None:
    """Raise an error unless counts are for this training."""
    if not isinstance(counts, SuperwordCounts):
        raise ValueError(NO_RUNS)
    if not counts.cut:
        problem = "these counts only say where to cut text, from counting neighbors"
        raise ValueError(f"{problem}; count each part of the corpus again with their sum")
    largest = training.vocab_size
    if training.vocab_size < counts.facts.vocab_size:
        largest = counts.facts.vocab_size  # a smaller vocabulary is the beginning of a larger one
    _check_facts(training, options, counts, largest)


def check_whole(training: Training, options: Superwords, whole: Any) -> None:
    """Raise an error unless counts are for this training, and for parts of a corpus."""
    if not isinstance(whole, PretokenCounts):
        raise TypeError(f"whole must be PretokenCounts, got {type(whole).__name__}")
    whole.check_made_by(training.empty.split_pattern, training.empty.normalizer)
    if isinstance(whole, SuperwordCounts):
        if whole.cut:
            raise ValueError("these counts are complete; train from them")
        _check_facts(training, options, whole, whole.facts.vocab_size)  # neighbors fit any


def _check_facts(
    training: Training, options: Superwords, counts: SuperwordCounts, vocab_size: int
) -> None:
    """Raise an error unless counts were made for this training, but for a vocabulary's size."""
    counts.check_made_by(training.empty.split_pattern, training.empty.normalizer)
    facts, is_auto = counts.facts, options.transition == "auto"
    asked = {
        "superwords": dataclasses.asdict(options),
        "special_tokens": tuple(sorted(training.contents)),
        "max_token_length": training.longest,
        "vocab_size": training.vocab_size if is_auto else vocab_size,
    }
    for name, value in asked.items():
        made = getattr(facts, name)
        if made != value:
            shown, got = core.shorten(made), core.shorten(value)
            if isinstance(value, dict):
                differ = [key for key in value if value[key] != made.get(key)]
                shown, got = (", ".join(f"{k}={d.get(k)!r}" for k in differ) for d in (made, value))
            problem = f"these counts were made with {name} {shown}, not with {got}"
            raise ValueError(f"{problem}: train with the same, or count again")


def count_superwords(
    corpus: Any,
    superwords: Any,
    vocab_size: int = 32_000,
    *,
    split_pattern: str = GPT2_SPLIT_PATTERN,
    normalizer: str | None = "NFC",
    special_tokens: Any = None,
    min_frequency: int = 2,
    max_token_length: int | None = None,
    num_workers: int | None = None,
    text_field: str = "text",
    verbose: bool = False,
    whole: PretokenCounts | None = None,
) -> SuperwordCounts:
    """Count what superwords are learned from; `train(counts=..., superwords=...)` takes it.

    The arguments are those of `BPETokenizer.train`, and training has to name the same; only
    `vocab_size` may be smaller then, unless the transition is "auto".

    If the corpus is a part of another, pass what is known of the `whole`.  With the sum of the
    parts' pre-tokens, this counts the neighbors in a part; with the sum of these, its runs.  The
    sum of the runs is what counting the whole at once gives.

    >>> text = "by the way, he said. by the way, she said. " * 20
    >>> counts = count_superwords(text, 275, vocab_size=290)
    >>> tokenizer = BPETokenizer().train(counts=counts, vocab_size=285, superwords=275)
    >>> tokenizer.tokenize("by the way")
    ['by', 'ĠtheĠway']
    """
    tokenizer = BPETokenizer(split_pattern, normalizer=normalizer)
    training = Training(tokenizer, {**locals(), "surround": None})
    options = checked(training, superwords)
    if whole is not None:
        check_whole(training, options, whole)
    with _read(training, options, corpus, whole) as (stages, source, counts):
        return stages.counts(source, counts, whole)
