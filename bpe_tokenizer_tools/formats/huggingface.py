"""Live objects of HuggingFace's `tokenizers`."""

from __future__ import annotations

import json
from typing import Any

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer


def to_hf(tokenizer: BPETokenizer) -> Any:
    """Make a `tokenizers.Tokenizer` that gives the same ids.

    Special tokens are always recognised in text there, unless its attribute
    ``encode_special_tokens`` is set.

    Raises:
        ValueError: the split pattern has no equal in its regex engine.
        ImportError: `tokenizers` is not installed.
    """
    tokenizers = bpe_tokenizer._import_optional("tokenizers", "to_hf()", "tokenizers")
    data = bpe_tokenizer._tokenizer_json(tokenizer._definition, tokenizer.bos_token_id)
    return tokenizers.Tokenizer.from_str(json.dumps(data))
