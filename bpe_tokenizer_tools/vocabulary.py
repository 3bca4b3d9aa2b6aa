"""Change a vocabulary and keep its ids."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, cast

from bpe_tokenizer import Definition


def cut(definition: Definition, vocab_size: int) -> Definition:
    """Keep the first merges, as many as leave `vocab_size` tokens in all."""
    if definition.components is not None:
        raise ValueError("only byte-level BPE with one split pattern can be cut down")
    token = {id_: token for token, id_ in definition.vocab.items()}
    ids = {cast("int", token.id) for token in definition.added}
    smallest, size = 256 + len(ids), len({*token, *ids})
    if not smallest <= vocab_size <= size:
        raise ValueError(
            f"vocab_size must be from {smallest} (bytes and added tokens) to "
            f"{size} (what this tokenizer has), got {vocab_size}"
        )
    room = vocab_size - smallest
    vocab = {token: id_ for token, id_ in definition.vocab.items() if len(token) == 1}
    merges: list[tuple[int, int]] = []
    for left, right in definition.merges:
        joined = token[left] + token[right]
        if token[left] not in vocab or token[right] not in vocab:
            raise ValueError(
                f"this vocabulary cannot be cut: its merge {len(merges)} joins a token that only a "
                "later one makes, so its first merges are no vocabulary of their own"
            )
        if joined not in vocab:
            if not room:
                break
            vocab[joined] = definition.vocab[joined]
            room -= 1
        merges.append((left, right))
    unmade = (item for item in definition.vocab.items() if item[0] not in vocab)
    vocab.update(list(itertools.islice(unmade, room)))  # if there are tokens no merge makes
    # Added tokens that stood right behind the last ordinary one still do.
    following = list(itertools.takewhile(ids.__contains__, itertools.count(max(token) + 1)))
    staying = ids.difference(following)
    free = (id_ for id_ in itertools.count(max(vocab.values()) + 1) if id_ not in staying)
    moved = dict(zip(following, free))
    added = [
        dataclasses.replace(token, id=moved.get(cast("int", token.id), token.id))
        for token in definition.added
    ]
    added.sort(key=lambda token: cast("int", token.id))
    template: Any = definition.template
    if not isinstance(template, str):
        template = tuple(tuple(moved.get(id_, id_) for id_ in side) for side in template)
    return dataclasses.replace(
        definition, vocab=vocab, merges=merges, added=tuple(added), template=template
    )
