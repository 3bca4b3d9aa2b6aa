"""Figures of several tokenizers on several groups of texts, side by side."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.evaluation.adapters import Adapter, named_tokenizers
from bpe_tokenizer_tools.evaluation.measures import (
    ALPHA,
    Measures,
    Tally,
    chunks_of,
    cut,
    measures_of,
)
from bpe_tokenizer_tools.evaluation.scripts import CLASSES, Allocation, allocate
from bpe_tokenizer_tools.evaluation.texts import FileGroup, size_of
from bpe_tokenizer_tools.support.tables import Table
from bpe_tokenizer_tools.support.text import Printed, counted
from bpe_tokenizer_tools.training.parity import gini

OVERALL = "overall"
_ENGLISH = ("eng", "en", "english", "eng_latn")  # names of parallel text in English
_SHOWN_SCRIPTS = 15


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer's vocabulary."""

    tokenizer: str  # its name
    vocab_size: int  # how many tokens, including special ones
    special_tokens: int  # how many of them are special
    rows: int  # how many rows an embedding needs: the largest id plus one
    scripts: dict[str, Allocation]  # script or class -> its tokens, the largest first


@dataclass(frozen=True)
class Evaluation(Printed):
    """The results of `evaluate`; printed, tables."""

    measures: list[Measures]  # each tokenizer's figures on each group, and last on all groups
    vocabularies: list[Vocabulary]  # of each tokenizer
    base: str | None = None  # the group that premiums compare with; None without parallel text
    alpha: float = ALPHA  # the order of the Rényi entropy

    @property
    def groups(self) -> list[str]:
        """The names of the groups; if there are several, "overall" comes last."""
        return list(dict.fromkeys(measures.group for measures in self.measures))

    @property
    def tokenizers(self) -> list[str]:
        """The names of the tokenizers."""
        return [vocabulary.tokenizer for vocabulary in self.vocabularies]

    def get(self, tokenizer: str, group: str) -> Measures:
        """Return the figures of a tokenizer on a group; KeyError if there are none."""
        for measures in self.measures:
            if (measures.tokenizer, measures.group) == (tokenizer, group):
                return measures
        raise KeyError((tokenizer, group))

    def gini(self, tokenizer: str) -> float | None:
        """Return the Gini coefficient of what the groups pay for text; 0 if all pay the same.

        Parallel texts say the same, so their numbers of tokens are compared; for other groups,
        tokens per byte.  None for a single group.
        """
        found = [self.get(tokenizer, group) for group in self.groups if group != OVERALL]
        same = [float(m.tokens) for m in found if m.premium is not None]
        costs = same or [m.tokens / m.bytes for m in found if m.bytes]
        return gini(costs) if len(costs) > 1 else None

    def tables(self) -> list[Table]:
        """Return what `print` shows: texts, figures, fertility side by side, vocabularies."""
        shown = [self._texts(), self._figures(), self._scripts()]
        if len(self.groups) > 1 and len(self.tokenizers) > 1:
            shown.insert(2, self._side_by_side())
        return shown

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

    def to_json(self) -> dict[str, Any]:
        """Return all figures as plain data."""
        return {**dataclasses.asdict(self), "gini": {n: self.gini(n) for n in self.tokenizers}}

    def to_csv(self) -> str:
        """Return the figures as CSV, one line for each tokenizer and group."""
        names = [field.name for field in dataclasses.fields(Measures)]
        names.remove("words_by_tokens")
        rows = [[getattr(measures, name) for name in names] for measures in self.measures]
        return Table(names, rows).to_csv()

    def _texts(self) -> Table:
        first = self.tokenizers[0]
        found = [self.get(first, group) for group in self.groups]
        rows = [[m.group, m.documents, m.bytes, m.characters, m.words] for m in found]
        return Table(["texts", "documents", "bytes", "characters", "words"], rows)

    def _figures(self) -> Table:
        columns = [
            "texts", "tokenizer", "tokens", "bytes/token", "chars/token", "tokens/word", "median",
            "95th", "one token", f"Rényi {self.alpha:g}", "unused", "wrong", "premium",
        ]  # fmt: skip
        rows = [
            [
                m.group, m.tokenizer, m.tokens, m.bytes_per_token, m.characters_per_token,
                m.tokens_per_word, m.median_tokens_per_word, m.p95_tokens_per_word,
                percent(m.single_token_words), m.renyi_efficiency, percent(m.unused_share),
                m.wrong_round_trips, m.premium,
            ]
            for m in self.measures
        ]  # fmt: skip
        if self.base is None:
            return Table(columns[:-1], [row[:-1] for row in rows])
        columns[-1] = f"against {self.base}"
        return Table(columns, rows)

    def _side_by_side(self) -> Table:
        """Return the fertility of each tokenizer on each group, and how unequal groups are."""
        rows: list[list[object]] = [
            [group, *(self.get(name, group).tokens_per_word for name in self.tokenizers)]
            for group in self.groups
        ]
        of = "tokens" if self.base is not None else "tokens per byte"
        rows.append([f"Gini of {of}", *map(self.gini, self.tokenizers)])
        return Table(["tokens per word", *self.tokenizers], rows)

    def _scripts(self) -> Table:
        rows: list[list[object]] = [
            [name, *(cell for v in self.vocabularies for cell in _cells(v, scripts))]
            for name, scripts in script_lines(self.vocabularies, _SHOWN_SCRIPTS).items()
        ]
        rows.append(["special", *(c for v in self.vocabularies for c in (v.special_tokens, None))])
        rows.append(["in all", *(c for v in self.vocabularies for c in (v.vocab_size, None))])
        names = [cell for name in self.tokenizers for cell in (name, "length")]
        return Table(["tokens of script", *names], rows)


def script_lines(vocabularies: Sequence[Vocabulary], most: int) -> dict[str, list[str]]:
    """Return the lines that show vocabularies by script: the name of a line -> its scripts.

    The `most` largest scripts have a line each, and all others share one; then come the classes.
    """
    total: dict[str, int] = {}
    for vocabulary in vocabularies:
        for script, found in vocabulary.scripts.items():
            total[script] = total.get(script, 0) + found.tokens
    largest = sorted(total.keys() - set(CLASSES), key=lambda name: (-total[name], name))
    lines = {script: [script] for script in largest[:most]}
    rest = largest[most:]
    if rest:
        lines[counted(len(rest), "other script")] = rest
    lines.update({name: [name] for name in CLASSES if name in total})
    return lines


def _cells(vocabulary: Vocabulary, scripts: Sequence[str]) -> tuple[int, float | None]:
    """Return how many tokens belong to some scripts, and their mean length in characters."""
    found = [vocabulary.scripts[name] for name in scripts if name in vocabulary.scripts]
    n = sum(each.tokens for each in found)
    told = [each for each in found if each.mean_characters is not None]
    length = sum(each.tokens * (each.mean_characters or 0.0) for each in told)
    return n, length / n if told else None


def percent(share: float | None) -> str:
    """Show a share; None is "-"."""
    return "-" if share is None else f"{100 * share:.1f}%"


def evaluate(
    tokenizers: Mapping[str, Any] | Sequence[Any],
    texts: Mapping[str, Iterable[str]] | None = None,
    *,
    parallel: Mapping[str, Sequence[str]] | None = None,
    alpha: float = ALPHA,
    verbose: bool = False,
) -> Evaluation:
    """Measure tokenizers on groups of texts.

    Args:
        tokenizers: name -> what `open_tokenizer` takes; or a list of that.
        texts: name of a group -> its documents: texts, or a `pathlib.Path` to read. Documents are
            streamed, so there can be any number of them.
        parallel: language -> lines, the same number in each; line n says the same in all.  Each is
            a group, too, and gets a premium against English (the one called "eng", "en" or
            "english"), or else against the first.
        alpha: the order of the Rényi entropy; see `renyi_entropy`.
        verbose: whether to show progress, on a terminal.

    Returns:
        All figures.  Those for "overall" are of all texts together, so a group counts by its size.

    Raises:
        ValueError: a group contains no text, a tokenizer fails on one, or parallel texts
            have different numbers of lines.

    >>> from bpe_tokenizer import BPETokenizer
    >>> found = evaluate({"bytes": BPETokenizer()}, {"words": ["ab cdé"]})
    >>> found.get("bytes", "words").tokens_per_word
    3.0
    """
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be above 0 and finite, got {alpha}")
    groups, base = groups_of(texts, parallel)
    adapters = named_tokenizers(tokenizers)
    tallies = {group: _tally(adapters, group, found, verbose) for group, found in groups.items()}
    measures = all_measures(adapters, with_overall(tallies), parallel, base, alpha)
    vocabularies = [
        Vocabulary(
            adapter.name,
            adapter.vocab_size,
            len(adapter.special),
            adapter.rows,
            allocate(adapter.tokens.values()),
        )
        for adapter in adapters
    ]
    return Evaluation(measures, vocabularies, base, alpha)


def with_overall(tallies: dict[str, list[Tally]]) -> dict[str, list[Tally]]:
    """Add the total of all groups, if there are several."""
    if len(tallies) == 1:
        return tallies
    return {
        **tallies,
        OVERALL: [functools.reduce(operator.add, each) for each in zip(*tallies.values())],
    }


def all_measures(
    adapters: Sequence[Adapter],
    tallies: Mapping[str, Sequence[Tally]],
    parallel: Mapping[str, Sequence[str]] | None,
    base: str | None,
    alpha: float = ALPHA,
) -> list[Measures]:
    """Work out the figures of all tokenizers on all groups; premiums compare with the base."""
    measures = []
    for group, found in tallies.items():
        against = tallies[base] if base is not None and group in (parallel or ()) else None
        for i, (adapter, tally) in enumerate(zip(adapters, found)):
            english = against[i] if against else None
            measures.append(measures_of(adapter, group, tally, english, alpha))
    return measures


def _tally(
    adapters: Sequence[Adapter], group: str, texts: Iterable[str], verbose: bool
) -> list[Tally]:
    tallies = [Tally(adapter.rows) for adapter in adapters]
    with core.progress(f"Measuring {group}", "B", size_of(texts), verbose) as advance:
        for chunk in chunks_of(group, texts):
            for adapter, tally in zip(adapters, tallies):
                tally.add(chunk, cut(adapter, chunk))
            advance(int(chunk.sizes.sum()))
    return tallies


def groups_of(
    texts: Mapping[str, Iterable[str]] | None, parallel: Mapping[str, Sequence[str]] | None
) -> tuple[dict[str, Iterable[str]], str | None]:
    """Return all groups, and the one that premiums compare with."""
    groups: dict[str, Iterable[str]] = {}
    for name, found in (texts or {}).items():
        groups[str(name)] = FileGroup(str(name), [found]) if isinstance(found, Path) else found
    for name, lines in (parallel or {}).items():
        if name in groups:
            raise ValueError(f"{name!r} is a group of texts and a parallel text; rename one")
        groups[name] = lines
    if not groups:
        raise ValueError("expected texts to measure tokenizers on, got none")
    if OVERALL in groups:
        raise ValueError(f"a group can't be called {OVERALL!r}, the name for all groups; rename it")
    return groups, _base(parallel) if parallel else None


def _base(parallel: Mapping[str, Sequence[str]]) -> str:
    """Find the parallel text in English; check that all have the same number of lines."""
    if len(parallel) < 2:
        raise ValueError("parallel text needs at least two languages, got one")
    n_lines = {name: len(lines) for name, lines in parallel.items()}
    first = next(iter(n_lines))
    for name, n in n_lines.items():
        if n != n_lines[first]:
            raise ValueError(
                f"parallel texts must have the same number of lines: {first!r} has "
                f"{n_lines[first]:,}, {name!r} {n:,}"
            )
    return next((name for name in parallel if name.lower() in _ENGLISH), first)
