"""A sweep with parity: every figure against trainings to each size, with parity and without."""

from __future__ import annotations

import csv
import functools
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from conftest import run_command
from oracles import need

from bpe_tokenizer import BPETokenizer, count_pretokens
from bpe_tokenizer_tools.evaluation.sweep import Sweep, sweep
from bpe_tokenizer_tools.training.parity import Parity

TEXTS = {
    "en": "the cat and the dog sat on the mat with the man in the red hat. " * 90,
    "de": "die Katze und der Hund saßen mit dem Mann im roten Hut auf der Matte. " * 9,
    "el": "η γάτα και ο σκύλος κάθισαν στο χαλί με τον άνδρα με το κόκκινο καπέλο. " * 9,
}
SAME = {
    "en": "the dog sat on the mat",
    "de": "der Hund saß auf der Matte",
    "el": "ο σκύλος κάθισε στο χαλί",
}
SIZES = [260, 280, 300]
SPECIAL = ["<|endoftext|>"]


@functools.cache
def measured() -> Sweep:
    return sweep(
        None,
        SAME,
        SIZES,
        parity=TEXTS,
        split_pattern="o200k",
        special_tokens=SPECIAL,
        verbose=False,
    )


def trained(size: int, parity: Any) -> BPETokenizer:
    options: dict[str, Any] = {"special_tokens": SPECIAL, "verbose": False}
    if parity is None:
        return BPETokenizer("o200k").train(list(TEXTS.values()), size, **options)
    return BPETokenizer("o200k").train(parity=parity, vocab_size=size, **options)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("parity", [None, TEXTS])
def test_each_language_takes_what_a_tokenizer_of_the_size_takes(size: int, parity: Any) -> None:
    training = "parity" if parity else "plain"
    tokenizer, languages = trained(size, parity), measured().languages
    assert languages is not None and languages.languages == [*TEXTS] and languages.sizes == SIZES
    costs = []
    for name, text in SAME.items():
        tokens = tokenizer.count_tokens(text)
        pretokens = sum(count_pretokens(text, "o200k").values())
        fertility = languages.curve(name, training)[SIZES.index(size)]
        assert fertility == tokens / pretokens
        costs.append(tokens / len(text.encode()))
    apart = sum(abs(a - b) for a in costs for b in costs)
    gini = languages.gini(training)[SIZES.index(size)]
    assert gini == pytest.approx(apart / (2 * len(costs) * sum(costs)))


def test_the_sizes_are_those_of_the_tokenizer_with_parity() -> None:
    result = measured()
    for point in result.points:
        tokenizer = trained(point.size, TEXTS)
        assert point.tokens == sum(map(tokenizer.count_tokens, SAME.values()))
        assert result.tokenizer(point.size).merges == tokenizer.merges
    assert result.plain is not None
    assert result.plain.merges == trained(SIZES[-1], None).merges


def test_options_of_parity_and_counts_go_along() -> None:
    counts = {name: count_pretokens(text) for name, text in TEXTS.items()}
    held_out = {name: count_pretokens(text) for name, text in SAME.items()}
    parity = Parity(counts, held_out=held_out, global_merges=5, window=3)
    result = sweep(held_out=held_out, sizes=[300], parity=parity)
    expected = BPETokenizer().train(parity=parity, vocab_size=300, verbose=False)
    assert result.largest.merges == expected.merges


def test_without_held_out_text_each_language_sets_some_apart() -> None:
    texts = {name: [f"{text[:30]} {n}." for n in range(300)] for name, text in TEXTS.items()}
    result = sweep(parity=texts, sizes=[300], held_out_share=0.1)
    assert result.languages is not None
    by_language = {p.language: p for p in result.languages.points if p.training == "parity"}
    assert 30 < result.held_out_documents < 150 and len(by_language) == 3
    assert sum(p.bytes for p in by_language.values()) == result.held_out_bytes


def test_a_training_that_ends_early_ends_both_curves() -> None:
    result = sweep(None, SAME, [260, 10_000], parity=TEXTS, min_frequency=20)
    assert result.languages is not None and result.plain is not None
    largest = min(result.plain.vocab_size, result.largest.vocab_size)
    assert result.languages.sizes == [260, largest] and "instead of 10,000" in result.notes[0]


def test_table_csv_json_and_plot(tmp_path: Path) -> None:
    result = measured()
    languages = result.languages
    assert languages is not None
    table = languages.table()
    assert list(table.columns) == ["tokens per pre-token", "260", "280", "300"]
    assert [row[0] for row in table.rows] == [
        *(f"{name}, {kind}" for name in TEXTS for kind in ("plain", "parity")),
        *("Gini, plain", "Gini, parity"),
    ]
    assert list(table.rows[1][1:]) == languages.curve("en", "parity")
    assert str(table) in str(result)
    data = json.loads(json.dumps(result.to_json()))["languages"]
    assert data["gini"]["plain"] == languages.gini("plain") and len(data["points"]) == 18
    rows = list(csv.DictReader(io.StringIO(result.to_csv())))
    for name in TEXTS:
        for kind in ("plain", "parity"):
            values = [float(row[f"fertility_{kind}_{name}"]) for row in rows]
            assert values == languages.curve(name, kind)
    need("matplotlib")
    result.plot(tmp_path / "plot.svg")
    text = "".join(ElementTree.parse(tmp_path / "plot.svg").getroot().itertext())
    assert text  # a whole drawing


def test_the_curves_that_are_drawn(tmp_path: Path) -> None:
    figures = need("matplotlib.figure")
    axes, languages = figures.Figure().subplots(), measured().languages
    assert languages is not None
    languages.draw(axes)
    drawn = {(line.get_linestyle(), tuple(line.get_ydata())) for line in axes.lines}
    for name in TEXTS:
        assert ("--", tuple(languages.curve(name, "plain"))) in drawn
        assert ("-", tuple(languages.curve(name, "parity"))) in drawn
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown == [*TEXTS, "without parity"]


def test_what_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "en.txt"
    file.write_text("text", encoding="utf-8")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"source": "text", "parity": TEXTS}, "takes either a source or parity="),
        ({}, "takes either a source or parity="),
        ({"parity": {"en": "a"}}, "parity needs two languages at least"),
        ({"parity": TEXTS, "held_out": "text"}, "held_out must map languages to texts"),
        ({"parity": TEXTS, "held_out": {"en": "a"}}, "language 'de' is without held-out text"),
        ({"parity": TEXTS, "held_out": {**SAME, "fr": "a"}}, "language 'fr' is only in held_out"),
        ({"parity": TEXTS, "held_out": {**SAME, "el": ""}}, "language 'el': the held-out text is"),
        ({"parity": {**TEXTS, "el": ""}, "held_out": SAME}, "language 'el': the corpus is empty"),
        ({"parity": {"en": ["a"], "de": ["b"]}}, "language 'en': 1 document can't be divided"),
        ({"parity": {"en": file, "de": "b"}, "held_out": {"en": file, "de": "c"}}, "in the corpus"),
    ]
    for options, problem in cases:
        with pytest.raises((TypeError, ValueError)) as error:
            sweep(sizes=[300], **options)
        assert problem in str(error.value)


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for folder, texts in (("corpus", TEXTS), ("apart", SAME)):
        (tmp_path / folder).mkdir()
        for name, text in texts.items():
            (tmp_path / folder / f"{name}.txt").write_text(text, encoding="utf-8")
    parity, held_out = (
        [f"{name}={tmp_path / folder / name}.txt" for name in TEXTS]
        for folder in ("corpus", "apart")
    )
    command = ["sweep", "--parity", *parity, "--sizes", 260, 280, 300, "--pattern", "o200k"]
    command += ["--special-tokens", *SPECIAL, "--quiet"]
    status, out, _ = run_command(
        capsys, *command, "--held-out", *held_out, "--output", tmp_path / "out", "--json"
    )
    data, languages = json.loads(out), measured().languages
    assert languages is not None
    assert (status, data["languages"]) == (0, json.loads(json.dumps(languages.to_json())))
    saved = BPETokenizer.from_pretrained(tmp_path / "out", verbose=False)
    assert saved.merges == trained(data["recommendation"]["size"], TEXTS).merges
    status, _, err = run_command(capsys, *command, "--held-out", tmp_path / "apart/en.txt")
    assert status == 2 and "--held-out: expected LANGUAGE=FILE" in err
    status, _, err = run_command(capsys, *command, "--corpus", tmp_path / "corpus/en.txt")
    assert (
        status == 2
        and "expected exactly one of --corpus, --counts, --tokenizer and --parity" in err
    )
