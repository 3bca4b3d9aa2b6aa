"""What vLLM and SGLang load of this package, and the calls they make of tokenizers then.

Source: vLLM 0.33.0, vllm/plugins, vllm/tokenizers/hf.py and vllm/v1/engine/detokenizer.py, and
SGLang 0.5.23, sglang/srt/plugins and sglang/srt/utils/hf_transformers, for which calls these are.
"""

from __future__ import annotations

import copy
import importlib.metadata
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE, ROOT
from oracles import REQUIRED, need

need("transformers")
tokenizers = need("tokenizers")

import tiny_models  # noqa: E402  (needs numpy)
import transformers  # noqa: E402

from bpe_tokenizer_tools.dropin import unpatch_transformers  # noqa: E402
from bpe_tokenizer_tools.dropin.tokenizers import DecodeStream, Tokenizer  # noqa: E402

pytestmark = EITHER_ENGINE
SERVERS = {
    "vllm.general_plugins": "BPE_TOKENIZER_VLLM",
    "sglang.srt.plugins": "BPE_TOKENIZER_SGLANG",
}


def entry_point(group: str) -> importlib.metadata.EntryPoint:
    """Return the entry point that is installed; elsewhere, the one that will be."""
    found = [*importlib.metadata.entry_points(group=group, name="bpe_tokenizer")]
    if not found and "bpe_tokenizer" not in REQUIRED:
        tomllib = need("tomllib" if sys.version_info >= (3, 11) else "tomli")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for name, value in project["entry-points"][group].items():
            found.append(importlib.metadata.EntryPoint(name, value, group))
    assert [each.name for each in found] == ["bpe_tokenizer"]
    return found[0]


def in_a_process(
    group: str, program: str, *, arguments: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Load the plugin in its own process, as a server does, and run a program around that."""
    load = f"""
import importlib, json, os, sys
os.environ |= {variables!r}
def load():
    module, function = {entry_point(group).value!r}.split(":")
    return getattr(importlib.import_module(module), function)
def loaded():
    return sorted({{"bpe_tokenizer", "regex", "tokenizers", "transformers"}} & sys.modules.keys())
"""
    return subprocess.run(
        [sys.executable, *arguments, "-c", load + program],
        capture_output=True,
        encoding="utf-8",
        cwd=ROOT,
        check=False,
    )


@pytest.fixture(autouse=True)
def _unpatched() -> Iterator[None]:
    unpatch_transformers()
    yield
    unpatch_transformers()


@pytest.fixture(scope="module")
def folder(engine: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    where = tmp_path_factory.mktemp("tiny")
    tiny_models.write_safetensors(where, tiny_models.model(True))
    return str(where)


@pytest.mark.parametrize("group", SERVERS)
@pytest.mark.parametrize("value", [None, "", "0", "true"])
def test_it_costs_nothing_unless_it_is_asked_for(group: str, value: str | None) -> None:
    given = {SERVERS[group]: value} if value is not None else {}
    other = next(variable for each, variable in SERVERS.items() if each != group)
    done = in_a_process(group, "load()(); print(loaded())", **given, **{other: "1"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


@pytest.mark.parametrize("group", SERVERS)
def test_it_patches_once(group: str, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setenv(SERVERS[group], "1")
    theirs = tokenizers.decoders.DecodeStream
    load = transformers.AutoTokenizer.from_pretrained
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: entry_point(group).load()(), range(8)))
    assert tokenizers.decoders.DecodeStream is DecodeStream
    assert isinstance(load(folder)._tokenizer, Tokenizer)
    unpatch_transformers()
    assert tokenizers.decoders.DecodeStream is theirs


@pytest.mark.parametrize("group", SERVERS)
def test_a_server_starts_even_if_it_fails(group: str) -> None:
    program = "sys.modules['transformers'] = None; load()(); load()(); print('started')"
    given = {SERVERS[group]: "1"}
    done = in_a_process(group, program, arguments=("-W", "error"), **given)
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"{SERVERS[group]}=1 has no effect, tokenizers stay on HuggingFace")
    assert lines[0].endswith("which is not installed: pip install transformers")


# -- What a server does with a tokenizer ---


def remembering(tokenizer: Any) -> Any:
    """Do what vLLM's `get_cached_tokenizer` does: a subclass knows what is asked often."""
    made, vocab, size = copy.copy(tokenizer), tokenizer.get_vocab(), len(tokenizer)
    ids, tokens = tokenizer.all_special_ids, tokenizer.all_special_tokens

    class Remembering(type(tokenizer)):  # type: ignore[misc]
        all_special_ids = property(lambda self: ids)
        all_special_tokens = property(lambda self: tokens)
        max_token_id = property(lambda self: max(*vocab.values(), tokenizer.vocab_size - 1))
        max_chars_per_token = property(lambda self: max(map(len, vocab)))

        def get_vocab(self) -> dict[str, int]:
            return vocab  # type: ignore[no-any-return]

        def __len__(self) -> int:
            return size

        def __reduce__(self) -> Any:
            return remembering, (tokenizer,)

    made.__class__ = Remembering
    return made


@pytest.fixture
def both(folder: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return a server's tokenizer without the plugin, and with it."""
    load = transformers.AutoTokenizer.from_pretrained
    theirs = remembering(load(folder))
    monkeypatch.setenv("BPE_TOKENIZER_VLLM", "1")
    entry_point("vllm.general_plugins").load()()
    ours = remembering(load(folder))
    assert isinstance(ours._tokenizer, Tokenizer)
    return theirs, ours


TEXT = "return the naïve token </s> of 世界 🙂"


def test_a_tokenizer_that_remembers(both: tuple[Any, Any]) -> None:
    for name in (
        *("all_special_ids", "all_special_tokens", "max_token_id", "max_chars_per_token"),
        *("is_fast", "vocab_size", "bos_token_id", "eos_token_id", "pad_token_id"),
        *("truncation_side", "special_tokens_map", "model_max_length", "name_or_path"),
    ):
        expected, got = [getattr(each, name) for each in both]
        assert got == expected, name
    for call in (
        len,
        lambda tok: tok.get_vocab(),
        lambda tok: tok.get_added_vocab(),
        lambda tok: tok.num_special_tokens_to_add(),
        lambda tok: tok.encode(TEXT, truncation=True, max_length=7, add_special_tokens=True),
        lambda tok: tok(TEXT, add_special_tokens=False).input_ids,
        lambda tok: tok([TEXT, "the"], truncation=True, max_length=5).data,
        lambda tok: tok.convert_ids_to_tokens(tok.encode(TEXT), skip_special_tokens=True),
        lambda tok: tok.convert_tokens_to_string(tok.convert_ids_to_tokens(tok.encode(TEXT))),
        lambda tok: tok.convert_tokens_to_ids(["the", "</s>"]),
        lambda tok: tok.batch_decode([tok.encode(TEXT), [1, 2]], skip_special_tokens=True),
        lambda tok: tok.decode(40),
        lambda tok: tok.backend_tokenizer.to_str(),  # what llguidance reads
        lambda tok: sorted(tok._tokenizer.get_added_tokens_decoder()),
    ):
        expected, got = map(call, both)
        assert got == expected


def test_copies_for_a_pool_of_threads(both: tuple[Any, Any]) -> None:
    """vLLM lends each thread a deep copy, of a shallow copy; so does this."""
    theirs, ours = both
    texts = [TEXT * i for i in range(1, 9)]
    copies = [copy.deepcopy(copy.copy(ours)) for _ in range(4)]
    assert all(isinstance(each._tokenizer, Tokenizer) for each in copies)
    assert len({id(each._tokenizer._theirs) for each in copies}) == 4

    def encode(i: int) -> Any:
        tok, size = copies[i % 4], 3 + i % 4
        ids = tok(texts[i % 8], truncation=True, max_length=size)["input_ids"]
        return ids, tok.decode(ids), tok.encode(texts[i % 8])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(encode, range(64)))
    for i, (ids, text, whole) in enumerate(found):
        assert ids == theirs(texts[i % 8], truncation=True, max_length=3 + i % 4)["input_ids"]
        assert (text, whole) == (theirs.decode(ids), theirs.encode(texts[i % 8]))


def test_a_pickle_for_another_process(both: tuple[Any, Any]) -> None:
    theirs, ours = (pickle.loads(pickle.dumps(each)) for each in both)
    assert isinstance(ours._tokenizer, Tokenizer)
    assert ours.encode(TEXT) == theirs.encode(TEXT)
    assert ours.max_token_id == theirs.max_token_id


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("prompt", [0, 1, 9, 20])
def test_ids_become_text_as_they_come(both: tuple[Any, Any], skip: bool, prompt: int) -> None:
    """A stream primed with a prompt, of the backend, looked up when a request comes."""
    ids = [*both[0].encode(TEXT), both[0].eos_token_id, -1, *both[0].encode(" more 世"), 1 << 20]

    def run(tok: Any) -> list[str | None]:
        backend, steps = tok._tokenizer, []
        added = {id_: each.content for id_, each in backend.get_added_tokens_decoder().items()}
        assert getattr(backend, "added_token_ids", None) is None
        backend.added_token_ids = added
        assert backend.added_token_ids is added
        stream = tokenizers.decoders.DecodeStream(ids=ids[:prompt], skip_special_tokens=skip)
        for id_ in ids[prompt:]:
            try:
                steps.append(stream.step(backend, id_))
            except (OverflowError, TypeError):
                steps.append("none")
        return steps

    theirs, ours = both
    assert tokenizers.decoders.DecodeStream is DecodeStream
    got = run(ours)
    unpatch_transformers()
    assert got == run(theirs)
    assert "none" in got


def test_components_are_replaced_after_loading(both: tuple[Any, Any], folder: str) -> None:
    """SGLang puts the file's own components into a tokenizer that transformers has loaded."""
    raw = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))
    for tok in both:
        original = tokenizers.Tokenizer.from_str(json.dumps(raw))
        backend = tok._tokenizer
        backend.pre_tokenizer, backend.decoder = original.pre_tokenizer, original.decoder
        backend.post_processor = original.post_processor
        tok.add_tokens(["<image>"], special_tokens=True)
    theirs, ours = (tok.encode(f"<image> {TEXT}") for tok in both)
    assert ours == theirs
    assert both[1]._tokenizer._current() is not None
