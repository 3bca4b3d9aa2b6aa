"""Healed prompts in real models: the tiny one, in all four libraries, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from oracles import need
from tiny_models import BOS, TOKENS

from bpe_tokenizer import AddedToken, BPETokenizer
from bpe_tokenizer_tools import backends, core
from bpe_tokenizer_tools.chat.session import Session
from bpe_tokenizer_tools.prompts import (
    CoveringTree,
    complete,
    covering_tree,
    heal_ids,
    next_byte_probabilities,
)

numpy = need("numpy")
EACH = pytest.mark.parametrize("name", tiny_models.PACKAGES)
PROMPTS = ["def naï", "def for", "x, i) or 'the ", "return (", "    ", "export_12(x):\n"]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give a function from a backend's name to the model in its form."""
    made: dict[str, Path] = {}

    def write(name: str) -> Path:
        for package in tiny_models.PACKAGES[name]:
            need(package)
        if name not in made:
            made[name] = tiny_models.write(tmp_path_factory.mktemp("model"), name, tied=False)
        return made[name]

    return write


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    yield
    backends.unload()


def healed(prompt: str) -> CoveringTree:
    tree = covering_tree(tiny_models.tokenizer(), prompt)
    return CoveringTree([BOS, *tree.ids], tree.prefix, tree.branches)


def spelled(ids: list[int]) -> bytes:
    return tiny_models.tokenizer().decode_bytes(ids)


def greedy(tree: CoveringTree, count: int) -> list[int]:
    """The likeliest ids, first of all that begin or go on with the prefix as the tree has them."""
    model, ids = tiny_models.model(tied=False), list[int]()
    paths = list(tree)
    for _ in range(count):
        logits = model.logits([*tree.ids, *ids])[:TOKENS]
        n, covered = len(ids), len(spelled(ids)) >= len(tree.prefix)
        allowed = [path[n] for path in paths if list(path[:n]) == ids] if not covered else []
        ids.append(max(allowed or range(TOKENS), key=lambda id_: logits[id_]))
    return ids


@EACH
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_first_draws_spell_the_end_of_the_prompt(
    written: Callable[[str], Path], name: str, prompt: str
) -> None:
    model, tree = backends.open_model(written(name), name), healed(prompt)
    ids = list(model.generate(tree.ids, 8, temperature=0, n_tokens=TOKENS, healed=tree))
    assert ids == greedy(tree, 8)
    assert spelled([*tree.ids[1:], *ids]).startswith(prompt.encode())
    for seed in range(9):
        drawn = list(model.generate(tree.ids, 8, 5.0, 1.0, seed=seed, n_tokens=TOKENS, healed=tree))
        assert spelled([*tree.ids[1:], *drawn]).startswith(prompt.encode())


@EACH
def test_the_next_byte_of_a_library_is_that_of_numpy(
    written: Callable[[str], Path], name: str
) -> None:
    tokenizer, exact = tiny_models.tokenizer(), tiny_models.model(tied=False)
    model = backends.open_model(written(name), name)
    for prompt in PROMPTS:
        found, expected = (
            next_byte_probabilities(tokenizer, lambda ids: logits([BOS, *ids]), prompt)  # noqa: B023
            for logits in (model.logits, exact.logits)
        )
        numpy.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-6)


@EACH
def test_a_prompt_cut_inside_its_next_token_goes_on_as_before(
    written: Callable[[str], Path], name: str
) -> None:
    """If the likeliest token behind a prompt is begun already, it still is the likeliest."""
    tokenizer, path, shown = tiny_models.tokenizer(), written(name), 0
    texts = tiny_models.text()
    for end in range(20, 400, 19):
        prompt = texts[:end]
        said = complete(tokenizer, prompt, path, max_new_tokens=1, temperature=0, heal=False)
        for cut in range(1, len(said)):
            tree = covering_tree(tokenizer, prompt + said[:cut])
            token = tokenizer.convert_tokens_to_ids(core.to_printable(said.encode()))
            if tree.ids != tokenizer.encode(prompt) or (token,) not in tree:
                continue  # another tokenization is the usual one
            options: dict[str, Any] = {"max_new_tokens": 5, "temperature": 0}
            whole = complete(tokenizer, prompt, path, heal=False, **options)
            assert said[:cut] + complete(tokenizer, prompt + said[:cut], path, **options) == whole
            shown += 1
    assert shown > 1


def test_a_stream_and_where_it_stops(written: Callable[[str], Path]) -> None:
    tokenizer, path = tiny_models.tokenizer(), written("transformers")
    given: dict[str, Any] = {"temperature": 0, "max_new_tokens": 12}
    text = tokenizer.complete("def naï", path, **given)
    assert "".join(tokenizer.complete("def naï", path, stream=True, **given)) == text
    stop = text[3:5]
    assert tokenizer.complete("def naï", path, stop=stop, **given) == text[: text.index(stop)]
    ids = [BOS, *tokenizer.encode("def naï")]
    assert tokenizer.complete(ids, path, **given) == text  # as of continue_final_message
    tree = heal_ids(tokenizer, ids)
    assert (tree.ids, tree.prefix) == (healed("def naï").ids, healed("def naï").prefix)
    assert heal_ids(tokenizer, [65, BOS]) == CoveringTree([65, BOS], b"", {})


def test_a_chat(written: Callable[[str], Path]) -> None:
    tokenizer, path = tiny_models.tokenizer(), written("transformers")
    session = Session(path, tokenizer, "alpaca")
    first = "".join(session.reply("def x", 9, temperature=0, heal=True))
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "def x"}], "alpaca")
    tree = heal_ids(tokenizer, prompt)
    ids = list(session.model.generate(tree.ids, 9, temperature=0, n_tokens=TOKENS, healed=tree))
    assert tree.prefix and session.last.prompt_tokens == len(tree.ids) < len(prompt)
    assert tokenizer.decode(ids, True).removeprefix(tree.prefix.decode()) == first
    assert session.conversation.messages[-1]["content"] == first
    messages = [{"role": "user", "content": "def x"}]
    options: dict[str, Any] = {"template": "alpaca", "max_new_tokens": 9, "temperature": 0}
    assert tokenizer.chat(messages, path, heal=True, **options) == first
    "".join(session.reply("and y", 4, temperature=0, heal=True))
    assert not session.conversation.rewrites
    assert len(session.conversation.messages) == 4


@EACH
@pytest.mark.slow
def test_a_message_that_is_begun_goes_on_as_if_it_had_not_been_cut(
    written: Callable[[str], Path], name: str
) -> None:
    tokenizer, path, shown = tiny_models.tokenizer(), written(name), 0
    for asked in ("def x", "return"):
        messages = [{"role": "user", "content": asked}]
        options: dict[str, Any] = {"template": "alpaca", "max_new_tokens": 5}
        whole = tokenizer.chat(messages, path, temperature=0, **options)
        first = tokenizer.chat(messages, path, temperature=0, **{**options, "max_new_tokens": 1})
        [token] = tokenizer.encode(first)
        for cut in range(1, len(first)):
            begun = [*messages, {"role": "assistant", "content": first[:cut]}]
            ids = tokenizer.apply_chat_template(begun, "alpaca", continue_final_message=True)
            for seed, temperature in ((None, 0), (1, 2.0)):
                how = {"seed": seed, "temperature": temperature}
                given: dict[str, Any] = {**options, **how, "continue_final_message": True}
                said = tokenizer.chat(begun, path, heal=True, **given)
                assert said == tokenizer.complete(ids, path, max_new_tokens=5, **how)
                as_it_is = tokenizer.chat(begun, path, **given)
                assert as_it_is == tokenizer.complete(
                    ids, path, heal=False, max_new_tokens=5, **how
                )
                tree = heal_ids(tokenizer, ids)
                prompt = tokenizer.apply_chat_template(messages, "alpaca")
                if temperature == 0 and (token,) in tree and tree.ids == prompt:
                    assert first[:cut] + said == whole
                    shown += first[:cut] + as_it_is != whole
    assert shown > 1


def test_a_session_goes_on_with_a_message(written: Callable[[str], Path]) -> None:
    tokenizer, path = tiny_models.tokenizer(), written("transformers")
    for heal in (False, True):
        session = Session(path, tokenizer, "alpaca")
        talk = session.conversation
        talk.extend([{"role": "user", "content": "def x"}, {"role": "assistant", "content": "na"}])
        given: dict[str, Any] = {"continue_final_message": True, "heal": heal, "temperature": 0}
        said = "".join(session.reply(max_new_tokens=4, **given))
        assert [each["content"] for each in talk.messages] == ["def x", "na" + said]
        assert sum(turn.tokens for turn in talk.turns) == len(talk.ids)
        assert [turn.role for turn in talk.turns] == ["user", "assistant"]
        prompt = tokenizer.apply_chat_template(
            [talk.messages[0], {"role": "assistant", "content": "na"}],
            "alpaca",
            continue_final_message=True,
        )
        if heal:
            prompt = heal_ids(tokenizer, prompt).ids
        ids, options = list(talk.ids), {"temperature": 0, "n_tokens": TOKENS}
        assert ids[: len(prompt)] == prompt and len(ids) == len(prompt) + 4
        if not heal:
            assert list(session.model.generate(prompt, 4, **options)) == ids[len(prompt) :]
        more = "".join(session.reply(max_new_tokens=3, **{**given, "heal": False}))
        assert talk.ids[: len(ids)] == ids and len(talk.ids) == len(ids) + 3
        assert talk.messages[-1]["content"] == "na" + said + more
        answer = "".join(session.reply("and y", 3, temperature=0))
        assert [each["content"] for each in talk.messages[1:]] == [
            "na" + said + more,
            "and y",
            answer,
        ]
        assert not talk.rewrites
        with pytest.raises(ValueError, match="pass no content"):
            session.reply("and z", **given)
        with pytest.raises(TypeError, match="must be True or False"):
            session.reply(continue_final_message="content")  # type: ignore[arg-type]
        talk.add("user", "and z")
        with pytest.raises(ValueError, match="the last one has the role 'user'"):
            session.reply(**given)
        assert len(talk.messages) == 5


def test_healing_keeps_ids_as_they_were() -> None:
    """Those of text that spells an added token, those that were sampled, and broken UTF-8."""
    tokenizer = BPETokenizer().train(["the the the th th"], 260, 1, verbose=False)
    tokenizer.add_special_tokens([AddedToken("<tool>", special=False)])
    [tool] = tokenizer.encode("<tool>")
    messages = [{"role": "user", "content": "<tool> th"}]
    ids = tokenizer.apply_chat_template(messages, "alpaca", add_generation_prompt=False)
    assert tool not in ids
    tree = heal_ids(tokenizer, ids)
    assert tree.ids == ids[: len(tree.ids)]
    typed = [*b"see <tool>"]
    assert heal_ids(tokenizer, typed) == CoveringTree(typed, b"", {})
    sampled = [*b"the the", *tokenizer.encode(" th")]  # letter by letter
    assert heal_ids(tokenizer, sampled).ids == sampled[:7]
    assert heal_ids(tokenizer, sampled).prefix == b" th"
    broken = [0xE4, *sampled]
    assert heal_ids(tokenizer, broken).ids == broken[:8]
    begun = [0xE4, 0x20, 0xE4, 0xB8]  # the last two may become a character
    assert heal_ids(tokenizer, begun) == CoveringTree(begun, b"", {})


def test_what_is_refused(written: Callable[[str], Path]) -> None:
    tokenizer, path = tiny_models.tokenizer(), written("transformers")
    with pytest.raises(ValueError, match="the first token of the prompt may still change"):
        tokenizer.complete([tokenizer.encode("d")[0]], path)
    with pytest.raises(TypeError, match="pass its input_ids"):
        tokenizer.complete({"input_ids": [1]}, path)
    with pytest.raises(ValueError, match="not empty"):
        tokenizer.complete("a", path, stop=["a", ""])
    with pytest.raises(ValueError, match="does not fit"):
        BPETokenizer().train(["other text"], 262, 1, verbose=False).complete("a", path)
    with pytest.raises(ValueError, match="at least one"):
        backends.open_model(path).logits([])
