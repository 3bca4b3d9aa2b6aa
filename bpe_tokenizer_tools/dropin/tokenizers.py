"""A faster `tokenizers.Tokenizer`: this library's engine behind HuggingFace's interface.

`Tokenizer` wraps HuggingFace's object.  This library encodes and decodes: it gives ids, masks,
tokens and offsets of texts, and the text of ids.  HuggingFace's object does the rest: pairs of
texts, words, overflow, components, added tokens, files.  It does everything for a tokenizer that
this library can't represent exactly.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import os
import threading
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core

_COMPONENTS = ("normalizer", "pre_tokenizer", "model", "post_processor", "decoder")
# The options of a model that can be set; the rest of its state is the vocabulary.
_MODEL = (
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)
# Methods that depend on no settings, so that a replacement can call HuggingFace's own.
_WITHOUT_SETTINGS = {"decode", "decode_batch"}
# HuggingFace's methods that depend on the settings and are only here by name.
_WITH_SETTINGS = {
    "async_encode",
    "async_encode_batch",
    "async_encode_batch_fast",
    "encode_batch_fast",
}
# If this library raises one of these, HuggingFace's object is called, to raise its own error.
_REFUSED = (ValueError, TypeError, OverflowError)
_NOT_MADE = object()
_LONGEST_BEGUN = 3  # bytes of a character that isn't complete
_MANY = 1 << 18  # characters for which a second thread pays off


def _threads() -> int:
    """Return how many threads to use; like tokenizers, heed TOKENIZERS_PARALLELISM."""
    wanted = os.environ.get("TOKENIZERS_PARALLELISM", "true").lower()
    return 1 if wanted in ("false", "off", "no", "n", "f", "0", "") else core.cores()


class _Engine(NamedTuple):
    """This library's tokenizer for one state of HuggingFace's, and how the two differ."""

    ours: BPETokenizer
    before: list[int]  # what add_special_tokens puts around a text
    after: list[int]
    special: frozenset[int]  # what skip_special_tokens leaves out
    splits_alike: bool  # whether encode_special_tokens means the same tokens here
    decodes_alike: bool  # False if HuggingFace decodes an added token such as "é" as a byte
    shows_alike: bool  # False if its Encoding shows the text where an added token was found
    one_text: bool  # whether HuggingFace counts one text in an encoding of one
    trims: bool  # offsets are trimmed; which ones depends on what truncation cuts off
    found: Any  # the finder of added tokens; None if text is changed before it is encoded

    @classmethod
    def of(cls, theirs: Any, ours: BPETokenizer | None) -> _Engine:
        """Convert a tokenizer; raise ValueError if ids or masks could differ."""
        if ours is None:
            ours = BPETokenizer.from_hf(theirs)
        before, after = map(list, core.around_elsewhere(ours))
        probe = theirs.encode("a")
        if probe.ids != [*before, *ours.encode("a"), *after] or any(probe.type_ids):
            raise ValueError("its post-processor puts other tokens around texts, or gives type ids")
        added = theirs.get_added_tokens_decoder()
        special = frozenset(id_ for id_, token in added.items() if token.special)
        same = all(
            theirs.id_to_token(id_) == token.content  # theirs may be the normalized text
            and _decode(theirs, [id_], False) == ours.decode([id_])
            for id_, token in added.items()
        )
        # As ordinary text, their token may match whole words only, or merges may make it.
        splits_alike = special == set(ours.special_tokens.values()) and all(
            theirs.model.token_to_id(added[id_].content) is None for id_ in special
        )
        found_changed = theirs.normalizer is not None or any(
            token.lstrip or token.rstrip for token in added.values()
        )
        given = ours.definition
        changed = given.normalizer or given.prefix_space or given.components
        return cls(
            ours,
            before,
            after,
            special,
            splits_alike,
            same,
            not (added and found_changed),
            probe.n_sequences == 1,
            given.trim_offsets,
            None if changed else core.engine().spans_of([token.content for token in given.added]),
        )

    def encode(self, texts: Sequence[str], allowed: str) -> list[list[int]]:
        """Encode texts, many on threads; raise ValueError for a lone surrogate."""
        threads = _threads() if self.found and sum(map(len, texts)) >= _MANY else 1
        if threads == 1:
            encode = self.ours.encode
            return [encode(text, allowed_special=allowed) for text in texts]
        plain = [not self.found(text, 0, len(text)) for text in texts]
        rows = iter(core.encoder(self.ours).encode_batch([*compress(texts, plain)], threads))
        return [
            next(rows) if is_plain else self.ours.encode(text, allowed_special=allowed)
            for text, is_plain in zip(texts, plain)
        ]

    def places(self, text: str, allowed: str) -> list[tuple[int, int]]:
        """Return the (start, end) in characters of each id of a text."""
        if self.found and not self.trims and not self.found(text, 0, len(text)):
            encoder = core.encoder(self.ours)
            return encoder.places(text, encoder.encode(text))
        return core.offsets(self.ours, text, allowed)


class _State(NamedTuple):
    """The settings that a caller may change, which a call depends on besides its text."""

    truncation: dict[str, Any] | None
    padding: dict[str, Any] | None
    encode_special_tokens: bool

    def put_on(self, theirs: Any) -> None:
        """Apply these settings to HuggingFace's object."""
        if self.truncation is None:
            theirs.no_truncation()
        else:
            theirs.enable_truncation(**self.truncation)
        if self.padding is None:
            theirs.no_padding()
        else:
            theirs.enable_padding(**self.padding)
        theirs.encode_special_tokens = self.encode_special_tokens

    @classmethod
    def on(cls, theirs: Any) -> _State:
        """Return the settings of HuggingFace's object."""
        return cls(theirs.truncation, theirs.padding, theirs.encode_special_tokens)


class _Call(NamedTuple):
    """What the encodings of one call have in common."""

    tokenizer: Tokenizer
    engine: _Engine
    state: _State
    add_special_tokens: bool

    @property
    def allowed(self) -> str:
        return "none" if self.state.encode_special_tokens else "all"

    @property
    def around(self) -> tuple[list[int], list[int]]:
        return (self.engine.before, self.engine.after) if self.add_special_tokens else ([], [])

    def room(self) -> int | None:
        """Return how many tokens of a text are kept: None is all, -1 for HuggingFace to decide."""
        cut = self.state.truncation
        if cut is None:
            return None
        before, after = self.around
        room: int = cut["max_length"] - len(before) - len(after)
        usual = cut["strategy"] != "only_second" and room > cut["stride"]
        return room if usual else -1


class Encoding:
    """An encoded text, like `tokenizers.Encoding`; fields are computed when they are read."""

    __slots__ = ("_call", "_cut", "_pads", "_real", "_row", "_text")

    def __init__(self, call: _Call, text: str, row: list[int], cut: slice, pads: tuple[int, int]):
        self._call, self._text = call, text
        self._row = row  # the ids, without padding
        self._cut = cut  # the text's tokens that are kept
        self._pads = pads  # how many to the left and to the right
        self._real: Any = None

    def _padded(self, row: list[Any], field: str, fill: Any = None) -> list[Any]:
        left, right = self._pads
        if not left and not right:
            return row
        if fill is None:
            fill = (self._call.state.padding or {})[field]
        return [fill] * left + row + [fill] * right

    def _as_real(self) -> Any:
        """Return HuggingFace's own encoding, for what is rarely used."""
        if self._real is None:
            call = self._call
            with call.tokenizer._set(call.engine, call.state._replace(padding=None)) as theirs:
                real = theirs.encode(self._text, add_special_tokens=call.add_special_tokens)
            if call.state.padding is not None:
                padding = dict(call.state.padding)
                padding.pop("pad_to_multiple_of"), padding.pop("length")
                real.pad(len(self), **padding)
            self._real = real
        return self._real

    @property
    def ids(self) -> list[int]:
        """The ids."""
        if self._real is not None:
            return self._real.ids  # type: ignore[no-any-return]
        return self._padded(self._row[:], "pad_id")

    @property
    def type_ids(self) -> list[int]:
        """Which text of a pair each token belongs to: 0 or 1."""
        if self._real is not None:
            return self._real.type_ids  # type: ignore[no-any-return]
        return self._padded([0] * len(self._row), "pad_type_id")

    @property
    def attention_mask(self) -> list[int]:
        """1 for tokens and 0 for padding."""
        if self._real is not None:
            return self._real.attention_mask  # type: ignore[no-any-return]
        return self._padded([1] * len(self._row), "", 0)

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 for tokens that were added around the text, 0 for those of the text."""
        if self._real is not None:
            return self._real.special_tokens_mask  # type: ignore[no-any-return]
        return self._padded(self._surrounded([0] * self._n_kept(), 1), "", 1)

    @property
    def tokens(self) -> list[str]:
        """The tokens, printable."""
        engine = self._call.engine
        if self._real is not None or not engine.shows_alike:
            return self._as_real().tokens  # type: ignore[no-any-return]
        return self._padded(engine.ours.convert_ids_to_tokens(self._row), "pad_token")

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The (start, end) of each token in characters of the text."""
        call = self._call
        if self._real is not None or (call.engine.trims and call.state.truncation is not None):
            return self._as_real().offsets  # type: ignore[no-any-return]
        own = call.engine.places(self._text, call.allowed)
        return self._padded(self._surrounded(own[self._cut], (0, 0)), "", (0, 0))

    @property
    def overflowing(self) -> list[Any]:
        """What truncation cut off, as encodings."""
        if self._call.state.truncation is None and self._real is None:
            return []
        return self._as_real().overflowing  # type: ignore[no-any-return]

    @property
    def n_sequences(self) -> int:
        """How many texts were encoded: 2 for pairs."""
        if self._real is None and self._call.engine.one_text and self._n_kept():
            return 1
        return self._as_real().n_sequences  # type: ignore[no-any-return]

    def _n_kept(self) -> int:
        before, after = self._call.around
        return len(self._row) - len(before) - len(after)

    def _surrounded(self, own: list[Any], special: Any) -> list[Any]:
        before, after = self._call.around
        return [special] * len(before) + own + [special] * len(after)

    @staticmethod
    def merge(encodings: Sequence[Any], growing_offsets: bool = True) -> Any:
        """Join several encodings to one."""
        library = core.import_optional("tokenizers", "Encoding.merge", "tokenizers")
        return library.Encoding.merge([*map(_real, encodings)], growing_offsets)

    def __len__(self) -> int:
        if self._real is not None:
            return len(self._real)
        return len(self._row) + sum(self._pads)

    def __getattr__(self, name: str) -> Any:  # what is rarely used, or changes an encoding
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._as_real(), name)

    def __repr__(self) -> str:
        return repr(self._as_real())

    def __reduce__(self) -> tuple[Any, ...]:
        return copy.copy, (self._as_real(),)


def _real(encoding: Any) -> Any:
    return encoding._as_real() if isinstance(encoding, Encoding) else encoding


class Tokenizer:
    """Gives the results of a `tokenizers.Tokenizer`, faster.

    Each thread has its own truncation, padding and `encode_special_tokens`, so threads that share
    a tokenizer don't change each other's.

    Args:
        theirs: the `tokenizers.Tokenizer`.  If one of its methods was replaced on the object, as
            CLIP's `decode` is, the replacement is kept.
        ours: the same as a `BPETokenizer`; None converts it when needed.
    """

    def __init__(self, theirs: Any, ours: BPETokenizer | None = None) -> None:
        self._theirs = theirs
        self._lock = threading.RLock()  # around everything that sets or uses HuggingFace's object
        self._shared = _State.on(theirs)  # for threads that have set nothing
        self._own = threading.local()
        self._lent: dict[str, Any] = {}  # components that callers got and may change
        self._seen: dict[str, Any] = {}  # their state when the engine was made
        self.refusal = ""  # why this library's engine isn't used
        self._engine: Any = _NOT_MADE  # or None, if there can't be one
        # Methods of the object itself, which win over those of its class.
        self._replaced = {name for name in vars(theirs) if name in vars(Tokenizer)}
        for name in self._replaced & _WITHOUT_SETTINGS:
            super().__setattr__(name, getattr(theirs, name))
        if ours is not None:
            self._engine = self._make(ours)

    # -- State ---

    def _make(self, ours: BPETokenizer | None = None) -> _Engine | None:
        self.refusal = ""
        # NOTE: such a method may call HuggingFace's own, which knows no thread's settings.
        if replaced := self._replaced - _WITHOUT_SETTINGS:
            self.refusal = f"methods were replaced on its backend: {', '.join(sorted(replaced))}"
            return None
        try:
            with self._lock:
                self._theirs.no_truncation()
                self._theirs.no_padding()
                return _Engine.of(self._theirs, ours)
        except ValueError as error:
            self.refusal = str(error)
            return None

    def _current(self) -> _Engine | None:
        """Return the engine for the current state of HuggingFace's object, or None."""
        if self._lent and any(
            _state_of(self._lent[name]) != seen for name, seen in self._seen.items()
        ):
            self._changed()
        engine = self._engine
        if engine is _NOT_MADE:
            with self._lock:
                if self._engine is _NOT_MADE:
                    self._engine = self._make()
                engine = self._engine
        return engine  # type: ignore[no-any-return]

    def _changed(self) -> None:
        """Forget what was made from HuggingFace's object, because it has changed."""
        with self._lock:
            self._engine = _NOT_MADE
            self._seen = {name: _state_of(each) for name, each in self._lent.items()}

    @property
    def _state(self) -> _State:
        return getattr(self._own, "state", self._shared)

    def _set_state(self, **changes: Any) -> None:
        self._own.state = self._shared = self._state._replace(**changes)

    @contextlib.contextmanager
    def _set(self, engine: _Engine | None = None, state: _State | None = None) -> Iterator[Any]:
        """Lend HuggingFace's object, with this thread's settings, to this thread alone."""
        with self._lock:
            theirs = self._theirs
            if engine is not None and engine is not self._engine:
                theirs = engine.ours.to_hf()  # in the state it had then
            (state or self._state).put_on(theirs)
            yield theirs

    # -- Encoding and decoding ---

    def encode(
        self,
        sequence: Any,
        pair: Any = None,
        is_pretokenized: bool = False,
        add_special_tokens: bool = True,
    ) -> Any:
        """Encode a text or a pair of texts."""
        engine = self._current()
        if engine and pair is None and not is_pretokenized and isinstance(sequence, str):
            made = self._encode(engine, [sequence], add_special_tokens)
            if made is not None:
                return made[0]
        with self._set() as theirs:
            return theirs.encode(sequence, pair, is_pretokenized, add_special_tokens)

    def encode_batch(
        self, input: Any, is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> list[Any]:
        """Encode several texts, or pairs of texts."""
        engine = self._current()
        if engine and not is_pretokenized and isinstance(input, (list, tuple)) and input:
            made = None
            if all(isinstance(text, str) for text in input):
                made = self._encode(engine, input, add_special_tokens)
            if made is not None:
                return made
        with self._set() as theirs:
            return theirs.encode_batch(input, is_pretokenized, add_special_tokens)  # type: ignore[no-any-return]

    def _encode(
        self, engine: _Engine, texts: Sequence[str], add_special_tokens: bool
    ) -> list[Any] | None:
        """Encode texts by this library; None if HuggingFace's has to do it, or to refuse it."""
        if not isinstance(add_special_tokens, bool):
            return None
        call = _Call(self, engine, self._state, add_special_tokens)
        if call.state.encode_special_tokens and not engine.splits_alike:
            return None
        room = call.room()
        try:
            rows = engine.encode(texts, call.allowed)
        except ValueError:  # a lone surrogate
            return None
        cuts = [slice(None)] * len(rows)
        if room is not None:
            if room < 0:
                return None
            left = call.state.truncation["direction"] == "left"  # type: ignore[index]
            cuts = [
                slice(len(row) - room, None) if left and len(row) > room else slice(room)
                for row in rows
            ]
            rows = [row[cut] if len(row) > room else row for row, cut in zip(rows, cuts)]
        before, after = call.around
        if before or after:
            rows = [[*before, *row, *after] for row in rows]
        pads = self._pads(call.state.padding, rows)
        return [Encoding(call, *each) for each in zip(texts, rows, cuts, pads)]

    @staticmethod
    def _pads(padding: dict[str, Any] | None, rows: list[list[int]]) -> list[tuple[int, int]]:
        """Return how much padding each row gets to its left and right."""
        if padding is None:
            return [(0, 0)] * len(rows)
        length, multiple = padding["length"], padding["pad_to_multiple_of"]
        if length is None:
            length = max(map(len, rows))
        if multiple:
            length += -length % multiple
        missing = [max(0, length - len(row)) for row in rows]
        return [(n, 0) if padding["direction"] == "left" else (0, n) for n in missing]

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        """Decode ids to text."""
        engine = self._current()
        is_plain = isinstance(ids, (list, tuple)) and isinstance(skip_special_tokens, bool)
        if engine and engine.decodes_alike and is_plain:
            with contextlib.suppress(*_REFUSED):  # a broken character, an unknown id
                kept = ids
                if skip_special_tokens and not engine.special.isdisjoint(ids):
                    kept = [id_ for id_ in ids if id_ not in engine.special]
                return engine.ours.decode(kept, errors="strict")
        with self._lock:
            return _decode(self._theirs, ids, skip_special_tokens)

    def decode_batch(self, sequences: Any, skip_special_tokens: bool = True) -> list[str]:
        """Decode several lists of ids."""
        if not isinstance(sequences, (list, tuple)):  # HuggingFace's does it, or refuses it
            with self._lock:
                return self._theirs.decode_batch(sequences, skip_special_tokens)  # type: ignore[no-any-return]
        return [_decode(self, ids, skip_special_tokens) for ids in sequences]

    # -- Settings and training ---

    @property
    def truncation(self) -> dict[str, Any] | None:
        """The settings of `enable_truncation`, or None."""
        return self._state.truncation and dict(self._state.truncation)

    def enable_truncation(self, max_length: int, *args: Any, **options: Any) -> None:
        """Cut texts of more than `max_length` tokens, until `no_truncation`."""
        with self._lock:
            self._theirs.enable_truncation(max_length, *args, **options)
            self._set_state(truncation=self._theirs.truncation)

    def no_truncation(self) -> None:
        """Cut nothing."""
        self._set_state(truncation=None)

    @property
    def padding(self) -> dict[str, Any] | None:
        """The settings of `enable_padding`, or None."""
        return self._state.padding and dict(self._state.padding)

    def enable_padding(self, *args: Any, **options: Any) -> None:
        """Pad encodings to one length, until `no_padding`."""
        with self._lock:
            self._theirs.enable_padding(*args, **options)
            self._set_state(padding=self._theirs.padding)

    def no_padding(self) -> None:
        """Pad nothing."""
        self._set_state(padding=None)

    @property
    def encode_special_tokens(self) -> bool:
        """Whether special tokens in a text are ordinary text."""
        return self._state.encode_special_tokens

    @encode_special_tokens.setter
    def encode_special_tokens(self, value: bool) -> None:
        self._set_state(encode_special_tokens=value)

    def _change(self, name: str, *args: Any, **options: Any) -> Any:
        with self._set() as theirs:
            done = getattr(theirs, name)(*args, **options)
            self._changed()
        return done

    def add_tokens(self, tokens: Any) -> int:
        """Add tokens; return how many are new."""
        return self._change("add_tokens", tokens)  # type: ignore[no-any-return]

    def add_special_tokens(self, tokens: Any) -> int:
        """Add special tokens; return how many are new."""
        return self._change("add_special_tokens", tokens)  # type: ignore[no-any-return]

    def train(self, *args: Any, **options: Any) -> None:
        """Train the model on files, by HuggingFace's trainer."""
        self._change("train", *args, **options)

    def train_from_iterator(self, *args: Any, **options: Any) -> None:
        """Train the model on texts, by HuggingFace's trainer."""
        self._change("train_from_iterator", *args, **options)

    # -- Everything else ---

    def post_process(self, encoding: Any, pair: Any = None, add_special_tokens: bool = True) -> Any:
        """Truncate and pad an encoding, and put special tokens around it."""
        # NOTE: this encodes with the settings of the first call, so it comes before `_set`.
        encoding, pair = _real(encoding), _real(pair)
        with self._set() as theirs:
            return theirs.post_process(encoding, pair, add_special_tokens)

    def save(self, path: str, pretty: bool = True) -> None:
        """Write tokenizer.json."""
        with self._set() as theirs:
            theirs.save(path, pretty)

    def to_str(self, pretty: bool = False) -> str:
        """Return what `save` writes."""
        with self._set() as theirs:
            return theirs.to_str(pretty)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._theirs, name)
        if name in _WITH_SETTINGS:
            return functools.partial(self._with_settings, name)
        if name in _COMPONENTS and value is not None:
            with self._lock:
                self._lent[name], self._seen[name] = value, _state_of(value)
        return value

    def _with_settings(self, name: str, *args: Any, **options: Any) -> Any:
        with self._set() as theirs:
            return getattr(theirs, name)(*args, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _COMPONENTS:
            with self._lock:
                setattr(self._theirs, name, value)
                self._lent.pop(name, None)
                self._changed()
        else:
            super().__setattr__(name, value)

    def __deepcopy__(self, memo: Any) -> Tokenizer:
        with self._set() as theirs:
            made = _rebuild(copy.deepcopy(theirs), theirs.encode_special_tokens)
        if self._current():
            made._engine = self._engine
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        with self._set() as theirs:
            return _rebuild, (copy.deepcopy(theirs), theirs.encode_special_tokens)

    def __repr__(self) -> str:
        with self._set() as theirs:
            return repr(theirs)

    def __str__(self) -> str:  # a shorter one: it leaves out the end of long fields
        with self._set() as theirs:
            return str(theirs)


def _decode(tokenizer: Any, ids: Any, skip_special_tokens: bool) -> str:
    """Decode as a tokenizer's class does, even if the method was replaced on the object."""
    return type(tokenizer).decode(tokenizer, ids, skip_special_tokens)  # type: ignore[no-any-return]


def as_tokenizers(tokenizer: BPETokenizer) -> Tokenizer:
    """Return a tokenizer as the `tokenizers.Tokenizer` of its saved files, on this engine.

    As in tokenizers, special tokens in text are recognized; with ``encode_special_tokens = True``
    they are text.  Raises ValueError for a tokenizer that tokenizer.json can't represent.
    """
    return Tokenizer(tokenizer.to_hf(), copy.copy(tokenizer))


def _rebuild(theirs: Any, encode_special_tokens: bool) -> Tokenizer:
    theirs.encode_special_tokens = encode_special_tokens
    return Tokenizer(theirs)


def _state_of(component: Any) -> Any:
    """Return everything in a component that can be changed in place."""
    if hasattr(component, "tokenize"):  # a model
        return type(component), [getattr(component, name, None) for name in _MODEL]
    return component.__getstate__()


class DecodeStream:
    """Decodes ids as they come, as `tokenizers.decoders.DecodeStream` does, with one exception.

    If the prompt `ids` ends inside a character, the first text is what was generated, with that
    character whole.  HuggingFace's stream gives the prompt's text again.
    """

    def __init__(self, ids: Any = None, skip_special_tokens: Any = None) -> None:
        self._theirs = their_stream()(ids, skip_special_tokens)  # raises errors of types
        self._skip = bool(skip_special_tokens)
        # The ids since the last text, and some before.
        self._ids = [] if ids is None else [*map(operator.index, ids)]
        self._text = ""  # the text of the first `_n` of them
        self._n = 0
        # Until the first text: the texts of a prompt that ends inside a character, and of its
        # beginnings; None before the first step.
        self._prompt: list[str] | None = None

    def step(self, tokenizer: Any, id: Any) -> str | None:
        """Take one id or several; return the text that they complete, or None."""
        if not isinstance(tokenizer, (Tokenizer, _their_tokenizer())):
            return self._theirs.step(tokenizer, id)  # type: ignore[no-any-return]  # raises
        if self._prompt is None:
            self._prompt = self._begin(tokenizer)
        elif not self._text and self._ids:
            text = _decode(tokenizer, self._ids, self._skip)
            if not text.endswith("\ufffd"):
                self._text, self._n = text, len(self._ids)
        self._ids += _ids_of(id)
        text = _decode(tokenizer, self._ids, self._skip)
        if len(text.encode()) <= len(self._text.encode()) or text.endswith("\ufffd"):
            return None
        if not text.startswith(self._text):
            problem = "Invalid prefix encountered while decoding stream. "
            raise ValueError(f"{problem}{text!r} does not begin with {self._text!r}")
        known = len(self._text)
        if self._prompt:
            known = max(_n_shared(text, each) for each in self._prompt)
            self._prompt = []
        del self._ids[: self._n]
        self._text, self._n = _decode(tokenizer, self._ids, self._skip), len(self._ids)
        return text[known:] or None

    def _begin(self, tokenizer: Any) -> list[str]:
        """Decode the prompt; if it ends inside a character, return its text.

        Also return the texts without the ids of the character that has begun: a run of byte tokens
        that ends inside a character has only U+FFFD as its text.
        """
        if not self._ids:
            return []
        text = _decode(tokenizer, self._ids, self._skip)
        if not text.endswith("\ufffd"):
            self._text, self._n = text, len(self._ids)
            return []
        begun = range(1, min(_LONGEST_BEGUN, len(self._ids)) + 1)
        return [text, *(_decode(tokenizer, self._ids[:-n], self._skip) for n in begun)]

    def __copy__(self) -> DecodeStream:
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        made._ids = self._ids[:]
        return made

    def __deepcopy__(self, memo: Any) -> DecodeStream:
        return copy.copy(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")


def _n_shared(one: str, two: str) -> int:
    """Return how many characters at the start of two texts are the same."""
    for i, (a, b) in enumerate(zip(one, two)):
        if a != b:
            return i
    return min(len(one), len(two))


def _ids_of(given: Any) -> list[int]:
    """Return the ids given to a step as a list; raise TypeError for anything else."""
    several = hasattr(given, "__getitem__") and getattr(given, "ndim", 1) > 0
    if not isinstance(given, (str, dict)):
        with contextlib.suppress(TypeError):
            ids = [*map(operator.index, given if several else [given])]
            if all(0 <= id_ < 1 << 32 for id_ in ids):
                return ids
    raise TypeError(f"expected an id of 32 bits or a list of them, got {given!r:.60}")


@functools.lru_cache(maxsize=1)
def _their_tokenizer() -> Any:
    return core.import_optional("tokenizers", "DecodeStream", "tokenizers").Tokenizer


@functools.lru_cache(maxsize=1)
def their_stream() -> Any:
    """Return HuggingFace's own DecodeStream; the first call must come before a replacement."""
    return core.import_optional("tokenizers.decoders", "DecodeStream", "tokenizers").DecodeStream
