"""Parity between languages: each merge is for the language that is worst off.

BPE merges the most frequent pairs, so a language with little text gets few tokens, and needs more
of them for each sentence.  Before each merge, parity-aware BPE (Foroutan et al. 2025, arXiv
2508.04796) finds the language with the lowest compression so far, and merges that language's most
frequent pair everywhere.

Compression is measured on a language's training text, in bytes per token, or on `held_out` texts
that say the same in each language, in tokens.  The paper has two options:

- The first `global_merges` merges are those of the most frequent pairs of all text together.
- With a `window`, no language gets much more than its share: a language that was chosen for more
  than `alpha / languages` of the last `window` merges is skipped.

Sources: the paper, and github.com/swiss-ai/parity-aware-bpe for a detail the paper leaves open:
ties go to the language named first.  Unlike there, a language with no pair left to merge is skipped
from then on; training ends when no language has one.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bpe_tokenizer import (
    BPETokenizer,
    FileFormatError,
    PretokenCounts,
    TrainingReport,
    count_pretokens,
)
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.training.variants import Training

__all__ = ["LanguageReport", "Parity", "ParityReport", "train"]


@dataclass(frozen=True)
class Parity:
    """How to treat languages alike.

    Attributes:
        corpora: for each language a corpus, as for `count_pretokens`, or counts of pre-tokens.
        held_out: for each language, the same text or its counts, on which to compare the number
            of tokens.  None to compare bytes per token on the corpora.
        global_merges: number of merges to learn first from all languages together.
        window, alpha: no language gets more than `alpha` times its even share of the last `window`
            merges; None for no window.

    >>> texts = {"en": ["the cat and the dog " * 90], "de": ["die Katze und der Hund " * 9]}
    >>> tokenizer = BPETokenizer().train(parity=texts, vocab_size=270, verbose=False)
    >>> print(tokenizer.training_report.table())
    language  bytes per token  tokens per pre-token  merges for it
    en                   2.00                  2.00              5
    de                   2.07                  2.17              9
    Gini coefficient of tokens per byte: 0.009
    """

    corpora: Mapping[str, Any]
    held_out: Mapping[str, Any] | None = None
    global_merges: int = 0
    window: int | None = None
    alpha: float = 2.0

    @classmethod
    def of(cls, given: Any) -> Parity:
        """Read what was passed as `parity`: this, or a mapping from languages to corpora."""
        if isinstance(given, Mapping):
            given = cls(given)
        if not isinstance(given, cls):
            wanted = "Parity(...) or a mapping from languages to corpora"
            raise TypeError(f"parity must be {wanted}, got {core.shorten(given)}")
        return given

    def check(self) -> None:
        """Raise unless everything is valid."""
        if not isinstance(self.corpora, Mapping) or not all(type(n) is str for n in self.corpora):
            raise TypeError("corpora must be a mapping from languages, as strings, to corpora")
        if len(self.corpora) < 2:
            raise ValueError(f"parity needs two languages at least, got {len(self.corpora)}")
        if not isinstance(self.held_out, (Mapping, type(None))):
            got = core.shorten(self.held_out)
            raise TypeError(f"held_out must be a mapping from languages to corpora, got {got}")
        if self.held_out is not None and {*self.held_out} != {*self.corpora}:
            for name in sorted({*self.held_out} ^ {*self.corpora}, key=str):
                has, lacks = "corpora", "held_out"
                if name in self.held_out:
                    has, lacks = lacks, has
                problem = f"language {core.shorten(name)} is in {has}, and not in {lacks}"
                raise ValueError(f"{problem}; name the same languages in both")
        core.check_size("global_merges", self.global_merges, 0)
        core.check_size("window", self.window, 1)
        if not isinstance(self.alpha, (int, float)) or not self.alpha >= 1:
            raise ValueError(f"alpha must be 1 or more, got {core.shorten(self.alpha)}")


# -- Reports --------------------------------------------------------------------


@dataclass(frozen=True)
class LanguageReport:
    """Results of one language on its training text."""

    bytes: int
    pretokens: int
    tokens: int
    held_out_tokens: int | None  # if there are held-out texts
    merges: int  # made for it because it was worst off

    @property
    def bytes_per_token(self) -> float:
        """The compression: lower is worse."""
        return self.bytes / self.tokens

    @property
    def fertility(self) -> float:
        """Tokens per pre-token."""
        return self.tokens / self.pretokens


@dataclass(frozen=True)
class ParityReport(TrainingReport):
    """What a training run with parity read and learned."""

    languages: dict[str, LanguageReport]
    gini: float  # of tokens per byte, or of the tokens of held-out texts; 0 if all are equal

    def table(self) -> str:
        """Format the results of each language, for people."""
        width = max(8, *map(len, self.languages))
        head = "bytes per token", "tokens per pre-token", "merges for it"
        lines = ["  ".join([f"{'language':<{width}}", *head])]
        for name, each in self.languages.items():
            cells = f"{each.bytes_per_token:.2f}", f"{each.fertility:.2f}", f"{each.merges:,}"
            row = (f"{cell:>{len(title)}}" for cell, title in zip(cells, head))
            lines.append("  ".join([f"{name:<{width}}", *row]))
        by_token = next(iter(self.languages.values())).held_out_tokens is None
        of = "tokens per byte" if by_token else "tokens of the held-out texts"
        return "\n".join([*lines, f"Gini coefficient of {of}: {self.gini:.3f}"])


def gini(values: list[float]) -> float:
    """Return the Gini coefficient of some costs: 0 if all are equal, near 1 if one pays for all.

    >>> round(gini([1, 1, 1]), 3), round(gini([0, 0, 9]), 3)
    (0.0, 0.667)
    """
    ordered, n = sorted(values), len(values)
    weighted = sum((2 * i - n + 1) * value for i, value in enumerate(ordered))
    return weighted / (n * sum(ordered)) if any(ordered) else 0.0


# -- Learning -------------------------------------------------------------------


class _Words(core.MergeLearner):
    """The words of a text whose merges the caller chooses.

    All texts share one list of tokens, and each merge is made in all of them.  So a text knows
    where each pair is, not only the pair at the top of its heap.
    """

    def __init__(
        self, counts: Mapping[bytes, int], longest: int | None, tokens: list[bytes]
    ) -> None:
        super().__init__(counts, longest)
        self._token = tokens
        self._where: dict[str, list[int]] = {}
        self._count_pairs()
        self._where = {pair: where for _, pair, where in self._heap}

    def _push(self, pair: str, where: list[int]) -> None:
        super()._push(pair, where)
        self._where.setdefault(pair, where)  # once: one merge makes all of a pair's places

    def best(self) -> tuple[str, int]:
        """Return the most frequent pair, and its count; ("", 0) if no pair is left."""
        pair, where = self._pop()
        if pair:
            super()._push(pair, where)
        return pair, self._pair_counts.get(pair, 0)

    def drop(self) -> None:
        """Forget the best pair."""
        self._pop()

    def join(self, pair: str, merged: str) -> int:
        """Merge a pair everywhere; return how often it was merged."""
        where = self._where.pop(pair, [])
        times = max(self._pair_counts.get(pair, 0), 0)
        if pair[0] == pair[1]:  # the count includes overlaps, which can't be merged
            times = sum(self._words[i].count(pair) * self._freqs[i] for i in where)
        self._merge(pair, merged, where)
        self._pair_counts[pair] = 0
        return times


class _WordsInC:
    """The same with the accelerator."""

    def __init__(self, learner: Any) -> None:
        self._learner, self.drop = learner, learner.drop

    def best(self) -> tuple[str, int]:
        found = self._learner.best()
        return (chr(found[0]) + chr(found[1]), found[2]) if found else ("", 0)

    def join(self, pair: str, _: str) -> int:
        times: int = self._learner.join(ord(pair[0]), ord(pair[1]))
        return times


def _words(
    counts: dict[bytes, int], longest: int | None, tokens: list[bytes]
) -> _Words | _WordsInC:
    if engine := core.engine_in_c():
        with contextlib.suppress(OverflowError, TypeError):  # too large, or not plain ints
            return _WordsInC(engine.native.PairLearner(counts, core.ALPHABET, longest))
    return _Words(counts, longest, tokens)


class _Text:
    """The text of one language: its words, and its number of tokens."""

    def __init__(self, counts: dict[bytes, int], longest: int | None, tokens: list[bytes]) -> None:
        self._words = _words(counts, longest, tokens)
        self.bytes = self.length = sum(len(pretoken) * n for pretoken, n in counts.items())
        self.pretokens, self.exhausted = sum(counts.values()), False

    def best(self, min_frequency: int, may_join: Callable[[str], bool]) -> str:
        """Return the most frequent pair; "" if none is left, which is final."""
        pair, count = self._words.best()
        while pair and not may_join(pair):
            self._words.drop()
            pair, count = self._words.best()
        if count >= min_frequency:
            return pair
        self.exhausted = True
        return ""

    def join(self, pair: str, merged: str) -> None:
        """Merge a pair everywhere."""
        self.length -= self._words.join(pair, merged)


class _Learner:
    """Learns merges for several texts."""

    def __init__(
        self, parity: Parity, training: Training, counts: Mapping[str, PretokenCounts]
    ) -> None:
        self._parity, self._training = parity, training
        self._tokens = [bytes([byte]) for byte in core.ALPHABET]
        whole: Counter[bytes] = Counter()
        for each in counts.values() if parity.global_merges else ():
            whole.update(each)
        self._whole, self.texts = self._text(whole), self._all_texts(counts)
        self.held_out: dict[str, _Text] = {}
        self.chosen: Counter[str] = Counter()
        self._last: deque[str] = deque(maxlen=parity.window or 1)

    def _text(self, counts: dict[bytes, int]) -> _Text:
        return _Text(counts, self._training.longest, self._tokens)

    def _all_texts(self, counts: Mapping[str, PretokenCounts]) -> dict[str, _Text]:
        return {name: self._text(counts[name]) for name in counts}

    def add_held_out(self, counts: Mapping[str, PretokenCounts]) -> None:
        """Add the texts to measure on."""
        self.held_out = self._all_texts(counts)

    def _cost(self, name: str) -> float:
        if self.held_out:
            return self.held_out[name].length
        return -self.texts[name].bytes / self.texts[name].length

    def costs(self) -> list[float]:
        """Return the cost for each language: tokens of held-out text, or tokens per byte."""
        if self.held_out:
            return [text.length for text in self.held_out.values()]
        return [text.length / text.bytes for text in self.texts.values()]

    def _may_join(self, pair: str) -> bool:
        left, right = (self._tokens[ord(char)] for char in pair)
        return left + right not in self._training.forbidden

    def _next(self, merges: int) -> str:
        """Choose a language, and return the pair to merge; "" if none is left."""
        least = max(self._training.min_frequency, 1)
        at_first = merges < self._parity.global_merges and not self._whole.exhausted
        if at_first and (pair := self._whole.best(least, self._may_join)):
            return pair
        waiting = {name for name, text in self.texts.items() if not text.exhausted}
        while waiting:
            name = self._worst_off(waiting)
            if pair := self.texts[name].best(least, self._may_join):
                self.chosen[name] += 1
                self._last.append(name)
                return pair
            waiting.remove(name)
        return ""

    def _worst_off(self, names: set[str]) -> str:
        """Return the language that is worst off, among those not chosen too often."""
        there = (name for name in self.texts if name in names)
        ordered = sorted(there, key=self._cost, reverse=True)  # ties: the first named first
        window, most = self._parity.window, self._parity.alpha / len(self.texts)
        for name in ordered if window else ():
            if self._last.count(name) / window <= most:  # type: ignore[operator]
                return name
        return ordered[0]

    def learn(self) -> core.Learned:
        """Learn as many merges as there is room for."""
        tokens, room = self._tokens, self._training.room
        merges: list[tuple[bytes, bytes]] = []
        stopped = "vocab size reached"
        with core.progress("merging", "merge", room, self._training.verbose) as advance:
            while len(tokens) - 256 < room:
                pair = self._next(len(merges))
                if not pair:
                    stopped = "nothing left above min_frequency"
                    break
                left, right = (tokens[ord(char)] for char in pair)
                # No merge makes an existing token: accelerator/train/learn.c says why.
                tokens.append(left + right)
                merges.append((left, right))
                advance(1)
                whole = [self._whole] if len(merges) <= self._parity.global_merges else []
                for text in (*whole, *self.texts.values(), *self.held_out.values()):
                    text.join(pair, chr(len(tokens) - 1))
        return core.Learned(merges, tokens[256:], stopped)

    def reports(self) -> dict[str, LanguageReport]:
        """Return the results of each language."""
        held_out = {name: text.length for name, text in self.held_out.items()}
        return {
            name: LanguageReport(
                text.bytes, text.pretokens, text.length, held_out.get(name), self.chosen[name]
            )
            for name, text in self.texts.items()
        }


def _count(training: Training, corpus: Any) -> PretokenCounts:
    """Count the pre-tokens of a corpus, unless it is already counted."""
    pattern, normalizer = training.empty.split_pattern, training.empty.normalizer
    if isinstance(corpus, PretokenCounts):
        corpus.check_made_by(pattern, normalizer)
        return corpus
    if isinstance(corpus, Mapping):
        if {*map(type, corpus)} - {bytes} or {*map(type, corpus.values())} - {int}:
            raise TypeError("counts must map pre-tokens, as bytes, to whole numbers")
        return PretokenCounts(corpus, pattern, normalizer)
    return count_pretokens(
        corpus,
        pattern,
        special_tokens=training.contents,
        normalizer=normalizer,
        num_workers=training.workers,
        text_field=training.text_field,
        verbose=training.verbose,
    )


def _counted(
    training: Training, corpora: Mapping[str, Any], kind: str = ""
) -> dict[str, PretokenCounts]:
    """Count the text of each language; errors name the language and the `kind` of text."""
    found = {}
    for name, corpus in corpora.items():
        try:
            found[name] = _count(training, corpus)
            if not any(found[name].values()):
                raise ValueError(core.EMPTY)
        except FileFormatError:  # its message names the file
            raise
        except (TypeError, ValueError) as error:
            is_type = isinstance(error, TypeError)
            problem = str(error).replace("the corpus", "the text") if kind else str(error)
            message = f"language {name!r}{kind}: {problem}"
            raise (TypeError if is_type else ValueError)(message) from None
    return found


def train(tokenizer: BPETokenizer, given: Mapping[str, Any]) -> BPETokenizer:
    """Train with parity; `given` are the arguments of `BPETokenizer.train`."""
    training, parity = Training(tokenizer, given), Parity.of(given["parity"])
    parity.check()
    if given["corpus"] is not None or given["counts"] is not None:
        raise TypeError(
            "with parity, training uses only the languages' corpora; pass no other corpus"
        )
    counts = _counted(training, parity.corpora)
    held_out = _counted(training, parity.held_out or {}, ", held out")
    training.counted()
    learner = _Learner(parity, training, counts)
    if held_out:
        learner.add_held_out(held_out)
    learned = learner.learn()
    costs = learner.costs()
    make = functools.partial(ParityReport, languages=learner.reports(), gini=gini(costs))
    total = functools.reduce(lambda a, b: a + b, counts.values())
    return training.finish(learned, total, training.empty.split_pattern, make)
