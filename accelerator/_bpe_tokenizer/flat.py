"""A vocabulary and its merges as the extension has them: in flat arrays, a quarter of the memory.

Python's objects are made when they are asked for, and not kept.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any, TypeVar, overload

import _bpe_tokenizer.native as native

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Pair = tuple[int, int]


class _FlatMapping(Mapping[_Key, _Value]):
    """A mapping that behaves like the dict it can be made into."""

    __slots__ = ("native",)

    def __init__(self, encoder: native.Encoder) -> None:
        self.native = encoder

    def _dict(self) -> dict[_Key, _Value]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._dict())

    def keys(self) -> KeysView[_Key]:
        return self._dict().keys()

    def values(self) -> ValuesView[_Value]:
        return self._dict().values()

    def items(self) -> ItemsView[_Key, _Value]:
        return self._dict().items()

    def copy(self) -> dict[_Key, _Value]:
        return self._dict()

    def __or__(self, other: Mapping[_Key, _Value]) -> dict[_Key, _Value]:
        return {**self._dict(), **other}

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _FlatMapping):
            return self.native is other.native or self._dict() == other._dict()
        return self._dict() == other

    __hash__ = None  # type: ignore[assignment]  # as that of a dict

    def __repr__(self) -> str:
        return repr(self._dict())

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._dict(),)


class FlatVocab(_FlatMapping[bytes, int]):
    """Token -> id, without added tokens."""

    __slots__ = ()

    def _dict(self) -> dict[bytes, int]:
        return dict(zip(*self.native.listed(False)))

    def __len__(self) -> int:
        return self.native.sizes[0]

    def __getitem__(self, token: bytes) -> int:
        id_ = self.native.id_of(token)
        if id_ is None:
            raise KeyError(token)
        return id_


class FlatTokens(_FlatMapping[int, bytes]):
    """Id -> token, added ones included."""

    __slots__ = ()

    def _dict(self) -> dict[int, bytes]:
        return dict(zip(*reversed(self.native.listed(True))))

    def __len__(self) -> int:
        return self.native.sizes[1]

    def __getitem__(self, id_: int) -> bytes:
        token = self.native.token(id_)
        if token is None and id_ == (number := hash(id_)):  # NumPy's, say
            token = self.native.token(number)
        if token is None:
            raise KeyError(id_)
        return token


class FlatMerges(Sequence[_Pair]):
    """The merges in rank order, pairs of ids."""

    __slots__ = ("native",)

    def __init__(self, encoder: native.Encoder) -> None:
        self.native = encoder

    def _list(self) -> list[_Pair]:
        return self.native.merges(0, len(self))

    def __len__(self) -> int:
        return self.native.sizes[2]

    @overload
    def __getitem__(self, index: int) -> _Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[_Pair]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._list()[index]
        rank = range(len(self))[index]
        return self.native.merges(rank, rank + 1)[0]

    def __iter__(self) -> Iterator[_Pair]:
        return iter(self._list())

    def __add__(self, other: list[_Pair]) -> list[_Pair]:
        return self._list() + other

    def __radd__(self, other: list[_Pair]) -> list[_Pair]:
        return other + self._list()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FlatMerges):
            return self.native is other.native or self._list() == other._list()
        return self._list() == other

    __hash__ = None  # type: ignore[assignment]  # as that of a list

    def __repr__(self) -> str:
        return repr(self._list())

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self._list(),)


def encoder_of(vocab: object, merges: object) -> native.Encoder | None:
    """Return the encoder that both are in, if they are in one."""
    if isinstance(vocab, FlatVocab) and isinstance(merges, FlatMerges):
        return vocab.native if vocab.native is merges.native else None
    return None
