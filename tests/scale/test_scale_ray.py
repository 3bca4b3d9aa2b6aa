"""Counting and packing on Ray: exact, whoever dies meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE
from processes import Program, ray_variables, run_alone, wanted

import bpe_tokenizer as core
from bpe_tokenizer import BPETokenizer, PretokenCounts
from bpe_tokenizer_tools.scale import encode_corpus, open_packed
from bpe_tokenizer_tools.training.superword_counts import SuperwordCounts
from bpe_tokenizer_tools.training.superwords import count_superwords

pytestmark = [EITHER_ENGINE, pytest.mark.slow]
wanted("ray", "numpy")

LETTERS = "etaoinshrdlucmfwypvbgkqjxz" + "éüßñ" + "世界"
SHARDS = [f"{number:02}" for number in range(12)]
LARGE = "07"
# The engine in Python: a shard takes far longer than a look at who does what, whatever the load.
SLOWLY = {"BPE_TOKENIZER_PURE": "1"}


def text_of(shard: str) -> str:
    """Make up text: common words, rare ones, and some that no other shard has."""
    chance = random.Random(shard)
    words = ["".join(chance.choices(LETTERS, k=chance.randint(1, 9))) for _ in range(3000)]
    words += ["the", "of", "and", f"x{shard}"] * 300
    return " ".join(chance.choices(words, k=120_000 if shard == LARGE else 12_000))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, engine: str) -> Path:
    """Where the inputs are, a tokenizer, and two versions of the library that do not do."""
    folder = tmp_path_factory.mktemp("ray")
    (folder / "in").mkdir()
    for shard in SHARDS:
        (folder / "in" / f"{shard}.txt").write_text(text_of(shard), encoding="utf-8")
    (folder / "bad.txt").write_bytes(b"good\nbad \xff\n")
    trained().save(folder / "tokenizer", verbose=False)
    for name in ("older", "none"):
        (folder / name).mkdir()
    source = Path(core.__file__).read_text(encoding="utf-8")
    older, changes = re.subn(r'^__version__ = ".*"$', '__version__ = "0.1"', source, flags=re.M)
    assert changes == 1
    (folder / "older" / "bpe_tokenizer.py").write_text(older, encoding="utf-8")
    for package in ("bpe_tokenizer_tools", "_bpe_tokenizer"):  # of that version, too
        (folder / "older" / package).mkdir()
        (folder / "older" / package / "__init__.py").write_text('__version__ = "0.1"\n')
    uncompiled = "raise ModuleNotFoundError(name='_bpe_tokenizer.native')\n"
    (folder / "older" / "_bpe_tokenizer" / "engine.py").write_text(uncompiled)
    lacking = "import bpe_tokenizer_is_nowhere\n"
    (folder / "none" / "bpe_tokenizer.py").write_text(lacking, encoding="utf-8")
    return folder


def trained() -> BPETokenizer:
    return BPETokenizer().train(
        text_of("00")[:50_000], 400, special_tokens=["<|endoftext|>"], verbose=False
    )


@pytest.fixture(scope="module")
def report(folder: Path) -> Any:
    """What came of the jobs of ray_cluster.py."""
    with ray_variables() as variables:
        script = Path(__file__).with_name("ray_cluster.py")
        return run_alone(script, folder, at=folder, timeout=600, **variables, **SLOWLY)


@pytest.fixture(scope="module")
def local(folder: Path) -> Iterator[Path]:
    """The corpus packed by this process: as flat ids, and as Megatron has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for format in ("bin", "megatron"):
            encode_corpus(trained(), "in", f"local-{format}", format=format, num_workers=1)
    yield folder


def tree(path: Path) -> dict[str, str]:
    """Return the hash of each file of a directory, hidden ones among them."""
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file()
    }


def expected_counts(min_frequency: int = 1) -> dict[bytes, int]:
    total: Counter[bytes] = Counter()
    for shard in SHARDS:
        total.update(core.count_pretokens([text_of(shard)], num_workers=1))
    return {pretoken: count for pretoken, count in total.items() if count >= min_frequency}


def happened(event: Any) -> None:
    """See that something was lost in the middle of a shard that was begun again."""
    assert isinstance(event, dict), event
    assert len(event["done"]) >= 2 and event["draft"] in event["left"]
    shard = event["draft"].lstrip(".")[:2]
    assert shard in SHARDS and not any(name.startswith(shard) for name in event["done"])


def test_a_node_is_lost_while_counting(report: Any, folder: Path) -> None:
    happened(report["node lost while counting"])
    counts = PretokenCounts.load(folder / "ray.counts")
    assert dict(counts) == expected_counts(min_frequency=2)
    assert counts.documents == len(SHARDS)
    assert counts.bytes_read == sum(len(text_of(shard).encode()) for shard in SHARDS)
    assert not list((folder / "counting").glob(".*"))


def test_a_node_is_lost_while_packing(report: Any, local: Path) -> None:
    happened(report["node lost while packing"])
    assert tree(local / "packed") == tree(local / "local-bin")
    tokenizer = trained()
    packed = open_packed(local / "packed")
    assert [list(document) for document in packed] == [
        [*tokenizer.encode(text_of(shard)), tokenizer.eos_token_id] for shard in SHARDS
    ]


def test_a_worker_is_killed(report: Any, local: Path) -> None:
    happened(report["worker lost"])
    assert tree(local / "packed-again") == tree(local / "local-megatron")


def test_a_shard_that_kills_whoever_works_on_it(report: Any, folder: Path) -> None:
    assert report["killed"] == 2  # max_retries=1
    assert report["deadly"]["type"] == "RuntimeError"
    said = report["deadly"]["text"]
    assert said.startswith(f"the process that worked on in/{LARGE}.txt was lost (")
    assert said.endswith(
        "2 times in all; often it ran out of memory: try fewer workers. "
        "What is finished is kept: the same call goes on"
    )
    assert "\n" not in said
    assert not any(name.startswith(LARGE) for name in report["kept"])
    assert dict(PretokenCounts.load(folder / "deadly.counts")) == expected_counts()
    assert report["left after the rerun"] == []


@pytest.mark.usefixtures("report")
def test_superwords(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster counts what one process counts, and packs alike with what is learned."""
    monkeypatch.chdir(local)
    paths = [Path(f"in/{shard}.txt") for shard in SHARDS[:4]]
    expected = count_superwords(paths, 380, 420, num_workers=1)
    counts = PretokenCounts.load("superwords.counts")
    assert isinstance(counts, SuperwordCounts)
    assert counts == expected and counts.least == expected.least
    runs = [sorted((list(run), n) for run, n in each.runs) for each in (counts, expected)]
    assert runs[0] == runs[1] != []
    made = [
        BPETokenizer().train(vocab_size=420, superwords=380, verbose=False, **source)
        for source in ({"counts": counts}, {"corpus": paths})
    ]
    assert made[0].merges == made[1].merges
    assert any(b" " in (left + right)[1:] for left, right in made[0].merges)
    encode_corpus(made[1], "in/0[0-3].txt", "local-superwords", num_workers=1)
    assert tree(local / "packed-superwords") == tree(local / "local-superwords")


@pytest.mark.parametrize("where", ["bad document", "bad document in a session"])
def test_an_error_comes_as_itself(report: Any, where: str) -> None:
    error = report[where]
    assert (error["type"], error["field"]) == ("FileFormatError", "line 2")
    assert error["text"].startswith("bad.txt: line 2: not UTF-8 (")
    assert "\n" not in error["text"] and "ray" not in error["text"].lower()


def test_an_error_at_the_command_line_is_one_line(report: Any) -> None:
    status, out, err = report["bad document at the command line"]
    assert (status, out) == (1, "")
    assert re.fullmatch(r"bpe-tokenizer: error: bad.txt: line 2: not UTF-8 .*\n", err)


def test_what_cannot_be(report: Any) -> None:
    assert report["no work_dir"]["type"] == "ValueError"
    assert report["no work_dir"]["text"].startswith("a Ray cluster needs work_dir, on a file")
    assert report["no answer"]["type"] == "ConnectionError"
    assert re.fullmatch(
        r"cannot join the Ray cluster at [\d.]+:1: .*refused", report["no answer"]["text"]
    )


def test_a_session_of_the_user_is_used_and_left_alone(report: Any, local: Path) -> None:
    assert report["the session"] == [True, "mine"]
    assert tree(local / "packed-here") == tree(local / "local-bin")
    assert report["address in a session"]["type"] == "ValueError"
    assert "has joined a Ray cluster already" in report["address in a session"]["text"]


@pytest.mark.parametrize(
    ("name", "found"),
    [("older", "0.1"), ("none", "missing (No module named 'bpe_tokenizer_is_nowhere')")],
)
def test_a_node_with_another_version(report: Any, name: str, found: str) -> None:
    error = report[f"{name} on a node"]
    assert error["type"] == "RuntimeError"
    assert re.fullmatch(
        rf"on node \S+ of the Ray cluster, bpe-tokenizer is {re.escape(found)}; install "
        rf"{re.escape(core.__version__)} on all nodes, the version that started this job",
        error["text"],
    )


# -- The command line, on a cluster of its own --------------------------------------------------


@pytest.fixture
def variables(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What the command line meets at somebody's who has never set anything up for Ray."""
    with ray_variables() as variables:
        kept = {key: variables[key] for key in ("RAY_TMPDIR", "RAY_worker_niceness")}
        # No cluster of a variable, or of one that has crashed, is joined.
        (Path(kept["RAY_TMPDIR"]) / "ray").mkdir()
        (Path(kept["RAY_TMPDIR"]) / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
        yield {**kept, "RAY_ADDRESS": "127.0.0.1:2", "HOME": str(tmp_path)}


PACK = ["-m", "bpe_tokenizer", "pack", "--quiet", "--tokenizer", "tokenizer", "--num-workers", "2"]


def test_count_by_the_command_line(folder: Path, variables: dict[str, str]) -> None:
    command = ["-m", "bpe_tokenizer", "count", "in", "-o", "counts", "--executor", "ray"]
    command += ["--num-workers", "2", "--partitions", "2", "--json"]
    with Program(command, folder / "count", **variables) as program:
        ended = program.wait(600)
    assert ended.status == 0, ended
    assert dict(PretokenCounts.load(folder / "counts")) == expected_counts()
    assert json.loads(ended.out)["documents"] == len(SHARDS)
    for line in ended.err.splitlines():  # the summary; nothing of Ray's
        assert re.search(r"shards|pre-tokens|^took |one worker", line), ended.err
    assert not (Path(variables["HOME"]) / ".ray").exists()


def test_an_address_of_nobody(folder: Path, variables: dict[str, str]) -> None:
    command = [*PACK, "in", "-o", "failed", "--executor", "ray", "--address", "auto"]
    with Program(command, folder / "failed", **variables) as program:
        ended = program.wait(600)
    assert ended.status == 1, ended
    assert re.search(r"cannot join the Ray cluster at 127.0.0.1:2: .*refused\n$", ended.err)
    assert ended.err.count("\n") == 1


def test_the_driver_is_killed(folder: Path, local: Path, variables: dict[str, str]) -> None:
    out = folder / "interrupted"
    command = [*PACK, "in", "-o", out, "--json"]
    on_ray = [*command, "--executor", "ray"]
    with Program(on_ray, folder / "pack", **variables, **SLOWLY) as program:
        while len(list(out.glob("*.json"))) < 3:
            assert program.process.poll() is None, "it ended too early"
            time.sleep(0.002)
        os.kill(program.process.pid, signal.SIGKILL)
        # These two look for a minute for the cluster that they would report its end to.
        ended = program.wait(600, spared=["ray::DashboardAgent", "ray::RuntimeEnvAgent"])
    assert ended.status == -signal.SIGKILL, ended
    done = {path: path.stat() for path in out.glob("*.json")}
    assert 3 <= len(done) < len(SHARDS) and not (out / "manifest.json").exists()
    with Program(command, folder / "pack", **variables) as program:
        ended = program.wait(600)
    assert ended.status == 0, ended
    assert json.loads(ended.out)["kept"] >= len(done)
    assert tree(out) == tree(local / "local-bin")
    for path, before in done.items():
        assert path.stat().st_mtime_ns == before.st_mtime_ns
