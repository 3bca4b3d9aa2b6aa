"""llama.cpp, through llama-cpp-python: GGUF files, on a CPU or any GPU it was built for."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
from collections.abc import Iterator
from typing import Any

from bpe_tokenizer_tools.backends.base import Backend, Logits
from bpe_tokenizer_tools.backends.model_files import ModelFiles

_ERROR = 4  # GGML_LOG_LEVEL_ERROR


class LlamaCpp(Backend):
    """Runs a GGUF file.

    `n_gpu_layers` says how many layers go to the GPU, -1 for all; `n_ctx` how many tokens
    fit.  Further settings go to `llama_cpp.Llama`.  The cache of keys and values is of
    float32 for a model of float32, else of float16.
    """

    name = "llama.cpp"

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
        self._library = importlib.import_module("llama_cpp")
        if dtype is not None and dtype != files.dtype:
            raise ValueError(
                f"{files.path}: its dtype is {files.dtype}; llama.cpp keeps it as it is"
            )
        gpu = self._library.llama_supports_gpu_offload()
        if device not in (None, "cpu", "gpu"):
            raise ValueError(f"device must be 'cpu' or 'gpu' for llama.cpp, got {device!r}")
        if device == "gpu" and not gpu:
            raise RuntimeError(
                "this llama-cpp-python was built without a GPU; build it for yours: "
                "CMAKE_ARGS=-DGGML_CUDA=ON (or -DGGML_HIP=ON, -DGGML_VULKAN=ON) pip install "
                "--force-reinstall --no-cache-dir llama-cpp-python"
            )
        if device == "cpu":
            n_gpu_layers = 0
        self.device = "GPU" if gpu and n_gpu_layers else "CPU"
        if files.dtype == "float32":
            exact = self._library.GGML_TYPE_F32
            settings = {"type_k": exact, "type_v": exact, **settings}
        known = inspect.signature(self._library.Llama.__init__).parameters
        for name in settings.keys() - known.keys():  # they would be ignored
            self._refuse(name)
        threads = _threads()
        with self._explained("could not load it"), self._reasons():
            self._model = self._library.Llama(
                **{
                    "model_path": str(files.path),
                    "n_gpu_layers": n_gpu_layers,
                    "n_ctx": self.context or 0,
                    "n_batch": self.block,
                    # The default is half of the processors, however few there are.
                    "n_threads": threads,
                    "n_threads_batch": threads,
                    "verbose": False,
                    **settings,
                }
            )
        made: int = self._model.n_ctx()  # rounded up to what suits llama.cpp
        self.context = min(made, self.context or made)
        if self._model.n_vocab() != files.rows:
            raise ValueError(
                f"llama.cpp finds {self._model.n_vocab():,} tokens for {files.rows:,} rows"
            )
        vocab = self._library.llama_model_get_vocab(self._model.model)
        ends = self._library.llama_vocab_is_eog  # it also knows some by their names
        self.stop_ids |= {id_ for id_ in range(files.rows) if ends(vocab, id_)}

    @contextlib.contextmanager
    def _reasons(self) -> Iterator[None]:
        """Put what llama.cpp logs as errors into the exception, which does not say why."""
        library, lines = self._library, []

        @library.llama_log_callback  # type: ignore[untyped-decorator]
        def note(level: int, text: bytes, _: object) -> None:
            if level == _ERROR:
                lines.append(text.decode(errors="replace").strip())

        usual = importlib.import_module("llama_cpp._logger").llama_log_callback
        library.llama_log_set(note, None)
        try:
            yield
        except Exception as error:
            raise RuntimeError("; ".join([str(error), *lines])) from error
        finally:
            library.llama_log_set(usual, None)

    def _feed(self, ids: list[int]) -> Logits:
        import numpy

        self._model.eval(ids)
        pointer = self._library.llama_get_logits_ith(self._model.ctx, -1)
        # A copy: the next call overwrites them.
        return numpy.ctypeslib.as_array(pointer, shape=(self.vocab_rows,)).copy()

    def _forget(self) -> None:
        self._library.llama_memory_clear(self._library.llama_get_memory(self._model.ctx), True)
        self._model.reset()

    def _release(self) -> None:
        self._model.close()


def _threads() -> int:
    """Return how many threads to compute with: of many processors, half are only virtual."""
    usable = getattr(os, "sched_getaffinity", None)
    count = len(usable(0)) if usable else os.cpu_count() or 1
    return min(count, max(4, count // 2))
