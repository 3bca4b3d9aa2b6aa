"""Saving and loading: exact, atomic, and wary of what strangers wrote."""

from __future__ import annotations

import copy
import errno
import io
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer as bpe
from bpe_tokenizer import AddedToken, BPETokenizer, FileFormatError

SAMPLE = (
    "The quick brown fox's tail, isn't 12345 lazy.\n\n    def f(x):\n\treturn x * 2  # ok\r\n"
    "Grüße aus Köln! Crème brûlée e\u0301. 世界你好,今天天气很好。한국어 Привет 🙂👍🏽  \n "
)
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.text(st.sampled_from("aAdeEst'll  12345\n\r\t.,!/é\u0301世<|>"), max_size=30),
    st.lists(st.sampled_from(["<s>", "</s>", "<t>", " a", " ", "\n", "e\u0301", "zz"])).map(
        "".join
    ),
)


def trained(
    pattern: str = "llama3", special: Any = ("<s>", "</s>"), **options: Any
) -> BPETokenizer:
    tokenizer = BPETokenizer(pattern, **options)
    return tokenizer.train(SAMPLE * 3, 330, special_tokens=special, verbose=False, num_workers=1)


def load(folder: Path) -> BPETokenizer:
    return BPETokenizer.from_pretrained(folder, verbose=False)


def saved(folder: Path, **options: Any) -> dict[str, Any]:
    """Save a small tokenizer and return its tokenizer.json."""
    trained(**options).save(folder, verbose=False)
    return json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))


def write(folder: Path, data: Any, name: str = "tokenizer.json") -> None:
    (folder / name).write_text(json.dumps(data), encoding="utf-8")


# -- What is saved comes back -------------------------------------------------


def assert_comes_back(tokenizer: BPETokenizer, folder: Path) -> None:
    tokenizer.save(folder, verbose=False)
    back = load(folder)
    assert back == tokenizer and back.fingerprint == tokenizer.fingerprint
    assert back.get_vocab() == tokenizer.get_vocab() and back.merges == tokenizer.merges
    assert back.added_tokens == tokenizer.added_tokens
    assert back.normalizer == tokenizer.normalizer
    for role in ("bos", "eos", "pad", "unk"):
        assert getattr(back, f"{role}_token") == getattr(tokenizer, f"{role}_token")
    for text in (SAMPLE, "<s>a</s>", ""):
        ids = tokenizer.encode(text, True, "all")
        assert back.encode(text, True, "all") == ids
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    back.save(folder, verbose=False)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


@pytest.mark.parametrize("pattern", sorted(bpe.SPLIT_PATTERNS))
@pytest.mark.parametrize("form", ["NFC", "NFKD", None])
def test_every_pattern_comes_back(tmp_path: Path, pattern: str, form: str | None) -> None:
    assert_comes_back(trained(pattern, normalizer=form), tmp_path)


CUSTOM = [
    r"[a-z]+",
    r"\w+|\s+|[^\w\s]+",
    r"\S+$|\s",
    r"\d{1,3}+|\D",
    r"(?i:the)|.",
    r"a++b?|.+",
    r"a*",
    r"[\s\S]+",
    r"\bthe\b|.",
    r"(?<=a)b|.",
    r"^a|b",
    r"(a)(b)",
    r"\X",
    r"(?m)^.*$",
    r"[^\]\[]+",
    r"\p{Han}+|x",
]


@pytest.mark.parametrize("pattern", CUSTOM)
def test_a_custom_pattern_comes_back_or_is_not_saved(tmp_path: Path, pattern: str) -> None:
    tokenizer = trained(pattern)
    try:
        tokenizer.save(tmp_path / "new", verbose=False)
    except ValueError as error:
        assert "split pattern" in str(error)
        assert not (tmp_path / "new" / "tokenizer.json").exists()
        return
    back = load(tmp_path / "new")
    assert back.fingerprint == tokenizer.fingerprint

    @settings(max_examples=examples(60))
    @given(TEXT)
    def check(text: str) -> None:
        assert back.encode(text) == tokenizer.encode(text)

    check()
    assert_comes_back(tokenizer, tmp_path / "again")


@pytest.mark.parametrize(
    "special",
    [
        None,
        {"<s>": 256, "</s>": 258},
        {"<s>": 1000},
        {"<s>": 1000, "</s>": 1001},
        {"<s>": 256, "</s>": 5000, "<t>": None},
        {"<s>": 2**31 - 1},
    ],
)
def test_ids_anywhere_come_back(tmp_path: Path, special: Any) -> None:
    assert_comes_back(trained(special=special), tmp_path)


def test_added_tokens_with_all_flags_come_back(tmp_path: Path) -> None:
    tokenizer = BPETokenizer()
    for i, flags in enumerate(itertools.product([False, True], repeat=5)):
        tokenizer.add_special_tokens([AddedToken(f'<{i}>é\n"\\', 500 + 3 * i, *flags)])
    assert_comes_back(tokenizer, tmp_path)


@pytest.mark.parametrize(
    "content", ["Ġ", "é", " ", "\n", "a b", "\x00\x01", "Ċa", "\U0010ffff", "世"]
)
def test_odd_added_tokens_come_back(tmp_path: Path, content: str) -> None:
    tokenizer = BPETokenizer()
    try:
        tokenizer.add_special_tokens([content])
    except ValueError:  # already the printable form of a byte
        assert len(content) == 1 and content in tokenizer.get_vocab()
        return
    assert_comes_back(tokenizer, tmp_path)
    assert load(tmp_path).encode(f"x{content}", allowed_special="all") == [120, 256]


def test_roles_come_back(tmp_path: Path) -> None:
    tokenizer = trained(special=["<s>", "</s>", "<t>"])
    tokenizer.pad_token, tokenizer.bos_token = "<t>", None
    assert_comes_back(tokenizer, tmp_path)


@pytest.mark.parametrize("template", ["", "{{ 'é' }}\n", "a\r\nb", "\r", "\u2028\x85 \ufeff"])
def test_a_chat_template_comes_back_to_the_letter(tmp_path: Path, template: str) -> None:
    tokenizer = trained()
    tokenizer.chat_template = template
    tokenizer.save(tmp_path, verbose=False)
    assert load(tmp_path).chat_template == template


def test_a_chat_template_that_is_gone_does_not_come_back(tmp_path: Path) -> None:
    tokenizer = trained()
    tokenizer.chat_template = "{{ messages }}"
    tokenizer.save(tmp_path, verbose=False)
    tokenizer.chat_template = None
    assert_comes_back(tokenizer, tmp_path)


def test_names_and_places(tmp_path: Path, capsys: Any) -> None:
    tokenizer = trained()
    tokenizer.save(tmp_path / "a" / "b", name="mine", verbose=False)
    assert BPETokenizer.from_pretrained(tmp_path / "a" / "b", verbose=False) == tokenizer
    assert capsys.readouterr() == ("", "")
    tokenizer.save(str(tmp_path))
    BPETokenizer.from_pretrained(str(tmp_path))
    assert capsys.readouterr() == ("", "")  # nobody watches
    tokenizer.save(str(tmp_path), verbose=True)
    BPETokenizer.from_pretrained(str(tmp_path), verbose=True)
    out, err = capsys.readouterr()
    assert out == "" and err.count(str(tmp_path)) == 2
    with pytest.raises(NotADirectoryError):
        tokenizer.save(tmp_path / "tokenizer.json", verbose=False)
    for missing in (tmp_path / "nothing", tmp_path / "a"):
        with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
            load(missing)


# -- What HuggingFace made ----------------------------------------------------


def byte_level(**flags: Any) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": True,
        **flags,
    }


def split(pattern: str) -> dict[str, Any]:
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [step, byte_level(use_regex=False)]}


TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {
        "<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]},
        "</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]},
    },
}
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {"pre_tokenizer": byte_level()},
    "prefix space": {"pre_tokenizer": byte_level(add_prefix_space=True)},
    "trim": {"pre_tokenizer": byte_level(), "post_processor": byte_level(trim_offsets=True)},
    "trim prefix": {
        "pre_tokenizer": byte_level(add_prefix_space=True),
        "post_processor": byte_level(add_prefix_space=True, trim_offsets=True),
    },
    "no regex": {"pre_tokenizer": byte_level(use_regex=False)},
    "split": {"pre_tokenizer": split(LLAMA3)},
    "split with line ends": {"pre_tokenizer": split(r"\S+$|\s+|\S")},
    "split string": {
        "pre_tokenizer": {
            **split(""),
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"String": " "},
                    "behavior": "Isolated",
                    "invert": False,
                },
                byte_level(use_regex=False),
            ],
        }
    },
    "ignore merges": {"pre_tokenizer": split(LLAMA3), "ignore_merges": True},
    "template": {"pre_tokenizer": byte_level(), "post_processor": TEMPLATE},
    "llama3": {
        "pre_tokenizer": split(LLAMA3),
        "ignore_merges": True,
        "post_processor": {"type": "Sequence", "processors": [byte_level(), TEMPLATE]},
    },
    "nfc": {"pre_tokenizer": byte_level(), "normalizer": {"type": "NFC"}},
    "nfkc": {
        "pre_tokenizer": byte_level(),
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}]},
    },
    "string merges": {"pre_tokenizer": byte_level(), "string_merges": True},
}


def make_with_huggingface(folder: Path, kind: dict[str, Any]) -> Any:
    """Train with HuggingFace, change the file as a kind says, load it there."""
    tokenizers = need("tokenizers")
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420,
        min_frequency=1,
        show_progress=False,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    theirs.train_from_iterator([SAMPLE, SAMPLE], trainer)
    theirs.add_special_tokens([tokenizers.AddedToken("<t>", lstrip=True)])
    theirs.add_tokens(["zz", tokenizers.AddedToken("é z", single_word=True, rstrip=True)])
    data = json.loads(theirs.to_str())
    for key in ("pre_tokenizer", "post_processor", "normalizer"):
        data[key] = kind.get(key, data[key])
    data["model"]["ignore_merges"] = kind.get("ignore_merges", False)
    if kind.get("string_merges"):
        data["model"]["merges"] = [" ".join(merge) for merge in data["model"]["merges"]]
    write(folder, data)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_files_made_by_huggingface_give_the_same(tmp_path: Path, name: str) -> None:
    theirs = make_with_huggingface(tmp_path, KINDS[name])
    ours = load(tmp_path)
    ours.save(tmp_path / "again", verbose=False)
    again = load(tmp_path / "again")
    assert again == ours
    assert ours.get_vocab() == theirs.get_vocab()
    rewritten = type(theirs).from_file(str(tmp_path / "again" / "tokenizer.json"))

    @settings(max_examples=examples(100))
    @given(TEXT, st.booleans())
    @example(" <t>", False)
    @example("0 <t> a", True)
    @example("  a", False)
    def check(text: str, special: bool) -> None:
        expected = theirs.encode(text, add_special_tokens=special)
        result = ours.encode_with_offsets(text, special, "all")
        assert result.input_ids == expected.ids == again.encode(text, special, "all")
        assert rewritten.encode(text, add_special_tokens=special).ids == expected.ids
        assert result.offsets == expected.offsets
        assert ours.convert_ids_to_tokens(expected.ids) == list(
            map(theirs.id_to_token, expected.ids)
        )
        assert ours.decode(expected.ids) == theirs.decode(expected.ids, skip_special_tokens=False)
        assert ours.decode(expected.ids, True) == theirs.decode(expected.ids)

    check()


def test_ids_that_huggingface_does_not_believe_are_refused(tmp_path: Path) -> None:
    tokenizers = need("tokenizers")
    data = saved(tmp_path, special=None)
    size = len(data["model"]["vocab"])
    data["model"]["vocab"]["<a>"] = 1000
    flags = {
        "special": True,
        "normalized": False,
        "lstrip": False,
        "rstrip": False,
        "single_word": False,
    }
    data["added_tokens"] = [{"id": 1000, "content": "<a>", **flags}]
    write(tmp_path, data)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.add_special_tokens(["<b>", "<c>"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    with pytest.raises(FileFormatError) as caught:
        load(tmp_path)  # the file says 1001, and HuggingFace itself gives another id
    assert theirs.token_to_id("<b>") == size + 1
    assert "added_tokens[1].id" in caught.value.field and str(size + 1) in caught.value.problem


# -- What cannot be represented is refused ------------------------------------

UNSUPPORTED: list[tuple[str, Any, str]] = [
    ("model", {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {}}, "model.type"),
    ("model", {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]]}, "model"),
    ("model", {"type": "WordLevel", "vocab": {}, "unk_token": "x"}, "model.type"),
    ("model.byte_fallback", "yes", "model.byte_fallback"),
    ("model.dropout", 0.1, "model.dropout"),
    ("normalizer", {"type": "BertNormalizer", "clean_text": True}, "normalizer"),
    ("normalizer", {"type": "Lowercas"}, "normalizer"),
    ("normalizer", {"type": "Sequence"}, "normalizer"),
    ("pre_tokenizer", {"type": "BertPreTokenizer"}, "pre_tokenizer"),
    (
        "pre_tokenizer",
        {
            "type": "Sequence",
            "pretokenizers": [{**split("a")["pretokenizers"][0], "behavior": "Isolate"}],
        },
        "behavior",
    ),
    *(
        ("pre_tokenizer", split(pattern), "Regex")
        for pattern in (
            "(",
            "[a&&]",
            r"\p{Nothing}",
            "a" * 100_000,
            "(" * 3000,
            r"(?:(?:a{9999}){9999}){999}",
            r"\K",
        )
    ),
    ("decoder", {"type": "WordPiece", "prefix": "##", "cleanup": True}, "decoder"),
    (
        "post_processor",
        {"type": "RobertaProcessing", "sep": ["</s>"], "cls": ["<s>", 0]},
        "post_processor",
    ),
    ("version", "2.0", "version"),
]


@pytest.mark.parametrize(
    ("place", "value", "field"), UNSUPPORTED, ids=lambda value: str(value)[:60]
)
def test_an_unsupported_part_is_refused_by_name(
    tmp_path: Path, place: str, value: Any, field: str
) -> None:
    data = saved(tmp_path)
    node = data
    *path, last = place.split(".")
    for key in path:
        node = node[key]
    node[last] = value
    write(tmp_path, data)
    with pytest.raises(FileFormatError) as caught:
        load(tmp_path)
    assert caught.value.path == str(tmp_path / "tokenizer.json")
    assert field in caught.value.field
    assert caught.value.path in str(caught.value) and caught.value.field in str(caught.value)


def test_invert_is_not_ignored(tmp_path: Path) -> None:
    """With Isolated, inverting exchanges gaps and matches, which are both kept: no change."""
    tokenizers = need("tokenizers")
    data = saved(tmp_path)
    data["pre_tokenizer"] = split(r"[a-z]+")
    data["pre_tokenizer"]["pretokenizers"][0]["invert"] = True
    write(tmp_path, data)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    try:
        ours = load(tmp_path)
    except FileFormatError:
        return
    for text in (SAMPLE, "ab12cd  ", "12"):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids


# -- Damaged and hostile files ------------------------------------------------


def loads_or_is_refused(folder: Path) -> bool:
    """Load; the one error allowed is FileFormatError.  Return whether it loaded."""
    try:
        tokenizer = load(folder)
    except FileFormatError as error:
        assert Path(error.path).parent == folder or Path(error.path) == folder
        assert len(str(error)) < 1000
        return False
    errors = "strict" if tokenizer.components is None else "replace"  # others may lose bytes
    for text in (SAMPLE, "<s>a</s>"):
        tokenizer.decode(tokenizer.encode(text, True, "all"), errors=errors)
    tokenizer.get_vocab()
    assert pickle_free(tokenizer)
    return True


def pickle_free(tokenizer: BPETokenizer) -> bool:
    return copy.copy(tokenizer) == tokenizer and len(repr(tokenizer)) < 500


@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"],
)
def test_a_truncated_file_is_refused(tmp_path: Path, name: str) -> None:
    tokenizer = trained()
    tokenizer.chat_template = "{{ messages }} é"
    tokenizer.save(tmp_path, verbose=False)
    whole = (tmp_path / name).read_bytes()
    for size in range(0, len(whole) - 1, 97):
        (tmp_path / name).write_bytes(whole[:size])
        assert loads_or_is_refused(tmp_path) == (name == "chat_template.jinja")


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe{}",
        b"null",
        b"[]",
        b"5",
        b'"x"',
        b"{",
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b"NaN",
        b"\x00",
        b'{"model": ' + b"9" * 10_000 + b"}",
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda content: repr(content[:12]),
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    saved(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert not loads_or_is_refused(tmp_path) or name != "tokenizer.json"


WRONG: list[Any] = [
    None,
    True,
    -1,
    3,
    1.5,
    float("nan"),
    10**30,
    "x",
    "",
    "\ud800",
    [],
    [1],
    ["a", "b"],
    {},
    {"a": 1},
    [[[]]],
]


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value; of long lists and mappings only the first few."""
    yield path
    if isinstance(node, dict):
        for key in list(node)[:14]:
            yield from paths(node[key], (*path, key))
    elif isinstance(node, list):
        for i in range(min(3, len(node))):
            yield from paths(node[i], (*path, i))


def replaced(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    out = copy.copy(data)
    out[path[0]] = replaced(data[path[0]], path[1:], value)
    return out


def removed(data: Any, path: tuple[Any, ...]) -> Any:
    out = copy.copy(data)
    if len(path) == 1:
        del out[path[0]]
    else:
        out[path[0]] = removed(data[path[0]], path[1:])
    return out


@pytest.mark.filterwarnings(
    "ignore:.*no token for these characters"
)  # bytes without a byte-level decoder
@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
)
def test_wrong_types_anywhere_are_refused_or_harmless(tmp_path: Path, name: str) -> None:
    full_tokenizer().save(tmp_path, verbose=False)
    data = json.loads((tmp_path / name).read_text(encoding="utf-8"))
    failures = []
    for path in paths(data):
        changes = [replaced(data, path, value) for value in WRONG]
        for change in [*changes, *([removed(data, path)] if path else [])]:
            write(tmp_path, change, name)
            try:
                loads_or_is_refused(tmp_path)
            except Exception as error:  # noqa: BLE001  # any other exception is the failure
                shown = next((v for v, c in zip(WRONG, changes) if c is change), "(removed)")
                failures.append(f"{path} = {shown!r}: {type(error).__name__}: {error!s:.80}")
    assert failures == []


def full_tokenizer() -> BPETokenizer:
    """A tokenizer whose file holds every component."""
    tokenizer = BPETokenizer("llama3")
    tokenizer.train("ab abc " * 9, 259, verbose=False, num_workers=1)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_special_tokens(
        [AddedToken("<t>", lstrip=True, special=False), AddedToken("<u>", 999)]
    )
    return tokenizer


def edited(folder: Path, edit: Any) -> None:
    full_tokenizer().save(folder, verbose=False)
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    edit(data)
    write(folder, data)


HOSTILE: dict[str, Any] = {
    "negative id": lambda d: d["model"]["vocab"].update(ab=-1),
    "huge id": lambda d: d["model"]["vocab"].update(ab=2**31),
    "very huge id": lambda d: d["model"]["vocab"].update(ab=10**400),
    "id twice": lambda d: d["model"]["vocab"].update(ab=97),
    "bool id": lambda d: d["model"]["vocab"].update(ab=True),
    "surrogate in a token": lambda d: d["model"]["vocab"].update({"\ud800": 5000}),
    "byte missing": lambda d: d["model"]["vocab"].pop("a"),
    "unknown left": lambda d: d["model"]["merges"].append(["zq", "a"]),
    "unknown result": lambda d: d["model"]["merges"].append(["z", "q"]),
    "merge of three": lambda d: d["model"]["merges"].append(["a", "b", "c"]),
    "merge string of three": lambda d: d["model"]["merges"].append("a b c"),
    "empty part": lambda d: d["model"]["merges"].append(["", "a"]),
    "added id negative": lambda d: d["added_tokens"][0].update(id=-5),
    "added id huge": lambda d: d["added_tokens"][0].update(id=2**40),
    "added id of another": lambda d: d["added_tokens"][0].update(id=97),
    "added empty": lambda d: d["added_tokens"][0].update(content=""),
    "added twice": lambda d: d["added_tokens"].append({**d["added_tokens"][0], "lstrip": True}),
    "added with a surrogate": lambda d: d["added_tokens"][0].update(content="<\ud800>"),
    "template id": lambda d: d["post_processor"]["special_tokens"]["<s>"].update(ids=[12345]),
    "template without text": lambda d: d["post_processor"].update(single=[]),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_values_are_refused(tmp_path: Path, name: str) -> None:
    edited(tmp_path, HOSTILE[name])
    with pytest.raises(FileFormatError) as caught:
        load(tmp_path)
    assert caught.value.field


def test_a_token_listed_twice_alike_is_read_as_once(tmp_path: Path) -> None:
    edited(tmp_path, lambda d: None)
    once = load(tmp_path)
    edited(tmp_path, lambda d: d["added_tokens"].append(d["added_tokens"][0]))
    assert load(tmp_path) == once


def test_merges_that_make_a_circle_end(tmp_path: Path) -> None:
    """a+b and b+a, each also built from the other's parts, and one merge twice."""

    def edit(data: dict[str, Any]) -> None:
        vocab = data["model"]["vocab"]
        for i, token in enumerate(["ba", "aba", "bab", "abab", "aa", "aaaa"]):
            vocab[token] = 2000 + i
        pairs = [
            "a b",
            "b a",
            "ab a",
            "a ba",
            "b ab",
            "ba b",
            "ab ab",
            "a bab",
            "a a",
            "aa aa",
            "a b",
        ]
        data["model"]["merges"] += [pair.split(" ") for pair in pairs]

    edited(tmp_path, edit)
    tokenizer = load(tmp_path)
    for text in ("ab" * 5000, "a" * 5000, "abaab" * 500):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_damaged_configs_are_refused(tmp_path: Path) -> None:
    for change in (
        {"bos_token": 5},
        {"eos_token": {"content": 5}},
        {"added_tokens_decoder": {"97": "<s>"}},
        {"added_tokens_decoder": {"x": {"content": "<s>"}}},
        {"added_tokens_decoder": {"²": {"content": "<s>"}}},
        {"padding_side": "up"},
        {"chat_template": 5},
    ):
        full_tokenizer().save(tmp_path, verbose=False)
        config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
        write(tmp_path, {**config, **change}, "tokenizer_config.json")
        with pytest.raises(FileFormatError):
            load(tmp_path)


def test_nothing_in_a_template_is_run_by_loading(tmp_path: Path) -> None:
    full_tokenizer().save(tmp_path, verbose=False)
    (tmp_path / "chat_template.jinja").write_text("{{ 1/0 }}{% raise %}", encoding="utf-8")
    assert load(tmp_path).chat_template == "{{ 1/0 }}{% raise %}"


# -- Saving is atomic ---------------------------------------------------------


def no_space(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


class FullDisk(io.BufferedWriter):
    """A file on a disk that fills up."""

    write = no_space


def fail_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", no_space)


def fail_first_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", no_space)


def fail_write(monkeypatch: pytest.MonkeyPatch) -> None:
    real = open

    def full_open(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        opened = real(file, mode, *args, **options)
        return FullDisk(opened.detach()) if "w" in mode else opened

    monkeypatch.setattr("builtins.open", full_open)


@pytest.mark.parametrize("fail", [fail_fsync, fail_first_replace, fail_write])
def test_a_failed_save_leaves_the_old_files(tmp_path: Path, fail: Any) -> None:
    old = trained()
    old.save(tmp_path, verbose=False)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    new = trained("gpt2", special={"<s>": 9000})
    with pytest.MonkeyPatch.context() as monkeypatch:
        fail(monkeypatch)
        with pytest.raises(OSError, match="space"):
            new.save(tmp_path, verbose=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert load(tmp_path) == old
    new.save(tmp_path, verbose=False)
    assert load(tmp_path) == new


def test_a_save_that_stops_half_way_leaves_no_temporary_files(tmp_path: Path) -> None:
    old = trained()
    old.save(tmp_path, verbose=False)
    names = sorted(path.name for path in tmp_path.iterdir())
    real, calls = os.replace, []

    def second_fails(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 2:
            no_space()
        real(*args)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "replace", second_fails)
        with pytest.raises(OSError, match="space"):
            old.save(tmp_path, verbose=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert load(tmp_path) == old


def test_every_file_is_flushed_before_the_first_is_replaced(tmp_path: Path) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda fd: (events.append("fsync"), fsync(fd)) and None)
        monkeypatch.setattr(
            os, "replace", lambda *paths: (events.append("replace"), replace(*paths)) and None
        )
        trained().save(tmp_path, verbose=False)
    assert events.index("replace") >= 3
    assert set(events[: events.index("replace")]) == {"fsync"}


def test_a_lone_surrogate_in_a_template_leaves_the_old_files(tmp_path: Path) -> None:
    tokenizer = trained()
    tokenizer.save(tmp_path, verbose=False)
    before = sorted(path.name for path in tmp_path.iterdir())
    tokenizer.chat_template = "\ud800"
    with pytest.raises(ValueError):
        tokenizer.save(tmp_path, verbose=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_what_is_no_file_and_no_directory_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="expected a file or a directory"):
        BPETokenizer.from_file(tmp_path / "pipe")
