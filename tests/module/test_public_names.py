"""The names, order and defaults of public parameters: callers rely on them, so they are kept."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from conftest import ROOT
from oracles import need

import bpe_tokenizer as bpe
from bpe_tokenizer import GPT2_SPLIT_PATTERN, BPETokenizer, ChatTemplate

# Each public call with its parameters, as it is documented.  More keywords may follow.
CALLS = {
    "build_byte_to_char": "",
    "build_char_to_byte": "byte_to_char",
    "detect_best_backend": "verbose=True",
    "ChatTemplate.llama3": "messages, add_generation_prompt=True, system_prompt=None",
    "ChatTemplate.chatml": "messages, add_generation_prompt=True, system_prompt=None",
    "ChatTemplate.alpaca": "messages, add_generation_prompt=True, system_prompt=None",
    "ChatTemplate.get_template": "name",
    "EncodingResult": "input_ids, attention_mask, tokens, token_type_ids=None",
    "EncodingResult.__len__": "self",
    "InferenceBackend": "value",
    "BPETokenizer": "split_pattern=GPT2_SPLIT_PATTERN",
    "BPETokenizer.train": "self, corpus, vocab_size=32_000, min_frequency=2, special_tokens=None,"
    " verbose=True",
    "BPETokenizer.add_special_tokens": "self, special_tokens",
    "BPETokenizer.encode": "self, text, add_special_tokens=False, allowed_special='none'",
    "BPETokenizer.encode_batch": "self, texts, add_special_tokens=False, allowed_special='none',"
    " padding=False, truncation=False, max_length=None, return_tensors=None",
    "BPETokenizer.__call__": "self, text",
    "BPETokenizer.decode": "self, ids, skip_special_tokens=False, errors='replace'",
    "BPETokenizer.decode_batch": "self, batch_ids, skip_special_tokens=False, skip_padding=True",
    "BPETokenizer.get_vocab": "self",
    "BPETokenizer.tokenize": "self, text",
    "BPETokenizer.convert_tokens_to_ids": "self, tokens",
    "BPETokenizer.convert_ids_to_tokens": "self, ids",
    "BPETokenizer.convert_tokens_to_string": "self, tokens",
    "BPETokenizer.count_tokens": "self, text",
    "BPETokenizer.truncate": "self, text, max_tokens, add_special_tokens=False",
    "BPETokenizer.save": "self, directory, name='tokenizer', verbose=True",
    "BPETokenizer.from_pretrained": "directory, verbose=True",
    "BPETokenizer.from_huggingface": "model_name_or_path, cache_dir=None, token=None, verbose=True",
    "BPETokenizer.apply_chat_template": "self, messages, template=None,"
    " add_generation_prompt=True, system_prompt=None, tokenize=True, allowed_special='all'",
    "BPETokenizer.chat": "self, messages, model_path, template=None, system_prompt=None,"
    " max_new_tokens=512, temperature=0.7, top_p=0.9, backend=None, n_gpu_layers=-1, n_ctx=8192,"
    " verbose=False",
    "BPETokenizer.encode_streaming": "self, text_stream, allowed_special='none'",
    "BPETokenizer.get_cache_stats": "self",
    "BPETokenizer.clear_cache": "self",
    "BPETokenizer.__len__": "self",
    "BPETokenizer.__repr__": "self",
}
# None stands for a documented True here, with one exception each: `verbose` is False where nobody
# watches stderr, and `add_generation_prompt` is False where the last message is continued.
TRUE_BY_DEFAULT = {
    *(f"BPETokenizer.{name}.verbose" for name in ("train", "save")),
    *(f"BPETokenizer.{name}.verbose" for name in ("from_pretrained", "from_huggingface")),
    "BPETokenizer.apply_chat_template.add_generation_prompt",
}


def found(name: str) -> Any:
    value: Any = bpe
    for part in name.split("."):
        value = getattr(value, part)
    return value


def documented(name: str) -> list[inspect.Parameter]:
    made = eval(f"lambda {CALLS[name]}: None", {"GPT2_SPLIT_PATTERN": GPT2_SPLIT_PATTERN})
    return [*inspect.signature(made).parameters.values()]


def test_all_documented_calls_are_listed() -> None:
    assert len(CALLS) == 35


# The signature of an Enum is Python's, and not the same in each version.
@pytest.mark.parametrize("name", [each for each in CALLS if each != "InferenceBackend"])
def test_parameters_keep_their_names_order_and_defaults(name: str) -> None:
    parameters = [*inspect.signature(found(name)).parameters.values()]
    expected = documented(name)
    assert [each.name for each in parameters[: len(expected)]] == [each.name for each in expected]
    for ours, theirs in zip(parameters, expected):
        assert ours.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        if f"{name}.{ours.name}" in TRUE_BY_DEFAULT:
            assert theirs.default is True and ours.default is None
        elif theirs.default is not theirs.empty:
            assert (type(ours.default), ours.default) == (type(theirs.default), theirs.default)
    for further in parameters[len(expected) :]:  # nobody has to give them
        assert further.default is not further.empty or further.kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        )


def test_none_means_true_where_it_is_a_default(monkeypatch: Any) -> None:
    talk = [{"role": "user", "content": "Hi"}]
    default = BPETokenizer().apply_chat_template(talk, "chatml", tokenize=False)
    given = BPETokenizer().apply_chat_template(talk, "chatml", True, tokenize=False)
    assert default == given
    assert bpe._is_watched(True) and not bpe._is_watched(False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert bpe._is_watched(None)


def test_a_call_takes_what_encode_and_encode_batch_take() -> None:
    made = BPETokenizer()
    texts: Any
    for name, texts in (("encode", "ab"), ("encode_batch", ["ab"])):
        given = {each.name: each.default for each in documented(f"BPETokenizer.{name}")[2:]}
        assert list(made(text=texts, **given)) == list(getattr(made, name)(texts))


def test_each_works_by_name() -> None:
    made = BPETokenizer(split_pattern="gpt2")
    assert made.convert_ids_to_tokens(ids=[97, 32]) == ["a", "Ġ"]
    assert made.convert_ids_to_tokens(ids=97) == "a"
    assert made.convert_tokens_to_ids(tokens=["a", "Ġ"]) == [97, 32]
    assert made.convert_tokens_to_ids(tokens="a") == 97
    assert made.convert_tokens_to_string(tokens=["a", "Ġ"]) == "a "
    forward = bpe.build_byte_to_char()
    assert bpe.build_char_to_byte(byte_to_char=forward)["Ġ"] == 32
    assert made(text="a ") == made.encode(text="a ") == [97, 32]
    assert ChatTemplate.get_template(name="chatml")(messages=[]) == "<|im_start|>assistant\n"
    assert bpe.InferenceBackend(value="apple_mlx") is bpe.InferenceBackend.APPLE_MLX


# -- Old names, until 0.11 -----------------------------------------------------


OLD_CALLS = {
    "build_char_to_byte": ("bpe.build_char_to_byte(m={97: 'a'})", "m", "byte_to_char"),
    "convert_tokens_to_ids": ("made.convert_tokens_to_ids(t=['a'])", "t", "tokens"),
    "convert_ids_to_tokens": ("made.convert_ids_to_tokens(i=[97])", "i", "ids"),
    "align": ("align(a=made, b=made, text='a')", "[ab]", "tokenizer_[ab]"),
    "intersection": ("intersection(made, b=made)", "b", "tokenizer_b"),
    "compare": ("compare(made, b=made, texts={'x': ['a']})", "b", "tokenizer_b"),
    "compare_tokenizers": ("compare_tokenizers(a=made, tokenizer_b=made)", "a", "tokenizer_a"),
}


def names_in_old_calls() -> dict[str, Any]:
    need("numpy")  # which measuring tokenizers needs
    from bpe_tokenizer_tools.checking.tokenizer_diff import compare_tokenizers
    from bpe_tokenizer_tools.evaluation import compare
    from bpe_tokenizer_tools.vocabularies import align, intersection

    calls: list[Callable[..., Any]] = [align, compare, compare_tokenizers, intersection]
    return {"bpe": bpe, "made": BPETokenizer(), **{each.__name__: each for each in calls}}


@pytest.mark.parametrize("call", OLD_CALLS)
def test_an_old_name_warns_the_caller_and_means_the_new_one(call: str) -> None:
    source, old, new = OLD_CALLS[call]
    names = names_in_old_calls()
    message = rf"^\S*{call}\(\): the argument {old}= is called {new}= now; .* 0\.11$"
    with pytest.warns(DeprecationWarning, match=message) as told:
        with_old_name = eval(compile(source, "their_own.py", "eval"), names)
    assert {(each.filename, each.lineno) for each in told} == {("their_own.py", 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        renamed = re.sub(rf"\b({old})=", lambda match: new.replace("[ab]", match[1]) + "=", source)
        assert str(eval(renamed, names)) == str(with_old_name)


def test_an_argument_is_given_once() -> None:
    made: Any = BPETokenizer()
    with pytest.raises(TypeError, match=r"got i= and ids=, one argument: pass only ids="):
        made.convert_ids_to_tokens(ids=[97], i=[97])
    with (
        pytest.warns(DeprecationWarning, match="i= is called ids= now"),
        pytest.raises(TypeError, match="multiple values for argument 'ids'"),
    ):
        made.convert_ids_to_tokens([97], i=[97])
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        made.convert_ids_to_tokens(x=[97])


# -- Single letters are no names ------------------------------------------------


def documented_imports() -> dict[str, Any]:
    """Return what the pages of docs/ import from the library: functions and classes by name."""
    made: dict[str, Any] = {}
    imports = re.compile(r"^from (bpe_tokenizer[\w.]*) import (?:\(([^)]+)\)|([\w, ]+))", re.M)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for module, several, one in imports.findall(page.read_text(encoding="utf-8")):
            for name in re.findall(r"\w+", several or one):
                with contextlib.suppress(ModuleNotFoundError):  # a function is no module
                    importlib.import_module(f"{module}.{name}")
                value = getattr(importlib.import_module(module), name)
                found = {name: value}
                if inspect.ismodule(value):
                    found = {f"{name}.{key}": each for key, each in public_members(value).items()}
                made |= {f"{module}.{key}": each for key, each in found.items()}
    return made


def public_members(module: Any) -> dict[str, Any]:
    names = [name for name in vars(module) if not name.startswith("_")]
    own = {name: getattr(module, name) for name in names}
    return {
        name: value
        for name, value in own.items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
    }


def public_parts(name: str, value: Any) -> dict[str, Any]:
    if not inspect.isclass(value):
        return {name: value}
    methods = {each: getattr(value, each) for each in dir(value) if not each.startswith("_")}
    return {name: value, **{f"{name}.{key}": each for key, each in methods.items()}}


def test_no_documented_parameter_is_a_single_letter() -> None:
    need("numpy")  # which some of what is documented needs
    everything = {**documented_imports(), **{name: getattr(bpe, name) for name in bpe.__all__}}
    assert len(everything) > 60
    letters = []
    for name, value in everything.items():
        for part, call in public_parts(name, value).items():
            with contextlib.suppress(TypeError, ValueError):  # no function, or one without names
                given = inspect.signature(call).parameters.values()
                letters += [f"{part}({each})" for each in given if len(each.name) == 1]
    assert letters == []
