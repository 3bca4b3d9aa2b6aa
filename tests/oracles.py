"""The libraries that tests compare with: found, or said to be missing."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

import pytest

# What must be here: its absence fails a test that would otherwise be skipped.
REQUIRED = os.environ.get("BPE_TOKENIZER_REQUIRE", "").replace(",", " ").split()


def need(module: str) -> Any:
    """Import an oracle; without it the test is skipped, or fails where it is required."""
    if importlib.util.find_spec(module.split(".")[0]) is None and module not in REQUIRED:
        pytest.skip(f"{module} is not installed", allow_module_level=True)
    return importlib.import_module(module)
