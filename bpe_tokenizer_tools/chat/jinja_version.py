"""Whether Jinja is installed, for code that also works without it."""

from __future__ import annotations

from bpe_tokenizer_tools import core


def is_usable() -> bool:
    """Return True if jinja2 is installed, in a version whose sandbox is safe."""
    try:
        import jinja2
    except ImportError:
        return False
    return bool(core.has_safe_sandbox(jinja2))
