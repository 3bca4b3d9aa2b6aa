"""The twin of `sentencepiece.SentencePieceProcessor`, against that library, call by call."""

from __future__ import annotations

import copy
import functools
import io
import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools.dropin.sentencepiece import SentencePieceProcessor

sentencepiece = need("sentencepiece")
numpy = need("numpy")

# The small models lack characters of ASCII, and loading them says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")

CORPUS = [
    "hello world, hello the wide world 1234 5678",
    "  indented   code = foo(bar)  # x",
    "naïve café ﬁne １２３ Ⅷ",
    "日本語 の 文章 です 日本",
    "<x> tag ab abc abcd",
] * 20
FALLBACK = {"byte_fallback": True, "vocab_size": 400}
KEEP = {"remove_extra_whitespaces": False}
NFKC = {"normalization_rule_name": "nmt_nfkc"}
GRID: dict[str, dict[str, Any]] = {
    "plain": {},
    "llama": {**FALLBACK, **KEEP, "pad_id": 3},
    "nfkc": {**NFKC, **FALLBACK},
    "symbols": {"user_defined_symbols": ["<x>", "abcd"], "control_symbols": ["<c>"], **NFKC},
    "bare": {"add_dummy_prefix": False, **KEEP, **FALLBACK},
    "nfkc without prefix": {"add_dummy_prefix": False, **NFKC},
    "suffix": {"treat_whitespace_as_suffix": True, **FALLBACK},
    "ids": {"unk_id": 2, "bos_id": -1, "eos_id": -1, "unk_piece": "[UNK]", "unk_surface": "?"},
}


@functools.cache
def train(name: str) -> bytes:
    """Train one model of the grid."""
    model = io.BytesIO()
    options = {"normalization_rule_name": "identity", "vocab_size": 130, **GRID[name]}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        model_type="bpe",
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


@functools.cache
def theirs(name: str) -> Any:
    return sentencepiece.SentencePieceProcessor(model_proto=train(name))


@pytest.fixture(scope="module", params=GRID)
def pair(request: pytest.FixtureRequest, engine: str) -> tuple[Any, Any]:
    """A model of the grid, in the library's processor and in this one."""
    name = str(request.param)
    return theirs(name), SentencePieceProcessor(model_proto=train(name))


def compare(pair: tuple[Any, Any], call: Callable[[Any], Any]) -> None:
    """Make a call of both; what they return or raise must be the same."""
    found: list[Any] = []
    for each in pair:
        try:
            found.append(call(each))
        except Exception as error:
            found.append(error)
    expected, got = found
    if isinstance(expected, Exception):
        assert isinstance(got, type(expected)), (expected, got)
    elif isinstance(expected, numpy.ndarray):
        assert expected.dtype == got.dtype and expected.tolist() == got.tolist()
    else:
        assert got == expected and type(got) is type(expected)


BITS = [
    *[" "] * 6,
    *"abcdxyq▁1234\n\t\0\u3000\u200béﬁＡが日本ж\u0301\u2047\U0001f600\ufffd",
    *("<x>", "abcd", "hello", "world", "<s>", "</s>", "<unk>", "<c>", "[UNK]", "<0x41>", "   "),
]
CHARS = st.characters(exclude_categories=["Cs"])
TEXTS = st.lists(st.sampled_from(BITS) | CHARS, max_size=14).map("".join)
PLACES = ("offset_mapping", "serialized_proto", "proto")
FLAGS = st.fixed_dictionaries(
    {},
    optional={name: st.booleans() for name in ("add_bos", "add_eos", "reverse", "emit_unk_piece")},
)


# -- Encoding -------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(text=TEXTS, flags=FLAGS)
@example("", {})
@example("▁▁ a  ▁ ▁", {})
@example("  日日q世世 a", {"reverse": True, "add_bos": True})
@example("世<s>世", {"emit_unk_piece": True})
@example("<s>", {"emit_unk_piece": True})
@example("▁0▁", {})
def test_encode(pair: tuple[Any, Any], text: str, flags: dict[str, bool]) -> None:
    for kind in (int, str, bytes, *PLACES):
        compare(pair, lambda it, kind=kind: it.encode(text, return_type=kind))
        compare(pair, lambda it, kind=kind: it.encode(text, out_type=kind, **flags))
        compare(pair, lambda it, kind=kind: it.encode([text, "a"], out_type=kind))
        compare(pair, lambda it, kind=kind: it.encode(text.encode(), out_type=kind))
    compare(pair, lambda it: it.encode(text, out_type="offset_mapping", return_bytes=True))
    compare(pair, lambda it: it.encode(text, out_type="numpy"))
    for call in ("Ids", "Pieces", "Proto", "OffsetMapping", "Numpy"):
        compare(pair, lambda it, call=call: getattr(it, f"EncodeAs{call}")(text))
    compare(pair, lambda it: it.normalize(text))
    compare(pair, lambda it: it.Normalize([text, "b"], with_offsets=True))


@given(flags=FLAGS)
@settings(max_examples=examples(20))
def test_defaults_of_a_processor(engine: str, flags: dict[str, bool]) -> None:
    data, text = train("llama"), "hello 世 world"
    given_to = [
        make(model_proto=data, out_type=str, **flags)
        for make in (sentencepiece.SentencePieceProcessor, SentencePieceProcessor)
    ]
    compare((given_to[0], given_to[1]), lambda it: it.encode(text))
    compare((given_to[0], given_to[1]), lambda it: it.encode(text, add_bos=False, out_type=int))


BROKEN = [b"\xff", b"\xe4\xb8", b"\xad", b"\xf0\x9f\x98", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90"]
RAW = st.lists(
    st.sampled_from([*BROKEN, *map(str.encode, BITS), b"\x01"]) | st.binary(max_size=3), max_size=8
).map(b"".join)


@settings(max_examples=examples(100))
@given(raw=RAW)
@example(b"")
@example(b"   ")
@example(b"\xff")
@example(b"a\xe4\xb8")
@example(b"\xe4\xb8\x01\x96")  # a map may remove what is between
@example(b"\x01\x01")  # or all
@example(b" \x01 \x01")
@example(b"  \xff \xef\xbf\xbd ")
def test_bytes(pair: tuple[Any, Any], raw: bytes) -> None:
    """Bytes may be broken: offsets, surfaces and texts are then those of the bytes."""
    for kind in (int, str, bytes, *PLACES):
        compare(pair, lambda it, kind=kind: it.encode(raw, return_type=kind))
        compare(pair, lambda it, kind=kind: it.encode([raw, "é"], return_type=kind))
        compare(pair, lambda it, kind=kind: it.encode(["é", raw[:0]], return_type=kind))
    for how in ({"reverse": True}, {"emit_unk_piece": True}):
        compare(pair, lambda it, how=how: it.encode(raw, out_type=str, **how))
    if raw.decode("utf-8", "ignore").encode() == raw:  # else their characters are not ours
        compare(pair, lambda it: it.encode_as_offset_mapping(raw, return_bytes=False))
    compare(pair, lambda it: it.encode_as_offset_mapping([raw], return_bytes=True))
    for with_offsets in (None, True):
        compare(pair, lambda it, given=with_offsets: it.normalize(raw, given))
        compare(pair, lambda it, given=with_offsets: it.Normalize([raw, "ﬁé"], given))


@settings(max_examples=examples(60))
@given(
    rows=st.lists(
        st.lists(st.sampled_from([*BROKEN, b"a", b"<0xE4>", "a", "\u2581é", "<0xB8>"]), max_size=4),
        min_size=1,
        max_size=3,
    )
)
@example([[], [b"b"], ["a"]])
@example([["a"], [b"b"]])
@example([[b"<0xE4>", b"\xff", b"<0xB8>"]])
@example([["a", b"\xff"]])
def test_pieces_in_bytes(pair: tuple[Any, Any], rows: list[list[Any]]) -> None:
    """The first piece decides whether text or bytes come out, also of a batch."""
    for kind in (str, bytes, *PLACES):
        compare(pair, lambda it, kind=kind: it.decode(rows, return_type=kind))
        compare(pair, lambda it, kind=kind: it.decode(rows[0], return_type=kind))
    for in_bytes in (True, False):
        call = functools.partial(compare, pair)
        how = {"return_type": "offset_mapping", "return_bytes": in_bytes}
        call(lambda it, how=how: it.decode(rows, **how))
        call(lambda it, how=how: it.decode(rows[0], **how))
    compare(pair, lambda it: it.decode_pieces(rows[-1]))
    compare(pair, lambda it: [it.piece_to_id(row) for row in rows])
    compare(pair, lambda it: it.decode(rows[0][0] if rows[0] else b""))


@pytest.mark.parametrize(
    "call",
    [
        lambda it: it.encode(5),
        lambda it: it.encode(None),
        lambda it: it.encode(("a", "b")),
        lambda it: it.encode(["a", 5]),
        lambda it: it.encode([]),
        lambda it: it.encode("a", out_type="x"),
        lambda it: it.encode("a", out_type=int, return_type=int),
        lambda it: it.encode("a", return_bytes=True),
        lambda it: it.encode("a", num_threads="two"),
        lambda it: it.encode("a", nbest_size=5, alpha=0.3),
        lambda it: it.encode("a", add_bos=True, out_type="offset_mapping"),
        lambda it: it.encode_as_ids("a", out_type=int),
        lambda it: it.decode([5], num_threads="two"),
        lambda it: it.decode([5], return_bytes=True),
        lambda it: it.decode([5], out_type=int),
        lambda it: it.decode([5, "a"]),
        lambda it: it.decode(["a", 5]),
        lambda it: it.decode([5.0]),
        lambda it: it.decode([1.0]),
        lambda it: it.decode({}),
        lambda it: it.id_to_piece({}),
        lambda it: it.decode(5.5),
        lambda it: it.decode([2**40]),
        lambda it: it.decode([100_000]),
        lambda it: it.decode([-1]),
        lambda it: it.decode([[1, 2], 5]),
        lambda it: it.decode([True]),
        lambda it: it.decode(None),
        lambda it: it.decode(""),
        lambda it: it.decode(7),
        lambda it: it.decode("hello"),
        lambda it: it.decode(b"hello"),
        lambda it: it.decode((7, 8)),
        lambda it: it.decode(range(3, 9)),
        lambda it: it.decode(numpy.array([7, 8])),
        lambda it: it.decode(numpy.array([[7, 8], [9, 10]])),
        lambda it: it.decode([[], ["a", "b"]]),
        lambda it: it.decode([[], [7]]),
        lambda it: it.decode([b"hello", b"\xc3\xa9"]),
        lambda it: it.id_to_piece((5, 7)),
        lambda it: it.id_to_piece([5, 100_000]),
        lambda it: it.id_to_piece("a"),
        lambda it: it.id_to_piece(None),
        lambda it: it.id_to_piece([]),
        lambda it: it.piece_to_id(("a", "zzz")),
        lambda it: it.piece_to_id(b"a"),
        lambda it: it.piece_to_id([b"a"]),
        lambda it: it.piece_to_id(5),
        lambda it: it.piece_to_id([5]),
        lambda it: it.piece_to_id(bytearray(b"a")),
        lambda it: it.piece_to_id(memoryview(b"a")),
        lambda it: it.piece_to_id(numpy.array(["a", "b"])),
        lambda it: it.piece_to_id("\ud800"),
        lambda it: it.piece_to_id(["\udcff"]),
        lambda it: it.decode(numpy.array(["a", "b"])),
        lambda it: it.decode(["\udcff"]),
        lambda it: it.decode("\ud800"),
        lambda it: it.normalize([["a"]]),
        lambda it: it.normalize(("a",)),
        lambda it: it.normalize(bytearray(b"a")),
        lambda it: it.encode(bytearray(b"a")),
        lambda it: it["hello"],
        lambda it: it[5],
        lambda it: it.get_score([0, 60]),
        lambda it: it.is_byte([0, 60]),
        lambda it: it.is_byte("a"),
        lambda it: it.nbest_encode("a", nbest_size=-1, out_type="x"),
        lambda it: it.load(),
        lambda it: it.load(model_file="a", model_proto=b"b"),
    ],
)
def test_odd_arguments(pair: tuple[Any, Any], call: Callable[[Any], Any]) -> None:
    compare(pair, call)


# -- Decoding and pieces ----------------------------------------------------------


@settings(max_examples=examples(150))
@given(data=st.data())
def test_decode(pair: tuple[Any, Any], data: st.DataObject) -> None:
    """Any ids and pieces: broken UTF-8 and what no text gives, too."""
    size = len(pair[0])
    ids = data.draw(st.lists(st.integers(0, size - 1), max_size=7))
    known = st.integers(0, size - 1).map(pair[0].id_to_piece)
    pieces = data.draw(st.lists(known | st.sampled_from(BITS), max_size=7))
    for kind in (str, bytes, *PLACES):
        compare(pair, lambda it, kind=kind: it.decode(ids, out_type=kind))
        compare(pair, lambda it, kind=kind: it.decode(pieces, return_type=kind))
        compare(pair, lambda it, kind=kind: it.decode([ids, [7]], out_type=kind))
    compare(pair, lambda it: it.DecodeIds(ids))
    compare(pair, lambda it: it.decode_pieces(pieces))
    compare(pair, lambda it: it.decode([piece.encode() for piece in pieces]))
    compare(pair, lambda it: it.decode(pieces, out_type="offset_mapping", return_bytes=True))


def test_control_symbols_part_bytes(pair: tuple[Any, Any]) -> None:
    """They have no text, but a character doesn't go on after them."""
    ids = {name: pair[0].piece_to_id(name) for name in ("<0xC4>", "<0x85>", "<s>", "</s>", "a")}
    for names in itertools.product(ids, repeat=4):
        row = [ids[name] for name in names]
        compare(pair, lambda it, row=row: it.decode(row))
        compare(pair, lambda it, row=row: it.decode(tuple(row), out_type=bytes))
        compare(pair, lambda it, row=row: it.decode(numpy.array([row, row[::-1]])))
        compare(pair, lambda it, names=names: it.decode_pieces(list(names)))


def test_pieces(pair: tuple[Any, Any]) -> None:
    for id_ in range(-1, len(pair[0]) + 1):
        for call in ("id_to_piece", "get_score", "is_unknown", "IsControl", "is_unused", "IsByte"):
            compare(pair, lambda it, id_=id_, call=call: getattr(it, call)(id_))
    for call in ("bos_id", "eos_id", "pad_id", "unk_id", "GetPieceSize", "vocab_size", "__len__"):
        compare(pair, lambda it, call=call: getattr(it, call)())
    compare(pair, lambda it: it.serialized_model_proto())
    compare(pair, lambda it: [it.PieceToId(it.IdToPiece(id_)) for id_ in range(len(it))])


def test_it_has_all_calls_of_the_library(engine: str) -> None:
    public = {name for name in dir(sentencepiece.SentencePieceProcessor) if name[0] != "_"}
    assert public <= set(vars(SentencePieceProcessor))
    assert issubclass(SentencePieceProcessor, sentencepiece.SentencePieceProcessor)


def test_as_an_object(pair: tuple[Any, Any]) -> None:
    _, ours = pair
    ours = SentencePieceProcessor(model_proto=ours.serialized_model_proto(), add_bos=True)
    if ours.bos_id() < 0:
        ours = pair[1]
    for made in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours), copy.copy(ours)):
        assert made.encode("hello 世") == ours.encode("hello 世")
        assert made.get_score(60) == ours.get_score(60)
        assert made.serialized_model_proto() == ours.serialized_model_proto()
    assert repr(ours) == f"<SentencePieceProcessor of {len(ours)} pieces, by bpe_tokenizer>"


# -- Where it comes from ----------------------------------------------------------


def test_models_from_files(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "spm.model"
    path.write_bytes(train("llama"))
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "</s>"}')  # of somebody else
    expected = theirs("llama").encode("hello 世")
    assert SentencePieceProcessor(str(path)).encode("hello 世") == expected
    assert SentencePieceProcessor.from_file(path, add_bos=True).encode("a")[0] == 1
    assert SentencePieceProcessor.from_proto(train("llama")).bos_id() == 1
    empty = SentencePieceProcessor()
    assert len(empty) == 0
    with pytest.raises(RuntimeError, match="no model is loaded"):
        empty.encode("a")
    assert empty.Load(str(path)) and empty.encode("hello 世") == expected
    with pytest.raises(FileNotFoundError):
        SentencePieceProcessor(str(tmp_path / "none.model"))
    with pytest.raises(FileFormatError, match="^model_proto"):
        SentencePieceProcessor(model_proto=b"nothing")
    path.write_bytes(train("llama")[:-5])
    with pytest.raises(FileFormatError, match=r"^.*spm\.model: "):
        SentencePieceProcessor(path)


def test_a_tokenizer_of_this_library(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(train("llama"))
    for source in (path, tmp_path):
        tokenizer = BPETokenizer.from_file(source)
        ours = tokenizer.as_sentencepiece()
        compare((theirs("llama"), ours), lambda it: it.encode("hello  世", out_type=str))
        compare((theirs("llama"), ours), lambda it: it.get_score(380))
        assert ours.serialized_model_proto() == train("llama")
    tokenizer.add_special_tokens(["<new>"])
    more = tokenizer.as_sentencepiece()
    new = len(theirs("llama"))
    assert (more.id_to_piece(new), more.is_control(new), more.get_score(new)) == (
        "<new>",
        True,
        0.0,
    )
    assert more.decode([new]) == "" and more.get_score(380) == ours.get_score(380)
    with pytest.raises(ValueError, match="more tokens than its SentencePiece model"):
        more.serialized_model_proto()


def test_a_tokenizer_without_its_model(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(train("llama"))
    saved = tmp_path / "saved"
    BPETokenizer.from_file(path).save(saved, verbose=False)
    tokenizer = BPETokenizer.from_file(saved)
    ours = tokenizer.as_sentencepiece()
    both = theirs("llama"), ours
    for id_ in range(len(ours)):
        for call in ("id_to_piece", "is_unknown", "is_control", "is_byte", "is_unused"):
            compare(both, lambda it, id_=id_, call=call: getattr(it, call)(id_))
    for call in ("bos_id", "eos_id", "unk_id"):
        compare(both, lambda it, call=call: getattr(it, call)())
    for text in ("hello 世 world", " a", ""):
        compare(both, lambda it, text=text: it.encode(text, out_type=str, add_bos=True))
        compare(both, lambda it, text=text: it.decode(it.encode(text, out_type=str)))
        compare(both, lambda it, text=text: it.decode(it.encode(text, add_bos=True)))
    with pytest.raises(
        ValueError, match=r"get_score needs a SentencePiece model.*as_sentencepiece\(model_file\)"
    ):
        ours.get_score(3)
    with pytest.raises(ValueError, match="serialized_model_proto needs a SentencePiece model"):
        ours.serialized_model_proto()
    with pytest.raises(ValueError, match="offsets or messages needs a SentencePiece model"):
        ours.decode([300], out_type="offset_mapping")
    known = tokenizer.as_sentencepiece(model_file=path)
    compare((both[0], known), lambda it: it.get_score(380))
    compare((both[0], known), lambda it: it.encode(" a  世", out_type="offset_mapping"))
    compare((both[0], known), lambda it: it.decode([380, 232, 3], out_type="offset_mapping"))
    (saved / "tokenizer.model").write_bytes(train("llama"))
    beside = BPETokenizer.from_file(saved).as_sentencepiece()
    compare((both[0], beside), lambda it: it.serialized_model_proto())
    (saved / "tokenizer.model").write_bytes(train("plain"))  # of another tokenizer
    with pytest.raises(ValueError, match="get_score needs a SentencePiece model"):
        BPETokenizer.from_file(saved).as_sentencepiece().get_score(3)
    path.write_bytes(train("plain"))
    with pytest.raises(ValueError, match="doesn't have this model's pieces and ids"):
        tokenizer.as_sentencepiece(path)
    made = pickle.loads(pickle.dumps(ours))
    assert made.encode("hello") == ours.encode("hello") and made.pad_id() == ours.pad_id()


def test_a_model_whose_text_is_normalized_otherwise(engine: str, tmp_path: Path) -> None:
    """tokenizer.json says how text is normalized; the model beside it has the scores."""
    (tmp_path / "tokenizer.model").write_bytes(train("llama"))
    BPETokenizer.from_file(tmp_path).save(tmp_path, verbose=False)
    file = tmp_path / "tokenizer.json"
    data = json.loads(file.read_text("utf-8"))
    data["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    file.write_text(json.dumps(data), "utf-8")
    tokenizer = BPETokenizer.from_file(tmp_path)
    ours = tokenizer.as_sentencepiece()
    assert ours.get_score(380) == theirs("llama").get_score(380)
    found = ours.encode("hello 世", out_type="offset_mapping")
    assert found["ids"] == tokenizer.encode("hello 世") == ours.encode("hello 世")
    assert not found["pieces"][0].startswith("▁")
    assert found["offsets"][0][0] == 0 and found["offsets"][-1] == (6, 7)


def test_a_byte_level_tokenizer(engine: str) -> None:
    tokenizer = BPETokenizer().train(
        "low lower é " * 9, 270, special_tokens=["</s>"], verbose=False
    )
    ours = tokenizer.as_sentencepiece()
    text = "low e\u0301</s>"
    assert ours.encode(text) == tokenizer.encode(text)
    assert ours.encode(text, out_type=str) == tokenizer.tokenize(text)
    assert (
        ours.decode(ours.encode(text, out_type=str))
        == ours.decode(ours.encode(text))
        == "low é</s>"
    )
    assert ours.normalize(text) == "low é</s>"
    assert ours.encode("low", add_eos=True)[-1] == ours.eos_id() == tokenizer.eos_token_id
    assert ours.bos_id() == -1 and not any(ours.is_byte(list(range(len(ours)))))
    found = ours.encode("xé", out_type="offset_mapping")
    assert found["offsets"][0] == (0, 1) and found["offsets"][-1][1] == 2


def test_what_is_refused(engine: str) -> None:
    ours = SentencePieceProcessor(model_proto=train("plain"))
    for call in (
        lambda: ours.encode("a", enable_sampling=True, alpha=0.1, nbest_size=-1),
        lambda: SentencePieceProcessor(model_proto=train("plain"), enable_sampling=True).encode(
            "a"
        ),
        lambda: ours.sample_encode_as_pieces("a", 2, 0.1),
        lambda: ours.NBestEncodeAsIds("a", nbest_size=2),
        lambda: ours.parallel_encode("a", chunk_len=5),
    ):
        with pytest.raises(ValueError, match="not supported; encode|not supported; leave it out"):
            call()
    with pytest.raises(ValueError, match="add_eos: the model has no eos piece"):
        SentencePieceProcessor(model_proto=train("ids")).encode("a", add_eos=True)
