"""Batches as tensors: what `encode_batch` gives with `return_tensors`."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Mapping
from typing import Any

from bpe_tokenizer import BatchEncoding, EncodingResult
from bpe_tokenizer_tools import core


class TensorBatch(core.Batch, UserDict[str, Any]):
    """Several encoded texts as tensors: a mapping, a model's input.

    ``model(**batch)``, ``batch["labels"] = ...`` and ``batch.to(device)`` work, and so does what
    torch, accelerate and transformers do with batches.

    Attributes:
        data: the fields, as a dict.
        encodings: one result per text; empty once "input_ids" is assigned to.
    """

    def __init__(
        self, data: Mapping[str, Any] | None = None, encodings: Iterable[EncodingResult] = ()
    ) -> None:
        super().__init__(data)
        self.encodings = list(encodings)

    def __setitem__(self, key: str, value: Any) -> None:
        if key == "input_ids":  # NOTE: torch copies a batch, and puts collated fields into it
            self.encodings = []
        self.data[key] = value

    def __missing__(self, key: object) -> Any:
        fields = list(self.data)
        raise KeyError(f"{key!r} is not one of {fields}; the results by text are in `encodings`")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        ours, theirs = (
            {key: value.tolist() if hasattr(value, "tolist") else value for key, value in fields}
            for fields in (self.items(), other.items())
        )
        return ours == theirs

    def copy(self) -> TensorBatch:
        """Return a copy with the same tensors."""
        return TensorBatch(self, self.encodings)

    def to(self, device: Any, **options: Any) -> TensorBatch:
        """Move the tensors to a device, in place; arrays stay where they are."""
        moved = {
            key: value.to(device, **options) for key, value in self.items() if hasattr(value, "to")
        }
        self.data.update(moved)
        return self


def to_tensors(batch: BatchEncoding, kind: str) -> TensorBatch:
    """Make the fields of a batch arrays ("np") or tensors ("pt")."""
    tensors = {name: to_tensor(rows, kind) for name, rows in batch.items()}
    return TensorBatch(tensors, batch.encodings)


def to_tensor(rows: list[list[int]], kind: str) -> Any:
    """Make an int64 array or tensor of equally long rows."""
    if len({len(row) for row in rows}) > 1:
        raise ValueError(
            "texts of different lengths do not make a tensor; pass padding=True, and "
            "truncation=True with max_length if they may be too long"
        )
    shape = (len(rows), len(rows[0]) if rows else 0)
    package = {"np": "numpy", "pt": "torch"}[kind]
    module = core.import_optional(package, f"return_tensors={kind!r}", package)
    make = module.array if kind == "np" else module.tensor
    return make(rows, dtype=module.int64).reshape(shape)
