"""Text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bpe_tokenizer_tools import core


def joined(lines: Iterable[str], size: int = 2**12) -> Iterator[str]:
    """Join short pieces into blocks: preparing one costs as much as hundreds of tokens."""
    held = ""
    for line in lines:
        core.utf8_length(line)  # checks it
        held += line
        if len(held) >= size:
            yield held
            held = ""
    yield held
