"""More commands for the command line of bpe_tokenizer, one module for those on one subject.

`COMMANDS`, here and in each, has the shape of the core's own table: name -> (help, run, options).
All of these modules are imported for every command: what only one needs is imported where it runs.
"""

from __future__ import annotations

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.commands import (
    adapting,
    basic,
    checking,
    chunking,
    completing,
    corpora,
    counting,
    evaluation,
    showing,
    vocabularies,
    workflow,
)

_MODULES = (
    basic,
    counting,
    checking,
    evaluation,
    vocabularies,
    adapting,
    corpora,
    workflow,
    showing,
    chunking,
    completing,
)

COMMANDS: dict[str, core.Command] = {
    name: command for module in _MODULES for name, command in module.COMMANDS.items()
}
