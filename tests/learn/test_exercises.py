"""Exercises of the field, as they are set: Stanford's CS336, minbpe's, tiktoken's own tests.

The inputs and the expected results are those of
- stanford-cs336/assignment1-basics, tests/test_tokenizer.py (commit 25a8a49);
- karpathy/minbpe, tests/test_tokenizer.py (commit 1acefe8);
- openai/tiktoken, tests/ (commit 4e71bbe).

Long texts are others of the same kind. BPE_TOKENIZER_CS336 names a checkout of the course, whose
own texts and merges are read then. Training is in test_training_exercises.py. Three things differ
by design, and are tested as they are here: special tokens in text are ordinary text unless
`allowed_special` says otherwise, in CS336's tests too; nothing is disallowed by default; and half a
surrogate pair is an error.
"""

from __future__ import annotations

import functools
import os
import pickle
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import BPETokenizer, build_char_to_byte
from bpe_tokenizer_tools.support import streaming

tiktoken = need("tiktoken")

EOT, TWICE = "<|endoftext|>", "<|endoftext|><|endoftext|>"
COURSE = os.environ.get("BPE_TOKENIZER_CS336")
Merge = tuple[bytes, bytes]

# -- What the exercises begin with ------------------------------------------------


def last_merge(token: bytes, ranks: dict[bytes, int]) -> Merge:
    """Find the merge that makes a token, as minbpe does: encode it without itself."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [parts[i] + parts[i + 1] for i in range(len(parts) - 1)]
        at = min(range(len(pairs)), key=lambda i: ranks.get(pairs[i], ranks[token]))
        parts[at : at + 2] = [pairs[at]]
    return parts[0], parts[1]


@pytest.fixture(scope="module")
def gpt2_parts(load_vocab: Any) -> tuple[dict[int, bytes], list[Merge]]:
    """GPT-2's vocabulary, with <|endoftext|> in it as in vocab.json, and its 50,000 merges."""
    ranks, meta = load_vocab("r50k_base")
    vocab = {rank: token for token, rank in ranks.items()}
    merges = [last_merge(token, ranks) for token in vocab.values() if len(token) > 1]
    assert len(merges) == 50_000
    return {**vocab, meta["special_tokens"][EOT]: EOT.encode()}, merges


@pytest.fixture(scope="module")
def gpt2(engine: str, gpt2_parts: Any) -> Callable[..., BPETokenizer]:
    """Make the course's tokenizer: vocabulary, merges, special tokens."""
    made: dict[tuple[str, ...], BPETokenizer] = {}

    def make(*special: str) -> BPETokenizer:
        if special not in made:
            made[special] = BPETokenizer.from_merges(*gpt2_parts, list(special))
        return made[special]

    return make


def theirs(name: str, load_vocab: Any, **changes: Any) -> Any:
    ranks, meta = load_vocab("r50k_base" if name == "gpt2" else name)
    options = {"pat_str": meta["pat_str"], "special_tokens": meta["special_tokens"], **changes}
    return tiktoken.Encoding(name, mergeable_ranks=ranks, **options)


@pytest.fixture(scope="module")
def both(engine: str, load_vocab: Any) -> Callable[[str], tuple[BPETokenizer, Any]]:
    """Give a function from an encoding's name to (our tokenizer, tiktoken's)."""
    made: dict[str, tuple[BPETokenizer, Any]] = {}

    def get(name: str) -> tuple[BPETokenizer, Any]:
        if name not in made:
            encoding = theirs(name, load_vocab)
            made[name] = BPETokenizer.from_tiktoken(encoding), encoding
        return made[name]

    return get


# -- CS336, assignment 1: the tokenizer ---------------------------------------------

SHORT = ["", "s", "🙃", "Hello, how are you?", "Héllò hôw are ü? 🙃"]
MARKED = "Héllò hôw <|endoftext|><|endoftext|> are ü? 🙃<|endoftext|>"
ADDRESS = """\
Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived
in Liberty, and dedicated to the proposition that all men are created equal.

Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and
so dedicated, can long endure. We are met on a great battle-field of that war. We have come to
dedicate a portion of that field, as a final resting place for those who here gave their lives that
that nation might live. It is altogether fitting and proper that we should do this.

But, in a larger sense, we can not dedicate—we can not consecrate—we can not hallow—this ground.
"""
GERMAN = """\
Die Technische Hochschule (kurz TH, Spitzname „Die Werkstatt“) ist eine öffentliche Universität an
der Küste. Sie liegt etwa 60 Kilometer südöstlich der Hauptstadt und wurde 1891 gegründet; 2021
waren 16.937 Studenten an einer der sieben Fakultäten eingeschrieben.[2] Größe heißt hier: Übung!
"""
STORIES = """\

Once upon a time there was a little girl named Mia. Mia loved boats. One day she saw a red boat.
She said, “Wow, that's the best boat! Can I row it?”
"Of course you can," said the boatman, and they couldn't stop laughing.
<|endoftext|>
Once upon a time, there was an old otter named Bo. Bo didn't like rain...  "I'll wait," Bo said.
<|endoftext|>
"""
TEXTS = {"address": ADDRESS, "german": GERMAN, "tinystories_sample": STORIES}


def course_file(name: str) -> Path | None:
    return Path(COURSE, "tests", "fixtures", name) if COURSE else None


def text_of(name: str) -> str:
    path = course_file(f"{name}.txt")
    return path.read_text(encoding="utf-8") if path else TEXTS[name]


def test_merges_are_those_that_gpt2_was_published_with(gpt2_parts: Any) -> None:
    _, merges = gpt2_parts
    start = [(b" ", b"t"), (b" ", b"a"), (b"h", b"e"), (b"i", b"n"), (b"r", b"e")]
    assert merges[:5] == start
    path = course_file("gpt2_merges.txt")
    if path:
        alphabet = {char: bytes([byte]) for char, byte in build_char_to_byte().items()}
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        decoded = [[b"".join(map(alphabet.__getitem__, part)) for part in line] for line in lines]
        assert merges == [(left, right) for left, right in decoded]


@pytest.mark.parametrize("text", [*SHORT, *TEXTS])
def test_cs336_equals_tiktoken(text: str, gpt2: Any, load_vocab: Any) -> None:
    text = text_of(text) if text in TEXTS else text
    tokenizer, encoding = gpt2(), theirs("gpt2", load_vocab)
    ids = tokenizer.encode(text)
    assert ids == encoding.encode(text, disallowed_special=())
    assert tokenizer.decode(ids) == encoding.decode(ids) == text


def test_cs336_single_tokens(gpt2: Any) -> None:
    tokenizer = gpt2(EOT)
    assert [tokenizer.decode([id_]) for id_ in tokenizer.encode("s")] == ["s"]
    pieces = [tokenizer.decode([id_]) for id_ in tokenizer.encode("Hello, how are you?")]
    assert pieces == ["Hello", ",", " how", " are", " you", "?"]


@pytest.mark.parametrize("text", [MARKED, "Héllò hôw are ü? 🙃", "tinystories_sample"])
def test_cs336_special_tokens_equal_tiktoken(text: str, gpt2: Any, load_vocab: Any) -> None:
    text = text_of(text) if text in TEXTS else text
    tokenizer, encoding = gpt2(EOT), theirs("gpt2", load_vocab)
    ids = tokenizer.encode(text, allowed_special="all")
    assert ids == encoding.encode(text, allowed_special={EOT})
    assert [tokenizer.decode([id_]) for id_ in ids].count(EOT) == text.count(EOT)
    assert tokenizer.decode(ids) == text


def test_cs336_overlapping_special_tokens(gpt2: Any) -> None:
    tokenizer = gpt2(EOT, TWICE)
    text = "Hello, how <|endoftext|><|endoftext|> are you?<|endoftext|>"
    ids = tokenizer.encode(text, allowed_special="all")
    pieces = [tokenizer.decode([id_]) for id_ in ids]
    assert (pieces.count(EOT), pieces.count(TWICE)) == (1, 1)
    assert tokenizer.decode(ids) == text
    assert (tokenizer.special_tokens[EOT], tokenizer.special_tokens[TWICE]) == (50256, 50257)


def test_cs336_special_tokens_are_text_unless_allowed(gpt2: Any, load_vocab: Any) -> None:
    """The course's tokenizer always finds them; here the caller says so, as with tiktoken."""
    ids = gpt2(EOT).encode(MARKED)
    assert ids == theirs("gpt2", load_vocab).encode_ordinary(MARKED) and 50256 not in ids


# -- CS336: encode_iterable -----------------------------------------------------------


@pytest.mark.parametrize("special", [(), (EOT,)])
def test_cs336_encode_iterable_of_a_file(
    special: Any, gpt2: Any, load_vocab: Any, tmp_path: Path
) -> None:
    text = text_of("tinystories_sample")
    path = tmp_path / "stories.txt"
    path.write_text(text, encoding="utf-8")
    tokenizer = gpt2(*special)
    with path.open(encoding="utf-8") as file:
        found: Iterator[int] = tokenizer.encode_iterable(file, allowed_special="all")
        assert iter(found) is found and isinstance(first := next(found), int)
        ids = [first, *found]
    options: Any = {"allowed_special": {EOT}} if special else {"disallowed_special": ()}
    assert ids == theirs("gpt2", load_vocab).encode(text, **options)
    assert tokenizer.decode(ids) == text


@settings(max_examples=examples(100))
@given(data=st.data())
def test_encode_iterable_equals_encode_of_the_whole(
    data: Any, gpt2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = st.sampled_from([EOT, "\n", " ", "'s", "é", "e\u0301", "🙃", "the", "12", "\r", "<|"])
    text = "".join(data.draw(st.lists(pieces | st.text(max_size=3), max_size=25)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]
    tokenizer, joined = gpt2(EOT, TWICE), streaming.joined
    for allowed, size in (("none", 1), ("all", 7), ({EOT}, 4096)):
        monkeypatch.setattr(streaming, "joined", functools.partial(joined, size=size))
        expected = tokenizer.encode(text, allowed_special=allowed)
        assert list(tokenizer.encode_iterable(chunks, allowed)) == expected
        assert list(tokenizer.encode_iterable(iter(text), allowed)) == expected


def test_encode_iterable_is_lazy_and_says_what_is_wrong(gpt2: Any) -> None:
    tokenizer = gpt2(EOT)

    taken = []

    def forever() -> Iterator[str]:
        while True:
            taken.append("Hello, how are you?\n")
            yield taken[-1]

    ids = tokenizer.encode_iterable(forever())
    assert tokenizer.decode([next(ids), next(ids)]) == "Hello,"
    assert len("".join(taken)) < 10_000
    with pytest.raises(TypeError, match="text must be a str, got bytes"):
        list(tokenizer.encode_iterable(["Hello", b" you"]))
    with pytest.raises(TypeError, match="expected an iterable of strings, got one text"):
        tokenizer.encode_iterable("Hello")
    with pytest.raises(ValueError, match="allowed_special"):
        tokenizer.encode_iterable(["a"], allowed_special={"<s>"})


def five_megabytes(path: Path, part: str) -> None:
    path.write_text(part * (5_000_000 // len(part.encode()) + 1), encoding="utf-8")


def test_encode_iterable_keeps_nothing(gpt2: Any, corpora: Any, tmp_path: Path) -> None:
    """Beyond the cache of pre-tokens, which is bounded, and which the first pass fills."""
    tokenizer, path = gpt2(EOT), tmp_path / "text.txt"
    path.write_text(corpora("english")[:300_000] * 4, encoding="utf-8")

    def count() -> int:
        with path.open(encoding="utf-8") as file:
            return sum(1 for _ in tokenizer.encode_iterable(file, allowed_special="all"))

    expected = count()
    tracemalloc.start()
    try:
        assert count() == expected
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


LIMITED = """
import re, resource, sys
from pathlib import Path
from bpe_tokenizer import BPETokenizer

tokenizer = BPETokenizer.from_pretrained(sys.argv[1], verbose=False)
whole = Path(sys.argv[2]).read_text(encoding="utf-8")

def count(lines):
    return sum(1 for _ in tokenizer.encode_iterable(lines, allowed_special="all"))

count([whole[:600_000]])  # the first part, of which the others are copies
with open(sys.argv[2], encoding="utf-8") as file:
    status = Path("/proc/self/status").read_text()
    used = 1024 * int(re.search(r"VmSize:\\s+(\\d+)", status)[1])
    resource.setrlimit(resource.RLIMIT_AS, (used + 10**6, -1))
    print(count(file))
try:
    tokenizer.encode(whole)
except MemoryError:
    print("out of memory")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and RLIMIT_AS")
def test_cs336_memory_limits(gpt2: Any, corpora: Any, load_vocab: Any, tmp_path: Path) -> None:
    """Five megabytes within one megabyte more of memory, which encode of the whole exceeds."""
    part = corpora("english")[:500_000]
    gpt2(EOT).save(tmp_path / "gpt2", verbose=False)
    five_megabytes(tmp_path / "text.txt", part)
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "gpt2"), str(tmp_path / "text.txt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    text = (tmp_path / "text.txt").read_text(encoding="utf-8")
    expected = len(theirs("gpt2", load_vocab).encode(text, allowed_special="all"))
    assert (done.stdout.split("\n", 1), done.stderr) == ([str(expected), "out of memory\n"], "")


# -- minbpe ---------------------------------------------------------------------------

MINBPE = ["", "?", "hello world!!!? (안녕하세요!) lol123 😉"]
SPECIALS = {
    EOT: 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}
DOCUMENTS = """\
<|endoftext|>Hello world this is one document
<|endoftext|>And this is another document
<|endoftext|><|fim_prefix|>And this one has<|fim_suffix|> tokens.<|fim_middle|> FIM
<|endoftext|>Last document!!! 👋<|endofprompt|>"""


@pytest.mark.parametrize("pattern", [r"[\s\S]+", "cl100k"])
@pytest.mark.parametrize("text", [*MINBPE, "long"])
def test_minbpe_round_trip_untrained(text: str, pattern: str, corpora: Any) -> None:
    text = corpora("multi")[:180_000] if text == "long" else text
    tokenizer = BPETokenizer(pattern, normalizer=None)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", [*MINBPE, "long"])
def test_minbpe_equals_gpt4(text: str, both: Any, corpora: Any) -> None:
    text = corpora("english")[:180_000] if text == "long" else text
    ours, encoding = both("cl100k_base")
    assert ours.encode(text) == encoding.encode(text, disallowed_special=())
    assert ours.decode(ours.encode(text)) == text


def test_minbpe_special_tokens_equal_gpt4(both: Any) -> None:
    ours, encoding = both("cl100k_base")
    ids = ours.encode(DOCUMENTS, allowed_special="all")
    assert ids == encoding.encode(DOCUMENTS, allowed_special="all")
    assert ours.special_tokens == SPECIALS


def test_minbpes_own_vocabulary_and_merges_are_taken_over() -> None:
    """minbpe keeps merges as {(id, id): id} and tokens as {id: bytes}."""
    merges = {(97, 97): 256, (256, 97): 257, (257, 98): 258}
    vocab = {id_: bytes([id_]) for id_ in range(256)}
    for (left, right), id_ in merges.items():
        vocab[id_] = vocab[left] + vocab[right]
    pairs = [(vocab[left], vocab[right]) for left, right in merges]
    tokenizer = BPETokenizer.from_merges(vocab, pairs, {EOT: 1000}, r"[\s\S]+")
    assert tokenizer.encode("aaabdaaabac") == [258, 100, 258, 97, 99]


# -- tiktoken ---------------------------------------------------------------------------

ROUND_TRIPS = ["hello", "hello ", "hello  ", " hello", " hello ", " hello  ", "hello world"]
ROUND_TRIPS += ["请考试我的软件！12345"]
ENCODINGS = pytest.mark.parametrize("name", ["r50k_base", "cl100k_base"])


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("r50k_base", "hello world", [31373, 995]),
        ("r50k_base", "hello <|endoftext|>", [31373, 220, 50256]),
        ("r50k_base", "", []),
        ("cl100k_base", "hello world", [15339, 1917]),
        ("cl100k_base", "hello <|endoftext|>", [15339, 220, 100257]),
        ("cl100k_base", " \x850", [220, 126, 227, 15]),
        ("cl100k_base", "rer", [38149]),
        ("cl100k_base", "'rer", [2351, 81]),
        ("cl100k_base", "today\n ", [31213, 198, 220]),
        ("cl100k_base", "today\n \n", [31213, 27907]),
        ("cl100k_base", "today\n  \n", [31213, 14211]),
        ("cl100k_base", "👍", [9468, 239, 235]),
    ],
)
def test_tiktoken_simple(name: str, text: str, ids: list[int], both: Any, gpt2: Any) -> None:
    for tokenizer in [both(name)[0], *([gpt2(EOT)] if name == "r50k_base" else [])]:
        assert tokenizer.encode(text, allowed_special="all") == ids
        assert tokenizer.decode(ids) == text


ZEROS = [[15], [405], [830], [2388], [20483], [10535], [24598], [8269], [10535, 830], [8269, 405]]
ZEROS += [[8269, 830], [8269, 2388], [8269, 20483], [8269, 10535], [8269, 24598], [25645]]
ZEROS += [[8269, 10535, 830]]


def test_tiktoken_simple_repeated(both: Any, gpt2: Any) -> None:
    for tokenizer in (both("r50k_base")[0], gpt2()):
        assert [tokenizer.encode("0" * (n + 1)) for n in range(len(ZEROS))] == ZEROS


def test_tiktoken_large_repeated(both: Any) -> None:
    ours, encoding = both("o200k_base")
    text = "x" * 1_000_000
    assert ours.encode(text) == encoding.encode(text)


def test_tiktoken_bytes_of_tokens(both: Any) -> None:
    ours, _ = both("cl100k_base")
    assert ours.decode_bytes([62085]) == b" \xec\x8b\xa4\xed"
    byte_ids = [ours.convert_tokens_to_ids("Ģ")] * 10  # 0x80
    assert [ours.decode_bytes(byte_ids[:n]) for n in range(10)] == [b"\x80" * n for n in range(10)]


def test_tiktoken_surrogates(both: Any) -> None:
    """There a pair is joined and a lone one replaced; here both are errors, with the remedy."""
    ours, encoding = both("cl100k_base")
    pair = "\ud83d\udc4d"
    for text in (pair, "\ud83d"):
        with pytest.raises(ValueError, match="surrogate"):
            ours.encode(text)
        mended = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert ours.encode(mended) == encoding.encode(text)
    assert encoding.encode(pair) == [9468, 239, 235]


@ENCODINGS
def test_tiktoken_catastrophically_repetitive(name: str, both: Any) -> None:
    ours, encoding = both(name)
    for char in ["^", "0", "a", "'s", " ", "\n"]:
        text = char * 10_000
        for variant in (text, " " + text, " " + text + "\n"):
            ids = ours.encode(variant)
            assert ids == encoding.encode(variant) and ours.decode(ids) == variant


@ENCODINGS
def test_tiktoken_round_trips(name: str, both: Any) -> None:
    ours, encoding = both(name)
    for text in ROUND_TRIPS:
        assert ours.encode(text) == ours.encode_ordinary(text) == encoding.encode(text)
        assert ours.decode(ours.encode(text)) == text

    @settings(max_examples=examples(100))
    @given(st.text())
    def check(text: str) -> None:
        ids = ours.encode(text, disallowed_special=())
        assert ids == ours.encode_ordinary(text) and ours.decode(ids) == text

    check()


@ENCODINGS
def test_tiktoken_every_token_by_itself(name: str, both: Any, load_vocab: Any) -> None:
    ours, _ = both(name)
    ranks, _ = load_vocab(name)
    ids = sorted([*ranks.values(), *ours.special_tokens.values()])
    assert len(ids) == ours.vocab_size
    assert ours.convert_tokens_to_ids(ours.convert_ids_to_tokens(ids)) == ids
    assert all(ours.decode_bytes([rank]) == token for token, rank in ranks.items())


def test_tiktoken_special_tokens(both: Any) -> None:
    ours, _ = both("cl100k_base")
    eot, fip, fim = (
        ours.convert_tokens_to_ids(f"<|{name}|>")
        for name in ("endoftext", "fim_prefix", "fim_middle")
    )
    assert eot == ours.eos_token_id == 100257
    text = "<|endoftext|> hello <|fim_prefix|>"
    assert eot not in ours.encode(text) and eot not in ours.encode(text, disallowed_special=())
    for disallowed in ("all", {EOT}, {"<|fim_prefix|>"}):
        with pytest.raises(ValueError, match="disallowed"):
            ours.encode(text, disallowed_special=disallowed)
    text += " there <|fim_middle|>"
    for allowed, disallowed, found in [
        ("none", (), set()),
        ("all", (), {eot, fip, fim}),
        ("all", "all", {eot, fip, fim}),
        ({"<|fim_prefix|>"}, (), {fip}),
        ({EOT}, (), {eot}),
        ({"<|fim_middle|>"}, (), {fim}),
    ]:
        ids = ours.encode(text, allowed_special=allowed, disallowed_special=disallowed)
        assert {eot, fip, fim}.intersection(ids) == found


@ENCODINGS
def test_tiktoken_batches(name: str, both: Any) -> None:
    ours, encoding = both(name)
    for texts in (["hello world"], ["hello world", "goodbye world"]):
        expected = [ours.encode(text) for text in texts]
        assert (
            ours.encode_batch(texts)["input_ids"] == ours.encode_ordinary_batch(texts) == expected
        )

    @settings(max_examples=examples(60))
    @given(st.lists(st.text()))
    def check(texts: list[str]) -> None:
        rows = ours.encode_batch(texts, allowed_special="all")["input_ids"]
        assert rows == encoding.encode_batch(texts, allowed_special="all")
        assert ours.decode_batch(rows) == texts

    check()


OFFSETS = {
    "hello world": [0, 5],
    "hello world<|endoftext|> green cow": [0, 5, 11, 24, 30],
    "我非常渴望与人工智能一起工作": [0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13],
    "நடிகர் சூர்யா": [0, 0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 9, 10, 11, 12, 12],
    " Ġ除": [0, 1],
}


@pytest.mark.parametrize("text", OFFSETS)
def test_tiktoken_offsets(text: str, both: Any) -> None:
    """Where a token's first character begins; a token may begin within one."""
    ours, encoding = both("cl100k_base")
    result = ours.encode_with_offsets(text, allowed_special="all")
    assert [start for start, _ in result.offsets] == OFFSETS[text]
    assert encoding.decode_with_offsets(result.input_ids) == (text, OFFSETS[text])


def test_tiktoken_random_offsets(both: Any) -> None:
    ours, encoding = both("cl100k_base")
    rng = random.Random(7)
    for _ in range(examples(200)):
        ids = [rng.randrange(100_256) for _ in range(rng.randrange(1, 20))]
        text = ours.decode(ids, errors="ignore")
        result = ours.encode_with_offsets(text, allowed_special="all")
        assert result.input_ids == encoding.encode(text, allowed_special="all")
        starts = [start for start, _ in result.offsets]
        assert starts == encoding.decode_with_offsets(result.input_ids)[1]


def test_tiktoken_pickle(load_vocab: Any) -> None:
    custom = theirs("r50k_base", load_vocab, special_tokens={"<|pickle|>": 100_000})
    for encoding in (theirs("r50k_base", load_vocab), custom):
        old = BPETokenizer.from_tiktoken(encoding)
        new = pickle.loads(pickle.dumps(old))
        assert new.encode("hello world") == old.encode("hello world") == [31373, 995]
    assert new.encode("<|pickle|>", allowed_special="all") == [100_000]
