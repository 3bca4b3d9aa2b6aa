"""Build what pyproject.toml cannot describe: the accelerator, and the module's type hints."""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
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
            "_bpe_tokenizer.native",
            sorted(str(path.relative_to(HERE)) for path in folder.glob("*/*.c")),
            include_dirs=["accelerator"],
            depends=sorted(str(path.relative_to(HERE)) for path in folder.glob("*/*.h")),
            extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden"] if unix else [],
            extra_link_args=["-pthread"] if unix else [],
            optional=os.environ.get("BPE_TOKENIZER_REQUIRE_ACCELERATOR") != "1",
        )
    ]


setup(
    ext_modules=accelerator(),
    cmdclass={"build_ext": BuildIfPossible, "build_py": BuildWithHints},
)
