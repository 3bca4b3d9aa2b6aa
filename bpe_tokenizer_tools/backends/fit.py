"""Whether a tokenizer is the one a model was trained with.

A model accepts all ids that are small enough, and answers the ids of another tokenizer with
nonsense.  So before its weights are loaded, the tokenizer is compared with its files.  The
model's own tokenizer is compared, too: a directory may contain files of two models.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.backends import model_files
from bpe_tokenizer_tools.backends.model_files import ModelFiles
from bpe_tokenizer_tools.checking.lint import Finding
from bpe_tokenizer_tools.core import shorten
from bpe_tokenizer_tools.support.files import status_of

_EXAMPLES = 3


def check(tokenizer: BPETokenizer, files: ModelFiles, is_own: bool = False) -> None:
    """Refuse a tokenizer that is not the model's, or has more ids than the model has rows.

    It compares the number of ids with the rows of the model's embedding, which may be more;
    each token with the same id in the model's own tokenizer, if it has one that can be read
    here; and the bos and eos tokens with the ids in the model's files.  A tokenizer may lack
    tokens that the model's own has.

    Args:
        tokenizer: the one to use.
        files: facts from the model's files.
        is_own: the model brings this tokenizer, so only ids and rows are compared.

    Raises:
        ValueError: what differs, and what to do.
    """
    problem = _misfit(tokenizer, files, is_own)
    if problem:
        raise ValueError(problem)


def findings(tokenizer: BPETokenizer, path: Path) -> list[Finding]:
    """Compare a tokenizer with the model in the same directory or file.

    Returns:
        An error, with the same text, for what `check` refuses; a warning for each role that
        config.json or generation_config.json gives to another token.
    """
    try:
        models = model_files.beside(path)
    except FileFormatError as error:
        return [Finding("error", MODEL, str(error))]
    found: list[Finding] = []
    for files in models:
        problem = _misfit(tokenizer, files, is_own=True)
        found += [Finding("error", MODEL, problem)] if problem else []
        found += [finding for role in files.said for finding in _role(tokenizer, files, role)]
    return list(dict.fromkeys(found))  # one config.json may have two kinds of weights


MODEL = "model"  # a finding by which the model can't run with the tokenizer


def _misfit(tokenizer: BPETokenizer, files: ModelFiles, is_own: bool) -> str:
    """Return why a tokenizer doesn't fit a model, and what to do; empty if it fits."""
    problems = []
    if tokenizer.max_id >= files.rows:
        last = tokenizer.convert_ids_to_tokens(tokenizer.max_id)
        problems.append(
            f"its ids go up to {tokenizer.max_id:,} ({shorten(last)}), but the model has "
            f"{files.rows:,} rows, for the ids 0 to {files.rows - 1:,}"
        )
    own: BPETokenizer | None = tokenizer
    if not is_own:
        own, tokens = _own(files)
        problems += _differing_tokens(tokenizer.get_vocab(), tokens) if own is not None else []
        problems += _differing_roles(tokenizer, own, files)
    if not problems:
        return ""
    remedy = "use the tokenizer it was trained with"
    if own is not None and own.max_id >= files.rows:
        remedy = (
            "the tokenizer and the weights come from different models, or tokens were added "
            "without resizing the embedding: take both from one model, or resize the embedding"
        )
    elif own is not None:
        remedy = f"load the model's own: BPETokenizer.from_file({str(files.tokenizer)!r})"
    shown = "; ".join(problems)
    return f"this tokenizer does not fit the model {files.path}: {shown}; {remedy}"


def _role(tokenizer: BPETokenizer, files: ModelFiles, role: str) -> Iterator[Finding]:
    """Compare the ids that config files give to a role with the tokenizer's token."""
    ids, token = files.said[role], getattr(tokenizer, f"{role}_token")
    own_id, known = getattr(tokenizer, f"{role}_token_id"), core.tokens(tokenizer)
    if all(id_ in known for id_ in ids) and (own_id is None or not ids or own_id in ids):
        return
    named = " and ".join(
        f"{id_} ({shorten(tokenizer.convert_ids_to_tokens(id_)) if id_ in known else 'no token'})"
        for id_ in ids
    )
    its = "none" if own_id is None else f"{shorten(token)}, id {own_id}"
    yield Finding(
        "warning",
        "model-roles",
        f"the model's config says {role}_token_id {named}; the tokenizer's {role} token is {its}",
        "fix whichever is wrong: config.json, generation_config.json or tokenizer_config.json",
    )


def _differing_tokens(vocab: Mapping[str, int], tokens: Mapping[int, str]) -> list[str]:
    differing = [(id_, token) for token, id_ in vocab.items() if tokens.get(id_) != token]
    if not differing:
        return []
    examples = [
        f"id {id_} is {shorten(token)}, the model's "
        + (shorten(tokens[id_]) if id_ in tokens else "has none")
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
    stamp = tuple((file.name, status_of(file)) for file in within if file.is_file())
    return _read_own(files.tokenizer, stamp)


@functools.lru_cache(maxsize=2)  # a chat asks for it at every turn
def _read_own(path: Path, stamp: object) -> tuple[BPETokenizer | None, Mapping[int, str]]:
    try:
        own = BPETokenizer.from_file(path)
    except (FileFormatError, FileNotFoundError):
        return None, {}
    return own, {id_: token for token, id_ in own.get_vocab().items()}
