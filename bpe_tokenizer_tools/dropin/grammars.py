"""What grammar engines need from a tokenizer: the bytes of each token.

llguidance and xgrammar compile a grammar, such as JSON's, to masks over a vocabulary: which tokens
may come next.  Both take the vocabulary as bytes, so they don't need a HuggingFace tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import lost
from bpe_tokenizer_tools.formats.sentencepiece import SPACE, is_byte


def token_bytes(tokenizer: BPETokenizer) -> list[bytes | None]:
    """Return the bytes that each id adds to a text, by id.

    Special tokens add no text and are None, like ids without a token; other added tokens have
    the bytes of their text.  The bytes are those of a token inside a text: a decoder may treat
    the first token differently, for example remove its space.  They are exact for byte-level
    vocabularies, for those that write a space as "▁", and for byte fallback.  Raises ValueError
    for others, such as those whose words end in "</w>".

    >>> token_bytes(BPETokenizer())[0x61:0x63]
    [b'a', b'b']
    """
    special = set(tokenizer.special_tokens.values())
    spell = speller(tokenizer)
    table: list[bytes | None] = [None] * (tokenizer.max_id + 1)
    for id_, token in core.tokens(tokenizer).items():
        if id_ not in special:
            table[id_] = spell(id_, token)
    return table


def speller(tokenizer: BPETokenizer) -> Any:
    """Return a function from an id and its token to the bytes of the token inside a text."""
    components = tokenizer.components
    if components is None:
        return lambda _, token: token
    kinds = _kinds(components["decoder"])
    added = core.contents(tokenizer)
    if "ByteLevel" in kinds:
        if kinds != ["ByteLevel"]:
            raise _refusal("its decoder is more than ByteLevel")

        def of_byte_level(id_: int, token: bytes) -> bytes:
            raw = None if id_ in added else core.from_printable(token.decode())
            return token if raw is None else raw

        return of_byte_level
    model = components["model"]
    if any(model.get(f"{key}") for key in ("continuing_subword_prefix", "end_of_word_suffix")):
        raise _refusal("its tokens have a prefix or suffix of their own")
    if not _is_metaspace(components["decoder"], kinds):
        raise _refusal(f"its decoder is {kinds or None}")
    fallback = bool(model.get("byte_fallback"))

    def of_metaspace(id_: int, token: bytes) -> bytes:
        text = token.decode()
        if fallback and id_ not in added and is_byte(text):
            return bytes([int(text[3:5], 16)])
        return text.replace(SPACE, " ").encode()

    return of_metaspace


def _kinds(decoder: Any) -> list[str]:
    if decoder is None:
        return []
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    return [step["type"] for step in steps]


def _is_metaspace(decoder: Any, kinds: list[str]) -> bool:
    """Return whether a decoder writes "▁" as a space, and does nothing else inside a text."""
    if kinds == ["Metaspace"]:
        return bool(decoder["replacement"] == SPACE)
    steps = decoder["decoders"] if kinds and decoder["type"] == "Sequence" else []
    spaces = [
        step
        for step in steps
        if step["type"] == "Replace"
        and step["pattern"] == {"String": SPACE}
        and step["content"] == " "
    ]
    return len(spaces) == 1 and set(kinds) <= {"Replace", "ByteFallback", "Fuse", "Strip"}


def _refusal(problem: str) -> ValueError:
    return lost("a table of token bytes", problem)


class ForLLGuidance:
    """A tokenizer as `llguidance.TokenizerWrapper` takes it; see `for_llguidance`."""

    def __init__(self, tokenizer: BPETokenizer, eos_token_id: int | None = None) -> None:
        self._encode = _inside(tokenizer).encode
        self.eos_token_id = _eos(tokenizer, eos_token_id)
        self.bos_token_id = tokenizer.bos_token_id
        contents = core.contents(tokenizer)
        table = token_bytes(tokenizer)
        # llguidance needs the names of special tokens, too.
        self.tokens = [
            contents.get(id_, "").encode() if raw is None else raw for id_, raw in enumerate(table)
        ]
        self.special_token_ids = sorted(tokenizer.special_tokens.values())

    def __call__(self, text: str) -> list[int]:
        """Encode part of a text, with nothing put before it."""
        return self._encode(text)


_NO_PREFIX: dict[str, dict[str, Any]] = {
    "SentencePiece": {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "Metaspace": {"prepend_scheme": "never", "add_prefix_space": False},
    "ByteLevel": {"add_prefix_space": False},
}


def _inside(tokenizer: BPETokenizer) -> BPETokenizer:
    """Return a copy that encodes text as if inside another: it puts no space before it."""
    components = tokenizer.components
    if components:
        for field, plural in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
            components[field] = _without_prefix(components[field], plural)
    definition = replace(tokenizer.definition, prefix_space=False, components=components)
    return core.from_parts(definition, *core.rest(tokenizer), Path())


def _without_prefix(step: Any, plural: str) -> Any:
    """Return a copy of a component that puts nothing before a text; None if nothing is left."""
    if step is None or step["type"] == "Prepend":
        return None
    if step["type"] == "Sequence":
        steps = (_without_prefix(each, plural) for each in step[plural])
        return {**step, plural: [each for each in steps if each]}
    changed = _NO_PREFIX.get(step["type"], {})
    return {**step, **{key: value for key, value in changed.items() if key in step}}


def for_llguidance(tokenizer: BPETokenizer, eos_token_id: int | None = None) -> ForLLGuidance:
    """Return a tokenizer as llguidance wants it.

        llguidance.LLTokenizer(llguidance.TokenizerWrapper(for_llguidance(tokenizer)))

    `eos_token_id` is the id that ends a text; None takes the tokenizer's eos, or raises
    ValueError if it has none.  The engine encodes parts of texts, so the object puts no space
    before them.
    """
    return ForLLGuidance(tokenizer, eos_token_id)


def for_xgrammar(
    tokenizer: BPETokenizer,
    vocab_size: int | None = None,
    stop_token_ids: Sequence[int] | None = None,
    special_tokens_as_text: bool = False,
) -> dict[str, Any]:
    """Return the arguments of `xgrammar.TokenizerInfo` for a tokenizer.

        xgrammar.TokenizerInfo(**for_xgrammar(tokenizer, vocab_size=model.config.vocab_size))

    `vocab_size` is the number of the model's logits, by default the largest id plus one.
    `stop_token_ids` end a text; None takes the tokenizer's eos, or raises ValueError if it has
    none.  Special tokens are never part of a text; with `special_tokens_as_text`, they may appear
    as the text of their names, as xgrammar itself treats them.
    """
    library = core.import_optional("xgrammar", "for_xgrammar", "xgrammar")
    table = token_bytes(tokenizer)
    first = tokenizer.encode("a")
    spaced = bool(first) and (table[first[0]] or b"").startswith(b" ")
    if special_tokens_as_text:
        for text, id_ in tokenizer.special_tokens.items():
            table[id_] = text.encode()
    return {
        "encoded_vocab": [raw or b"" for raw in table],
        "vocab_type": library.VocabType.RAW,
        "vocab_size": len(table) if vocab_size is None else vocab_size,
        "stop_token_ids": [_eos(tokenizer, None)] if stop_token_ids is None else [*stop_token_ids],
        "add_prefix_space": spaced,
    }


def _eos(tokenizer: BPETokenizer, given: int | None) -> int:
    eos = tokenizer.eos_token_id if given is None else given
    if eos is None:
        raise ValueError("the tokenizer has no eos token; set tokenizer.eos_token, or pass an id")
    return eos
