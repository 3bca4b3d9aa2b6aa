"""What a job has done, in figures and in words."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bpe_tokenizer_tools.scale.executors.executor import Executor
from bpe_tokenizer_tools.scale.executors.progress import duration, size
from bpe_tokenizer_tools.scale.inputs import Shard

__all__ = ["JobReport"]


@dataclass(frozen=True)
class JobReport:
    """What a job has done.

    Attributes:
        shards: files that were read, now or by an earlier run.
        kept: those of them that an earlier run had done.
        documents: documents in them.
        bytes: UTF-8 bytes of text in these.
        skipped: documents that were left out, because they could not be read.
        first_skipped: why the first one was; None if none was.
        num_workers: processes that worked at a time; None on Ray, if Ray chose.
        input_bytes: size of the files that this run read, as they are on disk.
        seconds: how long it took.
    """

    shards: int
    kept: int
    documents: int
    bytes: int
    skipped: int
    first_skipped: str | None
    num_workers: int | None
    input_bytes: int
    seconds: float

    @staticmethod
    def facts(
        markers: Mapping[Shard, Mapping[str, Any]],
        kept: int,
        executor: Executor,
        input_bytes: int,
        began: float,
    ) -> dict[str, Any]:
        """Return the attributes that every job has, from the markers of its shards."""
        firsts = (markers[shard]["first_skipped"] for shard in sorted(markers))
        on_ray = executor.kind == "ray"
        return {
            "shards": len(markers),
            "kept": kept,
            **{
                key: sum(m[key] for m in markers.values())
                for key in ("documents", "bytes", "skipped")
            },
            "first_skipped": next((first for first in firsts if first), None),
            "num_workers": executor.num_workers if on_ray else executor.n_processes(len(markers)),
            "input_bytes": input_bytes,
            "seconds": time.perf_counter() - began,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the attributes, as JSON has them."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{size(self.bytes)} in {_number(self.documents, 'document')} of "
            f"{_number(self.shards, 'shard')}",
            *self._lines(),
        ]
        if self.skipped:
            what = f"{_number(self.skipped, 'document')} skipped"
            lines.append(f"{what}; the first: {self.first_skipped}")
        return "\n".join([*lines, self._speed()])

    def _lines(self) -> list[str]:
        """Say what this job, and no other, has found out."""
        raise NotImplementedError

    def _speed(self) -> str:
        line = f"took {duration(self.seconds)}"
        rate = self.input_bytes / self.seconds if self.seconds else 0.0
        if rate:
            line += f", {size(rate)} of files a second"
        if rate and self.num_workers:
            workers = _number(self.num_workers, "worker")
            line += f" ({size(rate / self.num_workers)} for each of {workers})"
        if self.kept:
            line += f"; {self.kept:,} of {_number(self.shards, 'shard')} done before"
        return line


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
