"""The engine of bpe_tokenizer in C: `native` is compiled, `engine` adapts it to the module."""

__version__ = "0.10.0"  # the module reads it before it imports `engine`

import bpe_tokenizer  # noqa: F401 - first of the two, as its last lines import `engine`
