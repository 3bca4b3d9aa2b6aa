"""Masks and truncation without rendering the whole for each turn.

What is proven of a template, or seen of a rendering, is used to render less.  The reference is the
same call with nothing proven or seen, which renders all of it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from conftest import EITHER_ENGINE
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need
from test_chat_templates import (
    CHATML,
    RESULT,
    SYSTEM,
    TOOLS,
    USER,
    Messages,
    call,
    compiled_templates_are_kept,
    templates,
    tokenizer_for,
)

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.chat import locality, truncation
from bpe_tokenizer_tools.chat.budget import Budget
from bpe_tokenizer_tools.chat.templates import _MANY_MESSAGES, Renderer

__all__ = ["compiled_templates_are_kept", "templates"]  # fixtures

need("jinja2")
pytestmark = EITHER_ENGINE

WORDS = [
    "Hi",
    "",
    " x \n",
    "assistant\n",
    "<|im_end|>",
    "<think>\nhm\n</think>\n\nYes",
    "One. Two.",
]
CALL = call({"city": "Paris"})
TURNS: list[Messages] = [
    [USER, {"role": "assistant", "content": "Hello."}],
    [USER, {"role": "assistant", "content": ""}],
    [USER, CALL, RESULT, {"role": "assistant", "content": "Fine."}],
    [USER],
    [{"role": "assistant", "content": "And more."}],
    [USER, {"role": "assistant", "content": "Yes", "reasoning_content": "Hm."}],
]
WRITTEN = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS)).map(
        lambda pair: [
            {"role": "user", "content": pair[0]},
            {"role": "assistant", "content": pair[1]},
        ]
    ),
    max_size=3,
)
CONVERSATIONS = st.builds(
    lambda head, blocks, written: [*head, *sum(blocks, []), *sum(written, [])],
    st.sampled_from([[], [SYSTEM], [SYSTEM, {"role": "developer", "content": "Go."}]]),
    st.lists(st.sampled_from(TURNS), min_size=1, max_size=12),
    WRITTEN,
)


def masks(tokenizer: BPETokenizer, messages: Messages, template: str, **options: Any) -> Any:
    try:
        return tokenizer.apply_chat_template(
            messages,
            template,
            return_dict=True,
            return_assistant_tokens_mask=True,
            **{"add_generation_prompt": False, **options},
        )
    except ValueError as error:
        return str(error)


def truncated(tokenizer: BPETokenizer, messages: Messages, template: str, **options: Any) -> Any:
    """Return what is left, for several lengths."""
    found = []
    for limit in (5, 30, 60, 90, 150, 400):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            more = {"truncation": True, "max_length": limit, "return_dict": True}
            try:
                made = tokenizer.apply_chat_template(messages, template, **more, **options)
            except ValueError as error:
                made = str(error)
        found.append(made)
    return found


def with_nothing_proven(make: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Renderer, "locality", None)
        patch.setattr(Renderer, "beginnings", lambda *_: None)
        return make()


CONTROL = ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>"]
CONTROL += ["<|end_header_id|>", "<|eot_id|>"]
tokenizer_of = functools.lru_cache(maxsize=64)(lambda template: tokenizer_for(template, *CONTROL))


def check(
    template: str, messages: Messages, results: Any = (masks, truncated), **options: Any
) -> None:
    tokenizer = tokenizer_of(template)
    for result in results:
        found = result(tokenizer, messages, template, **options)
        assert found == with_nothing_proven(
            lambda: result(tokenizer, messages, template, **options)  # noqa: B023
        )


# -- Which templates are local -------------------------------------------------

LOCAL = {
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen3-Coder",
    "google-gemma-2-2b-it",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "ibm-granite-granite-3.3-2B-Instruct",
    "unsloth-mistral-Devstral-Small-2507",
}


def test_some_public_templates_are_local(templates: dict[str, str]) -> None:
    found = {name for name, template in templates.items() if locality.find(template)}
    assert found >= LOCAL and len(found) >= 15
    assert locality.find(CHATML) == locality.Locality()


BODY = "{{ '<|im_start|>' + m.role + '\n' }}{{ m.content }}{{ '<|im_end|>\n' }}"


def in_loop(text: str) -> str:
    return f"{{% for m in messages %}}{BODY}{text}{{% endfor %}}"


@pytest.mark.parametrize(
    "template",
    [
        in_loop("{{ loop.index }}"),
        in_loop("{{ loop.length }}"),
        in_loop("{{ loop }}"),
        in_loop("{{ loop.cycle('a', 'b') }}"),
        in_loop("{{ loop.changed(m.role) }}"),
        in_loop("{{ messages | length }}"),
        in_loop("{{ messages[-1].role }}"),
        in_loop("{% if m.content == 'x' %}{% break %}{% endif %}"),
        in_loop("{% set x = loop.index0 %}{{ x }}"),
        in_loop("{% for x in messages %}{{ x.role }}{% endfor %}"),
        in_loop("") + in_loop(""),
        "{% set n = namespace(i=0) %}" + in_loop("{% set n.i = n.i + 1 %}{{ n.i }}"),
        "{% set n = namespace(i=0) %}{% macro f() %}{% set n.i = 1 %}{% endmacro %}"
        + in_loop("{{ f() }}"),
        "{% set c = cycler('a', 'b') %}" + in_loop("{{ c.next() }}"),
        "{% set j = joiner(',') %}" + in_loop("{{ j() }}"),
        "{% set names = tools | map(attribute='type') %}" + in_loop("{{ names | first }}"),
        "{% set x %}" + in_loop("") + "{% endset %}{{ x | length }}",
        "{% filter upper %}" + in_loop("") + "{% endfilter %}",
        "{% macro f(messages) %}" + in_loop("") + "{% endmacro %}{{ f(messages) }}",
        in_loop("").replace("in messages", "in messages[::-1]"),
        in_loop("").replace("in messages", "in messages if m.role != 'tool'"),
        in_loop("").replace("in messages", "in messages | list"),
        "{% set x = messages | selectattr('role', 'equalto', 'user') | list %}" + in_loop(""),
        "{% set other = messages[:5] %}" + in_loop(""),
        "{% set messages = messages + messages %}" + in_loop(""),
        in_loop("").replace(
            "{{ m.content }}", "{% generation %}{{ m.content }}{% endgeneration %}"
        ),
    ],
)
def test_templates_that_look_further_are_not_local(template: str) -> None:
    assert locality.find(template) is None


def test_what_a_template_looks_at_is_known() -> None:
    def found(text: str, before: str = "") -> dict[str, Any]:
        known = locality.find(before + in_loop(text))
        assert known is not None
        usual = locality.Locality()._asdict()
        return {name: value for name, value in known._asdict().items() if value != usual[name]}

    assert found("{% if loop.first %}a{% endif %}") == {"positions": 1}
    assert found("{% if loop.last %}a{% endif %}") == {}
    assert found("{% if loop.index0 == 0 %}a{% endif %}") == {"positions": 1}
    assert found("{% if loop.index > 3 %}a{% endif %}") == {"positions": 3}
    assert found("{% if loop.index0 % 2 == 0 %}a{% endif %}") == {"period": 2}
    assert found("{{ messages[0].role }}") == {"heads": 1}
    assert found("{{ messages[1]['content'] }}") == {"heads": 2}
    assert found("{{ messages[0] | tojson }}") == {"heads": 1, "only_fields": False}
    assert found("{{ loop.previtem.role }}") == {"before": 1}
    assert found("{{ messages[loop.index0 + 1].role }}") == {"after": 1}
    assert found("{{ messages[loop.index0 - 2].role }}") == {"before": 2}
    assert found("", "{% set messages = messages[1:] %}") == {"heads": 1, "positions": 1}
    assert found("{{ raise_exception('x') }}") == {"may_refuse": True}
    assert found("{% for x in m.tool_calls %}{{ loop.index }}{% endfor %}") == {}


# -- The same masks and conversations ------------------------------------------


@settings(max_examples=examples(100))
@given(data=st.data(), messages=CONVERSATIONS)
def test_public_templates_give_the_same(
    templates: dict[str, str], data: st.DataObject, messages: Messages
) -> None:
    name = data.draw(st.sampled_from(["chatml", "llama3", "alpaca", CHATML, *sorted(LOCAL)]))
    template = templates.get(name, name)
    options = data.draw(st.sampled_from([{}, {"tools": TOOLS}, {"enable_thinking": False}]))
    check(template, messages, **options)


# The scans of public templates, and others that look at what must not be taken over.
SCANS = [
    "{% for m in messages %}{% if m.role == 'user' %}{% set n.i = loop.index0 %}{% endif %}"
    "{% endfor %}",
    "{% for m in messages[::-1] %}{% set at = (messages | length - 1) - loop.index0 %}"
    "{% if n.more and m.role == 'user' and m.content != 'Hi' %}{% set n.more = false %}"
    "{% set n.i = at %}{% endif %}{% endfor %}",
    "{% for m in messages[::-1] %}{% if loop.index0 > 2 and n.more %}{% set n.i = loop.index %}"
    "{% set n.more = false %}{% endif %}{% endfor %}",
    "{% for m in messages[::-1] %}{% if m.role == 'tool' %}{% set n.i = n.i + 1 %}{% endif %}"
    "{% endfor %}",
    "{% for m in messages %}{% if m.role == 'user' %}{% set n.x = m.content %}{% break %}"
    "{% endif %}{% endfor %}",
    "{% for m in messages %}{% set n.i = n.i + 1 %}{% set n.x = n.x ~ m.role[:1] %}{% endfor %}",
    "{% set n.i = messages | length %}",
    "{% set n.x = messages[-1].role %}",
    "{% set n.more = messages | selectattr('role', 'equalto', 'tool') | list | length > 1 %}",
    "{% if messages[0].role == 'system' %}{% set messages = messages[1:] %}{% endif %}",
    "{% set messages = messages[:-1] %}",
    "{% set k = messages | length - 3 %}",
    "{% if messages | length > 6 %}{% macro f() %}long{% endmacro %}{% else %}"
    "{% macro f() %}short{% endmacro %}{% endif %}",
    "{% for i in range(messages | length) %}{% if messages[i].role == 'user' %}{% set n.i = i %}"
    "{% endif %}{% endfor %}",
    "{% for i in range(messages | length - 1, -1, -1) %}{% if messages[i].role == 'assistant' %}"
    "{% set n.i = i %}{% endif %}{% endfor %}",
    "{% for i in range(messages | length - 2, 0, -1) %}{% if n.more and messages[i].content %}"
    "{% set n.more = false %}{% set n.x = messages[i + 1].role %}{% endif %}{% endfor %}",
    "{% for i in range(2, messages | length, 2) %}{% set n.i = n.i + i %}{% endfor %}",
    "{% for i in range(messages | length) %}{{ loop.index if messages[i].role == 'tool' else i }}"
    "{{ loop.last }}{% endfor %}",
    "{% for i in range(5, 1, -1) %}{% set n.i = i %}{% break %}{% endfor %}",
    "{% set some = messages | selectattr('role', 'equalto', 'user') | list %}",
    "{% set some = messages[1:] | rejectattr('role', 'in', ['tool', 'user']) | list %}",
    "{% set some = messages | selectattr('tool_calls') | rejectattr('content') | list %}",
    "{% for m in messages | selectattr('role', 'equalto', 'user') %}{% set n.i = n.i + 1 %}"
    "{{ m.content }}{{ loop.index }}{% endfor %}",
    "{% set first = namespace(x='one') %}{% set second = namespace(x='two') %}"
    "{% set k = first if messages | length > 4 else second %}",
    "{% set last = messages | length - 1 %}{% set k = messages[-1].role %}",
    "{% for m in messages[::-1] %}{% if m.role == 'user' %}"
    "{% set n.i = messages | length - loop.index %}{% break %}{% endif %}{% endfor %}"
    "{% set last = n.i %}",
    "{% macro g(messages, said) %}{% set f = namespace(i=0, x=false) %}{% for x in messages %}"
    "{% if x.content == said and not f.x %}{{ f.i }}{% set f.x = true %}{% endif %}"
    "{% set f.i = f.i + 1 %}{% endfor %}{% endmacro %}",
    "{% macro g(messages, said) %}{% for x in messages %}{% if said == x.content %}{{ x.role }}"
    "{% elif n.i > loop.index %}{{ n.x }}{% endif %}{% endfor %}{% endmacro %}",
    "{% macro g(messages, n) %}{% for x in messages %}{% if x.content < n or k == x.role %}"
    "{{ loop.index }}{% endif %}{% endfor %}{{ n }}{% endmacro %}",
]
# Loops over all messages for each of them.
SEARCHES = [
    "{% set f = namespace(x=-1) %}{% for x in messages %}{% if x.role == 'user' "
    "and loop.index0 < here %}{% set f.x = loop.index0 %}{% endif %}{% endfor %}{{ f.x }}",
    "{% for x in messages %}{% if x.content == said %}{{ x.role }}{% break %}{% endif %}"
    "{% endfor %}",
    "{% for x in messages %}{% if x.content == said %}{{ loop.index }}{% endif %}{% endfor %}",
    "{% for x in messages %}{% if x.content != said and loop.index0 > here %}{{ x.role }}"
    "{% break %}{% endif %}{% endfor %}",
    "{% for x in messages %}{% if x.reasoning_content == said or x.role > said %}{{ loop.index0 }}"
    "{% endif %}{% endfor %}",
    "{% for x in messages %}{% if m.role == 'tool' %}{% set n.i = n.i + 1 %}{% endif %}"
    "{% endfor %}",
    "{% for x in messages %}{% if n.i > loop.index0 %}{{ n.x }}{% set n.i = n.i - 1 %}{% endif %}"
    "{% endfor %}",
    "{% for x in messages %}{{ 'x' if loop.last or x is sameas m }}{% endfor %}",
    "{% for x in messages %}{% for y in messages %}{% if x.content == y.content "
    "and y.content == said and loop.index0 < here %}{{ loop.index }}{% break %}{% endif %}"
    "{% endfor %}{% endfor %}",
    "{% set t %}{% for x in messages %}{% if loop.index0 < 2 %}{{ x.content }}{% endif %}"
    "{% endfor %}{% endset %}{{ t }}",
    "{% set f = namespace(x=false) %}{% for x in messages[loop.index:] %}{% if x.role == 'user' %}"
    "{% set f.x = true %}{% endif %}{% endfor %}{{ f.x }}",
    "{% for x in some or [] %}{% if x.content == said %}{{ messages | length > 4 }}{% endif %}"
    "{% endfor %}",
    "{% set rest = messages[1:] %}{% for x in rest %}{% if x.role != k and n.more %}"
    "{% set n.more = x.content == said %}{% endif %}{% endfor %}{{ n.more }}",
]
REMEMBERING = [
    BODY,
    "{% if loop.index0 > n.i %}{{ m.reasoning_content }}{{ '<|im_end|>' }}{% endif %}",
    "{% if loop.index0 <= n.i and m.role == 'assistant' %}{{ 'past' }}{% endif %}",
    "{% if loop.index0 == n.i %}{{ 'at' }}{% endif %}",
    "{% set n.i = n.i + 1 %}{% if n.i % 3 == 0 %}{{ n.i }}{% endif %}",
    "{% if m.role == 'user' %}{% set n.x = m.content %}{% else %}{{ n.x }}{% endif %}",
    "{% if n.more %}{{ 'more' }}{% set n.more = false %}{% elif m.role == 'tool' %}"
    "{% set n.more = true %}{% endif %}",
    "{% if loop.last %}{{ '<|im_end|>' }}{% endif %}",
    "{% if loop.index0 == messages | length - 2 %}{{ 'nearly' }}{% endif %}",
    "{% if loop.revindex0 < 2 %}{{ 'late' }}{% endif %}",
    "{% if messages[-1].role == 'user' %}{{ 'asked' }}{% endif %}",
    "{% if m.role == 'tool' and messages[-1].content != '' %}{{ messages[-1].content }}{% endif %}",
    "{% for x in messages[loop.index0 + 1:] %}{% if x.role == 'user' %}{{ x.content }}{% break %}"
    "{% endif %}{% endfor %}",
    "{% for x in messages[loop.index:] %}{{ loop.index if loop.last else '' }}{% endfor %}",
    "{% if add_generation_prompt %}{{ 'p' }}{% endif %}",
    "{{ k }}",
    "{{ f() if f is defined else '' }}",
    "{{ k.x if k is mapping or k.x is defined else '' }}",
    "{% if k is number and loop.index > k %}{{ 'k' }}{% endif %}",
    "{% if m.content == 'x' %}{% break %}{% endif %}",
    "{% if messages | length is integer %}{{ loop.cycle('a', 'b') }}{% endif %}",
    "{% if loop.changed(m.role) %}{{ 'changed' }}{% endif %}",
    "{% if loop.previtem and loop.previtem.role == m.role %}{{ 'again' }}{% endif %}",
    "{{ loop.nextitem.role if loop.nextitem else 'none' }}",
    "{% if (messages + messages)[loop.index].role == 'user' %}{{ 'sum' }}{% endif %}",
    "{% if m in messages[2:] %}{{ 'in' }}{% endif %}",
    "{{ messages[2:4] | map(attribute='role') | join }}",
    "{% set n.x = namespace(i=loop.index) %}{{ n.x.i }}",
    "{% if some is defined and some and m == some[-1] %}{{ 'the last' }}{% endif %}",
    "{{ some | length if some is defined and loop.index0 == 2 else '' }}",
    "{{ some[1].content if some is defined else '' }}",
    "{% for x in some or [] %}{{ x.content if loop.index0 < 2 else '' }}{% endfor %}",
    "{{ (messages | selectattr('role', 'equalto', 'tool') | list)[0].content }}",
    "{% for i in range(loop.index0, messages | length) %}{{ i if loop.last else '' }}{% endfor %}",
    "{% if messages | length > 9 %}{{ raise_exception('long') }}{% endif %}",
    "{% if m == messages[-1] %}{{ 'the last' }}{% endif %}",
    "{% if m.role == 'user' and some is defined and some[-1] != m %}{{ 'not it' }}{% endif %}",
    "{% if some is defined and m != some[-1] %}{{ m.role }}{% endif %}",
    "{{ messages[0] == messages[1:][-1] }}",
    "{% if last is defined and loop.index0 > n.i %}{{ 'late' }}{% endif %}",
    "{% if loop.index0 > last %}{{ 'after' }}{% elif last == loop.index0 %}{{ 'at' }}{% endif %}",
    "{% if k == 'user' or loop.index0 == 2 and 'tool' != k %}{{ 'k' }}{% endif %}",
    "{% set f = namespace(x=false) %}{% for i in range(loop.index0 + 1, messages | length) %}"
    "{% if f.x %}{% elif messages[i].role != 'tool' %}{% set f.x = true %}"
    "{% else %}{{ messages[i].content }}{% endif %}{% endfor %}",
    "{% set f = namespace(x=false) %}{% for i in range(loop.index0 - 1, -1, -1) %}{% if not f.x %}"
    "{% if messages[i].role == 'user' %}{{ i }}{% set f.x = true %}{% endif %}{% endif %}"
    "{% endfor %}",
    "{% for i in range(messages[2:] | length) %}{{ i if loop.index > 7 else '' }}{% endfor %}",
    "{{ loop.index in range(3, messages | length) }}{{ range(n.i, messages | length) | first }}",
    "{{ range(messages | length) is sequence }}{{ range(2, n.i) | list | length }}",
    "{% for i in range(n.i) %}{{ i }}{% endfor %}{% set n.i = n.i + 1 %}",
    "{% set n.x = n.x ~ m.role[:1] ~ m.content %}",
    "{{ g(messages, m.content) if g is defined else '' }}",
    "{% if m.role == 'tool' and g is defined %}{{ g(messages[2:], m.role) }}{% endif %}",
    *[f"{{% set here = loop.index0 %}}{{% set said = m.content %}}{text}" for text in SEARCHES],
]

BITS = [
    BODY,
    BODY,
    BODY,
    "{% if m.role == 'assistant' %}{{ '<think>\n' }}{% endif %}",
    "{% if loop.first %}{{ 'first<|im_start|>' }}{% endif %}",
    "{% if loop.last %}{{ 'last<|im_end|>' }}{% endif %}",
    "{% if loop.index0 == 2 %}{{ 'third' }}{% endif %}",
    "{% if loop.index <= 2 and m.role == 'user' %}{{ messages[0].content }}{% endif %}",
    "{% if (loop.index0 % 2 == 0) %}{{ 'even' }}{% endif %}",
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('x') }}{% endif %}",
    "{% if loop.previtem and loop.previtem.role == m.role %}{{ 'again' }}{% endif %}",
    "{% if loop.nextitem %}{{ loop.nextitem.role }}{% endif %}",
    "{% if messages[loop.index0 - 1].role == 'tool' %}{{ m.content }}{% endif %}",
    "{{ messages[loop.index0 - 1].content }}",
    "{{ messages[0].content }}",
    "{{ messages[1]['role'] }}",
    "{% if messages|length > 4 %}{{ 'long' }}{% endif %}",
    "{% for c in m.tool_calls or [] %}{{ loop.index }}{{ c.function.name }}{% endfor %}",
    "{{ m.reasoning_content }}",
]
AROUND = [
    "{{ '<|im_start|>rules\n' }}",
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}",
    "{% if messages[0]['role'] == 'system' %}{% set messages = messages[1:] %}{% endif %}",
    "{% if messages | length == 1 %}{{ 'one' }}{% endif %}",
    "{% if messages[0].content | length > 3 %}{{ 'much' }}{% endif %}",
    "{% set x = messages[0] %}{{ x.role }}",
]
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(
    st.lists(st.sampled_from(AROUND), max_size=2).map("".join),
    st.lists(st.sampled_from(BITS), min_size=1, max_size=4).map("".join),
    st.sampled_from([PROMPT, PROMPT + "{{ '<think>\n' }}", ""]),
    CONVERSATIONS,
)
def test_any_template_that_is_local_gives_the_same(
    before: str, body: str, after: str, messages: Messages
) -> None:
    template = f"{before}{{% for m in messages %}}{body}{{% endfor %}}{after}"
    assert locality.find(template) is not None
    check(template, messages)


@settings(max_examples=examples(100))
@given(data=st.data(), messages=CONVERSATIONS)
def test_any_public_template_gives_the_same_masks(
    templates: dict[str, str], data: st.DataObject, messages: Messages
) -> None:
    template = templates[data.draw(st.sampled_from(sorted(templates)))]
    options = data.draw(st.sampled_from([{}, {"tools": TOOLS}, {"enable_thinking": False}]))
    check(template, messages, [masks], **options)


@settings(max_examples=examples(200))
@given(
    st.lists(st.sampled_from(SCANS), max_size=3).map("".join),
    st.lists(st.sampled_from(REMEMBERING), min_size=1, max_size=4).map("".join),
    st.sampled_from([PROMPT, "{{ n.i }}" + PROMPT + "{{ n.x }}", ""]),
    st.sampled_from(
        [
            "{% for m in messages %}",
            "{% for m in messages | list %}",
            "{% for i in range(messages | length) %}{% set m = messages[i] %}",
            "{% for i in range(1, messages | length) %}{% set m = messages[i] %}",
        ]
    ),
    CONVERSATIONS,
)
def test_any_template_gives_the_same_masks(
    before: str, body: str, after: str, loop: str, messages: Messages
) -> None:
    before = "{% set n = namespace(i=-1, more=true, x='') %}" + before
    check(f"{before}{loop}{body}{{% endfor %}}{after}", messages, [masks])


# The last question repeats others or not; templates that write tools before it.
REPEATED = st.lists(
    st.sampled_from(
        [
            [USER, {"role": "assistant", "content": "Hello."}],
            [{"role": "user", "content": "ok"}, CALL, RESULT, {"role": "assistant", "content": ""}],
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": "ok"}],
        ]
    ),
    min_size=1,
    max_size=9,
).map(lambda turns: [SYSTEM, *sum(turns, [])])
LOOK_AROUND = [
    "google-gemma-4-31B-it",
    "Reka-Edge",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "Mistral-Small-3.2-24B-Instruct-2506",
]


@pytest.mark.parametrize("name", LOOK_AROUND)
@settings(max_examples=examples(40))
@given(st.one_of(REPEATED, CONVERSATIONS), st.sampled_from([{}, {"tools": TOOLS}]))
def test_templates_that_look_around_give_the_same_masks(
    templates: dict[str, str], name: str, messages: Messages, options: dict[str, Any]
) -> None:
    check(templates[name], messages, [masks], **options)
    check(templates[name], messages, [masks], **options, enable_thinking=True)


@pytest.mark.parametrize(
    "body",
    [
        "{% if f.x %}{% else %}{{ i }}{% if i == 2 %}{% set f.x = true %}{% endif %}{% endif %}",
        "{% if not f.x %}{{ i }}{% if loop.index == 2 %}{% set f.x = i %}{% endif %}{% endif %}",
        "{% if not f.x %}{{ i }}{% else %}{% set f.x = i == 3 %}{{ 'x' }}{% endif %}",
        "{% if not f.x %}{% elif f.x != i %}{% set f.x = false %}{{ i }}{% endif %}",
        "{% if f.x %}{% set f.x = false %}{% else %}{% set f.x = true %}{{ i }}{% endif %}",
        "{% if loop.first %}{% else %}{{ i }}{% endif %}",
        "{% if not loop.last %}{{ i }}{% endif %}",
        "{% if i.real %}{% else %}{{ 'zero' }}{% endif %}",
        "{% if not f.x %}{{ i }}{% set f.x = true %}{% endif %}{{ '.' }}",
    ],
)
def test_loops_end_early_only_if_they_do_nothing_more(body: str) -> None:
    jinja2 = pytest.importorskip("jinja2")
    template = f"{{% for i in range(-1, 6) %}}{body}{{% endfor %}}"
    template = f"{{% set f = namespace(x=false) %}}{template}{{{{ f.x }}}}"
    tokenizer = tokenizer_of(template)
    plain = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"]).from_string(template)
    assert tokenizer.apply_chat_template([USER], template, tokenize=False) == plain.render()


# -- The same text as plain Jinja writes ---------------------------------------


def plainly(template: str, messages: Messages) -> str | None:
    """Return what plain Jinja writes, in the sandbox of transformers; None if it fails."""
    sandbox = pytest.importorskip("jinja2.sandbox").ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    try:
        made: str = sandbox.from_string(template).render(messages=messages)
    except Exception:  # whatever Jinja raises
        return None
    return made


def check_with_plain_jinja(template: str, messages: Messages) -> None:
    expected = plainly(template, messages)
    options: dict[str, Any] = {"add_generation_prompt": False, "tokenize": False}
    if expected is None:
        with pytest.raises(ValueError, match="the chat template failed on this conversation"):
            tokenizer_of(template).apply_chat_template(messages, template, **options)
    else:
        made = tokenizer_of(template).apply_chat_template(messages, template, **options)
        assert made == expected


FIRST = (
    "{% set f = namespace(x=false) %}{% for y in it %}{% if not f.x %}{% set f.x = true %}"
    "{% endif %}{% endfor %}{{ it | list | length }}"
)
LAZY = "messages | map(attribute='content')"
SET = "{% for m in messages %}{% set f.x = true %}{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        # A test reads what is not set.
        "{% for m in messages %}{% if k and not f.x %}{{ m.content }}{% set f.x = true %}"
        "{% endif %}{% endfor %}.",
        "{% for m in messages %}{% for x in messages %}{% if x.k and loop.index0 < at %}"
        "{{ x.content }}{% endif %}{% endfor %}{% set at = loop.index0 %}{% endfor %}.",
        # The flag is another one.
        "{% set f = namespace(x=false) %}{% if messages %}{% set f = namespace(x=7) %}{% endif %}"
        + SET
        + "{{ f.x }}",
        "{% set g = namespace(x=1) %}{% set c = cycler(g) %}{% set namespace = c.next %}"
        "{% set f = namespace() %}" + SET + "{{ g.x }}",
        "{% set f = namespace(name=false) %}{% macro f() %}{% endmacro %}"
        + SET.replace("x", "name"),
        # Somebody sees how far the loop went.
        f"{{% with it = {LAZY} %}}{FIRST}{{% endwith %}}",
        f"{{% macro g(it={LAZY}) %}}{FIRST}{{% endmacro %}}{{{{ g() }}}}",
        f"{{% set it = {LAZY} %}}{{% set f = namespace(x=true) %}}{{% for i in range(3) %}}"
        "{% for x in it %}{% endfor %}{% if not f.x %}{{ i }}{% endif %}{% endfor %}"
        "{{ it | list | length }}",
        "{% for m in messages %}{% set it = loop %}{% set f = namespace(x=false) %}"
        "{% for y in it %}{% if not f.x %}{% set f.x = true %}{% endif %}{% endfor %}"
        "{{ m.content }}{% endfor %}",
        # It fails later.
        "{% set f = namespace(x=false) %}{% for m in messages %}{% if m.tool_calls[0].id and "
        "not f.x %}{% set f.x = true %}{% endif %}{% endfor %}",
        "{% set f = namespace(x=false) %}{% for m in messages %}{% for x in m.tool_calls %}"
        "{% endfor %}{% if m.tool_calls %}{% set f.x = true %}{% endif %}{% endfor %}",
        "{% set f = namespace(x=false, y=0) %}{% for m in messages %}{% if m.content %}"
        "{% set f.x = true %}{% endif %}{% set f.y = f.y + m.n %}{% endfor %}",
    ],
)
def test_a_loop_that_ends_early_hides_nothing(template: str) -> None:
    calls = [{"id": "a"}]
    turns = [{"content": "Yes", "tool_calls": calls, "n": 1}, {"content": "No", "tool_calls": 5}]
    turns += [{"content": "Hm"}] * 4
    check_with_plain_jinja(template, [{"role": "assistant", **turn} for turn in turns])


SEARCH = (
    "{% for m in messages %}{% set said = m.id %}{% for x in messages %}{% if x.other == said %}"
    "{{ loop.index }}{% break %}{% endif %}{% endfor %},{% endfor %}"
)
USERS = "messages | selectattr('role', 'equalto', 'user')"


@pytest.mark.parametrize("more", [-1, 0])  # so that its loops are not watched, or are
@pytest.mark.parametrize(
    "after",
    [
        "",
        f"{{% set it = {USERS} %}}" + "{% for m in it %}{{ m.content }}{% endfor %};" * 2,
        f"{{% set it = {USERS} %}}{{{{ it | first }}}}{{{{ it | list }}}}",
        f"{{% set it = {USERS} %}}{{{{ (it | selectattr('id') | list | length, it | list) }}}}",
        f"{{% if {USERS.replace('user', 'tool')} %}}always{{% endif %}}",
        f"{{{{ {USERS} | length }}}}",
        "{{ messages[:3] == messages[::-1] or messages[::-1] == messages[::-1] }}",
        "{% for m in messages %}{{ [k.i] }}{{ {'a': loop.length} }}{{ '%r' % k.i }}{% endfor %}",
        "{% for m in messages %}{{ k.i is sameas 3 }}{{ k.i.real }}{{ {3: 4}[k.i] }}{% endfor %}",
        "{% for m in messages %}{{ {k.i: loop} | length }}{{ {3: 4}.get(k.i) }}{% endfor %}",
        "{% for m in messages %}{{ m }}{% for x in loop %}{{ x.role }}{% endfor %}{% endfor %}",
    ],
)
def test_whole_conversations_are_as_plain_jinja_writes_them(more: int, after: str) -> None:
    template = "{% set k = namespace(i=3) %}" + SEARCH + after
    first: list[dict[str, Any]] = [{"id": "a"}, {"id": 1}, {"id": True}, {"id": 1.0}]
    first += [{}, {"id": "a"}, {"id": ["a"]}, {"other": 1, "id": 1}, {"id": {}}]
    for turns in (first, [*first[:2] * 2, *first[::-1]], [{"id": 3}] * 2, [{"id": "a"}] * 2):
        talk = [{"role": "user", "content": str(i), **turn} for i, turn in enumerate(turns)]
        n = _MANY_MESSAGES + more - len(talk)
        rest = [{"role": "user", "content": f"ok {i}"} for i in range(n)]
        check_with_plain_jinja(template, talk + rest)


# -- The work ------------------------------------------------------------------


@pytest.mark.parametrize("name", LOOK_AROUND)
def test_work_of_templates_that_look_around(
    name: str, templates: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = tokenizer_of(templates[name])
    done: list[int] = []  # an entry for each iteration, call and filter
    step = Budget.step

    def counting(self: Budget, steps: int = 1, size: int = 0) -> bool:
        done.append(steps)
        return step(self, steps, size)

    monkeypatch.setattr(Budget, "step", counting)
    counts = []
    for n in (10, 40):
        done.clear()
        asked = [{"role": "user", "content": f"Question {i}"} for i in range(n)]
        turns = [[each, CALL, RESULT, {"role": "assistant", "content": "Fine."}] for each in asked]
        found = masks(tokenizer, [SYSTEM, *sum(turns, [])], templates[name], tools=TOOLS)
        assert sum(found["assistant_masks"]) > 20 * n
        counts.append(len(done))
    assert counts[1] < 5 * counts[0], counts


@pytest.mark.parametrize("template", ["chatml", CHATML, "Qwen-Qwen2.5-7B-Instruct"])
def test_work_is_proportional_to_the_conversation(
    template: str, templates: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    template = templates.get(template, template)
    tokenizer = tokenizer_for(template, "<|im_start|>", "<|im_end|>")
    rendered: list[int] = []
    render = Renderer.render_marked

    def counting(self: Renderer, messages: Any, prompt: bool) -> Any:
        rendered.append(len(messages))
        return render(self, messages, prompt)

    monkeypatch.setattr(Renderer, "render_marked", counting)
    for result in (masks, truncated):
        counts = []
        for n in (100, 400):
            rendered.clear()
            answer = {"role": "assistant", "content": "Hello."}
            result(tokenizer, [SYSTEM, *[USER, answer] * (n // 2)], template)
            counts.append(sum(rendered))
        assert counts[1] < 5 * counts[0] < 100 * 100, counts


def test_a_system_prompt_that_changes_nothing_is_counted_once() -> None:
    tokenizer = tokenizer_for(CHATML)
    answer = {"role": "assistant", "content": "Hello."}
    messages = [{**SYSTEM, "content": "Be brief. " * 10}, *[USER, answer] * 50]
    render = Renderer(CHATML, tokenizer, {})
    counted: list[int] = []

    def text(render: Renderer, kept: Any) -> Any:
        counted.append(len(kept))
        return render(kept)

    whole = len(tokenizer.apply_chat_template(messages, CHATML, False))
    with pytest.warns(UserWarning, match="old messages are left out"):
        kept = truncation.newest(render, messages, whole // 2, text, "all")
    assert kept[0] == messages[0] and 40 < len(kept) < 60 and len(counted) < 20
