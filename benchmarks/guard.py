"""Compare two commits on this machine: what 27 calls cost, in instructions and in CPU time.

python benchmarks/guard.py HEAD~1 HEAD
python benchmarks/guard.py main .            # the working tree

Each commit is unpacked and built in its own folder.  valgrind counts the instructions of each call,
once: neither other processes nor memory caches affect them.  So they show what the code does, but
not the cost of waiting for memory.  CPU time does; processes of both commits take turns.  A change
of more than 3% in either is named at the end.

Builds and counts are kept in build/guard, by what they were made from, so the next comparison with
the same commit skips them.  Delete the folder at any time.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import hashlib
import itertools
import json
import os
import pickle
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parent.parent
KEPT = ROOT / "build" / "guard"
Call = Callable[[], Any]
Cost = dict[str, float]
Rounds = list[tuple[float, float]]  # the seconds of both commits

STARTED = time.monotonic()
ENOUGH = 0.01  # seconds of a turn
CHANGED = 1.03  # times as much
DOCUMENTS = 4  # of each corpus, of 2 to 10 KB
_CHUNK = 2_000  # characters
_MARKS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""
_JINJA = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}"
)

# -- The calls, in a process of each commit -------------------------------------------------------


def _tokenizers(given: Path) -> dict[str, Any]:
    """Load what the calls need."""
    from bpe_tokenizer import BPETokenizer

    plain = BPETokenizer.from_file(given / "plain" / "tokenizer.json")
    plain.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    plain.pad_token = "<|im_end|>"
    normal = BPETokenizer.from_file(given / "nfc" / "tokenizer.json")
    components = BPETokenizer.from_file(given / "components" / "tokenizer.json")
    return {"plain": plain, "nfc": normal, "components": components}


def roads(given: Path) -> dict[str, Call]:
    """Return the calls by name; the documents are warm."""
    from bpe_tokenizer import BPETokenizer, count_pretokens

    texts: dict[str, list[str]] = json.loads((given / "texts.json").read_text(encoding="utf-8"))
    made = _tokenizers(given)
    t, nfc, parts = made["plain"], made["nfc"], made["components"]
    english, mixed = texts["english"], texts["multi"]
    ids = [t.encode(text) for text in english + mixed]
    part_ids = [parts.encode(text) for text in english + mixed]
    alone: dict[str, Any] = {"num_workers": 1, "verbose": False}
    turns = [english[0][at : at + 300] for at in range(0, 3_000, 300)]
    talk = [{"role": ("user", "assistant")[i % 2], "content": x} for i, x in enumerate(turns)]
    counts = count_pretokens(english, "gpt2", **alone)
    cut = [[x[at : at + _CHUNK] for at in range(0, len(x), _CHUNK)] for x in mixed]
    calls: dict[str, Call] = {
        f"encode, {name}": lambda some=some: [t.encode(x) for x in some]
        for name, some in texts.items()
    }
    calls |= {
        f"encode_to_numpy, {name}": lambda some=some: [t.encode_to_numpy(x) for x in some]
        for name, some in texts.items()
    }
    return calls | {
        "encode, 50 characters": lambda: [t.encode(turn[:50]) for turn in turns * 20],
        "encode, special tokens": lambda: [t.encode(x, allowed_special="all") for x in english],
        "encode, NFC": lambda: [nfc.encode(x) for x in mixed],
        "encode_batch": lambda: t.encode_batch(mixed),
        "encode_batch, padded": lambda: t.encode_batch(mixed, padding=True, return_tensors="np"),
        "offsets": lambda: [t.encode_with_offsets(x).offsets for x in mixed],
        "encode_batch, offsets": lambda: t.encode_batch(mixed).offsets,
        "decode": lambda: [t.decode(each) for each in ids],
        "decode_batch": lambda: t.decode_batch(ids, skip_special_tokens=True),
        "count_tokens": lambda: [t.count_tokens(x) for x in english],
        "truncate": lambda: [t.truncate(x, 256) for x in mixed],
        "encode_streaming": lambda: [list(t.encode_streaming(each)) for each in cut],
        "encode_streaming, 1 character": lambda: list(t.encode_streaming(iter(mixed[0]))),
        "chat, chatml": lambda: t.apply_chat_template(talk, "chatml"),
        "chat, Jinja": lambda: t.apply_chat_template(talk, _JINJA),
        "components, encode": lambda: [parts.encode(x) for x in mixed],
        "components, decode": lambda: [parts.decode(each) for each in part_ids],
        "load, by the cache": lambda: BPETokenizer.from_file(given / "plain" / "tokenizer.json"),
        "train, counting": lambda: count_pretokens(english, "gpt2", **alone),
        "train, merges": lambda: BPETokenizer("gpt2").train(
            counts=counts, vocab_size=2_000, verbose=False
        ),
    }


def python_roads(given: Path) -> dict[str, Call]:
    """Return the calls of the engine in Python."""
    texts = json.loads((given / "texts.json").read_text(encoding="utf-8"))
    t = _tokenizers(given)["nfc"]
    return {"encode, in Python": lambda: [t.encode(x) for x in texts["english"][:2]]}


def serve(given: Path, marks: str) -> None:
    """Make the calls that stdin requests: (name, times) gives seconds.

    Under valgrind, the library `marks` says where counting begins and ends: the rest runs ten times
    as fast.
    """
    gc.disable()
    begin, end = (getattr(ctypes.CDLL(marks), name) if marks else int for name in ("begin", "end"))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    calls = (python_roads if os.environ.get("BPE_TOKENIZER_PURE") else roads)(given)
    names = []
    for name, call in calls.items():
        try:
            call()  # so that one-time work is done and caches are filled
            names.append(name)
        except Exception as error:  # a commit may lack it
            print(f"left out: {name}: {type(error).__name__}: {error}", file=sys.stderr)
    pickle.dump(names, answers)
    answers.flush()
    with contextlib.suppress(EOFError):
        while True:
            name, times = pickle.load(sys.stdin.buffer)
            gc.collect()
            begin()
            started = time.process_time()
            for _ in range(times):
                calls[name]()
            seconds = time.process_time() - started
            end()
            pickle.dump(seconds, answers)
            answers.flush()


# -- The processes --------------------------------------------------------------------------------


class Worker:
    """A process that makes the calls of one commit."""

    def __init__(
        self, folder: Path, given: Path, pure: bool, before: Iterable[str] = (), marks: str = ""
    ) -> None:
        found = [str(folder / "build"), str(folder / "source")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(found),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "BPE_TOKENIZER_CACHE": str(folder / "cache"),
            "BPE_TOKENIZER_PURE": "1" if pure else "",
        }
        self._process = subprocess.Popen(
            [*before, sys.executable, str(HERE), "--serve", str(given), marks],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self.names: list[str] = pickle.load(self._output)

    @property
    def _output(self) -> Any:
        return self._process.stdout

    def seconds(self, name: str, times: int = 1) -> float:
        """Make a call several times; return the CPU seconds."""
        assert self._process.stdin
        pickle.dump((name, times), self._process.stdin)
        self._process.stdin.flush()
        return float(pickle.load(self._output))

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._output.close()
        self._process.wait()


def instructions(folder: Path, given: Path, pure: bool) -> Cost:
    """Count the instructions of each call with valgrind."""
    counted: Cost = {}
    scratch = Path(tempfile.mkdtemp(dir=folder))
    command = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
    command += [f"--callgrind-out-file={scratch / 'counts'}"]
    marks = str(kept(_MARKS, _build_marks) / "marks.so")
    with Worker(folder, given, pure, command, marks) as worker:
        for number, name in enumerate(worker.names, 1):
            worker.seconds(name)
            counted[name] = _total(scratch / f"counts.{number}")
            say(f"{folder.name}: {name}: {counted[name] / 1e6:,.1f} million instructions")
    return counted


def _build_marks(folder: Path) -> None:
    compiler = [*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-x", "c", "-"]
    command = [*compiler, "-o", str(folder / "marks.so")]
    subprocess.run(command, input=_MARKS, text=True, check=True)


def kept_instructions(folder: Path, given: Path, pure: bool) -> Cost:
    """Count the instructions, or return what was counted for the same code before."""

    def count(target: Path) -> None:
        text = json.dumps(instructions(folder, given, pure))
        (target / "counts.json").write_text(text, encoding="utf-8")

    source = folder / "source"
    measured = [
        source / name for name in ("bpe_tokenizer.py", "bpe_tokenizer_tools", "accelerator")
    ]
    found = kept(f"{digest(*measured)} {given.name} {pure}", count)
    return dict(json.loads((found / "counts.json").read_text(encoding="utf-8")))


def _total(dump: Path) -> float:
    for line in dump.read_text().splitlines():
        if line.startswith(("summary:", "totals:")):
            return float(line.split()[1])
    raise ValueError(f"{dump} has no total")


def cpu_times(folders: list[Path], given: Path, pure: bool, rounds: int) -> Iterator[Any]:
    """Time each call in both commits, in turns; yield its name, and the seconds of the rounds."""
    with Worker(folders[0], given, pure) as old, Worker(folders[1], given, pure) as new:
        names = [name for name in old.names if name in new.names]
        times = {name: max(1, round(ENOUGH / max(old.seconds(name), 1e-5))) for name in names}
        seconds: dict[str, Rounds] = {name: [] for name in names}
        for turn, name in itertools.product(range(rounds), names):
            if name == names[0]:
                say(f"CPU time, round {turn + 1} of {rounds}")
            both = [old, new]
            random.shuffle(both)
            took = {id(each): each.seconds(name, times[name]) for each in both}
            seconds[name].append((took[id(old)], took[id(new)]))
        yield from seconds.items()


# -- What both are given --------------------------------------------------------------------------


def prepare(given: Path) -> None:
    """Write documents, and tokenizers trained on them, for both commits."""
    sys.path.insert(0, str(HERE.parent))
    from common import corpora

    from bpe_tokenizer import BPETokenizer

    texts = corpora(None, 1.0)
    corpus = [text for some in texts.values() for text in some]
    how = {"vocab_size": 5_000, "verbose": False}
    characters = {"style": "sentencepiece", "byte_fallback": True}
    made = {
        "plain": BPETokenizer("o200k", normalizer=None).train(corpus, **how),
        "nfc": BPETokenizer("o200k").train(corpus, **how),
        "components": BPETokenizer().train(corpus, **how, **characters),
    }
    for name, tokenizer in made.items():
        tokenizer.save(given / name, verbose=False)
    measured = {name: some[-DOCUMENTS:] for name, some in texts.items()}
    (given / "texts.json").write_text(json.dumps(measured), encoding="utf-8")


def unpack(commit: str, folder: Path) -> None:
    """Put a commit, or `.`, the working tree, into a folder, and build its extension there."""
    source = folder / "source"
    if commit == ".":
        left_out = shutil.ignore_patterns(".git", ".venv", "*.so", "__pycache__", "build", ".built")
        shutil.copytree(ROOT, source, ignore=left_out)
    else:
        source.mkdir(parents=True)
        packed = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", source], input=packed, check=True)

    def build(target: Path) -> None:
        say(f"building {commit}")
        builder, made = source / "accelerator" / "tools" / "build.py", folder / "made"
        subprocess.run([sys.executable, builder, made], stdout=sys.stderr, check=True)
        package = "_bpe_tokenizer"  # which has links into the source
        shutil.copytree(made / package, target / package)

    (folder / "build").symlink_to(kept(digest(source / "accelerator"), build))


# -- What is kept ----------------------------------------------------------------------------------


def digest(*paths: Path) -> str:
    """Return a hash of files, and of all files in folders."""
    found = hashlib.sha256()
    for path in paths:
        for file in sorted(each for each in (path, *path.rglob("*")) if each.is_file()):
            found.update(f"{file.relative_to(path.parent)} {file.stat().st_size} ".encode())
            found.update(file.read_bytes())
    return found.hexdigest()


def kept(key: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that `make` fills, unless this did so before with the same key."""
    key = f"{key} {digest(HERE)} {sys.version} {os.environ.get('CC')}"
    folder = KEPT / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not folder.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
            made = Path(scratch, "made")
            made.mkdir()
            make(made)
            with contextlib.suppress(OSError):  # somebody else was faster
                made.rename(folder)
    return folder


def say(text: str) -> None:
    """Report progress."""
    print(f"{time.monotonic() - STARTED:4.0f} s  {text}", file=sys.stderr, flush=True)


# -- The table ------------------------------------------------------------------------------------


def changes(counted: list[Cost], seconds: Mapping[str, Rounds]) -> list[dict[str, Any]]:
    """Return a row for each call: the second commit's cost divided by the first's."""
    rows = []
    for name, rounds in seconds.items():
        counts = [some.get(name) for some in counted]
        ratios = [new / old for old, new in rounds]
        old, new = map(min, zip(*rounds))
        low, _, high = statistics.quantiles(ratios, n=4)
        row = {
            "call": name,
            "instructions": counts[1] / counts[0] if all(counts) else None,
            "CPU time": statistics.median(ratios),
        }
        # CPU time varies with what else runs.  It counts as changed if it changed in three quarters
        # of the rounds, and in the fastest ones, too.
        most, least = min(low, new / old), max(high, new / old)
        slower = max(row["instructions"] or 1.0, most) > CHANGED
        faster = min(row["instructions"] or 1.0, least) < 1 / CHANGED
        row["changed"] = " ".join(["slower"] * slower + ["faster"] * faster)
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="a commit")
    parser.add_argument("new", help="a commit; . for the working tree")
    parser.add_argument("--rounds", type=int, default=9, help="of CPU time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="guard-") as scratch:
        folders = [Path(scratch, name) for name in ("old", "new")]
        say("training tokenizers")
        given = kept("given", prepare)
        for folder, commit in zip(folders, (options.old, options.new)):
            unpack(commit, folder)
        counted: list[Cost] = [{}, {}]
        seconds: dict[str, Rounds] = {}
        for pure in (False, True):
            seconds.update(cpu_times(folders, given, pure, options.rounds))
            if shutil.which("valgrind"):
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    both = pool.map(kept_instructions, folders, [given] * 2, [pure] * 2)
                    for cost, found in zip(counted, both):
                        cost.update(found)
        from common import print_table

        rows = changes(counted, seconds)
    changed = [row["call"] for row in rows if row["changed"]]
    note = f"changed by more than 3%: {'; '.join(changed) or 'none'}"
    title = f"{options.new}, in multiples of {options.old}"
    print_table({"title": title, "rows": rows, "note": note})
    return int(any("slower" in row["changed"] for row in rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main())
