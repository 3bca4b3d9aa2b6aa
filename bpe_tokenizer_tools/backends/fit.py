"""Whether a tokenizer is the one a model was trained with.

A model takes any ids that are small enough, and answers nonsense to those of another
tokenizer; so what its files say is compared before its weights are loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools.backends.model_files import ModelFiles

_shorten = bpe_tokenizer._shorten
_EXAMPLES = 3


def check(tokenizer: BPETokenizer, files: ModelFiles) -> None:
    """Refuse a tokenizer that is not the model's.

    Compared are the number of ids with the rows of the model's embedding, which may have
    more; each token with that of the model's own tokenizer, if its files have one that is
    read here; and the bos and eos tokens with the ids they name.  A tokenizer may lack
    tokens that the model's own has.

    Raises:
        ValueError: what differs, and what to do.
    """
    vocab = tokenizer.get_vocab()
    highest = max(vocab.values(), default=-1)
    problems = []
    if highest >= files.rows:
        problems.append(f"it has ids up to {highest:,}, the model only {files.rows:,} of them")
    own, tokens = _own(files)
    if own is not None:
        problems += _differing_tokens(vocab, tokens)
    problems += _differing_roles(tokenizer, own, files)
    if not problems:
        return
    remedy = "use the tokenizer it was trained with"
    if own is not None:
        remedy = f"load the model's own: BPETokenizer.from_file({str(files.tokenizer)!r})"
    raise ValueError(
        f"this tokenizer does not fit the model {files.path}: {'; '.join(problems)}; {remedy}"
    )


def _differing_tokens(vocab: Mapping[str, int], tokens: Mapping[int, str]) -> list[str]:
    differing = [(id_, token) for token, id_ in vocab.items() if tokens.get(id_) != token]
    if not differing:
        return []
    examples = [
        f"id {id_} is {_shorten(token)}, the model's "
        + (_shorten(tokens[id_]) if id_ in tokens else "has none")
        for id_, token in differing[:_EXAMPLES]
    ]
    return [f"{len(differing):,} of {len(vocab):,} tokens differ ({', '.join(examples)})"]


def _differing_roles(
    tokenizer: BPETokenizer, own: BPETokenizer | None, files: ModelFiles
) -> list[str]:
    problems = []
    for role, said in (("bos", {files.bos_id}), ("eos", {*files.eos_ids})):
        found = getattr(tokenizer, f"{role}_token_id")
        expected = {*said, getattr(own, f"{role}_token_id", None)} - {None}
        if found is not None and expected and found not in expected:
            ids = " or ".join(map(str, sorted(expected, key=str)))
            problems.append(f"its {role} token has the id {found}, the model's {ids}")
    return problems


# -- The model's own ----------------------------------------------------------


def load_own(files: ModelFiles) -> BPETokenizer | None:
    """Return the tokenizer that a model brings; None if it brings none.

    Raises:
        FileFormatError: it brings one that cannot be represented exactly.
    """
    return None if files.tokenizer is None else BPETokenizer.from_file(files.tokenizer)


def _own(files: ModelFiles) -> tuple[BPETokenizer | None, Mapping[int, str]]:
    """Return the model's own tokenizer, if it can be read, and its tokens by id."""
    if files.tokenizer is None:
        return None, {}
    within = sorted(files.tokenizer.iterdir()) if files.tokenizer.is_dir() else [files.tokenizer]
    stats = [(file.name, file.stat()) for file in within if file.is_file()]
    stamp = tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
    return _read_own(files.tokenizer, stamp)


@functools.lru_cache(maxsize=2)  # a chat asks for it at every turn
def _read_own(path: Path, stamp: object) -> tuple[BPETokenizer | None, Mapping[int, str]]:
    try:
        own = BPETokenizer.from_file(path)
    except (FileFormatError, FileNotFoundError):
        return None, {}
    return own, {id_: token for token, id_ in own.get_vocab().items()}
