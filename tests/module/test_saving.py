"""Saving: at any instant a reader finds the old tokenizer or the new one, never parts of both.

Writers are killed at every step and at random moments, several write at once, and readers come
between any two steps. What is loaded is compared whole: ids, chat template, roles and settings.
"""

from __future__ import annotations

import copy
import errno
import itertools
import json
import os
import pickle
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from conftest import EITHER_ENGINE
from oracles import examples, forks, need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools.formats import vocab_merges
from bpe_tokenizer_tools.support import transactions

pytestmark = [EITHER_ENGINE, pytest.mark.slow]

# -- What is saved, and how ---------------------------------------------------


def tokenizers() -> list[BPETokenizer]:
    """Return four tokenizers that differ in everything that a file could mix up."""
    made = []
    texts = ["abc abd", "xyz xy", "12 123", "... ?!"]
    for i, template in enumerate(["A {{ messages }}", None, "C", "D" * 9000]):
        tokens = [f"<s{i}>", f"<e{i}>"]
        tokenizer = BPETokenizer(normalizer=None)
        tokenizer.train([f"{texts[i]} " * 30], 270 + i, special_tokens=tokens, verbose=False)
        tokenizer.bos_token, tokenizer.eos_token = tokens[0], tokens[1] if i % 2 else None
        tokenizer.chat_template = template
        if i == 2:  # several templates are in tokenizer_config.json
            tokenizer.chat_templates["tool_use"] = "T"
        settings = {"model_max_length": 100 + i, "padding_side": ("left", "right")[i % 2]}
        tokenizer._settings.update(settings)
        made.append(tokenizer)
    return made


class Form(NamedTuple):
    """One way to write a tokenizer to several files.

    Attributes:
        write: writes the n-th tokenizer to a folder.
        load: reads the one that is there.
        all: what `load` gives for each.
    """

    write: Callable[[Path, int], None]
    load: Callable[[Path], BPETokenizer]
    all: list[BPETokenizer]

    def which(self, folder: Path) -> int:
        """Load, and say which tokenizer it is; anything else, such as a mix, is an error."""
        return self.all.index(self.load(folder))


def make_form(kind: str, clean: Callable[[], Path]) -> Form:
    made, name = tokenizers(), {"directory": "", "tiktoken": "x.tiktoken", "gpt2": ""}[kind]

    def write(folder: Path, n: int) -> None:
        if kind == "directory":
            made[n].save(folder, verbose=False)
        else:
            made[n].export(folder / name, kind)

    def load(folder: Path) -> BPETokenizer:
        return BPETokenizer.from_file(folder / name)

    loaded = []
    for n in range(len(made)):
        folder = clean()
        write(folder, n)
        loaded.append(load(folder))
    assert kind != "directory" or loaded == made
    assert all(a != b for a, b in itertools.combinations(loaded, 2))
    return Form(write, load, loaded)


@pytest.fixture(scope="module", params=["directory", "tiktoken", "gpt2"])
def form(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Form:
    return make_form(request.param, lambda: tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Form:
    return make_form("directory", lambda: tmp_path_factory.mktemp("clean"))


def hidden(folder: Path) -> list[str]:
    """Return what only an interrupted save leaves."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def some(everything: Iterable[Any], number: int) -> list[Any]:
    """Return that many of all cases; all of them where many examples are asked for."""
    cases = list(everything)
    return random.Random(number).sample(cases, min(len(cases), examples(number)))


@pytest.fixture
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make saves fast, for tests in which no power is lost."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


# -- Processes and their steps ------------------------------------------------

KILLED = -int(signal.SIGKILL)


def in_child(work: Callable[[], object]) -> int:
    """Do something in a process of its own, made by fork; return its id."""
    process = os.fork()
    if process == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return process


def status_of(process: int) -> int:
    """Wait for a process to end; return its status, negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_STEPS = ("open", "os.rename", "os.remove", "os.listdir", "fcntl.flock")


def before_each_step(at: Path, act: Callable[[int], object]) -> None:
    """Call `act` before each thing that this process, a child, does to the files in a folder.

    Its argument counts them. What `act` itself does is not counted.
    """
    count, acting = itertools.count(), []

    def step() -> None:
        if not acting:
            acting.append(True)
            act(next(count))
            acting.clear()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in _STEPS and (event == "fcntl.flock" or os.fspath(at) in str(args[0])):
            step()

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            step()
            return real(*args, **options)

        return call

    os.stat, os.fsync = counted(os.stat), counted(os.fsync)
    sys.addaudithook(hook)


def killed_at(number: int, at: Path, work: Callable[[], object]) -> bool:
    """Do something in a process that is killed at one of its steps; False: it has fewer."""

    def doomed() -> None:
        before_each_step(at, lambda step: step == number and die())
        work()

    status = status_of(in_child(doomed))
    assert status in (0, KILLED)
    return status != 0


# -- Killed at every step -----------------------------------------------------


@forks
@pytest.mark.usefixtures("no_flush")
def test_a_save_killed_at_any_step_leaves_the_old_or_the_new(form: Form, tmp_path: Path) -> None:
    form.write(tmp_path, 0)
    seen = []
    for step in itertools.count():
        old, new = step % 4, (step + 1) % 4
        if not killed_at(step, tmp_path, lambda: form.write(tmp_path, new)):
            break
        seen.append(form.which(tmp_path) == new)
        assert form.which(tmp_path) in (old, new)
        form.write(tmp_path, new)
        assert form.which(tmp_path) == new and not hidden(tmp_path)
    assert len(seen) > 20
    assert set(seen) == {False, True}


@forks
@pytest.mark.usefixtures("no_flush")
def test_two_saves_killed_one_after_the_other(form: Form, tmp_path: Path) -> None:
    for first, second in some(itertools.product(range(60), repeat=2), 30):
        for path in tmp_path.iterdir():
            path.unlink()
        form.write(tmp_path, 0)
        killed_at(first, tmp_path, lambda: form.write(tmp_path, 1))
        expected = form.which(tmp_path), 2
        killed_at(second, tmp_path, lambda: form.write(tmp_path, 2))
        assert form.which(tmp_path) in expected
        form.write(tmp_path, 3)
        assert form.which(tmp_path) == 3 and not hidden(tmp_path)


@forks
@pytest.mark.usefixtures("no_flush")
def test_the_first_save_of_all_killed_at_any_step(form: Form, tmp_path: Path) -> None:
    for step in itertools.count():
        folder = tmp_path / str(step)
        folder.mkdir()
        killed = killed_at(step, folder, lambda at=folder: form.write(at, 1))  # type: ignore[misc]
        try:
            assert form.which(folder) == 1
        except FileNotFoundError:
            assert killed
        if not killed:
            break
        form.write(folder, 2)
        assert form.which(folder) == 2 and not hidden(folder)


def write_template_files(folder: Path) -> dict[str, str]:
    """Put named chat templates where transformers puts them; return what is loaded."""
    more = folder / "additional_chat_templates"
    more.mkdir(exist_ok=True)
    (folder / "chat_template.jinja").write_text("old default")
    for name in ("tool_use", "chat_template"):
        (more / f"{name}.jinja").write_text(f"old {name}")
    return {
        "default": "old default",
        "tool_use": "old tool_use",
        "chat_template": "old chat_template",
    }


@forks
@pytest.mark.usefixtures("no_flush")
@pytest.mark.parametrize("new", [1, 2])
def test_template_files_go_with_the_old_tokenizer(
    directory: Form, tmp_path: Path, new: int
) -> None:
    seen = []
    for step in itertools.count():
        directory.write(tmp_path, 0)
        old = write_template_files(tmp_path)
        if not killed_at(step, tmp_path, lambda: directory.write(tmp_path, new)):
            break
        loaded = directory.load(tmp_path)
        seen.append(loaded == directory.all[new])
        if not seen[-1]:
            assert loaded.chat_templates == old
            loaded.chat_templates = dict(directory.all[0].chat_templates)
            assert loaded == directory.all[0]
        directory.write(tmp_path, new)
        assert directory.which(tmp_path) == new and not hidden(tmp_path)
    assert set(seen) == {False, True}


@forks
def test_a_reader_while_template_files_go(directory: Form, tmp_path: Path) -> None:
    directory.write(tmp_path, 0)
    old = write_template_files(tmp_path)

    def watched() -> None:
        seen: list[dict[str, str]] = []
        before_each_step(tmp_path, lambda _: seen.append(directory.load(tmp_path).chat_templates))
        directory.write(tmp_path, 2)
        new = directory.all[2].chat_templates
        assert seen[0] == old and seen[-1] == new
        assert all(each in (old, new) for each in seen)

    assert status_of(in_child(watched)) == 0


# -- Readers between any two steps --------------------------------------------


@forks
def test_a_reader_at_every_step_of_a_save(form: Form, tmp_path: Path) -> None:
    form.write(tmp_path, 0)

    def watched() -> None:
        seen: list[int] = []
        before_each_step(tmp_path, lambda _: seen.append(form.which(tmp_path)))
        form.write(tmp_path, 1)
        assert len(seen) > 20 and set(seen) == {0, 1} and seen == sorted(seen)

    assert status_of(in_child(watched)) == 0


@forks
@pytest.mark.usefixtures("no_flush")
def test_saves_at_every_step_of_a_reader(form: Form, tmp_path: Path) -> None:
    form.write(tmp_path, 0)

    def disturbed(at: int, saves: int, step: int) -> None:
        # That many saves, the last one killed at a step, when the reader is at one of its own.
        def disturb(_: int = 0) -> None:
            for n in range(1, saves):
                form.write(tmp_path, n)
            killed_at(step, tmp_path, lambda: form.write(tmp_path, saves))

        before_each_step(tmp_path, lambda number: number == at and disturb())
        assert form.which(tmp_path) in range(saves + 1)

    whole = itertools.product((1, 2, 3), [999], range(40))
    killed = itertools.product((1, 2), range(60), range(40))
    for saves, step, at in [*some(whole, 30), *some(killed, 40)]:
        reader = in_child(lambda a=at, n=saves, s=step: disturbed(a, n, s))  # type: ignore[misc]
        assert status_of(reader) == 0
        form.write(tmp_path, 0)


# -- At random moments --------------------------------------------------------


def save_forever(form: Form, folder: Path, seed: int, pipe: int) -> None:
    """Save random tokenizers one after the other, each announced before."""
    chooser, last = random.Random(seed), None
    while True:
        last = chooser.choice([n for n in range(4) if n != last])
        os.write(pipe, bytes([last]))
        form.write(folder, last)


@forks
def test_saves_killed_at_random_moments(form: Form, tmp_path: Path) -> None:
    chooser, current = random.Random(1311), 0
    form.write(tmp_path, current)
    torn = 0
    for seed in range(examples(40)):
        reading, writing = os.pipe()
        process = in_child(lambda s=seed, w=writing: save_forever(form, tmp_path, s, w))  # type: ignore[misc]
        os.close(writing)
        with os.fdopen(reading, "rb") as announced:
            said = announced.read(1)  # the first save begins, however long that takes
            time.sleep(chooser.uniform(0, 0.05))
            os.kill(process, signal.SIGKILL)
            assert status_of(process) == KILLED
            before, *saves = [current, *said, *announced.read()][-2:]
        torn += bool(hidden(tmp_path))
        current = form.which(tmp_path)
        assert current in (before, *saves)
    form.write(tmp_path, 1)
    assert form.which(tmp_path) == 1 and not hidden(tmp_path)
    assert torn, "no kill hit a save"


# -- Several writers ----------------------------------------------------------


def write_many(form: Form, folder: Path, seed: int, times: int) -> None:
    chooser = random.Random(seed)
    for _ in range(times):
        form.write(folder, chooser.randrange(4))


@forks
def test_two_processes_save_to_one_place(form: Form, tmp_path: Path) -> None:
    form.write(tmp_path, 0)
    times, read_enough = examples(40), tmp_path / "read_enough"

    def write(seed: int) -> None:
        write_many(form, tmp_path, seed, times)
        while not read_enough.exists():
            write_many(form, tmp_path, seed, 1)

    writers = [in_child(lambda s=seed: write(s)) for seed in (1, 2)]  # type: ignore[misc]
    left, seen = set(writers), []
    while left:
        seen.append(form.which(tmp_path))
        if len(seen) > times / 4:
            read_enough.touch()
        for process in list(left):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                assert status == 0
                left.remove(process)
    assert form.which(tmp_path) in range(4) and not hidden(tmp_path)


def test_two_threads_save_to_one_place(form: Form, tmp_path: Path) -> None:
    form.write(tmp_path, 0)
    times, errors = examples(40), []

    def work(seed: int) -> None:
        try:
            write_many(form, tmp_path, seed, times)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert form.which(tmp_path) in range(4)
    assert not errors
    assert form.which(tmp_path) in range(4) and not hidden(tmp_path)


# -- Several tokenizers in one directory ---------------------------------------


def neighbors(files: dict[Path, bytes]) -> set[str]:
    """Return which of the four tokenizers each file beside HEAD belongs to."""
    texts = {path.name: raw.decode() for path, raw in files.items()}
    config, roles = (
        json.loads(texts[name]) for name in ("tokenizer_config.json", "special_tokens_map.json")
    )
    template = texts.get("chat_template.jinja")
    if template is None:
        template = "C" if "chat_template" in config else None
    owner = ["A {{ messages }}", None, "C", "D" * 9000].index(template)
    return {config["bos_token"], roles["bos_token"], f"<s{owner}>"}


def read_shared(folder: Path) -> set[str]:
    """Read what `save` and the export to "gpt2" both write, as a reader of tokenizer.json."""
    return neighbors(transactions.read_files(bpe_tokenizer._tokenizer_files(folder)))


def export_gpt2(folder: Path, n: int) -> None:
    """Write beside whatever tokenizer.json is there, which `export` itself refuses."""
    tokenizer = tokenizers()[n]
    transactions.save_files(vocab_merges.contents(tokenizer, folder))


@forks
@pytest.mark.usefixtures("no_flush")
@pytest.mark.parametrize("first", ["save", "export"])
def test_a_save_finishes_one_of_another_kind_killed_at_any_step(
    directory: Form, tmp_path: Path, first: str
) -> None:
    writers = [directory.write, export_gpt2][:: 1 if first == "save" else -1]
    heads = ["tokenizer.json", "vocab.json"][:: 1 if first == "save" else -1]
    counted = set()
    for step in itertools.count():
        for write in writers:
            write(tmp_path, 0)
        before = (tmp_path / heads[0]).read_bytes()
        if not killed_at(step, tmp_path, lambda: writers[0](tmp_path, 1)):
            break
        assert read_shared(tmp_path) in ({"<s0>"}, {"<s1>"})
        counts = read_shared(tmp_path) == {"<s1>"}
        counted.add(counts)
        writers[1](tmp_path, 2)
        assert read_shared(tmp_path) == {"<s2>"}
        assert not {".bpe-tokenizer.lock", ".bpe-tokenizer.saving"} & set(hidden(tmp_path))
        assert ((tmp_path / heads[0]).read_bytes() != before) == counts
        writers[0](tmp_path, 3)
        assert read_shared(tmp_path) == {"<s3>"} and not hidden(tmp_path)
    assert counted == {False, True}


@forks
@pytest.mark.usefixtures("no_flush")
def test_two_saves_of_two_kinds_killed_one_after_the_other(directory: Form, tmp_path: Path) -> None:
    for first, second in some(itertools.product(range(60), repeat=2), 30):
        directory.write(tmp_path, 0)
        killed_at(first, tmp_path, lambda: directory.write(tmp_path, 1))
        killed_at(second, tmp_path, lambda: export_gpt2(tmp_path, 2))
        assert read_shared(tmp_path) in ({"<s0>"}, {"<s1>"}, {"<s2>"})
        export_gpt2(tmp_path, 0)
        directory.write(tmp_path, 3)
        assert directory.which(tmp_path) == 3 and not hidden(tmp_path)


@forks
def test_saves_and_exports_at_once_do_not_mix(directory: Form, tmp_path: Path) -> None:
    directory.write(tmp_path, 0)

    def work(write: Callable[[Path, int], None], seed: int) -> None:
        chooser = random.Random(seed)
        for _ in range(examples(40)):
            write(tmp_path, chooser.randrange(4))

    writers = [
        in_child(lambda: work(directory.write, 1)),
        in_child(lambda: work(export_gpt2, 2)),
    ]
    left = set(writers)
    while left:
        assert len(read_shared(tmp_path)) == 1
        for process in list(left):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                assert status == 0
                left.remove(process)
    places = bpe_tokenizer._tokenizer_files(tmp_path)
    assert len(neighbors({path: path.read_bytes() for path in places if path.exists()})) == 1
    assert not hidden(tmp_path)


@forks
def test_a_reader_while_the_files_beside_are_replaced(tmp_path: Path, directory: Form) -> None:
    directory.write(tmp_path, 0)

    def watched(at: int) -> None:
        before_each_step(tmp_path, lambda step: step == at and export_gpt2(tmp_path, 3))
        assert len(read_shared(tmp_path)) == 1

    for at in range(40):
        assert status_of(in_child(lambda a=at: watched(a))) == 0  # type: ignore[misc]
        directory.write(tmp_path, 0)


def test_one_file_over_an_interrupted_save(directory: Form, tmp_path: Path) -> None:
    directory.write(tmp_path, 0)
    interrupted(directory, tmp_path)
    directory.all[1].export(tmp_path / "tokenizer.json", "tokenizer.json")
    assert not hidden(tmp_path)
    loaded = directory.load(tmp_path)
    assert loaded == directory.all[1]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_export_beside_another_tokenizer_is_refused(tmp_path: Path) -> None:
    one, other = tokenizers()[:2]
    one.save(tmp_path, verbose=False)
    before = files_of(tmp_path)
    with pytest.raises(FileExistsError, match=r"tokenizer\.json of another tokenizer") as refused:
        other.export(tmp_path, "gpt2")
    assert str(tmp_path) in str(refused.value) and "another directory" in str(refused.value)
    assert files_of(tmp_path) == before
    (tmp_path / "tokenizer.json").write_text("damaged")
    with pytest.raises(FileExistsError, match="another tokenizer"):
        one.export(tmp_path, "gpt2")


def test_an_export_beside_the_same_tokenizer_is_not(tmp_path: Path) -> None:
    tokenizer = tokenizers()[0]
    tokenizer.save(tmp_path, verbose=False)
    tokenizer.export(tmp_path, "gpt2")
    assert BPETokenizer.from_file(tmp_path) == tokenizer
    assert BPETokenizer.from_file(tmp_path / "vocab.json").get_vocab() == tokenizer.get_vocab()


def test_an_interrupted_save_counts_for_an_export(directory: Form, tmp_path: Path) -> None:
    interrupted(directory, tmp_path)
    (tmp_path / "tokenizer.json").rename(
        next(tmp_path.glob(".tokenizer_config.json.*")).with_name(".moved")
    )
    journal = json.loads((tmp_path / ".bpe-tokenizer.saving").read_text(encoding="utf-8"))
    (tmp_path / ".moved").rename(tmp_path / journal["tokenizer.json"])
    assert directory.which(tmp_path) == 1 and not (tmp_path / "tokenizer.json").exists()
    with pytest.raises(FileExistsError, match="another tokenizer"):
        tokenizers()[0].export(tmp_path, "gpt2")


# -- Names ---------------------------------------------------------------------

STANDARD = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}


def label(folder: Path) -> Any:
    return json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("name")


@pytest.mark.parametrize("name", ["demo_tokenizer", "org/model", "../x", "Größe 2", "a" * 100])
def test_a_name_is_a_label(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in" / "folder"
    for tokenizer in tokenizers():
        tokenizer.save(folder, name=name, verbose=False)
        assert BPETokenizer.from_pretrained(folder, verbose=False) == tokenizer
        assert label(folder) == name
        assert set(files_of(folder)) - {"chat_template.jinja"} == STANDARD
        assert [path.name for path in tmp_path.iterdir()] == ["in"]
        assert [path.name for path in (tmp_path / "in").iterdir()] == ["folder"]


def test_a_name_survives_loading_and_the_next_save(tmp_path: Path) -> None:
    tokenizer = tokenizers()[1]
    tokenizer.save(tmp_path, verbose=False)
    assert label(tmp_path) is None
    tokenizer.save(tmp_path, name="demo", verbose=False)
    loaded = BPETokenizer.from_file(tmp_path)
    for each in (loaded, pickle.loads(pickle.dumps(loaded)), copy.deepcopy(loaded)):
        each.save(tmp_path / "again", verbose=False)
        assert label(tmp_path / "again") == "demo"
    loaded.export(tmp_path / "gpt2", "gpt2")
    assert label(tmp_path / "gpt2") == "demo"
    loaded.save(tmp_path, name="other", verbose=False)
    assert label(tmp_path) == "other"
    tokenizer.save(tmp_path, verbose=False)  # it was not loaded with one
    assert label(tmp_path) is None
    assert loaded == tokenizer and hash(loaded) == hash(tokenizer)


def test_transformers_keeps_the_name(tmp_path: Path) -> None:
    transformers = need("transformers")
    tokenizer = tokenizers()[0]
    tokenizer.save(tmp_path, name="demo_tokenizer", verbose=False)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("abc abd", "Größe\n\n 12", "<s0>abc<e0>"):
        assert theirs.encode(text, add_special_tokens=False) == tokenizer.encode(
            text, allowed_special="all"
        )
    theirs.save_pretrained(tmp_path / "theirs")
    assert label(tmp_path / "theirs") == "demo_tokenizer"
    ours = BPETokenizer.from_file(tmp_path / "theirs")
    ours.save(tmp_path / "ours", verbose=False)
    assert label(tmp_path / "ours") == "demo_tokenizer"


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "\x1b[2J", "\ud800", "a" * 101, None, 5, Path("a")]
)
def test_other_names_are_refused(tmp_path: Path, name: Any) -> None:
    kind = ValueError if isinstance(name, str) else TypeError
    with pytest.raises(kind, match="name must be a str of 1 to 100 printable characters"):
        tokenizers()[0].save(tmp_path / "new", name=name, verbose=False)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["", "a\nb", "a" * 101, None, 5, {"a": 1}])
def test_a_name_that_is_no_label_is_another_programs(tmp_path: Path, name: Any) -> None:
    tokenizers()[0].save(tmp_path, verbose=False)
    path = tmp_path / "tokenizer_config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), "name": name}
    path.write_text(json.dumps(config), encoding="utf-8")
    assert BPETokenizer.from_file(tmp_path) == tokenizers()[0]
    assert "name" not in BPETokenizer.from_file(tmp_path)._settings


def save_as_before(tokenizer: BPETokenizer, folder: Path, name: str, version: str) -> None:
    """Write a named tokenizer as version 0.6 or 0.7 did."""
    made = folder / "made"
    tokenizer.save(made, verbose=False)
    config = made / "tokenizer_config.json"
    if version == "0.7":  # with the chat template, and without the other files
        data = json.loads(config.read_text(encoding="utf-8"))
        data.setdefault("chat_template", tokenizer.chat_template)
        config.write_text(json.dumps(data), encoding="utf-8")
        (made / "special_tokens_map.json").unlink()
        (made / "chat_template.jinja").unlink(missing_ok=True)
    for path in made.iterdir():
        named = path.name in ("tokenizer.json", "tokenizer_config.json")
        path.rename(folder / (path.name.replace("tokenizer", name, 1) if named else path.name))
    made.rmdir()


@pytest.mark.parametrize("version", ["0.6", "0.7"])
def test_a_named_tokenizer_of_before_loads(tmp_path: Path, version: str) -> None:
    for i, made in enumerate(tokenizers()):
        folder = tmp_path / str(i)
        folder.mkdir()
        save_as_before(made, folder, "demo_tokenizer", version)
        assert "tokenizer.json" not in files_of(folder)
        assert BPETokenizer.from_pretrained(folder, verbose=False) == made
        assert BPETokenizer.from_file(folder / "demo_tokenizer.json") == made
        with pytest.raises(ValueError, match="carries its own split pattern"):
            BPETokenizer.from_file(folder, "gpt2")
        other = tokenizers()[i - 1]
        other.save(folder, verbose=False)  # from now on, this is the directory's
        assert BPETokenizer.from_file(folder) == other
        if version == "0.7":
            assert BPETokenizer.from_file(folder / "demo_tokenizer.json") == made


@pytest.mark.usefixtures("no_flush")
def test_several_named_tokenizers_are_listed_and_load_by_name(tmp_path: Path) -> None:
    names, made = ["b", "a", "my_config", "c"], tokenizers()
    for name, tokenizer in zip(names, made):
        save_as_before(tokenizer, tmp_path, name, "0.7")
    (tmp_path / "generation_config.json").write_text("{}")
    (tmp_path / "generation.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"a\.json, b\.json, c\.json, my_config\.json$"):
        BPETokenizer.from_file(tmp_path)
    for name, tokenizer in zip(names, made):
        assert BPETokenizer.from_file(tmp_path / f"{name}.json") == tokenizer


def test_other_tokenizers_of_a_directory_come_before_named_ones(tmp_path: Path) -> None:
    one, other = tokenizers()[:2]
    save_as_before(one, tmp_path, "demo", "0.7")
    other.export(tmp_path / "x.tiktoken", "tiktoken")
    assert BPETokenizer.from_file(tmp_path).special_tokens == other.special_tokens


def test_pairs_of_json_files_of_others_are_no_tokenizers(tmp_path: Path) -> None:
    for name in ("generation.json", "generation_config.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(FileNotFoundError, match="contains no tokenizer"):
        BPETokenizer.from_file(tmp_path)


# -- What an interrupted save leaves, and what others put there ---------------


def interrupted(form: Form, folder: Path, new: int = 1) -> Path:
    """Let a save fail after it renamed its first file; return its journal."""
    real, moved = os.replace, []

    def replace(source: Path, target: Path) -> None:
        if len(moved) == 2:  # the journal and the first file
            raise OSError(errno.EACCES, "Permission denied", str(target))
        moved.append(target)
        real(source, target)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(PermissionError):
            form.write(folder, new)
    assert moved[0] == folder / ".bpe-tokenizer.saving"
    return Path(moved[0])


def test_a_save_that_stops_half_way_counts_and_the_next_one_cleans_up(
    form: Form, tmp_path: Path
) -> None:
    form.write(tmp_path, 0)
    journal = interrupted(form, tmp_path)
    assert journal.exists() and form.which(tmp_path) == 1
    before = sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    tmp_path.chmod(0o500)  # readers change nothing, and need no right to
    assert form.which(tmp_path) == 1
    tmp_path.chmod(0o700)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir()) == before
    form.write(tmp_path, 2)
    assert form.which(tmp_path) == 2 and not hidden(tmp_path)


def test_a_save_whose_first_file_cannot_be_renamed_does_not_count(
    directory: Form, tmp_path: Path
) -> None:
    directory.write(tmp_path, 0)
    real = os.replace

    def replace(source: Path, target: Path) -> None:
        if Path(target).name == "tokenizer.json":
            raise OSError(errno.EACCES, "Permission denied", str(target))
        real(source, target)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(PermissionError):
            directory.write(tmp_path, 1)
    assert directory.which(tmp_path) == 0 and not hidden(tmp_path)


def test_leftovers_are_removed_and_what_others_put_there_stays(
    directory: Form, tmp_path: Path
) -> None:
    digits = "0123456789abcdef"
    for name in (  # the second is what version 0.6 left
        f".tokenizer.json.{digits}.saving",
        f".tokenizer_config.json.{digits}.tmp",
        f".chat_template.jinja.{digits}.saving",
        f"..bpe-tokenizer.saving.{digits}.tmp",
        ".bpe-tokenizer.lock",
    ):
        (tmp_path / name).write_text("{", encoding="utf-8")
    others = [f".model.json.{digits}.tmp", f"tokenizer.json.{digits}.tmp", ".tokenizer.json.1.tmp"]
    for name in [*others, "model.safetensors", "config.json"]:
        (tmp_path / name).write_text("kept", encoding="utf-8")
    directory.write(tmp_path, 0)
    assert directory.which(tmp_path) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {*others, "model.safetensors", "config.json", "tokenizer.json"} | {
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
    }


def test_a_file_edited_by_hand_counts(directory: Form, tmp_path: Path) -> None:
    directory.write(tmp_path, 0)
    (tmp_path / "chat_template.jinja").write_text("by hand", encoding="utf-8")
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["model_max_length"] = 7
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    loaded = directory.load(tmp_path)
    assert loaded.chat_template == "by hand" and loaded._settings["model_max_length"] == 7


def test_a_template_that_the_new_tokenizer_lacks_goes_with_the_old_one(
    form: Form, tmp_path: Path
) -> None:
    form.write(tmp_path, 0)
    form.write(tmp_path, 1)
    assert form.load(tmp_path).chat_template is None
    assert not (tmp_path / "chat_template.jinja").exists()


def test_every_export_to_a_directory_removes_old_template_files(form: Form, tmp_path: Path) -> None:
    form.write(tmp_path, 0)
    if form.load(tmp_path).chat_template is None:
        return  # a .tiktoken has none
    write_template_files(tmp_path)
    assert "tool_use" in form.load(tmp_path).chat_templates
    interrupted(form, tmp_path)
    assert form.which(tmp_path) == 1
    form.write(tmp_path, 1)
    assert form.which(tmp_path) == 1 and not list(tmp_path.rglob("*.jinja"))


def test_template_files_with_odd_names_are_removed(directory: Form, tmp_path: Path) -> None:
    more = tmp_path / "additional_chat_templates"
    more.mkdir()
    for name in (".jinja", "a b.jinja", "é.jinja", "..jinja", *["a\\b.jinja"][os.name == "nt" :]):
        (more / name).write_text("old")
    directory.write(tmp_path, 1)
    assert directory.which(tmp_path) == 1 and not list(more.iterdir())


@pytest.mark.parametrize(
    "journal",
    [
        "",
        "[]",
        "{",
        "null",
        '{"tokenizer.json": 5}',
        '{"tokenizer.json": "chat_template.jinja"}',
        '{"tokenizer.json": "../.tokenizer.json.0123456789abcdef.saving"}',
        '{"chat_template.jinja": ".tokenizer.json.0123456789abcdef.saving"}',
        '{"tokenizer.json": ".tokenizer.json.0123456789abcdef.saving\\n"}',
        '{"model.safetensors": null}',
        '{"../victim": null}',
        '{"../victim": ".tokenizer.json.0123456789abcdef.saving"}',
        '{"": null}',
        '{"..": "....0123456789abcdef.saving"}',
        '{"/victim": null}',
        '{"additional_chat_templates/../tokenizer.json": null}',
        '{"additional_chat_templates/..": null}',
        '{"additional_chat_templates/config.json": null}',
        '{"additional_chat_templates/a.jinja": ".a.jinja.0123456789abcdef.saving"}',
        '{"tokenizer.json": "..tokenizer.json.0123456789abcdef.saving"}',
    ],
)
def test_a_journal_from_a_stranger_is_refused_and_nothing_moves(
    directory: Form, tmp_path: Path, journal: str
) -> None:
    folder = tmp_path / "folder"
    directory.write(folder, 0)
    (tmp_path / "victim").write_text("kept", encoding="utf-8")
    for name in ("model.safetensors", ".tokenizer.json.0123456789abcdef.saving"):
        (folder / name).write_text("kept", encoding="utf-8")
    (folder / ".bpe-tokenizer.saving").write_text(journal, encoding="utf-8")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for act in (lambda: directory.load(folder), lambda: directory.write(folder, 1)):
        with pytest.raises(FileFormatError, match=r"\.bpe-tokenizer\.saving"):
            act()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (folder / ".bpe-tokenizer.saving").unlink()  # as the error says
    directory.write(folder, 1)
    assert directory.which(folder) == 1


def test_templates_behind_a_link_are_kept(directory: Form, tmp_path: Path) -> None:
    """Neither a save nor the journal of a stranger removes files of another directory."""
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    directory.write(folder, 0)
    elsewhere.mkdir()
    (elsewhere / "mine.jinja").write_text("kept", encoding="utf-8")
    (folder / "additional_chat_templates").symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(FileExistsError, match="additional_chat_templates: is a link"):
        directory.write(folder, 1)
    journal = folder / ".bpe-tokenizer.saving"
    journal.write_text('{"additional_chat_templates/mine.jinja": null}', encoding="utf-8")
    with pytest.raises(FileFormatError, match="not a name that a save writes here"):
        directory.load(folder)
    assert (elsewhere / "mine.jinja").read_text(encoding="utf-8") == "kept"
    journal.unlink()
    (folder / "additional_chat_templates").unlink()
    directory.write(folder, 1)
    assert directory.which(folder) == 1


def test_a_lock_that_is_a_link_is_not_followed(directory: Form, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ".bpe-tokenizer.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match=r"bpe-tokenizer\.lock"):
        directory.write(tmp_path / "folder", 0)
    assert not (tmp_path / "victim").exists()


def test_windows_locks_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for its module: Windows says at once that another has the lock."""
    answers: list[Exception | None]
    answers = [PermissionError(errno.EACCES, "Permission denied"), OSError(0, "Error"), None]

    def locking(handle: int, mode: int, size: int) -> None:
        assert (handle, mode, size) == (7, 2, 1)
        if problem := answers.pop(0):
            raise problem

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))
    with monkeypatch.context() as windows:
        windows.setattr(os, "name", "nt")
        transactions._wait_for_lock(7)
    assert answers == []
    answers.append(OSError(errno.EINVAL, "Invalid argument"))
    with pytest.raises(OSError, match="Invalid argument"), monkeypatch.context() as windows:
        windows.setattr(os, "name", "nt")
        transactions._wait_for_lock(7)


@pytest.mark.parametrize("locks", ["no fcntl", "no locks"])
def test_without_locks_one_writer_saves_as_ever(
    directory: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: str
) -> None:
    if locks == "no fcntl":
        monkeypatch.setitem(sys.modules, "fcntl", None)
    else:
        fcntl = need("fcntl")

        def flock(*_: Any) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", flock)
    for n in range(4):
        directory.write(tmp_path, n)
        assert directory.which(tmp_path) == n and not hidden(tmp_path)
    interrupted(directory, tmp_path, 0)
    export_gpt2(tmp_path, 3)  # finishes it first
    assert read_shared(tmp_path) == {"<s3>"} and not hidden(tmp_path)
    directory.write(tmp_path, 1)
    lock = tmp_path / ".bpe-tokenizer.lock"
    lock.touch()  # another writer's
    directory.write(tmp_path, 2)
    assert directory.which(tmp_path) == 2 and lock.exists()


def test_a_directory_in_the_place_of_a_file_is_an_error_before_anything_changes(
    directory: Form, tmp_path: Path
) -> None:
    directory.write(tmp_path, 1)
    (tmp_path / "chat_template.jinja").mkdir()
    for n in (0, 1):  # with a template, and without
        with pytest.raises(IsADirectoryError):
            directory.write(tmp_path, n)
        with pytest.raises(FileFormatError, match="not a regular file"):
            directory.load(tmp_path)
    assert not hidden(tmp_path)
    (tmp_path / "chat_template.jinja").rmdir()
    assert directory.which(tmp_path) == 1


def test_a_file_system_without_lasting_numbers_for_files_works(
    directory: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.write(tmp_path, 0)
    numbers = itertools.count()
    monkeypatch.setattr(transactions, "_identity", lambda *_: next(numbers))
    assert directory.which(tmp_path) == 0
    directory.write(tmp_path, 1)
    assert directory.which(tmp_path) == 1


def test_ctrl_c_during_the_renames_finishes_them(directory: Form, tmp_path: Path) -> None:
    directory.write(tmp_path, 0)
    real, calls = os.replace, itertools.count()

    def replace(source: Path, target: Path) -> None:
        if next(calls) == 2:  # after the journal and the first file
            raise KeyboardInterrupt
        real(source, target)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            directory.write(tmp_path, 1)
    assert directory.which(tmp_path) == 1 and not hidden(tmp_path)


# -- The module alone -----------------------------------------------------------


@pytest.mark.usefixtures("without_tools")
def test_alone_it_saves_and_loads_file_by_file(tmp_path: Path) -> None:
    made = tokenizers()
    for tokenizer in made:
        write_template_files(tmp_path)
        tokenizer.save(tmp_path, verbose=False)
        assert BPETokenizer.from_file(tmp_path) == tokenizer and not hidden(tmp_path)
        assert not list((tmp_path / "additional_chat_templates").iterdir())


@pytest.mark.usefixtures("without_tools")
def test_alone_a_failed_save_leaves_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tokenizers()[:2]
    one.save(tmp_path, verbose=False)
    before = files_of(tmp_path)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        other.save(tmp_path, verbose=False)
    assert files_of(tmp_path) == before


def test_alone_it_refuses_what_an_interrupted_save_left(
    directory: Form, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory.write(tmp_path, 0)
    interrupted(directory, tmp_path)
    request.getfixturevalue("without_tools")
    before = files_of(tmp_path)
    for act in (lambda: directory.load(tmp_path), lambda: directory.write(tmp_path, 1)):
        with pytest.raises(ImportError, match=r"\.bpe-tokenizer\.saving.*copy that folder"):
            act()
    assert files_of(tmp_path) == before
