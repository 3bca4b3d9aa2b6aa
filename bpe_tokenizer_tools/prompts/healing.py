"""The end of a prompt: which tokens a longer text would have there.

The tokens of "the captain's da" are not the first tokens of "the captain's daughter".  In a longer
text, the prompt's last token may end elsewhere, and a model has seen only tokens of whole texts.
So the ids at the end of a prompt are uncertain.  Three steps find those that are certain.

1. Pre-tokens.  Text before the last safe cut doesn't depend on what follows (`encode_streaming`
   uses the same cuts).  The rest is cut once with each witness after it.  Witnesses are short texts
   of the characters that the split pattern distinguishes.  That gives the possible borders.
2. Tokens.  In a pre-token, the tokens before a place are those of the bytes before it, whatever
   comes after it.  So a tokenization that covers the end of the prompt is a place in it, the
   tokens up to there, and one token that reaches the end or beyond: a range of `TokensByPrefix`.
3. Proof.  Each such tokenization is encoded, as it is and with witnesses after it.  It counts if
   `encode` gives exactly these tokens for one of these texts.  If its last two tokens, merged by
   themselves, give other tokens, it is impossible: BPE keeps two neighbors apart in a text if and
   only if it keeps them apart without the text around them.

Source: Hayase and others, "Sampling from your language model one byte at a time",
arXiv 2506.14123, for the covering tree and the next byte; the proof by witnesses is this module's.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import regex

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns import algebra
from bpe_tokenizer_tools.prompts.tokens_by_prefix import kept, trie
from bpe_tokenizer_tools.prompts.uncertain_ends import changes_from
from bpe_tokenizer_tools.training.sentencepiece_text import normalizer

# Characters that split patterns distinguish, common ones first.
_CHARACTERS = "a1 !\n'AzZ/s\r\t.,-_’“~(+9éÉßǅʰªºʼ中のカ゛゠・\u3099\u3040한กא\u0301\u0903\u20dd²Ⅷ٣𝟘"
_CHARACTERS += (
    "\x0b\x85\u00a0\u2028\u3000\x1c€…😀\0\x7f\u00ad\u200d\ue000\U00020000𐐀𐐨tdmlvreSTDMLVREſ"
)
_SOME = 4096  # characters to try as the completion of one whose last bytes are missing
_BATCH = 2**17  # texts to encode at once
_AHEAD = 2  # characters of a witness
_STEPS = (0, 1), (1, 16), (16, 256), (256, None)  # witnesses, in turn: usually few are needed

Ids = tuple[int, ...]
_Kinds = tuple[tuple[bool, ...], ...]  # of some characters: which parts of the pattern match each


@dataclasses.dataclass(frozen=True)
class CoveringTree:
    """All tokenizations that a prompt can have in a longer text.

    Attributes:
        ids: the first ids, which are the same in all of them.
        prefix: the rest of the prompt, in bytes: the following ids must begin with it.
        branches: ids after `ids` that end inside the prompt -> the ids that reach its end from
            there, or go beyond.  Empty if everything is certain.
    """

    ids: list[int]
    prefix: bytes
    branches: dict[Ids, list[int]]

    def __len__(self) -> int:
        return sum(map(len, self.branches.values()))

    def __iter__(self) -> Iterator[Ids]:
        """Yield the tokenizations of `prefix`."""
        return ((*front, last) for front, lasts in self.branches.items() for last in lasts)

    def after(self, path: Ids) -> list[int] | None:
        """Return the ids that may follow a path after `ids`; None for any, beyond the end."""
        found = list(self.branches.get(path, ()))
        n = len(path)
        found += {front[n] for front in self.branches if len(front) > n and front[:n] == path}
        return found or None


@dataclasses.dataclass
class Group:
    """Candidates that differ only in their last token.

    Attributes:
        front: the ids before that token.
        start: where that token begins, in bytes.
        lasts: its possible ids.
        ways: how the prompt can be cut to give it.
    """

    front: Ids
    start: int
    lasts: Sequence[int]
    ways: list[_Way] = dataclasses.field(default_factory=list)


class _Way(NamedTuple):
    """How a last token can follow a front.

    Attributes:
        joined: they are in one pre-token; otherwise the last token begins one.
        goes_on: the pre-token of the last token can reach beyond the end of the prompt.
        next_kinds: kinds of the character after the prompt, if any, in texts cut this way;
            None if unknown.
    """

    joined: bool
    goes_on: bool
    next_kinds: set[_Kinds] | None


class _Place(NamedTuple):
    """A pre-token that reaches the end of the prompt."""

    front: Ids  # before it
    start: int
    goes_on: bool
    token: int | None  # for an added token, its id


def heal(tokenizer: BPETokenizer, prompt: str | bytes) -> tuple[list[int], bytes]:
    """Return the ids that a prompt begins with in every longer text, and the bytes left over.

    A model that continues these ids, with tokens whose bytes begin with those left over, continues
    the prompt with no trace of where it was cut.

    Args:
        tokenizer: byte-level, or one of characters such as Llama 2's; ValueError for others.
        prompt: the text, or its first bytes, which may end inside a character.

    >>> tokenizer = BPETokenizer().train(["the the the th th"], 260, 1, verbose=False)
    >>> heal(tokenizer, "see th")  # " the" is one token, and " th" another
    ([115, 101, 101], b' th')
    """
    border, certain, tail = _at_the_end(tokenizer, prompt)
    ids, prefix = _certain(border, certain, tail)
    n = _lasting(tokenizer, border, prompt, ids)
    return ids[:n], border.spelled(ids[n:]) + prefix


def _certain(border: EndOfPrompt, certain: list[int], tail: bytes) -> tuple[list[int], bytes]:
    """Return the ids of all longer texts that normalizing doesn't change, and the bytes left."""
    shared: Ids | None = None
    for group in border.groups(tail):
        if shared is not None and group.front[: len(shared)] == shared:
            continue  # it can't change the shared ids
        for last in itertools.islice(border.valid(tail, group), 2):
            cover = (*group.front, last)
            shared = cover if shared is None else _shared([shared, cover])
    shared = border.inside(shared or (), tail)
    return [*certain, *shared], tail[border.length(shared) :]


def _lasting(
    tokenizer: BPETokenizer,
    border: EndOfPrompt,
    prompt: str | bytes,
    ids: list[int],
    begins: bool = True,
) -> int:
    """Return how many ids of a prompt stay, whatever normalizing does to its last characters.

    Any longer text begins with the part of the prompt that can't change any more.
    """
    if border.form is None:
        return len(ids)
    text, rest = decoded(prompt)
    at = changes_from(text, border.form)
    # Half a character stands between the text and what follows, unless it is one that joins.
    changes = _may_join(rest, border.form) if rest else at is not None
    if not changes:
        return len(ids)
    lasting, _ = _certain(*_at_the_end(tokenizer, text[:at], begins))
    return len(_shared([tuple(ids), tuple(lasting)]))


def covering_tree(tokenizer: BPETokenizer, prompt: str | bytes) -> CoveringTree:
    """Return all tokenizations that a prompt can have in a longer text; see `heal`."""
    return _tree(tokenizer, prompt)


def covering_tree_inside(tokenizer: BPETokenizer, data: bytes) -> CoveringTree:
    """Return the same for bytes that follow other tokens: no space is put before them."""
    return _tree(tokenizer, data, begins=False)


def _tree(tokenizer: BPETokenizer, prompt: str | bytes, begins: bool = True) -> CoveringTree:
    border, certain, tail = _at_the_end(tokenizer, prompt, begins)
    branches = border.branches(tail, border.groups(tail))
    covers = [(*front, last) for front, lasts in branches.items() for last in lasts[:2]]
    shared = border.inside(_shared(covers), tail)
    ids = [*certain, *shared]
    left = tail[border.length(shared) :]
    n = _lasting(tokenizer, border, prompt, ids, begins)
    prefix = border.spelled(ids[n:]) + left
    paths = {(*certain, *front): lasts for front, lasts in branches.items()}
    branches = {front[n:]: lasts for front, lasts in paths.items() if len(front) >= n}
    return CoveringTree(ids[:n], prefix, branches)


def next_byte_probabilities(
    tokenizer: BPETokenizer, logits_fn: Callable[[list[int]], Any], prompt: str | bytes
) -> Any:
    """Return how likely each byte is to follow a prompt, however its end is tokenized.

    It adds up the model's probabilities of all tokenizations that the prompt can have in a longer
    text, by the byte after the prompt.

    Args:
        tokenizer: as for `heal`.
        logits_fn: returns the logits of the id that follows some ids, such as `Backend.logits`.  If
            a model needs a bos token, or other ids before the prompt, the function adds them:
            ``lambda ids: model.logits([bos, *ids])``.
        prompt: the text, or its first bytes, which may end inside a character.

    Returns:
        A NumPy array of 257 numbers that add up to 1: one for each byte, and one for the end of the
        text; any special token counts as the end.

    Raises:
        ValueError: the model gives NaN, infinity, or no way to continue the prompt.
    """
    numpy = core.import_optional("numpy", "next_byte_probabilities", "numpy")
    border, certain, tail = _at_the_end(tokenizer, prompt)
    model = _Model(logits_fn, tokenizer, numpy)
    branches = border.branches(tail, border.groups(tail, beyond=True))
    whole = border.encoded(tail)
    fronts = [*branches, *([] if whole is None else [whole])]
    shared = _shared(fronts)
    before = [*certain, *shared]
    found: list[tuple[float, int, float]] = []  # log of the front's, byte, of the last token's
    for front, lasts in branches.items():
        path, at = front[len(shared) :], len(tail) - border.length(front)
        first = [border.token[last][at] for last in lasts]
        likely = numpy.bincount(first, model.probabilities([*before, *path])[lasts], 257)
        found += [(model.log(before, path), byte, likely[byte]) for byte in set(first)]
    if whole is not None:
        path = whole[len(shared) :]
        ends = model.probabilities([*before, *path])[model.special].sum()
        found.append((model.log(before, path), 256, ends))
    possible = [each for each in found if each[0] > -float("inf") and each[2] > 0]
    if not possible:
        raise ValueError("the model gives the prompt, or all that can follow, a probability of 0")
    highest = max(log for log, _, _ in possible)
    total = numpy.zeros(257)
    for log, byte, likely in possible:
        total[byte] += numpy.exp(log - highest) * likely
    return total / total.sum()


def _shared(paths: Sequence[Ids]) -> Ids:
    """Return the ids that all paths begin with."""
    if not paths:
        return ()
    low, high = min(paths), max(paths)
    n = next((i for i, (a, b) in enumerate(zip(low, high)) if a != b), min(len(low), len(high)))
    return low[:n]


class _Model:
    """A model's probabilities, each computed once."""

    def __init__(self, logits_fn: Callable[[list[int]], Any], tokenizer: BPETokenizer, numpy: Any):
        self._logits, self._numpy, self._rows = logits_fn, numpy, tokenizer.max_id + 1
        self.special = sorted(tokenizer.special_tokens.values())
        self._known: dict[Ids, Any] = {}

    def probabilities(self, ids: list[int]) -> Any:
        """Return how likely each id of the tokenizer is to follow others."""
        key = tuple(ids)
        if key not in self._known:
            logits = self._numpy.asarray(self._logits(list(ids)), self._numpy.float64)
            if logits.ndim != 1 or len(logits) < self._rows:
                expected = f"expected one for each of the {self._rows:,} ids"
                raise ValueError(f"logits_fn gave an array of {logits.shape}; {expected}")
            highest = logits[: self._rows].max()
            if not self._numpy.isfinite(highest):  # it is NaN if one of them is
                raise ValueError(f"the largest logit of logits_fn is {highest}, not finite")
            weights = self._numpy.exp(logits[: self._rows] - highest)
            self._known[key] = weights / weights.sum()
        return self._known[key]

    def log(self, before: list[int], path: Ids) -> float:
        """Return the logarithm of how likely some ids are to follow others."""
        with self._numpy.errstate(divide="ignore"):
            return sum(
                float(self._numpy.log(self.probabilities([*before, *path[:i]])[id_]))
                for i, id_ in enumerate(path)
            )


def _at_the_end(
    tokenizer: BPETokenizer, prompt: str | bytes, begins: bool = True
) -> tuple[EndOfPrompt, list[int], bytes]:
    """Return the vocabulary's `EndOfPrompt`, the ids up to the last safe cut, and the rest."""
    known = kept(tokenizer)
    if "border" not in known:
        make: Callable[[BPETokenizer], EndOfPrompt] = _BytesEnd
        if tokenizer.components is not None:
            from bpe_tokenizer_tools.prompts.component_healing import ComponentEnd as make
        known["border"] = make(tokenizer)
    border: EndOfPrompt = known["border"]
    return border, *border.certain(tokenizer, prompt, begins)


class EndOfPrompt:
    """Finds the possible tokenizations of a prompt's end.

    Attributes:
        token: the bytes of each id.
        form: the normal form of text, or the name of one of SentencePiece's rules; None if text
            stays as it is.
    """

    def __init__(self, token: Sequence[Any], form: str | None) -> None:
        self.token, self.form = token, form

    def certain(
        self, tokenizer: BPETokenizer, prompt: str | bytes, begins: bool
    ) -> tuple[list[int], bytes]:
        """Return the ids of a prompt up to the last place to cut, and the bytes after it.

        `begins` says whether the prompt is the beginning of a text.
        """
        raise NotImplementedError

    def encoded(self, tail: bytes) -> Ids | None:
        """Return the ids of a text that ends here; None inside a character."""
        raise NotImplementedError

    def groups(self, tail: bytes, beyond: bool = False) -> list[Group]:
        """Return all candidates, short fronts first; `beyond` asks for those that go beyond."""
        raise NotImplementedError

    def valid(self, tail: bytes, group: Group) -> Iterator[int]:
        """Yield the last tokens of a group with which some text has these ids."""
        raise NotImplementedError

    def length(self, ids: Iterable[int]) -> int:
        """Return the number of bytes of some ids."""
        return sum(map(self._size, ids))

    def _size(self, id_: int) -> int:
        return len(self.token[id_] or b"")

    def spelled(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of some ids."""
        return b"".join(self.token[id_] or b"" for id_ in ids)

    def inside(self, ids: Ids, tail: bytes) -> Ids:
        """Return ids without the last one, if it reaches beyond the end of the prompt."""
        return ids[:-1] if self.length(ids) > len(tail) else ids

    def branches(self, tail: bytes, groups: Iterable[Group]) -> dict[Ids, list[int]]:
        """Return the possible last tokens after each front."""
        found = {group.front: list(self.valid(tail, group)) for group in groups}
        return {front: lasts for front, lasts in found.items() if lasts}


class _BytesEnd(EndOfPrompt):
    """The end of a prompt for byte-level tokenizers."""

    def __init__(self, tokenizer: BPETokenizer) -> None:
        definition = tokenizer.definition
        super().__init__(tokenizer.token_bytes(), definition.normalizer)
        self._table = trie(tokenizer)
        self._inside = tokenizer
        if definition.prefix_space:  # text after a safe cut gets no space
            inside = dataclasses.replace(definition, prefix_space=False)
            self._inside = core.from_parts(inside, *core.rest(tokenizer), Path())
        self._prefix = b" " if definition.prefix_space else b""
        self._pipeline = core.pipeline(self._inside, frozenset())
        self._added = [token.content.encode() for token in self._pipeline.tokens]
        self._cut = core.cutter(self._inside)
        self._symbols, self._ranks = core.symbols(tokenizer), core.rank_pairs(definition.merges)
        token, vocab = core.tokens(tokenizer), definition.vocab
        self._merged = [vocab[token[left] + token[right]] for left, right in definition.merges]
        self._whole = vocab if definition.ignore_merges else {}
        self._merging = set(vocab.values())
        self._known: dict[bytes, Ids] = {}
        self._kind = _Kind(definition.split_pattern)
        self._witnesses = self._kind.witnesses()

    # -- What is certain --------------------------------------------------------------

    def certain(
        self, tokenizer: BPETokenizer, prompt: str | bytes, begins: bool
    ) -> tuple[list[int], bytes]:
        """Return the ids of a prompt up to the last safe cut, and the bytes after it."""
        text, rest = decoded(prompt)
        tokenizer = tokenizer if begins else self._inside
        ended = False

        def chunks() -> Iterator[str]:
            nonlocal ended
            yield text
            ended = True

        ids, tail = list[int](), ""
        for part in core.pipeline(tokenizer, frozenset()).stream(chunks()):
            if ended:
                tail += part.content if isinstance(part, AddedToken) else part
            elif isinstance(part, AddedToken):
                ids.append(part.id)  # type: ignore[arg-type]
            else:
                ids += core.encoder(tokenizer).encode(part)
        return ids, (tail.encode() if text or not begins else self._prefix) + rest

    def encoded(self, tail: bytes) -> Ids | None:
        """Return the ids of a text that ends here; None inside a character."""
        try:
            return tuple(self._inside.encode(tail.decode()))
        except UnicodeDecodeError:
            return None

    # -- Candidates -------------------------------------------------------------------

    def groups(self, tail: bytes, beyond: bool = False) -> list[Group]:
        """Return all candidates, short fronts first; `beyond` asks for those that go beyond."""
        found: dict[Ids, Group] = {}

        def add(front: Ids, start: int, lasts: Sequence[int], *way: Any) -> None:
            found.setdefault(front, Group(front, start, lasts)).ways.append(_Way(*way))

        everything = self._table.ids.tolist() if beyond else []
        for (front, start, goes_on, token), kinds in self._places(tail).items():
            pretoken = tail[start:]
            if token is not None:
                if goes_on or not beyond:
                    add(front, start, [token], False, goes_on, kinds)
                add((*front, token), len(tail), everything, False, True, kinds)
                continue
            for i in range(max(0, len(pretoken) - self._table.longest), len(pretoken)):
                lasts = self._table.tokens_with_prefix(pretoken[i:]).tolist()
                if beyond:
                    lasts = [last for last in lasts if self._size(last) > len(pretoken) - i]
                if lasts:
                    before = (*front, *self._merge(pretoken[:i]))
                    add(before, start + i, lasts, i > 0, goes_on, kinds)
            ids = self._merge(pretoken) if goes_on else self._encode(pretoken)
            joined = goes_on and bool(pretoken)
            add((*front, *ids), len(tail), everything, joined, True, kinds)
        groups = (group for group in found.values() if group.lasts)
        return sorted(groups, key=lambda group: len(group.front))

    def _places(self, tail: bytes) -> dict[_Place, set[_Kinds] | None]:
        """Return where the pre-token that reaches the end of the prompt may begin.

        With each come the kinds of the next characters in the texts that are cut so.
        """
        found: dict[_Place, set[_Kinds] | None] = {}
        if not tail:
            return {_Place((), 0, False, None): None}
        known = complete(tail) is not None
        # Added tokens come last: `groups` keeps the first, longer list of last tokens.
        for text in itertools.chain(self._continued(tail), self._with_added(tail)):
            pretokens = self._pretokens(text)
            if not b"".join(pretoken for pretoken, _ in pretokens).startswith(tail):
                continue  # normalized, it is another text
            front, start = list[int](), 0
            for pretoken, token in pretokens:
                end = start + len(pretoken)
                if end >= len(tail):
                    place = _Place(tuple(front), start, end > len(tail), token)
                    kinds = found.setdefault(place, set() if known else None)
                    if kinds is not None:
                        behind = self._kinds(text.encode()[len(tail) :].decode())
                        kinds.update(behind[:n] for n in range(len(behind) + 1))
                    break
                front += self._encode(pretoken) if token is None else [token]
                start = end
        return found

    def _kinds(self, text: str) -> _Kinds:
        """Return which parts of the pattern match the first character of a text, if it has one.

        No more than that: what a run of white space belongs to is decided by what ends it.
        """
        return tuple(map(self._kind.of, text[:1]))

    def _pretokens(self, text: str) -> list[tuple[bytes, int | None]]:
        """Cut a text; an added token comes with its id."""
        found: list[tuple[bytes, int | None]] = []
        for part, *_ in self._pipeline.parts(text):
            if isinstance(part, AddedToken):
                found.append((part.content.encode(), part.id))
            else:
                found += ((piece.encode(), None) for piece in self._cut(part))
        return found

    def _encode(self, pretoken: bytes) -> Ids:
        if (whole := self._whole.get(pretoken)) is not None:
            return (whole,)
        return self._merge(pretoken)

    def _merge(self, data: bytes) -> Ids:
        if data not in self._known:
            if len(self._known) > _BATCH:
                self._known.clear()
            ids = self._symbols(data)
            merge = core.merge_by_scanning if len(ids) <= core.SCAN_UP_TO else core.merge_by_heap
            self._known[data] = tuple(merge(ids, self._ranks, self._merged))
        return self._known[data]

    # -- Proof ------------------------------------------------------------------------

    def valid(self, tail: bytes, group: Group) -> Iterator[int]:
        """Yield the last tokens of a group with which some text has these ids."""
        lasts, some = iter(group.lasts), 64
        while tried := list(itertools.islice(lasts, some)):
            data = {last: tail[: group.start] + (self.token[last] or b"") for last in tried}
            for first, end in _STEPS:
                found = self._proven(group, data, first, end)
                yield from found
                data = {
                    last: start
                    for last, start in data.items()
                    if last not in found and (first or self._may_follow(group, last, tail))
                }
            some = _BATCH

    def _proven(
        self, group: Group, data: dict[int, bytes], first: int, end: int | None
    ) -> set[int]:
        """Return the last tokens that are proven possible by one of their continuations."""
        n, front, found = len(group.front), list(group.front), set[int]()
        texts = (
            (text, last)
            for last, start in data.items()
            for text in itertools.islice(self._continued(start), first, end)
        )
        while some := list(itertools.islice(texts, _BATCH)):
            encoded = self._inside.encode_ordinary_batch([text for text, _ in some])
            found |= {
                last
                for (_, last), ids in zip(some, encoded)
                if ids[n : n + 1] == [last] and ids[:n] == front
            }
        return found

    def _may_follow(self, group: Group, last: int, tail: bytes) -> bool:
        """Return whether more than one text is worth trying."""
        data, before = self.token[last] or b"", group.front[-1:]
        behind = data[len(tail) - group.start :]
        kinds = self._kinds(behind.decode(errors="ignore"))
        for way in group.ways:
            if behind and not way.goes_on:
                continue
            if way.next_kinds is not None and kinds not in way.next_kinds:
                continue
            if last not in self._merging:
                return True  # an added token
            if way.joined:
                if self._merge((self.token[before[0]] or b"") + data) == (*before, last):
                    return True
            elif data in self._whole or self._merge(data) == (last,):
                return True
        return False

    def _with_added(self, data: bytes) -> Iterator[str]:
        """Yield some bytes with the rest of each added token that may begin in them."""
        for content in self._added:
            for n in range(1, len(content)):
                if data.endswith(content[:n]) and (text := complete(data + content[n:])):
                    yield text

    def _continued(self, data: bytes) -> Iterator[str]:
        """Yield texts that begin with some bytes; none if these are not the beginning of a text."""
        text = complete(data)
        if text is not None:
            yield from (text + witness for witness in self._witnesses)
            return
        for end in (1, 2, 3):
            if (text := complete(data[:-end])) is not None:
                completed = [text + char for char in _completions(data[-end:])]
                yield from completed
                more = itertools.islice(self._witnesses, 1, 64)
                yield from (start + witness for witness in more for start in completed[:64])
                return


def decoded(prompt: str | bytes) -> tuple[str, bytes]:
    """Return the text of a prompt, and the first bytes of a character that ends it."""
    if isinstance(prompt, str):
        core.utf8_length(prompt)
        return prompt, b""
    if not isinstance(prompt, bytes):
        raise TypeError(f"prompt must be str or bytes, got {type(prompt).__name__}")
    for end in range(len(prompt), max(-1, len(prompt) - 4), -1):
        text, rest = complete(prompt[:end]), prompt[end:]
        if text is not None and (not rest or _completions(rest)):
            return text, rest
    raise ValueError(f"prompt doesn't begin with valid UTF-8 text: {core.shorten(prompt)}")


def complete(data: bytes) -> str | None:
    """Return the text of some bytes; None if they end inside a character."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def all_completions(start: bytes, most: int | None = None) -> Iterator[str]:
    """Yield all characters that begin with some bytes; or `most` of them, at equal distances."""
    size = 2 if 0xC2 <= start[0] < 0xE0 else 3 if 0xE0 <= start[0] < 0xF0 else 4
    missing = size - len(start)
    if not 0xC2 <= start[0] < 0xF5 or missing < 1:
        return
    code = start[0] & (0x7F >> size)
    for byte in start[1:]:
        code = code << 6 | byte & 0x3F
    n = 64**missing
    first = code << 6 * missing
    for code in range(first, min(first + n, 0x110000), max(1, n // most) if most else 1):
        if not 0xD800 <= code < 0xE000 and chr(code).encode().startswith(start):
            yield chr(code)


@functools.lru_cache(maxsize=2**10)
def _may_join(start: bytes, form: str) -> bool:
    """Return whether some character that begins with these bytes changes when normalized."""
    normalize = normalizer(form)
    return any(
        core.APART.match(char) is None or normalize(char) != char for char in all_completions(start)
    )


def _completions(start: bytes) -> list[str]:
    """Return characters that begin with some bytes, not all but of each kind, far apart first."""
    found = list(all_completions(start, _SOME))
    few = max(1, len(found) // 16)
    return found[::few] + [char for i, char in enumerate(found) if i % few]


class _Kind:
    """The kinds of characters that a split pattern distinguishes."""

    def __init__(self, pattern: str) -> None:
        printable = "".join(char for char in pattern if char.isprintable())
        self._characters = list(dict.fromkeys(_CHARACTERS + printable))
        self._match: list[Callable[[str], Any]] | None = None
        self._known: dict[str, tuple[bool, ...]] = {}
        try:
            leaves = sorted(algebra.leaves(algebra.PatternParser(pattern).parse()))
            self._match = [core.Pattern(leaf).match for leaf in leaves]
        except (algebra.UnknownConstructError, RecursionError, regex.error):
            pass  # each character counts as a kind of its own

    def of(self, char: str) -> tuple[bool, ...]:
        """Return which parts of the pattern match a character; nothing if it is unknown."""
        if char not in self._known:
            self._known[char] = tuple(match(char) is not None for match in self._match or ())
        return self._known[char]

    def witnesses(self) -> list[str]:
        """Return short texts of all kinds of characters, the empty one first."""
        characters = self._characters
        if self._match is not None:
            kinds: dict[tuple[bool, ...], list[str]] = {}
            for char in characters:
                kinds.setdefault(self.of(char), []).append(char)
            # Two of each kind: one may merge with what is before it.
            characters = [kind[0] for kind in kinds.values()]
            characters += (kind[-1] for kind in kinds.values() if len(kind) > 1)
        pairs = map("".join, itertools.product(characters, repeat=_AHEAD))
        return ["", *characters, *pairs, *(char * 3 for char in characters)]
