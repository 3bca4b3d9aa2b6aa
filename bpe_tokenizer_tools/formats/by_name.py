"""Tokenizers by name: OpenAI's encodings, as tiktoken calls them, and models on the Hub.

    o200k_base      the encoding of that name; its file is fetched once, and checked
    hf:org/model    the tokenizer of a model on the HuggingFace Hub; see `hub`

The file of an encoding is searched for in

    $TIKTOKEN_CACHE_DIR, else $DATA_GYM_CACHE_DIR, if set: tiktoken's own cache
    the user's cache directory: NAME.tiktoken
    data-gym-cache in the directory for temporary files: where tiktoken keeps it by default

and saved in the first one.  tiktoken names a file by the SHA-1 of its URL.  A file found or fetched
must have the published SHA-256; others are ignored.

Source: github.com/openai/tiktoken, tiktoken/load.py and tiktoken_ext/openai_public.py.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import http.client
import os
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bpe_tokenizer import AddedToken
from bpe_tokenizer_tools import core, formats
from bpe_tokenizer_tools.formats import hub
from bpe_tokenizer_tools.formats.tiktoken import PUBLIC_SHA256
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.progress import bar
from bpe_tokenizer_tools.support.text import shortened

_URL = "https://openaipublic.blob.core.windows.net/encodings/"
_SECONDS = 30  # to wait for the server, each time
_LARGEST = 2**26  # bytes; o200k_base has 3.6 million
_BLOCK = 2**16

_HUB = "hf:"
_HARMONY = {
    "<|startoftext|>": 199998,
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    "<|call|>": 200012,
}
_RESERVED = {f"<|reserved_{id_}|>": id_ for id_ in range(200000, 201088)}
# Encodings that share a file: its name, and the special tokens not to use with it.
_ALIASES: dict[str, tuple[str, dict[str, int]]] = {
    "gpt2": ("r50k_base", {}),
    "p50k_edit": (
        "p50k_base",
        {"<|fim_prefix|>": 50281, "<|fim_middle|>": 50282, "<|fim_suffix|>": 50283},
    ),
    "o200k_harmony": (
        "o200k_base",
        {
            **_HARMONY,
            **{text: id_ for text, id_ in _RESERVED.items() if id_ not in _HARMONY.values()},
        },
    ),
}
NAMES = (*PUBLIC_SHA256, *_ALIASES)
_PATHS = "a directory, a file such as tokenizer.json"
EXPECTED = f"{_PATHS}, hf:org/model, or one of {', '.join(sorted(NAMES))}"


def read(path: Path, pattern: str | None, tokens: list[AddedToken]) -> tuple[Any, ...]:
    """Read the tokenizer with a name; return the parts for `BPETokenizer.from_file`.

    Raises:
        FileNotFoundError: the name or the repository on the Hub doesn't exist.
        ConnectionError: the file is in no cache, and could not be fetched.
        OSError: the file can't be saved.
    """
    name = path.as_posix()
    if name.startswith(_HUB):
        found = _on_hub(name.removeprefix(_HUB))
        return core.engine().read(core.read_parts, found, pattern, tokens)
    if name in NAMES:
        stem, special = _ALIASES.get(name, (name, {}))
        extra = [AddedToken(text, id_) for text, id_ in special.items()]
        # Others may write to the cache: of its files, only the one with the known hash counts.
        return core.engine().read(formats.read_ranks, fetch(stem), pattern, [*extra, *tokens])
    shown = shortened(name, 300)
    raise FileNotFoundError(f"{shown}: no such file or directory; {_advice(name)}")


def _on_hub(repo: str) -> Path:
    return Path(repo) if repo and os.path.exists(repo) else hub.download(repo)


# How names of models begin -> the encoding of those models.
_MODELS = {"gpt-4o": "o200k_base", "gpt4o": "o200k_base", "gpt-4.1": "o200k_base"}
_MODELS |= {"gpt-5": "o200k_base", "o1": "o200k_base", "o3": "o200k_base", "o4": "o200k_base"}
_MODELS |= {"gpt-4": "cl100k_base", "gpt4": "cl100k_base", "gpt-3.5": "cl100k_base"}


def _advice(name: str) -> str:
    for model, encoding in _MODELS.items():
        if name.lower().startswith(model):
            return f"did you mean {encoding!r}, the encoding of {model}?"
    close = difflib.get_close_matches(name.lower(), NAMES, 1) or _beside(name)
    if not close and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name):
        return f"for a repository on the HuggingFace Hub, write {_HUB + name!r}"
    return f"did you mean {close[0]!r}?" if close else f"expected {EXPECTED}"


def _beside(name: str) -> list[str]:
    """Return the path in the same directory with the most similar name, if there is one."""
    folder, last = os.path.split(name)
    with contextlib.suppress(OSError, ValueError):
        close = difflib.get_close_matches(last, os.listdir(folder or "."), 1, 0.75)
        return [os.path.join(folder, found) for found in close]
    return []


# -- The cache ----------------------------------------------------------------


def fetch(name: str) -> Path:
    """Return the file of an encoding, from a cache or from OpenAI's server."""
    *own, temporary = _places(name)
    for place in own:
        if _checked(place, name) is not None:
            return place
    data = _checked(temporary, name)  # copied, because others may write there
    place = own[0]
    if data is None:
        data = _download(name, place)
    try:
        place.parent.mkdir(0o700, parents=True, exist_ok=True)
        outputs.write({place: data})
    except OSError as error:
        remedy = "set TIKTOKEN_CACHE_DIR to a directory that you may write to"
        problem = f"can't keep {name} there: {error.strerror or error}; {remedy}"
        raise OSError(error.errno, problem, str(place.parent)) from None
    return place


def _places(name: str) -> Iterator[Path]:
    """Yield the places of an encoding's file: first where to save it, last the shared one."""
    as_tiktoken = hashlib.sha1(_url(name).encode(), usedforsecurity=False).hexdigest()
    chosen = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if chosen:
        yield Path(chosen, as_tiktoken)
    yield core.cache_folder() / f"{name}.tiktoken"
    yield Path(tempfile.gettempdir(), "data-gym-cache", as_tiktoken)


def _checked(place: Path, name: str) -> bytes | None:
    """Return the content of a file, if it is the encoding's."""
    try:
        data = core.read_file(place, _LARGEST)
    except (OSError, ValueError):
        return None
    return data if data is not None and _is_published(data, name) else None


def _is_published(data: bytes, name: str) -> bool:
    return hashlib.sha256(data).hexdigest() == PUBLIC_SHA256[name]


# -- The server ---------------------------------------------------------------


def _url(name: str) -> str:
    return f"{_URL}{name}.tiktoken"


def _download(name: str, place: Path) -> bytes:
    """Fetch the file of an encoding, to be saved at a place."""
    url = _url(name)
    by_hand = f"fetch {url} on another machine, and put it at {place}"
    missing = "is another file" if place.exists() else "does not exist"
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
            size = int(answer.headers.get("Content-Length") or 0)
            data = b"".join(_blocks(answer, name, size))
        if size > len(data):
            raise ConnectionError(f"the connection broke off after {len(data):,} of {size:,} bytes")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ConnectionError(
            f"{name}: {place} {missing}, and downloading it failed ({_reason(error)}); {by_hand}"
        ) from None
    if not _is_published(data, name):
        raise ConnectionError(
            f"{name}: {url} sent something else: its sha256 is not the published one, "
            f"{PUBLIC_SHA256[name]}; nothing was kept; perhaps a proxy or a login page answered; "
            f"{by_hand}"
        )
    return data


def _blocks(answer: Any, name: str, size: int) -> Iterator[bytes]:
    with bar(f"Downloading {name}", "B", size or None) as advance:
        read = 0
        while read <= _LARGEST and (block := answer.read(_BLOCK)):
            read += len(block)
            advance(len(block))
            yield block


def _reason(error: Exception) -> str:
    """Say in one line why a download failed."""
    cause: Any = error
    if isinstance(error, urllib.error.HTTPError):
        error.close()  # it holds the answer, and Python 3.14 warns
    else:
        cause = getattr(error, "reason", error)
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return core.one_line(text)[:200]
