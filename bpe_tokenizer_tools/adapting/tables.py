"""The tables of a model with a row for each token: which ones they are, and their rows."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpe_tokenizer import FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.backends.safetensors import Tensor
from bpe_tokenizer_tools.support.text import counted

numpy: Any = core.import_optional("numpy", "adapting models", "numpy")

# -- Values -------------------------------------------------------------------

DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # numpy has no bfloat16
_BLOCK_BYTES = 2**22  # of float32: what is in memory at a time is a few of these


def to_float32(values: Any, dtype: str) -> Any:
    """Return stored values as float32, exactly."""
    if dtype == "BF16":  # the upper half of a float32
        return (values.astype("<u4") << 16).view("<f4")
    return values.astype(numpy.float32, copy=False)


def from_float32(values: Any, dtype: str) -> Any:
    """Return float32 as values to store, rounded to the nearest, ties to even."""
    values = numpy.ascontiguousarray(values, "<f4")
    if dtype != "BF16":
        with numpy.errstate(over="ignore"):
            return values.astype(DTYPES[dtype])
    bits = values.view("<u4")
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    # NOTE: rounding could turn a NaN into infinity.
    quiet = (bits >> 16) | 0x40
    return numpy.where(numpy.isnan(values), quiet, rounded).astype("<u2")


# -- Rows ---------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table, or a bias, with a row for each token.

    Attributes:
        tensor: where it is.
        role: "input" or "output"; "tied" for an input table that is the output, too.
        token_ids: the rows that have a token; others are padding.
    """

    tensor: Tensor
    role: str
    token_ids: Sequence[int]

    @property
    def columns(self) -> int:
        """Number of values in a row."""
        return self.tensor.shape[1] if len(self.tensor.shape) == 2 else 1

    @property
    def step(self) -> int:
        """Number of rows to process at a time."""
        return max(1, _BLOCK_BYTES // (4 * self.columns))

    def stored(self, ids: Sequence[int]) -> Any:
        """Return rows as they are in the file."""
        ids = numpy.asarray(ids, dtype=numpy.int64)
        rows = numpy.empty((len(ids), self.columns), DTYPES[self.tensor.dtype])
        width = rows.itemsize * self.columns
        ends = [*(numpy.flatnonzero(numpy.diff(ids) != 1) + 1).tolist(), len(ids)]
        with open(self.tensor.path, "rb", buffering=0) as file:
            start = 0
            for end in ends if len(ids) else ():
                file.seek(self.tensor.start + int(ids[start]) * width)
                self._fill(file, memoryview(rows[start:end].reshape(-1)).cast("B"))
                start = end
        return rows

    def _fill(self, file: Any, room: memoryview) -> None:
        while room:
            count = file.readinto(room)
            if not count:
                raise FileFormatError(
                    self.tensor.path, self.tensor.name, "it extends past the end of the file"
                )
            room = room[count:]

    def floats(self, ids: Sequence[int]) -> Any:
        """Return rows as float32."""
        return to_float32(self.stored(ids), self.tensor.dtype)

    @functools.cached_property
    def mean(self) -> Any:
        """The mean of the rows of all tokens, without padding."""
        total, count = numpy.zeros(self.columns), 0
        for start in range(0, len(self.token_ids), self.step):
            rows = self.floats(self.token_ids[start : start + self.step])
            sound = numpy.isfinite(rows).all(1)  # one broken row would break them all
            total += rows[sound].sum(0, dtype="f8")
            count += int(sound.sum())
        return (total / max(1, count)).astype(numpy.float32)

    def means(self, groups: Iterable[Sequence[int]]) -> Iterator[Any]:
        """Yield the mean of each group of rows, in float32; of none, the mean of all."""
        batch: list[Sequence[int]] = []
        size = 0
        for group in groups:
            if batch and size + len(group) > self.step:
                yield from self._means(batch)
                batch, size = [], 0
            batch.append(group)
            size += len(group)
        yield from self._means(batch)

    def _means(self, groups: Sequence[Sequence[int]]) -> Iterator[Any]:
        ids, places = numpy.unique([id_ for group in groups for id_ in group], return_inverse=True)
        rows, start = self.floats(ids.astype(numpy.int64)), 0
        for group in groups:
            own, start = rows[places[start : start + len(group)]], start + len(group)
            yield own.sum(0, dtype="f4") / numpy.float32(len(group)) if len(group) else self.mean


# -- Which tables -------------------------------------------------------------

# The last part of a name before ".weight" or ".bias", as architectures call these tables.
_INPUTS = {"embed_tokens", "wte", "tok_embeddings", "word_embeddings", "embed_in", "shared"}
_INPUTS |= {"embeddings", "token_embedding", "tok_emb", "token_embd"}
_OUTPUTS = {"lm_head", "embed_out", "output_layer", "output", "shared_head_head"}
# A layer has tables of its own only if it predicts several tokens at a time, under these names:
# any other tensor with as many rows is a coincidence.
_IN_LAYER = re.compile(r"(^|\.)(layers?|h|blocks?|blk)\.\d+\.")


def _kind(name: str) -> str | None:
    """Return the usual role of a table with this name."""
    parts = name.split(".")
    if len(parts) < 2 or parts[-1] not in ("weight", "bias"):
        return None
    if parts[-2] == "output" and len(parts) > 2:  # that of any module
        return None
    if parts[-3:-1] == ["shared_head", "head"]:
        return "output"
    return "input" if parts[-2] in _INPUTS else "output" if parts[-2] in _OUTPUTS else None


@dataclass(frozen=True)
class Side:
    """One of two models, and what errors tell the user to pass for it."""

    tensors: str  # the argument that names its tables
    tokenizer: str  # whose ids do not fit
    remedy: str  # what to do then
    is_written: bool  # tables that are not named would keep the old vocabulary's rows


MODEL = Side(
    "tensors=[...] (--tensors NAME ...)",
    "the old tokenizer",
    "pass the one that the model was made with as `old` (--from)",
    is_written=True,
)
DONOR = Side(
    "donor_tensors=[...] (--donor-tensors NAME ...)",
    "the donor's tokenizer",
    "pass the one that the donor model was made with as donor_tokenizer (--tokenizer)",
    is_written=False,
)


def find_tables(
    found: Mapping[str, Tensor],
    config: Mapping[str, Any],
    token_ids: Sequence[int],
    named: Sequence[str] | None,
    place: Path,
    side: Side = MODEL,
) -> list[Table]:
    """Return the tables that have a row for each token.

    Args:
        found: all tensors of the model.
        config: config.json.
        token_ids: the ids of the tokenizer that the model was made with.
        named: the names of the tables, if the usual ones do not tell.
        place: the model, for messages.
        side: which of two models it is, for messages.

    Raises:
        ValueError: it is not certain which tensors they are, or they have fewer rows than
            the tokenizer has ids.
        FileFormatError: the values of one are of a type whose rows cannot be made, or
            config.json has a size that is not a number.
    """
    said = _vocab_size(config, place)
    if named is not None:
        unknown = [name for name in named if name not in found]
        if unknown or not named:
            raise ValueError(
                f"{place}: has no tensor {core.shorten((unknown or [''])[0])}; expected names from "
                f"its files, such as {core.shorten(next(iter(found), ''))}"
            )
        chosen = {name: _kind(name) or "input" for name in named}
    else:
        chosen = _usual(found, config, said, place, side)
    has_output = any(kind == "output" and name.endswith(".weight") for name, kind in chosen.items())
    tables = []
    for name, kind in chosen.items():
        role = "tied" if kind == "input" and not has_output else kind
        tables.append(Table(found[name], role, token_ids))
    _check_types(table.tensor for table in tables)
    _check_rows(tables, token_ids, place, side)
    if named is not None and side.is_written:
        _check_complete(found, config, chosen, place)
    return tables


def _check_complete(
    found: Mapping[str, Tensor], config: Mapping[str, Any], chosen: Mapping[str, str], place: Path
) -> None:
    """Raise ValueError if a table is missing among those that were named.

    It would keep the old vocabulary's rows: a model that does not load, or speaks nonsense.
    """
    [rows] = {found[name].shape[0] for name in chosen}
    has_output = config.get("tie_word_embeddings") is not False or len(chosen) > 1
    for name, tensor in found.items():
        # Without an output table among them, one with an unusual name is the output, too.
        is_table = _kind(name) or not (has_output or _IN_LAYER.search(name))
        if name not in chosen and is_table and tensor.shape[:1] == (rows,):
            shape = " x ".join(f"{n:,}" for n in tensor.shape)
            raise ValueError(
                f"{place}: {name} ({shape}) has a row for each token, too, and was not named; "
                f"name all such tensors with {MODEL.tensors}"
            )


def _usual(
    found: Mapping[str, Tensor],
    config: Mapping[str, Any],
    said: int | None,
    place: Path,
    side: Side,
) -> dict[str, str]:
    """Choose tables by their names; raise ValueError if the choice is ambiguous."""
    kinds = {name: kind for name in found if (kind := _kind(name))}
    rows = {
        found[name].shape[0]
        for name, kind in kinds.items()
        if kind == "input" and len(found[name].shape) == 2 and not _IN_LAYER.search(name)
    }
    if len(rows) > 1 and said in rows:
        rows = {said}
    if len(rows) != 1:
        problem = "no tensor has the usual name of an input embedding"
        if rows:
            problem = "embeddings with different numbers of rows could be meant"
        largest = sorted(found.values(), key=lambda t: -max(t.shape, default=0))
        raise _unsure(place, problem, largest, side)
    [size] = rows
    if said is not None and said != size:
        name = next(name for name in kinds if found[name].shape[:1] == (size,))
        raise ValueError(
            f"{place / 'config.json'}: vocab_size is {said:,}, but {name} has {size:,} rows; one "
            "of the files is of another model"
        )
    chosen = {
        name: kind
        for name, kind in kinds.items()
        if found[name].shape and found[name].shape[0] == size
    }
    _check_types(found[name] for name in chosen)
    doubtful = [
        tensor
        for name, tensor in found.items()
        if name not in chosen
        and (size in tensor.shape or name in kinds)
        and not _IN_LAYER.search(name)
    ]
    if doubtful:
        problem = f"these may have one row for each of the {size:,} tokens, too, or may not"
        raise _unsure(place, problem, [*(found[name] for name in chosen), *doubtful], side)
    if config.get("tie_word_embeddings") is False and "output" not in chosen.values():
        problem = "config.json says that the output embedding is a table of its own, and no "
        problem += "tensor has its usual name"
        raise _unsure(place, problem, [t for t in found.values() if len(t.shape) == 2], side)
    return chosen


def _vocab_size(config: Mapping[str, Any], place: Path) -> int | None:
    """Return the number of tokens in config.json; None if it doesn't say."""
    parts = {"": config, **{f"{name}.": config.get(name) for name in ("text_config", "llm_config")}}
    sizes = {
        f"{name}vocab_size": part["vocab_size"]
        for name, part in parts.items()
        if isinstance(part, Mapping) and part.get("vocab_size") is not None
    }
    for name, size in sizes.items():
        if type(size) is not int:
            problem = f"expected a whole number, got {core.shorten(size)}"
            raise FileFormatError(place / "config.json", name, problem)
    return next(iter(sizes.values()), None)


def _unsure(place: Path, problem: str, candidates: Sequence[Tensor], side: Side) -> ValueError:
    shown = ", ".join(
        f"{tensor.name} ({' x '.join(f'{n:,}' for n in tensor.shape)})" for tensor in candidates[:8]
    )
    more = ", ..." if len(candidates) > 8 else ""
    return ValueError(
        f"{place}: {problem}: {shown or 'none'}{more}; name all tensors with a row for each token "
        f"with {side.tensors}"
    )


def _check_types(tensors: Iterable[Tensor]) -> None:
    for tensor in tensors:
        if len(tensor.shape) not in (1, 2) or not all(tensor.shape):
            shape = " x ".join(map(str, tensor.shape)) or "a single number"
            problem = f"expected a table with a row for each token, or a bias, got {shape}"
            raise FileFormatError(tensor.path, tensor.name, problem)
        if tensor.dtype not in DTYPES:
            problem = f"its values are {core.shorten(tensor.dtype)[1:-1]}; expected BF16, F16 or "
            problem += "F32. Rows of a quantized table cannot be made: adapt the model before "
            problem += "it is quantized"
            raise FileFormatError(tensor.path, tensor.name, problem)


def _check_rows(tables: Sequence[Table], token_ids: Sequence[int], place: Path, side: Side) -> None:
    sizes = {table.tensor.shape[0] for table in tables}
    if len(sizes) > 1:
        raise _unsure(
            place, "tables differ in their rows", [table.tensor for table in tables], side
        )
    [rows] = sizes
    if token_ids and token_ids[-1] >= rows:
        raise ValueError(
            f"{place}: {side.tokenizer} has ids up to {token_ids[-1]:,}, but "
            f"{tables[0].tensor.name} has only {counted(rows, 'row')}: the tokenizer is that of "
            f"another model; {side.remedy}"
        )
