"""The sweep over vocabulary sizes: every figure against real tokenizers of each size."""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import json
import math
import random
import re
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import run_command
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, count_pretokens
from bpe_tokenizer_tools.command_line import read_number
from bpe_tokenizer_tools.corpus.held_out import CorpusReader, _by_lines
from bpe_tokenizer_tools.evaluation.sweep import MIN_GAIN, Sweep, sweep
from bpe_tokenizer_tools.training.superwords import SUPERBPE_PATTERN, Superwords, count_superwords

SIZES = [300, 400, 600, 900, 1200]
SPECIAL = ["<|endoftext|>", "<|pad|>"]


@functools.cache
def library_text() -> str:
    return Path(bpe_tokenizer.__file__).read_text(encoding="utf-8")


def documents(text: str, n: int) -> list[str]:
    size = len(text) // n + 1
    return [text[i : i + size] for i in range(0, len(text), size)]


@functools.cache
def training_text() -> str:
    return library_text()[:60_000]


@functools.cache
def held_out_text() -> str:
    return library_text()[90_000:120_000] + "Grüße, 世界! naïve cafe\u0301 \n\n\n\t 1234567"


@functools.cache
def measured() -> Sweep:
    return sweep(
        [training_text()],
        [held_out_text()],
        SIZES,
        split_pattern="cl100k",
        special_tokens=SPECIAL,
        width=64,
        parameters=200_000,
    )


def trained(size: int, **options: Any) -> BPETokenizer:
    """Train to a size from nothing: what a sweep saves."""
    tokenizer = BPETokenizer("cl100k")
    options = {"special_tokens": SPECIAL, **options}
    return tokenizer.train([training_text()], size, verbose=False, **options)


# -- Superwords ------------------------------------------------------------------


def saying(n: int) -> list[str]:
    """Documents in which some words often stand together."""
    words = ["by the way", ", he said", ". ", "in a hurry", " of the", " 12 ", "\n", "a cat", " x"]
    return ["".join(random.Random(i).choices(words, k=60)) for i in range(n)]


@pytest.mark.parametrize("given", ["texts", "counts", "texts to set apart"])
def test_superwords(given: str) -> None:
    """Each size has the tokens of a tokenizer trained with superwords to it."""
    texts, held_out = saying(60), saying(70)[60:]
    sizes = [280, 290, 300, 320]
    if given == "texts to set apart":
        share = 0.2
        training, held_out = CorpusReader(BPETokenizer()).set_apart(texts, share)
        texts_to_train = list(training)
        assert 2 < len(held_out) < 30
        assert sorted(texts_to_train + held_out) == sorted(texts)
        result = sweep(texts, None, sizes, superwords=285, held_out_share=share)
    else:
        texts_to_train = texts
        source = texts if given == "texts" else count_superwords(texts, 285, 320)
        result = sweep(source, held_out, sizes, superwords={"transition": 285})
    for point in result.points:
        how = {"superwords": 285} if point.size >= 285 else {}
        made = BPETokenizer().train(texts_to_train, point.size, verbose=False, **how)
        cut = result.tokenizer(point.size)
        assert cut.merges == made.merges
        assert cut.split_pattern == SUPERBPE_PATTERN
        assert point.tokens == sum(map(cut.count_tokens, held_out))
    assert result.points[-1].tokens < result.points[1].tokens
    assert [note for note in result.notes if "no size up to 285" in note]


def test_superwords_that_cannot_be_swept() -> None:
    texts, more = saying(9), {"sizes": [300], "verbose": False}
    with pytest.raises(ValueError, match="with transition='auto', a smaller vocabulary"):
        sweep(texts, "a cat", superwords=Superwords("auto", "boundless"), **more)
    with pytest.raises(ValueError, match="this tokenizer is already trained"):
        sweep(BPETokenizer().train(texts, 270, verbose=False), "a", superwords=280, **more)
    with pytest.raises(ValueError, match="these counts don't say which pre-tokens are neighbors"):
        sweep(count_pretokens(texts, num_workers=1), "a cat", superwords=280, **more)
    with pytest.raises(ValueError, match="superwords can't be combined with parity"):
        sweep(parity={"a": texts}, superwords=280, **more)
    with pytest.raises(ValueError, match="can't be divided into training and held-out text"):
        sweep(["one text"], superwords=280, **more)
    with pytest.raises(ValueError, match="transition must be at most vocab_size"):
        sweep(texts, "a cat", superwords=400, **more)


def test_superwords_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("".join(saying(40)), encoding="utf-8")
    (tmp_path / "b.txt").write_text("".join(saying(50)[40:]), encoding="utf-8")
    files = ["--corpus", tmp_path / "a.txt", "--held-out", tmp_path / "b.txt"]
    options = ["--superwords", 285, "--sizes", 300, 320, "--json", "--quiet"]
    status, out, err = run_command(capsys, "sweep", *files, *options, "-o", tmp_path / "out")
    assert (status, err) == (0, "")
    count = ["count", tmp_path / "a.txt", "-o", tmp_path / "counts", "--quiet", *options[:2]]
    count += ["--num-workers", 1]
    assert run_command(capsys, *count, "--vocab-size", 320) == (0, "", "")
    files = ["--counts", tmp_path / "counts", "--held-out", tmp_path / "b.txt"]
    status, again, err = run_command(capsys, "sweep", *files, *options)
    assert (status, err) == (0, "")
    assert json.loads(again)["points"] == json.loads(out)["points"]
    made = BPETokenizer.from_pretrained(tmp_path / "out", verbose=False)
    how = {"superwords": 285, "verbose": False}
    assert made.merges == BPETokenizer().train(tmp_path / "a.txt", made.vocab_size, **how).merges
    points = {point["size"]: point["tokens"] for point in json.loads(out)["points"]}
    files = ["--corpus", tmp_path / "a.txt", "--held-out", tmp_path / "b.txt"]
    status, out, err = run_command(capsys, "sweep", *files, *options, "--superword-max-words", 2)
    result = sweep(
        [tmp_path / "a.txt"],
        [tmp_path / "b.txt"],
        [300, 320],
        superwords={"transition": 285, "max_words": 2},
    )
    fewer = {point["size"]: point["tokens"] for point in json.loads(out)["points"]}
    assert fewer == {point.size: point.tokens for point in result.points} != points
    text = (tmp_path / "b.txt").read_text(encoding="utf-8")
    assert points[made.vocab_size] == made.count_tokens(text)


# -- The figures --------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_a_size_has_the_tokens_of_a_tokenizer_trained_to_it(size: int) -> None:
    point = next(point for point in measured().points if point.size == size)
    tokenizer = trained(size)
    ids = tokenizer.encode(held_out_text())
    n_bytes = len(tokenizer.decode_bytes(ids))
    assert point.tokens == len(ids)
    assert point.bytes_per_token == pytest.approx(n_bytes / len(ids), rel=1e-12)
    assert point.unused == pytest.approx(1 - len(set(ids)) / (size - 2), rel=1e-12)
    assert measured().held_out_bytes == n_bytes
    assert measured().tokenizer(size) == tokenizer


def test_any_size_can_be_cut_whether_it_was_measured_or_not() -> None:
    assert measured().tokenizer(777) == trained(777)
    with pytest.raises(ValueError, match="from 258 .* to 1200"):
        measured().tokenizer(1201)


def test_gain_is_what_a_doubling_saves() -> None:
    points = measured().points
    assert points[0].gain is None
    for before, point in zip(points, points[1:]):
        doublings = math.log(point.size / before.size, 2)
        assert before.tokens * (1 - point.gain) ** doublings == pytest.approx(point.tokens)


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_and_worth(tied: bool) -> None:
    counts = count_pretokens([training_text()])
    result = sweep(counts, held_out_text(), SIZES, width=96, parameters=400_000, tied=tied)
    tables = 1 if tied else 2
    worth = {}
    for point in result.points:
        assert point.embedding == tables * 96 * point.size
        assert point.share == pytest.approx(tables * 96 * point.size / 400_000)
        worth[point.size] = point.bytes_per_token * (400_000 - point.embedding)
    best = max(worth, key=worth.__getitem__)
    for point in result.points:
        assert point.worth == pytest.approx(worth[point.size] / worth[best])
    assert result.recommendation.size == best
    assert result.recommendation.rule == "worth"


def test_a_larger_model_is_given_a_larger_vocabulary() -> None:
    small = sweep(measured().largest, held_out_text(), SIZES, width=64, parameters=60_000)
    large = sweep(measured().largest, held_out_text(), SIZES, width=64, parameters=6_000_000)
    assert small.recommendation.size < large.recommendation.size == 1200
    assert "largest size measured" in large.recommendation.reason


def test_the_reason_of_a_budget_has_figures_that_hold() -> None:
    result = measured()
    points, size = result.points, result.recommendation.size
    best = [point.size for point in points].index(size)
    here, after = points[best], points[best + 1]
    left = 200_000 - 64 * size
    reason = result.recommendation.reason
    assert f"take {64 * size:,} of 200,000 parameters ({64 * size / 200_000:.1%})" in reason
    assert f"leave {left:,} for the layers" in reason
    saved, taken = 1 - after.tokens / here.tokens, 64 * (after.size - size) / left
    assert saved < taken
    expected = (
        f"{after.size:,} would save {saved:.1%} of the tokens, but take {taken:.1%} of the layers"
    )
    assert expected in reason
    assert str(result.recommendation).startswith(f"{size:,}: ")


@pytest.mark.parametrize("min_gain", [0.02, 0.12, 0.16, 0.9])
def test_without_a_budget_the_last_step_that_saves_enough_decides(min_gain: float) -> None:
    result = sweep(measured().largest, held_out_text(), SIZES, min_gain=min_gain)
    assert result.recommendation.rule == "gain"
    enough = [point.size for point in result.points if point.gain and point.gain >= min_gain]
    assert result.recommendation.size == max(enough, default=300)
    assert result.points[0].embedding is None and result.points[0].worth is None


def test_with_a_width_alone_parameters_are_shown() -> None:
    result = sweep(measured().largest, held_out_text(), [400, 800], width=10)
    assert [point.embedding for point in result.points] == [4000, 8000]
    assert [point.share for point in result.points] == [None, None]
    assert result.recommendation.rule == "gain"


# -- Any tokenizer ------------------------------------------------------------


def ids_by_cutting(tokenizer: BPETokenizer, size: int, text: str) -> list[int]:
    return tokenizer.with_vocab_size(size).encode_ordinary(text)


def assert_equal_to_cutting(tokenizer: BPETokenizer, text: str, sizes: list[int]) -> None:
    result = sweep(tokenizer, [text], sizes)
    assert [point.size for point in result.points] == sizes
    for point in result.points:
        ids = ids_by_cutting(tokenizer, point.size, text)
        ordinary = point.size - len(tokenizer.added_tokens)
        assert (point.tokens, point.unused) == (len(ids), 1 - len(set(ids)) / ordinary)


def test_random_vocabularies_over_few_letters() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        letters = rng.choice(["a", "ab", "abc", "-= ", "é中a"])

        def word(longest: int, rng: random.Random = rng, letters: str = letters) -> str:
            return "".join(rng.choice(letters) for _ in range(rng.randint(1, longest)))

        counts = {word(20).encode(): rng.randint(1, 9) for _ in range(20)}
        tokenizer = BPETokenizer(r"(?s:.+)", normalizer=None)
        tokenizer.train(counts=counts, vocab_size=320, min_frequency=1, verbose=False)
        sizes = sorted({256, *(rng.randint(256, tokenizer.vocab_size) for _ in range(4))})
        assert_equal_to_cutting(tokenizer, word(400), sizes)


def with_other_merges(tokenizer: BPETokenizer, folder: Path, change: Callable[..., None]) -> Any:
    tokenizer.save(folder, verbose=False)
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data["model"])
    path.write_text(json.dumps(data), encoding="utf-8")
    return BPETokenizer.from_file(path)


def merges_of(model: dict[str, Any]) -> list[list[str]]:
    return [pair if isinstance(pair, list) else pair.split() for pair in model["merges"]]


def ways_to_make(token: str, vocab: dict[str, int]) -> list[list[str]]:
    """Return all pairs of older tokens that join to a token."""
    pairs = [[token[:i], token[i:]] for i in range(1, len(token))]
    return [pair for pair in pairs if all(vocab.get(p, len(vocab)) < vocab[token] for p in pair)]


def test_tokens_that_several_merges_make(tmp_path: Path) -> None:
    def change(model: dict[str, Any]) -> None:  # as files converted from ranks have it
        merges = merges_of(model)
        model["merges"] = [
            pair for merge in merges for pair in ways_to_make("".join(merge), model["vocab"])
        ]
        assert len(model["merges"]) > len(merges)

    tokenizer = with_other_merges(trained(900), tmp_path, change)
    assert len(tokenizer.merges) > len(set(map(b"".join, tokenizer.merges)))
    assert_equal_to_cutting(tokenizer, held_out_text(), [258, 300, 511, 899, 900])


def test_whole_tokens_that_no_merges_lead_to(tmp_path: Path) -> None:
    texts = []

    def change(model: dict[str, Any]) -> None:
        merges = merges_of(model)
        model["ignore_merges"] = True
        parts = {part for pair in merges for part in pair}
        words = [pair for pair in merges if re.fullmatch("Ġ[A-Za-z]{3,}", "".join(pair))]
        no_merge, *others = [pair for pair in words if "".join(pair) not in parts]
        merges.remove(no_merge)
        texts.append("".join(no_merge))
        for pair in others:  # one that the merge loop, which has made other parts by then, skips
            for other in ways_to_make("".join(pair), model["vocab"]):
                if other != pair:
                    merges[merges.index(pair)] = other
                    texts.append("".join(pair))
                    break
        model["merges"] = merges

    tokenizer = with_other_merges(trained(1200), tmp_path, change)
    assert len(texts) > 2
    text = "".join(texts).replace("Ġ", " ") * 9
    assert all(tokenizer.tokenize(" " + token[1:]) == [token] for token in texts)
    assert_equal_to_cutting(tokenizer, text, [300, 500, 800, 1199, 1200])


def test_a_vocabulary_that_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    def change(model: dict[str, Any]) -> None:
        model["merges"] = merges_of(model)[::-1]

    tokenizer = with_other_merges(trained(400), tmp_path, change)
    with pytest.raises(ValueError, match="this vocabulary cannot be cut"):
        sweep(tokenizer, "abc", [300])


def test_a_published_vocabulary(vocab_dir: Path, corpora: Callable[[str], str]) -> None:
    tokenizer = BPETokenizer.from_file(vocab_dir / "r50k_base.tiktoken")
    text = corpora("multi")[:60_000] + corpora("code")[:60_000]
    text = text.replace("<|endoftext|>", "\n\n")
    assert_equal_to_cutting(tokenizer, text, [500, 8_000, 50_000, tokenizer.vocab_size])


def test_a_space_that_goes_before_each_text_is_counted(tmp_path: Path) -> None:
    tokenizer = BPETokenizer().train([training_text()], 600, verbose=False)
    tokenizer.save(tmp_path, verbose=False)
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["pre_tokenizer"]["type"] == "ByteLevel"
    data["pre_tokenizer"]["add_prefix_space"] = True
    path.write_text(json.dumps(data), encoding="utf-8")
    loaded = BPETokenizer.from_file(path)
    assert loaded.encode("def") != tokenizer.encode("def")
    assert_equal_to_cutting(loaded, "def", [300, 600])


# -- Training that ends early, held-out text ----------------------------------


def test_a_training_that_ends_early_is_measured_where_it_ended() -> None:
    result = sweep("low lower lowest " * 9, "slow lower", [260, 300, 400], split_pattern="gpt2")
    (reached,) = {point.size for point in result.points} - {260}
    tokenizer = BPETokenizer().train("low lower lowest " * 9, 400, verbose=False)
    assert reached == tokenizer.vocab_size < 300
    assert result.points[-1].tokens == len(tokenizer.encode("slow lower"))
    (note,) = result.notes
    assert f"ended at {reached} tokens (nothing left above min_frequency)" in note or (
        f"ended at {reached} tokens (no pairs left)" in note
    )
    assert "instead of 300, 400" in note and note in str(result)


def test_min_frequency_and_max_token_length_are_those_of_training() -> None:
    options: dict[str, Any] = {"min_frequency": 40, "max_token_length": 4}
    result = sweep(
        [training_text()],
        held_out_text(),
        [400, 5000],
        split_pattern="cl100k",
        special_tokens=SPECIAL,
        **options,
    )
    assert result.largest == trained(5000, **options)
    assert result.largest.vocab_size < 5000


def test_special_tokens_in_the_held_out_text_are_not_counted() -> None:
    result = sweep([training_text()], "a<|endoftext|>b", [300], special_tokens=SPECIAL)
    assert (result.points[0].tokens, result.held_out_bytes) == (2, 2)


def test_special_tokens_with_ids_keep_them() -> None:
    special = {"<s>": 257, "</s>": None}
    result = sweep([training_text()], held_out_text(), [300, 500], special_tokens=special)
    for point in result.points:
        tokenizer = result.tokenizer(point.size)
        assert tokenizer.special_tokens["<s>"] == 257
        assert tokenizer.vocab_size == point.size
        assert point.tokens == len(tokenizer.encode(held_out_text()))


@pytest.mark.parametrize("reverse", [False, True])
def test_some_documents_are_kept_out_of_training(tmp_path: Path, reverse: bool) -> None:
    text = re.sub(r"<\|(endoftext|pad)\|>", "", library_text()[:100_000])
    parts = documents(text, 80)
    parts += parts[:3]  # copies stay together
    parts = parts[::-1] if reverse else parts
    path = tmp_path / "corpus.txt"
    path.write_bytes("<|endoftext|>".join(parts).encode())
    result = sweep([path], None, [300, 500], special_tokens=SPECIAL, held_out_share=0.2)
    assert 5 < result.held_out_documents < 40
    taken = [part for part in parts if drawn(part) < 0.2]
    assert result.held_out_documents == len(taken)
    rest = [part for part in parts if drawn(part) >= 0.2]
    alone = sweep(rest, taken, [300, 500], special_tokens=SPECIAL)
    assert alone.points == result.points and alone.largest == result.largest


def drawn(document: str) -> float:
    digest = hashlib.blake2b(document[: 2**16].encode(), digest_size=8).digest()
    return struct.unpack(">Q", digest)[0] / 2**64


def test_records_are_documents(tmp_path: Path) -> None:
    parts = documents(training_text(), 60)
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": part}) + "\n" for part in parts), "utf-8")
    result = sweep(path, None, [300], held_out_share=0.3)
    assert result.held_out_documents == sum(drawn(part) < 0.3 for part in parts)


# -- What is refused ----------------------------------------------------------


def test_what_cannot_be_measured_is_said_in_words(tmp_path: Path) -> None:
    text, other = training_text(), held_out_text()
    counts = count_pretokens(text)
    for error, message, arguments, options in [
        (ValueError, "no vocabulary sizes", (text, other, []), {}),
        (TypeError, "must be a list of ints", (text, other, "16k"), {}),
        (TypeError, "must be an int", (text, other, [16.5]), {}),
        (ValueError, "must be at least 256, got 10", (text, other, [10]), {}),
        (ValueError, "258", (text, other, [257, 300]), {"special_tokens": SPECIAL}),
        (ValueError, "needs the width", (text, other, [300]), {"parameters": 10}),
        (
            ValueError,
            "too small for the model",
            (text, other, [300]),
            {"parameters": 10, "width": 8},
        ),
        (ValueError, "min_gain", (text, other, [300]), {"min_gain": 3}),
        (ValueError, "held-out text is empty", (text, "", [300]), {}),
        (ValueError, "the corpus is empty", ([""], other, [300]), {}),
        (ValueError, "1 document can't be divided", ("one line", None, [300]), {}),
        (
            ValueError,
            "the special token between documents (--special-tokens)",
            ("one line", None, [300]),
            {},
        ),
        (ValueError, "held_out_share", (text, None, [300]), {"held_out_share": 2}),
        (ValueError, "no held-out text", (counts, None, [300]), {}),
        (ValueError, "no held-out text", (trained(300), None, [300]), {}),
        (
            ValueError,
            "already has its own",
            (trained(300), other, [300]),
            {"special_tokens": ["x"]},
        ),
        (
            ValueError,
            "count again",
            (count_pretokens(text), count_pretokens(text, "o200k"), [300]),
            {},
        ),
        (FileNotFoundError, "no such file", (tmp_path / "none.txt", other, [300]), {}),
    ]:
        with pytest.raises(error, match=re.escape(message)):
            sweep(*arguments, **options)


def test_a_held_out_file_that_is_in_the_corpus_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(training_text(), "utf-8")
    for corpus in (path, [str(path)], [tmp_path], str(tmp_path)):
        with pytest.raises(ValueError, match=r"a\.txt is in the corpus"):
            sweep(corpus, [tmp_path / "." / "a.txt"], [300])


@pytest.mark.filterwarnings("ignore:.*ordinary text")  # small vocabularies
def test_a_vocabulary_of_another_kind_is_refused(tmp_path: Path) -> None:
    tokenizers = need("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="only byte-level BPE"):
        sweep(BPETokenizer.from_file(tmp_path / "tokenizer.json"), "ab", [256])


# -- Numbers as people write them, output -------------------------------------


def test_numbers_as_people_write_them() -> None:
    for text, number in [
        ("32000", 32_000),
        ("32k", 32_000),
        ("50,257", 50_257),
        ("1_000", 1_000),
        ("1.5B", 1_500_000_000),
        ("124M", 124_000_000),
        (" 0.5 k ", 500),
        ("64Ki", 65_536),
        ("1.1k", 1_100),
        ("4.35M", 4_350_000),
    ]:
        assert read_number(text) == number
    for text in ("", "k", "-5", "1.2.3", "ten", "1e5", "5x"):
        with pytest.raises(ValueError, match="expected a number such as"):
            read_number(text)


def test_csv_and_json_hold_every_figure() -> None:
    result = measured()
    rows = list(csv.DictReader(io.StringIO(result.to_csv())))
    data = json.loads(json.dumps(result.to_json()))
    for row, written, point in zip(rows, data["points"], result.points):
        assert written == vars(point)
        for name, value in vars(point).items():
            assert (float(row[name]) if row[name] else None) == value
    assert len(rows) == len(data["points"]) == len(SIZES)
    assert data["recommendation"]["size"] == result.recommendation.size
    assert data["settings"] == {
        "width": 64,
        "parameters": 200_000,
        "tied": True,
        "min_gain": MIN_GAIN,
    }
    assert data["fingerprint"] == result.largest.fingerprint
    assert list(data["seconds"]) == [
        "counting",
        "one training to 1,200 tokens",
        "measuring 5 sizes",
    ]


def test_printed_it_is_a_table_and_a_size() -> None:
    lines = str(measured()).splitlines()
    assert lines[0] == f"{measured().held_out_bytes:,} bytes of held-out text in 1 document"
    assert lines[1].split("  ")[0].strip() == "size"
    assert [line.split()[0] for line in lines[2:7]] == ["300", "400", "600", "900", "1,200"]
    assert lines[8].startswith(f"Recommended: {measured().recommendation.size:,}: ")


def test_plots(tmp_path: Path) -> None:
    need("matplotlib")
    result = measured()
    by_gain = sweep(result.largest, held_out_text(), SIZES)
    for each in (result, by_gain):
        each.plot(tmp_path / "plot.svg")
        root = ElementTree.parse(tmp_path / "plot.svg").getroot()
        assert root.tag.endswith("svg")
        written = (tmp_path / "plot.svg").read_text("utf-8")
        assert written.count("<!-- ") > 20  # matplotlib writes each text as a comment, too
        for point in each.points:
            assert f"<!-- {point.bytes_per_token:.2f} -->" in written
        assert f"{each.recommendation.size:,} recommended" in written
        each.plot(str(tmp_path / "plot.png"))
        head = (tmp_path / "plot.png").read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", head[16:]) > (900, 600)
    with pytest.raises(ValueError, match=r"a plot must be a \.png or \.svg file"):
        result.plot(tmp_path / "plot.jpeg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plot.png", "plot.svg"]


# -- The command --------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    return run_command(capsys, "sweep", *arguments)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("matplotlib")
    (tmp_path / "corpus.txt").write_bytes(training_text().encode())
    (tmp_path / "other.txt").write_bytes(held_out_text().encode())
    files: list[str | Path] = ["--corpus", tmp_path / "corpus.txt"]
    files += ["--held-out", tmp_path / "other.txt", "--pattern", "cl100k"]
    files += ["--special-tokens", *SPECIAL]
    model = ["--width", "64", "--parameters", "200k"]
    model += ["--sizes", "1.2k", "300", "--sizes", "400", "600", "900"]  # given twice, both count
    places: list[str | Path] = ["--output", tmp_path / "out", "--plot", tmp_path / "p.png"]
    status, out, err = run(capsys, *files, *model, *places, "--csv", tmp_path / "t.csv")
    assert status == 0
    expected = str(measured()).splitlines()
    assert out.splitlines()[:-1] == expected[:-1]  # the last line says how long it took
    assert out.splitlines()[-1].startswith("Took: counting ")
    size = measured().recommendation.size
    assert f"Saved {size:,} tokens to " in err
    assert BPETokenizer.from_pretrained(tmp_path / "out", verbose=False) == trained(size)
    assert (tmp_path / "t.csv").read_text("utf-8") == measured().to_csv()
    assert (tmp_path / "p.png").stat().st_size > 10_000

    again = ["--tokenizer", tmp_path / "out", "--held-out", tmp_path / "other.txt"]
    forced = [*again, "--sizes", "300", "--quiet", "--output", tmp_path / "out"]
    status, out, err = run(capsys, *forced)
    assert (
        (status, out) == (1, "") and "has a tokenizer (tokenizer.json" in err and "--force" in err
    )
    assert run(capsys, *forced, "--force")[0] == 0
    assert BPETokenizer.from_file(tmp_path / "out") == trained(300)
    trained(size).save(tmp_path / "out", verbose=False)
    status, out, err = run(capsys, *again, "--sizes", "300", "--json", "--quiet")
    assert (status, err) == (0, "")
    assert json.loads(out)["points"][0]["tokens"] == measured().points[0].tokens


def test_the_command_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "a.txt"
    text.write_text(training_text(), "utf-8")
    line = tmp_path / "line.txt"
    line.write_text("one line", "utf-8")
    (tmp_path / "bytes.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.txt").touch()
    trained_already = ["--tokenizer", tmp_path, "--held-out", text]
    asked = ["--special-tokens", "<|x|>", "--normalizer", "none"]
    for status, message, arguments in [
        (2, "expected exactly one of --corpus, --counts, --tokenizer and --parity", []),
        (2, "--tokenizer needs --held-out", ["--tokenizer", tmp_path]),
        (2, "--pattern: only for training", [*trained_already, "--pattern", "gpt2"]),
        (2, "--normalizer, --special-tokens: only for training", [*trained_already, *asked]),
        (2, "--min-frequency: only for training, and --tokenizer is already trained (try '",
         [*trained_already, "--min-frequency", "2"]),
        (2, "expected a number such as", ["--corpus", text, "--sizes", "many"]),
        (2, "--corpus - is not read here", ["--corpus", "-"]),
        (1, "is in the corpus", ["--corpus", text, "--held-out", text]),
        (1, "a plot must be a .png", ["--corpus", text, "--plot", tmp_path / "x.doc"]),
        (1, "can't be divided into training and held-out text", ["--corpus", line, "--quiet"]),
        (1, "--held-out", [line]),
        (1, "--special-tokens", [line]),
        (1, "the corpus is empty: there is nothing", ["--corpus", tmp_path / "empty.txt"]),
        (1, "not UTF-8", ["--corpus", text, "--held-out", tmp_path / "bytes.bin"]),
        (1, "no such file", ["--corpus", tmp_path / "none.txt", "--held-out", text]),
        (1, "is a file, not a directory", ["--corpus", text, "--csv", text / "x.csv"]),
        (1, "is a file; expected a directory", ["--corpus", text, "--output", text]),
    ]:  # fmt: skip
        found, out, err = run(capsys, *arguments)
        assert (found, out, err.count("\n")) == (status, "", 1), err
        assert message in err
    names = ["a.txt", "bytes.bin", "empty.txt", "line.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_lines_of_a_plain_file_are_held_out(tmp_path: Path) -> None:
    file = tmp_path / "plain.txt"
    file.write_text(training_text(), "utf-8")
    divided: dict[bool, str] = {}
    for piece, is_apart in _by_lines(training_text(), 0.05):
        divided[is_apart] = divided.get(is_apart, "") + piece
        assert piece.endswith("\n") or training_text().endswith(piece)
    held_out = divided[True]
    assert 0.03 < len(held_out) / len(training_text()) <= 0.05
    result = sweep([file], sizes=[300, 400], held_out_share=0.05)
    assert result.held_out_bytes == len(held_out.encode())
    assert result.held_out_documents == 1
    [note] = result.notes
    share = f"{len(held_out) / len(training_text()):.1%}"
    assert note.startswith(f"the corpus is one document, so {share} of it was held out at line")
    assert "--held-out" in note and "--special-tokens" in note
    # Training saw the rest, and only that.
    pieces = [piece for piece, is_apart in _by_lines(training_text(), 0.05) if not is_apart]
    expected = BPETokenizer().train(iter(pieces), 400, verbose=False)
    assert result.tokenizer(400).merges == expected.merges
    superwords = sweep([file], sizes=[300, 400], held_out_share=0.05, superwords=350)
    assert superwords.held_out_bytes == result.held_out_bytes
    assert note in superwords.notes
    alike = sweep(parity={"en": [file], "de": ["a\nb\nc"]}, sizes=[300], held_out_share=0.05)
    assert [each[:15] for each in alike.notes] == ["language 'en': ", "language 'de': "]


@settings(max_examples=200)
@given(st.text("ab\n\r é"), st.floats(0.01, 0.99))
def test_pieces_are_the_text_again(text: str, share: float) -> None:
    pieces = _by_lines(text, share)
    assert "".join(piece for piece, _ in pieces) == text
    assert all(piece for piece, _ in pieces)
    apart = [is_apart for _, is_apart in pieces]
    # Some is held out if there are two lines, and something always remains for training.
    assert (any(apart) and not all(apart)) == (len(text.split("\n")) - text.endswith("\n") > 1)


def test_the_command_takes_one_plain_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plain.txt"
    file.write_text(training_text(), "utf-8")
    status, out, err = run(capsys, file, "--sizes", 300, 400, "--quiet")
    assert (status, err) == (0, "")
    assert "of held-out text in 1 document\n" in out
    said = (
        r"^Note: the corpus is one document, so [12]\.\d% of it was held out at line ends, in \d+ "
    )
    assert re.search(said, out, re.MULTILINE)


def test_counts_can_be_given_for_both() -> None:
    counts = count_pretokens([training_text()], "cl100k", special_tokens=SPECIAL)
    seen = count_pretokens([held_out_text()], "cl100k", special_tokens=SPECIAL)
    seen[b"never"] = 0
    result = sweep(counts, seen, SIZES, special_tokens=SPECIAL, width=64, parameters=200_000)
    assert result.points == measured().points
    assert result.largest.split_pattern == counts.split_pattern
