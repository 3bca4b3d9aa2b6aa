"""Which way of running a model suits this machine.

Looking is cheap: packages are found, not imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bpe_tokenizer import InferenceBackend


def is_installed(package: str) -> bool:
    """Tell whether a package is there; "llama_cpp:cuda" asks for a build for a GPU."""
    package, _, gpu = package.partition(":")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # its parent is missing, or half imported
        return False
    if spec is None or not gpu:
        return spec is not None
    folder = Path(spec.origin or "").parent
    return any(list(folder.glob(f"lib/*{name}{gpu}*")) for name in ("ggml-", "torch_"))


def is_apple() -> bool:
    """Tell whether this is a Mac with Apple Silicon."""
    return sys.platform == "darwin" and platform.machine() == "arm64"


def has_nvidia_gpu() -> bool:
    """Tell whether an NVIDIA GPU and its driver are here."""
    try:
        command = ["nvidia-smi", "--list-gpus"]
        run = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return run.returncode == 0 and bool(run.stdout.strip())


def has_amd_gpu() -> bool:
    """Tell whether a GPU that ROCm runs is here."""
    # Every GPU that the ROCm driver runs is a node with shader units; CPUs have none.
    nodes = Path("/sys/class/kfd/kfd/topology/nodes")
    with contextlib.suppress(OSError):
        for properties in nodes.glob("*/properties"):
            if re.search(r"^simd_count [1-9]", properties.read_text(), re.MULTILINE):
                return True
    return False


def has_intel_processor() -> bool:
    """Tell whether the processor is one of Intel."""
    if platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686"):
        return False
    with contextlib.suppress(OSError):
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    return "Intel" in platform.processor()


_Packages = tuple[tuple[str, ...], ...]

# Each backend with what it runs on, how to see that it is here, the packages it needs (one
# set or another), and the extra that installs the first.
BACKENDS: dict[InferenceBackend, tuple[str, Callable[[], bool], _Packages, str]] = {
    InferenceBackend.APPLE_MLX: ("Apple Silicon", is_apple, (("mlx_lm",),), "apple"),
    InferenceBackend.NVIDIA_CUDA: (
        "an NVIDIA GPU",
        has_nvidia_gpu,
        (("llama_cpp:cuda",), ("transformers", "torch:cuda")),
        "llama",
    ),
    InferenceBackend.AMD_ROCM: (
        "an AMD GPU",
        has_amd_gpu,
        (("llama_cpp:hip",), ("transformers", "torch:hip")),
        "llama",
    ),
    InferenceBackend.INTEL_OPENVINO: (
        "an Intel processor",
        has_intel_processor,
        (("openvino",),),  # optimum-intel and openvino-genai both bring it
        "openvino",
    ),
    InferenceBackend.CPU_LLAMA_CPP: ("any processor", lambda: True, (("llama_cpp",),), "llama"),
    InferenceBackend.HUGGINGFACE_TRANSFORMERS: (
        "any processor",
        lambda: True,
        (("transformers", "torch"),),
        "transformers",
    ),
}


def detect(verbose: bool) -> InferenceBackend:
    """Choose a backend; see `bpe_tokenizer.detect_best_backend`."""

    def explain(text: str) -> None:
        if verbose:
            print(text, file=sys.stderr)

    fitting: list[InferenceBackend] = []
    for backend, (hardware, is_present, alternatives, extra) in BACKENDS.items():
        if not is_present():
            continue
        for packages in alternatives:
            if all(map(is_installed, packages)):
                explain(
                    f"{backend.value}: chosen; it runs on {hardware}, and "
                    f"{' and '.join(packages)} is installed"
                )
                return backend
        needed = " or ".join(" with ".join(packages) for packages in alternatives)
        explain(
            f"{backend.value}: would run on {hardware}, but {needed} is not "
            f"installed; pip install 'bpe-tokenizer[{extra}]'"
        )
        fitting.append(backend)
    explain(f"No backend is installed; {fitting[0].value} would suit this machine best")
    return fitting[0]
