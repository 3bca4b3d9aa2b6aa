"""Tokenizers of any library behind one interface: encode, decode, and the bytes of each token.

A tokenizer is named by a *spec*:

    PATH                what `BPETokenizer.from_file` reads; it knows tiktoken's names, too
    hf:PATH             a tokenizer.json, or a directory that has one, by `tokenizers` itself
    hf:NAME             a tokenizer that `transformers` has downloaded before
    tiktoken:NAME       an encoding that tiktoken knows, or that was registered with it
    sp:PATH             a SentencePiece model, by `sentencepiece` itself

An object of one of these libraries can take the place of a spec.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import by_name
from bpe_tokenizer_tools.support.text import name_of, shortened

numpy = core.import_optional("numpy", "measuring tokenizers", "numpy")

_SPECS = (
    "the path of a tokenizer, o200k_base or the like, hf:PATH, hf:NAME, tiktoken:NAME or sp:PATH"
)

_MOST_ROWS = 1 << 24  # far more than vocabularies have; 128 MB for each array of counts


class Adapter:
    """A tokenizer of any library, with its name in tables.

    `special` are the ids that ordinary text never gives.
    """

    def __init__(self, name: str, tokens: Mapping[int, bytes], special: frozenset[int]) -> None:
        self.name, self.special = name, special
        # id -> bytes, of all tokens but the special ones
        self.tokens = {id_: token for id_, token in tokens.items() if id_ not in special}
        if self.rows > _MOST_ROWS:
            raise ValueError(
                f"{name} has ids up to {self.rows - 1:,}, too many to count: the limit is "
                f"{_MOST_ROWS - 1:,}"
            )
        self.lengths = numpy.zeros(self.rows, numpy.int64)
        for id_, token in self.tokens.items():
            self.lengths[id_] = len(token)

    @property
    def vocab_size(self) -> int:
        """The number of tokens, including special ones."""
        return len(self.tokens) + len(self.special)

    @property
    def rows(self) -> int:
        """How many rows an embedding needs: the largest id plus one."""
        return max((*self.tokens, *self.special), default=-1) + 1

    def encode(self, text: str) -> Any:
        """Return the ids as an array; what looks like a special token is ordinary text."""
        raise NotImplementedError

    def decode(self, ids: Any) -> str:
        """Return the text of ids; broken UTF-8 becomes U+FFFD."""
        raise NotImplementedError

    def normalize(self, text: str) -> str:
        """Return a text, normalized by the tokenizer's normalizer."""
        return text

    def offsets(self, text: str) -> Any:
        """Return the (start, end) of each token in characters of the text, or None."""
        return None

    def encode_all(self, texts: Sequence[str]) -> list[Any]:
        """Encode several texts."""
        return list(map(self.encode, texts))

    def spell(self, ids: Any) -> bytes:
        """Join the bytes of tokens; skip tokens without any."""
        return b"".join([self.tokens.get(id_, b"") for id_ in ids.tolist()])


# -- This library -------------------------------------------------------------


class _Own(Adapter):
    def __init__(self, name: str, tokenizer: BPETokenizer) -> None:
        self._tokenizer = tokenizer
        special = frozenset(tokenizer.special_tokens.values())
        spelled = _spelling_of(tokenizer.components, byte_level=tokenizer.components is None)
        tokens = {id_: spelled(token) for token, id_ in tokenizer.get_vocab().items()}
        for added in tokenizer.added_tokens:  # written as they are
            if added.id in tokens:
                tokens[added.id] = added.content.encode()
        self._joins = tokenizer.components is None
        super().__init__(name, tokens, special)

    def encode(self, text: str) -> Any:
        return self._tokenizer.encode_to_numpy(text).astype(numpy.int64)

    def decode(self, ids: Any) -> str:
        return self._tokenizer.decode(ids.tolist())

    def spell(self, ids: Any) -> bytes:
        if not self._joins:
            return super().spell(ids)
        return self._tokenizer.decode_bytes(ids.tolist(), errors="replace")

    def normalize(self, text: str) -> str:
        return _with_spaces(core.encoder(self._tokenizer).pipeline(()).normalize(text), text)

    def offsets(self, text: str) -> Any:
        return self._tokenizer.encode_with_offsets(text).offsets


# -- HuggingFace --------------------------------------------------------------


class _HuggingFace(Adapter):
    def __init__(self, name: str, tokenizer: Any) -> None:
        written = tokenizer.to_str()
        self._tokenizer = type(tokenizer).from_str(written)  # a copy: its settings change
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        added = self._tokenizer.get_added_tokens_decoder()
        special = frozenset(id_ for id_, token in added.items() if token.special)
        spelled = _spelling_of(json.loads(written))
        vocab = self._tokenizer.get_vocab(with_added_tokens=True)
        tokens = {id_: spelled(token) for token, id_ in vocab.items()}
        tokens.update({id_: token.content.encode() for id_, token in added.items()})
        super().__init__(name, tokens, special)

    def encode(self, text: str) -> Any:
        return _ids(self._tokenizer.encode(text, add_special_tokens=False))

    def encode_all(self, texts: Sequence[str]) -> list[Any]:
        return list(map(_ids, self._tokenizer.encode_batch(texts, add_special_tokens=False)))

    def decode(self, ids: Any) -> str:
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=False))

    def normalize(self, text: str) -> str:
        normalizer = self._tokenizer.normalizer
        return _with_spaces(str(normalizer.normalize_str(text)), text) if normalizer else text

    def offsets(self, text: str) -> Any:
        return self._tokenizer.encode(text, add_special_tokens=False).offsets


def _with_spaces(normalized: str, text: str) -> str:
    """Turn the "▁" of SentencePiece and its like back into spaces."""
    marks = normalized.count("\u2581") > text.count("\u2581")
    return normalized.replace("\u2581", " ") if marks else normalized


def _ids(encoding: Any) -> Any:
    return numpy.array(encoding.ids, numpy.int64)


class _Transformers(Adapter):
    """A tokenizer of transformers that is written in Python; it has no offsets."""

    def __init__(self, name: str, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        special = frozenset(tokenizer.all_special_ids)
        spelled = _spelling_of(None)
        tokens = {id_: spelled(token) for token, id_ in tokenizer.get_vocab().items()}
        super().__init__(name, tokens, special)

    def encode(self, text: str) -> Any:
        options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        return numpy.array(self._tokenizer.encode(text, **options), numpy.int64)

    def decode(self, ids: Any) -> str:
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return str(self._tokenizer.decode(ids.tolist(), **options))


_ENDS_OF_WORDS = ("end_of_word_suffix", "end_of_word_marker")
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _spelling_of(definition: Any, byte_level: bool = False) -> Any:
    """Return a function from a token as written in files to its bytes.

    The definition is a tokenizer.json, parts of one, or None.  With `byte_level`, tokens are
    written in the byte alphabet, whatever the definition says.
    """
    kinds = set(_types(definition))
    if byte_level or "ByteLevel" in kinds:
        return _byte_level
    model = definition.get("model") if isinstance(definition, Mapping) else None
    prefix = (model or {}).get("continuing_subword_prefix") or ""
    suffix = next(filter(None, map((model or {}).get, _ENDS_OF_WORDS)), "")
    return functools.partial(_plain, prefix, suffix)


def _types(part: Any) -> Iterator[str]:
    """Yield the types of all components within a tokenizer.json."""
    if isinstance(part, Mapping):
        if isinstance(part.get("type"), str):
            yield part["type"]
        for key, value in part.items():
            if key not in ("vocab", "merges", "added_tokens"):
                yield from _types(value)
    elif isinstance(part, list):
        for item in part:
            yield from _types(item)


def _byte_level(token: str) -> bytes:
    raw = core.from_printable(token)
    return token.encode() if raw is None else raw


def _plain(prefix: str, suffix: str, token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    if byte:
        return bytes([int(byte[1], 16)])
    token = token[len(prefix) :] if prefix and token.startswith(prefix) else token
    token = f"{token[: -len(suffix)]} " if suffix and token.endswith(suffix) else token
    return token.replace("\u2581", " ").encode()


# -- tiktoken and SentencePiece -----------------------------------------------


class _Tiktoken(Adapter):
    def __init__(self, name: str, encoding: Any) -> None:
        self._encoding = encoding
        special = {encoding.encode_single_token(token) for token in encoding.special_tokens_set}
        tokens = {}
        for id_ in range(encoding.n_vocab):
            with contextlib.suppress(KeyError):  # a gap
                tokens[id_] = encoding.decode_single_token_bytes(id_)
        super().__init__(name, tokens, frozenset(special))

    def encode(self, text: str) -> Any:
        return numpy.array(self._encoding.encode_ordinary(text), numpy.int64)

    def decode(self, ids: Any) -> str:
        return str(self._encoding.decode(ids.tolist()))


class _SentencePiece(Adapter):
    def __init__(self, name: str, model: Any) -> None:
        self._model = model
        apart = (model.is_control, model.is_unknown, model.is_unused)
        ids = range(model.get_piece_size())
        special = frozenset(id_ for id_ in ids if any(is_so(id_) for is_so in apart))
        spelled = functools.partial(_plain, "", "")
        tokens = {id_: spelled(model.id_to_piece(id_)) for id_ in ids}
        super().__init__(name, tokens, special)

    def encode(self, text: str) -> Any:
        return numpy.array(self._model.encode(text), numpy.int64)

    def decode(self, ids: Any) -> str:
        return str(self._model.decode(ids.tolist()))

    def normalize(self, text: str) -> str:
        return _with_spaces(str(self._model.normalize(text)), text)

    def offsets(self, text: str) -> Any:
        encode = getattr(self._model, "encode_as_offset_mapping", None)  # since 0.2.3
        return None if encode is None else encode(text)["offsets"]


# -- Opening ------------------------------------------------------------------

_BY_LIBRARY = {"tokenizers": _HuggingFace, "tiktoken": _Tiktoken, "sentencepiece": _SentencePiece}


def open_tokenizer(spec: Any, name: str = "") -> Adapter:
    """Open a tokenizer.

    The top of this module explains specs.  Without a name, the spec gives one.

    Raises:
        FileNotFoundError: there is no such file.
        ImportError: the library that the spec asks for is not installed.
        ValueError: the spec is malformed, or its tokenizer can't be loaded.
        TypeError: the object is not a known tokenizer.

    >>> open_tokenizer(BPETokenizer(), "bytes").encode("é").tolist()
    [195, 169]
    """
    if isinstance(spec, Adapter):
        return spec
    if isinstance(spec, (str, Path)):
        return _open_spec(str(spec), name)
    if isinstance(spec, BPETokenizer):
        return _Own(name or "bpe-tokenizer", spec)
    library = type(spec).__module__.split(".")[0]
    if hasattr(spec, "all_special_ids"):  # of transformers, whatever its module is called
        backend = getattr(spec, "backend_tokenizer", None)
        label = name or Path(str(getattr(spec, "name_or_path", ""))).name or "transformers"
        return _Transformers(label, spec) if backend is None else _HuggingFace(label, backend)
    for known, adapter in _BY_LIBRARY.items():
        if library == known:
            return adapter(name or str(getattr(spec, "name", known)), spec)
    raise TypeError(f"expected {_SPECS}, or a tokenizer object, got {core.shorten(spec)}")


def _open_spec(spec: str, name: str) -> Adapter:
    kind, _, rest = spec.partition(":")
    if kind in _OPENERS and rest:
        return _OPENERS[kind](rest, name)
    path = Path(spec)
    is_there = bool(spec) and (os.path.isfile(path) or os.path.isdir(path))
    if not is_there and spec not in by_name.NAMES:
        raise FileNotFoundError(
            f"{shortened(spec, 300) or repr(spec)}: no such file or directory; expected {_SPECS}"
        )
    return _Own(name or name_of(path), BPETokenizer.from_file(path))


def _open_huggingface(spec: str, name: str) -> Adapter:
    path = Path(spec)
    file = path / "tokenizer.json" if os.path.isdir(path) else path
    if os.path.isfile(file):
        library = core.import_optional("tokenizers", f"hf:{spec}", "tokenizers")
        return _HuggingFace(name or name_of(path), _loaded(spec, library.Tokenizer.from_file, file))
    if not os.path.exists(path) and (path.suffix == ".json" or spec.startswith((".", "/", "~"))):
        raise FileNotFoundError(f"{spec}: no such file or directory; expected a tokenizer.json")
    library = core.import_optional("transformers", f"hf:{spec}", "transformers")
    load = functools.partial(
        library.AutoTokenizer.from_pretrained, local_files_only=True, trust_remote_code=False
    )
    return open_tokenizer(_loaded(f"hf:{spec}", load, spec), name or path.name)


def _open_tiktoken(spec: str, name: str) -> Adapter:
    library = core.import_optional("tiktoken", f"tiktoken:{spec}", "tiktoken")
    return _Tiktoken(name or spec, _loaded(f"tiktoken:{spec}", library.get_encoding, spec))


def _open_sentencepiece(spec: str, name: str) -> Adapter:
    library = core.import_optional("sentencepiece", f"sp:{spec}", "sentencepiece")
    path = Path(spec)
    path = path / "tokenizer.model" if os.path.isdir(path) else path
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: no such file; expected a SentencePiece model")
    data = path.read_bytes()
    if not data:
        raise FileFormatError(path, "", "the file is empty; expected a SentencePiece model")
    try:
        model = library.SentencePieceProcessor(model_proto=data)
    except (OSError, RuntimeError):  # their messages name a line of C++
        raise FileFormatError(path, "", "isn't a SentencePiece model, or is damaged") from None
    return _SentencePiece(name or name_of(path), model)


def _loaded(spec: str, load: Any, argument: Any) -> Any:
    """Load a tokenizer by its own library; report any failure there in one line."""
    try:
        return load(str(argument))
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic in Rust is not an Exception
        raise ValueError(f"{spec} cannot be loaded: {reason_of(error)}") from None


def reason_of(error: BaseException) -> str:
    """Return another library's message as one short line."""
    reason = core.one_line(error)
    return reason if len(reason) <= 200 else f"{reason[:200]}…"


_OPENERS = {"hf": _open_huggingface, "tiktoken": _open_tiktoken, "sp": _open_sentencepiece}


def named_tokenizers(tokenizers: Any) -> list[Adapter]:
    """Open several tokenizers, each with a name of its own.

    They come as name -> what `open_tokenizer` takes; or in a list, where a string may be
    ``NAME=SPEC``.
    """
    if isinstance(tokenizers, Mapping):
        opened = [open_tokenizer(spec, str(name)) for name, spec in tokenizers.items()]
    elif isinstance(tokenizers, (str, bytes)) or not isinstance(tokenizers, Sequence):
        raise TypeError(
            f"tokenizers must be a list or a mapping from names, got {type(tokenizers).__name__}"
        )
    else:
        opened = [_open_named(spec) for spec in tokenizers]
    if not opened:
        raise ValueError("expected at least one tokenizer, got none")
    taken: set[str] = set()
    for adapter in opened:  # those of the same name are numbered
        name, n = adapter.name, 1
        while adapter.name in taken:
            n += 1
            adapter.name = f"{name} ({n})"
        taken.add(adapter.name)
    return opened


def _open_named(spec: Any) -> Adapter:
    if isinstance(spec, str) and not os.path.exists(spec):
        name, equals, rest = spec.partition("=")
        if equals and name and not re.search(r"[/\\:]", name):
            return open_tokenizer(rest, name)
    return open_tokenizer(spec)
