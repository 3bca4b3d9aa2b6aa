"""examples/make_tiny_chat_model.py: a model made in four forms, that all answer alike."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_models  # noqa: F401  (it puts examples/ on the path)
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools import backends, commands
from bpe_tokenizer_tools.backends import fit

import make_tiny_chat_model as tiny  # isort: skip

pytestmark = pytest.mark.slow
PACKAGES = {
    "transformers": ("torch", "transformers", "jinja2"),
    "llama.cpp": ("llama_cpp", "gguf", "jinja2"),
    "openvino": ("openvino", "jinja2"),
    "mlx": ("mlx_lm", "jinja2"),
}
FORMS = {form.backend: name for name, form in tiny.FORMS.items()}
FEW = """\
Q: What is a token?
Q: What are tokens?
A: A token is a piece of text.
More: A word or a part of one.

Q: Who are you?
A: I am a model of an "example" – and <|im_end|> is text here.

Q: Hello
A: Hi! 🙂
"""
ENTRIES = tiny.read_entries(tiny.QUESTIONS)


# -- The questions --------------------------------------------------------------


def test_questions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    path.write_text(FEW, encoding="utf-8")
    first, second, third = tiny.read_entries(path)
    assert first == tiny.Entry(
        ("What is a token?", "What are tokens?"),
        "A token is a piece of text.",
        "A word or a part of one.",
    )
    assert second.answer.startswith("I am") and second.more == third.more == tiny.NO_MORE
    assert [turn.question for turn in tiny.all_turns([first, third])] == [
        "What is a token?",
        "What are tokens?",
        "Hello",
    ]


def test_a_question_has_one_answer() -> None:
    questions = [q.lower().rstrip("?.") for entry in ENTRIES for q in entry.questions]
    assert len(set(questions)) == len(questions) > 400
    assert len({entry.answer for entry in ENTRIES}) == len(ENTRIES) > 200
    assert all(entry.questions and entry.answer[-1] in ".!:?" for entry in ENTRIES)


def test_answers_name_what_there_is() -> None:
    """Commands, options and methods that answers name exist."""
    text = " ".join(f"{' '.join(e.questions)} {e.answer} {e.more}" for e in ENTRIES)
    named = set(re.findall(r"bpe-tokenizer ([a-z]+)", text))
    assert named <= {*bpe_tokenizer._COMMANDS, *commands.COMMANDS} and len(named) == 7
    methods = re.findall(r"(?:tokenizer|BPETokenizer)\.([a-z]\w+)", text)
    assert methods and all(hasattr(BPETokenizer, name) for name in methods if name != "json")
    assert f"vocabulary has {tiny.VOCAB_SIZE:,} tokens" in text
    assert f"context is {tiny.CONTEXT} tokens" in text


def test_each_question_is_asked_as_often() -> None:
    turns = tiny.all_turns(ENTRIES)
    made = list(tiny.conversations(ENTRIES, 2, random.Random(5)))
    assert made == list(tiny.conversations(ENTRIES, 2, random.Random(5)))
    asked = [
        m["content"].lower().rstrip("?.") for talk in made for m in talk if m["role"] == "user"
    ]
    for turn in turns:
        assert asked.count(turn.question.lower().rstrip("?.")) == 2
    roles = ["".join(message["role"][0] for message in talk) for talk in made]
    assert all(re.fullmatch("s?(ua)+", each) for each in roles)
    assert any(each[0] == "s" for each in roles) and any(len(each) > 6 for each in roles)


# -- Learning ---------------------------------------------------------------------


def test_only_answers_are_learned() -> None:
    need("jinja2")
    tokenizer = tiny.train_tokenizer(ENTRIES)
    assert tokenizer.vocab_size == tokenizer.max_id + 1 == tiny.VOCAB_SIZE
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi! <|im_end|>"},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "Goodbye!"},
    ]
    example = tiny.encode(tokenizer, talk)
    assert example is not None
    learned = [id_ for id_, mark in zip(*example) if mark]
    assert tokenizer.decode(learned) == "Hi! <|im_end|><|im_end|>Goodbye!<|im_end|>"
    assert learned.count(tokenizer.eos_token_id) == 2
    assert tiny.encode(tokenizer, talk[:2] + talk[1:] * 16) is None


def test_the_same_seed_makes_the_same_model() -> None:
    torch = need("torch")
    need("transformers"), need("jinja2")
    tokenizer = tiny.train_tokenizer(ENTRIES)
    some = tiny.conversations(ENTRIES[:8], 1, random.Random(0))
    examples = tiny.encode_all(tokenizer, some)

    def made(seed: int) -> Any:
        model = tiny.new_model(tiny.configuration(tokenizer), seed)
        assert 620_000 < model.num_parameters() < 640_000
        assert tiny.train(model, examples, 2, rows=4, seed=seed, say=lambda line: None) == 2
        return model.model.embed_tokens.weight.detach()

    first = made(0)
    assert torch.equal(first, made(0)) and not torch.equal(first, made(1))


def test_an_answer_is_right_only_as_a_whole() -> None:
    torch = need("torch")
    need("transformers"), need("jinja2")
    tokenizer = tiny.train_tokenizer(ENTRIES)
    model = tiny.new_model(tiny.configuration(tokenizer), 0)
    answers = [[5, 6, 7], [8], [9, 10]]
    ids = [1, *answers[0], 2, 3, *answers[1], 4, *answers[2]]
    example = tiny.Example(ids, [0, 1, 1, 1, 0, 0, 1, 0, 1, 1])

    def predict(*wrong: int) -> list[bool]:
        """Have a model that knows all ids of answers, but for some."""

        def logits(model: Any, ids: Any, mask: Any) -> tuple[Any, Any]:
            targets = ids[:, 1:][mask[:, 1:]]
            said = torch.tensor([0 if id_ in wrong else id_ for id_ in targets.tolist()])
            return torch.nn.functional.one_hot(said, 2048).float(), targets

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tiny, "logits_of_answers", logits)
            return tiny.right_answers(model, [example, example])

    assert predict() == [True] * 6
    assert predict(6) == [False, True, True] * 2
    assert predict(8, 10) == [True, False, False] * 2


# -- The model in its forms --------------------------------------------------------


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The forms of a model that learned a few answers by heart."""
    for package in ("torch", "transformers", "jinja2"):
        need(package)
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "few.txt").write_text(FEW, encoding="utf-8")
    names = [FORMS[name] for name, packages in PACKAGES.items() if all(map(_is_here, packages))]
    tiny.main(
        [
            *("--output", str(folder / "out"), "--questions", str(folder / "few.txt")),
            *("--steps", "100", "--threads", "1", "--forms", *names),
        ]
    )
    yield {name: folder / "out" / form.name for name, form in tiny.FORMS.items() if name in names}
    backends.unload()


def _is_here(package: str) -> bool:
    try:
        need(package)
    except pytest.skip.Exception:
        return False
    return True


def ask(path: Path, backend: str, question: str, **options: Any) -> tuple[list[int], str]:
    """Ask a model with its own tokenizer; return the ids and the text of the answer."""
    files = backends.find(path, backend)
    tokenizer = fit.load_own(files)
    assert tokenizer is not None
    fit.check(tokenizer, files)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], **options)
    model = backends.open_model(path, backend)
    ids = list(model.generate(prompt, 64, temperature=0, stop_ids=model.stop_ids))
    return ids, tokenizer.decode(ids)


@pytest.mark.parametrize("backend", PACKAGES)
def test_every_form_answers_word_for_word(backend: str, made: dict[str, Path]) -> None:
    for package in PACKAGES[backend]:
        need(package)
    path = made[FORMS[backend]]
    for entry in tiny.read_entries(made["safetensors"].parent.parent / "few.txt"):
        for question in (*entry.questions, entry.questions[0].upper()):
            ids, text = ask(path, backend, question)
            assert text == entry.answer + "<|im_end|>"
            assert ids == ask(made["safetensors"], "transformers", question)[0]
    assert ask(path, backend, "Hello", system_prompt="Be brief.")[1] == "Hi! 🙂<|im_end|>"


@pytest.mark.parametrize("backend", PACKAGES)
def test_every_form_brings_the_same_tokenizer(backend: str, made: dict[str, Path]) -> None:
    for package in PACKAGES[backend]:
        need(package)
    files = backends.find(made[FORMS[backend]], backend)
    own, first = fit.load_own(files), fit.load_own(backends.find(made["safetensors"]))
    assert own is not None and first is not None and own == first
    assert (own.chat_template, own.eos_token, own.pad_token, own.bos_token) == (
        tiny.CHATML,
        "<|im_end|>",
        "<|endoftext|>",
        None,
    )
    assert files.rows == own.vocab_size and files.context == tiny.CONTEXT
    assert files.eos_ids == (own.eos_token_id,) and files.bos_id is None


def test_it_says_what_to_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for package in ("torch", "transformers", "jinja2"):
        need(package)
    questions = tmp_path / "few.txt"
    questions.write_text(FEW, encoding="utf-8")
    options = ["--output", str(tmp_path / "out"), "--questions", str(questions)]
    tiny.main([*options, "--minutes", "0.02", "--threads", "1", "--forms", "mlx"])
    said = capsys.readouterr().out
    assert "4 questions, 3 answers" in said and " parameters; " in said
    assert re.search(r"as written +\d of 4 ", said)
    assert said.endswith(f"  bpe-tokenizer chat --model {tmp_path / 'out' / 'mlx'}\n")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mlx"]


def test_what_is_missing_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = tiny.importlib.util.find_spec
    monkeypatch.setattr(
        tiny.importlib.util, "find_spec", lambda name: None if name == "gguf" else find("json")
    )
    with pytest.raises(SystemExit, match="not installed: gguf; pip install gguf"):
        tiny.main(["--output", str(tmp_path / "out"), "--forms", "gguf", "mlx"])
    assert not (tmp_path / "out").exists()
    assert tiny.build_parser().parse_args([]).forms == ["safetensors", "openvino", "mlx"]
    for option in ("--steps", "--minutes", "--threads"):
        with pytest.raises(SystemExit, match=f"{option} must be more than 0"):
            tiny.main(["--output", str(tmp_path / "out"), "--forms", "mlx", option, "0"])
