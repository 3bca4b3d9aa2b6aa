"""Rows of a data set to ids: what `datasets`, Ray Data, pandas and Arrow call on each batch."""

from __future__ import annotations

import json
import numbers
from collections.abc import Iterable
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core


class BatchEncoder:
    """Encodes batches of rows: columns of texts to columns of ids.

    A batch is a mapping from a field's name to its column, as `datasets.map` with
    batched=True and Ray Data's `map_batches` give it, a pandas DataFrame, or a
    table or record batch of pyarrow.

    Its pickle is the same in every process and after use. `datasets` names its
    cache by the pickle, so it finds its cached results again the next day.

    >>> BatchEncoder(BPETokenizer())({"text": ["ab", "c"], "from": ["x", "y"]})
    {'input_ids': [[97, 98], [99]]}
    """

    def __init__(
        self,
        tokenizer: BPETokenizer,
        text_field: str = "text",
        *,
        bos: str | int | None = None,
        eot: str | int | None = None,
        keep: bool = False,
        return_length: bool = False,
        allowed_special: str | Iterable[str] = "none",
        num_threads: int = 1,
    ) -> None:
        """Make an encoder.

        Args:
            tokenizer: the tokenizer; later changes to it also apply here.
            text_field: the name of the column of texts.
            bos: a token, or its id, before the ids of each row; see `boundary_ids`.
            eot: the same, after them.
            keep: whether to return the batch's own columns, too.  `datasets.map`
                keeps them by itself; Ray Data's `map_batches` does not.
            return_length: whether to return a column "length", in tokens, bos and
                eot included.
            allowed_special: "none" reads special tokens in texts as ordinary text,
                "all" or names recognize them.
            num_threads: how many the accelerator may use.  One, as a data set is
                mostly worked through by as many processes as there are cores.
        """
        if not isinstance(tokenizer, BPETokenizer):
            raise TypeError(f"tokenizer must be a BPETokenizer, got {core.shorten(tokenizer)}")
        if not isinstance(text_field, str):
            raise TypeError(f"text_field must be a field's name, got {core.shorten(text_field)}")
        core.check_size("num_threads", num_threads, 1)
        allowed = core.allowed(tokenizer, allowed_special)
        self.tokenizer = tokenizer
        self.text_field = text_field
        self.bos_id, self.eot_id = boundary_ids(tokenizer, bos, eot)
        self.keep = bool(keep)
        self.return_length = bool(return_length)
        # sorted, as a set's order differs from run to run
        self.allowed_special = allowed_special if allowed_special == "all" else sorted(allowed)
        self.num_threads = num_threads

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Encode a batch.

        Returns:
            The column "input_ids", a list of ids for each row, and those asked for.

        Raises:
            TypeError: it is not a batch, or a row is not text.
            ValueError: it has no such field, or a row has a lone surrogate.
        """
        columns = _columns(batch)
        if self.text_field not in columns:
            raise ValueError(
                f"no field {self.text_field!r} in the batch, only {core.shorten(columns)}; "
                "name the right one with text_field (--text-field)"
            )
        rows = self._encode(_texts(batch[self.text_field], self.text_field))
        before = [] if self.bos_id is None else [self.bos_id]
        after = [] if self.eot_id is None else [self.eot_id]
        if before or after:
            rows = [[*before, *row, *after] for row in rows]
        encoded: dict[str, Any] = {name: batch[name] for name in columns} if self.keep else {}
        encoded["input_ids"] = rows
        if self.return_length:
            encoded["length"] = list(map(len, rows))
        return encoded

    def _encode(self, texts: list[str]) -> list[list[int]]:
        try:
            if not self.allowed_special:
                return self.tokenizer.encode_ordinary_batch(texts, self.num_threads)
            return [self.tokenizer.encode(text, False, self.allowed_special) for text in texts]
        except ValueError:
            for number, text in enumerate(texts):
                try:
                    core.utf8_length(text)
                except ValueError as error:
                    raise ValueError(f"row {number} of the batch: {error}") from None
            raise

    def _options(self) -> dict[str, Any]:
        return {
            "text_field": self.text_field,
            "bos": self.bos_id,
            "eot": "" if self.eot_id is None else self.eot_id,
            "keep": self.keep,
            "return_length": self.return_length,
            "allowed_special": self.allowed_special,
            "num_threads": self.num_threads,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        # NOTE: as bytes. A pickle of strings also says which of them are one object.
        return _rebuild, (type(self), self.tokenizer, json.dumps(self._options()).encode())

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._options().items())
        return f"{type(self).__name__}({self.tokenizer!r}, {options})"


def _rebuild(cls: type[BatchEncoder], tokenizer: BPETokenizer, options: bytes) -> BatchEncoder:
    return cls(tokenizer, **json.loads(options))


def _columns(batch: Any) -> list[str]:
    if hasattr(batch, "keys"):
        return list(batch.keys())
    if hasattr(batch, "schema"):  # pyarrow's
        return list(batch.schema.names)
    raise TypeError(
        "expected a batch: a mapping of columns, a DataFrame or a pyarrow table, got "
        f"{type(batch).__name__}"
    )


def _texts(column: Any, text_field: str) -> list[str]:
    """Return the texts of a column, which may be a list, or one of numpy, pandas or pyarrow."""
    if isinstance(column, (str, bytes)) or not isinstance(column, Iterable):
        raise TypeError(
            f"expected a list of texts in the field {text_field!r}, got {core.shorten(column)}; "
            "pass batched=True to datasets.map, and use map_batches of Ray Data, not map"
        )
    as_list = getattr(column, "to_pylist", None) or getattr(column, "tolist", None)
    texts = as_list() if as_list else list(column)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(
                f"row {number} of the batch: expected text in the field {text_field!r}, got "
                f"{core.shorten(text)}; leave out rows without text"
            )
    return texts


def boundary_ids(
    tokenizer: BPETokenizer, bos: str | int | None = None, eot: str | int | None = None
) -> tuple[int | None, int | None]:
    """Return the ids before and after each document, each None for none.

    Args:
        tokenizer: the tokenizer.
        bos: a token, or its id, before a document; None or "" for none.
        eot: a token, or its id, after a document; None for the tokenizer's eos token,
            if it has one, and "" for none.

    >>> tokenizer = BPETokenizer()
    >>> tokenizer.add_special_tokens(["<s>", "</s>"])
    2
    >>> boundary_ids(tokenizer), boundary_ids(tokenizer, bos="<s>", eot="")
    ((None, 257), (256, None))
    """
    before = None if bos is None or bos == "" else _token_id(tokenizer, "bos", bos)
    if eot is None:
        return before, tokenizer.eos_token_id
    return before, None if eot == "" else _token_id(tokenizer, "eot", eot)


def _token_id(tokenizer: BPETokenizer, name: str, token: str | int) -> int:
    """Return the id of a token that may be given by its id, too."""
    if isinstance(token, str):
        found = tokenizer.get_vocab().get(token)
        if found is None:
            known = core.shorten(list(tokenizer.special_tokens))
            raise ValueError(
                f"{name}: the tokenizer has no token {core.shorten(token)}; expected one of its "
                f"own, of which {known} are special, an id, or '' for none"
            )
        return found
    if isinstance(token, bool) or not isinstance(token, numbers.Integral):
        raise TypeError(f"{name} must be a token or an id, got {core.shorten(token)}")
    if int(token) not in core.tokens(tokenizer):
        raise ValueError(
            f"{name}: the tokenizer has no token of id {token}; its largest is {tokenizer.max_id}"
        )
    return int(token)
