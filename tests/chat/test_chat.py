"""Chat templates: their text, their ids, and content that tries to be more than content."""

from __future__ import annotations

import itertools
import re
import unicodedata
from enum import Enum
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

import bpe_tokenizer
from bpe_tokenizer import (
    CHATML_SPECIAL_TOKENS,
    LLAMA3_SPECIAL_TOKENS,
    AddedToken,
    BPETokenizer,
    ChatTemplate,
)
from bpe_tokenizer_tools.chat.conversation import Conversation

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  Hi!\n"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye?"},
]
LLAMA3 = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nBye?<|eot_id|>"
)
CHATML = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n  Hi!\n<|im_end|>\n"
    "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye?<|im_end|>\n"
)
ALPACA = (
    "Be brief.\n\n### Instruction:\n  Hi!\n\n\n### Response:\nHello.\n\n### Instruction:\nBye?\n\n"
)
TASK = (
    "Below is an instruction that describes a task. Write a response that appropriately "
    "completes the request."
)
ALPACA_SINGLE = f"{TASK}\n\n### Instruction:\nHi\n\n### Response:\n"
WHOLE: dict[str, dict[str, bool]] = {"alpaca": {"all_turns": True}}  # renders the last turn alone
PROMPTS = {
    "llama3": (LLAMA3, "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "chatml": (CHATML, "<|im_start|>assistant\n"),
    "alpaca": (ALPACA, "### Response:\n"),
}
# The templates as the model families publish them.
JINJA = {
    "llama3": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}"
        "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
        "+ message['content'] | trim + '<|eot_id|>' %}"
        "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
        "{{ content }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
    "chatml": (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
        "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
}
SPECIAL = {**LLAMA3_SPECIAL_TOKENS, **CHATML_SPECIAL_TOKENS}


def chat_tokenizer(**options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer("llama3", **options)
    text = (LLAMA3 + CHATML + ALPACA + "user assistant system <| |> im_ eot ") * 4
    return tokenizer.train(text, 500, special_tokens=SPECIAL, verbose=False, num_workers=1)


@pytest.fixture(scope="module")
def tokenizer(engine: str) -> BPETokenizer:
    return chat_tokenizer()


# -- The text -----------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_text_is_that_of_the_family(tokenizer: BPETokenizer, name: str) -> None:
    text, prompt = PROMPTS[name]
    template = ChatTemplate.get_template(name)
    whole = WHOLE.get(name, {})
    assert template(CONVERSATION, **whole) == text + prompt
    assert template(CONVERSATION, add_generation_prompt=False, **whole) == text
    assert template(CONVERSATION[1:], system_prompt="Be brief.", **whole) == text + prompt
    assert template(iter(CONVERSATION), **whole) == text + prompt
    rendered = tokenizer.apply_chat_template(CONVERSATION, name, tokenize=False, **whole)
    assert rendered == text + prompt
    options = {"system_prompt": "Be brief.", "tokenize": False, "add_generation_prompt": False}
    assert tokenizer.apply_chat_template(CONVERSATION[1:], name, **options, **whole) == text


def test_alpaca_without_a_system_prompt_has_its_own() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    for whole in ({}, WHOLE["alpaca"]):
        assert ChatTemplate.alpaca(messages, **whole) == ALPACA_SINGLE
        expected = ALPACA_SINGLE[: -len("### Response:\n")]
        assert ChatTemplate.alpaca(messages, False, **whole) == expected


def as_the_reference_program(messages: list[dict[str, str]], prompt: bool, system: str) -> str:
    """The Alpaca prompt of the program that this library succeeds, rewritten naively.

    The system text, or else the task; then the last thing that the user said.
    """
    text = system or TASK
    instruction = ""
    for message in messages:
        if message["role"] == "system":
            text = message["content"]
        if message["role"] == "user":
            instruction = message["content"]
    text += "\n\n### Instruction:\n" + instruction + "\n\n"
    return text + "### Response:\n" if prompt else text


@pytest.mark.filterwarnings("ignore:the alpaca template renders the last user message only")
@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(["", "S", "two\nlines"]),
    st.booleans(),
)
def test_alpaca_renders_the_system_text_and_the_last_user_message(
    turns: list[tuple[str, str]], prompt: bool, system: str, given_as_message: bool
) -> None:
    messages = [{"role": "system", "content": system}] * bool(system and given_as_message)
    for question, answer in turns:
        messages += [{"role": "user", "content": question}]
        messages += [{"role": "assistant", "content": answer}]
    asked = None if given_as_message else system
    for talk in (messages, messages[:-1]):
        expected = as_the_reference_program(talk, prompt, asked or "")
        assert ChatTemplate.alpaca(talk, prompt, asked) == expected
        options: dict[str, Any] = {"system_prompt": asked, "tokenize": False}
        rendered = BPETokenizer().apply_chat_template(talk, "alpaca", prompt, **options)
        assert rendered == expected


def test_alpaca_tells_of_turns_that_it_leaves_out() -> None:
    for call in (ChatTemplate.alpaca, alpaca_ids):
        with pytest.warns(UserWarning, match="leaves other turns out; all_turns=True") as told:
            call(CONVERSATION)
        assert [each.filename for each in told] == [__file__]
        call(CONVERSATION[:2])
        call(CONVERSATION, all_turns=True)


def alpaca_ids(messages: Any, **options: Any) -> Any:
    return BPETokenizer().apply_chat_template(messages, "alpaca", **options)


def test_the_preamble_of_alpaca_is_an_option() -> None:
    question = [{"role": "user", "content": "Hi"}]
    asked = [{"role": "system", "content": "Be brief."}, *question]
    plain = "### Instruction:\nHi\n\n### Response:\n"
    for all_turns in (False, True):
        for talk, preamble, expected in (
            (question, None, f"{TASK}\n\n{plain}"),
            (question, True, f"{TASK}\n\n{plain}"),
            (question, False, plain),
            (asked, None, f"Be brief.\n\n{plain}"),
            (asked, True, f"{TASK}\n\nBe brief.\n\n{plain}"),
            (asked, False, f"Be brief.\n\n{plain}"),
        ):
            options: dict[str, Any] = {"all_turns": all_turns, "preamble": preamble}
            assert ChatTemplate.alpaca(talk, **options) == expected
            tokenizer = BPETokenizer()
            ids = tokenizer.apply_chat_template(talk, "alpaca", **options)
            assert ids == tokenizer.encode(expected)


def test_alpaca_needs_an_instruction() -> None:
    talk = [{"role": "assistant", "content": "Hello."}]
    with pytest.raises(ValueError, match="needs a user message, its instruction; all_turns=True"):
        ChatTemplate.alpaca(talk)
    assert ChatTemplate.alpaca(talk, all_turns=True).startswith(f"{TASK}\n\n### Response:\nHello.")


def test_chats_with_alpaca_keep_all_turns() -> None:
    talk = Conversation(BPETokenizer(), "alpaca", "Be brief.")
    talk.extend(CONVERSATION[1:])
    assert bytes(talk.prompt()).decode() == ALPACA + "### Response:\n"
    last = Conversation(BPETokenizer(), "alpaca", "Be brief.", all_turns=False, preamble=True)
    last.extend(CONVERSATION[-1:])
    text = bytes(last.prompt()).decode()
    assert text == f"{TASK}\n\nBe brief.\n\n### Instruction:\nBye?\n\n### Response:\n"
    for call in (BPETokenizer().chat, bpe_tokenizer._chat):  # with the tools, and without
        given: list[Any] = [BPETokenizer()] if call is bpe_tokenizer._chat else []
        options: dict[str, Any] = {"template": "alpaca", "verbose": False, "n_ctx": 0}
        options |= {"temperature": 0, "top_p": 1, "max_new_tokens": 1, "n_gpu_layers": 0}
        for own in ({}, {"all_turns": True, "preamble": False}):
            with pytest.raises(FileNotFoundError):  # without a warning that turns are left out
                call(*given, CONVERSATION, "no/such/model", **options, **own)
        with pytest.raises(TypeError, match="takes no option 'all_turn'"):
            call(*given, CONVERSATION, "no/such/model", **options, all_turn=True)


def test_continuing_an_answer_of_alpaca_renders_all_turns() -> None:
    talk = CONVERSATION[:3]
    options: dict[str, Any] = {"continue_final_message": True, "tokenize": False}
    text = BPETokenizer().apply_chat_template(talk, "alpaca", **options)
    assert text == ALPACA[: ALPACA.index("Hello.") + len("Hello.")]
    options = {"return_dict": True, "return_assistant_tokens_mask": True}
    found = BPETokenizer().apply_chat_template(talk, "alpaca", False, **options)
    spoken = [id_ for id_, mask in zip(found["input_ids"], found["assistant_masks"]) if mask]
    assert bytes(spoken) == b"Hello."


@pytest.mark.parametrize("role", ["user ", "User", "bot", "developer", "function", "<|eot_id|>"])
def test_llama3_refuses_roles_it_does_not_know(tokenizer: BPETokenizer, role: str) -> None:
    talk = [{"role": "user", "content": "Hi"}, {"role": role, "content": "Hi"}]
    known = "system, user, assistant, ipython, tool"
    message = f"llama3 template has no role '{re.escape(role)}': expected one of {known}"
    for call in (ChatTemplate.llama3, tokenizer.apply_chat_template):
        with pytest.raises(ValueError, match=message):
            call(talk)
    for name in known.split(", "):
        assert f"|>{name}<|" in ChatTemplate.llama3([{"role": name, "content": "Hi"}])


def test_the_default_template_is_llama3(tokenizer: BPETokenizer) -> None:
    by_default = tokenizer.apply_chat_template(CONVERSATION)
    assert by_default == tokenizer.apply_chat_template(CONVERSATION, "llama3")
    assert tokenizer.decode(by_default) == LLAMA3 + PROMPTS["llama3"][1]


@pytest.mark.parametrize("name", ["", "llama", "LLAMA3", "get_template", "__init__", None])
def test_unknown_templates_are_refused(tokenizer: BPETokenizer, name: Any) -> None:
    with pytest.raises(ValueError, match="llama3, chatml, alpaca"):
        ChatTemplate.get_template(name)
    if name is not None:
        with pytest.raises(ValueError, match="llama3, chatml, alpaca"):
            tokenizer.apply_chat_template(CONVERSATION, name)


# -- Against the families' own templates --------------------------------------

ROLE = st.sampled_from(["user", "assistant", "system", "tool"])
CLEAN = st.one_of(
    st.text(st.sampled_from("ab \n\t.é\u0301e\u0327世<|>_1\u00a0\u2028"), max_size=12),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
MESSAGES = st.lists(st.fixed_dictionaries({"role": ROLE, "content": CLEAN}), min_size=1, max_size=4)


@pytest.fixture(scope="module", params=["plain", "added"])
def twins(engine: str, request: Any, tmp_path_factory: Any) -> tuple[BPETokenizer, Any]:
    transformers = need("transformers")
    tokenizer = chat_tokenizer()
    if request.param == "added":
        tokenizer.add_special_tokens(
            [
                AddedToken("a.b", special=False),
                AddedToken("1 ", special=False, lstrip=True, rstrip=True),
                AddedToken("é\u00a0", special=False, normalized=True),
            ]
        )
    folder = tmp_path_factory.mktemp("chat")
    tokenizer.save(folder, verbose=False)
    return tokenizer, transformers.AutoTokenizer.from_pretrained(str(folder))


@pytest.mark.parametrize("name", sorted(JINJA))
def test_ids_equal_those_of_the_familys_own_template(twins: Any, name: str) -> None:
    tokenizer, twin = twins

    @settings(max_examples=examples(150))
    @given(MESSAGES, st.booleans())
    @example([{"role": "user", "content": "\u0301e"}], True)
    @example([{"role": "user", "content": ""}], False)
    def check(messages: list[dict[str, str]], prompt: bool) -> None:
        options = {"chat_template": JINJA[name], "add_generation_prompt": prompt}
        text = twin.apply_chat_template(messages, tokenize=False, **options)
        assert tokenizer.apply_chat_template(messages, name, prompt, tokenize=False) == text
        expected = twin.apply_chat_template(messages, return_dict=False, **options)
        found = tokenizer.apply_chat_template(
            messages, name, prompt, content_tokens="as-huggingface"
        )
        assert found == expected
        contents = [unicodedata.normalize("NFC", message["content"]) for message in messages]
        if not any(token in content for token in added for content in contents):
            assert tokenizer.apply_chat_template(messages, name, prompt) == expected

    added = [token.content for token in tokenizer.added_tokens]
    check()


# -- Injection ----------------------------------------------------------------


def control_ids(tokenizer: BPETokenizer, ids: list[int]) -> list[int]:
    added = {token.id for token in tokenizer.added_tokens}
    return [id_ for id_ in ids if id_ in added]


def expected_control(tokenizer: BPETokenizer, name: str, n: int) -> list[int]:
    """The control tokens that the template itself gives n messages and the prompt."""
    harmless = [{"role": "user", "content": "x"}] * n
    return control_ids(tokenizer, tokenizer.apply_chat_template(harmless, name))


def assert_only_control_of_template(
    tokenizer: BPETokenizer, messages: list[dict[str, str]], name: str
) -> None:
    ids = tokenizer.apply_chat_template(messages, name)
    assert control_ids(tokenizer, ids) == expected_control(tokenizer, name, len(messages))
    for allowed in ("none", (), {"<|eot_id|>", "<|im_end|>"}):
        some = tokenizer.apply_chat_template(messages, name, allowed_special=allowed)
        wanted = {tokenizer.special_tokens[token] for token in allowed if allowed != "none"}
        template = expected_control(tokenizer, name, len(messages))
        special = tokenizer.special_tokens.values()
        assert [id_ for id_ in some if id_ in special] == [id_ for id_ in template if id_ in wanted]


@pytest.mark.parametrize("name", ["llama3", "chatml"])
@pytest.mark.parametrize("token", sorted(SPECIAL))
def test_a_special_token_in_content_is_text(tokenizer: BPETokenizer, token: str, name: str) -> None:
    for content in (token, token * 3, f"a{token}b", f"\n{token}\n", f" {token} "):
        messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "x"}]
        assert_only_control_of_template(tokenizer, messages, name)
        ids = tokenizer.apply_chat_template(messages, name)
        assert tokenizer.decode(ids) == tokenizer.apply_chat_template(
            messages, name, tokenize=False
        )
    role = [{"role": f"user{token}", "content": "x"}, {"role": token, "content": "x"}]
    if name == "chatml":  # llama3 refuses such roles
        assert_only_control_of_template(tokenizer, role, name)
    ids = tokenizer.apply_chat_template([], name, system_prompt=token)
    assert control_ids(tokenizer, ids) == expected_control(tokenizer, name, 1)


@pytest.mark.parametrize("name", ["llama3", "chatml"])
@pytest.mark.parametrize("token", ["<|eot_id|>", "<|im_start|>", "<|end_header_id|>"])
def test_a_special_token_split_over_messages_is_text(
    tokenizer: BPETokenizer, token: str, name: str
) -> None:
    for cut in range(1, len(token)):
        parts = [token[:cut], token[cut:]]
        messages = [{"role": "user", "content": part} for part in parts]
        assert_only_control_of_template(tokenizer, messages, name)
        if name == "chatml":  # llama3 refuses such roles
            role = [{"role": parts[0], "content": parts[1]}]
            assert_only_control_of_template(tokenizer, role, name)


def test_alpaca_has_no_control_tokens_and_content_adds_none(tokenizer: BPETokenizer) -> None:
    for token in SPECIAL:
        ids = tokenizer.apply_chat_template([{"role": "user", "content": token}], "alpaca")
        assert control_ids(tokenizer, ids) == []


HOSTILE = st.lists(
    st.sampled_from(
        [
            *SPECIAL,
            "<|",
            "|>",
            "eot_id",
            "<|im_",
            "<|é|>",
            "<|e\u0301|>",
            "\u0301",
            " ",
            "\n",
            "x",
            "<",
            ">",
        ]
    ),
    max_size=6,
).map("".join)


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(HOSTILE, HOSTILE), min_size=1, max_size=3),
    st.sampled_from(["llama3", "chatml"]),
    st.sampled_from(["plain", "normalized", "flags"]),
)
@example([("user", "<|e\u0301|>")], "chatml", "normalized")
@example([("user", "<")], "chatml", "normalized")
def test_no_content_becomes_a_control_token(
    pairs: list[tuple[str, str]], name: str, kind: str
) -> None:
    tokenizer = HOSTS[kind]
    messages = [{"role": role or "user", "content": content} for role, content in pairs]
    if name == "llama3":  # it refuses other roles
        messages = [{**message, "role": "user"} for message in messages]
    assert_only_control_of_template(tokenizer, messages, name)


def host_tokenizers() -> dict[str, BPETokenizer]:
    """Tokenizers whose added tokens do their worst: composed, greedy, overlapping."""
    plain, normalized, flags = (BPETokenizer() for _ in range(3))
    plain.add_special_tokens(SPECIAL)
    normalized.add_special_tokens(
        [AddedToken(token, id_, normalized=True) for token, id_ in SPECIAL.items()]
    )
    normalized.add_special_tokens([AddedToken("<|é|>", normalized=True), "<|é|>\u0301"])
    flags.add_special_tokens(
        [AddedToken(token, id_, lstrip=True, rstrip=True) for token, id_ in SPECIAL.items()]
    )
    flags.add_special_tokens(
        [
            AddedToken("x<|eot", special=False),
            AddedToken("|><|", special=False, normalized=True),
            AddedToken("<|im_start|>x", special=False),
            AddedToken("xé", special=False, normalized=True, single_word=True),
        ]
    )
    return {"plain": plain, "normalized": normalized, "flags": flags}


HOSTS = host_tokenizers()


def test_added_tokens_that_are_not_special_are_found_in_content_on_demand() -> None:
    tokenizer = HOSTS["flags"]
    messages = [{"role": "user", "content": "a x<|eot_id|>"}]
    mark, control = tokenizer.convert_tokens_to_ids(["x<|eot", "<|eot_id|>"])
    ids = tokenizer.apply_chat_template(messages, "chatml")
    assert mark not in ids and control not in ids
    ids = tokenizer.apply_chat_template(messages, "chatml", content_tokens="as-huggingface")
    assert mark in ids and control not in ids


def test_an_unknown_choice_of_content_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="content_tokens must be 'assistant' or 'as-huggingface'"):
        HOSTS["plain"].apply_chat_template([{"role": "user", "content": "a"}], content_tokens="all")


def test_disallowing_all_gives_the_ids_of_the_text(tokenizer: BPETokenizer) -> None:
    for name, content in itertools.product(PROMPTS, ["Hi", "<|eot_id|>", "e\u0301"]):
        messages = [{"role": "user", "content": content}]
        text = tokenizer.apply_chat_template(messages, name, tokenize=False)
        ids = tokenizer.apply_chat_template(messages, name, allowed_special="none")
        assert ids == tokenizer.encode(text)


def test_clean_content_gives_the_ids_of_the_text(tokenizer: BPETokenizer) -> None:
    for name in PROMPTS:
        whole = WHOLE.get(name, {})
        text = tokenizer.apply_chat_template(CONVERSATION, name, tokenize=False, **whole)
        ids = tokenizer.apply_chat_template(CONVERSATION, name, **whole)
        assert ids == tokenizer.encode(text, allowed_special="all")


# -- Bad messages -------------------------------------------------------------


@pytest.mark.parametrize(
    "messages",
    [
        "Hi",
        b"Hi",
        None,
        5,
        {"role": "user", "content": "Hi"},
        ["Hi"],
        [None],
        [("user", "Hi")],
        [{"role": "user"}],
        [{"content": "Hi"}],
        [{"role": "user", "content": None}],
        [{"role": 5, "content": "Hi"}],
        [{"role": "user", "content": ["Hi"]}],
        [{"role": "", "content": "Hi"}],
        [{"role": "user", "content": b"Hi"}],
    ],
)
@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_bad_messages_are_clear_errors(tokenizer: BPETokenizer, name: str, messages: Any) -> None:
    for tokenize in (True, False):
        with pytest.raises((TypeError, ValueError), match="messages"):
            tokenizer.apply_chat_template(messages, name, tokenize=tokenize)
    with pytest.raises((TypeError, ValueError), match="messages"):
        ChatTemplate.get_template(name)(messages)


def test_the_error_names_the_message(tokenizer: BPETokenizer) -> None:
    messages = [*CONVERSATION, {"role": "user", "content": None}]
    with pytest.raises(ValueError, match=r"messages\[4\]\['content'\]"):
        tokenizer.apply_chat_template(messages)


def test_a_system_prompt_of_a_wrong_type_is_refused(tokenizer: BPETokenizer) -> None:
    for prompt in (5, b"Be brief.", ["Be brief."]):
        with pytest.raises(TypeError, match="system_prompt"):
            tokenizer.apply_chat_template(CONVERSATION[1:], system_prompt=prompt)


@pytest.mark.parametrize("role", ["tool", "SYSTEM", "bot"])
def test_alpaca_refuses_roles_it_does_not_know(tokenizer: BPETokenizer, role: str) -> None:
    with pytest.raises(ValueError, match=role):
        ChatTemplate.alpaca([{"role": role, "content": "Hi"}])
    with pytest.raises(ValueError, match="system"):
        ChatTemplate.alpaca([*CONVERSATION, {"role": "system", "content": "Late."}])


def test_messages_are_not_changed(tokenizer: BPETokenizer) -> None:
    before = [dict(message) for message in CONVERSATION]
    tokenizer.apply_chat_template(CONVERSATION)
    assert before == CONVERSATION


@pytest.mark.parametrize("template", ["llama3", "chatml", ChatTemplate.chatml])
def test_a_tokenizer_without_the_control_tokens_only_renders(template: Any) -> None:
    tokenizer = BPETokenizer()
    text = tokenizer.apply_chat_template(CONVERSATION, template, tokenize=False)
    control = re.findall(r"<\|\w+\|>", text)
    for i, token in enumerate(dict.fromkeys(control)):
        with pytest.raises(ValueError, match=f"'{re.escape(token)}'.* add_special_tokens"):
            tokenizer.apply_chat_template(CONVERSATION, template)
        tokenizer.add_special_tokens([AddedToken(token, special=i % 2 == 0)])
    ids = tokenizer.apply_chat_template(CONVERSATION, template)
    assert tokenizer.decode(ids) == text
    assert sum(id_ > 255 for id_ in ids) == len(control)


def test_the_template_is_a_built_in_one_that_fits() -> None:
    tokenizer = BPETokenizer()
    text = tokenizer.apply_chat_template(CONVERSATION, tokenize=False)
    assert text == LLAMA3 + PROMPTS["llama3"][1]
    with pytest.raises(ValueError, match=r"no chat template.*llama3.*'<\|eot_id\|>'.*add_special"):
        tokenizer.apply_chat_template(CONVERSATION)
    for tokens, template in ((CHATML_SPECIAL_TOKENS, "chatml"), (LLAMA3_SPECIAL_TOKENS, "llama3")):
        tokenizer.add_special_tokens([each for each in tokens if each not in tokenizer.get_vocab()])
        for tokenize in (True, False):
            found = tokenizer.apply_chat_template(CONVERSATION, tokenize=tokenize)
            named = tokenizer.apply_chat_template(CONVERSATION, template, tokenize=tokenize)
            assert found == named


def test_alpaca_needs_no_tokens() -> None:
    tokenizer = BPETokenizer()
    for talk, whole in ((CONVERSATION[:2], {}), (CONVERSATION, WHOLE["alpaca"])):
        ids = tokenizer.apply_chat_template(talk, "alpaca", **whole)
        assert tokenizer.decode(ids) == ChatTemplate.alpaca(talk, **whole)


def test_whoever_wants_control_tokens_as_text_says_so() -> None:
    tokenizer = BPETokenizer()
    for allowed in ("none", ()):
        ids = tokenizer.apply_chat_template(CONVERSATION, "chatml", allowed_special=allowed)
        assert tokenizer.decode(ids) == ChatTemplate.chatml(CONVERSATION)


class Role(str, Enum):  # noqa: UP042 - StrEnum came with Python 3.11
    USER = "user"
    ASSISTANT = "assistant"


@pytest.mark.parametrize("template", ["llama3", "chatml", "alpaca"])
def test_a_role_may_be_a_member_of_an_enum(template: str) -> None:
    talk: Any = [{"role": Role.USER, "content": "Hi"}, {"role": Role.ASSISTANT, "content": "Ho"}]
    plain = [{**message, "role": message["role"].value} for message in talk]
    options: dict[str, Any] = {"tokenize": False, **WHOLE.get(template, {})}
    written = BPETokenizer().apply_chat_template(talk, template, **options)
    assert written == BPETokenizer().apply_chat_template(plain, template, **options)
    assert "Role" not in written and "USER" not in written
