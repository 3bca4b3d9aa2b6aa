"""The command `chat`: through pipes, and in a real terminal with a real model.

What a model would not say when asked to (control characters, errors midway) is said by a
model whose answers are written down; all around it is the real thing.
"""

from __future__ import annotations

import codecs
import contextlib
import copy
import io
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import backends
from bpe_tokenizer_tools.backends import Backend, ModelFiles
from bpe_tokenizer_tools.chat import terminal
from bpe_tokenizer_tools.chat.conversation import Conversation
from bpe_tokenizer_tools.chat.session import Session
from bpe_tokenizer_tools.chat.terminal import Console, Entry, read_entry
from bpe_tokenizer_tools.support.colors import has_colors
from bpe_tokenizer_tools.support.text import visible

SCRIPT = Path(bpe_tokenizer.__file__)
POSIX = pytest.mark.skipif(os.name != "posix", reason="terminals and signals as POSIX has them")


# -- What is shown and typed, without a model -----------------------------------


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),  # as no-color.org has it
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_colors_are_for_terminals_that_have_them(
    environment: dict[str, str], expected: bool
) -> None:
    assert has_colors(Screen(), environment) is expected
    assert not has_colors(io.StringIO(), environment)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["hello"], Entry("hello")),
        (["  as it is  "], Entry("  as it is  ")),
        (["one\\", "two\\", "three"], Entry("one\ntwo\nthree")),
        (["/system one\\", "two"], Entry("/system one\ntwo")),
        (['"""', "one", "", "/two\\", '"""'], Entry("one\n\n/two\\", True)),
        (['"""', "  kept as it is  ", '"""'], Entry("  kept as it is  ", True)),
        (['"""one', 'two""" '], Entry("one\ntwo", True)),
        (['"""/help"""'], Entry("/help", True)),
        (['"""""" '], Entry("", True)),
        (["pasted\nat once"], Entry("pasted\nat once")),
        (['"""pasted\nat once\n"""'], Entry("pasted\nat once", True)),
    ],
)
def test_a_message_may_have_several_lines(typed: list[str], expected: Entry) -> None:
    prompts: list[str] = []
    lines = iter(typed)

    def line(prompt: str) -> str:
        prompts.append(prompt)
        return next(lines)

    assert read_entry(line) == expected
    assert prompts == [">", *["..."] * (len(typed) - 1)]


# -- A model whose answers are written down --------------------------------------------


class Scripted(Backend):
    """Gives one answer after the other; of an error among its parts, it fails."""

    name = "scripted"
    block = sys.maxsize  # each part of an answer is fed once

    def __init__(self, answers: list[list[Any]], context: int, n_tokens: int) -> None:
        super().__init__(ModelFiles(Path("some/tiny.gguf"), "gguf", n_tokens, "float32", context))
        self.answers = iter(answers)
        self.prompts: list[list[int]] = []

    def generate(self, prompt_ids: Any, *args: Any, **options: Any) -> Iterator[int]:
        self.prompts.append(list(prompt_ids))
        return super().generate(prompt_ids, *args, **options)

    def _load(self, loading: Any) -> None:
        pass

    def _forget(self) -> None:
        pass

    def _ids(self, *args: Any) -> Generator[int, None, None]:
        self.answer = iter(next(self.answers))
        yield from super()._ids(*args)

    @contextlib.contextmanager
    def _explained(self, what: str = "") -> Iterator[None]:
        yield  # what fails says so itself

    def _feed(self, ids: list[int]) -> Any:
        import numpy

        said = next(self.answer)
        if isinstance(said, BaseException):
            raise said
        logits = numpy.full(self.vocab_rows, -100.0)
        logits[said] = 0.0
        return logits

    def _release(self) -> None:
        pass


def tokenizer() -> BPETokenizer:
    made = BPETokenizer()
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    made.eos_token = "<|im_end|>"
    return made


class Talk:
    """A console over a scripted model, and what it shows."""

    def __init__(self, *answers: Any, context: int = 4096, **options: Any) -> None:
        need("numpy")
        own = tokenizer()
        end = own.special_tokens["<|im_end|>"]
        scripts = [self._parts(own, answer, end) for answer in answers]
        self.session = Session.__new__(Session)  # nothing is to be loaded
        self.session.tokenizer = own
        self.session._running = lambda: None
        template = options.pop("template", "chatml")
        self.session.conversation = Conversation(own, template, options.pop("system", None))
        self.model = Scripted(scripts, context, max(own.get_vocab().values()) + 1)
        self.session.model = self.model
        self.out: Any = Screen() if options.pop("guarded", False) else io.StringIO()
        self.err = io.StringIO()
        sampling = {"temperature": 0, "max_new_tokens": options.pop("max_new_tokens", 512)}
        kept: dict[str, Any] = {"interactive": True, "environment": {}, **options}
        self.console = Console(self.session, sampling, out=self.out, err=self.err, **kept)

    @staticmethod
    def _parts(own: BPETokenizer, answer: Any, end: int) -> list[Any]:
        if isinstance(answer, (str, bytes)):
            answer = [answer]
        parts: list[Any] = []
        for part in answer:
            if isinstance(part, bytes):
                parts += own.encode(part.decode())
            else:
                parts += own.encode(part) if isinstance(part, str) else [part]
        return [*parts, end]

    def take(self, *texts: str) -> str:
        """Enter lines; return what is said besides the answers."""
        before = len(self.err.getvalue())
        for text in texts:
            assert self.console.take(Entry(text))
        return self.err.getvalue()[before:]

    @property
    def messages(self) -> list[tuple[str, str]]:
        return [(m["role"], m["content"]) for m in self.session.conversation.messages]


def test_answers_go_to_stdout_and_what_they_took_to_stderr() -> None:
    talk = Talk("Hello.", "two\nlines\n")
    told = talk.take("Hi", "Bye")
    assert talk.out.getvalue() == "Hello.\ntwo\nlines\n"
    first, second = told.splitlines()
    used = len(talk.model.prompts[0]) + 7
    assert re.fullmatch(rf"7 tokens, [\d,.]+ a second; context {used} of 4,096", first)
    assert second.startswith("11 tokens, ")
    assert talk.messages == [
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Bye"),
        ("assistant", "two\nlines\n"),
    ]


def test_every_piece_is_shown_when_it_is_there() -> None:
    shown: list[str] = []

    class Flushed(io.StringIO):
        def flush(self) -> None:
            shown.append(self.getvalue())

    talk = Talk("abc")
    talk.console.out = Flushed()
    talk.take("Hi")
    assert shown == ["a", "ab", "abc", "abc\n"]


def test_quiet_shows_answers_only() -> None:
    talk = Talk("Hello.", quiet=True)
    talk.console.greet()
    assert talk.take("Hi") == "" and talk.out.getvalue() == "Hello.\n"
    assert "/undo" in talk.take("/help")  # it was asked for


def test_the_greeting_says_what_runs_where() -> None:
    talk = Talk()
    talk.console.greet()
    assert talk.err.getvalue() == (
        "tiny.gguf: scripted on CPU, context 4,096 tokens; /help lists the commands\n"
    )
    talk = Talk(interactive=False)
    talk.console.greet()
    assert "/help" not in talk.err.getvalue()


def test_control_characters_of_a_model_do_not_reach_a_terminal() -> None:
    evil = "\x1b]0;title\x07\x9b2J\r\x7f\u202e\u2066plain\ttext\n"
    talk = Talk(evil, guarded=True)
    talk.take("Hi")
    assert talk.out.getvalue() == "␛]0;title␇\\x9b2J␍␡\\u202e\\u2066plain\ttext\n"
    assert talk.messages[-1] == ("assistant", evil)  # what was said is kept as it was
    assert "\x1b" not in talk.take("/tokens")
    plain = Talk(evil)
    plain.take("Hi")
    assert plain.out.getvalue() == evil  # a file gets what was said


def test_control_characters_of_an_error_do_not_reach_a_terminal() -> None:
    told = Talk([RuntimeError("bad \x1b[31m thing")]).take("Hi")
    assert told.splitlines()[-1] == "error: bad \\x1b[31m thing"


def test_json_gives_an_object_for_each_answer() -> None:
    talk = Talk("Hello.\n", ["cut", KeyboardInterrupt()], as_json=True)
    talk.take("Hi", "Go on")
    first, second = map(json.loads, talk.out.getvalue().splitlines())
    assert list(first) == [
        *("text", "prompt_tokens", "new_tokens", "tokens_per_second"),
        *("finish", "model", "backend"),
    ]
    assert first["text"] == "Hello.\n" and first["finish"] == "stop"
    assert first["prompt_tokens"] == len(talk.model.prompts[0]) and first["new_tokens"] == 8
    assert first["tokens_per_second"] > 0
    assert (first["model"], first["backend"]) == (str(Path("some/tiny.gguf")), "scripted")
    assert (second["text"], second["finish"]) == ("cut", "cancelled")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("//help", "/help"), ("//", "/"), (" /help", " /help"), ("a /help", "a /help")],
)
def test_a_message_may_begin_with_a_slash(typed: str, meant: str) -> None:
    talk = Talk("Yes.")
    talk.take(typed)
    assert talk.messages[0] == ("user", meant)


def test_what_is_quoted_is_no_command() -> None:
    talk = Talk("Yes.", "Yes.")
    for text in ("/quit", "//"):
        assert talk.console.take(Entry(text, quoted=True))
    assert [talk.messages[0], talk.messages[2]] == [("user", "/quit"), ("user", "//")]


def test_nothing_is_asked_with_nothing() -> None:
    talk = Talk()
    assert talk.take("", "  ", "\t") == "" and talk.messages == []


# -- Commands -----------------------------------------------------------------------


def test_help_lists_every_command() -> None:
    talk = Talk()
    told = talk.take("/help")
    for name in ("/help", "/system TEXT", "/reset", "/undo", "/save FILE", "/tokens", "/quit"):
        assert re.search(rf"^{name} ", told, re.MULTILINE), name


def test_an_unknown_command_is_no_message() -> None:
    talk = Talk()
    told = talk.take("/usr/bin is what?")
    assert "/usr/bin" in told and "/help /system /reset /undo /save /tokens /quit" in told
    assert "//" in told and told.count("\n") == 1
    assert "unknown" in talk.take("/") and "unknown" in talk.take("/Help")
    assert "takes no text" in talk.take("/reset now")
    assert talk.messages == []


@pytest.mark.parametrize("typed", ["/quit", "/quit ", "quit", "exit", " quit", "exit \t"])
def test_quit_leaves(typed: str) -> None:
    talk = Talk("One.")
    assert not talk.console.take(Entry(typed))
    terminal.converse(talk.console, lines_of("first", typed, "second"))
    assert talk.out.getvalue() == "One.\n"


@pytest.mark.parametrize("said", ["Quit", "EXIT", "quit.", "exit now", "how do I quit"])
def test_a_message_about_quitting_does_not(said: str) -> None:
    talk = Talk("Yes.")
    assert talk.console.take(Entry(said))
    assert talk.messages[0] == ("user", said)
    for each in ("quit", " exit"):
        talk = Talk("Yes.")
        assert talk.console.take(Entry(each, quoted=True))
        assert talk.messages[0] == ("user", each)


@pytest.mark.parametrize("said", ["quit", " exit ", "/quit"])
def test_a_line_of_a_pipe_that_quits(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = f"Quit\n\n/help\n//help\n/helpful\n{said}\nmore\n".encode()
    lines = [*terminal.read_lines(io.TextIOWrapper(io.BytesIO(data)))]
    assert lines == ["Quit", "/help", "//help", "/helpful"]
    [warning] = capsys.readouterr().err.splitlines()
    assert [*terminal.read_lines(io.TextIOWrapper(io.BytesIO(data)), quiet=True)] == lines
    assert not capsys.readouterr().err
    assert "line 3: /help goes to the model as text; commands work only at" in warning


def test_help_tells_how_to_leave() -> None:
    told = Talk().take("/help")
    assert re.search(r"^/quit .*Ctrl-D.*\bquit or exit\b", told, re.MULTILINE)


def test_system_sets_the_system_prompt_and_keeps_the_conversation() -> None:
    talk = Talk("One.", "Two.")
    assert "no system prompt" in talk.take("/system")
    talk.take("Hi", "/system  Be brief. ")
    told = talk.take("Again")
    assert "differently" not in told  # the user did that, not the template
    assert talk.messages[:2] == [("system", "Be brief."), ("user", "Hi")]
    decoded = tokenizer().decode(talk.model.prompts[1])
    assert decoded.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi")
    assert talk.take("/system") == "Be brief.\n"
    talk.take("/system Be long.")
    assert [m for m in talk.messages if m[0] == "system"] == [("system", "Be long.")]
    assert len(talk.messages) == 5


def test_undo_takes_back_a_question_with_its_answer() -> None:
    talk = Talk("One.", "Two.", "Three.", system="Be brief.")
    talk.take("first", "second")
    assert talk.take("/undo") == "removed: second\n"
    talk.take("third")
    assert [text for _, text in talk.messages] == ["Be brief.", "first", "One.", "third", "Three."]
    assert "second" not in tokenizer().decode(talk.model.prompts[2])
    talk.take("/undo", "/undo")
    assert "nothing" in talk.take("/undo")
    assert talk.messages == [("system", "Be brief.")]


def test_reset_keeps_the_system_prompt() -> None:
    talk = Talk("One.", "Two.", system="Be brief.")
    talk.take("first", "/reset")
    assert talk.messages == [("system", "Be brief.")]
    talk.take("second")
    decoded = tokenizer().decode(talk.model.prompts[1])
    assert "first" not in decoded and decoded.startswith("<|im_start|>system\nBe brief.")


def test_save_writes_new_files_only(tmp_path: Path) -> None:
    talk = Talk("naïve 🙂\x1b", system="Be brief.")
    talk.take("\x00 two\nlines", "/system Be \udce9.")
    path = tmp_path / "with space.json"
    assert talk.take(f"/save {path}") == f"3 messages saved to {path}\n"
    saved = json.loads(path.read_bytes())
    assert saved == {"messages": talk.session.conversation.messages}
    before = path.read_bytes()
    assert "already exists" in talk.take("/undo", f"/save {path}")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_save_that_fails_says_why(tmp_path: Path) -> None:
    talk = Talk("Yes.")
    talk.take("Hi")
    assert "FILE" in talk.take("/save")
    assert "already exists" in talk.take(f"/save {tmp_path}")
    told = talk.take(f"/save {tmp_path / 'nosuch' / 'file'}")
    assert told.startswith(f"error: {tmp_path / 'nosuch' / 'file'}: ") and told.count("\n") == 1
    assert ".tmp" not in told


@POSIX
def test_save_follows_no_dangling_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    talk = Talk("Yes.")
    assert "already exists" in talk.take("Hi", f"/save {link}")
    assert link.is_symlink() and not (tmp_path / "elsewhere").exists()


def test_tokens_counts_each_message_and_all() -> None:
    talk = Talk("One.", "Two.", system="Be brief.")
    for change in ("Hi", "Bye " * 30, "/undo", "/system Be long.", "/reset"):
        talk.take(change)
        ids, turns = list(talk.session.conversation.ids), list(talk.session.conversation.turns)
        rows = [line.split() for line in talk.take("/tokens").splitlines()]
        conversation = talk.session.conversation
        assert (conversation.ids, conversation.turns) == (ids, turns)  # only looked at
        *each, (word, total, *of) = rows
        assert [row[1] for row in each] == [role for role, _ in talk.messages]
        assert [row[0] for row in each] == [str(i + 1) for i in range(len(each))]
        counts = [int(row[2]) for row in each]
        assert (word, int(total), of) == ("sum", sum(counts), ["of", "4,096"])
        if ids:
            assert sum(counts) == len(ids)
        if change.startswith("Bye"):
            assert each[3][3:5] == ["Bye", "Bye"] and each[3][-1].endswith("…")
    texts = "<|im_start|>system\nBe long.<|im_end|>\n"
    assert abs(counts[0] - len(tokenizer().encode(texts, allowed_special="all"))) <= 2
    assert "sum" in Talk().take("/tokens")


# -- What may go wrong --------------------------------------------------------------


def test_an_interrupted_answer_stays_and_the_next_works() -> None:
    talk = Talk(["par", KeyboardInterrupt()], "Whole.")
    assert "; stopped" in talk.take("Hi")
    assert talk.messages == [("user", "Hi"), ("assistant", "par")]
    talk.take("Bye")
    assert talk.out.getvalue() == "par\nWhole.\n"
    assert "<|im_start|>assistant\npar<|im_end|>" in tokenizer().decode(talk.model.prompts[1])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("broken")])
def test_a_question_without_an_answer_is_taken_back(error: BaseException) -> None:
    talk = Talk([error], "Whole.")
    told = talk.take("Hi")
    assert talk.messages == []
    assert ("error: broken" in told) == isinstance(error, RuntimeError)
    talk.take("Bye")
    assert talk.messages == [("user", "Bye"), ("assistant", "Whole.")]


def test_an_error_midway_takes_the_question_back() -> None:
    talk = Talk(["par", RuntimeError("broken")], "Whole.")
    assert talk.take("Hi").splitlines()[-1] == "error: broken"
    assert talk.messages == [] and talk.session.last.finish == "error"
    talk.take("Bye")
    assert talk.messages == [("user", "Bye"), ("assistant", "Whole.")]
    assert talk.out.getvalue() == "par\nWhole.\n"


def test_an_empty_answer_is_an_answer() -> None:
    talk = Talk("")
    assert talk.take("Hi").startswith("1 token, ")
    assert talk.messages == [("user", "Hi"), ("assistant", "")] and talk.out.getvalue() == "\n"


def test_without_somebody_to_ask_again_errors_are_raised() -> None:
    talk = Talk(["par", RuntimeError("broken")], interactive=False)
    with pytest.raises(RuntimeError, match="broken"):
        talk.console.answer("Hi")


def test_output_that_nobody_reads_ends_the_session() -> None:
    talk = Talk("Hello.")

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    talk.console.out = Gone()
    with pytest.raises(BrokenPipeError):
        talk.console.take(Entry("Hi"))


def test_a_full_context_says_what_to_do() -> None:
    talk = Talk("x" * 200, "Fits.", context=60)
    told = talk.take("Hi")
    assert "context 60 of 60; the context is full: /undo" in told and "/reset" in told
    told = talk.take("More")
    assert told.startswith("error: the prompt has ") and told.count("\n") == 1
    assert "/undo" in told and "/reset" in told
    assert len(talk.messages) == 2
    told = talk.take("/reset", "Hi")
    assert "full" not in told and talk.out.getvalue().endswith("\nFits.\n")


def test_only_a_full_context_is_answered_with_that_advice() -> None:
    template = "{% if messages|length > 1 %}{{ raise_exception('no more') }}{% endif %}x"
    need("jinja2")
    talk = Talk("One.", template=template)
    told = talk.take("Hi", "More")
    assert told.splitlines()[-1].startswith("error: ") and "no more" in told
    assert "/undo" not in told
    assert "the context is full\n" in Talk("x" * 200, context=60, interactive=False).take("Hi")


def test_an_answer_that_is_cut_off_says_so() -> None:
    talk = Talk("x" * 200, max_new_tokens=5)
    assert talk.take("Hi").endswith("; cut off at --max-tokens\n")
    assert talk.out.getvalue() == "xxxxx\n"


def test_a_rewritten_history_is_told() -> None:
    need("jinja2")
    template = (
        "{% for m in messages %}{% if loop.last or m.role != 'assistant' %}"
        "[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}[assistant]"
    )
    told = Talk("One.", "Two.", template=template).take("Hi", "Bye")
    assert told.count("turns differently") == 1 and "first 9 tokens" in told  # [user]Hi[
    told = Talk("One.", "Two.", template=template, quiet=True).take("Hi", "Bye")
    assert told == ""


def test_colors_are_around_what_need_not_be_read() -> None:
    talk = Talk("Hello.", environment={"TERM": "xterm"})
    assert "\x1b" not in talk.take("Hi")  # this is no terminal
    talk = Talk("Hello.")
    screen = Screen()
    console = Console(
        talk.session,
        {"temperature": 0},
        interactive=True,
        out=screen,
        err=screen,
        environment={"TERM": "xterm"},
    )
    console.answer("Hi")
    shown = screen.getvalue()
    assert shown.startswith("Hello.\n\x1b[2m") and shown.endswith("\x1b[0m\n")


# -- Lines and Ctrl-C ------------------------------------------------------------------


def lines_of(*given: str | type[BaseException]) -> Callable[[str], str]:
    """Give lines as a terminal does; a type is raised."""
    left = iter([*given, EOFError])

    def line(prompt: str) -> str:
        item = next(left)
        if isinstance(item, str):
            return item
        raise item(*(("utf-8", b"\xff", 0, 1, "") if item is UnicodeDecodeError else ()))

    return line


def test_it_goes_on_until_the_end() -> None:
    talk = Talk("One.", "Two.")
    terminal.converse(talk.console, lines_of("first", "", "second"))
    assert talk.out.getvalue() == "One.\nTwo.\n"
    talk = Talk("One.")
    terminal.converse(talk.console, lines_of("first", "/quit", "second"))
    assert talk.out.getvalue() == "One.\n"


def test_an_interrupt_clears_the_line_and_two_leave() -> None:
    stop = KeyboardInterrupt
    talk = Talk("One.", "Two.", "Three.")
    terminal.converse(
        talk.console,
        lines_of(stop, "first", stop, "half\\", stop, stop, "never"),
    )
    assert talk.messages == [("user", "first"), ("assistant", "One.")]
    talk = Talk("One.", "Two.")
    terminal.converse(talk.console, lines_of("half\\", stop, "first", '"""', stop, "second"))
    assert [text for role, text in talk.messages if role == "user"] == ["first", "second"]
    assert talk.err.getvalue().count("Ctrl-D") == 2


def test_a_line_that_is_no_text_is_told() -> None:
    talk = Talk("One.")
    terminal.converse(talk.console, lines_of(UnicodeDecodeError, "first"))
    assert "error: the line is not utf-8\n" in talk.err.getvalue()
    assert talk.out.getvalue() == "One.\n"


@POSIX
def test_a_second_interrupt_disturbs_nothing() -> None:
    program = """
import os, signal, time
from bpe_tokenizer_tools.chat import terminal
usual = signal.getsignal(signal.SIGINT)
try:
    with terminal.one_interrupt():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            print("tidied")
except KeyboardInterrupt:
    print("interrupted", signal.getsignal(signal.SIGINT) is usual)
"""
    # Not in this process: libraries that other tests load have threads of their own.
    folder = Path(bpe_tokenizer.__file__).parent
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.stdout, done.stderr) == ("tidied\ninterrupted True\n", "")


# -- Real models ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    for package in ("llama_cpp", "gguf"):
        need(package)
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    yield tiny_models.write_gguf(path, tiny_models.model(False))
    backends.unload()


@pytest.fixture(scope="module")
def long_model(model: Path) -> Path:
    """The same model, of whose answers nobody sees the end: there is much more room."""
    key, number = b"llama.context_length" + struct.pack("<I", 4), struct.Struct("<I")
    data = model.read_bytes()
    old = key + number.pack(tiny_models.CONTEXT)
    assert data.count(old) == 1
    path = model.with_name("long.gguf")
    path.write_bytes(data.replace(old, key + number.pack(100_000)))
    return path


GREEDY = ("--template", "alpaca", "--temperature", "0")


def environment(folder: Path, **changes: str) -> dict[str, str]:
    left_out = ("LC_", "LANG", "PYTHON", "NO_COLOR", "TERM", "COLUMNS", "LINES")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    own = {"HOME": str(folder), "XDG_STATE_HOME": str(folder), "INPUTRC": os.devnull}
    return {**kept, **own, "PYTHONPATH": str(SCRIPT.parent), "LC_ALL": "C.UTF-8", **changes}


def chat(folder: Path, *argv: object, stdin: bytes = b"") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "chat", *map(str, argv)],
        input=stdin,
        capture_output=True,
        env=environment(folder),
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_each_line_of_a_pipe_is_answered_in_one_conversation(model: Path, tmp_path: Path) -> None:
    limit = ("--max-tokens", 20)
    session = Session(model, template="alpaca")
    stdin = "first\n\n  \r\n/help\r\nnaïve\\\n/quit\nlast".encode()
    status, out, err = chat(tmp_path, "--model", model, *GREEDY, *limit, "--json", stdin=stdin)
    assert status == 0
    answers = [json.loads(line) for line in out.splitlines()]
    for question, answer in zip(["first", "/help", "naïve\\"], answers):  # no other commands
        expected = "".join(session.reply(question, 20, temperature=0))
        assert answer["text"] == expected and answer["new_tokens"] == session.last.new_tokens
        assert answer["prompt_tokens"] == session.last.prompt_tokens
        assert (answer["backend"], answer["model"]) == ("llama.cpp", str(model))
    assert len(answers) == 3
    assert "tiny.gguf: llama.cpp on " in err and err.count(" a second; context ") == 3
    assert "line 4: /help goes to the model as text" in err
    told = chat(tmp_path, "--model", model, *GREEDY, *limit, "--quiet", stdin=stdin)
    assert told[0] == 0 and told[2] == ""
    assert told[1] == "".join(a["text"].rstrip("\n") + "\n" for a in answers)
    assert not list(tmp_path.iterdir())  # no history of scripts


def test_one_message(model: Path, tmp_path: Path) -> None:
    asked = ("--model", model, *GREEDY, "--max-tokens", 20, "--quiet")
    expected = "".join(Session(model, template="alpaca").reply("Hi\nyou", 20, temperature=0))
    shown = (0, expected.rstrip("\n") + "\n", "")
    assert chat(tmp_path, *asked, "--message", "Hi\nyou", stdin=b"not this") == shown
    assert chat(tmp_path, *asked, "--message", "-", stdin=b"Hi\nyou") == shown


def test_a_seed_repeats_and_options_reach_the_model(model: Path, tmp_path: Path) -> None:
    asked = ("--model", model, "--template", "alpaca", "--message", "Hi", "--max-tokens", 12)
    hot = ("--temperature", 5, "--top-p", 1)
    first, again, other = (chat(tmp_path, *asked, *hot, "--seed", seed)[1] for seed in (1, 1, 2))
    assert first == again != other
    greedy = chat(tmp_path, *asked, "--temperature", 0)[1]
    assert chat(tmp_path, *asked, *hot, "--top-k", 1)[1] == greedy
    assert chat(tmp_path, *asked, "--temperature", 5, "--top-p", 1e-9)[1] == greedy
    word = greedy[5:8]
    stopped = chat(tmp_path, *asked, "--temperature", 0, "--stop", "never said", word)[1]
    assert stopped == greedy[: greedy.index(word)].rstrip("\n") + "\n"
    question = [{"role": "user", "content": "Hi"}]
    prompt = len(tiny_models.tokenizer().apply_chat_template(question, "alpaca"))
    few = chat(tmp_path, *asked, "--n-ctx", prompt + 7, "--json")[1]
    facts = json.loads(few)
    assert (facts["prompt_tokens"], facts["new_tokens"]) == (prompt, 7)


def test_a_system_prompt_and_a_template_of_a_file(model: Path, tmp_path: Path) -> None:
    need("jinja2")
    source = "{% for m in messages %}[{{ m.role }}]\r\n{{ m.content }}{% endfor %}[assistant]"
    file = tmp_path / "some.jinja"
    file.write_bytes(source.encode())
    asked = ("--model", model, "--temperature", 0, "--max-tokens", 9, "--message", "Hi")
    session = Session(model, template=source, system_prompt="Be brief.")
    "".join(session.reply("Hi", 9, temperature=0))
    without = Session(model, template=source)
    "".join(without.reply("Hi", 9, temperature=0))
    assert without.last.prompt_tokens < session.last.prompt_tokens
    for template, prompt in ((file, "Be brief."), (source, "Be brief."), (source, "")):
        status, out, err = chat(
            tmp_path, *asked, "--json", "--system", prompt, "--template", template
        )
        facts = json.loads(out)
        last = session.last if prompt else without.last
        assert (status, facts["text"]) == (0, last.text), err
        assert facts["prompt_tokens"] == last.prompt_tokens


def test_a_template_of_the_tokenizer_is_chosen_by_its_name(model: Path, tmp_path: Path) -> None:
    own = copy.copy(tiny_models.tokenizer())
    own.chat_templates = {"default": "{{ 'D' }}", "rag": "R {{ messages[0].content }}"}
    own.save(tmp_path / "own", verbose=False)
    asked = ("--model", model, "--tokenizer", tmp_path / "own", "--temperature", 0, "--json")
    for name in ("rag", "default"):
        session = Session(model, own, own.chat_templates[name])
        expected = "".join(session.reply("Hi", 9, temperature=0))
        status, out, err = chat(
            tmp_path, *asked, "--max-tokens", 9, "--message", "Hi", "--template", name
        )
        assert (status, json.loads(out)["text"]) == (0, expected), err
        assert json.loads(out)["prompt_tokens"] == session.last.prompt_tokens


def test_a_tokenizer_that_does_not_fit_is_refused(model: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    tiny_models.tokenizer().save(own, verbose=False)
    asked = ("--model", model, *GREEDY, "--max-tokens", 9, "--message", "Hi", "--quiet")
    assert chat(tmp_path, *asked, "--tokenizer", own) == chat(tmp_path, *asked)
    other = tmp_path / "other"
    BPETokenizer().train(["the cat " * 9], 260, verbose=False).save(other, verbose=False)
    status, out, err = chat(tmp_path, *asked, "--tokenizer", other)
    assert (status, out) == (1, "") and err.startswith("bpe-tokenizer: error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "status", "named"),
    [
        (("--temperature", -1), 1, "temperature"),
        (("--top-p", 0), 1, "top_p"),
        (("--top-k", -1), 1, "top_k"),
        (("--n-ctx", -1), 1, "n_ctx"),
        (("--backend", "nosuch"), 1, "llama.cpp"),
        (("--backend", "openvino"), 1, "llama.cpp"),
        (("--max-tokens", 0), 2, "--max-tokens"),
        (("--seed", -1), 2, "--seed"),
        (("--stop", "x", ""), 2, "--stop"),
        (("--template", "nosuch.jinja"), 2, "nosuch.jinja"),
        (("--template", "nosuch"), 1, "expected one of llama3"),
        (("--template", "chatml"), 1, "<|im_start|>"),
        (("--template", "{% if %}"), 1, "template"),
        (("--message", " "), 2, "--message"),
        (("--message", "word " * 1000), 1, "no room"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    options: tuple[object, ...], status: int, named: str, model: Path, tmp_path: Path
) -> None:
    need("jinja2")
    asked = ("--model", model, "--quiet", "--template", "alpaca", "--message", "Hi")
    told = chat(tmp_path, *asked, *options)
    assert told[:2] == (status, ""), told
    assert told[2].startswith("bpe-tokenizer: error: ") and told[2].count("\n") == 1
    assert named in told[2]


@pytest.mark.parametrize("message", [[], ["--message", "-"]])
def test_a_missing_model_is_told_before_anything_is_read(
    message: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, str(SCRIPT), "chat", "--model", "nosuch", *message]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # nothing is ever written to it
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        cwd=tmp_path,
    )
    try:
        status = process.wait(timeout=60)
    finally:
        process.kill()
        out, err = process.communicate()
    assert (status, out) == (1, b"")
    assert err.startswith(b"bpe-tokenizer: error: nosuch: no such file or directory; expected a")


def test_a_pipe_ends_with_the_first_error(model: Path, tmp_path: Path) -> None:
    stdin = b"first\n" + b"word " * 1000 + b"\nthird\n"
    asked = ("--model", model, *GREEDY, "--max-tokens", 5, "--quiet", "--json")
    status, out, err = chat(tmp_path, *asked, stdin=stdin)
    assert (status, out.count("\n")) == (1, 1)
    assert err.startswith("bpe-tokenizer: error: ") and err.count("\n") == 1
    status, out, err = chat(tmp_path, *asked, stdin=b"first\n\xff\n")
    assert (status, out.count("\n")) == (1, 1)
    assert "standard input, line 2" in err
    status, out, err = chat(tmp_path, "--model", tmp_path / "nosuch.gguf", stdin=stdin)
    assert (status, out) == (1, "") and "nosuch.gguf" in err


@POSIX
def test_an_interrupted_script_has_what_was_said(long_model: Path, tmp_path: Path) -> None:
    options = ("--max-tokens", "99000", "--n-ctx", "100000", "--message", "Hi", "--quiet")
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "chat", "--model", str(long_model), *GREEDY, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        bufsize=0,  # what a buffer holds would be lost to communicate()
    )
    assert process.stdout is not None
    try:
        said = b""
        while len(said) < 100:  # of some hundred thousand bytes
            new = process.stdout.read(100)
            assert new, "ended before it was interrupted"
            said += new
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, b"bpe-tokenizer: error: interrupted\n")
    assert (said + rest).endswith(b"\n")


# -- A real terminal ------------------------------------------------------------------

# A session of its own, of which standard input is the terminal.
_IN_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
_ESCAPES = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[=>]|[\s\S]")


def rendered(written: str) -> str:
    """Return the lines on a screen that this was written to, as far as editors of a line write."""
    lines, column = [list[str]()], 0
    for found in _ESCAPES.finditer(written):
        char, number = found[0], int(found[1]) if (found[1] or "").isdecimal() else 1
        if char == "\n":  # with \r before it; alone in what follows a prompt
            lines.append([])
            column = 0
        elif char == "\r":
            column = 0
        elif char == "\b" or found[2] == "D":
            column = max(column - number, 0)
        elif found[2] == "C":
            column += number
        elif found[2] in ("J", "K"):
            del lines[-1][column:]
        elif len(char) == 1:
            line = lines[-1]
            line += [" "] * (column - len(line))
            line[column : column + 1] = [char]
            column += 1
    lines[-1] += [" "] * (column - len(lines[-1]))
    return "\n".join(map("".join, lines))


PROMPT = r"\n> $"
DONE = r" a second; context [^\n]*\n> $"
UP, CTRL_C, CTRL_D = "\x1b[A", "\x03", "\x04"


class Terminal:
    """A pseudo-terminal in which `bpe-tokenizer chat` runs.

    Args:
        folder: where files that users have are.
        editor: what reads lines, "prompt_toolkit" or "input", which it finds no prompt_toolkit for.
        argv: for the command.
        out: where its standard output goes, if not to the terminal.
        changes: of its environment.
    """

    def __init__(
        self, folder: Path, editor: str, *argv: object, out: Any = None, **changes: str
    ) -> None:
        import fcntl
        import pty
        import termios

        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 500, 0, 0))
        command = [sys.executable, "-c", _IN_A_TERMINAL, str(SCRIPT), "chat", *map(str, argv)]
        without = folder / "without"
        without.mkdir(exist_ok=True)
        if editor == "input":
            (without / "prompt_toolkit.py").write_text("raise ImportError")
        self.editor = editor
        path = os.pathsep.join([str(without), str(SCRIPT.parent)])
        self.process = subprocess.Popen(
            command,
            **{"stdin": slave, "stdout": out or slave, "stderr": slave},
            start_new_session=True,
            env=environment(folder, **{"TERM": "xterm", "PYTHONPATH": path, **changes}),
        )
        os.close(slave)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.raw = self.unread = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read(self, pattern: str, patience: float = 600) -> str:
        """Return all that is shown up to a pattern, without escape sequences."""
        deadline = time.monotonic() + patience
        while True:
            shown = rendered(self.unread)
            if re.search(pattern, shown):
                self.unread = ""
                return shown
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {pattern!r} in {shown!r}")
            if select.select([self.master], [], [], 1)[0]:
                try:
                    data = os.read(self.master, 65536)
                except OSError:  # Linux: the other end is closed
                    data = b""
                assert data, f"ended without {pattern!r}: {shown!r}"
                new = self.decoder.decode(data)
                if "\x1b[6n" in new:  # where is the cursor? terminals answer
                    self.type("\x1b[40;1R")
                self.raw += new
                self.unread += new

    def ask(self, text: str, pattern: str = DONE) -> str:
        self.type(text + "\r")
        return self.read(pattern)

    def interrupt(self, pattern: str) -> str:
        """Press Ctrl-C at the prompt; return what is shown up to a pattern.

        Python does not see a Ctrl-C in the moment before readline waits for a key.  No
        person is that fast, but this is: then it presses again.
        """
        for _ in range(20):
            self.type(CTRL_C)
            with contextlib.suppress(TimeoutError):
                return self.read(pattern, patience=15)
        raise TimeoutError(f"Ctrl-C is ignored: {self.unread!r}")

    def leave(self) -> int:
        """Wait for the end, whatever is shown until then."""
        with contextlib.suppress(AssertionError):
            self.read("(?!)")
        return self.process.wait(timeout=600)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


@pytest.fixture(params=["prompt_toolkit", "input"])
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Terminal]]:
    if request.param == "prompt_toolkit":
        need("prompt_toolkit")
    if os.name != "posix":
        pytest.skip("pseudo-terminals as POSIX has them")
    started: list[Terminal] = []

    def make(*argv: object, **options: Any) -> Terminal:
        started.append(Terminal(tmp_path, request.param, *argv, **options))
        return started[-1]

    yield make
    for each in started:
        each.close()


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Terminal], list[str]]:
    """Give a function to the contents of a conversation, as /save writes them."""

    def read(screen: Terminal) -> list[str]:
        path = tmp_path / f"{len(list(tmp_path.glob('*-saved.json')))}-saved.json"
        screen.ask(f"/save {path}", f"saved to [^\n]*{PROMPT}")
        return [message["content"] for message in json.loads(path.read_bytes())["messages"]]

    return read


def test_a_conversation_in_a_terminal(
    model: Path, start: Callable[..., Terminal], saved: Callable[[Terminal], list[str]]
) -> None:
    screen = start("--model", model, *GREEDY, "--max-tokens", 12)
    greeting = screen.read(PROMPT)
    assert "tiny.gguf: llama.cpp on " in greeting and "context 256 tokens" in greeting
    session = Session(model, template="alpaca")
    for question in ("Hello", "naïve 東京 🙂"):
        expected = "".join(session.reply(question, 12, temperature=0))
        shown = screen.ask(question)
        assert visible(expected).replace("\r", "") in shown
    assert saved(screen) == [m["content"] for m in session.conversation.messages]
    assert "removed: naïve" in screen.ask("/undo", PROMPT)
    assert re.search(r"sum +\d+ of 256", screen.ask("/tokens", PROMPT))
    assert "unknown command /nosuch" in screen.ask("/nosuch", PROMPT)
    assert "starts over" in screen.ask("/reset", PROMPT)
    screen.ask("/system Be brief.", PROMPT)
    screen.ask("//slash")
    assert saved(screen)[:2] == ["Be brief.", "/slash"]
    screen.type("exit\r")
    assert screen.leave() == 0


@pytest.mark.slow
def test_an_answer_is_shown_as_it_comes_and_ctrl_c_stops_it(
    long_model: Path, start: Callable[..., Terminal], saved: Callable[[Terminal], list[str]]
) -> None:
    screen = start("--model", long_model, *GREEDY, "--max-tokens", 99_000, "--n-ctx", 100_000)
    screen.read(PROMPT)
    for question in ("first", "second"):
        screen.type(question + "\r")
        screen.read(rf"^(> )?{question}\n[\s\S]{{300}}")
        screen.type(CTRL_C)
        assert "; stopped\n" in screen.read(DONE)
    first, said, second, more = saved(screen)
    assert (first, second) == ("first", "second") and len(said) > 100 and len(more) > 100
    assert "removed: second" in screen.ask("/undo", PROMPT)
    screen.type(CTRL_D)
    assert screen.leave() == 0


def test_history_is_at_hand_and_comes_back_next_time(
    model: Path, tmp_path: Path, start: Callable[..., Terminal], saved: Callable[..., list[str]]
) -> None:
    need("readline")
    screen = start("--model", model, *GREEDY, "--max-tokens", 5)
    screen.read(PROMPT)
    screen.ask("remember me")
    screen.ask(f"{UP}{UP}{UP}, twice")  # there is no line before the first
    if screen.editor == "input":
        assert saved(screen)[::2] == ["remember me", "remember me, twice"]
        return
    path = tmp_path / "bpe-tokenizer" / "chat_history"
    assert path.stat().st_mode & 0o777 == 0o600
    lines = [line for line in path.read_text().splitlines() if line.startswith("+")]
    assert lines == ["+remember me", "+remember me, twice"]
    screen.type(CTRL_D)
    assert screen.leave() == 0
    screen = start("--model", model, *GREEDY, "--max-tokens", 5)
    screen.read(PROMPT)
    screen.ask(f"{UP}{UP}")
    assert path.read_text().splitlines()[-1] == "+remember me"


def test_where_no_history_can_be_kept_all_else_works(
    model: Path, tmp_path: Path, start: Callable[..., Terminal]
) -> None:
    (tmp_path / "bpe-tokenizer").touch()
    screen = start("--model", model, *GREEDY, "--max-tokens", 5)
    screen.read(PROMPT)
    assert "rror" not in screen.ask("Hi")
    screen.type(CTRL_D)
    assert screen.leave() == 0


def test_several_lines_in_a_terminal(
    model: Path, start: Callable[..., Terminal], saved: Callable[[Terminal], list[str]]
) -> None:
    screen = start("--model", model, *GREEDY, "--max-tokens", 5)
    screen.read(PROMPT)
    screen.ask("one\\", r"\n\.\.\. $")
    screen.ask("two")
    screen.ask('"""', r"\n\.\.\. $")
    screen.ask("/three", r"\n\.\.\. $")
    screen.ask('four"""')
    assert saved(screen)[::2] == ["one\ntwo", "/three\nfour"]


def test_ctrl_c_clears_what_is_typed_and_leaves_when_repeated(
    model: Path, start: Callable[..., Terminal]
) -> None:
    screen = start("--model", model, *GREEDY, "--max-tokens", 5)
    screen.read(PROMPT)
    screen.type("half a line")
    screen.read("half a line$")
    assert "Ctrl-D" in screen.interrupt(PROMPT)
    assert "sum" in screen.ask("/tokens", PROMPT)
    screen.interrupt(PROMPT)
    with pytest.raises(AssertionError, match="ended without"):
        screen.interrupt("(?!)")
    assert screen.leave() == 0


def test_ctrl_d_leaves_at_once(model: Path, start: Callable[..., Terminal]) -> None:
    screen = start("--model", model, *GREEDY)
    screen.read(PROMPT)
    screen.type(CTRL_D)
    assert screen.leave() == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colors_in_a_terminal(
    changes: dict[str, str], expected: bool, model: Path, start: Callable[..., Terminal]
) -> None:
    screen = start("--model", model, *GREEDY, "--max-tokens", 5, **changes)
    screen.read(PROMPT)
    screen.ask("Hi")
    # prompt_toolkit resets colors (\x1b[0m) even where it has set none.
    assert bool(re.search(r"\x1b\[(?!0m)[0-9;]*m", screen.raw)) is expected


def test_control_characters_of_a_real_model_are_shown_as_pictures(
    model: Path, tmp_path: Path, start: Callable[..., Terminal]
) -> None:
    wild = ("--model", model, "--template", "alpaca", "--temperature", 9, "--top-p", 1)
    session = Session(model, template="alpaca")
    for seed in range(100):  # one of them says what is to be shown
        said = "".join(session.reply("Hi", 60, temperature=9, top_p=1, seed=seed))
        session.conversation.reset()
        if "\x1b" in said and len({char for char in said if visible(char) != char}) > 3:
            break
    else:
        raise AssertionError("no seed makes this model say control characters")
    wild += ("--seed", seed, "--max-tokens", 60)
    assert json.loads(chat(tmp_path, *wild, "--message", "Hi", "--json")[1])["text"] == said
    screen = start(*wild, TERM="dumb")
    screen.read(PROMPT)
    shown = screen.ask("Hi")
    assert visible(said) in shown
    assert not {char for char in screen.raw if visible(char) != char and char != "\r"}


def test_only_answers_go_into_a_file(
    model: Path, tmp_path: Path, start: Callable[..., Terminal]
) -> None:
    """Standard input is a terminal here, and standard output is not."""
    asked = ("--model", model, *GREEDY, "--max-tokens", 5)
    expected = chat(tmp_path, *asked, "--message", "Hi")[1]
    path = tmp_path / "answers"
    with path.open("wb") as out:
        screen = start(*asked, out=out)
    screen.read(PROMPT)
    screen.ask("Hi")
    screen.type(CTRL_D)
    assert screen.leave() == 0
    assert path.read_text(encoding="utf-8") == expected
