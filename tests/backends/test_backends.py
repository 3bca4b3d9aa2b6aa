"""Which way of running a model is chosen: by what hardware and which packages are here."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from typing import Any

import pytest

import bpe_tokenizer
from bpe_tokenizer import InferenceBackend, detect_best_backend


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a machine with the given hardware and packages."""

    def make(hardware: set[str], packages: set[str]) -> None:
        table = {
            backend: (name, lambda name=name: name in hardware or name == "any processor", *rest)
            for backend, (name, _, *rest) in bpe_tokenizer._BACKENDS.items()
        }
        monkeypatch.setattr(bpe_tokenizer, "_BACKENDS", table)
        monkeypatch.setattr(bpe_tokenizer, "_is_installed", packages.__contains__)

    return make


@pytest.mark.parametrize(
    ("hardware", "packages", "expected"),
    [
        ({"Apple Silicon"}, {"mlx_lm", "llama_cpp"}, InferenceBackend.APPLE_MLX),
        ({"Apple Silicon"}, {"llama_cpp"}, InferenceBackend.CPU_LLAMA_CPP),
        ({"an NVIDIA GPU"}, {"llama_cpp:cuda", "llama_cpp"}, InferenceBackend.NVIDIA_CUDA),
        ({"an NVIDIA GPU"}, {"llama_cpp"}, InferenceBackend.CPU_LLAMA_CPP),
        ({"an AMD GPU"}, {"llama_cpp:hip"}, InferenceBackend.AMD_ROCM),
        (
            {"an NVIDIA GPU"},
            {"llama_cpp", "transformers", "torch", "torch:cuda"},
            InferenceBackend.NVIDIA_CUDA,
        ),
        ({"an Intel processor"}, {"openvino"}, InferenceBackend.INTEL_OPENVINO),
        (set(), {"mlx_lm", "transformers", "torch"}, InferenceBackend.HUGGINGFACE_TRANSFORMERS),
        (set(), {"transformers"}, InferenceBackend.CPU_LLAMA_CPP),  # nothing is whole
    ],
)
def test_the_first_with_hardware_and_package_is_chosen(
    machine: Any, hardware: set[str], packages: set[str], expected: InferenceBackend
) -> None:
    machine(hardware, packages)
    assert detect_best_backend(verbose=False) is expected


def test_without_packages_the_hardware_decides_and_the_remedy_is_named(
    machine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    machine({"an NVIDIA GPU"}, set())
    assert detect_best_backend() is InferenceBackend.NVIDIA_CUDA
    out, err = capsys.readouterr()
    assert out == ""
    assert "pip install llama-cpp-python" in err and "No backend is installed" in err


@pytest.mark.parametrize(
    ("hardware", "packages", "said"),
    [
        (
            set(),
            {"transformers", "torch"},
            "any processor, and transformers and torch are installed",
        ),
        ({"an Intel processor"}, {"openvino"}, "an Intel processor, and openvino is installed"),
        (
            set(),
            set(),
            "but transformers with torch is not installed; pip install transformers torch",
        ),
        (
            {"an NVIDIA GPU"},
            set(),
            "neither llama_cpp:cuda nor transformers with torch:cuda is inst",
        ),
    ],
)
def test_one_package_is_and_two_are_installed(
    machine: Any,
    hardware: set[str],
    packages: set[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine(hardware, packages)
    detect_best_backend()
    assert said in capsys.readouterr().err


def test_quiet_is_silent(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    machine(set(), {"transformers", "torch"})
    detect_best_backend(verbose=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'GPU 0: NVIDIA H100'", True),
        ("exit 0", False),  # a driver, but no GPU
        ("echo 'no devices were found' >&2; exit 6", False),
    ],
)
def test_an_nvidia_gpu_is_what_its_driver_lists(
    script: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert bpe_tokenizer._has_nvidia_gpu() is expected


def test_without_a_driver_there_is_no_nvidia_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not bpe_tokenizer._has_nvidia_gpu()


@pytest.mark.parametrize(
    ("built", "expected"),
    [("libggml-cuda.so", True), ("libtorch_cuda.so", True), ("libggml.so", False)],
)
def test_a_package_is_asked_which_gpu_it_was_built_for(
    built: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / built).touch()
    spec = importlib.machinery.ModuleSpec("llama_cpp", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert bpe_tokenizer._is_installed("llama_cpp")
    assert bpe_tokenizer._is_installed("llama_cpp:cuda") is expected


def test_what_is_not_there_is_not_installed() -> None:
    assert bpe_tokenizer._is_installed("json")
    assert not bpe_tokenizer._is_installed("no_such_package_at_all")
    assert not bpe_tokenizer._is_installed("no_such_package_at_all.part")


def test_this_machine_gets_an_answer() -> None:
    assert isinstance(detect_best_backend(verbose=False), InferenceBackend)
