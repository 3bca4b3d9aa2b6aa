"""Every warning points to the line that called the library, with either engine.

The test goes through all warnings: a function that warns and isn't in `CASES` fails it.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import published_shapes as shapes
import pytest
from conftest import ROOT
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, ChatTemplate, count_pretokens
from bpe_tokenizer_tools import scale
from bpe_tokenizer_tools.corpus.token_counts import files_of
from bpe_tokenizer_tools.dropin.transformers import patch_tokenizer, patched_transformers

need("numpy")  # which measuring tokenizers needs

from bpe_tokenizer_tools.evaluation import evaluate, file_groups  # noqa: E402
from bpe_tokenizer_tools.evaluation.sweep import sweep  # noqa: E402

TEXT = "low lower lowest, new newer newest " * 20
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
ARGUMENTS = "{% for k in messages[0].function_call.arguments.items() %}{{ k }}{% endfor %}"
NUMBERS = itertools.count()
USER = {"role": "user", "content": "hello"}
CALL = {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a": 1}'}}


def trained(**options: Any) -> BPETokenizer:
    return BPETokenizer().train(TEXT, 280, verbose=False, **options)


# -- A corpus -----------------------------------------------------------------------


def train_on_a_path(_: Path) -> None:
    BPETokenizer().train(["missing.txt", TEXT], 260, verbose=False)


def train_on_a_path_in_processes(_: Path) -> None:
    BPETokenizer().train(["missing.txt", TEXT], 260, num_workers=2, verbose=False)


def train_by_style_on_a_path(_: Path) -> None:
    BPETokenizer().train(["missing.txt", TEXT], 280, style="sentencepiece", verbose=False)


def count_a_path(_: Path) -> None:
    count_pretokens(["missing.txt", TEXT])


def sweep_on_a_path(_: Path) -> None:
    sweep(["missing.txt", TEXT], TEXT, [260])


def extend_by_a_path(_: Path) -> None:
    trained().extend(["missing.txt", TEXT], add=1, held_out={}, verbose=False)


def mixed(folder: Path) -> Path:
    (folder / "a.txt").write_text(TEXT, encoding="utf-8")
    (folder / "b.bin").write_bytes(b"\xff\x00")
    return folder


def train_on_a_directory(folder: Path) -> None:
    BPETokenizer().train(mixed(folder), 260, verbose=False)


def count_a_directory(folder: Path) -> None:
    count_pretokens([mixed(folder)])


def list_a_directory(folder: Path) -> None:
    files_of(mixed(folder))


def evaluate_a_directory(folder: Path) -> None:
    evaluate({"a": trained()}, file_groups([str(mixed(folder))]))


def count_a_directory_in_a_job(folder: Path) -> None:
    scale.count_pretokens(mixed(folder))


def count_by_an_old_name(folder: Path) -> None:
    scale.count_pretokens(mixed(folder) / "a.txt", workers=1)  # type: ignore[call-arg]


# -- A batch ------------------------------------------------------------------------


def pad_a_call(_: Path) -> None:
    trained()(["low", "lowest newest"], padding=True)


def pad_a_batch(_: Path) -> None:
    trained().encode_batch(["low", "lowest newest"], padding=True)


def pad_to_a_tensor(_: Path) -> None:
    need("numpy")
    trained()(["low", "lowest newest"], padding=True, return_tensors="np")


def pad_longest_and_limit(_: Path) -> None:
    tokenizer = trained(special_tokens=["<pad>"])
    tokenizer(["low", "lowest newest"], padding=True, max_length=9)


def cut_without_a_limit(_: Path) -> None:
    trained()(["low", "lowest newest"], truncation=True)


def pad_without_a_limit(_: Path) -> None:
    trained()(["low", "lowest newest"], padding="max_length")


def pad_chats(_: Path) -> None:
    tokenizer = trained(special_tokens=["<|im_start|>", "<|im_end|>"])
    tokenizer.eos_token = None
    tokenizer.apply_chat_template([[USER], [USER, USER]], "chatml", padding=True)


# -- Chats --------------------------------------------------------------------------


def leave_out_turns(_: Path) -> None:
    tokenizer = trained(special_tokens=["<|im_start|>", "<|im_end|>"])
    talk = [USER, {"role": "assistant", "content": "hi"}] * 9 + [USER]
    tokenizer.apply_chat_template(talk, CHATML, truncation=True, max_length=150)


def render_one_turn_of_alpaca(_: Path) -> None:
    ChatTemplate.alpaca([USER, {"role": "assistant", "content": "hi"}, USER])


def encode_one_turn_of_alpaca(_: Path) -> None:
    talk = [USER, {"role": "assistant", "content": "hi"}, USER]
    trained().apply_chat_template(talk, "alpaca")


def parse_arguments(_: Path) -> None:
    template = f"{ARGUMENTS}{next(NUMBERS)}"  # one warning for each template
    trained().apply_chat_template([CALL], template, tokenize=False)


# -- Files --------------------------------------------------------------------------


def unknown_characters(folder: Path) -> Path:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "model": model}), encoding="utf-8")
    return path


def load_a_file(folder: Path) -> None:
    BPETokenizer.from_file(unknown_characters(folder))


def load_a_directory(folder: Path) -> None:
    unknown_characters(folder)
    BPETokenizer.from_pretrained(folder, verbose=False)


def load_an_object(folder: Path) -> None:
    BPETokenizer.from_hf(need("tokenizers").Tokenizer.from_file(str(unknown_characters(folder))))


def load_a_list_that_means_nothing(folder: Path) -> None:
    files = {
        "tokenizer.model": shapes.sentencepiece_model(),
        "special_tokens_map.json": {"additional_special_tokens": ["<x>", "</s>"]},
    }
    shapes.write(folder, files)
    BPETokenizer.from_file(folder)


def load_files_of_another(folder: Path) -> None:
    tokenizer = trained(special_tokens=["<s>"])
    tokenizer.export(folder / "model.gguf", "gguf", without_normalizer=True)
    config = {"added_tokens_decoder": shapes.decoder({tokenizer.special_tokens["<s>"]: "<other>"})}
    shapes.write(folder, {"tokenizer_config.json": config})
    BPETokenizer.from_file(folder / "model.gguf")


def write_an_approximation(folder: Path) -> None:
    tokenizer = BPETokenizer("o200k", normalizer=None).train(TEXT, 280, verbose=False)
    tokenizer.export(folder / "t.gguf", "gguf")


# -- Other libraries ----------------------------------------------------------------


def patch_an_encoding(_: Path) -> None:
    tiktoken = need("tiktoken")
    from bpe_tokenizer_tools.dropin.tiktoken import patch_tiktoken, unpatch_tiktoken

    ranks = {bytes([byte]): byte for byte in range(256)}
    patch_tiktoken()
    try:
        tiktoken.Encoding(
            "x",
            pat_str=r"\S+|\s+",
            mergeable_ranks=ranks,
            special_tokens={"<|a": 300, "<|a|>": 301},
        )
    finally:
        unpatch_tiktoken()


def with_dropout(folder: Path) -> Path:
    trained().save(folder, verbose=False)
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    data["model"]["dropout"] = 0.5
    (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    return folder


def patch_one(folder: Path) -> None:
    library = need("transformers")
    patch_tokenizer(library.PreTrainedTokenizerFast.from_pretrained(str(with_dropout(folder))))


def patch_all(folder: Path) -> None:
    library = need("transformers")
    with patched_transformers():
        library.AutoTokenizer.from_pretrained(str(with_dropout(folder)))


def use_an_old_name(_: Path) -> None:
    bpe_tokenizer.build_char_to_byte(m=bpe_tokenizer.build_byte_to_char())  # type: ignore[call-arg]


def use_an_old_name_of_a_method(_: Path) -> None:
    trained().convert_ids_to_tokens(i=[1])  # type: ignore[call-arg]


# The function that warns -> how its warning begins, and calls that lead to it.
CASES: dict[str, tuple[str, list[Callable[[Path], None]]]] = {
    "bpe_tokenizer._documents": (
        "corpus 'missing.txt' looks like a path",
        [
            *(train_on_a_path, train_on_a_path_in_processes, train_by_style_on_a_path),
            *(count_a_path, sweep_on_a_path, extend_by_a_path),
        ],
    ),
    "bpe_tokenizer.renamed": (
        r".*: the argument \w= is called \w+= now",
        [use_an_old_name, use_an_old_name_of_a_method],
    ),
    "bpe_tokenizer._cuts_and_pads": (
        "padding=True pads to the longest|truncation does nothing|padding='max_length' does noth",
        [pad_longest_and_limit, cut_without_a_limit, pad_without_a_limit],
    ),
    "bpe_tokenizer._pad_token": (
        "this tokenizer has no pad token",
        [pad_a_call, pad_a_batch, pad_to_a_tensor, pad_chats],
    ),
    "bpe_tokenizer._from_read": (
        ".*no token",
        [load_a_file, load_a_directory, load_an_object],
    ),
    "corpus.directories.only_text": (
        ".*: skipped 1 file, not UTF-8 text: b.bin",
        [
            *(train_on_a_directory, count_a_directory, list_a_directory),
            *(evaluate_a_directory, count_a_directory_in_a_job),
        ],
    ),
    "scale.job.called": ("workers is called num_workers now", [count_by_an_old_name]),
    "bpe_tokenizer._newest": (r"\d+ old messages are left out", [leave_out_turns]),
    "bpe_tokenizer._last_instruction": (
        "the alpaca template renders the last user message only",
        [render_one_turn_of_alpaca, encode_one_turn_of_alpaca],
    ),
    "chat.arguments._tell": ("the chat template takes the arguments", [parse_arguments]),
    "formats.sentencepiece._as_declared": (
        ".*special_tokens_map.json: additional_special_tokens",
        [load_a_list_that_means_nothing],
    ),
    "formats.gguf._files_beside": (".*describe another tokenizer", [load_files_of_another]),
    "formats.gguf.warn_if_approximate": ("llama.cpp only approximates", [write_an_approximation]),
    "dropin.tiktoken._faster_core": ("tiktoken keeps its own core", [patch_an_encoding]),
    "dropin.transformers.patch_tokenizer": (".*stays on HuggingFace's", [patch_one, patch_all]),
}
# Commands print their warnings; a line of code would say nothing there.
IN_COMMANDS = {"commands.basic._cmd_train"}


def functions_that_warn() -> dict[str, list[str]]:
    """Return the functions that call `_warn` or `core.warn`, and those that warn otherwise."""
    found: dict[str, list[str]] = {"here": [], "otherwise": []}
    tools = ROOT / "bpe_tokenizer_tools"
    files = [
        ROOT / "bpe_tokenizer.py",
        *sorted(tools.rglob("*.py")),
        *sorted((ROOT / "accelerator" / "_bpe_tokenizer").rglob("*.py")),
    ]
    for file in files:
        names = file.relative_to(tools if tools in file.parents else ROOT).with_suffix("").parts
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for call in _own_calls(function):
                name = ast.unparse(call.func)
                if name in ("_warn", "core.warn"):
                    found["here"].append(".".join([*names, function.name]))
                if name in ("warnings.warn", "warnings.warn_explicit", "warn"):
                    found["otherwise"].append(".".join([*names, function.name]))
    return found


def _own_calls(function: ast.AST) -> list[ast.Call]:
    """Return the calls in a function, but not in functions inside it."""
    found, pending = [], list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.Call):
            found.append(node)
        pending += ast.iter_child_nodes(node)
    return found


def test_every_function_that_warns_is_in_a_case() -> None:
    found = functions_that_warn()
    new = {*found["here"]} - {*CASES, *IN_COMMANDS}
    assert not new, f"add calls that lead to these warnings to CASES: {sorted(new)}"
    gone = {*CASES, *IN_COMMANDS} - {*found["here"]}
    assert not gone, f"these warn no longer: {sorted(gone)}"
    assert found["otherwise"] == ["bpe_tokenizer._warn"]


@pytest.mark.parametrize(
    ("message", "call"),
    [(message, call) for message, calls in CASES.values() for call in calls],
    ids=[call.__name__ for _, calls in CASES.values() for call in calls],
)
def test_a_warning_points_to_the_caller(
    message: str, call: Callable[[Path], None], tmp_path: Path
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(tmp_path)
    ours = [each for each in caught if re.match(message, str(each.message), re.DOTALL)]
    assert ours, list(map(str, caught))
    for each in ours:
        assert each.filename == __file__, f"{each.filename}:{each.lineno}: {each.message}"
        first = call.__code__.co_firstlineno
        assert first < each.lineno < first + 14
