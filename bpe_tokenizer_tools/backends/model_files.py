"""What the files of a model say, before any of its weights are loaded.

Only headers are read, in a fraction of a second: how many ids the model has, how many tokens
fit its context, which ids begin and end a text, and whether it brings a tokenizer.  Nothing
in the files is trusted: whatever would make a library read past their end, or compute
nonsense, is refused here.

There are four kinds of models:

- "gguf": a file of llama.cpp, or the first of several (``x-00001-of-00003.gguf``);
- "safetensors": a directory of HuggingFace's, config.json with model.safetensors, or with
  model.safetensors.index.json and the files it names;
- "mlx": the same as mlx-lm writes it;
- "openvino": a directory with openvino_model.xml and openvino_model.bin.
"""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.core import shorten
from bpe_tokenizer_tools.formats import gguf, read_head

_MAX_XML_BYTES = 2**28
_IR = core.IR
_Found = TypeVar("_Found")


ModelFiles = core.ModelFiles
models_near = core.models_near
_SHARD = core.GGUF_SHARD
_gguf_files = core.gguf_files
_Config = core.ModelConfig
_valid = core.valid_ids
_checked_rows = core.checked_rows
_has_tokenizer = core.has_tokenizer
_safetensors = core.safetensors_files
_safetensors_header = core.safetensors_header
_read_safetensors = core.read_safetensors


def describe(path: str | os.PathLike[str]) -> list[ModelFiles]:
    """Read facts about a model from its files; a directory may have several kinds.

    Raises:
        FileNotFoundError: there is no such model, or a part of it is missing.
        FileFormatError: it is damaged, or not a model.
    """
    return core.describe_model(path, _read_gguf, _read_ir)


def beside(path: Path) -> list[ModelFiles]:
    """Read the config of the model next to a tokenizer; empty if there is none.

    Unlike `describe`, it only needs config.json: weights, or parts of them, may be missing.

    Args:
        path: a file or a directory that a tokenizer was loaded from.

    Raises:
        FileFormatError: the model's files are damaged, or contradict each other.
    """
    if path.is_dir() and not (path / "config.json").is_file() and not _has_tokenizer(path):
        within = sorted(path.glob("*.gguf"))
        path = within[0] if len(within) == 1 else path
    if path.is_file() and gguf.matches(path, read_head(path)):
        has_weights = bool(_gguf_header(path)[1]) or _SHARD.fullmatch(path.name)
        return _if_whole(_read_gguf, path.resolve()) if has_weights else []
    folder = (path if path.is_dir() else path.parent).resolve()
    known = path.is_dir() or path.name in core.TOKENIZER_NAMES
    if not known or not (folder / "config.json").is_file():
        return []
    found = _if_whole(_read_ir, folder) if (folder / _IR).exists() else []
    weights = _if_whole(_safetensors, folder)
    if any(weights):
        found.append(_read_safetensors(folder, weights[0]))
    elif not found and _Config(folder).number("vocab_size") is not None:
        found.append(_read_safetensors(folder, []))
    return found


def _if_whole(read: Callable[[Path], _Found], path: Path) -> list[_Found]:
    """Read a model, or nothing if a part of its weights is missing."""
    try:
        return [read(path)]
    except FileNotFoundError:
        return []


# -- GGUF ---------------------------------------------------------------------
# The header's keys are followed by the name, the number of dimensions, the dimensions,
# the type and the offset of each tensor.  The first dimension counts the columns.

_GGUF_DTYPES = {0: "float32", 1: "float16", 30: "bfloat16"}
_MAX_DIMENSIONS = 4
_MAX_TENSORS = 2**20


def _read_gguf(path: Path) -> ModelFiles:
    files = _gguf_files(path)
    keys, tensors = _gguf_header(files[0])
    for file in files[1:]:
        tensors.update(_gguf_header(file)[1])
    path, table = files[0], tensors.get("token_embd.weight")
    if table is None:
        problem = (
            "is missing; the file contains a tokenizer, or something other than a language model"
        )
        raise FileFormatError(path, "token_embd.weight", problem)
    shape, kind = table
    rows = _checked_rows(path, "token_embd.weight", shape[-1] if len(shape) == 2 else 0)

    def ids(*names: str) -> tuple[int, ...]:
        values = [keys.get(f"tokenizer.ggml.{name}_token_id") for name in names]
        return _valid(values, rows)

    context = keys.get(f"{keys.get('general.architecture')}.context_length")
    return ModelFiles(
        path,
        "gguf",
        rows,
        _GGUF_DTYPES.get(kind, "quantized"),
        context if isinstance(context, int) and context > 0 else None,
        ids("eos", "eot", "eom"),
        bos_id=next(iter(ids("bos")), None),
        tokenizer=path if "tokenizer.ggml.model" in keys else None,
        files=tuple(files),
    )


def _gguf_header(path: Path) -> tuple[dict[str, Any], dict[str, tuple[list[int], int]]]:
    """Return the keys that are needed, and the shape and type of each tensor."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        if file.read(4) != b"GGUF":
            raise core.no_model(path)
        file.seek(0)
        reader = gguf._HeaderReader(file, path, size)
        keys, count = gguf.read_keys(reader, _is_wanted)
        if count > _MAX_TENSORS:
            raise reader.error(f"{count:,} tensors; the limit is {_MAX_TENSORS:,}")
        tensors = {}
        furthest = 0
        for i in range(count):
            reader.field = f"tensor {i}"
            name = reader.string(gguf._MAX_KEY_BYTES, "the name of a tensor")
            dimensions = reader.unsigned(gguf._U32, "the number of dimensions")
            if dimensions > _MAX_DIMENSIONS:
                raise reader.error(f"{dimensions} dimensions; the limit is {_MAX_DIMENSIONS}")
            shape = [reader.unsigned(gguf._U64, "a dimension") for _ in range(dimensions)]
            kind = reader.unsigned(gguf._U32, "the type of a tensor")
            furthest = max(furthest, reader.unsigned(gguf._U64, "the offset of a tensor"))
            tensors[name] = shape, kind
        if count:
            reader.field = "tensors"
            reader.check(furthest + 1, "their data")
    return {key: value.data for key, value in keys.items()}, tensors


def _is_wanted(key: str) -> bool:
    one_of = r"general\.architecture|[^.]+\.context_length|tokenizer\.ggml\.(\w+_token_id|model)"
    return re.fullmatch(one_of, key) is not None


# -- OpenVINO -----------------------------------------------------------------
# openvino_model.xml has layers; the weights are layers of the type "Const" that say where in
# openvino_model.bin they are.

_IR_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def _read_ir(folder: Path) -> ModelFiles:
    config = _Config(folder)
    path, data = folder / _IR, core.ir_weights(folder)
    size = data.stat().st_size
    root = _parsed(path)
    largest, dtype = 0, "quantized"
    for constant in root.iterfind("./layers/layer[@type='Const']/data"):
        numbers = [constant.get("offset", ""), constant.get("size", "")]
        if not all(re.fullmatch(r"\d{1,18}", number) for number in numbers):
            raise FileFormatError(path, "Const", f"expected offset and size, got {numbers}")
        offset, length = map(int, numbers)
        if offset + length > size:
            problem = f"has {size:,} bytes, but {offset + length:,} are needed; it is cut short"
            raise FileFormatError(data, "", problem)
        if length > largest:
            largest = length
            dtype = _IR_DTYPES.get(constant.get("element_type", ""), "quantized")
    rows = _ir_rows(root) or config.number("vocab_size")
    rows = _checked_rows(path, "logits", rows)
    return config.model("openvino", rows, dtype, (path, data))


def _ir_rows(root: ElementTree.Element) -> int | None:
    """Return the number of logits, if it is fixed."""
    for port in root.iterfind("./layers/layer/output/port"):
        if "logits" in port.get("names", "").split(","):
            dimensions = [dim.text or "" for dim in port.iterfind("dim")]
            if dimensions and re.fullmatch(r"\d{1,9}", dimensions[-1]):
                return int(dimensions[-1])
    return None


def _parsed(path: Path) -> ElementTree.Element:
    size = path.stat().st_size
    if size > _MAX_XML_BYTES:
        raise FileFormatError(path, "", f"{size:,} bytes; the limit is {_MAX_XML_BYTES:,}")
    text = path.read_bytes()
    if b"<!DOCTYPE" in text:  # its entities could fill the memory
        raise FileFormatError(path, "", "has a DOCTYPE, which OpenVINO does not write")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise FileFormatError(path, "", f"not XML: {error}") from None
    if root.tag != "net":
        raise FileFormatError(path, "", f"expected a <net>, got <{shorten(root.tag)[1:-1]}>")
    return root
