"""Everything that the tools use of bpe_tokenizer beyond its public names.

No other module of the tools uses a private name of the library.  The first part renames such
names; the second part looks into a tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import __version__

if bpe_tokenizer.__version__ != __version__:
    # Not an ImportError: a module older than 0.10, which doesn't look at the version of its tools,
    # would go on without them.
    raise RuntimeError(
        f"bpe_tokenizer_tools {__version__} ({Path(__file__).parent}) can't be used by "
        f"bpe_tokenizer {bpe_tokenizer.__version__} ({bpe_tokenizer.__file__}), only by "
        f"{__version__}; copy both from one release, delete one of them, or run 'pip install .' in "
        "a clone"
    )

# Text, bytes and patterns
ALPHABET = bpe_tokenizer._ALPHABET
BYTE_TO_CHAR = bpe_tokenizer._BYTE_TO_CHAR
CHAR_TO_BYTE = bpe_tokenizer._CHAR_TO_BYTE
BYTE_LEVEL = bpe_tokenizer._BYTE_LEVEL
KNOWN_SPELLINGS = bpe_tokenizer._KNOWN_SPELLINGS
SPELLINGS = bpe_tokenizer._SPELLINGS
STEPS = bpe_tokenizer._STEPS
PATTERN_NAMES = bpe_tokenizer._PATTERN_NAMES
NORMALIZERS = bpe_tokenizer._NORMALIZERS
CONTRACTIONS = bpe_tokenizer._CONTRACTIONS
END = bpe_tokenizer._END  # how nearly all patterns end: white space
UNCUT_PATTERN = bpe_tokenizer._UNCUT_PATTERN
shorten = bpe_tokenizer._shorten
warn = bpe_tokenizer._warn
renamed = bpe_tokenizer._renamed
to_printable = bpe_tokenizer._to_printable
from_printable = bpe_tokenizer._from_printable
has_surrogate = bpe_tokenizer._has_surrogate
utf8_length = bpe_tokenizer._utf8_length
one_of = bpe_tokenizer._one_of
normalize = bpe_tokenizer._normalize
younger = bpe_tokenizer._younger
APART = bpe_tokenizer._APART
check_normalizer = bpe_tokenizer._check_normalizer
pattern_named = bpe_tokenizer._pattern_named
to_oniguruma = bpe_tokenizer._to_oniguruma
splitter = bpe_tokenizer._splitter
Pattern = bpe_tokenizer._Pattern
every_character = bpe_tokenizer._every_character
runs_of_kinds = bpe_tokenizer._runs_of_kinds
SPACE = bpe_tokenizer._SPACE
SPACE_BEFORE = bpe_tokenizer._SPACE_BEFORE
SPACE_AFTER = bpe_tokenizer._SPACE_AFTER
UNICODE_VERSION = bpe_tokenizer.UNICODE_VERSION
NORMALIZATION_VERSION = bpe_tokenizer.NORMALIZATION_VERSION
LEAST_SECONDS = bpe_tokenizer._LEAST_SECONDS
TOO_SLOW = bpe_tokenizer._TOO_SLOW

# Added tokens and roles
Match = bpe_tokenizer._Match
TokenFinder = bpe_tokenizer._TokenFinder
text_between = bpe_tokenizer._text_between
Pipeline = bpe_tokenizer._Pipeline
ROLES = bpe_tokenizer._ROLES
ROLE_ORDER = bpe_tokenizer._ROLE_ORDER
ROLE_NAMES = bpe_tokenizer._ROLE_NAMES
SURROUND = bpe_tokenizer._SURROUND
as_added_tokens = bpe_tokenizer._as_added_tokens
by_id = bpe_tokenizer._by_id
with_added_tokens = bpe_tokenizer._with_added_tokens
roles_by_name = bpe_tokenizer._roles_by_name
template_ids = bpe_tokenizer._template_ids
Template = bpe_tokenizer._Template

# Corpora, counting and training
COMPRESSED = bpe_tokenizer._COMPRESSED
COUNTS_FORMAT = bpe_tokenizer._COUNTS_FORMAT
FileName = bpe_tokenizer._FileName
codec = bpe_tokenizer._codec
decompressed = bpe_tokenizer._decompressed
suffix_of = bpe_tokenizer._suffix_of
json_lines = bpe_tokenizer._json_lines
text_on = bpe_tokenizer._text_on
text_of = bpe_tokenizer._text_of
read_counts = bpe_tokenizer._read_counts
Document = bpe_tokenizer._Document
documents = bpe_tokenizer._documents
names_file = bpe_tokenizer._names_file
file_documents = bpe_tokenizer._file_documents
text_chunks = bpe_tokenizer._TextFile
decode_chunks = bpe_tokenizer._decode_chunks
PretokenCounter = bpe_tokenizer._PretokenCounter
MergeLearner = bpe_tokenizer._MergeLearner
Learned = bpe_tokenizer._Learned
number_merges = bpe_tokenizer._number_merges
lay_out = bpe_tokenizer._lay_out
room_for_merges = bpe_tokenizer._room_for_merges
check_size = bpe_tokenizer._check_size
check_sizes = bpe_tokenizer._check_sizes
STYLE_OPTIONS = bpe_tokenizer._STYLE_OPTIONS
cores = bpe_tokenizer._cores
progress = bpe_tokenizer._progress
is_watched = bpe_tokenizer._is_watched

# Encoding and decoding
MAX_ID = bpe_tokenizer._MAX_ID
Encoder = bpe_tokenizer._Encoder
encode_parts = bpe_tokenizer._encode_parts
aligned = bpe_tokenizer._aligned
encode_aligned = bpe_tokenizer._encode_aligned
Spans = bpe_tokenizer._Spans
rank_pairs = bpe_tokenizer._rank_pairs
merge_by_scanning = bpe_tokenizer._merge_by_scanning
merge_by_heap = bpe_tokenizer._merge_by_heap
SCAN_UP_TO = bpe_tokenizer._SCAN_UP_TO
plain_ids = bpe_tokenizer._plain_ids
new_definition = bpe_tokenizer._new_definition

# Files
MAX_FILE_BYTES = bpe_tokenizer._MAX_FILE_BYTES
MAX_PATTERN_LENGTH = bpe_tokenizer._MAX_PATTERN_LENGTH
is_slow = bpe_tokenizer._is_slow
EMPTY = bpe_tokenizer._EMPTY
KEYS = bpe_tokenizer._KEYS
check_keys = bpe_tokenizer._check_keys
check_steps = bpe_tokenizer._check_steps
JsonReader = bpe_tokenizer._JsonReader
to_json = bpe_tokenizer._to_json
is_plain = bpe_tokenizer._is_plain
is_reference = bpe_tokenizer._is_reference
read_reference = bpe_tokenizer._read_reference
read_split_pattern = bpe_tokenizer._read_split_pattern
from_read = bpe_tokenizer._from_read
read_definition = bpe_tokenizer._read_definition
read_merges = bpe_tokenizer._read_merges
Pieces = bpe_tokenizer._Pieces
read_pieces = bpe_tokenizer._read_pieces
read_post_processor = bpe_tokenizer._read_post_processor
read_vocab = bpe_tokenizer._read_vocab
SideFiles = bpe_tokenizer._SideFiles
read_side_files = bpe_tokenizer._read_side_files
read_beside = bpe_tokenizer._read_beside
with_side_files = bpe_tokenizer._with_side_files
token_entry = bpe_tokenizer._entry
rule_of = bpe_tokenizer._rule_of
describe_added = bpe_tokenizer._describe_added
without_class = bpe_tokenizer._without_class
read_settings = bpe_tokenizer._read_settings
read_chat_templates = bpe_tokenizer._read_chat_templates
JOURNAL = bpe_tokenizer._JOURNAL
read_file = bpe_tokenizer._read_file
write_files = bpe_tokenizer._write_files
lock_file = bpe_tokenizer._lock_file
cache_folder = bpe_tokenizer._cache_folder
write_flushed = bpe_tokenizer._write_flushed
SIDE_FILES = bpe_tokenizer._SIDE_FILES
side_files = bpe_tokenizer._side_files
side_files_to_replace = bpe_tokenizer._side_files_to_replace
files_to_save = bpe_tokenizer._files_to_save
tokenizer_json = bpe_tokenizer._tokenizer_json
tokenizer_layout = bpe_tokenizer._tokenizer_layout
steps = bpe_tokenizer._steps
config_json = bpe_tokenizer._config_json
post_processor_json = bpe_tokenizer._post_processor_json
pre_tokenizer_json = bpe_tokenizer._pre_tokenizer_json
rebuild = bpe_tokenizer._rebuild
read_parts = bpe_tokenizer._read_parts

# BPE over characters
Text = bpe_tokenizer._StepText
Find = bpe_tokenizer._Find
Makers = bpe_tokenizer._Makers
prepended = bpe_tokenizer._prepended
splits = bpe_tokenizer._splits
read_behavior = bpe_tokenizer._read_behavior
read_split = bpe_tokenizer._read_split
Metaspace = bpe_tokenizer._Metaspace
NORMALIZER_MAKERS = bpe_tokenizer._NORMALIZER_MAKERS
PRE_TOKENIZER_MAKERS = bpe_tokenizer._PRE_TOKENIZER_MAKERS
DECODER_MAKERS = bpe_tokenizer._DECODER_MAKERS
Place = bpe_tokenizer._Place
Spelling = bpe_tokenizer._Spelling
ONE_BY_ONE = bpe_tokenizer._ONE_BY_ONE
strip_start = bpe_tokenizer._strip_start
Decoder = bpe_tokenizer._Decoder
Chain = bpe_tokenizer._Chain
CharacterEncoder = bpe_tokenizer._CharacterEncoder
MODEL_OPTIONS = bpe_tokenizer._MODEL_OPTIONS
read_components = bpe_tokenizer._read_components

# Conversations
CHAT_ROLES = bpe_tokenizer._CHAT_ROLES
BUILT_IN = bpe_tokenizer._BUILT_IN
BUILT_IN_OPTIONS = bpe_tokenizer._BUILT_IN_OPTIONS
ALL_TURNS = bpe_tokenizer._ALL_TURNS
SYSTEM_ROLES = bpe_tokenizer._SYSTEM_ROLES
THOUGHTS = bpe_tokenizer._THOUGHTS
TO_CONTINUE = bpe_tokenizer._TO_CONTINUE
check_messages = bpe_tokenizer._check_messages
copy_data = bpe_tokenizer._copy_data
with_thoughts = bpe_tokenizer._with_thoughts
find_template = bpe_tokenizer._find_template
select_template = bpe_tokenizer._select_template
with_all_turns = bpe_tokenizer._with_all_turns
take_variables = bpe_tokenizer._take_variables
token_variables = bpe_tokenizer._token_variables
segments_with = bpe_tokenizer._segments_with
render = bpe_tokenizer._render
render_with = bpe_tokenizer._render_with
plain_text = bpe_tokenizer._plain_text
put_mark = bpe_tokenizer._put_mark
cut_at_mark = bpe_tokenizer._cut_at_mark
without_sanitizing = bpe_tokenizer._without_sanitizing
check_control = bpe_tokenizer._check_control
check_written = bpe_tokenizer._check_written
ASSISTANTS = bpe_tokenizer._ASSISTANTS
marking_generator = bpe_tokenizer._marking_generator
compile_in = bpe_tokenizer._compile_in
missing_control = bpe_tokenizer._missing
spells_text = bpe_tokenizer._spells_text
has_safe_sandbox = bpe_tokenizer._has_safe_sandbox
SegmentEncoder = bpe_tokenizer._SegmentEncoder
encode_segments = bpe_tokenizer._encode_segments
conversations = bpe_tokenizer._conversations
apply_template = bpe_tokenizer._apply_template
newest = bpe_tokenizer._newest
mask = bpe_tokenizer._mask

# Models
Sampling = bpe_tokenizer._Sampling
ModelFiles = bpe_tokenizer._ModelFiles
IR = bpe_tokenizer._IR
TOKENIZER_NAMES = bpe_tokenizer._TOKENIZER_NAMES
GGUF_SHARD = bpe_tokenizer._GGUF_SHARD
ModelConfig = bpe_tokenizer._ModelConfig
models_near = bpe_tokenizer._models_near
no_model = bpe_tokenizer._no_model
gguf_files = bpe_tokenizer._gguf_files
ir_weights = bpe_tokenizer._ir_weights
valid_ids = bpe_tokenizer._valid_ids
checked_rows = bpe_tokenizer._checked_rows
has_tokenizer = bpe_tokenizer._has_tokenizer
safetensors_files = bpe_tokenizer._safetensors_files
safetensors_header = bpe_tokenizer._safetensors_header
read_safetensors = bpe_tokenizer._read_safetensors
describe_model = bpe_tokenizer._describe
Loading = bpe_tokenizer._Loading
Runner = bpe_tokenizer._Runner
LlamaCpp = bpe_tokenizer._LlamaCpp
Mlx = bpe_tokenizer._Mlx
OpenVino = bpe_tokenizer._OpenVino
Transformers = bpe_tokenizer._Transformers
until = bpe_tokenizer._until
misfit = bpe_tokenizer._misfit
Reply = bpe_tokenizer._Reply
until_stop = bpe_tokenizer._until_stop
CHAT_OPTIONS = bpe_tokenizer._CHAT_OPTIONS
check_options = bpe_tokenizer._check_options
check_timeout = bpe_tokenizer._check_timeout
choices = bpe_tokenizer._choices
cannot_use = bpe_tokenizer._cannot_use

# The command line
PROGRAM = bpe_tokenizer._PROGRAM
Parser = bpe_tokenizer._Parser
build_parser = bpe_tokenizer._build_parser
Command = bpe_tokenizer._Command
COMMANDS = bpe_tokenizer._COMMANDS
UsageError = bpe_tokenizer._UsageError
TOKENIZER = bpe_tokenizer._TOKENIZER
one_line = bpe_tokenizer._one_line
tell = bpe_tokenizer._tell
printable = bpe_tokenizer._printable
check_writable = bpe_tokenizer._check_writable
stdin_text = bpe_tokenizer._stdin_text
parse_special_token = bpe_tokenizer._parse_special_token
import_optional = bpe_tokenizer._import_optional

# Steps of a tokenizer
allowed = BPETokenizer._allowed
asked_around = BPETokenizer._asked_around
is_simple = BPETokenizer._is_simple
normalized = BPETokenizer._normalized
rest = BPETokenizer._rest
adopt = BPETokenizer._adopt
from_parts = BPETokenizer._from_parts


def changed_characters() -> list[tuple[int, int, str]]:
    """Return the runs of characters that the installed `regex` takes for others."""
    return [*bpe_tokenizer._unicode().changed]


def can_tell(written: str) -> bool:
    """Return whether a class means the same here with every release of `regex`."""
    return bpe_tokenizer._unicode().can_tell(written)


def frozen(tokenizer: BPETokenizer) -> BPETokenizer:
    """Return a tokenizer's state now, for a call of several steps: other threads may change it."""
    return tokenizer._now


def engine() -> bpe_tokenizer._Engine:
    """Return the engine in use, in C or in Python."""
    return bpe_tokenizer._engine


def engine_in_c() -> Any:
    """Return the module that calls the accelerator; None if the engine in use is Python's."""
    if engine().learner is MergeLearner:
        return None
    from _bpe_tokenizer import engine as in_c

    return in_c


def recognized(tokenizer: BPETokenizer, allowed: frozenset[str]) -> list[bpe_tokenizer.AddedToken]:
    """Return the added tokens to look for: of special ones, those `allowed`."""
    return bpe_tokenizer._recognized(tokenizer._definition, allowed)


def tokenizer_json_of(tokenizer: BPETokenizer) -> dict[str, Any]:
    """Return the content of tokenizer.json."""
    given = tokenizer._definition, around_elsewhere(tokenizer), tokenizer._settings
    return bpe_tokenizer._tokenizer_json(*given)


def pipeline(tokenizer: BPETokenizer, allowed: frozenset[str]) -> bpe_tokenizer._Pipeline:
    """Return the pipeline that prepares text and recognizes only these special tokens."""
    return tokenizer._pipeline(allowed)


def tokenizer_of(result: Any) -> BPETokenizer | None:
    """Return the tokenizer that made an `EncodingResult`, in its state then, or None."""
    source = vars(result).get("_source")
    return source and cast("BPETokenizer", source.tokenizer)


def encoder(tokenizer: BPETokenizer) -> bpe_tokenizer._Encoder:
    """Return a tokenizer's encoder."""
    return tokenizer._encoder


def cutter(tokenizer: BPETokenizer) -> Callable[[str], list[str]]:
    """Return a function that cuts prepared text into the pieces that are encoded on their own."""
    return tokenizer._encoder._split


def pretoken_encoder(tokenizer: BPETokenizer) -> Callable[[str], list[int]]:
    """Return a function that encodes a pre-token; if byte-level, with the Python engine only."""
    if tokenizer.components is None:
        return lambda pretoken: tokenizer._encoder._encode_pretoken(pretoken.encode())
    return cast("Any", tokenizer._encoder).encode_pretoken  # type: ignore[no-any-return]


def symbols(tokenizer: BPETokenizer) -> Callable[[bytes], list[int]]:
    """Return a function from a pre-token to the ids that merging starts from.

    Raises:
        ValueError: merging goes through tokens that have no id.
    """
    if tokenizer.components is None:
        byte_ids = [tokenizer.definition.vocab[bytes([byte])] for byte in range(256)]
        return lambda pretoken: [byte_ids[byte] for byte in pretoken]
    if tokenizer.components["model"].get("all_merges"):
        raise ValueError(
            "this vocabulary has no ids for some tokens that its merges make, which this needs; "
            "train one that has them all: train(..., style='words')"
        )
    found = cast("Any", tokenizer._encoder)._symbols
    return lambda pretoken: [id_ for id_, _ in found(pretoken.decode())]


def remade(tokenizer: BPETokenizer, definition: bpe_tokenizer.Definition) -> BPETokenizer:
    """Return a copy of a tokenizer with another definition."""
    return tokenizer._from_parts(definition, *tokenizer._rest(), Path())


def derived(tokenizer: BPETokenizer, derive: Callable[..., Any]) -> Any:
    """Return a function's result for a tokenizer's encoder and definition, computed once."""
    return tokenizer._derived(derive)


def tokens(tokenizer: BPETokenizer) -> Mapping[int, bytes]:
    """Return all tokens by id, including added ones."""
    return tokenizer._id_to_bytes


def contents(tokenizer: BPETokenizer) -> Mapping[int | None, str]:
    """Return the added tokens by id."""
    return tokenizer._contents


def added(tokenizer: BPETokenizer) -> Mapping[str, bpe_tokenizer.AddedToken]:
    """Return the added tokens by content."""
    return tokenizer._added


def around(tokenizer: BPETokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that ``add_special_tokens`` puts before and after a text."""
    return tokenizer._around


def around_elsewhere(tokenizer: BPETokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that other libraries put around a text, if they load what is saved."""
    return bpe_tokenizer._added_elsewhere(tokenizer)


def offsets(
    tokenizer: BPETokenizer, text: str, allowed: Any, trimmed: bool = True
) -> list[tuple[int, int]]:
    """Return the (start, end) in characters of each id of a text."""
    return bpe_tokenizer._offsets(tokenizer, text, tokenizer._allowed(allowed, (), [text]), trimmed)


def roles(tokenizer: BPETokenizer) -> dict[str, str]:
    """Return which token has which role, such as "eos_token"."""
    return tokenizer._roles


def path(tokenizer: BPETokenizer) -> Path:
    """Return the file or directory that a tokenizer was read from; an empty path for none."""
    return tokenizer._path


def settings(tokenizer: BPETokenizer) -> dict[str, Any]:
    """Return lengths, sides, truncation, padding and the like."""
    return {key: value for key, value in tokenizer._settings.items() if key != "files"}


def further_keys(tokenizer: BPETokenizer) -> dict[str, Any]:
    """Return what tokenizer_config.json had that this library only keeps."""
    given = tokenizer._definition, tokenizer._roles
    config, _ = bpe_tokenizer._config_json(*given, tokenizer._settings, tokenizer.chat_templates)
    own, _ = bpe_tokenizer._new_config(*given, {})
    known = {*own, *ROLES, *bpe_tokenizer._KEPT_SETTINGS, "chat_template", "surround"}
    return {key: value for key, value in config.items() if key not in known}
