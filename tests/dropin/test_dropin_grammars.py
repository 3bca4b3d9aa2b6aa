"""Token bytes, and llguidance's and xgrammar's masks, against those of HuggingFace's tokenizers."""

from __future__ import annotations

import importlib
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import need

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.dropin.grammars import for_llguidance, for_xgrammar

numpy: Any = need("numpy")

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*no token for these characters", "ignore::DeprecationWarning"
)

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-zé ]{0,12}$"},
        "on": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        "n": {"enum": [1, 23, None, "é 世"]},
    },
    "required": ["name", "on", "n"],
    "additionalProperties": False,
}
CORPUS = [
    json.dumps({"name": f"the name {i}", "on": [True, False], "n": "é 世"}, ensure_ascii=False)
    for i in range(100)
]
TEXTS = st.text(
    st.sampled_from(' {}[]":,abtrue12é世\n▁\U0001f600') | st.characters(exclude_categories=["Cs"]),
    max_size=20,
)


def sentencepiece_model(folder: Path, **options: Any) -> BPETokenizer:
    library = need("sentencepiece")
    model = io.BytesIO()
    given = {"vocab_size": 400, "byte_fallback": True, "remove_extra_whitespaces": False}
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        model_type="bpe",
        normalization_rule_name="identity",
        hard_vocab_limit=False,
        minloglevel=2,
        **{**given, **options},
    )
    path = folder / "tokenizer.model"
    path.write_bytes(model.getvalue())
    return BPETokenizer.from_file(path)


@pytest.fixture(scope="module", params=["byte-level", "byte fallback", "metaspace"])
def tokenizer(
    request: pytest.FixtureRequest, engine: str, tmp_path_factory: pytest.TempPathFactory
) -> BPETokenizer:
    """One of each kind."""
    if request.param == "byte fallback":
        return sentencepiece_model(tmp_path_factory.mktemp("model"))
    if request.param == "metaspace":
        made = BPETokenizer(normalizer=None).train(
            CORPUS, 300, style="sentencepiece", byte_fallback=True, verbose=False
        )
        return made
    special = ["<s>", "</s>", "<pad>"]
    return BPETokenizer("llama3").train(CORPUS, 400, special_tokens=special, verbose=False)


# -- The table --------------------------------------------------------------------


@given(text=TEXTS)
def test_bytes_of_tokens_are_those_of_the_text(tokenizer: BPETokenizer, text: str) -> None:
    table = tokenizer.token_bytes()
    ids = tokenizer.encode("x" + text)[1:]
    if tokenizer.components is None:
        expected = tokenizer.decode_bytes(ids)
    else:  # "▁" is how a space is written
        whole = tokenizer.encode("x" + text)
        expected = tokenizer.decode(whole).encode()
        found = b"".join(table[id_] or b"" for id_ in whole)
        assert found in (expected, b" " + expected)
        return
    assert b"".join(table[id_] or b"" for id_ in ids) == expected


def test_each_token_alone(tokenizer: BPETokenizer) -> None:
    """Behind another token, where nothing is stripped, each decodes to its bytes."""
    table = tokenizer.token_bytes()
    special = set(tokenizer.special_tokens.values())
    letter = tokenizer.convert_tokens_to_ids("a")
    assert len(table) == tokenizer.max_id + 1
    for id_, raw in enumerate(table):
        assert (raw is None) == (id_ in special)
        if raw is not None:
            assert tokenizer.decode([letter, id_]) == (b"a" + raw).decode("utf-8", "replace")


def test_special_tokens_and_gaps_have_no_bytes(engine: str) -> None:
    tokenizer = BPETokenizer().train("low " * 9, 258, verbose=False)
    tokenizer.add_special_tokens({"<a>": 260})
    assert tokenizer.token_bytes()[255:] == [b"\xff", b"lo", b"low", None, None, None]


def test_a_vocabulary_with_word_ends_is_refused(engine: str, tmp_path: Path) -> None:
    tokenizers = need("tokenizers")
    theirs = tokenizers.Tokenizer(
        tokenizers.models.BPE({"a": 0, "a</w>": 1}, [], end_of_word_suffix="</w>")
    )
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    theirs.decoder = tokenizers.decoders.BPEDecoder()
    with pytest.raises(ValueError, match="table of token bytes .* prefix or suffix"):
        BPETokenizer.from_hf(theirs).token_bytes()


def test_an_end_is_needed(engine: str) -> None:
    tokenizer = BPETokenizer()
    with pytest.raises(ValueError, match="no eos token; set tokenizer.eos_token, or pass an id"):
        for_llguidance(tokenizer)
    assert for_llguidance(tokenizer, 10).eos_token_id == 10
    with pytest.raises(TypeError):
        for_llguidance(tokenizer, 10)(b"a")  # type: ignore[arg-type]  # it wants text


# -- Both engines -------------------------------------------------------------------


def ids_in(mask: Any, size: int) -> list[int]:
    bits = numpy.unpackbits(numpy.frombuffer(mask, numpy.uint8), bitorder="little")
    return [int(id_) for id_ in numpy.flatnonzero(bits[:size])]


def ready(tokenizer: BPETokenizer) -> int:
    """Return the id that ends a text; the metaspace tokenizer has none of its own."""
    if tokenizer.eos_token_id is None:
        if "</s>" not in tokenizer.special_tokens:
            tokenizer.add_special_tokens(["</s>"])
        tokenizer.eos_token = "</s>"
    eos = tokenizer.eos_token_id
    assert eos is not None
    return eos


def pick(rng: random.Random, table: list[bytes | None], allowed: list[int], eos: int) -> int:
    """Choose a token; white space, of which there may be any amount, seldom."""
    if eos in allowed:
        return eos
    dense = [id_ for id_ in allowed if (table[id_] or b"").strip()]
    return rng.choice(dense if dense and rng.random() < 0.9 else allowed)


def check_text(table: list[bytes | None], ids: list[int]) -> None:
    found = json.loads(b"".join(table[id_] or b"" for id_ in ids))
    assert set(found) == {"name", "on", "n"} and found["n"] in (1, 23, None, "é 世")


def test_llguidance(tokenizer: BPETokenizer, tmp_path: Path) -> None:
    library = need("llguidance")
    eos = ready(tokenizer)
    tokenizer.save(tmp_path, verbose=False)
    theirs_of = importlib.import_module("llguidance.hf").from_tokenizer
    hf = need("transformers").AutoTokenizer.from_pretrained(tmp_path)
    ours = library.LLTokenizer(library.TokenizerWrapper(for_llguidance(tokenizer)))
    theirs = theirs_of(hf, eos_token=eos)
    size, table = tokenizer.max_id + 1, tokenizer.token_bytes()
    assert ours.vocab_size == theirs.vocab_size == size
    for id_ in range(size):
        assert ours.decode_bytes([id_]) == theirs.decode_bytes([id_])
        assert ours.is_special_token(id_) == theirs.is_special_token(id_)
    for text in ("{", ' {"name": "é 世"}', "a  b", "\n", '"on":[true]'):
        assert ours.tokenize_str(text) == theirs.tokenize_str(text)
    grammar = library.LLMatcher.grammar_from_json_schema(SCHEMA)
    for seed in range(8):
        rng = random.Random(seed)
        both = library.LLMatcher(ours, grammar), library.LLMatcher(theirs, grammar)
        ids: list[int] = []
        while not ids or ids[-1] != eos:
            masks = [each.compute_bitmask() for each in both]
            assert masks[0] == masks[1] and not both[0].get_error()
            ids.append(pick(rng, table, ids_in(masks[0], size), eos))
            assert all(each.consume_token(ids[-1]) for each in both)
            assert len(ids) < 500
        check_text(table, ids[:-1])


def test_xgrammar(tokenizer: BPETokenizer, tmp_path: Path) -> None:
    library = need("xgrammar")
    eos = ready(tokenizer)
    tokenizer.save(tmp_path, verbose=False)
    hf = need("transformers").AutoTokenizer.from_pretrained(tmp_path)
    size, table = tokenizer.max_id + 1, tokenizer.token_bytes()
    theirs = library.TokenizerInfo.from_huggingface(hf, vocab_size=size, stop_token_ids=[eos])
    as_there = library.TokenizerInfo(**for_xgrammar(tokenizer, special_tokens_as_text=True))
    ours = library.TokenizerInfo(**for_xgrammar(tokenizer))
    assert as_there.decoded_vocab == theirs.decoded_vocab
    assert as_there.stop_token_ids == theirs.stop_token_ids == [eos]
    assert as_there.add_prefix_space == theirs.add_prefix_space
    special = set(tokenizer.special_tokens.values())
    compiled = [
        library.GrammarCompiler(info).compile_json_schema(json.dumps(SCHEMA))
        for info in (theirs, as_there, ours)
    ]
    for seed in range(8):
        rng = random.Random(seed)
        matchers = [library.GrammarMatcher(each) for each in compiled]
        ids: list[int] = []
        while not ids or ids[-1] != eos:
            masks = []
            for each in matchers:
                mask = library.allocate_token_bitmask(1, size)
                each.fill_next_token_bitmask(mask)
                masks.append(mask.numpy().tobytes())
            assert masks[0] == masks[1]
            allowed = ids_in(masks[2], size)
            may_be_text = {*ids_in(masks[0], size)} - (special - {eos})
            assert {*allowed} == may_be_text  # special tokens never stand in a text
            ids.append(pick(rng, table, allowed, eos))
            assert all(each.accept_token(ids[-1]) for each in matchers)
            assert len(ids) < 500
        check_text(table, ids[:-1])
