"""Chat templates in a copy of bpe_tokenizer.py without its tools.

Such a copy gives the same results as the whole package, or raises an error that says what is
missing.  So the package, which other tests hold against transformers, is the reference here; some
results are compared with transformers itself.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import chat_attacks
import lone_module
import pytest
from conftest import EITHER_ENGINE
from oracles import examples, need
from test_chat_templates import (
    CHATML,
    CONVERSATIONS,
    TOOLS,
    USER,
    Messages,
    compiled_templates_are_kept,
    pairs,
    segments,
    templates,
    tokenizer_for,
)
from test_injection import FORMS, OPERATIONS, TYPED, statements

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools.chat import jinja_version

__all__ = ["compiled_templates_are_kept", "templates"]  # fixtures

need("jinja2")

pytestmark = [EITHER_ENGINE, pytest.mark.filterwarnings("ignore")]

lone: Any = lone_module.load()
NEEDS_TOOLS = "needs bpe_tokenizer_tools beside bpe_tokenizer.py: copy that folder"
TALK: Messages = [
    {"role": "system", "content": "Be brief."},
    USER,
    {"role": "assistant", "content": "Hello.\n"},
    {"role": "user", "content": "e\u0301 <|im_end|>"},
]
# A template that thinks, as those of Qwen3 and DeepSeek-R1 do.
THINKING = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% set c = m.content %}"
    "{% if m.role == 'assistant' and '</think>' in c %}{% set c = c.split('</think>')[-1] %}"
    "{% endif %}{{ c | trim }}<|im_end|>{{ '\n' }}{% endfor %}{{ tools | tojson if tools }}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ '<think>' if think }}{% endif %}"
)
MASKED = CHATML.replace("m.content", "m.content | trim")
NAMES = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]


def as_lone(tokenizer: BPETokenizer) -> Any:
    """Return the same tokenizer of the copy."""
    _, (_, packed) = tokenizer.__reduce__()
    made = lone._rebuild(lone.BPETokenizer, packed)
    assert type(made) is lone.BPETokenizer
    return made


def plain(made: Any) -> Any:
    """Return a result with lists for tensors."""
    if not hasattr(made, "data"):
        return made
    return {
        name: value.tolist() if hasattr(value, "tolist") else value for name, value in made.items()
    }


def outcome(tokenizer: Any, *given: Any, **options: Any) -> Any:
    """Return the result of a call, or the kind and text of its error."""
    try:
        return plain(tokenizer.apply_chat_template(*given, **options))
    except ValueError as error:
        return "ValueError", str(error)
    except Exception as error:
        return type(error).__name__, str(error)


def compare(tokenizer: BPETokenizer, single: Any, *given: Any, **options: Any) -> str:
    """Compare a call with the package's; return what came of it."""
    expected = outcome(tokenizer, *given, **options)
    found = outcome(single, *given, **options)
    if found == expected:
        return "same error" if isinstance(found, tuple) else "same"
    assert isinstance(found, tuple), (given, options, expected, found)
    if found[0] == "ImportError":
        assert NEEDS_TOOLS in found[1]
        return "refused"
    # Where a template takes no JSON text for arguments, the tools parse it.
    assert found[0] == "ValueError" and "the chat template" in found[1], found
    return "failed"


# -- Built-in templates, and functions -----------------------------------------


def trained() -> BPETokenizer:
    tokenizer = BPETokenizer("llama3", normalizer="NFC")
    tokenizer.train(["hello world hi the cat sat\n\n on"] * 30, vocab_size=300, verbose=False)
    tokenizer.add_special_tokens([*NAMES, "<|im_start|>", "<|im_end|>", "</s>", "<pad>"])
    tokenizer.add_special_tokens([AddedToken("<think>", special=False)])
    tokenizer.eos_token, tokenizer.pad_token = "</s>", "<pad>"
    return tokenizer


WORDS = [
    "Hi",
    "hello world",
    "\n\nx\n",
    "  a ",
    "",
    "<|eot_id|>",
    "<|im_end|>",
    "e\u0301",
    "\u0301a",
]
WORDS += ["naïve 東京", "<think>a", "a" * 30, "CONTINUE_FINAL_MESSAGE_TAG "]


def talk(rng: random.Random) -> Messages:
    """Make a conversation of words that are awkward for templates."""

    def words() -> str:
        return "".join(rng.choice(WORDS) for _ in range(rng.choice([0, 1, 1, 2, 3])))

    made: Messages = [{"role": "system", "content": words()}] if rng.random() < 0.4 else []
    for _ in range(rng.choice([1, 1, 2, 3])):
        made.append({"role": "user", "content": words()})
        if rng.random() < 0.7:
            parts = [{"type": "text", "text": words()} for _ in range(rng.choice([0, 1, 2]))]
            content = parts if rng.random() < 0.1 else words()
            made.append({"role": "assistant", "content": content})
        if rng.random() < 0.1:
            made.append({"role": "assistant", "content": words()})
    return made


OPTIONS: dict[str, tuple[float, list[Any]]] = {  # how often, and which values
    "return_dict": (0.7, [True]),
    "return_assistant_tokens_mask": (0.4, [True]),
    "continue_final_message": (0.3, [True, "content"]),
    "padding": (0.3, [True, "max_length", "longest"]),
    "truncation": (0.3, [True]),
    "max_length": (0.5, [20, 40, 80]),
    "return_tensors": (0.2, ["np", "pt"]),
    "tokenize": (0.1, [False]),
    "add_generation_prompt": (0.2, [True, False]),
    "tools": (0.05, [TOOLS]),
    "enable_thinking": (0.1, [True]),
    "content_tokens": (0.1, ["as-huggingface", "assistant", "other"]),
    "allowed_special": (0.1, ["none", "all", {"<|im_end|>"}]),
    "padding_side": (0.1, ["left", "right"]),
    "pad_to_multiple_of": (0.1, [8]),
    "truncation_side": (0.02, ["left"]),
    "session": (0.02, [None]),
}


def test_built_in_templates_take_all_options_as_in_the_package() -> None:
    need("numpy")
    need("torch")
    rng, tokenizer = random.Random(5), trained()
    single = as_lone(tokenizer)
    counts: Counter[str] = Counter()
    for _ in range(examples(600)):
        template = rng.choice(["llama3", "chatml", "alpaca", rng.choice([segments, pairs])])
        options = {
            name: rng.choice(values)
            for name, (share, values) in OPTIONS.items()
            if rng.random() < share
        }
        several = rng.random() < 0.4
        given = [talk(rng) for _ in range(rng.choice([1, 2, 3]))] if several else talk(rng)
        what = compare(tokenizer, single, given, template, **options)
        is_masked_function = callable(template) and "return_assistant_tokens_mask" in options
        assert what != "refused" or is_masked_function, (template, options, given)
        counts[what] += 1
    assert counts["same"] > counts.total() / 4, counts


def test_offsets_are_those_of_the_package() -> None:
    tokenizer = trained()
    single = as_lone(tokenizer)
    options: dict[str, Any] = {"return_dict": True, "return_offsets_mapping": True}
    for template in ("llama3", "chatml", "alpaca", CHATML):
        assert compare(tokenizer, single, TALK[:3], template, **options) == "same"
        # The text of the last message is changed by NFC.
        assert compare(tokenizer, single, TALK, template, **options) == "refused"


def test_ids_and_masks_of_chatml_are_those_of_transformers() -> None:
    transformers = need("transformers")
    ours = tokenizer_for(CHATML)
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=ours.to_hf(), bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    ours.pad_token = "</s>"
    tagged = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}"
        "<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    clean = [[*TALK[:3]], [*TALK[:2]], [USER, {"role": "assistant", "content": "x"}, USER]]
    options: dict[str, Any] = {"padding": True, "return_dict": True, "return_tensors": "np"}
    options["return_assistant_tokens_mask"] = True
    expected = theirs.apply_chat_template(
        clean, chat_template=tagged, add_generation_prompt=False, **options
    )
    found = as_lone(ours).apply_chat_template(clean, "chatml", False, **options)
    for name in ("input_ids", "attention_mask", "assistant_masks"):
        assert plain(found)[name] == expected[name].tolist(), name


def test_turns_are_left_out_with_a_warning() -> None:
    single = as_lone(trained())
    options: dict[str, Any] = {"truncation": True, "max_length": 60, "return_dict": True}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = single.apply_chat_template([*TALK[1:3] * 9, USER], "chatml", **options)
    assert made["dropped_messages"] > 0 and len(made["input_ids"]) <= 60
    assert "old messages are left out" in str(caught[0].message)
    assert caught[0].filename == __file__


# -- Jinja ---------------------------------------------------------------------


@pytest.mark.parametrize("template", [CHATML, THINKING, MASKED])
def test_a_template_renders_as_in_the_package(template: str) -> None:
    tokenizer = tokenizer_for(template)
    single = as_lone(tokenizer)
    counts: Counter[str] = Counter()
    for messages, options in CONVERSATIONS:
        for more in ({}, {"tokenize": False}, {"continue_final_message": True}):
            asked = {**options, **more, "think": True}
            counts[compare(tokenizer, single, messages, template, **asked)] += 1
        batch = [messages, [USER]]
        how: dict[str, Any] = {"padding": True, "return_dict": True, **options}
        counts[compare(tokenizer, single, batch, template, **how)] += 1
    assert counts["same"] > 2 * counts["refused"], counts


def test_a_message_written_twice_is_continued_at_its_last_place() -> None:
    template = "{{ messages[-1].content }}: " + CHATML  # such as a title
    tokenizer = tokenizer_for(template)
    asked: dict[str, Any] = {"continue_final_message": True, "tokenize": False}
    assert compare(tokenizer, as_lone(tokenizer), TALK[:3], template, **asked) == "same"
    assert compare(tokenizer, as_lone(tokenizer), TALK, template, **asked) == "same"
    made = tokenizer.apply_chat_template(TALK[:3], template, **asked)
    assert made.endswith("<|im_start|>assistant\nHello.\n")
    unclear = template + "{{ '%s!' % messages[-1].content }}"
    assert compare(tokenizer, as_lone(tokenizer), TALK[:3], unclear, **asked) == "refused"


def test_a_mark_that_the_template_writes_in_parts_is_one() -> None:
    template = CHATML + "{{ '<th' ~ 'ink>' }}"
    tokenizer = tokenizer_for(template + "{# <think> #}")
    assert compare(tokenizer, as_lone(tokenizer), TALK, template) == "same"
    answer = {"role": "assistant", "content": "<think>x"}
    assert compare(tokenizer, as_lone(tokenizer), [*TALK, answer], template) == "refused"


def test_its_own_template_is_the_tokenizers_default() -> None:
    tokenizer = tokenizer_for(THINKING)
    tokenizer.chat_template = {"default": CHATML, "tool_use": THINKING, "short": "{{ 1 }}"}
    single = as_lone(tokenizer)
    for options in ({}, {"tools": TOOLS}, {"chat_template": "short"}, {"tools": []}):
        assert compare(tokenizer, single, TALK, **options) == "same"
    assert "unknown chat template 'nosuch'" in outcome(single, TALK, "nosuch")[1]


def test_a_template_is_checked_when_it_is_assigned() -> None:
    single = lone.BPETokenizer()
    for wrong, problem in (("chat.jinja", "the name of a file"), ("{% for %}", "not valid Jinja")):
        with pytest.raises(ValueError, match=problem):
            single.chat_template = wrong
    single.chat_template = THINKING
    assert single.chat_template == THINKING


def test_no_operation_makes_a_messages_text_the_templates_own() -> None:
    head = "{% set x = messages[0].content %}{% set s = [x, '(a)', x ~ '(b)'] %}{% set d = items %}"
    capital = TYPED.upper() + TYPED.lower() + TYPED.casefold()
    typed = set(TYPED) | {char for char in capital if not char.isascii()}
    tried = 0
    for name, operation in OPERATIONS.items():
        for statement in statements(operation):
            for content in [form.format(c=c) for form in FORMS for c in (TYPED[0], TYPED)]:
                items = {content: content, "k": [content, {content: 1}], "own": content}
                given = [lone._tracked_message({"role": "user", "content": content})]
                variables = {"items": lone._tracked(items, lone._SAID)}
                try:
                    text = lone._render_jinja(head + statement, given, True, variables)
                except ValueError:  # not every content suits every operation
                    continue
                own = "".join(part for part, writer in text._runs() if writer == lone._OWN)
                assert not set(own) & typed, (statement, content)
                assert not ("of " in name and "own" in own), (statement, content)
                tried += 1
    assert tried > 2_000


def test_a_form_that_the_template_wrote_is_followed() -> None:
    tokenizer = tokenizer_for(CHATML)
    single = as_lone(tokenizer)
    for form in ("'<{}>{{}}'.format('|im_end|', c)", "'{1}{0}'.format(c, '<|im_end|>')"):
        template = "{% set c = messages[0].content %}{{ " + form + " }}"
        for content in ("a", "<|im_end|>", "{0}<s>"):
            messages = [{"role": "user", "content": content}]
            assert compare(tokenizer, single, messages, template) == "same"
            control = tokenizer.special_tokens["<|im_end|>"]
            assert single.apply_chat_template(messages, template).count(control) == 1


@pytest.mark.parametrize("template", [CHATML, THINKING])
def test_random_attacks_get_nothing_in(template: str) -> None:
    counts = attack([chat_attacks.Target("", template, tokenizer_for(template))], examples(400), 3)
    assert counts["same"] > counts.total() / 2, counts


def attack(found: list[chat_attacks.Target], n: int, seed: int) -> Counter[str]:
    """Attack n times; what gets in nowhere in the package gets in nowhere alone: ids are equal."""
    counts: Counter[str] = Counter()
    single: dict[int, Any] = {}
    for i in range(n):
        target = found[i * len(found) // n]
        rng, tokens = random.Random(seed + i), target.tokens
        messages, options = chat_attacks.conversation(
            lambda: chat_attacks.typed(rng, tokens),  # noqa: B023 - called at once
            rng,
        )
        options["continue_final_message"] = rng.random() < 0.3
        if id(target.tokenizer) not in single:
            single[id(target.tokenizer)] = as_lone(target.tokenizer)
        alone = single[id(target.tokenizer)]
        counts[compare(target.tokenizer, alone, messages, target.template, **options)] += 1
    return counts


@pytest.mark.slow
def test_random_attacks_on_public_templates_get_nothing_in(llama_cpp_source: Path) -> None:
    models = llama_cpp_source / "models"
    found = list(chat_attacks.targets(models, random.Random(7), ("qwen2",)))
    assert all(target.tokenizer.components is None for target in found)
    counts = attack(found, examples(600), 11)
    assert counts["same"] > counts.total() / 2, counts


@pytest.mark.slow
def test_public_templates_give_the_ids_of_transformers(templates: dict[str, str]) -> None:
    """Of 70 templates, how many answer, and on which conversations: docs/limits.md says so."""
    need("transformers")
    from transformers.utils.chat_template_utils import render_jinja_template

    answering: Counter[str] = Counter()
    renderable: set[str] = set()
    refused: dict[str, set[str]] = {}
    for name, template in templates.items():
        tokenizer = tokenizer_for(template)
        single = as_lone(tokenizer)
        for messages, options in CONVERSATIONS:
            what = compare(tokenizer, single, messages, template, **options)
            if what in ("same", "refused"):
                renderable.add(name)
            if what == "refused":
                said = outcome(single, messages, template, **options)[1]
                refused.setdefault("answer" if "in an answer" in said else said, set()).add(name)
            if what != "same":
                continue
            answering[name] += 1
            messages = [
                {key: value for key, value in message.items() if value is not None}
                for message in messages
            ]
            if any("think>" in str(message.get("content")) for message in messages):
                continue  # marks in contents are text here
            roles = {"bos_token": "<s>", "eos_token": "</s>"}
            given = {**roles, "add_generation_prompt": True, **options}
            try:
                text = render_jinja_template([messages], chat_template=template, **given)[0][0]
            except Exception:  # what the package renders besides is compared with it alone
                continue
            ids = single.apply_chat_template(messages, template, **options)
            assert ids == single.encode(text, allowed_special="all"), name
    assert len(renderable) == 68  # two need variables that no conversation here has
    assert renderable == answering.keys()
    assert sum(answering.values()) > 800
    others = set().union(*(names for said, names in refused.items() if said != "answer"))
    assert others == {"mistralai-Ministral-3-14B-Reasoning-2512"}
    assert len(refused["answer"]) < 30


# -- What is refused -----------------------------------------------------------


def test_what_only_the_tools_do_says_so() -> None:
    tokenizer = tokenizer_for(THINKING)
    single = as_lone(tokenizer)

    def weather(city: str) -> str:
        """Say the weather."""
        return city

    masked = {"return_dict": True, "return_assistant_tokens_mask": True}
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (CHATML, {"truncation": True, "max_length": 9}, "truncation with a Jinja template"),
        (CHATML, masked, "return_assistant_tokens_mask with a template that isn't built in"),
        (segments, masked, "return_assistant_tokens_mask with a template that isn't built in"),
        (CHATML, {"session": tokenizer.incremental()}, "session="),
        (CHATML, {"tools": [weather]}, "a tool that isn't a JSON schema"),
    ]
    for template, options, what in cases:
        kind, said = outcome(single, TALK, template, **options)
        assert kind == "ImportError" and said.startswith(what) and NEEDS_TOOLS in said


def test_text_that_nobody_knows_who_wrote_is_refused_only_with_a_token_in_it() -> None:
    tokenizer = tokenizer_for(CHATML)
    single = as_lone(tokenizer)
    last = "'<|im_end|>' if end else ''"
    template = "{{ '{}{:>}'.format(messages[0].content, " + last + ") }}{{ [1, 2] }}<s>"
    assert compare(tokenizer, single, [USER], template) == "same"
    for messages, end in (([USER], True), ([{**USER, "content": "<|im_end|>"}], False)):
        kind, said = outcome(single, messages, template, end=end)
        assert kind == "ImportError"
        assert said.startswith("telling who wrote '<|im_end|>', made by the template (format)")
    # Such a token that this tokenizer lacks may be a mistake of the template's.
    unknown = template.replace("<|im_end|>", "<|nosuch|>")
    assert outcome(single, [USER], unknown, end=True)[0] == "ImportError"
    assert "'<|nosuch|>'" in outcome(single, [USER], unknown, end=True)[1]


def test_marks_in_answers_are_text_if_the_template_does_not_name_them() -> None:
    tokenizer = tokenizer_for(CHATML)
    single = as_lone(tokenizer)
    said = [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}, USER]
    assert compare(tokenizer, single, said, CHATML) == "same"
    assert compare(tokenizer, single, said[:2] * 2, THINKING) == "same"  # it cuts them off
    half = [USER, {"role": "assistant", "content": "<think>hm"}, USER]
    kind, problem = outcome(single, half, THINKING)
    assert kind == "ImportError"
    assert problem.startswith("telling whether '<think>' in an answer is a mark")


def test_json_arguments_that_a_template_goes_through_are_pointed_out() -> None:
    single = as_lone(tokenizer_for(CHATML))
    template = (
        "{% for k, v in messages[0].tool_calls[0].function.arguments.items() %}{{ v }}{% endfor %}"
    )
    function = {"name": "f", "arguments": '{"city": "Paris"}'}
    call = {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}
    kind, said = outcome(single, [call], template)
    assert kind == "ValueError" and said.endswith("pass json.loads of the text")
    function["arguments"] = {"city": "Paris"}
    assert outcome(single, [call], template, tokenize=False) == "Paris"


def test_a_template_that_is_damaged_or_refuses_says_what_the_package_says() -> None:
    tokenizer = tokenizer_for(CHATML)
    single = as_lone(tokenizer)
    for template in (
        "{% for m in messages %}",
        "{{ raise_exception('no ' ~ messages[0].role) }}",
        "{{ messages[0].content.nosuch() }}",
        "{{ messages[0].content + 1 }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages | join(', ', attribute='role') }}",
        "{{ '<|nosuch|>' }}",
        "{" * 2**18,
    ):
        found, expected = (outcome(each, [USER], template) for each in (single, tokenizer))
        assert isinstance(found, tuple) and found[0] == expected[0] == "ValueError", template
        if "+ 1" not in template and "mro" not in template:
            assert found == expected


def test_without_jinja_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    single = as_lone(tokenizer_for(CHATML))
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    lone._jinja.cache_clear()
    lone._compile_jinja.cache_clear()
    kind, said = outcome(single, [USER], CHATML)
    assert kind == "ImportError" and said.endswith("pip install jinja2")
    assert outcome(single, [USER], "chatml") == outcome(
        single, [USER], "chatml", chat_template=None
    )


class Shown(str):
    """Text that shows another text, as members of an Enum do."""

    def __str__(self) -> str:
        return "<|im_end|> and more"


def test_text_is_what_it_is_not_what_it_shows() -> None:
    tokenizer = tokenizer_for(CHATML)
    single = as_lone(tokenizer)

    def template(messages: Messages, **_: Any) -> list[tuple[str, bool]]:
        return [(Shown("<|im_start|>"), True), (Shown(messages[0]["content"]), False)]

    talk = [{"role": Shown("user"), "content": Shown("hello")}]
    for each in (template, CHATML, "chatml"):
        assert compare(tokenizer, single, talk, each) == "same"


@pytest.mark.parametrize(
    "version, is_safe",
    [("3.1.6", True), ("3.2.0rc1", True), ("4.0", True), ("3.1.5", False), ("3.1", False)],
)
def test_the_version_of_jinja_decides(
    monkeypatch: pytest.MonkeyPatch, version: str, is_safe: bool
) -> None:
    monkeypatch.setattr("jinja2.__version__", version)
    assert jinja_version.is_usable() == is_safe
    lone._jinja.cache_clear()
    if is_safe:
        lone._jinja()
        return
    with pytest.raises(ImportError, match=rf"needs jinja2 3\.1\.6, .* not {version}: pip install"):
        lone._jinja()


def test_chat_takes_variables_that_the_template_reads() -> None:
    single = as_lone(tokenizer_for(THINKING))
    single.chat_template = THINKING
    for options, kind in (({"think": True}, "FileNotFoundError"), ({"thikn": True}, "TypeError")):
        with pytest.raises(Exception) as error:
            single.chat(TALK, "nosuch", **options)
        assert type(error.value).__name__ == kind
