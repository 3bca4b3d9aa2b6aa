"""What the examples of the command line read, besides text and tokenizers."""

from __future__ import annotations

import json
from pathlib import Path

import tiny_models

_RECIPE = """
target_size = "1 kB"
[[sources]]
name = "all"
path = {path}
fraction = 1.0
"""
_PIPELINE = """
[corpus]
recipe = "recipe.toml"
[train]
vocab_size = 300
"""


def write_settings_and_model(folder: Path, end: str = "") -> None:
    """Write a recipe for the folder "texts", a pipeline, and the folder "model".

    Args:
        folder: where.
        end: what the names of both folders end with.
    """
    recipe = _RECIPE.format(path=json.dumps(f"texts{end}/*.txt"))
    (folder / "recipe.toml").write_text(recipe)
    (folder / "pipeline.toml").write_text(_PIPELINE)
    model = tiny_models.write_safetensors(folder / f"model{end}", tiny_models.model(False))
    tiny_models.tokenizer().save(model, verbose=False)
