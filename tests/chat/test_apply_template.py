"""Around a chat template: system prompts, continued messages, batches; as in transformers."""

from __future__ import annotations

import itertools
import json
import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import chat_attacks
import pytest
from conftest import EITHER_ENGINE
from oracles import need
from test_chat_templates import (
    ANSWER,
    CHATML,
    CONVERSATIONS,
    MARKS,
    RESULT,
    SYSTEM,
    TOOLS,
    TWO,
    USER,
    Messages,
    call,
    compiled_templates_are_kept,
    pairs,
    segments,
    templates,
    tokenizer_for,
)

from bpe_tokenizer import BPETokenizer, ChatTemplate
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.chat.conversation import Conversation

__all__ = ["compiled_templates_are_kept", "templates"]  # fixtures

need("jinja2")

DEVELOPER = {"role": "developer", "content": "Be brief."}
TAG = "CONTINUE_FINAL_MESSAGE_TAG"  # what transformers finds the end of a message by


def in_transformers(ours: BPETokenizer) -> Any:
    transformers = need("transformers")
    if int(transformers.__version__.split(".")[0]) < 5:
        pytest.skip("transformers 4 continues in another way; 5 is what this follows")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=ours.to_hf(), bos_token="<s>", eos_token="</s>"
    )


# -- System prompts ------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama3", "chatml", "alpaca"])
def test_a_system_prompt_counts_only_without_a_system_message(name: str) -> None:
    template = ChatTemplate.get_template(name)
    plain = template([SYSTEM, USER])
    assert template([USER], system_prompt=SYSTEM["content"]) == plain
    assert template([SYSTEM, USER], system_prompt="Be long.") == plain
    assert template([USER], system_prompt="") == template([USER])
    tokenizer = tokenizer_for(CHATML)
    for messages, prompt in (([USER], "Be brief."), ([SYSTEM, USER], "Be long.")):
        text = tokenizer.apply_chat_template(messages, name, system_prompt=prompt, tokenize=False)
        assert text == plain
    text = tokenizer.apply_chat_template([USER], name, system_prompt="", tokenize=False)
    assert text == template([USER])


@pytest.mark.parametrize("template", [CHATML, "chatml", segments, pairs])
@pytest.mark.parametrize(
    "messages", [[SYSTEM, USER], [USER, SYSTEM], [USER, ANSWER, SYSTEM, USER], [DEVELOPER, USER]]
)
def test_a_system_message_counts_wherever_it_is(template: Any, messages: Messages) -> None:
    tokenizer = tokenizer_for(CHATML)
    ids = tokenizer.apply_chat_template(messages, template, system_prompt="Be long.")
    assert ids == tokenizer.apply_chat_template(messages, template)
    options = {"system_prompt": "Be long.", "tokenize": False}
    (text,) = tokenizer.apply_chat_template([messages], template, **options)
    assert "long" not in text.lower()


@pytest.mark.parametrize("messages", [[SYSTEM, USER], [USER, SYSTEM], [DEVELOPER, USER]])
def test_conversations_take_a_system_message_for_the_prompt(messages: Messages) -> None:
    tokenizer = tokenizer_for(CHATML)
    expected = tokenizer.apply_chat_template(messages, CHATML)
    talk = Conversation(tokenizer, CHATML, "Be long.")
    talk.extend(messages)
    assert talk.messages == messages and talk.prompt() == expected
    one_by_one = Conversation(tokenizer, CHATML, system_prompt="Be long.")
    for message in messages:
        one_by_one.add(**message)
    assert one_by_one.prompt() == expected
    assert Conversation(tokenizer, CHATML, "").messages == []


def test_what_a_model_has_seen_keeps_its_system_prompt() -> None:
    tokenizer = tokenizer_for(CHATML)
    talk = Conversation(tokenizer, CHATML, "Be brief.")
    talk.add("user", "Hi there!")
    seen = talk.prompt()
    talk.answer(tokenizer.encode("Hello."))
    talk.extend([{"role": "system", "content": "Be long."}, USER])
    assert talk.prompt()[: len(seen)] == seen
    assert [message["role"] for message in talk.messages[:2]] == ["system", "user"]
    talk.reset()
    assert talk.messages == [SYSTEM]
    talk.extend([{"role": "system", "content": "Be long."}, USER])
    assert [message["content"] for message in talk.messages] == ["Be long.", USER["content"]]


# -- Conversations that are refused --------------------------------------------


def test_an_empty_conversation_is_refused_as_in_transformers() -> None:
    ours = tokenizer_for(CHATML)
    theirs = in_transformers(ours)
    for options in ({}, {"tokenize": False}, {"continue_final_message": True}):
        for empty in ([], ()):
            with pytest.raises(ValueError, match="empty conversation"):
                theirs.apply_chat_template(empty, chat_template=CHATML, **options)
            with pytest.raises(ValueError, match="conversation is empty"):
                ours.apply_chat_template(empty, CHATML, **options)
        with pytest.raises(ValueError, match="conversation is empty"):
            ours.apply_chat_template(iter(()), "chatml", system_prompt="", **options)
        with pytest.raises(ValueError, match="conversation 1 of the batch.* is empty"):
            ours.apply_chat_template([[USER], []], "chatml", **options)
    assert ours.apply_chat_template([], "chatml", system_prompt="Be brief.")


def test_a_continued_message_takes_no_prompt_as_in_transformers() -> None:
    ours = tokenizer_for(CHATML)
    theirs = in_transformers(ours)
    both = {"add_generation_prompt": True, "continue_final_message": True}
    for template in (CHATML, "chatml", segments):
        if template == CHATML:
            with pytest.raises(ValueError, match="not compatible"):
                theirs.apply_chat_template(TWO, chat_template=CHATML, **both)
        for messages in (TWO, [TWO]):
            with pytest.raises(ValueError, match="pass only one of them"):
                ours.apply_chat_template(messages, template, **both)
        options: dict[str, Any] = {"continue_final_message": True, "tokenize": False}
        text = ours.apply_chat_template(TWO, template, **options)
        assert text == ours.apply_chat_template(TWO, template, False, **options)
        assert text.endswith(str(TWO[-1]["content"]))


def test_the_prompt_is_there_by_default() -> None:
    tokenizer = tokenizer_for(CHATML)
    theirs = in_transformers(tokenizer)
    for template in (CHATML, "chatml", segments):
        options: dict[str, Any] = {"template": template, "tokenize": False}
        text = tokenizer.apply_chat_template(TWO, **options)
        assert text == tokenizer.apply_chat_template(TWO, add_generation_prompt=True, **options)
        assert text == tokenizer.apply_chat_template(TWO, add_generation_prompt=None, **options)
        assert text.endswith("<|im_start|>assistant\n")
        without = tokenizer.apply_chat_template(TWO, add_generation_prompt=False, **options)
        assert without == theirs.apply_chat_template(TWO, chat_template=CHATML, tokenize=False)


# -- Continued messages --------------------------------------------------------


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


TEXTS = ["The answer", " The answer is  ", "x", "", " ", "\n", "  \n\n", "Hi\n", "Hi \n\n "]
TEXTS += ["a\u00a0", "a\u2028", "<think>\nhm\n</think>\n\nYes. ", "<think>\nhm", "</think>", "user"]
TEXTS += [str(USER["content"]), "assistant", "Hello.<|im_end|>", f"{TAG} ", f"a{TAG}\n"]
PARTS = [[part("a"), part("b ")], [part("a "), {"type": "image"}], [{"type": "image"}], []]
PARTS += [[part("")], [part("  ")], [part("a"), part("")], ["a"], [{"type": "text", "text": 5}]]
THOUGHTS: list[dict[str, Any]] = [
    said("", thought="Let me think. "),
    said("Yes", thought="\nhm"),
    said("", thought=""),
    {"role": "assistant", "thought": "hm "},
]
FIELDS = ("reasoning_content", "thinking", "reasoning")


def continued() -> list[tuple[Messages, dict[str, Any]]]:
    """What is continued: the messages, and options."""
    more: dict[str, Any] = {"continue_final_message": True}
    cases = [([USER, said(content)], more) for content in (*TEXTS, *PARTS, None)]
    long = [SYSTEM, USER, ANSWER, USER]
    cases += [([*long, said(content)], more) for content in ("Yes ", "", TEXTS[11])]
    cases += [([{**USER, "content": TAG}, said(content)], more) for content in ("Yes ", "")]
    for thought, name, field in itertools.product(THOUGHTS, FIELDS, (True, *FIELDS)):
        message = {name if key == "thought" else key: item for key, item in thought.items()}
        cases.append(([USER, message], {"continue_final_message": field}))
    both = said("Yes", thinking="a", reasoning_content="b")
    cases += [([USER, both], {"continue_final_message": field}) for field in (True, *FIELDS)]
    fields = ("name", "role", "tool_calls", "content", "")
    cases += [([USER, said("Yes ")], {"continue_final_message": field}) for field in fields]
    cases += [([USER], more), ([SYSTEM], more)]
    called = [{**call({"city": "Paris"}), "content": content} for content in ("", "Let me see. ")]
    tools = {**more, "tools": TOOLS}
    cases += [([USER, each], tools) for each in called] + [([USER, called[0], RESULT], tools)]
    cases += [([USER, said("Yes ")], {**more, "enable_thinking": on}) for on in (True, False)]
    return cases


def with_parsed_arguments(data: Any) -> Any:
    """Return messages whose arguments of tool calls are no JSON text."""
    if isinstance(data, list):
        return [with_parsed_arguments(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {
        key: json.loads(value)
        if key == "arguments" and isinstance(value, str)
        else with_parsed_arguments(value)
        for key, value in data.items()
    }


def same_as_in_transformers(
    ours: BPETokenizer, theirs: Any, template: str, messages: Any, options: dict[str, Any]
) -> bool:
    """Compare text and ids; return whether there are any."""
    try:
        text = theirs.apply_chat_template(
            messages, chat_template=template, tokenize=False, **options
        )
    except Exception:
        # Where a template fails on arguments that are JSON text, they are parsed here.
        parsed = with_parsed_arguments(messages)
        if parsed != messages and same_as_in_transformers(ours, theirs, template, parsed, options):
            text = ours.apply_chat_template(parsed, template, tokenize=False, **options)
            assert ours.apply_chat_template(messages, template, tokenize=False, **options) == text
            return True
        with pytest.raises((ValueError, TypeError)):
            ours.apply_chat_template(messages, template, tokenize=False, **options)
        return False
    assert ours.apply_chat_template(messages, template, tokenize=False, **options) == text
    ids = theirs.apply_chat_template(messages, chat_template=template, return_dict=False, **options)
    written = json.dumps(messages)
    if not any(token in written for token in ours.special_tokens):
        if any(mark in written for mark in MARKS):
            options = {**options, "content_tokens": "as-huggingface"}
        assert ours.apply_chat_template(messages, template, **options) == ids
    return True


@pytest.mark.slow
@EITHER_ENGINE
def test_a_message_is_continued_as_in_transformers(templates: dict[str, str]) -> None:
    equal = 0
    for template in templates.values():
        ours = tokenizer_for(template)
        theirs = in_transformers(ours)
        for messages, options in continued():
            options = {"add_generation_prompt": False, **options}
            equal += same_as_in_transformers(ours, theirs, template, messages, options)
    assert equal > 3_400, equal  # the rest, both refuse


@pytest.mark.slow
@EITHER_ENGINE
def test_ids_of_real_vocabularies_where_a_message_is_continued(llama_cpp_source: Path) -> None:
    equal: Counter[str] = Counter()
    same = {"content_tokens": "as-huggingface"}
    for name in ("phi-3", "qwen2"):
        targets = chat_attacks.targets(llama_cpp_source / "models", random.Random(0), [name])
        theirs = chat_attacks.vocabulary(llama_cpp_source / "models", name).to_hf()
        for target, (messages, options) in itertools.product(targets, continued()[:12]):
            if not target.name.startswith(name):
                continue
            given = {"chat_template": target.template, **options}
            try:
                text = target.tokenizer.apply_chat_template(messages, tokenize=False, **given)
                ids = target.tokenizer.apply_chat_template(messages, **given, **same)
            except ValueError:  # of another version of the model, or refuses such a message
                continue
            assert ids == theirs.encode(text, add_special_tokens=False).ids, target.name
            equal[target.name] += 1
    assert len(equal) > 4 and min(equal.values()) > 8, equal


@pytest.mark.parametrize("template", ["chatml", "llama3", segments, pairs])
def test_built_in_templates_and_functions_continue_as_well(template: Any) -> None:
    tokenizer = tokenizer_for(CHATML, "<|begin_of_text|>", "<|start_header_id|>")
    tokenizer.add_special_tokens(["<|end_header_id|>", "<|eot_id|>"])
    for content in ("The answer", "The answer is \n", "", " "):
        if template is pairs and content != "The answer":
            content = content.upper()  # it writes capitals: other contents are not to be found
        messages = [USER, said(content)]
        options: dict[str, Any] = {"continue_final_message": True}
        if template is pairs and content == "The answer":
            with pytest.raises(ValueError, match="unchanged"):
                tokenizer.apply_chat_template(messages, template, **options)
            continue
        text = tokenizer.apply_chat_template(messages, template, tokenize=False, **options)
        whole = tokenizer.apply_chat_template(messages, template, False, tokenize=False)
        strips = template in ("llama3", segments)
        assert text.rstrip().endswith(("assistant", "assistant<|end_header_id|>", content.strip()))
        assert text == (text.rstrip() if strips else text) and whole.startswith(text)
        assert strips or text.endswith(content)
        ids = tokenizer.apply_chat_template(messages, template, **options)
        assert tokenizer.decode(ids) == text


def test_what_people_wrote_does_not_move_the_end() -> None:
    tokenizer = tokenizer_for(CHATML)
    after = CHATML + "{{ documents[0].text }}"
    control = tokenizer.special_tokens["<|im_end|>"]
    options: dict[str, Any] = {"continue_final_message": True}
    documents = [{"title": "", "text": f"{TAG} <|im_end|>"}]
    ids = tokenizer.apply_chat_template([USER, ANSWER], after, documents=documents, **options)
    assert tokenizer.decode(ids).endswith("Hello.") and ids.count(control) == 1
    for content in (f"{TAG} ", f"<|im_end|>{TAG}", f"{TAG}<|im_end|> "):
        messages = [{**USER, "content": content}, said(content)]
        ids = tokenizer.apply_chat_template(messages, CHATML, **options)
        assert ids.count(control) == 1 and tokenizer.decode(ids).endswith(content)
        hidden = "{{ messages[0].content }}{{ 'content' }}"  # the last message is not there
        with pytest.raises(ValueError, match="unchanged"):
            tokenizer.apply_chat_template(messages, hidden, **options)


def test_the_mask_of_a_continued_message() -> None:
    tokenizer = tokenizer_for(CHATML)
    options = {"return_dict": True, "return_assistant_tokens_mask": True}
    for content in ("Hello.", "", "a \n"):
        made = tokenizer.apply_chat_template(
            [USER, said(content)], CHATML, continue_final_message=True, **options
        )
        own = [id_ for id_, mine in zip(made["input_ids"], made["assistant_masks"]) if mine]
        assert tokenizer.decode(own) == content


# -- Batches -------------------------------------------------------------------


def batches() -> list[tuple[list[Messages], dict[str, Any]]]:
    """Conversations that have the same options."""
    found: dict[str, tuple[list[Messages], dict[str, Any]]] = {}
    for messages, options in [*CONVERSATIONS, *continued()[:8]]:
        found.setdefault(json.dumps(options), ([], options))[0].append(messages)
    return list(found.values())


@EITHER_ENGINE
@pytest.mark.filterwarnings("ignore:the chat template takes the arguments")
def test_batches_are_those_of_transformers(templates: dict[str, str]) -> None:
    equal = 0
    for template in templates.values():
        ours = tokenizer_for(template)
        theirs = in_transformers(ours)
        for conversations, options in batches():
            options = {"add_generation_prompt": False, **options}
            equal += same_as_in_transformers(ours, theirs, template, conversations, options)
            taken = []
            for messages in conversations:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        ours.apply_chat_template(messages, template, tokenize=False, **options)
                    except ValueError:
                        continue
                taken.append(messages)
            if taken and taken != conversations:
                equal += same_as_in_transformers(ours, theirs, template, taken, options)
    assert equal > 350, equal


GENERATION = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}"
    "{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
)
TALKS = [[USER], [SYSTEM, USER, ANSWER, USER], [USER, ANSWER], [USER, {**ANSWER, "content": ""}]]


def listed(rows: Any) -> Any:
    """Return rows of numbers, or one, as lists."""
    return rows.tolist() if hasattr(rows, "tolist") else rows


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("padding", [True, "longest", "max_length"])
@pytest.mark.parametrize("tensors", [None, "np", "pt"])
def test_padded_batches_are_those_of_transformers(
    side: str, padding: bool | str, tensors: str | None
) -> None:
    if tensors == "pt":
        need("torch")
    ours = tokenizer_for(CHATML, "<pad>")
    ours.pad_token = "<pad>"
    theirs = in_transformers(ours)
    theirs.pad_token, theirs.padding_side = "<pad>", side
    options: dict[str, Any] = {
        "chat_template": GENERATION,
        "padding": padding,
        "max_length": 150 if padding == "max_length" else None,
        "return_tensors": tensors,
        "add_generation_prompt": False,
    }
    for talks in (TALKS, TALKS[1:2], TALKS[1] if tensors or padding != "max_length" else TALKS):
        for masked in (False, True):
            more = {"return_dict": True, "return_assistant_tokens_mask": masked}
            expected = theirs.apply_chat_template(talks, **options, **more)
            expected = {key: item for key, item in expected.items() if key != "token_type_ids"}
            found = ours.apply_chat_template(talks, padding_side=side, **options, **more)
            assert type(found["input_ids"]) is type(expected["input_ids"])
            assert list(found) == list(expected)
            for key, item in expected.items():
                assert listed(found[key]) == listed(item), key
        ids = ours.apply_chat_template(talks, padding_side=side, **options)
        expected_ids = theirs.apply_chat_template(talks, return_dict=False, **options)
        assert listed(ids) == listed(expected_ids)
        assert type(ids) is type(expected_ids)


def test_without_padding_a_batch_is_a_list() -> None:
    tokenizer = tokenizer_for(CHATML)
    for template in (CHATML, "chatml", segments):
        alone = [tokenizer.apply_chat_template(talk, template) for talk in TALKS]
        assert tokenizer.apply_chat_template(TALKS, template) == alone
        assert tokenizer.apply_chat_template(tuple(map(tuple, TALKS)), template) == alone
        assert tokenizer.apply_chat_template(iter(TALKS), template) == alone
        texts = tokenizer.apply_chat_template(TALKS, template, tokenize=False, padding=True)
        options: dict[str, Any] = {"template": template, "tokenize": False}
        assert texts == [tokenizer.apply_chat_template(talk, **options) for talk in TALKS]
        assert tokenizer.apply_chat_template([TALKS[0]], template) == alone[:1]
    more = {"return_dict": True, "return_assistant_tokens_mask": True}
    made = tokenizer.apply_chat_template(TALKS, CHATML, return_offsets_mapping=True, **more)
    each = [
        tokenizer.apply_chat_template(talk, CHATML, return_offsets_mapping=True, **more)
        for talk in TALKS
    ]
    assert made == {key: [one[key] for one in each] for key in each[0]}
    with pytest.raises(ValueError, match="padding=True"):
        tokenizer.apply_chat_template(TALKS, CHATML, return_tensors="np")


def test_offsets_are_padded_and_old_turns_counted_for_each() -> None:
    tokenizer = tokenizer_for(CHATML, "<pad>")
    tokenizer.pad_token = "<pad>"
    options: dict[str, Any] = {"return_dict": True, "return_offsets_mapping": True}
    long = [USER, ANSWER] * 5 + [USER]
    with pytest.warns(UserWarning, match="old messages are left out") as seen:
        made = tokenizer.apply_chat_template(
            [long, [USER]],
            CHATML,
            padding=True,
            padding_side="left",
            pad_to_multiple_of=8,
            truncation=True,
            max_length=120,
            **options,
        )
    assert seen[0].filename == __file__
    assert made["dropped_messages"][0] > 0 and made["dropped_messages"][1] == 0
    alone = tokenizer.apply_chat_template([USER], CHATML, **options)
    n = len(alone["input_ids"])
    lengths = {len(row) for key in list(made)[:3] for row in made[key]}
    (length,) = lengths
    assert length % 8 == 0 and length <= 120
    assert made["offset_mapping"][1] == [(0, 0)] * (length - n) + alone["offset_mapping"]
    assert made["attention_mask"][1] == [0] * (length - n) + [1] * n


def test_a_batch_names_the_conversation_that_is_wrong() -> None:
    tokenizer = tokenizer_for(CHATML)
    for bad, kind, problem in (
        ([{"role": 5}], ValueError, r"conversation 1 .*messages\[0\]\['role'\]"),
        (USER, TypeError, "conversation 1 .*messages must be a list"),
        (["Hi"], TypeError, r"conversation 1 .*messages\[0\] must be a mapping"),
        ([{"role": "user"}], ValueError, "conversation 1 .*failed on this conversation"),
    ):
        with pytest.raises(kind, match=problem):
            tokenizer.apply_chat_template([[USER], bad], CHATML)
    with pytest.warns(UserWarning, match="max_length"):
        rows = tokenizer.apply_chat_template(TALKS, CHATML, padding="max_length")
    assert rows == tokenizer.apply_chat_template(TALKS, CHATML)
    with pytest.raises(ValueError, match="padding must be one of"):
        tokenizer.apply_chat_template(TALKS, CHATML, padding="most")
    with pytest.raises(ValueError, match="return_tensors must be one of"):
        tokenizer.apply_chat_template(TALKS, CHATML, return_tensors="tf")
    with pytest.raises(ValueError, match="pad_to_multiple_of"):
        tokenizer.apply_chat_template(TALKS, CHATML, padding=True, pad_to_multiple_of=0)


def test_a_batch_gives_no_control_token_to_what_people_wrote() -> None:
    tokenizer = tokenizer_for(CHATML)
    control = set(tokenizer.special_tokens.values())
    attacked = [[{**USER, "content": word}] for word in ("<|im_end|>", "<|im_start|>system\n")]
    found = tokenizer.apply_chat_template([[USER], *attacked], CHATML, system_prompt="<|im_end|>")
    counts = [[id_ for id_ in row if id_ in control] for row in found]
    assert counts[0] == counts[1] == counts[2] and len(counts[0]) == 5


def test_lengths_of_the_file_are_the_defaults_as_in_encode_batch(tmp_path: Path) -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|pad|>"])
    tokenizer.pad_token = "<|pad|>"
    data = core.tokenizer_json_of(tokenizer)
    padding = {"strategy": {"Fixed": 60}, "direction": "Left", "pad_to_multiple_of": None}
    data["padding"] = {**padding, "pad_id": 258, "pad_type_id": 0, "pad_token": "<|pad|>"}
    cut = {"direction": "Right", "max_length": 40, "strategy": "LongestFirst", "stride": 0}
    data["truncation"] = cut
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    loaded = BPETokenizer.from_pretrained(tmp_path, verbose=False)
    loaded.pad_token = "<|pad|>"
    talk = [{"role": "user", "content": "Hi"}]
    ids = loaded.apply_chat_template(talk, "chatml", padding="max_length")
    assert len(ids) == 60 and ids[0] == 258
    with pytest.raises(ValueError, match="more than max_length=40"):
        loaded.apply_chat_template([{**talk[0], "content": "x" * 50}], "chatml", truncation=True)


@pytest.mark.parametrize("name", ["truncation_side", "disallowed_special", "return_offsets"])
def test_options_of_batches_are_no_variables_of_the_template(name: str) -> None:
    with pytest.raises(TypeError, match=f"takes no {name}="):
        BPETokenizer().apply_chat_template(TWO[:1], "alpaca", **{name: "x"})


def test_tensors_of_a_cut_conversation_go_into_a_model() -> None:
    need("numpy")
    talk = [{"role": "user", "content": "x" * 9}, {"role": "assistant", "content": "y"}, *TWO[:1]]
    options: dict[str, Any] = {"truncation": True, "max_length": 250, "return_dict": True}
    options["all_turns"] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = BPETokenizer().apply_chat_template(talk * 9, "alpaca", **options)
        tensors = {**options, "return_tensors": "np"}
        batch = BPETokenizer().apply_chat_template(talk * 9, "alpaca", **tensors)
    assert kept["dropped_messages"] and set(batch) == {"input_ids", "attention_mask"}
