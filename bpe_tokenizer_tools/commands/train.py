"""The command `train`, with what the module alone lacks: SentencePiece's style, ties and more."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from bpe_tokenizer_tools import core

_TEXT, _RUN, _ADD_OPTIONS = core.COMMANDS["train"]


def _train_options(add: Callable[..., Any]) -> None:
    _ADD_OPTIONS(add)
    around = "tokens that --add-special-tokens puts around a text, if the tokenizer has them"
    add("--surround", choices=core.SURROUND, default="bos+eos", help=around)
    add("--max-token-length", type=int, metavar="N", help="maximum token length in bytes")
    ties = "huggingface", "greatest", "first"
    add("--ties", choices=ties, default=ties[0], help="which of equally frequent pairs to merge")
    form = "what merges start from: bytes, or characters with ▁ for a space"
    add("--style", choices=("byte-level", "sentencepiece"), default="byte-level", help=form)
    fallback = "with sentencepiece: characters without a token become bytes, not <unk>"
    add("--byte-fallback", action=argparse.BooleanOptionalAction, help=fallback)
    coverage = "with sentencepiece: share of text whose characters get tokens (default: 0.9995)"
    add("--character-coverage", type=float, metavar="X", help=coverage)


def _cmd_train(options: argparse.Namespace) -> int | None:
    if options.pattern and options.style == "sentencepiece":
        raise core.UsageError("--style sentencepiece cuts text at spaces and takes no --pattern")
    names = ["style", "ties", "byte_fallback", "character_coverage", "surround", "max_token_length"]
    return _RUN(options, **{name: getattr(options, name) for name in names})


COMMANDS: dict[str, core.Command] = {"train": (_TEXT, _cmd_train, _train_options)}
