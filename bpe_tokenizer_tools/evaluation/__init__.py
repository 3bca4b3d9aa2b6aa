"""Measure tokenizers: how they cut texts, and what that costs.

    evaluation = evaluate({"mine": tokenizer, "gpt2": "tiktoken:gpt2"}, {"news": texts})
    print(evaluation); evaluation.to_json(); evaluation.to_csv()
    print(compare("a.json", "b.json", {"news": texts}))

Texts are encoded without added special tokens, and what looks like a special token in a text is
ordinary text.  These names need numpy; `sweep` does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bpe_tokenizer_tools.evaluation.adapters import Adapter, open_tokenizer
    from bpe_tokenizer_tools.evaluation.comparison import Comparison, compare
    from bpe_tokenizer_tools.evaluation.figures import Evaluation, Vocabulary, evaluate
    from bpe_tokenizer_tools.evaluation.measures import Measures, renyi_entropy
    from bpe_tokenizer_tools.evaluation.scripts import Allocation
    from bpe_tokenizer_tools.evaluation.texts import file_groups, parallel_lines

__all__ = [
    "Adapter", "Allocation", "Comparison", "Evaluation", "Measures", "Vocabulary", "compare",
    "evaluate", "file_groups", "open_tokenizer", "parallel_lines", "renyi_entropy",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load the module that a name is in."""
    if name in __all__:
        for module in ("adapters", "figures", "texts", "measures", "scripts", "comparison"):
            found = importlib.import_module(f"{__name__}.{module}")
            if hasattr(found, name):
                return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
