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

Options change what is learned (`PieceRules`), how text is normalized (`sentencepiece_text`), or
both: user-defined symbols are tokens that no merge reaches.

Sources: google/sentencepiece, src/trainer_interface.cc, for which characters are kept;
huggingface/tokenizers, models/bpe/trainer.rs, for the order of ids and for ties.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bpe_tokenizer import (
    GPT2_SPLIT_PATTERN,
    AddedToken,
    BPETokenizer,
    Definition,
    PretokenCounts,
)
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns.known import words_from
from bpe_tokenizer_tools.training import sentencepiece_text as text
from bpe_tokenizer_tools.training.reports import report
from bpe_tokenizer_tools.training.sentencepiece_pieces import PieceRules

_SPACE = text.SPACE
_COVERAGE = 0.9995  # SentencePiece's default
_UNKNOWN = "<unk>"
_SPECIAL = {_UNKNOWN: 0, "<s>": 1, "</s>": 2}
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_FEW = len(core.ALPHABET)  # characters that one byte each can stand for


def train(tokenizer: BPETokenizer, given: Mapping[str, Any]) -> BPETokenizer:
    """Train with the arguments of `BPETokenizer.train`; return the tokenizer."""
    if (given["corpus"] is None) == (given["counts"] is None):
        raise TypeError("train() takes a corpus or counts=..., one of the two")
    check_style(given)
    _Training(tokenizer, given).run()
    return tokenizer


# -- Options ------------------------------------------------------------------

# The options of this style, and the types that each takes.
OPTIONS: dict[str, tuple[type, ...]] = {
    "byte_fallback": (bool,),
    "character_coverage": (int, float),
    "split_digits": (bool,),
    "split_by_unicode_script": (bool,),
    "split_by_number": (bool,),
    "add_dummy_prefix": (bool,),
    "remove_extra_whitespaces": (bool,),
    "user_defined_symbols": (list, tuple),
    "max_sentencepiece_length": (int,),
    "normalization_rule_name": (str,),
}
_EXPECTED = {bool: "True or False", float: "a number", tuple: "a list of texts", int: "an int"}


def check_style(given: Mapping[str, Any]) -> None:
    """Raise unless this is style="sentencepiece" with options that are possible."""
    style, ties, options = given["style"], given["ties"], {name: given[name] for name in OPTIONS}
    if style not in ("byte-level", "sentencepiece"):
        known = "'byte-level', 'sentencepiece' or 'words'"
        raise ValueError(f"style must be {known}, got {style!r}")
    if style == "byte-level":
        name = next(name for name, value in options.items() if value is not None)
        raise ValueError(f"{name} works only with style='sentencepiece'; leave it out")
    if given["counts"] is not None:
        raise ValueError(
            "counts are of the pre-tokens of a split pattern, and style='sentencepiece' cuts "
            "text in another way; pass the corpus"
        )
    if ties != "huggingface":
        raise ValueError(
            f"style='sentencepiece' has its own rule for ties; leave out ties={ties!r}"
        )
    for name, kinds in OPTIONS.items():
        if options[name] is not None and type(options[name]) not in kinds:
            expected = _EXPECTED.get(kinds[-1], "a text")
            raise TypeError(f"{name} must be {expected}, got {core.shorten(options[name])}")
    _check_values(given)


def _check_values(given: Mapping[str, Any]) -> None:
    """Raise for options of the right types with values that make no sense."""
    coverage = given["character_coverage"]
    if coverage is not None and not 0 < coverage <= 1:
        raise ValueError(
            f"character_coverage must be greater than 0 and at most 1, got {coverage}; 1.0 "
            "gives every character of the corpus a token"
        )
    longest = given["max_sentencepiece_length"]
    core.check_size("max_sentencepiece_length", longest, 1)
    if longest is not None and given["max_token_length"] is not None:
        raise ValueError(
            "max_token_length and max_sentencepiece_length both limit the length of tokens; leave "
            "one of them out"
        )
    if given["split_by_number"] and given["split_by_unicode_script"] is None:
        raise ValueError(
            "split_by_number=True needs split_by_unicode_script=True: without it, tokens may mix "
            "letters and digits anyway, as in SentencePiece"
        )
    for symbol in given["user_defined_symbols"] or ():
        if not isinstance(symbol, str) or not symbol:
            problem = "isn't a text of at least one character"
            raise TypeError(f"user_defined_symbols: {core.shorten(symbol)} {problem}")
    rule = given["normalization_rule_name"]
    if rule is not None and rule not in text.RULES:
        near = difflib.get_close_matches(rule, text.RULES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        known = ", ".join(text.RULES)
        raise ValueError(f"normalization_rule_name must be one of {known}, got {rule!r}{hint}")


class Layout(NamedTuple):
    """What decides the components of a tokenizer of this style."""

    form: str | None = None  # of `text.FORMS`
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = False
    byte_fallback: bool = True
    symbols: tuple[str, ...] = ()  # user-defined ones

    def components(self) -> dict[str, Any]:
        """Return the components of a tokenizer.json: Llama 2's, and the step that cuts words."""
        split = {"pattern": {"Regex": words_from(_SPACE)}, "behavior": "Isolated", "invert": False}
        strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        fallback = [{"type": "ByteFallback"}] if self.byte_fallback else []
        prefix = [strip] if self.add_dummy_prefix else []
        decoders = [text.replace("String", _SPACE, " "), *fallback, {"type": "Fuse"}, *prefix]
        how = self.form, self.add_dummy_prefix, self.remove_extra_whitespaces, self.symbols
        # tokenizers fails where a normalizer inserts a prefix by a pattern and then text is cut.
        # Merges stay within words anyway; cutting makes them faster.
        cuts = not (self.symbols and self.add_dummy_prefix)
        return {
            "normalizer": {"type": "Sequence", "normalizers": text.steps(*how)},
            "pre_tokenizer": {"type": "Split", **split} if cuts else None,
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {
                "unk_token": _UNKNOWN,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": True,
                "byte_fallback": self.byte_fallback,
            },
        }


def layout_of(definition: Definition) -> Layout | None:
    """Return the layout of a tokenizer that was trained in this style; None for others."""
    symbols = tuple(token.content for token in definition.added if _is_symbol(token))
    some = (True, False)
    for values in itertools.product(text.FORMS, some, some, some):
        layout = Layout(*values, symbols)
        if definition.components == layout.components():
            return layout
    return None


def _is_symbol(token: AddedToken) -> bool:
    """Return whether an added token is a user-defined symbol: one found in normalized text."""
    return token.normalized and not token.special


def _layout(old: BPETokenizer, given: Mapping[str, Any]) -> Layout:
    """Return the layout of what is trained: that of the tokenizer, changed by what is given."""
    definition = old.definition
    if definition.components is None:
        if definition.split_pattern != GPT2_SPLIT_PATTERN:
            raise ValueError(
                "style='sentencepiece' cuts text before spaces, not by a split pattern; make the "
                "tokenizer without split_pattern"
            )
        layout: Layout | None = Layout(definition.normalizer)
    else:
        layout = layout_of(definition)  # it may have been trained in this style before
    if layout is None:
        raise ValueError(
            "this tokenizer was loaded with components of its own and cannot be trained again; "
            "make a new one with BPETokenizer(normalizer=...)"
        )
    names = ("add_dummy_prefix", "remove_extra_whitespaces")
    changed = {name: given[name] for name in names if given[name] is not None}
    form = text.form_of(given["normalization_rule_name"], layout.form)
    fallback = given["byte_fallback"] is not False
    symbols = dict.fromkeys([*layout.symbols, *(given["user_defined_symbols"] or ())])
    layout = layout._replace(form=form, byte_fallback=fallback, symbols=tuple(symbols), **changed)
    _check_symbols(layout, given["user_defined_symbols"] or ())
    return layout


def _check_symbols(layout: Layout, given: Sequence[Any]) -> None:
    """Raise for user-defined symbols that couldn't be found in normalized text."""
    normalize = text.normalizer(layout.form)
    for symbol in given:
        named = f"user_defined_symbols: {core.shorten(symbol)}"
        core.utf8_length(symbol)
        if given.count(symbol) > 1:
            raise ValueError(f"{named} is listed twice")
        if " " in symbol or _SPACE in symbol:
            raise ValueError(f"{named} has a space, or {_SPACE} for one; symbols have none")
        if (new := normalize(symbol)) != symbol:
            raise ValueError(
                f"{named} becomes {core.shorten(new)} when text is normalized, so it would never "
                "be found; list it in that form"
            )


# -- Training -----------------------------------------------------------------


class _Training:
    """One call of `BPETokenizer.train`."""

    def __init__(self, tokenizer: BPETokenizer, given: Mapping[str, Any]) -> None:
        self._tokenizer, self._given = tokenizer, given
        self._old = core.frozen(tokenizer)
        self._verbose: bool = given["verbose"]
        surround = given["surround"]
        rule = self._old.definition.template if surround is None else str(surround)
        self._layout = _layout(self._old, given)
        self._empty = dataclasses.replace(
            core.new_definition("", None, rule), vocab={}, components=self._layout.components()
        )
        self._base = _BYTES if self._layout.byte_fallback else []
        self._named = core.as_added_tokens(given["special_tokens"])
        self._tokens = _with_symbols(_with_defaults(self._old, self._named), self._layout.symbols)
        added = core.with_added_tokens(self._empty, self._tokens).added
        self._contents = [token.content for token in added]
        for content in {_SPACE, *self._base}.intersection(self._contents):
            raise ValueError(f"special token {content!r}: this is already a token")
        smallest = len(self._contents) + len(self._base) + 1
        sizes = given["vocab_size"], smallest, given["min_frequency"], given["max_token_length"]
        core.check_sizes(*sizes)

    def run(self) -> None:
        """Count words, learn merges, and give the tokenizer the result."""
        started = time.perf_counter()
        words = self._count_words()
        counted = time.perf_counter()
        coverage = self._given["character_coverage"] or _COVERAGE
        alphabet = _alphabet(words, coverage, self._contents)
        base = [*self._base, *alphabet]
        room = self._given["vocab_size"] - len(self._contents) - len(base)
        if room < 0:
            smallest = self._given["vocab_size"] - room
            raise ValueError(
                f"vocab_size is {self._given['vocab_size']}, but must be at least {smallest}: the "
                f"corpus has {len(alphabet)} characters to keep; raise vocab_size or lower "
                "character_coverage"
            )
        learned = self._learn(words, alphabet, room)
        learned = learned._replace(tokens=[*map(str.encode, base), *learned.tokens])
        named = [*map(AddedToken, _SPECIAL), *self._named]
        tokenizer = self._tokenizer
        core.adopt(tokenizer, learned, self._empty, self._tokens, named, self._old)
        report(tokenizer, words, words, learned, started, counted, self._verbose)

    def _count_words(self) -> PretokenCounts:
        """Count the words of the corpus, in UTF-8; see `count_pretokens`."""
        workers, layout = self._given["num_workers"], self._layout
        core.check_size("num_workers", workers, 1)
        splitter = core.splitter(words_from(_SPACE + " "))
        tokens = [
            AddedToken(content, normalized=content in layout.symbols) for content in self._contents
        ]
        prefix = _SPACE if layout.add_dummy_prefix else ""
        pipeline = text.Prepared(
            splitter, layout.form, tokens, prefix, layout.remove_extra_whitespaces
        )
        with core.progress("counting", "B", None, self._verbose) as advance:
            counter = core.engine().counter(pipeline, workers or core.cores(), advance)
            counter.count(core.documents(self._given["corpus"], self._given["text_field"]))
        read = counter.documents, counter.bytes_read
        words = PretokenCounts((), splitter.pattern, layout.form, *read)
        for word, count in counter.take().items():
            if word == b" " and layout.remove_extra_whitespaces:
                continue  # one before another space, or at the end
            word = word.replace(b" ", _SPACE.encode())
            words[word] = words.get(word, 0) + count
        if not words:
            raise ValueError(core.EMPTY)
        return words

    def _learn(self, words: Mapping[bytes, int], alphabet: list[str], room: int) -> core.Learned:
        """Learn merges between characters of the alphabet; tokens are in UTF-8."""
        given = self._given
        rules = PieceRules(
            split_digits=bool(given["split_digits"]),
            split_by_unicode_script=bool(given["split_by_unicode_script"]),
            split_by_number=given["split_by_number"] is not False,
        )
        longest = given["max_token_length"]
        if given["max_sentencepiece_length"] is not None:
            longest = given["max_sentencepiece_length"] + 1  # that limit is exclusive
            if longest == 2:
                room = 0  # HuggingFace's rule doesn't look at pairs of characters
        size, write, read = _symbols(alphabet, rules)
        parts: Counter[bytes] = Counter()
        for part, count in _without_rare(words, alphabet).items():
            for piece in rules.parts(part):
                parts[write(piece)] += count
        known = frozenset(alphabet)
        taken = (text for text in (*self._contents, *_BYTES) if known.issuperset(text))
        forbidden: Any = frozenset(map(write, taken))
        if rules.looks_further("".join(alphabet)):
            forbidden = _Forbidden(forbidden, lambda piece: not rules.allows(read(piece)))
        frequency = given["min_frequency"]
        with core.progress("merging", "merge", room, self._verbose) as advance:
            learner = (
                core.engine().learner(parts, longest)
                if size == 1
                else _WideLearner(parts, list(map(write, alphabet)), longest)
            )
            learned = learner.learn(room, frequency, forbidden, advance)
        merges = [(read(left).encode(), read(right).encode()) for left, right in learned.merges]
        tokens = [read(token).encode() for token in learned.tokens]
        return core.Learned(merges, tokens, learned.stopped)


class _Forbidden:
    """The tokens that no merge may make: some, and those that a rule refuses."""

    def __init__(self, tokens: frozenset[bytes], refuses: Callable[[bytes], bool]) -> None:
        self._tokens, self._refuses = tokens, refuses

    def __contains__(self, token: bytes) -> bool:
        return token in self._tokens or self._refuses(token)


# -- Special tokens -----------------------------------------------------------


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


def _with_symbols(tokens: list[AddedToken], symbols: Sequence[str]) -> list[AddedToken]:
    """Add user-defined symbols, with the first ids that are free, as SentencePiece does."""
    contents = {token.content for token in tokens if not _is_symbol(token)}
    for symbol in symbols:
        if symbol in contents:
            raise ValueError(f"user_defined_symbols: {symbol!r} is a special token already")
    contents = {token.content for token in tokens}
    taken = {token.id for token in tokens}
    free = (id_ for id_ in itertools.count() if id_ not in taken)
    new = [
        AddedToken(symbol, next(free), normalized=True, special=False)
        for symbol in symbols
        if symbol not in contents
    ]
    return tokens + new


# -- Counting -----------------------------------------------------------------


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


def _symbols(alphabet: list[str], rules: PieceRules) -> _Symbols:
    """Write characters in one byte each, for the engine's own learner, if that can learn them.

    They must be few enough, and it doesn't look at the characters of a token.
    """
    if len(alphabet) > _FEW or rules.looks_further("".join(alphabet)):
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


def _without_rare(words: Mapping[bytes, int], alphabet: list[str]) -> dict[str, int]:
    """Cut words at the characters that get no token, and leave those out."""
    rare = re.compile(f"[^{re.escape(''.join(alphabet))}]+")
    parts: Counter[str] = Counter()
    for word, count in words.items():
        for part in filter(None, rare.split(word.decode())):
            parts[part] += count
    return parts
