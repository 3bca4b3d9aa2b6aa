"""Offsets as RoBERTa's kin want them: without the white space at a token's ends."""

from __future__ import annotations

from collections.abc import Sequence

from bpe_tokenizer import BPETokenizer

_Span = tuple[int, int]


def trim(
    tokenizer: BPETokenizer, text: str, ids: Sequence[int], offsets: Sequence[_Span]
) -> list[_Span]:
    """Leave white space at a token's ends out of its offsets, as a tokenizer's definition asks.

    Args:
        tokenizer: whose `definition` says whether one space before the first token stays.
        text: what was encoded.
        ids: n ids.
        offsets: the (start, end) of each, in characters.
    """
    added = {token.id for token in tokenizer.added_tokens}
    written = [  # what each stands for, white space taken in included
        text[slice(*place)] if id_ in added else token
        for id_, place, token in zip(ids, offsets, tokenizer.convert_ids_to_tokens(list(ids)))
    ]
    return trim_tokens(written, offsets, tokenizer.definition.keep_prefix_space)


def trim_tokens(
    tokens: Sequence[str], offsets: Sequence[_Span], keep_prefix_space: bool
) -> list[_Span]:
    """Leave white space at the ends of printable tokens out of their offsets.

    Source: tokenizers, src/pre_tokenizers/byte_level.rs, process_offsets.

    >>> trim_tokens(["Ġa", "b"], [(0, 2), (2, 3)], False)
    [(1, 2), (2, 3)]
    """
    trimmed = []
    for i, (token, (start, end)) in enumerate(zip(tokens, offsets)):
        visible = token.replace("Ġ", " ")
        leading = len(visible) - len(visible.lstrip())
        trailing = len(visible) - len(visible.rstrip())
        if leading == 1 and keep_prefix_space and (i == 0 or start == 0):
            leading = 0  # the space that was put there has no place in the text
        new_start = min(start + leading, end)
        trimmed.append((new_start, max(end - trailing, new_start) if end >= trailing else end))
    return trimmed
