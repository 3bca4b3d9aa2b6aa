"""Moving a model to another vocabulary.

    adapt_model("model/", old, new, "adapted/")

`vocabulary` says which row each token gets, `tables` which tensors have a row for each token,
`weights` writes them, `config_files` moves the ids in config.json, and `model_folder` makes sure
that the output is either complete or absent.  docs/adapting.md explains more.
"""

from bpe_tokenizer_tools.adapting.model import Adaptation, AdaptedTable, adapt_model
from bpe_tokenizer_tools.adapting.transplant import transplant

__all__ = ["Adaptation", "AdaptedTable", "adapt_model", "transplant"]
