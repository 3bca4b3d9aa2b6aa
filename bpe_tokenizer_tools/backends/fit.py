"""Whether a tokenizer is the one a model was trained with.

A model accepts all ids that are small enough, and answers the ids of another tokenizer with
nonsense.  So before its weights are loaded, the tokenizer is compared with its files.  The
model's own tokenizer is compared, too: a directory may contain files of two models.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.backends import model_files
from bpe_tokenizer_tools.backends.model_files import ModelFiles
from bpe_tokenizer_tools.checking.lint import Finding
from bpe_tokenizer_tools.core import shorten


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
    problem = core.misfit(tokenizer, files, is_own)
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
        problem = core.misfit(tokenizer, files, is_own=True)
        found += [Finding("error", MODEL, problem)] if problem else []
        found += [finding for role in files.said for finding in _role(tokenizer, files, role)]
    return list(dict.fromkeys(found))  # one config.json may have two kinds of weights


MODEL = "model"  # a finding by which the model can't run with the tokenizer


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


# -- The model's own ----------------------------------------------------------


def load_own(files: ModelFiles) -> BPETokenizer | None:
    """Return the tokenizer that a model brings; None if it brings none.

    Raises:
        FileFormatError: it brings one that cannot be represented exactly.
    """
    return None if files.tokenizer is None else BPETokenizer.from_file(files.tokenizer)
