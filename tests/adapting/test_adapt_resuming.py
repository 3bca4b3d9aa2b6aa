"""Runs that are killed at any point, full disks, two runs at a time, and files of gigabytes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from adapted_models import elsewhere, other, write_model
from conftest import EITHER_ENGINE, run_command
from oracles import need, share

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.adapting import adapt_model, model_folder
from bpe_tokenizer_tools.scale import job_folder
from bpe_tokenizer_tools.support import outputs

np = need("numpy")

pytestmark = [
    EITHER_ENGINE,
    pytest.mark.skipif(os.name == "nt", reason="signals and limits are those of POSIX"),
]

# Counts the steps that change something on disk, and kills the process before one of them.
SCRIPT = """
import os, signal, sys
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.adapting import adapt_model, gguf_files, model_folder, weights
from bpe_tokenizer_tools.support import outputs
gguf_files._CHECKPOINT = 1
model, new, out, last, force = sys.argv[1:6]
steps = 0
def counted(place, name):
    function = getattr(place, name)
    def replaced(*given, **options):
        global steps
        steps += 1
        if steps == int(last):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **options)
    setattr(place, name, replaced)
for place, name in [
    (weights._Hashed, "write"), (weights, "flush"), (gguf_files._Growing, "write"),
    (gguf_files, "flush"), (gguf_files, "flush_directory"), (os, "replace"), (os, "mkdir"),
    (outputs, "write"), (model_folder, "_copy"), (model_folder, "flush_directory"),
    (os, "rmdir"), (os, "unlink"),
]:
    counted(place, name)
new = BPETokenizer.from_file(new)
adapt_model(model, None, new, out, force=force == "force", verbose=False)
print(steps)
"""


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(bpe_tokenizer.__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, **options)


def tree(folder: Path) -> dict[str, bytes]:
    """Return all files of a directory."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a model in three files, another tokenizer, and the script."""
    source = write_model(tmp_path / "m", tied=False, shards=3)
    (source / "LICENSE").write_text("free")
    other().save(tmp_path / "new", verbose=False)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def killed(place: Path, out: Path, last: int, force: bool = False, model: str = "m") -> Any:
    script = (place / "script.py", place / model, place / "new")
    return run(*script, out, last, "force" if force else "")


@pytest.mark.slow
@pytest.mark.parametrize("force", [False, True])
def test_a_killed_run_leaves_nothing_that_looks_finished(place: Path, force: bool) -> None:
    whole = killed(place, place / "whole", 0)
    assert whole.returncode == 0, whole.stderr
    expected, steps = tree(place / "whole"), int(whole.stdout)
    former = {"former": b"model"}
    finished = set()
    assert steps > 30
    for last in share(range(1, steps + force * 3))[::3]:
        out = place / f"out{last}"
        if force:
            out.mkdir()
            (out / "former").write_bytes(b"model")
        ended = killed(place, out, last, force)
        assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr
        # NOTE: nothing replaces a directory at once, so there is an instant without any.
        assert not out.exists() or tree(out) in ([former, expected] if force else [expected])
        work = place / f".out{last}.adapting"
        done = {path: path.stat().st_ino for path in (work / "model").glob("*.safetensors")}
        marked = [path for path in work.glob("*.json") if path.name != "job.json"]
        if not out.exists() or tree(out) == former:
            report = adapt_model(place / "m", None, other(), out, force=force, verbose=False)
            assert len(report.done_before) == len(marked)
            finished.add(len(marked))
            again = {path: (out / path.name).stat().st_ino for path in done}
            kept = [path for path in done if again[path] == done[path]]
            assert len(kept) == len(marked)  # what was done has not been written again
            left = [path.name for path in place.iterdir() if path.name.startswith(f".out{last}.")]
            assert left == []
        assert tree(out) == expected
    assert finished >= {0, 3}


@pytest.mark.slow
@pytest.mark.parametrize("force", [False, True])
def test_a_killed_run_of_a_gguf_file(place: Path, force: bool) -> None:
    need("gguf")
    tiny_models.write_gguf(place / "m.gguf", tiny_models.model(True))
    whole = killed(place, place / "whole.gguf", 0, model="m.gguf")
    assert whole.returncode == 0, whole.stderr
    expected, steps = (place / "whole.gguf").read_bytes(), int(whole.stdout)
    continued = 0
    for last in share(range(1, steps + 3))[::5]:
        out = place / f"out{last}.gguf"
        if force:
            out.write_bytes(b"former")
        ended = killed(place, out, last, force, "m.gguf")
        assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr
        if not out.exists() or out.read_bytes() == b"former":
            report = adapt_model(place / "m.gguf", None, other(), out, force=force, verbose=False)
            continued += bool(report.done_before)
            assert not list(place.glob(f".out{last}.*"))
        assert out.read_bytes() == expected
    assert continued > 5


def interrupted(place: Path, out: Path) -> None:
    """Run until one file of three is done."""
    commit, calls = job_folder.commit, []

    def once(*given: Any) -> None:
        if calls:
            raise KeyboardInterrupt
        calls.append(commit(*given))

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(job_folder, "commit", once)
        adapt_model(place / "m", None, other(), out, verbose=False)
    work = out.with_name(f".{out.name}.adapting")
    assert len(list(work.glob("*.json"))) == 2 and len(list(work.rglob("*.safetensors"))) == 1


def test_a_finished_file_that_was_changed_is_made_anew(place: Path) -> None:
    out = place / "out"
    interrupted(place, out)
    [made] = (place / ".out.adapting/model").glob("*.safetensors")
    raw = bytearray(made.read_bytes())
    raw[-1] ^= 1
    made.write_bytes(raw)
    report = adapt_model(place / "m", None, other(), out, verbose=False)
    assert report.done_before == []
    adapt_model(place / "m", None, other(), place / "whole", verbose=False)
    assert tree(out) == tree(place / "whole")


def test_an_interrupted_run_is_continued(place: Path) -> None:
    interrupted(place, place / "out")
    report = adapt_model(place / "m", None, other(), place / "out", verbose=False)
    assert report.done_before == ["model-00001-of-00003.safetensors"]
    assert "done by an earlier run: model-00001-of-00003.safetensors" in str(report)
    adapt_model(place / "m", None, other(), place / "whole", verbose=False)
    assert tree(place / "out") == tree(place / "whole")


@pytest.mark.parametrize("change", ["input", "tokenizer", "init", "padding"])
def test_what_another_job_has_done_is_not_taken(place: Path, change: str) -> None:
    interrupted(place, place / "out")
    new, options = other(), {}
    if change == "input":
        for path in (place / "m").glob("*.safetensors"):
            raw = bytearray(path.read_bytes())
            raw[-1] ^= 1
            path.write_bytes(raw)
    elif change == "tokenizer":
        new = elsewhere()
    else:
        options = {"init": {"init": "mean"}, "padding": {"pad_to_multiple_of": 64}}[change]
    report = adapt_model(place / "m", None, new, place / "out", verbose=False, **options)
    assert report.done_before == []
    adapt_model(place / "m", None, new, place / "other", verbose=False, **options)
    assert tree(place / "out") == tree(place / "other")


def test_two_runs_at_a_time(place: Path) -> None:
    folder = place / ".out.adapting"
    folder.mkdir()
    with outputs.locked(folder):
        with pytest.raises(BlockingIOError, match="another run is using this folder"):
            adapt_model(place / "m", None, other(), place / "out", verbose=False)
    assert folder.exists()
    adapt_model(place / "m", None, other(), place / "out", verbose=False)
    assert not folder.exists()


def test_a_run_that_starts_as_another_one_ends(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can't begin before the first has removed its directory, and the output is there then."""
    real, tried, work = model_folder.shutil.rmtree, [], place / ".out.adapting"

    def rmtree(path: Path, *given: Any, **options: Any) -> None:
        if path == work and not tried:
            tried.append(path)
            with pytest.raises(BlockingIOError, match="another run is using this folder"):
                adapt_model(place / "m", None, other(), place / "out", force=True, verbose=False)
        real(path, *given, **options)

    monkeypatch.setattr(model_folder.shutil, "rmtree", rmtree)
    adapt_model(place / "m", None, other(), place / "out", verbose=False)
    assert tried and not work.exists() and (place / "out" / "config.json").is_file()


def test_an_output_that_appears_meanwhile_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, started = job_folder.open_folder, []

    def late(*given: Any, **options: Any) -> Any:
        if not started:
            started.append(True)
            adapt_model(place / "m", None, elsewhere(), place / "out", verbose=False)
        return real(*given, **options)

    monkeypatch.setattr(job_folder, "open_folder", late)
    with pytest.raises(FileExistsError, match="out: already exists and isn't empty"):
        adapt_model(place / "m", None, other(), place / "out", verbose=False)
    assert BPETokenizer.from_file(place / "out").fingerprint == elsewhere().fingerprint
    assert sorted(path.name for path in place.iterdir()) == ["m", "new", "out", "script.py"]


def test_a_full_disk(place: Path) -> None:
    resource = need("resource")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, 90_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    command = ["-m", "bpe_tokenizer", "adapt", place / "m", "--tokenizer", place / "new"]
    ended = run(*command, "--output", place / "out", preexec_fn=limit, cwd=place)
    assert ended.returncode == 1
    name = "model-00001-of-00003.safetensors"
    assert ended.stderr == f"bpe-tokenizer: error: {place}/out/{name}: File too large\n"
    assert sorted(path.name for path in place.iterdir()) == ["m", "new", "script.py"]


def test_a_disk_that_fills_later_keeps_what_is_done(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    with monkeypatch.context() as patch:
        patch.setattr(model_folder, "_copy", full)
        with pytest.raises(OSError, match="No space left on device") as error:
            adapt_model(place / "m", None, other(), place / "out", verbose=False)
    assert str(error.value.filename) == str(place / "out" / "LICENSE")
    assert not (place / "out").exists()
    report = adapt_model(place / "m", None, other(), place / "out", verbose=False)
    assert len(report.done_before) == 3
    killed(place, place / "whole", 0)
    assert tree(place / "out") == tree(place / "whole")


# -- The command --------------------------------------------------------------


def test_the_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place / "out"
    given = ("adapt", place / "m", "--tokenizer", place / "new", "--output", out)
    status, said, err = run_command(capsys, *given, "--pad-to-multiple-of", 64, "--json")
    assert (status, err) == (0, "")
    facts = json.loads(said)
    assert facts["tables"][0]["after"] == [576, 64] and facts["path"] == str(out)
    status, said, err = run_command(capsys, *given)
    assert (status, said) == (1, "") and "already exists and isn't empty" in err
    status, said, err = run_command(capsys, *given, "--force", "--init", "zeros")
    assert status == 0 and "model.embed_tokens.weight (input, F32): 512 x 64 -> 5" in said
    wrong = ("--ids", "pad_token_id=x", "--force")
    assert run_command(capsys, *given, *wrong)[0] == 2
    assert run_command(capsys, *given, "--init", "half")[0] == 2
    byte_level = BPETokenizer(normalizer=None)
    byte_level.add_special_tokens(["<s>", "</s>"])
    byte_level.save(place / "bytes", verbose=False)
    given = ("adapt", place / "m", "--tokenizer", place / "bytes", "--output", place / "b")
    status, said, err = run_command(capsys, *given, "--from", place / "m")
    assert status == 1 and "--ids pad_token_id=ID" in err
    assert run_command(capsys, *given, "--ids", "pad_token_id=null", "--quiet")[0] == 0
    assert json.loads((place / "b/config.json").read_text())["pad_token_id"] is None


# -- Gigabytes ----------------------------------------------------------------

MEASURED = """
import json, sys
from pathlib import Path
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.adapting import adapt_model
model, old, new, out = sys.argv[1:5]
old, new = BPETokenizer.from_file(old), BPETokenizer.from_file(new)
report = adapt_model(model, old, new, out, verbose=False)
# NOTE: VmHWM, not ru_maxrss, which a child inherits from a larger process.
status = Path("/proc/self/status").read_text()
print(json.dumps(int(status.split("VmHWM:")[1].split()[0]) * 1024))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_two_gigabytes_in_little_memory(tmp_path: Path, vocab_dir: Path) -> None:
    """Tables of 0.6 GB and another weight of 1.4 GB, which is a hole of the file but for its ends.

    Half of the rows come from all over the table.  Nothing is mapped, so that all memory that the
    process ever had is counted.
    """
    rows, columns, rest = 151_936, 2048, 1_400_000_000
    folder = tmp_path / "m"
    folder.mkdir()
    table = 2 * rows * columns
    header = {
        "model.embed_tokens.weight": ["BF16", [rows, columns], [0, table]],
        "model.layers.0.mlp.weight": ["U8", [rest], [table, table + rest]],
    }
    keys = ("dtype", "shape", "data_offsets")
    packed = json.dumps({name: dict(zip(keys, each)) for name, each in header.items()}).encode()
    packed += b" " * (-len(packed) % 8)
    random = np.random.default_rng(3)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(packed)) + packed)
        for start in range(0, rows, 4096):
            count = min(4096, rows - start)
            block = random.standard_normal((count, columns), np.float32)
            file.write((block.view("<u4") >> 16).astype("<u2").tobytes())
        file.write(b"begin")
        file.seek(8 + len(packed) + table + rest - 3)
        file.write(b"end")
    config = {"vocab_size": rows, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "script.py").write_text(MEASURED)
    given = (folder, *(vocab_dir / f"{name}.tiktoken" for name in ("qwen3", "o200k_base")))
    ended = run(tmp_path / "script.py", *given, tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) < 500_000_000, ended.stdout
    made = tmp_path / "out/model.safetensors"
    with open(made, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        places = json.loads(file.read(length))
        file.seek(8 + length + places["model.layers.0.mlp.weight"]["data_offsets"][0])
        digest = hashlib.sha256()
        while block := file.read(2**22):
            digest.update(block)
    zeros = hashlib.sha256(b"begin")
    left = rest - 8
    while left:
        zeros.update(bytes(min(left, 2**24)))
        left -= min(left, 2**24)
    zeros.update(b"end")
    assert digest.digest() == zeros.digest()
    for path in (made, folder / "model.safetensors"):
        path.unlink()  # what is kept of a test's folder should not be gigabytes
