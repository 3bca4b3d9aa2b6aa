"""Which class of transformers loads a directory, by the names in its configuration files.

AutoTokenizer looks at ``tokenizer_class`` in tokenizer_config.json and at ``model_type`` in
config.json.  For some model types it passes over the class that the file names, because published
files name a wrong one.  A class that it doesn't know is `GENERIC`, which does what the vocabulary
file itself says.

Source: huggingface/transformers 5.24, models/auto/tokenization_auto.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bpe_tokenizer_tools import core


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


GENERIC = "TokenizersBackend"
_GENERIC_NAMES = ("PreTrainedTokenizer", "PreTrainedTokenizerFast", "PythonBackend", GENERIC)

# Model types whose directories `GENERIC` loads, whatever class they name.
GENERIC_TYPES = _names(
    """
    EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm cohere_asr ernie4_5
    ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe glm_image glmasr
    got_ocr2 gpt_bigcode gradium_phonon_tts granite granitemoe granitemoehybrid granitemoeshared
    h2ovl_chat hyperclovax hyperclovax_vlm internlm2 internlm3 iquestcoder jamba kimi_k25
    kimi_linear kosmos-2 llava llava_next mimo_v2_flash minicpm3 minicpm_ocr minicpmv minicpmv4_6
    minicpmv4_7 minimax_m2 modernbert modernbert-decoder molmo molmo2 nemo_speechlm nemotron nvfp4
    nystromformer olmo2 olmo3 olmo_hybrid omniasr opencua openvla paddleocr_vl pegasus_x persimmon
    phi3 phi3_v phimoe pix2struct pocket_tts smolvlm stablelm step3_vl umt5 vipllava xlm-roberta-xl
    """
)
# The same, unless there is a tekken.json: then mistral-common loads it.
MISTRAL_TYPES = _names(
    """
    ministral ministral3 mistral mistral3 mistral_large4 mixtral pixtral voxtral voxtral_realtime
    """
)
# Model types that decide the class themselves, if the file names another.
FORCED_TYPES = {
    "hyperclovax_vision_v2": "GPT2Tokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3_5": "Qwen3_5Tokenizer",
    "qwen3_5_moe": "Qwen3_5Tokenizer",
    "qwen3_5_moe_text": "Qwen3_5Tokenizer",
    "qwen4_exp": "Qwen3_5Tokenizer",
    "siglip2": "Siglip2Tokenizer",
}
# Model types with a class of their own, which counts if no file names one.
_TYPES_OF = {
    "CodeLlamaTokenizer": "code_llama",
    "GemmaTokenizer": "diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text "
    "recurrent_gemma shieldgemma2 t5gemma zaya",
    "LlamaTokenizer": "idefics idefics2",
}
DEFAULT_CLASSES = {kind: name for name, kinds in _TYPES_OF.items() for kind in kinds.split()}
# Classes that pad on the left if no file says otherwise.
PAD_LEFT = _names(
    """
    CodeLlamaTokenizer CohereTokenizer GemmaTokenizer LlamaTokenizer Siglip2Tokenizer XLNetTokenizer
    """
)
# Classes of transformers; any other name is of code in the directory itself, or of nothing.
CLASSES = frozenset(
    f"{name}Tokenizer"
    for name in _names("""
    Albert Bart Barthez Bartpho BertGeneration BertJapanese Bert Bertweet BigBird BioGpt
    BlenderbotSmall Blenderbot ByT5 CLIP CTRL Camembert Canine Clvp CodeLlama Cohere CpmAnt Cpm
    DPRQuestionEncoder Deberta DebertaV2 Dia Esm Esmc FNet FSMT Flaubert Funnel GPT2 GPTNeoXJapanese
    GPTNeoX GPTSw3 Gemma Herbert LED Lasr LayoutLMv2 LayoutLMv3 LayoutXLM Llama Luke Lxmert M2M100
    MBart50 MBart MLuke MPNet Marian MarkupLM Mgpstr MobileBert Mvp MyT5 Nllb Nougat OpenAIGPT
    PLBart Parakeet Pegasus Perceiver Phobert ProphetNet Qwen2 Qwen3_5 Rag Reformer RemBert RoCBert
    RoFormer Roberta SeamlessM4T Siglip2 Siglip Speech2Text SpeechT5 Splinter T5 Tapas Tipsv2 Udop
    VideoPrism Vits Wav2Vec2CTC Wav2Vec2PhonemeCTC Whisper XGLM XLMRoberta XLM XLNet
    """)
)


class Named(NamedTuple):
    """What the configuration files of a directory name."""

    loaded_as: str  # the class of transformers, or `GENERIC`
    classes: tuple[str, ...]  # as written, those of code in the directory first
    model_type: str

    @classmethod
    def of(cls, config: core.JsonReader, model: core.JsonReader) -> Named:
        """Read the names in tokenizer_config.json and config.json."""
        model_type: str = model.get("model_type", str, None, default=None) or ""
        named = config.get("tokenizer_class", str, None, default=None)
        named = named or model.get("tokenizer_class", str, None, default=None)
        own = [*_auto_map(config.data), *_auto_map(model.data)]
        classes = tuple(dict.fromkeys([*own, *([named] if named else [])]))
        return cls(_loaded_as(named, model_type), classes, model_type)


def _loaded_as(named: str | None, model_type: str) -> str:
    """Return the name of the class that AutoTokenizer chooses."""
    if model_type in FORCED_TYPES:
        return FORCED_TYPES[model_type]
    if model_type in GENERIC_TYPES or model_type in MISTRAL_TYPES:
        return GENERIC
    if named is None:
        return DEFAULT_CLASSES.get(model_type, GENERIC)
    name = named.removesuffix("Fast")
    return name if name in CLASSES and name not in _GENERIC_NAMES else GENERIC


def _auto_map(data: Mapping[str, Any]) -> list[str]:
    """Return the names of classes of code in the directory: "tokenization_x.XTokenizer" has one."""
    listed = data.get("auto_map")
    if isinstance(listed, dict):
        listed = listed.get("AutoTokenizer")
    names = listed if isinstance(listed, (list, tuple)) else [listed]
    return [name.rpartition(".")[2] for name in names if isinstance(name, str)]
