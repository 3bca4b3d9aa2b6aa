"""More tokens for a tokenizer that a model was trained with: continued BPE training.

    extended = tokenizer.extend("medical.txt", add=2000)
    print(extended.training_report)

Training continues where it ended: merges are learned from the pre-tokens of the new text, as the
tokenizer encodes them now.  The old ids and merges stay unchanged, and the new merges come after
them.  So each text is first encoded as before, and then the new merges apply to the result.

Source: Purason and others, "Teaching Old Tokenizers New Words", arXiv 2512.03989, for the idea.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bpe_tokenizer import AddedToken, BPETokenizer, Definition, PretokenCounts, TrainingReport
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus.held_out import HELD_OUT_SHARE, CorpusReader, check_apart
from bpe_tokenizer_tools.formats.sentencepiece import SPACE
from bpe_tokenizer_tools.support.text import counted, say
from bpe_tokenizer_tools.training import joins
from bpe_tokenizer_tools.training.joins import CountedWords
from bpe_tokenizer_tools.vocabularies.pretokens import (
    Merger,
    check_counts,
    count_tokens,
    encode_pretokens,
    prefix_of,
    stand_ins,
)

# -- The report ----------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """The tokens of held-out text, before and after."""

    bytes: int  # of text, as it is encoded, without added tokens
    tokens_before: int
    tokens_after: int

    @property
    def bytes_per_token_before(self) -> float:
        """Bytes of text per token of the old tokenizer."""
        return self.bytes / self.tokens_before

    @property
    def bytes_per_token_after(self) -> float:
        """Bytes of text per token of the new tokenizer."""
        return self.bytes / self.tokens_after

    def __str__(self) -> str:
        before, after = self.bytes_per_token_before, self.bytes_per_token_after
        return f"{before:.3f} bytes per token before, {after:.3f} after"


@dataclass(frozen=True)
class ExtensionReport(TrainingReport):
    """What `extend` read and did; `merges` are the new ones."""

    added: int  # number of new tokens, including those for the given strings
    for_strings: int  # how many of these were made for the given strings, which may need parts
    first_id: int | None  # of the new tokens, which have consecutive ids; None if there are none
    held_out: Mapping[str, Measured]  # by name; "new" if it was held out of the corpus

    def __str__(self) -> str:
        measured = "".join(f"\n{name}: {found}" for name, found in self.held_out.items())
        ids = "" if self.first_id is None else f" from id {self.first_id:,} on"
        given = f", {self.for_strings:,} of them for given strings" if self.for_strings else ""
        return f"{counted(self.added, 'new token')}{ids}{given}; {super().__str__()}{measured}"


# -- Extending -----------------------------------------------------------------


def extend(
    tokenizer: BPETokenizer,
    corpus: Any = None,
    *,
    counts: Mapping[bytes, int] | None = None,
    add: int = 2000,
    tokens: Iterable[str] | None = None,
    min_frequency: int = 2,
    held_out: Any = None,
    num_workers: int | None = None,
    text_field: str = "text",
    verbose: bool | None = None,
) -> BPETokenizer:
    """Return a tokenizer with more merges after the existing ones; the given one doesn't change.

    Every id keeps its token, and text to which no new merge applies keeps its ids.  The new tokens
    get the ids after the highest one, including special tokens; gaps below it stay.  The result's
    `training_report` is an `ExtensionReport`.

    The merges are those that training would learn next: the most frequent pair of neighboring
    tokens; of equals, the one that sorts first, where single bytes (or characters) rank by their
    printable form and other tokens by id.  No merge makes a token that already exists.

    Args:
        tokenizer: BPE of any kind that can be loaded.
        corpus, num_workers, text_field: the new text, as for `count_pretokens`.  Added tokens in
            it are not counted.
        counts: of pre-tokens, instead of a corpus.
        add: how many tokens to learn; fewer if no pair is left.
        tokens: strings to make one token each, by merges before any are learned from text.  A
            string is a whole pre-token, including its space, such as " aspirin".
        min_frequency: pairs that occur less often are not merged.
        held_out: text to measure on, as for `count_pretokens`, or several by name, such as
            ``{"old": ..., "new": ...}``.  None holds out 2% of the corpus's documents, chosen by
            their content, if it has enough; {} learns from all and measures nothing.
        verbose: show progress and the report on stderr.

    Raises:
        TypeError: there is nothing to learn from, or an argument is of another type.
        ValueError: the corpus is empty; counts were made in another way; a string can't be one
            token; or ids would exceed 2**31 - 1.
        FileNotFoundError, FileFormatError, ImportError: see `count_pretokens`.

    >>> old = BPETokenizer().train("the cat sat " * 9, vocab_size=262, verbose=False)
    >>> new = extend(old, "the catalog of cats " * 9, add=3, held_out={}, verbose=False)
    >>> new.tokenize("the catalog"), old.encode("the sat") == new.encode("the sat")
    (['the', 'Ġcat', 'al', 'og'], True)
    """
    strings = _check(tokenizer, corpus, counts, tokens, add, min_frequency)
    spelled = _with_strings(tokenizer, strings)
    started = time.perf_counter()
    verbose = core.is_watched(verbose)
    reader = CorpusReader(tokenizer, None, num_workers, text_field, verbose)
    found, measured = _read(reader, corpus, counts, held_out)
    seconds = time.perf_counter() - started
    learned = core.Learned([], [], "")
    if found is not None:
        with core.progress("merging", "merge", add, verbose) as advance:
            learned = _learn(spelled, found, add, min_frequency, advance)
    extended = core.remade(tokenizer, _with_merges(spelled, learned))
    learning = time.perf_counter() - started - seconds
    n_old, n_strings = len(tokenizer.definition.vocab), len(spelled.definition.vocab)
    added = len(extended.definition.vocab) - n_old
    extended.training_report = report = ExtensionReport(
        documents=getattr(found, "documents", 0),
        bytes_read=getattr(found, "bytes_read", 0),
        pretokens=sum((found or {}).values()),
        distinct_pretokens=len(found or {}),
        merges=len(extended.definition.merges) - len(tokenizer.definition.merges),
        vocab_size=extended.vocab_size,
        counting_seconds=seconds,
        learning_seconds=learning,
        stopped=learned.stopped or "the strings have their tokens",
        added=added,
        for_strings=n_strings - n_old,
        first_id=tokenizer.max_id + 1 if added else None,
        held_out={name: _measure(text, tokenizer, extended) for name, text in measured.items()},
    )
    if verbose:
        say(f"Extended: {report}", sys.stderr)
    return extended


def _check(
    tokenizer: BPETokenizer, corpus: Any, counts: Any, tokens: Any, add: Any, min_frequency: Any
) -> list[str]:
    """Check arguments; return the strings to make tokens."""
    given = [corpus is not None, counts is not None]
    if all(given) or not (any(given) or tokens is not None):
        raise TypeError("extend() takes either a corpus or counts=..., or only tokens=[...]")
    if isinstance(tokens, (str, bytes)) or not isinstance(tokens, (Iterable, type(None))):
        raise TypeError(f"tokens must be a list of strings, got {core.shorten(tokens)}")
    for name, value in (("add", add), ("min_frequency", min_frequency)):
        if value is None:
            raise TypeError(f"{name} must be an int, got None")
        core.check_size(name, value, 0)
    strings = [] if tokens is None else list(tokens)
    for string in strings:
        if not isinstance(string, str):
            raise TypeError(f"tokens must be strings, got {core.shorten(string)}")
    if not any(given):  # nothing is learned
        return strings
    if tokenizer.max_id + add > core.MAX_ID:
        highest = f"the highest is already {tokenizer.max_id:,}"
        raise ValueError(f"{add:,} more tokens need ids above {core.MAX_ID:,}: {highest}")
    room = sys.maxunicode - len(tokenizer.definition.vocab)  # what the learner can number
    if add > room:
        raise ValueError(f"add must be at most {room:,} for this tokenizer, got {add:,}")
    return strings


def _read(
    reader: CorpusReader, corpus: Any, counts: Any, held_out: Any
) -> tuple[Mapping[bytes, int] | None, dict[str, PretokenCounts]]:
    """Return what to learn from, and what to measure on, by name."""
    by_name = isinstance(held_out, Mapping) and not isinstance(held_out, PretokenCounts)
    texts = dict(held_out) if by_name else {} if held_out is None else {"held out": held_out}
    for text in texts.values():
        check_apart(corpus, text)
    found: Mapping[bytes, int] | None = None
    measured: dict[str, PretokenCounts] = {}
    if corpus is not None and held_out is None and not isinstance(corpus, PretokenCounts):
        found, apart = reader.count_apart(corpus, HELD_OUT_SHARE)
        if not found:  # few documents, all of which would be apart
            found, apart = apart, found
        measured = {"new": apart} if apart else {}
    elif corpus is not None:
        found = reader.count(corpus)
    elif counts is not None:
        found = check_counts(reader, counts)
    if found is not None and not any(found.values()):
        raise ValueError(core.EMPTY)
    for name, text in texts.items():
        measured[str(name)] = reader.count(text)
        if not measured[str(name)]:
            raise ValueError(f"the held-out text {name!r} is empty: nothing can be measured on it")
    return found, measured


def _measure(counts: PretokenCounts, old: BPETokenizer, new: BPETokenizer) -> Measured:
    return Measured(_size(counts, old), count_tokens(old, counts), count_tokens(new, counts))


def _size(counts: Mapping[bytes, int], tokenizer: BPETokenizer) -> int:
    """Return the number of bytes of text in counted pre-tokens."""
    if tokenizer.components is None:
        return sum(len(pretoken) * count for pretoken, count in counts.items())
    if "ByteLevel" in json.dumps(tokenizer.components["decoder"]):  # one character for each byte
        return sum(len(pretoken.decode()) * count for pretoken, count in counts.items())
    texts = ((pretoken.decode().replace(SPACE, " "), count) for pretoken, count in counts.items())
    return sum(len(text.encode()) * count for text, count in texts)


# -- Learning from text --------------------------------------------------------

Word = Sequence[int]
_Cut = Callable[[list[int]], Iterable[Word]]


def _learn(
    tokenizer: BPETokenizer,
    counts: Mapping[bytes, int],
    add: int,
    min_frequency: int,
    advance: Callable[[int], Any],
) -> core.Learned:
    """Learn merges as the trainer does, but from pre-tokens that are already encoded.

    Tokens are numbered in the order of ties: single bytes, or characters, by their printable form;
    the others by id; and new ones by age, which will be their ids.

    No merge may make a token that already exists.  If it did, old merges could apply to that token,
    and they would come before the new ones.  Training from bytes never meets such a merge; here, it
    would make a token that no merges of the old tokenizer make.
    """
    definition = tokenizer.definition

    def order(item: tuple[bytes, int]) -> tuple[bool, int]:
        written = definition.write(item[0])
        return (False, ord(written)) if len(written) == 1 else (True, item[1])

    items = sorted(definition.vocab.items(), key=order)
    number = {id_: place for place, (_, id_) in enumerate(items)}
    cut = _cutter(tokenizer)
    words = CountedWords()
    for ids, count in zip(encode_pretokens(tokenizer, list(counts)), counts.values()):
        if len(ids) > 1 and count > 0:
            for word in cut(ids):
                words.add(map(number.__getitem__, word), count)
    contents = (definition.read(token.content) for token in definition.added)
    prefix = prefix_of(tokenizer)
    taken = (_as_joined(token, prefix) for token in (*definition.vocab, *filter(None, contents)))
    forbidden = joins.Refused(taken, never=[_FIRST + prefix] if prefix else ())
    tokens = [_as_joined(token, prefix) for token, _ in items]
    learned, _ = joins.learn(
        tokens, words, add, min_frequency, forbidden=forbidden, advance=advance
    )
    merges = [tuple(_as_written(token, prefix) for token in pair) for pair in learned.merges]
    made = [_as_written(token, prefix) for token in learned.tokens]
    return core.Learned(cast("Any", merges), made, learned.stopped)


_FIRST = b"\xff"  # before a token that begins a word; no text has this byte


def _as_joined(token: bytes, prefix: bytes) -> bytes:
    """Return a token as merges join it: without the prefix of those within a word."""
    if not prefix:
        return token
    return token.removeprefix(prefix) if _is_within(token, prefix) else _FIRST + token


def _as_written(token: bytes, prefix: bytes) -> bytes:
    if not prefix:
        return token
    return token[1:] if token.startswith(_FIRST) else prefix + token


def _is_within(token: bytes, prefix: bytes) -> bool:
    return token.startswith(prefix) and token != prefix


def _cutter(tokenizer: BPETokenizer) -> _Cut:
    """Return a function that cuts the ids of a pre-token into words that merges may join."""
    apart = stand_ins(tokenizer)
    cut: _Cut = functools.partial(_cut_at, apart)
    if prefix := prefix_of(tokenizer):
        cut = _cutter_of_first(tokenizer.definition, prefix, cut)
    return _cutter_at_spaces(tokenizer.definition, cut) if tokenizer.components else cut


def _cutter_of_first(definition: Definition, prefix: bytes, cut: _Cut) -> _Cut:
    """Return what also leaves out the first token of a word that is written as if within one.

    It is that of a word that begins with "##", say, and merges would take that away.
    """
    within = {id_ for token, id_ in definition.vocab.items() if token.startswith(prefix)}
    return lambda ids: cut(ids[1:] if ids[0] in within else ids)


def _cut_at(apart: set[int], ids: list[int]) -> Iterable[Word]:
    """Leave out what merges must not join, and cut there."""
    if apart.isdisjoint(ids):
        return (ids,)
    groups = itertools.groupby(ids, apart.__contains__)
    return [list(group) for is_apart, group in groups if not is_apart]


def _cutter_at_spaces(definition: Definition, cut: _Cut) -> _Cut:
    """Return what also cuts words before a run of "▁", as SentencePiece's trainer does.

    A decoder takes the space away that a text begins with, and some take all of the first token.
    """
    texts = {id_: token.decode() for token, id_ in definition.vocab.items()}
    spaces = {id_ for id_, text in texts.items() if not text.strip(SPACE)}
    begins = {id_ for id_, text in texts.items() if text.startswith(SPACE)} - spaces
    if not spaces:
        return cut

    def at_spaces(ids: list[int]) -> Iterator[Word]:
        for word in cut(ids):
            start = 0
            for i in range(1, len(word)):
                is_run = word[i] in spaces and word[i - 1] not in spaces
                if is_run or word[i] in begins:
                    yield word[start:i]
                    start = i
            yield word[start:]

    return at_spaces


def _with_merges(tokenizer: BPETokenizer, learned: core.Learned) -> Definition:
    """Put learned merges behind those of a tokenizer, and number the new tokens."""
    definition = tokenizer.definition
    first = tokenizer.max_id + 1
    new = {token: id_ for id_, token in enumerate(learned.tokens, first)}
    vocab = {**definition.vocab, **new}
    merges = [(vocab[left], vocab[right]) for left, right in learned.merges]
    return dataclasses.replace(definition, vocab=vocab, merges=[*definition.merges, *merges])


# -- Given strings -------------------------------------------------------------


def _with_strings(tokenizer: BPETokenizer, strings: list[str]) -> BPETokenizer:
    """Return a tokenizer in which each string is one token.

    A string's two first tokens are merged, and again, until one is left: each step makes a token
    for a longer beginning, or takes the one that is there.
    """
    if not strings:
        return tokenizer
    definition, merger = tokenizer.definition, Merger(tokenizer)
    taken = {definition.read(token.content) for token in definition.added}
    kept_apart = stand_ins(tokenizer)
    next_id = tokenizer.max_id + 1
    pairs: list[tuple[int, int]] = []
    for string in strings:
        pretoken = _one_pretoken(tokenizer, string)
        ids = merger.encode(pretoken)
        while len(ids) > 1:
            pair = ids[0], ids[1]
            joined = merger.joined(pair)
            if not kept_apart.isdisjoint(ids):
                raise ValueError(f"{string!r} can't be one token: a character of it has no token")
            if joined in taken:
                raise ValueError(f"{string!r} can't be one token: {joined!r} is an added token")
            merger.append(pair, next_id)
            next_id += merger.merged[-1] == next_id
            pairs.append(pair)
            ids = merger.encode(pretoken)
    if next_id - 1 > core.MAX_ID:
        raise ValueError(f"the new tokens need ids above {core.MAX_ID:,}")
    merges = [*definition.merges, *pairs]
    made = dataclasses.replace(definition, vocab=merger.vocab, merges=merges)
    return core.remade(tokenizer, made)


def _one_pretoken(tokenizer: BPETokenizer, string: str) -> bytes:
    """Return the pre-token that a string is; ValueError says where it is cut if it is several."""
    if not string:
        raise ValueError("an empty string can't be a token")
    core.utf8_length(string)  # names a lone surrogate
    parts = [part for part, *_ in core.pipeline(tokenizer, frozenset()).parts(string)]
    for part in parts:
        if isinstance(part, AddedToken):
            raise ValueError(f"{string!r} can't be one token: {part.content!r} is an added token")
    cut = core.cutter(tokenizer)
    pieces = [piece for part in parts for piece in cut(str(part))]
    if len(pieces) != 1:
        shown = " + ".join(map(repr, pieces)) or "nothing"
        problem = f"text is cut into {shown} before merging, and merges don't cross a cut"
        raise ValueError(f"{string!r} can't be one token: {problem}")
    return pieces[0].encode()
