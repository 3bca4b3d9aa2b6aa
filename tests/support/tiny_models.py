"""One tiny model, made on the spot, in each backend's format.

A model of the Llama architecture. Its random weights are the same every time, and large
enough that the most likely id leads by far, so no rounding changes an answer.
`TinyModel.logits` computes it in float64; all backends are compared with that.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import llama_forms

ROWS, TOKENS = 512, 480  # the embedding is padded, as those of large models are
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 64, 96, 2, 4, 2, 16
CONTEXT = 256
# Not the usual 10,000: a backend might use that without reading the file.
THETA, EPSILON = 500_000.0, 1e-5
BOS, EOS, PAD = 477, 478, 479
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": ROWS,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": EPSILON,
    "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
    "dtype": "float32",
}


@dataclass(frozen=True)
class TinyModel:
    """Weights by the names HuggingFace gives them, float32."""

    weights: dict[str, Any]
    tied: bool

    @functools.cached_property
    def _exact(self) -> dict[str, Any]:
        import numpy as np

        return {name: weight.astype(np.float64) for name, weight in self.weights.items()}

    def logits(self, ids: Sequence[int]) -> Any:
        """Return the logits of the id that follows."""
        import numpy as np

        w = self._exact
        x = w["model.embed_tokens.weight"][list(ids)]
        for layer in range(LAYERS):
            p = f"model.layers.{layer}."
            h = _norm(x, w[p + "input_layernorm.weight"])
            q, k, v = (
                (h @ w[f"{p}self_attn.{n}_proj.weight"].T)
                .reshape(len(ids), -1, HEAD)
                .swapaxes(0, 1)
                for n in "qkv"
            )
            q, k = _rotated(q), _rotated(k)
            k, v = (np.repeat(a, HEADS // KV_HEADS, axis=0) for a in (k, v))
            scores = q @ k.swapaxes(1, 2) / HEAD**0.5
            scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            h = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(ids), -1)
            x = x + h @ w[p + "self_attn.o_proj.weight"].T
            h = _norm(x, w[p + "post_attention_layernorm.weight"])
            gate, up = (h @ w[f"{p}mlp.{n}_proj.weight"].T for n in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "mlp.down_proj.weight"].T
        head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
        return _norm(x[-1], w["model.norm.weight"]) @ head.T

    def greedy(
        self, prompt: Sequence[int], count: int, n_tokens: int = ROWS
    ) -> tuple[list[int], float]:
        """Return the most likely ids below `n_tokens`, and the smallest lead of one."""
        ids, margin = list(prompt), float("inf")
        for _ in range(count):
            logits = self.logits(ids)[:n_tokens]
            second, first = sorted(logits)[-2:]
            margin = min(margin, first - second)
            ids.append(int(logits.argmax()))
        return ids[len(prompt) :], margin


def _norm(x: Any, weight: Any) -> Any:
    return x / ((x * x).mean(-1, keepdims=True) + EPSILON) ** 0.5 * weight


def _rotated(x: Any) -> Any:
    import numpy as np

    angles = np.arange(x.shape[1])[:, None] / THETA ** (np.arange(0, HEAD, 2) / HEAD)
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def make_model(tied: bool, seed: int) -> TinyModel:
    import numpy as np

    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float) -> Any:
        return (random.standard_normal((rows, columns)) * scale).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(ROWS, HIDDEN, 1.0)}
    for layer in range(LAYERS):
        p = f"model.layers.{layer}."
        for name, rows, columns, scale in (
            ("self_attn.q_proj", HEADS * HEAD, HIDDEN, 0.3),
            ("self_attn.k_proj", KV_HEADS * HEAD, HIDDEN, 0.3),
            ("self_attn.v_proj", KV_HEADS * HEAD, HIDDEN, 0.5),
            ("self_attn.o_proj", HIDDEN, HEADS * HEAD, 0.5),
            ("mlp.gate_proj", INNER, HIDDEN, 0.4),
            ("mlp.up_proj", INNER, HIDDEN, 0.4),
            ("mlp.down_proj", HIDDEN, INNER, 0.4),
        ):
            weights[f"{p}{name}.weight"] = matrix(rows, columns, scale)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{p}{name}.weight"] = 1 + matrix(1, HIDDEN, 0.1)[0]
    weights["model.norm.weight"] = 1 + matrix(1, HIDDEN, 0.1)[0]
    if not tied:
        weights["lm_head.weight"] = matrix(ROWS, HIDDEN, 1.0)
    return TinyModel(weights, tied)


MODELS = {True: 9, False: 5}  # tied or not -> the seed of a model with wide margins
PROMPT = [1, 2, 3, 40, 5, 100, 7]


@functools.cache
def model(tied: bool) -> TinyModel:
    made = make_model(tied, MODELS[tied])
    assert made.greedy(PROMPT, 32)[1] > 0.1
    return made


def text() -> str:
    """Code that stays the same, so the model's answers stay the same."""
    names = """answer believe corpus decode encode forbid gather history import journal keyboard
    language merge number open prompt question repeat special token unknown vocabulary whitespace
    export yield zero naïve count split byte pair"""
    words = names.split()
    each = enumerate(words * 20)
    lines = (
        f"def {word}_{i}(x):\n    return {word}(x, {i * 7}) or 'the {word}'" for i, word in each
    )
    return "\n\n".join(lines)


@functools.cache
def tokenizer() -> BPETokenizer:
    """A tokenizer with TOKENS tokens that fits the models."""
    made = BPETokenizer(normalizer=None, surround="bos+eos")  # in other libraries, too
    made.train([text()], TOKENS - 3, verbose=False)
    made.add_special_tokens({"<s>": BOS, "</s>": EOS, "<pad>": PAD})
    made.bos_token, made.eos_token, made.pad_token = "<s>", "</s>", "<pad>"
    assert made.vocab_size == TOKENS
    return made


# -- The four forms -----------------------------------------------------------


def config(made: TinyModel) -> dict[str, Any]:
    return {**CONFIG, "tie_word_embeddings": made.tied}


def write_safetensors(
    folder: Path, made: TinyModel, *, metadata: str = "pt", with_tokenizer: bool = True
) -> Path:
    own = tokenizer() if with_tokenizer else None
    return llama_forms.write_safetensors(folder, config(made), made.weights, own, metadata=metadata)


def write_mlx(folder: Path, made: TinyModel) -> Path:
    return llama_forms.write_mlx(folder, config(made), made.weights, tokenizer())


def write_gguf(path: Path, made: TinyModel, own: BPETokenizer | None = None) -> Path:
    return llama_forms.write_gguf(path, config(made), made.weights, own or tokenizer())


def write_openvino(folder: Path, made: TinyModel) -> Path:
    return llama_forms.write_openvino(folder, config(made), made.weights, tokenizer())


PACKAGES = {
    "llama.cpp": ("llama_cpp", "gguf"),
    "mlx": ("mlx_lm",),
    "openvino": ("openvino",),
    "transformers": ("transformers", "torch"),
}


def write(folder: Path, name: str, tied: bool) -> Path:
    """Write a model in the format of a backend."""
    path = folder / f"{name.replace('.', '_')}-{'tied' if tied else 'untied'}"
    if name == "llama.cpp":
        return write_gguf(path.with_suffix(".gguf"), model(tied))
    writers = {"mlx": write_mlx, "openvino": write_openvino, "transformers": write_safetensors}
    return writers[name](path, model(tied))
