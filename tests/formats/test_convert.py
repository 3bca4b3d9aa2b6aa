"""The command `convert`: what it writes is loaded again, and by the format's own library."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import commands, core
from bpe_tokenizer_tools.checking.conformance import conformance_texts

TEXT = "It's 1234 words: don't stop.\n\nThe lower the lowest, größer und größte, 世界 мир.\n" * 20
SPECIAL = ["<s>", "</s>", "<pad>"]


@pytest.fixture(scope="module")
def tokenizer(engine: str) -> BPETokenizer:
    made = BPETokenizer(normalizer=None)
    return made.train(TEXT, vocab_size=400, special_tokens=SPECIAL, verbose=False)


@pytest.fixture
def source(tokenizer: BPETokenizer, tmp_path: Path) -> Path:
    tokenizer.save(tmp_path / "source", verbose=False)
    return tmp_path / "source"


def convert(*arguments: object) -> int:
    return bpe_tokenizer.main(["convert", *map(str, arguments)])


def assert_same(tokenizer: BPETokenizer, other: BPETokenizer) -> None:
    assert other.special_tokens == tokenizer.special_tokens
    for text in conformance_texts(tokenizer):
        assert other.encode(text) == tokenizer.encode(text)
        assert other.encode(text, allowed_special="all") == tokenizer.encode(
            text, allowed_special="all"
        )


LOSE_THE_NORMALIZER = [
    ("t.tiktoken", "tiktoken", "tiktoken does not do"),
    ("t.gguf", "gguf", "llama.cpp does not do"),
    ("t", "gpt2", "GPT-2's tokenizer does not do"),
]
# What is refused by a format that can't hold it, and where it is held.
REFUSED = {
    "pattern": "[a-z]+|[^a-z]",
    "lstrip": "'<x>' has lstrip",
    "rstrip": "'<x>' has rstrip",
    "single_word": "'<x>' has single_word",
    "special": "'<x>' has special=False",
    "normalized": "'<x>' has special=False",
    "prefix_space": "a space before",
    "ignore_merges": "merges",
    "around": "add_special_tokens puts the ids",
    "trim_offsets": "trim_offsets",
}
_HELD = {*REFUSED}
ALLOWED = {
    "tokenizer.json": _HELD,
    "directory": _HELD,
    "tiktoken": {"pattern", "ignore_merges", "around", "trim_offsets"},
    "gpt2": {"lstrip", "rstrip", "single_word", "special", "normalized", "prefix_space", "around"},
    "gguf": {"special", "normalized", "trim_offsets"},
}
FORMATS = [
    ("t.json", None, {"t.json"}),
    ("t.tiktoken", None, {"t.tiktoken", "t.json"}),
    ("t.gguf", None, {"t.gguf"}),
    ("folder", "gpt2", {"vocab.json", "merges.txt"}),
    ("folder", "directory", {"tokenizer.json", "tokenizer_config.json"}),
    ("odd.name", "tokenizer.json", {"odd.name"}),
]


@pytest.mark.parametrize("name, format_, files", FORMATS)
def test_formats(
    tokenizer: BPETokenizer,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    format_: str | None,
    files: set[str],
) -> None:
    target = tmp_path / "out" / name
    options = ["--format", format_] if format_ else []
    assert convert(source, target, *options, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["vocab_size"] == tokenizer.vocab_size
    written = {Path(file) for file in facts["files"]}
    assert {file.name for file in written} >= files
    folder = target if target.is_dir() else target.parent
    assert written == set(folder.iterdir())  # no more, and no temporary ones
    assert_same(tokenizer, BPETokenizer.from_file(target))


def test_from_format_to_format(
    tokenizer: BPETokenizer, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [source, tmp_path / "a.gguf", tmp_path / "b.tiktoken", tmp_path / "c.json"]
    for before, after in zip(steps, steps[1:]):
        assert convert(before, after) == 0
        assert f"Wrote {tokenizer.vocab_size} tokens to" in capsys.readouterr().out
    assert_same(tokenizer, BPETokenizer.from_file(steps[-1]))


def test_the_formats_own_libraries_agree(
    tokenizer: BPETokenizer, source: Path, tmp_path: Path
) -> None:
    llama_cpp = need("llama_cpp")
    tokenizers = need("tokenizers")
    assert convert(source, tmp_path / "t.gguf", "--quiet") == 0
    assert convert(tmp_path / "t.gguf", tmp_path / "t.json", "--quiet") == 0
    llama = llama_cpp.Llama(str(tmp_path / "t.gguf"), vocab_only=True, verbose=False)
    hf = tokenizers.Tokenizer.from_file(str(tmp_path / "t.json"))
    for text in conformance_texts(tokenizer):
        ids = tokenizer.encode(text, allowed_special="all")
        assert llama.tokenize(text.encode(), add_bos=False, special=True) == ids
        assert hf.encode(text, add_special_tokens=False).ids == ids


def test_a_name_that_tells_no_format(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        convert(source, source.parent / "out.bin")
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "--format" in error
    for name in ("tokenizer.json", "tiktoken", "gpt2", "gguf", "directory", ".gguf"):
        assert name in error
    with pytest.raises(SystemExit):
        convert(source, source.parent / "out", "--format", "zip")


def test_what_a_format_cannot_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = BPETokenizer(r"[a-z]+|[^a-z]", normalizer=None)
    tokenizer.train(TEXT, vocab_size=300, verbose=False).save(tmp_path / "in", verbose=False)
    for name, format_ in (("t.gguf", "gguf"), ("t", "gpt2")):
        assert convert(tmp_path / "in", tmp_path / "out" / name, "--format", format_) == 1
        out, error = capsys.readouterr()
        assert out == ""
        assert "[a-z]+|[^a-z]" in error  # what would be lost
        assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_failure_leaves_the_old_file(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "t.json"
    target.write_text("old")
    export = BPETokenizer.export

    assert convert(source, target) == 1
    assert "t.json: already exists; --force overwrites it" in capsys.readouterr().err
    assert target.read_text() == "old"

    def wrong(self: BPETokenizer, path: Any, format: str) -> None:
        export(self, path, format)
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        data["model"]["merges"].reverse()
        Path(path).write_text(json.dumps(data), encoding="utf-8")

    monkeypatch.setattr(BPETokenizer, "export", wrong)
    assert convert(source, target, "--force") == 1
    assert "ids would change" in capsys.readouterr().err
    assert target.read_text() == "old"

    def damaged(self: BPETokenizer, path: Any, format: str) -> None:
        Path(path).write_text('{"model": 5}')

    monkeypatch.setattr(BPETokenizer, "export", damaged)
    assert convert(source, target, "--force") == 1
    assert "'tokenizer.json' cannot hold this tokenizer" in capsys.readouterr().err
    assert target.read_text() == "old"


def test_what_decides_no_ids_is_named(
    tokenizer: BPETokenizer, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "chat_template.jinja").write_text("{{ messages }}")
    assert convert(source, tmp_path / "t.json") == 0
    error = capsys.readouterr().err
    for name in ("chat_template", "bos_token", "pad_token"):
        assert name in error
    assert convert(source, tmp_path / "t.json", "--quiet", "--force") == 0
    assert capsys.readouterr() == ("", "")
    assert convert(source, tmp_path / "all", "--format", "directory", "--json") == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == []
    assert BPETokenizer.from_file(tmp_path / "all").chat_template == "{{ messages }}"


def test_a_pattern_and_special_tokens_for_a_file_without(
    tokenizer: BPETokenizer, tmp_path: Path
) -> None:
    tokenizer.export(tmp_path / "t.tiktoken", "tiktoken")
    (tmp_path / "t.json").unlink()
    assert convert(tmp_path / "t.tiktoken", tmp_path / "u.json") == 1
    options = ["--split-pattern", "gpt2", "--special-tokens"]
    options += [f"{token}={id_}" for token, id_ in tokenizer.special_tokens.items()]
    assert convert(tmp_path / "t.tiktoken", tmp_path / "u.json", *options, "--quiet") == 0
    assert_same(tokenizer, BPETokenizer.from_file(tmp_path / "u.json"))


def test_files_where_directories_should_be(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert convert(source, tmp_path / "file", "--format", "gpt2") == 1
    assert "expected a directory" in capsys.readouterr().err
    assert convert(source, tmp_path, "--format", "tokenizer.json") == 1
    assert "expected a file" in capsys.readouterr().err
    assert convert(tmp_path / "none", tmp_path / "t.json") == 1
    assert "no such file" in capsys.readouterr().err


def test_a_file_that_belongs_to_another_is_not_replaced(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, ranks = tmp_path / "mine.json", tmp_path / "mine.tiktoken"
    assert convert(source, mine, "--quiet") == 0
    before = mine.read_bytes()
    (tmp_path / "link.json").symlink_to(mine)
    for name in ("mine.json", "link.json"):  # IN, and what is beside OUT
        assert convert(tmp_path / name, ranks) == 1
        error = capsys.readouterr().err
        assert f"{name} would be replaced" in error and "another name" in error
    assert convert(source, ranks) == 1
    assert "mine.json would be replaced" in capsys.readouterr().err
    # Not even where it could be taken for a description of ranks.
    mine.write_text(json.dumps({**json.loads(before), "pat_str": "x"}))
    assert convert(mine, ranks) == 1
    assert not ranks.exists()
    # Nor the description itself.
    assert convert(source, tmp_path / "b.tiktoken", "--quiet") == 0
    described = (tmp_path / "b.json").read_bytes()
    assert convert(tmp_path / "b.tiktoken", tmp_path / "b.json") == 1
    assert "b.json belongs to b.tiktoken" in capsys.readouterr().err
    assert (tmp_path / "b.json").read_bytes() == described
    assert convert(tmp_path / "b.tiktoken", tmp_path / "b.tiktoken", "--quiet", "--force") == 0


def test_names_in_capitals(tokenizer: BPETokenizer, source: Path, tmp_path: Path) -> None:
    for name in ("UP.GGUF", "UP.TIKTOKEN", "OTHER.JSON"):
        assert convert(source, tmp_path / name, "--quiet") == 0
        assert_same(tokenizer, BPETokenizer.from_file(tmp_path / name))


def test_errors_name_what_was_asked_for(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert convert(source, tmp_path / "noext", "--format", "tiktoken") == 1
    error = capsys.readouterr().err
    assert f"error: {tmp_path / 'noext'}: expected a name that ends in .tiktoken" in error
    for arguments in (("", tmp_path / "t.gguf"), (source, "")):
        with pytest.raises(SystemExit) as stopped:
            convert(*arguments)
        assert stopped.value.code == 2
        assert "got ''" in capsys.readouterr().err
    write = core.write_files

    def full(contents: Any) -> None:
        if any(tmp_path in path.parents and "bpe-tokenizer-" not in str(path) for path in contents):
            name = next(iter(contents)).with_name(".t.gguf.0123.tmp")
            raise OSError(errno.ENOSPC, "No space left on device", str(name))
        write(contents)

    monkeypatch.setattr(core, "write_files", full)
    assert convert(source, tmp_path / "t.gguf") == 1
    assert capsys.readouterr().err == (
        f"bpe-tokenizer: error: {tmp_path / 't.gguf'}: No space left on device\n"
    )


def test_what_llama_cpp_does_otherwise_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for pattern, words in (("llama3", []), ("o200k", ["'gpt-4o'"])):
        made = BPETokenizer(pattern, normalizer=None).train(TEXT, vocab_size=300, verbose=False)
        made.save(tmp_path / pattern, verbose=False)
        assert convert(tmp_path / pattern, tmp_path / "t.gguf", "--json", "--force") == 0
        out, error = capsys.readouterr()
        notes = json.loads(out)["notes"]
        assert error == "" and len(notes) == len(words)
        assert all(word in note for word, note in zip(words, notes))
        assert convert(tmp_path / pattern, tmp_path / "t.gguf", "--force") == 0
        assert capsys.readouterr().err == "".join(f"{note}\n" for note in notes)
        assert convert(tmp_path / pattern, tmp_path / "t.json", "--json", "--force") == 0
        assert json.loads(capsys.readouterr().out)["notes"] == []


@pytest.mark.parametrize("name, format_, library", LOSE_THE_NORMALIZER)
def test_a_normalizer_is_lost_only_on_request(
    name: str,
    format_: str,
    library: str,
    engine: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = BPETokenizer("gpt2").train(TEXT, vocab_size=300, verbose=False)
    made.save(tmp_path / "in", verbose=False)
    with pytest.raises(ValueError, match=f"normalizes text to NFC, which {library}") as refused:
        made.export(tmp_path / "out" / name, format_)
    assert "--without-normalizer" in str(refused.value)
    assert convert(tmp_path / "in", tmp_path / "out" / name, "--format", format_) == 1
    assert capsys.readouterr().err == f"bpe-tokenizer: error: {refused.value}\n"
    assert not (tmp_path / "out").exists()
    options = ["--format", format_, "--without-normalizer"]
    assert convert(tmp_path / "in", tmp_path / "out" / name, *options) == 0
    assert f"{format_} has no place for: the normalizer" in capsys.readouterr().err
    again = BPETokenizer.from_file(tmp_path / "out" / name)
    assert again.normalizer is None
    assert again.encode("e\u0301") != made.encode("e\u0301") == again.encode("é")
    assert convert(tmp_path / "in", tmp_path / "out" / name, *options, "--json", "--force") == 0
    assert "the normalizer" in json.loads(capsys.readouterr().out)["left_out"]


def test_a_normalizer_may_be_left_out_of_any_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    made = BPETokenizer("gpt2").train(TEXT, vocab_size=300, verbose=False)
    made.save(tmp_path / "in", verbose=False)
    for name, format_ in (("t.json", "tokenizer.json"), ("t", "directory")):
        assert convert(tmp_path / "in", tmp_path / name, "--format", format_) == 0
        assert BPETokenizer.from_file(tmp_path / name).normalizer == "NFC"
        options = ["--format", format_, "--without-normalizer", "--json", "--force"]
        capsys.readouterr()
        assert convert(tmp_path / "in", tmp_path / name, *options) == 0
        assert json.loads(capsys.readouterr().out)["left_out"] == ["the normalizer"]
        assert BPETokenizer.from_file(tmp_path / name).normalizer is None


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name, format_, files", FORMATS)
def test_nothing_is_overwritten_but_by_force(
    tokenizer: BPETokenizer,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    format_: str | None,
    files: set[str],
) -> None:
    target = tmp_path / "out" / name
    arguments = [source, target, *(["--format", format_] if format_ else [])]
    other = BPETokenizer(normalizer=None).train(TEXT, vocab_size=300, verbose=False)
    other.save(tmp_path / "other", verbose=False)
    assert convert(tmp_path / "other", *arguments[1:], "--quiet") == 0
    folder = target if target.is_dir() else target.parent
    before = files_of(folder)
    assert convert(*arguments) == 1
    out, error = capsys.readouterr()
    assert out == "" and len(error.splitlines()) == 1
    assert str(target) in error and "--force overwrites it" in error
    assert files_of(folder) == before
    assert convert(*arguments, "--force", "--json") == 0
    written = {Path(file).name for file in json.loads(capsys.readouterr().out)["files"]}
    assert files <= written == files_of(folder).keys()
    assert_same(tokenizer, BPETokenizer.from_file(target))


@pytest.mark.parametrize("format_", ["gpt2", "directory"])
def test_a_directory_with_another_tokenizer_is_replaced_whole(
    tokenizer: BPETokenizer,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    format_: str,
) -> None:
    other = BPETokenizer(normalizer=None).train(TEXT, 300, special_tokens=["<x>"], verbose=False)
    other.chat_template = "{{ messages }}"
    target, arguments = tmp_path / "t", [source, tmp_path / "t", "--format", format_]
    for make in (
        lambda: other.save(target, verbose=False),
        lambda: other.export(target, "gpt2"),
        lambda: other.export(target / "x.tiktoken", "tiktoken"),
    ):
        target.mkdir()
        make()
        before = files_of(target)
        assert convert(*arguments) == 1
        error = capsys.readouterr().err
        assert f"{target}: has a tokenizer (" in error and "--force overwrites it" in error
        assert files_of(target) == before
        assert convert(*arguments, "--force", "--json") == 0
        written = {Path(file).name for file in json.loads(capsys.readouterr().out)["files"]}
        assert {
            name for name, raw in files_of(target).items() if before.get(name) != raw
        } <= written
        assert_same(tokenizer, BPETokenizer.from_file(target))
        assert BPETokenizer.from_file(target).chat_template is None
        shutil.rmtree(target)


def odd(kind: str) -> BPETokenizer:
    """Make a tokenizer with one thing that some format can't hold."""
    pattern, tokens = {"pattern": r"[a-z]+|[^a-z]"}.get(kind, "gpt2"), ["<s>", "</s>"]
    made = BPETokenizer(pattern, normalizer=None)
    made.train(TEXT, vocab_size=400, special_tokens=tokens, verbose=False)
    definition, flags = made.definition, ("lstrip", "rstrip", "single_word")
    if kind in flags:
        made.add_special_tokens([AddedToken("<x>", **{kind: True})])  # type: ignore[arg-type]
    elif kind in ("special", "normalized"):
        added = AddedToken("<x>", special=False, normalized=kind == "normalized")
        made.add_special_tokens([added])
    elif kind in ("prefix_space", "trim_offsets"):
        made._install(dataclasses.replace(definition, **{kind: True}))  # type: ignore[arg-type]
    elif kind == "ignore_merges":
        vocab = {**definition.vocab, b"zzzz": 500}
        made._install(dataclasses.replace(definition, vocab=vocab, ignore_merges=True))
    elif kind == "around":
        made._install(dataclasses.replace(definition, template=((made.max_id,) * 2, ())))
    elif kind == "settings":
        made._settings = {"model_max_length": 99, "padding_side": "left"}
    elif kind == "chat template":
        made.chat_template = "{{ messages }}"
    return made


@pytest.mark.parametrize("format_", ["tokenizer.json", "directory", "tiktoken", "gpt2", "gguf"])
@pytest.mark.parametrize(
    "kind",
    ["pattern", "lstrip", "rstrip", "single_word", "special", "normalized", "prefix_space"]
    + ["trim_offsets", "ignore_merges", "around", "settings", "chat template"],
)
def test_nothing_is_lost_in_silence(
    kind: str, format_: str, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is written is the same tokenizer, or what differs is named, or it is refused."""
    made = odd(kind)
    made.save(tmp_path / "in", verbose=False)
    made = BPETokenizer.from_file(tmp_path / "in")
    name = {"tokenizer.json": "t.json", "tiktoken": "t.tiktoken", "gguf": "t.gguf"}.get(
        format_, "t"
    )
    if convert(tmp_path / "in", tmp_path / name, "--format", format_, "--json"):
        error = capsys.readouterr().err
        assert "cannot hold this tokenizer: " in error
        with pytest.raises(ValueError, match="cannot hold this tokenizer: ") as refused:
            made.export(tmp_path / name, format_)
        assert str(refused.value) in error
        assert REFUSED[kind] in error and kind not in ALLOWED[format_]
        return
    left_out = set(json.loads(capsys.readouterr().out)["left_out"])
    again = BPETokenizer.from_file(tmp_path / name)
    assert kind in ALLOWED[format_] or not REFUSED.get(kind)
    for kept in (core.roles, core.settings, core.further_keys):
        before, after = kept(made), kept(again)
        assert {key for key in before if before[key] != after.get(key)} <= left_out
    assert (made.chat_templates == again.chat_templates) == ("chat_template" not in left_out)
    assert again.get_vocab() == made.get_vocab()
    assert [
        (t.content, t.special, t.lstrip, t.rstrip, t.single_word) for t in again.added_tokens
    ] == [(t.content, t.special, t.lstrip, t.rstrip, t.single_word) for t in made.added_tokens]
    around = "the tokens that add_special_tokens adds around a text" not in left_out
    for text in (TEXT, " <x> a<x>b", "zzzz", "Hello <s> x"):
        for options in ({}, {"allowed_special": "all"}, {"add_special_tokens": True}):
            if around or "add_special_tokens" not in options:
                assert again.encode(text, **options) == made.encode(text, **options)  # type: ignore[arg-type]
        if "trim_offsets" not in left_out:
            assert again.encode_with_offsets(text).offsets == made.encode_with_offsets(text).offsets


def test_the_commands_are_short() -> None:
    import inspect

    for _, run, _ in commands.COMMANDS.values():
        assert len(inspect.getsource(run).splitlines()) <= 30
