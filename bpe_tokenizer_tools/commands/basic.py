"""The commands `info`, `train` and `chat`, with what the module alone lacks."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bpe_tokenizer
from bpe_tokenizer import GPT2_SPLIT_PATTERN, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.command_line import check_least, superword_options, superwords_of
from bpe_tokenizer_tools.formats import loaders
from bpe_tokenizer_tools.formats.vocab_merges import check_folder_for_words
from bpe_tokenizer_tools.patterns.digits import digits_from_the_right
from bpe_tokenizer_tools.support import outputs
from bpe_tokenizer_tools.support.text import say, visible
from bpe_tokenizer_tools.training.sentencepiece_text import RULES as NORMALIZATION_RULES
from bpe_tokenizer_tools.training.ties import RULES

_INFO, _TRAIN, _CHAT = (core.COMMANDS[name] for name in ("info", "train", "chat"))


def _more(tokenizer: BPETokenizer) -> dict[str, Any]:
    known = sorted(core.tokens(tokenizer))
    first, last = known[:5], known[-5:]
    return {
        "has_chat_template": bool(tokenizer.chat_templates),
        "chat_templates": list(tokenizer.chat_templates),
        "truncation": core.settings(tokenizer).get("truncation"),
        "padding": core.settings(tokenizer).get("padding"),
        "fingerprint": tokenizer.fingerprint,
        "accelerated": bpe_tokenizer.ACCELERATED,
        "first_tokens": dict(zip(first, tokenizer.convert_ids_to_tokens(first))),
        "last_tokens": dict(zip(last, tokenizer.convert_ids_to_tokens(last))),
    }


def _versions(tokenizer: BPETokenizer) -> dict[str, Any]:
    """Describe a tokenizer further, with what its ids depend on in this library."""
    return {
        **_more(tokenizer),
        "character_classes": f"Unicode {bpe_tokenizer.UNICODE_VERSION}",
        "normal_forms": f"Unicode {bpe_tokenizer.NORMALIZATION_VERSION}",
    }


def _info_options(add: Callable[..., Any]) -> None:
    _INFO[2](add)
    versions = "also show the versions of Unicode that split patterns and normal forms follow"
    add("--verbose", action="store_true", help=versions)


def _cmd_info(options: argparse.Namespace) -> int | None:
    return _INFO[1](options, more=_versions if options.verbose else _more)


def languages_of(values: Sequence[str], option: str) -> dict[str, list[Path]]:
    """Parse LANGUAGE=FILE values of an option into the files of each language."""
    files: dict[str, list[Path]] = {}
    for given in values:
        language, equals, path = given.partition("=")
        if not (language and equals and path):
            raise core.UsageError(f"{option}: expected LANGUAGE=FILE, got {given!r}")
        if language in files:
            raise core.UsageError(f"{option} names {language!r} twice; pass a directory of files")
        files[language] = [Path(path)]
    return files


def _train_alike(options: argparse.Namespace, more: dict[str, Any]) -> None:
    """Train with a corpus for each language; report how each fares."""
    if options.corpus or options.counts:
        raise core.UsageError("--parity replaces --corpus and --counts; leave those out")
    languages = languages_of(options.parity, "--parity")
    normalizer = None if options.normalizer == "none" else options.normalizer or "NFC"
    tokenizer = BPETokenizer(options.pattern or GPT2_SPLIT_PATTERN, normalizer=normalizer)
    core.check_writable(Path(options.output), options.force)
    core.to_oniguruma(tokenizer.definition.split_pattern)  # can it be saved?
    names = ["vocab_size", "min_frequency", "num_workers", "text_field", "special_tokens_first"]
    tokenizer.train(
        special_tokens=[*map(core.parse_special_token, options.special_tokens)],
        verbose=not options.quiet,
        parity=languages,
        **{name: getattr(options, name) for name in names},
        **more,
    )
    tokenizer.save(options.output, verbose=False)
    report: Any = tokenizer.training_report
    if options.json:
        print(json.dumps(dataclasses.asdict(report)))
    elif not options.quiet:
        say(f"{report.table()}\nSaved to: {options.output}")


def _train_options(add: Callable[..., Any]) -> None:
    _TRAIN[2](add)
    around = "tokens to add around a text, if the tokenizer has them; 'default' is bos and eos "
    around += "with --add-special-tokens, and only bos in other libraries, which add it to prompts"
    add("--surround", choices=core.SURROUND, default="default", help=around)
    add("--max-token-length", type=int, metavar="N", help="maximum token length in bytes")
    equal = "which of equally frequent pairs to merge"
    add("--ties", choices=RULES, default=RULES[0], help=equal)
    words = "vocabulary size from which to learn tokens of several words; 'auto' chooses it"
    superword_options(add, words)
    alike = "balance languages: a corpus for each, as LANGUAGE=FILE, instead of --corpus"
    add("--parity", nargs="+", action="extend", default=[], metavar="LANGUAGE=FILE", help=alike)
    threes = "group digits by threes from the right, such as 1|234|567, with any --pattern"
    add("--digits", choices=("right",), help=threes)
    form = "what merges start from: bytes; characters with ▁ for a space; or words, whose "
    form += "characters end in </eow>"
    styles = ("byte-level", "sentencepiece", "words")
    add("--style", choices=styles, default="byte-level", help=form)
    fallback = "with sentencepiece: characters without a token become bytes, not <unk>"
    add("--byte-fallback", action=argparse.BooleanOptionalAction, help=fallback)
    coverage = "with sentencepiece: share of text whose characters get tokens (default: 0.9995)"
    add("--character-coverage", type=float, metavar="X", help=coverage)
    _sentencepiece_options(add)


def _sentencepiece_options(add: Callable[..., Any]) -> None:
    """Add the options that have the names of SentencePiece's own trainer."""
    flags = {
        "split-digits": "each digit is a token of its own",
        "split-by-unicode-script": "no token mixes scripts, or letters and punctuation",
        "split-by-number": "with scripts split: no token mixes letters and digits (default)",
        "add-dummy-prefix": "put ▁ before a text (default)",
        "remove-extra-whitespaces": "remove spaces around a text, and all but one of several",
    }
    for name, what in flags.items():
        how = argparse.BooleanOptionalAction
        add(f"--{name}", action=how, default=None, help=f"with sentencepiece: {what}")
    symbols = "with sentencepiece: texts that are always one token"
    add("--user-defined-symbols", nargs="+", action="extend", metavar="TEXT", help=symbols)
    longest = "with sentencepiece: most characters in a token"
    add("--max-sentencepiece-length", type=int, metavar="N", help=longest)
    rule = "with sentencepiece: how text is normalized, instead of --normalizer"
    add("--normalization-rule-name", choices=NORMALIZATION_RULES, help=rule)


def _check_train(options: argparse.Namespace) -> None:
    if (options.pattern or options.digits) and options.style != "byte-level":
        problem = f"--style {options.style} cuts text at spaces; leave out --pattern"
        raise core.UsageError(f"{problem} and --digits")
    if options.digits and options.counts:
        raise core.UsageError("--digits can't change how --counts were cut; pass --corpus")
    if options.normalization_rule_name and options.normalizer:
        problem = "--normalization-rule-name and --normalizer both say how to normalize"
        raise core.UsageError(f"{problem}; leave one of them out")


def _cmd_train(options: argparse.Namespace) -> int | None:
    _check_train(options)
    if options.digits:
        options.pattern = digits_from_the_right(options.pattern or "gpt2")
    names = ["style", "ties", *core.STYLE_OPTIONS, "surround", "max_token_length"]
    more = {name: getattr(options, name) for name in names}
    if (superwords := superwords_of(options)) is not None:
        more["superwords"] = superwords
        if options.digits and superwords.get("rule") != "boundless":
            from bpe_tokenizer_tools.training.superwords import SUPERBPE_PATTERN

            pattern = superwords.get("pattern", SUPERBPE_PATTERN)
            superwords["pattern"] = digits_from_the_right(pattern)
    outputs.check_directory(options.output)
    if options.style == "words":  # not even --force makes room, and training may take long
        check_folder_for_words(Path(options.output))
    for token in filter(os.path.isfile, options.special_tokens):
        problem = f"{token} is read as a special token, though a file has that name"
        core.warn(f"{problem}; name files before --special-tokens, or after --corpus")
    if options.parity:
        _train_alike(options, more)
    else:
        _TRAIN[1](options, **more)
    if not options.quiet:  # the report says where it is; these are the other notes of a save
        notes = loaders.notes(BPETokenizer.from_file(options.output))
        print(end=visible(notes), file=sys.stderr)
    return None


def _chat_options(add: Callable[..., Any]) -> None:
    _CHAT[2](add)
    add("--top-k", type=int, default=0, metavar="N", help="sample from the N likeliest; 0: all")
    add("--seed", type=int, metavar="N", help="the same seed repeats the same answers")
    stop = "end an answer before any of these"
    add("--stop", nargs="+", action="extend", default=[], metavar="TEXT", help=stop)
    healed = "let the model choose the tokens at the end of the prompt (token healing)"
    add("--heal", action="store_true", help=healed)


def _chat_template(given: str | None) -> str | None:
    """Return what --template means: the text of a file, or a name or Jinja as they are."""
    if given is None or given in core.BUILT_IN or "{" in given:
        return given
    if not Path(given).is_file():
        if re.fullmatch(r"[\w-]+", given):
            return given  # a name, perhaps: the model's tokenizer decides
        raise core.UsageError(f"--template {given!r} is not a file, a name or Jinja")
    try:
        return Path(given).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{given}: not UTF-8: {error}") from None


def _check_chat(options: argparse.Namespace) -> None:
    """Refuse impossible options before a model is loaded."""
    from bpe_tokenizer_tools.backends import checks

    checks.sampling(options.temperature, options.top_k, options.top_p)
    check_least("--max-tokens", options.max_new_tokens, 1)
    check_least("--seed", options.seed, 0)
    if "" in options.stop:
        raise core.UsageError("argument --stop: expected text, got ''")
    if sys.stdin is None and options.message in (None, "-"):
        raise ValueError("standard input is closed; pass --message")


def _cmd_chat(options: argparse.Namespace) -> None:
    from bpe_tokenizer_tools import backends
    from bpe_tokenizer_tools.chat import terminal
    from bpe_tokenizer_tools.chat.session import Session

    _check_chat(options)
    template, tokenizer = _chat_template(options.template), None
    if options.tokenizer is not None:
        tokenizer = BPETokenizer.from_pretrained(options.tokenizer, verbose=False)
    backends.find(options.model_path, options.backend)  # is there one, before stdin is read?
    message = "".join(core.stdin_text()) if options.message == "-" else options.message
    if message is not None and not message.strip():
        raise core.UsageError("argument --message: expected text, got ''")
    settings = ("system_prompt", "backend", "n_gpu_layers", "n_ctx")
    given = (getattr(options, name) for name in settings)
    session = Session(options.model_path, tokenizer, template, *given)
    names = ("max_new_tokens", "temperature", "top_p", "top_k", "seed", "stop", "heal")
    sampled = {name: getattr(options, name) for name in names}
    try:
        terminal.run(session, sampled, message, options.json, options.quiet)
    finally:
        session.model.close()


COMMANDS: dict[str, core.Command] = {
    "info": (_INFO[0], _cmd_info, _info_options),
    "train": (_TRAIN[0], _cmd_train, _train_options),
    "chat": (_CHAT[0], _cmd_chat, _chat_options),
}
