"""`.tiktoken` files and live encodings, against tiktoken itself."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
import pickle
import random
import re
import shutil
import sys
import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import tiktoken as format_

tiktoken = need("tiktoken")

THOROUGH = bool(os.environ.get("BPE_TOKENIZER_THOROUGH"))
NAMES = ["r50k_base", "cl100k_base", "o200k_base", "qwen3"]
EOT = "<|endoftext|>"


@pytest.fixture(scope="module")
def pair(engine: str, vocab_dir, load_vocab):
    """Give a function from a vocabulary's name to (our tokenizer, tiktoken's encoding)."""
    made = {}

    def get(name):
        if name not in made:
            ranks, meta = load_vocab(name)
            encoding = tiktoken.Encoding(
                name,
                pat_str=meta["pat_str"],
                mergeable_ranks=ranks,
                special_tokens=meta["special_tokens"],
            )
            made[name] = BPETokenizer.from_file(vocab_dir / f"{name}.tiktoken"), encoding
        return made[name]

    return get


@pytest.fixture(scope="module")
def trained(engine: str):
    text = (ROOT / "README.md").read_text(encoding="utf-8") + "Grüße, 世界! 😀 's 123\n\n" * 30
    return BPETokenizer("cl100k", normalizer=None).train(
        [text], vocab_size=1200, special_tokens=[EOT, "<|im_end|>"], verbose=False
    )


ROOT = Path(__file__).resolve().parents[2]


def write_ranks(path, ranks):
    lines = [base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()]
    path.write_bytes(b"".join(lines))
    return path


def byte_ranks(*further):
    ranks = {bytes([b]): b for b in range(256)}
    ranks.update({token: 256 + i for i, token in enumerate(further)})
    return ranks


# -- Published vocabularies ---------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("corpus", ["english", "code", "multi"])
def test_ids_on_real_text(name, corpus, pair, corpora):
    ours, theirs = pair(name)
    text = corpora(corpus)
    if not THOROUGH:
        start = len(text) // 3
        text = text[start : start + (400_000 if corpus != "multi" else 200_000)]
    ids = ours.encode(text)
    assert ids == theirs.encode_ordinary(text)
    assert ours.decode(ids) == text


def random_texts(count, seed):
    """Strings of characters from everywhere, and runs of the kinds patterns tell apart."""
    rng = random.Random(seed)
    kinds = [
        lambda: chr(rng.randrange(0x20, 0x7F)),
        lambda: rng.choice(" \t\n\r\x0b\x85\xa0\u2003\u2028\u3000\u200b"),
        lambda: rng.choice("'sStTrReEvVmMlLdD\u017f\u2019\u212a"),
        lambda: chr(rng.randrange(0xA0, 0x800)),
        lambda: chr(rng.randrange(0x800, 0xD800)),
        lambda: chr(rng.randrange(0xE000, 0x30000)),
        lambda: chr(rng.randrange(0x30000, 0x110000)),
        lambda: rng.choice("0123456789\u0663\u00bd\u2167\U0001d7ce"),
        lambda: rng.choice("\u0301\u0308\u20dd\u0903\ufe0f\u200d\U0001f3fd"),
    ]
    version_safe = unicodedata.category
    for _ in range(count):
        weights = [rng.random() ** 3 for _ in kinds]
        chars = (kind() for kind in rng.choices(kinds, weights, k=rng.randrange(40)))
        # Engines know different versions of Unicode: what is assigned in all of them.
        yield "".join(char for char in chars if version_safe(char) != "Cn")


@pytest.mark.parametrize("name", NAMES)
def test_ids_of_random_text(name, pair):
    ours, theirs = pair(name)
    texts = list(random_texts(100_000 if THOROUGH else 3000, seed=NAMES.index(name)))
    expected = theirs.encode_ordinary_batch(texts)
    for text, ids in zip(texts, expected):
        assert ours.encode(text) == ids, text
        assert ours.decode(ids) == text


def assigned():
    """All assigned code points; of large blocks of one kind some, unless asked for all."""
    for point in range(sys.maxunicode + 1):
        kind = unicodedata.category(chr(point))
        alike = kind == "Co" or (kind == "Lo" and point > 0x3000)
        if kind not in ("Cn", "Cs") and (THOROUGH or not alike or point % 101 == 0):
            yield chr(point)


@pytest.mark.slow
@pytest.mark.parametrize(
    "context",
    ["{}", "a{}", "{}A", "a{}b", "1{}2", "3{}", " {} ", "\n{}\n", "!{}?", "'{}", "{0}{0}s"],
)
@pytest.mark.parametrize("name", NAMES)
def test_every_assigned_code_point(name, context, pair):
    ours, theirs = pair(name)
    # What separates them is a pre-token border for every pattern, whatever comes next to it.
    units = [f"\n\n@x@{context.format(char)}" for char in assigned()]
    text = "".join(units)
    if ours.encode(text) == theirs.encode_ordinary(text):
        return
    wrong = [unit for unit in units if ours.encode(unit) != theirs.encode_ordinary(unit)]
    pytest.fail(f"{len(wrong)} differ, such as {wrong[:10]!r}")


@pytest.mark.parametrize("name", NAMES)
def test_the_files_own_definition(name, pair, load_vocab):
    ours, _ = pair(name)
    ranks, meta = load_vocab(name)
    assert ours.special_tokens == meta["special_tokens"]
    assert ours.split_pattern in SPLIT_PATTERNS.values()
    assert ours.normalizer is None
    assert ours.vocab_size == len(ranks) + len(meta["special_tokens"])
    assert ours.eos_token == EOT
    text = f"a{EOT}b"
    assert ours.encode(text, allowed_special="all") == [
        ranks[b"a"], meta["special_tokens"][EOT], ranks[b"b"]
    ]  # fmt: skip


def test_a_public_encoding_is_known_by_its_hash(pair, vocab_dir, load_vocab, tmp_path):
    copy = shutil.copy(vocab_dir / "r50k_base.tiktoken", tmp_path / "renamed.bin")
    ours = BPETokenizer.from_file(copy)
    assert ours.special_tokens == load_vocab("r50k_base")[1]["special_tokens"]
    assert ours.split_pattern == pair("r50k_base")[0].split_pattern
    with open(copy, "ab") as file:
        file.write(b"\n")  # the same ranks, but not the same file
    with pytest.raises(FileFormatError, match=r"pass split_pattern.*gpt2.*special_tokens"):
        BPETokenizer.from_file(copy)


@pytest.mark.parametrize("name", ["r50k_base", "p50k_base", "cl100k_base", "o200k_base"])
def test_what_is_known_of_public_encodings_is_what_tiktoken_says(name, monkeypatch, vocab_dir):
    public = need("tiktoken_ext.openai_public")
    hashes = []

    def load(url, expected_hash):
        hashes.append(expected_hash)
        return {}

    monkeypatch.setattr(public, "load_tiktoken_bpe", load)
    definition = getattr(public, name)()
    known = format_._PUBLIC_ENCODINGS[name]
    assert [format_.PUBLIC_SHA256[name]] == hashes
    assert dict(known.special_tokens) == definition["special_tokens"]
    assert known.pattern == format_.from_fancy_regex(definition["pat_str"])
    assert known.pattern in SPLIT_PATTERNS.values()
    if name != "p50k_base":
        data = (vocab_dir / f"{name}.tiktoken").read_bytes()
        assert hashlib.sha256(data).hexdigest() == hashes[0]


def test_exported_again_it_is_the_same_file(pair, vocab_dir, tmp_path):
    pair("cl100k_base")[0].export(tmp_path / "x.tiktoken", "tiktoken")
    written = (tmp_path / "x.tiktoken").read_bytes()
    assert written == (vocab_dir / "cl100k_base.tiktoken").read_bytes()


# -- Reading ------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_a_compressed_file(suffix, tmp_path, monkeypatch):
    compress = importlib.import_module(
        {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}[suffix]
    ).compress
    plain = write_ranks(tmp_path / "x.tiktoken", byte_ranks(b"ab", b"12"))
    definition = {"pat_str": r"\d+|\D+", "special_tokens": {EOT: 258}}
    (tmp_path / "x.json").write_text(json.dumps(definition))
    expected = BPETokenizer.from_file(plain)
    packed = tmp_path / f"x.tiktoken{suffix}"
    packed.write_bytes(compress(plain.read_bytes()))
    plain.unlink()
    assert BPETokenizer.from_file(packed) == expected
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(FileFormatError, match=f"damaged {suffix} file"):
        BPETokenizer.from_file(packed)
    packed.write_bytes(compress(b"x" * 999))
    monkeypatch.setattr(format_, "MAX_BYTES", 998)
    with pytest.raises(FileFormatError, match="more than 998 bytes when decompressed"):
        BPETokenizer.from_file(packed)
    other = tmp_path / f"tokenizer.json{suffix}"
    other.write_bytes(compress(b"{}"))
    with pytest.raises(FileFormatError, match=r"unpack it first; only \.tiktoken files"):
        BPETokenizer.from_file(other)


def test_the_files_of_this_repository_load():
    path = Path(__file__).parent.parent / "data" / "r50k_base.tiktoken.xz"
    assert BPETokenizer.from_file(path).encode("Hello, world") == [15496, 11, 995]


def test_a_file_alone_needs_a_pattern(tmp_path):
    path = write_ranks(tmp_path / "x.tiktoken", byte_ranks(b"ab", b"12", b"123", b"1234"))
    with pytest.raises(FileFormatError, match="pass split_pattern"):
        BPETokenizer.from_file(path)
    ours = BPETokenizer.from_file(path, split_pattern="cl100k", special_tokens={EOT: 260})
    assert ours.split_pattern == SPLIT_PATTERNS["cl100k"]
    assert ours.encode(f"ab12345{EOT}", allowed_special="all") == [
        256,
        258,
        ord("4"),
        ord("5"),
        260,
    ]
    regex = BPETokenizer.from_file(path, split_pattern=r"\d+|\D+")
    assert regex.encode("ab1234") == [256, 259]


def test_ranks_with_a_hole(tmp_path):
    """As in p50k_base, where 50256 is the special token and ranks go on behind it."""
    ranks = {**byte_ranks(b"ab", b"cd"), b"abcd": 259, b"  ": 261, b"    ": 262}
    path = write_ranks(tmp_path / "x.tiktoken", ranks)
    ours = BPETokenizer.from_file(path, split_pattern="gpt2", special_tokens={EOT: 258})
    theirs = tiktoken.Encoding(
        "x", pat_str=SPLIT_PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens={EOT: 258}
    )
    text = f"abcd ab      x{EOT}   cd"
    ids = ours.encode(text, allowed_special="all")
    assert ids == theirs.encode(text, allowed_special="all")
    assert 258 in ids and 259 in ids and 262 in ids
    assert ours.decode(ids) == text
    assert (ours.vocab_size, ours.max_id) == (262, 262)
    assert ours.to_hf().encode(text).ids == ids
    again = ours.to_tiktoken()
    assert again.encode(text, allowed_special="all") == ids


def test_a_token_that_only_a_whole_pretoken_can_be(tmp_path):
    """tiktoken looks a pre-token up before it merges."""
    ranks = byte_ranks(b"bc", b"abcd", b"zzzz")
    path = write_ranks(tmp_path / "x.tiktoken", ranks)
    ours = BPETokenizer.from_file(path, split_pattern="gpt2")
    theirs = tiktoken.Encoding(
        "x", pat_str=SPLIT_PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens={}
    )
    for text in ("abcd", " abcd", "abcdzzzz", "zzzz", "zzzz 1"):
        assert ours.encode(text) == theirs.encode(text)
    assert ours.encode("abcd") == [257]
    assert ours.to_tiktoken().encode("zzzz abcd") == theirs.encode("zzzz abcd")


def test_an_empty_token(tmp_path):
    """Whisper's multilingual.tiktoken ends with one."""
    path = tmp_path / "x.tiktoken"
    write_ranks(path, byte_ranks(b"ab"))
    with open(path, "ab") as file:
        file.write(b"= 257\r\n\r\n")
    ours = BPETokenizer.from_file(path, split_pattern="gpt2")
    assert ours.encode("ab") == [256]
    assert ours.decode([256, 257, 97]) == "aba"
    ours.export(tmp_path / "y.tiktoken", "tiktoken")
    assert (tmp_path / "y.tiktoken").read_bytes().endswith(b"\n= 257\n")
    assert BPETokenizer.from_file(tmp_path / "y.tiktoken").decode([257, 97]) == "a"


def test_the_callers_special_tokens_win(tmp_path):
    path = write_ranks(tmp_path / "x.tiktoken", byte_ranks())
    sidecar = {"pat_str": SPLIT_PATTERNS["gpt2"], "special_tokens": {EOT: 256, "<a>": 257}}
    (tmp_path / "x.json").write_text(json.dumps(sidecar))
    ours = BPETokenizer.from_file(path, special_tokens={"<a>": 300, "<b>": 258})
    assert ours.special_tokens == {EOT: 256, "<b>": 258, "<a>": 300}
    with pytest.raises(ValueError, match=r"<c>.*id 65 is already that of 'A'"):
        BPETokenizer.from_file(path, special_tokens={"<c>": 65})
    ours = BPETokenizer.from_file(path, split_pattern="qwen2")
    assert ours.split_pattern == SPLIT_PATTERNS["qwen2"]


def harmony(monkeypatch, vocab_dir):
    """Return o200k_harmony as published: its arguments for tiktoken."""
    public = need("tiktoken_ext.openai_public")
    if not hasattr(public, "o200k_harmony"):
        pytest.skip("this tiktoken is older than o200k_harmony")
    load = need("tiktoken.load")
    ranks = load.load_tiktoken_bpe(str(vocab_dir / "o200k_base.tiktoken"))
    monkeypatch.setattr(public, "load_tiktoken_bpe", lambda *args, **options: ranks)
    return public.o200k_harmony()


def test_a_published_table_may_name_an_id_twice(monkeypatch, vocab_dir):
    arguments = harmony(monkeypatch, vocab_dir)
    special, theirs = arguments["special_tokens"], tiktoken.Encoding(**arguments)
    first, last = "<|endofprompt|>", "<|reserved_200018|>"
    assert special[first] == special[last] == 200018
    path = vocab_dir / "o200k_base.tiktoken"
    ours = BPETokenizer.from_file(path, special_tokens=special)
    assert ours.special_tokens == special
    assert (ours.vocab_size, ours.max_id) == (201088, 201087)
    text = "".join(f"{token} a" for token in special) + "Hello, 世界"
    ids = theirs.encode(text, allowed_special="all")
    assert ours.encode(text, allowed_special="all") == ids
    assert ours.encode(text) == theirs.encode_ordinary(text)
    assert ours.encode(first, allowed_special={first}) == [200018]
    assert ours.encode(last, allowed_special={first}) == theirs.encode_ordinary(last)
    assert ours.convert_tokens_to_ids([first, last]) == [200018, 200018]
    assert ours.get_vocab()[first] == ours.get_vocab()[last] == 200018
    # Which of the two tiktoken decodes to depends on its hash table, and so on its version.
    assert theirs.decode([200018]) in (first, last)
    assert ours.decode(ids) == text.replace(first, last)
    assert ours.decode([200018], skip_special_tokens=True) == ""
    assert "".join(ours.decode_streaming(ids)) == ours.decode(ids)
    assert ours.convert_ids_to_tokens(200018) == last
    assert ours.encode_with_offsets(first, allowed_special="all").tokens == [last]
    for other in set(special.values()) - {200018}:
        assert ours.decode([other]) == theirs.decode([other])


def test_of_texts_that_share_an_id_the_one_listed_last_is_decoded(tmp_path):
    path = write_ranks(tmp_path / "x.tiktoken", byte_ranks(b"ab"))
    for special in ({"<a>": 300, "<b>": 300}, {"<b>": 300, "<a>": 300}):
        ours = BPETokenizer.from_file(path, "gpt2", special)
        assert ours.encode("<a><b>ab", allowed_special="all") == [300, 300, 256]
        assert ours.decode([300]) == ours.convert_ids_to_tokens(300) == list(special)[-1]
        assert ours.vocab_size == 258
        assert list(ours.special_tokens) == list(special)
        assert ours.with_vocab_size(257).vocab_size == 257
        with pytest.raises(ValueError, match="id 300 is already that of '<.>'"):
            ours.add_special_tokens({"<c>": 300})
        again = pickle.loads(pickle.dumps(ours))
        assert again == ours and again.decode([300]) == ours.decode([300])
        ours.export(tmp_path / "again.tiktoken", "tiktoken")
        again = BPETokenizer.from_file(tmp_path / "again.tiktoken")
        assert again == ours and again.decode([300]) == ours.decode([300])
        meta = json.loads((tmp_path / "again.json").read_text())
        built = tiktoken.Encoding(**meta, mergeable_ranks=byte_ranks(b"ab"))
        for encoding in (built, ours.to_tiktoken()):
            assert encoding.encode("<a><b>ab", allowed_special="all") == [300, 300, 256]
        ours.add_special_tokens(["<c>"])
        assert ours.special_tokens["<c>"] == 257 and ours.special_tokens["<a>"] == 300
    # Ids without a gap: tiktoken takes explicit_n_vocab for the number of texts.
    ours = BPETokenizer.from_file(path, "gpt2", {"<a>": 257, "<b>": 257})
    ours.export(tmp_path / "again.tiktoken", "tiktoken")
    meta = json.loads((tmp_path / "again.json").read_text())
    assert tiktoken.Encoding(**meta, mergeable_ranks=byte_ranks(b"ab")).n_vocab == 258
    # A table given by the caller comes after the one beside the file.
    sidecar = {"pat_str": SPLIT_PATTERNS["gpt2"], "special_tokens": {"<a>": 300, "<b>": 300}}
    (tmp_path / "x.json").write_text(json.dumps(sidecar))
    assert BPETokenizer.from_file(path).decode([300]) == "<b>"
    assert BPETokenizer.from_file(path, special_tokens={"<a>": 300}).decode([300]) == "<a>"


def test_formats_with_one_text_for_each_id_refuse_two(tmp_path):
    path = write_ranks(tmp_path / "x.tiktoken", byte_ranks(b"ab"))
    ours = BPETokenizer.from_file(path, "gpt2", {"<a>": 257, "<b>": 257})
    problem = "'<a>' and '<b>' share id 257"
    with pytest.raises(ValueError, match=problem):
        ours.save(tmp_path / "saved", verbose=False)
    for format in ("tokenizer.json", "gpt2"):
        with pytest.raises(ValueError, match=problem):
            ours.export(tmp_path / "out", format)
    with pytest.raises(ValueError, match="id 257 is both '<a>' and '<b>'"):
        ours.export(tmp_path / "out.gguf", "gguf")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.tiktoken"]
    with pytest.raises(ValueError, match="id 256 is already that of"):
        BPETokenizer().add_special_tokens({"<a>": 256, "<b>": 256})


def test_a_neighboring_tokenizer_json_is_not_taken_for_the_description(tmp_path):
    path = write_ranks(tmp_path / "x.tiktoken", byte_ranks())
    (tmp_path / "x.json").write_text('{"model": {"type": "BPE"}}')
    with pytest.raises(FileFormatError, match="pass split_pattern"):
        BPETokenizer.from_file(path)


SIDECARS = [
    ({"pat_str": 5}, "pat_str: expected str, got 5"),
    ({"pat_str": "("}, "not a regular expression|cannot be written"),
    ({"pat_str": "x" * 20_000}, "20000 characters"),
    ({"special_tokens": []}, "special_tokens: expected dict"),
    ({"special_tokens": {"<a>": -1}}, "'<a>': expected an id from 0"),
    ({"special_tokens": {"<a>": 2**62}}, "'<a>': expected an id from 0"),
    ({"special_tokens": {"<a>": "300"}}, "'<a>': expected an id from 0"),
    ({"special_tokens": {"<a>": True}}, "'<a>': expected an id from 0"),
    ({"special_tokens": {"": 300}}, "''"),
    ({"special_tokens": {"<a>": 97}}, "97 is already"),
    ({"special_tokens": {"A": 300}}, "'A' is already a token"),
    ({"normalizer": "nfc"}, "normalizer: expected one of NFC"),
    ({"explicit_n_vocab": 300}, "says 300, but x.tiktoken and special_tokens have 256 tokens"),
    ({"explicit_n_vocab": 2**70}, "explicit_n_vocab: says"),
    ({"eos_token": "<|x|>"}, "eos_token: '<|x|>' is not in special_tokens"),
    ({"eos_token": ["a"]}, "eos_token: expected str"),
    # In Rust these are the borders of words, here a "<" and a ">".
    ({"pat_str": r"\<a|[\s\S]"}, "pat_str: .* not supported"),
    ({"pat_str": r"a\\\>|[\s\S]"}, "pat_str: .* not supported"),
    ({"pat_str": r"\h+|\H"}, "split pattern .* at position 0 has no form"),
    ({"pat_str": r"[\w--\d]+|[\s\S]"}, "pat_str: sets may contain .* not --"),
    ({"pat_str": r"[\w~~\d]+|[\s\S]"}, "pat_str: sets may contain .* not ~~"),
]


OF_SETS = [
    r"[a-z&&[^q]]+|\p{L}+|[\s\S]",
    r"[\p{L}[0-9]]+|[\s\S]",
    r"[^\s[a-c]]{1,3}+|\s+$|[\s\S]",
    r"[\w&&[^\d_]]+|\s+\z|[\s\S]",
]


@pytest.mark.parametrize("pattern", OF_SETS)
def test_sets_of_sets_in_rust(pattern, tmp_path):
    ranks = byte_ranks()
    for token in (b"ab", b"bq", b"a[", b"[]", b"12", b"a1", b" \n", b"  ", b"]]"):
        ranks[token] = len(ranks)
    path = write_ranks(tmp_path / "x.tiktoken", ranks)
    special = {"<s>": len(ranks), "</s>": len(ranks) + 1}
    sidecar = {"pat_str": pattern, "special_tokens": special, "surround": "default"}
    (tmp_path / "x.json").write_text(json.dumps(sidecar))
    ours = BPETokenizer.from_file(path)
    theirs = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    for text in ("abqab bqa1", "a[]] a1 12]]", "  \n ab  \n", "a[b]&&c12_ab\n\n"):
        assert ours.encode(text) == theirs.encode(text)
    assert ours.definition.template == "default"  # whatever the pattern
    assert ours.encode("a", add_special_tokens=True) == [special["<s>"], 97, special["</s>"]]


@pytest.mark.parametrize("pattern", [r"[\p{L}[0-9]]+|[\s\S]", r"[a[]+|[^a[]+", r"(?:[[]a|[^]~-])+"])
def test_a_bracket_in_a_set_is_no_set(pattern, tmp_path):
    trained = BPETokenizer(pattern, normalizer=None)
    trained.train(["a[ b] a1] [a [[a "] * 20, 270, special_tokens=["<s>"], verbose=False)
    trained.export(tmp_path / "x.tiktoken", "tiktoken")
    given = BPETokenizer.from_file(tmp_path / "x.tiktoken")
    (tmp_path / "x.json").unlink()
    again = BPETokenizer.from_file(tmp_path / "x.tiktoken", split_pattern=pattern)
    encoding = trained.to_tiktoken()
    for text in ("a[ b]] a1]]", "[a[[a 12]] ~-[", "]a[a]"):
        assert given.encode(text) == again.encode(text) == trained.encode(text)
        assert encoding.encode(text) == trained.encode(text)


def test_an_escaped_backslash_before_an_angle_bracket():
    assert format_.from_fancy_regex(r"\\<|\\\\>") == r"\\<|\\\\>"


@pytest.mark.parametrize("field, message", SIDECARS, ids=str)
def test_a_wrong_description(field, message, tmp_path):
    path = write_ranks(tmp_path / "x.tiktoken", byte_ranks())
    (tmp_path / "x.json").write_text(json.dumps({"pat_str": "a|[^a]+", **field}))
    with pytest.raises(ValueError, match=message) as caught:
        BPETokenizer.from_file(path)
    assert str(tmp_path) in str(caught.value)


LINES = [
    (b"YQ== 300", "line 257: b'a' already has rank 97"),
    (b"YWI= 97", "line 257: rank 97 is already that of line 98"),
    (b"YWI= -1", "line 257: expected a rank from 0 to 2147483647, got b'-1'"),
    (b"YWI= 4611686018427387904", "expected a rank from 0 to 2147483647"),
    (b"YWI= 2147483648", "expected a rank from 0 to 2147483647"),
    (b"YWI= " + b"9" * 100_000, "expected a rank from 0"),
    (b"YWI= 1e3", "expected a rank from 0"),
    (b"YWI= 3.0", "expected a rank from 0"),
    ("YWI= ٣".encode(), "expected a rank from 0"),
    (b"YWI=", "line 257: expected a token in base64 and a rank, got b'YWI='"),
    (b"YWI= 300 1", "line 257: expected a token in base64 and a rank"),
    (b"YWI 300", "line 257: b'YWI' is not base64"),
    (b"Y*I= 300", r"line 257: b'Y\*I=' is not base64"),
    (b"\xff\xfe= 300", "is not base64"),
    (b"\x00" * 1000, "line 257: expected a token in base64"),
]


@pytest.mark.parametrize("line, message", LINES, ids=[message for _, message in LINES])
def test_a_wrong_line(line, message, tmp_path):
    path = write_ranks(tmp_path / "x.tiktoken", byte_ranks())
    with open(path, "ab") as file:
        file.write(line + b"\n")
    with pytest.raises(FileFormatError, match=message) as caught:
        BPETokenizer.from_file(path, split_pattern="gpt2")
    assert caught.value.path == str(path)
    assert len(str(caught.value)) < 400 + len(str(path))


@pytest.mark.parametrize("size", [0, 1, 255])
def test_bytes_without_a_token(size, tmp_path):
    ranks = dict(list(byte_ranks().items())[:size])
    path = write_ranks(tmp_path / "x.tiktoken", ranks)
    with pytest.raises(FileFormatError, match=f"has no token for byte 0x{size:02X}; is the file"):
        BPETokenizer.from_file(path, split_pattern="gpt2")


def test_tokens_too_long_to_find_merges_for(tmp_path):
    path = write_ranks(tmp_path / "x.tiktoken", byte_ranks(b"a" * 100_000))
    with pytest.raises(FileFormatError, match="too long to find their merges"):
        BPETokenizer.from_file(path, split_pattern="gpt2")


def test_a_file_too_large_is_not_read(tmp_path):
    path = tmp_path / "x.tiktoken"
    with open(path, "wb") as file:
        file.truncate(2**40)  # sparse: it takes no disk
    with pytest.raises(FileFormatError, match="1,099,511,627,776 bytes; the limit is"):
        BPETokenizer.from_file(path)


def test_truncated_files(trained, tmp_path):
    trained.export(tmp_path / "x.tiktoken", "tiktoken")
    whole = (tmp_path / "x.tiktoken").read_bytes()
    assert len(whole) > 5_000
    for cut in [*range(0, len(whole), 1000), *range(len(whole) - 300, len(whole) - 1, 7)]:
        (tmp_path / "x.tiktoken").write_bytes(whole[:cut])
        with pytest.raises(FileFormatError):
            BPETokenizer.from_file(tmp_path / "x.tiktoken")


def test_a_truncated_description(trained, tmp_path):
    trained.export(tmp_path / "x.tiktoken", "tiktoken")
    whole = (tmp_path / "x.json").read_bytes()
    for cut in range(0, len(whole) - 2, 40):
        (tmp_path / "x.json").write_bytes(whole[:cut])
        with pytest.raises(FileFormatError, match="x.json: not JSON"):
            BPETokenizer.from_file(tmp_path / "x.tiktoken")


@settings(max_examples=examples(150))
@given(garbage=st.binary(max_size=60), at=st.integers(0, 4000))
def test_damaged_bytes(garbage, at, tmp_path):
    path = write_ranks(tmp_path / "x.tiktoken", byte_ranks(b"ab"))
    data = path.read_bytes()
    path.write_bytes(data[:at] + garbage + data[at + len(garbage) :])
    try:
        ours = BPETokenizer.from_file(path, split_pattern="gpt2")
    except FileFormatError:
        return
    assert ours.decode(ours.encode("ab c")) == "ab c"


def test_what_looks_like_ranks(tmp_path):
    path = tmp_path / "anything"
    assert format_.matches(write_ranks(path, byte_ranks()), path.read_bytes()[:4096])
    for other in (b"", b"Hello world 1\n", b"h e\n", b"{}", b"abc 1\n", b"YWI= x\n", b"\x00"):
        path.write_bytes(other)
        assert not format_.matches(path, other)
    assert not format_.matches(tmp_path, b"")


# -- Split patterns -----------------------------------------------------------


PATTERNS = [
    *SPLIT_PATTERNS.values(),
    r"a$|\S+|\s+",
    r"\s+\Z|[ab]+(?=1)|\w+|\W",
    r"(?i:s)|b{1,2}+|[^\s]|\s",
    r"\d{1,3}(?=(?:\d{3})*(?:\D|$))|\D",
    r"a",
    r"[ab-]+|(?<=a)1",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_mean_the_same_to_tiktoken(pattern):
    """Ids of whole words show where the borders are."""
    rng = random.Random(1)
    alphabet = "aAbBsS1 \n\r\t'.-<é\u0301世\u017f\u212a"
    words = {"".join(rng.choices(alphabet, k=rng.randrange(2, 4))) for _ in range(1500)}
    ranks = byte_ranks(*sorted({word.encode() for word in words} - set(byte_ranks())))
    ours = from_ranks(ranks, pattern)
    theirs = ours.to_tiktoken()
    for _ in range(1500):
        text = "".join(rng.choices(alphabet, k=rng.randrange(12)))
        assert ours.encode(text) == theirs.encode(text), text
        assert theirs.decode(ours.encode(text)) == text


def from_ranks(ranks, pattern):
    with tempfile.TemporaryDirectory() as directory:
        path = write_ranks(Path(directory) / "x.tiktoken", ranks)
        return BPETokenizer.from_file(path, split_pattern=pattern)


@pytest.mark.parametrize(
    "pattern", [r"a$|[^a]|a", r"b\z|[\s\S]", r"\s\Z|[\s\S]{1,2}", r"a\\z|[\s\S]"]
)
def test_the_ends_of_tiktokens_patterns(pattern, tmp_path):
    ranks = byte_ranks(b"b\n", b"\n\n", b"a\n", b"ab", b"\\z", b"a\\z")
    path = write_ranks(tmp_path / "x.tiktoken", ranks)
    (tmp_path / "x.json").write_text(json.dumps({"pat_str": pattern}))
    ours = BPETokenizer.from_file(path)
    theirs = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    for text in ("a\n", "a", "ba", "ab", "ab\n", "b\n\n", "a\n\n", "b", "\n\n", "a\\z", "ba\\zb\n"):
        assert ours.encode(text) == theirs.encode(text), text


@pytest.mark.parametrize("pattern", [r"a$|[\s\S]{1,2}", r"a\Z|[\s\S]{1,2}", r"\A\sa|[\s\S]"])
def test_the_ends_of_our_patterns(pattern):
    ranks = byte_ranks(b"b\n", b"\n\n", b"a\n", b"ab", b"\na")
    ours = from_ranks(ranks, pattern)
    theirs = ours.to_tiktoken()
    for text in ("a\n", "a", "\nab", "ba", "ab", "ab\n", "a\n\n", "\na", "\n\n", "\na\n", "a\na"):
        assert ours.encode(text) == theirs.encode(text), text


@pytest.mark.parametrize(
    "pattern", [r"(?i:i)|.", r"(?i:\p{Lu})|.", r"a*", r"(?i:\x69)|.", r"(a)\1|."]
)
def test_patterns_that_may_mean_something_else_there_are_refused(pattern):
    ours = BPETokenizer(pattern, normalizer=None)
    with pytest.raises(ValueError, match="cannot be given to tiktoken"):
        ours.to_tiktoken()


# -- Writing ------------------------------------------------------------------


@given(text=st.text())
@settings(max_examples=examples(300))
def test_a_trained_tokenizer_goes_there_and_back(trained, exported, text):
    encoding, again, hf = exported
    ids = trained.encode(text)
    assert encoding.encode_ordinary(text) == again.encode(text) == ids
    assert encoding.decode(ids) == text
    with_special = trained.encode(text + EOT, allowed_special="all")
    assert encoding.encode(text + EOT, allowed_special="all") == with_special
    assert hf.encode(text + EOT, add_special_tokens=False).ids == with_special
    before, after = core.around_elsewhere(trained)
    recognized = trained.encode(text, allowed_special="all")  # as HuggingFace does
    assert hf.encode(text).ids == [*before, *recognized, *after]


@pytest.fixture(scope="module")
def exported(engine: str, trained, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "mine.tiktoken"
    trained.export(path, "tiktoken")
    meta = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert meta.pop("surround") == "default"  # tiktoken has no such thing
    assert set(meta) == {"name", "pat_str", "special_tokens", "explicit_n_vocab"}
    load = need("tiktoken.load")
    ranks = load.load_tiktoken_bpe(str(path))
    encoding = tiktoken.Encoding(**meta, mergeable_ranks=ranks)
    live = trained.to_tiktoken()
    assert live._mergeable_ranks == ranks and live._pat_str == meta["pat_str"]
    assert live.n_vocab == trained.vocab_size
    again = BPETokenizer.from_file(path)
    assert again.merges == trained.merges
    assert again.special_tokens == trained.special_tokens
    assert again.eos_token == trained.eos_token
    return encoding, again, trained.to_hf()


def test_the_description_holds_what_tiktoken_does_not(tmp_path):
    ours = BPETokenizer(r"[ab]+(?=[^b])|[^a]", normalizer=None)
    ours.add_special_tokens({"<s>": 300, "<end>": 301})
    ours.eos_token = "<end>"
    ours.bos_token = None
    ours.export(tmp_path / "x.tiktoken", "tiktoken")
    again = BPETokenizer.from_file(tmp_path / "x.tiktoken")
    assert again.split_pattern == r"[ab]+(?=[^b])|[^a]"
    assert (again.bos_token, again.eos_token) == (None, "<end>")
    assert again.special_tokens == {"<s>": 300, "<end>": 301}


def test_the_bos_token_still_comes_first(tmp_path):
    ours = BPETokenizer(normalizer=None)
    ours.add_special_tokens(["<s>"])
    ours.export(tmp_path / "x.tiktoken", "tiktoken")
    again = BPETokenizer.from_file(tmp_path / "x.tiktoken")
    assert again.encode("a", add_special_tokens=True) == [256, 97]


def test_text_that_no_alternative_matches_is_not_dropped(tmp_path):
    ours = BPETokenizer(r"\d+", normalizer=None)
    theirs = ours.to_tiktoken()
    assert theirs.encode("ab12cd") == ours.encode("ab12cd") == list(b"ab12cd")


def test_a_normalizer_is_not_left_out_silently(tmp_path):
    ours, path = BPETokenizer(), tmp_path / "x.tiktoken"
    refused = []
    for write in (ours.to_tiktoken, lambda: ours.export(path, "tiktoken")):
        with pytest.raises(
            ValueError, match=r"normalizes text to NFC.*without_normalizer=True"
        ) as e:
            write()
        refused.append(str(e.value))
    assert refused[0] == refused[1] and list(tmp_path.iterdir()) == []
    theirs = ours.to_tiktoken(without_normalizer=True)
    ours.export(path, "tiktoken", without_normalizer=True)
    bare = BPETokenizer.from_file(path)
    assert bare.normalizer is None and ours.normalizer == "NFC"
    text = "e\u0301 é"
    assert theirs.encode(text) == bare.encode(text) != ours.encode(text)
    assert theirs.encode(unicodedata.normalize("NFC", text)) == ours.encode(text)


def test_a_normalizer_that_older_versions_wrote_is_read(tmp_path):
    path = tmp_path / "x.tiktoken"
    BPETokenizer("gpt2", normalizer=None).export(path, "tiktoken")
    described = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    path.with_suffix(".json").write_text(json.dumps({**described, "normalizer": "NFKC"}))
    assert BPETokenizer.from_file(path).normalizer == "NFKC"


def saved_and_changed(tmp_path, change, **options):
    """Load a small tokenizer.json after a change to it."""
    ours = BPETokenizer("qwen2", normalizer=None)
    ours.train(["abab abab abc abc bcbc"] * 5, vocab_size=264, verbose=False, **options)
    ours.save(tmp_path, verbose=False)
    data = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    change(data)
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    return BPETokenizer.from_file(tmp_path / "tokenizer.json")


def swap_merges(data):
    merges = data["model"]["merges"]
    merges[0], merges[1] = merges[1], merges[0]


def drop_a_merge(data):
    data["model"]["merges"].pop()


def add_a_whole_token(data):
    data["model"]["vocab"]["qqqq"] = 264


def add_prefix_space(data):
    data["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}


def other_steps(data):
    data["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "Digits", "individual_digits": True})


@pytest.mark.parametrize(
    "change, message",
    [
        (swap_merges, "merges are in another order"),
        (drop_a_merge, "for which this tokenizer has no merge"),
        (add_a_whole_token, "no merges make 1 tokens, such as b'qqqq'"),
        (add_prefix_space, "add_prefix_space"),
        (other_steps, "not byte-level, or prepares text in more steps"),
    ],
)
def test_what_would_be_lost_is_named(change, message, tmp_path):
    ours = saved_and_changed(tmp_path, change)
    with pytest.raises(ValueError, match=message):
        ours.to_tiktoken()
    with pytest.raises(ValueError, match=message):
        ours.export(tmp_path / "out" / "x.tiktoken", "tiktoken")
    assert not (tmp_path / "out").exists()


def test_merges_that_never_apply_do_no_harm(tmp_path):
    def more(data):  # as in files that list all ways to split each token
        merges = data["model"]["merges"]
        vocab = data["model"]["vocab"]
        every = [
            [token[:i], token[i:]]
            for token in vocab
            for i in range(1, len(token))
            if token[:i] in vocab and token[i:] in vocab
        ]
        merges += [pair for pair in every if pair not in merges]
        assert len(every) > len(vocab) - 256

    ours = saved_and_changed(tmp_path, more)
    theirs = ours.to_tiktoken()
    for text in ("abababc bcbcab", " abcabcabab", "aabbccabcbabab"):
        assert ours.encode(text) == theirs.encode(text)


def test_a_whole_token_is_no_loss_where_merges_are_ignored(tmp_path):
    def change(data):
        add_a_whole_token(data)
        data["model"]["ignore_merges"] = True

    ours = saved_and_changed(tmp_path, change)
    assert ours.to_tiktoken().encode("qqqq qqqq") == ours.encode("qqqq qqqq")


@pytest.mark.parametrize(
    "token, message",
    [
        (AddedToken("<x>", special=False), "special=False"),
        (AddedToken("<x>", lstrip=True), "lstrip"),
        (AddedToken("<x>", rstrip=True, single_word=True), "rstrip, single_word"),
    ],
)
def test_options_of_tokens_would_be_lost(token, message):
    ours = BPETokenizer(normalizer=None)
    ours.add_special_tokens([token])
    with pytest.raises(ValueError, match=rf"'<x>' has {message}"):
        ours.to_tiktoken()


def test_a_token_that_begins_another_is_refused():
    ours = BPETokenizer(normalizer=None)
    ours.add_special_tokens(["<|x", "<|x|>"])
    with pytest.raises(ValueError, match="begins with another"):
        ours.to_tiktoken()


def test_the_name_must_lead_back(tmp_path):
    with pytest.raises(ValueError, match=r"ends in \.tiktoken"):
        BPETokenizer(normalizer=None).export(tmp_path / "x.bpe", "tiktoken")


def assert_same(back, ours):
    assert back.get_vocab() == ours.get_vocab()
    assert back.special_tokens == ours.special_tokens
    assert back.split_pattern == ours.split_pattern


@pytest.mark.parametrize("there", ['{"model": {"type": "BPE"}}', "[]", "no JSON", ""])
def test_another_file_is_not_replaced(there, trained, tmp_path):
    (tmp_path / "x.json").write_text(there)
    with pytest.raises(ValueError, match=r"x\.json would be replaced .* give x\.tiktoken another"):
        trained.export(tmp_path / "x.tiktoken", "tiktoken")
    assert (tmp_path / "x.json").read_text() == there
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


def test_its_own_description_is_replaced(trained, tmp_path):
    BPETokenizer(normalizer=None).export(tmp_path / "x.tiktoken", "tiktoken")
    trained.export(tmp_path / "x.tiktoken", "tiktoken")
    assert_same(BPETokenizer.from_file(tmp_path / "x.tiktoken"), trained)


@pytest.mark.parametrize("name", ["x.json", "x.tiktoken"])
def test_a_directory_in_the_way(name, trained, tmp_path):
    (tmp_path / name).mkdir()
    with pytest.raises((ValueError, IsADirectoryError), match=re.escape(name)):
        trained.export(tmp_path / "x.tiktoken", "tiktoken")
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_names_in_capitals(trained, tmp_path):
    trained.export(tmp_path / "X.TIKTOKEN", "tiktoken")
    assert_same(BPETokenizer.from_file(tmp_path / "X.TIKTOKEN"), trained)


@pytest.mark.skipif(sys.platform != "linux", reason="names elsewhere are UTF-8")
def test_a_name_that_is_no_utf8(trained, tmp_path):
    path = tmp_path / os.fsdecode(b"a\xff.tiktoken")
    trained.export(path, "tiktoken")
    assert_same(BPETokenizer.from_file(path), trained)


def test_the_description_alone_is_no_tokenizer(trained, tmp_path):
    trained.export(tmp_path / "x.tiktoken", "tiktoken")
    with pytest.raises(FileFormatError, match=r"beside it; load .*x\.tiktoken instead"):
        BPETokenizer.from_file(tmp_path / "x.json")


def test_a_plain_file_is_read_as_line_by_line(vocab_dir: Path) -> None:
    for data in (
        (vocab_dir / "r50k_base.tiktoken").read_bytes(),
        b"AA== 0\nAQ== 1\n",
        b"AA== 0",
        b"",
        b"\n",
        b"AA== 0\r\nAQ== 1\r\n",
        b"AA== 0\n\nAQ== 1",
    ):
        plain = format_._read_plain_ranks(data)
        assert plain is None or plain == format_._read_lines(Path("x"), data)
    for damaged in (b"AA==\n0 AQ== 1", b"AA== +0", b"AA== 0 1 2", b"AB== 0", b"A 0", b"AA== 0_1"):
        assert format_._read_plain_ranks(damaged) is None
    for damaged in (b"AA== 0\nAA== 1", b"AA== 0\nAQ== 0", b"AA== -1", b"AA== 2147483648"):
        assert format_._read_plain_ranks(damaged) is None


def test_what_is_read_is_what_tokenizer_json_would_say(vocab_dir: Path, tmp_path: Path) -> None:
    tokenizer = BPETokenizer.from_file(vocab_dir / "cl100k_base.tiktoken")
    tokenizer.save(tmp_path, verbose=False)
    again = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    assert again == tokenizer
    assert again.definition == tokenizer.definition


@pytest.mark.parametrize("surround", ["bos+eos", "bos", "eos", "none"])
def test_what_goes_around_a_text_survives(surround: str, tmp_path: Path) -> None:
    tokenizer = BPETokenizer(normalizer=None, surround=surround)
    tokenizer.train("low lower " * 9, 262, special_tokens=["<s>", "</s>"], verbose=False)
    path = tmp_path / "own.tiktoken"
    tokenizer.export(path, "tiktoken")
    again = BPETokenizer.from_file(path)
    ids = tokenizer.encode("low", add_special_tokens=True)
    assert again.encode("low", add_special_tokens=True) == ids
    written = json.loads(path.with_suffix(".json").read_bytes())
    assert written.get("surround", "bos") == surround
    written["surround"] = "both"
    path.with_suffix(".json").write_text(json.dumps(written))
    with pytest.raises(FileFormatError, match="surround: expected one of default"):
        BPETokenizer.from_file(path)
