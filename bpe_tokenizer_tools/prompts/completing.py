"""Continue a text with a model, as if the prompt had not been cut off.

    complete(tokenizer, "The dog sat on th", "model.gguf")

This heals the prompt: it removes the last ids, and at first samples only tokens that spell the same
text, or more (see `healing`).
"""

from __future__ import annotations

import codecs
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.prompts.healing import (
    CoveringTree,
    Ids,
    covering_tree,
    covering_tree_inside,
)

_UNKNOWN = "\ufffd".encode()
# A byte that is not UTF-8, except at the end, where more may come.
_BROKEN = re.compile("[\udc80-\udcff](?=[^\udc80-\udcff])")


class HealedDraw:
    """Samples ids as `core.Sampling` does, but at first only those in a tree of tokenizations.

    Args:
        how: how to sample.
        tree: the possible tokenizations of the prompt's end.
    """

    def __init__(self, how: core.Sampling, tree: CoveringTree) -> None:
        self.seed, self._how, self._tree = how.seed, how, tree
        self._path: Ids | None = ()  # None: beyond the end of the prompt

    def draw(self, logits: Any, random: Any) -> int:
        """Sample an id with a NumPy random generator."""
        allowed = None if self._path is None else self._tree.after(self._path)
        if allowed is None:
            self._path = None
            return self._how.draw(logits, random)
        masked = logits.copy()
        masked[:] = -float("inf")
        masked[allowed] = logits[allowed]
        id_ = self._how.draw(masked, random)
        self._path = (*(self._path or ()), id_)
        return id_


def heal_ids(tokenizer: BPETokenizer, ids: list[int]) -> CoveringTree:
    """Return the possible tokenizations of the text at the end of some ids; see `covering_tree`.

    Ids up to the last added token stay: no text merges with it.  Ids that spell the text of such a
    token, because somebody typed it, stay too.  So do other ids that aren't canonical, if they end
    where ids of the tree end.
    """
    pieces = _pieces(tokenizer)
    start = _after_added(tokenizer, ids, pieces)
    if start == len(ids):
        return CoveringTree(ids, b"", {})
    tree = covering_tree_inside(tokenizer, _joined(pieces, ids[start:]))
    given, made = _ends(pieces, ids[start:]), _ends(pieces, tree.ids)
    shared = max(given.keys() & made.keys())
    certain = [*ids[: start + given[shared]], *tree.ids[made[shared] :]]
    return CoveringTree(certain, tree.prefix, tree.branches)


def _pieces(tokenizer: BPETokenizer) -> Mapping[int, bytes]:
    """Return the bytes that each id adds to a text."""
    if tokenizer.components is None:
        return core.tokens(tokenizer)
    return {id_: piece or b"" for id_, piece in enumerate(tokenizer.token_bytes())}


def _joined(pieces: Mapping[int, bytes], ids: Iterable[int]) -> bytes:
    return b"".join(pieces.get(id_, _UNKNOWN) for id_ in ids)


def _after_added(tokenizer: BPETokenizer, ids: list[int], pieces: Mapping[int, bytes]) -> int:
    """Return the number of ids up to the last added token, its text, or broken UTF-8."""
    added = {token.id for token in tokenizer.added_tokens}
    start = max((i + 1 for i, id_ in enumerate(ids) if id_ in added), default=0)
    text = _joined(pieces, ids[start:]).decode(errors="surrogateescape")
    end = max((match.end() for match in _BROKEN.finditer(text)), default=0)
    found = core.one_of(
        token.content for token in core.pipeline(tokenizer, frozenset()).tokens
    ).finditer(text)
    end = max([end, *(match.end() for match in found)])
    if not end:
        return start
    size = len(text[:end].encode(errors="surrogateescape"))
    ends = _ends(pieces, ids[start:])
    return start + ends[min(place for place in ends if place >= size)]


def _ends(pieces: Mapping[int, bytes], ids: Iterable[int]) -> dict[int, int]:
    """Return where ids end, in bytes: place -> number of ids up to there."""
    places = itertools.accumulate((len(pieces.get(id_, _UNKNOWN)) for id_ in ids), initial=0)
    return {place: n for n, place in enumerate(places)}


def from_a_character(tokenizer: BPETokenizer, tree: CoveringTree) -> CoveringTree:
    """Return a tree whose prefix begins with a whole character; ids move to the branches."""
    while tree.prefix and 0x80 <= tree.prefix[0] < 0xC0:
        *ids, last = tree.ids
        branches = {(last, *front): lasts for front, lasts in tree.branches.items()}
        tree = CoveringTree(ids, _pieces(tokenizer)[last] + tree.prefix, branches)
    return tree


def beyond(
    tokenizer: BPETokenizer, ids: Iterable[int], prefix: bytes, before: Sequence[int] = ()
) -> Iterator[str]:
    """Decode ids as they come, without their first bytes (`prefix`) and special tokens.

    If the ids `before` them end inside a character, it is given whole, as soon as it is complete.
    """
    special, known = set(tokenizer.special_tokens.values()), _pieces(tokenizer)

    def pieces() -> Iterator[bytes]:
        left = len(prefix)
        for id_ in ids:
            piece = b"" if id_ in special else known.get(id_, _UNKNOWN)
            yield piece[left:]
            left = max(0, left - len(piece))

    last = _joined(known, before[-3:])[-3:]
    _, size = codecs.utf_8_decode(last, "ignore", False)  # up to a character that has only begun
    raw = _completed(last[size:], pieces()) if last[size:] else pieces()
    handler = core.encoder(tokenizer).handler("replace")
    yield from filter(None, codecs.iterdecode(raw, "utf-8", handler))


def _completed(begun: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Put the first bytes of a character before the rest; leave them out if it isn't the rest."""
    size = 2 + (begun[0] >= 0xE0) + (begun[0] >= 0xF0)
    raw = begun
    while len(raw) < size and (piece := next(pieces, None)) is not None:
        raw += piece
    try:
        raw[:size].decode()
    except UnicodeDecodeError:
        raw = raw[len(begun) :]
    yield raw
    yield from pieces


_SAMPLING = ("max_new_tokens", "temperature", "top_p", "top_k", "seed", "timeout")


def complete(
    tokenizer: BPETokenizer,
    prompt: str | list[int],
    model: str | os.PathLike[str],
    *,
    heal: bool = True,
    stop: str | Iterable[str] = (),
    stream: bool = False,
    backend: Any = None,
    n_gpu_layers: int = -1,
    n_ctx: int = 8192,
    **sampling: Any,
) -> Any:
    """Return a model's continuation of a text; with ``stream=True``, an iterator of pieces.

    Args:
        prompt: a text, which gets the tokenizer's bos if it adds one; or ids, such as those of
            ``apply_chat_template(messages, continue_final_message=True)``.
        model: a .gguf file, or a directory with safetensors or an OpenVINO model.
        heal: let the model also choose the tokens at the end of the prompt, so that it doesn't
            matter where the prompt ends.  They count as new tokens.
        stop: end before the first place where one of these strings begins.
        backend: how to run the model; None takes the best one installed.
        n_gpu_layers: number of layers to run on a GPU; -1 for all.
        n_ctx: context size in tokens, for prompt and answer; 0 for the model's own.
        **sampling: ``max_new_tokens``, ``temperature``, ``top_p``, ``top_k``, ``seed`` and
            ``timeout`` of `Backend.generate`.

    Raises:
        ValueError: the tokenizer isn't the model's, or can't be healed (``heal=False`` works); or
            there is no id to begin from.
    """
    from bpe_tokenizer_tools import backends
    from bpe_tokenizer_tools.backends import checks, fit

    names = [*_SAMPLING, "heal", "stop", "stream", "backend", "n_gpu_layers", "n_ctx"]
    core.check_options("complete()", sampling, names, lambda _: False)
    stop_texts = checks.stop_texts(stop)
    if isinstance(prompt, Mapping):
        raise TypeError("prompt must be a text or ids, got a dict; pass its input_ids")
    fit.check(tokenizer, backends.find(model, backend))
    opened = backends.open_model(model, backend, n_gpu_layers=n_gpu_layers, n_ctx=n_ctx)
    if not heal:
        before = core.around(tokenizer)[0] if isinstance(prompt, str) else ()
        given = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        tree = CoveringTree([*before, *given], b"", {})
    elif isinstance(prompt, str):
        tree = covering_tree(tokenizer, prompt)
        tree = CoveringTree([*core.around(tokenizer)[0], *tree.ids], tree.prefix, tree.branches)
    else:
        tree = heal_ids(tokenizer, core.plain_ids(prompt))
    if not tree.ids:
        problem = "the first token of the prompt may still change, and no token comes before it"
        raise ValueError(f"{problem}: pass ids that begin with a special token, or heal=False")
    stops = opened.stop_ids | {tokenizer.eos_token_id}
    stop_ids = frozenset(id_ for id_ in stops if id_ is not None and id_ < opened.vocab_rows)
    rows = tokenizer.max_id + 1
    ids = opened.generate(tree.ids, stop_ids=stop_ids, n_tokens=rows, healed=tree, **sampling)
    generated = (id_ for id_ in ids if id_ not in stop_ids)
    said = beyond(tokenizer, generated, tree.prefix, () if tree.prefix else tree.ids)
    pieces = core.until(said, stop_texts)
    return pieces if stream else "".join(pieces)
