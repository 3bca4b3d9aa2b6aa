"""What a letter, a number or a space is: by the library's own Unicode, whatever `regex` has."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pinned
import pytest
import regex
import unicode_cuts
from conftest import EITHER_ENGINE, ROOT
from oracles import REQUIRED, need, share
from unicode_cuts import CODES, CONTEXTS, PATTERNS

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer
from bpe_tokenizer_tools.patterns import characters, other_unicode, re_dialect

EVERY_PATTERN = pytest.mark.parametrize("name", list(PATTERNS))
RELEASES = ["2022.10.31", "2024.11.6", "newest"]


# -- Against tiktoken --------------------------------------------------------------


class Cutter:
    """Cuts texts as tiktoken does: every part of them is a token, so each pre-token is one."""

    def __init__(self, texts: list[str], pattern: str) -> None:
        tiktoken = need("tiktoken")
        parts = {
            text[start:end]
            for text in texts
            for start, end in itertools.combinations(range(len(text) + 1), 2)
        }
        tokens = [*(bytes([byte]) for byte in range(256)), *(part.encode() for part in parts)]
        ranks = {token: rank for rank, token in enumerate(dict.fromkeys(tokens))}
        self._tokens = list(ranks)
        self._encoding = tiktoken.Encoding(
            "cutter", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
        )

    def cut(self, text: str) -> list[str]:
        return [self._tokens[id_].decode() for id_ in self._encoding.encode_ordinary(text)]


def differing(pattern: str, codes: list[int]) -> Iterator[str]:
    """Yield the texts that tiktoken cuts in another way."""
    split = bpe_tokenizer._Splitter(pattern).split
    for first in range(0, len(codes), 2_000):
        some = [each for text in short_texts(codes[first : first + 2_000]) for each in text]
        theirs = Cutter(some, pattern)
        yield from (ascii(text) for text in some if theirs.cut(text) != split(text))


def short_texts(codes: list[int]) -> Iterator[list[str]]:
    for code in codes:
        yield [context.replace("{}", chr(code)) for context in CONTEXTS]


@EITHER_ENGINE
@EVERY_PATTERN
def test_cuts_as_tiktoken_does(name: str) -> None:
    """What some `regex` takes for another character, and samples of all others."""
    changed = [0x295, 0x558, 0x1C89, 0xA7CB, 0xA7CE, 0x10D50, 0x11DE0, 0x16FF4, 0x1E5D0, 0x323B0]
    assert [*differing(PATTERNS[name], [*changed, *CODES[::199]])] == []


@pytest.mark.slow
@EITHER_ENGINE  # that of Python; the extension is compared with it below
@EVERY_PATTERN
def test_cuts_every_character_as_tiktoken_does(name: str) -> None:
    assert [*differing(PATTERNS[name], [*share(CODES)])] == []


# -- Several releases of `regex` ---------------------------------------------------


@pytest.fixture(scope="module")
def releases(request: pytest.FixtureRequest, tmp_path_factory: Any) -> dict[str, Path]:
    """Install each release into a folder of its own."""
    cache: Any = getattr(request.config, "cache", None)  # None with -p no:cacheprovider
    folder = cache.mkdir("regex_releases") if cache else tmp_path_factory.mktemp("regex_releases")
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return {release: _installed(release, folder / f"{release}-{python}") for release in RELEASES}


def _installed(release: str, folder: Path) -> Path:
    if not (folder / "regex").is_dir() or release == "newest":
        package = "regex" if release == "newest" else f"regex=={release}"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        command += ["--target", str(folder), package]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            reason = f"{package} could not be installed: {done.stderr.strip()[-300:]}"
            assert "regex_releases" not in REQUIRED, reason
            pytest.skip(reason)
    return folder


def start(folder: Path, pure: bool, scratch: Path) -> subprocess.Popen[str]:
    """Cut with a release of `regex`, and with no other package than this one."""
    path = [str(folder), str(ROOT), str(scratch)]
    if not pure and not (scratch / "_bpe_tokenizer").exists():
        package: Any = importlib.import_module("_bpe_tokenizer")
        shutil.copytree(package.__path__[0], scratch / "_bpe_tokenizer")
    changed = {"PYTHONPATH": os.pathsep.join(path), "BPE_TOKENIZER_PURE": "1" if pure else "0"}
    program = [sys.executable, "-S", unicode_cuts.__file__]
    return subprocess.Popen(
        program, env={**os.environ, **changed}, cwd=scratch, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_every_release_of_regex_gives_the_same(
    engine: str, releases: dict[str, Path], tmp_path: Path
) -> None:
    pure = engine == "python"
    started = {release: start(folder, pure, tmp_path) for release, folder in releases.items()}
    if not pure:
        started["in Python"] = start(releases["2024.11.6"], True, tmp_path)
    outputs = {name: process.communicate()[0] for name, process in started.items()}
    assert [process.returncode for process in started.values()] == [0] * len(started)
    found = {name: json.loads(output) for name, output in outputs.items()}
    about = {name: each["about"] for name, each in found.items()}
    assert about["2024.11.6"]["changed"] == 0  # the one the data are from
    assert about["2022.10.31"]["changed"] == 5_813 and about["newest"]["changed"] >= 17_811
    assert {name: each["accelerated"] for name, each in about.items()} == {
        name: not pure and name != "in Python" for name in about
    }
    expected = found["2024.11.6"]["report"]
    assert len(set(expected["ids"].values())) > 12  # llama3's are cl100k's, for these texts
    for name, each in found.items():
        for what, hashes in each["report"].items():
            assert hashes == expected[what], (name, what)


# -- A `regex` of another day ------------------------------------------------------

# The table, changed: as if this Unicode came after, or before, that of the installed `regex`.
OTHERS = {
    "é": "Cn",
    "ж": "Nd w d",
    "\u2028": "Lo w",
    "7": "No",
    "\U0001f600": "Lu w",
    "中": "So Han",
}


@pytest.fixture
def another_unicode(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with table_with(OTHERS, monkeypatch):
        yield


@pytest.fixture
def newer_unicode(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the table characters that `regex` doesn't know, as if that were older."""
    with table_with({"\u0378": "Ll w", "\u0379": "Mn w", "\u0380": "So w"}, monkeypatch):
        yield


@contextlib.contextmanager
def table_with(others: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    runs = []
    for run in bpe_tokenizer._runs_of_kinds():
        at = run.start
        for char, kind in sorted(others.items()):
            if at <= ord(char) < run.stop and ord(char) > 0x7F:
                runs += [run._replace(start=at, stop=ord(char))]
                at = ord(char) + 1
                runs += [run._replace(start=ord(char), stop=at, kind=kind)]
        runs.append(run._replace(start=at))
    forget()
    with monkeypatch.context() as patch:
        patch.setattr(
            bpe_tokenizer, "_runs_of_kinds", lambda: [run for run in runs if run.start < run.stop]
        )
        yield
    forget()


def forget() -> None:
    """Forget what depends on the table."""
    for cache in (
        *(bpe_tokenizer._unicode, bpe_tokenizer._splitter, characters.members, re_dialect.bmp_set),
        pinned.compiled,
    ):
        cache.cache_clear()
    if bpe_tokenizer.ACCELERATED:
        importlib.import_module("_bpe_tokenizer.engine")._automaton_for.cache_clear()


@pytest.mark.parametrize(
    ("pattern", "text", "pieces"),
    [
        ("gpt2", "aéb's", "a|é|b|'s"),
        ("gpt2", " жж12", " жж12"),
        ("cl100k", "жжжж", "жжж|ж"),
        ("o200k", "a\u2028b\U0001f600c", "a\u2028b|\U0001f600c"),
        ("llama3", "中中 a", "中中| a"),
        ("deepseek-v3", "の中の é", "の中の| |é"),
        (r"\p{Han}+|\P{Han}", "中a中中", "中|a|中中"),
        (r"\d|\D+", "aжж", "a|ж|ж"),
        (r"\w\b|\W|\w", "éaж", "é|a|ж"),
        # These name the characters, or compare them.
        (r"[é]|\p{L}+|[^\p{L}é]", "aéaж", "a|é|a|ж"),
        (r"[^é\p{Nd}]+|\p{Nd}|é", "aжé", "a|ж|é"),
        (r"(\d)\1|[\s\S]", "ж22жжé", "ж|22|жж|é"),
        (r"(?i:x|\d)(\d)\1|[\s\S]", "Xжжж", "Xжж|ж"),
        (r"(.)\1|[\s\S]", "ééж中中", "éé|ж|中中"),
    ],
)
def test_the_table_decides(
    pattern: str, text: str, pieces: str, another_unicode: None, engine: str
) -> None:
    expected = pieces.split("|")
    pattern = SPLIT_PATTERNS.get(pattern, pattern)
    splitter = bpe_tokenizer._Splitter(pattern)
    assert splitter.split(text) == expected
    splitter._until_fast = 1
    splitter.split("now with `re`, if it can")
    assert splitter.split(text) == expected
    if (
        engine == "accelerated" and pattern not in SPLIT_PATTERNS.values()
    ):  # scanners have their own
        in_c = unicode_cuts.pieces_in_c(pattern, text)
        assert in_c is None or in_c == [piece.encode() for piece in expected]


def test_a_pattern_that_cannot_be_served_is_refused_by_name(another_unicode: None) -> None:
    for pattern in (r"(?i:[éx\p{Nd}])|\P{L}|[\s\S]", r"(?i)(\X)\1|[\s\S]"):
        splitter = bpe_tokenizer._Splitter(pattern)
        assert splitter.split("ab") == ["a", "b"]  # without such characters all is well
        with pytest.raises(ValueError, match="doesn't have Unicode 16.0.0") as error:
            splitter.split("aé")
        assert "install regex==2024.11.6" in str(error.value)


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"\p{Greek}+|[\s\S]", r"\p{Script=Latin}+|[\s\S]", r"\P{InGreek}+|[\s\S]", r"\X"),
        *(r"[[:alpha:]]+|[\s\S]", r"[\s\p{Uppercase}]+|[\s\S]", r"(\p{Alphabetic})\1|[\s\S]"),
    ],
)
def test_what_only_a_newer_regex_knows_is_refused_by_name(
    pattern: str, newer_unicode: None, engine: str
) -> None:
    tokenizer = BPETokenizer(pattern, normalizer=None)
    assert tokenizer.decode(tokenizer.encode("aé 中!")) == "aé 中!"
    for _ in range(2):
        with pytest.raises(ValueError, match="doesn't have Unicode 16.0.0"):
            bpe_tokenizer.count_pretokens(["a\u0378"], pattern, normalizer=None, verbose=False)


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [
        (r"\p{Letter}+|[\s\S]", "a\u0378|1"),
        (r"\p{gc=Ll}+|\p{Script=Han}|[\s\S]", "a\u0378|1"),
        (r"[^[:digit:][:space:]]+|[\s\S]", "a\u0378|1"),
        (r"\p{Assigned}+|[\s\S]", "a\u03781"),
    ],
)
def test_what_the_table_decides_needs_no_newer_regex(
    pattern: str, pieces: str, newer_unicode: None, engine: str
) -> None:
    assert bpe_tokenizer._Splitter(pattern).split("a\u03781") == pieces.split("|")
    counted = bpe_tokenizer.count_pretokens(["a\u03781"], pattern, normalizer=None, verbose=False)
    assert sorted(counted) == sorted(piece.encode() for piece in pieces.split("|"))


def test_added_tokens_see_the_table(another_unicode: None, engine: str) -> None:
    tokenizer = BPETokenizer("gpt2", normalizer=None)
    tokenizer.add_special_tokens([AddedToken("<w>", single_word=True)])
    tokenizer.add_special_tokens([AddedToken("<s>", lstrip=True, rstrip=True)])
    word, spaces = tokenizer.special_tokens["<w>"], tokenizer.special_tokens["<s>"]
    assert word in tokenizer.encode("é<w>\u2009", allowed_special="all")  # "é" is no letter now
    assert word not in tokenizer.encode("ж<w>", allowed_special="all")
    assert tokenizer.encode("\u2003\x85<s>\u3000", allowed_special="all") == [spaces]


def test_streams_are_cut_by_the_table(another_unicode: None) -> None:
    text = "aé жж12! 中中 a\u2028b\U0001f600c's " * 9
    for name, pattern in SPLIT_PATTERNS.items():
        splitter = bpe_tokenizer._Splitter(pattern)
        whole, at, cuts = splitter.split(text), len(text), 0
        while at:
            at = splitter.last_cut(text, at) or 0
            parts = splitter.split(text[:at]) + splitter.split(text[at:])
            assert parts == whole, (name, at)
            cuts += 1
        assert cuts > 9


# -- The data ----------------------------------------------------------------------


def test_versions() -> None:
    assert bpe_tokenizer.UNICODE_VERSION == "16.0.0"
    runs = bpe_tokenizer._runs_of_kinds()
    assert [runs[0].start, runs[-1].stop] == [0, 0x110000]
    assert all(a.stop == b.start and a.kind != b.kind for a, b in itertools.pairwise(runs))
    kinds = {run.kind for run in runs}
    # As in UnicodeData 16.0: letters, marks, numbers, punctuation and symbols.
    counts = {first: 0 for first in "LMNPS"}
    for start, stop, kind in runs:
        counts[kind[0]] = counts.get(kind[0], 0) + stop - start
    assert [counts[first] for first in "LMNPS"] == [141_028, 2_501, 1_911, 855, 8_514]
    assert len(kinds) == 45


def test_white_space_is_that_of_the_table() -> None:
    spaces = "".join(
        chr(point)
        for start, stop, kind in bpe_tokenizer._runs_of_kinds()
        for point in range(start, stop)
        if "s" in kind.split()
    )
    every = bpe_tokenizer._every_character()
    assert "".join(bpe_tokenizer._SPACE.findall(every)) == spaces
    assert every == "".join(map(chr, range(0x110000)))


@EITHER_ENGINE
def test_lower_case_is_that_of_tokenizers() -> None:
    lowercase = need("tokenizers").normalizers.Lowercase()
    for point in share([*range(0xD800), *range(0xE000, 0x110000)]):
        char = chr(point)
        assert other_unicode.lower(char) == lowercase.normalize_str(char), f"{point:X}"


@EITHER_ENGINE
def test_numbers_are_those_of_tokenizers() -> None:
    digits = need("tokenizers").pre_tokenizers.Digits(individual_digits=True)
    numbers = {point for run in characters.members(other_unicode.NUMBER) for point in range(*run)}
    for point in share([*range(0x80, 0xD800), *range(0xE000, 0x110000)]):
        cut = len(digits.pre_tokenize_str(f"a{chr(point)}a")) == 3
        assert (point in numbers) == cut, f"{point:X}"


@pytest.mark.slow
@EITHER_ENGINE
def test_the_data_are_what_the_script_makes(releases: dict[str, Path]) -> None:
    script = ROOT / "accelerator" / "tools" / "make_unicode_data.py"
    command = [sys.executable, "-S", str(script), "--check"]
    path = {**os.environ, "PYTHONPATH": str(releases["2024.11.6"])}
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    if regex.__version__ != "2.5.148":
        done = subprocess.run(
            command[:1] + command[2:], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1 and "needs regex 2024.11.6" in done.stderr
