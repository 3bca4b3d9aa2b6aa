"""Tokenizers of transformers that run on this library's engine.

`patch_transformers()` changes what `from_pretrained` returns from then on: the same class as
before, with `dropin.tokenizers.Tokenizer` as its backend.  `patch_tokenizer` does that to one
tokenizer, and `to_transformers` makes one from a `BPETokenizer`.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.dropin.tokenizers import DecodeStream, Tokenizer, their_stream

_lock = threading.RLock()
_patched: list[tuple[Any, str, Any]] = []  # what was replaced: object, name, and what it was


def patch_tokenizer(tokenizer: Any) -> Any:
    """Put this library's engine under a fast tokenizer of transformers; return the tokenizer.

    A tokenizer that the engine can't represent exactly stays as it is, and a warning says why.
    """
    backend = getattr(tokenizer, "_tokenizer", None)
    library = core.import_optional("tokenizers", "patch_tokenizer", "tokenizers")
    if not isinstance(backend, library.Tokenizer):
        return tokenizer  # a slow one, or already patched
    ours = Tokenizer(backend)
    if ours._current() is None:
        name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        core.warn(f"{name} stays on HuggingFace's engine: {ours.refusal}")
    else:
        tokenizer._tokenizer = ours
    return tokenizer


def to_transformers(tokenizer: BPETokenizer) -> Any:
    """Return a live `PreTrainedTokenizerFast` on this library's engine.

    It has everything that `AutoTokenizer` reads from saved files: roles, named tokens such as
    `image_token`, chat templates, lengths and sides, and a template for `parse_response`.
    """
    library = core.import_optional("transformers", "to_transformers", "transformers")
    with tempfile.TemporaryDirectory() as directory:
        tokenizer.save(directory, verbose=False)
        if not os.path.exists(os.path.join(directory, "tokenizer.json")):
            core.tokenizer_json_of(tokenizer)  # raises: other files hold it
        made = library.PreTrainedTokenizerFast.from_pretrained(directory)
    name = core.rest(tokenizer)[1].get("name") or ""
    made.name_or_path = made.init_kwargs["name_or_path"] = name
    if not isinstance(made._tokenizer, Tokenizer):
        made._tokenizer = Tokenizer(made._tokenizer, copy.copy(tokenizer))
    return made


def patch_transformers() -> None:
    """Put this library's engine under all fast tokenizers that transformers loads from now on.

    Calling it again changes nothing; `unpatch_transformers` undoes it.
    """
    library = core.import_optional("transformers", "patch_transformers", "transformers")
    fast = library.PreTrainedTokenizerFast
    streams = their_stream()
    with _lock:
        if _patched:
            return
        original = vars(fast).get("from_pretrained")

        def from_pretrained(cls: Any, *args: Any, **options: Any) -> Any:
            load = super(fast, cls).from_pretrained
            if original is not None:
                load = original.__get__(None, cls)
            return patch_tokenizer(load(*args, **options))

        _replace(fast, "from_pretrained", classmethod(from_pretrained))
        for module in list(sys.modules.values()):  # modules that have imported the class, too
            if getattr(module, "__dict__", {}).get("DecodeStream") is streams:
                _replace(module, "DecodeStream", DecodeStream)


def _replace(owner: Any, name: str, value: Any) -> None:
    _patched.append((owner, name, vars(owner).get(name)))
    setattr(owner, name, value)


def unpatch_transformers() -> None:
    """Undo `patch_transformers`; tokenizers that were loaded meanwhile stay as they are."""
    with _lock:
        while _patched:
            owner, name, value = _patched.pop()
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


@contextlib.contextmanager
def patched_transformers() -> Iterator[None]:
    """Patch transformers for the duration of a with block."""
    was = bool(_patched)
    patch_transformers()
    try:
        yield
    finally:
        if not was:
            unpatch_transformers()
