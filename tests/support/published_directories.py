"""Tiny directories with the keys of published ones that have a tokenizer.json.

`make(name, folder)` writes the directory of `DIRECTORIES[name]`: a small tokenizer.json of the
family, and beside it the keys that the model's repository has, null and odd ones included.  Those
with another vocabulary are in `published_shapes`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import published_shapes as shapes
import tokenizer_files as files
from tokenizer_files import FAMILIES, Json, tokens

NO_LIMIT = int(1e30)  # as transformers writes it
TEMPLATE = shapes.TEMPLATE


def typed(content: str, **flags: bool) -> Json:
    """Return a role's token as transformers 4 wrote it with some classes."""
    token = shapes.token(content, **flags)
    return {"__type": "AddedToken", **{key: v for key, v in token.items() if key != "special"}}


def mapped(content: str, **flags: bool) -> Json:
    """Return a token as special_tokens_map.json has it."""
    return {key: v for key, v in typed(content, **flags).items() if key != "__type"}


@dataclass(frozen=True)
class Directory:
    """A directory: the family of its tokenizer.json, and the files beside it.

    `added` are the added tokens, if they aren't the family's.  With `decoder`, the configuration
    lists them, as transformers from 4.34 to 4 wrote.
    """

    family: str
    config: Json
    names: Json | None = None  # special_tokens_map.json
    added: list[Json] | None = None
    decoder: bool = True
    more: dict[str, Any] = field(default_factory=dict)  # further files


def runs(lengths: Iterable[int]) -> list[Json]:
    """Return the runs of spaces that GPT-NeoX and Phi-2 have as ordinary added tokens."""
    return [files.token(" " * n, special=False, normalized=True) for n in lengths]


END = "<|endoftext|>"
QWEN = [*tokens(END, "<|im_start|>", "<|im_end|>"), *tokens("<tool_call>", special=False)]
QWEN_VL = [*QWEN, *tokens("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")]
QWEN_CONFIG: Json = {
    "add_bos_token": False,
    "add_prefix_space": False,
    "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
    "bos_token": None,
    "chat_template": TEMPLATE,
    "clean_up_tokenization_spaces": False,
    "eos_token": "<|im_end|>",
    "errors": "replace",
    "model_max_length": 131072,
    "pad_token": END,
    "split_special_tokens": False,
    "tokenizer_class": "Qwen2Tokenizer",
    "unk_token": None,
}
LLAMA_3 = [
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<|image|>", "<|finetune_right_pad_id|>"),
]
WHISPER = [END, "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
STARCODER = [END, "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<repo_name>", "<file_sep>"]
GEMMA = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>"]
GEMMA_3 = [*GEMMA, "<start_of_image>", "<end_of_image>", "<image_soft_token>"]
GEMMA_CONFIG: Json = {
    "add_bos_token": True,
    "add_eos_token": False,
    "bos_token": "<bos>",
    "clean_up_tokenization_spaces": False,
    "eos_token": "<eos>",
    "model_max_length": NO_LIMIT,
    "pad_token": "<pad>",
    "sp_model_kwargs": {},
    "spaces_between_special_tokens": False,
    "tokenizer_class": "GemmaTokenizer",
    "unk_token": "<unk>",
    "use_default_system_prompt": False,
}
NLLB = ["<s>", "<pad>", "</s>", "<unk>", "ace_Arab", "eng_Latn", "deu_Latn", "<mask>"]
RESPONSE: Json = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {"content": {"close": "<|im_end|>", "content": "text"}},
}

DIRECTORIES: dict[str, Directory] = {
    "gpt-neox": Directory(
        "gpt2",
        {
            "add_prefix_space": False,
            **dict.fromkeys(("bos_token", "eos_token", "unk_token"), END),
            "name_or_path": "EleutherAI/gpt-neox-20b",
            "special_tokens_map_file": "/admin/home-hailey/.cache/special_tokens_map.json",
            "tokenizer_class": "GPTNeoXTokenizer",
        },
        dict.fromkeys(("bos_token", "eos_token", "unk_token"), END),
        [*tokens(END, "<|padding|>"), *runs(range(4, 2, -1))],
        decoder=False,
    ),
    "phi-2": Directory(
        "gpt2",
        {
            "add_prefix_space": False,
            **dict.fromkeys(("bos_token", "eos_token", "unk_token"), END),
            "clean_up_tokenization_spaces": True,
            "model_max_length": 2048,
            "return_token_type_ids": False,
            "tokenizer_class": "CodeGenTokenizer",
        },
        {role: mapped(END) for role in ("bos_token", "eos_token", "unk_token")},
        [*tokens(END), *runs(range(5, 2, -1))],
    ),
    "phi-3-mini": Directory(
        "phi-3",
        {
            "add_bos_token": False,
            "add_eos_token": False,
            "bos_token": "<s>",
            "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|endoftext|>",
            "legacy": False,
            "model_max_length": 4096,
            "pad_token": "<|endoftext|>",
            "padding_side": "left",
            "sp_model_kwargs": {},
            "tokenizer_class": "LlamaTokenizer",
            "unk_token": "<unk>",
            "use_default_system_prompt": False,
        },
        {
            "bos_token": mapped("<s>"),
            "eos_token": mapped("<|endoftext|>"),
            "pad_token": mapped("<|endoftext|>"),
            "unk_token": mapped("<unk>"),
        },
    ),
    "falcon": Directory(
        "gpt2",
        {
            "add_prefix_space": False,
            "eos_token": END,
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": 2048,
            "special_tokens_map_file": None,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        {"additional_special_tokens": [">>TITLE<<", ">>QUESTION<<"], "eos_token": END},
        tokens(">>TITLE<<", ">>QUESTION<<", END),
        decoder=False,
    ),
    "whisper": Directory(
        "gpt2",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "additional_special_tokens": WHISPER,
            "bos_token": typed(END),
            "clean_up_tokenization_spaces": True,
            "eos_token": typed(END),
            "errors": "replace",
            "model_max_length": 1024,
            "pad_token": END,
            "processor_class": "WhisperProcessor",
            "return_attention_mask": False,
            "tokenizer_class": "WhisperTokenizer",
            "unk_token": typed(END),
        },
        {
            "additional_special_tokens": WHISPER,
            **{f"{role}_token": mapped(END) for role in ("bos", "eos", "pad", "unk")},
        },
        tokens(*WHISPER),
    ),
    "olmo": Directory(
        "gpt2",
        {
            "add_bos_token": False,
            "add_eos_token": False,
            "add_prefix_space": False,
            "bos_token": None,
            "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": True,
            "eos_token": END,
            "model_max_length": NO_LIMIT,
            "pad_token": "<|padding|>",
            "tokenizer_class": "GPTNeoXTokenizer",
            "unk_token": None,
        },
        {"eos_token": END, "pad_token": mapped("<|padding|>")},
        [*tokens(END, "<|padding|>"), *tokens("|||IP_ADDRESS|||", special=False)],
    ),
    "llama-2": Directory(
        "llama 2",
        {**shapes.LLAMA_CONFIG, "model_max_length": NO_LIMIT},
        {role: mapped(content) for role, content in shapes.LLAMA_ROLES.items()},
        decoder=False,
    ),
    "llama-3": Directory(
        "llama 3",
        {
            "bos_token": "<|begin_of_text|>",
            "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": True,
            "eos_token": "<|eot_id|>",
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": 131072,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        {"bos_token": mapped("<|begin_of_text|>"), "eos_token": mapped("<|eot_id|>")},
        tokens(*LLAMA_3),
    ),
    "llama-3-fine-tuned": Directory(
        "llama 3",
        {
            "bos_token": "<|begin_of_text|>",
            "clean_up_tokenization_spaces": True,
            "eos_token": "<|eot_id|>",
            "extra_special_tokens": {},
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": 131072,
            "pad_token": "<|finetune_right_pad_id|>",
            "padding_side": "left",
            "tokenizer_class": "PreTrainedTokenizer",
            "unk_token": None,
        },
        {
            "bos_token": mapped("<|begin_of_text|>"),
            "eos_token": mapped("<|eot_id|>"),
            "pad_token": mapped("<|finetune_right_pad_id|>"),
        },
        tokens(*LLAMA_3),
        more={"chat_template.jinja": TEMPLATE},
    ),
    "mistral": Directory(
        "mistral v0.3",
        {
            "add_bos_token": True,
            "add_eos_token": False,
            "add_prefix_space": True,
            "additional_special_tokens": [],
            "bos_token": "<s>",
            "chat_template": [
                {"name": "default", "template": TEMPLATE},
                {"name": "tool_use", "template": "{{ tools }}" + TEMPLATE},
            ],
            "clean_up_tokenization_spaces": False,
            "eos_token": "</s>",
            "legacy": False,
            "model_max_length": NO_LIMIT,
            "pad_token": None,
            "sp_model_kwargs": {},
            "spaces_between_special_tokens": False,
            "tokenizer_class": "LlamaTokenizer",
            "unk_token": "<unk>",
            "use_default_system_prompt": False,
        },
        {"bos_token": mapped("<s>"), "eos_token": mapped("</s>"), "unk_token": mapped("<unk>")},
    ),
    "mistral-nemo": Directory(
        "tekken",
        {
            "bos_token": "<s>",
            "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "eos_token": "</s>",
            "model_max_length": NO_LIMIT,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
        },
        {"bos_token": mapped("<s>"), "eos_token": mapped("</s>"), "unk_token": mapped("<unk>")},
    ),
    "gemma": Directory(
        "gemma",
        {**GEMMA_CONFIG, "additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"]},
        {
            "additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"],
            **{f"{role}_token": mapped(f"<{role}>") for role in ("bos", "eos", "pad", "unk")},
        },
        tokens(*GEMMA),
        more={"chat_template.jinja": TEMPLATE},
    ),
    "gemma-3": Directory(
        "gemma",
        {
            **GEMMA_CONFIG,
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
            "extra_special_tokens": {
                "boi_token": "<start_of_image>",
                "eoi_token": "<end_of_image>",
                "image_token": "<image_soft_token>",
            },
            "image_token": "<image_soft_token>",
            "processor_class": "Gemma3Processor",
        },
        {
            "boi_token": "<start_of_image>",
            "image_token": "<image_soft_token>",
            **{f"{role}_token": mapped(f"<{role}>") for role in ("bos", "eos", "pad", "unk")},
        },
        tokens(*GEMMA_3),
    ),
    "qwen-2": Directory(
        "qwen 2",
        QWEN_CONFIG,
        {
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            "eos_token": mapped("<|im_end|>"),
            "pad_token": mapped(END),
        },
        QWEN,
    ),
    "qwen-3": Directory(
        "qwen 2",
        {**QWEN_CONFIG, "extra_special_tokens": []},
        None,
        [*QWEN, *tokens("<think>", "</think>", special=False)],
    ),
    "qwen-vl": Directory(
        "qwen 2",
        {
            **QWEN_CONFIG,
            "additional_special_tokens": [
                token["content"] for token in QWEN_VL if token["special"]
            ],
            "extra_special_tokens": {"image_token": "<|image_pad|>"},
            "padding_side": "left",
            "processor_class": "Qwen2VLProcessor",
            "video_token": "<|video_pad|>",
        },
        {"eos_token": mapped("<|im_end|>"), "pad_token": mapped(END)},
        QWEN_VL,
    ),
    "deepseek-v3": Directory(
        "deepseek v3",
        {
            "add_bos_token": True,
            "add_eos_token": False,
            "bos_token": typed("<｜begin▁of▁sentence｜>", normalized=True),
            "clean_up_tokenization_spaces": False,
            "eos_token": typed("<｜end▁of▁sentence｜>", normalized=True),
            "legacy": True,
            "model_max_length": 131072,
            "pad_token": typed("<｜end▁of▁sentence｜>", normalized=True),
            "sp_model_kwargs": {},
            "unk_token": None,
            "tokenizer_class": "LlamaTokenizerFast",
            "chat_template": TEMPLATE,
        },
        decoder=False,
    ),
    "nllb": Directory(
        "llama 2",
        {
            "additional_special_tokens": NLLB[4:7],
            "bos_token": "<s>",
            "clean_up_tokenization_spaces": True,
            "cls_token": "<s>",
            "eos_token": "</s>",
            "legacy_behaviour": False,
            "mask_token": typed("<mask>", lstrip=True, normalized=True),
            "model_max_length": 1024,
            "pad_token": "<pad>",
            "sep_token": "</s>",
            "sp_model_kwargs": {},
            "src_lang": None,
            "tgt_lang": None,
            "tokenizer_class": "NllbTokenizer",
            "unk_token": "<unk>",
        },
        {
            "additional_special_tokens": NLLB[4:7],
            "bos_token": mapped("<s>"),
            "cls_token": mapped("<s>"),
            "eos_token": mapped("</s>"),
            "mask_token": mapped("<mask>", lstrip=True, normalized=True),
            "pad_token": mapped("<pad>"),
            "sep_token": mapped("</s>"),
            "unk_token": mapped("<unk>"),
        },
        tokens(*NLLB),
    ),
    "clip": Directory(
        "clip",
        {
            "add_prefix_space": False,
            "bos_token": typed("<|startoftext|>", normalized=True),
            "do_lower_case": True,
            "eos_token": typed(END, normalized=True),
            "errors": "replace",
            "model_max_length": 77,
            "name_or_path": "openai/clip-vit-base-patch32",
            "pad_token": END,
            "special_tokens_map_file": "./special_tokens_map.json",
            "tokenizer_class": "CLIPTokenizer",
            "unk_token": typed(END, normalized=True),
        },
        {
            "bos_token": mapped("<|startoftext|>", normalized=True),
            "eos_token": mapped(END, normalized=True),
            "pad_token": END,
            "unk_token": mapped(END, normalized=True),
        },
        decoder=False,
    ),
    "starcoder": Directory(
        "starcoder 2",
        {
            "add_prefix_space": False,
            "additional_special_tokens": STARCODER,
            **dict.fromkeys(("bos_token", "eos_token", "unk_token"), END),
            "clean_up_tokenization_spaces": True,
            "model_max_length": NO_LIMIT,
            "tokenizer_class": "GPT2Tokenizer",
            "vocab_size": 49152,
        },
        {
            "additional_special_tokens": STARCODER,
            **{role: mapped(END) for role in ("bos_token", "eos_token", "unk_token")},
        },
        tokens(*STARCODER),
    ),
    "granite": Directory(
        "granite 4",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "additional_special_tokens": ["<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>"],
            "bos_token": "<|end_of_text|>",
            "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": True,
            "eos_token": "<|end_of_text|>",
            "errors": "replace",
            "extra_special_tokens": {},
            "model_max_length": 9223372036854775807,
            "pad_token": "<|end_of_text|>",
            "padding_side": "left",
            "tokenizer_class": "GPT2Tokenizer",
            "unk_token": "<|end_of_text|>",
            "vocab_size": 49152,
        },
        None,
        tokens("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>"),
    ),
    "glm-4": Directory(
        "llama 3",
        {
            "additional_special_tokens": [END, "[MASK]", "[gMASK]", "<sop>", "<|user|>"],
            "clean_up_tokenization_spaces": False,
            "do_lower_case": False,
            "eos_token": END,
            "extra_special_tokens": {},
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": 128000,
            "pad_token": END,
            "padding_side": "left",
            "remove_space": False,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        None,
        [
            *tokens("<|begin_of_text|>", END, "[MASK]", "[gMASK]", "<sop>", "<|user|>"),
            *tokens("<think>", special=False),
        ],
        more={"chat_template.jinja": TEMPLATE},
    ),
    "roberta": Directory(
        "roberta",
        {
            "add_prefix_space": False,
            "bos_token": "<s>",
            "clean_up_tokenization_spaces": False,
            "cls_token": "<s>",
            "eos_token": "</s>",
            "errors": "replace",
            "mask_token": "<mask>",
            "model_max_length": 512,
            "pad_token": "<pad>",
            "sep_token": "</s>",
            "tokenizer_class": "RobertaTokenizer",
            "trim_offsets": True,
            "unk_token": "<unk>",
        },
        {
            "bos_token": "<s>",
            "cls_token": "<s>",
            "eos_token": "</s>",
            "mask_token": mapped("<mask>", lstrip=True),
            "pad_token": "<pad>",
            "sep_token": "</s>",
            "unk_token": "<unk>",
        },
    ),
    "transformers-5": Directory(
        "qwen 2",
        {
            "backend": "tokenizers",
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "extra_special_tokens": ["<|im_start|>"],
            "image_token": "<|image_pad|>",
            "is_local": True,
            "model_max_length": NO_LIMIT,
            "model_specific_special_tokens": {"image_token": "<|image_pad|>"},
            "pad_token": END,
            "processor_class": "SomeProcessor",
            "response_template": RESPONSE,
            "tokenizer_class": "TokenizersBackend",
        },
        None,
        QWEN_VL,
        decoder=False,
        more={"chat_template.jinja": TEMPLATE},
    ),
}


def contents(name: str) -> dict[str, Any]:
    """Return the files of a directory; what isn't text is JSON."""
    directory = DIRECTORIES[name]
    family = FAMILIES[directory.family]
    if directory.added is not None:
        family = dataclasses.replace(family, added=directory.added)
    tokenizer = files.build(family)
    config = dict(directory.config)
    if directory.decoder:
        config["added_tokens_decoder"] = {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"}
            for token in tokenizer["added_tokens"]
        }
    found = {"tokenizer.json": tokenizer, "tokenizer_config.json": config, **directory.more}
    if directory.names is not None:
        found["special_tokens_map.json"] = directory.names
    return found


def make(name: str, folder: Path) -> Path:
    """Write a directory of `DIRECTORIES`; return it."""
    return shapes.write(folder, contents(name))
