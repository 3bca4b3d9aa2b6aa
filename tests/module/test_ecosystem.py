"""A tokenizer in the hands of `datasets`, of torch's DataLoader, of Ray, pandas and pyarrow.

What starts processes runs as a script of its own, and is only done when none of them is left.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE
from oracles import need
from processes import ray_variables, run_alone, wanted

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.scale.rows import BatchEncoder, boundary_ids

TEXTS = [
    f"low lower lowest, row {i}: newer é 世界 <s> </s>{' newest' * (i % 7)}\n" for i in range(100)
]
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|tool|>", "<|sep|>", "<pad>"]


def trained(vocab_size: int = 320) -> BPETokenizer:
    return BPETokenizer("cl100k").train(
        TEXTS, vocab_size, special_tokens=SPECIAL, verbose=False, num_workers=1
    )


# -- Scripts that start processes --------------------------------------------------------

# What each script begins with: its report's path, and a tokenizer from a file.
HEAD = """
import hashlib, json, os, pickle, sys, threading
import bpe_tokenizer
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.scale.rows import BatchEncoder

def use(tokenizer):
    # All that might leave a trace in an object, threads among it.
    tokenizer.encode_ordinary_batch([f"low lower {i} newest " * 50 for i in range(200)], 4)
    tokenizer.encode("<s> low", allowed_special={"<s>", "</s>"})
    tokenizer.encode_batch(["low", "lower newest"])
    list(tokenizer.encode_streaming(["low lo", "wer"]))

def write_report(report):
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(report, file)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, engine: str) -> Path:
    """Where the scripts are, with two tokenizers and the texts."""
    folder = tmp_path_factory.mktemp("ecosystem")
    trained().save(folder / "tokenizer", verbose=False)
    trained(270).save(folder / "other", verbose=False)
    (folder / "texts.json").write_text(json.dumps(TEXTS), encoding="utf-8")
    for name, script in {"day": DAY, "workers": WORKERS, "cluster": CLUSTER}.items():
        (folder / f"{name}.py").write_text(HEAD + script, encoding="utf-8")
    return folder


# -- datasets ------------------------------------------------------------------------

DAY = '''
import datasets
from datasets.fingerprint import Hasher

datasets.disable_progress_bars()
HERE = os.path.dirname(os.path.abspath(__file__))

def logged(batch):
    """What was computed, and not found in the cache, can be read in the log."""
    with open(os.path.join(HERE, "batches.log"), "a") as file:
        file.write(f"{len(batch['text'])}\\n")
    return {"input_ids": [tokenizer.encode(text) for text in batch["text"]]}

def hashes():
    encoder = BatchEncoder(tokenizer, bos="<s>", allowed_special=set(tokenizer.special_tokens))
    objects = {"loaded": tokenizer, "trained": trained, "encoder": encoder}
    objects["after pickling"] = pickle.loads(pickle.dumps(encoder))
    return {name: Hasher.hash(each) for name, each in objects.items()}

def map_all():
    columns = {}
    for num_proc in (None, 2):
        rows = datasets.load_from_disk(os.path.join(HERE, f"rows-{num_proc}"))
        functions = {
            "logged": logged,
            "lambda": lambda rows: {"input_ids": tokenizer.encode_batch(rows["text"])["input_ids"]},
            "called": lambda batch: tokenizer(batch["text"]).data,
            "encoder": BatchEncoder(tokenizer),
        }
        for name, function in functions.items():
            done = rows.map(function, batched=True, batch_size=25, num_proc=num_proc)
            columns[f"{name} {num_proc}"] = done["input_ids"][:]
    return columns

def files():
    found = {}
    for folder, _, names in os.walk(HERE):
        for name in names:
            if name.endswith((".arrow", ".log")) and name != "day.log":
                path = os.path.join(folder, name)
                found[os.path.relpath(path, HERE)] = os.stat(path).st_mtime_ns
    return found

if __name__ == "__main__":
    tokenizer = BPETokenizer.from_pretrained(os.path.join(HERE, sys.argv[2]), verbose=False)
    with open(os.path.join(HERE, "texts.json"), encoding="utf-8") as file:
        texts = json.load(file)
    special = list(tokenizer.special_tokens)
    trained = BPETokenizer("cl100k").train(
        texts, 320, special_tokens=special, verbose=False, num_workers=1
    )
    if not os.path.isdir(os.path.join(HERE, "rows-2")):
        for num_proc in (None, 2):
            rows = datasets.Dataset.from_dict({"text": texts})
            rows.save_to_disk(os.path.join(HERE, f"rows-{num_proc}"))
    report = {"accelerated": bpe_tokenizer.ACCELERATED, "hashes": [hashes()]}
    if sys.argv[3] == "used first":
        use(tokenizer)
    before = files()
    report["columns"] = map_all()
    after = files()
    report["new"] = sorted(name for name in after if after[name] != before.get(name))
    use(tokenizer)
    use(trained)
    report["equal"] = map_all() == report["columns"]
    report["new after use"] = sorted(name for name in files() if files()[name] != after.get(name))
    report["hashes"].append(hashes())
    write_report(report)
'''


@pytest.fixture(scope="module")
def days(folder: Path) -> Iterator[dict[str, Any]]:
    """The same script on two days, with either engine; then with another tokenizer."""
    wanted("datasets")
    run = folder / "day.py"
    variables = {"HF_HOME": str(folder / "home")}
    yield {
        "first": run_alone(run, "tokenizer", "new", PYTHONHASHSEED="1", **variables),
        "second": run_alone(
            run,
            "tokenizer",
            "used first",
            PYTHONHASHSEED="2",
            BPE_TOKENIZER_PURE="1",
            **variables,
        ),
        "other": run_alone(run, "other", "new", PYTHONHASHSEED="3", **variables),
    }


MAPPED = ["logged", "lambda", "called", "encoder"]


@EITHER_ENGINE
@pytest.mark.parametrize("num_proc", [None, 2])
@pytest.mark.parametrize("name", MAPPED)
def test_map_gives_the_ids_of_each_row(days: Any, name: str, num_proc: int | None) -> None:
    for day, tokenizer in {"first": trained(), "second": trained(), "other": trained(270)}.items():
        after = [tokenizer.eos_token_id] if name == "encoder" else []
        expected = [tokenizer.encode(text) + after for text in TEXTS]
        assert days[day]["columns"][f"{name} {num_proc}"] == expected
    assert days["first"]["columns"] != days["other"]["columns"]


@EITHER_ENGINE
def test_the_cache_of_map_hits_the_next_day(days: Any) -> None:
    # each function over one process and over two, which write a file each; and the log
    assert len(days["first"]["new"]) == len(MAPPED) * 3 + 1
    assert "batches.log" in days["first"]["new"]
    assert days["second"]["new"] == []
    assert days["second"]["accelerated"] is False  # nor does it matter which engine there is


@EITHER_ENGINE
def test_the_cache_of_map_hits_after_use(days: Any) -> None:
    for day in days.values():
        assert day["new after use"] == [] and day["equal"] is True


@EITHER_ENGINE
def test_another_tokenizer_misses_the_cache(days: Any, folder: Path) -> None:
    assert len(days["other"]["new"]) == len(MAPPED) * 3 + 1
    batches = (folder / "batches.log").read_text().split()
    # four batches from one process, as from two; by the first day's tokenizer and by the other
    assert batches == ["25"] * 16


@EITHER_ENGINE
def test_the_hashes_of_datasets_are_those_of_every_process_and_after_use(days: Any) -> None:
    before, after = days["first"]["hashes"]
    assert before == after
    assert days["second"]["hashes"] == [before, before]
    assert before["after pickling"] == before["encoder"]
    assert before["encoder"] != before["loaded"]
    other, _ = days["other"]["hashes"]
    assert other["trained"] == before["trained"]
    assert other["loaded"] != before["loaded"] and other["encoder"] != before["encoder"]


# -- torch's DataLoader ----------------------------------------------------------------

WORKERS = '''
import torch
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    """Texts that are encoded as they are fetched."""
    def __init__(self, tokenizer, texts):
        self.tokenizer, self.texts = tokenizer, texts
    def __len__(self):
        return len(self.texts)
    def __getitem__(self, place):
        return self.texts[place], self.tokenizer.encode(self.texts[place])

class Collate:
    """Rows to a padded tensor, and to the encoder's columns."""
    def __init__(self, tokenizer):
        self.tokenizer, self.encoder = tokenizer, BatchEncoder(tokenizer, num_threads=2)
    def __call__(self, rows):
        texts = [text for text, _ in rows]
        tensors = self.tokenizer.encode_batch(texts, padding=True, return_tensors="pt")
        many = self.encoder({"text": texts * 50})["input_ids"]
        assert many == many[: len(texts)] * 50
        return tensors["input_ids"], [ids for _, ids in rows], many[: len(texts)], os.getpid()

def work_on(tokenizer, stop):
    while not stop.is_set():
        tokenizer.encode_ordinary_batch(["low lower newest é " * 50] * 8, 2)

def main():
    tokenizer = BPETokenizer.from_pretrained(sys.argv[2], verbose=False)
    tokenizer.pad_token = "</s>"
    with open("texts.json", encoding="utf-8") as file:
        texts = json.load(file)
    use(tokenizer)
    report = {"accelerated": bpe_tokenizer.ACCELERATED, "parent": os.getpid()}
    for method in ("fork", "spawn"):
        stop = threading.Event()  # a thread is at work in the tokenizer when the process forks
        thread = threading.Thread(target=work_on, args=(tokenizer, stop))
        thread.start()
        try:
            loader = DataLoader(
                Texts(tokenizer, texts), batch_size=10, num_workers=2, timeout=600,
                collate_fn=Collate(tokenizer), multiprocessing_context=method,
            )
            batches = iter(loader)  # starts the processes
        finally:
            stop.set()
            thread.join()
        batches = list(batches)
        report[method] = {
            "padded": [row for batch in batches for row in batch[0].tolist()],
            "fetched": [row for batch in batches for row in batch[1]],
            "encoder": [row for batch in batches for row in batch[2]],
            "processes": sorted({batch[3] for batch in batches}),
        }
    write_report(report)

if __name__ == "__main__":
    main()
'''


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_workers_of_a_data_loader(folder: Path, engine: str) -> None:
    wanted("torch")
    report = run_alone(folder / "workers.py", "tokenizer")
    assert report["accelerated"] is (engine == "accelerated")
    tokenizer = trained()
    end_id = tokenizer.eos_token_id
    expected = [tokenizer.encode(text) for text in TEXTS]
    padded = []
    for start in range(0, 100, 10):
        rows = expected[start : start + 10]
        padded += [row + [end_id] * (max(map(len, rows)) - len(row)) for row in rows]
    for method in ("fork", "spawn"):
        assert report[method]["fetched"] == expected
        assert report[method]["encoder"] == [[*row, end_id] for row in expected]
        assert report[method]["padded"] == padded
        assert len(report[method]["processes"]) == 2
        assert report["parent"] not in report[method]["processes"]


# -- Ray ---------------------------------------------------------------------------------

CLUSTER = '''
import importlib.util
import ray

def told(tokenizer):
    return [tokenizer.fingerprint, hashlib.sha256(pickle.dumps(tokenizer)).hexdigest()]

@ray.remote
def encode(tokenizer, texts):
    return os.getpid(), told(tokenizer), tokenizer.encode_ordinary_batch(texts, 1)

@ray.remote
class Encoder:
    def __init__(self, tokenizer):
        self.encoder = BatchEncoder(tokenizer)
    def encode(self, texts):
        return os.getpid(), told(self.encoder.tokenizer), self.encoder({"text": texts})["input_ids"]

def encode_data(tokenizer, texts):
    """The same by Ray Data, whose batches are columns of numpy."""
    import ray.data
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.from_items(
        [{"text": text, "place": place} for place, text in enumerate(texts)], override_num_blocks=2
    )
    encoded = rows.map_batches(BatchEncoder(tokenizer, keep=True, eot=""), batch_size=30)
    rows = sorted(encoded.take_all(), key=lambda row: row["place"])
    assert [row["text"] for row in rows] == texts
    return [list(row["input_ids"]) for row in rows]

def main():
    tokenizer = BPETokenizer.from_pretrained(sys.argv[2], verbose=False)
    use(tokenizer)
    with open("texts.json", encoding="utf-8") as file:
        texts = json.load(file)
    shards = [texts[start::4] for start in range(4)]
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False,
        object_store_memory=100_000_000,
    )
    try:
        shared = ray.put(tokenizer)
        report = {"here": told(tokenizer), "parent": os.getpid()}
        report["tasks"] = ray.get([encode.remote(shared, shard) for shard in shards], timeout=600)
        actor = Encoder.remote(shared)
        report["actor"] = ray.get([actor.encode.remote(shard) for shard in shards], timeout=600)
        ray.kill(actor)
        if importlib.util.find_spec("pyarrow") and importlib.util.find_spec("pandas"):
            report["data"] = encode_data(tokenizer, texts)
    finally:
        ray.shutdown()
    write_report(report)

if __name__ == "__main__":
    main()
'''


@pytest.mark.slow
@EITHER_ENGINE
def test_ray(folder: Path) -> None:
    wanted("ray")
    with ray_variables() as variables:
        report = run_alone(folder / "cluster.py", "tokenizer", timeout=600, **variables)
    tokenizer = trained()
    expected = [[tokenizer.encode(text) for text in TEXTS[start::4]] for start in range(4)]
    for process, told, rows in report["tasks"] + report["actor"]:
        assert process != report["parent"] and told == report["here"]
    assert report["here"][0] == tokenizer.fingerprint
    assert [rows for _, _, rows in report["tasks"]] == expected
    assert [rows for _, _, rows in report["actor"]] == [
        [[*row, tokenizer.eos_token_id] for row in rows] for rows in expected
    ]
    if "data" in report:
        assert report["data"] == [tokenizer.encode(text) for text in TEXTS]


# -- Batches -----------------------------------------------------------------------------


def test_a_batch_of_lists() -> None:
    tokenizer = trained()
    batch = {"text": TEXTS[:3], "from": ["a", "b", "c"]}
    expected = [tokenizer.encode(text) for text in TEXTS[:3]]
    encoded = BatchEncoder(tokenizer, eot="")(batch)
    assert encoded == {"input_ids": expected}
    assert BatchEncoder(tokenizer, bos="<s>", eot=104, keep=True, return_length=True)(batch) == {
        **batch,
        "input_ids": [[tokenizer.bos_token_id, *row, 104] for row in expected],
        "length": [len(row) + 2 for row in expected],
    }
    assert BatchEncoder(tokenizer)({"text": []}) == {"input_ids": []}


def test_special_tokens_in_texts_are_text_unless_allowed() -> None:
    tokenizer = trained()
    texts = {"text": ["<s> low</s>"]}
    ids = {}
    for allowed in ("none", "all", ("<s>",)):
        [ids[allowed]] = BatchEncoder(tokenizer, eot="", allowed_special=allowed)(texts)[
            "input_ids"
        ]
        assert ids[allowed] == tokenizer.encode("<s> low</s>", allowed_special=allowed)
    assert len(set(map(tuple, ids.values()))) == 3
    assert not {tokenizer.bos_token_id, tokenizer.eos_token_id} & set(ids["none"])


def batches_of_libraries() -> dict[str, Callable[[], Any]]:
    def arrow() -> Any:
        return need("pyarrow").table({"text": TEXTS})

    return {
        "numpy, objects": lambda: {"text": need("numpy").array(TEXTS, dtype=object)},
        "numpy, strings": lambda: {"text": need("numpy").array(TEXTS)},
        "pandas": lambda: need("pandas").DataFrame({"text": TEXTS}),
        "pandas, schema": lambda: need("pandas").DataFrame({"schema": TEXTS, "text": TEXTS}),
        "arrow table": arrow,
        "arrow record batch": lambda: arrow().to_batches()[0],
        "arrow columns": lambda: dict(zip(["text"], arrow().columns)),
    }


@pytest.mark.parametrize("kind", sorted(batches_of_libraries()))
def test_batches_of_other_libraries(kind: str) -> None:
    tokenizer = trained()
    batch = batches_of_libraries()[kind]()
    encoded = BatchEncoder(tokenizer, eot="", keep=True)(batch)
    assert encoded["input_ids"] == [tokenizer.encode(text) for text in TEXTS]
    assert list(encoded["text"]) == list(batch["text"])


def missing_row(kind: str) -> Any:
    texts = ["low", None, "lower"]
    if kind == "lists":
        return {"text": texts}
    if kind == "pandas":
        return need("pandas").DataFrame({"text": texts})
    return need("pyarrow").table({"text": texts})


@pytest.mark.parametrize("kind", ["lists", "pandas", "arrow"])
def test_a_row_without_text_is_named(kind: str) -> None:
    batch = missing_row(kind)
    with pytest.raises(TypeError, match=r"^row 1 of the batch: expected text in .*'text', got "):
        BatchEncoder(trained())(batch)


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ({"txt": ["a"], "n": [1]}, ValueError, "no field 'text' in the batch, only ['txt', 'n']"),
        ({"text": "one row"}, TypeError, "got 'one row'; pass batched=True"),
        ({"text": None}, TypeError, "got None; pass batched=True"),
        ({"text": ["a", "\ud800"]}, ValueError, "row 1 of the batch: text contains the lone surr"),
        ({"text": ["a", 5]}, TypeError, "row 1 of the batch: expected text in the field 'text'"),
        (["a"], TypeError, "a mapping of columns, a DataFrame or a pyarrow table"),
    ],
)
def test_a_wrong_batch(batch: Any, error: type[Exception], message: str) -> None:
    for options in ({}, {"allowed_special": "all"}):
        with pytest.raises(error, match=re.escape(message)):
            BatchEncoder(trained(), **options)(batch)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tokenizer": "a/path"}, TypeError, "tokenizer must be a BPETokenizer, got 'a/path'"),
        ({"text_field": 3}, TypeError, "text_field must be a field's name, got 3"),
        ({"num_threads": 0}, ValueError, "num_threads must be at least 1, got 0"),
        ({"allowed_special": {"<x>"}}, ValueError, "['<x>'] are not special tokens"),
        ({"allowed_special": 5}, TypeError, "allowed_special must be a set, got 5"),
        ({"allowed_special": [[1]]}, TypeError, "must be a set of strings, got [1] in it"),
        ({"allowed_special": {1}}, TypeError, "must be a set of strings, got 1 in it"),
        ({"bos": "<x>"}, ValueError, "bos: the tokenizer has no token '<x>'; expected one of its"),
        ({"eot": "<x>"}, ValueError, "of which ['<s>', '</s>', "),
        ({"eot": 9999}, ValueError, "eot: the tokenizer has no token of id 9999; its largest is "),
        ({"bos": -1}, ValueError, "bos: the tokenizer has no token of id -1"),
        ({"eot": True}, TypeError, "eot must be a token or an id, got True"),
        ({"eot": 1.0}, TypeError, "eot must be a token or an id, got 1.0"),
    ],
)
def test_a_wrong_option(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        BatchEncoder(**{"tokenizer": trained(), **options})


def test_boundary_ids() -> None:
    tokenizer = trained()
    start, stop = tokenizer.special_tokens["<s>"], tokenizer.special_tokens["</s>"]
    assert boundary_ids(tokenizer) == (None, stop)
    assert boundary_ids(tokenizer, "", "") == (None, None)
    assert boundary_ids(tokenizer, "<s>", "<s>") == (start, start)
    assert boundary_ids(tokenizer, start, 0) == (start, 0)
    assert boundary_ids(tokenizer, eot="Ġ") == (None, 32)
    numpy = need("numpy")
    ids = boundary_ids(tokenizer, numpy.int64(start), numpy.uint16(stop))
    assert ids == (start, stop) and [type(id_) for id_ in ids] == [int, int]
    tokenizer.eos_token = None
    assert boundary_ids(tokenizer) == boundary_ids(BPETokenizer()) == (None, None)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"text_field": "keep", "bos": "<s>", "eot": "", "keep": True},
        {"allowed_special": {"</s>", "<s>"}, "return_length": True, "num_threads": 2},
        {"allowed_special": "all", "eot": "<s>"},
    ],
)
def test_a_pickled_encoder_is_the_same_after_use(options: dict[str, Any]) -> None:
    encoder = BatchEncoder(trained(), **options)
    packed = pickle.dumps(encoder)
    batch = {encoder.text_field: TEXTS}
    expected = encoder(batch)
    twin = pickle.loads(packed)
    assert twin(batch) == expected and repr(twin) == repr(encoder)
    assert pickle.dumps(encoder) == pickle.dumps(twin) == packed
    another = BatchEncoder(trained(), **{**options, "bos": "</s>"})
    assert pickle.dumps(another) != packed
