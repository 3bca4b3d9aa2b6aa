"""Running a model: four libraries behind one small interface.

    model = open_model("model.gguf")
    for id_ in model.generate(tokenizer.encode("Hello"), temperature=0):
        ...

Token ids go in and token ids come out; the library's own tokenizer is never used.  The kind
of model determines which libraries can run it; the first one that is installed does:

    .gguf file                           llama.cpp
    directory, mlx-lm's safetensors      MLX; Transformers, if they are not quantized
    directory, HuggingFace's             Transformers, MLX (on a Mac, MLX first)
    directory with openvino_model.xml    OpenVINO

OpenVINO also runs a directory of HuggingFace's if it is asked for by name: optimum-intel converts
the model on first use, into the user's cache directory.

Section 10 of bpe_tokenizer has the loop, the sampler and a class for each library, and chooses
the library.  `base` and `libraries` derive runners that check their arguments and can be
released.  `model_files` reads what a model's files say, and `fit` compares that with a tokenizer.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from bpe_tokenizer import InferenceBackend, detect_best_backend
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.backends.base import Backend
from bpe_tokenizer_tools.backends.checks import integer, word
from bpe_tokenizer_tools.backends.libraries import RUNNERS
from bpe_tokenizer_tools.backends.model_files import ModelFiles, describe, models_near

__all__ = ["Backend", "ModelFiles", "describe", "detect", "find", "open_model", "unload"]

detect = detect_best_backend

_lock = threading.RLock()
_seen: dict[str, tuple[tuple[Any, ...], list[ModelFiles]]] = {}  # path -> stamps, description
_opened: dict[tuple[Path, str, str], tuple[tuple[Any, ...], Backend]] = {}


def find(path: str | os.PathLike[str], backend: InferenceBackend | str | None = None) -> ModelFiles:
    """Return what the files say about the model that `open_model` would open.

    Raises:
        FileNotFoundError, FileFormatError: as `describe`.
        ValueError: the requested backend cannot read it.
    """
    files: ModelFiles = core.choices(path, _described(path), backend)[0][1]
    return files


def _described(path: str | os.PathLike[str]) -> list[ModelFiles]:
    """Return the result of `describe`, without reading unchanged files again."""
    key = os.path.abspath(path)
    if key in _seen:
        stamps, found = _seen[key]
        try:
            if stamps == tuple(files.stamp() for files in found):
                return found
        except OSError:
            pass  # a file is gone; reading again raises an error that names it
    found = describe(path)
    _seen[key] = tuple(files.stamp() for files in found), found
    return found


def open_model(
    path: str | os.PathLike[str],
    backend: InferenceBackend | str | None = None,
    *,
    n_gpu_layers: int = -1,
    n_ctx: int = 8192,
    dtype: str | None = None,
    device: str | None = None,
    **settings: Any,
) -> Backend:
    """Load a model, or return it if it is already loaded with the same settings.

    It stays loaded until `unload`, or until it is opened after its files have changed.

    Args:
        path: a .gguf file, or a directory.
        backend: a name ("llama.cpp", "mlx", "openvino", "transformers"), an
            `InferenceBackend` or its value; None for the best that is installed.
        n_gpu_layers: how many layers go to a GPU (llama.cpp); -1 for all; 0 keeps
            Transformers on the CPU too.
        n_ctx: the maximum number of tokens, prompt and answer together; 0 for as many as
            the model was trained for.
        dtype: "float32", "float16" or "bfloat16", for Transformers and OpenVINO.
        device: as the library names it: "cpu" or "gpu" for llama.cpp, "cuda:1" or
            "mps" for Transformers, "GPU" for OpenVINO.
        settings: for the library's own function that loads a model.

    Raises:
        FileNotFoundError, FileFormatError: there is no model, or it is damaged.
        ValueError, TypeError: a setting is wrong, or the library doesn't have it; or the
            backend cannot read the model.
        ImportError: the library is not installed; the message says how to install it.
        RuntimeError: the library fails to load the model, or optimum-intel to convert it.
    """
    loading = core.Loading(
        integer("n_gpu_layers", n_gpu_layers, -1),
        integer("n_ctx", n_ctx, 0),
        word("dtype", dtype),
        word("device", device),
        dict(sorted(settings.items())),
    )
    problems = []
    with _lock:
        for name, files, own_device in core.choices(path, _described(path), backend):
            try:
                return _open(name, files, replace(loading, device=loading.device or own_device))
            except ImportError as error:
                problems.append(core.cannot_use(name, files, error))
    others = models_near(Path(path)) if os.path.isdir(path) else ""
    raise ImportError(f"{path}: {'; or '.join(problems)}{others}")


def _open(name: str, files: ModelFiles, loading: core.Loading) -> Backend:
    key, stamp = (files.path, name, repr(loading)), files.stamp()
    if key in _opened:
        known, model = _opened[key]
        if known == stamp and not model.is_closed:
            return model
        del _opened[key]
        model.close()
    opened = RUNNERS[name](files, loading)
    _opened[key] = stamp, opened
    return opened


def unload(path: str | os.PathLike[str] | None = None) -> None:
    """Release the models opened from a path, or all."""
    with _lock:
        wanted = None if path is None else Path(path).resolve()
        for key in list(_opened):
            if wanted is None or key[0] == wanted:
                _opened.pop(key)[1].close()
