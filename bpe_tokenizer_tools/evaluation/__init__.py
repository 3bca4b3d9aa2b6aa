"""Measure tokenizers: how they cut texts, and what that costs.

    evaluation = evaluate({"mine": tokenizer, "gpt2": "tiktoken:gpt2"}, {"news": texts})
    print(evaluation); evaluation.to_json(); evaluation.to_csv()
    print(compare("a.json", "b.json", {"news": texts}))

A text is encoded as it stands, without what goes around it, and what looks like a special token in
it is ordinary text.
"""

from bpe_tokenizer_tools.evaluation.adapters import Adapter, open_tokenizer
from bpe_tokenizer_tools.evaluation.comparison import Comparison, compare
from bpe_tokenizer_tools.evaluation.figures import Evaluation, Vocabulary, evaluate
from bpe_tokenizer_tools.evaluation.measures import Measures, renyi_entropy
from bpe_tokenizer_tools.evaluation.scripts import Allocation
from bpe_tokenizer_tools.evaluation.texts import file_groups, parallel_lines

__all__ = [
    "evaluate",
    "Evaluation",
    "Measures",
    "Vocabulary",
    "Allocation",
    "compare",
    "Comparison",
    "open_tokenizer",
    "Adapter",
    "file_groups",
    "parallel_lines",
    "renyi_entropy",
]
