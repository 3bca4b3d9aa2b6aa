"""The names of public parameters: callers pass them by name, so they are kept."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import bpe_tokenizer as bpe
from bpe_tokenizer import BPETokenizer, ChatTemplate

# Each public call, and the parameters that a caller may pass by name, in their order.
# More parameters may follow.
CALLS = {
    "build_byte_to_char": "",
    "build_char_to_byte": "byte_to_char",
    "detect_best_backend": "verbose",
    "EncodingResult": "input_ids attention_mask tokens token_type_ids",
    "ChatTemplate.llama3": "messages add_generation_prompt system_prompt",
    "ChatTemplate.chatml": "messages add_generation_prompt system_prompt",
    "ChatTemplate.alpaca": "messages add_generation_prompt system_prompt",
    "ChatTemplate.get_template": "name",
    "BPETokenizer": "split_pattern",
    "BPETokenizer.train": "self corpus vocab_size min_frequency special_tokens verbose",
    "BPETokenizer.add_special_tokens": "self special_tokens",
    "BPETokenizer.encode": "self text add_special_tokens allowed_special",
    "BPETokenizer.encode_batch": "self texts add_special_tokens allowed_special padding"
    " truncation max_length return_tensors",
    "BPETokenizer.__call__": "self text",
    "BPETokenizer.decode": "self ids skip_special_tokens errors",
    "BPETokenizer.decode_batch": "self batch_ids skip_special_tokens skip_padding",
    "BPETokenizer.get_vocab": "self",
    "BPETokenizer.tokenize": "self text",
    "BPETokenizer.convert_tokens_to_ids": "self tokens",
    "BPETokenizer.convert_ids_to_tokens": "self ids",
    "BPETokenizer.convert_tokens_to_string": "self tokens",
    "BPETokenizer.count_tokens": "self text add_special_tokens allowed_special",
    "BPETokenizer.truncate": "self text max_tokens add_special_tokens",
    "BPETokenizer.save": "self directory name verbose",
    "BPETokenizer.from_pretrained": "directory verbose",
    "BPETokenizer.from_huggingface": "model_name_or_path cache_dir token verbose",
    "BPETokenizer.apply_chat_template": "self messages template add_generation_prompt"
    " system_prompt tokenize allowed_special",
    "BPETokenizer.chat": "self messages model_path template system_prompt max_new_tokens"
    " temperature top_p backend n_gpu_layers n_ctx verbose",
    "BPETokenizer.encode_streaming": "self text_stream allowed_special",
    "BPETokenizer.get_cache_stats": "self",
    "BPETokenizer.clear_cache": "self",
}


@pytest.mark.parametrize("name", CALLS)
def test_parameters_keep_their_names_and_order(name: str) -> None:
    found: Any = bpe
    for part in name.split("."):
        found = getattr(found, part)
    expected = CALLS[name].split()
    assert [*inspect.signature(found).parameters][: len(expected)] == expected


def test_each_works_by_name() -> None:
    made = BPETokenizer(split_pattern="gpt2")
    assert made.convert_ids_to_tokens(ids=[97, 32]) == ["a", "Ġ"]
    assert made.convert_ids_to_tokens(ids=97) == "a"
    assert made.convert_tokens_to_ids(tokens=["a", "Ġ"]) == [97, 32]
    assert made.convert_tokens_to_ids(tokens="a") == 97
    assert made.convert_tokens_to_string(tokens=["a", "Ġ"]) == "a "
    forward = bpe.build_byte_to_char()
    assert bpe.build_char_to_byte(byte_to_char=forward)["Ġ"] == 32
    assert made(text="a ") == made.encode(text="a ") == [97, 32]
    assert ChatTemplate.get_template(name="chatml")(messages=[]) == "<|im_start|>assistant\n"
