"""The module's parser, with more of what people expect from a command line, for all commands.

Each command's help ends with examples; a misspelled command or option gets a suggestion; a
command's main input needs no option; numbers can be written as 32k; and `--color` turns colors on
or off.  The module's own commands load this for every call, so it imports little.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support import colors

# Two for each command.  A list of all commands shows the first ones.
# tests/test_command_line.py runs them, in this order.
EXAMPLES: dict[str, tuple[str, str]] = {
    "train": (
        "train corpus.txt --vocab-size 1k -o mine",
        "train texts/ --pattern o200k --special-tokens '<|endoftext|>' --vocab-size 2k -o other",
    ),
    "encode": ("encode 'Hello, world!' -t mine", "encode --file corpus.txt -t mine --json"),
    "decode": ("decode 72 101 108 108 111 -t mine", "decode - -t mine < ids.txt"),
    "info": ("info mine", "info mine --sample-text 'Grüße' --json"),
    "chat": (
        "chat --model model.gguf",
        "chat --model model.gguf --message 'Hello!' --max-tokens 100",
    ),
    "chunk": (
        "chunk corpus.txt --tokens 512 --overlap 64 -t mine --jsonl",
        "chunk - --boundary paragraph -t mine < corpus.txt",
    ),
    "tokens": ("tokens corpus.txt texts/ -t mine", "tokens - -t mine --limit 8k < corpus.txt"),
    "check": ("check mine", "check mine --json"),
    "convert": ("convert mine mine.json", "convert mine ranks.tiktoken --without-normalizer"),
    "doctor": ("doctor model", "doctor model --limit 5 --csv doctor.csv"),
    "evaluate": (
        "evaluate mine other --texts texts/",
        "evaluate mine o200k_base --texts prose=corpus.txt --csv figures.csv",
    ),
    "compare": (
        "compare mine other --texts corpus.txt",
        "compare mine other --text 'Hello, world!'",
    ),
    "sweep": (
        "sweep corpus.txt --sizes 400 500",
        "sweep texts/ --held-out corpus.txt --sizes 400 500 --width 64 --parameters 1M -o best",
    ),
    "extend": (
        "extend model --corpus texts/ --add 20 -o extended",
        "extend mine --tokens naïve 東京 -o with-words",
    ),
    "prune": (
        "prune other --corpus corpus.txt --vocab-size 500 -o pruned",
        "prune other --corpus corpus.txt --min-count 2 --keep at -o rare-removed",
    ),
    "align": ("align mine other --text 'Hello, world!'", "align mine other --text Hi --json"),
    "adapt": (
        "adapt model -t extended -o adapted",
        "adapt model -t extended --init mean --pad-to-multiple-of 64 -o padded",
    ),
    "corpus": ("corpus recipe.toml --dry-run", "corpus recipe.toml -o drawn.jsonl --seed 7"),
    "count": ("count texts/ -o texts.counts", "count 'texts/*.txt' -o some.counts --pattern o200k"),
    "pack": ("pack texts/ -t other -o packed", "pack texts/ -t mine --no-eot -o packed-mine"),
    "pipeline": ("pipeline pipeline.toml --dry-run", "pipeline pipeline.toml --until count"),
    "register": (
        "register mine web --registry registry",
        "register other code --registry registry --metadata owner=me",
    ),
    "list": ("list --registry registry", "list web --registry registry --check"),
    "show": ("show web --registry registry", "show code --registry registry --json"),
    "load": ("load web --registry registry -o copy", "load code -o copy-2 --registry registry"),
    "diff": ("diff web code --registry registry", "diff web code --registry registry --json"),
    "view": ("view 'Hello, world!' -t mine", "view --file corpus.txt -t mine --html page.html"),
    "trace": ("trace 'Hello, world!' -t mine", "trace Hello -t mine --html steps.html"),
    "learn": ("learn corpus.txt", "learn corpus.txt --vocab-size 2k --pattern o200k"),
    "completion": ("completion bash > bpe-tokenizer.bash", "completion zsh > _bpe-tokenizer"),
}

# Command -> the option whose value can also be a positional argument.
_BY_PLACE = {
    "train": "--corpus",
    "encode": "--text",
    "decode": "--ids",
    "info": "--tokenizer",
    "sweep": "--corpus",
}
_TEXT = ("encode", "view", "trace")  # the commands that take a text, by its place or as --text

_UNITS: dict[str, int] = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_UNITS.update({"ki": 2**10, "mi": 2**20})


def read_number(text: str) -> int:
    """Read a number as people write sizes.

    >>> read_number("32k"), read_number("1.5B"), read_number("50,257"), read_number("64Ki")
    (32000, 1500000000, 50257, 65536)
    """
    found = re.fullmatch(r"(\d[\d,_]*)(\.\d+)?\s*([kmbgt]|ki|mi|)", text.strip().lower())
    unit: int = _UNITS[found[3]] if found else 1
    decimals = found[2] or "." if found else "."
    fraction, rest = divmod(int(decimals[1:] or 0) * unit, int(10 ** (len(decimals) - 1)))
    if found is None or rest:
        raise ValueError(f"expected a number such as 32000, 32k or 124M, got {core.shorten(text)}")
    return int(re.sub("[,_]", "", found[1])) * unit + fraction


def _number(text: str) -> int:
    try:
        return int(text) if text.startswith("-") else read_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _transition(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text) if text.startswith("-") else read_number(text)
    except ValueError:
        problem = f"expected a vocabulary size or 'auto', got {core.shorten(text)}"
        raise argparse.ArgumentTypeError(problem) from None


def _limit(text: str) -> int | str:
    return text if text == "none" else _number(text)


def check_least(option: str, value: int | None, least: int) -> None:
    """Refuse a number that is too small, by the name of its option."""
    if value is not None and value < least:
        raise core.UsageError(f"argument {option}: expected {least} or more, got {value}")


def corpus_options(add: Callable[..., Any]) -> None:
    """Add the options on how a corpus is read."""
    workers = "number of parallel workers; default: one per core"
    add("--num-workers", type=int, metavar="N", help=workers)
    add("--text-field", default="text", metavar="NAME", help="field or column of the text")


def superword_options(add: Callable[..., Any], what: str) -> None:
    """Add --superwords, and an option for each other field of `Superwords`."""
    add("--superwords", type=_transition, metavar="N", help=what)
    rule = "how superwords join words (default: superbpe; boundless with --superwords auto)"
    add("--superword-rule", choices=("superbpe", "boundless"), help=rule)
    pattern = "split pattern for superwords, instead of the rule's"
    add("--superword-pattern", metavar="NAME", help=pattern)
    words = "the most words in a superword, or 'none' (default: 4)"
    add("--superword-max-words", type=_limit, metavar="N", help=words)
    never = "texts that no superword contains (default: ': ')"
    add("--superword-never", nargs="*", metavar="TEXT", help=never)


def superwords_of(options: argparse.Namespace) -> dict[str, Any] | None:
    """Return what the options of `superword_options` say, as `Superwords` takes it."""
    fields = ("rule", "pattern", "max_words", "never")
    read = {field: getattr(options, f"superword_{field}") for field in fields}
    given = {field: value for field, value in read.items() if value is not None}
    if options.superwords is None:
        if given:
            name = next(iter(given)).replace("_", "-")
            raise core.UsageError(f"--superword-{name} goes with --superwords")
        return None
    if given.get("max_words") == "none":
        given["max_words"] = None
    usual = {"rule": "boundless"} if options.superwords == "auto" else {}
    return {"transition": options.superwords, **usual, **given}


class _Color(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        colors.choose(values)


class Parser(core.Parser):
    """The parser of all commands, or of one."""

    _given: Sequence[str] = ()  # the arguments being parsed

    @property
    def _command(self) -> str:
        return self.prog.partition(" ")[2]

    def add_argument(self, *names: Any, **how: Any) -> Any:
        """Add an argument, and what goes with it."""
        if how.get("type") is int:
            how["type"] = _number
        if "--quiet" in names:
            text = "whether to use colors (default: auto, only at a terminal)"
            choices = ("auto", "always", "never")
            self.add_argument("--color", action=_Color, choices=choices, help=text)
        if _BY_PLACE.get(self._command) in names:
            return self._add_by_place_too(*names, **how)
        return super().add_argument(*names, **how)

    def _add_by_place_too(self, *names: str, **how: Any) -> Any:
        group = self.add_mutually_exclusive_group(required=how.pop("required", False))
        dest = names[-1].removeprefix("--")
        several = "nargs" in how
        place = {"metavar": how.get("metavar", dest.upper()), "nargs": "*" if several else "?"}
        # Without a positional argument, the default must not replace the option's value.
        group.add_argument(dest, **{**how, **place, "default": argparse.SUPPRESS})
        return group.add_argument(*names, **{**how, "help": f"the same as {place['metavar']}"})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse arguments; report unknown ones once the command is known."""
        self._given = list(args or ())
        if not self._command:
            colors.choose("auto")
        found, rest = super().parse_known_args(args, namespace)
        takes_text = self._command in _TEXT
        if rest:
            hint = {"chat": "; pass what to say as --message"}.get(self._command, "")
            hint = "; put a text of several words in quotes" if takes_text else hint
            hint = "" if any(word.startswith("-") for word in rest) else hint
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
        text = getattr(found, "text", None) if takes_text else None
        if text != "-" and text is not None and os.path.isfile(text):
            problem = f"{text} is read as text, though a file has that name"
            core.tell("warning", f"{problem}; --file reads the file")
        return found, rest

    def error(self, message: str) -> Any:
        """Exit with an error, and a suggestion if something was misspelled."""
        found = re.search(r"argument COMMAND: invalid choice: '([^']*)'", message)
        if found:
            known = [*EXAMPLES, *self._option_string_actions]
            close = difflib.get_close_matches(found[1], known, 1)
            message = found[0] if close else message
        else:
            own = bool(self._command) or message.endswith("required: COMMAND")
            close = self._options_like_those_given() if own else []
            if not self._command and self._given and self._given[0] in EXAMPLES:
                self.prog += f" {self._given[0]}"  # what is wrong was found when it ran
        hint = f"; did you mean {close[0]!r}?" if close else ""
        if not close and re.search("-t/--tokenizer.* required|required: .*-t/--tok", message):
            hint = "; a tokenizer is a directory, a file, or a name such as o200k_base"
        super().error(message + hint)

    def _options_like_those_given(self) -> list[str]:
        known = [name for name in self._option_string_actions if name.startswith("--")]
        words = [str(word).partition("=")[0] for word in self._given]
        unknown = [word for word in words if word.startswith("--") and word not in known]
        return [close for word in unknown for close in difflib.get_close_matches(word, known, 1)]

    def format_help(self) -> str:
        """Return the help, with examples at its end."""
        firsts = [first for first, _ in EXAMPLES.values()]
        examples = EXAMPLES.get(self._command, firsts if not self._command else ())
        lines = "".join(f"  {core.PROGRAM} {example}\n" for example in examples)
        return super().format_help() + (f"\nexamples:\n{lines}" if lines else "")
