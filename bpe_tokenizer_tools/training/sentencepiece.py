r"""Training BPE as SentencePiece does: over characters, with "▁" for a space.

Text is normalized, "▁" goes in front of it, and each space becomes "▁".  It is cut
into words before each "▁"; a run of line ends is a word of its own:

    "a cat\nb"   ->   ▁a   ▁cat   \n   b

The base tokens are characters, not bytes, and only the frequent ones: those that
make up `character_coverage` of the corpus.  No merge joins anything across another
character.  Such a character becomes its bytes (byte fallback) or the unknown token.

The result is a tokenizer.json in Llama 2's arrangement, plus the step that cuts words.
HuggingFace's trainer learns the same merges with these components.  The order of ids:

    <unk> <s> </s>       0, 1 and 2, unless `special_tokens` says otherwise
    <0x00> ... <0xFF>    with byte fallback
    characters           by code point
    merged tokens        in the order learned
    special tokens       those without an id

Sources: google/sentencepiece, src/trainer_interface.cc, for which characters are kept;
huggingface/tokenizers, models/bpe/trainer.rs, for the order of ids and for ties.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from bpe_tokenizer import (
    GPT2_SPLIT_PATTERN,
    AddedToken,
    BPETokenizer,
    PretokenCounts,
    TrainingReport,
)
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns.known import words_from

_SPACE = "\u2581"  # how SentencePiece writes a space
_COVERAGE = 0.9995  # SentencePiece's default
_UNKNOWN = "<unk>"
_SPECIAL = {_UNKNOWN: 0, "<s>": 1, "</s>": 2}
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_FEW = len(core.ALPHABET)  # characters that one byte each can stand for


def train(tokenizer: BPETokenizer, given: Mapping[str, Any]) -> BPETokenizer:
    """Train with the arguments of `BPETokenizer.train`; return the tokenizer."""
    if (given["corpus"] is None) == (given["counts"] is None):
        raise TypeError("train() takes a corpus or counts=..., one of the two")
    surround = given["surround"]
    rule = core.frozen(tokenizer).definition.template if surround is None else str(surround)
    names = ["corpus", "vocab_size", "min_frequency", "special_tokens", "verbose", "counts"]
    names += ["max_token_length", "num_workers", "text_field", "ties"]
    asked = Style(given["style"], given["byte_fallback"], given["character_coverage"])
    asked.train(tokenizer, **{name: given[name] for name in names}, surround=rule)
    return tokenizer


class Style(NamedTuple):
    """The arguments of `BPETokenizer.train`."""

    name: str
    byte_fallback: bool | None
    character_coverage: float | None

    def train(
        self,
        tokenizer: BPETokenizer,
        corpus: Any,
        vocab_size: int,
        min_frequency: int,
        special_tokens: core.SpecialTokens | None,
        verbose: bool,
        counts: Mapping[bytes, int] | None,
        max_token_length: int | None,
        num_workers: int | None,
        text_field: str,
        ties: str,
        surround: Any,
    ) -> None:
        """Train a tokenizer; see `BPETokenizer.train`."""
        self._check(counts)
        if ties != "huggingface":
            raise ValueError(f"ties={ties!r} works only with style='byte-level'; leave it out")
        old = core.frozen(tokenizer)
        form = _normalizer(old)
        base = [] if self.byte_fallback is False else _BYTES
        empty = dataclasses.replace(
            core.new_definition("", None, surround),
            vocab={},
            components=_components(form, bool(base)),
        )
        named = core.as_added_tokens(special_tokens)
        tokens = _with_defaults(old, named)
        contents = [token.content for token in core.with_added_tokens(empty, tokens).added]
        for content in {_SPACE, *base}.intersection(contents):
            raise ValueError(f"special token {content!r}: this is already a token")
        smallest = len(contents) + len(base) + 1
        core.check_sizes(vocab_size, smallest, min_frequency, max_token_length)

        started = time.perf_counter()
        words = _count_words(corpus, form, contents, num_workers, text_field, verbose)
        counted = time.perf_counter()
        alphabet = _alphabet(words, self.character_coverage or _COVERAGE, contents)
        base = [*base, *alphabet]
        room = vocab_size - len(contents) - len(base)
        if room < 0:
            raise ValueError(
                f"vocab_size is {vocab_size}, but must be at least {vocab_size - room}: the corpus "
                f"has {len(alphabet)} characters to keep; raise vocab_size or lower "
                "character_coverage"
            )
        learned = _learn(words, alphabet, room, min_frequency, max_token_length, contents, verbose)
        learned = learned._replace(tokens=[*map(str.encode, base), *learned.tokens])
        core.adopt(tokenizer, learned, empty, tokens, [*map(AddedToken, _SPECIAL), *named], old)
        tokenizer.training_report = TrainingReport(
            documents=words.documents,
            bytes_read=words.bytes_read,
            pretokens=sum(words.values()),
            distinct_pretokens=len(words),
            merges=len(learned.merges),
            vocab_size=tokenizer.vocab_size,
            counting_seconds=counted - started,
            learning_seconds=time.perf_counter() - counted,
            stopped=learned.stopped,
        )
        if verbose:
            print(f"Trained: {tokenizer.training_report}", file=sys.stderr)

    def _check(self, counts: Mapping[bytes, int] | None) -> None:
        """Raise unless this is style="sentencepiece" with valid options."""
        if self.name not in ("byte-level", "sentencepiece"):
            known = "'byte-level', 'sentencepiece' or 'words'"
            raise ValueError(f"style must be {known}, got {self.name!r}")
        if self.name == "byte-level":
            given = "character_coverage" if self.byte_fallback is None else "byte_fallback"
            raise ValueError(f"{given} works only with style='sentencepiece'; leave it out")
        if counts is not None:
            raise ValueError(
                "counts are of the pre-tokens of a split pattern, and style='sentencepiece' cuts "
                "text in another way; pass the corpus"
            )
        fallback, coverage = self.byte_fallback, self.character_coverage
        if fallback is not None and type(fallback) is not bool:
            raise TypeError(f"byte_fallback must be True or False, got {core.shorten(fallback)}")
        if coverage is not None and type(coverage) not in (int, float):
            raise TypeError(f"character_coverage must be a number, got {core.shorten(coverage)}")
        if coverage is not None and not 0 < coverage <= 1:
            raise ValueError(
                f"character_coverage must be greater than 0 and at most 1, got {coverage}; 1.0 "
                "gives every character of the corpus a token"
            )


# -- Components ---------------------------------------------------------------


def _components(form: str | None, byte_fallback: bool) -> dict[str, Any]:
    """Return the components of a tokenizer.json: Llama 2's, and the step that cuts words."""
    prepend = {"type": "Prepend", "prepend": _SPACE}
    split = {"pattern": {"Regex": words_from(_SPACE)}, "behavior": "Isolated", "invert": False}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    forms = [{"type": form}] if form else []
    fallback = [{"type": "ByteFallback"}] if byte_fallback else []
    decoders = [_replace(_SPACE, " "), *fallback, {"type": "Fuse"}, strip]
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*forms, prepend, _replace(" ", _SPACE)]},
        "pre_tokenizer": {"type": "Split", **split},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "unk_token": _UNKNOWN,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": byte_fallback,
        },
    }


def _replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def _normalizer(tokenizer: BPETokenizer) -> str | None:
    """Return the Unicode form that a tokenizer normalizes to, or refuse to train it."""
    definition = tokenizer.definition
    if definition.components is None:
        if definition.split_pattern != GPT2_SPLIT_PATTERN:
            raise ValueError(
                "style='sentencepiece' cuts text before spaces, not by a split pattern; make the "
                "tokenizer without split_pattern"
            )
        return definition.normalizer
    for form in (None, *core.NORMALIZERS):  # it may have been trained in this style before
        if definition.components in (_components(form, True), _components(form, False)):
            return form
    raise ValueError(
        "this tokenizer was loaded with components of its own and cannot be trained again; make "
        "a new one with BPETokenizer(normalizer=...)"
    )


def _with_defaults(tokenizer: BPETokenizer, named: list[AddedToken]) -> list[AddedToken]:
    """List the special tokens: the default ones, the tokenizer's, and the given ones."""
    tokens = {content: AddedToken(content, id_) for content, id_ in _SPECIAL.items()}
    tokens.update((token.content, token) for token in tokenizer.definition.added)
    for token in named:
        default = _SPECIAL.get(token.content)
        tokens[token.content] = token
        if token.id is None and default is not None:
            tokens[token.content] = dataclasses.replace(token, id=default)
    return list(tokens.values())


# -- Counting -----------------------------------------------------------------


class _Prepared(core.Pipeline):
    """Prepares text for counting: each piece between two special tokens begins with "▁"."""

    def prefixed(self, text: str, first: bool) -> str:
        return _SPACE + text


def _count_words(
    corpus: Any,
    form: str | None,
    special_tokens: Iterable[str],
    num_workers: int | None,
    text_field: str,
    verbose: bool,
) -> PretokenCounts:
    """Count the words of a corpus, in UTF-8; see `count_pretokens`."""
    core.check_size("num_workers", num_workers, 1)
    splitter = core.splitter(words_from(_SPACE + " "))
    pipeline = _Prepared(splitter, form, tokens=map(AddedToken, special_tokens))
    with core.progress("counting", "B", None, verbose) as advance:
        counter = core.engine().counter(pipeline, num_workers or core.cores(), advance)
        counter.count(core.documents(corpus, text_field))
    words = PretokenCounts((), splitter.pattern, form, counter.documents, counter.bytes_read)
    space = _SPACE.encode()
    for word, count in counter.take().items():
        word = word.replace(b" ", space)
        words[word] = words.get(word, 0) + count
    if not words:
        raise ValueError(core.EMPTY)
    return words


def _alphabet(words: Mapping[bytes, int], coverage: float, contents: Iterable[str]) -> list[str]:
    """Return the characters that get tokens, by code point.

    The most frequent characters that make up the coverage, of equals the smaller code point
    first; "▁" always, and none that is a special token.
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for char in word.decode():
            counts[char] += count
    total, covered, kept = counts.total(), 0, {_SPACE}
    for char, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered / total >= coverage:
            break
        covered += count
        kept.add(char)
    return sorted(kept.difference(contents))


# -- Learning -----------------------------------------------------------------


# How text is encoded for a learner: the bytes per character, and how to write and read them.
_Symbols = tuple[int, Callable[[str], bytes], Callable[[bytes], str]]


def _symbols(alphabet: list[str]) -> _Symbols:
    """Write characters in one byte each, for the engine's own learner, if they are few enough."""
    if len(alphabet) > _FEW:
        return 4, lambda text: text.encode("utf-32-le"), lambda raw: raw.decode("utf-32-le")
    there = dict(zip(map(ord, alphabet), map(chr, core.ALPHABET)))  # in the order of ties
    back = dict(zip(core.ALPHABET, alphabet))
    return (
        1,
        lambda text: text.translate(there).encode("latin-1"),
        lambda raw: raw.decode("latin-1").translate(back),
    )


class _WideLearner(core.MergeLearner):
    """Learns merges over any number of characters, of four bytes each."""

    def __init__(
        self, parts: Mapping[bytes, int], alphabet: list[bytes], max_token_length: int | None
    ) -> None:
        super().__init__({}, max_token_length and 4 * max_token_length)
        self._token = alphabet
        self._number = {token: number for number, token in enumerate(alphabet)}
        numbers = {ord(char.decode("utf-32-le")): number for char, number in self._number.items()}
        self._words = [part.decode("utf-32-le").translate(numbers) for part in parts]
        self._freqs = list(parts.values())


def _learn(
    words: Mapping[bytes, int],
    alphabet: list[str],
    n_tokens: int,
    min_frequency: int,
    max_token_length: int | None,
    contents: Iterable[str],
    verbose: bool,
) -> core.Learned:
    """Learn merges between characters of the alphabet; tokens are in UTF-8."""
    size, write, read = _symbols(alphabet)
    parts = {write(part): count for part, count in _without_rare(words, alphabet).items()}
    known = frozenset(alphabet)
    forbidden = frozenset(write(text) for text in (*contents, *_BYTES) if known.issuperset(text))
    with core.progress("merging", "merge", n_tokens, verbose) as advance:
        learner = (
            core.engine().learner(parts, max_token_length)
            if size == 1
            else _WideLearner(parts, list(map(write, alphabet)), max_token_length)
        )
        learned = learner.learn(n_tokens, min_frequency, forbidden, advance)
    merges = [(read(left).encode(), read(right).encode()) for left, right in learned.merges]
    return core.Learned(merges, [read(token).encode() for token in learned.tokens], learned.stopped)


def _without_rare(words: Mapping[bytes, int], alphabet: list[str]) -> dict[str, int]:
    """Cut words at the characters that get no token, and leave those out."""
    rare = re.compile(f"[^{re.escape(''.join(alphabet))}]+")
    parts: Counter[str] = Counter()
    for word, count in words.items():
        for part in filter(None, rare.split(word.decode())):
            parts[part] += count
    return parts
