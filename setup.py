"""Build what pyproject.toml cannot describe: the extension, hints, a list of parts, one date."""

import gzip
import io
import json
import os
import shutil
import sys
import sysconfig
import tarfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

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

    def build_extensions(self) -> None:
        """On Windows, compile with clang-cl if it is there: Microsoft's compiler can't."""
        clang = shutil.which("clang-cl")
        if self.compiler.compiler_type == "msvc" and clang:
            self.compiler.initialize()
            self.compiler.cc = clang
        super().build_extensions()

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


class WheelWithParts(bdist_wheel):
    """Puts a CycloneDX list of the parts into the wheel's metadata, where PEP 770 wants it."""

    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        super().egg2dist(egginfo_path, distinfo_path)
        folder = Path(distinfo_path, "sboms")
        folder.mkdir(exist_ok=True)
        text = json.dumps(list_of_parts(self.distribution), indent=2)
        Path(folder, "bpe-tokenizer.cdx.json").write_text(f"{text}\n", encoding="utf-8")


def list_of_parts(distribution: object) -> dict:
    """Return what is in a wheel and what it needs; nothing of it changes from build to build.

    No code of others is in it.
    """
    name, version = distribution.get_name(), distribution.get_version()
    ref = f"pkg:pypi/{name}@{version}"
    needs = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{package}",
            "name": package,
            "purl": f"pkg:pypi/{package}",
            "scope": "required",
            "description": "installed beside this package, not in it",
        }
        for package in distribution.install_requires
    ]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": ref,
                "name": name,
                "version": version,
                "purl": ref,
                "licenses": [{"license": {"id": "MIT"}}],
            }
        },
        "components": needs,
        "dependencies": [{"ref": ref, "dependsOn": [need["bom-ref"] for need in needs]}],
    }


class SdistOfFixedDate(sdist):
    """With SOURCE_DATE_EPOCH, makes the same archive of the same files, byte for byte."""

    def make_archive(self, *args: object, **options: object) -> str:
        path = Path(super().make_archive(*args, **options))
        if "SOURCE_DATE_EPOCH" in os.environ and path.name.endswith(".tar.gz"):
            path.write_bytes(repacked(path, int(os.environ["SOURCE_DATE_EPOCH"])))
        return str(path)


def repacked(archive: Path, date: int) -> bytes:
    """Return a .tar.gz in order, of one date, and of nobody."""
    packed = io.BytesIO()
    with (
        tarfile.open(archive) as old,
        gzip.GzipFile("", "wb", 9, packed, mtime=date) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = date, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def accelerator() -> list:
    """Return the extension in C; none where the interpreter is not CPython."""
    folder = HERE / "accelerator"
    if sys.implementation.name != "cpython" or not folder.is_dir():
        return []
    unix = os.name == "posix"
    threads = unix and "wasm" not in sysconfig.get_platform()
    # Without the notes for debuggers, which say where it was built and take two thirds of it.
    flags = ["-std=c11", "-O3", "-fvisibility=hidden", "-g0"] if unix else ["/std:c11"]
    return [
        Extension(
            "_bpe_tokenizer.native",
            sorted(str(path.relative_to(HERE)) for path in folder.glob("*/*.c")),
            include_dirs=["accelerator"],
            depends=sorted(str(path.relative_to(HERE)) for path in folder.glob("*/*.h")),
            extra_compile_args=flags,
            extra_link_args=["-pthread"] if threads else [],
            optional=os.environ.get("BPE_TOKENIZER_REQUIRE_ACCELERATOR") != "1",
        )
    ]


setup(
    ext_modules=accelerator(),
    cmdclass={
        "bdist_wheel": WheelWithParts,
        "build_ext": BuildIfPossible,
        "build_py": BuildWithHints,
        "sdist": SdistOfFixedDate,
    },
)
