"""What a model's files say before it is loaded, and whether a tokenizer fits it."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from oracles import need
from tiny_models import BOS, CONTEXT, EOS, ROWS

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import backends
from bpe_tokenizer_tools.backends import fit
from bpe_tokenizer_tools.backends.model_files import ModelFiles, beside, describe
from bpe_tokenizer_tools.chat.session import Session

TIED = True
TWICE = 2 * (struct.pack("<Q3sIB", 3, b"a.b", 0, 7))  # a key of GGUF, an uint8


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give a function from a kind of model to one of that kind, not to be changed."""
    folder = tmp_path_factory.mktemp("kinds")

    def make(kind: str) -> Path:
        need("numpy")
        path, model = folder / kind, tiny_models.model(TIED)
        if kind == "gguf":
            need("gguf")
            path = path / "model.gguf"
            if not path.exists():
                path.parent.mkdir()
                tiny_models.write_gguf(path, model)
        elif kind == "openvino":
            need("openvino")
            if not path.exists():
                tiny_models.write_openvino(path, model)
        elif not path.exists():
            write = tiny_models.write_mlx if kind == "mlx" else tiny_models.write_safetensors
            write(path, model)
        return path

    return make


@pytest.fixture
def copied(made: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Give a function from a kind of model to a copy of one."""

    def copy(kind: str) -> Path:
        source = made(kind)
        if source.is_file():
            return Path(shutil.copy(source, tmp_path))
        return Path(shutil.copytree(source, tmp_path / kind))

    return copy


KINDS = pytest.mark.parametrize("kind", ["gguf", "safetensors", "mlx", "openvino"])


@KINDS
def test_the_files_say_what_the_model_is(kind: str, made: Callable[[str], Path]) -> None:
    path = made(kind)
    (files,) = describe(path)
    assert (files.path, files.kind, files.rows, files.dtype) == (path, kind, ROWS, "float32")
    assert (files.bos_id, files.eos_ids, files.context) == (BOS, (EOS,), CONTEXT)
    assert fit.load_own(files).get_vocab() == tiny_models.tokenizer().get_vocab()


def test_a_part_of_a_model_stands_for_it(made: Callable[[str], Path]) -> None:
    assert describe(made("openvino") / "openvino_model.xml") == describe(made("openvino"))
    assert describe(made("safetensors") / "model.safetensors") == describe(made("safetensors"))
    assert describe(made("gguf").parent) == describe(made("gguf"))


def edit(folder: Path, name: str = "config.json", **fields: Any) -> Path:
    data = json.loads((folder / name).read_bytes())
    data.update(fields)
    (folder / name).write_text(json.dumps({k: v for k, v in data.items() if v is not ...}))
    return folder


def test_several_ids_may_end_a_text(copied: Callable[[str], Path]) -> None:
    folder = edit(copied("safetensors"), eos_token_id=[EOS, 5, -1])
    edit(folder, "generation_config.json", eos_token_id=[7, EOS, 512])
    (files,) = describe(folder)
    assert files.eos_ids == (7, EOS, 5)


def test_a_model_that_also_sees_is_described_by_its_text_part(
    copied: Callable[[str], Path],
) -> None:
    text = {"vocab_size": ROWS, "max_position_embeddings": 99, "eos_token_id": 3}
    folder = edit(copied("safetensors"), text_config=text, vocab_size=7)
    (files,) = describe(folder)
    assert files.rows == ROWS and files.context == 99 and files.eos_ids == (EOS, 3)


def test_a_model_in_parts_is_found(copied: Callable[[str], Path]) -> None:
    folder = copied("safetensors")
    whole = describe(folder)[0]
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"x": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert describe(folder)[0].rows == whole.rows
    index["weight_map"]["y"] = "model-00002-of-00002.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FileNotFoundError, match="1 parts are missing"):
        describe(folder)
    index["weight_map"]["y"] = "../model.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FileFormatError, match="not a file name"):
        describe(folder)


def test_a_gguf_model_in_parts_is_found(made: Callable[[str], Path], tmp_path: Path) -> None:
    gguf = need("gguf")
    np = need("numpy")
    first = shutil.copy(made("gguf"), tmp_path / "m-00001-of-00002.gguf")
    with pytest.raises(FileNotFoundError, match="1 of 2 parts are missing"):
        describe(first)
    writer = gguf.GGUFWriter(tmp_path / "m-00002-of-00002.gguf", "llama")
    writer.add_tensor("more", np.zeros(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (files,) = describe(tmp_path / "m-00002-of-00002.gguf")
    assert files.path == first and len(files.files) == 2 and files.rows == ROWS
    assert describe(tmp_path)[0] == files


def test_a_directory_may_hold_a_model_in_several_kinds(
    copied: Callable[[str], Path], made: Callable[[str], Path]
) -> None:
    folder = copied("safetensors")
    for file in made("openvino").glob("openvino_model.*"):
        shutil.copy(file, folder)
    assert {files.kind for files in describe(folder)} == {"openvino", "safetensors"}
    assert backends.find(folder, "openvino").kind == "openvino"
    assert backends.find(folder, "transformers").kind == "safetensors"


def test_the_files_are_read_again_only_when_they_change(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    need("transformers")
    folder, calls = copied("safetensors"), []
    monkeypatch.setattr(backends, "describe", lambda path: (calls.append(path), describe(path))[1])
    first = backends.find(folder)
    assert backends.find(folder) is first and len(calls) == 1
    edit(folder, max_position_embeddings=77)
    assert backends.find(folder).context == 77
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError):
        backends.find(folder)


# -- What is no model ---------------------------------------------------------


def test_what_is_not_there_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    for name in (tmp_path / "no.gguf", "meta-llama/Llama-3.1-8B", ""):
        if str(name):
            with pytest.raises(FileNotFoundError, match="no such file.*download a model"):
                backends.open_model(name)
    with pytest.raises(FileNotFoundError, match="contains no model; .* or a .gguf file$"):
        backends.open_model(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "openvino_model.xml", "a.gguf"])
def test_a_model_one_level_away_is_named(name: str, tmp_path: Path) -> None:
    inside = tmp_path / "[model]" / "checkpoint-1"
    inside.mkdir(parents=True)
    (inside.parent / name).touch()
    with pytest.raises(FileNotFoundError, match=re.escape(f"did you mean {inside.parent}?")):
        describe(inside)
    with pytest.raises(FileNotFoundError, match=re.escape(f"did you mean {inside.parent}?")):
        describe(tmp_path)
    note = inside.parent / "README.md"
    note.touch()
    with pytest.raises(FileFormatError, match=re.escape(f"did you mean {inside.parent}?")):
        describe(note)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.gguf", b"", "not recognized"),
        ("model.gguf", b"GGU", "not recognized"),
        ("model.gguf", b"This is a letter", "not recognized"),
        ("model.gguf", b"GGUF" + struct.pack("<I", 3), "only 0 are left"),
        ("model.gguf", b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version: 9 is not supported"),
        ("model.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + TWICE, "a.b: is given twice"),
        ("model.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "token_embd.weight: is missing"),
        ("model.gguf", b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "tensors.* are left"),
        ("model.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "keys.* are left"),
        ("notes.txt", b"hello", "not recognized"),
        ("model.safetensors", b"", "config.json"),
    ],
)
def test_a_file_that_is_no_model(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises((FileFormatError, FileNotFoundError), match=message):
        describe(tmp_path / name)


def header(**tensors: Any) -> bytes:
    packed = json.dumps(tensors).encode()
    return struct.pack("<Q", len(packed)) + packed


TENSOR = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut short"),
        (b"\xff" * 8, "cut short"),
        (struct.pack("<Q", 100) + b"{}", "cut short"),
        (struct.pack("<Q", 2) + b"xx", "not JSON"),
        (struct.pack("<Q", 2) + b"[]", "expected a JSON object"),
        (struct.pack("<Q", 50_000) + b"[" * 50_000, "not JSON"),
        (header(a=5), "a: expected dtype"),
        (header(a={**TENSOR, "shape": [-1]}) + bytes(16), "a: expected dtype"),
        (header(a={**TENSOR, "shape": "x"}) + bytes(16), "a: expected dtype"),
        (header(a={**TENSOR, "dtype": 5}) + bytes(16), "a: expected dtype"),
        (header(a={**TENSOR, "data_offsets": [0]}) + bytes(16), "a: .*cut short"),
        (header(a={**TENSOR, "data_offsets": [9, 8]}) + bytes(16), "a: .*cut short"),
        (header(a=TENSOR) + bytes(15), "16] of 15 bytes; the file is cut short"),
        (header(**{"model.embed_tokens.weight": {**TENSOR, "shape": []}}) + bytes(16), "0 rows"),
    ],
)
def test_damaged_safetensors(content: bytes, message: str, copied: Callable[[str], Path]) -> None:
    folder = copied("safetensors")
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        describe(folder)


@pytest.mark.parametrize("kind", ["safetensors", "mlx", "openvino"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "expected a JSON object"),
        (b"\xff", "not JSON"),
        (b'{"max_position_embeddings": "many"}', "max_position_embeddings: expected a number"),
        (b'{"max_position_embeddings": -5}', "max_position_embeddings"),
    ],
)
def test_a_bad_config(
    kind: str, content: bytes, message: str, copied: Callable[[str], Path]
) -> None:
    folder = copied(kind)
    (folder / "config.json").write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        backends.open_model(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        backends.open_model(folder)


def test_a_config_of_another_model_is_noticed(copied: Callable[[str], Path]) -> None:
    folder = edit(copied("safetensors"), vocab_size=600)
    with pytest.raises(FileFormatError, match=r"vocab_size: is 600, but .* has 512 rows"):
        describe(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not XML"),
        (b"This is a letter", "not XML"),
        (b"<net><layers>", "not XML"),
        (b"<other/>", "expected a <net>"),
        (b'<!DOCTYPE net [<!ENTITY a "aaaa">]><net>&a;</net>', "DOCTYPE"),
        (
            b'<net><layers><layer type="Const"><data offset="-1" size="4"/></layer></layers></net>',
            "expected offset and size",
        ),
        (
            b'<net><layers><layer type="Const"><data offset="0" size="99999999"/></layer>'
            b"</layers></net>",
            "cut short",
        ),
    ],
)
def test_damaged_openvino(content: bytes, message: str, copied: Callable[[str], Path]) -> None:
    folder = copied("openvino")
    (folder / "openvino_model.xml").write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        describe(folder)
    (folder / "openvino_model.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"openvino_model\.bin"):
        describe(folder)


def test_what_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(FileFormatError, match="pickled"):
        describe(tmp_path)
    (tmp_path / "adapter_config.json").touch()
    with pytest.raises(FileFormatError, match="adapter"):
        describe(tmp_path)
    for name in ("a.gguf", "b.gguf", "mmproj-c.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(FileFormatError, match=r"several models; name one of: a\.gguf, b\.gguf$"):
        describe(tmp_path)


# -- Whether a tokenizer fits -------------------------------------------------


def bare(files: ModelFiles, **values: Any) -> ModelFiles:
    """Return the same without its own tokenizer."""
    return dataclasses.replace(files, tokenizer=None, **values)


@KINDS
def test_the_models_own_tokenizer_fits(kind: str, made: Callable[[str], Path]) -> None:
    (files,) = describe(made(kind))
    fit.check(tiny_models.tokenizer(), files)
    fit.check(tiny_models.tokenizer(), bare(files))
    fit.check(fit.load_own(files), files)
    fit.check(fit.load_own(files), files, is_own=True)
    assert fit.findings(fit.load_own(files), made(kind)) == []
    assert beside(made(kind))[0].rows == ROWS


@KINDS
def test_another_tokenizer_of_the_same_size_is_refused(
    kind: str, made: Callable[[str], Path]
) -> None:
    (files,) = describe(made(kind))
    other = BPETokenizer().train(["quite another text, and other words " * 9], 300, verbose=False)
    with pytest.raises(ValueError) as caught:
        fit.check(other, files)
    message = str(caught.value)
    count = sum(
        tiny_models.tokenizer().get_vocab().get(token) != id_
        for token, id_ in other.get_vocab().items()
    )
    assert f"{count} of {len(other)} tokens differ (id 256 is " in message
    assert f"load the model's own: BPETokenizer.from_file({str(files.tokenizer)!r})" in message


def test_a_tokenizer_with_more_ids_than_rows_is_refused(made: Callable[[str], Path]) -> None:
    (files,) = describe(made("safetensors"))
    tokenizer = BPETokenizer.from_file(made("safetensors"))
    tokenizer.add_special_tokens({"<last>": ROWS - 1})
    fit.check(tokenizer, bare(files))
    tokenizer.add_special_tokens({"<more>": ROWS})
    with pytest.raises(
        ValueError,
        match="ids go up to 512 .*<more>.*, but the model has 512 rows.*it was trained with",
    ):
        fit.check(tokenizer, bare(files))
    with pytest.raises(ValueError, match="2 of 482 tokens differ .*'<last>', the model's has none"):
        fit.check(tokenizer, files)


def test_other_special_ids_are_refused(made: Callable[[str], Path]) -> None:
    (files,) = describe(made("gguf"))
    with pytest.raises(ValueError, match=f"its eos token has the id {EOS}, the model's 3 or 7"):
        fit.check(tiny_models.tokenizer(), bare(files, eos_ids=(3, 7)))
    with pytest.raises(ValueError, match=f"its bos token has the id {BOS}, the model's 3"):
        fit.check(tiny_models.tokenizer(), bare(files, bos_id=3))
    fit.check(tiny_models.tokenizer(), bare(files, bos_id=None, eos_ids=()))


def test_a_tokenizer_with_fewer_tokens_fits(made: Callable[[str], Path]) -> None:
    (files,) = describe(made("mlx"))
    smaller = BPETokenizer().train([tiny_models.text()], 300, verbose=False)
    fit.check(smaller, files)


def test_a_models_tokenizer_that_cannot_be_read_is_not_compared(
    copied: Callable[[str], Path],
) -> None:
    folder = copied("safetensors")
    (folder / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    (files,) = describe(folder)
    fit.check(tiny_models.tokenizer(), files)
    with pytest.raises(FileFormatError, match="Unigram"):
        fit.load_own(files)


# -- A model whose own tokenizer does not fit -----------------------------------


IR = """<net><layers><layer type="Const"><data offset="0" size="8" element_type="f32"/></layer>
<layer type="Result"><output><port names="logits"><dim>1</dim><dim>-1</dim><dim>{}</dim></port>
</output></layer></layers></net>"""


def small_weights(folder: Path, rows: int, kind: str = "safetensors") -> None:
    """Write files of weights that claim that number of rows, and hold zeros."""
    if kind == "openvino":
        (folder / "openvino_model.xml").write_text(IR.format(rows))
        (folder / "openvino_model.bin").write_bytes(bytes(8))
        return
    entry = {"dtype": "F32", "shape": [rows, 2], "data_offsets": [0, rows * 8]}
    metadata = {"format": "mlx" if kind == "mlx" else "pt"}
    head = json.dumps({"__metadata__": metadata, "model.embed_tokens.weight": entry}).encode()
    data = struct.pack("<Q", len(head)) + head + bytes(rows * 8)
    (folder / "model.safetensors").write_bytes(data)


def directory(
    folder: Path, ids: int, rows: int, kind: str | None = "safetensors", **more: Any
) -> Path:
    """Make a model's directory: a tokenizer with `ids` ids, and weights with `rows` rows."""
    tokenizer = BPETokenizer("gpt2", normalizer=None)
    tokenizer.add_special_tokens({"<s>": ids - 3, "</s>": ids - 2, "<pad>": ids - 1})
    tokenizer.save(folder, verbose=False)
    config = {"model_type": "llama", "vocab_size": rows, **more}
    (folder / "config.json").write_text(json.dumps(config))
    if kind:
        small_weights(folder, rows, kind)
    return folder


def run(*argv: object) -> int:
    return bpe_tokenizer.main(list(map(str, argv)))


MESSAGES = [{"role": "user", "content": "Hi"}]


def assert_refused_everywhere(
    path: Path, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Try all that runs or checks a model: the same words, and no weights are loaded."""
    monkeypatch.setattr(backends, "open_model", lambda *_, **__: pytest.fail("weights are loaded"))
    tokenizer = BPETokenizer.from_file(path)
    for attempt in (
        lambda: Session(path, template="chatml"),
        lambda: Session(path, tokenizer, template="chatml"),
        lambda: tokenizer.chat(MESSAGES, path, template="chatml"),
        lambda: fit.check(tokenizer, describe(path)[0]),
    ):
        with pytest.raises(ValueError) as refused:
            attempt()
        assert str(refused.value) == message
    chat = ("chat", "--model", path, "--message", "Hi", "--template", "chatml")
    for more in ((), ("--tokenizer", path)):
        assert run(*chat, *more) == 1
        assert capsys.readouterr() == ("", f"bpe-tokenizer: error: {message}\n")
    assert run("check", path) == 1
    assert f"error: model: {message}" in capsys.readouterr().out.splitlines()
    assert run("check", path, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert [f["message"] for f in report["findings"] if f["name"] == "model"] == [message]


@KINDS
def test_more_ids_than_rows_are_refused_everywhere(
    kind: str,
    copied: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    large = tiny_models.tokenizer().__copy__()
    large.add_special_tokens({"<one too many>": ROWS})
    if kind == "gguf":
        path, model = copied("gguf"), tiny_models.model(TIED)
        tiny_models.llama_forms.write_gguf(path, tiny_models.config(model), model.weights, large)
    else:
        path = copied(kind)
        large.save(path, verbose=False)
    message = (
        f"this tokenizer does not fit the model {path.resolve()}: its ids go up to 512 "
        "('<one too many>'), but the model has 512 rows, for the ids 0 to 511; the tokenizer "
        "and the weights come from different models, or tokens were added without resizing the "
        "embedding: take both from one model, or resize the embedding"
    )
    assert_refused_everywhere(path, message, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["safetensors", "mlx", "openvino"])
def test_a_thousand_ids_and_900_rows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = directory(tmp_path / "model", 1000, 900, kind)
    assert [files.kind for files in describe(folder)] == [kind]
    message = str(misfit(folder))
    assert "ids go up to 999 ('<pad>'), but the model has 900 rows, for the ids 0 to 899" in message
    assert_refused_everywhere(folder, message, monkeypatch, capsys)
    if kind == "openvino":  # where the number of logits counts
        return
    contradiction = r"config.json: vocab_size: is 1,000, but model.embed_tokens.weight has 900 rows"
    edit(folder, vocab_size=1000)
    with pytest.raises(FileFormatError, match=contradiction) as refused:
        Session(folder, template="chatml")
    assert_refused_everywhere(folder, str(refused.value), monkeypatch, capsys)
    small_weights(folder, 1000)
    assert run("check", folder) == 0
    edit(folder, vocab_size=1100)
    small_weights(folder, 1100)  # more rows than ids are usual
    assert run("check", folder) == 0


def misfit(folder: Path) -> ValueError:
    with pytest.raises(ValueError) as refused:
        fit.check(BPETokenizer.from_file(folder), describe(folder)[0])
    return refused.value


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        {"vocab_size": 900},
        {"text_config": {"vocab_size": 900}},
        {"vocab_size": 5000, "text_config": {"vocab_size": 900}},
        {"vocab_size": None, "llm_config": {"vocab_size": 900}},
    ],
)
def test_config_json_alone_says_it_too(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = directory(tmp_path / "model", 1000, 900, kind=None)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    for path in (folder, folder / "tokenizer.json"):
        assert run("check", path) == 1
        assert "999 ('<pad>'), but the model has 900 rows" in capsys.readouterr().out
    index = {"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))  # not downloaded
    assert run("check", folder) == 1
    (folder / "config.json").unlink()
    assert run("check", folder) == 0
    (folder / "config.json").write_text('{"model_type": "llama"}')  # no word on it
    assert run("check", folder) == 0
    (folder / "config.json").write_text('{"vocab_size": "many"}')
    assert run("check", folder) == 1
    capsys.readouterr()
    assert run("check", folder) == 1
    assert "error: model: " in (out := capsys.readouterr().out)
    assert "vocab_size: expected a number of 1 or more, got 'many'" in out


ROLES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"bos_token_id": 997, "eos_token_id": 998, "pad_token_id": 999}, {}, []),
    ({}, {}, []),
    ({"eos_token_id": [5, 998, 7]}, {}, []),
    ({"eos_token_id": 65}, {"eos_token_id": [998]}, []),
    ({"bos_token_id": None, "eos_token_id": None, "pad_token_id": -1}, {}, []),
    ({"text_config": {"eos_token_id": 998, "vocab_size": 1000}}, {}, []),
    (
        {"eos_token_id": 65},
        {},
        ["eos_token_id 65 ('A'); the tokenizer's eos token is '</s>', id 998"],
    ),
    (
        {"eos_token_id": 999},
        {},
        ["eos_token_id 999 ('<pad>'); the tokenizer's eos token is '</s>', id"],
    ),
    ({"eos_token_id": [998, 50256]}, {}, ["eos_token_id 998 ('</s>') and 50256 (no token); the"]),
    (
        {"pad_token_id": 900},
        {},
        ["pad_token_id 900 (no token); the tokenizer's pad token is '<pad>', id"],
    ),
    ({"bos_token_id": 999}, {"pad_token_id": 998}, ["bos_token_id 999", "pad_token_id 998"]),
]


@pytest.mark.parametrize("config, generation, expected", ROLES)
def test_roles_of_other_tokens_are_named(
    config: dict[str, Any],
    generation: dict[str, Any],
    expected: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = directory(tmp_path / "model", 1000, 1024, **config)
    if "text_config" in config:
        edit(folder, vocab_size=...)
        small_weights(folder, 1000)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    assert run("check", folder, "--json") == 0  # it can be run
    report = json.loads(capsys.readouterr().out)
    found = [f for f in report["findings"] if f["name"].startswith("model")]
    assert {f["severity"] for f in found} <= {"warning"} and len(found) == len(expected)
    for finding, words in zip(found, expected):
        assert words in finding["message"]
    fit.check(BPETokenizer.from_file(folder), describe(folder)[0], is_own=True)


def test_a_vocabulary_without_weights_has_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = BPETokenizer("gpt2", normalizer=None)
    tokenizer.add_special_tokens({"<s>": 999})
    tokenizer.export(tmp_path / "vocab.gguf", "gguf")
    assert beside(tmp_path / "vocab.gguf") == beside(tmp_path) == []
    (tmp_path / "config.json").write_text('{"vocab_size": 3}')
    assert beside(tmp_path / "vocab.gguf") == []  # which need not belong to it
    assert run("check", tmp_path / "vocab.gguf") == 0
