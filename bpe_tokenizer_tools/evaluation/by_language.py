"""What each language pays at every vocabulary size, trained with parity and without.

A sweep with parity trains twice on the same counts: once with `Parity`, and once on all text
together.  Each language has held-out text of its own, and is measured on that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bpe_tokenizer import BPETokenizer, FileFormatError, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus.held_out import CorpusReader, check_apart
from bpe_tokenizer_tools.support.tables import Table
from bpe_tokenizer_tools.training.parity import Parity, gini

KINDS = ("plain", "parity")
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C", "#6A51A3")

Counter = Callable[[BPETokenizer, Mapping[bytes, int], Sequence[int]], Sequence[int]]


@dataclass(frozen=True)
class LanguagePoint:
    """One language at one vocabulary size."""

    language: str
    training: str  # "plain" or "parity"
    size: int  # number of tokens, including special ones
    bytes: int  # of the language's held-out text
    pretokens: int
    tokens: int

    @property
    def fertility(self) -> float:
        """Tokens per pre-token."""
        return self.tokens / self.pretokens


@dataclass(frozen=True)
class ByLanguage:
    """What a sweep with parity measured of each language."""

    points: Sequence[LanguagePoint]

    @property
    def languages(self) -> list[str]:
        """The languages, as they were named."""
        return list(dict.fromkeys(point.language for point in self.points))

    @property
    def sizes(self) -> list[int]:
        """The sizes, the smallest first."""
        return sorted({point.size for point in self.points})

    def curve(self, language: str, training: str) -> list[float]:
        """Return the fertility of a language at each size."""
        found = {p.size: p for p in self.points if (p.language, p.training) == (language, training)}
        return [found[size].fertility for size in self.sizes]

    def gini(self, training: str) -> list[float]:
        """Return the Gini coefficient of tokens per byte at each size; 0 if all pay the same."""
        return [
            gini([p.tokens / p.bytes for p in self.points if (p.training, p.size) == (training, n)])
            for n in self.sizes
        ]

    def table(self) -> Table:
        """Return both curves of each language, and the Gini coefficients."""
        rows: list[list[object]] = [
            [f"{language}, {training}", *self.curve(language, training)]
            for language in self.languages
            for training in KINDS
        ]
        rows += [[f"Gini, {training}", *self.gini(training)] for training in KINDS]
        sizes = [f"{size:,}" for size in self.sizes]
        return Table(["tokens per pre-token", *sizes], rows)

    def columns(self) -> dict[str, list[float]]:
        """Return each curve under a name, for CSV."""
        named = {
            f"fertility_{training}_{language}": self.curve(language, training)
            for language in self.languages
            for training in KINDS
        }
        return {**named, **{f"gini_{training}": self.gini(training) for training in KINDS}}

    def to_json(self) -> dict[str, Any]:
        """Return all points, and the Gini coefficients by size, as plain data."""
        coefficients = {training: self.gini(training) for training in KINDS}
        points = [{**dataclasses.asdict(p), "fertility": p.fertility} for p in self.points]
        return {"points": points, "sizes": self.sizes, "gini": coefficients}

    def draw(self, axes: Any) -> None:
        """Draw both curves of each language: dashed without parity, solid with it."""
        for number, language in enumerate(self.languages):
            color = _COLORS[number % len(_COLORS)]
            for training, style in zip(KINDS, ("--", "-")):
                values = self.curve(language, training)
                label = language.replace("$", r"\$") if training == "parity" else None
                axes.plot(self.sizes, values, style, marker="o", ms=3, color=color, label=label)
        axes.plot([], [], "--", color="#666666", label="without parity")
        axes.legend(frameon=False, fontsize=8, ncols=2)
        axes.set_ylabel("tokens per pre-token")
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)


def read(
    reader: CorpusReader, parity: Parity, held_out: Any, share: float
) -> tuple[Parity, dict[str, PretokenCounts]]:
    """Count the corpora of all languages; return them, and the held-out text of each.

    Raises:
        TypeError: `held_out` is not a mapping from languages.
        ValueError: it names other languages, or a language has no text; the error names it.
    """
    if held_out is not None and not isinstance(held_out, Mapping):
        got = core.shorten(held_out)
        raise TypeError(f"with parity, held_out must map languages to texts, got {got}")
    for name in sorted({*(held_out or parity.corpora)} ^ {*parity.corpora}, key=str):
        has = "only in held_out" if name in (held_out or ()) else "without held-out text"
        raise ValueError(f"language {core.shorten(name)} is {has}; name the same in both")
    counts, seen = {}, {}
    for name, corpus in parity.corpora.items():
        text = None if held_out is None else held_out[name]
        check_apart(corpus, text)
        before = len(reader.notes)
        try:
            counts[name], seen[name] = reader.read(corpus, text, share)
        except ValueError as error:
            if isinstance(error, FileFormatError):  # it names the file
                raise
            raise ValueError(f"language {name!r}: {error}") from None
        reader.notes[before:] = [f"language {name!r}: {note}" for note in reader.notes[before:]]
    return dataclasses.replace(parity, corpora=counts), seen


def measure(
    trained: Mapping[str, BPETokenizer],
    seen: Mapping[str, PretokenCounts],
    sizes: Sequence[int],
    count: Counter,
) -> ByLanguage:
    """Measure the tokenizers of both trainings on each language, at each size."""
    points = []
    for training in KINDS:
        for name, text in seen.items():
            n_bytes = sum(len(pretoken) * n for pretoken, n in text.items())
            n_pretokens = sum(text.values())
            for size, tokens in zip(sizes, count(trained[training], text, sizes)):
                points.append(LanguagePoint(name, training, size, n_bytes, n_pretokens, tokens))
    return ByLanguage(points)
