"""The module without its tools chooses the library that the whole chooses, for every model.

Models are made by hand, so that no library is needed: only what the files say decides.
"""

from __future__ import annotations

import io
import itertools
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lone_module
import pytest
import tiny_models
from conftest import EITHER_ENGINE
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, InferenceBackend
from bpe_tokenizer_tools import backends, core

pytestmark = EITHER_ENGINE  # the copy has one

ROWS, COLUMNS = 300, 4
CONFIG = {"model_type": "llama", "vocab_size": ROWS, "eos_token_id": 2, "bos_token_id": 1}


def weights(rows: int = ROWS, **metadata: str) -> bytes:
    """Return a safetensors file with an embedding."""
    size = rows * COLUMNS * 4
    tensor = {"dtype": "F32", "shape": [rows, COLUMNS], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": metadata, "model.embed_tokens.weight": tensor}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


def gguf() -> bytes:
    """Return a GGUF file of version 3 with an embedding and without a tokenizer."""

    def string(text: str) -> bytes:
        return struct.pack("<Q", len(text)) + text.encode()

    key = string("general.architecture") + struct.pack("<I", 8) + string("llama")
    tensor = string("token_embd.weight") + struct.pack("<IQQIQ", 2, COLUMNS, ROWS, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + key + tensor
    return head + bytes(-len(head) % 32) + bytes(ROWS * COLUMNS * 4)


GRAPH = f"""<net name="m" version="11"><layers>
<layer id="0" name="w" type="Const"><data element_type="f32" offset="0" size="16"/></layer>
<layer id="1" name="out" type="Result"><output><port id="0" names="logits"><dim>-1</dim>
<dim>{ROWS}</dim></port></output></layer></layers></net>"""
IR = {"openvino_model.xml": GRAPH.encode(), "openvino_model.bin": bytes(16)}
QUANTIZED = {**CONFIG, "quantization": {"group_size": 64, "bits": 4}}
BNB = {**CONFIG, "quantization_config": {"quant_method": "bitsandbytes"}}
INDEX = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
PARTS = {"model-00001-of-00001.safetensors": weights(), "model.safetensors.index.json": INDEX}

# Name -> the files of a folder, and what to open in it
MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "a GGUF file": ({"m.gguf": gguf()}, "m.gguf"),
    "a GGUF file by another name": ({"model.bin": gguf()}, "model.bin"),
    "a folder with a GGUF file": ({"m.gguf": gguf(), "mmproj-m.gguf": gguf()}, ""),
    "two GGUF files": ({"a.gguf": gguf(), "b.gguf": gguf()}, ""),
    "half of a GGUF model": ({"m-00001-of-00002.gguf": gguf()}, "m-00001-of-00002.gguf"),
    "no GGUF file": ({"m.gguf": b"PK"}, "m.gguf"),
    "HuggingFace's": ({"config.json": CONFIG, "model.safetensors": weights(format="pt")}, ""),
    "its weights": ({"config.json": CONFIG, "model.safetensors": weights()}, "model.safetensors"),
    "HuggingFace's in parts": ({"config.json": CONFIG, **PARTS}, ""),
    "a part is missing": ({"config.json": CONFIG, "model.safetensors.index.json": INDEX}, ""),
    "with safetensors and GGUF": (
        {"config.json": CONFIG, "model.safetensors": weights(), "m.gguf": gguf()},
        "",
    ),
    "mlx-lm's": ({"config.json": CONFIG, "model.safetensors": weights(format="mlx")}, ""),
    "mlx-lm's, quantized": (
        {"config.json": QUANTIZED, "model.safetensors": weights(format="mlx")},
        "",
    ),
    "quantization without the mark of mlx-lm": (
        {"config.json": QUANTIZED, "model.safetensors": weights(format="pt")},
        "",
    ),
    "quantized for Transformers": (
        {"config.json": BNB, "model.safetensors": weights(format="pt")},
        "",
    ),
    "OpenVINO's": ({"config.json": CONFIG, **IR}, ""),
    "its graph": ({"config.json": CONFIG, **IR}, "openvino_model.xml"),
    "OpenVINO's and HuggingFace's": (
        {"config.json": CONFIG, **IR, "model.safetensors": weights(format="pt")},
        "",
    ),
    "OpenVINO's without weights": ({"config.json": CONFIG, "openvino_model.xml": GRAPH}, ""),
    "another model's config": ({"config.json": CONFIG, "model.safetensors": weights(9)}, ""),
    "damaged": ({"config.json": CONFIG, "model.safetensors": b"\xff" * 99}, ""),
    "without a config": ({"model.safetensors": weights()}, ""),
    "pickled": ({"config.json": CONFIG, "pytorch_model.bin": b""}, ""),
    "an adapter": ({"adapter_config.json": {}, "adapter_model.safetensors": weights()}, ""),
    "empty": ({}, ""),
    "missing": ({}, "nosuch"),
    "missing, a file": ({}, "nosuch.gguf"),
    "in a folder of it": ({"inner/config.json": CONFIG, "inner/model.safetensors": weights()}, ""),
}
PACKAGES = [
    *(("llama_cpp",), ("mlx_lm",), ("openvino",), ("transformers", "torch"), ("transformers",)),
    *((), ("llama_cpp", "mlx_lm", "openvino", "transformers", "torch"), ("mlx_lm", "openvino")),
]
BACKENDS = [None, *bpe_tokenizer._RUNNERS, *InferenceBackend, "vllm"]


def make(name: str, folder: Path) -> Path:
    contents, opened = MODELS[name]
    for file, content in contents.items():
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        content = json.dumps(content) if isinstance(content, dict) else content
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / opened


def outcome(choose: Callable[[], list[tuple[str, Any, str | None]]]) -> Any:
    """Return what is chosen, best first, or the error."""
    try:
        chosen = choose()
    except (OSError, ValueError) as error:
        return type(error).__name__, str(error)
    return [(name, device, files.kind, files.path) for name, files, device in chosen]


@pytest.mark.parametrize("name", MODELS)
def test_the_same_library_is_chosen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, path = lone_module.load(), make(name, tmp_path)
    is_model = 0
    for packages, on_apple in itertools.product(PACKAGES, (False, True)):
        for module in (alone, bpe_tokenizer):
            monkeypatch.setattr(module, "_is_installed", packages.__contains__)
            monkeypatch.setattr(module, "_is_apple", lambda on_apple=on_apple: on_apple)
        for backend in BACKENDS:
            theirs = getattr(alone.InferenceBackend, getattr(backend, "name", ""), backend)
            found = outcome(lambda named=theirs: alone._choices(path, alone._describe(path), named))
            expected = outcome(
                lambda named=backend: core.choices(path, backends.describe(path), named)
            )
            assert found == expected
            is_model += isinstance(found, list)
    refused = ("two", "half", "no GGUF", "a part", "OpenVINO's without", "another", "damaged")
    refused += ("without a config", "pickled", "an adapter", "empty", "missing", "in a folder")
    assert bool(is_model) is not name.startswith(refused)


def test_what_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of these choices, by name."""
    alone = lone_module.load()
    monkeypatch.setattr(alone, "_is_installed", lambda package: True)
    monkeypatch.setattr(alone, "_is_apple", lambda: False)
    for name, best in {
        "a GGUF file": "llama.cpp",
        "HuggingFace's": "transformers",
        "quantized for Transformers": "transformers",
        "mlx-lm's": "mlx",
        "mlx-lm's, quantized": "mlx",
        "quantization without the mark of mlx-lm": "mlx",
        "OpenVINO's": "openvino",
        "OpenVINO's and HuggingFace's": "openvino",
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        path = make(name, folder)
        assert alone._choices(path, alone._describe(path), None)[0][0] == best
    monkeypatch.setattr(alone, "_is_apple", lambda: True)
    path = tmp_path / "HuggingFace's"
    assert alone._choices(path, alone._describe(path), None)[0][0] == "mlx"


# -- Whether a tokenizer fits ---------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Run models in a library that only notes that it was asked to."""
    numpy = need("numpy")  # all libraries sample with it
    loaded: list[Any] = []
    alone = lone_module.load()

    class Fake(alone._Runner):  # type: ignore[misc, name-defined]
        name, packages, block = "Transformers", (), 10_000

        def _load(self, loading: Any) -> None:
            loaded.append(self.path)

        def _forget(self) -> None:
            """Each prompt has several ids, which begin another answer."""

        def _feed(self, ids: list[int]) -> Any:
            """Let "a" follow, and after three the end."""
            self.read = 1 if len(ids) > 1 else self.read + 1
            logits = numpy.zeros(self.vocab_rows)
            logits[298 if self.read > 3 else ord("a")] = 1
            return logits

    monkeypatch.setitem(alone._RUNNERS, "transformers", Fake)
    monkeypatch.setattr(alone, "_is_installed", lambda package: True)
    monkeypatch.setattr(alone, "_is_apple", lambda: False)
    monkeypatch.setattr(alone, "_loaded", {})
    return loaded


def tokenizer(cls: type[BPETokenizer], **more: int) -> BPETokenizer:
    """Return bytes and control tokens, which take the first ids of a model's own."""
    made = cls(surround="bos")
    made.add_special_tokens({"<s>": 297, "</s>": 298, **more})
    made.bos_token, made.eos_token = "<s>", "</s>"
    return made


def model_with(own: BPETokenizer | None, folder: Path, **config: Any) -> Path:
    make("HuggingFace's", folder)
    config = {**CONFIG, "bos_token_id": 297, "eos_token_id": 298, **config}
    (folder / "config.json").write_text(json.dumps(config))
    if own is not None:
        own.save(folder, verbose=False)
    return folder


TALK = [{"role": "user", "content": "Hi"}]
MISFITS: dict[str, tuple[dict[str, int], dict[str, Any], str]] = {
    "more ids than rows": ({"<more>": 300}, {}, "its ids go up to 300 ('<more>'), but the model"),
    "another token": ({"<more>": 290}, {}, "1 of 259 tokens differ (id 290 is '<more>', the mod"),
    "other roles": ({}, {"eos_token_id": 7}, "its eos token has the id 298, the model's 7"),
}


@pytest.mark.parametrize("what", MISFITS)
def test_a_tokenizer_of_another_model_is_refused_before_loading(
    what: str, tmp_path: Path, opened: list[Any]
) -> None:
    more, config, told = MISFITS[what]
    alone = lone_module.load()
    own = None if what == "other roles" else tokenizer(BPETokenizer)
    folder = model_with(own, tmp_path, **config)
    errors = []
    for module in (alone, bpe_tokenizer):
        with pytest.raises(ValueError, match="does not fit the model") as caught:
            tokenizer(module.BPETokenizer, **more).chat(TALK, folder, "alpaca")
        errors.append(str(caught.value))
    assert errors[0] == errors[1] and told in errors[0]
    assert not opened


def test_a_tokenizer_that_only_tools_can_read_is_not_compared(
    tmp_path: Path, opened: list[Any]
) -> None:
    folder = model_with(None, tmp_path)
    (folder / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02")
    made = tokenizer(lone_module.load().BPETokenizer)
    answer = made.chat(TALK, folder, "alpaca", temperature=0)
    assert opened == [folder] and answer == "aaa"


def test_verbose_says_what_ran_and_how_fast(
    tmp_path: Path, opened: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    made = tokenizer(lone_module.load().BPETokenizer)
    folder = model_with(made, tmp_path)
    n = len(made.apply_chat_template(TALK, "alpaca"))
    assert made.chat(TALK, folder, "alpaca", temperature=0, verbose=True) == "aaa"
    out, err = capsys.readouterr()
    first, second = err.splitlines()
    assert out == "" and first == f"<Transformers on CPU: {folder}>, context 8192"
    core_reply = core.Reply("", n, 4, 2.0, "stop")
    assert str(core_reply) == f"{n} + 4 tokens, 2.0 a second, ended by stop"
    assert second.startswith(f"{n} + 4 tokens, ") and second.endswith(" a second, ended by stop")
    made.chat(TALK, folder, "alpaca", temperature=0, verbose=True, max_new_tokens=2)
    assert capsys.readouterr().err.endswith(" a second, ended by length\n")
    made.chat(TALK, folder, "alpaca", temperature=0, verbose=True, stop="aa")
    assert capsys.readouterr().err.endswith(" a second, ended by stop\n")


@pytest.mark.parametrize("typed", ["", "\n \n", "quit\nHi\n", "exit\n", "/quit"])
def test_the_command_ends_when_nothing_is_asked(
    typed: str,
    tmp_path: Path,
    opened: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = lone_module.load()
    folder = model_with(tokenizer(alone.BPETokenizer), tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert alone.main(["chat", "--model", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"<Transformers on CPU: {folder}>, context 8192\n")
    assert opened == [folder]


def test_the_command_answers_each_line(
    tmp_path: Path,
    opened: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = lone_module.load()
    folder = model_with(tokenizer(alone.BPETokenizer), tmp_path)
    words = ["chat", "--model", str(folder), "--template", "alpaca", "--temperature", "0"]
    for quiet in ([], ["--quiet"]):
        monkeypatch.setattr("sys.stdin", io.StringIO("Hi\nWhy?\n"))
        assert alone.main(words + quiet) == 0
        out, err = capsys.readouterr()
        assert out == "aaa\naaa\n"
        speeds = err.splitlines()[1:]
        assert len(speeds) == (0 if quiet else 2) and (not quiet or not err)
        assert all(line.endswith(" a second, ended by stop") for line in speeds)
    assert opened == [folder]  # it stays loaded


def test_a_tiny_model_is_described_alike(tmp_path: Path) -> None:
    """What the module reads of a model agrees with what the tools read of it."""
    pytest.importorskip("numpy")
    folder = tiny_models.write_safetensors(tmp_path / "m", tiny_models.model(False))
    (alone,) = lone_module.load()._describe(folder)
    (whole,) = backends.describe(folder)
    assert vars(alone) == vars(whole) and alone.rows == tiny_models.ROWS
