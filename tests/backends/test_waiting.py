"""Threads that use one model: each call waits for the others, and never for itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import backends
from bpe_tokenizer_tools.backends.model_files import ModelFiles
from bpe_tokenizer_tools.chat.session import Session

LONG = 30.0  # seconds; a test that waits as long has failed
FILES = ModelFiles(Path("some/tiny.gguf"), "gguf", 300, "float32", 256)


class Counting(backends.Backend):
    """Says the number of ids read; where told to, it waits before it reads."""

    name = "counting"

    def _load(self, loading: Any) -> None:
        self.read: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def _forget(self) -> None:
        self.read.clear()

    def _feed(self, ids: list[int]) -> Any:
        self.entered.set()
        assert self.gate.wait(LONG)
        self.read += ids
        logits = need("numpy").zeros(300)
        logits[len(self.read)] = 9
        return logits


class CountingAlone(bpe_tokenizer._Runner):
    """The same, without what the tools add."""

    name = "counting"
    _load, _forget, _feed = Counting._load, Counting._forget, Counting._feed

    def generate(self, prompt: list[int], n: int, timeout: float | None = None) -> Iterator[int]:
        how = bpe_tokenizer._Sampling(0.0, 0, 1.0, None)
        return self._generate(prompt, n, how, (), 300, bpe_tokenizer._check_timeout(timeout))


@pytest.fixture(params=["tools", "alone"])
def model(request: pytest.FixtureRequest) -> Any:
    need("numpy")
    if request.param == "alone":
        return CountingAlone(FILES, bpe_tokenizer._Loading())  # type: ignore[arg-type]
    return Counting(FILES)


def answer(model: Any, n: int = 3, timeout: float | None = LONG) -> list[int]:
    return list(model.generate([1, 2, 3], n, timeout=timeout))


def in_thread(run: Callable[[], Any], name: str) -> tuple[threading.Thread, list[Any]]:
    """Start a thread; return it, and what will hold its result or its error."""
    results: list[Any] = []

    def keep() -> None:
        try:
            results.append(run())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=keep, name=name)
    thread.start()
    return thread, results


# -- The lock ------------------------------------------------------------------------


def test_another_thread_waits(model: Any) -> None:
    model.gate.clear()
    first, answers = in_thread(lambda: answer(model), "first")
    assert model.entered.wait(LONG)
    second, others = in_thread(lambda: answer(model), "second")
    second.join(0.1)
    assert second.is_alive() and not others
    model.gate.set()
    first.join(LONG)
    second.join(LONG)
    assert answers == others == [[3, 4, 5]]


def test_waiting_ends_with_an_error_that_names_the_holder(model: Any) -> None:
    stream = model.generate([1, 2, 3], 5)
    begun, _ = in_thread(lambda: next(stream), "the first reader")
    begun.join(LONG)
    for timeout in (0, 0.05):
        with pytest.raises(TimeoutError) as caught:
            answer(model, timeout=timeout)
        said = f"the thread 'the first reader' still holds the model after {timeout:g} seconds"
        assert said in str(caught.value) and "some/tiny.gguf" in str(caught.value)
        assert "close() the iterator" in str(caught.value)
    stream.close()
    assert answer(model, timeout=0) == [3, 4, 5]


def test_a_thread_does_not_wait_for_itself(model: Any) -> None:
    stream = model.generate([1, 2, 3], 5)
    assert next(stream) == 3
    for timeout in (None, 0, LONG):
        with pytest.raises(RuntimeError, match=r"use up or close\(\) that iterator first"):
            answer(model, timeout=timeout)
    assert list(stream) == [4, 5, 6, 7]
    assert answer(model) == [3, 4, 5]


def test_an_answer_belongs_to_the_thread_that_reads_it(model: Any) -> None:
    stream = model.generate([1, 2, 3], 5)
    begun, got = in_thread(lambda: next(stream), "worker")
    begun.join(LONG)
    assert got == [3] and next(stream) == 4  # from here on it is this thread's
    with pytest.raises(RuntimeError, match=r"close\(\) that iterator"):
        answer(model, timeout=0)
    other, errors = in_thread(lambda: answer(model, timeout=0), "other")
    other.join(LONG)
    assert isinstance(errors[0], TimeoutError) and "'MainThread'" in str(errors[0])
    stream.close()
    assert answer(model, timeout=0) == [3, 4, 5]


def test_an_error_of_the_model_ends_the_waiting(model: Any) -> None:
    def fail(ids: list[int]) -> Any:
        model.entered.set()
        assert model.gate.wait(LONG)
        raise ValueError("no memory")

    feed, model._feed = model._feed, fail
    model.gate.clear()
    first, errors = in_thread(lambda: answer(model), "first")
    assert model.entered.wait(LONG)
    second, answers = in_thread(lambda: answer(model), "second")
    model._feed = feed
    model.gate.set()
    first.join(LONG)
    second.join(LONG)
    assert isinstance(errors[0], RuntimeError) and "no memory" in str(errors[0])
    assert answers == [[3, 4, 5]]


def test_a_model_released_while_a_call_waits_is_not_used() -> None:
    need("numpy")
    model = Counting(FILES)
    model.gate.clear()
    first, errors = in_thread(lambda: answer(model), "first")  # type: ignore[arg-type]
    assert model.entered.wait(LONG)
    second, others = in_thread(lambda: answer(model), "second")
    model.close()
    model.gate.set()
    first.join(LONG)
    second.join(LONG)
    for error in (*errors, *others):
        assert isinstance(error, RuntimeError) and "was released while it was in use" in str(error)
    assert model._released and not model._lock.locked()


@pytest.mark.parametrize("timeout", ["5", True, [1]])
def test_a_timeout_is_seconds(timeout: Any) -> None:
    need("numpy")
    with pytest.raises(TypeError, match="timeout must be seconds or None"):
        Counting(FILES).generate([1], timeout=timeout)
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="timeout must be 0 seconds or more"):
            Counting(FILES).generate([1], timeout=wrong)
    assert list(Counting(FILES).generate([1], 1, timeout=float("inf"))) == [1]


def test_threads_load_a_model_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, together = [], threading.Barrier(4)

    class Slow:
        packages = ()

        def __init__(self, files: Any, loading: Any) -> None:
            loaded.append(files.path)
            threading.Event().wait(0.05)

    (tmp_path / "config.json").write_text('{"vocab_size": 9}')
    (tmp_path / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    monkeypatch.setattr(bpe_tokenizer, "_loaded", {})
    monkeypatch.setitem(bpe_tokenizer._RUNNERS, "transformers", Slow)  # type: ignore[arg-type]
    monkeypatch.setattr(bpe_tokenizer, "_is_installed", lambda package: True)

    def open_model(_: int) -> Any:
        together.wait(LONG)
        return bpe_tokenizer._open_model(tmp_path, "transformers", bpe_tokenizer._Loading())

    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(open_model, range(4))}) == len(loaded) == 1


# -- Chats ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chatted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BPETokenizer, Path]]:
    """A tokenizer, and a model that transformers runs."""
    for package in tiny_models.PACKAGES["transformers"]:
        need(package)
    yield (
        tiny_models.tokenizer(),
        tiny_models.write(tmp_path_factory.mktemp("m"), "transformers", False),
    )
    backends.unload()


def ask(chatted: tuple[BPETokenizer, Path], question: str, **options: Any) -> Any:
    tokenizer, path = chatted
    given = {"backend": "transformers", "temperature": 0, "max_new_tokens": 6, **options}
    return tokenizer.chat([{"role": "user", "content": question}], path, "alpaca", **given)


@pytest.mark.parametrize("with_tools", [True, False])
def test_threads_that_chat_take_turns(
    chatted: tuple[BPETokenizer, Path], with_tools: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_tools:  # as where the module is alone
        monkeypatch.setattr(bpe_tokenizer, "_WITH_TOOLS", False)
    questions = ["Hi", "What?", "a b c", "Who is it"]
    alone = [ask(chatted, question) for question in questions]
    assert len({*alone}) > 1
    with ThreadPoolExecutor(4) as pool:
        together = pool.map(lambda question: ask(chatted, question, timeout=LONG), questions * 3)
        assert list(together) == alone * 3
    stream = ask(chatted, "Hi", stream=True)
    begun = next(stream)
    with pytest.raises(RuntimeError, match=r"close\(\) that iterator"):
        ask(chatted, "Hi", timeout=0)
    other, errors = in_thread(lambda: ask(chatted, "Hi", timeout=0.05), "other")
    other.join(LONG)
    assert isinstance(errors[0], TimeoutError) and "'MainThread' still holds" in str(errors[0])
    other, answers = in_thread(lambda: ask(chatted, "Hi"), "patient")
    assert begun + "".join(stream) == alone[0]
    other.join(LONG)
    assert answers == [alone[0]]


def test_a_session_that_waited_in_vain_is_as_before(chatted: tuple[BPETokenizer, Path]) -> None:
    tokenizer, path = chatted
    session = Session(path, tokenizer, "alpaca", backend="transformers")
    stream = ask(chatted, "Hi", stream=True)
    begun, _ = in_thread(lambda: next(stream), "other")
    begun.join(LONG)
    with pytest.raises(TimeoutError, match="'other' still holds"):
        "".join(session.reply("Hi", max_new_tokens=4, timeout=0.01))
    assert session.conversation.messages == [] and session.last.finish == "error"
    stream.close()
    assert "".join(session.reply("Hi", max_new_tokens=4, timeout=0.01))
    with pytest.raises(TypeError, match="timeout must be seconds"):
        session.reply("Hi", timeout="soon")  # type: ignore[arg-type]
    assert len(session.conversation.messages) == 2


def test_a_session_that_another_thread_uses_says_so(
    chatted: tuple[BPETokenizer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, path = chatted
    session = Session(path, tokenizer, "alpaca", backend="transformers")
    feed, entered, gate = session.model._feed, threading.Event(), threading.Event()

    def wait(ids: list[int]) -> Any:
        entered.set()
        assert gate.wait(LONG)
        return feed(ids)

    monkeypatch.setattr(session.model, "_feed", wait)
    other, answers = in_thread(lambda: "".join(session.reply("Hi", 4, 0)), "other")
    assert entered.wait(LONG)
    with pytest.raises(RuntimeError, match="another thread is reading an answer of this session"):
        session.reply("What?")
    gate.set()
    other.join(LONG)
    assert [message["content"] for message in session.conversation.messages] == ["Hi", *answers]
