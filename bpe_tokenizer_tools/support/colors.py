"""Whether output is colored: what the user chose, the environment, and where the output goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

_chosen = "auto"


def choose(color: str) -> None:
    """Set the choice for this process: "auto", "always" or "never"."""
    global _chosen
    _chosen = color


def has_colors(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return True if a stream gets colors: by default, at a terminal (see no-color.org)."""
    if _chosen != "auto":
        return _chosen == "always"
    able = environment.get("TERM", "dumb") != "dumb"
    return able and not environment.get("NO_COLOR") and stream.isatty()


def refused() -> bool:
    """Return True if the user turned colors off."""
    return _chosen == "never"
