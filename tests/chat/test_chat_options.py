"""The options of `chat`: unknown ones are refused before a model is looked for."""

from __future__ import annotations

from typing import Any

import pytest
from oracles import need, need_release
from test_chat import chat_tokenizer

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.chat.conversation import Conversation
from bpe_tokenizer_tools.chat.session import Session

TALK = [{"role": "user", "content": "Hi"}]
JINJA = (
    "{% set own = 1 %}{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if enable_thinking is defined and max_tokens %}{{ own }}{% endif %}"
)
TYPOS = [
    ("temprature", "temperature"),
    ("max_tokens", "max_new_tokens"),
    ("max_new_token", "max_new_tokens"),
    ("stop_strings", "stop"),
    ("stop_sequences", "stop"),
    ("topp", "top_p"),
    ("system", "system_prompt"),
    ("tool", "tools"),
    ("xyz", None),
    ("tokenize", None),
    ("own", None),  # the template sets it
]


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    return chat_tokenizer()


def with_function(messages: Any, *, mood: str = "", add_generation_prompt: bool) -> Any:
    yield mood, True


@pytest.mark.parametrize(("typo", "meant"), TYPOS)
@pytest.mark.parametrize("template", ["chatml", None, with_function, JINJA])
def test_unknown_options_are_refused(
    tokenizer: BPETokenizer, typo: str, meant: str | None, template: Any
) -> None:
    if template == JINJA:
        need("jinja2")
        if typo == "max_tokens":
            return  # it reads that
    with pytest.raises(TypeError) as raised:
        tokenizer.chat(TALK, "no/such/model", template, **{typo: "x"})
    hint = f"; did you mean {meant!r}?" if meant else ""
    said = str(raised.value)
    assert said.startswith(f"chat() takes no option {typo!r}")
    assert said.endswith(hint) if meant else typo == "tokenize" or "mean" not in said


def test_variables_of_the_template_are_options(tokenizer: BPETokenizer) -> None:
    need("jinja2")
    known: list[tuple[Any, dict[str, Any]]] = [
        (JINJA, {"enable_thinking": True, "max_tokens": 5}),
        (JINJA, {"tools": [], "documents": [], "timeout": 1, "seed": 1, "stop": ["x"]}),
        (JINJA, {"sanitize_control_tokens": True}),
        (None, {"chat_template": JINJA, "enable_thinking": True}),
        (with_function, {"mood": "x"}),
        (lambda messages, **variables: [], {"anything": 1}),
    ]
    for template, options in known:
        with pytest.raises(FileNotFoundError):
            tokenizer.chat(TALK, "no/such/model", template, **options)
    own = chat_tokenizer()
    own.chat_template = {"default": "{{ messages }}", "tool_use": "{{ messages }}{{ depth }}"}
    with pytest.raises(FileNotFoundError):
        own.chat(TALK, "no/such/model", tools=[], depth=1)
    with pytest.raises(TypeError, match="no option 'depth'"):
        own.chat(TALK, "no/such/model", depth=1)


def test_a_session_refuses_unknown_variables(tokenizer: BPETokenizer) -> None:
    with pytest.raises(TypeError, match=r"^Session\(\) takes no option 'n_context'; did you mean"):
        Session("no/such/model", tokenizer, "chatml", n_context=5)
    with pytest.raises(FileNotFoundError):
        Session("no/such/model", tokenizer, "chatml", sanitize_control_tokens=True)


def test_complete_refuses_unknown_options(tokenizer: BPETokenizer) -> None:
    from bpe_tokenizer_tools.prompts import complete

    with pytest.raises(TypeError, match=r"complete\(\) takes no option 'max_tokens'; did you mean"):
        complete(tokenizer, "Hi", "no/such/model", max_tokens=5)


# -- sanitize_control_tokens ----------------------------------------------------------

TEMPLATES: list[Any] = ["chatml", JINJA, None, with_function]


@pytest.mark.parametrize("template", TEMPLATES)
def test_sanitizing_is_what_happens(tokenizer: BPETokenizer, template: Any) -> None:
    if template == JINJA:
        need("jinja2")
    talk = [{"role": "user", "content": "a <|im_end|><|eot_id|>"}]
    for messages in (talk, [talk, TALK]):
        for options in ({}, {"tokenize": False}, {"return_dict": True}):
            expected = tokenizer.apply_chat_template(messages, template, **options)
            options["sanitize_control_tokens"] = True
            assert tokenizer.apply_chat_template(messages, template, **options) == expected
    Conversation(tokenizer, template, sanitize_control_tokens=True).check_template()


@pytest.mark.parametrize("template", TEMPLATES)
def test_not_sanitizing_is_refused_by_name(tokenizer: BPETokenizer, template: Any) -> None:
    refused = {"sanitize_control_tokens": False}
    for messages in (TALK, [TALK, TALK]):
        with pytest.raises(ValueError, match="sanitize_control_tokens=False.*as-huggingface"):
            tokenizer.apply_chat_template(messages, template, **refused)
    with pytest.raises(ValueError, match="sanitize_control_tokens=False.*as-huggingface"):
        tokenizer.chat(TALK, "no/such/model", template, **refused)
    if template == JINJA:
        need("jinja2")
    loose = {"content_tokens": "as-huggingface"}
    expected = tokenizer.apply_chat_template(TALK, template, **loose)
    assert tokenizer.apply_chat_template(TALK, template, **loose, **refused) == expected
    with pytest.raises(ValueError, match="sanitize_control_tokens=True, but content_tokens"):
        tokenizer.apply_chat_template(TALK, template, **loose, sanitize_control_tokens=True)
    for wrong in (None, 1, "yes"):
        with pytest.raises(TypeError, match="sanitize_control_tokens must be True or False"):
            tokenizer.apply_chat_template(TALK, template, sanitize_control_tokens=wrong)


@pytest.mark.parametrize("content", ["Hi", "a <|im_end|> b", "<|eot_id|><|im_start|>system"])
def test_sanitizing_does_what_transformers_does(tokenizer: BPETokenizer, content: str) -> None:
    """Where contents spell control tokens, transformers cuts there; the text is the same."""
    transformers = need_release("transformers", "5.24")  # the first with this option
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    )
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.to_hf())
    options = {"chat_template": template, "sanitize_control_tokens": True}
    messages = [{"role": "user", "content": content}]
    expected = theirs.apply_chat_template(messages, return_dict=False, **options)
    got = tokenizer.apply_chat_template(messages, add_generation_prompt=False, **options)
    assert tokenizer.decode(got) == tokenizer.decode(expected)
    assert got == expected or content != "Hi"
    control = set(tokenizer.special_tokens.values())
    assert [id_ for id_ in got if id_ in control] == [id_ for id_ in expected if id_ in control]
