r"""`.tiktoken` files: OpenAI's, and those of Llama 3, Qwen and others.

One line for each token: the bytes in base64, a space, the rank in decimal, which is
also its id.

    IQ== 0
    Ig== 1

Ids may be skipped (p50k_base has no 50256).  An empty token is written ``=``
(Whisper has one).  A split pattern cuts text.  A pre-token that is a token becomes
that token; others are merged by rank, see `ranks`.

The file may be compressed: NAME.tiktoken.gz, .xz, .bz2 or .zst.  It has no pattern and no special
tokens.  They come from the caller, or from a
JSON file of the same name beside it,

    {"pat_str": "...", "special_tokens": {"<|endoftext|>": 100257}}

which are the arguments of `tiktoken.Encoding`; or the file is a public encoding's,
recognized by its SHA-256; or files of transformers beside it name a class or a kind of model whose
pattern is public, see `_MODELS`.  Those files also declare tokens, roles and templates.

`pat_str` is written for Rust's fancy-regex.  All split patterns in use mean the same
there and in Python's `regex`, except ``$``, which there is only the end of the text.

Source: github.com/openai/tiktoken, tiktoken/load.py and tiktoken_ext/openai_public.py.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import regex

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer, Definition, FileFormatError
from bpe_tokenizer_tools import core, formats
from bpe_tokenizer_tools.core import shorten
from bpe_tokenizer_tools.formats import (
    MAX_BYTES,
    Contents,
    Source,
    SpecialTokens,
    beside,
    is_compressed,
    lost,
    read_files,
)
from bpe_tokenizer_tools.formats.classes import Named
from bpe_tokenizer_tools.formats.ranks import recover_merge_ids, recover_merges
from bpe_tokenizer_tools.patterns import algebra
from bpe_tokenizer_tools.patterns.families import KIMI
from bpe_tokenizer_tools.patterns.known import R50K_SPELLINGS
from bpe_tokenizer_tools.patterns.oniguruma import (
    from_oniguruma,
    to_oniguruma,
    without_intersections,
)

_LINE = re.compile(rb"(?:=|(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==|[A-Za-z0-9+/]=))?) \d+")
_NORMALIZERS = core.NORMALIZERS

# -- Known encodings ----------------------------------------------------------


class _Encoding(NamedTuple):
    """What a file of ranks does not contain."""

    pattern: str  # in `regex` syntax
    special_tokens: Mapping[str, int]
    normalizer: str | None = None
    roles: Mapping[str, str] | None = None  # None: those of the well-known names
    surround: str = "bos"


_PUBLIC_ENCODINGS = {  # name of the file -> that of tiktoken_ext/openai_public.py
    # gpt2 has the same ranks
    "r50k_base": _Encoding(SPLIT_PATTERNS["gpt2"], {"<|endoftext|>": 50256}),
    # p50k_edit has three more special tokens, which the caller can give
    "p50k_base": _Encoding(SPLIT_PATTERNS["gpt2"], {"<|endoftext|>": 50256}),
    "cl100k_base": _Encoding(
        SPLIT_PATTERNS["cl100k"],
        {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": _Encoding(
        SPLIT_PATTERNS["o200k"], {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
    ),
}
PUBLIC_SHA256 = {  # of each of these files
    "r50k_base": "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    "p50k_base": "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}


def _phi_3_small(size: int) -> dict[str, int]:
    """Return the 96 control tokens of Phi-3-small, which come after cl100k's ranks."""
    first = "<|endoftext|> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|system|> <|user|>"
    first += " <|assistant|> <|dummy_id_0|> <|dummy_id_1|> <|end|>"
    names = ["<|dummy_id_2|>", *first.split(), *(f"<|dummy_id_{i}|>" for i in range(3, 12))]
    names += ["<|endofprompt|>", *(f"<|dummy_id_{i}|>" for i in range(12, 87))]
    return {name: size + i for i, name in enumerate(names)}


def _qwen_1(size: int) -> dict[str, int]:
    """Return the 208 control tokens of Qwen 1, which come after its ranks."""
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    names += [f"<|extra_{i}|>" for i in range(205)]
    return {name: size + i for i, name in enumerate(names)}


class _Published(NamedTuple):
    """What the code of a published model says about its file of ranks."""

    classes: str  # names of its class of tokenizers
    model_types: str  # in its config.json
    pattern: str
    normalizer: str | None = None
    # its control tokens, given the number of ranks, if no file declares any
    special_tokens: Callable[[int], dict[str, int]] | None = None
    roles: Mapping[str, str] = {}  # if no file says otherwise


# Sources: tokenization_kimi.py, tokenization_chatglm.py, tokenization_phi3_small.py and
# tokenization_qwen.py of these models; meta-llama/llama-models, models/llama3 and llama4.
_MODELS = (
    _Published("TikTokenTokenizer", "kimi_k2 kimi_k25 kimi_linear kimi_vl", from_oniguruma(KIMI)),
    _Published(
        "Phi3SmallTokenizer",
        "phi3small",
        SPLIT_PATTERNS["cl100k"],
        special_tokens=_phi_3_small,
        roles={"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
    ),
    _Published("QWenTokenizer", "qwen", SPLIT_PATTERNS["qwen2"], "NFC", _qwen_1),
    _Published("ChatGLM4Tokenizer", "chatglm glm glm4 glm4v glm4_moe", SPLIT_PATTERNS["llama3"]),
    _Published("", "llama4 llama4_text", SPLIT_PATTERNS["o200k"]),
    _Published("LlamaTokenizer", "llama mllama mllama_text_model", SPLIT_PATTERNS["llama3"]),
)


def _published(named: Named) -> _Published | None:
    """Return what is known of the model that files beside the ranks name."""
    by_type = [model for model in _MODELS if named.model_type in model.model_types.split()]
    for name in named.classes:
        for model in _MODELS:
            if name.removesuffix("Fast") in model.classes.split():
                # Llama 3 and 4 share a class, and only the type of model tells them apart.
                shared = model.classes == "LlamaTokenizer" and by_type
                return by_type[0] if shared else model
    return by_type[0] if by_type else None


def _of_model(found: beside.Beside, size: int) -> _Encoding | None:
    """Return what is known of the model that the files beside ranks name."""
    model = _published(found.named)
    if model is None:
        return None
    special: Mapping[str, int] = {}
    if model.special_tokens and not found.declares_ids:
        special = model.special_tokens(size)
    return _Encoding(model.pattern, special, model.normalizer, model.roles, "none")


def _public(data: bytes, found: beside.Beside | None = None) -> _Encoding | None:
    """Return the public encoding of a file, if it is one."""
    digest = hashlib.sha256(data).hexdigest()
    names = (name for name, known in PUBLIC_SHA256.items() if known == digest)
    known = next(map(_PUBLIC_ENCODINGS.__getitem__, names), None)
    if known and found and found.declares_ids:  # the ranks of another tokenizer
        known = _Encoding(known.pattern, {}, roles={}, surround="none")
    return known


# -- Split patterns -----------------------------------------------------------


def read_pattern(data: core.JsonReader, key: str) -> str:
    """Read a pattern written for Rust's fancy-regex."""
    pattern = data.get(key, str)
    try:
        return exact_pattern(pattern)
    except ValueError as error:
        raise data.error(str(error), key) from None


# Characters of all kinds that patterns distinguish, the usual ones first.
_PROBE = "".join(map(chr, [*range(32, 0x3000), *range(32), 0x4E00, 0xAC00, 0xE000, 0x1F600]))
_WITH_GAPS = re.compile(r"(.+)\|\(\?:\(\?!\1\)\[\\s\\S\]\)\+", re.DOTALL)


def exact_pattern(pattern: str) -> str:
    r"""Translate a pattern of tiktoken's as `from_fancy_regex` does, if it drops no text.

    Undoes `to_fancy_regex`, which adds an alternative for text that no other matches.

    Raises:
        ValueError: part of it means something else here; or it leaves out text, which
            tiktoken drops and this library keeps.

    >>> exact_pattern(r"a+|(?:(?!a+)[\s\S])+")
    'a+'
    """
    if len(pattern) > core.MAX_PATTERN_LENGTH:  # compiling it will raise
        return pattern
    added = _WITH_GAPS.fullmatch(pattern)
    spelled = from_fancy_regex(added[1] if added else pattern)
    # A pattern that is slow to prepare isn't tried: using it raises an error if it is long.
    slow = len(pattern) > 1_000 and core.is_slow(pattern)
    known = slow or added or spelled in SPLIT_PATTERNS.values()
    dropped = None if known else _first_dropped(spelled)
    if dropped:
        raise ValueError(
            f"the pattern {shorten(pattern)} leaves out {dropped!r}; tiktoken drops such text, "
            "but this library keeps it; add |[\\s\\S] to the end of the pattern, so that both do"
        )
    return spelled


def _first_dropped(pattern: str) -> str | None:
    """Return a character that a pattern leaves out, if one is found."""
    end = 0
    # NOTE: patterns that can't be compiled, or take forever, fail later, where they are used.
    with contextlib.suppress(regex.error, ValueError, RecursionError, OverflowError, TimeoutError):
        for found in core.Pattern(pattern).finditer(_PROBE, timeout=1):
            if found.start() > end:
                break
            end = found.end()
        return _PROBE[end : end + 1] or None
    return None


def from_fancy_regex(pattern: str) -> str:
    r"""Translate a pattern from Rust's fancy-regex to Python's `regex`.

    Syntax that neither knows fails later, when it is compiled.

    Raises:
        ValueError: part of it means something else here.

    >>> from_fancy_regex(r"a$|b") == r"a\Z|b"
    True
    >>> print(from_fancy_regex(r"[a-z&&[^q]]+"))
    (?:(?=[a-z])[^q])+
    """
    if pattern in SPLIT_PATTERNS.values():
        return pattern
    if pattern in R50K_SPELLINGS:
        return SPLIT_PATTERNS["gpt2"]
    if re.search(r"(?<!\\)(?:\\\\)*\\[<>]", pattern):
        raise ValueError("the word boundaries \\< and \\> are not supported")
    if len(pattern) > core.MAX_PATTERN_LENGTH:
        return pattern
    operation = _set_operation(pattern)
    if operation in ("--", "~~"):
        raise ValueError(f"sets may contain && and other sets, but not {operation}")
    has_ends = re.search(r"\$|\\[zZ]", pattern) is not None
    written = re.sub(r"(?<!\\)((?:\\\\)*)\\z", r"\1$", pattern)  # \z is not known to the parsers
    if operation:
        pattern = written = without_intersections(written)
    if not has_ends:
        return pattern
    there = {"$": "\\Z", "\\Z": "$"}
    try:
        tree = algebra.PatternParser(written).parse()
    except (algebra.UnknownConstructError, RecursionError):
        if operation:  # a "$" that came from "\\z" means something else in `regex`
            raise
        return pattern
    return algebra.spell(tree, lambda node: there.get(node.source, node.source))


def to_fancy_regex(pattern: str) -> str:
    """Translate a pattern from Python's `regex` to Rust's fancy-regex.

    Raises:
        ValueError: part of it isn't known to mean the same there.
    """
    if pattern in SPLIT_PATTERNS.values():
        return pattern
    try:
        tree = algebra.PatternParser(pattern).parse()
        if algebra.may_be_empty(tree):
            raise algebra.UnknownConstructError("a pattern that matches the empty string")
        written = algebra.spell(tree, _fancy_leaf)
    except algebra.UnknownConstructError as error:
        raise ValueError(
            f"split pattern {shorten(pattern)} cannot be given to tiktoken: {error} has no form "
            "known to mean the same in its regex engine; write the pattern without it"
        ) from None
    # Text that no alternative matches is a pre-token here; tiktoken would drop it.
    return f"{written}|(?:(?!{written})[\\s\\S])+"


def _fancy_leaf(node: Any) -> str:
    """Spell one character or anchor of a pattern tree."""
    source: str = node.source
    if isinstance(node, algebra.Anchor):
        return {"$": "(?=\\n?\\z)", "\\Z": "\\z"}.get(source, source)
    # "İ" is an "i" there and none here; properties have case there, and none here; and
    # in a set there "--" and "~~" take members away.
    if node.ignore_case and re.search(r"\\[pPuUx]|[iIİı]|-", source):
        raise algebra.UnknownConstructError(repr(node.pattern))
    if re.search(r"\\[<>]|\{\^|--|~~", source):
        raise algebra.UnknownConstructError(repr(source))
    return source.replace("\\0", "\\x00")


def _set_operation(pattern: str) -> str:
    """Return what makes a set in square brackets of sets, as in ``[a-z&&[^b]]``; "" if none is."""
    bare = re.sub(r"\\.", "x", pattern, flags=re.DOTALL)
    found = re.findall(r"\[\^?\]?[^\]]*?(\[|&&|--|~~)", bare)
    return next((each for each in ("--", "~~", *found) if each in found), "")


# -- Reading ------------------------------------------------------------------


def matches(path: Path, head: bytes) -> bool:
    """Recognize a file of ranks by its name or its first three lines."""
    lines = [line.strip() for line in head.split(b"\n")]
    whole = [line for line in lines[:-1] or lines if line]
    return core.suffix_of(path) == ".tiktoken" or (
        bool(whole) and all(map(_LINE.fullmatch, whole[:3]))
    )


def read(
    path: Path, split_pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Source:
    """Read a file of ranks, and the files beside it.

    Args:
        path: the file.
        split_pattern: a regex, or a name of `SPLIT_PATTERNS`; needed if no JSON file beside the
            file has it, no file there names a known model, and it isn't a public encoding's.
        special_tokens: text -> id; added to those found there, which they override.

    Raises:
        FileFormatError: the file is damaged, or the split pattern is not known.
    """
    sidecar = (path.with_suffix("") if is_compressed(path) else path).with_suffix(".json")
    own = [sidecar] if core.suffix_of(path) == ".tiktoken" else []
    others = [other for other in beside.paths(path.parent) if other not in own]
    return _read(path, split_pattern, special_tokens, own, others)


def read_alone(path: Path, split_pattern: str | None, special_tokens: SpecialTokens) -> Source:
    """Read a file of ranks, and none beside it."""
    return _read(path, split_pattern, special_tokens, [], [])


def _read(
    path: Path,
    split_pattern: str | None,
    special_tokens: SpecialTokens | None,
    own: Sequence[Path],
    others: Sequence[Path],
) -> Source:
    """Read a file of ranks; `own` is its JSON file, `others` are those of transformers."""
    files = read_files(path, *own, *others)
    data = _unpacked(path, files.pop(path))
    ranks = _read_ranks(path, data)
    found = beside.of(path.parent, {file: files[file] for file in others if file in files})
    known = _read_sidecar(own[0], files, ranks) if own else None
    known = known or _of_model(found, len(ranks)) or _public(data, found)
    if split_pattern is not None:
        pattern = core.pattern_named(split_pattern)
        bare = _Encoding(pattern, {}, surround="none" if found.speaks else "bos")
        known = bare if known is None else known._replace(pattern=pattern)
    if known is None:
        raise _no_pattern(path)
    return _with_files(path, ranks, known, found, dict(special_tokens or {}))


def _no_pattern(path: Path) -> FileFormatError:
    classes = ", ".join(name for model in _MODELS for name in model.classes.split())
    return FileFormatError(
        path,
        "",
        "has ranks but no split pattern, and is not the file of a public encoding; pass "
        f"split_pattern, a regular expression or one of {', '.join(SPLIT_PATTERNS)}, and "
        "special_tokens, such as {'<|endoftext|>': 50256}, if there are any; or add the model's "
        "tokenizer_config.json or config.json, if its tokenizer_class or model_type is a known "
        f"one: {classes}, or those of Llama 3 and 4",
    )


def _with_files(
    path: Path,
    ranks: Mapping[bytes, int],
    known: _Encoding,
    found: beside.Beside,
    given: Mapping[str, int],
) -> Source:
    """Convert ranks, given what is known of them and the files of transformers beside them."""
    # The caller's come last, in their order: of those that share an id, the last decodes it.
    special = {text: id_ for text, id_ in known.special_tokens.items() if text not in given}
    own = [AddedToken(text, id_) for text, id_ in special.items()]
    special.update(given)
    by_name = file_roles([*own, *map(AddedToken, given)])
    roles = found.roles(by_name if known.roles is None else known.roles)
    declared = [token for token in beside.declared(found, roles) if token.content not in given]
    declared.sort(key=lambda token: _order(token, found, len(ranks)))
    known_ids = {**ordinary_ids((token.content for token in declared), ranks), **special}
    numbered = beside.number(declared, known_ids, ranks.values())
    ids = {**special, **{text: cast("int", token.id) for text, token in numbered.items()}}
    surround = known.surround
    if any(key in found.config.data for key in ("add_bos_token", "add_eos_token")):
        surround = beside.surround(found)
    source = byte_level(
        path, ranks, known.pattern, ids, known.normalizer, roles, surround, numbered
    )
    templates = found.side.templates
    return dataclasses.replace(source, settings=found.settings, chat_templates=templates)


def _order(token: AddedToken, found: beside.Beside, size: int) -> int:
    """Return a token's place in the order in which transformers adds them to ranks."""
    if token.id is not None and token.id >= size:
        return 0
    lists = ("extra_special_tokens", "additional_special_tokens")
    if token.content in found.side.further and any(found.config.data.get(key) for key in lists):
        return 1
    return 2 if token.id is not None else 3


def _unpacked(path: Path, data: bytes) -> bytes:
    """Return a file's content; decompress it if its name says that it is compressed."""
    with core.decompressed(path, io.BytesIO(data)) as file:
        found = file.read(MAX_BYTES + 1)
    if len(found) > MAX_BYTES:
        raise FileFormatError(path, "", f"more than {MAX_BYTES:,} bytes when decompressed")
    return found


def _read_ranks(path: Path, data: bytes) -> dict[bytes, int]:
    return _read_ranks_in_c(data) or _read_plain_ranks(data) or _read_lines(path, data)


def _read_ranks_in_c(data: bytes) -> dict[bytes, int] | None:
    """Read as `_read_plain_ranks` does, if ranks ascend; None also without the accelerator."""
    if not bpe_tokenizer.ACCELERATED:
        return None
    from _bpe_tokenizer.engine import read_ranks

    return read_ranks(data)


def _read_plain_ranks(data: bytes) -> dict[bytes, int] | None:
    """Read a file in the exact form of all published ones; None for any other."""
    fields = data.split()
    written, numbers = fields[::2], fields[1::2]
    if b"\n".join(map(b" ".join, zip(written, numbers))) != data.rstrip(b"\n"):
        return None
    try:
        tokens, ranks = list(map(binascii.a2b_base64, written)), list(map(int, numbers))
    except ValueError:
        return None
    if [binascii.b2a_base64(token, newline=False) for token in tokens] != written:
        return None
    if list(map(b"%d".__mod__, ranks)) != numbers:
        return None
    found = dict(zip(tokens, ranks))
    if len(found) < len(tokens) or len(set(ranks)) < len(tokens):
        return None
    in_range = min(ranks, default=0) >= 0 and max(ranks, default=0) <= core.MAX_ID
    return found if in_range else None


def _read_lines(path: Path, data: bytes) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    line_of: dict[int, int] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        parts = line.split()
        if not parts:
            continue
        place = f"line {number}"
        if len(parts) != 2:
            shown = shorten(line)
            raise FileFormatError(
                path, place, f"expected a token in base64 and a rank, got {shown}"
            )
        token = decode_base64(path, place, parts[0])
        rank = int(parts[1]) if parts[1].isdigit() and len(parts[1]) <= 10 else -1
        if not 0 <= rank <= core.MAX_ID:
            expected = f"expected a rank from 0 to {core.MAX_ID}"
            raise FileFormatError(path, place, f"{expected}, got {shorten(parts[1])}")
        if line_of.setdefault(rank, number) != number:
            raise FileFormatError(
                path, place, f"rank {rank} is already that of line {line_of[rank]}"
            )
        if ranks.setdefault(token, rank) != rank:
            raise FileFormatError(path, place, f"{shorten(token)} already has rank {ranks[token]}")
    return ranks


def decode_base64(path: Path, place: str, text: bytes) -> bytes:
    """Decode base64 strictly."""
    try:
        return base64.b64decode(text, validate=True) if text != b"=" else b""
    except binascii.Error as error:
        raise FileFormatError(path, place, f"{shorten(text)} is not base64: {error}") from None


def is_sidecar(path: Path) -> bool:
    """Return True if a file is such a JSON file, not another tokenizer's."""
    try:
        return "pat_str" in core.JsonReader.open(path).data
    except (FileFormatError, FileNotFoundError):  # not JSON, or no file
        return False


def _read_sidecar(
    sidecar: Path, beside: Mapping[Path, bytes], ranks: Mapping[bytes, int]
) -> _Encoding | None:
    """Read the JSON file beside the ranks, if there is one and it describes them."""
    if sidecar not in beside:
        return None
    data = core.JsonReader.open(sidecar, beside[sidecar])
    if "pat_str" not in data.data:  # another tokenizer's file
        return None
    pattern = data.get("split_pattern", str, default=None)
    if pattern is None:
        pattern = read_pattern(data, "pat_str")
    special: dict[str, int] = data.get("special_tokens", dict, default={})
    for content, id_ in special.items():
        if type(id_) is not int or not 0 <= id_ <= core.MAX_ID or not content:
            problem = f"expected an id from 0 to {core.MAX_ID}, got {shorten(id_)}"
            raise data.error(f"{shorten(content)}: {problem}", "special_tokens")
    normalizer = data.get("normalizer", str, None, default=None)
    if normalizer not in (None, *_NORMALIZERS):
        shown = shorten(normalizer)
        raise data.error(f"expected one of {', '.join(_NORMALIZERS)}, got {shown}", "normalizer")
    size = data.get("explicit_n_vocab", int, None, default=None)
    count = len(ranks) + len(special)  # of texts, as tiktoken counts
    largest = max([*ranks.values(), *special.values()], default=-1)
    if size is not None and (count, largest) != (size, size - 1):
        found = f"{count} tokens up to id {largest}"
        raise data.error(
            f"says {size}, but {sidecar.stem}.tiktoken and special_tokens have {found}",
            "explicit_n_vocab",
        )
    surround = data.get("surround", str, default="bos")
    if surround not in core.SURROUND:
        known = ", ".join(core.SURROUND)
        raise data.error(f"expected one of {known}, got {shorten(surround)}", "surround")
    return _Encoding(pattern, special, normalizer, _read_roles(data, special), surround)


def _read_roles(data: core.JsonReader, special: Mapping[str, int]) -> dict[str, str] | None:
    """Read which tokens begin and end a text and so on; None if the file doesn't say."""
    if not any(role in data.data for role in core.ROLE_NAMES):
        return None
    roles: dict[str, str] = {}
    for role in core.ROLE_NAMES:
        token = data.get(role, str, None, default=None)
        if token is not None and token not in special:
            raise data.error(f"{shorten(token)} is not in special_tokens", role)
        if token is not None:
            roles[role] = token
    return roles


def byte_level(
    path: Path,
    ranks: Mapping[bytes, int],
    pattern: str,
    special_tokens: SpecialTokens,
    normalizer: str | None = None,
    roles: Mapping[str, str] | None = None,
    surround: str = "bos",
    declared: Mapping[str, AddedToken] | None = None,
) -> Source:
    """Convert ranks of byte strings to the common form.

    Args:
        path: what an error names.
        ranks: token -> id.
        pattern: in `regex` syntax.
        special_tokens: text -> id; several may share one, and the last decodes it.
        normalizer: as in `BPETokenizer`.
        roles: role -> token; None gives special tokens with well-known names their roles.
        surround: as in `BPETokenizer`.
        declared: the options of special tokens, by their text.

    Raises:
        FileFormatError: a byte has no token, or ids collide.
    """
    for byte in range(256):
        if bytes([byte]) not in ranks:
            problem = f"has no token for byte 0x{byte:02X}; is the file complete?"
            raise FileFormatError(path, "", problem)
    if len(pattern) > core.MAX_PATTERN_LENGTH:
        limit = f"the limit is {core.MAX_PATTERN_LENGTH}"
        raise FileFormatError(path, "", f"split pattern has {len(pattern)} characters, {limit}")
    try:
        merges = recover_merge_ids(ranks)
        definition = Definition(
            vocab=dict(ranks),
            merges=merges,
            split_pattern=from_oniguruma(to_oniguruma(pattern)),
            normalizer=normalizer,
            ignore_merges=True,
        )
        known = declared or {}
        tokens = [
            dataclasses.replace(known.get(content) or AddedToken(content), id=id_)
            for content, id_ in special_tokens.items()
        ]
        for content in special_tokens:
            core.utf8_length(content)  # raises for a lone surrogate
            if not content:
                raise ValueError("special_tokens: one of them is the empty text")
        definition = _with_shared_ids(definition, tokens, known)
    except (ValueError, RecursionError) as error:
        problem = f"split pattern: {error}" if isinstance(error, RecursionError) else str(error)
        raise FileFormatError(path, "", problem) from None
    if roles is None:
        roles = file_roles(definition.added)
    ids = {token.content: token.id for token in definition.added}
    ends = (ids.get(roles.get(role, "")) for role in ("bos_token", "eos_token"))
    template = surround if surround == "default" else core.template_ids(surround, *ends)
    return Source({}, dict(roles), definition=dataclasses.replace(definition, template=template))


def _with_shared_ids(
    definition: Definition, tokens: list[AddedToken], declared: Iterable[str]
) -> Definition:
    """Add tokens; those that share an id stay in the order given.

    `declared` are those of transformers' files, which may be ordinary tokens as well.
    """
    first: dict[int | None, AddedToken] = {}
    ordinary = ordinary_ids(declared, definition.vocab)
    alone = (
        token if first.setdefault(token.id, token) is token else AddedToken(token.content)
        for token in tokens
        if token.content not in ordinary or token.id != ordinary[token.content]
    )
    checked = core.with_added_tokens(definition, alone)
    return dataclasses.replace(checked, added=core.by_id(tokens))


def ordinary_ids(texts: Iterable[str], ranks: Mapping[bytes, int]) -> dict[str, int]:
    """Return the ids of texts that are ordinary tokens, as HuggingFace writes these.

    There, an added token with the text of an ordinary one gets its id.
    """
    found = ((text, core.from_printable(text)) for text in texts)
    return {text: ranks[token] for text, token in found if token in ranks and token}


def file_roles(tokens: Iterable[AddedToken]) -> dict[str, str]:
    """Return role -> token by the known names, exactly as written: files rely on that."""
    contents = {token.content for token in tokens if token.special}
    roles = {}
    for role, names in core.ROLE_NAMES.items():
        found = [name for name in names if name in contents]
        if found:
            roles[role] = found[0]
    return roles


# -- Writing ------------------------------------------------------------------


def refuse_shared_ids(definition: Definition) -> None:
    """Raise for added tokens that share an id, which the format can't express."""
    contents: dict[int | None, str] = {}
    for token in definition.added:
        other = contents.setdefault(token.id, token.content)
        if other != token.content:
            raise ValueError(
                f"{other!r} and {token.content!r} share id {token.id}, and the format has one text "
                "for each id; export to 'tiktoken', or load the tokenizer without one of them"
            )


def contents(tokenizer: BPETokenizer, path: Path) -> Contents:
    """Write ranks to NAME.tiktoken, and the rest to NAME.json beside it.

    The tokens that ``add_special_tokens`` adds are written as `surround`, if they are bos,
    eos, both or none; tiktoken itself leaves that to its callers.

    Raises:
        ValueError: the tokenizer does something that tiktoken cannot, or NAME.json
            exists and is another kind of file.
    """
    if path.suffix.lower() != ".tiktoken":
        raise ValueError(f"{path}: expected a name that ends in .tiktoken")
    _check_replaceable(path, path.with_suffix(".json"))
    ranks, special = _ranks_and_special_tokens(tokenizer)
    definition = tokenizer.definition
    pattern = to_fancy_regex(definition.split_pattern)
    name = path.stem.encode("utf-8", "replace").decode()  # file names may be in any encoding
    sidecar: dict[str, Any] = {"name": name, "pat_str": pattern, "special_tokens": special}
    if pattern != definition.split_pattern:
        sidecar["split_pattern"] = definition.split_pattern
    count = len(ranks) + len(special)
    if count == tokenizer.max_id + 1 == tokenizer.vocab_size:
        sidecar["explicit_n_vocab"] = count
    if core.roles(tokenizer) != file_roles(definition.added):
        sidecar.update({role: core.roles(tokenizer).get(role) for role in core.ROLE_NAMES})
    ends = tokenizer.bos_token_id, tokenizer.eos_token_id
    if definition.template == "default":  # which its ids don't say
        sidecar["surround"] = "default"
    else:
        rules = ("bos", *core.SURROUND[1:])  # the first is what files mean without it
        around = core.around(tokenizer)
        rule = next((each for each in rules if core.template_ids(each, *ends) == around), "bos")
        if rule != "bos":
            sidecar["surround"] = rule
    lines = [
        (base64.b64encode(token) or b"=") + b" %d\n" % rank
        for token, rank in sorted(ranks.items(), key=operator.itemgetter(1))
    ]
    return {
        path: b"".join(lines),
        path.with_suffix(".json"): json.dumps(sidecar, ensure_ascii=False, indent=1) + "\n",
    }


def _check_replaceable(path: Path, sidecar: Path) -> None:
    """Raise rather than replace another file with the second one's name."""
    if sidecar.exists() and not is_sidecar(sidecar):
        raise ValueError(
            f"{sidecar} would be replaced by the split pattern and the special tokens that belong "
            f"to {path.name}, but it is something else; give {path.name} another name"
        )


def to_tiktoken(tokenizer: BPETokenizer, *, without_normalizer: bool = False) -> Any:
    """Make a `tiktoken.Encoding` that gives the same ids.

    Args:
        tokenizer: the tokenizer to convert.
        without_normalizer: leave the normalizer out; the caller normalizes all text.

    Raises:
        ValueError: the tokenizer does something that tiktoken cannot.
        ImportError: tiktoken is not installed.
    """
    ranks, special = _ranks_and_special_tokens(formats.drop_normalizer(tokenizer))
    problem = formats.normalizer_lost(tokenizer, "tiktoken", "tiktoken")
    if problem and not without_normalizer:
        raise problem
    pattern = to_fancy_regex(tokenizer.definition.split_pattern)
    tiktoken = core.import_optional("tiktoken", "to_tiktoken()", "tiktoken")
    return tiktoken.Encoding(
        name=f"bpe-tokenizer-{tokenizer.fingerprint[:16]}",
        pat_str=pattern,
        mergeable_ranks=ranks,
        special_tokens=special,
    )


def _ranks_and_special_tokens(
    tokenizer: BPETokenizer,
) -> tuple[dict[bytes, int], dict[str, int]]:
    """Return the arguments for tiktoken, or raise for what it can't do."""
    definition = tokenizer.definition
    if definition.components is not None:
        raise lost(
            "tiktoken",
            "it is not byte-level, or prepares text in more steps than one split pattern",
        )
    if definition.prefix_space:
        raise lost("tiktoken", "it puts a space before text (add_prefix_space)")
    _check_added_tokens(definition)
    _check_merges(definition)
    return dict(definition.vocab), {
        token.content: cast("int", token.id) for token in definition.added
    }


def _check_added_tokens(definition: Definition) -> None:
    ordinary = set(definition.vocab.values())
    for token in definition.added:
        flags = {
            "special=False": not token.special,
            "lstrip": token.lstrip,
            "rstrip": token.rstrip,
            "single_word": token.single_word,
            "that it is an ordinary token too": token.id in ordinary,
        }
        found = ", ".join(flag for flag, is_set in flags.items() if is_set)
        if found:
            raise lost(
                "tiktoken", f"added token {token.content!r} has {found}, not just a text and an id"
            )
    problem = overlap(token.content for token in definition.added)
    if problem:
        raise lost("tiktoken", problem)


def overlap(special_tokens: Iterable[str]) -> str:
    """Describe a special token that begins with another; "" if none does."""
    by_text = sorted(special_tokens)
    for shorter, longer in itertools.pairwise(by_text):
        if longer.startswith(shorter):
            return (
                f"special token {longer!r} begins with another, {shorter!r}, and tiktoken does not "
                "look for the longest"
            )
    return ""


def _check_merges(definition: Definition) -> None:
    """Check that merging by id is the same as merging by the merges.

    It is, if the merges that ranks use are all there, in that order; other merges never
    apply (see `ranks`).
    """
    vocab = definition.vocab
    token = {id_: token for token, id_ in vocab.items()}
    by_id = {(vocab[left], vocab[right]): left + right for left, right in recover_merges(vocab)}
    applied = [pair for pair in definition.merges if pair in by_id]
    missing = by_id.keys() - set(applied)
    if missing:
        left, right = min(missing, key=lambda pair: vocab[by_id[pair]])
        raise lost(
            "tiktoken",
            "tiktoken merges in the order of the new ids; it would join "
            f"{shorten(token[left])} and {shorten(token[right])}, for which this tokenizer has "
            f"no merge, to token {vocab[by_id[left, right]]}",
        )
    for pair, expected in zip(applied, by_id):
        if pair != expected:
            shown = shorten(by_id[pair])
            raise lost(
                "tiktoken",
                "tiktoken merges in the order of the new ids, but these merges are in another "
                f"order: {shown} has id {vocab[by_id[pair]]}, and its merge comes before that of "
                f"{shorten(by_id[expected])}, id {vocab[by_id[expected]]}",
            )
    if not definition.ignore_merges:
        unmade = {each for each in vocab if len(each) > 1}.difference(by_id.values())
        if unmade:
            raise lost(
                "tiktoken",
                f"no merges make {len(unmade)} tokens, such as {shorten(min(unmade))}; "
                "tiktoken uses them for pre-tokens that equal one of them; this tokenizer doesn't",
            )
