"""Every BPE of HuggingFace's tokenizer.json, run as `tokenizers` runs it.

The core of this library knows byte-level BPE, cut by one pattern, and the chains of Llama 2,
Mistral and Gemma, which merge characters.  This module adds all other steps of such chains:

    text -> normalizer -> pre_tokenizer -> BPE over characters -> ids
    ids  -> decoder -> text

Text is a string at every step; byte-level BPE is one more step that replaces each byte by its
printable character.  A step that can change text also returns, for each character, where it
came from in the original: offsets follow.

Source: the behavior of huggingface/tokenizers 0.23, which the tests compare with
(tests/formats/test_components.py).  A component that this module lacks raises an error
that names it.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import regex

import bpe_tokenizer
from bpe_tokenizer import GPT2_SPLIT_PATTERN, Definition
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import component_twin, growth
from bpe_tokenizer_tools.patterns import algebra, timeouts
from bpe_tokenizer_tools.patterns.families import FAMILIES, steps_of
from bpe_tokenizer_tools.patterns.known import IN_ONE_STEP
from bpe_tokenizer_tools.patterns.oniguruma import Parser, from_oniguruma
from bpe_tokenizer_tools.patterns.other_unicode import MARK, NUMBER, PUNCTUATION, lower
from bpe_tokenizer_tools.support.offsets import Span, Spans, align

__all__ = [
    "ComponentEncoder",
    "check_writable",
    "read_components",
    "read_finder",
    "read_pattern",
    "read_post_processor",
]


Text = core.Text


# -- Patterns -----------------------------------------------------------------

Find = core.Find


def _finder(pattern: str) -> Find:
    exact = core.Pattern(pattern)
    never_empty = algebra.never_empty(pattern)

    def find(text: str) -> Iterator[Span]:
        seconds = timeouts.seconds_for(text)
        compiled, text = exact.ready(text)
        try:
            if never_empty:
                for found in compiled.finditer(text, timeout=seconds):
                    yield found.span()
            else:
                yield from _empty_too(compiled, text, seconds)
        except TimeoutError:
            raise timeouts.too_slow(pattern, text) from None

    return find


def _empty_too(compiled: regex.Pattern[str], text: str, seconds: float) -> Iterator[Span]:
    """Find the matches of a pattern that may be empty.

    Like Oniguruma's callers, and unlike `finditer`: after an empty match, skip another match that
    begins at the same place.
    """
    at, done, until = 0, -1, time.process_time() + seconds  # the clock of `regex`
    while at <= len(text):
        found = compiled.search(text, at, timeout=max(until - time.process_time(), 0.001))
        if found is None:
            return
        start, end = found.span()
        if start == end == done:
            at += 1
        else:
            at = done = end
            yield start, end


_GPT2 = GPT2_SPLIT_PATTERN


def read_pattern(step: core.JsonReader) -> str:
    """Read a {"String": ..} or {"Regex": ..}, and spell it for `regex`."""
    pattern = step.child("pattern")
    if pattern is not None:
        core.check_keys(pattern, core.KEYS["pattern"])
    if pattern is None or len(pattern.data) != 1:
        raise step.error("expected {'Regex': ...} or {'String': ...}", "pattern")
    if "String" in pattern.data:
        return re.escape(str(pattern.data["String"]))
    written = pattern.data["Regex"]
    if len(written) > core.MAX_PATTERN_LENGTH:
        limit = f"at most {core.MAX_PATTERN_LENGTH}"
        raise pattern.error(f"{len(written)} characters, {limit} are read", "Regex")
    try:
        found: str = core.KNOWN_SPELLINGS.get((written,)) or from_oniguruma(written)
        core.splitter(found)
    except (ValueError, RecursionError, regex.error) as error:
        raise pattern.error(f"not supported: {error}", "Regex") from None
    return found


def read_finder(step: core.JsonReader) -> Find:
    """Read the pattern of a step, and find its matches."""
    return _finder(read_pattern(step))


# -- Normalizers --------------------------------------------------------------

Normalizer = Callable[[Text], Text]


def _unicode_form(step: core.JsonReader) -> Normalizer:
    form = step.data["type"]

    def run(text: Text) -> Text:
        chars = core.normalize(text.chars, form)
        if text.spans is None or chars == text.chars:
            return Text(chars, text.spans)
        return Text(chars, align(text.chars, form).within(text.spans))

    return run


def _by_character(change: Callable[[str], str]) -> Normalizer:
    """Make a normalizer that replaces each character on its own."""

    def run(text: Text) -> Text:
        parts = list(map(change, text.chars))
        lengths = [*map(len, parts)]
        if text.spans is None or lengths.count(1) == len(lengths):
            return Text("".join(parts), text.spans)
        return Text("".join(parts), text.spans.repeated(lengths))

    return run


def _lowercase(step: core.JsonReader) -> Normalizer:
    run = _by_character(lower)  # by character: "Σ" at the end of a word is no exception
    return lambda text: Text(text.chars.lower(), text.spans) if text.chars.isascii() else run(text)


def _strip_accents(step: core.JsonReader) -> Normalizer:
    is_mark = core.Pattern(MARK).match
    return _by_character(lambda char: "" if is_mark(char) else char)


def _strip(step: core.JsonReader) -> Normalizer:
    left = step.get("strip_left", bool, default=True)
    right = step.get("strip_right", bool, default=True)

    def run(text: Text) -> Text:
        found = left and core.SPACE_AFTER.match(text.chars)
        start = found.end() if found else 0
        found = right and core.SPACE_BEFORE.match(text.chars, pos=start)
        return text.cut(start, found.start() if found else len(text.chars))

    return run


def _bytes_as_characters(step: core.JsonReader) -> Normalizer:
    return _by_character(_byte_chars)


def _may_insert(step: core.JsonReader) -> bool:
    """Return True if a Replace may insert text at an empty match."""
    if step.data["type"] != "Replace" or not step.data["content"]:
        return False
    pattern = step.data["pattern"]
    if "String" in pattern:
        return not pattern["String"]
    return algebra.may_be_empty(Parser(pattern["Regex"], oniguruma=True).parse())


def _sentencepiece(step: core.JsonReader) -> Normalizer:
    from bpe_tokenizer_tools.formats.sentencepiece import Normalizer

    try:
        normalizer = Normalizer(step.data)
    except ValueError as error:
        raise step.error(str(error)) from None

    def run(text: Text) -> Text:
        if text.spans is None:
            return Text(normalizer(text.chars))
        prefix = normalizer.prefix_of(text.chars)
        if prefix is not None:
            return core.prepended(Text(normalizer(text.chars)[len(prefix) :], text.spans), prefix)
        chars, origin = normalizer.align(text.chars)
        places = [*text.spans, (text.spans[-1][1],) * 2] if text.spans else [(0, 0)]
        spans = [(places[a][0], places[max(a, b - 1)][1]) for a, b in origin]
        return Text(chars, Spans.joined([spans]))

    return run


# The maker of each, and its keys other than "type" with their types.
_NORMALIZERS: core.Makers = {
    **dict.fromkeys(core.NORMALIZERS, (_unicode_form, "")),
    "Lowercase": (_lowercase, ""),
    "StripAccents": (_strip_accents, ""),
    "Strip": (_strip, "strip_left:bool strip_right:bool"),
    **core.NORMALIZER_MAKERS,
    "ByteLevel": (_bytes_as_characters, ""),
    "SentencePiece": (  # this library's own
        _sentencepiece,
        "charsmap:str add_dummy_prefix:bool remove_extra_whitespaces:bool escape_whitespaces:bool "
        "treat_whitespace_as_suffix:bool user_defined:list",
    ),
}


# -- Pre-tokenizers -----------------------------------------------------------
# Each one cuts a piece of text into pieces.

PreTokenizer = Callable[[Text], Iterable[Text]]
_splits = core.splits


class _Isolated:
    """The most common pre-tokenizer, with the core's fast splitter where possible."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.plain = core.splitter(pattern).split  # for text that needs no offsets

    def __call__(self, text: Text) -> Iterable[Text]:
        parts = self.plain(text.chars)
        ends = list(itertools.accumulate(map(len, parts), initial=0))
        return [text.cut(start, end) for start, end in itertools.pairwise(ends)]


def _split(step: core.JsonReader) -> PreTokenizer:
    if core.read_behavior(step) == "Isolated":
        step.get("invert", bool, default=False)
        return _Isolated(read_pattern(step))
    made: PreTokenizer = core.read_split(step)
    return made


def _digits(step: core.JsonReader) -> PreTokenizer:
    individual = step.get("individual_digits", bool, default=False)
    return _Isolated(NUMBER) if individual else _splits(_finder(NUMBER), "Contiguous")


def _punctuation(step: core.JsonReader) -> PreTokenizer:
    return _splits(_finder(PUNCTUATION), core.read_behavior(step, default="Isolated"))


def _whitespace(step: core.JsonReader) -> PreTokenizer:
    words = _finder(rf"[{algebra.WORD_CHARS}]+|[^{algebra.WORD_CHARS}\s]+")
    return _splits(words, "Removed", invert=True)


def _whitespace_split(step: core.JsonReader) -> PreTokenizer:
    return _splits(_finder(r"\s"), "Removed")


def _char_delimiter_split(step: core.JsonReader) -> PreTokenizer:
    delimiter = step.get("delimiter", str)
    if len(delimiter) != 1:
        raise step.error(f"expected one character, got {core.shorten(delimiter)}", "delimiter")
    return _splits(_finder(re.escape(delimiter)), "Removed")


def _byte_level(step: core.JsonReader) -> PreTokenizer:
    prefix = step.get("add_prefix_space", bool, default=True)
    pattern = _GPT2 if step.get("use_regex", bool, default=True) else core.UNCUT_PATTERN
    return _ByteLevel(prefix, pattern)


class _ByteLevel:
    """Replaces each byte by its printable character."""

    def __init__(self, prefix: bool, pattern: str) -> None:
        self._prefix, self._cut = prefix, _Isolated(pattern)

    def plain(self, text: str) -> Iterable[str]:
        if self._prefix and not text.startswith(" "):
            text = " " + text
        return map(_byte_chars, self._cut.plain(text))

    def __call__(self, text: Text) -> Iterable[Text]:
        if self._prefix and not text.chars.startswith(" "):
            text = core.prepended(text, " ")
        for part in self._cut(text):
            lengths = (len(char.encode()) for char in part.chars)
            yield Text(_byte_chars(part.chars), part.spans and part.spans.repeated(lengths))


@functools.lru_cache(maxsize=2**16)
def _byte_chars(text: str) -> str:
    return core.to_printable(text.encode())


_PRE_TOKENIZERS: core.Makers = {
    **core.PRE_TOKENIZER_MAKERS,
    "ByteLevel": (_byte_level, core.KEYS["ByteLevel"]),
    "Split": (_split, core.KEYS["Split"]),
    "Digits": (_digits, "individual_digits:bool"),
    "Punctuation": (_punctuation, "behavior:str"),
    "Whitespace": (_whitespace, ""),
    "WhitespaceSplit": (_whitespace_split, ""),
    "CharDelimiterSplit": (_char_delimiter_split, "delimiter:str"),
}


# -- Decoders -----------------------------------------------------------------

Place = core.Place
Spelling = core.Spelling
TokenDecoder = Callable[[bytes, Place], bytes]


def _decode_byte_level(step: core.JsonReader) -> TokenDecoder:
    @functools.cache
    def convert(token: bytes) -> bytes:
        raw = core.from_printable(token.decode("utf-8", "replace"))
        return token if raw is None else raw

    return lambda token, place: convert(token)


def _decode_bpe(step: core.JsonReader) -> TokenDecoder:
    suffix = step.get("suffix", str, default="</w>").encode()
    return lambda token, place: token.replace(suffix, b"" if place.last else b" ")


_DECODERS: core.Makers = {
    **core.DECODER_MAKERS,
    "ByteLevel": (_decode_byte_level, core.KEYS["ByteLevel"]),
    "BPEDecoder": (_decode_bpe, "suffix:str"),
}


def _check_growth(steps: list[core.JsonReader], name: str) -> None:
    growth.check([(step, _may_insert(step)) for step in steps], name)


class Decoder(core.Decoder):
    """A chain of decoders, which can also decode the first tokens apart from the others.

    Attributes:
        looks_ahead: whether the last token is decoded differently.
    """

    makers = _DECODERS
    check_growth = staticmethod(_check_growth)

    def __init__(self, data: core.JsonReader) -> None:
        super().__init__(data)
        self.looks_ahead = any(kind == "BPEDecoder" for kind, _ in self._steps)

    def _placed(self, tokens: Iterable[Spelling | None]) -> Iterator[tuple[Spelling | None, Place]]:
        return _with_places(tokens) if self.looks_ahead else super()._placed(tokens)

    def start(self, tokens: Iterable[Spelling]) -> tuple[bytes, int]:
        """Decode the tokens whose text depends on being first; also return how many there are."""
        content, left = self._strip or (b" ", 0)
        done: list[bytes] = []
        for token in tokens:
            if done and not left:
                break
            piece = (self._joiner if done else b"") + self._decode(token, Place(not done), b"")
            rest = core.strip_start(piece, content, left)
            left = left - (len(piece) - len(rest)) // len(content) if not rest else 0
            done.append(self._finally(rest, Place(False, False)) if self._finally else rest)
        return b"".join(done), len(done)

    def later(self, token: Spelling, last: bool = False) -> bytes:
        """Return the text of a token after the start, where nothing is stripped."""
        piece = self._joiner + self._decode(token, Place(False, last), b"")
        return self._finally(piece, Place(False, False)) if self._finally else piece


def _with_places(tokens: Iterable[Spelling | None]) -> Iterator[tuple[Spelling | None, Place]]:
    first = True
    held: list[Spelling | None] = []
    for token in tokens:
        if held:
            yield held.pop(), Place(first, False)
            first = False
        held.append(token)
    if held:
        yield held[0], Place(first, True)


# -- Reading ------------------------------------------------------------------


def read_components(
    data: core.JsonReader, ids: Mapping[str, int], special: Container[str]
) -> dict[str, Any]:
    """Return the components of a tokenizer.json, as fields of a `Definition`.

    Raises an error for one that can't be run here; see `bpe_tokenizer._read_components`.
    """
    found: dict[str, Any] = core.read_components(data, ids, special, _Chain)
    return found


_POST_PROCESSORS = {
    "RobertaProcessing": "type:str sep:list cls:list trim_offsets:bool add_prefix_space:bool",
    "BertProcessing": "type:str sep:list cls:list",
}


def read_post_processor(
    step: core.JsonReader, added: Container[int | None]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Read which ids a post-processor other than the core's puts before and after a text."""
    kind = step.data["type"]
    if kind not in _POST_PROCESSORS:
        known = "ByteLevel, TemplateProcessing, RobertaProcessing and BertProcessing"
        raise step.error(f"{core.shorten(kind)} is not supported, only {known}")
    core.check_keys(step, _POST_PROCESSORS[kind])
    sides = []
    for name in ("cls", "sep"):
        pair = step.get(name, list)
        if len(pair) != 2 or type(pair[1]) is not int or pair[1] not in added:
            problem = f'expected ["added token", its id], got {core.shorten(pair)}'
            raise step.error(problem, name)
        sides.append((pair[1],))
    return sides[0], sides[1]


def check_writable(components: dict[str, Any]) -> None:
    """Raise a ValueError for a component that is this library's own: tokenizer.json lacks it."""
    if components["model"].get("all_merges"):
        raise ValueError(
            "tokenizer.json cannot hold this tokenizer: its merges make tokens that have no id, "
            "and tokenizer.json can list only merges of tokens with ids; save() writes vocab.json "
            "and merges.txt"
        )
    marker = components["model"].get("end_of_word_marker")
    if marker:
        raise ValueError(
            f"tokenizer.json cannot hold this tokenizer: each word ends in {marker!r} as a symbol "
            "of its own, and tokenizer.json has it as a suffix of the last character only; save() "
            "writes vocab.json and merges.txt"
        )
    chain = core.JsonReader(components, Path())
    if any(step.data.get("type") == "SentencePiece" for step in core.steps(chain, "normalizer")):
        raise ValueError(
            "tokenizer.json cannot hold this SentencePiece normalization exactly (a character "
            "map, user-defined symbols, or white space as a suffix); keep the .model file"
        )


def _only_cuts(step: core.JsonReader) -> bool:
    """Return True if a pre-tokenizer leaves every character as it is."""
    kinds = ("Split", "Punctuation", "Digits")
    return step.data["type"] in kinds and step.data.get("behavior") != "Removed"


_MAKERS: dict[str, core.Makers] = {
    "normalizer": _NORMALIZERS,
    "pre_tokenizer": _PRE_TOKENIZERS,
    "decoder": _DECODERS,
}


class _Chain(core.Chain):
    """The components of a tokenizer, compiled."""

    makers = _MAKERS
    options = (*core.MODEL_OPTIONS, "end_of_word_marker", "all_merges")
    decoder_class = Decoder
    check_growth = staticmethod(_check_growth)
    decoder: Decoder

    def __init__(self, data: core.JsonReader) -> None:
        super().__init__(data)
        normalizers = list(core.steps(data, "normalizer"))
        pre_tokenizers = list(core.steps(data, "pre_tokenizer"))
        kinds = {step.data["type"] for step in normalizers}
        for i, step in enumerate(normalizers):
            stripped = any(after.data["type"] == "Strip" for after in normalizers[i:])
            if (pre_tokenizers or stripped) and _may_insert(step):
                raise step.error(
                    "can match the empty string and inserts something there, which isn't supported "
                    "before Strip and pre-tokenizers; tokenizers itself fails there on some text",
                    "pattern",
                )
        self._finds_as_written = "SentencePiece" in kinds
        self.normalizes_to_bytes = "ByteLevel" in kinds
        self.is_byte_level = self.normalizes_to_bytes or any(
            step.data["type"] == "ByteLevel" for step in pre_tokenizers
        )
        self.cuts = bool(pre_tokenizers)
        first = next(iter(self._pre_tokenizers), None)
        self._mark = first.marked if isinstance(first, core.Metaspace) else None
        self._only_cuts = all(map(_only_cuts, pre_tokenizers[1 if self._mark else 0 :]))

    def as_found(self, content: str) -> str:
        """Return the form of an added token in normalized text.

        HuggingFace normalizes it, too; SentencePiece takes its symbols as written.
        """
        return content if self._finds_as_written else super().as_found(content)

    def scanned(self) -> component_twin.Scanned | None:
        """Return the one pre-tokenizer, if the engine can make its cuts."""
        if len(self._pre_tokenizers) != 1:
            return None
        [step] = self._pre_tokenizers
        is_metaspace = isinstance(step, core.Metaspace)
        if is_metaspace and step.splits and step.mark == component_twin.SPACE:
            return component_twin.Scanned(self._uncut_chars, *component_twin.BEFORE_SPACES)
        found = component_twin.SCANNED.get(getattr(step, "pattern", ""))
        return component_twin.Scanned(self._uncut_chars, *found) if found else None

    def _uncut_chars(self, text: str) -> str:
        return self._mark(Text(text)).chars if self._mark else text

    def uncut(self, text: Text) -> Text | None:
        """Return all pre-tokens, joined; None if that needs the pre-tokenizers."""
        if not self._only_cuts:
            return None
        return self._mark(text) if self._mark else text

    def cut(self, text: str) -> list[str]:
        """Run the pre-tokenizers on text that needs no offsets."""
        pieces = [text]
        for step in self._pre_tokenizers:
            plain = getattr(step, "plain", None)
            if plain:
                pieces = list(itertools.chain.from_iterable(map(plain, pieces)))
            else:
                pieces = [p.chars for piece in pieces for p in step(Text(piece)) if p.chars]
        return pieces


# -- Encoding -----------------------------------------------------------------

ORDINARY = [  # printable ASCII, tab and newline; then characters whose bytes are all of UTF-8's
    *map(chr, [*range(0x20, 0x7F), 0x09, 0x0A]),
    *map(chr, [*range(0xC0, 0x100), *range(0x80, 0x800, 0x40)]),
    *map(chr, [0x900, *range(0x1000, 0xE000, 0x1000), 0xFF01, 0x1F642]),
]


def _twin(definition: Definition) -> core.Encoder | None:
    """Make an encoder of the core that gives the same ids, if one pattern can do its steps.

    The accelerator then has a scanner for it.
    """
    components = definition.components or {}
    steps = steps_of(components.get("pre_tokenizer"))
    names = (name for name in IN_ONE_STEP if steps == steps_of(FAMILIES[name].pre_tokenizer()))
    name = next(names, None)
    options = {key for key, value in components.get("model", {}).items() if value}
    if name is None or options - {"fuse_unk", "ignore_merges"}:
        return None
    vocab = {core.from_printable(token.decode()): id_ for token, id_ in definition.vocab.items()}
    tokens = {token: id_ for token, id_ in vocab.items() if token is not None}
    if len(tokens) < len(definition.vocab) or any(
        bytes([byte]) not in tokens for byte in range(256)
    ):
        return None
    return core.engine().encoder(
        Definition(
            tokens,
            definition.merges,
            IN_ONE_STEP[name],
            normalizer=None,
            ignore_merges=definition.ignore_merges,
        )
    )


_FAST_AFTER = 2**16  # ids decoded before it pays to build the engine's table


class _LaterTokens(dict[int, bytes]):
    """Id -> the text of its token after the start.

    Args:
        ids: those that have a token.
        decode: computes it; a KeyError means that there is no token.
    """

    def __init__(self, ids: Iterable[int], decode: Callable[[int], bytes]) -> None:
        super().__init__()
        self._ids, self._decode = ids, decode
        self._until_fast = _FAST_AFTER
        self._fast: core.Encoder | None = None

    def __missing__(self, id_: int) -> bytes:
        self[id_] = piece = self._decode(id_)
        return piece

    def join(self, ids: list[int]) -> bytes:
        """Join the texts of ids; KeyError or ValueError if one has no token."""
        if self._until_fast > 0:  # a race between threads costs nothing but time
            self._until_fast -= len(ids)
            if self._until_fast <= 0 and bpe_tokenizer.ACCELERATED:
                self._fast = component_twin.make_decoder({id_: self[id_] for id_ in self._ids})
        if self._fast:
            return self._fast.decode(ids, "strict")
        return b"".join(map(self.__getitem__, map(operator.index, ids)))


class ComponentEncoder(core.CharacterEncoder):
    """A definition with components, ready to run; in C, if possible."""

    chain_class = _Chain
    _chain: _Chain

    def __init__(self, definition: Definition) -> None:
        super().__init__(definition)
        components, chain = definition.components or {}, self._chain
        options = components.get("model", {})
        self._prefix = options.get("continuing_subword_prefix") or ""
        self._suffix = options.get("end_of_word_suffix") or ""
        self._marker = options.get("end_of_word_marker")  # a symbol; this library's own
        self._end = [(self._vocab[self._marker], 0)] if self._marker else []
        if chain.normalizes_to_bytes:
            self._as_text = {token.id for token in definition.added if not token.normalized}
        self.model = model = self._model()
        self.free_cut = free_cut = component_twin.free_cut(model) if model else None
        self._free_cut = free_cut.pattern if free_cut else None
        later = chain.decoder.later
        self._later = _LaterTokens(self.tokens, lambda id_: later(self._spelling(id_)))
        self._twin: core.Encoder | component_twin.Twin | None = None
        self._engine: core.Encoder | None = None  # the twin's
        self._by_characters: component_twin.Twin | None = None
        if bpe_tokenizer.ACCELERATED:
            self._find_twin()

    def _find_twin(self) -> None:
        """Let the engine in C encode, if it can."""
        chain = self._chain
        self._engine = _twin(self._definition)
        self._twin = self._engine
        if self.model and not self._engine:
            made = component_twin.make_twin(self.model, chain.cut, chain.cuts, chain.scanned())
            self._twin = self._by_characters = made
            self._engine = made.encoder if made else None

    def _list_merges(self) -> Sequence[tuple[int, int]]:
        """Return the merges by id; tokens without an id get a number, after all others."""
        self._unlisted: dict[int, str] = {}
        options = (self._definition.components or {}).get("model", {})
        merges = options.get("all_merges")  # this library's own
        if not merges:
            return super()._list_merges()
        added = (token.id or 0 for token in self._definition.added)
        free = itertools.count(max([*self._vocab.values(), *added], default=-1) + 1)
        for left, right in merges:
            for token in (left, right, left + right):
                if token not in self._vocab:
                    self._vocab[token] = number = next(free)
                    self._unlisted[number] = token
        self._written |= self._unlisted
        return [(self._vocab[left], self._vocab[right]) for left, right in merges]

    def encode(self, text: str) -> list[int]:
        """Encode prepared text without added tokens."""
        return self._twin.encode(text) if self._twin else super().encode(text)

    def count(self, text: str) -> int:
        """Count the ids `encode` would give."""
        return self._twin.count(text) if self._twin else super().count(text)

    def encode_pretoken(self, text: str) -> list[int]:
        """Encode one pre-token, which is cut already."""
        twin = self._by_characters
        return twin.encode_pretoken(text) if twin else self._encode_pretoken(text.encode())

    def cache_info(self) -> tuple[int, int, int]:
        """Return the cache's numbers of lookups, misses and entries."""
        return self._engine.cache_info() if self._engine else super().cache_info()

    def clear_cache(self) -> None:
        """Empty the cache, and reset its statistics."""
        super().clear_cache()
        if self._engine:
            self._engine.clear_cache()

    def _model(self) -> component_twin.Model | None:
        """Return the model of a pre-token, if it is plain BPE over characters."""
        partial = self._byte_fallback and None in self._bytes
        if self._prefix or self._suffix or self._marker or self._unlisted or partial:
            return None
        return component_twin.Model(
            self._vocab,
            self._definition.merges,
            cast("list[int]", self._bytes) if self._byte_fallback else [],
            self._unk_id,
            self._fuse_unk,
            self._definition.ignore_merges,
        )

    def _split(self, text: str) -> list[str]:
        """Cut prepared text into pre-tokens."""
        pieces = self._chain.cut(text)
        if self._free_cut:
            return list(itertools.chain.from_iterable(map(self._free_cut.findall, pieces)))
        return pieces

    def _spelled(self, pretoken: str) -> Sequence[str]:
        if not (self._prefix or self._suffix) or not pretoken:
            return pretoken
        spelled = list(pretoken)
        if self._prefix:
            spelled[1:] = [self._prefix + char for char in pretoken[1:]]
        spelled[-1] += self._suffix
        return spelled

    def _symbols(self, pretoken: str) -> list[tuple[int, int]]:
        symbols = super()._symbols(pretoken)
        return symbols + self._end if self._end else symbols

    def _encode_pretoken(self, pretoken: bytes) -> list[int]:
        ids = super()._encode_pretoken(pretoken)
        if self._unlisted:
            unknown = cast("int", self._unk_id)
            return [unknown if id_ in self._unlisted else id_ for id_ in ids]
        return ids

    def _places(self, piece: Text, ids: list[int]) -> Iterator[Span]:
        if self._unlisted:  # before they became the unknown token
            ids = super()._encode_pretoken(piece.chars.encode())
        return super()._places(piece, ids)

    def _ordinary(self) -> Iterable[str]:
        return ORDINARY if self._chain.is_byte_level else super()._ordinary()

    def _show(self, written: str) -> str:
        raw = core.from_printable(written) if self._chain.is_byte_level else None
        if raw is None:
            return super()._show(written)
        return repr(raw.decode()) if raw.isascii() else "byte 0x" + raw.hex().upper()

    def encode_aligned(
        self, text: str, spans: Spans, known: list[int] | None = None
    ) -> tuple[list[int], list[Span]]:
        """Encode as `encode` does, and return the places of tokens; `known` are ids it gave."""
        if known is None:
            core.utf8_length(text)  # raises for a lone surrogate, with its place
        if self._engine and not self._by_characters:
            return self._engine.encode_aligned(text, spans, known)
        if self._by_characters:
            ids = known or self._by_characters.encode(text)
            whole = self._chain.uncut(Text(text, spans))
            places = self._by_characters.places([whole], ids, joined=True) if whole else None
            if places is None:
                pieces = self._chain.pre_tokenize(Text(text, spans))
                places = self._by_characters.places(pieces, ids)
            if places is not None:
                return ids, places
        return super().encode_aligned(text, spans, known)

    # -- Decoding ---

    def decode(self, ids: Any, errors: str) -> bytes:
        """Join the bytes of tokens; `errors` handles unknown ids."""
        given = ids if type(ids) is list else core.plain_ids(ids)
        try:
            return self._decode_known(given)
        except (KeyError, TypeError, ValueError):  # an unknown id, or not an id
            return b"".join(self.decode_pieces(core.plain_ids(given), errors))

    def _decode_known(self, ids: list[int]) -> bytes:
        """Decode ids, all of which have a token."""
        decoder = self._chain.decoder
        end = len(ids) - decoder.looks_ahead
        start, n = decoder.start(
            map(self._spelling, map(operator.index, itertools.islice(ids, end)))
        )
        last = b""
        if decoder.looks_ahead and ids:
            if not n:
                raise KeyError  # the last is also the first
            last = decoder.later(self._spelling(operator.index(ids[-1])), last=True)
        return start + self._later.join(ids[n:end]) + last
