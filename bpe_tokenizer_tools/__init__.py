"""What people do around a tokenizer; `bpe_tokenizer` itself needs none of it."""
