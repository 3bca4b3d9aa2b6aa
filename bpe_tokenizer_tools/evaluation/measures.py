"""The figures of one tokenizer on one group of texts.

Texts are counted a few megabytes at a time.  A `Tally` has only counts; two tallies can be added.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.evaluation.adapters import Adapter, reason_of
from bpe_tokenizer_tools.evaluation.texts import Part
from bpe_tokenizer_tools.evaluation.words import Pieces

numpy = core.import_optional("numpy", "measuring tokenizers", "numpy")

ALPHA = 2.5
_CHUNK_CHARS = 2 << 20

# -- Texts, a few megabytes at a time -----------------------------------------


class Chunk:
    """Some documents of a group: texts, each a document or a part of one.

    `numbers` are the numbers of their documents in the group, from 1.
    """

    def __init__(self, group: str, documents: list[str], numbers: list[int]) -> None:
        self.group, self.documents, self.numbers = group, documents, numbers
        self.characters = numpy.array(list(map(len, documents)), numpy.int64)
        ends = numpy.cumsum(self.characters + 1) - 1
        self.character_begins = ends - self.characters
        cuts = numpy.concatenate([ends[:-1], self.character_begins])
        # the pieces of all documents; between two documents is a line end, a piece of its own
        self.pieces = Pieces("\n".join(documents), cuts[cuts < ends[-1]])
        self.begins = self.pieces.byte_at[self.character_begins]  # of each document, in bytes
        self.sizes = self.pieces.byte_at[ends] - self.begins  # in bytes


def chunks_of(group: str, texts: Iterable[str]) -> Iterator[Chunk]:
    """Gather the documents of a group, a few megabytes at a time."""
    documents: list[str] = []
    numbers: list[int] = []
    number = size = characters = 0
    for text in [texts] if isinstance(texts, str) else texts:
        if not isinstance(text, str):
            raise TypeError(f"group {group!r}: expected texts, got {core.shorten(text)}")
        try:
            core.utf8_length(text)
        except ValueError as error:
            raise ValueError(f"group {group!r}, document {number + 1}: {error}") from None
        number += not isinstance(text, Part) or not number
        documents.append(str(text))
        numbers.append(number)
        characters += len(text)
        size += len(text) + 1  # + 1 so that empty ones don't pile up
        if size >= _CHUNK_CHARS:
            yield Chunk(group, documents, numbers)
            size, documents, numbers = 0, [], []
    if not characters:
        raise ValueError(f"the group {group!r} contains no text")
    if documents:
        yield Chunk(group, documents, numbers)


# -- Cutting ------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """The results of a tokenizer for a chunk."""

    ids: Any  # of all documents
    starts: Any  # where each begins, in bytes of the chunk; None if that is not known
    ends: Any  # where each ends
    wrong: set[int]  # the numbers of the documents that decode to another text
    changed: set[int]  # the numbers of the documents that the normalizer changes


def cut(adapter: Adapter, chunk: Chunk) -> Cut:
    """Encode and decode the documents of a chunk."""
    encoded = _encode(adapter, chunk)
    spans = []
    wrong, changed = set(), set()
    for i, (text, ids) in enumerate(zip(chunk.documents, encoded)):
        with _named(adapter, chunk, i):
            normalized = adapter.normalize(text)
            if not _same(normalized, text):
                changed.add(chunk.numbers[i])
            if not _same(adapter.decode(ids), normalized) if text else len(ids):
                wrong.add(chunk.numbers[i])
            spans.append(_spans(adapter, chunk, i, ids))
    ids = numpy.concatenate(encoded)
    if any(span is None for span in spans):
        return Cut(ids, None, None, wrong, changed)
    starts, ends = (numpy.concatenate([span[side] for span in spans]) for side in (0, 1))
    return Cut(ids, starts, ends, wrong, changed)


def _encode(adapter: Adapter, chunk: Chunk) -> list[Any]:
    try:
        return adapter.encode_all(chunk.documents)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:  # one by one, to find which it is; a panic in Rust is not an Exception
        encoded = []
        for i, text in enumerate(chunk.documents):
            with _named(adapter, chunk, i):
                encoded.append(adapter.encode(text))
        return encoded


@contextlib.contextmanager
def _named(adapter: Adapter, chunk: Chunk, i: int) -> Iterator[None]:
    """Name the tokenizer and the document in an error."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        where = f"{adapter.name} fails on document {chunk.numbers[i]} of {chunk.group!r}"
        raise ValueError(f"{where}: {reason_of(error)}") from error


def _same(decoded: str, normalized: str) -> bool:
    """Compare two texts; ignore a space that a tokenizer puts before a text."""
    return decoded == normalized or f" {decoded}" == normalized or decoded == f" {normalized}"


def _spans(adapter: Adapter, chunk: Chunk, i: int, ids: Any) -> Any:
    """Return where tokens of a document begin and end in the chunk, in bytes."""
    begin, size = chunk.begins[i], chunk.sizes[i]
    spelled = adapter.spell(ids)
    text = chunk.pieces.data[begin : begin + size]
    lengths = adapter.lengths[ids]
    if spelled == b" " + text and len(ids):  # a space put before it
        lengths[0] -= 1
    elif spelled != text:
        return _told_spans(adapter, chunk, i)
    ends = numpy.cumsum(lengths) + begin
    return ends - lengths, ends


def _told_spans(adapter: Adapter, chunk: Chunk, i: int) -> Any:
    """Return the library's own offsets, which count characters."""
    told = adapter.offsets(chunk.documents[i])
    if told is None:
        return None
    offsets = numpy.array(told, numpy.int64).reshape(-1, 2) + chunk.character_begins[i]
    # Tokens such as a bare prefix have no place, whatever the library says; use the previous end.
    nowhere = offsets[:, 0] >= offsets[:, 1]
    offsets[nowhere] = chunk.character_begins[i]
    offsets = numpy.maximum.accumulate(offsets)
    offsets[nowhere, 0] = offsets[nowhere, 1]
    starts, ends = numpy.maximum.accumulate(offsets[:, 0]), offsets[:, 1]
    return chunk.pieces.byte_at[starts], chunk.pieces.byte_at[ends]


def tokens_per_piece(cut: Cut, starts: Any, ends: Any) -> Any:
    """Count the tokens with at least one byte of each piece."""
    holds = cut.starts < cut.ends
    until = numpy.searchsorted(cut.starts[holds], ends, "left")
    return until - numpy.searchsorted(cut.ends[holds], starts, "right")


# -- Counting -----------------------------------------------------------------


class Tally:
    """Counts of one tokenizer on texts, see `Measures`; two tallies can be added."""

    def __init__(self, rows: int) -> None:
        self.documents = self.bytes = self.characters = self.words = self.wrong = self.changed = 0
        self.uses = numpy.zeros(rows, numpy.int64)  # how often each id occurs in them, by id
        # how many words have 0, 1, 2 ... tokens; None if that is not known
        self.by_length: Any = numpy.zeros(0, numpy.int64)
        self._last: dict[str, int] = {}  # count -> number of the last document in it

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return int(self.uses.sum())

    def add(self, chunk: Chunk, cut: Cut) -> None:
        """Count a chunk, the next of its group."""
        words = chunk.pieces.words
        self._count("documents", set(chunk.numbers))
        self._count("wrong", cut.wrong)
        self._count("changed", cut.changed)
        self.bytes += int(chunk.sizes.sum())
        self.characters += int(chunk.characters.sum())
        self.words += len(words)
        self.uses += numpy.bincount(cut.ids, minlength=len(self.uses))
        if cut.starts is None:
            self.by_length = None
        elif self.by_length is not None:
            pieces = chunk.pieces
            n = tokens_per_piece(cut, pieces.starts[words], pieces.ends[words])
            self.by_length = _sum(self.by_length, numpy.bincount(n))

    def _count(self, name: str, numbers: set[int]) -> None:
        """Count documents, but not one whose earlier part was counted."""
        last = self._last.get(name, 0)
        setattr(self, name, getattr(self, name) + sum(number > last for number in numbers))
        self._last[name] = max(numbers, default=last)

    def __add__(self, other: Tally) -> Tally:
        total = Tally(0)
        for name in ("documents", "bytes", "characters", "words", "wrong", "changed", "uses"):
            setattr(total, name, getattr(self, name) + getattr(other, name))
        known = self.by_length is not None and other.by_length is not None
        total.by_length = _sum(self.by_length, other.by_length) if known else None
        return total


def _sum(first: Any, second: Any) -> Any:
    total = numpy.zeros(max(len(first), len(second)), numpy.int64)
    total[: len(first)] += first
    total[: len(second)] += second
    return total


# -- Figures ------------------------------------------------------------------


@dataclass(frozen=True)
class Measures:
    """The figures of one tokenizer on one group; None where there is nothing to divide by."""

    tokenizer: str  # its name
    group: str  # the name of the texts, or "overall"
    documents: int  # how many texts
    bytes: int  # in UTF-8
    characters: int  # Unicode code points
    words: int  # see `bpe_tokenizer_tools.evaluation.words`
    tokens: int  # how many ids
    bytes_per_token: float | None  # higher means fewer tokens
    characters_per_token: float | None  # the same in characters
    # how many tokens contain part of a word, on average: fertility. Words are counted within their
    # text, so a token may also contain the space before a word, or parts of two words, and then it
    # counts for both
    tokens_per_word: float | None
    median_tokens_per_word: int | None  # at least half of the words have this many or fewer
    p95_tokens_per_word: int | None  # at least 95% of the words have this many or fewer
    single_token_words: float | None  # the share of words that lie within one token, 0 to 1
    renyi_efficiency: float | None  # `renyi_entropy` / log2 of the number of ordinary tokens
    shannon_efficiency: float | None  # the same with Shannon's entropy
    renyi_entropy: float  # in bits
    premium: float | None  # tokens here / tokens of the same text in English, if parallel
    byte_premium: float | None  # the same for bytes, which no tokenizer can change
    unused_tokens: int  # how many tokens, except special ones, never occur in the texts
    unused_share: float | None  # their share of all tokens except special ones, 0 to 1
    wrong_round_trips: int  # documents that don't decode to their normalized text
    changed_documents: int  # documents that the normalizer changes
    words_by_tokens: list[int] | None  # how many words have 0, 1, 2 ... tokens


def measures_of(
    adapter: Adapter, group: str, tally: Tally, base: Tally | None = None, alpha: float = ALPHA
) -> Measures:
    """Work out figures from counts; `base` is the tally of the same text in English, if any."""
    ordinary = numpy.fromiter(adapter.tokens, numpy.int64, len(adapter.tokens))
    unused = int((tally.uses[ordinary] == 0).sum())
    entropy = renyi_entropy(tally.uses, alpha)
    most = float(numpy.log2(len(ordinary))) if len(ordinary) > 1 else 0.0
    by_length = tally.by_length
    return Measures(
        adapter.name,
        group,
        tally.documents,
        tally.bytes,
        tally.characters,
        tally.words,
        tally.tokens,
        _ratio(tally.bytes, tally.tokens),
        _ratio(tally.characters, tally.tokens),
        *_per_word(by_length),
        _ratio(entropy, most),
        _ratio(renyi_entropy(tally.uses, 1.0), most),
        entropy,
        _ratio(tally.tokens, base.tokens) if base else None,
        _ratio(tally.bytes, base.bytes) if base else None,
        unused,
        _ratio(unused, len(ordinary)),
        tally.wrong,
        tally.changed,
        None if by_length is None else by_length.tolist(),
    )


def _ratio(amount: float, by: float) -> float | None:
    return amount / by if by else None


def _per_word(by_length: Any) -> tuple[Any, Any, Any, Any]:
    """Return mean, median, 95th percentile and the share of words with one token."""
    words = 0 if by_length is None else int(by_length.sum())
    if not words:
        return None, None, None, None
    mean = float(by_length @ numpy.arange(len(by_length))) / words
    so_far = numpy.cumsum(by_length)
    median, p95 = (int(numpy.searchsorted(so_far, share * words)) for share in (0.5, 0.95))
    return mean, median, p95, int(by_length[1:2].sum()) / words


def renyi_entropy(counts: Sequence[int], alpha: float = ALPHA) -> float:
    """Return the Rényi entropy of a distribution, in bits.

    H = log2(sum of p ** alpha) / (1 - alpha) over the shares p of the tokens that occur; for
    alpha = 1, its limit is Shannon's entropy.  Divided by log2 of the size of the vocabulary, it
    is an efficiency between 0 and 1.  Of the orders that Zouhar et al. (2023, "Tokenization and the
    Noiseless Channel") tried, 2.5 correlated best with the quality of machine translation.  An
    order above 1 gives frequent tokens more weight: a vocabulary is inefficient if a few tokens
    make up most of the text, or if many tokens hardly occur.

    `alpha` is above 0; with infinity, only the most frequent token counts.

    >>> renyi_entropy([1, 1, 1, 1]), renyi_entropy([7, 0]), renyi_entropy([1, 1], alpha=1)
    (2.0, 0.0, 1.0)
    """
    used = numpy.asarray(counts, numpy.float64)
    used = used[used > 0]
    if not len(used):
        return 0.0
    shares = used / used.sum()
    if abs(alpha - 1) < 1e-8:  # any nearer to the limit, no digit of the result would be right
        return abs(float(-(shares * numpy.log2(shares)).sum()))
    largest = shares.max()
    if alpha == math.inf:
        return abs(float(numpy.log2(largest)))
    # The power of the largest share is factored out: it may be smaller than any float.
    powers = alpha * numpy.log2(largest) + numpy.log2(((shares / largest) ** alpha).sum())
    return abs(float(powers / (1 - alpha)))
