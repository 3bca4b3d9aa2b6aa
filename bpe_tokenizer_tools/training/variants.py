"""What the other ways to train share: their arguments, and how they use the result."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from bpe_tokenizer import BPETokenizer, PretokenCounts, TrainingReport
from bpe_tokenizer_tools import core
from bpe_tokenizer_tools.training.reports import report


class Training:
    """One call of `BPETokenizer.train`: its checked arguments, and its progress."""

    def __init__(self, tokenizer: BPETokenizer, given: Mapping[str, Any]) -> None:
        self._old = core.frozen(tokenizer)
        surround, old = given["surround"], self._old.definition
        if old.components is not None:
            raise ValueError(
                "this tokenizer is not byte-level BPE with one pattern; make a new one"
            )
        rule = old.template if surround is None else str(surround)
        self.tokenizer = tokenizer
        self.vocab_size, self.min_frequency = given["vocab_size"], given["min_frequency"]
        self.longest, self.verbose = given["max_token_length"], given["verbose"]
        self.workers, self.text_field = given["num_workers"], given["text_field"]
        self.named = core.as_added_tokens(given["special_tokens"])
        names = {token.content for token in self.named}
        tokens = [token for token in old.added if token.content not in names] + self.named
        empty = core.new_definition(old.split_pattern, old.normalizer, rule)
        first = given.get("special_tokens_first", False)  # counting for it makes no difference
        self.empty, self.tokens = core.lay_out(empty, tokens, self.named, first)
        numbered = core.with_added_tokens(self.empty, self.tokens)
        self.contents = [token.content for token in numbered.added]
        sizes = len(self.contents), self.min_frequency, self.longest
        self.room = core.room_for_merges(self.vocab_size, *sizes)
        written = map(core.from_printable, self.contents)
        self.forbidden = frozenset(token for token in written if token)
        self._started = self._counted = time.perf_counter()

    def counted(self) -> None:
        """Record that counting has ended, and learning begins."""
        self._counted = time.perf_counter()

    def finish(
        self,
        learned: core.Learned,
        counts: PretokenCounts,
        pattern: str,
        make: Callable[..., TrainingReport] = TrainingReport,
    ) -> BPETokenizer:
        """Put the result into the tokenizer, and make its training report with `make`."""
        empty = dataclasses.replace(self.empty, split_pattern=pattern)
        core.adopt(self.tokenizer, learned, empty, self.tokens, self.named, self._old)
        times = self._started, self._counted
        report(self.tokenizer, counts, counts, learned, *times, self.verbose, make)
        return self.tokenizer


def train(tokenizer: BPETokenizer, given: Mapping[str, Any]) -> BPETokenizer:
    """Train as `BPETokenizer.train` was asked to: superwords, parity, or another style."""
    if given["superwords"] is None and given["parity"] is None:
        if given["special_tokens_first"] and given["style"] != "byte-level":
            problem = "special_tokens_first works only with style='byte-level'"
            raise ValueError(f"{problem}; leave it out")
        if given["style"] == "words":
            from bpe_tokenizer_tools.training import words

            return words.train(tokenizer, given)
        from bpe_tokenizer_tools.training import sentencepiece

        return sentencepiece.train(tokenizer, given)
    usual: dict[str, Any] = {"style": "byte-level", "ties": "huggingface"}
    usual |= dict.fromkeys(core.STYLE_OPTIONS)
    asked = "superwords" if given["superwords"] is not None else "parity"
    also = [name for name, value in usual.items() if given[name] != value]
    if asked == "superwords" and given["parity"] is not None:
        also.append("parity")
    if also:
        raise ValueError(f"{asked} can't be combined with {', '.join(also)}; leave one of them out")
    if asked == "superwords":
        from bpe_tokenizer_tools.training import superwords

        return superwords.train(tokenizer, given)
    from bpe_tokenizer_tools.training import parity

    return parity.train(tokenizer, given)
