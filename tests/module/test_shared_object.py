"""One tokenizer that some threads use while others change it: each call sees one state of it."""

from __future__ import annotations

import copy
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from unittest import mock

import pytest
from oracles import forks, need

import bpe_tokenizer
from bpe_tokenizer import AddedToken, BPETokenizer

TEXT = "the cat sat<s> on the <b>mat: low, lower<s>"
USER = [{"role": "user", "content": TEXT}]
CODE = os.path.dirname(bpe_tokenizer.__file__)


def before() -> BPETokenizer:
    made = BPETokenizer("cl100k", normalizer=None).train(
        "the cat sat on the mat " * 20, 280, special_tokens=["<s>", "</s>"], verbose=False
    )
    made.chat_template = "<s>{{ messages[0].content }}</s>"
    made.pad_token = "</s>"
    return made


def change(tokenizer: BPETokenizer) -> None:
    """Give a tokenizer other ids for nearly everything."""
    counts = {b"low": 9, b" lower": 9, b" mat": 2, b"cat": 7}
    tokenizer.train(counts=counts, vocab_size=276, special_tokens={"<s>": 256}, verbose=False)
    tokenizer.add_special_tokens([AddedToken("<b>", special=False), "[PAD]"])
    tokenizer.pad_token = "[PAD]"


# -- A change at any line of a call ----------------------------------------------


def refuse(tokenizer: BPETokenizer) -> Any:
    try:
        return tokenizer.encode("the low[PAD]", disallowed_special="all")
    except ValueError as error:
        return str(error)


def batch(tokenizer: BPETokenizer) -> Any:
    made = tokenizer.encode_batch([TEXT, "a"], True, "all", padding=True)
    return made.input_ids, made.tokens, made.offsets


def array(tokenizer: BPETokenizer) -> Any:
    need("numpy")
    return tokenizer.encode_to_numpy(TEXT, allowed_special="all").tolist()


def jinja(tokenizer: BPETokenizer, **options: Any) -> Any:
    need("jinja2")
    return tokenizer.apply_chat_template(USER, return_dict=True, **options)["input_ids"]


CALLS: dict[str, Callable[[BPETokenizer], Any]] = {
    "encode": lambda t: t.encode(TEXT),
    "encode, all": lambda t: t.encode(TEXT, True, "all"),
    "encode, a set": lambda t: t.encode(TEXT, allowed_special={"<s>"}),
    "encode, disallowed": refuse,
    "encode, dropout": lambda t: t.encode(TEXT, dropout=0.5, seed=1),
    "encode_to_numpy": array,
    "encode_ordinary_batch": lambda t: t.encode_ordinary_batch([TEXT, "low"], 1),
    "encode_with_offsets": lambda t: vars(t.encode_with_offsets(TEXT))["_source"].result(0).tokens,
    "offsets": lambda t: t.encode_with_offsets(TEXT, True, "all").offsets,
    "encode_batch": batch,
    "encode_streaming": lambda t: sum(t.encode_streaming([TEXT], "all"), []),
    "encode_iterable": lambda t: [*t.encode_iterable([TEXT], "all")],
    "session": lambda t: t.incremental(allowed_special="all").encode(TEXT, add_special_tokens=True),
    "count_tokens": lambda t: t.count_tokens("the cat sat<s>", True, "all"),
    "count_tokens, plain": lambda t: t.count_tokens("the cat sat", True),
    "truncate": lambda t: t.truncate(TEXT, 9, True, allowed_special="all"),
    "tokenize": lambda t: t.tokenize(TEXT, allowed_special="all"),
    "chunk": lambda t: [piece.text for piece in t.chunk(TEXT, 5)],
    "decode": lambda t: t.decode(range(278)),
    "decode, skip": lambda t: t.decode(range(278), skip_special_tokens=True),
    "decode_batch": lambda t: t.decode_batch([[*range(278)], [277, 256, 97, 277]]),
    "decode_streaming": lambda t: [*t.decode_streaming(range(278), True)],
    "get_vocab": lambda t: t.get_vocab(),
    "merges": lambda t: t.merges,
    "ids of tokens": lambda t: t.convert_tokens_to_ids(["<s>", "low", "</s>", "cat"]),
    "tokens of ids": lambda t: t.convert_ids_to_tokens([*range(256, 278)]),
    "chat, alpaca": lambda t: t.apply_chat_template(USER, "alpaca"),
    "chat, Jinja": jinja,
    "chat, a session": lambda t: jinja(t, session=t.incremental()),
    "copy": lambda t: copy.copy(t).get_vocab(),
    "with_vocab_size": lambda t: t.with_vocab_size(264).get_vocab(),
    "pickle": pickle.dumps,
    "fingerprint": lambda t: t.fingerprint,
    "repr": repr,
    "pad_token": lambda t: (t.pad_token,),
    "pad_token_id": lambda t: t.pad_token_id,
}


def run_changing(
    tokenizer: BPETokenizer, call: Callable[[BPETokenizer], Any], at: int
) -> tuple[bool, Any]:
    """Make a call at whose line number `at` another thread changes the tokenizer.

    Returns whether that happened, and the result.  The change waits while the call itself writes,
    to a copy that it makes.
    """
    left, changed = at, False

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left, changed
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        if event == "line":
            left -= 1
            if left <= 0 and not bpe_tokenizer._writing._is_owned():
                sys.settrace(None)
                changed = True
                other = threading.Thread(target=change, args=(tokenizer,))
                other.start()
                other.join()
        return trace

    tracing = sys.gettrace()
    sys.settrace(trace)
    try:
        result = call(tokenizer)
    finally:
        sys.settrace(tracing)
    return changed, result


@pytest.mark.parametrize("name", CALLS)
def test_a_call_sees_one_state_wherever_another_thread_changes_it(name: str) -> None:
    call, packed = CALLS[name], pickle.dumps(before())
    old, new = call(pickle.loads(packed)), pickle.loads(packed)
    change(new)
    expected = [old, call(new)]
    assert expected[0] != expected[1]
    at, reached = 1, True
    while reached:
        reached, result = run_changing(pickle.loads(packed), call, at)
        assert result in expected, f"at line {at}"
        at += 1 if at < 24 else at // 6
    assert at > 2


# -- Threads ---------------------------------------------------------------------


def run_at_once(*calls: Callable[[], object]) -> None:
    """Make calls, each in a thread of its own, which take turns often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=call) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)


def test_writers_lose_nothing() -> None:
    tokenizer, n = before(), 60

    def add(which: str) -> None:
        for i in range(n):
            tokenizer.add_special_tokens([f"<{which}{i}>"])

    def train() -> None:
        tokenizer.train(counts={b"low": 9, b" mat": 2}, vocab_size=600, verbose=False)
        tokenizer.pad_token = "<s>"

    run_at_once(*(lambda which=which: add(which) for which in "xyz"), train)  # type: ignore[misc]
    added = {f"<{which}{i}>" for which in "xyz" for i in range(n)}
    assert added < tokenizer.special_tokens.keys()
    ids = [token.id for token in tokenizer.added_tokens]
    assert len({*ids}) == len(ids) and tokenizer.pad_token == "<s>"


def test_two_threads_that_set_roles_lose_none() -> None:
    for _ in range(20):
        tokenizer = BPETokenizer()
        tokenizer.add_special_tokens(["<1>", "<2>", "<3>"])

        def name(role: str, tokenizer: BPETokenizer = tokenizer) -> None:
            setattr(tokenizer, role, f"<{len(role) % 3 + 1}>")

        roles = ["bos_token", "eos_token", "pad_token", "unk_token"]
        run_at_once(*(lambda role=role: name(role) for role in roles))  # type: ignore[misc]
        assert None not in [getattr(tokenizer, role) for role in roles]
        assert tokenizer.encode("", True) == [tokenizer.bos_token_id, tokenizer.eos_token_id]


@pytest.mark.parametrize(
    "how", [{}, {"style": "sentencepiece"}, {"superwords": 300}], ids=["bytes", "chars", "words"]
)
def test_tokens_added_while_another_thread_trains_stay(how: dict[str, Any]) -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["<early>"])

    def corpus() -> Iterator[str]:
        yield "by the way, he said. " * 20
        thread = threading.Thread(target=tokenizer.add_special_tokens, args=(["<late>"],))
        thread.start()
        thread.join()
        yield "by the way, she said. " * 20

    size = 40 if "style" in how else 310
    if "style" in how:
        how = {**how, "byte_fallback": False}
    tokenizer.train(corpus(), size, verbose=False, **how)
    assert {"<early>", "<late>"} <= tokenizer.special_tokens.keys()
    text = "by the way<late>"
    ids = tokenizer.encode(text, allowed_special="all")
    assert ids[-1] == tokenizer.special_tokens["<late>"] and tokenizer.decode(ids) == text


def test_readers_beside_a_writer_see_old_or_new() -> None:
    tokenizer, other = before(), before()
    change(other)
    names = "encode, all", "encode_batch", "count_tokens", "decode, skip"
    calls, expected = [CALLS[name] for name in names], []
    definitions = tokenizer.definition, other.definition
    for definition in definitions:
        with tokenizer._changed() as new:
            new._install(definition)
        expected.append([call(tokenizer) for call in calls])
    assert all(old != new for old, new in zip(*expected))
    wrong: list[Any] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            for call, right in zip(calls, zip(*expected)):
                if (got := call(tokenizer)) not in right:
                    wrong.append(got)

    def write() -> None:
        try:
            for i in range(40):
                with tokenizer._changed() as new:
                    new._install(definitions[i % 2])
        finally:
            done.set()

    run_at_once(read, read, read, write)
    assert not wrong


def test_what_fails_changes_nothing() -> None:
    tokenizer = before()
    packed = pickle.dumps(tokenizer)
    with pytest.raises(ValueError, match="already"):
        tokenizer.add_special_tokens({"<new>": None, "<other>": 97})
    with pytest.raises(ValueError, match="pad_token"):
        tokenizer.pad_token = "<unknown>"
    with pytest.raises(TypeError):
        tokenizer.chat_template = 5  # type: ignore[assignment]
    assert pickle.dumps(tokenizer) == packed
    assert tokenizer.add_special_tokens(["<new>"]) == 1  # nothing stays locked


@forks
def test_a_child_forked_while_another_thread_writes_can_write() -> None:
    tokenizer, held, done = before(), threading.Event(), threading.Event()

    def hold() -> None:
        with tokenizer._changed():
            held.set()
            done.wait(600)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(600)
    child = os.fork()
    if child == 0:
        os._exit(tokenizer.add_special_tokens(["<new>"]) - 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


# -- What a subclass, or an object itself, does in its own way ---------------------


class Noting(BPETokenizer):
    """Notes which of its own methods were called, and that it was on the object itself."""

    def __init__(self) -> None:
        super().__init__("cl100k")
        self.add_special_tokens(["<s>"])
        self.calls: list[str] = []
        self.n = 0
        self.me: Noting | None = self

    def _note(self, name: str) -> None:
        assert self.me is self
        self.calls.append(name)
        self.n += 1  # another attribute, each time

    def encode(self, text: str, *args: Any, **options: Any) -> list[int]:
        self._note("encode")
        return super().encode(text, *args, **options)

    def decode(self, *args: Any, **options: Any) -> str:
        self._note("decode")
        return super().decode(*args, **options)

    def convert_tokens_to_ids(self, t: Any) -> Any:
        self._note("convert_tokens_to_ids")
        return super().convert_tokens_to_ids(t)


@pytest.mark.parametrize(
    ("call", "method"),
    [
        (lambda t: t("a"), "encode"),
        (lambda t: t(["a"]), "encode"),
        (lambda t: t.encode_ordinary("a"), "encode"),
        (lambda t: t.encode_ordinary_batch(["a"]), "encode"),
        (lambda t: t.encode_batch(["a"], allowed_special="all"), "encode"),
        (lambda t: t.encode_with_offsets("a"), "encode"),
        (lambda t: t.count_tokens("a", seed=1), "encode"),
        (lambda t: t.tokenize("a"), "encode"),
        (lambda t: t.incremental().encode("a"), "encode"),
        (lambda t: t.convert_tokens_to_ids(["a"]), "convert_tokens_to_ids"),
    ],
)
def test_a_subclass_is_asked(call: Callable[[BPETokenizer], Any], method: str) -> None:
    tokenizer = Noting()
    call(tokenizer)
    assert method in tokenizer.calls and tokenizer.n == len(tokenizer.calls)
    tokenizer.me = None  # or it would be garbage in a circle


def test_a_method_set_on_an_object_is_used_until_it_is_deleted() -> None:
    tokenizer = before()
    ids = tokenizer.encode("the mat")
    with mock.patch.object(tokenizer, "encode", lambda *_, **__: [97]):
        assert tokenizer.tokenize("the mat") == ["a"]
        assert tokenizer("the mat") == [97]
    assert tokenizer("the mat") == ids
    assert tokenizer.tokenize("the mat") == tokenizer.convert_ids_to_tokens(ids)
