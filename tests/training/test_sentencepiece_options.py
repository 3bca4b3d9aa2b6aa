"""The options of SentencePiece's trainer, against the trainer and the processor themselves."""

from __future__ import annotations

import functools
import io
import itertools
import json
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import regex
from conftest import run_command
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.training import scripts, sentencepiece_text
from bpe_tokenizer_tools.training.sentencepiece_pieces import PieceRules

tokenizers = need("tokenizers")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*no token for these characters"),
    pytest.mark.filterwarnings("ignore:.*looks like a path"),
]

SYMBOLS = ["<x>", "ing"]
CORPUS = [
    "the cat is sitting on the mat, and 12 cats are singing <x> 345 times. " * 9,
    "def f(x1, y2):\n    return x1  +  y2\n" * 5,
    "naïve café １２３ ﬁne 中文カタカナ한국어 Привет мир Ελλάδα ～ a\u200bb " * 4,
]
ALPHABET = " \u3000\u00a0ab1２é中カ\n\t\u200b\x01\x7f～Ａﬁ①<>x▁\ufeff-e\u0301"
PARTS = ["<x>", "ing", "the", " ", "  ", "\u3000", "cats ", "12", "▁", *ALPHABET]


def train(corpus: Any, vocab_size: int = 700, **options: Any) -> BPETokenizer:
    """Train quietly and in this process."""
    options = {"style": "sentencepiece", "num_workers": 1, "verbose": False, **options}
    return BPETokenizer().train(corpus, vocab_size, **options)


def trained_there(lines: Iterable[str], vocab_size: int, **options: Any) -> Any:
    """Train with `sentencepiece` itself; return the serialized model."""
    model = io.BytesIO()
    need("sentencepiece").SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=vocab_size,
        **{"model_type": "bpe", "byte_fallback": True, "minloglevel": 2, **options},
    )
    return model.getvalue()


def processor(model: bytes) -> Any:
    return need("sentencepiece").SentencePieceProcessor(model_proto=model)


def pieces_of(model: bytes) -> list[str]:
    made = processor(model)
    return [made.id_to_piece(id_) for id_ in range(made.vocab_size())]


# -- What is learned ----------------------------------------------------------

# As explicit for both: the defaults there are others.
PLAIN = {
    "split_by_unicode_script": False,
    "split_by_number": True,
    "split_digits": False,
    "add_dummy_prefix": True,
    "remove_extra_whitespaces": False,
    "max_sentencepiece_length": 512,
    "normalization_rule_name": "identity",
}
OPTIONS: list[dict[str, Any]] = [
    {"split_by_number": False},
    {"split_by_unicode_script": True},
    {"split_by_unicode_script": True, "split_by_number": False},
    {"split_digits": True},
    {"split_by_unicode_script": True, "split_digits": True},
    {"add_dummy_prefix": False},
    {"remove_extra_whitespaces": True},
    {"max_sentencepiece_length": 4},
    {"max_sentencepiece_length": 3, "split_by_unicode_script": True},
    {"user_defined_symbols": ["the", "<x>", "ing"]},
    {"normalization_rule_name": "nfkc"},
    {"normalization_rule_name": "nmt_nfkc"},
    {
        "split_by_unicode_script": True,
        "split_digits": True,
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": True,
        "max_sentencepiece_length": 16,
        "user_defined_symbols": ["def", "<x>", "ing"],
        "normalization_rule_name": "nmt_nfkc",
    },
    # Its own defaults.
    {
        "split_by_unicode_script": True,
        "remove_extra_whitespaces": True,
        "max_sentencepiece_length": 16,
        "normalization_rule_name": "nmt_nfkc",
    },
]


@pytest.mark.parametrize("name", ["english", "code", pytest.param("multi", marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options))
def test_the_first_merges_are_those_of_sentencepiece(
    larger_corpora: Callable[[str], str], name: str, options: dict[str, Any]
) -> None:
    """At least 97 % of the first 1,000; it breaks ties in another way."""
    text = larger_corpora(name)[:300_000]
    if name == "multi" and len(larger_corpora(name)) < 10**6:
        pytest.skip("the sample of 30 languages is so small that most of its counts are ties")
    lines = [line for line in text.split("\n") if line.strip()]
    size = 4_500 if name == "multi" else 2_500
    asked = {**PLAIN, **options}
    theirs = pieces_of(
        trained_there(lines, size, max_sentence_length=10**6, hard_vocab_limit=False, **asked)
    )
    symbols = asked.get("user_defined_symbols", [])
    learned = [piece for piece in theirs[259 + len(symbols) :] if len(piece) > 1]
    tokenizer = train(lines, size, min_frequency=0, **asked)
    ours = [*dict.fromkeys((left + right).decode() for left, right in tokenizer.merges)]
    n = min(1_000, len(learned))
    assert n > 800
    assert len(set(learned[:n]) & set(ours[:n])) >= 0.97 * n
    # The same characters, but for one where symbols are cut out: it counts the cuts, too.
    differing = {p for p in theirs if len(p) == 1} ^ {
        p for p in tokenizer.get_vocab() if len(p) == 1
    }
    assert len(differing) <= bool(symbols)
    assert theirs[: 3 + len(symbols)] == list(tokenizer.get_vocab())[: 3 + len(symbols)]


MIXED = "aé\u0301б中カーひ1１-'λ한\u200d"


@pytest.mark.parametrize(
    "rules",
    [
        PieceRules(split_by_unicode_script=True),
        PieceRules(split_by_unicode_script=True, split_by_number=False),
        PieceRules(split_digits=True),
        PieceRules(split_digits=True, split_by_unicode_script=True),
    ],
)
def test_what_may_be_one_piece_is_what_sentencepiece_joins(rules: PieceRules) -> None:
    """All words of 2 and some of 3 and 4 characters: it joins each that may be a piece."""
    draw = random.Random(5)
    words = ["".join(pair) for pair in itertools.product(MIXED, repeat=2)]
    words += ["".join(draw.choices(MIXED, k=k)) for k in (3, 4) for _ in range(150)]
    words = list(dict.fromkeys(words))
    model = trained_there(
        words * 2,
        9_000,
        character_coverage=1.0,
        hard_vocab_limit=False,
        add_dummy_prefix=False,
        normalization_rule_name="identity",
        **rules._asdict(),
    )
    found = set(pieces_of(model))
    for word in words:
        assert (word in found) == rules.allows(word), word
        if rules.allows(word):
            assert list(rules.parts(word)) == [word]
    ours = train(
        words * 2, 9_000, character_coverage=1.0, add_dummy_prefix=False,
        normalization_rule_name="identity", **rules._asdict(),
    )  # fmt: skip
    learned = {(left + right).decode() for left, right in ours.merges}
    assert {word for word in words if rules.allows(word)} <= learned
    assert all(map(rules.allows, learned))


def test_scripts_are_those_of_unicode_9() -> None:
    """Against the installed `regex`: alike on every character that Unicode 9.0 has."""
    names = "Latin Greek Cyrillic Arabic Hebrew Devanagari Thai Hangul Georgian Armenian Inherited"
    more = "Hiragana Katakana Han Tangut Ethiopic Mongolian Khmer Cherokee Bopomofo Yi Lao Runic"
    moved = set("\u0953\u0954\u0589\u061c")  # to other scripts, later
    everything = core.every_character()
    numbers: dict[str, set[int]] = {}
    for name in f"{names} {more}".split():
        found = set(regex.findall(rf"\p{{Script={name}}}", everything)) - moved
        kinds = Counter(map(scripts.script_of, found))
        kinds.pop(scripts.COMMON, None)  # those that Unicode 9.0 doesn't assign
        numbers[name] = set(kinds)
    han, inherited = scripts.script_of("中"), {scripts.INHERITED}
    assert numbers.pop("Hiragana") == numbers.pop("Katakana") == numbers.pop("Han") == {han}
    assert numbers.pop("Inherited") == inherited
    assert all(len(found) == 1 for found in numbers.values())
    assert len(set.union(*numbers.values(), {han}, inherited)) == len(numbers) + 2
    common = set(regex.findall(r"\p{Script=Common}", everything)) - moved - {"ー"}
    assert set(map(scripts.script_of, common)) == {scripts.COMMON}
    assert scripts.script_of("ー") == han
    old = map(chr, [*range(0x3041, 0x3097), *range(0x30A1, 0x30FB), *range(0x4E00, 0x9FD6)])
    assert set(map(scripts.script_of, old)) == {han}
    newer = regex.findall(r"\p{Cn}", everything)[::97]
    assert set(map(scripts.script_of, [*newer, "\u1c90"])) == {scripts.COMMON}


def test_longest_pieces() -> None:
    lines = [line for text in CORPUS for line in text.split("\n") if line]
    for longest in range(1, 8):
        ours = train(lines, 700, max_sentencepiece_length=longest)
        theirs = trained_there(
            lines, 700, hard_vocab_limit=False, max_sentencepiece_length=longest,
            normalization_rule_name="identity",
        )  # fmt: skip
        for pieces in (list(ours.get_vocab())[259:], pieces_of(theirs)[259:]):
            assert max(map(len, pieces)) == longest


# -- How text is encoded ------------------------------------------------------


@functools.cache
def charsmap(rule: str) -> bytes:
    """Return the table of a rule, from a model."""
    model = need("sentencepiece.sentencepiece_model_pb2").ModelProto()
    model.ParseFromString(
        trained_there(["ab ab"] * 9, 300, hard_vocab_limit=False, normalization_rule_name=rule)
    )
    return bytes(model.normalizer_spec.precompiled_charsmap)


def in_sentencepiece(tokenizer: BPETokenizer, rule: str, **options: Any) -> Any:
    """Return a processor with the pieces and the options of a tokenizer."""
    model = need("sentencepiece.sentencepiece_model_pb2").ModelProto()
    scores: dict[str, float] = {}
    for left, right in tokenizer.merges:
        scores.setdefault((left + right).decode(), -len(scores))
    types = {"<unk>": 2, "<s>": 3, "</s>": 3}
    types |= dict.fromkeys(options.get("user_defined_symbols", ()), 4)
    if options.get("byte_fallback", True):
        types |= dict.fromkeys((f"<0x{byte:02X}>" for byte in range(256)), 6)
    for piece, id_ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        assert id_ == len(model.pieces)
        kind = types.get(piece, 1)
        score = scores.get(piece, -1e6) if kind == 1 else 0.0
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = 2
    model.trainer_spec.byte_fallback = options.get("byte_fallback", True)
    spec = model.normalizer_spec
    spec.precompiled_charsmap = charsmap(rule)
    spec.add_dummy_prefix = options.get("add_dummy_prefix", True)
    spec.remove_extra_whitespaces = options.get("remove_extra_whitespaces", False)
    return processor(model.SerializeToString())


def texts(seed: int, n: int) -> Iterator[str]:
    draw = random.Random(seed)
    whole = "".join(CORPUS)
    for _ in range(n):
        at = draw.randrange(len(whole))
        yield "".join(draw.choices(PARTS, k=draw.randint(0, 9)))
        yield whole[at : at + draw.randint(1, 30)]


def is_alike(text: str, rule: str, **options: Any) -> bool:
    """Return whether a text is none of those that docs/sentencepiece.md lists as different."""
    prepared = sentencepiece_text.normalizer(sentencepiece_text.form_of(rule, None))(text)
    stripped = prepared.strip(" ") if options.get("remove_extra_whitespaces") else prepared
    prefix = options.get("add_dummy_prefix", True)
    if prefix and (stripped in options.get("user_defined_symbols", ()) or (text and not prepared)):
        return False
    if not options.get("byte_fallback", True) and "\n" in prepared:
        return False  # a run of unknown characters ends at a line end
    # There, a table has no entry for what joins only after a character was replaced.
    each = map(sentencepiece_text.normalizer(sentencepiece_text.form_of(rule, None)), text)
    return rule == "identity" or (core.normalize(text, "NFC") == text and prepared == "".join(each))


@pytest.mark.parametrize("symbols", [[], SYMBOLS], ids=["", "symbols"])
@pytest.mark.parametrize("fallback", [True, False])
@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("rule", ["identity", "nfkc", "nmt_nfkc"])
def test_ids_are_those_of_sentencepiece_and_huggingface(
    rule: str, prefix: bool, removes: bool, fallback: bool, symbols: list[str], tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "add_dummy_prefix": prefix,
        "remove_extra_whitespaces": removes,
        "byte_fallback": fallback,
    }
    if symbols:
        options["user_defined_symbols"] = symbols
    tokenizer = train(CORPUS, 420 if fallback else 160, normalization_rule_name=rule, **options)
    theirs = in_sentencepiece(tokenizer, rule, **options)
    tokenizer.save(tmp_path, verbose=False)
    loaded = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    assert loaded == tokenizer == pickle.loads(pickle.dumps(tokenizer))
    saved = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    n_alike = 0
    for text in texts(7, 400):
        ids = loaded.encode(text)
        assert saved.encode(text, add_special_tokens=False).ids == ids == tokenizer.encode(text)
        assert saved.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids)
        if is_alike(text, rule, **options):
            assert theirs.encode(text) == ids, text
            n_alike += 1
    assert n_alike > 400


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options))
def test_models_trained_there_give_the_same_ids_here(
    options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "m.model"
    raw = trained_there(
        [line for text in CORPUS for line in text.split("\n") if line] * 3, 420,
        hard_vocab_limit=False, **{**PLAIN, **options},
    )  # fmt: skip
    path.write_bytes(raw)
    theirs, ours = processor(raw), BPETokenizer.from_file(path)
    for text in texts(11, 500):
        assert ours.encode(text) == theirs.encode(text), text


@settings(max_examples=examples(200))
@given(st.text() | st.text(ALPHABET), st.sampled_from(["nfkc", "nmt_nfkc"]))
def test_rules_are_those_of_sentencepiece_on_normal_text(text: str, rule: str) -> None:
    """For composed text; and in HuggingFace, the components of a rule do what is done here."""
    form = sentencepiece_text.form_of(rule, None)
    ours = sentencepiece_text.normalizer(form)(text)
    steps = {"type": "Sequence", "normalizers": sentencepiece_text.form_steps(form)}
    model = {"type": "BPE", "vocab": {}, "merges": []}
    theirs = tokenizers.Tokenizer.from_str(json.dumps({"normalizer": steps, "model": model}))
    assert ours == theirs.normalizer.normalize_str(text)


@pytest.mark.parametrize("rule", ["nfkc", "nmt_nfkc"])
def test_rules_on_every_character(rule: str) -> None:
    """They differ from the tables of SentencePiece on characters newer than Unicode 9.0."""
    there = _normalizer_there(rule)
    normalize = sentencepiece_text.normalizer(sentencepiece_text.form_of(rule, None))
    points = itertools.chain(range(1, 0xD800), range(0xE000, 0x20000))
    differing = [char for char in map(chr, points) if normalize(char) != there(char)]
    assert all(core.younger().match(char) for char in differing if char != "\ufdd0")
    assert 100 < len(differing) < 200
    assert normalize("\u1e9b\u0323 ～") == ("\u1e69 ～" if rule == "nmt_nfkc" else "\u1e69 ~")


def _normalizer_there(rule: str) -> Callable[[str], str]:
    import base64

    from bpe_tokenizer_tools.formats.sentencepiece import Normalizer

    return Normalizer(
        {
            "charsmap": base64.b64encode(charsmap(rule)).decode(),
            "user_defined": [],
            "add_dummy_prefix": False,
            "remove_extra_whitespaces": False,
            "escape_whitespaces": False,
            "treat_whitespace_as_suffix": False,
        }
    )


# -- How a corpus is read -----------------------------------------------------


@pytest.mark.parametrize("rule", [None, "nmt_nfkc"])
@pytest.mark.parametrize("options", [{}, {"add_dummy_prefix": False}])
def test_blocks_and_workers_give_the_same(
    rule: str | None, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "   \n".join(CORPUS) + " " * 70 + "<x>  e\x01\u0301 <x>" + "<x>" * 9 + "  ab  "
    given = {
        "normalization_rule_name": rule,
        "remove_extra_whitespaces": True,
        "user_defined_symbols": SYMBOLS,
        "special_tokens": ["<s>", "<|end|>"],
        **options,
    }
    documents = [" " * 60 + text, text, "  " + text]
    expected = train(documents, 500, **given)
    monkeypatch.setattr(bpe_tokenizer, "_BLOCK_CHARS", 50)
    monkeypatch.setattr(bpe_tokenizer._PretokenCounter, "_BATCH_CHARS", 200)
    path = tmp_path / "corpus.txt"
    path.write_bytes("<|end|>".join(documents).encode())
    for workers in (1, 2):
        again = train(path, 500, num_workers=workers, **given)
        assert again.merges == expected.merges
        assert again == expected


def test_symbols_are_cut_out(tmp_path: Path) -> None:
    tokenizer = train(["a<x>b ab<x>ab singing"] * 30, 300, user_defined_symbols=SYMBOLS)
    assert list(tokenizer.get_vocab())[:6] == ["<unk>", "<s>", "</s>", *SYMBOLS, "<0x00>"]
    assert tokenizer.tokenize("ab<x>ab") == ["▁ab", "<x>", "ab"]
    assert tokenizer.tokenize("<x>sing") == ["▁", "<x>", "s", "ing"]
    assert not any("<" in token or "ing" in token for token in list(tokenizer.get_vocab())[261:])
    assert tokenizer.decode(tokenizer.encode("<x> ab<x>")) == "<x> ab<x>"
    assert tokenizer.is_canonical(tokenizer.encode("a<x>b<x>"))
    assert not any(token.special for token in tokenizer.added_tokens if token.content in SYMBOLS)


def test_trained_again_it_keeps_how_text_is_prepared(tmp_path: Path) -> None:
    given = {
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": True,
        "normalization_rule_name": "nmt_nfkc",
        "user_defined_symbols": SYMBOLS,
    }
    fresh = train(CORPUS, 400, **given)
    train(CORPUS[:1], 350, **given).save(tmp_path, verbose=False)
    again = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    assert again.train(CORPUS, 400, style="sentencepiece", verbose=False) == fresh
    again.train(CORPUS, 400, style="sentencepiece", add_dummy_prefix=True, verbose=False)
    assert again == train(CORPUS, 400, **{**given, "add_dummy_prefix": True})


# -- Wrong options, and the command line --------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalization_rule_name": "nkfc"}, "must be one of identity, nfkc, nmt_nfkc.*'nfkc'"),
        ({"normalization_rule_name": "nmt_nfkc_cf"}, "did you mean 'nmt_nfkc'"),
        ({"normalization_rule_name": 1}, "must be a text, got 1"),
        ({"user_defined_symbols": "abc"}, "must be a list of texts, got 'abc'"),
        ({"user_defined_symbols": ["a b"]}, "has a space"),
        ({"user_defined_symbols": ["▁a"]}, "has a space, or ▁"),
        ({"user_defined_symbols": ["x", "x"]}, "listed twice"),
        ({"user_defined_symbols": [""]}, "at least one character"),
        ({"user_defined_symbols": [["a"]]}, "at least one character"),
        ({"user_defined_symbols": ["<s>"]}, "'<s>' is a special token already"),
        ({"user_defined_symbols": ["<0x41>"]}, "this is already a token"),
        ({"user_defined_symbols": ["e\u0301"]}, "becomes 'é' when text is normalized"),
        ({"split_by_number": True}, "needs split_by_unicode_script=True"),
        ({"split_digits": 1}, "split_digits must be True or False, got 1"),
        ({"max_sentencepiece_length": 0}, "must be at least 1"),
        ({"max_sentencepiece_length": True}, "must be an int"),
        ({"max_sentencepiece_length": 5, "max_token_length": 5}, "leave one of them out"),
        ({"style": "byte-level", "split_digits": False}, "split_digits works only with style="),
        ({"style": "byte-level", "user_defined_symbols": []}, "works only with style="),
        ({"ties": "first"}, "has its own rule for ties; leave out ties='first'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    tokenizer = BPETokenizer()
    with pytest.raises((ValueError, TypeError), match=message):
        tokenizer.train(CORPUS, 400, **{"style": "sentencepiece", "verbose": False, **options})
    assert tokenizer == BPETokenizer()


def test_other_ways_to_train_refuse_these_options() -> None:
    with pytest.raises(ValueError, match="can't be combined with split_digits"):
        BPETokenizer().train(CORPUS, 600, superwords=300, split_digits=True, verbose=False)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, output = tmp_path / "corpus.txt", tmp_path / "out"
    corpus.write_text("".join(CORPUS))
    options = ["--corpus", corpus, "--vocab-size", 400, "--style", "sentencepiece", "--quiet"]
    more = ["--split-digits", "--split-by-unicode-script", "--no-split-by-number"]
    more += ["--no-add-dummy-prefix", "--remove-extra-whitespaces", "--user-defined-symbols"]
    more += [*SYMBOLS, "--max-sentencepiece-length", 6, "--normalization-rule-name", "nfkc"]
    assert run_command(capsys, "train", "--output", output, *options, *more)[0] == 0
    expected = train(
        corpus,
        400,
        split_digits=True,
        split_by_unicode_script=True,
        split_by_number=False,
        add_dummy_prefix=False,
        remove_extra_whitespaces=True,
        user_defined_symbols=SYMBOLS,
        max_sentencepiece_length=6,
        normalization_rule_name="nfkc",
    )
    assert BPETokenizer.from_pretrained(output, verbose=False) == expected
    wrong = [*options, "--normalization-rule-name", "nfkc", "--normalizer", "NFC"]
    status, _, error = run_command(capsys, "train", "--output", tmp_path / "other", *wrong)
    assert status == 2
    assert "both say how to normalize" in error
