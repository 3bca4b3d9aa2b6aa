"""The cost of counting, training and packing a large corpus, from 30 MB to a gigabyte.

python benchmarks/bench_scale.py --sources linux/ --sizes 30 100 300 1000

The files below --sources are documents, taken in a pseudorandom order and written as .jsonl shards
of 25 MB; after the last one come copies with different words.  Each way runs in its own processes;
their memory is the peak of all of them together (PSS), sampled ten times a second.  Merges and ids
of all ways must be equal.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common import END_OF_TEXT, Table, add_options, finish, is_installed

from bpe_tokenizer import BPETokenizer, PretokenCounts, count_pretokens

SHARD = 25_000_000  # bytes
PATTERN = "gpt2"
WORKERS = 2

# -- The ways, each in its own process ------------------------------------------


def count_here(shards: Path, work: Path, size: int) -> str:
    """Count in one process, on one thread, all in memory."""
    counts = count_pretokens(shards, PATTERN, normalizer=None, num_workers=1)
    counts.save(work / "one.counts")
    return sha256(work / "one.counts")


def count_at_scale(shards: Path, work: Path, size: int) -> str:
    """Count shard by shard, in several processes, through files."""
    from bpe_tokenizer_tools.scale import CountJob

    job = CountJob(shards, PATTERN, normalizer=None, num_workers=WORKERS, resume=False)
    job.to_file(work / "scale.counts")
    return sha256(work / "scale.counts")


def train(shards: Path, work: Path, size: int) -> str:
    """Learn the merges from the counts."""
    counts = PretokenCounts.load(work / "scale.counts")
    tokenizer = BPETokenizer(PATTERN, normalizer=None)
    tokenizer.train(counts=counts, vocab_size=size, special_tokens=[END_OF_TEXT], verbose=False)
    tokenizer.save(work / "tokenizer", verbose=False)
    return merges_of(work / "tokenizer")


def pack_here(shards: Path, work: Path, size: int) -> str:
    """Encode in one process."""
    return pack(shards, work / "packed-1", work, 1)


def pack_at_scale(shards: Path, work: Path, size: int) -> str:
    """Encode in several processes."""
    return pack(shards, work / "packed", work, WORKERS)


def pack(shards: Path, out: Path, work: Path, workers: int) -> str:
    """Encode to uint16, and hash all ids."""
    from bpe_tokenizer_tools.scale import encode_corpus

    tokenizer = BPETokenizer.from_pretrained(work / "tokenizer", verbose=False)
    encode_corpus(tokenizer, shards, out, num_workers=workers, resume=False)
    digest = hashlib.sha256()
    for file in sorted(out.glob("*.bin")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def train_by_tokenizers(shards: Path, work: Path, size: int) -> str:
    """Count and learn by HuggingFace's library, on as many threads."""
    import tokenizers

    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(texts(shards), trainer)
    (work / "theirs").mkdir(exist_ok=True)
    model.save(str(work / "theirs" / "tokenizer.json"))
    return merges_of(work / "theirs")


def pack_by_tokenizers(shards: Path, work: Path, size: int) -> str:
    """Encode by HuggingFace's library, a thousand documents at a time, on as many threads."""
    import numpy
    import tokenizers

    model = tokenizers.Tokenizer.from_file(str(work / "tokenizer" / "tokenizer.json"))
    eot = model.token_to_id(END_OF_TEXT)
    model.encode_special_tokens = True  # treat special tokens in text as text
    digest = hashlib.sha256()
    for shard in sorted(shards.iterdir()):
        with open(work / "theirs.bin", "wb") as out:
            for batch in batches(texts(shard), 1000):
                for encoding in model.encode_batch_fast(batch, add_special_tokens=False):
                    ids = numpy.array([*encoding.ids, eot], dtype=numpy.uint16)
                    out.write(ids)
        digest.update((work / "theirs.bin").read_bytes())
    return digest.hexdigest()


# name -> the function, and the kind of result, which must be equal for all of that kind
WAYS: dict[str, tuple[Callable[[Path, Path, int], str], str]] = {
    "count, one process": (count_here, "counts"),
    "count, at scale": (count_at_scale, "counts"),
    "train": (train, "merges"),
    "pack, one process": (pack_here, "ids"),
    "pack, at scale": (pack_at_scale, "ids"),
    "tokenizers: count and train": (train_by_tokenizers, "merges"),
    "tokenizers: encode": (pack_by_tokenizers, "ids"),
}


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of shards."""
    for shard in sorted(path.iterdir()) if path.is_dir() else [path]:
        with open(shard, encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"]


def batches(items: Iterator[str], size: int) -> Iterator[list[str]]:
    """Yield lists of `size` items."""
    held: list[str] = []
    for item in items:
        held.append(item)
        if len(held) == size:
            yield held
            held = []
    if held:
        yield held


def merges_of(folder: Path) -> str:
    """Hash the merges of a tokenizer.json, however they are written."""
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return hashlib.sha256("\n".join(merges).encode()).hexdigest()


def sha256(path: Path) -> str:
    """Hash a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


# -- All of them ----------------------------------------------------------------


def documents(sources: Path) -> Iterator[bytes]:
    """Yield UTF-8 texts without end: the files, and then copies of them.

    In each copy, another tenth of the files has its lowercase letters permuted, in another way each
    time, so new words appear as they do in new text.
    """
    files = [path for path in sources.rglob("*") if path.is_file() and not path.is_symlink()]
    names = {path: path.relative_to(sources).as_posix().encode() for path in files}
    files.sort(key=lambda path: hashlib.sha256(names[path]).digest())
    for copy in itertools.count():
        letters = bytearray(b"abcdefghijklmnopqrstuvwxyz")
        random.Random(copy).shuffle(letters)
        exchanged = bytes.maketrans(b"abcdefghijklmnopqrstuvwxyz", letters)
        for path in files:
            chosen = hashlib.sha256(names[path] + b"%d" % copy).digest()[0] < 26 and copy > 0
            text = path.read_bytes()
            with contextlib.suppress(UnicodeDecodeError):
                text.decode()
                yield text.translate(exchanged) if chosen else text


def make_shards(sources: Path, folder: Path, megabytes: int) -> int:
    """Write shards with this many megabytes of text in total; return the number of bytes."""
    written, number, held, lines = 0, 0, 0, []
    for text in documents(sources):
        lines.append(json.dumps({"text": text.decode()}, ensure_ascii=False))
        held += len(text)
        full = written + held >= megabytes * 1_000_000
        if held >= SHARD or full:
            shard = folder / f"{number:04}.jsonl"
            shard.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
            written, number, lines, held = written + held, number + 1, [], 0
        if full:
            break
    return written


def in_a_process(name: str, shards: Path, work: Path, size: int) -> dict[str, Any]:
    """Run a way in its own process, and measure its time and memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, __file__, "--way", name, str(shards), str(work), str(size)]
    environment = {
        **os.environ,
        "RAYON_NUM_THREADS": str(WORKERS),
        "TOKENIZERS_PARALLELISM": "true",
    }
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(memory_of, family(process.pid))))
        time.sleep(0.1)
    assert process.stdout is not None
    result = process.stdout.read().decode().strip()
    process.stdout.close()
    if process.returncode:
        raise SystemExit(f"{name}: ended with status {process.returncode}")
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall s": seconds, "cpu s": cpu, "peak MB": peak / 1e6, "result": result}


def family(pid: int) -> list[int]:
    """Return a process and all of its descendants."""
    found = [pid]
    for child in found:
        try:
            tasks = list(Path(f"/proc/{child}/task").iterdir())
            found += [int(c) for task in tasks for c in (task / "children").read_text().split()]
        except OSError:  # it has ended
            continue
    return found


def memory_of(pid: int) -> int:
    """Return the bytes of a process, including its part of shared memory."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def collect(options: argparse.Namespace) -> list[Table]:
    """Run all ways on each size."""
    rows = []
    for megabytes in sorted(options.sizes):
        with tempfile.TemporaryDirectory() as scratch:
            shards, work = Path(scratch, "shards"), Path(scratch, "work")
            shards.mkdir()
            work.mkdir()
            n_bytes = make_shards(options.sources, shards, megabytes)
            results: dict[str, str] = {}
            for name, (_, kind) in WAYS.items():
                if name.startswith("tokenizers") and (
                    not is_installed("tokenizers") or megabytes > options.peer_up_to
                ):
                    continue
                found = in_a_process(name, shards, work, options.vocab_size)
                if results.setdefault(kind, found["result"]) != found.pop("result"):
                    raise SystemExit(f"{name} of {megabytes} MB has other {kind} than the others")
                rows.append({"MB": n_bytes / 1e6, "way": name, **found})
                print(rows[-1], file=sys.stderr)
            counts = PretokenCounts.load(work / "scale.counts")
            rows.append({"MB": n_bytes / 1e6, "way": f"distinct pre-tokens: {len(counts):,}"})
    title = f"{WORKERS} workers, {options.vocab_size:,} tokens, pattern {PATTERN}"
    return [{"about": ["scale"], "title": title, "rows": rows}]


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--sources", type=Path, metavar="DIR", help="a tree of text files")
    parser.add_argument("--sizes", nargs="+", type=int, default=[30, 100, 300, 1000], metavar="MB")
    parser.add_argument("--vocab-size", type=int, default=32_000, metavar="N")
    parser.add_argument("--peer-up-to", type=int, default=300, metavar="MB")
    parser.add_argument("--way", nargs=4, metavar=("NAME", "SHARDS", "WORK", "SIZE"))
    options = parser.parse_args()
    if options.way:
        name, shards, work, size = options.way
        print(WAYS[name][0](Path(shards), Path(work), int(size)))
        return
    finish("scale", collect(options), options.json)


if __name__ == "__main__":
    main()
