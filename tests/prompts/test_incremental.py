"""Sessions: a text that shares a beginning or an end with the last one gets its own ids."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hard_text import ATOMS
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import examples, need

from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.prompts import sessions, threads
from bpe_tokenizer_tools.prompts.borders import borders_of_text

FORMS = ["NFC", "NFD", "NFKC", "NFKD", None]
# What looks behind, looks ahead, may match nothing, or leaves text out.
CUSTOM_PATTERNS = [
    r"[^\s]+(?=\s)|\s+|\S",
    r"\w+(?!b)|\s|\W",
    r"\s+$|\S+|\s",
    r"a+\Z|a|[^a]+",
    r"[a-z]+",
    r"(?<=a)b|a+|.",
    r"\bab\b|\w|\W",
    r"a*",
    r".*?,|\w+",
    r"\d{1,3}(?=(?:\d{3})*\b)|\D+",
    r"[\s\S]+",
    r" ?\w+| ?[^\w\s]+|\s+(?!\S)|\s+",
    r"ab(?=c)|a|b|c+",
    r"[^\n]*\n",
    r"[ab]+(?=[ab]c)|.",
]
ALPHABET = "aabbccAB 's1,\n\té世"
TEXT = st.text(st.sampled_from(ALPHABET), max_size=24)
MARKS = ["e\u0301", "\u0323\u0301", "가", "\u11a8", "ᄀ\u1161", "ﬁ", "Å", "が", "\u3099"]
TOKENS = ["<s>", "</s>", "<|im_end|>", "<|im", "<mask>", " b,", "a,b", "é1", "[c]"]
PART = st.one_of(
    TEXT,
    st.sampled_from([*ATOMS, *MARKS, *TOKENS]),
    st.lists(st.sampled_from([*ATOMS, *MARKS, *TOKENS]), max_size=12).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
# Where an edit begins, how much it takes away, and what it puts there: (0, 10**6, x) is another
# text, and places are taken modulo the length, so that most edits are anywhere.
EDITS = st.lists(st.tuples(st.integers(0, 400), st.sampled_from([0, 0, 1, 3, 50, 10**6]), PART))
TEXTS = st.tuples(st.lists(PART, max_size=12).map("".join), EDITS)


def edited(text: str, edits: list[tuple[int, int, str]]) -> list[str]:
    """Return a text, and what each edit makes of the one before."""
    texts = [text]
    for place, n, new in edits:
        at = place % (len(text) + 1)
        text = text[:at] + new + text[at + n :]
        texts.append(text)
    return [*texts, texts[0], texts[-1] + "a b."]


@pytest.fixture(autouse=True)
def many_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be checkpoints at almost every border, as there are in long texts only."""
    monkeypatch.setattr(sessions, "SPACING", 3)


def assert_same(tokenizer: BPETokenizer, texts: list[str], **options: Any) -> None:
    """Check each text in a session, and that changes lead from one to the next.

    In a third session, the second half of each text is appended to the first.
    """
    session, changes = tokenizer.incremental(), tokenizer.incremental(**options)
    growing, grown = tokenizer.incremental(**options), list[int]()
    ids: list[int] = []
    for number, text in enumerate(texts):
        at = len(text) // (2 + number % 3)
        for start, stop, new in (growing.update(text[:at]), growing.append(text[at:])):
            grown[start:stop] = new
        assert grown == tokenizer.encode(text, **options)
        expected = tokenizer.encode(text, **options)
        assert session.encode(text, **options) == expected
        start, stop, new = changes.update(text)
        ids[start:stop] = new
        assert ids == expected


def teach(tokenizer: BPETokenizer) -> BPETokenizer:
    """Give merges that join almost anything, so that every border shows in the ids."""
    rows = itertools.product(ALPHABET + "\u0301", repeat=2)
    counts = {"".join(row).encode(): 9 for row in rows}
    counts.update({word.encode() * 2: 5 for word in ("abc ", "ab", "c\n", "aa", " b", "11")})
    return tokenizer.train(counts=counts, vocab_size=900, min_frequency=1, verbose=False)


# -- Text ---------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [*sorted(SPLIT_PATTERNS), *CUSTOM_PATTERNS])
def test_every_pattern(pattern: str) -> None:
    tokenizer = teach(BPETokenizer(pattern, normalizer=None))

    @settings(max_examples=examples(40))
    @given(TEXTS)
    @example(("ab cd ef", [(8, 0, " gh"), (4, 1, "x"), (0, 0, "")]))
    def check(given: Any) -> None:
        assert_same(tokenizer, edited(*given))

    check()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("prefix", [False, True])
def test_every_normal_form(form: str | None, prefix: bool) -> None:
    made = teach(BPETokenizer("cl100k", normalizer=form))
    tokenizer = BPETokenizer._from_parts(
        dataclasses.replace(made.definition, prefix_space=prefix), *made._rest(), Path()
    )

    @settings(max_examples=examples(100))
    @given(TEXTS)
    @example(("a b", [(3, 0, "\u0301"), (3, 1, "")]))
    @example(("a e b", [(3, 0, "\u0301 c"), (3, 1, "")]))
    def check(given: Any) -> None:
        assert_same(tokenizer, edited(*given))

    check()


FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@pytest.mark.parametrize("pattern", ["gpt2", "o200k", r"\bab\b|\w|\W"])
def test_added_tokens_with_every_flag(pattern: str) -> None:
    made = teach(BPETokenizer(pattern))

    @settings(max_examples=examples(200))
    @given(
        st.lists(st.tuples(st.sampled_from(TOKENS), *[st.booleans()] * 5), min_size=1, max_size=5),
        st.booleans(),
        TEXTS,
    )
    def check(tokens: list[Any], prefix: bool, given: Any) -> None:
        definition = dataclasses.replace(made.definition, prefix_space=prefix)
        tokenizer = BPETokenizer._from_parts(definition, *made._rest(), Path())
        flagged = {text: AddedToken(text, **dict(zip(FLAGS, flags))) for text, *flags in tokens}
        tokenizer.add_special_tokens(list(flagged.values()))
        texts = edited(*given)
        assert_same(tokenizer, texts)
        assert_same(tokenizer, texts, allowed_special="all")

    check()


def test_options_may_change_between_calls() -> None:
    tokenizer = teach(BPETokenizer("gpt2"))
    tokenizer.add_special_tokens(["<s>", "</s>", "<mask>"])
    tokenizer.bos_token, tokenizer.eos_token = "<s>", "</s>"
    options = st.fixed_dictionaries(
        {},
        optional={
            "add_special_tokens": st.booleans(),
            "allowed_special": st.sampled_from(["none", "all", frozenset({"<mask>"})]),
        },
    )

    @settings(max_examples=examples(200))
    @given(TEXTS, st.lists(options, min_size=1, max_size=6))
    def check(given: Any, chosen: list[dict[str, Any]]) -> None:
        session, ids = tokenizer.incremental(), list[int]()
        for text, how in zip(edited(*given), itertools.cycle(chosen)):
            expected = tokenizer.encode(text, **how)
            start, stop, new = session.update(text, **how)
            ids[start:stop] = new
            assert ids == expected == session.encode(text, **how)
            start, stop, new = session.append("ab <mask>", **how)
            ids[start:stop] = new
            assert ids == tokenizer.encode(text + "ab <mask>", **how)

    check()


def test_options_of_a_session_hold_for_its_calls() -> None:
    tokenizer = BPETokenizer()
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.bos_token = "<s>"
    session = tokenizer.incremental(add_special_tokens=True, allowed_special="all")
    assert session.encode("a<s>") == [256, 97, 256]
    assert session.encode("a<s>", allowed_special="none") == [256, *b"a<s>"]
    with pytest.raises(ValueError, match="which disallowed_special names"):
        session.encode("a<s>", allowed_special="none", disallowed_special="all")
    assert session.encode("a<s>b") == [256, 97, 256, 98]


def test_a_session_follows_its_tokenizer() -> None:
    tokenizer = BPETokenizer("gpt2")
    session = tokenizer.incremental(allowed_special="all")
    text = "the cat, the dog <s> the end."
    assert session.encode(text) == tokenizer.encode(text)
    tokenizer.train([text] * 3, 300, min_frequency=1, verbose=False)
    assert session.encode(text) == tokenizer.encode(text)
    tokenizer.add_special_tokens(["<s>"])
    assert session.encode(text + " more") == tokenizer.encode(text + " more", allowed_special="all")


# -- Components ---------------------------------------------------------------

MARK = "▁"
PREPEND = {"type": "Prepend", "prepend": MARK}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
TWO_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
QUOTES = {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
NORMALIZERS: list[Any] = [
    None,
    [PREPEND, REPLACE],
    [REPLACE],
    [{"type": "NFKC"}, {"type": "Lowercase"}, TWO_SPACES],
    [{"type": "NFC"}, QUOTES, STRIP, {"type": "StripAccents"}],
    [{"type": "Lowercase"}, {"type": "NFD"}],
]
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True, "trim_offsets": True}
UNPREFIXED = {**BYTES, "add_prefix_space": False}
SPLIT = {"type": "Split", "invert": False}
PRE_TOKENIZERS: list[Any] = [
    None,
    [{"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always"}],
    [{"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}],
    [{"type": "Whitespace"}],
    [{"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Contiguous"}],
    [{"type": "Digits", "individual_digits": False}, {"type": "Punctuation"}],
    [{**SPLIT, "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}],
    [{**SPLIT, "pattern": {"Regex": r"\p{N}{1,3}"}, "behavior": "Isolated"}, BYTES],
    [{"type": "Digits", "individual_digits": True}, BYTES],
    [{**SPLIT, "pattern": {"Regex": r"\p{N}{1,3}"}, "behavior": "Isolated"}, UNPREFIXED],
    [{**SPLIT, "pattern": {"String": "ab"}, "behavior": "Isolated"}, UNPREFIXED],
    [{**SPLIT, "pattern": {"String": "at"}, "behavior": "Removed"}, BYTES],
    [{"type": "CharDelimiterSplit", "delimiter": ","}, {"type": "Whitespace"}],
]


def components(
    tmp_path: Path, normalizer: Any, pre_tokenizer: Any, by_words: bool = False
) -> BPETokenizer:
    """Train a BPE over characters in `tokenizers`, with or without merges from word to word."""
    library = need("tokenizers")
    texts = ["the cat sat on a mat, ab abc 12 " * 2, "aabbcc AB's é世 a b c ab\nbc", "▁a▁b▁ab"]
    made = library.Tokenizer(library.models.BPE(unk_token="<unk>"))
    if by_words:
        made.pre_tokenizer = library.pre_tokenizers.Metaspace()
    letters = [*"abcehmnost▁,.12<>|' \n", *map(chr, range(0x100, 0x144))]
    trainer = library.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>"], initial_alphabet=letters, show_progress=False
    )
    made.train_from_iterator([*texts * 4, *(text.replace(" ", MARK) for text in texts)], trainer)
    data = json.loads(made.to_str())
    wrap = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
    for field, steps in (("normalizer", normalizer), ("pre_tokenizer", pre_tokenizer)):
        data[field] = steps and {"type": "Sequence", wrap[field]: steps}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "special": True}
    n = len(data["model"]["vocab"])
    data["added_tokens"] += [
        {"id": n, "content": "<s>", "normalized": False, **flags},
        {"id": n + 1, "content": "[c]", "normalized": True, **flags, "special": False},
    ]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return BPETokenizer.from_file(path)


@pytest.mark.filterwarnings("ignore:.*no token for these characters")
@pytest.mark.parametrize("pre_tokenizer", PRE_TOKENIZERS)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_components(tmp_path: Path, normalizer: Any, pre_tokenizer: Any) -> None:
    if STRIP in (normalizer or ()) and pre_tokenizer == PRE_TOKENIZERS[2]:
        pytest.skip("a Metaspace for the first text behind Strip is refused")
    made = [components(tmp_path, normalizer, pre_tokenizer, by_words) for by_words in (False, True)]

    @settings(max_examples=examples(40))
    @given(st.sampled_from(made), TEXTS)
    @example(made[1], ("the cat<s> sat[c] on", [(20, 0, " a mat"), (15, 3, " ab")]))
    @example(made[0], ("the cat sat", [(11, 0, " on a mat"), (4, 3, "ab"), (0, 0, " ")]))
    @example(made[1], ("the cat sat", [(11, 0, " on a mat"), (4, 3, "ab"), (0, 0, " ")]))
    def check(tokenizer: BPETokenizer, given: Any) -> None:
        texts = edited(*given)
        assert_same(tokenizer, texts)
        assert_same(tokenizer, texts, allowed_special="all")

    check()


def whole_borders(tokenizer: BPETokenizer, text: str, allowed: Any = "none") -> list[int]:
    """Return every border of a text."""
    names = tokenizer.special_tokens if allowed == "all" else ()
    borders = borders_of_text(tokenizer, frozenset(names))
    found = (borders.last(text, at - 1, at + 1) for at in range(1, len(text)))
    return [border.at for border in found if border]


SENTENCE = "The cat, sat <s> on 12 mats."


@pytest.mark.filterwarnings("ignore:.*no token for these characters")
@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "cut"),
    [
        (NORMALIZERS[1], None, "The| cat,| sat| <s>| on| 12| mats."),  # Llama 2
        (NORMALIZERS[2], PRE_TOKENIZERS[6], "The| cat,| sat| <s>| on| 12| mats."),  # Gemma
        (NORMALIZERS[1], PRE_TOKENIZERS[2], "The| cat,| sat| <s>| on| 12| mats."),  # first
        (None, PRE_TOKENIZERS[3], "The| cat,| sat| <s>| on| 12| mats."),
        (None, PRE_TOKENIZERS[9], "The| cat|, sat| <s|> on| 12| mats|."),  # DeepSeek's kind
        (NORMALIZERS[3], None, "The cat, sat <s> on 12 mats."),  # nothing is proven
    ],
)
def test_where_components_are_cut(
    tmp_path: Path, normalizer: Any, pre_tokenizer: Any, cut: str
) -> None:
    tokenizer = components(tmp_path, normalizer, pre_tokenizer, by_words=True)
    places = [0, *whole_borders(tokenizer, SENTENCE), len(SENTENCE)]
    assert "|".join(SENTENCE[a:b] for a, b in itertools.pairwise(places)) == cut


def test_where_text_is_cut() -> None:
    def cut(tokenizer: BPETokenizer, text: str, allowed: str = "none") -> str:
        places = [0, *whole_borders(tokenizer, text, allowed), len(text)]
        return "|".join(text[a:b] for a, b in itertools.pairwise(places))

    plain = BPETokenizer("cl100k", normalizer=None)
    assert cut(plain, SENTENCE) == "The| cat|, sat| <s|> on| 12| mats|."
    assert cut(plain, "don't 中文，世界") == "don't| 中文|，世界"
    assert cut(BPETokenizer("cl100k"), "the e \u0301b, a.") == "the| e \u0301b|, a."
    unsafe = BPETokenizer(r"\bab\b|\w|\W")  # looks behind itself
    unsafe.add_special_tokens(["<s>", "</s>"])
    assert cut(unsafe, SENTENCE + "</s>") == SENTENCE + "</s>"
    assert cut(unsafe, SENTENCE + "</s>", "all") == "The cat, sat |<s> on 12 mats.|</s>"
    unsafe.add_special_tokens(["x<s"])  # may begin before the first
    assert cut(unsafe, SENTENCE, "all") == SENTENCE


# -- Conversations ------------------------------------------------------------

JINJA = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}<think>{{ m.reasoning or '' }}</think>{% endif %}"
    "{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def written(messages: list[dict[str, Any]], add_generation_prompt: bool = False) -> Any:
    for message in messages:
        yield f"<|im_start|>{message['role']}\n", True
        yield message["content"], False
        yield "<|im_end|>", True


CONTROL = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
SAID = st.one_of(
    st.sampled_from([*CONTROL, "Hi.", "<think>x</think>", "a  b", "é\u0301, c", "<|im", ""]),
    st.lists(
        st.sampled_from([*ATOMS, *MARKS, *CONTROL, "<think>", "</think>", "c..", " "]), max_size=9
    ).map("".join),
    TEXT,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "<|im_end|>"]), "content": SAID}
)
# Where a conversation goes on from, and what is said there.
TALKS = st.lists(st.tuples(st.integers(0, 9), st.lists(MESSAGE, max_size=3)), max_size=5)


def chatty(pattern: str, *flagged: AddedToken, normalizer: Any = None) -> BPETokenizer:
    made = teach(BPETokenizer(pattern, normalizer=normalizer))
    made.add_special_tokens(["<|begin_of_text|>", *CONTROL])
    made.add_special_tokens([AddedToken("<think>", special=False), *flagged])
    made.bos_token = "<|begin_of_text|>"
    made.chat_template = JINJA
    return made


SPACES = AddedToken("  ", special=False, normalized=True)  # spells text
EAGER = [
    AddedToken("</think>", special=False, lstrip=True, rstrip=True),
    AddedToken("c..", single_word=True),
]


@pytest.mark.parametrize("template", ["chatml", "llama3", None, written])
@pytest.mark.parametrize(
    ("pattern", "flagged", "normalizer"),
    [
        ("o200k", [], None),
        ("cl100k", [SPACES, *EAGER], "NFC"),
        (r"\bab\b|\w|\W", [SPACES], "NFKC"),
    ],
)
def test_conversations(template: Any, pattern: str, flagged: Any, normalizer: Any) -> None:
    tokenizer = chatty(pattern, *flagged, normalizer=normalizer)
    ways = st.sampled_from([{}, {"allowed_special": {"<|im_end|>"}}, {"system_prompt": "Be."}])

    @settings(max_examples=examples(40))
    @given(TALKS, ways, st.booleans())
    def check(talk: Any, way: dict[str, Any], prompt: bool) -> None:
        session, messages = tokenizer.incremental(), list[Any]()
        for place, more in talk:
            if template == "llama3":  # it refuses roles that it doesn't know
                more = [message for message in more if message["role"] not in CONTROL]
            messages[place:] = [*more, {"role": "user", "content": "Hi, you."}]
            given = {"add_generation_prompt": prompt, **way}
            expected = tokenizer.apply_chat_template(messages, template, **given)
            made = tokenizer.apply_chat_template(messages, template, session=session, **given)
            assert made == expected
            text = messages[-1]["content"] * 3
            if place == 3:  # the same session encodes something else in between
                assert session.encode(text) == tokenizer.encode(text)

    check()


def test_conversations_of_control_tokens_that_merges_give(tmp_path: Path) -> None:
    """A vocabulary that learned a control token: where text spells it, the whole is cut."""
    tokenizer = BPETokenizer("o200k", normalizer=None)
    tokenizer.train(["<|im_end|>" * 9, "ab cd " * 9], 300, min_frequency=1, verbose=False)
    vocab = {id_: token for token, id_ in tokenizer.definition.vocab.items()}
    tokens = dict(vocab)
    mark = next((id_ for id_, token in tokens.items() if token == b"|><|"), None) or 299
    learned = tokens[mark].decode()
    merges = [(vocab[a], vocab[b]) for a, b in tokenizer.definition.merges]
    known = {learned: mark, "<|im_start|>": 400, "<|im_end|>": 401}
    made = BPETokenizer.from_merges(vocab, merges, known, tokenizer.split_pattern or "", None)
    assert learned in made.special_tokens

    @settings(max_examples=examples(100))
    @given(st.lists(st.sampled_from(["ab cd", "<|im_end|>" * 2, learned, "ab. ", learned[0]])))
    def check(said: list[str]) -> None:
        session, messages = made.incremental(), list[Any]()
        for each in said:
            messages.append({"role": "user", "content": each + " ab, cd"})
            expected = made.apply_chat_template(messages, "chatml")
            assert made.apply_chat_template(messages, "chatml", session=session) == expected

    check()


@pytest.mark.filterwarnings("ignore:.*no token for these characters")
@pytest.mark.parametrize("steps", [(1, None), (2, 6), (1, 2), (4, 7)])
def test_conversations_of_components(tmp_path: Path, steps: Any) -> None:
    normalizer, pre_tokenizer = NORMALIZERS[steps[0]], steps[1] and PRE_TOKENIZERS[steps[1]]
    tokenizer = components(tmp_path, normalizer, pre_tokenizer)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])

    @settings(max_examples=examples(40))
    @given(TALKS)
    def check(talk: Any) -> None:
        session, messages = tokenizer.incremental(), list[Any]()
        for place, more in talk:
            messages[place:] = [*more, {"role": "user", "content": "the cat sat."}]
            expected = tokenizer.apply_chat_template(messages, "chatml")
            assert tokenizer.apply_chat_template(messages, "chatml", session=session) == expected

    check()


def test_options_with_a_session() -> None:
    tokenizer = chatty("o200k")
    session = tokenizer.incremental()
    messages = [{"role": "user", "content": "Hi, you."}, {"role": "assistant", "content": "Yes, a"}]
    for more in (
        {"return_dict": True, "return_assistant_tokens_mask": True},
        {"continue_final_message": True},
        {"content_tokens": "as-huggingface"},
        {"tokenize": False},
        {"truncation": True, "max_length": 60},
        {"return_dict": True, "return_offsets_mapping": True},
    ):
        expected = tokenizer.apply_chat_template(messages, **more)
        assert tokenizer.apply_chat_template(messages, session=session, **more) == expected
    with pytest.raises(ValueError, match="a session knows one conversation"):
        tokenizer.apply_chat_template([messages, messages], session=session)
    with pytest.raises(
        ValueError, match=r"session= must come from incremental\(\) of this tokenizer"
    ):
        BPETokenizer().apply_chat_template(messages, "alpaca", session=session)


# -- The object ---------------------------------------------------------------


def test_what_is_wrong_leaves_the_session_as_it_was() -> None:
    tokenizer = teach(BPETokenizer("gpt2"))
    session, text = tokenizer.incremental(), "ab cd, ab. " * 9
    ids = session.encode(text)
    with pytest.raises(ValueError, match="U\\+D800 at character 103"):
        session.encode(text + "ab c\ud800")
    with pytest.raises(TypeError, match="text must be a str"):
        session.encode(b"ab")
    with pytest.raises(ValueError, match="allowed_special"):
        session.encode(text, allowed_special="some")
    start, stop, new = session.update(text + "ab.")
    assert start > len(ids) // 2  # it still knows the text
    ids[start:stop] = new
    assert ids == tokenizer.encode(text + "ab.")
    with pytest.raises(ValueError, match="allowed_special"):
        tokenizer.incremental(allowed_special="some")
    for more in ({"dropout": 0.1}, {"num_threads": 2}, {"seeds": 1}):
        problem = f"a session takes .*disallowed_special, got {[*more][0]}"
        with pytest.raises(TypeError, match=problem):
            tokenizer.incremental(**more)
        with pytest.raises(TypeError, match=problem):
            session.encode(text, **more)


def test_appending(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs what is new: nothing before the last checkpoint is encoded again."""
    monkeypatch.setattr(sessions, "SPACING", 100)
    seen: list[int] = []

    class Watched(BPETokenizer):
        def encode(self, text: Any, *given: Any, **options: Any) -> list[int]:
            seen.append(len(text))
            return super().encode(text, *given, **options)

    session, text = Watched("gpt2").incremental(), "ab, cd. " * 200
    mine = "".join([text])
    ids = session.encode(mine)
    monkeypatch.setattr(session._kept, "_shared_start", None)  # nothing is compared
    for i in range(300):
        seen.clear()
        more = f" ab{i}, c" if i % 7 else ""
        start, stop, new = session.append(more)
        ids[start:stop] = new
        text += more
        assert sum(seen) < 20 and start > len(ids) - 20
    assert ids == BPETokenizer("gpt2").encode(text)
    assert session._kept and session._kept.text == text and mine == "ab, cd. " * 200
    assert session._kept.ids == ids
    big = "ab, cd" * 100
    monkeypatch.undo()
    monkeypatch.setattr(sessions, "SPACING", 100)
    start, stop, new = session.append(big)  # more than is between two checkpoints
    ids[start:stop] = new
    assert ids == BPETokenizer("gpt2").encode(text + big)


def test_what_cannot_be_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SPACING", 100)
    tokenizer = BPETokenizer("gpt2")
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    session = tokenizer.incremental()
    assert session.append("ab") == (0, 0, [97, 98])  # to nothing
    for wrong, error, problem in (
        (None, TypeError, "text must be a str, got NoneType"),
        (b"c", TypeError, "text must be a str, got bytes"),
        ("c\ud800", ValueError, r"U\+D800 at character 1"),
    ):
        with pytest.raises(error, match=problem):
            session.append(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="which disallowed_special names"):
        session.append("<|im_end|>", disallowed_special="all")
    with pytest.raises(TypeError, match="a session takes .*, got seeds"):
        session.append("c", seeds=1)
    assert session.append(" c").new == tokenizer.encode("ab c")
    tokenizer.apply_chat_template([{"role": "user", "content": "a"}], "chatml", session=session)
    with pytest.raises(ValueError, match="the last text was a conversation.*call update with"):
        session.append("b")
    ids = session.encode("ab, cd")
    assert session._kept

    def interrupt(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(session._kept, "_grow", interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.append(" ef")
    with pytest.raises(ValueError, match="the last call was interrupted; call update with the who"):
        session.append(" ef")
    start, stop, new = session.update("ab, cd ef")
    ids[start:stop] = new
    assert ids == tokenizer.encode("ab, cd ef")
    session.clear()
    assert session.append("x") == (0, 0, [120])


def test_a_token_that_ends_in_what_is_appended() -> None:
    tokenizer = BPETokenizer("gpt2")
    tokenizer.add_special_tokens(["<s>"])
    session = tokenizer.incremental()
    session.encode("a, b <s", allowed_special="all")
    with pytest.raises(ValueError, match="which disallowed_special names"):
        session.append("> c", disallowed_special="all")
    start, stop, new = session.append("> c", allowed_special="all")
    assert tokenizer.decode(new).endswith("<s> c") and 256 in new


def test_results_are_the_callers() -> None:
    tokenizer = BPETokenizer()
    session = tokenizer.incremental()
    first = session.encode("ab cd")
    first.clear()
    assert session.encode("ab cd e") == tokenizer.encode("ab cd e")
    session.clear()
    assert session.update("ab cd") == (0, 0, tokenizer.encode("ab cd"))


def test_a_session_is_for_one_thread_at_a_time() -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(BPETokenizer):
        def encode(self, *given: Any, **options: Any) -> list[int]:
            entered.set()
            go_on.wait(600)
            return super().encode(*given, **options)

    go_on.set()
    session = Slow(normalizer=None).incremental()
    go_on.clear()
    entered.clear()
    thread = threading.Thread(target=session.encode, args=("a b c",))
    thread.start()
    assert entered.wait(600)
    with pytest.raises(RuntimeError, match="another thread is using this session"):
        session.encode("a")
    go_on.set()
    thread.join()
    assert session.encode("a b c d") == list(b"a b c d")


def test_memory_is_that_of_the_last_text() -> None:
    tokenizer = BPETokenizer(normalizer=None)
    session = tokenizer.incremental()
    for n in (50_000, 10, 40_000, 100):
        text = "ab, " * n
        assert len(session.encode(text)) == 4 * n
        kept = session._kept
        assert kept and kept.text is text
        assert len(kept.ids) == 4 * n
        rows = {len(kept.at), len(kept.proof_ends), len(kept.n_ids)}
        assert len(rows) == 1
        assert rows.pop() <= len(text)
        assert kept.at == sorted(set(kept.at))


def test_checkpoints_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SPACING", 100)
    tokenizer = teach(BPETokenizer("gpt2"))
    session, text = tokenizer.incremental(), "ab, cd"
    for i in range(600):  # typed
        text += f" ab{i}."[: i % 9]
        session.update(text)
    for i in range(600):  # edited
        at = i * 7919 % len(text)
        text = text[:at] + " cd."[: i % 6] + text[at + i % 4 :]
        session.update(text)
    assert session.encode(text) == tokenizer.encode(text)
    kept = session._kept
    assert kept
    # Any three, but the last ones, are 100 characters apart.
    assert len(kept.at) <= 2 * len(text) / 100 + 2
    assert all(text[at - 1].isalnum() != text[at].isalnum() for at in kept.at)


def test_an_edit_encodes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SPACING", 100)
    tokenizer = teach(BPETokenizer("gpt2"))
    session = tokenizer.incremental()
    text = "".join(f"ab{i}, cd{i % 7}. " for i in range(2000))
    session.encode(text)
    for new in (
        text + "ab",
        text[:9000] + "x" + text[9000:],
        text[:9000] + text[9040:],
        text[:5000] + "abc, " * 20 + text[5100:],
        text[: len(text) // 2],
    ):
        assert len(session.update(new).new) < 900
        assert len(session.update(text).new) < 900 + abs(len(text) - len(new))


# -- One text on several threads ----------------------------------------------


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_LEAST", 4)  # half of it, too
    monkeypatch.setattr(threads, "_SHARE", 4)


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize(
    "pattern", ["gpt2", "o200k", "deepseek-v3", CUSTOM_PATTERNS[0], CUSTOM_PATTERNS[5]]
)
@pytest.mark.parametrize("form", ["NFC", "NFKD", None])
def test_threads_give_the_ids_of_one(pattern: str, form: str | None) -> None:
    tokenizer = teach(BPETokenizer(pattern, normalizer=form))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.bos_token = "<s>"

    @settings(max_examples=examples(60))
    @given(st.lists(PART, max_size=20).map("".join), st.integers(1, 5))
    @example("ab cd, ef " * 9, 2)
    def check(text: str, n: int) -> None:
        for options in ({}, {"allowed_special": "all"}, {"add_special_tokens": True}):
            assert tokenizer.encode(text, num_threads=n, **options) == tokenizer.encode(
                text, **options
            )

    check()


@pytest.mark.usefixtures("short_parts")
@pytest.mark.filterwarnings("ignore:.*no token for these characters")
def test_threads_with_components(tmp_path: Path) -> None:
    tokenizer = components(tmp_path, NORMALIZERS[1], None, by_words=True)
    text = "the cat sat <s> on a mat, " * 20
    for allowed in ("none", "all"):
        made = tokenizer.encode(text, allowed_special=allowed, num_threads=3)
        assert made == tokenizer.encode(text, allowed_special=allowed)


def test_threads_on_a_long_text(corpora: Any, vocab_dir: Path) -> None:
    tokenizer = BPETokenizer.from_file(vocab_dir / "o200k_base.tiktoken")
    many, code = ((corpora(name) * 40)[:300_000] for name in ("multi", "code"))
    text = many + "\x85" * 200_000 + code
    assert len(text) == 800_000
    assert tokenizer.encode(text, num_threads=2) == tokenizer.encode(text)
    numpy = pytest.importorskip("numpy")
    made = tokenizer.encode_to_numpy(text, num_threads=10**6)  # as many as are of use
    assert made.dtype == numpy.uint32
    assert made.tolist() == tokenizer.encode(text)
    with pytest.raises(ValueError, match="U\\+D800 at character 800007"):
        tokenizer.encode_to_numpy(text + "a b c d\ud800 e", num_threads=2)
    with pytest.raises(ValueError, match="U\\+D800 at character 800007"):
        tokenizer.encode(text + "a b c d\ud800 e", num_threads=2)
    with pytest.raises(TypeError, match="text must be a str"):
        tokenizer.encode(None, num_threads=2)  # type: ignore[arg-type]
    for wrong in (0, -1, 1.5, "2"):
        with pytest.raises((TypeError, ValueError), match="num_threads"):
            tokenizer.encode("a", num_threads=wrong)  # type: ignore[arg-type]


def test_what_two_texts_share(engine: str) -> None:
    own: Any = core.encoder(BPETokenizer())
    pairs = [(sessions._shared_start, sessions._shared_end)]
    if engine == "accelerated":
        pairs.append((own.shared_start, own.shared_end))

    def naive(left: str, right: str) -> int:
        return next((i for i, (a, b) in enumerate(zip(left, right)) if a != b), 10**6)

    long = st.sampled_from(["", "a" * 2000, "é" * 3000, "世" * 1500, "🙂" * 900])

    @settings(max_examples=examples(200))
    @given(long, TEXT, long, TEXT, long, TEXT)
    def check(start: str, x: str, middle: str, y: str, end: str, z: str) -> None:
        left, right = start + x + middle + y + end, start + z + middle + x + end
        n = min(len(left), len(right))
        for shared_start, shared_end in pairs:
            assert shared_start(left, right) == min(n, naive(left, right))
            assert shared_end(left, right, n) == min(n, naive(left[::-1], right[::-1]))
            assert shared_end(left, right, n // 2) == min(n // 2, naive(left[::-1], right[::-1]))

    check()
