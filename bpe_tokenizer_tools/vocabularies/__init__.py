"""Changing a vocabulary: adding tokens, removing tokens, and comparing two vocabularies."""

from __future__ import annotations

from bpe_tokenizer_tools.vocabularies.aligning import Block, Intersection, align, intersection
from bpe_tokenizer_tools.vocabularies.extending import ExtensionReport, Measured, extend
from bpe_tokenizer_tools.vocabularies.pruning import Pruned, prune

__all__ = [
    "Block",
    "ExtensionReport",
    "Intersection",
    "Measured",
    "Pruned",
    "align",
    "extend",
    "intersection",
    "prune",
]
