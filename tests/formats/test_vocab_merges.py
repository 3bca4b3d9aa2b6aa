"""vocab.json with merges.txt, against `tokenizers` and the classes of transformers."""

from __future__ import annotations

import json
import shutil
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import (
    SPLIT_PATTERNS,
    AddedToken,
    BPETokenizer,
    FileFormatError,
    _tokenizer_json,
)
from bpe_tokenizer_tools.formats import vocab_merges as format_

tokenizers = need("tokenizers")

# Small vocabularies of words lack characters of ASCII, and loading them says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")

ROOT = Path(__file__).resolve().parents[2]
CORPUS = [
    (ROOT / "README.md").read_text(encoding="utf-8"),
    "Grüße, 世界! It's 123 déjà-vu 😀\n" * 40,
]
EOT = "<|endoftext|>"
TEXTS = (
    st.text() | st.text(st.sampled_from("aeiouthsAEGr'sld 012\n\t.,!ß世\u0301")) | st.text("ab ")
)
SAMPLES = [
    "Hello World's  tokenizers, they're  fine\n\n\tno?",
    " Grüße 世界!  1234567 😀😀",
    "",
    " ",
    "e\u0301 \u3000x\u2028y\r\n",
]


@pytest.fixture(scope="module")
def gpt2(engine: str, tmp_path_factory):
    """A directory with a byte-level vocabulary as `tokenizers` saves one: just the two files."""
    folder = tmp_path_factory.mktemp("gpt2")
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(CORPUS, 900, show_progress=False, special_tokens=[EOT])
    made.save_model(str(folder))
    return folder


@pytest.fixture(scope="module")
def roberta(engine: str, tmp_path_factory):
    folder = tmp_path_factory.mktemp("roberta")
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(CORPUS, 900, show_progress=False, special_tokens=special)
    made.save_model(str(folder))
    write_json(folder / "config.json", {"model_type": "roberta"})
    return folder


def write_json(path, data):
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    return path


def copied(folder, to):
    shutil.copytree(folder, to, dirs_exist_ok=True)
    return to


def hf_model(folder):
    return tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))


# -- Byte-level ---------------------------------------------------------------


@settings(max_examples=examples(400))
@given(text=TEXTS)
def test_gpt2_as_tokenizers_reads_it(gpt2, text):
    ours, theirs = loaded(gpt2), by_hand(gpt2)
    ids = ours.encode(text)
    assert ids == theirs.encode(text).ids
    assert ours.decode(ids) == text


CACHE = {}


def loaded(folder):
    if (folder, "ours") not in CACHE:
        CACHE[folder, "ours"] = BPETokenizer.from_file(folder)
    return CACHE[folder, "ours"]


def by_hand(folder):
    if (folder, "hf") not in CACHE:
        theirs = tokenizers.Tokenizer(hf_model(folder))
        theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        CACHE[folder, "hf"] = theirs
    return CACHE[folder, "hf"]


def test_gpt2_as_transformers_reads_it(gpt2):
    transformers = need("transformers")
    ours, theirs = loaded(gpt2), transformers.GPT2Tokenizer.from_pretrained(gpt2)
    for text in [*SAMPLES, *CORPUS]:
        ids = theirs(text)["input_ids"]
        assert ours.encode(text, allowed_special="all") == ids
        assert ours.encode(text, allowed_special="all", add_special_tokens=True) == ids
    roles = ours.bos_token, ours.eos_token, ours.unk_token, ours.pad_token
    assert roles == (theirs.bos_token, theirs.eos_token, theirs.unk_token, theirs.pad_token)
    assert roles == (EOT, EOT, EOT, None)
    assert ours.vocab_size == len(theirs)


@pytest.mark.parametrize("name", ["RobertaTokenizer", "RobertaTokenizerFast", "BartTokenizer"])
def test_roberta_as_transformers_reads_it(name, roberta, tmp_path):
    transformers = need("transformers")
    folder = copied(roberta, tmp_path)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": name, "model_max_length": 512})
    ours = BPETokenizer.from_file(folder)
    theirs = transformers.RobertaTokenizer.from_pretrained(folder)
    for text in SAMPLES:
        assert ours.encode(text, add_special_tokens=True) == theirs(text)["input_ids"]
        plain = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text) == plain
    assert ours.special_tokens == {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4}
    roles = ours.bos_token, ours.eos_token, ours.unk_token, ours.pad_token
    assert roles == ("<s>", "</s>", "<unk>", "<pad>")
    offsets = theirs(SAMPLES[0], return_offsets_mapping=True)["offset_mapping"]
    assert ours.encode_with_offsets(SAMPLES[0], add_special_tokens=True).offsets == offsets


def test_the_type_of_model_says_it_too(roberta):
    ours = BPETokenizer.from_file(roberta)
    assert ours.encode("", add_special_tokens=True) == [0, 2]
    assert ours.encode("a<mask>b", allowed_special="all")[1] == 4
    assert not ours.added_tokens[4].lstrip  # version 4 of transformers strips


@pytest.mark.parametrize("prefix_space", [True, False])
def test_a_prefix_space(prefix_space, gpt2, tmp_path):
    transformers = need("transformers")
    folder = copied(gpt2, tmp_path)
    config = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": prefix_space}
    write_json(folder / "tokenizer_config.json", config)
    ours = BPETokenizer.from_file(folder)
    theirs = transformers.GPT2Tokenizer.from_pretrained(folder)
    for text in SAMPLES:
        assert ours.encode(text) == theirs(text)["input_ids"]


def test_qwen2_as_transformers_reads_it(tmp_path):
    transformers = need("transformers")
    made = BPETokenizer("qwen2").train(CORPUS, vocab_size=700, special_tokens=[EOT], verbose=False)
    made.save(tmp_path, verbose=False)
    model = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    for path in tmp_path.iterdir():
        path.unlink()
    write_json(tmp_path / "vocab.json", {**model["vocab"], EOT: made.special_tokens[EOT]})
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    (tmp_path / "merges.txt").write_text(merges, encoding="utf-8")
    with pytest.raises(FileFormatError, match="GPT-2's split pattern would never make.*pass split"):
        BPETokenizer.from_file(tmp_path)
    given = BPETokenizer.from_file(tmp_path, split_pattern="qwen2", special_tokens={EOT: 699})
    assert given.split_pattern == SPLIT_PATTERNS["qwen2"]
    assert given.special_tokens == {EOT: 699}
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer"})
    ours = BPETokenizer.from_file(tmp_path)
    theirs = transformers.Qwen2Tokenizer.from_pretrained(tmp_path)
    for text in [*SAMPLES, *CORPUS]:
        ids = theirs(text)["input_ids"]
        assert ours.encode(text, allowed_special="all") == ids
        assert made.encode(text, allowed_special="all") == ids
    assert (ours.normalizer, ours.split_pattern) == ("NFC", SPLIT_PATTERNS["qwen2"])
    assert ours.eos_token == EOT


def test_real_gpt2(vocab_dir, corpora, tmp_path):
    """GPT-2's own vocabulary, by way of its ranks; and out again for transformers."""
    transformers = need("transformers")
    source = BPETokenizer.from_file(vocab_dir / "r50k_base.tiktoken")
    source.export(tmp_path, "gpt2")
    ours = BPETokenizer.from_file(tmp_path)
    theirs = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert ours.merges == source.merges
    assert ours.get_vocab() == source.get_vocab() == theirs.get_vocab()
    assert ours.special_tokens == {EOT: 50256}
    for name in ("english", "code", "multi"):
        text = corpora(name)[:100_000]
        ids = source.encode(text, allowed_special="all")
        assert ours.encode(text, allowed_special="all") == ids
        assert theirs(text)["input_ids"] == auto(text)["input_ids"] == ids
    # The two files alone say as much: GPT-2's pattern can make all of its tokens.
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "special_tokens_map.json").unlink()
    alone = BPETokenizer.from_file(tmp_path)
    assert alone.split_pattern == SPLIT_PATTERNS["gpt2"]
    assert alone.encode("Don't\n\n 12") == source.encode("Don't\n\n 12")
    assert alone.special_tokens == {EOT: 50256}


# -- Word-level ---------------------------------------------------------------


@pytest.fixture(scope="module", params=["</w>", "</eow>"])
def words(engine: str, request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    made = tokenizers.CharBPETokenizer(
        suffix=request.param, bert_normalizer=False, split_on_whitespace_only=True
    )
    made.train_from_iterator(
        [CORPUS[0]], 700, suffix=request.param, special_tokens=["<unk>"], show_progress=False
    )
    made.save_model(str(folder))
    return folder, request.param


@settings(max_examples=examples(300))
@given(text=TEXTS)
def test_words_as_tokenizers_reads_them(words, text):
    folder, marker = words
    if (folder, "char") not in CACHE:
        CACHE[folder, "char"] = tokenizers.CharBPETokenizer.from_file(
            str(folder / "vocab.json"),
            str(folder / "merges.txt"),
            suffix=marker,
            bert_normalizer=False,
            split_on_whitespace_only=True,
        )
    ours, theirs = loaded(folder), CACHE[folder, "char"]
    found = theirs.encode(text)
    assert ours.encode(text, allowed_special="all") == found.ids
    assert ours.decode(found.ids) == theirs.decode(found.ids, skip_special_tokens=False)


def test_words_of_the_files_own_class(words):
    ours = loaded(words[0])
    assert ours.unk_token == "<unk>"
    assert ours.unk_token_id in ours.encode("世")
    assert ours.encode("token") == ours.encode("  token\n")


def test_small_letters(words, tmp_path):
    folder = copied(words[0], tmp_path)
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True})
    ours = BPETokenizer.from_file(folder)
    assert ours.encode("TOKEN Token") == loaded(words[0]).encode("token token")


def test_clip_as_transformers_reads_it(tmp_path):
    transformers = need("transformers")
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=EOT, end_of_word_suffix="</w>"))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1200,
        end_of_word_suffix="</w>",
        initial_alphabet=alphabet,
        special_tokens=["<|startoftext|>", EOT, *(f"{char}</w>" for char in alphabet)],
        show_progress=False,
    )
    theirs.train_from_iterator([CORPUS[0].lower()], trainer)
    theirs.model.save(str(tmp_path))
    with pytest.raises(FileFormatError, match="CLIP's; add a tokenizer_config.json"):
        BPETokenizer.from_file(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "CLIPTokenizer"})
    ours = BPETokenizer.from_file(tmp_path)
    oracle = transformers.CLIPTokenizer.from_pretrained(tmp_path)
    for text in [*SAMPLES, CORPUS[0]]:
        ids = ours.encode(text, allowed_special="all", add_special_tokens=True)
        assert ids == oracle(text)["input_ids"]
    assert ours.bos_token == "<|startoftext|>" and ours.eos_token == EOT


# -- What other files say -----------------------------------------------------


def test_declared_tokens(gpt2, tmp_path):
    folder = copied(gpt2, tmp_path)
    n = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    # With an added_tokens_decoder, transformers doesn't read these two.
    write_json(folder / "added_tokens.json", {"<not there>": n})
    write_json(folder / "special_tokens_map.json", {"eos_token": "<not there>"})
    config = {
        "bos_token": None,
        "eos_token": {"content": EOT, "lstrip": True, "normalized": False},
        "pad_token": "<tool>",
        "additional_special_tokens": ["<x>"],
        "added_tokens_decoder": {
            str(n): {"content": "<img>", "special": False},
            str(n + 5): {"content": "<tool>", "special": False},
            str(n + 1): {"content": "<x>", "special": True, "rstrip": True},
            str(n + 2): {"content": "word", "special": False, "single_word": True},
        },
        "chat_template": "{{ messages }}",
        "model_max_length": 77,
        "padding_side": "left",
    }
    write_json(folder / "tokenizer_config.json", config)
    ours = BPETokenizer.from_file(folder)
    assert {token.content: token.id for token in ours.added_tokens} == {
        EOT: 0, "<img>": n, "<x>": n + 1, "word": n + 2, "<tool>": n + 5
    }  # fmt: skip
    flags = {token.content: token for token in ours.added_tokens}
    assert flags[EOT].lstrip and flags[EOT].special
    assert flags["<x>"].rstrip and flags["<x>"].special
    assert flags["word"].single_word and not flags["word"].special
    assert not flags["<img>"].special and flags["<tool>"].special
    roles = ours.bos_token, ours.eos_token, ours.pad_token, ours.unk_token
    assert roles == (None, EOT, "<tool>", EOT)
    assert ours.chat_template == "{{ messages }}"
    assert ours.encode("a<img>b<tool>", allowed_special="all")[1::2] == [n, n + 5]
    assert ours.to_hf().encode("a<img>b<tool>").ids[1::2] == [n, n + 5]


def test_a_declared_token_without_an_id(gpt2, tmp_path):
    folder = copied(gpt2, tmp_path)
    n = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    write_json(folder / "special_tokens_map.json", {"pad_token": "<pad>"})
    assert BPETokenizer.from_file(folder).pad_token_id == n  # the next one, as in transformers
    ours = BPETokenizer.from_file(folder, special_tokens={"<pad>": 2000})
    assert ours.pad_token_id == 2000


@pytest.mark.parametrize("id_", [5, 96])
def test_a_declared_id_of_another_token(id_, gpt2, tmp_path):
    """As in transformers, the vocabulary wins, and another token gets the next id."""
    folder = copied(gpt2, tmp_path)
    n = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    write_json(folder / "added_tokens.json", {"<a>": id_})
    assert BPETokenizer.from_file(folder).convert_tokens_to_ids("<a>") == n
    write_json(folder / "added_tokens.json", {EOT: id_})
    assert BPETokenizer.from_file(folder).convert_tokens_to_ids(EOT) == 0


def test_a_class_that_is_not_known(gpt2, tmp_path):
    folder = copied(gpt2, tmp_path)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "CTRLTokenizer"})
    with pytest.raises(FileFormatError, match="tokenizer_class: 'CTRLTokenizer' is not a known"):
        BPETokenizer.from_file(folder)
    assert BPETokenizer.from_file(folder, split_pattern="gpt2").encode("ab") == loaded(gpt2).encode(
        "ab"
    )


def test_a_vocabulary_of_unknown_kind(tmp_path):
    write_json(tmp_path / "vocab.json", {"a": 0, "b": 1, "ab": 2})
    (tmp_path / "merges.txt").write_text("a b\n")
    with pytest.raises(FileFormatError, match="not all 256 bytes .* no token ends in"):
        BPETokenizer.from_file(tmp_path)
    write_json(tmp_path / "vocab.json", {"a": 0, "b": 1, "ab": 2, "a</w>": 3, "b</eow>": 4})
    with pytest.raises(FileFormatError, match="tokens end in both </w> and </eow>"):
        BPETokenizer.from_file(tmp_path)


def test_parts_of_contractions_are_possible_with_gpt2s_pattern(gpt2, tmp_path):
    """On its own "'r" would be cut; it comes of "'re"."""
    folder = copied(gpt2, tmp_path)
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    write_json(folder / "vocab.json", {**vocab, "'r": 2000, "'re": 2001})
    with open(folder / "merges.txt", "a", encoding="utf-8") as file:
        file.write("' r\n'r e\n")
    ours = BPETokenizer.from_file(folder)
    assert ours.split_pattern == SPLIT_PATTERNS["gpt2"]
    with open(folder / "merges.txt", "a", encoding="utf-8") as file:
        file.write("'r '\n")
    write_json(folder / "vocab.json", {**vocab, "'r": 2000, "'re": 2001, "'r'": 2002})
    with pytest.raises(FileFormatError, match=r"would never make its token .*\(id 2002\); pass"):
        BPETokenizer.from_file(folder)


def test_other_names(gpt2, tmp_path):
    for vocab, merges, path in [
        ("encoder.json", "vocab.bpe", tmp_path / "a" / "encoder.json"),
        ("small-vocab.json", "small-merges.txt", tmp_path / "b" / "small-vocab.json"),
        ("vocab.json", "merges.txt", tmp_path / "c" / "vocab.json"),
    ]:
        folder = path.parent
        folder.mkdir()
        shutil.copy(gpt2 / "vocab.json", folder / vocab)
        shutil.copy(gpt2 / "merges.txt", folder / merges)
        assert BPETokenizer.from_file(path).encode(SAMPLES[0]) == loaded(gpt2).encode(SAMPLES[0])


def test_merges_beside_are_needed(gpt2, tmp_path):
    shutil.copy(gpt2 / "vocab.json", tmp_path)
    for path in (tmp_path, tmp_path / "vocab.json"):
        with pytest.raises(FileFormatError, match="there is no merges.txt beside it"):
            BPETokenizer.from_file(path)


def test_other_line_ends(gpt2, tmp_path):
    folder = copied(gpt2, tmp_path)
    text = (folder / "merges.txt").read_text(encoding="utf-8")
    lines = text.split("\n")
    assert lines[0].startswith("#version")
    for written in (
        "\r\n".join(lines),
        "\n\n" + "\n\n".join(lines[1:]),
        "\n".join(lines[1:]).strip(),
    ):
        (folder / "merges.txt").write_bytes(written.encode())
        assert BPETokenizer.from_file(folder).merges == loaded(gpt2).merges


# -- Damaged and hostile files ------------------------------------------------

VOCABS = [
    ("", "not JSON"),
    ("[]", "expected a JSON object"),
    ("{}", "is empty"),
    ("5", "expected a JSON object"),
    ('{"a": "0"}', "'a': expected an id from 0 to 2147483647, got '0'"),
    ('{"a": -1}', "'a': expected an id from 0"),
    ('{"a": 4611686018427387904}', "'a': expected an id from 0"),
    ('{"a": 1.0}', "'a': expected an id from 0"),
    ('{"a": true}', "'a': expected an id from 0"),
    ('{"a": null}', "'a': expected an id from 0"),
    ('{"a": {"b": 1}}', "'a': expected an id from 0"),
    ('{"a": NaN}', "'a': expected an id from 0"),
    ('{"a": 0, "b": 0}', "'b': id 0 is that of 'a' too"),
    ('{"a": 0, "a": 1}', "'a': appears twice, with ids 0 and 1"),
    ('{"a": ' + "[" * 200_000, "not JSON"),
    ('{"a": ' + '{"b":' * 200_000, "not JSON"),
    ('{"a": ' + "9" * 5000 + "}", "not JSON|expected an id"),
    ('{"a": 0', "not JSON"),
]


@pytest.mark.parametrize("text, message", VOCABS, ids=[f"{t[:20]}-{m}" for t, m in VOCABS])
def test_a_damaged_vocabulary(text, message, tmp_path):
    (tmp_path / "vocab.json").write_text(text)
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(FileFormatError, match=message) as caught:
        BPETokenizer.from_file(tmp_path)
    assert caught.value.path == str(tmp_path / "vocab.json")


@pytest.mark.parametrize(
    "line, message",
    [
        (b"he", "line 4: expected two tokens with one space between, got 'he'"),
        (b"h e r", "line 4: expected two tokens"),
        (b"h  e", "line 4: expected two tokens"),
        (b" he", "line 4: expected two tokens"),
        (b"h\te", "line 4: expected two tokens"),
        (b"h qqqq", "line 4: token 'qqqq' is not in the vocabulary"),
        ("世 界".encode(), "line 4: token '世' is not in the vocabulary"),
        (b"\xff e", "not UTF-8"),
        (b"h" * 10**6 + b" e", r"line 4: token 'hhh.*\.\.\. is not in the vocabulary"),
    ],
)
def test_a_damaged_merge(line, message, gpt2, tmp_path):
    folder = copied(gpt2, tmp_path)
    lines = (folder / "merges.txt").read_bytes().split(b"\n")
    (folder / "merges.txt").write_bytes(b"\n".join([*lines[:3], line, *lines[3:]]))
    with pytest.raises(FileFormatError, match=message) as caught:
        BPETokenizer.from_file(folder)
    assert caught.value.path == str(folder / "merges.txt")
    assert len(str(caught.value)) < 400


CONFIGS = [
    ({"tokenizer_class": 5}, "tokenizer_class: expected str"),
    ({"eos_token": 5}, "eos_token: expected str or dict"),
    ({"eos_token": {}}, "eos_token.content: is missing"),
    ({"eos_token": {"content": ""}}, "eos_token.content: is empty"),
    ({"eos_token": {"content": "a", "lstrip": 1}}, "eos_token.lstrip: expected bool"),
    ({"additional_special_tokens": 5}, "additional_special_tokens: expected list"),
    ({"additional_special_tokens": [5]}, r"additional_special_tokens\[0\]: expected str or dict"),
    ({"added_tokens_decoder": []}, "added_tokens_decoder: expected dict"),
    ({"added_tokens_decoder": {"x": {"content": "a"}}}, "added_tokens_decoder.x: expected an id"),
    ({"added_tokens_decoder": {"-1": {"content": "a"}}}, "added_tokens_decoder.-1: expected an id"),
    ({"added_tokens_decoder": {"٣": {"content": "a"}}}, "expected an id"),
    ({"added_tokens_decoder": {"9": None}}, "added_tokens_decoder.9: expected an object"),
    ({"added_tokens_decoder": {"9" * 10: {"content": "<a>"}}}, "9999999999"),
    ({"add_prefix_space": "yes"}, "add_prefix_space: expected bool"),
    ({"chat_template": 5}, "chat_template: expected str"),
    ({"padding_side": 5}, "padding_side: expected 'left' or 'right', got 5"),
]


@pytest.mark.parametrize("config, message", CONFIGS, ids=str)
def test_a_damaged_description(config, message, gpt2, tmp_path):
    folder = copied(gpt2, tmp_path)
    write_json(folder / "tokenizer_config.json", config)
    with pytest.raises(FileFormatError, match=message):
        BPETokenizer.from_file(folder)


def test_truncated_files(gpt2, tmp_path):
    folder = copied(gpt2, tmp_path)
    vocab, merges = (gpt2 / "vocab.json").read_bytes(), (gpt2 / "merges.txt").read_bytes()
    assert len(vocab) > 8000 and len(merges) > 3000
    for cut in [*range(0, len(vocab), 1000), len(vocab) - 1]:
        (folder / "vocab.json").write_bytes(vocab[:cut])
        with pytest.raises(FileFormatError):
            BPETokenizer.from_file(folder)
    (folder / "vocab.json").write_bytes(vocab)
    for cut in range(0, len(merges), 97):  # a border of lines leaves a whole, smaller file
        (folder / "merges.txt").write_bytes(merges[:cut])
        last = merges[:cut].split(b"\n")[-1]
        try:
            ours = BPETokenizer.from_file(folder)
        except FileFormatError as error:
            assert last and "merges.txt" in str(error)
        else:
            assert set(ours.merges[:-1]) <= set(loaded(gpt2).merges)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_a_file_too_large_is_not_read(name, gpt2, tmp_path):
    folder = copied(gpt2, tmp_path)
    with open(folder / name, "r+b") as file:
        file.truncate(2**40)
    with pytest.raises(FileFormatError, match="1,099,511,627,776 bytes; the limit is"):
        BPETokenizer.from_file(folder)


@settings(max_examples=examples(100))
@given(garbage=st.binary(max_size=12), at=st.integers(0, 9000), merges=st.booleans())
def test_damaged_bytes(gpt2, garbage, at, merges, tmp_path):
    folder = copied(gpt2, tmp_path)
    path = folder / ("merges.txt" if merges else "vocab.json")
    data = path.read_bytes()
    at %= len(data)
    path.write_bytes(data[:at] + garbage + data[at + len(garbage) :])
    try:
        ours = BPETokenizer.from_file(folder)
    except FileFormatError:
        return
    assert ours.decode(ours.encode("ab c")) == "ab c"


# -- Writing ------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(engine: str):
    ours = BPETokenizer("gpt2", normalizer=None).train(
        CORPUS, vocab_size=900, special_tokens=["<pad>", "<end>"], verbose=False
    )
    ours.add_special_tokens(
        [AddedToken("<tool>", 2000, special=False), AddedToken("<i>", 1500, rstrip=True)]
    )
    ours.eos_token = "<end>"
    return ours


@pytest.fixture(scope="module")
def exported(engine: str, trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    trained.export(folder, "gpt2")
    return folder


def test_what_is_written(exported, trained):
    assert {path.name for path in exported.iterdir()} == {
        "vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"
    }  # fmt: skip
    assert len((exported / "merges.txt").read_bytes().split(b"\n")) == len(trained.merges) + 2
    again = BPETokenizer.from_file(exported)
    assert again.merges == trained.merges
    assert again.get_vocab() == trained.get_vocab()
    assert again.added_tokens == trained.added_tokens
    assert (again.eos_token, again.pad_token, again.bos_token) == ("<end>", "<pad>", None)


@settings(max_examples=examples(300))
@given(text=TEXTS)
def test_the_same_ids_everywhere(exported, trained, text):
    transformers = need("transformers")
    if (exported, "transformers") not in CACHE:
        CACHE[exported, "transformers"] = transformers.AutoTokenizer.from_pretrained(exported)
    theirs = CACHE[exported, "transformers"]
    assert type(theirs).__name__.startswith("GPT2Tokenizer")
    ids = trained.encode(text)
    assert theirs(text)["input_ids"] == ids == by_hand(exported).encode(text).ids
    assert theirs.decode(ids, clean_up_tokenization_spaces=False) == text
    text = f"{text}<tool><i> {text}<end>"
    assert theirs(text)["input_ids"] == trained.encode(text, allowed_special="all")


def test_no_token_is_added_by_transformers(exported, trained):
    transformers = need("transformers")
    theirs = transformers.GPT2Tokenizer.from_pretrained(exported)
    assert len(theirs) == trained.vocab_size
    assert theirs.get_vocab() == trained.get_vocab()
    assert (theirs.eos_token, theirs.bos_token, theirs.unk_token) == ("<end>", None, None)


def test_a_chat_template_goes_along(tmp_path):
    ours = BPETokenizer(normalizer=None)
    ours.chat_template = "{{ messages }}"
    ours.export(tmp_path, "gpt2")
    assert BPETokenizer.from_file(tmp_path).chat_template == "{{ messages }}"


def test_a_prefix_space_goes_along(gpt2, tmp_path):
    folder = copied(gpt2, tmp_path / "a")
    write_json(folder / "tokenizer_config.json", {"add_prefix_space": True})
    ours = BPETokenizer.from_file(folder)
    ours.export(tmp_path / "b", "gpt2")
    again = BPETokenizer.from_file(tmp_path / "b")
    assert again.encode("a b") == ours.encode("a b") != loaded(gpt2).encode("a b")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: BPETokenizer("cl100k", normalizer=None), "its split pattern is not GPT-2's but"),
        (
            lambda: BPETokenizer("gpt2"),
            "it normalizes text to NFC, which GPT-2's tokenizer does not",
        ),
    ],
)
def test_what_would_be_lost_is_named(make, message, tmp_path):
    ours = make()
    wanted = f"vocab.json and merges.txt cannot hold this tokenizer: {message}"
    with pytest.raises(ValueError, match=wanted):
        ours.export(tmp_path / "out", "gpt2")
    assert not (tmp_path / "out").exists()


def test_a_normalizer_is_left_out_on_request(tmp_path):
    ours = BPETokenizer("gpt2").train(CORPUS, 300, verbose=False)
    ours.export(tmp_path, "gpt2", without_normalizer=True)
    again, theirs = BPETokenizer.from_file(tmp_path), by_hand(tmp_path)
    assert (again.normalizer, ours.normalizer) == (None, "NFC")
    for text in (*SAMPLES, *CORPUS):
        assert again.encode(text) == theirs.encode(text).ids
        composed = unicodedata.normalize("NFC", text)
        assert ours.encode(text) == again.encode(composed)


def test_words_are_no_gpt2(words, tmp_path):
    with pytest.raises(ValueError, match="cannot hold this tokenizer: it is not byte-level"):
        loaded(words[0]).export(tmp_path / "out", "gpt2")


def test_tokens_without_merges_would_be_lost(gpt2, tmp_path):
    from bpe_tokenizer_tools.formats.tiktoken import byte_level

    ranks = {bytes([b]): b for b in range(256)}

    def read(more):
        path = tmp_path / "tokenizer.json"
        source = byte_level(path, {**ranks, **more}, SPLIT_PATTERNS["gpt2"], {})
        return BPETokenizer.from_file(
            write_json(path, _tokenizer_json(source.definition, ((), ())))
        )

    ours = read({b"zzzz": 256})
    assert ours.encode("zzzz") == [256]
    with pytest.raises(ValueError, match="ignore_merges"):
        ours.export(tmp_path / "out", "gpt2")
    ours = read({b"zz": 256})
    ours.export(tmp_path / "out", "gpt2")
    assert BPETokenizer.from_file(tmp_path / "out").encode("zzz") == ours.encode("zzz")


def test_it_goes_to_a_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        BPETokenizer(normalizer=None).export(tmp_path / "file", "gpt2")


def test_what_looks_like_a_vocabulary(tmp_path):
    assert format_.matches(tmp_path / "vocab.json", b'{"a"')
    assert format_.matches(tmp_path / "small-vocab.json", b'{"a"')
    assert not format_.matches(tmp_path / "tokenizer.json", b'{"a"')


def test_of_a_directory_with_several_the_first_known_is_read(gpt2, tmp_path):
    folder = copied(gpt2, tmp_path)
    ids = loaded(gpt2).encode("a tokenizer")
    for name in ("b.tiktoken", "c.tiktoken", "d.model", "e.gguf"):
        (folder / name).write_bytes(b"")
    (folder / "tokenizer.model").mkdir()
    assert BPETokenizer.from_file(folder).encode("a tokenizer") == ids
    (folder / "tekken.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"tekken.json: config: is missing"):
        BPETokenizer.from_file(folder)
    for name in ("tekken.json", "vocab.json"):
        (folder / name).unlink()
    with pytest.raises(FileFormatError, match=r"name one of: b.tiktoken, c.tiktoken"):
        BPETokenizer.from_file(folder)
    for name in ("b.tiktoken", "c.tiktoken", "d.model", "e.gguf"):
        (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=r"contains no tokenizer.json and no other"):
        BPETokenizer.from_file(folder)
