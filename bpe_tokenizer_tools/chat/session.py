"""Chat with a model: messages in, text out, with this library's tokenizer at both ends.

    session = Session("model.gguf")
    for piece in session.reply("What is a merge?"):
        print(piece, end="", flush=True)

The tokenizer is compared with the model before any weights are loaded; by default it is the
model's own.  `bpe_tokenizer_tools.backends` runs the model, and
`bpe_tokenizer_tools.chat.conversation` keeps the conversation.
"""

from __future__ import annotations

import inspect
import os
import sys
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

from bpe_tokenizer import BPETokenizer, InferenceBackend
from bpe_tokenizer_tools import backends, core
from bpe_tokenizer_tools.backends import checks, fit
from bpe_tokenizer_tools.chat.conversation import Conversation
from bpe_tokenizer_tools.chat.templates import check_variables
from bpe_tokenizer_tools.prompts.completing import beyond
from bpe_tokenizer_tools.prompts.healing import CoveringTree
from bpe_tokenizer_tools.support.text import say

Reply = core.Reply

_OPTIONS = (
    *("model", "tokenizer", "template", "system_prompt", "backend", "n_gpu_layers", "n_ctx"),
    *("tools", "documents", "chat_template", "content_tokens", "sanitize_control_tokens"),
)


class Session:
    """A conversation with a model.

    Args:
        model: the path of a model: a .gguf file or a directory.
        tokenizer: the one the model was trained with; by default, the model's own.
        template: as for `BPETokenizer.apply_chat_template`.
        system_prompt: the first message, if it is not empty and no other is a system message.
        backend: as for `backends.open_model`.
        n_gpu_layers: as for `backends.open_model`.
        n_ctx: as for `backends.open_model`.
        variables: that the template reads, such as ``enable_thinking``; ``tools``, ``documents``
            and ``content_tokens``.

    Attributes:
        tokenizer: the tokenizer in use.
        model: the `Backend` in use.
        conversation: the `Conversation`.
        last: the `Reply` of the last call of `reply`, or the one in progress.

    Raises:
        ValueError: the tokenizer does not fit the model, or there is none; or the template
            writes control tokens that the tokenizer does not have.
        TypeError: the template does not read such a variable.
        FileNotFoundError, FileFormatError, ImportError, RuntimeError: as `open_model`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        tokenizer: BPETokenizer | None = None,
        template: Any = None,
        system_prompt: str | None = None,
        backend: InferenceBackend | str | None = None,
        n_gpu_layers: int = -1,
        n_ctx: int = 8192,
        **variables: Any,
    ) -> None:
        if tokenizer is not None:  # the template is known before the model is looked for
            check_variables("Session()", variables, _OPTIONS, template, tokenizer)
        files = backends.find(model, backend)
        if tokenizer is None:
            tokenizer = fit.load_own(files)
            if tokenizer is None:
                raise ValueError(f"{model}: has no tokenizer; pass the one it was trained with")
            check_variables("Session()", variables, _OPTIONS, template, tokenizer)
            fit.check(tokenizer, files, is_own=True)
        else:
            fit.check(tokenizer, files)
        self.tokenizer = tokenizer
        self.conversation = Conversation(tokenizer, template, system_prompt, **variables)
        self.conversation.check_template()
        self.model = backends.open_model(model, backend, n_gpu_layers=n_gpu_layers, n_ctx=n_ctx)
        self.last = Reply()
        self._running: Callable[[], Generator[str, None, None] | None] = lambda: None

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end an answer: from the tokenizer's roles, the template and the model."""
        named = (self.tokenizer.eos_token, self.conversation.end_of_turn)
        control = self.tokenizer.special_tokens
        ids = {control[token] for token in named if token in control} | self.model.stop_ids
        return frozenset(id_ for id_ in ids if id_ < self.model.vocab_rows)

    def reply(
        self,
        content: str | None = None,
        max_new_tokens: int = 512,
        temperature: float = 0.7,
        top_p: float = 0.9,
        top_k: int = 0,
        seed: int | None = None,
        stop: Iterable[str] = (),
        heal: bool = False,
        continue_final_message: bool = False,
        timeout: float | None = None,
    ) -> Iterator[str]:
        """Yield an answer, piece by piece, as the model generates it.

        The question and the answer become part of the conversation: all text that was
        yielded, and its ids.  Closing the iterator, Ctrl-C, or another call ends the answer,
        and what was yielded so far is kept.  If nothing was yielded, or if the model fails,
        the question is removed, and the conversation is as it was before.

        Args:
            content: the user's message; None answers the conversation as it is.
            max_new_tokens: as for `Backend.generate`, like the next four.
            temperature: see there.
            top_p: see there.
            top_k: see there.
            seed: see there.
            stop: also end before the first place where one of these strings begins.
            heal: let the model choose the tokens at the end of the prompt, after its last control
                token, as `bpe_tokenizer_tools.prompts.heal` does; they count as new tokens.
            continue_final_message: continue the last message, which must be the assistant's;
                the answer is appended to it.  With `heal`, it may end within a word.
            timeout: how many seconds to wait at most while another thread uses the model; None
                waits as long as it takes.

        Raises:
            ValueError: the prompt leaves no room for an answer; an argument is wrong; the
                template refuses the conversation.  Then `content` was not added.
            RuntimeError: another thread is reading an answer of this session.  With the first
                piece: the model fails; or another session of the same thread holds it, with an
                answer that was neither used up nor closed.
            TimeoutError: with the first piece, if another thread still uses the model.
        """
        stops = checks.stop_texts(stop)
        if not isinstance(continue_final_message, bool):
            got = core.shorten(continue_final_message)
            raise TypeError(f"continue_final_message must be True or False here, got {got}")
        if continue_final_message and content is not None:
            raise ValueError("continue_final_message continues an answer: pass no content")
        running = self._running()
        if running:
            if inspect.getgeneratorstate(running) == inspect.GEN_RUNNING:
                problem = "another thread is reading an answer of this session"
                raise RuntimeError(f"{problem}: wait for it, or give each thread its own session")
            running.close()
        talk, self.last = self.conversation, Reply()
        if content is not None:
            talk.add("user", content)
        try:
            prompt = talk.prompt(continue_final_message)
            healed = talk.heal() if heal else None
            prompt = healed.ids if healed else prompt
            self.last = Reply(prompt_tokens=len(prompt))
            ids = self.model.generate(
                prompt,
                max_new_tokens,
                temperature,
                top_p,
                top_k,
                seed,
                stop_ids := self.stop_ids,
                n_tokens=self.tokenizer.max_id + 1,
                healed=healed,
                timeout=timeout,
            )
        except BaseException:
            self._take_back(content is not None)
            raise
        stream = self._stream(ids, stop_ids, stops, content is not None, healed)
        next(stream)  # a generator can only be closed after it has started
        self._running = weakref.ref(stream)
        return stream

    def _take_back(self, with_question: bool) -> None:
        self.conversation.forget_prompt()
        if with_question:
            self.conversation.undo()

    def _stream(
        self,
        ids: Iterator[int],
        stop_ids: frozenset[int],
        stops: list[str],
        is_asked: bool,
        healed: CoveringTree | None,
    ) -> Generator[str, None, None]:
        reply, taken, given = self.last, list[int](), list[str]()
        messages = list(self.conversation.messages)

        def noted() -> Iterator[int]:
            for id_ in ids:
                taken.append(id_)
                yield id_

        def stopped() -> None:
            reply.finish = "stop"

        try:
            yield ""
            kept = core.until_stop(noted(), stop_ids, reply)
            if healed:
                pieces = beyond(self.tokenizer, kept, healed.prefix)
            else:
                pieces = self.tokenizer.decode_streaming(kept, skip_special_tokens=True)
            for piece in core.until(pieces, stops, stopped):
                given.append(piece)
                yield piece
        except Exception:
            reply.finish = "error"
            raise
        finally:
            ids.close()  # type: ignore[attr-defined]
            reply.text = "".join(given)
            is_lost = reply.finish == "error" or (reply.finish == "cancelled" and not given)
            if self.conversation.messages == messages:  # else it was changed in the meantime
                lead = healed.prefix.decode() if healed else ""  # the ids begin with it
                self._take_back(is_asked) if is_lost else self._keep(taken, lead + reply.text)

    def _keep(self, ids: list[int], text: str) -> None:
        """Keep an answer: its text, and the first ids whose text isn't longer."""
        end = len(ids)
        while not text.startswith(said := self.tokenizer.decode(ids[:end], True)):
            end -= 1
        self.conversation.answer(ids[:end], rest=text[len(said) :])


def chat(
    tokenizer: BPETokenizer,
    messages: Iterable[Mapping[str, Any]],
    model: str | os.PathLike[str],
    *,
    stream: bool = False,
    verbose: bool = False,
    **options: Any,
) -> Any:
    """Answer a conversation; see `BPETokenizer.chat`."""
    check_variables("chat()", options, core.CHAT_OPTIONS, options.get("template"), tokenizer)
    names = ["max_new_tokens", "temperature", "top_p", "top_k", "seed", "stop", "heal"]
    names += ["continue_final_message", "timeout"]
    sampling = {name: options.pop(name) for name in names if name in options}
    session = Session(model, tokenizer, **options)
    session.conversation.extend(messages)
    if verbose:
        say(f"{session.model!r}, context {session.model.context}", sys.stderr)
    pieces = session.reply(**sampling)
    if stream:
        return pieces
    text = "".join(pieces)
    if verbose:
        print(session.last, file=sys.stderr)
    return text
