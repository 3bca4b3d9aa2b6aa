"""`bpe_tokenizer.py` without the tools and without the engine in C, beside the whole library.

A copy of the module by another name is alone: it uses neither. So tests can compare both in one
process. `tests/test_module_alone.py` runs a copy where nothing else can be imported, either.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import Any

import bpe_tokenizer


@functools.cache
def load() -> Any:
    """Return the copy."""
    name = "bpe_tokenizer_alone"
    spec = importlib.util.spec_from_file_location(name, bpe_tokenizer.__file__)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module._WITH_TOOLS and not module.ACCELERATED
    return module
