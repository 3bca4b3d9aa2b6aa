"""The engine in C: the classes of bpe_tokenizer.py's sections 4 and 5, on top of `native`.

Each class does what its Python base does, with the same answers. Input that the extension
can't take raises OverflowError there; the base then does the work.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import functools
import importlib
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import regex

import _bpe_tokenizer.native as native  # a ModuleNotFoundError, if it was not compiled
import bpe_tokenizer as core
from _bpe_tokenizer import __version__
from _bpe_tokenizer.flat import FlatMerges, FlatTokens, FlatVocab, encoder_of

if core.__version__ != __version__:
    # Not an ImportError: a module older than 0.10 would only warn, and go on with another engine.
    raise RuntimeError(
        f"_bpe_tokenizer {__version__} ({__file__}) can't be used by bpe_tokenizer "
        f"{core.__version__} ({core.__file__}), only by {__version__}; install bpe-tokenizer "
        "again, or set BPE_TOKENIZER_PURE=1 to do without it"
    )

API = 26  # what this file asks of the extension; both count up together
if native.API != API:
    raise ImportError(f"{native.__file__} is of another version: {native.API}, expected {API}")
if native.UNICODE_VERSION != core.UNICODE_VERSION:
    found, expected = native.UNICODE_VERSION, core.UNICODE_VERSION
    raise ImportError(f"{native.__file__} has the tables of Unicode {found}, expected {expected}")

_MAX_THREADS = 64
_NORMALIZED_CHARS = 512  # at once, where not all of a text is in its normal form
_SMALL = 2**16  # bytes; a text this small has few characters that NFC may change
_IN_MERGE = 2  # a flag of `read_model`
# What can be normalized apart from all before it: the module's, but searched from left to right.
_BEGINS: regex.Pattern[str] = regex.compile(core._APART.pattern.removeprefix("(?r)"))
_NAMES = {pattern: name for name, pattern in core.SPLIT_PATTERNS.items()}
_BY_THREES = ("llama3", "o200k", "cl100k")  # whose scanners can cut numbers from the right, too


def _name_of(split_pattern: str) -> str | None:
    """Return the name of a split pattern, by any spelling of it in use."""
    if split_pattern in _NAMES:
        return _NAMES[split_pattern]
    if not core._WITH_TOOLS:  # then only the module's own spellings are known
        return None
    spellings: dict[str, str] = core._tools("patterns.known").SPELLINGS
    return spellings.get(split_pattern)


def _scanner_for(split_pattern: str) -> str | None:
    """Return the name of the scanner that cuts as a pattern does, if there is one."""
    name = _name_of(split_pattern)
    if name is None and r"(?<!\p{N})" in split_pattern:  # such patterns begin a number so
        name = _from_the_right(split_pattern)
    elif name not in native.PATTERNS:
        name = None
    return name


def _from_the_right(split_pattern: str) -> str | None:
    """Return the name of a scanner that cuts numbers from the right, as a pattern does."""
    if not core._WITH_TOOLS:  # only they make such patterns
        return None
    from_the_right = core._tools("patterns.digits").digits_from_the_right
    names = (name for name in _BY_THREES if from_the_right(name) == split_pattern)
    return next((f"{name}, digits from the right" for name in names), None)


def _is_plain(token: core.AddedToken) -> bool:
    """Return True if an added token only needs to be found."""
    return not (token.single_word or token.lstrip or token.rstrip)


@functools.lru_cache(maxsize=16)
def _automaton_for(split_pattern: str) -> Any:
    """Return the automaton that cuts as a pattern does, if there is one."""
    if not core._WITH_TOOLS:  # only they take patterns apart
        return None
    tables = core._tools("patterns.automaton").automaton(split_pattern)
    return native.automaton(*tables) if tables else None


def _cutter_for(split_pattern: str) -> Any:
    """Return what cuts text in C as a pattern does: a scanner's name, an automaton or None."""
    return _scanner_for(split_pattern) or _automaton_for(split_pattern)


def _as_bytes(contents: Iterable[str]) -> list[str]:
    """Return the UTF-8 of strings, each byte a character, for a Finder that searches bytes."""
    return [content.encode("utf-8", "replace").decode("latin-1") for content in contents]


@functools.lru_cache(maxsize=16)
def _tokens_in_streams(pipeline: core._Pipeline) -> tuple[Any, ...]:
    """Return what `native.Stream` takes for the tokens of a pipeline."""
    if not pipeline.tokens:
        return ()
    tokens = {**pipeline.raw.tokens, **pipeline.normalized.tokens}
    together = bytearray(2**16)
    for content, token in tokens.items():
        ends = [char.encode("utf-8", "replace") for char in content]
        for left, right in itertools.pairwise(ends):
            together[left[-1] * 256 + right[0]] = 1
        if token.single_word or token.rstrip:  # it looks at what comes after it
            at = ends[-1][-1] * 256
            together[at : at + 256] = b"\1" * 256
        if token.single_word:
            together[ends[0][0] :: 256] = b"\1" * 256
    return native.Finder(dict.fromkeys(_as_bytes(tokens))), bytes(together)


@functools.lru_cache(maxsize=16)
def _flags(ids: frozenset[int]) -> tuple[int, bytes]:
    """Return the smallest of some ids, and for it and each up to the largest whether it is one."""
    low = min(ids)
    return low, bytes(id_ in ids for id_ in range(low, max(ids) + 1))


class NativeEncoder(core._Encoder):
    """A definition, ready to run in C.

    Where the split pattern has neither a scanner nor an automaton, `regex` cuts, and the rest is
    done in C.
    """

    def _list_tokens(self) -> Mapping[int, bytes]:
        return {}  # until they are in C

    def _prepare(self, vocab: Mapping[bytes, int], merges: Sequence[tuple[int, int]]) -> None:
        made = encoder_of(vocab, merges)
        cutter = _cutter_for(self._definition.split_pattern)
        # Of several texts for one id the engine keeps the first, the definition the last.
        added: dict[bytes, Any] = {
            token.content.encode(): token.id for token in reversed(self._definition.added)
        }
        self._native = native.Encoder(
            made or dict(vocab),
            [] if made else list(merges),
            cutter,
            ignore_merges=self._definition.ignore_merges,
            added=added,
            normalizer=self._definition.normalizer,
        )
        self._scans = cutter is not None
        if self._scans:  # on short texts a call in Python takes as long as the work
            vars(self)["encode_plain"] = self._native.encode_plain
            vars(self)["count_plain"] = self._native.count_plain
            vars(self)["begin"] = functools.partial(self._native.begin, None)
        if self._native.shares_ids:
            self.tokens = super()._list_tokens()
            return
        flat: Any = {"vocab": FlatVocab(self._native), "merges": FlatMerges(self._native)}
        self._definition = dataclasses.replace(self._definition, **flat)
        self.tokens = FlatTokens(self._native)

    def largest_id(self) -> int:
        return self._native.largest_id

    def encode(self, text: str) -> list[int]:
        """Encode prepared text without added tokens."""
        ids: list[int] = self._call(self._native.encode, self._native.encode_pretokens, text)
        return ids

    def plain(
        self, pipeline: core._Pipeline, method: str = "encode_plain"
    ) -> Callable[..., Any] | None:
        """Return a method that does all of a pipeline's work; None if there is none."""
        raw, normalized = pipeline.raw.tokens, pipeline.normalized.tokens
        if not pipeline.tokens or pipeline.prefix_space or not self._scans:
            return super().plain(pipeline, method)
        ids = {
            content: token.id if _is_plain(token) else None
            for content, token in {**raw, **normalized}.items()
        }
        if raw:  # they come first, wherever they are
            ids.update(dict.fromkeys(normalized))
        try:
            around: dict[str, Callable[..., Any]] = {
                "encode_plain": self._native.encode_around,
                "encode_to_buffer": self._native.encode_around_to_buffer,
                "count_plain": self._native.count_around,
                "begin": self._native.begin,
            }
            return functools.partial(around[method], native.Finder(ids))
        except (OverflowError, ValueError):  # too large for the extension, or empty
            return None

    def plain_segments(
        self, tokens: list[core.AddedToken] | None
    ) -> Callable[[object, list[Any]], list[int] | None]:
        """Return an `encode_plain` for segments, which finds `tokens` in those with a mark."""
        if tokens is None or not self._scans:
            return super().plain_segments(tokens)
        ids = {each.content: each.id if _is_plain(each) else None for each in tokens}
        try:
            return functools.partial(self._native.encode_segments, native.Finder(ids))
        except (OverflowError, ValueError):  # too large for the extension, or empty
            return super().plain_segments(tokens)

    def stream(self, pipeline: core._Pipeline, chunks: Iterable[str]) -> Iterator[list[int]]:
        """Encode text that arrives in chunks."""

        def encode(text: str) -> list[int]:  # with tokens in it, or that is not normalized
            ids = plain(text) if plain else None
            return core._encode_parts(self, pipeline.parts(text)) if ids is None else ids

        if not self._native.cuts_safely or pipeline.prefix_space:
            return super().stream(pipeline, chunks)
        plain = self.plain(pipeline)
        try:
            tokens = _tokens_in_streams(pipeline)
        except (OverflowError, ValueError):  # too large for the extension, or empty
            return super().stream(pipeline, chunks)
        return native.Stream(self._native, chunks, core._utf8_length, encode, *tokens)

    def encode_to_buffer(self, text: Any) -> Any:
        """Normalize and encode a user's text, to a buffer of unsigned 32-bit integers."""
        if not self._scans:
            return super().encode_to_buffer(text)
        ids = self._native.encode_plain_to_buffer(text)
        if ids is None:
            core._check_text(text)
            prepared = normalize(text, self._definition.normalizer)
            ids = self._call(self._native.encode_to_buffer, None, prepared)
        return ids

    def encode_dropping(self, text: str, limit: int, state: int) -> tuple[list[int], int]:
        """Encode with dropout; see bpe_tokenizer_tools/support/dropout.py."""

        def encode(text: Any) -> tuple[list[int], int]:
            return self._native.encode_dropping(text, limit, state)

        made: tuple[list[int], int] = self._call(encode, encode, text)
        return made

    def count(self, text: str) -> int:
        """Count the ids `encode` would give, without making the list."""
        count: int = self._call(self._native.count, self._native.count_pieces, text)
        return count

    @property
    def scans(self) -> bool:
        """Whether text is cut in C."""
        return self._scans

    def encode_pretokens(self, pretokens: list[str]) -> list[int]:
        """Encode text that is cut into pre-tokens."""
        return self._native.encode_pretokens(pretokens)

    def count_pretokens(self, pretokens: list[str]) -> int:
        """Count the ids `encode_pretokens` would give."""
        return self._native.count_pieces(pretokens)

    def encode_batch(self, texts: list[str], num_threads: int) -> list[list[int]]:
        """Encode several texts as `encode` does, on several threads."""
        if not self._scans:
            return super().encode_batch(texts, num_threads)
        try:
            return self._native.encode_batch(texts, min(num_threads, _MAX_THREADS))
        except UnicodeEncodeError as error:
            core._utf8_length(str(error.object))  # names the surrogate by its place
            raise

    shared_start, shared_end = native.shared_start, native.shared_end  # of two texts

    def encode_joined(
        self, text: str, ends: list[int], num_threads: int, is_normal: bool, to_buffer: bool
    ) -> Any:
        """Encode a text that is cut into parts, on several threads.

        Returns a list or a buffer; None if text is not cut in C, or must be normalized first.
        """
        native = self._native
        join = native.encode_joined_to_buffer if to_buffer else native.encode_joined
        threads = min(num_threads, _MAX_THREADS)
        return join(text, ends, threads, is_normal) if self._scans else None

    def encode_recorded(self, texts: list[str], most: Any = None) -> list[tuple[list[int], Any]]:
        """Encode texts, each to its first ids and to the record that `places` takes."""
        if not self._scans:
            return super().encode_recorded(texts, most)
        try:
            return self._native.encode_batch_recorded(texts, 1, 0, -1 if most is None else most)
        except UnicodeEncodeError as error:
            core._utf8_length(str(error.object))
            raise

    def _call(self, whole: Any, cut: Any, text: str) -> Any:
        """Call a method of the extension that takes text, or one for text that is cut."""
        try:
            return whole(text) if self._scans else cut(self._split(text))
        except UnicodeEncodeError:
            core._utf8_length(text)  # names the surrogate by its place
            raise

    def places(self, text: str, ids: Any) -> list[tuple[int, int]]:
        """Return the (start, end) of the characters that each token of a text has bytes of."""
        return self._native.offsets(text, ids)

    def places_by_runs(
        self, text: str, ids: Any, runs: Any, trimming: int
    ) -> list[tuple[int, int]]:
        """Return the `places` in another text that this one was made from."""
        return self._native.offsets(text, ids, runs, trimming)

    def decode(self, ids: Any, errors: str) -> bytes:
        """Join the bytes of tokens; `errors` handles unknown ids."""
        try:
            return self._native.decode(ids)
        except (KeyError, TypeError):  # an unknown id, or a type that the extension doesn't read
            return super().decode(ids, errors)

    def decode_to_str(self, ids: Any, errors: str) -> str:
        """Decode as `decode` does, and then the bytes as UTF-8."""
        try:
            return self._native.decode_to_str(ids, errors)
        except (KeyError, TypeError):
            return super().decode_to_str(ids, errors)

    def without(self, ids: Any, left_out: frozenset[Any]) -> Any:
        """Leave some ids out; if none is there, the ids may be returned as they are."""
        kept = self._native.without(ids, *_flags(left_out)) if left_out else ids
        return super().without(ids, left_out) if kept is None else kept

    def decode_rows(self, rows: Any, left_out: frozenset[int], pad_id: int | None) -> list[str]:
        """Decode rows of ids, without some of them and without padding at their ends."""
        pad_id = -1 if pad_id is None else pad_id
        flags = _flags(left_out) if left_out else (0, b"")
        try:
            return self._native.decode_rows(rows, "replace", pad_id, *flags)
        except (KeyError, TypeError):
            rows = rows.tolist() if hasattr(rows, "tolist") else rows  # of a tensor, say
            return super().decode_rows(rows, left_out, None if pad_id < 0 else pad_id)

    def decode_pieces(self, ids: Iterable[int], errors: str) -> Iterator[bytes]:
        """Decode as `decode` does, piece by piece, as the ids arrive."""
        token = self._native.token
        for id_ in ids:
            piece = token(id_)
            yield core._decode_ids([id_], self.tokens, errors) if piece is None else piece

    def cache_info(self) -> tuple[int, int, int]:
        """Return the cache's numbers of lookups, misses and entries."""
        return self._native.cache_info()

    def clear_cache(self) -> None:
        """Forget the pre-tokens seen, and how often the cache was asked."""
        self._native.clear_cache()


_Job = list[str] | tuple[memoryview, int, core._TextFile]  # texts; or part of a file, and where


class NativeCounter(core._PretokenCounter):
    """Counts the pre-tokens of documents in C, on several threads.

    This thread reads, and passes on what it has read. When the others have enough to do, it counts,
    too. It passes on plain text files as bytes; the thread that counts them checks their UTF-8.
    """

    _TAIL = 4096  # bytes searched first for a place to cut

    def __init__(
        self,
        cutter: Any,
        pipeline: core._Pipeline,
        num_workers: int,
        advance: Callable[[int], Any],
    ) -> None:
        super().__init__(pipeline, num_workers, advance)
        self._workers = min(num_workers, _MAX_THREADS)
        self._new = functools.partial(native.PretokenCounter, cutter)
        self._idle = [self._new()]  # each running thread takes one out
        self._finder: Any = None
        if tokens := pipeline.raw.tokens:  # as bytes that look like characters
            contents = _as_bytes(tokens)
            self._finder = native.Finder(dict.fromkeys(contents))
        self._takes_bytes = (
            type(pipeline) is core._Pipeline  # others prepare text in ways of their own
            and pipeline.normalizer in (None, "NFC")
            and not (pipeline.prefix_space or pipeline.normalized.tokens)
            and all(map(_is_plain, tokens.values()))
        )

    def count(self, documents: Iterable[Iterable[str]]) -> None:
        """Count all documents.  The sum does not depend on how they are batched."""
        with contextlib.closing(self._jobs(documents)) as jobs:  # closes the file it reads, too
            first = list(itertools.islice(jobs, 2 if self._workers > 1 else 0))
            if len(first) < 2:  # too little for others
                for job in itertools.chain(first, jobs):
                    self._do(job)
                return
            # Imported late: it takes 10 ms.
            pool = importlib.import_module("concurrent.futures").ThreadPoolExecutor(
                self._workers - 1
            )
            try:
                self._share(itertools.chain(first, jobs), pool)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def take(self) -> dict[bytes, int]:
        """Return the counts."""
        counts: dict[bytes, int] = self.held().take()
        return counts

    def held(self) -> Any:
        """Return the counts for a learner: in C, without a dict."""
        total, *others = self._idle
        while others:
            total.add(others.pop())
        return total

    def _share(self, jobs: Iterable[_Job], pool: Any) -> None:
        given: deque[tuple[Any, _Job]] = deque()
        try:
            for job in jobs:
                while given and given[0][0].done():
                    given[0][0].result()
                    given.popleft()
                if len(given) < 2 * (self._workers - 1):
                    given.append((pool.submit(self._do, job), job))
                else:
                    self._do(job)
            while given:
                future, job = given.pop()
                if future.cancel():  # nobody has begun it
                    self._do(job)
                else:
                    future.result()
        except Exception:  # but errors in the text before this come first
            for future, _ in given:
                future.result()
            raise

    def _do(self, job: _Job) -> None:
        try:
            counter = self._idle.pop()
        except IndexError:
            counter = self._new()
        try:
            if isinstance(job, list):
                counter.count(job)
            else:
                self._count_bytes(counter, *job)
        finally:
            self._idle.append(counter)

    def _count_bytes(self, counter: Any, data: memoryview, at: int, file: core._TextFile) -> None:
        try:
            for part in self._count_utf8(counter, data):
                for piece in self._cut_small(part):
                    for rest in self._count_utf8(counter, piece):
                        counter.count([normalize(str(rest, "utf-8"), self._pipeline.normalizer)])
        except UnicodeDecodeError:
            list(core._decode_chunks([bytes(data)], file.path, at))  # names the byte
            raise

    def _count_utf8(self, counter: Any, data: memoryview) -> Iterator[memoryview]:
        """Count text that is certainly normalized, and yield the rest."""
        only_nfc = self._pipeline.normalizer is not None
        for start, end in counter.count_utf8(data, self._finder, only_nfc):
            yield data[start:end]

    def _cut_small(self, data: memoryview) -> Iterator[memoryview]:
        """Cut bytes into parts that can be counted alone, small ones if possible."""
        start, size = 0, _SMALL
        while start + size < len(data):
            if at := self._last_cut(bytes(data[start : start + size])):
                yield data[start : start + at]
                start, size = start + at, _SMALL
            else:
                size *= 2
        yield data[start:]

    def _jobs(self, documents: Iterable[Iterable[str]]) -> Generator[_Job, None, None]:
        def in_bytes(document: Iterable[str]) -> bool:
            return self._takes_bytes and isinstance(document, core._TextFile)

        for are_files, some in itertools.groupby(documents, in_bytes):
            if not are_files:
                yield from self._batches(some)
                continue
            for file in cast("Iterable[core._TextFile]", some):
                self.documents += 1
                yield from self._blocks(file)

    def _blocks(self, file: core._TextFile) -> Iterator[_Job]:
        """Read a file in parts that can be counted alone."""
        held: list[bytes] = []
        done = 0
        for block in file.blocks(4 * core._BLOCK_CHARS):
            self.bytes_read += len(block)
            self._advance(len(block))
            held.append(block)
            try:
                at = self._last_cut(block)
            except UnicodeDecodeError:  # counting it raises, with the place
                break
            if at:
                data = b"".join(held) if len(held) > 1 else block
                n = len(data) - len(block) + at
                yield memoryview(data)[:n], done, file
                held, done = [data[n:]], done + n
        if data := b"".join(held):
            yield memoryview(data), done, file

    def _last_cut(self, block: bytes) -> int | None:
        """Return the last place in bytes where each side can be counted by itself."""
        splitter = self._pipeline.splitter
        for size in (self._TAIL, len(block)) if splitter.cut else ():
            start = max(0, len(block) - size)
            while start < len(block) and block[start] & 0xC0 == 0x80:  # inside a character
                start += 1
            text, _ = codecs.utf_8_decode(block[start:], "strict", False)
            at = splitter.last_cut(text, len(text))
            while at and not self._can_cut(text, at):
                at = splitter.last_cut(text, at)
            if at:
                return start + len(text[:at].encode())
        return None

    def _can_cut(self, text: str, at: int) -> bool:
        """Whether no token is at a cut, and it is one in normalized text, too."""
        around = text[at - 1 : at + 2]
        if self._pipeline.raw.tokens and not self._pipeline.raw.apart(text, at):
            return False
        if self._pipeline.normalizer is None:
            return True
        if len(around) < 3 or not all(map(_BEGINS.match, around)):
            return False
        left, right = (normalize(char, self._pipeline.normalizer) for char in around[:2])
        return self._pipeline.splitter.last_cut(left + right, len(left) + 1) == len(left)


class NativeLearner(core._MergeLearner):
    """Learns merges from pre-token counts in C."""

    def __init__(
        self,
        counts: Mapping[bytes, int],
        max_token_length: int | None,
        alphabet: bytes = core._ALPHABET,
    ) -> None:
        self._counts, self._max_length, self._alphabet = counts, max_token_length, alphabet

    def learn(
        self,
        n_tokens: int,
        min_frequency: int,
        forbidden: frozenset[bytes],
        advance: Callable[[int], Any],
    ) -> core._Learned:
        """Learn merges until they have made `n_tokens` new tokens; see the base."""
        begun = False

        def tell(n: int) -> None:
            nonlocal begun
            begun = True
            advance(n)

        plain = type(self._counts) in (dict, core.PretokenCounts, native.PretokenCounter)
        counts: Any = self._counts if plain else dict(self._counts.items())
        options = self._alphabet, n_tokens, min_frequency, self._max_length, forbidden, tell
        try:
            return core._Learned(*native.learn_merges(counts, *options))
        except (OverflowError, TypeError):  # too large, or numbers of another type than int
            if begun:
                raise
            super().__init__(self._counts, self._max_length, self._alphabet)
            return super().learn(n_tokens, min_frequency, forbidden, advance)


def apart_encoder(
    tokens: list[bytes], merges: Iterable[tuple[bytes, bytes]], pattern: str
) -> Callable[[list[str], int], bytearray] | None:
    """Return what encodes texts, each pre-token on its own; None if it can't.

    Tokens are numbered by their places.  What it returns takes texts and a number, which comes
    behind the ids of each pre-token.
    """
    cutter = _cutter_for(pattern)
    vocab = {token: number for number, token in enumerate(tokens)}
    try:
        pairs = [(vocab[left], vocab[right]) for left, right in merges]
        return None if cutter is None else native.Encoder(vocab, pairs, cutter).encode_apart
    except OverflowError:  # more ids or merges than it was built for
        return None


def word_finder(
    numbers: dict[bytes, int], pieces: str, words: str, between: int
) -> Callable[[list[str]], bytes] | None:
    """Return what turns texts into numbers of whole words; None if it can't.

    Text is cut to pieces by one pattern, and each of these to words by another; see native.pyi.
    """
    cutters = _cutter_for(pieces), _cutter_for(words)
    return None if None in cutters else native.WordFinder(numbers, *cutters, between).find


def learn_joins(*given: Any) -> tuple[core._Learned, list[int]]:
    """Learn merges from words of tokens; see bpe_tokenizer_tools/training/joins.py."""
    learned, counts = native.learn_joins(*given)
    return core._Learned(*learned), counts


def merges_from_ranks(tokens: list[Any], names: list[Any] | None = None) -> list[tuple[Any, Any]]:
    """Recover merges as `formats.ranks.recover_merges` does.

    Args:
        tokens: as bytes, by rank.
        names: the form of each token in the merges, ints or bytes; by default the token itself.

    Raises:
        OverflowError: they are too many, or too long, for the extension.
        TypeError: one is not bytes.
    """
    return native.merges_from_ranks(tokens, tokens if names is None else names)


def read_ranks(data: bytes) -> dict[bytes, int] | None:
    """Read the content of a plain .tiktoken file; None if anything in it is unusual."""
    return native.read_ranks(data)


def _read_json(path: Path, raw: bytes) -> tuple[core._JsonReader, core.Definition] | None:
    """Read a tokenizer.json of byte-level BPE, as the module would.

    The extension takes vocabulary and merges out of the file, and the module reads the rest, with
    only those tokens that added tokens have to do with.

    Returns:
        The rest and the definition; None if anything is unusual or wrong: the module reports it.
    """
    found = native.read_model(raw)
    if found is None:
        return None
    rest, vocab, others, merges, flags = found
    try:
        data = core._JsonReader.open(path, rest)
        items = data.data.get("added_tokens") or ()
        added = {item["content"]: item["id"] for item in items}
        read = {text: core._from_printable(text) for text in added}
        own = {text: vocab[token] for text, token in read.items() if token in vocab}
        new = [id_ for text, id_ in added.items() if text not in own]
        if (
            core._is_plain(data.data)
            or others.keys() - added.keys()
            or any(flags[id_] for id_ in (*new, *others.values()) if id_ < len(flags))
            or any(flags[id_] & _IN_MERGE for id_ in own.values())
        ):
            return None
        letters = {char: vocab[bytes([byte])] for char, byte in core._CHAR_TO_BYTE.items()}
        data.data["model"]["vocab"] = {**letters, **own, **others}
        definition = core._read_definition(data, len(vocab) + len(others))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return None
    if definition.components is not None:
        return None
    for token in filter(None, read.values()):
        if token not in definition.vocab:
            vocab.pop(token, None)
    return data, dataclasses.replace(definition, vocab=vocab, merges=merges)


def read_json(path: Path, raw: bytes) -> tuple[core._JsonReader, core.Definition | None]:
    """Read a tokenizer.json, and its definition, too, if the extension can."""
    return _read_json(path, raw) or (core._JsonReader.open(path, raw), None)


def _read(reader: Callable[..., tuple[Any, ...]], *given: Any) -> tuple[Any, ...]:
    """Call a reader, or use its earlier result from the cache on disk."""
    from _bpe_tokenizer.cache import read

    return read(reader, *given)


def fill_rows(rows: list[list[int]], ids: Any, mask: Any, pad_id: int, left: bool) -> None:
    """Write lists of ids into a tensor, and fill up its rows.

    Args:
        rows: n lists, none longer than a row of the tensor.
        ids: an int64 array of n times a length, contiguous; numpy.empty will do.
        mask: the same, for 1 where an id is and 0 where there is padding; or None.
        pad_id: fills the rest of `ids`.
        left: whether padding comes before the ids.

    Raises:
        ValueError: a row has too many ids.
        OverflowError: an id takes more than 64 bits.
    """
    native.fill_rows(rows, ids, mask, pad_id, left)


def _pieces(text: str) -> Iterator[str]:
    """Cut a text where both sides can be normalized alone."""
    start = 0
    while start < len(text):
        found = _BEGINS.search(text, start + _NORMALIZED_CHARS)
        end = found.start() if found else len(text)
        yield text[start:end]
        start = end


def normalize(text: str, form: str | None) -> str:
    """Return the normal form of a text; with NFC, Python sees only what may change."""
    if form != "NFC":
        return core._normalize(text, form)
    if native.surely_nfc(text):
        return text
    if len(text) <= _NORMALIZED_CHARS:
        return core._normalize(text, form)
    normal = "".join(
        piece if native.surely_nfc(piece) else core._normalize(piece, form)
        for piece in _pieces(text)
    )
    return text if normal == text else normal  # the same object means: nothing changed


def spans_of(contents: Iterable[str]) -> Callable[[str, int, int], Iterable[tuple[int, int]]]:
    """Return a function that finds these strings between two places in a text."""
    contents = list(contents)
    try:
        return native.Finder(dict.fromkeys(contents)).find
    except (OverflowError, ValueError):  # too large for the extension, or empty
        return core._spans_of(contents)


def _encoder(definition: core.Definition) -> core._Encoder:
    try:
        return NativeEncoder(definition)
    except OverflowError:  # more ids or merges than it was built for
        return core._Encoder(definition)


def _counter(
    pipeline: core._Pipeline, num_workers: int, advance: Callable[[int], Any]
) -> core._PretokenCounter:
    cutter = _cutter_for(pipeline.splitter.pattern)
    if cutter is None:
        return core._PretokenCounter(pipeline, num_workers, advance)
    return NativeCounter(cutter, pipeline, num_workers, advance)


def _shown(write: Callable[[int], str], n_ids: int) -> Any:
    try:
        return native.Shown(write, n_ids)
    except OverflowError:
        return core._Shown(write, n_ids)


ENGINE: core._Engine = core._Engine(
    _encoder,
    _counter,
    NativeLearner,
    fill_rows,
    spans_of,
    _shown,
    normalize,
    read_json,
    _read,
)
