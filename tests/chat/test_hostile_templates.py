"""Templates of strangers that ask for too much are refused, and others lose nothing by it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import hostile_templates
import pytest
from oracles import need
from test_chat_templates import CONVERSATIONS, compiled_templates_are_kept, templates

from bpe_tokenizer import BPETokenizer

need("jinja2")
from bpe_tokenizer_tools.chat import budget, jinja  # noqa: E402
from bpe_tokenizer_tools.chat.marked_text import Marked, Origin  # noqa: E402

__all__ = ["compiled_templates_are_kept", "templates"]  # fixtures

USER = {"role": "user", "content": "Hello!"}
TOKENIZER = BPETokenizer()


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: they ask neither engine."""


def render(template: str, *messages: Any) -> str:
    return TOKENIZER.apply_chat_template(list(messages) or [USER], template, tokenize=False)


@pytest.mark.parametrize("name", hostile_templates.LONG)
def test_long_work_is_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "STEPS", 20_000)
    with pytest.raises(ValueError, match="chat template"):
        render(hostile_templates.LONG[name])


@pytest.mark.parametrize("name", hostile_templates.LARGE)
def test_large_results_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "BYTES", 2**22)
    with pytest.raises(ValueError):
        render(hostile_templates.LARGE[name])


@pytest.mark.parametrize(
    "template, limit",
    [
        ("{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}", "5 steps"),
        ("{{ ('a' * 10**6) ~ 'b' }}", "1,000 bytes"),
        ("{% for i in range(99999) %}{% endfor %}", "-1.0 seconds"),
    ],
)
def test_the_error_names_the_limit(
    template: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, unit = limit.split()
    value = float(number.replace(",", ""))
    monkeypatch.setattr(budget, unit.upper(), value if unit == "seconds" else int(value))
    with pytest.raises(budget.ExceededError, match="the limit for a conversation of this length"):
        render(template)


def test_a_long_conversation_may_take_more() -> None:
    """What grows with the conversation is no attack: each message, and pairs of messages."""
    messages = [{"role": "user", "content": f"{i}" * 2_000} for i in range(1_000)]
    every = "{% for m in messages %}{{ m.content }}{% endfor %}"
    pairs = "{% for m in messages %}{% for n in messages %}{% if n is none %}.{% endif %}"
    whole = (
        "{% set ns = namespace(text='') %}{% for m in messages %}"
        "{% set ns.text = ns.text ~ m.content %}{% endfor %}{{ ns.text|length }}"
    )
    length = sum(len(message["content"]) for message in messages)
    assert len(render(every, *messages)) == length
    assert render(pairs + "{% endfor %}{% endfor %}", *messages) == ""
    assert render(whole, *messages) == str(length)


def test_public_templates_take_a_hundredth(
    templates: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = 0
    for limit, divisor in (("STEPS", 100), ("BYTES", 100)):
        monkeypatch.setattr(budget, limit, getattr(budget, limit) // divisor)
    monkeypatch.setattr(budget.Budget, "_extend", lambda self: None)
    for template, (messages, more) in itertools.product(templates.values(), CONVERSATIONS):
        try:
            render_with = {"chat_template": template, "tokenize": False, **more}
            TOKENIZER.apply_chat_template(messages, **render_with)
        except budget.ExceededError:
            raise
        except ValueError:
            continue
        rendered += 1
    assert rendered > 800


def test_limits_end_with_the_template() -> None:
    with pytest.raises(ValueError):
        render("{{ 'x' * 10**9 }}")
    assert budget.CURRENT.budget is None
    assert len(Marked("x" * 5_000) * 2_000) == 10**7


SLOW = (
    "{% for i in range(5000) %}{% endfor %}"
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{% endfor %}<s>{{ messages|length }}"
)


@pytest.mark.filterwarnings("ignore:.* old messages are left out")
@pytest.mark.parametrize(
    "options",
    [
        {"return_assistant_tokens_mask": True, "add_generation_prompt": False},
        {"truncation": True, "max_length": 40},
    ],
)
def test_all_renderings_of_a_call_share_their_seconds(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is quick enough, by a clock that goes on whenever somebody looks at it."""
    clock = itertools.count()
    monkeypatch.setattr(budget, "time", SimpleNamespace(thread_time=lambda: next(clock) * 0.1))
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["<s>"])
    roles = itertools.cycle(["user", "assistant"])
    messages = [{"role": role, "content": "a"} for _, role in zip(range(60), roles)]

    def apply(messages: Any, **more: Any) -> Any:
        return tokenizer.apply_chat_template(messages, SLOW, return_dict=True, **more)

    assert apply(messages)["input_ids"]
    assert apply(messages[:2], **options)["input_ids"]
    monkeypatch.setattr(budget, "_TOGETHER", 1)
    monkeypatch.setattr(budget, "_more_seconds", lambda n, characters: 0.0)
    with pytest.raises(
        budget.ExceededError, match="seconds over all its renderings, the limit for"
    ):
        apply(messages, **options)
    assert budget.CURRENT.call is None and budget.CURRENT.budget is None
    monkeypatch.setattr(budget, "_TOGETHER", 100)
    assert apply([messages[:9]] * 3, **options)["input_ids"]


# -- The same text and origins as before ---------------------------------------


@pytest.mark.parametrize(
    "key", [slice(None, None, -1), slice(1, 7, 2), slice(6, 0, -3), slice(5, 5, 2)]
)
def test_every_other_character_keeps_its_origin(key: slice) -> None:
    text = (
        Marked("abc", Origin(0, "content")) + Marked("DE", Origin()) + Marked("fgh", Origin(1, "x"))
    )
    expected = [(str(char), char._runs[0][1]) for char in list(text)[key]]
    found = [(str(char), char._runs[0][1]) for char in text[key]]
    assert found == expected and text[key] == str(text)[key]


def test_upper_case_keeps_origins_where_letters_become_two() -> None:
    text = Marked("straße", Origin(0, "content")) + Marked("<ß>", Origin())
    assert [*text.upper().runs()] == [("STRASSE", Origin(0, "content")), ("<SS>", Origin())]
    assert [*(Marked("<", Origin()) + Marked("&", Origin(0, "content"))).escaped().runs()] == [
        ("&lt;", Origin()),
        ("&amp;", Origin(0, "content")),
    ]


@pytest.mark.parametrize(
    "template, expected",
    [
        ("{{ '%5d|%-4s|%.2f' % (7, 'x', 1.5) }}", "    7|x   |1.50"),
        (
            "{{ '{:>4}|{!r}'.format(1, 'x') }}",
            "   1|'x'",
        ),
        ("{{ '{a}'.format_map({'a': 1}) }}", "1"),
        ("{{ 'x'.center(5) ~ 'x'|center(5) ~ 'x'.zfill(3) }}", "  x    x  00x"),
        ("{{ [1, [2, 'x']] }}{{ {'a': (1,)} }}", "[1, [2, 'x']]{'a': (1,)}"),
        ("{{ [3, 1, 2]|sort }}{{ ['b', 'a']|map('upper')|join(',') }}", "[1, 2, 3]B,A"),
        ("{{ [1, 2]|sum }}{{ 1.25|round(1) }}{{ '12'|int + 1 }}", "31.213"),
        ("{{ ([1] + [2])[1:] }}{{ (1, 2) + (3,) }}", "[2](1, 2, 3)"),
        ("{{ 1 < 2 < 3 }}{{ 'a' in 'ab' }}{{ 'a' not in ['b'] }}{{ 1 != 1 }}", "TrueTrueTrueFalse"),
        (
            "{{ 2 is odd }}{{ 'A' is upper }}{{ 1 is in [1] }}{{ 3 is divisibleby 3 }}",
            "FalseTrueTrueTrue",
        ),
        ("{% for i in [1, 2, 3] if i is odd %}{{ i }}{{ loop.index }}{% endfor %}", "1132"),
        ("{{ none|select|list }}{{ x|map('upper')|list }}{{ []|batch(2)|list }}", "[][][]"),
        ("{{ '<a>'|e ~ '<b>'|safe }}{{ 'a  b'|title }}", "&lt;a&gt;<b>A  B"),
        ("{{ 'a b'|replace(' ', '') }}{{ 'abc'|reverse }}{{ 'x' * 3 }}", "abcbaxxx"),
        ("{{ {'a': 'ß'}|tojson }}{{ [1]|tojson(indent=1) }}", '{"a": "ß"}[\n 1\n]'),
        ("{{ 'a'.encode().decode() }}{{ 'a-b'.rpartition('-')[2] }}", "ab"),
        ("{% autoescape true %}{{ '<' }}{{ messages[0].role }}{% endautoescape %}", "&lt;user"),
        ("{{ dict(a=1).items()|list }}{{ {'a': 1}|items|list }}", "[('a', 1)][('a', 1)]"),
        (
            "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, b=3) }}",
            "1(2,){'b': 3}",
        ),
    ],
)
def test_ordinary_templates_write_what_they_did(template: str, expected: str) -> None:
    assert render(template) == expected


def test_origins_are_those_of_jinja_without_limits() -> None:
    text = jinja.render(
        "{{ messages[0].content.center(9) ~ '!' }}",
        [{"content": Marked("hi", Origin(0, "content"))}],
        False,
    )
    assert not any(origin.trusted for part, origin in text.runs() if "hi" in part)
