"""Source archives of other libraries, which contain their tests; pip downloads them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

# Before it keeps an archive, pip asks the package's build tool for its metadata.  That of
# tokenizers would ask for a compiler of Rust, which a test of Python code doesn't need.
_BUILD_TOOL = """
import pathlib

def prepare_metadata_for_build_wheel(folder, *_):
    made = pathlib.Path(folder, "{name}-{version}.dist-info")
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return made.name
"""


class DownloadError(Exception):
    """A source archive could not be downloaded."""


def download(name: str, folder: Path, build_tool: str | None = None) -> Path:
    """Return the source archive of the installed version of a package, downloaded once.

    Args:
        name: the package.
        folder: where archives are kept.
        build_tool: the module that builds the package, if it must not run.
    """
    number = version(name)
    archive = folder / f"{name}-{number}.tar.gz"
    if archive.exists():
        return archive
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", name, "--dest", str(folder)]
    environment = dict(os.environ)
    if build_tool is not None:
        tools = folder / f"instead of {build_tool}"
        tools.mkdir(exist_ok=True)
        text = _BUILD_TOOL.format(name=name, version=number)
        (tools / f"{build_tool}.py").write_text(text, encoding="utf-8")
        environment["PYTHONPATH"] = str(tools)
        command.append("--no-build-isolation")
    done = subprocess.run(
        [*command, f"{name}=={number}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode or not archive.exists():
        problem = done.stderr.strip()[-300:]
        raise DownloadError(f"{name}=={number} could not be downloaded: {problem}")
    return archive


def unpack(archive: Path, inside: str, folder: Path) -> Path:
    """Unpack what an archive has in its folder `inside`; return where that is now."""
    prefix = f"{archive.name.removesuffix('.tar.gz')}/{inside}/"
    with tarfile.open(archive) as tar:
        for member in tar:
            if not (member.isfile() and member.name.startswith(prefix)):
                continue
            file = tar.extractfile(member)
            assert file is not None
            path = folder / member.name.removeprefix(prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.read())
    return folder
