"""Fewer tokens for a tokenizer: those that a corpus uses least are taken out.

    pruned = tokenizer.prune("corpus.txt", vocab_size=32_000)
    pruned.save("pruned")                       # the tokenizer, and which id became which

Only leaves go: tokens that no merge builds on.  So each token that stays can still be made, and to
take one out is to take out the merges that make it.  Text that used it is encoded by the merges
that are left, and the tokens it is then made of are used more.

The pre-tokens that had a removed token are encoded again to count their tokens: to count its two
parts would not do, as these may merge with what is beside them.

Source: Purason and others, "Teaching Old Tokenizers New Words", arXiv 2512.03989, for the idea.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import json
import os
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from bpe_tokenizer import BPETokenizer, Definition
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.corpus.held_out import CorpusReader
from bpe_tokenizer_tools.support.text import say
from bpe_tokenizer_tools.support.transactions import save_files
from bpe_tokenizer_tools.vocabularies.pretokens import (
    Merger,
    check_counts,
    encode_pretokens,
    prefix_of,
    stand_ins,
)

_GONE = -1  # in an id map

# -- The result ----------------------------------------------------------------


@dataclass(frozen=True)
class Pruned:
    """What `prune` made."""

    tokenizer: BPETokenizer
    id_map: list[int]  # the new id of each old one; -1 for those removed, and for gaps
    removed: list[bytes] = field(repr=False)  # tokens, in the order in which they were
    tokens_before: int  # what the corpus took
    tokens_after: int  # what it takes now

    @functools.cached_property
    def unreachable(self) -> list[bytes]:
        """Tokens left that no text gives; pruning makes none, but does not remove all."""
        from bpe_tokenizer_tools.checking.lint import unreached

        found = unreached(self.tokenizer)
        return [token for why, tokens in found.items() if why != "flag" for token in tokens]

    def save(self, directory: str | os.PathLike[str], verbose: bool | None = None) -> None:
        """Save the tokenizer, and the id map as id_map.json and id_map.npy, all files or none."""
        folder = Path(directory)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder}: is a file; save needs a directory")
        files: dict[Path, str | bytes | None] = {**core.files_to_save(self.tokenizer, folder)}
        files[folder / "id_map.json"] = json.dumps(self.id_map)
        files[folder / "id_map.npy"] = _npy(self.id_map)
        folder.mkdir(parents=True, exist_ok=True)
        save_files(files)
        if core.is_watched(verbose):
            say(f"Saved {self.tokenizer.vocab_size:,} tokens to {folder}", sys.stderr)

    def __str__(self) -> str:
        left, more = self.tokenizer.vocab_size, self.tokens_after - self.tokens_before
        share = f" ({more / self.tokens_before:.1%})" if self.tokens_before else ""
        return f"{len(self.removed):,} tokens removed, {left:,} left; {more:,} more tokens{share}"


def _npy(numbers: list[int]) -> bytes:
    """Write ints as numpy.save does: little-endian, of 64 bits."""
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({len(numbers)},), }}"
    start = b"\x93NUMPY\x01\x00"
    padded = header.ljust(-(len(start) + 2 + len(header) + 1) % 64 + len(header)) + "\n"
    content = struct.pack(f"<{len(numbers)}q", *numbers)
    return start + struct.pack("<H", len(padded)) + padded.encode() + content


# -- Pruning -------------------------------------------------------------------


def prune(
    tokenizer: BPETokenizer,
    corpus: Any = None,
    *,
    counts: Mapping[bytes, int] | None = None,
    vocab_size: int | None = None,
    min_count: int | None = None,
    keep: Iterable[int | str | bytes] = (),
    num_workers: int | None = None,
    text_field: str = "text",
    verbose: bool | None = None,
) -> Pruned:
    """Remove the tokens that a corpus uses least; the given tokenizer stays as it is.

    Of the tokens that no merge builds on, the one used least goes first; of equals, the one whose
    merge was learned last.  Bytes, characters, added tokens, and the unknown token stay.  Uses are
    counted again after each removal.  The tokens that are left get new ids without gaps, in the
    order of the old ones.

    Text is encoded as by the old tokenizer without the merges of the removed tokens.

    Args:
        tokenizer: BPE of any kind that can be loaded.
        corpus, num_workers, text_field: text of the kind to encode, as for `count_pretokens`;
            added tokens in it are not counted.
        counts: of pre-tokens, instead of a corpus.
        vocab_size: number of tokens to keep, added ones included.
        min_count: tokens that occur as often stay.  With `vocab_size`, whichever stops first.
        keep: tokens that stay, by id, as vocabulary files write them ("Ġthe"), or by their bytes.
        verbose: show progress and a summary on stderr.

    Raises:
        TypeError: there is no corpus, or neither size nor count, or an argument of another type.
        ValueError: the corpus is empty; counts were made in another way; or so few tokens can't be.
        FileNotFoundError, FileFormatError, ImportError: see `count_pretokens`.

    >>> tokenizer = BPETokenizer().train("low lower lowest " * 9, vocab_size=262, verbose=False)
    >>> pruned = prune(tokenizer, "low low lowest", vocab_size=260, verbose=False)
    >>> pruned.removed, pruned.id_map[256:], pruned.tokenizer.tokenize("low lowest")
    ([b' lower', b'st'], [256, 257, 258, 259, -1, -1], ['low', 'Ġlowe', 's', 't'])
    """
    _check(tokenizer, corpus, counts, vocab_size, min_count)
    kept = {_id_of(token, tokenizer) for token in _listed(keep)}
    verbose = core.is_watched(verbose)
    reader = CorpusReader(tokenizer, None, num_workers, text_field, verbose)
    found = reader.count(corpus) if counts is None else check_counts(reader, counts)
    if not any(found.values()):
        raise ValueError(core.EMPTY)
    leaves = _Leaves(tokenizer, found, kept)
    before, smallest = leaves.n_tokens, 0 if vocab_size is None else vocab_size
    size, removed = tokenizer.vocab_size, list[bytes]()
    with core.progress("pruning", "token", None, verbose) as advance:
        while size - len(removed) > smallest:
            token = leaves.remove_least(min_count)
            if token is None:
                break
            removed.append(token)
            advance(1)
    left = size - len(removed)
    if vocab_size is not None and min_count is None and left > vocab_size:
        stay = "bytes or characters, added tokens, those to keep, and their parts"
        raise ValueError(f"vocab_size is {vocab_size}, but must be at least {left}: {stay} stay")
    definition, id_map = _renumbered(tokenizer, leaves.merger)
    made = core.remade(tokenizer, definition)
    result = Pruned(made, id_map, removed, before, leaves.n_tokens)
    if verbose:
        say(f"Pruned: {result}", sys.stderr)
    return result


def _check(
    tokenizer: BPETokenizer, corpus: Any, counts: Any, vocab_size: Any, min_count: Any
) -> None:
    if (corpus is None) == (counts is None):
        raise TypeError("prune() takes a corpus or counts=..., one of the two")
    if vocab_size is None and min_count is None:
        raise TypeError("prune() takes vocab_size=..., min_count=..., or both")
    core.check_size("vocab_size", vocab_size, 1)
    core.check_size("min_count", min_count, 0)
    if vocab_size is not None and vocab_size > tokenizer.vocab_size:
        has = f"this tokenizer has {tokenizer.vocab_size}"
        raise ValueError(f"vocab_size is {vocab_size}, but {has}; pass a smaller one")


def _listed(keep: Any) -> list[Any]:
    if isinstance(keep, (str, bytes, bytearray)) or not isinstance(keep, Iterable):
        raise TypeError(f"keep must be a list of tokens, got {core.shorten(keep)}")
    return list(keep)


def _id_of(token: Any, tokenizer: BPETokenizer) -> int:
    """Return the id of a token that is to be kept."""
    definition = tokenizer.definition
    found = None
    if type(token) is int:
        found = token if token in core.tokens(tokenizer) else None
    elif isinstance(token, bytes):
        found = definition.vocab.get(token)
    elif isinstance(token, str):
        added = core.added(tokenizer).get(token)
        found = added.id if added else definition.vocab.get(definition.read(token) or b"")
    else:
        raise TypeError(f"keep: expected ids, strings or bytes, got {core.shorten(token)}")
    if found is None:
        raise ValueError(f"keep: {core.shorten(token)} is not a token of this tokenizer")
    return found


class _Leaves:
    """The tokens that no merge builds on, and how often counted pre-tokens use each token."""

    def __init__(
        self, tokenizer: BPETokenizer, counts: Mapping[bytes, int], kept: set[int]
    ) -> None:
        self.merger = merger = Merger(tokenizer)
        self._rank = {id_: rank for rank, id_ in enumerate(merger.merged)}  # the last that makes it
        self._making: dict[int, list[tuple[int, int]]] = {}
        self._builds_on: Counter[int] = Counter()  # how many merges a token is part of
        for pair, rank in merger.pairs():
            self._making.setdefault(merger.merged[rank], []).append(pair)
            self._builds_on.update({*pair})
        self._staying = kept.union(_staying(tokenizer))
        self._uses: Counter[int] = Counter()
        self._words = [pretoken for pretoken, count in counts.items() if count > 0]
        self._freqs = [count for count in counts.values() if count > 0]
        self._ids = list(encode_pretokens(tokenizer, self._words))
        self._where: dict[int, list[int]] = {}
        for i, ids in enumerate(self._ids):
            self._use(ids, self._freqs[i])
            self._find(i, ids)
        self.n_tokens = self._uses.total()
        self._heap = [self._entry(id_) for id_ in merger.token if self._may_go(id_)]
        heapq.heapify(self._heap)

    def _use(self, ids: list[int], freq: int) -> None:
        for id_ in ids:
            self._uses[id_] += freq

    def _find(self, i: int, ids: Iterable[int]) -> None:
        for id_ in {*ids}:
            self._where.setdefault(id_, []).append(i)

    def _entry(self, id_: int) -> tuple[int, int, int]:
        return self._uses[id_], -self._rank.get(id_, sys.maxsize), -id_

    def _may_go(self, id_: int) -> bool:
        there = id_ in self.merger.token and id_ not in self._staying
        return there and not self._builds_on[id_]

    def remove_least(self, min_count: int | None) -> bytes | None:
        """Remove the leaf that is used least; None if all are used often enough, or must stay."""
        while self._heap:
            uses, _, negative = entry = self._heap[0]
            if not self._may_go(-negative) or entry != self._entry(-negative):
                heapq.heappop(self._heap)
            elif min_count is not None and uses >= min_count:
                return None
            else:
                return self._remove(-negative)
        return None

    def _remove(self, id_: int) -> bytes:
        token = self.merger.remove(id_, self._making.get(id_, []))
        changed: set[int] = set()
        for pair in self._making.get(id_, []):
            self._builds_on.subtract({*pair})
            changed.update(pair)
        for i in self._where.pop(id_, []):
            if id_ in (ids := self._ids[i]):  # an earlier removal may have changed the word
                changed.update(self._encode_again(i, ids))
        for other in changed:
            if self._may_go(other):
                heapq.heappush(self._heap, self._entry(other))
        return token

    def _encode_again(self, i: int, ids: list[int]) -> Iterator[int]:
        """Encode a word without what was removed; yield the tokens whose uses change."""
        new, freq = self.merger.encode(self._words[i]), self._freqs[i]
        self._use(ids, -freq)
        self._use(new, freq)
        self._find(i, {*new}.difference(ids))
        self.n_tokens += freq * (len(new) - len(ids))
        self._ids[i] = new
        yield from {*ids, *new}


def _staying(tokenizer: BPETokenizer) -> set[int]:
    """Return the ids that are never removed: what merging starts from, and added tokens."""
    definition = tokenizer.definition
    model = (tokenizer.components or {}).get("model", {})
    prefix, suffix = prefix_of(tokenizer).decode(), model.get("end_of_word_suffix") or ""
    marker = model.get("end_of_word_marker")
    found = {cast("int", token.id) for token in definition.added} | stand_ins(tokenizer)
    for token, id_ in definition.vocab.items():
        written = definition.write(token)
        if len(written.removeprefix(prefix).removesuffix(suffix)) <= 1 or written == marker:
            found.add(id_)
    return found


def _renumbered(tokenizer: BPETokenizer, merger: Merger) -> tuple[Definition, list[int]]:
    """Return the definition that is left, with new ids, and which old id became which."""
    definition = tokenizer.definition
    added = [cast("int", token.id) for token in definition.added]
    id_map = [_GONE] * (tokenizer.max_id + 1)
    for new, old in enumerate(sorted({*merger.token, *added})):
        id_map[old] = new
    around: Any = definition.template
    if not isinstance(around, str):
        around = tuple(tuple(id_map[id_] for id_ in side) for side in around)
    tokens = [
        dataclasses.replace(each, id=id_map[cast("int", each.id)]) for each in definition.added
    ]
    left_over = dict(merger.pairs())
    merges = [pair for pair in definition.merges if pair in left_over]
    changes: Any = {
        "vocab": {token: id_map[id_] for token, id_ in merger.vocab.items()},
        "merges": [(id_map[left], id_map[right]) for left, right in merges],
        "added": core.by_id(tokens),
        "template": around,
    }
    return dataclasses.replace(definition, **changes), id_map
