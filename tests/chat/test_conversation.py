"""Conversations: token in, token out; and answers of real models in them."""

from __future__ import annotations

import gc
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import BPETokenizer, InferenceBackend
from bpe_tokenizer_tools import backends, core
from bpe_tokenizer_tools.backends import checks
from bpe_tokenizer_tools.chat.conversation import Conversation, Turn
from bpe_tokenizer_tools.chat.session import Session

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|begin_of_text|>"]
SPECIAL += ["<|start_header_id|>", "<|end_header_id|>", "<s>", "</s>"]
SPECIAL += ["<start_of_turn>", "<end_of_turn>"]


def tokenizer() -> BPETokenizer:
    made = BPETokenizer("llama3").train("the answer to the question " * 20, 300, verbose=False)
    made.add_special_tokens(SPECIAL)
    return made


TOKENIZER = tokenizer()
END = TOKENIZER.special_tokens["<|im_end|>"]
DROPS_THOUGHTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% set said = m.content %}"
    "{% if m.role == 'assistant' and not loop.last %}{% set said = said.split('</think>')[-1] %}"
    "{% endif %}{{ said }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def odd_ids(text: str) -> list[int]:
    """Encode as a model may generate: not as the tokenizer would."""
    return [id_ for char in text for id_ in TOKENIZER.encode(char)]


# -- Token in, token out -------------------------------------------------------

ANSWERS = st.text(st.sampled_from("the anser\n é世<|>"), max_size=12)
STOPS = st.sampled_from(["<|im_end|>", "<|eot_id|>", "<|endoftext|>", "</s>", "<end_of_turn>", ""])


def like_gemma(
    messages: list[dict[str, Any]], add_generation_prompt: bool, **rest: Any
) -> Iterator[tuple[str, bool]]:
    yield "<s>", True
    for message in messages:
        role = "model" if message["role"] == "assistant" else message["role"]
        yield f"<start_of_turn>{role}\n", True
        yield message["content"].strip(), False
        yield "<end_of_turn>\n", True
    yield "<start_of_turn>model\n" * add_generation_prompt, True


@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(ANSWERS, ANSWERS, STOPS), min_size=1, max_size=4),
    st.sampled_from(["llama3", "chatml", "alpaca", like_gemma]),
)
@example([("q", " the ", "<|im_end|>"), ("q", "\n", "")], "llama3")
@example([("q", "", ""), ("q", "", "<|eot_id|>")], "chatml")
@example([("q", "the\n", "</s>"), ("q", "the", "<end_of_turn>")], like_gemma)
def test_old_ids_are_the_beginning_of_new_ones(
    turns: list[tuple[str, str, str]], template: Any
) -> None:
    talk = Conversation(TOKENIZER, template, "Be brief.")
    for question, answer, stop in turns:
        talk.add("user", question)
        prompt = talk.prompt()
        assert talk.ids == prompt and sum(turn.tokens for turn in talk.turns) == len(prompt)
        new = odd_ids(answer) + TOKENIZER.encode(stop, allowed_special="all")
        assert talk.answer(new) == answer
        assert talk.ids == prompt + new
        assert sum(turn.tokens for turn in talk.turns) == len(talk.ids)
        seen = talk.ids
        talk.add("user", "then?")
        following = talk.prompt()
        kept = len(seen) - bool(stop)  # a stop token that is not the template's is not kept
        assert following[:kept] == seen[:kept]
        assert sum(turn.tokens for turn in talk.turns) == len(following)
        assert not talk.rewrites
        text = talk._render(talk.messages, True)
        assert TOKENIZER.decode(following).replace(stop or "\0", "") or text
        talk.undo()


def test_the_ids_decode_to_what_the_template_renders() -> None:
    talk = Conversation(TOKENIZER, "chatml", "Be brief.")
    for i in range(3):
        talk.add("user", f"question {i}")
        talk.prompt()
        talk.answer([*odd_ids(f"answer {i}"), END])
    talk.add("user", "the end <|im_end|>")
    ids = talk.prompt()
    expected = TOKENIZER.apply_chat_template(talk.messages, "chatml", tokenize=False)
    assert TOKENIZER.decode(ids) == expected
    assert ids != TOKENIZER.apply_chat_template(talk.messages, "chatml")  # but as generated
    assert [turn.role for turn in talk.turns] == ["system"] + ["user", "assistant"] * 4
    control = [id_ for id_ in ids if id_ in TOKENIZER.special_tokens.values()]
    clean = TOKENIZER.apply_chat_template([{"role": "user", "content": "x"}] * 8, "chatml")
    assert len(control) == len([i for i in clean if i in TOKENIZER.special_tokens.values()])


def test_turns_count_what_was_added_for_them() -> None:
    talk = Conversation(TOKENIZER, "chatml")
    talk.extend([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}])
    talk.prompt()

    def count(text: str) -> int:
        return len(TOKENIZER.encode(text, allowed_special="all"))

    whole = ["<|im_start|>system\na", "<|im_end|>\n<|im_start|>user\nb"]
    whole += ["<|im_end|>\n<|im_start|>assistant\n"]
    roles = ["system", "user", "assistant"]
    assert talk.turns == list(map(Turn, roles, map(count, whole)))
    talk.answer([*TOKENIZER.encode("yes"), END])
    assert talk.turns[2].tokens == count(whole[2] + "yes<|im_end|>")


def test_a_template_that_rewrites_the_past_is_told() -> None:
    need("jinja2")
    talk = Conversation(TOKENIZER, DROPS_THOUGHTS)
    talk.add("user", "question")
    prompt = talk.prompt()
    talk.answer([*odd_ids("<think>hm</think>yes"), END])
    talk.add("user", "and?")
    following = talk.prompt()
    assert following == TOKENIZER.apply_chat_template(talk.messages, DROPS_THOUGHTS)
    (rewrite,) = talk.rewrites
    assert rewrite.kept == len(prompt)
    assert rewrite.before.startswith("<think>hm") and rewrite.after.startswith("yes<|im_end|>")
    assert sum(turn.tokens for turn in talk.turns) == len(following)
    talk.answer([*odd_ids("no"), END])
    talk.add("user", "?")
    assert talk.prompt()[: len(following)] == following
    assert len(talk.rewrites) == 1


def test_tool_results_follow_what_was_generated() -> None:
    need("jinja2")
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    talk = Conversation(TOKENIZER, template)
    talk.add("user", "weather?")
    prompt = talk.prompt()
    generated = [*odd_ids('<call>{"name": "get", "arguments": {}}</call>'), END]
    calls = [{"function": {"name": "get", "arguments": {}}}]
    talk.answer(generated, content="", tool_calls=calls)
    talk.add("tool", "sunny")
    assert talk.prompt()[: len(prompt) + len(generated)] == prompt + generated
    assert not talk.rewrites


@pytest.mark.parametrize("heal", [False, True])
@pytest.mark.parametrize("template", ["llama3", "chatml", "alpaca", like_gemma])
def test_a_message_is_continued(template: Any, heal: bool) -> None:
    if heal:
        need("numpy")

    @settings(max_examples=examples(60))
    @given(ANSWERS, ANSWERS, st.booleans(), STOPS)
    @example("the ans", "er", False, "")
    @example("the ", " then", True, "<|im_end|>")
    @example("", " a", False, "")
    def check(begun: str, rest: str, own: bool, stop: str) -> None:
        talk = Conversation(TOKENIZER, template)
        talk.add("user", "question")
        if own:
            talk.prompt()
            talk.answer(odd_ids(begun) + TOKENIZER.encode(stop, allowed_special="all"))
        else:
            talk.add("assistant", begun)
        before = talk.prompt(continue_final_message=True)
        continued: dict[str, Any] = {"continue_final_message": True}
        if not own:
            assert before == TOKENIZER.apply_chat_template(talk.messages, template, **continued)
        text = TOKENIZER.apply_chat_template(talk.messages, template, tokenize=False, **continued)
        tree = talk.heal() if heal else None
        prompt, lead = (tree.ids, tree.prefix.decode()) if tree else (before, "")
        assert talk.ids == prompt
        new = odd_ids(lead + rest)
        assert talk.answer(new) == rest
        assert talk.ids == prompt + new
        assert sum(turn.tokens for turn in talk.turns) == len(talk.ids)
        assert [turn.role for turn in talk.turns] == ["user", "assistant"]
        assert [message["role"] for message in talk.messages] == ["user", "assistant"]
        assert (
            talk.messages[-1]["content"]
            == (begun if text.endswith(begun) else begun.rstrip()) + rest
        )
        talk.add("user", "then?")
        following = talk.prompt()
        if begun.strip():  # else the template may have stripped its own white space before it
            assert following[: len(prompt) + len(new)] == prompt + new
            assert not talk.rewrites

    check()


def test_the_last_part_of_a_message_is_continued() -> None:
    def in_parts(messages: list[Any], *rest: Any, **options: Any) -> Iterator[tuple[str, bool]]:
        for message in messages:
            yield from ((part["text"], False) for part in message["content"] if "text" in part)
            yield "</s>", True

    talk = Conversation(TOKENIZER, in_parts)
    image = {"type": "image"}
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, image]
    talk.add("assistant", parts)
    assert TOKENIZER.decode(talk.prompt(continue_final_message=True)) == "ab"
    talk.answer(TOKENIZER.encode("c"))
    expected = [{"type": "text", "text": "a"}, {"type": "text", "text": "bc"}, image]
    assert talk.messages == [{"role": "assistant", "content": expected}]
    assert parts[1]["text"] == "b"


def test_what_cannot_be_continued() -> None:
    talk = Conversation(TOKENIZER, "chatml")
    with pytest.raises(ValueError, match="there is none"):
        talk.prompt(continue_final_message=True)
    talk.add("user", "question")
    with pytest.raises(ValueError, match="the last one has the role 'user'"):
        talk.prompt(continue_final_message=True)
    with pytest.raises(RuntimeError, match="call prompt"):
        talk.heal()
    talk.add("assistant", None)
    with pytest.raises(ValueError, match="no 'content' to continue"):
        talk.prompt(continue_final_message=True)
    assert len(talk.messages) == 2 and not talk.ids


def test_undo_and_reset() -> None:
    talk = Conversation(TOKENIZER, "chatml", "Be brief.")
    talk.add("user", "one")
    first = talk.prompt()
    talk.answer([*TOKENIZER.encode("1"), END])
    talk.add("user", "two")
    talk.prompt()
    assert [message["content"] for message in talk.undo()] == ["two"]
    assert [message["content"] for message in talk.undo()] == ["one", "1"]
    assert talk.undo() == []
    talk.add("user", "one")
    assert talk.prompt() == first
    talk.reset()
    assert [message["role"] for message in talk.messages] == ["system"] and talk.ids == []


def test_a_prompt_that_was_not_answered_is_forgotten() -> None:
    talk = Conversation(TOKENIZER, "chatml")
    talk.add("user", "one")
    first = talk.prompt()
    assert talk.prompt() == first and len(talk.turns) == 2
    talk.add("user", "two")
    assert talk.prompt() == TOKENIZER.apply_chat_template(talk.messages, "chatml")
    assert [turn.role for turn in talk.turns] == ["user", "user", "assistant"]
    assert not talk.rewrites


def test_undo_keeps_older_ids_as_they_were_generated() -> None:
    talk = Conversation(TOKENIZER, "chatml")
    talk.add("user", "one")
    first = [*talk.prompt(), *odd_ids("the answer"), END]
    talk.answer([*odd_ids("the answer"), END])
    talk.add("user", "two")
    talk.prompt()
    talk.answer([*odd_ids("no"), END])
    talk.undo()
    assert talk.ids == first
    talk.add("user", "three")
    talk.prompt()
    talk.undo()
    assert talk.ids == first and len(talk.turns) == 2
    talk.add("user", "four")
    assert talk.prompt()[: len(first)] == first


def test_answers_without_a_question_are_refused() -> None:
    talk = Conversation(TOKENIZER, "chatml")
    with pytest.raises(RuntimeError, match="prompt"):
        talk.answer([1])
    talk.add("user", "x")
    talk.prompt()
    talk.answer([1])
    with pytest.raises(RuntimeError, match="prompt"):
        talk.answer([1])
    with pytest.raises(ValueError, match="role"):
        talk.add("")


def test_other_tokenizers_keep_their_ids_too(sentencepiece_tokenizer: BPETokenizer) -> None:
    made = sentencepiece_tokenizer
    talk = Conversation(made, "alpaca")
    for answer in ("the answer", " no "):
        talk.add("user", "question")
        prompt = talk.prompt()
        new = made.encode(answer)
        talk.answer(new)
        talk.add("user", "and")
        assert talk.prompt()[: len(prompt) + len(new)] == prompt + new
        talk.undo()


@pytest.fixture
def sentencepiece_tokenizer(tmp_path: Path) -> BPETokenizer:
    library = need("sentencepiece")
    text = tmp_path / "text.txt"
    text.write_text("the answer to the question and no\n" * 50, encoding="utf-8")
    library.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(tmp_path / "m"),
        vocab_size=310,
        model_type="bpe",
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return BPETokenizer.from_file(tmp_path / "m.model")


# -- Thoughts --------------------------------------------------------------------


class Real:
    """A conversation with the template of a real model, and its control tokens."""

    def __init__(self, folder: Path, name: str, **variables: Any) -> None:
        need("jinja2")
        source = (folder / "models" / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
        marks = {*re.findall(r"<\|\w+\|>", source), "<|open|>", "<|close|>", "<|sep|>"}
        self.tokenizer = BPETokenizer()
        self.tokenizer.add_special_tokens(sorted(marks))
        self.talk = Conversation(self.tokenizer, source, **variables)

    def prompt(self, text: str, role: str = "user") -> list[int]:
        self.talk.add(role, text)
        return self.talk.prompt()

    def answer(self, text: str, **fields: Any) -> dict[str, Any]:
        said = self.talk.answer(self.tokenizer.encode(text, allowed_special="all"), **fields)
        message = self.talk.messages[-1]
        assert message["role"] == "assistant" and message["content"] == said
        return {key: value for key, value in message.items() if key != "role"}


GPT_OSS, QWEN3, KIMI = "openai-gpt-oss-120b", "Qwen-Qwen3-0.6B", "Kimi-K3"
ANALYSIS, NEXT = "<|channel|>analysis<|message|>", "<|end|><|start|>assistant"
FINAL, COMMENTARY = "<|channel|>final<|message|>", "<|channel|>commentary"
THOUGHTS = [
    (GPT_OSS, f"{ANALYSIS}hm{NEXT}{FINAL}Hello.<|return|>", "Hello.", "hm"),
    (GPT_OSS, f"{ANALYSIS}a{NEXT}{ANALYSIS}b{NEXT}{FINAL} Hello.\n", " Hello.\n", "a\nb"),
    (GPT_OSS, f"{ANALYSIS}a{NEXT}{COMMENTARY}<|message|>I{NEXT}{FINAL}He", "He", "a"),
    (GPT_OSS, f"{COMMENTARY}<|message|>I{NEXT}{FINAL}He<|return|>", "He", None),
    (GPT_OSS, f"{FINAL} Hello.<|return|>", " Hello.", None),
    (GPT_OSS, f"{ANALYSIS}hm, cut o", "", "hm, cut o"),
    (GPT_OSS, f"{ANALYSIS}a{NEXT}{ANALYSIS}cut o", "", "a\ncut o"),
    (GPT_OSS, f"{ANALYSIS}hm{NEXT}{COMMENTARY} to=functions.f<|message|>{{}}<|call|>", "{}", "hm"),
    (GPT_OSS, "Hello.<|return|>", "Hello.", None),
    (QWEN3, "<think>\nhm\n</think>\n\nHello.<|im_end|>", "Hello.", "hm"),
    (QWEN3, "<think>hm</think>Hello.<|im_end|>", "Hello.", "hm"),
    (QWEN3, "<think>\n\n</think>\n\nHello.<|im_end|>", "Hello.", None),
    (QWEN3, "<think>\nhm, cut o", "", "hm, cut o"),
    (QWEN3, "It is <think> and </think>.<|im_end|>", "It is <think> and </think>.", None),
    (QWEN3, "<think>a</think>A </think> b", "A </think> b", "a"),
    (QWEN3, "Hello.", "Hello.", None),
    ("Qwen3.5-4B", "hm\n</think>\n\nHello.<|im_end|>", "Hello.", "hm"),
    ("Qwen3.5-4B", "hm, cut o", "", "hm, cut o"),
    ("GLM-4.6", "\n<think>hm</think>\nHello.<|user|>", "Hello.", "hm"),
    (
        KIMI,
        "hm<|close|>think<|sep|><|open|>response<|sep|>Hello.<|close|>response<|sep|>"
        "<|close|>message<|sep|><|end_of_msg|>",
        "Hello.",
        "hm",
    ),
    (KIMI, "hm, cut o", "", "hm, cut o"),
    ("Qwen-Qwen2.5-7B-Instruct", "<think>hm</think>Hello.", "<think>hm</think>Hello.", None),
]


@pytest.mark.parametrize(("name", "generated", "content", "thoughts"), THOUGHTS)
def test_thoughts_are_kept_apart_where_the_template_has_a_place_for_them(
    name: str, generated: str, content: str, thoughts: str | None, llama_cpp_source: Path
) -> None:
    real = Real(llama_cpp_source, name)
    prompt = real.prompt("Hi")
    expected = {"content": content} | ({"reasoning_content": thoughts} if thoughts else {})
    assert real.answer(generated) == expected
    talk, seen = real.talk, real.talk.ids
    assert seen == prompt + real.tokenizer.encode(generated, allowed_special="all")
    following = real.prompt("Bye")  # which gpt-oss would refuse, if content held its headers
    assert sum(turn.tokens for turn in talk.turns) == len(following)
    text = real.tokenizer.decode(following)
    assert text == "".join(talk._render(talk.messages, True))
    stop = seen[-1] in real.tokenizer.special_tokens.values()
    as_before = following[: len(seen) - stop] == seen[: len(seen) - stop]
    assert as_before != bool(talk.rewrites)  # either one or the other


def test_an_answer_without_thoughts_goes_on_as_generated(llama_cpp_source: Path) -> None:
    for name, generated in ((GPT_OSS, f"{FINAL}Hello.<|return|>"), (QWEN3, "Hello.<|im_end|>")):
        real = Real(llama_cpp_source, name)
        for question in ("Hi", "Bye", "Again"):
            seen = real.talk.ids
            seen = seen[:-1] if name == GPT_OSS else seen  # <|return|> becomes <|end|>
            assert real.prompt(question)[: len(seen)] == seen
            assert real.answer(generated) == {"content": "Hello."}
        assert not real.talk.rewrites and seen


def test_thoughts_stay_until_a_tool_has_answered(llama_cpp_source: Path) -> None:
    real = Real(llama_cpp_source, QWEN3)
    real.prompt("weather?")
    call = '<tool_call>\n{"name": "get", "arguments": {"in": "Rome"}}\n</tool_call>'
    calls = [{"function": {"name": "get", "arguments": {"in": "Rome"}}}]
    generated = f"<think>\nask\n</think>\n\n{call}<|im_end|>"
    expected = {"content": "", "tool_calls": calls, "reasoning_content": "ask"}
    assert real.answer(generated, content="", tool_calls=calls) == expected
    seen = real.talk.ids
    assert real.prompt("sunny", "tool")[: len(seen)] == seen and not real.talk.rewrites


def test_given_thoughts_are_not_replaced(llama_cpp_source: Path) -> None:
    real = Real(llama_cpp_source, GPT_OSS)
    real.prompt("Hi")
    message = real.answer(f"{ANALYSIS}hm{NEXT}{FINAL}Hello.", content="Ha.", thinking="mine")
    assert message == {"content": "Ha.", "thinking": "mine"}


def test_an_answer_cut_off_within_a_token_says_all_that_was_said() -> None:
    talk = Conversation(TOKENIZER, "chatml")
    talk.add("user", "question")
    seen = [*talk.prompt(), *odd_ids("the")]
    assert talk.answer(odd_ids("the"), rest=" ans") == "the ans"
    talk.add("user", "and?")
    following = talk.prompt()
    assert following[: len(seen)] == seen and not talk.rewrites
    assert TOKENIZER.decode(following[len(seen) :]).startswith(" ans<|im_end|>")


# -- Where an answer stops ---------------------------------------------------------

LETTERS = st.text("ab", min_size=1, max_size=4)


@settings(max_examples=examples(500))
@given(st.lists(st.text("abc", max_size=3), max_size=8), st.lists(LETTERS, max_size=3))
@example(["ba", "aba"], ["a", "baa"])
@example(["a", "b", "c"], ["abcd", "b"])
@example(["a", "b"], ["abcd", "b"])
def test_an_answer_is_cut_where_the_first_stop_begins(pieces: list[str], stops: list[str]) -> None:
    text, stopped = "".join(pieces), list[bool]()
    places = [text.find(stop) for stop in stops if stop in text]
    given = list(core.until(pieces, stops, lambda: stopped.append(True)))
    assert "".join(given) == text[: min(places, default=len(text))] and "" not in given
    assert stopped == [True] * bool(places)


def test_only_what_may_be_the_beginning_of_a_stop_waits() -> None:
    given: list[str] = []
    for piece in core.until(map(str, "xabyaabab"), ["abab"]):
        given.append(piece)
    assert given == ["x", "aby", "a"]


# -- With a model --------------------------------------------------------------

NAMES = ["llama.cpp", "transformers"]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    need("llama_cpp")
    need("transformers")
    need("jinja2")
    folder = tmp_path_factory.mktemp("chat")
    made = tiny_models.model(False)
    yield {
        "llama.cpp": tiny_models.write_gguf(folder / "model.gguf", made),
        "transformers": tiny_models.write_safetensors(folder / "safetensors", made),
    }
    backends.unload()


def answer(session: Session, text: str, **options: Any) -> str:
    return "".join(session.reply(text, temperature=0, **options))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_model_says_is_its_ids_decoded(models: dict[str, Path], name: str) -> None:
    session = Session(models[name], template="alpaca")
    assert session.tokenizer.get_vocab() == tiny_models.tokenizer().get_vocab()
    said = answer(session, "the question", max_new_tokens=20)
    prompt = session.tokenizer.apply_chat_template(
        [{"role": "user", "content": "the question"}], "alpaca"
    )
    ids, _ = tiny_models.model(False).greedy(prompt, 20, tiny_models.TOKENS)
    ids = ids[: ids.index(tiny_models.EOS) + 1] if tiny_models.EOS in ids else ids
    assert session.conversation.ids == prompt + ids
    assert said == session.tokenizer.decode(ids, skip_special_tokens=True)
    last = session.last
    assert (last.prompt_tokens, last.new_tokens, last.text) == (len(prompt), len(ids), said)
    assert last.finish == ("stop" if ids[-1] == tiny_models.EOS else "length")
    again = answer(session, "and then", max_new_tokens=5)
    assert session.conversation.ids[: len(prompt) + len(ids) - 1] == (prompt + ids)[:-1]
    assert session.conversation.messages[-1] == {"role": "assistant", "content": again}


@pytest.mark.parametrize("name", NAMES)
def test_the_method_of_the_tokenizer_does_the_same(models: dict[str, Path], name: str) -> None:
    messages = [{"role": "user", "content": "the question"}]
    options: dict[str, Any] = {"template": "alpaca", "temperature": 0, "max_new_tokens": 20}
    whole = tiny_models.tokenizer().chat(messages, models[name], **options)
    assert whole == answer(
        Session(models[name], template="alpaca"), "the question", max_new_tokens=20
    )
    pieces = tiny_models.tokenizer().chat(messages, models[name], stream=True, **options)
    pieces = list(pieces)
    assert len(pieces) > 3 and "".join(pieces) == whole
    seeded = {**options, "temperature": 1.5, "seed": 7, "top_k": 40, "top_p": 0.95}
    system = {"role": "system", "content": "the rules"}
    given = tiny_models.tokenizer().chat([system, *messages], models[name], **options)
    for prompt, asked in (("the rules", messages), ("others", [system, *messages])):
        made = tiny_models.tokenizer().chat(asked, models[name], system_prompt=prompt, **options)
        assert made == given
    assert whole == tiny_models.tokenizer().chat(
        messages, models[name], system_prompt="", **options
    )
    first, second = (tiny_models.tokenizer().chat(messages, models[name], **seeded) for _ in "ab")
    other = tiny_models.tokenizer().chat(messages, models[name], **{**seeded, "seed": 8})
    assert first == second != other


def test_a_chosen_backend_that_cannot_read_the_model_is_refused(models: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="llama.cpp can"):
        tiny_models.tokenizer().chat(
            [], models["llama.cpp"], backend=InferenceBackend.HUGGINGFACE_TRANSFORMERS
        )


def test_a_tokenizer_that_does_not_fit_is_refused_before_loading(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "open_model", None)
    for path in models.values():
        with pytest.raises(
            ValueError, match="does not fit the model.*differ.*load the model's own"
        ):
            TOKENIZER.chat([{"role": "user", "content": "x"}], path)


def test_a_stopped_answer_is_kept_and_the_next_one_right(models: dict[str, Path]) -> None:
    session = Session(models["llama.cpp"], template="alpaca")
    reply = session.reply("the question", max_new_tokens=100, temperature=0)
    begun = "".join(itertools.islice(reply, 3))
    reply.close()  # type: ignore[attr-defined]
    assert session.last.finish == "cancelled" and session.last.text == begun
    new = session.conversation.ids[session.last.prompt_tokens :]
    assert session.tokenizer.decode(new, skip_special_tokens=True) == begun
    assert session.conversation.messages[-1] == {"role": "assistant", "content": begun}
    session.conversation.undo()
    whole = answer(session, "the question", max_new_tokens=30)
    fresh = Session(models["llama.cpp"], template="alpaca")
    assert whole == answer(fresh, "the question", max_new_tokens=30)


def test_strings_stop_an_answer(models: dict[str, Path]) -> None:
    session = Session(models["llama.cpp"], template="alpaca")
    whole = answer(session, "the question", max_new_tokens=40)
    generated = session.conversation.ids
    for stop in (whole[5:8], whole[10:11], whole[3:9]):
        session.conversation.reset()
        said = answer(session, "the question", max_new_tokens=40, stop=["\0never", stop])
        assert said == whole[: whole.index(stop)] == session.last.text
        assert session.last.finish == "stop"
        assert session.conversation.messages[-1]["content"] == said
        talk, seen = session.conversation, session.conversation.ids
        assert sum(turn.tokens for turn in talk.turns) == len(seen)
        assert len(seen) < session.last.prompt_tokens + session.last.new_tokens
        kept = len(seen) - session.last.prompt_tokens
        assert seen == generated[: len(seen)]
        one_more = generated[session.last.prompt_tokens :][: kept + 1]
        texts = [session.tokenizer.decode(ids, True) for ids in (one_more[:-1], one_more)]
        assert [said.startswith(text) for text in texts] == [True, False]
        answer(session, "and then", max_new_tokens=3)
        assert talk.ids[: len(seen)] == seen and not talk.rewrites


def test_an_answer_may_stop_before_it_has_begun(models: dict[str, Path]) -> None:
    session = Session(models["llama.cpp"], template="alpaca")
    whole = answer(session, "the question", max_new_tokens=40)
    session.conversation.reset()
    assert answer(session, "the question", stop=whole[:7]) == ""
    assert session.conversation.messages[1:] == [{"role": "assistant", "content": ""}]
    assert len(session.conversation.ids) == session.last.prompt_tokens


def roles(session: Session) -> list[str]:
    return [message["role"] for message in session.conversation.messages]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_model_that_fails_leaves_the_conversation_as_it_was(
    models: dict[str, Path], name: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(models[name], template="alpaca")
    answer(session, "the question", max_new_tokens=5)
    talk = session.conversation
    before = (list(talk.messages), talk.ids, talk.turns)
    calls, feed = [], session.model._feed

    def broken(ids: list[int]) -> Any:
        calls.append(ids)
        if len(calls) > after:
            raise ValueError("out of memory")
        return feed(ids)

    monkeypatch.setattr(session.model, "_feed", broken)
    given = []
    with pytest.raises(RuntimeError, match="out of memory"):
        for piece in session.reply("and then", temperature=0):
            given.append(piece)
    assert (talk.messages, talk.ids, talk.turns) == before
    assert session.last.finish == "error" and session.last.text == "".join(given)
    assert session.last.new_tokens == after
    talk.add("user", "asked by hand")
    with pytest.raises(RuntimeError, match="out of memory"):
        list(session.reply(temperature=0))
    assert (talk.messages[:-1], talk.ids, talk.turns) == before  # only what it added is gone
    assert talk.messages[-1]["content"] == "asked by hand"
    monkeypatch.undo()
    answer(session, "now", max_new_tokens=3)
    assert roles(session) == ["user", "assistant", "user", "user", "assistant"]


def test_an_answer_that_nobody_began_to_read_is_no_answer(models: dict[str, Path]) -> None:
    session = Session(models["llama.cpp"], template="alpaca")
    first = session.reply("one")
    assert roles(session) == ["user"]
    first.close()  # type: ignore[attr-defined]
    assert roles(session) == [] and session.conversation.ids == []
    session.reply("two")
    gc.collect()
    assert roles(session) == []
    waiting = session.reply("three")
    answer(session, "four", max_new_tokens=3)
    assert [m["content"] for m in session.conversation.messages][:-1] == ["four"]
    assert list(waiting) == [] and roles(session) == ["user", "assistant"]


def test_another_question_ends_an_answer(models: dict[str, Path]) -> None:
    session = Session(models["llama.cpp"], template="alpaca")
    first = session.reply("one", temperature=0)
    begun = next(first)
    said = answer(session, "two", max_new_tokens=3)
    contents = [message["content"] for message in session.conversation.messages]
    assert contents == ["one", begun, "two", said]
    assert list(first) == []
    assert contents == [message["content"] for message in session.conversation.messages]


def test_a_conversation_that_was_changed_meanwhile_is_left_alone(models: dict[str, Path]) -> None:
    session = Session(models["llama.cpp"], template="alpaca")
    answer(session, "one", max_new_tokens=3)
    for begin in (0, 1):
        reply = session.reply("two", temperature=0)
        for _ in range(begin):
            next(reply)
        session.conversation.undo()
        reply.close()  # type: ignore[attr-defined]
        assert roles(session) == ["user", "assistant"]


def test_a_full_context_says_so_and_takes_the_question_back(models: dict[str, Path]) -> None:
    session = Session(models["llama.cpp"], template="alpaca", n_ctx=128)
    with pytest.raises(ValueError, match="leaves no room"):
        session.reply("the question " * 40)
    assert session.conversation.messages == []
    assert session.last.new_tokens == 0
    answer(session, "the", max_new_tokens=1000)
    assert len(session.conversation.ids) <= 128


@pytest.mark.parametrize("stop", ["", [""], [5]])
def test_wrong_stops_are_refused(models: dict[str, Path], stop: Any) -> None:
    session = Session(models["llama.cpp"], template="alpaca")
    with pytest.raises(ValueError, match="stop must be"):
        session.reply("x", stop=stop)
    assert session.conversation.messages == []


@pytest.mark.parametrize("stop", [5, None])
def test_stops_are_a_string_or_several(stop: Any) -> None:
    with pytest.raises(TypeError, match=f"stop must be a string or several, got {stop}"):
        checks.stop_texts(stop)


def test_a_model_without_a_tokenizer_needs_one(tmp_path: Path) -> None:
    need("transformers")
    need("torch")
    made = tiny_models.model(False)
    folder = tiny_models.write_safetensors(tmp_path / "m", made, with_tokenizer=False)
    with pytest.raises(ValueError, match="has no tokenizer"):
        Session(folder)
    session = Session(folder, tiny_models.tokenizer(), template="alpaca")
    assert answer(session, "x", max_new_tokens=3) == session.last.text
    backends.unload()


def test_a_model_without_a_template_needs_one(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "open_model", None)  # refused before loading
    with pytest.raises(ValueError, match=r"no chat template.*llama3.*<\|eot_id\|>.*add"):
        Session(models["llama.cpp"])
    chatml = "{{ '<|im_start|>user\n' }}{{ messages[0].content }}<|im_end|>"
    for template in ("chatml", chatml):
        with pytest.raises(ValueError, match=r"writes '<\|im_start\|>', '<\|im_end\|>'"):
            Session(models["llama.cpp"], template=template)
    with pytest.raises(TypeError, match="pass only one"):
        Session(models["llama.cpp"], template="alpaca", chat_template="alpaca")


def test_a_template_is_chosen_by_the_control_tokens_that_a_tokenizer_has() -> None:
    made = BPETokenizer()
    talk = Conversation(made)
    talk.add("user", "Hi")
    with pytest.raises(ValueError, match=r"no chat template.*llama3.*<\|eot_id\|>.*add"):
        talk.prompt()
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    talk = Conversation(made)
    talk.add("user", "Hi")
    assert made.decode(talk.prompt()) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_is_chosen_by_its_name_and_for_tools() -> None:
    made = BPETokenizer()
    made.chat_templates = {"default": "D{{ messages | length }}", "tool_use": "T", "rag": "R"}
    options: list[dict[str, Any]] = [{}, {"tools": []}, {"template": "rag"}]
    found = []
    for variables in [*options, {"chat_template": "rag"}]:
        talk = Conversation(made, **variables)
        talk.add("user", "Hi")
        found.append(made.decode(talk.prompt()))
    assert found == ["D1", "T", "R", "R"]
    with pytest.raises(ValueError, match="default, tool_use, rag, llama3"):
        Conversation(made, "other")
