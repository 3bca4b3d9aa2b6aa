"""One loop for models that four libraries have loaded, and a small class for each library.

A runner is a loaded model with one operation: take ids behind those it has, and say how likely
each id is to come next.  Checks of what is passed, and of what a model's files say, are added
in `base.py` and `libraries.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Container, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bpe_tokenizer_tools import core

Logits = Any  # a numpy array with one number for each id


@dataclass(frozen=True)
class Loading:
    """How to load a model; the last three in the words of the library."""

    n_gpu_layers: int = -1
    n_ctx: int = 8192
    dtype: str | None = None
    device: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Runner(ABC):
    """A model that a library has loaded."""

    name = ""
    block = 256  # ids fed at once; Ctrl-C takes effect between blocks
    _model: Any = None
    _cache: Any = None

    def __init__(self, files: core.ModelFiles, loading: Loading) -> None:
        self.files, self.path, self.device = files, files.path, "CPU"
        self.vocab_rows, self.stop_ids = files.rows, frozenset(files.eos_ids)
        limits = [limit for limit in (loading.n_ctx, files.context) if limit]
        self.context: int | None = min(limits, default=None)  # None: not known
        self._held: list[int] | None = []  # the ids the model has taken; None: not known
        self._lock = threading.Lock()
        self._load(loading)

    @abstractmethod
    def _load(self, loading: Loading) -> None:
        """Load the model."""

    @abstractmethod
    def _feed(self, ids: list[int]) -> Logits:
        """Take ids behind those taken before; return the logits of the next one."""

    @abstractmethod
    def _forget(self) -> None:
        """Forget the ids taken."""

    def _generate(
        self, prompt: list[int], most: int, how: core.Sampling, stops: Container[int], rows: int
    ) -> Generator[int, None, None]:
        """Yield the ids that follow a prompt, `most` at most, until one of `stops`, included.

        Only ids below `rows` are drawn: the model may have more rows than the tokenizer has
        tokens.  A prompt that continues all that the last call read and wrote is only read
        from there on, unless there is a seed: the last bits may differ.
        """
        core.check_size("max_new_tokens", most, 1)
        room = most if self.context is None else min(most, self.context - len(prompt))
        if room < 1:
            raise ValueError(
                f"the prompt has {len(prompt):,} tokens and the context holds "
                f"{self.context:,}, which leaves no room for an answer; shorten the prompt or open "
                "the model with a larger n_ctx (up to what it was trained for: "
                f"{self.files.context or 'unknown'})"
            )
        return self._ids(prompt, room, how, stops, rows)

    def _ids(
        self, prompt: list[int], most: int, how: core.Sampling, stops: Container[int], rows: int
    ) -> Generator[int, None, None]:
        import numpy

        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                f"{self.path}: the model is busy with another call; use up or close() that "
                "iterator first"
            )
        try:
            random, held = numpy.random.default_rng(how.seed), self._held or []
            # A repeated prompt is fed again, so that a repeated call repeats its answer.
            if how.seed is not None or not held or not held == prompt[: len(held)] != prompt:
                held = []
                self._forget()
            pending = prompt[len(held) :]
            for _ in range(most):
                self._held = None  # if this is interrupted, nobody knows what the model holds
                for start in range(0, len(pending), self.block):
                    part = pending[start : start + self.block]
                    with self._explained("failed"):
                        logits = self._feed(part)
                    held.extend(part)
                self._held = held
                id_ = how.draw(logits[:rows], random)
                yield id_
                if id_ in stops:
                    return
                pending = [id_]
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def _explained(self, what: str = "could not load it") -> Iterator[None]:
        """Turn whatever a library raises into one kind of error that names it."""
        try:
            yield
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise RuntimeError(f"{self.path}: {self.name} {what}: {reason}") from error

    def __repr__(self) -> str:
        return f"<{self.name} on {self.device}: {self.path}>"


class LlamaCpp(Runner):
    """Runs a GGUF file, by llama-cpp-python, on a CPU or the GPU it was compiled for."""

    name = "llama.cpp"

    def _load(self, loading: Loading) -> None:
        self._library = library = importlib.import_module("llama_cpp")
        gpu = library.llama_supports_gpu_offload()
        if loading.device == "gpu" and not gpu:
            raise RuntimeError(
                "this llama-cpp-python was built without a GPU; build it for yours: "
                "CMAKE_ARGS=-DGGML_CUDA=ON (or -DGGML_HIP=ON, -DGGML_VULKAN=ON) pip install "
                "--force-reinstall --no-cache-dir llama-cpp-python"
            )
        layers = 0 if loading.device == "cpu" else loading.n_gpu_layers
        self.device = "GPU" if gpu and layers else "CPU"
        threads = min(core.cores(), max(4, core.cores() // 2))  # of many, half are only virtual
        given = {"n_gpu_layers": layers, "n_ctx": self.context or 0, "n_batch": self.block}
        given |= {"n_threads": threads, "n_threads_batch": threads, "verbose": False}
        with self._explained():
            self._model = library.Llama(str(self.path), **{**given, **loading.settings})
        made: int = self._model.n_ctx()  # rounded up to what suits llama.cpp
        trained = library.llama_model_n_ctx_train(self._model.model)
        self.context = min(made, trained, self.context or made)
        self.vocab_rows = self._model.n_vocab()
        vocab, is_end = library.llama_model_get_vocab(self._model.model), library.llama_vocab_is_eog
        self.stop_ids |= {id_ for id_ in range(self.vocab_rows) if is_end(vocab, id_)}

    def _feed(self, ids: list[int]) -> Logits:
        import numpy

        self._model.eval(ids)
        pointer = self._library.llama_get_logits_ith(self._model.ctx, -1)
        # A copy: the next call overwrites them.
        return numpy.ctypeslib.as_array(pointer, shape=(self.vocab_rows,)).copy()

    def _forget(self) -> None:
        self._library.llama_memory_clear(self._library.llama_get_memory(self._model.ctx), True)
        self._model.reset()


class Transformers(Runner):
    """Runs what `AutoModelForCausalLM` loads, on torch: safetensors only, no code of theirs."""

    name = "Transformers"

    def _load(self, loading: Loading) -> None:
        self._torch = importlib.import_module("torch")
        self._library = importlib.import_module("transformers")
        self.device = self._best_device(self._torch, loading)
        given = {"dtype": loading.dtype or "auto", **loading.settings}
        safe = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        with self._explained():
            load = self._library.AutoModelForCausalLM.from_pretrained
            self._model, found = load(str(self.path), output_loading_info=True, **safe, **given)
            if "device_map" not in given:
                self._model.to(self.device)
        missing = sorted(found["missing_keys"])
        if missing:  # they would have been filled with random numbers
            raise ValueError(f"{len(missing)} weights are missing, {missing[0]} for one")
        self._model.eval()
        # Only the last logits are needed; all of a prompt's can be gigabytes.
        accepted = inspect.signature(self._model.forward).parameters
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

    @staticmethod
    def _best_device(torch: Any, loading: Loading) -> str:
        if loading.device or loading.n_gpu_layers == 0:
            return loading.device if loading.device and loading.n_gpu_layers else "cpu"
        mps = "mps" if torch.backends.mps.is_available() else "cpu"
        return "cuda" if torch.cuda.is_available() else mps

    def _feed(self, ids: list[int]) -> Logits:
        with self._torch.inference_mode():
            inputs = self._torch.tensor([ids], device=self._model.device)
            given = {"past_key_values": self._cache, "use_cache": True, **self._options}
            out = self._model(input_ids=inputs, **given)
            self._cache = out.past_key_values
            return out.logits[0, -1].float().cpu().numpy()

    def _forget(self) -> None:
        self._cache = self._library.DynamicCache(config=self._model.config)


class Mlx(Runner):
    """Runs what `mlx_lm.utils.load_model` loads, in the dtype of its weights."""

    name = "MLX"

    def _load(self, loading: Loading) -> None:
        self._mx = importlib.import_module("mlx.core")
        utils = importlib.import_module("mlx_lm.utils")
        self._caches = importlib.import_module("mlx_lm.models.cache")
        default = self._mx.default_device().type
        self.device = "GPU" if default == self._mx.DeviceType.gpu else "CPU"
        # Transformers 5 writes rope_theta below rope_parameters; where mlx-lm's models look
        # beside it, they silently take 10,000.
        config = self.files.config
        rope = {} if "rope_theta" in config else config.get("rope_parameters") or {}
        found = {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}
        if found and rope.get("rope_type", "default") != "default":
            found["rope_scaling"] = config.get("rope_scaling", rope)
        settings = dict(loading.settings)
        found |= settings.pop("model_config", {})
        with self._explained():
            self._model, _ = utils.load_model(self.path, model_config=found, **settings)

    def _feed(self, ids: list[int]) -> Logits:
        import numpy

        mx = self._mx
        logits = self._model(mx.array([ids]), cache=self._cache)[0, -1].astype(mx.float32)
        mx.eval(logits, [layer.state for layer in self._cache])
        return numpy.array(logits)

    def _forget(self) -> None:
        self._cache = self._caches.make_prompt_cache(self._model)
        self._mx.clear_cache()


class OpenVino(Runner):
    """Runs a stateful decoder, as ``optimum-cli export openvino`` writes it."""

    name = "OpenVINO"
    _past = 0

    def _load(self, loading: Loading) -> None:
        openvino = importlib.import_module("openvino").Core()
        self.device = (loading.device or "CPU").upper()
        # The logits of a whole block are computed, where only the last are needed.
        self.block = max(16, min(512, 2**24 // self.vocab_rows))
        path, settings = self.path / "openvino_model.xml", dict[str, Any]()
        if self.files.dtype == "float32" and loading.dtype in (None, "float32"):  # no bfloat16
            settings = {"INFERENCE_PRECISION_HINT": "f32"}
            settings |= {"KV_CACHE_PRECISION": "f32"} if self.device == "CPU" else {}
        with self._explained():
            settings |= loading.settings
            self._model = openvino.compile_model(path, self.device, settings)
            self._request = self._model.create_infer_request()

    def _feed(self, ids: list[int]) -> Logits:
        import numpy

        end = self._past + len(ids)
        inputs = {
            "input_ids": numpy.array([ids], numpy.int64),
            "attention_mask": numpy.ones((1, end), numpy.int64),
            "position_ids": numpy.arange(self._past, end, dtype=numpy.int64)[None],
            "beam_idx": numpy.zeros(1, numpy.int32),
        }
        names = {name for port in self._model.inputs for name in port.names}
        self._request.infer({name: inputs[name] for name in inputs.keys() & names})
        self._past = end
        logits = self._request.get_tensor("logits").data[0, -1]
        return logits.astype(numpy.float32)  # a copy: the next call overwrites them

    def _forget(self) -> None:
        self._request.reset_state()
        self._past = 0
