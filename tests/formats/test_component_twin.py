"""The byte-level twin of BPE over characters gives the ids of the original, or there is none."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import component_twin
from bpe_tokenizer_tools.formats.component_twin import Model

tokenizers = need("tokenizers")
HAS_NUMPY = importlib.util.find_spec("numpy") is not None

import tokenizer_files as files  # noqa: E402  (needs the library)

# Vocabularies of a few letters, as here, do lose ordinary text.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")

# Characters whose UTF-8 begins alike, of every length; what the twin itself uses: "▁", a space, and
# the first of its stand-ins; what fallback spells.
CHARS = [
    *("a", "b", "A", ">", "<", " ", "▁", "\n", "\r", "\x00", "\x7f", "\x80"),
    *("é", "è", "ʰ", "߿", "ࠀ", "▀", "▂", "一", "丁", "七", "中", "\ufffd", "\uffff"),
    *("\ue000", "\ue001", "\ue07f", "\ue080", "\uf8ff", "😀", "😁", "🙀", "𐀀", "\U0010ffff"),
]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
STEPS: dict[str, tuple[Any, Any]] = {  # normalizer and pre-tokenizer, as the families have them
    "nothing": (None, None),
    "llama 2": (files.LLAMA2.normalizer, None),
    "metaspace": (None, files.metaspace("first", split=False)),
    "metaspace, cut": (None, files.metaspace("always")),
    "gemma": (files.GEMMA.normalizer, files.GEMMA.pre_tokenizer),
    "gemma 4": (files.GEMMA.normalizer, files.split("\n+", "Isolated")),
    "trained here": (
        files.LLAMA2.normalizer,
        files.split(r"[▁][^▁\r\n]*|[^▁\r\n]+|[\r\n]+", "Isolated"),
    ),
    "words": (None, files.named("WhitespaceSplit")),
}


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    """Make the model of a tokenizer.json, over some of the characters."""
    rng = draw(st.randoms(use_true_random=False))
    fallback = draw(st.booleans())
    unknown = draw(st.sampled_from([None, "<unk>", "<unk>", "?"]))
    known = draw(st.lists(st.sampled_from(CHARS), min_size=6, unique=True))
    tokens = dict.fromkeys([*([unknown] if unknown else []), *(BYTES if fallback else []), *known])
    parts = [*known, *known, *(["▁"] if "▁" in known else [])]
    if draw(st.sampled_from([False, False, False, True])):  # merges of what stands for others
        parts += [*(["<0xE4>", "<0x0A>"] if fallback else []), *([unknown] if unknown else [])]
    merges: dict[tuple[str, str], None] = {}
    for _ in range(draw(st.integers(0, 25))):
        pair = rng.choice(parts), rng.choice(parts)
        merges[pair] = None
        tokens["".join(pair)] = None
        parts.append("".join(pair))
    ranked = list(merges)
    if draw(st.booleans()):  # they need not come behind those that make their parts
        rng.shuffle(ranked)
    return files._model(
        unk_token=unknown,
        fuse_unk=draw(st.booleans()),
        byte_fallback=fallback,
        ignore_merges=draw(st.sampled_from([False, False, True])),
        vocab={token: id_ for id_, token in enumerate(tokens)},
        merges=list(map(list, ranked)),
    )


def load(model: dict[str, Any], steps: tuple[Any, Any], path: Path) -> tuple[BPETokenizer, Any]:
    """Load a model and its steps here and in the other library."""
    family = files.Family(normalizer=steps[0], pre_tokenizer=steps[1], decoder=None)
    text = json.dumps(files._skeleton(family, model))
    path.write_text(text, encoding="utf-8")
    return BPETokenizer.from_file(path), tokenizers.Tokenizer.from_str(text)


PIECES = [*CHARS, *CHARS, *" ▁ab", "  ", "▁▁", " a", "ab", "<0x0A>", "<unk>", "?", "ÿ", "🏽"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


@pytest.mark.parametrize("name", STEPS)
def test_random_models(engine: str, name: str, tmp_path: Path) -> None:
    used = []

    @settings(max_examples=examples(150))
    @given(models(), TEXTS, st.randoms(use_true_random=False))
    def check(model: dict[str, Any], text: str, rng: random.Random) -> None:
        ours, theirs = load(model, STEPS[name], tmp_path / "tokenizer.json")
        encoder: Any = core.encoder(ours)
        used.append(encoder._twin is not None)
        for text in (text, "".join(rng.choices(PIECES, k=100))):
            expected = theirs.encode(text, add_special_tokens=False).ids
            assert ours.encode(text) == expected
            assert ours.count_tokens(text) == len(expected)
            if HAS_NUMPY:
                assert list(ours.encode_to_numpy(text)) == expected
            prepared = core.pipeline(ours, frozenset()).normalize(text)
            assert encoder.encode(prepared) == core.Encoder.encode(encoder, prepared)

    check()
    assert any(used) == (engine == "accelerated")


# -- Which have one ----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["accelerated"], indirect=True)
def test_what_has_a_twin(engine: str, tmp_path: Path) -> None:
    """All families have one but those that merge otherwise, or whose bytes could be confused."""
    without = []
    for name in files.FAMILIES:
        (tmp_path / "tokenizer.json").write_text(files.text(name), encoding="utf-8")
        ours = BPETokenizer.from_file(tmp_path / "tokenizer.json")
        if ours.components and core.encoder(ours)._twin is None:  # type: ignore[attr-defined]
            without.append(name)
    affixes = ["clip", "gpt-1 without Bert's normalizer", "words with an end", "continuing prefix"]
    assert without == [*affixes, "whole words"]


def make_model(**changes: Any) -> Model:
    vocab = {token: i for i, token in enumerate(["<unk>", "▁", *"ab>", "ab", *BYTES])}
    known = Model(vocab, [], [vocab[byte] for byte in BYTES], 0, True, False)
    return known._replace(**changes)


def has_twin(model: Model) -> bool:
    return component_twin.make_twin(model, lambda text: [text], False) is not None


@pytest.mark.parametrize("engine", ["accelerated"], indirect=True)
def test_what_has_none(engine: str) -> None:
    vocab = make_model().vocab
    ab = vocab["a"], vocab["b"]
    assert has_twin(make_model()) and has_twin(make_model(merges=[ab]))
    assert has_twin(make_model(byte_ids=[])) and has_twin(make_model(byte_ids=[], unk_id=None))
    assert not has_twin(make_model(vocab={**vocab, "": 500}))
    assert not has_twin(make_model(vocab={**vocab, "c": vocab["a"]}))
    assert not has_twin(make_model(ignore_merges=True))
    assert has_twin(make_model(ignore_merges=True, byte_ids=[], unk_id=None))
    joined = {**vocab, "a<0x0A>": 500, "<0x0": 501, "A>": 502, "b<unk>": 503, "?": 504}
    joined["a\n"] = 505
    for left, right in (("a", "<0x0A>"), ("<0x0", "A>")):  # with a byte; one makes a byte
        assert not has_twin(make_model(vocab=joined, merges=[(joined[left], joined[right])]))
    assert not has_twin(make_model(vocab=joined, merges=[(joined["b"], 0)], byte_ids=[]))
    assert not has_twin(make_model(vocab=joined, unk_id=joined["?"], byte_ids=[]))
    private = {chr(code): code for code in range(0xE000, 0xF900)}
    assert not has_twin(make_model(vocab={**vocab, **private}))
    assert has_twin(make_model(vocab={**vocab, **dict(list(private.items())[:6000])}))


# -- Cuts --------------------------------------------------------------------------------------


def test_where_text_may_be_cut(engine: str) -> None:
    vocab = {**make_model().vocab, "▁▁": 500, "▁a": 501, ">▁a": 502, "▁<unk>": 503}
    a_word, across = (vocab["▁"], vocab["a"]), (vocab[">"], vocab["▁a"])

    def pieces(text: str, *merges: tuple[int, int], **changes: Any) -> list[str] | None:
        cut = component_twin.free_cut(make_model(vocab=vocab, merges=list(merges), **changes))
        return cut and cut.pattern.findall(text)

    text = "▁▁a>▁a▁b>>▁▁"
    words = ["▁▁a>", "▁a", "▁b>>", "▁▁"]
    assert pieces(text) == pieces(text, a_word) == words
    assert pieces(text, (vocab["▁"], vocab["▁"])) == words
    assert pieces(text, a_word, across) == ["▁▁a>▁a", "▁b>>▁▁"]
    assert pieces(text, (0, vocab["▁a"])) is None  # any character may be unknown
    assert pieces(text, unk_id=None, byte_ids=[]) is None
    assert pieces(text, ignore_merges=True) is None


@pytest.mark.parametrize("engine", ["accelerated"], indirect=True)
def test_the_engine_cuts_words(engine: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Python cuts where an unusual step does, or where a merge has ">" meet a space."""
    cut_in_python: list[list[str]] = []

    def encode_pretokens(pretokens: list[str]) -> list[int]:
        cut_in_python.append(pretokens)
        return []

    for name, text, whole in (
        ("llama 2", "the > cat", True),
        ("llama 2, written anew", "the > cat", True),
        ("gemma", "the > cat", True),
        ("gemma 4", "the\ncat", True),
        ("metaspace first", "the cat", True),
        ("trained here", "the cat\n", True),
        ("no pre-tokenizer", "the cat", False),
    ):
        if name == "trained here":
            ours = BPETokenizer().train("the cat", 270, style="sentencepiece", verbose=False)
        else:
            ours, _ = load_family(name, tmp_path)
        engine_in_c: Any = core.encoder(ours)._engine  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(engine_in_c, "encode_pretokens", encode_pretokens)
            ours.encode(text)
        assert bool(cut_in_python) != whole, name
        cut_in_python.clear()
    vocab = {**make_model().vocab, "▁a": 501, ">▁a": 502}
    merges = [(vocab["▁"], vocab["a"]), (vocab[">"], 501)]
    twin: Any = component_twin.make_twin(make_model(vocab=vocab, merges=merges), list, False)
    assert twin.encode("a>▁a▁b") == [vocab["a"], 502, vocab["▁"], vocab["b"]]
    monkeypatch.setattr(twin.encoder, "encode_pretokens", encode_pretokens)
    twin.encode("a>▁a▁b")
    twin.encode("a▁a▁b>b")
    assert cut_in_python == [["a> a", " b"]]


@pytest.mark.parametrize("engine", ["accelerated"], indirect=True)
def test_pieces_are_looked_up_by_the_engine(engine: str, tmp_path: Path) -> None:
    ours, _ = load_family("llama 2", tmp_path)
    assert ours.get_cache_stats()["misses"] == 0
    ours.encode("the cat and the dog and the \u0bf5 \u0bf5")
    stats = ours.get_cache_stats()
    assert (stats["hits"], stats["misses"]) == (4, 5)
    assert core.Encoder.cache_info(core.encoder(ours)) == (0, 0, 0)  # nothing in Python
    ours.clear_cache()
    assert ours.get_cache_stats()["size"] == 0


def load_family(name: str, folder: Path) -> tuple[BPETokenizer, Any]:
    """Load one of the families here and in the other library."""
    (folder / "tokenizer.json").write_text(files.text(name), encoding="utf-8")
    theirs = tokenizers.Tokenizer.from_str(files.text(name))
    return BPETokenizer.from_file(folder / "tokenizer.json"), theirs


def test_surrogates_are_named_by_their_place(engine: str, tmp_path: Path) -> None:
    for name in ("llama 2", "unknown characters together"):
        ours, _ = load_family(name, tmp_path)
        with pytest.raises(ValueError, match=r"lone surrogate U\+D800 at character"):
            ours.encode("the \u0bf5 \ud800")


def test_long_runs_take_as_long_as_other_text(engine: str, tmp_path: Path) -> None:
    for name in ("llama 2", "llama 2, merging across words", "gemma"):
        ours, theirs = load_family(name, tmp_path)
        for text in ("a" * 100_000, " " * 100_000, "> " * 50_000, "\u0bf5" * 30_000):
            assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids


# -- Decoding ----------------------------------------------------------------------------------

DECODERS = {
    name: family.decoder
    for name, family in files.FAMILIES.items()
    if name in ("llama 2", "gemma", "metaspace always", "words with an end", "bloom")
} | {
    "nothing": None,
    "strip much": files.decoders(
        "ByteFallback", "Fuse", files.strip("▁", 1000, 0), files.replace("▁", " ")
    ),
    "strip each": files.decoders(files.strip("▁", 1, 0), files.replace("▁", ""), "ByteFallback"),
    "ends, then strip": files.decoders(
        {"type": "BPEDecoder", "suffix": "▁"}, "Fuse", files.strip("a", 2, 0)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_decoding_by_a_table(engine: str, name: str, tmp_path: Path) -> None:
    """It is what decoding piece by piece gives, and what the other library does."""
    tokens = [
        *BYTES,
        *(char for char in CHARS if char != " "),
        "▁▁",
        "▁a",
        "a▁",
        "ab▁",
        "a</eow>",
        "aa",
        "<0x4g>",
        "Ġa",
        "<unk>",
    ]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    model = files._model(vocab=vocab, byte_fallback=True)
    family = files.Family(None, decoder=DECODERS[name], added=files.tokens("<unk>"))
    file = files._skeleton(family, model)
    file["added_tokens"] = [{"id": vocab["<unk>"], **files.token("<unk>")}]
    (tmp_path / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
    ours = BPETokenizer.from_file(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_str(json.dumps(file))
    encoder: Any = core.encoder(ours)
    usual = [vocab[token] for token in ("▁", "a", "▁a", "▁▁", "a▁", "ab▁", "a</eow>", "<0xE2>")]
    some = st.sampled_from([*usual, *usual, *vocab.values()])
    gone = [len(vocab), 2**40, -1]

    @settings(max_examples=examples(100))
    @given(st.lists(some, max_size=12), st.lists(st.sampled_from(gone), max_size=1))
    def check(ids: list[int], unknown: list[int]) -> None:
        written = theirs.decode(ids, skip_special_tokens=False)
        if "\ufffd" not in written:  # what stands for broken bytes is each library's own
            assert ours.decode(ids) == written
        mixed = [*ids[:3], *unknown, *ids[3:]]
        for errors in ("replace", "ignore"):
            pieces = b"".join(encoder.decode_pieces(mixed, errors))
            assert ours.decode_bytes(mixed, errors=errors) == pieces
            assert ours.decode_bytes(iter(mixed), errors=errors) == pieces
        if unknown:
            with pytest.raises(ValueError, match=f"id {unknown[0]} is not in the vocabulary"):
                ours.decode_bytes(mixed)
        for wrong in (1.0, "a", None):
            with pytest.raises(TypeError, match="sequence of integers"):
                ours.decode([*ids, wrong])

    check()
    assert encoder._later._fast is None
    for _ in range(2):  # the table of the engine is made when enough was decoded
        ours.decode([vocab["a"]] * 40_000)
    has_table = name in ("llama 2", "gemma", "strip much")  # where no more than two decode alike
    assert (encoder._later._fast is not None) == (engine == "accelerated" and has_table)
    check()


@pytest.mark.parametrize("engine", ["accelerated"], indirect=True)
def test_what_the_engine_can_decode(engine: str) -> None:
    pieces = {i: bytes([i]) for i in range(256)}
    make = component_twin.make_decoder
    made = make(pieces | {256: b"A", 300: b"", 301: b"ab", 302: b""})
    assert made and made.decode([256, 65, 300, 301, 302, 0xE9], "strict") == b"AAab\xe9"
    with pytest.raises(ValueError, match="not in the vocabulary"):
        made.decode([257], "strict")
    assert make(pieces | {256: b"A", 257: b"A"}) is None
    assert make(pieces | {256: b"\xe9"}) is None
    assert make({i: piece for i, piece in pieces.items() if i}) is None
