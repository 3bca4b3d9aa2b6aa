"""The pre-tokenizers that GGUF files name.

A GGUF file does not contain the regular expressions that cut text before merging;
its key ``tokenizer.ggml.pre`` names a model family instead.  `FAMILIES` has one
entry for each name that llama.cpp knows for BPE, except "default": the steps in
that model's own tokenizer.json.

Sources: the names, the flags, and which model each name belongs to are facts of
llama.cpp (src/llama-vocab.cpp and convert_hf_to_gguf_update.py, as vendored by
llama-cpp-python 0.3.36).  Patterns are those of the models' own files: tiktoken
(openai_public.py), tekken.json, tokenization_kimi.py, transformers
(tokenization_qwen2.py, _qwen3_5.py, _cohere.py, _gpt_neox.py) and tokenizer.json
files, some of them quoted in comments of llama.cpp.

llama.cpp itself runs approximations of several: its engine ignores case in ASCII only, and
some of its letter sets leave out combining marks.  When reading a file, the models' own
definitions count; `Family.in_llama_cpp` has what llama.cpp does instead, without two things
it does everywhere: ``[sS]`` for ``(?i:s)``, which also matches U+017F, and no normalization.
A comment marks patterns that are known from llama.cpp only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bpe_tokenizer import GPT2_SPLIT_PATTERN, SPLIT_PATTERNS
from bpe_tokenizer_tools import core

Component = dict[str, Any]


def steps_of(component: Any) -> list[Component]:
    """List pre-tokenizers in one form: flat, without options that don't change ids."""
    if not component:
        return []
    if component.get("type") == "Sequence":
        return [step for inner in component.get("pretokenizers") or () for step in steps_of(inner)]
    # NOTE: inverting changes nothing for Isolated, the one behavior of all families.
    return [
        {key: value for key, value in component.items() if key not in ("trim_offsets", "invert")}
    ]


@dataclass(frozen=True)
class Family:
    """The meaning of a name in ``tokenizer.ggml.pre``.

    Attributes:
        steps: the pre-tokenizers, in order; empty where `escapes_spaces`.
        normalizer: "NFC" or None.
        ignore_merges: a pre-token that is a token needs no merges.
        add_bos: whether text gets the bos token if the file doesn't say.
        escapes_spaces: not byte-level: spaces are written "▁", text is not cut,
            and characters without a token become ``<0xNN>`` tokens.
        in_llama_cpp: the steps of llama.cpp where it only approximates the
            model; None if it gives the same ids.  tests/formats/test_gguf.py shows both.
        example: a text that llama.cpp splits differently from the model.
    """

    steps: tuple[Component, ...]
    normalizer: str | None = None
    ignore_merges: bool = False
    add_bos: bool = False
    escapes_spaces: bool = False
    in_llama_cpp: Family | None = None
    example: str = ""

    def pre_tokenizer(self) -> Component | None:
        """Return the steps in the form of tokenizer.json."""
        if len(self.steps) < 2:
            return self.steps[0] if self.steps else None
        return {"type": "Sequence", "pretokenizers": list(self.steps)}


def split(pattern: str) -> Component:
    """Return the step that cuts around the matches of a regular expression."""
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def _byte_level(use_regex: bool) -> Component:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


BYTES = _byte_level(False)
_GPT2 = _byte_level(True)  # cuts by GPT-2's pattern, then writes bytes
_DIGIT_BY_DIGIT = {"type": "Digits", "individual_digits": True}


def _splits(*patterns: str) -> tuple[Component, ...]:
    return (*map(split, patterns), BYTES)


def pattern_steps(pattern: str, written: str) -> tuple[Component, ...]:
    """Return the steps for one split pattern, given for `regex` and for Oniguruma."""
    return (_GPT2,) if pattern == GPT2_SPLIT_PATTERN else _splits(written)


# -- Patterns -----------------------------------------------------------------

_LLAMA3 = SPLIT_PATTERNS["llama3"]
_QWEN2 = SPLIT_PATTERNS["qwen2"]
_QWEN35 = SPLIT_PATTERNS["qwen3.5"]
_O200K = SPLIT_PATTERNS["o200k"]
_TEKKEN = SPLIT_PATTERNS["tekken"]
_CONTRACTIONS, _END = core.CONTRACTIONS, core.END

_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_NO_HAN = r"&&[^\p{Han}]"
KIMI = (
    r"[\p{Han}]+"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}{_NO_HAN}]*[{_LOWER}{_NO_HAN}]+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}{_NO_HAN}]+[{_LOWER}{_NO_HAN}]*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _END
)
_JAIS2 = (
    _LLAMA3[: _LLAMA3.index(r"|\s+(?!\S)")]
    + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
    + r"|\s{1}"
)
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED_CODER = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}" + "\r\n" + r"]+"
    r"|\s*[" + "\r\n" + r"]+|\s+(?!\S)|\s+"
)
_EXAONE_MOE = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
# Bloom's own has one bracket too many inside the set; Oniguruma reads it as this.
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"

# DeepSeek.  All share the ASCII signs and the runs of Chinese and Japanese.
_DEEPSEEK3 = core.STEPS[SPLIT_PATTERNS["deepseek-v3"]]
_WORDS_AND_SIGNS = _DEEPSEEK3[2].removesuffix(r"[\r\n]*" + _END)
_CJK = "[一-龥ࠀ-一가-퟿]+"
_DEEPSEEK_LETTERS = (  # those with upper and lower case
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)

# -- Steps --------------------------------------------------------------------

_DIGITS_THEN_GPT2 = (_DIGIT_BY_DIGIT, _GPT2)  # StarCoder, Command R, SmolLM
_FALCON = (  # the bytes are written in the middle, and cut again after that
    {"type": "Punctuation", "behavior": "Contiguous"},
    _GPT2,
    {"type": "Digits", "individual_digits": False},
    split("[0-9][0-9][0-9]"),
)
_DEEPSEEK_LLM = (
    split("[\r\n]"),
    split(rf"\s?[{_DEEPSEEK_LETTERS}]+"),
    split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
    split(r"\s+$"),
    split(_CJK),
    _DIGIT_BY_DIGIT,
    BYTES,
)
_DEEPSEEK_CODER = (
    split("[\r\n]"),
    split(r"\s?\p{L}+"),
    split(r"\s?\p{P}+"),
    split(_CJK),
    _DIGIT_BY_DIGIT,
    BYTES,
)
_CHAMELEON = (
    *map(
        split,
        (
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
        ),
    ),
    _GPT2,
)
# The last three are known from llama.cpp only.
_O200K_ONLY = _splits(_O200K)
_TINY_AYA = _splits(r"\d{1,3}(?=(?:\d{3})*\b)", _O200K)
_YOUTU = _splits(
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
    _O200K.replace(r"\p{N}{1,3}", r"\p{N}"),
)
_AFMOE = _splits(
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",  # what llama.cpp does by hand
    "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
    _DEEPSEEK3[2],
)
# What llama.cpp runs instead, as its engine ignores case in ASCII only, and
# combining marks are letters only if they are named.
_ASCII_CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_ASCII_CASE = (
    r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+CONTRACTIONS?"
    r"|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*CONTRACTIONS?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _END
)
_GPT4O_THERE = _ASCII_CASE.replace("CONTRACTIONS", _ASCII_CONTRACTIONS)
_GRANITE_THERE = _GPT4O_THERE.replace(r"[\p{L}]", r"[\p{L}\p{M}]")
_TEKKEN_THERE = _ASCII_CASE.replace("CONTRACTIONS?", "").replace("{1,3}", "")
_CASELESS = (
    _O200K.replace(rf"[{_UPPER}]", r"[\p{L}\p{M}]")
    .replace(rf"[{_LOWER}]", r"[\p{L}\p{M}]")
    .replace(_CONTRACTIONS, _ASCII_CONTRACTIONS)
)
_BY_THREES_THERE = r"\P{N}*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"  # with what is before a number
_HAN_THERE = (
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0002a6df\U0002a700-\U0002ebef\U0002f800-\U0002fa1f"
)
_KIMI_THERE = (
    rf"[{_HAN_THERE}]+|[^\r\n\p{{L}}\p{{N}}]?(?:(?![{_HAN_THERE}])\p{{L}})+{_ASCII_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _END
)
_CJK_THERE = rf"(?:(?!\s){_CJK[:-1]})+"
_DEEPSEEK_LLM_THERE = (
    *_DEEPSEEK_LLM[:2],
    split(r"\s?(?:(?!\u3000)[!-/:-~！-／：-～‘-‟　-。])+"),
    _DEEPSEEK_LLM[3],
    split(_CJK_THERE),
    split(r"\p{N}+"),
    BYTES,
)
_DEEPSEEK_CODER_THERE = (*_DEEPSEEK_CODER[:3], split(_CJK_THERE), split(r"\p{N}"), BYTES)
_FALCON_THERE = _splits(r"[\p{P}$+<=>\^~|`]+", GPT2_SPLIT_PATTERN, "[0-9][0-9][0-9]")
_SUPERBPE_THERE = _splits(r"\p{N}+", r"(?=([0-9]{3})+(?![0-9]))")
_YOUTU_THERE = (_YOUTU[0], split(_CASELESS.replace("{1,3}", "")), BYTES)
_SPARK = _splits(*_DEEPSEEK3[:2], _WORDS_AND_SIGNS + r"|[\r\n]|\s+(?!\S)|\s+", r"\p{N}")


def _approximated(
    steps: tuple[Component, ...],
    there: tuple[Component, ...],
    example: str,
    ignore_merges: bool = False,
    add_bos: bool = False,
) -> Family:
    """Return a family that llama.cpp only approximates, by other steps."""
    in_llama_cpp = Family(there, None, ignore_merges, add_bos)
    return Family(steps, None, ignore_merges, add_bos, False, in_llama_cpp, example)


# When writing a tokenizer, the first of equal families is used.
_FAMILIES = (
    # GPT-2's pattern; those after the first three are known from llama.cpp alone.
    ("gpt-2 phi-2 roberta-bpe", Family((_GPT2,))),
    ("jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code", Family((_GPT2,))),
    ("gigachat a.x-4.0 mellum exaone4 jais trillion granite-docling", Family((_GPT2,))),
    # GPT-NeoX's tokenizer and its derivatives.
    ("mpt olmo modern-bert", Family((_GPT2,), "NFC")),
    (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        Family(_splits(_LLAMA3), ignore_merges=True, add_bos=True),
    ),
    # Llama 3's pattern with merges.  Of cl100k's own, these models' files lack
    # `\s++$`, and what is left of it cuts as Llama 3's does.
    ("dbrx smaug-bpe chatglm-bpe", Family(_splits(_LLAMA3))),
    ("glm4 glm5", Family(_splits(_LLAMA3), ignore_merges=True)),
    ("qwen2 deepseek-r1-qwen f2llmv2 stablelm2 megrez grok-2", Family(_splits(_QWEN2), "NFC")),
    # Qwen 2's pattern, known from llama.cpp alone.
    ("hunyuan solar-open kormo", Family(_splits(_QWEN2))),
    ("qwen35", Family(_splits(_QWEN35), "NFC")),
    (
        "gpt-4o llama4 kanana2 talkie minimax-m2",
        _approximated(_O200K_ONLY, _splits(_GPT4O_THERE), "ÁS"),
    ),
    (
        "granite-embed-multi-97m",
        _approximated(_O200K_ONLY, _splits(_GRANITE_THERE), "ÁS", ignore_merges=True),
    ),
    (
        "tiny_aya cohere2moe",
        _approximated(_TINY_AYA, _splits(_BY_THREES_THERE, _CASELESS), "iPhone"),
    ),
    (
        "tekken",
        _approximated(
            _splits(_TEKKEN), _splits(_TEKKEN_THERE), "ÁS", ignore_merges=True, add_bos=True
        ),
    ),
    # llama.cpp always merges here.
    (
        "kimi-k2",
        Family(
            _splits(KIMI),
            ignore_merges=True,
            in_llama_cpp=Family(_splits(_KIMI_THERE)),
            example="iPhone",
        ),
    ),
    ("deepseek-llm", _approximated(_DEEPSEEK_LLM, _DEEPSEEK_LLM_THERE, "12")),
    ("deepseek-coder", _approximated(_DEEPSEEK_CODER, _DEEPSEEK_CODER_THERE, "\u3000a")),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", Family(_splits(*_DEEPSEEK3))),
    ("spark2_5", Family(_SPARK)),
    ("falcon", _approximated(_FALCON, _FALCON_THERE, "a 1")),
    ("starcoder refact smollm codeshell exaone minerva-7b mellum2", Family(_DIGITS_THEN_GPT2)),
    ("command-r", Family(_DIGITS_THEN_GPT2, "NFC")),
    ("bloom poro-chat gpt3-finnish", Family(_splits(_BLOOM))),
    ("viking", Family((split(_BLOOM), _DIGIT_BY_DIGIT, BYTES))),
    ("bailingmoe bailingmoe2 llada-moe", Family(_splits(_BAILING))),
    ("seed-coder", Family(_splits(_SEED_CODER))),
    ("exaone-moe", Family(_splits(_EXAONE_MOE))),
    ("jais-2", Family(_splits(_JAIS2))),
    ("chameleon", Family(_CHAMELEON, add_bos=True)),
    ("superbpe", _approximated(_splits(r"\p{N}+", r"(?=(\d{3})+(?!\d))"), _SUPERBPE_THERE, "٣٣٣٣")),
    ("youtu", _approximated(_YOUTU, _YOUTU_THERE, "iPhone", ignore_merges=True)),
    ("afmoe", _approximated(_AFMOE, (split(_BY_THREES_THERE), *_AFMOE[1:]), "\u200b1")),
    ("laguna", Family(_splits(r"[^\n]+|[\n]+", _QWEN2))),  # known from llama.cpp alone
    ("ufakzeka", Family(_splits(_QWEN2[len(_CONTRACTIONS) + 1 :]))),  # the same
    (
        "minicpm5",
        Family(
            _splits(r"\p{N}{1,3}", _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")), ignore_merges=True
        ),
    ),
    ("gemma4 granite-embed-multi-311m", Family((), add_bos=True, escapes_spaces=True)),
    ("sarvam-moe", Family((), escapes_spaces=True)),
)
FAMILIES: Mapping[str, Family] = {
    name: family for names, family in _FAMILIES for name in names.split()
}
