"""One tiny model, made on the spot, in the form of each backend.

A model of the Llama architecture: random weights that are the same every time, large
enough that the most likely id leads by far, so that no rounding changes an answer.
`TinyModel.logits` computes it in float64: what all backends are compared with.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer

ROWS, TOKENS = 512, 480  # the embedding is padded, as those of large models are
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 64, 96, 2, 4, 2, 16
CONTEXT = 256
# Not the usual 10,000, which a backend might take without having read it.
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

    def logits(self, ids: Sequence[int]) -> Any:
        """Return the logits of the id that follows."""
        import numpy as np

        w = {name: weight.astype(np.float64) for name, weight in self.weights.items()}
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
    return Path(bpe_tokenizer.__file__).read_text(encoding="utf-8")[:20_000]


@functools.cache
def tokenizer() -> BPETokenizer:
    """A tokenizer of TOKENS tokens, that goes with the models."""
    made = BPETokenizer().train([text()], TOKENS - 3, verbose=False)
    made.add_special_tokens({"<s>": BOS, "</s>": EOS, "<pad>": PAD})
    made.bos_token, made.eos_token, made.pad_token = "<s>", "</s>", "<pad>"
    assert made.vocab_size == TOKENS
    return made


# -- The four forms -----------------------------------------------------------


def write_safetensors(
    folder: Path, made: TinyModel, *, metadata: str = "pt", with_tokenizer: bool = True
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    _write_config(folder, made, with_tokenizer)
    header: dict[str, Any] = {"__metadata__": {"format": metadata}}
    data = b""
    for name, weight in made.weights.items():
        offsets = [len(data), len(data) + weight.nbytes]
        header[name] = {"dtype": "F32", "shape": list(weight.shape), "data_offsets": offsets}
        data += weight.tobytes()
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    head = struct.pack("<Q", len(packed))
    (folder / "model.safetensors").write_bytes(head + packed + data)
    return folder


def write_mlx(folder: Path, made: TinyModel) -> Path:
    write_safetensors(folder, made, metadata="mlx")
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": THETA}))
    return folder


def _write_config(folder: Path, made: TinyModel, with_tokenizer: bool) -> None:
    config = {**CONFIG, "tie_word_embeddings": made.tied}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS]}))
    if with_tokenizer:
        tokenizer().save(folder, verbose=False)


def write_gguf(path: Path, made: TinyModel) -> Path:
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(THETA)
    writer.add_rope_dimension_count(HEAD)
    writer.add_vocab_size(ROWS)
    tokens = {id_: token for token, id_ in tokenizer().get_vocab().items()}
    special = {*tokenizer().special_tokens.values()}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([tokens.get(id_, f"[PAD{id_}]") for id_ in range(ROWS)])
    writer.add_token_types([3 if i in special else 1 if i in tokens else 5 for i in range(ROWS)])
    definition = tokenizer()._definition
    written = {id_: definition.write(token) for token, id_ in definition.vocab.items()}
    writer.add_token_merges([f"{written[a]} {written[b]}" for a, b in definition.merges])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_pad_token_id(PAD)
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    parts = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    parts |= {f"self_attn.{n}_proj": f"attn_{n}" for n in "qkv"} | {
        "self_attn.o_proj": "attn_output"
    }
    parts |= {f"mlp.{n}_proj": f"ffn_{n}" for n in ("gate", "up", "down")}
    for layer in range(LAYERS):
        names |= {f"model.layers.{layer}.{a}": f"blk.{layer}.{b}" for a, b in parts.items()}
    for name, weight in made.weights.items():
        for kind, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
            if kind in name:  # llama.cpp turns neighbours, the others halves
                weight = weight.reshape(heads, 2, HEAD // 2, HIDDEN).swapaxes(1, 2)
                weight = weight.reshape(heads * HEAD, HIDDEN)
        writer.add_tensor(
            names[name.removesuffix(".weight")] + ".weight", np.ascontiguousarray(weight)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_openvino(folder: Path, made: TinyModel) -> Path:
    import openvino

    folder.mkdir(parents=True, exist_ok=True)
    _write_config(folder, made, with_tokenizer=True)
    openvino.save_model(_Graph(made).model, folder / "openvino_model.xml", compress_to_fp16=False)
    return folder


class _Graph:
    """The stateful graph that optimum-intel exports: keys and values are variables."""

    def __init__(self, made: TinyModel) -> None:
        import numpy as np
        import openvino
        from openvino import opset13 as ops
        from openvino.op.util import Variable, VariableInfo

        self.np, self.openvino, self.ops = np, openvino, ops
        self.Variable, self.VariableInfo = Variable, VariableInfo
        self.weights, self.sinks = made.weights, []
        self.ids = self.input("input_ids", [-1, -1], np.int64)
        self.mask = self.input("attention_mask", [-1, -1], np.int64)
        self.positions = self.input("position_ids", [-1, -1], np.int64)
        self.beams = self.input("beam_idx", [-1], np.int32)
        x = ops.gather(self.weight("model.embed_tokens"), self.ids, self.number(0))
        self.angles()
        self.hide_what_follows()
        for layer in range(LAYERS):
            p = f"model.layers.{layer}."
            h = self.norm(x, p + "input_layernorm")
            x = ops.add(x, self.linear(self.attention(h, p), p + "self_attn.o_proj"))
            h = self.norm(x, p + "post_attention_layernorm")
            gate = ops.swish(self.linear(h, p + "mlp.gate_proj"))
            h = ops.multiply(gate, self.linear(h, p + "mlp.up_proj"))
            x = ops.add(x, self.linear(h, p + "mlp.down_proj"))
        head = "model.embed_tokens" if made.tied else "lm_head"
        logits = ops.result(self.linear(self.norm(x, "model.norm"), head))
        logits.output(0).set_names({"logits"})
        inputs = [self.ids, self.mask, self.positions, self.beams]
        self.model = openvino.Model([logits], self.sinks, inputs)

    def input(self, name: str, shape: list[int], dtype: Any) -> Any:
        node = self.ops.parameter(shape, dtype, name)
        node.output(0).set_names({name})
        return node

    def number(self, *values: int) -> Any:
        shaped = values[0] if len(values) == 1 else list(values)
        return self.ops.constant(self.np.array(shaped, self.np.int64))

    def weight(self, name: str) -> Any:
        return self.ops.constant(self.weights[name + ".weight"])

    def real(self, value: float) -> Any:
        return self.ops.constant(self.np.float32(value))

    def norm(self, x: Any, name: str) -> Any:
        ops = self.ops
        mean = ops.reduce_mean(ops.multiply(x, x), self.number(-1), keep_dims=True)
        x = ops.divide(x, ops.sqrt(ops.add(mean, self.real(EPSILON))))
        return ops.multiply(x, self.weight(name))

    def linear(self, x: Any, name: str) -> Any:
        return self.ops.matmul(x, self.weight(name), transpose_a=False, transpose_b=True)

    def angles(self) -> None:
        ops, np = self.ops, self.np
        frequencies = (THETA ** -(np.arange(0, HEAD, 2) / HEAD)).astype(np.float32)
        positions = ops.unsqueeze(ops.convert(self.positions, "f32"), self.number(-1))
        angles = ops.multiply(positions, ops.constant(frequencies))
        angles = ops.unsqueeze(ops.concat([angles, angles], -1), self.number(1))
        self.cos, self.sin = ops.cos(angles), ops.sin(angles)

    def hide_what_follows(self) -> None:
        """Make what is added to the scores: -inf for what lies ahead."""
        ops, one = self.ops, self.number(1)
        length = ops.gather(ops.shape_of(self.mask), one, self.number(0))
        columns = ops.range(self.number(0), length, one, "i64")
        rows = ops.unsqueeze(self.positions, self.number(-1))
        seen = ops.unsqueeze(ops.less_equal(columns, rows), one)
        self.hidden = ops.select(seen, self.real(0), self.real(-1e30))

    def rotated(self, x: Any) -> Any:
        ops = self.ops
        a, b = ops.split(x, self.number(-1), 2).outputs()
        turned = ops.concat([ops.negative(b), a], -1)
        return ops.add(ops.multiply(x, self.cos), ops.multiply(turned, self.sin))

    def remembered(self, x: Any, name: str) -> Any:
        """Put keys or values behind those of before."""
        ops, shape = self.ops, [-1, KV_HEADS, -1, HEAD]
        info = self.VariableInfo()
        info.data_shape = self.openvino.PartialShape(shape)
        info.data_type, info.variable_id = self.openvino.Type.f32, name
        variable = self.Variable(info)
        batch = ops.gather(ops.shape_of(self.ids), self.number(0), self.number(0))
        batch = ops.unsqueeze(batch, self.number(0))
        heads, none, size = (
            ops.unsqueeze(self.number(n), self.number(0)) for n in (KV_HEADS, 0, HEAD)
        )
        empty = ops.broadcast(self.real(0), ops.concat([batch, heads, none, size], 0))
        past = ops.gather(ops.read_value(empty, variable), self.beams, self.number(0))
        whole = ops.concat([past, x], 2)
        self.sinks.append(ops.assign(whole, variable))
        return whole

    def attention(self, h: Any, p: str) -> Any:
        ops = self.ops

        def heads(name: str, count: int) -> Any:
            x = ops.reshape(self.linear(h, p + name), self.number(0, 0, count, HEAD), True)
            return ops.transpose(x, self.number(0, 2, 1, 3))

        q = self.rotated(heads("self_attn.q_proj", HEADS))
        k = self.remembered(self.rotated(heads("self_attn.k_proj", KV_HEADS)), p + "key")
        v = self.remembered(heads("self_attn.v_proj", KV_HEADS), p + "value")
        order = self.number(*(i // (HEADS // KV_HEADS) for i in range(HEADS)))
        k, v = (ops.gather(x, order, self.number(1)) for x in (k, v))
        scores = ops.matmul(q, k, transpose_a=False, transpose_b=True)
        scores = ops.add(ops.multiply(scores, self.real(HEAD**-0.5)), self.hidden)
        out = ops.matmul(ops.softmax(scores, -1), v, transpose_a=False, transpose_b=False)
        out = ops.transpose(out, self.number(0, 2, 1, 3))
        return ops.reshape(out, self.number(0, 0, HEADS * HEAD), True)
