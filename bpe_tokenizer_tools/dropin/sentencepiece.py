"""SentencePiece's calls, with the ids of SentencePiece and the speed of this library.

    processor = tokenizer.as_sentencepiece()              # a tokenizer of this library
    processor = SentencePieceProcessor("tokenizer.model")  # or a model of type BPE

If sentencepiece is installed, `SentencePieceProcessor` is a subclass of its class.  It only needs
sentencepiece for ``return_type="proto"``.

Source: sentencepiece 0.2.3, src/sentencepiece_processor.cc and its Python wrapper, for what each
call means.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import operator
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

from bpe_tokenizer import AddedToken, BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import files_within, format_of, read_parts
from bpe_tokenizer_tools.formats import sentencepiece as reader
from bpe_tokenizer_tools.support import offsets

_library: Any = None
with contextlib.suppress(ImportError):
    _library = importlib.import_module("sentencepiece")
_Base: Any = _library.SentencePieceProcessor if _library else object

_RETURN_TYPES = (int, str, bytes, "numpy", "offset_mapping", "serialized_proto", "proto")
_WITH_PLACES = ("offset_mapping", "serialized_proto", "proto")
_AS_USUAL = (None,) * 7
_INTEGERS = "Input must be an integer buffer, list of integers, or a sequence of integers."
_STRINGS = "List elements must be str or bytes"


# NOTE: in a text given as bytes, each byte that is not UTF-8 is a lone surrogate from here on
# ("surrogateescape"), and U+FFFD only after normalizing.  SentencePiece doesn't map the U+FFFD
# that it puts there, and counts each such byte as one in its offsets.
_SURROGATE = re.compile("[\ud800-\udfff]")


def _repaired(text: str) -> str:
    """Replace each byte that is not UTF-8 with U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _raw(text: str) -> bytes:
    """Return a text as the bytes it was given as."""
    return text.encode("utf-8", "surrogateescape")


class _Parts(NamedTuple):
    """The pieces of a text, and the characters that each piece covers."""

    pieces: list[str]
    ids: list[int]
    begins: list[int]
    ends: list[int]
    begun: list[bool]  # whether the piece is a byte of a character, but not the last one


class _Asked(NamedTuple):
    """The options of a call of `encode`."""

    before: list[int]
    after: list[int]
    turned: bool  # reverse
    named: bool  # emit_unk_piece


class _Vocabulary:
    """A tokenizer's pieces, and the model that it came from, if any."""

    def __init__(self, tokenizer: BPETokenizer, model: reader.Model | None, data: bytes) -> None:
        self.tokenizer = tokenizer
        self.model = model if model and _is_of(model, tokenizer) else None
        self.data = data if self.model else b""
        self.encoder = core.encoder(tokenizer)
        self.pipeline = core.pipeline(tokenizer, frozenset())
        self.ids = tokenizer.get_vocab()
        size = max(self.ids.values(), default=-1) + 1
        self.pieces, self.types = [""] * size, [reader.UNUSED] * size
        added = core.contents(tokenizer)
        special = set(tokenizer.special_tokens.values())
        options = (tokenizer.components or {}).get("model", {})
        unknown = self.ids.get(options.get("unk_token"), tokenizer.unk_token_id)
        self.unk_id = 0 if unknown is None else unknown
        for piece, id_ in self.ids.items():
            self.pieces[id_], kind = piece, reader.NORMAL
            if id_ in added:
                kind = reader.CONTROL if id_ in special else reader.USER_DEFINED
            elif options.get("byte_fallback") and reader.is_byte(piece):
                kind = reader.BYTE
            self.types[id_] = kind
        if unknown is not None:
            self.types[unknown] = reader.UNKNOWN
        roles = core.roles(tokenizer)
        self.normalizer = None
        if self.model:
            self.types[: len(self.model.pieces)] = [each.type for each in self.model.pieces]
            roles = reader.roles(self.model)
            if (tokenizer.components or {}).get("normalizer") == reader.normalizer_of(self.model):
                self.normalizer = reader.Normalizer(reader.own_normalizer(self.model))
        self.roles = {name: self.ids[token] for name, token in roles.items()}
        # The lengths of pieces in characters; 0 for bytes.
        self.lengths = [
            0 if kind == reader.BYTE else len(piece) for piece, kind in zip(self.pieces, self.types)
        ]
        # Tokens added to the model; normalized text may spell them differently.
        self.extra = frozenset(range(len(self.model.pieces), size) if self.model else ())
        self.silent = frozenset(i for i, kind in enumerate(self.types) if kind == reader.CONTROL)

    def text_of(self, ids: Any) -> str:
        """Decode ids; control symbols have no text."""
        silent = self.silent
        if not silent.isdisjoint(ids):
            ids = [id_ for id_ in map(operator.index, ids) if id_ not in silent]
        return self.tokenizer.decode(ids)

    def parts_bytes(self, ids: Any) -> bool:
        """Return whether a control symbol follows a byte; it ends a character there."""
        if self.silent.isdisjoint(ids):
            return False
        pairs = itertools.pairwise(ids[:-1])  # nothing follows the last
        return any(self.types[one] == reader.BYTE and next_ in self.silent for one, next_ in pairs)

    def align(self, text: str) -> tuple[str, Sequence[tuple[int, int]]]:
        """Normalize a text; also return where each character comes from."""
        if self.normalizer:
            normalized, places = self.normalizer.align(text)
            return _repaired(normalized), places
        text = _repaired(text)
        spans = getattr(self.pipeline, "align", None)
        return self.pipeline.normalize(text), (
            spans(text) if spans else offsets.align(text, self.tokenizer.normalizer)
        )

    def _texts(self, text: str) -> Iterable[offsets.Part]:
        """Cut a text at added tokens; also return where each character comes from."""
        if not self.normalizer:
            yield from offsets.parts(self.pipeline, _repaired(text))
            return
        normalized, spans = self.align(text)
        found = self.pipeline.normalized.find(normalized)
        for start, end, token in core.text_between(found, len(normalized)):
            if token:
                yield token, [(spans[start][0], spans[end - 1][1])]
            elif start < end:
                yield normalized[start:end], spans[start:end]

    def encode(self, text: str) -> _Parts:
        """Encode a text to pieces with their places; unknown text is a piece of its own."""
        if not _SURROGATE.search(text):
            ids = self.tokenizer.encode(text)
            if self.normalizer and self.unk_id not in ids and not self.extra.intersection(ids):
                return self._by_lengths(text, ids)
        made = _Parts([], [], [], [], [])

        def add(*part: Any) -> None:
            for column, value in zip(made, part):
                cast("list[Any]", column).append(value)

        for part, spans in self._texts(text):
            if isinstance(part, AddedToken):
                add(part.content, part.id, *spans[0], False)
                continue
            whole = [(part, offsets.Spans.whole(len(part)))]
            ids, places = offsets.encode(self.encoder, whole)
            for id_, (a, b), following in itertools.zip_longest(ids, places, places[1:]):
                piece = part[a:b] if id_ == self.unk_id else self.pieces[id_]
                begin, end = spans[a][0], spans[b - 1][1]
                begun = self.types[id_] == reader.BYTE and following == (a, b)
                # The last byte of a character covers all of it.
                add(piece, id_, begin, begin if begun else end, begun)
        return made

    def _by_lengths(self, text: str, ids: list[int]) -> _Parts:
        """Encode like `encode`, for pieces that join to the normalized text."""
        starts = self._starts(text)
        lengths = list(map(self.lengths.__getitem__, ids))
        begun = [False] * len(ids)
        if 0 in lengths:  # bytes: the last one of a character covers all of it
            left = 0
            for i, id_ in enumerate(ids):
                if lengths[i] == 0:
                    left = (left or _n_bytes(int(self.pieces[id_][3:5], 16))) - 1
                    lengths[i], begun[i] = int(left == 0), left > 0
        at = [starts[end] for end in itertools.accumulate(lengths, initial=0)]
        return _Parts(list(map(self.pieces.__getitem__, ids)), ids, at[:-1], at[1:], begun)

    def _starts(self, text: str) -> Sequence[int]:
        """Return where each character of the normalized text begins in the text, and the end."""
        normalize = cast("reader.Normalizer", self.normalizer)
        plain, normalized = text.replace(" ", reader.SPACE), normalize(text)
        suffix = self.model and self.model.trainer["treat_whitespace_as_suffix"]
        # Most texts; but if one space is removed, another may be added, and look like it.
        if not suffix and text == text.strip(" " + reader.SPACE):
            if normalized == plain:
                return range(len(text) + 1)
            if normalized == reader.SPACE + plain:
                return [0, *range(len(text) + 1)]
        _, spans = normalize.align(text)
        return [start for start, _ in spans] + [end for _, end in spans[-1:] or [(0, 0)]]

    def decode(self, pieces: Sequence[str], ids: Sequence[int]) -> tuple[str, list[str]]:
        """Return the text of pieces, and the part that each adds."""
        if self.model is None:
            raise _without_model("decoding to offsets or messages")
        trainer, flags = self.model.trainer, self.model.normalizer
        strips = flags["remove_extra_whitespaces"], flags["add_dummy_prefix"]
        surfaces: list[str] = []
        length, at_start, seen = 0, True, False
        raw = bytearray()
        for piece, id_ in zip((*pieces, ""), (*ids, -1)):
            if id_ >= 0 and self.types[id_] == reader.BYTE:
                raw.append(int(piece[3:5], 16))
                continue
            for char in raw.decode("utf-8", core.ONE_BY_ONE):  # its last byte covers a character
                n = len(char.encode()) if char != "\ufffd" else _n_replaced(raw)
                surfaces += [""] * (n - 1) + [char]
                del raw[:n]
                length += 1
            if id_ < 0:
                break
            at_start = at_start and not (seen or length)
            seen, surface = False, piece
            if id_ in self.silent:
                surface = ""
            elif id_ == self.unk_id:
                surface = trainer["unk_surface"] if piece == self.pieces[id_] else piece
            else:
                if at_start and any(strips) and piece.startswith(reader.SPACE):
                    surface, seen = piece[1:], not strips[0]
                surface = surface.replace(reader.SPACE, " ")
            surfaces.append(surface)
            length += len(surface)
        return "".join(surfaces), surfaces


def _n_bytes(first: int) -> int:
    """Return how many bytes a character has, given the first one."""
    return 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


def _n_replaced(raw: bytes | bytearray) -> int:
    """Return how many bytes became the first U+FFFD: its own three, or one invalid byte."""
    return 3 if raw.startswith(b"\xef\xbf\xbd") else 1


def _is_of(model: reader.Model, tokenizer: BPETokenizer) -> bool:
    """Return whether a tokenizer has all pieces of a model, with the same ids."""
    ids = tokenizer.get_vocab()
    return all(ids.get(piece.text) == id_ for id_, piece in enumerate(model.pieces))


class SentencePieceProcessor(_Base):  # type: ignore[misc]  # sentencepiece may be missing
    """A `sentencepiece.SentencePieceProcessor` that this library runs.

    It takes models of type BPE.  It refuses sampling, n-best lists and `parallel_encode`, and, for
    a tokenizer without a SentencePiece model, scores and the serialized model.

    Args:
        model_file: a file; other files beside it are not read.
        model_proto: or the content of such a file.
        out_type, return_type: what `encode` returns: int, str, bytes, "numpy", "offset_mapping",
            "serialized_proto" or "proto".  The other options are defaults for `encode`, too.
    """

    _made: _Vocabulary | None = None

    def __init__(
        self,
        model_file: Any = None,
        model_proto: Any = None,
        out_type: Any = None,
        add_bos: bool = False,
        add_eos: bool = False,
        reverse: bool = False,
        emit_unk_piece: bool = False,
        enable_sampling: bool = False,
        nbest_size: int = -1,
        alpha: float = 0.1,
        num_threads: int = -1,
        return_type: Any = None,
    ) -> None:
        self._return_type = int
        self._return_type = self._returned(return_type, out_type)
        self._add_bos, self._add_eos, self._reverse = add_bos, add_eos, reverse
        self._emit_unk_piece, self._enable_sampling = emit_unk_piece, enable_sampling
        self._nbest_size, self._alpha, self._num_threads = nbest_size, alpha, num_threads
        if model_file or model_proto:
            self.load(model_file, model_proto)

    @classmethod
    def of(
        cls, tokenizer: BPETokenizer, model_file: str | os.PathLike[str] | None = None
    ) -> SentencePieceProcessor:
        """Make the twin of a tokenizer; see `as_sentencepiece`."""
        made = cls()
        if model_file is None:
            made._made = _Vocabulary(tokenizer, *_model_of(tokenizer))
            return made
        path = Path(model_file)
        made._made = _Vocabulary(tokenizer, reader.read_model(path), path.read_bytes())
        if made._made.model is None:
            raise ValueError(f"{path}: the tokenizer doesn't have this model's pieces and ids")
        return made

    # -- Models ---

    @classmethod
    def from_file(cls, model_file: Any, **options: Any) -> SentencePieceProcessor:
        """Load a model from a file."""
        return cls(model_file, **options)

    @classmethod
    def from_proto(cls, model_proto: Any, **options: Any) -> SentencePieceProcessor:
        """Load a model from the content of a file."""
        return cls(None, model_proto, **options)

    def load(self, model_file: Any = None, model_proto: Any = None) -> bool:
        """Load a model from a file, or from the content of one."""
        if model_file and model_proto:
            raise ValueError("model_file and model_proto must be exclusive.")
        if model_proto:
            return self.load_from_serialized_proto(model_proto)
        if model_file:
            return self.load_from_file(model_file)
        raise ValueError("Either model_file or model_proto must be specified.")

    def load_from_file(self, filename: Any) -> bool:
        """Load a model from a file; raise FileFormatError if it is damaged or not BPE."""
        path = Path(os.fsdecode(filename))
        return self._read(path.read_bytes(), path)

    def load_from_serialized_proto(self, serialized: Any) -> bool:
        """Load a model from the content of a file; raise FileFormatError as `load_from_file`."""
        write = getattr(serialized, "SerializeToString", None)
        return self._read(write() if write else serialized, Path("model_proto"))

    def _read(self, data: bytes, named: Path) -> bool:
        with tempfile.TemporaryDirectory() as folder:  # so that no other file is beside it
            path = Path(folder, "tokenizer.model")
            path.write_bytes(data)
            try:
                model = reader.read_model(path)
                tokenizer = core.from_parts(*read_parts(path, None, ()))
            except FileFormatError as error:
                raise FileFormatError(named, error.field, error.problem) from None
        self._made = _Vocabulary(tokenizer, model, data)
        return True

    @property
    def _known(self) -> _Vocabulary:
        if self._made is None:
            raise RuntimeError("no model is loaded; call load(model_file)")
        return self._made

    @property
    def _processor(self) -> NoReturn:  # sentencepiece's calls that are missing here get this
        raise NotImplementedError(
            "this library doesn't have this call; use sentencepiece.SentencePieceProcessor"
        )

    # -- Encoding ---

    def _returned(self, return_type: Any, out_type: Any, default: Any = None) -> Any:
        if out_type is not None:
            if return_type is not None:
                raise ValueError("pass return_type or out_type, not both: they mean the same")
            return_type = out_type
        if return_type is None:
            return default or self._return_type
        if return_type not in _RETURN_TYPES:
            raise ValueError(
                f"return_type must be one of {_RETURN_TYPES}, got {core.shorten(return_type)}"
            )
        return return_type

    def encode(
        self,
        input: Any,
        add_bos: bool | None = None,
        add_eos: bool | None = None,
        reverse: bool | None = None,
        emit_unk_piece: bool | None = None,
        enable_sampling: bool | None = None,
        nbest_size: int | None = None,
        alpha: float | None = None,
        num_threads: int | None = None,
        thread_pool: Any = None,
        return_type: Any = None,
        out_type: Any = None,
        return_bytes: bool | None = None,
    ) -> Any:
        """Encode a text, str or UTF-8, or a list of them, to what `return_type` says.

        `reverse` comes before `add_bos` and `add_eos`.  With `emit_unk_piece`, unknown text gives
        the unknown piece instead of itself.  Encoding runs on one thread.  `enable_sampling`
        raises ValueError; without sampling, `nbest_size` and `alpha` have no effect.
        """
        given = (
            add_bos,
            add_eos,
            reverse,
            emit_unk_piece,
            enable_sampling,
            num_threads,
            return_bytes,
        )
        wanted = self._returned(return_type, out_type)
        if wanted is int and type(input) is str and given == _AS_USUAL and self._is_plain():
            return self._known.tokenizer.encode(input)
        if self._enable_sampling if enable_sampling is None else enable_sampling:
            _refuse("enable_sampling", "leave it out to encode without sampling")
        if return_bytes is not None and wanted != "offset_mapping":
            raise ValueError("return_bytes is only for return_type='offset_mapping'")
        self._check_threads(num_threads)
        flags = (
            self._add_bos if add_bos is None else add_bos,
            self._add_eos if add_eos is None else add_eos,
            self._reverse if reverse is None else reverse,
            self._emit_unk_piece if emit_unk_piece is None else emit_unk_piece,
        )
        if wanted in _WITH_PLACES:
            if any(flags):
                raise RuntimeError(
                    f"return_type={wanted!r} excludes add_bos, add_eos, reverse and emit_unk_piece"
                )
            one = _first(input) if isinstance(input, list) else input
            in_bytes = isinstance(one, bytes) if return_bytes is None else return_bytes
            run = functools.partial(self._with_places, wanted, in_bytes)
        elif wanted in (str, bytes):
            run = functools.partial(self._pieces, self._asked(*flags), wanted)
        else:
            run = functools.partial(self._ids, self._asked(*flags), wanted)
        if isinstance(input, list):
            if not all(isinstance(text, (str, bytes)) for text in input):
                raise TypeError(_STRINGS)
            return [*map(run, input)]
        return run(input)

    def _asked(self, bos: bool, eos: bool, turned: bool, named: bool) -> _Asked:
        before = [self._around("bos")] if bos else []
        return _Asked(before, [self._around("eos")] if eos else [], turned, named)

    def _ids(self, asked: _Asked, wanted: Any, text: Any) -> Any:
        given = text if type(text) is str else _text_of(text)
        if given is not text and _SURROGATE.search(given):
            ids = self._known.encode(given).ids
        else:
            ids = self._known.tokenizer.encode(given)
        if asked.turned:
            ids.reverse()
        if asked.before or asked.after:
            ids = [*asked.before, *ids, *asked.after]
        if wanted is int:
            return ids
        numpy = core.import_optional("numpy", "return_type='numpy'", "numpy")
        return numpy.array(ids, dtype=numpy.int32)

    def _pieces(self, asked: _Asked, wanted: Any, text: Any) -> list[Any]:
        known, ids = self._known, self._ids(asked, int, text)
        pieces = list(map(known.pieces.__getitem__, ids))
        if known.unk_id in ids:  # in sentencepiece, unknown text is a piece
            parts = known.encode(_text_of(text)).pieces
            if asked.named:  # unless it looks like another piece, such as a control symbol
                unknown, id_of = known.pieces[known.unk_id], known.ids.get
                parts = [
                    piece if id_of(piece, known.unk_id) != known.unk_id else unknown
                    for piece in parts
                ]
            end = len(ids) - len(asked.after)
            pieces[len(asked.before) : end] = parts[::-1] if asked.turned else parts
        return [piece.encode() for piece in pieces] if wanted is bytes else pieces

    def _with_places(self, wanted: Any, in_bytes: bool, text: Any) -> Any:
        given = _text_of(text)
        parts = self._known.encode(given)
        if wanted != "offset_mapping":
            surfaces = [
                None if begun else given[begin:end] for _, _, begin, end, begun in zip(*parts)
            ]
            return _as_proto(given, parts, surfaces, wanted)
        return _mapping({}, parts, given, in_bytes)

    def _is_plain(self) -> bool:
        around = self._add_bos or self._add_eos or self._reverse
        return not around and not self._enable_sampling and isinstance(self._num_threads, int)

    def _check_threads(self, asked: Any) -> None:
        given = self._num_threads if asked is None else asked
        if not isinstance(given, int):
            raise TypeError(f"num_threads must be int, got {type(given).__name__}")

    def _around(self, role: str) -> int:
        id_ = self._role(role)
        if id_ < 0:
            raise ValueError(f"add_{role}: the model has no {role} piece")
        return id_

    def encode_as_ids(self, input: Any, **options: Any) -> Any:
        """Encode to ids."""
        return self.encode(input, return_type=int, **options)

    def encode_as_pieces(self, input: Any, **options: Any) -> Any:
        """Encode to pieces."""
        return self.encode(input, return_type=str, **options)

    def encode_as_numpy(self, input: Any, **options: Any) -> Any:
        """Encode to arrays of int32."""
        return self.encode(input, return_type="numpy", **options)

    def encode_as_proto(self, input: Any, **options: Any) -> Any:
        """Encode to sentencepiece's messages; sentencepiece must be installed."""
        return self.encode(input, return_type="proto", **options)

    def encode_as_offset_mapping(self, input: Any, **options: Any) -> Any:
        """Encode to a dict of ids, pieces and offsets, in characters."""
        return self.encode(input, return_type="offset_mapping", **options)

    def normalize(self, input: Any, with_offsets: Any = None) -> Any:
        """Normalize a text, str or UTF-8, or a list of them, to the same type.

        With offsets, also return where each character or byte comes from, and the end.
        """
        if isinstance(input, list):
            return [self._normalize(text, with_offsets) for text in input]
        return self._normalize(input, with_offsets)

    def _normalize(self, input: Any, with_offsets: Any) -> Any:
        given, known = _text_of(input), self._known
        text, spans = known.align(given)
        in_bytes = isinstance(input, bytes)
        normalized = text.encode() if in_bytes else text
        if not with_offsets:
            return normalized
        ends = [end for _, end in spans[-1:]]
        if not spans and known.normalizer:  # nothing is left, but there is an end
            ends = known.normalizer.starts(given)[1]
        if not in_bytes:
            return normalized, [start for start, _ in spans] + (ends or [0])
        at, places = _places_in_bytes(given), list[int]()
        for char, (start, _) in zip(text, spans):
            places += [at[start]] * len(char.encode())
        return normalized, places + [at[end] for end in ends]

    # -- Decoding ---

    def decode(
        self,
        input: Any,
        return_type: Any = None,
        out_type: Any = None,
        num_threads: int | None = None,
        thread_pool: Any = None,
        return_bytes: bool | None = None,
    ) -> Any:
        """Decode ids or pieces, one or a list, array or tuple of them, or a batch of those.

        Raises IndexError for an id that is out of range.  An unknown piece is decoded as text.
        """
        wanted = self._returned(return_type, out_type, str)
        if return_bytes is not None and wanted != "offset_mapping":
            raise ValueError("return_bytes is only for return_type='offset_mapping'")
        self._check_threads(num_threads)
        if wanted in (int, "numpy"):
            raise ValueError(f"return_type={wanted!r} is for encode, not for decode")
        if input is None or (isinstance(input, (str, bytes)) and not input):
            input = []
        if not _is_row(input):
            input = [input]
        rows = input
        is_batch = input.ndim > 1 if hasattr(input, "ndim") else _is_row(_first(input))
        if not is_batch:
            rows = [input]
        filled = next((row for row in rows if _is_row(row) and len(row)), [0])
        first = 0 if hasattr(filled, "dtype") else filled[0]  # an array has no pieces
        run = functools.partial(self._decode_ids, wanted, bool(return_bytes))
        if isinstance(first, (str, bytes)):  # the first one decides for all
            in_bytes = isinstance(first, bytes)
            kind = bytes if in_bytes and wanted is str else wanted
            run = functools.partial(self._decode_pieces, kind, bool(return_bytes) or in_bytes)
        texts = [*map(run, rows)]
        return texts if is_batch else texts[0]

    def _decode_ids(self, wanted: Any, in_bytes: bool, row: Any) -> Any:
        known = self._known
        if wanted in (str, bytes):
            with contextlib.suppress(TypeError, ValueError, OverflowError):  # raised again below
                text = known.text_of(row)
                # Unknown ids become it, too.
                if "\ufffd" not in text and not known.parts_bytes(row):
                    return text if wanted is str else text.encode()
        ids = self._checked(row)
        if wanted in (str, bytes) and known.model is None:
            text = known.text_of(ids)
            return text if wanted is str else text.encode()
        return self._decoded([known.pieces[id_] for id_ in ids], ids, wanted, in_bytes)

    def _decode_pieces(self, wanted: Any, in_bytes: bool, row: Any) -> Any:
        kinds = {*map(type, row)} if _is_row(row) else {int}
        if not all(issubclass(kind, (str, bytes)) for kind in kinds):
            raise TypeError(_STRINGS)
        if kinds == {str}:
            pieces = list(row)
            _piece_of("".join(pieces))
        else:
            pieces = list(map(_piece_of, row))
        known = self._known
        if known.model is None and wanted in (str, bytes):
            text = known.tokenizer.convert_tokens_to_string(map(_repaired, pieces))
            return text.encode() if wanted is bytes else text
        ids = list(map(known.ids.get, pieces, itertools.repeat(known.unk_id)))
        if wanted in (str, bytes) and known.unk_id not in ids:
            return self._decode_ids(wanted, in_bytes, ids)
        return self._decoded(pieces, ids, wanted, in_bytes)

    def _decoded(self, pieces: list[str], ids: list[int], wanted: Any, in_bytes: bool) -> Any:
        text, surfaces = self._known.decode(pieces, ids)
        if wanted is bytes:
            return _raw(text)
        if wanted is str or (wanted == "offset_mapping" and not in_bytes):
            _raw(text).decode()  # unknown pieces may not be UTF-8
        if wanted is str:
            return text
        ends = list(itertools.accumulate(map(len, surfaces)))
        parts = _Parts(pieces, ids, [0, *ends][: len(ends)], ends, [False] * len(ids))
        if wanted == "offset_mapping":
            return _mapping({"text": _raw(text) if in_bytes else text}, parts, text, in_bytes)
        return _as_proto(text, parts, surfaces, wanted)

    def decode_ids(self, input: Any, return_type: Any = None, **options: Any) -> Any:
        """Decode ids; see `decode`."""
        return self.decode(input, return_type, **options)

    def decode_pieces(self, input: Any, return_type: Any = None, **options: Any) -> Any:
        """Decode pieces; see `decode`."""
        return self.decode(input, return_type, **options)

    def decode_ids_as_proto(self, input: Any, **options: Any) -> Any:
        """Decode to sentencepiece's messages; sentencepiece must be installed."""
        return self.decode(input, "proto", **options)

    decode_pieces_as_proto = decode_ids_as_proto

    # -- What is refused ---

    def sample_encode_as_ids(self, *args: Any, **options: Any) -> NoReturn:
        """Raise ValueError: nothing is sampled here."""
        _refuse("sampling", "encode takes the one segmentation of BPE")

    sample_encode_as_pieces = sample_encode_as_numpy = sample_encode_as_ids
    sample_encode_as_proto = sample_encode_as_ids

    def nbest_encode(self, *args: Any, **options: Any) -> NoReturn:
        """Raise ValueError: BPE has one segmentation; sentencepiece refuses it for BPE, too."""
        _refuse("nbest_encode", "encode gives the one segmentation of BPE")

    nbest_encode_as_ids = nbest_encode_as_pieces = nbest_encode_as_numpy = nbest_encode
    nbest_encode_as_proto = nbest_encode

    def parallel_encode(self, *args: Any, **options: Any) -> NoReturn:
        """Raise ValueError: a text cut at `chunk_len` has other ids than the whole text."""
        _refuse("parallel_encode", "encode gives the ids of the text as a whole")

    parallel_encode_as_ids = parallel_encode_as_pieces = parallel_encode_as_numpy = parallel_encode
    parallel_encode_as_proto = parallel_encode

    # -- Pieces ---

    def _checked(self, ids: Any) -> list[int]:
        """Return ids as a list of int, all of which are in range."""
        try:
            row = [operator.index(id_) for id_ in ids]
        except TypeError:
            raise TypeError(_INTEGERS) from None
        if row and not -(2**31) <= min(row) <= max(row) < 2**31:
            raise TypeError(_INTEGERS)
        size = len(self)
        if row and not 0 <= min(row) <= max(row) < size:
            wrong = next(id_ for id_ in row if not 0 <= id_ < size)
            raise IndexError(f"piece id {wrong} is out of range: there are {size:,} pieces")
        return row

    def _look_up(self, ids: Any, what: Callable[[int], Any]) -> Any:
        if _is_row(ids):
            return [what(id_) for id_ in self._checked(ids)]
        return what(self._checked([ids])[0])

    def id_to_piece(self, id: Any) -> Any:
        """Return the piece of an id, or a list of pieces for several ids."""
        return self._look_up(id, lambda id_: self._known.pieces[id_])

    def piece_to_id(self, piece: Any) -> Any:
        """Return the id of a piece, or a list for several; unknown pieces have the id of unk."""
        known = self._known
        if isinstance(piece, (str, bytes, bytearray)):
            return known.ids.get(_piece_of(piece), known.unk_id)
        if not hasattr(piece, "__getitem__") or isinstance(piece, (dict, memoryview)):
            raise TypeError(f"piece_to_id: expected str, bytes or several, got {piece!r}")
        return [known.ids.get(_piece_of(each), known.unk_id) for each in piece]

    def get_score(self, id: Any) -> Any:
        """Return the score of an id, or of several; raise ValueError without a model."""
        model = self._known.model
        if model is None:
            raise _without_model("get_score")
        scores = [piece.score for piece in model.pieces]
        return self._look_up(id, lambda id_: scores[id_] if id_ < len(scores) else 0.0)

    def _is(self, ids: Any, kind: int) -> Any:
        return self._look_up(ids, lambda id_: self._known.types[id_] == kind)

    def is_unknown(self, id: Any) -> Any:
        """Return whether an id is the unknown piece's."""
        return self._is(id, reader.UNKNOWN)

    def is_control(self, id: Any) -> Any:
        """Return whether an id is a control symbol's, which no text gives."""
        return self._is(id, reader.CONTROL)

    def is_unused(self, id: Any) -> Any:
        """Return whether an id is an unused piece's, or has no piece."""
        return self._is(id, reader.UNUSED)

    def is_byte(self, id: Any) -> Any:
        """Return whether an id is a byte's."""
        return self._is(id, reader.BYTE)

    def get_piece_size(self) -> int:
        """Return how many pieces there are: the largest id plus one."""
        return len(self._made.pieces) if self._made else 0

    __len__ = piece_size = vocab_size = get_piece_size

    def __getitem__(self, piece: Any) -> Any:
        return self.piece_to_id(piece)

    def _role(self, role: str) -> int:
        return self._known.roles.get(f"{role}_token", -1)

    def bos_id(self) -> int:
        """Return the id of bos, or -1."""
        return self._role("bos")

    def eos_id(self) -> int:
        """Return the id of eos, or -1."""
        return self._role("eos")

    def pad_id(self) -> int:
        """Return the id of pad, or -1."""
        return self._role("pad")

    def unk_id(self) -> int:
        """Return the id of the unknown piece."""
        return self._known.unk_id

    def serialized_model_proto(self) -> bytes:
        """Return the content of the model's file; raise ValueError if there is none any longer."""
        known = self._known
        if known.model is None:
            raise _without_model("serialized_model_proto")
        if len(known.pieces) != len(known.model.pieces):
            problem = "the tokenizer has more tokens than its SentencePiece model"
            raise ValueError(f"{problem}; save(directory) writes tokenizer.json")
        return known.data

    # -- As an object ---

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        made = state.pop("_made", None)
        return {**state, "made": made and (made.tokenizer, made.data)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        made = state.pop("made")
        self.__dict__.update(state)
        if made:
            tokenizer, data = made
            if data:
                self._read(data, Path("model_proto"))
            model = self._made.model if self._made else None
            self._made = _Vocabulary(tokenizer, model, data)

    def __repr__(self) -> str:
        return f"<SentencePieceProcessor of {len(self):,} pieces, by bpe_tokenizer>"


_IN_ONE_SPELLING = (
    *("of", "from_file", "from_proto", "bos_id", "eos_id", "pad_id", "unk_id"),
    *("piece_size", "vocab_size", "serialized_model_proto"),
)


def _add_names_in_camel_case(cls: Any) -> None:
    """Add each method under its other name, too, such as `EncodeAsIds` or `NBestEncode`."""
    for name, method in list(vars(cls).items()):
        if name[0] != "_" and name not in _IN_ONE_SPELLING:
            camel = "".join(map(str.capitalize, name.split("_")))
            setattr(cls, camel.replace("Nbest", "NBest"), method)
    cls.tokenize, cls.detokenize = cls.Tokenize, cls.Detokenize = cls.encode, cls.decode


_add_names_in_camel_case(SentencePieceProcessor)


def _refuse(what: str, instead: str) -> NoReturn:
    raise ValueError(f"{what} is not supported; {instead}")


def _without_model(call: str) -> ValueError:
    problem = "needs a SentencePiece model, which this tokenizer doesn't have"
    return ValueError(f"{call} {problem}; name its file: as_sentencepiece(model_file)")


def _is_row(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes, dict))


def _first(row: Any) -> Any:
    return row[0] if len(row) else None


def _text_of(text: Any) -> str:
    if isinstance(text, str):
        if _SURROGATE.search(text):
            core.utf8_length(text)  # raises, with its place
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "surrogateescape")
    raise TypeError("Input must be str or bytes")


def _piece_of(piece: Any) -> str:
    if isinstance(piece, str) and not _SURROGATE.search(piece):
        return piece
    if isinstance(piece, (bytes, bytearray)):
        return piece.decode("utf-8", "surrogateescape")
    raise TypeError(_STRINGS)


def _mapping(made: dict[str, Any], parts: _Parts, text: str, in_bytes: bool) -> dict[str, Any]:
    """Return pieces, ids and offsets in the form of return_type="offset_mapping"."""
    pieces, ids, begins, ends, _ = parts
    if not in_bytes:
        return {**made, "ids": ids, "pieces": pieces, "offsets": list(zip(begins, ends))}
    at = _places_in_bytes(text).__getitem__
    places = list(zip(map(at, begins), map(at, ends)))
    return {**made, "ids": ids, "pieces": [*map(_raw, pieces)], "offsets": places}


def _places_in_bytes(text: str) -> list[int]:
    """Return the byte offset of each character of a text in UTF-8, and of its end."""
    return [0, *itertools.accumulate(len(_raw(char)) for char in text)]


def _as_proto(text: str, parts: _Parts, surfaces: Sequence[str | None], wanted: str) -> Any:
    """Write a SentencePieceText message, or make an object of it."""
    fields, at = [_field(1, _raw(text))], _places_in_bytes(text)
    for piece, id_, begin, end, surface in zip(*parts[:4], surfaces):
        said = _field(1, _raw(piece)) + _number(2, id_)
        said += b"" if surface is None else _field(3, _raw(surface))
        fields.append(_field(2, said + _number(4, at[begin]) + _number(5, at[end])))
    made = b"".join(fields)
    if wanted == "serialized_proto":
        return made
    messages = core.import_optional(
        "sentencepiece.sentencepiece_pb2", "return_type='proto'", "sentencepiece protobuf"
    )
    return messages.SentencePieceText.FromString(made)


def _number(field: int, value: int) -> bytes:
    """Write a varint, with its field number before it unless that is 0."""
    made = bytearray([field << 3] if field else [])
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _field(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _number(0, len(value)) + value


def _model_of(tokenizer: BPETokenizer) -> tuple[reader.Model | None, bytes]:
    """Read the model that a tokenizer was read from, or beside, if it still exists."""
    path = core.path(tokenizer)
    with contextlib.suppress(OSError, FileFormatError):
        if path.is_dir():
            beside = path / "tokenizer.model"
            path = beside if beside.is_file() else next(iter(files_within(path)), path)
        if path.is_file() and format_of(path) == "sentencepiece":
            return reader.read_model(path), path.read_bytes()
    return None, b""


def as_sentencepiece(
    tokenizer: BPETokenizer, model_file: str | os.PathLike[str] | None = None
) -> SentencePieceProcessor:
    """Return a tokenizer as a `sentencepiece.SentencePieceProcessor`, with this tokenizer's ids.

    Scores, kinds of pieces and `serialized_model_proto` come from the .model file that the
    tokenizer was read from, or from `model_file`, whose pieces it must have.  Without one,
    pieces are written as in tokenizer.json and special tokens are control symbols, while
    `get_score`, `serialized_model_proto` and decoding to offsets raise ValueError.

    >>> as_sentencepiece(BPETokenizer()).encode("hi", out_type=str)
    ['h', 'i']
    """
    return SentencePieceProcessor.of(tokenizer, model_file)
