"""The commands of `view`."""

from __future__ import annotations

import bpe_tokenizer as core

COMMANDS: dict[str, core._Command] = {}
