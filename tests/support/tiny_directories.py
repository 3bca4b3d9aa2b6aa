"""Tiny directories of tokenizers, one for each family that transformers has a class for.

Each has a tokenizer.json of `tokenizer_files` and a tokenizer_config.json with the class and the
roles that the published ones have, so `AutoTokenizer` loads it as it loads those.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizer_files as files

GPT2_ROLES = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
LLAMA2_ROLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
BERT_ROLES = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
ROBERTA_ROLES = {
    **LLAMA2_ROLES,
    "cls_token": "<s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
GEMMA_ROLES = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
DEEPSEEK_ROLES = {
    "bos_token": "<｜begin▁of▁sentence｜>",
    "eos_token": "<｜end▁of▁sentence｜>",
    "pad_token": "<｜▁pad▁｜>",
}
BACKEND = "TokenizersBackend"  # the class of all models without one of their own


@dataclass(frozen=True)
class Directory:
    """A family: its class in transformers, its tokenizer.json, and the rest of its settings."""

    tokenizer_class: str
    file: files.Family | str
    settings: Mapping[str, Any]

    def write(self, folder: Path) -> None:
        """Write the directory."""
        family = files.FAMILIES[self.file] if isinstance(self.file, str) else self.file
        config = {"tokenizer_class": self.tokenizer_class, **self.settings}
        folder.mkdir(parents=True)
        for name, content in ("tokenizer", files.build(family)), ("tokenizer_config", config):
            (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def _with_tokens(file: str, *contents: str) -> files.Family:
    """Return a family with other control tokens, the first ones of its vocabulary."""
    added = files.tokens(*contents)
    return dataclasses.replace(files.FAMILIES[file], added=added, first=True)


_ROBERTA_LIKE = _with_tokens("gpt2", "<s>", "<pad>", "</s>", "<unk>", "<mask>")
_WORDS_WITH_AN_END = dataclasses.replace(
    files.FAMILIES["gpt-1 without Bert's normalizer"],
    added=files.tokens("<unk>", "<s>", "</s>", "<pad>", "<mask>"),
)
_PIECES = dataclasses.replace(
    files.FAMILIES["metaspace always"],
    added=files.tokens("<s>", "<pad>", "</s>", "<unk>"),
    model={"unk_token": "<unk>", "fuse_unk": True},
)
# In the other order, HuggingFace's engine numbers the texts of a pair at random.
_GLM4 = dataclasses.replace(
    files.FAMILIES["glm-4"],
    post_processor=files.processors(
        files.always(files.byte_level(True, False)), files.template("[gMASK]")
    ),
)

DIRECTORIES = {
    "gpt2": Directory("GPT2Tokenizer", "gpt2", GPT2_ROLES),
    "roberta": Directory("RobertaTokenizer", "roberta", ROBERTA_ROLES),
    "bart": Directory(
        "BartTokenizer", "bart with a prefix space", {**ROBERTA_ROLES, "add_prefix_space": True}
    ),
    "deberta": Directory(
        "DebertaTokenizer",
        _with_tokens("gpt2", "[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"),
        {**BERT_ROLES, "unk_token": "[UNK]", "mask_token": "[MASK]"},
    ),
    "blenderbot": Directory("BlenderbotTokenizer", _ROBERTA_LIKE, ROBERTA_ROLES),
    "markuplm": Directory(
        "MarkupLMTokenizer", _ROBERTA_LIKE, {**ROBERTA_ROLES, "tags_dict": {"a": 0}}
    ),
    "luke": Directory("LukeTokenizer", _ROBERTA_LIKE, ROBERTA_ROLES),
    "whisper": Directory("WhisperTokenizer", "gpt2", GPT2_ROLES),
    "phi-2": Directory("CodeGenTokenizer", "phi-2", GPT2_ROLES),
    "gpt-neox": Directory(
        "GPTNeoXTokenizer", "olmo, gpt-neox", {**GPT2_ROLES, "pad_token": "<|padding|>"}
    ),
    "llama 2": Directory("LlamaTokenizer", "llama 2", LLAMA2_ROLES),
    "llama 2, not legacy": Directory(
        "LlamaTokenizer", "llama 2, written anew", {**LLAMA2_ROLES, "legacy": False}
    ),
    "code llama": Directory("CodeLlamaTokenizer", "llama 2", LLAMA2_ROLES),
    "phi-3": Directory("LlamaTokenizer", "phi-3", {**LLAMA2_ROLES, "pad_token": "<|endoftext|>"}),
    "gemma": Directory("GemmaTokenizer", "gemma", GEMMA_ROLES),
    "gemma 3": Directory(BACKEND, "gemma 3", GEMMA_ROLES),
    "siglip 2": Directory("Siglip2Tokenizer", "gemma", GEMMA_ROLES),
    "clip": Directory(
        "CLIPTokenizer",
        "clip",
        {**GPT2_ROLES, "bos_token": "<|startoftext|>", "pad_token": "<|endoftext|>"},
    ),
    "qwen 2": Directory(
        "Qwen2Tokenizer", "qwen 2", {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    ),
    "qwen 3.5": Directory(
        "Qwen3_5Tokenizer", "qwen 3.5", {"eos_token": "<|im_end|>", "pad_token": "<|im_start|>"}
    ),
    "cohere": Directory(
        "CohereTokenizer",
        _with_tokens(
            "command-r",
            *("<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>", "<BOS_TOKEN>"),
            "<|END_OF_TURN_TOKEN|>",
        ),
        {"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>", "pad_token": "<PAD>"},
    ),
    "nougat": Directory("NougatTokenizer", _ROBERTA_LIKE, {**LLAMA2_ROLES, "pad_token": "<pad>"}),
    "nllb": Directory("NllbTokenizer", _PIECES, {**LLAMA2_ROLES, "pad_token": "<pad>"}),
    "gpt": Directory("OpenAIGPTTokenizer", _WORDS_WITH_AN_END, {"unk_token": "<unk>"}),
    "llama 3": Directory(
        BACKEND, "llama 3", {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    ),
    "mistral v0.3": Directory(BACKEND, "mistral v0.3", LLAMA2_ROLES),
    "tekken": Directory(BACKEND, "tekken", LLAMA2_ROLES),
    "deepseek v3": Directory(BACKEND, "deepseek v3", DEEPSEEK_ROLES),
    "deepseek coder": Directory(BACKEND, "deepseek coder", DEEPSEEK_ROLES),
    "falcon": Directory(BACKEND, "falcon", {"eos_token": "<|endoftext|>"}),
    "starcoder 2": Directory(BACKEND, "starcoder 2", GPT2_ROLES),
    "olmo 2": Directory(BACKEND, "olmo 2, phi-4", {**GPT2_ROLES, "pad_token": "<|fim_prefix|>"}),
    "granite 4": Directory(
        BACKEND, "granite 4", dict.fromkeys(("bos_token", "eos_token"), "<|end_of_text|>")
    ),
    "gpt-oss": Directory(
        BACKEND, "gpt-oss", {"bos_token": "<|startoftext|>", "eos_token": "<|return|>"}
    ),
    "kimi": Directory(BACKEND, "kimi", {"bos_token": "[BOS]", "eos_token": "<|im_end|>"}),
    "glm-4": Directory(
        BACKEND, _GLM4, {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    ),
    "bloom": Directory(BACKEND, "bloom", {**LLAMA2_ROLES, "pad_token": "<pad>"}),
}
