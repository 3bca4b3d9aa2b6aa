"""Change files as their format sees them: a value of JSON, a field of protobuf, a number.

Bytes changed at random nearly all end in the same error, "not JSON".  These mutations keep the
outer form, so that readers get further.  All choices come from one `random.Random`.
"""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable
from typing import Any

FLOAT = struct.Struct("<f")
Mutator = Callable[[random.Random, bytes], bytes]

# What readers may take for something else: limits, other types, text that is special somewhere.
NUMBERS = [0, 1, -1, 2, 255, 256, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 2**63, -(2**63), 10**30]
TEXTS = [
    *["", " ", "\0", "a", "▁", "Ġ", "ß" * 40, "<s>", "</s>", "<unk>", "<0x41>", "<|endoftext|>"],
    *[
        "\ud800",
        "\ufffd",
        "\u0301",
        "é",
        "e\u0301",
        "😀",
        "a" * 5_000,
        "1e999",
        "../../x",
        "\x1b[2J",
    ],
    *[
        r"(a+)+$",
        r"(?R)",
        r"\p{L}{1,9999}",
        "[",
        "(?<!a)b",
        r"\s+(?!\S)|\s+",
        "(" * 200,
        r"(a|a?)+",
    ],
    *[
        "{{",
        "{% for a in",
        "{{ 9**9**9 }}",
        "{% for a in range(10**9) %}{% endfor %}",
        "{{ x.__class__ }}",
    ],
]
VALUES: list[Any] = [None, True, False, 1.5, float("nan"), [], {}, [[]], {"": ""}, [None] * 3]
TYPES = ["Sequence", "Split", "ByteLevel", "Metaspace", "Replace", "Prepend", "Strip", "NFKC"]
TYPES += ["Digits", "Punctuation", "ByteFallback", "Fuse", "TemplateProcessing", "BPE", "Unigram"]


def value(rng: random.Random) -> Any:
    """Return a value that a reader may not expect."""
    chosen: list[Any] = rng.choice([NUMBERS, TEXTS, VALUES, TYPES])
    return copy.deepcopy(rng.choice(chosen))  # or a change of it would reach the next file


# -- JSON ---


def _places(found: Any, places: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Collect each container and key in it; of long ones, the first and the last."""
    keys = list(found) if isinstance(found, dict) else list(range(len(found)))
    for key in keys if len(keys) < 24 else [*keys[:12], *keys[-12:]]:
        places.append((found, key))
        if isinstance(found[key], (dict, list)):
            _places(found[key], places)
    return places


def _change(rng: random.Random, places: list[tuple[Any, Any]]) -> None:
    """Change what one place has; earlier changes may have taken it away."""
    inside, key = rng.choice(places)
    if key not in (inside if isinstance(inside, dict) else range(len(inside))):
        return
    there, kind = inside[key], rng.randrange(6)
    if kind == 0:
        del inside[key]
    elif kind == 1 and isinstance(inside, list):
        inside.insert(rng.randrange(len(inside) + 1), there)
    elif kind == 1:
        inside[str(rng.choice(places)[1])] = there
    elif kind == 2:  # what another place has
        other, at = rng.choice(places)
        if at in (other if isinstance(other, dict) else range(len(other))):
            inside[key] = json.loads(json.dumps(other[at]))
    elif kind == 3:  # deep
        for _ in range(rng.choice([1, 2, 50])):
            inside[key] = [inside[key]] if rng.random() < 0.5 else {"a": inside[key]}
    elif kind == 4 and isinstance(there, (int, float, str)):
        inside[key] = _near(rng, there)
    else:
        inside[key] = value(rng)


def _near(rng: random.Random, there: float | str) -> Any:
    """Return a number or a text that differs a little."""
    if not isinstance(there, str):
        return there + rng.choice([-1, 1, 256, 2**31])
    at = rng.randrange(len(there) + 1)
    return there[:at] + rng.choice(TEXTS) + there[at + rng.randrange(3) :]


def as_json(rng: random.Random, data: bytes) -> bytes:
    """Change one to three values of JSON."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return as_bytes(rng, data)
    if not isinstance(found, (dict, list)) or not found or rng.random() < 0.03:
        return as_bytes(rng, data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if places := _places(found, []):
            _change(rng, places)
    return json.dumps(found, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")


# -- Protobuf ---


def _varint(number: int) -> bytes:
    number &= 2**64 - 1
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number, shift, at = number | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return number, at


def _fields(data: bytes) -> list[tuple[int, int, Any]]:
    """Split a message into fields: number, kind and content."""
    fields: list[tuple[int, int, Any]] = []
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        kind, content = key & 7, b""
        if kind == 0:
            number, at = _read_varint(data, at)
            fields.append((key >> 3, kind, number))
            continue
        size = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            size, at = _read_varint(data, at)
        if size < 0 or at + size > len(data):
            raise ValueError
        content, at = data[at : at + size], at + size
        fields.append((key >> 3, kind, content))
    return fields


def message(fields: list[tuple[int, int, Any]]) -> bytes:
    """Write a message of fields: number, kind and content."""
    made = bytearray()
    for number, kind, content in fields:
        made += _varint(number << 3 | kind)
        if kind == 2:
            made += _varint(len(content))
        made += _varint(content) if kind == 0 else content
    return bytes(made)


def as_protobuf(rng: random.Random, data: bytes) -> bytes:
    """Change a field of a message, or of a message in it."""
    try:
        fields = _fields(data)
    except (ValueError, IndexError):
        return as_bytes(rng, data)
    if not fields or rng.random() < 0.05:
        return as_bytes(rng, data)
    at, kind = rng.randrange(len(fields)), rng.randrange(6)
    number, wire, content = fields[at]
    if kind == 0:
        del fields[at]
    elif kind == 1:
        fields.insert(rng.randrange(len(fields) + 1), fields[at])
    elif kind == 2:
        fields[at] = rng.choice([number, 1, 2, 3, 5, 40]), wire, content
    elif wire == 0:
        fields[at] = number, 0, rng.choice([content + 1, content ^ 1, *NUMBERS])
    elif wire == 2 and kind < 5:
        fields[at] = number, 2, as_protobuf(rng, content)
    elif wire == 2:
        fields[at] = number, 2, rng.choice(TEXTS).encode(errors="surrogatepass")
    else:
        fields[at] = number, wire, rng.randbytes(len(content))
    return message(fields)


# -- Lines, headers, bytes ---


def as_lines(rng: random.Random, data: bytes) -> bytes:
    """Change a line, or a word of one."""
    lines = data.split(b"\n")
    at, kind = rng.randrange(len(lines)), rng.randrange(6)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(rng.randrange(len(lines) + 1), lines[at])
    elif kind == 2:
        lines[at] = rng.choice(TEXTS).encode(errors="surrogatepass")
    elif kind == 3:
        words = lines[at].split(b" ")
        chosen = rng.choice([*TEXTS, *map(str, NUMBERS)])
        words[rng.randrange(len(words))] = chosen.encode(errors="surrogatepass")
        lines[at] = b" ".join(words)
    elif kind == 4:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        return as_bytes(rng, data)
    return b"\n".join(lines)


def as_header(rng: random.Random, data: bytes) -> bytes:
    """Change a number of 1, 2, 4 or 8 bytes, mostly near the beginning; or text that is there."""
    kind = rng.randrange(4)
    if kind == 0 or len(data) < 16:
        return as_bytes(rng, data)
    made, size = bytearray(data), rng.choice([1, 2, 4, 4, 8, 8])
    at = min(int(len(data) * rng.random() ** rng.choice([1, 4])), len(data) - size)
    if kind == 1:
        number = int.from_bytes(made[at : at + size], "little") + rng.choice([-1, 1, 8, 256])
    else:
        number = rng.choice(NUMBERS)
    made[at : at + size] = (number % 256**size).to_bytes(size, "little")
    return bytes(made)


def as_bytes(rng: random.Random, data: bytes) -> bytes:
    """Change bytes: put some in, take some out, turn bits, cut off."""
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at, kind = rng.randrange(len(made) + 1), rng.randrange(5)
        size = rng.choice([1, 1, 2, 4, 16])
        if kind == 0:
            made[at:at] = rng.randbytes(size)
        elif kind == 1:
            del made[at : at + size]
        elif kind == 2 and at < len(made):
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            made[at : at + size] = rng.choice(TEXTS).encode(errors="surrogatepass")[: 4 * size]
        elif rng.random() < 0.2:
            del made[at:]
    return bytes(made)
