"""A tokenizer from one file: corpus, counts, training, evaluation, registration.

docs/pipeline.md describes the file.  Each step leaves a stamp when it is done; it is skipped while
its settings, its files and the results of earlier steps match its stamp.  So a run that was stopped
continues where it was when it starts again, and gives the same result as one that wasn't stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer, PretokenCounts, count_pretokens
from bpe_tokenizer_tools import core, evaluation
from bpe_tokenizer_tools.corpus.documents import expanded, find_files
from bpe_tokenizer_tools.corpus.drawing import Recipe, build_corpus
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.files import check_path, file_sha256
from bpe_tokenizer_tools.support.settings import Settings
from bpe_tokenizer_tools.support.tables import Table
from bpe_tokenizer_tools.support.text import shortened
from bpe_tokenizer_tools.workflow.registry import Entry, Registry, check_name
from bpe_tokenizer_tools.workflow.stamps import UNKNOWN, Stamp, changes, hashes

_Results = Mapping[str, Mapping[str, Any]]  # step -> its results

# -- Steps --------------------------------------------------------------------


@dataclass
class _Step:
    """One step of a pipeline."""

    work: Path
    name: ClassVar[str]

    def prepare(self) -> None:
        """Raise now for what would make the step fail later, after long steps before it."""

    def inputs(self, results: _Results) -> dict[str, Any]:
        """Return everything that decides the result, except files; UNKNOWN if not known yet."""
        raise NotImplementedError

    def files(self) -> dict[str, Path]:
        """Return the files that the step reads, by label."""
        return {}

    def missing(self, result: Mapping[str, Any]) -> str:
        """Describe what else is missing, if anything."""
        return ""

    def run(self, results: _Results, verbose: bool) -> tuple[list[Path], dict[str, Any]]:
        """Run the step; return the files it wrote, and what other steps need to know."""
        raise NotImplementedError


def _known(results: _Results, step: str, key: str) -> Any:
    return results.get(step, {}).get(key, UNKNOWN)


@dataclass
class _Corpus(_Step):
    recipe: Recipe
    format: str
    name = "corpus"

    @property
    def _out(self) -> Path:
        return self.work / f"corpus.{self.format}"

    def inputs(self, results: _Results) -> dict[str, Any]:
        facts = self.recipe.to_json()
        listed = facts.pop("sources")
        facts["order of sources"] = [source["name"] for source in listed]
        facts["sources"] = {
            source["name"]: {key: value for key, value in source.items() if key != "name"}
            for source in listed
        }
        return {**facts, "format": self.format}

    def files(self) -> dict[str, Path]:
        return {
            f"{name}:{file.label}": file.path
            for name, found in find_files(self.recipe).items()
            for file in found
        }

    def run(self, results: _Results, verbose: bool) -> tuple[list[Path], dict[str, Any]]:
        report = build_corpus(self.recipe, self._out, verbose=verbose)
        written = [each["file"] for each in (*report.files, *report.held_out_files)]
        facts = {"sha256": report.sha256, "held_out_sha256": report.held_out_sha256}
        facts["file"] = self._out.name
        facts["held_out_file"] = written[1] if report.held_out_files else None
        paths = [self.work / name for name in (*written, f"{self._out.name}.manifest.json")]
        for old in set(self.work.glob("corpus.*")) - set(paths):  # of another format, say
            old.unlink()
        return paths, facts


@dataclass(frozen=True)
class _Training:
    """The settings of [train]."""

    vocab_size: int
    min_frequency: int
    pattern: str
    normalizer: str | None
    special_tokens: Any  # a list of texts, or {text: id}
    max_token_length: int | None
    num_workers: int | None

    def new(self) -> BPETokenizer:
        return BPETokenizer(self.pattern, normalizer=self.normalizer)


@dataclass
class _Count(_Step):
    training: _Training
    name = "count"

    def inputs(self, results: _Results) -> dict[str, Any]:
        return {
            "corpus": _known(results, "corpus", "sha256"),
            "pattern": self.training.new().split_pattern,
            "normalizer": self.training.normalizer,
            "special_tokens": sorted(self.training.special_tokens),
        }

    def run(self, results: _Results, verbose: bool) -> tuple[list[Path], dict[str, Any]]:
        tokenizer = self.training.new()
        counts = count_pretokens(
            self.work / results["corpus"]["file"],
            tokenizer.split_pattern or "",
            special_tokens=list(self.training.special_tokens),
            normalizer=tokenizer.normalizer,
            num_workers=self.training.num_workers,
            verbose=verbose,
        )
        path = self.work / "counts.json"
        counts.save(path)
        return [path], {"sha256": file_sha256(path)}


@dataclass
class _Train(_Step):
    training: _Training
    name = "train"

    def inputs(self, results: _Results) -> dict[str, Any]:
        facts = dataclasses.asdict(self.training)
        del facts["num_workers"]  # it only decides how long training takes
        facts["pattern"] = self.training.new().split_pattern
        return {"counts": _known(results, "count", "sha256"), **facts}

    def run(self, results: _Results, verbose: bool) -> tuple[list[Path], dict[str, Any]]:
        given = self.training
        counts = PretokenCounts.load(self.work / "counts.json")
        tokenizer = given.new().train(
            None,
            given.vocab_size,
            given.min_frequency,
            given.special_tokens,
            verbose=verbose,
            counts=counts,
            max_token_length=given.max_token_length,
        )
        folder = self.work / "tokenizer"
        tokenizer.save(folder, verbose=False)
        facts = dataclasses.asdict(tokenizer.training_report)  # type: ignore[arg-type]
        del facts["counting_seconds"], facts["learning_seconds"]
        result = {"fingerprint": tokenizer.fingerprint, "report": facts}
        return sorted(folder.iterdir()), result


_PACKAGES = {"tiktoken": "tiktoken", "hf": "tokenizers", "sp": "sentencepiece"}  # of specs


@dataclass
class _Evaluate(_Step):
    """The evaluation; its tables map names as written to their meanings."""

    called: str
    sources: Sequence[str]  # of the corpus
    texts: Mapping[str, Mapping[str, Path]]  # if empty, the text that the recipe holds out
    parallel: Mapping[str, Mapping[str, Path]]  # one for each language
    against: Mapping[str, tuple[str, str]]  # name -> (as written, spec)
    name = "evaluate"

    def prepare(self) -> None:
        for name, (_, spec) in self.against.items():
            evaluation.open_tokenizer(spec, name)

    def inputs(self, results: _Results) -> dict[str, Any]:
        held_out = _known(results, "corpus", "held_out_sha256")
        return {
            "tokenizer": _known(results, "train", "fingerprint"),
            **({} if self.texts else {"held_out": held_out}),
            "called": self.called,
            "texts": {name: list(paths) for name, paths in self.texts.items()},
            "parallel": {name: list(paths) for name, paths in self.parallel.items()},
            "against": {name: written for name, (written, _) in self.against.items()},
            "packages": self._packages(),
        }

    def files(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for paths in (*self.texts.values(), *self.parallel.values()):
            for written, path in paths.items():
                found.update(_files_below(written, path))
        for written, spec in self.against.values():
            kind, _, rest = spec.partition(":")
            path = Path(rest if kind in _PACKAGES else spec)
            found.update(_files_below(written, path) if os.path.exists(path) else ())
            beside = path.with_suffix(".json")
            if path.suffix == ".tiktoken" and beside.is_file():  # its split pattern and tokens
                found[f"{written} ({beside.name})"] = beside
        return found

    def _packages(self) -> dict[str, str]:
        kinds = {spec.partition(":")[0] for _, spec in self.against.values()} & set(_PACKAGES)
        versions = {}
        for package in sorted(_PACKAGES[kind] for kind in kinds):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[package] = importlib.metadata.version(package)
        return versions

    def run(self, results: _Results, verbose: bool) -> tuple[list[Path], dict[str, Any]]:
        from bpe_tokenizer_tools.evaluation.texts import FileGroup

        own = BPETokenizer.from_pretrained(self.work / "tokenizer", verbose=False)
        texts: dict[str, Any] = {
            name: FileGroup(name, list(paths.values())) for name, paths in self.texts.items()
        }
        if not self.texts:
            held_out = self.work / results["corpus"]["held_out_file"]
            texts = {name: _held_out(held_out, name) for name in self.sources}
        parallel = evaluation.parallel_lines(
            [f"{name}={path}" for name, paths in self.parallel.items() for path in paths.values()]
        )
        tokenizers = {self.called: own, **{name: spec for name, (_, spec) in self.against.items()}}
        found = evaluation.evaluate(tokenizers, texts, parallel=parallel, verbose=verbose)
        written = {"json": core.to_json(found.to_json()), "csv": found.to_csv(), "txt": f"{found}"}
        contents = {self.work / f"evaluation.{ending}": text for ending, text in written.items()}
        core.write_files(contents)
        return list(contents), {"sha256": file_sha256(self.work / "evaluation.json")}


def _files_below(written: str, path: Path) -> Iterator[tuple[str, Path]]:
    if not path.is_dir():
        yield written, path
    for file in sorted(path.rglob("*")):
        if file.is_file():
            yield f"{written}/{file.relative_to(path).as_posix()}", file


def _held_out(path: Path, source: str) -> Iterator[str]:
    with core.decompressed(path) as file:
        for record in map(json.loads, file):
            if record["source"] == source:
                yield record["text"]


@dataclass
class _Register(_Step):
    written: str  # the registry, as it is written
    registry: Path
    called: str
    metadata: Mapping[str, Any]
    evaluated: bool
    name = "register"

    def prepare(self) -> None:
        check_name(self.called)
        outputs.check_directory(self.registry)

    def inputs(self, results: _Results) -> dict[str, Any]:
        return {
            "tokenizer": _known(results, "train", "fingerprint"),
            "corpus": _known(results, "corpus", "sha256"),
            "evaluation": _known(results, "evaluate", "sha256") if self.evaluated else None,
            "registry": self.written,
            "name": self.called,
            "metadata": dict(self.metadata),
        }

    def missing(self, result: Mapping[str, Any]) -> str:
        try:
            Registry(self.registry).show(result["entry"])
        except (ValueError, OSError):
            return f"{result['entry']} is no longer in the registry, or is damaged"
        return ""

    def run(self, results: _Results, verbose: bool) -> tuple[list[Path], dict[str, Any]]:
        folder = self.work / "tokenizer"
        registry = Registry(self.registry)
        report: dict[str, Any] = {"training": results["train"]["report"]}
        if self.evaluated:
            report["evaluation"] = json.loads((self.work / "evaluation.json").read_bytes())
        corpus, note = results["corpus"]["sha256"], ""
        there = self._registered(registry, folder)
        if there is not None and there.corpus_sha256 != corpus:
            corpus = there.corpus_sha256
            note = "another corpus gave the same tokenizer before; its entry stays"
        entry = registry.register(
            BPETokenizer.from_pretrained(folder, verbose=False),
            self.called,
            metadata=self.metadata,
            corpus_sha256=corpus,
            report=report,
        )
        return [], {"entry": f"{entry.name}@{entry.hash}", "note": note}

    def _registered(self, registry: Registry, folder: Path) -> Entry | None:
        """Return the entry with exactly these files, if there is one."""
        files = {file.name: file_sha256(file) for file in folder.iterdir()}
        entries = registry.entries() if registry.path.is_dir() else []
        for entry in entries:
            if entry.name != self.called:
                continue
            with contextlib.suppress(ValueError, OSError):  # a damaged entry doesn't count
                found = registry.show(f"{entry.name}@{entry.hash}")
                if found.files == files:
                    return found
        return None


# -- The file -----------------------------------------------------------------

_TABLES = ("corpus", "train", "evaluate", "register")


def _read_recipe(settings: Settings, folder: Path) -> Recipe:
    given = settings.get("recipe", str, None, default=None)
    rest = {key: value for key, value in settings.data.items() if key not in ("recipe", "format")}
    if given is None:
        return Recipe.from_settings(Settings(rest, settings.path, settings.field), folder)
    if rest:
        problem = f"the recipe is in {given!r}, so {next(iter(rest))!r} goes there"
        raise settings.error(problem)
    return Recipe.from_file(folder / given)


def _read_training(settings: Settings) -> _Training:
    settings.check_keys(*(field.name for field in dataclasses.fields(_Training)))
    tokens = settings.get("special_tokens", list, dict, default=[])
    normalizer = settings.get("normalizer", str, default="NFC")
    training = _Training(
        settings.get("vocab_size", int, default=32_000),
        settings.get("min_frequency", int, default=2),
        settings.get("pattern", str, default="gpt2"),
        None if normalizer == "none" else normalizer,
        tokens,
        settings.get("max_token_length", int, None, default=None),
        settings.get("num_workers", int, None, default=None),
    )
    with settings.placing_errors():
        tokenizer = training.new()
    with settings.placing_errors("special_tokens"):
        try:
            named = core.as_added_tokens(tokens)
        except TypeError as error:
            raise ValueError(str(error)) from None
        core.with_added_tokens(*core.lay_out(tokenizer.definition, named, named, first=False))
    sizes = training.min_frequency, training.max_token_length
    with settings.placing_errors():
        core.room_for_merges(training.vocab_size, len(named), *sizes)
        core.check_size("num_workers", training.num_workers, 1)
    return training


def _read_evaluation(
    settings: Settings, work: Path, folder: Path, called: str, recipe: Recipe
) -> _Evaluate:
    settings.check_keys("texts", "parallel", "against")
    texts = _read_paths(settings, "texts", folder)
    parallel = _read_paths(settings, "parallel", folder)
    for name, paths in parallel.items():
        if len(paths) != 1:
            raise settings.error("expected one file for each language", f"parallel.{name}")
    if not texts and not recipe.held_out:
        raise settings.error("there are no texts; set held_out in [corpus], or texts here")
    given = settings.get("against", dict, list, default={})
    if isinstance(given, list):
        given = {spec: spec for spec in settings.strings("against")}
    against = {}
    for name, spec in given.items():
        if not isinstance(spec, str) or name == called:
            raise settings.error(f"expected name = tokenizer, got {name} = {spec!r}", "against")
        against[name] = spec, _below(folder, spec)
    sources = [source.name for source in recipe.sources]
    return _Evaluate(work, called, sources, texts, parallel, against)


def _read_paths(settings: Settings, key: str, folder: Path) -> dict[str, dict[str, Path]]:
    """Read a table of names and paths, each of one or of several files."""
    named = settings.table(key) or Settings({}, settings.path)
    found = {}
    for name in named.data:
        found[name] = {path: folder / expanded(path) for path in named.strings(name)}
        for path in found[name].values():
            if not os.path.exists(path):
                problem = f"{shortened(str(path), 300)}: no such file or directory"
                raise named.error(problem, name)
    return found


def _below(folder: Path, spec: str) -> str:
    """Return a tokenizer's spec, with a relative path resolved against the recipe's folder."""
    kind, colon, rest = spec.partition(":")
    prefix = kind + colon if kind in ("hf", "sp") else ""
    path = folder / expanded(rest if prefix else spec)
    return f"{prefix}{path}" if spec and os.path.exists(path) else spec


def _read_registration(settings: Settings, work: Path, folder: Path, evaluated: bool) -> _Register:
    settings.check_keys("registry", "name", "metadata")
    written = settings.get("registry", str)
    metadata = settings.get("metadata", dict, default={})
    try:
        json.dumps(metadata)
    except TypeError as error:  # TOML has dates
        raise settings.error(str(error), "metadata") from None
    registry = folder / expanded(written)
    with settings.placing_errors("registry"):
        Registry(registry)
    return _Register(work, written, registry, settings.get("name", str), metadata, evaluated)


# -- The pipeline -------------------------------------------------------------


@dataclass(frozen=True)
class StepReport:
    """The outcome of a step."""

    step: str  # its name
    status: str  # "ran" or "up to date"; in a plan, "runs", "may run" or "up to date"
    why: str  # why the step runs
    seconds: float = 0.0  # how long it took


@dataclass(frozen=True)
class PipelineReport:
    """The results of a run."""

    steps: Sequence[StepReport]  # one report for each step, in their order
    work: str  # the working directory, with the output of each step
    entry: str | None = None  # the tokenizer's reference in the registry, if it was registered

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data for json.dumps."""
        return dataclasses.asdict(self)

    def table(self) -> Table:
        """Return a row for each step."""
        timed = any(each.seconds for each in self.steps)
        rows = [
            [each.step, each.status, *([each.seconds] if timed else []), each.why]
            for each in self.steps
        ]
        return Table(["step", "status", *(["seconds"] if timed else []), "why"], rows)

    def __str__(self) -> str:
        return str(self.table())


class Pipeline:
    """The way from a recipe to a registered tokenizer.

    Args:
        path: a .toml or .json file; paths in it are relative to its directory.
        work_dir: the directory for all output; by default a directory beside the file,
            with its name and ".work" at the end.

    Raises:
        FileFormatError: the file has an unknown or wrong setting; the error says where.
        FileNotFoundError: there is no such file.
        NotADirectoryError: the working directory is a file.
    """

    def __init__(
        self, path: str | os.PathLike[str], work_dir: str | os.PathLike[str] | None = None
    ) -> None:
        path = Path(path)
        settings, folder = Settings.open(path), path.parent
        settings.check_keys(*_TABLES)
        self.work = path.with_suffix(".work") if work_dir is None else Path(work_dir)
        check_path(self.work)
        if self.work.exists() and not self.work.is_dir():
            raise NotADirectoryError(f"{self.work}: is a file; expected a directory to work in")
        tables = {name: settings.table(name) for name in _TABLES}
        corpus, train, evaluate, register = tables.values()
        if corpus is None or train is None:
            raise settings.error("is missing", "corpus" if corpus is None else "train")
        recipe, training = _read_recipe(corpus, folder), _read_training(train)
        format_ = corpus.get("format", str, default="jsonl")
        formats = [f"jsonl{end}" for end in ("", *core.COMPRESSED)]
        if format_ not in formats:
            raise corpus.error(f"expected {', '.join(formats)}, got {format_!r}", "format")
        called = path.stem if register is None else register.get("name", str)
        steps: list[_Step] = [
            _Corpus(self.work, recipe, format_),
            _Count(self.work, training),
            _Train(self.work, training),
        ]
        if evaluate is not None:
            steps.append(_read_evaluation(evaluate, self.work, folder, called, recipe))
        if register is not None:
            steps.append(_read_registration(register, self.work, folder, evaluate is not None))
        self._steps = {step.name: step for step in steps}

    @property
    def steps(self) -> list[str]:
        """The names of the steps, in their order."""
        return list(self._steps)

    def plan(self, *, force: Sequence[str] = (), until: str | None = None) -> PipelineReport:
        """Return the steps that `run` would run, and why; change nothing.

        A step that depends on one that runs "may run": it runs if the result before it changes.
        """
        results: dict[str, Mapping[str, Any]] = {}
        reports = []
        for step in self._chosen(force, until):
            stamp, why, _ = self._look(step, results, force)
            inputs = step.inputs(results)
            status = "runs" if why else "may run" if UNKNOWN in inputs.values() else "up to date"
            if status == "up to date" and stamp is not None:
                results[step.name] = stamp.result
            reports.append(StepReport(step.name, status, why))
        return PipelineReport(reports, str(self.work))

    def run(
        self,
        *,
        force: Sequence[str] = (),
        until: str | None = None,
        notify: Callable[[str], Any] | None = None,
        verbose: bool = False,
    ) -> PipelineReport:
        """Run the steps whose inputs have changed since they ran.

        `force` names steps to run in any case; `until` is the last step to run.  When a step
        begins, `notify` gets its name and why it runs; `verbose` shows progress on stderr.

        Raises:
            ValueError: there is no such step; a step to force comes after `until`; or a
                step's input is wrong.
            BlockingIOError: another run is using the same working directory.
        """
        chosen = self._chosen(force, until)
        outputs.check_directory(self.work)
        self.work.mkdir(parents=True, exist_ok=True)
        with outputs.locked(self.work / ".lock"):
            self._sweep()
            planned = self._prepare(chosen, force, until)
            results: dict[str, Mapping[str, Any]] = {}
            reports = []
            for step in chosen:
                started = time.perf_counter()
                stamp, why = planned.get(step.name), ""
                if stamp is None:
                    stamp, why, files = self._look(step, results, force)
                    if why or stamp is None:
                        if notify is not None:
                            notify(f"{step.name}: {why}")
                        stamp = self._run_step(step, files, results, verbose)
                results[step.name] = stamp.result
                why += f"; {note}" if why and (note := stamp.result.get("note")) else ""
                seconds = time.perf_counter() - started
                reports.append(StepReport(step.name, "ran" if why else "up to date", why, seconds))
        entry = results.get("register", {}).get("entry")
        return PipelineReport(reports, str(self.work), entry)

    def _chosen(self, force: Sequence[str], until: str | None) -> list[_Step]:
        for name in (*force, *([] if until is None else [until])):
            if name not in self._steps:
                raise ValueError(f"there is no step {name!r}: expected {', '.join(self.steps)}")
        last = len(self._steps) if until is None else self.steps.index(until) + 1
        for name in force:
            if name not in self.steps[:last]:
                raise ValueError(
                    f"{name!r} cannot be forced: the run ends before it, with {until!r}"
                )
        return list(self._steps.values())[:last]

    def _prepare(
        self, chosen: list[_Step], force: Sequence[str], until: str | None
    ) -> dict[str, Stamp]:
        """Let steps that may run raise errors first; return the others' stamps."""
        kept = {}
        for step, report in zip(chosen, self.plan(force=force, until=until).steps):
            stamp = Stamp.load(self._stamp_path(step)) if report.status == "up to date" else None
            if stamp is None:
                step.prepare()
            else:  # not checked again: hashing a large corpus takes a while
                kept[step.name] = stamp
        return kept

    def _stamp_path(self, step: _Step) -> Path:
        return self.work / "stamps" / f"{step.name}.json"

    def _look(
        self, step: _Step, results: _Results, force: Sequence[str]
    ) -> tuple[Stamp | None, str, dict[str, str | None]]:
        """Return a step's stamp, why the step has to run, and the hashes of its files."""
        stamp = Stamp.load(self._stamp_path(step))
        inputs = _with_version(step.inputs(results))
        files = hashes(step.files())
        if stamp is None:
            return None, "it has not run yet", files
        found = list(changes(stamp, inputs, files, self.work))
        found += [missing] if (missing := step.missing(stamp.result)) else []
        if len(found) > 3:
            found[2:] = [f"and {len(found) - 2} more"]
        why = ", ".join(found)
        return stamp, why or ("it is forced to run" if step.name in force else ""), files

    def _run_step(
        self, step: _Step, files: Mapping[str, str | None], results: _Results, verbose: bool
    ) -> Stamp:
        written, result = step.run(results, verbose)
        outputs = {path.relative_to(self.work).as_posix(): file_sha256(path) for path in written}
        stamp = Stamp(_with_version(step.inputs(results)), files, outputs, result)
        self._stamp_path(step).parent.mkdir(exist_ok=True)
        stamp.save(self._stamp_path(step))
        return stamp

    def _sweep(self) -> None:
        """Remove the unfinished files of a killed run."""
        for path in [*self.work.glob(".*.tmp"), *self.work.glob("*/.*.tmp")]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _with_version(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {**inputs, "library": bpe_tokenizer.__version__}
