"""Plugins that inference servers call in each of their processes.

vLLM and SGLang import this module and call its functions wherever the package is installed, so it
imports nothing else of the package until a plugin is turned on.
"""

from __future__ import annotations

import logging
import os


def vllm() -> None:
    """Patch transformers if BPE_TOKENIZER_VLLM is "1"; in the group `vllm.general_plugins`."""
    _patch("BPE_TOKENIZER_VLLM")


def sglang() -> None:
    """Patch transformers if BPE_TOKENIZER_SGLANG is "1"; in the group `sglang.srt.plugins`."""
    _patch("BPE_TOKENIZER_SGLANG")


def _patch(variable: str) -> None:
    """Put this library's engine under transformers if a variable asks for it.

    A failure is logged, as a server has to start: warnings could be set to raise.
    """
    if os.environ.get(variable) != "1":
        return
    try:
        from bpe_tokenizer_tools.dropin import patch_transformers

        patch_transformers()
    except Exception as error:
        logging.getLogger(__name__).warning(
            "%s=1 has no effect, tokenizers stay on HuggingFace's engine: %s: %s",
            variable,
            type(error).__name__,
            error,
        )
