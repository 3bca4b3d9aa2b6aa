"""Tools around a tokenizer; `bpe_tokenizer` itself needs none of them."""

__version__ = "0.10.0"  # all that importing the package does: `bpe_tokenizer` compares it at import
