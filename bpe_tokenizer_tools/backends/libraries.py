"""The four runners, with checks of their settings and models."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import os
from collections.abc import Iterator
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.backends.base import Backend

_ERROR = 4  # GGML_LOG_LEVEL_ERROR
_PRECISIONS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


class LlamaCpp(Backend, core.LlamaCpp):
    """Runs a GGUF file.

    `n_gpu_layers` is how many layers go to the GPU, -1 for all; `n_ctx` is how many tokens
    fit.  Further settings go to `llama_cpp.Llama`.  The key-value cache is float32 for a
    float32 model, otherwise float16.
    """

    def _load(self, loading: core.Loading) -> None:
        library, files = importlib.import_module("llama_cpp"), self.files
        if loading.dtype is not None and loading.dtype != files.dtype:
            raise ValueError(
                f"{files.path}: its dtype is {files.dtype}; llama.cpp keeps it as it is"
            )
        if loading.device not in (None, "cpu", "gpu"):
            raise ValueError(f"device must be 'cpu' or 'gpu' for llama.cpp, got {loading.device!r}")
        settings = dict(loading.settings)
        known = inspect.signature(library.Llama.__init__).parameters
        for name in settings.keys() - known.keys():  # they would be ignored
            self._refuse(name)
        if files.dtype == "float32":
            exact = library.GGML_TYPE_F32
            settings = {"type_k": exact, "type_v": exact, **settings}
        with _reasons(library):
            super()._load(dataclasses.replace(loading, settings=settings))
        if self.vocab_rows != files.rows:
            raise ValueError(f"llama.cpp finds {self.vocab_rows:,} tokens for {files.rows:,} rows")

    def _release(self) -> None:
        self._model.close()


@contextlib.contextmanager
def _reasons(library: Any) -> Iterator[None]:
    """Add the errors that llama.cpp logs to its exception, which doesn't say why."""
    lines = []

    @library.llama_log_callback  # type: ignore[untyped-decorator]
    def note(level: int, text: bytes, _: object) -> None:
        if level == _ERROR:
            lines.append(text.decode(errors="replace").strip())

    usual = importlib.import_module("llama_cpp._logger").llama_log_callback
    library.llama_log_set(note, None)
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError("; ".join([str(error), *lines])) from error
    finally:
        library.llama_log_set(usual, None)


class Transformers(Backend, core.Transformers):
    """Runs what `AutoModelForCausalLM` loads, from local files, without running their code.

    The device is a GPU if torch has one (CUDA, ROCm, Apple's), else the CPU.  On a GPU, the
    dtype is that of the weights, or float16 if the GPU can't compute with bfloat16.  On a
    CPU it is float32, which CPUs compute fastest, unless such weights would take more than
    half of the memory.  Further settings go to `from_pretrained`.
    """

    def _load(self, loading: core.Loading) -> None:
        torch = importlib.import_module("torch")
        library = importlib.import_module("transformers")
        device = self._best_device(torch, loading)
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            problem = str(error).split("\n")[0]
            raise ValueError(f"device {device!r} cannot be used: {problem}") from error
        if loading.dtype not in (None, *_PRECISIONS):
            known = ", ".join(_PRECISIONS)
            raise ValueError(f"dtype must be one of {known}, got {loading.dtype!r}")
        dtype = loading.dtype or self._best_dtype(torch, device)
        with _silence(library.utils.logging):
            super()._load(dataclasses.replace(loading, dtype=dtype))
        attends = hasattr(self._model.config.get_text_config(), "num_attention_heads")
        if not attends or self._kept not in inspect.signature(self._model.forward).parameters:
            kind = type(self._model).__name__
            raise ValueError(f"{kind} has no key-value cache, which isn't supported")

    def _best_dtype(self, torch: Any, device: str) -> str:
        """Return a dtype, or "auto" for weights that are quantized."""
        stored = self.files.dtype
        if stored == "quantized" or "quantization_config" in self.files.config:
            return "auto"
        if device == "cpu":
            needed = sum(size for _, (size, *_) in self.files.stamp()) * 2
            return "float32" if needed < _memory() / 2 else stored
        if stored == "bfloat16" and device.startswith("cuda"):
            return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        return stored

    def _release(self) -> None:
        self._model = self._cache = None
        if self.device.startswith("cuda"):
            self._torch.cuda.empty_cache()


@contextlib.contextmanager
def _silence(logging: Any) -> Iterator[None]:
    """Show no progress bar and no advice while transformers loads a model."""
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _memory() -> float:
    """Return the bytes of memory of this machine; infinite if that is not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return float("inf")


class Mlx(Backend, core.Mlx):
    """Runs what `mlx_lm.utils.load_model` loads, in the dtype of its weights.

    Further settings go to `mlx_lm.utils.load_model`.
    """

    def _load(self, loading: core.Loading) -> None:
        mx = importlib.import_module("mlx.core")
        if loading.dtype is not None and loading.dtype != self.files.dtype:
            raise ValueError(f"{self.path} is {self.files.dtype}; MLX keeps it as it is")
        here = "gpu" if mx.default_device().type == mx.DeviceType.gpu else "cpu"
        wanted = "cpu" if loading.n_gpu_layers == 0 else loading.device
        if wanted not in (None, here):
            raise ValueError(
                f"device must be MLX's default device, {here!r}, got {wanted!r}; "
                "mlx.core.set_default_device changes the default"
            )
        super()._load(loading)
        self._check_rotation()

    def _check_rotation(self) -> None:
        """Refuse rotary angles that differ by kind of layer, unless the model's class has them."""
        config = self.files.config.get("text_config") or self.files.config
        parameters = config.get("rope_parameters") or {}
        nested = any(isinstance(value, dict) for value in parameters.values())
        known = hasattr(getattr(self._model, "args", None), "rope_parameters")
        if nested and "rope_theta" not in config and not known:
            raise ValueError(
                "mlx-lm would ignore the rope_parameters of config.json, and silently compute "
                "something else; convert the model with mlx_lm.convert"
            )

    def _release(self) -> None:
        self._model = self._cache = None
        self._mx.clear_cache()


class OpenVino(Backend, core.OpenVino):
    """Runs a stateful decoder, as ``optimum-cli export openvino`` writes it.

    A model of HuggingFace's is converted on first use, if optimum-intel is installed.

    The device is the CPU, unless another is named ("GPU").  A float32 model is computed in
    float32, and so is its key-value cache, which would be float16 by default; OpenVINO
    decides about others.  Further settings are properties of OpenVINO, such as
    ``INFERENCE_PRECISION_HINT="f32"``.
    """

    def _load(self, loading: core.Loading) -> None:
        devices = importlib.import_module("openvino").Core().available_devices
        device = (loading.device or "CPU").upper()
        if device.split(".")[0] not in {name.split(".")[0] for name in devices}:
            known = ", ".join(devices)
            raise ValueError(
                f"device {loading.device!r} is not one that OpenVINO has here: {known}"
            )
        if loading.dtype not in (None, *_PRECISIONS):
            known = ", ".join(_PRECISIONS)
            raise ValueError(f"dtype must be one of {known}, got {loading.dtype!r}")
        settings = dict(loading.settings)
        if loading.dtype:
            settings = {"INFERENCE_PRECISION_HINT": _PRECISIONS[loading.dtype], **settings}
            if device == "CPU" and loading.dtype == "float32":
                settings = {"KV_CACHE_PRECISION": "f32", **settings}
        super()._load(dataclasses.replace(loading, settings=settings))
        names = {port.any_name for port in self._model.inputs}
        others = sorted(names - {"input_ids", "attention_mask", "position_ids", "beam_idx"})
        if others or "input_ids" not in names:
            raise ValueError(
                f"it takes {', '.join(others) or 'no input_ids'}; expected a stateful decoder, as "
                "'optimum-cli export openvino --task text-generation-with-past' writes it"
            )

    def _release(self) -> None:
        self._model = self._request = None


RUNNERS: dict[str, type[Backend]] = {
    "llama.cpp": LlamaCpp,
    "mlx": Mlx,
    "openvino": OpenVino,
    "transformers": Transformers,
}
