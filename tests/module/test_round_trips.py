"""From each format to each other: what its own library then makes of a text.

Every source below is a file, loaded here and written to every target.  `EXPECTED` says
what comes of it: the ids of the target's own library are equal, they are equal on
normalized text, or the target is refused, and with which words.  So neither a silent
loss nor a needless refusal goes unnoticed.
"""

from __future__ import annotations

import base64
import io
import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer, FileFormatError

tokenizers = need("tokenizers")

import tokenizer_files as files  # noqa: E402  (needs the library)

# What a library makes of a text: special tokens in it are recognized, none put around it.
Encode = Callable[[str], list[int]]


# -- Texts --------------------------------------------------------------------

pytestmark = pytest.mark.filterwarnings("ignore:.*no token for these characters")  # small CLIP

TEXTS = [
    *files.CORPUS,
    "",
    " ",
    "\n",
    "a",
    " a",
    "a ",
    "  a  b  ",
    "the quicker browner foxes tokenised 12345678 numbers; I'LL THEY'VE don't",
    "x = {'a': [1, 2.5, -3e10], \"b\": None}\n\n\n\tif x:\n\t    return\r\n",
    "tabs\t\t\tand      spaces \n \n  mixed\r\n\r\nlines   \n",
    "<s> </s> <unk> <0x0A> ▁▁ Ġ </w> [INST] <pad>",
    "ΑΒΓ αβγ ἀρχή, Українська їжа, ქართული, Հայերեն",
    "שלום, العالم ١٢٣ فارسی می\u200cروم",
    "中文没有空格，也有标点。繁體字「引號」；２０２４年",
    "カタカナーとひらがな。ｶﾞ 한국어 문장입니다 \u1112\u1161\u11ab",
    "𠀀𪛖 𝔄𝔟𝟘 𐌰𐍈 😀😀😀 👍🏽 ok😀ok",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" + " " * 33 + "!" * 33,
    "no-break\u00a0space, thin\u2009space, \u3000line\u2028separator, next\u0085line\u200bzero",
    "cafe\u0301 n\u0303 A\u030a \u212b \ufb01 ½ ² Ⅷ ①",
    "\u0001\u001b[0m\u007f \u009f \ufffd \ue000 \U0010fffd \ufeff",
    "https://example.org/a/b.html?q=1&r=%20#top C:\\Temp\\x.txt a_b-c.d@e",
    "0 12 123 1234 12345 123456 1234567 3.14 10:30 1,000",
]
RANDOM = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from(
            ["the", " of", "  ", "\n", "\n\n", "\t", "don't", "'S", "123", "1234", "é", "e\u0301"]
            + ["中文", "한", "مر", "नि", "Ω", "🙂", "_", "...", "=", "tokenizers", " quick", "▁"]
        ),
        max_size=12,
    ).map("".join),
)
# llama.cpp's tables are of another Unicode version, its patterns know no combining marks,
# take "ſ" for "s", and white space is to it what C calls so.
_LLAMA_UNLIKE = re.compile("[ſ\u0085\u180e\u200b\ufeff]")


def for_llama_cpp(text: str) -> str:
    """Leave out the characters that llama.cpp is known to see otherwise."""
    strange = ("Mn", "Mc", "Me", "Cn", "Co", "Cs", "Cf")
    text = "".join(char for char in text if unicodedata.category(char) not in strange)
    return _LLAMA_UNLIKE.sub("", text)


def with_special_tokens(tokenizer: BPETokenizer) -> list[str]:
    """Return texts with added tokens in them."""
    contents = [token.content for token in tokenizer.added_tokens][:12]
    return ["".join(f"word{token}" for token in contents) + "end", " ".join(contents)]


# -- Sources: a file of each format -------------------------------------------


def trained(pattern: str, normalizer: str | None = None, **options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer(pattern, normalizer=normalizer)
    options.setdefault("special_tokens", ["<|endoftext|>"])
    return tokenizer.train(files.CORPUS, 700, min_frequency=1, verbose=False, **options)


def saved(tokenizer: BPETokenizer, folder: Path) -> Path:
    tokenizer.save(folder, verbose=False)
    return folder


LLAMA3_TOKENS = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]


def make_trained_llama3(folder: Path) -> Path:
    tokenizer = trained("llama3", special_tokens=LLAMA3_TOKENS)
    tokenizer.add_special_tokens([AddedToken("<think>", special=False)])
    return saved(tokenizer, folder)


def make_family(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "tokenizer.json"
        path.write_text(files.text(name), encoding="utf-8")
        return path

    return make


def make_deepseek(folder: Path) -> Path:
    data = json.loads(files.text("deepseek v3"))
    for step in data["pre_tokenizer"]["pretokenizers"][:-1]:  # as it stands in the model's file
        step["pattern"]["Regex"] = step["pattern"]["Regex"].replace('\\"', '"')
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def ranks(backwards: bool = False) -> dict[bytes, int]:
    """Rank tokens that no merges were learned for: not all can be made of two others."""
    found = [bytes([byte]) for byte in range(256)][:: -1 if backwards else 1]
    words = b"th the qu quick in tion 12 123 ab bc abc ee eee eeee  the".split(b" ")
    words += ["中".encode(), "文".encode(), b"  ", b"    ", b" quick", "é".encode(), b"kenize"]
    return {token: rank for rank, token in enumerate(dict.fromkeys([*found, *filter(None, words)]))}


def make_tiktoken(folder: Path) -> Path:
    path = folder / "small.tiktoken"
    lines = [b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks(True).items()]
    path.write_bytes(b"".join(lines))
    definition = {
        "pat_str": SPLIT_PATTERNS["cl100k"],
        "special_tokens": {"<|endoftext|>": len(lines), "<|far|>": len(lines) + 20},
    }
    path.with_suffix(".json").write_text(json.dumps(definition), encoding="utf-8")
    return path


TEKKEN_TOKENS = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]


def make_tekken(folder: Path) -> Path:
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for token, rank in ranks().items()
    ]
    data = {
        "config": {
            "pattern": files.TEKKEN,
            "num_vocab_tokens": len(vocab),
            "default_vocab_size": len(vocab) + 8,
            "default_num_special_tokens": 8,
            "version": "v11",
        },
        "vocab": vocab,
        "special_tokens": [
            {"rank": rank, "token_str": token, "is_control": True}
            for rank, token in enumerate(TEKKEN_TOKENS)
        ],
    }
    path = folder / "tekken.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def make_vocab_and_merges(folder: Path) -> Path:
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        files.CORPUS, 600, min_frequency=1, special_tokens=["<|endoftext|>"], show_progress=False
    )
    tokenizer.save_model(str(folder))
    return folder


def make_sentencepiece(**options: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        model = io.BytesIO()
        need("sentencepiece").SentencePieceTrainer.train(
            sentence_iterator=iter([line.replace("\n", " ") for line in files.CORPUS]),
            model_writer=model,
            model_type="bpe",
            vocab_size=600,
            byte_fallback=True,
            hard_vocab_limit=False,
            num_threads=1,
            minloglevel=2,
            **options,
        )
        path = folder / "tokenizer.model"
        path.write_bytes(model.getvalue())
        return path

    return make


def make_gguf(pre: str, pattern: str) -> Callable[[Path], Path]:
    """Write a byte-level vocabulary as converters of models do."""

    def make(folder: Path) -> Path:
        path = folder / "model.gguf"
        writer = need("gguf").GGUFWriter(path, "llama")
        model = json.loads(trained(pattern, special_tokens=LLAMA3_TOKENS).to_hf().to_str())
        vocab = model["model"]["vocab"]
        vocab.update({token["content"]: token["id"] for token in model["added_tokens"]})
        tokens = sorted(vocab, key=vocab.__getitem__)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_types([3 if token in LLAMA3_TOKENS else 1 for token in tokens])
        writer.add_token_merges([" ".join(pair) for pair in model["model"]["merges"]])
        writer.add_bos_token_id(vocab[LLAMA3_TOKENS[0]])
        writer.add_eos_token_id(vocab[LLAMA3_TOKENS[1]])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path

    return make


def make_gguf_of_pieces(folder: Path) -> Path:
    """Write a SentencePiece vocabulary as converters of models do."""
    path = folder / "model.gguf"
    writer = need("gguf").GGUFWriter(path, "llama")
    source = make_sentencepiece(normalization_rule_name="identity", remove_extra_whitespaces=False)(
        folder
    )
    model = need("sentencepiece").SentencePieceProcessor(model_file=str(source))
    source.unlink()
    pieces = range(model.vocab_size())
    kinds = [6 if model.is_byte(i) else 3 if model.is_control(i) else 1 for i in pieces]
    kinds[model.unk_id()] = 2
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([model.id_to_piece(i) for i in pieces])
    writer.add_token_scores([model.get_score(i) for i in pieces])
    writer.add_token_types(kinds)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


SOURCES: dict[str, Callable[[Path], Path]] = {
    "trained, gpt2": lambda folder: saved(trained("gpt2"), folder),
    "trained, cl100k": lambda folder: saved(trained("cl100k"), folder),
    "trained, llama3": make_trained_llama3,
    "trained, qwen2, NFC": lambda folder: saved(trained("qwen2", "NFC"), folder),
    "llama 2": make_family("llama 2"),
    "gemma": make_family("gemma"),
    "starcoder 2": make_family("starcoder 2"),
    "deepseek v3": make_deepseek,
    "clip": make_family("clip"),
    ".tiktoken": make_tiktoken,
    "tekken.json": make_tekken,
    "vocab.json": make_vocab_and_merges,
    "sentencepiece": make_sentencepiece(
        normalization_rule_name="identity", remove_extra_whitespaces=False
    ),
    "sentencepiece, NFKC": make_sentencepiece(normalization_rule_name="nmt_nfkc"),
    "gguf, llama-bpe": make_gguf("llama-bpe", "llama3"),
    "gguf, pieces": make_gguf_of_pieces,
}


@pytest.fixture(scope="module")
def load(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, BPETokenizer]]:
    """Give a function from the name of a source to its file and the tokenizer."""
    made: dict[str, tuple[Path, BPETokenizer]] = {}

    def load(name: str) -> tuple[Path, BPETokenizer]:
        if name not in made:
            path = SOURCES[name](tmp_path_factory.mktemp("source"))
            made[name] = path, BPETokenizer.from_file(path)
        return made[name]

    return load


# -- What the sources' own libraries make of a text ---------------------------
# Most do not look for special tokens in it; where one does, our side is to do it too.


def own_tokenizers(path: Path) -> Encode:
    file = path / "tokenizer.json" if path.is_dir() else path
    peer = tokenizers.Tokenizer.from_file(str(file))
    return lambda text: list(peer.encode(text, add_special_tokens=False).ids)


def own_tiktoken(path: Path) -> Encode:
    definition = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    peer = need("tiktoken").Encoding("own", mergeable_ranks=ranks(True), **definition)
    return lambda text: list(peer.encode(text, allowed_special="all"))


def own_tekken(path: Path) -> Encode:
    peer = need("mistral_common.tokens.tokenizers.tekken").Tekkenizer.from_file(path)
    return lambda text: list(peer.encode(text, bos=False, eos=False))


def own_vocab_and_merges(path: Path) -> Encode:
    found = [str(path / name) for name in ("vocab.json", "merges.txt")]
    peer = tokenizers.ByteLevelBPETokenizer.from_file(*found)
    return lambda text: list(peer.encode(text).ids)


def own_sentencepiece(path: Path) -> Encode:
    peer = need("sentencepiece").SentencePieceProcessor(model_file=str(path))
    return lambda text: list(peer.encode(text))


def own_llama_cpp(path: Path) -> Encode:
    peer = need("llama_cpp").Llama(str(path), vocab_only=True, verbose=False)
    return lambda text: list(peer.tokenize(text.encode(), add_bos=False, special=True))


OWN: dict[str, tuple[Callable[[Path], Encode], bool]] = {
    **dict.fromkeys(SOURCES, (own_tokenizers, True)),
    ".tiktoken": (own_tiktoken, True),
    "tekken.json": (own_tekken, False),
    "vocab.json": (own_vocab_and_merges, False),
    "sentencepiece": (own_sentencepiece, False),
    "sentencepiece, NFKC": (own_sentencepiece, False),
    "gguf, llama-bpe": (own_llama_cpp, True),
    "gguf, pieces": (own_llama_cpp, True),
}


# -- Targets: what their own libraries make of a text -------------------------


def into_tokenizer_json(tokenizer: BPETokenizer, folder: Path) -> Encode:
    path = folder / "out.json"
    tokenizer.export(path, "tokenizer.json")
    peer = tokenizers.Tokenizer.from_file(str(path))
    return lambda text: list(peer.encode(text, add_special_tokens=False).ids)


def into_directory(tokenizer: BPETokenizer, folder: Path) -> Encode:
    tokenizer.save(folder, verbose=False)
    peer = need("transformers").AutoTokenizer.from_pretrained(str(folder))
    return lambda text: list(peer.encode(text, add_special_tokens=False))


def into_to_hf(tokenizer: BPETokenizer, folder: Path) -> Encode:
    peer = tokenizer.to_hf()
    return lambda text: list(peer.encode(text, add_special_tokens=False).ids)


def into_tiktoken(tokenizer: BPETokenizer, folder: Path, **options: Any) -> Encode:
    path = folder / "out.tiktoken"
    tokenizer.export(path, "tiktoken", **options)
    load = need("tiktoken.load")
    sidecar = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    keys = ("name", "pat_str", "special_tokens", "explicit_n_vocab")
    known = {key: sidecar[key] for key in keys if key in sidecar}
    peer = need("tiktoken").Encoding(mergeable_ranks=load.load_tiktoken_bpe(str(path)), **known)
    return lambda text: list(peer.encode(text, allowed_special="all"))


def into_to_tiktoken(tokenizer: BPETokenizer, folder: Path, **options: Any) -> Encode:
    try:
        peer = tokenizer.to_tiktoken(**options)
    except ImportError:
        need("tiktoken")
        raise
    return lambda text: list(peer.encode(text, allowed_special="all"))


def into_gpt2(tokenizer: BPETokenizer, folder: Path) -> Encode:
    tokenizer.export(folder, "gpt2")
    peer = need("transformers").GPT2Tokenizer.from_pretrained(str(folder))
    return lambda text: list(peer.encode(text, add_special_tokens=False))


def into_gguf(tokenizer: BPETokenizer, folder: Path, **options: Any) -> Encode:
    path = folder / "out.gguf"
    tokenizer.export(path, "gguf", **options)
    peer = need("llama_cpp").Llama(str(path), vocab_only=True, verbose=False)
    return lambda text: list(peer.tokenize(text.encode(), add_bos=False, special=True))


TARGETS: dict[str, Callable[..., Encode]] = {
    "tokenizer.json": into_tokenizer_json,
    "directory": into_directory,
    "to_hf": into_to_hf,
    "tiktoken": into_tiktoken,
    "to_tiktoken": into_to_tiktoken,
    "gpt2": into_gpt2,
    "gguf": into_gguf,
}
FILES = {"tokenizer.json": "out.json", "tiktoken": "out.tiktoken", "gguf": "out.gguf"}
FOLDERS = ("directory", "gpt2")

# -- What is to come of it ----------------------------------------------------

EQUAL = ""
# Refusals, by what their message says would be lost.
PATTERN = "its split pattern is not GPT-2's but"
NO_PATTERN = "no pre-tokenizer that cuts text this way"
STEPS = "is not byte-level, or prepares text in more steps"
BYTES = "it is not byte-level BPE"
FLAG = "added token '<think>' has special=False"
FIM_FLAG = "added token '<｜fim▁hole｜>' has special=False"
FORM = (
    "it normalizes text to NFC, which (tiktoken|llama.cpp) does not do; .* without_normalizer=True"
)
MAP = r"cannot hold this SentencePiece normalization exactly \(a character map"

_COLUMNS = ("HuggingFace's", "tiktoken", "to_tiktoken", "gpt2", "gguf")
_TABLE: dict[str, tuple[str, str, str, str, str]] = {
    #                       HuggingFace's, tiktoken, to_tiktoken, gpt2, gguf
    "trained, gpt2": (EQUAL, EQUAL, EQUAL, EQUAL, EQUAL),
    "trained, cl100k": (EQUAL, EQUAL, EQUAL, PATTERN, NO_PATTERN),
    "trained, llama3": (EQUAL, FLAG, FLAG, PATTERN, EQUAL),
    "trained, qwen2, NFC": (EQUAL, FORM, FORM, PATTERN, FORM),
    "llama 2": (EQUAL, STEPS, STEPS, STEPS, BYTES),
    "gemma": (EQUAL, STEPS, STEPS, STEPS, BYTES),
    "starcoder 2": (EQUAL, STEPS, STEPS, STEPS, EQUAL),
    "deepseek v3": (EQUAL, FIM_FLAG, FIM_FLAG, PATTERN, EQUAL),
    "clip": (EQUAL, STEPS, STEPS, STEPS, BYTES),
    ".tiktoken": (EQUAL, EQUAL, EQUAL, PATTERN, NO_PATTERN),
    "tekken.json": (EQUAL, EQUAL, EQUAL, PATTERN, EQUAL),
    "vocab.json": (EQUAL, EQUAL, EQUAL, EQUAL, EQUAL),
    "sentencepiece": (EQUAL, STEPS, STEPS, STEPS, BYTES),
    "sentencepiece, NFKC": (MAP, STEPS, STEPS, STEPS, BYTES),
    "gguf, llama-bpe": (EQUAL, EQUAL, EQUAL, PATTERN, EQUAL),
    "gguf, pieces": (EQUAL, STEPS, STEPS, STEPS, BYTES),
}
_HUGGINGFACES = ("tokenizer.json", "directory", "to_hf")
EXPECTED = {
    (source, target): _TABLE[source][
        _COLUMNS.index("HuggingFace's" if target in _HUGGINGFACES else target)
    ]
    for source in SOURCES
    for target in TARGETS
}
Load = Callable[[str], tuple[Path, BPETokenizer]]


def check_equal(
    tokenizer: BPETokenizer, peer: Encode, prepare: Callable[[str], str], allowed: str = "all"
) -> None:
    """Compare ids on all texts, and on random ones."""

    def check(text: str) -> None:
        text = prepare(text)
        assert peer(text) == tokenizer.encode(text, allowed_special=allowed), repr(text)

    for text in [*TEXTS, *with_special_tokens(tokenizer)]:
        check(text)
    settings(max_examples=examples(30))(given(RANDOM)(check))()


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_gives_the_ids_of_its_own_library(source: str, load: Load) -> None:
    path, tokenizer = load(source)
    own, finds_special_tokens = OWN[source]
    prepare = for_llama_cpp if own is own_llama_cpp else str
    check_equal(tokenizer, own(path), prepare, "all" if finds_special_tokens else "none")


@pytest.mark.filterwarnings(
    "ignore:llama.cpp only approximates"
)  # what it says of these texts is equal
@pytest.mark.parametrize("source, target", [pair for pair in EXPECTED if not EXPECTED[pair]])
def test_a_target_gives_the_ids_of_the_source(
    source: str, target: str, load: Load, tmp_path: Path
) -> None:
    _, tokenizer = load(source)
    peer = TARGETS[target](tokenizer, tmp_path)
    check_equal(tokenizer, peer, for_llama_cpp if target == "gguf" else str)


@pytest.mark.parametrize("source, target", [pair for pair in EXPECTED if EXPECTED[pair] == FORM])
def test_without_its_normalizer_a_source_goes_there_for_normalized_text(
    source: str, target: str, load: Load, tmp_path: Path
) -> None:
    _, tokenizer = load(source)
    peer = TARGETS[target](tokenizer, tmp_path, without_normalizer=True)
    form: Any = tokenizer.normalizer
    assert peer("e\u0301") != tokenizer.encode("e\u0301") == peer("\u00e9")

    def prepare(text: str) -> str:
        text = for_llama_cpp(text) if target == "gguf" else text
        return unicodedata.normalize(form, text)

    check_equal(tokenizer, peer, prepare)


@pytest.mark.parametrize(
    "source, target, words",
    [(*pair, words) for pair, words in EXPECTED.items() if words != EQUAL],
)
def test_a_refusal_says_what_would_be_lost(
    source: str, target: str, words: str, load: Load, tmp_path: Path
) -> None:
    _, tokenizer = load(source)
    with pytest.raises(ValueError, match=words) as caught:
        TARGETS[target](tokenizer, tmp_path)
    assert "\n" not in str(caught.value)
    assert re.match(
        r"(tiktoken|vocab.json and merges.txt|a GGUF file|tokenizer.json) cannot hold this",
        str(caught.value),
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings(
    "ignore:llama.cpp only approximates"
)  # what it says of these texts is equal
@pytest.mark.parametrize(
    "source, target",
    [pair for pair, words in EXPECTED.items() if words == EQUAL and pair[1] in (*FILES, *FOLDERS)],
)
def test_what_is_written_is_read_again(
    source: str, target: str, load: Load, tmp_path: Path
) -> None:
    _, tokenizer = load(source)
    path = tmp_path / FILES.get(target, "")
    if target == "directory":
        tokenizer.save(path, verbose=False)
    else:
        tokenizer.export(path, target)
    again = BPETokenizer.from_file(path)
    assert again.special_tokens == tokenizer.special_tokens
    for text in [*TEXTS, *with_special_tokens(tokenizer)]:
        for allowed in ("none", "all"):
            ids = tokenizer.encode(text, allowed_special=allowed)
            assert again.encode(text, allowed_special=allowed) == ids, repr(text)
            assert again.decode(ids) == tokenizer.decode(ids)


# -- The module alone ---------------------------------------------------------

STANDARD = ["gpt2", "llama 3", "qwen 2", "qwen 3.5", "gpt-oss", "tekken", "glm-4", "flags", "gemma"]


@pytest.mark.usefixtures("without_tools")
@pytest.mark.parametrize("name", STANDARD)
def test_alone_the_module_loads_and_saves_standard_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(files.text(name), encoding="utf-8")
    ours, theirs = BPETokenizer.from_file(path), tokenizers.Tokenizer.from_file(str(path))
    for text in files.CORPUS:
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, allowed_special="all") == expected
    ours.save(tmp_path / "again", verbose=False)
    assert BPETokenizer.from_file(tmp_path / "again") == ours


@pytest.mark.usefixtures("without_tools")
@pytest.mark.parametrize("name", ["roberta", "starcoder 2", "bloom"])
def test_alone_the_module_says_what_other_files_need(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(files.text(name), encoding="utf-8")
    with pytest.raises(FileFormatError, match="needs bpe_tokenizer_tools beside") as refused:
        BPETokenizer.from_file(path)
    assert str(refused.value).count("pip install") == 1
