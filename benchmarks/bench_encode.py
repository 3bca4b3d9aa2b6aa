"""Encoding speed, against tiktoken and others, on text the tokenizers have not seen.

python benchmarks/bench_encode.py            # documents, a short string, worst cases
python benchmarks/bench_encode.py --scan     # where the heap overtakes scanning
python benchmarks/bench_encode.py --split    # `re` against `regex` at splitting
"""

from __future__ import annotations

import argparse
import base64
import functools
import random
import statistics
import time
import timeit
from collections.abc import Callable, Sequence
from typing import Any

from common import (
    SLICES,
    Table,
    add_options,
    corpora,
    finish,
    for_each,
    fresh,
    interleaved,
    median_ratio,
    megabytes_of,
    no_garbage_collection,
    part,
    timed,
)
from elsewhere import Elsewhere
from libraries import (
    ENCODE,
    PUBLISHED,
    TOKENIZERS_1,
    Call,
    Vocabulary,
    checked,
    load_each,
    names,
    ours_in_python,
    tiktoken,
    usable,
    vocabularies,
)

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS

WARM_UP = 2.0  # megabytes that every row encodes first, from the same corpus


# -- Documents ----------------------------------------------------------------


def measure_documents(vocabulary: Vocabulary, name: str, documents: Sequence[str]) -> Table:
    """Compare the libraries on documents they have not seen."""
    reference = tiktoken(vocabulary)
    ids = [reference.encode_ordinary(text) for text in documents]
    calls = checked(usable(ENCODE), vocabulary, documents, lambda call: ids)
    warm, measured = part(documents, WARM_UP)
    runs = load_each(calls, vocabulary)  # NOTE: loaded again, so that no cache has the documents
    for run in runs.values():
        run(warm)
    slices = [measured[i::SLICES] for i in range(SLICES)]
    seconds = interleaved(runs, slices, fresh)
    size = megabytes_of(measured)
    return {
        "about": ["encode", vocabulary.name, name],
        "title": f"encode, {vocabulary.name}, {name}: {size:.1f} MB of unseen documents",
        "rows": compare(calls, seconds, size),
    }


def compare(calls: Sequence[Call], seconds: dict[str, list[float]], size: float) -> list[Any]:
    """Make rows of MB/s, and of ratios to tiktoken and to the fastest peer of the same kind."""
    reference = seconds[next(call.name for call in calls if call.library == "tiktoken")]
    rows = []
    for call in calls:
        times = seconds[call.name]
        peers = [seconds[c.name] for c in calls if c.kind == call.kind and not c.is_ours]
        best = max(peers, key=lambda peer: median_ratio(reference, peer), default=None)
        ahead = median_ratio(best, times) if best and call.library == "bpe_tokenizer" else None
        rows.append(
            {
                "library": call.library,
                "returns": call.kind,
                "MB/s": size / sum(times),
                "x tiktoken": median_ratio(reference, times),
                "x best peer": ahead,
            }
        )
    return rows


# -- A short string -----------------------------------------------------------

FIFTY = "The quick brown fox jumps over the lazy dog today."
# For one short string, these are faster than the calls that are fastest for documents.
SHORT = {"gigatoken": "it.encode(x).tolist()"}


def repeater(call: Call, tokenizer: Any) -> Callable[[int], float]:
    """Return a function that encodes the short string n times and returns the seconds."""
    if isinstance(tokenizer, Elsewhere):
        return functools.partial(tokenizer.repeat, call.expression, FIFTY)
    given = names(it=tokenizer, x=FIFTY)
    return timeit.Timer(call.expression, timer=time.process_time, globals=given).timeit


def measure_short(vocabulary: Vocabulary) -> Table:
    """Time a call with 50 characters, which is mostly the cost of the call itself."""
    calls = [call for call in usable(ENCODE) if call.kind == "list"]
    calls = [c._replace(expression=SHORT.get(c.library, c.expression)) for c in calls]
    ids = tiktoken(vocabulary).encode_ordinary(FIFTY)
    calls = checked(calls, vocabulary, [FIFTY], lambda call: [ids])
    timers = {call.name: repeater(call, call.load(vocabulary)) for call in calls}
    number = 2_000
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(15):
        for name, seconds_of in timers.items():
            times[name].append(seconds_of(number) / number * 1e6)
    best = {name: min(found) for name, found in times.items()}
    reference = next(best[call.name] for call in calls if call.library == "tiktoken")
    return {
        "about": ["short", vocabulary.name],
        "title": f"encode, {vocabulary.name}: a string of {len(FIFTY)} characters to a list, again "
        "and again; the best of 15 times 2,000 calls",
        "rows": [
            {
                "library": call.library,
                "call": call.expression,
                "microseconds": best[call.name],
                "x tiktoken": reference / best[call.name],
            }
            for call in calls
        ],
    }


# -- Worst cases --------------------------------------------------------------

PATIENCE = 20.0  # seconds: texts that would take longer are skipped


def worst_cases(size: int) -> dict[str, str]:
    """Return one long text of each kind that has made some tokenizer quadratic."""
    rng = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return {
        "one letter": "a" * size,
        "spaces": " " * size,
        "newlines": "\n" * size,
        "random base64": base64.b64encode(rng.randbytes(size * 3 // 4)).decode(),
        "one CJK character": "中" * (size // 3),
        "random letters": "".join(rng.choices(letters, k=size)),
    }


def patiently(encode: Callable[[str], Any], text: str) -> tuple[float | None, Any]:
    """Time a text, after halves of it; (None, None) if it would take too long.

    A quadratic library takes four times as long for twice the text.
    """
    for parts in (16, 8, 4, 2):
        some = text[: len(text) // parts]
        if timed(lambda some=some: encode(some)) * 4 > PATIENCE:
            return None, None
    return timed_result(lambda: encode(text))


def coldly(tokenizer: bpe_tokenizer.BPETokenizer, text: str) -> tuple[float, Any]:
    """Time a text with an empty cache; three times if that is quick."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < 0.5:
        tokenizer.clear_cache()
        seconds, ids = timed_result(lambda: tokenizer.encode(text))
        times.append(seconds)
    return statistics.median(times), ids


def timed_result(run: Callable[[], Any]) -> tuple[float, Any]:
    """Time a call, and return its result, too."""
    started = time.process_time()
    result = run()
    return time.process_time() - started, result


def attempt(run: Callable[[str], tuple[float | None, Any]], text: str) -> tuple[Any, Any]:
    """Time a text; return a word instead of the time if it is skipped or fails."""
    try:
        with no_garbage_collection():
            seconds, ids = run(text)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic in Rust is not an Exception
        return "fails", None
    return (f"> {PATIENCE:g} s" if seconds is None else seconds * 1e3), ids


def measure_worst_cases(vocabulary: Vocabulary, prose: str, size: int) -> Table:
    """Time one long text of each kind, as a multiple of the time for as much prose."""
    calls = [c for c in usable(ENCODE) if c.kind == "list" and c.library != TOKENIZERS_1]
    calls.sort(key=lambda call: not call.is_ours)
    texts = {"prose": prose, **worst_cases(size)}
    short = [tiktoken(vocabulary).encode_ordinary(FIFTY)]
    expected: dict[str, Any] = {}
    rows: dict[str, dict[str, Any]] = {name: {"text": name} for name in texts}
    for call in checked(calls, vocabulary, [FIFTY], lambda call: short):
        tokenizer = call.load(vocabulary)
        how = (coldly, tokenizer) if call.is_ours else (patiently, call.on(tokenizer))
        run = functools.partial(*how)
        run(prose[: size // 4])  # do what happens only once
        for name, text in texts.items():
            taken, ids = attempt(run, text)
            if ids is not None and ids != expected.setdefault(name, ids):
                if call.is_ours:
                    raise SystemExit(f"{name}: the engines differ")
                taken = "not equal"
            usual = rows["prose"].get(f"{call.library}, ms", taken)
            ratio = taken / usual if isinstance(taken, float) and isinstance(usual, float) else None
            rows[name].update({f"{call.library}, ms": taken, f"{call.library}, x prose": ratio})
    return {
        "about": ["worst", vocabulary.name],
        "title": f"encode, {vocabulary.name}: {size / 1e6:g} MB at once, to a list; ours with an "
        "empty cache",
        "rows": list(rows.values()),
    }


# -- What justifies the module's constants ------------------------------------


def measure_scan(vocabulary: Vocabulary, prose: str) -> Table:
    """Time both ways to merge a pre-token, by its length."""
    rng = random.Random(1)
    encoder = ours_in_python(vocabulary)._encoder
    data = prose.encode()
    table = []
    for n_parts in (8, 16, 24, 32, 48, 64, 96, 128, 256):
        starts = [rng.randrange(len(data) - n_parts) for _ in range(20_000 // n_parts)]
        words = [[encoder._byte_ids[byte] for byte in data[s : s + n_parts]] for s in starts]

        def run(merge: Callable[..., list[int]], words: list[list[int]]) -> list[list[int]]:
            return [merge(list(word), encoder._ranks, encoder._merged) for word in words]

        ways = {
            "scan": functools.partial(run, bpe_tokenizer._merge_by_scanning),
            "heap": functools.partial(run, bpe_tokenizer._merge_by_heap),
        }
        assert ways["scan"](words) == ways["heap"](words)
        seconds = interleaved(ways, [words] * SLICES)
        micro = {way: statistics.median(t) / len(words) * 1e6 for way, t in seconds.items()}
        ratio = median_ratio(seconds["heap"], seconds["scan"])
        timings = {f"{way}, us": found for way, found in micro.items()}
        table.append({"parts": n_parts, **timings, "heap / scan": ratio})
    return {
        "about": ["scan", vocabulary.name],
        "title": f"merging one pre-token, {vocabulary.name}; the module scans up to "
        f"{bpe_tokenizer._SCAN_UP_TO} parts",
        "rows": table,
    }


def measure_split(name: str, documents: Sequence[str]) -> Table:
    """Time the two engines at splitting, where both apply."""
    bmp = [document for document in documents if document and ord(max(document)) <= 0xFFFF]
    slices = [bmp[i::SLICES] for i in range(SLICES)]
    table = []
    for pattern_name, pattern in SPLIT_PATTERNS.items():
        splitter = bpe_tokenizer._Splitter(pattern)
        splitter.split("x" * 200_000)  # past the size from which it uses `re`
        assert splitter._fast is not None, pattern_name
        engines = {"regex": splitter._exact.compiled.findall, "re": splitter._fast.findall}
        for document in bmp:
            assert engines["re"](document) == engines["regex"](document), pattern_name
        runs = {e: functools.partial(for_each, find) for e, find in engines.items()}
        seconds = interleaved(runs, slices)
        size = megabytes_of(bmp)
        speeds = {f"{engine}, MB/s": size / sum(times) for engine, times in seconds.items()}
        ratio = median_ratio(seconds["regex"], seconds["re"])
        table.append({"pattern": pattern_name, **speeds, "re / regex": ratio})
    return {
        "about": ["split", name],
        "title": f"splitting {name}, {megabytes_of(bmp):.1f} MB without characters past U+FFFF",
        "rows": table,
    }


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure what the options ask for."""
    texts = corpora(options.corpus, WARM_UP + options.megabytes)
    if options.split:
        return [measure_split(name, documents) for name, documents in texts.items()]
    documents = texts.get("english") or next(iter(texts.values()))
    chosen = vocabularies(options.vocab, documents)
    size = int(options.worst_megabytes * 1e6)
    prose = "".join(documents)[:size]
    if options.scan:
        return [measure_scan(vocabulary, prose) for vocabulary in chosen]
    tables = [
        measure_documents(vocabulary, name, documents)
        for vocabulary in chosen
        for name, documents in texts.items()
    ]
    tables += [measure_short(vocabulary) for vocabulary in chosen]
    two = chosen[:2]  # other vocabularies have the same kinds of patterns
    return tables + [measure_worst_cases(vocabulary, prose, size) for vocabulary in two]


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument(
        "--vocab", nargs="+", default=["cl100k_base"], help=f"of {', '.join(PUBLISHED)}"
    )
    parser.add_argument("--megabytes", type=float, default=3.0, help="to measure, per corpus")
    parser.add_argument(
        "--worst-megabytes", type=float, default=1.0, help="of each worst case, at once"
    )
    parser.add_argument("--scan", action="store_true", help="scanning against the heap")
    parser.add_argument("--split", action="store_true", help="`re` against `regex`")
    return parser


if __name__ == "__main__":
    chosen_options = build_parser().parse_args()
    finish("encode", collect(chosen_options), chosen_options.json)
