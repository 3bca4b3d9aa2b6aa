"""Real models in all four libraries: the same ids in, the same ids out.

A tiny model is written in each library's form; what they answer is compared with
`tiny_models.TinyModel`, which computes the same in plain numpy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from oracles import need
from tiny_models import CONTEXT, EOS, PACKAGES, PROMPT, ROWS, TOKENS

import bpe_tokenizer
from bpe_tokenizer import InferenceBackend
from bpe_tokenizer_tools import backends
from bpe_tokenizer_tools.backends.checks import sampling

EACH = pytest.mark.parametrize("name", PACKAGES)
Open = Callable[..., backends.Backend]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Path]:
    """Give a function from a backend's name to a model in its form."""
    folder = tmp_path_factory.mktemp("models")
    made: dict[tuple[str, bool], Path] = {}

    def write(name: str, tied: bool = False) -> Path:
        for package in PACKAGES[name]:
            need(package)
        if (name, tied) not in made:
            made[name, tied] = tiny_models.write(folder, name, tied)
        return made[name, tied]

    return write


@pytest.fixture
def opened(written: Callable[[str, bool], Path]) -> Iterator[Open]:
    """Give a function that opens a model; released afterwards."""

    def open_(name: str, tied: bool = False, **settings: Any) -> backends.Backend:
        return backends.open_model(written(name, tied), name, **settings)

    yield open_
    backends.unload()


def greedy(model: backends.Backend, prompt: list[int] = PROMPT, count: int = 32) -> list[int]:
    return list(model.generate(prompt, count, temperature=0))


def expected(tied: bool = False, prompt: list[int] = PROMPT, count: int = 32) -> list[int]:
    need("numpy")
    ids, margin = tiny_models.model(tied).greedy(prompt, count)
    assert margin > 0.01  # of logits of about 8; float32 is off by 0.00001
    return ids


# -- The same answers everywhere ----------------------------------------------


@EACH
@pytest.mark.parametrize("tied", [True, False])
def test_the_most_likely_ids_are_those_of_the_model(name: str, tied: bool, opened: Open) -> None:
    model = opened(name, tied)
    assert greedy(model) == expected(tied)
    assert greedy(model) == expected(tied)
    assert (model.vocab_rows, model.context, set(model.stop_ids)) == (ROWS, CONTEXT, {EOS})


def drawn(seed: int, noise: float = 0.0) -> list[int]:
    """Draw as the backends do, from the logits of the reference."""
    np = need("numpy")
    settings = sampling(temperature=4.0, top_k=50, top_p=0.9)
    random, disturb = np.random.default_rng(seed), np.random.default_rng(0)
    ids = list(PROMPT)
    for _ in range(32):
        logits = tiny_models.model(False).logits(ids)
        logits = logits + noise * disturb.uniform(-1, 1, len(logits))
        ids.append(settings.draw(logits, random))
    return ids[len(PROMPT) :]


@EACH
def test_a_seed_draws_the_same_ids_everywhere(name: str, opened: Open) -> None:
    model = opened(name)
    runs = [
        list(model.generate(PROMPT, 32, temperature=4.0, top_k=50, top_p=0.9, seed=seed))
        for seed in (3, 3, 4)
    ]
    assert runs[0] == runs[1] != runs[2]
    assert drawn(3) == drawn(3, noise=1e-3)  # no rounding decides
    assert runs[0] == drawn(3)


@EACH
def test_without_a_seed_answers_differ(name: str, opened: Open) -> None:
    model = opened(name)
    assert (
        len({tuple(model.generate(PROMPT, 16, temperature=30.0, top_p=1)) for _ in range(3)}) == 3
    )


@EACH
def test_a_long_prompt_is_read_in_blocks(name: str, opened: Open) -> None:
    model = opened(name)
    whole = greedy(model, [*range(100, 120), *PROMPT], 4)
    model.block = 4
    assert greedy(model, [*range(100, 120), *PROMPT], 4) == whole
    assert greedy(model) == expected()


@EACH
def test_what_is_not_a_token_is_never_drawn(name: str, opened: Open) -> None:
    assert max(expected()) >= TOKENS  # the model would like to
    masked = list(opened(name).generate(PROMPT, 32, temperature=0, n_tokens=TOKENS))
    ids, margin = tiny_models.model(False).greedy(PROMPT, 32, TOKENS)
    assert masked == ids and margin > 0.01


@EACH
def test_the_id_that_ends_the_answer_is_its_last(name: str, opened: Open) -> None:
    answer = expected()
    model = opened(name)
    got = list(model.generate(PROMPT, 32, temperature=0, stop_ids=[answer[5], 511]))
    assert got == answer[: answer.index(answer[5]) + 1]


def test_files_as_huggingface_writes_them_are_read_by_mlx(
    written: Callable[[str, bool], Path],
) -> None:
    """There rope_theta stands where mlx-lm does not look for it."""
    need("mlx_lm")
    path = written("transformers", False)
    assert "rope_theta" not in json.loads((path / "config.json").read_bytes())
    assert greedy(backends.open_model(path, "mlx")) == expected()


def test_files_as_mlx_writes_them_are_read_by_transformers(
    written: Callable[[str, bool], Path],
) -> None:
    need("transformers")
    assert greedy(backends.open_model(written("mlx", False), "transformers")) == expected()


def test_angles_that_mlx_would_not_see_are_refused(
    written: Callable[[str, bool], Path], tmp_path: Path
) -> None:
    need("mlx_lm")
    folder = tiny_models.write_safetensors(tmp_path / "model", tiny_models.model(False))
    config = json.loads((folder / "config.json").read_bytes())
    config["rope_parameters"] = {"full_attention": {"rope_theta": 5e5}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="rope_parameters"):
        backends.open_model(folder, "mlx")


# -- One after another --------------------------------------------------------


@EACH
def test_after_a_cancelled_answer_the_next_is_right(name: str, opened: Open) -> None:
    model = opened(name)
    stream = model.generate(PROMPT, 32, temperature=0)
    assert [next(stream) for _ in range(5)] == expected()[:5]
    stream.close()  # type: ignore[attr-defined]
    assert greedy(model) == expected()
    stream = model.generate(PROMPT, 32, temperature=0)
    next(stream)
    with pytest.raises(KeyboardInterrupt):
        stream.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert greedy(model) == expected()


@EACH
def test_after_an_interrupted_computation_the_next_is_right(
    name: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(name)
    feed, calls = model._feed, []

    def interrupted(ids: list[int]) -> Any:
        calls.append(ids)
        logits = feed(ids)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return logits

    monkeypatch.setattr(model, "_feed", interrupted)
    got = []
    with pytest.raises(KeyboardInterrupt):
        for id_ in model.generate(PROMPT, 32, temperature=0):
            got.append(id_)
    assert got == expected()[:3]
    longer = [*PROMPT, *got, 9]
    assert greedy(model, longer, 8) == expected(prompt=longer, count=8)


@EACH
def test_a_chat_is_read_from_where_it_goes_on(
    name: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, fed = opened(name), []
    feed = model._feed
    monkeypatch.setattr(model, "_feed", lambda ids: (fed.extend(ids), feed(ids))[1])
    first = greedy(model, PROMPT, 6)
    longer = [*PROMPT, *first, 9, 10]
    fed.clear()
    answer = greedy(model, longer, 8)
    assert fed == [first[-1], 9, 10, *answer[:-1]]
    assert answer == expected(prompt=longer, count=8)
    # A seed, another beginning, or the same again: read from the beginning.
    for prompt, seed in (([*longer, *answer, 11], 5), ([8, *longer], None), ([8, *longer], None)):
        fed.clear()
        list(model.generate(prompt, 1, temperature=0, seed=seed))
        assert fed == prompt


@EACH
def test_one_answer_at_a_time(name: str, opened: Open) -> None:
    model = opened(name)
    stream = model.generate(PROMPT, 8, temperature=0)
    begun = [next(stream)]
    with pytest.raises(RuntimeError, match="busy with another call"):
        next(model.generate(PROMPT, 8))
    assert begun + list(stream) == expected()[:8]
    assert greedy(model) == expected()


@EACH
def test_threads_use_one_model_in_turn(name: str, opened: Open) -> None:
    model, answers = opened(name), []
    greedy(model)
    thread = threading.Thread(target=lambda: answers.append(greedy(model)))
    thread.start()
    thread.join()
    assert answers == [expected()] and greedy(model) == expected()


# -- Opening and releasing ----------------------------------------------------


@EACH
def test_a_model_is_loaded_once(name: str, written: Callable[..., Path], opened: Open) -> None:
    model = opened(name)
    path = written(name)
    assert backends.open_model(str(path), name) is model
    assert backends.open_model(path.parent / "." / path.name) is model
    assert backends.open_model(path, n_ctx=64) is not model
    backends.unload(path)
    assert model.is_closed
    again = backends.open_model(path, name)
    assert again is not model and greedy(again) == expected()


@EACH
def test_a_changed_file_is_loaded_anew(name: str, tmp_path: Path) -> None:
    write: dict[str, Callable[[Path, Any], Path]] = {
        "llama.cpp": tiny_models.write_gguf,
        "mlx": tiny_models.write_mlx,
        "openvino": tiny_models.write_openvino,
        "transformers": tiny_models.write_safetensors,
    }
    for package in PACKAGES[name]:
        need(package)
    path = tmp_path / ("model.gguf" if name == "llama.cpp" else "model")
    write[name](path, tiny_models.model(True))
    first = backends.open_model(path, name)
    assert greedy(first) == expected(True)
    backends.unload()
    write[name](path, tiny_models.model(True))
    first = backends.open_model(path, name)
    for file in first.files.files:
        os.utime(file, ns=(1, 1))
    second = backends.open_model(path, name)
    assert second is not first and first.is_closed
    assert greedy(second) == expected(True)
    backends.unload()


@EACH
def test_a_released_model_says_so(name: str, opened: Open) -> None:
    model = opened(name)
    stream, waiting = model.generate(PROMPT, 8, temperature=0), model.generate(PROMPT, 8)
    next(stream)
    model.close()
    model.close()
    for use in (lambda: next(stream), lambda: next(waiting), lambda: model.generate(PROMPT)):
        with pytest.raises(RuntimeError, match="released"):
            use()
    assert model._released
    assert "released" not in repr(model)


def test_a_smaller_context_is_kept(opened: Open) -> None:
    model = opened("llama.cpp", n_ctx=0)
    assert model.context == CONTEXT
    for name in PACKAGES:
        model = opened(name, n_ctx=20)
        assert len(greedy(model)) <= 32 and model.context >= 20


# -- What cannot be served ----------------------------------------------------

WRONG_CALLS: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    ([], {}, ValueError, "prompt_ids is empty"),
    ([ROWS], {}, ValueError, r"prompt_ids\[0\] is 512; this model has the ids 0 to 511"),
    ([5, 10**6], {}, ValueError, r"prompt_ids\[1\]"),
    ([2**40], {}, ValueError, "1099511627776"),
    ([-1], {}, ValueError, "is -1"),
    ([2.5], {}, TypeError, r"prompt_ids\[0\] must be an int, got float 2.5"),
    ([2.0], {}, TypeError, "float"),
    ([True], {}, TypeError, "bool"),
    (["5"], {}, TypeError, "str"),
    ([None], {}, TypeError, "NoneType"),
    ("text", {}, TypeError, "encode it first"),
    (b"text", {}, TypeError, "encode it first"),
    (5, {}, TypeError, "prompt_ids"),
    ([[1, 2]], {}, TypeError, "list"),
    ([1] * CONTEXT, {}, ValueError, "256 tokens and the context holds 256.*no room"),
    ([1] * 300, {}, ValueError, "300 tokens"),
    ([1], {"max_new_tokens": 0}, ValueError, "at least 1"),
    ([1], {"max_new_tokens": 2.5}, TypeError, "max_new_tokens"),
    ([1], {"temperature": -1}, ValueError, "temperature"),
    ([1], {"temperature": float("nan")}, ValueError, "temperature"),
    ([1], {"temperature": float("inf")}, ValueError, "temperature"),
    ([1], {"temperature": 10**400}, ValueError, "temperature"),
    ([1], {"temperature": "hot"}, TypeError, "temperature"),
    ([1], {"top_p": 0}, ValueError, "top_p"),
    ([1], {"top_p": 1.5}, ValueError, "top_p"),
    ([1], {"top_p": float("nan")}, ValueError, "top_p"),
    ([1], {"top_k": -1}, ValueError, "top_k"),
    ([1], {"top_k": 1.5}, TypeError, "top_k"),
    ([1], {"seed": -1}, ValueError, "seed"),
    ([1], {"seed": "x"}, TypeError, "seed"),
    ([1], {"stop_ids": [ROWS]}, ValueError, r"stop_ids\[0\]"),
    ([1], {"stop_ids": ["</s>"]}, TypeError, r"stop_ids\[0\]"),
    ([1], {"n_tokens": 0}, ValueError, "n_tokens"),
]


@EACH
def test_what_cannot_be_served_is_refused_at_once(name: str, opened: Open) -> None:
    model = opened(name)
    for prompt, settings, kind, message in WRONG_CALLS:
        with pytest.raises(kind, match=message):
            model.generate(prompt, **settings)
    assert greedy(model) == expected()


@EACH
def test_an_answer_ends_where_the_context_does(name: str, opened: Open) -> None:
    model = opened(name)
    prompt = [*PROMPT, *[1] * (CONTEXT - 3 - len(PROMPT))]
    assert len(greedy(model, prompt, 512)) == 3
    assert greedy(model) == expected()


@EACH
def test_numbers_of_other_integer_types_are_ids(name: str, opened: Open) -> None:
    np = need("numpy")
    model = opened(name)
    assert greedy(model, np.array(PROMPT, np.int32), 4) == expected()[:4]
    assert all(type(id_) is int for id_ in greedy(model))
    assert greedy(model, iter(PROMPT), 4) == expected()[:4]
    assert list(model.generate(PROMPT, 4, top_k=ROWS + 5, top_p=1, seed=0))
    plain = [8, 4.0, 0.5, 50, 3]  # max_new_tokens, temperature, top_p, top_k, seed
    kinds = [np.int16, np.float32, np.float64, np.uint8, np.int64]
    numbers = [kind(value) for kind, value in zip(kinds, plain)]
    assert list(model.generate(PROMPT, *numbers)) == list(model.generate(PROMPT, *plain))


@EACH
def test_what_a_library_raises_is_told_as_ours(
    name: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(name)
    feed = model._feed
    monkeypatch.setattr(model, "_feed", lambda ids: feed(["x"]))
    with pytest.raises(RuntimeError, match=f"(?i){name} failed: ") as caught:
        greedy(model)
    assert caught.value.__cause__ is not None
    monkeypatch.undo()
    assert greedy(model) == expected()


def test_weights_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    need("mlx_lm")
    np = need("numpy")
    made = tiny_models.make_model(True, 1)
    made.weights["model.norm.weight"][:] = np.nan
    model = backends.open_model(tiny_models.write_mlx(tmp_path / "model", made), "mlx")
    with pytest.raises(RuntimeError, match="the model computed nan"):
        greedy(model)
    backends.unload()


def test_why_llama_cpp_fails_to_load_is_said(
    written: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = written("llama.cpp").read_bytes()
    assert data.count(b"general.architecture" + b"\x08\0\0\0" + b"\5" + bytes(7) + b"llama") == 1
    (tmp_path / "new.gguf").write_bytes(data.replace(b"llama", b"nemo9", 1))
    with pytest.raises(RuntimeError, match="could not load it: .*unknown model architecture"):
        backends.open_model(tmp_path / "new.gguf")
    assert capfd.readouterr() == ("", "")


@EACH
def test_nothing_is_printed(
    name: str, written: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    greedy(backends.open_model(written(name), name))
    backends.unload()
    assert capfd.readouterr() == ("", "")


def test_looking_for_backends_imports_no_library() -> None:
    code = (
        "import sys; from bpe_tokenizer_tools import backends; backends.detect(False); "
        "print({*sys.modules} & {'numpy', 'torch', 'transformers', 'llama_cpp', 'mlx', 'openvino'})"
    )
    path = str(Path(backends.__file__).parents[2])
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=path
    )
    assert run.stdout == "set()\n"


# -- Which backend ------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "backend", "able"),
    [
        ("llama.cpp", "mlx", "llama.cpp"),
        ("llama.cpp", "transformers", "llama.cpp"),
        ("llama.cpp", InferenceBackend.INTEL_OPENVINO, "llama.cpp"),
        ("transformers", "cpu_llama_cpp", "transformers, mlx, openvino"),
        ("mlx", "llama.cpp", "mlx, transformers, openvino"),
        ("openvino", "huggingface_transformers", "openvino"),
        ("openvino", "llama_cpp", "openvino"),
    ],
)
def test_a_backend_that_cannot_read_a_model_is_refused(
    kind: str, backend: Any, able: str, written: Callable[..., Path]
) -> None:
    with pytest.raises(ValueError, match=f"cannot read this model.*; {able} can"):
        backends.open_model(written(kind), backend)


def test_a_backend_is_named_in_several_ways(written: Callable[..., Path]) -> None:
    path = written("llama.cpp")
    for name in ("llama.cpp", "llama_cpp", "cpu_llama_cpp", InferenceBackend.CPU_LLAMA_CPP, None):
        assert backends.open_model(path, name).name == "llama.cpp"
    with pytest.raises(ValueError, match="must be one of llama.cpp, mlx"):
        backends.open_model(path, "vllm")
    with pytest.raises(ValueError, match=r"got 'llama'; did you mean 'llama\.cpp'\?$"):
        backends.open_model(path, "llama")
    with pytest.raises(TypeError, match="InferenceBackend"):
        backends.open_model(path, 5)  # type: ignore[arg-type]
    backends.unload()


@pytest.mark.parametrize(
    ("name", "install"),
    [("llama.cpp", "llama-cpp-python"), ("openvino", "openvino"), ("mlx", "mlx-lm")],
)
def test_a_missing_package_is_named(
    name: str, install: str, written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(name)
    backends.unload()
    for package in ("llama_cpp", "mlx.core", "openvino"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {install} numpy"):
        backends.open_model(path, name)


def test_without_the_best_library_the_next_steps_in(
    written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    need("mlx_lm")
    path = written("transformers")
    monkeypatch.setattr(bpe_tokenizer, "_is_apple", lambda: False)
    assert backends.open_model(path).name == "Transformers"
    backends.unload()
    monkeypatch.setattr(bpe_tokenizer, "_is_installed", lambda package: package != "torch")
    assert backends.open_model(path).name == "MLX"
    backends.unload()
    # It is there, but cannot be imported.
    monkeypatch.setattr(bpe_tokenizer, "_is_installed", lambda package: True)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert backends.open_model(path).name == "MLX"
    backends.unload()
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    with pytest.raises(ImportError, match="transformers.*or mlx.*pip install mlx-lm"):
        backends.open_model(path)


def test_settings_that_a_backend_does_not_know_are_refused(written: Callable[..., Path]) -> None:
    cases: list[tuple[str, dict[str, Any], type[Exception], str]] = [
        ("llama.cpp", {"device": "tpu"}, ValueError, "'cpu' or 'gpu'"),
        ("llama.cpp", {"dtype": "float16"}, ValueError, "keeps it as it is"),
        ("llama.cpp", {"n_ctx": -5}, ValueError, "n_ctx"),
        ("mlx", {"dtype": "float16"}, ValueError, "keeps it as it is"),
        ("mlx", {"device": "tpu"}, ValueError, "got 'tpu'"),
        ("openvino", {"device": "TPU"}, ValueError, "that OpenVINO has here: .*CPU"),
        ("openvino", {"dtype": "int7"}, ValueError, "dtype"),
        ("openvino", {"KV_CACHE_PRECISION": "x"}, RuntimeError, "OpenVINO could not load it"),
        ("transformers", {"device": "tpu9"}, ValueError, "device 'tpu9'"),
        ("transformers", {"dtype": "int7"}, ValueError, "dtype"),
    ]
    for name, settings, kind, message in cases:
        with pytest.raises(kind, match=message):
            backends.open_model(written(name), name, **settings)


WRONG_SETTINGS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"n_gpu_layers": "all"}, TypeError, "n_gpu_layers must be an int, got str 'all'"),
    ({"n_gpu_layers": None}, TypeError, "n_gpu_layers must be an int"),
    ({"n_gpu_layers": 1.5}, TypeError, "n_gpu_layers must be an int"),
    ({"n_gpu_layers": True}, TypeError, "n_gpu_layers must be an int"),
    ({"n_gpu_layers": -2}, ValueError, "n_gpu_layers must be at least -1"),
    ({"n_ctx": None}, TypeError, "n_ctx must be an int"),
    ({"n_ctx": 99.0}, TypeError, "n_ctx must be an int"),
    ({"device": 5}, TypeError, "device must be a str or None, got int 5"),
    ({"device": ""}, ValueError, "device is empty"),
    ({"dtype": 5}, TypeError, "dtype must be a str or None, got int 5"),
    ({"bogus": 1}, TypeError, "has no setting 'bogus'"),
    ({"BOGUS_HINT": "x"}, TypeError, "has no setting 'BOGUS_HINT'"),
]


@EACH
def test_wrong_settings_are_refused_alike(name: str, written: Callable[..., Path]) -> None:
    for settings, kind, message in WRONG_SETTINGS:
        with pytest.raises(kind, match=message):
            backends.open_model(written(name), name, **settings)


@EACH
def test_settings_of_the_library_are_passed_on(name: str, opened: Open) -> None:
    known: dict[str, dict[str, Any]] = {
        "llama.cpp": {"use_mmap": False},
        "mlx": {"lazy": True},
        "openvino": {"INFERENCE_NUM_THREADS": 1},
        "transformers": {"attn_implementation": "eager"},
    }
    np = need("numpy")
    model = opened(name, n_gpu_layers=np.int64(-1), n_ctx=np.int32(99), **known[name])
    assert greedy(model) == expected() and model.context == 99


# -- Damaged models -----------------------------------------------------------
# A library that is given one might end the process: so each is opened in another.

DAMAGED = """
import json, os, random, shutil, sys
from pathlib import Path
from bpe_tokenizer_tools import backends

name, model, scratch = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
weights = {"openvino": "openvino_model.bin"}.get(name, "model.safetensors")
outcomes = {}

def attempt(case, damage):
    copy = scratch / case / model.name
    copy.parent.mkdir()
    (shutil.copytree if model.is_dir() else shutil.copy)(model, copy)
    file = copy / weights if copy.is_dir() else copy
    damage(file, bytearray(file.read_bytes()))
    print(case, flush=True, file=sys.stderr)
    try:
        ids = list(backends.open_model(copy, name).generate([1, 2, 3], 4, temperature=0))
        outcomes[case] = f"answered {len(ids)}"
    except Exception as error:
        outcomes[case] = f"{type(error).__name__}: {str(error)[:200]}"
    backends.unload()

for share in (0.0, 0.001, 0.1, 0.5, 0.999):
    attempt(f"cut at {share}", lambda file, data: file.write_bytes(data[: int(len(data) * share)]))
attempt("text", lambda file, data: file.write_text("This is a letter, and no model. " * 100))
attempt("zeros", lambda file, data: file.write_bytes(bytes(len(data))))
chance = random.Random(1)
for i in range(8):
    def flip(file, data):
        for _ in range(4):
            data[chance.randrange(min(len(data), 20_000))] = chance.randrange(256)
        file.write_bytes(data)
    attempt(f"flip {i}", flip)
print(json.dumps(outcomes))
"""


@pytest.mark.slow
@EACH
def test_a_damaged_model_ends_in_an_error_of_ours(
    name: str, written: Callable[..., Path], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", DAMAGED, name, str(written(name)), str(tmp_path)]
    path = os.pathsep.join([str(Path(backends.__file__).parents[2]), *sys.path])
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    ours = ("FileFormatError: ", "FileNotFoundError: ", "RuntimeError: ", "ValueError: ")
    for case, outcome in outcomes.items():
        assert outcome.startswith((*ours, "answered 4")), (case, outcome)
        if case.startswith(("cut", "text")):
            assert outcome.startswith(("FileFormatError: ", "RuntimeError: ")), (case, outcome)
    assert len(outcomes) == 15


def test_a_model_that_keeps_a_state_instead_of_keys_and_values_is_refused(tmp_path: Path) -> None:
    need("torch")
    transformers = need("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    config = transformers.MambaConfig(vocab_size=ROWS, eos_token_id=EOS, **sizes)
    transformers.MambaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="MambaForCausalLM has no key-value cache"):
        backends.open_model(tmp_path, "transformers")
