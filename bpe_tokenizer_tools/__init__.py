"""What people do around a tokenizer; `bpe_tokenizer` itself needs none of it."""

import bpe_tokenizer  # noqa: F401 - first of the two, as it looks into this package at its end
