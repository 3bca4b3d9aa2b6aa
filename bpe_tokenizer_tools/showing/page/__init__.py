"""One page that tokenizes as you type, in any browser, with no network.

`write_page` joins the files of this folder (page.html, page.css, the encoder encoder.js, the
interface page.js) and the packed tokenizers.  The encoder gives the ids of the library;
tests/showing/test_page.py compares them in Chromium.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.showing.page import conversations
from bpe_tokenizer_tools.showing.page.packing import pack
from bpe_tokenizer_tools.showing.page.template import fill
from bpe_tokenizer_tools.support import outputs

_HERE = Path(__file__).parent

Tokenizers = BPETokenizer | Mapping[str, BPETokenizer] | Sequence[BPETokenizer]


def _source(*names: str) -> str:
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)


def _named(tokenizers: Tokenizers) -> dict[str, BPETokenizer]:
    """Give each tokenizer a name, if the caller didn't."""
    if isinstance(tokenizers, BPETokenizer):
        tokenizers = [tokenizers]
    if not isinstance(tokenizers, Mapping):
        tokenizers = {
            f"tokenizer {i}, {tokenizer.vocab_size:,} tokens": tokenizer
            for i, tokenizer in enumerate(tokenizers, 1)
        }
    if not tokenizers:
        raise ValueError("expected at least one tokenizer for the page, got none")
    return dict(tokenizers)


def page(tokenizers: Tokenizers, text: str = "", *, allowed_special: str = "none") -> str:
    """Return the page as HTML; see `write_page`."""
    if allowed_special not in ("none", "all"):
        raise ValueError(f"allowed_special must be 'none' or 'all', got {allowed_special!r}")
    packed = [pack(name, tokenizer) for name, tokenizer in _named(tokenizers).items()]
    given = {
        "text": text,
        "special": allowed_special == "all",
        "roles": conversations.ROLES,
        "templates": conversations.templates(),
        "white_space": conversations.white_space(),
        "tokenizers": packed,
    }
    parts = {"STYLE": _source("page.css"), "SCRIPT": _source("encoder.js", "page.js")}
    return fill(_source("page.html"), given, parts)


def write_page(
    tokenizers: Tokenizers,
    out: str | os.PathLike[str],
    text: str = "",
    *,
    allowed_special: str = "none",
) -> Path:
    """Write one self-contained page that shows text as tokens while it is typed.

    It contains whole vocabularies and opens from disk, without a network or a server.  Its
    encoder gives the same ids as the library.

    Args:
        tokenizers: one or several, by name or in a list.  The first two are shown side
            by side; the page can choose others.
        out: the file to write; it is written atomically.
        text: what the page shows at first.
        allowed_special: whether special tokens in the text are recognized at first, "all" or
            "none"; the page has a switch for it.

    Raises:
        ValueError: there is no tokenizer, or one that the page can't run exactly; the error
            says why.
        OSError: the file cannot be written.

    >>> from tempfile import mkdtemp
    >>> from bpe_tokenizer import BPETokenizer
    >>> write_page({"bytes": BPETokenizer("gpt2")}, mkdtemp() + "/page.html").name
    'page.html'
    """
    path = Path(out)
    outputs.write({path: page(tokenizers, text, allowed_special=allowed_special)})
    return path
