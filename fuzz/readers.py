"""What is fuzzed: the readers of files from strangers, small files for them, and what must be true.

A reader gets a folder in which one file was changed.  It either raises a documented error or gives
something that works: what is encoded decodes to the same text, unless a warning said otherwise.
"""

from __future__ import annotations

import base64
import functools
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mutate

from bpe_tokenizer import BPETokenizer, PretokenCounts, count_pretokens
from bpe_tokenizer_tools.scale.packed import open_packed
from bpe_tokenizer_tools.scale.packing import encode_corpus
from bpe_tokenizer_tools.workflow.pipeline import Pipeline
from bpe_tokenizer_tools.workflow.registry import Registry

CORPUS = ["the cat sat on the mat, the dog sat on the log. 12 naïve cafés — 東京 😀\n"] * 3
TEXTS = ["", "the cat", " The dog's  naïve\n\n12345 東京 😀<s>▁", "a\u0301\0<|endoftext|> \t"]
ERRORS = (ValueError, FileNotFoundError, NotADirectoryError, IsADirectoryError)

Folder = dict[str, bytes]  # relative paths and contents


class Reader(NamedTuple):
    """Something that reads files.

    Attributes:
        seeds: folders to begin with.
        files: which of their files are changed, by the ends of their names, and how.
        read: reads a folder, and uses what it gives.
    """

    seeds: Callable[[], list[Folder]]
    files: dict[str, mutate.Mutator]
    read: Callable[[Path], Any]


# -- Seeds ---


def _trained(**options: Any) -> BPETokenizer:
    made = BPETokenizer("gpt2", **{"normalizer": None, **options})
    special = ["<s>", "</s>", "<|endoftext|>"]
    return made.train(CORPUS, vocab_size=290, special_tokens=special, verbose=False)


def _folder(write: Callable[[Path], Any]) -> Folder:
    """Return the files that a function writes to a folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _saved() -> list[Folder]:
    chat = _trained(normalizer="NFC")
    chat.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    return [_folder(lambda folder: chat.save(folder, verbose=False))]


def _component_models() -> Iterator[dict[str, Any]]:
    """Yield data of tokenizer.json whose text is not bytes: as Llama 2 and as Gemma have it."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"thecasonmdgl", "th", "the", "▁the", "▁c", "at", "▁cat"]
    merges = [["t", "h"], ["th", "e"], ["▁", "the"], ["▁", "c"], ["a", "t"], ["▁c", "at"]]
    model = {
        **{"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True},
        **{"byte_fallback": True, "vocab": {piece: i for i, piece in enumerate(pieces)}},
        "merges": merges,
    }
    tokens = [
        {"id": i, "content": piece, "special": True, "lstrip": False, "rstrip": i == 1,
         "single_word": False, "normalized": i == 2}
        for i, piece in enumerate(pieces[:3])
    ]  # fmt: skip
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    ends = [{"type": "ByteFallback"}, {"type": "Fuse"}]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    around = {
        **{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
           {"Sequence": {"id": "A", "type_id": 0}}], "pair": []},
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }  # fmt: skip
    same = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens}
    yield {
        **same,
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "▁"}, space],
        },
        "pre_tokenizer": None,
        "post_processor": around,
        "decoder": {"type": "Sequence", "decoders": [back, *ends, strip]},
        "model": model,
    }
    yield {
        **same,
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}],
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": r"\s+|\d"},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "Digits", "individual_digits": True},
                {"type": "Punctuation", "behavior": "Isolated"},
                {
                    "type": "Metaspace",
                    "replacement": "▁",
                    "prepend_scheme": "always",
                    "split": True,
                },
            ],
        },
        "post_processor": None,
        "decoder": {
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": "always",
            "split": True,
        },
        "model": model,
    }


def _jsons() -> list[Folder]:
    plain = _saved()[0]["tokenizer.json"]
    return [{"tokenizer.json": plain}] + [
        {"tokenizer.json": json.dumps(data, ensure_ascii=False).encode()}
        for data in _component_models()
    ]


def _exported(name: str, format: str) -> Callable[[], list[Folder]]:
    return lambda: [_folder(lambda folder: _trained().export(folder / name, format))]


def _tekken() -> list[Folder]:
    tokens = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b" c", b"at", b" cat"]
    config = {
        **{"pattern": r"\w+|\W+", "num_vocab_tokens": len(tokens), "version": "v13"},
        **{"default_vocab_size": len(tokens) + 4, "default_num_special_tokens": 4},
    }
    vocab = [
        {"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for i, token in enumerate(tokens)
    ]
    special = [
        {"rank": i, "token_str": text, "is_control": True}
        for i, text in enumerate(["<unk>", "<s>", "</s>", "[INST]"])
    ]
    data = {"config": config, "vocab": vocab, "special_tokens": special}
    return [{"tekken.json": json.dumps(data).encode()}]


def _sentencepiece() -> list[Folder]:
    """A model of type BPE, as Llama 2's: pieces, how it was trained, how text is normalized."""
    kinds = {"<unk>": 2, "<s>": 3, "</s>": 3}
    pieces = [*kinds, *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁t", "he", "▁the", "at", "▁", *"thecasonmdgl"]
    made = []
    for i, piece in enumerate(pieces):
        kind = kinds.get(piece, 6 if piece.startswith("<0x") else 1)
        score = mutate.FLOAT.pack(-float(i))
        fields = [(1, 2, piece.encode()), (2, 5, score), (3, 0, kind)]
        made.append((1, 2, mutate.message(fields)))
    trainer = mutate.message([(3, 0, 2), (35, 0, 1), (40, 0, 0), (41, 0, 1), (42, 0, 2)])
    normalizer = mutate.message([(1, 2, b"identity"), (3, 0, 1), (4, 0, 0), (5, 0, 1)])
    return [{"tokenizer.model": mutate.message([*made, (2, 2, trainer), (3, 2, normalizer)])}]


def _counts() -> list[Folder]:
    return [_folder(lambda folder: count_pretokens(CORPUS).save(folder / "counts.json"))]


def _packed() -> list[Folder]:
    def write(folder: Path, layout: str) -> None:
        corpus = folder / "corpus.txt"
        corpus.write_text("".join(CORPUS), encoding="utf-8")
        encode_corpus(_trained(), [corpus], folder / "packed", eot="</s>", format=layout)
        corpus.unlink()

    layouts = ("bin", "megatron")
    return [_folder(functools.partial(write, layout=layout)) for layout in layouts]


def _registry() -> list[Folder]:
    return [_folder(lambda folder: Registry(folder).register(_trained(), "tiny"))]


def _recipe() -> list[Folder]:
    recipe = {
        "corpus": {
            **{"target_size": "1KB", "held_out": "0.1KB", "seed": 1},
            "sources": [{"name": "a", "path": "corpus.txt", "fraction": 1, "upsample": True}],
        },
        "train": {"vocab_size": 280, "pattern": "gpt2", "special_tokens": ["<s>"]},
        "evaluate": {"texts": {"own": ["corpus.txt"]}, "parallel": {"a": "corpus.txt"}},
        "register": {"name": "tiny", "registry": "registry"},
    }
    text = "".join(CORPUS).encode()
    return [{"recipe.json": json.dumps(recipe).encode(), "corpus.txt": text}]


# -- Reading ---


def use(tokenizer: BPETokenizer, warned: bool) -> None:
    """Encode and decode: the text comes back where nothing is lost by design."""
    definition = tokenizer.definition
    exact = not warned and not definition.normalizer and definition.components is None
    if any(token.lstrip or token.rstrip for token in tokenizer.added_tokens):
        exact = False  # such a token takes in the white space beside it
    for text in TEXTS:
        for allowed in ("none", "all"):
            ids = tokenizer.encode(text, allowed_special=allowed)
            back = tokenizer.decode(ids)
            if exact and not definition.prefix_space:
                assert back == text, f"{text!r} came back as {back!r}"
        tokenizer.encode_with_offsets(text)
    tokenizer(TEXTS, padding=tokenizer.pad_token_id is not None)
    assert repr(tokenizer)


def _from_file(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> None:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            tokenizer = BPETokenizer.from_file(folder / name)
        use(tokenizer, bool(said))
        if tokenizer.chat_template:
            render(tokenizer)

    return read


def render(tokenizer: BPETokenizer) -> None:
    """Render a conversation by the template that was read."""
    messages = [
        {"role": "user", "content": "Hi <s> there"},
        {"role": "assistant", "content": "Yo."},
    ]
    tokenizer.apply_chat_template(messages, tokenize=False)
    tokenizer.apply_chat_template(messages)


def _read_template(folder: Path) -> None:
    tokenizer = _templated()
    tokenizer.chat_template = (folder / "chat_template.jinja").read_bytes().decode()
    render(tokenizer)


@functools.cache
def _templated() -> BPETokenizer:
    return _trained()


def _template() -> list[Folder]:
    texts = [
        """{{ bos_token }}{% for m in messages %}
{% if m['role'] == 'user' %}
[INST] {{ m['content'] | trim }} [/INST]
{% else %}
{{ m.content[::-1] | upper | replace('A', 'b' * 3) }}
{% endif %}
{% endfor %}""",
        """{% macro say(x, n=2) %}
{{ x ~ '!' * n }}
{% endmacro %}
{% set ns = namespace(i=0) %}
{% for m in messages %}
{% set ns.i = ns.i + loop.index %}
{{ say(m.content | tojson) }}
{{ '%5s' % m.role }}
{{ messages | length }}
{% endfor %}{{ ns.i }}""",
    ]
    return [{"chat_template.jinja": text.encode()} for text in texts]


def _read_packed(folder: Path) -> None:
    packed = open_packed(folder / "packed")
    for i in range(min(len(packed), 5)):
        assert len(packed[i]) >= 0
    assert repr(packed)


def _read_registry(folder: Path) -> None:
    registry = Registry(folder)
    assert registry.entries() is not None and registry.problems() is not None
    use(registry.load("tiny"), warned=True)


READERS = {
    "tokenizer.json": Reader(
        _jsons, {"tokenizer.json": mutate.as_json}, _from_file("tokenizer.json")
    ),
    "directory": Reader(_saved, {".json": mutate.as_json}, _from_file(".")),
    "tiktoken": Reader(
        _exported("a.tiktoken", "tiktoken"),
        {".tiktoken": mutate.as_lines},
        _from_file("a.tiktoken"),
    ),
    "tekken": Reader(_tekken, {".json": mutate.as_json}, _from_file("tekken.json")),
    "gguf": Reader(_exported("a.gguf", "gguf"), {".gguf": mutate.as_header}, _from_file("a.gguf")),
    "sentencepiece": Reader(
        _sentencepiece, {".model": mutate.as_protobuf}, _from_file("tokenizer.model")
    ),
    "vocab and merges": Reader(
        _exported("gpt2", "gpt2"),
        {".json": mutate.as_json, ".txt": mutate.as_lines},
        _from_file("gpt2"),
    ),
    "chat template": Reader(_template, {".jinja": mutate.as_lines}, _read_template),
    "counts": Reader(
        _counts,
        {".json": mutate.as_json},
        lambda folder: PretokenCounts.load(folder / "counts.json"),
    ),
    "packed": Reader(
        _packed,
        {".json": mutate.as_json, ".idx": mutate.as_header, ".bin": mutate.as_bytes},
        _read_packed,
    ),
    "registry": Reader(
        _registry, {".json": mutate.as_json, "SHA256SUMS": mutate.as_lines}, _read_registry
    ),
    "recipe": Reader(
        _recipe, {"recipe.json": mutate.as_json}, lambda folder: Pipeline(folder / "recipe.json")
    ),
}
