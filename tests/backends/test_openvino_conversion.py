"""Models of HuggingFace's run on OpenVINO: optimum-intel converts them on first use.

A stand-in for optimum-intel shows what happens if a conversion fails, is killed or runs twice.
The real one, in an environment of its own (`make optimum`), is compared with Transformers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_models
from conftest import EITHER_ENGINE
from oracles import need
from tiny_models import PROMPT

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, InferenceBackend
from bpe_tokenizer_tools import backends
from bpe_tokenizer_tools.backends import model_files

pytestmark = EITHER_ENGINE

posix = pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGKILL")

# Writes what it was called with; `BEHAVIOR` says what goes wrong.
EXPORTER = """
import json, os, sys, time
from pathlib import Path

def main_export(model, folder, **options):
    calls, behavior = Path(os.environ["CALLS"]), os.environ.get("BEHAVIOR", "")
    options["ov_config"] = vars(options["ov_config"])
    reports = sys.modules.get("openvino_telemetry", "allowed")
    known = {"model": model, "options": options, "reports": reports, "pid": os.getpid()}
    known["offline"] = os.environ["HF_HUB_OFFLINE"]
    with calls.open("a") as file:
        file.write(json.dumps(known) + "\\n")
    print("Loading weights: 100%")
    (Path(folder) / "openvino_model.xml").write_text("<net/>")
    if behavior == "fails":
        raise ValueError("Trying to export a tiny model, which is not supported")
    if behavior == "is killed":
        os.kill(os.getpid(), 9)
    if behavior == "exits":
        os._exit(9)
    if behavior == "torchvision":
        raise RuntimeError("operator torchvision::nms does not exist")
    if behavior == "writes nothing":
        (Path(folder) / "openvino_model.xml").unlink()
    time.sleep({"slow": 2, "hangs": 600}.get(behavior, 0))
    (Path(folder) / "openvino_model.bin").write_bytes(b"weights")
"""
CONFIG = "class OVConfig:\n    def __init__(self, dtype):\n        self.dtype = dtype\n"
CONVERT = """
import sys
sys.path[:0] = sys.argv[2:]
import bpe_tokenizer
from pathlib import Path
model = Path(sys.argv[1])
print(bpe_tokenizer._openvino_folder(bpe_tokenizer._ModelFiles(model, "safetensors", 9)))
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "openvino"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the stand-in for optimum-intel, which is imported from there."""
    folder = tmp_path / "packages"
    for name, code in {"": "", "exporters": "", "exporters/openvino": EXPORTER}.items():
        (folder / "optimum" / name).mkdir(parents=True, exist_ok=True)
        (folder / "optimum" / name / "__init__.py").write_text(code, encoding="utf-8")
    (folder / "optimum" / "intel.py").write_text(CONFIG, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    _forget_optimum()
    yield folder
    _forget_optimum()


def _forget_optimum() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "optimum"]:
        del sys.modules[name]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "my model"
    folder.mkdir()
    config = {"vocab_size": 9, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def converted(model: Path) -> Path:
    return bpe_tokenizer._openvino_folder(bpe_tokenizer._ModelFiles(model, "safetensors", 9))


def calls(tmp_path: Path) -> list[dict[str, Any]]:
    file = tmp_path / "calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def left(cache: Path) -> list[str]:
    """Return what conversions have written, the folders of models by their first word."""
    return sorted(f"{each.parent.name.split('-')[0]}/{each.name}" for each in cache.glob("*/*"))


def converting(model: Path, packages: Path, **variables: str) -> subprocess.Popen[str]:
    """Start a process that converts a model."""
    paths = [str(packages), str(Path(bpe_tokenizer.__file__).parent)]
    return subprocess.Popen(
        [sys.executable, "-c", CONVERT, str(model), *paths],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, **variables},
    )


def wait_until(happened: Callable[[], Any]) -> Any:
    for _ in range(3_000):
        found = happened()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def is_running(pid: int) -> bool:
    """Return whether a process still runs; one that ended may be waiting for its parent."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return not Path("/proc").exists()


# -- A conversion ---------------------------------------------------------------


def test_a_model_is_converted_on_first_use(
    model: Path,
    packages: Path,
    cache: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = converted(model)
    assert folder.parent.parent == cache
    assert {file.name for file in folder.iterdir()} == {"openvino_model.xml", "openvino_model.bin"}
    assert left(cache) == ["my model/.lock", f"my model/{folder.name}"]
    assert capfd.readouterr() == (
        "",
        f"{model}: converting it for OpenVINO with optimum-intel, once; "
        f"a large model takes minutes\n{model}: converted; OpenVINO's files are in {folder}\n",
    )
    (call,) = calls(tmp_path)
    assert call["model"] == str(model) and call["offline"] == "1"
    assert call["reports"] is None  # nothing goes to Intel
    assert call["options"] == {
        "task": "text-generation-with-past",
        "library_name": "transformers",
        "local_files_only": True,
        "ov_config": {"dtype": "auto"},  # the model's own
    }
    monkeypatch.setattr(bpe_tokenizer, "_is_installed", lambda package: False)
    assert converted(model) == folder and len(calls(tmp_path)) == 1  # needs no optimum-intel
    assert capfd.readouterr() == ("", "")


def test_a_model_in_the_right_format_is_used_as_it_is(tmp_path: Path) -> None:
    files = bpe_tokenizer._ModelFiles(tmp_path, "openvino", 9)
    assert bpe_tokenizer._openvino_folder(files) == tmp_path


def test_changed_weights_are_converted_again(
    model: Path, packages: Path, cache: Path, tmp_path: Path
) -> None:
    old = converted(model)
    (model / "README.md").write_text("Nothing that counts")
    assert converted(model) == old
    os.utime(model / "model.safetensors", ns=(1, 1))
    new = converted(model)
    assert new != old and len(calls(tmp_path)) == 2
    assert left(cache) == ["my model/.lock", f"my model/{new.name}"]  # not the old one
    (model / "config.json").write_text('{"vocab_size": 10}')
    assert converted(model) not in (old, new)


def test_models_of_one_name_are_told_apart(
    model: Path, packages: Path, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / model.name
    other.mkdir()
    for file in model.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
        stamp = file.stat().st_mtime_ns
        os.utime(other / file.name, ns=(stamp, stamp))
    assert converted(other) != converted(model)
    assert (converted(model) / "openvino_model.bin").exists()
    (tmp_path / "link").symlink_to(model, target_is_directory=True)
    assert converted(tmp_path / "link") == converted(model) and len(calls(tmp_path)) == 2


@pytest.mark.parametrize("name", ["é" * 120, "m" * 255, " a b '\"$x\n-世界"])
def test_a_model_may_have_any_name(
    model: Path, packages: Path, cache: Path, tmp_path: Path, name: str
) -> None:
    if os.name == "nt" and "\n" in name:
        pytest.skip("Windows has no such names")
    moved = model.rename(tmp_path / name)
    folder = converted(moved)
    assert (folder / "openvino_model.bin").exists() and converted(moved) == folder
    [call] = calls(tmp_path)
    assert call["model"] == str(moved)


# -- Conversions that fail ------------------------------------------------------


@pytest.mark.parametrize(
    ("behavior", "reason"),
    [
        ("fails", "ValueError: Trying to export a tiny model, which is not supported"),
        ("exits", "its process ended with status 9, and no openvino_model.xml"),
        ("writes nothing", "its process ended with status 0, and no openvino_model.xml"),
        pytest.param(
            "is killed",
            "its process was killed, probably because the memory was full",
            marks=posix,
        ),
        (
            "torchvision",
            "RuntimeError: operator torchvision::nms does not exist; pip uninstall "
            "torchvision, if that is built for another torch",
        ),
    ],
)
def test_a_conversion_that_fails_leaves_nothing(
    behavior: str,
    reason: str,
    model: Path,
    packages: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BEHAVIOR", behavior)
    with pytest.raises(RuntimeError) as caught:
        converted(model)
    failed = "optimum-intel could not convert it for OpenVINO"
    assert str(caught.value) == f"{model}: {failed}: {reason}"
    assert left(cache) == ["my model/.lock"]
    monkeypatch.delenv("BEHAVIOR")
    assert (converted(model) / "openvino_model.bin").exists()


@posix
@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_a_killed_conversion_is_done_again(
    end: str, model: Path, packages: Path, cache: Path, tmp_path: Path
) -> None:
    process = converting(model, packages, BEHAVIOR="hangs")
    with process:
        wait_until(lambda: list(cache.glob("*/*/openvino_model.xml")))
        process.send_signal(getattr(signal, end))
        process.communicate(timeout=30)
    (call,) = calls(tmp_path)
    wait_until(lambda: not is_running(call["pid"]))  # optimum-intel's process ends, too
    drafts = [name for name in left(cache) if name.endswith(".tmp")]
    assert len(drafts) == (0 if end == "SIGINT" else 1)
    folder = converted(model)
    assert (folder / "openvino_model.bin").exists() and len(calls(tmp_path)) == 2
    assert left(cache) == ["my model/.lock", f"my model/{folder.name}"]


@posix
def test_two_processes_convert_a_model_once(
    model: Path, packages: Path, cache: Path, tmp_path: Path
) -> None:
    with converting(model, packages, BEHAVIOR="slow") as first:
        wait_until(lambda: list(cache.glob("*/*/openvino_model.xml")))
        with converting(model, packages) as second:
            results = [process.communicate(timeout=60) for process in (first, second)]
    assert results[0][0] == results[1][0] == f"{converted(model)}\n"
    waiting = f"{model}: waiting for another process, which converts it for OpenVINO\n"
    assert results[1][1] == waiting and len(calls(tmp_path)) == 1


def test_without_locks_the_first_to_finish_counts(
    model: Path, packages: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpe_tokenizer, "_lock_file", lambda handle, shared: False)
    convert = bpe_tokenizer._convert

    def overtaken(model: Path, draft: Path) -> None:
        convert(model, draft)
        with monkeypatch.context() as other:
            other.setattr(bpe_tokenizer, "_convert", convert)
            assert len(calls(tmp_path)) > 1 or converted(model)

    monkeypatch.setattr(bpe_tokenizer, "_convert", overtaken)
    folder = converted(model)
    assert len(calls(tmp_path)) == 2
    assert left(cache) == ["my model/.lock", f"my model/{folder.name}"]


def test_a_cache_that_cannot_be_written_is_named(
    model: Path, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match="set BPE_TOKENIZER_CACHE to a directory that you may write"):
        converted(model)
    assert calls(tmp_path) == []


# -- Who gets there -------------------------------------------------------------

HOW = (
    "pip install 'optimum-intel[openvino]', then the first use converts it; or convert it "
    "elsewhere: optimum-cli export openvino --model '{0}' --task text-generation-with-past "
    "--weight-format {1} '{0}-openvino'"
)


@pytest.mark.parametrize("has_openvino", [False, True])
@pytest.mark.parametrize(("dtype", "weights"), [("float32", "fp32"), ("bfloat16", "fp16")])
def test_without_optimum_the_error_says_what_to_do(
    has_openvino: bool,
    dtype: str,
    weights: str,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need("numpy")
    folder = tiny_models.write_safetensors(tmp_path / "my model", tiny_models.model(False))
    found = [
        bpe_tokenizer._ModelFiles(folder, "safetensors", tiny_models.ROWS, dtype),
        model_files.ModelFiles(folder, "safetensors", tiny_models.ROWS, dtype),
    ]
    monkeypatch.setattr(bpe_tokenizer, "_describe", lambda path: [found[0]])
    monkeypatch.setattr(backends, "describe", lambda path: [found[1]])
    core = SimpleNamespace(available_devices=["CPU"])
    fake = SimpleNamespace(Core=lambda: core) if has_openvino else None
    monkeypatch.setitem(sys.modules, "openvino", fake)
    monkeypatch.setattr(bpe_tokenizer, "_is_installed", lambda package: False)
    messages = []
    for open_model in (
        lambda: bpe_tokenizer._open_model(folder, "openvino", bpe_tokenizer._Loading()),
        lambda: backends.open_model(folder, InferenceBackend.INTEL_OPENVINO),
    ):
        with pytest.raises(ImportError) as caught:
            open_model()
        messages.append(str(caught.value))
    problem = "import of openvino halted; None in sys.modules"
    if has_openvino:
        problem = "it needs the model in its own format, and optimum-intel, which converts it, "
        problem += "is not installed"
    how = HOW.format(folder, weights)
    for message in messages:
        assert message == f"{folder}: openvino cannot be used ({problem}); {how}"
    assert not cache.exists()


@pytest.mark.parametrize("kind", ["safetensors", "mlx"])
def test_a_model_is_only_converted_for_those_who_ask(kind: str) -> None:
    files = [bpe_tokenizer._ModelFiles(Path("x"), kind)]

    def chosen(backend: Any, found: Any = files) -> set[str]:
        return {name for name, _, _ in bpe_tokenizer._choices("x", found, backend)}

    assert "openvino" not in chosen(None)
    for backend in ("openvino", "INTEL_OPENVINO", InferenceBackend.INTEL_OPENVINO):
        assert chosen(backend) == {"openvino"}
    # If it is there in OpenVINO's format, too, that is taken.
    own = bpe_tokenizer._ModelFiles(Path("x"), "openvino")
    asked = bpe_tokenizer._choices("x", [*files, own], "openvino")
    assert [each.kind for _, each, _ in asked] == ["openvino"]
    # What Transformers can't read, optimum-intel can't convert.
    quantized = bpe_tokenizer._ModelFiles(Path("x"), "mlx", config={"quantization": {"bits": 4}})
    with pytest.raises(ValueError, match="openvino cannot read this model"):
        chosen("openvino", [quantized])


# -- The real one ---------------------------------------------------------------


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of HuggingFace's, and a cache."""
    need("optimum.intel")
    need("openvino")
    folder = tmp_path_factory.mktemp("optimum")
    tiny_models.write_safetensors(folder / "model", tiny_models.model(False))
    return folder


@pytest.fixture
def real_cache(real: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", str(real / "cache"))
    return real / "cache" / "openvino"


def greedy(model: backends.Backend) -> list[int]:
    return list(model.generate(PROMPT, 32, temperature=0))


@posix
def test_optimum_is_killed_and_starts_again(real: Path, real_cache: Path) -> None:
    """It has begun to write a model, which the next run doesn't take for whole."""
    with converting(real / "model", real) as process:
        wait_until(lambda: list(real_cache.glob("*/*.tmp/*")))
        process.kill()
    assert [name for name in left(real_cache) if name.endswith(".tmp")]
    model = backends.open_model(real / "model", InferenceBackend.INTEL_OPENVINO)
    expected, margin = tiny_models.model(False).greedy(PROMPT, 32)
    assert greedy(model) == expected and margin > 0.01
    transformers = backends.open_model(real / "model", "transformers")
    assert greedy(transformers) == expected
    backends.unload()
    (folder,) = real_cache.glob("*/*/openvino_model.xml")
    (own,) = backends.describe(folder)
    assert own.dtype == "float32" and greedy(backends.open_model(folder, "openvino")) == expected
    backends.unload()


def test_weights_keep_their_type(real: Path, real_cache: Path, tmp_path: Path) -> None:
    torch, transformers = need("torch"), need("transformers")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(real / "model")
    loaded.to(torch.bfloat16).save_pretrained(tmp_path / "half")
    (files,) = backends.describe(tmp_path / "half")
    assert files.dtype == "bfloat16"
    (converted,) = backends.describe(bpe_tokenizer._openvino_folder(files))
    assert (converted.dtype, converted.rows) == ("bfloat16", files.rows)
    assert len(greedy(backends.open_model(tmp_path / "half", "openvino"))) == 32
    backends.unload()


def test_chat_runs_a_model_of_huggingface(
    real: Path, real_cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tokenizer = BPETokenizer.from_pretrained(real / "model", verbose=False)
    talk = [{"role": "user", "content": "def f("}]
    how: Any = {"template": "alpaca", "max_new_tokens": 8, "temperature": 0, "n_ctx": 0}
    answers = [
        run(tokenizer, talk, str(real / "model"), backend=backend, **how)
        for run in (BPETokenizer.chat, _chat_alone)
        for backend in (InferenceBackend.INTEL_OPENVINO, "transformers")
    ]
    assert len(set(answers)) == 1 and answers[0]
    capfd.readouterr()
    words = ["chat", "--model", str(real / "model"), "--backend", "intel_openvino", "--n-ctx", "0"]
    words += ["--template", "alpaca", "--message", "def f(", "--max-tokens", "8"]
    assert bpe_tokenizer.main([*words, "--temperature", "0"]) == 0
    assert capfd.readouterr().out == answers[0] + "\n"
    backends.unload()
    # The module as the only file of this library.
    shutil.copy(bpe_tokenizer.__file__, tmp_path)
    command = [sys.executable, "bpe_tokenizer.py", *words, "--temperature", "0"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, answers[0] + "\n"), done.stderr


def _chat_alone(tokenizer: BPETokenizer, *args: Any, **options: Any) -> str:
    given = {"top_p": 0.9, "system_prompt": None, "n_gpu_layers": -1, "verbose": False}
    answer: str = bpe_tokenizer._chat(tokenizer, *args, **{**given, **options})
    return answer


def test_the_command_in_the_error_converts(real: Path, tmp_path: Path) -> None:
    (files,) = backends.describe(real / "model")
    _, _, command = bpe_tokenizer._how_to_convert(files).partition("elsewhere: ")
    words = shlex.split(command)
    program = Path(sys.executable).with_name(words[0])
    folder = tmp_path / Path(words.pop()).name
    done = subprocess.run([program, *words[1:], folder], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-2000:]
    expected, _ = tiny_models.model(False).greedy(PROMPT, 32)
    assert greedy(backends.open_model(folder)) == expected
    backends.unload()
