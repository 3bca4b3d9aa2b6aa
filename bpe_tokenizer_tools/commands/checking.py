"""The commands `check`, `convert` and `doctor`."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer
from bpe_tokenizer_tools import core, formats
from bpe_tokenizer_tools.formats import vocab_merges
from bpe_tokenizer_tools.formats.loaders import fill_gaps, limits
from bpe_tokenizer_tools.support import outputs, transactions
from bpe_tokenizer_tools.support.files import naming
from bpe_tokenizer_tools.support.text import say

_FORMATS = ("tokenizer.json", "tiktoken", "gpt2", "gguf", "directory")
_BY_SUFFIX = {".gguf": "gguf", ".tiktoken": "tiktoken", ".json": "tokenizer.json"}


def expect_file(path: str, what: str) -> Path:
    """Return a path if something can be read there; else raise, and say what was expected."""
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path}: is a directory; expected {what}")
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path or repr(path)}: no such file; expected {what}")
    return Path(path)


# -- check --------------------------------------------------------------------


def _check_options(add: Callable[..., Any]) -> None:
    add("path", metavar="PATH", help=core.TOKENIZER)
    loading_options(add)


def loading_options(add: Callable[..., Any]) -> None:
    """Add the options that `load` reads."""
    patterns = ", ".join(SPLIT_PATTERNS)
    text = f"for files that have none: {patterns}, or a regular expression"
    add("--split-pattern", metavar="NAME", help=text)
    each = "for files that have none: special tokens, each as TOKEN=ID or TOKEN"
    add("--special-tokens", nargs="+", action="extend", default=[], metavar="TOKEN", help=each)


def load(path: str, options: argparse.Namespace) -> BPETokenizer:
    """Load a tokenizer in any format."""
    if not path:
        raise core.UsageError("expected the path of a tokenizer, got ''")
    tokens = [core.parse_special_token(text) for text in options.special_tokens]
    return BPETokenizer.from_file(path, options.split_pattern, tokens or None)


def _source(path: str, tokenizer: BPETokenizer) -> Path:
    """Return the file that a tokenizer was read from, given its path or name."""
    return Path(path) if os.path.exists(path) else core.path(tokenizer)


def _cmd_check(options: argparse.Namespace) -> int:
    from bpe_tokenizer_tools.checking.check import check

    tokenizer = load(options.path, options)
    report = check(tokenizer, _source(options.path, tokenizer))
    say(json.dumps(report.to_json()) if options.json else report)
    return 0 if report.ok else 1


# -- convert ------------------------------------------------------------------


def _convert_options(add: Callable[..., Any]) -> None:
    add("source", metavar="IN", help=core.TOKENIZER)
    add("target", metavar="OUT", help="the file to write; for gpt2 and directory, a directory")
    text = "format to write; by default from the name of OUT"
    add("--format", choices=_FORMATS, metavar="FORMAT", help=f"{text}: {', '.join(_FORMATS)}")
    text = "leave out the normalizer, which only tokenizer.json can hold; normalize text yourself"
    add("--without-normalizer", action="store_true", help=text)
    text = "give each id below the largest that has no token a special one, <|reserved_ID|>"
    add("--fill-gaps", action="store_true", help=f"{text}: some loaders need that")
    add("--force", action="store_true", help="overwrite OUT, or the tokenizer that it has already")
    loading_options(add)


def _cmd_convert(options: argparse.Namespace) -> None:
    if not options.target:
        raise core.UsageError("expected the path to write to, got ''")
    target = Path(options.target)
    format_ = options.format or _BY_SUFFIX.get(target.suffix.lower())
    if format_ is None:
        endings = ", ".join(_BY_SUFFIX)
        raise core.UsageError(
            f"OUT {str(target)!r} does not end in one of {endings}; pass --format, one of "
            f"{', '.join(_FORMATS)}"
        )
    tokenizer = load(options.source, options)
    source = _source(options.source, tokenizer)
    tokenizer = fill_gaps(tokenizer) if options.fill_gaps else tokenizer
    _check_target(target, format_, source)
    written, lost = convert(
        tokenizer, target, format_, options.without_normalizer, force=options.force
    )
    notes = _notes(tokenizer, format_)
    if options.json:
        files = list(map(str, written))
        facts = {"format": format_, "files": files, "left_out": lost, "notes": notes}
        print(json.dumps({**facts, "vocab_size": tokenizer.vocab_size}))
    elif not options.quiet:
        say(f"Wrote {tokenizer.vocab_size:,} tokens to {', '.join(map(str, written))}")
        if lost:
            say(f"{format_} has no place for: {', '.join(lost)}", sys.stderr)
        for note in notes:
            say(note, sys.stderr)


def _check_target(target: Path, format: str, source: Path) -> None:
    """Refuse to overwrite IN, or one of two files that only together are a tokenizer."""
    from bpe_tokenizer_tools.formats.tiktoken import is_sidecar

    sidecar = target.parent / f"{target.stem}.json"
    if format == "tiktoken" and sidecar.exists() and sidecar.samefile(source):
        raise ValueError(
            f"{source} would be replaced by the .json file that goes with {target.name}; give "
            "OUT another name"
        )
    ranks = target.parent / f"{target.stem}.tiktoken"
    if format == "tokenizer.json" and ranks.is_file() and is_sidecar(target):
        raise ValueError(
            f"{target} belongs to {ranks.name}, which can't be read without it; give OUT "
            "another name"
        )


def _notes(tokenizer: BPETokenizer, format: str) -> list[str]:
    """Describe what the libraries that read a format do differently, whatever the file says."""
    if format in ("tokenizer.json", "directory"):
        return list(map(str, limits(tokenizer)))
    if format != "gguf":
        return []
    from bpe_tokenizer_tools.formats.gguf import done_otherwise

    return [f"llama.cpp {what}" for what in done_otherwise(tokenizer)]


def convert(
    tokenizer: BPETokenizer,
    target: Path,
    format: str,
    without_normalizer: bool = False,
    force: bool = False,
) -> tuple[list[Path], list[str]]:
    """Write a tokenizer in a format, if that gives the same ids.

    It is first written elsewhere, loaded again and compared.

    `format` is as for `BPETokenizer.export`, or "directory" as for `save`; `force` overwrites the
    target, or the tokenizer in it.

    Returns:
        The files written; and what was left out and doesn't affect ids, such as the chat template.
    """
    is_folder = format in ("gpt2", "directory")
    if target.exists() and target.is_dir() != is_folder:
        kind = "a directory" if is_folder else "a file"
        raise ValueError(f"{target}: expected {kind}: {format!r} is written to {kind}")
    if is_folder:
        outputs.check_directory(target)
        core.check_writable(target, force)
    else:
        outputs.check_file(target, with_directories=True)
        if target.exists() and not force:
            raise FileExistsError(f"{target}: already exists; --force overwrites it")
    given = tokenizer
    tokenizer = formats.drop_normalizer(tokenizer) if without_normalizer else tokenizer
    with tempfile.TemporaryDirectory(prefix="bpe-tokenizer-") as scratch:
        draft = Path(scratch) / (target.absolute().resolve().name or "tokenizer")
        try:
            _write(tokenizer, draft, format)
            lost = _check_same(tokenizer, draft, format)
        except ValueError as error:
            raise ValueError(str(error).replace(str(draft), str(target))) from None
        names = {file.name for file in (draft if is_folder else Path(scratch)).iterdir()}
    with naming(target):
        names |= _write(tokenizer, target, format, force)
    lost = [*(["the normalizer"] if tokenizer is not given else []), *lost]
    return [(target if is_folder else target.parent) / name for name in sorted(names)], lost


def _write(tokenizer: BPETokenizer, path: Path, format: str, force: bool = False) -> set[str]:
    """Write a tokenizer; return the names of files that the format doesn't always have."""
    if format == "directory":
        tokenizer.save(path, verbose=False)
        return set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `_notes` has the same
        if not (force and format == "gpt2" and (path / "tokenizer.json").exists()):
            tokenizer.export(path, format)
            return set()
    # from_file would find the old tokenizer.json, with the new tokenizer_config.json
    head = {path / "tokenizer.json": core.to_json(core.tokenizer_json_of(tokenizer))}
    transactions.save_files({**head, **vocab_merges.contents(tokenizer, path)})
    return {"tokenizer.json"}


def _check_same(tokenizer: BPETokenizer, path: Path, format: str) -> list[str]:
    """Load what was written and compare; return what was lost and doesn't affect ids."""
    from bpe_tokenizer_tools.checking.check import first_difference
    from bpe_tokenizer_tools.checking.conformance import conformance_texts

    problem = f"{format!r} cannot hold this tokenizer"
    try:
        again = BPETokenizer.from_file(path)
    except ValueError as error:
        raise ValueError(f"{problem}: written and loaded again, {error}") from None
    difference = first_difference(tokenizer, again, conformance_texts(tokenizer))
    if difference is not None:
        raise ValueError(f"{problem}, ids would change: {difference}")
    if again.get_vocab() != tokenizer.get_vocab():
        raise ValueError(f"{problem}: written and loaded again, it has another vocabulary")
    for token, found in itertools.zip_longest(_as_found(tokenizer), _as_found(again)):
        if token != found:
            raise ValueError(f"{problem}: {token} would become {found}")
    lost = []
    for kept in (core.roles, core.settings, core.further_keys):
        before, after = kept(tokenizer), kept(again)
        lost += [name for name, value in before.items() if after.get(name) != value]
    lost += ["chat_template"] if tokenizer.chat_templates != again.chat_templates else []
    trimmed = [
        (d.trim_offsets, d.keep_prefix_space) for d in (tokenizer.definition, again.definition)
    ]
    lost += ["trim_offsets"] if trimmed[0] != trimmed[1] else []
    differs = core.around(tokenizer) != core.around(again)
    return lost + (["the tokens that add_special_tokens adds around a text"] if differs else [])


def _as_found(tokenizer: BPETokenizer) -> Iterator[AddedToken]:
    """Yield the added tokens, without flags that change nothing."""
    changes = bool(formats.normalizer_name(tokenizer.definition))
    for token in tokenizer.added_tokens:
        yield dataclasses.replace(token, normalized=token.normalized and changes)


def _doctor_options(add: Callable[..., Any]) -> None:
    model = "a directory with safetensors, model.safetensors.index.json, or a .safetensors file"
    add("model", metavar="MODEL", help=model)
    own = "the model's tokenizer, in any format; default: the one beside the model"
    add("-t", "--tokenizer", metavar="PATH", help=own)
    usual = "default: the one with a usual name"
    add("--input-tensor", metavar="NAME", help=f"the table of input embeddings; {usual}")
    add("--output-tensor", metavar="NAME", help=f"the table of output embeddings; {usual}")
    score = "list tokens from this score on: 0 is a typical token, 1 a row known to be untrained"
    add("--threshold", type=float, default=0.5, metavar="X", help=score)
    add("--limit", type=int, default=20, metavar="N", help="tokens to show in each list")
    add("--csv", metavar="FILE", help="write the values of every token to this file")
    add("--plot", metavar="FILE", help="draw norm against cosine, as .png or .svg")


def _cmd_doctor(options: argparse.Namespace) -> None:
    if options.limit < 0:
        raise core.UsageError(f"--limit must be at least 0, got {options.limit}")
    outputs.check_table_and_plot(options.csv, options.plot)
    from bpe_tokenizer_tools.checking.model_doctor import diagnose

    report = diagnose(
        options.model,
        _tokenizer_of(options),
        input_tensor=options.input_tensor,
        output_tensor=options.output_tensor,
        threshold=options.threshold,
    )
    if options.csv is not None:
        outputs.write({Path(options.csv): report.to_csv()})
    if options.plot is not None:
        report.plot(options.plot)
    written = [path for path in (options.csv, options.plot) if path]
    if written and not options.quiet:
        say(f"Wrote {' and '.join(written)}", sys.stderr)
    say(json.dumps(report.to_json()) if options.json else report.show(options.limit))


def _tokenizer_of(options: argparse.Namespace) -> BPETokenizer:
    if options.tokenizer is not None:
        return BPETokenizer.from_file(options.tokenizer)
    model = Path(options.model)
    if not model.exists():
        raise FileNotFoundError(f"{model}: no such file or directory")
    try:
        return BPETokenizer.from_file(model if model.is_dir() else model.parent)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; name the model's with --tokenizer") from None


COMMANDS: dict[str, core.Command] = {
    "check": (
        "Compare a tokenizer's ids in every installed library, and look for defects; in a "
        "model's directory, compare it with the model.",
        _cmd_check,
        _check_options,
    ),
    "convert": ("Write a tokenizer in another format.", _cmd_convert, _convert_options),
    "doctor": (
        "Find tokens that a model has never learned, from its embeddings.",
        _cmd_doctor,
        _doctor_options,
    ),
}
