"""Arguments of tool calls that are JSON text, as OpenAI's API and many data sets have them.

Most templates print such text as it is.  Some go through the arguments, as through a mapping, and
fail on text.  Then the text is parsed, as its sender would have done.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.chat.budget import ExceededError

Result = TypeVar("Result")
_Messages = Sequence[Mapping[str, Any]]


def parsed_if_needed(
    source: str | None,
    messages: _Messages,
    make: Callable[[_Messages], Result],
    render: Callable[[_Messages], Any] | None = None,
) -> Result:
    """Return what `make` makes of messages; if it fails on arguments that are text, parse them.

    `source` is the Jinja template that `make` renders; None for others, which get what was given.
    `render` only renders it, if `make` does more, which can fail for other reasons.

    Raises:
        ValueError: `make` fails for another reason; or only for arguments that are text and not a
            JSON object.
    """
    try:
        return make(messages)
    except ExceededError:
        raise
    except ValueError as error:
        changed, wrong = _parsed(messages)
        if source is None or changed is None or (render and _renders(render, messages)):
            raise
        try:
            made = make(changed)
        except ExceededError:
            raise
        except ValueError as other:  # the arguments were not, or not alone, what it failed on
            if str(other) == str(error):
                raise error from None
            raise ValueError(f"{error}; with JSON arguments parsed: {other}") from None
        if wrong:
            raise ValueError(
                f"{wrong}, and the chat template goes through arguments as a mapping: pass a "
                f"mapping, or a JSON object as text ({error})"
            ) from None
    _tell(source)
    return made


def _renders(render: Callable[[_Messages], Any], messages: _Messages) -> bool:
    """Return whether messages can be rendered."""
    try:
        render(messages)
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=64)
def _tell(source: str) -> None:
    """Warn, once for each template."""
    core.warn(
        "the chat template takes the arguments of tool calls as a mapping, not as text: JSON text "
        "in messages was parsed; pass json.loads of it to parse it once"
    )


def _parsed(messages: _Messages) -> tuple[list[Any] | None, str]:
    """Return messages with arguments that are text parsed, and the first that isn't an object.

    That one is empty in them.  If no arguments are text, the messages are None.
    """
    changed, wrong, found = list[Any](), "", False
    for i, message in enumerate(messages):
        if "tool_calls" in message or "function_call" in message:
            message = core.copy_data(message)
            for place, call in _calls_with_text(message):
                found, text = True, call["arguments"]
                call["arguments"] = arguments = _as_object(text)
                if arguments is None:
                    call["arguments"] = {}
                    wrong = wrong or (
                        f"messages[{i}]: {place}.arguments is {core.shorten(text)}, which is not "
                        "a JSON object"
                    )
        changed.append(message)
    return (changed if found else None), wrong


def _calls_with_text(message: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the places of calls whose arguments are text, and the calls."""
    calls = message.get("tool_calls")
    places = [("function_call", message.get("function_call"))]
    for j, call in enumerate(calls if isinstance(calls, (list, tuple)) else ()):
        places.append((f"tool_calls[{j}]", call))
        if isinstance(call, dict):
            places.append((f"tool_calls[{j}].function", call.get("function")))
    for place, call in places:
        if isinstance(call, dict) and isinstance(call.get("arguments"), str):
            yield place, call


def _as_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a text; None if there is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
