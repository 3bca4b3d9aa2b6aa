r"""vocab.json with merges.txt: GPT-2, RoBERTa, and the older word-level BPE.

vocab.json is one object, token -> id.  merges.txt has one merge a line, in rank order,
its two parts separated by a space; a first line such as ``#version: 0.2`` is skipped.

    {"l": 0, "o": 1, "lo": 2, ...}          #version: 0.2
                                            l o

Two kinds of tokenizer use these files, and the vocabulary shows which:

- byte-level: tokens are written in the byte alphabet, all 256 characters of which are
  tokens;
- word-level: tokens are written as they are, and those that end a word have a marker,
  ``</w>`` or ``</eow>``.  Words are what white space separates.

A word-level vocabulary starts merging in one of two ways.  If the marker is a suffix, "low"
starts as ``l o w</w>``, and "w</w>" is a token that no merge makes.  If the marker is a
symbol, as in Sennrich's first program, "low" starts as ``l o w </w>``, the bare marker is a
token, and only merges join it to another.

Some notebooks keep only the tokens that their corpus is cut into in the end, and
`<pad> <bos> <eos> <unk>`.  Then some merges make tokens that have no id.  They still join, and if a
token without an id is left, it is `<unk>`.  A word-level vocabulary with these four tokens is read
like that; in any other, merges need tokens that are there.

CLIP is both byte-level and word-level.  The two files don't say where text is cut, which tokens
are special or what goes around a text.  Files of transformers beside them may, by the class name
in tokenizer_config.json or the model type in config.json: see `_CLASSES`.  Without them, we
assume GPT-2's pattern, but only if it can give all merged tokens; tokens such as ".append" can't
come from it.

Source: github.com/openai/gpt-2, src/encoder.py; github.com/rsennrich/subword-nmt;
huggingface/tokenizers, models/bpe/model.rs; huggingface/transformers, models/*/.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer import (
    GPT2_SPLIT_PATTERN,
    SPLIT_PATTERNS,
    AddedToken,
    BPETokenizer,
    Definition,
    FileFormatError,
)
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.core import shorten
from bpe_tokenizer_tools.formats import (
    Contents,
    Source,
    SpecialTokens,
    beside,
    lost,
    read_files,
)
from bpe_tokenizer_tools.formats.classes import FORCED_TYPES

_NAMES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
_MARKERS = ("</w>", "</eow>")
_JsonReader = core.JsonReader

# -- What a class of transformers means ---------------------------------------

_ROBERTA_TOKENS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
_END_OF_TEXT = {role: "<|endoftext|>" for role in ("bos_token", "eos_token", "unk_token")}
_CLIP_PATTERN = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)


class _Class(NamedTuple):
    """What a class of transformers adds to the two files."""

    tokens: Mapping[str, str]  # role -> token, if no file says otherwise
    pattern: str = GPT2_SPLIT_PATTERN  # of a byte-level one
    normalizer: Mapping[str, Any] | None = None  # as in tokenizer.json
    around: tuple[str, str] | None = None  # the roles of the tokens before and after a text
    marker: str | None = None  # at the end of a word
    is_symbol: bool = False  # the marker is a separate symbol, not a suffix of the last character
    # as in tokenizer.json, unless the pattern says it all
    pre_tokenizer: Mapping[str, Any] | None = None


# What a word-level vocabulary that no file describes calls its special tokens.
_RESERVED = {
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "bos_token": "<bos>",
    "eos_token": "<eos>",
}
RESERVED = ("<pad>", "<bos>", "<eos>", "<unk>")  # in the order of ids, in new vocabularies
_GPT2 = _Class(_END_OF_TEXT)
_ROBERTA = _Class(_ROBERTA_TOKENS, around=("cls_token", "sep_token"))
_CLIP = _Class(
    {
        **_END_OF_TEXT,
        "bos_token": "<|startoftext|>",
        "pad_token": "<|endoftext|>",
    },
    normalizer={
        "type": "Sequence",
        "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "},
            {"type": "Lowercase"},
        ],
    },
    around=("bos_token", "eos_token"),
    marker="</w>",
    pre_tokenizer={
        "type": "Sequence",
        "pretokenizers": [
            {
                "type": "Split",
                "pattern": {"Regex": _CLIP_PATTERN},
                "behavior": "Removed",
                "invert": True,
            },
            {**core.BYTE_LEVEL, "use_regex": True},
        ],
    },
)
_QWEN2 = _Class(
    {role: "<|endoftext|>" for role in ("unk_token", "eos_token", "pad_token")},
    SPLIT_PATTERNS["qwen2"],
    {"type": "NFC"},
)
_CLASSES = {
    "GPT2Tokenizer": _GPT2,
    "CodeGenTokenizer": _GPT2,
    "RobertaTokenizer": _ROBERTA,
    "BartTokenizer": _ROBERTA,
    "LEDTokenizer": _ROBERTA,
    "LongformerTokenizer": _ROBERTA,
    "CLIPTokenizer": _CLIP,
    "Qwen2Tokenizer": _QWEN2,
}
_NO_CLASS = ("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend")
_MODEL_TYPES = {
    "gpt2": "GPT2Tokenizer",
    "roberta": "RobertaTokenizer",
    "bart": "BartTokenizer",
    "longformer": "LongformerTokenizer",
    "clip": "CLIPTokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
}

# -- Reading ------------------------------------------------------------------


def matches(path: Path, head: bytes) -> bool:
    """Recognize vocab.json by its name."""
    return _merges_beside(path) is not None


def _merges_beside(path: Path) -> Path | None:
    """Return where the merges of a vocabulary are, by its name."""
    for vocab, merges in _NAMES:
        if path.name.endswith(vocab):  # "small-vocab.json" has "small-merges.txt"
            return path.with_name(path.name[: -len(vocab)] + merges)
    return None


def read(
    path: Path, split_pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Source:
    """Read vocab.json, merges.txt and the other files that transformers puts beside them.

    A `split_pattern` makes a vocabulary byte-level whatever other files say; `special_tokens` are
    added to those of the files, and win.
    """
    # Files named "small-vocab.json" share a directory with those of others.
    standard = any(path.name == vocab for vocab, _ in _NAMES)
    merges_path = _merges_beside(path) or path
    others = beside.paths(path.parent) if standard else []
    files = read_files(path, merges_path, *others)
    vocab = _read_vocab(path, files.pop(path))
    if merges_path not in files:
        raise FileFormatError(path, "", f"there is no {merges_path.name} beside it")
    raw_merges = files.pop(merges_path)
    found = beside.of(path.parent, files)
    known = None if split_pattern is not None else _known_class(found)
    is_named = known is not None
    own_marker = found.config.get("end_of_word_marker", str, None, default=None)
    byte_level = split_pattern is not None or core.CHAR_TO_BYTE.keys() <= vocab.keys()
    byte_level = byte_level and not own_marker
    is_partial = not byte_level and known is None and vocab.keys() >= {*_RESERVED.values()}
    all_merges = _read_merges(merges_path, raw_merges, None if is_partial else vocab)
    symbols = dict.fromkeys([*vocab, *itertools.chain.from_iterable(all_merges)])
    _check_markers(path, symbols, all_merges, is_known=byte_level or known is not None)
    merges = list(all_merges)
    if is_partial:
        merges = [pair for pair in merges if vocab.keys() >= {*pair, "".join(pair)}]
    if known is None and not byte_level:
        is_notebook = len(merges) < len(all_merges)
        known = _word_level(path, symbols, all_merges, is_notebook, own_marker)
    elif known is None:
        known = _plain_byte_level(path, vocab, merges, split_pattern)
    roles, tokens = _tokens(known, found, vocab, is_named, special_tokens or {})
    beside.check_given(path, special_tokens, tokens)
    data = core.tokenizer_layout(
        {
            "unk_token": None if known.marker is None else roles.get("unk_token"),
            "end_of_word_suffix": None if known.is_symbol else known.marker,
            # NOTE: added tokens as well, so that each keeps its id (see `Source`).
            "vocab": {**vocab, **{token.content: token.id or 0 for token in tokens.values()}},
            "merges": merges,
        },
        sorted(tokens.values(), key=lambda token: token.id or 0),
        {
            **_components(known, found),
            "post_processor": _post_processor(known, found, roles, tokens),
        },
    )
    own: dict[str, Any] = {"end_of_word_marker": known.marker} if known.is_symbol else {}
    if len(merges) < len(all_merges):
        own["all_merges"] = list(map(list, all_merges))
        if "unk_token" not in roles:
            problem = "merges make tokens that have no id, and a file beside it says that there is"
            raise FileFormatError(path, "", f"{problem} no unknown token; delete that unk_token")
    definition = None
    if own:
        definition = _with_own_options(path, data, own)
        ids = {token.content: token.id for token in definition.added}
        surround = found.config.data.get("surround")
        rule = core.rule_of(surround, roles, ids, definition.template)
        definition = dataclasses.replace(definition, template=rule)
    return Source(data, roles, found.settings, found.side.templates, definition)


def _known_class(found: beside.Beside) -> _Class | None:
    """Return the meaning of the class that the files name; None if they name none."""
    named = found.named
    forced = FORCED_TYPES.get(named.model_type)
    if forced in _CLASSES:
        return _CLASSES[forced]
    written = found.config.get("tokenizer_class", str, None, default=None)
    if written is None:
        by_type = _MODEL_TYPES.get(named.model_type)
        return None if by_type is None else _CLASSES[by_type]
    if written in _NO_CLASS:
        return None
    name = written.removesuffix("Fast")
    if name not in _CLASSES:
        raise found.config.error(
            f"{shorten(written)} is not a known class; if it is byte-level, pass "
            f"split_pattern, a regular expression or one of {', '.join(SPLIT_PATTERNS)}",
            "tokenizer_class",
        )
    return _CLASSES[name]


def _tokens(
    known: _Class,
    found: beside.Beside,
    vocab: Mapping[str, int],
    is_named: bool,
    given: SpecialTokens,
) -> tuple[dict[str, str], dict[str, AddedToken]]:
    """Return the roles and the added tokens; `is_named`: a file names the class."""
    defaults = {role: text for role, text in known.tokens.items() if is_named or text in vocab}
    roles = found.roles(defaults)
    return roles, beside.number(beside.declared(found, roles, given), vocab)


def _with_own_options(path: Path, data: dict[str, Any], own: dict[str, Any]) -> Definition:
    """Return a definition with options of the model that tokenizer.json can't express."""
    marker = own.get("end_of_word_marker")
    if any(token["content"] == marker for token in data["added_tokens"]):
        raise FileFormatError(
            path,
            "",
            f"{marker!r} ends words, as a symbol that merges join to them; it can't be a special "
            "token as well: leave it out of the special tokens",
        )
    definition = core.read_definition(_JsonReader(data, path))
    components: Any = definition.components
    return dataclasses.replace(
        definition, components={**components, "model": {**components["model"], **own}}
    )


def _read_vocab(path: Path, raw: bytes) -> dict[str, int]:
    try:
        text = raw.decode()
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, "", f"not JSON: {error}") from None
    if not text.lstrip().startswith("{"):
        raise FileFormatError(path, "", f"expected a JSON object, got {shorten(pairs)}")
    ids: dict[str, int] = {}
    token_of: dict[int, str] = {}
    for token, id_ in pairs:
        shown = shorten(token)
        if type(id_) is not int or not 0 <= id_ <= core.MAX_ID:
            expected = f"expected an id from 0 to {core.MAX_ID}"
            raise FileFormatError(path, shown, f"{expected}, got {shorten(id_)}")
        if token in ids:
            raise FileFormatError(path, shown, f"appears twice, with ids {ids[token]} and {id_}")
        if token_of.setdefault(id_, token) != token:
            raise FileFormatError(path, shown, f"id {id_} is that of {shorten(token_of[id_])} too")
        ids[token] = id_
    if not ids:
        raise FileFormatError(path, "", "is empty")
    return ids


def _read_merges(
    path: Path, raw: bytes, vocab: Mapping[str, int] | None
) -> dict[tuple[str, str], None]:
    """Read merges.txt; all tokens in it must be in the vocabulary, if one is given."""
    try:
        lines = raw.decode().split("\n")  # other line ends may be in tokens
    except UnicodeDecodeError as error:
        raise FileFormatError(path, "", f"not UTF-8: {error}") from None
    merges: dict[tuple[str, str], None] = {}
    for number, line in enumerate(lines, 1):
        line = line[:-1] if line.endswith("\r") else line
        if not line.strip(" ") or line.startswith("#version"):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            shown = shorten(line)
            raise FileFormatError(
                path, f"line {number}", f"expected two tokens with one space between, got {shown}"
            )
        left, right = parts
        for token in (left, right, left + right):
            if vocab is not None and token not in vocab:
                problem = f"token {shorten(token)} is not in the vocabulary"
                raise FileFormatError(path, f"line {number}", problem)
        merges.pop((left, right), None)  # given twice, the later rank counts, as in HuggingFace
        merges[left, right] = None
    return merges


# White space as Python's str.split and re have it.
_AT_SPACES = {"type": "Split", "pattern": {"Regex": r"[\s\x1c-\x1f]"}, "behavior": "Removed"}


def symbol_components(marker: str) -> dict[str, Any]:
    """Return the components of words that end in a symbol of their own."""
    return {
        "normalizer": None,
        "pre_tokenizer": dict(_AT_SPACES),
        "decoder": {"type": "BPEDecoder", "suffix": marker},
        "model": {
            "unk_token": _RESERVED["unk_token"],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "end_of_word_marker": marker,
        },
    }


def _word_level(
    path: Path,
    symbols: Iterable[str],
    merges: Mapping[tuple[str, str], None],
    is_notebook: bool,
    own_marker: str | None,
) -> _Class:
    """Return the class of a word-level vocabulary that no class of transformers describes.

    `symbols` are its tokens, and the parts of merges.  In a notebook's, some have no id.  If `save`
    wrote the files, they name the symbol that ends words: `own_marker`.
    """
    if own_marker and own_marker not in symbols:
        problem = (
            f"no token is {shorten(own_marker)}, which tokenizer_config.json has as the symbol"
        )
        raise FileFormatError(path, "", f"{problem} that ends words (end_of_word_marker)")
    if own_marker:
        return _Class(_RESERVED, marker=own_marker, is_symbol=True, pre_tokenizer=_AT_SPACES)
    found = [marker for marker in _MARKERS if any(symbol.endswith(marker) for symbol in symbols)]
    if len(found) == 1:
        marker = found[0]
        if marker in symbols and not _suffixed(marker, symbols, merges):
            return _Class(_RESERVED, marker=marker, is_symbol=True, pre_tokenizer=_AT_SPACES)
        cut = _AT_SPACES if is_notebook else {"type": "WhitespaceSplit"}
        return _Class(_RESERVED, marker=marker, pre_tokenizer=cut)
    what = "tokens end in both </w> and </eow>" if found else "no token ends in </w> or </eow>"
    raise FileFormatError(
        path,
        "",
        f"not all 256 bytes have a token, and {what}, so the kind of tokenizer is unclear; if "
        "another symbol ends words, name it in a tokenizer_config.json beside it, as "
        "end_of_word_marker; if it is byte-level, pass split_pattern, such as 'gpt2'",
    )


def _suffixed(
    marker: str, symbols: Iterable[str], merges: Mapping[tuple[str, str], None]
) -> list[str]:
    """Return the symbols of one character and the marker that no merge makes: it is a suffix."""
    made = {left + right for left, right in merges}
    size = 1 + len(marker)
    return [t for t in symbols if len(t) == size and t.endswith(marker) and t not in made]


def _check_markers(
    path: Path, symbols: Iterable[str], merges: Mapping[tuple[str, str], None], is_known: bool
) -> None:
    """Raise for merges of a bare marker if text can't contain one.

    `is_known`: another file, or the vocabulary, says that words don't end in that symbol.
    """
    for marker in _MARKERS:
        used = next((pair for pair in merges if marker in pair), None)
        if used is None or any(left + right == marker for left, right in merges):
            continue
        suffixed = _suffixed(marker, symbols, merges)
        if not (is_known or suffixed):
            continue
        reason = (
            f"but {shorten(suffixed[0])} is a token that no merge makes, as if it were a suffix"
            if suffixed
            else "but its vocabulary is byte-level, or a file beside it names a class without one"
        )
        raise FileFormatError(
            path,
            "",
            f"the merge {' '.join(used)!r} uses {marker} as a separate symbol, {reason}; for "
            f"words that end in the symbol {marker}, the vocabulary must contain characters, and "
            "no file next to it may name another class",
        )


def _plain_byte_level(
    path: Path, vocab: Mapping[str, int], merges: Iterable[tuple[str, str]], given: str | None
) -> _Class:
    """Return the class of a byte-level vocabulary that no file describes."""
    if given is not None:
        return _Class({}, pattern=core.pattern_named(given))
    if sum(token.endswith("</w>") for token in vocab) >= 256:
        raise FileFormatError(
            path,
            "",
            "is byte-level, and its tokens end in </w>, like CLIP's; add a tokenizer_config.json "
            "with the tokenizer_class, which says how text is cut",
        )
    splitter = core.splitter(GPT2_SPLIT_PATTERN)
    for left, right in merges:
        token = core.from_printable(left + right) or b""
        try:
            text = token.decode()
        except UnicodeDecodeError:  # part of a character, where nothing cuts
            continue
        if len(splitter.split(text)) > 1 and text not in ("'r", "'v", "'l"):
            raise FileFormatError(
                path,
                "",
                f"no file beside it says where text is cut, and GPT-2's split pattern would never "
                f"make its token {shorten(text)} (id {vocab[left + right]}); pass "
                f"split_pattern, a regular expression or one of {', '.join(SPLIT_PATTERNS)}",
            )
    return _GPT2


def _components(known: _Class, found: beside.Beside) -> dict[str, Any]:
    """Return the normalizer, pre-tokenizer and decoder of tokenizer.json."""
    normalizer = known.normalizer
    if known.pre_tokenizer is not None:
        if known.marker is not None and normalizer is None and found.flag("do_lower_case"):
            normalizer = {"type": "Lowercase"}
        pre_tokenizer: Mapping[str, Any] = known.pre_tokenizer
        is_byte_level = "Split" in str(known.pre_tokenizer.get("pretokenizers"))
    else:
        prefix = bool(found.flag("add_prefix_space"))
        by_itself = known.pattern == GPT2_SPLIT_PATTERN
        definition = Definition({}, [], known.pattern, prefix_space=prefix and by_itself)
        pre_tokenizer, is_byte_level = core.pre_tokenizer_json(definition), True
        if prefix and not by_itself:  # classes that split first put a space before each piece
            steps = pre_tokenizer["pretokenizers"]
            steps[-1] = {**steps[-1], "add_prefix_space": True}
    decoder = {"type": "BPEDecoder", "suffix": known.marker}
    return {
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "decoder": core.BYTE_LEVEL if is_byte_level else decoder,
    }


def _post_processor(
    known: _Class,
    found: beside.Beside,
    roles: Mapping[str, str],
    tokens: Mapping[str, AddedToken],
) -> dict[str, Any] | None:
    """Return what goes around a text: by the class, or as the files ask."""
    if known.around is None:
        return beside.around(found, roles, tokens)
    written: dict[str, Any] = {"type": "RobertaProcessing"}
    for key, role in zip(("cls", "sep"), known.around):
        token = roles.get(role)
        if token is None:
            raise found.config.error("is null, but the class puts this token around a text", role)
        written[key] = [token, tokens[token].id]
    prefix = bool(found.flag("add_prefix_space")) and known.marker is None
    return {**written, "trim_offsets": known.marker is None, "add_prefix_space": prefix}


# -- Writing ------------------------------------------------------------------


def contents(tokenizer: BPETokenizer, path: Path) -> Contents:
    """Write vocab.json and merges.txt, and the options of tokens, to a directory.

    The tokens that ``add_special_tokens`` adds are not written: GPT-2's tokenizer has none.
    """
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{path}: is a file; this format needs a directory")
    definition = tokenizer.definition
    _check_is_gpt2(definition)
    written = core.tokenizer_json(definition, ((), ()))["model"]
    vocab = {**written["vocab"], **{token.content: token.id for token in definition.added}}
    config, names = core.config_json(definition, *core.rest(tokenizer))
    config.pop("surround", None)
    config.pop("auto_map", None)
    config["added_tokens_decoder"] = {
        str(token.id): core.token_entry(token) for token in definition.added
    }
    # NOTE: this class gives roles to <|endoftext|> unless told otherwise, and adds it.
    none = {role: None for role in core.ROLE_NAMES if role not in core.roles(tokenizer)}
    config.update(none, tokenizer_class="GPT2Tokenizer", add_prefix_space=definition.prefix_space)
    found: Contents = {
        path / "vocab.json": json.dumps(
            dict(sorted(vocab.items(), key=lambda item: item[1])), ensure_ascii=False
        ),
        path / "merges.txt": "".join(
            ["#version: 0.2\n", *(f"{left} {right}\n" for left, right in written["merges"])]
        ),
        path / "tokenizer_config.json": core.to_json(config),
        path / "special_tokens_map.json": None if names is None else core.to_json(names),
        **dict.fromkeys(core.side_files_to_replace(path)[2:]),
    }
    if list(tokenizer.chat_templates) == ["default"]:
        found[path / "chat_template.jinja"] = tokenizer.chat_templates["default"]
    return found


def check_folder_for_words(folder: Path) -> None:
    """Raise FileExistsError if a word-level tokenizer can't be saved beside what is there."""
    if (folder / "tokenizer.json").exists():
        raise FileExistsError(
            f"{folder}: has a tokenizer.json, which would be loaded instead of this tokenizer's "
            "vocab.json; save to another directory, or delete it"
        )


def word_files(
    tokenizer: BPETokenizer, folder: Path, around: core.Template, config: dict[str, Any]
) -> Contents:
    """Return vocab.json and merges.txt of a word-level tokenizer that tokenizer.json can't hold.

    Args:
        tokenizer: has a symbol at the end of each word, or merges of tokens without ids.
        folder: where the files go.
        around: the ids before and after a text, in other libraries.
        config: tokenizer_config.json, which gets the flags for them.

    Raises:
        FileExistsError: a tokenizer.json is there.
    """
    check_folder_for_words(folder)
    definition = tokenizer.definition
    for end, ids in zip(("bos", "eos"), around):
        own = getattr(tokenizer, f"{end}_token_id")
        if ids not in ((), (own,)):
            raise lost("vocab.json and merges.txt", "more than bos and eos goes around a text")
        if bool(ids) != bool(config.get(f"add_{end}_token")):
            config[f"add_{end}_token"] = bool(ids)
    components = definition.components or {}
    if components["normalizer"] is not None and not config.get("do_lower_case"):
        raise lost("vocab.json and merges.txt", "its normalizer")
    if any(left.startswith(b"#version") for left, _ in tokenizer.merges):
        raise ValueError("a merge of '#version' would be taken for the first line of merges.txt")
    if marker := components["model"].get("end_of_word_marker"):
        config["end_of_word_marker"] = marker  # else tokens such as "<a></w>" make it unclear
    config["added_tokens_decoder"] = {
        str(token.id): core.token_entry(token) for token in definition.added
    }
    vocab = {definition.write(token): id_ for token, id_ in definition.vocab.items()}
    vocab |= {token.content: token.id or 0 for token in definition.added}
    merges = (f"{left.decode()} {right.decode()}\n" for left, right in tokenizer.merges)
    return {
        folder / "vocab.json": json.dumps(
            dict(sorted(vocab.items(), key=lambda item: item[1])), ensure_ascii=False
        ),
        folder / "merges.txt": "".join(["#version: 0.2\n", *merges]),
    }


def _check_is_gpt2(definition: Definition) -> None:
    what = None
    if definition.components is not None:
        what = "it is not byte-level, or prepares text in more steps than one split pattern"
    elif definition.split_pattern != GPT2_SPLIT_PATTERN:
        what = f"its split pattern is not GPT-2's but {shorten(definition.split_pattern)}"
    elif definition.trim_offsets:
        what = "its offsets leave out white space (trim_offsets)"
    elif definition.ignore_merges and _merges_are_ignored(definition):
        what = "a pre-token that is a token needs no merges there (ignore_merges)"
    if what:
        raise lost("vocab.json and merges.txt", what)
    token = {id_: token for token, id_ in definition.vocab.items()}
    if any(token[left].startswith(b"#version") for left, _ in definition.merges):
        raise ValueError("a merge of '#version' would be taken for the first line of merges.txt")


def _merges_are_ignored(definition: Definition) -> bool:
    """Return True if merging some token's own text gives something else."""
    encoder = core.Encoder(dataclasses.replace(definition, ignore_merges=False))
    return any(
        len(token) > 1 and encoder._encode_pretoken(token) != [id_]
        for token, id_ in definition.vocab.items()
    )
