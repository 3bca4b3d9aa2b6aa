"""MLX, through mlx-lm: directories of safetensors, on Apple Silicon; on Linux, on a CPU."""

from __future__ import annotations

import importlib
from typing import Any

from bpe_tokenizer_tools.backends.base import Backend, Logits
from bpe_tokenizer_tools.backends.model_files import ModelFiles


class Mlx(Backend):
    """Runs what `mlx_lm.utils.load_model` loads, in the dtype of its weights.

    Further settings go to `mlx_lm.utils.load_model`.
    """

    name = "MLX"

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
        self._mx = importlib.import_module("mlx.core")
        utils = importlib.import_module("mlx_lm.utils")
        self._caches = importlib.import_module("mlx_lm.models.cache")
        if dtype is not None and dtype != files.dtype:
            raise ValueError(f"{files.path} is {files.dtype}; MLX keeps it as it is")
        default = self._mx.default_device()
        self.device = "GPU" if default.type == self._mx.DeviceType.gpu else "CPU"
        wanted = "cpu" if n_gpu_layers == 0 else device
        if wanted is not None and wanted != self.device.lower():
            raise ValueError(
                f"device {wanted!r} is not MLX's here, which is {self.device.lower()!r}; "
                "mlx.core.set_default_device changes that"
            )
        given = settings.pop("model_config", {})
        with self._loading(settings):
            self._model, _ = utils.load_model(
                files.path, model_config={**_rotation(files), **given}, **settings
            )
        self._check_rotation()
        self._cache: Any = None

    def _check_rotation(self) -> None:
        """Refuse angles for each kind of layer, unless the model's class knows of them."""
        config = self.files.config.get("text_config") or self.files.config
        parameters = config.get("rope_parameters") or {}
        nested = any(isinstance(value, dict) for value in parameters.values())
        known = hasattr(getattr(self._model, "args", None), "rope_parameters")
        if nested and "rope_theta" not in config and not known:
            raise ValueError(
                "mlx-lm would not see the rope_parameters of config.json, and silently compute "
                "something else; convert the model with mlx_lm.convert"
            )

    def _feed(self, ids: list[int]) -> Logits:
        import numpy

        mx = self._mx
        logits = self._model(mx.array([ids]), cache=self._cache)[0, -1].astype(mx.float32)
        mx.eval(logits, [layer.state for layer in self._cache])
        return numpy.array(logits)

    def _forget(self) -> None:
        self._cache = self._caches.make_prompt_cache(self._model)
        self._mx.clear_cache()

    def _release(self) -> None:
        self._model = self._cache = None
        self._mx.clear_cache()


def _rotation(files: ModelFiles) -> dict[str, Any]:
    """Return the angles of positions under the names mlx-lm's models read.

    Transformers 5 writes them below `rope_parameters`; many of mlx-lm's models look for
    `rope_theta` beside it, and silently take 10,000 if that is not there.
    """
    config = files.config
    parameters = config.get("rope_parameters")
    if not isinstance(parameters, dict) or "rope_theta" in config:
        return {}
    if not isinstance(parameters.get("rope_theta"), (int, float)):
        return {}
    found: dict[str, Any] = {"rope_theta": parameters["rope_theta"]}
    if parameters.get("rope_type", "default") != "default" and "rope_scaling" not in config:
        found["rope_scaling"] = parameters
    return found
