"""The keys of tokenizer.json and their types, against the library whose format it is.

Nothing is listed twice: the objects and keys come from files that hold every component, and
`tokenizers` says of each change whether it is an error.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import regex
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools.formats import components

tokenizers = need("tokenizers")

import tokenizer_files as files  # noqa: E402  (needs the library)

FLAGS = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLIT = {"behavior": "Isolated", "invert": False}
SPECIAL = {"SpecialToken": {"id": "<s>", "type_id": 0}}
TEXTS = [{"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB")]
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
COMPONENTS: dict[str, list[Any]] = {
    "normalizer": [
        *({"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")),
        {"type": "Strip", "strip_left": True, "strip_right": False},
        files.replace("a", "b"),
        files.replace("a", "b", "Regex"),
        {"type": "Prepend", "prepend": "a"},
        {"type": "ByteLevel"},
        files.normalizers("NFC", files.normalizers("Lowercase")),
    ],
    "pre_tokenizer": [
        {"type": "ByteLevel", **FLAGS},
        {"type": "Split", "pattern": {"String": "a"}, **SPLIT},
        {"type": "Split", "pattern": {"Regex": "a"}, **SPLIT},
        files.digits(True),
        files.punctuation(),
        *({"type": kind} for kind in ("Whitespace", "WhitespaceSplit")),
        {"type": "CharDelimiterSplit", "delimiter": "a"},
        METASPACE,
        files.pretokenizers("Whitespace", files.pretokenizers({"type": "ByteLevel", **FLAGS})),
    ],
    "post_processor": [
        {"type": "ByteLevel", **FLAGS},
        {
            "type": "TemplateProcessing",
            "single": [SPECIAL, TEXTS[0]],
            "pair": [SPECIAL, *TEXTS],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}},
        },
        {
            "type": "RobertaProcessing",
            **{"sep": ["<s>", 256], "cls": ["<s>", 256]},
            **{"trim_offsets": True, "add_prefix_space": True},
        },
        {"type": "BertProcessing", "sep": ["<s>", 256], "cls": ["<s>", 256]},
        {"type": "Sequence", "processors": [{"type": "ByteLevel", **FLAGS}]},
    ],
    "decoder": [
        {"type": "ByteLevel", **FLAGS},
        files.replace("a", "b"),
        *({"type": kind} for kind in ("ByteFallback", "Fuse")),
        METASPACE,
        {"type": "BPEDecoder", "suffix": "</w>"},
        files.strip("a", 1, 0),
        files.decoders("Fuse", files.decoders(files.strip("a", 1, 0))),
    ],
    "truncation": [
        {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    ],
    "padding": [
        {
            **{"strategy": strategy, "direction": "Left", "pad_to_multiple_of": None},
            **{"pad_id": 256, "pad_type_id": 0, "pad_token": "<s>"},
        }
        for strategy in ("BatchLongest", {"Fixed": 5})
    ],
}


def whole_file(field: str = "", value: Any = None) -> Any:
    """Return a byte-level file with an added token, and one more field."""
    vocab = {char: i for i, char in enumerate(bpe_tokenizer.build_byte_to_char().values())}
    return {
        **files._skeleton(files.Family(None), files._model(vocab=vocab)),
        "added_tokens": [{"id": 256, **files.token("<s>")}],
        **{"pre_tokenizer": {"type": "ByteLevel", **FLAGS}},
        **{"decoder": {"type": "ByteLevel", **FLAGS}},
        **({field: value} if field else {}),
    }


FILES = {"whole": whole_file()} | {
    f"{field} {value.get('type', value.get('strategy'))} {i}": whole_file(field, value)
    for field, values in COMPONENTS.items()
    for i, value in enumerate(values)
}


def objects(node: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of a file and its place, except the vocabulary."""
    if isinstance(node, dict):
        yield place, node
        for key, value in node.items():
            if key != "vocab":
                yield from objects(value, f"{place}.{key}".strip("."))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from objects(value, f"{place}[{i}]")


def changes(file: Any, change: Callable[[dict[str, Any]], Iterator[Any]]) -> Iterator[Any]:
    """Yield (file, place, what) for every change that `change` makes to each object in turn."""
    for place, node in objects(file):
        for what in change(copy.copy(node)):
            changed = json.loads(json.dumps(file))
            target = dict(objects(changed))[place]
            target.clear()
            target.update(what[-1])
            yield changed, place, what[0]


def problem_here(folder: Path, file: Any) -> FileFormatError | None:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    try:
        BPETokenizer.from_file(path)
    except FileFormatError as error:
        return error
    return None


def refused_there(file: Any) -> bool:
    try:
        tokenizers.Tokenizer.from_str(json.dumps(file))
    except Exception:  # noqa: BLE001  # it has no class of its own
        return True
    return False


@pytest.mark.filterwarnings("ignore:.*ordinary text")  # small vocabularies
@pytest.mark.parametrize("name", FILES)
def test_every_file_loads_in_both(tmp_path: Path, name: str) -> None:
    assert problem_here(tmp_path, FILES[name]) is None and not refused_there(FILES[name])


def test_every_component_that_is_read_is_among_these() -> None:
    for field, known in (
        ("normalizer", components._NORMALIZERS.keys() - {"SentencePiece"}),
        ("pre_tokenizer", components._PRE_TOKENIZERS.keys()),
        ("decoder", components._DECODERS.keys()),
    ):
        tried = {value["type"] for value in COMPONENTS[field]}
        assert tried == known | {"Sequence"}


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("name", FILES)
def test_an_unknown_key_is_refused_at_every_place(tmp_path: Path, name: str, first: bool) -> None:
    def add(node: dict[str, Any]) -> Iterator[Any]:
        yield "zzz", {"zzz": 1, **node} if first else {**node, "zzz": 1}

    places = 0
    for changed, place, _ in changes(FILES[name], add):
        error = problem_here(tmp_path, changed)
        assert error is not None, place  # whether or not it is refused there
        assert "zzz" in str(error) and error.field.startswith(place)
        places += 1
    assert places >= 4


def test_the_other_library_refuses_them_at_the_top(tmp_path: Path) -> None:
    file = {**whole_file(), "split_patern": "a"}
    assert refused_there(file)
    assert "split_patern" in str(problem_here(tmp_path, file))


VALUES: list[Any] = [None, True, 0, 7, -1, 0.5, "a", [], {}]


@pytest.mark.filterwarnings("ignore:.*ordinary text")  # small vocabularies
@pytest.mark.parametrize("name", FILES)
def test_a_wrong_type_is_refused_where_it_is_there(tmp_path: Path, name: str) -> None:
    """Also where a key has no effect on ids, as `trim_offsets` of a decoder."""

    def replace(node: dict[str, Any]) -> Iterator[Any]:
        for key in node:
            for value in VALUES:
                yield f"{key} = {value!r}", {**node, key: value}

    field = name.split()[0]
    lenient = {
        "added_tokens = None",  # none
        *("type = None", "Sequence = {}", "SpecialToken = {}", "id = 'a'", "type_id = -1"),
    }
    wrong = [
        (place, what)
        for changed, place, what in changes(FILES[name], replace)
        if (name == "whole" or place.startswith(field))
        and what not in lenient
        and not problem_here(tmp_path, changed)
        and refused_there(changed)
    ]
    assert wrong == []


MISSPELLED = [
    ("pre_tokenizer", {"type": "ByteLevel", "use_rexeg": False}, "'use_regex'"),
    ("normalizer", {"type": "Sequence", "normalizer": []}, "'normalizers'"),
    ("decoder", {"type": "Metaspace", "replacment": "▁"}, "'replacement'"),
    ("added_token", [], "'added_tokens'"),
    ("post_processor", {"type": "Sequence", "steps": []}, "known are type, processors"),
]


@pytest.mark.parametrize(("field", "value", "hint"), MISSPELLED, ids=lambda value: str(value)[:40])
def test_the_nearest_key_is_named(tmp_path: Path, field: str, value: Any, hint: str) -> None:
    assert hint in str(problem_here(tmp_path, whole_file(field, value)))


OLDER = {
    "Metaspace": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
    "Metaspace with str_rep": {
        **{"type": "Metaspace", "replacement": "▁", "str_rep": "▁", "add_prefix_space": True}
    },
    "Metaspace with both": {
        **{"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
        **{"prepend_scheme": "first"},
    },
    "Metaspace split by default": {**METASPACE, "split": None},
    "ByteLevel": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
    "Punctuation": {"type": "Punctuation"},
}


@pytest.mark.parametrize("name", OLDER)
def test_keys_of_older_files_mean_what_they_mean_there(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tokenizer.json"
    step = files.pretokenizers(OLDER[name], files.PLAIN_BYTES)
    file = {**files.probe(), "pre_tokenizer": step}
    path.write_text(json.dumps(file), encoding="utf-8")
    ours, theirs = BPETokenizer.from_file(path), tokenizers.Tokenizer.from_file(str(path))
    for text in ("a b", " a  b!c", "", "▁a"):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids


def test_a_scheme_that_contradicts_an_older_key_is_refused(tmp_path: Path) -> None:
    file = whole_file("pre_tokenizer", {**METASPACE, "add_prefix_space": False})
    assert refused_there(file)
    assert "contradicts" in str(problem_here(tmp_path, file))


def test_nested_sequences_of_bytes_are_read(tmp_path: Path) -> None:
    split = {"type": "Split", "pattern": {"Regex": r"\s+|\S+"}, **SPLIT}
    file = whole_file(
        "pre_tokenizer", files.pretokenizers(files.pretokenizers(split), files.PLAIN_BYTES)
    )
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    ours, theirs = BPETokenizer.from_file(path), tokenizers.Tokenizer.from_file(str(path))
    assert ours.split_pattern == r"\s+|\S+"
    assert ours.encode("ab  é") == theirs.encode("ab  é", add_special_tokens=False).ids


# -- The module alone -----------------------------------------------------------

# Lists of files come by stdin, as for each there would be a process otherwise.
OUTCOMES = """
import json, sys, warnings
sys.path[:0] = sys.argv[1:]
import bpe_tokenizer
assert bpe_tokenizer.__file__.startswith(sys.argv[1])
assert "bpe_tokenizer_tools" not in sys.modules and not bpe_tokenizer.ACCELERATED
warnings.simplefilter("ignore")
exec(sys.stdin.readline().encode().decode("unicode_escape"))
for line in sys.stdin:
    open("tokenizer.json", "w", encoding="utf-8").write(line)
    print(json.dumps(outcome("tokenizer.json")))
"""
OUTCOME = """
def outcome(path):
    try:
        tokenizer = bpe_tokenizer.BPETokenizer.from_file(path)
        ids = [tokenizer.encode(text, True, "all") for text in ("a b<s>", " x  yz!", "")]
        return [ids, tokenizer.decode(sum(ids, []))]
    except Exception as error:
        return type(error).__name__, str(error)
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the module, and one of `regex`."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copy(bpe_tokenizer.__file__, folder)
    shutil.copytree(Path(regex.__file__).parent, folder / "regex")
    return folder


def surprises(file: Any) -> Iterator[Any]:
    """Yield a file with each kind of surprise at each place."""

    def change(node: dict[str, Any]) -> Iterator[Any]:
        yield "an unknown key", {**node, "zzz": 1}
        for key in node:
            yield "a key less", {each: value for each, value in node.items() if each != key}
            yield (
                "a misspelled key",
                {f"{each}s" * (each == key) or each: node[each] for each in node},
            )
            for value in (None, 7, "a", {}):
                yield "another value", {**node, key: value}

    yield file
    for changed, _, _ in changes(file, change):
        yield changed


BYTE_LEVEL = ("whole", "normalizer NFC", "pre_tokenizer Split", "post_processor T", "truncation L")
SOME = [
    pytest.param(name, marks=[] if name.startswith(BYTE_LEVEL) else [pytest.mark.slow])
    for name in FILES
]


@pytest.mark.parametrize("name", SOME)
def test_the_module_alone_refuses_what_the_whole_refuses(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"bpe_tokenizer": bpe_tokenizer}
    exec(OUTCOME, names)
    written = [json.dumps(file) for file in surprises(FILES[name])]
    shown = OUTCOME.encode("unicode_escape").decode()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", OUTCOMES, str(alone)],
        input="\n".join([shown, *written]),
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(written) > 20
    refused = equal = 0
    for one, text in zip(found, written):
        Path("tokenizer.json").write_text(text, encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = [*names["outcome"]("tokenizer.json")]
        if "needs bpe_tokenizer_tools beside" in str(one[1]):
            refused += 1
        else:
            assert one == whole, text
            equal += 1
    # A file without parts that only the tools read must be equal with nearly all surprises.
    assert equal > 4 * refused or "needs bpe_tokenizer_tools beside" in str(found[0][1])
