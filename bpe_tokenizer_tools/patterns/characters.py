r"""Which characters a class matches in the library's own version of Unicode.

Everything that lists the members of a set asks `members`, so that the answer doesn't depend on the
Unicode of the installed `regex`: see `Pattern` in bpe_tokenizer.py, which does the same for text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.patterns.algebra import WORD_CHARS, UnknownConstructError

CODE_POINTS = 0x110000
BMP = 0x10000  # the first code point beyond the Basic Multilingual Plane

_every_character = functools.cache(core.every_character)


@functools.lru_cache(maxsize=256)
def members(pattern: str, stop: int = CODE_POINTS) -> tuple[tuple[int, int], ...]:
    r"""Return the runs of code points, below `stop`, that a pattern of one character matches.

    >>> members(r"(?i:s)")
    ((83, 84), (115, 116), (383, 384))
    """
    text, compiled = _every_character()[:stop], core.Pattern(f"(?:{pattern})++")
    if compiled.stand_ins is not None:
        found = compiled.compiled.finditer(_with(compiled.stand_ins, text))
        return tuple(run.span() for run in found)
    runs: list[tuple[int, int]] = []
    for start, end in _apart(compiled, text):
        if runs and runs[-1][1] == start:
            start = runs.pop()[0]
        runs.append((start, end))
    return tuple(runs)


def _apart(pattern: core.Pattern, text: str) -> Iterator[tuple[int, int]]:
    """Yield what matches, of characters that `regex` knows and of others by themselves."""
    written_out, _ = pattern.ready(text)
    done = 0
    for start, end, _ in core.changed_characters():
        yield from (found.span() for found in pattern.compiled.finditer(text, done, start))
        yield from (found.span() for found in written_out.finditer(text, start, end))
        done = end
    yield from (found.span() for found in pattern.compiled.finditer(text, done))


def _with(stand_ins: list[tuple[tuple[int, int], str]], text: str) -> str:
    """Put stand-ins into a text of all characters; much faster than `str.translate`."""
    parts: list[str] = []
    done = 0
    for (first, end), char in stand_ins:
        parts += text[done:first], char * (min(end, len(text)) - first)
        done = end
    return "".join([*parts, text[done:]])


def spelled(runs: tuple[tuple[int, int], ...]) -> str:
    r"""Write runs of code points as the members of a set.

    >>> print(spelled(((48, 58), (66304, 66305))))
    \u0030-\u0039\U00010300
    """
    return "".join(
        _escape(first) + ("-" + _escape(end - 1)) * (end > first + 1) for first, end in runs
    )


def _escape(point: int) -> str:
    return f"\\u{point:04x}" if point < BMP else f"\\U{point:08x}"


# -- Writing out -----------------------------------------------------------------

_TOKEN = re.compile(
    r"\\[pP](?:\{[^}]*\}|.)|\\[xuUN]|\\.|\[\^?\]?|\]|\(\?[a-zA-Z0-9-]+[:)]|\(\?P?[<=!>:|#]?|.",
    re.DOTALL,
)
_CLASS = re.compile(r"\\[pPwWsSdD]")
_UNLISTED = re.compile(r"\\[hHLmMRX]")  # the last ones match several characters, or a place
_WORD_BORDERS = {"\\b": ("!", "="), "\\B": ("=", "!")}


def written_out(pattern: str) -> str:
    r"""Write each class in a pattern as the characters it has in the library's version of Unicode.

    The result is long and slow, so it is only for patterns that stand-ins can't serve: those that
    compare characters of the text with each other, or name characters of an unusual kind.

    >>> print(written_out(r"(\d)\1")[:40])
    ([\u0030-\u0039\u0660-\u0669\u06f0-\u06f

    Raises:
        UnknownConstructError: a class can't be written out.
    """
    return "".join(_tokens(pattern))


def _tokens(pattern: str) -> Iterator[str]:
    """Yield the parts of a pattern, classes written out."""
    within, ignores = False, [False]  # whether in a set, and whether each open group ignores case
    for found in _TOKEN.finditer(pattern):
        token = found[0]
        if _UNLISTED.match(token) or (within and pattern.startswith("[:", found.start())):
            raise _refused(pattern, token)
        if _CLASS.match(token):
            yield _listed(pattern, token, within, ignores[-1])
        elif token in _WORD_BORDERS and not within:
            yield _word_border(token)
        else:
            yield token
        if within:
            within = token != "]"
        elif token[0] == "[":
            within = True
        elif token[0] == "(":
            ignores = _opened(pattern, token, ignores)
        elif token == ")":
            ignores.pop()


def _opened(pattern: str, token: str, ignores: list[bool]) -> list[bool]:
    """Return whether each open group ignores case, after one more was opened."""
    flags = re.fullmatch(r"\(\?([a-zA-Z0-9]*)(-[a-zA-Z]+)?([:)])", token)
    if flags is None:
        if token == "(?#":
            raise _refused(pattern, token)
        return [*ignores, ignores[-1]]
    if not {*flags[1]} <= {*"imsr"}:  # others change what a class is, or how a pattern is written
        raise _refused(pattern, token)
    ignored = "i" in flags[1] or (ignores[-1] and "i" not in (flags[2] or ""))
    return [*ignores, ignored] if flags[3] == ":" else [*ignores[:-1], ignored]


def _listed(pattern: str, token: str, within: bool, ignore_case: bool) -> str:
    """Return the characters of a class, as a set or as members of one."""
    if within and ignore_case:  # there, `regex` ignores the case of listed characters, too
        raise _refused(pattern, token)
    if not core.can_tell(token):
        raise _refused(pattern, token)
    found = members(f"(?i:{token})" if ignore_case else token)
    if not found:
        raise _refused(pattern, token)
    if within:
        return spelled(found)
    return f"(?-i:[{spelled(found)}])" if ignore_case else f"[{spelled(found)}]"


def _word_border(token: str) -> str:
    word = f"(?-i:[{spelled(members(f'[{WORD_CHARS}]'))}])"
    negated, plain = _WORD_BORDERS[token]
    return f"(?:(?<={word})(?{negated}{word})|(?<!{word})(?{plain}{word}))"


def _refused(pattern: str, token: str) -> UnknownConstructError:
    return UnknownConstructError(
        f"split pattern {core.shorten(pattern)}: the installed regex doesn't have Unicode "
        f"{core.UNICODE_VERSION}, and {token!r} can't be replaced in this pattern; "
        "install regex==2024.11.6, or write the pattern without it"
    )
