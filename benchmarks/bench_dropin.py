"""Other libraries' calls, on their own engines and on this one.

python benchmarks/bench_dropin.py

transformers loads a file with and without `patch_transformers`, and answers the same calls; the
results are compared first.  `encode` of this library on the same text is the time that the calls
should come close to.

fastokens patches transformers, too, in a separate process: in this environment if it is installed,
or else in the one whose Python BENCHMARK_FASTOKENS names.  transformers doesn't support tokenizers
1 yet, so that one makes the calls below transformers' own; BENCHMARK_TOKENIZERS_1 names its Python.
Documents are warm (all libraries have seen them) or cold (new to each call).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from common import (
    SLICES,
    Table,
    add_options,
    corpora,
    finish,
    fresh,
    interleaved,
    is_installed,
    median_ratio,
    megabytes_of,
    part,
)
from elsewhere import Elsewhere, TimedElsewhere, python_of_tokenizers_1
from libraries import PUBLISHED, Vocabulary, scratch, vocabularies

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.dropin import patched_transformers
from bpe_tokenizer_tools.formats.loaders import fill_gaps

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# name -> the call of a transformers tokenizer, and the call of tokenizers for it; `x` is texts
# or, for decoding, ids.
CALLS: dict[str, tuple[str, str | None]] = {
    "tok(texts)": ("it(x)['input_ids']", "[each.ids for each in it.encode_batch(x)]"),
    "tok(texts), padding, truncation, np": (
        "it(x, padding=True, truncation=True, max_length=512, return_tensors='np')['input_ids']"
        ".tolist()",
        None,
    ),
    "tok(texts), offsets": (
        "it(x, return_offsets_mapping=True)['offset_mapping']",
        "[each.offsets for each in it.encode_batch(x)]",
    ),
    "tok(text) for each": ("[it(text)['input_ids'] for text in x]", None),
    "tok.encode(text) for each": (
        "[it.encode(text) for text in x]",
        "[it.encode(text).ids for text in x]",
    ),
    "tok.decode(ids) for each": (
        "[it.decode(ids) for ids in x]",
        "[it.decode(ids, False) for ids in x]",
    ),
}
FASTOKENS = (
    "[__import__('fastokens').patch_transformers(),"
    " __import__('transformers').logging.set_verbosity_error(),"
    " __import__('transformers').AutoTokenizer.from_pretrained(x)][-1]"
)
TOKENIZERS_1 = "__import__('tokenizers').Tokenizer.from_file(x + '/tokenizer.json')"


def _peers(folder: str) -> dict[str, Elsewhere]:
    """Load the saved files in other processes, with each installed library that can."""
    fastokens = os.environ.get("BENCHMARK_FASTOKENS")
    if not fastokens and is_installed("fastokens"):
        fastokens = sys.executable
    pythons = {
        "fastokens": (fastokens, FASTOKENS),
        "tokenizers 1": (python_of_tokenizers_1(), TOKENIZERS_1),
    }
    found = {}
    for name, (python, expression) in pythons.items():
        if python:
            try:
                found[name] = Elsewhere(python, expression, folder)
            except RuntimeError as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
    return found


def _expression(call: tuple[str, str | None], name: str) -> str | None:
    return call[1] if name == "tokenizers 1" else call[0]


def _usable(peers: dict[str, Elsewhere], what: str, given: Sequence[Any], expected: Any) -> Any:
    """Return the peers that give the expected result; print which don't."""
    found: dict[str, Callable[[Any], Any]] = {}
    for name, peer in peers.items():
        if expression := _expression(CALLS[what], name):
            try:
                if peer.answers(expression, [given]) == [expected]:
                    found[name] = _Once(peer, expression)
                    continue
                problem = "other results"
            except RuntimeError as error:
                problem = str(error)
            print(f"{name} is left out of {what}: {problem}", file=sys.stderr)
    return found


class _Once(TimedElsewhere):
    """A call with all inputs at once."""

    def seconds(self, inputs: Sequence[Any]) -> float:
        """Make the call; return its CPU time."""
        return super().seconds([list(inputs)])


def _load(vocabulary: Vocabulary) -> tuple[BPETokenizer, Any, Any, str]:
    """Load a vocabulary here, and the saved files with transformers: unpatched, and patched."""
    import transformers

    transformers.logging.set_verbosity_error()  # it warns about each long text
    tokenizer = BPETokenizer.from_file(vocabulary.path)
    folder = scratch() / f"{vocabulary.name}-transformers"
    tokenizer.add_special_tokens(["<|pad|>"])
    tokenizer.pad_token = "<|pad|>"
    tokenizer = fill_gaps(tokenizer)  # fastokens doesn't load ids with gaps
    tokenizer.save(folder, verbose=False)
    load = transformers.AutoTokenizer.from_pretrained
    theirs = load(str(folder))
    with patched_transformers():
        return tokenizer, theirs, load(str(folder)), str(folder)


def measure(vocabulary: Vocabulary, name: str, documents: Sequence[str], warm: bool) -> Table:
    """Compare transformers with itself on this engine, and with other engines."""
    tokenizer, theirs, ours, folder = _load(vocabulary)
    peers = _peers(folder)
    seen, unseen = part(documents, 1)
    measured = seen if warm else unseen
    rows = []
    for text in seen:
        tokenizer.encode(text)
    for i, (what, call) in enumerate(CALLS.items()):
        decodes = "decode" in what
        own = seen if warm else unseen[i :: len(CALLS)]
        slices = [own[i::SLICES] for i in range(SLICES)]
        size = megabytes_of(own)

        def prepared(texts: Sequence[str], decodes: bool = decodes) -> Sequence[Any]:
            return [tokenizer.encode(text) for text in texts] if decodes else fresh(texts)

        run = eval(f"lambda it, x: {call[0]}")
        expected = run(theirs, prepared(seen))
        assert run(ours, prepared(seen)) == expected
        runs: dict[str, Callable[[Any], Any]] = {
            "transformers": lambda x, run=run: run(theirs, x),
            "patched": lambda x, run=run: run(ours, x),
            **_usable(peers, what, prepared(seen), expected),
        }
        if not decodes:
            runs["encode"] = lambda x: [tokenizer.encode(t, allowed_special="all") for t in x]
        seconds = interleaved(runs, slices, prepared)
        bare, rival = map(seconds.get, ("encode", "fastokens"))
        rows.append(
            {
                "call": what,
                "transformers, MB/s": size / sum(seconds["transformers"]),
                **{
                    f"{name}, MB/s": size / sum(seconds[name]) if name in seconds else None
                    for name in ("fastokens", "tokenizers 1")
                },
                "patched, MB/s": size / sum(seconds["patched"]),
                "times": median_ratio(seconds["transformers"], seconds["patched"]),
                "times fastokens": rival and median_ratio(rival, seconds["patched"]),
                "in loops of encode": bare and median_ratio(seconds["patched"], bare),
            }
        )
    for peer in peers.values():
        peer.close()
    size = megabytes_of(measured)
    return {
        "about": ["dropin", "transformers", vocabulary.name, name, "warm" if warm else "cold"],
        "title": f"transformers, {vocabulary.name}, {name}: {size:.1f} MB of documents "
        + ("seen before" if warm else "new to each call"),
        "rows": rows,
    }


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure each vocabulary on each corpus, warm and cold."""
    texts = corpora(options.corpus, options.megabytes + 1)
    return [
        measure(vocabulary, name, documents, warm)
        for vocabulary in vocabularies(options.vocab, next(iter(texts.values())))
        for name, documents in texts.items()
        for warm in ([True, False] if options.cold else [True])
    ]


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    vocab = f"of {', '.join(PUBLISHED)}"
    parser.add_argument("--vocab", nargs="+", default=["qwen3", "o200k_base"], help=vocab)
    parser.add_argument("--megabytes", type=float, default=1.0, help="to measure, per corpus")
    parser.add_argument("--cold", action="store_true", help="new documents, too")
    return parser


if __name__ == "__main__":
    chosen_options = build_parser().parse_args()
    finish("dropin", collect(chosen_options), chosen_options.json)
