"""What errors of chat templates say: nothing of this library's own classes and functions."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from oracles import need

from bpe_tokenizer import BPETokenizer

need("jinja2")

from bpe_tokenizer_tools.chat import jinja  # noqa: E402

TALK = [{"role": "user", "content": "hello", "n": 5, "l": ["a"], "d": {"k": "v"}, "b": True}]
BEFORE = "{% set ns = namespace(a=1) %}{% macro mac(a) %}{% endmacro %}{% for m in messages %}"
VALUES = ["m", "m.content", "m.n", "m.l", "m.d", "m.b", "m.nothing", "ns", "'x'", "none", "loop"]
VALUES += [
    "(m.content | safe)",
    "range(3)",
    "mac",
    "namespace",
    "raise_exception",
    "m.content.split",
]
VALUES += ["strftime_now", "(m.l | map('upper'))", "m.d.items()", "cycler('a')", "joiner()"]
USES = ["{{ %s.items() }}", "{{ %s.a.b }}", "{{ %s['a']['b'] }}", "{{ %s[{}] }}", "{{ %s() }}"]
USES += ["{{ %s(1, 2, 3, z=4) }}", "{{ %s + 1 }}", "{{ 1 + %s }}", "{{ %s + [] }}", "{{ %s + {} }}"]
USES += ["{{ %s * 'a' }}", "{{ %s ** 2 }}", "{{ %s - 1 }}", "{{ -%s }}", "{{ %s < 1 }}"]
USES += [
    "{{ %s < 'a' }}",
    "{{ 'a' in %s }}",
    "{{ %s in 'a' }}",
    "{{ %s | tojson }}",
    "{{ {%s: 1} }}",
]
USES += ["{%% for k, v in %s %%}{%% endfor %%}", "{{ '%%d' %% %s }}", "{{ '{:d}'.format(%s) }}"]
USES += [
    "{{ '{0.a.b}'.format(%s) }}",
    "{{ 'a'.join(%s) }}",
    "{{ [%s, 1] | sort }}",
    "{{ range(%s) }}",
]
USES += ["{{ %s.__class__ }}", "{{ %s._runs }}", "{{ %s.plain() }}", "{{ 'a'.replace(%s, 'b') }}"]
USES += [
    "{{ 'abc'[%s] }}",
    "{{ 'abc'[%s:] }}",
    "{{ 'a'.index(%s) }}",
    "{{ m.content.strip(%s, 2) }}",
]
USES += ["{%% call %s() %%}{%% endcall %%}", "{{ strftime_now(%s) }}", "{{ namespace(%s) }}"]
USES += ["{{ m.content.encode(%s) }}", "{{ m.content.split(%s, zz=1) }}", "{{ namespace(_a=%s) }}"]
# Names of ours: those that begin with "_", those of modules, and those of classes.
OURS = re.compile(
    r"(?<![\w'\"])_[a-z]\w*|<locals>|<lambda>|bpe_tokenizer|Marked|_Html|PlainNamespace|Compared"
    r"|Number\b|Span|Budget|_Formatter"
)


def uses() -> list[str]:
    """All filters and tests, with too few, too many and wrong arguments."""
    made = list(USES)
    for name in sorted(jinja._ENVIRONMENT.filters):
        if name.isidentifier():
            rests = ("", "(1, 2, 3, 4, 5, 6)", "(zz=1)", "(m.content)")
            made += [f"{{{{ %s | {name}{rest} }}}}" for rest in rests]
    for name in sorted(jinja._ENVIRONMENT.tests):
        if name.isidentifier():
            made += [f"{{{{ %s is {name}{rest} }}}}" for rest in ("", "(1, 2, 3)", "(m.content)")]
    return made


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_errors_name_no_class_or_function_of_ours(step: int) -> None:
    tokenizer, n_errors = BPETokenizer(), 0
    for use, value in itertools.islice(itertools.product(uses(), VALUES), 0, None, step):
        try:
            tokenizer.apply_chat_template(
                TALK, f"{BEFORE}{use % value}{{% endfor %}}", tokenize=False
            )
        except ValueError as error:
            n_errors += 1
            assert not OURS.search(str(error)), (use % value, str(error))
    assert n_errors > 2_000 // step


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ messages[0].content.items() }}", "'str object' has no attribute 'items'"),
        ("{{ messages[0].content + 1 }}", "for +: 'str' and 'int'"),
        ("{{ (messages[0].content | safe).x.y }}", "'Markup object' has no attribute 'x'"),
        ("{{ namespace().x.y }}", "'Namespace object' has no attribute 'x'"),
        ("{{ raise_exception() }}", "raise_exception() missing 1 required positional argument"),
        ("{{ messages | indent(z=1) }}", "indent() got an unexpected keyword argument 'z'"),
        ("{{ messages[0]['Marked'].x }}", "has no attribute 'Marked'"),
    ],
)
def test_errors_say_what_the_author_of_a_template_knows(template: str, said: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
    with pytest.raises(ValueError, match=re.escape(said)):
        BPETokenizer().apply_chat_template(messages, template)
