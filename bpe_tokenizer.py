"""Train, run, save and load byte-level BPE tokenizers, in one readable module.

Byte-pair encoding (BPE) turns text into the integer ids a language model reads.  A regular
expression cuts the text into pre-tokens, and learned merges join the UTF-8 bytes of each one into
longer and longer tokens.  This module does all of it in pure Python, with
ids identical to those of HuggingFace ``tokenizers`` and ``tiktoken``:

    >>> from bpe_tokenizer import BPETokenizer
    >>> tokenizer = BPETokenizer()
    >>> _ = tokenizer.train("low lower lowest " * 50, vocab_size=264,
    ...                     special_tokens=["<|endoftext|>"], verbose=False)
    >>> ids = tokenizer.encode("lowest<|endoftext|>", allowed_special="all")
    >>> tokenizer.tokenize("lowest")
    ['low', 'e', 'st']
    >>> ids[-1] == tokenizer.eos_token_id
    True
    >>> tokenizer.decode(ids)
    'lowest<|endoftext|>'

Sections, each using only those above it:

     1  Constants: split patterns, special-token sets
     2  Byte alphabet
     3  Text preparation: split patterns, normalization, added tokens
     4  Training: read a corpus, count pre-tokens, learn merges
     5  Encoding and decoding
     6  Streaming
     7  Files: tokenizer.json and its neighbors
     8  Results
     9  Chat templates
    10  Inference backends
    11  BPETokenizer
    12  Command line
    13  Accelerator and entry point

Names that are not in ``__all__`` are private and may change at any time.
"""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":
    if (_usual := signal.getsignal(signal.SIGINT)) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` runs, without a traceback

import argparse
import array
import atexit
import base64
import bisect
import codecs
import contextlib
import dataclasses
import difflib
import errno
import functools
import hashlib
import heapq
import importlib.util
import io
import itertools
import json
import math
import operator
import os
import platform
import re
import stat
import threading
import time
import unicodedata
import warnings
import zlib
from collections import Counter, UserDict, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypedDict,
    TypeVar,
    cast,
    overload,
)

try:
    import regex
except ModuleNotFoundError:
    if __name__ == "__main__":
        sys.exit("bpe-tokenizer: error: the package regex is missing: pip install regex")
    raise

if TYPE_CHECKING:
    from typing_extensions import Unpack

_IS_PROGRAM = __name__ == "__main__"
# Started as a program, this file is still the module `bpe_tokenizer`, here and in the workers that
# multiprocessing starts from it ("__mp_main__"): there is one copy, and pickles find it by name.
# A debugger or profiler may run it outside `sys.modules`; then it is a copy like any other.
if (
    __name__ in ("__main__", "__mp_main__")
    and "bpe_tokenizer" not in sys.modules
    and vars(sys.modules[__name__]) is globals()
):
    sys.modules["bpe_tokenizer"] = sys.modules[__name__]
    __name__ = "bpe_tokenizer"

__all__ = [
    "ACCELERATED",
    "CHATML_SPECIAL_TOKENS",
    "CL100K_SPLIT_PATTERN",
    "GPT2_SPLIT_PATTERN",
    "LLAMA3_SPECIAL_TOKENS",
    "NORMALIZATION_VERSION",
    "SPLIT_PATTERNS",
    "UNICODE_VERSION",
    "AddedToken",
    "BPETokenizer",
    "BatchEncoding",
    "ChatTemplate",
    "Definition",
    "EncodingResult",
    "FileFormatError",
    "InferenceBackend",
    "PretokenCounts",
    "TensorBatch",
    "TrainingReport",
    "build_byte_to_char",
    "build_char_to_byte",
    "count_pretokens",
    "detect_best_backend",
    "main",
]

__version__ = "0.10.0"

# == 1. Constants =============================================================
# What is a letter, a number or a space follows this version of Unicode, as in tiktoken and
# HuggingFace's tokenizers, whatever `regex` is installed.
UNICODE_VERSION = "16.0.0"

# Normal forms are those of this version, as in HuggingFace's tokenizers, whatever Python runs.
NORMALIZATION_VERSION = "9.0.0"

# A split pattern cuts text before any merging, and no token crosses the border of a pre-token.
# Each pattern cuts exactly as the model of its name does.

# GPT-2: github.com/openai/gpt-2, src/encoder.py.  tiktoken's r50k_base and
# p50k_base spell the same pattern with possessive quantifiers.
GPT2_SPLIT_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# GPT-3.5 and GPT-4: github.com/openai/tiktoken, tiktoken_ext/openai_public.py.
# NOTE: Llama 3's differs: here, white space at the end of the text stays in one piece (`\s++$`).
CL100K_SPLIT_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)

# GPT-4o and GPT-OSS: the same file, o200k_base.
_CONTRACTIONS, _END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _END
)
# Llama 3: github.com/meta-llama/llama3, llama/tokenizer.py.
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _END

# DeepSeek-V3: its tokenizer.json cuts in three steps, each one cutting the pieces of the last:
# numbers, then runs of H (kana and Han; K are its letters), then the rest.
_K = r"\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u4e00-\u9fa5"
_H = r"\u3040-\u30ff\u4e00-\u9fa5"
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}|[\u3040\u3097\u3098]?[K]+|[\u309b\u309c\u30a0\u30fb]+|[\u3040\u3097\u3098]+(?![K])"
    r"|[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{N}\p{P}\p{S}H]?[^\p{N}\p{P}\p{S}\p{Z}\p{C}H]+"
    r"| ?[^\p{L}\p{M}\p{N}\p{Z}\p{C}H]+[\r\n]*|\s*[\r\n]+|\s+(?![^\s\p{N}H])|\s+"
    r"|[^\s\p{L}\p{M}\p{N}\p{P}\p{S}H]+(?![^\p{N}\p{P}\p{S}\p{Z}\p{C}H])"
).replace("K", _K)

SPLIT_PATTERNS: dict[str, str] = {
    "gpt2": GPT2_SPLIT_PATTERN,
    "cl100k": CL100K_SPLIT_PATTERN,
    "o200k": _O200K,
    "llama3": _LLAMA3,
    # Qwen 2, 2.5, 3: transformers, tokenization_qwen2.py.  3.5: _qwen3_5.py; marks are letters.
    "qwen2": (_QWEN2 := _LLAMA3.replace("{1,3}", "")),
    "qwen3.5": _QWEN2.replace(r"]?\p{L}", r"]?[\p{L}\p{M}]").replace(r"\s\p{L}", r"\s\p{L}\p{M}"),
    "deepseek-v3": _DEEPSEEK_V3.replace("H", _H),
    # Mistral: config.pattern of tekken.json.  o200k's, without contractions and digit by digit.
    "tekken": _O200K.replace(_CONTRACTIONS + "?", "").replace("{1,3}", ""),
}
_PATTERN_NAMES = {pattern: name for name, pattern in SPLIT_PATTERNS.items()}

# The first special tokens of Llama 3.1's published tokenizer.json.  Pass the mapping to keep
# the ids, or `list(LLAMA3_SPECIAL_TOKENS)` to put the tokens right after yours.
_LLAMA3 = "begin_of_text end_of_text reserved_special_token_0 reserved_special_token_1 "
_LLAMA3 += "finetune_right_pad_id reserved_special_token_2 start_header_id end_header_id "
_LLAMA3 += "eom_id eot_id python_tag"
LLAMA3_SPECIAL_TOKENS = {f"<|{name}|>": 128_000 + i for i, name in enumerate(_LLAMA3.split())}

# ChatML's control tokens with the ids they have in Qwen 2, 2.5 and 3.
CHATML_SPECIAL_TOKENS = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}

# A new special token with one of these names (in any case; also as [BOS] and so on) takes the role
# if it is free; the first one listed wins.  A name that is only part of a token never counts.
_ROLE_NAMES: dict[str, tuple[str, ...]] = {
    "bos_token": ("<|begin_of_text|>", "<s>", "<bos>", "<|bos|>", "<|startoftext|>"),
    "eos_token": ("<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", "<|eos|>"),
    "pad_token": ("<|finetune_right_pad_id|>", "<pad>", "<|pad|>", "[PAD]"),
    "unk_token": ("<unk>", "<|unk|>", "[UNK]"),
    "sep_token": ("<sep>", "<|sep|>", "[SEP]"),
    "cls_token": ("<cls>", "<|cls|>", "[CLS]"),
    "mask_token": ("<mask>", "<|mask|>", "[MASK]"),
}
_ROLES = tuple(_ROLE_NAMES)

# What `add_special_tokens` puts around a text; "default" is bos and eos here, and bos elsewhere:
# other libraries add it to every prompt, and a model doesn't go on after eos.
_SURROUND = ("default", "bos+eos", "bos", "eos", "none")
_UNCUT_PATTERN = r"[\s\S]+"  # everything is one pre-token
_MAX_ID = 2**31 - 1  # ids must fit the signed 32-bit integers of other tools
_MAX_FILE_BYTES = 2**29  # the largest tokenizer.json in use is about 35 MB
_NONE: frozenset[str] = frozenset()
_MAX_ADDED_LENGTH = 2**20  # characters of all added tokens; 6,000 have 100,000
_MAX_PATTERN_LENGTH = 10_000  # characters; the longest pattern in use has 700
# A pattern that `regex` prepares slowly may have 1,000 characters.
_SLOW_PATTERN = re.compile(
    r"\(\?\w*(f|V1)|(\[.[^]]{0,20}\]|\\.|[^][(){}|.*+?^$\\]){500}", re.DOTALL
)
# A set isn't a literal.  What may be in a comment, or end one, is not taken for a set.
_LONG_SET = re.compile(r"(?<!\\)\[(\\[^)\n]|[^][()\\\n]){20,}\]")
_IN_LITERALS = re.compile(r"\(\?[\w-]*[:)]|\(\?#[^)]*\)|\)|\{0*1(,0*1)?\}[+?]?")  # don't end one
_EMPTY = "the corpus is empty: expected text besides special tokens; iterators are read only once"
_BLOCK_CHARS = 2**20  # text is read and counted in blocks of about a megabyte


def _import_optional(module: str, purpose: str, package: str) -> Any:
    """Import an optional package, or say what it is needed for and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = f"the package {package}, which is not installed"
        raise ImportError(f"{purpose} needs {missing}: pip install {package}") from error


# What this file lacks if it is alone, and how to get it.
_ALONE = "bpe_tokenizer_tools beside bpe_tokenizer.py: copy that folder from the repository"
_INSTALL = "run 'pip install .' in a clone"


def _refuse(problem: str) -> NoReturn:
    """Raise ImportError if installed parts don't fit together; a program ends with one line."""
    if _IS_PROGRAM:
        sys.exit(f"bpe-tokenizer: error: {problem}")
    raise ImportError(problem)


def _place_of(package: ModuleType) -> str:
    """Return the folder of a package for people; one may be a file, or in memory."""
    folder = next(iter(getattr(package, "__path__", ())), None)
    return str(folder or getattr(package, "__file__", None) or "in memory")


def _check_version(package: ModuleType, remedy: str) -> None:
    """Refuse a package of this project that is of another version, or that lacks files."""
    name, where = package.__name__, _place_of(package)
    this = f"bpe_tokenizer {__version__} ({globals().get('__file__', 'in memory')})"
    if getattr(package, "__file__", "") is None:  # a folder without __init__.py is a package, too
        _refuse(f"{name} in {where}, which {this} uses, has no __init__.py; {remedy}")
    found = getattr(package, "__version__", "older than 0.10")
    if found != __version__:
        _refuse(f"{this} can't use {name} {found} ({where}), only {__version__}; {remedy}")


def _find_tools() -> bool:
    """Return True if bpe_tokenizer_tools of this version is there, False if this file is alone."""
    if __name__ != "bpe_tokenizer":  # the tools use the module of that name, not this copy of it
        return False
    try:
        package = importlib.import_module("bpe_tokenizer_tools")  # its version, and nothing else
    except ModuleNotFoundError as error:
        if error.name != "bpe_tokenizer_tools":
            raise
        return False
    _check_version(package, f"copy both from one release, delete one of them, or {_INSTALL}")
    return True


# The one decision whether the tools are used.  If they are, a file of theirs that is missing or
# broken is an error wherever it is needed: a tool that is passed over could change the ids.
_WITH_TOOLS = _find_tools()


def _tools(module: str, purpose: str = "this") -> Any:
    """Import a module of bpe_tokenizer_tools, or say what it is needed for and how to get it."""
    if not _WITH_TOOLS:
        raise ImportError(f"{purpose} needs {_ALONE}, or {_INSTALL}")
    try:
        return importlib.import_module(f"bpe_tokenizer_tools.{module}")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("bpe_tokenizer_tools"):
            raise
        folder = _place_of(sys.modules["bpe_tokenizer_tools"])
        problem = f"bpe_tokenizer_tools {__version__} in {folder} lacks a file: {error}"
        again = f"copy the folder of bpe_tokenizer {__version__} again"
        raise ImportError(f"{problem}; {again}, or {_INSTALL}") from error


class _Tool:
    """A method of bpe_tokenizer_tools, given a tokenizer as it is now or, if `live`, itself."""

    def __init__(self, path: str, of_class: bool = False, live: bool = False) -> None:
        self._module, _, self._name = path.rpartition(".")
        self._of_class, self._live = of_class, live

    def __get__(self, instance: Any, owner: type) -> Any:
        if not _WITH_TOOLS:
            if self._module == "showing.notebook":
                raise AttributeError(self._name)  # others ask `hasattr`
            if instance is None:
                return self  # help() looks at the class
        function = getattr(_tools(self._module, f"{self._name}()"), self._name)
        instance = instance if self._live else getattr(instance, "_now", instance)
        return function.__get__(owner if self._of_class else instance, owner)


class FileFormatError(ValueError):
    """A file that is damaged, or not in the format expected.

    `field` is the place in the file `path`, such as ``model.merges[3]``; "" is the whole file.
    """

    def __init__(self, path: str | os.PathLike[str], field: str, problem: str) -> None:
        self.path, self.field, self.problem = os.fspath(path), field, problem
        super().__init__(": ".join(part for part in (self.path, field, problem) if part))

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return FileFormatError, (self.path, self.field, self.problem)


def _shorten(value: object, limit: int = 60) -> str:
    """Show a value in an error message without flooding it."""
    shown = repr(value)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


# Packages whose lines no warning points to: this library, and those that call it when patched.
_BETWEEN = frozenset(
    {
        __name__,
        "bpe_tokenizer",
        "bpe_tokenizer_tools",
        "bpe_tokenizer_lab",
        "_bpe_tokenizer",
        "contextlib",
        "functools",
        "tiktoken",
        "transformers",
    }
)


def _warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn the program that uses this library: the warning points to its line.

    Every warning of the module, the tools and the engine comes from here.  How many of their own
    frames are between differs by call, by engine and by version of Python.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _renamed(**names: str) -> Callable[[_Function], _Function]:
    """Let callers use old names of arguments, given as ``old="new"``, for one more release.

    Type checkers and `inspect.signature` see the new names only.
    """

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def renamed(*given: Any, **named: Any) -> Any:
            if not named:  # as in nearly every call
                return function(*given)
            for old in named.keys() & names:
                new, call = names[old], f"{function.__qualname__}()"
                if new in named:
                    raise TypeError(f"{call} got {old}= and {new}=, one argument: pass only {new}=")
                problem = f"{call}: the argument {old}= is called {new}= now"
                _warn(f"{problem}; its old name will not work in 0.11", DeprecationWarning)
                named[new] = named.pop(old)
            return function(*given, **named)

        return cast("_Function", renamed)

    return decorate


# == 2. Byte alphabet =========================================================
# Vocabulary files store byte strings as text.  GPT-2 gave each of the 256 bytes a printable
# character: 188 are printable already and map to themselves, the other 68 to U+0100 and up,
# in order.  A space is "Ġ".  Source: github.com/openai/gpt-2, src/encoder.py, bytes_to_unicode.


def build_byte_to_char() -> dict[int, str]:
    """Build the map from each of the 256 bytes to its own printable character.

    >>> build_byte_to_char()[0x20], build_byte_to_char()[0x41]
    ('Ġ', 'A')
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    replacement = itertools.count(0x100)
    return {b: chr(b if b in printable else next(replacement)) for b in range(256)}


@_renamed(m="byte_to_char")
def build_char_to_byte(byte_to_char: Mapping[int, str] | None = None) -> dict[str, int]:
    """Invert a byte -> character map, by default the one of `build_byte_to_char`."""
    if byte_to_char is None:
        byte_to_char = build_byte_to_char()
    return {char: byte for byte, char in byte_to_char.items()}


_BYTE_TO_CHAR = build_byte_to_char()
_CHAR_TO_BYTE = build_char_to_byte(_BYTE_TO_CHAR)
_ALPHABET = bytes(map(_CHAR_TO_BYTE.__getitem__, sorted(_CHAR_TO_BYTE)))
_CODE_TO_BYTE = {ord(char): byte for char, byte in _CHAR_TO_BYTE.items()}  # for str.translate


def _to_printable(token: bytes) -> str:
    """Write a token in the byte alphabet: ``b" a"`` becomes ``"Ġa"``."""
    return token.decode("latin-1").translate(_BYTE_TO_CHAR)


def _from_printable(token: str) -> bytes | None:
    """Read a token back from the byte alphabet; None for any other text."""
    if not _CHAR_TO_BYTE.keys() >= set(token):
        return None
    return token.translate(_CODE_TO_BYTE).encode("latin-1")


# == 3. Text preparation ======================================================
# Find the added tokens, normalize the text between them, and cut that into pre-tokens.
#
# bpe_tokenizer_tools/patterns/ spells patterns for Oniguruma (HuggingFace's engine) and `re`, and
# finds where text can be cut.  The answers for section 1 are also here, so this file works alone.


# -- Characters ---------------------------------------------------------------
# Each release of `regex` has the Unicode of its day, but ids must not depend on the day.  So this
# table decides.  Where the installed `regex` takes a character for something else, the text is
# matched with a stand-in in its place: a character that `regex` has always known, of the kind that
# the table says.  The matches are in the same places.
#
# Made by accelerator/tools/make_unicode_data.py.  A kind is a category; then Han, Hiragana or
# Katakana, if that is the script; then those of \w, \s and \d that match.  The runs of characters
# of one kind are packed.

_KINDS = """
Cc, Cc s, Zs s, Po, Sc, Ps, Pe, Sm, Pd, Nd w d, Lu w, Sk, Pc w, Ll w, So, Lo w, Pi, Cf, No,
Pf, Lt w, Lm w, Mn w, Cn, Me w, Mc w, Nl w, Cf w, Zl s, Zp s, So w, So Han, Lm Han w, Nl Han
w, Lo Hiragana w, Lm Hiragana w, Lo Katakana w, Lm Katakana w, So Katakana, Lo Han w, Cs,
Co, Po Han, Mc Han w, So Hiragana
"""
_KIND_RUNS = """
c-rk(O^hT}9q;%4@6~(ts;gdi%~ZYV-kqM_+1Z^Lc9xxm{X!8o8qf_y(I|=`iV;l|0vt?8^kVS9#hW+08ACjJFdA;gsA
nz`55^ELUO5>O6Y%$cuezsqc40sG5JJCycU8TQ`hR~_PxK@y(is`Dl;i3&WktUzwaH8`?p9P(eqe@GQJK0Zsi^%*P0qN
|l<p%Ao`0)l_q#EyzTfoArkFv?3r*q5(3Ipt;cx+z@&B%1ZkAltuDSA~4-mVdl5D6{Xl+Xof)Ad;(7+w5mWJdT-{$07k
N>c0o3?6w?khfnMI3K^$bH*X)Pz>yAwnQ*@Fn=dhhb=a(+=B_Z%3^k;WFZP;pjj<;zM)b?Jx>B7UD(=<f^We2WN+l;xN
vI1U$_dXSg21mN9ndNb&7Dr#iyj7EV^a#zwdnMvO0E9EBX*Re=SY<HGg<SBxo8U160D5$yPy(F>ke(mQiCR9LNf7Z|SQ
x|1Fpgb}M7hZNKdtu8X#`p6iJ!vun_2+&qQ*D~l#XOScXAV$#!EC)UnlBHNOIKYSzjeIm*TpQ)1wu+$>N@~jM>FFvBQw
`#LI9M>@rPmoeZOkl=_#Ztc$>lq`)R2mbsRPm?90(FL2Qo#bSxL}C6)2yP%Im<|hW{n2cGv=5hb0=g$Qm!ss6c$^3{n#
wX9CYRXGjRNbB}n5apQo5+NcvYl@DdZ(0&}k{sT)U^Lt2c5vS#91Z=JrWzpSn4MpjSkmf-Sj|?phRy6<U==xA%LVYr^B
KAoR!?12bjd{ZtxU*s_!j6>#q^#>I<Ek0NtdA>_c4exvs>iMz*HtjpwZK6TZ`~Z;R9BPws{I4Ny3WkO+*Ic31M`jUGDl
intG4FDuuY^3-$WXsl6B4rfv%U^TId~`Pd`gGJ<S9{?C_dKa+odIuo0n>R89S{1L5aNvv@w%j%-sMn|i9kW@wA!n|6zu
6I+pHh0F%sY_Za3a1yXxZF96E0XD=x#P=;${dNr%?Oiq8w0?}5QE)%-{y}qiUUW^+t%g)IRyPe0#3Rqna?Yq~Lo7Wg#h
kY|LvfWxoksQ|A5+&snxoJl`Jq0u9@AP(q+C9@$XC9r${j?l^LxG-wF@3n7RYl5+>|M4)Rh&$&hB>DPTtjev*1-l@R_c
nse@POD&R@*G}}KMFuc(x<oa%EtO@8tB9>uz=LR{wxz%hn2UL|Q(AIF=4XZ;=PN*l<nB6Qy=*kZ26MkbqPKAhzHH~2d6
qK0M;;UU|3uTxEQi3MJRa9zU)gGjHQUf*l*bwn!9SiNOh%ssG)Wq~rxk62eejR@laWKi)2cRKpyhFp*l)=QU)^;sL&6e
etTZ*!TXi~hNM~iml4NYAOb+TBomItox{3gwgpxJ_9b9Sc0e^-uMzu*ZJ(#zLvrMP#A-H{(1G(rheNSmWnJz;I$?#eFr
F4X#k&VzjHi`sae{QPKKr+KFUJb84)S*_1&syaLb8|L)_3t<%7H5QeU_ogNR#6~G5d~AdxhfFG(BltsyxzC`~hNWmqZC
tYKJS;}tfhY%uVH=e_lPKr+Vi*I}ICadp4CkuGp@fOUG>I4uTs6q0dFNgYf)!3$M#pKHCcN>EX&X*;LZ67RwYi1#yBW5
^)`G#f%@0+MNQm8E0`zvHVeAmA*bvqnGx(>P9>136RX)tp)GRg*HV@@9!{4gcyOij*+YTu5f$9yc?HrouMUX4!HZp#A<
Y)rW@UmWg9u~Xax&>SDEOAj$HD7~&&tPWi30;p6Ayj({%S9D#3G%Rg4Gj5{DeMArT?+!lA)O>SPS5d{@lA<^A>&WrjUd
dLu;TWHyutitUMCr!NGiT!CKouAQ6`BeQa8)QY=y*a4<jSZImrjaky`aDZSXvN?tlzPD48fpF%<c6A?cmS>hzAhd;caF
(DHpSh!h|6I4MQ8o9uHs62yZ&qLeH$Hl!?|o2hV(gO<JvwZau~R!N85iV;kX$j1s%xnnsi6R)&N<apB3ixGQ9q1WKPQs
=v3O-#jwXjsdxVw{vt2#-fArED2HMQbQbnGv=P;gFPBr+d&>=_s=r-AZBsHZ!m_Fv55atIR?=#fBiATu}-yBTWOA7Rbt
(xe{R`XM{n{argnhN^VY|MSW~DO%^zV@RYH45E$lg93*GQD~7QM#_0@8$0Xws*Adi_D`{jFk2%cxQZn<qGT~rnRFICj$
rIN#twBB^4Kv02HiL#le;-Q<M=UgOLPqRsxB_Vo{c})YLrn#F)>`J=f}>fnr7FB2bs@HZfi0%wiBpmhvQAtE!-Ek5Syh
T;5eEgFWIFN`P+o!7OjP17{>SDsFYdwhbCU8^8o2CH7WQd`A?GxDh{&3nM7{zI<hAUVtkwQGSiuTeBn3#9fj;X2d>j|&
jh34r`=HxkUtyogSXt6d!2g~a!)UY_B<u8ilsk$DEeS>h<I746&MI*xT0pb-u#n4hSZl&gz_|9<+N>$7wk$k_v?Fqp4B
8a>lq73Olp<=JJxlN1Uy98Wm&HeM<R3f*o58LYBi?7r)>d)RT4<TGF&q|mj&NM9MmULBHwtzs+2uUTM#<TC*!o3uVvWC
$86~$9qNHQK1dhH(w8rw2lDJN(f>XcZ4GGs*5$)hOFG;0!qzDfa8=OJJMnCeq%KrLgF&XV-UucWw-toEi58&d0eOA1Aw
Xl;txXs4Fe9-&Z^|f+8U#6hG-^grRPQ?%Q_q&3bScK<F`rz%K@+SysHH+9w5VjH_=ft!KQ+ZH&^HhQ4VhwcBjO7B?n`7
}<|F!YpaJ`m`kGbL`n@sd*O7Gu{<~k+51)I3($y^LJgqv95r*7L1&WLaP=8u<qjd-3e<~y0}3nUM@daII?a5qqme9+0v
hFl(c@4XFsjRxKgvF@6SgP~^Ccwsb2eTGYm;PeLf=a|XPDJ$<9NQ*pKbA%wz9kntPDBtS{xHBTw$P$sGxDez{i`|Tkka
NxAc2f;R3@vdNyQhrRX$|y?nEWN@U4&;Az2%fpa18axaoKSQvcK*JbyoFy&&VI1G<~f(V#_ELA9;E>cnVQ+SzdsDu^~A
lXM<S3ukjhKY3e{(QD&vZi?L06rv|xO6{qC}MNTDkZE0#&;67uq5*vVO^Cz0rY0A&5Asn)Veol)Q*6FMlN7Pj1t5AtPs
r5vlCgSmqot-a2!Y#F>cI>$V>Bz^Hp}W(${>8j?b}bWki2MPz#~v3B8Q=s#nhl%pgRs^u6g<}A@+H_}An)Wdrxlm@byP
5so7}8Rm}_dqQOIlZ3uIbpSG28->YGQdT)exy+kg#=8V3EeXlg`j<*OT@%av|G7uC8Gwk?!yYo$&$W;Jl)KktoNb*yZd
`*duspkOSFjLT?CbHl(1(H`eGm13WAsg#OYmvz2c)M({cosvu4eX*)Tcqg(moWmWrgbS@yG&xft?v9Xc(K6`5MPnfMP?
pRxb8eira{WA6&JId*_a<nv&&O11@vM9K4A|ybP;zr0M`LX+Tvo1}nx{9E_SK_DqSX}=9ruFfl|AAl_T+Tx^1hX^(u=j
!(sVACy9ce@P8EsA5#e^2w&gZR(w!xf(&ZK7et!(TUY3g!secsOxfPNV$esGpD||hf0?;tq8S87RXMt?og%!!&9`dKyl
sbB7>BQHBZ>$=Y;-&9DD|GSahrc7seFUU;zto?9Wzt96@z;CI21oCg5Qu1UgxfdlJOWLe5shB?E$v90nofiI-a}ZwXjF
Nb(HF9M)4sOr{;eX9VgudZIydji{#-q!OUltSv%MaF!)3pF_)Zz}AKm*Ow=M5Q1ZC)Z%tU>r`7DVaul85_U(ZJ`j>lso
>hU<X<C3*zRcx|~@tEyy@yHJx{e;Jbaa4}PNMzT$0NY)?i|Q_mq9nD~!aw4~YL@-Yh@p&brSCf?o;yv(NOu3r6EWOVNM
x@b5z4(bk?g~-o9I?v{6*$wcXJa{=xq3DPM8m$7XD8P)=l4~F6EePmTGAJMSbvn%_>tO1;S9n3B>T6toGEC=s7&7oN(p
waR%7BG#0YlQ@N2<_R@d#-_?*xdR~1y>myM5>JnUG$4(@^8}9pRzmg?6eaU!yWaZ`;;&GR~KK)eoPx(T1)<5&B$-f@bP
oNEX;-_y6-jZ+0-f}F*axBNkcZgd!yUcgX@$vNB+d?3gI=-DT>V2ixQ%e<o^v9`qwIlIKjDV$UF30=gDU@!mH_LjyC&%
$2ledpJFtW{S4~l&8l>h%b^3^h`n-f^vPz&^-2fMt*_tne20d8$?y(e?2S9*hg#Pzq{?!CPXn&nuI<yem8SdQgbj^$X6
<yem8SdLHLa0ie7133<pcK
"""


_Span = tuple[int, int]  # start and end, as in a slice


class _Run(NamedTuple):
    """Code points in a row that have one kind."""

    start: int
    stop: int
    kind: str


def _runs_of_kinds() -> list[_Run]:
    """Unpack the kinds of all code points, in order."""
    columns = zlib.decompress(base64.b85decode(_KIND_RUNS.replace("\n", "")))
    n = len(columns) // 4
    numbers, *sizes = (columns[at : at + n] for at in range(0, 4 * n, n))
    lengths = (low | middle << 8 | high << 16 for low, middle, high in zip(*sizes))
    borders = itertools.pairwise(itertools.accumulate(lengths, initial=0))
    kinds = " ".join(_KINDS.split()).split(", ")
    return [_Run(*span, kinds[number]) for span, number in zip(borders, numbers)]


def _every_character() -> str:
    """Return all code points, surrogates too, in 5 ms: `map(chr, ...)` takes ten times as long."""
    units = bytearray(4 * 2**16)  # a plane, in UTF-32
    units[0::4] = bytes(range(256)) * 256
    units[1::4] = b"".join(bytes([high]) * 256 for high in range(256))
    planes = []
    for plane in range(17):
        units[2::4] = bytes([plane]) * 2**16
        planes.append(units.decode("utf-32-le", "surrogatepass"))
    return "".join(planes)


def _unlike(kind: str) -> regex.Pattern[str]:
    """Return a pattern that finds characters of any other kind."""
    category, *more = kind.split()
    others = [rf"\P{{{category}}}"]
    if category not in ("Cn", "Co", "Cs"):  # which have no script, and no escape matches
        for script in ("Han", "Hiragana", "Katakana"):
            others.append(rf"\{'P' if script in more else 'p'}{{{script}}}")
        for escape in "wsd":
            others.append("\\" + (escape.upper() if escape in more else escape))
    return regex.compile(f"[{''.join(others)}]++")


class _Unicode:
    """What the installed `regex` takes for another kind of character than the table.

    Attributes:
        changed: the runs of these characters.
        unchanged: the runs of all others, by kind.
        is_newer: whether the table has characters that `regex` doesn't know at all.
    """

    def __init__(self) -> None:
        every, runs = _every_character(), _runs_of_kinds()
        unlike = {kind: _unlike(kind) for kind in {run.kind for run in runs}}
        self.changed: list[_Run] = []
        self.unchanged: dict[str, list[_Span]] = {kind: [] for kind in unlike}
        for start, stop, kind in runs:
            for found in unlike[kind].finditer(every, start, stop):
                first, end = found.span()
                self.changed.append(_Run(first, end, kind))
                if start < first:
                    self.unchanged[kind].append((start, first))
                start = end
            if start < stop:
                self.unchanged[kind].append((start, stop))
        assigned = (run for run in self.changed if run.kind != "Cn")
        unknown = regex.compile(r"\p{Cn}")
        self.is_newer = any(unknown.search(every, run.start, run.stop) for run in assigned)
        low = [run for run in self.changed if run.start <= 0xFFFF]
        members = "".join(rf"\u{start:04x}-\u{stop - 1:04x}" for start, stop, _ in low)
        self._low = re.compile(f"[{members}]") if members else None
        high = (range(run.start, run.stop) for run in self.changed if run.start > 0xFFFF)
        self._high = frozenset(map(chr, itertools.chain(*high)))

    def is_changed(self, text: str) -> bool:
        """Return True if a text contains any of the characters."""
        if text.isascii() or not self.changed:
            return False
        if self._low and self._low.search(text):
            return True
        # `re` tries ranges above U+FFFF one by one, so these are looked up, if there are any: a
        # character above takes two UTF-16 code units, all others one.
        if not self._high or len(text.encode("utf-16-le", "surrogatepass")) == 2 * len(text):
            return False
        return not self._high.isdisjoint(_ABOVE_FFFF.findall(text))

    def can_tell(self, written: str) -> bool:
        """Return whether the kind of a changed character decides whether a class matches it.

        It doesn't decide the script of a letter that `regex` doesn't know, for example.
        """
        if not self.is_newer:
            return True
        if written == "\\X":
            return False
        every = _every_character()
        compiled = regex.compile(f"[{written}]++")
        for kind in {run.kind for run in self.changed}:
            spans = self.unchanged[kind]
            found = (match.span() for at in spans for match in compiled.finditer(every, *at))
            matched = sum(end - start for start, end in found)
            if matched not in (0, sum(stop - start for start, stop in spans)):
                return False
        return True

    @functools.lru_cache(maxsize=64)  # noqa: B019 - there is only one of these objects
    def stand_ins(self, borders: frozenset[int]) -> list[tuple[_Span, str]] | None:
        """Return a stand-in for each run of changed characters, or None if one has none.

        No stand-in is on the other side of a border, which is the first code point behind it.
        """
        found = []
        ordered = sorted({0, *borders, sys.maxunicode + 1})
        for start, stop, kind in self.changed:
            first = start
            while first < stop:
                at = bisect.bisect_right(ordered, first)
                low, high = ordered[at - 1], ordered[at]
                end = min(high, stop)
                point = _nearest(self.unchanged[kind], first, low, high)
                if point is None:
                    return None
                found.append(((first, end), chr(point)))
                first = end
        return found


_ABOVE_FFFF = re.compile("[\U00010000-\U0010ffff]")
_unicode = functools.cache(_Unicode)  # takes 25 ms, once there is text that is not ASCII


def _nearest(spans: list[_Span], point: int, low: int, high: int) -> int | None:
    """Return the code point in spans that is nearest to one in none, of those from low to high.

    The spans are in order, and `point` is one of those from low to high.
    """
    after = bisect.bisect_left(spans, (point,))
    ends = [stop - 1 for _, stop in spans[after - 1 : after] if stop > low]
    ends += [start for start, _ in spans[after : after + 1] if start < high]
    return min(ends, key=lambda at: abs(at - point), default=None)


# Parts of patterns: classes that depend on the version of Unicode; of these, all that the table may
# lack, such as other scripts; characters by name; and what compares characters of the text.
_CLASSES = re.compile(r"\\[pwdsbmhPWDSBMHLNRX]|\[:|\(\?[a-zA-Z-]*i")
_OTHER_CLASSES = re.compile(
    r"\\[pP]\{(?!\^?(?:[CLMNPSZ][a-z]?|Han|Hiragana|Katakana)\})[^}]*\}|\[:[^\]:]*:\]|\\X"
)
_NAMED = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))|([^\0-\x7f])")
_COMPARES = re.compile(r"\\[1-9gN]|\(\?P=")


class _Pattern:
    """A regular expression in which classes are those of `UNICODE_VERSION`.

    Its matches have the right places.  NOTE: their text may contain stand-ins.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.compiled = regex.compile(pattern)
        self._has_classes = _CLASSES.search(pattern) is not None

    def ready(self, text: str) -> tuple[regex.Pattern[str], str]:
        """Return a compiled pattern and a text in which it finds this one's matches in `text`."""
        if text.isascii() or not self._has_classes or not _unicode().is_changed(text):
            return self.compiled, text
        if self._table is None:
            return self._written_out, text
        return self.compiled, text.translate(self._table)

    @functools.cached_property
    def stand_ins(self) -> list[tuple[_Span, str]] | None:
        """The characters that stand for others, by their runs; None if that isn't possible."""
        if not self._has_classes:
            return []
        if _COMPARES.search(self.pattern):
            return None
        if not all(map(_unicode().can_tell, {*_OTHER_CLASSES.findall(self.pattern)})):
            return None
        written = ("".join(found.groups("")) for found in _NAMED.finditer(self.pattern))
        named = {ord(name) if len(name) == 1 else int(name, 16) for name in written}
        borders = frozenset(border for point in named for border in (point, point + 1))
        return _unicode().stand_ins(borders)

    @functools.cached_property
    def _table(self) -> dict[int, str] | None:
        if self.stand_ins is None:
            return None
        return {point: char for span, char in self.stand_ins for point in range(*span)}

    @functools.cached_property
    def _written_out(self) -> regex.Pattern[str]:
        purpose = f"the pattern {_shorten(self.pattern)} with this release of regex"
        found = _tools("patterns.characters", purpose).written_out(self.pattern)
        return regex.compile(found)

    def search(self, text: str) -> regex.Match[str] | None:
        """Find the first match."""
        compiled, text = self.ready(text)
        return compiled.search(text)

    def match(self, text: str) -> regex.Match[str] | None:
        """Find a match at the beginning."""
        compiled, text = self.ready(text)
        return compiled.match(text)

    def fullmatch(self, text: str) -> regex.Match[str] | None:
        """Match all of a text."""
        compiled, text = self.ready(text)
        return compiled.fullmatch(text)

    def finditer(self, text: str, **options: Any) -> Iterator[regex.Match[str]]:
        """Yield all matches."""
        compiled, text = self.ready(text)
        return compiled.finditer(text, **options)

    def last(self, text: str, low: int, high: int) -> int | None:
        """Return the last match of a pattern that only looks, between two places.

        It searches backward, and looks at the characters on both sides of the place.  So a part of
        the text is enough, and the cost depends on how far the place is.
        """
        size = 64
        while low < high:
            start = max(low, high - size)
            found = self.search(text[start:high])
            if found:
                return start + found.start()
            high, size = start + 1 if start > low else start, 2 * size
        return None


_WHITE_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # \s, always


# -- Split patterns -----------------------------------------------------------
_SPELLINGS = {  # in Oniguruma `$` ends a line, and `{1,3}+` is not possessive
    p: p.replace(r"\p{N}{1,3}+", r"(?>\p{N}{1,3})").replace("$", r"\Z").replace("{-~", r"{-\~")
    for p in (*SPLIT_PATTERNS.values(), _UNCUT_PATTERN)
}
_STEPS = {  # as in the model's tokenizer.json: fast loaders compare the exact text
    SPLIT_PATTERNS["deepseek-v3"]: (
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+[\r\n]*" + _END,
    )
}
_KNOWN_SPELLINGS: dict[tuple[str, ...], str] = {(s,): p for p, s in _SPELLINGS.items()}
_KNOWN_SPELLINGS |= {steps: pattern for pattern, steps in _STEPS.items()}
_CUSTOM = "tokenizer.json with a split pattern that is not in SPLIT_PATTERNS"

# A safe cut for all of them: no match looks across it, and one begins there.  (?r) finds the last.
_SAFE_CUT = r"(?r)(?<=[\p{L}\p{N}])(?=[\s\p{P}\p{S}])(?!')"
_FAST_AFTER = 100_000  # characters; building the `re` form takes about 0.1 s
_LEAST_SECONDS = 10.0  # for patterns that strangers may have written, plus 10 us per character
_TOO_SLOW = "split pattern {} takes too long for {:,} characters; make its repeats possessive: a++"


def _to_oniguruma(pattern: str) -> str:
    """Spell a `regex` pattern as Oniguruma (Ruby syntax) understands it."""
    known = _SPELLINGS.get(pattern)
    return known or cast("str", _tools("patterns.oniguruma", _CUSTOM).to_oniguruma(pattern))


def _is_slow(pattern: str) -> bool:
    """Return True if `regex` may take long to prepare a long pattern, and can't be stopped."""
    return _SLOW_PATTERN.search(_IN_LITERALS.sub("", _LONG_SET.sub(".", pattern))) is not None


class _Splitter:
    """A split pattern, compiled: cuts text into pre-tokens.

    Every character lands in exactly one pre-token: text between matches is a
    pre-token of its own, and empty matches only mark a border.
    """

    def __init__(self, pattern: str) -> None:
        counts = re.findall(r"(\)?)\{(?:\d*,)?0*(\d{1,9})\d*,?\}", pattern)  # groups multiply
        single = max((int(n) for group, n in counts if not group), default=1)
        repeats = single * math.prod(int(n) or 1 for group, n in counts if group)
        longest = 1_000 if _is_slow(pattern) else _MAX_PATTERN_LENGTH
        if len(pattern) > longest or repeats > 100_000:
            size = f"{len(pattern):,} characters, repeating {repeats:,} times"
            raise ValueError(f"split pattern of {size}: longer, or more, than any in use")
        try:
            self._exact = _Pattern(pattern)
        except (regex.error, RecursionError, OverflowError) as error:
            problem = f"split pattern {_shorten(pattern)} is not a regular expression"
            raise ValueError(f"{problem}: {error}") from None
        if self._exact.compiled.flags & regex.REVERSE:
            raise ValueError(f"split pattern {_shorten(pattern)} searches backwards; drop (?r)")
        self.pattern, self._until_fast = pattern, _FAST_AFTER
        self._fast: Callable[[str], list[str] | None] | None = None
        self._is_named = pattern in SPLIT_PATTERNS.values()
        self._never_empty, cut = self._is_named, _SAFE_CUT if self._is_named else None
        if _WITH_TOOLS and not self._is_named:
            with contextlib.suppress(RecursionError):  # it is nested too deeply to take apart
                self._never_empty, cut = _tools("patterns.safe_cuts").analyze(pattern)
        self.cut = _Pattern(cut) if cut else None

    def split(self, text: str) -> list[str]:
        """Cut text into pre-tokens; joined, they are the text."""
        if self._until_fast > 0:  # a race between threads costs nothing but time
            self._until_fast -= len(text)
            if _WITH_TOOLS and self._until_fast <= 0 and self._never_empty:
                self._fast = _tools("patterns.re_dialect").finder_in_use(self.pattern)
        pretokens = self._fast(text) if self._fast else None
        seconds = None if self._is_named else _LEAST_SECONDS + len(text) / 100_000
        try:
            if pretokens is None and self._never_empty:
                compiled, known = self._exact.ready(text)
                if known is text and not compiled.groups:
                    pretokens = compiled.findall(text, timeout=seconds)
            if pretokens is None or len("".join(pretokens)) != len(text):
                pretokens = list(filter(None, self._split_with_gaps(text, seconds)))
        except TimeoutError:
            raise ValueError(_TOO_SLOW.format(_shorten(self.pattern), len(text))) from None
        return pretokens

    def last_cut(self, text: str, before: int) -> int | None:
        """Return the last place before `before` where each side can be split by itself."""
        return self.cut.last(text, 0, before) if self.cut else None

    def _split_with_gaps(self, text: str, seconds: float | None) -> Iterator[str]:
        end = 0
        for found in self._exact.finditer(text, timeout=seconds):
            yield text[end : found.start()]
            yield text[found.start() : found.end()]
            end = found.end()
        yield text[end:]


_splitter = functools.lru_cache(maxsize=64)(_Splitter)


# -- Normalization ------------------------------------------------------------
_NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD")

# Python's `unicodedata` follows newer versions of Unicode than `NORMALIZATION_VERSION`.
# A character never changes the properties it once has, so only younger characters matter:
# they stay as they are, and the text on each side of one is normalized by itself.
#
# The numbers are lengths of runs, in hexadecimal, from U+0000 on: first one to normalize,
# then one to leave alone, and so on.  To leave alone: the characters that newer versions
# normalize, up to 18.0, and those that even 18.0 doesn't assign, since a later one may.  Where
# it makes the list shorter, such a run includes rare characters that no version changes.
# So the list stays right as Unicode grows (tests/module/test_normal_forms.py).
_YOUNGER = """
    378 2 6 4 7 1 1 1 14 1 18d 1 26 2 32 6 37 8 1b 4 6 b 10e 1 3c 2 65 e 3b 3 30 2 f 1 1c 44
    2a a b0 f 16 1 7 b 9 2 2 2 4 8 1 4 2 1 5 2 18 15 16 1 7 1 2 1 2 1 2 2 1 e 3 b 4 1 1 7 11
    1c 16 13 a 5 3 18 c 21 16 13 9 2 2 2 3 5 5 4 2 8 12 1a 4 18 c 4 5 3 3 1 4 9 1 e 15 5 d 5
    17 1 10 c 3 1 4 7 2 20 16 5 17 13 9 1 3 1 4 7 2 3b 29 2 8 1 3 1 6 4 10 2 1a 5 12 3 18 18
    1 4 6 3 8 21 3a 4 1d 30 18 3 13 e 7 d 4 20 48 1 24 4 27 1 24 1 f 1 d 25 c6 a 179 17 29 7
    21 17 f 1 39 7 43 2 20 3 1a 6 56 a 29d 3 59 7 15 a 18 9 14 c d 13 5e 22 1a 6 59 7 2b 5
    46 a 1f 1 c 4 c 8 2a 12 2c 4 1a 14 3e 2 41 1 1d 2 b 16 e 2 f 41 4d 1 a6 8 3c 3 f 3 3e 45
    2b 5 f6 5 11b 2 6 2 26 2 6 2 8 1 1 1 1 1 1 1 1f 2 35 1 f 1 e 2 6 1 13 2 3 1 9 1 65 1 c 2
    29 3 25 b 21 f 8c 4 29a 36 714 2 17e 5 2d a 38 7 2 e 18 49 7e 22 1a 1 59 c d6 1a 50 1 56
    2 67 5 2b 1 5e 1 56 9 30 1 df 1 718d 3 37 9 15c 14 b8 8 de 17 37 14 38 8 46 8 c 6 74 b
    1e 3 4e 10 21 1 37 9 e e 67 18 1c 39 39 7 7e 12 2ba4 c 17 4 31 4 226e 2 6a 26 7 c 5 5 1a
    1 5 1 1 1 2 1 2 1 2d4 6 33 1 13 1 4 4 5 1 87 4 be 3 6 2 6 2 6 2 3 3 7 1 7 1e1 2e e2 1c
    54 2b 691 8 24 3 4 a 77 27 519 4e 31 44 3d 35 1b 27 9 60 33 2f 6e 3b 51 9 2 2 2 3 9 1 e
    7 3 5 8b 5c 24 48 b8 36 2 26 22 45 3b 3a 63 f 50c e 4eaa 6 a 46 5156 8 1485 11d 1ba 55 1
    47 1 2 2 1 2 2 2 4 1 c 1 1 1 7 1 41 1 4 2 8 1 7 1 1c 1 4 1 5 1 1 3 7 1 154 2 124 2 2be
    574 7 1 11 2 7 1 2 1 5 89c 10 29 4c 4b4 4 1 1b 1 2 1 1 2 1 1 a 1 4 1 1 1 1 6 1 4 1 1 1 1
    1 1 3 1 2 1 1 2 1 1 1 1 1 1 1 1 1 1 2 1 1 2 4 1 7 1 4 1 4 1 1 1 a 1 11 5 3 1 5 1 11 144
    2c 4 64 3d 25 a 6c 1 42 37 1d d 2c 4 9 7 2 ae 3da 26 dc 34 38 18 28 8 1e 52 158 fda8 21e
    c05e0
"""


@functools.cache
def _younger() -> re.Pattern[str]:
    """Compile a pattern, with a group, of a character to leave alone."""
    borders = [*itertools.accumulate(int(length, 16) for length in _YOUNGER.split())]
    runs = [(start, end - 1) for start, end in zip(borders[::2], borders[1::2])]
    members = "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in runs)
    # `re` tries ranges above U+FFFF one by one, so most characters meet a set with one.
    below = [(first, min(last, 0xFFFF)) for first, last in runs if first <= 0xFFFF]
    most = "".join(rf"\u{first:04x}-\u{last:04x}" for first, last in below)
    return re.compile(rf"([{most}\U00010000-\U0010ffff](?<=[{members}]))")


def _normalize(text: str, form: str | None) -> str:
    """Normalize text as Unicode 9.0 does."""
    # What is normal in a newer version of Unicode is so in each older one.
    if form is None or text.isascii() or unicodedata.is_normalized(cast("Any", form), text):
        return text
    parts = _younger().split(text)  # every other one is a younger character
    parts[::2] = [_normalize_known(part, form) for part in parts[::2]]
    return "".join(parts)


def _normalize_known(text: str, form: str) -> str:
    """Normalize text without younger characters."""
    return unicodedata.normalize(cast("Any", form), _order_long_marks(text, form))


_LONG_MARKS = 128  # characters; `unicodedata` takes quadratic time to put so many in order


def _order_long_marks(text: str, form: str) -> str:
    """Decompose long runs of marks, and put them into canonical order."""
    decomposed: Any = "NFKD" if "K" in form else "NFD"
    # These have no class of their own, but fall apart into marks.
    more_marks = "\u0f73\u0f75\u0f81\uff9e\uff9f" if "K" in form else "\u0f73\u0f75\u0f81"

    def is_mark(char: str) -> bool:
        return unicodedata.combining(char) > 0 or char in more_marks

    parts: list[str] = []
    done = 0
    for at in range(_LONG_MARKS - 1, len(text), _LONG_MARKS):  # one is in each long run
        if at < done or not is_mark(text[at]):
            continue
        start, end = at, at + 1
        while start > done and is_mark(text[start - 1]):
            start -= 1
        while end < len(text) and is_mark(text[end]):
            end += 1
        if end - start >= _LONG_MARKS:
            marks = "".join(unicodedata.normalize(decomposed, mark) for mark in text[start:end])
            parts += text[done:start], *sorted(marks, key=unicodedata.combining)
            done = end
    return "".join(parts) + text[done:]


# Text can be cut before any of these, and each side normalized by itself: no form joins them
# to the text before or reorders them.  Not here: marks, and last parts of Hangul and kana.
# Each `regex` has the marks of 9.0; where it has more, text is only cut less often.
_APART: regex.Pattern[str] = regex.compile(r"(?r)[^\p{M}\u1160-\u11ff\u3130-\u318f\uff9e-\uffdc]")


# -- Added tokens -------------------------------------------------------------
@dataclass(frozen=True)
class AddedToken:
    """A token that is matched in the text before the text is cut into pre-tokens.

    Source: the flags of HuggingFace tokenizers' AddedToken.
    """

    content: str
    id: int | None = None  # None until a tokenizer has given it one
    single_word: bool = False  # match only where no word character touches it
    lstrip: bool = False  # also match the white space before it
    rstrip: bool = False  # also match the white space after it
    normalized: bool = False  # look for it in normalized text, not in the text as given
    special: bool = True  # recognized only where the caller allows it; others always are


_WORD = _Pattern(r"\w")
_SPACE = re.compile(f"[{_WHITE_SPACE}]")
_SPACE_BEFORE = regex.compile(f"(?r)[{_WHITE_SPACE}]*")
_SPACE_AFTER = re.compile(f"[{_WHITE_SPACE}]*")

_Match = tuple[int, int, AddedToken | None, int]
_Part = tuple[str | AddedToken, int, int]  # and its place, where nothing is normalized


def _one_of(contents: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the strings, the longest first."""
    return re.compile("|".join(map(re.escape, sorted(contents, key=len, reverse=True))) or "(?!)")


def _spans_of(contents: Iterable[str]) -> Callable[[str, int, int], Iterable[_Span]]:
    """Return a function that finds these strings between two places in a text."""
    pattern = _one_of(contents)
    return lambda text, at, stop: (found.span() for found in pattern.finditer(text, at, stop))


class _TokenFinder:
    """Finds added tokens in text: the leftmost match, and the longest one there."""

    def __init__(self, tokens: Iterable[AddedToken], normalize: Callable[[str], str] = str) -> None:
        self.tokens = {normalize(token.content): token for token in tokens}
        self._spans = _engine.spans_of(self.tokens)
        self._pairs = {a + b for text in self.tokens for a, b in itertools.pairwise(text)}
        words = [text for text, token in self.tokens.items() if token.single_word]
        self._first, self._last = {text[0] for text in words}, {text[-1] for text in words}
        self._strips = any(token.lstrip or token.rstrip for token in self.tokens.values())

    def find(
        self, text: str, start: int = 0, search_from: int | None = None, stop: int = sys.maxsize
    ) -> Iterator[_Match]:
        """Yield (begin, end, token, next) for each match: leftmost first, then longest.

        With `lstrip` and `rstrip`, a match includes the white space around the token; the
        next match may begin inside it, so the search goes on at `next`.  A rejected match has
        the token None, and no other token is searched inside it: it is part of a word, which
        stays ordinary text, or white space that the match before it includes.

        Text before `start` is already used, and text after `stop` is only context.  The search
        begins at `search_from`, or at `start`.
        """
        search_from = start if search_from is None else search_from
        for begin, end in self._spans(text, search_from, stop) if self.tokens else ():
            token, at = self.tokens[text[begin:end]], end
            around = text[max(0, begin - 1) : begin], text[end : end + 1]
            if token.single_word and any(map(_WORD.match, around)):
                yield begin, end, None, at
                continue
            if token.lstrip:
                found = _SPACE_BEFORE.match(text, start, max(start, begin))
                begin = found.start()  # type: ignore[union-attr]
            if token.rstrip:
                end = _SPACE_AFTER.match(text, end).end()  # type: ignore[union-attr]
            start = end if begin < end else start
            yield begin, end, token if begin < end else None, at

    def cut(self, text: str) -> Iterator[str | AddedToken]:
        """Cut a whole text at the tokens in it."""
        for begin, end, token in _text_between(self.find(text), len(text)):
            yield token or text[begin:end]

    def stream(self, pieces: Iterable[str | AddedToken]) -> Iterator[str | AddedToken]:
        """Cut text that arrives in chunks; tokens among them were found earlier."""
        return _hold_back(pieces, self.last_border, self.cut)

    def last_border(self, before: str, chunk: str) -> int | None:
        """Return the last place in a chunk where each side can be searched by itself."""
        if not self.tokens:
            return len(chunk)
        text, n = before + chunk, len(before)
        return next((i - n for i in range(len(text) - 1, 0, -1) if self.apart(text, i)), None)

    def apart(self, text: str, at: int) -> bool:
        """Return True if no token can span a place in a text, or depend on both sides."""
        left, right = text[at - 1], text[at]
        return not (
            left + right in self._pairs
            or (left in self._last or right in self._first)
            or (self._strips and _SPACE.search(text, at - 1, at + 1))
        )


def _check_text(text: object, name: str = "text") -> None:
    if not isinstance(text, str):
        hint = "; encode_batch takes a list of them" if name == "text" else ""
        raise TypeError(f"{name} must be a str, got {type(text).__name__}{hint}")


def _utf8_length(text: str) -> int:
    """Return the length in bytes; an error names the place of a lone surrogate."""
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {type(text).__name__}")
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        at = error.start
    what, errors = f"the lone surrogate U+{ord(text[at]):04X}", ", 'replace'"
    if text[at] < "\udc00" <= text[at + 1 : at + 2] <= "\udfff":
        what, errors = f"the surrogate pair {text[at : at + 2]!a}, as in UTF-16,", ""
    remedy = f"text.encode('utf-16', 'surrogatepass').decode('utf-16'{errors})"
    problem = f"text contains {what} at character {at}, which has no UTF-8 form"
    raise ValueError(f"{problem}; fix it, for example with {remedy}")


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def _hold_back(
    pieces: Iterable[str | AddedToken],
    last_border: Callable[[str, str], int | None],
    prepare: Callable[[str], Iterable[str | AddedToken]],
) -> Iterator[str | AddedToken]:
    """Join chunks of text, and yield, prepared, the part that no later text can change.

    `last_border` takes the character before a chunk and the chunk.  It returns the last place
    in the chunk where the text can be cut, or None.  A token also ends the text before it.
    """
    held: list[str] = []
    before = ""
    for piece in itertools.chain(pieces, [None]):
        token, rest = None, ""
        if isinstance(piece, str):
            at = last_border(before, piece)
            before = piece[-1:] or before
            held.append(piece[:at])  # all of it, if there is no border
            if at is None:
                continue
            rest = piece[at:]
        else:
            token, before = piece, ""
        ready, held = "".join(held), [rest]
        if ready:
            yield from prepare(ready)
        if token:
            yield token


def _text_between(
    matches: Iterable[_Match], end: int
) -> Iterator[tuple[int, int, AddedToken | None]]:
    """Yield (begin, end, token) for each match, in order; token None for the text between."""
    done = 0
    for begin, stop, token, _ in matches:
        if token:
            if done < begin:
                yield done, begin, None
            yield begin, stop, token
            done = stop
    if done < end:
        yield done, end, None


# -- Where characters come from ----------------------------------------------
_SpanRun = tuple[int, int, int, int]  # length, start and end of the first, and whether it is copied


class _Spans(Sequence[_Span]):
    """The (start, end) that each character of a text comes from in another.

    They are stored as runs.  In a copied run, each character comes from right after the one before;
    in other runs, all come from the same place.  Unchanged text is one run.

    >>> spans = _Spans.joined([[(0, 1)] * 2, _Spans.whole(3)])
    >>> spans
    [(0, 1), (0, 1), (0, 1), (1, 2), (2, 3)]
    >>> spans[3:], spans.runs
    ([(1, 2), (2, 3)], [(2, 0, 1, 0), (3, 0, 1, 1)])
    """

    __slots__ = ("_ends", "runs")

    def __init__(self, runs: list[_SpanRun]) -> None:
        self.runs = runs
        self._ends = [*itertools.accumulate(length for length, *_ in runs)]

    @classmethod
    def whole(cls, length: int, start: int = 0) -> _Spans:
        """Return the spans of unchanged text, from a place on."""
        return cls([(length, start, start + 1, 1)])

    @classmethod
    def joined(cls, parts: Iterable[Iterable[_Span]]) -> _Spans:
        """Return the spans of joined texts."""
        runs: list[_SpanRun] = []
        for part in parts:
            new = part.runs if isinstance(part, _Spans) else [(1, *span, 0) for span in part]
            for run in new:
                if runs and (longer := _joined_runs(runs[-1], run)):
                    runs[-1] = longer
                else:
                    runs.append(run)
        return cls(runs)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, at: int) -> _Span: ...
    @overload
    def __getitem__(self, at: slice) -> _Spans: ...
    def __getitem__(self, at: int | slice) -> _Span | _Spans:
        if isinstance(at, int):
            place = range(len(self))[at]
            i = bisect.bisect_right(self._ends, place)
            length, start, end, copied = self.runs[i]
            by = (place - self._ends[i] + length) * copied
            return start + by, end + by
        start, end, _ = at.indices(len(self))
        return _Spans([*self._between(start, end)])

    def _between(self, start: int, end: int) -> Iterator[_SpanRun]:
        """Yield the runs between two places, cut there."""
        i = bisect.bisect_right(self._ends, start)
        while start < end:
            length, first, behind, copied = self.runs[i]
            by = (start - self._ends[i] + length) * copied
            until = min(end, self._ends[i])
            yield until - start, first + by, behind + by, copied
            i, start = i + 1, until

    def __iter__(self) -> Iterator[_Span]:
        for length, start, end, copied in self.runs:
            if copied:
                yield from zip(range(start, start + length), range(end, end + length))
            else:
                yield from itertools.repeat((start, end), length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr([*self])

    def moved(self, by: int) -> _Spans:
        """Return these spans in a text that begins earlier."""
        return _Spans([(n, start + by, end + by, copied) for n, start, end, copied in self.runs])

    def repeated(self, counts: Iterable[int]) -> _Spans:
        """Return the spans of a text with n characters for each one of these."""
        return _Spans.joined([span] * count for span, count in zip(self, counts))

    def within(self, spans: _Spans) -> _Spans:
        """Return these spans, of a text made from another, as spans of what that was made from.

        `spans` are those of the text between.
        """
        parts: list[Iterable[_Span]] = []
        for run in self.runs:
            length, start, end, copied = run
            if copied and end == start + 1:
                parts.append(spans[start : start + length])
            else:
                parts.append([(spans[a][0], spans[b - 1][1]) for a, b in _Spans([run])])
        return _Spans.joined(parts)

    def flat(self) -> array.array[int]:
        """Return the runs as the engine in C takes them: four numbers each."""
        return array.array("i", itertools.chain.from_iterable(self.runs))

    def of_tokens(
        self, encoder: _Encoder, text: str, ids: list[int], trimming: int = 0
    ) -> list[_Span]:
        """Return the spans of the text's tokens; only the engine in C can trim them."""
        by_runs = getattr(encoder, "places_by_runs", None)
        if by_runs:
            return cast("list[_Span]", by_runs(text, ids, self.flat(), trimming))
        spans = [*self]
        return [(spans[a][0], spans[b - 1][1]) for a, b in encoder.places(text, ids)]


def _joined_runs(one: _SpanRun, two: _SpanRun) -> _SpanRun | None:
    """Return two neighboring runs as one, if they fit together."""
    length, start, end, copied = one
    more, next_start, next_end, as_copied = two
    if (start, end) == (next_start, next_end) and (not copied or length == 1):
        return (length + more, start, end, 0) if more == 1 or not as_copied else None
    follows = (start + length, end + length) == (next_start, next_end)
    if follows and (copied or length == 1) and (as_copied or more == 1):
        return length + more, start, end, 1
    return None


class _Pipeline:
    """Prepares text to be cut into pre-tokens.

    It finds added tokens in the text as given, normalizes the text between them, and finds tokens
    with ``normalized=True`` in that.  On request, it puts a space before text that has none.
    """

    def __init__(
        self,
        splitter: _Splitter,
        normalizer: str | None,
        prefix_space: bool = False,
        tokens: Iterable[AddedToken] = (),
    ) -> None:
        self.tokens = tokens = list(tokens)
        self.splitter, self.normalizer, self.prefix_space = splitter, normalizer, prefix_space
        self.normalizes = normalizer is not None
        self.raw = _TokenFinder(token for token in tokens if not token.normalized)
        normalized = (token for token in tokens if token.normalized)
        self.normalized = _TokenFinder(normalized, self.normalize)

    def normalize(self, text: str) -> str:
        """Normalize all of the text between two raw tokens."""
        return _engine.normalize(text, self.normalizer)

    def align(self, text: str) -> tuple[str, _Spans]:
        """Normalize a text, with the span of each character."""
        normalized = self.normalize(text)
        if normalized == text:
            return text, _Spans.whole(len(text))
        tools = _tools("support.offsets", "offsets of text that a normal form changes")
        return normalized, tools.align(text, self.normalizer)

    def last_border(self, before: str, chunk: str) -> int | None:
        """Return the last place in a chunk where each side can be normalized by itself."""
        found = _APART.search(chunk) if self.normalizer else None
        return found.start() if found else None if self.normalizer else len(chunk)

    def prefixed(self, text: str, first: bool) -> str:
        """Put a space before text that has none, if set; `first`: the text begins the whole."""
        return " " + text if self.prefix_space and text[:1] != " " else text

    def parts(
        self, text: str, matches: Iterable[_Match] | None = None, first: bool = True
    ) -> Iterator[_Part]:
        """Yield the added tokens in a text, and the normalized text between them.

        `matches` are the raw tokens, if known; `first`: the text begins the whole.
        """
        matches = self.raw.find(text) if matches is None else matches
        for start, end, token in _text_between(matches, len(text)):
            if token:
                yield token, start, end
                continue
            whole = self.normalize(text[start:end])
            for begin, stop, token in _text_between(self.normalized.find(whole), len(whole)):
                part = token or self.prefixed(whole[begin:stop], first and start == begin == 0)
                yield part, start + begin, start + stop

    def _last_cut(self, before: str, chunk: str) -> int | None:
        """Return the last place in a chunk where it can be split, outside of tokens."""
        text = before + chunk
        at = self.splitter.last_cut(text, len(text))
        while at and not self.normalized.apart(text, at):
            at = self.splitter.last_cut(text, at)
        return at - len(before) if at else None

    def stream(self, chunks: Iterable[str]) -> Iterator[str | AddedToken]:
        """Prepare text that arrives in chunks; yield added tokens, and text ready to split."""
        pieces: Any = (chunk for chunk in chunks if _utf8_length(chunk))  # checks it
        pieces = self.raw.stream(pieces)
        if self.normalizes:
            pieces = _hold_back(pieces, self.last_border, lambda text: [self.normalize(text)])
        first = begins = True  # `begins`: also the text right after a token
        for piece in _hold_back(pieces, self._last_cut, self.normalized.cut):
            yield self.prefixed(piece, first) if begins and isinstance(piece, str) else piece
            first, begins = False, isinstance(piece, AddedToken)


# == 4. Training ==============================================================
# Training counts each distinct pre-token once, then learns merges from the
# counts: it joins the most frequent pair of neighboring tokens everywhere, and
# repeats this until the vocabulary is full.  For the counts {"ab": 5, "abc": 3, "bc": 1}
#     a b ×5    a b c ×3    b c ×1        pair counts: ab 8, bc 4
#     AB ×5     AB c ×3     b c ×1        AB = a+b;    ABc 3, bc 1
#     AB ×5     ABC ×3      b c ×1        ABC = AB+c;  bc 1
# A merge changes few pair counts: an index from each pair to the words that contain it finds them.
# Counts in the heap of pairs may be out of date, so each is checked when it comes up.
#
# Ties go to the pair that sorts first, base bytes by printable character and merged tokens by age:
# the order of HuggingFace's BpeTrainer, whose merges these are (tests/module/test_train.py).


# -- Files: untrusted when read, written whole or not at all -------------------
_JOURNAL = ".bpe-tokenizer.saving"  # left by an interrupted save of several files


def _write_flushed(path: Path, content: str | bytes) -> None:
    with open(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def _write_files(contents: Mapping[Path, str | bytes | None]) -> None:
    """Write files, text as UTF-8; None removes one.  A crash leaves each file whole, old or new.

    Every new file is complete on disk before the first old one is replaced.
    """
    beside = {path: path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp") for path in contents}
    try:
        for path, content in contents.items():
            if path.is_dir():
                raise IsADirectoryError(f"{path}: is a directory; expected a file to write")
            if content is not None:
                _write_flushed(beside[path], content)
        for path, content in contents.items():
            if content is None:
                path.unlink(missing_ok=True)
            else:
                os.replace(beside[path], path)
    finally:
        for path in beside.values():
            with contextlib.suppress(OSError):
                path.unlink()


def _read_file(path: Path, limit: int = _MAX_FILE_BYTES) -> bytes | None:
    """Read a file, unless it is too large; return None if it doesn't exist."""
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise FileFormatError(path, "", "is not a regular file")
        if found.st_size > limit:
            raise FileFormatError(path, "", f"{found.st_size:,} bytes; the limit is {limit:,}")
        return path.read_bytes()
    return None


def _transactions(folder: Path) -> Any:
    """Return what reads and saves the files of a directory all at once; alone, one by one."""
    if _WITH_TOOLS or (folder / _JOURNAL).exists():
        purpose = f"{folder / _JOURNAL}, left by a save that was interrupted,"
        return _tools("support.transactions", purpose)
    return argparse.Namespace(
        read_files=lambda paths: {p: raw for p in paths if (raw := _read_file(p)) is not None},
        save_files=_write_files,
    )


_REQUIRED: Any = object()


class _JsonReader:
    """An object in an untrusted JSON file: typed access, errors with a place."""

    def __init__(self, data: dict[str, Any], path: Path, field: str = "") -> None:
        self.data, self.path, self.field = data, path, field

    @classmethod
    def open(cls, path: Path, raw: bytes | None = None) -> _JsonReader:
        """Read a file whose outermost value is an object; `raw` is its content, if known."""
        if raw is None and (raw := _read_file(path)) is None:
            raise FileNotFoundError(f"{path}: no such file")
        try:
            data = json.loads(raw.decode())
        except (ValueError, RecursionError) as error:
            raise FileFormatError(path, "", f"not JSON: {error}") from None
        if not isinstance(data, dict):
            raise FileFormatError(path, "", f"expected a JSON object, got {_shorten(data)}")
        return cls(data, path)

    def error(self, problem: str, key: str = "") -> FileFormatError:
        """Make the error for a problem with one of this object's fields."""
        return FileFormatError(self.path, f"{self.field}.{key}".strip("."), problem)

    def get(self, key: str, *kinds: type | None, default: Any = _REQUIRED) -> Any:
        """Return a field, which has one of the types (None: null), or its default."""
        value = self.data.get(key, default)
        if value is _REQUIRED:
            raise self.error("is missing", key)
        if value is default or type(value) in kinds or (value is None and None in kinds):
            return value
        expected = " or ".join(kind.__name__ if kind else "null" for kind in kinds)
        raise self.error(f"expected {expected}, got {_shorten(value)}", key)

    def child(self, key: str) -> _JsonReader | None:
        """Return the object in a field, or None if it is null or missing."""
        data = self.get(key, dict, None, default=None)
        return None if data is None else self.at(key, data)

    def children(self, key: str) -> list[_JsonReader]:
        """Return the objects in a field that is a list of objects."""
        items = self.get(key, list, None, default=None) or []
        return [self.at(f"{key}[{i}]", data) for i, data in enumerate(items)]

    def at(self, key: str, data: Any) -> _JsonReader:
        """Return an object in a field; raise if it is anything else."""
        if type(data) is not dict:
            raise self.error(f"expected an object, got {_shorten(data)}", key)
        return _JsonReader(data, self.path, f"{self.field}.{key}".strip("."))


# -- Reading a corpus ---------------------------------------------------------
class _Document(NamedTuple):  # one that arrives in chunks, such as standard input
    chunks: Iterable[str]


_LIKE_A_PATH = re.compile(
    r"(?:[^\n\r\0]*[/\\])?[^\s/\\]*\.(?:txt|jsonl?|parquet|gz|bz2|xz|zst|csv|md|py)"
    r"|(?:~|\.{0,2})/[^ \n\r\0]*"
)
_LONGEST_PATH = 4096


def _names_file(item: object) -> bool:
    """Return True for a path, and for a string if there is a file or directory of that name."""
    if isinstance(item, str):
        return len(item) <= _LONGEST_PATH and "\n" not in item and os.path.exists(item)
    return isinstance(item, os.PathLike)


def _documents(corpus: Any, text_field: str) -> Iterator[Iterable[str]]:
    """Yield the documents of a corpus, each as chunks of text; see `count_pretokens`."""
    if isinstance(corpus, _Document):
        yield corpus.chunks
        return
    texts = isinstance(corpus, (str, os.PathLike, Iterable))
    if not texts or isinstance(corpus, (bytes, bytearray, Mapping)):
        remedy = "; pass it as train(counts=...)" if isinstance(corpus, Mapping) else ""
        got = f"{type(corpus).__name__}{remedy}"
        raise TypeError(f"corpus must be text, a path or an iterable of them, got {got}")
    items = (corpus,) if isinstance(corpus, (str, os.PathLike)) else corpus
    paths = isinstance(items, (list, tuple)) and all(map(_names_file, items))
    for item in items:
        if paths or isinstance(item, os.PathLike):
            yield from _file_documents(Path(item), text_field)
            continue
        if not isinstance(item, str):
            kind = type(item).__name__
            raise TypeError(f"a corpus contains strings or paths, got an item of type {kind}")
        if len(item) <= _LONGEST_PATH and _LIKE_A_PATH.fullmatch(item):
            why = "not every string names a file; pass a pathlib.Path for a path"
            _warn(f"corpus {_shorten(item)} looks like a path but is read as text: {why}")
        yield [item]


def _file_documents(path: Path, text_field: str) -> Iterator[Iterable[str]]:
    """Yield the documents of a file, or of all files below a directory, sorted."""
    if path.is_dir():
        files = (file for file in path.rglob("*") if file.is_file())
        found = sorted(f for f in files if "/." not in f"/{f.relative_to(path).as_posix()}")
        if not found:
            raise ValueError(f"the corpus is empty: expected files in the directory {path}")
        if _WITH_TOOLS:  # alone, this file takes all of them for text
            found = _tools("corpus.directories").only_text(found, path)
        for file in found:
            yield from _file_documents(file, text_field)
    elif not path.exists():
        raise FileNotFoundError(f"{path}: no such file or directory")
    elif _suffix_of(path) == ".parquet":
        records = _tools("corpus.records", "reading .parquet files")
        yield from records.parquet_documents(path, text_field)
    elif _suffix_of(path) == ".jsonl":
        yield from _json_lines(path, text_field)
    else:
        yield _TextFile(path)


_FileName = str | os.PathLike[str]
_Corpus = _FileName | Iterable[_FileName] | _Document
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma", ".zst": "backports.zstd"}


def _suffix_of(name: _FileName) -> str:
    """Return the ending of a file's format, without the one of its compression."""
    path = Path(name)
    return (path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path).suffix.lower()


def _codec(suffix: str) -> Any:
    """Return the module that reads compressed files with an ending."""
    if suffix == ".zst":
        with contextlib.suppress(ImportError):  # comes with Python 3.14
            return importlib.import_module("compression.zstd")
    return _import_optional(_COMPRESSED[suffix], f"reading {suffix} files", _COMPRESSED[suffix])


@contextlib.contextmanager
def _decompressed(name: _FileName, file: IO[bytes] | None = None) -> Iterator[IO[bytes]]:
    """Open a file, or use an open one; errors in compressed data name the file."""
    suffix = os.path.splitext(name)[1]
    try:
        with contextlib.ExitStack() as stack:
            if file is None:
                file = stack.enter_context(open(name, "rb"))
            if Path(name).is_char_device() and file.seekable() and cast("Any", file).peek(1):
                raise FileFormatError(name, "", "is a device that never ends; expected a file")
            if suffix.lower() in _COMPRESSED:
                file = stack.enter_context(_codec(suffix.lower()).open(file, "rb"))
            yield file
    except Exception as error:
        # gzip and bz2 raise an OSError without a number, or let zlib's "error" through.
        damaged = isinstance(error, OSError) and error.errno is None
        if damaged or type(error).__name__ in ("EOFError", "LZMAError", "ZstdError", "error"):
            raise FileFormatError(name, "", f"damaged {suffix} file: {error}") from None
        raise


def _json_lines(path: Path, text_field: str) -> Iterator[list[str]]:
    """Yield the text of each line's record."""
    with _decompressed(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield [_text_on(line, text_field, path, number)]


def _text_on(line: bytes, text_field: str, path: _FileName, number: int) -> str:
    """Return the text of the record on a line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, f"line {number}", f"not JSON: {error}") from None
    return _text_of(record, text_field, path, f"line {number}")


def _text_of(record: Any, text_field: str, path: _FileName, place: str) -> str:
    """Return the text of a record: a field of an object, or the record itself."""
    text = record.get(text_field) if isinstance(record, dict) else record
    if isinstance(text, str):
        try:
            _utf8_length(text)
            return text
        except ValueError as error:
            raise FileFormatError(path, place, str(error)) from None
    got = sorted(record) if isinstance(record, dict) and text_field not in record else text
    remedy = "leave out records without text, or name the field with text_field (--text-field)"
    problem = f"expected text in the field {text_field!r}, got {_shorten(got)}; {remedy}"
    raise FileFormatError(path, place, problem)


@dataclass(frozen=True)
class _TextFile:
    """A text file, read as it is: line ends are not translated."""

    path: Path

    def __iter__(self) -> Iterator[str]:
        return _decode_chunks(self.blocks(_BLOCK_CHARS), self.path)

    def blocks(self, size: int) -> Iterator[bytes]:
        with _decompressed(self.path) as file:
            yield from iter(functools.partial(file.read, size), b"")


def _decode_chunks(blocks: Iterable[bytes], name: _FileName, done: int = 0) -> Iterator[str]:
    """Decode blocks of UTF-8, the first at byte `done`; errors give the position of a bad byte."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for block, final in itertools.chain(zip(blocks, itertools.repeat(False)), [(b"", True)]):
        pending = len(decoder.getstate()[0])
        try:
            yield decoder.decode(block, final)
        except UnicodeDecodeError as error:
            at = done - pending + error.start
            problem = f"not UTF-8 ({error.reason}); convert it (iconv), or leave it out if not text"
            raise FileFormatError(name, f"byte {at}", problem) from None
        done += len(block)


# -- Counting pre-tokens ------------------------------------------------------
class PretokenCounts(dict[bytes, int]):
    """How often each pre-token occurs in a corpus: bytes -> count.

    Add the counts of the parts of a corpus to get the counts of the whole:

    >>> a, b = count_pretokens(["to be"]), count_pretokens(["or not to be"])
    >>> both = a + b
    >>> both[b" be"], both.documents
    (2, 2)

    `normalizer` prepared the text and `split_pattern` cut it.  `documents` and `bytes_read` (UTF-8,
    with special tokens) are what was read.  `in_order`: sorted by first occurrence.
    """

    def __init__(
        self,
        counts: Mapping[bytes, int] | Iterable[tuple[bytes, int]] = (),
        split_pattern: str = GPT2_SPLIT_PATTERN,
        normalizer: str | None = "NFC",
        documents: int = 0,
        bytes_read: int = 0,
        in_order: bool = False,
    ) -> None:
        super().__init__(counts)
        self.split_pattern, self.normalizer = split_pattern, normalizer
        self.documents, self.bytes_read, self.in_order = documents, bytes_read, in_order

    def __add__(self, other: PretokenCounts) -> PretokenCounts:
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        self.check_made_by(other.split_pattern, other.normalizer)
        total = Counter(self)
        total.update(other)
        made = self.documents + other.documents, self.bytes_read + other.bytes_read
        ordered = self.in_order and other.in_order
        return PretokenCounts(total, self.split_pattern, self.normalizer, *made, ordered)

    def check_made_by(self, split_pattern: str, normalizer: str | None) -> None:
        """Raise ValueError unless the text was prepared in exactly this way."""
        if (self.split_pattern, self.normalizer) != (split_pattern, normalizer):
            made = f"pattern {_shorten(self.split_pattern)} and normalizer {self.normalizer}"
            asked = f"{_shorten(split_pattern)} and {normalizer}"
            raise ValueError(f"these counts were made with {made}, not with {asked}: count again")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the counts to a JSON file, atomically."""
        facts = {name: value for name, value in vars(self).items() if name != "in_order" or value}
        entries = self.items() if self.in_order else sorted(self.items())
        counts = {_to_printable(pretoken): count for pretoken, count in entries}
        data = {"format": _COUNTS_FORMAT, **facts, "counts": counts}
        _write_files({Path(os.path.realpath(path)): json.dumps(data, ensure_ascii=False)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PretokenCounts:
        """Read what `save` wrote; raise FileFormatError if it is damaged or another file."""
        if _WITH_TOOLS:  # alone, this reads it whole, without superwords
            return cast("PretokenCounts", _tools("corpus.records").load_counts(Path(path)))
        data = _JsonReader.open(Path(path))
        return _read_counts(data, data.get("counts", dict).items())


_COUNTS_FORMAT = "bpe_tokenizer.PretokenCounts"


def _read_counts(data: _JsonReader, entries: Iterable[tuple[str, Any]]) -> PretokenCounts:
    """Read counts: how they were made from `data`, and the entries one by one."""
    if data.get("format", str) != _COUNTS_FORMAT:
        raise data.error("not a file of pre-token counts", "format")
    facts = data.get("split_pattern", str), data.get("normalizer", str, None)
    made = data.get("documents", int), data.get("bytes_read", int)
    counts = PretokenCounts({}, *facts, *made, data.get("in_order", bool, default=False))
    for written, count in entries:
        if (pretoken := _from_printable(written)) is None or type(count) is not int or count < 0:
            raise data.error(f"bad entry {_shorten(written)}: {_shorten(count)}", "counts")
        counts[pretoken] = count
    return counts


def _count_blocks(pattern: str, blocks: list[str]) -> Counter[str]:
    """Count the pre-tokens of blocks of prepared text; runs in worker processes."""
    return Counter(itertools.chain.from_iterable(map(_splitter(pattern).split, blocks)))


_Advance = Callable[[int], Any]  # reports the progress made since the last call


class _PretokenCounter:
    """Counts the pre-tokens of documents, in this process or in several."""

    _BATCH_CHARS = 4 * _BLOCK_CHARS  # per task: a quarter of a second's work

    def __init__(self, pipeline: _Pipeline, num_workers: int, advance: _Advance) -> None:
        self._pipeline, self._workers, self._advance = pipeline, num_workers, advance
        self._counts: Counter[str] = Counter()
        self.documents = self.bytes_read = 0

    def count(self, documents: Iterable[Iterable[str]]) -> None:
        """Count all documents.  The sum does not depend on how they are batched."""
        batches = self._batches(documents)
        # A small corpus is counted before a pool of processes would have started.
        first = list(itertools.islice(batches, 2 if self._workers > 1 else 0))
        count = functools.partial(_count_blocks, self._pipeline.splitter.pattern)
        mapped: Any = map
        if _WITH_TOOLS and len(first) == 2:  # alone, this file counts in one process
            mapped = _tools("corpus.process_pool").mapped_by(self._workers)
        for counts in mapped(count, itertools.chain(first, batches)):
            self._counts.update(counts)

    def take(self) -> dict[bytes, int]:  # what was counted
        return {pretoken.encode(): count for pretoken, count in self._counts.items()}

    def _batches(self, documents: Iterable[Iterable[str]]) -> Iterator[list[str]]:
        batch, size = list[str](), 0
        for document in documents:
            self.documents += 1
            for piece in self._pieces(document):
                if isinstance(piece, str):
                    batch.append(piece)
                    size += len(piece)
                if size >= self._BATCH_CHARS:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def _pieces(self, document: Iterable[str]) -> Iterator[str | AddedToken]:
        if isinstance(document, list) and len(document) == 1 and len(document[0]) <= _BLOCK_CHARS:
            return (part for part, *_ in self._pipeline.parts(self._measure(document[0])))
        return self._pipeline.stream(map(self._measure, document))

    def _measure(self, chunk: str) -> str:
        self.bytes_read += (size := _utf8_length(chunk))
        self._advance(size)
        return chunk


def _check_size(name: str, value: object, smallest: int, why: str = "") -> None:
    """Raise unless a value is an int of at least `smallest`, or None."""
    if value is not None and type(value) is not int:
        raise TypeError(f"{name} must be an int, got {_shorten(value)}")
    if value is not None and value < smallest:
        raise ValueError(f"{name} must be at least {smallest}{why}, got {value}")


def _cores() -> int:  # that this process may use
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_pretokens(
    corpus: _Corpus,
    split_pattern: str = GPT2_SPLIT_PATTERN,
    *,
    special_tokens: Iterable[str] = (),
    normalizer: str | None = "NFC",
    num_workers: int | None = None,
    text_field: str = "text",
    verbose: bool = False,
    in_order: bool = False,
) -> PretokenCounts:
    """Count the pre-tokens of a corpus, the first half of training.

    Memory grows with the distinct pre-tokens, not with the corpus.  Each document counts as if
    it were cut as a whole, however it is read.

    Args:
        corpus: text; a path to a file or a directory; a list of paths; or any iterable of strings,
            each one document.  A file is one document; .jsonl and .parquet hold one per record.
            .gz, .bz2, .xz and .zst are read through.
        split_pattern: a pattern, or a name from `SPLIT_PATTERNS`.
        special_tokens: strings that cut a document and are not counted.
        normalizer: "NFC", "NFD", "NFKC", "NFKD" or None.
        num_workers: threads of the accelerator, or processes, to count in; None means
            one per core.  Where processes are spawned (not on Linux), a script needs
            `if __name__ == "__main__":` around the call.
        text_field: the field or column of .jsonl and .parquet files.
        verbose: whether to show a progress bar.
        in_order: keep the order of first occurrence, for ``train(ties="first")``.  It counts in
            Python, as the accelerator keeps no order.

    Raises ValueError if the corpus is empty or only has special tokens; FileNotFoundError;
    FileFormatError; and ImportError if the package that reads .zst or .parquet is missing.

    >>> counts = count_pretokens("low low lower")
    >>> sorted(counts.items())
    [(b' low', 1), (b' lower', 1), (b'low', 1)]
    """
    _check_normalizer(normalizer)
    cut = _pattern_named(split_pattern), normalizer
    counter = _counter_of(corpus, *cut, special_tokens, num_workers, text_field, verbose, in_order)
    made = counter.documents, counter.bytes_read
    if not (counts := counter.take()):
        raise ValueError(_EMPTY)
    return PretokenCounts(counts, *cut, *made, in_order)


def _counter_of(corpus: Any, pattern: str, normalizer: Any, *how: Any) -> _PretokenCounter:
    specials, workers, text_field, verbose, in_order = how  # as in `count_pretokens`
    pipeline = _Pipeline(_splitter(pattern), normalizer, tokens=map(AddedToken, specials))
    _check_size("num_workers", workers, 1)
    with _progress("counting", "B", corpus, verbose) as advance:
        make = _PretokenCounter if in_order else _engine.counter
        counter = make(pipeline, workers or _cores(), advance)
        counter.count(_documents(corpus, text_field))
    return counter


def _pattern_named(pattern: str) -> str:
    """Return the split pattern with a name, or the pattern itself."""
    _check_text(pattern, "split_pattern")
    if pattern not in SPLIT_PATTERNS and re.fullmatch(r"[A-Za-z][\w.-]+", pattern):
        known = f"{', '.join(SPLIT_PATTERNS)}, or a regular expression, such as '(?:{pattern})'"
        raise ValueError(f"unknown split pattern {pattern!r}: expected {known}")
    if "&&" in pattern:  # `regex` does not read that as an intersection
        return cast("str", _tools("patterns.oniguruma").without_intersections(pattern))
    return SPLIT_PATTERNS.get(pattern, pattern)


def _check_normalizer(normalizer: str | None) -> None:
    if normalizer is not None and normalizer not in _NORMALIZERS:
        known = ", ".join(_NORMALIZERS)
        raise ValueError(f"normalizer must be one of {known} or None, got {normalizer!r}")


def _is_watched(verbose: bool | None) -> bool:  # None: only if someone is watching
    seen = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    return seen if verbose is None else verbose


def _progress(what: str, unit: str, total: Any, verbose: bool | None) -> Any:
    """Return a progress bar on stderr, to call with amounts; without the tools, a silent one."""
    if _WITH_TOOLS and _is_watched(verbose):
        return _tools("support.progress").bar(what, unit, total)
    return contextlib.nullcontext(lambda amount: None)


# -- Learning merges ----------------------------------------------------------
@dataclass(frozen=True)
class TrainingReport:
    """What a training run read and did."""

    documents: int  # 0, like the next, if the counts it started from don't say
    bytes_read: int  # of UTF-8 text
    pretokens: int  # counted
    distinct_pretokens: int
    merges: int  # learned
    vocab_size: int  # special tokens included
    counting_seconds: float  # wall time to read and count
    learning_seconds: float  # wall time to learn the merges
    stopped: str  # "vocab size reached", "nothing left above min_frequency" or "no pairs left"

    def __str__(self) -> str:
        many = "s" * (self.documents != 1)
        return (
            f"{self.documents:,} document{many}, {self.bytes_read:,} bytes, {self.pretokens:,} "
            f"pre-tokens ({self.distinct_pretokens:,} distinct), {self.merges:,} merges; counting "
            f"{self.counting_seconds:.1f} s, learning {self.learning_seconds:.1f} s; {self.stopped}"
        )


class _Learned(NamedTuple):
    """Merges in the order learned, as joined (left, right) byte strings."""

    merges: list[tuple[bytes, bytes]]
    tokens: list[bytes]  # the tokens that are new, in the order first made
    stopped: str


class _MergeLearner:
    """Learns merges from pre-token counts.

    A token under training is one character, `chr` of its number: base bytes are numbered 0 to 255
    in the order of the `alphabet`, then merged tokens by age.  A pre-token is then a `str`, a
    pair is a `str` of two characters that sorts as ties require, and merging a pair in a word,
    leftmost first and without overlap, is what `str.split` and `str.join` do, at the speed of C.
    """

    def __init__(
        self,
        counts: Mapping[bytes, int],
        max_token_length: int | None,
        alphabet: bytes = _ALPHABET,
    ) -> None:
        self._token = [bytes([byte]) for byte in alphabet]  # number -> bytes
        self._number = {token: number for number, token in enumerate(self._token)}
        self._limit = max_token_length or sys.maxsize
        ranks = bytes.maketrans(alphabet, bytes(range(256)))
        words = [(word, count) for word, count in counts.items() if len(word) > 1 and count > 0]
        self._words = [pretoken.translate(ranks).decode("latin-1") for pretoken, _ in words]
        self._freqs = [count for _, count in words]
        self._pair_counts = defaultdict[str, int](int)
        self._heap: list[tuple[int, str, list[int]]] = []

    def learn(
        self, n_tokens: int, min_frequency: int, forbidden: frozenset[bytes], advance: _Advance
    ) -> _Learned:
        """Learn merges until they have made `n_tokens` new tokens, and `advance` by each.

        A merge whose joined bytes are a token already makes no new one.  Merges that are
        `forbidden`, or rarer than `min_frequency`, are left out.
        """
        n_base = len(self._token)
        if n_tokens + n_base > (most := sys.maxunicode + 1):  # numbers that `chr` takes
            raise ValueError(f"vocab_size may be at most {most:,}")
        self._count_pairs()
        merges: dict[str, None] = {}
        stopped = "vocab size reached"
        while len(self._token) - n_base < n_tokens:
            pair, where = self._pop()
            if not pair or self._pair_counts[pair] < min_frequency:
                stopped = "nothing left above min_frequency" if pair else "no pairs left"
                break
            joined = self._token[ord(pair[0])] + self._token[ord(pair[1])]
            if joined in forbidden:
                continue
            number = self._number.setdefault(joined, len(self._token))
            if number == len(self._token):
                self._token.append(joined)
                advance(1)
            # NOTE: a pair can come back when another merge makes a token again; like
            # HuggingFace's trainer, we merge it again, and its later rank counts.
            merges.pop(pair, None)
            merges[pair] = None
            self._merge(pair, chr(number), where)
        pairs = [(self._token[ord(pair[0])], self._token[ord(pair[1])]) for pair in merges]
        return _Learned(pairs, self._token[n_base:], stopped)

    def _count_pairs(self) -> None:
        self._pair_counts = counts = defaultdict[str, int](int)
        where = defaultdict[str, list[int]](list)
        for i, (word, freq) in enumerate(zip(self._words, self._freqs)):
            for left, right in itertools.pairwise(word):
                pair = left + right
                counts[pair] += freq
                places = where[pair]
                if not places or places[-1] != i:
                    places.append(i)
        self._heap = [(-counts[pair], pair, places) for pair, places in where.items()]
        heapq.heapify(self._heap)

    def _pop(self) -> tuple[str, list[int]]:
        """Return the most frequent pair and the words with it, or ("", []) at the end."""
        while self._heap:
            negative, pair, where = heapq.heappop(self._heap)
            count = self._pair_counts[pair]
            if count == -negative:
                return pair, where
            if count > 0:
                self._push(pair, where)
        return "", []

    def _push(self, pair: str, where: list[int]) -> None:
        heapq.heappush(self._heap, (-self._pair_counts[pair], pair, where))

    def _merge(self, pair: str, merged: str, where: list[int]) -> None:
        """Replace a pair in the words that contain it; update counts and heap."""
        left, right = pair[0], pair[1]
        counts, fresh = self._pair_counts, defaultdict[str, list[int]](list)
        room = self._limit - len(self._token[ord(merged)])  # for a neighbor to merge

        def gain(new: str, neighbor: str, i: int, freq: int) -> None:
            if len(self._token[ord(neighbor)]) < room:
                counts[new] += freq
                places = fresh[new]
                if not places or places[-1] != i:
                    places.append(i)

        for i in where:
            pieces = self._words[i].split(pair)
            if len(pieces) == 1:
                continue  # an earlier merge took it
            self._words[i] = merged.join(pieces)
            freq = self._freqs[i]
            for n, (before, after) in enumerate(itertools.pairwise(pieces)):
                if before:
                    counts[before[-1] + left] -= freq
                    gain(before[-1] + merged, before[-1], i, freq)
                elif n:  # the pair occurs twice in a row
                    counts[right + left] -= freq
                    gain(merged + merged, merged, i, freq)
                if after:
                    counts[right + after[0]] -= freq
                    gain(merged + after[0], after[0], i, freq)
        for new, places in fresh.items():
            if counts[new] > 0:
                self._push(new, places)


# == 5. Encoding and decoding =================================================
# A pre-token becomes ids by applying merges in rank order, leftmost first.  With
# the merges  1: l+o   2: lo+w   3: e+r
#     l o w e r   ->   lo w e r   ->   low e r   ->   low er
# A short pre-token is scanned for its lowest rank again and again; a long one goes through a heap,
# so that a megabyte of one letter stays O(n log n).  A bounded cache keeps the ids of pre-tokens.

_SCAN_UP_TO = 48  # parts; beyond, the heap is faster (benchmarks/bench_encode.py --scan)
_CACHE_ENTRIES = 2**17  # pre-tokens; about 25 MB when full
_CACHED_CHARS = 64  # longer pre-tokens rarely come back, so they are not cached
_NO_RANK = sys.maxsize
_Pair = tuple[int, int]  # the ids of two tokens, left and right
_Ranks = dict[int, dict[int, int]]  # left id -> right id -> rank
_NO_ROW: dict[int, int] = {}  # the row of a token that no merge begins with: most of them
_Template = tuple[tuple[int, ...], tuple[int, ...]]  # ids before a text, ids after it


@dataclass(frozen=True)
class Definition:
    """Everything that decides which ids a text gets.

    For byte-level BPE `components` is None, and the other fields say it all.  Otherwise it has the
    normalizer, pre_tokenizer, decoder and model options of tokenizer.json, and a token is its
    written form in UTF-8.
    """

    vocab: Mapping[bytes, int]  # with all 256 bytes; without tokens that are only in `added`
    merges: Sequence[_Pair]  # in rank order
    split_pattern: str  # in `regex` syntax
    normalizer: str | None = "NFC"  # or "NFD", "NFKC", "NFKD"
    prefix_space: bool = False  # put a space before text that has none
    ignore_merges: bool = False  # a pre-token that is a token needs no merges
    trim_offsets: bool = False  # leave the white space at a token's ends out of its offsets...
    keep_prefix_space: bool = False  # ...but not one space before the first
    added: tuple[AddedToken, ...] = ()  # by id
    template: _Template | str = "bos"  # ids around a text, or which roles', of `_SURROUND`
    components: dict[str, Any] | None = None

    def write(self, token: bytes) -> str:
        """Write a token as vocabulary files do."""
        return _to_printable(token) if self.components is None else token.decode()

    def read(self, token: str) -> bytes | None:
        """Undo `write`; None if it can't be a token."""
        return _from_printable(token) if self.components is None else token.encode()


def _new_definition(split_pattern: str, normalizer: str | None, template: Any) -> Definition:
    if isinstance(template, str) and template not in _SURROUND:
        raise ValueError(f"surround must be one of {', '.join(_SURROUND)}, got {template!r}")
    vocab = {bytes([b]): b for b in range(256)}
    return Definition(vocab, [], split_pattern, normalizer, template=template)


class _PretokenCache(dict[str, "tuple[int, ...]"]):
    """Pre-token -> ids.  Computes the ids on a miss; when full, starts over.

    It has no lock, because a fork could copy a held one.  Threads that race here
    compute the same ids twice, or lose a count of the statistics.
    """

    def __init__(self, encode: Callable[[bytes], list[int]]) -> None:
        super().__init__()
        self._encode = encode
        self.lookups = self.misses = 0

    def __missing__(self, pretoken: str) -> tuple[int, ...]:
        ids = tuple(self._encode(pretoken.encode()))
        self.misses += 1
        if len(pretoken) <= _CACHED_CHARS:
            if len(self) >= _CACHE_ENTRIES:
                self.clear()
            self[pretoken] = ids
        return ids

    def look_up(self, pretokens: list[str]) -> Iterator[tuple[int, ...]]:
        """Return the ids of each pre-token, lazily."""
        self.lookups += len(pretokens)
        return map(self.__getitem__, pretokens)


class _Encoder:
    """A definition, ready to run: turns prepared text into ids, and ids into bytes."""

    # How errors="replace" handles bytes that are not UTF-8: a name that `codecs` knows.
    replacing = "replace"

    def __init__(self, definition: Definition) -> None:
        self._definition = definition  # an engine may keep it in another form
        self._split = _splitter(definition.split_pattern).split
        self.tokens = self._list_tokens()
        self._prepare(definition.vocab, definition.merges)

    def _list_tokens(self) -> Mapping[int, bytes]:
        """Return what each id stands for, added tokens included."""
        tokens = {id_: token for token, id_ in self._definition.vocab.items()}
        # If an id has several tokens, an ordinary one wins; then the added one listed last.
        for added in reversed(self._definition.added):
            tokens.setdefault(cast("int", added.id), added.content.encode())
        return tokens

    def _prepare(self, vocab: Mapping[bytes, int], merges: Sequence[_Pair]) -> None:
        """Build the tables for merging."""
        token = self.tokens
        self._byte_ids = [vocab[bytes([byte])] for byte in range(256)]
        self._ranks = _rank_pairs(merges)
        self._merged = [vocab[token[left] + token[right]] for left, right in merges]
        self._whole = vocab if self._definition.ignore_merges else {}
        self._cache = _PretokenCache(self._encode_pretoken)

    def largest_id(self) -> int:
        return max(self.tokens, default=-1)

    def pipeline(self, tokens: Iterable[AddedToken]) -> _Pipeline:
        """Return the pipeline that finds these added tokens."""
        given = self._definition
        splitter = _splitter(given.split_pattern)
        return _Pipeline(splitter, given.normalizer, given.prefix_space, tokens)

    def encode(self, text: str) -> list[int]:
        """Encode prepared text without added tokens."""
        try:
            return list(itertools.chain.from_iterable(self._cache.look_up(self._split(text))))
        except UnicodeEncodeError as error:
            _utf8_length(text)  # raises, with the surrogate's place
            raise error

    def count(self, text: str) -> int:
        """Count the ids `encode` would give, without making the list."""
        try:
            return sum(map(len, self._cache.look_up(self._split(text))))
        except UnicodeEncodeError:
            return len(self.encode(text))  # raises with the place

    def places(self, text: str, ids: Iterable[int]) -> list[_Span]:
        """Return the (start, end) of the characters in each token of a text, even in part."""
        char_of_byte: Sequence[int] = range(len(text))
        if not text.isascii():
            char_of_byte = [i for i, char in enumerate(text) for _ in char.encode()]
        ends = itertools.accumulate((len(self.tokens[id_]) for id_ in ids), initial=0)
        return [(char_of_byte[a], char_of_byte[b - 1] + 1) for a, b in itertools.pairwise(ends)]

    def encode_aligned(
        self, text: str, spans: _Spans, known: list[int] | None = None
    ) -> tuple[list[int], list[_Span]]:
        """Encode as `encode` does, and return the spans of tokens; `known` are ids it gave."""
        ids = known or self.encode(text)
        return ids, spans.of_tokens(self, text, ids)

    def encode_plain(self, text: Any) -> list[int] | None:
        """Encode a user's text, or return None if it needs more than cutting and merging."""
        plain = isinstance(text, str) and (text.isascii() or self._definition.normalizer is None)
        return self.encode(text) if plain else None

    def plain(self, pipeline: _Pipeline, method: str = "encode_plain") -> Callable[..., Any] | None:
        """Return a method that does all of a pipeline's work; None if there is none."""
        return None if pipeline.tokens or pipeline.prefix_space else getattr(self, method, None)

    def plain_segments(self, tokens: Any) -> Callable[[object, list[Any]], list[int] | None]:
        """Return an `encode_plain` for segments, which finds `tokens` in those with a mark."""
        return lambda mark, segments: None

    def encode_to_buffer(self, text: Any) -> Any:
        """Normalize and encode a user's text, to a buffer of unsigned 32-bit integers."""
        _check_text(text)
        return array.array("I", self.encode(_engine.normalize(text, self._definition.normalizer)))

    def encode_batch(self, texts: list[str], num_threads: int) -> list[list[int]]:
        """Encode several texts as `encode` does."""
        return list(map(self.encode, texts))

    def encode_recorded(self, texts: list[str], most: Any = None) -> list[tuple[list[int], Any]]:
        """Encode texts, each to its first ids and to the record that `places` takes."""
        return [(ids[:most], tuple(ids)) for ids in map(self.encode, texts)]

    def stream(self, pipeline: _Pipeline, chunks: Iterable[str]) -> Iterator[Any]:
        """Encode text that arrives in chunks."""
        return (self.encode(p) if isinstance(p, str) else [p.id] for p in pipeline.stream(chunks))

    def decode(self, ids: Any, errors: str) -> bytes:
        """Join the bytes of tokens; `errors` says what becomes of unknown ids."""
        return _decode_ids(_plain_ids(ids), self.tokens, errors)

    def decode_to_str(self, ids: Any, errors: str) -> str:
        """Decode as `decode` does, and then the bytes as UTF-8."""
        return self.decode(ids, errors).decode("utf-8", self.handler(errors))

    def handler(self, errors: str) -> str:
        """Return the name of the error handler for bytes that are not UTF-8."""
        return self.replacing if errors == "replace" else errors

    def without(self, ids: Any, left_out: frozenset[Any]) -> Any:  # removes some ids
        ids = _plain_ids(ids)
        return ids if left_out.isdisjoint(ids) else [id_ for id_ in ids if id_ not in left_out]

    def decode_rows(self, rows: Any, left_out: frozenset[Any], pad_id: int | None) -> list[str]:
        stripped = (_strip(_row(ids, True), pad_id) for ids in rows)
        kept = (self.without(ids, left_out) if left_out else ids for ids in stripped)
        return [self.decode_to_str(ids, "replace") for ids in kept]

    def decode_pieces(self, ids: Iterable[int], errors: str) -> Iterator[bytes]:
        """Decode as `decode` does, piece by piece, as the ids arrive."""
        return (_decode_ids([id_], self.tokens, errors) for id_ in ids)

    def cache_info(self) -> tuple[int, int, int]:
        """Return the cache's numbers of lookups, misses and entries."""
        return self._cache.lookups, self._cache.misses, len(self._cache)

    def clear_cache(self) -> None:
        """Empty the cache, and reset its statistics."""
        self._cache = _PretokenCache(self._encode_pretoken)

    def _encode_pretoken(self, pretoken: bytes) -> list[int]:
        whole = self._whole.get(pretoken)
        return self._merge([self._byte_ids[b] for b in pretoken]) if whole is None else [whole]

    def _merge(self, ids: list[int]) -> list[int]:
        merge = _merge_by_scanning if len(ids) <= _SCAN_UP_TO else _merge_by_heap
        return merge(ids, self._ranks, self._merged)


def _encode_parts(encoder: _Encoder, parts: Iterable[_Part]) -> list[int]:
    """Encode the parts that a pipeline yields."""
    ids: list[int] = []
    for part, *_ in parts:
        ids += [cast("int", part.id)] if isinstance(part, AddedToken) else encoder.encode(part)
    return ids


def _rank_pairs(merges: Iterable[_Pair]) -> _Ranks:
    """Index merges by left id, then by right: a lookup without a tuple is faster."""
    ranks: _Ranks = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left, {})[right] = rank
    return ranks


def _merge_by_scanning(ids: list[int], ranks: _Ranks, merged: Sequence[int]) -> list[int]:
    """Merge the ids of bytes, lowest rank first, in place; `merged` is the id by rank.  O(n**2)."""
    get = ranks.get
    rows = map(get, ids, itertools.repeat(_NO_ROW))
    found = list(map(dict.get, rows, ids[1:], itertools.repeat(_NO_RANK)))
    while found and (rank := min(found)) != _NO_RANK:
        i = found.index(rank)  # the leftmost, if equal
        ids[i] = new = merged[rank]
        del ids[i + 1], found[i]
        if i:
            found[i - 1] = get(ids[i - 1], _NO_ROW).get(new, _NO_RANK)
        if i < len(found):
            found[i] = get(new, _NO_ROW).get(ids[i + 1], _NO_RANK)
    return ids


def _merge_by_heap(ids: list[int], ranks: _Ranks, merged: Sequence[int]) -> list[int]:
    """Do what `_merge_by_scanning` does in O(n log n).

    The heap contains rank * n + position of each pair: the lowest rank comes first, then the
    leftmost.  Id -1, which no merge has, is a part merged into its left neighbor, or past an end.
    """
    n, get = len(ids), ranks.get
    found = map(dict.get, map(get, ids, itertools.repeat(_NO_ROW)), ids[1:])
    heap = sorted(rank * n + i for i, rank in enumerate(found) if rank is not None)
    ids = [*ids, -1]  # one sentinel for both ends: ids[n] is also ids[-1]
    after = list(range(1, n + 1))  # position of the next part
    before = list(range(-1, n))
    while heap:
        rank, i = divmod(heapq.heappop(heap), n)
        j = after[i]
        if get(ids[i], _NO_ROW).get(ids[j]) != rank:  # the pair has changed since
            continue
        ids[i], ids[j] = merged[rank], -1
        after[i] = k = after[j]
        before[k] = i
        for left, right in ((before[i], i), (i, k)):
            if (new := get(ids[left], _NO_ROW).get(ids[right])) is not None:
                heapq.heappush(heap, new * n + left)
    return [id_ for id_ in ids if id_ >= 0]


def _fill_rows(rows: list[list[int]], ids: Any, mask: Any, pad_id: int, left: bool) -> None:
    """Write rows into `ids`, with padding on one side, and 1 into `mask` at their places."""
    ids.fill(pad_id)
    mask.fill(0)
    for row, ids_there, mask_there in zip(rows, ids, mask):
        place = slice(len(ids_there) - len(row), None) if left else slice(len(row))
        ids_there[place], mask_there[place] = row, 1


class _Shown(dict[int, str]):
    """Id -> printable token, made on first use."""

    def __init__(self, write: Callable[[int], str], n_ids: int) -> None:
        self._write = write

    def __missing__(self, id_: int) -> str:
        token = self[id_] = self._write(id_)
        return token

    def of(self, ids: Iterable[int]) -> list[str]:
        return list(map(self.__getitem__, ids))


@dataclass(frozen=True)
class _Engine:
    """The implementation of sections 4 and 5: these classes, or equivalent ones."""

    encoder: Callable[[Definition], _Encoder] = _Encoder
    counter: Callable[[_Pipeline, int, _Advance], _PretokenCounter] = _PretokenCounter
    learner: Callable[..., _MergeLearner] = _MergeLearner
    fill_rows: Callable[[list[list[int]], Any, Any, int, bool], None] = _fill_rows
    spans_of: Callable[[Iterable[str]], Callable[[str, int, int], Iterable[_Span]]] = _spans_of
    shown: Callable[[Callable[[int], str], int], _Shown] = _Shown
    normalize: Callable[[str, str | None], str] = _normalize
    read_json: Callable[..., Any] = lambda *file: (_JsonReader.open(*file), None)  # or a definition
    read: Callable[..., tuple[Any, ...]] = lambda read, *given: read(*given)  # or by a cache


_engine = _Engine()  # section 13 may replace it


def _decode_ids(ids: Sequence[int], tokens: Mapping[int, bytes], errors: str) -> bytes:
    """Join the bytes of tokens; `errors` says what becomes of unknown ids."""
    try:
        return b"".join(map(tokens.__getitem__, ids))
    except KeyError as error:
        if errors == "strict":
            problem = f"id {error.args[0]} is not in the vocabulary (largest id: {max(tokens)})"
            remedy = "errors='replace' decodes it to U+FFFD, errors='ignore' drops it"
            raise ValueError(f"{problem}; {remedy}") from None
    unknown = "\ufffd".encode() if errors == "replace" else b""
    return b"".join(tokens.get(id_, unknown) for id_ in ids)


def _plain_ids(ids: Any) -> list[int]:
    """Read ids from a list, an array or a tensor of one dimension, or a single id."""
    if isinstance(ids, (str, bytes)):
        raise TypeError(f"ids must be integers, got {type(ids).__name__} {_shorten(ids)}")
    ids = ids.tolist() if hasattr(ids, "tolist") else ids
    try:
        return list(map(operator.index, [ids] if isinstance(ids, int) else ids))
    except TypeError as error:
        raise TypeError(f"ids must be a sequence of integers: {error}") from None


def _row(ids: Any, arrays: bool) -> Any:
    """Return ids as a list; `arrays` also lets a NumPy array of one dimension through."""
    fits = type(ids) is list or (arrays and hasattr(ids, "__array_interface__") and ids.ndim == 1)
    return ids if fits else _plain_ids(ids)


def _strip(ids: Any, pad_id: int | None, starts: bool = True) -> Any:
    """Leave out the pad ids at the end and, if `starts`, at the start."""
    if pad_id is not None and len(ids) and pad_id in (ids[0], ids[-1]):
        end = next((i for i in range(len(ids), 0, -1) if ids[i - 1] != pad_id), 0)
        start = next((i for i in range(end) if ids[i] != pad_id), end) if starts else 0
        ids = ids[start:end]
    return ids


def _check_errors(errors: str) -> None:
    if errors not in ("strict", "replace", "ignore"):
        raise ValueError(f"errors must be 'strict', 'replace' or 'ignore', got {errors!r}")


# == 6. Streaming =============================================================
# Text or ids that arrive in pieces give the result of the whole.  `_Pipeline.stream` holds text
# back that later text can change, and the bytes of a character wait until it is complete.


def _until(
    pieces: Iterable[str], stops: Sequence[str], stopped: Callable[[], Any] = bool
) -> Iterator[str]:
    """Yield text up to the first place where one of some strings begins; call `stopped` there.

    Text that may begin one waits, even if another one is complete after it.
    """
    ends = [re.escape(stop[:n]) + r"\Z" for stop in stops for n in range(1, len(stop))]
    begins = re.compile("|".join([*map(re.escape, stops), *ends]) or "(?!)")
    whole, held = _one_of(stops), ""
    for piece in pieces:
        held += piece
        found = begins.search(held)
        if ready := found.start() if found else len(held):
            yield held[:ready]
            held = held[ready:]
        if whole.match(held):
            break
    if found := whole.search(held):
        stopped()
    if rest := held[: found.start()] if found else held:
        yield rest


# == 7. Files =================================================================
# The format is HuggingFace's tokenizer.json.  `tokenizers` and `transformers` read what this module
# writes, with the same ids.  It represents what it reads exactly, or names the part it can't.  This
# file reads byte-level BPE; bpe_tokenizer_tools reads other BPE and other formats.

_Named = Mapping[str, Any]


_SIDE_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
_MORE_TEMPLATES = "additional_chat_templates"  # a folder of templates by name


def _side_files(folder: Path) -> list[Path]:
    """Return the files that transformers puts beside a vocabulary, in any format."""
    more = sorted(folder.glob(f"{_MORE_TEMPLATES}/*.jinja"))
    return [*(folder / name for name in _SIDE_FILES), *more]


def _side_files_to_replace(folder: Path) -> list[Path]:
    """Return the side files that a save removes or writes; refuse those of another directory."""
    more = folder / _MORE_TEMPLATES
    if more.is_symlink():
        problem = "is a link to another directory, whose templates a save would remove"
        raise FileExistsError(f"{more}: {problem}; delete the link, or save elsewhere")
    return _side_files(folder)


def _tokenizer_files(folder: Path) -> list[Path]:
    """Return the files of a saved tokenizer, tokenizer.json first."""
    return [folder / "tokenizer.json", *_side_files(folder)]


# -- Writing ------------------------------------------------------------------
_FLAGS = "add_prefix_space", "trim_offsets", "use_regex"
_BYTE_LEVEL = {"type": "ByteLevel", **dict.fromkeys(_FLAGS, False)}


def _tokenizer_layout(model: _Named, added: Iterable[AddedToken], parts: _Named) -> dict[str, Any]:
    """Lay out a tokenizer.json; `model` has vocab, merges, and unusual options."""
    none = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")
    flags = ("fuse_unk", "byte_fallback", "ignore_merges")
    usual = {"type": "BPE", **dict.fromkeys(none), **dict.fromkeys(flags, False)}
    return {
        **{"version": "1.0", "truncation": None, "padding": None},
        "added_tokens": list(map(dataclasses.asdict, added)),
        **dict.fromkeys(("normalizer", "pre_tokenizer", "decoder", "model", "post_processor")),
        **parts,
        "model": {**usual, **model, "merges": list(map(list, model["merges"]))},
    }


def _tokenizer_json(
    definition: Definition, around: _Template, settings: _Named | None = None
) -> dict[str, Any]:
    """Write a definition, with truncation and padding from `settings`, as tokenizer.json."""
    printable = {id_: definition.write(token) for token, id_ in definition.vocab.items()}
    vocab = {printable[id_]: id_ for id_ in sorted(printable)}
    if len({token.id for token in definition.added}) < len(definition.added):
        _tools("formats.tiktoken").refuse_shared_ids(definition)
    if definition.components:
        parts = dict(definition.components)
        if _WITH_TOOLS:  # which have components of their own
            _tools("formats.components").check_writable(definition.components)
    else:
        form = definition.normalizer
        parts = {"normalizer": {"type": form} if form else None, "decoder": _BYTE_LEVEL}
        parts["pre_tokenizer"] = _pre_tokenizer_json(definition)
    options = {**parts.get("model", {}), "ignore_merges": definition.ignore_merges}
    # NOTE: HuggingFace numbers added tokens that are not in model.vocab by itself, from its size
    # up.  Tokens with other ids must be in model.vocab; so must the unknown token, always.
    outside: Any = {t.content: t.id for t in definition.added if t.id not in printable}
    if options.get("unk_token") in outside:
        vocab[options["unk_token"]] = outside.pop(options["unk_token"])
    numbered = set(_numbered_from(len(vocab), [*outside.values()]))
    vocab.update({content: id_ for content, id_ in outside.items() if id_ not in numbered})
    parts |= {key: (settings or {}).get(key) for key in ("truncation", "padding")}
    parts["post_processor"] = made = _post_processor_json(definition, around)
    if own := (settings or {}).get("post_processor"):  # from a file that joins pairs its own way
        parts["post_processor"] = _tools("formats.pairs").fitting(own, definition, made)
    merges = [(printable[left], printable[right]) for left, right in definition.merges]
    return _tokenizer_layout({**options, "vocab": vocab, "merges": merges}, definition.added, parts)


def _numbered_from(size: int, ids: Sequence[int]) -> list[int]:
    """Return the last of some ids that have no gap if the others join a vocabulary of that size.

    None of them, if they aren't in their order, or if the vocabulary would have a gap.
    """
    ordered = sorted(ids)
    last = [id_ for i, id_ in enumerate(ordered) if id_ == size + i]
    known = set(last)
    in_order = [id_ for id_ in ids if id_ in known]
    return last if last == in_order and last[-1:] == ordered[-1:] else []


def _elsewhere(rule: _Template | str) -> _Template | str:
    """Return the rule for other libraries."""
    return "bos" if rule == "default" else rule


def _pre_tokenizer_json(definition: Definition) -> dict[str, Any]:
    written = [_to_oniguruma(definition.split_pattern)]
    is_gpt2 = written == [GPT2_SPLIT_PATTERN]  # ByteLevel's own
    if is_gpt2 or written == [_UNCUT_PATTERN]:
        return {**_BYTE_LEVEL, "add_prefix_space": definition.prefix_space, "use_regex": is_gpt2}
    steps = _STEPS.get(definition.split_pattern, ())
    written = [step.replace(r"\r\n", "\r\n") for step in steps] or written
    usual = {"behavior": "Isolated", "invert": False}
    splits = [{"type": "Split", "pattern": {"Regex": each}, **usual} for each in written]
    return {"type": "Sequence", "pretokenizers": [*splits, _BYTE_LEVEL]}


def _post_processor_json(definition: Definition, around: _Template) -> dict[str, Any] | None:
    steps: list[dict[str, Any]] = []
    if definition.trim_offsets:
        keep = definition.keep_prefix_space
        steps.append({**_BYTE_LEVEL, "add_prefix_space": keep, "trim_offsets": True})
    if any(around):
        content = {token.id: token.content for token in definition.added}
        ids = {content[id_]: id_ for side in around for id_ in side}
        before, after = ([content[id_] for id_ in side] for side in around)
        parts = [*before, "", *after]  # "" is the text
        first, second = (
            [{"SpecialToken" if n else "Sequence": {"id": n or text, "type_id": i}} for n in parts]
            for i, text in enumerate("AB")
        )
        tokens = {name: {"id": name, "ids": [id_], "tokens": [name]} for name, id_ in ids.items()}
        pieces = {"single": first, "pair": first + second, "special_tokens": tokens}
        steps.append({"type": "TemplateProcessing", **pieces})
    return {"type": "Sequence", "processors": steps} if steps[1:] else next(iter(steps), None)


def _template_ids(rule: _Template | str, bos_id: int | None, eos_id: int | None) -> _Template:
    """Return the ids that ``add_special_tokens`` adds before and after a text."""
    if not isinstance(rule, str):
        return rule
    rule = "bos+eos" if rule == "default" else rule
    before = (bos_id,) if "bos" in rule and bos_id is not None else ()
    return before, ((eos_id,) if "eos" in rule and eos_id is not None else ())


# -- Reading ------------------------------------------------------------------
_SEQUENCES = {  # field -> the key of a Sequence's components
    **{"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"},
    **{"post_processor": "processors", "decoder": "decoders"},
}


def _is_plain(data: Mapping[str, Any]) -> bool:
    """Return True for the formats of formats/plain.py, which aren't tokenizer.json."""
    is_flat = isinstance(data.get("vocab"), (dict, list)) or "split_pattern" in data
    return is_flat or _is_reference(data)


def _is_reference(data: Mapping[str, Any]) -> bool:
    """Return True for the tokenizer.json of the reference program; see `_read_reference`."""
    special = data.get("special_tokens") or {}
    has_objects = isinstance(special, dict) and all(isinstance(v, dict) for v in special.values())
    has_components = any(data.get(field) is not None for field in _SEQUENCES)
    is_typed = data.get("type") == "BPE" and isinstance(data.get("model"), dict)
    return is_typed and has_objects and not has_components


# The keys of each object in a tokenizer.json, as "key:type key:type|null"; the objects in a field
# "key:dict@part" have the keys of that part.  They are the keys that tokenizers 0.23 reads, and
# those that older versions wrote.  HuggingFace rejects other keys at the top level and ignores
# most others.  Here all unknown keys are errors: one may be misspelled, or change the ids in a
# later version.
_KEYS = {
    "tokenizer": "version:str truncation:dict|null padding:dict|null added_tokens:list|null@added "
    "normalizer:dict|null pre_tokenizer:dict|null post_processor:dict|null decoder:dict|null "
    "model:dict@model",
    "model": "type:str|null dropout:int|float|null unk_token:str|null fuse_unk:bool|null "
    "continuing_subword_prefix:str|null end_of_word_suffix:str|null byte_fallback:bool|null "
    "ignore_merges:bool|null vocab:dict merges:list",
    "added": "id:int content:str single_word:bool lstrip:bool rstrip:bool normalized:bool "
    "special:bool",
    # Components, by their type; formats/components.py checks others.
    **dict.fromkeys(_NORMALIZERS, ""),
    "Split": "pattern:dict@pattern behavior:str invert:bool",
    "pattern": "Regex:str String:str",
    "ByteLevel": "add_prefix_space:bool trim_offsets:bool use_regex:bool",
    "TemplateProcessing": "single:list@piece pair:list@piece special_tokens:dict",
    "piece": "SpecialToken:dict@place Sequence:dict@place",
    "place": "id:str type_id:int",
    "special": "id:str ids:list tokens:list",
}
_KEY_TYPES = {kind.__name__: kind for kind in (bool, int, float, str, list, dict)}  # None: null


@functools.cache
def _parse_keys(keys: str) -> dict[str, tuple[tuple[type | None, ...], str]]:
    """Return the types of each field, and the part that describes objects in it, or ""."""
    found: dict[str, Any] = {}
    for field in keys.split():
        key, kinds, part = re.split("[:@]", f"{field}@")[:3]
        found[key] = tuple(_KEY_TYPES.get(kind) for kind in kinds.split("|")), part
    return found


def _check_keys(data: _JsonReader, keys: str, parts: Mapping[str, str] | None = None) -> None:
    """Refuse keys that `keys` doesn't list, and values of other types; `parts` has its parts."""
    known = _parse_keys(keys)
    for key in data.data:
        if key not in known:
            near = difflib.get_close_matches(key[:60], known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise data.error(f"unknown key; {hint}", _shorten(key)[1:-1])
        kinds, part = known[key]
        is_list = isinstance(data.get(key, *kinds), list)
        if parts and part:
            inner = data.children(key) if is_list else [data.child(key)]
            for child in filter(None, inner):
                _check_keys(child, parts[part], parts)


def _check_steps(data: _JsonReader, field: str, key: str = "") -> None:
    """Check the keys of the components in a field, and in nested Sequences."""
    within = _SEQUENCES[field]
    for step in data.children(key) if key else filter(None, [data.child(field)]):
        kind = step.get("type", str)
        keys = f"{within}:list" if kind == "Sequence" else _KEYS.get(kind)
        if keys is not None:
            _check_keys(step, f"type:str {keys}", _KEYS)
        if kind == "Sequence":
            step.get(within, list)
            if step.field.count(".") > 8:
                raise step.error("sequences are nested too deeply")
            _check_steps(step, field, within)
        if kind == "TemplateProcessing":
            tokens = step.child("special_tokens") or _JsonReader({}, step.path)
            for name in tokens.data:
                tokens.get(name, dict)
                _check_keys(tokens.at(name, tokens.data[name]), _KEYS["special"])


def _check_tokenizer(data: _JsonReader) -> None:
    """Check the keys of a tokenizer.json, except those of components that _KEYS lacks."""
    _check_keys(data, _KEYS["tokenizer"], _KEYS)
    for field in _SEQUENCES:
        _check_steps(data, field)


def _steps(data: _JsonReader, field: str, key: str = "") -> Iterator[_JsonReader]:
    """Yield the components in a field, those of nested Sequences in order."""
    within = _SEQUENCES[field]
    for step in data.children(key) if key else filter(None, [data.child(field)]):
        if step.get("type", str) != "Sequence":
            yield step
            continue
        step.get(within, list)
        if step.field.count(".") > 8:
            raise step.error("sequences are nested too deeply")
        yield from _steps(step, field, within)


def _reader_of(what: str, part: _JsonReader, key: str = "") -> Any:
    """Return the module that reads other BPE, or raise the part's error."""
    if not _WITH_TOOLS:
        raise part.error(f"{what} needs {_ALONE}, or {_INSTALL}", key)
    return _tools("formats.components")


def _read_definition(data: _JsonReader, size: int | None = None) -> Definition:
    """Read tokenizer.json, with `size` tokens, or raise if a part can't be represented exactly."""
    if data.get("version", str, default="1.0") != "1.0":
        raise data.error(f"expected '1.0', got {_shorten(data.data['version'])}", "version")
    model = _JsonReader(data.get("model", dict), data.path, "model")
    kind = model.get("type", str, None, default="BPE")
    if kind not in ("BPE", None):
        raise model.error(f"expected 'BPE', got {_shorten(kind)}; only BPE models are read", "type")
    if model.data.get("dropout"):
        raise model.error("is not supported here; set it to null, and pass it to encode", "dropout")
    _check_tokenizer(data)
    steps = {field: list(_steps(data, field)) for field in _SEQUENCES}
    ids = _read_vocab(model)
    added = _read_added_tokens(data, ids, len(ids) if size is None else size)
    special = {token.content for token in added if token.special}
    merges, used = _read_merges(model, ids, special)
    contents = {token.content for token in added}
    ordinary = {
        token: id_
        for token, id_ in ids.items()
        if token not in contents or token in used or re.fullmatch(r".|<0x[0-9A-F]{2}>", token)
    }
    if (parts := _read_byte_level(model, steps, ordinary)) is None:
        read = _tools("formats.components").read_components if _WITH_TOOLS else _read_components
        parts = read(data, ordinary, special - used)
    parts |= _read_post_processor(steps["post_processor"], {token.id for token in added})
    return Definition(
        merges=merges,
        ignore_merges=model.get("ignore_merges", bool, None, default=None) or False,
        added=tuple(sorted(added, key=operator.attrgetter("id"))),
        **parts,
    )


def _read_byte_level(
    model: _JsonReader, steps: Mapping[str, list[_JsonReader]], ids: Mapping[str, int]
) -> dict[str, Any] | None:
    """Return the fields of byte-level BPE with one split pattern; None for other models."""
    kinds = {field: [step.data["type"] for step in found] for field, found in steps.items()}
    vocab = {_from_printable(token): id_ for token, id_ in ids.items()}
    options = ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    if (
        any(map(model.data.get, options))
        or not ids.keys() >= _CHAR_TO_BYTE.keys()
        or None in vocab
        or kinds["decoder"] != ["ByteLevel"]
        or kinds["normalizer"] not in ([], *([form] for form in _NORMALIZERS))
        or kinds["pre_tokenizer"] not in ([*["Split"] * n, "ByteLevel"] for n in (0, 1, 3))
    ):
        return None
    *splits, last = steps["pre_tokenizer"]
    flags = ("add_prefix_space", "use_regex")
    space, use_regex = (last.get(flag, bool, default=True) for flag in flags)
    pattern = GPT2_SPLIT_PATTERN if use_regex else _UNCUT_PATTERN
    if splits:
        given = (str(step.get("pattern", dict, default={}).get("Regex")) for step in splits)
        isolated = all(step.data.get("behavior") == "Isolated" for step in splits)
        known = _KNOWN_SPELLINGS.get(tuple(each.replace("\r\n", r"\r\n") for each in given))
        if space or use_regex or not isolated or not (known or len(splits) == 1):
            return None
        first = splits[0]
        pattern = known or _reader_of(_CUSTOM, first, "pattern.Regex").read_pattern(first)
    form = next(iter(kinds["normalizer"]), None)
    return {"vocab": vocab, "split_pattern": pattern, "normalizer": form, "prefix_space": space}


def _read_vocab(model: _JsonReader) -> dict[str, int]:
    ids: dict[str, int] = model.get("vocab", dict)
    taken: dict[int, str] = {}
    for token, id_ in ids.items():
        if _has_surrogate(token):
            raise model.error(f"token {_shorten(token)} is not valid Unicode", "vocab")
        if type(id_) is not int or not 0 <= id_ <= _MAX_ID:
            expected = f"expected an id from 0 to {_MAX_ID}, got {_shorten(id_)}"
            raise model.error(f"token {_shorten(token)}: {expected}", "vocab")
        if taken.setdefault(id_, token) != token:
            both = f"{_shorten(taken[id_])} and {_shorten(token)}"
            raise model.error(f"id {id_} is given to both {both}", "vocab")
    return ids


def _read_merges(
    model: _JsonReader, ids: Mapping[str, int], special: set[str]
) -> tuple[list[tuple[int, int]], set[str]]:
    """Read the merges, written as pairs or as strings; also return all tokens in them.

    Merges that would make a special token from its own text are left out.
    """
    control = {t for t in special if len(t) > 1 and _from_printable(t) in (None, t.encode())}
    merges: dict[tuple[int, int], None] = {}
    used: set[str] = set()
    unwritten = len(model.get("continuing_subword_prefix", str, None, default=None) or "")
    for i, merge in enumerate(model.get("merges", list)):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        is_pair = isinstance(parts, list) and len(parts) == 2
        if not is_pair or not all(isinstance(part, str) and part for part in parts):
            raise model.error(f"expected a pair of tokens, got {_shorten(merge)}", f"merges[{i}]")
        left, right = parts
        found = (left, right, left + right[unwritten:])
        for token in found:
            if token not in ids:
                raise model.error(f"token {_shorten(token)} is not in model.vocab", f"merges[{i}]")
        if not control.isdisjoint(found):
            continue
        used.update(found)
        pair = ids[left], ids[right]
        merges.pop(pair, None)  # if listed twice, the later rank counts, as in HuggingFace
        merges[pair] = None
    return list(merges), used


def _read_added_tokens(data: _JsonReader, ids: Mapping[str, int], size: int) -> list[AddedToken]:
    tokens: dict[str, AddedToken] = {}
    taken = {id_: token for token, id_ in ids.items()}
    next_id = size  # HuggingFace's own numbering of tokens not in model.vocab
    for item in data.children("added_tokens"):
        content, id_ = item.get("content", str), item.get("id", int)
        flags = [field.name for field in dataclasses.fields(AddedToken)[2:]]
        token = AddedToken(content, id_, **{f: item.get(f, bool, default=False) for f in flags})
        if tokens.get(content) == token:  # listed twice, identically: HuggingFace accepts it
            continue
        if not content or _has_surrogate(content):
            raise item.error("is empty, or not valid Unicode", "content")
        if not 0 <= id_ <= _MAX_ID:
            raise item.error(f"expected an id from 0 to {_MAX_ID}, got {id_}", "id")
        if taken.setdefault(id_, content) != content:
            raise item.error(f"{id_} is already the id of {_shorten(taken[id_])}", "id")
        actual = ids.get(content, next_id)
        if id_ != actual:
            there = f"HuggingFace gives {_shorten(content)} the id {actual} whatever this says"
            remedy = f"put it in model.vocab with its id to keep {id_}"
            raise item.error(f"expected {actual}, got {id_}: {there}; {remedy}", "id")
        if content in tokens:
            raise item.error(f"{_shorten(content)} is listed twice", "content")
        next_id += content not in ids
        tokens[content] = token
    return list(tokens.values())


def _read_post_processor(
    steps: Iterable[_JsonReader], added: Container[int | None]
) -> dict[str, Any]:
    """Return the fields that a definition takes from its components."""
    template: _Template = ((), ())
    trim = keep = False
    for step in steps:
        kind = step.data["type"]
        if kind == "TemplateProcessing":
            template = _read_template(step, added)
            continue
        if kind != "ByteLevel":
            other = _reader_of(f"the post-processor {_shorten(kind)}", step)
            template = other.read_post_processor(step, added)
        trim = step.get("trim_offsets", bool, default=kind != "BertProcessing")
        keep = trim and step.get("add_prefix_space", bool, default=True)
    return {"template": template, "trim_offsets": trim, "keep_prefix_space": keep}


# "A" or "B" for a text, or a token's ids; its type id
_Pieces = list[tuple["str | tuple[int, ...]", int]]


def _read_pieces(step: _JsonReader, field: str) -> _Pieces:
    """Read the pieces that a TemplateProcessing makes from one text, or from a pair."""
    tokens = step.child("special_tokens") or _JsonReader({}, step.path)
    pieces: _Pieces = []
    for item in step.children(field):
        text, token = item.child("Sequence"), item.child("SpecialToken")
        if (part := text or token) is None:
            raise item.error("expected a Sequence or a SpecialToken")
        name, type_id = part.get("id", str), part.get("type_id", int)
        if text is None:
            found = tokens.child(name)
            if found is None:
                raise part.error(f"{_shorten(name)} is not in special_tokens", "id")
            pieces.append((tuple(found.get("ids", list)), type_id))
        elif name in ("A", "B"):
            pieces.append((name, type_id))
        else:
            raise part.error(f"expected 'A' or 'B', got {_shorten(name)}", "id")
    return pieces


def _read_template(step: _JsonReader, added: Container[int | None]) -> _Template:
    """Read which ids a TemplateProcessing puts before and after a single text."""
    sides: list[list[int]] = [[]]
    tokens = step.child("special_tokens") or _JsonReader({}, step.path)
    known = {name: tokens.child(name) for name in tokens.data}
    for item in step.children("single"):
        if "Sequence" in item.data:
            sides.append([])
            continue
        special = item.child("SpecialToken")
        if (found := known.get(special.get("id", str)) if special else None) is None:
            raise item.error(f"expected a Sequence or a special token, got {_shorten(item.data)}")
        ids = found.get("ids", list)
        if not all(type(id_) is int and id_ in added for id_ in ids):
            raise found.error(f"expected ids of added tokens, got {_shorten(ids)}", "ids")
        sides[-1] += ids
    if len(sides) != 2:
        raise step.error("expected the text exactly once", "single")
    for field in ("single", "pair"):
        _read_pieces(step, field)  # is all of it right?
    return tuple(sides[0]), tuple(sides[1])


# -- Files of the reference program -------------------------------------------
# The program that this library succeeds wrote a tokenizer.json of its own:
#
#     {"version": "1.0", "type": "BPE", "split_pattern": "...",
#      "model": {"type": "BPE", "vocab": {"a": 97, ...}, "merges": ["t h", ...]},
#      "special_tokens": {"<|end|>": {"id": 300, "content": "<|end|>"}}, "added_tokens": [...]}
#
# Text is normalized to NFC, and `add_special_tokens` adds bos and eos.  A tutorial's function
# `save_tokenizer` wrote the same without split_pattern.

_REFERENCE_KEYS = (
    "version:str type:str model:dict split_pattern:str|null special_tokens:dict|null "
    "added_tokens:list|null@added truncation:null padding:null "
) + " ".join(f"{field}:null" for field in _SEQUENCES)


def _read_reference(
    data: _JsonReader, config: _JsonReader, pattern: str | None, given: Iterable[AddedToken]
) -> Definition:
    """Read a tokenizer.json of the reference program, with the ids that it gave.

    `config` is tokenizer_config.json.  A `pattern` is for a file without one, and `given` are
    special tokens of the caller's.
    """
    _check_keys(data, _REFERENCE_KEYS, _KEYS)
    model = _JsonReader(data.get("model", dict), data.path, "model")
    _check_keys(model, _KEYS["model"])
    _refuse_options(model)
    ids = dict(model.get("vocab", dict))
    special = _reference_tokens(data, ids, given)
    _check_overwritten(data, model, special)
    ids.update({content: cast("int", token.id) for content, token in special.items()})
    ordinary = {token: id_ for token, id_ in ids.items() if token not in special}
    for token in ordinary:
        if _from_printable(token) is None:
            raise model.error(f"token {_shorten(token)} is not in the byte alphabet", "vocab")
    for char, byte in _CHAR_TO_BYTE.items():
        if char not in ids:
            raise model.error(f"has no token for byte 0x{byte:02X} ({char!r})", "vocab")
    standard = {
        "version": data.data.get("version", "1.0"),
        "added_tokens": list(map(dataclasses.asdict, special.values())),
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": _BYTE_LEVEL,  # until the pattern takes its place
        "decoder": _BYTE_LEVEL,
        "model": {**model.data, "vocab": ids},
    }
    definition = _read_definition(_JsonReader(standard, data.path))
    found = _reference_pattern(data, config, pattern)
    return dataclasses.replace(definition, split_pattern=found, template="default")


def _refuse_options(model: _JsonReader) -> None:
    """Raise for options of a model that change ids and can't go with a split pattern."""
    options = ("dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges")
    for key in (*options, "continuing_subword_prefix", "end_of_word_suffix"):
        if value := model.data.get(key):
            raise model.error(f"{_shorten(value)} is not supported beside special_tokens", key)


def _reference_tokens(
    data: _JsonReader, ids: Mapping[str, int], given: Iterable[AddedToken]
) -> dict[str, AddedToken]:
    """Return the special tokens by their text; their places in a file must agree."""
    named = data.child("special_tokens") or _JsonReader({}, data.path)
    items = [(text, named.at(_shorten(text), item)) for text, item in named.data.items()]
    items += [(item.get("content", str), item) for item in data.children("added_tokens")]
    found: dict[str, AddedToken] = {}
    for text, item in items:
        _check_keys(item, _KEYS["added"])
        if item.get("content", str, default=text) != text:
            raise item.error(f"expected {_shorten(text)}, its key", "content")
        if not text or _has_surrogate(text):
            raise item.error("is empty, or not valid Unicode", "content")
        id_ = item.get("id", int, default=ids.get(text))
        if type(id_) is not int:
            raise item.error(f"the id of {_shorten(text)} is missing", "id")
        flags = {key: value for key, value in item.data.items() if key not in ("content", "id")}
        known = found.get(text)
        if known is not None and known.id != id_:
            raise item.error(f"{_shorten(text)} has the ids {known.id} and {id_}", "id")
        found[text] = AddedToken(text, id_, **flags)
    for token in given:
        if token.id is not None and token.content not in found:
            found[token.content] = token
    for text, token in found.items():
        if ids.get(text, token.id) != token.id:
            both = f"the id {ids[text]} in model.vocab, and {token.id} here"
            raise data.error(f"{_shorten(text)} has {both}", "special_tokens")
    return found


def _check_overwritten(
    data: _JsonReader, model: _JsonReader, special: Mapping[str, AddedToken]
) -> None:
    """Raise if a special token took the id of an ordinary one, or its text.

    The reference program let it: text that gives the ordinary token would become the control token.
    """
    advice = "train again, here or with an id that no other token has"
    vocab = model.get("vocab", dict)
    text_of = {token.id: text for text, token in special.items()}
    for token, id_ in vocab.items():
        if type(id_) is int and id_ in text_of and token not in special:
            problem = f"{_shorten(text_of[id_])} has the id {id_}, as {_shorten(token)} has"
            problem += ", so ordinary text would become this special token"
            raise data.error(f"{problem}; {advice}", "special_tokens")
    made: dict[str, int] = {}  # by merges, with the ids that training gave
    for i, merge in enumerate(model.get("merges", list)):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        joined = "".join(map(str, parts)) if isinstance(parts, list) else ""
        id_ = made.setdefault(joined, len(_CHAR_TO_BYTE) + len(made))
        if joined in special:
            problem = f"{_shorten(joined)} (id {special[joined].id}) is also the token of a merge"
            raise data.error(f"{problem}; {advice}", "special_tokens")
        if joined not in vocab and id_ in text_of:
            problem = f"token {_shorten(joined)} is not in model.vocab: its id {id_} became that of"
            raise model.error(f"{problem} {_shorten(text_of[id_])}; {advice}", f"merges[{i}]")


def _reference_pattern(data: _JsonReader, config: _JsonReader, given: str | None) -> str:
    """Return the split pattern: the file's or the caller's; else the one that `config` names."""
    name = config.data.get("split_pattern_name")
    has_none = given is None and data.data.get("split_pattern") is None
    if has_none and isinstance(name, str) and name in SPLIT_PATTERNS:
        return SPLIT_PATTERNS[name]
    return _read_split_pattern(data, given)


def _read_split_pattern(data: _JsonReader, given: str | None) -> str:
    """Return where text is cut; from the file or from the caller, not from both."""
    written = data.get("split_pattern", str, None, default=None)
    if written is not None and given is not None:
        raise ValueError(f"{data.path} carries its own split pattern; leave split_pattern out")
    if written is None and given is None:
        problem = 'is missing, so it isn\'t clear where text is cut; pass split_pattern="gpt2"'
        known = ", ".join(name for name in SPLIT_PATTERNS if name != "gpt2")
        raise data.error(f"{problem}, another name ({known}) or a regex", "split_pattern")
    try:
        pattern = _pattern_named(given or written or "")
        _splitter(pattern)
    except (ValueError, RecursionError, regex.error) as error:
        raise data.error(f"not a regular expression: {error}", "split_pattern") from None
    return pattern


# -- BPE over characters ------------------------------------------------------
# Llama 2, Mistral and Gemma merge characters, not bytes.  Their files list the steps:
#     text -> normalizers -> pre-tokenizers -> merges -> ids        ids -> decoders -> text
# A normalizer or pre-tokenizer writes a space as "▁".  A character without a token becomes its
# bytes, such as <0x0A>, or the unknown token.  Each step also says where its characters come from.
# Here are the steps of these models; bpe_tokenizer_tools/formats/components.py adds all others to
# these classes, and runs the merges in C.
# Source: the behavior of huggingface/tokenizers 0.23 (tests/formats/test_components.py).


class _StepText(NamedTuple):
    """Text between two steps, and where each of its characters comes from.

    `spans` is None if nobody needs it; then steps leave it alone.
    """

    chars: str
    spans: _Spans | None = None

    def cut(self, start: int, end: int) -> _StepText:
        """Return a part of it."""
        return _StepText(
            self.chars[start:end], None if self.spans is None else self.spans[start:end]
        )


_Find = Callable[[str], Iterable[_Span]]  # where a pattern matches in a text
_Step = Callable[[_StepText], Any]  # a normalizer gives a text, a pre-tokenizer several
# The maker of each step, by its type, and its keys other than "type".
_Makers = Mapping[str, tuple[Callable[[_JsonReader], Any], str]]


def _make_step(step: _JsonReader, makers: _Makers) -> Any:
    """Return the object that runs a step of tokenizer.json."""
    return _maker_of(step, makers)[0](step)


def _maker_of(step: _JsonReader, makers: _Makers) -> tuple[Callable[[_JsonReader], Any], str]:
    kind = step.get("type", str)
    if kind not in makers:
        if not _WITH_TOOLS:
            _reader_of(f"{_shorten(kind)} in a chain of steps", step, "type")  # raises
        names = ", ".join(sorted(makers.keys() - {"SentencePiece"}))
        raise step.error(f"{_shorten(kind)} is not supported, only {names}", "type")
    return makers[kind]


_LINES = ("\n+", r"\n+")  # Gemma 4's pattern


def _read_finder(step: _JsonReader) -> _Find:
    """Read a {"String": ...} pattern; tools read a {"Regex": ...}."""
    pattern = step.child("pattern")
    if pattern is not None:
        _check_keys(pattern, _KEYS["pattern"])
    if pattern is None or len(pattern.data) != 1:
        raise step.error("expected {'Regex': ...} or {'String': ...}", "pattern")
    text = pattern.data.get("String")
    if text:
        compiled = re.compile(re.escape(text))
    elif pattern.data.get("Regex") in _LINES and not _WITH_TOOLS:
        compiled = re.compile(r"\n+")
    else:
        what = f"the pattern {_shorten(next(iter(pattern.data.values())))}"
        found: _Find = _reader_of(what, pattern).read_finder(step)
        return found
    return lambda chars: (match.span() for match in compiled.finditer(chars))


def _read_replace(step: _JsonReader) -> _Step:
    """Read a Replace, which puts a text in place of each match."""
    find, content = _read_finder(step), step.get("content", str)
    literal = step.data["pattern"].get("String")

    def run(text: _StepText) -> _StepText:
        if not text.chars:  # nothing matches there, not even an empty pattern
            return text
        if literal and (text.spans is None or len(literal) == len(content) == 1):  # much faster
            return _StepText(text.chars.replace(literal, content), text.spans)
        parts: list[str] = []
        spans: list[Iterable[_Span]] = []
        done = 0
        for start, end in find(text.chars):
            parts += text.chars[done:start], content
            if text.spans is not None:  # new characters map to the last one replaced
                last = text.spans[end - 1] if end else (0, 0)
                spans += text.spans[done:start], [last] * len(content)
            done = end
        if not parts:
            return text
        parts.append(text.chars[done:])
        return _StepText("".join(parts), text.spans and _Spans.joined([*spans, text.spans[done:]]))

    return run


def _prepended(text: _StepText, prefix: str) -> _StepText:
    spans = text.spans and _Spans.joined([[text.spans[0]] * len(prefix), text.spans])
    return _StepText(prefix + text.chars, spans)


def _read_prepend(step: _JsonReader) -> _Step:
    """Read a Prepend, which puts a text before any text that is not empty."""
    prefix = step.get("prepend", str)
    if not prefix:  # tokenizers gives wrong offsets, or panics in the next normalizer
        raise step.error("is empty, which tokenizers can't run; remove this normalizer", "prepend")
    return lambda text: _prepended(text, prefix) if text.chars else text


_NORMALIZER_MAKERS: _Makers = {
    "Replace": (_read_replace, "pattern:dict content:str"),
    "Prepend": (_read_prepend, "prepend:str"),
}


_BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")


def _cuts_at(text: str, find: _Find, invert: bool) -> list[tuple[int, int, bool]]:
    """List the (start, end, matches) that make up a text."""
    cuts: list[tuple[int, int, bool]] = []
    done = 0
    for start, end in find(text):
        if start > done:
            cuts.append((done, start, invert))
        cuts.append((start, end, not invert))
        done = end
    if done < len(text):
        cuts.append((done, len(text), invert))
    return cuts


def _merge_cuts(cuts: list[tuple[int, int, bool]], behavior: str) -> Iterator[_Span]:
    """Join cuts as a behavior asks."""
    if behavior == "MergedWithNext":
        mirrored = [(-end, -start, matches) for start, end, matches in reversed(cuts)]
        joined = list(_merge_cuts(mirrored, "MergedWithPrevious"))
        yield from ((-end, -start) for start, end in reversed(joined))
        return
    current: list[int] = []
    before = False
    for start, end, matches in cuts:
        if behavior == "Contiguous":
            joins = matches == before
        else:
            joins = behavior == "MergedWithPrevious" and matches and not before
        if current and joins:
            current[1] = end
        else:
            if current:
                yield current[0], current[1]
            current = [start, end]
        before = matches
    if current:
        yield current[0], current[1]


def _splits(find: _Find, behavior: str, invert: bool = False) -> _Step:
    """Make a pre-tokenizer from a pattern and the behavior at its matches."""

    def run(text: _StepText) -> Iterable[_StepText]:
        cuts = _cuts_at(text.chars, find, invert)
        if behavior == "Removed":
            return [text.cut(start, end) for start, end, matches in cuts if not matches]
        return [text.cut(start, end) for start, end in _merge_cuts(cuts, behavior)]

    return run


def _read_behavior(step: _JsonReader, default: Any = _REQUIRED) -> str:
    behavior: str = step.get("behavior", str, default=default)
    if behavior not in _BEHAVIORS:
        known = ", ".join(_BEHAVIORS)
        raise step.error(f"expected one of {known}, got {_shorten(behavior)}", "behavior")
    return behavior


def _read_split(step: _JsonReader) -> _Step:
    find, behavior = _read_finder(step), _read_behavior(step)
    return _splits(find, behavior, step.get("invert", bool, default=False))


class _Metaspace:
    """Replaces spaces by a mark, puts one before the text if asked to, and cuts before marks."""

    def __init__(self, step: _JsonReader) -> None:
        self.mark = mark = step.get("replacement", str)
        if len(mark) != 1:
            raise step.error(f"expected one character, got {_shorten(mark)}", "replacement")
        self._prepends = _prepend_scheme(step) == "always"
        self.splits = step.get("split", bool, None, default=None) is not False
        marks = re.compile(re.escape(mark))
        self._cut = _splits(lambda text: map(re.Match.span, marks.finditer(text)), "MergedWithNext")

    def marked(self, text: _StepText) -> _StepText:
        """Do all but cut."""
        text = _StepText(text.chars.replace(" ", self.mark), text.spans)
        starts = text.chars.startswith(self.mark)
        return _prepended(text, self.mark) if self._prepends and not starts else text

    def __call__(self, text: _StepText) -> Iterable[_StepText]:
        text = self.marked(text)
        return cast("Iterable[_StepText]", self._cut(text)) if self.splits else [text]


def _prepend_scheme(step: _JsonReader) -> str:
    """Read when a Metaspace puts its mark before the text: always, first or never."""
    old = step.get("add_prefix_space", bool, default=True)  # in older files
    scheme: str = step.get("prepend_scheme", str, default="always" if old else "never")
    if scheme not in ("always", "first", "never"):
        raise step.error(
            f"expected 'always', 'first' or 'never', got {_shorten(scheme)}", "prepend_scheme"
        )
    if not old and scheme != "never":  # HuggingFace rejects it, too
        raise step.error(
            f"{scheme!r} contradicts add_prefix_space, which is false", "prepend_scheme"
        )
    return scheme


_METASPACE = (  # the last two in older files
    "replacement:str prepend_scheme:str split:bool|null add_prefix_space:bool str_rep:str"
)
_PRE_TOKENIZER_MAKERS: _Makers = {
    "Split": (_read_split, _KEYS["Split"]),
    "Metaspace": (_Metaspace, _METASPACE),
}

# In all chains of decoders in use, a token's text depends on the token itself and on whether it is
# first or last.  Only a Strip after a Fuse sees the whole text, and it trims the beginning.  So ids
# are decoded one by one, which streaming needs.


class _Place(NamedTuple):
    """The position of a token among those decoded."""

    first: bool
    last: bool = False


_Spelling = tuple[bytes, bool]  # how it is written; whether it is added, and not in the alphabet
_TokenDecoder = Callable[[bytes, _Place], bytes]


def _decode_replace(step: _JsonReader) -> _TokenDecoder:
    pattern = step.child("pattern")
    if pattern is None or "Regex" in pattern.data:
        raise step.error("only {'String': ...} is supported in a decoder", "pattern")
    _check_keys(pattern, "String:str")
    old, new = pattern.get("String", str).encode(), step.get("content", str).encode()
    if not old:
        raise step.error("is empty", "pattern")
    return lambda token, place: token.replace(old, new)


_BYTE_TOKEN = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_ONE_BY_ONE = "bpe_tokenizer.one_by_one"  # a handler of errors, for `bytes.decode`


def _one_by_one(error: Any) -> tuple[str, int]:
    """Replace one byte with U+FFFD, as SentencePiece does; then decoding goes on after it."""
    return "\ufffd", error.start + 1


codecs.register_error(_ONE_BY_ONE, _one_by_one)


def _decode_byte_fallback(step: _JsonReader) -> _TokenDecoder:
    def run(token: bytes, place: _Place) -> bytes:
        found = _BYTE_TOKEN.fullmatch(token)
        return bytes([int(found[1], 16)]) if found else token

    return run


def _decode_metaspace(step: _JsonReader) -> _TokenDecoder:
    mark = step.get("replacement", str).encode()
    drops = _prepend_scheme(step) != "never"
    return lambda token, place: token.replace(mark, b"" if place.first and drops else b" ")


def _decode_strip(step: _JsonReader) -> _TokenDecoder:
    content, start, stop = _read_strip(step)

    def run(token: bytes, place: _Place) -> bytes:
        token = _strip_start(token, content, start)
        return _strip_start(token[::-1], content[::-1], stop)[::-1]

    return run


def _read_strip(step: _JsonReader) -> tuple[bytes, int, int]:
    content = step.get("content", str)
    if len(content) != 1:
        raise step.error(f"expected one character, got {_shorten(content)}", "content")
    start, stop = step.get("start", int), step.get("stop", int)
    for key, count in (("start", start), ("stop", stop)):
        if count < 0:
            raise step.error(f"expected the most characters to strip, 0 or more, got {count}", key)
    return content.encode(), start, stop


def _strip_start(token: bytes, content: bytes, times: int) -> bytes:
    at = 0
    while times and token.startswith(content, at):
        at, times = at + len(content), times - 1
    return token[at:]


def _fuse(step: _JsonReader) -> _TokenDecoder:
    return lambda token, place: token  # pieces are joined anyway


_DECODER_MAKERS: _Makers = {
    "Replace": (_decode_replace, "pattern:dict content:str"),
    "ByteFallback": (_decode_byte_fallback, ""),
    "Metaspace": (_decode_metaspace, _METASPACE),
    "Strip": (_decode_strip, "content:str start:int stop:int"),
    "Fuse": (_fuse, ""),
}


def _check_growth(steps: list[_JsonReader], name: str) -> None:
    """Refuse steps that may make a text much longer; tools work out by how much they do."""
    if len(steps) > 100:
        raise steps[100].error(f"{len(steps)} {name}; the limit is 100")
    for step in steps:
        old = step.data.get("pattern", {}).get("String") or " "
        if len(step.data.get("content", "")) > len(old) or len(step.data.get("prepend", "")) > 100:
            _reader_of(f"a {step.data['type']} that inserts this much", step)


class _Decoder:
    """A chain of decoders; `has_bytes` if tokens such as <0xE4> are bytes."""

    makers = _DECODER_MAKERS
    check_growth = staticmethod(_check_growth)

    def __init__(self, data: _JsonReader) -> None:
        steps = list(_steps(data, "decoder"))
        self._steps: list[tuple[str, _TokenDecoder]] = []
        self._strip: tuple[bytes, int] | None = None  # from the start of the whole
        self._finally: _TokenDecoder | None = None
        self._joiner = b"" if steps else b" "
        fused = False
        for step in steps:
            kind = step.get("type", str)
            if kind == "Fuse":
                fused = True
            elif kind == "Strip" and fused and self._strip is None and self._finally is None:
                content, start, stop = _read_strip(step)
                if stop:
                    raise step.error("is not supported after Fuse, only 0", "stop")
                self._strip = content, start
            elif kind == "Replace" and fused and self._finally is None:
                self._finally = _decode_replace(step)
                # NOTE: it runs on each piece, so that a character made of byte tokens stays, as in
                # SentencePiece.  A longer text could be in two pieces.
                if len(step.data["pattern"]["String"]) > 1:
                    raise step.error("only one character is supported after Fuse", "pattern")
            elif fused:
                raise step.error(f"{_shorten(kind)} is not supported after Fuse", "type")
            else:
                self._steps.append((kind, _make_step(step, self.makers)))
        self.has_bytes = any(kind == "ByteFallback" for kind, _ in self._steps)
        self.check_growth(steps, "decoders")

    def pieces(self, tokens: Iterable[_Spelling | None], unknown: bytes) -> Iterator[bytes]:
        """Decode tokens as they come; None is an unknown one."""
        pieces = (
            (b"" if place.first else self._joiner) + self._decode(token, place, unknown)
            for token, place in self._placed(tokens)
        )
        stripped = self._stripped(pieces) if self._strip else pieces
        last = self._finally
        if last is None:
            return stripped
        return (last(piece, _Place(first=False)) for piece in stripped)

    def _placed(
        self, tokens: Iterable[_Spelling | None]
    ) -> Iterator[tuple[_Spelling | None, _Place]]:
        first = True
        for token in tokens:
            yield token, _Place(first)
            first = False

    def _decode(self, token: _Spelling | None, place: _Place, unknown: bytes) -> bytes:
        if token is None:
            return unknown
        written, added = token
        for kind, step in self._steps:
            if not (added and kind == "ByteLevel"):  # it is not written in bytes
                written = step(written, place)
        return written

    def _stripped(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        content, left = self._strip or (b" ", 0)
        for piece in pieces:
            rest = _strip_start(piece, content, left)
            left = left - (len(piece) - len(rest)) // len(content) if not rest else 0
            yield rest


_MAX_EFFORT = 4_000_000  # characters of added tokens, times normalizers; takes about 2 s


class _Chain:
    """The steps of a tokenizer.json, ready to run."""

    makers: Mapping[str, _Makers] = {
        "normalizer": _NORMALIZER_MAKERS,
        "pre_tokenizer": _PRE_TOKENIZER_MAKERS,
        "decoder": _DECODER_MAKERS,
    }
    options: Collection[str] = ("unk_token", "fuse_unk", "byte_fallback")  # of the model
    decoder_class: type[_Decoder] = _Decoder
    check_growth = staticmethod(_check_growth)

    def __init__(self, data: _JsonReader) -> None:
        for option, value in data.data.get("model", {}).items():
            if value and option not in self.options:
                _reader_of(f"a model with {option}", data, f"model.{option}")
        normalizers = list(_steps(data, "normalizer"))
        pre_tokenizers = list(_steps(data, "pre_tokenizer"))
        both = self.makers["normalizer"], self.makers["pre_tokenizer"]
        self._normalizers = [_make_step(step, both[0]) for step in normalizers]
        self._pre_tokenizers = [_make_step(step, both[1]) for step in pre_tokenizers]
        self.decoder = self.decoder_class(data)
        self.check_growth([*normalizers, *pre_tokenizers], "normalizers and pre-tokenizers")
        self.mark = ""  # the mark that a Metaspace puts before the very first text only
        for i, step in enumerate(pre_tokenizers):
            if step.data["type"] == "Metaspace" and _prepend_scheme(step) == "first":
                if i or any(step.data["type"] == "Strip" for step in normalizers):
                    raise step.error(
                        "'first' is not supported after Strip or other pre-tokenizers",
                        "prepend_scheme",
                    )
                self.mark = step.get("replacement", str)

    def normalize(self, text: _StepText) -> _StepText:
        """Run the normalizers."""
        for step in self._normalizers:
            text = step(text)
        return text

    def check_tokens(self, tokens: Iterable[AddedToken]) -> None:
        """Raise a ValueError if normalizing these added tokens takes too long."""
        texts = [token.content for token in tokens if token.normalized]
        steps = len(self._normalizers)
        if (sum(map(len, texts)) + 10 * len(texts)) * steps > _MAX_EFFORT:
            raise ValueError(
                f"{len(texts):,} added tokens with normalized=True, each to be changed by "
                f"{steps:,} normalizers: more than any tokenizer in use needs"
            )

    def as_found(self, content: str) -> str:
        """Return the form of an added token in normalized text."""
        return self.normalize(_StepText(content)).chars

    def pre_tokenize(self, text: _StepText) -> Iterable[_StepText]:
        """Run the pre-tokenizers."""
        pieces: Iterable[_StepText] = [text]
        for step in self._pre_tokenizers:
            pieces = [part for piece in pieces for part in step(piece) if part.chars]
        return pieces

    def cut(self, text: str) -> list[str]:
        """Run the pre-tokenizers on text that needs no offsets."""
        return [piece.chars for piece in self.pre_tokenize(_StepText(text))]


class _ChainPipeline(_Pipeline):
    """Prepares text with a chain of steps instead of a normal form."""

    def __init__(self, chain: _Chain, tokens: Iterable[AddedToken]) -> None:
        self._chain = chain
        tokens = list(tokens)
        super().__init__(_splitter(_UNCUT_PATTERN), None, False, tokens)
        self.normalizes = True
        normalized = (token for token in tokens if token.normalized)
        self.normalized = _TokenFinder(normalized, chain.as_found)

    def normalize(self, text: str) -> str:
        return self._chain.normalize(_StepText(text)).chars

    def align(self, text: str) -> tuple[str, _Spans]:
        chars, spans = self._chain.normalize(_StepText(text, _Spans.whole(len(text))))
        return chars, cast("_Spans", spans)

    def prefixed(self, text: str, first: bool) -> str:
        mark = self._chain.mark
        return mark + text if mark and first and not text.startswith((" ", mark)) else text

    def last_border(self, before: str, chunk: str) -> int | None:
        return None  # a chain may depend on the whole text, so nothing is final before its end


class _CharacterEncoder(_Encoder):
    """A definition with components, ready to run."""

    chain_class: type[_Chain] = _Chain

    def __init__(self, definition: Definition) -> None:
        components = definition.components or {}
        self._definition = definition
        self._chain = chain = self.chain_class(_JsonReader(components, Path()))
        chain.check_tokens(definition.added)
        options = components.get("model", {})
        self._fuse_unk = bool(options.get("fuse_unk"))
        self._byte_fallback = bool(options.get("byte_fallback"))
        self._bare = len(options.get("continuing_subword_prefix") or "")  # not in a merged token
        if chain.decoder.has_bytes:
            self.replacing = _ONE_BY_ONE
        self._vocab = {token.decode(): id_ for token, id_ in definition.vocab.items()}
        self._written = written = {id_: token for token, id_ in self._vocab.items()}
        self.tokens = {id_: token.encode() for id_, token in written.items()}
        merges = self._list_merges()
        self._ranks = _rank_pairs(merges)
        self._merged = [
            self._vocab[written[left] + written[right][self._bare :]] for left, right in merges
        ]
        self._whole = definition.vocab if definition.ignore_merges else {}
        for token in definition.added:  # one found in normalized text decodes to its form there
            found = chain.as_found(token.content) if token.normalized else token.content
            self.tokens[token.id or 0] = found.encode()
        self._as_text = {token.id for token in definition.added}
        unknown = options.get("unk_token")
        added = {token.content: token.id for token in definition.added}
        self._unk_id = None
        if unknown is not None:
            self._unk_id = added.get(unknown, self._vocab.get(unknown))
        self._bytes = [self._vocab.get(f"<0x{byte:02X}>") for byte in range(256)]
        self._cache = _PretokenCache(self._encode_pretoken)

    def _list_merges(self) -> Sequence[_Pair]:
        return self._definition.merges

    def pipeline(self, tokens: Iterable[AddedToken]) -> _Pipeline:
        """Return the pipeline that finds these added tokens."""
        return _ChainPipeline(self._chain, tokens)

    def plain(self, pipeline: _Pipeline, method: str = "encode_plain") -> None:
        """Leave all text to the pipeline: components change it."""

    def _split(self, text: str) -> list[str]:
        """Cut prepared text into pre-tokens."""
        return self._chain.cut(text)

    def _encode_pretoken(self, pretoken: bytes) -> list[int]:
        whole = self._whole.get(pretoken)
        if whole is not None:
            return [whole]
        return self._merge([id_ for id_, _ in self._symbols(pretoken.decode())])

    def _spelled(self, pretoken: str) -> Sequence[str]:
        """Return the tokens that the characters of a pre-token would be."""
        return pretoken

    def _symbols(self, pretoken: str) -> list[tuple[int, int]]:
        """Return the (id, number of bytes) that merging starts from.

        Source: tokenizers, models/bpe/model.rs, merge_word; like there, a run of unknown
        characters waits until a known one comes.
        """
        symbols: list[tuple[int, int]] = []
        waiting: list[tuple[int, int]] = []
        for char, written in zip(pretoken, self._spelled(pretoken)):
            size = len(char.encode())
            id_ = self._vocab.get(written)
            if id_ is not None:
                symbols += [*waiting, (id_, size)]
                waiting = []
                continue
            fallback = self._in_bytes(written)
            if fallback:
                symbols += [(byte_id, 1) for byte_id in fallback]
            elif self._unk_id is not None:
                if waiting and self._fuse_unk:
                    size += waiting.pop()[1]
                symbols += waiting
                waiting = [(self._unk_id, size)]
        return symbols + waiting

    def _in_bytes(self, written: str) -> list[int]:
        """Return the ids of a character's bytes; none without byte fallback."""
        ids = [self._bytes[byte] for byte in written.encode()] if self._byte_fallback else []
        return [] if None in ids else cast("list[int]", ids)

    def unknown(self) -> str:
        """Describe the symbols of ordinary text without a token, and their fate; "" if none.

        Ordinary text is printable ASCII, tab and newline; if text is cut into bytes, it is every
        byte of any UTF-8 text.
        """
        missing: dict[str, None] = {}
        found_first = {token.content for token in self._definition.added if not token.special}
        for char in (char for char in self._ordinary() if char not in found_first):
            for piece in self._chain.cut(self._chain.normalize(_StepText(char * 3)).chars):
                for written in self._spelled(piece) if piece.encode() not in self._whole else ():
                    has_id = self._vocab.get(written) in self.tokens
                    if not has_id and not self._in_bytes(written):
                        missing[written] = None
        if not missing:
            return ""
        shown = ", ".join(map(self._show, itertools.islice(missing, 10)))
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        fate = "is dropped"
        if self._unk_id is not None:
            fate = f"becomes {self.tokens[self._unk_id].decode()!r}"
        return f"no token for these characters of ordinary text: {shown}{more}; each {fate}"

    def _ordinary(self) -> Iterable[str]:
        return map(chr, [*range(0x20, 0x7F), 0x09, 0x0A])

    def _show(self, written: str) -> str:
        """Show a symbol that has no token."""
        return repr(written)

    def encode_aligned(
        self, text: str, spans: _Spans, known: list[int] | None = None
    ) -> tuple[list[int], list[_Span]]:
        """Encode as `encode` does, and return the spans of tokens; `known` are ids it gave."""
        if known is None:
            _utf8_length(text)  # raises for a lone surrogate, with its place
        ids: list[int] = []
        offsets: list[_Span] = []
        for piece in self._chain.pre_tokenize(_StepText(text, spans)):
            new = list(self._cache[piece.chars])
            ids += new
            offsets += self._places(piece, new)
        return ids, offsets

    def _places(self, piece: _StepText, ids: list[int]) -> Iterator[_Span]:
        """Return the places of one pre-token's tokens."""
        spans = piece.spans or _Spans.whole(0)
        char_of_byte = [i for i, char in enumerate(piece.chars) for _ in char.encode()]
        if len(ids) == 1 and self._whole.get(piece.chars.encode()) == ids[0]:
            yield spans[0][0], spans[-1][1]
            return
        symbols = iter(self._symbols(piece.chars))
        start = 0
        for id_ in ids:
            part, size = next(symbols)
            written = self._written.get(part, "")
            while part != id_ and written != self._written[id_]:
                part, more = next(symbols)
                written += self._written[part][self._bare :]
                size += more
            if not size:  # the marker at the end of a word
                yield spans[-1][1], spans[-1][1]
                return
            end = start + size  # NOTE: bytes of a suffix may have become tokens too
            first, last = (char_of_byte[min(at, len(char_of_byte) - 1)] for at in (start, end - 1))
            yield spans[first][0], spans[last][1]
            start = end

    def decode(self, ids: Any, errors: str) -> bytes:
        """Join the bytes of tokens; `errors` handles unknown ids."""
        return b"".join(self.decode_pieces(_plain_ids(ids), errors))

    def decode_pieces(self, ids: Iterable[int], errors: str) -> Iterator[bytes]:
        """Decode as `decode` does, piece by piece, as the ids arrive."""
        unknown = "\ufffd".encode() if errors == "replace" else b""
        return self._chain.decoder.pieces(self._known(ids, errors), unknown)

    def _spelling(self, id_: int) -> _Spelling:
        return self.tokens[id_], id_ in self._as_text

    def _known(self, ids: Iterable[int], errors: str) -> Iterator[_Spelling | None]:
        for id_ in ids:
            if id_ in self.tokens:
                yield self._spelling(id_)
            elif errors == "strict":
                _decode_ids([id_], self.tokens, errors)  # raises
            elif errors == "replace":
                yield None


def _make_encoder(definition: Definition) -> _Encoder:
    if definition.components is None:
        return _engine.encoder(definition)
    make = _tools("formats.components").ComponentEncoder if _WITH_TOOLS else _CharacterEncoder
    return cast("_Encoder", make(definition))


_MODEL_OPTIONS = (
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
)


def _read_components(
    data: _JsonReader,
    ids: Mapping[str, int],
    special: Container[str],
    chain_class: type[_Chain] = _Chain,
) -> dict[str, Any]:
    """Return the components of a tokenizer.json; raise for one that can't be run here.

    Args:
        data: the file.
        ids: its tokens, without added ones.
        special: tokens that never match a character of text.
        chain_class: runs the components.

    Returns:
        Fields of a `Definition`: vocab, split_pattern, normalizer and components.
    """
    for field, makers in chain_class.makers.items():
        for step in _steps(data, field):
            _check_keys(step, "type:str " + _maker_of(step, makers)[1])
    components = {field: data.data.get(field) for field in chain_class.makers}
    model = data.child("model")
    options: dict[str, Any] = {}
    for option in _MODEL_OPTIONS if model else ():
        kind = str if option.endswith(("token", "prefix", "suffix")) else bool
        options[option] = model and model.get(option, kind, None, default=None)
    unknown = options.get("unk_token")
    if model and unknown is not None and unknown not in model.data["vocab"]:
        raise model.error(f"{_shorten(unknown)} is not in model.vocab", "unk_token")
    components["model"] = options
    if _has_surrogate(json.dumps(components, ensure_ascii=False)):
        raise data.error("a component contains a lone surrogate, which isn't a character")
    chain_class(_JsonReader(components, data.path, data.field))
    vocab = {t.encode(): i for t, i in ids.items() if len(t) > 1 or t not in special}
    return {"vocab": vocab, "split_pattern": "", "normalizer": None, "components": components}


# -- The files beside it ------------------------------------------------------
# One reader for all formats; what they mean is what transformers 5 makes of them:
# - An `added_tokens_decoder` in tokenizer_config.json makes the older special_tokens_map.json and
#   added_tokens.json meaningless.  Without one, special_tokens_map.json overrides the roles.
# - Templates in .jinja files replace all those in tokenizer_config.json.

_KEPT_SETTINGS = ("model_max_length", "padding_side", "truncation_side", "name")
_NO_LIMIT = int(1e30)  # as transformers writes it
_EXTRA, _ADDITIONAL = "extra_special_tokens", "additional_special_tokens"
_ROLE_ORDER = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")  # in which transformers adds them


@dataclass
class _SideFiles:
    """What the files beside a vocabulary say.

    `tokens` are the declared ones in the order in which transformers adds those that the vocabulary
    lacks: by id, then those that only a role or a list names, without an id.
    """

    config: _JsonReader  # tokenizer_config.json, empty if there is none; has flags such as `legacy`
    names: _JsonReader | None = None  # special_tokens_map.json
    has_decoder: bool = False  # then the flags and ids of tokens are those in `config`
    tokens: dict[str, AddedToken] = dataclasses.field(default_factory=dict)
    roles: dict[str, str] = dataclasses.field(default_factory=dict)
    named: dict[str, str] = dataclasses.field(default_factory=dict)  # such as "image_token"
    further: list[str] = dataclasses.field(default_factory=list)  # special, without a name
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    templates: dict[str, str] = dataclasses.field(default_factory=dict)  # Jinja, by name


def _read_side_files(
    folder: Path, files: Mapping[Path, bytes], config_name: str = _SIDE_FILES[0]
) -> _SideFiles:
    """Read the files beside a vocabulary, of those that `_side_files` names."""
    readers = {
        path.name: _JsonReader.open(path, raw)
        for path, raw in files.items()
        if path.parent == folder and path.suffix == ".json"
    }
    config = readers.get(config_name) or _JsonReader({}, folder / config_name)
    found = _SideFiles(config, readers.get("special_tokens_map.json"))
    _read_declared_tokens(found, readers.get("added_tokens.json"))
    _read_settings(config, found.settings)
    in_config = _read_chat_templates(config)
    found.templates = _read_template_files(files) or in_config
    of_processor = readers.get("chat_template.json")  # of AutoProcessor
    if not found.templates and of_processor is not None:
        found.templates = _read_chat_templates(of_processor)
    found.settings["files"] = {
        "config": config.data,
        "names": found.names and found.names.data,
        "named": found.named,
        "in_files": found.templates != in_config,
    }
    return found


def _read_declared_tokens(found: _SideFiles, older: _JsonReader | None) -> None:
    """Read roles, named tokens and lists of tokens; `older` is added_tokens.json."""
    config = found.config
    decoder = config.child("added_tokens_decoder")
    found.has_decoder = decoder is not None
    names = None if found.has_decoder else found.names
    roles: dict[str, AddedToken] = {}
    for reader in filter(None, (config, names)):  # the later one wins, even with null
        for role in _ROLES:
            if role in reader.data:
                roles.pop(role, None)
                if token := _declared_token(reader, role):
                    roles[role] = token
    named = _read_named_tokens(config, names)
    # In the mapping of named tokens, the name of a role overrides the role.
    roles |= {role: named.pop(role) for role in _ROLES if role in named}
    further = _read_further_tokens(config, names)
    found.roles = {role: token.content for role, token in roles.items()}
    found.named = {name: token.content for name, token in named.items()}
    found.further = [token.content for token in further]

    special = {*found.roles.values(), *found.named.values()}
    by_id: list[AddedToken] = []
    if decoder is not None:
        by_id = [_decoder_token(decoder, key) for key in decoder.data]
    elif older is not None:
        by_id = [_older_token(older, text, {*special, *found.further}) for text in older.data]
    by_id.sort(key=lambda token: cast("int", token.id))
    without_id = [roles[f"{name}_token"] for name in _ROLE_ORDER if f"{name}_token" in roles]
    for token in (*by_id, *without_id, *named.values(), *further):
        known = found.tokens.get(token.content, token)
        if token.id is not None:  # listed twice: the flags of the later one
            known = token
        makes_special = token.content in special and not known.special
        found.tokens[token.content] = (
            dataclasses.replace(known, special=True) if makes_special else known
        )


def _declared_token(reader: _JsonReader, key: str, value: Any = _REQUIRED) -> AddedToken | None:
    """Read a special token, written as text or with its flags; None for null or no text."""
    value = reader.data.get(key) if value is _REQUIRED else value
    if isinstance(value, dict):
        return _flagged_token(reader.at(key, value), special=True)
    if value is not None and not isinstance(value, str):
        raise reader.error(f"expected str or dict or null, got {_shorten(value)}", key)
    if value and _has_surrogate(value):
        raise reader.error("is not valid Unicode", key)
    return AddedToken(value) if value else None


def _flagged_token(item: _JsonReader, special: bool, id_: int | None = None) -> AddedToken:
    content = item.get("content", str)
    if not content or _has_surrogate(content):
        raise item.error("is empty, or not valid Unicode", "content")
    special = item.get("special", bool, default=special) or id_ is None
    flags = {
        flag: item.get(flag, bool, default=False) for flag in ("single_word", "lstrip", "rstrip")
    }
    normalized = item.get("normalized", bool, default=not special)
    return AddedToken(content, id_, **flags, normalized=normalized, special=special)


def _decoder_token(decoder: _JsonReader, key: str) -> AddedToken:
    """Read a token of `added_tokens_decoder`, whose key is its id."""
    is_id = key.isascii() and key.isdecimal() and len(key) <= 10 and int(key) <= _MAX_ID
    if not is_id:
        raise decoder.error("expected an id and the token that has it", key)
    return _flagged_token(decoder.at(key, decoder.data[key]), special=False, id_=int(key))


def _older_token(older: _JsonReader, text: str, special: Container[str]) -> AddedToken:
    """Read a token of added_tokens.json, which has only ids."""
    id_ = older.get(text, int)
    if not text or _has_surrogate(text) or not 0 <= id_ <= _MAX_ID:
        raise older.error(f"expected a token and its id, got {id_}", _shorten(text))
    is_special = text in special
    return AddedToken(text, id_, normalized=not is_special, special=is_special)


def _read_named_tokens(config: _JsonReader, names: _JsonReader | None) -> dict[str, AddedToken]:
    """Read tokens with a name of the model's own, such as "image_token"."""
    found: dict[str, AddedToken] = {}
    for reader in filter(None, (names, config)):  # the later one wins
        if reader is config and not _names_tokens(config):
            # What transformers 5 saves; it ignores this beside other names.
            found |= _read_mapping(config, "model_specific_special_tokens")
        for key, value in reader.data.items():
            is_named = key.endswith("_token") and key not in _ROLES
            is_token = isinstance(value, str) or (
                isinstance(value, dict) and (reader is names or "__type" in value)
            )
            if is_named and is_token and (token := _declared_token(reader, key)):
                found[key] = token
    for reader in filter(None, (config, names)):
        found |= _read_mapping(reader, _EXTRA)
    return found


def _names_tokens(config: _JsonReader) -> bool:
    """Return whether tokenizer_config.json names tokens of the model's own."""
    strings = (key for key, value in config.data.items() if isinstance(value, str))
    has_name = any(key.endswith("_token") and key not in _ROLES for key in strings)
    return has_name or isinstance(config.data.get(_EXTRA), dict)


def _read_mapping(reader: _JsonReader, field: str) -> dict[str, AddedToken]:
    """Read the named tokens in a field, if it is a mapping."""
    mapping: Any = reader.data.get(field)
    named = mapping if isinstance(mapping, dict) else {}
    read = {key: _declared_token(reader, f"{field}.{key}", named[key]) for key in named}
    return {key: token for key, token in read.items() if token is not None}


def _read_further_tokens(config: _JsonReader, names: _JsonReader | None) -> list[AddedToken]:
    """Read the lists of special tokens that count; transformers ignores some."""
    extra = config.get(_EXTRA, list, dict, None, default=None)
    lists: list[tuple[_JsonReader, str]] = []
    is_open = False  # whether `additional_special_tokens` elsewhere still counts
    if isinstance(extra, list) and extra:
        lists = [(config, _EXTRA)]
    elif not extra and _ADDITIONAL in config.data:
        lists = [(config, _ADDITIONAL)]
    else:
        is_open = isinstance(extra, dict) or _EXTRA not in config.data
    more = names and names.get(_EXTRA, list, dict, None, default=None)
    if names is not None and isinstance(more, list):
        lists.append((names, _EXTRA))
    elif isinstance(more, dict) or (is_open and more is None):
        has = [each for each in (names, config) if each is not None and _ADDITIONAL in each.data]
        lists = [(has[0], _ADDITIONAL)] if has else []
    found: dict[str, AddedToken] = {}
    for reader, key in lists:
        for i, value in enumerate(reader.get(key, list, None, default=None) or []):
            if token := _declared_token(reader, f"{key}[{i}]", value):
                found.setdefault(token.content, token)
    return list(found.values())


def _read_beside(
    side: _SideFiles, data: _JsonReader, definition: Definition, raw: bytes | None = None
) -> tuple[Definition, dict[str, str], dict[str, Any], dict[str, str]]:
    """Read what is beside a tokenizer.json: the definition, roles, settings, chat templates.

    Tokens that only those files declare get the next ids, as in transformers.  `raw` is the
    content of tokenizer.json, if `data` may be without its vocabulary.
    """
    known = {token.content for token in definition.added}
    new = [token for token in side.tokens.values() if token.content not in known]
    if not side.has_decoder:  # transformers reads both files into one mapping by id
        taken = {token.id for token in definition.added}
        new = [token for token in new if token.id not in taken]
    if new:
        if raw is not None:
            data = _JsonReader.open(data.path, raw)
        vocab = data.data["model"]["vocab"]
        ids = (cast("int", token.id) for token in definition.added)
        free = itertools.count(max(len(vocab), max(ids, default=-1) + 1))
        numbered = [
            dataclasses.replace(token, id=vocab[token.content])
            if token.content in vocab
            else dataclasses.replace(token, id=next(free))
            for token in new
        ]
        listed = data.get("added_tokens", list, None, default=None) or []
        data.data["added_tokens"] = [*listed, *map(dataclasses.asdict, numbered)]
        definition = _read_definition(data)
    return _with_side_files(side, definition)


def _with_side_files(
    side: _SideFiles, definition: Definition
) -> tuple[Definition, dict[str, str], dict[str, Any], dict[str, str]]:
    """Give a definition's tokens the flags that the files beside it declare, and its rule."""
    special = {*side.roles.values(), *side.named.values()}
    added = []
    for token in definition.added:
        declared = side.tokens.get(token.content)
        declared_id = -1 if declared is None or declared.id is None else declared.id
        # Without a decoder, transformers adds the tokens of both files by id, and the last wins.
        wins = declared_id >= 0 if side.has_decoder else declared_id > cast("int", token.id)
        if declared is not None and wins:
            token = dataclasses.replace(declared, id=token.id)
        if token.content in special and not token.special:
            token = dataclasses.replace(token, special=True)
        added.append(token)
    definition = dataclasses.replace(definition, added=tuple(added))
    ids = {token.content: token.id for token in added}
    rule = _rule_of(side.config.data.get("surround"), side.roles, ids, definition.template)
    definition = dataclasses.replace(definition, template=rule)
    settings = {**side.settings, "files": {**side.settings["files"], "added": [*ids]}}
    return definition, side.roles, settings, side.templates


def _rule_of(
    rule: Any, roles: _Named, ids: Mapping[str, int | None], template: _Template | str
) -> _Template | str:
    """Return the rule that a file names, if it gives the ids that others add; else those."""
    ends = (ids.get(roles.get(role, "")) for role in ("bos_token", "eos_token"))
    fits = rule in _SURROUND and _template_ids(_elsewhere(rule), *ends) == template
    return cast("str", rule) if fits else template


def _read_settings(config: _JsonReader, settings: dict[str, Any]) -> None:
    """Add what tokenizer_config.json says about lengths and sides; null says nothing."""
    data = {"model_max_length": config.data.get("max_len"), **config.data}  # its old name
    for key in _KEPT_SETTINGS:
        value = data.get(key)
        if key.endswith("_side") and value not in ("left", "right", None):
            raise config.error(f"expected 'left' or 'right', got {_shorten(value)}", key)
        no_limit = isinstance(value, (int, float)) and value >= 10**29
        if value is not None and not no_limit and (key != "name" or _is_label(value)):
            settings[key] = value  # another program may use `name` otherwise


def _is_label(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip()) and name.isprintable() and len(name) <= 100


def _read_chat_templates(config: _JsonReader) -> dict[str, str]:
    """Read the chat templates of tokenizer_config.json: one, or named ones as list or mapping."""
    value = config.get("chat_template", str, list, dict, None, default=None)
    if isinstance(value, str):
        return {"default": value}
    if isinstance(value, dict):
        named = config.at("chat_template", value)
        return {name: named.get(name, str) for name in value}
    items = [config.at(f"chat_template[{i}]", item) for i, item in enumerate(value or ())]
    return {item.get("name", str): item.get("template", str) for item in items}


def _read_template_files(files: Mapping[Path, bytes]) -> dict[str, str]:
    """Read the chat templates that are files of their own, by name."""
    found: dict[str, str] = {}
    for path, raw in files.items():
        if path.suffix == ".jinja":
            name = path.stem if path.parent.name == _MORE_TEMPLATES else "default"
            found[name] = "".join(_decode_chunks([raw], path))
    return found


def _config_json(
    definition: Definition, roles: _Named, settings: _Named, templates: _Named
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return tokenizer_config.json and special_tokens_map.json; None for a file not to write.

    What was read is written as it was, except for what has changed since.  A single default chat
    template goes into its own file, chat_template.jinja, unless tokenizer_config.json had it.
    """
    if not all(isinstance(part, str) for item in dict(templates).items() for part in item):
        raise TypeError("chat_templates must map names to Jinja source, both str")
    read = settings.get("files") or {}
    new, new_names = _new_config(definition, roles, settings)
    config: dict[str, Any] = new
    names: dict[str, Any] | None = new_names
    if read.get("config") or read.get("names"):
        config, names = _changed_config(read, definition, roles, settings, new)
    rule = definition.template
    # Files of others don't need the rule of ranks, if it adds nothing.
    adds_nothing = rule == "bos" and not roles.get("bos_token") and "surround" not in config
    if isinstance(rule, str) and not (read.get("config") and adds_nothing):
        config["surround"] = rule
    in_config = _read_chat_templates(_JsonReader(read.get("config") or {}, Path()))
    if templates != in_config:
        if not (read.get("in_files") and list(templates) == ["default"]):  # which overrides it
            config.pop("chat_template", None)
        if templates.keys() - {"default"}:
            named = [{"name": name, "template": text} for name, text in templates.items()]
            config["chat_template"] = named
    return config, names


def _new_config(
    definition: Definition, roles: _Named, settings: _Named
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the two files for a tokenizer that was read without them, or made here.

    NOTE: these fields make transformers 4 and 5 agree.  Other class names bring
    their own split pattern, and a list in `extra_special_tokens` makes version 4 fail.
    """
    special = [token.content for token in definition.added if token.special]
    others = [token for token in special if token not in roles.values()]
    names = {**roles, **({_ADDITIONAL: others} if others else {})}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": _NO_LIMIT,
        **{key: value for key, value in settings.items() if key in _KEPT_SETTINGS},
        **names,
        "added_tokens_decoder": {str(token.id): _entry(token) for token in definition.added},
    }
    return config, names


def _entry(token: AddedToken) -> dict[str, Any]:
    """Return a token as `added_tokens_decoder` has it."""
    entry = sorted(dataclasses.asdict(token).items())
    return {key: value for key, value in entry if key != "id"}


def _changed_config(
    read: _Named, definition: Definition, roles: _Named, settings: _Named, new: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the two files as they were read, with what has changed since."""
    said = _SideFiles(_JsonReader(read["config"] or new, Path()))
    if read["names"] is not None:
        said.names = _JsonReader(read["names"], Path())
    _read_declared_tokens(said, None)
    _read_settings(said.config, said.settings)
    config: dict[str, Any] = json.loads(json.dumps(said.config.data))
    names: dict[str, Any] | None = None
    if said.names is not None:
        names = json.loads(json.dumps(said.names.data))
    both = [config] if names is None else [config, names]
    for written in both:
        for role in _ROLES:
            if roles.get(role) != said.roles.get(role):
                written[role] = roles.get(role)  # null: some classes have a default
        _change_lists(written, said, definition, read.get("added") or (), roles)
    if said.has_decoder:
        config["added_tokens_decoder"] = dict(_changed_decoder(said, definition, read))
    for key in _KEPT_SETTINGS:
        if settings.get(key) != said.settings.get(key):
            config.pop(key, None)
            if key in settings or key == "model_max_length":
                config[key] = settings.get(key, _NO_LIMIT)
    if "surround" in config and config.get("model_max_length") == 10**30:  # ours, before 0.10
        config["model_max_length"] = _NO_LIMIT
    config.setdefault("tokenizer_class", new["tokenizer_class"])
    return config, names


def _change_lists(
    written: dict[str, Any],
    said: _SideFiles,
    definition: Definition,
    known: Collection[str],
    roles: _Named,
) -> None:
    """List the special tokens that are new, and drop those that are gone."""
    contents = {token.content for token in definition.added}
    gone = {*said.named.values(), *said.further} - contents
    for key in (_EXTRA, _ADDITIONAL) if gone else ():
        if isinstance(written.get(key), list):
            written[key] = [each for each in written[key] if _content_of(each) not in gone]
    for name in [name for name, content in said.named.items() if content in gone]:
        written.pop(name, None)
        for key in (_EXTRA, "model_specific_special_tokens"):
            if isinstance(written.get(key), dict):
                written[key].pop(name, None)
    named = {*known, *roles.values(), *said.named.values(), *said.further}
    new = [each.content for each in definition.added if each.special and each.content not in named]
    if new:
        is_newer = isinstance(written.get(_EXTRA), list) and written[_EXTRA]
        key = _EXTRA if is_newer else _ADDITIONAL
        written[key] = [*(written.get(key) or ()), *new]


def _content_of(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _changed_decoder(
    said: _SideFiles, definition: Definition, read: _Named
) -> Iterator[tuple[str, Any]]:
    """Yield the entries of `added_tokens_decoder`: those read, if still true, and those changed."""
    entries = said.config.data["added_tokens_decoder"]
    known = {*(read.get("added") or ())} - {_content_of(entry) for entry in entries.values()}
    for token in definition.added:
        key = str(token.id)
        if key in entries and said.tokens.get(token.content) == token:
            yield key, entries[key]
        elif token.content not in known:  # those were only in tokenizer.json
            yield key, _entry(token)


# == 8. Results ===============================================================
# What `encode_batch` gives, as lists or tensors, and how rows are cut and padded.


@dataclass
class EncodingResult:
    """One encoded text.  In a tokenizer's results, fields are computed when first read."""

    input_ids: list[int]
    attention_mask: list[int]  # 1 for tokens and 0 for padding
    tokens: list[str]  # printable
    token_type_ids: list[int] | None = None  # for models that want them
    # The (start, end) of each token in the text as given; (0, 0) if it's not in it.
    offsets: list[_Span] | None = dataclasses.field(default_factory=lambda: None)
    _repr_html_ = _Tool("showing.notebook.result_html")  # for Jupyter; the next is for rich
    __rich__ = _Tool("showing.notebook.result_rich")

    if not TYPE_CHECKING:  # with it, type checkers would accept every name

        def __getattr__(self, name: str) -> Any:
            if "_source" in vars(self) and name in self.__dataclass_fields__:
                return vars(self).setdefault(name, getattr(self._source, name)(self._at, self))
            raise AttributeError(f"EncodingResult has no attribute {name!r}", name=name, obj=self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __len__(self) -> int:
        return len(self.input_ids)

    def keys(self) -> list[str]:
        """Return the fields that a model takes."""
        names = ["input_ids", "attention_mask", "token_type_ids"]
        return [name for name in names if getattr(self, name) is not None]

    def __getitem__(self, key: str) -> Any:
        if key not in self.__dataclass_fields__:
            raise KeyError(key)
        return getattr(self, key)


def _offsets(
    tokenizer: BPETokenizer, text: str, allowed: frozenset[str], trims: bool, record: Any = None
) -> list[_Span]:
    """Return the span of characters that each of a text's ids covers."""
    given, encoder = tokenizer._definition, tokenizer._encoder
    if trims and given.trim_offsets:
        tools = _tools("support.offsets", "offsets without the white space at a token's ends")
        return cast("list[_Span]", tools.trimmed_offsets(tokenizer, text, allowed, record))
    if tokenizer._is_plain(text, allowed):
        return encoder.places(text, record or encoder.encode(text))
    moved = given.prefix_space or _engine.normalize(text, given.normalizer) is not text
    if moved or given.components:
        parts = [(part, spans) for part, spans, _ in _aligned(tokenizer._pipeline(allowed), text)]
        is_whole = type(record) is tuple and [type(part) for part, _ in parts] == [str]
        return _encode_aligned(encoder, parts, [*record] if is_whole else None)[1]
    places: list[_Span] = []
    for part, start, end in tokenizer._pipeline(allowed).parts(text):
        inner = [(0, end - start)]
        if isinstance(part, str):
            inner = encoder.places(part, encoder.encode(part))
        places += [(start + a, start + b) for a, b in inner]
    return places


def _aligned(
    pipeline: _Pipeline, text: str, matches: Iterable[_Match] | None = None, first: bool = True
) -> Iterator[tuple[str | AddedToken, Sequence[_Span], str]]:
    """Cut text as `pipeline.parts` does, with the span of each character of a part.

    The last in each tuple is the part as it is in normalized text.
    """
    matches = pipeline.raw.find(text) if matches is None else matches
    for start, end, token in _text_between(matches, len(text)):
        if token:
            yield token, [(start, end)], text[start:end]
            continue
        whole, spans = pipeline.align(text[start:end])
        if start:
            spans = spans.moved(start)
        inner = pipeline.normalized.find(whole) if pipeline.normalized.tokens else ()
        for begin, stop, token in _text_between(inner, len(whole)):
            places = spans[begin:stop]
            if token:
                yield token, [(places[0][0], places[-1][1])], whole[begin:stop]
                continue
            part = pipeline.prefixed(whole[begin:stop], first and start == begin == 0)
            lead = len(part) - len(places)  # a prefix maps to the first character
            if lead:
                places = _Spans.joined([[*places[:1]] * lead, places])
            yield part, places, part


def _encode_aligned(
    encoder: _Encoder,
    parts: Iterable[tuple[str | AddedToken, Sequence[_Span]]],
    known: list[int] | None = None,
) -> tuple[list[int], list[_Span]]:
    """Encode the parts of a text, and find the span of each token.

    `known` may be the ids of the only part, which is text.
    """
    ids: list[int] = []
    offsets: list[_Span] = []
    for part, spans in parts:
        if isinstance(part, AddedToken):
            new, places = [cast("int", part.id)], [*spans]
        else:
            new, places = encoder.encode_aligned(part, cast("_Spans", spans), known)
        ids += new
        offsets += places
    return ids, offsets


class _PaddedRow(list[int]):
    """A row that eos or id 0 pads because no pad token is declared.

    A text may end in the same ids, so the row knows how many of them are padding.
    """

    def __init__(
        self, ids: Iterable[int] = (), pad_id: int = 0, n_pads: int = 0, left: bool = False
    ) -> None:
        super().__init__(ids)
        self.pad_id, self.n_pads, self.left = pad_id, n_pads, left

    def __reduce__(self) -> tuple[Any, ...]:
        return _PaddedRow, (list(self), self.pad_id, self.n_pads, self.left)

    def unpadded(self) -> list[int]:
        """Return the row without its padding, if that is still at its place."""
        border = self.n_pads if self.left else len(self) - self.n_pads
        before, after = self[:border], self[border:]
        pads, own = (before, after) if self.left else (after, before)
        return own if pads == [self.pad_id] * self.n_pads else before + after


class _Source(NamedTuple):
    """The inputs that a batch's results are computed from; `tokenizer` as it was then."""

    tokenizer: BPETokenizer
    texts: list[str]
    rows: list[list[int]]  # without padding
    records: list[Any]  # for `places`; callers may change `rows`
    missing: list[int]  # how many ids pad each row...
    left: bool = False  # ...and on which side
    pad: tuple[int, str] = (0, "")
    allowed: frozenset[str] = _NONE
    kept: list[slice] | None = None  # the ids left of each text; None: no offsets
    around: tuple[int, int] = (0, 0)  # how many ids were added before and after

    def result(self, at: int) -> EncodingResult:
        vars(made := object.__new__(EncodingResult)).update(_source=self, _at=at)
        return made

    def padded(self, at: int, row: list[Any], fill: Any) -> list[Any]:
        pads = [fill] * self.missing[at]
        return row if not pads else pads + row if self.left else row + pads

    def input_ids(self, at: int, _: Any = None) -> list[int]:
        pad_id, n_pads = self.pad[0], self.missing[at]
        ids = self.padded(at, self.rows[at], pad_id)
        if n_pads and self.tokenizer.pad_token_id is None:
            return _PaddedRow(ids, pad_id, n_pads, self.left)
        return ids

    def attention_mask(self, at: int, _: Any = None) -> list[int]:
        return self.padded(at, [1] * len(self.rows[at]), 0)

    def tokens(self, at: int, result: EncodingResult) -> list[str]:
        n = self.missing[at]
        own = result.input_ids[n:] if self.left else result.input_ids[: len(result) - n]
        return self.padded(at, self.tokenizer._shown.of(own), self.pad[1])

    def offsets(self, at: int, _: Any = None) -> list[_Span] | None:
        if self.kept is None:
            return None
        own = _offsets(self.tokenizer, self.texts[at], self.allowed, True, self.records[at])
        if any(self.around) or self.kept[at] != slice(None):
            own = [(0, 0)] * self.around[0] + own[self.kept[at]] + [(0, 0)] * self.around[1]
        return self.padded(at, own, (0, 0))


class _Batch:
    """The base of batches: the fields that a model takes, and a result for each text."""

    data: dict[str, Any]
    encodings: list[EncodingResult]
    _repr_html_ = _Tool("showing.notebook.batch_html")

    @property
    def input_ids(self) -> Any:
        """All ids: a list of lists, or a tensor of shape (texts, length)."""
        return self.data["input_ids"]

    @property
    def attention_mask(self) -> Any:
        """1 for tokens and 0 for padding, in the shape of `input_ids`."""
        return self.data["attention_mask"]

    @property
    def tokens(self) -> list[list[str]]:
        """The printable tokens of each text."""
        return [item.tokens for item in self.encodings]

    @property
    def offsets(self) -> list[list[_Span]]:
        """The offsets of each text."""
        return [cast("list[_Span]", item.offsets) for item in self.encodings]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data!r})"


class BatchEncoding(_Batch, Sequence[EncodingResult]):
    """Several encoded texts: a sequence of `EncodingResult`, which are also its `encodings`.

    ``batch[0]`` is a text's result, ``batch["input_ids"]`` all ids as a list of lists.  `data`,
    ``dict(batch)`` and ``model(**batch)`` have the fields that a model takes.
    """

    data: dict[str, list[list[int]]]
    input_ids: list[list[int]]
    attention_mask: list[list[int]]

    def __init__(self, encodings: Iterable[EncodingResult]) -> None:
        self.encodings = list(encodings)
        names = self.encodings[0].keys() if self.encodings else ["input_ids", "attention_mask"]
        self.data = {name: [getattr(item, name) for item in self.encodings] for name in names}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:  # filled when first read
            if name == "encodings" and "_source" in vars(self):
                results = map(self._source.result, range(len(self._source.rows)))
                return vars(self).setdefault(name, list(results))
            if name == "data":
                return vars(self).setdefault(name, BatchEncoding(self.encodings).data)
            raise AttributeError(f"BatchEncoding has no attribute {name!r}", name=name, obj=self)

    def __getstate__(self) -> dict[str, Any]:
        return {"encodings": self.encodings, "data": self.data}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({"data": state.get("_data"), **state})  # _data: before 0.8

    def __len__(self) -> int:
        return len(self.encodings)

    def keys(self) -> list[str]:
        """Return the fields that a model takes."""
        return list(self.data)

    def values(self) -> list[list[list[int]]]:
        """Return the values of these fields."""
        return list(self.data.values())

    def items(self) -> list[tuple[str, list[list[int]]]]:
        """Return the fields with their values."""
        return list(self.data.items())

    def __contains__(self, item: object) -> bool:
        return item in (self.data if isinstance(item, str) else self.encodings)

    @overload
    def __getitem__(self, key: int) -> EncodingResult: ...
    @overload
    def __getitem__(self, key: slice) -> list[EncodingResult]: ...
    @overload
    def __getitem__(self, key: Literal["tokens"]) -> list[list[str]]: ...
    @overload
    def __getitem__(self, key: Literal["offsets"]) -> list[list[_Span]]: ...
    @overload
    def __getitem__(self, key: Literal["input_ids", "attention_mask"]) -> list[list[int]]: ...
    @overload
    def __getitem__(self, key: str) -> list[list[Any]]: ...
    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self.encodings[key]
        return getattr(self, key) if key in ("tokens", "offsets") else self.data[key]


class TensorBatch(_Batch, UserDict[str, Any]):
    """Several encoded texts as tensors: a mapping for a model, as in transformers.

    `encodings` has one result per text; assigning to "input_ids" empties it.
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
            {key: value.tolist() if hasattr(value, "tolist") else value for key, value in of}
            for of in (self.items(), other.items())
        )
        return ours == theirs

    def copy(self) -> TensorBatch:
        """Return a copy with the same tensors."""
        return TensorBatch(self, self.encodings)

    def to(self, device: Any, **options: Any) -> TensorBatch:
        """Move the tensors to a device, in place; arrays stay where they are."""
        movable = [(key, value) for key, value in self.items() if hasattr(value, "to")]
        self.data.update({key: value.to(device, **options) for key, value in movable})
        return self


def _one_length(lengths: Iterable[int]) -> int:
    """Return the length that all rows have; raise if they differ."""
    found, *others = {*lengths} or {0}
    if others:
        remedy = "pass padding=True, or truncation=True with max_length"
        raise ValueError(f"texts of different lengths don't fit in a tensor; {remedy}")
    return found


def _to_tensors(rows: list[list[int]], length: int, pad_id: int, left: bool, kind: str) -> Any:
    """Make two int64 arrays or tensors: of rows, filled up to a length, and of their mask."""
    asked = f"return_tensors={kind!r}"
    torch = _import_optional("torch", asked, "torch") if kind == "pt" else None
    numpy = _import_optional("numpy", asked, "numpy")
    ids = numpy.empty((len(rows), length), numpy.int64)
    _engine.fill_rows(rows, ids, mask := numpy.empty_like(ids), pad_id, left)
    return (torch.from_numpy(ids), torch.from_numpy(mask)) if torch else (ids, mask)


class _Lengths:
    """How to cut and pad the rows of a batch: as asked, else as the tokenizer's files say."""

    room: int | None = None  # how many ids of a text truncation leaves
    cuts_left = left = _pads = False  # `left`: padding goes to the left

    def __init__(self, tokenizer: BPETokenizer, n_added: int, **asked: Any) -> None:
        if tuple(asked.values()) == (False, False, *[None] * 5):  # the usual case
            return
        sides = "padding_side", "truncation_side"
        asked |= {side: asked[side] or getattr(tokenizer, side) for side in sides}
        for name, choices in (
            ("padding", (True, False, "longest", "max_length", "do_not_pad")),
            ("truncation", (True, False, "longest_first", "only_first", "do_not_truncate", None)),
            ("return_tensors", (None, "np", "pt")),
            *((side, ("left", "right")) for side in sides),
        ):
            if asked[name] not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {asked[name]!r}")
        _check_size("max_length", asked["max_length"], 0)
        _check_size("pad_to_multiple_of", asked["pad_to_multiple_of"], 1)
        cut, pad = (tokenizer._settings.get(field, {}) for field in ("truncation", "padding"))
        own, fixed = tokenizer.model_max_length, pad.get("strategy")
        limit = own if type(own) is int and own > 0 else cut.get("max_length")
        is_sane = limit is not None and limit <= 2**24  # else it means no limit
        pad_length = fixed["Fixed"] if isinstance(fixed, dict) else limit if is_sane else None
        if asked["max_length"] is not None:
            limit = pad_length = asked["max_length"]
        cuts, pads = _cuts_and_pads(asked, limit, pad_length)
        if cuts and limit < n_added:
            raise ValueError(f"max_length={limit} leaves no room for {n_added} special tokens")
        multiple = asked["pad_to_multiple_of"]
        if cuts and pads and multiple and limit % multiple:
            problem = f"max_length is {limit}, and no multiple of pad_to_multiple_of={multiple}"
            raise ValueError(f"{problem}, as it must be with both truncation and padding")
        self.room = limit - n_added if cuts else None
        self.left, self.cuts_left = (asked[side] == "left" for side in sides)
        self._pads = pads is not False
        self._pad_length = pad_length if pads == "max_length" else None
        self._multiple = multiple or pad.get("pad_to_multiple_of") or 1

    def kept(self, rows: Sequence[Sequence[int]]) -> list[slice]:
        """Return the slice of each row that truncation leaves."""
        if self.room is None or not self.cuts_left:
            return [slice(self.room)] * len(rows)
        return [slice(max(0, len(ids) - self.room), None) for ids in rows]

    def missing(self, rows: Sequence[Sequence[int]]) -> list[int]:
        """Return how many ids must pad each row."""
        if not self._pads:
            return [0] * len(rows)
        to: Any = max(map(len, rows), default=0) if self._pad_length is None else self._pad_length
        return [max(0, -(-to // self._multiple) * self._multiple - len(ids)) for ids in rows]


def _cuts_and_pads(asked: _Named, limit: Any, pad_length: Any) -> tuple[bool, bool | str]:
    """Return whether to truncate, and how to pad, as transformers understands the options.

    Source: `_get_padding_truncation_strategies` of transformers, which says less.
    """
    cuts, pads, given = asked["truncation"], asked["padding"], asked["max_length"]
    if cuts is None:  # then max_length alone truncates
        cuts = given is not None and pads is False
    cuts = cuts not in (False, "do_not_truncate")
    if pads == "do_not_pad":
        pads = False
    if pads is True and given is not None and not cuts:
        remedy = "pass truncation=True to cut texts to it, or padding='max_length' to pad to it"
        _warn(f"padding=True pads to the longest text, whatever max_length is; {remedy}")
    if cuts and limit is None:
        _warn("truncation does nothing here: pass max_length=..., or set model_max_length")
        cuts = False
    if pads == "max_length" and pad_length is None:
        _warn("padding='max_length' does nothing here: pass max_length=..., or padding=True")
        pads = False
    return cuts, pads


def _pad_token(tokenizer: BPETokenizer, warns: bool = True) -> tuple[int, str]:
    """Return the id and the token for padding."""
    pad_id, token = tokenizer.pad_token_id, tokenizer.pad_token
    if pad_id is None and "padding" in tokenizer._settings:
        pad_id, token = (tokenizer._settings["padding"][key] for key in ("pad_id", "pad_token"))
    if pad_id is None:
        pad_id = tokenizer.eos_token_id or 0
        if warns and not tokenizer._warned_about_padding:
            tokenizer._warned_about_padding = True
            remedy = "set tokenizer.pad_token, or add one with add_special_tokens"
            problem = "this tokenizer has no pad token: padding with id"
            _warn(f"{problem} {pad_id}, masked out; {remedy}")
    return pad_id, token or tokenizer._shown[pad_id]


def _without_undeclared_pads(tokenizer: BPETokenizer, rows: Any) -> Any:
    """Leave out what pads rows of ids if there is no pad token: eos, or else id 0.

    Rows from `encode_batch` know how much of them is padding.  In an array or a tensor, all such
    ids at the padded end are taken for padding; in other lists none, since text has these ids, too.
    """
    if getattr(rows, "ndim", None) == 2:
        pad_id, _ = _pad_token(tokenizer, warns=False)
        starts = tokenizer.padding_side == "left"
        return [_strip(ids, pad_id, starts) for ids in rows.tolist()]
    return [ids.unpadded() if isinstance(ids, _PaddedRow) else ids for ids in rows]


# == 9. Chat templates ========================================================
# A conversation is rendered to segments: texts, each marked as the template's or as written by
# people.  In the template's own text, "<|eot_id|>" is a control token.  In text that people wrote
# it is always ten characters, whatever is around them, and whatever normalization and merges
# make of them.

_Chat = Iterable[Mapping[str, Any]]
_Talk = list[dict[str, Any]]  # a conversation that was checked
_Segment = tuple[str, bool]
_Counted = tuple[str, frozenset[str]]  # a text, and the added tokens allowed in it
_Text = TypeVar("_Text", bound=str)

# The roles that chat templates know.  These words count as the template's own text, because some
# templates make control tokens of them, such as "<|" + role + "|>".
_CHAT_ROLES = {"system", "developer", "user", "assistant", "model", "tool", "function"}
_CHAT_ROLES |= {"ipython", "observation", "tool_response"}
_SYSTEM_ROLES = ("system", "developer")
_headers = functools.lru_cache(16)(lambda a, b: {r: [(a + r + b, True)] for r in _CHAT_ROLES})
_CONTENTS = (str, Mapping, list, tuple, int, float)  # what the content of a message can be


def _as_plain(value: Any) -> Any:
    """Return the data of a dataclass, a Pydantic model or a NumPy scalar; others as they are."""
    if isinstance(value, type):
        return value
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if callable(getattr(value, "model_dump", None)):  # such as the messages of OpenAI's library
        return value.model_dump()
    numpy = sys.modules.get("numpy")  # there is no scalar without it
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    return value


def _check_messages(messages: Any, system_prompt: str | None = None, least: int = 0) -> _Talk:
    """Return a conversation of `least` messages or more, without the fields that are None.

    A system prompt that isn't empty goes first, unless a message gives instructions.
    """
    if not isinstance(messages, (list, Iterable)) or isinstance(messages, (str, bytes, Mapping)):
        got = type(messages).__name__
        raise TypeError(f"messages must be a list of {{'role': ..., 'content': ...}}, got {got}")
    checked: _Talk = []
    for i, message in enumerate(messages):
        if type(message) is dict and len(message) == 2:  # the usual case needs few checks
            role, content = message.get("role"), message.get("content")
            if type(role) is type(content) is str and role:
                checked.append(message.copy())
                continue
        message = _as_plain(message)
        if not isinstance(message, Mapping) or not all(isinstance(key, str) for key in message):
            expected = "must be a mapping with strings as keys"
            raise TypeError(f"messages[{i}] {expected}, got {_shorten(message)}")
        known = {key: value for key, value in message.items() if value is not None}
        role, content = known.get("role"), _as_plain(known.get("content", ""))
        if not isinstance(role, str) or not role:
            raise ValueError(f"messages[{i}]['role'] must be a word, got {_shorten(role)}")
        if not isinstance(content, _CONTENTS):
            wanted = "must be text or data (a list, a mapping, a number or a bool)"
            raise ValueError(f"messages[{i}]['content'] {wanted}, got {_shorten(content)}")
        known["role"] = str.__str__(role)  # an Enum hashes by its name, and others may lie
        checked.append({**known, "content": content} if "content" in known else known)
    _check_text("" if system_prompt is None else system_prompt, "system_prompt")
    if system_prompt and not any(each["role"] in _SYSTEM_ROLES for each in checked):
        checked.insert(0, {"role": "system", "content": system_prompt})
    if len(checked) < least:
        raise ValueError("the conversation is empty, pass at least one message")
    return checked


def _turns(talk: _Talk, prompt: bool, start: str, middle: str, end: str) -> list[_Segment]:
    """Return turns with roles in their headers; `prompt` appends an answer's header."""
    made, closing, headers = list[_Segment](), (end, True), _headers(start, middle)
    for message in talk:
        role = message["role"]
        made += headers.get(role) or [(start, True), (role, False), (middle, True)]
        made += (message["content"], False), closing
    return made + headers["assistant"] if prompt else made


# Meta's template takes any role; these are the ones that Llama 3 was trained on, and OpenAI's name
# for the results of tools.  A model makes nothing sensible of others, such as a misspelled one.
_LLAMA3_ROLES = ("system", "user", "assistant", "ipython", "tool")


def _llama3(talk: _Talk, prompt: bool) -> Iterator[_Segment]:
    """Source: Meta-Llama-3-8B-Instruct's chat template; contents are stripped there."""
    for message in talk:
        if message["role"] not in _LLAMA3_ROLES:
            known, role = ", ".join(_LLAMA3_ROLES), str(message["role"])
            raise ValueError(f"the llama3 template has no role {role!r}: expected one of {known}")
    stripped = [{**each, "content": each["content"].strip()} for each in talk]
    yield "<|begin_of_text|>", True
    header = "<|start_header_id|>", "<|end_header_id|>\n\n"
    yield from _turns(stripped, prompt, *header, "<|eot_id|>")


# Source: OpenAI's ChatML as Qwen uses it, without a default system prompt.
_chatml = functools.partial(_turns, start="<|im_start|>", middle="\n", end="<|im_end|>\n")

_ALPACA = {"user": "### Instruction:\n", "assistant": "### Response:\n"}
_ALPACA_TASK = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request."
)


def _alpaca(
    talk: _Talk, prompt: bool, all_turns: bool = False, preamble: bool | None = None
) -> Iterator[_Segment]:
    """See `ChatTemplate.alpaca`.

    Source: Stanford Alpaca's prompt as github.com/tloen/alpaca-lora spells it, which has one turn.
    """
    has_system = bool(talk) and talk[0]["role"] == "system"
    turns = talk[has_system:]
    for message in turns:
        if message["role"] not in _ALPACA:
            known = "expected at most one system message, first, then user and assistant"
            role = str(message["role"])
            raise ValueError(f"the alpaca template has no role {role!r} here: {known}")
    if not all_turns:
        turns = _last_instruction(turns)
    begins = preamble if preamble is not None else not has_system
    own = f"{_ALPACA_TASK}\n\n" if begins else ""
    for message in [*talk[:has_system], *turns]:
        own += _ALPACA.get(message["role"], "")  # the system text has no header
        if own:
            yield own, True
        yield message["content"], False
        own = "\n\n"
    yield own + (_ALPACA["assistant"] if prompt else ""), True


def _last_instruction(turns: _Talk) -> _Talk:
    """Return the last user message alone; warn if it isn't all there is."""
    users = [message for message in turns if message["role"] == "user"]
    if not users:
        problem = "the alpaca template needs a user message, its instruction"
        raise ValueError(f"{problem}; all_turns=True renders conversations without one, too")
    if len(turns) > 1:
        problem = "the alpaca template renders the last user message only, and leaves other turns"
        _warn(f"{problem} out; all_turns=True renders all of them")
    return users[-1:]


_BUILT_IN: dict[str, Callable[..., Any]] = {"llama3": _llama3, "chatml": _chatml, "alpaca": _alpaca}
_BUILT_IN_OPTIONS = {"alpaca": ("all_turns", "preamble")}
# What makes these render a whole conversation, as continuing one and answering it need.
_ALL_TURNS: dict[str, dict[str, bool]] = {"alpaca": {"all_turns": True}}


def _joined_parts(content: Any, name: str, i: int) -> str:
    """Join the text parts that are the content of message i; `name` is the template's."""
    where, remedy = f"messages[{i}]['content']", "the model's own template may take it"
    if not isinstance(content, (list, tuple)):
        problem = f"must be text for the template {name!r}, got {_shorten(content)}"
        raise ValueError(f"{where} {problem}; {remedy}, and json.dumps makes text of data")
    texts = list[str]()
    for j, part in enumerate(content):
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str) or part.get("type") != "text":
            kind = _shorten(part)
            if isinstance(part, Mapping) and "type" in part:
                kind = f"a part of type {str(part['type'])!r:.60}"
            wanted = f"the template {name!r} takes parts {{'type': 'text', 'text': ...}} only"
            raise ValueError(f"{where}[{j}] is {kind}; {wanted}; {remedy}")
        texts.append(text)
    # Text of the same class joins them, since it may know who wrote it.
    return texts[0][:0].join(texts) if texts else ""


def _render(name: str, talk: _Talk, prompt: bool, **options: Any) -> list[_Segment]:
    """Render a conversation with a built-in template; `options` are those of `ChatTemplate`."""
    made: _Talk = []
    for i, message in enumerate(talk):
        content = message.get("content")
        if not isinstance(content, str):
            message = {**message, "content": _joined_parts(content, name, i)}
        made.append(message)
    return list(_BUILT_IN[name](made, prompt, **options))


class ChatTemplate:
    """The built-in chat templates, as functions from messages to text.

    The text is for reading and logging: in it, control tokens and the same characters typed by a
    user look alike.  For ids, use `BPETokenizer.apply_chat_template`, which tells them apart.

    >>> talk = [{"role": "user", "content": "Hi"}]
    >>> print(ChatTemplate.chatml(talk))
    <|im_start|>user
    Hi<|im_end|>
    <|im_start|>assistant
    <BLANKLINE>
    """

    @staticmethod
    def llama3(
        messages: _Chat, add_generation_prompt: bool = True, system_prompt: str | None = None
    ) -> str:
        """Render for Llama 3; white space at the ends of contents is stripped."""
        return _as_text("llama3", messages, add_generation_prompt, system_prompt)

    @staticmethod
    def chatml(
        messages: _Chat, add_generation_prompt: bool = True, system_prompt: str | None = None
    ) -> str:
        """Render as ChatML, the format of Qwen and many others."""
        return _as_text("chatml", messages, add_generation_prompt, system_prompt)

    @staticmethod
    def alpaca(
        messages: _Chat,
        add_generation_prompt: bool = True,
        system_prompt: str | None = None,
        *,
        all_turns: bool = False,
        preamble: bool | None = None,
    ) -> str:
        """Render in Stanford Alpaca's format, which has no special tokens.

        Args:
            messages: a system message or none, then user and assistant.
            add_generation_prompt: whether to end with the line "### Response:".
            system_prompt: as for `BPETokenizer.apply_chat_template`.
            all_turns: False renders the system text and the last user message, with a warning if
                there are other turns; True renders all turns.
            preamble: whether to begin with "Below is an instruction ..."; None means only if
                there is no system text.

        >>> talk = [{"role": "user", "content": "Hi"}]
        >>> print(ChatTemplate.alpaca(talk, system_prompt="Be brief."))
        Be brief.
        <BLANKLINE>
        ### Instruction:
        Hi
        <BLANKLINE>
        ### Response:
        <BLANKLINE>
        """
        options = {"all_turns": all_turns, "preamble": preamble}
        return _as_text("alpaca", messages, add_generation_prompt, system_prompt, **options)

    @staticmethod
    def get_template(name: str) -> Callable[..., str]:
        """Return a template by its name, "llama3", "chatml" or "alpaca"; else raise ValueError."""
        if name not in _BUILT_IN:
            raise ValueError(f"unknown chat template {name!r}, expected {', '.join(_BUILT_IN)}")
        return cast("Callable[..., str]", getattr(ChatTemplate, name))


def _as_text(
    name: str, messages: _Chat, prompt: bool, system_prompt: str | None, **options: Any
) -> str:
    return _plain_text(_render(name, _check_messages(messages, system_prompt), prompt, **options))


def _plain_text(segments: Iterable[_Segment]) -> str:
    return "".join([text for text, _ in segments])


# Shapes that only control tokens have.  "<think>" and "[INST]" may be ordinary text.
_CONTROL = re.compile(
    r"<\|[^|<>\s\0]+\|?>|<[^|<>\s\0]+\|>|<｜[^｜<>\s\0]+｜>|<(?:start|end)_of_turn>"
)
_find_control = functools.lru_cache(16)(_CONTROL.findall)


def _missing(segments: Iterable[_Segment], added: Collection[str]) -> list[str]:
    """Return the control tokens that a template writes but no added token contains."""
    own = "".join([text if trusted else "\0" for text, trusted in segments])
    own = "\0".join(dict.fromkeys(own.split("\0")))  # most of them repeat
    written = [token for token in dict.fromkeys(_find_control(own)) if token not in added]
    return [token for token in written if not any(token in known for known in added)]


def _check_control(segments: Iterable[_Segment], added: Collection[str], default: str) -> None:
    """Raise for control tokens without an id; `default` is the template nobody chose."""
    if missing := ", ".join(map(repr, _missing(segments, added)[:8])):
        which = f"this tokenizer has no chat template, and the default one, {default},"
        problem = f"{which if default else 'the chat template'} writes {missing}, which this"
        remedy = "add them with add_special_tokens, or choose another template"
        raise ValueError(f"{problem} tokenizer has no tokens for: {remedy}")


def _without_sanitizing(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without `sanitize_control_tokens`, which asks for what happens anyway."""
    rest = dict(options)
    asked = rest.pop("sanitize_control_tokens", None)
    if "sanitize_control_tokens" not in options:
        return rest
    if not isinstance(asked, bool):
        raise TypeError(f"sanitize_control_tokens must be True or False, got {_shorten(asked)}")
    as_huggingface = rest.get("content_tokens") == "as-huggingface"
    if asked and as_huggingface:
        problem = "content_tokens='as-huggingface' recognizes tokens in user-supplied text"
        raise ValueError(f"sanitize_control_tokens=True, but {problem}: pass only one of them")
    if not asked and not as_huggingface:
        problem = "user-supplied text never produces control tokens here"
        remedy = "content_tokens='as-huggingface' recognizes those that are not special"
        raise ValueError(f"sanitize_control_tokens=False: {problem}; {remedy}")
    return rest


def _built_in(template: Any, own: Mapping[str, str], added: Collection[str]) -> str | None:
    """Return the name of the built-in template to use; `own` are the tokenizer's own."""
    if template is None and not own:
        question = [{"role": "user", "content": "question"}]
        fits = (n for n in ("llama3", "chatml") if not _missing(_render(n, question, True), added))
        return next(fits, "llama3")
    if template is None or isinstance(template, str):
        template = own.get("default" if template is None else template, template)
        return template if template in _BUILT_IN else None
    return next((name for name in _BUILT_IN if template is getattr(ChatTemplate, name)), None)


_VISIBLE = _Pattern(r"\P{C}")


def _spells_text(token: AddedToken) -> bool:
    """Return True for white space or one visible character, which control nothing.

    Vocabularies have such tokens for indented code, for instance.  "▁" is SentencePiece's space.
    """
    content = token.content
    is_visible = len(content) == 1 and _VISIBLE.match(content)
    return not token.special and bool(is_visible or not content.strip(" ▁\t\r\n"))


class _SegmentEncoder:
    """Encodes segments of text, each with the added tokens that are allowed in it.

    Tokens for which `is_text` is true control nothing: they match everywhere, even across segments.
    """

    def __init__(
        self,
        encoder: _Encoder,
        definition: Definition,
        is_text: Callable[[AddedToken], bool] = _spells_text,
    ) -> None:
        added = definition.added
        texts = [token for token in added if not token.special and is_text(token)]
        ids = {token.id for token in texts}
        control = {token.content: token for token in added if token.id not in ids}
        self.encoder, self._control, self.pipeline = encoder, control, encoder.pipeline(texts)
        self._ids = {token.id for token in control.values()}
        self._learned = self._ids.intersection(definition.vocab.values())  # merges may make them
        self._finder = functools.lru_cache(64)(lambda known: _TokenFinder(self._among(known)))
        plain = not (texts or definition.prefix_space or self._learned)
        self.plain = functools.lru_cache(64)(
            lambda contents: encoder.plain_segments(self._among(contents) if plain else None)
        )
        own = frozenset(token.content for token in added if not token.special)
        # Of tokens that may come out of trusted text, by those allowed; an equal set is the same.
        self.contents = functools.lru_cache(64)(own.__or__)

    def _among(self, contents: Iterable[str]) -> list[AddedToken]:
        return [self._control[each] for each in contents if each in self._control]

    def encode(self, segments: Iterable[_Counted], first: bool = True) -> list[int]:
        """Encode segments as one text; `first`: the text begins the whole."""
        segments = list(segments)
        tokens = next((tokens for _, tokens in segments if tokens), _NONE)
        if (ids := self.plain(tokens)(tokens, segments)) is not None:
            return ids
        parts = list(self.pipeline.parts(*self.matches(segments), first))
        ids = _encode_parts(self.encoder, parts)
        return _encode_parts(self.encoder, self._cut(parts)) if self.spells(ids, parts) else ids

    def spells(self, ids: list[int], parts: Iterable[tuple[Any, ...]]) -> bool:
        """Return True if merges made a control token of plain text; only learned ones can be."""
        if not self._learned:
            return False
        control = (part.id in self._ids for part, *_ in parts if isinstance(part, AddedToken))
        return sum(map(self._ids.__contains__, ids)) > sum(control)

    def matches(self, segments: Iterable[_Counted]) -> tuple[str, list[_Match]]:
        """Return the joined text and its matches; a control token must be within one segment."""
        groups = itertools.groupby(segments, operator.itemgetter(1))
        joined = [("".join([text for text, _ in group]), tokens) for tokens, group in groups]
        text = "".join([part for part, _ in joined])
        found: list[_Match] = []
        at = done = 0
        for part, tokens in joined:
            if tokens:
                inside = self._finder(tokens).find(text, done, at, stop=at + len(part))
                found += [match for match in inside if match[2]]
            at, done = at + len(part), found[-1][1] if found else 0
        matches: list[_Match] = []
        for begin, end, token in _text_between(found, len(text)):
            between = self.pipeline.raw.find(text, begin, stop=end)
            matches += [(begin, end, token, end)] if token else between
        return text, matches

    def borders(self, part: str) -> list[int]:
        """Return where to cut text: after the first character of each control token it spells."""
        contents = [*self._control, *map(self.pipeline.normalize, self._control)]
        # A lookahead also finds those that overlap.
        find = re.compile(f"(?={'|'.join(map(re.escape, filter(None, contents)))})")
        return [0, *(found.start() + 1 for found in find.finditer(part)), len(part)]

    def marks(self) -> frozenset[str]:
        """Return the control tokens that are not special, such as "<think>"."""
        return frozenset(each for each, token in self._control.items() if not token.special)

    def _cut(self, parts: Iterable[_Part]) -> Iterator[_Part]:
        for part, start, end in parts:
            if isinstance(part, AddedToken):
                yield part, start, end
                continue
            for a, b in itertools.pairwise(self.borders(part)):
                yield part[a:b], a, b


# -- What a template is given, and which one it is -----------------------------
_THOUGHTS = ("reasoning_content", "thinking", "reasoning")  # names for the same field
_MAX_DEPTH = 200  # of lists and mappings in each other


def _copy_data(value: Any, mark: Callable[[str], str] = str, depth: int = 0) -> Any:
    """Copy data as plain data of the same kinds, passing each string through `mark`.

    A template sees no other objects: their methods might do anything.  So subclasses become what
    they are based on, dataclasses and Pydantic models become dicts, and the rest "<TypeName>".
    """
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return mark(str.__str__(value))  # of a subclass, too, such as an Enum
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if depth >= _MAX_DEPTH:
        raise ValueError(f"a conversation has lists or mappings nested {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        if not all(isinstance(key, (str, int, float, type(None))) for key in value):
            raise TypeError("the keys of an object in a conversation must be strings or numbers")
        return {
            _copy_data(key, mark): _copy_data(item, mark, depth + 1) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        items = [_copy_data(item, mark, depth + 1) for item in value]
        return items if isinstance(value, list) else tuple(items)
    plain = _as_plain(value)
    if plain is not value:
        return _copy_data(plain, mark, depth + 1)
    return mark(f"<{type(value).__name__}>")


def _with_thoughts(message: dict[str, Any]) -> dict[str, Any]:
    """Give a message's thoughts both names that templates read, as HuggingFace does."""
    found = [message[name] for name in _THOUGHTS if name in message]
    return {"thinking": found[0], **message, "reasoning_content": found[0]} if found else message


def _find_template(template: Any, own: Mapping[str, str], added: Collection[str]) -> Any:
    """Return the name of a built-in template, a function, or Jinja source; None if there is none.

    `own` are the tokenizer's templates by name, and `added` its added tokens.
    """
    name = _built_in(template, own, added)
    if name is not None:
        return name
    if template is None or isinstance(template, str):
        template = own.get("default" if template is None else template, template)
    if template is None or callable(template):
        return template
    if not isinstance(template, str):
        hint = ""
        if isinstance(template, Mapping):
            hint = "; assign named templates to tokenizer.chat_template, and pass a name here"
        got = type(template).__name__
        raise TypeError(f"template must be a str or a function, got {got}{hint}")
    if "{" not in template and template not in own.values():
        names = ", ".join([*own, *_BUILT_IN])
        raise ValueError(
            f"unknown chat template {template!r}, expected one of {names}, or Jinja source"
        )
    return template


def _select_template(template: Any, tokenizer: BPETokenizer, tools: Any) -> Any:
    """Return the template to use; names and defaults are as in transformers."""
    own = tokenizer.chat_templates
    if isinstance(template, str):
        template = own.get(template, template)
    elif template is None and own:
        name = "tool_use" if tools is not None and "tool_use" in own else "default"
        if name not in own:
            raise ValueError(
                "this tokenizer has no default chat template: "
                f"pass template= with the name of one it has, {', '.join(sorted(own))}"
            )
        template = own[name]
    return _find_template(template, own, tokenizer._added)


def _with_all_turns(
    tokenizer: BPETokenizer, template: Any, variables: Mapping[str, Any]
) -> dict[str, Any]:
    """Return variables with which a template renders all turns, unless they say otherwise."""
    chosen = variables.get("chat_template") if template is None else template
    source = _select_template(chosen, tokenizer, variables.get("tools"))
    is_built_in = isinstance(source, str) and source in _BUILT_IN
    return {**(_ALL_TURNS.get(source, {}) if is_built_in else {}), **variables}


_PAIRS = (
    "expected (text, trusted) pairs: the template's own text is trusted, and user-supplied text is "
    'not, as in `yield "<|im_start|>user\\n", True; yield message["content"], False`'
)


def _render_with(template: Any, talk: _Talk, prompt: bool, **variables: Any) -> list[_Segment]:
    """Render a conversation with a built-in template, given by its name, or a function."""
    if isinstance(template, str):
        names = _BUILT_IN_OPTIONS.get(template, ())
        options = {name: variables[name] for name in names if name in variables}
        return _render(template, talk, prompt, **options)
    copies = [_with_thoughts(_copy_data(message)) for message in talk]
    made, segments = template(copies, **variables, add_generation_prompt=prompt), []
    if isinstance(made, str) or not isinstance(made, Iterable):
        raise TypeError(f"the template function returned {_shorten(made)}; {_PAIRS}")
    for pair in made:
        if not (isinstance(pair, tuple) and len(pair) >= 2 and isinstance(pair[0], str)):
            raise TypeError(f"the template function gave {_shorten(pair)}; {_PAIRS}")
        segments += [(pair[0], bool(pair[1]))] if pair[0] else []
    return segments


def _segments_with(
    template: Any, talk: _Talk, prompt: bool, variables: Mapping[str, Any]
) -> list[_Segment]:
    """Render as `_render_with` does, with the variables of a call; None are left out."""
    given = {
        key: _copy_data(value)
        for key, value in variables.items()
        if value is not None and key not in _ROLES
    }
    segments = _render_with(template, talk, prompt, **given)
    unused = [key for key in ("tools", "documents") if key in given]
    if isinstance(template, str) and unused:
        raise ValueError(
            f"the template {template!r} has no place for {unused[0]}; use the model's own template"
        )
    return segments


_CONTENT_TOKENS = ("assistant", "as-huggingface")  # values of the option content_tokens


def _take_variables(template: Any, variables: Mapping[str, Any]) -> tuple[Any, str, dict[str, Any]]:
    """Return the template that a call names, its `content_tokens`, and the template's variables."""
    given = _without_sanitizing(variables)
    content_tokens = given.pop("content_tokens", _CONTENT_TOKENS[0])
    if content_tokens not in _CONTENT_TOKENS:
        known, got = " or ".join(map(repr, _CONTENT_TOKENS)), _shorten(content_tokens)
        raise ValueError(f"content_tokens must be {known}, got {got}")
    named = given.pop("chat_template", None)
    if None not in (template, named):
        raise TypeError("template= and chat_template= are one option: pass only one of them")
    documents = given.setdefault("documents")
    if documents is not None and not (
        isinstance(documents, (list, tuple))
        and all(isinstance(item, Mapping) for item in documents)
    ):
        raise TypeError("documents must be a list of {'title': ..., 'text': ...}")
    return (named if template is None else template), content_tokens, given


def _token_variables(tokenizer: BPETokenizer) -> dict[str, str]:
    """Return the tokens that a Jinja template is given by name, such as ``bos_token``."""
    named: dict[str, str] = tokenizer._settings.get("files", {}).get("named", {})
    tokens: dict[str, Any] = {
        name: token for name, token in named.items() if token in tokenizer._added
    }
    tokens.update({role: getattr(tokenizer, role) for role in _ROLES})
    return {name: token for name, token in tokens.items() if token}


def _check_written(
    tokenizer: BPETokenizer, source: Any, segments: Iterable[_Segment], is_default: bool
) -> None:
    """Check that the control tokens that a template wrote are tokens.

    The tokenizer's own templates may write ordinary text that looks like control tokens, as those
    of Zephyr and Tulu do: they pass if they write any token that it has.

    Raises:
        ValueError: some are not.
    """
    default = source if is_default and not tokenizer.chat_templates else ""
    try:
        _check_control(segments, tokenizer._added, default)
    except ValueError:
        roles = [role for role in _ROLES if getattr(tokenizer, role)]
        is_own = source in tokenizer.chat_templates.values()
        if not (is_own and any(name in source for name in (*roles, *tokenizer._added))):
            raise


# The mark that transformers appends to the text to continue, and then searches for.  Templates get
# the same one here, so that they treat an empty text, or white space at its end, the same way.
_TO_CONTINUE = "CONTINUE_FINAL_MESSAGE_TAG "


def _put_mark(message: dict[str, Any], field: str, source: str | None, mark: str) -> str:
    """Put the mark after a field of a message; return the text before it.

    `message` has text of a class whose sums say where they come from; `source` is the template, if
    it is Jinja.
    """
    said = message.get(field)
    names = [field]
    if field in _THOUGHTS:  # templates read any of its names
        names = [name for name in _THOUGHTS if name in message and message[name] == said]
    if said is None:
        raise ValueError(f"continue_final_message: the last message has no {field!r} to continue")
    if source is not None and not any(name in source for name in names):
        raise ValueError(f"continue_final_message: the template does not render {field!r}")
    if isinstance(said, (list, tuple)):  # its last part with text is continued
        part = next((each for each in said[::-1] if isinstance(each, dict) and "text" in each), {})
        said, message, names = part.get("text"), part, ["text"]
    if not isinstance(said, str):
        raise ValueError(f"continue_final_message: {field!r} of the last message has no text")
    message.update(dict.fromkeys(names, said + mark))
    return said


def _cut_at_mark(text: _Text, place: int, said: str, field: str) -> _Text:
    """Return a rendered text up to the mark, which is at a place in it; -1 if it isn't."""
    if place < 0 or str.strip(said) not in str.__str__(text):
        raise ValueError(
            f"continue_final_message: the template does not render {field!r} of the last message "
            "unchanged, so there is no place to continue it"
        )
    # A template that strips the mark's own space strips the text to continue, too.
    before: Any = text[:place]
    return cast("_Text", before if text.startswith(_TO_CONTINUE, place) else before.rstrip())


# -- Options of apply_chat_template -------------------------------------------
# What they mean for one conversation, a batch, padding and tensors.  How a conversation is
# rendered is up to a request: `_Request` below, or the one of bpe_tokenizer_tools.

_ELSEWHERE = {  # options of transformers that have another name here, or none
    "conversation": "it is called messages= here",
    "tokenizer_kwargs": "they are keywords here",
    "truncation_side": "old turns are left out, never the end",
    "disallowed_special": "user-supplied text never produces control tokens here",
    "return_offsets": "it is called return_offsets_mapping= here",
}


def _check_template_options(
    continue_final_message: Any, add_generation_prompt: Any, variables: Mapping[str, Any]
) -> None:
    unknown = next((name for name in variables if name in _ELSEWHERE), None)
    if unknown:
        raise TypeError(f"apply_chat_template takes no {unknown}=; {_ELSEWHERE[unknown]}")
    if not isinstance(continue_final_message, (bool, str)):
        raise TypeError("continue_final_message must be True, False or the name of a field")
    if continue_final_message and add_generation_prompt:
        raise ValueError(
            "continue_final_message and add_generation_prompt exclude each other: pass only one "
            "of them"
        )


def _conversations(messages: Any) -> tuple[list[Any], bool]:
    """Return conversations, and whether they are a batch: a list of lists of messages."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        return [messages], False  # `_check_messages` refuses it
    messages = list(messages)
    is_batch = bool(messages) and isinstance(messages[0], (list, tuple))
    return (messages if is_batch else [messages]), is_batch


def _apply_template(
    tokenizer: BPETokenizer,
    asked: tuple[Any, ...],
    request: Callable[..., Any],
    /,
    *,
    tokenize: bool,
    continue_final_message: bool | str = False,
    return_dict: bool = False,
    return_assistant_tokens_mask: bool = False,
    return_offsets_mapping: bool = False,
    padding: bool | str = False,
    truncation: bool = False,
    max_length: int | None = None,
    return_tensors: str | None = None,
    padding_side: str | None = None,
    pad_to_multiple_of: int | None = None,
    session: Any = None,
    **variables: Any,
) -> Any:
    """Apply a template to conversations; `asked` are the other arguments, in their order.

    `request` makes what renders a conversation: its `row` returns a dict with the ids, and
    its `plain_text` the text.
    """
    messages, template, add_generation_prompt, system_prompt, allowed_special = asked
    _check_template_options(continue_final_message, add_generation_prompt, variables)
    if not return_dict and (return_assistant_tokens_mask or return_offsets_mapping):
        raise ValueError("a mask and offsets are returned in a dict: pass return_dict=True, too")
    lengths = None
    if tokenize:
        lengths = _Lengths(
            tokenizer,
            0,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            return_tensors=return_tensors,
            pad_to_multiple_of=pad_to_multiple_of,
            padding_side=padding_side,
            truncation_side="left",
        )
    field = "content" if continue_final_message is True else continue_final_message or ""
    if field or return_assistant_tokens_mask:  # what the assistant said must be there
        variables = _with_all_turns(tokenizer, template, variables)
    made_for = request(
        tokenizer,
        template,
        variables,
        prompt=not field if add_generation_prompt is None else bool(add_generation_prompt),
        field=field,  # of the last message, to end in
        allowed_special=allowed_special,
        limit=lengths.room if lengths else None,  # how many tokens to keep, by whole turns
        masked=return_assistant_tokens_mask,
        aligned=return_offsets_mapping,
        session=session,
    )
    conversations, is_batch = _conversations(messages)
    rows: list[Any] = []
    for i, conversation in enumerate(conversations):
        try:
            talk = _check_messages(conversation, system_prompt, least=1)
            rows.append(made_for.row(talk) if tokenize else made_for.plain_text(talk))
        except (TypeError, ValueError) as error:
            if not is_batch:
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"conversation {i} of the batch (counting from 0): {error}") from error
    if lengths is None:
        return rows if is_batch else rows[0]
    _pad_rows(tokenizer, rows, lengths)
    is_alone = not is_batch and return_tensors is None
    made = rows[0] if is_alone else _columns(rows, return_tensors)
    return made if return_dict else made["input_ids"]


def _pad_rows(tokenizer: BPETokenizer, rows: list[dict[str, Any]], lengths: _Lengths) -> None:
    """Pad the encoded rows to one length, in place."""
    missing = lengths.missing([row["input_ids"] for row in rows])
    pad_id = _pad_token(tokenizer)[0] if any(missing) else 0
    fields: dict[str, Any] = {"input_ids": pad_id, "attention_mask": 0, "assistant_masks": 0}
    for row, n in zip(rows, missing):
        for name, value in {**fields, "offset_mapping": (0, 0)}.items():
            if name in row:
                fill = [value] * n
                row[name] = fill + row[name] if lengths.left else row[name] + fill
        if n and tokenizer.pad_token_id is None:  # as rows of `encode_batch`
            row["input_ids"] = _PaddedRow(row["input_ids"], pad_id, n, lengths.left)


def _columns(
    rows: Sequence[Mapping[str, Any]], return_tensors: str | None
) -> dict[str, Any] | TensorBatch:
    """Return the fields by name, as lists or tensors; offsets and counts as lists."""
    made: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    if return_tensors is None:
        return made
    for name in ("input_ids", "attention_mask", "assistant_masks"):
        if name in made:
            length = _one_length(map(len, made[name]))
            made[name] = _to_tensors(made[name], length, 0, False, return_tensors)[0]
    made.pop("dropped_messages", None)  # not an input of a model; a warning has reported it
    return TensorBatch(made)


def _mask(offsets: Sequence[_Span], spans: Iterable[_Span]) -> list[int]:
    """Return 1 for each token that has characters in a span, else 0."""
    mask = [0] * len(offsets)
    rest = iter(spans)
    begin, end = next(rest, (0, 0))
    for i, (start, stop) in enumerate(offsets):
        while end <= start and end:
            begin, end = next(rest, (0, 0))
        mask[i] = int(start < end and stop > begin)
    return mask


# -- Old turns that are left out ----------------------------------------------


def _newest(
    messages: _Talk,
    limit: int,
    count: Callable[[_Talk], int],
    least: Callable[[int, list[int]], Callable[[int], int]] | None = None,
) -> _Talk:
    """Leave out the oldest turns until a conversation fits into a limit, and warn about it.

    A conversation that begins later mostly has fewer tokens, so where it begins is found by
    halving: the rest fits, and one more turn would not.

    `count` returns the number of tokens of a conversation.  `least` may know a lower limit of
    it: given how many messages are before the turns, and where these may begin, it returns a
    function from where they begin to that limit.
    """
    head, [first, *others] = _turn_starts(messages)

    def kept(start: int) -> _Talk:
        return [*messages[:head], *messages[start:]]

    count_from = functools.cache(lambda start: count(kept(start)))
    start = first
    if others and count_from(first) > limit:
        able = others[:-1]
        if least is not None:
            at_least = least(head, others)
            able = [each for each in able if at_least(each) <= limit]
        start = _first_that(lambda each: count_from(each) <= limit, [*able, others[-1]])
    if count_from(start) > limit:
        n = f"{count_from(start):,}"
        raise ValueError(f"the last turn alone takes {n} tokens, more than max_length={limit:,}")
    if start > first:
        _warn(
            f"{start - first} old messages are left out, so that the conversation "
            f"fits into {limit:,} tokens"
        )
    return kept(start)


def _first_that(fits: Callable[[int], bool], starts: Sequence[int]) -> int:
    """Return the first that fits, if all after it do, or else the last.

    It is looked for near the beginning first, in steps that double, and then by halving.
    """
    low, high = 0, 0  # none before `low` fits
    while high < len(starts) - 1 and not fits(starts[high]):
        low, high = high + 1, min(2 * high + 1, len(starts) - 1)
    while low < high:
        middle = (low + high) // 2
        if fits(starts[middle]):
            high = middle
        else:
            low = middle + 1
    return starts[high]


def _turn_starts(messages: _Talk) -> tuple[int, list[int]]:
    """Return how many messages are before the turns, and where these begin: with a user each."""
    roles = [message["role"] for message in messages]
    head = len(list(itertools.takewhile(_SYSTEM_ROLES.__contains__, roles)))
    users = [i for i in range(head + 1, len(roles)) if roles[i] == "user"]
    return head, [head, *users]


# -- Text that knows who wrote it ----------------------------------------------
# Without bpe_tokenizer_tools, a tokenizer's own Jinja template is rendered with this text, in
# Jinja's sandbox.  Control tokens count only in text that the template wrote itself.  Some
# operations aren't followed here.  If one of them makes text that spells a control token, it's
# an error: the token might be the template's, or a user's.

# Who wrote a character, as one letter.
_OWN = "t"  # the template
_SAID = "m"  # a message, or another argument of the caller
_ANSWER = "a"  # an earlier answer of the assistant
_UNKNOWN = "?"
_CONTINUED = "c"  # the mark of a message that is continued
_ASSISTANTS = ("assistant", "model")
_MAX_RENDERED = 2**26  # characters of a repeated text
_MAX_TEMPLATE = 2**17  # characters; the longest in use has 17,000


class _Tracked(str):
    """A string with a letter for each character that says who wrote it.

    What is joined, cut, stripped, split or replaced keeps its letters.  Methods that aren't
    followed here return a plain string, whose writer is unknown.
    """

    _writers: str
    _writer: str  # of the beginning; an empty text has it, too

    def __new__(cls, text: str, writer: str = _UNKNOWN) -> _Tracked:
        """Track a whole string; one that is tracked already stays as it is."""
        if isinstance(text, _Tracked):
            return text
        if not isinstance(text, str):
            raise TypeError(f"expected a string, got {type(text).__name__}")
        plain = str.__str__(text)  # subclasses such as an Enum may show another text
        return cls._made(plain, writer * len(plain), writer)

    @classmethod
    def _made(cls, text: str, writers: str, writer: str) -> _Tracked:
        if len(text) != len(writers):
            raise ValueError(f"can't tell who wrote which part of {text!r:.60}")
        made = str.__new__(cls, text)
        made._writers, made._writer = writers, writer
        return made

    def _runs(self) -> Iterator[tuple[str, str]]:
        """Yield the text by writers."""
        at = 0
        for writer, run in itertools.groupby(self._writers):
            start, at = at, at + len(list(run))
            yield str.__getitem__(self, slice(start, at)), writer

    def _changed(self, change: Callable[[str], str]) -> str:
        """Return the result of a method that changes each character on its own."""
        made = change(str.__str__(self))
        same = len(made) == len(self)  # else some character became several
        return self._made(made, self._writers, self._writer) if same else made

    def __str__(self) -> str:
        return self

    def __iter__(self) -> Iterator[str]:
        return (self[at] for at in range(len(self)))

    def __getitem__(self, key: Any) -> _Tracked:
        return self._made(super().__getitem__(key), self._writers[key], self._writer)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, str) or hasattr(other, "__html__"):  # that escapes this text
            return NotImplemented
        return _joined((self, other))

    def __radd__(self, other: Any) -> Any:
        return _joined((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, times: Any) -> _Tracked:
        if isinstance(times, int) and times * len(self) > _MAX_RENDERED:
            raise ValueError(f"a text of {times * len(self):,} characters is too large")
        return self._made(super().__mul__(times), self._writers * times, self._writer)

    __rmul__ = __mul__

    def lstrip(self, chars: str | None = None, /) -> _Tracked:
        return self[len(self) - len(super().lstrip(chars)) :]

    def rstrip(self, chars: str | None = None, /) -> _Tracked:
        return self[: len(super().rstrip(chars))]

    def strip(self, chars: str | None = None, /) -> _Tracked:
        return self.lstrip(chars).rstrip(chars)

    def removeprefix(self, prefix: str, /) -> _Tracked:
        return self[len(prefix) :] if self.startswith(prefix) else self

    def removesuffix(self, suffix: str, /) -> _Tracked:
        return self[: len(self) - len(suffix)] if self.endswith(suffix) else self

    def split(self, sep: str | None = None, maxsplit: Any = -1) -> list[Any]:
        return self._located(super().split(sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: Any = -1) -> list[Any]:
        return self._located(super().rsplit(sep, maxsplit), sep)

    def _located(self, parts: list[str], sep: str | None) -> list[Any]:
        """Find the parts that were split off, with `sep` or else white space between them."""
        found, at = [], 0
        for part in parts:
            start = self.index(part, at) if sep is None else at
            at = start + len(part)
            found.append(self[start:at])
            at += len(sep or "")
        return found

    def splitlines(self, keepends: bool = False) -> list[Any]:
        found, at = [], 0
        for whole, line in zip(super().splitlines(True), super().splitlines(keepends)):
            found.append(self[at : at + len(line)])
            at += len(whole)
        return found

    def partition(self, sep: str, /) -> Any:
        return self._parted(*super().partition(sep))

    def rpartition(self, sep: str, /) -> Any:
        return self._parted(*super().rpartition(sep))

    def _parted(self, before: str, sep: str, after: str) -> tuple[_Tracked, ...]:
        start, stop = len(before), len(self) - len(after)
        return self[:start], self[start:stop], self[stop:]

    def replace(self, old: str, new: str, count: Any = -1, /) -> str:
        if not old:  # which puts the new text between all characters
            return super().replace(old, new, count)
        return _Tracked(new).join(self.split(old, count))

    def join(self, parts: Iterable[str], /) -> _Tracked:
        made: list[str] = []
        for part in parts:
            made += [self, part] if made else [part]
        return _joined(made)

    def lower(self) -> str:
        return self._changed(str.lower)

    def upper(self) -> str:
        return self._changed(str.upper)

    def title(self) -> str:
        return self._changed(str.title)

    def capitalize(self) -> str:
        return self._changed(str.capitalize)


# For errors that a template's author reads.
_Tracked.__name__ = _Tracked.__qualname__ = "str"
_Tracked.__module__ = "builtins"


def _joined(parts: Iterable[str]) -> _Tracked:
    """Join strings; each keeps its letters."""
    known = [_Tracked(part) for part in parts]
    writers = "".join([part._writers for part in known])
    return _Tracked._made("".join(known), writers, known[0]._writer if known else _UNKNOWN)


def _writer_of(value: Any) -> str:
    """Return the letter of text that is made of all the strings in a value."""
    letters, waiting = set[str](), [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            letters.update((value._writers or value._writer) if type(value) is _Tracked else "?")
        elif isinstance(value, Mapping):
            waiting += [*value, *value.values()]
        elif isinstance(value, (list, tuple)):
            waiting += value
    others = letters - {_OWN}
    if not others:
        return _OWN if letters else _UNKNOWN
    return others.pop() if len(others) == 1 else _UNKNOWN


# -- Jinja templates without bpe_tokenizer_tools -------------------------------
# Operations on text that aren't followed, to be named in an error.
_UNFOLLOWED = frozenset(
    {
        "casefold",
        "center",
        "e",
        "escape",
        "expandtabs",
        "forceescape",
        "format",
        "format_map",
        "indent",
        "ljust",
        "pprint",
        "rjust",
        "safe",
        "striptags",
        "swapcase",
        "translate",
        "truncate",
        "urlencode",
        "urlize",
        "wordwrap",
        "xmlattr",
        "zfill",
    }
)


def _own_text(text: str) -> _Tracked:
    return _Tracked(text, _OWN)


def _jinja_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as transformers does."""
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return _Tracked(text, _writer_of((value, indent, separators)))


def _jinja_join(values: Iterable[Any], d: str = "", attribute: Any = None) -> str:
    if attribute is not None:
        raise ValueError("join(attribute=...) is not supported; map(attribute=...) first")
    return _Tracked(str(d)).join(map(str, values))


def _formatted(formatter: Any, form: _Tracked, args: Any, kwargs: Any) -> str:
    """Do what ``str.format`` does, in the sandbox, for a form that the template wrote."""
    plain = str.__str__(form)
    expected = cast("str", formatter.vformat(plain, args, kwargs))
    made, count = list[str](), 0
    for own, name, spec, conversion in formatter.parse(plain):
        made.append(_own_text(own))
        if spec or conversion:
            return expected
        if name is None:
            continue
        if name == "":
            name, count = str(count), count + 1
        made.append(str(formatter.get_field(name, args, kwargs)[0]))
    whole = _joined(made)
    return whole if str.__eq__(whole, expected) else expected


def _jinja_refuse(message: Any) -> NoReturn:
    raise ValueError(f"the chat template refuses this conversation: {message}")


def _marking_generator(jinja2: Any) -> Any:
    """Return Jinja's compiler, changed to mark a template's constants as its own."""
    nodes = jinja2.nodes

    class Generator(jinja2.compiler.CodeGenerator):  # type: ignore[misc]
        def _output_child_to_const(self, node: Any, frame: Any, finalize: Any) -> Any:
            if not isinstance(node, (nodes.TemplateData, nodes.Const)):
                raise nodes.Impossible  # nothing is computed before it is needed
            return super()._output_child_to_const(node, frame, finalize)

        def _output_const_repr(self, group: Iterable[Any]) -> str:
            return f"environment.own({''.join(map(str, group))!r})"

        def visit_Const(self, node: Any, frame: Any) -> None:
            value = node.as_const(frame.eval_ctx)
            if isinstance(value, str):
                self.write(f"environment.own({value!r})")
            else:
                super().visit_Const(node, frame)

        def visit_TemplateData(self, node: Any, frame: Any) -> None:
            self.write(f"environment.own({node.data!r})")

        def visit_Concat(self, node: Any, frame: Any) -> None:
            self.write("environment.concat(map(str, (")
            for part in node.nodes:
                self.visit(part, frame)
                self.write(", ")
            self.write(")))")

    return Generator


def _has_safe_sandbox(jinja2: Any) -> bool:
    """Return whether this is Jinja 3.1.6 or later; "3.2.0rc1" counts as 3.2.0."""
    return tuple(map(int, re.findall(r"\d+", jinja2.__version__)[:3])) >= (3, 1, 6)


@functools.cache
def _jinja() -> Any:
    """Return an environment as transformers has it, in which text is tracked."""
    purpose = "a Jinja chat template"
    jinja2 = _import_optional("jinja2", purpose, "jinja2")
    if not _has_safe_sandbox(jinja2):
        problem = f"jinja2 3.1.6, whose sandbox is safe, not {jinja2.__version__}"
        raise ImportError(f"{purpose} needs {problem}: pip install -U jinja2")
    importlib.import_module("jinja2.compiler")
    ext: Any = importlib.import_module("jinja2.ext")
    sandbox: Any = importlib.import_module("jinja2.sandbox")
    nodes = jinja2.nodes

    class Generation(ext.Extension):  # type: ignore[misc]
        """The tag {% generation %}, around the assistant's text."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja has it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            call = self.call_method("_body")
            return nodes.CallBlock(call, [], [], body).set_lineno(line)

        def _body(self, caller: Any) -> Any:
            return caller()

    class Environment(sandbox.ImmutableSandboxedEnvironment):  # type: ignore[misc]
        code_generator_class = _marking_generator(jinja2)
        concat = staticmethod(_joined)
        own = staticmethod(functools.lru_cache(1024)(_own_text))

        def wrap_str_format(self, value: Any) -> Any:
            form: Any = getattr(value, "__self__", None)
            is_own = type(form) is _Tracked and set(form._writers) <= {_OWN}
            if not is_own or value.__name__ != "format":
                return super().wrap_str_format(value)
            formatter = sandbox.SandboxedFormatter(self)
            return lambda *args, **kwargs: _formatted(formatter, form, args, kwargs)

    extensions = [Generation, ext.loopcontrols]
    made = Environment(trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=extensions)
    made.filters.update(tojson=_jinja_json, join=_jinja_join)
    made.globals["raise_exception"] = _jinja_refuse
    made.globals["strftime_now"] = time.strftime  # of this moment, if it is given no other
    del made.globals["lipsum"]  # random Latin text of any length
    return made


@functools.lru_cache(maxsize=64)
def _compile_jinja(source: str) -> Any:
    return _compile_in(_jinja(), source)


def _compile_in(environment: Any, source: str) -> Any:
    """Compile a template in an environment of Jinja; ValueError, with the line, if it isn't one."""
    if len(source) > _MAX_TEMPLATE:
        size, limit = f"{len(source):,}", f"{_MAX_TEMPLATE:,}"
        raise ValueError(f"a chat template of {size} characters; the limit is {limit}")
    try:
        return environment.from_string(source)
    except Exception as error:  # whatever the compiler raises
        line = getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        raise ValueError(f"the chat template is not valid Jinja{where}: {error}") from None


def _render_jinja(
    source: str, talk: _Talk, add_generation_prompt: bool, variables: Mapping[str, Any]
) -> _Tracked:
    """Render a Jinja template; all errors of the template are a ValueError."""
    template = _compile_jinja(source)
    given = {"messages": talk, "add_generation_prompt": add_generation_prompt, **variables}
    try:
        return _Tracked(template.render(given))
    except ValueError:
        raise
    except Exception as error:  # whatever the template does with this conversation
        kind = type(error).__name__
        problem = f"the chat template failed on this conversation: {kind}: {error}"
        raise ValueError(problem) from None


def _check_template(source: str) -> None:
    """Raise ValueError, with the line, unless a template is valid Jinja; refuse a file's name.

    Without Jinja, an error in the template waits for its use.
    """
    if re.fullmatch(r"[^\n{}]+\.(jinja2?|j2|txt|json)", source):
        how = f"assign its text, Path({source!r}).read_text(encoding='utf-8')"
        raise ValueError(f"a chat template is Jinja source, got the name of a file: {how}")
    if _WITH_TOOLS:
        if _tools("chat.jinja_version").is_usable():
            _tools("chat.jinja").check(source)
    elif importlib.util.find_spec("jinja2"):
        _compile_jinja(source)


@functools.lru_cache(maxsize=32)
def _jinja_variables(source: str) -> frozenset[str]:
    """Return the names of the variables that a template reads and doesn't set."""
    _compile_jinja(source)  # raises an error that says what is wrong
    meta = importlib.import_module("jinja2.meta")
    return frozenset(meta.find_undeclared_variables(_jinja().parse(source)))


def _unfollowed(source: str) -> str:
    """Name the operations in a template that may make text whose writer is unknown."""
    environment = _jinja()
    nodes = importlib.import_module("jinja2.nodes")
    tree = environment.parse(source)
    names = {each.name for each in tree.find_all(nodes.Filter)}
    names |= {each.node.attr for each in tree.find_all(nodes.Call) if hasattr(each.node, "attr")}
    found = sorted(names & _UNFOLLOWED) + ["%"] * any(tree.find_all(nodes.Mod))
    return ", ".join(found) or "printing a list or a mapping, for instance"


# -- A conversation's ids, without bpe_tokenizer_tools ------------------------


def _tool_schemas(tools: Any) -> Any:
    """Return tools that are JSON schemas; others need bpe_tokenizer_tools."""
    if isinstance(tools, (list, tuple)) and all(isinstance(tool, dict) for tool in tools):
        return list(tools)
    purpose = "a tool that isn't a JSON schema (a dict in the list tools=)"
    return _tools("chat.tool_schemas", purpose).schemas(tools)


def _tracked(value: Any, writer: str) -> Any:
    """Copy plain data, with every string tracked."""
    return _copy_data(value, lambda text: _Tracked(text, writer))


def _tracked_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Track the strings of a message; a role that templates know is as good as their own text."""
    is_answer = message["role"] in _ASSISTANTS
    given = {}
    for key, value in message.items():
        said = is_answer and (key == "content" or key in _THOUGHTS)
        given[key] = _tracked(value, _ANSWER if said else _SAID)
    if message["role"] in _CHAT_ROLES:
        given["role"] = _own_text(message["role"])
    return _with_thoughts(given)


def _has_json_arguments(message: Mapping[str, Any]) -> bool:
    """Return whether a message has calls whose arguments are text, as in OpenAI's API."""
    calls = message.get("tool_calls")
    return any(
        isinstance(call, dict)
        and isinstance(call.get("function", call), dict)
        and isinstance(call.get("function", call).get("arguments"), str)
        for call in (calls if isinstance(calls, (list, tuple)) else ())
    )


class _Request:
    """Renders conversations with a template, and encodes them."""

    def __init__(
        self,
        tokenizer: BPETokenizer,
        template: Any,
        variables: Mapping[str, Any],
        *,
        prompt: bool,
        field: str,
        allowed_special: Any,
        limit: int | None,
        masked: bool,
        aligned: bool,
        session: Any,
    ) -> None:
        if session is not None:
            _tools("prompts.sessions", "session=")
        self._tokenizer, self._prompt, self._field = tokenizer, prompt, field
        self._allowed_special, self._limit = allowed_special, limit
        self._masked, self._aligned = masked, aligned
        template, self._content_tokens, given = _take_variables(template, variables)
        self._is_default = template is None
        if given.get("tools") is not None:
            given["tools"] = _tool_schemas(given["tools"])
        given.setdefault("tools")
        self._source = _select_template(template, tokenizer, given["tools"])
        self._given = given
        self._is_jinja = isinstance(self._source, str) and self._source not in _BUILT_IN
        if self._is_jinja:
            _compile_jinja(self._source)  # says first what the template itself lacks
            if limit is not None:
                _tools("chat.truncation", "truncation with a Jinja template")
        if masked and self._source not in _BUILT_IN:
            purpose = "return_assistant_tokens_mask with a template that isn't built in"
            _tools("chat.templates", purpose)

    def plain_text(self, talk: _Talk) -> str:
        return str.__str__(self._text(talk)[0])

    def row(self, talk: _Talk) -> dict[str, Any]:
        """Return the ids of a conversation, and what else the call asks for, by name."""
        kept = talk
        if self._limit is not None:
            kept = _newest(talk, self._limit, lambda part: len(self._encode(self._text(part)[0])))
        text, answers = self._text(kept)
        if self._allowed_special == "all":
            self._check_control(text)
        ids = self._encode(text)
        row: dict[str, Any] = {"input_ids": ids, "attention_mask": [1] * len(ids)}
        if self._masked:
            if any(message["role"] == "model" for message in kept):
                _tools("chat.templates", "a mask of messages with the role 'model'")
            row["assistant_masks"] = _mask(*self._places(text, ids, answers))
        if self._aligned:
            row["offset_mapping"] = self._places(text, ids, None)[0]
        if self._limit is not None:
            row["dropped_messages"] = len(talk) - len(kept)
        return row

    # -- Rendering ---

    def _text(self, talk: _Talk) -> tuple[_Tracked, list[_Span]]:
        """Render a conversation; return also the places of answers, by a built-in template."""
        given = [_tracked_message(message) for message in talk]
        if not self._field:
            return self._render(given, self._prompt)
        mark = _Tracked(_TO_CONTINUE, _CONTINUED)
        source = self._source if self._is_jinja else None
        said = _put_mark(given[-1], self._field, source, mark)
        text, answers = self._render(given, False)
        name, at, place, is_unclear = _TO_CONTINUE.strip(), 0, -1, False
        for part, writer in text._runs():
            if writer == _CONTINUED and name in part:  # the last one, if it is written twice
                place = at + part.rindex(name)
            is_unclear |= writer == _UNKNOWN and name in part
            at += len(part)
        if place >= 0 and is_unclear:
            _tools("chat.apply_template", "continuing a message that is written in several ways")
        if place < 0:  # a function's text; or the mark is absent, and a message may spell it
            unmarked, _ = self._render([_tracked_message(message) for message in talk], False)
            place = -1 if name in unmarked else text.rfind(name)
        text = _cut_at_mark(text, place, said, self._field)
        return text, [(start, min(end, len(text))) for start, end in answers if start < len(text)]

    def _render(self, talk: _Talk, prompt: bool) -> tuple[_Tracked, list[_Span]]:
        if self._is_jinja:
            own = _token_variables(self._tokenizer)
            variables = {
                **{name: _own_text(token) for name, token in own.items()},
                **{name: _tracked(value, _SAID) for name, value in self._given.items()},
            }
            try:
                return _render_jinja(self._source, talk, prompt, variables), []
            except ValueError as error:
                if not any(map(_has_json_arguments, talk)):
                    raise
                hint = "if it takes the arguments of tool calls as a mapping, not as JSON text"
                raise ValueError(f"{error}; {hint}, pass json.loads of the text") from None
        for message in talk:
            if self._source in _BUILT_IN and message.get("content") == []:  # its text has a place
                is_answer = message["role"] in _ASSISTANTS
                message["content"] = _Tracked("", _ANSWER if is_answer else _SAID)
        segments = _segments_with(self._source, talk, prompt, self._given)
        tracked = [_Tracked(text, _OWN if trusted else _SAID) for text, trusted in segments]
        text, answers, at = _joined(tracked), list[_Span](), 0
        for part in tracked:
            start, at = at, at + len(part)
            if part._writer == _ANSWER:
                closing = _CONTROL.match(text, at)  # which the model writes, too
                answers.append((start, closing.end() if closing else at))
        return text, [span for span in answers if span[0] < span[1]]

    # -- Encoding ---

    def _check_control(self, text: _Tracked) -> None:
        """Raise if the template writes control tokens that this tokenizer doesn't have."""
        own = [(part, writer == _OWN) for part, writer in text._runs()]
        _check_written(self._tokenizer, self._source, own, self._is_default)
        if _UNKNOWN in text._writers:
            added = self._tokenizer._added
            perhaps = [(part, writer in (_OWN, _UNKNOWN)) for part, writer in text._runs()]
            unclear = set(_missing(perhaps, added)) - set(_missing(own, added))
            if unclear:
                self._refuse_unknown(min(unclear))

    def _refuse_unknown(self, token: str) -> None:
        how = _unfollowed(self._source)
        _tools("chat.jinja", f"telling who wrote {token!r}, made by the template ({how}),")

    def _encode(self, text: _Tracked) -> list[int]:
        """Encode a rendered text; raise if it isn't known whether it has a control token."""
        return self._encoder.encode(self._segments(text))

    def _places(
        self, text: _Tracked, ids: list[int], spans: list[_Span] | None
    ) -> tuple[list[_Span], list[_Span]]:
        if self._tokenizer._definition.components:
            _tools("support.offsets", "offsets of a tokenizer of this kind")
        return _token_places(self._encoder, self._segments(text), ids, spans)

    @functools.cached_property
    def _encoder(self) -> _SegmentEncoder:
        tokenizer = self._tokenizer
        if self._content_tokens == "as-huggingface":
            return _SegmentEncoder(
                tokenizer._encoder, tokenizer._definition, lambda token: not token.special
            )
        made: _SegmentEncoder = tokenizer._derived(_SegmentEncoder)
        return made

    def _names(self, token: str) -> bool:
        """Return whether the template may write or read a token, perhaps made of parts."""
        if token in _token_variables(self._tokenizer).values():
            return True
        words = re.findall(r"\w+", token)
        return not words or max(words, key=len).lower() in self._source.lower()

    def _segments(self, text: _Tracked) -> list[_Counted]:
        """Return the parts of a text, each with the added tokens that count in it."""
        made = self._encoder
        own = made.contents(self._tokenizer._allowed(self._allowed_special))
        sure = _counted(text, {_OWN: own})
        if not self._is_jinja:
            return sure
        # The tools find out from the template which marks count in an answer, such as "<think>".
        # A mark that the template neither names nor writes is text.
        written = {match[2].content for match in made.matches(sure)[1] if match[2]}
        marks = frozenset(each for each in made.marks() if each in written or self._names(each))
        token = _unsure(made, sure, _counted(text, {_OWN: own, _ANSWER: marks}))
        if token:
            purpose = f"telling whether {token!r} in an answer is a mark of the chat template"
            _tools("chat.encoding", purpose)
        token = _unsure(made, sure, _counted(text, {_OWN: own, _UNKNOWN: own}))
        if token:
            self._refuse_unknown(token)
        return sure


def _counted(text: _Tracked, counts: Mapping[str, frozenset[str]]) -> list[_Counted]:
    """Return the parts of a text, each with the added tokens that count for its writer."""
    return [(part, counts.get(writer, _NONE)) for part, writer in text._runs()]


def _unsure(made: _SegmentEncoder, sure: list[_Counted], possible: list[_Counted]) -> str:
    """Return an added token that is there only if more may be; "" if there is none."""
    found = made.matches(sure)[1]
    more = made.matches(possible)[1]
    if found == more:
        return ""
    known = set(found)
    return next((each[2].content for each in more if each not in known and each[2]), "a token")


def _token_places(
    made: _SegmentEncoder, segments: list[_Counted], ids: list[int], spans: list[_Span] | None
) -> tuple[list[_Span], list[_Span]]:
    """Return the place of each id, and those of spans of the text, in the normalized text.

    Without spans, the text must be the same normalized.
    """
    text, matches = made.matches(segments)
    normalize, encoder = made.pipeline.normalize, made.encoder
    borders = sorted({border for span in spans or () for border in span})
    moved, longer = {len(text): len(text)}, 0  # how much longer the text is when normalized
    found, places = list[int](), list[_Span]()
    for start, end, token in _text_between(matches, len(text)):
        whole = text[start:end] if token else normalize(text[start:end])
        if spans is None and whole != text[start:end]:
            _tools("support.offsets", "offsets of text that is changed")
        begin = start + longer
        first, last = (bisect.bisect_left(borders, place) for place in (start, end))
        for border in borders[first:last]:
            head = text[start:border] if token else normalize(text[start:border])
            if not token and head + normalize(text[border:end]) != whole:
                _tools("support.offsets", "a mask of answers whose text composes with what follows")
            moved[border] = begin + len(head)
        parts: Iterable[_Part] = made.pipeline.parts(text[start:end], (), start == 0)
        if token:
            parts = [(token, 0, end - start)]
        for part, a, b in parts:
            if isinstance(part, AddedToken):
                found.append(cast("int", part.id))
                places.append((begin + a, begin + b))
                continue
            new, at = encoder.encode(part), begin + a
            found += new
            lead = len(part) - (b - a)  # a space that was put before the text
            for x, y in encoder.places(part, new):
                places.append((at + max(x - lead, 0), at + max(y - lead, 1)))
        longer += len(whole) - (end - start)
    if found != ids:  # merges would have made a control token of plain text
        _tools("support.offsets", "offsets of text that spells a learned control token")
    moved[len(text)] += longer
    return places, [(moved[start], moved[end]) for start, end in spans or ()]


# == 10. Inference backends ===================================================
# Four libraries run models, with the same loop and sampler.  Each one is imported only when a model
# needs it.  bpe_tokenizer_tools/backends/ checks more of a model's files.


class InferenceBackend(Enum):
    """A way to run a model."""

    APPLE_MLX = "apple_mlx"
    NVIDIA_CUDA = "nvidia_cuda"
    AMD_ROCM = "amd_rocm"
    INTEL_OPENVINO = "intel_openvino"
    CPU_LLAMA_CPP = "cpu_llama_cpp"
    HUGGINGFACE_TRANSFORMERS = "huggingface_transformers"


class _Sampling(NamedTuple):
    """How to draw an id: divide logits by the temperature, then apply top_k, then top_p."""

    temperature: float  # 0 always takes the most likely
    top_k: int  # keeps the k most likely; 0 keeps all
    top_p: float  # keeps the fewest of those, most likely first, with this share in all
    seed: int | None = None

    def check(self) -> _Sampling:
        if not 0 <= (value := self.temperature) < math.inf:  # NaN fails this too
            raise ValueError(f"temperature must be 0 (most likely always) or more, got {value}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1 (off), got {self.top_p}")
        _check_size("top_k", self.top_k, 0)
        _check_size("seed", self.seed, 0)
        return self

    def draw(self, logits: Any, random: Any) -> int:
        """Draw an id with a NumPy random generator; the lowest id comes first among equals."""
        numpy, highest = importlib.import_module("numpy"), logits.max()
        if not numpy.isfinite(highest):
            cause = "its weights are damaged, or too large for their type (try dtype='float32')"
            raise RuntimeError(f"the model computed {highest} as a logit: {cause}")
        if self.temperature == 0:
            return int(logits.argmax())
        with numpy.errstate(over="ignore"):  # at tiny temperatures only the top id is left
            weights = numpy.exp((logits.astype(numpy.float64) - highest) / self.temperature)
        ids = self.kept(weights)
        sums = weights[ids].cumsum()
        place = sums.searchsorted(random.random() * sums[-1], side="right")
        return int(ids[min(place, sums.searchsorted(sums[-1]))])  # not past the end by rounding

    def kept(self, weights: Any) -> Any:
        """Return the ids that top_k and top_p keep, most likely first; if all, by number."""
        numpy = importlib.import_module("numpy")
        ids, total = numpy.arange(len(weights)), weights.sum()
        is_cut = 0 < self.top_k < len(weights)
        if self.top_p == 1 and not is_cut:
            return ids
        # Sorting 100,000 is slow.  All ids below this together weigh less than what top_p drops.
        least = (1 - self.top_p) * total / len(weights)
        if is_cut:
            least = numpy.partition(weights, -self.top_k)[-self.top_k]
        ids = ids[weights >= least]
        ids = ids[(-weights[ids]).argsort(kind="stable")][: self.top_k or None]
        sums = weights[ids].cumsum()
        return ids[: sums.searchsorted(self.top_p * (sums[-1] if is_cut else total)) + 1]


@dataclass(frozen=True)
class _ModelFiles:
    """Facts about a model, known before its weights are loaded."""

    path: Path
    kind: str  # "gguf", "safetensors", "mlx" or "openvino"
    rows: int = 0  # ids are 0 to rows - 1; 0: only the library knows
    dtype: str = ""  # of the embedding: "float32", "float16", "bfloat16", or else "quantized"
    context: int | None = None  # how many tokens it was trained for, if known
    eos_ids: tuple[int, ...] = ()  # end a text, or a turn of a chat
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bos_id: int | None = None
    tokenizer: Path | None = None  # from which `BPETokenizer.from_file` reads the model's own
    files: tuple[Path, ...] = ()
    # "bos", "eos", "pad" -> the ids that the configs name, whether the model has them or not
    said: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    def stamp(self) -> tuple[tuple[str, tuple[int, int, int]], ...]:
        """Return a value that changes when a file does: sizes and times."""
        found = ((str(file), file.stat()) for file in self.files)
        return tuple((name, (at.st_size, at.st_mtime_ns, at.st_ctime_ns)) for name, at in found)


@dataclass(frozen=True)
class _Loading:
    """How to load a model; the last three are in the library's own terms."""

    n_gpu_layers: int = -1
    n_ctx: int = 8192
    dtype: str | None = None
    device: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class _Runner:
    """A loaded model: it reads more ids and returns how likely each id is to come next."""

    name = ""
    packages: tuple[str, ...] = ()  # to import; the last can be built for a GPU
    install = ""  # their names for pip
    block = 256  # ids fed at once; Ctrl-C takes effect between blocks
    _load: Any  # loads the model
    _feed: Any  # reads more ids, and returns the logits of the next one
    _forget: Any  # forgets the ids read so far
    _model: Any = None
    _cache: Any = None

    def __init__(self, files: _ModelFiles, loading: _Loading) -> None:
        self.files, self.path, self.device = files, files.path, "CPU"
        self.vocab_rows, self.stop_ids = files.rows, frozenset(files.eos_ids)
        limits = [limit for limit in (loading.n_ctx, files.context) if limit]
        self.context: int | None = min(limits, default=None)  # None: unknown
        self._held: list[int] | None = []  # the ids the model has read; None: unknown
        self._lock, self._numpy = threading.Lock(), importlib.import_module("numpy")
        self._holder: threading.Thread | None = None  # the thread that last used the model
        self._load(loading)

    def _generate(
        self,
        prompt: list[int],
        most: int,
        how: _Sampling,
        stops: Container[int],
        rows: int,
        timeout: float | None = None,
    ) -> Iterator[int]:
        """Yield at most `most` ids that follow a prompt, up to and including one of `stops`.

        Only ids below `rows` are drawn: the model may have more rows than the tokenizer has
        tokens.  If a prompt continues the last call's prompt and answer, only the new part is
        read, unless there is a seed: the last bits of the logits may differ.  If another thread
        uses the model, the first id waits for it, `timeout` seconds at most, or without limit.
        """
        _check_size("max_new_tokens", most, 1)
        room = most if self.context is None else min(most, self.context - len(prompt))
        if room < 1:
            most_known = self.files.context or "what it was trained for"
            sizes = f"the prompt has {len(prompt):,} tokens and the context holds {self.context:,}"
            remedy = f"shorten the prompt or open the model with a larger n_ctx, up to {most_known}"
            raise ValueError(f"{sizes}, which leaves no room for an answer; {remedy}")
        return self._ids(prompt, room, how, stops, rows, timeout)

    def _ids(
        self,
        prompt: list[int],
        most: int,
        how: _Sampling,
        stops: Container[int],
        rows: int,
        timeout: float | None,
    ) -> Iterator[int]:
        with self._reserved(timeout):
            random, held = self._numpy.random.default_rng(how.seed), self._held or []
            # A repeated prompt is fed again, so that a repeated call repeats its answer.
            if how.seed is not None or not held or not held == prompt[: len(held)] != prompt:
                held = []
                self._forget()
            pending = prompt[len(held) :]
            for _ in range(most):
                self._held = None  # an interrupted model's state is unknown
                for start in range(0, len(pending), self.block):
                    part = pending[start : start + self.block]
                    with self._explained("failed"):
                        logits = self._feed(part)
                    held.extend(part)
                self._held = held
                id_ = how.draw(logits[:rows], random)
                yield id_
                self._holder = threading.current_thread()  # it may be another one now
                if id_ in stops:
                    return
                pending = [id_]

    @contextlib.contextmanager
    def _reserved(self, timeout: float | None) -> Iterator[None]:
        """Keep the model for one call; calls of other threads wait, `timeout` seconds at most."""
        if self._holder is threading.current_thread():  # it would wait for itself
            problem = "the model is busy with another call; use up or close() that iterator first"
            raise RuntimeError(f"{self.path}: {problem}")
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            holder = getattr(self._holder, "name", "another")  # None: it ended just now
            problem = f"the thread {holder!r} still holds the model after {timeout:g} seconds"
            remedy = "use up or close() the iterator of its answer, or pass a longer timeout"
            raise TimeoutError(f"{self.path}: {problem}; {remedy}")
        try:
            self._holder = threading.current_thread()
            yield
        finally:
            self._holder = None
            self._lock.release()

    @contextlib.contextmanager
    def _explained(self, what: str = "could not load it") -> Iterator[None]:
        """Turn any exception of the library into a RuntimeError that names it."""
        try:
            yield
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise RuntimeError(f"{self.path}: {self.name} {what}: {reason}") from error

    def __repr__(self) -> str:
        return f"<{self.name} on {self.device}: {self.path}>"


class _LlamaCpp(_Runner):
    """Runs a GGUF file with llama-cpp-python, on a CPU or the GPU it was built for."""

    name, packages, install = "llama.cpp", ("llama_cpp",), "llama-cpp-python numpy"

    def _load(self, loading: _Loading) -> None:
        self._library = library = importlib.import_module("llama_cpp")
        gpu = library.llama_supports_gpu_offload()
        if loading.device == "gpu" and not gpu:
            remedy = "CMAKE_ARGS=-DGGML_CUDA=ON (or -DGGML_HIP=ON, -DGGML_VULKAN=ON) pip install "
            remedy += "--force-reinstall --no-cache-dir llama-cpp-python"
            problem = "this llama-cpp-python was built without a GPU; build it for yours"
            raise RuntimeError(f"{problem}: {remedy}")
        layers = 0 if loading.device == "cpu" else loading.n_gpu_layers
        self.device = "GPU" if gpu and layers else "CPU"
        threads = min(_cores(), max(4, _cores() // 2))  # with many cores, half are often virtual
        given = {"n_gpu_layers": layers, "n_ctx": self.context or 0, "n_batch": self.block}
        given |= {"n_threads": threads, "n_threads_batch": threads, "verbose": False}
        with self._explained():
            self._model = library.Llama(str(self.path), **{**given, **loading.settings})
        made: int = self._model.n_ctx()  # rounded up to what suits llama.cpp
        trained = library.llama_model_n_ctx_train(self._model.model)
        self.context = min(made, trained, self.context or made)
        self.vocab_rows = self._model.n_vocab()
        vocab, is_end = library.llama_model_get_vocab(self._model.model), library.llama_vocab_is_eog
        self.stop_ids |= {id_ for id_ in range(self.vocab_rows) if is_end(vocab, id_)}

    def _feed(self, ids: list[int]) -> Any:
        self._model.eval(ids)
        pointer = self._library.llama_get_logits_ith(self._model.ctx, -1)
        # A copy: the next call overwrites them.
        return self._numpy.ctypeslib.as_array(pointer, shape=(self.vocab_rows,)).copy()

    def _forget(self) -> None:
        self._library.llama_memory_clear(self._library.llama_get_memory(self._model.ctx), True)
        self._model.reset()


class _Transformers(_Runner):
    """Runs what `AutoModelForCausalLM` loads, on torch: safetensors only, no remote code."""

    name, packages, install = "Transformers", ("transformers", "torch"), "transformers torch"

    def _load(self, loading: _Loading) -> None:
        self._torch = importlib.import_module("torch")
        self._library = importlib.import_module("transformers")
        self.device = self._best_device(self._torch, loading)
        given = {"dtype": loading.dtype or "auto", **loading.settings}
        safe = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        with self._explained():
            load = self._library.AutoModelForCausalLM.from_pretrained
            self._model, found = load(str(self.path), output_loading_info=True, **safe, **given)
            if "device_map" not in given:
                self._model.to(self.device)
        missing = sorted(found["missing_keys"])
        if missing:  # transformers would fill them with random numbers
            raise ValueError(f"{len(missing)} weights are missing, such as {missing[0]}")
        self._model.eval()
        # Only the last logits are needed; those of a whole prompt can take gigabytes.
        accepted = importlib.import_module("inspect").signature(self._model.forward).parameters
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._kept = "cache" if "cache" in accepted else "past_key_values"  # before 5.24

    @staticmethod
    def _best_device(torch: Any, loading: _Loading) -> str:
        if loading.device or loading.n_gpu_layers == 0:
            return loading.device if loading.device and loading.n_gpu_layers else "cpu"
        mps = "mps" if torch.backends.mps.is_available() else "cpu"
        return "cuda" if torch.cuda.is_available() else mps

    def _feed(self, ids: list[int]) -> Any:
        with self._torch.inference_mode():
            inputs = self._torch.tensor([ids], device=self._model.device)
            given = {self._kept: self._cache, "use_cache": True, **self._options}
            out = self._model(input_ids=inputs, **given)
            self._cache = getattr(out, self._kept)
            return out.logits[0, -1].float().cpu().numpy()

    def _forget(self) -> None:
        self._cache = self._library.DynamicCache(config=self._model.config)


class _Mlx(_Runner):
    """Runs what `mlx_lm.utils.load_model` loads, in the dtype of its weights."""

    name, packages, install = "MLX", ("mlx_lm",), "mlx-lm numpy"

    def _load(self, loading: _Loading) -> None:
        self._mx = importlib.import_module("mlx.core")
        utils = importlib.import_module("mlx_lm.utils")
        self._caches = importlib.import_module("mlx_lm.models.cache")
        self.device = "GPU" if self._mx.default_device().type == self._mx.DeviceType.gpu else "CPU"
        # Transformers 5 writes rope_theta inside rope_parameters; mlx-lm's models that look
        # beside it silently use 10,000.
        config = self.files.config
        rope = {} if "rope_theta" in config else config.get("rope_parameters") or {}
        found = {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}
        if found and rope.get("rope_type", "default") != "default":
            found["rope_scaling"] = config.get("rope_scaling", rope)
        settings = dict(loading.settings)
        found |= settings.pop("model_config", {})
        with self._explained():
            self._model, _ = utils.load_model(self.path, model_config=found, **settings)

    def _feed(self, ids: list[int]) -> Any:
        mx = self._mx
        logits = self._model(mx.array([ids]), cache=self._cache)[0, -1].astype(mx.float32)
        mx.eval(logits, [layer.state for layer in self._cache])
        return self._numpy.array(logits)

    def _forget(self) -> None:
        self._cache = self._caches.make_prompt_cache(self._model)
        self._mx.clear_cache()


# -- Models for OpenVINO --------------------------------------------------------
# OpenVINO runs its own format only.  optimum-intel converts a model of HuggingFace's, in another
# process: it prints a lot, and needs torch and the memory of a whole model until it ends.
_CONVERTER = """\
import sys
parent, model, folder, *sys.path = sys.argv[1:]
sys.modules["openvino_telemetry"] = None  # reports nothing to Intel
import os, threading, time

def end_with_parent():
    while os.getppid() == int(parent):
        time.sleep(0.2)
    os._exit(1)

threading.Thread(target=end_with_parent, daemon=True).start()
from optimum.exporters.openvino import main_export
from optimum.intel import OVConfig

# "auto" keeps the type of the weights; without it, those of a large model become 8-bit integers.
main_export(
    model,
    folder,
    task="text-generation-with-past",
    library_name="transformers",
    local_files_only=True,
    ov_config=OVConfig(dtype="auto"),
)
"""
_IR = "openvino_model.xml"


def _cache_folder() -> Path:
    """Return this library's directory among the user's caches."""
    chosen = os.environ.get("BPE_TOKENIZER_CACHE", "")
    if chosen not in ("", "0"):  # "0" turns off the cache of compiled vocabularies
        return Path(chosen)
    base = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "bpe_tokenizer"


def _lock_file(handle: int, shared: bool) -> bool:
    """Lock an open file; return False if the file system has no locks.

    Raises:
        BlockingIOError: another process has the lock.
    """
    try:
        if os.name == "nt":
            locking: Any = importlib.import_module("msvcrt")
            if not shared:
                locking.locking(handle, locking.LK_NBLCK, 1)
        else:
            fcntl: Any = importlib.import_module("fcntl")
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            raise BlockingIOError from None
        return False
    return True


@contextlib.contextmanager
def _alone_in(folder: Path, waiting: str) -> Iterator[bool]:
    """Make a directory and hold its lock, until the process ends at the latest.

    Yields False where there are no locks.  `waiting` says on stderr what another process does.
    """
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        remedy = "set BPE_TOKENIZER_CACHE to a directory that you may write to"
        problem = f"can't write there: {error.strerror or error}; {remedy}"
        raise OSError(error.errno, problem, str(folder)) from None
    try:
        while True:
            try:
                is_locked = _lock_file(handle, shared=False)
                break
            except BlockingIOError:
                print(waiting, end="", file=sys.stderr, flush=True)
                waiting = ""
                time.sleep(0.1)
        yield is_locked
    finally:
        os.close(handle)


def _openvino_folder(files: _ModelFiles) -> Path:
    """Return the directory of a model in OpenVINO's format; convert it on first use.

    The cache directory has one conversion of each model, named by the model's path and by the
    state of its files: a changed model is converted again.  It appears under its name when it
    is whole.  What a killed process left is removed by the next one.
    """
    if files.kind == "openvino":
        return files.path
    model = files.path.resolve()
    weights = [model / "config.json", *sorted(model.glob("*.safetensors"))]
    state = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in weights]
    name = f"{model.name[:50]}-{_short_hash(str(model))}"  # file systems limit the length
    place = _cache_folder() / "openvino" / name
    folder = place / _short_hash(_CONVERTER, state)
    if (folder / _IR).exists():
        return folder
    if not _is_installed("optimum.intel"):
        needs = "needs the model in its own format, and optimum-intel, which converts it,"
        raise ImportError(f"it {needs} is not installed")
    waiting = f"{files.path}: waiting for another process, which converts it for OpenVINO\n"
    with _alone_in(place, waiting) as is_locked:
        if not (folder / _IR).exists():
            _make_openvino_folder(files.path, folder, is_locked)
    return folder


def _short_hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _make_openvino_folder(model: Path, folder: Path, is_locked: bool) -> None:
    """Convert a model into a folder, which gets its name when it is whole."""
    shutil: Any = importlib.import_module("shutil")
    if is_locked:  # nobody else is at work: these are of killed processes, or of older weights
        for old in folder.parent.iterdir():
            if old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
    how = "with optimum-intel, once; a large model takes minutes"
    print(f"{model}: converting it for OpenVINO {how}", file=sys.stderr, flush=True)
    draft = Path(importlib.import_module("tempfile").mkdtemp(".tmp", dir=folder.parent))
    try:
        _convert(model, draft)
        try:
            draft.rename(folder)
        except OSError:
            if not (folder / _IR).exists():  # without locks, another process may have been faster
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    print(f"{model}: converted; OpenVINO's files are in {folder}", file=sys.stderr, flush=True)


def _convert(model: Path, folder: Path) -> None:
    """Write a model to an empty folder in OpenVINO's format.

    Raises:
        RuntimeError: optimum-intel can't convert it; the message says why.
    """
    subprocess: Any = importlib.import_module("subprocess")
    arguments = [str(os.getpid()), str(model.resolve()), str(folder), *map(str, sys.path)]
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CONVERTER, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8"},
    )
    if run.returncode == 0 and (folder / _IR).exists():
        for path in folder.rglob("*"):  # on disk before the folder gets its name
            if path.is_file():
                with open(path, "rb+") as written:
                    os.fsync(written.fileno())
        return
    said = [line.strip() for line in run.stdout.splitlines() if line.strip()]
    reason = f"its process ended with status {run.returncode}, and no {_IR}"
    if run.returncode == 1 and said:  # the last line of a traceback
        reason = said[-1]
    elif run.returncode == -9:
        reason = "its process was killed, probably because the memory was full"
    if "torchvision" in run.stdout:
        reason += "; pip uninstall torchvision, if that is built for another torch"
    raise RuntimeError(f"{model}: optimum-intel could not convert it for OpenVINO: {reason}")


def _how_to_convert(files: _ModelFiles) -> str:
    """Return the commands that make OpenVINO run a model of HuggingFace's."""
    quote = importlib.import_module("shlex").quote
    model, folder = quote(str(files.path)), quote(f"{files.path}-openvino")
    weights = "fp32" if files.dtype == "float32" else "fp16"
    command = f"optimum-cli export openvino --model {model} --task text-generation-with-past"
    return (
        "pip install 'optimum-intel[openvino]', then the first use converts it; or convert it "
        f"elsewhere: {command} --weight-format {weights} {folder}"
    )


class _OpenVino(_Runner):
    """Runs a stateful decoder, as ``optimum-cli export openvino`` writes it."""

    name, packages = "OpenVINO", ("openvino",)  # optimum-intel and openvino-genai both bring it
    install, _past = "openvino numpy", 0

    def _load(self, loading: _Loading) -> None:
        openvino = importlib.import_module("openvino").Core()
        self.device = (loading.device or "CPU").upper()
        # The logits of a whole block are computed, where only the last are needed.
        self.block = max(16, min(512, 2**24 // self.vocab_rows))
        path, settings = _openvino_folder(self.files) / _IR, dict[str, Any]()
        if self.files.dtype == "float32" and loading.dtype in (None, "float32"):  # no bfloat16
            settings = {"INFERENCE_PRECISION_HINT": "f32"}
            settings |= {"KV_CACHE_PRECISION": "f32"} if self.device == "CPU" else {}
        settings |= loading.settings
        with self._explained():
            self._model = openvino.compile_model(path, self.device, settings)
            self._request = self._model.create_infer_request()

    def _feed(self, ids: list[int]) -> Any:
        numpy, end = self._numpy, self._past + len(ids)
        inputs = {
            "input_ids": numpy.array([ids], numpy.int64),
            "attention_mask": numpy.ones((1, end), numpy.int64),
            "position_ids": numpy.arange(self._past, end, dtype=numpy.int64)[None],
            "beam_idx": numpy.zeros(1, numpy.int32),
        }
        names = {name for port in self._model.inputs for name in port.names}
        self._request.infer({name: inputs[name] for name in inputs.keys() & names})
        self._past = end
        logits = self._request.get_tensor("logits").data[0, -1]
        return logits.astype(numpy.float32)  # a copy: the next call overwrites them

    def _forget(self) -> None:
        self._request.reset_state()
        self._past = 0


_RUNNERS = {made.name.lower(): made for made in (_LlamaCpp, _Mlx, _OpenVino, _Transformers)}


def _is_installed(package: str) -> bool:
    """Find a package without importing it; "llama_cpp:cuda" asks for a build for a GPU."""
    package, _, gpu = package.partition(":")
    spec = None
    with contextlib.suppress(ImportError, ValueError):  # its parent is missing or half imported
        spec = importlib.util.find_spec(package)
    if spec is None or not gpu:
        return spec is not None
    folder = Path(spec.origin or "").parent
    return any(list(folder.glob(f"lib/*{name}{gpu}*")) for name in ("ggml-", "torch_"))


def _is_apple() -> bool:
    return sys.platform == "darwin" and platform.machine() == "arm64"


def _has_nvidia_gpu() -> bool:
    subprocess = importlib.import_module("subprocess")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        run = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, timeout=10)
        return run.returncode == 0 and bool(run.stdout.strip())
    return False


def _has_amd_gpu() -> bool:
    # Every GPU that the ROCm driver runs is a node with shader units; CPUs have none.
    nodes = Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    with contextlib.suppress(OSError):
        return any(re.search(r"^simd_count [1-9]", node.read_text(), re.M) for node in nodes)
    return False


def _is_intel() -> bool:
    if platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686"):
        return False
    with contextlib.suppress(OSError):
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    return "Intel" in platform.processor()


_ON_GPU: dict[str, str | None] = {"llama.cpp": "gpu", "transformers": "cuda"}  # on ROCm, too
_ANYWHERE = "any processor", lambda: True, ""
# Best first: hardware, whether it is here, the build it needs, libraries with their devices.
_BACKENDS: dict[InferenceBackend, tuple[str, Callable[[], bool], str, dict[str, str | None]]] = {
    InferenceBackend.APPLE_MLX: ("Apple Silicon", _is_apple, "", {"mlx": None}),
    InferenceBackend.NVIDIA_CUDA: ("an NVIDIA GPU", _has_nvidia_gpu, ":cuda", _ON_GPU),
    InferenceBackend.AMD_ROCM: ("an AMD GPU", _has_amd_gpu, ":hip", _ON_GPU),
    InferenceBackend.INTEL_OPENVINO: ("an Intel processor", _is_intel, "", {"openvino": None}),
    InferenceBackend.CPU_LLAMA_CPP: (*_ANYWHERE, {"llama.cpp": "cpu"}),
    InferenceBackend.HUGGINGFACE_TRANSFORMERS: (*_ANYWHERE, {"transformers": None}),
}


def detect_best_backend(verbose: bool = True) -> InferenceBackend:
    """Choose how to run a model here: the first backend with both hardware and software.

    If no software is installed, return the backend that suits the hardware best.  With
    `verbose`, explain on stderr the choice and what to install.
    """
    lines: list[str] = []
    fitting = [backend for backend, (_, is_here, *_) in _BACKENDS.items() if is_here()]
    for backend in fitting:
        hardware, _, build, names = _BACKENDS[backend]
        needs = [(*_RUNNERS[n].packages[:-1], _RUNNERS[n].packages[-1] + build) for n in names]
        if here := next((each for each in needs if all(map(_is_installed, each))), None):
            are = "is" if len(here) == 1 else "are"
            found = f"it runs on {hardware}, and {' and '.join(here)} {are} installed"
            lines.append(f"{backend.value}: chosen; {found}")
            break
        needed = " nor ".join(" with ".join(each) for each in needs)
        needed = f"neither {needed} is" if len(needs) > 1 else f"{needed} is not"
        remedy = f"pip install {_RUNNERS[next(iter(names))].install}"
        missing = f"but {needed} installed; {remedy}"
        lines.append(f"{backend.value}: would run on {hardware}, {missing}")
    else:
        backend = fitting[0]
        lines.append(f"No backend is installed; {backend.value} would suit this machine best")
    if verbose:
        print(*lines, sep="\n", file=sys.stderr)
    return backend


def _choices(
    path: object, found: Iterable[_ModelFiles], backend: Any
) -> list[tuple[str, Any, str | None]]:
    """Return (library, its files, device) for each candidate, best first."""
    if not isinstance(backend, (InferenceBackend, str, type(None))):
        raise TypeError(f"backend must be a name or an InferenceBackend, got {backend!r:.50}")
    known: dict[str, dict[str, str | None]] = {name: {name: None} for name in _RUNNERS}
    known |= {member.value: libraries for member, (*_, libraries) in _BACKENDS.items()}
    name = str(getattr(backend, "value", backend)).lower()
    name = {"llama_cpp": "llama.cpp", "llama-cpp": "llama.cpp"}.get(name, name)
    if (asked := dict.fromkeys(_RUNNERS) if backend is None else known.get(name)) is None:
        hint = "".join(f"; did you mean {n!r}?" for n in difflib.get_close_matches(name, known, 1))
        raise ValueError(f"backend must be one of {', '.join(known)}, got {backend!r:.50}{hint}")
    readers: list[tuple[str, _ModelFiles]] = []
    kinds = [files.kind for files in found]
    for files in found:
        names = {"gguf": ["llama.cpp"], "openvino": ["openvino"]}.get(files.kind)
        names = names or ["mlx", "transformers"]
        if files.kind in ("mlx", "safetensors") and "quantization" in files.config:  # MLX's word
            names = ["mlx"]
        names = names[:: -1 if files.kind == "safetensors" and not _is_apple() else 1]
        # OpenVINO converts such a model, which takes minutes: only if it is asked for.
        if backend is not None and "transformers" in names and "openvino" not in kinds:
            names.append("openvino")
        readers += [(name, files) for name in names]
    if not (choices := [(name, files, asked[name]) for name, files in readers if name in asked]):
        able = ", ".join(dict.fromkeys(name for name, _ in readers))
        problem = f"cannot read this model (its kind: {' and '.join(kinds)})"
        raise ValueError(f"{path}: {' or '.join(asked)} {problem}; {able} can")
    here = [each for each in choices if all(map(_is_installed, _RUNNERS[each[0]].packages))]
    return here or choices


def _check_timeout(timeout: Any) -> float | None:
    """Return how many seconds to wait at most; None for no limit."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be seconds or None, got {_shorten(timeout)}")
    if not timeout >= 0:
        raise ValueError(f"timeout must be 0 seconds or more, got {timeout}")
    return None if timeout > threading.TIMEOUT_MAX else timeout


def _cannot_use(name: str, files: _ModelFiles, error: ImportError) -> str:
    remedy = f"pip install {_RUNNERS[name].install}"
    if name == "openvino" and files.kind != "openvino":
        remedy = _how_to_convert(files)
    return f"{name} cannot be used ({error}); {remedy}"


# -- What a model's files say ---------------------------------------------------
# Only headers are read, so that a model that can't run here is refused in a fraction of a second.
# bpe_tokenizer_tools/backends/model_files.py reads more: all of GGUF and of openvino_model.xml.

_TOKENIZER_NAMES = ("tokenizer.json", "tekken.json", "tokenizer.model", "vocab.json")
_MAX_ROWS = 2**31 - 1  # ids are 32 bits wide in every library
_MAX_JSON_BYTES = 100_000_000  # of a safetensors header, as the format says
_GGUF_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).exists() for name in _TOKENIZER_NAMES)


def _gguf_within(folder: Path) -> Path:
    """Return the one model of a directory, of several files the first."""
    files = sorted(folder.glob("*.gguf"))
    # Files that turn pictures into embeddings are beside the model they belong to.
    files = [file for file in files if not file.name.startswith("mmproj")]
    shards = [(file, _GGUF_SHARD.fullmatch(file.name)) for file in files]
    firsts = [file for file, shard in shards if shard is None or int(shard[2]) == 1]
    if len(firsts) == 1:
        return firsts[0]
    if firsts:
        names = ", ".join(file.name for file in firsts[:3])
        raise FileFormatError(folder, "", f"contains several models; name one of: {names}")
    for name, problem in (
        ("adapter_config.json", "holds an adapter, not a whole model; merge it into its model"),
        ("pytorch_model.bin", "its weights are pickled, which can run code; convert it"),
    ):
        if (folder / name).exists():
            raise FileFormatError(folder, name, f"{problem}, and save that as safetensors")
    raise FileNotFoundError(
        f"{folder}: contains no model; expected model.safetensors with config.json, {_IR}, or a "
        f".gguf file{_models_near(folder)}"
    )


def _models_near(folder: Path) -> str:
    """Suggest the models in a directory's own directories, else the one that it is part of."""
    names = ("*.safetensors", _IR, "*.gguf")
    below = {file.parent for name in names for file in folder.glob(f"*/{name}")}
    above = {folder.parent for name in names if any(folder.parent.glob(name))}
    found = [str(each) for each in sorted(below or above)[:4]]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _gguf_files(path: Path) -> list[Path]:
    """Return all files of a model, given one of them."""
    shard = _GGUF_SHARD.fullmatch(path.name)
    if shard is None:
        return [path]
    count = int(shard[3])
    names = [f"{shard[1]}-{i + 1:05}-of-{shard[3]}.gguf" for i in range(count)]
    files = [path.with_name(name) for name in names]
    missing = [file.name for file in files if not file.exists()]
    if missing or not files:
        raise FileNotFoundError(
            f"{path}: {len(missing)} of {count} parts are missing: {missing[:3]}"
        )
    return files


_TEXT_PARTS = ("text_config", "llm_config", "language_config")  # of a model that also takes images


class _ModelConfig:
    """config.json and generation_config.json, whose values may be of any type."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "config.json"
        self.data: dict[str, Any] = _JsonReader.open(self.path).data
        self.files = [self.path]
        parts = map(self.data.get, _TEXT_PARTS)
        self._texts = [*(part for part in parts if isinstance(part, dict)), self.data]
        generation = folder / "generation_config.json"
        self._generation: dict[str, Any] = {}
        if generation.exists():
            self.files.append(generation)
            self._generation = _JsonReader.open(generation).data

    def number(self, *names: str) -> int | None:
        """Return the value of the first of some fields that exists."""
        for name in names:
            for data in self._texts:
                value = data.get(name)
                if value is None:
                    continue
                if type(value) is not int or value < 1:
                    problem = f"expected a number of 1 or more, got {_shorten(value)}"
                    raise FileFormatError(self.path, name, problem)
                return value
        return None

    def ids(self, name: str, rows: int) -> tuple[int, ...]:
        """Return a role's ids, without those that the model doesn't have."""
        return _valid_ids(self.said(name), rows)

    def said(self, name: str) -> tuple[int, ...]:
        """Return a role's ids as the files have them."""
        found: list[Any] = []
        for data in (self._generation, *self._texts):
            value = data.get(name)
            found += value if isinstance(value, list) else [value]
        return _valid_ids(found, _MAX_ROWS)

    def model(self, kind: str, rows: int, dtype: str, files: Iterable[Path]) -> _ModelFiles:
        """Combine the facts."""
        folder = self.path.parent
        return _ModelFiles(
            folder,
            kind,
            rows,
            dtype,
            self.number("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx"),
            self.ids("eos_token_id", rows),
            self.data,
            next(iter(self.ids("bos_token_id", rows)), None),
            folder if _has_tokenizer(folder) else None,
            (*self.files, *files),
            {role: self.said(f"{role}_token_id") for role in ("bos", "eos", "pad")},
        )


def _valid_ids(ids: Iterable[Any], rows: int) -> tuple[int, ...]:
    """Return the values that are ids; converters write -1 and the like for none."""
    return tuple(dict.fromkeys(id_ for id_ in ids if type(id_) is int and 0 <= id_ < rows))


def _checked_rows(path: Path, place: str, rows: Any) -> int:
    if type(rows) is not int or not 1 <= rows <= _MAX_ROWS:
        raise FileFormatError(path, place, f"expected a table of embeddings, got {rows} rows")
    return rows


# A safetensors file begins with the length of a JSON object and the object: {name: {"dtype",
# "shape", "data_offsets"}}, and strings in "__metadata__".  Then comes the data.
_EMBEDDINGS = (
    r"(.*\.)?(embed_tokens|wte|tok_embeddings|word_embeddings|embed_in|embeddings)\.weight",
    r"(lm_head|embed_out|output)\.weight",
)
_SAFETENSORS_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def _safetensors_files(folder: Path) -> list[Path]:
    """Return the files with the weights."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = set(_JsonReader.open(index).get("weight_map", dict).values())
        for name in names:
            if not isinstance(name, str) or Path(name).name != name:
                raise FileFormatError(index, "weight_map", f"{_shorten(name)} is not a file name")
        files = [folder / name for name in sorted(names)]
        missing = [file.name for file in files if not file.exists()]
        if missing:
            raise FileNotFoundError(f"{index}: {len(missing)} parts are missing: {missing[:3]}")
        return files
    whole = folder / "model.safetensors"
    return [whole] if whole.exists() else sorted(folder.glob("model*.safetensors"))


def _read_safetensors(folder: Path, weights: list[Path]) -> _ModelFiles:
    config = _ModelConfig(folder)
    tensors: dict[str, Any] = {}
    by_mlx = False
    for file in weights:
        header = _safetensors_header(file)
        metadata = header.pop("__metadata__", None)
        by_mlx |= isinstance(metadata, dict) and metadata.get("format") == "mlx"
        tensors.update(header)
    by_mlx |= isinstance(config.data.get("quantization"), dict)
    found = (name for table in _EMBEDDINGS for name in tensors if re.fullmatch(table, name))
    name = next(found, None)
    said = config.number("vocab_size")
    if name is None:
        rows, dtype = _checked_rows(config.path, "vocab_size", said), "quantized"
    else:
        rows = _checked_rows(weights[0], name, (tensors[name]["shape"] or [0])[0])
        dtype = _SAFETENSORS_DTYPES.get(tensors[name]["dtype"], "quantized")
    if said is not None and said != rows:
        problem = f"is {said:,}, but {name} has {rows:,} rows; one of the files is of another model"
        raise FileFormatError(config.path, "vocab_size", problem)
    return config.model("mlx" if by_mlx else "safetensors", rows, dtype, weights)


def _safetensors_header(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(8)
        length = int.from_bytes(head, "little") if len(head) == 8 else size
        if length > min(size - 8, _MAX_JSON_BYTES):
            raise FileFormatError(path, "", "not a safetensors file, or cut short in its header")
        text = file.read(length)
    try:
        header = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, "header", f"not JSON: {error}") from None
    if not isinstance(header, dict):
        raise FileFormatError(path, "header", f"expected a JSON object, got {_shorten(header)}")
    for name, tensor in header.items():
        if name != "__metadata__":
            _check_tensor(path, name, tensor, size - 8 - length)
    return header


def _check_tensor(path: Path, name: str, tensor: Any, size: int) -> None:
    fields = tensor if isinstance(tensor, dict) else {}
    shape: Any = fields.get("shape")
    offsets: Any = fields.get("data_offsets")
    for values in (shape, offsets):
        fits = isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)
        if not fits or not isinstance(fields.get("dtype"), str):
            raise FileFormatError(path, _shorten(name)[1:-1], "expected dtype, shape, data_offsets")
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= size:
        problem = f"its data ends at {offsets[-1:]} of {size:,} bytes; the file is cut short"
        raise FileFormatError(path, _shorten(name)[1:-1], problem)


def _read_gguf(path: Path) -> _ModelFiles:
    """Describe a GGUF file by its name: llama.cpp and the tools read its header."""
    with open(path, "rb") as file:
        if file.read(4) != b"GGUF":
            raise _no_model(path)
    files = _gguf_files(path)
    return _ModelFiles(files[0], "gguf", files=tuple(files))


def _no_model(path: Path) -> FileFormatError:
    problem = "not recognized as a model; a file must be GGUF, others are directories"
    return FileFormatError(path, "", problem + _models_near(path))


def _read_ir(folder: Path) -> _ModelFiles:
    """Describe a model of OpenVINO's by its config.json; the tools read its graph, too."""
    config, path, data = _ModelConfig(folder), folder / _IR, _ir_weights(folder)
    rows = _checked_rows(config.path, "vocab_size", config.number("vocab_size"))
    dtype = config.data.get("dtype", config.data.get("torch_dtype"))
    return config.model("openvino", rows, str(dtype), (path, data))


def _ir_weights(folder: Path) -> Path:
    data = folder / "openvino_model.bin"
    if not data.exists():
        raise FileNotFoundError(f"{data}: no such file; the weights of {_IR} are in it")
    return data


def _describe(
    path: _FileName,
    read_gguf: Callable[[Path], _ModelFiles] = _read_gguf,
    read_ir: Callable[[Path], _ModelFiles] = _read_ir,
) -> list[_ModelFiles]:
    """Read facts about a model from its files; a directory may have several kinds.

    Raises:
        FileNotFoundError: there is no such model, or a part of it is missing.
        FileFormatError: it is damaged, or not a model.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: no such file or directory; expected a .gguf file, or a directory with "
            "config.json and safetensors, or one with openvino_model.xml (download a model from "
            "the Hub first)"
        )
    path = path.resolve()
    if path.is_file() and (path.name == _IR or path.suffix == ".safetensors"):
        path = path.parent
    if path.is_file():
        return [read_gguf(path)]
    found = []
    if (path / _IR).exists():
        found.append(read_ir(path))
    weights = _safetensors_files(path)
    if weights:
        found.append(_read_safetensors(path, weights))
    return found or [read_gguf(_gguf_within(path))]


_loaded: dict[str, _Runner] = {}  # the last one, by everything it was loaded with
_loading_lock = threading.RLock()
atexit.register(_loaded.clear)  # while its library still works


def _open_model(path: Path, backend: Any, loading: _Loading) -> _Runner:
    """Load a model with the best library installed, or return it if it was the last one loaded."""
    problems = []
    for name, files, device in _choices(path, _describe(path), backend):
        loading = dataclasses.replace(loading, device=device)
        key = repr((name, loading, files, files.stamp()))
        try:
            with _loading_lock:  # threads share one model
                if key not in _loaded:
                    _loaded.clear()
                    _loaded[key] = _RUNNERS[name](files, loading)
                return _loaded[key]
        except ImportError as error:
            problems.append(_cannot_use(name, files, error))
    others = _models_near(path) if path.is_dir() else ""
    raise ImportError(f"{path}: {'; or '.join(problems)}{others}")


# == 11. BPETokenizer =========================================================
# The public interface: each method checks arguments, calls the sections above, wraps results.

_AllowedSpecial = str | Iterable[str]
_SpecialTokens = Mapping[str, int | None] | Iterable["str | AddedToken"]
_How = str | Callable[..., Any] | None  # a chat template
_Chats = Iterable[Sequence[Mapping[str, Any]]]
_Yes = Literal[True]
_No = Literal[False]


class _TextOptions(TypedDict, total=False):  # of `encode`, and of a call
    add_special_tokens: bool
    allowed_special: _AllowedSpecial
    disallowed_special: _AllowedSpecial


class _Options(_TextOptions, total=False):  # of `encode_batch`, without return_tensors
    padding: bool | str
    truncation: bool | str | None
    max_length: int | None
    padding_side: str | None
    truncation_side: str | None
    pad_to_multiple_of: int | None
    return_offsets: bool


def _as_added_tokens(special_tokens: _SpecialTokens | None) -> list[AddedToken]:
    """Read the ways to name special tokens: {text: id}, texts, AddedTokens."""
    if isinstance(special_tokens, (str, bytes)):
        got = f"the {type(special_tokens).__name__} {_shorten(special_tokens)}"
        raise TypeError(f"special_tokens must be a mapping or a list, got {got}; put it in a list")
    given = () if special_tokens is None else special_tokens
    given = itertools.starmap(AddedToken, given.items()) if isinstance(given, Mapping) else given
    tokens = [each if isinstance(each, AddedToken) else AddedToken(each) for each in given]
    for content, id_ in ((token.content, token.id) for token in tokens):
        if not isinstance(content, str):
            raise TypeError(f"a special token must be a string, got {_shorten(content)}")
        if not content:
            raise ValueError("a special token must not be empty")
        _utf8_length(content)
        if id_ is not None and (type(id_) is not int or not 0 <= id_ <= _MAX_ID):
            wanted = f"expected an id from 0 to {_MAX_ID} or None, got {_shorten(id_)}"
            raise ValueError(f"special token {content!r}: {wanted}")
    return tokens


def _is_there(token: AddedToken, known: AddedToken | None) -> bool:
    if known is None or token.id not in (None, known.id):
        return False
    by_name = token == AddedToken(token.content, token.id)  # sets no flags
    return known.special if by_name else dataclasses.replace(token, id=known.id) == known


def _by_id(tokens: Iterable[AddedToken]) -> tuple[AddedToken, ...]:
    return tuple(sorted(tokens, key=lambda token: cast("int", token.id)))


def _with_added_tokens(definition: Definition, tokens: Iterable[AddedToken]) -> Definition:
    """Add tokens to a definition, those without an id at its end; raise if taken."""
    taken: dict[Any, Any] = {id_: token for token, id_ in definition.vocab.items()}
    free = itertools.count(max(taken, default=-1) + 1)
    added = {token.content: token for token in definition.added}
    taken.update({token.id: content for content, token in added.items()})
    for token in tokens:
        own = definition.vocab.get(definition.read(token.content) or b"")
        if token.content in added or own is not None:
            known = added[token.content].id if token.content in added else own
            there = "listed twice" if known is None else f"already a token, with the id {known}"
            raise ValueError(f"{token.content!r} is {there}; ids and flags of a token don't change")
        added[token.content] = token
        other = token.content if token.id is None else taken.setdefault(token.id, token.content)
        if other != token.content:
            name = other if isinstance(other, str) else definition.write(other)
            taken_by = f"is already that of {name!r}; leave the id out to get a free one"
            raise ValueError(f"special token {token.content!r}: id {token.id} {taken_by}")
    for content, token in added.items():
        if token.id is None:
            id_ = next(id_ for id_ in free if id_ not in taken)
            added[content] = dataclasses.replace(token, id=id_)
    return dataclasses.replace(definition, added=_by_id(added.values()))


def _recognized(definition: Definition, allowed: frozenset[str]) -> list[AddedToken]:
    """Return the added tokens to find: of the special ones, only those `allowed`."""
    return [token for token in definition.added if not token.special or token.content in allowed]


def _lay_out(
    empty: Definition, tokens: list[AddedToken], named: list[AddedToken], first: bool
) -> tuple[Definition, list[AddedToken]]:
    """Number the bytes of a new vocabulary, behind the added tokens that go first.

    Added tokens go first if their ids are 0, 1 and so on; `first` gives such ids to those that are
    `named` without one.  Then the vocabulary is laid out as HuggingFace's trainer does it: these
    tokens, the bytes in the order of their printable characters, and the merges.
    """
    if type(first) is not bool:
        raise TypeError(f"special_tokens_first must be True or False, got {_shorten(first)}")
    taken = {token.id for token in tokens}
    free = (id_ for id_ in itertools.count() if id_ not in taken)
    if first:
        new = dict.fromkeys(token.content for token in named if token.id is None)
        ids = dict(zip(new, free))
        tokens = [dataclasses.replace(t, id=ids.get(t.content, t.id)) for t in tokens]
        taken.update(ids.values())
    n_first = next(id_ for id_ in itertools.count() if id_ not in taken)
    if n_first or first:
        vocab = {bytes([byte]): id_ for id_, byte in enumerate(_ALPHABET, n_first)}
        empty = dataclasses.replace(empty, vocab=vocab)
    wanted_first = {token.content for token in named} if first else set()
    for token in tokens:
        if token.id is None or token.id < n_first:
            continue
        given = f"special token {token.content!r}: id {token.id}"
        if token.content in wanted_first:
            problem = "isn't one of the first, which go from 0 on without a gap"
            raise ValueError(f"{given} {problem}; leave it out to get the next of them")
        if token.id < n_first + 256:
            possible = f"without a gap from 0 on, before the bytes, or from {n_first + 256} on"
            raise ValueError(f"{given} is that of a byte; give ids {possible}, or leave them out")
    return empty, tokens


def _number_merges(
    learned: _Learned, empty: Definition, tokens: Sequence[AddedToken], old: Mapping[Any, str]
) -> Definition:
    """Number the learned tokens in order, skipping reserved ids; add `tokens`."""
    reserved = {token.id for token in tokens}
    first = max(empty.vocab.values(), default=-1) + 1
    free = (id_ for id_ in itertools.count(first) if id_ not in reserved)
    vocab = {**empty.vocab, **dict(zip(learned.tokens, free))}
    merges = [(vocab[left], vocab[right]) for left, right in learned.merges]
    new = _with_added_tokens(dataclasses.replace(empty, vocab=vocab, merges=merges), tokens)
    ids = {token.content: token.id for token in new.added}
    around: Any = empty.template
    if not isinstance(around, str):  # ids, which were those of `old` tokens
        around = tuple(tuple(ids[old[id_]] for id_ in side) for side in around)
    return dataclasses.replace(new, template=around)


def _cut_vocab(definition: Definition, vocab_size: int) -> Definition:
    """Keep the first merges, so that `vocab_size` tokens are left in all."""
    if definition.components is not None:
        raise ValueError("only byte-level BPE with one split pattern can be cut down")
    token = {id_: token for token, id_ in definition.vocab.items()}
    ids = {cast("int", token.id) for token in definition.added}
    smallest, size = 256 + len(ids), len({*token, *ids})
    if not (hasattr(vocab_size, "__index__") and smallest <= vocab_size <= size):
        most = f"{size} (what this tokenizer has), got {vocab_size!r}"
        raise ValueError(f"vocab_size must be from {smallest} (bytes and added tokens) to {most}")
    vocab = {token: id_ for token, id_ in definition.vocab.items() if len(token) == 1}
    merges: list[tuple[int, int]] = []
    for left, right in definition.merges:
        joined = token[left] + token[right]
        if token[left] not in vocab or token[right] not in vocab:
            cause = f"its merge {len(merges)} joins a token that only a later one makes"
            raise ValueError(f"this vocabulary cannot be cut: {cause}")
        if joined not in vocab and len(vocab) + len(ids) == vocab_size:
            break
        vocab[joined] = definition.vocab[joined]
        merges.append((left, right))
    unmade = (item for item in definition.vocab.items() if item[0] not in vocab)
    room = vocab_size - len(ids) - len(vocab)
    vocab.update(list(itertools.islice(unmade, room)))  # if there are tokens no merge makes
    # Added tokens right after the last ordinary one stay right after it.
    following = list(itertools.takewhile(ids.__contains__, itertools.count(max(token) + 1)))
    staying = ids.difference(following)
    free = (id_ for id_ in itertools.count(max(vocab.values()) + 1) if id_ not in staying)
    moved: dict[Any, int] = dict(zip(following, free))
    added = [dataclasses.replace(each, id=moved.get(each.id, each.id)) for each in definition.added]
    around: Any = definition.template
    if not isinstance(around, str):
        around = tuple(tuple(moved.get(id_, id_) for id_ in side) for side in around)
    changes: Any = {"vocab": vocab, "merges": merges, "template": around}
    return dataclasses.replace(definition, added=_by_id(added), **changes)


def _roles_by_name(tokens: Iterable[AddedToken]) -> dict[str, str]:
    """Return role -> token, for special tokens with one of the known names, in any case."""
    contents = sorted(token.content for token in tokens if token.special)
    new = {content.lower(): content for content in contents}  # "<s>" wins over "<S>"
    known = ((role, (*names, f"[{role[:3]}]")) for role, names in _ROLE_NAMES.items())
    found = {role: [new[n] for n in map(str.lower, names) if n in new] for role, names in known}
    return {role: tokens[0] for role, tokens in found.items() if tokens}


def _check_sizes(
    vocab_size: Any, smallest: int, min_frequency: Any, longest: Any, why: str = ""
) -> None:
    if vocab_size is None or min_frequency is None:
        raise TypeError("vocab_size and min_frequency must be ints, got None")
    _check_size("min_frequency", min_frequency, 0)
    _check_size("max_token_length", longest, 1)
    _check_size("vocab_size", vocab_size, smallest, why)


def _room_for_merges(vocab_size: Any, n_added: int, min_frequency: Any, longest: Any) -> int:
    """Check the sizes for training on bytes; return how many tokens merges may make."""
    tokens = f"{n_added} special token{'s' * (n_added != 1)}"
    why = f" (256 bytes, {tokens}, and room for a merge)"
    _check_sizes(vocab_size, 256 + n_added + 1, min_frequency, longest, why)
    return cast("int", vocab_size) - 256 - n_added


def _named_tokens(
    option: str, given: _AllowedSpecial, words: Mapping[str, Iterable[str]]
) -> frozenset[str]:
    """Read an option that names special tokens: a set, or a word such as "all"."""
    if isinstance(given, str) and given not in words:
        choices = ", ".join(map(repr, words))
        raise ValueError(f"{option} must be {choices} or a set of special tokens, got {given!r}")
    if not isinstance(given, Iterable):
        raise TypeError(f"{option} must be a set, got {_shorten(given)}")
    tokens = list(words[given] if isinstance(given, str) else given)
    if wrong := [token for token in tokens if not isinstance(token, str)]:
        raise TypeError(f"{option} must be a set of strings, got {_shorten(wrong[0])} in it")
    return frozenset(tokens)


def _check_texts(texts: object) -> list[str]:
    if isinstance(texts, (str, bytes)) or not isinstance(texts, (list, tuple, Iterable)):
        raise TypeError(f"texts must be a list of strings, got {type(texts).__name__}")
    texts = list(texts)
    for i, text in enumerate(texts if {*map(type, texts)} - {str} else ()):
        _check_text(text, f"texts[{i}]" if len(texts) > 1 else "text")
    return texts


def _longest_prefix(tokenizer: BPETokenizer, text: str, room: int, allowed: frozenset[str]) -> str:
    """Return the longest prefix that encodes to at most `room` ids; see `truncate`."""
    if tokenizer._definition.components is None:  # other normalizers may not keep prefixes
        found = _text_between(tokenizer._pipeline(allowed).raw.find(text), len(text))
        text = "".join(
            text[start:end] if token else _engine.normalize(text[start:end], tokenizer.normalizer)
            for start, end, token in found
        )
    places, length = list[_Span](), 6 * room if tokenizer._is_plain(text, allowed) else len(text)
    while len(places) <= room and length < len(text):  # the beginning is usually enough
        at = _splitter(tokenizer._definition.split_pattern).last_cut(text, length) or 0
        places = tokenizer._encoder.places(text[:at], tokenizer._encoder.encode(text[:at]))
        length = 2 * length + 64
    if len(places) <= room and len(places := _offsets(tokenizer, text, allowed, False)) <= room:
        return text
    cuts = sorted({cut for _, cut in places[:room]})[::-1]  # shorter texts can have more tokens
    count = functools.partial(tokenizer.count_tokens, allowed_special=allowed or "none")
    return text[: next((cut for cut in cuts if count(text[:cut]) <= room), 0)]


def _encode_segments(
    tokenizer: BPETokenizer, segments: list[_Segment], allowed_special: Any, default: str
) -> list[int]:
    """Encode a rendered conversation; `default` is its template's name if nobody chose it."""
    if allowed_special == "all":
        _check_control(segments, tokenizer._added, default)
    made: _SegmentEncoder = tokenizer._derived(_SegmentEncoder)
    contents = made.contents(tokenizer._allowed(allowed_special))
    ids = made.plain(contents)(True, segments)
    counted = ((text, contents if trusted else _NONE) for text, trusted in segments)
    return made.encode(counted) if ids is None else ids


# -- Whether a tokenizer is the model's ---
# A model accepts all ids that are small enough, and answers those of another tokenizer with
# nonsense.  So the tokenizer is compared with the model's files before its weights are loaded:
# the number of ids, the roles, and each token of the model's own tokenizer, if it can be read.


def _model_tokenizer(files: _ModelFiles) -> tuple[BPETokenizer | None, Mapping[int, str]]:
    """Return the model's own tokenizer, if it can be read, and its tokens by id."""
    if files.tokenizer is None:
        return None, {}
    within = sorted(files.tokenizer.iterdir()) if files.tokenizer.is_dir() else [files.tokenizer]
    found = ((file.name, file.stat()) for file in within if file.is_file())
    stamp = tuple((name, at.st_size, at.st_mtime_ns, at.st_ctime_ns) for name, at in found)
    return _read_model_tokenizer(files.tokenizer, stamp)


@functools.lru_cache(maxsize=2)  # a chat asks for it at every turn
def _read_model_tokenizer(
    path: Path, stamp: object
) -> tuple[BPETokenizer | None, Mapping[int, str]]:
    unread: tuple[type[Exception], ...] = (FileFormatError, FileNotFoundError)
    if not _WITH_TOOLS:
        unread += (ImportError,)  # alone, this module can't read each format
    try:
        own = BPETokenizer.from_file(path)
    except unread:
        return None, {}
    return own, {id_: token for token, id_ in own.get_vocab().items()}


def _misfit(tokenizer: BPETokenizer, files: _ModelFiles, is_own: bool = False) -> str:
    """Return why a tokenizer doesn't fit a model, and what to do; empty if it fits."""
    problems = []
    if files.rows and tokenizer.max_id >= files.rows:
        last = tokenizer.convert_ids_to_tokens(tokenizer.max_id)
        problems.append(
            f"its ids go up to {tokenizer.max_id:,} ({_shorten(last)}), but the model has "
            f"{files.rows:,} rows, for the ids 0 to {files.rows - 1:,}"
        )
    own: BPETokenizer | None = tokenizer
    if not is_own:
        own, tokens = _model_tokenizer(files)
        problems += _differing_tokens(tokenizer.get_vocab(), tokens) if own is not None else []
        problems += _differing_roles(tokenizer, own, files)
    if not problems:
        return ""
    remedy = "use the tokenizer it was trained with"
    if own is not None and 0 < files.rows <= own.max_id:
        remedy = (
            "the tokenizer and the weights come from different models, or tokens were added "
            "without resizing the embedding: take both from one model, or resize the embedding"
        )
    elif own is not None:
        remedy = f"load the model's own: BPETokenizer.from_file({str(files.tokenizer)!r})"
    shown = "; ".join(problems)
    return f"this tokenizer does not fit the model {files.path}: {shown}; {remedy}"


def _differing_tokens(vocab: Mapping[str, int], tokens: Mapping[int, str]) -> list[str]:
    differing = [(id_, token) for token, id_ in vocab.items() if tokens.get(id_) != token]
    if not differing:
        return []
    examples = [
        f"id {id_} is {_shorten(token)}, the model's "
        + (_shorten(tokens[id_]) if id_ in tokens else "has none")
        for id_, token in differing[:3]
    ]
    return [f"{len(differing):,} of {len(vocab):,} tokens differ ({', '.join(examples)})"]


def _differing_roles(
    tokenizer: BPETokenizer, own: BPETokenizer | None, files: _ModelFiles
) -> list[str]:
    problems = []
    for role, said in (("bos", {files.bos_id}), ("eos", {*files.eos_ids})):
        found = getattr(tokenizer, f"{role}_token_id")
        expected = {*said, getattr(own, f"{role}_token_id", None)} - {None}
        if found is not None and expected and found not in expected:
            ids = " or ".join(map(str, sorted(expected, key=str)))
            problems.append(f"its {role} token has the id {found}, the model's {ids}")
    return problems


# -- Answers of a model ---
@dataclass
class _Reply:
    """What an answer took.

    Attributes:
        text: the answer as it was yielded, including thoughts.
        prompt_tokens: how many ids the model was given.
        new_tokens: how many it generated, including those of a string that stopped it.
        seconds: how long that took.
        finish: "stop" if the answer is complete, "length" if it was cut off, "cancelled", or
            "error" if the model failed.
    """

    text: str = ""
    prompt_tokens: int = 0
    new_tokens: int = 0
    seconds: float = 0.0
    finish: str = "cancelled"

    @property
    def tokens_per_second(self) -> float:
        """How fast the answer was generated, including reading the prompt."""
        return self.new_tokens / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        counts = f"{self.prompt_tokens} + {self.new_tokens} tokens"
        return f"{counts}, {self.tokens_per_second:.1f} a second, ended by {self.finish}"


# The options of `BPETokenizer.chat` that are not variables of a template.
_CHAT_OPTIONS = (
    *("model_path", "template", "system_prompt", "max_new_tokens", "temperature", "top_p"),
    *("backend", "n_gpu_layers", "n_ctx", "verbose", "top_k", "seed", "stop", "stream"),
    *("heal", "continue_final_message", "timeout", "chat_template", "tools", "documents"),
    *("content_tokens", "sanitize_control_tokens"),
)
_NAMES_ELSEWHERE = {  # what other libraries call an option
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "n_predict"), "max_new_tokens"),
    **dict.fromkeys(("stop_strings", "stop_sequences", "stop_words"), "stop"),
    **dict.fromkeys(("system", "system_message", "instructions"), "system_prompt"),
    "random_seed": "seed",
    "model": "model_path",
    "context_length": "n_ctx",
}


def _check_options(
    caller: str, given: Iterable[str], known: Collection[str], reads: Callable[[str], bool]
) -> None:
    """Raise TypeError for options that aren't known, unless the chat template reads them."""
    for name in given:
        if name in known or reads(name):
            continue
        near = difflib.get_close_matches(name, known, 1)
        meant = _NAMES_ELSEWHERE.get(name, name)
        if meant in known:
            near = [meant]
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"{caller} takes no option {name!r}{hint}")


def _template_reads(tokenizer: BPETokenizer, options: Mapping[str, Any], name: str) -> bool:
    """Return whether the chat template of a call reads a variable of that name."""
    template = options.get("template") or options.get("chat_template")
    source = _select_template(template, tokenizer, options.get("tools"))
    if callable(source) or source in _BUILT_IN:
        return isinstance(source, str) and name in _BUILT_IN_OPTIONS.get(source, ())
    return name in _jinja_variables(source)


def _open_fitting(
    tokenizer: BPETokenizer, path: _FileName, backend: Any, loading: _Loading
) -> _Runner:
    """Open a model; refuse another model's tokenizer, if possible before weights are loaded."""
    _, files, _ = _choices(path, _describe(path), backend)[0]
    if problem := _misfit(tokenizer, files):
        raise ValueError(problem)
    model = _open_model(Path(path), backend, loading)
    if tokenizer.max_id >= model.vocab_rows:  # of a GGUF file, llama.cpp says how many there are
        problem = f"{path} has only {model.vocab_rows:,}: this tokenizer is another model's"
        raise ValueError(f"this tokenizer has ids up to {tokenizer.max_id:,}, and {problem}")
    return model


def _until_stop(ids: Iterable[int], stops: Container[int], reply: _Reply) -> Iterator[int]:
    """Yield ids up to one that ends an answer; count them."""
    started = time.perf_counter()
    for id_ in ids:
        reply.new_tokens += 1
        reply.seconds = time.perf_counter() - started
        if id_ in stops:
            reply.finish = "stop"
            return
        yield id_
    reply.finish = "length"


def _start_answer(
    tokenizer: BPETokenizer, messages: _Chat, path: _FileName, **options: Any
) -> tuple[_Runner, _Reply, Iterator[str]]:
    """Open a model; return it, its answer in pieces, and what these take while they are read."""
    given = {"top_k": 0, "seed": None, "stop": (), "timeout": None, "backend": None, **options}
    wait = _check_timeout(given.pop("timeout"))
    how = _Sampling(*map(given.pop, _Sampling._fields)).check()
    loading = _Loading(given.pop("n_gpu_layers"), given.pop("n_ctx"))
    backend, most, stop = map(given.pop, ("backend", "max_new_tokens", "stop"))
    given = _with_all_turns(tokenizer, given.get("template"), given)
    prompt = tokenizer.apply_chat_template(messages, **given)  # the rest are the template's options
    model = _open_fitting(tokenizer, path, backend, loading)
    answered = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    given |= {"add_generation_prompt": False, "tokenize": False}
    ends = _CONTROL.findall(tokenizer.apply_chat_template(answered, **given))[-1:]
    control = tokenizer.special_tokens.items()
    stops = {id_ for token, id_ in control if token in (*ends, tokenizer.eos_token)}
    stops |= model.stop_ids
    reply = _Reply(prompt_tokens=len(prompt))
    ids = model._generate(prompt, most, how, stops, tokenizer.max_id + 1, wait)
    said = tokenizer.decode_streaming(_until_stop(ids, stops, reply), True)
    texts = [each for each in ([stop] if isinstance(stop, str) else stop) if each]
    stopped = functools.partial(setattr, reply, "finish", "stop")
    return model, reply, _until(said, texts, stopped)


def _chat(tokenizer: BPETokenizer, messages: _Chat, path: _FileName, **options: Any) -> Any:
    """Let a model answer; see `BPETokenizer.chat`."""
    reads = functools.partial(_template_reads, tokenizer, options)
    _check_options("chat()", options, _CHAT_OPTIONS, reads)
    given = {"stream": False, **options}
    stream, verbose = given.pop("stream"), given.pop("verbose")
    model, reply, pieces = _start_answer(tokenizer, messages, path, **given)
    if verbose:
        print(f"{model!r}, context {model.context}", file=sys.stderr)
    if stream:
        return pieces
    text = "".join(pieces)
    if verbose:
        print(reply, file=sys.stderr)
    return text


def _to_json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, indent=2)


def _pack(definition: Definition, *rest: Any) -> bytes:
    """Serialize a definition, and more, canonically: equal ones give equal bytes."""
    state = {**vars(definition), "merges": list(definition.merges)}
    state["vocab"] = {_to_printable(token): id_ for token, id_ in definition.vocab.items()}
    state["added"] = [dataclasses.asdict(token) for token in definition.added]
    return json.dumps([state, *rest], sort_keys=True).encode()


def _rebuild(cls: type[BPETokenizer], packed: bytes) -> BPETokenizer:
    """Undo `_pack`, to unpickle a tokenizer."""
    return cls._from_parts(*_engine.read(_unpack, packed))


def _unpack(packed: bytes) -> tuple[Any, ...]:
    state, roles, settings, templates = json.loads(packed)
    if not isinstance(templates, dict):  # before 0.7: the default one, or None
        templates = {} if templates is None else {"default": templates}
    vocab = sorted(state["vocab"].items(), key=operator.itemgetter(1))
    state["vocab"] = {cast("bytes", _from_printable(token)): id_ for token, id_ in vocab}
    state["merges"] = [(left, right) for left, right in state["merges"]]
    state["added"] = tuple(AddedToken(**token) for token in state["added"])
    template = state["template"] or "bos"  # None, before 0.8
    state["template"] = template if isinstance(template, str) else tuple(map(tuple, template))
    return Definition(**state), roles, settings, templates, Path()


def _from_read(cls: type[BPETokenizer], definition: Definition, *rest: Any) -> BPETokenizer:
    """Make a tokenizer from the parts read, and warn about unknown ones."""
    if definition.template == ((), ()) and "bos_token" not in rest[0]:
        definition = dataclasses.replace(definition, template="bos")  # if it ever has one
    tokenizer = cls._from_parts(definition, *rest)
    tokenizer._path = rest[-1]
    if definition.components and (unknown := cast("Any", tokenizer._encoder).unknown()):
        _warn(f"{rest[-1]}: {unknown}")
    return tokenizer


def _added_elsewhere(tokenizer: BPETokenizer) -> _Template:
    """Return the ids that other libraries put around a text, if they load what `save` writes."""
    ends = tokenizer.bos_token_id, tokenizer.eos_token_id
    return _template_ids(_elsewhere(tokenizer._definition.template), *ends)


def _describe_added(tokenizer: BPETokenizer) -> str:
    """Say what other libraries put around a text."""
    sides = zip(("before", "after"), map(tokenizer._shown.of, _added_elsewhere(tokenizer)))
    found = [f"{' '.join(tokens)} {side}" for side, tokens in sides if tokens]
    return f"{' and '.join(found) or 'nothing around'} each text"


# The options of `train` that belong to another style than "byte-level".
_STYLE_OPTIONS = (
    "byte_fallback",
    "character_coverage",
    "split_digits",
    "split_by_unicode_script",
    "split_by_number",
    "add_dummy_prefix",
    "remove_extra_whitespaces",
    "user_defined_symbols",
    "max_sentencepiece_length",
    "normalization_rule_name",
)


def _without_class(settings: _Named) -> dict[str, Any]:
    """Drop the class that the files name, which may prepare text in a way of its own."""
    files = settings.get("files")
    if not files or not files.get("config"):
        return dict(settings)
    dropped = ("tokenizer_class", "auto_map")
    config = {key: value for key, value in files["config"].items() if key not in dropped}
    return {**settings, "files": {**files, "config": config}}


def _files_to_save(
    tokenizer: BPETokenizer, folder: Path, name: str = "tokenizer"
) -> dict[Path, str | None]:
    """Return the content of each file of a directory, None for those to remove."""
    if not _is_label(name):
        problem = f"name must be a str of 1 to 100 printable characters, got {_shorten(name)}"
        raise ValueError(problem) if isinstance(name, str) else TypeError(problem)
    roles, settings, templates = tokenizer._rest()
    if name != "tokenizer":
        settings = {**settings, "name": name}
    definition, around = tokenizer._definition, _added_elsewhere(tokenizer)
    config, names = _config_json(definition, roles, settings, templates)
    found: dict[Path, str | None] = {}
    options = (definition.components or {}).get("model", {})
    if options.get("end_of_word_marker") or options.get("all_merges"):  # of words
        found = _tools("formats.vocab_merges").word_files(tokenizer, folder, around, config)
    else:
        found[folder / "tokenizer.json"] = _to_json(_tokenizer_json(definition, around, settings))
    found.update(dict.fromkeys(_side_files_to_replace(folder)))  # if they aren't written, they go
    found[folder / "tokenizer_config.json"] = _to_json(dict(sorted(config.items())))
    if names is not None:
        found[folder / "special_tokens_map.json"] = _to_json(dict(sorted(names.items())))
    # A template that tokenizer_config.json has is overridden by a file.
    in_config = _read_chat_templates(_JsonReader(config, folder))
    if list(templates) == ["default"] and in_config != templates:
        found[folder / "chat_template.jinja"] = templates["default"]
    return found


def _beside_ids(tokenizer: BPETokenizer) -> list[Any]:
    """Return all that a tokenizer does besides giving ids.

    Its label doesn't count, and keys of files that mean nothing here don't.
    """
    roles, settings, templates = tokenizer._rest()
    named = settings.get("files", {}).get("named", {})
    own = {key: value for key, value in settings.items() if key not in ("name", "files")}
    return [roles, named, own, templates, _added_elsewhere(tokenizer)]


def _read_parts(path: Path, pattern: str | None, tokens: list[AddedToken]) -> tuple[Any, ...]:
    """Read a tokenizer in any format; return the arguments of `_from_read`."""
    if not os.path.exists(path):  # which bears names that are too long
        if _WITH_TOOLS:  # which knows names, such as o200k_base
            return cast("tuple[Any, ...]", _tools("formats.by_name").read(path, pattern, tokens))
        needs = "names such as o200k_base need bpe_tokenizer_tools: 'pip install .' in a clone"
        raise FileNotFoundError(f"{path}: no such file or directory; {needs}")
    if not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path}: expected a file or a directory")
    file, files = path / "tokenizer.json" if path.is_dir() else path, {}
    if file.name == "tokenizer.json":
        files = _transactions(file.parent).read_files(_tokenizer_files(file.parent))
    raw = files.pop(file, None)
    data, ready = _engine.read_json(file, raw) if raw is not None else (None, None)
    if data is not None and _is_reference(data.data):
        side = _read_side_files(file.parent, files)
        ready = _read_reference(data, side.config, pattern, tokens)
        ready, roles, settings, templates = _with_side_files(side, ready)
        return ready, roles, _without_class(settings), templates, path
    if data is None or _is_plain(data.data):
        formats = _tools("formats", f"{path}: reading another format than tokenizer.json")
        return cast("tuple[Any, ...]", formats.read_parts(path, pattern, tokens))
    if pattern is not None:
        raise ValueError(f"{path} carries its own split pattern; leave split_pattern out")
    if ready is None:
        ready = _read_definition(data)
    parts = _read_beside(_read_side_files(file.parent, files), data, ready, raw)
    needed = any(data.data.get(field) is not None for field in ("truncation", "padding"))
    if needed or _WITH_TOOLS:
        kept = _tools("formats.kept", f"truncation or padding in {path}")
        parts[2].update(kept.read(data, dataclasses.replace(parts[0], template=ready.template)))
    return (*parts, path)


class _Attribute:
    """An attribute for a role's token, its id, or a default of batches; None: unset."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._key = name, name.removesuffix("_id")

    def __get__(self, tokenizer: Any, owner: type) -> Any:
        if tokenizer is None:
            return None
        settings = (now := tokenizer._now)._settings
        if self._key == "model_max_length":
            return settings.get(self._key)
        if self._key not in _ROLE_NAMES:  # truncation and padding may have a direction, too
            other = settings.get(self._key.removesuffix("_side"), {}).get("direction", "right")
            return settings.get(self._key, other.lower())
        token = now._roles.get(self._key)
        return token if token is None or self._key == self._name else now._added[token].id

    def __set__(self, tokenizer: BPETokenizer, value: Any) -> None:
        is_role, new, problem = self._key in _ROLE_NAMES, value, ""
        if self._key != self._name and value is not None:
            new = tokenizer._contents.get(value, "") if hasattr(value, "__index__") else ""
            problem = "is not the id of a special token"
        elif is_role:
            problem = "is not a special token; add it first, with add_special_tokens"
        elif self._key == "model_max_length":
            _check_size(self._name, value, 1)
        else:
            problem = "must be 'left' or 'right'"
        if problem and new not in (None, *(tokenizer._special if is_role else ("left", "right"))):
            raise ValueError(f"{self._name}: {_shorten(value)} {problem}")
        name = "_roles" if is_role else "_settings"
        kept = {key: old for key, old in vars(tokenizer)[name].items() if key != self._key}
        setattr(tokenizer, name, kept if new is None else {**kept, self._key: new})
        tokenizer._take_roles(tokenizer._roles)


class _Now:
    """What a call uses: the copy in a tokenizer's `vars`, which never changes, or a copy itself."""

    def __get__(self, copy: BPETokenizer, owner: type) -> BPETokenizer:
        return copy


_writing = threading.RLock()  # held while a change makes another copy, which replaces the last
if hasattr(os, "register_at_fork"):  # a child must not inherit it held
    os.register_at_fork(after_in_child=lambda: globals().update(_writing=threading.RLock()))


class BPETokenizer:
    """A byte-level BPE tokenizer, for any number of threads.

    A new one knows the 256 bytes; `train` teaches it merges, and `from_pretrained` loads one.
    `chat_templates` are its own Jinja templates by name, such as "default" and "tool_use".

    Args:
        split_pattern: cuts text before merging: a pattern of the `regex` package, or
            a name from `SPLIT_PATTERNS`.
        normalizer: "NFC", "NFD", "NFKC", "NFKD" or None; applied to all text, so that
            different spellings of a character get the same ids.
        surround: what ``add_special_tokens`` adds: "bos+eos", "bos", "eos" or "none".  Other
            libraries that load the saved files add the same.  "default" is bos and eos here, and
            only bos there, since they add it to prompts, too.

    >>> tokenizer = BPETokenizer("cl100k")
    >>> ids = tokenizer.encode("Grüße, 世界!")
    >>> tokenizer.decode(ids)
    'Grüße, 世界!'
    """

    chat_templates: dict[str, str] = {}  # noqa: RUF012 - each tokenizer has its own
    training_report: TrainingReport | None = None
    _settings: dict[str, Any]
    _warned_about_padding = False
    _path = Path()  # the file it was read from
    _now = _Now()

    def __init__(
        self,
        split_pattern: str = GPT2_SPLIT_PATTERN,
        *,
        normalizer: str | None = "NFC",
        surround: str = "default",
    ) -> None:
        _check_normalizer(normalizer)
        with self._changed() as new:
            new._roles, new._settings, new.chat_templates = {}, {}, {}
            new._install(_new_definition(_pattern_named(split_pattern), normalizer, str(surround)))

    if not TYPE_CHECKING:  # with it, type checkers would accept every name

        def __setattr__(self, name: str, value: Any) -> None:
            if type(self) is BPETokenizer and not name.startswith("_") and name not in dir(self):
                close = difflib.get_close_matches(name, [n for n in dir(self) if n[0] != "_"], 1)
                meant = f"; did you mean {close[0]!r}?" if close else ", except in a subclass"
                raise AttributeError(f"BPETokenizer has no attribute {name!r} to set{meant}")
            with contextlib.nullcontext(self) if self._now is self else self._changed() as new:
                super(BPETokenizer, new).__setattr__(name, value)

        def __delattr__(self, name: str) -> None:
            with self._changed() as new:
                for each in (self, new):
                    super(BPETokenizer, each).__delattr__(name)

    @contextlib.contextmanager
    def _changed(self) -> Iterator[BPETokenizer]:
        """Give a copy to change; afterwards other threads see all of its changes at once."""
        with contextlib.nullcontext() if self._now is self else _writing:  # a new one is not shared
            vars(new := object.__new__(type(self))).update(vars(self))
            vars(new).pop("_now", None)
            yield new
            vars(self).update(vars(new))
            # A subclass's methods may change the object, so the copy calls them on that.
            for cls in itertools.takewhile(lambda cls: cls is not BPETokenizer, type(self).__mro__):
                vars(new).update({n: getattr(self, n) for n, f in vars(cls).items() if callable(f)})
            vars(self)["_now"] = new

    def _install(self, definition: Definition, named: Iterable[AddedToken] = ()) -> None:
        """Adopt a definition and build its tables; new special tokens take free roles by name."""
        if sum(len(token.content) for token in definition.added) > _MAX_ADDED_LENGTH:
            raise ValueError(f"the added tokens have more than {_MAX_ADDED_LENGTH:,} characters")
        self._encoder = encoder = _make_encoder(definition)
        self._definition = definition = encoder._definition
        self._added = {token.content: token for token in definition.added}
        self._special = frozenset(token.content for token in definition.added if token.special)
        self._contents = {token.id: token.content for token in definition.added}
        self._special_ids = frozenset(token.id for token in definition.added if token.special)
        self._id_to_bytes = tokens = self._encoder.tokens
        contents, write = self._contents, definition.write
        self._shown = _engine.shown(lambda i: contents.get(i) or write(tokens[i]), self.max_id + 1)
        # Without added tokens to find, text only needs normalization.
        changes = definition.components is not None or definition.prefix_space
        plain = not (changes or _recognized(definition, _NONE))
        self._encode_plain = encoder.encode_plain if plain else None
        cached = functools.lru_cache(64)
        pipeline = cached(lambda allowed: encoder.pipeline(_recognized(definition, allowed)))
        self._pipeline: Callable[[frozenset[str]], _Pipeline] = pipeline
        self._plain = cached(lambda allowed, *method: encoder.plain(pipeline(allowed), *method))
        self._derived = functools.cache(lambda derive: derive(encoder, definition))  # for tools
        kept = {role: token for role, token in self._roles.items() if token in self._added}
        self._take_roles({**_roles_by_name(named), **kept})

    def _adopt(
        self, learned: _Learned, empty: Definition, tokens: list[Any], named: Any, old: BPETokenizer
    ) -> None:
        """Replace the vocabulary; tokens that other threads have added since `old` stay."""
        with self._changed() as new:
            known = {*old._added, *(token.content for token in tokens)}
            later = [token for token in new._definition.added if token.content not in known]
            new._settings = _without_class(new._settings)
            new._install(_number_merges(learned, empty, tokens + later, old._contents), named)

    # -- Training ---
    def train(
        self,
        corpus: _Corpus | None = None,
        vocab_size: int = 32_000,
        min_frequency: int = 2,
        special_tokens: _SpecialTokens | None = None,
        verbose: bool | None = None,
        *,
        counts: Mapping[bytes, int] | None = None,
        max_token_length: int | None = None,
        num_workers: int | None = None,
        text_field: str = "text",
        surround: str | None = None,
        style: str = "byte-level",
        byte_fallback: bool | None = None,
        character_coverage: float | None = None,
        split_digits: bool | None = None,
        split_by_unicode_script: bool | None = None,
        split_by_number: bool | None = None,
        add_dummy_prefix: bool | None = None,
        remove_extra_whitespaces: bool | None = None,
        user_defined_symbols: Sequence[str] | None = None,
        max_sentencepiece_length: int | None = None,
        normalization_rule_name: str | None = None,
        ties: str = "huggingface",
        superwords: Any = None,
        parity: Any = None,
        special_tokens_first: bool = False,
    ) -> BPETokenizer:
        """Learn a vocabulary from a corpus, replacing the old one; return `self`.

        The merges are those of HuggingFace's BpeTrainer with the full byte alphabet, for any number
        of workers and any order of documents.  `training_report` sums up the run.

        Args:
            corpus, num_workers, text_field: as for `count_pretokens`; or pass its `counts`.
            vocab_size: the total number of tokens: bytes (256), merged ones (at least one), special
                ones.
            min_frequency: pairs that occur less often aren't merged.
            special_tokens: as for `add_special_tokens`; an id within the range is reserved, one
                above leaves a gap.  Existing tokens keep their ids, unless named here.  Ids from 0
                on mean HuggingFace's layout: special tokens, bytes in the order of their printable
                characters, merges.
            verbose: show progress and a summary on stderr; None: at a terminal or in a notebook.
            max_token_length: a merge whose token would have this many bytes or more is not
                counted, except for the pairs of single bytes: HuggingFace's rule.
            surround: as for the constructor; None keeps the current one.
            style: "sentencepiece" takes the options from `byte_fallback` to
                `normalization_rule_name`, which have the names and meanings of its own trainer; see
                docs/sentencepiece.md.  "words": docs/words.md.
            ties: which of equally frequent pairs to merge: HuggingFace's choice, the "greatest" by
                bytes, the "greatest-printable", the one of the "smallest-ids", or the "first" in
                the text (docs/ties.md).
            superwords, parity: see docs/superwords.md and docs/parity.md.
            special_tokens_first: number the special tokens from 0 on, in HuggingFace's layout.

        Raises ValueError if the corpus is empty, the vocabulary too small, or an id taken; also the
        errors of `count_pretokens`.
        """
        verbose = _is_watched(verbose)
        given = locals()
        ordinary = style == "byte-level" and all(given[name] is None for name in _STYLE_OPTIONS)
        if (superwords, parity) != (None, None) or not ordinary:
            tools = _tools("training.variants", "train() with a style, superwords or parity")
            return cast("BPETokenizer", tools.train(self, given))
        if (corpus is None) == (counts is None):
            raise TypeError("train() takes a corpus or counts=..., one of the two")
        if not isinstance(counts, (Mapping, type(None))) or {*map(type, counts or ())} - {bytes}:
            raise TypeError("counts must map pre-tokens (bytes) to how often they occur")
        rule = self._definition.template if surround is None else str(surround)
        if self._definition.components is not None:
            problem = "only byte-level BPE with one split pattern can be trained like this"
            raise ValueError(f"{problem}; make a new tokenizer, or pass style='sentencepiece'")
        named = _as_added_tokens(special_tokens)
        names = {token.content for token in named}
        old = self._now
        empty = _new_definition(old._definition.split_pattern, old._definition.normalizer, rule)
        tokens = [token for token in old._definition.added if token.content not in names] + named
        empty, tokens = _lay_out(empty, tokens, named, special_tokens_first)
        make = _engine.learner
        if ties != "huggingface":
            rules = _tools("training.ties", f"train(ties={_shorten(ties)})")
            make = rules.learner(ties, b"".join(empty.vocab))
        contents = [token.content for token in _with_added_tokens(empty, tokens).added]
        room = _room_for_merges(vocab_size, len(contents), min_frequency, max_token_length)

        started = time.perf_counter()
        made: Any = counts
        if isinstance(counts, PretokenCounts):
            counts.check_made_by(empty.split_pattern, empty.normalizer)
        elif counts is None:
            cut = empty.split_pattern, empty.normalizer, contents
            made = _counter_of(corpus, *cut, num_workers, text_field, verbose, ties == "first")
            counts = getattr(made, "held", made.take)()  # the accelerator needs no dict
        if not any(counts.values()):
            raise ValueError(_EMPTY)
        counted = time.perf_counter()
        forbidden = frozenset(filter(None, map(_from_printable, contents)))  # for merges
        learner = make(counts, max_token_length)
        with _progress("merging", "merge", room, verbose) as advance:
            learned = learner.learn(room, min_frequency, forbidden, advance)
        self._adopt(learned, empty, tokens, named, old)
        read = getattr(made, "documents", 0), getattr(made, "bytes_read", 0)
        found = sum(counts.values()), len(counts), len(learned.merges), self.vocab_size
        seconds = counted - started, time.perf_counter() - counted
        self.training_report = TrainingReport(*read, *found, *seconds, learned.stopped)
        if verbose:
            print(f"Trained: {self.training_report}", file=sys.stderr)
        return self

    def with_vocab_size(self, vocab_size: int) -> BPETokenizer:
        """Return a copy cut down to the merges learned first.

        Special tokens right after the last merged token stay right after it.  Raises ValueError if
        the vocabulary can't have this size.
        """
        now = self._now
        return self._from_parts(_cut_vocab(now._definition, vocab_size), *now._rest(), Path())

    def add_special_tokens(self, special_tokens: _SpecialTokens) -> int:
        """Add special tokens: {text: id}, or a list of texts or `AddedToken`; return how many.

        Those without an id, or with None, go to the end.  A token that exists stays if its id and
        flags, where given, are the same.  If an id or text is taken: ValueError, and none is added.
        """
        given = _as_added_tokens(special_tokens)
        with self._changed() as new:
            if tokens := [t for t in given if not _is_there(t, new._added.get(t.content))]:
                new._install(_with_added_tokens(new._definition, tokens), tokens)
        return len(tokens)

    # -- Roles and sizes ---
    bos_token = cast("str | None", _Attribute())  # begins a text
    eos_token = cast("str | None", _Attribute())  # ends a text
    pad_token = cast("str | None", _Attribute())  # fills up a batch
    unk_token = cast("str | None", _Attribute())  # replaces unknown text; byte-level BPE has none
    sep_token = cast("str | None", _Attribute())  # separates texts, in models like BERT
    cls_token = cast("str | None", _Attribute())  # its output stands for the whole text
    mask_token = cast("str | None", _Attribute())  # hides a token, to be guessed
    bos_token_id = cast("int | None", _Attribute())
    eos_token_id = cast("int | None", _Attribute())
    pad_token_id = cast("int | None", _Attribute())
    unk_token_id = cast("int | None", _Attribute())
    sep_token_id = cast("int | None", _Attribute())
    cls_token_id = cast("int | None", _Attribute())
    mask_token_id = cast("int | None", _Attribute())
    padding_side = cast("Any", _Attribute())  # of `encode_batch`, like the next
    truncation_side = cast("Any", _Attribute())
    model_max_length = cast("Any", _Attribute())  # where `truncation` cuts; None for no limit

    @property
    def definition(self) -> Definition:
        """Everything that decides which ids a text gets; read it, don't change it."""
        return self._definition

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens and their ids."""
        return {t.content: cast("int", t.id) for t in self._definition.added if t.special}

    @property
    def added_tokens(self) -> tuple[AddedToken, ...]:
        """All added tokens, special or not, by id."""
        return self._definition.added

    @property
    def split_pattern(self) -> str | None:
        """The pattern that cuts text into pre-tokens; None if `components` do."""
        return self._definition.split_pattern or None

    @property
    def normalizer(self) -> str | None:
        """The Unicode form that text is normalized to; None if none, or in `components`."""
        return self._definition.normalizer

    @property
    def components(self) -> dict[str, Any] | None:
        """The parts of tokenizer.json; None for byte-level BPE with one split pattern."""
        return cast("dict[str, Any] | None", json.loads(json.dumps(self._definition.components)))

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges in rank order, as pairs of tokens."""
        token = dict((now := self._now)._id_to_bytes)
        own = (now._definition.components or {}).get("model", {}).get("all_merges")
        if own:  # those of tokens without an id, too: formats/vocab_merges.py
            return [(left.encode(), right.encode()) for left, right in own]
        return [(token[left], token[right]) for left, right in now._definition.merges]

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, added ones included; see also `max_id`."""
        return len(self._id_to_bytes)

    @property
    def max_id(self) -> int:
        """The largest id: `vocab_size` - 1, unless the ids have gaps."""
        return self._encoder.largest_id()

    def __len__(self) -> int:
        return self.vocab_size

    # -- Encoding ---
    def _allowed(
        self, allowed_special: Any = "none", disallowed_special: Any = (), texts: Any = ()
    ) -> frozenset[str]:
        """Return the special tokens to recognize; raise if texts contain disallowed ones."""
        _check_texts(texts)
        words: _Named = {"none": _NONE, "all": self._special}
        if isinstance(allowed_special, str) and allowed_special in words and not disallowed_special:
            return cast("frozenset[str]", words[allowed_special])
        allowed = _named_tokens("allowed_special", allowed_special, words)
        if not allowed <= self._special:
            unknown = _shorten(sorted(allowed - self._special))
            raise ValueError(f"allowed_special: {unknown} are not special tokens of this tokenizer")
        if disallowed_special:
            words = {"all": self._special - allowed}
            refused = _named_tokens("disallowed_special", disallowed_special, words)
            if found := [text for text in texts if any(token in text for token in refused)]:
                token = _one_of(refused).findall(found[0])[0]
                why = f"text contains the special token {token!r}, which disallowed_special names"
                how = f"pass allowed_special={{{token!r}}} or disallowed_special=()"
                raise ValueError(f"{why}; {how}")
        return allowed

    def encode(
        self,
        text: str,
        add_special_tokens: bool = False,
        allowed_special: _AllowedSpecial = "none",
        *,
        disallowed_special: _AllowedSpecial = (),
        dropout: float = 0.0,
        seed: int | None = None,
        num_threads: int | None = None,
    ) -> list[int]:
        """Encode a text; decoded, the ids are the normalized text.

        Args:
            text: any text; lone surrogates raise ValueError.
            add_special_tokens: add tokens around it, as `surround` or the loaded file says.
            allowed_special: the special tokens to recognize in the text: "all", a set, or "none".
            disallowed_special: a set, or "all" for those not allowed: ValueError if one occurs.
            dropout, seed: the probability of skipping each merge, 0 to 1; a seed to repeat it.
            num_threads: how many threads of the accelerator encode a long text.

        >>> BPETokenizer().encode("Hé!")  # before training, each byte is a token
        [72, 195, 169, 33]
        """
        now = self._now  # other threads may train it
        plain, allowed = now._encode_plain, _NONE
        if allowed_special != "none" or disallowed_special or not plain:
            allowed = now._allowed(allowed_special, disallowed_special, [text])
            plain = now._plain(allowed)
        if num_threads is not None:
            plain = _tools("prompts.threads", "num_threads").plain(now, allowed, num_threads)
        if dropout or not plain or (ids := plain(text)) is None:
            _check_text(text)
            encoder = now._encoder
            if dropout:
                encoder = _tools("support.dropout", "dropout").dropping(encoder, dropout, seed)
            ids = _encode_parts(encoder, now._pipeline(allowed).parts(text))
        if add_special_tokens:
            ids[:0], ids[len(ids) :] = now._asked_around(add_special_tokens)
        return ids

    def _take_roles(self, roles: dict[str, str]) -> None:  # and find the ids around a text
        rule, self._roles = self._definition.template, roles
        self._around: _Template = _template_ids(rule, self.bos_token_id, self.eos_token_id)

    def _asked_around(self, asked: object) -> _Template:
        if isinstance(asked, (str, list, tuple)):
            got = f"add_special_tokens must be True or False, got {_shorten(asked)}"
            raise TypeError(f"{got}; a pair of texts is tokenizer(text, text_pair)")
        return self._around if asked else ((), ())

    def encode_ordinary(self, text: str) -> list[int]:
        """Encode a text in which every special token is ordinary text."""
        return self.encode(text)

    def encode_to_numpy(self, text: str, **options: Any) -> Any:
        """Encode a text to a NumPy array of uint32; options as for `encode`."""
        numpy = sys.modules.get("numpy") or _import_optional("numpy", "encode_to_numpy", "numpy")
        encode = None if options else self._plain(_NONE, "encode_to_buffer")
        if [*options] == ["num_threads"] and options["num_threads"] is not None:
            to_buffer = _tools("prompts.threads", "num_threads").to_buffer
            encode = functools.partial(to_buffer, self._now, options["num_threads"])
        if not encode or (ids := encode(text)) is None:
            return numpy.array(self.encode(text, **options), dtype=numpy.uint32)
        return numpy.frombuffer(ids, numpy.uint32)

    def encode_ordinary_batch(
        self, texts: Iterable[str], num_threads: int | None = None
    ) -> list[list[int]]:
        """Return an id list for each text, as `encode_ordinary` gives; in C, on threads.

        >>> BPETokenizer().encode_ordinary_batch(["ab", "c"])
        [[97, 98], [99]]
        """
        _check_size("num_threads", num_threads, 1)
        now, texts = self._now, _check_texts(texts)
        if not now._is_simple():
            return list(map(now.encode, texts))
        return now._encoder.encode_batch(now._normalized(texts), num_threads or _cores())

    def _is_simple(self) -> bool:  # text only needs normalizing, splitting and merging
        return bool(self._encode_plain) and type(self).encode is BPETokenizer.encode

    def _normalized(self, texts: list[str]) -> list[str]:
        form = self._definition.normalizer
        return [_engine.normalize(text, form) for text in texts] if form else texts

    def encode_with_offsets(
        self, text: str, add_special_tokens: bool = False, allowed_special: _AllowedSpecial = "none"
    ) -> EncodingResult:
        """Encode a text, and find the characters of it, as given, that each token covers.

        >>> BPETokenizer().encode_with_offsets("é!").offsets  # the first two share a character
        [(0, 1), (0, 1), (1, 2)]
        """
        now = self._now
        if add_special_tokens or allowed_special != "none" or not now._is_simple():
            return self.encode_batch([text], add_special_tokens, allowed_special).encodings[0]
        _check_text(text)
        [(ids, record)] = now._encoder.encode_recorded(now._normalized([text]))
        record = tuple(ids) if now._definition.trim_offsets else record
        return _Source(now, [text], [ids], [record], [0], kept=[slice(None)]).result(0)

    def _is_plain(self, text: str, allowed: frozenset[str]) -> bool:
        """Return True if a text only needs splitting and merging."""
        return bool(self._encode_plain and not allowed and self._normalized([text])[0] is text)

    @overload
    def encode_batch(
        self, texts: Iterable[str], *args: Any, return_tensors: str, **kw: Unpack[_Options]
    ) -> TensorBatch: ...
    @overload
    def encode_batch(
        self, texts: Iterable[str], *args: Any, return_tensors: None = None, **kw: Unpack[_Options]
    ) -> BatchEncoding: ...
    def encode_batch(  # type: ignore[misc]  # positional options are Any above
        self,
        texts: Iterable[str],
        add_special_tokens: bool = False,
        allowed_special: _AllowedSpecial = "none",
        padding: bool | str = False,
        truncation: bool | str | None = False,
        max_length: int | None = None,
        return_tensors: str | None = None,
        *,
        padding_side: str | None = None,
        truncation_side: str | None = None,
        pad_to_multiple_of: int | None = None,
        return_offsets: bool = True,
        disallowed_special: _AllowedSpecial = (),
    ) -> BatchEncoding | TensorBatch:
        """Encode several texts for a model, as lists or, with `return_tensors`, as tensors.

        Options that are None come from `padding_side`, `truncation_side` and `model_max_length`, or
        from `truncation` and `padding` in tokenizer.json; these alone never cut or pad.  Other
        options are as for `encode`.  Truncation keeps what `add_special_tokens` adds.

        Args:
            padding: True or "longest" pads to the longest text, "max_length" to `max_length`, with
                the pad token; without one, with eos, else with id 0, and a warning.
            truncation: whether to cut texts down to `max_length` tokens, special ones included.
                "longest_first" and "only_first" mean True, "do_not_truncate" False.  None is
                True if there is a `max_length` and no `padding`, as in transformers.
            return_tensors: None for lists, "np" or "pt" for int64 tensors.
            padding_side, truncation_side: "right" or "left".
            pad_to_multiple_of: round the padded length up to a multiple; if texts are truncated,
                `max_length` must be one.
            return_offsets: whether results have offsets, computed when first read.
        """
        texts = _check_texts(texts)
        asked: Any = {"padding": padding, "truncation": truncation, "max_length": max_length}
        asked |= {"return_tensors": return_tensors, "pad_to_multiple_of": pad_to_multiple_of}
        asked |= {"padding_side": padding_side, "truncation_side": truncation_side}
        now = self._now
        before, after = now._asked_around(add_special_tokens)
        lengths = _Lengths(now, len(before) + len(after), **asked)
        allowed = now._allowed(allowed_special, disallowed_special, texts)
        most = None if lengths.cuts_left else lengths.room  # ids of a text, from the first
        if allowed or not now._is_simple():
            rows = [now.encode(text, allowed_special=allowed or "none")[:most] for text in texts]
            records: list[Any] = [tuple(ids) if most is None else None for ids in rows]
        else:
            made = now._encoder.encode_recorded(now._normalized(texts), most)
            rows, records = [ids for ids, _ in made], [record for _, record in made]
        kept = lengths.kept(rows)
        if lengths.cuts_left or before or after:
            rows = [[*before, *ids[part], *after] for ids, part in zip(rows, kept)]
        pad = _pad_token(now) if any(missing := lengths.missing(rows)) else (0, "")
        how = missing, lengths.left, pad, allowed, kept if return_offsets else None
        source = _Source(now, texts, rows, records, *how, (len(before), len(after)))
        if return_tensors is None:
            vars(batch := object.__new__(BatchEncoding))["_source"] = source
            return batch
        length = _one_length(map(operator.add, map(len, rows), missing))
        both = _to_tensors(rows, length, pad[0], lengths.left, return_tensors)
        fields = dict(zip(("input_ids", "attention_mask"), both))
        return TensorBatch(fields, map(source.result, range(len(rows))))

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a str is also an Iterable[str]
        self, text: str, **options: Unpack[_TextOptions]
    ) -> list[int]: ...
    @overload
    def __call__(
        self, text: Iterable[str], *, return_tensors: str, **options: Unpack[_Options]
    ) -> TensorBatch: ...
    @overload
    def __call__(
        self, text: Iterable[str], *, return_tensors: None = None, **options: Unpack[_Options]
    ) -> BatchEncoding: ...
    @overload
    def __call__(self, text: Any, text_pair: Any, **options: Any) -> Any: ...
    def __call__(self, text: Any, *pair: Any, **options: Any) -> Any:
        """Call `encode` for a str without options of batches, else `encode_batch`.

        Calls with pairs of texts, or options such as `stride`, go to transformers.
        """
        if pair or (options and options.keys() - _Options.__annotations__ - {"return_tensors"}):
            tools = _tools("dropin.twin", "a pair of texts, or such an option,")
            return tools.call(self._now, text, *pair, **options)
        if isinstance(text, str) and options.keys() <= _TextOptions.__annotations__.keys():
            return self.encode(text, **options)
        return self.encode_batch([text] if isinstance(text, str) else text, **options)

    def encode_streaming(
        self, text_stream: Iterable[str], allowed_special: _AllowedSpecial = "none"
    ) -> Iterator[list[int]]:
        """Encode text that arrives in chunks, of any size; joined, the lists are `encode`'s.

        Text is held back until later text can't change its ids: usually to the end of a word.
        NOTE: a long run without such an end (of signs, say) is held whole.  All text is held if the
        pattern looks behind itself, or if bpe_tokenizer_tools is missing or can't parse it.

        >>> list(BPETokenizer().encode_streaming(["a b", "c d"]))
        [[97], [32, 98, 99], [32, 100]]
        """
        if isinstance(text_stream, (str, bytes, bytearray)):
            raise TypeError("expected an iterable of strings, got one text; use encode for that")
        now = self._now
        return now._encoder.stream(now._pipeline(now._allowed(allowed_special)), text_stream)

    def encode_iterable(
        self, lines: Iterable[str], allowed_special: _AllowedSpecial = "none"
    ) -> Iterator[int]:
        """Yield the ids of text in pieces, such as an open file, one by one, in constant memory."""
        if _WITH_TOOLS and not isinstance(lines, (str, bytes)):
            # Alone, this module prepares each piece by itself.
            lines = _tools("support.streaming").joined(lines)
        return itertools.chain.from_iterable(self.encode_streaming(lines, allowed_special))

    def count_tokens(
        self, text: str, add_special_tokens: bool = False, allowed_special: Any = "none", **how: Any
    ) -> int:
        """Count the ids that `encode` would give, usually without the list; same arguments."""
        now = self._now
        usual = not how and allowed_special == "none"
        plain = now._plain(_NONE, "count_plain") if usual else None
        if (n := plain(text) if plain else None) is None:
            if not usual or not now._encode_plain or type(text) is not str:
                return len(self.encode(text, add_special_tokens, allowed_special, **how))
            n = now._encoder.count(now._normalized([text])[0])
        return n + sum(map(len, now._asked_around(add_special_tokens)))

    def truncate(
        self, text: str, max_tokens: int, add_special_tokens: bool = False, **options: Any
    ) -> str:
        """Return a prefix of the normalized text that encodes to at most `max_tokens` tokens.

        It is as long as whole tokens of the text allow, and never splits a character.  Options as
        for `encode`; the tokens of `add_special_tokens` count.
        """
        _check_size("max_tokens", max_tokens, 0)
        now = self._now
        allowed = now._allowed(texts=[text], **options) if options else _NONE
        room = max(0, max_tokens - sum(map(len, now._asked_around(add_special_tokens))))
        begin: Any = now._plain(allowed, "begin")  # the accelerator's does all of this
        if begin and (end := begin(text, room)) is not None:
            return text[:end]
        _check_text(text)
        return _longest_prefix(now, text, room, allowed)

    # -- Decoding ---
    def decode(self, ids: Any, skip_special_tokens: bool = False, errors: str = "replace") -> str:
        """Decode ids, a list or a NumPy array or tensor of one dimension, to text.

        `errors` handles bytes that are not UTF-8, and unknown ids: "strict" raises
        ValueError, "replace" gives U+FFFD, "ignore" drops them.  With byte fallback, each such
        byte gives one U+FFFD; without, several that begin a character give one together.
        """
        now = self._now
        if skip_special_tokens or errors != "replace":
            ids = now._kept(ids, skip_special_tokens, errors)
        return now._encoder.decode_to_str(ids, errors)

    def decode_bytes(
        self, ids: Any, skip_special_tokens: bool = False, errors: str = "strict"
    ) -> bytes:
        """Decode ids to bytes, even if these are not UTF-8."""
        now = self._now
        return now._encoder.decode(now._kept(ids, skip_special_tokens, errors), errors)

    def _kept(self, ids: Any, skip_special_tokens: bool, errors: str) -> Any:
        """Check `errors`; leave special tokens out, if asked to."""
        _check_errors(errors)
        return self._encoder.without(ids, self._special_ids) if skip_special_tokens else ids

    def decode_batch(
        self, batch_ids: Any, skip_special_tokens: bool = False, skip_padding: bool = True
    ) -> list[str]:
        """Decode several lists of ids, an array or tensor of two dimensions, or a batch.

        `skip_padding` leaves out padding: what the attention mask marks or, without one, pad tokens
        at both ends; if eos is the pad token, that includes a text's own eos.  If there is no pad
        token, lists of ids from `encode_batch` lose what it put there, other lists nothing.  Arrays
        and tensors lose eos, else id 0, at the end, and at the start if `padding_side` is left.

        >>> tokenizer = BPETokenizer()
        >>> tokenizer.add_special_tokens(["<pad>"])
        1
        >>> tokenizer.decode_batch(tokenizer.encode_batch(["a", "abc"], padding=True)["input_ids"])
        ['a', 'abc']
        """
        now, named = self._now, isinstance(batch_ids, (BatchEncoding, Mapping))
        fields = dict(batch_ids) if named else {"input_ids": batch_ids}
        if "input_ids" not in fields:
            raise ValueError(f"expected a field 'input_ids', got {_shorten([*fields])}")
        rows, masks = fields["input_ids"], fields.get("attention_mask")
        pad_id = now.pad_token_id if skip_padding and masks is None else None
        if masks is not None:
            rows, masks = [_row(ids, False) for ids in rows], [*map(_plain_ids, masks)]
            if [*map(len, masks)] != [*map(len, rows)]:
                raise ValueError("attention_mask and input_ids differ in their lengths")
            if skip_padding:
                rows = [[*itertools.compress(*row)] for row in zip(rows, masks)]
        elif skip_padding and pad_id is None:
            rows = _without_undeclared_pads(now, rows)
        left_out = now._special_ids if skip_special_tokens else frozenset()
        return now._encoder.decode_rows(rows, left_out, pad_id)

    def decode_streaming(
        self, ids: Iterable[int], skip_special_tokens: bool = False, errors: str = "replace"
    ) -> Iterator[str]:
        """Decode ids as they come to text, as `decode` does, yielding only whole characters.

        >>> list(BPETokenizer().decode_streaming([0x68, 0xC3, 0xA9, 0x21]))
        ['h', 'é', '!']
        """
        _check_errors(errors)
        now = self._now
        skipped = now._special_ids if skip_special_tokens else ()
        kept = (id_ for id_ in map(operator.index, ids) if id_ not in skipped)
        pieces = now._encoder.decode_pieces(kept, errors)
        return codecs.iterdecode(pieces, "utf-8", now._encoder.handler(errors))

    # -- Tokens ---
    def get_vocab(self) -> dict[str, int]:
        """Return the vocabulary: printable token -> id, added tokens included."""
        given = self._definition
        vocab: dict[Any, Any] = {given.write(token): i for token, i in given.vocab.items()}
        vocab.update({token.content: token.id for token in given.added})
        return dict(sorted(vocab.items(), key=operator.itemgetter(1)))

    def tokenize(self, text: str, **options: Any) -> list[str]:
        """Cut a text into printable tokens; a space is written "Ġ".  Options as for `encode`."""
        return (now := self._now)._shown.of(now.encode(text, **options))

    @_renamed(t="tokens")
    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> Any:
        """Look up the id of a printable token, or of several; unknown ones get unk's, or -1."""
        now = self._now
        if isinstance(tokens, str):
            return now._id_of(tokens)
        return [
            now._id_of(each) if isinstance(each, str) else now.convert_tokens_to_ids(each)
            for each in tokens
        ]

    def _id_of(self, token: str) -> int:
        if token in self._added:
            return cast("int", self._added[token].id)
        known = self._definition.vocab.get(self._definition.read(token) or b"")
        id_ = self.unk_token_id if known is None else known
        return -1 if id_ is None else id_

    @_renamed(i="ids")
    def convert_ids_to_tokens(self, ids: Any) -> Any:
        """Look up the printable token of an id, or of several; "" for unknown ids."""
        now = self._now
        row, known = _plain_ids(ids), now._id_to_bytes
        try:
            found = now._shown.of(row)
        except KeyError:
            found = [now._shown[id_] if id_ in known else "" for id_ in row]
        if isinstance(ids, int) or getattr(ids, "ndim", 1) == 0:
            return found[0]
        return found

    def convert_tokens_to_string(self, tokens: Iterable[str]) -> str:
        """Decode printable tokens to text."""
        now = self._now
        if now._definition.components is not None:
            return now.decode([id_ for id_ in map(now._id_of, tokens) if id_ >= 0])
        read = ((each, None if each in now._added else _from_printable(each)) for each in tokens)
        raw = (each.encode() if part is None else part for each, part in read)
        return b"".join(raw).decode("utf-8", "replace")

    # -- Files ---
    def save(
        self, directory: _FileName, name: str = "tokenizer", verbose: bool | None = None
    ) -> None:
        """Save to a directory, in HuggingFace's format; create it if needed.

        `tokenizers` and `transformers` load the files and give the same ids.  After an interrupted
        save, `from_file` finds the old tokenizer or the new one, whole.  `name`, 1 to 100 printable
        characters, is a label; the default keeps the label of the file it was loaded from.
        Raises ValueError if HuggingFace's engine has no equivalent of the split pattern.
        """
        folder = Path(directory)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder}: is a file; save needs a directory")
        files = _files_to_save(now := self._now, folder, name)
        folder.mkdir(parents=True, exist_ok=True)
        _transactions(folder).save_files(files)
        if _is_watched(verbose):
            print(_printable(f"Saved {now.vocab_size:,} tokens to {folder}"), file=sys.stderr)
            print(_printable(f"Other libraries add {_describe_added(now)}"), file=sys.stderr)
            if _WITH_TOOLS:
                print(end=_tools("formats.loaders").notes(now), file=sys.stderr)

    @classmethod
    def from_pretrained(
        cls,
        directory: str | os.PathLike[str],
        verbose: bool | None = None,
        *,
        split_pattern: str | None = None,
        special_tokens: _SpecialTokens | None = None,
    ) -> BPETokenizer:
        """Load a tokenizer from a directory or file, or by name ("o200k_base"); see `from_file`."""
        tokenizer = cls.from_file(directory, split_pattern, special_tokens)
        if _is_watched(verbose):
            print(_printable(f"Loaded {len(tokenizer):,} tokens from {directory}"), file=sys.stderr)
        return tokenizer

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        split_pattern: str | None = None,
        special_tokens: _SpecialTokens | None = None,
    ) -> BPETokenizer:
        """Load a tokenizer from a file, or from a directory with one.

        The format is detected from the content: tokenizer.json, ``.tiktoken``, tekken.json,
        vocab.json with merges.txt, GGUF, a SentencePiece model, or plain JSON with "vocab",
        "merges", "split_pattern" and "special_tokens".  The ids are those of the format's own
        library.  A FileFormatError names the file, and the field that is damaged, unknown, or not
        exactly representable.  A `path` that doesn't exist can be a name (docs/counting.md): one of
        tiktoken's, such as "o200k_base", or "hf:org/model" on the HuggingFace Hub.

        `split_pattern` (or its name) is for files without one.  `special_tokens` are as for
        `add_special_tokens`; in ``.tiktoken`` files, the last one with an id decodes it.
        """
        pattern = None if split_pattern is None else _pattern_named(split_pattern)
        tokens = _as_added_tokens(special_tokens)
        tokenizer = _from_read(cls, *_engine.read(_read_parts, Path(path), pattern, tokens))
        tokenizer.add_special_tokens(tokens)
        return tokenizer

    @classmethod
    def _from_parts(
        cls, definition: Definition, roles: _Named, settings: _Named, templates: _Named, path: Path
    ) -> BPETokenizer:
        tokenizer = cls.__new__(cls)
        with tokenizer._changed() as new:
            new._roles, new._settings, new.chat_templates = {}, dict(settings), dict(templates)
            new._install(definition)
            if unknown := [role for role, token in roles.items() if token not in new._added]:
                problem = f"{_shorten(roles[unknown[0]])} is not an added token here"
                raise FileFormatError(path, unknown[0], problem)
            new._take_roles(dict(roles))
        return tokenizer

    # From vocabulary and merges as bytes, or from live objects of other libraries.
    from_merges = _Tool("formats.objects.from_merges", of_class=True)
    from_tiktoken = _Tool("formats.objects.from_tiktoken", of_class=True)
    from_hf = _Tool("formats.objects.from_hf", of_class=True)
    to_hf = _Tool("formats.objects.to_hf")  # a `tokenizers.Tokenizer`

    @classmethod
    def from_huggingface(
        cls,
        model_name_or_path: str | os.PathLike[str],
        cache_dir: str | os.PathLike[str] | None = None,
        token: str | None = None,
        verbose: bool | None = None,
        *,
        revision: str | None = None,
        local_files_only: bool = False,
        split_pattern: str | None = None,
        special_tokens: _SpecialTokens | None = None,
    ) -> BPETokenizer:
        """Load "org/model" from the HuggingFace Hub, or a directory, as `from_pretrained` does.

        Only the tokenizer's own files are downloaded, once, to `cache_dir` or the Hub's own cache.
        `token` is for models that need a login, `revision` a branch, tag or commit, and
        `local_files_only` uses what has been downloaded.  Raises OSError if the Hub can't give it.
        """
        where = os.fspath(model_name_or_path)
        if not _names_file(where):
            how: Any = {"revision": revision, "cache_dir": cache_dir, "token": token}
            how["local_files_only"] = local_files_only
            if _WITH_TOOLS:
                where = _tools("formats.hub").download(where, verbose=_is_watched(verbose), **how)
            else:
                hub = _import_optional("huggingface_hub", f"downloading {where}", "huggingface_hub")
                names = [*(p.name for p in _tokenizer_files(Path())), "*chat_templates/*.jinja"]
                where = hub.snapshot_download(where, allow_patterns=names, **how)
        return cls.from_pretrained(
            where, verbose, split_pattern=split_pattern, special_tokens=special_tokens
        )

    check = verify = _Tool("checking.check.check_texts")  # against every installed library
    export = _Tool("formats.export")  # to tokenizer.json, .tiktoken, GGUF or GPT-2's two files
    extend = _Tool("vocabularies.extend")  # a copy with more merges: docs/vocabularies.md
    incremental = _Tool("prompts.incremental", live=True)  # sessions: docs/incremental.md
    prune = _Tool("vocabularies.prune")  # a copy without the tokens that text uses least
    chunk = _Tool("prompts.chunk")  # pieces of at most n tokens: docs/chunks.md
    first_noncanonical = _Tool("prompts.first_noncanonical")  # where `encode` gives other ids
    is_canonical = _Tool("prompts.is_canonical")
    to_tiktoken = _Tool("formats.tiktoken.to_tiktoken")  # a `tiktoken.Encoding`
    # Other libraries' interfaces, run by this library, and data for constrained decoding.
    as_tiktoken = _Tool("dropin.as_tiktoken")
    as_tokenizers = _Tool("dropin.as_tokenizers")
    as_sentencepiece = _Tool("dropin.as_sentencepiece")
    to_transformers = _Tool("dropin.to_transformers")
    token_bytes = _Tool("dropin.grammars.token_bytes")
    _repr_html_ = _Tool("showing.notebook.tokenizer_html")  # for Jupyter
    trie = _Tool("prompts.trie")  # tokens by the bytes they begin with: docs/healing.md
    heal = _Tool("prompts.heal")  # a prompt, up to where its tokens are certain
    next_byte_probabilities = _Tool("prompts.next_byte_probabilities")
    complete = _Tool("prompts.complete")  # a text, by a model

    # -- Chat ---
    @property
    def chat_template(self) -> str | None:
        """The tokenizer's own chat template (Jinja), the default one of `chat_templates`.

        Assigning a mapping of names to templates replaces all of `chat_templates`.
        """
        return self.chat_templates.get("default")

    @chat_template.setter
    def chat_template(self, template: str | Mapping[str, str] | None) -> None:
        others = {name: own for name, own in self.chat_templates.items() if name != "default"}
        new: Any = {} if template is None else {"default": template}
        if isinstance(template, Mapping):
            others, new = {}, dict(template)
        for name, source in new.items():
            if not isinstance(source, str) or not isinstance(name, str):
                got = _shorten(source if isinstance(name, str) else name)
                raise TypeError(
                    f"chat_template must be a str, or a mapping of str to str, got {got}"
                )
            _check_template(source)
        self.chat_templates = {**new, **others}

    @overload
    def apply_chat_template(
        self, messages: Any, *_: Any, return_tensors: str, **kw: Any
    ) -> Any: ...
    @overload
    def apply_chat_template(
        self, messages: _Chat, *_: _How, tokenize: Literal[False], **kw: Any
    ) -> str: ...
    @overload
    def apply_chat_template(
        self, messages: _Chats, *_: _How, tokenize: Literal[False], **kw: Any
    ) -> list[str]: ...
    @overload
    def apply_chat_template(
        self, messages: Any, *_: _How, return_dict: Literal[True], **kw: Any
    ) -> dict[str, Any]: ...
    @overload
    def apply_chat_template(
        self, messages: _Chat, *_: _How, tokenize: _Yes = True, return_dict: _No = False, **kw: Any
    ) -> list[int]: ...
    @overload
    def apply_chat_template(
        self, messages: _Chats, *_: _How, tokenize: _Yes = True, return_dict: _No = False, **kw: Any
    ) -> list[list[int]]: ...
    @overload
    def apply_chat_template(self, messages: Any, *how: Any, **options: Any) -> Any: ...
    def apply_chat_template(  # type: ignore[misc]  # flags by place: Any above
        self,
        messages: Any,
        template: _How = None,
        add_generation_prompt: bool | None = None,
        system_prompt: str | None = None,
        tokenize: bool = True,
        allowed_special: _AllowedSpecial = "all",
        **options: Any,
    ) -> Any:
        """Render a conversation, or a batch of them, and encode it (docs/chat.md).

        Only the template's own text can give control tokens; messages are plain text.

        Args:
            messages: a list of {"role": ..., "content": ...}, or a list of such lists.
            template: the name of one of `chat_templates`, "llama3", "chatml", "alpaca", Jinja
                source, or a function from messages to (text, trusted) pairs.  None means the
                tokenizer's own, else llama3 or chatml, by this tokenizer's control tokens.
            add_generation_prompt: whether to end with the beginning of an answer; pass False for
                training data.  None means yes, unless the last message is continued.
            system_prompt: the system message, if it isn't empty and no message is one.
            tokenize: False returns the text, where control tokens and contents look alike.
            allowed_special: which special tokens of the template become ids.
            **options: see docs/chat.md, such as ``continue_final_message``, ``padding`` and
                ``session``; others are the template's variables, such as ``tools``.

        Returns ids, a str or a dict; for a batch, a list of these or one dict.  Raises ValueError
        if the template is damaged, rejects the messages, or writes control tokens unknown here.
        """
        options = _without_sanitizing(options)
        asked: Any = messages
        if not isinstance(asked, (list, str, bytes, Mapping)) and isinstance(asked, Iterable):
            asked = list(asked)  # an iterator can be read once
        given = (asked, template, add_generation_prompt, system_prompt, allowed_special)
        now = self._now
        name = None if options else _built_in(template, now.chat_templates, now._added)
        is_batch = isinstance(asked, list) and isinstance([*asked, 0][0], (list, tuple))
        if name is None or is_batch:
            if _WITH_TOOLS:
                run = _tools("chat.apply_template").apply
                return run(self, *given, tokenize=tokenize, **options)
            return _apply_template(now, given, _Request, tokenize=tokenize, **options)
        prompt = add_generation_prompt is None or bool(add_generation_prompt)
        segments = _render(name, _check_messages(asked, system_prompt, least=1), prompt)
        default = name if template is None and not now.chat_templates else ""
        encoded = tokenize and _encode_segments(now, segments, allowed_special, default)
        return encoded if tokenize else _plain_text(segments)

    def chat(
        self,
        messages: _Chat,
        model_path: _FileName,
        template: _How = None,
        system_prompt: str | None = None,
        max_new_tokens: int = 512,
        temperature: float = 0.7,
        top_p: float = 0.9,
        backend: InferenceBackend | str | None = None,
        n_gpu_layers: int = -1,
        n_ctx: int = 8192,
        verbose: bool = False,
        **options: Any,
    ) -> Any:
        """Let a model answer a conversation; with ``stream=True`` return an iterator of pieces.

        Raises ValueError for another model's tokenizer, TypeError for an unknown option, and
        TimeoutError.  The model stays loaded for the next call;
        ``bpe_tokenizer_tools.backends.unload()`` releases it.

        Args:
            messages, template, system_prompt: as for `apply_chat_template`.
            model_path: a .gguf file, or a directory with safetensors or an OpenVINO model.
            temperature, top_p: 0 always takes the most likely token; otherwise one is drawn from
                the most likely tokens that together have this share.
            backend: how to run the model; None takes the best installed one.  ``INTEL_OPENVINO``
                converts a directory with safetensors on first use (docs/backends.md).
            n_gpu_layers: how many layers go to a GPU; -1 for all.
            n_ctx: how many tokens of prompt and answer fit; 0 for the model's own limit.
            verbose: report on stderr what ran, and how fast.
            **options: ``top_k``, ``seed``, ``stop`` (strings that end the answer), ``heal`` and
                ``continue_final_message`` (docs/healing.md), ``timeout`` (seconds to wait for a
                model that another thread uses), and variables that the template reads.
        """
        sampling = {"max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p}
        setup = {"backend": backend, "n_gpu_layers": n_gpu_layers, "n_ctx": n_ctx}
        talk = {"template": template, "system_prompt": system_prompt, "verbose": verbose}
        run = _tools("chat.session").chat if _WITH_TOOLS else _chat
        return run(self._now, messages, model_path, **{**options, **sampling, **setup, **talk})

    def get_cache_stats(self) -> dict[str, float]:
        """Return hits, misses, size and hit_rate_pct of the pre-token cache; this to 0.1."""
        lookups, misses, size = self._encoder.cache_info()
        rate = 100 * (hits := max(0, lookups - misses)) / max(1, lookups)
        return {"hits": hits, "misses": misses, "size": size, "hit_rate_pct": round(rate, 1)}

    def clear_cache(self) -> None:
        """Empty the pre-token cache, and reset its statistics."""
        self._encoder.clear_cache()

    # -- As an object ---
    @property
    def fingerprint(self) -> str:
        """The sha256 of everything that decides the ids, in hexadecimal."""
        pattern = (now := self._now)._definition.split_pattern
        with contextlib.suppress(ValueError):  # the saved form, if any, survives a save
            pattern = _to_oniguruma(pattern) if pattern else ""
        made = dataclasses.replace(now._definition, split_pattern=pattern, template=now._around)
        return hashlib.sha256(_pack(made)).hexdigest()

    def _rest(self) -> tuple[dict[str, str], dict[str, Any], dict[str, str]]:
        """The parts of the tokenizer that don't decide ids."""
        return self._roles, self._settings, self.chat_templates

    def __reduce__(self) -> tuple[Any, ...]:
        now = self._now
        return _rebuild, (type(self), _pack(now._definition, *now._rest()))

    def __copy__(self, memo: Any = None) -> BPETokenizer:
        now = self._now
        copy = self._from_parts(now._definition, *now._rest(), Path())
        copy.training_report = now.training_report
        return copy

    __deepcopy__ = __copy__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BPETokenizer):
            return NotImplemented
        both = self._now, other._now
        if both[0].fingerprint != both[1].fingerprint:
            return False
        return _beside_ids(both[0]) == _beside_ids(both[1])

    def __hash__(self) -> int:
        return int(self.fingerprint[:15], 16)

    def __repr__(self) -> str:
        written = (now := self._now)._definition.split_pattern
        pattern = _PATTERN_NAMES.get(written) or _shorten(written) if written else None
        return (
            f"BPETokenizer(vocab_size={now.vocab_size}, split_pattern={pattern!r}, "
            f"normalizer={now.normalizer!r}, special_tokens={len(now._special)})"
        )


def _ask(name: str, tokenizer: BPETokenizer) -> Any:
    """Answer as transformers' tokenizers do; without transformers, `hasattr` is False."""
    if _WITH_TOOLS and _is_installed("transformers"):
        return _tools("dropin.twin").ask(tokenizer._now, name)
    raise AttributeError(f"BPETokenizer.{name} needs transformers: pip install transformers")


_names = "added_tokens_decoder all_special_ids all_special_tokens batch_decode get_added_vocab pad "
_names += "get_special_tokens_mask init_kwargs is_fast name_or_path "
for _name in (_names + "num_special_tokens_to_add save_pretrained").split():  # of training stacks
    setattr(BPETokenizer, _name, property(functools.partial(_ask, _name)))


# == 12. Command line =========================================================
# Results go to stdout, everything else to stderr.  An error is one line; the exit
# status is 2 for wrong usage, and 1 for any other failure.

_PROGRAM = "bpe-tokenizer"
_Command = tuple[str, Callable[..., "int | None"], Callable[[Callable[..., Any]], None]]
_UsageError = functools.partial(argparse.ArgumentError, None)  # arguments that don't go together
_KEPT = "\t\n\xa0\xad\u2009\u200c\u200d\u202f\u3000"  # not visible, but harmless at a terminal
_TOKENIZER = "a directory or file in any format, or a name: o200k_base, hf:org/model"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        more = f"; {self.epilog}" if self.epilog and "COMMAND" in message else ""
        _tell("error", f"{message}{more} (try '{self.prog} --help')")
        raise SystemExit(2)


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):  # shows no None, False or []
    def _get_help_string(self, action: argparse.Action) -> str | None:
        has_default = action.default not in (None, False, [])
        return super()._get_help_string(action) if has_default else action.help


def _build_parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    kind, more = _Parser, dict[str, _Command]()
    if _WITH_TOOLS:
        kind = _tools("command_line").Parser
        # Two commands start sooner without the others.
        more = {} if argv[:1] in (["encode"], ["decode"]) else _tools("commands").COMMANDS
    parser = kind(prog=_PROGRAM, description="Train and use byte-level BPE tokenizers.")
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    adds = "bpe_tokenizer_tools adds more commands: copy that folder, too, or "
    parser.epilog = None if more else f"{adds}run 'pip install .' in a clone"
    for name, (text, run, add_options) in {**_COMMANDS, **more}.items():
        command = commands.add_parser(
            name, help=text, description=text, allow_abbrev=False, formatter_class=_HelpFormatter
        )
        command.set_defaults(run=run)
        add_options(command.add_argument)
        command.add_argument("--json", action="store_true", help="print a JSON object")
        command.add_argument("-q", "--quiet", action="store_true", help="only results and errors")
    return parser


def _train_options(add: Callable[..., Any]) -> None:
    files = "files and directories of text, .jsonl or .parquet, compressed or not; '-' is stdin"
    add("--corpus", nargs="+", action="extend", default=[], metavar="FILE", help=files)
    add("--counts", metavar="FILE", help="train from pre-token counts written by 'count'")
    add("-o", "--output", required=True, metavar="DIR", help="directory to save to")
    add("--force", action="store_true", help="overwrite the tokenizer in DIR")
    add("--vocab-size", type=int, default=32_000, metavar="N", help="total number of tokens")
    add("--min-frequency", type=int, default=2, metavar="N", help="merge only pairs this frequent")
    patterns = f"split pattern: {', '.join(SPLIT_PATTERNS)}, or a regular expression"
    add("--pattern", metavar="NAME", help=f"{patterns} (default: gpt2, or that of the counts)")
    each = "special tokens, each as TOKEN or TOKEN=ID"
    add("--special-tokens", nargs="+", action="extend", default=[], metavar="TOKEN", help=each)
    first = "give special tokens the first ids, then bytes as HuggingFace's trainer sorts them"
    add("--special-tokens-first", action="store_true", help=first)
    add("--normalizer", choices=(*_NORMALIZERS, "none"), help="default: NFC, or that of the counts")
    add("--num-workers", type=int, metavar="N", help="parallel workers; default: one per core")
    add("--text-field", default="text", metavar="NAME", help="field or column of the text")


def _encode_options(add: Callable[..., Any]) -> None:
    add("-t", "--tokenizer", required=True, metavar="PATH", help=_TOKENIZER)
    add("--text", help="the text; '-' reads it from stdin")
    add("--file", metavar="FILE", help="read the text from this file; '-' is stdin")
    add("--show-tokens", action="store_true", help="print the tokens, too")
    add("--add-special-tokens", action="store_true", help="add the special tokens around a text")
    allowed = "whether special tokens in the text become their ids"
    add("--allowed-special", default="none", choices=("none", "all"), help=allowed)


def _decode_options(add: Callable[..., Any]) -> None:
    add("-t", "--tokenizer", required=True, metavar="PATH", help=_TOKENIZER)
    add("--ids", nargs="+", required=True, metavar="N", help="token ids; '-' reads them from stdin")
    add("--skip-special-tokens", action="store_true", help="leave out special tokens")
    text = "for unknown ids and invalid UTF-8 (default: unknown ids are errors, the rest is U+FFFD)"
    add("--errors", choices=("strict", "replace", "ignore"), help=text)


def _chat_options(add: Callable[..., Any]) -> None:
    add("--model", dest="model_path", required=True, metavar="PATH", help=".gguf file or directory")
    add("-t", "--tokenizer", metavar="PATH", help="default: the model's own tokenizer")
    names = "llama3, chatml, alpaca, a template of the tokenizer by name, a file of Jinja, or Jinja"
    add("--template", metavar="NAME", help=f"{names}; default: the tokenizer's own")
    add("--system", dest="system_prompt", metavar="TEXT", help="system prompt")
    add("--message", metavar="TEXT", help="answer this and exit; '-' reads it from stdin")
    most = "maximum length of an answer, in tokens"
    add("--max-tokens", dest="max_new_tokens", type=int, default=512, metavar="N", help=most)
    add("--temperature", type=float, default=0.7, metavar="T", help="0: always the likeliest token")
    add("--top-p", type=float, default=0.9, metavar="P", help="sample from this much probability")
    add("--n-gpu-layers", type=int, default=-1, metavar="N", help="layers on the GPU; -1: all")
    add("--n-ctx", type=int, default=8192, metavar="N", help="size of the context, in tokens")
    add("--backend", metavar="NAME", help="llama.cpp, mlx, openvino or transformers")


def _info_options(add: Callable[..., Any]) -> None:
    add("-t", "--tokenizer", required=True, metavar="PATH", help=_TOKENIZER)
    sample = "Hello, world! Grüße, 世界 🙂 2 + 2 = 4"
    add("--sample-text", default=sample, metavar="TEXT", help="encode and decode this, and compare")


def _stdin_text() -> Iterator[str]:
    if sys.stdin is None:
        raise ValueError("standard input is closed; '-' reads from it")
    read = getattr(sys.stdin.buffer, "read1", sys.stdin.buffer.read)
    return _decode_chunks(iter(functools.partial(read, _BLOCK_CHARS), b""), "standard input")


def _parse_special_token(text: str) -> AddedToken:
    found = re.fullmatch(r"(.+)=(\d+)", text, re.DOTALL)
    return AddedToken(found[1], int(found[2])) if found else AddedToken(text)


def _check_writable(directory: Path, force: bool = True) -> None:
    """Raise OSError if a directory can't be made or written, or is taken and not forced."""
    existing = next(filter(os.path.lexists, (directory, *directory.absolute().parents)))
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f"{directory}: cannot be written to")
    found = [path for path in (*_tokenizer_files(directory), directory / _JOURNAL) if path.exists()]
    if _WITH_TOOLS and not found:
        found = _tools("formats").files_within(directory)
    if found and not force:
        names = ", ".join(path.name for path in found)
        raise FileExistsError(f"{directory}: has a tokenizer ({names}); --force overwrites it")


def _cmd_train(options: argparse.Namespace, **more: Any) -> None:
    if (from_stdin := "-" in options.corpus) and len(options.corpus) > 1:
        raise _UsageError("--corpus - reads stdin; it can't be combined with other files")
    if (bool(options.corpus) and all(options.corpus)) == (options.counts is not None):
        hint = f"; --special-tokens took {took}" if (took := options.special_tokens) else ""
        raise _UsageError(f"expected files of text (--corpus) or --counts, one of the two{hint}")
    counts = PretokenCounts.load(options.counts) if options.counts else PretokenCounts()
    form, pattern = options.normalizer or counts.normalizer, options.pattern or counts.split_pattern
    tokenizer = BPETokenizer(pattern, normalizer=None if form == "none" else form)
    _check_writable(Path(options.output), options.force)
    _to_oniguruma(tokenizer._definition.split_pattern)  # can it be saved?
    names = ["vocab_size", "min_frequency", "num_workers", "text_field", "special_tokens_first"]
    tokenizer.train(
        _Document(_stdin_text()) if from_stdin else [*map(Path, options.corpus)] or None,
        special_tokens=[*map(_parse_special_token, options.special_tokens)],
        verbose=not options.quiet,
        counts=counts if options.counts else None,
        **{name: getattr(options, name) for name in names},
        **more,
    )
    tokenizer.save(options.output, verbose=False)
    if options.json:
        print(json.dumps(dataclasses.asdict(cast("Any", tokenizer.training_report))))
    elif not options.quiet:
        print(f"Vocabulary size : {tokenizer.vocab_size}")
        print(f"Saved to        : {_printable(options.output)}")


def _cmd_encode(options: argparse.Namespace) -> None:
    if (options.text is None) == (options.file is None):
        raise _UsageError("expected a text or --file, one of the two")
    tokenizer = BPETokenizer.from_pretrained(options.tokenizer, verbose=False)
    source = options.text if options.file is None else options.file
    chunks: Iterable[str] = [source] if options.file is None else _TextFile(Path(source))
    chunks, piped = (_stdin_text(), True) if source == "-" else (chunks, False)
    before, after = tokenizer._around if options.add_special_tokens else ((), ())
    watched = False if piped or options.quiet or options.file is None else None
    with _progress("encoding", "B", Path(source), watched) as advance:
        measured = (chunk for chunk in chunks if advance(_utf8_length(chunk)) or True)
        stream = tokenizer.encode_streaming(measured, options.allowed_special)
        pieces: Iterator[Sequence[int]] = itertools.chain([before], stream, [after])
        if piped and not options.json:
            for piece in filter(None, pieces):  # as they arrive, a line for each piece of text
                rows = map("{}\t{}".format, piece, map(_printable, tokenizer._shown.of(piece)))
                print(*rows, sep="\n") if options.show_tokens else print(*piece)
            return
        ids = array.array("I", itertools.chain.from_iterable(pieces))  # four bytes each
    shown = tokenizer._shown.of if options.show_tokens else None
    sys.stdout.writelines(_listed(ids, shown, options.json))


def _listed(ids: array.array[int], shown: Any, as_json: bool) -> Iterator[str]:
    """Yield what `encode` prints, by slices of its lists: whole ones take 36 bytes for each id."""
    show: Callable[[Any], str] = json.dumps if as_json else str
    yield f'{{"token_count": {len(ids)}' if as_json else f"Token count : {len(ids)}"
    lists = ("Token IDs", "input_ids", array.array.tolist), ("Tokens", "tokens", shown)
    for name, key, values in lists if shown else lists[:1]:
        yield f', "{key}": [' if as_json else f"\n{name} : ["
        for at in range(0, len(ids), 2**16):
            yield ", " * (at > 0) + show(values(ids[at : at + 2**16]))[1:-1]
        yield "]"
    yield "}\n" if as_json else "\n"


def _cmd_decode(options: argparse.Namespace) -> None:
    tokenizer = BPETokenizer.from_pretrained(options.tokenizer, verbose=False)
    piped = options.ids == ["-"]
    ids = _parse_ids(_stdin_text() if piped else [" ".join(options.ids)])
    if options.errors is None:
        ids = _known_ids(zip(ids) if piped else [[*ids]], tokenizer._id_to_bytes)
    text = tokenizer.decode_streaming(ids, options.skip_special_tokens, options.errors or "replace")
    if options.json:
        print(json.dumps({"text": "".join(text)}))
    elif piped:
        sys.stdout.writelines((_printable(t, _KEPT) for t in text) if sys.stdout.isatty() else text)
    else:
        print(f"Decoded text: {''.join(text)!r}")


def _parse_ids(chunks: Iterable[str]) -> Iterator[int]:
    """Read integers from text, separated by white space, commas and brackets."""
    rest = ""
    for chunk in itertools.chain(chunks, [" "]):
        *words, rest = re.split(r"[\s,\[\]]+", rest + chunk)
        for word in filter(None, words):
            if not word.isdecimal():
                raise ValueError(f"expected token ids, got {_shorten(word)}")
            yield int(word)


def _known_ids(batches: Iterable[Sequence[int]], known: Container[int]) -> Iterator[int]:
    """Yield the ids of batches; raise ValueError for unknown ids."""
    for ids in batches:
        if unknown := [id_ for id_ in dict.fromkeys(ids) if id_ not in known]:
            advice = "pass --errors replace for U+FFFD"
            raise ValueError(f"ids not in the vocabulary: {_shorten(unknown)}; {advice}")
        yield from ids


def _cmd_chat(options: argparse.Namespace) -> None:
    path = options.model_path
    own = _choices(path, _describe(path), options.backend)[0][1].tokenizer
    if own is None and Path(path, "tokenizer.json").is_file():  # beside a GGUF file
        own = Path(path)
    if options.tokenizer is None and own is None:
        raise _UsageError(f"no tokenizer.json in {path}; pass --tokenizer")
    tokenizer = BPETokenizer.from_pretrained(options.tokenizer or own, verbose=False)
    # Nothing is read from stdin for a model that can't be used.
    loading = _Loading(options.n_gpu_layers, options.n_ctx)
    model = _open_fitting(tokenizer, path, options.backend, loading)
    if not options.quiet:
        print(_printable(f"{model!r}, context {model.context}"), file=sys.stderr)
    names = ["template", "system_prompt", "max_new_tokens", "temperature", "top_p"]
    given = {name: getattr(options, name) for name in [*names, "n_gpu_layers", "n_ctx", "backend"]}
    message = "".join(_stdin_text()) if options.message == "-" else options.message
    talk: list[dict[str, str]] = []
    for content in _typed_lines() if message is None else [message]:
        talk.append({"role": "user", "content": content})
        answer = ""
        _, reply, pieces = _start_answer(tokenizer, talk, path, **given)
        for piece in pieces:
            answer += piece
            piece = _printable(piece, _KEPT) if sys.stdout.isatty() else piece
            print("" if options.json else piece, end="", flush=True)
        print(json.dumps({"text": answer}) if options.json else "", flush=True)
        if not options.quiet:
            print(reply, file=sys.stderr)
        talk.append({"role": "assistant", "content": answer})


def _typed_lines() -> Iterator[str]:
    """Yield the lines that a user types, until a quit command or the end of input."""
    ask = "> " if sys.stdin.isatty() and sys.stdout.isatty() else ""
    with contextlib.suppress(EOFError):
        while (line := input(ask)).strip() not in ("quit", "exit", "/quit"):
            if line.strip():
                yield line


def _cmd_info(options: argparse.Namespace, more: Callable[..., Any] = lambda _: {}) -> None:
    tokenizer = BPETokenizer.from_pretrained(options.tokenizer, verbose=False)
    decoded = tokenizer.decode(ids := tokenizer.encode(text := options.sample_text))
    same = len({*map(tokenizer._pipeline(_NONE).normalize, (text, decoded))}) == 1
    facts: dict[str, Any] = {
        "name": tokenizer._settings.get("name"),
        **{"vocab_size": tokenizer.vocab_size, "max_id": tokenizer.max_id},
        "merges": len(tokenizer._definition.merges),
        "split_pattern": _PATTERN_NAMES.get(tokenizer.split_pattern or "", tokenizer.split_pattern),
        "normalizer": tokenizer.normalizer,
        "special_tokens": tokenizer.special_tokens,
        **{role: tokenizer._roles.get(role) for role in _ROLES},
        **dict(zip(("before_text", "after_text"), map(tokenizer._shown.of, tokenizer._around))),
        "others_add": _describe_added(tokenizer),
        **more(tokenizer),
        "sample": {
            **{"text": text, "input_ids": ids, "tokens": tokenizer._shown.of(ids)},
            "bytes_per_token": round(len(text.encode()) / max(1, len(ids)), 2),
            **{"decoded": decoded, "lossless": same},
            "changed_by_normalizer": same and decoded != text,
        },
    }
    if options.json:
        print(json.dumps(facts))
        return
    for name, value in facts.items():
        rows = value if isinstance(value, dict) else {}
        value = (", ".join(value) or None) if isinstance(value, list) else "" if rows else value
        value = len(rows) if name == "special_tokens" else "none" if value is None else value
        print(f"{name.replace('_', ' '):<18}: {_printable(str(value))}")
        for key, item in rows.items():
            print(f"  {_printable(str(key)):<24} {item!r}")


# What a first argument without an option means; bpe_tokenizer_tools allows it anywhere.
_BY_PLACE = {"train": ["--corpus"], "encode": ["--text"], "decode": ["--ids"], "info": ["-t"]}
_COMMANDS: dict[str, _Command] = {
    "train": ("Learn a tokenizer from text and save it.", _cmd_train, _train_options),
    "encode": ("Turn text into token ids.", _cmd_encode, _encode_options),
    "decode": ("Turn token ids back into text.", _cmd_decode, _decode_options),
    "chat": ("Talk with a model until quit, exit, /quit or Ctrl-D.", _cmd_chat, _chat_options),
    "info": ("Describe a tokenizer.", _cmd_info, _info_options),
}


def _one_line(error: object) -> str:
    """Format an error as one line for people."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return _printable(" ".join(text.split()) or type(error).__name__)


def _printable(text: str, kept: str = "") -> str:
    """Escape what could control a terminal, or doesn't show, except for `kept` characters."""
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def _tell(kind: str, message: object, *_: Any) -> None:
    """Print an error or a warning for people."""
    print(f"{_PROGRAM}: {kind}: {_one_line(message)}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, by default with the arguments of the process.

    Returns the exit status: 0, or 1 if something failed.  Wrong usage exits with 2.
    """
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - closed by the caller
    if sys.stdout is None:
        _tell("error", "standard output is closed")
        return 1
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    argv = [*(sys.argv[1:] if argv is None else argv)]
    try:
        parser, given = _build_parser(argv), "".join(argv[1:2])
        if type(parser) is _Parser and re.match(r"[^-]|-$", given):
            argv[1:1] = _BY_PLACE.get(argv[0], [])
        options = parser.parse_args(argv or ["--help"])
        with warnings.catch_warnings():
            warnings.showwarning = cast("Any", functools.partial(_tell, "warning"))
            status: int = options.run(options) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader is gone
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except argparse.ArgumentError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        _tell("error", "interrupted")
        return 128 + 2
    except Exception as error:  # a person wants the reason, not the traceback
        _tell("error", error)
        return 1


# == 13. Accelerator and entry point ==========================================
# The extension `_bpe_tokenizer` (accelerator/, in C) is a far faster engine with the same answers.
# If it is not built, or with BPE_TOKENIZER_PURE=1, the engine above stays in use.


def _find_engine() -> _Engine:
    """Return the engine in C if it is there, else the one in use."""
    # Like the tools, it takes the module of this name, not a copy by another one.
    if __name__ != "bpe_tokenizer" or os.environ.get("BPE_TOKENIZER_PURE", "0") not in ("", "0"):
        return _engine
    remedy = "install bpe-tokenizer again, or set BPE_TOKENIZER_PURE=1 to do without it"
    try:
        package = importlib.import_module("_bpe_tokenizer")
    except ModuleNotFoundError as error:
        if error.name != "_bpe_tokenizer":
            raise
        return _engine  # this file is alone, or has the tools only: just slower
    _check_version(package, remedy)
    try:
        return cast("_Engine", importlib.import_module("_bpe_tokenizer.engine").ENGINE)
    except (AttributeError, ImportError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "_bpe_tokenizer.native":
            return _engine  # it wasn't compiled: just slower
        folder = _place_of(package)
        _refuse(f"the accelerator {__version__} in {folder} can't be used: {error}; {remedy}")


_engine = _find_engine()
ACCELERATED = _engine.encoder is not _Encoder

if _IS_PROGRAM:
    signal.signal(signal.SIGINT, _usual)
    sys.exit(importlib.import_module("bpe_tokenizer").main())
