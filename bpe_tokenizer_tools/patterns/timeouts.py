"""How long a pattern may take that a stranger may have written.

`regex` tries all ways to match, and `(?:a|a)+b` has 2^n of them for n letters.  Cutting a million
characters usually takes a tenth of a second.
"""

from __future__ import annotations

from bpe_tokenizer_tools import core


def seconds_for(text: str) -> float:
    """Return after how many seconds of the processor to stop."""
    return core.LEAST_SECONDS + len(text) / 100_000


def too_slow(pattern: str, text: str) -> ValueError:
    """Make the error for a pattern that was stopped."""
    return ValueError(core.TOO_SLOW.format(core.shorten(pattern), len(text)))
