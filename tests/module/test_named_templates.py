"""Chat templates with names: read, saved and chosen as transformers does."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, FileFormatError, main
from bpe_tokenizer_tools.checking.tokenizer_diff import compare_tokenizers
from bpe_tokenizer_tools.workflow.registry import Registry

need("jinja2")

USER = {"role": "user", "content": "Hi"}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}]
NAMED = {
    "default": "D {{ 1 }} é\r\n",
    "rag": "R {{ documents }}",
    "tool_use": "T {{ tools is none }}",
}
SETS: list[dict[str, str]] = [
    {},
    {"default": "{{ 'D' }}"},
    NAMED,
    {"tool_use": "{{ 'T' }}", "rag": "{{ 'R' }}"},
    {"tool_use": "{{ 'T' }}"},
    {"default": "", "file": "{{ 'F' }}", "../x": "{{ 'X' }}", "a b/c": "", "é": "x", "": "y"},
]


def made(templates: dict[str, str]) -> BPETokenizer:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.chat_templates = dict(templates)
    return tokenizer


def load(path: Path) -> BPETokenizer:
    return BPETokenizer.from_pretrained(path, verbose=False)


def in_transformers(path: Path) -> Any:
    transformers = need("transformers")
    return transformers.PreTrainedTokenizerFast.from_pretrained(path)


def as_dict(template: Any) -> dict[str, str]:
    """What transformers' attribute means: one template is the default one."""
    if isinstance(template, dict):
        return template
    return {} if template is None else {"default": template}


# -- Files ----------------------------------------------------------------------


@pytest.mark.parametrize("templates", SETS)
def test_transformers_reads_all_that_is_saved(templates: dict[str, str], tmp_path: Path) -> None:
    made(templates).save(tmp_path, verbose=False)
    assert as_dict(in_transformers(tmp_path).chat_template) == templates
    assert load(tmp_path).chat_templates == templates
    assert load(tmp_path) == made(templates)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize("as_files", [True, False])
@pytest.mark.parametrize("templates", SETS)
def test_all_that_transformers_saves_is_read(
    templates: dict[str, str], as_files: bool, tmp_path: Path
) -> None:
    made({}).save(tmp_path / "bare", verbose=False)
    theirs = in_transformers(tmp_path / "bare")
    theirs.chat_template = templates or None
    try:
        theirs.save_pretrained(tmp_path / "theirs", save_jinja_files=as_files)
    except (ValueError, OSError):
        assert as_files and "../x" in templates
        return
    if as_files and "file" in templates:
        return
    loaded = load(tmp_path / "theirs").chat_templates
    # Files are text there: line ends are translated when they are read.
    assert {name: text.replace("\r\n", "\n") for name, text in loaded.items()} == as_dict(
        in_transformers(tmp_path / "theirs").chat_template
    ) or not as_files
    assert loaded == templates


def write(folder: Path, config: Any, *files: str) -> None:
    made({}).save(folder, verbose=False)
    path = folder / "tokenizer_config.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "chat_template": config}))
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(f"file {name}".encode())


MORE = "additional_chat_templates"
LISTED = [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]


@pytest.mark.parametrize(
    "config, files",
    [
        ("one", []),
        (LISTED, []),
        ([*LISTED, {"name": "rag", "template": "again"}], []),
        ("one", ["chat_template.jinja"]),
        (LISTED, ["chat_template.jinja"]),
        (LISTED, [f"{MORE}/tool_use.jinja"]),
        (None, ["chat_template.jinja", f"{MORE}/tool_use.jinja", f"{MORE}/x.y.jinja"]),
        (None, ["chat_template.jinja", f"{MORE}/default.jinja"]),
        (LISTED, [f"{MORE}/README.md"]),
        (None, []),
    ],
)
def test_templates_in_several_places(config: Any, files: list[str], tmp_path: Path) -> None:
    write(tmp_path, config, *files)
    loaded = load(tmp_path)
    assert loaded.chat_templates == as_dict(in_transformers(tmp_path).chat_template)
    # Saved over it, nothing of the old files is left to be read instead.
    loaded.chat_templates.pop("rag", None)
    for templates in (loaded.chat_templates, NAMED, {"default": "x"}, {}):
        loaded.chat_templates = dict(templates)
        loaded.save(tmp_path, verbose=False)
        assert as_dict(in_transformers(tmp_path).chat_template) == templates
        assert load(tmp_path).chat_templates == templates


@pytest.mark.parametrize(
    "config, field",
    [
        ([{"name": "default"}], "template"),
        ([{"template": "x"}], "name"),
        ([{"name": 5, "template": "x"}], "name"),
        ([{"name": "x", "template": None}], "template"),
        (["x"], "chat_template"),
        ({"default": 5}, "chat_template.default"),
    ],
)
def test_damaged_lists_are_refused(config: Any, field: str, tmp_path: Path) -> None:
    write(tmp_path, config)
    with pytest.raises(FileFormatError, match=f"tokenizer_config.json.*{field}"):
        load(tmp_path)


def test_a_named_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    write(tmp_path, None, f"{MORE}/rag.jinja")
    (tmp_path / MORE / "rag.jinja").write_bytes(b"\xff")
    with pytest.raises(FileFormatError, match=r"rag\.jinja: byte 0: not UTF-8"):
        load(tmp_path)


def test_gguf_has_them_all(tmp_path: Path) -> None:
    tokenizer = BPETokenizer("llama3", normalizer=None).train(["low lower"], 260, verbose=False)
    for templates in (NAMED, {"rag": "R"}, {"default": "D"}):
        tokenizer.chat_templates = dict(templates)
        path = tmp_path / "model.gguf"
        tokenizer.export(path, "gguf")
        assert BPETokenizer.from_file(path).chat_templates == templates
        fields = need("gguf").GGUFReader(path).fields
        found = {
            name: field.contents()
            for name, field in fields.items()
            if name.startswith("tokenizer.chat_template")
        }
        names = found.pop("tokenizer.chat_templates", [])
        assert names == [name for name in templates if name != "default"]
        default = {"tokenizer.chat_template": found.pop("tokenizer.chat_template", None)}
        assert default["tokenizer.chat_template"] == templates.get("default")
        assert found == {f"tokenizer.chat_template.{name}": templates[name] for name in names}
        path.unlink()


def test_gguf_as_its_own_library_writes_it(tmp_path: Path) -> None:
    library = need("gguf")
    writer = library.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    alphabet = list(bpe_tokenizer.build_byte_to_char().values())
    writer.add_token_list([*alphabet, "ab"])
    writer.add_token_types([1] * 257)
    writer.add_token_merges(["a b"])
    listed = [{"name": name, "template": text} for name, text in NAMED.items()]
    writer.add_chat_template(listed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert BPETokenizer.from_file(tmp_path / "model.gguf").chat_templates == NAMED


def test_other_formats_have_the_files_beside_them(tmp_path: Path) -> None:
    tokenizer = BPETokenizer("gpt2", normalizer=None).train(["low lower"], 260, verbose=False)
    tokenizer.chat_templates = dict(NAMED)
    tokenizer.export(tmp_path / "both", "gpt2")
    assert BPETokenizer.from_file(tmp_path / "both").chat_templates == NAMED
    (tmp_path / "both" / MORE).mkdir()
    (tmp_path / "both" / MORE / "x.jinja").write_text("X")
    assert BPETokenizer.from_file(tmp_path / "both").chat_templates == {"x": "X"}


@pytest.mark.filterwarnings("ignore:.*ordinary text")  # small vocabularies
def test_sentencepiece_models_have_the_files_beside_them(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the answer to the question and no\n" * 50, encoding="utf-8")
    options = {"model_type": "bpe", "hard_vocab_limit": False, "minloglevel": 2}
    need("sentencepiece").SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "tokenizer"), vocab_size=60, **options
    )
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": LISTED}))
    read = BPETokenizer.from_file
    assert read(tmp_path / "tokenizer.model").chat_templates == {"default": "D", "rag": "R"}
    (tmp_path / "chat_template.jinja").write_text("file")
    assert read(tmp_path / "tokenizer.model").chat_templates == {"default": "file"}


# -- The object -----------------------------------------------------------------


def test_the_default_one_has_a_name_of_its_own() -> None:
    tokenizer = made({})
    assert tokenizer.chat_template is None
    tokenizer.chat_template = "x"
    tokenizer.chat_templates["rag"] = "r"
    assert tokenizer.chat_templates == {"default": "x", "rag": "r"}
    tokenizer.chat_template = None
    assert tokenizer.chat_template is None and tokenizer.chat_templates == {"rag": "r"}
    tokenizer.chat_template = NAMED  # type: ignore[assignment]  # as transformers has it
    assert tokenizer.chat_templates == NAMED and tokenizer.chat_templates is not NAMED
    assert tokenizer.chat_template == NAMED.get("default")
    for wrong in (5, {"default": 5}, {5: "x"}, ["x"]):
        with pytest.raises(TypeError, match="chat_template must be a str, or a mapping of str"):
            tokenizer.chat_template = wrong  # type: ignore[assignment]
    with pytest.raises(ValueError, match="not valid Jinja"):
        tokenizer.chat_template = {"default": "{% if %}"}  # type: ignore[assignment]
    assert tokenizer.chat_templates == NAMED
    talk = [{"role": "user", "content": "Hi"}]
    for name in ("template", "chat_template"):  # transformers fails on it, too
        with pytest.raises(TypeError, match="got dict; assign named templates to"):
            tokenizer.apply_chat_template(talk, **{name: NAMED})
    assert tokenizer.apply_chat_template(talk, "rag", tokenize=False) == "R None"


def test_one_that_is_not_jinja_is_refused_where_it_is_assigned(tmp_path: Path) -> None:
    need("jinja2")
    tokenizer = made({})
    tokenizer.chat_template = "x"
    with pytest.raises(ValueError, match="not valid Jinja, line 2: Expected an expression"):
        tokenizer.chat_template = "{% if x %}\n{% for %}"
    for name in ("template.jinja", "./my templates/chat.j2"):
        with pytest.raises(ValueError, match=f"name of a file: assign its text, Path.'{name}'."):
            tokenizer.chat_template = name
    assert tokenizer.chat_template == "x"
    # A file with such a template loads, for its ids are of use.
    tokenizer.chat_templates["default"] = "{% if %}"
    tokenizer.save(tmp_path, verbose=False)
    loaded = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    assert loaded == tokenizer
    with pytest.raises(ValueError, match="not valid Jinja, line 1"):
        loaded.apply_chat_template([{"role": "user", "content": "Hi"}])


def test_they_count_for_equality_and_pickles() -> None:
    one, two = made(NAMED), made(dict(reversed(NAMED.items())))
    assert one == two and pickle.dumps(one) == pickle.dumps(two)
    assert pickle.loads(pickle.dumps(two)).chat_templates == NAMED
    twin = one.__copy__()
    twin.chat_templates["rag"] = "other"
    assert one.chat_templates == NAMED
    assert one != twin and one.fingerprint == twin.fingerprint
    assert pickle.dumps(one) != pickle.dumps(twin)


@pytest.mark.parametrize("before", [None, "{{ 1 }}"])
def test_pickles_of_one_template_load(before: str | None) -> None:
    tokenizer = made(as_dict(before))
    rebuild, (cls, packed) = tokenizer.__reduce__()
    *state, templates = json.loads(packed)
    assert templates == as_dict(before)
    old = rebuild(cls, json.dumps([*state, before]).encode())
    assert old == tokenizer and old.chat_template == before


def test_a_registry_keeps_them(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    entry = registry.register(made(NAMED), "named")
    assert registry.register(made(dict(reversed(NAMED.items()))), "named").hash == entry.hash
    assert registry.load("named").chat_templates == NAMED
    assert entry.facts["has_chat_template"] is True


def test_a_difference_names_them() -> None:
    found = compare_tokenizers(made(NAMED), made({**NAMED, "rag": "S\n"})).chat_template
    assert found == ["--- a (rag)", "+++ b (rag)", "@@ -1 +1 @@", "-R {{ documents }}", "+S"]
    found = compare_tokenizers(made({}), made({"default": "D", "rag": "R"})).chat_template
    assert found[:2] == ["--- none", "+++ b"] and "+++ b (rag)" in found


def test_info_names_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for templates, shown in ((NAMED, "default, rag, tool_use"), ({}, "none")):
        made(templates).save(tmp_path, verbose=False)
        main(["info", "--tokenizer", str(tmp_path), "--json"])
        facts = json.loads(capsys.readouterr().out)
        assert facts["chat_templates"] == list(templates)
        assert facts["has_chat_template"] == bool(templates)
        main(["info", "--tokenizer", str(tmp_path)])
        assert re.search(rf"(?m)^chat templates +: {shown}$", capsys.readouterr().out)


# -- The choice -----------------------------------------------------------------


@pytest.mark.parametrize("tools", [None, [], TOOLS])
@pytest.mark.parametrize("asked", [None, "default", "tool_use", "rag", "{{ 'J' }}"])
@pytest.mark.parametrize("templates", SETS[1:5])
def test_the_choice_is_that_of_transformers(
    templates: dict[str, str], asked: str | None, tools: Any, tmp_path: Path
) -> None:
    tokenizer = made(templates)
    tokenizer.save(tmp_path, verbose=False)
    theirs = in_transformers(tmp_path)
    theirs.chat_template = dict(templates)  # of one alone, names count as well
    options = {"tools": tools, "tokenize": False}
    try:
        expected = theirs.apply_chat_template([USER], chat_template=asked, **options)
    except ValueError as error:
        assert "no default" in str(error)
        with pytest.raises(ValueError, match=f"no default.* {', '.join(sorted(templates))}"):
            tokenizer.apply_chat_template([USER], chat_template=asked, **options)
        return
    if asked in ("default", "tool_use", "rag") and asked not in templates:
        assert expected == asked  # Jinja without a tag; here, a name that is not known
        with pytest.raises(ValueError, match=f"unknown chat template {asked!r}.*{[*templates][0]}"):
            tokenizer.apply_chat_template([USER], asked, **options)
        return
    for given in ({"chat_template": asked}, {"template": asked}):
        assert tokenizer.apply_chat_template([USER], **given, **options) == expected


def test_own_names_come_before_those_of_built_in_templates() -> None:
    tokenizer = made({"chatml": "own", "tool_use": "{{ 'T' }}"})
    assert tokenizer.apply_chat_template([USER], "chatml", tokenize=False) == "own"
    assert "<s>" not in tokenizer.apply_chat_template([USER], "alpaca", tokenize=False)
    with pytest.raises(TypeError, match="pass only one"):
        tokenizer.apply_chat_template([USER], "chatml", chat_template="chatml")
