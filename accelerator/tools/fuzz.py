"""Compare the extension with the Python engine on random vocabularies and text, for a while.

    python accelerator/tools/fuzz.py [--seconds N] [--seed S]

The extension is the `_bpe_tokenizer.native` that Python finds.  Where both engines differ, this
prints the seed and the smallest input found that shows it, and exits with 1.  A seed gives the same
inputs in the same order each time; so it does under the sanitizers, which stop at the first bad
access.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import itertools
import json
import operator
import random
import struct
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import hard_patterns
import images

import bpe_tokenizer as core
from _bpe_tokenizer import engine, flat, native
from bpe_tokenizer_tools.formats.ranks import recover_merges
from bpe_tokenizer_tools.formats.tiktoken import _read_plain_ranks
from bpe_tokenizer_tools.patterns.automaton import automaton
from bpe_tokenizer_tools.support import dropout
from bpe_tokenizer_tools.training.superwords import SUPERBPE_PATTERN

core.ACCELERATED = False  # what is not asked of the extension here is done in Python

Merges = list[tuple[bytes, bytes]]
Case = dict[str, Any]

# -- Random text ---------------------------------------------------------------

# What the patterns treat specially, and what could be mistaken for it.
ATOMS = [
    *["'", "'s", "'S", "'ſ", "'ll", "'Re", "'VE", "'t", "'d", "'m", "x's", "don't", "’s"],
    *["\r", "\n", "\r\n", " ", "  ", "\t", "\x0b", "\x85", "\u00a0", "\u2028", "\u3000", "\x1c"],
    *["\u0301", "\u0903", "\u20dd", "ǅ", "ʰ", "ª", "a", "B", "ab", "Ab", "aB", "é", "É", "ß"],
    *["中", "文", "한", "ก", "ﬁ", "𐐀", "𐐨", "\U00020000", "1", "12", "1234", "٣", "²", "Ⅷ", "𝟘"],
    *["/", "//", "!", "?!", "_", "-", "€", "…", "😀", "\0", "l", "e", "v", "r", "s", "T"],
]
# Where short pre-tokens end, keys, vectors, blocks, and what the cache keeps.
SIZES = [1, 2, 3, *(n + d for n in (8, 12, 16, 32, 64, 128, 256) for d in (-1, 0, 1))]
LETTERS = ["a", "ab", "abc", "ab\0", "abé", "aé中", "ab ", "abcdefgh"]
OWN_PATTERNS = [r"\S+|\s+", r"(?s:.)", r"[ab]+|[^ab]+", r"\w+|\W", r"(?s:.{1,20})"]


def part_of_text(chance: random.Random) -> str:
    """Return text of one kind."""
    size = chance.choice(SIZES)
    way = chance.randrange(7)
    if way == 0:
        some = chance.sample(ATOMS, chance.choice([3, 6, len(ATOMS)]))
        return "".join(chance.choices(some, k=size))
    if way == 1:
        return chance.choice(ATOMS) * size
    if way == 2:
        return bytes(chance.choices(range(256), k=size)).decode(errors="replace")
    if way == 3:
        last = chance.choice([0x80, 0x100, 0x800, 0x3000, 0xD800, 0x110000])
        codes = (chance.randrange(last) for _ in range(size))
        return "".join("?" if 0xD800 <= code < 0xE000 else chr(code) for code in codes)
    if way == 4:
        return "\0" * chance.choice([1, 2, 11, 15, 16, 64])
    return "".join(chance.choices(chance.choice(LETTERS), k=size))


def some_text(chance: random.Random) -> str:
    """Return text; now and then a very long pre-token is in it, or a lone surrogate."""
    parts = [part_of_text(chance) for _ in range(chance.choice([0, 1, 1, 2, 3, 9]))]
    if chance.randrange(200) == 0:
        parts.append(chance.choice("ab 中") * chance.randrange(20_000))
    if chance.randrange(30) == 0:
        parts.insert(chance.randrange(len(parts) + 1), chr(chance.randrange(0xD800, 0xE000)))
    return "".join(parts)


def some_texts(chance: random.Random, most: int) -> list[str]:
    """Return less than `most` texts."""
    return [some_text(chance) for _ in range(chance.randrange(1, most))]


def some_bytes(chance: random.Random) -> bytes:
    """Return UTF-8, mostly with some bytes that are wrong."""
    data = bytearray(some_text(chance).encode(errors="replace"))
    for _ in range(chance.choice([0, 0, 1, 5])):
        data.insert(chance.randrange(len(data) + 1), chance.randrange(256))
    return bytes(data)


# -- Random vocabularies -------------------------------------------------------


def some_vocabulary(chance: random.Random) -> Case:
    """Merges of which some are in order, some not; tokens made by two of them, and by none."""
    letters = [bytes([byte]) for byte in chance.choice(LETTERS).encode()]
    tokens, merges = list(letters), []
    for _ in range(chance.choice([0, 3, 10, 40])):
        pair = chance.choice(tokens[-12:]), chance.choice(tokens)
        if len(pair[0] + pair[1]) <= 300:
            merges.append(pair)
            tokens.append(pair[0] + pair[1])
    if chance.randrange(2):
        chance.shuffle(merges)
    if chance.randrange(4) == 0:
        return some_superwords(chance)
    whole = [bytes(chance.choices(b"abc\0\xc3\xa9", k=chance.choice(SIZES))) for _ in range(6)]
    return {
        "merges": merges,
        "whole": [*whole, *(b"a" * size for size in SIZES)] if chance.randrange(2) else [],
        "numbers": chance.randrange(10**6) if chance.randrange(2) else None,
        "pattern": chance.choice([*core.SPLIT_PATTERNS.values(), *OWN_PATTERNS]),
        "ignore_merges": bool(chance.randrange(2)),
    }


def some_superwords(chance: random.Random) -> Case:
    """Merges of words, then some that may join two words, all in order."""
    letters = [bytes([byte]) for byte in chance.choice(["ab ", "ab, \n", "aé ", "a \0"]).encode()]
    tokens, merges = list(letters), []
    for number in range(chance.choice([10, 40, 100])):
        left, right = chance.choice(tokens[-12:]), chance.choice(tokens)
        joined = left + right
        words = number < 20
        if len(joined) <= 100 and not (words and b" " in joined.lstrip(b" ")):
            merges.append((left, right))
            tokens.append(joined)
    return {
        "merges": merges,
        "whole": [],
        "numbers": chance.randrange(10**6) if chance.randrange(2) else None,
        "pattern": chance.choice([SUPERBPE_PATTERN, r"\n", core._UNCUT_PATTERN]),
        "ignore_merges": False,
    }


def definition_of(
    merges: Merges, whole: list[bytes], numbers: int | None, pattern: str, ignore_merges: bool
) -> core.Definition:
    """Make a definition; ids are random, with gaps, if `numbers` is a seed for them."""
    parts = [part for pair in merges for part in (*pair, pair[0] + pair[1])]
    tokens = list(dict.fromkeys([*(bytes([byte]) for byte in range(256)), *parts, *whole]))
    ids = list(range(2 * len(tokens)))
    if numbers is not None:
        random.Random(numbers).shuffle(ids)
    vocab = dict(zip(tokens, ids))
    pairs = [(vocab[left], vocab[right]) for left, right in merges]
    added = tuple(core.AddedToken(text, id_) for text, id_ in zip(["<|é|>", "ab"], ids[::-1]))
    return core.Definition(vocab, pairs, pattern, None, ignore_merges=ignore_merges, added=added)


def engines(*arguments: Any, **vocabulary: Any) -> tuple[Any, list[Any]]:
    """Return the encoder in Python, and the same in C, with wide instructions and without."""
    definition = definition_of(*arguments, **vocabulary)
    wide = engine.NativeEncoder(definition)
    portable = engine.NativeEncoder(definition)
    added = {token.content.encode(): token.id for token in definition.added}
    name = engine._cutter_for(definition.split_pattern)
    portable._native = native.Encoder(
        definition.vocab, definition.merges, name, definition.ignore_merges, added, portable=True
    )
    copied = engine.NativeEncoder(dataclasses.replace(wide._definition, added=definition.added[:1]))
    copied = engine.NativeEncoder(
        dataclasses.replace(copied._definition, added=definition.added)
    )  # from the arrays of another, which itself was
    return core._Encoder(definition), [wide, portable, copied]


# -- What is compared ------------------------------------------------------------


def answer(call: Callable[..., Any], *args: Any) -> Any:
    """Return what a call gives, or what it raises."""
    try:
        return call(*args)
    except (ValueError, TypeError, KeyError) as error:
        return type(error), str(error)


def same(what: str, given: Any, expected: Any) -> None:
    """Raise if an answer is not that of Python."""
    if given != expected:
        raise AssertionError(f"{what}: {given!r} in C, {expected!r} in Python"[:2_000])


def check_encoding(texts: list[str], **vocabulary: Any) -> None:
    """Encode each text twice, the second time from the cache, in all ways there are."""
    python, others = engines(**vocabulary)
    for other, text in itertools.product(others, [*texts, *texts]):
        expected = answer(python.encode, text)
        same("ids", answer(other.encode, text), expected)
        same("plain", answer(other.encode_plain, text) or expected, expected)
        same("how many", answer(other.count, text), answer(python.count, text))
        if isinstance(expected, list):
            same("buffer", array("I", other.encode_to_buffer(text)).tolist(), expected)
            same("pre-tokens", other._native.encode_pretokens(python._split(text)), expected)
            plain = answer(other._native.encode_plain_to_buffer, text)
            same("plain buffer", array("I", plain or b"").tolist(), expected if plain else [])
            [(ids, record)] = other.encode_recorded([text])
            same("recorded", ids, expected)
            for each in (ids, record):
                same("places", other.places(text, each), python.places(text, expected))
            same("bytes", other._native.decode(expected), text.encode())
            dropped = answer(dropout.dropping(python, 0.3, len(text)).encode, text)
            same("dropout", answer(dropout.dropping(other, 0.3, len(text)).encode, text), dropped)
            for most in {0, 1, len(expected) // 2, len(expected)}:
                [(first, record)] = other.encode_recorded([text], most)
                same("first", first, expected[:most])
                same("places", other.places(text, record)[:most], python.places(text, first))
                if other._scans:
                    kept = beginning(python, python.pipeline([]), text, most)
                    same("beginning", other._native.begin(None, text, most), kept)


def beginning(python: core._Encoder, pipeline: core._Pipeline, text: str, most: int) -> int:
    """Return how many characters of a text are kept, by the definition of `truncate`."""
    ends: list[int] = []
    for part, start, end in pipeline.parts(text):
        if isinstance(part, str):
            ends += [start + at for _, at in python.places(part, python.encode(part))]
        else:
            ends.append(end)
    if len(ends) <= most:
        return len(text)

    def count(text: str) -> int:
        return len(core._encode_parts(python, pipeline.parts(text)))

    return next((end for end in reversed(ends[:most]) if count(text[:end]) <= most), 0)


def check_flat(**vocabulary: Any) -> None:
    """Give a vocabulary back as it was."""
    definition = definition_of(**vocabulary)
    flat = engine.NativeEncoder(definition)
    python = core._Encoder(definition)
    same("vocab", [*flat._definition.vocab.items()], [*definition.vocab.items()])
    same("merges", [*flat._definition.merges], definition.merges)
    same("tokens", [*flat.tokens.items()], [*python.tokens.items()])
    for token, id_ in definition.vocab.items():
        same("id", flat._definition.vocab[token], id_)
    for id_ in range(flat.largest_id() + 2):
        same("token", flat.tokens.get(id_), python.tokens.get(id_))


def check_image(text: str, changes: list[tuple[int, int]], **vocabulary: Any) -> None:
    """Write an encoder as a file has it, and read that; then a forged one, which may be wrong."""
    definition = definition_of(**vocabulary)
    first = engine.NativeEncoder(definition)
    image = first._native.image(b"rest")
    found, rest = native.Encoder.from_image(image)
    same("rest", rest, b"rest")
    definition = dataclasses.replace(
        definition, vocab=flat.FlatVocab(found), merges=flat.FlatMerges(found)
    )
    mapped = engine.NativeEncoder(definition)
    same("ids", answer(mapped.encode, text), answer(first.encode, text))
    same("tokens", [*mapped.tokens.items()], [*first.tokens.items()])
    same("merges", [*mapped._definition.merges], [*first._definition.merges])
    forged = bytearray(image)
    for place, value in changes:  # most of the first are in the head, the others anywhere
        at = 8 * (2 + place % (20 if place < 60 else len(image) // 8 - 2))
        forged[at : at + 8] = struct.pack("=Q", value)
    use(native.Encoder.from_image(images.with_checksum(forged)), text)
    use(native.Encoder.from_image(image[: 8 * (sum(place for place, _ in changes) % 90)]), text)


def use(found: Any, text: str) -> None:
    """Use a forged encoder."""
    if found is None:
        return
    encoder = found[0]
    tokens, _ = encoder.listed(True)
    for token in tokens:
        encoder.id_of(token)
    encoder.merges(0, 2**30)
    for id_ in range(encoder.largest_id + 2):
        encoder.token(id_)
    for ignore_merges in (False, True):
        try:
            made = native.Encoder(encoder, [], "gpt2", ignore_merges)
        except ValueError:
            continue
        for each in (text, text * 40):
            ids = answer(made.encode, each)
            if isinstance(ids, list):
                same("length", len(made.decode(ids)), len(each.encode()))
                made.offsets(each, ids)
                runs = [random.randrange(-9, 99) for _ in range(random.randrange(13))]
                if random.random() < 0.9:  # of the text, mostly
                    runs = [*runs[:2], *runs[:2], len(each), 3, 5, 1]
                answer(made.offsets, each, ids, array("i", runs))
                made.begin(None, each, 3)


def check_finding(strings: list[str], text: str, start: int, stop: int) -> None:
    """Find strings in a text, and encode what is around them."""
    strings = list(dict.fromkeys(filter(None, strings)))
    expected = list(core._spans_of(strings)(text, start, stop))
    finder = native.Finder({string: i for i, string in enumerate(strings)})
    same("spans", finder.find(text, start, stop), expected)
    tokens = [core.AddedToken(string, 300 + i) for i, string in enumerate(strings)]
    definition = definition_of([(b"a", b"b")], [], None, core.SPLIT_PATTERNS["gpt2"], False)
    python, other = core._Encoder(definition), engine.NativeEncoder(definition)
    expected = answer(core._encode_parts, python, python.pipeline(tokens).parts(text))
    plain = other.plain(other.pipeline(tokens))
    given = plain and plain(text)
    if given is not None or isinstance(expected, list):
        same("around", given, expected)
    if tokens and plain:
        buffer = other.plain(other.pipeline(tokens), "encode_to_buffer")(text)
        same("around", None if buffer is None else array("I", buffer).tolist(), given)
        begin = other.plain(other.pipeline(tokens), "begin")
        for most in range(5) if isinstance(expected, list) else ():
            for each in (text, (text + "é") * 60):
                kept = beginning(python, python.pipeline(tokens), each, most)
                same("beginning", begin(each, most), kept)
    definition = dataclasses.replace(definition, added=tuple(tokens))
    marked = [frozenset[str](), frozenset(strings)]
    segments = [(text[:start], marked[0]), (text[start:stop], marked[1]), (text[stop:], marked[0])]
    makers = (core._SegmentEncoder(each, definition) for each in (python, other))
    expected, found = (answer(each.encode, segments) for each in makers)
    same("segments", found, expected)


def check_normalizing(parts: list[str], form: str) -> None:
    """Normalize text; what the extension is sure of is so."""
    text = "".join(parts)
    expected = core._normalize(text, form)
    same("normal", engine.normalize(text, form), expected)
    if native.surely_nfc(text):
        same("surely", text, core._normalize(text, "NFC"))


def check_batches(texts: list[str], threads: int, **vocabulary: Any) -> None:
    """Encode on threads."""
    python, others = engines(**vocabulary)
    expected = answer(python.encode_batch, texts, threads)
    for other in others:
        same("batch", answer(other.encode_batch, list(texts), threads), expected)
        if isinstance(expected, list) and other._scans:
            same("threads", other._native.encode_batch(texts, threads, 0), expected)
            buffers = other._native.encode_batch_to_buffers(texts, threads, 0)
            same("buffers", [array("I", buffer).tolist() for buffer in buffers], expected)


def check_streams(chunks: list[str], **vocabulary: Any) -> None:
    """Encode text in chunks, with added tokens in it."""
    python, others = engines(**vocabulary)
    pipeline = python.pipeline(python._definition.added)

    def encode(chunks: Iterable[str], encoder: Any) -> list[int]:
        return [id_ for ids in encoder.stream(pipeline, chunks) for id_ in ids]

    expected = answer(encode, chunks, python)
    for other in others:
        same("stream", answer(encode, chunks, other), expected)
        if isinstance(expected, list):
            same("whole", encode(["".join(chunks)], other), expected)
            same("characters", encode(itertools.chain(*chunks), other), expected)


def check_decoding(ids: list[Any], **vocabulary: Any) -> None:
    """Decode ids, among which may be some without a token, and what is no id at all."""
    python, (other, *_) = engines(**vocabulary)
    for errors in ("strict", "replace", "ignore"):
        expected = answer(python.decode, ids, errors)
        same("decoded", answer(other.decode, ids, errors), expected)
        text = answer(python.decode_to_str, ids, errors)
        same("text", answer(other.decode_to_str, ids, errors), text)
        small = [id_ for id_ in ids if type(id_) is int and 0 <= id_ < 2**31]
        for code in "iQ":
            text = answer(python.decode_to_str, small, errors)
            same("text", answer(other.decode_to_str, array(code, small), errors), text)
    try:
        expected = b"".join(python.tokens[operator.index(id_)] for id_ in ids)
        same("bytes", other._native.decode(tuple(ids)), expected)
    except (KeyError, TypeError) as error:
        same("error", answer(other._native.decode, ids)[0], type(error))


def check_shown(lists: list[list[Any]], n_ids: int) -> None:
    """Look up the forms of ids, some of them twice, of which some have none."""

    def write(id_: Any) -> str:
        if id_ in (7, None, "a"):
            raise KeyError(id_)
        return f"<{id_!r}>"

    python, other = core._Shown(write, n_ids), native.Shown(write, n_ids)
    for ids in (*lists, *map(tuple, lists), *lists):
        same("shown", answer(other.of, ids), answer(python.of, ids))
        for id_ in ids:
            same("one shown", answer(other.__getitem__, id_), answer(python.__getitem__, id_))


def check_full_cache(words: int, size: int, seed: int, merges: Merges) -> None:
    """Fill the tables of the cache until they are emptied; look at all bytes, and at some ids."""
    python, others = engines(merges, [], None, OWN_PATTERNS[0], False)
    for first in range(seed, seed + words, 10_000):
        numbers = [f"{n:0{size}d}" for n in range(first, first + 10_000)]
        some = numbers[::200]
        expected = [id_ for number in some for id_ in python._encode_pretoken(number.encode())]
        for other, _ in itertools.product(others, "12"):
            ids = other._native.encode_pretokens(numbers)
            same("bytes", other._native.decode(ids), "".join(numbers).encode())
            same("ids", other._native.encode_pretokens(some), expected)


def check_splitting(text: str, name: str) -> None:
    """Cut a text by blocks and by characters."""
    expected = [piece.encode() for piece in core._splitter(core.SPLIT_PATTERNS[name]).split(text)]
    same("wide", native.split(name, text), expected)
    same("portable", native.split(name, text, portable=True), expected)


def check_automaton(text: str, split_pattern: str) -> None:
    """Cut a text by the automaton of a pattern, if there is one."""
    made = automaton(split_pattern)
    if made is None:
        return
    expected, done = [], 0
    try:
        for found in core._Pattern(split_pattern).finditer(text, timeout=1):
            expected += [text[done : found.start()], text[found.start() : found.end()]]
            done = found.end()
    except TimeoutError:  # a pattern that takes `regex` exponential time
        return
    pieces = [piece.encode() for piece in [*expected, text[done:]] if piece]
    same("automaton", native.split(native.automaton(*made), text), pieces)


def check_counting(texts: list[str], name: str, data: bytes, cut: int, portable: bool) -> None:
    """Count texts, their bytes, pre-tokens that are cut already, and bytes of any kind."""
    splitter = core._splitter(core.SPLIT_PATTERNS[name])
    pieces = [piece for text in texts for piece in splitter.split(text)]
    counter, other = native.PretokenCounter(name, portable=portable), native.PretokenCounter()
    counter.count(texts[:cut])
    in_bytes = native.PretokenCounter(name, portable=portable)
    finder = native.Finder({"\xc3": None, "ab": None})
    for text in texts[cut:]:
        in_bytes.count_utf8(text.encode())
    counter.add(in_bytes)
    other.count_pretokens(pieces * 2)
    expected = {piece.encode(): count for piece, count in Counter(pieces).items()}
    refused = answer(in_bytes.count_utf8, data) != []
    same("refused", refused, not isinstance(answer(data.decode), str))
    answer(in_bytes.count_utf8, data, finder, True)
    same("how many", len(counter), len(expected))
    same("counts", counter.to_dict(), expected)
    same("counts", counter.take(), expected)
    same("doubled", other.take(), {piece: 2 * count for piece, count in expected.items()})


def check_learning(
    words: list[tuple[bytes, int]], wanted: int, least: int, longest: int, forbidden: list[bytes]
) -> None:
    """Learn merges."""

    def learn(learner: Any) -> Any:
        return learner.learn(wanted, least, frozenset(forbidden), lambda n: None)

    counts = dict(words)
    given = answer(learn, engine.NativeLearner(counts, longest or None))
    same("merges", given, answer(learn, core._MergeLearner(counts, longest or None)))


def check_ranks(tokens: list[bytes]) -> None:
    """Find merges from ranks."""
    tokens = list(dict.fromkeys(tokens))
    found = native.merges_from_ranks(tokens)
    given = [(tokens[pair[0]], tokens[pair[1]]) for pair in found if pair]
    same("merges", given, recover_merges({token: rank for rank, token in enumerate(tokens)}))


def check_rank_file(data: bytes) -> None:
    """Read a file of ranks, if it is plain."""
    found = native.read_ranks(data)
    if found is not None:
        same("ranks", list(found.items()), list((_read_plain_ranks(data) or {}).items()))


def check_json(data: bytes) -> None:
    """Read a tokenizer.json, if it is as usual."""
    found = engine._read_json(Path(), data)
    if found is not None:
        expected = core._read_definition(core._JsonReader.open(Path(), data))
        same("definition", found[1], expected)
        same("vocab", list(found[1].vocab), list(expected.vocab))


def check_rows(rows: list[list[int]], more: int, pad_id: int, left: bool) -> None:
    """Fill a tensor."""
    length = max(map(len, rows), default=0) + more
    shape = len(rows), length
    if not all(shape):
        return
    ids, mask = (memoryview(bytearray(8 * len(rows) * length)).cast("q", shape) for _ in "12")
    native.fill_rows(rows, ids, mask, pad_id, left)
    for given, fill, values in ((ids, pad_id, rows), (mask, 0, [[1] * len(row) for row in rows])):
        pads = [[fill] * (length - len(row)) for row in rows]
        pairs = zip(pads, values) if left else zip(values, pads)
        same("rows", given.tolist(), [first + last for first, last in pairs])


# -- What is tried -----------------------------------------------------------------


def some_id(chance: random.Random) -> Any:
    """Return an id; now and then one that is odd, or none."""
    large = [2**20 - 3, 2**20, 2**31, 2**32 + 97, 2**64 + 97]
    odd = [*large, -1, -(2**70), True, 97.0, "a", None]
    return chance.choice(odd) if chance.randrange(20) == 0 else chance.randrange(700)


def some_words(chance: random.Random) -> list[tuple[bytes, int]]:
    """Return pre-tokens with their counts."""
    letters = chance.choice(LETTERS).encode()
    highest = chance.choice([1, 3, 9, 2**31, 2**40, 2**58, 2**70])
    sizes = chance.choice([range(1, 4), range(1, 30), SIZES])
    words = [bytes(chance.choices(letters, k=chance.choice(sizes))) for _ in range(60)]
    return [(word, chance.randrange(-1, highest + 1)) for word in words[: chance.randrange(60)]]


def some_tokens(chance: random.Random) -> list[bytes]:
    """Return tokens by rank."""
    letters = chance.choice(["ab", "abc", "abc\0"]).encode()
    tokens = [bytes(chance.choices(letters, k=chance.randrange(1, 12))) for _ in range(60)]
    return [*tokens[: chance.randrange(60)], *(bytes([letter]) for letter in letters)]


def some_rank_file(chance: random.Random) -> bytes:
    """Return a .tiktoken file; now and then it is damaged."""
    step = chance.choice([1, 9, 2**28])
    lines = [
        base64.b64encode(token) + b" %d\n" % (step * rank)
        for rank, token in enumerate(dict.fromkeys(some_tokens(chance)))
    ]
    data = b"".join(lines)
    for _ in range(chance.choice([0, 0, 1, 3])):
        at = chance.randrange(len(data) + 1)
        data = data[:at] + chance.randbytes(chance.randrange(2)) + data[at + chance.randrange(3) :]
    return data


def some_lists(name: str, chance: random.Random) -> Case:
    """Return lists of ids, and what is made of them."""
    if name == "shown":
        sizes = [chance.choice([1, 5, 60]) for _ in range(4)]
        lists: list[Any] = [[chance.randrange(90) for _ in range(size)] for size in sizes]
        lists.append([chance.choice([5, 2**20, 2**70, -1, None, "a"]), 6])
        return {"lists": lists, "n_ids": chance.choice([0, 1, 50, 2**20 - 2])}
    size = chance.choice([1, 40, 300])
    rows = [
        [chance.choice([5, 2**30, -(2**63)]) for _ in range(chance.randrange(size))]
        for _ in range(chance.randrange(9))
    ]
    ends = {"pad_id": chance.choice([0, -100, 2**40]), "left": bool(chance.randrange(2))}
    return {"rows": rows, "more": chance.randrange(3), **ends}


def some_strings(texts: list[str], chance: random.Random) -> Case:
    """Return strings, and a text in which they may be."""
    letters = chance.choice(LETTERS)
    sizes = [1, 1, 2, 3, 5, 9, chance.choice(SIZES)]
    strings = ["".join(chance.choices(letters, k=size)) for size in chance.sample(sizes, 5)]
    strings += chance.sample(ATOMS, chance.choice([0, 1, 9]))
    parts = [*texts, *chance.choices([*strings, *letters], k=chance.choice([0, 9, 99]))]
    chance.shuffle(parts)
    return {
        "strings": strings[chance.randrange(5) :],
        "text": "".join(parts),
        "start": chance.choice([0, 0, -1, 1, 70]),
        "stop": chance.choice([sys.maxsize, sys.maxsize, 0, 90]),
    }


def some_parts(texts: list[str], chance: random.Random) -> Case:
    """Return text with characters in it that normal forms are about."""
    ranges = [range(0x900, 0x1100), range(0x300, 0x370), range(0x1100, 0x1200), range(0x2FFFF)]
    kind = chance.choice(ranges)
    odd = [chr(chance.choice(kind)) for _ in range(chance.choice([1, 3, 60]))]
    long = chance.choice(["", "", "中" * 500, "a" * 511, "é " * 256])
    parts = chance.choices([*odd, *texts, long], k=chance.choice([2, 9, 40]))
    return {"parts": parts, "form": chance.choice(["NFC", "NFC", *core._NORMALIZERS])}


def some_json(chance: random.Random) -> bytes:
    """Return a tokenizer.json; now and then it is damaged."""
    alphabet, odd = list(core._CHAR_TO_BYTE), ["<s>", "a b", "ab", "\uff5c", '"', "\\"]
    tokens, merges = chance.sample(["a", "b", "\u0120", "é", "/", '"'], 4), []
    for _ in range(chance.randrange(12)):
        merges.append((chance.choice(tokens), chance.choice(tokens)))
        tokens.append("".join(merges[-1]))
    names = [*alphabet, *tokens, *chance.sample(odd, chance.randrange(3))]
    vocab = {token: id_ for id_, token in enumerate(dict.fromkeys(names))}
    added = chance.sample(odd, chance.randrange(3))
    new = itertools.count(len(vocab))
    data = {
        "added_tokens": [
            {"content": text, "id": vocab.get(text) or next(new), "special": text < "b"}
            for text in added
        ],
        "pre_tokenizer": {"type": "ByteLevel"},
        "decoder": {"type": "ByteLevel"},
        "model": {"vocab": vocab, "merges": merges},
    }
    raw = json.dumps(data, ensure_ascii=bool(chance.randrange(2))).encode()
    for _ in range(chance.choice([0, 0, 1, 2])):
        at = len(raw) - min(chance.randrange(len(raw)), chance.choice([200, len(raw)]))
        new_part = chance.choice([chance.randbytes(1), b'"', b",", b"\\", b"]", b"}", b""])
        raw = raw[:at] + new_part + raw[at + chance.randrange(3) :]
    return raw


def some_changes(chance: random.Random, texts: list[str]) -> Case:
    """Return what to change in a file."""
    numbers = [0, 1, 2**32 - 1, 2**64 - 1, chance.randrange(2**64), chance.randrange(700)]
    places = chance.choices([chance.randrange(60), chance.randrange(2**20)], k=3)
    changes = [(place, chance.choice(numbers)) for place in places]
    return {"text": "".join(texts[:3]), "changes": changes}


def some_case(name: str, chance: random.Random) -> Case:
    """Return the arguments for one kind of check."""
    texts = some_texts(chance, chance.choice([2, 10, 60]))
    valid = [text.encode(errors="replace").decode() for text in texts]
    pattern, threads = chance.choice(list(core.SPLIT_PATTERNS)), chance.randrange(1, 5)
    if name in ("encoding", "batches"):
        given = {"texts": texts[:9]} if name == "encoding" else {"texts": texts, "threads": threads}
        return {**given, **some_vocabulary(chance)}
    if name in ("flat", "streams", "image"):
        given = {"flat": {}, "streams": {"chunks": texts[:9]}, "image": some_changes(chance, texts)}
        return {**given[name], **some_vocabulary(chance)}
    if name in ("finding", "normalizing"):
        return (some_strings if name == "finding" else some_parts)(texts[:9], chance)
    if name == "decoding":
        ids = [some_id(chance) for _ in range(chance.choice([0, 9, 2_000]))]
        return {"ids": ids, **some_vocabulary(chance)}
    if name == "full_cache":
        sizes = {"words": chance.choice([70_000, 400_000]), "size": chance.choice([7, 11, 14, 70])}
        merges = [(b"0" * 2**n, b"0" * 2**n) for n in range(chance.choice([0, 6]))]
        return {**sizes, "seed": chance.randrange(10**6), "merges": merges}
    if name == "splitting":
        return {"text": "".join(valid), "name": pattern}
    if name == "automaton":
        few = "".join(hard_patterns.some_text(chance) for _ in range(chance.choice([1, 3, 30])))
        own = hard_patterns.some_pattern(chance)
        return {"text": few if chance.randrange(3) else "".join(valid), "split_pattern": own}
    if name == "counting":
        ways = {"data": some_bytes(chance), "cut": chance.randrange(40), "portable": threads == 3}
        return {"texts": valid, "name": pattern, **ways}
    if name in ("rows", "shown"):
        return some_lists(name, chance)
    if name == "learning":
        return {
            "words": some_words(chance),
            "wanted": chance.choice([0, 1, 5, 30, 300]),
            "least": chance.choice([-1, 0, 1, 2, 3, 2**33]),
            "longest": chance.choice([0, 0, 2, 3, 5, 2**70]),
            "forbidden": some_tokens(chance)[:4],
        }
    if name in ("json", "rank_file"):
        return {"data": (some_json if name == "json" else some_rank_file)(chance)}
    return {"tokens": some_tokens(chance)}


CHECKS: dict[str, Callable[..., None]] = {
    "encoding": check_encoding,
    "flat": check_flat,
    "image": check_image,
    "finding": check_finding,
    "normalizing": check_normalizing,
    "batches": check_batches,
    "streams": check_streams,
    "decoding": check_decoding,
    "splitting": check_splitting,
    "automaton": check_automaton,
    "counting": check_counting,
    "learning": check_learning,
    "ranks": check_ranks,
    "rank_file": check_rank_file,
    "json": check_json,
    "rows": check_rows,
    "shown": check_shown,
    "full_cache": check_full_cache,  # rare, as it takes a second or more
}
RARE = 300


def trial(seed: int, number: int) -> tuple[str, Case]:
    """Return one of the cases of a seed."""
    *names, rare = CHECKS
    name = rare if number % RARE == RARE // 3 else names[number % len(names)]
    return name, some_case(name, random.Random(f"{seed} {number}"))


def difference(name: str, case: Case) -> str | None:
    """Return what differs, if anything does."""
    try:
        CHECKS[name](**case)
    except Exception as error:  # whatever it is, the other engine did not raise it
        return f"{type(error).__name__}: {error}"
    return None


# -- The smallest case ---------------------------------------------------------------


def smaller(value: Any) -> Iterator[Any]:
    """Yield a value with something left out."""
    if isinstance(value, (str, bytes, list)):
        step = len(value)
        while step:
            for at in range(0, len(value), step):
                yield value[:at] + value[at + step :]
            step //= 2
    if isinstance(value, list):
        for i, item in enumerate(value):
            for less in smaller(item) if isinstance(item, (str, bytes)) else ():
                yield [*value[:i], less, *value[i + 1 :]]


def kind_of(difference: str | None) -> str | None:
    """Return what must stay the same when a case becomes smaller."""
    return difference and ":".join(difference.split(":", 2)[:2])


def shrink(name: str, case: Case, seconds: float) -> Case:
    """Leave out of a case what does not matter, as far as there is time."""
    end = time.monotonic() + seconds
    what, again = kind_of(difference(name, case)), True
    while again:
        again = False
        for field in [field for field in case if field not in ("pattern", "split_pattern", "name")]:
            for less in smaller(case[field]):
                if time.monotonic() > end:
                    return case
                if kind_of(difference(name, {**case, field: less})) == what:
                    case, again = {**case, field: less}, True
                    break
    return case


def main() -> int:
    """Try cases until the time is over, and each check at least once."""
    parser = argparse.ArgumentParser(description="Compare both engines on random input.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    options = parser.parse_args()
    print(f"seed {options.seed}, {native.__file__}", flush=True)
    tried: Counter[str] = Counter()
    end = time.monotonic() + options.seconds
    for number in itertools.count():
        over = time.monotonic() > end
        if over and all(tried[name] for name in CHECKS):
            break
        name, case = trial(options.seed, number)
        if over and tried[name]:  # only what was never tried is left
            continue
        tried[name] += 1
        if difference(name, case):
            case = shrink(name, case, 20)
            print(f"seed {options.seed}, case {number}: {difference(name, case)}")
            print(f"check_{name}(**{case!r})")
            return 1
    print(", ".join(f"{name} {tried[name]:,}" for name in CHECKS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
