"""Small tokenizer.json files of every kind in use, made through the `tokenizers` library.

Each family below has the components of one public model's own tokenizer.json, unchanged;
only the vocabulary is small, trained here on a page of mixed text.  `build`
returns the file as plain data.  `probe` makes a file that shows where its components cut.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers, trainers

from bpe_tokenizer import BPETokenizer

Json = dict[str, Any]
PostProcessor = Callable[[Mapping[str, int]], Any]

CORPUS = [
    "The quick brown fox jumps over the lazy dog; the dog's owner didn't see that it wasn't well.",
    "We'll say it again: they're here, you've been told, I'd go, I'm sure. THE END. Don't! DON'T!",
    "Tokenizers split text into tokens, and tokens into numbers; numbers come back as the text.",
    "In 2024 there were 1234567 people, 3.14159 of them counted 007 times: 10, 100, 1000, 10000.",
    "def tokenise(text):\n    for i in range(10):\n\t\tprint(text[i], end='')  # ok\n    return 0",
    'int main(void) {\r\n\tfor (int i = 0; i < 10; ++i) {\r\n\t\tputs("x");\r\n\t}\r\n}\r\n\r\n',
    "<div class='a'>&nbsp;</div> https://example.org/a/b?c=d&e=f <|x|> [INST] {} () a@b.c #1 $5",
    "Grüße aus Köln! Crème brûlée, naïve façade, Ångström, señor, coração, Łódź, İstanbul, straße",
    "Cre\u0301me e\u0301te\u0301 n\u0303 o\u0308 A\u030a \u1100\u1161\u11a8 \ufb01ne \u2460 \u00bd",
    "世界你好,今天天气很好。我们一起去学校吧!中文分词、日本語のテキスト、カタカナ、ひらがな。",
    "東京は日本の首都です。한국어 문장도 있습니다. 안녕하세요 세계. 漢字かな交じり文𠮷野家",
    "Привет, мир! Как дела? Всё хорошо. Ελληνικά ΟΔΟΣ οδός Σίσυφος. ქართული ენა",
    "مرحبا بالعالم، كيف حالك؟ ١٢٣٤ نص عربي. שלום עולם, מה שלומך? नमस्ते दुनिया १२३ हिन्दी पाठ",
    "สวัสดีชาวโลก ภาษาไทย ไม่มีช่องว่าง 🙂🙂 👍🏽 👨‍👩‍👧 🇩🇪🇫🇷 ❤️ 😀😃😄 ½ ² ³ Ⅷ ① ٣",
    "  two   three    four     spaces\t\ttabs\n\n\nlines\n \n  \r\n end  \u3000wide\u00a0hard ",
]

# -- Components, spelled as the library writes them --------------------------------------------


def split(
    pattern: str, behavior: str = "Isolated", invert: bool = False, kind: str = "Regex"
) -> Json:
    return {
        "type": "Split",
        "pattern": {kind: pattern},
        "behavior": behavior,
        "invert": invert,
    }


def byte_level(prefix: bool = False, trim: bool = True, **rest: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, **rest}


def normalizers(*steps: Any) -> Json:
    return {"type": "Sequence", "normalizers": list(map(named, steps))}


def pretokenizers(*steps: Any) -> Json:
    return {"type": "Sequence", "pretokenizers": list(map(named, steps))}


def decoders(*steps: Any) -> Json:
    return {"type": "Sequence", "decoders": list(map(named, steps))}


def named(step: Any) -> Json:
    """Accept a component without settings by its name alone."""
    return {"type": step} if isinstance(step, str) else step


def replace(old: str, new: str, kind: str = "String") -> Json:
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def digits(individual: bool) -> Json:
    return {"type": "Digits", "individual_digits": individual}


def punctuation(behavior: str = "Isolated") -> Json:
    return {"type": "Punctuation", "behavior": behavior}


def metaspace(scheme: str, split: bool = True) -> Json:
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def strip(content: str, start: int, stop: int) -> Json:
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


def template(before: str = "", after: str = "") -> PostProcessor:
    """Put tokens around a text, as Llama and Gemma (before) or OLMo (after) do."""

    def make(ids: Mapping[str, int]) -> Json:
        def special(token: str, type_id: int) -> list[Json]:
            return [{"SpecialToken": {"id": token, "type_id": type_id}}] if token else []

        def part(name: str, type_id: int) -> list[Json]:
            sequence = [{"Sequence": {"id": name, "type_id": type_id}}]
            return special(before, type_id) + sequence + special(after, type_id)

        tokens = sorted({token for token in (before, after) if token})
        return {
            "type": "TemplateProcessing",
            "single": part("A", 0),
            "pair": part("A", 0) + part("B", 1),
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in tokens
            },
        }

    return make


def bert_like(kind: str, cls: str, sep: str, **rest: bool) -> PostProcessor:
    return lambda ids: {"type": kind, "sep": [sep, ids[sep]], "cls": [cls, ids[cls]], **rest}


def processors(*steps: PostProcessor) -> PostProcessor:
    return lambda ids: {"type": "Sequence", "processors": [step(ids) for step in steps]}


def always(step: Any) -> PostProcessor:
    return lambda ids: step


def token(content: str, special: bool = True, **flags: bool) -> Json:
    known = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"content": content, **known, **flags, "special": special}


def tokens(*contents: str, special: bool = True, **flags: bool) -> list[Json]:
    return [token(content, special, **flags) for content in contents]


# -- What the models' own files hold -----------------------------------------------------------

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN3_5 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K_POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDINGS}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDINGS}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = O200K.replace(_ENDINGS, "").replace("{1,3}", "")
_KIMI_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_KIMI_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI = "|".join(
    [
        r"[\p{Han}]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_KIMI_UPPER}*{_KIMI_LOWER}+{_ENDINGS}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_KIMI_UPPER}+{_KIMI_LOWER}*{_ENDINGS}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_LLM_LETTERS = (
    "\\s?[A-Za-zµÀ-ÖØ-öø-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    "\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"
    "\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943]+"
)
DEEPSEEK_LLM_MARKS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
COHERE2 = r"\d{1,3}(?=(?:\d{3})*\b)"
SUPERBPE = r"(?=(\d{3})+(?!\d))"
CLIP = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d"
    r"|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)
WHITE_RUNS = tokens(*(" " * n for n in range(24, 1, -1)), special=False, normalized=True)
TAB_RUNS = tokens(*("\t" * n for n in range(9, 1, -1)), special=False, normalized=True)
PLAIN_BYTES = byte_level(False, True, use_regex=False)
LLAMA2_DECODER = decoders(replace("▁", " "), "ByteFallback", "Fuse", strip(" ", 1, 0))
LLAMA2_MODEL = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
LLAMA2_TOKENS = tokens("<unk>", "<s>", "</s>")
DEEPSEEK_TOKENS = [
    *tokens("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"),
    *tokens(
        "<｜fim▁hole｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", special=False, normalized=True
    ),
]


@dataclass(frozen=True)
class Family:
    """The components of one kind of tokenizer.json.

    Attributes:
        alphabet: "bytes", all 256 of the byte alphabet; "text", the characters that are
            frequent in the training text, so some are unknown.
        model: fields of the model that differ from the library's defaults.
        first: whether special tokens take the first ids and are in the vocabulary; otherwise
            they follow the other tokens and are not.
        whole: tokens that no merge makes, such as conversions from other formats contain.
        omit: fields that older files do not have, "." between levels.
        old_merges: whether merges are written "a b".
        n_merges: how many merges to learn.
        more_merges: merges that the training below cannot find.
        trained_with: the normalizer and pre-tokenizer to train with, if they differ.
    """

    pre_tokenizer: Any
    normalizer: Any = None
    decoder: Any = field(default_factory=lambda: byte_level(True, True))
    post_processor: PostProcessor = always(None)
    added: list[Json] = field(default_factory=lambda: tokens("<|endoftext|>"))
    model: Json = field(default_factory=dict)
    alphabet: str = "bytes"
    first: bool = False
    whole: tuple[str, ...] = ("Ġtokenizers", "Ġquick", "ĠĠĠĠ", "123", "'ll", "çļĦ")
    omit: tuple[str, ...] = ()
    old_merges: bool = False
    n_merges: int = 260
    more_merges: tuple[tuple[str, str], ...] = ()
    trained_with: tuple[Any, Any] | None = None


GPT2_LIKE = byte_level(False, True)
LLAMA2 = Family(
    normalizer=normalizers({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")),
    pre_tokenizer=None,
    decoder=LLAMA2_DECODER,
    post_processor=template("<s>"),
    added=LLAMA2_TOKENS,
    model=LLAMA2_MODEL,
    alphabet="text",
    first=True,
    whole=("▁tokenizers",),
    more_merges=(("▁", "▁"), ("▁▁", "▁▁")),
    trained_with=(None, metaspace("always")),
)
GEMMA = Family(
    normalizer=replace(" ", "▁"),
    pre_tokenizer=split(" ", "MergedWithPrevious", kind="String"),
    decoder=decoders(replace("▁", " "), "ByteFallback", "Fuse"),
    post_processor=template("<bos>"),
    added=[
        *tokens("<pad>", "<eos>", "<bos>", "<unk>"),
        *tokens("<mask>", "<unused0>", "<start_of_turn>", "<end_of_turn>", special=False),
        *tokens("\n\n\n", "\n\n", "▁▁▁▁", "▁▁▁", "▁▁", "<h1>", "</h1>", special=False),
    ],
    model=LLAMA2_MODEL,
    alphabet="text",
    first=True,
    whole=("▁tokenizers", "\t\t"),
    more_merges=(("▁", "▁"), ("▁▁", "▁▁")),
    trained_with=(None, metaspace("never")),
)


def _split_bytes(*patterns: str) -> Json:
    return pretokenizers(*map(split, patterns), PLAIN_BYTES)


CHARACTERS = Family(
    pre_tokenizer=named("WhitespaceSplit"),
    decoder=None,
    added=tokens("[UNK]", "[CLS]", "[SEP]", "[PAD]"),
    model={"unk_token": "[UNK]"},
    alphabet="text",
    first=True,
    whole=("tokenizers", "quick"),
)

FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        GPT2_LIKE,
        post_processor=always(byte_level(True, False)),
        added=tokens("<|endoftext|>", normalized=True),
        model={"continuing_subword_prefix": "", "end_of_word_suffix": ""},
        omit=("model.byte_fallback", "model.ignore_merges", "model.type"),
        old_merges=True,
    ),
    "roberta": Family(
        GPT2_LIKE,
        post_processor=bert_like(
            "RobertaProcessing", "<s>", "</s>", trim_offsets=True, add_prefix_space=False
        ),
        added=[
            *tokens("<s>", "<pad>", "</s>", "<unk>", normalized=True),
            token("<mask>", lstrip=True),
        ],
        model={"continuing_subword_prefix": "", "end_of_word_suffix": ""},
        first=True,
    ),
    "bart with a prefix space": Family(
        byte_level(True, True, use_regex=True),
        post_processor=bert_like(
            "RobertaProcessing", "<s>", "</s>", trim_offsets=True, add_prefix_space=True
        ),
        added=[
            *tokens("<s>", "<pad>", "</s>", "<unk>", normalized=True),
            token("<mask>", lstrip=True),
        ],
        first=True,
    ),
    "llama 2": LLAMA2,
    "llama 2, written anew": dataclasses.replace(
        LLAMA2, normalizer=None, pre_tokenizer=metaspace("first", split=False)
    ),
    "llama 2, as first converted": dataclasses.replace(
        LLAMA2, added=tokens("<unk>", "<s>", "</s>", normalized=True)
    ),
    "llama 2, merging across words": dataclasses.replace(LLAMA2, trained_with=None, more_merges=()),
    "phi-3": dataclasses.replace(
        LLAMA2,
        added=[
            *LLAMA2_TOKENS,
            *tokens("<|endoftext|>", "<|assistant|>", "<|user|>", "<|end|>", rstrip=True),
        ],
    ),
    "mistral v0.3": dataclasses.replace(
        LLAMA2, added=[*LLAMA2_TOKENS, *tokens("[INST]", "[/INST]", "[TOOL_CALLS]")]
    ),
    "tekken": Family(
        _split_bytes(TEKKEN),
        post_processor=template("<s>"),
        added=tokens("<unk>", "<s>", "</s>", "[INST]", "[/INST]"),
        model={"ignore_merges": True},
        first=True,
    ),
    "llama 3": Family(
        _split_bytes(LLAMA3),
        post_processor=processors(
            always(byte_level(True, False, use_regex=True)), template("<|begin_of_text|>")
        ),
        added=tokens(
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
        ),
        model={"ignore_merges": True},
    ),
    "qwen 2": Family(
        _split_bytes(QWEN2),
        normalizer=named("NFC"),
        decoder=byte_level(False, False, use_regex=False),
        post_processor=always(byte_level(False, False, use_regex=False)),
        added=[
            *tokens("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
            *tokens("<tool_call>", "</tool_call>", special=False),
        ],
    ),
    "qwen 3.5": Family(
        _split_bytes(QWEN3_5),
        normalizer=named("NFC"),
        post_processor=always(byte_level(False, False, use_regex=False)),
        added=[*tokens("<|im_start|>", "<|im_end|>"), *tokens("<think>", special=False)],
    ),
    "deepseek v3": Family(
        _split_bytes(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_V3),
        normalizer=normalizers(),
        post_processor=always(byte_level(True, False, use_regex=True)),
        added=DEEPSEEK_TOKENS,
    ),
    "deepseek llm": Family(
        pretokenizers(
            *map(
                split,
                (r"[\r\n]", DEEPSEEK_LLM_LETTERS, DEEPSEEK_LLM_MARKS, r"\s+$", DEEPSEEK_CJK),
            ),
            digits(True),
            PLAIN_BYTES,
        ),
        normalizer=normalizers(),
        post_processor=template("<｜begin▁of▁sentence｜>"),
        added=DEEPSEEK_TOKENS,
    ),
    "deepseek coder": Family(
        pretokenizers(
            *map(split, (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK)),
            digits(True),
            PLAIN_BYTES,
        ),
        normalizer=normalizers(),
        post_processor=template("<｜begin▁of▁sentence｜>"),
        added=[*DEEPSEEK_TOKENS, *tokens("õ", "÷", "Á", "À", special=False, normalized=True)],
    ),
    "falcon": Family(
        pretokenizers(
            punctuation("Contiguous"),
            byte_level(False, True),
            digits(False),
            split("[0-9][0-9][0-9]"),
        ),
        added=[*tokens(">>TITLE<<", ">>ABSTRACT<<"), *tokens("<|endoftext|>", normalized=True)],
    ),
    "starcoder 2": Family(
        pretokenizers(digits(True), byte_level(False, True, use_regex=True)),
        added=tokens("<|endoftext|>", "<fim_prefix>", "<file_sep>", "<issue_start>"),
    ),
    "command-r": Family(
        pretokenizers(digits(True), byte_level(False, True)),
        normalizer=named("NFC"),
        post_processor=template("<BOS_TOKEN>"),
        added=[
            *tokens("<PAD>", "<BOS_TOKEN>", "<EOS_TOKEN>"),
            *tokens("<|START_OF_TURN_TOKEN|>", special=False),
        ],
        first=True,
    ),
    "olmo, gpt-neox": Family(
        byte_level(False, True, use_regex=True),
        normalizer=named("NFC"),
        post_processor=template(after="<|endoftext|>"),
        added=[
            *tokens("<|endoftext|>", "<|padding|>"),
            *WHITE_RUNS,
            *tokens("|||IP_ADDRESS|||", special=False, normalized=True),
        ],
    ),
    "phi-2": Family(
        byte_level(False, True, use_regex=True),
        post_processor=always(byte_level(True, False, use_regex=True)),
        added=[*tokens("<|endoftext|>", normalized=True), *WHITE_RUNS, *TAB_RUNS],
    ),
    "olmo 2, phi-4": Family(
        pretokenizers(split(CL100K, "Removed", True), PLAIN_BYTES),
        added=[
            *tokens("<|endoftext|>", "<|fim_prefix|>"),
            *tokens("<|im_start|>", "<|im_end|>", "<|im_sep|>", lstrip=True, rstrip=True),
        ],
    ),
    "granite 4": Family(
        _split_bytes(CL100K_POSSESSIVE),
        added=tokens("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"),
    ),
    "gpt-oss": Family(
        _split_bytes(O200K),
        added=[*tokens("<|startoftext|>", "<|return|>"), *tokens("<|channel|>", special=False)],
        model={"ignore_merges": True},
    ),
    "kimi": Family(
        _split_bytes(KIMI),
        added=tokens("[BOS]", "[EOS]", "<|im_end|>"),
        model={"ignore_merges": True},
    ),
    "glm-4": Family(
        _split_bytes(LLAMA3),
        post_processor=processors(template("[gMASK]"), always(byte_level(True, False))),
        added=[*tokens("<|endoftext|>", "[gMASK]", "<sop>"), *tokens("<think>", special=False)],
    ),
    "gemma": GEMMA,
    "gemma 3": dataclasses.replace(
        GEMMA,
        added=[
            *GEMMA.added,
            *tokens("<start_of_image>"),
            *tokens("<image_soft_token>", lstrip=True),
        ],
        model={**LLAMA2_MODEL, "ignore_merges": False},
    ),
    "gemma 4": dataclasses.replace(GEMMA, pre_tokenizer=split("\n+", "Isolated")),
    "clip": Family(
        pretokenizers(split(CLIP, "Removed", True), byte_level(False, True)),
        normalizer=normalizers("NFC", replace(r"\s+", " ", "Regex"), "Lowercase"),
        post_processor=bert_like(
            "RobertaProcessing",
            "<|startoftext|>",
            "<|endoftext|>",
            trim_offsets=False,
            add_prefix_space=False,
        ),
        added=[token("<|startoftext|>", normalized=True), token("<|endoftext|>")],
        model={
            "unk_token": "<|endoftext|>",
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "</w>",
        },
        whole=("tokenizers</w>",),
    ),
    "gpt-1 without Bert's normalizer": Family(
        named("Whitespace"),
        normalizer=normalizers("NFKC", "Lowercase"),
        decoder={"type": "BPEDecoder", "suffix": "</w>"},
        added=tokens("<unk>"),
        model={"unk_token": "<unk>", "end_of_word_suffix": "</w>"},
        alphabet="text",
        first=True,
        whole=("tokenizers</w>",),
    ),
    "words with an end": dataclasses.replace(
        CHARACTERS,
        decoder={"type": "BPEDecoder", "suffix": "</eow>"},
        model={"unk_token": "[UNK]", "end_of_word_suffix": "</eow>", "fuse_unk": True},
    ),
    "continuing prefix": dataclasses.replace(
        CHARACTERS,
        post_processor=bert_like("BertProcessing", "[CLS]", "[SEP]"),
        model={"unk_token": "[UNK]", "continuing_subword_prefix": "##"},
        whole=("##zing",),
    ),
    "unknown characters one by one": CHARACTERS,
    "unknown characters together": dataclasses.replace(
        CHARACTERS, model={"unk_token": "[UNK]", "fuse_unk": True}
    ),
    "unknown characters dropped": dataclasses.replace(CHARACTERS, model={}),
    "no pre-tokenizer": dataclasses.replace(CHARACTERS, pre_tokenizer=None),
    "whole words": dataclasses.replace(
        CHARACTERS, model={"unk_token": "[UNK]", "ignore_merges": True}
    ),
    "bytes are missing": Family(GPT2_LIKE, alphabet="text"),
    "bytes are missing, unknown": Family(
        GPT2_LIKE,
        alphabet="text",
        added=tokens("<unk>"),
        model={"unk_token": "<unk>", "fuse_unk": True},
        first=True,
    ),
    "NFKC": Family(GPT2_LIKE, normalizer=named("NFKC")),
    "NFKD, Lowercase": Family(GPT2_LIKE, normalizer=normalizers("NFKD", "Lowercase")),
    "no accents": Family(
        GPT2_LIKE,
        normalizer=normalizers("NFD", "Lowercase", "StripAccents"),
        added=[*tokens("<s>"), *tokens("Über", "CAFÉ", special=False, normalized=True)],
    ),
    "stripped": Family(
        GPT2_LIKE,
        normalizer={"type": "Strip", "strip_left": True, "strip_right": True},
        added=[*tokens("<s>"), *tokens("<x>", special=False, normalized=True)],
    ),
    "stripped on the right": Family(
        GPT2_LIKE, normalizer={"type": "Strip", "strip_left": False, "strip_right": True}
    ),
    "Lowercase": Family(
        GPT2_LIKE,
        normalizer=named("Lowercase"),
        added=[
            *tokens("<S>", normalized=True),
            *tokens("<T>"),
            *tokens("THE", special=False, single_word=True),
        ],
    ),
    "bloom": Family(
        _split_bytes(BLOOM),
        decoder=byte_level(True, True, use_regex=False),
        post_processor=always(byte_level(True, False, use_regex=False)),
        added=tokens("<unk>", "<s>", "</s>", "<pad>"),
        first=True,
    ),
    "command a": Family(
        _split_bytes(COHERE2, O200K),
        added=tokens("<PAD>", "<BOS_TOKEN>"),
        post_processor=template("<BOS_TOKEN>"),
    ),
    "superbpe": Family(_split_bytes(r"\p{N}+", SUPERBPE)),
    "superbpe, digits from the right": Family(
        pretokenizers(split(SUPERBPE), split(LLAMA3), PLAIN_BYTES)
    ),
    "viking": Family(pretokenizers(split(BLOOM), digits(True), PLAIN_BYTES)),
    "prefix space inside": Family(
        pretokenizers(digits(True), byte_level(True, True)),
        post_processor=always(byte_level(True, True)),
    ),
    "prefix space without regex": Family(
        pretokenizers(split(r"\s", "MergedWithNext"), byte_level(True, False, use_regex=False))
    ),
    "prefix space alone": Family(
        byte_level(True, True, use_regex=False), post_processor=always(byte_level(True, True))
    ),
    "metaspace always": dataclasses.replace(
        CHARACTERS,
        pre_tokenizer=metaspace("always"),
        decoder=metaspace("always"),
        whole=("▁tokenizers",),
    ),
    "metaspace first": dataclasses.replace(
        CHARACTERS,
        pre_tokenizer=metaspace("first"),
        decoder=metaspace("first"),
        whole=("▁tokenizers",),
    ),
    "metaspace never": dataclasses.replace(
        CHARACTERS,
        pre_tokenizer=metaspace("never"),
        decoder=metaspace("never"),
        whole=("▁tokenizers",),
    ),
    "metaspace unsplit": dataclasses.replace(
        CHARACTERS,
        pre_tokenizer=metaspace("always", split=False),
        decoder=metaspace("always", split=False),
        whole=("▁tokenizers",),
    ),
    "metaspace of old": dataclasses.replace(
        CHARACTERS,
        pre_tokenizer={"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
        decoder={"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
        whole=("▁tokenizers",),
    ),
    "metaspace behind white space": dataclasses.replace(
        CHARACTERS,
        pre_tokenizer=pretokenizers("WhitespaceSplit", metaspace("always")),
        decoder=metaspace("always"),
    ),
    "punctuation isolated": dataclasses.replace(
        CHARACTERS, pre_tokenizer=pretokenizers("WhitespaceSplit", punctuation("Isolated"))
    ),
    "punctuation removed": dataclasses.replace(CHARACTERS, pre_tokenizer=punctuation("Removed")),
    "punctuation merged with what is before": dataclasses.replace(
        CHARACTERS, pre_tokenizer=pretokenizers("Whitespace", punctuation("MergedWithPrevious"))
    ),
    "punctuation merged with what follows": dataclasses.replace(
        CHARACTERS, pre_tokenizer=pretokenizers(punctuation("MergedWithNext"), digits(False))
    ),
    "punctuation contiguous": dataclasses.replace(
        CHARACTERS, pre_tokenizer=pretokenizers(punctuation("Contiguous"), digits(True))
    ),
    "flags": Family(
        _split_bytes(LLAMA3),
        normalizer=named("NFC"),
        added=[
            token("<a>", lstrip=True),
            token("<b>", rstrip=True),
            token("<c>", lstrip=True, rstrip=True),
            token("word", False, single_word=True),
            token("née", False, normalized=True),
            token("<d>", single_word=True, normalized=True),
            token("<a><b>", False),
            token("  ", False, normalized=True),
        ],
    ),
    "bytes by a normalizer": Family(
        split(r"Ġ?\w+|\W"),
        normalizer=normalizers("NFC", "ByteLevel"),
        added=[
            token("<s>", normalized=True),
            token("née", False, normalized=True),
            token("<a b>", False),
            token("  ", False, normalized=True),
        ],
    ),
    "bytes by a normalizer, cut at spaces": Family(
        {"type": "CharDelimiterSplit", "delimiter": "Ġ"}, normalizer=named("ByteLevel")
    ),
}


# -- Making them -----------------------------------------------------------------------------


@functools.cache
def families(folder: Path) -> Iterator[tuple[str, BPETokenizer]]:
    """Load each family from a tokenizer.json written to a folder."""
    for number, name in enumerate(FAMILIES):
        path = folder / f"{number}.json"
        path.write_text(text(name), encoding="utf-8")
        yield name, BPETokenizer.from_file(path)


def text(name: str) -> str:
    """Return a family's tokenizer.json."""
    return json.dumps(build(FAMILIES[name]), ensure_ascii=False)


def build(family: Family) -> Json:
    """Train a family's vocabulary, and write its file."""
    model = _train(family)
    contents = [added["content"] for added in family.added]
    order = [token for token in model["vocab"] if token not in contents]
    order += [token for token in family.whole if token not in order]
    if family.model.get("byte_fallback"):
        order = [*(f"<0x{byte:02X}>" for byte in range(256)), *order]
    order = contents + order if family.first else order + contents
    ids = {token: i for i, token in enumerate(order)}
    in_vocab = family.first or family.model.get("unk_token") in contents
    model["vocab"] = {token: id_ for token, id_ in ids.items() if in_vocab or token not in contents}
    if family.old_merges:
        model["merges"] = [" ".join(pair) for pair in model["merges"]]
    file = {
        **_skeleton(family, model),
        "added_tokens": [{"id": ids[added["content"]], **added} for added in family.added],
        "post_processor": family.post_processor(ids),
    }
    for path in family.omit:
        *parents, last = path.split(".")
        functools.reduce(dict.__getitem__, parents, file).pop(last)
    return file


def _skeleton(family: Family, model: Json) -> Json:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": family.normalizer,
        "pre_tokenizer": family.pre_tokenizer,
        "post_processor": None,
        "decoder": family.decoder,
        "model": model,
    }


def _model(**changes: Any) -> Json:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {},
        "merges": [],
        **changes,
    }


def _train(family: Family) -> Json:
    """Learn a family's merges on `CORPUS`; return its model, not yet numbered."""
    known = {key: value for key, value in family.model.items() if key != "unk_token"}
    normalizer, pre_tokenizer = family.trained_with or (family.normalizer, family.pre_tokenizer)
    trained_as = dataclasses.replace(family, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    tokenizer = Tokenizer.from_str(json.dumps(_skeleton(trained_as, _model(**known))))
    by_bytes = family.alphabet == "bytes"
    affixes = ("continuing_subword_prefix", "end_of_word_suffix")
    options = {key: family.model[key] for key in affixes if family.model.get(key)}
    if by_bytes:
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    else:
        options["initial_alphabet"] = _frequent_characters(tokenizer, 150)
        options["limit_alphabet"] = 150
    trainer = trainers.BpeTrainer(
        vocab_size=(256 if by_bytes else 150) + family.n_merges,
        min_frequency=1,
        show_progress=False,
        max_token_length=12,
        **options,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    trained = json.loads(tokenizer.to_str())["model"]
    vocab = sorted(trained["vocab"], key=trained["vocab"].__getitem__)
    vocab += ["".join(pair) for pair in family.more_merges]
    merges = trained["merges"] + [list(pair) for pair in family.more_merges]
    return _model(**family.model, vocab=dict.fromkeys(vocab), merges=merges)


def _frequent_characters(tokenizer: Tokenizer, n: int) -> list[str]:
    """List the characters that a vocabulary is to have; the library breaks ties at random."""
    counts: Counter[str] = Counter()
    for line in CORPUS:
        text = tokenizer.normalizer.normalize_str(line) if tokenizer.normalizer else line
        pieces = [(text, (0, 0))]
        if tokenizer.pre_tokenizer:
            pieces = tokenizer.pre_tokenizer.pre_tokenize_str(text)
        for piece, _ in pieces:
            counts.update(piece)
    return sorted(counts, key=lambda char: (-counts[char], char))[:n]


def probe(pre_tokenizer: Any = None, normalizer: Any = None) -> Json:
    """Make a byte-level file without merges whose ids show where each pre-token ends."""
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*bytes_, *(char + "</w>" for char in bytes_)])}
    steps = [PLAIN_BYTES] if pre_tokenizer is None else [pre_tokenizer, PLAIN_BYTES]
    family = Family(pretokenizers(*steps), normalizer)
    return _skeleton(family, _model(vocab=vocab, end_of_word_suffix="</w>"))
