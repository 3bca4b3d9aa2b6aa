"""Running a model: four libraries behind one small interface.

    model = open_model("model.gguf")
    for id_ in model.generate(tokenizer.encode("Hello"), temperature=0):
        ...

Token ids go in and token ids come out; the library's own tokenizer is never asked.  The
path implies which libraries come into question, and of these the first that is installed
is taken:

    .gguf file                           llama.cpp
    directory, mlx-lm's safetensors      MLX; Transformers, if they are not quantised
    directory, HuggingFace's             Transformers, MLX (on a Mac, MLX first)
    directory with openvino_model.xml    OpenVINO

Modules: `model_files` reads what a model's files say, `fit` compares that with a tokenizer,
`base` is what all backends share, `sampling` draws the next id, `checks` looks at what is
passed, `machine` looks for hardware and packages; each library has a module of its own.
"""

from __future__ import annotations

import importlib
import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer import InferenceBackend
from bpe_tokenizer_tools.backends import machine
from bpe_tokenizer_tools.backends.base import Backend
from bpe_tokenizer_tools.backends.checks import integer, word
from bpe_tokenizer_tools.backends.machine import detect
from bpe_tokenizer_tools.backends.model_files import ModelFiles, describe

__all__ = ["Backend", "ModelFiles", "describe", "detect", "find", "open_model", "unload"]


class _Library(NamedTuple):
    module: str
    type: str
    packages: tuple[str, ...]
    extra: str


_LIBRARIES = {
    "llama.cpp": _Library("llama_cpp", "LlamaCpp", ("llama_cpp",), "llama"),
    "mlx": _Library("mlx", "Mlx", ("mlx_lm",), "apple"),
    "openvino": _Library("openvino", "OpenVino", ("openvino",), "openvino"),
    "transformers": _Library(
        "transformers", "Transformers", ("transformers", "torch"), "transformers"
    ),
}

_Settings = dict[str, Any]
_ON_GPU: dict[str, _Settings] = {
    "llama.cpp": {"device": "gpu"},
    "transformers": {"device": "cuda"},  # torch's name for ROCm too
}
# The libraries each member stands for, with the settings that go with it.
_MEMBERS: dict[InferenceBackend, dict[str, _Settings]] = {
    InferenceBackend.APPLE_MLX: {"mlx": {}},
    InferenceBackend.NVIDIA_CUDA: _ON_GPU,
    InferenceBackend.AMD_ROCM: _ON_GPU,
    InferenceBackend.INTEL_OPENVINO: {"openvino": {}},
    InferenceBackend.CPU_LLAMA_CPP: {"llama.cpp": {"device": "cpu"}},
    InferenceBackend.HUGGINGFACE_TRANSFORMERS: {"transformers": {}},
}


class _Choice(NamedTuple):
    """A library that reads a model, and the settings that were asked for with it."""

    name: str
    files: ModelFiles
    settings: _Settings


# -- Which library ------------------------------------------------------------


def _readers(files: ModelFiles) -> tuple[str, ...]:
    """Return the libraries that read a kind of model, best first."""
    if files.kind == "gguf":
        return ("llama.cpp",)
    if files.kind == "openvino":
        return ("openvino",)
    if files.kind == "mlx":
        return ("mlx",) if "quantization" in files.config else ("mlx", "transformers")
    return ("mlx", "transformers") if machine.is_apple() else ("transformers", "mlx")


def _asked_for(backend: InferenceBackend | str | None) -> dict[str, _Settings]:
    """Return the libraries that `backend` stands for; None stands for all."""
    if backend is None:
        return {name: {} for name in _LIBRARIES}
    if isinstance(backend, InferenceBackend):
        return _MEMBERS[backend]
    if not isinstance(backend, str):
        raise TypeError(f"backend must be a name or an InferenceBackend, got {backend!r:.50}")
    name = {"llama_cpp": "llama.cpp", "llama-cpp": "llama.cpp"}.get(backend, backend.lower())
    if name in _LIBRARIES:
        return {name: {}}
    try:
        return _MEMBERS[InferenceBackend(name)]
    except ValueError:
        known = ", ".join([*_LIBRARIES, *(member.value for member in InferenceBackend)])
        raise ValueError(f"backend must be one of {known}, got {backend!r:.50}") from None


def _choices(path: str | os.PathLike[str], backend: InferenceBackend | str | None) -> list[_Choice]:
    """Return the libraries that come into question, best first."""
    asked = _asked_for(backend)
    found = _described(path)
    readers = [(name, files) for files in found for name in _readers(files)]
    choices = [_Choice(name, files, asked[name]) for name, files in readers if name in asked]
    if not choices:
        able = ", ".join(dict.fromkeys(name for name, _ in readers))
        kinds = " and ".join(files.kind for files in found)
        raise ValueError(
            f"{path}: {' or '.join(asked)} cannot read this model (its kind: {kinds}); {able} can"
        )
    here = [choice for choice in choices if _is_here(choice.name)]
    return here or choices


def _is_here(name: str) -> bool:
    return all(map(machine.is_installed, _LIBRARIES[name].packages))


def find(path: str | os.PathLike[str], backend: InferenceBackend | str | None = None) -> ModelFiles:
    """Return what the files say of the model that `open_model` would open.

    Raises:
        FileNotFoundError, FileFormatError: as `describe`.
        ValueError: the backend that is asked for cannot read it.
    """
    return _choices(path, backend)[0].files


# -- Opening and releasing ----------------------------------------------------

_lock = threading.RLock()
_seen: dict[str, tuple[tuple[Any, ...], list[ModelFiles]]] = {}  # path -> stamps, description
_opened: dict[tuple[Path, str, str], tuple[tuple[Any, ...], Backend]] = {}


def _described(path: str | os.PathLike[str]) -> list[ModelFiles]:
    """Return what `describe` does, without reading again what is still the same."""
    key = os.path.abspath(path)
    if key in _seen:
        stamps, found = _seen[key]
        try:
            if stamps == tuple(files.stamp() for files in found):
                return found
        except OSError:
            pass  # a file has gone; reading anew says which
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
    """Load a model, or return it if it is loaded with the same settings.

    It stays loaded until `unload`, or until it is opened after its files have changed.

    Args:
        path: a .gguf file, or a directory.
        backend: a name ("llama.cpp", "mlx", "openvino", "transformers"), an
            `InferenceBackend` or its value; None for the best that is installed.
        n_gpu_layers: how many layers go to a GPU (llama.cpp); -1 for all; 0 keeps
            Transformers on the CPU too.
        n_ctx: how many tokens fit at most, prompt and answer together; 0 for as many as
            the model was made for.
        dtype: "float32", "float16" or "bfloat16", for Transformers and OpenVINO.
        device: in the words of the library: "cpu" or "gpu" for llama.cpp, "cuda:1" or
            "mps" for Transformers, "GPU" for OpenVINO.
        settings: for the library's own function that loads a model.

    Raises:
        FileNotFoundError, FileFormatError: there is no model, or it is damaged.
        ValueError, TypeError: a setting is wrong, or not known to the library; or the backend
            cannot read the model.
        ImportError: the library is not installed; the message says how to.
        RuntimeError: the library fails to load the model.
    """
    common = {
        "n_gpu_layers": integer("n_gpu_layers", n_gpu_layers, -1),
        "n_ctx": integer("n_ctx", n_ctx, 0),
        "dtype": word("dtype", dtype),
        "device": word("device", device),
    }
    problems: list[str] = []
    with _lock:
        for choice in _choices(path, backend):
            try:
                return _open(choice, {**settings, **common})
            except ImportError as error:
                library = _LIBRARIES[choice.name]
                problems.append(
                    f"{choice.name} cannot be used ({error}); "
                    f"pip install 'bpe-tokenizer[{library.extra}]'"
                )
    raise ImportError(f"{path}: {'; or '.join(problems)}")


def _open(choice: _Choice, settings: _Settings) -> Backend:
    asked = {name: value for name, value in choice.settings.items() if settings[name] is None}
    settings = {**settings, **asked}
    key = (choice.files.path, choice.name, repr(sorted(settings.items())))
    stamp = choice.files.stamp()
    if key in _opened:
        known, model = _opened[key]
        if known == stamp and not model.is_closed:
            return model
        del _opened[key]
        model.close()
    library = _LIBRARIES[choice.name]
    module = importlib.import_module(f"{__name__}.{library.module}")
    opened: Backend = getattr(module, library.type)(choice.files, **settings)
    _opened[key] = stamp, opened
    return opened


def unload(path: str | os.PathLike[str] | None = None) -> None:
    """Release the models opened from a path, or all."""
    with _lock:
        wanted = None if path is None else Path(path).resolve()
        for key in list(_opened):
            if wanted is None or key[0] == wanted:
                _opened.pop(key)[1].close()
