"""Counting corpora too large for memory, one core or one machine, and packing them as token ids.

    >>> from bpe_tokenizer_tools.scale import count_pretokens, encode_corpus, open_packed

`count_pretokens` counts pre-tokens for training, and `encode_corpus` writes a corpus as ids.  The
result is the same, byte for byte, as from one process, whatever the executor, the number of workers
and the interruptions.  The unit of work is a file, called a shard.  Local processes do the work by
default, or a Ray cluster.  For any other executor, use the parts: `count_shard`, `partition_of` and
`merge_counts`, and `encode_shard`.
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
