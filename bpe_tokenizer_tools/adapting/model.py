"""Moving a model to another vocabulary; see `adapt_model`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bpe_tokenizer import BPETokenizer, FileFormatError
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.adapting import config_files, gguf_files, model_folder, tables, weights
from bpe_tokenizer_tools.adapting.tables import Table
from bpe_tokenizer_tools.adapting.vocabulary import Matching, match
from bpe_tokenizer_tools.adapting.weights import Fill, Init, Plan
from bpe_tokenizer_tools.backends import safetensors
from bpe_tokenizer_tools.backends.safetensors import INDEX, Tensor
from bpe_tokenizer_tools.formats import gguf, read_head
from bpe_tokenizer_tools.scale import job_folder
from bpe_tokenizer_tools.scale.inputs import Shard
from bpe_tokenizer_tools.support import outputs, progress
from bpe_tokenizer_tools.support.files import file_sha256, naming
from bpe_tokenizer_tools.support.text import Printed, counted

# -- The report ---------------------------------------------------------------


@dataclass(frozen=True)
class AdaptedTable:
    """A table before and after."""

    name: str  # of the tensor
    role: str  # "input", "output", or "tied" for one that is both
    file: str  # that it is in
    dtype: str  # of its values
    before: tuple[int, ...]  # its shape
    after: tuple[int, ...]


@dataclass(frozen=True)
class Adaptation(Printed):
    """What `adapt_model` did; it prints as sentences."""

    path: str  # the new model
    kept: int  # tokens with the rows that they had
    new: int  # tokens with new rows
    dropped: int  # old tokens that are gone
    padding: int  # rows without a token
    tables: Sequence[AdaptedTable]
    ids: Mapping[str, tuple[Any, Any]]  # "config.json: eos_token_id" -> before and after
    # files of weights that an earlier run finished; for a GGUF file, how many of its tensors
    done_before: Sequence[str] = ()
    left_out: Sequence[str] = ()  # weights in other formats, and links, which are not copied
    notes: Sequence[str] = field(default=())  # other things to know

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"{self.path}: {counted(self.kept, 'token')} kept, {self.new:,} new, "
            f"{self.dropped:,} dropped; {counted(self.padding, 'row')} of padding"
        )
        for table in self.tables:
            before, after = (
                " x ".join(f"{n:,}" for n in shape) for shape in (table.before, table.after)
            )
            yield f"{table.name} ({table.role}, {table.dtype}): {before} -> {after}"
        yield from config_files.shown(self.ids)
        if self.done_before:
            yield f"done by an earlier run: {', '.join(self.done_before)}"
        if self.left_out:
            yield f"not copied (links, or the old vocabulary's weights): {', '.join(self.left_out)}"
        for note in self.notes:
            yield f"Note: {note}."

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return dataclasses.asdict(self)


# -- Adapting -----------------------------------------------------------------


def adapt_model(
    model_dir: str | os.PathLike[str],
    old: BPETokenizer | None,
    new: BPETokenizer,
    out_dir: str | os.PathLike[str],
    init: Init = "subword_mean",
    pad_to_multiple_of: int | None = None,
    force: bool = False,
    verbose: bool | None = None,
    *,
    tensors: Sequence[str] | None = None,
    ids: Mapping[str, Any] | None = None,
) -> Adaptation:
    """Rewrite a model for another tokenizer; nothing is trained, and torch is not needed.

    Tokens that both tokenizers have keep their rows of the embeddings, bit for bit.  Ordinary
    tokens are the same if their bytes are, added tokens if their content is.  All other weights are
    copied.  The output includes the files of `new`, and config.json and generation_config.json get
    its size and ids.

    Args:
        model_dir: a directory with config.json and safetensors; or a GGUF file, whose tables are
            not quantized.
        old: the tokenizer that the model was made with; None for the one in `model_dir`.
        new: the tokenizer to use from now on.
        out_dir: the directory to make.  It appears once it is complete.  A run that was killed is
            continued by the next one with the same arguments.  For a GGUF file, another file.
        init: the row of a new token: "subword_mean", the mean of the rows of the tokens that
            `old` cuts it into; "mean", of all tokens; "zeros"; or a function of the token's
            bytes, those tokens' ids, and their rows as a float32 array, which returns a row.
        pad_to_multiple_of: tables get this many rows, or a multiple; rows without a token get
            the mean of all tokens', which never beats every token.
        force: replace `out_dir`.
        verbose: show a progress bar on stderr, if that is a terminal.
        tensors: the names of all tensors with a row for each token, if the usual ones do not tell.
        ids: field -> value, for fields of config.json and generation_config.json whose token is
            gone, such as ``{"pad_token_id": None}``.

    Raises:
        FileNotFoundError: there is no such model.
        FileFormatError: a file is damaged, is quantized, or names the id of a token that is gone.
        FileExistsError: `out_dir` is there, and `force` is not set.
        ValueError: `old` is not the model's tokenizer, or it is not certain which tensors to write.
        TypeError: an argument is of another type.
    """
    _check_types(old, new, tensors, ids)
    weights.fill_by(init, Matching({}, {}, {}, (), 0))  # which refuses an unknown one
    model, out = Path(model_dir), Path(out_dir)
    if model.is_file() and gguf.matches(model, read_head(model)):
        gguf_files.check_paths(model, out, force)
        return _adapt_gguf(
            model, old, new, out, init, pad_to_multiple_of, force, verbose, tensors, ids
        )
    job = Job(model, old, new, out, pad_to_multiple_of, force, tensors, ids)
    return job.run(weights.fill_by(init, job.matching), init, verbose)


def _check_types(old: object, new: object, tensors: object, ids: object) -> None:
    for name, given in (("old", old), ("new", new)):
        if not (isinstance(given, BPETokenizer) or (given is None and name == "old")):
            raise TypeError(f"{name} must be a BPETokenizer, got {type(given).__name__}")
    if isinstance(tensors, (str, bytes)) or not isinstance(tensors, (Sequence, type(None))):
        raise TypeError(f"tensors must be a list of names, got {core.shorten(tensors)}")
    if not isinstance(ids, (Mapping, type(None))):
        raise TypeError(f"ids must be a mapping from fields to ids, got {core.shorten(ids)}")


def _adapt_gguf(
    model: Path,
    old: BPETokenizer | None,
    new: BPETokenizer,
    out: Path,
    init: Init,
    pad_to_multiple_of: int | None,
    force: bool,
    verbose: bool | None,
    tensors: Sequence[str] | None,
    ids: Mapping[str, Any] | None,
) -> Adaptation:
    """Do as `adapt_model` does, for a GGUF file."""
    file = gguf_files.read(model)
    old = BPETokenizer.from_file(file.path) if old is None else old
    found = {table.tensor.name: table for table in gguf_files.find_tables(file, old, tensors)}
    matching = match(old, new)
    rows = _padded(matching.size, pad_to_multiple_of)
    keys, changed = gguf_files.new_keys(file, new, matching, rows, ids or {})
    plan = Plan(matching, rows, weights.fill_by(init, matching))
    facts = _job_facts(old, new, init, rows, found)

    def shown(total: int) -> contextlib.AbstractContextManager[Callable[[int], Any]]:
        if not core.is_watched(verbose):
            return contextlib.nullcontext(_silent)
        return progress.bar("adapt", "B", total)

    before = gguf_files.write(file, out, keys, found, plan, facts, force, shown)
    tables_made = [_adapted(table, rows) for table in found.values()]
    otherwise = [f"llama.cpp {what}" for what in gguf.done_otherwise(new)]
    notes = [*_notes(old, new, matching), *otherwise]
    report = _report(out, matching, rows, tables_made, changed, notes)
    earlier = [f"{before:,} of {counted(len(file.tensors), 'tensor')}"] if before else []
    return dataclasses.replace(report, done_before=earlier)


def _job_facts(
    old: BPETokenizer, new: BPETokenizer, init: Any, rows: int, found: Iterable[str]
) -> dict[str, Any]:
    """Return what the new weights depend on; a function, which has no hash, gives a new one."""
    return {
        "old": old.fingerprint,
        "new": new.fingerprint,
        "init": {"function": os.urandom(8).hex()} if callable(init) else init,
        "rows": rows,
        "tensors": sorted(found),
    }


def _padded(size: int, multiple: int | None) -> int:
    """Return how many rows a table gets."""
    core.check_size("pad_to_multiple_of", multiple, 1)
    step = multiple or 1
    return -(-size // step) * step


def _report(
    out: Path,
    matching: Matching,
    rows: int,
    made: Sequence[AdaptedTable],
    ids: Mapping[str, tuple[Any, Any]],
    notes: Iterable[str],
) -> Adaptation:
    kept, new = len(matching.kept), len(matching.new)
    padding = rows - kept - new
    given = matching.dropped, padding, made, ids
    return Adaptation(os.fspath(out), kept, new, *given, notes=list(notes))


def _notes(old: BPETokenizer, new: BPETokenizer, matching: Matching) -> Iterator[str]:
    if old.chat_templates and not new.chat_templates:
        yield "the new tokenizer has no chat template, and the old one had one"
    unknown = [token.raw for token in matching.new.values() if not token.pieces]
    if unknown:
        yield (
            f"the old tokenizer drops all of {counted(len(unknown), 'new token')}, such as "
            f"{core.shorten(unknown[0])}; as subword means they are the mean of all tokens"
        )


class Job:
    """A model, read and compared; nothing is written yet."""

    def __init__(
        self,
        model: Path,
        old: BPETokenizer | None,
        new: BPETokenizer,
        out: Path,
        pad_to_multiple_of: int | None,
        force: bool,
        tensors: Sequence[str] | None,
        ids: Mapping[str, Any] | None,
    ) -> None:
        self.model, self.out, self.new, self._force = folder_of(model), out, new, force
        model_folder.check_output(self.model, out, force)
        config = config_files.read(self.model)
        self.tensors = safetensors.tensors(self.model)
        self.files = _by_file(self.tensors)
        for path, own in self.files.items():
            weights.check_header(path, own)
        self.index = _index(self.model, self.tensors)
        self.old = BPETokenizer.from_file(self.model) if old is None else old
        token_ids = sorted(core.tokens(self.old))
        self.tables = {
            table.tensor.name: table
            for table in tables.find_tables(self.tensors, config, token_ids, tensors, self.model)
        }
        self.matching = match(self.old, new)
        self.rows = _padded(self.matching.size, pad_to_multiple_of)
        before = next(iter(self.tables.values())).tensor.shape[0]
        self.config = config_files.rewrite(
            self.model, self.old, new, self.matching, (before, self.rows), ids or {}
        )

    def run(self, fill: Fill, init: Any, verbose: bool | None) -> Adaptation:
        """Write the new model, or the rest of it."""
        facts = _job_facts(self.old, self.new, init, self.rows, self.tables)
        facts["format"] = model_folder.FORMAT
        plan = Plan(self.matching, self.rows, fill)
        with model_folder.working(self.out, facts) as folder:
            # Another run may have made it in the meantime.
            model_folder.check_output(self.model, self.out, self._force)
            made = folder / "model"
            earlier = self._write_weights(folder, plan, facts, verbose)
            _remove_others(made, {path.name for path in self.files})
            with naming(self.out):
                self.new.save(made, verbose=False)
                core.write_files({made / name: text for name, text in self._texts().items()})
            left_out = model_folder.copy_others(self.model, made, self.out)
            safetensors.tensors(made)  # which looks at all headers
            model_folder.place(folder, self.out)
        made_tables = [_adapted(table, self.rows) for table in self.tables.values()]
        notes = _notes(self.old, self.new, self.matching)
        report = _report(self.out, self.matching, self.rows, made_tables, self.config.ids, notes)
        return dataclasses.replace(report, done_before=earlier, left_out=left_out)

    def _write_weights(
        self, folder: Path, plan: Plan, facts: Mapping[str, Any], verbose: bool | None
    ) -> list[str]:
        """Write the unfinished files; return the names of those that were finished."""
        shards = {
            path: Shard(path.resolve().as_posix(), path.stat().st_size) for path in self.files
        }
        done = [
            path
            for path, shard in shards.items()
            if job_folder.finished(folder, shard, facts, "raise") is not None
        ]
        left = [path for path in self.files if path not in done]
        total = sum(self._size(path) for path in left)
        shown = (
            progress.bar("adapt", "B", total)
            if core.is_watched(verbose)
            else contextlib.nullcontext(_silent)
        )
        with shown as advance:
            for path in left:
                self._write_file(folder, shards[path], path, plan, facts, advance)
        return [path.name for path in done]

    def _write_file(
        self,
        folder: Path,
        shard: Shard,
        path: Path,
        plan: Plan,
        facts: Mapping[str, Any],
        advance: Callable[[int], Any],
    ) -> None:
        final = folder / path.name
        before = shard.state()
        with naming(self.out / path.name, drafts_only=True), outputs.draft_of(final) as draft:
            written = weights.rewrite(draft, self.files[path], self.tables, plan, advance)
            marker = {
                **facts,
                "skipped": 0,
                "input_size": shard.size,
                "input_sha256": file_sha256(path),
                "files": {f"model/{path.name}": written},
            }

            def check() -> None:
                if shard.state() != before:
                    raise FileFormatError(
                        path, "", "changed while it was being read; run the command again"
                    )

            job_folder.commit(
                folder, shard.name, {folder / "model" / path.name: draft}, marker, check
            )

    def _size(self, path: Path) -> int:
        tensors = self.files[path]
        return sum(weights.new_size(tensor, self.tables, self.rows) for tensor in tensors)

    def _texts(self) -> dict[str, str]:
        texts = dict(self.config.contents)
        if self.index is not None:
            metadata = dict(self.index.get("metadata") or {})
            if "total_size" in metadata:
                metadata["total_size"] = sum(map(self._size, self.files))
            if type(metadata.get("total_parameters")) is int:
                metadata["total_parameters"] += sum(
                    (self.rows - table.tensor.shape[0]) * table.columns
                    for table in self.tables.values()
                )
            index = {**self.index, "metadata": metadata}
            texts[INDEX] = json.dumps(index, indent=2, ensure_ascii=False) + "\n"
        return texts


def _silent(amount: int) -> None:
    """Show no progress."""


def _adapted(table: Table, rows: int) -> AdaptedTable:
    tensor = table.tensor
    after = (rows, *tensor.shape[1:])
    return AdaptedTable(
        tensor.name, table.role, tensor.path.name, tensor.dtype, tensor.shape, after
    )


def folder_of(model: Path) -> Path:
    """Return the directory of a model, given that or a file in it."""
    if not model.exists():
        raise FileNotFoundError(f"{model}: no such file or directory")
    if model.is_file() and model.suffix != ".safetensors" and model.name != INDEX:
        raise ValueError(
            f"{model}: expected the directory of a model in safetensors, with config.json; of GGUF "
            "files, only adapt_model takes one"
        )
    return model if model.is_dir() else model.parent


def _by_file(found: Mapping[str, Tensor]) -> dict[Path, list[Tensor]]:
    files: dict[Path, list[Tensor]] = {}
    for tensor in found.values():
        files.setdefault(tensor.path, []).append(tensor)
    return files


def _index(model: Path, found: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """Return the index of a model in several files, after checking it."""
    path = model / INDEX
    if not path.exists():
        return None
    data: dict[str, Any] = core.JsonReader.open(path).data
    listed = data["weight_map"]
    for name in sorted(listed.keys() | found.keys()):
        actual = found[name].path.name if name in found else None
        if listed.get(name) != actual:
            problem = f"says that {core.shorten(name)} is in {core.shorten(listed.get(name))}, and "
            problem += f"it is in {core.shorten(actual)}" if actual else "no file has it"
            raise FileFormatError(path, "weight_map", problem)
    if not isinstance(data.get("metadata") or {}, dict):
        raise FileFormatError(path, "metadata", "expected an object")
    return data


def _remove_others(made: Path, kept: set[str]) -> None:
    """Remove an earlier run's output of files that may have changed."""
    for path in made.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in kept:
            path.unlink()
