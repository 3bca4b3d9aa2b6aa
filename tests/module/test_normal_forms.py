"""Normal forms are those of Unicode 9.0 under every Python, as in HuggingFace's tokenizers."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import regex
from conftest import EITHER_ENGINE, ROOT
from oracles import examples, need

import bpe_tokenizer
from bpe_tokenizer import NORMALIZATION_VERSION, BPETokenizer

FORMS = bpe_tokenizer._NORMALIZERS
CHARACTERS = [*map(chr, (*range(0xD800), *range(0xE000, 0x110000)))]
# Characters that got a class or a decomposition after 9.0: marks, pairs that compose, letters of
# other alphabets; and what they would be reordered or joined with.
YOUNGER = """
    8d3 898 9fe afa c04 c3c d3b eba 1715 1ac0 1dfa 1df6 32ff a7f2 a82c ab69 10780 10d24 10eab 10ec3
    10f46 10f47 10f82 105c9 105d2 105e4 105da 11046 11070 1133b 11357 11382 11383 113b8 113c5 113ce
    1145e 11930 11935 11938 1193e 11a34 11d42 1611e 16121 16123 16d67 16d68 16d69 16d6a 16ff0 1ccd6
    1e030 1e08f 1e130 1e2ae 1e2ec 1e4ec 1e5ee 1e94a 1f16c 1fbf0 1fbf9"""
PARTNERS = """
    20 61 65 e9 212b 300 301 307 308 315 323 327 338 344 345 5b0 5b4 64b 93c 94d 9be e38 e48 f71 f73
    f75 f81 1100 1161 11a8 3099 304b ac00 ac01 1dd7 20d0 939e f900 fb1d fdfa ff76 ff9e ff9f ffa1
    11099 110ba 11131 11127 1d157 1d165 1d15e 1f600 2f800"""


def listed(points: str) -> list[str]:
    return [chr(int(point, 16)) for point in points.split()]


def touchy() -> list[str]:
    """Return what forms change, move or join, as this Python has it, and what they might."""
    of_python = [
        char
        for char in CHARACTERS
        if not "\uac00" <= char <= "\ud7a3"
        if unicodedata.combining(char) or unicodedata.normalize("NFKD", char) != char
    ]
    marks = regex.findall(r"\p{M}", "".join(CHARACTERS))
    return sorted({*of_python, *marks, *listed(YOUNGER), *listed(PARTNERS)})


def pairs() -> Iterator[str]:
    """Yield pairs of all that is touchy with what it may be reordered or joined with."""
    for char, partner in itertools.product(touchy(), [*listed(PARTNERS), *listed(YOUNGER)]):
        yield char + partner
        yield partner + char


def triples(number: int) -> Iterator[str]:
    """Yield random texts of a few characters, half of them marks or younger than 9.0."""
    order = random.Random(number)
    kinds = touchy(), [char for char in touchy() if unicodedata.combining(char)]
    kinds += listed(YOUNGER), listed(PARTNERS)
    for _ in range(number):
        yield "".join(order.choice(order.choice(kinds)) for _ in range(order.choice([3, 3, 3, 5])))


def differing(form: str, texts: Iterator[str] | list[str]) -> list[str]:
    """List the texts that tokenizers normalizes to something else than each of the engines."""
    theirs = getattr(need("tokenizers.normalizers"), form)().normalize_str
    engine = bpe_tokenizer._engine.normalize
    return [
        ascii(text)
        for text in texts
        if not theirs(text) == bpe_tokenizer._normalize(text, form) == engine(text, form)
    ]


def blocks(texts: Iterator[str] | list[str], size: int = 1_000) -> Iterator[str]:
    """Join texts: many short ones take long."""
    texts = iter(texts)
    while block := [*itertools.islice(texts, size)]:
        yield " a".join(block)


@pytest.mark.parametrize("form", FORMS)
def test_every_character_is_normalized_as_in_huggingface(form: str) -> None:
    assert not differing(form, blocks(CHARACTERS))


@pytest.mark.parametrize("form", FORMS)
def test_some_pairs_and_triples_are_normalized_as_in_huggingface(form: str) -> None:
    some = random.Random(form).sample([*pairs()], examples(40_000))
    assert not differing(form, blocks(some))
    assert not differing(form, triples(examples(20_000)))


@EITHER_ENGINE  # each compares both
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_all_pairs_and_many_triples_are_normalized_as_in_huggingface(form: str) -> None:
    every = [*pairs()]
    assert len(every) > 800_000
    assert not differing(form, blocks(every))
    assert not differing(form, triples(300_000))


@pytest.mark.parametrize("form", FORMS)
def test_long_runs_of_marks_are_put_in_order_as_in_huggingface(form: str) -> None:
    order = random.Random(form)
    marks = [char for char in touchy() if unicodedata.combining(char)]
    few = listed("301 323 344 345 f71 f73 f75 f81 ff9e ff9f 3099 1dd7 10f47")
    texts = []
    for kind in (marks, few):
        for length in (60, *range(125, 131), 200, *range(254, 259), 600):
            text = "".join(order.choices(kind, k=length))
            texts += text, "e" + text + "é", "ᄀ" * 128 + text + "\U00010f47" + text
    assert not differing(form, texts)


@pytest.mark.parametrize("form", FORMS)
def test_what_9_0_lacks_is_left_alone(form: str) -> None:
    assert NORMALIZATION_VERSION == "9.0.0"
    text = "\u939e\u1dd7\U00010f47"  # with Python 3.11, `unicodedata` swaps the two marks
    tokenizer = BPETokenizer(normalizer=form)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("form", FORMS)
def test_ids_offsets_and_streams_are_as_in_huggingface(form: str, tmp_path: Path) -> None:
    tokenizer = BPETokenizer(normalizer=form).train("low lower lowest " * 9, 264, verbose=False)
    tokenizer.save(tmp_path, verbose=False)
    theirs = need("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    order = random.Random(form)
    for text in triples(examples(3_000)):
        text = f"low{text}er" if order.random() < 0.3 else text
        expected = theirs.encode(text, add_special_tokens=False)
        ours = tokenizer.encode_with_offsets(text)
        assert (ours.input_ids, ours.offsets) == (expected.ids, expected.offsets), ascii(text)
        at = order.randrange(len(text))
        for chunks in (list(text), [text[:at], text[at:]]):
            assert sum(tokenizer.encode_streaming(chunks), []) == expected.ids, ascii(text)


def test_no_character_that_is_yet_to_come_is_normalized() -> None:
    """What is unassigned may become anything, except noncharacters."""
    if not regex.match(r"\p{L}", "\u0558"):
        pytest.skip("regex is older than Unicode 18.0, of which the list is")
    unassigned = regex.findall(r"(?![\ufdd0-\ufdef])\p{Cn}", "".join(CHARACTERS))
    to_come = [char for char in unassigned if ord(char) & 0xFFFE != 0xFFFE]
    assert to_come and all(map(bpe_tokenizer._younger().match, to_come))


# -- Other versions of Python and of Unicode ---------------------------------------------

PROGRAM = """
import json, sys, types, unicodedata
if "unicodedata2" in sys.argv:
    import unicodedata2
    newer = types.ModuleType("unicodedata")
    vars(newer).update(vars(unicodedata2))
    newer.is_normalized = lambda form, text: newer.normalize(form, text) == text
    sys.modules["unicodedata"] = unicodedata = newer
import hashlib
import bpe_tokenizer
found = {"version": unicodedata.unidata_version}
texts = json.load(sys.stdin)
for form in bpe_tokenizer._NORMALIZERS:
    normal = [bpe_tokenizer._normalize(text, form) for text in texts]
    found[form] = hashlib.sha256("\\0".join(normal).encode()).hexdigest()
print(json.dumps(found))
"""


def pythons() -> list[Path]:
    """Return the supported Pythons that are here, beside the one that runs."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return sorted(versions.glob("3.1[0-9].*/bin/python"))


@EITHER_ENGINE  # the program uses Python's alone
@pytest.mark.slow
def test_every_python_and_unicode_18_normalize_alike(tmp_path: Path) -> None:
    order = random.Random(0)
    texts = [*blocks(CHARACTERS), *triples(50_000), *order.sample([*pairs()], 50_000)]
    expected = {}
    for form in FORMS:
        theirs = getattr(need("tokenizers.normalizers"), form)().normalize_str
        expected[form] = hashlib.sha256("\0".join(map(theirs, texts)).encode()).hexdigest()
    versions = set()
    for number, python in enumerate([Path(sys.executable), *pythons()]):
        packages = ["regex"] if number else ["regex", "unicodedata2==18.0.0"]
        found = answer_of(python, packages, tmp_path / str(number), texts)
        versions.add(found.pop("version"))
        assert found == expected, python
    assert "18.0.0" in versions


def answer_of(python: Path, packages: list[str], folder: Path, texts: list[str]) -> dict[str, str]:
    """Run the program with a Python and packages."""
    install = [python, *"-m pip install -q --disable-pip-version-check --target".split(), folder]
    done = subprocess.run([*install, *packages], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot install {packages}: {done.stderr[-200:]}")
    paths = os.pathsep.join(map(str, [folder, ROOT]))
    run = subprocess.run(
        [python, "-c", PROGRAM, packages[-1].partition("=")[0]],
        input=json.dumps(texts),
        env={**os.environ, "PYTHONPATH": paths, "BPE_TOKENIZER_PURE": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    answer: dict[str, str] = json.loads(run.stdout)
    return answer
