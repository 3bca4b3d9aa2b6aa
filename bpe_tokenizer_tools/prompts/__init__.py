"""Prompts: re-encoding after a change, healing the end, canonical ids, cutting into pieces."""

from __future__ import annotations

from bpe_tokenizer_tools.prompts.canonical import (
    Difference,
    differences,
    first_noncanonical,
    is_canonical,
)
from bpe_tokenizer_tools.prompts.chunking import Piece, chunk
from bpe_tokenizer_tools.prompts.completing import complete, heal_ids
from bpe_tokenizer_tools.prompts.drawing import draw_tree
from bpe_tokenizer_tools.prompts.healing import (
    CoveringTree,
    covering_tree,
    heal,
    next_byte_probabilities,
)
from bpe_tokenizer_tools.prompts.sessions import Change, Session, incremental
from bpe_tokenizer_tools.prompts.tokens_by_prefix import TokensByPrefix, trie

__all__ = [
    "Change",
    "CoveringTree",
    "Difference",
    "Piece",
    "Session",
    "TokensByPrefix",
    "chunk",
    "complete",
    "covering_tree",
    "differences",
    "draw_tree",
    "first_noncanonical",
    "heal",
    "heal_ids",
    "incremental",
    "is_canonical",
    "next_byte_probabilities",
    "trie",
]
