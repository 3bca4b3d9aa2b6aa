"""Whether Jinja is installed, for code that also works without it."""

from __future__ import annotations

_OLDEST = (3, 1, 6)  # whose sandbox is safe


def is_usable() -> bool:
    """Return True if jinja2 is installed, in a version whose sandbox is safe."""
    try:
        import jinja2
    except ImportError:
        return False
    return tuple(map(int, jinja2.__version__.split(".")[:3])) >= _OLDEST
