"""What people put into conversations: data as contents, arguments as JSON, objects, parts."""

from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
from oracles import need, need_release
from test_chat_templates import ANSWER, RESULT, THOUGHT, TOOLS, USER, call, tokenizer_for

from bpe_tokenizer import BPETokenizer, ChatTemplate
from bpe_tokenizer_tools.chat import arguments
from bpe_tokenizer_tools.chat.conversation import Conversation

need("jinja2")

# In the manner of Llama 3.1, gpt-oss, LFM2 and of templates that print data in other ways.
TEMPLATES = {
    "tests": (
        "{% for m in messages %}<|h|>{{ m.role }}\n"
        "{% if m.content is mapping or m.content is iterable and m.content is not string %}"
        "{{ m.content | tojson }}{% else %}{{ m.content }}{% endif %}<|end|>{% endfor %}"
    ),
    "prints": (
        "{% for m in messages %}<|h|>{{ m.content }}|{{ m.content | string }}|<|end|>{% endfor %}"
    ),
    "json": "{% for m in messages %}<|h|>{{ m.content | default('') | tojson }}<|end|>{% endfor %}",
    "kinds": (
        "{% for m in messages %}<|h|>{% set c = m.content %}{{ c is mapping }}{{ c is string }}"
        "{{ c is number }}{{ c is boolean }}{{ c is none }}{{ c is iterable }}{{ c is sequence }}"
        "{{ c is float }}{{ c is integer }}{{ c is true }}{{ c is false }}{{ c is defined }}"
        "<|end|>{% endfor %}"
    ),
    "goes through": (
        "{% for m in messages %}<|h|>{% if m.content is mapping %}"
        "{% for k, v in m.content.items() %}{{ k }}={{ v }};{% endfor %}"
        "{% elif m.content is iterable and m.content is not string %}"
        "{% for each in m.content %}{{ loop.index }}:{{ each }},{% endfor %}"
        "{% else %}{{ m.content ~ '!' }}{% endif %}<|end|>{% endfor %}"
    ),
    "parts": (
        "{% for m in messages %}<|h|>{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% else %}"
        "<|image|>{% endif %}{% endfor %}{% endif %}<|end|>{% endfor %}"
    ),
}


class Level(enum.IntEnum):
    HIGH = 3


class Word(str, enum.Enum):
    YES = "yes"


@dataclasses.dataclass
class Weather:
    t: float
    unit: str


class Modelled:
    """Like a Pydantic model, such as the messages of OpenAI's library."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self) -> dict[str, Any]:
        return self.fields


CONTENTS: list[Any] = [
    {"t": 22, "unit": "C"},
    {"t": {"u": [1, None, "x"]}, "2": 2.5},
    {1: "a", 2.5: "b", None: "c"},
    {},
    [],
    [1, 2],
    [{"a": 1}],
    ["a", ["b", None]],
    (1, "b"),
    [(1, 2), "c"],
    [{"type": "text", "text": "hi"}, {"type": "text", "text": "ho"}],
    [{"type": "image"}, {"type": "text", "text": "hi"}],
    22.5,
    -1,
    0,
    10**30,
    1e-7,
    math.inf,
    math.nan,
    True,
    False,
    None,
    "text",
    "",
    Level.HIGH,
    Word.YES,
    Weather(20.5, "C"),
    [Weather(20.5, "C"), Modelled(a=1)],
    Modelled(t=22, of=[Modelled(b=2)]),
    {"object": object, "bytes": b"x", "set": {1}},
]
PLACES = ("tool", "user", "document", "variable", "arguments")


def conversation(content: Any, place: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a conversation with something in a place, and options."""
    if place == "tool":
        return [USER, call({"city": "Paris"}), {**RESULT, "content": content}, ANSWER], {}
    if place == "user":
        return [{"role": "user", "content": content}], {}
    if place == "document":
        return [USER], {"documents": [{"title": "T", "text": content}]}
    if place == "variable":
        return [USER], {"enable_thinking": content, "reasoning_effort": content}
    return [USER, call({"city": content}), RESULT], {}


def twin_of(tokenizer: BPETokenizer) -> Any:
    transformers = need_release("transformers", "5.24")  # others take fewer kinds of content
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.to_hf(), bos_token="<s>", eos_token="</s>"
    )


def compare(template: str, contents: list[Any]) -> collections.Counter[str]:
    """Compare text and ids with transformers'; where that refuses, this must, too."""
    ours = tokenizer_for(template, "<|h|>", "<|end|>")
    theirs, found = twin_of(ours), collections.Counter[str]()
    for content, place in itertools.product(contents, PLACES):
        messages, more = conversation(content, place)
        options = {**more, "add_generation_prompt": False}
        given = {**options, "chat_template": template}
        try:
            text = theirs.apply_chat_template(messages, tokenize=False, **given)
        except Exception:
            with pytest.raises(ValueError, match="chat template"):
                ours.apply_chat_template(messages, template, **options)
            found["refused"] += 1
            continue
        ids = theirs.apply_chat_template(messages, return_dict=False, **given)
        got = ours.apply_chat_template(messages, template, tokenize=False, **options)
        assert got == text, (content, place)
        same = {"content_tokens": "as-huggingface"}
        assert ours.apply_chat_template(messages, template, **options, **same) == ids
        found["equal"] += 1
    return found


@pytest.mark.parametrize("name", TEMPLATES)
def test_data_renders_as_in_transformers(name: str) -> None:
    found = compare(TEMPLATES[name], CONTENTS)
    assert found["equal"] >= 3 * len(CONTENTS)


def test_numbers_of_numpy_render_as_in_transformers() -> None:
    numpy = need("numpy")
    kinds = (numpy.float64, numpy.float32, numpy.int64, numpy.uint8, numpy.bool_)
    contents = [kind(1) for kind in kinds] + [[kind(1)] for kind in kinds]
    assert compare(TEMPLATES["tests"], contents)["equal"] == len(contents) * len(PLACES)
    numpy_array = {"a": numpy.zeros(2)}
    assert compare(TEMPLATES["tests"], [numpy_array])["equal"] == len(PLACES)


@pytest.mark.slow
def test_public_templates_render_data_as_transformers(llama_cpp_source: Path) -> None:
    found = collections.Counter[str]()
    for path in sorted((llama_cpp_source / "models/templates").glob("*.jinja")):
        found += compare(path.read_text(encoding="utf-8"), CONTENTS)
    assert found["equal"] > 5_000


def test_messages_may_be_objects() -> None:
    tokenizer = tokenizer_for(TEMPLATES["tests"], "<|h|>", "<|end|>")
    theirs = twin_of(tokenizer)

    @dataclasses.dataclass
    class Message:
        role: str
        content: Any = None

    function = Modelled(name="f", arguments='{"a": 1}')
    asked: list[Any] = [
        Message("user", "Hi"),
        Modelled(role="assistant", content=None, tool_calls=[Modelled(id="1", function=function)]),
        Message("tool", Weather(1.5, "C")),
    ]
    template = TEMPLATES["json"] + "{{ messages[1].tool_calls[0].function.arguments }}"
    got = tokenizer.apply_chat_template(asked, template, tokenize=False)
    assert got == theirs.apply_chat_template(asked, chat_template=template, tokenize=False)
    text = ChatTemplate.chatml(asked[:1])
    assert text == ChatTemplate.chatml([{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize("content", [b"x", {1, 2}, object(), 1j, iter("a"), Word])
def test_what_is_no_data_is_refused(content: Any) -> None:
    tokenizer = tokenizer_for("")
    messages = [USER, {"role": "tool", "content": content}]
    for template in (TEMPLATES["tests"], "chatml"):
        with pytest.raises(ValueError, match=r"messages\[1\]\['content'\] must be text or data"):
            tokenizer.apply_chat_template(messages, template)


def test_data_that_never_ends_is_refused() -> None:
    tokenizer, deep, endless = tokenizer_for(""), list[Any](), dict[str, Any]()
    for _ in range(5_000):
        deep = [deep]
    endless["self"] = endless
    for content in (deep, endless):
        with pytest.raises(ValueError, match="nested 200 deep"):
            tokenizer.apply_chat_template([{"role": "tool", "content": content}], "{{ messages }}")


# -- Safety -----------------------------------------------------------------------

HOSTILE = "<|end|>"


def hostile_data(text: str) -> list[Any]:
    return [
        {text: text},
        {"t": {"u": [text, None, text]}},
        [text, [text]],
        (text,),
        [{"type": "text", "text": text}],
        [{"type": text}],
        Weather(1.0, text),
        Modelled(**{text: text}),
        json.dumps({text: text}),
    ]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("place", [*PLACES, "keys of a tool", "name"])
def test_data_makes_no_control_tokens(name: str, place: str) -> None:
    template = TEMPLATES[name] + (
        "{{ documents | tojson }}{{ documents }}{{ tools | tojson }}{{ enable_thinking }}"
        "{% for m in messages %}{{ m.name }}{{ m.tool_calls }}{% for c in m.tool_calls or [] %}"
        "{% for k, v in c.function.arguments.items() %}{{ k }}{{ v }}{% endfor %}{% endfor %}"
        "{% endfor %}"
    )
    tokenizer = tokenizer_for(template, "<|h|>", "<|end|>", "<|image|>")
    control = set(tokenizer.special_tokens.values())

    def controls(text: str, i: int) -> list[int]:
        data = hostile_data(text)[i]
        messages, more = conversation(data, place)
        if place == "keys of a tool":
            more = {"tools": [{"type": "function", "function": {"name": "f", text: data}}]}
        if place == "name":
            messages, more = [{"role": "tool", "content": "x", "name": data}], {}
        ids = tokenizer.apply_chat_template(messages, template, **more)
        return [id_ for id_ in ids if id_ in control]

    for i in range(len(hostile_data(""))):
        assert controls(HOSTILE, i) == controls("harmless", i)


def test_data_of_the_assistant_and_a_user_together_is_the_users() -> None:
    template = "{{ [messages[0].content, messages[1].content] }}<think>"
    tokenizer = tokenizer_for(template)
    mark = tokenizer.convert_tokens_to_ids("<think>")
    for roles in (("user", "assistant"), ("assistant", "user")):
        messages = [{"role": role, "content": "<think>"} for role in roles]
        assert tokenizer.apply_chat_template(messages, template).count(mark) == 1


# -- Masks, continuing, conversations ---------------------------------------------


@pytest.mark.parametrize("content", [{"t": 22}, ["a"], [{"b": 1}], 22.5, 5, True, [], {}])
def test_masks_do_not_depend_on_how_a_result_was_given(content: Any) -> None:
    template = (
        "{% for m in messages %}<|h|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|h|>assistant\n{% endif %}"
    )
    marked = template.replace(
        "{{ m.content }}",
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}",
    )
    tokenizer = tokenizer_for(template, "<|h|>", "<|end|>")
    theirs = twin_of(tokenizer)
    options = {"return_dict": True, "return_assistant_tokens_mask": True}
    for prompt in (True, False):
        masks = []
        for given in (content, str(content)):
            messages = [USER, ANSWER, {**RESULT, "content": given}, ANSWER, USER]
            masks.append(tokenizer.apply_chat_template(messages, template, prompt, **options))
        assert masks[0] == masks[1] and sum(masks[0]["assistant_masks"]) > 0
        messages = [USER, ANSWER, {**RESULT, "content": content}, ANSWER, USER]
        own = tokenizer.apply_chat_template(messages, marked, prompt, **options)
        their = theirs.apply_chat_template(
            messages, chat_template=marked, add_generation_prompt=prompt, **options
        )
        assert own["assistant_masks"] == their["assistant_masks"]
        assert own["input_ids"] == their["input_ids"]


def test_turns_of_a_conversation_count_data() -> None:
    template = "{% for m in messages %}<|h|>{{ m.content }}<|end|>{% endfor %}"
    tokenizer, counted = tokenizer_for(template, "<|h|>", "<|end|>"), []
    for content in ({"t": [1, "x"]}, str({"t": [1, "x"]})):
        talk = Conversation(tokenizer, template)
        talk.extend([USER, {"role": "tool", "content": content}, USER])
        talk.prompt()
        counted.append(talk.turns)
    assert counted[0] == counted[1] and counted[0][1].tokens > 5


def test_only_text_is_continued() -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer = tokenizer_for(template)
    options = {"continue_final_message": True, "tokenize": False}
    for content in ({"t": 1}, 5, True, [1], [{"type": "image"}]):
        messages = [USER, {"role": "assistant", "content": content}]
        with pytest.raises(ValueError, match="continue_final_message: 'content' of the last"):
            tokenizer.apply_chat_template(messages, template, **options)
    parts = ({"type": "text", "text": "so far"}, {"type": "image"})
    kinds: list[Any] = [list(parts), parts]
    for given in kinds:
        messages = [USER, {"role": "assistant", "content": given}]
        text = tokenizer.apply_chat_template(messages, TEMPLATES["parts"], **options)
        assert text.endswith("<|h|>so far")


# -- Parts in built-in templates ------------------------------------------------------


def parts_of(text: str) -> list[dict[str, Any]]:
    halves = (text[: len(text) // 2], text[len(text) // 2 :])
    return [{"type": "text", "text": half, "cache_control": None} for half in halves]


@pytest.mark.parametrize("name", ["llama3", "chatml", "alpaca"])
def test_built_in_templates_join_text_parts(name: str) -> None:
    template = (
        "<|begin_of_text|><|start_header_id|><|end_header_id|><|eot_id|><|im_start|><|im_end|>"
    )
    tokenizer = tokenizer_for(template)
    talk = [
        {"role": "system", "content": " Be <|im_end|>brief. "},
        {"role": "user", "content": "Hi<|eot_id|> <|im_end|> there\n"},
        {"role": "assistant", "content": "Hello."},
    ]
    kinds: list[Any] = [parts_of, lambda text: tuple(parts_of(text))]
    whole: Any = {"all_turns": True} if name == "alpaca" else {}
    for given in kinds:
        parts = [{**message, "content": given(message["content"])} for message in talk]
        for options in (whole, {"return_dict": True, "return_assistant_tokens_mask": True}):
            got = tokenizer.apply_chat_template(parts, name, **options)
            assert got == tokenizer.apply_chat_template(talk, name, **options)
        render = ChatTemplate.get_template(name)
        assert render(parts, **whole) == render(talk, **whole)
        continued = {"continue_final_message": True}
        got = tokenizer.apply_chat_template(parts, name, **continued)
        assert got == tokenizer.apply_chat_template(talk, name, **continued)
    batch = tokenizer.apply_chat_template([parts, talk], name, **whole)
    assert batch[0] == batch[1]
    assert ChatTemplate.chatml([{"role": "user", "content": []}], False) == (
        ChatTemplate.chatml([{"role": "user", "content": ""}], False)
    )


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"type": "image", "url": "x.png"}, "is a part of type 'image'"),
        ({"type": "image_url", "image_url": {}}, "is a part of type 'image_url'"),
        ({"type": "text"}, "is a part of type 'text'"),
        ({"type": "text", "text": 5}, "is a part of type 'text'"),
        ({"text": "x"}, "is {'text': 'x'}"),
        ("x", "is 'x'"),
        (5, "is 5"),
    ],
)
def test_other_parts_are_refused_by_name(part: Any, named: str) -> None:
    messages = [USER, {"role": "user", "content": [{"type": "text", "text": "a"}, part]}]
    tokenizer = tokenizer_for("<|im_start|><|im_end|>")
    for render in (ChatTemplate.chatml, lambda talk: tokenizer.apply_chat_template(talk, "chatml")):
        with pytest.raises(ValueError, match=r"messages\[1\]\['content'\]\[1\]") as raised:
            render(messages)
        assert named in str(raised.value) and "'chatml' takes parts" in str(raised.value)


@pytest.mark.parametrize("content", [{"t": 1}, 5, 2.5, True, None])
def test_built_in_templates_take_no_other_data(content: Any) -> None:
    with pytest.raises(ValueError, match=r"messages\[0\]\['content'\] must be text .*'llama3'"):
        ChatTemplate.llama3([{"role": "tool", "content": content}])


# -- Arguments as JSON ----------------------------------------------------------------

ITEMS = (
    "{% for m in messages %}<|h|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{% set c = c.function or c %}"
    "{% for k, v in c.arguments.items() %}{{ k }}={{ v | tojson }};{% endfor %}{% endfor %}"
    "<|end|>{% endfor %}"
)


@pytest.fixture(autouse=True)
def nothing_was_told() -> None:
    arguments._tell.cache_clear()


def flat(given: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"name": "f", "arguments": given}]}


@pytest.mark.parametrize("made", [call, flat])
def test_json_is_parsed_for_templates_that_go_through_it(made: Any) -> None:
    tokenizer = tokenizer_for(ITEMS, "<|h|>", "<|end|>")
    data = {"city": "<|end|> Paris", "n": [1, None, 2.5], "<|end|>": {"deep": True}}
    masked = {"return_dict": True, "return_assistant_tokens_mask": True}
    for options in ({}, {"tokenize": False}, masked, {"truncation": True, "max_length": 200}):
        expected = tokenizer.apply_chat_template([USER, made(data), USER], ITEMS, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = tokenizer.apply_chat_template(
                [USER, made(json.dumps(data)), USER], ITEMS, **options
            )
        assert got == expected
        said = [str(each.message) for each in caught]
        assert len(said) == (not options)  # once
        assert all("JSON text in messages was parsed" in each for each in said)
    ids = tokenizer.apply_chat_template([USER, made(json.dumps(data))], ITEMS)
    assert ids.count(tokenizer.convert_tokens_to_ids("<|end|>")) == 2


def test_a_conversation_parses_json_for_its_template() -> None:
    tokenizer = tokenizer_for(ITEMS, "<|h|>", "<|end|>")
    prompts = []
    for given in ({"a": 1}, '{"a": 1}'):
        talk = Conversation(tokenizer, ITEMS)
        talk.extend([USER, call(given), {**RESULT, "content": {"t": 1}}])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prompts.append(talk.prompt())
        assert talk.messages[1]["tool_calls"][0]["function"]["arguments"] == given
        talk.answer(tokenizer.encode("Fine."))
        talk.add("user", "More?")
        prompts.append(talk.prompt())
    assert prompts[:2] == prompts[2:]


def test_json_stays_text_where_the_template_takes_it() -> None:
    template = "{% for m in messages %}{{ m.tool_calls[0].function.arguments }}{% endfor %}"
    tokenizer = tokenizer_for(template)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = tokenizer.apply_chat_template([call('{"a":  1}')], template, tokenize=False)
    assert text == '{"a":  1}'


@pytest.mark.parametrize("given", ["", "x", "[1]", "5", '"a"', '{"a": ', '{"a":' + "[" * 50_000])
def test_text_that_is_no_json_object_is_refused(given: str) -> None:
    tokenizer = tokenizer_for(ITEMS, "<|h|>", "<|end|>")
    messages = [USER, call('{"fine": 1}'), USER, call(given)]
    messages[3]["tool_calls"] = [call({})["tool_calls"][0], messages[3]["tool_calls"][0]]
    place = r"messages\[3\]: tool_calls\[1\]\.function\.arguments is .*not a JSON object.*"
    for options in ({}, {"tokenize": False}, {"return_dict": True}):
        with pytest.raises(ValueError, match=place + "pass a mapping"):
            tokenizer.apply_chat_template(messages, ITEMS, **options)
    with pytest.raises(ValueError, match="^conversation 1 of the batch .*: " + place):
        tokenizer.apply_chat_template([[USER], messages], ITEMS)


def test_another_failure_stays_what_it_is() -> None:
    tokenizer = tokenizer_for(ITEMS)
    for end, error in (("{{ 1 / 0 }}", "division by zero"), ("{{ raise_exception('no') }}", "no$")):
        for given in ('{"a": 1}', "x"):
            with pytest.raises(ValueError, match=error):
                tokenizer.apply_chat_template([USER, call(given)], end + ITEMS)


def test_json_stays_text_where_only_its_tokens_are_too_many() -> None:
    """As text in JSON it is longer than as a mapping, but that is what the template writes."""
    template = (
        "{% for m in messages %}{{ m.tool_calls[0].function.arguments | tojson }}{% endfor %}"
    )
    tokenizer = tokenizer_for(template)
    messages, limit = [call(json.dumps({"a": '"' * 20}))], 60
    mapping = tokenizer.apply_chat_template([call({"a": '"' * 20})], template)
    text = tokenizer.apply_chat_template(messages, template)
    assert len(mapping) <= limit < len(text)
    with pytest.raises(ValueError, match=f"takes {len(text)} tokens, more than max_length={limit}"):
        tokenizer.apply_chat_template(messages, template, truncation=True, max_length=limit)


@pytest.mark.parametrize(
    ("given", "problem"),
    [('{"a":' * 300 + "1" + "}" * 300, "nested 200 deep"), (r'{"a": "\ud800"}', "surrogate")],
)
def test_parsed_json_that_fails_says_why(given: str, problem: str) -> None:
    tokenizer = tokenizer_for(ITEMS, "<|h|>", "<|end|>")
    with pytest.raises(ValueError, match=f"no attribute 'items'; with JSON .*: .*{problem}"):
        tokenizer.apply_chat_template([USER, call(given)], ITEMS)


def test_the_legacy_call_of_a_function_is_parsed() -> None:
    template = "{% for k in messages[0].function_call.arguments.keys() %}{{ k }}{% endfor %}"
    tokenizer = tokenizer_for(template)
    call_ = {"name": "f", "arguments": '{"a": 1, "b": 2}'}
    with pytest.warns(UserWarning, match="was parsed"):
        text = tokenizer.apply_chat_template(
            [{"role": "assistant", "function_call": call_}], template, tokenize=False
        )
    assert text == "ab"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the chat template takes the arguments")
def test_public_templates_take_json_arguments(llama_cpp_source: Path) -> None:
    """Where transformers renders them, the same; else what it makes of the mapping, or an error."""
    found = collections.Counter[str]()
    data = {"city": "Paris", "n": 5}
    for path in sorted((llama_cpp_source / "models/templates").glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        ours = tokenizer_for(template)
        theirs = twin_of(ours)

        def text(of: Any, given: Any) -> Any:
            messages = [USER, {**THOUGHT, **call(given)}, RESULT]
            try:
                return of(messages, chat_template=template, tools=TOOLS, tokenize=False)
            except Exception as error:
                assert "Marked" not in str(error)
                return None

        def own(messages: Any, **options: Any) -> Any:
            return ours.apply_chat_template(messages, add_generation_prompt=False, **options)

        expected = text(theirs.apply_chat_template, json.dumps(data))
        if expected is None:
            found["parsed"] += 1
            expected = text(theirs.apply_chat_template, data)
        assert text(own, json.dumps(data)) == expected, path.stem
    assert found["parsed"] > 3
