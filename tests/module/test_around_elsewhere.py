"""What `add_special_tokens` adds here, and what other libraries add to every text."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from oracles import need

from bpe_tokenizer import BPETokenizer, main
from bpe_tokenizer_tools import core

BOS, EOS = "<s>", "</s>"
RULES = {  # rule -> what is added here, what is added elsewhere
    "default": ("bos+eos", "bos"),
    "bos+eos": ("bos+eos", "bos+eos"),
    "bos": ("bos", "bos"),
    "eos": ("eos", "eos"),
    "none": ("", ""),
}
ROLES = [[], [BOS], [EOS], [BOS, EOS]]


def trained(special: list[str], **options: Any) -> BPETokenizer:
    tokenizer = BPETokenizer("llama3")
    return tokenizer.train("the cat sat " * 9, 262, 2, special, verbose=False, **options)


def around(tokenizer: BPETokenizer, rule: str, ids: list[int]) -> list[int]:
    """Return ids with the tokens that a rule adds, if the tokenizer has them."""
    bos = [tokenizer.bos_token_id] if "bos" in rule else []
    eos = [tokenizer.eos_token_id] if "eos" in rule else []
    return [id_ for id_ in (*bos, *ids, *eos) if id_ is not None]


@pytest.mark.parametrize("special", ROLES)
@pytest.mark.parametrize("rule", RULES)
def test_others_add_eos_only_if_it_was_chosen(
    rule: str, special: list[str], tmp_path: Path
) -> None:
    transformers, tokenizers = need("transformers"), need("tokenizers")
    here, elsewhere = RULES[rule]
    chosen = {} if rule == "default" else {"surround": rule}
    tokenizer = trained(special, **chosen)
    tokenizer.save(tmp_path, verbose=False)
    loaded, plain = BPETokenizer.from_file(tmp_path), tokenizer.encode("the cat")
    copies = loaded, pickle.loads(pickle.dumps(tokenizer)), pickle.loads(pickle.dumps(loaded))
    for each in (tokenizer, *copies):
        assert each.encode("the cat", add_special_tokens=True) == around(each, here, plain)
        assert each == tokenizer and each.fingerprint == tokenizer.fingerprint
    expected = around(tokenizer, elsewhere, plain)
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode(
        "the cat"
    ).ids == (expected)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path)("the cat").input_ids == expected
    for each in (tokenizer, *copies):
        assert each.to_hf().encode("the cat").ids == expected
        assert each.as_tokenizers().encode("the cat").ids == expected
        assert each.to_transformers()("the cat").input_ids == expected


def test_roles_given_later_count(tmp_path: Path) -> None:
    transformers = need("transformers")
    tokenizer = trained(["<a>", "<b>"])
    tokenizer.bos_token, tokenizer.eos_token = "<a>", "<b>"
    tokenizer.save(tmp_path, verbose=False)
    loaded, theirs = BPETokenizer.from_file(tmp_path), transformers.AutoTokenizer
    assert loaded.convert_ids_to_tokens(loaded.encode("", True)) == ["<a>", "<b>"]
    assert theirs.from_pretrained(tmp_path)("").input_ids == [loaded.bos_token_id]
    loaded.eos_token = None
    assert loaded.encode("", True) == [loaded.bos_token_id]


def test_a_pair_and_training_stacks_get_what_this_library_adds(tmp_path: Path) -> None:
    transformers = need("transformers")
    tokenizer = trained([BOS, EOS])
    assert tokenizer.num_special_tokens_to_add() == 2
    one, two = tokenizer.encode("the"), tokenizer.encode("cat")
    pair = tokenizer("the", "cat", add_special_tokens=True).input_ids
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    assert pair == [bos, *one, eos, bos, *two, eos]
    tokenizer.save_pretrained(tmp_path)  # which others load
    assert transformers.AutoTokenizer.from_pretrained(tmp_path)("the").input_ids == [bos, *one]


def test_a_directory_of_an_earlier_version_keeps_its_ids(tmp_path: Path) -> None:
    """There, `surround` was "bos+eos" unless something else was chosen."""
    tokenizers = need("tokenizers")
    trained([BOS, EOS], surround="bos+eos").save(tmp_path / "old", verbose=False)
    path = tmp_path / "old" / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "model_max_length": 10**30}), encoding="utf-8")
    old = BPETokenizer.from_file(tmp_path / "old")
    old.save(tmp_path / "new", verbose=False)
    assert json.loads((tmp_path / "new" / path.name).read_text(encoding="utf-8")) == config
    for folder in ("old", "new"):
        loaded = BPETokenizer.from_file(tmp_path / folder)
        ids = loaded.encode("the", add_special_tokens=True)
        assert ids == around(loaded, "bos+eos", loaded.encode("the"))
        file = str(tmp_path / folder / "tokenizer.json")
        assert tokenizers.Tokenizer.from_file(file).encode("the").ids == ids


def test_a_pickle_of_an_earlier_version_keeps_its_ids() -> None:
    tokenizers = need("tokenizers")
    rebuild, (cls, packed) = trained([BOS, EOS]).__reduce__()
    state, *rest = json.loads(packed)
    assert state["template"] == "default"
    old = rebuild(cls, json.dumps([{**state, "template": "bos+eos"}, *rest]).encode())
    ids = old.encode("the", add_special_tokens=True)
    assert ids[0] == old.bos_token_id and ids[-1] == old.eos_token_id
    assert tokenizers.Tokenizer.from_str(old.to_hf().to_str()).encode("the").ids == ids


def test_training_again_keeps_the_rule() -> None:
    for rule in RULES:
        tokenizer = trained([BOS, EOS], surround=rule)
        tokenizer.train("the dog sat " * 9, 262, verbose=False)
        assert tokenizer.definition.template == rule
        assert core.remade(tokenizer, tokenizer.definition).definition.template == rule


@pytest.mark.parametrize("rule", RULES)
def test_ranks_keep_the_rule(rule: str, tmp_path: Path) -> None:
    tokenizer = BPETokenizer(normalizer=None, surround=rule)
    tokenizer.train("the cat sat " * 9, 262, 2, [BOS, EOS], verbose=False)
    tokenizer.export(tmp_path / "x.tiktoken", "tiktoken")
    again = BPETokenizer.from_file(tmp_path / "x.tiktoken")
    assert core.around(again) == core.around(tokenizer)
    assert core.around_elsewhere(again) == core.around_elsewhere(tokenizer)


# -- What is said ---------------------------------------------------------------


@pytest.mark.parametrize(
    "rule, special, said",
    [
        ("default", [BOS, EOS], "<s> before each text"),
        ("default", [EOS], "nothing around each text"),
        ("bos+eos", [BOS, EOS], "<s> before and </s> after each text"),
        ("eos", [BOS, EOS], "</s> after each text"),
    ],
)
def test_info_save_and_check_say_what_others_add(
    rule: str, special: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = trained(special, surround=rule)
    tokenizer.save(tmp_path, verbose=True)
    assert f"Other libraries add {said}\n" in capsys.readouterr().err
    assert main(["info", "-t", str(tmp_path)]) == 0
    assert f"others add        : {said}\n" in capsys.readouterr().out
    assert main(["info", "-t", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["others_add"] == said
    report = tokenizer.check(["the cat"])
    assert report.ok, report
    assert f"1 texts compared; other libraries add {said}\n" in f"{report}\n"


def test_a_prompt_does_not_end_with_eos(tmp_path: Path) -> None:
    transformers = need("transformers")
    readme = Path(__file__).resolve().parents[2] / "README.md"
    train = ["train", str(readme), "--vocab-size", "300", "--special-tokens", "<|endoftext|>"]
    assert main([*train, "--output", str(tmp_path), "--quiet"]) == 0
    tokenizer = BPETokenizer.from_file(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("Hello").input_ids == tokenizer.encode("Hello")
    assert tokenizer.encode("Hello", add_special_tokens=True)[-1] == tokenizer.eos_token_id
    chosen = tmp_path / "chosen"
    assert main([*train, "--output", str(chosen), "--quiet", "--surround", "bos+eos"]) == 0
    ids = transformers.AutoTokenizer.from_pretrained(chosen)("Hello").input_ids
    assert ids == [*tokenizer.encode("Hello"), tokenizer.eos_token_id]
