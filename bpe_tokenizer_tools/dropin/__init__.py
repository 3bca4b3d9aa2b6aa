"""This library's engine under the interfaces of other libraries."""

from bpe_tokenizer_tools.dropin.grammars import for_llguidance, for_xgrammar
from bpe_tokenizer_tools.dropin.sentencepiece import as_sentencepiece
from bpe_tokenizer_tools.dropin.tiktoken import as_tiktoken, patch_tiktoken, unpatch_tiktoken
from bpe_tokenizer_tools.dropin.tokenizers import as_tokenizers
from bpe_tokenizer_tools.dropin.transformers import (
    patch_tokenizer,
    patch_transformers,
    patched_transformers,
    to_transformers,
    unpatch_transformers,
)

__all__ = [
    "as_sentencepiece",
    "as_tiktoken",
    "as_tokenizers",
    "for_llguidance",
    "for_xgrammar",
    "patch_tiktoken",
    "patch_tokenizer",
    "patch_transformers",
    "patched_transformers",
    "to_transformers",
    "unpatch_tiktoken",
    "unpatch_transformers",
]
