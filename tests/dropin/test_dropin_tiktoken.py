"""The twin of `tiktoken.Encoding`, and tiktoken over this library's core, against tiktoken."""

from __future__ import annotations

import contextlib
import copy
import importlib
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import EITHER_ENGINE, Vocabulary
from hard_text import hard_text
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import SPLIT_PATTERNS, BPETokenizer
from bpe_tokenizer_tools.dropin import tiktoken as dropin
from bpe_tokenizer_tools.dropin.tiktoken import Encoding, patch_tiktoken, unpatch_tiktoken

tiktoken: Any = need("tiktoken")

SPECIAL = {"<|endoftext|>": 700, "<|fim|>": 702}


def ranks_of(tokenizer: BPETokenizer) -> dict[bytes, int]:
    return dict(tokenizer.definition.vocab)


def arguments(pattern: str = "cl100k") -> dict[str, Any]:
    """Return what makes a small encoding, in tiktoken and here."""
    corpus = ["hello world, don't fan the fantasy; 123 times naïve 世界\n\n  \t!! "] * 4
    tokenizer = BPETokenizer(pattern, normalizer=None).train(
        corpus, 330, min_frequency=1, verbose=False
    )
    return {
        "name": "small",
        "pat_str": SPLIT_PATTERNS[pattern],
        "mergeable_ranks": ranks_of(tokenizer),
        "special_tokens": SPECIAL,
    }


@contextlib.contextmanager
def patched() -> Iterator[None]:
    patch_tiktoken()
    try:
        yield
    finally:
        unpatch_tiktoken()


def over_our_core(**given: Any) -> Any:
    with patched():
        made = tiktoken.Encoding(**given)
    assert isinstance(made._core_bpe, dropin.CoreBPE) and type(made) is tiktoken.Encoding
    return made


Pair = tuple[Any, Any]


@pytest.fixture(scope="module", params=["twin", "patched"])
def pair(engine: str, request: pytest.FixtureRequest) -> Pair:
    """(ours, tiktoken's), of the same arguments."""
    make = {"twin": Encoding, "patched": over_our_core}[request.param]
    return make(**arguments()), tiktoken.Encoding(**arguments())


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or what it raises."""
    try:
        found = call()
    except Exception as error:
        return type(error), error.args if isinstance(error, KeyError) else ()
    return found.tolist() if hasattr(found, "tolist") else found


# -- Calls by meaning ------------------------------------------------------------

END = "<|endoftext|>"
CALLS: dict[str, Callable[[Any], Any]] = {
    "a special token is refused": lambda e: e.encode(f"a{END}"),
    "all are allowed": lambda e: e.encode(f"a{END}<|fim|>", allowed_special="all"),
    "one is allowed": lambda e: e.encode(f"a{END}", allowed_special={END}),
    "one is allowed, another there": lambda e: e.encode(f"<|fim|>{END}", allowed_special={END}),
    "none is disallowed": lambda e: e.encode(f"a{END}", disallowed_special=()),
    "another is disallowed": lambda e: e.encode(f"a{END}", disallowed_special={"<|fim|>"}),
    "allowed, the rest text": lambda e: e.encode(
        f"<|fim|>{END}", allowed_special={END}, disallowed_special=()
    ),
    "what is no special token is disallowed": lambda e: e.encode("xyz", disallowed_special={"y"}),
    "letters are disallowed": lambda e: e.encode("xyz", disallowed_special="y"),
    "what is no special token is allowed": lambda e: e.encode("xyz", allowed_special={"y"}),
    "a list is allowed": lambda e: e.encode("a", allowed_special=[END]),
    "a frozen set is allowed": lambda e: e.encode(END, allowed_special=frozenset([END])),
    "nothing": lambda e: (e.encode(""), e.encode_ordinary(""), e.decode([]), e.decode_bytes([])),
    "no text": lambda e: e.encode(5),
    "bytes for text": lambda e: e.encode(b"a"),
    "no text, ordinary": lambda e: e.encode_ordinary(None),
    "a surrogate pair": lambda e: (e.encode("\ud83d\udc4d"), e.encode_ordinary("\ud83d\udc4d")),
    "a lone surrogate": lambda e: (e.encode("a\ud83db"), e.encode_ordinary("\udc4d")),
    "surrogates in a batch": lambda e: e.encode_batch(["a", "\ud83d\udc4d", "\ud83d"]),
    "surrogates in an ordinary batch": lambda e: e.encode_ordinary_batch(["a", "\ud83d\udc4d"]),
    "surrogates to numpy": lambda e: e.encode_to_numpy("\ud83d"),
    "surrogates and completions": lambda e: e.encode_with_unstable("\ud83d"),
    "numpy": lambda e: e.encode_to_numpy("hello fan"),
    "numpy's type": lambda e: str(e.encode_to_numpy("hello fan").dtype),
    "numpy, allowed": lambda e: e.encode_to_numpy(f"a{END}b", allowed_special="all"),
    "numpy, refused": lambda e: e.encode_to_numpy(f"a{END}b"),
    "batches": lambda e: e.encode_batch(["hello", "", "fan"], num_threads=2),
    "batches, refused": lambda e: e.encode_batch(["hello", END]),
    "batches, allowed": lambda e: e.encode_batch(["hello", END], allowed_special={END}),
    "batches, as text": lambda e: e.encode_batch(["hello", END], disallowed_special=()),
    "ordinary batches": lambda e: e.encode_ordinary_batch(["hello", END, "世"], num_threads=3),
    "batches of no text": lambda e: e.encode_ordinary_batch(["a", 5]),
    "no threads": lambda e: e.encode_ordinary_batch(["a"], num_threads=0),
    "a token": lambda e: (e.encode_single_token("h"), e.encode_single_token(b"\xff")),
    "a special token": lambda e: e.encode_single_token(END),
    "no token": lambda e: e.encode_single_token("hello hello"),
    "bytes that are no token": lambda e: e.encode_single_token(b"\xff\xfe"),
    "a number for a token": lambda e: e.encode_single_token(5),
    "decode": lambda e: (e.decode([104, 105]), e.decode((104,)), e.decode([700])),
    "decode half a character": lambda e: e.decode([228, 184]),
    "decode strictly": lambda e: e.decode([228, 184], errors="strict"),
    "decode, ignoring": lambda e: e.decode([97, 228, 184], errors="ignore"),
    "decode, an unknown way": lambda e: e.decode([228], errors="x"),
    "decode no id": lambda e: e.decode([97, 701]),
    "decode a negative id": lambda e: e.decode_bytes([-1]),
    "decode a huge id": lambda e: e.decode_bytes([2**40]),
    "decode words": lambda e: e.decode_bytes(["a"]),
    "decode a word": lambda e: e.decode_bytes("abc"),
    "decode a number": lambda e: e.decode_bytes(5),
    "decode fractions": lambda e: e.decode_bytes([1.0]),
    "decode an array": lambda e: e.decode_bytes(importlib.import_module("numpy").array([97, 98])),
    "decode a token": lambda e: (
        e.decode_single_token_bytes(255),
        e.decode_single_token_bytes(702),
    ),
    "decode no token": lambda e: e.decode_single_token_bytes(701),
    "decode a negative token": lambda e: e.decode_single_token_bytes(-1),
    "decode a word for a token": lambda e: e.decode_single_token_bytes("a"),
    "decode tokens": lambda e: e.decode_tokens_bytes([104, 228, 700]),
    "offsets": lambda e: e.decode_with_offsets(e.encode_ordinary("naïve 世界 🙂 fan")),
    "offsets of half a character": lambda e: e.decode_with_offsets([228]),
    "offsets of nothing": lambda e: e.decode_with_offsets([]),
    "decode batches": lambda e: e.decode_batch([[104], [228]], errors="ignore"),
    "decode batches to bytes": lambda e: e.decode_bytes_batch([[104], [228, 700]], num_threads=2),
    "decode batches of no ids": lambda e: e.decode_batch([[104], [701]]),
    "all tokens": lambda e: e.token_byte_values(),
    "facts": lambda e: (e.name, e.eot_token, e.n_vocab, e.max_token_value, repr(e)),
    "special tokens": lambda e: e.special_tokens_set,
    "is it special": lambda e: [e.is_special_token(id_) for id_ in (97, 700, 701, 702)],
    "is a word special": lambda e: e.is_special_token("a"),
    "a piece": lambda e: (e._encode_single_piece("hellofan"), e._encode_single_piece(b"\xff\xfe")),
    "pieces": lambda e: e._encode_only_native_bpe("hello fan"),
}


@pytest.mark.parametrize("call", CALLS)
def test_each_call_means_the_same(call: str, pair: Pair) -> None:
    ours, theirs = (outcome(lambda e=each: CALLS[call](e)) for each in pair)
    assert ours == theirs


@settings(max_examples=examples(300))
@given(text=hard_text)
def test_random_text_gives_the_same(text: str, pair: Pair) -> None:
    ours, theirs = pair
    ids = theirs.encode(text, disallowed_special=())
    assert ours.encode(text, disallowed_special=()) == ids == ours.encode_ordinary(text)
    assert ours.encode_to_numpy(text, disallowed_special=()).tolist() == ids
    assert ours.decode(ids) == text and ours.decode_bytes(ids) == text.encode()
    assert ours.decode_with_offsets(ids) == theirs.decode_with_offsets(ids)
    assert ours.decode_tokens_bytes(ids) == theirs.decode_tokens_bytes(ids)


# What is not assigned is a letter to `regex` in some planes, and never to tiktoken's engine.
ASSIGNED = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=8)
ATOMS = [
    "hello",
    " fan",
    " ",
    "  ",
    "\n",
    "'s",
    "naï",
    "世",
    "12",
    "!",
    "\t",
    "\r\n",
    END,
    "<|fim|>",
]


@settings(max_examples=examples(150))
@given(
    text=st.lists(st.sampled_from(ATOMS), max_size=6).map("".join) | ASSIGNED,
    allowed=st.sampled_from([frozenset(), frozenset([END]), frozenset(SPECIAL)]),
)
def test_completions_are_the_same(text: str, allowed: frozenset[str], pair: Pair) -> None:
    (stable, ours), (expected, theirs) = (
        each.encode_with_unstable(text, allowed_special=allowed, disallowed_special=())
        for each in pair
    )
    assert stable == expected and sorted(ours) == sorted(theirs)
    for completion in ours:
        decoded = pair[0].decode_bytes(stable + completion)
        assert decoded.startswith(text.encode()) or text.encode().startswith(decoded)


@settings(max_examples=examples(200))
@given(raw=st.binary(max_size=12) | ASSIGNED.map(str.encode), more=st.binary(max_size=3))
def test_bytes_are_encoded_the_same(raw: bytes, more: bytes, pair: Pair) -> None:
    ours, theirs = pair
    assert ours._encode_bytes(raw + more) == theirs._encode_bytes(raw + more)
    if raw + more:  # tiktoken's core panics without
        assert ours._encode_single_piece(raw + more) == theirs._encode_single_piece(raw + more)


@settings(max_examples=examples(200))
@given(ids=st.lists(st.integers(0, 720) | st.sampled_from([-1, 2**31, 2**32, 2**70]), max_size=6))
def test_random_ids_are_decoded_the_same(ids: list[int], pair: Pair) -> None:
    for name in ("decode", "decode_bytes", "decode_tokens_bytes"):
        ours, theirs = (outcome(lambda e=each, n=name: getattr(e, n)(ids)) for each in pair)
        assert ours == theirs


# -- Objects ---------------------------------------------------------------------


def test_it_is_an_encoding_and_has_all_that_one_has(pair: Pair) -> None:
    ours, theirs = pair
    assert isinstance(ours, tiktoken.Encoding)
    for name in dir(theirs):
        if not name.startswith("_"):
            assert callable(getattr(ours, name)) == callable(getattr(theirs, name)), name


def test_the_twin_needs_none_of_the_originals_methods() -> None:
    """Where tiktoken is not installed, there is nothing to inherit."""
    public = {name for name in vars(tiktoken.Encoding) if not name.startswith("__")}
    assert public <= vars(Encoding).keys() | {"_encode_single_piece"}


def test_it_can_be_pickled_and_copied(pair: Pair) -> None:
    ours, theirs = pair
    for twin in (pickle.loads(pickle.dumps(ours)), copy.copy(ours), copy.deepcopy(ours)):
        assert type(twin) is type(ours) and twin.name == ours.name
        assert twin.encode("hello fan") == theirs.encode("hello fan")
        assert twin.special_tokens_set == theirs.special_tokens_set


def test_the_number_of_tokens_is_checked() -> None:
    given = arguments()
    n = len(given["mergeable_ranks"])
    given["special_tokens"] = {END: n}
    assert Encoding(**given, explicit_n_vocab=n + 1).n_vocab == n + 1
    for wrong in (n, n + 2):
        with pytest.raises(AssertionError):
            Encoding(**given, explicit_n_vocab=wrong)


def test_no_special_tokens() -> None:
    given = {**arguments(), "special_tokens": {}}
    ours, theirs = Encoding(**given), tiktoken.Encoding(**given)
    assert ours.encode(END) == theirs.encode(END)
    with pytest.raises(KeyError):
        _ = ours.eot_token
    assert ours.special_tokens_set == set()


def test_what_cannot_be_done_exactly_is_refused() -> None:
    for change, problem in [
        ({"special_tokens": {"<|a": 700, "<|a|>": 701}}, "begins with another"),
        ({"pat_str": "("}, "split pattern"),
        ({"mergeable_ranks": {b"a": 0, b"b": 1}}, "byte"),
    ]:
        with pytest.raises(ValueError, match=problem):
            Encoding(**{**arguments(), **change})


@EITHER_ENGINE
def test_real_vocabularies(load_vocab: Callable[[str], Vocabulary], corpora: Any) -> None:
    for name in ("r50k_base", "cl100k_base", "o200k_base"):
        ranks, facts = load_vocab(name)
        given = {key: facts[key] for key in ("pat_str", "special_tokens")}
        ours = Encoding(name, mergeable_ranks=ranks, **given)
        theirs = tiktoken.Encoding(name, mergeable_ranks=ranks, **given)
        assert ours.n_vocab == theirs.n_vocab and ours.eot_token == theirs.eot_token
        for corpus in ("english", "code", "multi"):
            text = corpora(corpus)[:30_000]
            ids = theirs.encode_ordinary(text)
            assert ours.encode_ordinary(text) == ids
            assert ours.encode(text, allowed_special="all") == theirs.encode(
                text, allowed_special="all"
            )
            assert ours.decode(ids) == theirs.decode(ids)


# -- A tokenizer of this library -------------------------------------------------


def trained(**options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer("o200k", **options)
    return tokenizer.train(["hello fan " * 9], 270, special_tokens=[END], verbose=False)


def test_a_tokenizer_as_an_encoding() -> None:
    tokenizer = trained(normalizer=None)
    twin = tokenizer.as_tiktoken()
    assert isinstance(twin, tiktoken.Encoding) and twin.name.startswith("bpe-tokenizer-")
    assert twin.encode("hello fan") == tokenizer.encode("hello fan")
    assert twin.encode(END, allowed_special="all") == [twin.eot_token] == [tokenizer.eos_token_id]
    with pytest.raises(ValueError, match="disallowed special token"):
        twin.encode(f"hello{END}")
    original = tokenizer.to_tiktoken()
    assert (twin._pat_str, twin._mergeable_ranks) == (original._pat_str, original._mergeable_ranks)
    assert pickle.loads(pickle.dumps(twin)).encode("fan") == original.encode("fan")
    assert dropin.as_tiktoken(tokenizer, "mine").name == "mine"


def test_its_normalizer_is_kept() -> None:
    tokenizer = trained()
    assert tokenizer.normalizer == "NFC"
    twin = tokenizer.as_tiktoken()
    assert twin.encode("cafe\u0301") == tokenizer.encode("café") == twin.encode("café")
    assert twin.encode_to_numpy("e\u0301").tolist() == twin.encode_batch(["é"])[0]


def test_only_byte_level_tokenizers_have_one() -> None:
    words = BPETokenizer().train(["a b " * 9], 300, style="sentencepiece", verbose=False)
    with pytest.raises(ValueError, match="not byte-level BPE"):
        words.as_tiktoken()


# -- By name, and under tiktoken -------------------------------------------------


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tiktoken know an encoding by the name "small", and a model that uses it."""
    registry = importlib.import_module("tiktoken.registry")
    monkeypatch.setattr(registry, "ENCODING_CONSTRUCTORS", {"small": arguments})
    monkeypatch.setattr(registry, "ENCODINGS", {})
    monkeypatch.setattr(dropin, "_ENCODINGS", {})
    models = importlib.import_module("tiktoken.model").MODEL_TO_ENCODING
    monkeypatch.setitem(models, "gpt-small", "small")


@pytest.mark.usefixtures("named")
def test_encodings_by_name_and_by_model() -> None:
    ours = dropin.get_encoding("small")
    assert type(ours) is Encoding and dropin.get_encoding("small") is ours
    assert dropin.encoding_for_model("gpt-small") is ours
    assert dropin.encoding_name_for_model("gpt-small") == "small"
    assert dropin.list_encoding_names() == ["small"]
    assert len(pickle.dumps(ours)) < 200  # by name
    assert pickle.loads(pickle.dumps(ours)).encode("fan") == ours.encode("fan")
    for get in (dropin, tiktoken):
        for wrong in ("large", 5):
            with pytest.raises(ValueError):
                get.get_encoding(wrong)
        with pytest.raises(KeyError):
            get.encoding_for_model("gpt-none")


@pytest.mark.usefixtures("named")
def test_tiktoken_is_patched_and_gets_its_core_back() -> None:
    before = tiktoken.get_encoding("small")
    own = type(before._core_bpe)
    ids = before.encode("hello fan")
    with patched():
        patch_tiktoken()  # a second time changes nothing
        assert isinstance(before._core_bpe, dropin.CoreBPE)  # those given already, too
        after = tiktoken.encoding_for_model("gpt-small")
        assert after is before and after.encode("hello fan") == ids
        made = tiktoken.Encoding(**arguments())
        assert isinstance(made._core_bpe, dropin.CoreBPE)
        assert pickle.loads(pickle.dumps(made)).encode("hello fan") == ids
    assert type(before._core_bpe) is own and before.encode("hello fan") == ids
    assert type(tiktoken.Encoding(**arguments())._core_bpe) is own
    unpatch_tiktoken()
    assert made.encode("hello fan") == ids  # what was made meanwhile still works


def test_what_has_no_equal_keeps_tiktokens_core() -> None:
    given = {**arguments(), "special_tokens": {"<|a": 700, "<|a|>": 701}}
    with patched(), pytest.warns(UserWarning, match="keeps its own core .* begins with another"):
        made = tiktoken.Encoding(**given)
    assert not isinstance(made._core_bpe, dropin.CoreBPE)
    assert made.encode("hello") == tiktoken.Encoding(**given).encode("hello")
    with patched(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="Parsing error"):  # tiktoken's own words
            tiktoken.Encoding(**{**arguments(), "pat_str": "("})


def test_threads_share_a_patched_encoding() -> None:
    futures = importlib.import_module("concurrent.futures")
    ours, theirs = over_our_core(**arguments()), tiktoken.Encoding(**arguments())
    rng = random.Random(5)
    texts = ["".join(rng.choices(ATOMS[:-2], k=20)) for _ in range(200)]
    expected = theirs.encode_ordinary_batch(texts)
    assert ours.encode_batch(texts) == ours.encode_ordinary_batch(texts) == expected
    with futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ours.encode, texts)) == expected


# -- Libraries that stand on tiktoken ---------------------------------------------


@pytest.mark.usefixtures("named")
def test_langchain_splits_the_same() -> None:
    splitters = need("langchain_text_splitters")
    text = "hello fan, don't fan the fantasy 世界. " * 40

    def chunks() -> list[str]:
        splitter = splitters.TokenTextSplitter("small", chunk_size=20, chunk_overlap=5)
        return list(splitter.split_text(text))

    expected = chunks()
    with patched():
        assert chunks() == expected


@pytest.mark.usefixtures("named")
def test_ttok_counts_the_same() -> None:
    command = need("ttok.cli").cli
    runner = importlib.import_module("click.testing").CliRunner()
    for options in ([], ["--encode"], ["-t", "5"]):
        found = []
        for context in (contextlib.nullcontext(), patched()):
            with context:
                done = runner.invoke(command, ["hello fan 世界 hello", "-m", "gpt-small", *options])
                assert done.exit_code == 0, done.output
                found.append(done.output)
        assert found[0] == found[1]


def test_litellm_counts_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it looks for prices on the web
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # it sets that to where its own vocabularies are
    litellm = need("litellm")
    text = "hello fan 世界, naïve <|endoftext|>\n\n  "
    talk = [{"role": "user", "content": text}, {"role": "assistant", "content": text * 9}]

    def counts() -> list[Any]:
        return [
            *(litellm.token_counter(model=model, text=text * 20) for model in ("gpt-4o", "gpt-4")),
            *(litellm.token_counter(model=model, messages=talk) for model in ("gpt-4o", "gpt-4")),
            litellm.encode(model="gpt-4o", text=text),
            litellm.decode(model="gpt-4o", tokens=litellm.encode(model="gpt-4o", text=text)),
        ]

    expected = counts()
    with patched():
        encodings = importlib.import_module("tiktoken.registry").ENCODINGS
        assert type(encodings["o200k_base"]._core_bpe) is dropin.CoreBPE
        assert counts() == expected
