"""The tiny model in safetensors of any type and number of files, and other vocabularies for it."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tiny_models
from oracles import need

from bpe_tokenizer import BPETokenizer

need("numpy")
torch = need("torch")
safetensors_torch = need("safetensors.torch")

from bpe_tokenizer_tools.adapting import adapt_model  # noqa: E402

INPUT, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@functools.cache
def other() -> BPETokenizer:
    """A tokenizer with all tokens of the tiny model, and others; special tokens have other ids."""
    made = BPETokenizer(normalizer=None, surround="bos+eos")  # what files of models can hold
    made.train([tiny_models.text()], 560, verbose=False)
    made.add_special_tokens(["<|new|>", "<pad>", "</s>", "<s>"])
    made.bos_token, made.eos_token, made.pad_token = "<s>", "</s>", "<pad>"
    return made


@functools.cache
def elsewhere() -> BPETokenizer:
    """A tokenizer trained on other text; it shares few tokens and has some parts of characters."""
    text = "Größenwahn und Übermut: 日本語の文章、中国的文字。 " * 30 + "naïve zero " * 20
    made = BPETokenizer(normalizer=None).train([text], 330, verbose=False)
    made.add_special_tokens(["</s>", "<s>", "<pad>"])
    made.bos_token, made.eos_token, made.pad_token = "<s>", "</s>", "<pad>"
    return made


def write_model(folder: Path, tied: bool, dtype: str = "F32", shards: int = 1) -> Path:
    """Write the tiny model with the safetensors library, in one or several files."""
    made = tiny_models.model(tied)
    tiny_models.write_safetensors(folder, made)
    (folder / "model.safetensors").unlink()
    config = {**tiny_models.config(made), "dtype": DTYPES[dtype]}
    (folder / "config.json").write_text(json.dumps(config))
    kind = getattr(torch, DTYPES[dtype])
    weights = {name: torch.tensor(value).to(kind) for name, value in made.weights.items()}
    if shards == 1:
        save(weights, folder / "model.safetensors")
        return folder
    where = {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {key: weights[key] for key in list(weights)[i::shards]}
        save(part, folder / name)
        where.update(dict.fromkeys(part, name))
    size = sum(value.nbytes for value in weights.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def save(weights: Mapping[str, Any], path: Path) -> None:
    safetensors_torch.save_file(dict(weights), str(path), metadata={"format": "pt"})


def read(folder: Path) -> dict[str, Any]:
    """Read all weights with the safetensors library."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found.update(safetensors_torch.load_file(str(path)))
    return found


def bits(tensor: Any) -> Any:
    return tensor.contiguous().view(torch.int16 if tensor.itemsize == 2 else torch.int32)


def adapt(source: Path, new: BPETokenizer, out: Path, **options: Any) -> Any:
    return adapt_model(source, None, new, out, verbose=False, **options)


def read_numpy(folder: Path) -> dict[str, Any]:
    return {name: value.float().numpy() for name, value in read(folder).items()}
