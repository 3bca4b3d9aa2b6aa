r"""Does every library give the ids that this one gives?

    report = tokenizer.check()            # saved, and loaded back through each
    report = check(tokenizer, path)       # or: the files it came from
    print(report); report.ok

Each installed library loads the tokenizer: from the files themselves if it reads their
format, or else from an export.  Then all of them encode and decode the same texts:
`CONFORMANCE_TEXTS`, the special tokens between words, and texts built from the
tokenizer's own vocabulary, which find a changed merge that no sentence would.

A library that fails is a row of the table, never a traceback.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import importlib
import importlib.metadata
import itertools
import json
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core, formats
from bpe_tokenizer_tools.backends import fit
from bpe_tokenizer_tools.checking.conformance import conformance_texts
from bpe_tokenizer_tools.checking.lint import Finding, field_of, lint, shared_ids
from bpe_tokenizer_tools.formats import loaders
from bpe_tokenizer_tools.formats.gguf import as_in_llama_cpp
from bpe_tokenizer_tools.support.text import Printed

# -- The report ---------------------------------------------------------------

EQUAL, DIFFERS, NOT_INSTALLED = "equal", "differs", "not installed"
# llama.cpp is known to split some text differently, a library may have another version of Unicode,
# or files beside a vocabulary change its ids; all else is equal.
APPROXIMATE = "approximate"
CANNOT_LOAD = "cannot load"
FAILS = "fails"  # it loads the tokenizer, but can't encode or decode
NOT_APPLICABLE = "not applicable"  # it can't represent the tokenizer, or doesn't read the format


@dataclass(frozen=True)
class Difference:
    """The first thing that a library does differently."""

    what: str  # "decode", "encode", or that followed by ", special tokens allowed," or the like
    text: str  # the text encoded, or whose ids were decoded
    position: int  # the first id that differs, or the first character of decoded text
    expected_ids: list[int]  # a few of this library's ids from there
    ids: list[int]  # the other library's
    expected_tokens: list[str]  # the tokens of `expected_ids`, as this library writes them
    tokens: list[str]  # the tokens of `ids`, as the other library writes them

    def __str__(self) -> str:
        place = f"{self.what} {core.shorten(self.text, 48)}"
        if self.what == "decode":
            here, there = "".join(self.expected_tokens), "".join(self.tokens)
            return f"{place}: at character {self.position} {here!r} here, {there!r} there"
        return (
            f"{place}: from id {self.position} on {self.expected_ids} {self.expected_tokens} here, "
            f"{self.ids} {self.tokens} there"
        )


@dataclass(frozen=True)
class Row:
    """The result for one library."""

    loader: str  # the library
    version: str | None  # its version, if it is installed
    status: str  # one of the words above
    detail: str = ""  # the file loaded, or the problem
    difference: Difference | None = None  # the first, if there is one


@dataclass(frozen=True)
class Report(Printed):
    """The results of `check`; printing it shows a table."""

    rows: list[Row]
    findings: list[Finding] = field(default_factory=list)
    n_texts: int = 0
    others_add: str = ""  # what other libraries put around a text

    @property
    def ok(self) -> bool:
        """Whether every library that can represent the tokenizer agrees, and its model fits."""
        return not any(
            row.status in (DIFFERS, CANNOT_LOAD, FAILS) for row in self.rows
        ) and not any(
            finding.severity == "error" and finding.name == fit.MODEL for finding in self.findings
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {"ok": self.ok, **dataclasses.asdict(self)}

    def __str__(self) -> str:
        cells = [
            (row.loader, row.version or "-", row.status, str(row.difference or row.detail))
            for row in self.rows
        ]
        widths = [max(len(line[i]) for line in cells) for i in range(3)]
        lines = []
        for row, (*head, rest) in zip(self.rows, cells):
            padded = (cell.ljust(width) for cell, width in zip(head, widths))
            lines.append("  ".join([*padded, rest]).rstrip())
            if row.difference is not None and row.detail:
                lines.append(" " * (sum(widths) + 6) + f"({row.detail})")
        lines.append(f"{self.n_texts} texts compared; other libraries add {self.others_add}")
        return "\n".join([*lines, *([""] if self.findings else []), *map(str, self.findings)])


# -- Libraries ----------------------------------------------------------------


class _NotReadError(Exception):
    """A library doesn't read a format, and nothing can be exported for it."""


class _FailsError(Exception):
    """A library has loaded a tokenizer, but can't encode or decode a text."""


class _Peer(NamedTuple):
    """A tokenizer as another library has loaded it."""

    detail: str  # the file loaded, and how
    encode: Callable[[str, bool], Sequence[int]]  # text, whether to recognize special tokens
    decode: Callable[[list[int]], str]  # ids -> text
    token: Callable[[int], Any]  # id -> how the library writes it
    surround: Callable[[str], Sequence[int]] | None = None  # encodes with added special tokens
    own: bool = False  # whether it adds what this library adds, not what others add
    recognizes: bool = True  # whether it can recognize special tokens
    always: bool = False  # whether it always recognizes them
    form: str | None = None  # the normal form that text must have before
    findings: Sequence[Finding] = ()  # what else was noticed
    approximation: BPETokenizer | None = None  # what the library runs, if it only approximates
    vocabulary: BPETokenizer | None = None  # the file alone, if others beside it change its ids
    unicode: str = core.UNICODE_VERSION  # of its classes of characters


class _Case:
    """A tokenizer, the files it came from, and a place for exports."""

    def __init__(self, tokenizer: BPETokenizer, path: Path | None, scratch: Path) -> None:
        self.tokenizer = tokenizer
        self.files = _files(path) if path is not None else {}
        self._scratch = scratch

    @property
    def is_foreign(self) -> bool:
        """Whether transformers loads the files themselves, and they aren't a tokenizer.json."""
        return "directory" in self.files and "tokenizer.json" not in self.files

    def find(self, kind: str) -> tuple[Path, str]:
        """Return the file of a kind, or an export; also describe where it comes from."""
        if kind in self.files:
            return self.files[kind], self.files[kind].name
        return self.exported(kind), "through export"

    def without_files_beside(self, path: Path) -> BPETokenizer | None:
        """Load a vocabulary alone; None if there are no files beside it."""
        if not any(file.is_file() for file in core.side_files(path.parent)):
            return None
        alone = self._scratch / "alone" / path.name
        alone.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, alone)
        return BPETokenizer.from_file(alone)

    def saved(self) -> Path:
        """Save the tokenizer, once; _NotReadError if no files can hold it."""
        path = self._scratch / "saved"
        if not path.exists():
            with self._no_export():
                self.tokenizer.save(path, verbose=False)
        return path

    def exported(self, kind: str) -> Path:
        """Write the tokenizer in a format, once; _NotReadError if it cannot hold it."""
        path = self._scratch / f"exported.{kind}"
        if kind in _SAVED:
            path = self.saved()
            if not (path / "tokenizer.json").exists():  # other files hold it
                with self._no_export():
                    core.tokenizer_json_of(self.tokenizer)  # says why
        elif not path.exists():
            with self._no_export():
                self.tokenizer.export(path, kind, without_normalizer=True)
        return path / "tokenizer.json" if kind == "tokenizer.json" else path

    @contextlib.contextmanager
    def _no_export(self) -> Iterator[None]:
        """Turn the error of a format that cannot hold the tokenizer into a _NotReadError."""
        try:
            yield
        except ValueError as error:
            first = "does not read this format; " if self.files else ""
            raise _NotReadError(f"{first}no export: {error}") from None


_SAVED = ("tokenizer.json", "directory")  # the output of `save`
# Vocabularies in other formats that AutoTokenizer finds in a directory, with the files beside them.
_READ_BY_TRANSFORMERS = ("tekken.json", "tokenizer.model", "tiktoken.model")


def _files(path: Path) -> dict[str, Path]:
    """Return the kinds of files at a path that a library can read by itself."""
    if path.is_file():
        kind = _kind(path)
        whole = path.parent / "tokenizer.json"  # of a directory that has it, it is what is loaded
        reads = path == whole or (path.name in _READ_BY_TRANSFORMERS and not whole.exists())
        beside = {"directory": path.parent} if kind and reads else {}
        return {**beside, **({kind: path} if kind else {})}
    names = {file.name for file in path.iterdir()}
    found: dict[str, Path] = {}
    if "tokenizer.json" in names and _kind(path / "tokenizer.json"):
        found = {"tokenizer.json": path / "tokenizer.json", "directory": path}
    elif {"vocab.json", "merges.txt", "tokenizer_config.json"} <= names and (
        "config.json" in names or field_of(path / "tokenizer_config.json", "tokenizer_class")
    ):
        found = {"directory": path}  # transformers decides by the class
    elif names.intersection(_READ_BY_TRANSFORMERS):
        found = {"directory": path}
        # Of several vocabularies in the directory, `from_file` reads one.
        file = formats.file_within(path)
        kind = _kind(file)
        return {**found, **({kind: file} if kind else {})}
    for name in sorted(names - {"tokenizer.json"}):
        kind = _kind(path / name)
        # Beside a tokenizer.json, only the model that it was made from is equivalent.
        if kind is not None and (not found or kind == "sentencepiece"):
            found.setdefault(kind, path / name)
    return found


def _kind(file: Path) -> str | None:
    """Return the format of a file, as `from_file` detects it."""
    if not file.is_file():
        return None
    try:
        kind = formats.format_of(file)
    except FileFormatError:  # it only looks like one, such as a template with "{%"
        return None
    if kind in ("gguf", "tiktoken", "sentencepiece", "tekken"):
        return kind
    if kind == "plain":
        return None
    head = formats.read_head(file)
    is_json = file.suffix == ".json" and b'"version"' in head and b'"added_tokens"' in head
    return "tokenizer.json" if is_json or file.name == "tokenizer.json" else None


def _load_this(case: _Case) -> _Peer:
    with warnings.catch_warnings():  # the first load already gave them
        warnings.simplefilter("ignore")
        loaded = BPETokenizer.from_pretrained(case.saved(), verbose=False)
    surround = functools.partial(loaded.encode, add_special_tokens=True, allowed_special="all")
    return _own(loaded)._replace(surround=surround, own=True)


def _own(loaded: BPETokenizer) -> _Peer:
    return _Peer(
        "saved and loaded back",
        lambda text, special: loaded.encode(text, allowed_special="all" if special else "none"),
        loaded.decode,
        loaded.convert_ids_to_tokens,
    )


def first_difference(
    tokenizer: BPETokenizer, other: BPETokenizer, texts: Sequence[str]
) -> Difference | None:
    """Compare two tokenizers of this library, except the tokens they add around a text."""
    return _first_difference(tokenizer, _own(other), texts)


def _load_tokenizers(case: _Case) -> _Peer:
    tokenizers = importlib.import_module("tokenizers")
    path, how = case.find("tokenizer.json")
    loaded = tokenizers.Tokenizer.from_file(str(path))
    if not hasattr(loaded, "no_truncation"):
        return _tokenizers_1(loaded, how)
    loaded.no_truncation()
    loaded.no_padding()

    def encode(text: str, special: bool, add: bool = False) -> Any:
        loaded.encode_special_tokens = not special
        return loaded.encode(text, add_special_tokens=add).ids

    return _Peer(
        how,
        encode,
        lambda ids: str(loaded.decode(ids, skip_special_tokens=False)),
        loaded.id_to_token,
        lambda text: encode(text, True, add=True),
    )


def _tokenizers_1(loaded: Any, how: str) -> _Peer:
    """Wrap a tokenizer of version 1.0, whose calls differ from those of 0.x."""

    def encode(text: str, special: bool, add: bool = False) -> Any:
        options = {"padding": None, "truncation": None, "encode_special_tokens": not special}
        return loaded.encode(text, add_special_tokens=add, **options).ids

    return _Peer(
        how,
        encode,
        lambda ids: str(loaded.decode(ids, skip_special_tokens=False)),
        lambda id_: loaded.decode_tokens([id_])[0],
        lambda text: encode(text, True, add=True),
        unicode="17.0",
    )


def _load_gigatoken(case: _Case) -> _Peer:
    path, how = case.find("tokenizer.json")
    loaded = importlib.import_module("gigatoken").Tokenizer(str(path))
    return _Peer(
        f"{how}; it always recognizes special tokens",
        lambda text, special: loaded.encode(text).tolist(),
        lambda ids: loaded.decode(ids).decode("utf-8", "replace"),
        lambda id_: repr(loaded.decode([id_])),
        always=True,
        unicode="17.0",
    )


def _load_fastokens(case: _Case) -> _Peer:
    path, how = case.find("tokenizer.json")
    loaded = importlib.import_module("fastokens").Tokenizer.from_file(str(path))
    return _Peer(
        how,
        lambda text, special: loaded.encode(text, split_special_tokens=not special).ids,
        lambda ids: str(loaded.decode(ids)),
        loaded.id_to_token,
        lambda text: loaded.encode(text, add_special_tokens=True).ids,
    )


def _load_mistral(case: _Case) -> _Peer:
    tekken = importlib.import_module("mistral_common.tokens.tokenizers.tekken")
    path = case.files.get("tekken")
    if path is None:
        raise _NotReadError("reads tekken.json, to which nothing is exported")
    loaded = tekken.Tekkenizer.from_file(path)
    return _Peer(
        path.name,
        lambda text, special: loaded.encode(text, bos=False, eos=False),
        lambda ids: str(loaded.decode(ids, tekken.SpecialTokenPolicy.KEEP)),
        loaded.id_to_piece,
        recognizes=False,
    )


def _load_transformers(case: _Case) -> _Peer:
    return _auto_tokenizer(*case.find("directory"))


def _load_exported(case: _Case) -> _Peer:
    return _auto_tokenizer(case.exported("directory"), "through export")


def _auto_tokenizer(path: Path, how: str) -> _Peer:
    """Load a directory as transformers does."""
    transformers = importlib.import_module("transformers")
    config = core.read_file(path / "tokenizer_config.json")
    if config and b'"auto_map"' in config and not (path / "tokenizer.json").exists():
        raise _NotReadError(
            "loads this directory only with code of the model's own (auto_map), which isn't run"
        )
    logs = transformers.utils.logging
    with _quiet(logs.set_verbosity, logs.get_verbosity()):
        loaded = transformers.AutoTokenizer.from_pretrained(
            str(path), local_files_only=True, trust_remote_code=False, use_fast=True
        )
    if hasattr(loaded, "model_max_length"):
        loaded.model_max_length = 10**30  # so that it doesn't warn about long texts
    name = type(loaded).__name__
    if name == "MistralCommonBackend":  # it never recognizes special tokens
        return _Peer(
            name,
            lambda text, special: loaded.encode(text, add_special_tokens=False),
            lambda ids: str(loaded.decode(ids, skip_special_tokens=False)),
            loaded.convert_ids_to_tokens,
            recognizes=False,
        )

    def encode(text: str, special: bool, add: bool = False) -> Any:
        return loaded.encode(text, add_special_tokens=add, split_special_tokens=not special)

    return _Peer(
        name if how != "through export" else f"{name}, {how}",
        encode,
        lambda ids: str(
            loaded.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        ),
        loaded.convert_ids_to_tokens,
        lambda text: encode(text, True, add=True),
        findings=_rewritten(loaded, path),
    )


@contextlib.contextmanager
def _quiet(set_level: Callable[[int], Any], before: int) -> Iterator[None]:
    """Silence a library with the function that sets its log level."""
    set_level(logging.CRITICAL + 1)
    try:
        yield
    finally:
        set_level(before)


def _rewritten(loaded: Any, folder: Path) -> list[Finding]:
    """Find the parts of tokenizer.json that a class of transformers has replaced.

    With a small vocabulary, few texts show that; the parts themselves always do.
    """
    backend = getattr(loaded, "backend_tokenizer", None)
    path = folder / "tokenizer.json"
    if backend is None or not path.is_file():
        return []
    tokenizers = importlib.import_module("tokenizers")
    own = json.loads(tokenizers.Tokenizer.from_file(str(path)).to_str())
    its = json.loads(backend.to_str())
    parts = [
        part
        for part in ("normalizer", "pre_tokenizer")
        if _without_offsets(own[part]) != _without_offsets(its[part])
    ]
    if not parts:
        return []
    return [
        Finding(
            "error",
            "rewritten",
            f"transformers loads it as {type(loaded).__name__}, which has another "
            f"{' and another '.join(parts)} than tokenizer.json",
            "set tokenizer_class to 'PreTrainedTokenizerFast', and make sure that config.json "
            "names no other class",
        )
    ]


def _without_offsets(component: Any) -> Any:
    """Remove from components what only offsets depend on, and Sequences of one."""
    if isinstance(component, list):
        return list(map(_without_offsets, component))
    if not isinstance(component, dict):
        return component
    for key in ("pretokenizers", "normalizers"):
        if component.get("type") == "Sequence" and len(component.get(key, ())) == 1:
            return _without_offsets(component[key][0])
    return {
        key: _without_offsets(value) for key, value in component.items() if key != "trim_offsets"
    }


def _load_tiktoken(case: _Case) -> _Peer:
    from bpe_tokenizer_tools.formats.tiktoken import to_tiktoken

    try:
        loaded = to_tiktoken(case.tokenizer, without_normalizer=True)
    except ValueError as error:
        raise _NotReadError(f"cannot be converted: {error}") from None
    ranks = case.files.get("tiktoken")
    how = "converted"
    if ranks is not None:
        loaded, how = _with_ranks_of(loaded, ranks), ranks.name

    def encode(text: str, special: bool) -> Any:
        if not special:
            return loaded.encode_ordinary(text)
        return loaded.encode(text, allowed_special="all", disallowed_special=())

    return _Peer(
        how,
        encode,
        lambda ids: str(loaded.decode(ids)),
        lambda id_: repr(loaded.decode_single_token_bytes(id_)),
        form=case.tokenizer.normalizer,
        findings=_not_normalized(case.tokenizer, "tiktoken"),
    )


def _with_ranks_of(loaded: Any, path: Path) -> Any:
    """Make the same encoding from the ranks that tiktoken's own loader reads from a file."""
    from unittest import mock

    from tiktoken.load import load_tiktoken_bpe

    with mock.patch.dict(os.environ, TIKTOKEN_CACHE_DIR=""):  # so that it doesn't cache the file
        ranks = load_tiktoken_bpe(str(path))
    return type(loaded)(
        name=loaded.name,
        pat_str=loaded._pat_str,
        mergeable_ranks=ranks,
        special_tokens=loaded._special_tokens,
    )


def _load_sentencepiece(case: _Case) -> _Peer:
    sentencepiece = importlib.import_module("sentencepiece")
    path = case.files.get("sentencepiece")
    if path is None:
        first = "does not read this format; " if case.files else ""
        raise _NotReadError(f"{first}nothing is exported to SentencePiece models")
    loaded = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return _Peer(
        path.name,
        lambda text, special: loaded.encode(text, out_type=int),
        lambda ids: str(loaded.decode(ids)),
        loaded.id_to_piece,
        recognizes=False,
        vocabulary=case.without_files_beside(path),
    )


def _load_llama_cpp(case: _Case) -> _Peer:
    llama = importlib.import_module("llama_cpp")
    path, how = case.find("gguf")
    model = _LlamaVocabulary(llama, path)
    approximation = as_in_llama_cpp(case.tokenizer, path)
    if approximation is not None:
        how += "; it only approximates how this tokenizer cuts text"
    return _Peer(
        how,
        model.encode,
        model.decode,
        model.token,
        lambda text: model.encode(text, True, True),
        form=case.tokenizer.normalizer,
        findings=_not_normalized(case.tokenizer, "llama.cpp"),
        approximation=approximation,
    )


def _not_normalized(tokenizer: BPETokenizer, library: str) -> list[Finding]:
    form = tokenizer.normalizer
    if form is None:
        return []
    message = f"{library} does not normalize text; only text already in {form} was compared"
    return [Finding("note", "normalization", message, f"normalize text to {form} before it")]


class _LlamaVocabulary:
    """The vocabulary of a GGUF file, loaded by llama.cpp without the model's weights."""

    def __init__(self, llama: Any, path: Path) -> None:
        self._llama = llama
        options = llama.llama_model_default_params()
        options.vocab_only = True
        with _quiet_llama():
            self._model = llama.llama_model_load_from_file(str(path).encode(), options)
        if not self._model:
            raise ValueError(f"llama.cpp refuses {path.name}")
        self._vocab = llama.llama_model_get_vocab(self._model)
        escapes = llama.llama_vocab_type(self._vocab) == llama.LLAMA_VOCAB_TYPE_SPM
        # NOTE: for the others, llama_detokenize also removes spaces before periods and the
        # like; users see the pieces.
        self.decode = self._decode_all if escapes else self._decode_pieces

    def encode(self, text: str, special: bool, add: bool = False) -> list[int]:
        raw = text.encode()
        room = len(raw) + 16
        ids = (self._llama.llama_token * room)()
        with _quiet_llama():
            found = self._llama.llama_tokenize(self._vocab, raw, len(raw), ids, room, add, special)
        if found < 0:
            raise ValueError(f"llama_tokenize gave {found} for {core.shorten(text)}")
        return list(ids[:found])

    def _decode_all(self, ids: list[int]) -> str:
        given = (self._llama.llama_token * len(ids))(*ids)
        room = 64 + sum(len(self._written(id_)) for id_ in ids)
        out = ctypes.create_string_buffer(room)
        size = self._llama.llama_detokenize(self._vocab, given, len(ids), out, room, False, True)
        return out.raw[:size].decode("utf-8", "replace")

    def _decode_pieces(self, ids: list[int]) -> str:
        return b"".join(map(self._piece, ids)).decode("utf-8", "replace")

    def _piece(self, id_: int) -> bytes:
        room = 8 + len(self._written(id_))
        out = ctypes.create_string_buffer(room)
        size = self._llama.llama_token_to_piece(self._vocab, id_, out, room, 0, True)
        return out.raw[: max(size, 0)]

    def _written(self, id_: int) -> bytes:
        return self._llama.llama_vocab_get_text(self._vocab, id_) or b""

    def token(self, id_: int) -> str:
        return self._written(id_).decode("utf-8", "replace")

    def __del__(self) -> None:
        model = getattr(self, "_model", None)
        if model:
            self._llama.llama_model_free(model)


def _quiet_llama() -> contextlib.AbstractContextManager[None]:
    """Silence llama.cpp, which writes what this logger lets through to stderr."""
    log = logging.getLogger("llama-cpp-python")
    return _quiet(log.setLevel, log.level)


# module to import -> (name on the package index, the function that loads the tokenizer)
_LOADERS: dict[str, tuple[str, Callable[[_Case], _Peer]]] = {
    "bpe_tokenizer": ("bpe-tokenizer", _load_this),
    "tokenizers": ("tokenizers", _load_tokenizers),
    "transformers": ("transformers", _load_transformers),
    "tiktoken": ("tiktoken", _load_tiktoken),
    "sentencepiece": ("sentencepiece", _load_sentencepiece),
    "llama_cpp": ("llama-cpp-python", _load_llama_cpp),
    "mistral_common": ("mistral-common", _load_mistral),
    "gigatoken": ("gigatoken", _load_gigatoken),
    "fastokens": ("fastokens", _load_fastokens),
}


# -- Comparing ----------------------------------------------------------------


def check(
    tokenizer: BPETokenizer, path: Path | None = None, texts: Sequence[str] | None = None
) -> Report:
    """Load a tokenizer through every installed library, and compare.

    The other libraries load the files at `path`, where the tokenizer came from; None saves or
    exports it for them.  All encode `texts`, by default `conformance_texts`.
    """
    tried = conformance_texts(tokenizer) if texts is None else list(texts)
    rows: list[Row] = []
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="bpe-tokenizer-") as scratch:
        case = _Case(tokenizer, path, Path(scratch))
        for module in _LOADERS:
            package, load = _LOADERS[module]
            loads = [load]
            if module == "transformers" and case.is_foreign:  # both are what people load
                loads.append(_load_exported)
            for load in loads:
                row, more = _compare_with(case, module, package, load, tried)
                rows.append(row)
                findings += more
    folder = None if path is None else path if path.is_dir() else path.parent
    known = lint(tokenizer, folder)
    findings += [] if path is None else fit.findings(tokenizer, path)
    if any(finding.name == "tokenizer-class" for finding in known):
        findings = [finding for finding in findings if finding.name != "rewritten"]
    return Report(rows, [*findings, *known], len(tried), core.describe_added(tokenizer))


def check_texts(tokenizer: BPETokenizer, texts: Sequence[str] | None = None) -> Report:
    """Compare with every installed library on texts; the report's `ok` says if all agree.

    None means `conformance_texts`: samples in many scripts, and texts that the split pattern may
    cut differently elsewhere.
    """
    return check(tokenizer, texts=texts)


def _compare_with(
    case: _Case,
    module: str,
    package: str,
    load: Callable[[_Case], _Peer],
    texts: Sequence[str],
) -> tuple[Row, Sequence[Finding]]:
    """Load with one library and compare; any error becomes a row."""
    version = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            version = getattr(importlib.import_module(module), "__version__", None)
            version = version or importlib.metadata.version(package)
            peer = load(case)
            status, detail, difference = _judge(case.tokenizer, peer, texts)
    except _NotReadError as reason:
        return Row(package, version, NOT_APPLICABLE, _one_line(reason)), ()
    except _FailsError as reason:
        return _refused(case, package, version) or Row(package, version, FAILS, str(reason)), ()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is not an Exception
        missing = isinstance(error, ImportError) and version is None
        if missing and error.name == module:  # type: ignore[attr-defined]
            return Row(package, None, NOT_INSTALLED), ()
        row = _refused(case, package, version) if version else None
        return row or Row(package, version, CANNOT_LOAD, _one_line(error)), ()
    return Row(package, version, status, detail, difference), peer.findings


def _judge(
    tokenizer: BPETokenizer, peer: _Peer, texts: Sequence[str]
) -> tuple[str, str, Difference | None]:
    """Compare; return the status, what to say about it, and a difference.

    A difference may have a known reason.  One without a known reason is shown first.
    """
    difference = _first_difference(tokenizer, peer, texts)
    detail = peer.detail
    if difference is None:
        is_exact = peer.approximation is None
        return (EQUAL if is_exact else APPROXIMATE), detail, None
    unexplained: Difference | None = difference
    explained = detail  # what to say if there is only a known reason
    if peer.approximation is not None:
        unexplained = _first_difference(peer.approximation, peer, texts)
    elif peer.vocabulary is not None:
        detail = explained = f"{detail}, without the files beside it, which change ids"
        unexplained = _first_difference(peer.vocabulary, peer, texts)
    elif peer.unicode != core.UNICODE_VERSION:
        explained = _other_unicode(peer)
        unexplained = _first_difference(tokenizer, peer, [*map(_known, texts)])
    if unexplained is not None:
        return DIFFERS, detail, unexplained
    return APPROXIMATE, explained, difference


# What 16.0 doesn't know, and the one character in use of which 17.0 says another thing.
_OF_OTHER_UNICODE = core.Pattern(r"[\p{Cn}\u0295]")


def _known(text: str) -> str:
    """Return a text without characters that depend on the version of Unicode."""
    text = "".join(char for char in text if not _OF_OTHER_UNICODE.match(char))
    return core.younger().sub("", text)


def _other_unicode(peer: _Peer) -> str:
    """Say what else a library is that only differs in characters that its Unicode has otherwise."""
    return (
        f"{peer.detail}; it has Unicode {peer.unicode}, and this library {core.UNICODE_VERSION}: "
        "they differ in U+0295, in the characters added since then, and in normal forms added "
        f"since {core.NORMALIZATION_VERSION}"
    )


def _refused(case: _Case, package: str, version: str | None) -> Row | None:
    """Return the row of a library that is known to lack a feature, with the remedy."""
    if package == "tokenizers":
        name = loaders.TOKENIZERS if str(version).startswith("0.") else loaders.TOKENIZERS_1
    else:
        name = package
    limit = loaders.limit_of(case.tokenizer, name)
    return limit and Row(package, version, NOT_APPLICABLE, f"{limit.problem}; {limit.remedy}")


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else text[:297] + "..."
    return text if isinstance(error, _NotReadError) else f"{type(error).__name__}: {text}"


def _first_difference(
    tokenizer: BPETokenizer, peer: _Peer, texts: Sequence[str]
) -> Difference | None:
    """Compare the ids of all texts, and then the decoded texts."""
    for compare in (_compare_ids, _compare_text):
        for text in texts:
            try:
                found = compare(tokenizer, peer, text)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                raise _FailsError(f"text {core.shorten(text, 48)}: {_one_line(error)}") from None
            if found is not None:
                return _narrowed(found, functools.partial(compare, tokenizer, peer))
    return None


def _narrowed(found: Difference, compare: Callable[[str], Difference | None]) -> Difference:
    """Return the difference in a single line or word of the text, if that shows one."""
    for separator in "\n ":
        parts = found.text.split(separator) if separator in found.text else []
        with contextlib.suppress(Exception):
            found = next(filter(None, map(compare, parts)), found)
    return found


_SHOWN = 3  # ids


def _compare_ids(tokenizer: BPETokenizer, peer: _Peer, text: str) -> Difference | None:
    for what, expected, ids in _encoded(tokenizer, peer, text):
        if ids != expected:
            at = _first_unequal(expected, ids)
            here, there = expected[at : at + _SHOWN], ids[at : at + _SHOWN]
            tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(here)]
            theirs = [_spelled(peer, id_) for id_ in there]
            return Difference(what, text, at, here, there, tokens, theirs)
    return None


def _encoded(
    tokenizer: BPETokenizer, peer: _Peer, text: str
) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield descriptions of ways to encode a text, with the ids here and there."""
    given = core.normalize(text, peer.form)
    if not peer.always:
        yield "encode", tokenizer.encode(text), list(peer.encode(given, False))
    if peer.recognizes:
        ids = tokenizer.encode(text, allowed_special="all")
        yield "encode, special tokens allowed,", ids, list(peer.encode(given, True))
    if peer.surround is not None:
        around = core.around if peer.own else core.around_elsewhere
        before, after = around(tokenizer)
        ids = [*before, *tokenizer.encode(text, allowed_special="all"), *after]
        yield "encode, with tokens added around the text,", ids, list(peer.surround(given))


def _compare_text(tokenizer: BPETokenizer, peer: _Peer, text: str) -> Difference | None:
    ids = tokenizer.encode(text, allowed_special="all" if peer.recognizes else "none")
    # Which of the texts that share an id tiktoken decodes depends on its hash table.
    shared = shared_ids(tokenizer)
    ids = [id_ for id_ in ids if id_ not in shared] if shared else ids
    expected, found = tokenizer.decode(ids), peer.decode(ids)
    if expected == found:
        return None
    at = _first_unequal(expected, found)
    return Difference("decode", text, at, [], [], [expected[at : at + 12]], [found[at : at + 12]])


def _spelled(peer: _Peer, id_: int) -> str:
    try:
        return str(peer.token(id_))
    except Exception:  # an id that the library itself gave, but doesn't know
        return "?"


def _first_unequal(first: Sequence[Any], second: Sequence[Any]) -> int:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second))
    return sum(1 for _ in pairs)
