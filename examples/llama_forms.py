"""Write a model of the Llama architecture in the formats of four libraries.

Each gets the same float32 weights and the same tokenizer:

    write_safetensors    a directory, for Transformers
    write_mlx            a directory, for MLX
    write_gguf           a file, for llama.cpp (needs the package gguf)
    write_openvino       a directory, for OpenVINO (needs openvino)

Each function takes the model's configuration as in config.json, the weights by their
HuggingFace names, and a tokenizer of this library, which goes into the files.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer

Config = Mapping[str, Any]
Weights = Mapping[str, Any]  # name -> numpy array of float32

# -- Directories of safetensors -----------------------------------------------


def write_safetensors(
    folder: Path,
    config: Config,
    weights: Weights,
    tokenizer: BPETokenizer | None,
    *,
    metadata: str = "pt",
) -> Path:
    """Write what Transformers loads.

    The file is the length of a JSON object, the object, which says where each weight is,
    and the weights.
    """
    _write_config(folder, config, tokenizer)
    header: dict[str, Any] = {"__metadata__": {"format": metadata}}
    end = 0
    for name, weight in weights.items():
        start, end = end, end + weight.nbytes
        header[name] = {"dtype": "F32", "shape": weight.shape, "data_offsets": [start, end]}
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(packed)) + packed)
        for weight in weights.values():
            file.write(weight.tobytes())
    return folder


def write_mlx(
    folder: Path, config: Config, weights: Weights, tokenizer: BPETokenizer | None
) -> Path:
    """Write what mlx-lm loads: the same, but it looks for `rope_theta` at the top."""
    theta = {"rope_theta": config["rope_parameters"]["rope_theta"]}
    return write_safetensors(folder, {**config, **theta}, weights, tokenizer, metadata="mlx")


def _write_config(folder: Path, config: Config, tokenizer: BPETokenizer | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    generation = {"eos_token_id": [config["eos_token_id"]]}
    (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    if tokenizer is not None:
        tokenizer.save(folder, verbose=False)


# -- GGUF ---------------------------------------------------------------------

_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, config: Config, weights: Weights, tokenizer: BPETokenizer) -> Path:
    """Write what llama.cpp loads."""
    import gguf
    import numpy as np

    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    _add_tokenizer(writer, tokenizer, config["vocab_size"])
    for name, weight in weights.items():
        rotated = heads if "q_proj" in name else kv_heads if "k_proj" in name else None
        if rotated:  # llama.cpp turns neighbors against each other, the others halves
            halves = weight.reshape(rotated, 2, -1, weight.shape[1])
            weight = halves.swapaxes(1, 2).reshape(weight.shape)
        writer.add_tensor(_gguf_name(name), np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name: str) -> str:
    """Return llama.cpp's name of a weight; "model.layers.3." becomes "blk.3."."""
    name, block = name[: -len(".weight")], ""
    if name.startswith("model.layers."):
        _, _, layer, name = name.split(".", 3)
        block = f"blk.{layer}."
    return f"{block}{_GGUF_NAMES[name]}.weight"


def _add_tokenizer(writer: Any, tokenizer: BPETokenizer, rows: int) -> None:
    """Copy the keys that this library writes; llama.cpp wants a token for each row."""
    import gguf

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.gguf")
        tokenizer.export(path, "gguf")
        fields = gguf.GGUFReader(path).fields
        values = {key: (field.types, field.contents()) for key, field in fields.items()}
    unused = range(tokenizer.max_id + 1, rows)
    values["tokenizer.ggml.tokens"][1].extend(f"[PAD{id_}]" for id_ in unused)
    values["tokenizer.ggml.token_type"][1].extend(gguf.TokenType.UNUSED for _ in unused)
    for key, (types, value) in values.items():
        if key.startswith(("tokenizer.", "bpe_tokenizer.")):
            writer.add_key_value(key, value, types[0], types[-1] if len(types) > 1 else None)


# -- OpenVINO -----------------------------------------------------------------


def write_openvino(
    folder: Path, config: Config, weights: Weights, tokenizer: BPETokenizer | None
) -> Path:
    """Write what OpenVINO loads, in the form that optimum-intel exports."""
    import openvino

    _write_config(folder, config, tokenizer)
    graph = _Graph(config, weights).model
    openvino.save_model(graph, folder / "openvino_model.xml", compress_to_fp16=False)
    return folder


class _Graph:
    """The model as a graph that is stateful: keys and values are variables of it.

    Shapes are (batch, tokens, hidden), and (batch, heads, tokens, head) in attention.
    """

    def __init__(self, config: Config, weights: Weights) -> None:
        import numpy as np
        import openvino
        from openvino import opset13 as ops
        from openvino.op.util import Variable, VariableInfo

        self.np, self.openvino, self.ops = np, openvino, ops
        self.Variable, self.VariableInfo = Variable, VariableInfo
        self.config, self.weights = config, weights
        self.sinks: list[Any] = []
        self.heads, self.head = config["num_attention_heads"], config["head_dim"]
        self.kv_heads = config["num_key_value_heads"]
        self.ids = self.input("input_ids", [-1, -1], np.int64)
        self.mask = self.input("attention_mask", [-1, -1], np.int64)
        self.positions = self.input("position_ids", [-1, -1], np.int64)
        self.beams = self.input("beam_idx", [-1], np.int32)
        x = ops.gather(self.weight("model.embed_tokens"), self.ids, self.number(0))
        self.compute_angles()
        self.hide_what_follows()
        for layer in range(config["num_hidden_layers"]):
            x = self.layer(x, f"model.layers.{layer}.")
        head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
        logits = ops.result(self.linear(self.norm(x, "model.norm"), head))
        logits.output(0).set_names({"logits"})
        inputs = [self.ids, self.mask, self.positions, self.beams]
        self.model = openvino.Model([logits], self.sinks, inputs)

    def input(self, name: str, shape: list[int], dtype: Any) -> Any:
        """Make an input."""
        node = self.ops.parameter(shape, dtype, name)
        node.output(0).set_names({name})
        return node

    def number(self, *values: int) -> Any:
        """Make a constant integer, or several."""
        shaped = values[0] if len(values) == 1 else list(values)
        return self.ops.constant(self.np.array(shaped, self.np.int64))

    def real(self, value: float) -> Any:
        """Make a constant number."""
        return self.ops.constant(self.np.float32(value))

    def weight(self, name: str) -> Any:
        """Make a constant of a weight."""
        return self.ops.constant(self.weights[name + ".weight"])

    def linear(self, x: Any, name: str) -> Any:
        """Multiply by a matrix."""
        return self.ops.matmul(x, self.weight(name), transpose_a=False, transpose_b=True)

    def norm(self, x: Any, name: str) -> Any:
        """Bring vectors to one length."""
        ops = self.ops
        mean = ops.reduce_mean(ops.multiply(x, x), self.number(-1), keep_dims=True)
        x = ops.divide(x, ops.sqrt(ops.add(mean, self.real(self.config["rms_norm_eps"]))))
        return ops.multiply(x, self.weight(name))

    def layer(self, x: Any, p: str) -> Any:
        """Compute a layer: attention, then the two matrices with a gate between."""
        ops = self.ops
        h = self.norm(x, p + "input_layernorm")
        x = ops.add(x, self.linear(self.attention(h, p), p + "self_attn.o_proj"))
        h = self.norm(x, p + "post_attention_layernorm")
        gate = ops.swish(self.linear(h, p + "mlp.gate_proj"))
        h = ops.multiply(gate, self.linear(h, p + "mlp.up_proj"))
        return ops.add(x, self.linear(h, p + "mlp.down_proj"))

    def compute_angles(self) -> None:
        """Compute by how much each position is turned."""
        ops, np = self.ops, self.np
        theta = self.config["rope_parameters"]["rope_theta"]
        frequencies = theta ** -(np.arange(0, self.head, 2) / self.head)
        positions = ops.unsqueeze(ops.convert(self.positions, "f32"), self.number(-1))
        angles = ops.multiply(positions, ops.constant(frequencies.astype(np.float32)))
        angles = ops.unsqueeze(ops.concat([angles, angles], -1), self.number(1))
        self.cos, self.sin = ops.cos(angles), ops.sin(angles)

    def hide_what_follows(self) -> None:
        """Compute the mask to add to the scores: very negative for later tokens."""
        ops, one = self.ops, self.number(1)
        length = ops.gather(ops.shape_of(self.mask), one, self.number(0))
        columns = ops.range(self.number(0), length, one, "i64")
        rows = ops.unsqueeze(self.positions, self.number(-1))
        seen = ops.unsqueeze(ops.less_equal(columns, rows), one)
        self.hidden = ops.select(seen, self.real(0), self.real(-1e30))

    def rotated(self, x: Any) -> Any:
        """Rotate queries or keys by their positions."""
        ops = self.ops
        a, b = ops.split(x, self.number(-1), 2).outputs()
        turned = ops.concat([ops.negative(b), a], -1)
        return ops.add(ops.multiply(x, self.cos), ops.multiply(turned, self.sin))

    def remembered(self, x: Any, name: str) -> Any:
        """Append keys or values to the earlier ones."""
        ops = self.ops
        info = self.VariableInfo()
        info.data_shape = self.openvino.PartialShape([-1, self.kv_heads, -1, self.head])
        info.data_type, info.variable_id = self.openvino.Type.f32, name
        variable = self.Variable(info)
        batch = ops.gather(ops.shape_of(self.ids), self.number(0), self.number(0))
        batch = ops.unsqueeze(batch, self.number(0))
        heads, none, size = (
            ops.unsqueeze(self.number(n), self.number(0)) for n in (self.kv_heads, 0, self.head)
        )
        empty = ops.broadcast(self.real(0), ops.concat([batch, heads, none, size], 0))
        past = ops.gather(ops.read_value(empty, variable), self.beams, self.number(0))
        whole = ops.concat([past, x], 2)
        self.sinks.append(ops.assign(whole, variable))
        return whole

    def split_heads(self, h: Any, name: str, count: int) -> Any:
        """Multiply by a matrix, and give each head its part."""
        x = self.ops.reshape(self.linear(h, name), self.number(0, 0, count, self.head), True)
        return self.ops.transpose(x, self.number(0, 2, 1, 3))

    def attention(self, h: Any, p: str) -> Any:
        """Let each token attend to itself and the tokens before it."""
        ops = self.ops
        q = self.rotated(self.split_heads(h, p + "self_attn.q_proj", self.heads))
        k = self.rotated(self.split_heads(h, p + "self_attn.k_proj", self.kv_heads))
        k = self.remembered(k, p + "key")
        v = self.split_heads(h, p + "self_attn.v_proj", self.kv_heads)
        v = self.remembered(v, p + "value")
        order = self.number(*(i // (self.heads // self.kv_heads) for i in range(self.heads)))
        k, v = (ops.gather(x, order, self.number(1)) for x in (k, v))
        scores = ops.matmul(q, k, transpose_a=False, transpose_b=True)
        scores = ops.add(ops.multiply(scores, self.real(self.head**-0.5)), self.hidden)
        out = ops.matmul(ops.softmax(scores, -1), v, transpose_a=False, transpose_b=False)
        out = ops.transpose(out, self.number(0, 2, 1, 3))
        return ops.reshape(out, self.number(0, 0, self.heads * self.head), True)
