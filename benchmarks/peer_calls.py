"""Each call and the nearest call of every other library; bench_roads.py measures them.

Unlike in bench_encode.py, the documents are warm: every library has encoded them once before, when
the results were compared.  So the times show the work around the encoder: lists, batches, tensors.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from common import SLICES, Table, fresh, interleaved, median_ratio, megabytes_of
from elsewhere import Elsewhere, TimedElsewhere
from libraries import (
    TOKENIZERS_1,
    Call,
    Vocabulary,
    fastokens,
    gigatoken,
    is_usable,
    load,
    names,
    ours,
    tiktoken,
    tokenizers,
    tokenizers_1,
)

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL = ["<|im_start|>", "<|im_end|>"]
ROWS = "padding=True, truncation=True, max_length=512, return_tensors='np'"
OURS = "bpe_tokenizer"

# -- Loading ------------------------------------------------------------------


def with_control_tokens(vocabulary: Vocabulary) -> Any:
    """Return our tokenizer with ChatML's control tokens and a pad token."""
    tokenizer = ours(vocabulary)
    tokenizer.add_special_tokens([t for t in CONTROL if t not in tokenizer.special_tokens])
    tokenizer.pad_token = CONTROL[-1]
    return tokenizer


def transformers(vocabulary: Vocabulary) -> Any:
    """Return tokenizers' object, wrapped by transformers."""
    make = importlib.import_module("transformers").PreTrainedTokenizerFast
    hf = with_control_tokens(vocabulary).to_hf()
    return make(tokenizer_object=hf, pad_token=CONTROL[-1])


def gigatoken_hf(vocabulary: Vocabulary) -> Any:
    """Return gigatoken's object with the interface of transformers; it refuses cl100k's pattern."""
    make = importlib.import_module("gigatoken").Tokenizer
    tokenizer = make.from_json(with_control_tokens(vocabulary).to_hf().to_str()).as_hf()
    tokenizer.pad_token = CONTROL[-1]
    return tokenizer


# -- Calls --------------------------------------------------------------------

# Road -> library -> how it is loaded, and the call; `x` is a list of texts, or for the roads of
# IDS a list of lists of ids.  The first peer's result is the one that all others must give.
Roads = dict[str, dict[str, tuple[Callable[[Vocabulary], Any], str]]]
IDS = ("decode", "decode_batch", "decode_streaming")
ROADS: Roads = {
    "encode_batch": {
        "tiktoken": (tiktoken, "it.encode_ordinary_batch(x, num_threads=1)"),
        OURS: (ours, "it.encode_batch(x)['input_ids']"),
        "tokenizers": (tokenizers, "[e.ids for e in it.encode_batch_fast(x)]"),
        TOKENIZERS_1: (tokenizers_1, "[e.ids for e in it.encode_batch(x)]"),
        "transformers": (transformers, "it(x)['input_ids']"),
        "fastokens": (fastokens, "[e.ids for e in it.encode_batch(x)]"),
        "gigatoken": (gigatoken, "it.encode_batch_list(x, parallel=False)"),
        "gigatoken, HF-shaped": (gigatoken_hf, "it(x)['input_ids']"),
    },
    "padded, to NumPy": {
        "transformers": (transformers, f"it(x, {ROWS})['input_ids']"),
        OURS: (with_control_tokens, f"it(x, {ROWS})['input_ids']"),
        "gigatoken, HF-shaped": (gigatoken_hf, f"it(x, {ROWS})['input_ids']"),
    },
    "offsets of a batch": {
        "tokenizers": (tokenizers, "[e.offsets for e in it.encode_batch(x)]"),
        OURS: (ours, "it.encode_batch(x).offsets"),
        "transformers": (transformers, "it(x, return_offsets_mapping=True)['offset_mapping']"),
    },
    "encode_to_numpy": {
        "tiktoken": (tiktoken, "[it.encode_to_numpy(t, disallowed_special=()) for t in x]"),
        OURS: (ours, "[it.encode_to_numpy(t) for t in x]"),
        TOKENIZERS_1: (tokenizers_1, "[it.encode(t).ids_array for t in x]"),
        "fastokens": (
            fastokens,
            "[frombuffer(it.encode_batch_flat([t])[0], uint32) for t in x]",
        ),
        "gigatoken": (gigatoken, "[it.encode(t) for t in x]"),
    },
    'encode(allowed_special="all")': {
        "tiktoken": (tiktoken, "[it.encode(t, allowed_special='all') for t in x]"),
        OURS: (ours, "[it.encode(t, allowed_special='all') for t in x]"),
        "tokenizers": (tokenizers, "[it.encode(t).ids for t in x]"),
        TOKENIZERS_1: (tokenizers_1, "[it.encode(t).ids for t in x]"),
        "fastokens": (fastokens, "[it.encode(t).ids for t in x]"),
    },
    "count_tokens": {
        "tiktoken": (tiktoken, "[len(it.encode_ordinary(t)) for t in x]"),
        OURS: (ours, "[it.count_tokens(t) for t in x]"),
        "tokenizers": (tokenizers, "[len(e) for e in it.encode_batch_fast(x)]"),
        TOKENIZERS_1: (tokenizers_1, "[len(it.encode(t)) for t in x]"),
        "fastokens": (fastokens, "[len(it.encode_ordinary(t)) for t in x]"),
        "gigatoken": (gigatoken, "[len(it.encode(t)) for t in x]"),
    },
    "tokenize": {
        "tokenizers": (tokenizers, "[it.encode(t).tokens for t in x]"),
        OURS: (ours, "[it.tokenize(t) for t in x]"),
        TOKENIZERS_1: (tokenizers_1, "[it.tokenize(t) for t in x]"),
        "transformers": (transformers, "[it.tokenize(t) for t in x]"),
        "gigatoken, HF-shaped": (gigatoken_hf, "[it.tokenize(t) for t in x]"),
    },
    "decode": {
        "tiktoken": (tiktoken, "[it.decode(i) for i in x]"),
        OURS: (ours, "[it.decode(i) for i in x]"),
        "tokenizers": (tokenizers, "[it.decode(i) for i in x]"),
        TOKENIZERS_1: (tokenizers_1, "[it.decode(i) for i in x]"),
        "transformers": (transformers, "[it.decode(i) for i in x]"),
        "fastokens": (fastokens, "[it.decode(i) for i in x]"),
        "gigatoken": (gigatoken, "[it.decode(i).decode() for i in x]"),
        "gigatoken, HF-shaped": (gigatoken_hf, "[it.decode(i) for i in x]"),
    },
    "decode_batch": {
        "tiktoken": (tiktoken, "it.decode_batch(x, num_threads=1)"),
        OURS: (ours, "it.decode_batch(x)"),
        "tokenizers": (tokenizers, "it.decode_batch(x)"),
        "transformers": (transformers, "it.batch_decode(x)"),
        "fastokens": (fastokens, "it.decode_batch(x)"),
        "gigatoken, HF-shaped": (gigatoken_hf, "it.batch_decode(x)"),
    },
    "decode_streaming": {
        "tokenizers": (tokenizers, "[stream(it, i) for i in x]"),
        OURS: (ours, "[''.join(it.decode_streaming(i)) for i in x]"),
    },
    "apply_chat_template": {
        "transformers": (
            transformers,
            "[it.apply_chat_template([{'role': 'user', 'content': t}], chat_template=CHATML, "
            "add_generation_prompt=True, return_dict=False) for t in x]",
        ),
        OURS: (
            with_control_tokens,
            "[it.apply_chat_template([{'role': 'user', 'content': t}], CHATML) for t in x]",
        ),
    },
}


def stream(tokenizer: Any, ids: Sequence[int]) -> str:
    """Decode ids one by one, as HuggingFace does."""
    decoder = importlib.import_module("tokenizers").decoders.DecodeStream(skip_special_tokens=True)
    steps = (decoder.step(tokenizer, id_) for id_ in ids)
    return "".join(step for step in steps if step)


def named(tokenizer: Any) -> dict[str, Any]:
    """Return what the expressions may name."""
    return names(it=tokenizer, stream=stream, CHATML=CHATML)


# -- Measuring ----------------------------------------------------------------


class Road:
    """One call, and the libraries that are usable, loaded and right."""

    def __init__(self, name: str, vocabulary: Vocabulary, loaded: dict[Any, Any]) -> None:
        """Load what is not loaded yet; one tokenizer serves all calls of its library."""
        self.name = name
        self.runs: dict[str, Callable[[Any], Any]] = {}
        self.results: dict[str, Callable[[Any], Any]] = {}
        for library, (make, expression) in ROADS[name].items():
            if not is_usable(library):
                continue
            if make not in loaded:
                loaded[make] = load(Call(library, name, make, expression), vocabulary)
            tokenizer = loaded[make]
            if isinstance(tokenizer, Elsewhere):
                self._add_elsewhere(library, tokenizer, expression)
            elif tokenizer is not None:
                run = eval(f"lambda x: {expression}", named(tokenizer))
                self.runs[library] = self.results[library] = run

    def _add_elsewhere(self, library: str, tokenizer: Elsewhere, expression: str) -> None:
        self.results[library] = lambda x: tokenizer.answers(expression, [x])[0]
        self.runs[library] = WholeSlice(tokenizer, expression)

    def check(self, given: Sequence[Any], name: str) -> None:
        """Leave out the peers that differ from the first one; ours must not."""
        expected = None
        for library, results in self.results.items():
            found = listed(results(given))
            expected = found if expected is None else expected
            if found == expected:
                continue
            problem = f"{self.name}, {library}, {name}: not equal"
            if library == OURS:
                raise SystemExit(problem)
            print(f"{problem}; left out", file=sys.stderr)
            del self.runs[library]


class WholeSlice(TimedElsewhere):
    """A call that is given a slice as one input."""

    def seconds(self, inputs: Sequence[Any]) -> float:
        """Make the call; return its CPU time."""
        return super().seconds([inputs])


def listed(result: Any) -> Any:
    """Return arrays, tuples and lists as lists, so that they can be compared."""
    if hasattr(result, "tolist"):
        return result.tolist()
    return [listed(each) for each in result] if isinstance(result, list | tuple) else result


def measure_peers(vocabulary: Vocabulary, name: str, documents: Sequence[str]) -> Table:
    """Compare each call with the nearest one of every peer: how many times as fast ours is."""
    ids = dict(zip(documents, map(tiktoken(vocabulary).encode_ordinary, documents)))
    loaded: dict[Any, Any] = {}
    slices = [list(documents[i::SLICES]) for i in range(SLICES)]
    size = megabytes_of(documents)
    rows = []
    for road in ROADS:
        on_road = Road(road, vocabulary, loaded)
        prepare = functools.partial(prepared, road, ids)
        on_road.check(prepare(documents), f"{vocabulary.name}, {name}")
        seconds = interleaved(on_road.runs, slices, prepare)
        peers = {n: median_ratio(took, seconds[OURS]) for n, took in seconds.items() if n != OURS}
        best = min(peers, key=lambda peer: peers[peer], default=None)
        rows.append(
            {
                "call": road,
                "MB/s": size / sum(seconds[OURS]),
                "x best peer": peers[best] if best else None,
                "best peer": best or "none",
                **{f"x {peer}": ratio for peer, ratio in peers.items()},
            }
        )
    return {
        "about": ["calls", vocabulary.name, name],
        "title": f"calls, {vocabulary.name}, {name}: {size:.1f} MB, warm; how many times as fast "
        "ours is as the nearest call of each peer",
        "rows": rows,
    }


def prepared(road: str, ids: dict[str, list[int]], texts: Sequence[str]) -> list[Any]:
    """Return the input of a call: new strings, or ids."""
    return [ids[text] for text in texts] if road in IDS else fresh(texts)
