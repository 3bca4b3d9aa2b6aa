"""What training stacks ask a tokenizer for by name, whatever its class.

A twin answers: the tokenizer of transformers that `to_transformers` makes.  It's made at the first
question that needs it, kept, and made anew once the tokenizer has changed.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core

_CALLS = (
    *("batch_decode", "get_added_vocab", "get_special_tokens_mask", "num_special_tokens_to_add"),
    *("pad", "save_pretrained"),
)


def ask(tokenizer: BPETokenizer, name: str) -> Any:
    """Return an attribute as its twin has it; raise ImportError if there is no transformers.

    A method needs no twin before it is called, so `hasattr` costs nothing.
    """
    if "transformers" not in sys.modules and importlib.util.find_spec("transformers") is None:
        core.import_optional("transformers", name, "transformers")
    if name in _CALLS:
        return functools.partial(_call, tokenizer, name)
    return getattr(twin(tokenizer), name)


def _call(tokenizer: BPETokenizer, name: str, *args: Any, **options: Any) -> Any:
    return getattr(twin(tokenizer), name)(*args, **options)


def twin(tokenizer: BPETokenizer) -> Any:
    """Return the twin of a tokenizer as it is now."""
    kept = core.derived(tokenizer, _Kept)
    state = tuple(map(dict, core.rest(tokenizer)))
    if kept.state != state:
        from bpe_tokenizer_tools.dropin.transformers import to_transformers

        kept.twin, kept.state = to_transformers(tokenizer), state
    return kept.twin


class _Kept:
    """The twin of a tokenizer as long as that gives the same ids, and all else it is made of."""

    state: tuple[dict[str, Any], ...] | None = None
    twin: Any = None

    def __init__(self, *_: Any) -> None:  # what a tokenizer derives is told of that
        pass
