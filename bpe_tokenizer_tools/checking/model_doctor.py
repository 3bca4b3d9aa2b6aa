"""Which tokens has a model never learned?  Its embeddings alone show that.

    report = diagnose("model/", tokenizer)
    print(report)

Rows of an embedding whose ids no text gives are known to be untrained: the reference.  Tokens
that look like them, by norm or by direction, likely are, too.  First, it measures how well both
indicators work: the share of pairs of a reference row and another row that they put in the right
order.  An indicator near one half is not used.  docs/doctor.md explains more.

Source: Sander Land and Max Bartolo, "Fishing for Magikarp: Automatically Detecting Under-trained
Tokens in Large Language Models" (2024, arXiv 2405.05417).  They then ask the model to repeat each
token; this module doesn't.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.backends.safetensors import Tensor, tensors
from bpe_tokenizer_tools.checking import lint
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.tables import Table
from bpe_tokenizer_tools.support.text import Printed, counted, percent, runs_of

numpy: Any = core.import_optional("numpy", "reading embeddings", "numpy")

THRESHOLD = 0.5  # halfway from the median of the other tokens to that of reference rows
# The share of pairs that an indicator must put in the right order.  It can't be all of them:
# some of the other tokens are untrained, too, and of pairs with those, half are in order.
_SEPARATES = 0.8
_ENOUGH = 8  # rows of a group; chance puts 80% of their pairs in order once in a thousand times

# -- The report ---------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Rows of a table whose ids no text gives."""

    name: str  # "padded rows", "impossible bytes" or "unreachable tokens"
    rows: int  # how many there are
    norm: float  # the median of their norms
    separation: float | None  # how well they can be told from others, 0.5 to 1; None: too few
    used: bool  # whether they are part of the reference


@dataclass(frozen=True)
class Indicator:
    """A number that distinguishes reference rows from others."""

    name: str  # "norm" or "cosine"
    reference: float  # its median over the reference rows
    typical: float  # its median over other tokens, except bytes and parts of characters
    limit: float  # halfway, or at the threshold; beyond it, tokens look under-trained
    separation: float | None  # share of pairs put in the right order; None without reference rows
    used: bool  # whether that share is enough


@dataclass(frozen=True)
class Embedding:
    """One table of a model, and what was found in it."""

    role: str  # "input", "output", or "tied" if it is both
    name: str  # of the tensor
    file: str  # the file that has it
    dtype: str  # of its values
    rows: int  # number of rows
    columns: int  # the width of the model
    groups: Sequence[Group]  # the rows known to be untrained
    indicators: Sequence[Indicator]  # what tells them from others
    zero_rows: int  # how many rows are nothing but zeros
    broken_rows: int  # how many contain a value that isn't finite
    values: Mapping[str, Any] = field(repr=False)  # "norm", "cosine", "score": one a row

    @property
    def tells(self) -> bool:
        """Whether any indicator distinguishes trained from untrained tokens."""
        return any(indicator.used for indicator in self.indicators)


@dataclass(frozen=True)
class Suspect:
    """A token, and its figures."""

    id: int  # its id
    token: str  # its text, or as vocabulary files write it if it is part of a character
    kind: str  # text, byte, fragment (of characters), added, special, impossible byte, unreachable
    score: float | None  # 0: typical; 1: like reference rows; None: unknown; mean of two tables
    norm: Mapping[str, float]  # of its row, by the role of the table
    cosine: Mapping[str, float]  # with the mean reference row, both minus the mean of all tokens
    scores: Mapping[str, float]  # by the role of the table


@dataclass(frozen=True)
class Diagnosis(Printed):
    """The results of `diagnose`; printing it shows tables and sentences."""

    embeddings: Sequence[Embedding]  # the input table, and the output table if it is another
    tokens: int  # how many tokens there are, without special ones and reference rows
    parts: int  # how many of these are bytes and parts of characters
    under_trained: Sequence[Suspect]  # tokens that look under-trained, the most suspicious first
    special: Sequence[Suspect]  # all special tokens
    unreachable: Mapping[str, Sequence[Suspect]]  # tokens that no text gives, by obstacle
    padded: Sequence[int]  # the ids that have a row but no token
    threshold: float  # of the score
    notes: Sequence[str]  # other facts
    vocabulary: _Vocabulary = field(repr=False)

    @property
    def tells(self) -> bool:
        """Whether trained and untrained tokens can be told apart at all."""
        return any(embedding.tells for embedding in self.embeddings)

    def token(self, id_: int) -> Suspect:
        """Return the figures of any token; KeyError if there is no such id."""
        return _suspect(self.vocabulary, self.embeddings, id_)

    def show(self, limit: int = 20) -> str:
        """Return the report as text, with at most `limit` tokens in each list."""
        return "\n\n".join(_sections(self, limit))

    def __str__(self) -> str:
        return self.show()

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, without tokens that look trained."""
        bare = dataclasses.replace(self, vocabulary=None)  # type: ignore[arg-type]
        return {"tells": self.tells, **dataclasses.asdict(bare, dict_factory=_told)}

    def to_csv(self) -> str:
        """Return a line for every token, as vocabulary files write it, with all its figures."""
        roles = [embedding.role for embedding in self.embeddings]
        figures = ("norm", "cosine", "scores")
        columns = ["id", "token", "kind", "score", "under_trained"]
        columns += [f"{name.rstrip('s')}_{role}" for role in roles for name in figures]
        listed = {suspect.id for suspect in self.under_trained}
        written = {id_: token for token, id_ in self.vocabulary.tokenizer.get_vocab().items()}
        rows = [
            [each.id, written[each.id], each.kind, each.score, int(each.id in listed)]
            + [getattr(each, name).get(role) for role in roles for name in figures]
            for each in map(self.token, self.vocabulary.ids)
        ]
        return Table(columns, rows).to_csv()

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw norm against cosine of every row, as PNG or SVG."""
        count = len(self.embeddings)
        with outputs.figure(path, 6.4 * count, 5) as figure:
            places = figure.subplots(1, count, squeeze=False)[0]
            for axes, embedding in zip(places, self.embeddings):
                _draw(axes, self, embedding)


def _told(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Leave out fields of a report that aren't plain data."""
    return {name: value for name, value in pairs if name not in ("values", "vocabulary")}


# -- The report as text -------------------------------------------------------


_PARTS = ("byte", "fragment")


def _sections(report: Diagnosis, limit: int) -> Iterator[str]:
    for embedding in report.embeddings:
        yield _section_of_table(embedding)
    yield _section_of_suspects(report, limit)
    if report.special:
        yield _section_of_special(report, limit)
    for problem, suspects in report.unreachable.items():
        if suspects:
            title = f"{counted(len(suspects), 'token')} that no text gives: {problem}"
            yield _listed(suspects, report, limit, title)
    if report.notes:
        yield "\n".join(f"Note: {note}." for note in report.notes)


def _titled(embedding: Embedding) -> str:
    """Return a table's name and what it is for."""
    role = {"tied": "input and output"}.get(embedding.role, embedding.role)
    return f"{embedding.name} ({role} embedding)"


def _section_of_table(embedding: Embedding) -> str:
    title = (
        f"{_titled(embedding)}: {embedding.rows:,} rows of {embedding.columns:,} "
        f"{embedding.dtype}, in {embedding.file}"
    )
    groups = Table(
        ["reference rows", "rows", "median norm", "right pairs", "used"],
        [
            [group.name, group.rows, group.norm, percent(group.separation), group.used]
            for group in embedding.groups
        ],
    )
    sides = [
        f"{'<' if x.reference < x.typical else '>'} {x.limit:.3f}" for x in embedding.indicators
    ]
    indicators = Table(
        ["indicator", "reference", "typical", "looks untrained", "right pairs", "used"],
        [
            [each.name, each.reference, each.typical, side, percent(each.separation), each.used]
            for each, side in zip(embedding.indicators, sides)
        ],
    )
    parts = [title, *([str(groups)] if embedding.groups else []), str(indicators)]
    return "\n\n".join(parts)


def _section_of_suspects(report: Diagnosis, limit: int) -> str:
    if not report.tells:
        return (
            "Can't tell which tokens are under-trained: rows that no text uses look like all "
            "others here, by norm and by direction."
        )
    parts = [each for each in report.under_trained if each.kind in _PARTS]
    whole = [each for each in report.under_trained if each.kind not in _PARTS]
    title = f"{len(whole):,} of {report.tokens - report.parts:,} tokens of text look under-trained"
    text = _listed(whole, report, limit, title) if whole else title
    if parts:
        some = ", ".join(_shown(each, report) for each in parts[:limit])
        text += (
            f"\n\n{len(parts):,} of {report.parts:,} bytes and parts of characters do, too: "
            f"{some}{', ...' if len(parts) > limit else ''}"
        )
    return text


def _section_of_special(report: Diagnosis, limit: int) -> str:
    bad = [each for each in report.special if (each.score or 0) >= report.threshold]
    judged = f"{len(bad):,} of {len(report.special):,} special tokens look never trained"
    shown = sorted(report.special, key=lambda each: (-(each.score or 0), each.id))
    return _listed(shown, report, limit, judged if report.tells else "Special tokens")


def _listed(suspects: Sequence[Suspect], report: Diagnosis, limit: int, title: str) -> str:
    roles = [embedding.role for embedding in report.embeddings]
    suffix = {role: f" ({role})" if len(roles) > 1 else "" for role in roles}
    columns = ["id", "token", "kind", "score"]
    columns += [f"{name}{suffix[role]}" for role in roles for name in ("norm", "cosine")]
    if len(roles) > 1:
        columns += [f"trained as {role}" for role in roles]
    rows = [
        [str(each.id), _shown(each, report), each.kind, each.score]
        + [figures[role] for role in roles for figures in (each.norm, each.cosine)]
        + [_trained(each, role, report.threshold) for role in roles if len(roles) > 1]
        for each in suspects[:limit]
    ]
    more = f"\n... and {len(suspects) - limit:,} more" if len(suspects) > limit else ""
    return str(Table(columns, rows, title)) + more


def _trained(suspect: Suspect, role: str, threshold: float) -> bool | None:
    score = suspect.scores.get(role)
    return None if score is None else score < threshold


def _shown(suspect: Suspect, report: Diagnosis, limit: int = 40) -> str:
    """Show a token in quotes, so that its spaces can be seen; part of a character as bytes."""
    raw = report.vocabulary.raw(suspect.id)
    if raw is not None and suspect.kind in (*_PARTS, "impossible byte"):
        return repr(raw)
    token = suspect.token
    return repr(token if len(token) <= limit else token[: limit - 3] + "...")


# -- Rows that no text reaches ------------------------------------------------

_IMPOSSIBLE_BYTES = (0xC0, 0xC1, *range(0xF5, 0x100))  # none of them is in any UTF-8
_IN_THE_WAY = {
    "merges": "no merges make it",
    "normalizer": "normalization changes it",
    "pattern": "the split pattern always cuts it",
}


class _Vocabulary:
    """What a tokenizer says about each id."""

    def __init__(self, tokenizer: BPETokenizer) -> None:
        self.tokenizer = tokenizer
        self.ids = sorted(core.tokens(tokenizer))
        self.special = set(tokenizer.special_tokens.values())
        self._is_byte_level = lint.is_byte_level(tokenizer)
        vocab = tokenizer.definition.vocab
        written = lint.byte_tokens(tokenizer)
        names = [written[byte] for byte in _IMPOSSIBLE_BYTES] if written else []
        self.bytes = {vocab[name] for name in names if name in vocab} - self.special
        found = lint.unreached(tokenizer)
        self.unreachable: dict[str, list[int]] = {
            text: sorted(id_ for token in found[name] if (id_ := vocab[token]) not in self.bytes)
            for name, text in _IN_THE_WAY.items()
        }
        self._without_text = {id_ for ids in self.unreachable.values() for id_ in ids}

    def groups(self, rows: int) -> dict[str, list[int]]:
        """Return the rows of a table that no text reaches, by reason."""
        known = set(self.ids)
        return {
            "padded rows": [id_ for id_ in range(rows) if id_ not in known],
            "impossible bytes": sorted(self.bytes),
            "unreachable tokens": sorted(self._without_text - self.special),
        }

    def text(self, id_: int) -> str:
        if id_ in core.contents(self.tokenizer):
            return core.contents(self.tokenizer)[id_]
        return lint.readable(self.tokenizer, core.tokens(self.tokenizer)[id_])

    def kind(self, id_: int) -> str:
        """Say what a token is; see `Suspect`."""
        if id_ in self.special:
            return "special"
        if id_ in self.bytes:
            return "impossible byte"
        if id_ in self._without_text:
            return "unreachable"
        if id_ in core.contents(self.tokenizer):
            return "added"
        token, raw = core.tokens(self.tokenizer)[id_], self.raw(id_)
        if len(raw or b"") == 1 or (raw is None and lint.is_byte_token(token)):
            return "byte"
        is_text = raw is None or lint.text_of(token, self.tokenizer) is not None
        return "text" if is_text else "fragment"

    def raw(self, id_: int) -> bytes | None:
        """Return the bytes of a token; None if the vocabulary is one of characters."""
        token = core.tokens(self.tokenizer)[id_]
        if self.tokenizer.definition.components is None:
            return token
        return core.from_printable(token.decode()) if self._is_byte_level else None

    def typical(self) -> list[int]:
        """Return the ids that others are compared with: text, but not bytes, which are rare."""
        kinds = {id_: self.kind(id_) for id_ in self.ids}
        text = [id_ for id_, kind in kinds.items() if kind == "text"]
        known = ("special", "impossible byte", "unreachable")
        return text or [id_ for id_, kind in kinds.items() if kind not in known]


# -- Measures of a table ------------------------------------------------------
# Two passes over the rows.  The first takes norms and means.  The second compares each row
# with the mean of each group of reference rows, after subtracting the mean of all other
# tokens from both: the direction that all rows share says nothing.


@dataclass
class _Measures:
    """Figures of each row, and of the means of the groups."""

    norm: Any  # of each row
    around: Any  # the squared norm of each row minus the center
    dots: Any  # dot products of each row and each group's mean, both minus the center
    means: Any  # of the groups, minus the center


def _measure(tensor: Tensor, groups: Sequence[Sequence[int]], others: Sequence[int]) -> _Measures:
    rows, columns = tensor.shape
    label = numpy.full(rows, -1)
    for number, ids in enumerate([*groups, others]):
        label[numpy.asarray(ids, dtype=int)] = number
    norm = numpy.empty(rows)
    sums = numpy.zeros((len(groups) + 1, columns))
    counts = numpy.zeros(len(groups) + 1)
    for start, block in tensor.blocks():
        here = slice(start, start + len(block))
        norm[here] = numpy.sqrt(numpy.einsum("ij,ij->i", block, block, dtype=numpy.float64))
        finite = numpy.isfinite(norm[here])
        for number in range(len(sums)):
            chosen = finite & (label[here] == number)
            sums[number] += block[chosen].sum(0, dtype=numpy.float64)
            counts[number] += chosen.sum()
    means = sums / numpy.maximum(counts, 1)[:, None]
    center = means[-1]
    means = means[:-1] - center
    around, dots = numpy.empty(rows), numpy.empty((rows, len(groups)))
    for start, block in tensor.blocks():
        here = slice(start, start + len(block))
        with numpy.errstate(invalid="ignore"):
            block = block - center.astype(numpy.float32)
            around[here] = numpy.einsum("ij,ij->i", block, block, dtype=numpy.float64)
            dots[here] = block @ means.T.astype(numpy.float32)
    return _Measures(norm, around, dots, means)


def _cosines(measures: _Measures, groups: Sequence[Sequence[int]], used: Sequence[int]) -> Any:
    """Return the cosine of each row with the mean of the other rows of some groups."""
    sizes = numpy.array([len(groups[number]) for number in used], dtype=float)
    total = sizes.sum()
    if not total:
        return numpy.full(len(measures.norm), numpy.nan)
    mean = sizes @ measures.means[list(used)] / total
    dots = measures.dots[:, list(used)] @ sizes / total
    length = numpy.full(len(dots), mean @ mean)
    inside = numpy.array(sorted(id_ for number in used for id_ in groups[number]), dtype=int)
    if total > 1:
        dot, own = dots[inside], measures.around[inside]
        rest = total - 1
        dots[inside] = (total * dot - own) / rest
        length[inside] = (total**2 * (mean @ mean) - 2 * total * dot + own) / rest**2
    with numpy.errstate(invalid="ignore", divide="ignore"):
        return dots / numpy.sqrt(numpy.maximum(length, 0) * measures.around)


def _separation(reference: Any, others: Any) -> float:
    """Return the share of pairs in which the reference is smaller; ties count half."""
    ordered = numpy.sort(others)
    left = numpy.searchsorted(ordered, reference, "left")
    right = numpy.searchsorted(ordered, reference, "right")
    return float(1 - (left + right).sum() / (2 * len(reference) * len(ordered)))


# -- Indicators ---------------------------------------------------------------


def _examine(role: str, tensor: Tensor, vocabulary: _Vocabulary, threshold: float) -> Embedding:
    rows, columns = tensor.shape
    named = vocabulary.groups(rows)
    others = vocabulary.typical()
    measures = _measure(tensor, list(named.values()), others)
    sound = numpy.isfinite(measures.norm)
    members = [[id_ for id_ in ids if sound[id_]] for ids in named.values()]
    rest = numpy.array([id_ for id_ in others if sound[id_]], dtype=int)
    if not len(rest):
        problem = "no token that text gives has a row of finite numbers"
        raise FileFormatError(tensor.path, tensor.name, problem)
    groups = [
        _group(name, number, members, rest, measures)
        for number, name in enumerate(named)
        if members[number]
    ]
    kept = {group.name for group in groups if group.used}
    used = [number for number, name in enumerate(named) if name in kept]
    known = used or [number for number, ids in enumerate(members) if len(ids) >= _ENOUGH]
    cosine = numpy.nan_to_num(_cosines(measures, members, known))
    reference = numpy.array([id_ for number in known for id_ in members[number]], dtype=int)
    values = {"norm": measures.norm, "cosine": cosine}
    if len(reference):
        indicators = [
            _indicator(name, value[reference], value[rest], threshold, bool(used))
            for name, value in values.items()
        ]
    else:  # no row is known to be untrained, but a row of zeros surely is
        typical = float(numpy.median(measures.norm[rest]))
        limit = typical * (1 - threshold)
        indicators = [Indicator("norm", 0.0, typical, limit, None, typical > 0)]
    score = _scores(indicators, values)
    facts = role, tensor.name, tensor.path.name, tensor.dtype, rows, columns
    counts = int((measures.norm == 0).sum()), int((~sound).sum())
    return Embedding(*facts, groups, indicators, *counts, {**values, "score": score})


def _group(
    name: str, number: int, members: Sequence[Sequence[int]], others: Any, measures: _Measures
) -> Group:
    """Measure how well the rows of a group differ from other tokens."""
    own = numpy.asarray(members[number], dtype=int)
    norm = measures.norm
    separation = None
    if len(own) >= _ENOUGH:
        cosine = numpy.nan_to_num(_cosines(measures, members, [number]))
        by_norm = _separation(norm[own], norm[others])
        separation = max(by_norm, 1 - by_norm, _separation(-cosine[own], -cosine[others]))
    used = separation is not None and separation >= _SEPARATES
    return Group(name, len(own), float(numpy.median(norm[own])), separation, used)


def _indicator(
    name: str, reference: Any, others: Any, threshold: float, is_known: bool
) -> Indicator:
    """Measure how good an indicator is, from its values for reference rows and other tokens.

    A cosine must be greater in reference rows.  `is_known`: whether these differ at all.
    """
    low, high = float(numpy.median(others)), float(numpy.median(reference))
    sign = -1 if name == "cosine" or high > low else 1
    separation = _separation(sign * reference, sign * others)
    used = is_known and separation >= _SEPARATES and low != high
    return Indicator(name, high, low, low + threshold * (high - low), separation, used)


def _scores(indicators: Sequence[Indicator], values: Mapping[str, Any]) -> Any:
    """Return where rows are from typical (0) to reference (1): the geometric mean of indicators."""
    shares = [
        numpy.clip((values[each.name] - each.typical) / (each.reference - each.typical), 0, 1)
        for each in indicators
        if each.used
    ]
    if not shares:
        return numpy.full(len(values["norm"]), numpy.nan)
    score = numpy.prod(shares, axis=0) ** (1 / len(shares))
    return numpy.where(numpy.isfinite(values["norm"]), score, numpy.nan)


# -- The diagnosis ------------------------------------------------------------

_INPUT = (
    r"(.*\.)?(embed_tokens|wte|tok_embeddings|word_embeddings|embed_in|embeddings|token_embedding"
    r"|tok_emb|shared)\.weight"
)
_OUTPUT = r"(.*\.)?(lm_head|embed_out|output_layer)\.weight|output\.weight"


def diagnose(
    model: str | os.PathLike[str],
    tokenizer: BPETokenizer,
    *,
    input_tensor: str | None = None,
    output_tensor: str | None = None,
    threshold: float = THRESHOLD,
) -> Diagnosis:
    """List the tokens of a model that look under-trained, and those no text gives.

    `model` is a .safetensors file, model.safetensors.index.json, or a directory.  The tables of
    input and output embeddings are found by their names unless they are named.  Tokens with a score
    of at least `threshold` are listed: 0 is a typical token, 1 a typical row that is known to be
    untrained.

    Raises:
        FileNotFoundError: there is no such model.
        FileFormatError: a file is damaged, or its table cannot be read.
        ValueError: no table is found, or it has fewer rows than the tokenizer has ids.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be above 0 and at most 1, got {threshold!r}")
    tables, notes = _tables(Path(model), input_tensor, output_tensor)
    for tensor in tables.values():
        _check_fits(tensor, tokenizer)
    vocabulary = _Vocabulary(tokenizer)
    embeddings = [_examine(role, each, vocabulary, threshold) for role, each in tables.items()]
    rows = embeddings[0].rows
    groups = vocabulary.groups(rows)
    apart = vocabulary.special.union(*groups.values())

    def suspects(ids: Sequence[int]) -> list[Suspect]:
        return [_suspect(vocabulary, embeddings, id_) for id_ in ids]

    ordinary = [id_ for id_ in vocabulary.ids if id_ not in apart]
    columns = [each.values["score"][ordinary] for each in embeddings if each.tells]
    scores = sum(columns) / len(columns) if columns else ()
    chosen = [(-score, id_) for id_, score in zip(ordinary, scores) if score >= threshold]
    return Diagnosis(
        embeddings,
        len(ordinary),
        sum(vocabulary.kind(id_) in _PARTS for id_ in ordinary),
        suspects([id_ for _, id_ in sorted(chosen)]),
        suspects(sorted(vocabulary.special)),
        {problem: suspects(ids) for problem, ids in vocabulary.unreachable.items()},
        groups["padded rows"],
        threshold,
        [*notes, *_notes(embeddings, groups["padded rows"])],
        vocabulary,
    )


def _suspect(vocabulary: _Vocabulary, embeddings: Sequence[Embedding], id_: int) -> Suspect:
    text, kind = vocabulary.text(id_), vocabulary.kind(id_)

    def figures(name: str) -> dict[str, float]:
        found = {each.role: float(each.values[name][id_]) for each in embeddings}
        return {role: value for role, value in found.items() if numpy.isfinite(value)}

    scores = figures("score")
    score = sum(scores.values()) / len(scores) if scores else None
    return Suspect(id_, text, kind, score, figures("norm"), figures("cosine"), scores)


def _check_fits(tensor: Tensor, tokenizer: BPETokenizer) -> None:
    tensor.check_readable()
    rows, highest = tensor.shape[0], tokenizer.max_id
    if highest >= rows:
        raise ValueError(
            f"the tokenizer has ids up to {highest:,}, but {tensor.name} has only {rows:,} rows: "
            "the tokenizer is that of another model, or the embeddings were not resized when "
            "tokens were added"
        )


def _notes(embeddings: Sequence[Embedding], padded: Sequence[int]) -> Iterator[str]:
    if padded:
        yield f"{len(padded):,} rows have no token: {_ranges(padded)}"
    for each in embeddings:
        if each.zero_rows:
            yield f"{each.zero_rows:,} rows of {each.name} are all zeros"
        if each.broken_rows:
            yield (
                f"{each.broken_rows:,} rows of {each.name} contain values that aren't finite; they "
                "are left out"
            )
        if not each.tells:
            yield (
                f"{each.name} can't tell: rows that no text uses look like all others (were they "
                "reset when the table was resized, or was the model never trained?)"
            )
        unlike = [group.name for group in each.groups if group.separation and not group.used]
        if each.tells and unlike:
            yield f"in {each.name} {' and '.join(unlike)} look like other tokens, and are not used"


def _ranges(ids: Sequence[int]) -> str:
    shown = [f"{a:,} to {b:,}" if a < b else f"{a:,}" for a, b in runs_of(ids)]
    return ", ".join([*shown[:4], *(["..."] if len(shown) > 4 else [])])


# -- Which tables ---


def _tables(
    model: Path, input_tensor: str | None, output_tensor: str | None
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tables by role, and notes about them."""
    found = tensors(model)
    first = _named(model, found, input_tensor, _INPUT, "--input-tensor")
    if first is None:
        largest = sorted(
            (each for each in found.values() if len(each.shape) == 2),
            key=lambda each: -each.shape[0],
        )
        names = ", ".join(f"{each.name} ({each.shape[0]:,} rows)" for each in largest[:3])
        raise ValueError(
            f"{model}: no tensor has the usual name of an input embedding; name it with "
            f"--input-tensor; tables with the most rows: {names or 'none'}"
        )
    second = _named(model, found, output_tensor, _OUTPUT, "--output-tensor")
    if second is None or second is first or _is_same(first, second):
        notes = []
        config = first.path.parent / "config.json"
        if second is None and lint.field_of(config, "tie_word_embeddings", bool) is False:
            notes = [
                "config.json says that the output embedding is another table, but no tensor has "
                "its usual name; name it with --output-tensor"
            ]
        return {"tied": first}, notes
    return {"input": first, "output": second}, []


def _named(
    model: Path, found: Mapping[str, Tensor], name: str | None, usual: str, option: str
) -> Tensor | None:
    if name is not None:
        if name not in found:
            some = ", ".join(sorted(found)[:5])
            raise ValueError(f"{model}: has no tensor {name!r}; it has {some}, ...")
        return found[name]
    matching = [
        tensor
        for tensor in found.values()
        if re.fullmatch(usual, tensor.name) and len(tensor.shape) == 2
    ]
    if len(matching) > 1:
        names = ", ".join(tensor.name for tensor in matching[:5])
        raise ValueError(
            f"{model}: {len(matching)} tables could be meant; choose by {option}: {names}"
        )
    return matching[0] if matching else None


def _is_same(first: Tensor, second: Tensor) -> bool:
    """Return whether two tables are equal: some writers save a tied one twice."""
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return False
    pairs = zip(first.blocks(), second.blocks())
    return all(numpy.array_equal(one, other, equal_nan=True) for (_, one), (_, other) in pairs)


# -- Pictures -----------------------------------------------------------------

_MARKS = (  # drawn one over another
    ("other tokens", "#b8c4d6", ".", 12),
    ("look under-trained", "#d1571b", "D", 14),
    ("reference rows", "#1f5fa8", "o", 16),
    ("special tokens", "#2e7d32", "^", 34),
)


def _draw(axes: Any, report: Diagnosis, embedding: Embedding) -> None:
    groups = report.vocabulary.groups(embedding.rows)
    listed = [suspect.id for suspect in report.under_trained]
    special = [suspect.id for suspect in report.special]
    reference = sorted({id_ for ids in groups.values() for id_ in ids})
    taken = {*listed, *special, *reference}
    others = [id_ for id_ in report.vocabulary.ids if id_ not in taken]
    for (label, color, mark, size), ids in zip(_MARKS, (others, listed, reference, special)):
        if ids:
            places = [embedding.values[name][ids] for name in ("norm", "cosine")]
            style = {"linewidths": 0.4, "edgecolors": "white", "rasterized": len(ids) > 5_000}
            label += f" ({len(ids):,})"
            axes.scatter(*places, s=size, color=color, marker=mark, label=label, **style)
    for indicator, line in zip(embedding.indicators, (axes.axvline, axes.axhline)):
        if indicator.used:
            line(indicator.limit, color="#666666", linewidth=1, linestyle="--")
    axes.set_xlabel("norm")
    axes.set_ylabel("cosine with the mean reference row")
    axes.set_title(_titled(embedding), loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="best", fontsize=8, frameon=False)
