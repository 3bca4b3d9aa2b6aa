"""Chat with a model: messages in, text out, this library's tokenizer at both ends.

    session = Session("model.gguf")
    for piece in session.reply("What is a merge?"):
        print(piece, end="", flush=True)

Before any weights are loaded the tokenizer is compared with the model; without one, the
model's own is taken.  See `bpe_tokenizer_tools.backends` for what runs the model, and
`bpe_tokenizer_tools.conversation` for what is kept of the conversation.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bpe_tokenizer import InferenceBackend
from bpe_tokenizer_tools import backends
from bpe_tokenizer_tools.backends import fit
from bpe_tokenizer_tools.conversation import Conversation

if TYPE_CHECKING:
    from bpe_tokenizer import BPETokenizer


@dataclass
class Reply:
    """What an answer took.

    Attributes:
        text: the answer.
        prompt_tokens: how many ids the model was given.
        new_tokens: how many it generated, the stop token included.
        seconds: how long that took.
        finish: "stop", it came to an end; "length", it was cut off; "cancelled".
    """

    text: str = ""
    prompt_tokens: int = 0
    new_tokens: int = 0
    seconds: float = 0.0
    finish: str = "cancelled"

    @property
    def tokens_per_second(self) -> float:
        """How fast the answer was generated, the prompt's reading included."""
        return self.new_tokens / self.seconds if self.seconds else 0.0


class Session:
    """A conversation with a model.

    Args:
        model: the path of a model: a .gguf file or a directory.
        tokenizer: the one the model was trained with; by default, the model's own.
        template: as for `BPETokenizer.apply_chat_template`.
        system_prompt: the first message, if any.
        backend: as for `backends.open_model`.
        n_gpu_layers: as for `backends.open_model`.
        n_ctx: as for `backends.open_model`.
        variables: of the template, ``tools`` and ``documents`` among them.

    Attributes:
        tokenizer: the tokenizer in use.
        model: the `Backend` in use.
        conversation: the `Conversation`.
        last: the `Reply` that the last call of `reply` is, or was, about.

    Raises:
        ValueError: the tokenizer does not fit the model, or none is there; or no template.
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
        files = backends.find(model, backend)
        if tokenizer is None:
            tokenizer = fit.load_own(files)
            if tokenizer is None:
                raise ValueError(f"{model}: brings no tokenizer; pass the one it was trained with")
        else:
            fit.check(tokenizer, files)
        if not (template or tokenizer.chat_template or "<|eot_id|>" in tokenizer.special_tokens):
            raise ValueError(
                f"{model}: brings no chat template, and none is given; name the one it was trained "
                "with: llama3, chatml, alpaca, or its Jinja source"
            )
        self.tokenizer = tokenizer
        self.conversation = Conversation(tokenizer, template, system_prompt, **variables)
        self.model = backends.open_model(model, backend, n_gpu_layers=n_gpu_layers, n_ctx=n_ctx)
        self.last = Reply()

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end an answer: of the tokenizer's roles, the template and the model."""
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
    ) -> Iterator[str]:
        """Yield an answer, piece by piece, as the model generates it.

        Closing the iterator, or Ctrl-C, ends the answer; what was generated so far is
        kept as the answer, as it is when it is complete.

        Args:
            content: what the user says; None answers the conversation as it is.
            max_new_tokens: as for `Backend.generate`, like the next four.
            temperature: see there.
            top_p: see there.
            top_k: see there.
            seed: see there.
            stop: end, too, before any of these strings would be given.

        Raises:
            ValueError: the prompt leaves no room for an answer; an argument is wrong; the
                template refuses the conversation.  Then `content` was not added.
        """
        stops = [stop] if isinstance(stop, str) else list(stop)
        if not all(isinstance(each, str) and each for each in stops):
            raise ValueError(f"stop must be strings that are not empty, got {stops!r:.60}")
        talk, self.last = self.conversation, Reply()
        if content is not None:
            talk.add("user", content)
        try:
            prompt = talk.prompt()
            self.last = Reply(prompt_tokens=len(prompt))
            highest = max(self.tokenizer.get_vocab().values(), default=0)
            ids = self.model.generate(
                prompt,
                max_new_tokens,
                temperature,
                top_p,
                top_k,
                seed,
                stop_ids := self.stop_ids,
                n_tokens=highest + 1,
            )
        except BaseException:
            if content is not None:
                talk.undo()
            raise
        return self._stream(ids, stop_ids, stops, max_new_tokens)

    def _stream(
        self, ids: Iterator[int], stop_ids: frozenset[int], stops: list[str], limit: int
    ) -> Iterator[str]:
        reply, taken, given = self.last, list[int](), list[str]()
        started = time.perf_counter()

        def kept() -> Iterator[int]:
            for id_ in ids:
                taken.append(id_)
                reply.new_tokens, reply.seconds = len(taken), time.perf_counter() - started
                if id_ in stop_ids:
                    reply.finish = "stop"
                    return
                yield id_
            reply.finish = "length"

        try:
            pieces = self.tokenizer.decode_streaming(kept(), skip_special_tokens=True)
            for piece in _until(pieces, stops, reply):
                given.append(piece)
                yield piece
        finally:
            ids.close()  # type: ignore[attr-defined]
            reply.text = "".join(given)
            cut = reply.text if stops and reply.finish == "stop" else None
            self.conversation.answer(taken, cut)


def _until(pieces: Iterable[str], stops: list[str], reply: Reply) -> Iterator[str]:
    """Yield text up to the first of some strings; what may be the beginning of one waits."""
    held = ""
    for piece in pieces:
        held += piece
        places = [held.find(stop) for stop in stops if stop in held]
        if places:
            reply.finish = "stop"
            if min(places):
                yield held[: min(places)]
            return
        waits = max(
            (n for stop in stops for n in range(1, len(stop)) if held.endswith(stop[:n])), default=0
        )
        if len(held) > waits:
            yield held[: len(held) - waits]
            held = held[len(held) - waits :]
    if held:
        yield held


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
    names = ("max_new_tokens", "temperature", "top_p", "top_k", "seed", "stop")
    sampling = {name: options.pop(name) for name in names if name in options}
    session = Session(model, tokenizer, **options)
    session.conversation.extend(messages)
    if verbose:
        print(f"{session.model!r}, context {session.model.context}", file=sys.stderr)
    pieces = session.reply(**sampling)
    if stream:
        return pieces
    text = "".join(pieces)
    if verbose:
        last = session.last
        print(
            f"{last.prompt_tokens} + {last.new_tokens} tokens, {last.tokens_per_second:.1f} a "
            f"second, ended by {last.finish}",
            file=sys.stderr,
        )
    return text
