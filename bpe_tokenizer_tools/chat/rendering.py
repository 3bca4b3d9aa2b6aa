"""Conversations as segments: texts, each with whether the template or people wrote it.

A template trusts its own text, where "<|eot_id|>" is a control token.  It never trusts what
people wrote: there "<|eot_id|>" is ten characters, whatever is around them, and whatever
normalization and merges make of them.  The built-in templates and a caller's own functions
give segments; so does, in the end, a template in Jinja (`encoding.py`).
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from bpe_tokenizer import AddedToken, BPETokenizer, ChatTemplate, Definition
from bpe_tokenizer_tools import core

Segment = tuple[str, bool]
Span = tuple[int, int]
_Part = tuple[str | AddedToken, list[Span]]
Talk = list[dict[str, Any]]  # a conversation that was checked

# The roles that chat templates know.  One of these words is as good as the template's own
# text: some templates make control tokens of it, such as "<|" + role + "|>".
CHAT_ROLES = {"system", "developer", "user", "assistant", "model", "tool", "function"}
CHAT_ROLES |= {"ipython", "observation", "tool_response"}
SYSTEM_ROLES = ("system", "developer")
THOUGHTS = ("reasoning_content", "thinking", "reasoning")  # names of one thing


def check_messages(messages: Any, system_prompt: str | None = None, least: int = 0) -> Talk:
    """Return a conversation of `least` messages or more, without the fields that are None.

    A system prompt that isn't empty goes first, unless a message gives instructions.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        got = type(messages).__name__
        raise TypeError(f"messages must be a list of {{'role': ..., 'content': ...}}, got {got}")
    checked: Talk = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(f"messages[{i}] must be a mapping, got {type(message).__name__}")
        if not all(isinstance(key, str) for key in message):
            raise TypeError(f"messages[{i}]: the keys of a message must be strings")
        known = {key: value for key, value in message.items() if value is not None}
        role, content = known.get("role"), known.get("content", "")
        if not isinstance(role, str) or not role:
            raise ValueError(f"messages[{i}]['role'] must be a word, got {core.shorten(role)}")
        if not isinstance(content, (str, list, tuple)):
            got = core.shorten(content)
            raise ValueError(f"messages[{i}]['content'] must be a string or a list, got {got}")
        checked.append(known)
    if not isinstance(system_prompt, (str, type(None))):
        raise TypeError(f"system_prompt must be a str, got {type(system_prompt).__name__}")
    if system_prompt and not any(each["role"] in SYSTEM_ROLES for each in checked):
        checked.insert(0, {"role": "system", "content": system_prompt})
    if len(checked) < least:
        raise ValueError("the conversation is empty, pass at least one message")
    return checked


def copy_data(value: Any, mark: Callable[[str], str] = str) -> Any:
    """Copy plain data, each string through `mark`; other objects become "<their type>"."""
    if isinstance(value, str):
        return mark(str.__str__(value))  # of a subclass, too, such as an Enum
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, (str, int, float, type(None))) for key in value):
            raise TypeError("the keys of an object in a conversation must be strings or numbers")
        return {copy_data(key, mark): copy_data(item, mark) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [copy_data(item, mark) for item in value]
    return mark(f"<{type(value).__name__}>")


def with_thoughts(message: dict[str, Any]) -> dict[str, Any]:
    """Give a message's thoughts both names by which templates read them, as HuggingFace does."""
    found = [message[name] for name in THOUGHTS if name in message]
    return {"thinking": found[0], **message, "reasoning_content": found[0]} if found else message


def _turns(messages: Talk, prompt: bool, start: str, middle: str, end: str) -> Iterator[Segment]:
    """Yield turns with their roles in a header, and with `prompt` the header of an answer."""
    for message in messages:
        yield start, True
        yield message["role"], message["role"] in CHAT_ROLES
        yield middle, True
        yield message["content"], False
        yield end, True
    if prompt:
        yield f"{start}assistant{middle}", True


def _llama3(messages: Talk, prompt: bool) -> Iterator[Segment]:
    """Source: Meta-Llama-3-8B-Instruct's chat template; contents are stripped there."""
    stripped = [{**each, "content": each["content"].strip()} for each in messages]
    yield "<|begin_of_text|>", True
    header = "<|start_header_id|>", "<|end_header_id|>\n\n"
    yield from _turns(stripped, prompt, *header, "<|eot_id|>")


def _chatml(messages: Talk, prompt: bool) -> Iterator[Segment]:
    """Source: OpenAI's ChatML as Qwen uses it, without a default system prompt."""
    return _turns(messages, prompt, "<|im_start|>", "\n", "<|im_end|>\n")


_ALPACA = {"user": "### Instruction:\n", "assistant": "### Response:\n"}
_ALPACA_TASK = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request."
)


def _alpaca(messages: Talk, prompt: bool) -> Iterator[Segment]:
    """Source: Stanford Alpaca's prompt as github.com/tloen/alpaca-lora spells it, by turns."""
    has_system = bool(messages) and messages[0]["role"] == "system"
    yield (messages[0]["content"], False) if has_system else (_ALPACA_TASK, True)
    for message in messages[has_system:]:
        if message["role"] not in _ALPACA:
            raise ValueError(
                f"the alpaca template has no role {str(message['role'])!r} here: it knows one "
                "system message, first, then user and assistant"
            )
        yield f"\n\n{_ALPACA[message['role']]}", True
        yield message["content"], False
    yield f"\n\n{_ALPACA['assistant']}" if prompt else "\n\n", True


BUILT_IN = {"llama3": _llama3, "chatml": _chatml, "alpaca": _alpaca}


def as_text(name: str, messages: Any, prompt: bool, system_prompt: str | None) -> str:
    """Render a conversation with a built-in template; see `bpe_tokenizer.ChatTemplate`."""
    segments = render(name, check_messages(messages, system_prompt), prompt)
    return "".join([text for text, _ in segments])


def find_template(template: Any, own: Mapping[str, str], added: Collection[str]) -> Any:
    """Return the name of a built-in template, a function, or Jinja source; None if there is none.

    `own` are the tokenizer's templates by name, and `added` its added tokens.
    """
    if template is None and not own:
        question = [{"role": "user", "content": "question"}]
        both = ("llama3", "chatml")
        fits = [name for name in both if not _missing(render(name, question, True), added)]
        return [*fits, "llama3"][0]
    if template is None or isinstance(template, str):
        template = own.get("default" if template is None else template, template)
    for name in BUILT_IN:
        if template in (name, getattr(ChatTemplate, name)):
            return name
    if template is None or callable(template):
        return template
    if not isinstance(template, str):
        raise TypeError(f"template must be a str or a function, got {type(template).__name__}")
    if "{" not in template and template not in own.values():
        names = ", ".join([*own, *BUILT_IN])
        raise ValueError(
            f"unknown chat template {template!r}, expected one of {names}, or Jinja source"
        )
    return template


_PAIRS = (
    "expected (text, trusted) pairs: the template's own text is trusted, what people wrote is not, "
    'as in `yield "<|im_start|>user\\n", True; yield message["content"], False`'
)


def render(template: Any, messages: Talk, prompt: bool, **variables: Any) -> list[Segment]:
    """Render messages with a built-in template, given by its name, or a function."""
    if isinstance(template, str):
        for i, message in enumerate(messages):
            if not isinstance(message.get("content"), str):
                got = f"{template!r}, got {core.shorten(message.get('content'))}"
                raise ValueError(
                    f"messages[{i}]['content'] must be a string for the template {got}"
                )
        return list(BUILT_IN[template](messages, prompt))
    copies = [with_thoughts(copy_data(message)) for message in messages]
    made, segments = template(copies, **variables, add_generation_prompt=prompt), []
    if isinstance(made, str) or not isinstance(made, Iterable):
        raise TypeError(f"the template function returned {core.shorten(made)}; {_PAIRS}")
    for pair in made:
        if not (isinstance(pair, tuple) and len(pair) >= 2 and isinstance(pair[0], str)):
            raise TypeError(f"the template function gave {core.shorten(pair)}; {_PAIRS}")
        segments += [(pair[0], bool(pair[1]))] if pair[0] else []
    return segments


# The shapes that only control tokens have.  "<think>" or "[INST]" may be ordinary text.
_CONTROL = re.compile(
    r"<\|[^|<>\s\0]+\|?>|<[^|<>\s\0]+\|>|<｜[^｜<>\s\0]+｜>|<(?:start|end)_of_turn>"
)


def _missing(segments: Iterable[Segment], added: Collection[str]) -> list[str]:
    """Return the control tokens that a template writes and that are in no added token."""
    own = "".join([text if trusted else "\0" for text, trusted in segments])
    written = [token for token in dict.fromkeys(_CONTROL.findall(own)) if token not in added]
    return [token for token in written if not any(token in known for known in added)]


def check_control(segments: Iterable[Segment], added: Collection[str], default: str) -> None:
    """Refuse control tokens that aren't tokens; `default` names the template if nobody chose it."""
    missing = ", ".join(map(repr, _missing(segments, added)[:8]))
    which = f"this tokenizer has no chat template, and the default one, {default},"
    if missing:
        raise ValueError(
            f"{which if default else 'the chat template'} writes {missing}, which this tokenizer "
            "has no tokens for: add them with add_special_tokens, or choose another template"
        )


def spells_text(token: AddedToken) -> bool:
    """Return whether a token stands for white space or one visible character: no control token.

    Vocabularies have such tokens for indented code, for instance.  "▁" is SentencePiece's space.
    """
    content = token.content
    is_visible = len(content) == 1 and not unicodedata.category(content).startswith("C")
    return not token.special and (is_visible or not content.strip(" ▁\t\r\n"))


class SegmentEncoder:
    """Encodes segments of text, each with the added tokens that may come out of it.

    Args:
        encoder: the tokenizer's.
        definition: its definition.
        is_text: tells which tokens control nothing: they count everywhere, also across segments.
    """

    def __init__(
        self,
        encoder: core.Encoder,
        definition: Definition,
        is_text: Callable[[AddedToken], bool] = spells_text,
    ) -> None:
        added = definition.added
        texts = [token for token in added if not token.special and is_text(token)]
        ids = {token.id for token in texts}
        control = {token.content: token for token in added if token.id not in ids}
        self._encoder, self._control, self._pipeline = encoder, control, encoder.pipeline(texts)
        self._ids = {token.id for token in control.values()}
        self._learned = self._ids.intersection(definition.vocab.values())  # merges may give them
        self._finder = functools.lru_cache(maxsize=64)(
            lambda contents: core.TokenFinder(control[each] for each in contents if each in control)
        )

    def encode(
        self,
        segments: Iterable[tuple[str, frozenset[str]]],
        align: bool = False,
        first: bool = True,
    ) -> tuple[list[int], list[Span]]:
        """Encode segments as one text, with offsets if `align`; `first` is as for a pipeline."""
        groups = itertools.groupby(segments, operator.itemgetter(1))
        joined = [("".join([text for text, _ in group]), tokens) for tokens, group in groups]
        parts = list(self._pipeline.parts(*self._matches(joined), align, first))
        ids, offsets = core.encode_parts(self._encoder, parts, align)
        # Merges, too, can give a token to its own text, where a vocabulary has learned them.
        if self._learned:
            control = (part.id in self._ids for part, _ in parts if isinstance(part, AddedToken))
            if sum(map(self._ids.__contains__, ids)) > sum(control):
                ids, offsets = core.encode_parts(self._encoder, self._cut(parts), align)
        return ids, offsets

    def _matches(self, segments: list[tuple[str, frozenset[str]]]) -> tuple[str, list[core.Match]]:
        """Return the text, and its control tokens, each in a segment, with the others between."""
        text = "".join([part for part, _ in segments])
        found: list[core.Match] = []
        at = done = 0
        for part, tokens in segments:
            if tokens:
                inside = self._finder(tokens).find(text, done, at, stop=at + len(part))
                found += [match for match in inside if match[2]]
            at, done = at + len(part), found[-1][1] if found else 0
        matches: list[core.Match] = []
        for begin, end, token in core.text_between(found, len(text)):
            between = self._pipeline.raw.find(text, begin, stop=end)
            matches += [(begin, end, token, end)] if token else between
        return text, matches

    def _cut(self, parts: Iterable[_Part]) -> Iterator[_Part]:
        """Cut text behind the first character of each control token that it spells."""
        contents = [*self._control, *map(self._pipeline.normalize, self._control)]
        # A look-ahead finds all of them, also those that overlap.
        find = re.compile(f"(?={'|'.join(map(re.escape, filter(None, contents)))})")
        for part, spans in parts:
            if isinstance(part, AddedToken):
                yield part, spans
                continue
            cuts = [0, *(found.start() + 1 for found in find.finditer(part)), len(part)]
            for start, stop in itertools.pairwise(cuts):
                yield part[start:stop], spans[start:stop]


def segment_encoder(tokenizer: BPETokenizer) -> SegmentEncoder:
    """Return what encodes the segments of a rendered conversation, made once per vocabulary."""
    made: SegmentEncoder = core.derived(tokenizer, SegmentEncoder)
    return made
