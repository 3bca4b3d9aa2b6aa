"""A tokenizer as an object: pickled, copied, compared, hashed."""

from __future__ import annotations

import copy
import importlib.util
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import conftest
import oracles
import pytest
from oracles import forks

import bpe_tokenizer
from bpe_tokenizer import AddedToken, BPETokenizer, FileFormatError

TEXT = "low lower lowest, newer newest é 世界 <s> " * 20


def trained(**options: Any) -> BPETokenizer:
    return BPETokenizer("cl100k", **options).train(
        TEXT, 300, special_tokens=["<s>", "</s>", "<b>"], verbose=False, num_workers=1
    )


def use(tokenizer: BPETokenizer) -> None:
    """Do everything that might leave a trace in an object."""
    for allowed in ("none", "all", {"<s>"}):
        tokenizer.encode(TEXT, allowed_special=allowed)
        list(tokenizer.encode_streaming([TEXT, TEXT], allowed))
    with pytest.warns(UserWarning, match="pad_token"):
        tokenizer.encode_batch(["a", "bcd"], padding=True)
    tokenizer.truncate(TEXT, 5)
    tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], "alpaca")
    tokenizer.encode("x" * 200_000)  # enough for any change of engine


COPIES: dict[str, Callable[[BPETokenizer], BPETokenizer]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle{protocol}": lambda tokenizer, protocol=protocol: pickle.loads(
            pickle.dumps(tokenizer, protocol)
        )
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("how", sorted(COPIES))
@pytest.mark.parametrize("used", [False, True])
def test_a_copy_is_equal_and_independent(how: str, used: bool) -> None:
    tokenizer = trained()
    tokenizer.chat_template = "{{ messages }}"
    if used:
        use(tokenizer)
    twin = COPIES[how](tokenizer)
    assert twin == tokenizer and not twin != tokenizer
    assert hash(twin) == hash(tokenizer)
    assert twin.fingerprint == tokenizer.fingerprint
    assert twin.encode(TEXT, True, "all") == tokenizer.encode(TEXT, True, "all")
    assert twin.get_vocab() == tokenizer.get_vocab() and twin.merges == tokenizer.merges
    assert repr(twin) == repr(tokenizer)
    twin.add_special_tokens(["<new>"])
    twin.bos_token = None
    assert twin != tokenizer
    assert "<new>" not in tokenizer.special_tokens and tokenizer.bos_token == "<s>"


def test_use_leaves_pickle_hash_and_fingerprint_alone() -> None:
    tokenizer = trained()
    before = pickle.dumps(tokenizer), hash(tokenizer), tokenizer.fingerprint
    use(tokenizer)
    assert (pickle.dumps(tokenizer), hash(tokenizer), tokenizer.fingerprint) == before
    assert tokenizer == trained()


def test_a_pickle_holds_no_cache() -> None:
    tokenizer = trained()
    size = len(pickle.dumps(tokenizer))
    tokenizer.encode(" ".join(map(str, range(50_000))))
    assert len(pickle.dumps(tokenizer)) == size < 100_000


def test_training_twice_gives_equal_objects() -> None:
    first, second = trained(), trained()
    assert first == second and hash(first) == hash(second)
    assert first.fingerprint == second.fingerprint
    assert pickle.dumps(first) == pickle.dumps(second)


SCRIPT = """
import hashlib, pickle, sys
import test_object
tokenizer = test_object.trained()
packed = pickle.dumps(tokenizer)
print(hash(tokenizer), tokenizer.fingerprint, hashlib.sha256(packed).hexdigest())
"""


def test_hash_and_pickle_are_the_same_in_every_process() -> None:
    folders = [str(Path(bpe_tokenizer.__file__).parent)]
    folders += [str(Path(each).parent) for each in (__file__, conftest.__file__, oracles.__file__)]
    package = importlib.util.find_spec("_bpe_tokenizer")
    folders += [str(Path(package.origin).parents[1])] if package and package.origin else []
    seen = set()
    for seed in ("0", "1", "4321"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(folders)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout)
    assert len(seen) == 1
    number, fingerprint, _ = seen.pop().split()
    assert (int(number), fingerprint) == (hash(trained()), trained().fingerprint)


CHANGES: dict[str, Callable[[], BPETokenizer]] = {
    "pattern": lambda: BPETokenizer("gpt2"),
    "normalizer": lambda: BPETokenizer("cl100k", normalizer=None),
    "vocabulary": lambda: BPETokenizer("cl100k").train(TEXT, 270, verbose=False, num_workers=1),
    "special": lambda: with_tokens({"<s>": 300}),
    "special id": lambda: with_tokens({"<s>": 301}),
    "flag": lambda: with_tokens([AddedToken("<s>", 300, lstrip=True)]),
    "not special": lambda: with_tokens([AddedToken("<s>", 300, special=False)]),
}


def with_tokens(tokens: Any) -> BPETokenizer:
    tokenizer = BPETokenizer("cl100k")
    tokenizer.add_special_tokens(tokens)
    return tokenizer


def test_what_differs_is_not_equal() -> None:
    all_of_them = [BPETokenizer("cl100k"), *(make() for make in CHANGES.values())]
    assert len({tokenizer.fingerprint for tokenizer in all_of_them}) == len(all_of_them)
    assert len(set(all_of_them)) == len(all_of_them)
    for i, first in enumerate(all_of_them):
        for j, second in enumerate(all_of_them):
            assert (first == second) == (i == j)
    assert BPETokenizer() != "BPETokenizer" and BPETokenizer() != None  # noqa: E711


def test_roles_and_templates_count_for_equality() -> None:
    first, second = trained(), trained()
    second.pad_token = "<b>"
    assert first != second and first.fingerprint == second.fingerprint
    third = trained()
    third.bos_token = None  # changes what add_special_tokens does
    assert first.fingerprint != third.fingerprint


def test_the_fingerprint_is_a_sha256() -> None:
    assert len(trained().fingerprint) == 64
    assert set(trained().fingerprint) <= set("0123456789abcdef")


def test_a_subclass_stays_one() -> None:
    tokenizer = Subclass("cl100k")
    for how in COPIES.values():
        assert type(how(tokenizer)) is Subclass


class Subclass(BPETokenizer):
    """At module level, where pickle finds it."""


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("padding_sides", "padding_side"),
        ("pad_tokenid", "pad_token_id"),
        ("chat_templat", "chat_template"),
        ("add_bos_token", None),
        ("clean_up_tokenization_spaces", None),
        ("x", None),
    ],
)
def test_setting_what_does_nothing_is_refused(name: str, meant: str | None) -> None:
    message = f"no attribute '{name}'" + (f".*did you mean '{meant}'" if meant else "")
    for tokenizer in (trained(), copy.copy(trained()), pickle.loads(pickle.dumps(trained()))):
        with pytest.raises(AttributeError, match=message):
            setattr(tokenizer, name, 3)
        assert not hasattr(tokenizer, name)


@pytest.mark.parametrize("name", ["vocab_size", "special_tokens", "split_pattern", "merges"])
def test_what_cannot_be_set_says_so(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(trained(), name, getattr(trained(), name))


def test_what_can_be_set_still_can(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = trained()
    tokenizer.chat_templates = {"default": "a", "rag": "b"}
    assert tokenizer.chat_template == "a"
    tokenizer.training_report = None
    monkeypatch.setattr(tokenizer, "encode", lambda text: [1])
    assert tokenizer("abc") == [1]
    first, second = BPETokenizer(), BPETokenizer()
    first.chat_templates["default"] = "x"
    assert second.chat_templates == BPETokenizer.chat_templates == {}


class WithMore(BPETokenizer):
    """A subclass with attributes of its own."""

    name = "none"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen: list[str] = []

    def encode(self, text: str, *args: Any, **options: Any) -> list[int]:
        if hasattr(self, "seen"):
            self.seen.append(text)
        return super().encode(text, *args, **options)


def test_a_subclass_has_attributes_of_its_own() -> None:
    tokenizer = WithMore("cl100k")
    tokenizer.name, tokenizer.other = "mine", 5
    ids = tokenizer("low")
    assert tokenizer.seen == ["low"] and (tokenizer.name, tokenizer.other) == ("mine", 5)
    for how in COPIES.values():
        twin = how(tokenizer)
        assert type(twin) is WithMore and twin == tokenizer and twin.encode("low") == ids
        twin.other = 6


def test_many_threads_may_share_one_object() -> None:
    tokenizer = trained()
    texts = [f"{TEXT[i : i + 60]} {i} " * 5 for i in range(40)]
    expected = [trained().encode(text, allowed_special="all") for text in texts]
    wrong: list[int] = []

    def work() -> None:
        for _ in range(5):
            for i, text in enumerate(texts):
                if tokenizer.encode(text, allowed_special="all") != expected[i]:
                    wrong.append(i)
            tokenizer.clear_cache()

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@forks
def test_a_forked_child_can_go_on() -> None:
    tokenizer = trained()
    expected = tokenizer.encode(TEXT)
    child = os.fork()
    if child == 0:
        os._exit(0 if tokenizer.encode(TEXT) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_errors_pickle_too() -> None:
    error = FileFormatError("a/tokenizer.json", "model.vocab", "is missing")
    twin = pickle.loads(pickle.dumps(error))
    assert str(twin) == str(error) and twin.field == "model.vocab"


def test_the_repr_says_what_it_is() -> None:
    assert f"vocab_size={trained().vocab_size}" in repr(trained()) and "cl100k" in repr(trained())
    assert len(trained()) == trained().vocab_size


def test_threads_that_encode_while_tokens_are_added_leave_nothing_stale() -> None:
    tokenizer = BPETokenizer()
    done = threading.Event()

    def encode() -> None:
        while not done.is_set():
            tokenizer.encode("a<t>", allowed_special="all")

    threads = [threading.Thread(target=encode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(200):
        tokenizer.add_special_tokens([f"<t{n}>"])
        assert tokenizer.encode(f"<t{n}>", allowed_special="all") == [256 + n]
    done.set()
    for thread in threads:
        thread.join()
