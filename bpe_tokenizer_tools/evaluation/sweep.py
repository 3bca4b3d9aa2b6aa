"""Which vocabulary size?  Measured, on text that training never saw.

    result = sweep(["corpus.txt"], held_out="other.txt", width=768, parameters=124_000_000)
    print(result)                               # a table, a size, and why
    result.tokenizer(result.recommendation.size).save("tokenizer")

There is one training, at the largest size.  The merges of a smaller vocabulary are the first ones
of a larger one, so every other size is cut from it.  The held-out text is encoded once, too: merges
apply in the order of their ranks, and a merge that needs a token comes later than the one that
makes it.  So encoding with fewer merges is the same as encoding with all of them, and then taking
apart each token that a later merge made.  `_Unmerging` does that to all held-out text at once, in
one pass from the last merge to the first, and passes through all sizes on its way.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from bpe_tokenizer import GPT2_SPLIT_PATTERN, BPETokenizer, Definition, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus.held_out import HELD_OUT_SHARE, CorpusReader, check_apart
from bpe_tokenizer_tools.evaluation import by_language
from bpe_tokenizer_tools.evaluation.by_language import ByLanguage
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.tables import Table
from bpe_tokenizer_tools.support.text import Printed, counted, percent, say
from bpe_tokenizer_tools.training.parity import Parity
from bpe_tokenizer_tools.training.superwords import Superwords

SIZES = (16_000, 24_000, 32_000, 48_000, 64_000, 96_000, 128_000, 192_000, 256_000)
MIN_GAIN = 0.03  # of the tokens, for each doubling; used if no budget is given


# -- The result ----------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One vocabulary size."""

    size: int  # number of tokens, including special ones
    tokens: int  # the length of the held-out text
    bytes_per_token: float  # of the held-out text
    gain: float | None  # share of tokens saved since the size before, per doubling; None at first
    unused: float  # the share of the vocabulary that the held-out text never uses
    embedding: int | None = None  # parameters, input and output; None without a width
    share: float | None = None  # of the budget that they take; None without a budget
    # bytes per token times the parameters left for the layers, as a share of the best of all sizes;
    # None without a budget, 0 where nothing is left
    worth: float | None = None


@dataclass(frozen=True)
class Recommendation:
    """A size, and why, in a sentence with figures."""

    size: int  # number of tokens, including special ones
    rule: str  # "worth" with a budget, "gain" without one, "only" if only one size was measured
    reason: str  # why

    def __str__(self) -> str:
        return f"{self.size:,}: {self.reason}"


@dataclass(frozen=True)
class Sweep(Printed):
    """The results of `sweep`; printed, a table and a recommendation."""

    points: Sequence[Point]  # one for each size, the smallest first
    recommendation: Recommendation  # the size to take
    notes: Sequence[str]  # other facts, such as a training that ended early
    held_out_bytes: int  # size of the held-out text, normalized
    held_out_documents: int  # how many there were; 0 if unknown
    seconds: Mapping[str, float]  # step -> how long it took
    settings: Mapping[str, Any]  # width, parameters, tied and min_gain, as given
    largest: BPETokenizer = field(repr=False)  # the tokenizer that all others are cut from
    languages: ByLanguage | None = None  # with parity: what each language pays, with and without it
    plain: BPETokenizer | None = field(default=None, repr=False)  # the largest one without parity

    def tokenizer(self, size: int) -> BPETokenizer:
        """Return the tokenizer of a size, measured or not; ValueError if there can be none."""
        return self.largest.with_vocab_size(size)

    def table(self) -> Table:
        """Return the points as a table, shares in percent."""
        columns: dict[str, list[Any]] = {
            "size": [point.size for point in self.points],
            "bytes per token": [point.bytes_per_token for point in self.points],
            "tokens": [point.tokens for point in self.points],
            "fewer per doubling": [percent(point.gain) for point in self.points],
            "unused": [percent(point.unused) for point in self.points],
            "embedding": [point.embedding for point in self.points],
            "of budget": [percent(point.share) for point in self.points],
            "worth": [percent(point.worth) for point in self.points],
        }
        for name in ("embedding", "of budget", "worth"):
            if not any(columns[name]):
                del columns[name]
        title = f"{self.held_out_bytes:,} bytes of held-out text"
        if self.held_out_documents:
            title += f" in {counted(self.held_out_documents, 'document')}"
        return Table(list(columns), list(zip(*columns.values())), title)

    def tables(self) -> list[Table]:
        """Return the points, and with parity each language's fertility."""
        return [self.table(), *([self.languages.table()] if self.languages else [])]

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.tables()), self._said()])

    def print(self) -> None:
        """Print the result; with rich installed, tables in a terminal are drawn by rich."""
        for table in self.tables():
            table.print()
            print()
        say(self._said())

    def _said(self) -> str:
        lines = [f"Recommended: {self.recommendation}."]
        lines += [f"Note: {note}." for note in self.notes]
        spent = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in self.seconds.items())
        return "\n".join([*lines, f"Took: {spent}."])

    def to_json(self) -> dict[str, Any]:
        """Return everything but the tokenizer as plain data."""
        return {
            "points": [dataclasses.asdict(point) for point in self.points],
            "recommendation": dataclasses.asdict(self.recommendation),
            "notes": list(self.notes),
            "held_out_bytes": self.held_out_bytes,
            "held_out_documents": self.held_out_documents,
            "seconds": dict(self.seconds),
            "settings": dict(self.settings),
            "fingerprint": self.largest.fingerprint,
            **({"languages": self.languages.to_json()} if self.languages else {}),
        }

    def to_csv(self) -> str:
        """Return the points as CSV, shares from 0 to 1."""
        names = [each.name for each in dataclasses.fields(Point)]
        more = self.languages.columns() if self.languages else {}
        rows = zip(map(dataclasses.astuple, self.points), *more.values())
        return Table([*names, *more], [[*point, *values] for point, *values in rows]).to_csv()

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw compression by size, and what decided, to a .png or .svg file."""
        with outputs.figure(path, 8, 9.6 if self.languages else 6.4) as figure:
            _plot(self, figure)


# -- The sweep -----------------------------------------------------------------


def sweep(
    source: Any = None,
    held_out: Any = None,
    sizes: Iterable[int] = SIZES,
    *,
    parity: Any = None,
    superwords: Any = None,
    width: int | None = None,
    parameters: int | None = None,
    tied: bool = True,
    min_gain: float = MIN_GAIN,
    held_out_share: float = HELD_OUT_SHARE,
    split_pattern: str = GPT2_SPLIT_PATTERN,
    normalizer: str | None = "NFC",
    special_tokens: Any = None,
    min_frequency: int = 2,
    max_token_length: int | None = None,
    num_workers: int | None = None,
    text_field: str = "text",
    verbose: bool = False,
) -> Sweep:
    """Measure vocabulary sizes on held-out text, and recommend one.

    It costs one training, at the largest size, and one encoding of the distinct
    pre-tokens of the held-out text.

    With a width and a budget of parameters, the recommended size has the most bytes per token times
    parameters left for the layers: a larger vocabulary pays off as long as it saves a greater share
    of the tokens than it takes of the layers.  Without them, it is the smallest size after which no
    size saves `min_gain` of the tokens for each doubling.

    Args:
        source: a corpus, as for `count_pretokens`; its `PretokenCounts`; or a tokenizer
            that is trained already.
        held_out: text that is not in the corpus, as for `count_pretokens`, or its
            `PretokenCounts`.  None holds out some of the corpus's documents, chosen by
            their content; special tokens separate the documents of a text file.  Of a corpus
            that is one document, some lines are held out, and a note says so.
        sizes: vocabulary sizes, including the 256 bytes and the special tokens.
        parity: a corpus for each language, instead of a source, or a `Parity`, as for
            `BPETokenizer.train`.  There are two trainings then, with parity and without, and the
            result compares what each language pays.  `held_out` maps languages to texts.
        superwords: as for `BPETokenizer.train`, with a number as transition, the same for all
            sizes.  The corpus is read twice; held-out documents taken from it stay in memory, and
            the rest is written to a temporary file.  Counts must be a `SuperwordCounts`.
        width: the model's width (d_model), for the parameters of its embeddings.
        parameters: the budget: parameters of the whole model, embeddings included.
        tied: whether one table serves as input and output embedding.
        min_gain: see above.
        held_out_share: the share of documents (or lines) to hold out, if `held_out` is None.
        split_pattern, normalizer: as for `BPETokenizer`; counts and tokenizers bring their own.
        special_tokens: as for `BPETokenizer.train`, like all that follow; a trained tokenizer has
            its own.

    Raises:
        ValueError: a size is too small, there is no held-out text, or the budget is too
            small for the embeddings.
        FileNotFoundError, FileFormatError, ImportError: see `count_pretokens`.

    >>> text = ["to be or not to be"] * 9 + ["that is the question"] * 9
    >>> result = sweep(text, "to be is the question", sizes=[258, 280], min_frequency=1)
    >>> [(point.size, point.tokens) for point in result.points]
    [(258, 19), (280, 5)]
    """
    wanted = _checked_sizes(sizes)
    model = _Model(width, parameters, tied, min_gain)
    if (source is None) == (parity is None):
        raise TypeError("sweep() takes either a source or parity=...")
    if parity is not None and superwords is not None:
        raise ValueError("superwords can't be combined with parity; leave one of them out")
    times = {"": time.perf_counter()}
    tokenizer = source if isinstance(source, BPETokenizer) else None
    if tokenizer is None:
        if isinstance(source, PretokenCounts):
            split_pattern, normalizer = source.split_pattern, source.normalizer
        tokenizer = BPETokenizer(split_pattern, normalizer=normalizer)
    elif special_tokens:
        raise ValueError("special_tokens are for a corpus; this tokenizer already has its own")
    if tokenizer.components is not None:
        raise ValueError("only byte-level BPE with one split pattern can be cut down")
    reader = CorpusReader(tokenizer, special_tokens, num_workers, text_field, verbose)
    how = {
        "vocab_size": wanted[-1],
        "min_frequency": min_frequency,
        "special_tokens": special_tokens,
        "max_token_length": max_token_length,
        "verbose": verbose,
    }
    if parity is not None:
        return _with_parity(parity, held_out, held_out_share, wanted, model, tokenizer, reader, how)
    check_apart(source, held_out)
    if superwords is not None:
        reading = num_workers, text_field, verbose
        how |= {"superwords": superwords, "num_workers": num_workers, "text_field": text_field}
        how |= {"counts" if isinstance(source, PretokenCounts) else "corpus": source}
        return _with_superwords(held_out, held_out_share, wanted, model, tokenizer, reading, how)
    given = None if source is tokenizer else source
    counts, seen = reader.read(given, held_out, held_out_share)
    times["counting"] = time.perf_counter()
    if counts is not None:
        tokenizer.train(counts=counts, **how)
        times[f"one training to {tokenizer.vocab_size:,} tokens"] = time.perf_counter()
    reached, notes = _within_reach(wanted, tokenizer)
    return _measured(tokenizer, seen, (reached, [*reader.notes, *notes]), model, times)


def _measured(
    tokenizer: BPETokenizer,
    seen: PretokenCounts,
    within_reach: tuple[list[int], list[str]],
    model: _Model,
    times: dict[str, float],
    languages: Callable[[Sequence[int]], ByLanguage] | None = None,
    plain: BPETokenizer | None = None,
) -> Sweep:
    """Measure a trained tokenizer at all sizes; `times` has the time when each step ended."""
    reached, notes = within_reach
    points = _points(tokenizer, seen, reached, model)
    by_language = languages(reached) if languages else None
    times[f"measuring {counted(len(points), 'size')}"] = time.perf_counter()
    return Sweep(
        points,
        _recommend(points, model),
        notes,
        sum(len(pretoken) * count for pretoken, count in seen.items()),
        seen.documents,
        {what: at - last for (what, at), last in zip([*times.items()][1:], times.values())},
        dataclasses.asdict(model),
        tokenizer,
        by_language,
        plain,
    )


def _with_parity(
    given: Any,
    held_out: Any,
    share: float,
    wanted: Sequence[int],
    model: _Model,
    tokenizer: BPETokenizer,
    reader: CorpusReader,
    how: Mapping[str, Any],
) -> Sweep:
    """Train with parity and without on the same counts, and measure each language."""
    times = {"": time.perf_counter()}
    parity = Parity.of(given)
    parity.check()
    parity, seen = by_language.read(reader, parity, held_out, share)
    times["counting"] = time.perf_counter()
    pattern = cast("str", tokenizer.split_pattern)
    plain = BPETokenizer(pattern, normalizer=tokenizer.normalizer)
    plain.train(counts=_total(parity.corpora), **how)
    tokenizer.train(parity=parity, **how)
    times[f"two trainings to {tokenizer.vocab_size:,} tokens"] = time.perf_counter()
    least = min(plain, tokenizer, key=lambda each: each.vocab_size)
    reached, notes = _within_reach(wanted, least)
    within_reach = reached, [*reader.notes, *notes]
    both = {"plain": plain, "parity": tokenizer}

    def languages(sizes: Sequence[int]) -> ByLanguage:
        return by_language.measure(both, seen, sizes, _tokens_at)

    return _measured(tokenizer, _total(seen), within_reach, model, times, languages, plain)


def _with_superwords(
    held_out: Any,
    share: float,
    wanted: Sequence[int],
    model: _Model,
    tokenizer: BPETokenizer,
    reading: tuple[int | None, str, bool],
    how: dict[str, Any],
) -> Sweep:
    """Train on text, because superwords need more than counts; then read the held-out text."""
    if how.get("corpus") is tokenizer:
        raise ValueError("superwords are for a corpus; this tokenizer is already trained")
    transition = Superwords.of(how["superwords"]).transition
    if transition == "auto":
        problem = "with transition='auto', a smaller vocabulary isn't part of a larger one"
        raise ValueError(f"{problem}; pass a number, or train each size and use `compare`")
    times = {"": time.perf_counter()}
    reader = CorpusReader(tokenizer, how["special_tokens"], *reading)
    if held_out is None:
        source = how.get("corpus", how.get("counts"))
        how["corpus"], held_out = reader.set_apart(source, share)
    tokenizer.train(**how)
    if reader.notes:  # the pieces are parts of one document
        held_out = ["".join(held_out)]
    if isinstance(held_out, PretokenCounts):
        held_out.check_made_by(cast("str", tokenizer.split_pattern), tokenizer.normalizer)
    times[f"one training to {tokenizer.vocab_size:,} tokens"] = time.perf_counter()
    _, seen = CorpusReader(tokenizer, None, *reading).read(None, held_out, share)
    times["counting held-out text"] = time.perf_counter()
    reached, notes = _within_reach(wanted, tokenizer)
    notes = [*reader.notes, *notes]
    if reached[0] <= int(transition):
        notes.append(f"no size up to {transition:,}, the transition, has superwords")
    return _measured(tokenizer, seen, (reached, notes), model, times)


def _total(counts: Mapping[str, PretokenCounts]) -> PretokenCounts:
    return functools.reduce(lambda a, b: a + b, counts.values())


def _tokens_at(
    tokenizer: BPETokenizer, seen: Mapping[bytes, int], sizes: Sequence[int]
) -> list[int]:
    """Return how many tokens a text has at each size."""
    return [tokens for tokens, _ in _Unmerging(tokenizer).count(seen, sizes)]


def _checked_sizes(sizes: Iterable[int]) -> list[int]:
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Iterable):
        raise TypeError(f"sizes must be a list of ints, got {core.shorten(sizes)}")
    checked = list(sizes)
    for size in checked:
        if size is None:
            raise TypeError("a vocabulary size must be an int, got None")
        core.check_size("a vocabulary size", size, 256)
    if not checked:
        raise ValueError("there are no vocabulary sizes to measure")
    return sorted(set(checked))


def _within_reach(sizes: Sequence[int], tokenizer: BPETokenizer) -> tuple[list[int], list[str]]:
    """Return the sizes that the tokenizer reaches, and a note if training ended before others."""
    largest = tokenizer.vocab_size
    missed = [size for size in sizes if size > largest]
    if not missed:
        return list(sizes), []
    names = ", ".join(f"{size:,}" for size in missed)
    report = tokenizer.training_report
    why = f"training ended at {largest:,} tokens ({report.stopped})" if report else ""
    note = f"{why or f'the tokenizer has {largest:,} tokens'}: measured that instead of {names}"
    return sorted({*(size for size in sizes if size <= largest), largest}), [note]


# -- Tokens at every size ------------------------------------------------------

_WHOLE = r"(?s:.+)"  # the text is already cut


class _Unmerging:
    """The tokens of a text at each vocabulary size, from those at the largest.

    A token that no merge makes, or several, or that is made of such a token, doesn't show
    which merges made it.  Trained vocabularies hardly ever have one; pre-tokens that give
    one are encoded again at each size.
    """

    def __init__(self, tokenizer: BPETokenizer) -> None:
        self._tokenizer = tokenizer
        definition = tokenizer.definition
        token = {id_: token for token, id_ in definition.vocab.items()}
        self._order: list[tuple[int, int, int]] = []  # (id, left, right), as they were made
        made = {id_ for id_, content in token.items() if len(content) == 1}
        self._unclear: set[int] = set(token).difference(made)  # those no merge makes
        twice = set()
        for left, right in definition.merges:
            id_ = definition.vocab[token[left] + token[right]]
            if left not in made or right not in made:
                tokenizer.with_vocab_size(tokenizer.vocab_size)  # raises with the reason
            if id_ in made:
                twice.add(id_)
            else:
                made.add(id_)
                self._unclear.discard(id_)
                self._order.append((id_, left, right))
        self._unclear |= twice
        for id_, left, right in self._order:
            if left in self._unclear or right in self._unclear:
                self._unclear.add(id_)

    def count(self, seen: Mapping[bytes, int], sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Return for each size how many tokens a text has, and how many different ones.

        `seen` has the counts of its pre-tokens; `sizes` are in ascending order.
        """
        weights, unclear = self._encode(seen)
        total, used = sum(weights.values()), len(weights)
        found = []
        at = len(self._order)
        for size in reversed(sizes):
            room = size - 256 - len(self._tokenizer.added_tokens)
            for id_, left, right in reversed(self._order[room:at]):
                weight = weights.pop(id_, 0)
                if weight:
                    used += (left not in weights) + (right not in weights and right != left) - 1
                    weights[left] += weight
                    weights[right] += weight
                    total += weight
            at = min(at, room)
            ids = self._encode_at(size, unclear)
            found.append((total + sum(ids.values()), used + len(ids.keys() - weights.keys())))
        return found[::-1]

    def _encode(self, seen: Mapping[bytes, int]) -> tuple[Counter[int], dict[str, int]]:
        """Return how often each token occurs, and the pre-tokens to encode again."""
        definition = self._tokenizer.definition
        whole = definition.vocab if definition.ignore_merges else {}
        encode = _encoder(dataclasses.replace(definition, ignore_merges=False))

        def is_unclear(text: str) -> bool:
            ids, by_itself = encode([text]), whole.get(text.encode())
            otherwise = by_itself is not None and ids != [by_itself]
            return otherwise or not self._unclear.isdisjoint(ids)

        alike: dict[int, list[str]] = {}  # equally frequent pre-tokens are encoded in one call
        for pretoken, count in seen.items():
            if count:
                alike.setdefault(count, []).append(pretoken.decode())
        weights: Counter[int] = Counter()
        again: dict[str, int] = {}
        for count, texts in alike.items():
            ids = encode(texts)
            if whole or not self._unclear.isdisjoint(ids):
                again.update(dict.fromkeys(filter(is_unclear, texts), count))
                ids = encode([text for text in texts if text not in again])
            for id_, n in Counter(ids).items():
                weights[id_] += n * count
        return weights, again

    def _encode_at(self, size: int, pretokens: Mapping[str, int]) -> Counter[int]:
        ids: Counter[int] = Counter()
        if pretokens:
            encode = _encoder(self._tokenizer.with_vocab_size(size).definition)
            for text, count in pretokens.items():
                for id_ in encode([text]):
                    ids[id_] += count
        return ids


def _encoder(definition: Definition) -> Callable[[Sequence[str]], list[int]]:
    """Return a function that encodes pre-tokens, one after another."""
    bare = dataclasses.replace(definition, split_pattern=_WHOLE, normalizer=None, added=())
    encoder: Any = core.engine().encoder(bare)
    encoder._split = list  # they are already cut
    return cast("Callable[[Sequence[str]], list[int]]", encoder.encode)


# -- What a size is worth ------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    """The model that a vocabulary is for; see `sweep`."""

    width: int | None
    parameters: int | None
    tied: bool
    min_gain: float

    def __post_init__(self) -> None:
        core.check_size("width", self.width, 1)
        core.check_size("parameters", self.parameters, 1)
        if self.parameters is not None and self.width is None:
            raise ValueError("a budget of parameters needs the width of the model, too")
        if not 0 <= self.min_gain < 1:
            raise ValueError(f"min_gain must be from 0 to 1, got {self.min_gain!r}")

    def embedding(self, size: int) -> int | None:
        return None if self.width is None else size * self.width * (1 if self.tied else 2)

    def left(self, size: int) -> int:
        """Return what a budget leaves for the layers; it may be negative."""
        return (self.parameters or 0) - (self.embedding(size) or 0)


def _points(
    tokenizer: BPETokenizer, seen: PretokenCounts, sizes: Sequence[int], model: _Model
) -> list[Point]:
    smallest = 256 + len(tokenizer.added_tokens)
    if sizes[0] < smallest:
        raise ValueError(
            f"a vocabulary of {sizes[0]} tokens is too small: the 256 bytes and the special tokens "
            f"need {smallest}"
        )
    n_bytes = sum(len(pretoken) * count for pretoken, count in seen.items())
    found = _Unmerging(tokenizer).count(seen, sizes)
    worths = [max(0, model.left(size)) * n_bytes / n for size, (n, _) in zip(sizes, found)]
    if model.parameters is not None and not max(worths):
        raise ValueError(
            f"the budget of {model.parameters:,} parameters is too small for the model: an "
            f"embedding of {sizes[0]:,} tokens and width {model.width} has "
            f"{model.embedding(sizes[0]):,}; use smaller sizes, or a narrower model"
        )
    points: list[Point] = []
    for size, (n_tokens, used), worth in zip(sizes, found, worths):
        gain, embedding = None, model.embedding(size)
        if points:
            doublings = math.log2(size / points[-1].size)
            gain = float(1 - (n_tokens / points[-1].tokens) ** (1 / doublings))
        point = Point(
            size,
            n_tokens,
            n_bytes / n_tokens,
            gain,
            1 - used / (size - len(tokenizer.added_tokens)),
            embedding,
            embedding / model.parameters if embedding and model.parameters else None,
            worth / max(worths) if model.parameters else None,
        )
        points.append(point)
    return points


_CLOSE = 0.99  # of the best worth: sizes this close differ less than two trainings of one model do


def _recommend(points: Sequence[Point], model: _Model) -> Recommendation:
    if len(points) == 1:
        return Recommendation(points[0].size, "only", "the only size that could be measured")
    if model.parameters is None:
        return _by_gain(points, model)
    best = max(range(len(points)), key=lambda i: (points[i].worth, -i))
    return Recommendation(points[best].size, "worth", _why_worth(points, best, model))


def _why_worth(points: Sequence[Point], best: int, model: _Model) -> str:
    here = points[best]
    left = model.left(here.size)
    said = [
        f"the embeddings take {here.embedding:,} of {model.parameters:,} parameters "
        f"({here.share:.1%}) and leave {left:,} for the layers"
    ]
    for there in points[best + 1 : best + 2]:
        saved, taken = 1 - there.tokens / here.tokens, 1 - model.left(there.size) / left
        costs = f"save {saved:.1%} of the tokens, but take {taken:.1%} of the layers"
        said.append(f"{there.size:,} would {costs if taken < 1 else 'leave nothing'}")
    for there in points[max(0, best - 1) : best]:
        saved, taken = 1 - here.tokens / there.tokens, 1 - left / model.left(there.size)
        said.append(
            f"against {there.size:,} it saves {saved:.1%} of the tokens and takes {taken:.1%} of "
            "the layers"
        )
    close = [point for point in points if (point.worth or 0) >= _CLOSE and point is not here]
    if close:
        names = " and ".join(f"{point.size:,}" for point in close)
        said.append(f"{names} would do nearly as well, within {1 - _CLOSE:.0%}")
    return "; ".join([*said, *_at_an_end(points, best)])


def _by_gain(points: Sequence[Point], model: _Model) -> Recommendation:
    gains = [point.gain or 0.0 for point in points]
    best = max((i for i in range(1, len(points)) if gains[i] >= model.min_gain), default=0)
    said = []
    if best:
        before = points[best - 1].size
        said.append(f"from {before:,} to it, each doubling saves {gains[best]:.1%} of the tokens")
    if best + 1 < len(points):
        after = points[best + 1].size
        said.append(
            f"to {after:,}, a doubling saves {gains[best + 1]:.1%}, and no later step saves the "
            f"{model.min_gain:.1%} that a doubling should"
        )
    said += _at_an_end(points, best)
    said.append("give a width and a budget of parameters to weigh this against the embeddings")
    return Recommendation(points[best].size, "gain", "; ".join(said))


def _at_an_end(points: Sequence[Point], best: int) -> list[str]:
    ends = {0: "smallest", len(points) - 1: "largest"}
    if best not in ends:
        return []
    other = "smaller" if best == 0 else "larger"
    return [f"it is the {ends[best]} size measured, so a {other} one may be better still"]


# -- Pictures ------------------------------------------------------

_BLUE, _ORANGE, _GRAY = "#1f5fa8", "#d1571b", "#666666"


def _plot(result: Sweep, figure: Any) -> None:
    ratios = (3, 2, 3) if result.languages else (3, 2)
    above, below, *last = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios)
    if result.languages:
        result.languages.draw(last[0])
    sizes = [point.size for point in result.points]
    best = sizes.index(result.recommendation.size)
    _draw(above, sizes, [point.bytes_per_token for point in result.points], best, "{:.2f}")
    above.set_ylabel("bytes per token")
    above.set_title(f"Vocabulary size and compression: {sizes[best]:,} recommended", loc="left")
    if result.recommendation.rule == "worth":
        worth = [100 * (point.worth or 0) for point in result.points]
        _draw(below, sizes, worth, best, "{:.0f}")
        below.set_ylabel("bytes per token ×\nlayers' parameters, % of best")
    else:
        gains = [100 * (point.gain or math.nan) for point in result.points]
        _draw(below, sizes, gains, best, "{:.1f}")
        below.axhline(100 * result.settings["min_gain"], color=_GRAY, linewidth=1, linestyle="--")
        below.set_ylabel("fewer tokens\nper doubling, %")
    lowest = last[0] if last else below
    lowest.set_xscale("log", base=2)
    lowest.set_xticks(sizes, [_short(size) for size in sizes])
    lowest.minorticks_off()
    lowest.set_xlabel("vocabulary size (tokens, log scale)")


def _draw(axes: Any, sizes: list[int], values: list[float], best: int, form: str) -> None:
    axes.plot(sizes, values, marker="o", markersize=4, color=_BLUE)
    axes.plot(sizes[best], values[best], marker="o", markersize=10, color=_ORANGE, zorder=3)
    for size, value in zip(sizes, values):
        if math.isfinite(value):
            above = {"xytext": (0, 9), "textcoords": "offset points", "ha": "center"}
            axes.annotate(form.format(value), (size, value), **above, fontsize=8, color=_GRAY)
    axes.margins(y=0.18)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _short(size: int) -> str:
    return f"{size / 1000:g}k" if size % 100 == 0 and size >= 1000 else f"{size:,}"
