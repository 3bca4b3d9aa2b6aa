r"""Split patterns as files write them, and the accelerator's scanners that cut the same way.

One pattern is written in many ways: with possessive quantifiers or without, with
``\s*[\r\n]`` for ``\s*[\r\n]+``, and so on.  `SPELLINGS` lists equivalent spellings
in use, so that a scanner written for one serves all of them.

Similar patterns need not be equal: cl100k's differs from Llama 3's at white space that
ends the text, and llama.cpp's ``[sS]`` is not ``(?i:s)``, which also matches U+017F.
tests/patterns/test_split_patterns.py compares each spelling with its pattern.
"""

from __future__ import annotations

from bpe_tokenizer import SPLIT_PATTERNS

# Other patterns in use that have a scanner.
MORE_PATTERNS: dict[str, str] = {
    # github.com/karpathy/nanochat, nanochat/tokenizer.py
    "nanochat": SPLIT_PATTERNS["llama3"].replace("{1,3}", "{1,2}"),
    # StarCoder, Command R, SmolLM: digits are cut out one by one, and what is left is cut by
    # GPT-2's pattern.  Here in one: white space before a digit is as at the end of a text.
    "starcoder": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+",
    # SentencePiece's words, where formats.component_twin has written them with spaces
    "spaces": r" *[^ ]+| +",
}

# SentencePiece's words as training.sentencepiece cuts them: a pattern, from what begins a word
words_from = r"[{0}][^{0}\r\n]*|[^{0}\r\n]+|[\r\n]+".format

# All end with the parts common to patterns since cl100k.
_POSSESSIVE = r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"  # minbpe and nanochat
_ALL_POSSESSIVE = r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]|\s+(?!\S)|\s"
_WORDS = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|"
_ALL_WORDS = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|"

# r50k_base and p50k_base of tiktoken: since 0.8, and before.  The `\s++$` of the first adds
# nothing: where white space ends the text, `\s+(?!\S)` takes all of it, too.
R50K_SPELLINGS = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
)

SPELLINGS: dict[str, str] = {
    **{pattern: name for name, pattern in (*SPLIT_PATTERNS.items(), *MORE_PATTERNS.items())},
    **dict.fromkeys(R50K_SPELLINGS, "gpt2"),
    R50K_SPELLINGS[0].replace("$", r"\Z"): "gpt2",  # how Rust's `$` is written here
    # as the comment beside them in tiktoken has it
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    # cl100k_base, with Rust's `$`, and as HuggingFace's engine needs it
    SPLIT_PATTERNS["cl100k"].replace("$", r"\Z"): "cl100k",
    SPLIT_PATTERNS["cl100k"].replace("{1,3}+", "{1,3}"): "cl100k",
    SPLIT_PATTERNS["cl100k"].replace("{1,3}+", "{1,3}").replace("$", r"\Z"): "cl100k",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|(?>\p{N}{1,3})"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\Z|\s*[\r\n]|\s+(?!\S)|\s": "cl100k",
    # minbpe's and rustbpe's "GPT-4" pattern lacks the `\s++$` of cl100k, and so is not that.
    _WORDS + r"\p{N}{1,3}" + _POSSESSIVE: "llama3",
    _ALL_WORDS + r"\p{N}{1,3}+" + _ALL_POSSESSIVE: "llama3",
    _ALL_WORDS + r"(?>\p{N}{1,3})" + _ALL_POSSESSIVE: "llama3",
    # Ling and LLaDA-MoE
    _WORDS + r"\p{N}" + _POSSESSIVE: "qwen2",
    _WORDS + r"\p{N}{1,2}" + _POSSESSIVE: "nanochat",
}

# Families of `formats.families` that cut in several steps, and the pattern that cuts so in one.
IN_ONE_STEP: dict[str, str] = {
    "deepseek-v3": SPLIT_PATTERNS["deepseek-v3"],
    "starcoder": MORE_PATTERNS["starcoder"],
}
