"""`check`, the method and the command, and `lint`: other libraries are loaded, and believed."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import published_shapes
import pytest
import regex
from oracles import need, need_release

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer
from bpe_tokenizer_tools.checking import check as check_module
from bpe_tokenizer_tools.checking.check import Report, Row, check
from bpe_tokenizer_tools.checking.conformance import CONFORMANCE_TEXTS, conformance_texts
from bpe_tokenizer_tools.checking.lint import _CLASSES, _OVERRIDING, lint, pattern_family

TEXT = (
    "It's 1234 words, 1234 times: don't stop, don't go.\n\nThe lower the lowest, the newer the "
    "newest.  Größe and 世界, мир и Ёлка.\r\n\tif x == 100:\n\t\treturn 1000\n"
) * 20
SPECIAL = ["<s>", "</s>", "<pad>", "<|x|>"]


def train(pattern: str = "gpt2", normalizer: str | None = None, **options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer(pattern, normalizer=normalizer)
    options = {"vocab_size": 420, "special_tokens": SPECIAL, **options}
    return tokenizer.train(TEXT, verbose=False, **options)


@pytest.fixture(scope="module")
def gpt2(engine: str) -> BPETokenizer:
    return train()


@pytest.fixture(scope="module")
def cl100k(engine: str) -> BPETokenizer:
    return train("cl100k")


@pytest.fixture
def saved(gpt2: BPETokenizer, tmp_path: Path) -> Path:
    gpt2.save(tmp_path / "saved", verbose=False)
    return tmp_path / "saved"


def rows(report: Report, loader: str) -> list[Row]:
    return [row for row in report.rows if row.loader == loader]


def row(report: Report, loader: str) -> Row:
    (found,) = rows(report, loader)
    if found.status == "not installed":
        pytest.skip(f"{loader} is not installed: pip install '{loader}'")
    return found


def edit(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    data.update(changes)
    path.write_text(json.dumps(data), encoding="utf-8")


def names(tokenizer: BPETokenizer, folder: Path | None = None) -> dict[str, str]:
    return {finding.name: str(finding) for finding in lint(tokenizer, folder)}


def rebuilt(tokenizer: BPETokenizer, **changes: Any) -> BPETokenizer:
    """Make a tokenizer that differs in its definition."""
    definition = dataclasses.replace(tokenizer.definition, **changes)
    contents = {token.content for token in definition.added}
    roles = {role: token for role, token in tokenizer._roles.items() if token in contents}
    return BPETokenizer._from_parts(definition, roles, {}, {}, Path())


# -- Texts --------------------------------------------------------------------


def test_the_texts_cover_what_they_should() -> None:
    import regex

    text = "\n".join(CONFORMANCE_TEXTS)
    scripts = "Latin Greek Cyrillic Armenian Georgian Ethiopic Arabic Hebrew Devanagari Bengali "
    scripts += "Tamil Telugu Kannada Malayalam Sinhala Thai Lao Khmer Myanmar Tibetan Han Hiragana "
    scripts += "Katakana Hangul Gothic Adlam"
    for script in scripts.split():
        assert regex.search(rf"\p{{Script={script}}}", text), script
    for (
        kind
    ) in "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Cc Cf Co".split():
        assert regex.search(rf"\p{{{kind}}}", text), kind
    assert regex.search(r"\p{Emoji_Presentation}", text)
    assert "'ll" in text and "'LL" in text and "\r\n" in text and "\n\n\n" in text


def test_the_texts_use_the_special_tokens_and_every_kind_of_token(gpt2: BPETokenizer) -> None:
    texts = conformance_texts(gpt2)
    ids = {id_ for text in texts for id_ in gpt2.encode(text, allowed_special="all")}
    assert set(gpt2.special_tokens.values()) <= ids
    merged = set(range(256, gpt2.vocab_size)) - set(gpt2.special_tokens.values())
    assert len(merged & ids) > 0.8 * len(merged)


# -- All equal ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("loader", ["bpe-tokenizer", "tokenizers", "transformers", "tiktoken"])
@pytest.mark.parametrize(
    "pattern, normalizer", [("gpt2", None), ("cl100k", "NFC"), ("o200k", None)]
)
def test_what_is_trained_here_is_the_same_everywhere(
    pattern: str, normalizer: str | None, loader: str, tmp_path: Path
) -> None:
    tokenizer = train(pattern, normalizer)
    found = row(tokenizer.check(), loader)
    assert (found.status, found.difference) == ("equal", None)
    tokenizer.save(tmp_path, verbose=False)
    found = row(check(tokenizer, tmp_path), loader)
    assert (found.status, found.difference) == ("equal", None)
    assert found.version
    if loader in ("tokenizers", "transformers"):
        assert "export" not in found.detail  # it read the files themselves


@pytest.mark.parametrize("normalizer", [None, "NFC"])
def test_llama_cpp_gives_the_same(
    normalizer: str | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    need("llama_cpp")
    tokenizer = train(normalizer=normalizer)
    report = tokenizer.check()
    assert row(report, "llama-cpp-python").status == "equal"
    assert row(report, "llama-cpp-python").detail == "through export"
    assert any("llama.cpp does not normalize" in str(f) for f in report.findings) == bool(
        normalizer
    )
    path = tmp_path / "t.gguf"
    tokenizer.export(path, "gguf", without_normalizer=True)
    found = row(check(BPETokenizer.from_file(path), path), "llama-cpp-python")
    assert (found.status, found.detail) == ("equal", "t.gguf")
    assert capfd.readouterr() == ("", "")  # llama.cpp's own log is silenced


def test_what_a_library_cannot_hold_is_not_applicable(cl100k: BPETokenizer) -> None:
    report = cl100k.check()
    if row(report, "llama-cpp-python").status != "not installed":
        found = row(report, "llama-cpp-python")
        assert found.status == "not applicable"
        assert "pre-tokenizer" in found.detail
    assert report.ok


@pytest.fixture(scope="module")
def sentencepiece_model(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    sentencepiece = need("sentencepiece")
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    for name, size in (("one", 400), ("two", 380)):
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text.txt"),
            model_prefix=str(folder / name),
            vocab_size=size,
            model_type="bpe",
            byte_fallback=True,
            normalization_rule_name="identity",
            minloglevel=2,
        )
    return folder


def test_sentencepiece_models(sentencepiece_model: Path) -> None:
    one = sentencepiece_model / "one.model"
    tokenizer = BPETokenizer.from_file(one)
    report = check(tokenizer, one)
    found = row(report, "sentencepiece")
    assert (found.status, found.detail) == ("equal", "one.model")
    assert row(report, "tokenizers").status == "equal"
    assert row(report, "tiktoken").status == "not applicable"
    assert pattern_family(tokenizer) == "sentencepiece"
    other = check(tokenizer, sentencepiece_model / "two.model")
    assert row(other, "sentencepiece").status == "differs"
    assert not other.ok


@pytest.mark.parametrize("name", ["tokenizer.model.v1", "renamed.bin"])
def test_a_sentencepiece_model_of_another_name(
    sentencepiece_model: Path, name: str, tmp_path: Path
) -> None:
    shutil.copy(sentencepiece_model / "one.model", tmp_path / name)
    tokenizer = BPETokenizer.from_file(tmp_path / name)
    found = row(check(tokenizer, tmp_path / name), "sentencepiece")
    assert (found.status, found.detail) == ("equal", name)


@pytest.mark.slow
def test_a_directory_of_gpt2(gpt2: BPETokenizer, tmp_path: Path) -> None:
    gpt2.export(tmp_path, "gpt2")
    tokenizer = BPETokenizer.from_file(tmp_path)
    itself, exported = rows(check(tokenizer, tmp_path), "transformers")
    assert (itself.status, itself.detail) == ("equal", "GPT2Tokenizer")
    assert exported.status == "equal" and "through export" in exported.detail
    merges = (tmp_path / "merges.txt").read_text(encoding="utf-8").splitlines()
    merges[1:40] = merges[39:0:-1]
    (tmp_path / "merges.txt").write_text("\n".join(merges) + "\n", encoding="utf-8")
    changed = rows(check(tokenizer, tmp_path), "transformers")
    assert [each.status for each in changed] == ["differs", "equal"]


# -- Sabotage -----------------------------------------------------------------


def swap_merges(folder: Path) -> None:
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    merges = data["model"]["merges"]
    merges[:40] = merges[39::-1]
    path.write_text(json.dumps(data), encoding="utf-8")


@pytest.mark.parametrize("loader", ["tokenizers", "transformers"])
def test_a_changed_order_of_merges(gpt2: BPETokenizer, saved: Path, loader: str) -> None:
    swap_merges(saved)
    report = check(gpt2, saved)
    found = row(report, loader)
    assert found.status == "differs"
    assert not report.ok
    assert row(report, "bpe-tokenizer").status == "equal"
    difference = found.difference
    assert difference is not None
    tokenizers = need("tokenizers")
    other = tokenizers.Tokenizer.from_file(str(saved / "tokenizer.json"))
    theirs = other.encode(difference.text, add_special_tokens=False).ids
    ours = gpt2.encode(difference.text)
    at = difference.position
    assert ours[:at] == theirs[:at]
    assert ours[at] != theirs[at]
    assert difference.expected_ids == ours[at : at + 3]
    assert difference.ids == theirs[at : at + 3]
    assert difference.expected_tokens == [gpt2.convert_ids_to_tokens(i) for i in ours[at : at + 3]]
    assert difference.tokens == [other.id_to_token(i) for i in theirs[at : at + 3]]
    assert str(difference) in str(report)


def test_a_decoder_that_does_otherwise(gpt2: BPETokenizer, saved: Path) -> None:
    edit(saved / "tokenizer.json", decoder=None)
    found = row(check(gpt2, saved), "tokenizers")
    assert found.status == "differs"
    assert found.difference is not None
    assert found.difference.what == "decode"


def test_bos_that_only_one_adds(gpt2: BPETokenizer, saved: Path) -> None:
    edit(saved / "tokenizer.json", post_processor=None)
    found = row(check(gpt2, saved), "tokenizers")
    assert found.difference is not None
    assert "added around" in found.difference.what
    assert found.difference.expected_ids[0] == gpt2.bos_token_id


def test_special_tokens_that_are_not_recognized(gpt2: BPETokenizer, saved: Path) -> None:
    data = json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))
    kept = [token for token in data["added_tokens"] if token["content"] != "<|x|>"]
    edit(saved / "tokenizer.json", added_tokens=kept)
    found = row(check(gpt2, saved), "tokenizers")
    assert found.difference is not None
    assert "special tokens allowed" in found.difference.what


def test_another_class_in_transformers(cl100k: BPETokenizer, tmp_path: Path) -> None:
    cl100k.save(tmp_path, verbose=False)
    edit(tmp_path / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    report = check(cl100k, tmp_path)
    found = row(report, "transformers")
    transformers = need("transformers")
    if int(transformers.__version__.split(".")[0]) < 5:
        pytest.skip("transformers 4 takes the pattern from tokenizer.json")
    assert found.status == "differs"
    assert found.detail == "GPT2Tokenizer"
    assert row(report, "tokenizers").status == "equal"
    (finding,) = [f for f in report.findings if f.name in ("tokenizer-class", "rewritten")]
    assert finding.severity == "error"
    assert "'GPT2Tokenizer'" in finding.message


def test_another_pre_tokenizer_in_a_gguf(gpt2: BPETokenizer, tmp_path: Path) -> None:
    need("llama_cpp")
    path = tmp_path / "t.gguf"
    gpt2.export(path, "gguf")
    data = path.read_bytes()
    assert data.count(b"gpt-2") == 1
    path.write_bytes(data.replace(b"gpt-2", b"qwen2"))
    found = row(check(gpt2, path), "llama-cpp-python")
    assert found.status == "differs"
    assert found.difference is not None
    assert found.difference.what == "encode"


@pytest.mark.slow
def test_what_llama_cpp_only_approximates(tmp_path: Path) -> None:
    need("llama_cpp")
    text = "ÁS ÉTÉ naïve cafe\u0301 नमस्ते Größe " * 20
    tokenizer = BPETokenizer("o200k", normalizer=None).train(text, 320, verbose=False)
    with pytest.warns(UserWarning, match="llama.cpp only approximates .* such as 'ÁS'"):
        tokenizer.export(tmp_path / "t.gguf", "gguf")
    for path in (None, tmp_path / "t.gguf"):
        report = check(tokenizer, path)
        found = row(report, "llama-cpp-python")
        assert (found.status, report.ok) == ("approximate", True)
        assert "only approximates how this tokenizer cuts text" in found.detail
        assert found.difference is not None
        rows = {each["loader"]: each for each in report.to_json()["rows"]}
        assert "approximate" in str(report)
        assert rows["llama-cpp-python"] == dataclasses.asdict(found)
    report = check(tokenizer, texts=["plain text", "ÁS"])
    assert row(report, "llama-cpp-python").difference.text == "ÁS"  # type: ignore[union-attr]
    # Equal on these texts, and approximate nevertheless.
    report = check(tokenizer, texts=["plain text"])
    found = row(report, "llama-cpp-python")
    assert (found.status, found.difference) == ("approximate", None)
    # What the approximation does not explain is a difference.
    other = BPETokenizer("o200k", normalizer=None).train(text[::-1], 320, verbose=False)
    report = check(other, tmp_path / "t.gguf")
    assert (row(report, "llama-cpp-python").status, report.ok) == ("differs", False)


def test_a_difference_is_shown_by_the_word_that_has_it(tmp_path: Path) -> None:
    need("llama_cpp")
    tokenizer = BPETokenizer("gpt2", normalizer=None).train("123 word " * 20, 270, verbose=False)
    tokenizer.export(tmp_path / "t.gguf", "gguf")
    data = (tmp_path / "t.gguf").read_bytes()
    (tmp_path / "t.gguf").write_bytes(data.replace(b"gpt-2", b"qwen2"))
    report = check(tokenizer, tmp_path / "t.gguf", ["some words\nand 123 here\nmore"])
    found = row(report, "llama-cpp-python").difference
    assert found is not None and found.text == "123"


def test_the_samples_find_what_a_pattern_tells_apart() -> None:
    """A library that cuts by another pattern is found, whatever text was trained on."""
    texts = {name: conformance_texts(BPETokenizer(name)) for name in SPLIT_PATTERNS}
    for name, samples in texts.items():
        assert len(samples) < 400
        own = regex.compile(SPLIT_PATTERNS[name])
        for other in SPLIT_PATTERNS.keys() - {name}:
            cut = regex.compile(SPLIT_PATTERNS[other])
            assert any(own.findall(text) != cut.findall(text) for text in samples), (name, other)
    # Capitals, marks and digits beyond ASCII, side by side; and long white space.
    joined = "\n".join(texts["o200k"])
    for sample in ("ÁA", "A\u0301", "aÁ", "٣0", "\u03010", " " * 130, "\t" * 64, "\u00a0\u00a0"):
        assert sample in joined, sample


def test_other_ranks_in_a_tiktoken_file(gpt2: BPETokenizer, tmp_path: Path) -> None:
    need("tiktoken")
    path = tmp_path / "t.tiktoken"
    gpt2.export(path, "tiktoken")
    found = row(check(gpt2, path), "tiktoken")
    assert (found.status, found.detail) == ("equal", "t.tiktoken")
    lines = path.read_text().splitlines()
    tokens = [line.split()[0] for line in lines]
    tokens[256], tokens[300] = tokens[300], tokens[256]
    swapped = [f"{token} {line.split()[1]}" for token, line in zip(tokens, lines)]
    path.write_text("\n".join(swapped) + "\n")
    assert row(check(gpt2, path), "tiktoken").status == "differs"


def test_texts_that_share_an_id_are_equal_and_noted(gpt2: BPETokenizer, tmp_path: Path) -> None:
    need("tiktoken")
    gpt2.export(tmp_path / "t.tiktoken", "tiktoken")
    for special in ({"<a>": 5000, "<b>": 5000}, {"<b>": 5000, "<a>": 5000}):
        tokenizer = BPETokenizer.from_file(tmp_path / "t.tiktoken", special_tokens=special)
        report = check(tokenizer, tmp_path / "t.tiktoken")
        assert report.ok and row(report, "tiktoken").status == "equal"
        note = next(each for each in report.findings if each.name == "shared-id")
        assert note.severity == "note" and "id 5000 is '" in note.message


# -- Libraries that fail ------------------------------------------------------


def test_a_library_that_refuses_a_file(gpt2: BPETokenizer, saved: Path) -> None:
    (saved / "tokenizer.json").write_text('{"version": "1.0", "added_tokens": 5}')
    report = check(gpt2, saved)
    found = row(report, "tokenizers")
    assert found.status == "cannot load"
    assert found.detail
    assert "\n" not in found.detail
    assert not report.ok
    assert row(report, "bpe-tokenizer").status == "equal"


def test_a_library_that_panics(gpt2: BPETokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicError(BaseException):
        pass

    class Encoding:
        def __init__(self, **arguments: Any) -> None:
            raise PanicError("called `Option::unwrap()`\non a `None` value")

    fake = types.ModuleType("tiktoken")
    fake.Encoding, fake.__version__ = Encoding, "9.9"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", fake)
    found = row(gpt2.check(), "tiktoken")
    assert found.status == "cannot load"
    assert found.version == "9.9"
    assert found.detail == "PanicError: called `Option::unwrap()` on a `None` value"


def test_a_library_that_fails_later(gpt2: BPETokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Encoding:
        def __init__(self, **arguments: Any) -> None: ...

        def encode_ordinary(self, text: str) -> list[int]:
            raise OverflowError("text too long")

    fake = types.ModuleType("tiktoken")
    fake.Encoding, fake.__version__ = Encoding, "9.9"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", fake)
    report = gpt2.check()
    found = row(report, "tiktoken")
    text = bpe_tokenizer._shorten(CONFORMANCE_TEXTS[0], 48)
    assert (found.status, found.detail) == ("fails", f"text {text}: OverflowError: text too long")
    assert not report.ok


def test_ctrl_c_is_no_failure_of_a_library(
    gpt2: BPETokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(case: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setitem(check_module._LOADERS, "bpe_tokenizer", ("bpe-tokenizer", interrupted))
    with pytest.raises(KeyboardInterrupt):
        gpt2.check()


def test_libraries_that_are_not_installed(saved: Path) -> None:
    code = f"""
import sys
OTHERS = {{"tokenizers", "transformers", "tiktoken", "sentencepiece", "llama_cpp"}}
OTHERS |= {{"mistral_common", "gigatoken", "fastokens"}}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in OTHERS:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
from pathlib import Path
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.checking.check import check
path = Path({str(saved)!r})
report = check(BPETokenizer.from_file(path), path)
print([(row.loader, row.status, row.version) for row in report.rows if row.version is None])
print(report.ok, report.rows[0].status)
print(report)
"""
    root = Path(bpe_tokenizer.__file__).parent
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, timeout=600
    )
    assert run.returncode == 0, run.stderr
    missing, ok, *table = run.stdout.splitlines()
    others = ("tokenizers", "transformers", "tiktoken", "sentencepiece", "llama-cpp-python")
    others += ("mistral-common", "gigatoken", "fastokens")
    assert eval(missing) == [(name, "not installed", None) for name in others]
    assert ok == "True equal"
    assert [line.split()[0] for line in table[:9]] == ["bpe-tokenizer", *others]


def test_checking_leaves_nothing_behind_and_changes_nothing(
    gpt2: BPETokenizer, saved: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import os
    import tempfile

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    fingerprint, environment = gpt2.fingerprint, dict(os.environ)
    check(gpt2, saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert not any(path.name.startswith("bpe-tokenizer-") for path in scratch.iterdir())
    assert gpt2.fingerprint == fingerprint
    assert dict(os.environ) == environment


def test_mistral_common_reads_tekken_files(tmp_path: Path) -> None:
    need("mistral_common")
    tokens = [*map(lambda byte: bytes([byte]), range(256)), b"th", b"the", b" the"]
    sizes = {"num_vocab_tokens": 259, "default_vocab_size": 279, "default_num_special_tokens": 20}
    config = {"pattern": SPLIT_PATTERNS["tekken"], "version": "v3", **sizes}
    vocab = [
        {"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for i, token in enumerate(tokens)
    ]
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps({"config": config, "vocab": vocab}), encoding="utf-8")
    found = row(check(BPETokenizer.from_file(path), path), "mistral-common")
    assert (found.status, found.detail) == ("equal", path.name)


def test_a_template_that_begins_like_json(tmp_path: Path) -> None:
    tokenizer = train()
    for number, begins in enumerate(
        ("{% for m in messages %}{% endfor %}", "{{ 'x' }}", "\n{# #}")
    ):
        tokenizer.chat_template = begins
        tokenizer.save(tmp_path / str(number), verbose=False)
        assert (tmp_path / str(number) / "chat_template.jinja").exists()
        assert check(tokenizer, tmp_path / str(number), ["a"]).ok


def test_own_texts(gpt2: BPETokenizer, saved: Path) -> None:
    swap_merges(saved)
    harmless = check(gpt2, saved, ["~", "§"])
    assert harmless.n_texts == 2
    assert row(harmless, "tokenizers").status == "equal"
    assert gpt2.check(["a"]).n_texts == gpt2.verify(["a"]).n_texts == 1


def test_a_report_is_plain_data(gpt2: BPETokenizer, saved: Path) -> None:
    swap_merges(saved)
    report = check(gpt2, saved)
    data = json.loads(json.dumps(report.to_json()))
    assert data["ok"] is report.ok
    assert [each["loader"] for each in data["rows"]] == [each.loader for each in report.rows]
    assert {each["name"] for each in data["findings"]} == {f.name for f in report.findings}


# -- Findings -----------------------------------------------------------------


def test_a_sound_tokenizer_has_no_findings_but_its_family(gpt2: BPETokenizer) -> None:
    assert list(names(gpt2)) == ["pattern"]


def test_families(tmp_path: Path) -> None:
    for name in bpe_tokenizer.SPLIT_PATTERNS:
        assert pattern_family(BPETokenizer(name)) == name
    assert pattern_family(BPETokenizer(r"\w+|\W")) == "own"
    from bpe_tokenizer_tools.patterns.families import FAMILIES

    train().export(tmp_path / "t.json", "tokenizer.json")
    data = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    for name in ("starcoder", "command-r", "deepseek-v3", "tekken", "falcon"):
        family = FAMILIES[name]
        data["pre_tokenizer"] = family.pre_tokenizer()
        data["normalizer"] = family.normalizer and {"type": family.normalizer}
        (tmp_path / "t.json").write_text(json.dumps(data), encoding="utf-8")
        assert pattern_family(BPETokenizer.from_file(tmp_path / "t.json")) == name


def test_unreachable_tokens(gpt2: BPETokenizer) -> None:
    vocab = {**gpt2.definition.vocab, b"zq": 1000, b"zqj": 1001}
    found = names(rebuilt(gpt2, vocab=vocab))["unreachable"]
    assert "warning" in found and "2 tokens ('zq', 'zqj')" in found and "no merges" in found
    # a merge leads there, but an earlier merge is always in the way
    vocab = {b: b[0] for b in map(lambda i: bytes([i]), range(256))}
    vocab.update({b"ab": 256, b"bc": 257, b"abc": 258})
    blocked = rebuilt(gpt2, vocab=vocab, added=(), merges=[(97, 98), (98, 99), (97, 257)])
    assert "1 token ('abc')" in names(blocked)["unreachable"]


def test_tokens_that_only_ignore_merges_gives(gpt2: BPETokenizer) -> None:
    vocab = {**gpt2.definition.vocab, b" zq": 1000, b"z!": 1001}
    tokenizer = rebuilt(gpt2, vocab=vocab, ignore_merges=True)
    assert tokenizer.encode("a zq") == [*tokenizer.encode("a"), 1000]
    found = names(tokenizer)
    assert "1 token (' zq')" in found["ignore-merges"]
    assert "1 token ('z!')" in found["unreachable"]  # two pre-tokens: the flag never sees it


def test_tokens_that_the_pattern_cuts() -> None:
    tokenizer = train(r"[\s\S]+", vocab_size=420)
    assert "unreachable" not in names(tokenizer)
    found = names(rebuilt(tokenizer, split_pattern=bpe_tokenizer.GPT2_SPLIT_PATTERN))["unreachable"]
    cut = [token for token in tokenizer.definition.vocab if b"\n\n" in token.strip()]
    assert "the split pattern always cuts" in found
    assert found.startswith("note") and cut


def test_tokens_that_the_normalizer_changes() -> None:
    tokenizer = train(r"[\s\S]+", vocab_size=300)
    vocab = {**tokenizer.definition.vocab, b"\xcc\x81": 1000, "e\u0301".encode(): 1001}
    merges = [*tokenizer.definition.merges, (0xCC, 0x81), (ord("e"), 1000)]
    changed = rebuilt(tokenizer, vocab=vocab, merges=merges)
    assert "unreachable" not in names(changed)
    assert changed.encode("e\u0301") == [1001]
    found = names(rebuilt(changed, normalizer="NFC"))["unreachable"]
    assert "normalization changes 1 token ('e\u0301')" in found


def test_duplicates(gpt2: BPETokenizer) -> None:
    token = AddedToken("lower", 900, special=True)
    tokenizer = rebuilt(
        gpt2, added=(*gpt2.added_tokens, token), vocab={**gpt2.definition.vocab, b"lower": 901}
    )
    assert "b'lower' is 901 and 900" in names(tokenizer)["duplicates"]


def test_special_tokens_that_collide(gpt2: BPETokenizer) -> None:
    def finding(*contents: str, **changes: Any) -> str:
        added = [AddedToken(text, 900 + i) for i, text in enumerate(contents)]
        return names(rebuilt(gpt2, added=tuple(added), **changes)).get("special-tokens", "")

    assert finding("<a>", "<b>") == ""
    assert "'<|x|>' begins with '<|x'" in finding("<|x", "<|x|>")
    assert "'[<a>]' holds '<a>'" in finding("<a>", "[<a>]")
    assert "is not in the form NFC" in finding("<e\u0301>", normalizer="NFC")
    assert "is also in ordinary tokens" in finding("owes")


def test_a_flood_of_findings_is_cut(gpt2: BPETokenizer) -> None:
    added = tuple(AddedToken("<" * (i + 1), 900 + i) for i in range(50))
    found = [f for f in lint(rebuilt(gpt2, added=added)) if f.name == "special-tokens"]
    assert len(found) == 11
    assert "more like these" in str(found[-1])


def test_a_special_token_that_plain_text_gives(gpt2: BPETokenizer) -> None:
    id_ = gpt2.encode("z")[0]
    found = lint(rebuilt(gpt2, added=(AddedToken("z", id_),)))
    (finding,) = [f for f in found if f.name == "special-tokens"]
    assert finding.severity == "error"
    assert "'z'" in finding.message


def test_padding() -> None:
    assert "there is no pad token" in names(train(special_tokens=["<s>"]))["pad-token"]
    tokenizer = train(special_tokens=["</s>"])
    tokenizer.pad_token = "</s>"
    assert "the pad token is the eos token" in names(tokenizer)["pad-token"]


@pytest.mark.parametrize("template", ["{{ bos_token }}{{ messages }}", "<s>{{ messages }}"])
def test_double_bos(template: str) -> None:
    tokenizer = train()
    assert "double-bos" not in names(tokenizer)
    tokenizer.chat_template = template
    assert "'<s>'" in names(tokenizer)["double-bos"]
    without = rebuilt(tokenizer, template=((), ()))
    without.chat_template = template
    assert "double-bos" not in names(without)


def test_gaps() -> None:
    tokenizer = train(special_tokens={"<pad>": 1000})
    n_ordinary = tokenizer.vocab_size - 1
    found = names(tokenizer)["gaps"]
    assert f"{1000 - n_ordinary} ids below the largest, 1000" in found
    assert f"the first is {n_ordinary};" in found


@pytest.mark.filterwarnings("ignore:.*no token for these characters")
def test_missing_bytes_and_unknown_characters(gpt2: BPETokenizer, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    gpt2.export(path, "tokenizer.json")
    data = json.loads(path.read_text(encoding="utf-8"))
    vocab = data["model"]["vocab"]
    for char in ("§", "õ"):  # the bytes 0xA7, and 0xF5, which no text has
        del vocab[char]
    vocab.update({"§§": 0xA7, "õõ": 0xF5})
    data["model"]["merges"] = [m for m in data["model"]["merges"] if "§" not in "".join(m)]
    path.write_text(json.dumps(data), encoding="utf-8")
    tokenizer = BPETokenizer.from_file(path)
    found = names(tokenizer)["missing-bytes"]
    assert found.startswith("error") and "1 bytes have no token ('0xA7')" in found
    assert tokenizer.decode(tokenizer.encode("a§b")) != "a§b"
    data.update(pre_tokenizer=None, normalizer={"type": "ByteLevel"})
    path.write_text(json.dumps(data), encoding="utf-8")
    assert names(BPETokenizer.from_file(path))["missing-bytes"] == found
    data.update(normalizer=None, pre_tokenizer={"type": "Whitespace"}, decoder=None)
    path.write_text(json.dumps(data), encoding="utf-8")
    assert (
        "characters without a token are dropped"
        in names(BPETokenizer.from_file(path))["unknown-characters"]
    )


# -- Classes of transformers --------------------------------------------------


@pytest.mark.parametrize("name", sorted(_CLASSES))
def test_classes_of_transformers(name: str, tmp_path: Path) -> None:
    """The finding comes exactly when the class has other components than the file."""
    transformers = need("transformers")
    if int(transformers.__version__.split(".")[0]) < 5:
        pytest.skip("transformers 4 takes everything from tokenizer.json")
    special = [*SPECIAL, "<unk>", "<mask>", "<|endoftext|>"]
    for pattern, normalizer in (
        ("gpt2", None),
        ("gpt2", "NFC"),
        ("qwen2", "NFC"),
        ("cl100k", None),
    ):
        tokenizer = train(pattern, normalizer, special_tokens=special)
        folder = tmp_path / f"{pattern}-{normalizer}"
        tokenizer.save(folder, verbose=False)
        edit(folder / "tokenizer_config.json", tokenizer_class=name)
        loaded = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        assert type(loaded).__name__.startswith(name[:4]) or name[:4] in ("Bart", "LEDT", "MvpT")
        rewritten = bool(check_module._rewritten(loaded, folder))
        assert ("tokenizer-class" in names(tokenizer, folder)) == rewritten


@pytest.mark.parametrize("model_type", [*sorted(_OVERRIDING), "llama", "gpt2", "qwen3"])
def test_model_types_that_win_over_the_class(model_type: str, tmp_path: Path) -> None:
    transformers = need("transformers")
    tokenizer = train("cl100k")
    tokenizer.save(tmp_path, verbose=False)
    edit(tmp_path / "config.json", model_type=model_type)
    found = names(tokenizer, tmp_path)
    assert ("tokenizer-class" in found) == (model_type in _OVERRIDING)
    if int(transformers.__version__.split(".")[0]) >= 5:
        loaded = transformers.AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
        assert bool(check_module._rewritten(loaded, tmp_path)) == (model_type in _OVERRIDING)
    if model_type in _OVERRIDING:
        assert f"model_type '{model_type}'" in found["tokenizer-class"]


@pytest.mark.parametrize("model_type", ["qwen3", "gpt2", "olmo", "starcoder2"])
def test_model_types_where_no_class_is_named(model_type: str, tmp_path: Path) -> None:
    transformers = need("transformers")
    tokenizer = train("cl100k")
    tokenizer.save(tmp_path, verbose=False)
    data = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    del data["tokenizer_class"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(data), encoding="utf-8")
    assert "tokenizer-class" not in names(tokenizer, tmp_path)
    edit(tmp_path / "config.json", model_type=model_type)
    assert f"model_type '{model_type}'" in names(tokenizer, tmp_path)["tokenizer-class"]
    if int(transformers.__version__.split(".")[0]) >= 5:
        loaded = transformers.AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
        assert check_module._rewritten(loaded, tmp_path)


def test_classes_that_are_harmless_or_damaged_configs(gpt2: BPETokenizer, saved: Path) -> None:
    for name in ("PreTrainedTokenizerFast", "GPT2TokenizerFast", "TokenizersBackend", "Own"):
        edit(saved / "tokenizer_config.json", tokenizer_class=name)
        assert "tokenizer-class" not in names(gpt2, saved)
    (saved / "config.json").write_text("[1")
    assert "tokenizer-class" not in names(gpt2, saved)


# -- The command --------------------------------------------------------------


def test_check_prints_a_table(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bpe_tokenizer.main(["check", str(saved)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:6]] == [
        "bpe-tokenizer", "tokenizers", "transformers", "tiktoken", "sentencepiece",
        "llama-cpp-python",
    ]  # fmt: skip
    assert "note: pattern: text is cut as in the family 'gpt2'" in lines


def test_check_in_json_and_its_exit_status(
    cl100k: BPETokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = need("transformers")
    cl100k.save(tmp_path, verbose=False)
    assert bpe_tokenizer.main(["check", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    edit(tmp_path / "tokenizer_config.json", tokenizer_class="Qwen2Tokenizer")
    if int(transformers.__version__.split(".")[0]) < 5:
        return
    assert bpe_tokenizer.main(["check", str(tmp_path), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    (differing,) = [each for each in data["rows"] if each["status"] == "differs"]
    assert differing["loader"] == "transformers"
    assert differing["difference"]["expected_ids"] != differing["difference"]["ids"]


def test_check_of_files_that_need_more(
    gpt2: BPETokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpt2.export(tmp_path / "t.tiktoken", "tiktoken")
    shutil.move(tmp_path / "t.json", tmp_path / "elsewhere.json")
    path = str(tmp_path / "t.tiktoken")
    assert bpe_tokenizer.main(["check", path]) == 1
    assert "split_pattern" in capsys.readouterr().err
    more = [
        "--split-pattern",
        "gpt2",
        "--special-tokens",
        *(f"{t}={i}" for t, i in gpt2.special_tokens.items()),
    ]
    assert bpe_tokenizer.main(["check", path, *more]) == 0
    assert "tiktoken" in capsys.readouterr().out
    assert bpe_tokenizer.main(["check", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith("bpe-tokenizer: error: ")


@pytest.mark.parametrize("name", ["llama-2", "phi-3-mini", "llama-3-original", "mistral-tekken"])
def test_transformers_loads_the_directory_itself(name: str, tmp_path: Path) -> None:
    """Not only what is exported: the classes and keys of the directory count."""
    need_release("transformers", "5.24")
    folder = published_shapes.make(name, tmp_path)
    found = check(BPETokenizer.from_file(folder), folder)
    rows = [row for row in found.rows if row.loader == "transformers"]
    assert [row.status for row in rows] == ["equal", "equal"]
    assert ["through export" in row.detail for row in rows] == [False, True]
    assert found.ok


def test_a_directory_that_transformers_reads_in_another_way(tmp_path: Path) -> None:
    need("transformers")
    folder = published_shapes.make("llama-2", tmp_path)
    tokenizer = BPETokenizer.from_file(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "legacy": True}))
    rows = check(tokenizer, folder).rows
    statuses = [row.status for row in rows if row.loader == "transformers"]
    assert statuses == ["differs", "equal"]


def test_code_of_the_directory_is_not_run(tmp_path: Path) -> None:
    need("transformers")
    folder = published_shapes.make("kimi", tmp_path)
    found = check(BPETokenizer.from_file(folder), folder)
    rows = [row for row in found.rows if row.loader == "transformers"]
    assert [row.status for row in rows] == ["not applicable", "equal"]
    assert "auto_map" in rows[0].detail


def test_a_library_with_another_unicode(tmp_path: Path) -> None:
    tokenizer = BPETokenizer("o200k", normalizer=None).train("ab cd " * 9, 260, verbose=False)

    def load(_: Any, char: str = "ʕ", unicode: str = "17.0") -> Any:
        def encode(text: str, special: bool) -> list[int]:
            ids = tokenizer.encode(text, allowed_special="all" if special else "none")
            return [*ids, 0] if char in text else ids

        return check_module._own(tokenizer)._replace(encode=encode, unicode=unicode)

    def compare(**how: str) -> Any:
        loader = functools.partial(load, **how)
        case = check_module._Case(tokenizer, None, tmp_path)
        texts = ["plain", "aʕ b"]
        return check_module._compare_with(case, "regex", "another", loader, texts)[0]

    found = compare()
    assert (found.status, found.difference.text) == ("approximate", "aʕ")
    assert "it has Unicode 17.0, and this library 16.0.0" in found.detail
    assert "U+0295" in found.detail
    assert compare(char="\U00033479").status == "equal"  # not in the texts
    assert compare(char="b").status == "differs"
    assert compare(unicode=bpe_tokenizer.UNICODE_VERSION).status == "differs"
