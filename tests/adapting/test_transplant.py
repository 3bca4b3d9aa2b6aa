"""Models with the vocabulary of another one: rows by orthogonal matching pursuit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from adapted_models import INPUT, OUTPUT, elsewhere, read, save, write_model
from conftest import EITHER_ENGINE, run_command
from oracles import need

from bpe_tokenizer import BPETokenizer

np = need("numpy")
torch = need("torch")

from bpe_tokenizer_tools.adapting import adapt_model, transplant  # noqa: E402
from bpe_tokenizer_tools.adapting.tables import Table  # noqa: E402
from bpe_tokenizer_tools.adapting.transplant import Dictionary  # noqa: E402
from bpe_tokenizer_tools.adapting.vocabulary import match  # noqa: E402
from bpe_tokenizer_tools.backends.safetensors import tensors  # noqa: E402

pytestmark = EITHER_ENGINE


def write_donor(folder: Path, tied: bool, tables: dict[str, Any] | None = None) -> Path:
    """Write what is read of a donor of another width: its tables, config.json and tokenizer."""
    folder.mkdir()
    new, random = elsewhere(), torch.Generator().manual_seed(7)
    rows = new.max_id + 1
    made = {
        name: torch.randn(rows, 40, generator=random) for name in (INPUT, OUTPUT)[: 2 - tied]
    } | (tables or {})
    save(made, folder / "model.safetensors")
    config = {"vocab_size": rows, "tie_word_embeddings": tied}
    (folder / "config.json").write_text(json.dumps(config))
    new.save(folder, verbose=False)
    return folder


def pursued(atoms: Any, target: Any, k: int) -> tuple[list[int], Any]:
    """Do orthogonal matching pursuit as textbooks do: least squares anew in each step."""
    chosen: list[int] = []
    rest, factors = target, np.zeros(0)
    norms = np.linalg.norm(atoms, axis=1)
    for _ in range(min(k, *atoms.shape)):
        cosines = np.abs(atoms @ rest) / norms
        cosines[chosen] = -1
        chosen.append(int(cosines.argmax()))
        factors = np.linalg.lstsq(atoms[chosen].T, target, rcond=None)[0]
        rest = target - factors @ atoms[chosen]
        if np.linalg.norm(rest) < 1e-6 * np.linalg.norm(target):
            break
    return chosen, factors


@pytest.mark.parametrize("k", [1, 3, 16])
@pytest.mark.parametrize("tied_donor", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_rows_are_those_of_a_textbook_pursuit(
    tmp_path: Path, tied: bool, tied_donor: bool, k: int
) -> None:
    source = write_model(tmp_path / "m", tied)
    donor = write_donor(tmp_path / "donor", tied_donor)
    new = elsewhere()
    options = {"combine": k, "donor_model_dir": donor, "verbose": False}
    transplant(source, new, tmp_path / "out", "omp", **options)
    found = match(tiny_models.tokenizer(), new)
    before, after, theirs = read(source), read(tmp_path / "out"), read(donor)
    special = new.special_tokens.values()
    shared = [id_ for id_ in found.kept if id_ not in special]
    assert len(found.new) > 20
    for name in (INPUT, OUTPUT)[: 2 - tied]:
        base = before[name].double().numpy()
        table = theirs.get(name, theirs[INPUT]).double().numpy()
        for new_id, old_id in found.kept.items():
            assert torch.equal(after[name][new_id], before[name][old_id])
        for id_ in found.new:
            chosen, factors = pursued(table[shared], table[id_], k)
            row = factors @ base[[found.kept[shared[i]] for i in chosen]]
            assert np.allclose(after[name][id_].numpy(), row, rtol=1e-4, atol=1e-4)


def test_a_planted_combination_is_found(tmp_path: Path) -> None:
    source, new = write_model(tmp_path / "m", tied=True), elsewhere()
    donor = write_donor(tmp_path / "donor", tied=True)
    tables = read(donor)
    found = match(tiny_models.tokenizer(), new)
    rows = tables[INPUT]
    for id_ in found.new:
        rows[id_] = 2 * rows[id_ % 200] - 3 * rows[id_ % 200 + 7]
    save(tables, donor / "model.safetensors")
    transplant(source, new, tmp_path / "out", "omp", donor_model_dir=donor, verbose=False)
    before, after = read(source)[INPUT], read(tmp_path / "out")[INPUT]
    for id_ in found.new:
        first, second = (found.kept[at] for at in (id_ % 200, id_ % 200 + 7))
        assert torch.allclose(after[id_], 2 * before[first] - 3 * before[second], atol=1e-4)


def test_rows_that_say_nothing_get_the_mean_of_their_pieces(tmp_path: Path) -> None:
    source, new = write_model(tmp_path / "m", tied=True), elsewhere()
    donor = write_donor(tmp_path / "donor", tied=True)
    tables, found = read(donor), match(tiny_models.tokenizer(), new)
    zero, broken, *_ = found.new
    tables[INPUT][zero] = 0
    tables[INPUT][broken, 3] = float("nan")
    tables[INPUT][5], tables[INPUT][6, 2] = 0, float("inf")  # and shared ones are not chosen
    save(tables, donor / "model.safetensors")
    transplant(source, new, tmp_path / "omp", "omp", donor_model_dir=donor, verbose=False)
    transplant(source, new, tmp_path / "mean", verbose=False)
    by_omp, by_mean = read(tmp_path / "omp")[INPUT], read(tmp_path / "mean")[INPUT]
    assert torch.isfinite(by_omp).all()
    for id_ in found.new:
        assert torch.equal(by_omp[id_], by_mean[id_]) == (id_ in (zero, broken))


def test_rows_read_again_for_each_step_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    donor = write_donor(tmp_path / "donor", tied=True)
    table = Table(tensors(donor)[INPUT], "tied", range(elsewhere().max_id + 1))
    targets = table.floats(range(256, 300))
    in_memory = Dictionary(table, range(256)).combine(targets, 9)
    monkeypatch.setitem(Dictionary.__init__.__globals__, "_KEPT_BYTES", 0)
    monkeypatch.setitem(Table.step.fget.__globals__, "_BLOCK_BYTES", 4 * 40 * 10)
    assert table.step == 10
    read_again = Dictionary(table, range(256)).combine(targets, 9)
    for (chosen, factors), (others, same) in zip(in_memory, read_again):
        assert chosen.tolist() == others.tolist() and np.allclose(factors, same)


def test_subword_means_are_what_adapt_model_makes(tmp_path: Path) -> None:
    source = write_model(tmp_path / "m", tied=False, dtype="BF16")
    transplant(source, elsewhere(), tmp_path / "a", verbose=False)
    adapt_model(source, None, elsewhere(), tmp_path / "b", verbose=False)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_wrong_arguments(tmp_path: Path) -> None:
    source, donor = write_model(tmp_path / "m", tied=True), write_donor(tmp_path / "d", tied=True)
    out, new = tmp_path / "out", elsewhere()
    with pytest.raises(ValueError, match="method must be one of 'subword_mean', 'omp', got 'x'"):
        transplant(source, new, out, "x")
    with pytest.raises(ValueError, match="reads the embeddings of the donor model; pass donor_mo"):
        transplant(source, new, out, "omp")
    with pytest.raises(ValueError, match="combine must be at least 1, got 0"):
        transplant(source, new, out, "omp", 0, donor_model_dir=donor)
    with pytest.raises(FileNotFoundError):
        transplant(source, new, out, "omp", donor_model_dir=tmp_path / "nothing")
    larger = BPETokenizer(normalizer=None)
    larger.add_special_tokens({"<s>": 300, "</s>": 301, "<pad>": 400})
    with pytest.raises(
        ValueError, match=r"ids up to 400, but model.embed_tokens.weight has only"
    ) as e:
        transplant(source, larger, out, "omp", donor_model_dir=donor)
    assert f"{donor}: the donor's tokenizer has" in str(e.value)
    assert "pass the one that the donor model was made with as donor_tokenizer (--tok" in str(
        e.value
    )
    assert not out.exists()


def test_errors_about_the_donor_name_its_options(tmp_path: Path) -> None:
    source = write_model(tmp_path / "m", tied=True)
    donor = write_donor(
        tmp_path / "d", True, {"other.table": torch.ones(elsewhere().max_id + 1, 2)}
    )
    with pytest.raises(ValueError, match="may have one row for each of the 324 tokens") as error:
        transplant(source, elsewhere(), tmp_path / "out", "omp", donor_model_dir=donor)
    assert str(error.value).startswith(f"{donor}: ")
    assert "with donor_tensors=[...] (--donor-tensors NAME ...)" in str(error.value)
    # The donor is only read, so not all of its tables need a name.
    options: dict[str, Any] = {"donor_model_dir": donor, "verbose": False}
    transplant(source, elsewhere(), tmp_path / "out", "omp", donor_tensors=[INPUT], **options)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, donor = write_model(tmp_path / "m", tied=True), write_donor(tmp_path / "d", tied=True)
    transplant(source, elsewhere(), tmp_path / "a", "omp", 3, donor_model_dir=donor, verbose=False)
    given = ("adapt", source, "--tokenizer", donor, "--output", tmp_path / "b")
    omp = ("--init", "omp", "--combine", 3)
    status, said, _ = run_command(capsys, *given, *omp, "--donor-model", donor)
    assert status == 0 and "model.embed_tokens.weight (tied, F32): 512 x 64 -> 324 x 64" in said
    assert torch.equal(read(tmp_path / "a")[INPUT], read(tmp_path / "b")[INPUT])
    for wrong in (omp, ("--donor-model", donor)):
        status, _, err = run_command(capsys, *given, *wrong, "--force")
        assert status == 2 and "go together; expected both or none" in err
