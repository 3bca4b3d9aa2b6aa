"""Offsets as RoBERTa's kin want them: without the white space at a token's ends."""

from __future__ import annotations

from collections.abc import Sequence


def trim(
    tokens: Sequence[str], offsets: Sequence[tuple[int, int]], keep_prefix_space: bool
) -> list[tuple[int, int]]:
    """Leave white space at a token's ends out of its offsets.

    Args:
        tokens: n tokens in printable form.
        offsets: the (start, end) of each, in characters.
        keep_prefix_space: whether one space before the first token stays.

    Source: tokenizers, src/pre_tokenizers/byte_level.rs, process_offsets.

    >>> trim(["Ġa", "b"], [(0, 2), (2, 3)], False)
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
