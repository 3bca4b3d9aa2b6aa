"""Templates that are functions: their arguments, and the segments they return.

The built-in templates, and what encodes segments, are section 9 of bpe_tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from bpe_tokenizer_tools import core

THOUGHTS = ("reasoning_content", "thinking", "reasoning")  # names for the same field


_MAX_DEPTH = 200  # of lists and mappings in each other


def copy_data(value: Any, mark: Callable[[str], str] = str, depth: int = 0) -> Any:
    """Copy data as plain data of the same kinds, passing each string through `mark`.

    A template sees no other objects: their methods might do anything.  So subclasses become what
    they are based on, dataclasses and Pydantic models become dicts, and the rest "<TypeName>".
    """
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return mark(str.__str__(value))  # of a subclass, too, such as an Enum
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if depth >= _MAX_DEPTH:
        raise ValueError(f"a conversation has lists or mappings nested {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        if not all(isinstance(key, (str, int, float, type(None))) for key in value):
            raise TypeError("the keys of an object in a conversation must be strings or numbers")
        return {
            copy_data(key, mark): copy_data(item, mark, depth + 1) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        items = [copy_data(item, mark, depth + 1) for item in value]
        return items if isinstance(value, list) else tuple(items)
    plain = core.as_plain(value)
    if plain is not value:
        return copy_data(plain, mark, depth + 1)
    return mark(f"<{type(value).__name__}>")


def with_thoughts(message: dict[str, Any]) -> dict[str, Any]:
    """Give a message's thoughts both names that templates read, as HuggingFace does."""
    found = [message[name] for name in THOUGHTS if name in message]
    return {"thinking": found[0], **message, "reasoning_content": found[0]} if found else message


def find_template(template: Any, own: Mapping[str, str], added: Collection[str]) -> Any:
    """Return the name of a built-in template, a function, or Jinja source; None if there is none.

    `own` are the tokenizer's templates by name, and `added` its added tokens.
    """
    name = core.built_in(template, own, added)
    if name is not None:
        return name
    if template is None or isinstance(template, str):
        template = own.get("default" if template is None else template, template)
    if template is None or callable(template):
        return template
    if not isinstance(template, str):
        hint = ""
        if isinstance(template, Mapping):
            hint = "; assign named templates to tokenizer.chat_template, and pass a name here"
        got = type(template).__name__
        raise TypeError(f"template must be a str or a function, got {got}{hint}")
    if "{" not in template and template not in own.values():
        names = ", ".join([*own, *core.BUILT_IN])
        raise ValueError(
            f"unknown chat template {template!r}, expected one of {names}, or Jinja source"
        )
    return template


_PAIRS = (
    "expected (text, trusted) pairs: the template's own text is trusted, and user-supplied text is "
    'not, as in `yield "<|im_start|>user\\n", True; yield message["content"], False`'
)


def render(template: Any, talk: core.Talk, prompt: bool, **variables: Any) -> list[core.Segment]:
    """Render a conversation with a built-in template, given by its name, or a function."""
    if isinstance(template, str):
        return core.render(template, talk, prompt)
    copies = [with_thoughts(copy_data(message)) for message in talk]
    made, segments = template(copies, **variables, add_generation_prompt=prompt), []
    if isinstance(made, str) or not isinstance(made, Iterable):
        raise TypeError(f"the template function returned {core.shorten(made)}; {_PAIRS}")
    for pair in made:
        if not (isinstance(pair, tuple) and len(pair) >= 2 and isinstance(pair[0], str)):
            raise TypeError(f"the template function gave {core.shorten(pair)}; {_PAIRS}")
        segments += [(pair[0], bool(pair[1]))] if pair[0] else []
    return segments
