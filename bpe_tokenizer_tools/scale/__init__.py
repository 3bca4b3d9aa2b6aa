"""Corpora larger than memory, than one core, than one machine: counted, and packed as token ids.

    >>> from bpe_tokenizer_tools.scale import count_pretokens, encode_corpus, open_packed

`count_pretokens` counts what training starts from, and `encode_corpus` writes a corpus as ids; the
result is that of one process, to the byte, whatever the executor, the number of workers and the
interruptions.  The unit of work is a file, a shard.  Local processes work by default; a Ray
cluster, if asked; and for any other executor, these are the pieces: `count_shard`, `partition_of`
and `merge_counts`, and `encode_shard`.
"""

from __future__ import annotations

from bpe_tokenizer_tools.scale.counting import (
    CountJob,
    CountReport,
    count_pretokens,
    count_shard,
    merge_counts,
)
from bpe_tokenizer_tools.scale.packed import PackedCorpus, open_packed
from bpe_tokenizer_tools.scale.packing import PackJob, PackReport, encode_corpus, encode_shard
from bpe_tokenizer_tools.scale.rows import BatchEncoder
from bpe_tokenizer_tools.scale.runs import partition_of

__all__ = [
    "BatchEncoder", "CountJob", "CountReport", "PackJob", "PackReport", "PackedCorpus",
    "count_pretokens", "count_shard", "encode_corpus", "encode_shard", "merge_counts",
    "open_packed", "partition_of",
]  # fmt: skip
