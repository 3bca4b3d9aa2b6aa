"""What every runner adds to the loop: checked arguments and `close`.

Some libraries crash on an id that is out of range, or compute nonsense.  So every argument is
checked before a library sees it.  A model can be released at any time, even by another thread
while it generates.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.backends import checks
from bpe_tokenizer_tools.backends.checks import integer
from bpe_tokenizer_tools.backends.model_files import ModelFiles

if TYPE_CHECKING:
    from bpe_tokenizer_tools.prompts import CoveringTree

_UNLIMITED = core.Loading(n_ctx=0)


class _Taken:
    """A sampler that keeps the logits and draws nothing."""

    seed = logits = None

    def draw(self, logits: Any, random: Any) -> int:
        self.logits = logits
        return 0


class Backend(core.Runner):
    """A model that one of the libraries has loaded.

    Attributes:
        name: of the backend: "llama.cpp", "MLX", "OpenVINO" or "Transformers".
        path: the model.
        files: facts from its files.
        vocab_rows: how many ids the model has; every id must be below this.
        context: how many tokens fit, prompt and answer together; None if not known.
        stop_ids: the ids that end the model's answer, according to its files.
        device: the name of the device it computes on.
    """

    files: ModelFiles
    _closed = _released = False

    def __init__(self, files: ModelFiles, loading: core.Loading = _UNLIMITED) -> None:
        self._settings = tuple(loading.settings)
        super().__init__(files, loading)

    def _release(self) -> None:
        """Free the model."""
        self._model = None

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
        healed: CoveringTree | None = None,
        timeout: float | None = None,
    ) -> Generator[int, None, None]:
        """Yield the ids that the model generates after a prompt, one by one.

        Closing the iterator, or Ctrl-C, stops the work; the next call starts over.
        If a prompt continues everything that the last call read and wrote, as in a
        chat, the model only reads the new part.  Its results may then differ in the
        last bits from reading all of it, so with a seed it reads all of it.

        Args:
            prompt_ids: at least one.
            max_new_tokens: the maximum number of ids; fewer if the context is full.
            temperature: divides the logits first; 0 always takes the most likely id.
            top_p: then keeps only the likeliest ids that together have this share of the
                probability that `top_k` left.
            top_k: keeps only this many of the likeliest ids; 0 keeps all.
            seed: the same call with the same seed yields the same ids.
            stop_ids: end with the first of these, which is the last id yielded.
            n_tokens: draw only smaller ids than this: a model may have more rows than the
                tokenizer has tokens.
            healed: for token healing, the tree from `covering_tree`: the first ids yielded spell
                the end of the prompt again, in one of these ways.  Then `prompt_ids` must be
                ``healed.ids``.
            timeout: how many seconds the first id waits at most for another thread that uses the
                model; None waits as long as it takes.

        Raises:
            ValueError, TypeError: a wrong argument, immediately; a prompt that leaves no
                room in the context.
            RuntimeError: the model was closed, or fails; or the same thread holds it, with an
                iterator that was neither used up nor closed.
            TimeoutError: another thread still uses the model.
        """
        if self._closed:
            raise RuntimeError(f"{self.path}: the model was released; open it again")
        prompt = self._checked_ids("prompt_ids", prompt_ids)
        if not prompt:
            raise ValueError("prompt_ids is empty; a model needs at least one id to continue from")
        how: Any = checks.sampling(temperature, top_k, top_p, seed)
        if healed is not None:
            from bpe_tokenizer_tools.prompts.completing import HealedDraw

            how = HealedDraw(how, healed)
        ids = self._generate(
            prompt,
            integer("max_new_tokens", max_new_tokens, 1),
            how,
            frozenset(self._checked_ids("stop_ids", stop_ids)),
            self.vocab_rows if n_tokens is None else integer("n_tokens", n_tokens, 1),
            core.check_timeout(timeout),
        )
        return self._while_open(ids)

    def logits(self, ids: Iterable[int]) -> Any:
        """Return the logits of the id that follows some ids, at least one, as a NumPy array.

        If the ids continue what the model read last, it only reads the new ones.
        """
        taken = _Taken()
        checked = self._checked_ids("ids", ids)
        if not checked:
            raise ValueError("ids is empty; a model needs at least one id to continue from")
        for _ in self._while_open(
            self._generate(checked, 1, cast("Any", taken), frozenset(), self.vocab_rows)
        ):
            pass
        return taken.logits

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

    def _while_open(self, ids: Iterator[int]) -> Generator[int, None, None]:
        self._check_open()
        try:
            yield from ids
        finally:
            if self._closed:
                self.close()

    @contextlib.contextmanager
    def _explained(self, what: str = "could not load it") -> Iterator[None]:
        """Check before each block that the model is open; reject unknown settings."""
        self._check_open()
        try:
            with super()._explained(what):
                yield
        except RuntimeError as error:
            said = r"(unexpected keyword argument|unsupported property).*\b"
            for name in self._settings:
                if re.search(rf"{said}{re.escape(name)}\b", str(error), re.I | re.S):
                    self._refuse(name)
            raise

    def _refuse(self, setting: str) -> None:
        raise TypeError(f"{self.name} has no setting {setting!r} for loading a model")

    # -- The end ------------------------------------------------------------------

    @contextlib.contextmanager
    def _reserved(self, timeout: float | None) -> Iterator[None]:
        """Check that the model was not released while this call waited for it."""
        with super()._reserved(timeout):
            self._check_open()
            yield

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"{self.path}: the model was released while it was in use")

    @property
    def is_closed(self) -> bool:
        """Whether the model was released."""
        return self._closed

    def close(self) -> None:
        """Free the model; if it is generating, once it has computed its next id."""
        self._closed = True
        if not self._lock.acquire(blocking=False):
            return  # the thread that has the lock will free it
        try:
            if not self._released:
                self._released = True
                self._release()
        finally:
            self._lock.release()
