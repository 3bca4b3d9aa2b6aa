"""Compare two commits on this machine: what 26 calls cost, in instructions and in CPU time.

python benchmarks/guard.py HEAD~1 HEAD
python benchmarks/guard.py main .            # the working tree

Each commit is unpacked and built in its own folder.  valgrind counts the instructions of each call,
once: neither other processes nor memory caches affect them.  So they show what the code does, but
not the cost of waiting for memory.  CPU time does; processes of both commits take turns.  A change
of more than 3% in either is named at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
Call = Callable[[], Any]
Cost = dict[str, float]

ENOUGH = 0.01  # seconds of a turn
CHANGED = 1.03  # times as much
_CHUNK = 2_000  # characters
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
    return {"encode, in Python": lambda: [t.encode(x) for x in texts["english"][:4]]}


def _mark() -> None:
    os.getppid()  # here valgrind writes what it has counted


def serve(given: Path) -> None:
    """Make the calls that stdin requests: (name, times) gives seconds."""
    gc.disable()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    calls = (python_roads if os.environ.get("BPE_TOKENIZER_PURE") else roads)(given)
    names = []
    for name, call in calls.items():
        try:
            call()  # twice, so that one-time work is done and caches are filled
            call()
            names.append(name)
        except Exception as error:  # a commit may lack it
            print(f"left out: {name}: {type(error).__name__}: {error}", file=sys.stderr)
    pickle.dump(names, answers)
    answers.flush()
    with contextlib.suppress(EOFError):
        while True:
            name, times = pickle.load(sys.stdin.buffer)
            gc.collect()
            _mark()
            started = time.process_time()
            for _ in range(times):
                calls[name]()
            seconds = time.process_time() - started
            _mark()
            pickle.dump(seconds, answers)
            answers.flush()


# -- The processes --------------------------------------------------------------------------------


class Worker:
    """A process that makes the calls of one commit."""

    def __init__(self, folder: Path, given: Path, pure: bool, *before: str) -> None:
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
            [*before, sys.executable, str(HERE), "--serve", str(given)],
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
    out = folder / "callgrind"
    command = ["valgrind", "-q", "--tool=callgrind", "--dump-before=getppid", "--dump-instr=no"]
    command += [f"--callgrind-out-file={out}"]
    with Worker(folder, given, pure, *command) as worker:
        for name in worker.names:
            worker.seconds(name)
            dumps = sorted(folder.glob("callgrind.*"), key=lambda path: int(path.suffix[1:]))
            # One ends where the call began, the next where it ended.
            counted[name] = _total(dumps[-1])
    return counted


def _total(dump: Path) -> float:
    for line in dump.read_text().splitlines():
        if line.startswith(("summary:", "totals:")):
            return float(line.split()[1])
    raise ValueError(f"{dump} has no total")


def cpu_times(folders: list[Path], given: Path, pure: bool, rounds: int) -> Iterator[Any]:
    """Time each call in both commits, in turns; yield its name, and the ratios of the rounds."""
    with Worker(folders[0], given, pure) as old, Worker(folders[1], given, pure) as new:
        names = [name for name in old.names if name in new.names]
        times = {name: max(1, round(ENOUGH / max(old.seconds(name), 1e-5))) for name in names}
        ratios: dict[str, list[float]] = {name: [] for name in names}
        for _, name in itertools.product(range(rounds), names):
            both = [old, new]
            random.shuffle(both)
            took = {id(each): each.seconds(name, times[name]) for each in both}
            ratios[name].append(took[id(new)] / took[id(old)])
        yield from ratios.items()


# -- The input of both ----------------------------------------------------------------------------


def prepare(given: Path) -> None:
    """Write documents, and tokenizers trained on them, for both commits."""
    sys.path.insert(0, str(HERE.parent))
    from common import corpora

    from bpe_tokenizer import BPETokenizer

    texts = corpora(None, 1.0)
    corpus = [text for some in texts.values() for text in some]
    how = {"vocab_size": 8_000, "verbose": False}
    characters = {"style": "sentencepiece", "byte_fallback": True}
    made = {
        "plain": BPETokenizer("o200k", normalizer=None).train(corpus, **how),
        "nfc": BPETokenizer("o200k").train(corpus, **how),
        "components": BPETokenizer().train(corpus, **how, **characters),
    }
    for name, tokenizer in made.items():
        tokenizer.save(given / name, verbose=False)
    measured = {name: some[-8:] for name, some in texts.items()}
    (given / "texts.json").write_text(json.dumps(measured), encoding="utf-8")


def unpack(commit: str, folder: Path) -> None:
    """Put a commit, or `.`, the working tree, into a folder, and build its extension there."""
    source, root = folder / "source", HERE.parent.parent
    if commit == ".":
        left_out = shutil.ignore_patterns(".git", ".venv", "*.so", "__pycache__", "build")
        shutil.copytree(root, source, ignore=left_out)
    else:
        source.mkdir(parents=True)
        packed = subprocess.run(
            ["git", "archive", commit], cwd=root, stdout=subprocess.PIPE, check=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", source], input=packed, check=True)
    builder = source / "accelerator" / "tools" / "build.py"
    subprocess.run([sys.executable, builder, folder / "build"], stdout=sys.stderr, check=True)


# -- The table ------------------------------------------------------------------------------------


def changes(counted: list[Cost], ratios: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    """Return a row for each call: the second commit's cost divided by the first's."""
    rows = []
    for name, each in ratios.items():
        counts = [some.get(name) for some in counted]
        quarter = statistics.quantiles(each, n=4)
        row = {
            "call": name,
            "instructions": counts[1] / counts[0] if counts and all(counts) else None,
            "CPU time": statistics.median(each),
        }
        # CPU time counts as changed if it changed in three quarters of the rounds.
        sure = [row["instructions"] or 1.0, max(1.0, quarter[0]), min(1.0, quarter[2])]
        slower, faster = max(sure) > CHANGED, min(sure) < 1 / CHANGED
        row["changed"] = " ".join(["slower"] * slower + ["faster"] * faster)
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="a commit")
    parser.add_argument("new", help="a commit; . for the working tree")
    parser.add_argument("--rounds", type=int, default=15, help="of CPU time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="guard-") as scratch:
        given, folders = Path(scratch, "given"), [Path(scratch, name) for name in ("old", "new")]
        prepare(given)
        for folder, commit in zip(folders, (options.old, options.new)):
            unpack(commit, folder)
        counted: list[Cost] = [{}, {}]
        ratios: dict[str, list[float]] = {}
        for pure in (False, True):
            ratios.update(cpu_times(folders, given, pure, options.rounds))
            if shutil.which("valgrind"):
                for folder, cost in zip(folders, counted):
                    cost.update(instructions(folder, given, pure))
        from common import print_table

        rows = changes(counted, ratios)
    changed = [row["call"] for row in rows if row["changed"]]
    note = f"changed by more than 3%: {'; '.join(changed) or 'none'}"
    title = f"{options.new}, in multiples of {options.old}"
    print_table({"title": title, "rows": rows, "note": note})
    return int(any("slower" in row["changed"] for row in rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]))
    else:
        sys.exit(main())
