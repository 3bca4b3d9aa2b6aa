"""The command `info`, with more facts than the module alone shows."""

from __future__ import annotations

import argparse
from typing import Any

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core

_TEXT, _RUN, _ADD_OPTIONS = core.COMMANDS["info"]


def _more(tokenizer: BPETokenizer) -> dict[str, Any]:
    known = sorted(core.tokens(tokenizer))
    first, last = known[:5], known[-5:]
    return {
        "has_chat_template": bool(tokenizer.chat_templates),
        "chat_templates": list(tokenizer.chat_templates),
        "truncation": core.settings(tokenizer).get("truncation"),
        "padding": core.settings(tokenizer).get("padding"),
        "fingerprint": tokenizer.fingerprint,
        "accelerated": bpe_tokenizer.ACCELERATED,
        "first_tokens": dict(zip(first, tokenizer.convert_ids_to_tokens(first))),
        "last_tokens": dict(zip(last, tokenizer.convert_ids_to_tokens(last))),
    }


def _cmd_info(options: argparse.Namespace) -> int | None:
    return _RUN(options, more=_more)


COMMANDS: dict[str, core.Command] = {"info": (_TEXT, _cmd_info, _ADD_OPTIONS)}
