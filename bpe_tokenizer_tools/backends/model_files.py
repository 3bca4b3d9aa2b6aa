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

import json
import os
import re
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.core import shorten
from bpe_tokenizer_tools.formats import gguf, read_head
from bpe_tokenizer_tools.support.files import FileStatus, status_of

_JsonReader = core.JsonReader

_MAX_JSON_BYTES = 100_000_000  # of a safetensors header, as the format says
_MAX_XML_BYTES = 2**28
_MAX_ROWS = 2**31 - 1  # ids are 32 bits wide in every library
_TOKENIZERS = ("tokenizer.json", "tekken.json", "tokenizer.model", "vocab.json")
_IR = "openvino_model.xml"
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class ModelFiles(core.ModelFiles):
    """What the files of a model say.

    Attributes:
        path: the model: a .gguf file, or a directory.
        kind: one of the kinds above.
        rows: number of rows of the embedding: ids are 0 to rows - 1.
        dtype: of the embedding: "float32", "float16", "bfloat16", or else "quantized".
        context: how many tokens the model was trained for, if the files say so.
        eos_ids: the ids that end a text, or a turn of a chat.
        config: config.json.
        bos_id: the id that begins a text, if the files say so.
        tokenizer: the path from which `BPETokenizer.from_file` reads the model's own, if any.
        files: all files of the model.
        said: "bos", "eos", "pad" -> the ids that config.json and generation_config.json name,
            whether the model has them or not.
    """

    bos_id: int | None = None
    tokenizer: Path | None = None
    files: tuple[Path, ...] = ()
    said: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def stamp(self) -> tuple[tuple[str, FileStatus], ...]:
        """Return a value that changes when a file does."""
        return tuple((str(file), status_of(file)) for file in self.files)


def describe(path: str | os.PathLike[str]) -> list[ModelFiles]:
    """Read facts about a model from its files; a directory may have several kinds.

    Raises:
        FileNotFoundError: there is no such model, or a part of it is missing.
        FileFormatError: it is damaged, or not a model.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: no such file or directory; expected a .gguf file, or a directory with "
            "config.json and safetensors, or one with openvino_model.xml (download a model from "
            "the Hub first)"
        )
    path = path.resolve()
    if path.is_file() and (path.name == _IR or path.suffix == ".safetensors"):
        path = path.parent
    if path.is_file():
        return [_read_gguf(path)]
    found = []
    if (path / _IR).exists():
        found.append(_read_ir(path))
    weights = _safetensors(path)
    if weights:
        found.append(_read_safetensors(path, weights))
    if not found:
        found.append(_read_gguf(_gguf_within(path)))
    return found


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
    known = path.is_dir() or path.name in _TOKENIZERS
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


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).exists() for name in _TOKENIZERS)


# -- GGUF ---------------------------------------------------------------------
# The header's keys are followed by the name, the number of dimensions, the dimensions,
# the type and the offset of each tensor.  The first dimension counts the columns.

_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_GGUF_DTYPES = {0: "float32", 1: "float16", 30: "bfloat16"}
_MAX_DIMENSIONS = 4
_MAX_TENSORS = 2**20


def _gguf_within(folder: Path) -> Path:
    """Return the one model of a directory, of several files the first."""
    files = sorted(folder.glob("*.gguf"))
    # Files that turn pictures into embeddings are beside the model they belong to.
    files = [file for file in files if not file.name.startswith("mmproj")]
    shards = [(file, _SHARD.fullmatch(file.name)) for file in files]
    firsts = [file for file, shard in shards if shard is None or int(shard[2]) == 1]
    if len(firsts) == 1:
        return firsts[0]
    if firsts:
        names = ", ".join(file.name for file in firsts[:3])
        raise FileFormatError(folder, "", f"contains several models; name one of: {names}")
    for name, problem in (
        ("adapter_config.json", "holds an adapter, not a whole model; merge it into its model"),
        ("pytorch_model.bin", "its weights are pickled, which can run code; convert it"),
    ):
        if (folder / name).exists():
            raise FileFormatError(folder, name, f"{problem}, and save that as safetensors")
    raise FileNotFoundError(
        f"{folder}: contains no model; expected model.safetensors with config.json, {_IR}, or a "
        f".gguf file{models_near(folder)}"
    )


def models_near(folder: Path) -> str:
    """Suggest the models in a directory's own directories, else the one that it is part of."""
    names = ("*.safetensors", _IR, "*.gguf")
    below = {file.parent for name in names for file in folder.glob(f"*/{name}")}
    above = {folder.parent for name in names if any(folder.parent.glob(name))}
    found = [str(each) for each in sorted(below or above)[:4]]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _gguf_files(path: Path) -> list[Path]:
    """Return all files of a model, given one of them."""
    shard = _SHARD.fullmatch(path.name)
    if shard is None:
        return [path]
    count = int(shard[3])
    names = [f"{shard[1]}-{i + 1:05}-of-{shard[3]}.gguf" for i in range(count)]
    files = [path.with_name(name) for name in names]
    missing = [file.name for file in files if not file.exists()]
    if missing or not files:
        raise FileNotFoundError(
            f"{path}: {len(missing)} of {count} parts are missing: {missing[:3]}"
        )
    return files


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
            problem = "not recognized as a model; a file must be GGUF, others are directories"
            raise FileFormatError(path, "", problem + models_near(path))
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


# -- Directories --------------------------------------------------------------


_TEXT_PARTS = ("text_config", "llm_config", "language_config")  # of a model that also takes images


class _Config:
    """config.json and generation_config.json, whose values may be of any type."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "config.json"
        self.data: dict[str, Any] = _JsonReader.open(self.path).data
        self.files = [self.path]
        parts = map(self.data.get, _TEXT_PARTS)
        self._texts = [*(part for part in parts if isinstance(part, dict)), self.data]
        generation = folder / "generation_config.json"
        self._generation: dict[str, Any] = {}
        if generation.exists():
            self.files.append(generation)
            self._generation = _JsonReader.open(generation).data

    def number(self, *names: str) -> int | None:
        """Return the value of the first of some fields that exists."""
        for name in names:
            for data in self._texts:
                value = data.get(name)
                if value is None:
                    continue
                if type(value) is not int or value < 1:
                    problem = f"expected a number of 1 or more, got {shorten(value)}"
                    raise FileFormatError(self.path, name, problem)
                return value
        return None

    def ids(self, name: str, rows: int) -> tuple[int, ...]:
        """Return a role's ids, without those that the model doesn't have."""
        return _valid(self.said(name), rows)

    def said(self, name: str) -> tuple[int, ...]:
        """Return a role's ids as the files have them."""
        found: list[Any] = []
        for data in (self._generation, *self._texts):
            value = data.get(name)
            found += value if isinstance(value, list) else [value]
        return _valid(found, _MAX_ROWS)

    def model(self, kind: str, rows: int, dtype: str, files: Iterable[Path]) -> ModelFiles:
        """Combine the facts."""
        folder = self.path.parent
        return ModelFiles(
            folder,
            kind,
            rows,
            dtype,
            self.number("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx"),
            self.ids("eos_token_id", rows),
            self.data,
            next(iter(self.ids("bos_token_id", rows)), None),
            folder if _has_tokenizer(folder) else None,
            (*self.files, *files),
            {role: self.said(f"{role}_token_id") for role in ("bos", "eos", "pad")},
        )


def _valid(ids: Iterable[Any], rows: int) -> tuple[int, ...]:
    """Return the values that are ids; converters write -1 and the like for none."""
    return tuple(dict.fromkeys(id_ for id_ in ids if type(id_) is int and 0 <= id_ < rows))


def _checked_rows(path: Path, place: str, rows: Any) -> int:
    if type(rows) is not int or not 1 <= rows <= _MAX_ROWS:
        raise FileFormatError(path, place, f"expected a table of embeddings, got {rows} rows")
    return rows


# -- Safetensors --------------------------------------------------------------
# A file begins with the length of a JSON object and the object: {name: {"dtype", "shape",
# "data_offsets"}}, and strings in "__metadata__".  Then comes the data.

_TABLES = (
    r"(.*\.)?(embed_tokens|wte|tok_embeddings|word_embeddings|embed_in|embeddings)\.weight",
    r"(lm_head|embed_out|output)\.weight",
)
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def _safetensors(folder: Path) -> list[Path]:
    """Return the files with the weights."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = set(_JsonReader.open(index).get("weight_map", dict).values())
        for name in names:
            if not isinstance(name, str) or Path(name).name != name:
                raise FileFormatError(index, "weight_map", f"{shorten(name)} is not a file name")
        files = [folder / name for name in sorted(names)]
        missing = [file.name for file in files if not file.exists()]
        if missing:
            raise FileNotFoundError(f"{index}: {len(missing)} parts are missing: {missing[:3]}")
        return files
    whole = folder / "model.safetensors"
    return [whole] if whole.exists() else sorted(folder.glob("model*.safetensors"))


def _read_safetensors(folder: Path, weights: list[Path]) -> ModelFiles:
    config = _Config(folder)
    tensors: dict[str, Any] = {}
    by_mlx = False
    for file in weights:
        header = _safetensors_header(file)
        metadata = header.pop("__metadata__", None)
        by_mlx |= isinstance(metadata, dict) and metadata.get("format") == "mlx"
        tensors.update(header)
    by_mlx |= isinstance(config.data.get("quantization"), dict)
    found = (name for table in _TABLES for name in tensors if re.fullmatch(table, name))
    name = next(found, None)
    said = config.number("vocab_size")
    if name is None:
        rows, dtype = _checked_rows(config.path, "vocab_size", said), "quantized"
    else:
        rows = _checked_rows(weights[0], name, (tensors[name]["shape"] or [0])[0])
        dtype = _DTYPES.get(tensors[name]["dtype"], "quantized")
    if said is not None and said != rows:
        problem = f"is {said:,}, but {name} has {rows:,} rows; one of the files is of another model"
        raise FileFormatError(config.path, "vocab_size", problem)
    return config.model("mlx" if by_mlx else "safetensors", rows, dtype, weights)


def _safetensors_header(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length > min(size - 8, _MAX_JSON_BYTES):
            raise FileFormatError(path, "", "not a safetensors file, or cut short in its header")
        text = file.read(length)
    try:
        header = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, "header", f"not JSON: {error}") from None
    if not isinstance(header, dict):
        raise FileFormatError(path, "header", f"expected a JSON object, got {shorten(header)}")
    for name, tensor in header.items():
        if name != "__metadata__":
            _check_tensor(path, name, tensor, size - 8 - length)
    return header


def _check_tensor(path: Path, name: str, tensor: Any, size: int) -> None:
    fields = tensor if isinstance(tensor, dict) else {}
    shape: Any = fields.get("shape")
    offsets: Any = fields.get("data_offsets")
    for values in (shape, offsets):
        fits = isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)
        if not fits or not isinstance(fields.get("dtype"), str):
            raise FileFormatError(path, shorten(name)[1:-1], "expected dtype, shape, data_offsets")
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= size:
        problem = f"its data ends at {offsets[-1:]} of {size:,} bytes; the file is cut short"
        raise FileFormatError(path, shorten(name)[1:-1], problem)


# -- OpenVINO -----------------------------------------------------------------
# openvino_model.xml has layers; the weights are layers of the type "Const" that say where in
# openvino_model.bin they are.

_IR_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def _read_ir(folder: Path) -> ModelFiles:
    config = _Config(folder)
    path, data = folder / _IR, folder / "openvino_model.bin"
    if not data.exists():
        raise FileNotFoundError(f"{data}: no such file; the weights of {_IR} are in it")
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
