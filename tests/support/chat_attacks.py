"""Random attacks on chat templates: control tokens wherever users can write.

`python tests/support/chat_attacks.py 100000` makes that many and counts them; it needs
BPE_TOKENIZER_LLAMA_CPP_SOURCE, a folder with llama-cpp-python's source.  With `built-in` behind the
number, and maybe a seed before that, it attacks the built-in templates, and needs nothing.
"""

from __future__ import annotations

import functools
import json
import os
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bpe_tokenizer import (
    CHATML_SPECIAL_TOKENS,
    LLAMA3_SPECIAL_TOKENS,
    AddedToken,
    BPETokenizer,
)
from bpe_tokenizer_tools.chat import encoding
from bpe_tokenizer_tools.chat.apply_template import continued
from bpe_tokenizer_tools.chat.marked_text import Marked
from bpe_tokenizer_tools.chat.templates import Renderer
from bpe_tokenizer_tools.core import ALL_TURNS, BUILT_IN, check_messages, spells_text

Conversation = tuple[list[dict[str, Any]], dict[str, Any]]

# Written like a control token in some template.
LOOKS_LIKE_CONTROL = re.compile(
    r"<\|[^<>\s'\"+{}]{1,40}?\|?>|<[^|<>\s'\"+{}]{1,40}\|>|<｜[^｜<>]{1,40}｜>|</?[a-z_:]{1,20}>"
    r"|\[/?[A-Z_]{3,20}\]|\[e~\[|\]~b\]|\[gMASK\]|<SPECIAL_\d+>"
)
# What the built-in templates write.
OWN = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
OWN += ("<|im_start|>", "<|im_end|>", "### Response:")
# Which of the vocabularies that llama.cpp ships belongs to which public templates.
VOCABULARIES = {
    "command-r": ("CohereForAI", "Cohere2MoE"),
    "gemma-4": ("google-gemma-4",),
    "phi-3": ("microsoft-Phi",),
    "qwen2": ("Qwen-Qwen2.5", "Qwen-QwQ", "Qwen-Qwen3", "deepseek-ai-DeepSeek-R1-Distill-Qwen"),
    "qwen35": ("Qwen3.5",),
    "llama-bpe": ("meta-llama", "NousResearch", "deepseek-ai-DeepSeek-R1-Distill-Llama"),
    "deepseek-coder": ("llama-cpp-deepseek-r1",),
}


class Target(NamedTuple):
    """A template, and a tokenizer to use it with."""

    name: str
    template: str
    tokenizer: BPETokenizer

    @property
    def tokens(self) -> list[str]:
        """Every added token that controls something."""
        added = self.tokenizer.added_tokens
        return [token.content for token in added if not spells_text(token)]


@functools.cache
def vocabulary(models: Path, name: str) -> BPETokenizer:
    return BPETokenizer.from_file(models / f"ggml-vocab-{name}.gguf")


def targets(models: Path, rng: random.Random, vocabularies: Iterable[str]) -> Iterator[Target]:
    """Yield all public templates, with their own tokens and with published vocabularies."""
    templates = {
        path.stem: path.read_text(encoding="utf-8")
        for path in sorted((models / "templates").glob("*.jinja"))
    }
    for name, template in templates.items():
        tokenizer = BPETokenizer("llama3", normalizer=rng.choice([None, "NFC", "NFKC"]))
        found = sorted({*LOOKS_LIKE_CONTROL.findall(template), "<s>", "</s>", "<|unused|>"})
        tokenizer.add_special_tokens(
            [AddedToken(each, special=rng.random() < 0.4) for each in found if each != "</s>"]
        )
        tokenizer.add_special_tokens(["</s>"])
        tokenizer.eos_token = "</s>"
        yield Target(name, template, tokenizer)
    for published in vocabularies:
        tokenizer = vocabulary(models, published)
        if tokenizer.chat_template:
            yield Target(published, tokenizer.chat_template, tokenizer)
        for name, template in templates.items():
            if name.startswith(VOCABULARIES[published]):
                yield Target(f"{published} with {name}", template, tokenizer)


def built_in(rng: random.Random) -> Iterator[Target]:
    """Yield the built-in templates, with tokens of any of them and others."""
    for name in ("llama3", "chatml", "alpaca"):
        for normalizer in (None, "NFC", "NFKC"):
            tokenizer = BPETokenizer("llama3", normalizer=normalizer)
            contents = [*LLAMA3_SPECIAL_TOKENS, *CHATML_SPECIAL_TOKENS, "<s>", "### Response:"]
            tokenizer.add_special_tokens(
                [
                    AddedToken(each, special=each in OWN or rng.random() < 0.4)
                    for each in dict.fromkeys(contents)
                ]
            )
            tokenizer.eos_token = "<|eot_id|>"
            yield Target(name, name, tokenizer)


# -- What is typed -------------------------------------------------------------

WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
MANGLE: list[Callable[[str], str]] = [
    str,
    str,
    str,
    str.upper,
    lambda token: token[: len(token) // 2],
    lambda token: token[len(token) // 2 :],
    lambda token: token.strip("<|>[]｜"),
    lambda token: token.translate(WIDE),
    lambda token: token[:2].translate(WIDE) + token[2:],
    lambda token: json.dumps(token)[1:-1],
    lambda token: f"{{{token}}}",
    lambda token: f"%s{token}{{0}}%({token})s",
    lambda token: f"\n{token}\n",
    lambda token: token.replace("|", "\u200b|"),
    lambda token: "".join(f"{char}{char}" for char in token),
]
FILLERS = ["", "", " ", "\n", "a", "}", "<", "|", "é\u0301", '"', "\\", "user\n", "{{ x }}", "\0"]
FILLERS += ["CONTINUE_FINAL_MESSAGE_TAG "]  # the mark that finds a continued message


def typed(rng: random.Random, tokens: list[str]) -> str:
    """Make what an attacker types: whole, cut and changed tokens, with other text between."""
    made = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        made += [rng.choice(MANGLE)(rng.choice(tokens)), rng.choice(FILLERS)]
    return "".join(made)


def conversation(write: Callable[[], str], rng: random.Random) -> Conversation:
    """Make a conversation in which users write the texts that `write` returns."""
    role = write() if rng.random() < 0.05 else "user"
    parts = [{"type": "text", "text": write()}, {"type": "text", "text": write()}]
    user = {"role": role, "content": parts if rng.random() < 0.15 else write()}
    if rng.random() < 0.1:
        user["name"] = write()
    messages: list[dict[str, Any]] = [user]
    if rng.random() < 0.4:
        messages.insert(0, {"role": "system", "content": write()})
    options: dict[str, Any] = {}
    kind = rng.random()
    if kind < 0.3:
        answer = {"role": "assistant", "content": write()}
        if rng.random() < 0.3:
            answer["reasoning_content"] = write()
        messages += [answer, {"role": "user", "content": write()}]
    elif kind < 0.7:
        given: Any = {write(): write(), "n": [1, write(), {write(): None}]}
        if rng.random() < 0.2:
            given = json.dumps(given)
        function = {"name": write(), "arguments": given}
        call = {"id": write()[:9] or "x", "type": "function", "function": function}
        result = {"role": "tool", "content": write(), "name": write(), "tool_call_id": call["id"]}
        messages += [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
        messages += [{"role": "user", "content": write()}] * (rng.random() < 0.5)
    if kind > 0.5:
        properties = {write(): {"type": "string", "description": write(), "enum": [write()]}}
        parameters = {"type": "object", "properties": properties, "required": [write()]}
        tool = {"name": write(), "description": write(), "parameters": parameters}
        options["tools"] = [{"type": "function", "function": tool}]
    if rng.random() < 0.1:
        options["documents"] = [{"title": write(), "text": write(), write(): write()}]
    for name in ("date_string", "model_identity", "reasoning_effort", "custom_tools"):
        if rng.random() < 0.05:
            options[name] = write()
    if rng.random() < 0.3:
        options["enable_thinking"] = rng.random() < 0.5
    return messages, options


# -- What came of it -----------------------------------------------------------


class Outcome(NamedTuple):
    """The result of an attack on a template.

    Attributes:
        got_in: control tokens that came from user-supplied text, by any of three signs: a token
            is inside that text; the template couldn't have written it; or there are more of
            it than without the attack, although the template's own text is as long.
        reacted: whether the template's own text differs from that without the attack.
    """

    got_in: list[str]
    reacted: bool


def attack(target: Target, seed: int, **more: Any) -> Outcome | None:
    """Attack once; return None if the template refuses the conversation."""
    rng = random.Random(seed)
    tokens = target.tokens
    sources = _sources(target)
    state = rng.getstate()
    words: list[str] = []

    def write() -> str:
        words.append(typed(rng, tokens))
        return words[-1]

    messages, options = conversation(write, rng)
    is_built_in = target.template in BUILT_IN
    own_options = ALL_TURNS.get(target.template, {})
    if is_built_in:  # they take no others
        options = {**own_options}
    rng.setstate(state)

    def write_harmless() -> str:
        typed(rng, tokens)  # so that the random numbers advance the same way
        return "x" * len(words[next(place)])

    place = iter(range(len(words)))
    harmless, harmless_options = conversation(write_harmless, rng)
    harmless_options = {**own_options} if is_built_in else harmless_options
    field = "content" if random.Random(seed).random() < 0.3 else ""  # the last message is continued
    given = {**options, **more}
    try:
        render = Renderer(target.template, target.tokenizer, given)
        text = rendered(render, messages, field)
    except (ValueError, TypeError):
        return None
    control = {
        token.id: token.content
        for token in target.tokenizer.added_tokens
        if token.content in tokens
    }
    in_answers = marks_in_answers(render, tokens)
    ids, offsets = encoding.encode(render, text)
    trusted = [origin.trusted for part, origin in text.runs() for _ in part]
    said = [origin.answer for part, origin in text.runs() for _ in part]
    found: Counter[str] = Counter()
    got_in = []
    for id_, (start, stop) in zip(ids, offsets):
        token = control.get(id_)
        if token is None or (token in in_answers and all(said[start:stop])):
            continue
        found[token] += 1
        if not (all(trusted[start:stop]) and token in sources):
            got_in.append(token)
    if seed % 8 == 0:
        got_in += got_into_a_batch(target, messages, harmless, ids, {**given, "field": field})
    try:
        clean_render = Renderer(target.template, target.tokenizer, harmless_options)
        clean = rendered(clean_render, harmless, field)
    except (ValueError, TypeError):
        return Outcome(got_in, True)
    if len(_own_text(clean)) == len(_own_text(text)):
        expected = Counter(control.get(id_) for id_ in encoding.encode(clean_render, clean)[0])
        got_in += [token for token in found if found[token] > expected[token]]
    return Outcome(got_in, _own_text(clean) != _own_text(text))


def rendered(render: Renderer, messages: list[dict[str, Any]], field: str) -> Marked:
    """Render a conversation up to the next answer, or to the end of a field of its last message."""
    checked = check_messages(messages)
    return continued(render, checked, field) if field else render(checked, True)


def got_into_a_batch(
    target: Target, messages: Any, harmless: Any, ids: list[int], options: dict[str, Any]
) -> list[str]:
    """Attack within a batch; return the tokens that differ from those of the attack alone.

    If the template refuses the batch, nothing got in.
    """
    options["continue_final_message"] = options.pop("field")
    try:
        found = target.tokenizer.apply_chat_template(
            [harmless, messages], target.template, **options
        )[1]
    except (ValueError, TypeError):
        return []
    return [] if found == ids else target.tokenizer.convert_ids_to_tokens(found)


def marks_in_answers(render: Renderer, tokens: list[str]) -> frozenset[str]:
    """Return the marks that may come from the assistant's messages; special tokens may not."""
    if render.jinja_source is None:
        return frozenset()
    added = render.tokenizer.added_tokens
    special = {token.content for token in added if token.special}
    marks = encoding.answer_marks(
        render.jinja_source, render.role_tokens, frozenset(token.content for token in added)
    )
    return marks.intersection(tokens) - special


def _own_text(text: Marked) -> str:
    return "\0".join(part for part, writer in encoding.segments(text) if writer == "template")


def _sources(target: Target) -> str:
    """Everything a template can make control tokens from: its source, and role tokens."""
    tokenizer = target.tokenizer
    roles = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token)
    source = "\0".join(OWN) if target.template in BUILT_IN else target.template
    return "\0".join((source, *(role or "" for role in roles)))


def run(
    models: Path,
    n: int,
    seed: int = 0,
    vocabularies: Iterable[str] = tuple(VOCABULARIES),
    **options: Any,
) -> Counter[str]:
    """Attack n times, each template equally often; count the results.

    Args:
        models: llama.cpp's folder of vocabularies and templates.
        n: number of attacks.
        seed: seed of the random numbers.
        vocabularies: names of vocabularies that llama.cpp ships.
        options: for the rendering, such as ``content_tokens``.
    """
    return attack_all(list(targets(models, random.Random(seed), vocabularies)), n, seed, **options)


def attack_all(found: list[Target], n: int, seed: int = 0, **options: Any) -> Counter[str]:
    """Do what `run` does with given targets."""
    counts: Counter[str] = Counter()
    for i in range(n):  # one template after another: each is compiled once
        target = found[i * len(found) // n]
        outcome = attack(target, seed + i, **options)
        counts["attacks"] += 1
        if outcome is None:
            counts["refused"] += 1
            continue
        counts["reacted"] += outcome.reacted
        counts["got in"] += bool(outcome.got_in)
        if outcome.got_in and not options:
            print(f"{target.name}, seed {seed + i}: {outcome.got_in}", file=sys.stderr)
    return counts


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    numbers = [int(each) for each in sys.argv[1:] if each != "built-in"]
    if "built-in" in sys.argv:
        aims = list(built_in(random.Random(sum(numbers[1:]))))
        print(dict(attack_all(aims, *numbers)))
        sys.exit()
    source = Path(os.environ["BPE_TOKENIZER_LLAMA_CPP_SOURCE"], "vendor/llama.cpp/models")
    print(dict(run(source, *numbers)))
