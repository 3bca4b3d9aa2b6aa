r"""How a text becomes ids, step by step: each cut, and each merge with its rank.

>>> from bpe_tokenizer import BPETokenizer
>>> tokenizer = BPETokenizer().train("low lower lowest low", 260, verbose=False)
>>> print(trace("slow low", tokenizer))
text            slow·low
special tokens  none
normalized      NFC changes nothing
pre-tokens      slow│·low
<BLANKLINE>
slow
  bytes         s│l│o│w
  rank 0        s│lo│w   l + o
  rank 1        s│low    lo + w
  ids           115 257
<BLANKLINE>
·low
  bytes         ·│l│o│w
  rank 0        ·│lo│w   l + o
  rank 1        ·│low    lo + w
  rank 2        ·low     · + low
  ids           258
<BLANKLINE>
3 ids           115 257 258
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.showing.page.template import fill
from bpe_tokenizer_tools.showing.view import shown
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.text import Printed, display_width

_LONGEST = 2_000  # characters: a trace is for reading, and its page must be drawn

# -- What is kept -----------------------------------------------------------------


class Part(NamedTuple):
    """An intermediate token: its id, and its bytes (or its text, if not byte-level)."""

    id: int
    data: bytes

    def __str__(self) -> str:
        return shown(self.data)


class Merge(NamedTuple):
    """Two neighbors become one."""

    rank: int  # the place of the merge in the list of merges
    at: int  # index of the left part, among those left by the merge before
    left: Part  # the part there
    right: Part  # the one after it
    made: Part  # the part that replaces both

    def apply(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the parts after it."""
        return (*parts[: self.at], self.made, *parts[self.at + 2 :])


class Pretoken(NamedTuple):
    """A piece of text that is encoded on its own."""

    text: str  # the piece
    start: tuple[Part, ...]  # the parts that merging begins with: bytes, or characters
    merges: tuple[Merge, ...]  # the merges, in the order they apply
    # a token that no merges make: tiktoken and others look for the whole piece first
    is_whole: bool

    def states(self) -> Iterator[tuple[Part, ...]]:
        """Yield the parts before the first merge, and after each."""
        return itertools.accumulate(
            self.merges, lambda parts, merge: merge.apply(parts), initial=self.start
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The tokens left after the last merge."""
        *_, last = self.states()
        return last


class Special(NamedTuple):
    """An added token, found in the text before it is cut."""

    text: str
    id: int


@dataclass(frozen=True)
class Trace(Printed):
    """All steps from a text to its ids; printing it shows them."""

    text: str  # the text as given
    normalizer: str | None  # the normalization: a form such as "NFC", "components", or None
    normalized: str  # the text after that
    pieces: Sequence[Pretoken | Special]  # the pre-tokens, and the special tokens between them
    unit: str = "bytes"  # what merging begins with, "bytes" or "characters"

    @property
    def ids(self) -> list[int]:
        """The ids, as `BPETokenizer.encode` gives them."""
        return [id_ for piece in self.pieces for id_ in _ids_of(piece)]

    def __str__(self) -> str:
        return self.render()

    def render(self, colors: bool = False) -> str:
        """Write the steps one below the other; with colors, each merge's result is colored."""
        return "\n".join(_lines(self, colors))

    def to_json(self) -> dict[str, Any]:
        """Return the steps as plain data.

        Each pre-token has the parts it begins with, and its merges; ``at`` is the index of a
        merge's left part among those left by the merge before.
        """
        return {
            "text": self.text,
            "shown": shown(self.text.encode()),
            "normalizer": self.normalizer,
            "normalized": self.normalized,
            "shown_normalized": shown(self.normalized.encode()),
            "unit": self.unit,
            "pieces": list(map(_piece_json, self.pieces)),
            "ids": self.ids,
        }

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page that goes through the steps; it needs no network and no other file."""
        outputs.check_file(path)
        template = Path(__file__).with_name("trace.html").read_text(encoding="utf-8")
        outputs.write({Path(path): fill(template, self.to_json())})


def _ids_of(piece: Pretoken | Special) -> list[int]:
    return [piece.id] if isinstance(piece, Special) else [part.id for part in piece.parts]


# -- How it comes about -------------------------------------------------------------


def trace(text: str, tokenizer: BPETokenizer, *, allowed_special: Any = "none") -> Trace:
    """Encode a text and keep every step.

    `allowed_special` is as for `BPETokenizer.encode`.

    >>> [merge.rank for merge in trace("aaa", BPETokenizer()).pieces[0].merges]
    []
    """
    if len(text) > _LONGEST:
        raise ValueError(
            f"trace takes texts of at most {_LONGEST:,} characters, got {len(text):,}; "
            "cut out the part that matters"
        )
    core.utf8_length(text)  # raises for a lone surrogate, with its place
    pipeline = core.pipeline(tokenizer, core.allowed(tokenizer, allowed_special))
    merger = _Merger(tokenizer)
    pieces: list[Pretoken | Special] = []
    for part, *_ in pipeline.parts(text):
        if isinstance(part, AddedToken):
            pieces.append(Special(part.content, part.id or 0))
        else:
            pieces += map(merger.trace, merger.cut(part))
    form = "components" if tokenizer.components else tokenizer.normalizer
    unit = "characters" if tokenizer.components else "bytes"
    return Trace(text, form, _normalized(text, pipeline), pieces, unit)


def _normalized(text: str, pipeline: core.Pipeline) -> str:
    """Normalize the text between the special tokens."""
    out, done = [], 0
    for begin, end, token, _ in pipeline.raw.find(text):
        if token:
            out += [pipeline.normalize(text[done:begin]), text[begin:end]]
            done = end
    return "".join([*out, pipeline.normalize(text[done:])])


class _Merger:
    """Cuts and merges as a tokenizer does, one step at a time."""

    def __init__(self, tokenizer: BPETokenizer) -> None:
        definition, self._encoder = tokenizer.definition, core.encoder(tokenizer)
        self._vocab, self._token = definition.vocab, self._encoder.tokens
        self._ranks = {pair: rank for rank, pair in enumerate(definition.merges)}
        self._whole = definition.vocab if definition.ignore_merges else {}
        self._chain: Any = getattr(self._encoder, "_chain", None)  # only where there are components
        self._pattern = definition.split_pattern
        self._symbols = core.symbols(tokenizer)

    def cut(self, text: str) -> list[str]:
        return self._chain.cut(text) if self._chain else core.splitter(self._pattern).split(text)

    def trace(self, pretoken: str) -> Pretoken:
        start = tuple(map(self._part, self._symbols(pretoken.encode())))
        merges = tuple(self._merges(list(start)))
        whole = self._whole.get(pretoken.encode())
        if whole is None or whole == (merges[-1].made if merges else start[0]).id:
            return Pretoken(pretoken, start, merges, False)
        return Pretoken(pretoken, (self._part(whole),), (), True)

    def _part(self, id_: int) -> Part:
        return Part(id_, self._token[id_])

    def _merges(self, parts: list[Part]) -> Iterator[Merge]:
        """Yield the merges that apply: always the lowest rank, the leftmost first."""
        none = len(self._ranks)
        ranks = [self._rank(*pair) for pair in itertools.pairwise(parts)]
        while ranks and (rank := min(ranks)) < none:
            at = ranks.index(rank)
            left, right = parts[at : at + 2]
            made = self._part(self._merged(rank, left, right))
            yield Merge(rank, at, left, right, made)
            parts[at : at + 2] = [made]
            first, last = max(at - 1, 0), min(at + 1, len(parts) - 1)
            near = parts[first : last + 1]
            ranks[first : at + 2] = [self._rank(*pair) for pair in itertools.pairwise(near)]

    def _rank(self, left: Part, right: Part) -> int:
        return self._ranks.get((left.id, right.id), len(self._ranks))

    def _merged(self, rank: int, left: Part, right: Part) -> int:
        if self._chain:
            encoder: Any = self._encoder
            return int(encoder._merged[rank])
        return self._vocab[left.data + right.data]


# -- How it is shown ------------------------------------------------------------------

_HEADS = 16  # columns of the headings at the left
_MADE, _FAINT, _RESET = "\033[38;5;16;48;5;157m", "\033[2m", "\033[0m"


def _lines(trace: Trace, colors: bool) -> Iterator[str]:
    special = [shown(piece.text.encode()) for piece in trace.pieces if isinstance(piece, Special)]
    yield _row("text", shown(trace.text.encode()))
    yield _row("special tokens", " ".join(special) or "none")
    yield _row("normalized", _normalizing(trace))
    yield _row("pre-tokens", "│".join(shown(piece.text.encode()) for piece in trace.pieces))
    known: set[str] = set()
    for piece in trace.pieces:
        yield ""
        if isinstance(piece, Special):
            yield _row(shown(piece.text.encode()), "")
            yield _row("  id", str(piece.id))
        elif piece.text in known:
            yield _row(f"{shown(piece.text.encode())}  as before", "")
        else:
            known.add(piece.text)
            yield from _pretoken_lines(piece, trace.unit, colors)
    yield ""
    ids = trace.ids
    yield _row(f"{len(ids)} id{'' if len(ids) == 1 else 's'}", " ".join(map(str, ids)))


def _normalizing(trace: Trace) -> str:
    if trace.normalizer is None:
        return "no"
    if trace.normalized != trace.text:
        return shown(trace.normalized.encode())
    return f"{'' if trace.normalizer == 'components' else f'{trace.normalizer} '}changes nothing"


def _row(head: str, text: str) -> str:
    return f"{head:<{_HEADS}}{text}".rstrip(" ")


def _pretoken_lines(piece: Pretoken, unit: str, colors: bool) -> Iterator[str]:
    yield shown(piece.text.encode())
    states = piece.states()
    parts = next(states)
    start = _around(parts, 0)[0]
    width = display_width(start) + 2
    yield _row("  whole" if piece.is_whole else f"  {unit}", start)
    for merge, parts in zip(piece.merges, states):
        line, made = _around(parts, merge.at)
        space = " " * max(2, width - display_width(line))
        joined = f"{merge.left} + {merge.right}"
        if colors:
            end = made + len(str(merge.made))
            line = f"{line[:made]}{_MADE}{line[made:end]}{_RESET}{line[end:]}"
            joined = f"{_FAINT}{joined}{_RESET}"
        yield _row(f"  rank {merge.rank}", line + space + joined)
    yield _row("  ids", " ".join(str(part.id) for part in parts))


_NEAR = 20  # parts to show on each side of one


def _around(parts: Sequence[Part], at: int) -> tuple[str, int]:
    """Write parts side by side, and return the column of the one at a place; leave out far ones."""
    first, end = max(0, at - _NEAR), at + _NEAR + 1
    cells = [*["…"] * (first > 0), *map(str, parts[first:end]), *["…"] * (end < len(parts))]
    before = cells[: at - first + (first > 0)]
    return "│".join(cells), sum(map(len, before)) + len(before)


def _piece_json(piece: Pretoken | Special) -> dict[str, Any]:
    if isinstance(piece, Special):
        return {"special": piece.text, "shown": shown(piece.text.encode()), "id": piece.id}
    return {
        "pretoken": piece.text,
        "shown": shown(piece.text.encode()),
        "is_whole": piece.is_whole,
        "start": list(map(_part_json, piece.start)),
        "merges": [
            {"rank": merge.rank, "at": merge.at, "made": _part_json(merge.made)}
            for merge in piece.merges
        ],
        "ids": _ids_of(piece),
    }


def _part_json(part: Part) -> dict[str, Any]:
    return {"id": part.id, "bytes": part.data.hex(), "shown": str(part)}
