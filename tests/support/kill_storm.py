"""Jobs killed at random times: python kill_storm.py [--kills N] [--seed N] [--only JOB ...].

Each job runs in its own process, forked from this one, and is killed (SIGKILL) after a random
share of the time that it takes; some start over and are killed again.  After each kill, the whole
old output or the whole new one must be there.  At the end the job runs undisturbed: it must leave
the same files as a run that was never killed, and no others.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import tiny_models

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, PretokenCounts
from bpe_tokenizer_tools.scale import open_packed
from bpe_tokenizer_tools.workflow.registry import Registry

NUMPY = bool(importlib.util.find_spec("numpy") and importlib.util.find_spec("safetensors"))
IMPORTED = ["commands", "scale.counting", "workflow.pipeline"]  # so that the jobs start fast
for each in IMPORTED + ["scale.packing", "adapting.model"] * NUMPY:
    importlib.import_module(f"bpe_tokenizer_tools.{each}")

WORDS = "the cat sat on a mat lower newest widest naïve 東京 🙂 don't 12345 x=f(y);".split()
PIPELINE = {
    "corpus": {
        "target_size": "40 kB",
        "held_out": "4 kB",
        "sources": [{"name": "all", "path": "texts/*.txt", "fraction": 1, "documents": "lines"}],
    },
    "train": {"vocab_size": 300, "num_workers": 1},
    "register": {"name": "made", "registry": "registry"},
}


def write_inputs(folder: Path) -> None:
    """Write what the jobs read."""
    chooser = random.Random(1)
    (folder / "texts").mkdir(parents=True)
    for number in range(4):
        lines = (" ".join(chooser.choices(WORDS, k=12)) for _ in range(400))
        (folder / "texts" / f"{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "recipe.json").write_text(json.dumps(PIPELINE["corpus"]), encoding="utf-8")
    (folder / "pipe.json").write_text(json.dumps(PIPELINE), encoding="utf-8")
    for name, size in (("old", 280), ("new", 320)):
        tokenizer = BPETokenizer().train([" ".join(WORDS) * 9], size, verbose=False)
        tokenizer.add_special_tokens(["<s>", "</s>"])
        tokenizer.bos_token, tokenizer.eos_token = "<s>", "</s>"
        tokenizer.chat_template = f"{name}{{{{ messages[0].content }}}}"
        tokenizer.save(folder / name, verbose=False)
    if NUMPY:
        tiny_models.write_safetensors(folder / "model", tiny_models.model(False))
        tiny_models.tokenizer().save(folder / "model", verbose=False)
        larger = BPETokenizer.from_file(folder / "model").extend(tokens=WORDS[:9], verbose=False)
        larger.save(folder / "larger", verbose=False)


class Job(NamedTuple):
    """The job to kill: a command line, or a function of the folder."""

    run: list[str] | Callable[[], object]
    check: Callable[[], object]  # raises if the output is damaged
    uses_numpy: bool = False


def save_both() -> None:
    """Save one tokenizer over the other, in turn."""
    both = [BPETokenizer.from_file(name) for name in ("old", "new")]
    for tokenizer in both * 3:
        tokenizer.save("out", verbose=False)


def check_saved() -> None:
    if Path("out").exists() and any(Path("out").glob("[!.]*")):
        found = BPETokenizer.from_file("out")
        known = [BPETokenizer.from_file(name) for name in ("old", "new")]
        assert found in known
        assert found.chat_template in [tokenizer.chat_template for tokenizer in known]


def check_trained() -> None:
    if Path("trained").exists() and any(Path("trained").glob("[!.]*")):
        assert BPETokenizer.from_file("trained").vocab_size in (300, 282)


def check_counts() -> None:
    if Path("all.counts").exists():
        assert PretokenCounts.load("all.counts").documents == 4


def check_packed() -> None:
    if Path("packed/manifest.json").exists():
        assert len(open_packed("packed")) == 4


def check_adapted() -> None:
    if Path("adapted").exists():
        size = BPETokenizer.from_file("adapted").vocab_size
        assert size == BPETokenizer.from_file("larger").vocab_size


def check_registry(folder: str = "registry") -> None:
    if Path(folder).exists():
        assert Registry(folder).problems() == []


def register() -> None:
    registry = Registry("registry")
    for name in ("old", "new"):
        registry.register(BPETokenizer.from_file(name), "one")
        registry.load("one")


def check_corpus() -> None:
    if Path("drawn.jsonl").exists():
        for line in Path("drawn.jsonl").read_bytes().splitlines():
            json.loads(line)


ONE = ["--num-workers", "1"]
JOBS = {
    "save": Job(save_both, check_saved),
    "train": Job(
        ["train", "texts", "--vocab-size", "300", "-o", "trained", "--force", *ONE], check_trained
    ),
    "count": Job(["count", "texts", "-o", "all.counts", *ONE], check_counts),
    "pack": Job(["pack", "texts", "-t", "new", "-o", "packed", *ONE], check_packed, True),
    "adapt": Job(
        ["adapt", "model", "-t", "larger", "-o", "adapted", "--force"], check_adapted, True
    ),
    "registry": Job(register, check_registry),
    "corpus": Job(["corpus", "recipe.json", "-o", "drawn.jsonl"], check_corpus),
    "pipeline": Job(["pipeline", "pipe.json"], check_registry),
}


def run(job: Job, after: float | None = None) -> bool:
    """Run a job in its own process; kill it after some seconds, if given; return if it ended."""
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 1)
            if callable(job.run):
                job.run()
                status = 0
            else:
                status = bpe_tokenizer.main([*job.run, "--quiet"])
        finally:
            os._exit(status)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in ((0, -signal.SIGKILL) if after is not None else (0,)), f"status {status}"
    return status == 0


def tree(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, hidden ones included."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def reference(job: Job, start: Path, folder: Path) -> tuple[set[str], dict[str, bytes], float]:
    """Run a job twice; return its files' names, those that are always the same, and its time."""
    trees, took = [], []
    for number in range(2):
        place = folder / f"undisturbed-{number}"
        shutil.copytree(start, place)
        os.chdir(place)
        began = time.perf_counter()
        run(job)
        took.append(time.perf_counter() - began)
        trees.append(tree(place))
    assert trees[0].keys() == trees[1].keys()
    same = {name: data for name, data in trees[0].items() if trees[1][name] == data}
    return set(trees[0]), same, min(took)


def storm(name: str, kills: int, chooser: random.Random, start: Path) -> dict[str, int]:
    """Kill a job that often; count the kills, the runs that ended before, and the final runs."""
    job, found = JOBS[name], collections.Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        names, same, seconds = reference(job, start, Path(scratch))
        while found["killed"] < kills:
            place = Path(scratch, "disturbed")
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(start, place)
            os.chdir(place)
            if chooser.random() < 0.3:  # on top of an earlier run's output
                run(job)
            for _ in range(chooser.choice((1, 1, 2, 3))):
                ended = run(job, chooser.uniform(0, seconds))
                found["ended before" if ended else "killed"] += 1
                job.check()
            run(job)
            job.check()
            if Path("registry").exists():  # registry drafts are removed only after a day
                Registry("registry").clean(older_than=0)
            left = tree(place)
            assert set(left) == names, f"{name}: left {set(left) ^ names}"
            changed = [each for each, data in same.items() if left[each] != data]
            assert not changed, f"{name}: {changed} differ"
            found["run to the end"] += 1
        os.chdir(start)
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    options = parser.parse_args()
    chosen = [name for name in options.only if NUMPY or not JOBS[name].uses_numpy]
    chooser = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder, "start")
        write_inputs(start)
        for name in chosen:
            began = time.perf_counter()
            found = storm(name, -(-options.kills // len(chosen)), chooser, start)
            print(f"{name}: {found}, {time.perf_counter() - began:.0f} s", flush=True)
        os.chdir(sys.path[0])


if __name__ == "__main__":
    main()
