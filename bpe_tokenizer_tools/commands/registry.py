"""The commands of `registry`."""

from __future__ import annotations

import bpe_tokenizer as core

COMMANDS: dict[str, core._Command] = {}
