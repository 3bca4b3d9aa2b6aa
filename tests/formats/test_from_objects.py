"""Tokenizers from merges, from a tiktoken.Encoding, and from HuggingFace's tokenizers in memory."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import reference
import regex
from hard_text import ATOMS, hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, find_all, need

from bpe_tokenizer import GPT2_SPLIT_PATTERN, SPLIT_PATTERNS, AddedToken, BPETokenizer

EOT, TWICE = "<|endoftext|>", "<|endoftext|><|endoftext|>"
SAMPLE = "It's the fox's tail: isn't it 12345?\n\n\tif a < b:  # the same\r\n" + " ".join(ATOMS)
TEXT = hard_text | st.lists(st.sampled_from([EOT, "<s>", "</s>", "the", " ", "\n"])).map("".join)
CUSTOM = [r"\p{L}+|\s+|[^\p{L}\s]", r"[a-z]+", r"\S+$|\s+|\S", r"a++b?|.+"]

# -- From merges ----------------------------------------------------------------

BYTES = [bytes([byte]) for byte in range(256)]
MERGES = [(b"t", b"h"), (b" ", b"th"), (b"th", b"e"), (b" th", b"e"), (b"l", b"o"), (b"lo", b"w")]
MERGES += [(b"\xc3", b"\xa9"), (b"1", b"2")]
VOCAB = {id_: token for id_, token in enumerate([*BYTES, *(a + b for a, b in MERGES)])}


def naive(text: str, ids: dict[bytes, int], merges: list[tuple[bytes, bytes]]) -> list[int]:
    pieces = find_all(GPT2_SPLIT_PATTERN, text)
    return [ids[part] for piece in pieces for part in reference.encode(piece.encode(), merges)]


@st.composite
def vocabularies(draw: Any) -> tuple[dict[bytes, int], list[tuple[bytes, bytes]]]:
    """Merges of random bytes, in an order that need not be that of ids; ids with gaps."""
    tokens, merges = list(BYTES), []
    for _ in range(draw(st.integers(0, 12))):
        usual = st.sampled_from([b"a", b"b", b" ", b"\xc3", b"\xa9", *tokens[256:]])
        left, right = draw(usual), draw(usual)
        merges.append((left, right))
        tokens += [left + right] * (left + right not in tokens)
    ids = draw(
        st.lists(st.integers(0, 5000), min_size=len(tokens), max_size=len(tokens), unique=True)
    )
    return dict(zip(tokens, ids)), draw(st.permutations(merges))


@settings(max_examples=examples(60))
@given(vocabularies(), st.text(st.sampled_from("aab bé'")), st.booleans())
def test_any_vocabulary_equals_the_naive_encoder(parts: Any, text: str, by_id: bool) -> None:
    ids, merges = parts
    vocab: Any = {id_: token for token, id_ in ids.items()} if by_id else ids
    tokenizer = BPETokenizer.from_merges(vocab, merges)
    ranked = [merge for i, merge in enumerate(merges) if merge not in merges[i + 1 :]]
    assert tokenizer.encode(text) == naive(text, ids, ranked)
    assert tokenizer.decode(tokenizer.encode(text), errors="strict") == text
    assert tokenizer.merges == ranked and tokenizer.normalizer is None


def test_ids_and_files_are_those_of_huggingface(tmp_path: Path) -> None:
    tokenizers = need("tokenizers")
    tokenizer = BPETokenizer.from_merges(VOCAB, MERGES, [EOT], "cl100k", "NFC")
    tokenizer.save(tmp_path, verbose=False)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in (SAMPLE, "the lower 12 the" + EOT + "é e\u0301"):
        ids = tokenizer.encode(text, allowed_special="all")
        assert theirs.encode(text, add_special_tokens=False).ids == ids
    assert BPETokenizer.from_file(tmp_path) == tokenizer
    assert tokenizer.split_pattern == SPLIT_PATTERNS["cl100k"] and tokenizer.normalizer == "NFC"


def test_special_tokens_in_the_vocabulary_keep_their_ids_and_others_come_last() -> None:
    vocab = {**VOCAB, 300: EOT.encode(), 301: b"<|unused|>"}
    for special in (
        [EOT, TWICE, "<|pad|>"],
        [TWICE, "<|pad|>", EOT],
        {TWICE: None, "<|pad|>": None, EOT: 300},
    ):
        tokenizer = BPETokenizer.from_merges(vocab, MERGES, special)
        assert tokenizer.special_tokens[EOT] == 300
        assert sorted(tokenizer.special_tokens.values()) == [300, 302, 303]
        assert tokenizer.vocab_size == len(vocab) + 2
        assert (tokenizer.eos_token, tokenizer.pad_token) == (EOT, "<|pad|>")
    tokenizer = BPETokenizer.from_merges(vocab, MERGES, {"<|a|>": 9000, EOT: 300})
    assert tokenizer.special_tokens == {"<|a|>": 9000, EOT: 300}
    added = BPETokenizer.from_merges(vocab, MERGES, [AddedToken(EOT, lstrip=True)]).added_tokens
    assert added == (AddedToken(EOT, 300, lstrip=True),)


def test_of_special_tokens_that_overlap_the_longest_counts() -> None:
    for special in ([EOT, TWICE], [TWICE, EOT]):
        tokenizer = BPETokenizer.from_merges(VOCAB, MERGES, special)
        ids = tokenizer.encode(f"the {TWICE}{EOT}the{TWICE}{TWICE}", allowed_special="all")
        one, two = tokenizer.special_tokens[EOT], tokenizer.special_tokens[TWICE]
        assert [id_ for id_ in ids if id_ >= len(VOCAB)] == [two, one, two, two]


def test_no_merge_makes_a_special_token_of_its_own_text() -> None:
    parts = [EOT[:i].encode() for i in range(2, len(EOT) + 1)]
    merges = [(part[:-1], part[-1:]) for part in parts] + [(parts[-1], b"!")]
    ids = {token: id_ for id_, token in enumerate([*BYTES, *parts, parts[-1] + b"!"])}
    plain = BPETokenizer.from_merges(ids, merges, split_pattern=r"[\s\S]+")
    assert plain.encode(EOT) == [ids[EOT.encode()]] and plain.encode(EOT + "!") == [
        ids[b"<|endoftext|>!"]
    ]
    tokenizer = BPETokenizer.from_merges(ids, merges, [EOT], r"[\s\S]+")
    eot = tokenizer.special_tokens[EOT]
    assert tokenizer.encode(EOT) == [ids[parts[-2]], ids[b">"]]
    assert tokenizer.encode(EOT + "!", allowed_special="all") == [eot, ids[b"!"]]
    assert tokenizer.decode(tokenizer.encode(EOT + "!")) == EOT + "!"


def changed(**entries: Any) -> dict[Any, Any]:
    vocab: dict[Any, Any] = {**VOCAB, **{int(key[1:]): value for key, value in entries.items()}}
    return {id_: token for id_, token in vocab.items() if token is not None}


SWAPPED = {token: id_ for id_, token in VOCAB.items()}
WRONG: dict[str, tuple[Any, ...]] = {
    "vocab is a list": (list(VOCAB.values()), MERGES, TypeError, "vocab must be {id: bytes} or"),
    "vocab is empty": ({}, [], ValueError, "no token for 256 of the 256 bytes (0x00, 0x01, 0x02"),
    "a byte is missing": (changed(_5=None), MERGES, ValueError, "1 of the 256 bytes (0x05)"),
    "a token as text": (
        changed(_300="ab"),
        MERGES,
        TypeError,
        "{300: 'ab'}; tokens written as str",
    ),
    "ids of bytes": ({**SWAPPED, b"ab": "300"}, MERGES, TypeError, "got {b'ab': '300'}"),
    "both directions": ({**VOCAB, b"ab": 300}, MERGES, TypeError, "got {b'ab': 300}"),
    "a bool as id": ({**SWAPPED, b"ab": True}, MERGES, TypeError, "got {b'ab': True}"),
    "an id below 0": (changed(**{"_-1": b"ab"}), MERGES, ValueError, "expected an id from 0 to"),
    "a huge id": (
        {**SWAPPED, b"ab": 2**31},
        MERGES,
        ValueError,
        "2147483647 for b'ab', got 2147483648",
    ),
    "a byte twice": (changed(_300=b"a"), MERGES, ValueError, "b'a' has two ids, 97 and 300"),
    "an id twice": (
        {**SWAPPED, b"ab": 97},
        MERGES,
        ValueError,
        "b'a' and b'ab' have the same id, 97",
    ),
    "merges as a dict": (VOCAB, {(b"t", b"h"): 0}, TypeError, "merges must be a list"),
    "merges as text": (VOCAB, "t h", TypeError, "merges must be a list of (bytes, bytes)"),
    "no merges": (VOCAB, None, TypeError, "merges must be a list of (bytes, bytes)"),
    "a merge of text": (
        VOCAB,
        [("t", "h")],
        TypeError,
        "merges[0]: expected (bytes, bytes), got ('t'",
    ),
    "a merge of ids": (
        VOCAB,
        [*MERGES, (116, 104)],
        TypeError,
        "merges[8]: expected (bytes, bytes)",
    ),
    "a merge of three": (
        VOCAB,
        [(b"t", b"h", b"e")],
        TypeError,
        "merges[0]: expected (bytes, bytes)",
    ),
    "an unknown left part": (
        VOCAB,
        [(b"xy", b"z")],
        ValueError,
        "merges[0]: b'xy' is not in vocab",
    ),
    "an unknown right part": (
        VOCAB,
        [(b"x", b"yz")],
        ValueError,
        "merges[0]: b'yz' is not in vocab",
    ),
    "an unknown product": (
        VOCAB,
        [*MERGES, (b"x", b"y")],
        ValueError,
        "merges[8]: b'xy' is not in vocab",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_named(wrong: str) -> None:
    vocab, merges, kind, message = WRONG[wrong]
    with pytest.raises(kind) as error:
        BPETokenizer.from_merges(vocab, merges)
    assert message in str(error.value)


def test_wrong_special_tokens_and_options() -> None:
    vocab = {**VOCAB, 300: EOT.encode()}
    for special, kind, message in [
        (EOT, TypeError, "must be a mapping or a list"),
        ([EOT, EOT], ValueError, "is already a token"),
        ({EOT: 5}, ValueError, "has the id 300 in vocab, and 5 in special_tokens"),
        ({"<|new|>": 97}, ValueError, "id 97 is already that of 'a'"),
        (["a"], ValueError, "'a' is already a token, with the id 97"),
        ([b"<s>"], TypeError, "must be a string"),
        (["\ud800"], ValueError, "surrogate"),
    ]:
        with pytest.raises(kind, match=regex.escape(message)):
            BPETokenizer.from_merges(vocab, MERGES, special)
    with pytest.raises(ValueError, match="unknown split pattern 'gpt9'"):
        BPETokenizer.from_merges(VOCAB, MERGES, split_pattern="gpt9")
    with pytest.raises(ValueError, match="is not a regular expression"):
        BPETokenizer.from_merges(VOCAB, MERGES, split_pattern="(")
    with pytest.raises(ValueError, match="normalizer must be one of"):
        BPETokenizer.from_merges(VOCAB, MERGES, normalizer="nfc")


# -- From tiktoken --------------------------------------------------------------


def trained(pattern: str = "llama3", **options: Any) -> BPETokenizer:
    special = options.pop("special", ["<s>", "</s>", "<pad>", "<unk>", EOT])
    options.setdefault("surround", "bos+eos")  # the default differs in HuggingFace
    tokenizer = BPETokenizer(pattern, **options)
    return tokenizer.train(SAMPLE * 3, 400, special_tokens=special, verbose=False, num_workers=1)


@pytest.mark.parametrize("pattern", [*sorted(SPLIT_PATTERNS), *CUSTOM])
def test_to_tiktoken_and_back_is_the_same_tokenizer(pattern: str) -> None:
    need("tiktoken")
    tokenizer = trained(pattern, normalizer=None)
    encoding = tokenizer.to_tiktoken()
    again = BPETokenizer.from_tiktoken(encoding)
    assert again.special_tokens == tokenizer.special_tokens
    assert again._rest() == tokenizer._rest()
    if "$" not in pattern:  # which comes back in another spelling
        assert again.split_pattern == tokenizer.split_pattern

    @settings(max_examples=examples(60))
    @given(TEXT)
    def check(text: str) -> None:
        assert again.encode(text) == tokenizer.encode(text) == encoding.encode_ordinary(text)
        ids = encoding.encode(text, allowed_special="all")
        assert again.encode(text, allowed_special="all") == ids
        assert again.decode(ids) == encoding.decode(ids) == text

    check()


@pytest.mark.parametrize("name", ["r50k_base", "cl100k_base", "o200k_base", "qwen3"])
def test_published_encodings(name: str, load_vocab: Any, corpora: Any) -> None:
    tiktoken = need("tiktoken")
    ranks, meta = load_vocab(name)
    special = meta["special_tokens"]
    theirs = tiktoken.Encoding(
        name, pat_str=meta["pat_str"], mergeable_ranks=ranks, special_tokens=special
    )
    ours = BPETokenizer.from_tiktoken(theirs)
    assert ours.split_pattern in SPLIT_PATTERNS.values()
    assert ours.special_tokens == special and ours.max_id == theirs.max_token_value
    text = "".join(corpora(each)[:50_000] for each in ("english", "code", "multi"))
    text += "".join(special)
    assert ours.encode(text) == theirs.encode_ordinary(text)
    assert ours.encode(text, allowed_special="all") == theirs.encode(text, allowed_special="all")
    again = ours.to_tiktoken()
    assert again._mergeable_ranks == ranks and again._special_tokens == special


def encoding(pattern: str = r"\S+|\s", special: Any = (), **changes: Any) -> Any:
    ranks = {token: id_ for id_, token in enumerate([*BYTES, b"th", b"the"])} | changes.get(
        "ranks", {}
    )
    ranks = {token: rank for token, rank in ranks.items() if rank is not None}
    return need("tiktoken").Encoding(
        "mine", pat_str=pattern, mergeable_ranks=ranks, special_tokens=dict(special)
    )


def test_operations_on_sets_are_as_in_rust() -> None:
    """Kimi's pattern has such."""
    theirs = encoding(r"[\p{L}&&[^e\p{Han}]]+|[\p{Han}]+|e+|[^\p{L}]+")
    ours = BPETokenizer.from_tiktoken(theirs)
    for text in ("the the theethe", "th中the文 e中e&e&&", "[^e] the]"):
        assert ours.encode(text) == theirs.encode(text)
        assert ours.decode(ours.encode(text)) == text
    assert 257 not in ours.encode("the")  # cut before the e


def test_special_tokens_that_share_an_id() -> None:
    theirs = encoding(special={"<a>": 300, "<b>": 300, "<c>": 301})
    ours = BPETokenizer.from_tiktoken(theirs)
    text = "the<a><b><c>"
    assert ours.encode(text, allowed_special="all") == theirs.encode(text, allowed_special="all")


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ({"ranks": {b"a": None}}, "tiktoken.Encoding 'mine': has no token for byte 0x61"),
        ({"special": {"<a>": 300, "<a><b>": 301}}, "'<a><b>' begins with another, '<a>', and"),
        ({"special": {"the": 257}}, "'the' is already a token"),
        ({"special": {"<a>": 2**31}}, "has the id 2147483648; the limit is 2147483647"),
        ({"ranks": {b"xy": 2**31}}, "has the id 2147483648; the limit is 2147483647"),
        ({"pattern": r"\w+|\s+"}, "leaves out '!'; tiktoken drops such text"),
        ({"pattern": r"\s+(?!\S)|\S+"}, "tiktoken drops such text, but this library keeps it"),
        ({"pattern": r"\b{start}|[\s\S]"}, "mine"),
    ],
)
def test_encodings_that_cannot_be_represented(theirs: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        BPETokenizer.from_tiktoken(encoding(**theirs))
    assert message in str(error.value)


def test_a_pattern_that_drops_text_is_refused_in_files_too(tmp_path: Path) -> None:
    BPETokenizer(r"\w+", normalizer=None).export(tmp_path / "x.tiktoken", "tiktoken")
    assert BPETokenizer.from_file(tmp_path / "x.tiktoken").encode("a b") == [97, 32, 98]
    (tmp_path / "x.json").write_text(json.dumps({"pat_str": r"\w+"}))
    with pytest.raises(ValueError, match=r"x\.json: pat_str: the pattern .* leaves out"):
        BPETokenizer.from_file(tmp_path / "x.tiktoken")


@pytest.mark.parametrize("thing", ["cl100k_base", None, {"a": 1}])
def test_what_is_no_encoding(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a tiktoken\.Encoding, got"):
        BPETokenizer.from_tiktoken(thing)
    with pytest.raises(TypeError, match=r"expected a tokenizers\.Tokenizer or a fast"):
        BPETokenizer.from_hf(thing)


# -- From HuggingFace -----------------------------------------------------------

PLACES: dict[str, Any] = {
    "end": ["<s>", "</s>", "<pad>", "<unk>", EOT],
    "inside": {"<s>": 256, "</s>": 300, "<pad>": 257, "<unk>": 258},
    "gaps": {"<s>": 1000, "</s>": 1001, "<pad>": 5000},
}


def same(ours: BPETokenizer, theirs: Any, text: str) -> None:
    """Compare with a tokenizers.Tokenizer, which finds special tokens in every text."""
    ids = theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode(text, allowed_special="all") == ids
    assert ours.encode(text, True, "all") == theirs.encode(text).ids
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        *((pattern, {}) for pattern in [*sorted(SPLIT_PATTERNS), *CUSTOM]),
        *(("gpt2", {"special": special}) for special in PLACES.values()),
        *(("cl100k", {"normalizer": form}) for form in ("NFC", "NFD", "NFKC", "NFKD", None)),
    ],
)
def test_to_hf_and_back_is_the_same_tokenizer(pattern: str, options: Any) -> None:
    need("tokenizers")
    tokenizer = trained(pattern, **options)
    theirs = tokenizer.to_hf()
    again = BPETokenizer.from_hf(theirs)
    assert again == tokenizer

    @settings(max_examples=examples(30))
    @given(TEXT)
    def check(text: str) -> None:
        assert again.encode(text) == tokenizer.encode(text)
        same(again, theirs, text)

    check()


def test_truncation_and_padding_are_kept_as_they_are_from_a_file(tmp_path: Path) -> None:
    need("tokenizers")
    theirs = trained().to_hf()
    theirs.enable_truncation(7)
    theirs.enable_padding(pad_id=398, pad_token="<unk>", pad_to_multiple_of=4)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours, from_file = BPETokenizer.from_hf(theirs), BPETokenizer.from_file(tmp_path)
    texts = ["the quick", SAMPLE]
    for options in ({}, {"truncation": True}, {"truncation": True, "padding": True}):
        expected = from_file.encode_batch(texts, **options)["input_ids"]
        assert ours.encode_batch(texts, **options)["input_ids"] == expected
    assert len(expected[0]) == 8


def sentencepiece_style() -> Any:
    """Llama 2's way: metaspace, byte fallback, no split pattern."""
    tokenizers = need("tokenizers")
    symbols = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁thelow"]
    merges = [("t", "h"), ("▁", "th"), ("l", "o"), ("lo", "w")]
    vocab = {token: i for i, token in enumerate([*symbols, *(a + b for a, b in merges)])}
    model = tokenizers.models.BPE(
        vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    theirs = tokenizers.Tokenizer(model)
    theirs.add_special_tokens(["<unk>", "<s>", "</s>"])
    theirs.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    decoders = tokenizers.decoders
    theirs.decoder = decoders.Sequence(
        [
            *(decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()),
            decoders.Strip(" ", 1, 0),
        ]
    )
    theirs.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return theirs


def test_other_bpe_and_roles_by_name() -> None:
    theirs = sentencepiece_style()
    ours = BPETokenizer.from_hf(theirs)
    assert (ours.bos_token, ours.eos_token, ours.unk_token) == ("<s>", "</s>", "<unk>")
    for text in ("the low", " the  low\n", "é 世</s>the", ""):
        same(ours, theirs, text)


def changed_hf(**fields: Any) -> Any:
    written = json.loads(trained().to_hf().to_str()) | fields
    return need("tokenizers").Tokenizer.from_str(json.dumps(written))


def test_a_role_puts_nothing_around_a_text_that_the_object_does_not() -> None:
    theirs = changed_hf(post_processor=None)
    ours = BPETokenizer.from_hf(theirs)
    assert ours.bos_token == "<s>"
    assert ours.encode("a", add_special_tokens=True) == theirs.encode("a").ids == [97]


def test_text_without_tokens_is_warned_of() -> None:
    models = need("tokenizers").models
    theirs = need("tokenizers").Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    with pytest.warns(UserWarning, match="Tokenizer: .*no token") as caught:
        ours = BPETokenizer.from_hf(theirs)
    assert caught[0].filename == __file__
    assert ours.encode("abab") == theirs.encode("abab").ids


@pytest.mark.parametrize("named", [False, True])
def test_transformers_roles_templates_and_settings(tmp_path: Path, named: bool) -> None:
    transformers = need("transformers")
    tokenizer = trained("qwen2", special=["<s>", "<end>", "<pad>", "<tool>", EOT])
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.to_hf(),
        bos_token="<s>",
        eos_token="<end>",
        pad_token="<pad>",
        model_max_length=512,
        padding_side="left",
    )
    template = "{% for m in messages %}<s>{{ m['content'] }}<end>{% endfor %}"
    templates = {"default": template, **({"tool_use": "{{ tools }}"} if named else {})}
    theirs.chat_template = templates if named else template
    theirs(["a", "the quick"], padding=True, truncation=True, max_length=3)  # leaves its traces
    ours = BPETokenizer.from_hf(theirs)
    roles = (ours.bos_token, ours.eos_token, ours.pad_token, ours.unk_token)
    assert roles == ("<s>", "<end>", "<pad>", None)
    assert ours.chat_templates == templates
    messages = [{"role": "user", "content": "the quick"}]
    ids = theirs.apply_chat_template(messages, tokenize=True, return_dict=False)
    assert ours.apply_chat_template(messages, add_generation_prompt=False) == ids
    texts = ["the", SAMPLE + "<end>x"]
    theirs_batch = theirs(texts, padding=True)
    ours_batch = ours.encode_batch(texts, True, "all", padding=True)
    assert ours_batch["input_ids"] == theirs_batch["input_ids"]
    theirs.save_pretrained(tmp_path)
    from_file = BPETokenizer.from_file(tmp_path)
    assert ours.fingerprint == from_file.fingerprint
    assert ours.chat_templates == from_file.chat_templates and ours._roles == from_file._roles
    assert ours._settings["model_max_length"] == from_file._settings["model_max_length"] == 512


def test_a_saved_tokenizer_through_transformers_is_the_same(tmp_path: Path) -> None:
    transformers = need("transformers")
    tokenizer = trained("o200k")
    tokenizer.save(tmp_path, verbose=False)
    again = BPETokenizer.from_hf(transformers.AutoTokenizer.from_pretrained(str(tmp_path)))
    assert again == tokenizer
    tokenizer = BPETokenizer("o200k").train(SAMPLE, 300, special_tokens=["<s>", "</s>"])
    again = BPETokenizer.from_hf(tokenizer.to_transformers())
    assert again == tokenizer and again.encode("a", True) == tokenizer.encode("a", True)


def test_what_transformers_only_keeps_comes_along(tmp_path: Path) -> None:
    transformers = need("transformers")
    trained("o200k").save(tmp_path / "a", verbose=False)
    path = tmp_path / "a" / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    own = {"processor_class": "P", "image_token": "<s>", "a_key_of_its_own": {"x": [1]}}
    path.write_text(json.dumps({**config, **own}), encoding="utf-8")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "a"))
    BPETokenizer.from_hf(theirs).save(tmp_path / "b", verbose=False)
    saved = json.loads((tmp_path / "b" / path.name).read_text(encoding="utf-8"))
    assert own.items() <= saved.items()
    again = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "b"))
    assert again.image_token_id == theirs.image_token_id
    assert again.special_tokens_map == theirs.special_tokens_map


def others() -> dict[str, Any]:
    tokenizers = need("tokenizers")
    models, Tokenizer = tokenizers.models, tokenizers.Tokenizer
    bert = {"type": "BertNormalizer", "clean_text": True, "lowercase": True}
    bert |= {"handle_chinese_chars": True, "strip_accents": None}
    custom = Tokenizer(models.BPE({"a": 0}, []))
    custom.pre_tokenizer = tokenizers.pre_tokenizers.PreTokenizer.custom(object())
    return {
        "expected 'BPE', got 'WordPiece'": Tokenizer(models.WordPiece({"[UNK]": 0})),
        "expected 'BPE', got 'WordLevel'": Tokenizer(models.WordLevel({"a": 0}, "a")),
        "expected 'BPE', got 'Unigram'": Tokenizer(models.Unigram([("a", 0.0)], 0)),
        "model.dropout: is not supported": Tokenizer(models.BPE({"a": 0}, [], dropout=0.1)),
        "BertNormalizer": changed_hf(normalizer=bert),
        "Tokenizer cannot be read": custom,
    }


def test_other_tokenizers_are_refused_by_name() -> None:
    for message, theirs in others().items():
        with pytest.raises(ValueError) as error:
            BPETokenizer.from_hf(theirs)
        assert message in str(error.value)
    transformers = need("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=trained().to_hf())
    fast.backend_tokenizer.model.dropout = 0.1
    with pytest.raises(ValueError, match=r"model\.dropout: is not supported"):
        BPETokenizer.from_hf(fast)


def test_other_classes_of_the_libraries() -> None:
    transformers, tokenizers = need("transformers"), need("tokenizers")
    with pytest.raises(TypeError, match="save a slow one with save_pretrained"):
        BPETokenizer.from_hf(transformers.ByT5Tokenizer())
    theirs = tokenizers.ByteLevelBPETokenizer()
    theirs.train_from_iterator([SAMPLE], 300, min_frequency=1, show_progress=False)
    ours = BPETokenizer.from_hf(theirs)
    assert ours.vocab_size == 300 and ours.encode(SAMPLE) == theirs.encode(SAMPLE).ids


def test_a_shuffled_vocabulary_comes_back_from_each_library() -> None:
    """Ids that follow no order: merges decide, and tiktoken cannot hold that."""
    need("tokenizers")
    ids = list(range(len(VOCAB)))
    random.Random(5).shuffle(ids)
    tokenizer = BPETokenizer.from_merges(dict(zip(VOCAB.values(), ids)), MERGES, [EOT])
    again = BPETokenizer.from_hf(tokenizer.to_hf())
    assert again.encode(SAMPLE) == tokenizer.encode(SAMPLE)
    with pytest.raises(ValueError, match="tiktoken merges in the order of the new ids"):
        tokenizer.to_tiktoken()


def test_roles_are_found_by_name_in_any_case() -> None:
    vocab = {bytes([i]): i for i in range(256)}
    made = BPETokenizer.from_merges(vocab, [], ["<BOS>", "[EOS]", "[pad]"])
    assert (made.bos_token, made.eos_token, made.pad_token) == ("<BOS>", "[EOS]", "[pad]")
    need("tokenizers")
    again = BPETokenizer.from_hf(made.to_hf())
    roles = again.bos_token, again.eos_token, again.pad_token
    assert roles == ("<BOS>", "[EOS]", "[pad]")
    assert made.encode("a", True) == [256, 97, 257] and again.encode("a", True) == [256, 97]


@pytest.mark.parametrize("pattern", [r"[\p{L}&&[a-z]]+", r"[a-z&&[^b]]+|."])
def test_a_pattern_with_operations_on_sets_must_not_drop_text(pattern: str) -> None:
    tiktoken = need("tiktoken")
    ranks = {bytes([i]): i for i in range(256)}
    encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    assert len(encoding.encode("A1\n")) < 3
    with pytest.raises(ValueError, match="leaves out"):
        BPETokenizer.from_tiktoken(encoding)
    whole = tiktoken.Encoding(
        "x", pat_str=pattern + r"|[\s\S]", mergeable_ranks=ranks, special_tokens={}
    )
    made = BPETokenizer.from_tiktoken(whole)
    assert made.encode("A1b \né") == whole.encode("A1b \né")


def test_merges_make_a_new_tokenizer_with_both_ends() -> None:
    vocab = {bytes([i]): i for i in range(256)}
    made = BPETokenizer.from_merges(vocab, [], ["<s>", "</s>"])
    assert made.encode("a", add_special_tokens=True) == [256, 97, 257]
