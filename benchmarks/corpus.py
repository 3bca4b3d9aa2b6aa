"""A training corpus of any size, the same on every machine that has the same texts.

The available texts come first, unchanged.  Then they repeat, every second document with some
of its letters exchanged, so that the number of distinct pre-tokens keeps growing, as it does
in text that people write.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from common import END_OF_TEXT, python_sources, shared_texts

VOWELS, CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"
BLOCK = 1 << 20


def training_documents(files: Sequence[Path] | None, megabytes: float) -> Iterator[str]:
    """Yield documents, up to a size; only the one being read is in memory."""
    files = files or shared_texts()
    size = 0
    for round_ in itertools.count():
        exchange = exchanged_letters(round_)
        streams = [documents_of(file) for file in files] or [iter(python_sources())]
        in_turn = itertools.chain.from_iterable(itertools.zip_longest(*streams))
        for number, document in enumerate(filter(None, in_turn)):
            if size >= megabytes * 1e6:
                return
            if round_ and number % 2:
                document = document.translate(exchange)
            size += len(document.encode())
            yield document


def documents_of(file: Path) -> Iterator[str]:
    """Read a file piece by piece; yield its documents, without white space at their ends."""
    rest = ""
    with file.open(encoding="utf-8", newline="") as stream:
        for block in iter(lambda: stream.read(BLOCK), ""):
            *documents, rest = (rest + block).split(END_OF_TEXT)
            yield from map(str.strip, documents)
    yield rest.strip()


def exchanged_letters(round_: int) -> dict[int, int]:
    """Return a table for str.translate that exchanges two vowels, and some consonants."""
    rng = random.Random(round_)
    letters = dict(zip(VOWELS + CONSONANTS, VOWELS + CONSONANTS))
    for group, n_pairs in ((VOWELS, 1), (CONSONANTS, round_ + 1)):
        for _ in range(n_pairs):
            one, other = rng.sample(group, 2)
            letters[one], letters[other] = letters[other], letters[one]
    small = "".join(letters), "".join(letters.values())
    return str.maketrans(small[0] + small[0].upper(), small[1] + small[1].upper())
