"""What the trainers of this room say at their end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bpe_tokenizer import BPETokenizer, PretokenCounts, TrainingReport
from bpe_tokenizer_tools import core


def report(
    tokenizer: BPETokenizer,
    found: PretokenCounts,
    counts: Mapping[Any, int],
    learned: core.Learned,
    started: float,
    counted: float,
    verbose: object,
    make: Callable[..., TrainingReport] = TrainingReport,
) -> None:
    """Give a tokenizer the report of the training that has just ended; print it if `verbose`.

    Args:
        tokenizer: what was trained.
        found: what was read.
        counts: what merges were learned from: `found`, or words made of it.
        learned: the merges.
        started: when counting began, by `time.perf_counter`.
        counted: when it ended.
        verbose: whether to print the report.
        make: makes the report.
    """
    tokenizer.training_report = made = make(
        documents=found.documents,
        bytes_read=found.bytes_read,
        pretokens=sum(counts.values()),
        distinct_pretokens=len(counts),
        merges=len(learned.merges),
        vocab_size=tokenizer.vocab_size,
        counting_seconds=counted - started,
        learning_seconds=time.perf_counter() - counted,
        stopped=learned.stopped,
    )
    if verbose:
        print(f"Trained: {made}", file=sys.stderr)
