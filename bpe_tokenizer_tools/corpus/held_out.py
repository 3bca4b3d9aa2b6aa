"""Counting a corpus the way a tokenizer cuts it, with some documents held out.

Only a document's content decides whether it is held out: the same ones every time, in any order,
and copies of a document stay on one side.  A corpus of one document, such as a plain file, is
divided at line ends instead.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bpe_tokenizer import AddedToken, BPETokenizer, PretokenCounts
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus.documents import joined
from bpe_tokenizer_tools.support.text import counted, percent

HELD_OUT_SHARE = 0.02  # of the documents, if no held-out text is passed
_HEAD = 2**16  # characters that decide where a document goes; copies of it go there, too
_MAX_DOCUMENT = 2**28  # characters; larger is a file whose documents nothing separates
_PIECES = 10  # held out of a text that is one document, from everywhere in it
_REMEDY = (
    "pass held-out text (--held-out), another share (--held-out-share), or the special token "
    "between documents (--special-tokens)"
)


class CorpusReader:
    """Counts pre-tokens the way a tokenizer will see them; added tokens are cut out.

    For a tokenizer with components, a pre-token is a piece of text that it encodes on its own.
    """

    def __init__(
        self,
        tokenizer: BPETokenizer,
        special_tokens: Any = None,
        num_workers: int | None = None,
        text_field: str = "text",
        verbose: bool = False,
    ) -> None:
        core.check_size("num_workers", num_workers, 1)
        named = [*tokenizer.added_tokens, *core.as_added_tokens(special_tokens)]
        by_components = tokenizer.components is not None
        # Components may normalize a token; a pattern's tokens are found as given.
        self._tokens = named if by_components else [AddedToken(each.content) for each in named]
        self._pipeline = core.encoder(tokenizer).pipeline(self._tokens)
        self._cut = core.cutter(tokenizer) if by_components else None
        self._workers, self._field = num_workers or core.cores(), text_field
        self._verbose = verbose
        self._how = tokenizer.split_pattern or "", tokenizer.normalizer
        self.notes: list[str] = []  # what a reader should know about the held-out text

    def read(
        self, source: Any, held_out: Any, share: float
    ) -> tuple[PretokenCounts | None, PretokenCounts]:
        """Return the counts to train on, None if no source is given, and those held out."""
        if held_out is not None:
            counts = None if source is None else self.count(source)
            seen = self.count(held_out)
            if not seen:
                raise ValueError("the held-out text is empty: nothing can be measured on it")
            if counts is not None and not counts:
                raise ValueError("the corpus is empty: there is nothing to train on")
            return counts, seen
        _check_share(source, share)
        counts, seen = self.count_apart(source, share, by_lines=True)
        if not counts and not seen:
            raise ValueError("the corpus is empty: there is nothing to train on or to measure on")
        if not counts or not seen:
            raise _not_apart(counts.documents + seen.documents)
        return counts, seen

    def set_apart(self, corpus: Any, share: float) -> tuple[Iterator[str], list[str]]:
        """Return the documents to train on, and those held out.

        The second list grows while the first is read; it has one document from the start.
        """
        _check_share(corpus, share)
        apart: list[str] = []
        first: list[str] = []

        def rest() -> Iterator[str]:
            for document, is_apart in self._divided(corpus, share, by_lines=True):
                if is_apart:
                    apart.append(document)
                else:
                    yield document

        training = rest()
        while not (first and apart):
            try:
                first.append(next(training))
            except StopIteration:
                raise _not_apart(len(first) + len(apart)) from None
        return itertools.chain(first, training), apart

    def count(self, corpus: Any) -> PretokenCounts:
        """Count a corpus, as for `count_pretokens`; counts are checked, and returned."""
        if isinstance(corpus, PretokenCounts):
            corpus.check_made_by(*self._how)
            return corpus
        with core.progress("counting", "B", corpus, self._verbose) as advance:
            counter = self._counter(self._workers, advance)
            counter.count(core.documents(corpus, self._field))
        return self._taken(counter)

    def count_apart(
        self, corpus: Any, share: float, by_lines: bool = False
    ) -> tuple[PretokenCounts, PretokenCounts]:
        """Count a corpus, and its held-out documents separately; each may be empty.

        With `by_lines`, some lines of a corpus of one document are held out.
        """
        with core.progress("counting", "B", corpus, self._verbose) as advance:
            training = self._counter(self._workers, advance)
            apart = self._counter(1, advance)

            def rest() -> Iterator[list[str]]:
                for document, is_apart in self._divided(corpus, share, by_lines):
                    if is_apart:
                        apart.count([[document]])
                    else:
                        yield [document]

            n_notes = len(self.notes)
            training.count(rest())
            divided = len(self.notes) > n_notes
        counts, seen = self._taken(training), self._taken(apart)
        if divided:  # the pieces are parts of one document
            counts.documents, seen.documents = 1, 1
        return counts, seen

    def _counter(self, workers: int, advance: Callable[[int], Any]) -> core.PretokenCounter:
        if self._cut:
            return _PieceCounter(self._cut, self._pipeline, advance)
        return core.engine().counter(self._pipeline, workers, advance)

    def _divided(self, corpus: Any, share: float, by_lines: bool) -> Iterator[tuple[str, bool]]:
        """Yield the documents, and whether each is held out."""
        documents = self._documents(corpus)
        first = list(itertools.islice(documents, 2))
        if by_lines and len(first) == 1:
            pieces = _by_lines(first[0], share)
            if len(pieces) > 1:
                self.notes.append(_note(pieces))
            yield from pieces
            return
        for document in itertools.chain(first, documents):
            yield document, _is_apart(document, share)

    def _documents(self, corpus: Any) -> Iterator[str]:
        """Yield the text between special tokens."""
        finder = core.TokenFinder(self._tokens)
        for chunks in core.documents(corpus, self._field):
            try:
                yield from filter(None, joined(_cut(chunks, finder), "", _MAX_DOCUMENT))
            except OverflowError as error:
                raise ValueError(f"{error}, too many to hold one out; {_REMEDY}") from None

    def _taken(self, counter: core.PretokenCounter) -> PretokenCounts:
        return PretokenCounts(counter.take(), *self._how, counter.documents, counter.bytes_read)


class _PieceCounter(core.PretokenCounter):
    """Counts the pieces that a tokenizer with components encodes on their own, in this process."""

    def __init__(
        self,
        cut: Callable[[str], list[str]],
        pipeline: core.Pipeline,
        advance: Callable[[int], Any],
    ) -> None:
        super().__init__(pipeline, 1, advance)
        self._cut = cut

    def count(self, documents: Iterable[Iterable[str]]) -> None:
        """Count all documents."""
        for texts in self._batches(documents):
            self._counts.update(itertools.chain.from_iterable(map(self._cut, texts)))


def _cut(chunks: Iterable[str], finder: core.TokenFinder) -> Iterator[str | None]:
    """Yield text, and None for each special token with the white space that it takes in."""
    for piece in finder.stream(chunks):
        yield piece if isinstance(piece, str) else None


def _check_share(source: Any, share: float) -> None:
    if source is None or isinstance(source, PretokenCounts):
        raise ValueError("there is no held-out text: pass text that training has not seen")
    if not 0 < share < 1:
        raise ValueError(f"held_out_share must be between 0 and 1, got {share!r}")


def _not_apart(total: int) -> ValueError:
    return ValueError(
        f"{counted(total, 'document')} can't be divided into training and held-out text; {_REMEDY}"
    )


def _is_apart(document: str, share: float) -> bool:
    """Return True if a document is held out: by its content only, so the order doesn't matter."""
    head = document[:_HEAD].encode("utf-8", "surrogatepass")
    drawn = int.from_bytes(hashlib.blake2b(head, digest_size=8).digest(), "big")
    return drawn < share * 2**64


def _by_lines(text: str, share: float) -> list[tuple[str, bool]]:
    """Cut a text into pieces that end with a line, and say whether each is held out.

    About `_PIECES` pieces are held out, at equal distances, because the beginning or the end of a
    text is often unlike the rest.  What is between two of them stays in one piece.
    """
    size = max(1, int(len(text) * share / _PIECES))
    found: list[tuple[str, bool]] = []
    start = end = held = 0  # `start` is the end of the last piece that is in `found`
    while end < len(text):
        begin = end
        end = text.find("\n", begin + size - 1) + 1 or len(text)
        is_last_chance = end == len(text) and not held and begin > 0
        if held + end - begin <= share * end or is_last_chance:
            if begin > start:
                found.append((text[start:begin], False))
            found.append((text[begin:end], True))
            held += end - begin
            start = end
    if start < len(text):
        found.append((text[start:], False))
    return found


def _note(pieces: Iterable[tuple[str, bool]]) -> str:
    """Say which part of a text that is one document is held out."""
    held = [len(piece) for piece, is_apart in pieces if is_apart]
    total = sum(len(piece) for piece, _ in pieces)
    return (
        f"the corpus is one document, so {percent(sum(held) / total)} of it was held out at line "
        f"ends, in {counted(len(held), 'piece')}; pass other text as --held-out, or the special "
        "token between documents as --special-tokens"
    )


def check_apart(source: Any, held_out: Any) -> None:
    """Raise ValueError if a held-out file is in the corpus, too."""
    corpus = {path.resolve() for path in _paths(source)}
    for path in _paths(held_out):
        if not corpus.isdisjoint([path.resolve(), *path.resolve().parents]):
            raise ValueError(f"{path} is in the corpus, so it is not held out; pass other text")


def _paths(corpus: Any) -> Iterator[Path]:
    """Yield the paths, distinguished from text as in `count_pretokens`."""
    items = corpus if isinstance(corpus, (list, tuple)) else [corpus]
    by_name = all(map(core.names_file, items))
    yield from (Path(item) for item in items if by_name or isinstance(item, os.PathLike))
