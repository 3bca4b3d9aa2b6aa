"""Attributes and methods that training libraries expect of a tokenizer, whatever its class.

They come from a twin: the tokenizer of transformers that `to_transformers` makes.  The twin is made
when it is first needed, and made again after the tokenizer changes.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import sys
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core

_CALLS = (
    *("batch_decode", "get_added_vocab", "get_special_tokens_mask", "num_special_tokens_to_add"),
    "pad",
)
# Options of a call: those of transformers alone, those of both libraries, and ours alone.
_NEW = {
    *("text_pair", "is_split_into_words", "stride", "return_overflowing_tokens", "return_length"),
    *("return_attention_mask", "return_offsets_mapping", "return_special_tokens_mask"),
    "return_token_type_ids",
}
_OPTIONS = _NEW | {
    *("add_special_tokens", "allowed_special", "max_length", "pad_to_multiple_of", "padding"),
    *("padding_side", "return_tensors", "truncation"),
}
_OWN = {"disallowed_special", "return_offsets", "truncation_side"}


def ask(tokenizer: BPETokenizer, name: str) -> Any:
    """Return an attribute of the twin; raise ImportError if transformers is not installed.

    A method makes no twin before it is called, so `hasattr` costs nothing.
    """
    if "transformers" not in sys.modules and importlib.util.find_spec("transformers") is None:
        core.import_optional("transformers", name, "transformers")
    if name == "save_pretrained":
        return functools.partial(_save, tokenizer)
    if name in _CALLS:
        return functools.partial(_call, tokenizer, name)
    return getattr(twin(tokenizer), name)


def _save(tokenizer: BPETokenizer, *args: Any, **options: Any) -> Any:
    """Save as transformers does; others load that, so it adds what others add."""
    from bpe_tokenizer_tools.dropin.transformers import to_transformers

    return to_transformers(tokenizer).save_pretrained(*args, **options)


def _call(tokenizer: BPETokenizer, name: str, *args: Any, **options: Any) -> Any:
    return getattr(twin(tokenizer), name)(*args, **options)


def call(
    tokenizer: BPETokenizer,
    text: Any,
    *pair: Any,
    add_special_tokens: bool = False,
    allowed_special: str = "none",
    **options: Any,
) -> Any:
    """Encode texts, or pairs of them, as transformers does, but with this library's defaults.

    Special tokens in a text are text unless `allowed_special` is "all", and none are added unless
    asked for.
    """
    if len(pair) > 1 or any(not isinstance(each, (str, list, tuple)) for each in pair):
        remedy = "name options, such as add_special_tokens=True"
        raise TypeError(f"text_pair must be a str or a list of them, got {pair!r:.80}; {remedy}")
    choices = _OPTIONS if pair or options.keys() & _NEW else _OPTIONS | _OWN
    if unknown := options.keys() - _OPTIONS:
        got, expected = ", ".join(sorted(unknown)), ", ".join(sorted(choices))
        raise TypeError(f"unknown options: {got}; expected some of {expected}")
    if allowed_special not in ("none", "all"):
        raise ValueError(
            f"for pairs, allowed_special must be 'none' or 'all', got {allowed_special!r}"
        )
    core.import_optional("transformers", "a pair of texts, or such an option,", "transformers")
    if not isinstance(text, (str, list, tuple)):
        text = list(text)
    options |= {"add_special_tokens": add_special_tokens}
    return twin(tokenizer)(text, *pair, split_special_tokens=allowed_special == "none", **options)


def twin(tokenizer: BPETokenizer) -> Any:
    """Return the twin of a tokenizer as it is now.

    It puts around a text what the tokenizer does, even if other libraries add less.
    """
    kept = core.derived(tokenizer, _Kept)
    state = tuple(map(dict, core.rest(tokenizer)))
    if kept.state != state:
        from bpe_tokenizer_tools.dropin.transformers import to_transformers

        same = tokenizer
        if tokenizer.definition.template == "default":
            chosen = dataclasses.replace(tokenizer.definition, template="bos+eos")
            same = core.remade(tokenizer, chosen)
        kept.twin, kept.state = to_transformers(same), state
    return kept.twin


class _Kept:
    """The twin of a tokenizer, while its ids stay the same, and the state it was made from."""

    state: tuple[dict[str, Any], ...] | None = None
    twin: Any = None

    def __init__(self, *_: Any) -> None:  # `core.derived` passes an encoder and a definition
        pass
