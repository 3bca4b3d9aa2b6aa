"""Build and install bpe_tokenizer: one module, its command, its type hints, the accelerator."""

import os
import re
import shutil
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "bpe_tokenizer.py"


class BuildWithHints(build_py):
    """Ships the module a second time, as the stub package that type checkers look for.

    They do not trust the hints of an installed single module, not even with a py.typed beside it;
    a package named bpe_tokenizer-stubs they do. Making it here keeps one copy in the repository.
    """

    def _stub(self) -> str:
        return str(Path(self.build_lib, "bpe_tokenizer-stubs", "__init__.pyi"))

    def run(self) -> None:
        super().run()
        if not getattr(self, "editable_mode", False):  # then the module itself is on the path
            self.mkpath(str(Path(self._stub()).parent))
            shutil.copyfile(SOURCE, self._stub())

    def get_outputs(self, include_bytecode: bool = True) -> list:
        return [*super().get_outputs(include_bytecode), self._stub()]


class BuildIfPossible(build_ext):
    """Compiles the accelerator; where that fails, all works without it, and one line says so.

    With BPE_TOKENIZER_REQUIRE_ACCELERATOR=1 it must not fail.
    """

    def build_extension(self, extension: Extension) -> None:
        try:
            super().build_extension(extension)
        except Exception as error:  # whatever a compiler, or the lack of one, leads to
            if not extension.optional:
                raise
            reason = " ".join(str(error).split())
            print(
                f"bpe-tokenizer: the accelerator was not built ({reason}): the library is complete "
                "without it, but slower; gcc or clang and a new install bring it",
                file=sys.stderr,
            )


def accelerator() -> list:
    """Return the extension in C; none where the interpreter is not CPython."""
    folder = HERE / "accelerator"
    if sys.implementation.name != "cpython" or not folder.is_dir():
        return []
    unix = os.name == "posix"
    return [
        Extension(
            "_bpe_tokenizer",
            sorted(str(path.relative_to(HERE)) for path in folder.glob("*.c")),
            depends=sorted(str(path.relative_to(HERE)) for path in folder.glob("*.h")),
            extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden"] if unix else [],
            extra_link_args=["-pthread"] if unix else [],
            optional=os.environ.get("BPE_TOKENIZER_REQUIRE_ACCELERATOR") != "1",
        )
    ]


def version() -> str:
    """Read the version from the module, without importing it and what it needs."""
    found = re.search(r'^__version__ = "([^"]+)"', SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise SystemExit(f"{SOURCE} says no __version__")
    return found[1]


def long_description() -> str:
    """Return the README, if it is there: a copy of two files must build too."""
    readme = HERE / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


EXTRAS = {
    "chat": ["jinja2>=3.1.6"],  # chat templates that come with a model
    "hub": ["huggingface_hub"],
    "numpy": ["numpy"],
    # One for each way of running a model; all of them draw ids with numpy.
    "llama": ["llama-cpp-python", "numpy"],
    "apple": ["mlx-lm", "mlx[cpu]; sys_platform == 'linux'", "numpy"],
    "openvino": ["openvino", "numpy"],
    "openvino-export": ["optimum-intel[openvino]"],
    "transformers": ["transformers", "torch", "numpy", "jinja2>=3.1.6"],
    # Tables, charts, records and recipes of the tools around a tokenizer.
    "tools": [
        "matplotlib>=3.7",
        "numpy",
        "pyarrow",
        "rich",
        "tomli; python_version < '3.11'",
        "tqdm",
        "backports.zstd; python_version < '3.14'",
    ],
    # Corpora larger than one machine; every node of the cluster needs it.
    "ray": ["ray", "numpy", "pyarrow"],
    # Everything a corpus or a model may need here, but for the two that must be compiled or that
    # bring a runtime of their own (llama, openvino, apple).
    "full": [
        "huggingface_hub",
        "jinja2",
        "numpy",
        "pyarrow",
        "torch",
        "tqdm",
        "transformers",
        "backports.zstd; python_version < '3.14'",
    ],
    # The libraries that the benchmarks compare with, and what draws the charts.
    "benchmark": [
        "fastokens",
        "gigatoken",
        "matplotlib>=3.7",
        "numpy",
        "rustbpe",
        "sentencepiece",
        "tiktoken",
        "tokenizers",
    ],
    # The libraries that the tests compare with, and those that are optional at run time.
    "test": [
        "accelerate>=1",
        "aiohttp",
        "build",
        "datasets",
        "fsspec",
        "gguf",
        "huggingface_hub",
        "hypothesis",
        "jinja2",
        "matplotlib>=3.7",
        "mistral-common",
        "numpy",
        "pyarrow",
        "pytest",
        "pytest-xdist",
        "ray",
        "rich",
        "safetensors",
        "selenium",
        "sentencepiece",
        "setuptools",
        "tiktoken",
        "tokenizers",
        "tomli; python_version < '3.11'",
        # One version, so that the same build is fetched everywhere: what is tested is only that
        # tensors come out right.
        "torch==2.13.0",
        "tqdm",
        "transformers>=5",
        "backports.zstd; python_version < '3.14'",
    ],
}
# Pinned: what counts as well formatted, or as well typed, differs from release to release.
EXTRAS["dev"] = [*EXTRAS["test"], "mypy==2.4.1", "ruff==0.17.5", "types-regex"]

setup(
    name="bpe-tokenizer",
    version=version(),
    description="Train, run, save and load byte-level BPE tokenizers, in one readable module",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="MIT",
    classifiers=[
        "Programming Language :: Python :: 3",
        "Topic :: Text Processing",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    install_requires=["regex"],
    extras_require=EXTRAS,
    py_modules=["bpe_tokenizer"],
    packages=find_packages(include=["bpe_tokenizer_tools*"]),
    package_data={
        "bpe_tokenizer_tools": ["py.typed"],
        "bpe_tokenizer_tools.showing": ["*.html"],
        "bpe_tokenizer_tools.showing.page": ["*.html", "*.js", "*.css"],
    },
    entry_points={"console_scripts": ["bpe-tokenizer = bpe_tokenizer:main"]},
    ext_modules=accelerator(),
    cmdclass={"build_ext": BuildIfPossible, "build_py": BuildWithHints},
)
