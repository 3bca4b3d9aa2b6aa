"""GGUF files for another tokenizer, compared with what the package gguf writes."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from adapted_models import adapt, elsewhere, other, read_numpy, write_model
from conftest import EITHER_ENGINE
from oracles import need

from bpe_tokenizer import BPETokenizer, FileFormatError

np = need("numpy")
gguf = need("gguf")
need("torch")

import llama_forms  # noqa: E402

from bpe_tokenizer_tools.adapting import transplant  # noqa: E402
from bpe_tokenizer_tools.adapting.vocabulary import match  # noqa: E402

pytestmark = EITHER_ENGINE

TIED = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def write(path: Path, tied: bool) -> Path:
    return tiny_models.write_gguf(path, tiny_models.model(tied))


def rewritten(source: Path, path: Path, change: Any) -> Path:
    """Write a file again by its own library, with keys or tensors changed."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "llama")
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            types = field.types
            writer.add_key_value(key, field.contents(), types[0], (types[1:] or [None])[-1])
    for tensor in reader.tensors:
        data, kind = change(tensor.name, np.array(tensor.data))
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def contents(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return all keys, and all tensors as types and bytes."""
    reader = gguf.GGUFReader(path)
    keys = {
        key: (field.types, field.contents())
        for key, field in reader.fields.items()
        if not key.startswith("GGUF.")
    }
    found = {t.name: (t.tensor_type, t.shape.tolist(), t.data.tobytes()) for t in reader.tensors}
    return keys, found


@pytest.mark.parametrize("multiple", [None, 64])
@TIED
def test_the_file_is_that_of_the_adapted_weights(
    tmp_path: Path, tied: bool, multiple: int | None
) -> None:
    source, new = write(tmp_path / "m.gguf", tied), other()
    report = adapt(source, new, tmp_path / "out.gguf", pad_to_multiple_of=multiple)
    model = write_model(tmp_path / "m", tied)
    adapt(model, new, tmp_path / "out", pad_to_multiple_of=multiple)
    config = json.loads((tmp_path / "out/config.json").read_text())
    weights = read_numpy(tmp_path / "out")
    llama_forms.write_gguf(tmp_path / "expected.gguf", config, weights, new)
    keys, tensors = contents(tmp_path / "out.gguf")
    expected_keys, expected_tensors = contents(tmp_path / "expected.gguf")
    assert keys == expected_keys
    assert tensors == expected_tensors
    assert [table.role for table in report.tables] == (["tied"] if tied else ["input", "output"])
    assert BPETokenizer.from_file(tmp_path / "out.gguf").fingerprint == new.fingerprint


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_other_types(tmp_path: Path, name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]

    def change(tensor: str, data: Any) -> tuple[Any, Any]:
        if data.ndim == 1:
            return data, None
        return gguf.quants.quantize(data, kind), kind

    source = rewritten(write(tmp_path / "a.gguf", False), tmp_path / "m.gguf", change)
    adapt(source, elsewhere(), tmp_path / "out.gguf")
    _, before = contents(source)
    _, after = contents(tmp_path / "out.gguf")
    found = match(tiny_models.tokenizer(), elsewhere())
    width = 2 * tiny_models.HIDDEN
    for table in ("token_embd.weight", "output.weight"):
        assert after[table][0] == kind
        rows = after[table][2]
        for new_id, old_id in found.kept.items():
            old_row = before[table][2][old_id * width : (old_id + 1) * width]
            assert rows[new_id * width : (new_id + 1) * width] == old_row
    others = before.keys() - {"token_embd.weight", "output.weight"}
    assert all(before[each] == after[each] for each in others)


def test_other_tensors_may_be_quantized_and_tables_may_not(tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0

    def layers(tensor: str, data: Any) -> tuple[Any, Any]:
        is_layer = tensor.startswith("blk.") and data.ndim == 2
        return (gguf.quants.quantize(data, kind), kind) if is_layer else (data, None)

    def tables(tensor: str, data: Any) -> tuple[Any, Any]:
        is_table = tensor == "token_embd.weight"
        return (gguf.quants.quantize(data, kind), kind) if is_table else (data, None)

    whole = write(tmp_path / "a.gguf", True)
    source = rewritten(whole, tmp_path / "layers.gguf", layers)
    adapt(source, other(), tmp_path / "out.gguf")
    before, after = contents(source)[1], contents(tmp_path / "out.gguf")[1]
    assert all(before[name] == after[name] for name in before if name != "token_embd.weight")
    source = rewritten(whole, tmp_path / "tables.gguf", tables)
    expected = r"token_embd\.weight: its values are Q8_0; expected BF16, F16 or F32\. Rows of a qu"
    with pytest.raises(FileFormatError, match=expected):
        adapt(source, other(), tmp_path / "b.gguf")
    assert not (tmp_path / "b.gguf").exists()


def test_ids_that_only_the_file_names(tmp_path: Path) -> None:
    source = write(tmp_path / "a.gguf", True)
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            types = field.types
            writer.add_key_value(key, field.contents(), types[0], (types[1:] or [None])[-1])
    writer.add_eot_token_id(300)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    report = adapt(tmp_path / "m.gguf", other(), tmp_path / "out.gguf")
    moved = match(tiny_models.tokenizer(), other()).moved
    keys = contents(tmp_path / "out.gguf")[0]
    assert keys["tokenizer.ggml.eot_token_id"][1] == moved[300]
    assert report.ids["tokenizer.ggml.eos_token_id"] == (478, other().eos_token_id)
    expected = r"tokenizer\.ggml\.eot_token_id: is 300, a token that the new tokenizer does not ha"
    with pytest.raises(FileFormatError, match=expected):
        adapt(tmp_path / "m.gguf", elsewhere(), tmp_path / "b.gguf")
    adapt(tmp_path / "m.gguf", elsewhere(), tmp_path / "b.gguf", ids={"eot_token_id": None})
    assert "tokenizer.ggml.eot_token_id" not in contents(tmp_path / "b.gguf")[0]


def test_paths(tmp_path: Path) -> None:
    source = write(tmp_path / "m.gguf", True)
    with pytest.raises(ValueError, match=r"expected a name that ends in \.gguf"):
        adapt(source, other(), tmp_path / "out")
    with pytest.raises(ValueError, match="is the model itself; give the output another name"):
        adapt(source, other(), source, force=True)
    (tmp_path / "out.gguf").write_text("mine")
    with pytest.raises(FileExistsError, match=r"out\.gguf: is there already; force=True"):
        adapt(source, other(), tmp_path / "out.gguf")
    adapt(source, other(), tmp_path / "out.gguf", force=True)
    part = source.rename(tmp_path / "m-00001-of-00002.gguf")
    with pytest.raises(ValueError, match="is a part of a model; join all parts first"):
        adapt(part, other(), tmp_path / "b.gguf")
    assert sorted(path.name for path in tmp_path.iterdir()) == [part.name, "out.gguf"]


def test_what_a_file_cannot_say_of_a_tokenizer_is_refused(tmp_path: Path) -> None:
    source, new = write(tmp_path / "m.gguf", True), BPETokenizer()
    new.add_special_tokens(["<s>", "</s>", "<pad>"])
    with pytest.raises(ValueError, match=r"NFC"):
        adapt(source, new, tmp_path / "out.gguf")
    with pytest.raises(ValueError, match=r"'eos_token_id' is 999; expected an id of the new token"):
        adapt(source, other(), tmp_path / "out.gguf", ids={"eos_token_id": 999})
    with pytest.raises(ValueError, match=r"expected the directory of a model in safetensors"):
        transplant(source, other(), tmp_path / "out.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """Whatever is cut off, or turned to other bytes, gives an error of this library, or a file."""
    source, chance = write(tmp_path / "m.gguf", True), random.Random(1)
    raw = source.read_bytes()
    end = raw.index(b"blk.0.attn_q.weight") + 3000
    begin = end - 6000
    broken = tmp_path / "broken.gguf"
    refused = 0
    for i in range(150):
        changed = bytearray(raw)
        if i % 5 == 0:
            del changed[chance.randrange(begin, len(raw)) :]
        else:
            at = chance.randrange(begin, end) if i % 2 else chance.randrange(0, 300)
            changed[at : at + 2] = chance.randbytes(2)
        broken.write_bytes(changed)
        try:
            adapt(broken, other(), tmp_path / f"{i}.gguf")
        except ValueError as error:
            refused += 1
            assert re.search(r"broken\.gguf|GGUF|tokenizer", str(error)), error
            assert not (tmp_path / f"{i}.gguf").exists()
    assert refused > 50
