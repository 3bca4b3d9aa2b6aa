"""Pipelines: what they make, what they skip, and what is left when they are killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE
from oracles import need

import bpe_tokenizer as core
from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools.corpus.drawing import draw, file_sha256
from bpe_tokenizer_tools.workflow.pipeline import Pipeline
from bpe_tokenizer_tools.workflow.registry import Registry

pytestmark = EITHER_ENGINE
need("numpy")

STEPS = ["corpus", "count", "train", "evaluate", "register"]
Settings = dict[str, Any]
Change = Callable[[Path, Settings], None]


def texts(seed: int, count: int = 120) -> list[str]:
    """Make documents of words that come again."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(1, 7))) for _ in range(80)]
    return [" ".join(rng.choices(words, k=rng.randint(5, 40))) + "." for _ in range(count)]


def settings() -> Settings:
    return {
        "corpus": {
            "target_size": 6_000,
            "held_out": 1_500,
            "seed": 3,
            "sources": [
                {"name": "prose", "path": "prose.txt", "fraction": 0.75},
                {"name": "notes", "path": "notes", "fraction": 0.25},
            ],
        },
        "train": {
            "vocab_size": 330,
            "pattern": "cl100k",
            "special_tokens": ["<|endoftext|>"],
            "num_workers": 1,
        },
        "evaluate": {"against": {"other": "other/tokenizer.json"}},
        "register": {"registry": "kept", "name": "mine", "metadata": {"owner": "me"}},
    }


def write(folder: Path, given: Settings) -> Pipeline:
    (folder / "pipe.json").write_text(json.dumps(given), encoding="utf-8")
    return Pipeline(folder / "pipe.json")


@pytest.fixture(scope="module")
def finished(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a pipeline has run."""
    folder = tmp_path_factory.mktemp("finished") / "project"
    (folder / "notes").mkdir(parents=True)
    (folder / "prose.txt").write_text("<|endoftext|>".join(texts(1)), encoding="utf-8")
    for i in range(3):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts(2 + i, 30))
        (folder / "notes" / f"{i}.jsonl").write_text(lines, encoding="utf-8")
    other = BPETokenizer("gpt2").train(texts(9), vocab_size=300, verbose=False)
    other.save(folder / "other", verbose=False)
    report = write(folder, settings()).run()
    assert [(each.step, each.status) for each in report.steps] == [(step, "ran") for step in STEPS]
    return folder


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, with all times."""
    shutil.copytree(finished, tmp_path / "project")
    return tmp_path / "project"


def tree(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def statuses(report: Any) -> dict[str, str]:
    return {each.step: each.status for each in report.steps}


# -- What is made -------------------------------------------------------------


def test_what_is_made_is_what_each_tool_makes(finished: Path) -> None:
    work = finished / "pipe.work"
    recipe = Pipeline(finished / "pipe.json")._steps["corpus"].recipe  # type: ignore[attr-defined]
    drawn = list(draw(recipe))
    lines = [json.loads(line) for line in (work / "corpus.jsonl").read_text("utf-8").splitlines()]
    trained_on = [one.text for one in drawn if not one.held_out]
    assert [line["text"] for line in lines] == trained_on

    expected = BPETokenizer("cl100k").train(
        trained_on, vocab_size=330, special_tokens=["<|endoftext|>"], verbose=False, num_workers=1
    )
    made = BPETokenizer.from_pretrained(work / "tokenizer", verbose=False)
    assert made == expected
    assert made.vocab_size == 330

    found = json.loads((work / "evaluation.json").read_text("utf-8"))
    for source in ("prose", "notes"):
        held = [one.text for one in drawn if one.held_out and one.source == source]
        for name, tokenizer in (
            ("mine", made),
            ("other", BPETokenizer.from_file(finished / "other")),
        ):
            row = next(
                row
                for row in found["measures"]
                if (row["group"], row["tokenizer"]) == (source, name)
            )
            n_tokens = sum(len(tokenizer.encode(text)) for text in held)
            n_bytes = sum(len(text.encode()) for text in held)
            assert (row["documents"], row["bytes"], row["tokens"]) == (len(held), n_bytes, n_tokens)
            assert row["bytes_per_token"] == pytest.approx(n_bytes / n_tokens)

    registry = Registry(finished / "kept")
    (entry,) = registry.entries()
    assert registry.load(f"mine@{entry.hash}") == expected
    manifest = json.loads((work / "corpus.jsonl.manifest.json").read_text("utf-8"))
    assert entry.corpus_sha256 == manifest["sha256"]
    assert entry.corpus_sha256 == file_sha256(work / "corpus.jsonl")
    assert entry.metadata == {"owner": "me"}
    assert entry.report["evaluation"] == found
    assert entry.report["training"]["documents"] == len(trained_on)


def test_special_tokens_first(project: Path) -> None:
    given = with_("train", special_tokens={"<s>": 0, "<|endoftext|>": 1})
    assert statuses(write(project, given).run(until="train"))["train"] == "ran"
    made = BPETokenizer.from_pretrained(project / "pipe.work" / "tokenizer", verbose=False)
    assert made.special_tokens == {"<s>": 0, "<|endoftext|>": 1}
    assert (made.encode("!"), made.vocab_size) == ([2], 330)


def test_text_held_out_is_trained_on_by_nobody(finished: Path) -> None:
    work = finished / "pipe.work"
    places = [
        {
            (record["file"], record["document"])
            for record in map(json.loads, (work / name).read_text("utf-8").splitlines())
        }
        for name in ("corpus.jsonl", "corpus.held-out.jsonl")
    ]
    assert all(places) and not places[0] & places[1]


def test_a_second_run_does_nothing(project: Path) -> None:
    before = tree(project)
    report = Pipeline(project / "pipe.json").run()
    assert set(statuses(report).values()) == {"up to date"}
    assert report.entry == Pipeline(project / "pipe.json").run().entry
    assert set(statuses(Pipeline(project / "pipe.json").plan()).values()) == {"up to date"}
    assert tree(project) == before


# -- What runs again ----------------------------------------------------------


def setting(table: str, key: str, value: Any) -> Change:
    def change(folder: Path, given: Settings) -> None:
        given[table][key] = value

    return change


def more_text(folder: Path, given: Settings) -> None:
    with open(folder / "prose.txt", "a", encoding="utf-8") as file:
        file.write("<|endoftext|>and one more")


def new_file(folder: Path, given: Settings) -> None:
    shutil.copy(folder / "notes" / "0.jsonl", folder / "notes" / "copy.jsonl")


def same_size_and_time(folder: Path, given: Settings) -> None:
    path = folder / "prose.txt"
    status, raw = path.stat(), path.read_bytes()
    path.write_bytes(raw.replace(b"a", b"b"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def touched(folder: Path, given: Settings) -> None:
    os.utime(folder / "prose.txt")


def without(name: str) -> Change:
    def change(folder: Path, given: Settings) -> None:
        (folder / "pipe.work" / name).unlink()

    return change


def damaged(name: str) -> Change:
    def change(folder: Path, given: Settings) -> None:
        path = folder / "pipe.work" / name
        path.write_bytes(path.read_bytes()[:-2] + b"?\n")

    return change


def no_registry(folder: Path, given: Settings) -> None:
    shutil.rmtree(folder / "kept")


def other_tokenizer(folder: Path, given: Settings) -> None:
    BPETokenizer("gpt2").train(texts(8), vocab_size=290, verbose=False).save(
        folder / "other", verbose=False
    )


def another_source(folder: Path, given: Settings) -> None:
    given["corpus"]["sources"][1]["name"] = "jottings"


@pytest.mark.parametrize(
    ("change", "ran", "why"),
    [
        (setting("train", "vocab_size", 300), "train evaluate register",
         "vocab_size changed 330 -> 300"),
        (setting("train", "pattern", "gpt2"), "count train evaluate register", "pattern changed"),
        (setting("train", "normalizer", "none"), "count train evaluate register",
         "normalizer changed NFC -> None"),
        (setting("train", "special_tokens", {"<|endoftext|>": 400}), "train evaluate register",
         "special_tokens.<|endoftext|> is new, special_tokens is gone"),
        (setting("train", "max_token_length", 3), "train evaluate register",
         "max_token_length changed None -> 3"),
        (setting("train", "num_workers", 2), "", ""),
        (setting("corpus", "seed", 4), "corpus count train evaluate register",
         "seed changed 3 -> 4"),
        (setting("corpus", "target_size", "6 kB"), "", ""),
        (setting("corpus", "held_out", 2_000), "corpus evaluate register",
         "held_out changed 1500 -> 2000"),
        (setting("corpus", "format", "jsonl.gz"), "corpus", "format changed jsonl -> jsonl.gz"),
        (another_source, "corpus count train evaluate register", "order of sources changed"),
        (more_text, "corpus count train register", "the file prose:prose.txt changed"),
        (new_file, "corpus count train evaluate register",
         "the file notes:notes/copy.jsonl is new"),
        (same_size_and_time, "corpus count train evaluate register",
         "the file prose:prose.txt changed"),
        (touched, "", ""),
        (without("corpus.held-out.jsonl"), "corpus",
         "corpus.held-out.jsonl, which it made, is gone"),
        (without("stamps/count.json"), "count", "it has not run yet"),
        (damaged("stamps/train.json"), "train", "it has not run yet"),
        (damaged("counts.json"), "count", "counts.json, which it made, changed"),
        (damaged("tokenizer/tokenizer.json"), "train", "tokenizer/tokenizer.json, which it made"),
        (without("evaluation.csv"), "evaluate", "evaluation.csv, which it made, is gone"),
        (setting("evaluate", "against", {}), "evaluate register", "against.other is gone"),
        (other_tokenizer, "evaluate register", "other/tokenizer.json changed"),
        (setting("register", "name", "yours"), "evaluate register", "called changed mine -> yours"),
        (no_registry, "register", "is no longer in the registry, or is damaged"),
    ],
)  # fmt: skip
def test_only_what_changed_runs_again(project: Path, change: Change, ran: str, why: str) -> None:
    given = settings()
    change(project, given)
    pipeline = write(project, given)
    before = tree(project)
    planned = pipeline.plan()
    assert tree(project) == before
    report = pipeline.run()
    assert [each.step for each in report.steps if each.status == "ran"] == ran.split()
    for plan, done in zip(planned.steps, report.steps):  # a plan misses nothing that runs
        assert (plan.status, done.status) != ("up to date", "ran")
        assert plan.status != "runs" or done.status == "ran"
    first = next((each for each in report.steps if each.why), None)
    assert why in (first.why if first else "")
    assert first is None or planned.steps[STEPS.index(first.step)].why == first.why

    clean = project.parent / "clean"
    shutil.copytree(project, clean, ignore=shutil.ignore_patterns("pipe.work", "kept"))
    write(clean, given).run()
    assert ends(clean) == ends(project)
    assert set(statuses(pipeline.run()).values()) == {"up to date"}


def ends(folder: Path) -> dict[str, Any]:
    """Return what a pipeline has made, without times and with the entry registered last."""
    made: dict[str, Any] = {}
    for name, raw in tree(folder / "pipe.work").items():
        if name.startswith("stamps/"):
            stamp = json.loads(raw)
            stamp["result"].pop("note", None)  # of what was registered before
            made[name] = json.dumps(stamp)
        else:
            made[name] = raw
    entry = Registry(folder / "kept").show(
        json.loads(made["stamps/register.json"])["result"]["entry"]
    )
    made["entry"] = entry.hash, entry.files, entry.metadata
    return made


def test_a_new_version_of_the_library_runs_all(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = core.__version__
    monkeypatch.setattr(core, "__version__", "99.0")
    report = Pipeline(project / "pipe.json").run()
    assert set(statuses(report).values()) == {"ran"}
    assert report.steps[1].why == f"library changed {version} -> 99.0"


def test_the_same_tokenizer_from_another_corpus_keeps_its_entry(project: Path) -> None:
    given = settings()
    given["train"]["vocab_size"] = 258  # the most frequent pair is that of any corpus
    first = write(project, given).run()
    given["corpus"]["seed"] = 12
    second = write(project, given).run()
    assert first.entry == second.entry
    assert second.steps[-1].why.endswith(
        "; another corpus gave the same tokenizer before; its entry stays"
    )
    assert set(statuses(write(project, given).run()).values()) == {"up to date"}
    given["register"]["metadata"] = {"owner": "you"}
    with pytest.raises(ValueError, match="metadata"):
        write(project, given).run()


def test_only_the_content_of_files_counts(project: Path) -> None:
    """Times tell nothing: files that were touched or copied are the same, edited ones are not."""
    prose = project / "prose.txt"
    work, other = project / "pipe.work", project / "copy"
    for path in [prose, work / "corpus.jsonl", work / "tokenizer" / "tokenizer.json"]:
        shutil.copy(path, other)
        other.replace(path)  # another file with other times
    assert set(statuses(Pipeline(project / "pipe.json").run()).values()) == {"up to date"}
    times, text = prose.stat(), prose.read_text("utf-8")
    prose.write_text(text.swapcase(), "utf-8")
    os.utime(prose, ns=(times.st_atime_ns, times.st_mtime_ns))
    planned = Pipeline(project / "pipe.json").plan()
    assert planned.steps[0].why == "the file prose:prose.txt changed"


def test_files_of_any_size_are_the_same_if_their_content_is(project: Path) -> None:
    """A corpus of 65 MiB that was only touched draws nothing again."""
    prose = project / "prose.txt"
    text = prose.read_text("utf-8") + "<|endoftext|>"
    prose.write_text(text * (65 * 2**20 // len(text)), "utf-8")
    pipeline = Pipeline(project / "pipe.json")
    assert statuses(pipeline.run(until="corpus")) == {"corpus": "ran"}
    os.utime(prose, (10**9, 10**9))
    assert statuses(pipeline.run(until="corpus")) == {"corpus": "up to date"}


def test_force_and_until_and_a_dry_run(project: Path) -> None:
    pipeline = Pipeline(project / "pipe.json")
    pipeline.run()
    before = tree(project)
    planned = pipeline.plan(force=["train"])
    assert statuses(planned) == {
        "corpus": "up to date", "count": "up to date", "train": "runs", "evaluate": "may run",
        "register": "may run",
    }  # fmt: skip
    assert planned.steps[2].why == "it is forced to run"
    assert tree(project) == before
    report = pipeline.run(force=["train"])
    assert [each.step for each in report.steps if each.status == "ran"] == ["train"]
    report = pipeline.run(force=["count"], until="count")
    assert statuses(report) == {"corpus": "up to date", "count": "ran"}
    assert report.entry is None
    given = settings()
    given["train"]["vocab_size"] = 299
    given["corpus"]["seed"] = 11
    pipeline = write(project, given)
    report = pipeline.run(until="corpus")
    assert statuses(report) == {"corpus": "ran"}
    assert statuses(pipeline.plan()) == {
        "corpus": "up to date", "count": "runs", "train": "runs", "evaluate": "runs",
        "register": "runs",
    }  # fmt: skip
    for options in ({"force": ["trian"]}, {"until": "trian"}):
        with pytest.raises(ValueError, match="there is no step 'trian': expected corpus, count"):
            pipeline.run(**options)  # type: ignore[arg-type]
    before = tree(project)
    for ask in (pipeline.run, pipeline.plan):
        with pytest.raises(ValueError, match="'train' cannot be forced: the run ends before it"):
            ask(force=["count", "train"], until="count")
    assert tree(project) == before


def test_a_working_directory_that_cannot_be(project: Path) -> None:
    path, file = project / "pipe.json", project / "prose.txt"
    before = tree(project)
    with pytest.raises(NotADirectoryError, match=r"prose\.txt: is a file; expected a directory to"):
        Pipeline(path, file)
    with pytest.raises(ValueError, match=r"a name in it, is too long for this system"):
        Pipeline(path, project / ("w" * 300))
    with pytest.raises(NotADirectoryError, match=r"prose\.txt is a file; expected a directory to"):
        Pipeline(path, file / "below").run()
    assert tree(project) == before


# -- When it is stopped -------------------------------------------------------

KILLS = """
import itertools, os, pathlib, shutil, signal, sys
import bpe_tokenizer_tools.evaluation, bpe_tokenizer_tools.workflow.registry
from bpe_tokenizer import main

def killed_at(left, function):
    def counted(*args, **options):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)
    return counted

def run(folder, n=None):
    pid = os.fork()
    if not pid:
        os.chdir(folder)
        if n is not None:
            left = [n]
            for name in ("replace", "rename", "fsync"):
                setattr(os, name, killed_at(left, getattr(os, name)))
        os._exit(main(["pipeline", "pipe.json", "--quiet"]))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

shutil.copytree(sys.argv[2], pathlib.Path(sys.argv[1], "warm"))
os.chdir(pathlib.Path(sys.argv[1], "warm"))
assert main(["pipeline", "pipe.json", "--quiet"]) == 0  # so that the next ones are fast
for n in itertools.count():
    folder = pathlib.Path(sys.argv[1], "project")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sys.argv[2], folder)
    status = run(folder, n)
    if status == 0:
        break
    assert status == -signal.SIGKILL, status
    assert run(folder) == 0, n
    shutil.copytree(folder, pathlib.Path(sys.argv[1], str(n), "project"))
print(n)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there is no fork")
def test_killed_at_any_step_to_disk_and_run_again_it_ends_the_same(
    finished: Path, tmp_path: Path
) -> None:
    start = tmp_path / "start"
    shutil.copytree(finished, start, ignore=shutil.ignore_patterns("pipe.work", "kept"))
    path = os.pathsep.join([str(Path(core.__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path), str(start)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kills = int(done.stdout)
    assert kills > 25  # files written and moved
    expected = ends(tmp_path / "project")
    assert expected == ends(finished)
    for n in range(kills):
        assert ends(tmp_path / str(n) / "project") == expected, n
        assert not list((tmp_path / str(n) / "project" / "pipe.work").rglob("*.tmp")), n
        assert len(Registry(tmp_path / str(n) / "project" / "kept").entries()) == 1


def test_a_source_that_vanishes_costs_nothing_that_was_made(project: Path) -> None:
    pipeline = Pipeline(project / "pipe.json")
    pipeline.run()
    before = tree(project / "pipe.work")
    away = project / "prose.away"
    (project / "prose.txt").rename(away)
    with pytest.raises(FileNotFoundError, match=r"source 'prose': no such file or directory: .*"):
        pipeline.run()
    assert tree(project / "pipe.work") == before
    away.rename(project / "prose.txt")
    assert set(statuses(pipeline.run()).values()) == {"up to date"}


def test_a_step_that_fails_leaves_the_earlier_ones_done(project: Path) -> None:
    given = settings()
    given["corpus"]["seed"] = 21
    given["register"]["name"] = "mine"
    (project / "kept" / "mine" / "x").mkdir()
    shutil.rmtree(project / "kept")
    (project / "kept").write_text("a file where the registry should be")
    pipeline = write(project, given)
    with pytest.raises((OSError, ValueError), match="kept"):
        pipeline.run()
    (project / "kept").unlink()
    assert statuses(pipeline.run())["register"] == "ran"


@pytest.mark.skipif(os.name == "nt", reason="locks differ")
def test_two_runs_at_once_are_one_too_many(project: Path) -> None:
    import fcntl

    with open(project / "pipe.work" / ".lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="another run is using this folder"):
            Pipeline(project / "pipe.json").run()
    Pipeline(project / "pipe.json").run()


# -- The file -----------------------------------------------------------------


def test_texts_of_ones_own_parallel_text_and_a_recipe_in_another_file(project: Path) -> None:
    given = settings()
    recipe = given["corpus"]
    (project / "mix.json").write_text(json.dumps({**recipe, "held_out": 0}), encoding="utf-8")
    given["corpus"] = {"recipe": "mix.json"}
    for name, line in (("eng", "a b c"), ("deu", "a bb ccc dddd")):
        (project / f"{name}.txt").write_text(f"{line}\n" * 5, encoding="utf-8")
    given["evaluate"] = {
        "texts": {"own": ["eng.txt", "deu.txt"]},
        "parallel": {"eng": "eng.txt", "deu": "deu.txt"},
        "against": ["other"],
    }
    pipeline = write(project, given)
    pipeline.run()
    found = json.loads((project / "pipe.work" / "evaluation.json").read_text("utf-8"))
    rows = {(row["group"], row["tokenizer"]): row for row in found["measures"]}
    assert {group for group, _ in rows} == {"own", "eng", "deu", "overall"}
    made = BPETokenizer.from_file(project / "pipe.work" / "tokenizer")
    both = [(project / f"{name}.txt").read_text("utf-8") for name in ("eng", "deu")]
    assert rows["own", "mine"]["tokens"] == sum(len(made.encode(text)) for text in both)
    assert not list((project / "pipe.work").glob("*held-out*"))
    (project / "deu.txt").write_text("a b\n" * 5, encoding="utf-8")
    report = pipeline.run()
    assert [each.step for each in report.steps if each.status == "ran"] == ["evaluate", "register"]


def test_without_evaluation_or_registration(project: Path) -> None:
    given = settings()
    del given["evaluate"]
    pipeline = write(project, given)
    assert pipeline.steps == ["corpus", "count", "train", "register"]
    report = pipeline.run()
    assert [each.step for each in report.steps if each.status == "ran"] == ["register"]
    assert set(statuses(pipeline.run()).values()) == {"up to date"}
    del given["register"]
    assert write(project, given).run().entry is None


def with_(table: str, **values: Any) -> Settings:
    given = settings()
    given[table] = {**given[table], **values}
    return given


def lacking(*names: str) -> Settings:
    return {name: table for name, table in settings().items() if name not in names}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lacking("corpus"), "corpus: is missing"),
        (lacking("train"), "train: is missing"),
        ({**settings(), "trian": {}}, "unknown key 'trian': did you mean 'train'?"),
        ({**settings(), "train": 7}, "train: expected dict or null, got 7"),
        (with_("corpus", target_sise=1), "corpus: unknown key 'target_sise': did you mean"),
        (with_("corpus", format="txt"), "corpus.format: expected jsonl, jsonl.gz"),
        (with_("corpus", recipe="mix.toml"), "corpus: the recipe is in 'mix.toml', so 'target_si"),
        (with_("corpus", target_size="much"), "corpus.target_size: expected a size in bytes"),
        (with_("train", vocabsize=1), "train: unknown key 'vocabsize': did you mean 'vocab_size'?"),
        (with_("train", vocab_size="many"), "train.vocab_size: expected int, got 'many'"),
        (with_("train", vocab_size=256), "train: vocab_size must be at least 258 (256 bytes, 1 "),
        (with_("train", pattern="gpt5"), "train: unknown split pattern 'gpt5'"),
        (with_("train", normalizer="NFX"), "train: normalizer must be one of NFC"),
        (with_("train", special_tokens=[1]), "train.special_tokens: "),
        (with_("train", special_tokens={"<a>": 7}), "train.special_tokens: "),
        (with_("train", min_frequency=-1), "train: min_frequency must be at least 0, got -1"),
        (with_("evaluate", texts={"x": "none.txt"}), "evaluate.texts.x: "),
        (with_("evaluate", texts={"x": "n" * 5000}), "evaluate.texts.x: "),
        (with_("evaluate", against={"mine": "other"}), "evaluate.against: expected name = token"),
        (with_("evaluate", against=[3]), "evaluate.against: expected strings, got [3]"),
        (with_("corpus", held_out=0), "evaluate: there are no texts; set held_out in [corpus]"),
        (with_("register", nome="x"), "register: unknown key 'nome': did you mean 'name'?"),
        ({**settings(), "register": {"name": "x"}}, "register.registry: is missing"),
        (with_("register", registry="r" * 5000), "register.registry: "),
    ],
)
def test_wrong_files(project: Path, given: Settings, message: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        write(project, given)
    assert str(caught.value).startswith(f"{project / 'pipe.json'}: {message}")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 800


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (with_("evaluate", against={"x": "nowhere"}), "nowhere"),
        (with_("evaluate", against={"x": "n" * 5000}), "nnn.*: no such file"),
        (with_("evaluate", against={"x": "prose.txt"}), "prose.txt"),
        (with_("register", name="a/b"), "'a/b' is not a valid registry name"),
    ],
)
def test_what_a_later_step_cannot_do_is_refused_before_the_first_runs(
    project: Path, given: Settings, message: str
) -> None:
    given["corpus"]["seed"] = 77
    before = tree(project / "pipe.work")
    with pytest.raises((ValueError, OSError), match=message):
        write(project, given).run()
    assert tree(project / "pipe.work") == before


def test_toml_says_the_same_as_json(project: Path) -> None:
    need("tomllib" if sys.version_info >= (3, 11) else "tomli")
    (project / "pipe.toml").write_text(
        """
        [corpus]
        target_size = "6 kB"
        held_out = 1_500
        seed = 3
        [[corpus.sources]]
        name = "prose"
        path = "prose.txt"
        fraction = "3/4"
        [[corpus.sources]]
        name = "notes"
        path = "notes/*.jsonl"
        fraction = 0.25

        [train]
        vocab_size = 330
        pattern = "cl100k"
        special_tokens = ["<|endoftext|>"]

        [evaluate]
        against = { other = "other/tokenizer.json" }

        [register]
        registry = "kept"
        name = "mine"
        metadata = { owner = "me" }
        """,
        encoding="utf-8",
    )
    report = Pipeline(project / "pipe.toml", project / "elsewhere").run()
    assert report.entry == Pipeline(project / "pipe.json").run().entry
    assert (project / "elsewhere" / "corpus.jsonl").read_bytes() == (
        project / "pipe.work" / "corpus.jsonl"
    ).read_bytes()


def test_the_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(project / "pipe.json")
    assert core.main(["pipeline", path]) == 0
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["step", "status", "seconds", "why"]
    assert [line[0] for line in lines[1:6]] == STEPS
    (entry,) = Registry(project / "kept").entries()
    assert (out.splitlines()[-1], err) == (f"registered as mine@{entry.hash}", "")
    given = settings()
    given["train"]["vocab_size"] = 310
    write(project, given)
    assert core.main(["pipeline", path, "--dry-run"]) == 0
    assert capsys.readouterr() == (
        "step      status      why\n"
        "corpus    up to date\n"
        "count     up to date\n"
        "train     runs        vocab_size changed 330 -> 310\n"
        "evaluate  may run\n"
        "register  may run\n",
        "",
    )
    assert core.main(["pipeline", path, "--until", "train", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [each["status"] for each in json.loads(out)["steps"]] == [
        "up to date", "up to date", "ran",
    ]  # fmt: skip
    assert err.startswith("train: vocab_size changed 330 -> 310\n")
    assert core.main(["pipeline", path, "--force", "train", "corpus", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    twice = ["--force", "corpus", "--force", "train", "--dry-run", "--json"]
    assert core.main(["pipeline", path, *twice]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [each["step"] for each in steps if each["status"] == "runs"] == ["corpus", "train"]
    with pytest.raises(SystemExit, match="2"):
        core.main(["pipeline", path, "--until", "trian"])
    capsys.readouterr()
    assert core.main(["pipeline", str(project / "none.toml")]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"bpe-tokenizer: error: {project / 'none.toml'}: no such file\n")
