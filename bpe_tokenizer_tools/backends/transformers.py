"""Transformers, on torch: directories of safetensors, on a CPU or a GPU."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
from collections.abc import Iterator
from typing import Any

from bpe_tokenizer_tools.backends.base import Backend, Logits
from bpe_tokenizer_tools.backends.model_files import ModelFiles


class Transformers(Backend):
    """Runs what `AutoModelForCausalLM` loads, from files only, without code of theirs.

    The device is a GPU if torch has one (CUDA, ROCm, Apple's), else the CPU.  The dtype is
    that of the weights on a GPU, but float16 where it cannot compute with bfloat16; on a
    CPU it is float32, in which CPUs are fastest, unless these weights would take more than
    half of the memory.  Further settings go to `from_pretrained`.
    """

    name = "Transformers"

    def __init__(
        self,
        files: ModelFiles,
        *,
        n_gpu_layers: int = -1,
        n_ctx: int = 8192,
        dtype: str | None = None,
        device: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(files, n_ctx)
        self._torch = importlib.import_module("torch")
        self._library = importlib.import_module("transformers")
        self.device = self._chosen_device("cpu" if n_gpu_layers == 0 else device)
        self._dtype = self._chosen_dtype(dtype)
        with self._silence(), self._loading(settings):
            self._model, found = self._library.AutoModelForCausalLM.from_pretrained(
                str(files.path),
                dtype=self._dtype,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                **settings,
            )
        missing = sorted(found["missing_keys"])
        if missing:  # they would have been filled with random numbers
            raise ValueError(f"{len(missing)} weights are missing, {missing[0]} for one")
        if "device_map" not in settings:
            self._model.to(self.device)
        self._model.eval()
        accepted = inspect.signature(self._model.forward).parameters
        if "past_key_values" not in accepted:
            raise ValueError(
                f"{type(self._model).__name__} keeps no keys and values, and is not supported"
            )
        # Only the last logits are needed; all of a prompt's can be gigabytes.
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._cache: Any = None

    def _chosen_device(self, device: str | None) -> str:
        torch = self._torch
        if device is None:
            if torch.cuda.is_available():
                return "cuda"
            return "mps" if torch.backends.mps.is_available() else "cpu"
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            problem = str(error).split("\n")[0]
            raise ValueError(f"device {device!r} cannot be used: {problem}") from error
        return device

    def _chosen_dtype(self, dtype: str | None) -> Any:
        """Return a dtype of torch, or "auto" for weights that are quantised."""
        torch, stored = self._torch, self.files.dtype
        if dtype is not None:
            known = ("float32", "float16", "bfloat16")
            if dtype not in known:
                raise ValueError(f"dtype must be one of {', '.join(known)}, got {dtype!r}")
            return getattr(torch, dtype)
        if stored == "quantised" or "quantization_config" in self.files.config:
            return "auto"
        if self.device == "cpu":
            needed = sum(status.size for _, status in self.files.stamp()) * 2
            return torch.float32 if needed < _memory() / 2 else getattr(torch, stored)
        if stored == "bfloat16" and self.device.startswith("cuda"):
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        return getattr(torch, stored)

    @contextlib.contextmanager
    def _silence(self) -> Iterator[None]:
        """Show no progress bar and no advice while loading."""
        logging = self._library.utils.logging
        level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bar:
                logging.enable_progress_bar()

    def _feed(self, ids: list[int]) -> Logits:
        torch = self._torch
        with torch.inference_mode():
            out = self._model(
                input_ids=torch.tensor([ids], device=self._model.device),
                past_key_values=self._cache,
                use_cache=True,
                **self._options,
            )
            self._cache = out.past_key_values
            logits: Logits = out.logits[0, -1].float().cpu().numpy()
            return logits

    def _forget(self) -> None:
        self._cache = self._library.DynamicCache(config=self._model.config)

    def _release(self) -> None:
        self._model = self._cache = None
        if self.device.startswith("cuda"):
            self._torch.cuda.empty_cache()


def _memory() -> float:
    """Return the bytes of memory of this machine; infinite if it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return float("inf")
