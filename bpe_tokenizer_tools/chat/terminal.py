"""The command `chat`: talk to a model in a terminal, or through a pipe.

The model's text goes to stdout as it comes, everything else to stderr.  A model may write
anything, so its control characters never reach a terminal: they could move the cursor,
rename the window, or type on the user's behalf.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.support.colors import has_colors
from bpe_tokenizer_tools.support.text import counted, shortened, visible

if TYPE_CHECKING:
    from bpe_tokenizer_tools.chat.conversation import Turn
    from bpe_tokenizer_tools.chat.session import Session

_ASK, _GO_ON = ">", "..."
_DIM, _PLAIN = "\033[2m", "\033[0m"

_COMMANDS = {  # name -> (what goes with it, what it does)
    "help": ("", "list the commands"),
    "system": ("TEXT", "set the system prompt; without TEXT, show it"),
    "reset": ("", "start over, with the same system prompt"),
    "undo": ("", "remove the last question and its answer"),
    "save": ("FILE", "write the conversation as JSON"),
    "tokens": ("", "show how many tokens each message takes"),
    "quit": ("", "leave; so does Ctrl-D, or quit or exit on its own line"),
}
_GOODBYE = ("quit", "exit")
_HINTS = """\
A line that ends in a backslash continues on the next line.
Everything between \"\"\" and \"\"\" is one message.
To begin a message with a slash, type two slashes.
Ctrl-C stops an answer; the part already shown stays."""


# -- What a terminal is shown ---------------------------------------------------


# -- What is typed ----------------------------------------------------------------


class Entry(NamedTuple):
    """A user's input; if quoted, it is never a command."""

    text: str
    quoted: bool = False


def read_entry(line: Callable[[str], str]) -> Entry:
    r"""Read a message or command, which may have several lines.

    `line` prints its argument as a prompt, and returns the next line.

    >>> lines = iter(["one \\", "two"])
    >>> read_entry(lambda prompt: next(lines))
    Entry(text='one \ntwo', quoted=False)
    """
    text = line(_ASK)
    if text.startswith('"""'):
        text = text[3:]
        while not text.rstrip().endswith('"""'):
            text += "\n" + line(_GO_ON)
        return Entry(text.rstrip()[:-3].strip("\n"), quoted=True)
    while text.endswith("\\"):
        text = text[:-1] + "\n" + line(_GO_ON)
    return Entry(text)


def line_reader(environment: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that shows a prompt and returns the line typed.

    With prompt_toolkit, lines are edited, and remembered for the next time.  Without it, `input`
    reads them, which Python's readline, if it has one, gives editing and a history.

    The function raises EOFError on Ctrl-D and KeyboardInterrupt on Ctrl-C.
    """
    if not sys.stdout.isatty():  # a prompt there would become part of the output
        return _line_asked_on_stderr
    if (editor := _editor(environment)) is None:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - changes what input() does
        return lambda prompt: input(f"{prompt} ")
    style = "bold" if has_colors(sys.stdout, environment) else ""
    return lambda prompt: str(editor.prompt([(style, prompt), ("", " ")], reserve_space_for_menu=0))


def _line_asked_on_stderr(prompt: str) -> str:
    print(f"{prompt} ", end="", file=sys.stderr, flush=True)
    return input()


def _editor(environment: Mapping[str, str]) -> Any:
    """Return prompt_toolkit's editor; None without it, or where its escape sequences would show."""
    if environment.get("TERM") == "dumb":
        return None
    try:
        from prompt_toolkit import PromptSession
    except ImportError:
        return None
    return PromptSession(history=_history(environment), enable_suspend=True)


def _history(environment: Mapping[str, str]) -> Any:
    """Return prompt_toolkit's history, in a file that only its owner can read, if possible."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    folder = environment.get("XDG_STATE_HOME", "")  # specifications.freedesktop.org/basedir-spec
    if not os.path.isabs(folder):
        folder = os.path.expanduser("~/.local/state")
    path = Path(folder, "bpe-tokenizer", "chat_history")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    history: Any = FileHistory(str(path))
    write = history.store_string

    def store(line: str) -> None:
        """Write a line; an error would end the prompt that it was typed at."""
        with contextlib.suppress(OSError, UnicodeError):
            write(line)

    history.store_string = store
    return history


# -- Ctrl-C -----------------------------------------------------------------------


@contextlib.contextmanager
def one_interrupt() -> Iterator[None]:
    """Let one Ctrl-C through; ignore others, so that the first can be handled undisturbed."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets any
        return

    def interrupt(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    usual = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


# -- The conversation ---------------------------------------------------------------


class Console:
    """A session with a model, and where to show what happens in it.

    `options` are for each call of the session's `reply`.  `interactive`: whether a person types,
    who can give commands.  With `as_json`, each answer is a JSON object, shown when it is complete;
    `quiet` only shows answers, errors and what a command asks for.
    """

    def __init__(
        self,
        session: Session,
        options: Mapping[str, Any],
        *,
        interactive: bool,
        as_json: bool = False,
        quiet: bool = False,
        out: TextIO,
        err: TextIO,
        environment: Mapping[str, str],
    ) -> None:
        self.session, self.options = session, options
        self.interactive, self.as_json, self.quiet = interactive, as_json, quiet
        self.out, self.err = out, err
        self._guarded = out.isatty()
        self._dim, self._plain = (_DIM, _PLAIN) if has_colors(err, environment) else ("", "")

    def tell(self, text: str) -> None:
        """Show something that is not the model's answer."""
        print(visible(text), file=self.err, flush=True)

    def _mention(self, text: str) -> None:
        """Show something that `quiet` hides."""
        if not self.quiet:
            print(f"{self._dim}{visible(text)}{self._plain}", file=self.err, flush=True)

    def greet(self) -> None:
        """Show which model this is."""
        model = self.session.model
        context = f"{model.context:,} tokens" if model.context else "of unknown size"
        more = "; /help lists the commands" if self.interactive else ""
        self._mention(f"{model.path.name}: {model.name} on {model.device}, context {context}{more}")

    # -- Answers ---

    def answer(self, content: str) -> None:
        """Show the model's answer; `Session.reply` decides which part of it is kept."""
        talk = self.session.conversation
        rewrites, pieces = len(talk.rewrites), None
        try:
            pieces = self.session.reply(content, **self.options)
            if len(talk.rewrites) > rewrites:
                kept = talk.rewrites[-1].kept
                self._mention(
                    "the template now renders the earlier turns differently; the first "
                    f"{kept:,} tokens are as before"
                )
            for piece in pieces:
                if not self.as_json:
                    self.out.write(visible(piece) if self._guarded else piece)
                    self.out.flush()
        except BaseException:
            if pieces is not None:
                pieces.close()  # type: ignore[attr-defined]
            raise
        finally:
            if pieces is not None:
                self._end_answer()

    def _end_answer(self) -> None:
        last = self.session.last
        if self.as_json:
            self.out.write(json.dumps(self._facts()) + "\n")
        elif not last.text.endswith("\n"):
            self.out.write("\n")
        self.out.flush()
        context = self.session.model.context
        used = last.prompt_tokens + last.new_tokens
        end = ""
        if last.finish == "cancelled":
            end = "; stopped"
        elif context and used >= context:
            end = f"; the context is full{self._advice()}"
        elif last.finish == "length":
            end = "; cut off at --max-tokens"
        whole = f" of {context:,}" if context else ""
        said = f"{counted(last.new_tokens, 'token')}, {last.tokens_per_second:,.1f} a second"
        self._mention(f"{said}; context {used:,}{whole}{end}")

    def _advice(self) -> str:
        if not self.interactive:
            return ""
        return ": /undo removes the last question, /reset all of it; or use a larger --n-ctx"

    def _facts(self) -> dict[str, Any]:
        last, model = self.session.last, self.session.model
        return {
            "text": last.text,
            "prompt_tokens": last.prompt_tokens,
            "new_tokens": last.new_tokens,
            "tokens_per_second": round(last.tokens_per_second, 2),
            "finish": last.finish,
            "model": str(model.path),
            "backend": model.name,
        }

    # -- Commands ---

    def take(self, entry: Entry) -> bool:
        """Answer a message or run a command; return whether to continue."""
        text = entry.text
        try:
            with one_interrupt():
                if not entry.quoted and text.strip(" \t") in _GOODBYE:
                    return False
                if not entry.quoted and text.startswith("/") and not text.startswith("//"):
                    return self._command(text)
                if text.strip():
                    slashed = text.startswith("//") and not entry.quoted
                    self.answer(text[1:] if slashed else text)
        except KeyboardInterrupt:
            pass
        except OSError:  # nobody reads the output anymore
            raise
        except Exception as error:  # the next question may succeed
            full = self.session.last.prompt_tokens >= (self.session.model.context or float("inf"))
            self.tell(f"error: {core.one_line(error)}{self._advice() if full else ''}")
        return True

    def _command(self, text: str) -> bool:
        name, _, rest = text[1:].partition(" ")
        rest = rest.strip()
        takes = _COMMANDS.get(name.rstrip(), (None,))[0]
        if takes is None:
            names = " ".join(f"/{known}" for known in _COMMANDS)
            self.tell(f"unknown command /{name}; commands: {names}; to say it, begin with //")
        elif rest and not takes:
            self.tell(f"/{name} takes no text, got {rest!r:.60}")
        elif name == "quit":
            return False
        else:
            getattr(self, f"_do_{name.rstrip()}")(*([rest] if takes else []))
        return True

    def _do_help(self) -> None:
        for name, (takes, what) in _COMMANDS.items():
            self.tell(f"/{f'{name} {takes}':<14} {what}")
        self.tell(_HINTS)

    def _do_system(self, text: str) -> None:
        talk = self.session.conversation
        own = [message for message in talk.messages[:1] if message["role"] == "system"]
        if not text:
            self.tell(str(own[0]["content"]) if own else "there is no system prompt")
            return
        rest = talk.messages[len(own) :]
        talk.reset()  # so that everything is encoded again
        talk.messages.clear()
        talk.extend([{"role": "system", "content": text}, *rest])
        self.tell("the system prompt is set" + ("; the conversation continues" if rest else ""))

    def _do_reset(self) -> None:
        self.session.conversation.reset()
        left = self.session.conversation.messages
        self.tell("the conversation starts over" + (", with its system prompt" if left else ""))

    def _do_undo(self) -> None:
        taken = self.session.conversation.undo()
        self.tell(f"removed: {_beginning(taken[0])}" if taken else "there is nothing to undo")

    def _do_save(self, name: str) -> None:
        path = Path(os.path.expanduser(name))
        if not name:
            self.tell("expected a file: /save FILE")
        elif os.path.lexists(path):
            self.tell(f"{path} already exists; /save only writes new files")
        else:
            messages = self.session.conversation.messages
            text = json.dumps({"messages": messages}, ensure_ascii=False, indent=2) + "\n"
            try:
                core.write_files({path: text.encode("utf-8", "backslashreplace")})
            except OSError as error:
                self.tell(f"error: {path}: {error.strerror or error}")
            else:
                self.tell(f"{len(messages)} messages saved to {path}")

    def _do_tokens(self) -> None:
        talk, context = self.session.conversation, self.session.model.context
        turns = self._turns()
        for i, (turn, message) in enumerate(zip(turns, talk.messages), 1):
            self.tell(f"{i:>3}  {turn.role:<10}{turn.tokens:>8,}  {_beginning(message)}")
        of = f" of {context:,}" if context else ""
        self.tell(f"     {'sum':<10}{sum(turn.tokens for turn in turns):>8,}{of}")

    def _turns(self) -> list[Turn]:
        """Return the tokens of each message, including those the model has not seen yet."""
        talk = self.session.conversation
        if len(talk.turns) == len(talk.messages):
            return talk.turns
        spare = copy.copy(talk)
        spare.reset()  # from here they share nothing
        spare.messages = list(talk.messages)
        spare.prompt()
        return spare.turns[:-1]  # without the prompt for an answer


def _beginning(message: Mapping[str, Any]) -> str:
    return shortened(" ".join(str(message.get("content", "")).split()), 50)


# -- All of it ----------------------------------------------------------------------


def converse(console: Console, line: Callable[[str], str]) -> None:
    """Read a user's input until it is complete.

    `line` prints its argument as a prompt, and returns the next line.
    """
    interrupted = False
    while True:
        try:
            entry = read_entry(line)
        except EOFError:
            console.tell("")
            return
        except KeyboardInterrupt:
            if interrupted:
                console.tell("")
                return
            console.tell("\n(Ctrl-C again, Ctrl-D or quit leaves)")
            interrupted = True
        except UnicodeDecodeError as error:
            console.tell(f"error: the line is not {error.encoding}")
        else:
            interrupted = False
            if not console.take(entry):
                return


def read_lines(stream: TextIO, quiet: bool = False) -> Iterator[str]:
    """Yield the lines of standard input until one that quits, each at once; no empty ones.

    Unless `quiet`, warn about lines that would be commands at a terminal.
    """
    for number, line in enumerate(iter(stream.buffer.readline, b""), 1):
        try:
            text = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"standard input, line {number}: not UTF-8: {error}") from None
        if text.strip() in (*_GOODBYE, "/quit"):
            return
        if not quiet and text.startswith("/") and text[1:].partition(" ")[0] in _COMMANDS:
            problem = f"line {number}: {shortened(text, 50)} goes to the model as text"
            core.tell("warning", f"standard input, {problem}; commands work only at a terminal")
        if text.strip():
            yield text


def run(
    session: Session, options: Mapping[str, Any], message: str | None, as_json: bool, quiet: bool
) -> None:
    """Chat: with one message, with the lines of standard input, or with a person at the terminal.

    `options` are for `Session.reply`; a `message` of None reads standard input.  With `as_json`,
    each answer is a JSON object; `quiet` prints answers and errors only.
    """
    interactive = message is None and sys.stdin.isatty()
    console = Console(
        session,
        options,
        interactive=interactive,
        as_json=as_json,
        quiet=quiet,
        out=sys.stdout,
        err=sys.stderr,
        environment=os.environ,
    )
    console.greet()
    if interactive:
        converse(console, line_reader(os.environ))
        return
    messages: Iterable[str] = read_lines(sys.stdin, quiet) if message is None else [message]
    for text in messages:
        console.answer(text)
