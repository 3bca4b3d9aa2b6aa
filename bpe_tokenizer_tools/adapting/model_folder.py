"""The working directory of an adapted model, until it is complete.

It is hidden, beside the output: `.NAME.adapting/`.  The model grows in `model/` there, and each
finished file of weights has a marker with the hashes of the input and the output
(`job_folder`).  At the end, `model/` is renamed to the output.  So the output is never incomplete,
and the next run continues a killed one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bpe_tokenizer_tools.scale import job_folder
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.files import draft_name, flush, flush_directory, naming

FORMAT = "bpe_tokenizer.adapted-model/1"
_JOB = "job.json"
JOURNAL = "journal.jsonl"  # what is done of a GGUF file

# Weights.  Only safetensors are rewritten: other files would have the old vocabulary.
_WEIGHTS = re.compile(
    r".*\.(safetensors|bin|pth?|ckpt|h5|msgpack|onnx|onnx_data|gguf|npz|ot|tflite|mlmodel|pkl"
    r"|index\.json)|openvino_.*\.xml",
    re.IGNORECASE,
)
# The files of a tokenizer, in any format.
_TOKENIZER = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
_TOKENIZER |= {"added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model"}
_TOKENIZER |= {"spiece.model", "sentencepiece.bpe.model", "tekken.json", "chat_template.jinja"}
_TOKENIZER |= {"chat_template.json", "additional_chat_templates"}
_HIDDEN = {".git", ".cache", ".bpe-tokenizer.lock", ".bpe-tokenizer.saving"}


def check_output(model: Path, out: Path, force: bool) -> None:
    """Raise an error if the output already exists, or is a part of the model.

    Raises:
        FileExistsError: it is there, and `force` is not set.
        ValueError: model and output are within each other.
    """
    outputs.check_directory(out)
    first, second = model.resolve(), out.resolve()
    if first == second or first in second.parents or second in first.parents:
        raise ValueError(
            f"{out}: the output must not be inside the model's directory, or contain it"
        )
    if out.exists() and any(out.iterdir()) and not force:
        raise FileExistsError(
            f"{out}: already exists and isn't empty; force=True (--force) replaces all of it"
        )


@contextlib.contextmanager
def working(out: Path, job: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the directory to work in, without files of other jobs.

    After an error, it stays only if a file of weights, or a part of a GGUF file, is finished.

    Raises:
        BlockingIOError: another run works on the same output.
    """
    folder = out.resolve().with_name(f".{out.resolve().name}.adapting")
    try:
        with job_folder.open_folder(folder, shared=False):
            try:
                known = json.loads(json.dumps(job))
                if job_folder.read_facts(folder / _JOB, FORMAT) != known:
                    for each in folder.iterdir():
                        if each.name != ".lock":
                            shutil.rmtree(each) if each.is_dir() else each.unlink()
                    outputs.write({folder / _JOB: json.dumps(known, indent=1) + "\n"})
                (folder / "model").mkdir(exist_ok=True)
                yield folder
            finally:
                # Under the lock: the next run may begin as soon as it is released.
                done = [*(folder / "model").glob("*.safetensors"), *folder.glob(JOURNAL)]
                if not done:
                    shutil.rmtree(folder, ignore_errors=True)
    finally:
        if os.name == "nt":  # where the file of the lock, and so the folder, is still there
            with contextlib.suppress(OSError):
                (folder / ".lock").unlink()
                folder.rmdir()


def copy_others(model: Path, made: Path, out: Path) -> list[str]:
    """Copy files that aren't weights, a tokenizer, or finished; return the names of the others.

    `out` is what errors name.
    """
    left_out = []
    for place, folders, names in os.walk(model):
        below = Path(place).relative_to(model)
        apart = _HIDDEN if below.parts else _HIDDEN | _TOKENIZER
        folders[:] = sorted(name for name in folders if name not in apart)
        links = [name for name in folders if Path(place, name).is_symlink()]  # not followed
        left_out += [(below / name).as_posix() for name in links]
        for name in sorted(names):
            source, target = Path(place, name), made / below / name
            if name in apart or name.endswith(".tiktoken") or target.exists():
                continue
            if _WEIGHTS.fullmatch(name) or not source.is_file():
                left_out.append((below / name).as_posix())
                continue
            with naming(out / below / name):
                target.parent.mkdir(parents=True, exist_ok=True)
                _copy(source, target)
    return left_out


def _copy(source: Path, target: Path) -> None:
    with open(source, "rb") as file, open(target, "wb") as out:
        shutil.copyfileobj(file, out)
        flush(out)


def place(folder: Path, out: Path) -> None:
    """Rename the finished model to the output, and remove the old output."""
    made, out = folder / "model", out.resolve()
    for each in (made, *(path for path in made.rglob("*") if path.is_dir())):
        flush_directory(each)
    former = None
    with naming(out):
        if out.exists():
            former = draft_name(out)
            os.replace(out, former)
        try:
            os.replace(made, out)
        except BaseException:
            if former is not None:
                os.replace(former, out)
            raise
    flush_directory(out.parent)
    leftover = re.compile(rf"\.{re.escape(out.name)}\.[0-9a-f]{{16}}\.tmp")
    for each in out.parent.iterdir():  # a killed run's, too
        if leftover.fullmatch(each.name) and each.is_dir():
            shutil.rmtree(each)
