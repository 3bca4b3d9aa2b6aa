"""The cost of each call, in multiples of a plain loop over `encode` on the same documents.

python benchmarks/bench_roads.py

Each call gives the ids of `encode`, or what follows from them; that is checked first.  The
documents are warm: `encode` has seen them before, so the rows show what a call adds.  Two rows are
`encode` of other tokenizers: with added tokens that aren't special, none of them in the text, and
with NFC.

A second table has conversations of 100 turns, in multiples of `encode` on the rendered text, where
control tokens count.  transformers, if it is installed, renders the same template in Jinja.

A third table compares each call with the nearest call of every other library (peer_calls.py).
"""

from __future__ import annotations

import argparse
import statistics
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from common import (
    SLICES,
    Table,
    add_options,
    corpora,
    finish,
    interleaved,
    is_installed,
    megabytes_of,
)
from libraries import PUBLISHED, Vocabulary, vocabularies
from peer_calls import measure_peers

from bpe_tokenizer import AddedToken, BPETokenizer

Road = Callable[[BPETokenizer, Sequence[str]], Any]
_CHUNK = 2_000  # characters
_KEPT = 256  # tokens
_CONTROL = ["<|im_start|>", "<|im_end|>"]
_ALWAYS_FOUND = [
    AddedToken(f"<{name}>", special=False) for name in ("tool_a", "/tool_a", "think_b")
]


def _chunks(text: str) -> list[str]:
    return [text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK)]


def _chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


# Each call, and its goal: at most this many times the loop.
ROADS: dict[str, tuple[Road, float]] = {
    "tokenizer(texts)": (lambda t, x: t(x), 1.3),
    "encode_batch(texts)": (lambda t, x: t.encode_batch(x), 1.3),
    'padding, truncation, return_tensors="np"': (
        lambda t, x: t.encode_batch(
            x, padding=True, truncation=True, max_length=512, return_tensors="np"
        ),
        1.5,
    ),
    "encode_with_offsets, offsets read": (
        lambda t, x: [t.encode_with_offsets(each).offsets for each in x],
        3,
    ),
    "encode_batch(texts), offsets read": (lambda t, x: t.encode_batch(x).offsets, 3),
    "apply_chat_template, chatml": (
        lambda t, x: [t.apply_chat_template(_chat(each), "chatml") for each in x],
        2,
    ),
    f"encode_streaming, {_CHUNK:,} characters": (
        lambda t, x: [list(t.encode_streaming(_chunks(each))) for each in x],
        2,
    ),
    'allowed_special="all"': (lambda t, x: [t.encode(e, allowed_special="all") for e in x], 1.2),
    "add_special_tokens": (lambda t, x: [t.encode(e, add_special_tokens=True) for e in x], 1.1),
    "encode_to_numpy": (lambda t, x: [t.encode_to_numpy(each) for each in x], 1),
    "count_tokens": (lambda t, x: [t.count_tokens(each) for each in x], 0.8),
    "tokenize": (lambda t, x: [t.tokenize(each) for each in x], 3),
    "decode": (lambda t, x: [t.decode(ids) for ids in x], 0.6),
    "decode_batch": (lambda t, x: t.decode_batch(x), 0.7),
}

# `encode` of tokenizers with their own caches: their normalizer, if another, and the goal.  The
# processor's cache has less of their memory, so they are compared with a tokenizer in the same
# position, made the same way: one that is mapped from a file is up to 12% faster.
_COLD = "encode, once"
_TRUNCATED = f"truncate to {_KEPT}, times encode of that"
OTHERS: dict[str, tuple[str | None, float]] = {
    _COLD: (None, 1),
    "encode, added tokens that are not special": (None, 1.2),
    "encode, NFC": ("NFC", 1.1),
}


def _tokenizer(vocabulary: Vocabulary, normalizer: str | None) -> BPETokenizer:
    """Load a vocabulary, with ChatML's control tokens and, if given, a normalizer."""
    tokenizer = BPETokenizer.from_file(vocabulary.path)
    missing = [token for token in _CONTROL if token not in tokenizer.special_tokens]
    tokenizer.add_special_tokens(missing)
    return tokenizer if normalizer is None else _made_again(tokenizer, normalizer)


def _made_again(tokenizer: BPETokenizer, normalizer: str | None) -> BPETokenizer:
    """Make a tokenizer from the merges of another."""
    definition = tokenizer.definition
    vocab = {id_: token for token, id_ in definition.vocab.items()}
    merges = [(vocab[left], vocab[right]) for left, right in definition.merges]
    return BPETokenizer.from_merges(
        vocab, merges, tokenizer.special_tokens, definition.split_pattern, normalizer
    )


def _check(tokenizer: BPETokenizer, documents: Sequence[str]) -> None:
    """Check that every call gives the ids of `encode`."""
    ids = [tokenizer.encode(text) for text in documents]
    assert tokenizer(documents)["input_ids"] == ids
    assert [list(each) for each in map(tokenizer.encode_to_numpy, documents)] == ids
    assert [tokenizer.count_tokens(text) for text in documents] == [*map(len, ids)]
    for text, expected in zip(documents, ids):
        assert tokenizer.encode_with_offsets(text).input_ids == expected
        streamed = tokenizer.encode_streaming(_chunks(text))
        assert [id_ for part in streamed for id_ in part] == expected


def measure(vocabulary: Vocabulary, name: str, documents: Sequence[str], form: str | None) -> Table:
    """Compare the calls on documents."""
    tokenizer = _tokenizer(vocabulary, form)
    _check(tokenizer, documents)
    ids = {text: tokenizer.encode(text) for text in documents}
    others = {road: _made_again(tokenizer, own or form) for road, (own, _) in OTHERS.items()}
    others["encode, added tokens that are not special"].add_special_tokens(_ALWAYS_FOUND)
    for other in others.values():  # encode all of it once, so that they are warm
        for text, given in [(text, other.encode(text)) for text in documents]:
            assert given == ids[text] or not unicodedata.is_normalized("NFC", text)

    def prepared(road: str, texts: Sequence[str]) -> Sequence[Any]:
        return [ids[text] for text in texts] if road.startswith("decode") else texts

    def bound(road: str) -> Callable[[Sequence[str]], Any]:
        call = ROADS[road][0]
        return lambda texts: call(tokenizer, prepared(road, texts))

    runs: dict[str, Callable[[Any], Any]] = {road: bound(road) for road in ROADS}
    runs["encode"] = lambda texts: [tokenizer.encode(each) for each in texts]
    for road, other in others.items():
        runs[road] = lambda texts, t=other: [t.encode(each) for each in texts]
    goals = {road: (goal, "encode") for road, (_, goal) in ROADS.items()}
    kept = {text: tokenizer.truncate(text, _KEPT) for text in documents}
    runs[_TRUNCATED] = lambda texts: [tokenizer.truncate(each, _KEPT) for each in texts]
    runs["encode what is kept"] = lambda texts: [tokenizer.encode(kept[each]) for each in texts]
    goals[_TRUNCATED] = 1.5, "encode what is kept"
    goals.update((road, (goal, _COLD)) for road, (_, goal) in OTHERS.items() if road != _COLD)
    for run in runs.values():  # make now what is made only once, such as printable tokens
        run(documents)
    slices = [list(documents[i::SLICES]) for i in range(SLICES)]
    seconds = interleaved(runs, slices)
    size = megabytes_of(documents)
    rows = [
        {
            "call": road,
            "times encode": statistics.median(
                own / plain for own, plain in zip(seconds[road], seconds[base])
            ),
            "goal": goal,
            "MB/s": size / sum(seconds[road]),
        }
        for road, (goal, base) in goals.items()
    ]
    form_shown = f", {form}" if form else ""
    return {
        "about": ["roads", vocabulary.name, name, str(form)],
        "title": f"calls, {vocabulary.name}{form_shown}, {name}: {size:.1f} MB, warm; "
        f"encode {size / sum(seconds['encode']):.0f} MB/s",
        "rows": rows,
    }


_TURNS, _TURN = 100, 300  # messages of a conversation, and characters of each
_JINJA = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_MASK: dict[str, Any] = {"return_dict": True, "return_assistant_tokens_mask": True}


def _talks(documents: Sequence[str]) -> list[list[dict[str, str]]]:
    text, size = "".join(documents), _TURNS * _TURN
    roles = ("user", "assistant")
    return [
        [
            {"role": roles[i % 2], "content": text[at + i * _TURN : at + (i + 1) * _TURN]}
            for i in range(_TURNS)
        ]
        for at in range(0, len(text) - size, size)
    ]


def measure_chats(vocabulary: Vocabulary, name: str, documents: Sequence[str]) -> Table:
    """Compare ways to encode conversations with encoding their text."""
    tokenizer = _tokenizer(vocabulary, None)
    talks = _talks(documents)
    apply = tokenizer.apply_chat_template
    texts = {id(talk): apply(talk, "chatml", tokenize=False) for talk in talks}
    runs: dict[str, Callable[[Any], Any]] = {
        "encode": lambda x: [tokenizer.encode(texts[id(t)], allowed_special="all") for t in x],
        "apply_chat_template, chatml": lambda x: [apply(talk, "chatml") for talk in x],
        "apply_chat_template, Jinja": lambda x: [apply(talk, _JINJA) for talk in x],
        "the same, with masks": lambda x: [apply(talk, _JINJA, **_MASK)["input_ids"] for talk in x],
    }
    goals = {"apply_chat_template, chatml": 2.0}
    if is_installed("transformers"):
        from transformers import PreTrainedTokenizerFast

        theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizer.to_hf())
        runs["transformers, Jinja"] = lambda x: [
            theirs.apply_chat_template(
                talk, chat_template=_JINJA, add_generation_prompt=True, return_dict=False
            )
            for talk in x
        ]
    expected = runs["encode"](talks[:2])
    for run in runs.values():  # so that they are warm and compiled
        assert run(talks[:2]) == expected
        run(talks)
    seconds = interleaved(runs, [talks[i::SLICES] for i in range(min(SLICES, len(talks)))])
    size = sum(len(text.encode()) for text in texts.values()) / 1e6
    rows = [
        {
            "call": call,
            "times encode": statistics.median(
                own / plain for own, plain in zip(took, seconds["encode"])
            ),
            "goal": goals.get(call),
            "MB/s": size / sum(took),
        }
        for call, took in seconds.items()
        if call != "encode"
    ]
    return {
        "about": ["roads", vocabulary.name, name, "chats"],
        "title": f"conversations of {_TURNS} turns, {vocabulary.name}, {name}: {size:.1f} MB, warm",
        "rows": rows,
    }


def collect(options: argparse.Namespace) -> list[Table]:
    """Measure each vocabulary on each corpus."""
    texts = corpora(options.corpus, options.megabytes)
    used = vocabularies(options.vocab, next(iter(texts.values())))
    tables = [
        measure(vocabulary, name, documents, form)
        for vocabulary in used
        for form in options.normalizer
        for name, documents in texts.items()
    ]
    chats = [
        measure_chats(vocabulary, name, documents)
        for vocabulary in used
        for name, documents in texts.items()
    ]
    peers = [
        measure_peers(vocabulary, name, documents)
        for vocabulary in used
        for name, documents in texts.items()
    ]
    return tables + chats + peers


def build_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    vocab = f"of {', '.join(PUBLISHED)}"
    parser.add_argument("--vocab", nargs="+", default=["o200k_base", "qwen3"], help=vocab)
    parser.add_argument("--megabytes", type=float, default=0.5, help="to measure, per corpus")
    parser.add_argument(
        "--normalizer",
        nargs="+",
        default=[None],
        type=lambda name: None if name == "none" else name,
        help="none, NFC ...; several give a table each",
    )
    return parser


if __name__ == "__main__":
    chosen_options = build_parser().parse_args()
    finish("roads", collect(chosen_options), chosen_options.json)
