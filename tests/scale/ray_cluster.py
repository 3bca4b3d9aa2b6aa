"""Jobs on a Ray cluster of two nodes, which loses a node, workers, and its patience.

A program, run by test_scale_ray.py: FOLDER has the inputs, a tokenizer and other versions of the
library; what the jobs came to is written to REPORT.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools.scale import CountJob, count_pretokens, counting, encode_corpus

FOLDER = Path(sys.argv[2] if len(sys.argv) > 2 else ".")
SMALL = {"num_cpus": 1, "object_store_memory": 100_000_000}
FEW = "in/0[0-3].txt"
REPORT: dict[str, Any] = {}


# -- Looking at what works where ------------------------------------------------------------


def drafts(work: Path) -> list[str]:
    return sorted(path.name for path in work.glob(".*.tmp"))


def markers(work: Path) -> list[str]:
    return sorted(path.name for path in work.glob("*.json"))


def state_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "?"


def children(process: int) -> Iterator[int]:
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            yield from map(int, path.read_text().split())
        except OSError:  # the thread has ended
            continue


def writers(work: Path, nodes: Iterable[Any]) -> Iterator[tuple[int, str]]:
    """Yield workers of nodes, and the draft that each is writing."""
    for node in nodes:
        for process in children(raylet(node)):
            try:
                for handle in Path(f"/proc/{process}/fd").iterdir():
                    path = Path(os.readlink(handle))
                    if path.parent == work and path.name.endswith(".tmp"):
                        yield process, path.name
            except OSError:  # it has ended, or closed a file just now
                continue


def raylet(node: Any) -> int:
    number: int = node.all_processes["raylet"][0].process.pid
    return number


def caught(work: Path, cluster: Cluster, nodes: Sequence[Any]) -> tuple[int, str]:
    """Wait until a worker of some nodes is in the middle of a shard; stop it there.

    Two shards are done by then; after them, workers of other nodes are held up, lest they do all.
    """
    held: set[int] = set()
    deadline = time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            if len(markers(work)) >= 2:
                for node in cluster.list_all_nodes():
                    for process, name in writers(work, [node]):
                        held.add(process)
                        stop(process)
                        if node in nodes and (process, name) in list(writers(work, [node])):
                            held.remove(process)
                            return process, name
                        if node in nodes:
                            os.kill(process, signal.SIGCONT)
            time.sleep(0.002)
        raise TimeoutError(f"nobody was seen at work in {work}: {markers(work)}")
    finally:
        for process in held:
            os.kill(process, signal.SIGCONT)


def stop(process: int) -> None:
    os.kill(process, signal.SIGSTOP)
    while state_of(process) not in "TZX?":
        time.sleep(0.001)


def meanwhile(name: str, deed: Callable[[], Any]) -> threading.Thread:
    """Do something while a job runs, and report what it says."""

    def do() -> None:
        try:
            REPORT[name] = deed()
        except Exception as error:
            REPORT[name] = repr(error)

    thread = threading.Thread(target=do)
    thread.start()
    return thread


def lose_node(cluster: Cluster, node: Any, work: Path) -> dict[str, Any]:
    """Take a node away, with all its processes, while one of them is in the middle of a shard."""
    process, draft = caught(work, cluster, [node])
    done = markers(work)
    # NOTE: before its node, whose end would wake it: orphans that are stopped are continued.
    os.kill(process, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)
    return {"draft": draft, "done": done, "left": drafts(work)}


def kill_worker(cluster: Cluster, work: Path) -> dict[str, Any]:
    process, draft = caught(work, cluster, cluster.list_all_nodes())
    done = markers(work)
    os.kill(process, signal.SIGKILL)
    return {"draft": draft, "done": done, "left": drafts(work)}


def kill_all(cluster: Cluster, work: Path, label: str, over: threading.Event) -> int:
    """Kill whoever works on a shard, each time; return how often."""
    killed: set[int] = set()
    while not over.is_set():
        for process, name in writers(work, cluster.list_all_nodes()):
            if label in name and process not in killed:
                os.kill(process, signal.SIGKILL)
                killed.add(process)
        time.sleep(0.001)
    return len(killed)


def error_of(call: Callable[[], Any]) -> dict[str, Any]:
    began = time.monotonic()
    try:
        call()
    except Exception as error:
        said = {"type": type(error).__name__, "text": str(error)}
        if isinstance(error, FileFormatError):
            said["field"] = error.field
        return {**said, "seconds": time.monotonic() - began}
    return {"type": None}


# -- The jobs ---------------------------------------------------------------------------------


def jobs(cluster: Cluster) -> None:
    tokenizer = BPETokenizer.from_pretrained(FOLDER / "tokenizer", verbose=False)
    cluster.add_node(**SMALL)
    lose_a_node_while_counting(cluster)
    cluster.add_node(**SMALL)
    lose_a_node_while_packing(cluster, tokenizer)
    lose_a_worker(cluster, tokenizer)
    die_of_a_shard(cluster)
    learn_superwords(cluster)
    fail(cluster)
    in_a_session(cluster, tokenizer)
    on_wrong_nodes(cluster)


def lose_a_node_while_counting(cluster: Cluster) -> None:
    work = FOLDER / "counting"
    work.mkdir()
    (node,) = cluster.worker_nodes
    thread = meanwhile("node lost while counting", lambda: lose_node(cluster, node, work))
    counting._LITTLE = 0  # so that partitions are added up on the cluster, too
    counts = count_pretokens(
        "in",
        executor="ray",
        address=cluster.address,
        work_dir="counting",
        partitions=3,
        min_frequency=2,
    )
    thread.join()
    counts.save(FOLDER / "ray.counts")


def lose_a_node_while_packing(cluster: Cluster, tokenizer: BPETokenizer) -> None:
    work = FOLDER / "packed"
    work.mkdir()
    (node,) = cluster.worker_nodes
    thread = meanwhile("node lost while packing", lambda: lose_node(cluster, node, work))
    encode_corpus(tokenizer, "in", "packed", executor="ray", address=cluster.address)
    thread.join()


def lose_a_worker(cluster: Cluster, tokenizer: BPETokenizer) -> None:
    work = FOLDER / "packed-again"
    work.mkdir()
    thread = meanwhile("worker lost", lambda: kill_worker(cluster, work))
    encode_corpus(tokenizer, "in", work, format="megatron", executor="ray", address=cluster.address)
    thread.join()


def die_of_a_shard(cluster: Cluster) -> None:
    work = FOLDER / "deadly"
    work.mkdir()
    over = threading.Event()
    thread = meanwhile("killed", lambda: kill_all(cluster, work, "07", over))
    job = CountJob(
        "in", executor="ray", address=cluster.address, work_dir=work, num_workers=1, max_retries=1
    )
    REPORT["deadly"] = error_of(job.counts)
    over.set()
    thread.join()
    REPORT["kept"] = markers(work)
    job.counts().save(FOLDER / "deadly.counts")
    REPORT["left after the rerun"] = drafts(work)


def learn_superwords(cluster: Cluster) -> None:
    """Count what superwords are learned from, and pack with them."""
    how: dict[str, Any] = {"executor": "ray", "address": cluster.address}
    job = CountJob(FEW, superwords=380, vocab_size=420, work_dir="superwords", partitions=3, **how)
    counts = job.counts()
    counts.save(FOLDER / "superwords.counts")
    tokenizer = BPETokenizer().train(counts=counts, vocab_size=420, superwords=380, verbose=False)
    encode_corpus(tokenizer, FEW, "packed-superwords", executor="ray", address=cluster.address)


def fail(cluster: Cluster) -> None:
    job = CountJob(
        ["in/00.txt", "bad.txt"], executor="ray", address=cluster.address, work_dir="failing"
    )
    REPORT["bad document"] = error_of(job.counts)
    command = [sys.executable, "-m", "bpe_tokenizer", "pack", "in/00.txt", "bad.txt", "--quiet"]
    command += ["--tokenizer", "tokenizer", "-o", "failing-packed", "--executor", "ray"]
    command += ["--address", cluster.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    REPORT["bad document at the command line"] = [done.returncode, done.stdout, done.stderr]
    job = CountJob("in", executor="ray", address=cluster.address)
    REPORT["no work_dir"] = error_of(job.counts)
    host, _, _ = cluster.address.rpartition(":")
    job = CountJob("in", executor="ray", address=f"{host}:1", work_dir="failing")
    REPORT["no answer"] = error_of(job.counts)


def in_a_session(cluster: Cluster, tokenizer: BPETokenizer) -> None:
    ray.init(address=cluster.address, log_to_driver=False, logging_level="warning")
    held = ray.put("mine")
    encode_corpus(tokenizer, "in", "packed-here", executor="ray")
    job = CountJob(["in", "bad.txt"], executor="ray", address="auto", work_dir="failing")
    REPORT["bad document in a session"] = error_of(job.counts)
    job = CountJob("in", executor="ray", address=cluster.address, work_dir="failing")
    REPORT["address in a session"] = error_of(job.counts)
    REPORT["the session"] = [ray.is_initialized(), ray.get(held)]
    ray.shutdown()


def on_wrong_nodes(cluster: Cluster) -> None:
    for name in ("older", "none"):
        ray.init(
            address=cluster.address,
            log_to_driver=False,
            logging_level="critical",
            runtime_env={"env_vars": {"PYTHONPATH": str(FOLDER / name)}},
        )
        job = CountJob("in/00.txt", executor="ray", work_dir=name)
        REPORT[f"{name} on a node"] = error_of(job.counts)
        ray.shutdown()


def main() -> None:
    (FOLDER / "elsewhere").mkdir()
    os.chdir(FOLDER / "elsewhere")  # where nodes are, and the jobs are not
    cluster = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    os.chdir(FOLDER)
    try:
        jobs(cluster)
    finally:
        ray.shutdown()
        cluster.shutdown()
    Path(sys.argv[1]).write_text(json.dumps(REPORT, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
