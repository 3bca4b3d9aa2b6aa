"""Two tokenizers on the same texts: where they cut differently, and what that costs."""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.evaluation.adapters import Adapter, named_tokenizers
from bpe_tokenizer_tools.evaluation.figures import (
    OVERALL,
    all_measures,
    groups_of,
    percent,
    with_overall,
)
from bpe_tokenizer_tools.evaluation.measures import Chunk, Cut, Measures, Tally, chunks_of, cut
from bpe_tokenizer_tools.evaluation.texts import size_of
from bpe_tokenizer_tools.evaluation.words import SOLO, WORD
from bpe_tokenizer_tools.showing.view import shown
from bpe_tokenizer_tools.support.tables import Table
from bpe_tokenizer_tools.support.text import Printed, printable, shortened

numpy = core.import_optional("numpy", "measuring tokenizers", "numpy")

_CONTEXT = 24  # characters before and after a word
_MOST_STRETCHES = 1 << 19  # of text to count; about 250 MB
_MIX = 0x9E3779B1  # an odd number: multiplied by it, neighboring places are far apart

# -- The result ---------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """How often two tokenizers cut words differently."""

    group: str  # the name of the texts
    words: int  # how many there are
    differing: int  # how many of them are cut at different places inside
    share: float | None  # of all words, 0 to 1; None if there are none
    a_tokens: int  # how many tokens the first needs for the texts
    b_tokens: int  # how many the second needs
    saved: float | None  # the share of the first's tokens that the second saves; may be negative


@dataclass(frozen=True)
class Example:
    """A word that two tokenizers cut differently, in context."""

    group: str  # the name of the texts
    before: str  # the text before it
    word: str  # the word
    after: str  # the text after it
    a_cut: str  # the first's tokens that contain part of it, separated by spaces, white space shown
    b_cut: str  # the second's


@dataclass(frozen=True)
class Expense:
    """A word, or more, that costs one tokenizer more tokens than the other.

    Texts are cut wherever tokens of both end together, but not inside a word.  So each stretch
    consists of whole tokens of both, and all stretches together have as many tokens as the texts.
    """

    # the stretch without spaces around it: most often a word, maybe with the punctuation that
    # shares a token with it; or a run of white space
    text: str
    times: int  # how often the tokenizers need different numbers of tokens for it
    a_tokens: int  # how many tokens the first needs for these
    b_tokens: int  # how many the second needs
    a_cut: str  # how the first cuts its first occurrence; see `Example`
    b_cut: str  # how the second does


@dataclass(frozen=True)
class Overlap:
    """The overlap of two vocabularies, without special tokens."""

    shared: int  # how many tokens, as bytes, are in both
    only_a: int  # how many only the first has
    only_b: int  # how many only the second has
    only_a_used: float  # of the first's tokens in the texts, the share that only the first has
    only_b_used: float  # the same for the second
    only_a_examples: list[tuple[str, int]]  # those that the texts use most, and how often
    only_b_examples: list[tuple[str, int]]  # the same for the second


@dataclass(frozen=True)
class Comparison(Printed):
    """The results of `compare`; printed, tables and a verdict."""

    a: str  # the name of the first tokenizer
    b: str  # the name of the second
    verdict: str  # the summary, in plain figures
    differences: list[Difference]  # for each group, and last for all of them
    measures: list[Measures]  # the figures of both on each group, as `evaluate` gives them
    examples: list[Example]  # some words that are cut differently, of each group
    # what costs the first the most extra tokens. If the two cut more than half a million different
    # stretches into different numbers of tokens, those that made the least difference are left out
    expensive_for_a: list[Expense]
    expensive_for_b: list[Expense]  # what costs the second the most extra tokens
    vocabulary: Overlap  # what their vocabularies share

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return dataclasses.asdict(self)

    def to_csv(self) -> str:
        """Return the differences as CSV, one line for each group."""
        names = [field.name for field in dataclasses.fields(Difference)]
        return Table(names, [dataclasses.astuple(each) for each in self.differences]).to_csv()

    def __str__(self) -> str:
        return "\n\n".join(map(str, [*self.tables(), self.verdict]))

    def tables(self) -> list[Table]:
        """Return what `print` shows before the verdict."""
        found = [
            self._totals(),
            self._examples(),
            self._expenses(self.expensive_for_a, self.a, self.b),
            self._expenses(self.expensive_for_b, self.b, self.a),
            self._overlap(),
        ]
        return [table for table in found if table.rows]

    def _totals(self) -> Table:
        columns = ["texts", self.a, self.b, "saved", "words", "cut differently", "share"]
        rows = [
            [
                d.group, d.a_tokens, d.b_tokens, percent(d.saved), d.words, d.differing,
                percent(d.share),
            ]
            for d in self.differences
        ]  # fmt: skip
        return Table(columns, rows, f"Tokens of {self.a} and {self.b}")

    def _examples(self) -> Table:
        rows = [
            [e.group, f"{e.before}[{e.word}]{e.after}", e.a_cut, e.b_cut] for e in self.examples
        ]
        return Table(["texts", "words in text", self.a, self.b], rows, "Cut differently")

    def _expenses(self, expenses: Sequence[Expense], name: str, other: str) -> Table:
        def row(e: Expense) -> list[object]:
            cuts = [e.a_cut, e.b_cut] if name == self.a else [e.b_cut, e.a_cut]
            return [e.text, e.times, abs(e.a_tokens - e.b_tokens), *cuts]

        columns = ["text", "times", "tokens more", name, other]
        title = f"Where {name} needs the most extra tokens, compared with {other}"
        return Table(columns, [row(expense) for expense in expenses], title)

    def _overlap(self) -> Table:
        found = self.vocabulary
        rows: list[list[object]] = [["in both", found.shared, None, ""]]
        for name, n, used, examples in (
            (self.a, found.only_a, found.only_a_used, found.only_a_examples),
            (self.b, found.only_b, found.only_b_used, found.only_b_examples),
        ):
            shown = "  ".join(token for token, _ in examples[:8])
            rows.append([f"only in {name}", n, percent(used), shown])
        columns = ["tokens", "how many", "of its tokens in the texts", "used most"]
        return Table(columns, rows, "Vocabularies")


# -- Gathering ----------------------------------------------------------------


class _Gatherer:
    """Counts where two tokenizers differ, as texts pass by."""

    def __init__(self, adapters: Sequence[Adapter], n_examples: int) -> None:
        self.adapters, self._n_examples = adapters, n_examples
        self.tallies: dict[str, list[Tally]] = {}
        self.differing: Counter[str] = Counter()  # words of each group that are cut differently
        self.examples: dict[str, list[tuple[int, int, Example]]] = {}
        self._pieces: Counter[str] = Counter()  # of each group, so far
        # stretch of text -> the fields of its `Expense`
        self.expenses: dict[bytes, list[Any]] = {}
        self._new: list[tuple[int, int, list[Any]]] = []

    def add(self, chunk: Chunk) -> None:
        tallies = self.tallies.setdefault(
            chunk.group, [Tally(adapter.rows) for adapter in self.adapters]
        )
        cuts = [cut(adapter, chunk) for adapter in self.adapters]
        for adapter, tally, each in zip(self.adapters, tallies, cuts):
            if each.starts is None:
                raise ValueError(
                    f"{adapter.name} can't be compared: it has no offsets, and its tokens don't "
                    "spell the text"
                )
            tally.add(chunk, each)
        words = chunk.pieces.words
        differing = words[_cut_differently(chunk, words, *cuts)]
        self.differing[chunk.group] += len(differing)
        self._add_examples(chunk, differing, cuts)
        self._add_expenses(chunk, cuts)

    def _add_examples(self, chunk: Chunk, differing: Any, cuts: Sequence[Cut]) -> None:
        """Keep a few from everywhere: those whose places have the smallest hashes."""
        kept = self.examples.get(chunk.group, [])
        places = differing + self._pieces[chunk.group]
        self._pieces[chunk.group] += len(chunk.pieces.starts) + 1  # as between two documents
        hashes = (places + 1) * _MIX % (1 << 32)
        found = [
            (int(hashes[i]), int(places[i]), _example(chunk, int(differing[i]), cuts))
            for i in numpy.argsort(hashes, kind="stable")[: self._n_examples]
        ]
        self.examples[chunk.group] = heapq.nsmallest(self._n_examples, [*kept, *found])

    def _add_expenses(self, chunk: Chunk, cuts: Sequence[Cut]) -> None:
        data, expenses = chunk.pieces.data, self.expenses
        bounds = _common_ends(chunk, *cuts)
        a, b = (
            numpy.bincount(numpy.searchsorted(bounds, each.ends), minlength=len(bounds))
            for each in cuts
        )
        found = numpy.flatnonzero(a != b)
        columns = (bounds[found - 1], bounds[found], a[found], b[found])
        for start, end, n_a, n_b in zip(*(column.tolist() for column in columns)):
            piece = data[start:end]
            text = piece.strip(b" ") or piece
            entry = expenses.get(text)
            if entry is None:
                expenses[text] = entry = [0, 0, 0]
                self._new.append((start, end, entry))
            entry[0] += 1
            entry[1] += n_a
            entry[2] += n_b
        self._show_new(chunk, cuts)
        if len(expenses) > _MOST_STRETCHES:  # forget the half that has made the least difference
            most = sorted(expenses.items(), key=lambda item: -abs(item[1][1] - item[1][2]))
            self.expenses = dict(most[: _MOST_STRETCHES // 2])

    def _show_new(self, chunk: Chunk, cuts: Sequence[Cut]) -> None:
        """Show how stretches of text that are new are cut."""
        starts, ends = (
            numpy.array([each[side] for each in self._new], numpy.int64) for side in (0, 1)
        )
        for each in cuts:
            shown_cuts = _shown_cuts(chunk, starts, ends, each)
            for (_, _, entry), text in zip(self._new, shown_cuts):
                entry.append(text)
        self._new.clear()


def _cut_differently(chunk: Chunk, words: Any, a: Cut, b: Cut) -> Any:
    """Return which of the words have different token ends inside."""
    apart = [x.ends[~_among(x.ends, y.ends)] for x, y in ((a, b), (b, a))]
    apart = numpy.sort(numpy.concatenate(apart))
    starts, ends = chunk.pieces.starts[words], chunk.pieces.ends[words]
    # How many of the ends that only one has lie strictly inside each word.
    return numpy.searchsorted(apart, ends, "left") > numpy.searchsorted(apart, starts, "right")


def _among(values: Any, others: Any) -> Any:
    """Return which values are among others; both are sorted."""
    if not len(others):
        return numpy.zeros(len(values), bool)
    places = numpy.minimum(numpy.searchsorted(others, values), len(others) - 1)
    return others[places] == values


def _common_ends(chunk: Chunk, a: Cut, b: Cut) -> Any:
    """Return where tokens of both end outside words and characters, and where documents end."""
    pieces = chunk.pieces
    common = a.ends[_among(a.ends, b.ends)]
    place = numpy.searchsorted(pieces.starts, common, "right") - 1
    at_start = pieces.starts[place] == common
    in_word = ((pieces.kinds[place] == WORD) | (pieces.kinds[place] == SOLO)) & ~at_start
    whole = _among(common, pieces.byte_at)
    ends = chunk.begins + chunk.sizes
    bounds = numpy.sort(numpy.concatenate([common[whole & ~in_word], chunk.begins, ends]))
    return bounds[numpy.append(True, bounds[1:] != bounds[:-1])]


def _example(chunk: Chunk, piece: int, cuts: Sequence[Cut]) -> Example:
    pieces = chunk.pieces
    at = numpy.searchsorted(pieces.byte_at, [pieces.starts[piece], pieces.ends[piece]])
    document = numpy.searchsorted(chunk.character_begins, at[0], "right") - 1
    text, begin = chunk.documents[document], chunk.character_begins[document]
    start, end = int(at[0] - begin), int(at[1] - begin)
    before, after = text[max(0, start - _CONTEXT) : start], text[end : end + _CONTEXT]
    before = f"{'…' * (start > _CONTEXT)}{before}"
    after = f"{after}{'…' * (end + _CONTEXT < len(text))}"
    span = pieces.starts[piece : piece + 1], pieces.ends[piece : piece + 1]
    a_cut, b_cut = (next(_shown_cuts(chunk, *span, each)) for each in cuts)
    return Example(chunk.group, before, text[start:end], after, a_cut, b_cut)


def _shown_cuts(chunk: Chunk, starts: Any, ends: Any, cut: Cut) -> Iterator[str]:
    """Show the tokens that contain a part of each stretch of text."""
    data = chunk.pieces.data
    first = numpy.searchsorted(cut.ends, starts, "right").tolist()
    last = numpy.searchsorted(cut.starts, ends, "left").tolist()
    for i, j in zip(first, last):
        spans = zip(cut.starts[i:j].tolist(), cut.ends[i:j].tolist())
        yield shortened(" ".join(shown(data[s:e]) for s, e in spans if e > s))


# -- Comparing ----------------------------------------------------------------


@core.renamed(a="tokenizer_a", b="tokenizer_b")
def compare(
    tokenizer_a: Any,
    tokenizer_b: Any,
    texts: Mapping[str, Iterable[str]] | None,
    *,
    parallel: Mapping[str, Sequence[str]] | None = None,
    n_examples: int = 4,
    n_expensive: int = 12,
    verbose: bool = False,
) -> Comparison:
    """Compare two tokenizers on groups of texts.

    The tokenizers, a and b in the result, are what `open_tokenizer` takes; `texts` and `parallel`
    are as for `evaluate`.  The result shows `n_examples` words of each group that are cut
    differently, the same ones each time, and `n_expensive` words of each tokenizer.

    Raises:
        ValueError: as for `evaluate`; or a tokenizer has no offsets, and its tokens don't
            spell the text.

    >>> from bpe_tokenizer import BPETokenizer
    >>> print(compare(BPETokenizer(), BPETokenizer(), {"words": ["ab cd"]}).verdict)
    Both cut all words the same way and need 5 tokens. Both need 256 embedding rows.
    """
    groups, base = groups_of(texts, parallel)
    adapters = named_tokenizers([tokenizer_a, tokenizer_b])
    gatherer = _Gatherer(adapters, n_examples)
    for name, found in groups.items():
        with core.progress(f"Comparing on {name}", "B", size_of(found), verbose) as advance:
            for chunk in chunks_of(name, found):
                gatherer.add(chunk)
                advance(int(chunk.sizes.sum()))
    tallies = with_overall(gatherer.tallies)
    differing = {**gatherer.differing, OVERALL: gatherer.differing.total()}
    differences = [_difference(name, differing[name], *found) for name, found in tallies.items()]
    return Comparison(
        adapters[0].name,
        adapters[1].name,
        printable(_verdict(adapters, differences)),
        differences,
        all_measures(adapters, tallies, parallel, base),
        [
            each
            for kept in gatherer.examples.values()
            for *_, each in sorted(kept, key=itemgetter(1))
        ],
        _expenses(gatherer.expenses, 1, n_expensive),
        _expenses(gatherer.expenses, -1, n_expensive),
        _overlap(adapters, [*tallies.values()][-1]),
    )


def _difference(name: str, differing: int, a: Tally, b: Tally) -> Difference:
    share = differing / a.words if a.words else None
    saved = (a.tokens - b.tokens) / a.tokens if a.tokens else None
    return Difference(name, a.words, differing, share, a.tokens, b.tokens, saved)


def _expenses(found: Mapping[bytes, Sequence[Any]], sign: int, n: int) -> list[Expense]:
    """Return what costs the first (sign 1) or the second (sign -1) most."""
    lost = ((sign * (entry[1] - entry[2]), text) for text, entry in found.items())
    most = heapq.nsmallest(n, ((-more, text) for more, text in lost if more > 0))
    return [Expense(shortened(shown(text)), *found[text]) for _, text in most]


def _overlap(adapters: Sequence[Adapter], tallies: Sequence[Tally]) -> Overlap:
    a, b = (set(adapter.tokens.values()) for adapter in adapters)
    sides = []
    for adapter, tally, other in zip(adapters, tallies, (b, a)):
        only = [id_ for id_, token in adapter.tokens.items() if token not in other]
        used = tally.uses[only] if only else numpy.zeros(0, numpy.int64)
        order = numpy.argsort(-used, kind="stable")[:20]
        examples = [
            (shortened(shown(adapter.tokens[only[i]])), int(used[i])) for i in order if used[i]
        ]
        sides.append((len({adapter.tokens[id_] for id_ in only}), int(used.sum()), examples))
    shares = [n / tally.tokens if tally.tokens else 0.0 for (_, n, _), tally in zip(sides, tallies)]
    return Overlap(
        len(a & b), sides[0][0], sides[1][0], shares[0], shares[1], sides[0][2], sides[1][2]
    )


# -- The verdict --------------------------------------------------------------


def _verdict(adapters: Sequence[Adapter], differences: Sequence[Difference]) -> str:
    a, b = adapters[0].name, adapters[1].name
    total = differences[-1]
    if total.a_tokens == total.b_tokens and not total.differing:
        tokens = f"Both cut all words the same way and need {total.a_tokens:,} tokens."
    else:
        where = "overall" if len(differences) > 1 else f"on {total.group}"
        saved = total.saved
        how_many = "more tokens than" if saved is None else "as many tokens as"
        if saved:
            how_many = f"{100 * abs(saved):.1f}% {'fewer' if saved > 0 else 'more'} tokens than"
        tokens = f"{b} needs {how_many} {a} {where}: "
        tokens += f"{total.b_tokens:,} against {total.a_tokens:,}."
        tokens += f" It cuts {percent(total.share)} of the words differently."
    said = [tokens]
    if len(differences) > 1:
        groups = differences[:-1]
        n = sum(group.b_tokens < group.a_tokens for group in groups)
        each = ", ".join(f"{_sign(group)} on {group.group}" for group in groups)
        said.append(f"{b} needs fewer on {n} of {len(groups)} groups: {each}.")
    a_rows, b_rows = (adapter.rows for adapter in adapters)
    if a_rows == b_rows:
        said.append(f"Both need {a_rows:,} embedding rows.")
    else:
        more, rows = abs(b_rows - a_rows), "row" if abs(b_rows - a_rows) == 1 else "rows"
        how = "more" if b_rows > a_rows else "fewer"
        said.append(f"{b} costs {more:,} {how} embedding {rows}.")
    return " ".join(said)


def _sign(group: Difference) -> str:
    if group.saved is None:
        return "-"
    change = round(-100 * group.saved, 1)
    return f"{change:+.1f}%" if change else "0.0%"
