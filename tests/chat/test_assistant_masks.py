"""The mask of templates with {% generation %}: what transformers says was generated.

The template's tag alone decides which characters count.  Two references say which these are:
where transformers saw the tag, and where marks that replace it come out.  A token counts if it
has such a character.  That is transformers' own mask, too, except for its errors at the edges:
a last token at place 0, several tokens for one character, a tag around nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import examples, need
from test_chat_templates import SPOKEN, USER, Messages, tokenizer_for

from bpe_tokenizer import BPETokenizer

need("jinja2")
transformers = need("transformers")
if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip("transformers 4 names and fills in less", allow_module_level=True)

from transformers.utils.chat_template_utils import render_jinja_template  # noqa: E402

OPEN, CLOSE = "\ue0f0", "\ue0f1"
THINK = (
    "{%- if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n"
    "{% else %}<think>\n\n</think>\n\n{% endif %}"
)
CALLS = (
    "{%- for t in m.tool_calls or [] %}<tool_call>\n{{ t.function | tojson }}\n</tool_call>"
    "{%- if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}"
)


def turns(opening: str, header: str, assistant: str, closing: str, prompt: str = "") -> str:
    """A template that writes every turn alike, except the assistant's."""
    return (
        f"{opening}{{%- for m in messages %}}{{{{- '{header}'.format(m.role) }}}}"
        f"{{%- if m.role == 'assistant' %}}{assistant}"
        f"{{%- else %}}{{{{- m.content + '{closing}' }}}}{{%- endif %}}{{%- endfor %}}"
        f"{{%- if add_generation_prompt %}}{{{{- '{prompt or header.format('assistant')}' }}}}"
        "{%- endif %}"
    )


def tag(text: str) -> str:
    return "{% generation %}" + text + "{% endgeneration %}"


chatml = functools.partial(turns, "", r"<|im_start|>{}\n", closing=r"<|im_end|>\n")
llama = functools.partial(
    turns,
    "{{- bos_token }}",
    r"<|start_header_id|>{}<|end_header_id|>\n\n",
    closing="<|eot_id|>",
)
gemma = functools.partial(
    turns, "{{ bos_token }}", r"<start_of_turn>{}\n", closing=r"<end_of_turn>\n"
)
SAYS = "{{- m.content }}"
END = "{{- '<|im_end|>' }}"

WRITTEN = {
    "content": chatml(tag(SAYS) + r"{{- '<|im_end|>\n' }}"),
    "content and end": chatml(tag(SAYS + END) + r"{{- '\n' }}"),
    "content, end and newline": chatml(tag(SAYS + r"{{- '<|im_end|>\n' }}")),
    "end alone": chatml(SAYS + tag(END) + r"{{- '\n' }}"),
    "thoughts": chatml(tag(THINK + SAYS + END) + r"{{- '\n' }}"),
    "thoughts are context": chatml(THINK + tag(SAYS + END) + r"{{- '\n' }}"),
    "calls": chatml(tag(SAYS + CALLS + r"{{- '<|im_end|>\n' }}")),
    "one tag each": chatml(
        tag(THINK) + tag(SAYS) + "{{- '~' }}" + tag(CALLS + END) + r"{{- '\n' }}"
    ),
    "llama": llama(tag("{{- m.content | trim }}{{- '<|eot_id|>' }}")),
    "llama, content": llama(tag("{{- m.content | trim }}") + "{{- '<|eot_id|>' }}"),
    "gemma": gemma(
        tag("{{ m.content | trim }}{{ '<end_of_turn>\\n' }}"), prompt=r"<start_of_turn>model\n"
    ),
    "header": "{% for m in messages %}{% if m.role == 'assistant' %}"
    + tag("<|im_start|>assistant\n{{ m.content }}<|im_end|>\n")
    + "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}",
    "first token": "{% for m in messages %}"
    + tag("{{ '<s>' if m.role == 'assistant' else '' }}")
    + "{{ m.content }}{% endfor %}",
    "last answer": chatml(
        "{% if loop.last %}" + tag(SAYS + END) + "{% else %}" + SAYS + END + "{% endif %}"
    ),
    "after the last question": "{% set ns = namespace(i=0) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set ns.i = loop.index0 %}{% endif %}{% endfor %}"
    + chatml(
        "{% if loop.index0 > ns.i %}" + tag(SAYS + END) + "{% else %}" + SAYS + END + "{% endif %}"
    ),
    "chosen": chatml(
        "{% if m.train %}" + tag(SAYS + END) + "{% else %}" + SAYS + END + "{% endif %}"
    ),
    "never": chatml("{% if false %}" + tag("x") + "{% endif %}" + SAYS + END),
    "white space": chatml(
        "\n  {%- generation -%}  \n {{ m.content }} \n {%- endgeneration %}\n <|im_end|>\n"
    ),
    "lines": chatml("\n  {% generation %}\n{{ m.content }}\n  {% endgeneration %}\n<|im_end|>\n"),
    "words around": chatml("{{- 'says: ' }}" + tag(SAYS) + "{{- m.content }}"),
    "in a loop": chatml("{% for c in m.content %}" + tag("{{ c }}") + "-{% endfor %}"),
}
# Where transformers counts characters before these are put in their place, only marks tell.
CAPTURED = {
    "macro": "{% macro said(m) %}["
    + tag("{{ m.content }}<|im_end|>")
    + "]{% endmacro %}"
    + chatml("{{- said(m) }}"),
    "macro of the header": "{% macro turn(m) %}<|im_start|>assistant\n"
    + tag("{{ m.content }}<|im_end|>")
    + "\n{% endmacro %}"
    + chatml("{{- turn(m) }}"),
    "set": chatml("{% set said %}" + tag(SAYS + END) + "{% endset %}{{- said }}{{- '\\n' }}"),
    "filter": chatml("{% filter upper %}x" + tag(SAYS) + "y{% endfilter %}"),
    "call": "{% macro box() %}[{{ caller() }}]{% endmacro %}"
    + chatml("{% call box() %}" + tag(SAYS) + "{% endcall %}"),
}
UNTAGGED = {
    "comment": chatml("{# " + tag("x") + " #}" + SAYS + END),
    "raw": chatml("{% raw %}" + tag("x") + "{% endraw %}" + SAYS + END),
    "string": chatml("{{- '{% generation %}' }}" + SAYS + END),
}


@functools.cache
def tokenizers() -> tuple[BPETokenizer, Any]:
    """A tokenizer that merges across tags, such as newlines, and transformers' form of it."""
    text = "One.\n\nTwo.\n\n\nlow lower lowest, newer newest: 'says' Hello. Hi there!\n</think>\n\n"
    ours = BPETokenizer("llama3").train([text * 20], 340, min_frequency=1, verbose=False)
    ours.add_special_tokens(["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<|eot_id|>"])
    ours.add_special_tokens(["<|start_header_id|>", "<|end_header_id|>"])
    ours.add_special_tokens(["<start_of_turn>", "<end_of_turn>"])
    ours.bos_token, ours.eos_token = "<s>", "</s>"
    return ours, in_transformers(ours)


def in_transformers(ours: BPETokenizer) -> Any:
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=ours.to_hf(), bos_token="<s>", eos_token="</s>"
    )


def with_marks(template: str) -> str:
    """Replace tags with marks, so that the white space around them is treated the same."""
    for name, mark in (("generation", OPEN), ("endgeneration", CLOSE)):
        new = rf"{{%\1 if true %}}{{{{ '{mark}' }}}}{{% endif \2%}}"
        template = re.sub(rf"{{%(-?) *{name} *(-?)%}}", new, template)
    return template


def spans_of_marks(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text without the marks, and the spans between them."""
    plain, spans, start = "", [], 0
    for part in re.split(f"([{OPEN}{CLOSE}])", text):
        if part == OPEN:
            start = len(plain)
        elif part == CLOSE:
            spans.append((start, len(plain)))
        else:
            plain += part
    return plain, spans


def overlaps(offsets: Sequence[Any], spans: Sequence[tuple[int, int]]) -> list[int]:
    full = [(begin, end) for begin, end in spans if begin < end]
    return [int(any(a < end and b > begin for begin, end in full)) for a, b in offsets]


def is_sound(encoded: Any, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether transformers' own mask is free of its errors."""
    for begin, end in spans:
        last = encoded.char_to_token(end - 1) if end else None
        if begin == end or not last or encoded.char_to_token(begin) is None:
            return False
        if sum(a < end <= b for a, b in encoded["offset_mapping"]) > 1:
            return False
    return True


def check(
    template: str,
    messages: Messages,
    options: dict[str, Any],
    captured: bool = False,
    made: tuple[BPETokenizer, Any] | None = None,
) -> tuple[list[int], bool] | None:
    """Compare with the references; return the mask, and whether transformers' own was sound."""
    ours, theirs = made or tokenizers()
    given = {**theirs.special_tokens_map, "add_generation_prompt": False, **options}
    try:
        [text], [spans] = render_jinja_template(
            [messages], chat_template=template, return_assistant_tokens_mask=True, **given
        )
    except Exception:
        return None
    marked = render_jinja_template([messages], chat_template=with_marks(template), **given)[0][0]
    assert spans_of_marks(marked)[0] == text
    if captured:
        spans = spans_of_marks(marked)[1]
    elif "in a loop" not in template:
        assert spans_of_marks(marked)[1] == spans
    encoded = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
    expected = overlaps(encoded["offset_mapping"], spans)
    wanted = {"return_dict": True, "return_assistant_tokens_mask": True}
    found = ours.apply_chat_template(
        messages, template, **{"add_generation_prompt": False, **options, **wanted}
    )
    assert found["input_ids"] == encoded["input_ids"]
    assert found["assistant_masks"] == expected, (text, spans)
    sound = not captured and is_sound(encoded, spans)
    if sound:
        own = theirs.apply_chat_template(
            messages,
            chat_template=template,
            **{"add_generation_prompt": False, **options, **wanted},
        )
        assert own["assistant_masks"] == expected
    return expected, sound


def talk(*contents: str, **fields: Any) -> Messages:
    roles = ["user", "assistant"] * len(contents)
    return [{"role": role, "content": text, **fields} for role, text in zip(roles, contents)]


TALKS: dict[str, tuple[Messages, dict[str, Any]]] = {
    **{name: spoken for name, spoken in SPOKEN.items() if "called" not in name},
    "blank": (talk("Hi", "", "\n", " \n ", "Hi", "\n\nOne.\n\n"), {}),
    "emoji": (talk("🙂", "👨‍👩‍👧 é", "世界", "世界🙂"), {}),
    "trained on": (talk("a", "b", "c", "d", train=True), {}),
    "prompt": (talk("a", "b\n", "c"), {"add_generation_prompt": True}),
    "answers": ([USER, *[{"role": "assistant", "content": "\n"}] * 3], {}),
    "answer first": (talk("a", "b")[::-1], {}),
    "nobody answers": ([USER], {}),
}
CALLED = [name for name in SPOKEN if "called" in name]


@pytest.mark.parametrize("name", WRITTEN)
def test_the_tag_alone_decides(name: str) -> None:
    found = [check(WRITTEN[name], *spoken) for spoken in TALKS.values()]
    if name in ("calls", "one tag each", "thoughts"):
        calls = [dict(message) for spoken in CALLED for message in SPOKEN[spoken][0]]
        found += [check(WRITTEN[name], [message], {}) for message in calls]
    assert sum(each is not None for each in found) >= len(TALKS) - 1
    masks = [each for each in found if each]
    assert any(any(mask) for mask, _ in masks) == (name != "never")
    assert sum(sound for _, sound in masks) >= (0 if name in ("first token", "in a loop") else 3)


@pytest.mark.parametrize("name", CAPTURED)
def test_the_tag_decides_where_its_text_is_put_elsewhere(name: str) -> None:
    found = [check(CAPTURED[name], *spoken, captured=True) for spoken in TALKS.values()]
    assert sum(any(each[0]) for each in found if each) >= len(TALKS) - 2


@pytest.mark.parametrize("name", UNTAGGED)
def test_what_only_looks_like_the_tag_does_not_count(name: str) -> None:
    ours, _ = tokenizers()
    options = {"add_generation_prompt": False, "return_dict": True}
    found = ours.apply_chat_template(
        talk("a", "b"), UNTAGGED[name], return_assistant_tokens_mask=True, **options
    )
    said = [i for i, mine in zip(found["input_ids"], found["assistant_masks"]) if mine]
    assert ours.decode(said).endswith("b<|im_end|>")


def test_public_templates_with_the_tag(llama_cpp_source: Path) -> None:
    compared = sound = 0
    for path in sorted((llama_cpp_source / "models/templates").glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        if not re.search(r"{%-?\s*generation", template):
            continue
        ours = tokenizer_for(template)
        made = ours, in_transformers(ours)
        for messages, options in SPOKEN.values():
            found = check(template, messages, options, made=made)
            compared += found is not None
            sound += bool(found and found[1])
    assert compared == 4 * len(SPOKEN) and sound >= 40, (compared, sound)


PIECES = st.sampled_from(
    ["a", "\n", "\n\n", " ", "lowest", "🙂", "é", "<think>", "</think>\n\n", ""]
)
CONTENTS = st.lists(st.lists(PIECES, max_size=4).map("".join), min_size=1, max_size=5)


@settings(max_examples=examples(300))
@given(st.sampled_from(sorted({**WRITTEN, **CAPTURED})), CONTENTS, st.booleans())
def test_the_tag_decides_whatever_is_said(name: str, contents: list[str], prompt: bool) -> None:
    template = {**WRITTEN, **CAPTURED}[name]
    options = {"add_generation_prompt": prompt}
    assert check(template, talk(*contents, train=True), options, captured=name in CAPTURED)
