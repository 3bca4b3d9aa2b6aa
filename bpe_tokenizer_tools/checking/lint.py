r"""Find odd things in a tokenizer, without running any other library.

Each check is a generator of findings about a tokenizer and, if there is one, the folder
with its files.  A finding has a severity:

    error    ids will be wrong somewhere, or text is lost
    warning  it works until somebody does something common
    note     worth knowing

Nothing is guessed: each finding names the tokens, fields or classes it is about.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bpe_tokenizer import GPT2_SPLIT_PATTERN, AddedToken, BPETokenizer, Definition
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.formats import loaders
from bpe_tokenizer_tools.patterns.families import FAMILIES, Component, steps_of
from bpe_tokenizer_tools.patterns.oniguruma import from_oniguruma


@dataclass(frozen=True)
class Finding:
    """Something odd about a tokenizer."""

    severity: str  # "error", "warning" or "note"
    name: str  # which check found it, such as "pad-token"
    message: str  # the finding
    fix: str = ""  # what to do about it; empty if there is nothing to do

    def __str__(self) -> str:
        return f"{self.severity}: {self.name}: {self.message}" + (self.fix and f"; {self.fix}")


def lint(tokenizer: BPETokenizer, folder: Path | None = None) -> list[Finding]:
    """Check a tokenizer and its files in a folder; return the most severe findings first.

    >>> from bpe_tokenizer import BPETokenizer
    >>> [(finding.severity, finding.name) for finding in lint(BPETokenizer())]
    [('warning', 'pad-token'), ('note', 'pattern')]
    """
    found = [finding for check in _CHECKS for finding in _first_few(check(tokenizer))]
    if folder is not None:
        found += _tokenizer_class(tokenizer, folder)
    return sorted(found, key=lambda finding: ("error", "warning", "note").index(finding.severity))


def _first_few(findings: Iterable[Finding], limit: int = 10) -> list[Finding]:
    """Shorten the findings of a check that found the same about many tokens."""
    found = list(findings)
    if len(found) > limit:
        name, more = found[0].name, f"{len(found) - limit} more like these"
        found[limit:] = [Finding(found[limit].severity, name, more)]
    return found


def _some(items: Sequence[object], limit: int = 5) -> str:
    shown = ", ".join(core.shorten(item, 40) for item in items[:limit])
    return shown + (", ..." if len(items) > limit else "")


# -- The pattern's family -----------------------------------------------------


def pattern_family(tokenizer: BPETokenizer) -> str:
    """Name the family that cuts text like a tokenizer, or describe it as its own."""
    definition = tokenizer.definition
    if definition.split_pattern in core.PATTERN_NAMES:
        return core.PATTERN_NAMES[definition.split_pattern]
    components = definition.components
    own = steps_of((components or {}).get("pre_tokenizer"))
    same = [name for name in FAMILIES if _cuts_like(definition, name)]
    # If only the normalizer distinguishes families, choose by that.
    same.sort(key=lambda name: FAMILIES[name].normalizer != _normal_form(definition))
    if same:
        return same[0]
    if own and own[0].get("type") != "Metaspace":
        return f"own ({' + '.join(str(step.get('type')) for step in own)})"
    if components is None:
        return "own"
    return "sentencepiece" if "▁" in json.dumps(components, ensure_ascii=False) else "none"


def _cuts_like(definition: Definition, name: str) -> bool:
    """Return True if a tokenizer cuts text like a family."""
    family = FAMILIES[name]
    if definition.components is None:
        return _one_pattern(family.steps) == definition.split_pattern
    own = steps_of(definition.components.get("pre_tokenizer"))
    return bool(own) and own == steps_of(family.pre_tokenizer())


def _normal_form(definition: Definition) -> str | None:
    """Return the type of a tokenizer's normalizer, if it has one."""
    if definition.components is None:
        return definition.normalizer
    written = definition.components.get("normalizer")
    return written.get("type") if isinstance(written, dict) else None


def _one_pattern(steps: Sequence[Component]) -> str | None:
    """Return the pattern of a ByteLevel, alone or after a Split, as the core spells it."""
    if len(steps) == 1 and steps[0].get("use_regex"):
        return GPT2_SPLIT_PATTERN
    if len(steps) != 2 or steps[0]["type"] != "Split" or steps[1].get("use_regex"):
        return None
    try:
        return from_oniguruma(steps[0]["pattern"]["Regex"])
    except ValueError:  # the core runs it by its components, so no family matches
        return None


def _pattern(tokenizer: BPETokenizer) -> Iterator[Finding]:
    family = pattern_family(tokenizer)
    shown = tokenizer.split_pattern
    written = f": {core.shorten(shown, 100)}" if shown and family == "own" else ""
    yield Finding("note", "pattern", f"text is cut as in the family {family!r}{written}")


def _loaders(tokenizer: BPETokenizer) -> Iterator[Finding]:
    for limit in loaders.limits(tokenizer):
        who = " and ".join(limit.loaders)
        yield Finding("note", "loaders", f"{who} {limit.problem}", limit.remedy)


# -- Tokens that cannot come up -----------------------------------------------

_Symbols = Callable[[bytes], "list[int] | None"]  # the ids that merging starts from
_Lengths = Callable[[str], "list[int] | None"]  # of pre-tokens, in bytes


def _byte_symbols(vocab: Mapping[bytes, int]) -> _Symbols:
    byte_ids = [vocab[bytes([byte])] for byte in range(256)]
    return lambda token: [byte_ids[byte] for byte in token]


def _char_symbols(definition: Definition, vocab: Mapping[str, int]) -> _Symbols:
    """Start from characters, as the model options say; None for those without a token.

    `vocab` has the symbols of merges that have no id, too.
    """
    options = (definition.components or {}).get("model", {})
    prefix = options.get("continuing_subword_prefix") or ""
    suffix = options.get("end_of_word_suffix") or ""
    marker = options.get("end_of_word_marker") or ""

    def symbols(token: bytes) -> list[int] | None:
        body = token.decode()
        inner = bool(prefix) and body.startswith(prefix)
        body = body.removeprefix(prefix)
        final = suffix if suffix and body.endswith(suffix) else ""
        body = body.removesuffix(suffix)
        ends = [marker] if marker and body.endswith(marker) else []
        body = body.removesuffix(marker)
        pieces = [(prefix if i or inner else "") + char for i, char in enumerate(body)]
        if pieces:
            pieces[-1] += final
        ids = [vocab.get(piece) for piece in pieces + ends]
        return None if None in ids or not ids else cast("list[int]", ids)

    return symbols


def is_byte_token(token: bytes) -> bool:
    """Return True for a byte's token, such as "<0x41>"."""
    return len(token) == 6 and token.startswith(b"<0x") and token.endswith(b">")


def _cutter(tokenizer: BPETokenizer) -> _Lengths | None:
    """Return a function that cuts text, for byte-level tokenizers; otherwise None."""
    definition, encoder = tokenizer.definition, cast("Any", core.encoder(tokenizer))
    if definition.components is None:
        return lambda text: [len(piece.encode()) for piece in encoder._split(text)]
    kinds = [step.get("type") for step in steps_of(definition.components.get("pre_tokenizer"))]
    if "ByteLevel" not in kinds:
        return None

    def lengths(text: str) -> list[int] | None:
        found = list(map(len, encoder._split(text)))
        return found if sum(found) == len(text.encode()) else None  # else a step changes text

    return lengths


# Contexts for a token, to distinguish cuts that are always there from others.
_BEFORE = ("", " ", "a", "A", "1", "!", "\n", "'", "é", "中")
_AFTER = ("", " ", "a", "A", "1", "!", "\n", "  ", "é", "中", "s", "m", "ll", "re")


def _uncut(text: str, lengths: _Lengths, whole: bool = False) -> bool:
    """Return whether some context leaves a text uncut; `whole`: except at both of its ends."""
    size = len(text.encode())
    for before, after in itertools.product(_BEFORE, _AFTER):
        found = lengths(before + text + after)
        if found is None:
            return True
        start = len(before.encode())
        cuts = set(itertools.accumulate(found, initial=0))
        if not any(start < cut < start + size for cut in cuts) and (
            not whole or {start, start + size} <= cuts
        ):
            return True
    return False


def unreached(tokenizer: BPETokenizer) -> dict[str, list[bytes]]:
    """Return the tokens that no text gives, by obstacle.

    The obstacle is "merges", "normalizer" or "pattern"; those under "flag" only come from
    `ignore_merges`.
    """
    definition = tokenizer.definition
    byte_level = definition.components is None
    # Always the engine in Python: its steps are needed one by one.
    encoder = core.Encoder(definition) if byte_level else cast("Any", core.encoder(tokenizer))
    if byte_level:
        symbols = _byte_symbols(definition.vocab)
    else:
        symbols = _char_symbols(definition, cast("Any", encoder)._vocab)
    lengths = _cutter(tokenizer)
    options = (definition.components or {}).get("model", {})
    unknown = options.get("unk_token")
    form = definition.normalizer
    out: dict[str, list[bytes]] = {"merges": [], "flag": [], "normalizer": [], "pattern": []}
    for token, id_ in definition.vocab.items():
        if options.get("byte_fallback") and is_byte_token(token):
            continue
        if id_ in core.contents(tokenizer) or token.decode("utf-8", "replace") == unknown:
            continue
        start = symbols(token)
        made = start is not None and encoder._merge(start) == [id_]
        text = text_of(token, tokenizer)
        if not made and not (
            definition.ignore_merges and text and lengths and _uncut(text, lengths, whole=True)
        ):
            out["merges"].append(token)
        elif text and form and core.normalize(text, form) != text:
            out["normalizer"].append(token)
        elif not made:
            out["flag"].append(token)
        elif text and lengths and len(lengths(text) or "1") > 1 and not _uncut(text, lengths):
            out["pattern"].append(token)
    return out


def text_of(token: bytes, tokenizer: BPETokenizer) -> str | None:
    """Return the text of a token, or None if it is part of a character."""
    byte_level = tokenizer.definition.components is None
    raw = token if byte_level else core.from_printable(token.decode())
    try:
        return raw.decode() if raw is not None else None
    except UnicodeDecodeError:
        return None


_FLAGGED = (
    "no merges make {}; only a whole pre-token becomes such a token (ignore_merges), and readers "
    "that drop this flag never give it"
)
_UNREACHABLE = {  # obstacle -> severity, name and message
    "merges": ("warning", "unreachable", "no merges make {}, so no text gives them"),
    "flag": ("note", "ignore-merges", _FLAGGED),
    "normalizer": ("warning", "unreachable", "normalization changes {}, so no text gives them"),
    "pattern": ("note", "unreachable", "the split pattern always cuts {}, so no text gives them"),
}


def _unreachable(tokenizer: BPETokenizer) -> Iterator[Finding]:
    for problem, tokens in unreached(tokenizer).items():
        if tokens:
            severity, name, message = _UNREACHABLE[problem]
            shown = _some([readable(tokenizer, token) for token in tokens])
            noun = "token" if len(tokens) == 1 else "tokens"
            yield Finding(severity, name, message.format(f"{len(tokens)} {noun} ({shown})"))


def readable(tokenizer: BPETokenizer, token: bytes) -> str:
    """Write a token as its text, or as vocabulary files do if it is part of a character."""
    text = text_of(token, tokenizer)
    return tokenizer.definition.write(token) if text is None else text


def _duplicates(tokenizer: BPETokenizer) -> Iterator[Finding]:
    encoder = cast("Any", core.encoder(tokenizer))
    byte_level = tokenizer.definition.components is None
    ids: defaultdict[bytes, list[int]] = defaultdict(list)
    for id_, token in core.tokens(tokenizer).items():
        if not byte_level and id_ not in core.contents(tokenizer):
            if is_byte_token(token):
                continue  # "<0x41>" is only used if there is no "A"
            # The first and the last token may be decoded differently.
            token = list(encoder.decode_pieces([id_] * 3, "replace"))[1]
        ids[token].append(id_)
    doubled = {token: same for token, same in ids.items() if len(same) > 1 and token}
    if doubled:
        shown = "; ".join(
            f"{core.shorten(token)} is {' and '.join(map(str, same))}"
            for token, same in itertools.islice(doubled.items(), 3)
        )
        message = f"{len(doubled)} texts have more than one id: {shown}"
        fix = "if a model generates one, encoding its text again gives another id"
        yield Finding("warning", "duplicates", message, fix)


def shared_ids(tokenizer: BPETokenizer) -> dict[int, list[str]]:
    """Return the ids that several added tokens have, with the texts in the order listed."""
    if len(core.contents(tokenizer)) == len(tokenizer.added_tokens):
        return {}
    texts: defaultdict[int, list[str]] = defaultdict(list)
    for token in tokenizer.added_tokens:
        texts[cast("int", token.id)].append(token.content)
    return {id_: same for id_, same in texts.items() if len(same) > 1}


def _shared(tokenizer: BPETokenizer) -> Iterator[Finding]:
    for id_, texts in shared_ids(tokenizer).items():
        message = (
            f"id {id_} is {', '.join(map(repr, texts))}, and decodes to the last one listed; "
            "which one tiktoken decodes to depends on its version"
        )
        yield Finding("note", "shared-id", message)


_UTF8_BYTES = [*range(0xC0), *range(0xC2, 0xF5)]  # UTF-8 never has the others


def is_byte_level(tokenizer: BPETokenizer) -> bool:
    """Return True if components write each byte of text as a character."""
    chain = getattr(core.encoder(tokenizer), "_chain", None)  # only where there are components
    return chain is not None and chain.is_byte_level


def byte_tokens(tokenizer: BPETokenizer) -> list[bytes] | None:
    """Return how the vocabulary writes each of the 256 bytes; None if it has no bytes."""
    components = tokenizer.definition.components
    if components is None:
        return [bytes([byte]) for byte in range(256)]
    if is_byte_level(tokenizer):
        return [core.BYTE_TO_CHAR[byte].encode() for byte in range(256)]
    if components.get("model", {}).get("byte_fallback"):
        return [f"<0x{byte:02X}>".encode() for byte in range(256)]
    return None


def _lost_text(tokenizer: BPETokenizer) -> Iterator[Finding]:
    """Find characters or bytes that would silently be dropped."""
    options = (tokenizer.definition.components or {}).get("model", {})
    unknown = options.get("unk_token")
    becomes = f"become {unknown!r}" if unknown else "are dropped"
    severity = "warning" if unknown else "error"
    written = byte_tokens(tokenizer)
    if written is None:
        message = f"characters without a token {becomes}"
        fix = "" if unknown else "give the model an unk_token, or byte_fallback with its 256 tokens"
        yield Finding(severity, "unknown-characters", message, fix)
        return
    missing = [byte for byte in _UTF8_BYTES if written[byte] not in tokenizer.definition.vocab]
    if missing:
        shown = _some([f"0x{byte:02X}" for byte in missing])
        message = f"{len(missing)} bytes have no token ({shown}); they {becomes}"
        yield Finding(severity, "missing-bytes", message, "add a token for each of the 256 bytes")


# -- Special tokens -----------------------------------------------------------


def _collisions(tokenizer: BPETokenizer) -> Iterator[Finding]:
    special = [token for token in tokenizer.added_tokens if token.special]
    contents = {token.content for token in special}
    name = "special-tokens"
    for token in special:
        text = token.content
        heads = [text[:end] for end in range(1, min(len(text), 256)) if text[:end] in contents]
        if heads:
            message = f"{text!r} begins with {_some(heads)}"
            fix = "tiktoken takes whichever it lists first, others the longest; rename one"
            yield Finding("warning", name, message, fix)
        elif within := _within(text, contents):
            yield Finding("note", name, f"{text!r} holds {_some(within)}")
    yield from _as_ordinary(tokenizer, special)
    for token in special:
        form = tokenizer.normalizer
        if form and core.normalize(token.content, form) != token.content:
            message = f"{token.content!r} is not in the form {form}, which text is normalized to"
            fix = f"spell it as {core.normalize(token.content, form)!r}"
            yield Finding("warning", name, message, fix)


def _within(text: str, contents: set[str]) -> list[str]:
    """Return which of some strings are in a text, but not at its start."""
    size = min(len(text), 64)
    parts = {text[i:j] for i in range(1, size) for j in range(i + 1, size + 1)}
    return sorted(parts & contents)


def _as_ordinary(tokenizer: BPETokenizer, special: Iterable[AddedToken]) -> Iterator[Finding]:
    """Find special tokens that ordinary text can produce."""
    apart = b"\xff\xfe\xff"  # in no token's text
    everything = apart.join(tokenizer.definition.vocab)
    for token in special:
        plain = tokenizer.encode(token.content)
        content = token.content.encode()
        if plain == [token.id]:
            message = (
                f"{token.content!r} (id {token.id}) is an ordinary token too: text that contains "
                "it becomes the control token, whether special tokens are allowed or not"
            )
            fix = "take it out of the merges, or give the special token another text"
            yield Finding("error", "special-tokens", message, fix)
        elif len(content) > 3 and content in everything:
            message = f"{token.content!r} is also in ordinary tokens"
            fix = "the training text contained it; train with it as a special token"
            yield Finding("warning", "special-tokens", message, fix)


def _padding(tokenizer: BPETokenizer) -> Iterator[Finding]:
    if tokenizer.pad_token is None:
        message = "there is no pad token, which batches of different lengths need"
        fix = "set tokenizer.pad_token to a separate special token"
        yield Finding("warning", "pad-token", message, fix)
    elif tokenizer.pad_token == tokenizer.eos_token:
        message = (
            f"the pad token is the eos token, {tokenizer.eos_token!r}: training that masks padding "
            "masks the end of every text as well, and the model never learns to stop"
        )
        fix = "use a separate token for padding"
        yield Finding("warning", "pad-token", message, fix)


def _double_bos(tokenizer: BPETokenizer) -> Iterator[Finding]:
    templates, bos = tokenizer.chat_templates, tokenizer.bos_token
    before, _ = core.around(tokenizer)
    if bos is None or tokenizer.bos_token_id not in before:
        return
    if any("bos_token" in template or bos in template for template in templates.values()):
        message = (
            f"the chat template writes {bos!r}, and encoding with special tokens puts it before "
            "the text as well"
        )
        fix = "encode rendered chats with add_special_tokens=False"
        yield Finding("warning", "double-bos", message, fix)


def _gaps(tokenizer: BPETokenizer) -> Iterator[Finding]:
    ids = core.tokens(tokenizer)
    missing = tokenizer.max_id + 1 - len(ids)
    if missing:
        first = next(i for i in itertools.count() if i not in ids)
        message = (
            f"{missing} ids below the largest, {tokenizer.max_id}, have no token; the first is "
            f"{first}"
        )
        fix = f"a model needs {tokenizer.max_id + 1} embeddings, not {len(ids)}"
        yield Finding("note", "gaps", message, fix)


_CHECKS: tuple[Callable[[BPETokenizer], Iterator[Finding]], ...] = (
    _pattern, _unreachable, _duplicates, _shared, _lost_text, _collisions, _padding, _double_bos,
    _gaps, _loaders,
)  # fmt: skip

# -- Classes of transformers --------------------------------------------------
# From version 5 on, these classes of transformers build their own normalizer and
# pre_tokenizer, and take nothing but the vocabulary, the merges and the added tokens
# from tokenizer.json.  Measured with 5.23: the same file under each class name.


@dataclass(frozen=True)
class _Class:
    """What a class of transformers 5 does, whatever the file says."""

    family: str  # of FAMILIES
    normalizer: str | None = None
    prefix_space: bool = False


_GPT2_CLASSES = ["GPT2", "Roberta", "Bart", "LED", "Mvp", "CodeGen", "Deberta", "Luke", "Whisper"]
_CLASSES: dict[str, _Class] = {
    **{f"{name}Tokenizer": _Class("gpt-2") for name in _GPT2_CLASSES},
    "BlenderbotTokenizer": _Class("gpt-2", prefix_space=True),
    "GPTNeoXTokenizer": _Class("gpt-2", "NFC"),
    "CohereTokenizer": _Class("command-r", "NFC"),
    "Qwen2Tokenizer": _Class("qwen2", "NFC"),
    "Qwen3_5Tokenizer": _Class("qwen35", "NFC"),
}

# For these, the model_type of config.json replaces a missing tokenizer_class ...
_MODEL_TYPES = {
    "Qwen2Tokenizer": "qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen2_5_omni qwen2_audio qwen3 "
    "qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe qwen3_omni_moe internvl",
    "Qwen3_5Tokenizer": "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp",
    "GPT2Tokenizer": "gpt2 gpt_neo gptj codegen dbrx phi opt starcoder2 jais2 gpt-sw3",
    "GPTNeoXTokenizer": "gpt_neox mpt olmo olmoe mamba mamba2 rwkv",
    "CohereTokenizer": "cohere cohere2 aya_vision",
    "RobertaTokenizer": "roberta bart led longformer mvp",
    "BlenderbotTokenizer": "blenderbot",
    "DebertaTokenizer": "deberta",
    "LukeTokenizer": "luke",
    "WhisperTokenizer": "whisper",
}
_BY_MODEL_TYPE = {kind: name for name, kinds in _MODEL_TYPES.items() for kind in kinds.split()}
# ... and for these it overrides an existing one.
_OVERRIDING = {"qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp"}


def _tokenizer_class(tokenizer: BPETokenizer, folder: Path) -> Iterator[Finding]:
    """Find the class names beside a tokenizer.json that make transformers 5 ignore it."""
    declared = field_of(folder / "tokenizer_config.json", "tokenizer_class")
    declared = declared or field_of(folder / "config.json", "tokenizer_class")
    model_type = field_of(folder / "config.json", "model_type") or ""
    decides = model_type in (_BY_MODEL_TYPE if declared is None else _OVERRIDING)
    name = (_BY_MODEL_TYPE[model_type] if decides else declared or "").removesuffix("Fast")
    known = _CLASSES.get(name)
    if known is None:
        return
    instead = " and ".join(_otherwise(tokenizer, known))
    if not instead:
        return
    said = f"tokenizer_class {declared!r}"
    fix = "set tokenizer_class to 'PreTrainedTokenizerFast' in tokenizer_config.json"
    if decides:
        said = f"model_type {model_type!r} in config.json"
        if declared is not None:
            fix = "keep config.json elsewhere, or load with PreTrainedTokenizerFast by name"
    message = (
        f"{said} makes transformers 5 use {name}, which has {instead}, whatever tokenizer.json says"
    )
    yield Finding("error", "tokenizer-class", message, fix)


def _otherwise(tokenizer: BPETokenizer, known: _Class) -> Iterator[str]:
    """Describe what a class does differently from a tokenizer."""
    definition = tokenizer.definition
    form, space = _normal_form(definition), definition.prefix_space
    if not _cuts_like(definition, known.family):
        yield f"the split pattern of {known.family!r}"
    if form != known.normalizer:
        yield f"normalization to {known.normalizer}" if known.normalizer else "no normalization"
    if space != known.prefix_space:
        yield "a space before text" if known.prefix_space else "no space before text"


def field_of(path: Path, key: str, kind: type = str) -> Any:
    """Read a value of a type from a JSON file; None if either is missing, or it is damaged."""
    if not path.is_file():
        return None
    try:
        value = core.JsonReader.open(path).data.get(key)
    except (ValueError, OSError):
        return None
    return value if isinstance(value, kind) else None
