"""What the files beside a vocabulary in a foreign format mean for it.

The module reads these files, see its section "The files beside it".  They declare tokens, roles
and templates; a vocabulary has tokens and roles of its own.  Here both become one, as in
transformers:

- A declared token whose text the vocabulary has gets the id that it has there.
- Another one keeps the id that its file gives, if that is free, so there may be gaps; or else it
  gets the next one, after all others.
- A role that a file names wins, even if it names null.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer import AddedToken, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import surrounding
from bpe_tokenizer_tools.formats.classes import PAD_LEFT, Named
from bpe_tokenizer_tools.support import transactions

_CORRUPTS = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"


class Beside(NamedTuple):
    """The files beside a vocabulary."""

    side: core.SideFiles
    model: core.JsonReader  # config.json, of which only the kind of model counts
    named: Named

    @property
    def config(self) -> core.JsonReader:
        """Return the content of tokenizer_config.json."""
        return self.side.config

    @property
    def speaks(self) -> bool:
        """Whether a file says anything about tokens or roles."""
        return bool(self.config.data or self.side.names or self.side.tokens)

    @property
    def settings(self) -> dict[str, Any]:
        """Return lengths, sides, and what `save` writes again."""
        # `save` drops the class, so a side that only the class decides is kept as if it were named.
        sides = {"padding_side": "left"} if self.named.loaded_as in PAD_LEFT else {}
        return {**sides, **(self.side.settings if self.speaks else {})}

    @property
    def declares_ids(self) -> bool:
        """Whether a file gives tokens ids."""
        return any(token.id is not None for token in self.side.tokens.values())

    def flag(self, key: str, default: bool | None = None) -> bool | None:
        """Return a flag of tokenizer_config.json; null is None."""
        value: bool | None = self.config.get(key, bool, None, default=default)
        return value

    def names_role(self, role: str) -> bool:
        """Whether a file names a role's token, or says that there is none."""
        older = None if self.side.has_decoder else self.side.names
        return role in self.config.data or (older is not None and role in older.data)

    def roles(self, defaults: Mapping[str, str]) -> dict[str, str]:
        """Return role -> token: what the files name; else those of the vocabulary or class."""
        kept = {role: text for role, text in defaults.items() if not self.names_role(role)}
        found = {**kept, **self.side.roles}
        return {role: found[role] for role in core.ROLES if role in found}


def paths(folder: Path) -> list[Path]:
    """Return the files beside a vocabulary that are read with it."""
    return [*core.side_files(folder), folder / "config.json"]


def read(path: Path) -> Beside:
    """Read the files beside a vocabulary."""
    return of(path.parent, transactions.read_files(paths(path.parent)))


def of(folder: Path, files: Mapping[Path, bytes]) -> Beside:
    """Read files beside a vocabulary, given their contents."""
    model_path = folder / "config.json"
    model = core.JsonReader({}, model_path)
    if model_path in files:
        model = core.JsonReader.open(model_path, files[model_path])
    others = {path: raw for path, raw in files.items() if path != model_path}
    side = core.read_side_files(folder, others)
    found = Beside(side, model, Named.of(side.config, model))
    if found.flag(_CORRUPTS) and found.flag("clean_up_tokenization_spaces"):
        problem = "is true, but decoding never removes spaces here; set it to false"
        raise side.config.error(problem, _CORRUPTS)
    return found


def number(
    tokens: Iterable[AddedToken], ids: Mapping[str, int], taken: Iterable[int] = ()
) -> dict[str, AddedToken]:
    """Return tokens, by their text, with the ids that they get.

    Args:
        tokens: in the order in which transformers adds them.
        ids: those of the vocabulary's tokens, by their text.
        taken: further ids that no token may get.
    """
    used = {*ids.values(), *taken}
    after = max(used, default=-1) + 1
    found: dict[str, AddedToken] = {}
    for token in tokens:
        id_ = ids.get(token.content, token.id)
        if token.content not in ids and id_ in used:
            id_ = None
        id_ = after if id_ is None else id_
        used.add(id_)
        after = max(after, id_ + 1)
        found[token.content] = dataclasses.replace(token, id=id_)
    return found


def declared(
    beside: Beside, roles: Mapping[str, str], given: Mapping[str, int] | None = None
) -> Iterator[AddedToken]:
    """Yield the declared tokens in the order in which transformers adds them.

    First those with ids, by id; then those with roles, in the order of its attributes; then others.
    `given` are the caller's.
    """
    others = dict(beside.side.tokens)
    tokens: dict[str, AddedToken] = {}
    for role in core.ROLE_ORDER:
        text = roles.get(f"{role}_token")
        if text is not None and text not in tokens:
            tokens[text] = others.pop(text, AddedToken(text))
    tokens |= others
    for text, id_ in (given or {}).items():
        known = tokens.get(text) or AddedToken(text)
        tokens[text] = dataclasses.replace(known, id=id_, special=True)
    by_id = [token for token in tokens.values() if token.id is not None]
    yield from sorted(by_id, key=lambda token: token.id or 0)
    yield from (token for token in tokens.values() if token.id is None)


def check_given(
    path: Path, given: Mapping[str, int] | None, tokens: Mapping[str, AddedToken]
) -> None:
    """Raise if a token that the caller passes couldn't get its id."""
    for text, id_ in (given or {}).items():
        if tokens[text].id != id_:
            raise FileFormatError(
                path,
                "",
                f"special_tokens: {core.shorten(text)} can't get the id {id_}: another token has "
                f"it, or this one has another id in the files; pass {tokens[text].id}",
            )


def surround(beside: Beside) -> str:
    """Return what the flags ask for around a text, as the option `surround` says it."""
    ends = [end for end in ("bos", "eos") if beside.flag(f"add_{end}_token")]
    return "+".join(ends) or "none"


def around(
    beside: Beside,
    roles: Mapping[str, str],
    tokens: Mapping[str, AddedToken],
    bos: bool = False,
) -> dict[str, Any] | None:
    """Return the post-processor that the flags ask for; `bos`: what counts without them."""
    sides = []
    for role, default in (("bos", bos), ("eos", False)):
        wanted = beside.flag(f"add_{role}_token", default)
        token = tokens.get(roles.get(f"{role}_token", ""))
        sides.append([token] if wanted and token else [])
    return surrounding(*sides)
