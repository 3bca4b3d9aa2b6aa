"""Counts from which superwords are learned: of pre-tokens, and of runs of tokens.

    {"format": "bpe_tokenizer.PretokenCounts", ..., "counts": {"the": 7, ...},
     "superwords": {"least": 3, ..., "runs": {"262 319 11": 5, ...}}}

Text is cut into runs at the places that no superword can cross.  A run is written as the ids of its
tokens in stage one, which is learned from the counts of pre-tokens.  So runs are only valid for one
result of stage one, and for the rules that cut them.  Training without superwords ignores them.

Counts of the parts of a corpus add up if all of them were cut alike.  Where to cut depends on the
whole, so the parts are first counted uncut: then each run is a pair of neighbors.
"""

from __future__ import annotations

import dataclasses
import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpe_tokenizer import PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.training.joins import CountedWords
from bpe_tokenizer_tools.training.neighbors import BETWEEN

__all__ = ["StageFacts", "SuperwordCounts", "pairs_of", "records_of", "runs_of", "written_runs"]

_CANNOT_ADD = (
    "these counts don't add up: with superwords, each part must be counted with the same counts of "
    "the whole corpus (whole=..., count --whole); or count the corpus at once"
)
_RUN = re.compile(r"[0-9]{1,7}(?: [0-9]{1,7})*")
_TOO_MANY = 2**62
_PAIR = re.compile(r"[0-9]{1,7} [0-9]{1,7}")


@dataclass(frozen=True)
class StageFacts:
    """What runs of tokens depend on."""

    superwords: dict[str, Any]  # the fields of `Superwords`
    vocab_size: int  # the largest that they are enough for
    special_tokens: tuple[str, ...]  # sorted
    min_frequency: int  # for merges
    max_token_length: int | None
    stage_one: str  # a hash of the merges of stage one


class SuperwordCounts(PretokenCounts):
    """Counts of pre-tokens, with the runs of tokens that superwords are learned from.

    Attributes:
        facts: what they depend on.
        runs: the runs, and how often each occurs; or all pairs of neighbors.
        least: no merge that occurs less often can be learned from them.
        cut: a hash of where text was cut; "" if the runs are pairs of neighbors.
    """

    def __init__(
        self,
        counts: Any,
        split_pattern: str,
        normalizer: str | None,
        documents: int,
        bytes_read: int,
        facts: StageFacts,
        runs: CountedWords,
        least: int,
        cut: str,
    ) -> None:
        super().__init__(counts, split_pattern, normalizer, documents, bytes_read)
        self.facts, self.runs, self.least, self.cut = facts, runs, least, cut

    def save(self, path: Any) -> None:
        """Write them to a JSON file, atomically."""
        data: dict[str, Any] = {"format": core.COUNTS_FORMAT}
        for name in ("split_pattern", "normalizer", "documents", "bytes_read"):
            data[name] = getattr(self, name)
        runs = dict(sorted(written_runs(self.runs)))
        rules = {"least": self.least, "cut": self.cut, **dataclasses.asdict(self.facts)}
        data["superwords"] = {**rules, "runs": runs}
        # NOTE: last, so that the first megabyte says that there are runs; see corpus/records.py.
        data["counts"] = {core.to_printable(key): count for key, count in sorted(self.items())}
        text = json.dumps(data, ensure_ascii=False)
        if core.utf8_length(text) > core.MAX_FILE_BYTES:
            problem = f"{path}: counts with superwords of more than {core.MAX_FILE_BYTES:,} bytes"
            raise ValueError(f"{problem} can't be read again; leave out rare pre-tokens")
        core.write_files({Path(path): text})

    def __add__(self, other: PretokenCounts) -> PretokenCounts:
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        self.check_made_by(other.split_pattern, other.normalizer)
        if not isinstance(other, SuperwordCounts) or self._rules() != other._rules():
            raise ValueError(_CANNOT_ADD)
        both = PretokenCounts(self, *self._made()) + PretokenCounts(other, *other._made())
        runs = Counter(dict(written_runs(self.runs)))
        runs.update(dict(written_runs(other.runs)))
        if max(runs.values(), default=0) >= _TOO_MANY:
            raise ValueError("these counts are too large to be added up")
        least = max(self.least, other.least) if self.cut else self.least + other.least - 1
        made = both.split_pattern, both.normalizer, both.documents, both.bytes_read
        return SuperwordCounts(both, *made, self.facts, runs_of(runs.items()), least, self.cut)

    __radd__ = __add__

    def _made(self) -> tuple[Any, ...]:
        return self.split_pattern, self.normalizer, self.documents, self.bytes_read

    def _rules(self) -> tuple[StageFacts, str]:
        return self.facts, self.cut

    def __reduce__(self) -> tuple[Any, ...]:
        rest = self.facts, self.runs, self.least, self.cut
        return SuperwordCounts, (dict(self), *self._made(), *rest)


def written_runs(runs: CountedWords) -> Iterator[tuple[str, int]]:
    """Yield runs as they are written, "262 319 11", and their counts."""
    words = " ".join(map(str, runs.symbols)).split("-1")
    return zip(map(str.strip, words), runs.counts)


def runs_of(written: Iterable[tuple[str, int]]) -> CountedWords:
    """Return the runs that were written."""
    runs = CountedWords()
    for numbers, count in written:
        runs.add(map(int, numbers.split()), count)
    return runs


def pairs_of(records: bytes) -> CountedWords:
    """Return the pairs that a `PairCounter` has counted, as runs of two."""
    numbers, counts, pairs = array("i"), array("q"), CountedWords()
    numbers.frombytes(records)
    counts.frombytes(records)
    pairs.counts = counts[1::2]
    pairs.symbols = array("i", [-1]) * (3 * len(pairs.counts))
    pairs.symbols[::3], pairs.symbols[1::3] = numbers[::4], numbers[1::4]
    return pairs


def records_of(pairs: CountedWords) -> bytes:
    """Return pairs as a `PairCounter` takes them."""
    counts, numbers = array("q", bytes(16 * len(pairs.counts))), array("i")
    counts[1::2] = pairs.counts
    numbers.frombytes(counts.tobytes())
    numbers[::4], numbers[1::4] = pairs.symbols[::3], pairs.symbols[1::3]
    return numbers.tobytes()


def read(data: core.JsonReader, counts: PretokenCounts) -> SuperwordCounts:
    """Read what `save` wrote in the field "superwords", beside counts of pre-tokens."""
    options, special = data.get("superwords", dict), data.get("special_tokens", list)
    facts = StageFacts(
        {key: tuple(value) if type(value) is list else value for key, value in options.items()},
        data.get("vocab_size", int),
        tuple(special),
        data.get("min_frequency", int),
        data.get("max_token_length", int, None),
        data.get("stage_one", str),
    )
    if {*map(type, special)} - {str}:
        raise data.error("expected a list of strings", "special_tokens")
    least, cut = data.get("least", int), data.get("cut", str)
    if least < 1:
        raise data.error(f"expected 1 or more, got {core.shorten(least)}", "least")
    written, largest = data.get("runs", dict), min(facts.vocab_size, BETWEEN)
    pattern = _RUN if cut else _PAIR
    for numbers, count in written.items():
        sound = pattern.fullmatch(numbers) and max(map(int, numbers.split())) < largest
        if not sound or type(count) is not int or not 0 <= count < _TOO_MANY:
            problem = f"bad entry {core.shorten(numbers)}: {core.shorten(count)}"
            raise data.error(problem, "runs")
    runs = runs_of(written.items())
    made = counts.split_pattern, counts.normalizer, counts.documents, counts.bytes_read
    return SuperwordCounts(counts, *made, facts, runs, least, cut)
