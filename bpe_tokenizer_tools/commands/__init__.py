"""More commands for the command line of bpe_tokenizer, one module per subject.

`COMMANDS`, here and in each module, has the form of the core's own table: name -> (help, run,
options).  Every command imports all of these modules, so a module imports what only one command
needs where that command runs.
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
