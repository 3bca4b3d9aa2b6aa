"""tiktoken's calls, with the ids of tiktoken and the speed of this library.

    encoding = tokenizer.as_tiktoken()      # a tokenizer of this library as a tiktoken.Encoding
    patch_tiktoken()                        # or make tiktoken itself faster, and what builds on it

`Encoding` has everything public of `tiktoken.Encoding`, and is a subclass of it if tiktoken is
installed.  `CoreBPE` has the methods of the compiled core below it: `patch_tiktoken` puts it under
tiktoken's own `Encoding`, whose checks, defaults and errors stay tiktoken's.

Source: tiktoken 0.14, tiktoken/core.py and src/lib.rs, for what each call means.
"""

from __future__ import annotations

import array
import bisect
import contextlib
import functools
import importlib
import itertools
import operator
import threading
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NoReturn

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import lost

_library: Any = None
with contextlib.suppress(ImportError):
    _library = importlib.import_module("tiktoken")
_Base: Any = _library.Encoding if _library else object

_ALL = "all"
_Allowed = Any  # "all", or a set of special tokens
_SPACE = frozenset(b" \n\t")  # white space whose cuts, for tiktoken, depend on what follows


class CoreBPE:
    """The methods of tiktoken's compiled core, which `Encoding` calls, on this engine.

    `allowed_special` is always a set; text with surrogates raises UnicodeEncodeError.
    """

    def __init__(
        self, encoder: dict[bytes, int], special_tokens_encoder: dict[str, int], pattern: str
    ) -> None:
        """Make a core from ranks; raise ValueError for what this library can't do exactly."""
        source = types.SimpleNamespace(
            name="from memory",
            _mergeable_ranks=encoder,
            _special_tokens=special_tokens_encoder,
            _pat_str=pattern,
        )
        tokenizer = BPETokenizer.from_tiktoken(source)
        if tokenizer.components is not None:
            raise lost("tiktoken's core", "a byte has no token")
        self._take(tokenizer)

    @classmethod
    def of(cls, tokenizer: BPETokenizer) -> CoreBPE:
        """Make the core of a tokenizer, which must be byte-level BPE with one split pattern."""
        if tokenizer.components is not None:
            raise lost("tiktoken", "it is not byte-level BPE with one split pattern")
        made = cls.__new__(cls)
        made._take(tokenizer)
        return made

    def _take(self, tokenizer: BPETokenizer) -> None:
        self.tokenizer = tokenizer
        self._special = tokenizer.special_tokens
        self._encode = tokenizer.encode
        self._vocab = tokenizer.definition.vocab
        self._tokens = core.tokens(tokenizer)
        self._decode = core.encoder(tokenizer).decode

    # -- Encoding ---

    def encode_ordinary(self, text: str) -> list[int]:
        """Encode a text in which special tokens are text."""
        try:
            return self._encode(text)
        except ValueError:
            text.encode()  # raises for a surrogate
            raise

    def encode(self, text: str, allowed_special: AbstractSet[str]) -> list[int]:
        """Encode a text, and recognize the allowed special tokens in it."""
        allowed = self._special.keys() & allowed_special if allowed_special else None
        if not allowed:
            return self.encode_ordinary(text)
        try:
            return self._encode(text, allowed_special=allowed)
        except ValueError:
            text.encode()
            raise

    def encode_to_tiktoken_buffer(self, text: str, allowed_special: AbstractSet[str]) -> Any:
        """Encode to a buffer of 32-bit integers."""
        allowed = self._special.keys() & allowed_special if allowed_special else None
        text.encode()  # raises for a surrogate
        if not allowed:
            return self.tokenizer.encode_to_numpy(text)
        return array.array("I", self._encode(text, allowed_special=allowed))

    def encode_single_token(self, piece: bytes) -> int:
        """Return the id of a token, special or not; raise KeyError if it isn't one."""
        if not isinstance(piece, bytes):
            raise TypeError(f"expected bytes, got {type(piece).__name__}")
        found = self._vocab.get(piece)
        if found is None:
            found = self._special_bytes.get(piece)
        if found is None:
            raise KeyError(piece)
        return found

    @functools.cached_property
    def _special_bytes(self) -> dict[bytes, int]:
        return {content.encode(): id_ for content, id_ in self._special.items()}

    def encode_single_piece(self, piece: bytes) -> list[int]:
        """Merge bytes, without cutting them first."""
        whole = self._vocab.get(piece)
        if whole is not None or not piece:
            return [] if whole is None else [whole]
        return list(self._merger._encode_pretoken(piece))

    @functools.cached_property
    def _merger(self) -> core.Encoder:
        return core.Encoder(self.tokenizer.definition)  # in Python: it takes any bytes

    def _encode_bytes(self, raw: bytes) -> list[int]:
        """Encode bytes that may end inside a character, or not be UTF-8."""
        try:
            return self.encode_ordinary(raw.decode())
        except UnicodeDecodeError as error:
            text, rest = raw[: error.start].decode(), raw[error.start :]
        ids, n_unstable = self._with_last_piece(text, frozenset())
        stable, last = ids[: len(ids) - n_unstable], ids[len(ids) - n_unstable :]
        return stable + self.encode_single_piece(self.decode_bytes(last) + rest)

    # -- Completions ---

    def encode_with_unstable(
        self, text: str, allowed_special: AbstractSet[str]
    ) -> tuple[list[int], list[list[int]]]:
        """Return the ids that no further text changes, and alternatives for the rest."""
        text.encode()
        ids, n_unstable = self._with_last_piece(text, self._special.keys() & allowed_special)
        stable = ids[: len(ids) - n_unstable]
        rest = self.decode_bytes(ids[len(stable) :])
        return stable, [list(each) for each in dict.fromkeys(self._completions(rest))]

    def _with_last_piece(self, text: str, allowed: AbstractSet[str]) -> tuple[list[int], int]:
        """Encode a text; also return how many ids at its end further text may change.

        They are the ids of the last pre-token and, if that is white space, of the white space
        before it: a pattern may cut that differently before a line break.
        """
        ids = self.encode(text, allowed)
        spans = core.engine().spans_of(allowed)(text, 0, len(text)) if allowed else ()
        end = max((end for _, end in spans), default=0)
        pieces = core.splitter(self.tokenizer.definition.split_pattern).split(text[end:])
        if not pieces:
            return ids, 0
        n = len(self.encode_single_piece(pieces[-1].encode()))
        if self._is_space(ids[-n]):
            n += sum(1 for _ in itertools.takewhile(self._is_space, ids[: len(ids) - n][::-1]))
        return ids, n

    def _is_space(self, id_: int) -> bool:
        return id_ in self._tokens and _SPACE.issuperset(self._tokens[id_])

    def _completions(self, rest: bytes) -> Iterator[tuple[int, ...]]:
        """Yield ids that may replace some bytes if more text follows them."""
        if not rest:
            return
        for token in self._beginning_with(rest):
            yield (self._vocab[token],)
        for at in range(1, len(rest)):  # a token may begin there, and extend past the end
            for token in self._beginning_with(rest[at:]):
                yield tuple(self._covering(rest[:at] + token, len(rest)))
        last = rest.decode("utf-8", "replace")[-1:]
        before = rest[: len(rest) - len(last.encode())]
        if before and last.isspace():  # further text may put a cut here
            after = rest[len(before) :]
            yield (*self.encode_single_piece(before), *self.encode_single_piece(after))

    def _beginning_with(self, start: bytes) -> Iterator[bytes]:
        tokens = self._sorted_tokens
        for i in range(bisect.bisect_left(tokens, start), len(tokens)):
            if not tokens[i].startswith(start):
                return
            yield tokens[i]

    def _covering(self, raw: bytes, size: int) -> Iterator[int]:
        """Encode bytes, and yield the ids that cover the first of them."""
        try:
            ids = self.encode_ordinary(raw.decode())
        except UnicodeDecodeError:
            ids = self.encode_single_piece(raw)
        for id_ in ids:
            yield id_
            size -= len(self._tokens[id_])
            if size <= 0:
                return

    # -- Decoding ---

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """Join the bytes of tokens; raise KeyError for an unknown id."""
        if isinstance(tokens, (int, str, bytes)):
            raise TypeError(f"expected a sequence of ids, got {type(tokens).__name__}")
        try:
            return self._decode(tokens, "strict")
        except (ValueError, OverflowError):
            ids = [_checked(id_) for id_ in tokens]
        unknown = [id_ for id_ in ids if id_ not in self._tokens]
        if unknown:
            raise KeyError(f"Invalid token for decoding: {unknown[0]}")
        return b"".join(map(self._tokens.__getitem__, ids))

    def decode_single_token_bytes(self, token: int) -> bytes:
        """Return the bytes of a token; raise KeyError for an unknown id."""
        found = self._tokens.get(_checked(token))
        if found is None:
            raise KeyError(str(token))
        return found

    def token_byte_values(self) -> list[bytes]:
        """Return the bytes of all tokens that aren't special, sorted."""
        return list(self._sorted_tokens)

    @functools.cached_property
    def _sorted_tokens(self) -> list[bytes]:
        return sorted(self._vocab)


def _checked(token: Any) -> int:
    """Return an id as a plain int of at most 32 bits."""
    id_ = operator.index(token)
    if not 0 <= id_ < 2**32:
        raise OverflowError(f"expected an id from 0 to {2**32 - 1}, got {id_}")
    return id_


class Encoding(_Base):  # type: ignore[misc]  # tiktoken may be missing
    """A `tiktoken.Encoding` that this library runs.

    Args:
        name: its name.
        pat_str: the split pattern, a regular expression.
        mergeable_ranks: token -> rank, which is also its id.
        special_tokens: special token -> id.
        explicit_n_vocab: the total number of tokens to check, if given.
    """

    _core_bpe: CoreBPE

    def __init__(
        self,
        name: str,
        *,
        pat_str: str,
        mergeable_ranks: dict[bytes, int],
        special_tokens: dict[str, int],
        explicit_n_vocab: int | None = None,
    ) -> None:
        largest = max([*mergeable_ranks.values(), *special_tokens.values()])
        if explicit_n_vocab:
            assert len(mergeable_ranks) + len(special_tokens) == explicit_n_vocab
            assert largest == explicit_n_vocab - 1
        made = CoreBPE(mergeable_ranks, special_tokens, pat_str)
        self._take(name, made, pat_str, special_tokens)

    def _take(self, name: str, engine: CoreBPE, pattern: str, special: dict[str, int]) -> None:
        self.name, self._pat_str, self._special_tokens = name, pattern, special
        self._special_token_values = set(special.values())
        self._core_bpe = engine
        self.max_token_value = engine.tokenizer.max_id

    @classmethod
    def of(cls, tokenizer: BPETokenizer, name: str | None = None) -> Encoding:
        """Make the twin of a tokenizer; see `as_tiktoken`."""
        made = cls.__new__(cls)
        definition = tokenizer.definition
        name = name or f"bpe-tokenizer-{tokenizer.fingerprint[:16]}"
        given = definition.split_pattern, tokenizer.special_tokens
        made._take(name, CoreBPE.of(tokenizer), *given)
        return made

    @functools.cached_property
    def _mergeable_ranks(self) -> dict[bytes, int]:
        return dict(self._core_bpe.tokenizer.definition.vocab)

    def __repr__(self) -> str:
        return f"<Encoding {self.name!r}>"

    # -- Encoding ---

    def encode_ordinary(self, text: str) -> list[int]:
        """Encode a text in which special tokens are text; repair surrogates."""
        try:
            return self._core_bpe.encode_ordinary(text)
        except UnicodeEncodeError:
            return self._core_bpe.encode_ordinary(_repaired(text))

    def encode(
        self,
        text: str,
        *,
        allowed_special: _Allowed = frozenset(),
        disallowed_special: str | Collection[str] = _ALL,
    ) -> list[int]:
        """Encode a text; repair surrogates.

        Special tokens in `allowed_special` get their ids.  Those in `disallowed_special`, by
        default all others, raise ValueError.  Special tokens in neither are text.
        """
        allowed = self._checked(text, allowed_special, disallowed_special)
        try:
            return self._core_bpe.encode(text, allowed)
        except UnicodeEncodeError:
            return self._core_bpe.encode(_repaired(text), allowed)

    def _checked(self, text: str, allowed: _Allowed, disallowed: Any) -> AbstractSet[str]:
        """Return which special tokens are allowed; refuse text with one that is disallowed."""
        recognized, find = self._special_options(allowed, disallowed)
        if find is not None:
            for begin, end in find(text, 0, len(text)):
                _refuse(text[begin:end])
        return recognized

    def _special_options(self, allowed: _Allowed, disallowed: Any) -> tuple[AbstractSet[str], Any]:
        """Return which special tokens are allowed, and a finder of disallowed ones."""
        if isinstance(allowed, str) and allowed == _ALL:
            allowed = self.special_tokens_set
        if isinstance(disallowed, str) and disallowed == _ALL:
            if not allowed:
                return allowed, self._find_special
            disallowed = self.special_tokens_set - allowed
        return allowed, _finder(frozenset(disallowed)) if disallowed else None

    @functools.cached_property
    def _find_special(self) -> Any:
        return _finder(frozenset(self._special_tokens)) if self._special_tokens else None

    def encode_to_numpy(
        self,
        text: str,
        *,
        allowed_special: _Allowed = frozenset(),
        disallowed_special: str | Collection[str] = _ALL,
    ) -> Any:
        """Encode a text to a NumPy array of uint32, with the options of `encode`."""
        numpy = core.import_optional("numpy", "encode_to_numpy()", "numpy")
        allowed = self._checked(text, allowed_special, disallowed_special)
        buffer = self._core_bpe.encode_to_tiktoken_buffer(text, allowed)
        return numpy.frombuffer(buffer, dtype=numpy.uint32)

    def encode_ordinary_batch(
        self, text: Iterable[str], *, num_threads: int = 8
    ) -> list[list[int]]:
        """Encode texts in which special tokens are text, on several threads."""
        texts = list(text)
        try:
            return self._core_bpe.tokenizer.encode_ordinary_batch(texts, num_threads)
        except ValueError:
            if num_threads < 1:
                raise
            return list(map(self.encode_ordinary, texts))  # some have surrogates

    def encode_batch(
        self,
        text: Iterable[str],
        *,
        num_threads: int = 8,
        allowed_special: _Allowed = frozenset(),
        disallowed_special: str | Collection[str] = _ALL,
    ) -> list[list[int]]:
        """Encode texts with the options of `encode`, on threads if no special token is allowed."""
        texts = list(text)
        allowed, _ = self._special_options(allowed_special, disallowed_special)
        for each in texts:
            self._checked(each, allowed, disallowed_special)
        if not allowed:
            return self.encode_ordinary_batch(texts, num_threads=num_threads)
        given = {"allowed_special": allowed, "disallowed_special": ()}
        return [self.encode(each, **given) for each in texts]

    def encode_with_unstable(
        self,
        text: str,
        *,
        allowed_special: _Allowed = frozenset(),
        disallowed_special: str | Collection[str] = _ALL,
    ) -> tuple[list[int], list[list[int]]]:
        """Return the ids of a text that no further text changes, and alternatives for the rest."""
        allowed = self._checked(text, allowed_special, disallowed_special)
        return self._core_bpe.encode_with_unstable(text, allowed)

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """Return the id of a token, special or not; raise KeyError if it isn't one."""
        return self._core_bpe.encode_single_token(_as_bytes(text_or_bytes))

    def _encode_single_piece(self, text_or_bytes: str | bytes) -> list[int]:
        return self._core_bpe.encode_single_piece(_as_bytes(text_or_bytes))

    def _encode_only_native_bpe(self, text: str) -> list[int]:
        return self.encode_ordinary(text)

    def _encode_bytes(self, text: bytes) -> list[int]:
        return self._core_bpe._encode_bytes(text)

    # -- Decoding ---

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """Decode ids to bytes; raise KeyError for an unknown id."""
        return self._core_bpe.decode_bytes(tokens)

    def decode(self, tokens: Sequence[int], errors: str = "replace") -> str:
        """Decode ids to text; `errors` handles bytes that are not UTF-8, as in `bytes.decode`."""
        return self._core_bpe.decode_bytes(tokens).decode("utf-8", errors)

    def decode_single_token_bytes(self, token: int) -> bytes:
        """Return the bytes of a token, special or not; raise KeyError for an unknown id."""
        return self._core_bpe.decode_single_token_bytes(token)

    def decode_tokens_bytes(self, tokens: Iterable[int]) -> list[bytes]:
        """Return the bytes of each token."""
        return list(map(self._core_bpe.decode_single_token_bytes, tokens))

    def decode_with_offsets(self, tokens: Iterable[int]) -> tuple[str, list[int]]:
        """Decode ids to text; also return the index of the character where each token begins.

        A token that begins inside a character gets that character.  The bytes must be UTF-8.
        """
        parts = self.decode_tokens_bytes(tokens)
        offsets, n = [], 0
        for part in parts:
            begins_inside = bool(part) and 0x80 <= part[0] < 0xC0
            offsets.append(max(0, n - begins_inside))
            n += sum(not 0x80 <= byte < 0xC0 for byte in part)
        return b"".join(parts).decode(), offsets

    def decode_batch(
        self, batch: Iterable[Sequence[int]], *, errors: str = "replace", num_threads: int = 8
    ) -> list[str]:
        """Decode several lists of ids; it runs on one thread, whatever `num_threads` says."""
        return [self.decode(tokens, errors) for tokens in batch]

    def decode_bytes_batch(
        self, batch: Iterable[Sequence[int]], *, num_threads: int = 8
    ) -> list[bytes]:
        """Decode several lists of ids to bytes, on one thread, whatever `num_threads` says."""
        return list(map(self._core_bpe.decode_bytes, batch))

    # -- What it has ---

    def token_byte_values(self) -> list[bytes]:
        """Return the bytes of all tokens that aren't special, sorted."""
        return self._core_bpe.token_byte_values()

    @property
    def eot_token(self) -> int:
        """The id of ``<|endoftext|>``."""
        return self._special_tokens["<|endoftext|>"]

    @functools.cached_property
    def special_tokens_set(self) -> set[str]:
        """The special tokens."""
        return set(self._special_tokens)

    def is_special_token(self, token: int) -> bool:
        """Return whether an id is a special token's."""
        assert isinstance(token, int)
        return token in self._special_token_values

    @property
    def n_vocab(self) -> int:
        """The largest id plus one."""
        return self.max_token_value + 1

    def __getstate__(self) -> object:
        if self is _ENCODINGS.get(self.name):
            return self.name
        return self.name, self._pat_str, self._core_bpe.tokenizer

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, str):
            self.__dict__.update(get_encoding(state).__dict__)
            return
        name, pattern, tokenizer = state
        self._take(name, CoreBPE.of(tokenizer), pattern, tokenizer.special_tokens)


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _repaired(text: str) -> str:
    """Join pairs of surrogates, and replace those that are alone."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@functools.lru_cache(maxsize=128)
def _finder(tokens: frozenset[str]) -> Callable[[str, int, int], Iterable[tuple[int, int]]]:
    return core.engine().spans_of(tokens)


def _refuse(token: str) -> NoReturn:
    raise ValueError(
        f"Encountered text corresponding to disallowed special token {token!r}.\n"
        f"allowed_special={{{token!r}}} gives it its id, "
        f"disallowed_special=(enc.special_tokens_set - {{{token!r}}}) takes it as text, and "
        "disallowed_special=() takes all special tokens as text."
    )


def as_tiktoken(tokenizer: BPETokenizer, name: str | None = None) -> Encoding:
    """Return a tokenizer as a `tiktoken.Encoding`, which gives this tokenizer's ids.

    Text is normalized as the tokenizer does.  Raises ValueError unless it is byte-level BPE with
    one split pattern.

    >>> as_tiktoken(BPETokenizer()).encode("é")
    [195, 169]
    """
    return Encoding.of(tokenizer, name)


# -- By name --------------------------------------------------------------------

_ENCODINGS: dict[str, Encoding] = {}
_lock = threading.RLock()


def _tiktoken(purpose: str) -> Any:
    return core.import_optional("tiktoken", purpose, "tiktoken")


def get_encoding(encoding_name: str) -> Encoding:
    """Return an encoding by the name that tiktoken knows; tiktoken finds and checks its file."""
    if not isinstance(encoding_name, str):
        raise ValueError(f"expected the name of an encoding, got {encoding_name!r}")
    with _lock:
        if encoding_name not in _ENCODINGS:
            known = _tiktoken("get_encoding()").list_encoding_names()
            if encoding_name not in known:
                names = ", ".join(sorted(known))
                raise ValueError(f"unknown encoding {encoding_name!r}; known are {names}")
            registry = importlib.import_module("tiktoken.registry")
            made = registry.ENCODING_CONSTRUCTORS[encoding_name]()
            _ENCODINGS[encoding_name] = Encoding(**made)
        return _ENCODINGS[encoding_name]


def list_encoding_names() -> list[str]:
    """Return the names that `get_encoding` takes."""
    return list(_tiktoken("list_encoding_names()").list_encoding_names())


def encoding_name_for_model(model_name: str) -> str:
    """Return the name of a model's encoding; raise KeyError if tiktoken knows none."""
    return str(_tiktoken("encoding_name_for_model()").encoding_name_for_model(model_name))


def encoding_for_model(model_name: str) -> Encoding:
    """Return a model's encoding; raise KeyError if tiktoken knows none."""
    return get_encoding(encoding_name_for_model(model_name))


# -- Under tiktoken -------------------------------------------------------------

_own_core: Any = None  # tiktoken's, while it is patched


def patch_tiktoken() -> None:
    """Put this library under tiktoken, in this process: the same ids, faster.

    Encodings made from now on use it, and so do those that `tiktoken.get_encoding` returned
    before.  An encoding that this library can't do exactly keeps tiktoken's core, with a warning.
    """
    global _own_core
    tiktoken = _tiktoken("patch_tiktoken()")
    with _lock:
        if _own_core is None:
            _own_core = tiktoken.core._tiktoken.CoreBPE
            tiktoken.core._tiktoken.CoreBPE = _faster_core
            _replace_cores()


def unpatch_tiktoken() -> None:
    """Give tiktoken its own core back."""
    global _own_core
    tiktoken = _tiktoken("unpatch_tiktoken()")
    with _lock:
        if _own_core is not None:
            tiktoken.core._tiktoken.CoreBPE = _own_core
            _replace_cores()
            _own_core = None


def _faster_core(
    encoder: dict[bytes, int], special_tokens_encoder: dict[str, int], pattern: str
) -> Any:
    """Make a core with tiktoken's arguments, or tiktoken's own if ours isn't exact."""
    try:
        return CoreBPE(encoder, special_tokens_encoder, pattern)
    except (FileFormatError, ValueError) as error:
        made = _own_core(encoder, special_tokens_encoder, pattern)  # refuses what is wrong
        core.warn(f"tiktoken keeps its own core for an encoding: {error}")
        return made


def _replace_cores() -> None:
    """Give each encoding that tiktoken has cached a core of the kind that it makes now."""
    tiktoken = _tiktoken("patch_tiktoken()")
    for encoding in importlib.import_module("tiktoken.registry").ENCODINGS.values():
        given = encoding._mergeable_ranks, encoding._special_tokens, encoding._pat_str
        encoding._core_bpe = tiktoken.core._tiktoken.CoreBPE(*given)
