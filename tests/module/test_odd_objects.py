"""Objects that act while a call looks at them: they change what they are in, or the tokenizer.

A call may then give any of its answers, or raise.  It never crashes, and the tokenizer still works.
"""

from __future__ import annotations

import functools
import gc
import threading
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from oracles import need

from bpe_tokenizer import BPETokenizer

TEXT = "the cat<s> sat on the mat"
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
ERRORS = (TypeError, ValueError, KeyError, IndexError, RuntimeError)


def made() -> BPETokenizer:
    tokenizer = BPETokenizer("cl100k", normalizer=None).train(
        "the cat sat on the mat " * 20, 280, special_tokens=SPECIAL, verbose=False
    )
    tokenizer.pad_token = "</s>"
    return tokenizer


class Acting:
    """What happens when something is looked at: the same each time, but not inside itself."""

    do: Callable[[], Any] = staticmethod(lambda: None)
    busy = False

    @classmethod
    def act(cls) -> None:
        if not cls.busy:
            cls.busy = True
            try:
                cls.do()
            finally:
                cls.busy = False


def acting(base: type, *names: str) -> type:
    """Return a subclass whose methods act before they do what the base's do."""

    def method(name: str) -> Callable[..., Any]:
        plain = getattr(base, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            Acting.act()
            return plain(self, *args, **kwargs)

        return call

    return type(f"Odd{base.__name__}", (base,), {name: method(name) for name in names})


COMPARED = "__hash__", "__eq__"
OddInt: Any = acting(int, "__index__", "__int__", "__lt__", "__add__", *COMPARED)
OddStr: Any = acting(
    str, "__len__", "__iter__", "__getitem__", "__str__", "encode", "__contains__", *COMPARED
)
OddBytes: Any = acting(bytes, "__len__", "__iter__", "__getitem__", "decode", *COMPARED)
OddList: Any = acting(list, "__len__", "__iter__", "__getitem__", "__eq__")
OddDict: Any = acting(dict, "__len__", "__iter__", "__getitem__", "items", "keys", "get")


class Index:
    """Not an int, but can be one."""

    def __index__(self) -> int:
        Acting.act()
        return 97


def ids() -> list[Any]:
    return [97, OddInt(98), Index(), 99, OddInt(256), 100]


def texts() -> list[Any]:
    return [OddStr(TEXT), "", OddStr("naïve 中"), TEXT * 9]


def messages() -> list[Any]:
    return [
        OddDict(role=OddStr("user"), content=OddStr(TEXT)),
        OddDict(role="assistant", content="a"),
    ]


def counts() -> dict[Any, Any]:
    return {b"low": OddInt(9), b" lower": 9, b" mat": OddInt(2)}


# What is made for a call, and the call.
CALLS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "decode": (ids, lambda t, x: t.decode(x)),
    "decode, skipping": (ids, lambda t, x: t.decode(x, skip_special_tokens=True)),
    "decode, an odd list": (lambda: OddList(ids()), lambda t, x: t.decode(x)),
    "decode_bytes": (ids, lambda t, x: t.decode_bytes(x)),
    "decode_batch": (lambda: [ids(), OddList(ids())], lambda t, x: t.decode_batch(x)),
    "decode_streaming": (ids, lambda t, x: [*t.decode_streaming(x)]),
    "convert_ids_to_tokens": (ids, lambda t, x: t.convert_ids_to_tokens(x)),
    "get_special_tokens_mask": (
        ids,
        lambda t, x: t.get_special_tokens_mask(x, already_has_special_tokens=True),
    ),
    "is_canonical": (ids, lambda t, x: t.is_canonical(x)),
    "pad": (lambda: [{"input_ids": ids()}, {"input_ids": [97]}], lambda t, x: t.pad(x)),
    "encode": (lambda: OddStr(TEXT), lambda t, x: t.encode(x)),
    "encode, all": (lambda: OddStr(TEXT), lambda t, x: t.encode(x, True, "all")),
    "encode, a set": (
        lambda: {OddStr("<s>")},
        lambda t, x: t.encode(TEXT, allowed_special=x),
    ),
    "encode, dropout": (lambda: OddStr(TEXT), lambda t, x: t.encode(x, dropout=0.5, seed=1)),
    "encode_with_offsets": (
        lambda: OddStr(TEXT),
        lambda t, x: t.encode_with_offsets(x).offsets,
    ),
    "tokenize": (lambda: OddStr(TEXT), lambda t, x: t.tokenize(x)),
    "count_tokens": (lambda: OddStr(TEXT), lambda t, x: t.count_tokens(x)),
    "truncate": (lambda: OddStr(TEXT), lambda t, x: t.truncate(x, 5)),
    "chunk": (lambda: OddStr(TEXT), lambda t, x: [*t.chunk(x, 5)]),
    "encode_batch": (texts, lambda t, x: t.encode_batch(x, padding=True).input_ids),
    "encode_batch, cut": (
        texts,
        lambda t, x: t.encode_batch(x, truncation=True, max_length=5).input_ids,
    ),
    "encode_ordinary_batch": (texts, lambda t, x: t.encode_ordinary_batch(x, 2)),
    "call": (lambda: OddList(texts()), lambda t, x: t(x)["input_ids"]),
    "encode_streaming": (texts, lambda t, x: [*t.encode_streaming(x, "all")]),
    "encode_iterable": (texts, lambda t, x: [*t.encode_iterable(x)]),
    "convert_tokens_to_ids": (
        lambda: [OddStr("the"), OddStr("<s>"), "a"],
        lambda t, x: t.convert_tokens_to_ids(x),
    ),
    "convert_tokens_to_string": (
        lambda: [OddStr("the"), "<s>", "a"],
        lambda t, x: t.convert_tokens_to_string(x),
    ),
    "apply_chat_template": (messages, lambda t, x: t.apply_chat_template(x, "chatml")),
    "add_special_tokens": (
        lambda: [OddStr("<x>"), "<y>"],
        lambda t, x: t.add_special_tokens(x),
    ),
    "train, texts": (texts, lambda t, x: t.train(x, 270, verbose=False).merges),
    "train, counts": (
        counts,
        lambda t, x: t.train(counts=x, vocab_size=270, verbose=False).merges,
    ),
    "train, counts of odd bytes": (
        lambda: OddDict({OddBytes(b"low"): 9, b" lower": 9}),
        lambda t, x: t.train(counts=x, vocab_size=270, verbose=False).merges,
    ),
    "truncate to an odd number": (lambda: OddInt(5), lambda t, x: t.truncate(TEXT, x)),
    "from_merges": (
        lambda: {OddInt(i): OddBytes([i]) for i in range(256)} | {256: b"ab", OddInt(257): b"abab"},
        lambda t, x: BPETokenizer.from_merges(x, [(97, 98), (OddInt(256), 256)]).encode("abab"),
    ),
}


def shrink(thing: Any) -> None:
    """Take everything out of whatever it is, and what is in it."""
    if isinstance(thing, (list, dict, set)):
        for item in [*thing.values()] if isinstance(thing, dict) else [*thing]:
            shrink(item)
        thing.clear()
        _ = [bytearray(64) for _ in range(99)]  # where it was


def grow(thing: Any) -> None:
    if isinstance(thing, list):
        thing.extend(list.copy(thing)[:50])
    elif isinstance(thing, dict):
        thing.update({f"more {len(thing)} {i}": i for i in range(50)})


ACTS: dict[str, Callable[[BPETokenizer, Any], Any]] = {
    "clears": lambda t, thing: shrink(thing),
    "grows": lambda t, thing: grow(thing) if len(thing) < 1_000 else None,
    "trains": lambda t, thing: t.train("low lower " * 9, 270, verbose=False),
    "adds tokens": lambda t, thing: t.add_special_tokens([f"<{t.vocab_size}>"]),
    "clears the cache": lambda t, thing: t.clear_cache(),
    "calls again": lambda t, thing: (t.decode(t.encode(TEXT)), t.encode_batch([TEXT] * 3)),
}


def works(tokenizer: BPETokenizer) -> bool:
    return tokenizer.decode(tokenizer.encode(TEXT * 3)) == TEXT * 3 and bool(repr(tokenizer))


def pair_of(name: str) -> tuple[Callable[[], Any], Callable[[Any, Any], Any]]:
    if name in ("get_special_tokens_mask", "pad"):
        need("transformers")
    return CALLS[name]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", CALLS)
def test_objects_that_act(name: str, act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, call = pair_of(name)
    tokenizer, thing = made(), make()
    monkeypatch.setattr(Acting, "do", staticmethod(lambda: ACTS[act](tokenizer, thing)))
    try:
        call(tokenizer, thing)
    except ERRORS:
        pass
    finally:
        monkeypatch.setattr(Acting, "do", staticmethod(lambda: None))
    assert works(tokenizer)


REFUSED = "train, counts of odd bytes", "truncate to an odd number", "from_merges"


@pytest.mark.parametrize("name", [name for name in CALLS if name not in (*REFUSED, "pad")])
def test_subclasses_are_what_they_are_made_of(name: str) -> None:
    """Subclasses of str, int and bytes are as good as those."""
    make, call = pair_of(name)
    assert call(made(), make()) == call(made(), plain(make()))


def test_subclasses_are_refused_as_lengths_and_in_vocabularies() -> None:
    for name in REFUSED:
        make, call = CALLS[name]
        with pytest.raises(TypeError, match="must"):
            call(made(), make())


def plain(thing: Any) -> Any:
    """Return the same without subclasses."""
    bases: tuple[Any, ...] = (int, str, bytes)
    for base in bases:
        if isinstance(thing, base):
            return base(thing)
    if isinstance(thing, Index):
        return 97
    if isinstance(thing, dict):
        return {plain(key): plain(value) for key, value in dict.items(thing)}
    return type(thing)(map(plain, thing)) if type(thing) is set else [plain(each) for each in thing]


# -- Finalizers ------------------------------------------------------------------


class Later:
    """Garbage in a cycle: when it is collected for the n-th time, it does something."""

    def __init__(self, n: int, do: Callable[[], Any]) -> None:
        self.n, self.do, self.me = n, do, self

    def __del__(self) -> None:
        if self.n:
            Later(self.n - 1, self.do)
        else:
            self.do()


LISTS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "decode": (lambda: [97] * 1_500, lambda t, x: t.decode(x)),
    "decode_batch": (lambda: [[97] * 9 for _ in range(900)], lambda t, x: t.decode_batch(x)),
    "convert_ids_to_tokens": (lambda: [97] * 1_500, lambda t, x: t.convert_ids_to_tokens(x)),
    "encode_batch": (lambda: ["the cat"] * 900, lambda t, x: t.encode_batch(x).input_ids),
    "encode_ordinary_batch": (lambda: ["the cat"] * 900, lambda t, x: t.encode_ordinary_batch(x)),
}


@pytest.mark.parametrize("name", LISTS)
def test_garbage_that_changes_a_list_while_it_is_read(name: str) -> None:
    """Up to Python 3.11 a collection of garbage, and so any code, may run where lists are made."""
    make, call = LISTS[name]
    tokenizer, thresholds = made(), gc.get_threshold()
    call(tokenizer, make())
    gc.freeze()  # or each collection would also look at all that the other tests hold
    try:
        for n in range(12):
            thing = make()
            gc.collect()
            Later(n, functools.partial(shrink, thing))
            gc.set_threshold(1, 1, 1)
            try:
                call(tokenizer, thing)
            finally:
                gc.set_threshold(*thresholds)
    finally:
        gc.unfreeze()
    assert works(tokenizer)


# -- Buffers ---------------------------------------------------------------------


@pytest.mark.parametrize("change", ["overwrites", "resizes"])
def test_a_buffer_that_another_thread_changes(change: str) -> None:
    tokenizer = made()
    buffer, over = array("I", [97] * 5_000), threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            try:
                if change == "overwrites":
                    buffer[number % 4_000] = (97, 256, 2**32 - 1, 700)[number % 4]
                elif number % 2:
                    buffer.extend(array("I", [97] * 999))
                else:
                    del buffer[5_000:]
            except BufferError:  # it is being read
                pass

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(60):
            try:
                assert len(tokenizer.decode(buffer)) >= 4_000
                assert tokenizer.decode_batch([buffer, buffer])
                tokenizer.convert_ids_to_tokens(buffer)
                tokenizer.decode_bytes(buffer)
            except (KeyError, ValueError):  # an id without a token
                assert change == "overwrites"
    finally:
        over.set()
        thread.join()
    assert works(tokenizer)


def test_an_array_that_another_thread_changes() -> None:
    numpy = need("numpy")
    tokenizer, over = made(), threading.Event()
    rows = numpy.full((8, 3_000), 97, dtype="uint32")

    def write() -> None:
        while not over.is_set():
            rows[:] = 700  # without the interpreter's lock, some of it
            rows[:] = 97

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(100):
            assert all(len(text) == 3_000 for text in tokenizer.decode_batch(rows))
            assert len(tokenizer.decode(rows[0])) == 3_000
    finally:
        over.set()
        thread.join()
    assert works(tokenizer)
