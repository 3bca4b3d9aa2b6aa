"""OpenVINO: directories with openvino_model.xml, on Intel's processors and GPUs.

What optimum-intel exports is run on OpenVINO itself, which both optimum-intel and
openvino-genai bring: so one loop does for both, and the ids are this library's.
"""

from __future__ import annotations

import importlib
from typing import Any

from bpe_tokenizer_tools.backends.base import Backend, Logits
from bpe_tokenizer_tools.backends.model_files import ModelFiles

_INPUTS = {"input_ids", "attention_mask", "position_ids", "beam_idx"}


class OpenVino(Backend):
    """Runs a stateful decoder, as ``optimum-cli export openvino`` writes it.

    The device is the CPU, unless another is named ("GPU").  Weights of float32 are
    computed with as such, and so is the cache of keys and values, which would else be of
    float16; others as OpenVINO sees fit.  Further settings are properties of OpenVINO,
    such as ``INFERENCE_PRECISION_HINT="f32"``.
    """

    name = "OpenVINO"

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
        self._library = importlib.import_module("openvino")
        core = self._library.Core()
        self.device = (device or "CPU").upper()
        if self.device.split(".")[0] not in {name.split(".")[0] for name in core.available_devices}:
            known = ", ".join(core.available_devices)
            raise ValueError(f"device {device!r} is not one of OpenVINO's here: {known}")
        precisions = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
        if dtype is not None and dtype not in precisions:
            raise ValueError(f"dtype must be one of {', '.join(precisions)}, got {dtype!r}")
        wanted = dtype or (files.dtype if files.dtype == "float32" else None)
        if wanted:
            settings = {"INFERENCE_PRECISION_HINT": precisions[wanted], **settings}
            if self.device == "CPU" and wanted == "float32":
                settings = {"KV_CACHE_PRECISION": "f32", **settings}
        # The logits of a whole block are computed, where only the last are needed.
        self.block = max(16, min(512, 2**24 // files.rows))
        with self._loading(settings):
            model = core.compile_model(files.path / "openvino_model.xml", self.device, settings)
        self._inputs = {name for port in model.inputs for name in port.names} & _INPUTS
        others = [port.any_name for port in model.inputs if not port.names & _INPUTS]
        if others or "input_ids" not in self._inputs:
            raise ValueError(
                f"it takes {', '.join(others) or 'no input_ids'}; expected a stateful decoder, as "
                "'optimum-cli export openvino --task text-generation-with-past' writes it"
            )
        self._request = model.create_infer_request()
        self._past = 0

    def _feed(self, ids: list[int]) -> Logits:
        import numpy

        end = self._past + len(ids)
        inputs = {
            "input_ids": numpy.array([ids], numpy.int64),
            "attention_mask": numpy.ones((1, end), numpy.int64),
            "position_ids": numpy.arange(self._past, end, dtype=numpy.int64)[None],
            "beam_idx": numpy.zeros(1, numpy.int32),
        }
        self._request.infer({name: inputs[name] for name in self._inputs})
        self._past = end
        logits = self._request.get_tensor("logits").data[0, -1]
        return logits.astype(numpy.float32)  # a copy: the next call overwrites them

    def _forget(self) -> None:
        self._request.reset_state()
        self._past = 0

    def _release(self) -> None:
        self._request = None
