"""Public calls on inputs of n and 4n: their cost grows with the input, not with its square.

Time is the CPU time of this process, the least of several runs.  Four times the input takes 4 times
as long, or 4.5 times if it is sorted; 16 times if a call is quadratic.  The bound is between.
"""

from __future__ import annotations

import functools
import gc
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oracles import need

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns.digits import digits_from_the_right
from bpe_tokenizer_tools.vocabularies import align

MOST = 10  # times as long, for four times the input
NOISE = 0.002  # seconds
Call = Callable[[], Any]


def seconds(make: Callable[[int], Call], n: int) -> float:
    """Return how long a call takes on an input of size n, which is made before."""
    call = make(n)
    gc.disable()
    try:
        start = time.process_time()
        call()
        return time.process_time() - start
    finally:
        gc.enable()


def check(make: Callable[[int], Call], n: int) -> None:
    """Measure; again if other processes may have been in the way."""
    sizes = (n, 4 * n)
    seconds(make, n)  # work that is done only once doesn't count
    least = dict.fromkeys(sizes, float("inf"))
    for _ in range(5):
        for size in sizes:
            least[size] = min(least[size], seconds(make, size))
        if least[4 * n] <= MOST * max(least[n], NOISE):
            return
    shown = ", ".join(f"{size:,}: {took:.3f} s" for size, took in least.items())
    pytest.fail(f"more than {MOST} times as long for 4 times the input: {shown}")


WORDS = "the quick brown fox jumps over 13 lazy dogs, doesn't it? \n\n Größe 世界 🙂 ".split(" ")


def prose(n: int) -> str:
    """Return about n characters in words that do not repeat."""
    words = (f"{word}{i % 9973:x}" for i, word in enumerate(itertools.cycle(WORDS)))
    return " ".join(itertools.islice(words, n // 8))


TEXTS: dict[str, Callable[[int], str]] = {
    "prose": prose,
    "a letter": lambda n: "a" * n,
    "spaces": lambda n: " " * n + "x",
    "marks": lambda n: "e" + "\u0301\u0323" * (n // 2),
    "control tokens": lambda n: "<|end|>" * (n // 7),
    "almost a token": lambda n: "<|en" * (n // 4),
}


@pytest.fixture(scope="module")
def tokenizer(engine: str) -> BPETokenizer:
    texts = [make(300) for make in TEXTS.values()]
    made = BPETokenizer("llama3").train(texts * 3, 400, min_frequency=1, verbose=False)
    made.add_special_tokens(["<|end|>", "<|im_start|>", "<|im_end|>"])
    made.eos_token = "<|end|>"  # which some chat templates write
    made.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return made


CALLS: dict[str, Callable[[BPETokenizer, str], Any]] = {
    "encode": lambda t, text: t.encode(text),
    "encode, special": lambda t, text: t.encode(text, allowed_special="all"),
    "encode_batch": lambda t, text: t.encode_batch([text] * 2 + text.split()).attention_mask,
    "offsets": lambda t, text: t.encode_with_offsets(text).offsets,
    "truncate": lambda t, text: t.truncate(text, len(text) // 3),
    "count_tokens": lambda t, text: t.count_tokens(text),
    "tokenize": lambda t, text: t.tokenize(text),
}


# Marks in the wrong order; some that fall apart into marks; a younger one among them.
@pytest.mark.parametrize(
    "marks", ["\u0301\u0323", "\u0301\uff9e", "\u0f73\u0f74", "\u1dd7\U00010f47"]
)
@pytest.mark.parametrize("form", core.NORMALIZERS)
def test_normalizing(form: str, marks: str) -> None:
    def make(n: int) -> Call:
        text = "e" + marks * (n // 2)
        return lambda: core.normalize(text, form)

    check(make, 20_000)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("name", CALLS)
def test_encoding(tokenizer: BPETokenizer, name: str, kind: str) -> None:
    def make(n: int) -> Call:
        text = TEXTS[kind](n)

        def call() -> None:
            tokenizer.clear_cache()
            CALLS[name](tokenizer, text)

        return call

    check(make, 6_000)


def test_appending(tokenizer: BPETokenizer) -> None:
    """A long text, of ten characters at a time."""

    def make(n: int) -> Call:
        session = tokenizer.incremental()

        def call() -> None:
            session.clear()
            for _ in range(n):
                session.append("the cat, ")

        return call

    check(make, 3_000)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("change", ["first", "grows", "in the middle"])
def test_a_session(tokenizer: BPETokenizer, change: str, kind: str) -> None:
    """What a session does for a text, and for every tenth of it that is added or put elsewhere."""

    def make(n: int) -> Call:
        text = TEXTS[kind](n)
        session = tokenizer.incremental(allowed_special="all")
        ends = range(0, n, n // 10)
        texts = [text]
        if change != "first":
            session.encode(text)
            texts = [text[:end] for end in ends] if change == "grows" else []
            texts += [text[:end] + "ab, c" + text[end + 3 :] for end in ends]

        def call() -> None:
            tokenizer.clear_cache()
            for each in texts:
                session.encode(each)

        return call

    check(make, 6_000)


@pytest.mark.parametrize("kind", ["digits", *TEXTS])
def test_digits_and_superwords(engine: str, kind: str) -> None:
    """Encode with patterns that look to the end of a number, and that leave text whole."""
    texts = {"digits": lambda n: "1234567" * (n // 7), **TEXTS}
    made = [BPETokenizer(digits_from_the_right("llama3")) for _ in range(2)]
    for tokenizer, how in zip(made, (None, 280)):
        corpus = [of_length(300) for of_length in texts.values()]
        tokenizer.train(corpus, 320, 1, verbose=False, superwords=how)

    def make(n: int) -> Call:
        text = texts[kind](n)
        return lambda: [tokenizer.encode(text) for tokenizer in made]

    check(make, 20_000)


@pytest.mark.parametrize("kind", TEXTS)
def test_other_trainings(engine: str, kind: str) -> None:
    def train(corpus: Any, **how: Any) -> Call:
        return lambda: BPETokenizer().train(corpus, 300, 1, verbose=False, **how)

    check(lambda n: train([TEXTS[kind](n)], superwords=280), 20_000)
    check(lambda n: train(None, parity={"a": [TEXTS[kind](n)], "b": ["b c"]}), 20_000)


@pytest.fixture(scope="module")
def processor(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A SentencePiece model that has bytes for most characters."""
    library = need("sentencepiece")
    path = tmp_path_factory.mktemp("model") / "small"
    library.SentencePieceTrainer.train(
        sentence_iterator=iter([prose(2_000)] * 9),
        model_prefix=str(path),
        model_type="bpe",
        vocab_size=330,
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return BPETokenizer.from_file(f"{path}.model").as_sentencepiece()


AS_SENTENCEPIECE: dict[str, Callable[[Any, str], Any]] = {
    "pieces": lambda it, text: it.decode(it.encode(text, out_type=str)),
    "places": lambda it, text: it.encode(text, out_type="serialized_proto"),
    "decoded places": lambda it, text: it.decode(it.encode(text), out_type="serialized_proto"),
}


@pytest.mark.parametrize("kind", ["prose", "a letter", "spaces", "marks"])
@pytest.mark.parametrize("name", AS_SENTENCEPIECE)
def test_as_sentencepiece(processor: Any, name: str, kind: str) -> None:
    def make(n: int) -> Call:
        text = TEXTS[kind](n)
        return lambda: AS_SENTENCEPIECE[name](processor, text)

    check(make, 6_000)


VOCABULARIES: dict[str, Callable[[BPETokenizer, str], Any]] = {
    "align": lambda it, text: align(it, BPETokenizer(), text),
    "extend": lambda it, text: it.extend([text], add=20, held_out={}, verbose=False),
    "prune": lambda it, text: it.prune([text], vocab_size=280, verbose=False),
}


@pytest.mark.parametrize("kind", ["prose", "a letter", "spaces", "marks", "almost a token"])
@pytest.mark.parametrize("name", VOCABULARIES)
def test_vocabularies(tokenizer: BPETokenizer, name: str, kind: str) -> None:
    def make(n: int) -> Call:
        text = TEXTS[kind](n)
        return lambda: VOCABULARIES[name](tokenizer, text)

    check(make, 20_000)


def changed(tokenizer: BPETokenizer, text: str) -> list[int]:
    """Return ids of a text that differ from those of `encode` at its end."""
    return [*tokenizer.encode(text), *b"the the"]


PROMPTS: dict[str, Callable[[BPETokenizer, str], Call]] = {
    "canonical": lambda it, text: functools.partial(it.first_noncanonical, changed(it, text)),
    "tokens": lambda it, text: lambda: [*it.chunk(text, 50, 10)],
    "sentences": lambda it, text: lambda: [*it.chunk(text, 50, 10, "sentence")],
    "paragraphs": lambda it, text: lambda: [*it.chunk(text, 50, 0, "paragraph")],
    "long pieces": lambda it, text: lambda: [*it.chunk(text, len(text) // 9, 5, "sentence")],
    "small chunks": lambda it, text: lambda: [*it.chunk(iter(text), 50, 10, "sentence")],
    "a function": lambda it, text: lambda: [*it.chunk(text, 50, 0, lambda x: range(len(x)))],
}


@pytest.mark.parametrize("kind", [*TEXTS, "sentence ends", "lines"])
@pytest.mark.parametrize("name", PROMPTS)
def test_prompts(tokenizer: BPETokenizer, name: str, kind: str) -> None:
    texts = {"sentence ends": lambda n: '."' * (n // 2), "lines": lambda n: " \n" * (n // 2)}
    n = 10_000 if kind == "marks" else 30_000  # small ones gain from the processor's caches
    check(lambda n: PROMPTS[name](tokenizer, {**TEXTS, **texts}[kind](n)), n)


@pytest.mark.parametrize("kind", TEXTS)
def test_healing(tokenizer: BPETokenizer, kind: str) -> None:
    need("numpy")

    def make(n: int) -> Call:
        text = TEXTS[kind](n)
        return lambda: tokenizer.heal(text)

    check(make, 500)


HOSTILE: dict[str, Callable[[int], tuple[list[str], str]]] = {  # ж and я are two bytes each
    "almost, everywhere": lambda n: (["ж" * n + "я"], "ж" * n),
    "short and almost long": lambda n: (["ж", "ж" * n + "я"], "ж" * n),
    "all beginnings": lambda n: (["ж" * i + "я" for i in range(1, int(n**0.5))], "ж" * n + "c"),
    "all ends": lambda n: (["я" + "ж" * i for i in range(1, int(n**0.5))], "cяж" * (n // 3)),
    "alternating": lambda n: (["жя" * n + "c", "яж" * n + "c", "я"], "жя" * (n // 2)),
    "many": lambda n: ([f"<{i}>" for i in range(n // 8)], "".join(f"<{i}" for i in range(n // 8))),
    "found": lambda n: (["жя", "жяжя" * n], "жя" * (n // 2)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_finding_added_tokens(engine: str, kind: str) -> None:
    if engine == "python":
        pytest.skip("a regular expression tries each token at each place")

    def make(n: int) -> Call:
        tokens, text = HOSTILE[kind](n)

        def call() -> None:
            tokenizer = BPETokenizer(normalizer=None)
            tokenizer.add_special_tokens(tokens)
            tokenizer.encode(text, allowed_special="all")
            tokenizer.encode_with_offsets(text, allowed_special="all").offsets  # noqa: B018

        return call

    check(make, 20_000)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("allowed", ["none", "all"])
def test_streaming_one_character_at_a_time(
    tokenizer: BPETokenizer, allowed: str, kind: str
) -> None:
    def make(n: int) -> Call:
        text = TEXTS[kind](n)
        return lambda: list(tokenizer.encode_streaming(iter(text), allowed_special=allowed))

    check(make, 3_000)


@pytest.mark.parametrize("kind", ["prose", "a letter", "marks"])
def test_decoding(tokenizer: BPETokenizer, kind: str) -> None:
    def make(n: int, streaming: bool) -> Call:
        ids = tokenizer.encode(TEXTS[kind](n))
        if streaming:
            return lambda: list(tokenizer.decode_streaming(iter(ids)))
        return lambda: tokenizer.decode(ids)

    check(lambda n: make(n, False), 20_000)
    check(lambda n: make(n, True), 5_000)


# -- Chats -----------------------------------------------------------------------

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ALL = "{% set x = messages | map(attribute='content') | join('|') %}"
TEMPLATES = {
    "chatml": "chatml",
    "jinja": CHATML,
    "split": ALL + "{% for part in x.split('|') %}{{ part }}<|im_end|>{% endfor %}",
    "replace": ALL + "{{ x | replace('|', '<|im_end|>') }}",
    "lines": ALL + "{% for line in x.splitlines() %}{{ line }}{% endfor %}",
    "the rest": "{% set n = namespace(x=messages | map(attribute='content') | join('|')) %}"
    "{% for m in messages %}{% set n.x = n.x.partition('|')[2] %}{{ n.x[:1] }}{% endfor %}",
}
MASK = {"return_dict": True, "return_assistant_tokens_mask": True}
OPTIONS: dict[str, dict[str, Any]] = {
    "ids": {},
    "text": {"tokenize": False},
    "mask": {"add_generation_prompt": False, **MASK},
    "offsets": {"return_dict": True, "return_offsets_mapping": True},
    "truncation": {"truncation": True, "max_length": 300},
    "truncation, half": {"truncation": True},
    "continued": {"continue_final_message": True},
    "continued, mask": {"continue_final_message": True, **MASK},
}
CHATS = [(name, "ids") for name in TEMPLATES] + [
    (name, option) for name in ("chatml", "jinja") for option in OPTIONS if option != "ids"
]


@pytest.mark.parametrize("name, option", CHATS)
def test_chats(tokenizer: BPETokenizer, name: str, option: str) -> None:
    if name != "chatml":
        need("jinja2")

    def make(n: int) -> Call:
        both = ["user", "assistant"]
        talk = [{"role": both[i % 2], "content": f"hello, {i}"} for i in range(n)]
        options = dict(OPTIONS[option])
        if option == "truncation, half":
            options["max_length"] = len(tokenizer.apply_chat_template(talk, CHATML)) // 2

        def call() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tokenizer.apply_chat_template(talk, TEMPLATES[name], **options)

        return call

    check(make, 100)


PUBLIC = [
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen3.5-4B",
    "deepseek-ai-DeepSeek-V3.1",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "GLM-4.6",
    "MiniMax-M2",
    "google-gemma-2-2b-it",
    "meta-llama-Llama-3.1-8B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Ministral-3-14B-Reasoning-2512",
    "openai-gpt-oss-120b",
    "Kimi-K2-Thinking",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "unsloth-Apriel-1.5",
]
WITH_TOOLS = ["Qwen-Qwen3-0.6B", "Qwen3.5-4B", "deepseek-ai-DeepSeek-V3.1", "GLM-4.6"]
LONG = "Mistral-Small-3.2-24B-Instruct-2506"  # whose rules are longer than a short conversation
WITH_TOOLS += ["mistralai-Mistral-Nemo-Instruct-2407", "unsloth-Apriel-1.5", LONG]
# For each result of a tool, these go through all messages.
SEARCHING = ["deepseek-ai-DeepSeek-V3.2", "Cohere2MoE"]
SEARCHING += ["CohereForAI-c4ai-command-r7b-12-2024-tool_use"]


@pytest.mark.parametrize("name", [*PUBLIC, LONG])
def test_masks_of_public_templates(
    tokenizer: BPETokenizer, llama_cpp_source: Path, name: str
) -> None:
    template = public_template(llama_cpp_source, name)

    def make(n: int) -> Call:
        both = ["user", "assistant"]
        talk = [{"role": both[i % 2], "content": f"hello, {i}"} for i in range(n)]
        return lambda: masks(tokenizer, template, talk)

    check(make, 250)


@pytest.mark.parametrize("name", [*PUBLIC, "moonshotai-Kimi-K2"])
def test_truncation_of_public_templates(
    tokenizer: BPETokenizer, llama_cpp_source: Path, name: str
) -> None:
    template = public_template(llama_cpp_source, name)
    options: dict[str, Any] = {"allowed_special": "none", "truncation": True}

    def make(n: int) -> Call:
        both = ["user", "assistant"]
        talk = [{"role": both[i % 2], "content": f"hello, {i}"} for i in range(n)]
        whole = tokenizer.apply_chat_template(talk, template, allowed_special="none")

        def call() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tokenizer.apply_chat_template(talk, template, max_length=len(whole) // 2, **options)

        return call

    check(make, 100)


@pytest.mark.parametrize("name", [*WITH_TOOLS, *SEARCHING])
def test_masks_of_one_long_turn(tokenizer: BPETokenizer, llama_cpp_source: Path, name: str) -> None:
    template = public_template(llama_cpp_source, name)
    check(lambda n: lambda: masks(tokenizer, template, tool_talk(n, n)), 120)


@pytest.mark.parametrize("name", [*SEARCHING, "openai-gpt-oss-120b"])
def test_masks_of_many_turns_with_tools(
    tokenizer: BPETokenizer, llama_cpp_source: Path, name: str
) -> None:
    template = public_template(llama_cpp_source, name)
    check(lambda n: lambda: masks(tokenizer, template, tool_talk(n, 6)), 120)


@pytest.mark.parametrize("name", SEARCHING)
@pytest.mark.parametrize("truncation", [False, True])
def test_rendering_with_tools(
    tokenizer: BPETokenizer, llama_cpp_source: Path, name: str, truncation: bool
) -> None:
    template = public_template(llama_cpp_source, name)

    def make(n: int) -> Call:
        talk = tool_talk(n, 6)
        options: dict[str, Any] = {"allowed_special": "none"}
        if truncation:
            whole = tokenizer.apply_chat_template(talk, template, **options)
            options.update(truncation=True, max_length=len(whole) * 3 // 4)

        def call() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tokenizer.apply_chat_template(talk, template, **options)

        return call

    check(make, 200)


def public_template(source: Path, name: str) -> str:
    """Return one of the chat templates that llama.cpp has."""
    need("jinja2")
    return (source / f"models/templates/{name}.jinja").read_text(encoding="utf-8")


def tool_talk(n: int, per_turn: int) -> list[dict[str, Any]]:
    """Return n messages in turns of so many: a question, calls with their results, an answer."""
    function = {"name": "look", "arguments": {"city": "Paris"}}
    talk: list[dict[str, Any]] = []
    for turn in range(n // per_turn):
        talk.append({"role": "user", "content": f"hello, {turn}"})
        for i in range(per_turn // 2 - 1):
            key = f"{turn:04x}{i:05x}"
            call = {"id": key, "type": "function", "function": function}
            talk.append({"role": "assistant", "content": "", "tool_calls": [call]})
            talk.append({"role": "tool", "content": f"result {i}", "tool_call_id": key})
        talk.append({"role": "assistant", "content": f"answer {turn}"})
    return talk


def masks(tokenizer: BPETokenizer, template: str, talk: Any) -> None:
    """Tell what the assistant wrote; any control tokens of the template are text here."""
    options: dict[str, Any] = {"add_generation_prompt": False, "allowed_special": "none", **MASK}
    tokenizer.apply_chat_template(talk, template, **options)


def test_a_template_is_compiled_once(tokenizer: BPETokenizer) -> None:
    need("jinja2")
    from bpe_tokenizer_tools.chat import jinja

    jinja._compile.cache_clear()
    for _ in range(3):
        tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], CHATML)
    assert jinja._compile.cache_info().misses == 1


# -- Tokenizers ------------------------------------------------------------------


def large(n: int) -> BPETokenizer:
    """Make a tokenizer of n merges."""
    vocab: dict[int, bytes] = {byte: bytes([byte]) for byte in range(256)}
    pairs = [(bytes([i // 200]), bytes([i % 200])) for i in range(n)]
    vocab.update({256 + i: left + right for i, (left, right) in enumerate(pairs)})
    return BPETokenizer.from_merges(vocab, pairs, {"<|end|>": 256 + n})


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    made: dict[int, Path] = {}

    def file(n: int) -> Path:
        if n not in made:
            large(n).save(tmp_path / str(n), verbose=False)
            made[n] = tmp_path / str(n) / "tokenizer.json"
        return made[n]

    return file


def test_training() -> None:
    def make(n: int) -> Call:
        text = prose(n)
        return lambda: BPETokenizer().train([text], 350, min_frequency=1, verbose=False)

    check(make, 10_000)


@pytest.mark.parametrize("letters", ["", "a-pretoken-of-more-than-15-bytes"], ids=["short", "long"])
def test_adding_the_counts_of_two_threads(letters: str) -> None:
    native = need("_bpe_tokenizer.native")

    def counter(numbers: range) -> Any:
        made = native.PretokenCounter("gpt2")
        made.count_pretokens([f"{letters}{i}" for i in numbers])
        return made

    def make(n: int) -> Call:
        total, other = counter(range(n // 100)), counter(range(n))
        return lambda: total.add(other)

    check(make, 20_000)


def test_training_a_larger_vocabulary() -> None:
    text = prose(30_000)

    def make(n: int) -> Call:
        return lambda: BPETokenizer().train([text], 256 + n, min_frequency=1, verbose=False)

    check(make, 300)


def test_loading(files: Callable[[int], Path]) -> None:
    def make(n: int) -> Call:
        path = files(n)
        return lambda: BPETokenizer.from_file(path)

    check(make, 2_000)


def test_another_vocabulary_size() -> None:
    made = {n: large(n) for n in (2_000, 4_000, 8_000)}
    check(lambda n: lambda: made[n].with_vocab_size(256 + n // 2), 2_000)


def test_matching_vocabularies() -> None:
    need("numpy")
    from bpe_tokenizer_tools.adapting.vocabulary import match

    pieces = BPETokenizer(normalizer=None).train([prose(20_000)], 400, verbose=False)

    def many(n: int) -> Call:
        new = large(n)
        return lambda: match(pieces, new)

    def broken(n: int) -> Call:  # a token that is no text
        vocab = {byte: bytes([byte]) for byte in range(256)}
        vocab[256] = prose(n).encode() + b"\xff"
        new = BPETokenizer.from_merges(vocab, [], {})
        return lambda: match(pieces, new)

    check(many, 2_000)
    check(broken, 20_000)


def test_adapting_a_model(tmp_path: Path) -> None:
    numpy, safetensors = need("numpy"), need("safetensors.numpy")
    from bpe_tokenizer_tools.adapting import adapt_model

    def make(n: int) -> Call:
        old, folder = large(n), tmp_path / str(n)
        folder.mkdir(exist_ok=True)
        rows = numpy.ones((old.max_id + 1, 8), numpy.float32)
        safetensors.save_file({"model.embed_tokens.weight": rows}, folder / "model.safetensors")
        (folder / "config.json").write_text("{}")
        new, out = large(n // 2), tmp_path / f"{n} adapted"
        return lambda: adapt_model(folder, old, new, out, force=True, verbose=False)

    check(make, 1_000)
