"""Orthogonal matching pursuit, compared with mergekit's tokensurgeon."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from adapted_models import INPUT, elsewhere, read, write_model
from conftest import EITHER_ENGINE
from oracles import need
from test_transplant import write_donor

np = need("numpy")
torch = need("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it uses names that NumPy has deprecated
    mergekit = need("mergekit.tokensurgeon")

from bpe_tokenizer_tools.adapting import transplant  # noqa: E402
from bpe_tokenizer_tools.adapting.tables import Table  # noqa: E402
from bpe_tokenizer_tools.adapting.transplant import Dictionary  # noqa: E402
from bpe_tokenizer_tools.adapting.vocabulary import match  # noqa: E402
from bpe_tokenizer_tools.backends.safetensors import tensors  # noqa: E402

pytestmark = [EITHER_ENGINE, pytest.mark.slow]


def pursued(atoms: Any, targets: Any, k: int) -> tuple[Any, Any]:
    """Return mergekit's choices and factors for atoms of length 1, in double precision."""
    norms = atoms.norm(dim=1, keepdim=True)
    chosen, factors = mergekit.batch_omp(targets, atoms / norms, k)
    return chosen, factors / norms[chosen].squeeze(-1)


@pytest.mark.parametrize("k", [1, 2, 8, 24])
def test_choices_and_factors_are_the_same(tmp_path: Path, k: int) -> None:
    donor = write_donor(tmp_path / "donor", tied=True)
    table = Table(tensors(donor)[INPUT], "tied", range(elsewhere().max_id + 1))
    rows = torch.tensor(table.floats(range(elsewhere().max_id + 1))).double()
    chosen, factors = pursued(rows[:256], rows[256:], k)
    ours = Dictionary(table, range(256)).combine(rows[256:].float().numpy(), k)
    assert len(ours) == len(chosen) > 60
    for (own, shares), theirs, expected in zip(ours, chosen.numpy(), factors.numpy()):
        assert own.tolist() == theirs.tolist()
        assert np.allclose(shares, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("k", [1, 8])
def test_new_rows_are_the_same(tmp_path: Path, k: int) -> None:
    source = write_model(tmp_path / "m", tied=True)
    donor, new = write_donor(tmp_path / "donor", tied=True), elsewhere()
    options = {"combine": k, "donor_model_dir": donor, "verbose": False}
    transplant(source, new, tmp_path / "out", "omp", **options)
    found = match(tiny_models.tokenizer(), new)
    base, made, theirs = (read(folder)[INPUT] for folder in (source, tmp_path / "out", donor))
    special = new.special_tokens.values()
    shared = [id_ for id_ in found.kept if id_ not in special]
    lacking = list(found.new)
    chosen, factors = pursued(theirs[shared].double(), theirs[lacking].double(), k)
    ours = base[[found.kept[id_] for id_ in shared]].double()
    expected = torch.einsum("nk,nkd->nd", factors, ours[chosen])
    assert torch.allclose(made[lacking].double(), expected, rtol=1e-4, atol=1e-5)


def test_without_lengths_in_the_choice_they_are_the_same_only_for_rows_of_one_length(
    tmp_path: Path,
) -> None:
    """Mergekit's own choice goes by inner products: there, long rows are chosen more often."""
    donor = write_donor(tmp_path / "donor", tied=True)
    rows = read(donor)[INPUT].double()
    atoms = rows[:256] * torch.linspace(0.2, 5, 256).unsqueeze(1)
    by_product, _ = mergekit.batch_omp(rows[256:], atoms, 4)
    by_cosine, _ = pursued(atoms, rows[256:], 4)
    assert by_product.double().mean() > 1.3 * by_cosine.double().mean()
