"""Training in SentencePiece's style, against the trainer and the files of `tokenizers`."""

from __future__ import annotations

import io
import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import run_command
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer
from bpe_tokenizer import AddedToken, BPETokenizer, count_pretokens
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.training import sentencepiece

tokenizers = need("tokenizers")

# The small vocabularies without byte fallback lack characters of ASCII, and loading says so.  Some
# lines of the real text look like paths.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*no token for these characters"),
    pytest.mark.filterwarnings("ignore:.*looks like a path"),
]

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>"]
TEXTS = [
    "It was the best of times, it was the worst of times, it was the age of wisdom. " * 5,
    "def f(x):\n    return x\n\n\n\tif a:\r\n\t\tb\r\n" * 4,
    "世界你好,今天。日本語とカタカナ 한국어 नमस्ते दुनिया مَرْحَبًا بالعالم שלום Ελλάδα Привет мир " * 4,
    "naïve café e\u0301a\u0300 ﬁne １２３ Ⅷ 🙂🙂 👍🏽 <b>x</b> <0x41> 1 12 123",
]
HARD = [
    *("", " ", "   ", "\n", "a", " a", "a ", "  a  b  ", "\n a\r\n\r\n\tb \n"),
    "It was the worst of wisdom",
    "世界你好 日本語 한국어 नमस्ते مَرْحَبًا שלום สวัสดี Ελλάδα Привет",
    "🙂👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️ 𠮷 \U0010ffff \ue000",
    "▁a ▁▁b <0x41> <0xC3><0xA9> <0xFF> <unk> <s> </s>x",
    "\x00\x01\x7f\x80 \x0b\x0c\x1c \u00a0\u2028\u3000\ufeff \u200b \ufffd",
    "e\u0301 é \u0301x ﬁ ＜s＞ Å",
    "a" * 300 + " " * 50 + "\n" * 30 + "☃" * 40,
]
text = st.text() | st.lists(
    st.sampled_from([*" \nab▁é世☃🙂", "the ", " was", "<s>", "</s>", "<0x41>", "\r\n", "  "])
).map("".join)


def train(corpus: Any, vocab_size: int = 700, **options: Any) -> BPETokenizer:
    """Train quietly and in this process."""
    tokenizer = BPETokenizer(normalizer=options.pop("normalizer", "NFC"))
    options = {"style": "sentencepiece", "num_workers": 1, "verbose": False, **options}
    return tokenizer.train(corpus, vocab_size, **options)


def in_huggingface(tokenizer: BPETokenizer) -> Any:
    """Return what `tokenizers` makes of the file that is saved."""
    return tokenizers.Tokenizer.from_str(json.dumps(core.tokenizer_json_of(tokenizer)))


def alphabet(tokenizer: BPETokenizer) -> list[str]:
    """List the tokens of one character, by id."""
    return [token for token in tokenizer.get_vocab() if len(token) == 1]


def written(merges: Iterable[Sequence[Any]]) -> list[tuple[str, str]]:
    pairs = ((part.decode() if isinstance(part, bytes) else part for part in m) for m in merges)
    return [(left, right) for left, right in pairs]


# -- Which characters ---------------------------------------------------------


def keep(
    documents: Iterable[str], coverage: float, form: str | None
) -> tuple[list[str], list[str]]:
    """Return the characters that get a token, by code point, and the others."""
    counts: Counter[str] = Counter()
    for document in filter(None, documents):
        normal = core.normalize(document, form)
        counts.update("▁" + normal.replace(" ", "▁"))
    kept = {"▁"}
    covered, total = 0, sum(counts.values())
    for char in sorted(counts, key=lambda char: (-counts[char], char)):
        if covered / total < coverage:
            kept.add(char)
            covered += counts[char]
    return sorted(kept), sorted(counts.keys() - kept)


def train_sentencepiece(lines: Iterable[str], vocab_size: int, **options: Any) -> list[str]:
    """Train with `sentencepiece` itself, without changing the text; return pieces by id."""
    model = io.BytesIO()
    library = need("sentencepiece")
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=vocab_size,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        max_sentence_length=10**6,
        minloglevel=2,
        **options,
    )
    trained = library.SentencePieceProcessor(model_proto=model.getvalue())
    return [trained.id_to_piece(id_) for id_ in range(trained.vocab_size())]


def lines_of(document: str) -> list[str]:
    return [line for line in document.split("\n") if line.strip()]


@pytest.mark.parametrize("coverage", [0.98, 0.99, 0.9995, 0.99999, 1.0])
def test_the_alphabet_is_that_of_sentencepiece(
    corpora: Callable[[str], str], coverage: float
) -> None:
    lines = lines_of(corpora("multi")[:100_000])
    pieces = train_sentencepiece(lines, 3_000, character_coverage=coverage)
    expected = [piece for piece in pieces if len(piece) == 1]
    trained = train(lines, 3_000, character_coverage=coverage, normalizer=None)
    assert alphabet(trained) == sorted(expected)


@pytest.mark.parametrize("coverage", [0.98, 0.985, 0.99, 0.995, 1.0])
def test_ties_in_the_alphabet_are_those_of_sentencepiece(coverage: float) -> None:
    rare = "zéЯ世ぬ한𠮷🙂بक" + "".join(map(chr, range(0x100, 0x130)))
    lines = ["ab ba aab " * 40, *rare[::-1], *rare[::3], "x" * 7, "y" * 7]
    pieces = train_sentencepiece(
        lines, 350, character_coverage=coverage, hard_vocab_limit=False, max_sentencepiece_length=2
    )
    expected = [piece for piece in pieces if len(piece) == 1]
    trained = train(lines, 350, character_coverage=coverage, normalizer=None, min_frequency=0)
    assert alphabet(trained) == sorted(expected)


# -- Which merges -------------------------------------------------------------


def train_huggingface(
    like: BPETokenizer,
    documents: Iterable[str],
    left_out: Iterable[str],
    vocab_size: int,
    min_frequency: int = 2,
    max_token_length: int | None = None,
) -> Any:
    """Train with HuggingFace's trainer, and the components of a tokenizer of ours.

    The trainer drops characters that are not in the alphabet, and joins what is on either side; a
    step more cuts there.
    """
    ours = in_huggingface(like)
    options = ours.model.byte_fallback
    model = tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=options)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer, tokenizer.decoder = ours.normalizer, ours.decoder
    steps = [ours.pre_tokenizer]
    chars = "|".join(f"\\x{{{ord(char):X}}}" for char in left_out)
    if chars:
        steps.append(tokenizers.pre_tokenizers.Split(tokenizers.Regex(chars), "removed"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
    chars = alphabet(like)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=[*SPECIAL, *(BYTES if options else ())],
        initial_alphabet=chars,
        limit_alphabet=len(chars),
        max_token_length=max_token_length,
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def assert_equal(ours: BPETokenizer, theirs: Any) -> None:
    merges = json.loads(theirs.to_str())["model"]["merges"]
    assert written(ours.merges) == written(merges)
    assert ours.get_vocab() == theirs.get_vocab()


ALPHABETS = ["ab ", "abc \n", "aé 世☃", "a▁ \r\nb", "ｅﬁÅe\u0301 ", "<0x41> ", "שםا a🙂👍"]


@st.composite
def tied_documents(draw: st.DrawFn) -> list[str]:
    """Make texts of few letters: ties everywhere, and pairs that overlap themselves."""
    chars = st.sampled_from(draw(st.sampled_from(ALPHABETS)))
    documents = draw(st.lists(st.text(chars, max_size=60), min_size=1, max_size=4))
    return documents if any(documents) else ["a"]


@settings(max_examples=examples(300))
@given(
    documents=tied_documents() | st.lists(st.text(min_size=1), min_size=1, max_size=4),
    room=st.integers(0, 60),
    min_frequency=st.integers(0, 3),
    max_token_length=st.none() | st.integers(1, 5),
    coverage=st.sampled_from([1.0, 0.9995, 0.95, 0.8, 0.5, 0.1]),
    byte_fallback=st.booleans(),
    form=st.sampled_from(["NFC", None, "NFKC", "NFD"]),
    few=st.sampled_from([0, 256]),
)
@example(["a☃a a☃a"], 20, 1, None, 0.8, True, "NFC", 0)
@example(["a☃a a☃a"], 20, 1, None, 0.8, True, "NFC", 256)
@example(["aaaa ababab aaaa", "", "ab"], 20, 1, None, 1.0, False, None, 256)
def test_equals_huggingface(
    documents: list[str],
    room: int,
    min_frequency: int,
    max_token_length: int | None,
    coverage: float,
    byte_fallback: bool,
    form: str | None,
    few: int,
) -> None:
    kept, left_out = keep(documents, coverage, form)
    options = {"min_frequency": min_frequency, "max_token_length": max_token_length}
    size = 3 + 256 * byte_fallback + len(kept) + room
    with pytest.MonkeyPatch.context() as patch:  # few characters and many are learned differently
        patch.setattr(sentencepiece, "_FEW", few)
        ours = train(
            documents,
            size,
            character_coverage=coverage,
            byte_fallback=byte_fallback,
            normalizer=form,
            **options,
        )
    assert alphabet(ours)[: len(kept)] == kept
    assert_equal(ours, train_huggingface(ours, documents, left_out, size, **options))


@pytest.mark.parametrize("coverage", [0.9995, 1.0])
@pytest.mark.parametrize("name", ["english", "multi", "code"])
def test_equals_huggingface_on_real_text(
    corpora: Callable[[str], str], name: str, coverage: float
) -> None:
    whole = corpora(name)[:300_000]
    documents = [whole[start : start + 20_000] for start in range(0, len(whole), 20_000)]
    left_out = keep(documents, coverage, "NFC")[1]
    ours = train(documents, 4_000, character_coverage=coverage)
    assert_equal(ours, train_huggingface(ours, documents, left_out, 4_000))


def test_merges_are_nearly_those_of_sentencepiece(corpora: Callable[[str], str]) -> None:
    # It counts pairs again only now and then, breaks ties by length, and by default refuses
    # tokens of two scripts, or of letters and digits; that is switched off.
    lines = lines_of(corpora("english")[:400_000])
    anything = {"split_by_unicode_script": False, "split_by_number": False}
    pieces = train_sentencepiece(lines, 2_500, max_sentencepiece_length=512, **anything)
    theirs = [piece for piece in pieces[259:] if len(piece) > 1]
    ours = [left + right for left, right in written(train(lines, 2_500).merges)]
    assert len(set(theirs[:1_000]) & set(ours[:1_000])) >= 980


@settings(max_examples=examples(30))
@given(documents=st.lists(st.sampled_from(TEXTS) | text, min_size=1, max_size=4), data=st.data())
def test_the_order_of_documents_does_not_matter(documents: list[str], data: st.DataObject) -> None:
    documents = [*documents, "a b"]
    shuffled = data.draw(st.permutations(documents))
    options: dict[str, Any] = {"vocab_size": 900, "min_frequency": 1, "character_coverage": 0.98}
    assert train(documents, **options) == train(shuffled, **options)


def test_files_and_workers_give_the_same(
    corpora: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpe_tokenizer, "_BLOCK_CHARS", 1_000)  # text comes in pieces cut anywhere
    monkeypatch.setattr(bpe_tokenizer._PretokenCounter, "_BATCH_CHARS", 4_000)
    pieces = [corpora("english")[:20_000], "", " a  b", corpora("multi")[:20_000], "\n\n", "\n"]
    path = tmp_path / "corpus.txt"
    path.write_bytes("<|end|>".join(pieces).encode())
    special = ["<|end|>"]
    expected = train([piece for piece in pieces if piece], 1_500, special_tokens=special)
    from_file = train(path, 1_500, special_tokens=special)
    assert from_file == expected
    assert train(path, 1_500, special_tokens=special, num_workers=2) == expected
    report = from_file.training_report
    assert report is not None
    assert (report.documents, report.bytes_read) == (1, path.stat().st_size)


def test_records_are_read(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"body": each}) + "\n" for each in TEXTS))
    assert train(path, text_field="body") == train(TEXTS)


# -- Encoding and decoding ----------------------------------------------------


@pytest.fixture(scope="module", params=[True, False], ids=["bytes", "unk"])
def tokenizer(request: pytest.FixtureRequest, engine: str) -> BPETokenizer:
    return train(TEXTS, byte_fallback=request.param, character_coverage=0.99)


@pytest.fixture(scope="module")
def theirs(tokenizer: BPETokenizer) -> Any:
    return in_huggingface(tokenizer)


def assert_same_ids(ours: BPETokenizer, theirs: Any, given_text: str) -> None:
    expected = theirs.encode(given_text, add_special_tokens=False)
    result = ours.encode_with_offsets(given_text, allowed_special="all")
    assert ours.encode(given_text, allowed_special="all") == expected.ids
    assert (result.input_ids, result.tokens) == (expected.ids, expected.tokens)
    assert ours.decode(expected.ids) == theirs.decode(expected.ids, skip_special_tokens=False)
    streamed = ours.encode_streaming(iter(given_text), allowed_special="all")
    assert [id_ for ids in streamed for id_ in ids] == expected.ids


@pytest.mark.parametrize("given_text", HARD + TEXTS)
def test_ids_are_those_of_huggingface(
    tokenizer: BPETokenizer, theirs: Any, given_text: str
) -> None:
    assert_same_ids(tokenizer, theirs, given_text)


@settings(max_examples=examples(200))
@given(given_text=text)
def test_ids_of_any_text_are_those_of_huggingface(
    tokenizer: BPETokenizer, theirs: Any, given_text: str
) -> None:
    assert_same_ids(tokenizer, theirs, given_text)


@pytest.mark.parametrize("form", ["NFC", None, "NFKC"])
def test_decode_undoes_encode(form: str | None) -> None:
    lossless = train(TEXTS, normalizer=form)

    @settings(max_examples=examples(150))
    @given(given_text=text)
    @example("   ")
    @example(" a\n b ")
    def check(given_text: str) -> None:
        normal = core.normalize(given_text, form)
        ids = lossless.encode(given_text)
        assert lossless.decode(ids) == normal.replace("▁", " ")  # the one character that is lost
        assert "".join(lossless.decode_streaming(iter(ids))) == lossless.decode(ids)

    check()
    for given_text in HARD:
        check.hypothesis.inner_test(given_text)


def test_characters_left_out_become_bytes_or_unknown() -> None:
    documents = ["ab ab ☃ab🙂" + "ab " * 5_000]
    with_bytes = train(documents, 400)
    assert with_bytes.tokenize("ab ☃") == ["▁ab", "▁", "<0xE2>", "<0x98>", "<0x83>"]
    without = train(documents, 20, byte_fallback=False)
    assert without.tokenize("ab ☃🙂 ab") == ["▁ab", "▁", "<unk>", "▁ab"]
    assert without.decode(without.encode("☃ ab"), skip_special_tokens=True) == " ab"
    everything = train(documents, 400, character_coverage=1)
    assert {"☃", "🙂"} <= set(everything.get_vocab())


def test_merges_join_nothing_across_a_character_left_out() -> None:
    documents = ["ab" * 400 + " x☃y" * 9]
    tokenizer = train(documents, 400, character_coverage=0.97)
    assert "☃" not in tokenizer.get_vocab()
    assert not any("xy" in token for token in tokenizer.get_vocab())
    assert "▁x" in tokenizer.get_vocab()


def test_text_that_spells_a_byte_token_does_not_become_it() -> None:
    tokenizer = train(["<0x41>" * 50], 400)
    ids = tokenizer.encode("<0x41>A")
    assert tokenizer.convert_tokens_to_ids("<0x41>") not in ids[:-1]
    assert tokenizer.decode(ids) == "<0x41>A"
    plain = train(["<0x41>" * 50], 40, byte_fallback=False)
    assert plain.decode(plain.encode("<0x41>")) == "<0x41>"


def test_special_tokens_that_normalization_makes_are_no_merges() -> None:
    tokenizer = train(["＜s＞ " * 50], 400, normalizer="NFKC")
    assert tokenizer.encode("＜s＞").count(tokenizer.bos_token_id) == 0  # type: ignore[arg-type]
    assert_same_ids(tokenizer, in_huggingface(tokenizer), "＜s＞ <s> a")


# -- Ids and special tokens ---------------------------------------------------


def test_the_order_of_ids() -> None:
    tokenizer = train(["ab abb " * 9], 266, special_tokens=["<pad>", "<|end|>"])
    found = tokenizer.get_vocab()
    tokens = sorted(found, key=lambda token: found[token])
    assert tokens == [*SPECIAL, *BYTES, *"ab▁", "ab", "▁ab", "<pad>", "<|end|>"]
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    assert (tokenizer.unk_token, tokenizer.pad_token) == ("<unk>", "<pad>")


def test_special_tokens_keep_the_ids_they_are_given() -> None:
    t5 = {"<pad>": 0, "</s>": 1, "<unk>": 2, "<s>": 260, "<far>": 1000}
    tokenizer = train(TEXTS, 460, special_tokens=t5)
    assert tokenizer.special_tokens == t5
    assert tokenizer.vocab_size == 460
    assert tokenizer.max_id == 1000
    assert tokenizer.convert_tokens_to_ids("<0x00>") == 3
    for given_text in HARD:
        assert_same_ids(tokenizer, in_huggingface(tokenizer), given_text)


def test_a_default_token_may_be_named_again() -> None:
    named = [AddedToken("<s>", lstrip=True), AddedToken("</s>", 2)]
    tokenizer = train(TEXTS, special_tokens=named)
    assert tokenizer.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2}
    assert [token.lstrip for token in tokenizer.added_tokens] == [False, True, False]


def test_tokens_added_before_keep_their_ids() -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens({"<pad>": 300})
    tokenizer.train(TEXTS, 600, style="sentencepiece", verbose=False)
    assert tokenizer.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 300}


def test_a_special_token_of_one_character_is_no_letter() -> None:
    tokenizer = train(["ab☃ " * 20], 400, special_tokens=["☃"], character_coverage=1.0)
    assert tokenizer.encode("☃", allowed_special="all") == [tokenizer.max_id]
    assert tokenizer.tokenize("☃") == ["▁", "<0xE2>", "<0x98>", "<0x83>"]
    assert_same_ids(tokenizer, in_huggingface(tokenizer), "ab☃ab")


# -- Files and objects --------------------------------------------------------


def test_saved_files_load_everywhere(tokenizer: BPETokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path, verbose=False)
    theirs = need("transformers").AutoTokenizer.from_pretrained(str(tmp_path))
    assert (theirs.bos_token, theirs.eos_token, theirs.unk_token) == ("<s>", "</s>", "<unk>")
    for given_text in HARD + TEXTS:
        ids = tokenizer.encode(given_text, allowed_special="all")
        assert theirs.encode(given_text, add_special_tokens=False) == ids
        assert theirs.decode(ids, clean_up_tokenization_spaces=False) == tokenizer.decode(ids)
    loaded = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    assert loaded == tokenizer == pickle.loads(pickle.dumps(tokenizer))


def test_transformers_trains_another_from_the_saved_files(tmp_path: Path) -> None:
    ours = train(TEXTS, 520, character_coverage=1.0)
    ours.save(tmp_path, verbose=False)
    theirs = need("transformers").AutoTokenizer.from_pretrained(str(tmp_path))
    other = [HARD[9] * 30, TEXTS[0], "lower lowest slow"]
    retrained = theirs.train_new_from_iterator(other, 330, show_progress=False)
    merges = json.loads(retrained.backend_tokenizer.to_str())["model"]["merges"]
    expected = written(train(other, 2_000, min_frequency=0, character_coverage=1.0).merges)
    assert written(merges) == expected[: len(merges)]
    assert len(merges) > 30


def test_what_was_trained_can_be_trained_again(tmp_path: Path) -> None:
    tokenizer = train(TEXTS[:2], 500)
    tokenizer.save(tmp_path, verbose=False)
    fresh = train(TEXTS, 650)
    for again in (tokenizer, BPETokenizer.from_pretrained(tmp_path, verbose=False)):
        assert again.train(TEXTS, 650, style="sentencepiece", verbose=False) == fresh
    with pytest.raises(ValueError, match="can be trained like this"):
        tokenizer.train(TEXTS, 650, verbose=False)  # byte-level


def test_truncation_and_cache(tokenizer: BPETokenizer) -> None:
    whole = TEXTS[2]
    cut = tokenizer.truncate(whole, 20)
    assert whole.startswith(cut)
    assert 15 <= tokenizer.count_tokens(cut) <= 20


# -- Options ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"style": "wordpiece"}, "style must be 'byte-level', .* or 'words', got 'wordpiece'"),
        ({"style": None}, "style must be .* got None"),
        ({"style": "byte-level", "byte_fallback": True}, "byte_fallback works only with style="),
        ({"style": "byte-level", "byte_fallback": False}, "byte_fallback works only with style="),
        (
            {"style": "byte-level", "character_coverage": 1.0},
            "character_coverage works only with style=",
        ),
        ({"byte_fallback": 1}, "byte_fallback must be True or False, got 1"),
        ({"character_coverage": "all"}, "character_coverage must be a number, got 'all'"),
        ({"character_coverage": True}, "character_coverage must be a number, got True"),
        ({"character_coverage": 0}, "greater than 0 and at most 1, got 0"),
        ({"character_coverage": 99.95}, "greater than 0 and at most 1, got 99.95"),
        ({"character_coverage": float("nan")}, "greater than 0 and at most 1, got nan"),
        ({"corpus": None, "counts": {b"a": 1}}, "counts are of the pre-tokens of a split pattern"),
        ({"corpus": None, "counts": count_pretokens("a b")}, "pass the corpus"),
        ({"vocab_size": 200}, "vocab_size must be at least 260, got 200"),
        (
            {"vocab_size": 100, "byte_fallback": False, "character_coverage": 1.0},
            "must be at least",
        ),
        ({"vocab_size": None}, "must be ints"),
        ({"min_frequency": -1}, "min_frequency must be at least 0"),
        ({"max_token_length": 0}, "max_token_length must be at least 1"),
        ({"num_workers": 0}, "num_workers must be at least 1"),
        ({"special_tokens": {"<pad>": 0}}, "id 0 is already that of '<unk>'"),
        ({"special_tokens": ["<0x41>"]}, "'<0x41>': this is already a token"),
        ({"special_tokens": ["▁"]}, "'▁': this is already a token"),
        ({"corpus": []}, "the corpus is empty"),
        ({"corpus": ["", ""]}, "the corpus is empty"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    tokenizer = BPETokenizer()
    options = {"corpus": TEXTS, "style": "sentencepiece", "verbose": False, **options}
    with pytest.raises((ValueError, TypeError), match=message):
        tokenizer.train(**options)
    assert tokenizer == BPETokenizer()


def test_a_split_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="not by a split pattern"):
        BPETokenizer("cl100k").train(TEXTS, 600, style="sentencepiece", verbose=False)


def test_other_components_are_refused(tmp_path: Path) -> None:
    data = core.tokenizer_json_of(train(TEXTS, 500))
    data["normalizer"] = {"type": "Lowercase"}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="components of its own"):
        BPETokenizer.from_file(path).train(TEXTS, 600, style="sentencepiece", verbose=False)


def test_the_smallest_vocabulary_has_no_merges() -> None:
    with pytest.raises(
        ValueError, match=r"vocab_size is 261, but must be at least 262.* 3 characters"
    ):
        train(["ab ab"], 261)
    tokenizer = train(["ab ab"], 262)
    assert tokenizer.merges == []
    assert tokenizer.training_report is not None
    assert tokenizer.training_report.stopped == "vocab size reached"


@pytest.mark.parametrize("surround", [None, "bos+eos", "bos", "eos", "none"])
def test_what_goes_around_a_text_is_the_same_in_huggingface(surround: str | None) -> None:
    tokenizer = train(TEXTS, 400, **({"surround": surround} if surround else {}))
    ids = tokenizer.encode("a b", add_special_tokens=True)
    before = [tokenizer.bos_token_id] * ("bos" in (surround or "bos+eos"))
    after = [tokenizer.eos_token_id] * ("eos" in (surround or "bos+eos"))
    assert ids == [*before, *tokenizer.encode("a b"), *after]
    after = after if surround else []  # others add eos only if it was chosen
    assert tokenizer.to_hf().encode("a b").ids == [*before, *tokenizer.encode("a b"), *after]
    with pytest.raises(ValueError, match="surround must be one of"):
        train(TEXTS, 400, surround="both")


def test_byte_level_stays_the_default() -> None:
    plain = BPETokenizer().train(TEXTS, 500, verbose=False)
    assert BPETokenizer().train(TEXTS, 500, verbose=False, style="byte-level") == plain
    assert plain.components is None


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, output = tmp_path / "corpus.txt", tmp_path / "out"
    corpus.write_text(TEXTS[0] + "☃")
    options = ["--corpus", corpus, "--vocab-size", 40, "--style", "sentencepiece", "--quiet"]
    more = ["--no-byte-fallback", "--character-coverage", "0.99"]
    assert run_command(capsys, "train", "--output", output, *options, *more)[0] == 0
    expected = train(corpus, 40, byte_fallback=False, character_coverage=0.99)
    assert BPETokenizer.from_pretrained(output, verbose=False) == expected

    def refuse(*wrong: object) -> tuple[int, str]:
        status, _, error = run_command(capsys, "train", "--output", tmp_path / "other", *wrong)
        return status, error

    assert refuse(*options, "--pattern", "gpt2")[0] == 2
    assert refuse("--corpus", corpus, "--style", "wordpiece")[0] == 2
    status, error = refuse("--corpus", corpus, "--byte-fallback")
    assert (status, error.count("\n")) == (1, 1)
    assert "byte_fallback works only with style='sentencepiece'" in error


@pytest.mark.parametrize("special", ["☃", "é", "\t"])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_a_special_token_of_one_character_is_never_typed(
    special: str, byte_fallback: bool, tmp_path: Path
) -> None:
    tokenizer = BPETokenizer(normalizer=None)
    tokenizer.train(
        ["the cat sat " * 50],
        340,
        style="sentencepiece",
        special_tokens=[special],
        byte_fallback=byte_fallback,
        verbose=False,
    )
    tokenizer.save(tmp_path, verbose=False)
    loaded = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    assert loaded == tokenizer
    id_ = tokenizer.special_tokens[special]
    text = f"a {special}b"
    assert loaded.encode(text) == tokenizer.encode(text)
    assert id_ not in loaded.encode(text) and id_ in loaded.encode(text, allowed_special="all")
    talk = [{"role": "user", "content": text}]
    assert id_ not in loaded.apply_chat_template(talk, "alpaca")
