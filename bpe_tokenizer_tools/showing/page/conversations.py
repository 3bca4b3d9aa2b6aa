"""The built-in chat templates for the page: the text of each around the contents of messages.

The page only joins these strings.  They come from rendering short conversations, so no rule of a
template is written twice.  A built-in template's text between two messages depends only on their
roles; tests/showing/test_page_sharing.py checks that.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from bpe_tokenizer import Definition
from bpe_tokenizer_tools import core

ROLES = ("system", "user", "assistant", "tool")


def templates() -> dict[str, Any]:
    r"""Return each template's own text before, between and after messages, by their roles.

    Roles that a template refuses at some place have no text there.

    >>> between = templates()["chatml"]["between"]
    >>> between["user assistant"]
    '<|im_end|>\n<|im_start|>assistant\n'
    """
    return {name: _template(name) for name in core.BUILT_IN}


def missing(definition: Definition) -> dict[str, list[str]]:
    """Return the control tokens of each template that a tokenizer doesn't have."""
    added = {token.content for token in definition.added}
    question = [{"role": "user", "content": "question"}]
    return {
        name: core.missing_control(core.render(name, question, True), added)
        for name in core.BUILT_IN
    }


def white_space() -> str:
    """Return the characters that `str.strip` removes; JavaScript's `trim` removes others."""
    return "".join(filter(str.isspace, map(chr, range(0x110000))))


def _template(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"opening": {}, "between": {}, "closing": {}}
    for role in ROLES:
        alone = [_own_text(name, [role], prompt) for prompt in (False, True)]
        if texts := [each for each in alone if each]:
            found["opening"][role] = texts[0][0]
            found["closing"][role] = [each[1] for each in texts]
    for pair in itertools.product(ROLES, repeat=2):
        if between := _own_text(name, pair, True):
            found["between"][" ".join(pair)] = between[1]
    stripped = core.render(name, [{"role": "user", "content": " x "}], True)
    return {**found, "strips": ("x", False) in stripped}


def _own_text(name: str, roles: Sequence[str], prompt: bool) -> list[str] | None:
    """Return a template's text before, between and after contents; None if it refuses."""
    try:
        talk = [{"role": role, "content": "x"} for role in roles]
        segments = core.render(name, talk, prompt, **core.ALL_TURNS.get(name, {}))
    except ValueError:
        return None
    texts = [""]
    for text, trusted in segments:
        if trusted:
            texts[-1] += text
        else:
            texts.append("")
    return texts
