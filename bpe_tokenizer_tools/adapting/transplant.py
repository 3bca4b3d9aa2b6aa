"""A model with the vocabulary of another model, the donor; see `transplant`.

Orthogonal matching pursuit makes the row of a token that the model never had.  The donor has a row
for it, in a space of its own.  There, the row is written as a combination of few rows of tokens
that both models have; the same combination of the model's rows is the new one.

Source: Charles Goddard and Fernando Fernandes Neto, "Training-Free Tokenizer Transplantation via
Orthogonal Matching Pursuit" (2025, arXiv 2506.06607), the method of mergekit-tokensurgeon; and
Pati, Rezaiifar and Krishnaprasad, "Orthogonal matching pursuit" (1993), for the pursuit itself.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.adapting import config_files, tables, weights
from bpe_tokenizer_tools.adapting.model import Adaptation, Job, folder_of
from bpe_tokenizer_tools.adapting.tables import Table, numpy
from bpe_tokenizer_tools.adapting.weights import Fill
from bpe_tokenizer_tools.backends import safetensors
from bpe_tokenizer_tools.support.files import status_of

_METHODS = ("subword_mean", "omp")
_KEPT_BYTES = 2**28  # of the donor's shared rows: more are read again for each step
_BATCH_BYTES = 2**26  # of the directions of all tokens that are worked on at a time
_ENOUGH = 1e-6  # the share of a row that remains


@core.renamed(k="combine")
def transplant(
    model_dir: str | os.PathLike[str],
    donor_tokenizer: BPETokenizer,
    out_dir: str | os.PathLike[str],
    method: str = "subword_mean",
    combine: int = 64,
    *,
    donor_model_dir: str | os.PathLike[str] | None = None,
    old: BPETokenizer | None = None,
    pad_to_multiple_of: int | None = None,
    force: bool = False,
    verbose: bool | None = None,
    tensors: Sequence[str] | None = None,
    donor_tensors: Sequence[str] | None = None,
    ids: Mapping[str, Any] | None = None,
) -> Adaptation:
    """Give a model the vocabulary of another one, without training.

    Tokens that both have keep their rows.  The others get the mean of the tokens that the model's
    own tokenizer cuts them into; or, by orthogonal matching pursuit, a combination of rows of
    shared tokens.

    Args:
        model_dir: the model, as for `adapt_model`.
        donor_tokenizer: the tokenizer to use from now on.
        out_dir: the directory to make, as for `adapt_model`.
        method: "subword_mean" or "omp".
        combine: how many shared tokens "omp" combines at most.
        donor_model_dir: the model that the donor's tokenizer is of; "omp" reads its embeddings.
        old: the tokenizer that the model was made with; None for the one in `model_dir`.
        pad_to_multiple_of: as for `adapt_model`, and so `force`, `verbose`, `tensors` and `ids`.
        force: replace `out_dir`.
        verbose: show a progress bar.
        tensors: the model's tables, if their names do not tell.
        donor_tensors: the donor's.
        ids: for fields of config.json whose token is gone.

    Raises:
        ValueError: there is no such method, "omp" has no donor model, or the models share no token.
        FileNotFoundError: there is no such model; and all that `adapt_model` raises.
    """
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}, got {method!r}")
    core.check_size("combine", combine, 1)
    if method == "omp" and donor_model_dir is None:
        raise ValueError(
            "method 'omp' reads the embeddings of the donor model; pass donor_model_dir, or use "
            "method='subword_mean'"
        )
    job = Job(
        Path(model_dir),
        old,
        donor_tokenizer,
        Path(out_dir),
        pad_to_multiple_of,
        force,
        tensors,
        ids,
    )
    means = weights.fill_by("subword_mean", job.matching)
    if method != "omp" or donor_model_dir is None:
        return job.run(means, method, verbose)
    donor = folder_of(Path(donor_model_dir))
    found = safetensors.tensors(donor)
    token_ids = sorted(core.tokens(donor_tokenizer))
    config = config_files.read(donor)
    theirs = tables.find_tables(found, config, token_ids, donor_tensors, donor, tables.DONOR)
    special = set(donor_tokenizer.special_tokens.values())
    shared = [(new, kept) for new, kept in job.matching.kept.items() if new not in special]
    if not shared:
        raise ValueError(
            f"{donor}: its tokenizer shares no ordinary token with that of {model_dir}; 'omp' "
            "combines shared ones; use method='subword_mean'"
        )
    files = {table.tensor.path for table in theirs}
    facts = {
        "method": method,
        "k": combine,
        "donor": [[str(path.resolve()), *status_of(path)] for path in sorted(files)],
        "tensors": [table.tensor.name for table in theirs],
    }
    return job.run(_by_pursuit(theirs, shared, combine, means), facts, verbose)


def _by_pursuit(
    theirs: Sequence[Table], shared: Sequence[tuple[int, int]], k: int, means: Fill
) -> Fill:
    """Return a function that makes rows of new tokens from the donor's tables.

    `shared` are the ids of tokens that both models have, the donor's and the model's; `means` makes
    rows where there is nothing to combine.
    """
    ours = [old for _, old in shared]

    @functools.cache
    def dictionary(role: str) -> Dictionary:
        return Dictionary(_like(theirs, role), [new for new, _ in shared])

    def by_pursuit(table: Table, ids: Sequence[int]) -> Any:
        rows = numpy.array(means(table, ids))
        if len(table.tensor.shape) == 1:  # a bias says nothing about a token's meaning
            return rows
        atoms = dictionary(table.role)
        step = max(1, _BATCH_BYTES // (8 * k * atoms.table.columns))
        for start in range(0, len(ids), step):
            some = ids[start : start + step]
            for place, (chosen, shares) in enumerate(atoms.combine(atoms.table.floats(some), k)):
                if len(chosen):
                    combined = shares @ table.floats([ours[i] for i in chosen]).astype("f8")
                    rows[start + place] = combined
        return rows

    return by_pursuit


def _like(theirs: Sequence[Table], role: str) -> Table:
    """Return the donor's table with the role of one of the model's."""
    whole = [table for table in theirs if len(table.tensor.shape) == 2]
    kinds = ("output", "tied", "input") if role == "output" else ("input", "tied", "output")
    return min(whole, key=lambda table: kinds.index(table.role))


class Dictionary:
    """Rows of a table that others are combined from, in bounded memory."""

    def __init__(self, table: Table, ids: Sequence[int]) -> None:
        self.table, self._ids = table, ids
        norms = numpy.concatenate([numpy.linalg.norm(rows, axis=1) for _, rows in self._read()])
        # A row of zeros, or a broken one, is never chosen.
        usable = numpy.isfinite(norms) & (norms > 0)
        self._scale = numpy.where(usable, 1 / numpy.where(usable, norms, 1), 0).astype("f4")
        size = 4 * len(ids) * table.columns
        self._kept = list(self._read()) if size <= _KEPT_BYTES else None

    def _read(self) -> Iterator[tuple[int, Any]]:
        step = self.table.step
        for start in range(0, len(self._ids), step):
            yield start, self.table.floats(self._ids[start : start + step])

    def combine(self, targets: Any, k: int) -> list[tuple[Any, Any]]:
        """Write rows as combinations of at most k rows of the dictionary each.

        In each step the row that points most nearly where the rest of a target does is added, and
        the target projected on all that it has.

        Args:
            targets: n rows, float32.
            k: how many to combine at most.

        Returns:
            For each target, the places of the rows, and their factors.

        Cost: k passes over the dictionary for all targets together.
        """
        n, columns = targets.shape
        wanted = targets.astype("f8")
        k = min(k, columns, len(self._ids))
        rest = wanted.copy()
        directions = numpy.zeros((n, k, columns))  # of what was chosen, orthonormal
        upper = numpy.zeros((n, k, k))  # chosen rows = upper.T @ directions
        chosen = numpy.full((n, k), -1)
        limits = _ENOUGH * numpy.linalg.norm(wanted, axis=1)
        active = numpy.isfinite(limits) & (limits > 0)
        for step in range(k):
            going = numpy.flatnonzero(active)
            if not len(going):
                break
            best = self._best(rest[going].astype("f4"), chosen[going, :step])
            for target, place in zip(going, best):
                atom = self.table.floats([self._ids[place]])[0].astype("f8") if place >= 0 else None
                if atom is None or not _add(
                    atom, directions[target], upper[target], rest[target], step
                ):
                    active[target] = False
                    continue
                chosen[target, step] = place
                active[target] = numpy.linalg.norm(rest[target]) > limits[target]
        return [_solved(wanted[i], directions[i], upper[i], chosen[i]) for i in range(len(wanted))]

    def _best(self, rest: Any, chosen: Any) -> Any:
        """Return for each remainder the row with the largest cosine that isn't chosen yet."""
        best, value = numpy.full(len(rest), -1), numpy.zeros(len(rest), "f4")
        everyone = numpy.arange(len(rest))
        for start, rows in self._kept or self._read():
            here = slice(start, start + len(rows))
            with numpy.errstate(invalid="ignore"):  # rows of a broken file
                cosines = numpy.abs(rest @ rows.T) * self._scale[here]
            who, which = numpy.nonzero((chosen >= start) & (chosen < start + len(rows)))
            cosines[who, chosen[who, which] - start] = 0
            numpy.nan_to_num(cosines, copy=False, posinf=0)
            places = cosines.argmax(1)
            found = cosines[everyone, places]
            better = found > value
            best[better], value[better] = places[better] + start, found[better]
        return best


def _add(atom: Any, directions: Any, upper: Any, rest: Any, step: int) -> bool:
    """Add a row to those of a target; return False if they already span it."""
    norm = numpy.linalg.norm(atom)
    direction = atom.copy()
    for _ in range(2):  # once is not enough in floating point
        shares = directions[:step] @ direction
        direction -= shares @ directions[:step]
        upper[:step, step] += shares
    length = numpy.linalg.norm(direction)
    if not length > 1e-7 * norm:
        upper[:, step] = 0
        return False
    upper[step, step] = length
    directions[step] = direction / length
    rest -= (directions[step] @ rest) * directions[step]
    return True


def _solved(wanted: Any, directions: Any, upper: Any, chosen: Any) -> tuple[Any, Any]:
    """Return the rows chosen for a target, and the factors that fit it best."""
    count = int((chosen >= 0).sum())
    factors = numpy.linalg.solve(upper[:count, :count], directions[:count] @ wanted)
    return chosen[:count], factors
