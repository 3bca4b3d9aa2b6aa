"""Build the package `_bpe_tokenizer` in a folder, for tests and benchmarks.

    python accelerator/tools/build.py FOLDER [--sanitize]

With BPE_TOKENIZER_ACCELERATOR_DIR=FOLDER the tests find it there.  A build with --sanitize checks
every access to memory while it runs; the interpreter must load the sanitizer first:

    LD_PRELOAD=$(cc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 python ...
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ACCELERATOR = Path(__file__).resolve().parent.parent
PACKAGE = ACCELERATOR / "_bpe_tokenizer"
SOURCES = sorted(ACCELERATOR.glob("*/*.c"))
THREADS = ["-pthread"]
FLAGS = ["-std=c11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", *THREADS]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover", "-g", "-O1"]


def build(folder: Path, sanitize: bool) -> Path:
    """Compile and link the module beside the package's Python files; return its path.

    Those are links, so that what is edited is what is tested.
    """
    compiler = os.environ.get("CC", "cc").split()
    more = SANITIZE if sanitize else []
    include = [f"-I{ACCELERATOR}", f"-I{sysconfig.get_path('include')}"]
    folder.mkdir(parents=True, exist_ok=True)

    def compile_one(source: Path) -> str:
        target = str(folder / f"{source.parent.name}_{source.stem}.o")
        command = [*compiler, *FLAGS, *more, *include, "-c", str(source)]
        subprocess.run([*command, "-o", target], check=True)
        return target

    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(compile_one, SOURCES))
    package = folder / PACKAGE.name
    package.mkdir(exist_ok=True)
    for file in PACKAGE.glob("*.py"):
        link = package / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(file)
    module = package / f"native{sysconfig.get_config_var('EXT_SUFFIX')}"
    linked = folder / f"{module.name}.new"  # one that is in use must not be written over
    command = [*compiler, "-shared", *THREADS, *more, *objects, "-o", str(linked)]
    subprocess.run(command, check=True)
    linked.replace(module)
    return module


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compile the accelerator.")
    parser.add_argument("folder", type=Path, help="where the module goes")
    parser.add_argument("--sanitize", action="store_true", help="check memory and arithmetic")
    options = parser.parse_args()
    print(build(options.folder, options.sanitize))
