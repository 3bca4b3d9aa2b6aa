"""The command `completion`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from bpe_tokenizer_tools import core

_SHELLS = ("bash", "zsh", "tcsh")
# The metavars of arguments that name a file or a directory.
_PATHS = {"A", "B", "DIR", "FILE", "IN", "MODEL", "NAME=PATH", "NEW", "OLD", "OUT", "PATH"}
_PATHS |= {"RECIPE", "TOKENIZER"}


def _completion_options(add: Callable[..., Any]) -> None:
    add("shell", choices=_SHELLS, metavar="SHELL", help=f"one of {', '.join(_SHELLS)}")


def _cmd_completion(options: argparse.Namespace) -> None:
    package = "shtab"
    shtab = core.import_optional("shtab", "completion, by shtab,", package)
    parser = core.build_parser()
    (found,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    for command in found.choices.values():
        for action in command._actions:
            if action.metavar in _PATHS:
                action.complete = shtab.FILE  # it completes directories, too
    script = shtab.complete(parser, options.shell)
    print(json.dumps({"script": script}) if options.json else script)


COMMANDS: dict[str, core.Command] = {
    "completion": (
        "Print a script that lets a shell complete commands and options.",
        _cmd_completion,
        _completion_options,
    ),
}
