"""What all backends share: checked arguments, one loop, one way to draw a token.

A backend is a model that is loaded, and one operation on it: take some ids behind those
it has, and say how likely each id is to come next.  Everything else is done here, so
that it is the same whatever library computes:

- what is asked for is checked before the library sees it, some of which crash or compute
  nonsense on an id that is out of range;
- ids are drawn by the module's sampler;
- a prompt is fed in blocks, between which Ctrl-C and closing the iterator take effect.
"""

from __future__ import annotations

import contextlib
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.backends import checks
from bpe_tokenizer_tools.backends.checks import integer
from bpe_tokenizer_tools.backends.model_files import ModelFiles

Logits = Any  # a numpy array of float32, one for each id


class Request(NamedTuple):
    """What `Backend.generate` was asked for, checked."""

    prompt: list[int]
    max_new_tokens: int
    settings: core.Sampling
    seed: int | None
    stop_ids: frozenset[int]
    n_tokens: int


class Backend(ABC):
    """A model that one of the libraries has loaded.

    Attributes:
        name: of the backend: "llama.cpp", "MLX", "OpenVINO" or "Transformers".
        path: the model.
        vocab_rows: how many ids the model has; every id must be below.
        context: how many tokens fit, prompt and answer together; None if not known.
        stop_ids: the ids with which the model says that it has finished, as its files
            have them.
        device: what it computes on, in words.
    """

    name = ""
    block = 256  # ids fed at once; Ctrl-C takes effect between blocks

    def __init__(self, files: ModelFiles, n_ctx: int = 0) -> None:
        self.path: Path = files.path
        self.files = files
        limits = [limit for limit in (n_ctx, files.context) if limit]
        self.context: int | None = min(limits) if limits else None
        self.stop_ids = frozenset(files.eos_ids)
        self.device = "CPU"
        self.vocab_rows = files.rows
        self._held: list[int] | None = []  # the ids the model has taken; None: it is unknown
        self._lock = threading.Lock()
        self._closed = self._released = False

    # -- What each library does ---------------------------------------------------

    @abstractmethod
    def _feed(self, ids: list[int]) -> Logits:
        """Take ids behind those taken before; return the logits of the next one."""

    @abstractmethod
    def _forget(self) -> None:
        """Forget the ids taken."""

    @abstractmethod
    def _release(self) -> None:
        """Free the model."""

    # -- Generating ---------------------------------------------------------------

    def generate(
        self,
        prompt_ids: Iterable[int],
        max_new_tokens: int = 512,
        temperature: float = 0.7,
        top_p: float = 0.9,
        top_k: int = 0,
        seed: int | None = None,
        stop_ids: Iterable[int] = (),
        n_tokens: int | None = None,
    ) -> Iterator[int]:
        """Yield the ids that the model puts behind a prompt, one by one.

        Closing the iterator, or Ctrl-C, stops the work; the next call starts afresh.
        A prompt that goes on from all that the last call read and wrote, as in a chat,
        is only read from where it goes on, unless there is a seed: what the model
        computes for it may then differ in the last bits from reading all of it.

        Args:
            prompt_ids: at least one.
            max_new_tokens: how many at most; fewer if no more fit the context.
            temperature: the logits are divided by it, first of all; 0 takes the most
                likely id always.
            top_p: then only the most likely ids are left that together have this
                probability among those that `top_k` left.
            top_k: only that many of the most likely ids are left; 0 for all.
            seed: the same call with the same seed yields the same ids.
            stop_ids: end with the first of these, which is the last id yielded.
            n_tokens: ids from here on are never drawn: a model may have more rows than
                the tokenizer has tokens.

        Raises:
            ValueError, TypeError: an argument that cannot be served, at once; a prompt
                that leaves no room in the context.
            RuntimeError: the model was closed, is busy with another call, or fails.
        """
        if self._closed:
            raise RuntimeError(f"{self.path}: the model was released; open it again")
        prompt = self._checked_ids("prompt_ids", prompt_ids)
        if not prompt:
            raise ValueError("prompt_ids is empty; a model needs at least one id to go on from")
        limit = integer("max_new_tokens", max_new_tokens, 1)
        if self.context is not None:
            room = self.context - len(prompt)
            if room < 1:
                raise ValueError(
                    f"the prompt has {len(prompt):,} tokens and the context holds "
                    f"{self.context:,}, which leaves no room for an answer; shorten the prompt "
                    "or open the model with a larger n_ctx (up to what it was trained for: "
                    f"{self.files.context or 'unknown'})"
                )
            limit = min(limit, room)
        rows = self.vocab_rows
        drawn = rows if n_tokens is None else min(integer("n_tokens", n_tokens, 1), rows)
        settings = checks.sampling(temperature, top_k, top_p)
        checked_seed = None if seed is None else integer("seed", seed, 0)
        stops = frozenset(self._checked_ids("stop_ids", stop_ids))
        return self._generate(Request(prompt, limit, settings, checked_seed, stops, drawn))

    def _checked_ids(self, name: str, ids: Iterable[int]) -> list[int]:
        """Return ids as a list of int, all of them rows of the model."""
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise TypeError(f"{name} must be token ids, got {type(ids).__name__}; encode it first")
        checked = [integer(f"{name}[{i}]", id_) for i, id_ in enumerate(ids)]
        for i, id_ in enumerate(checked):
            if not 0 <= id_ < self.vocab_rows:
                raise ValueError(
                    f"{name}[{i}] is {id_}; this model has the ids 0 to {self.vocab_rows - 1:,}"
                )
        return checked

    def _generate(self, request: Request) -> Iterator[int]:
        import numpy

        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                f"{self.path}: the model is busy with another call; use up or close() that "
                "iterator first"
            )
        try:
            random = numpy.random.default_rng(request.seed)
            pending = self._continue_or_forget(request)
            for _ in range(request.max_new_tokens):
                logits = self._advance(pending)[: request.n_tokens]
                id_ = request.settings.draw(logits, random)
                yield id_
                if id_ in request.stop_ids:
                    return
                pending = [id_]
        finally:
            self._lock.release()
            if self._closed:
                self._release_if_idle()

    def _continue_or_forget(self, request: Request) -> list[int]:
        """Return what of the prompt is still to be fed."""
        held, prompt = self._held, request.prompt
        # A repeated prompt is fed anew, so that a repeated call repeats its answer.
        if held and request.seed is None and held == prompt[: len(held)] != prompt:
            return prompt[len(held) :]
        self._held = None
        self._check_open()
        self._forget()
        self._held = []
        return prompt

    def _advance(self, ids: Sequence[int]) -> Logits:
        """Feed ids in blocks; return the logits behind the last."""
        # Should this be interrupted, it is unknown what the model holds.
        held, self._held = self._held or [], None
        for start in range(0, len(ids), self.block):
            self._check_open()
            part = list(ids[start : start + self.block])
            with self._explained("failed"):
                logits = self._feed(part)
            held.extend(part)
        self._held = held
        return logits

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn whatever a library raises into one kind of error that names it."""
        try:
            yield
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise RuntimeError(f"{self.path}: {self.name} {what}: {reason}") from error

    @contextlib.contextmanager
    def _loading(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """Explain why a model cannot be loaded, if it is that a setting is not known, too."""
        try:
            with self._explained("could not load it"):
                yield
        except RuntimeError as error:
            said = r"(unexpected keyword argument|unsupported property).*\b"
            for name in settings:
                if re.search(rf"{said}{re.escape(name)}\b", str(error), re.I | re.S):
                    self._refuse(name)
            raise

    def _refuse(self, setting: str) -> None:
        raise TypeError(f"{self.name} has no setting {setting!r} for loading a model")

    # -- The end ------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"{self.path}: the model was released while it was in use")

    @property
    def is_closed(self) -> bool:
        """Whether the model was released."""
        return self._closed

    def close(self) -> None:
        """Free the model; if it is generating, as soon as it has computed its next id."""
        self._closed = True
        self._release_if_idle()

    def _release_if_idle(self) -> None:
        if not self._lock.acquire(blocking=False):
            return  # whoever holds it will come here
        try:
            if not self._released:
                self._released = True
                self._release()
        finally:
            self._lock.release()

    def __repr__(self) -> str:
        return f"<{self.name} on {self.device}: {self.path}>"
