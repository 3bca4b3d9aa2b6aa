"""Every BPE of HuggingFace's tokenizer.json, run as `tokenizers` runs it.

The core of this library knows one form: bytes, cut by one pattern.  Other tokenizers are
chains of components, and this module runs them:

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

import codecs
import functools
import itertools
import json
import operator
import re
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import regex

import bpe_tokenizer
from bpe_tokenizer import GPT2_SPLIT_PATTERN, AddedToken, Definition
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import component_twin, growth
from bpe_tokenizer_tools.patterns import algebra, timeouts
from bpe_tokenizer_tools.patterns.families import FAMILIES, steps_of
from bpe_tokenizer_tools.patterns.known import IN_ONE_STEP
from bpe_tokenizer_tools.patterns.oniguruma import Parser, from_oniguruma
from bpe_tokenizer_tools.patterns.other_unicode import MARK, NUMBER, PUNCTUATION, lower
from bpe_tokenizer_tools.support.offsets import Span, Spans, align, encode

__all__ = [
    "ComponentEncoder",
    "read_components",
    "read_pattern",
    "read_post_processor",
    "writable",
]


class Text(NamedTuple):
    """Text in the chain, and where each of its characters comes from.

    `spans` is None if nobody needs it; then steps leave it alone.
    """

    chars: str
    spans: Spans | None = None

    def cut(self, start: int, end: int) -> Text:
        """Return a part of it."""
        return Text(self.chars[start:end], None if self.spans is None else self.spans[start:end])


# -- Patterns -----------------------------------------------------------------

Find = Callable[[str], Iterable[Span]]  # where a pattern matches in a text


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


def _replace(step: core.JsonReader) -> Normalizer:
    find = _finder(read_pattern(step))
    content = step.get("content", str)
    literal = step.data["pattern"].get("String")

    def run(text: Text) -> Text:
        if not text.chars:  # nothing matches there, not even an empty pattern
            return text
        if literal and (text.spans is None or len(literal) == len(content) == 1):  # much faster
            return Text(text.chars.replace(literal, content), text.spans)
        parts: list[str] = []
        spans: list[Iterable[Span]] = []
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
        return Text("".join(parts), text.spans and Spans.joined([*spans, text.spans[done:]]))

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


def _prepended(text: Text, prefix: str) -> Text:
    spans = text.spans and Spans.joined([[text.spans[0]] * len(prefix), text.spans])
    return Text(prefix + text.chars, spans)


def _prepend(step: core.JsonReader) -> Normalizer:
    prefix = step.get("prepend", str)
    if not prefix:  # tokenizers gives wrong offsets, or panics in the next normalizer
        raise step.error("is empty, which tokenizers can't run; remove this normalizer", "prepend")
    return lambda text: _prepended(text, prefix) if text.chars else text


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
            return _prepended(Text(normalizer(text.chars)[len(prefix) :], text.spans), prefix)
        chars, origin = normalizer.align(text.chars)
        places = [*text.spans, (text.spans[-1][1],) * 2] if text.spans else [(0, 0)]
        spans = [(places[a][0], places[max(a, b - 1)][1]) for a, b in origin]
        return Text(chars, Spans.joined([spans]))

    return run


# The maker of each, and its keys other than "type" with their types.
_NORMALIZERS: dict[str, tuple[Callable[[core.JsonReader], Normalizer], str]] = {
    **dict.fromkeys(core.NORMALIZERS, (_unicode_form, "")),
    "Lowercase": (_lowercase, ""),
    "StripAccents": (_strip_accents, ""),
    "Strip": (_strip, "strip_left:bool strip_right:bool"),
    "Replace": (_replace, "pattern:dict content:str"),
    "Prepend": (_prepend, "prepend:str"),
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
_BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")


def _cuts(text: str, find: Find, invert: bool) -> list[tuple[int, int, bool]]:
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


def _merged(cuts: list[tuple[int, int, bool]], behavior: str) -> Iterator[Span]:
    """Join cuts as a behavior asks."""
    if behavior == "MergedWithNext":
        mirrored = [(-end, -start, matches) for start, end, matches in reversed(cuts)]
        joined = list(_merged(mirrored, "MergedWithPrevious"))
        yield from ((-end, -start) for start, end in reversed(joined))
        return
    current: list[int] = []
    before = False
    for start, end, matches in cuts:
        joins = (
            matches == before
            if behavior == "Contiguous"
            else behavior == "MergedWithPrevious" and matches and not before
        )
        if current and joins:
            current[1] = end
        else:
            if current:
                yield current[0], current[1]
            current = [start, end]
        before = matches
    if current:
        yield current[0], current[1]


def _splits(find: Find, behavior: str, invert: bool = False) -> PreTokenizer:
    """Make a pre-tokenizer from a pattern and the behavior at its matches."""

    def run(text: Text) -> Iterable[Text]:
        cuts = _cuts(text.chars, find, invert)
        if behavior == "Removed":
            return [text.cut(start, end) for start, end, matches in cuts if not matches]
        return [text.cut(start, end) for start, end in _merged(cuts, behavior)]

    return run


class _Isolated:
    """The most common pre-tokenizer, with the core's fast splitter where possible."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.plain = core.splitter(pattern).split  # for text that needs no offsets

    def __call__(self, text: Text) -> Iterable[Text]:
        parts = self.plain(text.chars)
        ends = list(itertools.accumulate(map(len, parts), initial=0))
        return [text.cut(start, end) for start, end in itertools.pairwise(ends)]


def _read_behavior(step: core.JsonReader, default: Any = core.REQUIRED) -> str:
    behavior: str = step.get("behavior", str, default=default)
    if behavior not in _BEHAVIORS:
        known = ", ".join(_BEHAVIORS)
        raise step.error(f"expected one of {known}, got {core.shorten(behavior)}", "behavior")
    return behavior


def _split(step: core.JsonReader) -> PreTokenizer:
    pattern = read_pattern(step)
    behavior = _read_behavior(step)
    invert = step.get("invert", bool, default=False)
    if behavior == "Isolated":
        return _Isolated(pattern)
    return _splits(_finder(pattern), behavior, invert)


def _digits(step: core.JsonReader) -> PreTokenizer:
    individual = step.get("individual_digits", bool, default=False)
    return _Isolated(NUMBER) if individual else _splits(_finder(NUMBER), "Contiguous")


def _punctuation(step: core.JsonReader) -> PreTokenizer:
    return _splits(_finder(PUNCTUATION), _read_behavior(step, default="Isolated"))


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
            text = _prepended(text, " ")
        for part in self._cut(text):
            lengths = (len(char.encode()) for char in part.chars)
            yield Text(_byte_chars(part.chars), part.spans and part.spans.repeated(lengths))


@functools.lru_cache(maxsize=2**16)
def _byte_chars(text: str) -> str:
    return core.to_printable(text.encode())


class _Metaspace:
    """Replaces spaces by a mark, puts one before the text if asked to, and cuts before marks."""

    def __init__(self, step: core.JsonReader) -> None:
        self._mark = mark = step.get("replacement", str)
        if len(mark) != 1:
            raise step.error(f"expected one character, got {core.shorten(mark)}", "replacement")
        self._prepends = _prepend_scheme(step) == "always"
        split = step.get("split", bool, None, default=None) is not False
        self._cut = _splits(_finder(re.escape(mark)), "MergedWithNext") if split else None
        self.cuts_before_space = split and mark == component_twin.SPACE

    def marked(self, text: Text) -> Text:
        """Do all but cut."""
        text = Text(text.chars.replace(" ", self._mark), text.spans)
        starts = text.chars.startswith(self._mark)
        return _prepended(text, self._mark) if self._prepends and not starts else text

    def __call__(self, text: Text) -> Iterable[Text]:
        text = self.marked(text)
        return self._cut(text) if self._cut else [text]


def _prepend_scheme(step: core.JsonReader) -> str:
    """Read when a Metaspace puts its mark before the text: always, first or never."""
    old = step.get("add_prefix_space", bool, default=True)  # in older files
    scheme: str = step.get("prepend_scheme", str, default="always" if old else "never")
    if scheme not in ("always", "first", "never"):
        raise step.error(
            f"expected 'always', 'first' or 'never', got {core.shorten(scheme)}", "prepend_scheme"
        )
    if not old and scheme != "never":  # HuggingFace rejects it, too
        raise step.error(
            f"{scheme!r} contradicts add_prefix_space, which is false", "prepend_scheme"
        )
    return scheme


_METASPACE = (  # the last two in older files
    "replacement:str prepend_scheme:str split:bool|null add_prefix_space:bool str_rep:str"
)
_PRE_TOKENIZERS: dict[str, tuple[Callable[[core.JsonReader], PreTokenizer], str]] = {
    "ByteLevel": (_byte_level, core.KEYS["ByteLevel"]),
    "Split": (_split, core.KEYS["Split"]),
    "Digits": (_digits, "individual_digits:bool"),
    "Punctuation": (_punctuation, "behavior:str"),
    "Whitespace": (_whitespace, ""),
    "WhitespaceSplit": (_whitespace_split, ""),
    "CharDelimiterSplit": (_char_delimiter_split, "delimiter:str"),
    "Metaspace": (_Metaspace, _METASPACE),
}


# -- Decoders -----------------------------------------------------------------
# A chain of decoders works on the list of tokens.  In all chains in use, a token's text depends
# on the token itself and on whether it is first or last.  Only a Strip after a Fuse sees the
# whole text, and it trims the beginning.  So ids are decoded one by one, which streaming needs.


class Place(NamedTuple):
    """The position of a token among those decoded."""

    first: bool
    last: bool


Spelling = tuple[bytes, bool]  # how it is written; whether it is added, and not in the alphabet
TokenDecoder = Callable[[bytes, Place], bytes]


def _decode_byte_level(step: core.JsonReader) -> TokenDecoder:
    @functools.cache
    def convert(token: bytes) -> bytes:
        raw = core.from_printable(token.decode("utf-8", "replace"))
        return token if raw is None else raw

    return lambda token, place: convert(token)


def _decode_replace(step: core.JsonReader) -> TokenDecoder:
    pattern = step.child("pattern")
    if pattern is None or "Regex" in pattern.data:
        raise step.error("only {'String': ...} is supported in a decoder", "pattern")
    core.check_keys(pattern, "String:str")
    old, new = pattern.get("String", str).encode(), step.get("content", str).encode()
    if not old:
        raise step.error("is empty", "pattern")
    return lambda token, place: token.replace(old, new)


_BYTE_TOKEN = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
ONE_BY_ONE = "bpe_tokenizer.one_by_one"  # a handler of errors, for `bytes.decode`


def _one_by_one(error: Any) -> tuple[str, int]:
    """Replace one byte with U+FFFD, as SentencePiece does; then decoding goes on after it."""
    return "\ufffd", error.start + 1


codecs.register_error(ONE_BY_ONE, _one_by_one)


def _decode_byte_fallback(step: core.JsonReader) -> TokenDecoder:
    def run(token: bytes, place: Place) -> bytes:
        found = _BYTE_TOKEN.fullmatch(token)
        return bytes([int(found[1], 16)]) if found else token

    return run


def _decode_metaspace(step: core.JsonReader) -> TokenDecoder:
    mark = step.get("replacement", str).encode()
    drops = _prepend_scheme(step) != "never"
    return lambda token, place: token.replace(mark, b"" if place.first and drops else b" ")


def _decode_bpe(step: core.JsonReader) -> TokenDecoder:
    suffix = step.get("suffix", str, default="</w>").encode()
    return lambda token, place: token.replace(suffix, b"" if place.last else b" ")


def _decode_strip(step: core.JsonReader) -> TokenDecoder:
    content, start, stop = _read_strip(step)

    def run(token: bytes, place: Place) -> bytes:
        token = _strip_start(token, content, start)
        return _strip_start(token[::-1], content[::-1], stop)[::-1]

    return run


def _read_strip(step: core.JsonReader) -> tuple[bytes, int, int]:
    content = step.get("content", str)
    if len(content) != 1:
        raise step.error(f"expected one character, got {core.shorten(content)}", "content")
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


def _fuse(step: core.JsonReader) -> TokenDecoder:
    return lambda token, place: token  # pieces are joined anyway


_DECODERS: dict[str, tuple[Callable[[core.JsonReader], TokenDecoder], str]] = {
    "ByteLevel": (_decode_byte_level, core.KEYS["ByteLevel"]),
    "Replace": (_decode_replace, "pattern:dict content:str"),
    "ByteFallback": (_decode_byte_fallback, ""),
    "Metaspace": (_decode_metaspace, _METASPACE),
    "BPEDecoder": (_decode_bpe, "suffix:str"),
    "Strip": (_decode_strip, "content:str start:int stop:int"),
    "Fuse": (_fuse, ""),
}


class Decoder:
    """A chain of decoders.

    Attributes:
        looks_ahead: whether the last token is decoded differently.
        has_bytes: whether tokens such as <0xE4> are bytes.
    """

    def __init__(self, data: core.JsonReader) -> None:
        steps = list(core.steps(data, "decoder"))
        self._steps: list[tuple[str, TokenDecoder]] = []
        self._strip: tuple[bytes, int] | None = None  # from the start of the whole
        self._finally: TokenDecoder | None = None
        self._joiner = b"" if steps else b" "
        self.looks_ahead = False
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
                raise step.error(f"{core.shorten(kind)} is not supported after Fuse", "type")
            else:
                self._steps.append((kind, _made(step, _DECODERS)))
                self.looks_ahead = self.looks_ahead or kind == "BPEDecoder"
        self.has_bytes = any(kind == "ByteFallback" for kind, _ in self._steps)
        growth.check([(step, False) for step in steps], "decoders")

    def pieces(self, tokens: Iterable[Spelling | None], unknown: bytes) -> Iterator[bytes]:
        """Decode tokens as they come; None is an unknown one."""
        places = _with_places(tokens) if self.looks_ahead else _with_first(tokens)
        pieces = (
            (b"" if place.first else self._joiner) + self._decode(token, place, unknown)
            for token, place in places
        )
        stripped = self._stripped(pieces) if self._strip else pieces
        last = self._finally
        return (
            stripped if last is None else (last(piece, Place(False, False)) for piece in stripped)
        )

    def _decode(self, token: Spelling | None, place: Place, unknown: bytes) -> bytes:
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

    def start(self, tokens: Iterable[Spelling]) -> tuple[bytes, int]:
        """Decode the tokens whose text depends on being first; also return how many there are."""
        content, left = self._strip or (b" ", 0)
        done: list[bytes] = []
        for token in tokens:
            if done and not left:
                break
            piece = (self._joiner if done else b"") + self._decode(
                token, Place(not done, False), b""
            )
            rest = _strip_start(piece, content, left)
            left = left - (len(piece) - len(rest)) // len(content) if not rest else 0
            done.append(self._finally(rest, Place(False, False)) if self._finally else rest)
        return b"".join(done), len(done)

    def later(self, token: Spelling, last: bool = False) -> bytes:
        """Return the text of a token after the start, where nothing is stripped."""
        piece = self._joiner + self._decode(token, Place(False, last), b"")
        return self._finally(piece, Place(False, False)) if self._finally else piece


def _with_first(tokens: Iterable[Spelling | None]) -> Iterator[tuple[Spelling | None, Place]]:
    first = True
    for token in tokens:
        yield token, Place(first, False)
        first = False


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

_MODEL_OPTIONS = (
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
)


_Kinds = dict[str, tuple[Callable[[core.JsonReader], Any], str]]


def _made(step: core.JsonReader, known: _Kinds) -> Any:
    """Make the object that runs a component."""
    return _kind(step, known)[0](step)


def _kind(step: core.JsonReader, known: _Kinds) -> tuple[Callable[[core.JsonReader], Any], str]:
    kind = step.get("type", str)
    if kind not in known:
        names = ", ".join(sorted(known.keys() - {"SentencePiece"}))
        raise step.error(f"{core.shorten(kind)} is not supported, only {names}", "type")
    return known[kind]


def read_components(
    data: core.JsonReader, ids: Mapping[str, int], special: Container[str]
) -> dict[str, Any]:
    """Return the components of a tokenizer.json; raise for one that can't be run here.

    Args:
        data: the file.
        ids: its tokens, without added ones.
        special: tokens that never match a character of text.

    Returns:
        Fields of a `Definition`: vocab, split_pattern, normalizer and components.
    """
    known: dict[str, _Kinds] = {
        **{"normalizer": _NORMALIZERS, "pre_tokenizer": _PRE_TOKENIZERS, "decoder": _DECODERS}
    }
    for field, kinds in known.items():
        for step in core.steps(data, field):
            core.check_keys(step, "type:str " + _kind(step, kinds)[1])
    components = {field: data.data.get(field) for field in known}
    model = data.child("model")
    options: dict[str, Any] = {}
    for option in _MODEL_OPTIONS if model else ():
        kind = str if option.endswith(("token", "prefix", "suffix")) else bool
        options[option] = model and model.get(option, kind, None, default=None)
    unknown = options.get("unk_token")
    if model and unknown is not None and unknown not in model.data["vocab"]:
        raise model.error(f"{core.shorten(unknown)} is not in model.vocab", "unk_token")
    components["model"] = options
    if core.has_surrogate(json.dumps(components, ensure_ascii=False)):
        raise data.error("a component contains a lone surrogate, which isn't a character")
    _Chain(core.JsonReader(components, data.path, data.field))
    vocab = {t.encode(): i for t, i in ids.items() if len(t) > 1 or t not in special}
    return {"vocab": vocab, "split_pattern": "", "normalizer": None, "components": components}


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


def writable(components: dict[str, Any]) -> dict[str, Any]:
    """Return components in the form of tokenizer.json.

    Raises:
        ValueError: one is this library's own.
    """
    if components["model"].get("all_merges"):
        raise ValueError(
            "tokenizer.json cannot hold this tokenizer: its merges make tokens that have no id, "
            "and tokenizer.json can list only merges of tokens with ids; keep vocab.json and "
            "merges.txt"
        )
    marker = components["model"].get("end_of_word_marker")
    if marker:
        raise ValueError(
            f"tokenizer.json cannot hold this tokenizer: each word ends in {marker!r} as a symbol "
            "of its own, and tokenizer.json has it as a suffix of the last character only; keep "
            "vocab.json and merges.txt"
        )
    chain = core.JsonReader(components, Path())
    if any(step.data.get("type") == "SentencePiece" for step in core.steps(chain, "normalizer")):
        raise ValueError(
            "tokenizer.json cannot hold this SentencePiece normalization exactly (a character "
            "map, user-defined symbols, or white space as a suffix); keep the .model file"
        )
    return components


def _only_cuts(step: core.JsonReader) -> bool:
    """Return True if a pre-tokenizer leaves every character as it is."""
    kinds = ("Split", "Punctuation", "Digits")
    return step.data["type"] in kinds and step.data.get("behavior") != "Removed"


_MAX_EFFORT = 4_000_000  # characters of added tokens, times normalizers; takes about 2 s


class _Chain:
    """The components of a tokenizer, compiled."""

    def __init__(self, data: core.JsonReader) -> None:
        normalizers = list(core.steps(data, "normalizer"))
        pre_tokenizers = list(core.steps(data, "pre_tokenizer"))
        self._normalizers = [_made(step, _NORMALIZERS) for step in normalizers]
        self._pre_tokenizers = [_made(step, _PRE_TOKENIZERS) for step in pre_tokenizers]
        self.decoder = Decoder(data)
        kinds = {step.data["type"] for step in normalizers}
        steps = [(step, _may_insert(step)) for step in (*normalizers, *pre_tokenizers)]
        growth.check(steps, "normalizers and pre-tokenizers")
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
        self._mark = first.marked if isinstance(first, _Metaspace) else None
        self._only_cuts = all(map(_only_cuts, pre_tokenizers[1 if self._mark else 0 :]))
        self.mark = ""  # the mark that a Metaspace puts before the very first text only
        for i, step in enumerate(pre_tokenizers):
            if step.data["type"] == "Metaspace" and _prepend_scheme(step) == "first":
                if i or any(step.data["type"] == "Strip" for step in normalizers):
                    raise step.error(
                        "'first' is not supported after Strip or other pre-tokenizers",
                        "prepend_scheme",
                    )
                self.mark = step.get("replacement", str)

    def normalize(self, text: Text) -> Text:
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
        """Return the form of an added token in normalized text.

        HuggingFace normalizes it, too; SentencePiece takes its symbols as written.
        """
        return content if self._finds_as_written else self.normalize(Text(content)).chars

    def pre_tokenize(self, text: Text) -> Iterable[Text]:
        """Run the pre-tokenizers."""
        pieces: Iterable[Text] = [text]
        for step in self._pre_tokenizers:
            pieces = [part for piece in pieces for part in step(piece) if part.chars]
        return pieces

    def scanned(self) -> component_twin.Scanned | None:
        """Return the one pre-tokenizer, if the engine can make its cuts."""
        if len(self._pre_tokenizers) != 1:
            return None
        [step] = self._pre_tokenizers
        if isinstance(step, _Metaspace) and step.cuts_before_space:
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

_ASCII = 97
ORDINARY = [  # printable ASCII, tab and newline; then characters whose bytes are all of UTF-8's
    *map(chr, [*range(0x20, 0x7F), 0x09, 0x0A]),
    *map(chr, [*range(0xC0, 0x100), *range(0x80, 0x800, 0x40)]),
    *map(chr, [0x900, *range(0x1000, 0xE000, 0x1000), 0xFF01, 0x1F642]),
]


class _ComponentPipeline(core.Pipeline):
    """Prepares text with a chain of components instead of a normal form."""

    def __init__(self, chain: _Chain, tokens: Iterable[AddedToken]) -> None:
        self._chain = chain
        tokens = list(tokens)
        super().__init__(core.splitter(core.UNCUT_PATTERN), None, False, tokens)
        self.normalizes = True
        normalized = (token for token in tokens if token.normalized)
        self.normalized = core.TokenFinder(normalized, chain.as_found)

    def normalize(self, text: str) -> str:
        return self._chain.normalize(Text(text)).chars

    def align(self, text: str) -> tuple[str, Spans]:
        """Normalize a text, with the span of each character."""
        chars, spans = self._chain.normalize(Text(text, Spans.whole(len(text))))
        return chars, cast("Spans", spans)

    def prefixed(self, text: str, first: bool) -> str:
        mark = self._chain.mark
        return mark + text if mark and first and not text.startswith((" ", mark)) else text

    def last_border(self, before: str, chunk: str) -> int | None:
        return None  # a chain may depend on the whole text, so nothing is final before its end


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


class ComponentEncoder(core.Encoder):
    """A definition with components, ready to run."""

    def __init__(self, definition: Definition) -> None:
        components = definition.components or {}
        self._chain = chain = _Chain(core.JsonReader(components, Path()))
        options = components.get("model", {})
        self._prefix = options.get("continuing_subword_prefix") or ""
        self._suffix = options.get("end_of_word_suffix") or ""
        self._marker = options.get("end_of_word_marker")  # a symbol; this library's own
        if chain.decoder.has_bytes:
            self.replacing = ONE_BY_ONE
        self._fuse_unk = bool(options.get("fuse_unk"))
        self._byte_fallback = bool(options.get("byte_fallback"))
        self._definition = definition
        self._vocab = {token.decode(): id_ for token, id_ in definition.vocab.items()}
        written = {id_: token for token, id_ in self._vocab.items()}
        skip = len(self._prefix)
        self.tokens = {id_: token.encode() for id_, token in written.items()}
        merges = definition.merges
        self._unlisted: dict[int, str] = {}
        if options.get("all_merges"):  # this library's own: also those of tokens without an id
            merges = self._number_unlisted(options["all_merges"])
            written |= self._unlisted
        self._ranks = core.rank_pairs(merges)
        self._merged = [
            self._vocab[written[left] + written[right][skip:]] for left, right in merges
        ]
        chain.check_tokens(definition.added)
        self._written = written
        self._whole = definition.vocab if definition.ignore_merges else {}
        added = {token.content: token.id for token in definition.added}
        for token in definition.added:  # one found in normalized text decodes to its form there
            found = self._chain.as_found(token.content) if token.normalized else token.content
            self.tokens[token.id or 0] = found.encode()
        in_bytes = self._chain.normalizes_to_bytes
        self._as_text = {
            token.id for token in definition.added if not (token.normalized and in_bytes)
        }
        unknown = options.get("unk_token")
        self._end = [(self._vocab[self._marker], 0)] if self._marker else []
        self._unk_id = None
        if unknown is not None:
            self._unk_id = self._vocab.get(unknown, added.get(unknown))
        self._bytes = [self._vocab.get(f"<0x{byte:02X}>") for byte in range(256)]
        self.model = model = self._model()
        self.free_cut = free_cut = component_twin.free_cut(model) if model else None
        self._free_cut = free_cut.pattern if free_cut else None
        self._cache = core.PretokenCache(self._encode_pretoken)
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

    def _number_unlisted(self, merges: Iterable[tuple[str, str]]) -> list[tuple[int, int]]:
        """Number the tokens of merges that have no id, after all others; return the merges."""
        added = (token.id or 0 for token in self._definition.added)
        free = itertools.count(max([*self._vocab.values(), *added], default=-1) + 1)
        for left, right in merges:
            for token in (left, right, left + right):
                if token not in self._vocab:
                    self._vocab[token] = number = next(free)
                    self._unlisted[number] = token
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

    def pipeline(self, tokens: Iterable[AddedToken]) -> core.Pipeline:
        """Return the pipeline that finds these added tokens."""
        return _ComponentPipeline(self._chain, tokens)

    def plain(self, pipeline: core.Pipeline, method: str = "encode_plain") -> None:
        """Leave all text to the pipeline: components change it."""

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

    def _encode_pretoken(self, pretoken: bytes) -> list[int]:
        whole = self._whole.get(pretoken)
        if whole is not None:
            return [whole]
        ids = self._merge([id_ for id_, _ in self._symbols(pretoken.decode())])
        if self._unlisted:
            unknown = cast("int", self._unk_id)
            return [unknown if id_ in self._unlisted else id_ for id_ in ids]
        return ids

    def _symbols(self, pretoken: str) -> list[tuple[int, int]]:
        """Return the (id, number of bytes) that merging starts from.

        Source: tokenizers, models/bpe/model.rs, merge_word; like there, a run of unknown
        characters waits until a known one comes.
        """
        symbols: list[tuple[int, int]] = []
        waiting: list[tuple[int, int]] = []
        last = len(pretoken) - 1
        for i, char in enumerate(pretoken):
            size = len(char.encode())
            written = (self._prefix if i else "") + char + (self._suffix if i == last else "")
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
        return symbols + waiting + self._end

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
        ordinary = ORDINARY if self._chain.is_byte_level else ORDINARY[:_ASCII]
        for char in (char for char in ordinary if char not in found_first):
            for piece in self._chain.cut(self._chain.normalize(Text(char * 3)).chars):
                last = len(piece) - 1
                for i, part in enumerate(piece if piece.encode() not in self._whole else ""):
                    written = (self._prefix if i else "") + part
                    written += self._suffix if i == last else ""
                    has_id = self._vocab.get(written) in self.tokens
                    if not has_id and not self._in_bytes(written):
                        missing[written] = None
        if not missing:
            return ""
        shown = ", ".join(map(self._shown, itertools.islice(missing, 10)))
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        fate = "is dropped"
        if self._unk_id is not None:
            fate = f"becomes {self.tokens[self._unk_id].decode()!r}"
        return f"no token for these characters of ordinary text: {shown}{more}; each {fate}"

    def _shown(self, written: str) -> str:
        """Show a symbol that has no token."""
        raw = core.from_printable(written) if self._chain.is_byte_level else None
        if raw is None:
            return repr(written)
        return repr(raw.decode()) if raw.isascii() else "byte 0x" + raw.hex().upper()

    def encode_aligned(
        self, text: str, spans: Spans, known: list[int] | None = None
    ) -> tuple[list[int], list[Span]]:
        """Encode as `encode` does, and return the places of tokens; `known` are ids it gave."""
        if known is None:
            core.utf8_length(text)  # raises for a lone surrogate, with its place
        if self._engine and not self._by_characters:
            return encode(self._engine, [(text, spans)], known)
        if self._by_characters:
            ids = known or self._by_characters.encode(text)
            whole = self._chain.uncut(Text(text, spans))
            places = self._by_characters.places([whole], ids, joined=True) if whole else None
            if places is None:
                pieces = self._chain.pre_tokenize(Text(text, spans))
                places = self._by_characters.places(pieces, ids)
            if places is not None:
                return ids, places
        ids = []
        offsets: list[Span] = []
        for piece in self._chain.pre_tokenize(Text(text, spans)):
            new = list(self._cache[piece.chars])
            ids += new
            offsets += self._places(piece, new)
        return ids, offsets

    def _places(self, piece: Text, ids: list[int]) -> Iterator[Span]:
        """Return the places of one pre-token's tokens."""
        spans = piece.spans or Spans.whole(0)
        char_of_byte = [i for i, char in enumerate(piece.chars) for _ in char.encode()]
        if len(ids) == 1 and self._whole.get(piece.chars.encode()) == ids[0]:
            yield spans[0][0], spans[-1][1]
            return
        found = self._symbols(piece.chars)
        if self._unlisted:  # before they became the unknown token
            ids = self._merge([id_ for id_, _ in found])
        symbols = iter(found)
        start = 0
        for id_ in ids:
            part, size = next(symbols)
            written = self._written.get(part, "")
            while part != id_ and written != self._written[id_]:
                part, more = next(symbols)
                written += self._written[part][len(self._prefix) :]
                size += more
            if not size:  # the marker at the end of a word
                yield spans[-1][1], spans[-1][1]
                return
            end = start + size  # NOTE: bytes of a suffix may have become tokens too
            first, last = (char_of_byte[min(at, len(char_of_byte) - 1)] for at in (start, end - 1))
            yield spans[first][0], spans[last][1]
            start = end

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

    def _spelling(self, id_: int) -> Spelling:
        return self.tokens[id_], id_ in self._as_text

    def decode_pieces(self, ids: Iterable[int], errors: str) -> Iterator[bytes]:
        """Decode as `decode` does, piece by piece, as the ids arrive."""
        unknown = "\ufffd".encode() if errors == "replace" else b""
        return self._chain.decoder.pieces(self._known(ids, errors), unknown)

    def _known(self, ids: Iterable[int], errors: str) -> Iterator[Spelling | None]:
        for id_ in ids:
            if id_ in self.tokens:
                yield self._spelling(id_)
            elif errors == "strict":
                core.decode_ids([id_], self.tokens, errors)  # raises
            elif errors == "replace":
                yield None
