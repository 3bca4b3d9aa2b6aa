"""Tools around a tokenizer; `bpe_tokenizer` itself needs none of them."""
