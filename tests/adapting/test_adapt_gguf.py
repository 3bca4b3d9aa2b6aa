"""GGUF files for another tokenizer, compared with what the package gguf writes."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
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

from bpe_tokenizer_tools.adapting import gguf_files, transplant  # noqa: E402
from bpe_tokenizer_tools.adapting.vocabulary import match  # noqa: E402

pytestmark = EITHER_ENGINE

TIED = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def write(path: Path, tied: bool) -> Path:
    return tiny_models.write_gguf(path, tiny_models.model(tied))


def unchanged(name: str, data: Any) -> tuple[Any, Any]:
    return data, None


def rewritten(source: Path, path: Path, change: Any = unchanged, split: int = 0) -> Path:
    """Write a file again by its own library, with tensors changed, or so many to a file."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=split)
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
    with pytest.raises(FileExistsError, match=r"out\.gguf: already exists; force=True"):
        adapt(source, other(), tmp_path / "out.gguf")
    adapt(source, other(), tmp_path / "out.gguf", force=True)
    with pytest.raises(ValueError, match=r"b-00001-of-00002\.gguf: .* one file; call it b\.gguf"):
        adapt(source, other(), tmp_path / "b-00001-of-00002.gguf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "out.gguf"]


# -- Models in several files ---------------------------------------------------


@pytest.fixture
def split(tmp_path: Path) -> list[Path]:
    """The tiny model in several files, as gguf writes it."""
    (tmp_path / "split").mkdir()
    rewritten(write(tmp_path / "m.gguf", False), tmp_path / "split/m.gguf", split=4)
    return sorted((tmp_path / "split").glob("*.gguf"))


def test_a_model_in_several_files_becomes_one(tmp_path: Path, split: list[Path]) -> None:
    assert len(split) > 2
    adapt(tmp_path / "m.gguf", elsewhere(), tmp_path / "whole.gguf")
    expected = contents(tmp_path / "whole.gguf")
    for part in (split[0], split[1]):
        out = tmp_path / f"of-{part.name[:7]}.gguf"
        report = adapt(part, elsewhere(), out)
        keys, tensors = contents(out)
        assert {name: keys[name] for name in expected[0]} == expected[0]
        assert not any(name.startswith("split.") for name in keys)
        assert tensors == expected[1] and list(tensors) == list(expected[1])
        assert {table.file for table in report.tables} <= {part.name for part in split}


def test_llama_cpp_reads_what_several_files_became(tmp_path: Path, split: list[Path]) -> None:
    llama_cpp = need("llama_cpp")
    logits = []
    adapt(tmp_path / "m.gguf", other(), tmp_path / "whole.gguf")
    adapt(split[0], other(), tmp_path / "joined.gguf")
    for name in ("whole.gguf", "joined.gguf"):
        model = llama_cpp.Llama(str(tmp_path / name), verbose=False, logits_all=True, n_ctx=64)
        model.eval(other().encode("the dog"))
        logits.append(np.array(model.scores[: model.n_tokens]))
        model.close()
    assert (logits[0] == logits[1]).all()


def test_parts_that_are_missing_or_wrong(tmp_path: Path, split: list[Path]) -> None:
    out = tmp_path / "out.gguf"
    with pytest.raises(ValueError, match="is the model itself; give the output another name"):
        alias = tmp_path / "alias.gguf"
        alias.symlink_to(split[-1])
        adapt(split[0], other(), alias, force=True)
    alone = tmp_path / "alone.gguf"
    alone.write_bytes(split[0].read_bytes())
    expected = rf"split\.count: is {len(split)}, so this is a part of a model; name the parts as"
    with pytest.raises(FileFormatError, match=expected):
        adapt(alone, other(), out)
    second = split[1].read_bytes()
    split[1].write_bytes(split[2].read_bytes())
    with pytest.raises(FileFormatError, match=rf"{split[2].name}: .*: is in {split[1].name}, too"):
        adapt(split[0], other(), out)
    split[1].write_bytes(second)
    gguf_writer = gguf.GGUFWriter(split[2], "llama")
    gguf_writer.add_tensor("other.weight", np.ones(8, np.float32))
    gguf_writer.write_header_to_file()
    gguf_writer.write_kv_data_to_file()
    gguf_writer.write_tensors_to_file()
    gguf_writer.close()
    with pytest.raises(FileFormatError, match=r"split\.tensors\.count: is 21, but the parts have"):
        adapt(split[0], other(), out)
    split[1].unlink()
    with pytest.raises(FileNotFoundError, match=f"1 of {len(split)} parts are missing"):
        adapt(split[0], other(), out)
    assert not out.exists() and not list(tmp_path.glob(".*"))


# -- Interrupted runs ----------------------------------------------------------


def interrupted(source: Path, out: Path, tensors: int, **options: Any) -> Path:
    """Run until so many tensors are on disk, and a part of the next; return the journal."""
    real, number = gguf_files._data, [0]

    def failing(*given: Any) -> Any:
        number[0] += 1
        if number[0] <= tensors:
            return real(*given)
        return broken(real(*given))

    def broken(blocks: Any) -> Any:
        yield bytes(next(blocks))[:7]
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gguf_files, "_CHECKPOINT", 1)
        patch.setattr(gguf_files, "_data", failing)
        adapt(source, other(), out, **options)
    assert not out.exists()
    return out.with_name(f".{out.name}.adapting") / "journal.jsonl"


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("done", [1, 5, 20])
def test_an_interrupted_run_is_continued(
    tmp_path: Path, split: list[Path], parts: int, done: int
) -> None:
    source, out = split[0] if parts > 1 else tmp_path / "m.gguf", tmp_path / "out.gguf"
    journal = interrupted(source, out, done)
    inode = (journal.parent / "model/out.gguf").stat().st_ino
    report = adapt(source, other(), out)
    assert report.done_before == [f"{done} of 21 tensors"]
    assert f"done by an earlier run: {done} of 21 tensors" in str(report)
    assert out.stat().st_ino == inode and not journal.parent.exists()
    adapt(source, other(), tmp_path / "whole.gguf")
    assert out.read_bytes() == (tmp_path / "whole.gguf").read_bytes()


@pytest.mark.parametrize(
    "change", ["draft", "short", "journal", "garbage", "input", "tokenizer", "init", "ids"]
)
def test_what_has_changed_is_written_again(tmp_path: Path, change: str) -> None:
    source, out = write(tmp_path / "m.gguf", True), tmp_path / "out.gguf"
    journal = interrupted(source, out, 9)
    draft, new, options = journal.parent / "model/out.gguf", other(), {}
    raw, lines, expected = bytearray(draft.read_bytes()), journal.read_bytes().splitlines(True), 0
    first = json.loads(lines[0])["size"]
    if change == "draft":
        raw[first + 5] ^= 1
        draft.write_bytes(raw)
        expected = 1
    elif change == "short":
        draft.write_bytes(raw[: first + 5])
        expected = 1
    elif change == "journal":
        journal.write_bytes(b"".join(lines[:4]) + lines[4][:-5])
        expected = 4
    elif change == "garbage":
        journal.write_bytes(lines[0] + b"[1]\n" + b"".join(lines[1:]))
        expected = 1
    elif change == "input":
        shutil.copy(source, tmp_path / "copy")
        (tmp_path / "copy").replace(source)
    elif change == "tokenizer":
        new = elsewhere()
    else:
        options = {"init": {"init": "zeros"}, "ids": {"ids": {"bos_token_id": 5}}}[change]
    report = adapt(source, new, out, **options)
    assert report.done_before == ([f"{expected} of 20 tensors"] if expected else [])
    adapt(source, new, tmp_path / "whole.gguf", **options)
    assert out.read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_a_source_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, real = write(tmp_path / "m.gguf", True), gguf_files._data

    def touching(*given: Any) -> Any:
        os.utime(source)
        return real(*given)

    monkeypatch.setattr(gguf_files, "_data", touching)
    with pytest.raises(
        FileFormatError, match=r"m\.gguf: changed while it was being read; run the command again"
    ):
        adapt(source, other(), tmp_path / "out.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_an_output_that_appears_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, real, out = write(tmp_path / "m.gguf", True), gguf_files._head, tmp_path / "out.gguf"

    def late(*given: Any) -> Any:
        out.write_text("mine")
        return real(*given)

    monkeypatch.setattr(gguf_files, "_head", late)
    with pytest.raises(FileExistsError, match=r"out\.gguf: already exists; force=True"):
        adapt(source, other(), out)
    assert out.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "out.gguf"]


# -- What is refused -----------------------------------------------------------


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
