"""Tiny directories with the files, keys and odd ids of published ones.

`make(name, folder)` writes the directory of `SHAPES[name]`.  Only the vocabularies are small: a
SentencePiece model that is trained here, or ranks of the 256 bytes and a few words.  Everything
beside them has the form of the model it is named after, as its repository has it.
"""

from __future__ import annotations

import base64
import functools
import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from oracles import need

from bpe_tokenizer import SPLIT_PATTERNS

Json = dict[str, Any]

TEXT = [
    "the cat sat on the mat and the user says hello",
    "Wörter über alles, 12 Zahlen",
    "the system said: hello, user! What's the weather in Paris?",
]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)

# -- Vocabularies -------------------------------------------------------------


@functools.cache
def _trained(options: str) -> bytes:
    sentencepiece = need("sentencepiece")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 40), model_writer=written, **json.loads(options)
    )
    return written.getvalue()


def sentencepiece_model(**options: Any) -> bytes:
    """Train a model with Llama 2's options, but for those given."""
    llama = {
        "vocab_size": 340,
        "model_type": "bpe",
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "split_digits": True,
        "minloglevel": 2,
    }
    return _trained(json.dumps({**llama, **options}, sort_keys=True))


def size_of(model: bytes) -> int:
    """Count the pieces of a SentencePiece model."""
    import sentencepiece

    return int(sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size())


WORDS = ("th", "the", " the", "he", "ll", "llo", "hello", " hello", "user", "\n\n", "  ", "12")


def ranks(words: Iterable[str] = WORDS) -> list[bytes]:
    """Return the tokens of a vocabulary of ranks, the bytes first."""
    return [*(bytes([byte]) for byte in range(256)), *(word.encode() for word in words)]


def tiktoken_file(tokens: Iterable[bytes]) -> bytes:
    """Write ranks in tiktoken's format."""
    lines = (base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    return b"".join(lines)


def tekken_file(special: Iterable[str], reserved: int = 30, version: str = "v7") -> Json:
    """Return a tekken.json; `reserved` ids are of control tokens."""
    tokens = ranks()
    return {
        "config": {
            "pattern": SPLIT_PATTERNS["tekken"],
            "num_vocab_tokens": len(tokens),
            "default_vocab_size": len(tokens) + reserved,
            "default_num_special_tokens": reserved,
            "version": version,
        },
        "vocab": [
            {"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for i, token in enumerate(tokens)
        ],
        "special_tokens": [
            {"rank": i, "token_str": token, "is_control": True} for i, token in enumerate(special)
        ],
    }


# -- Side files ---------------------------------------------------------------


def token(content: str, special: bool = True, **flags: bool) -> Json:
    """Return an added token as tokenizer_config.json has it."""
    plain = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    return {"content": content, **plain, **flags, "special": special}


def decoder(tokens: Mapping[int, Json | str]) -> Json:
    """Return `added_tokens_decoder`; a str stands for a special token without flags."""
    return {
        str(id_): token(each) if isinstance(each, str) else each for id_, each in tokens.items()
    }


LLAMA_ROLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
LLAMA_BASE = {0: "<unk>", 1: "<s>", 2: "</s>"}
LLAMA_CONFIG: Json = {
    "add_bos_token": True,
    "add_eos_token": False,
    **{role: token(content) for role, content in LLAMA_ROLES.items()},
    "clean_up_tokenization_spaces": False,
    "legacy": False,
    "model_max_length": 10**30,
    "pad_token": None,
    "padding_side": "right",
    "sp_model_kwargs": {},
    "tokenizer_class": "LlamaTokenizer",
}
for _role in LLAMA_ROLES:  # transformers 4 wrote these with their class
    LLAMA_CONFIG[_role] = {"__type": "AddedToken", **token(LLAMA_ROLES[_role])}
    del LLAMA_CONFIG[_role]["special"]

Files = dict[str, Any]  # name -> content; what isn't text or bytes is written as JSON


def _llama_2() -> Files:
    return {
        "tokenizer.model": sentencepiece_model(),
        "tokenizer_config.json": LLAMA_CONFIG,
        "special_tokens_map.json": {
            role: {k: v for k, v in token(content).items() if k != "special"}
            for role, content in LLAMA_ROLES.items()
        },
        "config.json": {"model_type": "llama", "vocab_size": 340},
    }


def llama_tokenizer_json(model: bytes) -> Json:
    """Return the tokenizer.json that Llama 2's repository has beside the model."""
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocab = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
    merges = sorted(
        (vocab[left + right], vocab[left], left, right)
        for made in vocab
        for cut in range(1, len(made))
        for left, right in [(made[:cut], made[cut:])]
        if left in vocab and right in vocab
    )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **token(content)} for i, content in LLAMA_BASE.items()],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "<s>", "type_id": 1}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [f"{left} {right}" for _, _, left, right in merges],
        },
    }


def _llama_2_with_tokenizer_json() -> Files:
    files = _llama_2()
    return {**files, "tokenizer.json": llama_tokenizer_json(files["tokenizer.model"])}


def _chatml_in_added_tokens() -> Files:
    """A fine-tune of 2023: the new tokens are in added_tokens.json only."""
    return {
        **_llama_2(),
        "tokenizer_config.json": {
            **LLAMA_CONFIG,
            "eos_token": "<|im_end|>",
            "bos_token": "<s>",
            "unk_token": "<unk>",
            "pad_token": "</s>",
            "legacy": True,
            "chat_template": TEMPLATE,
        },
        "special_tokens_map.json": {**LLAMA_ROLES, "eos_token": "<|im_end|>"},
        "added_tokens.json": {"<|im_end|>": 340, "<|im_start|>": 341},
    }


def _chatml_in_config() -> Files:
    """A fine-tune of 2024: the new tokens are in added_tokens_decoder."""
    added = {**LLAMA_BASE, 340: "<|im_end|>", 341: token("<|im_start|>", special=False)}
    return {
        **_llama_2(),
        "tokenizer_config.json": {
            **LLAMA_CONFIG,
            **LLAMA_ROLES,
            "added_tokens_decoder": decoder(added),
            "eos_token": "<|im_end|>",
            "pad_token": "</s>",
            "chat_template": TEMPLATE,
        },
        "added_tokens.json": {"<|im_end|>": 340, "<|im_start|>": 341},
    }


def _mistral() -> Files:
    """Mistral 7B, version 0.3: control pieces in the model itself."""
    control = ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"]
    added = {**LLAMA_BASE, **{3 + i: name for i, name in enumerate(control)}}
    return {
        "tokenizer.model": sentencepiece_model(control_symbols=control, vocab_size=350),
        "tokenizer_config.json": {
            "add_bos_token": True,
            "add_eos_token": False,
            "add_prefix_space": True,
            "added_tokens_decoder": decoder(added),
            **LLAMA_ROLES,
            "chat_template": LLAMA_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "legacy": False,
            "model_max_length": 10**30,
            "pad_token": None,
            "sp_model_kwargs": {},
            "spaces_between_special_tokens": False,
            "tokenizer_class": "LlamaTokenizer",
            "use_default_system_prompt": False,
        },
        "special_tokens_map.json": LLAMA_ROLES,
        "config.json": {"model_type": "mistral"},
    }


TEKKEN_SPECIAL = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]",
    "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)  # fmt: skip


def _mistral_tekken() -> Files:
    """Mistral Small 3.2: tekken.json, and the template in a file of its own."""
    return {
        "tekken.json": tekken_file(TEKKEN_SPECIAL),
        "chat_template.jinja": LLAMA_TEMPLATE,
        "config.json": {"model_type": "mistral3"},
    }


def _gemma() -> Files:
    """Gemma: no prefix space, runs of spaces and unused tokens as user-defined symbols."""
    symbols = [*(f"<unused{i}>" for i in range(12)), "<start_of_turn>", "<end_of_turn>"]
    symbols += ["\n\n", "\n\n\n", "▁▁", "▁▁▁", "<table>"]
    model = sentencepiece_model(
        vocab_size=360,
        add_dummy_prefix=False,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        user_defined_symbols=["<mask>", "[multimodal]", *symbols],
    )
    roles = {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk")}
    ids = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3}
    return {
        "tokenizer.model": model,
        "tokenizer_config.json": {
            "add_bos_token": True,
            "add_eos_token": False,
            "added_tokens_decoder": decoder({i: name for name, i in ids.items()}),
            **roles,
            "additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"],
            "chat_template": "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n"
            "{{ m.content }}<end_of_turn>\n{% endfor %}",
            "clean_up_tokenization_spaces": False,
            "legacy": None,
            "model_max_length": 10**30,
            "sp_model_kwargs": {},
            "spaces_between_special_tokens": False,
            "tokenizer_class": "GemmaTokenizer",
            "use_default_system_prompt": False,
        },
        "special_tokens_map.json": {
            "additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"],
            **{
                role: {k: v for k, v in token(n).items() if k != "special"}
                for role, n in roles.items()
            },
        },
        "config.json": {"model_type": "gemma"},
    }


PHI_3_ADDED = (
    "<|endoftext|>", "<|assistant|>", "<|placeholder1|>", "<|placeholder2|>", "<|placeholder3|>",
    "<|placeholder4|>", "<|system|>", "<|end|>", "<|placeholder5|>", "<|placeholder6|>", "<|user|>",
)  # fmt: skip


def _phi_3_mini() -> Files:
    """Phi-3-mini: Llama 2's model, and tokens that swallow the space after them."""
    added: dict[int, Any] = {0: "<unk>", 1: "<s>", 2: token("</s>", special=False, rstrip=True)}
    added |= {340 + i: token(name, rstrip=i > 0) for i, name in enumerate(PHI_3_ADDED)}
    return {
        "tokenizer.model": sentencepiece_model(),
        "tokenizer_config.json": {
            "add_bos_token": False,
            "add_eos_token": False,
            "added_tokens_decoder": decoder(added),
            "bos_token": "<s>",
            "chat_template": "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
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
        "added_tokens.json": {name: 340 + i for i, name in enumerate(PHI_3_ADDED)},
        "special_tokens_map.json": {
            "bos_token": "<s>",
            "eos_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
            "unk_token": "<unk>",
        },
        "config.json": {"model_type": "phi3"},
    }


def _phi_3_small() -> Files:
    """Phi-3-small: cl100k's ranks, and 96 control tokens, in no order of their own."""
    size = len(ranks())
    names = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]
    names += ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
    names += [f"<|dummy_id_{i}|>" for i in range(87)] + ["<|endofprompt|>"]
    return {
        "cl100k_base.tiktoken": tiktoken_file(ranks()),
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder({size + i: name for i, name in enumerate(names)}),
            "auto_map": {"AutoTokenizer": ["tokenization_phi3_small.Phi3SmallTokenizer", None]},
            "bos_token": "<|endoftext|>",
            "chat_template": "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n"
            "{{ m.content }}<|end|>\n{% endfor %}",
            "clean_up_tokenization_spaces": True,
            "eos_token": "<|endoftext|>",
            "model_max_length": 8192,
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "Phi3SmallTokenizer",
        },
        "config.json": {"model_type": "phi3small"},
    }


def _qwen_1() -> Files:
    """Qwen 1: its control tokens are in its own code only."""
    return {
        "qwen.tiktoken": tiktoken_file(ranks()),
        "tokenizer_config.json": {
            "auto_map": {"AutoTokenizer": ["tokenization_qwen.QWenTokenizer", None]},
            "model_max_length": 8192,
            "tokenizer_class": "QWenTokenizer",
        },
        "config.json": {"model_type": "qwen"},
    }


def _kimi() -> Files:
    """Kimi K2: tiktoken.model, and a few of its 256 reserved ids have names."""
    size = len(ranks())
    names = {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 3: "<|im_user|>", 4: "<|im_assistant|>"}
    names |= {6: "<|start_header_id|>", 7: "<|end_header_id|>", 9: "[EOT]", 10: "<|im_system|>"}
    names |= {11: "<|tool_calls_section_begin|>", 17: "<|im_middle|>", 254: "[UNK]", 255: "[PAD]"}
    plain = token("<|tool_calls_section_begin|>", special=False)
    return {
        "tiktoken.model": tiktoken_file(ranks()),
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder(
                {size + i: plain if i == 11 else name for i, name in names.items()}
            ),
            "additional_special_tokens": ["<|im_end|>", "<|im_user|>", "<|im_middle|>"],
            "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
            "bos_token": "[BOS]",
            "clean_up_tokenization_spaces": False,
            "eos_token": "[EOS]",
            "extra_special_tokens": {},
            "model_max_length": 10**30,
            "pad_token": "[PAD]",
            "tokenizer_class": "TikTokenTokenizer",
            "unk_token": "[UNK]",
        },
        "chat_template.jinja": "{% for m in messages %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>"
        "{{ m.content }}<|im_end|>{% endfor %}",
        "config.json": {"model_type": "kimi_k2"},
    }


GLM_4_ADDED = (
    "<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>",
    "<|assistant|>", "<|observation|>", "<|begin_of_image|>", "<|end_of_image|>",
    "<|begin_of_video|>", "<|end_of_video|>",
)  # fmt: skip


def _glm_4() -> Files:
    """GLM-4: tokenizer.model, but in tiktoken's format."""
    size = len(ranks())
    return {
        "tokenizer.model": tiktoken_file(ranks()),
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder({size + i: n for i, n in enumerate(GLM_4_ADDED)}),
            "additional_special_tokens": list(GLM_4_ADDED),
            "auto_map": {"AutoTokenizer": ["tokenization_chatglm.ChatGLM4Tokenizer", None]},
            "chat_template": "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}"
            "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
            "clean_up_tokenization_spaces": False,
            "do_lower_case": False,
            "eos_token": "<|endoftext|>",
            "model_max_length": 128000,
            "pad_token": "<|endoftext|>",
            "padding_side": "left",
            "remove_space": False,
            "tokenizer_class": "ChatGLM4Tokenizer",
        },
        "config.json": {"model_type": "chatglm"},
    }


def _llama_3_original() -> Files:
    """Llama 3's original/tokenizer.model, with the files of the repository's top beside it."""
    size = len(ranks())
    named = {0: "<|begin_of_text|>", 1: "<|end_of_text|>", 2: "<|reserved_special_token_0|>"}
    named |= {6: "<|start_header_id|>", 7: "<|end_header_id|>", 9: "<|eot_id|>"}
    return {
        "tokenizer.model": tiktoken_file(ranks()),
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder({size + i: name for i, name in named.items()}),
            "bos_token": "<|begin_of_text|>",
            "chat_template": "{{ bos_token }}{% for m in messages %}<|start_header_id|>"
            "{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}",
            "clean_up_tokenization_spaces": True,
            "eos_token": "<|eot_id|>",
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": 131072,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        "config.json": {"model_type": "llama"},
    }


def _llama_4() -> Files:
    size = len(ranks())
    named = ["<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|header_start|>"]
    named += ["<|header_end|>", "<|eom|>", "<|eot|>", "<|image_start|>", "<|finetune_right_pad|>"]
    return {
        "tokenizer.model": tiktoken_file(ranks()),
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder({size + i: name for i, name in enumerate(named)}),
            "bos_token": "<|begin_of_text|>",
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|eot|>",
            "extra_special_tokens": {"image_token": "<|image_start|>"},
            "model_max_length": 10485760,
            "pad_token": "<|finetune_right_pad|>",
            "processor_class": "Llama4Processor",
            "tokenizer_class": "PreTrainedTokenizer",
        },
        "chat_template.jinja": "{{ bos_token }}{% for m in messages %}<|header_start|>"
        "{{ m.role }}<|header_end|>\n\n{{ m.content }}<|eot|>{% endfor %}",
        "config.json": {"model_type": "llama4"},
    }


SHAPES: dict[str, Callable[[], Files]] = {
    "llama-2": _llama_2,
    "llama-2-tokenizer-json": _llama_2_with_tokenizer_json,
    "llama-2-chatml-added-tokens": _chatml_in_added_tokens,
    "llama-2-chatml-config": _chatml_in_config,
    "mistral": _mistral,
    "mistral-tekken": _mistral_tekken,
    "gemma": _gemma,
    "phi-3-mini": _phi_3_mini,
    "phi-3-small": _phi_3_small,
    "qwen-1": _qwen_1,
    "kimi": _kimi,
    "glm-4": _glm_4,
    "llama-3-original": _llama_3_original,
    "llama-4": _llama_4,
}


def write(folder: Path, files: Mapping[str, Any]) -> Path:
    """Write files to a folder; content that isn't text or bytes as JSON."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
            continue
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        path.write_text(text, encoding="utf-8", newline="\n")
    return folder


def make(name: str, folder: Path, **changes: Any) -> Path:
    """Write a directory of `SHAPES`; return it.

    `changes` are keys of tokenizer_config.json; the value ... takes a key away.
    """
    files = SHAPES[name]()
    if changes:
        config = {**files.get("tokenizer_config.json", {}), **changes}
        files["tokenizer_config.json"] = {k: v for k, v in config.items() if v is not ...}
    return write(folder, files)
